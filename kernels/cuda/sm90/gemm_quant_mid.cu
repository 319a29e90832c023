/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T with quantized weights for up to CU_QUANT_MID rows of x: weights stream
 * through shared memory to wgmma once (gemm_quant_wgmma.cuh).
 *
 * A cluster of two blocks shares a tile of rows of w; each has two of the splits of K.
 * A split has its own stages of the ring, a warp that loads stages across the borders
 * of tiles, two warps that put x into the order of its weights, and four that multiply.
 * For each 16 rows of a tile one warp, in one of the two blocks, receives the sums of all
 * splits (st.async), adds them and writes y. No other warp waits for a tile's end.
 *
 * Weights and scales are constant: those of the first stages are loaded before the
 * previous kernel has ended. Without live rows everything runs except the writes to y.
 */
#include "kernels/cuda/sm90/gemm_quant_mid.cuh"

#define BN CU_QUANT_MID          /* rows of x */
#define PARTS 4                  /* splits of K */
#define PAIR 2                   /* blocks of a cluster */
#define OWN  (PARTS / PAIR)      /* splits of a block; also its runs of 16 of 64 rows of
                                    w */
#define ROWS 64                  /* most rows of w in a tile */
#define THREADS 512

template<int WT, int UNIT>
struct mid {
    static const int W = WT;
    static const int rows = ROWS, units = BK / UNIT;
    static const int w_row = BK * quant_bits<W>() / 8;
    static const int x_bytes = BN * BK * 2;
    static const int stage = x_bytes + ROWS * w_row;
    static const int scale = ROWS * units * 4;
    static const int sums = BN * 16 * 4;               /* of a split, for 16 rows of w */
    static const int fixed = 1024 + OWN * PARTS * sums + 64;
    static const int depth = (227 * 1024 - fixed) / OWN / (stage + scale + 24);
    static const int shared = fixed + OWN * depth * (stage + scale + 24);
};

struct mid_args {
    CUtensorMap w, x;
    struct fdk_gemm_args g;
    uint32_t ones;
    int32_t groups, units;       /* scales of a row; runs of UNIT that share one, 0:
                                    all */
    int32_t n_kb;
    int32_t height, n_tile;      /* rows of w in a tile: 16, 32 or 64 */
};

/* First k block of split i, of n k blocks. */
static __device__ __forceinline__ int
part_begin(int n, int i)
{
    return n * i / PARTS;
}

/* Addresses in a block's shared memory. x_bars: barriers of each split for the arrival of
 * x. */
struct room {
    uint32_t sums, scales, bars, x_bars, sent, taken;
    uint32_t ring;

    template<class S>
    __device__ __forceinline__ void
    lay_out(uint32_t at)
    {
        ring = at;
        sums = ring + OWN * S::depth * S::stage;
        scales = sums + OWN * PARTS * S::sums;
        bars = scales + OWN * S::depth * S::scale;
        x_bars = bars + OWN * S::depth * 16;
        sent = x_bars + OWN * S::depth * 8;
        taken = sent + OWN * 8;
    }

    template<class S>
    __device__ __forceinline__ struct places
    of(int p) const
    {
        return { ring + (uint32_t)(p * S::depth * S::stage),
            scales + (uint32_t)(p * S::depth * S::scale),
            bars + (uint32_t)(p * S::depth * 16) };
    }
};

/* Work of a block: n tiles at, at + step, ...; of each the k blocks k0 to k1. */
struct work {
    int at, step, n, k0, k1;

    __device__ __forceinline__
    work(const struct mid_args &a, int part) : at((int)blockIdx.x / PAIR),
        step((int)gridDim.x / PAIR), n((a.n_tile - 1 - at) / step + 1),
        k0(part_begin(a.n_kb, part)), k1(part_begin(a.n_kb, part + 1))
    {
    }
};

/* ---- producers --------------------------------------------------------------------- */

template<class S>
struct asker {
    const struct mid_args &a;
    struct places p;
    uint32_t x_bars;
    struct work k;
    int left, tile, kb;
    struct ring r;

    __device__ __forceinline__
    asker(const struct mid_args &args, const struct room &m, int own, int part) :
        a(args), p(m.of<S>(own)), x_bars(m.x_bars + (uint32_t)(own * S::depth * 8)),
        k(args, part)
    {
    }

    __device__ __forceinline__ void
    first(void)
    {
        left = (k.k1 - k.k0) * k.n;
        tile = k.at;
        kb = k.k0;
        r = { 0, 1 };
    }

    __device__ __forceinline__ void
    next(void)
    {
        left--;
        if (++kb == k.k1) {
            kb = k.k0;
            tile += k.step;
        }
        onward<S::depth>(&r);
    }

    __device__ __forceinline__ void
    ask_w(void)
    {
        uint32_t full = p.bars + (uint32_t)r.slot * 16;
        if (threadIdx.x % 32 == 0) {
            cu_bar_expect(full, (uint32_t)(a.height * S::w_row));
            quant_box2(p.ring + (uint32_t)(r.slot * S::stage + S::x_bytes), &a.w,
                kb * S::w_row, tile * a.height, full);
        }
        __syncwarp();
        ask_scales<S>(a, p, tile * a.height, kb, r.slot);
    }

    __device__ __forceinline__ void
    ask_x(void)
    {
        uint32_t to = p.ring + (uint32_t)(r.slot * S::stage), here = x_bars +
            (uint32_t)r.slot * 8;
        if (threadIdx.x % 32 == 0) {
            cu_bar_expect(here, S::x_bytes);
            quant_box2(to, &a.x, kb * BK, 0, here);
            quant_box2(to + S::x_bytes / 2, &a.x, kb * BK + BK / 2, 0, here);
        }
        __syncwarp();
    }

    __device__ __forceinline__ void
    ahead(void)
    {
        first();
        for (int i = 0; i < S::depth && left > 0; i++, next())
            ask_w();
    }

    __device__ __forceinline__ void
    rest(void)
    {
        first();
        for (int i = 0; i < S::depth && left > 0; i++, next())
            ask_x();
        for (; left > 0; next()) {
            cu_bar_wait(p.bars + (uint32_t)r.slot * 16 + 8, r.parity);
            ask_w();
            ask_x();
        }
    }
};

/* ---- reordering of x --------------------------------------------------------------- */

static __device__ __forceinline__ uint4
shared_load(uint32_t at)
{
    uint4 r;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
        : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(at));
    return r;
}

static __device__ __forceinline__ void
shared_store(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
        :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

/* Reorders in place 32 elements of K of row `row`, from 16-byte vector `unit` on. */
template<int W>
static __device__ __forceinline__ void
order(uint32_t at, int row, int unit)
{
    uint32_t b[4][4];
#pragma unroll
    for (int t = 0; t < 4; t++)
        quant_order<W>(b[t], shared_load(at + (uint32_t)(row * 128 +
            ((unit + t) ^ row % 8) * 16)));
#pragma unroll
    for (int q = 0; q < 4; q++)
        shared_store(at + (uint32_t)(row * 128 + ((unit + q) ^ row % 8) * 16), b[0][q],
            b[1][q], b[2][q], b[3][q]);
}

/* A warp: reorders half of the rows of x in all stages of a split. */
template<class S>
static __device__ __forceinline__ void
order_all(const struct work &k, const struct places &p, uint32_t x_bars, int half)
{
    const int lane = (int)threadIdx.x % 32;
    struct ring r = { 0, 0 };
    for (int n = (k.k1 - k.k0) * k.n; n > 0; n--) {
        uint32_t at = p.ring + (uint32_t)(r.slot * S::stage);
        cu_bar_wait(x_bars + (uint32_t)r.slot * 8, r.parity);
#pragma unroll
        for (int i = 0; i < BN * 2 / 32; i++) {
            int j = lane + 32 * i, row = half * (BN / 2) + j / 2 % (BN / 2);
            order<S::W>(at + (uint32_t)(j / BN * (S::x_bytes / 2)), row, j % 2 * 4);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        cu_bar_arrive(p.bars + (uint32_t)r.slot * 16);
        onward<S::depth>(&r);
    }
}

/* ---- sums -------------------------------------------------------------------------- */

static __device__ __forceinline__ void
send(uint32_t dst, const float v[4], uint32_t bar)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
        "[%0], {%1, %2, %3, %4}, [%5];"
        :: "r"(dst), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(bar) : "memory");
}

/* Four warps: compute one split of K of each tile and send the sums to their owners. */
template<class S, int UNIT>
static __device__ __forceinline__ void
multiply_all(const struct mid_args &a, const struct room &m, int warp, int rank, int rows)
{
    const int p = warp / 4, slab = warp % 4, part = rank * OWN + p, lane = (int)threadIdx.x
        % 32, to = slab / OWN, groups = (max(rows, 1) + 7) / 8;
    const struct work k(a, part);
    const struct places at = m.of<S>(p);
    const uint32_t sent = cu_remote(m.sent + (uint32_t)(slab % OWN * 8), to);
    const uint32_t dst = cu_remote(m.sums + (uint32_t)((slab % OWN * PARTS + part) *
        S::sums + lane * 16), to);
    struct reader rd = { at, slab * 16 + lane / 4, { 0, 0 } };
    for (int j = 0; j < k.n; j++) {
        float total[BN / 2];
#pragma unroll
        for (int i = 0; i < BN / 2; i++)
            total[i] = 0;
        if constexpr (UNIT == 32)
            sum_units<S, S::W>(rd, k.k1 - k.k0, a.ones, total);
        else if (k.k1 > k.k0)
            sum_turns<S, S::W>(rd, k.k1 - k.k0, a.ones, total);
        if (16 * slab >= a.height)
            continue;
        if (j > 0)
            cu_bar_wait(m.taken + (uint32_t)slab * 8, (uint32_t)(j - 1) & 1);
#pragma unroll
        for (int i = 0; i < BN / 8; i++)
            if (i < groups)
                send(dst + (uint32_t)i * 512, &total[4 * i], sent);
    }
}

static __device__ __forceinline__ void
put(const struct fdk_gemm_args &a, int m, int n, float v)
{
    size_t at = (size_t)m * (size_t)a.ldy + (size_t)n;
    if (a.y_dtype == FDK_F32)
        ((float *)a.y)[at] = v;
    else
        ((__nv_bfloat16 *)a.y)[at] = __float2bfloat16_rn(v);
}

/* Stores two rows of w by two rows of x, as a lane holds them after a product. */
static __device__ __forceinline__ void
put4(const struct fdk_gemm_args &a, int rows, int m, int n, int n_end, const float v[4],
    const float b[2])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (m + i % 2 < rows && n + i / 2 * 8 < n_end)
            put(a, m + i % 2, n + i / 2 * 8, v[i] + b[i / 2]);
}

/* Adds the sums of all splits in ascending order. */
static __device__ __forceinline__ void
add_parts(float v[4], const float4 *from, int part)
{
    v[0] = v[1] = v[2] = v[3] = 0;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        float4 s = from[p * part];
        v[0] += s.x;
        v[1] += s.y;
        v[2] += s.z;
        v[3] += s.w;
    }
}

/* A warp: adds and stores 16 rows of each tile, run `mine` of this block. Without live
 * rows one group of sums is sent too, to keep the collectors from running ahead. */
template<class S>
static __device__ __forceinline__ void
collect(const struct mid_args &a, const struct room &m, const unsigned char *sums,
    int mine, int rank, int rows)
{
    const int lane = (int)threadIdx.x % 32, groups = (max(rows, 1) + 7) / 8;
    const int slab = rank * OWN + mine;
    const float4 *from = (const float4 *)(sums + mine * PARTS * S::sums) + lane;
    const struct work k(a, 0);
    const uint32_t sent = m.sent + (uint32_t)mine * 8;
    for (int j = 0; j < k.n && 16 * slab < a.height; j++) {
        int n0 = (k.at + j * k.step) * a.height, n = n0 + 16 * slab + lane / 4;
        int n_end = min(a.g.N, n0 + a.height);
        float b[2];
#pragma unroll
        for (int h = 0; h < 2; h++)
            b[h] = a.g.bias != NULL && n + 8 * h < n_end ? __ldg(a.g.bias + n + 8 * h) : 0;
        if (lane == 0)
            cu_bar_expect(sent, (uint32_t)(groups * 512 * PARTS));
        cu_bar_wait(sent, (uint32_t)j & 1);
#pragma unroll 2
        for (int i = 0; i < groups; i++) {
            float v[4];
            add_parts(v, from + i * 32, S::sums / 16);
            put4(a.g, rows, 8 * i + lane % 4 * 2, n, n_end, v, b);
        }
        __syncwarp();
        if (j + 1 < k.n && lane < PAIR)
            cu_bar_arrive_at(cu_remote(m.taken + (uint32_t)slab * 8, lane));
    }
}

/* ---- the kernel -------------------------------------------------------------------- */

template<class S>
static __device__ __forceinline__ void
init(const struct room &m)
{
    for (int i = 0; i < OWN * S::depth; i++) {
        cu_bar_init(m.bars + (uint32_t)i * 16, 1 + 32 + 64);
        cu_bar_init(m.bars + (uint32_t)i * 16 + 8, 1);
        cu_bar_init(m.x_bars + (uint32_t)i * 8, 1);
    }
    for (int i = 0; i < OWN; i++)
        cu_bar_init(m.sent + (uint32_t)i * 8, 1);
    for (int i = 0; i < 4; i++)
        cu_bar_init(m.taken + (uint32_t)i * 8, 1);
    cu_bar_ready();
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CLUSTER
#else
#define CLUSTER __cluster_dims__(PAIR, 1, 1)
#endif

template<int W, int UNIT>
static __global__ void CLUSTER __launch_bounds__(THREADS, 1)
quant_mid_kernel(const __grid_constant__ struct mid_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = mid<W, UNIT>;
    extern __shared__ unsigned char shared[];
    const uint32_t skip = (1024 - cu_smem(shared) % 1024) % 1024;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    const int rank = cu_cluster_rank(), own = warp % 4 / (warp < 12 ? 1 : 2) % OWN;
    struct room m;
    m.lay_out<S>(cu_smem(shared) + skip);
    struct asker<S> ask(a, m, own, rank * OWN + own);
    cu_dep_next();
    if (threadIdx.x == 0)
        init<S>(m);
    __syncthreads();
    cu_cluster_arrive();
    if (warp == 8 || warp == 9)
        ask.ahead();
    cu_cluster_wait();
    cu_dep_wait();
    const int rows = min(a.g.T, *a.g.n - a.g.first);
    if (warp < 8) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        multiply_all<S, UNIT>(a, m, warp, rank, rows);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
        if (warp < 10)
            ask.rest();
        else if (warp < 12)
            collect<S>(a, m, shared + skip + OWN * S::depth * S::stage, warp - 10, rank,
                rows);
        else
            order_all<S>(ask.k, ask.p, ask.x_bars, warp % 2);
    }
#endif
}

/* ---- launching --------------------------------------------------------------------- */

/* Chooses the rows of w in a tile, 64, 32 or 16: minimizes the rows of the CTA pair with
 * the most work; an additional tile costs about as much as 16 rows. */
static int
tile_height(int N, int n_pair)
{
    int best = ROWS, cost = INT32_MAX;
    for (int h = ROWS; h >= 16; h /= 2) {
        int rounds = ((N - 1) / h + n_pair) / n_pair;
        if (rounds * (h + 16) < cost) {
            cost = rounds * (h + 16);
            best = h;
        }
    }
    return best;
}

template<int W, int UNIT>
static int
launch(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    using S = mid<W, UNIT>;
    const size_t row_bytes = (size_t)a->K * quant_bits<W>() / 8;
    struct mid_args b;
    b.g = *a;
    b.ones = quant_ones<W>();
    b.groups = (a->K - 1) / a->w_group + 1;
    b.units = a->w_group < a->K ? a->w_group / UNIT : 0;
    b.n_kb = (a->K - 1) / BK + 1;
    b.height = tile_height(a->N, cu_slots(n_proc, PAIR));
    b.n_tile = (a->N - 1) / b.height + 1;
    const struct quant_map w = { 0, { row_bytes, (uint64_t)a->N }, row_bytes,
        { S::w_row, (uint32_t)b.height }, W == FDK_I4 ? CU_TENSOR_MAP_SWIZZLE_64B :
        CU_TENSOR_MAP_SWIZZLE_128B };
    const struct quant_map x = { 1, { (uint64_t)a->K, (uint64_t)a->T },
        (uint64_t)a->K * 2, { BK / 2, BN }, CU_TENSOR_MAP_SWIZZLE_128B };
    const void *rows = a->act == FDK_F32 ? a->scratch :
        (const uint16_t *)a->x + (size_t)a->first * (size_t)a->K;
    if (quant_make_map(&b.w, a->w, &w) != 0 || quant_make_map(&b.x, rows, &x) != 0)
        return -ENOTSUP;
    if (a->act == FDK_F32)
        quant_round(a, s);
    cu_chain(quant_mid_kernel<W, UNIT>, cu_groups(b.n_tile, PAIR, n_proc), THREADS,
        S::shared, s, b);
    return 0;
}

template<int W>
static int
launch_rows(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    int blocks = a->w_group >= a->K || a->w_group % BK == 0;
    return blocks ? launch<W, BK>(a, n_proc, s) : launch<W, 32>(a, n_proc, s);
}

int
cu_quant_mid(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st)
{
    int rc = a->w_dtype == FDK_I4 ? launch_rows<FDK_I4>(a, n_proc, cu_raw(st)) :
        a->w_dtype == FDK_I8 ? launch_rows<FDK_I8>(a, n_proc, cu_raw(st)) :
        launch_rows<FDK_F8E4M3>(a, n_proc, cu_raw(st));
    return rc != 0 ? rc : cu_launched(st, "gemm");
}

template<int W, int UNIT>
static cudaError_t
prepare(void)
{
    return cudaFuncSetAttribute((const void *)quant_mid_kernel<W, UNIT>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, mid<W, UNIT>::shared);
}

template<int W>
static cudaError_t
prepare_all(void)
{
    cudaError_t e = prepare<W, BK>();
    return e != cudaSuccess ? e : prepare<W, 32>();
}

cudaError_t
cu_quant_mid_load(void)
{
    cudaError_t e = prepare_all<FDK_I4>();
    if (e == cudaSuccess)
        e = prepare_all<FDK_I8>();
    return e != cudaSuccess ? e : prepare_all<FDK_F8E4M3>();
}
