/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the GEMMs y = x w^T in bf16 (gemm_stream.cu, gemm_stream_mid.cu,
 * gemm_stream_wide.cu): the division of K into splits, on which a row's bits depend, and
 * TMA tiles of 64 numbers along K in the layout of the tensor cores.
 */
#ifndef FDD_KERNELS_CUDA_SM90_GEMM_STREAM_CUH
#define FDD_KERNELS_CUDA_SM90_GEMM_STREAM_CUH

#include "kernels/cuda/sm90/sm90.cuh"

#define PARTS 4                  /* splits of K: added as (0 + 1) + (2 + 3) */
#define UNIT  4                  /* K is split at multiples of this many blocks of 64 */
#define SHARED_MOST (227 * 1024) /* most shared memory of a block */

/* First block of 64 along K of split `part`; elements past K read as 0. */
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

/* Descriptor of a matrix: rows of 128 bytes along K, 1024 bytes per 8 rows, 128-byte
 * swizzle. */
static __device__ __forceinline__ uint64_t
matrix(uint32_t at)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)64 << 32 |
        (uint64_t)1 << 62;
}

#define WGMMA(n, regs, a, b) "wgmma.mma_async.sync.aligned.m64n" #n \
    "k16.f32.bf16.bf16 {" regs "}, %" #a ", %" #b ", 1, 1, 1, 0, 0;"

#define P8B P4(16, 17, 18, 19) ", " P4(20, 21, 22, 23)
#define P8C P4(32, 33, 34, 35) ", " P4(36, 37, 38, 39)
#define P8D P4(48, 49, 50, 51) ", " P4(52, 53, 54, 55)
#define P16E P4(64, 65, 66, 67) ", " P4(68, 69, 70, 71) ", " P4(72, 73, 74, 75) ", " \
    P4(76, 77, 78, 79)
#define P16F P4(80, 81, 82, 83) ", " P4(84, 85, 86, 87) ", " P4(88, 89, 90, 91) ", " \
    P4(92, 93, 94, 95)
#define P16G P4(96, 97, 98, 99) ", " P4(100, 101, 102, 103) ", " \
    P4(104, 105, 106, 107) ", " P4(108, 109, 110, 111)
#define P16H P4(112, 113, 114, 115) ", " P4(116, 117, 118, 119) ", " \
    P4(120, 121, 122, 123) ", " P4(124, 125, 126, 127)
#define P64 P16A ", " P16B ", " P16C ", " P16D
#define D8(i) D4(i), D4(i + 4)

/* d += x w^T over 16 elements of K: 64 rows of x, H rows of w. */
template<int H>
static __device__ __forceinline__ void
stream_multiply(float (&d)[H / 2], uint64_t x, uint64_t w)
{
    if constexpr (H == 32)
        asm volatile(WGMMA(32, P16A, 16, 17) : D16(0) : "l"(x), "l"(w));
    if constexpr (H == 48)
        asm volatile(WGMMA(48, P16A ", " P8B, 24, 25) : D16(0), D8(16) : "l"(x), "l"(w));
    if constexpr (H == 64)
        asm volatile(WGMMA(64, P16A ", " P16B, 32, 33) : D16(0), D16(16) : "l"(x), "l"(w));
    if constexpr (H == 80)
        asm volatile(WGMMA(80, P16A ", " P16B ", " P8C, 40, 41)
            : D16(0), D16(16), D8(32) : "l"(x), "l"(w));
    if constexpr (H == 96)
        asm volatile(WGMMA(96, P16A ", " P16B ", " P16C, 48, 49)
            : D16(0), D16(16), D16(32) : "l"(x), "l"(w));
    if constexpr (H == 112)
        asm volatile(WGMMA(112, P16A ", " P16B ", " P16C ", " P8D, 56, 57)
            : D16(0), D16(16), D16(32), D8(48) : "l"(x), "l"(w));
    if constexpr (H == 128)
        asm volatile(WGMMA(128, P16A ", " P16B ", " P16C ", " P16D, 64, 65)
            : D64 : "l"(x), "l"(w));
    if constexpr (H == 192)
        asm volatile(WGMMA(192, P64 ", " P16E ", " P16F, 96, 97)
            : D64, D16(64), D16(80) : "l"(x), "l"(w));
    if constexpr (H == 224)
        asm volatile(WGMMA(224, P64 ", " P16E ", " P16F ", " P16G, 112, 113)
            : D64, D16(64), D16(80), D16(96) : "l"(x), "l"(w));
    if constexpr (H == 256)
        asm volatile(WGMMA(256, P64 ", " P16E ", " P16F ", " P16G ", " P16H, 128, 129)
            : D64, D16(64), D16(80), D16(96), D16(112) : "l"(x), "l"(w));
}

/* d = x w^T over n blocks of 64 along K: 64 rows of x, H rows of w. R: a ring that this
 * warp reads, with its position `at`; full(), x() and w() give the address of a slot's
 * barrier and tiles in shared memory, leave() releases a slot, next() advances the
 * position. */
template<int H, typename R>
static __device__ __forceinline__ void
stream_sums(float (&d)[H / 2], int n, R &ring)
{
    int before = 0;
#pragma unroll
    for (int i = 0; i < H / 2; i++)
        d[i] = 0;
    for (int kb = 0; kb < n; kb++) {
        const int slot = ring.at.slot;
        cu_bar_wait(ring.full(slot), ring.at.parity);
        const uint32_t x = ring.x(slot), w = ring.w(slot);
        cu_wgmma_begin();
#pragma unroll
        for (int i = 0; i < 4; i++)
            stream_multiply<H>(d, matrix(x + i * 32), matrix(w + i * 32));
        cu_wgmma_end();
        cu_wgmma_wait<1>();
        if (kb > 0)
            ring.leave(before);
        before = slot;
        ring.next();
    }
    cu_wgmma_wait<0>();
    cu_wgmma_hold(d);
    if (n > 0)
        ring.leave(before);
}

/* Stores a TMA tile of y at column n, row m, as a bulk group of its own. */
static __device__ __forceinline__ void
stream_box_out(const CUtensorMap *map, int n, int m, uint32_t src, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint "
        "[%0, {%1, %2}], [%3], %4;\n\tcp.async.bulk.commit_group;"
        :: "l"(map), "r"(n), "r"(m), "r"(src), "l"(policy) : "memory");
}

/* Waits until all tiles stored by this warp have been written. */
static __device__ __forceinline__ void
stream_boxes_gone(int lane)
{
    if (lane == 0)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Waits until all tiles stored by this warp have been read from shared memory. */
static __device__ __forceinline__ void
stream_boxes_read(void)
{
    if (threadIdx.x % 32 == 0)
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    __syncwarp();
}

/* Stores element (m, n) of y. A has y, ldy and y32 (y is fp32). */
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

/* Makes a tensor map of (rows, K) with tiles of `box` rows by n blocks of 64; elements
 * outside read as 0. Needs gemm_stream.cu to be loaded. Returns 0 or -ENOTSUP. */
int stream_map(CUtensorMap *m, const void *p, int rows, int K, int box, int n);
/* Makes the maps of w and x of g, with tiles of w_rows and x_rows rows by n blocks of
 * 64. */
int stream_maps(CUtensorMap *w, CUtensorMap *x, const struct fdk_gemm_args *g, int w_rows,
    int x_rows, int n);

/* Makes a map of y, T rows of N elements, ldy apart, with tiles of `rows` rows by `box`
 * elements, swizzled (128 bytes per row) or not. Returns 0, or -ENOTSUP if TMA cannot
 * write y. */
int stream_out_map(CUtensorMap *m, void *y, int T, int N, int ldy, int y32, int box,
    int rows, int swizzled);

/* Makes a map of y in bf16 with tiles of 16 rows by `wide` columns; shared memory has 16
 * columns of all rows after the other (32 bytes per row, swizzled). */
int stream_out_map_16(CUtensorMap *m, void *y, int T, int N, int ldy, int wide);

/* Called by cu_gemm_stream_load(). */
cudaError_t cu_gemm_stream_mid_load(void);
cudaError_t cu_gemm_stream_wide_load(void);
cudaError_t cu_gemm_silu_load(void);

#endif
