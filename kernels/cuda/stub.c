/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cuda/hooks.h"

#include <errno.h>
#include <stdio.h>

static int
stub_available(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes,
        "this fdd-worker has no CUDA: install the "
        "package fdd-cuda, or build with --with-cuda");
    return -ENOTSUP;
}

static int
stub_open(const struct fdk_open_args *args, struct fdk_ctx **ret, char *err,
    size_t err_bytes)
{
    (void)args;
    (void)ret;
    return stub_available(err, err_bytes);
}

int
fdk_cuda_kernels(fdk_stream_t st, int (*launch)(void *arg), void *arg, char *ret,
    size_t ret_bytes)
{
    (void)st;
    (void)launch;
    (void)arg;
    return stub_available(ret, ret_bytes);
}

int
fdk_cuda_fail_maps(int on)
{
    (void)on;
    return 0;
}

void *
fdk_cuda_stream(fdk_stream_t st)
{
    (void)st;
    return NULL;
}

/* Only these two are ever called: nothing else can be reached without a context. */
const struct fdk_ops fdk_ops_cuda = {
    .name = "cuda",
    .available = stub_available,
    .open = stub_open,
};
