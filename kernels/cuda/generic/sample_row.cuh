/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads a row's logits to shared memory, and applies biases, penalties and masks. For
 * sample.cu only.
 */
#ifndef FDD_KERNELS_CUDA_GENERIC_SAMPLE_ROW_CUH
#define FDD_KERNELS_CUDA_GENERIC_SAMPLE_ROW_CUH

#include "kernels/cuda/generic/sample_reduce.cuh"

struct row {
    const float *raw;            /* (V) in memory */
    const uint16_t *counts;      /* (V) or NULL */
    const int32_t *rules;        /* the row's entry of the pool, or NULL */
    int V, pos, best_id;
    float max, inv_t;            /* of the penalized, masked logits */
    int ready;                   /* 1: the rules apply to the loaded logits; a greedy row's
                                    mask only where it matters for the largest one */
};

/* ---- reading a row --------------------------------------------------------- */

struct seen {                    /* extremes seen by one thread */
    float max, min;              /* min: no logit that may be chosen is smaller */
    int quad;                    /* first quad with max; -1: none */
};

static __device__ __forceinline__ void
see_most(struct seen &t, const float4 &v, int q)
{
    float m = most_of(v);
    if (m > t.max) {
        t.max = m;
        t.quad = q;
    }
}

static __device__ __forceinline__ void
see_least(struct seen &t, const float4 &v, int masked)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        t.min = fminf(t.min, masked && !(nth(v, j) > -INFINITY) ? INFINITY : nth(v, j));
}

/* The key of the largest of a quad's logits. id: of the first. */
static __device__ __forceinline__ u64
quad_key(const float4 &v, int id)
{
    float m = most_of(v);
    int j = v.x == m ? 0 : v.y == m ? 1 : v.z == m ? 2 : 3;
    return key_of(m, id + j);
}

/* Combines the span of all threads. Each thread reads only quads that it wrote itself.
 * key: of a logit besides those in t, 0: none. */
static __device__ struct span
span_seen(struct shared &s, struct part &p, const struct seen &t, u64 key, int bad)
{
    if (t.quad >= 0) {
        u64 own = quad_key(p.x[t.quad], p.first + 4 * t.quad);
        key = own > key ? own : key;
    }
    return span_of_row(s, p, bad ? BAD : key, bits_of(t.min));
}

/* Loads a quad of a row that does not begin at a multiple of 16 bytes. */
static __device__ __forceinline__ float4
load_quad(const float *raw, int id, int V)
{
    float4 v;
    v.x = id < V ? raw[id] : -INFINITY;
    v.y = id + 1 < V ? raw[id + 1] : -INFINITY;
    v.z = id + 2 < V ? raw[id + 2] : -INFINITY;
    v.w = id + 3 < V ? raw[id + 3] : -INFINITY;
    return v;
}

static __device__ __forceinline__ int
is_bad(float x)
{
    return (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u;
}

/* Loads quads q, q + S_THREADS, ... of the block. */
static __device__ __forceinline__ void
fetch(const struct part &p, const float *raw, int V, int q, float4 v[4])
{
    const float4 *from = (const float4 *)(raw + p.first);
    if (V % 4 == 0 && (uintptr_t)raw % sizeof(float4) == 0) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (q + j * S_THREADS < p.n_quad)
                v[j] = __ldcg(from + q + j * S_THREADS);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = load_quad(raw, p.first + 4 * (q + j * S_THREADS), V);
    }
}

/* Starts the copy of the block's part of a mask to the memory of merged histograms. */
static __device__ __forceinline__ void
ask_allowed(struct shared &s, const struct part &p, const int32_t *allowed)
{
    static_assert(S_LOGITS / 4 / 32 + 1 <= sizeof(s.merged) / 4, "");
    const int from = p.first / 32, n = (p.first + 4 * p.n_quad + 31) / 32 - from;
    uint32_t *to = (uint32_t *)s.merged;
    for (int i = (int)threadIdx.x; i < n; i += S_THREADS)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
            :: "r"(cu_smem(to + i)), "l"(allowed + from + i) : "memory");
}

/* Mask bits of quads q, q + S_THREADS, ... */
static __device__ __forceinline__ void
get_allowed(const struct shared &s, const struct part &p, int q, uint32_t bits[4])
{
    const uint32_t *from = (const uint32_t *)s.merged - p.first / 32;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int id = p.first + 4 * (q + j * S_THREADS);
        if (q + j * S_THREADS < p.n_quad)
            bits[j] = from[id / 32] >> id % 32;
    }
}

/* Masks the ids of a quad that are not allowed. */
static __device__ __forceinline__ float4
allowed_quad(uint32_t bits, float4 v)
{
    const uint32_t none = 0xff800000u;
    float *x = &v.x;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t m = (uint32_t)((int)(bits << (31 - j)) >> 31);
        x[j] = __uint_as_float((__float_as_uint(x[j]) & m) | (none & ~m));
    }
    return v;
}

/* Stores the quads of fetch() in shared memory, with MASK masked by bits. Returns whether a
 * logit is not finite. */
template<int MASK>
static __device__ __forceinline__ int
keep_fetched(const struct part &p, int V, int q, const float4 v[4], const uint32_t bits[4],
    struct seen &t)
{
    int bad = 0;
#pragma unroll
    for (int j = 0; j < 4; j++, q += S_THREADS) {
        int id = p.first + 4 * q;
        if (q >= p.n_quad)
            break;
        bad |= is_bad(v[j].x) | (is_bad(v[j].y) & id + 1 < V) |
            (is_bad(v[j].z) & id + 2 < V) | (is_bad(v[j].w) & id + 3 < V);
        float4 x = MASK ? allowed_quad(bits[j], v[j]) : v[j];
        see_least(t, v[j], V % 4 != 0);
        see_most(t, x, q);
        p.x[q] = x;
    }
    return bad;
}

/* Stores a thread's quads from q on, of which v has the first four. */
template<int MASK>
static __device__ __forceinline__ int
load_rest(const struct shared &s, const struct part &p, const struct row &r, int q,
    float4 v[4], struct seen &t)
{
    uint32_t bits[4];
    int bad = 0;
    while (q < p.n_quad) {
        if (MASK)
            get_allowed(s, p, q, bits);
        bad |= keep_fetched<MASK>(p, r.V, q, v, bits, t);
        q += 4 * S_THREADS;
        if (q < p.n_quad)
            fetch(p, r.raw, r.V, q, v);
    }
    return bad;
}

/* Applies the mask to a thread's first four quads, which were stored without it. */
static __device__ __forceinline__ void
mask_first(const struct shared &s, const struct part &p, struct seen &t)
{
    uint32_t bits[4];
    get_allowed(s, p, (int)threadIdx.x, bits);
    t.max = -INFINITY;
    t.quad = -1;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int q = (int)threadIdx.x + j * S_THREADS;
        if (q >= p.n_quad)
            break;
        float4 x = p.x[q] = allowed_quad(bits[j], p.x[q]);
        see_most(t, x, q);
    }
}

/* Prefetches the block's part of the row that is processed after this one. */
static __device__ __forceinline__ void
ask_ahead(const float *from, int n_quad)
{
    if (n_quad > 0)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from),
            "r"(n_quad * 16) : "memory");
}

/* ---- penalties and masks --------------------------------------------------- */

static __device__ __forceinline__ float
penalized(const struct fdk_row &st, float x, uint16_t c)
{
    if (c == 0)
        return x;
    x = x > 0 ? __fdiv_rn(x, st.repetition) : __fmul_rn(x, st.repetition);
    if ((c & 0x7fff) != 0) {
        x = __fsub_rn(x, __fmul_rn(st.frequency, (float)(c & 0x7fff)));
        x = __fsub_rn(x, st.presence);
    }
    return x;
}

/* The bias of an id, by bisection. */
static __device__ float
bias_of(const struct fdk_rules &ru, const int32_t *entry, int id)
{
    const int32_t *ids = entry + ru.bias;
    int low = 0, n = ru.n_bias;
    while (low < n) {
        int mid = (low + n) / 2;
        if (ids[mid] < id)
            low = mid + 1;
        else
            n = mid;
    }
    return low < ru.n_bias && ids[low] == id ? __int_as_float(ids[ru.n_bias + low]) : 0;
}

/* Starts the copy of ids and biases to the memory of histograms. */
static __device__ __forceinline__ void
ask_biases(struct shared &s, const int32_t *from, int n)
{
    static_assert(FDK_MAX_BIAS <= S_BINS, "");
    for (int i = (int)threadIdx.x; i < n; i += S_THREADS)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n\t"
            "cp.async.ca.shared.global [%2], [%3], 4;"
            :: "r"(cu_smem(&s.hist.lo[i])), "l"(from + i), "r"(cu_smem(&s.hist.hi[i])),
            "l"(from + n + i) : "memory");
}

/* Index of an id in the block's part; -1: it is in another block. */
static __device__ __forceinline__ int
place_of(const struct part &p, int id)
{
    int at = id - p.first;
    return id < 0 || at < 0 || at >= 4 * p.n_quad ? -1 : at;
}

/* Applies the biases loaded by ask_biases(), then masks banned ids and, with mask, stop
 * ids. Called by all threads, with a barrier before and after it. */
template<int RULES>
static __device__ void
change_some(struct shared &s, const struct part &p, const struct row &r, int mask)
{
    float *x = (float *)p.x;
    int at, n = s.st.n_stop < FDK_MAX_STOP_IDS ? s.st.n_stop : FDK_MAX_STOP_IDS;
    if (RULES) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        for (int i = (int)threadIdx.x; i < s.rules.n_bias; i += S_THREADS)
            if ((at = place_of(p, (int)s.hist.lo[i])) >= 0)
                x[at] = __fadd_rn(x[at], __uint_as_float(s.hist.hi[i]));
        if (s.rules.n_ban > 0 || mask)
            __syncthreads();
        for (int i = (int)threadIdx.x; i < s.rules.n_ban; i += S_THREADS)
            if ((at = place_of(p, fdk_rules_banned(&s.rules, r.rules, i, s.st.len))) >= 0)
                x[at] = -INFINITY;
    }
    for (int i = (int)threadIdx.x; mask && i < n; i += S_THREADS)
        if (s.st.stop_ids[i] < r.V && (at = place_of(p, s.st.stop_ids[i])) >= 0)
            x[at] = -INFINITY;
}

/* Updates t, a thread's extremes of the loaded logits, after change_some(). Returns the
 * key of the largest logit that the thread has changed by a bias. */
static __device__ u64
see_changed(const struct shared &s, const struct part &p, struct seen &t)
{
    const float *x = (const float *)p.x;
    u64 key = 0;
    if (t.quad >= 0 && most_of(p.x[t.quad]) != t.max) {
        t.max = -INFINITY;
        t.quad = -1;
        for (int q = (int)threadIdx.x; q < p.n_quad; q += S_THREADS)
            see_most(t, p.x[q], q);
    }
    for (int i = (int)threadIdx.x; i < s.rules.n_bias; i += S_THREADS) {
        int id = (int)s.hist.lo[i], at = place_of(p, id);
        if (at < 0 || !(x[at] > -INFINITY))
            continue;
        u64 now = key_of(x[at], id);
        key = now > key ? now : key;
        t.min = fminf(t.min, x[at]);
    }
    return key;
}

/* Quad q with the mask applied, if the row has one. */
static __device__ __forceinline__ float4
quad_by_mask(const struct shared &s, const struct part &p, int q)
{
    const uint32_t *allowed = (const uint32_t *)s.merged - p.first / 32;
    int id = p.first + 4 * q;
    return s.rules.allowed != 0 ? allowed_quad(allowed[id / 32] >> id % 32, p.x[q]) : p.x[q];
}

/* After change_some(), called by all threads: the largest of the keys that the threads
 * return is that of the best logit that is allowed. t: as without rules. */
static __device__ u64
best_allowed(const struct shared &s, const struct part &p, const struct seen &t)
{
    u64 key = 0;
    for (int i = (int)threadIdx.x; i < s.rules.n_bias; i += S_THREADS) {
        int id = (int)s.hist.lo[i], at = place_of(p, id);
        if (at >= 0) {
            u64 now = key_of(nth(quad_by_mask(s, p, at / 4), at % 4), id);
            key = now > key ? now : key;
        }
    }
    int same = 0;
    if (t.quad >= 0) {
        float4 v = quad_by_mask(s, p, t.quad);
        if ((same = most_of(v) == t.max)) {
            u64 own = quad_key(v, p.first + 4 * t.quad);
            key = own > key ? own : key;
        }
    }
    /* If rules changed a thread's largest logit, its others, except those that a bias raised,
     * are at most as large. They matter only if no other thread has a larger one. */
    static_assert(S_LOGITS / sizeof(float4) / S_THREADS <= 32, "one each");
    u64 sure = warp_most(key);
    int lost = t.quad >= 0 && !same && t.max >= logit_of(sure);
    for (uint32_t who = __ballot_sync(S_ALL, lost); who != 0; who &= who - 1) {
        int q = (int)threadIdx.x / 32 * 32 + __ffs((int)who) - 1 +
            (int)threadIdx.x % 32 * S_THREADS;
        if (q < p.n_quad) {
            u64 now = quad_key(quad_by_mask(s, p, q), p.first + 4 * q);
            key = now > key ? now : key;
        }
    }
    return key;
}

static __device__ __forceinline__ ushort4
load_counts(const struct row &r, int id)
{
    if (r.counts == NULL)
        return make_ushort4(0, 0, 0, 0);
    if (r.V % 4 == 0)
        return __ldcg((const ushort4 *)(r.counts + id));
    return make_ushort4(r.counts[id], id + 1 < r.V ? r.counts[id + 1] : 0,
        id + 2 < r.V ? r.counts[id + 2] : 0, id + 3 < r.V ? r.counts[id + 3] : 0);
}

/* Applies biases, penalties and masks to a row. Penalties do not unmask an id. */
template<int RULES>
static __device__ struct span
prepare(struct shared &s, struct part &p, const struct row &r, int mask)
{
    struct seen t = { -INFINITY, INFINITY, -1 };
    if (RULES)
        ask_biases(s, r.rules + s.rules.bias, s.rules.n_bias);
    change_some<RULES>(s, p, r, mask);
    const int32_t *allowed = RULES && s.rules.allowed != 0 ? r.rules + s.rules.allowed : NULL;
    __syncthreads();
#pragma unroll 4
    for (int q = (int)threadIdx.x; q < p.n_quad; q += S_THREADS) {
        int id = p.first + 4 * q;
        ushort4 c = load_counts(r, id);
        float4 v = p.x[q];
        if ((c.x | c.y | c.z | c.w) != 0) {
            v.x = penalized(s.st, v.x, c.x);
            v.y = penalized(s.st, v.y, c.y);
            v.z = penalized(s.st, v.z, c.z);
            v.w = penalized(s.st, v.w, c.w);
        }
        if (allowed != NULL)
            v = allowed_quad((uint32_t)allowed[id / 32] >> id % 32, v);
        if (allowed != NULL || (c.x | c.y | c.z | c.w) != 0)
            p.x[q] = v;
        see_most(t, v, q);
        see_least(t, v, 1);
    }
    return span_seen(s, p, t, 0, 0);
}

#endif
