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

#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D64 D16(0), D16(16), D16(32), D16(48)
#define P4(a, b, c, e) "%" #a ", %" #b ", %" #c ", %" #e
#define P16A P4(0, 1, 2, 3) ", " P4(4, 5, 6, 7) ", " P4(8, 9, 10, 11) ", " \
    P4(12, 13, 14, 15)
#define P16B P4(16, 17, 18, 19) ", " P4(20, 21, 22, 23) ", " P4(24, 25, 26, 27) ", " \
    P4(28, 29, 30, 31)
#define P16C P4(32, 33, 34, 35) ", " P4(36, 37, 38, 39) ", " P4(40, 41, 42, 43) ", " \
    P4(44, 45, 46, 47)
#define P16D P4(48, 49, 50, 51) ", " P4(52, 53, 54, 55) ", " P4(56, 57, 58, 59) ", " \
    P4(60, 61, 62, 63)
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
