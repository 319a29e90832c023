/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T for any number of rows of x, bf16, with the bits of gemm_stream.cu: in
 * deterministic contexts a row's bits must not depend on the number of rows. The splits
 * of K are the same, blocks of 64 along K are multiplied in the same order,
 * and the sums of splits, which begin with 0, are added in the same order.
 *
 * A tile is 128 rows of x, the tensor cores' M, by 128 rows of w. One thread loads tiles
 * of both; two warpgroups have 64 rows of x each. Two blocks are a cluster. If there are
 * many tiles, they have the same rows of w and adjacent rows of x, and each loads half of
 * w for both: the limit is the bandwidth of L2. If there are few, they share
 * a tile, and each has two splits of K (pair.cuh).
 *
 * A tile's results are stored by TMA while the next one is computed.
 */
#include "kernels/cuda/sm90/gemm_stream.cuh"
#include "kernels/cuda/sm90/pair.cuh"

#define SIDE   128               /* rows of x, and of w, of a tile */
#define BLOCKS 2                 /* of a cluster */
#define BOX    (SIDE * 128)      /* bytes: 64 numbers of each */
#define STAGES 6
#define WARPS  PAIR_WARPS        /* consumer warps; another warpgroup issues loads */
#define SUMS   (SIDE / 2)        /* sums of a lane: 64 rows of x by SIDE of w */
#define BAND   2048              /* rows of x that stay in L2 */

struct wide_args {
    void *y;
    const float *bias;
    const int32_t *n;
    int32_t first, T, N, K, ldy, y32;
    int32_t tma_out;               /* y is written as TMA tiles of 16 rows by 64
                                      columns */
};

struct wide_shared {
    struct { unsigned char x[BOX], w[BOX]; } ring[STAGES];
    unsigned char out[WARPS][16 * SIDE * 2];
    uint64_t full[STAGES], empty[STAGES];
    struct cu_pair pair;
};
static_assert(cu_pair_bytes(SUMS) <= STAGES * 2 * BOX, "what is exchanged fits");
static_assert(sizeof(struct wide_shared) <= SHARED_MOST, "");

typedef struct cu_ring_at<STAGES> wide_at;

/* Work of a cluster: every step-th of n_tile tiles of `high` rows of x by SIDE of w, from
 * `at` on. Tiles of a band of x with the same rows of w are adjacent. part: this
 * block's first split of K. */
struct wide_work {
    int at, step, n_tile, high, rank, part;
    int rows;                    /* live rows of x */
    int N, T;

    __device__ __forceinline__
    wide_work(const struct wide_args &a, int split) : at((int)blockIdx.x / BLOCKS),
        step((int)gridDim.x / BLOCKS), high(split ? SIDE : BLOCKS * SIDE),
        rank(cu_cluster_rank()), part(split ? rank * (PARTS / BLOCKS) : 0), N(a.N), T(a.T)
    {
        n_tile = ((N - 1) / SIDE + 1) * ((T - 1) / high + 1);
    }

    /* Sets the first rows of tile v. Returns 0 if it has no live row of x. */
    __device__ __forceinline__ int
    tile(int v, int *m, int *n) const
    {
        const int tall = BAND / high, each = ((N - 1) / SIDE + 1) * tall, band = v / each;
        const int across = min(tall, (T - 1) / high + 1 - band * tall), i = v % each;
        *m = (band * tall + i % across) * high;
        *n = i / across * SIDE;
        return *m < rows;
    }
};

/* Loads to the same address in both blocks, whose barriers count the bytes. */
static __device__ __forceinline__ void
load_for_both(uint32_t dst, const CUtensorMap *map, int row, int kb, uint64_t *bar,
    uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global"
        ".mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], %6, %7;"
        :: "r"(dst), "l"(map), "r"(0), "r"(row), "r"(kb), "r"(cu_smem(bar)),
        "h"((uint16_t)((1 << BLOCKS) - 1)), "l"(policy) : "memory");
}

/* ---- loads ------------------------------------------------------------------ */

/* One thread. */
template<int SPLIT>
struct wide_feed {
    const CUtensorMap *w, *x;
    const struct wide_work &k;
    struct wide_shared *s;
    int k0, k1;
    uint64_t policy;

    __device__ __forceinline__
    wide_feed(const CUtensorMap *w_map, const CUtensorMap *x_map,
        const struct wide_work &work, int K, struct wide_shared *shared) : w(w_map),
        x(x_map), k(work), s(shared), k0(cut(K, work.part)),
        k1(cut(K, SPLIT ? work.part + PARTS / BLOCKS : PARTS))
    {
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    }

    __device__ __forceinline__ void
    load_w(int slot, int n, int kb)
    {
        const int half = SIDE / BLOCKS * k.rank;
        uint64_t *full = &s->full[slot];
        cu_bar_expect(cu_smem(full), 2 * BOX);
        if (SPLIT)
            load_box(cu_smem(s->ring[slot].w), w, n, kb, full, policy);
        else
            load_for_both(cu_smem(s->ring[slot].w) + half * 128, w, n + half, kb, full,
                policy);
    }

    __device__ __forceinline__ void
    load_x(int slot, int m, int kb)
    {
        load_box(cu_smem(s->ring[slot].x), x, SPLIT ? m : m + SIDE * k.rank, kb,
            &s->full[slot], policy);
    }

    __device__ __forceinline__ void
    run(void)
    {
        wide_at at = { 0, 1 };
        int m, n, parity = 0;
        for (int v = k.at; v < k.n_tile; v += k.step) {
            if (!k.tile(v, &m, &n))
                continue;
            for (int kb = k0; kb < k1; kb++, at.next()) {
                cu_bar_wait(cu_smem(&s->empty[at.slot]), at.parity);
                load_w(at.slot, n, kb);
                load_x(at.slot, m, kb);
            }
            if (SPLIT)
                cu_pair_over(&s->pair, parity);
            parity ^= 1;
        }
        /* Waits until the other block's warps have signalled all their reads to this
         * one. */
        for (int i = 0; i < STAGES && !SPLIT; i++, at.next())
            cu_bar_wait(cu_smem(&s->empty[at.slot]), at.parity);
    }
};

/* ---- multiplying ------------------------------------------------------------ */

/* A warp: 16 rows of x. */
template<int SPLIT>
struct wide_warp {
    const CUtensorMap *y;
    const struct wide_args &a;
    const struct wide_work &k;
    struct wide_shared *s;
    int warp, lane;
    uint64_t policy;
    wide_at at;

    __device__ __forceinline__
    wide_warp(const CUtensorMap *y_map, const struct wide_args &args,
        const struct wide_work &work, struct wide_shared *shared) : y(y_map), a(args),
        k(work), s(shared), warp((int)threadIdx.x / 32), lane((int)threadIdx.x % 32)
    {
        at = { 0, 0 };
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
        return cu_smem(s->ring[slot].x) + warp / 4 * (BOX / 2);
    }

    __device__ __forceinline__ uint32_t
    w(int slot) const
    {
        return cu_smem(s->ring[slot].w);
    }

    /* Signals both blocks if w was loaded for both. */
    __device__ __forceinline__ void
    leave(int slot)
    {
        if (SPLIT && lane == 0)
            cu_bar_arrive(cu_smem(&s->empty[slot]));
        if (!SPLIT && lane < BLOCKS)
            cu_bar_arrive_at(cu_remote(cu_smem(&s->empty[slot]), lane));
    }

    __device__ __forceinline__ void
    next(void)
    {
        at.next();
    }

    /* d = the sums of one split, for this warpgroup's 64 rows of x. */
    __device__ __forceinline__ void
    part(float (&d)[SUMS], int i)
    {
        stream_sums<SIDE>(d, cut(a.K, k.part + i + 1) - cut(a.K, k.part + i), *this);
    }

    /* Sums all splits of this block in the order of gemm_stream.cu. */
    __device__ __forceinline__ void
    parts(float (&sum)[SUMS])
    {
        float d[SUMS];
        part(sum, 0);
        part(d, 1);
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sum[i] += d[i];
        if (!SPLIT) {
            float half[SUMS];
            part(half, 2);
            part(d, 3);
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                sum[i] += half[i] + d[i];
        }
    }

    /* Address for TMA of columns 8 i + 2 (lane % 4) and the next of row r: in
     * tiles of 64 columns, swizzled by 16 bytes. */
    __device__ __forceinline__ __nv_bfloat162 *
    in_box(int r, int i)
    {
        return (__nv_bfloat162 *)(s->out[warp] + i / 8 * 2048 + r * 128 +
            (i % 8 ^ r % 8) * 16 + lane % 4 * 4);
    }

    /* Stores 16 rows from m on. */
    __device__ __forceinline__ void
    put_boxes(const float (&d)[SUMS], int m, int n)
    {
        stream_boxes_read();
#pragma unroll
        for (int i = 0; i < SUMS / 4; i++) {
            *in_box(lane / 4, i) = __floats2bfloat162_rn(d[4 * i], d[4 * i + 1]);
            *in_box(lane / 4 + 8, i) = __floats2bfloat162_rn(d[4 * i + 2], d[4 * i + 3]);
        }
        cu_written();
        for (int i = 0; i < SIDE / 64 && lane == 0 && n + 64 * i < a.N; i++)
            stream_box_out(y, n + 64 * i, m, cu_smem(s->out[warp] + 2048 * i), policy);
    }

    /* A lane has rows m + lane / 4 and + 8, columns 8 i + 2 (lane % 4) and the next.
     * One i after the other: there are no registers for more addresses. */
    __device__ __forceinline__ void
    put(float (&d)[SUMS], int m, int n0)
    {
        const int row = m + lane / 4, c = n0 + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < SUMS; i += 4) {
            const int n = c + 2 * i;
            const float b0 = a.bias != NULL && n < a.N ? a.bias[n] : 0;
            const float b1 = a.bias != NULL && n + 1 < a.N ? a.bias[n + 1] : 0;
            d[i] += b0;
            d[i + 1] += b1;
            d[i + 2] += b0;
            d[i + 3] += b1;
            asm volatile("" ::: "memory");
        }
        if (a.tma_out && m + 16 <= k.rows) {
            put_boxes(d, m, n0);
            return;
        }
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            const int r = row + i % 4 / 2 * 8, n = c + i / 4 * 8 + i % 2;
            if (r < k.rows && n < a.N)
                stream_put(a, r, n, d[i]);
            asm volatile("" ::: "memory");
        }
    }

    __device__ __forceinline__ void
    run(void)
    {
        int m, n, parity = 0;
        for (int v = k.at; v < k.n_tile; v += k.step) {
            float sum[SUMS];
            if (!k.tile(v, &m, &n))
                continue;
            m += 16 * warp + (SPLIT ? 0 : SIDE * k.rank);
            parts(sum);
            if (SPLIT)
                cu_pair_add(sum, (unsigned char *)s->ring, &s->pair, k.rank, m < k.rows,
                    parity);
            if ((!SPLIT || cu_pair_mine(k.rank)) && m < k.rows)
                put(sum, m, n);
            parity ^= 1;
        }
        stream_boxes_gone(lane);
    }
};

template<int SPLIT>
static __device__ __forceinline__ void
wide_init(struct wide_shared *s)
{
    for (int i = 0; i < STAGES; i++) {
        cu_bar_init(cu_smem(&s->full[i]), 1);
        cu_bar_init(cu_smem(&s->empty[i]), SPLIT ? WARPS : WARPS * BLOCKS);
    }
    cu_pair_init(&s->pair);
    cu_bar_ready();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template<int SPLIT>
static __global__ void __launch_bounds__((WARPS + 4) * 32, 1)
wide_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
    const __grid_constant__ CUtensorMap y, const __grid_constant__ struct wide_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    struct wide_shared *s = (struct wide_shared *)shared;
    struct wide_work k(a, SPLIT);
    cu_dep_next();
    if (threadIdx.x == 0)
        wide_init<SPLIT>(s);
    __syncthreads();
    cu_cluster_arrive();
    cu_cluster_wait();
    cu_dep_wait();
    k.rows = max(0, min(a.T, *a.n - a.first));
    if (threadIdx.x >= WARPS * 32) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == WARPS * 32)
            wide_feed<SPLIT>(&w, &x, k, a.K, s).run();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        wide_warp<SPLIT>(&y, a, k, s).run();
    }
    __syncwarp();
    cu_cluster_arrive();         /* a block that has ended cannot be signalled */
    cu_cluster_wait();
#endif
}

/* ---- launching -------------------------------------------------------------- */

template<int SPLIT>
static int
launch(const struct fdk_gemm_args *g, int n_tile, int n_proc, fdk_stream_t st)
{
    struct wide_args a = { g->y, g->bias, g->n, g->first, g->T, g->N, g->K, g->ldy,
        g->y_dtype == FDK_F32, 0 };
    CUtensorMap w, x, y = {};
    int rc = stream_maps(&w, &x, g, SPLIT ? SIDE : SIDE / BLOCKS, SIDE, 1);
    if (rc != 0)
        return rc;
    a.tma_out = !a.y32 && stream_out_map(&y, g->y, g->T, g->N, g->ldy, 0, 64, 16, 1) == 0;
    cu_chain_clusters(wide_kernel<SPLIT>, BLOCKS, cu_groups(n_tile, BLOCKS, n_proc),
        (WARPS + 4) * 32, sizeof(struct wide_shared), cu_raw(st), w, x, y, a);
    return cu_launched(st, "gemm");
}

int
cu_gemm_stream_wide(const struct fdk_gemm_args *g, int n_proc, fdk_stream_t st)
{
    const int across = (g->N - 1) / SIDE + 1, n_tile = across * ((g->T - 1) / SIDE + 1);
    /* Only if no cluster has two tiles: of two tiles one may be live and the other
     * not. */
    if (n_tile <= cu_slots(n_proc, BLOCKS))
        return launch<1>(g, n_tile, n_proc, st);
    return launch<0>(g, across * ((g->T - 1) / (BLOCKS * SIDE) + 1), n_proc, st);
}

cudaError_t
cu_gemm_stream_wide_load(void)
{
    cudaError_t e = cudaFuncSetAttribute((const void *)wide_kernel<0>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(struct wide_shared));
    return e != cudaSuccess ? e : cudaFuncSetAttribute((const void *)wide_kernel<1>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(struct wide_shared));
}
