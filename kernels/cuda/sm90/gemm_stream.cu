/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T for up to MOST_ROWS rows of x, bf16: weights stream through
 * shared memory into the tensor cores once, at the bandwidth of memory, which hides
 * all other work.
 *
 * Rows of w are the tensor cores' M (64 per warpgroup), rows of x their N. K is divided
 * into four splits whose sums are computed separately and added as (0 + 1) + (2 + 3). The
 * splits depend only on K, so a row's bits depend neither on the number of
 * rows nor on the shape of the tiles. A cluster of two blocks shares a tile of rows
 * of w; each block has two of the splits. A split has its own stages of the ring, a
 * thread that loads tiles of w and x (tensor maps, 128-byte swizzle) as soon as a stage
 * is free, across the borders of tiles, and a warpgroup that multiplies. For each 16
 * rows of a tile one warp, in one of the two blocks, receives the sums of the
 * warpgroups (st.async), adds them and writes y. No other warp waits
 * for a tile's end.
 *
 * A block fills its multiprocessor. As weights are constant, its first stages are loaded
 * before the previous kernel has ended: the next kernel may start at once and
 * does so on each multiprocessor where a block has ended.
 */
#include "kernels/cuda/sm90/gemm_stream.cuh"

#define PAIR  2                  /* blocks of a cluster */
#define OWN   (PARTS / PAIR)     /* splits of a block; also its runs of 16 of 64 rows of
                                    w */
#define RING_MOST   (200 * 1024) /* more is no faster */
#define EARLY (96 * 1024)        /* bytes of w loaded before the wait: more would delay the
                                    loads of the kernels that it waits for */
#define MOST_ROWS 64             /* most rows of x for this kernel */
#define MID_FROM  48             /* most rows of x for it if N is at least MID_N:
                                    gemm_stream_mid.cu is faster for more */
#define MID_N     4096

static cu_encode_fn encode;         /* cuTensorMapEncodeTiled; written once, by load */

struct stream_args {
    void *y;
    const float *bias;
    const int32_t *n;
    int32_t first, T, N, K, ldy, y32;
    int32_t height;              /* rows of w in a tile: a multiple of 8 */
    int32_t x_bytes;             /* bytes of x in a stage: rows rounded up to 8 */
    int32_t each, more;          /* tiles of a CTA pair; the first `more` have one more */
    int32_t n_stage;             /* stages of each split */
    int32_t early;               /* of these, loaded before the wait */
};

/* For up to TT rows of x, with KS blocks of 64 along K in a stage. */
template<int TT, int KS>
struct shape {
    static const int x_bytes = KS * TT * 128;
    static const int sums = TT * 16 * 4;               /* of a split, for 16 rows of w */
    static const int fixed = OWN * PARTS * sums + 2048; /* shared memory besides the
                                                           ring */
    static const int ring = (SHARED_MOST - fixed < RING_MOST ? SHARED_MOST - fixed :
        RING_MOST) / 1024 * 1024;
    static const int warps = (4 + 1 + 1) * OWN;        /* consumers, producer,
                                                          collector */
    static_assert(ring / OWN / (x_bytes + KS * 8192) >= 2, "two stages of a part");
};

#define MOST_STAGES 32

/* The barriers of a block; in shared memory they follow its ring and sums. */
struct barriers {
    uint64_t full[OWN][MOST_STAGES], empty[OWN][MOST_STAGES];
    uint64_t sent[OWN];          /* all splits' sums of this block's 16 rows have
                                    arrived */
    uint64_t taken[4];           /* their owner has read the sums of these 16 rows */
};

/* Work of a block: n tiles at, at + step, ... */
struct work {
    int at, step, n;
};

/* ---- instructions ----------------------------------------------------------- */

/* Like cu_bar_wait(); the compiler generates less code around this loop. */
static __device__ __forceinline__ void
bar_wait(uint64_t *bar, int parity)
{
    uint32_t done;
    do {
        asm volatile("{ .reg .pred p; "
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
            "selp.u32 %0, 1, 0, p; }"
            : "=r"(done) : "r"(cu_smem(bar)), "r"(parity) : "memory");
    } while (done == 0);
}

static __device__ __forceinline__ void
send(uint32_t dst, const float v[4], uint32_t bar)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
        "[%0], {%1, %2, %3, %4}, [%5];"
        :: "r"(dst), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(bar) : "memory");
}

/* d += w x^T over 16 elements of K: 64 rows of w, TT rows of x. */
template<int TT>
static __device__ __forceinline__ void
multiply(float d[TT / 2], uint64_t w, uint64_t x)
{
    if constexpr (TT == 8)
        asm volatile(WGMMA(8, P4(0, 1, 2, 3), 4, 5) : D4(0) : "l"(w), "l"(x));
    else if constexpr (TT == 16)
        asm volatile(WGMMA(16, P4(0, 1, 2, 3) ", " P4(4, 5, 6, 7), 8, 9)
            : D4(0), D4(4) : "l"(w), "l"(x));
    else if constexpr (TT == 32)
        asm volatile(WGMMA(32, P16A, 16, 17) : D16(0) : "l"(w), "l"(x));
    else
        asm volatile(WGMMA(64, P16A ", " P16B, 32, 33)
            : D16(0), D16(16) : "l"(w), "l"(x));
}

/* ---- roles ------------------------------------------------------------------ */

/* The thread that loads a split of K: stages of w and x, the first ones of w before
 * other kernels' results may be read. */
template<int TT, int KS>
struct producer {
    const CUtensorMap *w, *x;
    const struct stream_args &a;
    const struct work &k;
    uint64_t *full, *empty;
    uint32_t ring;
    int k0, k1;
    uint64_t once, again;        /* cache policies */
    int asked, tile, kb, slot, parity;

    __device__ __forceinline__
    producer(const CUtensorMap *w_map, const CUtensorMap *x_map,
        const struct stream_args &args, const struct work &work, unsigned char *shared,
        barriers *bar, int p, int part) :
        w(w_map), x(x_map), a(args), k(work), full(bar->full[p]), empty(bar->empty[p]),
        ring(cu_smem(shared) + p * args.n_stage * (KS * args.height * 128 + args.x_bytes)),
        k0(cut(args.K, part)), k1(cut(args.K, part + 1))
    {
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(again));
    }

    __device__ __forceinline__ void
    first(void)
    {
        asked = tile = slot = parity = 0;
        kb = k0;
    }

    __device__ __forceinline__ void
    next(void)
    {
        asked++;
        kb += KS;
        if (kb >= k1) {
            kb = k0;
            tile++;
        }
        if (++slot == a.n_stage) {
            slot = 0;
            parity ^= 1;
        }
    }

    __device__ __forceinline__ void
    load_w(void)
    {
        const int w_bytes = KS * a.height * 128;
        cu_bar_expect(cu_smem(&full[slot]), w_bytes + a.x_bytes);
        load_box(ring + slot * (w_bytes + a.x_bytes), w,
            (k.at + tile * k.step) * a.height, kb, &full[slot], once);
    }

    __device__ __forceinline__ void
    load_x(void)
    {
        const int w_bytes = KS * a.height * 128;
        load_box(ring + slot * (w_bytes + a.x_bytes) + w_bytes, x, 0, kb, &full[slot],
            again);
    }

    __device__ __forceinline__ void
    ahead(void)
    {
        const int total = (k1 - k0) / KS * k.n;
        for (first(); asked < a.early && asked < total; next())
            load_w();
    }

    __device__ __forceinline__ void
    rest(void)
    {
        const int total = (k1 - k0) / KS * k.n;
        for (first(); asked < a.early && asked < total; next())
            load_x();
        for (; asked < total; next()) {
            bar_wait(&empty[slot], parity ^ 1);
            load_w();
            load_x();
        }
    }
};

/* Stores two rows of w by two rows of x, as a lane holds them after a product. */
static __device__ __forceinline__ void
put4(const struct stream_args &a, int rows, int m, int n, int n_end, float4 v, float b0,
    float b1)
{
    if (m < rows && n < n_end)
        stream_put(a, m, n, v.x + b0);
    if (m + 1 < rows && n < n_end)
        stream_put(a, m + 1, n, v.y + b0);
    if (m < rows && n + 8 < n_end)
        stream_put(a, m, n + 8, v.z + b1);
    if (m + 1 < rows && n + 8 < n_end)
        stream_put(a, m + 1, n + 8, v.w + b1);
}

/* A warpgroup: computes one split of K for 64 rows of each tile and sends the sums to
 * their owners. */
template<int TT, int KS>
static __device__ __forceinline__ void
consume(const struct stream_args &a, const struct work &k, unsigned char *shared,
    barriers *bar, int rank, int rows)
{
    using Z = shape<TT, KS>;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, slab = warp % 4;
    const int p = warp / 4, part = rank * OWN + p, to = slab / OWN;
    const int pitch = a.height * 128, stage = KS * pitch + a.x_bytes;
    const int n_block = cut(a.K, part + 1) - cut(a.K, part);
    const uint32_t ring = cu_smem(shared) + p * a.n_stage * stage;
    const uint32_t sent = cu_remote(cu_smem(&bar->sent[slab % OWN]), to);
    const uint32_t dst = cu_remote(cu_smem(shared + Z::ring + (slab % OWN * PARTS +
        part) * Z::sums + lane * 16), to);
    float d[TT / 2];
    int slot = 0, parity = 0, before = 0;
    for (int j = 0; j < k.n; j++) {
#pragma unroll
        for (int i = 0; i < TT / 2; i++)
            d[i] = 0;
        for (int kb = 0; kb < n_block; kb += KS) {
            bar_wait(&bar->full[p][slot], parity);
            const uint32_t at = ring + slot * stage;
            cu_wgmma_begin();
#pragma unroll
            for (int b = 0; b < KS; b++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    multiply<TT>(d, matrix(at + b * pitch + i * 32),
                        matrix(at + KS * pitch + b * (a.x_bytes / KS) + i * 32));
            cu_wgmma_end();
            cu_wgmma_wait<1>();
            if (kb > 0 && lane == 0)
                cu_bar_arrive(cu_smem(&bar->empty[p][before]));
            before = slot;
            if (++slot == a.n_stage) {
                slot = 0;
                parity ^= 1;
            }
        }
        cu_wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < TT / 2; i += 4)
            asm volatile("" : D4(i) :: "memory");
        if (n_block > 0 && lane == 0)
            cu_bar_arrive(cu_smem(&bar->empty[p][before]));
        if (16 * slab >= a.height)
            continue;
        if (j > 0)
            bar_wait(&bar->taken[slab], (j - 1) & 1);
#pragma unroll
        for (int i = 0; i < TT / 8; i++)
            if (8 * i < max(rows, 1))
                send(dst + i * 512, &d[4 * i], sent);
    }
}

static __device__ __forceinline__ float4
add(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* A warp: adds the sums of all splits for 16 rows of each tile, run `mine` of this
 * block. Without live rows one group of sums is sent too, to keep
 * the collectors from running ahead of the warpgroups that wait for them. */
template<int TT, int KS>
static __device__ __forceinline__ void
collect(const struct stream_args &a, const struct work &k, const unsigned char *shared,
    barriers *bar, int mine, int rank, int rows)
{
    using Z = shape<TT, KS>;
    const int lane = (int)threadIdx.x % 32, groups = (max(rows, 1) + 7) / 8;
    const int slab = rank * OWN + mine, base = 16 * slab;
    const float4 *from = (const float4 *)(shared + Z::ring + mine * PARTS * Z::sums) +
        lane;
    const int part = Z::sums / 16;
    for (int j = 0; j < k.n && base < a.height; j++) {
        int n0 = (k.at + j * k.step) * a.height, n = n0 + base + lane / 4;
        int n_end = min(a.N, n0 + a.height);
        float b0 = a.bias != NULL && n < n_end ? a.bias[n] : 0;
        float b1 = a.bias != NULL && n + 8 < n_end ? a.bias[n + 8] : 0;
        uint64_t *sent = &bar->sent[mine];
        if (lane == 0)
            cu_bar_expect(cu_smem(sent), groups * 512 * PARTS);
        bar_wait(sent, j & 1);
#pragma unroll 2
        for (int i = 0; i < groups; i++)
            put4(a, rows, 8 * i + lane % 4 * 2, n, n_end,
                add(add(from[i * 32], from[i * 32 + part]),
                    add(from[i * 32 + 2 * part], from[i * 32 + 3 * part])), b0, b1);
        __syncwarp();
        if (j + 1 < k.n && lane < PAIR)
            cu_bar_arrive_at(cu_remote(cu_smem(&bar->taken[slab]), lane));
    }
}

/* Initializes the barriers of a split's stages. */
static __device__ __forceinline__ void
ring_init(barriers *bar, int p, int n_stage)
{
    for (int i = 0; i < n_stage; i++) {
        cu_bar_init(cu_smem(&bar->full[p][i]), 1);
        cu_bar_init(cu_smem(&bar->empty[p][i]), 4);
    }
    cu_bar_ready();
}

/* Initializes the barriers of the sums. */
static __device__ __forceinline__ void
sums_init(barriers *bar)
{
    for (int i = 0; i < OWN; i++)
        cu_bar_init(cu_smem(&bar->sent[i]), 1);
    for (int i = 0; i < 4; i++)
        cu_bar_init(cu_smem(&bar->taken[i]), 1);
    cu_bar_ready();
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CLUSTER
#else
#define CLUSTER __cluster_dims__(PAIR, 1, 1)
#endif

template<int TT, int KS>
static __global__ void CLUSTER
__launch_bounds__(shape<TT, KS>::warps * 32, 1)
stream_kernel(const __grid_constant__ CUtensorMap w,
    const __grid_constant__ CUtensorMap x, const __grid_constant__ struct stream_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Z = shape<TT, KS>;
    extern __shared__ __align__(1024) unsigned char shared[];
    barriers *bar = (barriers *)(shared + Z::ring + OWN * PARTS * Z::sums);
    const int rank = cu_cluster_rank(), at = (int)blockIdx.x / PAIR;
    const int step = (int)gridDim.x / PAIR, role = (int)threadIdx.x / 32 - 4 * OWN;
    const struct work k = { at, step, a.each + (at < a.more) };
    const int mine = role >= 0 && role < OWN ? role : 0;
    producer<TT, KS> p(&w, &x, a, k, shared, bar, mine, rank * OWN + mine);
    cu_dep_next();
    /* By the loading thread of each split, so that it can load weights first of all. */
#pragma unroll
    for (int i = 0; i < OWN; i++)
        if (threadIdx.x == 32 * (4 * OWN + i))
            ring_init(bar, i, a.n_stage);
    if (role >= 0 && role < OWN && threadIdx.x % 32 == 0) {
        p.ahead();
    } else if (threadIdx.x == 0) {
        sums_init(bar);
    }
    __syncthreads();
    cu_cluster_arrive();
    cu_cluster_wait();
    cu_dep_wait();
    int rows = max(0, min(a.T, *a.n - a.first));
    if (role < 0)
        consume<TT, KS>(a, k, shared, bar, rank, rows);
    else if (role >= OWN)
        collect<TT, KS>(a, k, shared, bar, role - OWN, rank, rows);
    else if (threadIdx.x % 32 == 0)
        p.rest();
#endif
}

/* ---- launching -------------------------------------------------------------- */

int
stream_map(CUtensorMap *m, const void *p, int rows, int K, int box, int n)
{
    const cuuint64_t dim[3] = { 64, (cuuint64_t)rows, (cuuint64_t)K / 64 };
    const cuuint64_t stride[2] = { (cuuint64_t)K * 2, 128 };
    const cuuint32_t size[3] = { 64, (cuuint32_t)box, (cuuint32_t)n };
    const cuuint32_t one[3] = { 1, 1, 1 };
    if (cu_make_map(encode, m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)p, dim,
        stride, size, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != 0)
        return -ENOTSUP;
    return 0;
}

int
stream_maps(CUtensorMap *w, CUtensorMap *x, const struct fdk_gemm_args *g, int w_rows,
    int x_rows, int n)
{
    const __nv_bfloat16 *from = (const __nv_bfloat16 *)g->x + (size_t)g->first *
        (size_t)g->K;
    int rc = stream_map(w, g->w, g->N, g->K, w_rows, n);
    return rc != 0 ? rc : stream_map(x, from, g->T, g->K, x_rows, n);
}

int
stream_out_map(CUtensorMap *m, void *y, int T, int N, int ldy, int y32, int box, int rows,
    int swizzled)
{
    const size_t bytes = y32 ? 4 : 2;
    const cuuint64_t dim[2] = { (cuuint64_t)N, (cuuint64_t)T };
    const cuuint64_t stride[1] = { (cuuint64_t)ldy * bytes };
    const cuuint32_t size[2] = { (cuuint32_t)box, (cuuint32_t)rows };
    const cuuint32_t one[2] = { 1, 1 };
    if ((uintptr_t)y % 16 != 0 || stride[0] % 16 != 0 || cu_make_map(encode, m, y32 ?
        CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, y, dim,
        stride, size, one, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzled ?
        CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != 0)
        return -ENOTSUP;
    return 0;
}

int
stream_out_map_16(CUtensorMap *m, void *y, int T, int N, int ldy, int wide)
{
    const cuuint64_t dim[3] = { 16, (cuuint64_t)T, (cuuint64_t)N / 16 };
    const cuuint64_t stride[2] = { (cuuint64_t)ldy * 2, 32 };
    const cuuint32_t size[3] = { 16, 16, (cuuint32_t)wide / 16 };
    const cuuint32_t one[3] = { 1, 1, 1 };
    if (N % 16 != 0 || (uintptr_t)y % 16 != 0 || stride[0] % 16 != 0 ||
        cu_make_map(encode, m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, y, dim, stride, size,
        one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != 0)
        return -ENOTSUP;
    return 0;
}

/* Chooses the rows of w in a tile: minimizes the rows of the CTA pair with the most work;
 * an additional tile costs about as much as a row. */
static int
tile_height(int N, int n_pair)
{
    int best = 64, cost = INT32_MAX;
    for (int h = 64; h >= 8; h -= 8) {
        int rounds = ((N - 1) / h + n_pair) / n_pair;
        if (rounds * (h + 1) < cost) {
            cost = rounds * (h + 1);
            best = h;
        }
    }
    return best;
}

template<int TT, int KS>
static int
launch(const struct fdk_gemm_args *g, int n_proc, cudaStream_t s)
{
    using Z = shape<TT, KS>;
    const int h = tile_height(g->N, cu_slots(n_proc, PAIR)), n_tile = (g->N - 1) / h + 1;
    /* TMA is slow at filling rows that do not exist, so they are not loaded. */
    const int x_rows = (g->T + 7) / 8 * 8, x_bytes = KS * x_rows * 128;
    const int stage = KS * h * 128 + x_bytes;
    /* The tensor cores read 64 rows of w and TT rows of x. The last ones may hold
     * anything, but must be within the ring. */
    const int low = (64 - h) * 128 - x_bytes, few = (TT - x_rows) * 128;
    const int behind = low > few ? low : few;
    const int n_stage = (Z::ring - (behind > 0 ? behind : 0)) / OWN / stage;
    const int early = EARLY / (OWN * KS * h * 128);
    const dim3 grid = cu_groups(n_tile, PAIR, n_proc);
    const int n_pair = (int)grid.x / PAIR;
    const struct stream_args a = { g->y, g->bias, g->n, g->first, g->T, g->N, g->K,
        g->ldy, g->y_dtype == FDK_F32, h, x_bytes, n_tile / n_pair,
        n_tile % n_pair, n_stage < MOST_STAGES ? n_stage : MOST_STAGES,
        early < 1 ? 1 : early < n_stage ? early : n_stage };
    CUtensorMap w, x;
    int rc = stream_maps(&w, &x, g, h, x_rows, KS);
    if (rc == 0)
        cu_chain(stream_kernel<TT, KS>, grid, Z::warps * 32, Z::ring + Z::fixed, s, w, x,
            a);
    return rc;
}

template<int TT, int KS>
static cudaError_t
prepare(void)
{
    return cudaFuncSetAttribute((const void *)stream_kernel<TT, KS>,
        cudaFuncAttributeMaxDynamicSharedMemorySize,
        shape<TT, KS>::ring + shape<TT, KS>::fixed);
}

int
cu_gemm_stream_fits(const struct fdk_gemm_args *a)
{
    return encode != NULL && a->w_dtype == FDK_BF16 && a->act == FDK_BF16 &&
        a->w_layout == FDK_LAYOUT_ROWS && a->K % 64 == 0 && (uintptr_t)a->w % 16 == 0 && (uintptr_t)a->x % 16 == 0 &&
        (a->y_dtype == FDK_BF16 || a->y_dtype == FDK_F32);
}

int
cu_gemm_stream_mid_least(const struct fdk_gemm_args *a)
{
    return a->N >= MID_N ? MID_FROM + 1 : MOST_ROWS + 1;
}

int
cu_gemm_stream_mid_fits(const struct fdk_gemm_args *a)
{
    return cu_gemm_stream_fits(a) && a->T >= cu_gemm_stream_mid_least(a);
}

int
cu_gemm_stream(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st)
{
    cudaStream_t s = cu_raw(st);
    if (a->T > MOST_ROWS)
        return 1;
    int rc = a->T <= 8 ? launch<8, 2>(a, n_proc, s) :
        a->T <= 16 ? launch<16, 2>(a, n_proc, s) :
        a->T <= 32 ? launch<32, 2>(a, n_proc, s) : launch<64, 1>(a, n_proc, s);
    return rc != 0 ? rc : cu_launched(st, "gemm");
}

cudaError_t
cu_gemm_stream_load(void)
{
    cudaError_t (*const each[])(void) = { prepare<8, 2>, prepare<16, 2>, prepare<32, 2>,
        prepare<64, 1> };
    cudaError_t e = cu_find_encode(&encode);
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]) && e == cudaSuccess; i++)
        e = each[i]();
    if (e == cudaSuccess)
        e = cu_gemm_stream_mid_load();
    if (e == cudaSuccess)
        e = cu_gemm_silu_load();
    return e == cudaSuccess ? cu_gemm_stream_wide_load() : e;
}
