/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that only the cpu backend has, for programs that compute the work of several
 * ranks on one device (mdl_build_reference()):
 *
 *   columns   y (T, N) = the columns of x (T, K) from f[0] on
 *   add       y (T, N) = x + x2
 */
#include "config.h"

#include "kernels/cpu/vdev.h"
#include "kernels/program.h"

#include <errno.h>
#include <string.h>

static int32_t
live(const struct fdk_own_args *a)
{
    return *a->n < a->T ? *a->n : a->T;
}

static void
columns(const void *args)
{
    const struct fdk_own_args *a = args;
    const float *x = (const float *)a->x + (size_t)a->f[0];
    size_t N = (size_t)a->N, K = (size_t)a->K;

    for (int32_t t = 0; t < live(a); t++)
        memcpy((float *)a->y + (size_t)t * N, x + (size_t)t * K, N * sizeof(*x));
}

static void
add(const void *args)
{
    const struct fdk_own_args *a = args;
    const float *x = a->x, *x2 = a->x2;
    float *y = a->y;
    int32_t rows = live(a);

    for (size_t i = 0; rows > 0 && i < (size_t)rows * (size_t)a->N; i++)
        y[i] = x[i] + x2[i];
}

static int
is_valid(const struct fdk_own_args *a)
{
    return a->T > 0 && a->N > 0 && a->y != NULL && a->x != NULL && a->n != NULL &&
        a->act == FDK_F32;
}

static int
launch_columns(const struct fdk_own_args *a, fdk_stream_t st)
{
    if (!is_valid(a) || !(a->f[0] >= 0) || (double)a->f[0] + a->N > a->K)
        return -EINVAL;
    return fdk_cpu_call(st, columns, a, sizeof(*a));
}

static int
launch_add(const struct fdk_own_args *a, fdk_stream_t st)
{
    if (!is_valid(a) || a->x2 == NULL)
        return -EINVAL;
    return fdk_cpu_call(st, add, a, sizeof(*a));
}

const struct fdk_own cpu_own[CPU_OWN] = {
    { .name = "columns", .kernels = "columns", .launch = launch_columns },
    { .name = "add", .kernels = "add", .launch = launch_add },
};
