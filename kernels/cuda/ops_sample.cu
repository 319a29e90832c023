/*
 * Choosing a token: one block per output row. The rules are those of fdk.h
 * and kernels/cpu/sample.c. The logits stay as they are but for masked stop
 * ids: penalties are applied as a logit is read, so the raw one is there for
 * its log-probability.
 *
 * Ids are in order by a 64-bit key: the logit's bits made monotonous, then
 * the complemented id. top_k and top_p are a search for the key whose prefix
 * has the wanted count or mass, two bits a pass, first among the best few
 * thousand ids. Masses are integers (units
 * of 2^-40 of the best id's probability), so that no order of addition can
 * be seen in the outcome.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#include <math.h>

#define S_THREADS 1024
#define S_WARPS (S_THREADS / 32)
#define S_LIST 4096
#define MASS_UNIT 1099511627776.0f   /* 2^40 */

typedef unsigned long long u64;

struct best {                    /* in descending order of x, then ascending id */
    double x;
    int id;                      /* -1: none */
};

struct row {
    struct fdk_row st;           /* a copy in shared memory */
    struct fdk_out out;
    float *x;                    /* (V) */
    const uint16_t *counts;      /* (V) or NULL */
    int V;
    float max;                   /* of the penalized, masked logits */
    float inv_t;
};

/* ---- block-wide reductions: every thread gets the result ----------------- */

static __device__ __forceinline__ int
ahead(double x, int id, const struct best &b)
{
    return id >= 0 && (b.id < 0 || x > b.x || (x == b.x && id < b.id));
}

static __device__ struct best
warp_best(struct best b)
{
    for (int i = 16; i > 0; i /= 2) {
        double x = __shfl_xor_sync(0xffffffffu, b.x, i);
        int id = __shfl_xor_sync(0xffffffffu, b.id, i);
        if (ahead(x, id, b)) {
            b.x = x;
            b.id = id;
        }
    }
    return b;
}

static __device__ struct best
block_best(struct best b)
{
    __shared__ struct best part[S_WARPS];
    b = warp_best(b);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = b;
    __syncthreads();
    return warp_best(part[threadIdx.x % S_WARPS]);
}

template<typename N>
static __device__ N
block_sum(N v)
{
    __shared__ N part[S_WARPS];
    for (int i = 16; i > 0; i /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, i);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[threadIdx.x % S_WARPS];
    for (int i = 16; i > 0; i /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, i);
    return v;
}

/* ---- logits -------------------------------------------------------------- */

static __device__ __forceinline__ float
penalized(const struct row &r, int i)
{
    float x = r.x[i];
    if (r.counts == NULL)
        return x;
    uint16_t c = r.counts[i];
    if (c == 0)
        return x;
    float rep = r.st.repetition;
    x = x > 0 ? __fdiv_rn(x, rep) : __fmul_rn(x, rep);
    if ((c & 0x7fff) != 0) {
        x = __fsub_rn(x, __fmul_rn(r.st.frequency, (float)(c & 0x7fff)));
        x = __fsub_rn(x, r.st.presence);
    }
    return x;
}

static __device__ __forceinline__ u64
key_of(float x, int id)
{
    uint32_t u = __float_as_uint(x + 0.0f);     /* -0 is 0 */
    u ^= u & 0x80000000u ? 0xffffffffu : 0x80000000u;
    return (u64)u << 32 | (uint32_t)~(uint32_t)id;
}

static __device__ struct best
raw_max(const struct row &r, int *ret_finite)
{
    struct best b = { 0, -1 };
    int bad = 0;
    for (int i = (int)threadIdx.x; i < r.V; i += S_THREADS) {
        float x = r.x[i];
        bad |= !isfinite(x);
        if (ahead(x, i, b)) {
            b.x = x;
            b.id = i;
        }
    }
    *ret_finite = !__syncthreads_or(bad);
    return block_best(b);
}

static __device__ struct best
penalized_max(const struct row &r)
{
    struct best b = { 0, -1 };
    for (int i = (int)threadIdx.x; i < r.V; i += S_THREADS) {
        float x = penalized(r, i);
        if (x > -INFINITY && ahead(x, i, b)) {
            b.x = x;
            b.id = i;
        }
    }
    return block_best(b);
}

static __device__ double
log_sum_exp(const struct row &r, float max)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < r.V; i += S_THREADS)
        sum += (double)expf(r.x[i] - max);
    return (double)max + log(block_sum(sum));
}

/* The n best ids after each other, from the raw logits. */
static __device__ void
alternatives(const struct row &r, double lse, int n, struct fdk_result *ret)
{
    struct best prev = { 0, -1 };
    n = n < FDK_MAX_LOGPROBS ? n : FDK_MAX_LOGPROBS;
    n = n < r.V ? n : r.V;
    for (int k = 0; k < n; k++) {
        struct best b = { 0, -1 };
        for (int i = (int)threadIdx.x; i < r.V; i += S_THREADS) {
            double x = (double)r.x[i];
            int later = k == 0 || x < prev.x || (x == prev.x && i > prev.id);
            if (later && ahead(x, i, b)) {
                b.x = x;
                b.id = i;
            }
        }
        prev = block_best(b);
        if (threadIdx.x == 0) {
            ret->top_id[k] = prev.id;
            ret->top_logprob[k] = (float)(prev.x - lse);
        }
    }
    if (threadIdx.x == 0)
        ret->n_top = n;
}

/* ---- what top_k and top_p keep ------------------------------------------- */

/* Where keys are looked for: all ids, or a list of the best ones. */
struct keys {
    const u64 *list;             /* NULL: all ids, masked ones left out */
    int n;
};

static __device__ __forceinline__ u64
key_at(const struct row &r, const struct keys &k, int i)
{
    if (k.list != NULL)
        return k.list[i];
    float x = penalized(r, i);
    return x > -INFINITY ? key_of(x, i) : 0;
}

static __device__ __forceinline__ float
logit_of(u64 key)
{
    uint32_t u = (uint32_t)(key >> 32);
    return __uint_as_float(u ^ (u & 0x80000000u ? 0x80000000u : 0xffffffffu));
}

/* Count or mass of an id; 0 for what is masked or below the key `least`. */
template<int MASS>
static __device__ __forceinline__ u64
weight(const struct row &r, u64 key, u64 least)
{
    if (key == 0 || key < least)
        return 0;
    return MASS ? (u64)(expf((logit_of(key) - r.max) * r.inv_t) * MASS_UNIT) : 1;
}

template<int MASS>
static __device__ u64
total(const struct row &r, const struct keys &k, u64 least)
{
    u64 sum = 0;
    for (int i = (int)threadIdx.x; i < k.n; i += S_THREADS)
        sum += weight<MASS>(r, key_at(r, k, i), least);
    return block_sum(sum);
}

/* The largest key such that ids at or above it weigh `want` or more, where
 * all of them do; or, of counts, the first met that keeps `want` to `most`. */
template<int MASS>
static __device__ u64
search(const struct row &r, const struct keys &k, u64 least, u64 want, u64 most)
{
    u64 cut = 0;
    for (int bit = 62; bit >= 0; bit -= 2) {
        u64 step = 1ull << bit, w[3] = { 0, 0, 0 };
        /* Complements of ids begin with ones. */
        if (bit < 32 && (uint64_t)r.V <= step) {
            cut += 3 * step;
            continue;
        }
        for (int i = (int)threadIdx.x; i < k.n; i += S_THREADS) {
            u64 key = key_at(r, k, i);
            if (key < cut + step)
                continue;
            u64 one = weight<MASS>(r, key, least);
            w[0] += one;
            w[1] += key >= cut + 2 * step ? one : 0;
            w[2] += key >= cut + 3 * step ? one : 0;
        }
        for (int j = 2; j >= 0; j--) {
            w[j] = block_sum(w[j]);
            if (w[j] < want)
                continue;
            cut += (u64)(j + 1) * step;
            if (!MASS && w[j] <= most)
                return cut;
            break;
        }
    }
    return cut;
}

/* The best S_LIST / 4 to S_LIST ids in any order: nearly always all that
 * matters. *n: how many. */
static __device__ void
best_keys(const struct row &r, u64 *list, int *n)
{
    const struct keys all = { NULL, r.V };
    u64 cut = 1;
    if (total<0>(r, all, 0) > S_LIST)
        cut = search<0>(r, all, 0, S_LIST / 4, S_LIST);
    if (threadIdx.x == 0)
        *n = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < r.V; i += S_THREADS) {
        u64 key = key_at(r, all, i);
        if (key >= cut)
            list[atomicAdd(n, 1)] = key;
    }
    __syncthreads();
}

/* Ids with keys at or above are kept. *ret: where all of them are found. */
static __device__ u64
kept_from(const struct row &r, const struct keys &best, struct keys *ret)
{
    const struct keys all = { NULL, r.V };
    int listed = 0, by_k = r.st.top_k > 0 && r.st.top_k < (uint32_t)r.V;
    u64 cut = 1;
    if (by_k) {
        listed = (u64)best.n > (u64)r.st.top_k;
        const struct keys k = listed ? best : all;
        if (total<0>(r, k, 0) > (u64)r.st.top_k)
            cut = search<0>(r, k, 0, r.st.top_k, r.st.top_k);
        else
            listed = 0;
    }
    *ret = listed ? best : all;
    if (!(r.st.top_p < 1))
        return cut;
    u64 mass = total<1>(r, *ret, cut);
    double want = ceil((double)r.st.top_p * (double)mass);
    u64 n = want > 1 ? (u64)want : 1;
    n = n < mass ? n : mass;
    if (!listed && total<1>(r, best, cut) >= n)
        *ret = best;
    return search<1>(r, *ret, cut, n, 0);
}

/* ---- choosing ------------------------------------------------------------ */

/* See fdk_philox(). */
static __device__ uint32_t
philox_word(uint64_t key, uint32_t pos, uint32_t sample, uint32_t id)
{
    uint32_t c0 = pos, c1 = sample, c2 = 0, c3 = id / 4;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < 10; i++) {
        uint32_t a1 = __umulhi(c0, 0xD2511F53u), a0 = c0 * 0xD2511F53u;
        uint32_t b1 = __umulhi(c2, 0xCD9E8D57u), b0 = c2 * 0xCD9E8D57u;
        c0 = b1 ^ c1 ^ k0;
        c1 = b0;
        c2 = a1 ^ c3 ^ k1;
        c3 = a0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return id % 4 == 0 ? c0 : id % 4 == 1 ? c1 : id % 4 == 2 ? c2 : c3;
}

static __device__ __forceinline__ double
scaled(const struct row &r, float x)
{
    return ((double)x - (double)r.max) / (double)r.st.temperature;
}

static __device__ double
noise(uint32_t word)
{
    return -log(-log(((double)word + 0.5) * 0x1p-32));
}

static __device__ int
choose(const struct row &r, int best_id)
{
    __shared__ u64 list[S_LIST];
    __shared__ int n_list;
    struct keys from = { NULL, r.V };
    u64 cut = 1;
    if (!(r.st.temperature > 0))
        return best_id;
    if ((r.st.top_k > 0 && r.st.top_k < (uint32_t)r.V) || r.st.top_p < 1) {
        best_keys(r, list, &n_list);
        const struct keys best = { list, n_list };
        cut = kept_from(r, best, &from);
    }
    struct best b = { 0, -1 };
    for (int i = (int)threadIdx.x; i < from.n; i += S_THREADS) {
        u64 key = key_at(r, from, i);
        if (key < cut)
            continue;
        int id = (int)~(uint32_t)key;
        double s = scaled(r, logit_of(key));
        if (r.st.min_p > 0 && id != best_id && exp(s) < (double)r.st.min_p)
            continue;
        s += noise(philox_word(r.st.seed, (uint32_t)r.out.pos, r.st.sample,
            (uint32_t)id));
        if (ahead(s, id, b)) {
            b.x = s;
            b.id = id;
        }
    }
    return block_best(b).id;
}

static __device__ void
mask_stops(const struct row &r)
{
    int n = r.st.n_stop < FDK_MAX_STOP_IDS ? r.st.n_stop : FDK_MAX_STOP_IDS;
    for (int i = (int)threadIdx.x; i < n; i += S_THREADS)
        if (r.st.stop_ids[i] >= 0 && r.st.stop_ids[i] < r.V)
            r.x[r.st.stop_ids[i]] = -INFINITY;
    __syncthreads();
}

/* One thread: the state after the token, its count, the result. */
static __device__ void
commit(const struct fdk_sample_args &a, const struct row &r, struct fdk_row *st,
    int token, struct fdk_result *ret)
{
    int done = FDK_DONE_NO;
    st->last_token = token;
    st->len = r.st.len + 1;
    for (int i = 0; i < r.st.n_stop && i < FDK_MAX_STOP_IDS; i++)
        if (r.st.stop_ids[i] == token)
            done = FDK_DONE_STOP;
    if (done == FDK_DONE_NO && r.st.len + 1 >= r.st.max_len)
        done = FDK_DONE_LENGTH;
    st->done = done;
    ret->token = token;
    ret->done = done;
    if (r.counts != NULL) {
        uint16_t *c = a.counts + (size_t)r.st.penalty * (size_t)a.V + token;
        if ((*c & 0x7fff) < 0x7fff)
            *c = (uint16_t)(*c + 1);
    }
}

static __device__ void
result_clear(struct fdk_result *ret, uint32_t generation)
{
    uint32_t *w = (uint32_t *)ret;
    static_assert(sizeof(*ret) % 4 == 0, "cleared by words");
    for (unsigned i = threadIdx.x; i < sizeof(*ret) / 4; i += S_THREADS)
        w[i] = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        ret->token = -1;
        ret->generation = generation;
    }
}

/* The row's next token, or -1 if every id is masked or a penalty overflows. */
static __device__ int
sample_row(struct row *r)
{
    if (r->st.len < r->st.min_len && r->st.n_stop > 0)
        mask_stops(*r);
    struct best b = penalized_max(*r);
    if (b.id < 0 || !isfinite(b.x))
        return -1;
    __syncthreads();
    if (threadIdx.x == 0) {
        float t = 1.0f / r->st.temperature;
        r->max = (float)b.x;
        r->inv_t = t < 1e30f ? t : 1e30f;
    }
    __syncthreads();
    return choose(*r, b.id);
}

static __global__ void __launch_bounds__(S_THREADS)
sample_kernel(struct fdk_sample_args a, struct fdk_batch b)
{
    __shared__ struct row r;
    int o = a.first + (int)blockIdx.x, finite;
    if (o >= *b.n_out)
        return;
    struct fdk_row *st = &a.state[b.state[b.out[o].row]];
    struct fdk_result *ret = &a.results[o];
    for (unsigned i = threadIdx.x; i < sizeof(r.st) / 4; i += S_THREADS)
        ((uint32_t *)&r.st)[i] = ((const uint32_t *)st)[i];
    if (threadIdx.x == 0) {
        r.out = b.out[o];
        r.x = a.logits + (size_t)blockIdx.x * (size_t)a.V;
        r.V = a.V;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        r.counts = a.counts != NULL && r.st.penalty >= 0 ?
            a.counts + (size_t)r.st.penalty * (size_t)a.V : NULL;
    result_clear(ret, r.st.generation);
    __syncthreads();
    int score = r.out.kind == FDK_OUT_SCORE;
    if (!score && r.st.done != FDK_DONE_NO) {
        if (threadIdx.x == 0)
            ret->done = r.st.done;
        return;
    }
    struct best raw = raw_max(r, &finite);
    if (!finite || (score && (r.out.target < 0 || r.out.target >= r.V))) {
        if (threadIdx.x == 0)
            ret->bad = 1;
        return;
    }
    double lse = 0;
    if (r.out.n_top >= 0) {
        lse = log_sum_exp(r, (float)raw.x);
        alternatives(r, lse, r.out.n_top, ret);
    }
    int token = score ? r.out.target : sample_row(&r);
    if (threadIdx.x != 0)
        return;
    if (token < 0) {
        ret->bad = 1;
        return;
    }
    ret->token = token;
    if (!score)
        commit(a, r, st, token, ret);
    if (r.out.n_top >= 0)
        ret->logprob = (float)((double)r.x[token] - lse);
}

size_t
cu_sample_scratch(const struct fdk_sample_args *a)
{
    (void)a;
    return 0;
}

int
cu_sample(const struct fdk_sample_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->R <= 0 || a->V <= 0 || a->first < 0 || a->results == NULL ||
        a->state == NULL || a->logits == NULL || a->b == NULL)
        return -EINVAL;
    sample_kernel<<<(unsigned)a->R, S_THREADS, 0, cu_raw(st)>>>(*a, *a->b);
    return cu_launched(st, "sample");
}

cudaError_t
cu_sample_load(void)
{
    static const void *const k[] = { (const void *)sample_kernel };
    return cu_load(k, 1);
}
