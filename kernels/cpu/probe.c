/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vdev.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Measured peak of the processors, on separate threads, because the pool may be
 * working for a stream.
 */

#define READ_LEAST  ((size_t)64 << 20)
#define READ_MOST   ((size_t)1 << 30)
#define READ_USUAL  ((size_t)256 << 20)
#define READ_CACHES 4              /* times the size of the last-level cache */
#define READ_GRAIN  ((size_t)8192) /* floats stream_read() takes at a time */
#define HUGE_BYTES  ((size_t)2 << 20)

#define RUNS        8
#define LEAST_NS    10000000u  /* least time of one run of the multiply-add loop */
#define BUDGET_NS   600000000u /* time of all runs except the first */

struct job {
    const struct cpu_isa *isa;
    pthread_t thread;
    int started;
    float *x; /* memory that this thread reads; NULL: multiply-adds */
    size_t n;
    long n_iter;
    int touch; /* 1: write the memory, so that its pages are near this thread */
    volatile float sink;
};

static void *
job_main(void *arg)
{
    struct job *j = arg;
    if (j->touch)
        memset(j->x, 0, j->n * sizeof(*j->x));
    else if (j->x != NULL)
        j->sink = j->isa->stream_read(j->x, j->n);
    else
        j->sink = j->isa->peak_fma(j->n_iter);
    return NULL;
}

/* Runs all jobs in parallel, the first one in the caller, as well as those whose thread
 * could not be started. Returns nanoseconds. */
static uint64_t
run_jobs(struct job *j, int n)
{
    uint64_t t0 = cpu_now_ns();
    for (int i = 1; i < n; i++)
        j[i].started = pthread_create(&j[i].thread, NULL, job_main, &j[i]) == 0;
    (void)job_main(&j[0]);
    for (int i = 1; i < n; i++) {
        if (j[i].started)
            pthread_join(j[i].thread, NULL);
        else
            (void)job_main(&j[i]);
    }
    uint64_t t1 = cpu_now_ns();
    return t1 > t0 ? t1 - t0 : 1;
}

/* Shortest of several runs. */
static uint64_t
best_run(struct job *j, int n)
{
    uint64_t end = cpu_now_ns() + BUDGET_NS, best = run_jobs(j, n);
    for (int i = 1; i < RUNS && cpu_now_ns() < end; i++) {
        uint64_t ns = run_jobs(j, n);
        best = ns < best ? ns : best;
    }
    return best;
}

static size_t
read_bytes(void)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t n = READ_USUAL, room = (size_t)(fdk_host_mem_free() / 4);
    if (cache > 0 && (size_t)cache > READ_MOST / READ_CACHES)
        n = READ_MOST;
    else if (cache > 0 && (size_t)cache * READ_CACHES > n)
        n = (size_t)cache * READ_CACHES;
    return room > 0 && n > room ? room : n;
}

static int
probe_read(struct job *j, int n, double *ret)
{
    size_t bytes = read_bytes(), part;
    void *mem;
    if (bytes < READ_LEAST)
        return -ENOMEM;
    part = bytes / sizeof(float) / (size_t)n / READ_GRAIN * READ_GRAIN;
    if (part == 0)
        return -ENOMEM;
    bytes = part * (size_t)n * sizeof(float);
    if (posix_memalign(&mem, HUGE_BYTES, bytes) != 0)
        return -ENOMEM;
    (void)madvise(mem, bytes, MADV_HUGEPAGE);
    for (int i = 0; i < n; i++) {
        j[i].x = (float *)mem + part * (size_t)i;
        j[i].n = part;
        j[i].touch = 1;
    }
    (void)run_jobs(j, n);
    for (int i = 0; i < n; i++)
        j[i].touch = 0;
    *ret = (double)bytes * 1e9 / (double)best_run(j, n);
    free(mem);
    return 0;
}

static void
probe_fma(struct job *j, int n, double *ret)
{
    long n_iter = 4096;
    while (n_iter < 1L << 26) {
        for (int i = 0; i < n; i++)
            j[i].n_iter = n_iter;
        if (run_jobs(j, n) >= LEAST_NS)
            break;
        n_iter *= 2;
    }
    *ret = 2.0 * 256 * (double)n_iter * n * 1e9 / (double)best_run(j, n);
}

int
vdev_probe(struct fdk_ctx *ctx, int dev, enum fdk_probe what, enum fdk_dtype t, double *ret)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return -EINVAL;
    if (cpu_failed(&ctx->dev[dev]))
        return -EIO;
    if (what == FDK_PROBE_LINK) {
        if (ctx->n_dev == 1)
            return -ENOTSUP;
        what = FDK_PROBE_READ;
    }
    if (!ctx->math || (what != FDK_PROBE_READ && (what != FDK_PROBE_FLOPS || t != FDK_F32)))
        return -ENOTSUP;
    struct job *j = calloc((size_t)ctx->n_thread, sizeof(*j));
    int rc = 0;
    if (j == NULL)
        return -ENOMEM;
    for (int i = 0; i < ctx->n_thread; i++)
        j[i].isa = ctx->isa;
    if (what == FDK_PROBE_READ)
        rc = probe_read(j, ctx->n_thread, ret);
    else
        probe_fma(j, ctx->n_thread, ret);
    free(j);
    return rc;
}
