/*
 * Products with 8-bit weights, for mega_kernel.cu. A row group is 16 rows of w, the A
 * operand of mma.m16n8k16; MEGA_ROWS rows of x are B. A block has whole row groups. A chunk is 16
 * rows by 128 bytes of w; a stage of the ring is one chunk for each warp, side by side
 * along K, and one copy of the copy engine. The warps' sums are added in their order.
 *
 * One warp does nothing but ask for stages, of all products of the list one after the
 * other: how far it is ahead depends on the ring alone.
 */
#ifndef FDD_KERNELS_CUDA_MEGA_GEMM_CUH
#define FDD_KERNELS_CUDA_MEGA_GEMM_CUH

#include "kernels/cuda/gemm_quant.cuh"
#include "kernels/cuda/mega.cuh"

#define DEPTH      6             /* stages of the ring */
#define FLIGHT     2             /* of them on their way at once */
#define MANY       6             /* row groups a block: they are dealt out */
#define CHUNK      2048          /* bytes: 128 elements of 16 rows of w */
#define HALF       8             /* registers of x for half a chunk */
#define STAGE      (MEGA_WARPS * CHUNK)
#define SCALES     (16 * MEGA_WARPS) /* of a stage: [row][chunk] */
#define SUMS       (MEGA_WARPS * 16 * MEGA_ROWS) /* floats of a row group */
#define SUMS_BYTES (2 * SUMS * 4)
#define KEEP       2             /* stages whose x stays in registers over all row groups */

struct __align__(1024) mega_ring {
    unsigned char w[DEPTH][STAGE];
    float scale[DEPTH][SCALES];
    uint64_t full[DEPTH], empty[DEPTH];
    int group[DEPTH];            /* row group of a stage, -1: this product has no more */
    int at[MEGA_WARPS][2];       /* ring_at of each warp, between products */
};

/* Of the warps that compute. */
static __device__ __forceinline__ void
mega_sync(void)
{
    asm volatile("bar.sync 1, %0;" :: "n"(MEGA_THREADS) : "memory");
}

/* ---- the ring ---------------------------------------------------------------- */

static __device__ __forceinline__ void
ring_start(struct mega_ring *r)
{
    for (int i = 0; i < MEGA_WARPS; i++)
        r->at[i][0] = r->at[i][1] = 0;
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

/* Row group `group` from chunk c on: a stage of w, and its scales. */
static __device__ __forceinline__ void
ring_copy(struct mega_ring *r, int slot, const struct mega_gemm &a, int group, int c,
    uint64_t policy)
{
    const uint32_t bar = cu_smem(&r->full[slot]);
    const int scaled = a.shift >= 0;
    r->group[slot] = group;
    cu_bar_expect(bar, STAGE + scaled * SCALES * 4);
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global"
        ".mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;"
        :: "r"(cu_smem(r->w[slot])), "l"(a.w), "r"(0), "r"(group * 16), "r"(c),
        "r"(bar), "l"(policy) : "memory");
    if (scaled)
        quant_box2(cu_smem(r->scale[slot]), (const CUtensorMap *)a.scale_map, c, group * 16,
            bar);
}

/* What the thread that asks knows: where it is, and the stage FLIGHT before. */
struct ring_ask {
    struct ring_at at, landed;
    int asked;

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

    /* Of a product. */
    __device__ __forceinline__ void
    end(struct mega_ring *r)
    {
        wait(r);
        r->group[at.slot] = -1;
        cu_bar_arrive(cu_smem(&r->full[at.slot]));
        at.next();
    }
};

/* Row groups of a product that has many are dealt out as blocks come for them, after each
 * has had its first, as processors are not served alike by memory. Of few, whoever comes
 * early would claim more than its share. Each block is told once that there are no more;
 * the last one puts the counter back. claim: what the counter was. */
static __device__ __forceinline__ int
ring_claimed(uint32_t *claimed, uint32_t claim, int groups)
{
    const uint32_t c = claim + gridDim.x;
    if (c == (uint32_t)groups + gridDim.x - 1)
        *claimed = 0;
    return (int)min(c, (uint32_t)groups);
}

/* One thread: everything there is to ask for. The next row group is claimed while this
 * one's stages are asked for. */
static __device__ void
ring_feed(const struct mega_list &l, struct mega_ring *r)
{
    struct ring_ask ask = { { 0, 1 }, { 0, 0 }, 0 };
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    for (int op = l.first; op >= 0; op = l.op[op].next) {
        const struct mega_gemm a = l.op[op].gemm;
        const int n = a.K / 128, groups = a.N / 16;
        const bool many = groups >= MANY * (int)gridDim.x;
        uint32_t *claimed = &l.state->claimed[op];
        for (int g = (int)blockIdx.x; g < groups;) {
            uint32_t claim = many ? atomicAdd(claimed, 1u) : 0;
            for (int c = 0; c < n; c += MEGA_WARPS) {
                ask.wait(r);
                ring_copy(r, ask.at.slot, a, g, c, policy);
                ask.at.next();
            }
            g = many ? ring_claimed(claimed, claim, groups) : g + (int)gridDim.x;
        }
        ask.end(r);
    }
}

/* The row group that comes next; the stage is there when it is known. */
static __device__ __forceinline__ int
ring_group(struct mega_ring *r, const struct ring_at &at)
{
    cu_bar_wait(cu_smem(&r->full[at.slot]), at.parity);
    return r->group[at.slot];
}

/* This warp is done with the stage. */
static __device__ __forceinline__ void
ring_leave(struct mega_ring *r, struct ring_at &at)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        cu_bar_arrive(cu_smem(&r->empty[at.slot]));
    at.next();
}

/* ---- stored weights to pairs of bf16 ----------------------------------------------- */

/* As quant_pair(), but e4m3 stays the value times 2^-120: x is taken 2^60 times as large,
 * and the rest is for the sums. */
template<int W>
static __device__ __forceinline__ uint32_t
weight_pair(const uint32_t *v, int i)
{
    if constexpr (W == FDK_I8) {
        return quant_pair<W>(v, i, 0x43004300u);  /* quant_ones() */
    } else {
        uint32_t w = i % 2 == 0 ? v[i / 2] << 8 : v[i / 2];
        return (w & 0x80008000u) | ((w >> 4) & 0x07f007f0u);
    }
}

/* Eight elements of x, in their order, to the pairs of eight weights. */
template<int W>
static __device__ __forceinline__ void
order_x(uint32_t b[4], uint4 x)
{
    quant_order<W>(b, x);
    if constexpr (W == FDK_F8E4M3)
#pragma unroll
        for (int i = 0; i < 4; i++)
            b[i] = quant_mul2(b[i], 0x5d805d80u);    /* 2^60 */
}

/* What sums are to be multiplied with. */
template<int W>
static __device__ __forceinline__ float
sum_unit(void)
{
    return W == FDK_F8E4M3 ? 0x1p60f : 1;
}

/* What a lane of a warp has to do with a product. */
struct gemm_lane {
    const uint16_t *x;           /* row g of x, at the warp's first chunk and this lane */
    uint32_t w;                  /* its place in a stage */
    int live;                    /* row g of x is */
    int leader;                  /* lane 0 */
};

/* A lane's part of a chunk of x, n chunks after the warp's first; rows that are not live
 * become zeros. Lane t has what goes with 32 bytes at 32 t of each row of w, 16 of them in
 * each half, so that rows g and g + 1 meet different banks. */
template<int W>
static __device__ __forceinline__ void
take_x(uint32_t *b, const struct gemm_lane &ln, int n)
{
    const uint4 *x = (const uint4 *)(ln.x + n * 128);
#pragma unroll
    for (int i = 0; i < 4; i++)
        order_x<W>(b + 4 * i, ln.live ? x[i] : make_uint4(0, 0, 0, 0));
}

static __device__ __forceinline__ struct gemm_lane
lane_of(const struct mega_gemm &a, const struct mega_ring *r, int rows)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int g = lane / 4, t = lane % 4;
    struct gemm_lane ln;
    ln.live = g < rows;
    ln.leader = lane == 0;
    ln.x = (const uint16_t *)a.x + (size_t)g * (size_t)a.K + warp * 128 + 32 * t;
    ln.w = cu_smem(r->w) + (uint32_t)(warp * CHUNK + g * 128 + ((2 * t ^ g) * 16));
    return ln;
}

/* ---- products ---------------------------------------------------------------- */

/* Sums of a row group. Without scales of chunks they gather in c alone. */
struct gemm_sums {
    float acc[4], c[2][4];
};

/* c += half u of the chunk at `at` times b. Rows are swizzled as the copy engine does. */
template<int W>
static __device__ __forceinline__ void
half_products(float c[2][4], uint32_t at, int u, const uint32_t *b)
{
    uint32_t w0[4], w1[4];
    quant_take<16>(w0, at ^ (16 * u));
    quant_take<16>(w1, (at ^ (16 * u)) + 1024);
#pragma unroll
    for (int i = 0; i < HALF / 2; i++)
        quant_mma(c[i % 2], weight_pair<W>(w0, 2 * i), weight_pair<W>(w1, 2 * i),
            weight_pair<W>(w0, 2 * i + 1), weight_pair<W>(w1, 2 * i + 1), b[2 * i],
            b[2 * i + 1]);
}

/* scale: of row g in this chunk. */
static __device__ __forceinline__ void
scaled_sums(struct gemm_sums &s, const float *scale)
{
    float s0 = scale[0], s1 = scale[8 * MEGA_WARPS];
    s.acc[0] = fmaf(s0, s.c[0][0] + s.c[1][0], s.acc[0]);
    s.acc[1] = fmaf(s0, s.c[0][1] + s.c[1][1], s.acc[1]);
    s.acc[2] = fmaf(s1, s.c[0][2] + s.c[1][2], s.acc[2]);
    s.acc[3] = fmaf(s1, s.c[0][3] + s.c[1][3], s.acc[3]);
#pragma unroll
    for (int i = 0; i < 8; i++)
        s.c[i / 4][i % 4] = 0;
}

/* This warp's chunk of the stage that is next. b: x of it. Beyond the end of a row
 * weights are 0. mma is of the whole warp: after it all lanes have read the stage. */
template<int W>
static __device__ __forceinline__ void
take_chunk(struct gemm_sums &s, struct mega_ring *r, struct ring_at &at,
    const struct gemm_lane &ln, int scaled, const uint32_t *b)
{
    const uint32_t w = ln.w + (uint32_t)at.slot * STAGE;
    cu_bar_wait(cu_smem(&r->full[at.slot]), at.parity);
#pragma unroll
    for (int u = 0; u < 2; u++)
        half_products<W>(s.c, w, u, b + u * HALF);
    if (scaled)
        scaled_sums(s, r->scale[at.slot] + threadIdx.x % 32 / 4 * MEGA_WARPS +
            threadIdx.x / 32);
    if (ln.leader)
        cu_bar_arrive(cu_smem(&r->empty[at.slot]));
    at.next();
}

/* ---- a row group's end --------------------------------------------------------- */

/* sums: [warp][row of w][row of x]. */
static __device__ __forceinline__ void
put_sums(float *sums, const struct gemm_sums &s, float unit)
{
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = (s.acc[i] + (s.c[0][i] + s.c[1][i])) * unit;
    float2 *at = (float2 *)(sums + threadIdx.x / 32 * 16 * MEGA_ROWS) + threadIdx.x % 32;
    at[0] = make_float2(v[0], v[1]);
    at[32] = make_float2(v[2], v[3]);
}

/* An output of a row group: four warps have one each thread, another four each time. */
struct gemm_out {
    int i;                       /* row of w * MEGA_ROWS + row of x */
    int live;
    float scale, bias;           /* asked for early, as they come from far */
};

static __device__ __forceinline__ struct gemm_out
out_of(const struct mega_gemm &a, int group, int turn, int rows)
{
    struct gemm_out o = { ((int)threadIdx.x - turn * 128) & (MEGA_THREADS - 1), 0, 1, 0 };
    int n = group * 16 + o.i / MEGA_ROWS;
    o.live = o.i < 16 * MEGA_ROWS && o.i % MEGA_ROWS < rows;
    if (o.live && a.shift < 0)
        o.scale = __ldg(a.scale + n);
    if (o.live && a.bias != NULL)
        o.bias = __ldg(a.bias + n);
    return o;
}

static __device__ __forceinline__ void
put_y(const struct mega_gemm &a, const float *sums, int group, const struct gemm_out &o)
{
    if (!o.live)
        return;
    float y = 0;
#pragma unroll
    for (int k = 0; k < MEGA_WARPS; k++)
        y += sums[k * 16 * MEGA_ROWS + o.i];
    y = y * o.scale + o.bias;
    size_t at = (size_t)(o.i % MEGA_ROWS) * (size_t)a.ldy + (size_t)(group * 16 + o.i /
        MEGA_ROWS);
    if (a.y32)
        ((float *)a.y)[at] = y;
    else
        ((__nv_bfloat16 *)a.y)[at] = __float2bfloat16_rn(y);
}

/* x in registers for all row groups: no more than KEEP stages. */
template<int W>
static __device__ __forceinline__ void
sum_kept(struct gemm_sums &s, struct mega_ring *r, struct ring_at &at,
    const struct gemm_lane &ln, int scaled, int stages, const uint32_t b[KEEP][2 * HALF])
{
#pragma unroll
    for (int k = 0; k < KEEP; k++)
        if (k < stages)
            take_chunk<W>(s, r, at, ln, scaled, b[k]);
}

/* x anew for each row group, KEEP stages ahead. last: the warp's last chunk
 * that is there. */
template<int W>
static __device__ __forceinline__ void
sum_anew(struct gemm_sums &s, struct mega_ring *r, struct ring_at &at,
    const struct gemm_lane &ln, int scaled, int stages, int last)
{
    uint32_t b[KEEP][2 * HALF];
#pragma unroll
    for (int k = 0; k < KEEP; k++)
        take_x<W>(b[k], ln, min(k * MEGA_WARPS, last));
    for (int c = 0; c < stages; c += KEEP)
#pragma unroll
        for (int k = 0; k < KEEP; k++)
            if (c + k < stages) {
                take_chunk<W>(s, r, at, ln, scaled, b[k]);
                take_x<W>(b[k], ln, min((c + k + KEEP) * MEGA_WARPS, last));
            }
}

/* What else is asked for once x is: keys and values of attention that comes soon. */
struct gemm_also {
    const struct mega_list *l;
    const struct att_deal *deal;
    int kv_layer;                /* -1: nothing */
};
static __device__ __forceinline__ void att_prefetch(const struct gemm_also &also);

template<int W, int KEPT>
static __device__ __forceinline__ void
gemm_groups(const struct mega_gemm &a, struct mega_ring *r, float *sums, int rows,
    const struct gemm_also &also)
{
    const int scaled = a.shift >= 0, n = a.K / 128;
    const int warp = (int)threadIdx.x / 32, stages = (n + MEGA_WARPS - 1) / MEGA_WARPS;
    const int last = max((n - 1 - warp) / MEGA_WARPS, 0) * MEGA_WARPS;
    const struct gemm_lane ln = lane_of(a, r, warp < n ? rows : 0);
    struct ring_at at = { r->at[warp][0], r->at[warp][1] };
    uint32_t b[KEEP][2 * HALF];
    int turn = 0;
    if (KEPT)
#pragma unroll
        for (int k = 0; k < KEEP; k++)
            take_x<W>(b[k], ln, min(k * MEGA_WARPS, last));
    for (int g; (g = ring_group(r, at)) >= 0; turn++) {
        struct gemm_sums s = {};
        struct gemm_out o = out_of(a, g, turn & 3, rows);
        if (KEPT)
            sum_kept<W>(s, r, at, ln, scaled, stages, b);
        else
            sum_anew<W>(s, r, at, ln, scaled, stages, last);
        put_sums(sums + (turn & 1) * SUMS, s, sum_unit<W>());
        mega_sync();
        put_y(a, sums + (turn & 1) * SUMS, g, o);
        if (turn == 0 && also.kv_layer >= 0)
            att_prefetch(also);
    }
    ring_leave(r, at);
    if (ln.leader) {
        r->at[warp][0] = at.slot;
        r->at[warp][1] = at.parity;
    }
    __syncwarp();
}

/* W: the type of the weights. */
template<int W>
static __device__ __forceinline__ void
mega_run_gemm(const struct mega_gemm &a, struct mega_ring *r, float *sums, int rows,
    const struct gemm_also &also)
{
    if (a.K <= KEEP * MEGA_WARPS * 128)
        gemm_groups<W, 1>(a, r, sums, rows, also);
    else
        gemm_groups<W, 0>(a, r, sums, rows, also);
}

#endif
