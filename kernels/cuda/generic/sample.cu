/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing a token: a cluster of blocks per output row, which keeps the row in
 * its shared memory. The rules are those of fdk.h and kernels/cpu/sample.c.
 * The logits in memory are not changed.
 *
 * A row's results depend only on the row, not on the size of the
 * cluster: extremes do not depend on order, sums are integer sums over quads, cuts
 * are found in integers, and scores are compared in double precision where
 * fp32 cannot decide which is larger.
 */
#include "kernels/cuda/generic/sample_choose.cuh"
#include "kernels/cuda/generic/sample_keep.cuh"

#define S_FEW 8                  /* most rows for clusters of the largest size */
#define S_AHEAD 32               /* about the number of rows processed at a time */

/* ---- log-probabilities ----------------------------------------------------- */

/* Sends the warps' sums of exponentials to rank 0, which may read them after a
 * barrier. */
static __device__ void
sum_exp(struct shared &s, const struct part &p, float max)
{
    u64 sum = 0;
    for (int q = (int)threadIdx.x; q < p.n_quad; q += S_THREADS)
        sum += quad_mass(p.x[q], max, 1);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        *of_block(&s.sum[p.rank * S_WARPS + threadIdx.x / 32], 0) = sum;
}

static __device__ double
log_sum_exp(const struct shared &s, const struct part &p, float max)
{
    u64 sum = 0;
    for (uint32_t i = threadIdx.x % 32; i < p.size * S_WARPS; i += 32)
        sum += s.sum[i];
    return (double)max + log((double)warp_sum(sum) * 0x1p-40);
}

/* Rank 0, with the list of the best raw logits: writes the top logprobs. Returns the
 * sorted keys, one per thread. */
static __device__ u64
alternatives(struct shared &s, int n_list, int n_top, double lse)
{
    int i = (int)threadIdx.x;
    u64 key = block_sort(s, i < n_list ? s.list[i] : 0, n_list);
    if (i < n_top) {
        s.res.top_id[i] = id_of(key);
        s.res.top_logprob[i] = (float)((double)logit_of(key) - lse);
    }
    if (i == 0)
        s.res.n_top = n_top;
    return key;
}

/* ---- a token -------------------------------------------------------------- */

static __device__ __forceinline__ int
masks_stops(const struct fdk_row &st)
{
    return st.len < st.min_len && st.n_stop > 0;
}

/* Rank 0: chooses among those of the best n ids, one sorted key per thread, that min_p,
 * top_k and top_p keep. */
static __device__ int
choose_listed(struct shared &s, const struct row &r, u64 key, int n)
{
    int i = (int)threadIdx.x, id = id_of(key);
    int in = i < n && key != 0 && passes_min_p(s.st, r, logit_of(key), id);
    u64 all, w = in ? weight<1>(logit_of(key), r.max, r.inv_t) : 0;
    __syncwarp();
    u64 before = block_scan(s, w, &all) - w;
    struct best b = { 0, -1 };
    if (in && (!(s.st.top_p < 1) || before < share(s.st.top_p, all))) {
        b.x = score(s.st, r, logit_of(key), id);
        b.id = id;
    }
    __syncwarp();
    b = warp_best(b);
    if (i % 32 == 0) {
        s.win[i / 32] = b.x;
        s.win_id[i / 32] = b.id;
    }
    __syncthreads();
    b.x = s.win[i % S_WARPS];
    b.id = s.win_id[i % S_WARPS];
    return warp_best(b).id;
}

/* Returns the next token in rank 0; -FDK_BAD_EMPTY if every id is masked, -FDK_BAD_LOGITS
 * if a penalty overflows. sorted: rank 0's best `listed` keys of the raw logits, one per
 * thread. */
template<int RULES>
static __device__ int
next_token(struct shared &s, struct part &p, struct row &r, struct span sp, u64 sorted,
    int listed)
{
    int mask = masks_stops(s.st);
    if (RULES) {
        int forced = fdk_rules_forced(&s.rules);
        if (forced >= 0)
            return forced;
    }
    if (!r.ready && (r.counts != NULL || mask || (RULES && fdk_rules_active(&s.rules)))) {
        sp = prepare<RULES>(s, p, r, mask);
        listed = 0;
    }
    if (sp.best == 0)
        return -FDK_BAD_EMPTY;
    if (is_bad(sp.max))
        return -FDK_BAD_LOGITS;
    if (!(s.st.temperature > 0))
        return id_of(sp.best);
    float t = 1.0f / s.st.temperature;
    r.inv_t = t < 1e30f ? t : 1e30f;
    r.max = sp.max;
    r.best_id = id_of(sp.best);
    u64 cut = 1;
    int k = s.st.top_k > 0 && s.st.top_k < (uint32_t)r.V ? (int)s.st.top_k : 0;
    if (k > 0 && k <= S_LIST) {
        if (listed < k) {
            listed = list_best(s, p, sp, k);
            if (p.rank != 0)
                return -1;
            int i = (int)threadIdx.x;
            sorted = block_sort(s, i < listed ? s.list[i] : 0, listed);
        }
        return p.rank == 0 ? choose_listed(s, r, sorted, listed < k ? listed : k) : -1;
    }
    if (k > 0)
        cut = cut_by_count(s, p, sp, k);
    if (s.st.top_p < 1 && s.st.min_p > 0) {
        u64 least = cut_by_ratio(s.st, r);
        cut = least > cut ? least : cut;
    }
    if (s.st.top_p < 1)
        cut = cut_by_mass(s, p, sp, r.inv_t, cut, s.st.top_p, r.V);
    return choose<RULES>(s, p, r, cut);
}

/* ---- a row ----------------------------------------------------------------- */

/* One thread: updates the state, the penalty count and the result for the token. */
static __device__ void
commit(const struct fdk_sample_args &a, struct shared &s, struct fdk_row *st,
    const struct row &r, int token)
{
    int done = FDK_DONE_NO;
    for (int i = 0; i < s.st.n_stop && i < FDK_MAX_STOP_IDS; i++)
        if (s.st.stop_ids[i] == token)
            done = FDK_DONE_STOP;
    if (done == FDK_DONE_NO && s.st.len + 1 >= s.st.max_len)
        done = FDK_DONE_LENGTH;
    st->last_token = token;
    st->len = s.st.len + 1;
    st->done = done;
    s.res.done = done;
    if (r.rules != NULL)
        fdk_rules_took((struct fdk_rules *)r.rules, &s.rules, s.st.len, token);
    if (r.counts != NULL) {
        uint16_t *c = a.counts + (size_t)s.st.penalty * (size_t)a.V + token;
        if ((*c & 0x7fff) < 0x7fff)
            *c = (uint16_t)(*c + 1);
    }
}

/* Rank 0: writes the logprobs of the ids in fdk_rules.chosen. */
static __device__ void
chosen_logprobs(const struct fdk_sample_args &a, const struct shared &s,
    const struct row &r, const struct fdk_out &out, double lse)
{
    float *ret = a.chosen + (size_t)(out.rules - 1) * FDK_MAX_CHOSEN;
    for (int i = (int)threadIdx.x; i < s.rules.n_chosen; i += S_THREADS)
        ret[i] = (float)((double)r.raw[r.rules[s.rules.chosen + i]] - lse);
}

/* Rank 0 sets s.res; the other blocks contribute. */
template<int RULES>
static __device__ void
row_result(const struct fdk_sample_args &a, struct shared &s, struct part &p,
    struct row &r, const struct fdk_out &out, const struct span &sp, struct fdk_row *st)
{
    int chief = p.rank == 0 && threadIdx.x == 0, is_score = out.kind == FDK_OUT_SCORE;
    if (!is_score && s.st.done != FDK_DONE_NO) {
        if (chief)
            s.res.done = s.st.done;
        return;
    }
    if (sp.best == BAD || (is_score && (out.target < 0 || out.target >= r.V))) {
        if (chief)
            s.res.bad = FDK_BAD_LOGITS;
        return;
    }
    double lse = 0;
    u64 sorted = 0;
    int listed = 0;
    if (out.n_top >= 0) {
        int n = out.n_top < FDK_MAX_LOGPROBS ? out.n_top : FDK_MAX_LOGPROBS;
        int k = s.st.top_k <= THROUGH_LIST && !is_score ? (int)s.st.top_k : 0;
        n = n < r.V ? n : r.V;
        k = k < r.V ? k : r.V;
        sum_exp(s, p, sp.max);
        if (n > 0)               /* usually also enough for the choice */
            listed = list_best(s, p, sp, n > k ? n : k);
        else
            cluster_sync();
        if (p.rank == 0) {
            lse = log_sum_exp(s, p, sp.max);
            sorted = n > 0 ? alternatives(s, listed, n, lse) : 0;
            if (RULES && !is_score)
                chosen_logprobs(a, s, r, out, lse);
        }
    }
    int token = is_score ? out.target : next_token<RULES>(s, p, r, sp, sorted, listed);
    if (!chief)
        return;
    if (token < 0) {
        s.res.bad = -token;
        return;
    }
    s.res.token = token;
    if (!is_score)
        commit(a, s, st, r, token);
    if (out.n_top >= 0)
        s.res.logprob = (float)((double)r.raw[token] - lse);
}

#define ROW_WORDS ((int)(sizeof(struct fdk_row) / 4))
#define RESULT_WORDS ((int)(sizeof(struct fdk_result) / 4))
static_assert(ROW_WORDS <= S_THREADS && RESULT_WORDS <= S_THREADS &&
        FDK_RULES_HEAD <= S_THREADS, "a word per thread");

/* Sets the share of a block in V ids. */
static __device__ __forceinline__ void
part_of(struct part &p, int V)
{
    int quads = (V + 3) / 4, share = (quads + (int)p.size - 1) / (int)p.size;
    int from = (int)p.rank * share < quads ? (int)p.rank * share : quads;
    p.first = 4 * from;
    p.n_quad = quads - from < share ? quads - from : share;
}

/* For a row with rules: loads their lists. Returns 0 if logprobs need the raw logits: then
 * prepare() applies the rules. */
static __device__ __forceinline__ int
ask_rules(struct shared &s, const struct part &p, const struct row &r,
    const struct fdk_out &out)
{
    if (out.n_top >= 0)
        return 0;
    ask_biases(s, r.rules + out.bias, out.n_bias);
    if (out.allowed != 0)
        ask_allowed(s, p, r.rules + out.allowed);
    return 1;
}

/* Stores the head of the row's entry, which rank 0 changes at the end of the row. */
static __device__ __forceinline__ void
keep_rules(struct shared &s, uint32_t head)
{
    if (threadIdx.x < FDK_RULES_HEAD)
        ((uint32_t *)&s.rules)[threadIdx.x] = head;
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
}

/* Applies the rules of a row to its loaded logits, for a greedy row as far as its choice
 * needs them. Returns the key of the largest logit that the thread has changed, or of its
 * largest one. masked: the logits were masked while they were loaded, after keep_rules(). */
static __device__ u64
apply_rules(struct shared &s, const struct part &p, const struct row &r, int masked,
    struct seen &t)
{
    int mask = masks_stops(s.st), some = s.rules.n_bias > 0 || s.rules.n_ban > 0 || mask;
    if (some) {
        if (masked)
            __syncthreads();
        change_some<1>(s, p, r, mask);
        __syncthreads();
    }
    if (s.st.temperature > 0)
        return some ? see_changed(s, p, t) : 0;
    u64 key = best_allowed(s, p, t);
    t.quad = -1;
    return key;
}

static __global__ void __launch_bounds__(S_THREADS, 2)
sample_kernel(struct fdk_sample_args a, struct fdk_batch b)
{
#if __CUDA_ARCH__ >= 900         /* clusters; older devices are refused */
    extern __shared__ float4 logits[];
    __shared__ struct shared s;
    int i = (int)threadIdx.x;
    for (int j = i; j < S_LISTS; j += S_THREADS)
        s.n_list[j] = 0;
    cluster_arrive();            /* no write may reach a block that has not started */
    cu_dep_wait();
    cu_dep_next();
    struct part p = { logits, 0, 0, cluster_rank(), cluster_size(), 0, 0 };
    int at = (int)(blockIdx.x / p.size), o = a.first + at;
    struct row r = { a.logits + (size_t)at * (size_t)a.ldl, NULL, NULL, a.V, 0, -1, 0, 1, 0 };
    part_of(p, a.V);
    /* A few rows after the last output may be read; their result is not used. */
    if (a.R > S_FEW && o >= *b.n_out) {
        cluster_wait();
        return;
    }
    float4 v[4];
    fetch(p, r.raw, a.V, i, v);
    const struct fdk_out out = b.out[o];
    if (o >= *b.n_out) {
        cluster_wait();
        return;
    }
    if (i == 0 && (a.V | a.ldl) % 4 == 0 && at + S_AHEAD < a.R && o + S_AHEAD < *b.n_out)
        ask_ahead(r.raw + (size_t)S_AHEAD * (size_t)a.ldl + p.first, p.n_quad);
    struct fdk_row *st = &a.state[b.state[out.row]];
    uint32_t word = i < ROW_WORDS ? ((const uint32_t *)st)[i] : 0, head = 0;
    r.pos = out.pos;
    int penalty = st->penalty;
    if (a.rules != NULL && out.rules > 0 && out.kind == FDK_OUT_SAMPLE) {
        r.rules = a.rules + (size_t)(out.rules - 1) * (size_t)a.rules_words;
        head = i < FDK_RULES_HEAD ? (uint32_t)r.rules[i] : 0;
        r.ready = ask_rules(s, p, r, out);
    }
    struct seen t = { -INFINITY, INFINITY, -1 };
    int bad = keep_fetched<0>(p, a.V, i, v, NULL, t);
    /* overlaps with the wait for the row's state */
    fetch(p, r.raw, a.V, i + 4 * S_THREADS, v);
    if (i < RESULT_WORDS)
        ((uint32_t *)&s.res)[i] = 0;
    if (i < ROW_WORDS)
        ((uint32_t *)&s.st)[i] = word;
    /* penalties are applied between biases and masks */
    r.ready = r.ready && (a.counts == NULL || penalty < 0);
    const int masked = r.ready && out.allowed != 0 && st->temperature > 0;
    if (masked) {
        keep_rules(s, head);
        mask_first(s, p, t);
        bad |= load_rest<1>(s, p, r, i + 4 * S_THREADS, v, t);
    } else {
        bad |= load_rest<0>(s, p, r, i + 4 * S_THREADS, v, t);
        if (r.rules != NULL)
            keep_rules(s, head);
    }
    const u64 changed = r.ready ? apply_rules(s, p, r, masked, t) : 0;
    cluster_wait();
    struct span sp = span_seen(s, p, t, changed, bad);
    if (i == 0) {
        s.res.token = -1;
        s.res.generation = s.st.generation;
    }
    if (a.counts != NULL && s.st.penalty >= 0)
        r.counts = a.counts + (size_t)s.st.penalty * (size_t)a.V;
    __syncthreads();
    if (r.rules != NULL)
        row_result<1>(a, s, p, r, out, sp, st);
    else
        row_result<0>(a, s, p, r, out, sp, st);
    if (p.rank != 0)
        return;
    __syncthreads();
    if (i < RESULT_WORDS)
        ((uint32_t *)&a.results[o])[i] = ((const uint32_t *)&s.res)[i];
    cluster_sync();              /* other blocks may still read this block's counts */
#endif
}

static_assert(S_LOGITS + sizeof(struct shared) <= 227 << 10, "compute capability 9.0");

/* ---- launching ------------------------------------------------------------- */

static size_t
logits_bytes(int V, unsigned blocks)
{
    size_t quads = ((size_t)V + 3) / 4;
    return (quads + blocks - 1) / blocks * sizeof(float4);
}

/* Not every GPU has room for the largest cluster. Written once, by cu_sample_load(). */
static unsigned most_blocks = S_CLUSTER;

/* Blocks per row; 0: the vocabulary is too large. Each thread has at least a quad. */
static unsigned
cluster_for(int R, int V)
{
    unsigned n = R <= S_FEW ? most_blocks : 8;
    while (n > 1 && (size_t)V < (size_t)n * 4 * S_THREADS)
        n /= 2;
    while (n < most_blocks && logits_bytes(V, n) > S_LOGITS)
        n *= 2;
    return logits_bytes(V, n) > S_LOGITS ? 0 : n;
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
    struct fdk_sample_args rows = *a;
    rows.ldl = a->ldl != 0 ? a->ldl : a->V;
    if (rows.ldl < a->V)
        return -EINVAL;
    unsigned n = cluster_for(a->R, a->V);
    if (n == 0)
        return -ENOTSUP;
    cu_chain_clusters(sample_kernel, n, dim3((unsigned)a->R * n), S_THREADS,
        logits_bytes(a->V, n), cu_raw(st), rows, *a->b);
    return cu_launched(st, "sample");
}

cudaError_t
cu_sample_load(void)
{
    const void *k = (const void *)sample_kernel;
    cudaError_t e = cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize,
        (int)S_LOGITS);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(k, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (e == cudaSuccess)        /* room for two blocks */
        e = cudaFuncSetAttribute(k, cudaFuncAttributePreferredSharedMemoryCarveout,
            cudaSharedmemCarveoutMaxShared);
    cudaLaunchAttribute at[2];
    cudaLaunchConfig_t c = cu_chain_config(at, S_CLUSTER, S_CLUSTER, S_THREADS, S_LOGITS,
        NULL);
    int fit = 0;
    if (e == cudaSuccess &&
        (cudaOccupancyMaxActiveClusters(&fit, k, &c) != cudaSuccess || fit == 0)) {
        (void)cudaGetLastError();
        most_blocks = S_CLUSTER / 2;
    }
    return e != cudaSuccess ? e : cu_load(&k, 1);
}
