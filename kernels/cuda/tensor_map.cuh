/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's call that makes tensor maps, found without linking the driver, and what
 * kernels do with maps whatever their shape.
 */
#ifndef FDD_KERNELS_CUDA_TENSOR_MAP_CUH
#define FDD_KERNELS_CUDA_TENSOR_MAP_CUH

#include <cuda.h>
#include <cuda_runtime.h>

typedef CUresult (*cu_encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
    CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill);

/* hooks.cu: do tests have every map fail? Counts it then. */
int cu_map_refused(void);

/* The driver's call, with its arguments. Without it, and where tests say so, no map can be
 * made: the caller launches nothing and returns -ENOTSUP, and another kernel computes it. */
template<class... A>
static inline CUresult
cu_make_map(cu_encode_fn encode, A... a)
{
    return encode == NULL || cu_map_refused() ? CUDA_ERROR_NOT_SUPPORTED : encode(a...);
}

/* The map itself on its way, ahead of the first copy by it. */
static __device__ __forceinline__ void
cu_prefetch_map(const CUtensorMap *m)
{
    asm volatile("prefetch.tensormap [%0];" :: "l"(m) : "memory");
}

/* *ret: cuTensorMapEncodeTiled, or NULL where the driver has none or could not be asked,
 * which is the error returned. */
static inline cudaError_t
cu_find_encode(cu_encode_fn *ret)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *f = NULL;
    cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000,
        cudaEnableDefault, &found);
    *ret = e == cudaSuccess && found == cudaDriverEntryPointSuccess ? (cu_encode_fn)f :
        NULL;
    return e;
}

#endif
