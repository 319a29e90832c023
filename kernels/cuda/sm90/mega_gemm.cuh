/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * GEMMs of one row, for mega_kernel.cu: 16 rows of w are the A operand of the tensor
 * cores, x is B (mega_x.cuh). The sums of ROUND row groups are kept in shared memory, one
 * per warp and row, and then added in the order of warps.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_GEMM_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_GEMM_CUH

#include "kernels/cuda/sm90/attention_split_mma.cuh"
#include "kernels/cuda/sm90/mega_meet.cuh"
#include "kernels/cuda/sm90/mega_ring.cuh"
#include "kernels/cuda/sm90/mega_x.cuh"

#define ROUND      4             /* row groups between two barriers of the block: even */
#define PUT        (16 * ROUND)  /* threads that add the warps' sums */
#define SUMS       (MEGA_WARPS * 16 + 16) /* floats of a row group; 16 avoid bank
                                             conflicts */

/* ---- a chunk ----------------------------------------------------------------------- */

static __device__ __forceinline__ void
mma_s8(int c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
    uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Elements 0 2 4 6, or 1 3 5 7, of eight int4 values, times 16. */
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

/* Registers of x for 32 bytes of a row of w. */
static __host__ __device__ constexpr int
x_registers(int type)
{
    return type == FDK_I4 || type == FDK_F8E4M3 ? 16 : 8;
}

/*
 * Share of a lane in a GEMM: g is its row of w and its column of x; t selects its share
 * of a chunk and its two columns of the result.
 *
 * For int8 the columns of x are its digits; the last digit is repeated. A chunk of int4
 * has two halves of 128 elements with their own scales: one for lanes t = 0, 1, one for
 * t = 2, 3. The digits of the first half are columns 0 to 2, those of the second 4 to 6;
 * a column is zero for the other half's elements.
 */
struct gemm_lane {
    uint32_t w;                  /* row g of this warp's chunk in stage 0 */
    uint32_t below;              /* bytes from there to row g + 8 */
    uint32_t x;
    const float *unit;           /* x_units() */
    int step;                    /* bytes of x from chunk to chunk; 0: x is zero */
    int second;                  /* factor of its second column */
    float column;                /* factor of the sum of both columns */
    int g, t;
};

template<int W>
static __device__ __forceinline__ struct gemm_lane
lane_of(const struct mega_ring *r, const unsigned char *x, int K, int gated)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    struct gemm_lane ln;
    ln.g = lane / 4;
    ln.t = lane % 4;
    ln.w = ring_half(0, 0) + (uint32_t)(warp * (gated ? CHUNK / 2 : CHUNK) + ln.g * 128);
    ln.below = gated ? HALF / 2 : CHUNK / 2;
    ln.unit = x_units<W>(x, K);
    ln.step = 32 * x_registers(W) / 2;
    ln.x = cu_smem(x) + (uint32_t)(ln.t * 4 * x_registers(W));
    ln.second = 0;
    ln.column = 1;
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

/* A lane's elements of x in a chunk, and of w: twice 16 bytes of rows g and g + 8. */
template<int W>
struct x_chunk {
    uint32_t v[x_registers(W)];
    float unit;
};
template<int W>
struct w_chunk {
    uint32_t v0[2][4], v1[2][4];
    float scale[2];
};

template<int W>
static __device__ __forceinline__ void
x_load(struct x_chunk<W> &x, const struct gemm_lane &ln, int c)
{
    const uint32_t at = ln.x + (uint32_t)(c * ln.step);
#pragma unroll
    for (int i = 0; i < x_registers(W); i += 4)
        quant_take<16>(x.v + i, at + (uint32_t)(4 * i));
    if (has_units(W))
        x.unit = ln.unit[W == FDK_I4 ? 2 * c + ln.t / 2 : c];
}

/* Loads a lane's elements of half h of a stage. Rows of w, and rows of 64 bytes of
 * scales, are swizzled by TMA. */
template<int W>
static __device__ __forceinline__ void
w_load(struct w_chunk<W> &w, const struct gemm_lane &ln, const struct mega_ring *r,
    int slot, int h, int scaled)
{
    const uint32_t at = ln.w + (uint32_t)((2 * slot + h) * HALF);
    const float *scale = ring_scale(r, slot, h) + ln.g * stage_units(W);
    int n = (int)threadIdx.x / 32;
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const uint32_t piece = (uint32_t)(((2 * ln.t + u) ^ ln.g) * 16);
        quant_take<16>(w.v0[u], at + piece);
        quant_take<16>(w.v1[u], at + piece + ln.below);
    }
    if (W == FDK_I4) {
        n = 2 * n + ln.t / 2;
        n = ((n / 4) ^ (ln.g / 2)) * 4 + n % 4;
    }
    w.scale[0] = scaled ? scale[n] : 1;
    w.scale[1] = scaled ? scale[8 * stage_units(W) + n] : 1;
}

/* acc += the chunk's products. */
template<int W>
static __device__ __forceinline__ void
chunk_add(float acc[2], const struct w_chunk<W> &w, const struct x_chunk<W> &x,
    const struct gemm_lane &ln)
{
    const uint32_t *b = x.v;
    if constexpr (integers(W)) {
        int s[2][4] = {};
#pragma unroll
        for (int i = 0; i < (W == FDK_I4 ? 8 : 4); i++, b += 2) {
            if constexpr (W == FDK_I4) {
                const uint32_t v0 = w.v0[i / 4][i % 4], v1 = w.v1[i / 4][i % 4];
                mma_s8(s[i % 2], int4_even(v0), int4_even(v1), int4_odd(v0), int4_odd(v1),
                    b[0], b[1]);
            } else {
                const uint32_t *v0 = w.v0[i / 2] + i % 2 * 2, *v1 = w.v1[i / 2] + i % 2 * 2;
                mma_s8(s[i % 2], v0[0], v1[0], v0[1], v1[1], b[0], b[1]);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int v = s[0][2 * h] + s[1][2 * h] + (s[0][2 * h + 1] + s[1][2 * h + 1]) *
                ln.second;
            acc[h] = fmaf((float)v, x.unit * w.scale[h], acc[h]);
        }
    } else {
        float s[2][4] = {};
#pragma unroll
        for (int i = 0; i < (W == FDK_BF16 ? 4 : 8); i++, b += 2) {
            if constexpr (W == FDK_F8E4M3) {
                uint32_t a[4];
                widen4<__nv_fp8_e4m3, false>(w.v0[i / 4][i % 4], &a[0], &a[2]);
                widen4<__nv_fp8_e4m3, false>(w.v1[i / 4][i % 4], &a[1], &a[3]);
                mma<__nv_fp8_e4m3>(s[i % 2], a, b[0], b[1]);
            } else {
                const uint32_t *v0 = w.v0[i / 2] + i % 2 * 2, *v1 = w.v1[i / 2] + i % 2 * 2;
                quant_mma(s[i % 2], v0[0], v1[0], v0[1], v1[1], b[0], b[1]);
            }
        }
        const float unit = has_units(W) ? x.unit : 1;
        acc[0] = fmaf(unit * w.scale[0], s[0][0] + s[1][0], acc[0]);
        acc[1] = fmaf(unit * w.scale[1], s[0][2] + s[1][2], acc[1]);
    }
}

/* ---- a product --------------------------------------------------------------------- */

/* Stores this warp's sums of 16 rows of a row group. */
template<int W>
static __device__ __forceinline__ void
sums_store(float *sums, const float acc[2], const struct gemm_lane &ln)
{
    const int warp = (int)threadIdx.x / 32;
    float v[2] = { acc[0] * ln.column, acc[1] * ln.column };
#pragma unroll
    for (int k = W == FDK_I4 ? 2 : integers(W); k > 0; k /= 2) { /* lanes have digits */
        v[0] += __shfl_down_sync(0xffffffffu, v[0], k);
        v[1] += __shfl_down_sync(0xffffffffu, v[1], k);
    }
    if (ln.t == 0) {
        sums[warp * 16 + ln.g] = v[0];
        sums[warp * 16 + ln.g + 8] = v[1];
    }
}

/* Computes this warp's sums of one or two row groups, whose first stage has arrived. */
template<int W>
static __device__ __forceinline__ void
groups_sums(float *sums, const struct gemm_lane &ln, struct mega_ring *r,
    struct ring_at &at, int two, int scaled, int chunks)
{
    const int warp = (int)threadIdx.x / 32, step = two ? MEGA_WARPS : 2 * MEGA_WARPS;
    float acc[2][2] = {};
    for (int c = warp;;) {
        if (c < chunks) {
            struct x_chunk<W> x;
            struct w_chunk<W> w[2];
            x_load<W>(x, ln, c);
            w_load<W>(w[0], ln, r, at.slot, 0, scaled);
            w_load<W>(w[1], ln, r, at.slot, 1, scaled); /* unused if there is one half */
            chunk_add<W>(acc[0], w[0], x, ln);
            if (two) {
                chunk_add<W>(acc[1], w[1], x, ln);
            } else if (c + MEGA_WARPS < chunks) {
                x_load<W>(x, ln, c + MEGA_WARPS);
                chunk_add<W>(acc[0], w[1], x, ln);
            }
        }
        ring_leave(r, at);
        c += step;
        if (c >= chunks + warp)
            break;
        cu_bar_wait(cu_smem(&r->full[at.slot]), at.parity);
    }
    sums_store<W>(sums, acc[0], ln);
    if (two)
        sums_store<W>(sums + SUMS, acc[1], ln);
}

/* Destination of a GEMM's results: y if set, else meet if set, else words from `at`
 * on. */
struct gemm_to {
    struct words words;
    int at;
    void *y;
    struct meet_at meet;
};

template<bool RANKS>
static __device__ __forceinline__ void
result_put(const struct gemm_to &to, int n, uint32_t two)
{
    if (to.y != NULL)
        ((uint32_t *)to.y)[n / 2] = two;
    else if (RANKS && to.meet.meet != NULL)
        meet_put(to.meet, n / 2, two);
    else
        word_put(to.words, to.at + word_of_pair(n / 2), two);
}

/* PUT threads add the warps' sums of ROUND row groups: thread i has row i % 16 of row
 * group i / 16, which is row n of w. With gate and up, the row of up is 8 lanes after its row of
 * gate. */
template<bool RANKS>
static __device__ __forceinline__ void
round_put(const float *sums, int i, int gated, int n_group, int n, float scale, float bias,
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
    if (gated) {
        float up = cu_round_bf16(__shfl_down_sync(0xffffffffu, y, 8));
        y = cu_silu_mul_bf16(cu_round_bf16(y), up);
    }
    float other = __shfl_down_sync(0xffffffffu, y, 1);
    if (i / 16 < n_group && i % 2 == 0 && (!gated || i % 16 < 8))
        result_put<RANKS>(to, n, pack<__nv_bfloat16>(y, other));
}

/* Keeps a value in a register: the compiler would load an indexed kernel argument again
 * at each use, which takes hundreds of clocks. */
static __device__ __forceinline__ int
in_register(int v)
{
    asm volatile("mov.b32 %0, %0;" : "+r"(v));
    return v;
}

/* turn: which half of sums is used next, and which threads add its sums. */
template<int W, bool RANKS>
static __device__ __forceinline__ void
mega_run_product(const struct mega_matrix &m, const struct mega_shape &shape, int gated,
    struct mega_ring *r, struct ring_at &at, const unsigned char *x,
    float (*sums)[ROUND * SUMS], int &turn, const struct gemm_to &to)
{
    const int K = in_register(shape.K), scaled = in_register(shape.scaled);
    const int chunks = in_register(K / mega_chunk(W));
    const struct gemm_lane ln = lane_of<W>(r, x, K, gated);
    int more = (int)blockIdx.x < shape.N / 16;
#pragma unroll 1
    while (more) {
        const int mine = (int)threadIdx.x - turn * (MEGA_THREADS - PUT);
        int n = 0, i = 0;
        float scale = 1, bias = 0;
#pragma unroll 1
        do {
            cu_bar_wait(cu_smem(&r->full[at.slot]), at.parity);
            const struct ring_what what = r->what[at.slot];
            const int two = what.group[1] >= 0, half = mine >> 4;
            if (half == i || (two && half == i + 1)) {
                const int group = half == i ? what.group[0] : what.group[1];
                n = !gated ? group * 16 + mine % 16 : group * 8 + mine % 8 +
                    (mine % 16 < 8 ? 0 : shape.N / 2);
                scale = m.scale != NULL ? __ldg(m.scale + n) : 1;
                bias = m.bias != NULL ? __ldg(m.bias + n) : 0;
            }
            groups_sums<W>(sums[turn] + i * SUMS, ln, r, at, two, scaled, chunks);
            more = what.more;
            i += 1 + two;
        } while (i < ROUND && more);
        mega_sync();
        if (mine >= 0 && mine < PUT)
            round_put<RANKS>(sums[turn], mine, gated, i, n, scale, bias, to);
        turn ^= 1;
    }
}

#endif
