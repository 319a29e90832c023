/*
 * What the forms of y = x w^T in bf16 share (gemm_stream.cu, gemm_stream_mid.cu,
 * gemm_stream_wide.cu): how K is cut into parts, on which a row's bits depend, and boxes of
 * 64 numbers along K, as the copy engine brings them and the tensor cores read them.
 */
#ifndef FDD_KERNELS_CUDA_GEMM_STREAM_CUH
#define FDD_KERNELS_CUDA_GEMM_STREAM_CUH

#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

#define PARTS 4                  /* of K: added as (0 + 1) + (2 + 3) */
#define UNIT  4                  /* K is cut at multiples of this many blocks of 64 */
#define SHARED_MOST (227 * 1024) /* of a block */

/* Blocks of 64 along K in which part `part` begins: what lies behind K reads as 0. */
static __device__ __forceinline__ int
cut(int K, int part)
{
    return (K + 64 * UNIT - 1) / (64 * UNIT) * part / PARTS * UNIT;
}

static __device__ __forceinline__ void
load_box(uint32_t dst, const CUtensorMap *map, int row, int kb, uint64_t *bar,
    uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global"
        ".mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;"
        :: "r"(dst), "l"(map), "r"(0), "r"(row), "r"(kb), "r"(cu_smem(bar)), "l"(policy)
        : "memory");
}

/* Rows of 128 bytes along K, 8 of them 1024 bytes apart, 128-byte swizzle. */
static __device__ __forceinline__ uint64_t
matrix(uint32_t at)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)64 << 32 |
        (uint64_t)1 << 62;
}

#define WGMMA(n, regs, a, b) "wgmma.mma_async.sync.aligned.m64n" #n \
    "k16.f32.bf16.bf16 {" regs "}, %" #a ", %" #b ", 1, 1, 1, 0, 0;"

/* A: y, ldy and y32, whether y is fp32. */
template<typename A>
static __device__ __forceinline__ void
stream_put(const A &a, int m, int n, float v)
{
    size_t at = (size_t)m * (size_t)a.ldy + (size_t)n;
    if (a.y32)
        ((float *)a.y)[at] = v;
    else
        ((__nv_bfloat16 *)a.y)[at] = __float2bfloat16_rn(v);
}

/* (rows, K) as boxes of `box` rows by n blocks of 64; what lies outside reads as 0. By
 * gemm_stream.cu, once it is loaded; -ENOTSUP. */
int stream_map(CUtensorMap *m, const void *p, int rows, int K, int box, int n);
/* Of g's w and x, as boxes of so many rows by n blocks of 64. */
int stream_maps(CUtensorMap *w, CUtensorMap *x, const struct fdk_gemm_args *g, int w_rows,
    int x_rows, int n);

/* y of T rows, ldy apart, N wide, as boxes of `box` of each of `rows`; -ENOTSUP where the
 * copy engine can't write it. */
int stream_out_map(CUtensorMap *m, void *y, int T, int N, int ldy, int y32, int box,
    int rows);

/* gemm_stream_mid.cu: up to CU_MID_ROWS rows, to the same bits. */
#define CU_MID_ROWS CU_STREAM_ROWS
int cu_gemm_stream_mid(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
cudaError_t cu_gemm_stream_mid_load(void);

/* gemm_stream_wide.cu: any number of rows, to the same bits. */
int cu_gemm_stream_wide(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
cudaError_t cu_gemm_stream_wide_load(void);

#endif
