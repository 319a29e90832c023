/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks for tests of the CUDA backend.
 */
#ifndef FDD_KERNELS_CUDA_HOOKS_H
#define FDD_KERNELS_CUDA_HOOKS_H

#include "kernels/fdk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Captures launch(arg) on the stream without running it, and writes the symbols of its
 * kernels in their order, each ended by a newline. Returns 0, -ENOSPC, -ENOTSUP if the
 * driver does not give symbols, or the error of launch(). */
int fdk_cuda_kernels(fdk_stream_t st, int (*launch)(void *arg), void *arg, char *ret,
    size_t ret_bytes);

/* on 1: every tensor map fails from now on; 0: maps work again. Returns how many have
 * failed since the previous call. */
int fdk_cuda_fail_maps(int on);

/* The cudaStream_t, for tests that compare with other libraries; NULL without CUDA. */
void *fdk_cuda_stream(fdk_stream_t st);

#ifdef __cplusplus
}
#endif
#endif
