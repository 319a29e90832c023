/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores, and the id with the best one. For sample.cu only.
 *
 * Scores are compared in double precision where fp32 cannot decide which is
 * larger.
 */
#ifndef FDD_KERNELS_CUDA_GENERIC_SAMPLE_CHOOSE_CUH
#define FDD_KERNELS_CUDA_GENERIC_SAMPLE_CHOOSE_CUH

#include "kernels/cuda/generic/sample_row.cuh"

#define SCORE_ERROR 0.001f       /* error bound of fp32 scores near the best one */
#define MOST_NOISE 22.9f         /* -log(-log(1 - 2^-33)) is 22.88 */

struct best {                    /* in descending order of x, then ascending id */
    double x;
    int id;                      /* -1: none */
};

/* ---- scores ---------------------------------------------------------------- */

/* Random words of the ids of a quad; see fdk_philox(). */
static __device__ __forceinline__ uint4
philox(uint64_t key, uint32_t pos, uint32_t sample, uint32_t quad)
{
    uint32_t c0 = pos, c1 = sample, c2 = 0, c3 = quad;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        u64 a = (u64)c0 * 0xD2511F53u, b = (u64)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    uint4 w = { c0, c1, c2, c3 };
    return w;
}

static __device__ __forceinline__ uint32_t
word_of(uint64_t seed, int pos, uint32_t sample, int id)
{
    uint4 w = philox(seed, (uint32_t)pos, sample, (uint32_t)id / 4);
    return id % 4 == 0 ? w.x : id % 4 == 1 ? w.y : id % 4 == 2 ? w.z : w.w;
}

static __device__ __forceinline__ double
scaled(const struct fdk_row &st, const struct row &r, float x)
{
    return ((double)x - (double)r.max) / (double)st.temperature;
}

static __device__ __noinline__ double
noise(uint64_t seed, int pos, uint32_t sample, int id)
{
    return -log(-log(((double)word_of(seed, pos, sample, id) + 0.5) * 0x1p-32));
}

static __device__ __forceinline__ double
score(const struct fdk_row &st, const struct row &r, float x, int id)
{
    return scaled(st, r, x) + noise(st.seed, r.pos, st.sample, id);
}

/* The score of an id that is not masked. RULES here and below: the row has rules. */
template<int RULES>
static __device__ double
score_of(const struct fdk_row &st, const struct row &r, int id)
{
    float x = r.raw[id];
    if (RULES)
        x = __fadd_rn(x, bias_of(*(const struct fdk_rules *)r.rules, r.rules, id));
    return score(st, r, penalized(st, x, r.counts != NULL ? r.counts[id] : 0), id);
}

/* Score in fp32; within SCORE_ERROR for scores that can win. */
static __device__ float
rough_score(const struct row &r, float x, uint32_t word)
{
    uint32_t w = word >> 31 ? ~word : word;
    float v = (float)w * 0x1p-32f + 0x1p-33f;
    float minus_log = word >> 31 ? -log1pf(-v) : -logf(v);
    return (x - r.max) * r.inv_t - logf(minus_log);
}

static __device__ int
passes_min_p(const struct fdk_row &st, const struct row &r, float x, int id)
{
    return !(st.min_p > 0) || id == r.best_id ||
        exp(scaled(st, r, x)) >= (double)st.min_p;
}

/* The smallest key that passes min_p. The lanes of a warp search for its logit together,
 * as ordered bits: each tests one point of the range that is left. */
static __device__ u64
cut_by_ratio(const struct fdk_row &st, const struct row &r)
{
    uint32_t low = bits_of(-3.4028234e38f), high = bits_of(r.max), lane = threadIdx.x % 32;
    while (low < high) {
        uint32_t step = (high - low) / 32 + 1;
        u64 at = (u64)low + lane * (u64)step;
        int passes = at >= high ||
            exp(scaled(st, r, float_of((uint32_t)at))) >= (double)st.min_p;
        int first = __ffs((int)__ballot_sync(S_ALL, passes)) - 1;
        uint32_t before = low + (uint32_t)(first < 0 ? 31 : first - 1) * step;
        if (first == 0)
            break;
        if (first > 0 && high - before > step)
            high = before + step;
        low = before + 1;
    }
    return (u64)low << 32;
}

static __device__ __forceinline__ int
ahead(double x, int id, const struct best &b)
{
    return id >= 0 && (b.id < 0 || x > b.x || (x == b.x && id < b.id));
}

static __device__ struct best
warp_best(struct best b)
{
    for (int i = 16; i > 0; i /= 2) {
        double x = __shfl_xor_sync(S_ALL, b.x, i);
        int id = __shfl_xor_sync(S_ALL, b.id, i);
        if (ahead(x, id, b)) {
            b.x = x;
            b.id = id;
        }
    }
    return b;
}

/* ---- choosing -------------------------------------------------------------- */

struct rough {                   /* fp32 score of an id; id -1: none */
    float x;
    int id;
};

template<int RULES>
static __device__ void
take(const struct fdk_row &st, const struct row &r, struct rough &t, float x, int id)
{
    if (t.id >= 0 && !(x > t.x + SCORE_ERROR)) {
        if (x < t.x - SCORE_ERROR)
            return;
        const struct best b = { score_of<RULES>(st, r, t.id), t.id };
        if (!ahead(score_of<RULES>(st, r, id), id, b))
            return;
    }
    t.x = x;
    t.id = id;
}

/* The id with the best score of the warp's lanes. */
template<int RULES>
static __device__ struct rough
warp_take(const struct fdk_row &st, const struct row &r, struct rough t)
{
    uint32_t bits = t.id >= 0 ? bits_of(t.x) : 0;
    float most = float_of(__reduce_max_sync(S_ALL, bits));
    int near_most = t.id >= 0 && t.x >= most - SCORE_ERROR;
    uint32_t who = __ballot_sync(S_ALL, near_most);
    if (__popc(who) > 1) {
        struct best b = { 0, -1 };
        if (near_most) {
            b.id = t.id;
            b.x = score_of<RULES>(st, r, t.id);
        }
        __syncwarp();
        int id = warp_best(b).id;
        who = __ballot_sync(S_ALL, near_most && t.id == id);
    }
    int lane = who != 0 ? __ffs((int)who) - 1 : 0;
    t.x = __shfl_sync(S_ALL, t.x, lane);
    t.id = __shfl_sync(S_ALL, t.id, lane);
    return t;
}

/* Distance below the best logit from which ids cannot be chosen, as a number <= 0. best:
 * a score that some id reaches. */
static __device__ float
hopeless(const struct shared &s, const struct row &r, float best, u64 cut)
{
    float low = (best - MOST_NOISE) / r.inv_t, edge = logit_of(cut) - r.max;
    low = edge > low ? edge : low;
    if (s.st.min_p > 0) {
        edge = (logf(s.st.min_p) - 0.01f) / r.inv_t;
        low = edge > low ? edge : low;
    }
    return low < 0 ? low : 0;
}

/* Chooses among a block's ids from the cut on; computes the score only of those whose
 * noise could be enough. With u = (word + 1/2) / 2^32, noise -log(-log u) is at most
 * -log(1 - u), so an id can only win where 1 - u <= exp(its scaled logit - the best score
 * so far); 1 - u is compared by its 23 leading bits, rounded down, first the quad's least
 * one with its largest logit. */
template<int RULES>
static __device__ struct rough
choose_part(const struct shared &s, const struct part &p, const struct row &r, u64 cut)
{
    struct rough t = { 0, -1 };
    /* The result of a reduction is in a uniform register. */
    uint64_t seed = (uint64_t)__reduce_or_sync(S_ALL, (uint32_t)(s.st.seed >> 32)) << 32 |
        __reduce_or_sync(S_ALL, (uint32_t)s.st.seed);
    uint32_t sample = __reduce_or_sync(S_ALL, s.st.sample);
    float scale = r.inv_t * LOG2E, best = rough_score(r, r.max,
        word_of(seed, r.pos, sample, r.best_id)) - SCORE_ERROR;
    float low = hopeless(s, r, best, cut), back = best * LOG2E;
    for (int q = (int)threadIdx.x; q < p.n_quad; q += S_THREADS) {
        float4 v = p.x[q];
        float far = most_of(v) - r.max;
        if (!(far >= low))
            continue;
        int id = p.first + 4 * q;
        uint4 w = philox(seed, (uint32_t)r.pos, sample, (uint32_t)id / 4);
        uint32_t most = max(max(w.x, w.y), max(w.z, w.w));
        float bound = exp2_of(far * scale - back) + 1.0000005f;
        if (!(__uint_as_float(~most >> 9 | 0x3f800000u) <= bound))
            continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float x = nth(v, j);
            uint32_t word = j == 0 ? w.x : j == 1 ? w.y : j == 2 ? w.z : w.w;
            bound = exp2_of((x - r.max) * scale - back) + 1.0000005f;
            if (!(x - r.max >= low) || !(x > -INFINITY) ||
                !(__uint_as_float(~word >> 9 | 0x3f800000u) <= bound) ||
                key_of(x, id + j) < cut || !passes_min_p(s.st, r, x, id + j))
                continue;
            float score = rough_score(r, x, word);
            best = score - SCORE_ERROR > best ? score - SCORE_ERROR : best;
            back = best * LOG2E;
            take<RULES>(s.st, r, t, score, id + j);
        }
    }
    return t;
}

/* Returns the row's token in rank 0. */
template<int RULES>
static __device__ int
choose(struct shared &s, struct part &p, const struct row &r, u64 cut)
{
    uint32_t lane = threadIdx.x % 32, at = p.rank * S_WARPS + threadIdx.x / 32;
    struct rough t = choose_part<RULES>(s, p, r, cut);
    __syncwarp();
    t = warp_take<RULES>(s.st, r, t);
    u64 *slots = s.best[p.turn];
    if (lane == 0)
        *of_block(&slots[at], 0) = (u64)__float_as_uint(t.x) << 32 | (uint32_t)t.id;
    __syncwarp();
    cluster_sync();
    if (p.rank != 0)
        return -1;
    t.id = -1;
    for (uint32_t i = lane; i < p.size * S_WARPS; i += 32)
        if ((int)(uint32_t)slots[i] >= 0)
            take<RULES>(s.st, r, t, __uint_as_float((uint32_t)(slots[i] >> 32)),
                (int)(uint32_t)slots[i]);
    __syncwarp();
    return warp_take<RULES>(s.st, r, t).id;
}

#endif
