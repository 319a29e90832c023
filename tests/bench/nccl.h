/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's all-reduce for comparison: found with dlopen, not linked. FDD_NCCL names the
 * file to load instead of libnccl.so.2. Include config.h and kernels/fdk.h first.
 */
#ifndef FDD_TESTS_BENCH_NCCL_H
#define FDD_TESTS_BENCH_NCCL_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/collective.h"
#include "kernels/cuda/hooks.h"

/* Functions as declared by nccl.h, versions 2.18 to 2.99. all_reduce is
 * NULL if NCCL was not found. */
struct nccl {
    void *so;
    int version, n;
    void *comm[FDK_MAX_RANKS];
    int (*get_version)(int *);
    int (*init_all)(void **, int, const int *);
    int (*begin)(void);
    int (*end)(void);
    int (*all_reduce)(const void *, void *, size_t, int type, int op, void *comm, void *st);
    int (*destroy)(void *);
};
#define NCCL_SUM 0

static inline int
nccl_type(enum fdk_dtype t)
{
    return t == FDK_BF16 ? 9 : t == FDK_F16 ? 6 : 7;
}

/* Opens communicators for devices 0 .. n - 1. Returns 0, else
 * -1 with the reason in why. */
static inline int
nccl_open(struct nccl *ret, int n, char *why, size_t why_bytes)
{
    const char *name = getenv("FDD_NCCL");
    int dev[FDK_MAX_RANKS], rc;
    struct nccl c = { .so = dlopen(name != NULL ? name : "libnccl.so.2", RTLD_NOW), .n = n };

    *ret = (struct nccl){ 0 };
    if (c.so == NULL) {
        (void)snprintf(why, why_bytes, "%s", dlerror());
        return -1;
    }
    *(void **)&c.get_version = dlsym(c.so, "ncclGetVersion");
    *(void **)&c.init_all = dlsym(c.so, "ncclCommInitAll");
    *(void **)&c.begin = dlsym(c.so, "ncclGroupStart");
    *(void **)&c.end = dlsym(c.so, "ncclGroupEnd");
    *(void **)&c.all_reduce = dlsym(c.so, "ncclAllReduce");
    *(void **)&c.destroy = dlsym(c.so, "ncclCommDestroy");
    if (c.get_version == NULL || c.init_all == NULL || c.begin == NULL || c.end == NULL ||
        c.all_reduce == NULL || c.destroy == NULL || c.get_version(&c.version) != 0 ||
        c.version < 21800 || c.version >= 30000) {
        (void)snprintf(why, why_bytes, "version %d is not 2.18 or later", c.version);
        return -1;
    }
    for (int i = 0; i < n; i++)
        dev[i] = i;
    rc = c.init_all(c.comm, n, dev);
    if (rc != 0) {
        (void)snprintf(why, why_bytes, "ncclCommInitAll: error %d", rc);
        return -1;
    }
    *ret = c;
    return 0;
}

/* Sums n elements over all ranks, on each rank's stream. */
static inline int
nccl_reduce(const struct nccl *c, void *const *x, void *const *y, size_t n,
    enum fdk_dtype t, const fdk_stream_t *st)
{
    int rc = c->begin();

    for (int q = 0; q < c->n && rc == 0; q++)
        rc = c->all_reduce(x[q], y[q], n, nccl_type(t), NCCL_SUM, c->comm[q],
            fdk_cuda_stream(st[q]));
    return rc != 0 ? rc : c->end();
}

static inline void
nccl_close(const struct nccl *c)
{
    for (int q = 0; q < c->n && c->all_reduce != NULL; q++)
        (void)c->destroy(c->comm[q]);
}

#endif
