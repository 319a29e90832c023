/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T for up to CU_STREAM_ROWS rows of x, bf16, with the bits of gemm_stream.cu:
 * for more rows than gemm_stream.cu, but few enough that reading w is most of the work.
 *
 * Rows of x are the tensor cores' M, 64 for each of two warpgroups; rows of w their N, H
 * of them per tile: the more, the less often x is read. A thread loads tiles of both
 * (tensor maps, 128-byte swizzle), those of w before the previous kernel has ended. The
 * splits of K are those of gemm_stream.cuh, and their sums are added in the same order.
 *
 * If there are few tiles, a CTA pair shares one: each block has two splits of K
 * (pair.cuh). A warp has the sums of 16 rows of x.
 *
 * A GEMM of gate and up (fdk_silu_mul_args) may end with silu_mul: a tile then has the
 * same H / 2 rows of both, and their results are not stored in memory.
 *
 * A tile's results are stored through shared memory, so that the next tile need not wait,
 * and stay in L2 for the next kernel.
 */
#include <math.h>

#include "kernels/cuda/sm90/gemm_stream.cuh"
#include "kernels/cuda/sm90/pair.cuh"

#define WARPS       PAIR_WARPS   /* consumer warps; another warpgroup issues loads */
#define KEPT_MOST   (16u << 20)  /* most bytes of y that are kept in L2 */
#define MOST_STAGES 16

struct mid_args {
    void *y;
    const float *bias;
    const int32_t *n;
    int32_t first, T, N, K, ldy, y32; /* N: columns of y */
    int32_t x_bytes;             /* bytes of x in a stage: rows rounded up to 8 */
    int32_t n_tile, n_stage;
    int32_t tma_out;               /* y is written as TMA tiles of 16 rows */
    int32_t keep;
};

struct mid_barriers {
    uint64_t full[MOST_STAGES], empty[MOST_STAGES];
    struct cu_pair pair;
};

/* H rows of w in a tile, P blocks per tile, G: gate and up. Shared memory: the ring,
 * output buffers of 16 rows per warp, and barriers. */
template<int H, int P, int G>
struct mid_shape {
    static const int wide = H / (1 + G);             /* columns of y */
    static const int out = 16 * wide * 2;            /* bytes per warp */
    static const int ring = (SHARED_MOST - WARPS * out - (int)sizeof(mid_barriers)) /
        1024 * 1024;
    static_assert(P == 1 || cu_pair_bytes(H / 2) <= ring, "what is exchanged fits");
};

/* Work of a block: n tiles at, at + step, ...; the splits of K from `part` on. */
struct mid_work {
    int at, step, n, part, rank;
};

/* ---- loads ------------------------------------------------------------------ */

/* One thread. */
template<int H, int P, int G>
struct mid_feed {
    const CUtensorMap *w, *x;
    const struct mid_args &a;
    const struct mid_work &k;
    unsigned char *ring;
    struct mid_barriers *bar;
    int k0, k1, stage;
    uint64_t once, again;        /* cache policies */

    __device__ __forceinline__
    mid_feed(const CUtensorMap *w_map, const CUtensorMap *x_map,
        const struct mid_args &args, const struct mid_work &work, unsigned char *shared,
        struct mid_barriers *barriers) :
        w(w_map), x(x_map), a(args), k(work), ring(shared), bar(barriers),
        k0(cut(args.K, work.part)), k1(cut(args.K, work.part + PARTS / P)),
        stage(H * 128 + args.x_bytes)
    {
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(again));
    }

    __device__ __forceinline__ void
    load_w(int slot, int tile, int kb)
    {
        const int n = (k.at + tile * k.step) * mid_shape<H, P, G>::wide;
        const uint32_t to = cu_smem(ring + slot * stage);
        cu_bar_expect(cu_smem(&bar->full[slot]), stage);
        load_box(to, w, n, kb, &bar->full[slot], once);
        if (G)
            load_box(to + H * 64, w, a.N + n, kb, &bar->full[slot], once);
    }

    __device__ __forceinline__ void
    load_x(int slot, int kb)
    {
        load_box(cu_smem(ring + slot * stage) + H * 128, x, 0, kb, &bar->full[slot], again);
    }

    __device__ __forceinline__ int
    ahead(void)
    {
        const int n = min(a.n_stage, k1 - k0);
        for (int i = 0; i < n; i++)
            load_w(i, 0, k0 + i);
        return n;
    }

    __device__ __forceinline__ void
    rest(int n)
    {
        struct cu_ring_place at = { 0, 0 };
        for (int i = 0; i < n; i++, at.next(a.n_stage))
            load_x(at.slot, k0 + i);
        for (int tile = 0; tile < k.n; tile++, n = 0) {
            for (int kb = k0 + n; kb < k1; kb++, at.next(a.n_stage)) {
                cu_bar_wait(cu_smem(&bar->empty[at.slot]), at.parity ^ 1);
                load_w(at.slot, tile, kb);
                load_x(at.slot, kb);
            }
            if (P > 1)
                cu_pair_over(&bar->pair, tile & 1);
        }
    }
};

/* ---- multiplying ------------------------------------------------------------ */

/* A warp: 16 rows of x. */
template<int H, int P, int G>
struct mid_warp {
    const CUtensorMap *y;
    const struct mid_args &a;
    const struct mid_work &k;
    unsigned char *ring, *out;
    struct mid_barriers *bar;
    int warp, lane, stage, rows; /* rows: live rows of x */
    struct cu_ring_place at;
    uint64_t policy;

    __device__ __forceinline__
    mid_warp(const CUtensorMap *y_map, const struct mid_args &args,
        const struct mid_work &work, unsigned char *shared, struct mid_barriers *barriers) :
        y(y_map), a(args), k(work), ring(shared), bar(barriers),
        warp((int)threadIdx.x / 32), lane((int)threadIdx.x % 32),
        stage(H * 128 + args.x_bytes), rows(max(0, min(args.T, *args.n - args.first)))
    {
        at = { 0, 0 };
        out = shared + mid_shape<H, P, G>::ring + warp * mid_shape<H, P, G>::out;
        if (a.keep)
            asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        else
            asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    }

    __device__ __forceinline__ uint32_t
    full(int slot) const
    {
        return cu_smem(&bar->full[slot]);
    }

    __device__ __forceinline__ uint32_t
    w(int slot) const
    {
        return cu_smem(ring) + slot * stage;
    }

    __device__ __forceinline__ uint32_t
    x(int slot) const
    {
        return w(slot) + H * 128 + warp / 4 * 8192;
    }

    __device__ __forceinline__ void
    leave(int slot)
    {
        if (lane == 0)
            cu_bar_arrive(cu_smem(&bar->empty[slot]));
    }

    __device__ __forceinline__ void
    next(void)
    {
        at.next(a.n_stage);
    }

    /* d = the sums of one split for this warpgroup's 64 rows of x. */
    __device__ __forceinline__ void
    part(float (&d)[H / 2], int p)
    {
        stream_sums<H>(d, cut(a.K, k.part + p + 1) - cut(a.K, k.part + p), *this);
    }

    __device__ __forceinline__ int
    lives(void)
    {
        return 16 * warp < rows;
    }

    /* Stores columns from n0 on as a TMA tile, in fp32 as two. v[4 i + 2 r + c] of a lane
     * is row lane / 4 + 8 r, column 8 i + 2 (lane % 4) + c. */
    template<int W>
    __device__ __forceinline__ void
    put_boxes(const float (&v)[W / 2], int n0)
    {
        const int pitch = W * 2;                 /* bytes of a row of a box */
        unsigned char *to = out + lane / 4 * pitch + lane % 4 * (a.y32 ? 8 : 4);
        if (a.y32) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                stream_boxes_read();
#pragma unroll
                for (int i = 0; i < W / 16; i++)
#pragma unroll
                    for (int r = 0; r < 2; r++)
                        *(float2 *)(to + r * 8 * pitch + i * 32) = make_float2(
                            v[half * (W / 4) + 4 * i + 2 * r],
                            v[half * (W / 4) + 4 * i + 2 * r + 1]);
                cu_written();
                if (lane == 0)
                    stream_box_out(y, n0 + half * (W / 2), 16 * warp, cu_smem(out), policy);
            }
            return;
        }
        stream_boxes_read();
#pragma unroll
        for (int i = 0; i < W / 8; i++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                *(__nv_bfloat162 *)(to + r * 8 * pitch + i * 16) =
                    __floats2bfloat162_rn(v[4 * i + 2 * r], v[4 * i + 2 * r + 1]);
        cu_written();
        if (lane == 0)
            stream_box_out(y, n0, 16 * warp, cu_smem(out), policy);
    }

    __device__ __forceinline__ int
    column(int n0, int i)
    {
        return n0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
    }

    template<int W>
    __device__ __forceinline__ void
    put(const float (&v)[W / 2], int n0)
    {
        if (a.tma_out && 16 * warp + 16 <= rows) {
            put_boxes<W>(v, n0);
            return;
        }
#pragma unroll
        for (int i = 0; i < W / 2; i++) {
            const int n = column(n0, i), m = 16 * warp + lane / 4 + i % 4 / 2 * 8;
            if (m < rows && n < a.N)
                stream_put(a, m, n, v[i]);
        }
    }

    /* Stores the sums of a tile; gate and up are first rounded to bf16, then silu_mul. */
    __device__ __forceinline__ void
    put_tile(float (&d)[H / 2], int n0)
    {
        const int W = mid_shape<H, P, G>::wide;
        if (a.bias != NULL) {
#pragma unroll
            for (int i = 0; i < H / 2; i++) {
                const int n = column(n0, i % (W / 2)), up = i / (W / 2) * a.N;
                d[i] += n < a.N ? a.bias[up + n] : 0;
            }
        } else {
#pragma unroll
            for (int i = 0; i < H / 2; i++)
                d[i] += 0;               /* turns -0 to 0, as gemm_stream.cu does */
        }
        if constexpr (G) {
            float v[W / 2];
#pragma unroll
            for (int i = 0; i < W / 2; i++)
                v[i] = cu_silu_mul_bf16(cu_round_bf16(d[i]), cu_round_bf16(d[W / 2 + i]));
            put<W>(v, n0);
        } else {
            put<H>(d, n0);
        }
    }

    /* Sums all splits of this block in the order of gemm_stream.cu. */
    __device__ __forceinline__ void
    parts(float (&sum)[H / 2])
    {
        float d[H / 2];
        part(sum, 0);
        part(d, 1);
#pragma unroll
        for (int i = 0; i < H / 2; i++)
            sum[i] += d[i];
        if constexpr (P == 1) {
            float half[H / 2];
            part(half, 2);
            part(d, 3);
#pragma unroll
            for (int i = 0; i < H / 2; i++)
                sum[i] += half[i] + d[i];
        }
    }

    __device__ __forceinline__ void
    run(void)
    {
        for (int j = 0; j < k.n; j++) {
            float sum[H / 2];
            parts(sum);
            if (P > 1)
                cu_pair_add(sum, ring, &bar->pair, k.rank, lives(), j & 1);
            if ((P == 1 || cu_pair_mine(k.rank)) && lives())
                put_tile(sum, (k.at + j * k.step) * mid_shape<H, P, G>::wide);
        }
        stream_boxes_gone(lane);
    }
};

static __device__ __forceinline__ void
mid_barriers_init(struct mid_barriers *bar, int n_stage)
{
    for (int i = 0; i < n_stage; i++) {
        cu_bar_init(cu_smem(&bar->full[i]), 1);
        cu_bar_init(cu_smem(&bar->empty[i]), WARPS);
    }
    cu_pair_init(&bar->pair);
    cu_bar_ready();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template<int H, int P, int G>
static __global__ void __launch_bounds__((WARPS + 4) * 32, 1)
mid_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
    const __grid_constant__ CUtensorMap y, const __grid_constant__ struct mid_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    struct mid_barriers *bar = (struct mid_barriers *)(shared + mid_shape<H, P, G>::ring +
        WARPS * mid_shape<H, P, G>::out);
    const int rank = P > 1 ? cu_cluster_rank() : 0;
    const int at = (int)blockIdx.x / P, step = (int)gridDim.x / P;
    const struct mid_work k = { at, step, (a.n_tile - 1 - at) / step + 1,
        rank * (PARTS / P), rank };
    const int asks = threadIdx.x == 32 * WARPS;
    mid_feed<H, P, G> f(&w, &x, a, k, shared, bar);
    int ahead = 0;
    cu_dep_next();
    if (asks)
        mid_barriers_init(bar, a.n_stage);
    __syncthreads();
    if (asks)
        ahead = f.ahead();
    __syncwarp();
    if (P > 1) {
        cu_cluster_arrive();
        cu_cluster_wait();
    }
    cu_dep_wait();
    if (threadIdx.x < 32 * WARPS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        mid_warp<H, P, G>(&y, a, k, shared, bar).run();
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (asks)
            f.rest(ahead);
    }
#endif
}

/* ---- launching -------------------------------------------------------------- */

static const struct mid_kind {
    int height, blocks, gate;    /* H, P, G */
    void (*kernel)(CUtensorMap, CUtensorMap, CUtensorMap, struct mid_args);
    int ring;
} kinds[] = {
#define KIND(h, p, g) { h, p, g, mid_kernel<h, p, g>, mid_shape<h, p, g>::ring }
    KIND(32, 2, 0), KIND(48, 2, 0), KIND(64, 2, 0), KIND(80, 2, 0), KIND(96, 2, 0),
    KIND(112, 2, 0), KIND(128, 2, 0), KIND(64, 1, 0), KIND(80, 1, 0), KIND(96, 1, 0),
    KIND(112, 1, 0), KIND(128, 1, 0), KIND(64, 1, 1), KIND(80, 1, 1), KIND(96, 1, 1),
    KIND(112, 1, 1), KIND(128, 1, 1)
#undef KIND
};
#define N_KIND ((int)(sizeof(kinds) / sizeof(kinds[0])))

/* Returns the kind that takes the least time. The times were measured on an H200 with 128
 * rows, in us. 64 elements of K cost a block 0.225 for x and 0.00075 for each row of w.
 * If memory needs longer to load the rows of w of all processors, that time counts
 * instead. The end of a tile costs 1, or 3 with an exchange. */
static const struct mid_kind *
mid_choose(int N, int K, int gate, int n_proc)
{
    const struct mid_kind *best = NULL;
    double least = INFINITY;
    for (int i = 0; i < N_KIND; i++) {
        const struct mid_kind *m = &kinds[i];
        const int slots = cu_slots(n_proc, m->blocks);
        const int rounds = ((N - 1) / m->height + slots) / slots;
        const double multiply = 0.225 + 0.00075 * m->height;
        const double bring = 128e-6 * m->height * n_proc / 4.5;
        const double t = rounds * (K / 64. / m->blocks * (multiply > bring ? multiply :
            bring) + (m->blocks == 1 ? 1 : 3));
        /* With only one unit along K the first of two blocks would have nothing to
         * read. */
        const int fits = m->gate == gate && (m->blocks == 1 || K > 64 * UNIT);
        if (fits && t < least) {
            least = t;
            best = m;
        }
    }
    return best;
}

/* y: where results go. N: columns of y: g->N, or half of that for gate and up. */
static int
mid_launch(const struct fdk_gemm_args *g, void *y, int N, int ldy, int n_proc,
    fdk_stream_t st)
{
    const int gate = N < g->N, y32 = g->y_dtype == FDK_F32;
    const struct mid_kind *m = mid_choose(g->N, g->K, gate, n_proc);
    const int wide = m->height / (1 + gate), n_tile = (N - 1) / wide + 1;
    const int x_rows = (g->T + 7) / 8 * 8, x_bytes = x_rows * 128;
    /* The tensor cores read CU_STREAM_ROWS rows of x. Those past x_rows may hold
     * anything. */
    const int n_stage = (m->ring - (CU_STREAM_ROWS * 128 - x_bytes)) /
        (m->height * 128 + x_bytes);
    const size_t y_bytes = (size_t)g->T * (size_t)N * (y32 ? 4 : 2);
    struct mid_args a = { y, g->bias, g->n, g->first, g->T, N, g->K, ldy, y32, x_bytes,
        n_tile, n_stage < MOST_STAGES ? n_stage : MOST_STAGES, 0, y_bytes <= KEPT_MOST };
    CUtensorMap w, x, out = {};
    int rc = stream_maps(&w, &x, g, wide, x_rows, 1);
    if (rc != 0)
        return rc;
    a.tma_out = stream_out_map(&out, y, g->T, N, ldy, y32, y32 ? wide / 2 : wide, 16,
        0) == 0;
    cu_chain_clusters(m->kernel, (unsigned)m->blocks, cu_groups(n_tile, m->blocks, n_proc),
        (WARPS + 4) * 32, SHARED_MOST, cu_raw(st), w, x, out, a);
    return cu_launched(st, "gemm");
}

int
cu_gemm_stream_mid(const struct fdk_gemm_args *g, int n_proc, fdk_stream_t st)
{
    return mid_launch(g, g->y, g->N, g->ldy, n_proc, st);
}

int
cu_gemm_stream_mid_silu(const struct fdk_gemm_args *g, const struct fdk_silu_mul_args *s,
    int n_proc, fdk_stream_t st)
{
    return mid_launch(g, s->y, s->F, s->F, n_proc, st);
}

cudaError_t
cu_gemm_stream_mid_load(void)
{
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < N_KIND && e == cudaSuccess; i++)
        e = cudaFuncSetAttribute((const void *)kinds[i].kernel,
            cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MOST);
    return e;
}
