/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T with quantized weights for more than CU_QUANT_MID and up to CU_QUANT_FEW rows
 * of x, in contexts that are not deterministic. Groups must be multiples of 128 elements
 * of K, and a row must have one scale or a multiple of 4: gemm_quant_wide.cu computes
 * other shapes.
 *
 * Rows of x are the tensor cores' M, rows of w their N, H of them per tile. Weights are
 * loaded as stored, and eight warps convert them to bf16 in shared memory, in the layout
 * of the tensor cores: each weight once for all rows of x. Two warpgroups
 * multiply: with up to 64 rows each has half of each 128 elements of K, with more each
 * has half of the rows of x. One thread loads w, beginning before the previous kernel has
 * ended, and another one x.
 *
 * The tensor cores sum the products of 128 elements of K, or of 64 with up to 64 rows. If
 * groups have their own scales, that sum times the scale is added to a
 * warpgroup's sum in fp32, in ascending order of k; else the tensor cores sum all of K.
 * With up to 64 rows the sums of both warpgroups are added at the end. If there are few
 * tiles, a CTA pair shares one, each block with half of K (pair.cuh). H and this choice
 * do not depend on the number of rows: a row's bits are the same for every number up to
 * 64, and for every number above.
 */
#include "kernels/cuda/sm90/gemm_quant.cuh"
#include "kernels/cuda/sm90/gemm_stream.cuh"
#include "kernels/cuda/sm90/pair.cuh"

#define BK      128              /* least elements of K that share a scale */
#define HALF    64               /* elements of K in a stage */
#define WARPS   PAIR_WARPS       /* consumer warps */
#define WIDENS  8                /* converting warps: four for each half of a BK */
#define BOX     4                /* scales of a row that are loaded at once */
#define SCALE_SLOTS 4             /* such loads in a ring */
#define THREADS ((WARPS + WIDENS + 4) * 32)

/* BIG: more than 64 rows of x. Shared memory: stages of x and of w as bf16, HALF elements
 * of K each; a ring of w as stored, BK elements of K each, and one of its scales; output
 * buffers of the warps for sums or results. */
template<int W, int H, int BIG>
struct widen {
    static const int rows = BIG ? 128 : 64;
    static const int sums = H / 2;                   /* sums of a lane in the main loop */
    static const int wide = BIG ? H : H / 2;         /* columns of a warp's results */
    static const int x_bytes = rows * HALF * 2;
    static const int stage = x_bytes + H * HALF * 2;
    static const int raw = H * BK * quant_bits<W>() / 8;
    static const int raws = quant_bits<W>() == 4 ? 6 : 4;
    static const int out = 32 * H;                   /* bytes per warp */
    static const int scales = H * BOX * 4;
    static const int stages = (SHARED_MOST - 1024 - raws * raw - WARPS * out - SCALE_SLOTS *
        scales) / stage;
    static_assert(cu_pair_bytes(wide / 2) <= stages * stage, "what is exchanged fits");
};

template<int W, int H, int BIG>
struct widen_shared {
    using S = widen<W, H, BIG>;
    struct {
        unsigned char x[S::x_bytes], w[H * HALF * 2];
    } ring[S::stages];
    unsigned char raw[S::raws][S::raw];
    unsigned char out[WARPS][S::out];
    __align__(128) float scale[SCALE_SLOTS][H][BOX];
    uint64_t full[S::stages], empty[S::stages];
    uint64_t raw_full[S::raws], raw_empty[S::raws];
    uint64_t scale_full[SCALE_SLOTS], scale_empty[SCALE_SLOTS];
    struct cu_pair pair;
};

struct widen_args {
    CUtensorMap w, scale, x, y;
    struct fdk_gemm_args g;
    uint32_t ones;
    int32_t blocks;                  /* blocks per tile: 1, 2 */
    int32_t each;                    /* BKs that share a scale, 0: all */
    int32_t x_bytes;                 /* bytes of x in a stage: rows rounded up to 8 */
    int32_t n_tile;
    int32_t tma_out;                 /* y is written as TMA tiles of 16 rows */
};

/* Work of a block: tiles at, at + step, ... below n; of each the BKs of K from k0 to
 * k1. */
struct share {
    int at, step, n, k0, k1, rank;

    __device__ __forceinline__
    share(const struct widen_args &a) : at((int)blockIdx.x / a.blocks),
        step((int)gridDim.x / a.blocks), n(a.n_tile), rank(a.blocks > 1 ?
        cu_cluster_rank() : 0)
    {
        const int n_kb = (a.g.K - 1) / BK + 1;
        k0 = n_kb * rank / a.blocks;
        k1 = n_kb * (rank + 1) / a.blocks;
    }
};

/* ---- producers --------------------------------------------------------------------- */

/* Index of a BK's scale in a row, if groups have their own scales. */
struct scale_at {
    int i, left;                     /* left: further BKs with scale i */

    __device__ __forceinline__
    scale_at(const struct widen_args &a, int k) : i(a.each > 0 ? k / a.each : 0),
        left(a.each > 0 ? a.each - k % a.each : 0)
    {
    }

    /* Advances to the next BK. Returns 1 if its scale is the first one of another
     * load. */
    __device__ __forceinline__ int
    next(int each)
    {
        if (--left > 0)
            return 0;
        left = each;
        return ++i % BOX == 0;
    }
};

template<int W, int H, int BIG>
static __device__ __forceinline__ void
ask_w(const struct widen_args &a, const struct share &f, struct widen_shared<W, H, BIG> *s)
{
    using S = widen<W, H, BIG>;
    struct cu_ring_at<S::raws> at = { 0, 1 };
    struct cu_ring_at<SCALE_SLOTS> to = { 0, 1 };
    for (int t = f.at; t < f.n; t += f.step) {
        struct scale_at scale(a, f.k0);
        int other = a.each > 0;
        for (int k = f.k0; k < f.k1; k++, at.next()) {
            const uint32_t full = cu_smem(&s->raw_full[at.slot]);
            cu_bar_wait(cu_smem(&s->raw_empty[at.slot]), at.parity);
            cu_bar_expect(full, S::raw);
            quant_box2(cu_smem(s->raw[at.slot]), &a.w, k * (BK * quant_bits<W>() / 8),
                t * H, full);
            if (other) {
                const uint32_t here = cu_smem(&s->scale_full[to.slot]);
                cu_bar_wait(cu_smem(&s->scale_empty[to.slot]), to.parity);
                cu_bar_expect(here, S::scales);
                quant_box2(cu_smem(s->scale[to.slot]), &a.scale, scale.i / BOX * BOX * 4,
                    t * H, here);
                to.next();
            }
            other = a.each > 0 && scale.next(a.each);
        }
    }
}

template<int W, int H, int BIG>
static __device__ __forceinline__ void
ask_x(const struct widen_args &a, const struct share &f, struct widen_shared<W, H, BIG> *s)
{
    using S = widen<W, H, BIG>;
    struct cu_ring_at<S::stages> at = { 0, 1 };
    int parity = 0;
    for (int t = f.at; t < f.n; t += f.step, parity ^= 1) {
        for (int k = 2 * f.k0; k < 2 * f.k1; k++, at.next()) {
            const uint32_t full = cu_smem(&s->full[at.slot]);
            cu_bar_wait(cu_smem(&s->empty[at.slot]), at.parity);
            cu_bar_expect(full, a.x_bytes);
            quant_box2(cu_smem(s->ring[at.slot].x), &a.x, k * HALF, 0, full);
        }
        if (a.blocks > 1)
            cu_pair_over(&s->pair, parity);
    }
}

/* ---- conversion -------------------------------------------------------------------- */

/* Converts eight weights at v, in their order. */
template<int W>
static __device__ __forceinline__ uint4
eight(const uint32_t *v, uint32_t ones)
{
    uint32_t p[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        p[i] = quant_pair<W>(v, i, ones);
    const uint32_t low = __byte_perm(p[0], p[1], 0x5410), high = __byte_perm(p[0], p[1],
        0x7632);
    const uint32_t more = __byte_perm(p[2], p[3], 0x5410), last = __byte_perm(p[2], p[3],
        0x7632);
    return W == FDK_I4 ? make_uint4(low, more, high, last) :
        make_uint4(low, high, more, last);
}

/* A thread of the four warps that convert one half of each BK: 16 stored bytes of a row
 * at a time; adjacent lanes have adjacent rows. */
template<int W, int H>
struct widener {
    static const int each = 16 * 8 / quant_bits<W>();        /* weights in 16 bytes */
    static const int units = H * HALF / each;                /* 16-byte vectors in a
                                                                half */
    static const int n = (units + 127) / 128;                /* such vectors per thread */
    uint4 v[n];

    __device__ __forceinline__ void
    take(const unsigned char *raw, int half)
    {
#pragma unroll
        for (int i = 0; i < n; i++) {
            const int u = i * 128 + (int)threadIdx.x % 128, row = u % H;
            const int at = half * (HALF / each) + u / H;
            const int swizzle = W == FDK_I4 ? row / 2 % 4 : row % 8;
            if (u < units)
                v[i] = *(const uint4 *)(raw + row * (BK * quant_bits<W>() / 8) +
                    (at ^ swizzle) * 16);
        }
    }

    __device__ __forceinline__ void
    put(unsigned char *to, uint32_t ones) const
    {
#pragma unroll
        for (int i = 0; i < n; i++) {
            const int u = i * 128 + (int)threadIdx.x % 128, row = u % H;
            const int at = u / H * (each / 8);
            const uint32_t in[4] = { v[i].x, v[i].y, v[i].z, v[i].w };
            if (u >= units)
                continue;
#pragma unroll
            for (int c = 0; c < each / 8; c++)
                *(uint4 *)(to + row * 128 + ((at + c) ^ row % 8) * 16) =
                    eight<W>(in + c * (32 / each), ones);
        }
    }
};

template<int W, int H, int BIG>
static __device__ __forceinline__ void
widen_all(const struct widen_args &a, const struct share &f,
    struct widen_shared<W, H, BIG> *s)
{
    using S = widen<W, H, BIG>;
    const int lane = (int)threadIdx.x % 32, half = (int)threadIdx.x / 128 % 2;
    struct cu_ring_at<S::raws> from = { 0, 0 };
    struct cu_ring_at<S::stages> at = { 0, 1 };
    int parity = 0;
    if (half == 1)
        at.next();
    for (int t = f.at; t < f.n; t += f.step, parity ^= 1) {
        for (int k = f.k0; k < f.k1; k++, from.next(), at.next(), at.next()) {
            struct widener<W, H> w;
            cu_bar_wait(cu_smem(&s->raw_full[from.slot]), from.parity);
            w.take(s->raw[from.slot], half);
            __syncwarp();
            if (lane == 0)
                cu_bar_arrive(cu_smem(&s->raw_empty[from.slot]));
            cu_bar_wait(cu_smem(&s->empty[at.slot]), at.parity);
            w.put(s->ring[at.slot].w, a.ones);
            cu_written();
            if (lane == 0)
                cu_bar_arrive(cu_smem(&s->full[at.slot]));
        }
        if (a.blocks > 1)
            cu_pair_over(&s->pair, parity);
    }
}

/* ---- consumers --------------------------------------------------------------------- */

/* A warp: 16 rows of x. With up to 64 rows the warps of the first group have the first
 * half of each BK of K, the others the second half, until they exchange sums. */
template<int W, int H, int BIG>
struct widen_warp {
    using S = widen<W, H, BIG>;
    static const int turn = BIG ? 2 : 1;     /* stages of a BK that this group reads */
    const struct widen_args &a;
    const struct share &f;
    struct widen_shared<W, H, BIG> *s;
    int warp, group, lane, rows;
    uint64_t policy;
    struct cu_ring_at<S::stages> at;
    struct cu_ring_at<SCALE_SLOTS> box;

    __device__ __forceinline__
    widen_warp(const struct widen_args &args, const struct share &work,
        struct widen_shared<W, H, BIG> *shared) : a(args), f(work), s(shared),
        warp((int)threadIdx.x / 32), group((int)threadIdx.x / 128),
        lane((int)threadIdx.x % 32), rows(max(0, min(args.g.T, *args.g.n - args.g.first)))
    {
        at = { 0, 0 };
        box = { 0, 0 };
        if (!BIG && group == 1)
            at.next();
        asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    }

    __device__ __forceinline__ uint32_t
    full(int slot) const
    {
        return cu_smem(&s->full[slot]);
    }

    __device__ __forceinline__ uint32_t
    x(int slot) const
    {
        return cu_smem(s->ring[slot].x) + (BIG ? group * 64 * 128 : 0);
    }

    __device__ __forceinline__ uint32_t
    w(int slot) const
    {
        return cu_smem(s->ring[slot].w);
    }

    __device__ __forceinline__ void
    leave(int slot)
    {
        if (lane == 0)
            cu_bar_arrive(cu_smem(&s->empty[slot]));
    }

    __device__ __forceinline__ void
    next(void)
    {
        at.next();
        if (!BIG)
            at.next();
    }

    /* Releases the scales at `box` for this warp. */
    __device__ __forceinline__ void
    leave_box(void)
    {
        __syncwarp();
        if (lane == 0)
            cu_bar_arrive(cu_smem(&s->scale_empty[box.slot]));
        box.next();
    }

    /* Sums BK elements of K at a time, times their scales. */
    __device__ __forceinline__ void
    sum_scaled(float (&total)[S::sums])
    {
#pragma unroll
        for (int i = 0; i < S::sums; i++)
            total[i] = 0;
        struct scale_at here(a, f.k0);
        for (int k = f.k0; k < f.k1; k++) {
            float d[S::sums];
            int slot[turn];
            cu_bar_wait(cu_smem(&s->scale_full[box.slot]), box.parity);
            const float *scale = s->scale[box.slot][lane % 4 * 2] + here.i % BOX;
#pragma unroll
            for (int i = 0; i < turn; i++) {
                slot[i] = at.slot;
                cu_bar_wait(full(at.slot), at.parity);
                next();
            }
#pragma unroll
            for (int i = 0; i < S::sums; i++)
                d[i] = 0;
            cu_wgmma_hold(d);
            cu_wgmma_begin();
#pragma unroll
            for (int i = 0; i < turn * HALF / 16; i++) {
                const int from = slot[i / (HALF / 16)], to = i % (HALF / 16) * 32;
                stream_multiply<H>(d, matrix(x(from) + to), matrix(w(from) + to));
            }
            cu_wgmma_end();
            cu_wgmma_wait<0>();
            cu_wgmma_hold(d);
#pragma unroll
            for (int i = 0; i < turn; i++)
                leave(slot[i]);
#pragma unroll
            for (int i = 0; i < S::sums / 4; i++) {
                const float v = scale[8 * i * BOX], u = scale[(8 * i + 1) * BOX];
                total[4 * i] = fmaf(v, d[4 * i], total[4 * i]);
                total[4 * i + 1] = fmaf(u, d[4 * i + 1], total[4 * i + 1]);
                total[4 * i + 2] = fmaf(v, d[4 * i + 2], total[4 * i + 2]);
                total[4 * i + 3] = fmaf(u, d[4 * i + 3], total[4 * i + 3]);
            }
            if (here.next(a.each) || k + 1 == f.k1)
                leave_box();
        }
    }

    /* Barrier of the consumer warps. */
    static __device__ __forceinline__ void
    meet(void)
    {
        asm volatile("bar.sync 4, %0;" :: "n"(WARPS * 32) : "memory");
    }

    /* Both groups have sums of all columns: a warp keeps those of its half of the columns
     * and adds those of the other group. */
    __device__ __forceinline__ void
    exchange(float (&mine)[S::wide / 2], const float (&total)[S::sums])
    {
        float4 *to = (float4 *)s->out[warp];
        const float4 *from = (const float4 *)s->out[warp ^ WARPS / 2];
        stream_boxes_read();
#pragma unroll
        for (int i = 0; i < S::wide / 8; i++) {
            const int n = S::wide / 2;
            float4 v;
            v.x = group ? total[4 * i] : total[n + 4 * i];
            v.y = group ? total[4 * i + 1] : total[n + 4 * i + 1];
            v.z = group ? total[4 * i + 2] : total[n + 4 * i + 2];
            v.w = group ? total[4 * i + 3] : total[n + 4 * i + 3];
            to[i * 32 + lane] = v;
#pragma unroll
            for (int j = 0; j < 4; j++)
                mine[4 * i + j] = group ? total[n + 4 * i + j] : total[4 * i + j];
        }
        meet();
#pragma unroll
        for (int i = 0; i < S::wide / 8; i++) {
            const float4 v = from[i * 32 + lane];
            mine[4 * i] += v.x;
            mine[4 * i + 1] += v.y;
            mine[4 * i + 2] += v.z;
            mine[4 * i + 3] += v.w;
        }
        meet();
    }

    /* Stores a TMA tile. A lane has rows lane / 4 and + 8, columns 8 i + 2 (lane % 4) and
     * the next. */
    __device__ __forceinline__ void
    put_box(const float (&v)[S::wide / 2], int m, int n)
    {
        const int pitch = S::wide * 2;
        unsigned char *to = s->out[warp] + lane / 4 * pitch + lane % 4 * 4;
        stream_boxes_read();
#pragma unroll
        for (int i = 0; i < S::wide / 8; i++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                *(__nv_bfloat162 *)(to + r * 8 * pitch + i * 16) =
                    __floats2bfloat162_rn(v[4 * i + 2 * r], v[4 * i + 2 * r + 1]);
        cu_written();
        if (lane == 0 && n < a.g.N)
            stream_box_out(&a.y, n, m, cu_smem(s->out[warp]), policy);
    }

    /* Stores the warp's rows from m on, columns from n on. */
    __device__ __forceinline__ void
    put(float (&v)[S::wide / 2], int m, int n)
    {
        const int row = m + lane / 4, c = n + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < S::wide / 8; i++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int from = min(c + 8 * i + j, a.g.N - 1);
                const float scale = a.each > 0 ? 1 : __ldg(a.g.w_scale + from);
                const float bias = a.g.bias != NULL ? __ldg(a.g.bias + from) : 0;
                v[4 * i + j] = v[4 * i + j] * scale + bias;
                v[4 * i + 2 + j] = v[4 * i + 2 + j] * scale + bias;
            }
        }
        if (a.tma_out && m + 16 <= rows) {
            put_box(v, m, n);
            return;
        }
#pragma unroll
        for (int i = 0; i < S::wide / 2; i++) {
            const int r = row + i % 4 / 2 * 8, to = c + i / 4 * 8 + i % 2;
            const size_t at = (size_t)r * (size_t)a.g.ldy + (size_t)to;
            if (r < rows && to < a.g.N)
                quant_store(a.g, at, v[i]);
        }
    }

    __device__ __forceinline__ void
    end(float (&v)[S::wide / 2], int t, int parity)
    {
        const int m = warp % (S::rows / 16) * 16;
        if (a.blocks > 1)
            cu_pair_add(v, (unsigned char *)s->ring, &s->pair, f.rank, m < rows, parity);
        if ((a.blocks == 1 || cu_pair_mine(f.rank)) && m < rows)
            put(v, m, t * H + (BIG ? 0 : group * S::wide));
    }

    __device__ __forceinline__ void
    run(void)
    {
        int parity = 0;
        for (int t = f.at; t < f.n; t += f.step, parity ^= 1) {
            float total[S::sums];
            if (a.each > 0)
                sum_scaled(total);
            else
                stream_sums<H>(total, turn * (f.k1 - f.k0), *this);
            if constexpr (BIG) {
                end(total, t, parity);
            } else {
                float mine[S::wide / 2];
                exchange(mine, total);
                end(mine, t, parity);
            }
        }
        stream_boxes_gone(lane);
    }
};

/* ---- the kernel -------------------------------------------------------------------- */

template<int W, int H, int BIG>
static __device__ __forceinline__ void
init(struct widen_shared<W, H, BIG> *s)
{
    using S = widen<W, H, BIG>;
    for (int i = 0; i < S::stages; i++) {
        cu_bar_init(cu_smem(&s->full[i]), 1 + WIDENS / 2);
        cu_bar_init(cu_smem(&s->empty[i]), BIG ? WARPS : WARPS / 2);
    }
    for (int i = 0; i < S::raws; i++) {
        cu_bar_init(cu_smem(&s->raw_full[i]), 1);
        cu_bar_init(cu_smem(&s->raw_empty[i]), WIDENS);
    }
    for (int i = 0; i < SCALE_SLOTS; i++) {
        cu_bar_init(cu_smem(&s->scale_full[i]), 1);
        cu_bar_init(cu_smem(&s->scale_empty[i]), WARPS);
    }
    cu_pair_init(&s->pair);
    cu_bar_ready();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template<int W, int H, int BIG>
static __global__ void __launch_bounds__(THREADS, 1)
quant_widen_kernel(const __grid_constant__ struct widen_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    struct widen_shared<W, H, BIG> *s = (struct widen_shared<W, H, BIG> *)shared;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    const struct share f(a);
    cu_dep_next();
    if (threadIdx.x == 0)
        init<W, H, BIG>(s);
    __syncthreads();
    if (a.blocks > 1) {
        cu_cluster_arrive();
        cu_cluster_wait();
    }
    if (warp < WARPS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 144;");
        cu_dep_wait();
        widen_warp<W, H, BIG>(a, f, s).run();
    } else if (warp < WARPS + WIDENS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        widen_all<W, H, BIG>(a, f, s);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp == WARPS + WIDENS && threadIdx.x % 32 == 0) {
            ask_w<W, H, BIG>(a, f, s);
        } else if (warp == WARPS + WIDENS + 1 && threadIdx.x % 32 == 0) {
            cu_dep_wait();
            ask_x<W, H, BIG>(a, f, s);
        }
    }
#endif
}

/* ---- launching --------------------------------------------------------------------- */

static const int heights[] = { 112, 96, 64 };

/* Estimated time with tiles of h rows and `blocks` blocks per tile, in units of 8 clocks:
 * h for the products of a BK plus 48, 300 for a tile's end, 1000 if two blocks exchange
 * sums. It does not depend on T: see above. */
static int
cost(const struct fdk_gemm_args *a, int h, int blocks, int n_proc)
{
    const int n_kb = (a->K - 1) / BK + 1, n_tile = (a->N - 1) / h + 1;
    const int rounds = (n_tile - 1) / cu_slots(n_proc, blocks) + 1;
    if (blocks > 1 && n_kb < 4)
        return INT32_MAX;
    return rounds * ((h + 48) * n_kb / blocks + (blocks > 1 ? 1000 : 300));
}

template<int W, int H, int BIG>
static int
launch(const struct fdk_gemm_args *a, int blocks, int n_proc, cudaStream_t s)
{
    const size_t row_bytes = (size_t)a->K * quant_bits<W>() / 8;
    const uint32_t x_rows = ((uint32_t)a->T + 7) / 8 * 8;
    struct widen_args b = {};
    b.g = *a;
    b.ones = quant_ones<W>();
    b.each = a->w_group < a->K ? a->w_group / BK : 0;
    b.blocks = blocks;
    b.x_bytes = (int32_t)x_rows * HALF * 2;
    b.n_tile = (a->N - 1) / H + 1;
    const struct quant_map w = { 0, { row_bytes, (uint64_t)a->N }, row_bytes,
        { BK * quant_bits<W>() / 8, H }, W == FDK_I4 ? CU_TENSOR_MAP_SWIZZLE_64B :
        CU_TENSOR_MAP_SWIZZLE_128B };
    const uint64_t scale_bytes = (uint64_t)((a->K - 1) / a->w_group + 1) * 4;
    const struct quant_map scale = { 0, { scale_bytes, (uint64_t)a->N }, scale_bytes,
        { BOX * 4, H }, CU_TENSOR_MAP_SWIZZLE_NONE };
    const struct quant_map x = { 1, { (uint64_t)a->K, (uint64_t)a->T },
        (uint64_t)a->K * 2, { HALF, x_rows }, CU_TENSOR_MAP_SWIZZLE_128B };
    const void *rows = a->act == FDK_F32 ? a->scratch :
        (const uint16_t *)a->x + (size_t)a->first * (size_t)a->K;
    if (quant_make_map(&b.w, a->w, &w) != 0 || quant_make_map(&b.x, rows, &x) != 0 ||
        (b.each > 0 && quant_make_map(&b.scale, a->w_scale, &scale) != 0))
        return -ENOTSUP;
    b.tma_out = a->y_dtype == FDK_BF16 && stream_out_map(&b.y, a->y, a->T, a->N, a->ldy, 0,
        widen<W, H, BIG>::wide, 16, 0) == 0;
    if (a->act == FDK_F32)
        quant_round(a, s);
    cu_chain_clusters(quant_widen_kernel<W, H, BIG>, (unsigned)blocks,
        cu_groups(b.n_tile, blocks, n_proc), THREADS,
        sizeof(struct widen_shared<W, H, BIG>), s, b);
    return 0;
}

template<int W, int BIG>
static int
launch_height(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    int h = heights[0], blocks = 1;
    for (int i = 1; i < 6; i++)
        if (cost(a, heights[i / 2], i % 2 + 1, n_proc) < cost(a, h, blocks, n_proc)) {
            h = heights[i / 2];
            blocks = i % 2 + 1;
        }
    return h == 112 ? launch<W, 112, BIG>(a, blocks, n_proc, s) :
        h == 96 ? launch<W, 96, BIG>(a, blocks, n_proc, s) :
        launch<W, 64, BIG>(a, blocks, n_proc, s);
}

template<int W>
static int
launch_rows(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    return a->T <= 64 ? launch_height<W, 0>(a, n_proc, s) :
        launch_height<W, 1>(a, n_proc, s);
}

int
cu_quant_widen_fits(const struct fdk_gemm_args *a)
{
    /* Scales of groups are loaded by TMA. */
    return a->T <= CU_QUANT_FEW && (a->w_group >= a->K || (a->w_group % BK == 0 &&
        ((a->K - 1) / a->w_group + 1) % BOX == 0 && (uintptr_t)a->w_scale % 16 == 0));
}

int
cu_quant_widen(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st)
{
    int rc = a->w_dtype == FDK_I4 ? launch_rows<FDK_I4>(a, n_proc, cu_raw(st)) :
        a->w_dtype == FDK_I8 ? launch_rows<FDK_I8>(a, n_proc, cu_raw(st)) :
        launch_rows<FDK_F8E4M3>(a, n_proc, cu_raw(st));
    return rc != 0 ? rc : cu_launched(st, "gemm");
}

template<int W, int H, int BIG>
static cudaError_t
prepare(void)
{
    return cudaFuncSetAttribute((const void *)quant_widen_kernel<W, H, BIG>,
        cudaFuncAttributeMaxDynamicSharedMemorySize,
        sizeof(struct widen_shared<W, H, BIG>));
}

template<int W>
static cudaError_t
prepare_all(void)
{
    cudaError_t (*const each[])(void) = { prepare<W, 112, 0>, prepare<W, 112, 1>,
        prepare<W, 96, 0>, prepare<W, 96, 1>, prepare<W, 64, 0>, prepare<W, 64, 1> };
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]) && e == cudaSuccess; i++)
        e = each[i]();
    return e;
}

cudaError_t
cu_quant_widen_load(void)
{
    cudaError_t e = prepare_all<FDK_I4>();
    if (e == cudaSuccess)
        e = prepare_all<FDK_I8>();
    return e != cudaSuccess ? e : prepare_all<FDK_F8E4M3>();
}
