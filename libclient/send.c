/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "libclient/priv.h"

/* ---- a record ------------------------------------------------------------ */

/* Stores the value and its bit, if it is set. */
static void
put_float(float *field, uint32_t *set, uint32_t bit, float v)
{
    if (v == FDC_UNSET_F)
        return;
    *field = v;
    *set |= bit;
}

static void
put_u32(uint32_t *field, uint32_t *set, uint32_t bit, uint32_t v)
{
    if (v == FDC_UNSET)
        return;
    *field = v;
    *set |= bit;
}

static void
put_count(uint8_t *field, uint32_t *set, uint32_t bit, int32_t v)
{
    if (v < 0)
        return;
    *field = (uint8_t)v;
    *set |= bit;
}

void
fdc__fill_slot(struct fdp_req *q, uint16_t op, const struct fdc_params *p,
    const struct fdc_submit_opts *o)
{
    memset(q, 0, sizeof(*q));
    q->op = op;
    q->n = (uint16_t)p->n;
    q->flags = p->flags;
    put_u32(&q->max_new, &q->set, FDP_S_MAX_NEW, p->max_new);
    q->min_new = p->min_new;
    put_float(&q->temperature, &q->set, FDP_S_TEMPERATURE, p->temperature);
    put_float(&q->top_p, &q->set, FDP_S_TOP_P, p->top_p);
    put_u32(&q->top_k, &q->set, FDP_S_TOP_K, p->top_k);
    put_float(&q->min_p, &q->set, FDP_S_MIN_P, p->min_p);
    put_float(&q->presence_penalty, &q->set, FDP_S_PRESENCE, p->presence_penalty);
    put_float(&q->frequency_penalty, &q->set, FDP_S_FREQUENCY, p->frequency_penalty);
    put_float(&q->repetition_penalty, &q->set, FDP_S_REPETITION, p->repetition_penalty);
    put_count(&q->logprobs, &q->set, FDP_S_LOGPROBS, p->logprobs);
    put_count(&q->prompt_logprobs, &q->set, FDP_S_PROMPT_LOGPROBS, p->prompt_logprobs);
    q->stream_interval = (uint16_t)o->stream_interval;
    if (p->seed != FDC_UNSET64) {
        q->seed = p->seed;
        q->set |= FDP_S_SEED;
    }
    q->priority = o->priority;
    q->ttl_queue_ms = o->ttl_queue_ms;
    q->ttl_total_ms = o->ttl_total_ms;
    q->n_prior = p->n_prior;
    q->user = o->user;
    q->prompt_from = p->prompt_from;
    q->best_of = (uint16_t)p->best_of;
    memcpy(q->salt, o->salt, sizeof(q->salt));
}

void
fdc__fill_op(struct fdp_req *slot, uint16_t op, uint32_t flags)
{
    memset(slot, 0, sizeof(*slot));
    slot->op = op;
    slot->n = 1;
    slot->flags = flags;
}

/* ---- items --------------------------------------------------------------- */

#define MOST ((uint64_t)1 << 48) /* more than any length, yet sums do not overflow */

struct item_writer {
    unsigned char *dst; /* NULL: only count */
    uint64_t n, cap;
    int bad; /* an item did not fit */
};

static void
put_item(struct item_writer *w, int type, const void *data, uint64_t len)
{
    struct fdp_item h = { .type = (uint16_t)type };
    uint64_t span;

    span = FDP_ITEM_SPAN(len < MOST ? len : MOST);
    if (w->dst && w->n + span > w->cap)
        w->bad = 1;
    if (w->dst && !w->bad) {
        unsigned char *d = w->dst + w->n;
        h.len = (uint32_t)len;
        memset(d + span - 8, 0, 8);
        memcpy(d, &h, sizeof(h));
        if (len)
            memcpy(d + sizeof(h), data, len);
    }
    w->n += span;
}

/* Adds up the biases of each id, since the daemon accepts an id once. A list longer than
 * its limit is sent as it is, to be rejected. */
static void
put_biases(struct item_writer *w, const struct fdc_params *p)
{
    struct fdp_bias b[FDP_MAX_BIAS];
    uint32_t n = 0, k;

    if (p->n_bias > FDP_MAX_BIAS) {
        put_item(w, FDP_IT_LOGIT_BIAS, p->bias, (uint64_t)p->n_bias * 8);
        return;
    }
    for (uint32_t i = 0; i < p->n_bias; i++) {
        for (k = 0; k < n && b[k].id != p->bias[i].id; k++)
            continue;
        if (k == n)
            b[n++] = (struct fdp_bias){ .id = p->bias[i].id };
        b[k].bias += p->bias[i].bias;
    }
    put_item(w, FDP_IT_LOGIT_BIAS, b, (uint64_t)n * 8);
}

static void
put_params(struct item_writer *w, const struct fdc_params *p)
{
    if (p->n_prior)
        put_item(w, FDP_IT_PRIOR_IDS, p->prior_ids, (uint64_t)p->n_prior * 4);
    for (uint32_t i = 0; i < p->n_stop; i++)
        put_item(w, FDP_IT_STOP_STRING, p->stop[i],
            p->stop_len ? p->stop_len[i] : strlen(p->stop[i]));
    if (p->n_stop_ids)
        put_item(w, FDP_IT_STOP_IDS, p->stop_ids, (uint64_t)p->n_stop_ids * 4);
    if (p->n_bias)
        put_biases(w, p);
    for (uint32_t i = 0; i < p->n_bad_words; i++)
        put_item(w, FDP_IT_BAD_WORDS, p->bad_words[i], strlen(p->bad_words[i]));
    if (p->n_allowed)
        put_item(w, FDP_IT_ALLOWED_IDS, p->allowed_ids, (uint64_t)p->n_allowed * 4);
    if (p->grammar_len)
        put_item(w, FDP_IT_GRAMMAR, p->grammar, p->grammar_len);
    for (uint32_t i = 0; i < p->n_bad_ids; i++)
        put_item(w, FDP_IT_BAD_IDS, p->bad_ids[i], (uint64_t)p->bad_ids_len[i] * 4);
    if (p->n_logprob_ids)
        put_item(w, FDP_IT_LOGPROB_IDS, p->logprob_ids, (uint64_t)p->n_logprob_ids * 4);
    if (p->n_spans)
        put_item(w, FDP_IT_SPANS, p->spans, (uint64_t)p->n_spans * sizeof(*p->spans));
    if (p->repetition)
        put_item(w, FDP_IT_REPETITION, p->repetition, sizeof(*p->repetition));
    if (p->reasoning)
        put_item(w, FDP_IT_REASONING, p->reasoning, sizeof(*p->reasoning));
    if (p->adapter)
        put_item(w, FDP_IT_ADAPTER, p->adapter, strlen(p->adapter));
}

/* Copies complete items from a journal. */
static __attribute__((noinline)) void
put_items(struct item_writer *w, const struct blob *b)
{
    if (w->dst && !w->bad && w->n + b->prompt_bytes <= w->cap)
        memcpy(w->dst + w->n, b->prompt, b->prompt_bytes);
    w->n += b->prompt_bytes;
}

static void
put_blob(struct item_writer *w, const struct blob *b)
{
    if (b->type > 0)
        put_item(w, b->type, b->prompt, b->prompt_bytes);
    else if (b->type < 0)
        put_items(w, b);
    if (b->p)
        put_params(w, b->p);
}

int
fdc__blob_bytes(const struct fdc *s, const struct blob *b, uint32_t *ret_bytes)
{
    struct item_writer w = { .cap = FDP_MAX_BLOB };

    put_blob(&w, b);
    *ret_bytes = (uint32_t)(w.n < UINT32_MAX ? w.n : UINT32_MAX);
    return w.n > w.cap || w.n > __atomic_load_n(&s->a_size, __ATOMIC_RELAXED)
        ? FDP_E_ARENA
        : 0;
}

void
fdc__write_items(const struct blob *b, unsigned char *dst, uint32_t bytes)
{
    struct item_writer w = { .dst = dst, .cap = bytes };

    put_blob(&w, b);
}

/* ---- the request ring and its arena -------------------------------------- */

/* Frees the arena bytes of slots that the daemon has taken, oldest first. */
static void
arena_retire(struct fdc *s)
{
    while (s->a_retired != s->sq.head) {
        s->a_used -= s->a_span[s->a_retired & (s->sq.n_slot - 1)];
        s->a_retired++;
    }
    if (s->a_used == 0)
        s->a_at = 0;
}

static int
arena_take(struct fdc *s, uint32_t span, uint32_t *ret_off, uint32_t *ret_cost)
{
    uint32_t left = s->a_size - s->a_used, tail = s->a_size - s->a_at;

    if (span <= tail && span <= left) {
        *ret_off = s->a_at;
        *ret_cost = span;
        return 1;
    }
    if (span > left || tail > left - span)
        return 0;
    *ret_off = 0;
    *ret_cost = tail + span;
    return 1;
}

void
fdc__ring(const struct fdc *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->bell, &one, sizeof(one));

    (void)n; /* a full counter has rung already */
}

int
fdc__put(struct fdc *s, struct fdp_req *slot, const struct blob *b, uint32_t span)
{
    uint32_t off = 0, cost = 0, i;
    int64_t room = fdr_prod_room(&s->sq, 1);

    if (room < 0)
        return FDP_E_PROTO;
    arena_retire(s);
    if (room == 0)
        return FDP_E_FULL;
    if (span && !arena_take(s, span, &off, &cost)) {
        if (fdr_prod_room(&s->sq, s->sq.n_slot) < 0)
            return FDP_E_PROTO;
        arena_retire(s);
        if (!arena_take(s, span, &off, &cost)) /* the next daemon's may be smaller */
            return span > s->a_size ? FDP_E_ARENA : FDP_E_FULL;
    }
    if (span) {
        struct item_writer w = { .dst = s->arena + off, .cap = span };
        put_blob(&w, b);
        if (w.bad || w.n != span)
            return FDP_E_INVAL;
        s->a_at = off + span;
        s->a_used += cost;
    }
    slot->off = off;
    slot->len = span;
    i = s->sq.tail;
    memcpy(fdr_prod_slot(&s->sq, i), slot, sizeof(*slot));
    s->a_span[i & (s->sq.n_slot - 1)] = cost;
    s->sq.tail = i + 1;
    return 0;
}

void
fdc__publish(struct fdc *s)
{
    if (s->sq.pub == s->sq.tail)
        return;
    s->sq.pub = s->sq.tail;
    /* Pairs with the gate, which raises its flag, checks the cursors again and then
     * sleeps. */
    fdr_publish(s->sq.p_tail, s->sq.tail);
    if (fdr_flag_check(s->need_wakeup))
        fdc__ring(s);
}

int
fdc__push(struct fdc *s, struct fdp_req *slot, const struct blob *b, uint32_t span)
{
    int rc = fdc__put(s, slot, b, span);

    if (rc == 0)
        fdc__publish(s);
    return rc;
}

int
fdc__flush_cancels(struct fdc *s)
{
    struct fdp_req q;
    int rc = 0;

    if (s->re.down)
        return 0;
    fdc__fill_op(&q, FDP_OP_CANCEL, 0);
    pthread_mutex_lock(&s->mtx_sq);
    for (uint32_t i = 0; i < s->n_tag && s->n_cancel && rc == 0; i++) {
        struct tag_entry *t = &s->tags[i];
        if (!t->cancel)
            continue;
        q.tag = (uint64_t)t->gen << 32 | i;
        rc = fdc__push(s, &q, NULL, 0);
        if (rc == 0) {
            t->cancel = 0;
            s->n_cancel--;
        }
    }
    pthread_mutex_unlock(&s->mtx_sq);
    return rc == FDP_E_PROTO ? rc : 0;
}
