/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T with quantized weights for any number of rows of x,
 * by wgmma (gemm_quant_wgmma.cuh). Two groups of four warps compute 64 rows of w each by
 * BN rows of x, from a ring that one thread fills by TMA. A block is
 * persistent, and its ring continues from tile to tile. A row's bits do not depend
 * on T.
 *
 * order_x() reorders x as bf16, padded with zeros to a multiple of BK.
 */
#include "kernels/cuda/sm90/gemm_quant_wgmma.cuh"

#define BN 128                   /* rows of x of a tile */
#define THREADS 384              /* two consumer warpgroups, one producer */
#define STRIP 32                 /* rows of y that a group's buffer holds at a time */
#define ACROSS 8                 /* tiles of x that are computed together over all of w */

template<int W>
struct wide {
    static const int rows = 128;                       /* of w, of a tile */
    static const int w_row = BK * quant_bits<W>() / 8;
    static const int x_bytes = BN * BK * 2;
    static const int stage = x_bytes + rows * w_row;
    static const int strip = STRIP * 68 * 4;           /* 68 avoids bank conflicts */
    static const int depth = (226 * 1024 - 2048 - 2 * strip) / stage;
    static const int shared = 1024 + depth * (stage + 16) + 2 * strip;
};

struct wide_args {
    CUtensorMap w, x;
    struct fdk_gemm_args g;
    uint32_t ones;
    int32_t groups, units;           /* scales of a row; runs of UNIT per scale, 0: all */
};

/* Work of a block: tiles at, at + step, ... below n, of n_kb blocks of K each. */
struct share {
    int at, step, n, n_kb;
    int tok, rows;                   /* tiles of x; live rows of x */
};

/* ---- x ----------------------------------------------------------------------------- */

static __device__ __forceinline__ uint4
eight(const float *x)
{
    __nv_bfloat162 r[4];
    const float4 a = *(const float4 *)x, b = *(const float4 *)(x + 4);
    r[0] = __floats2bfloat162_rn(a.x, a.y);
    r[1] = __floats2bfloat162_rn(a.z, a.w);
    r[2] = __floats2bfloat162_rn(b.x, b.y);
    r[3] = __floats2bfloat162_rn(b.z, b.w);
    return *reinterpret_cast<const uint4 *>(r);
}

/* Each thread writes 32 elements of a row. Rows that are not live are not written. */
template<int W>
static __global__ void __launch_bounds__(256)
order_x(const __grid_constant__ struct fdk_gemm_args a)
{
    const int per = (a.K + BK - 1) / BK * (BK / 32);
    size_t i = blockIdx.x * (size_t)256 + threadIdx.x;
    cu_dep_next();
    cu_dep_wait();
    int m = (int)(i / (size_t)per), k = (int)(i % (size_t)per) * 32;
    if (m >= a.T || m >= *a.n - a.first)
        return;
    uint32_t b[4][4] = {};
    size_t from = (size_t)(a.first + m) * (size_t)a.K + (size_t)k;
#pragma unroll
    for (int t = 0; t < 4 && k < a.K; t++)
        quant_order<W>(b[t], a.act == FDK_BF16 ?
            *(const uint4 *)((const uint16_t *)a.x + from + 8 * t) :
            eight((const float *)a.x + from + 8 * t));
    uint4 *to = (uint4 *)a.scratch + i * 4;
#pragma unroll
    for (int q = 0; q < 4; q++)
        to[q] = make_uint4(b[0][q], b[1][q], b[2][q], b[3][q]);
}

/* ---- tiles ------------------------------------------------------------------------- */

struct tile { int n0, m0; };

/* Position of tile i; tok: number of tiles of x. */
template<int ROWS>
static __device__ __forceinline__ struct tile
tile_of(const struct fdk_gemm_args &a, int i, int tok)
{
    int rows = (a.N - 1) / ROWS + 1, band = i / (ACROSS * rows), left = i % (ACROSS * rows);
    int across = min(ACROSS, tok - band * ACROSS);
    struct tile r = { left / across * ROWS, (band * ACROSS + left % across) * BN };
    return r;
}

/* One thread loads all stages. */
template<int W>
static __device__ __forceinline__ void
feed(const struct wide_args &a, uint32_t at, uint32_t bars, const struct share &f)
{
    using S = wide<W>;
    struct ring r = { 0, 1 };
    for (int i = f.at; i < f.n; i += f.step) {
        struct tile to = tile_of<S::rows>(a.g, i, f.tok);
        for (int k = 0; k < f.n_kb; k++) {
            uint32_t full = bars + (uint32_t)r.slot * 16;
            uint32_t x = at + (uint32_t)(r.slot * S::stage);
            cu_bar_wait(full + 8, r.parity);
            cu_bar_expect(full, S::stage);
            quant_box2(x + S::x_bytes, &a.w, k * S::w_row, to.n0, full);
            quant_box2(x, &a.x, k * BK, to.m0, full);
            quant_box2(x + S::x_bytes / 2, &a.x, k * BK + BK / 2, to.m0, full);
            onward<S::depth>(&r);
        }
    }
}

/* ---- sums -------------------------------------------------------------------------- */

struct scales {                  /* scales of the lane's rows */
    const float *row[2];
    int units;
};

static __device__ __forceinline__ void
take_scales(float s[2], const struct scales *p, int unit)
{
    int at = p->units > 0 ? unit / p->units : 0;
    s[0] = __ldg(p->row[0] + at);
    s[1] = __ldg(p->row[1] + at);
}

/* Sums all stages of a tile with UNIT = BK. Weights are converted to operands while the
 * products of the previous ones run. */
template<int W>
static __device__ __forceinline__ void
sum_blocks(const struct wide_args &a, uint32_t at, uint32_t bars, struct ring *r,
    const struct scales *p, const struct share &f,
    float (&total)[BN / 2])
{
    using S = wide<W>;
    const int row = (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4;
    uint32_t v[4][2][2], op[2][4][4];
    float d[BN / 2], s[2], next[2];
    take_scales(s, p, 0);
    cu_bar_wait(bars + (uint32_t)r->slot * 16, r->parity);
    uint32_t x = at + (uint32_t)(r->slot * S::stage);
#pragma unroll
    for (int j = 0; j < 4; j++)
        take_w<W>(v[j], x + S::x_bytes, row, j);
    widen<W>(&op[0][0], v[0], a.ones);
    widen<W>(&op[0][2], v[1], a.ones);
    for (int k = 0; k < f.n_kb; k++) {
        uint32_t empty = bars + (uint32_t)r->slot * 16 + 8;
        cu_wgmma_hold(d);
        cu_wgmma_begin();
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply(d, op[0][i], operand(x + (uint32_t)i * 32, 0), i > 0);
        cu_wgmma_end();
        widen<W>(&op[1][0], v[2], a.ones);
        widen<W>(&op[1][2], v[3], a.ones);
        cu_wgmma_begin();
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply(d, op[1][i], operand(x + S::x_bytes / 2 + (uint32_t)i * 32, 0), 1);
        cu_wgmma_end();
        onward<S::depth>(r);
        if (k + 1 < f.n_kb) {
            take_scales(next, p, k + 1);
            cu_bar_wait(bars + (uint32_t)r->slot * 16, r->parity);
            x = at + (uint32_t)(r->slot * S::stage);
#pragma unroll
            for (int j = 0; j < 4; j++)
                take_w<W>(v[j], x + S::x_bytes, row, j);
            cu_wgmma_wait<1>();
            widen<W>(&op[0][0], v[0], a.ones);
            widen<W>(&op[0][2], v[1], a.ones);
        }
        cu_wgmma_wait<0>();
        cu_wgmma_hold(d);
        if (threadIdx.x % 128 == 0)
            cu_bar_arrive(empty);
        scale_sums(total, d, s[0], s[1]);
        s[0] = next[0];
        s[1] = next[1];
    }
}

/* Sums all stages of a tile with UNIT = 32. */
template<int W>
static __device__ __forceinline__ void
sum_units(const struct wide_args &a, uint32_t at, uint32_t bars, struct ring *r,
    const struct scales *p, const struct share &f, float (&total)[BN / 2])
{
    using S = wide<W>;
    const int row = (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4;
    for (int k = 0; k < f.n_kb * BK; k += BK) {
        uint32_t x = at + (uint32_t)(r->slot * S::stage);
        cu_bar_wait(bars + (uint32_t)r->slot * 16, r->parity);
#pragma unroll 1
        for (int j = 0; j < 4 && k + 32 * j < a.g.K; j++) {
            uint32_t v[2][2], op[2][4];
            uint32_t b = x + (uint32_t)(j / 2 * (S::x_bytes / 2) + j % 2 * 64);
            float d[BN / 2], s[2];
            take_scales(s, p, k / 32 + j);
            take_w<W>(v, x + S::x_bytes, row, j);
            widen<W>(op, v, a.ones);
            cu_wgmma_hold(d);
            cu_wgmma_begin();
            multiply(d, op[0], operand(b, 0), 0);
            multiply(d, op[1], operand(b + 32, 0), 1);
            cu_wgmma_end();
            cu_wgmma_wait<0>();
            cu_wgmma_hold(d);
            scale_sums(total, d, s[0], s[1]);
        }
        if (threadIdx.x % 128 == 0)
            cu_bar_arrive(bars + (uint32_t)r->slot * 16 + 8);
        onward<S::depth>(r);
    }
}

/* ---- y ----------------------------------------------------------------------------- */

/* Barrier of a group of four warps. */
static __device__ __forceinline__ void
meet(int group)
{
    asm volatile("bar.sync %0, 128;" :: "r"(group + 1) : "memory");
}

/* Stores eight adjacent elements of row m of y. */
static __device__ __forceinline__ void
put_eight(const struct fdk_gemm_args &a, int m, int n, const float *v, int even)
{
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        y[i] = v[i] + (a.bias != NULL && n + i < a.N ? a.bias[n + i] : 0);
    size_t at = (size_t)m * (size_t)a.ldy + (size_t)n;
    if (even && n + 8 <= a.N && a.y_dtype == FDK_BF16) {
        __nv_bfloat162 r[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            r[i] = __floats2bfloat162_rn(y[2 * i], y[2 * i + 1]);
        *(uint4 *)((uint16_t *)a.y + at) = *reinterpret_cast<const uint4 *>(r);
    } else if (even && n + 8 <= a.N) {
        ((float4 *)((float *)a.y + at))[0] = make_float4(y[0], y[1], y[2], y[3]);
        ((float4 *)((float *)a.y + at))[1] = make_float4(y[4], y[5], y[6], y[7]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (n + i < a.N && a.y_dtype == FDK_BF16)
                ((__nv_bfloat16 *)a.y)[at + (size_t)i] = __float2bfloat16_rn(y[i]);
            else if (n + i < a.N)
                ((float *)a.y)[at + (size_t)i] = y[i];
    }
}

/* Stores a group's sums in y through its buffer, STRIP rows of y at a time. */
static __device__ __forceinline__ void
put_tile(const struct fdk_gemm_args &a, struct tile to, const float (&total)[BN / 2],
    float *room, int rows)
{
    const int group = (int)threadIdx.x / 128, i = (int)threadIdx.x % 128;
    const int n = i / 32 * 16 + i % 32 / 4, t = i % 4;
    const int even = a.ldy % 8 == 0 && (uintptr_t)a.y % 16 == 0;
#pragma unroll
    for (int q = 0; q < BN / STRIP; q++) {
        meet(group);
#pragma unroll
        for (int j = 0; j < STRIP / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                room[(8 * j + 2 * t + e % 2) * 68 + n + 8 * (e / 2)] =
                    total[(q * (STRIP / 8) + j) * 4 + e];
        meet(group);
#pragma unroll
        for (int k = 0; k < STRIP / 16; k++) {
            int m = k * 16 + i / 8;
            if (to.m0 + q * STRIP + m < rows && to.n0 + i % 8 * 8 < a.N)
                put_eight(a, to.m0 + q * STRIP + m, to.n0 + i % 8 * 8,
                    room + m * 68 + i % 8 * 8, even);
        }
    }
}

/* ---- the kernel -------------------------------------------------------------------- */

template<int W, int UNIT>
static __device__ __forceinline__ void
compute(const struct wide_args &a, uint32_t at, uint32_t bars, float *room,
    const struct share &f)
{
    using S = wide<W>;
    const int group = (int)threadIdx.x / 128;
    const int n = (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4;
    struct ring r = { 0, 0 };
    for (int i = f.at; i < f.n; i += f.step) {
        struct tile to = tile_of<S::rows>(a.g, i, f.tok);
        struct scales p;
        float total[BN / 2] = {};
        p.units = a.units;
#pragma unroll
        for (int h = 0; h < 2; h++)
            p.row[h] = a.g.w_scale + (size_t)min(to.n0 + n + 8 * h, a.g.N - 1) *
                (size_t)a.groups;
        if constexpr (UNIT == BK)
            sum_blocks<W>(a, at, bars, &r, &p, f, total);
        else
            sum_units<W>(a, at, bars, &r, &p, f, total);
        to.n0 += group * 64;
        put_tile(a.g, to, total, room + group * (STRIP * 68), f.rows);
    }
}

template<int W, int UNIT>
static __global__ void __launch_bounds__(THREADS, 1)
wide_kernel(const __grid_constant__ struct wide_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = wide<W>;
    extern __shared__ unsigned char shared[];
    unsigned char *base = shared + (1024 - cu_smem(shared) % 1024) % 1024;
    uint32_t at = cu_smem(base), bars = at + S::depth * S::stage + 2 * S::strip;
    float *room = (float *)(base + S::depth * S::stage);
    cu_dep_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::depth; i++) {
            cu_bar_init(bars + (uint32_t)i * 16, 1);
            cu_bar_init(bars + (uint32_t)i * 16 + 8, 2);
        }
        cu_bar_ready();
    }
    __syncthreads();
    cu_dep_wait();
    const int rows = min(a.g.T, *a.g.n - a.g.first), tok = (max(rows, 0) + BN - 1) / BN;
    const struct share f = { (int)blockIdx.x, (int)gridDim.x, tok * ((a.g.N - 1) / S::rows +
        1), (a.g.K - 1) / BK + 1, tok, rows };
    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 256)
            feed<W>(a, at, bars, f);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        compute<W, UNIT>(a, at, bars, room, f);
    }
#endif
}

/* ---- launching --------------------------------------------------------------------- */

static size_t
padded(const struct fdk_gemm_args *a)
{
    return ((size_t)a->K + BK - 1) / BK * BK;
}

size_t
cu_quant_wide_scratch(const struct fdk_gemm_args *a)
{
    return a->T > 0 && a->K > 0 ? (size_t)a->T * padded(a) * 2 : 0;
}

static cu_encode_fn encode;         /* of the driver; set by cu_quant_wide_load() */

int
quant_make_map(CUtensorMap *ret, const void *base, const struct quant_map *m)
{
    const cuuint32_t one[2] = { 1, 1 };
    return cu_make_map(encode, ret, m->bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 :
        CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, (void *)base, m->dim, &m->row_bytes,
        m->box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, m->swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) ==
        CUDA_SUCCESS ? 0 : -ENOTSUP;
}

template<int W, int UNIT>
static int
launch(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    using S = wide<W>;
    const size_t row_bytes = (size_t)a->K * quant_bits<W>() / 8, pieces = (size_t)a->T *
        padded(a) / 32;
    struct wide_args b;
    const struct quant_map w = { 0, { row_bytes, (uint64_t)a->N }, row_bytes,
        { S::w_row, S::rows }, W == FDK_I4 ? CU_TENSOR_MAP_SWIZZLE_64B :
        CU_TENSOR_MAP_SWIZZLE_128B };
    const struct quant_map x = { 1, { padded(a), (uint64_t)a->T }, padded(a) * 2,
        { BK / 2, BN }, CU_TENSOR_MAP_SWIZZLE_128B };
    b.g = *a;
    b.ones = quant_ones<W>();
    b.groups = (a->K - 1) / a->w_group + 1;
    b.units = a->w_group < a->K ? a->w_group / UNIT : 0;
    if (quant_make_map(&b.w, a->w, &w) != 0 || quant_make_map(&b.x, a->scratch, &x) != 0)
        return -ENOTSUP;
    const int n_tile = ((a->N - 1) / S::rows + 1) * ((a->T - 1) / BN + 1);
    cu_chain(order_x<W == FDK_I4 ? FDK_I4 : FDK_I8>,
        dim3((unsigned)((pieces + 255) / 256)), 256, 0, s, *a);
    cu_chain(wide_kernel<W, UNIT>, cu_groups(n_tile, 1, n_proc), THREADS, S::shared, s, b);
    return 0;
}

template<int W>
static int
launch_unit(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    return a->w_group >= a->K || a->w_group % BK == 0 ? launch<W, BK>(a, n_proc, s) :
        launch<W, 32>(a, n_proc, s);
}

int
cu_quant_wide(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st)
{
    int rc = a->w_dtype == FDK_I4 ? launch_unit<FDK_I4>(a, n_proc, cu_raw(st)) :
        a->w_dtype == FDK_I8 ? launch_unit<FDK_I8>(a, n_proc, cu_raw(st)) :
        launch_unit<FDK_F8E4M3>(a, n_proc, cu_raw(st));
    return rc != 0 ? rc : cu_launched(st, "gemm");
}

template<int W, int UNIT>
static cudaError_t
prepare(void)
{
    return cudaFuncSetAttribute((const void *)wide_kernel<W, UNIT>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, wide<W>::shared);
}

template<int W>
static cudaError_t
prepare_units(void)
{
    cudaError_t e = prepare<W, BK>();
    return e != cudaSuccess ? e : prepare<W, 32>();
}

cudaError_t
cu_quant_wide_load(void)
{
    static const void *const k[] = { (const void *)order_x<FDK_I4>,
        (const void *)order_x<FDK_I8> };
    cudaError_t e = cu_find_encode(&encode);
    if (e == cudaSuccess)
        e = cu_load(k, 2);
    if (e == cudaSuccess)
        e = prepare_units<FDK_I4>();
    if (e == cudaSuccess)
        e = prepare_units<FDK_I8>();
    if (e == cudaSuccess)
        e = prepare_units<FDK_F8E4M3>();
    if (e == cudaSuccess)
        e = cu_quant_mid_load();
    return e != cudaSuccess ? e : cu_quant_widen_load();
}
