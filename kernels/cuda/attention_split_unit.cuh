/*
 * 16 tokens against a tile's query vectors, by one warp: scores, weights, values, with
 * all sums in registers.
 */
#ifndef FDD_KERNELS_CUDA_ATTENTION_SPLIT_UNIT_CUH
#define FDD_KERNELS_CUDA_ATTENTION_SPLIT_UNIT_CUH

#include "kernels/cuda/attention_split.cuh"

template<int D>
struct sums {                    /* of a warp: lane / 4 and 8 more are its rows */
    float o[D / 8][4];
    float m[2], l[2];
    int see[2];
};

/* Which token of the tile and which of n_head query heads vector i is. */
static __device__ __forceinline__ int
vector_token(const struct split_args &s, int i, int n_head)
{
    return s.n_head_set == 1 ? i * s.inv >> 16 : i >= n_head;
}

/* Query heads of a head set; ret_first: the first of them. */
static __device__ __forceinline__ int
set_heads(const struct split_args &s, const struct walk &w, int *ret_first)
{
    int sub = (w.set - w.head * s.n_head_set) * CU_ATT_QUERIES;
    *ret_first = w.head * s.group + sub;
    return min(s.group - sub, CU_ATT_QUERIES);
}

static __device__ __forceinline__ uint32_t
bf16_to_half(uint32_t x)
{
    float2 f = __bfloat1622float2(*(const __nv_bfloat162 *)&x);
    return pack<__nv_fp8_e4m3>(fminf(fmaxf(f.x, -65504.0f), 65504.0f),
        fminf(fmaxf(f.y, -65504.0f), 65504.0f));
}

/* Query vectors q as the left operand; those beyond the tile's are 0. 8-bit keys
 * come four dimensions to a lane, so queries do too. */
template<int D, typename E>
static __device__ __forceinline__ void
load_queries(uint32_t q[D / 16][4], struct sums<D> &u, const struct split_args &s,
    const struct walk &w, int lane)
{
    const struct fdk_attention_args &a = s.a;
    int h0, n_head = set_heads(s, w, &h0);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = lane / 4 + 8 * half, t = vector_token(s, i, n_head), h = i - t * n_head;
        const __nv_bfloat16 *x = (const __nv_bfloat16 *)a.qkv +
            (int64_t)(w.t.tok + t) * ((a.H + 2 * a.K) * D) + (h0 + h) * D +
            lane % 4 * (sizeof(E) == 1 ? 4 : 2);
        u.see[half] = w.t.see + t;
        u.m[half] = -INFINITY;
        u.l[half] = 0;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            uint2 v = make_uint2(0, 0);
            if (t < w.t.n_tok && sizeof(E) == 1) {
                v = *(const uint2 *)(x + 16 * k);
            } else if (t < w.t.n_tok) {
                v.x = *(const uint32_t *)(x + 16 * k);
                v.y = *(const uint32_t *)(x + 16 * k + 8);
            }
            q[k][half] = std::is_same<E, __nv_fp8_e4m3>::value ? bf16_to_half(v.x) : v.x;
            q[k][half + 2] = std::is_same<E, __nv_fp8_e4m3>::value ? bf16_to_half(v.y) :
                v.y;
        }
    }
#pragma unroll
    for (int j = 0; j < D / 8; j++)
        u.o[j][0] = u.o[j][1] = u.o[j][2] = u.o[j][3] = 0;
}

/* p[n]: queries by tokens 8 n .. of the unit. */
template<int D, typename E>
static __device__ __forceinline__ void
unit_scores(float p[2][4], const uint32_t q[D / 16][4], uint32_t at, int lane)
{
    const int row = shape<D, E>::row;
    float odd[2][4] = {};
    uint32_t b[row / 32][4];
#pragma unroll
    for (int k = 0; k < row / 32; k++)
        if (sizeof(E) == 1)
            load4(b[k], at + (uint32_t)piece<row>(lane % 16, 2 * k + lane / 16));
        else
            load4(b[k], at + (uint32_t)piece<row>(lane / 16 * 8 + lane % 8,
                2 * k + lane / 8 % 2));
#pragma unroll
    for (int k = 0; k < row / 32; k++) {
        if (sizeof(E) == 1) {
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    uint32_t x, y;
                    widen4<E, false>(b[k][2 * i + n], &x, &y);
                    mma<E>(i ? odd[n] : p[n], q[2 * k + i], x, y);
                }
        } else {
            mma<E>(k % 2 ? odd[0] : p[0], q[k], b[k][0], b[k][1]);
            mma<E>(k % 2 ? odd[1] : p[1], q[k], b[k][2], b[k][3]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        p[i / 4][i % 4] += odd[i / 4][i % 4];
}

/* Weights of the largest score are 2 to this: small ones stay clear of the end of
 * half precision. */
template<typename E>
static __device__ __forceinline__ constexpr float
high(void)
{
    return std::is_same<E, __nv_fp8_e4m3>::value ? 12 : 0;
}

/* Scores to weights, under the largest so far. */
template<int D, typename E>
static __device__ __forceinline__ void
unit_softmax(float p[2][4], struct sums<D> &u, float scale, int pos, int lane)
{
    float alpha[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = u.m[r];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float &x = p[i / 2][2 * r + i % 2];
            if (pos + i / 2 * 8 + lane % 4 * 2 + i % 2 >= u.see[r])
                x = -INFINITY;
            top = fmaxf(top, x);
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        /* Nothing in sight yet: weights of zero, not NaN. */
        float ref = top == -INFINITY ? 0 : top * scale, sum = 0;
        alpha[r] = power2(fmaf(u.m[r], scale, -ref));
        u.m[r] = top;
        ref -= high<E>();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float &x = p[i / 2][2 * r + i % 2];
            x = power2(fmaf(x, scale, -ref));
            sum += x;
        }
        u.l[r] = fmaf(u.l[r], alpha[r], sum);
    }
    if (__any_sync(0xffffffffu, alpha[0] != 1 || alpha[1] != 1))
#pragma unroll
        for (int j = 0; j < D / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                u.o[j][i] *= alpha[i / 2];
}

template<int D, typename E>
static __device__ __forceinline__ void
unit_values(struct sums<D> &u, const float p[2][4], uint32_t at, int lane)
{
    const int row = shape<D, E>::row;
    const uint32_t a[4] = { pack<E>(p[0][0], p[0][1]), pack<E>(p[0][2], p[0][3]),
        pack<E>(p[1][0], p[1][1]), pack<E>(p[1][2], p[1][3]) };
#pragma unroll
    for (int k = 0; k < row / 32; k++) {
        uint32_t b[4];
        load4_turned(b, at + (uint32_t)piece<row>(lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (sizeof(E) == 1) {
                /* Even dimensions, then odd ones: pairs of two tokens. */
                int j = 2 * (2 * k + i);
                uint32_t x[2], y[2];
                widen4<E, true>(b[2 * i], &x[0], &x[1]);
                widen4<E, true>(b[2 * i + 1], &y[0], &y[1]);
                mma<E>(u.o[j], a, x[0], y[0]);
                mma<E>(u.o[j + 1], a, x[1], y[1]);
            } else {
                mma<E>(u.o[2 * k + i], a, b[2 * i], b[2 * i + 1]);
            }
        }
    }
}

template<int D, typename E>
static __device__ __forceinline__ void
attend_unit(struct sums<D> &u, const uint32_t q[D / 16][4], float score,
    const float *scales, uint32_t at, int pos, int lane)
{
    typedef struct shape<D, E> sh;
    float p[2][4] = {};
    const float *scale = scales + lane % 4 * 2;
    unit_scores<D, E>(p, q, at, lane);
    if (sh::scaled)
#pragma unroll
        for (int i = 0; i < 8; i++)
            p[i / 4][i % 4] *= scale[i / 4 * 8 + i % 2];
    unit_softmax<D, E>(p, u, score, pos, lane);
    if (sh::scaled)
#pragma unroll
        for (int i = 0; i < 8; i++)
            p[i / 4][i % 4] *= scale[UNIT + i / 4 * 8 + i % 2];
    unit_values<D, E>(u, p, at + sh::half, lane);
}

#endif
