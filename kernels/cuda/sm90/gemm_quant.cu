/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T with int8, int4 or e4m3 weights and fp32 scales. There are four kernels:
 *
 * narrow (this file), up to CU_QUANT_ROWS rows of x: weights stream through shared
 * memory into mma.m16n8k16.
 * mid (gemm_quant_mid.cu), up to CU_QUANT_MID rows: wgmma with weights from registers,
 * which stream through shared memory.
 * widen (gemm_quant_widen.cu), up to CU_QUANT_FEW rows: wgmma with weights converted to
 * bf16 in shared memory.
 * wide (gemm_quant_wide.cu), any number of rows: wgmma with weights from registers.
 *
 * Within a kernel a row's bits do not depend on the number of rows (widen: one order of
 * sums up to 64 rows, another above); between kernels the order of the sums differs.
 *
 * Narrow: a row group is 16 rows of w, the A operand; 8 NG rows of x are B. The
 * order of k within a product is free as long as both operands agree: lane (g, t)
 * has the E consecutive elements, LB bytes, from k0 + E t on of rows g
 * and g + 8 of w. 4 E elements are a k block. K is divided into SLICES runs of k
 * blocks, a warp has one or two of them, and the slices' sums are added in
 * their order.
 *
 * A lane copies the weights that it will use itself, and a scale, `depth` stages ahead
 * and across row groups: a thread waits for other warps only at a row group's end.
 * Weights do not depend on earlier kernels, so the first copies are issued before the
 * previous kernel has ended. A block of 8 warps uses less than half of a
 * multiprocessor: blocks of the next kernel fit next to it and load their
 * weights while this one drains.
 *
 * x is read once into registers if a row has KEEP elements (KEPT), else again
 * for every two row groups.
 */
#include "kernels/cuda/sm90/gemm_quant.cuh"

#define SLICES 16
#define KEEP   4096
#define UNITS  4                 /* row groups times k blocks in a stage */

template<int W, int LB, int NG, int KEPT>
struct narrow {
    static const int warps = NG == 1 ? 8 : 16;
    static const int threads = 32 * warps;
    static const int E = LB * 8 / quant_bits<W>();     /* elements per lane and row */
    static const int KB = 4 * E;
    static const int BR = E / 2;                       /* registers of 8 rows of x */
    static const int RB = KEPT ? 1 : 2;                /* row groups of a stage */
    static const int SK = UNITS / RB;                  /* k blocks of a stage */
    static const int unit = 64 * LB;                   /* bytes of a row group's k
                                                          block */
    static const int stage = UNITS * unit + 256;       /* and [row][unit] scales */
    static const int keep = KEEP / KB / warps;         /* KEPT: a warp's k blocks */
    static const int red = warps * 8 * NG * 20;        /* floats of a row group's sums */
    static const int room = ((NG == 1 ? 113 : 220) * 1024 - 2 * red * 4) /
        (warps * stage);
    static const int depth = room > 8 ? 8 : room;
    static const int shared = 2 * red * 4 + depth * warps * stage;
};

struct narrow_args {
    struct fdk_gemm_args g;          /* x begins at row g.first */
    uint32_t ones;                   /* quant_ones() */
    uint32_t row_bytes;
    int32_t groups, blocks;          /* scales of a row; k blocks per scale, 0: the scale
                                        is applied to the row's sum */
    uint32_t inverse;                /* 2^32 / blocks, rounded up; 0: blocks is 1 */
};

/* ---- weights ----------------------------------------------------------------------- */

/* A warp's ring of stages and the position of the next copies. */
template<int W, int LB, int NG, int KEPT>
struct feed {
    using S = narrow<W, LB, NG, KEPT>;
    uint32_t ring, to;                   /* the warp's ring; its next stage */
    const unsigned char *w[S::RB][2];    /* weights at k block kb */
    const float *scale[2];               /* of row group t / SK: rows g, g + 8 */
    int kb0, kb1, kb;                    /* k blocks of the warp; the next one */
    int row_group, n_group;

    __device__ __forceinline__ void
    aim(const struct narrow_args &a)
    {
        const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
        kb = kb0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int r = 0; r < S::RB; r++) {
                int n0 = min(row_group + r * (int)gridDim.x, n_group - 1) * 16 + g +
                    8 * h;
                w[r][h] = (const unsigned char *)a.g.w + (uint64_t)(uint32_t)min(n0,
                    a.g.N - 1) * a.row_bytes + (uint32_t)(kb0 * 4 + t) * LB;
            }
            int n0 = min(row_group + t / S::SK * (int)gridDim.x, n_group - 1) * 16 + g +
                8 * h;
            scale[h] = a.g.w_scale + (uint64_t)(uint32_t)min(n0, a.g.N - 1) *
                (uint32_t)a.groups;
        }
    }

    __device__ __forceinline__ void
    start(const struct narrow_args &a, unsigned char *shared)
    {
        const int warp = (int)threadIdx.x / 32, n_kb = a.g.K / S::KB;
        ring = cu_smem(shared) + (uint32_t)(warp * S::depth * S::stage);
        to = ring;
        kb0 = warp * (SLICES / S::warps) * n_kb / SLICES;
        kb1 = (warp + 1) * (SLICES / S::warps) * n_kb / SLICES;
        n_group = (a.g.N - 1) / 16 + 1;
        row_group = kb0 < kb1 ? (int)blockIdx.x : n_group;
        aim(a);
    }

    __device__ __forceinline__ void
    copy_scales(const struct narrow_args &a)
    {
        const uint32_t lane = threadIdx.x % 32;
        uint32_t k = (uint32_t)min(kb + (int)lane % S::SK, kb1 - 1);
        uint32_t at = a.inverse == 0 ? k : __umulhi(k, a.inverse);
        quant_copy<4>(to + UNITS * S::unit + lane * 4, scale[0] + at);
        quant_copy<4>(to + UNITS * S::unit + 128 + lane * 4, scale[1] + at);
    }

    /* Issues the copies of the next stage, if any; always commits a group of copies. */
    __device__ __forceinline__ void
    next(const struct narrow_args &a)
    {
        const uint32_t lane = threadIdx.x % 32;
        if (row_group < n_group) {
#pragma unroll
            for (int k = 0; k < S::SK; k++) {
                if ((!KEPT || S::keep < S::SK) && kb + k >= kb1)
                    break;
#pragma unroll
                for (int r = 0; r < S::RB; r++)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        quant_copy<LB>(to + lane * LB + (r * S::SK + k) * S::unit +
                            h * 32 * LB, w[r][h] + k * 4 * LB);
            }
            if (a.blocks > 0)
                copy_scales(a);
            kb += S::SK;
            if (kb >= kb1) {
                row_group += S::RB * (int)gridDim.x;
                aim(a);
            } else {
#pragma unroll
                for (int r = 0; r < S::RB; r++)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        w[r][h] += S::SK * 4 * LB;
            }
        }
        quant_copies_end();
        to = to == ring + (S::depth - 1) * S::stage ? ring : to + S::stage;
    }
};

/* Waits for the oldest stage and returns its address; all lanes have left the one
 * before. */
template<int W, int LB, int NG, int KEPT>
static __device__ __forceinline__ uint32_t
stage_wait(struct feed<W, LB, NG, KEPT> &f, const struct narrow_args &a)
{
    using S = narrow<W, LB, NG, KEPT>;
    quant_copies_wait<S::depth - 2>();
    __syncwarp();
    f.next(a);
    return f.to;
}

/* Loads the scales of the lane's rows g and g + 8 for each k block of a stage; 1 without
 * any. */
template<int W, int LB>
static __device__ __forceinline__ void
take_scales(uint32_t s[2][UNITS], uint32_t at, const struct narrow_args &a)
{
#pragma unroll
    for (int i = 0; i < 2 * UNITS; i++)
        s[i / UNITS][i % UNITS] = 0x3f800000;
    at += UNITS * 64 * LB + threadIdx.x % 32 / 4 * 16;
    if (a.blocks > 0) {
        quant_take<16>(s[0], at);
        quant_take<16>(s[1], at + 128);
    }
}

/* acc += a row group's k block times b, times its scales. */
template<int W, int LB, int NG>
static __device__ __forceinline__ void
products(uint32_t at, uint32_t s0, uint32_t s1, const uint32_t *b, uint32_t ones,
    float acc[NG][4])
{
    const int words = LB / 4, BR = LB * 4 / quant_bits<W>(), mmas = BR / 2;
    uint32_t w0[words], w1[words];
    float c[2][NG][4] = {};
    at += threadIdx.x % 32 * LB;
    quant_take<LB>(w0, at);
    quant_take<LB>(w1, at + 32 * LB);
#pragma unroll
    for (int i = 0; i < mmas; i++) {
        uint32_t a0 = quant_pair<W>(w0, 2 * i, ones), a1 = quant_pair<W>(w1, 2 * i, ones);
        uint32_t a2 = quant_pair<W>(w0, 2 * i + 1, ones);
        uint32_t a3 = quant_pair<W>(w1, 2 * i + 1, ones);
#pragma unroll
        for (int j = 0; j < NG; j++)
            quant_mma(c[i % 2][j], a0, a1, a2, a3, b[j * BR + 2 * i],
                b[j * BR + 2 * i + 1]);
    }
#pragma unroll
    for (int j = 0; j < NG; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc[j][e] = fmaf(__uint_as_float(e < 2 ? s0 : s1), mmas > 1 ? c[0][j][e] +
                c[1][j][e] : c[0][j][e], acc[j][e]);
}

/* ---- x ----------------------------------------------------------------------------- */

/* Loads a lane's elements of k block kb of x, which begins at row a.first here; rows that
 * are not live are 0. */
template<int W, int LB, int NG>
static __device__ __forceinline__ void
take_x(uint32_t *b, const struct fdk_gemm_args &a, int kb, int rows)
{
    const int E = LB * 8 / quant_bits<W>(), lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < NG; j++) {
        int m = 8 * j + lane / 4;
        const uint4 *x = (const uint4 *)((const uint16_t *)a.x + (size_t)m *
            (size_t)a.K + (size_t)((kb * 4 + lane % 4) * E));
#pragma unroll
        for (int i = 0; i < E / 8; i++) {
            uint4 v = { 0, 0, 0, 0 };
            if (m < rows)
                v = x[i];
            quant_order<W>(b + (j * E / 8 + i) * 4, v);
        }
    }
}

/* ---- sums -------------------------------------------------------------------------- */

/* Stores a warp's sums of its one or two slices. red: [warp][row of
 * x][20, 16 used: row of w], which avoids bank conflicts. */
template<int NG>
static __device__ __forceinline__ void
put_sums(float *red, const float acc[NG][4], int rows)
{
    const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4;
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < NG; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (8 * j + 2 * t + e % 2 < rows)
                red[(warp * 8 * NG + 8 * j + 2 * t + e % 2) * 20 + 8 * (e / 2) + g] =
                    acc[j][e];
}

/* Adds the slices two by two; a warp with two slices has already added them. */
template<int NG>
static __device__ __forceinline__ void
put_y(const struct fdk_gemm_args &a, const float *red, int row_group, int rows, int i,
    struct quant_last l)
{
    const int step = 8 * NG * 20 * (NG == 1 ? 1 : 2);
    int m = i / 16, n = row_group * 16 + i % 16;
    if (m >= rows || n >= a.N)
        return;
    float y = 0;
    red += m * 20 + i % 16;
#pragma unroll
    for (int k = 0; k < SLICES / 2; k++)
        y += NG == 1 ? red[k * step] : red[k * step] + red[k * step + step / 2];
    quant_put(a, m, n, y, l);
}

template<int NG>
static __device__ __forceinline__ void
next_slice(float sum[NG][4], float acc[NG][4])
{
#pragma unroll
    for (int j = 0; j < NG; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            sum[j][e] += acc[j][e];
            acc[j][e] = 0;
        }
}

/* ---- the kernel -------------------------------------------------------------------- */

/* Computes all row groups of the block, with x in registers. */
template<int W, int LB, int NG>
static __device__ __forceinline__ void
run_kept(const struct narrow_args &a, struct feed<W, LB, NG, 1> &f, float *red, int rows)
{
    using S = narrow<W, LB, NG, 1>;
    const int i = (int)threadIdx.x, slice = S::keep / (SLICES / S::warps);
    uint32_t b[S::keep][NG * S::BR];
    int turn = 0;
#pragma unroll
    for (int k = 0; k < S::keep; k++)
        take_x<W, LB, NG>(b[k], a.g, f.kb0 + k, rows);
    for (int r = (int)blockIdx.x; r < f.n_group; r += (int)gridDim.x) {
        struct quant_last l = quant_last_of(a.g, r, i);
        float acc[NG][4] = {}, sum[NG][4] = {};
        uint32_t at = 0, s[2][UNITS];
#pragma unroll
        for (int k = 0; k < S::keep; k++) {
            if (k % UNITS == 0) {
                at = stage_wait(f, a);
                take_scales<W, LB>(s, at, a);
            }
            products<W, LB, NG>(at + (uint32_t)(k % UNITS * S::unit), s[0][k % UNITS],
                s[1][k % UNITS], b[k], a.ones, acc);
            if ((k + 1) % slice == 0)
                next_slice<NG>(sum, acc);
        }
        put_sums<NG>(red + turn * S::red, sum, rows);
        __syncthreads();
        if (i < 16 * 8 * NG)
            put_y<NG>(a.g, red + turn * S::red, r, rows, i, l);
        turn ^= 1;
    }
}

/* Sums two row groups, reading x again. */
template<int W, int LB, int NG>
static __device__ __forceinline__ void
sum_anew(const struct narrow_args &a, struct feed<W, LB, NG, 0> &f, int rows,
    float sum[2][NG][4])
{
    using S = narrow<W, LB, NG, 0>;
    const int n_kb = a.g.K / S::KB;
    const int first = ((int)threadIdx.x / 32 * (SLICES / S::warps) + 1) * n_kb / SLICES;
    uint32_t b[2][NG * S::BR];
    float acc[2][NG][4] = {};
    if (f.kb0 < f.kb1)
        take_x<W, LB, NG>(b[0], a.g, f.kb0, rows);
    for (int k = f.kb0; k < f.kb1; k += 2) {
        uint32_t at = stage_wait(f, a), s[2][UNITS];
        take_scales<W, LB>(s, at, a);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (k + i >= f.kb1)
                break;
            take_x<W, LB, NG>(b[1 - i], a.g, min(k + i + 1, n_kb - 1), rows);
#pragma unroll
            for (int r = 0; r < 2; r++)
                products<W, LB, NG>(at + (uint32_t)((2 * r + i) * S::unit),
                    s[0][2 * r + i], s[1][2 * r + i], b[i], a.ones, acc[r]);
            if (k + i + 1 == first) {
                next_slice<NG>(sum[0], acc[0]);
                next_slice<NG>(sum[1], acc[1]);
            }
        }
    }
    next_slice<NG>(sum[0], acc[0]);
    next_slice<NG>(sum[1], acc[1]);
}

template<int W, int LB, int NG>
static __device__ __forceinline__ void
run_anew(const struct narrow_args &a, struct feed<W, LB, NG, 0> &f, float *red, int rows)
{
    using S = narrow<W, LB, NG, 0>;
    const int one = 16 * 8 * NG, i = (int)threadIdx.x;
    for (int r = (int)blockIdx.x; r < f.n_group; r += 2 * (int)gridDim.x) {
        struct quant_last l = quant_last_of(a.g, r + i / one * (int)gridDim.x, i % one);
        float sum[2][NG][4] = {};
        sum_anew<W, LB, NG>(a, f, rows, sum);
        put_sums<NG>(red, sum[0], rows);
        put_sums<NG>(red + S::red, sum[1], rows);
        __syncthreads();
        if (i < 2 * one)
            put_y<NG>(a.g, red + i / one * S::red, r + i / one * (int)gridDim.x, rows,
                i % one, l);
        __syncthreads();
    }
}

template<int W, int LB, int NG, int KEPT>
static __global__ void
__launch_bounds__(narrow<W, LB, NG, KEPT>::threads, NG == 1 ? 2 : 1)
narrow_kernel(const __grid_constant__ struct narrow_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = narrow<W, LB, NG, KEPT>;
    extern __shared__ __align__(128) unsigned char shared[];
    float *red = (float *)(shared + S::depth * S::warps * S::stage);
    struct feed<W, LB, NG, KEPT> f;
    f.start(a, shared);
    cu_dep_next();
    for (int i = 0; i < S::depth - 1; i++)
        f.next(a);
    cu_dep_wait();
    const int rows = min(a.g.T, *a.g.n - a.g.first);
    if constexpr (KEPT)
        run_kept<W, LB, NG>(a, f, red, rows);
    else
        run_anew<W, LB, NG>(a, f, red, rows);
    quant_copies_wait<0>();
#endif
}

/* ---- launching --------------------------------------------------------------------- */

/* Converts x to bf16 in the scratch. Rows that are not live are not written. */
static __global__ void __launch_bounds__(256)
round_x(const __grid_constant__ struct fdk_gemm_args a)
{
    size_t i = (blockIdx.x * (size_t)256 + threadIdx.x) * 4;
    cu_dep_next();
    cu_dep_wait();
    int rows = min(a.T, *a.n - a.first);
    if (rows <= 0 || i >= (size_t)rows * (size_t)a.K)
        return;
    float4 v = *(const float4 *)((const float *)a.x + (size_t)a.first * (size_t)a.K + i);
    __nv_bfloat162 r[2] = { __floats2bfloat162_rn(v.x, v.y),
        __floats2bfloat162_rn(v.z, v.w) };
    *(uint2 *)((uint16_t *)a.scratch + i) = *reinterpret_cast<const uint2 *>(r);
}

void
quant_round(const struct fdk_gemm_args *a, cudaStream_t s)
{
    cu_chain(round_x, dim3((unsigned)(((size_t)a->T * (size_t)a->K / 4 + 255) / 256)), 256,
        0, s, *a);
}

template<int W, int LB, int NG, int KEPT>
static void
launch(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    using S = narrow<W, LB, NG, KEPT>;
    int n_group = (a->N - 1) / 16 + 1;
    struct narrow_args b = { *a, quant_ones<W>(),
        (uint32_t)((size_t)a->K * quant_bits<W>() / 8), (a->K - 1) / a->w_group + 1,
        a->w_group < a->K ? a->w_group / S::KB : 0, 0 };
    if (b.blocks > 1)
        b.inverse = 0xffffffffu / (uint32_t)b.blocks + 1;
    cu_chain(narrow_kernel<W, LB, NG, KEPT>, dim3((unsigned)(n_group < n_proc ? n_group :
        n_proc)), S::threads, S::shared, s, b);
}

template<int W, int LB>
static void
launch_rows(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    if (a->T <= 8 && a->K == KEEP)
        launch<W, LB, 1, 1>(a, n_proc, s);
    else if (a->T <= 8)
        launch<W, LB, 1, 0>(a, n_proc, s);
    else if (a->K == KEEP)
        launch<W, LB, 2, 1>(a, n_proc, s);
    else
        launch<W, LB, 2, 0>(a, n_proc, s);
}

/* Are K and the groups multiples of a k block with 16 bytes per lane? Otherwise k blocks
 * have 32 elements. */
static int
long_blocks(const struct fdk_gemm_args *a)
{
    int kb = a->w_dtype == FDK_I4 ? 128 : 64;
    return a->K % kb == 0 && (a->w_group >= a->K || a->w_group % kb == 0);
}

static void
launch_small(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    int large = long_blocks(a);
    if (a->w_dtype == FDK_I4 && large)
        launch_rows<FDK_I4, 16>(a, n_proc, s);
    else if (a->w_dtype == FDK_I8 && large)
        launch_rows<FDK_I8, 16>(a, n_proc, s);
    else if (large)
        launch_rows<FDK_F8E4M3, 16>(a, n_proc, s);
    else if (a->w_dtype == FDK_I4)
        launch<FDK_I4, 4, 2, 0>(a, n_proc, s);
    else if (a->w_dtype == FDK_I8)
        launch<FDK_I8, 8, 2, 0>(a, n_proc, s);
    else
        launch<FDK_F8E4M3, 8, 2, 0>(a, n_proc, s);
}

int
cu_gemm_quant_fits(const struct fdk_gemm_args *a)
{
    return (a->w_dtype == FDK_I4 || a->w_dtype == FDK_I8 || a->w_dtype == FDK_F8E4M3) &&
        (a->act == FDK_BF16 || a->act == FDK_F32) &&
        (a->y_dtype == FDK_F32 || a->y_dtype == a->act) &&
        a->K % 32 == 0 && a->w_group > 0 &&
        (a->w_group % 32 == 0 || a->w_group >= a->K) &&
        (uintptr_t)a->w % 16 == 0 && (uintptr_t)a->x % 16 == 0;
}

/* Bytes of x rounded to bf16. */
size_t
cu_gemm_quant_scratch(const struct fdk_gemm_args *a)
{
    return a->act == FDK_F32 ? (size_t)a->T * (size_t)a->K * 2 : 0;
}

int
cu_quant_narrow(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st)
{
    struct fdk_gemm_args b = *a;
    b.x = (const uint16_t *)a->x + (size_t)a->first * (size_t)a->K;
    if (a->act == FDK_F32) {
        quant_round(a, cu_raw(st));
        b.x = a->scratch;
    }
    launch_small(&b, n_proc, cu_raw(st));
    return cu_launched(st, "gemm");
}

template<int W, int LB, int NG, int KEPT>
static cudaError_t
prepare(void)
{
    return cudaFuncSetAttribute((const void *)narrow_kernel<W, LB, NG, KEPT>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, narrow<W, LB, NG, KEPT>::shared);
}

template<int W, int LB>
static cudaError_t
prepare_rows(void)
{
    cudaError_t e = prepare<W, LB, 1, 1>();
    if (e == cudaSuccess)
        e = prepare<W, LB, 1, 0>();
    if (e == cudaSuccess)
        e = prepare<W, LB, 2, 1>();
    return e != cudaSuccess ? e : prepare<W, LB, 2, 0>();
}

cudaError_t
cu_gemm_quant_load(void)
{
    static const void *const k[] = { (const void *)round_x };
    cudaError_t e = cu_load(k, 1);
    if (e == cudaSuccess)
        e = prepare_rows<FDK_I4, 16>();
    if (e == cudaSuccess)
        e = prepare_rows<FDK_I8, 16>();
    if (e == cudaSuccess)
        e = prepare_rows<FDK_F8E4M3, 16>();
    if (e == cudaSuccess)
        e = prepare<FDK_I4, 4, 2, 0>();
    if (e == cudaSuccess)
        e = prepare<FDK_I8, 8, 2, 0>();
    if (e == cudaSuccess)
        e = prepare<FDK_F8E4M3, 8, 2, 0>();
    return e != cudaSuccess ? e : cu_quant_wide_load();
}
