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

/* Symbols of the kernels that launch(arg) puts into a recording of the stream, in their
 * order, each ended by a newline; nothing is run. -ENOSPC; -ENOTSUP: the driver does not
 * tell; what launch() returned. */
int fdk_cuda_kernels(fdk_stream_t st, int (*launch)(void *arg), void *arg, char *ret,
    size_t ret_bytes);

/* Tensor maps cannot be made from now on, or can again. Returns how many were refused since
 * the call before. */
int fdk_cuda_fail_maps(int on);

/* The CUDA stream, for libraries to compare with; NULL without CUDA. */
void *fdk_cuda_stream(fdk_stream_t st);

#ifdef __cplusplus
}
#endif
#endif
