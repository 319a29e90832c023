/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/sample.h"

#include <math.h>
#include <string.h>

struct row {
    const struct cpu_isa *isa;
    const float *x; /* (V) logits, penalized and masked */
    int V;
    const struct fdk_row *st;
    uint32_t pos;
    float max; /* of x */
    float inv_t;
    struct sample_cand *heap; /* kept tokens are stored at its end */
};

int
sample_n_slice(int V)
{
    return (V - 1) / CPU_VOCAB_SLICE + 1;
}

static size_t
n_lane(const struct fdk_sample_args *a)
{
    return a->R < SAMPLE_LANES ? (size_t)a->R : SAMPLE_LANES;
}

/* Heaps, slices and penalized rows; the latter are counted even without penalties. */
size_t
sample_scratch_bytes(const struct fdk_sample_args *a)
{
    size_t V = (size_t)a->V, heap = n_lane(a) * V * sizeof(struct sample_cand);
    return heap + (size_t)a->R * (size_t)sample_n_slice(a->V) * sizeof(struct cpu_slice) +
        n_lane(a) * V * sizeof(float);
}

struct cpu_slice *
sample_slices(const struct fdk_sample_args *a)
{
    return (void *)((struct sample_cand *)a->scratch + n_lane(a) * (size_t)a->V);
}

struct sample_lane
sample_lane(const struct fdk_sample_args *a, int lane)
{
    size_t at = (size_t)lane * (size_t)a->V;
    struct sample_lane l = { (struct sample_cand *)a->scratch + at, NULL };
    if (a->counts != NULL)
        l.penalized = (float *)(void *)(sample_slices(a) +
                          (size_t)a->R * (size_t)sample_n_slice(a->V)) +
            at;
    return l;
}

static uint16_t *
row_counts(const struct fdk_sample_args *a, const struct fdk_row *st)
{
    if (a->counts == NULL || st->penalty < 0)
        return NULL;
    return a->counts + (size_t)st->penalty * (size_t)a->V;
}

int32_t *
sample_rules(const struct fdk_sample_args *a, const struct fdk_out *out)
{
    if (a->rules == NULL || out->kind != FDK_OUT_SAMPLE || out->rules <= 0)
        return NULL;
    return a->rules + (size_t)(out->rules - 1) * (size_t)a->rules_words;
}

void
sample_commit(const struct fdk_sample_args *a, const struct fdk_out *out,
    struct fdk_row *st, int32_t token, struct fdk_result *r)
{
    uint16_t *counts = row_counts(a, st);
    struct fdk_rules *rules = (void *)sample_rules(a, out);
    int32_t done = FDK_DONE_NO;
    if (rules != NULL)
        fdk_rules_took(rules, rules, st->len, token);
    st->last_token = token;
    st->len++;
    for (int i = 0; i < st->n_stop && i < FDK_MAX_STOP_IDS; i++)
        if (st->stop_ids[i] == token)
            done = FDK_DONE_STOP;
    if (done == FDK_DONE_NO && st->len >= st->max_len)
        done = FDK_DONE_LENGTH;
    st->done = done;
    r->token = token;
    r->done = done;
    if (counts != NULL && (counts[token] & 0x7fff) != 0x7fff)
        counts[token]++;
}

/* ---- the ids in descending order ----------------------------------------- */

static int
before(struct sample_cand a, struct sample_cand b)
{
    return a.x > b.x || (a.x == b.x && a.id < b.id);
}

static void
sift_down(struct sample_cand *h, int n, int i)
{
    struct sample_cand c = h[i];
    for (int k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && before(h[k + 1], h[k]))
            k++;
        if (!before(h[k], c))
            break;
        h[i] = h[k];
    }
    h[i] = c;
}

/*
 * Kept tokens are popped from a heap in order; ids are added to the heap in bands of
 * descending logits, so a small top_k or top_p adds few of them. The heap is at the front
 * of the array, the kept tokens are at its end, in reverse order.
 */
struct order {
    struct row *r;
    int n_heap, n_kept;
    float floor; /* ids with at least this logit are in the heap or kept */
    float step;
};

static void
order_band(struct order *o)
{
    struct row *r = o->r;
    float ceil = o->floor, width = o->step;
    o->floor = ceil - width;
    o->step *= 2;
    if (!(o->floor > -1e30f) || o->floor >= ceil)
        o->floor = -INFINITY;
    for (int i = 0;; i++) {
        i = r->isa->next_ge(r->x, i, r->V, o->floor);
        if (i >= r->V)
            break;
        if (r->x[i] < ceil && r->x[i] > -INFINITY)
            r->heap[o->n_heap++] = (struct sample_cand){ r->x[i], i };
    }
    for (int i = o->n_heap / 2 - 1; i >= 0; i--)
        sift_down(r->heap, o->n_heap, i);
}

/* Gets the next id in order. Returns 0 if there is none. */
static int
order_next(struct order *o, struct sample_cand *ret)
{
    struct row *r = o->r;
    while (o->n_heap == 0) {
        if (o->floor == -INFINITY)
            return 0;
        order_band(o);
    }
    *ret = r->heap[0];
    r->heap[0] = r->heap[--o->n_heap];
    if (o->n_heap > 1)
        sift_down(r->heap, o->n_heap, 0);
    r->heap[r->V - 1 - o->n_kept++] = *ret;
    return 1;
}

/* ---- choosing ------------------------------------------------------------ */

/* Log of the unnormalized probability relative to the best id. */
static double
scaled(const struct row *r, float x)
{
    return ((double)x - (double)r->max) / (double)r->st->temperature;
}

static double
noise(uint32_t word)
{
    return -log(-log(((double)word + 0.5) * 0x1p-32));
}

static double
score(const struct row *r, float x, int32_t id)
{
    uint32_t w[4];
    const uint32_t ctr[4] = { r->pos, r->st->sample, 0, (uint32_t)id / 4 };
    fdk_philox(r->st->seed, ctr, w);
    return scaled(r, x) + noise(w[id % 4]);
}

static int32_t
argmax(const struct row *r)
{
    return r->isa->next_ge(r->x, 0, r->V, r->max);
}

/* Chooses among all ids; computes the score only of those whose noise could be enough. */
static int32_t
choose_all(const struct row *r)
{
    int32_t id = argmax(r);
    double best = score(r, r->x[id], id);
    for (int i = 0; i < r->V; i += CPU_GUMBEL_IDS) {
        struct cpu_gumbel g = {
            .x = r->x + i,
            .seed = r->st->seed,
            .pos = r->pos,
            .sample = r->st->sample,
            .first = i,
            .n = r->V - i < CPU_GUMBEL_IDS ? r->V - i : CPU_GUMBEL_IDS,
            .max = r->max,
            .inv_t = r->inv_t,
            .best = (float)best - 0.001f,
        };
        uint32_t word[CPU_GUMBEL_IDS];
        for (uint64_t m = r->isa->gumbel(&g, word); m != 0; m &= m - 1) {
            int j = __builtin_ctzll(m);
            double s = scaled(r, g.x[j]) + noise(word[j]);
            if (s > best || (s == best && i + j < id)) {
                best = s;
                id = i + j;
            }
        }
    }
    return id;
}

static double
mass_all(const struct row *r)
{
    double z = 0;
    for (int i = 0; i < r->V; i += CPU_VOCAB_SLICE) {
        int n = r->V - i < CPU_VOCAB_SLICE ? r->V - i : CPU_VOCAB_SLICE;
        z += (double)r->isa->sum_exp(r->x + i, n, r->max, r->inv_t);
    }
    return z;
}

/* Number of ids, in order, that min_p, top_k and top_p leave: each restricts the ids left
 * by the one before, and top_p is relative to the mass of the ids left so far. */
static int
keep(struct row *r, struct order *o)
{
    const struct fdk_row *st = r->st;
    struct sample_cand c;
    int k = st->top_k > 0 && st->top_k < (uint32_t)r->V ? (int)st->top_k : r->V;
    int by_p = st->top_p < 1, n = 0;
    double z = 0, cum = 0;
    if (by_p && k == r->V && !(st->min_p > 0))
        z = mass_all(r);
    else
        while (o->n_kept < k && order_next(o, &c)) {
            double p = exp(scaled(r, c.x));
            if (st->min_p > 0 && o->n_kept > 1 && p < (double)st->min_p)
                k = o->n_kept - 1;
            else
                z += p;
        }
    for (;; n++) {
        if (n == k || (n == o->n_kept && !order_next(o, &c)))
            return n;
        c = r->heap[r->V - 1 - n];
        if (n > 0 && by_p && cum >= (double)st->top_p * z)
            return n;
        cum += exp(scaled(r, c.x));
    }
}

static int32_t
choose(struct row *r)
{
    const struct fdk_row *st = r->st;
    if (!(st->temperature > 0))
        return argmax(r);
    r->inv_t = 1.0f / st->temperature < 1e30f ? 1.0f / st->temperature : 1e30f;
    if ((st->top_k == 0 || st->top_k >= (uint32_t)r->V) && !(st->top_p < 1) &&
        !(st->min_p > 0))
        return choose_all(r);
    struct order o = { .r = r, .floor = INFINITY };
    /* The first band covers the ids within 4 of the best log probability. */
    o.floor = nextafterf(r->max, INFINITY);
    o.step = 4 * st->temperature;
    int n = keep(r, &o);
    int32_t id = -1;
    double best = 0;
    for (int i = 0; i < n; i++) {
        struct sample_cand c = r->heap[r->V - 1 - i];
        double s = score(r, c.x, c.id);
        if (id < 0 || s > best || (s == best && c.id < id)) {
            best = s;
            id = c.id;
        }
    }
    return id;
}

/* ---- a row --------------------------------------------------------------- */

static void
alternatives(const struct cpu_isa *isa, const float *x, int V, double lse, int n_top,
    struct fdk_result *ret)
{
    float top[FDK_MAX_LOGPROBS];
    int n = 0;
    if (n_top > V)
        n_top = V;
    float bound = -INFINITY;
    for (int i = 0; n_top > 0; i++) {
        i = isa->next_ge(x, i, V, bound);
        if (i >= V)
            break;
        if (n == n_top && !(x[i] > top[n - 1]))
            continue;
        int j = n < n_top ? n++ : n - 1;
        for (; j > 0 && x[i] > top[j - 1]; j--) {
            top[j] = top[j - 1];
            ret->top_id[j] = ret->top_id[j - 1];
        }
        top[j] = x[i];
        ret->top_id[j] = i;
        if (n == n_top)
            bound = top[n - 1];
    }
    for (int i = 0; i < n; i++)
        ret->top_logprob[i] = (float)((double)top[i] - lse);
    ret->n_top = n;
}

/* ---- rules --------------------------------------------------------------- */

struct rules { /* rules of a row */
    const int32_t *entry;
    const struct fdk_rules *head;
    float raw[FDK_MAX_BIAS]; /* the logits that biases were added to */
};

static void
bias_add(struct rules *ru, float *x)
{
    const int32_t *id = ru->entry + ru->head->bias;
    for (int i = 0; i < ru->head->n_bias; i++) {
        float bias;
        memcpy(&bias, id + ru->head->n_bias + i, sizeof(bias));
        ru->raw[i] = x[id[i]];
        x[id[i]] += bias;
    }
}

static void
bias_undo(const struct rules *ru, float *x)
{
    const int32_t *id = ru->entry + ru->head->bias;
    for (int i = 0; i < ru->head->n_bias; i++)
        x[id[i]] = ru->raw[i];
}

static void
mask_rules(const struct rules *ru, float *x, int V, int32_t len)
{
    const struct fdk_rules *h = ru->head;
    for (int i = 0; h->allowed != 0 && i < V; i += 32) {
        uint32_t out = ~(uint32_t)ru->entry[h->allowed + i / 32];
        for (int j = 0; out != 0 && j < 32 && i + j < V; j++, out >>= 1)
            if (out & 1)
                x[i + j] = -INFINITY;
    }
    for (int i = 0; i < h->n_ban; i++) {
        int32_t id = fdk_rules_banned(h, ru->entry, i, len);
        if (id >= 0)
            x[id] = -INFINITY;
    }
}

static void
chosen_logprobs(const struct fdk_sample_args *a, const struct fdk_out *out,
    const struct rules *ru, const float *x, double lse)
{
    float *ret = a->chosen + (size_t)(out->rules - 1) * FDK_MAX_CHOSEN;
    for (int i = 0; i < ru->head->n_chosen; i++)
        ret[i] = (float)((double)x[ru->entry[ru->head->chosen + i]] - lse);
}

/* Prepares the row's logits: applies penalties to the biased logits, then masks. Returns
 * 0 or FDK_BAD_*. */
static int
prepare(struct row *r, const struct fdk_sample_args *a, float *x, float *penalized,
    const struct rules *ru)
{
    const struct fdk_row *st = r->st;
    const uint16_t *counts = row_counts(a, st);
    int mask = st->len < st->min_len && st->n_stop > 0;
    int ruled = ru->head != NULL && fdk_rules_active(ru->head);
    if (counts != NULL && (st->presence != 0 || st->frequency != 0 || st->repetition != 1)) {
        r->isa->penalize(penalized, x, counts, r->V, st);
        x = penalized;
    } else if (!mask && !ruled) {
        return 0;
    }
    if (ruled)
        mask_rules(ru, x, r->V, st->len);
    for (int i = 0; mask && i < st->n_stop && i < FDK_MAX_STOP_IDS; i++)
        if (st->stop_ids[i] >= 0 && st->stop_ids[i] < r->V)
            x[st->stop_ids[i]] = -INFINITY;
    r->x = x;
    r->max = r->isa->max(x, r->V);
    if (r->max == -INFINITY)
        return FDK_BAD_EMPTY;
    return isfinite(r->max) ? 0 : FDK_BAD_LOGITS;
}

/* Returns the next token, or -1 and sets *ret_bad. Afterwards x[token] is the raw logit
 * again. */
static int32_t
next_token(struct row *r, const struct fdk_sample_args *a, float *x, float *penalized,
    struct rules *ru, int32_t *ret_bad)
{
    int32_t id = ru->head != NULL ? fdk_rules_forced(ru->head) : -1;
    if (id >= 0)
        return id;
    if (ru->head != NULL)
        bias_add(ru, x);
    *ret_bad = prepare(r, a, x, penalized, ru);
    if (*ret_bad == 0)
        id = choose(r);
    if (ru->head != NULL)
        bias_undo(ru, x);
    return id;
}

void
sample_row(const struct cpu_isa *isa, const struct fdk_sample_args *a, int o,
    const struct cpu_slice *slices, struct sample_lane lane)
{
    const struct fdk_out *out = &a->b->out[o];
    struct fdk_row *st = &a->state[a->b->state[out->row]];
    struct fdk_result *ret = &a->results[o];
    float *x = sample_logits(a, o - a->first);
    int V = a->V, n_slice = sample_n_slice(V), finite = 1;
    float max = slices[0].max;
    double sum = 0, lse = 0;

    memset(ret, 0, sizeof(*ret));
    ret->token = -1;
    ret->generation = st->generation;
    if (out->kind == FDK_OUT_SAMPLE && st->done != FDK_DONE_NO) {
        ret->done = st->done;
        return;
    }
    for (int i = 0; i < n_slice; i++) {
        finite &= slices[i].finite;
        max = slices[i].max > max ? slices[i].max : max;
    }
    if (!finite || (out->kind == FDK_OUT_SCORE && (out->target < 0 || out->target >= V))) {
        ret->bad = FDK_BAD_LOGITS;
        return;
    }
    struct rules ru;
    ru.entry = sample_rules(a, out);
    ru.head = (const struct fdk_rules *)(const void *)ru.entry;
    if (out->n_top >= 0) {
        for (int i = 0; i < n_slice; i++)
            sum += (double)slices[i].sum * exp((double)slices[i].max - (double)max);
        lse = (double)max + log(sum);
        alternatives(isa, x, V, lse,
            out->n_top < FDK_MAX_LOGPROBS ? out->n_top : FDK_MAX_LOGPROBS, ret);
        if (ru.head != NULL)
            chosen_logprobs(a, out, &ru, x, lse);
    }
    if (out->kind == FDK_OUT_SCORE) {
        ret->token = out->target;
    } else {
        struct row r = { isa, x, V, st, (uint32_t)out->pos, max, 1, lane.heap };
        int32_t id = next_token(&r, a, x, lane.penalized, &ru, &ret->bad);
        if (id < 0)
            return;
        sample_commit(a, out, st, id, ret);
    }
    if (out->n_top >= 0)
        ret->logprob = (float)((double)x[ret->token] - lse);
}
