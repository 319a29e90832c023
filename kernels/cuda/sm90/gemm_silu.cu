/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = silu_mul of x w^T for more than CU_STREAM_ROWS rows of x, bf16: w has F rows of
 * gate and F of up (fdk_silu_mul_args), whose results are not stored in memory.
 *
 * A tile is 128 rows of x by W rows of w, W / 2 of gate and W / 2 of up. Each of two
 * consumer warpgroups has 64 rows of x and all of w, so that gate and up of one result
 * are sums of one thread. The two blocks of a cluster have tiles with the same rows of w:
 * one loads gate for both, the other up. If the last 256 rows of x are 128 or fewer, the
 * two blocks share these rows instead and load them alternately; otherwise one of them
 * would have nothing to compute. All of K is added in ascending order into one set of
 * sums for any number of rows and any tile: the bits of a GEMM of cuBLASLt that does not
 * split K.
 *
 * Blocks are persistent. Tiles of a band of rows of x that have the same rows of w are
 * computed at the same time, so that L2 reads each once.
 */
#include "kernels/cuda/sm90/gemm_stream.cuh"

#define SIDE    128              /* rows of x of a tile */
#define BLOCKS  2                /* of a cluster */
#define WARPS   8                /* consumer warps; another warpgroup issues loads */
#define BARRIER 256              /* bytes for barriers */
#define BAND    2048             /* rows of x that stay in L2 */
#define TILE_END 4               /* cost of a tile's end, in columns */

struct joint_args {
    __nv_bfloat16 *y;
    const float *bias;
    const int32_t *n;
    int32_t T, F, K;
};

/* W rows of w in a tile. Shared memory: the stages, output buffers of 16 rows by W / 2
 * columns per warp, and barriers. */
template<int W>
struct joint_shape {
    static const int half = W / 2;               /* rows of w that a block loads */
    static const int out = 16 * half * 2;        /* bytes per warp */
    static const int stage = (SIDE + W) * 128;
    static const int stages = (SHARED_MOST - WARPS * out - BARRIER) / stage;
    static const int bytes = stages * stage + WARPS * out + BARRIER;
    static_assert(stages * 16 <= BARRIER && half % 16 == 0, "");
};

/* There are tiles of 2 SIDE rows of x by `across` columns of tiles, then those of the
 * last rows. */
static __host__ __device__ __forceinline__ int
joint_high(int T)
{
    return (T + SIDE - 1) / (BLOCKS * SIDE);
}

static __host__ __device__ __forceinline__ int
joint_rest(int T, int across)
{
    return T > joint_high(T) * BLOCKS * SIDE ? (across + BLOCKS - 1) / BLOCKS : 0;
}

/* Work of a cluster: every step-th of n_tile pairs of tiles from `at` on. */
struct joint_work {
    int at, step, n_tall, n_tile, rank, wide, across, T;
    int rows;                    /* live rows of x */

    __device__ __forceinline__
    joint_work(const struct joint_args &a, int columns) : at((int)blockIdx.x / BLOCKS),
        step((int)gridDim.x / BLOCKS), rank(cu_cluster_rank()), wide(columns),
        across((a.F - 1) / columns + 1), T(a.T), rows(0)
    {
        n_tall = across * joint_high(T);
        n_tile = n_tall + joint_rest(T, across);
    }

    /* Do the blocks share rows of x in pair v? Otherwise rows of w. */
    __device__ __forceinline__ int
    shares_x(int v) const
    {
        return v >= n_tall;
    }

    /* Pair v: sets this block's first row of x and first column of y. Returns 0 if no row
     * of x is live there; but the first pair, whose w is loaded before that is known, is
     * computed. */
    __device__ __forceinline__ int
    tile(int v, int *m, int *n) const
    {
        const int tall = BAND / (BLOCKS * SIDE), each = across * tall;
        const int band = v / each, i = v % each;
        const int high = min(tall, joint_high(T) - band * tall);
        int first = (band * tall + i % max(high, 1)) * (BLOCKS * SIDE);
        *m = first + SIDE * rank;
        *n = i / max(high, 1) * wide;
        if (shares_x(v)) {
            *m = first = joint_high(T) * (BLOCKS * SIDE);
            *n = ((v - n_tall) * BLOCKS + rank) * wide;
        }
        return v == at || first < rows;
    }
};

struct joint_ring {
    unsigned char *stage;
    uint64_t *full, *empty;
};

/* ---- loads ------------------------------------------------------------------ */

/* One thread. */
template<int W>
struct joint_feed {
    using Z = joint_shape<W>;
    const CUtensorMap *w, *x;
    const struct joint_work &k;
    const struct joint_ring &ring;
    int n_kb, F;
    uint64_t policy;
    cu_ring_at<Z::stages> at;

    __device__ __forceinline__
    joint_feed(const CUtensorMap *w_map, const CUtensorMap *x_map,
        const struct joint_work &work, const struct joint_ring &r,
        const struct joint_args &a) :
        w(w_map), x(x_map), k(work), ring(r), n_kb(a.K / 64), F(a.F)
    {
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        at = { 0, 1 };
    }

    /* Loads to the same address in both blocks, whose barriers count the bytes. */
    __device__ __forceinline__ void
    load_both(uint32_t to, const CUtensorMap *map, int row, int kb, uint32_t full)
    {
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global"
            ".mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
            "[%0], [%1, {%2, %3, %4}], [%5], %6, %7;"
            :: "r"(to), "l"(map), "r"(0), "r"(row), "r"(kb), "r"(full),
            "h"((uint16_t)((1 << BLOCKS) - 1)), "l"(policy) : "memory");
    }

    /* Loads gate and up; with shared rows of w only one of them, for both blocks. */
    __device__ __forceinline__ void
    load_w(int slot, int n, int kb, int shares_x)
    {
        const uint32_t full = cu_smem(&ring.full[slot]);
        const uint32_t to = cu_smem(ring.stage) + slot * Z::stage + SIDE * 128;
        cu_bar_expect(full, Z::stage);
        if (!shares_x) {
            load_both(to + k.rank * Z::half * 128, w, n + k.rank * F, kb, full);
            return;
        }
        for (int i = 0; i < 2; i++)
            load_box(to + i * Z::half * 128, w, n + i * F, kb, &ring.full[slot], policy);
    }

    /* Loads x; with shared rows of x each block loads every second stage for both. */
    __device__ __forceinline__ void
    load_x(int slot, int m, int kb, int shares_x)
    {
        const uint32_t to = cu_smem(ring.stage) + slot * Z::stage;
        if (!shares_x)
            load_box(to, x, m, kb, &ring.full[slot], policy);
        else if (kb % BLOCKS == k.rank)
            load_both(to, x, m, kb, cu_smem(&ring.full[slot]));
    }

    /* Loads w of the first pair, as many stages as there are, before the previous kernel
     * ends. */
    __device__ __forceinline__ int
    ahead(void)
    {
        const int most = min(Z::stages, n_kb);
        int m, n;
        (void)k.tile(k.at, &m, &n);
        for (int kb = 0; kb < most; kb++)
            load_w(kb, n, kb, k.shares_x(k.at));
        return most;
    }

    __device__ __forceinline__ void
    run(int n_ahead)
    {
        int m, n;
        for (int v = k.at; v < k.n_tile; v += k.step) {
            const int shares_x = k.shares_x(v);
            if (!k.tile(v, &m, &n))
                continue;
            for (int kb = 0; kb < n_kb; kb++, at.next()) {
                if (n_ahead > 0) {
                    n_ahead--;
                } else {
                    cu_bar_wait(cu_smem(&ring.empty[at.slot]), at.parity);
                    load_w(at.slot, n, kb, shares_x);
                }
                load_x(at.slot, m, kb, shares_x);
            }
        }
        /* Waits until the other block's warps have signalled all their reads to this
         * one. */
        for (int i = 0; i < Z::stages; i++, at.next())
            cu_bar_wait(cu_smem(&ring.empty[at.slot]), at.parity);
    }
};

/* ---- multiplying ------------------------------------------------------------ */

/* A warp: 16 rows of x. */
template<int W>
struct joint_warp {
    using Z = joint_shape<W>;
    const CUtensorMap *y;
    const struct joint_args &a;
    const struct joint_work &k;
    const struct joint_ring &ring;
    unsigned char *out;
    int warp, lane;
    cu_ring_at<Z::stages> at;
    uint64_t policy;

    __device__ __forceinline__
    joint_warp(const CUtensorMap *y_map, const struct joint_args &args,
        const struct joint_work &work, const struct joint_ring &r, unsigned char *leaves) :
        y(y_map), a(args), k(work), ring(r), warp((int)threadIdx.x / 32),
        lane((int)threadIdx.x % 32)
    {
        out = leaves + warp * Z::out;
        at = { 0, 0 };
        asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    }

    __device__ __forceinline__ uint32_t
    full(int slot) const
    {
        return cu_smem(&ring.full[slot]);
    }

    __device__ __forceinline__ uint32_t
    x(int slot) const
    {
        return cu_smem(ring.stage) + slot * Z::stage + warp / 4 * (SIDE / 2 * 128);
    }

    __device__ __forceinline__ uint32_t
    w(int slot) const
    {
        return cu_smem(ring.stage) + slot * Z::stage + SIDE * 128;
    }

    /* w or x was loaded for both blocks: signals both. */
    __device__ __forceinline__ void
    leave(int slot)
    {
        if (lane < BLOCKS)
            cu_bar_arrive_at(cu_remote(cu_smem(&ring.empty[slot]), lane));
    }

    __device__ __forceinline__ void
    next(void)
    {
        at.next();
    }

    /* v[4 i + 2 r + c] of a lane: row lane / 4 + 8 r, column 8 i + 2 (lane % 4) + c.
     * Shared memory has 16 columns of 16 rows after the other, their halves swizzled. */
    __device__ __forceinline__ void
    put_boxes(const float *v, int m, int n)
    {
        const int r = lane / 4, c = lane % 4 * 4;
        stream_boxes_read();
#pragma unroll
        for (int i = 0; i < Z::half / 8; i++) {
            unsigned char *to = out + i / 2 * 512 + r * 32 + (i % 2 ^ r / 4) * 16 + c;
            *(__nv_bfloat162 *)to = __floats2bfloat162_rn(v[4 * i], v[4 * i + 1]);
            *(__nv_bfloat162 *)(to + 256) = __floats2bfloat162_rn(v[4 * i + 2],
                v[4 * i + 3]);
        }
        cu_written();
        if (lane == 0)
            asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group"
                ".L2::cache_hint [%0, {%1, %2, %3}], [%4], %5;\n\t"
                "cp.async.bulk.commit_group;"
                :: "l"(y), "r"(0), "r"(m), "r"(n / 16), "r"(cu_smem(out)), "l"(policy)
                : "memory");
    }

    /* Stores 16 rows from m on, columns from n0 on. */
    __device__ __forceinline__ void
    put(const float *v, int m, int n0)
    {
        if (m + 16 <= k.rows) {
            put_boxes(v, m, n0);
            return;
        }
#pragma unroll
        for (int i = 0; i < Z::half / 2; i++) {
            const int row = m + lane / 4 + i % 4 / 2 * 8;
            const int n = n0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (row < k.rows && n < a.F)
                a.y[(size_t)row * (size_t)a.F + (size_t)n] = __float2bfloat16_rn(v[i]);
            asm volatile("" ::: "memory");   /* in sequence, to save registers */
        }
    }

    /* Adds the bias of this tile's columns; `from` is 0 for gate, F for up. */
    __device__ __forceinline__ void
    add_bias(float *d, int n0, int from)
    {
#pragma unroll
        for (int i = 0; i < Z::half / 2; i += 4) {
            const int n = n0 + lane % 4 * 2 + 2 * i;
            const float b0 = n < a.F ? a.bias[from + n] : 0;
            const float b1 = n + 1 < a.F ? a.bias[from + n + 1] : 0;
            d[i] += b0;
            d[i + 1] += b1;
            d[i + 2] += b0;
            d[i + 3] += b1;
            asm volatile("" ::: "memory");
        }
    }

    __device__ __forceinline__ void
    put_tile(float (&d)[Z::half], int m, int n)
    {
        float *second = d + Z::half / 2;
        if (a.bias != NULL) {
            add_bias(d, n, 0);
            add_bias(second, n, a.F);
        }
#pragma unroll
        for (int i = 0; i < Z::half / 2; i++)
            d[i] = cu_silu_mul_bf16(cu_round_bf16(d[i]), cu_round_bf16(second[i]));
        put(d, m, n);
    }

    __device__ __forceinline__ void
    run(void)
    {
        int m, n;
        for (int v = k.at; v < k.n_tile; v += k.step) {
            float d[Z::half];
            if (!k.tile(v, &m, &n))
                continue;
            stream_sums<W>(d, a.K / 64, *this);
            m += 16 * warp;
            if (m < k.rows)
                put_tile(d, m, n);
        }
        stream_boxes_gone(lane);
    }
};

static __device__ __forceinline__ void
joint_init(const struct joint_ring &r, int n)
{
    for (int i = 0; i < n; i++) {
        cu_bar_init(cu_smem(&r.full[i]), 1);
        cu_bar_init(cu_smem(&r.empty[i]), WARPS * BLOCKS);
    }
    cu_bar_ready();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template<int W>
static __global__ void __launch_bounds__((WARPS + 4) * 32, 1)
joint_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
    const __grid_constant__ CUtensorMap y, const __grid_constant__ struct joint_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Z = joint_shape<W>;
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *out = shared + Z::stages * Z::stage;
    uint64_t *bar = (uint64_t *)(out + WARPS * Z::out);
    const struct joint_ring ring = { shared, bar, bar + Z::stages };
    struct joint_work k(a, Z::half);
    const int loads = threadIdx.x == WARPS * 32;
    cu_dep_next();
    if (loads)
        joint_init(ring, Z::stages);
    __syncthreads();
    cu_cluster_arrive();
    cu_cluster_wait();
    if (threadIdx.x >= WARPS * 32) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (loads) {
            joint_feed<W> f(&w, &x, k, ring, a);
            const int n = f.ahead();
            cu_dep_wait();
            k.rows = cu_clip(a.n, a.T);
            f.run(n);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        cu_dep_wait();
        k.rows = cu_clip(a.n, a.T);
        joint_warp<W>(&y, a, k, ring, out).run();
    }
    __syncwarp();
    cu_cluster_arrive();         /* nothing may be sent to an ended block */
    cu_cluster_wait();
#endif
}

/* ---- launching -------------------------------------------------------------- */

static const struct joint_kind {
    int width, bytes;            /* W, shared memory */
    void (*kernel)(CUtensorMap, CUtensorMap, CUtensorMap, struct joint_args);
} kinds[] = {
#define KIND(w) { w, joint_shape<w>::bytes, joint_kernel<w> }
    KIND(256), KIND(224), KIND(192)
#undef KIND
};
#define N_KIND ((int)(sizeof(kinds) / sizeof(kinds[0])))

static int64_t
joint_tiles(int T, int F, const struct joint_kind *m)
{
    const int across = (F - 1) / (m->width / 2) + 1;
    return (int64_t)across * joint_high(T) + joint_rest(T, across);
}

/* Returns the kind whose waves of tiles take the least time. */
static const struct joint_kind *
joint_choose(int T, int F, int n_proc)
{
    const struct joint_kind *best = NULL;
    const int slots = cu_slots(n_proc, BLOCKS);
    int64_t least = INT64_MAX;
    for (int i = 0; i < N_KIND; i++) {
        const int64_t waves = (joint_tiles(T, F, &kinds[i]) - 1) / slots + 1;
        const int64_t t = waves * (kinds[i].width + TILE_END);
        if (t < least) {
            least = t;
            best = &kinds[i];
        }
    }
    return best;
}

int
cu_gemm_silu(const struct fdk_gemm_args *g, const struct fdk_silu_mul_args *s, int n_proc,
    fdk_stream_t st)
{
    const struct joint_kind *m = joint_choose(g->T, s->F, n_proc);
    const struct joint_args a = { (__nv_bfloat16 *)s->y, g->bias, g->n, g->T, s->F, g->K };
    CUtensorMap w, x, out;
    int rc = stream_maps(&w, &x, g, m->width / 2, SIDE, 1);
    if (rc == 0)
        rc = stream_out_map_16(&out, s->y, g->T, s->F, s->F, m->width / 2);
    if (rc != 0)
        return rc;
    cu_chain_clusters(m->kernel, BLOCKS, cu_groups((int)joint_tiles(g->T, s->F, m), BLOCKS,
        n_proc), (WARPS + 4) * 32, (size_t)m->bytes, cu_raw(st), w, x, out, a);
    return cu_launched(st, "gemm");
}

cudaError_t
cu_gemm_silu_load(void)
{
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < N_KIND && e == cudaSuccess; i++)
        e = cudaFuncSetAttribute((const void *)kinds[i].kernel,
            cudaFuncAttributeMaxDynamicSharedMemorySize, kinds[i].bytes);
    return e;
}
