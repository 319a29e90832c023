/*
 * Products of one row, for mega_kernel.cu. A row group is 16 rows of w, the A operand of
 * the tensor cores; x is B (mega_x.cuh). A block has whole row groups. A chunk is 16 rows
 * by 128 bytes of w; a stage of the ring is two chunks for each warp, side by side along
 * K, and one copy of the copy engine. Sums of ROUND row groups wait in shared memory, one
 * per warp and row, until they are added in the warps' order.
 *
 * One thread does nothing but ask for stages, of all products one after the other: how far
 * it is ahead depends on the ring alone.
 */
#ifndef FDD_KERNELS_CUDA_MEGA_GEMM_CUH
#define FDD_KERNELS_CUDA_MEGA_GEMM_CUH

#include "kernels/cuda/mega_x.cuh"

#define DEPTH      5             /* stages of the ring */
#define FLIGHT     2             /* of them on their way at once */
#define CHUNK      2048          /* bytes: 128 of 16 rows of w */
#define STAGE      (MEGA_CHUNKS * CHUNK)
#define SCALES     (16 * 2 * MEGA_CHUNKS) /* of a stage, at most: [row][128 elements] */
#define ROUND      8             /* row groups between two barriers of the block: even */
#define PUT        (16 * ROUND)  /* threads that add their sums */
#define SUMS       (MEGA_WARPS * 16 + 16) /* floats of a row group; 16 are for the banks */

struct __align__(1024) mega_ring {
    unsigned char w[DEPTH][STAGE];
    float scale[DEPTH][SCALES];
    uint64_t full[DEPTH], empty[DEPTH];
    int2 what[DEPTH];            /* row group of a stage; whether the product has another */
    __align__(16) unsigned char zero[64];
};

/* ---- the ring ---------------------------------------------------------------- */

static __device__ __forceinline__ void
ring_start(struct mega_ring *r)
{
    for (int i = 0; i < (int)sizeof(r->zero); i++)
        r->zero[i] = 0;
    for (int i = 0; i < DEPTH; i++) {
        cu_bar_init(cu_smem(&r->full[i]), 1);
        cu_bar_init(cu_smem(&r->empty[i]), MEGA_WARPS);
    }
    cu_bar_ready();
}

/* A place in the ring: of the thread that asks, or of a warp that takes. */
struct ring_at {
    int slot, parity;

    __device__ __forceinline__ void
    next(void)
    {
        if (++slot == DEPTH) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* 128 elements of a stage: each has scales of its own. */
static __host__ __device__ constexpr int
stage_units(int type)
{
    return MEGA_CHUNKS * mega_chunk(type) / 128;
}

/* Row group `group` from chunk c on: a stage of w, and its scales. */
template<int W>
static __device__ __forceinline__ void
ring_copy(struct mega_ring *r, int slot, const struct mega_matrix &m, int scaled, int group,
    int c, uint64_t policy)
{
    const uint32_t bar = cu_smem(&r->full[slot]);
    cu_bar_expect(bar, STAGE + (scaled ? 16 * stage_units(W) * 4 : 0));
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global"
        ".mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;"
        :: "r"(cu_smem(r->w[slot])), "l"(m.map), "r"(0), "r"(group * 16), "r"(c),
        "r"(bar), "l"(policy) : "memory");
    if (scaled)
        quant_box2(cu_smem(r->scale[slot]), (const CUtensorMap *)m.scale_map,
            c * mega_chunk(W) / 128, group * 16, bar);
}

/* What the thread that asks knows: where it is, and the stage FLIGHT before. */
struct ring_ask {
    struct ring_at at, landed;
    int asked;
    uint64_t policy;

    /* The next slot is free, and no more than FLIGHT stages are on their way: what is
     * asked for early must not keep memory from what others wait for. */
    __device__ __forceinline__ void
    wait(struct mega_ring *r)
    {
        cu_bar_wait(cu_smem(&r->empty[at.slot]), at.parity);
        if (++asked > FLIGHT) {
            cu_bar_wait(cu_smem(&r->full[landed.slot]), landed.parity);
            landed.next();
        }
    }

    template<int W>
    __device__ __forceinline__ void
    group(struct mega_ring *r, const struct mega_matrix &m, int scaled, int group,
        int chunks, int more)
    {
#pragma unroll 1
        for (int c = 0; c < chunks; c += MEGA_CHUNKS) {
            wait(r);
            r->what[at.slot] = make_int2(group, more);
            ring_copy<W>(r, at.slot, m, scaled, group, c, policy);
            at.next();
        }
    }
};

/*
 * Row groups of a product, the same number for each block. Of gate and up, pairs of them,
 * the same rows of both; there are many, and processors are not served alike by memory:
 * they are dealt out as blocks come for them, after each has had its first two. The next
 * one is claimed while one is asked for; whoever claims last puts the counter back.
 */
template<int W>
static __device__ __forceinline__ void
feed_product(struct ring_ask &ask, struct mega_ring *r, const struct mega_matrix &m,
    const struct mega_shape &s, uint32_t *claimed)
{
    const int pairs = claimed != NULL, n = s.N / (pairs ? 32 : 16);
    int now = (int)blockIdx.x, next = now + (int)gridDim.x;
#pragma unroll 1
    while (now < n) {
        const uint32_t claim = pairs ? atomicAdd(claimed, 1u) : 0;
#pragma unroll 1
        for (int h = 0; h <= pairs; h++)
            ask.group<W>(r, m, s.scaled, now + h * n, s.K / mega_chunk(W),
                h < pairs || next < n);
        if (pairs && claim == (uint32_t)n - 1)
            *claimed = 0;
        now = next;
        next = pairs ? (int)claim + 2 * (int)gridDim.x : next + (int)gridDim.x;
    }
}

/* One thread: everything there is to ask for. */
template<int W>
static __device__ __forceinline__ void
ring_feed(const struct mega_list &l, struct mega_ring *r)
{
    struct ring_ask ask = { { 0, 1 }, { 0, 0 }, 0, 0 };
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(ask.policy));
#pragma unroll 1
    for (int i = 0; i < l.n * MEGA_PRODUCTS; i++) {
        const int p = i % MEGA_PRODUCTS, layer = i / MEGA_PRODUCTS;
        feed_product<W>(ask, r, l.layer[layer].m[p], l.shape[p], p == MEGA_GU ?
            &l.state->claimed[layer] : NULL);
    }
}

/* ---- a chunk ------------------------------------------------------------------------ */

static __device__ __forceinline__ void
mma_s8(int c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
    uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* e4m3 to bf16, as the value times 2^-120: x is taken 2^60 times as large, and the rest is
 * for the sums. Pairs are those of quant_pair(). */
static __device__ __forceinline__ uint32_t
e4m3_pair(const uint32_t *v, int i)
{
    uint32_t w = i % 2 == 0 ? v[i / 2] << 8 : v[i / 2];
    return (w & 0x80008000u) | ((w >> 4) & 0x07f007f0u);
}

/* Of int4, times 16: elements 0 2 4 6, or 1 3 5 7, of a word. */
static __device__ __forceinline__ uint32_t
int4_even(uint32_t w)
{
    return (w << 4) & 0xf0f0f0f0u;
}

static __device__ __forceinline__ uint32_t
int4_odd(uint32_t w)
{
    return w & 0xf0f0f0f0u;
}

/* Registers of x that go with 32 bytes of a row of w. */
static __host__ __device__ constexpr int
x_registers(int type)
{
    return type == FDK_I4 || type == FDK_F8E4M3 ? 16 : 8;
}

/*
 * What a lane of a warp has to do with a product: g is its row of w, and of x the column; t
 * its part of a chunk, and of the result its two columns.
 *
 * Columns of int8 are digits, the last one repeated. A chunk of int4 is twice 128 elements
 * with scales of their own, lanes t = 0, 1 and t = 2, 3: digits of the first are columns 0
 * to 2, those of the second 4 to 6, and zero is what a column has of the other's elements.
 */
struct gemm_lane {
    uint32_t w;                  /* row g of this warp's first chunk in stage 0 */
    uint32_t x;
    const float *unit;           /* x_units() */
    int step;                    /* bytes of x from chunk to chunk; 0: x is zero */
    int second;                  /* what its second column is multiplied with */
    float column;                /* and then the sum */
    int g, t;
};

template<int W>
static __device__ __forceinline__ struct gemm_lane
lane_of(const struct mega_ring *r, const unsigned char *x, int K)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    struct gemm_lane ln;
    ln.g = lane / 4;
    ln.t = lane % 4;
    ln.w = cu_smem(r->w) + (uint32_t)(warp * CHUNK + ln.g * 128);
    ln.unit = (const float *)(x + DIGITS * (K + 16));
    ln.step = 32 * x_registers(W) / 2;
    ln.x = cu_smem(x) + (uint32_t)(ln.t * 4 * x_registers(W));
    ln.second = 0;
    ln.column = W == FDK_F8E4M3 ? 0x1p60f : 1;
    if (integers(W)) {
        const int half = W == FDK_I4 ? ln.t % 2 : ln.t;
        const int digit = W == FDK_I4 ? ln.g % 4 : min(ln.g, DIGITS - 1);
        ln.x += (uint32_t)(digit * (K + 16));
        ln.second = half == 0 ? 256 : 0;
        ln.column = half == 0 ? 1 : half == 1 ? 65536 : 0;
        if (W == FDK_I4)
            ln.column *= 1 / 16.0f;
        if (W == FDK_I4 && (digit == DIGITS || ln.g / 4 != ln.t / 2)) {
            ln.x = cu_smem(r->zero);
            ln.step = 0;
        }
    }
    return ln;
}

/* A lane's part of a chunk: 16 bytes of rows g and g + 8 of w, twice, what they are
 * multiplied with, and what scales the products. */
template<int W>
struct gemm_chunk {
    uint32_t w0[2][4], w1[2][4], x[x_registers(W)];
    float scale[2], unit;
};

/* Rows of w are swizzled as the copy engine does, and rows of scales of 128 bytes. at: the
 * chunk in the ring, from row g on; c: its place in x; of_stage: in its stage. */
template<int W>
static __device__ __forceinline__ void
chunk_load(struct gemm_chunk<W> &k, const struct gemm_lane &ln, uint32_t at,
    const float *scale, int c, int of_stage, int scaled)
{
    const uint32_t x = ln.x + (uint32_t)(c * ln.step);
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const uint32_t piece = (uint32_t)(((2 * ln.t + u) ^ ln.g) * 16);
        quant_take<16>(k.w0[u], at + piece);
        quant_take<16>(k.w1[u], at + piece + 1024);
    }
#pragma unroll
    for (int i = 0; i < x_registers(W); i += 4)
        quant_take<16>(k.x + i, x + (uint32_t)(4 * i));
    int n = of_stage;
    if (W == FDK_I4) {
        n = 2 * n + ln.t / 2;
        n = ((n / 4) ^ ln.g) * 4 + n % 4;
    }
    k.scale[0] = scaled ? scale[ln.g * stage_units(W) + n] : 1;
    k.scale[1] = scaled ? scale[(ln.g + 8) * stage_units(W) + n] : 1;
    if (integers(W))
        k.unit = ln.unit[W == FDK_I4 ? 2 * c + ln.t / 2 : c];
}

/* acc += the chunk's products. */
template<int W>
static __device__ __forceinline__ void
chunk_add(float acc[2], const struct gemm_chunk<W> &k, const struct gemm_lane &ln)
{
    if constexpr (integers(W)) {
        int s[2][4] = {};
#pragma unroll
        for (int i = 0; i < (W == FDK_I4 ? 8 : 4); i++) {
            if constexpr (W == FDK_I4) {
                const uint32_t w0 = k.w0[i / 4][i % 4], w1 = k.w1[i / 4][i % 4];
                mma_s8(s[i % 2], int4_even(w0), int4_even(w1), int4_odd(w0), int4_odd(w1),
                    k.x[2 * i], k.x[2 * i + 1]);
            } else {
                const uint32_t *w0 = k.w0[i / 2] + i % 2 * 2, *w1 = k.w1[i / 2] + i % 2 * 2;
                mma_s8(s[i % 2], w0[0], w1[0], w0[1], w1[1], k.x[2 * i], k.x[2 * i + 1]);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int v = s[0][2 * h] + s[1][2 * h] + (s[0][2 * h + 1] + s[1][2 * h + 1]) *
                ln.second;
            acc[h] = fmaf((float)v, k.unit * k.scale[h], acc[h]);
        }
    } else {
        float s[2][4] = {};
#pragma unroll
        for (int i = 0; i < (W == FDK_BF16 ? 4 : 8); i++) {
            uint32_t a[4];
            if constexpr (W == FDK_F8E4M3) {
                const uint32_t *w0 = k.w0[i / 4], *w1 = k.w1[i / 4];
                const int j = 2 * (i % 4);
                a[0] = e4m3_pair(w0, j);
                a[1] = e4m3_pair(w1, j);
                a[2] = e4m3_pair(w0, j + 1);
                a[3] = e4m3_pair(w1, j + 1);
            } else {
                const int u = i / 2, j = 2 * (i % 2);
                a[0] = k.w0[u][j];
                a[1] = k.w1[u][j];
                a[2] = k.w0[u][j + 1];
                a[3] = k.w1[u][j + 1];
            }
            quant_mma(s[i % 2], a[0], a[1], a[2], a[3], k.x[2 * i], k.x[2 * i + 1]);
        }
        acc[0] = fmaf(k.scale[0], s[0][0] + s[1][0], acc[0]);
        acc[1] = fmaf(k.scale[1], s[0][2] + s[1][2], acc[1]);
    }
}

/* ---- a product ------------------------------------------------------------------------ */

/* This warp is done with the stage. */
static __device__ __forceinline__ void
ring_leave(struct mega_ring *r, struct ring_at &at)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        cu_bar_arrive(cu_smem(&r->empty[at.slot]));
    at.next();
}

/* One stage, which is there: acc += this warp's two chunks of it. */
template<int W>
static __device__ __forceinline__ void
stage_add(float acc[2], const struct gemm_lane &ln, const struct mega_ring *r, int slot,
    int c, int scaled, int chunks)
{
    const uint32_t at = ln.w + (uint32_t)slot * STAGE;
    const int warp = (int)threadIdx.x / 32;
    struct gemm_chunk<W> k[2];
    if (c >= chunks)
        return;
    chunk_load<W>(k[0], ln, at, r->scale[slot], c, warp, scaled);
    if (c + MEGA_WARPS < chunks) {
        chunk_load<W>(k[1], ln, at + MEGA_WARPS * CHUNK, r->scale[slot], c + MEGA_WARPS,
            warp + MEGA_WARPS, scaled);
        chunk_add<W>(acc, k[0], ln);
        chunk_add<W>(acc, k[1], ln);
    } else {
        chunk_add<W>(acc, k[0], ln);
    }
}

/* One row group, whose first stage is there: this warp's sums of 16 rows, to sums. */
template<int W>
static __device__ __forceinline__ void
group_sums(float *sums, const struct gemm_lane &ln, struct mega_ring *r, struct ring_at &at,
    int scaled, int chunks)
{
    const int warp = (int)threadIdx.x / 32;
    float acc[2] = {};
    for (int c = warp;;) {
        stage_add<W>(acc, ln, r, at.slot, c, scaled, chunks);
        ring_leave(r, at);
        c += MEGA_CHUNKS;
        if (c >= chunks + warp)
            break;
        cu_bar_wait(cu_smem(&r->full[at.slot]), at.parity);
    }
    acc[0] *= ln.column;
    acc[1] *= ln.column;
#pragma unroll
    for (int k = W == FDK_I4 ? 2 : integers(W); k > 0; k /= 2) { /* lanes have digits */
        acc[0] += __shfl_down_sync(0xffffffffu, acc[0], k);
        acc[1] += __shfl_down_sync(0xffffffffu, acc[1], k);
    }
    if (ln.t == 0) {
        sums[warp * 16 + ln.g] = acc[0];
        sums[warp * 16 + ln.g + 8] = acc[1];
    }
}

static __device__ __forceinline__ uint32_t
pair16(float lo, float hi)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *(uint32_t *)&v;
}

static __device__ __forceinline__ float
round16(float v)
{
    return __bfloat162float(__float2bfloat16_rn(v));
}

/* Where a product's results go. */
struct gemm_to {
    struct words words;
    int at;
    void *y;                     /* NULL: words */
};

static __device__ __forceinline__ void
result_put(const struct gemm_to &to, int n, uint32_t pair)
{
    if (to.y != NULL)
        ((uint32_t *)to.y)[n / 2] = pair;
    else
        word_put(to.words, to.at + word_of_pair(n / 2), pair);
}

/* The warps' sums of a round made results, by PUT threads: thread i has row i % 16 of row
 * group i / 16, which is row n of w; those of pairs a row of gate with its row of up 16
 * lanes behind. */
static __device__ __forceinline__ void
round_put(const float *sums, int i, int pairs, int n_group, int n, float scale, float bias,
    const struct gemm_to &to)
{
    float v[MEGA_WARPS];
#pragma unroll
    for (int k = 0; k < MEGA_WARPS; k++)
        v[k] = sums[i / 16 * SUMS + k * 16 + i % 16];
#pragma unroll
    for (int k = 1; k < MEGA_WARPS; k++)
        v[0] += v[k];
    float y = v[0] * scale + bias;
    if (pairs) {
        float up = round16(__shfl_down_sync(0xffffffffu, y, 16)), gate = round16(y);
        y = __fdividef(gate, 1.0f + __expf(-gate)) * up;
    }
    float other = __shfl_down_sync(0xffffffffu, y, 1);
    if (i / 16 < n_group && i % 2 == 0 && (!pairs || i / 16 % 2 == 0))
        result_put(to, n, pair16(y, other));
}

/* An argument of the kernel that is read at an index is read anew wherever it is used, and
 * that takes hundreds of clocks. */
static __device__ __forceinline__ int
in_register(int v)
{
    asm volatile("mov.b32 %0, %0;" : "+r"(v));
    return v;
}

/* turn: which half of sums is next, and which threads are to make results of them. */
template<int W>
static __device__ __forceinline__ void
mega_run_product(const struct mega_matrix &m, const struct mega_shape &shape, int pairs,
    struct mega_ring *r, struct ring_at &at, const unsigned char *x,
    float (*sums)[ROUND * SUMS], int &turn, const struct gemm_to &to)
{
    const struct mega_shape s = { shape.N, in_register(shape.K),
        in_register(shape.scaled) };
    const struct gemm_lane ln = lane_of<W>(r, x, s.K);
    const int chunks = in_register(s.K / mega_chunk(W));
    int more = (int)blockIdx.x < s.N / (pairs ? 32 : 16);
#pragma unroll 1
    while (more) {
        const int mine = (int)threadIdx.x - turn * (MEGA_THREADS - PUT);
        int n = 0, i = 0;
        float scale = 1, bias = 0;
#pragma unroll 1
        do {
            cu_bar_wait(cu_smem(&r->full[at.slot]), at.parity);
            const int2 what = r->what[at.slot];
            if (mine >> 4 == i) {
                n = what.x * 16 + mine % 16;
                scale = m.scale != NULL ? __ldg(m.scale + n) : 1;
                bias = m.bias != NULL ? __ldg(m.bias + n) : 0;
            }
            group_sums<W>(sums[turn] + i * SUMS, ln, r, at, s.scaled, chunks);
            more = what.y;
        } while (++i < ROUND && more);
        mega_sync();
        if (mine >= 0 && mine < PUT)
            round_put(sums[turn], mine, pairs, i, n, scale, bias, to);
        turn ^= 1;
    }
}

#endif
