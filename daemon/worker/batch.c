/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/batch.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/rules.h"
#include "daemon/worker/sampler.h"

#define BAT_ALIGN 64

int32_t
bat_pad_rows(const struct bat_dims *d, int32_t T_pad)
{
    int32_t S = d->S, more = 0;

    /* a divided row is two rows in a copy's plan */
    if (d->n_copy > 1)
        more = d->T / (d->min_split > 1 ? d->min_split : 1);
    S += more < S ? more : S;
    return T_pad < S ? T_pad : S;
}

int32_t
bat_pad_outs(const struct bat_dims *d, int32_t T_pad)
{
    return T_pad < d->O ? T_pad : d->O;
}

static size_t
bat_place(size_t *at, size_t n, size_t size)
{
    size_t here = *at;

    *at = (here + n * size + BAT_ALIGN - 1) & ~(size_t)(BAT_ALIGN - 1);
    return here;
}

void
bat_layout(const struct bat_dims *d, int32_t T_pad, struct bat_layout *ret)
{
    size_t T = (size_t)T_pad, S = (size_t)bat_pad_rows(d, T_pad);
    size_t O = (size_t)bat_pad_outs(d, T_pad), at = 0;

    ret->counts = bat_place(&at, BAT_N_COUNT, sizeof(int32_t));
    ret->q_start = bat_place(&at, S + 1, sizeof(int32_t));
    ret->kv_len = bat_place(&at, S, sizeof(int32_t));
    ret->state = bat_place(&at, S, sizeof(int32_t));
    ret->out = bat_place(&at, O, sizeof(struct fdk_out));
    ret->out_at = bat_place(&at, d->n_copy > 1 ? O : 0, sizeof(int32_t));
    ret->ids = bat_place(&at, T, sizeof(int32_t));
    ret->pos = bat_place(&at, T, sizeof(int32_t));
    ret->slot_map = bat_place(&at, T * (size_t)bat_groups(d), sizeof(int32_t));
    ret->row = bat_place(&at, T, sizeof(int32_t));
    ret->more = bat_place(&at, d->more != NULL ? d->more[T_pad] : 0, 1);
    ret->bytes = at;
}

static void
bat_updates(size_t head, size_t n_update, size_t n_delta, struct bat_updates *ret)
{
    size_t at = head;

    ret->idx = bat_place(&at, n_update, sizeof(int32_t));
    ret->rows = bat_place(&at, n_update, sizeof(struct fdk_row));
    ret->delta = bat_place(&at, n_delta, sizeof(struct fdk_delta));
    ret->bytes = at;
}

size_t
bat_plan_bytes(const struct bat_dims *d)
{
    struct bat_layout l;
    struct bat_updates u;

    bat_layout(d, d->T, &l);
    bat_updates(l.bytes, (size_t)d->S, (size_t)d->S * BAT_MAX_DELTA, &u);
    return u.bytes;
}

void
bat_view(const struct bat_dims *d, int32_t T_pad, void *base, int32_t group,
    const int32_t *table, struct fdk_batch *ret)
{
    unsigned char *b = base;
    struct bat_layout l;
    const int32_t *counts;

    bat_layout(d, T_pad, &l);
    counts = (const int32_t *)(b + l.counts);
    *ret = (struct fdk_batch){ .n_tok = counts + BAT_N_TOK,
        .n_row = counts + BAT_N_ROW,
        .n_out = counts + BAT_N_OUT,
        .ids = (const int32_t *)(b + l.ids),
        .pos = (const int32_t *)(b + l.pos),
        .slot_map = (const int32_t *)(b + l.slot_map) + (size_t)group * (size_t)T_pad,
        .row = (const int32_t *)(b + l.row),
        .q_start = (const int32_t *)(b + l.q_start),
        .kv_len = (const int32_t *)(b + l.kv_len),
        .block_table = table,
        .state = (const int32_t *)(b + l.state),
        .out = (const struct fdk_out *)(b + l.out),
        .table_stride = d->stride,
        .max_row = bat_pad_rows(d, T_pad) };
}

int32_t
bat_table_at(const struct bat_dims *d, int32_t group, int32_t slot)
{
    return (group * (d->S + 1) + slot) * d->stride; /* + 1: the dummy row's table */
}

struct bat *
bat_new(const struct bat_dims *d)
{
    struct bat *b;

    ASSERT(d->T > 0 && d->S > 0 && d->O > 0 && d->stride > 0);
    OBJ_ALLOC(b, BAT_MAGIC);
    if (b == NULL)
        return NULL;
    b->dims = *d;
    b->min_split = d->min_split;
    b->shadow = mem_array((size_t)d->S, sizeof(*b->shadow));
    return b->shadow != NULL ? b : bat_free(b);
}

struct bat *
bat_free(struct bat *b)
{
    if (b == NULL)
        return NULL;
    free(b->shadow);
    OBJ_FREE(b, BAT_MAGIC);
    return NULL;
}

/* Host pointers to the arrays of a plan. */
struct bat_at {
    int32_t *counts, *q_start, *kv_len, *state, *out_at, *ids, *pos, *slot_map, *row;
    struct fdk_out *out;
    int32_t *upd_idx;
    struct fdk_row *upd_rows;
    struct fdk_delta *delta;
};

static struct bat_at
bat_at_of(unsigned char *p, const struct bat_layout *l, const struct bat_updates *u)
{
    return (struct bat_at){ .counts = (int32_t *)(p + l->counts),
        .q_start = (int32_t *)(p + l->q_start),
        .kv_len = (int32_t *)(p + l->kv_len),
        .state = (int32_t *)(p + l->state),
        .out_at = (int32_t *)(p + l->out_at),
        .ids = (int32_t *)(p + l->ids),
        .pos = (int32_t *)(p + l->pos),
        .slot_map = (int32_t *)(p + l->slot_map),
        .row = (int32_t *)(p + l->row),
        .out = (struct fdk_out *)(p + l->out),
        .upd_idx = (int32_t *)(p + u->idx),
        .upd_rows = (struct fdk_row *)(p + u->rows),
        .delta = (struct fdk_delta *)(p + u->delta) };
}

static struct bat_at
bat_at(const struct bat_rec *rec)
{
    return bat_at_of(rec->plan, &rec->layout, &rec->upd);
}

static void
bat_add_out(struct bat_rec *rec, const struct bat_at *a, const struct seq *s,
    struct fdk_out out)
{
    a->out[rec->n_out] = out;
    rec->outs[rec->n_out] = (struct bat_out){ .slot = s->slot,
        .generation = s->generation,
        .pos = out.pos,
        .kind = out.kind == FDK_OUT_SAMPLE ? BAT_OUT_SAMPLE : BAT_OUT_SCORE };
    rec->n_out++;
}

static void
bat_outs(struct bat_rec *rec, const struct bat_at *a, const struct sch_row *row,
    int32_t r, int32_t t0)
{
    const struct seq *s = row->seq;

    for (int32_t i = 0; i < row->n_score; i++) {
        int32_t p = row->score_first + i;

        bat_add_out(rec, a, s,
            (struct fdk_out){ .tok = t0 + p - row->first,
                .row = r,
                .kind = FDK_OUT_SCORE,
                .target = (int32_t)s->req->ids[p + 1],
                .pos = p + 1,
                .n_top = smp_n_top_prompt(s->req) });
    }
    if (s->req->rules != NULL && row->sample && smp_n_top(s->req) >= 0 &&
        smp_n_chosen(s->req) > 0)
        rec->chosen = 1;
    if (row->sample) {
        struct fdk_out out = { .tok = t0 + row->q_len - 1,
            .row = r,
            .kind = FDK_OUT_SAMPLE,
            .pos = row->first + row->q_len,
            .n_top = smp_n_top(s->req) };

        if (s->req->rules != NULL)
            fdk_out_rules(&out, s->penalty, (const void *)s->req->rules->words);
        bat_add_out(rec, a, s, out);
    }
}

static void
bat_tokens(struct bat_rec *rec, const struct bat_at *a, const struct kv *kv,
    const struct sch_row *row, int32_t r)
{
    const struct seq *s = row->seq;
    int32_t t = rec->n_tok;

    for (int32_t i = 0; i < row->q_len; i++, t++) {
        int32_t pos = row->first + i;

        /* the newest sampled token is on the device already */
        a->ids[t] =
            pos >= s->req->n_ids && pos == s->device_len - 1 - row->sample && !row->fresh
            ? -1
            : (int32_t)req_token(s, pos);
        a->pos[t] = pos;
        a->slot_map[t] = kv_slot(kv, s->slot, 0, pos);
        a->row[t] = r;
    }
    for (int32_t g = 1; g < kv->n_group; g++) {
        int32_t *map = a->slot_map + (size_t)g * (size_t)rec->T_pad + (size_t)rec->n_tok;

        for (int32_t i = 0; i < row->q_len; i++)
            map[i] = kv_slot(kv, s->slot, g, row->first + i);
    }
    rec->n_tok = t;
}

/* How many entries of the slot's tables the device has. */
static int32_t
bat_sent(const struct bat *b, const struct seq *s)
{
    const struct bat_shadow *sh = &b->shadow[s->slot];

    return sh->generation == s->generation ? sh->n : 0;
}

/* Records whether row r is divided: q_len tokens of a prompt, or (decode) one generated
 * token. */
static void
bat_mark_split(const struct bat *b, struct bat_rec *rec, int32_t r, int32_t q_len,
    int decode)
{
    if (b->dims.n_copy <= 1)
        return;
    rec->split[r] = !decode && q_len >= b->min_split;
    rec->n_split += rec->split[r];
}

/* A divided step itself is not padded: bat_copies_pad() pads the copies' shares. */
static void
bat_pad_to(const struct bat *b, struct bat_rec *rec, int32_t n_tok)
{
    int32_t T_pad = b->cap != NULL && rec->n_split == 0 ? cap_map(b->cap, n_tok) : 0;

    rec->graph = T_pad > 0;
    rec->T_pad = T_pad > 0 ? T_pad : n_tok;
}

/* Computes sizes first, since padding and the offset of the updates depend on them. */
static void
bat_size(struct bat *b, const struct sch_step *st, const struct kv *kv, struct bat_rec *rec)
{
    rec->epoch = st->epoch;
    rec->n_row = st->n_row;
    rec->n_decode = st->n_decode;
    rec->cost = st->cost;
    rec->n_tok = rec->n_out = rec->n_update = rec->n_delta = 0;
    rec->n_table = rec->n_entry = rec->chosen = rec->n_split = 0;
    for (int32_t r = 0; r < st->n_row; r++)
        bat_mark_split(b, rec, r, st->rows[r].q_len, st->rows[r].decode);
    bat_pad_to(b, rec, st->n_tok);
    for (int32_t r = 0; r < st->n_row; r++) {
        const struct seq *s = st->rows[r].seq;
        int32_t n;

        rec->n_update += st->rows[r].fresh;
        n = (kv->n_held[s->slot] - bat_sent(b, s)) * kv->n_group;
        rec->n_delta += n <= BAT_MAX_DELTA ? n : 0;
    }
    bat_layout(&b->dims, rec->T_pad, &rec->layout);
    bat_updates(rec->layout.bytes, (size_t)rec->n_update, (size_t)rec->n_delta, &rec->upd);
}

static void
bat_table(struct bat *b, const struct kv *kv, struct bat_rec *rec, const struct bat_at *a,
    const struct seq *s)
{
    int32_t n = kv->n_held[s->slot], sent = bat_sent(b, s);

    if (sent == n)
        return;
    for (int32_t g = 0; g < kv->n_group; g++) {
        const int32_t *t = kv_row(kv, s->slot, g);
        int32_t at = bat_table_at(&b->dims, g, s->slot);

        if ((n - sent) * kv->n_group > BAT_MAX_DELTA) {
            rec->table[rec->n_table++] =
                (struct bat_table){ .src = t + sent, .at = at + sent, .n = n - sent };
            continue;
        }
        for (int32_t i = sent; i < n; i++)
            a->delta[rec->n_delta++] = (struct fdk_delta){ .at = at + i, .block = t[i] };
    }
    b->shadow[s->slot] = (struct bat_shadow){ s->generation, n };
}

static void
bat_entry(const struct bat *b, struct bat_rec *rec, const struct seq *s)
{
    struct bat_entry *e = &rec->entry[rec->n_entry++];
    size_t at = (size_t)s->penalty;

    *e = (struct bat_entry){ .at = s->penalty, .counts = smp_counted(s->req) };
    if (e->counts)
        smp_counts(s, b->vocab, b->counts + at * (size_t)b->vocab);
    if (s->req->rules != NULL)
        e->n_rules = smp_rules(s, b->rules + at * fdk_rules_words(b->vocab));
}

static void
bat_fresh(const struct bat *b, struct bat_rec *rec, const struct bat_at *a,
    const struct seq *s)
{
    a->upd_idx[rec->n_update] = s->slot;
    smp_row(s, &a->upd_rows[rec->n_update]);
    rec->n_update++;
    if (s->penalty >= 0)
        bat_entry(b, rec, s);
}

static void
bat_padding(const struct bat_dims *d, int32_t T_pad, int32_t n_tok, int32_t n_row,
    const struct bat_at *a)
{
    int32_t S_pad = bat_pad_rows(d, T_pad);

    for (int32_t t = n_tok; t < T_pad; t++) {
        a->ids[t] = 0;
        a->pos[t] = 0;
        a->row[t] = S_pad - 1;
        for (int32_t g = 0; g < bat_groups(d); g++)
            a->slot_map[g * T_pad + t] = t % d->block_size;
    }
    for (int32_t r = n_row; r < S_pad; r++) {
        a->q_start[r + 1] = n_tok;
        a->kv_len[r] = 0;
        a->state[r] = d->S;
    }
}

/* Pads all copies to the largest copy's tokens, so that all launch the same shapes. */
static void
bat_copies_pad(const struct bat *b, struct bat_rec *rec, const int32_t *q_start)
{
    const struct bat_dims *d = &b->dims;
    int32_t most = 1, T_pad;

    for (int32_t p = 0; p < d->n_copy && rec->n_split > 0; p++) {
        int32_t n = 0;

        for (int32_t r = 0; r < rec->n_row; r++) {
            int32_t len = q_start[r + 1] - q_start[r];

            n += rec->split[r] ? bat_share(len, p, d->n_copy) : len;
        }
        most = n > most ? n : most;
    }
    T_pad = b->cap != NULL ? cap_map(b->cap, most) : 0;
    rec->copy_pad = T_pad > 0 ? T_pad : most;
    if (rec->n_split > 0)
        rec->graph = T_pad > 0;
}

void
bat_fill(struct bat *b, const struct sch_step *st, const struct kv *kv, struct bat_rec *rec)
{
    struct bat_at a;

    OBJ_CHECK(b, BAT_MAGIC);
    ASSERT(st->n_row > 0 && st->n_row <= b->dims.S && st->n_tok <= b->dims.T);
    ASSERT(st->n_sample + st->n_score <= b->dims.O && kv->stride == b->dims.stride);
    ASSERT(kv->n_slot == b->dims.S && kv->n_group == bat_groups(&b->dims));
    bat_size(b, st, kv, rec);
    rec->tables = kv->table;
    rec->group_step = kv->group_step;
    a = bat_at(rec);
    a.q_start[0] = 0;
    rec->mark = 0;
    rec->n_update = rec->n_delta = 0;
    for (int32_t r = 0; r < st->n_row; r++) {
        const struct sch_row *row = &st->rows[r];
        const struct seq *s = row->seq;
        int32_t t0 = rec->n_tok;

        bat_tokens(rec, &a, kv, row, r);
        bat_outs(rec, &a, row, r, t0);
        bat_table(b, kv, rec, &a, s);
        a.q_start[r + 1] = rec->n_tok;
        a.kv_len[r] = row->first + row->q_len;
        a.state[r] = s->slot;
        if (row->fresh)
            bat_fresh(b, rec, &a, s);
    }
    bat_padding(&b->dims, rec->T_pad, rec->n_tok, rec->n_row, &a);
    bat_copies_pad(b, rec, a.q_start);
    a.counts[BAT_N_TOK] = rec->n_tok;
    a.counts[BAT_N_ROW] = rec->n_row;
    a.counts[BAT_N_OUT] = rec->n_out;
    a.counts[BAT_N_UPDATE] = rec->n_update;
    a.counts[BAT_N_DELTA] = rec->n_delta;
    a.counts[BAT_EPOCH] = (int32_t)(uint32_t)rec->epoch;
}

/* ---- copies --------------------------------------------------------------------------- */

int32_t
bat_share(int32_t len, int32_t p, int32_t n_copy)
{
    int32_t n = 0;

    for (int32_t i = 0; i < 2; i++) {
        int32_t s = bat_shard_of(p, i, n_copy);

        n += bat_shard(len, s + 1, 2 * n_copy) - bat_shard(len, s, 2 * n_copy);
    }
    return n;
}

/* State while a copy's plan is made. */
struct bat_cut {
    const struct bat_dims *d;
    const struct bat_rec *rec;
    struct bat_copy *c;
    struct bat_at from, to;
    int32_t p;
    int32_t o; /* index of the step's next output */
};

/* Copies the outputs of the step's tokens [first, end) to row r of the copy. Token
 * `first` is the copy's token t. */
static void
bat_cut_outs(struct bat_cut *k, int32_t r, int32_t first, int32_t end, int32_t t)
{
    while (k->o < k->rec->n_out && k->from.out[k->o].tok < first)
        k->o++;
    for (; k->o < k->rec->n_out && k->from.out[k->o].tok < end; k->o++) {
        int32_t n = k->c->n_out++;

        k->to.out[n] = k->from.out[k->o];
        k->to.out[n].tok += t - first;
        k->to.out[n].row = r;
        k->to.out_at[n] = k->o;
    }
}

/* Adds tokens [first, end) of the step's row r as a row of the copy. with_outs: this copy
 * computes their outputs. */
static void
bat_cut_row(struct bat_cut *k, int32_t r, int32_t first, int32_t end, int with_outs)
{
    int32_t n = end - first, t = k->c->n_tok, own = k->c->n_row;
    size_t bytes = (size_t)n * sizeof(int32_t);

    if (n == 0)
        return;
    memcpy(k->to.ids + t, k->from.ids + first, bytes);
    memcpy(k->to.pos + t, k->from.pos + first, bytes);
    for (int32_t g = 0; g < bat_groups(k->d); g++)
        memcpy(k->to.slot_map + (size_t)g * (size_t)k->rec->copy_pad + t,
            k->from.slot_map + (size_t)g * (size_t)k->rec->T_pad + first, bytes);
    for (int32_t i = 0; i < n; i++)
        k->to.row[t + i] = own;
    k->to.q_start[own + 1] = t + n;
    k->to.kv_len[own] = k->from.kv_len[r] - (k->from.q_start[r + 1] - end);
    k->to.state[own] = k->from.state[r];
    if (with_outs)
        bat_cut_outs(k, own, first, end, t);
    k->c->n_tok += n;
    k->c->n_row++;
}

/* Adds the undivided rows, which all copies compute; copy 0 has their outputs. */
static void
bat_cut_whole(struct bat_cut *k)
{
    k->o = 0;
    for (int32_t r = 0; r < k->rec->n_row; r++)
        if (!k->rec->split[r])
            bat_cut_row(k, r, k->from.q_start[r], k->from.q_start[r + 1], k->p == 0);
}

static void
bat_cut_divided(struct bat_cut *k)
{
    int32_t n = 2 * k->d->n_copy;

    k->o = 0;
    for (int32_t r = 0; r < k->rec->n_row; r++) {
        int32_t first = k->from.q_start[r], len = k->from.q_start[r + 1] - first;

        for (int32_t i = 0; i < 2 && k->rec->split[r]; i++) {
            int32_t s = bat_shard_of(k->p, i, k->d->n_copy);

            bat_cut_row(k, r, first + bat_shard(len, s, n),
                first + bat_shard(len, s + 1, n), 1);
        }
    }
}

void
bat_copy_fill(const struct bat_dims *d, const struct bat_rec *rec, int32_t p)
{
    struct bat_cut k = { .d = d, .rec = rec, .c = &rec->copy[p], .from = bat_at(rec), .p = p };
    struct bat_copy *c = k.c;

    ASSERT(rec->n_split > 0 && p < d->n_copy);
    c->n_tok = c->n_row = c->n_out = 0;
    bat_layout(d, rec->copy_pad, &c->layout);
    bat_updates(c->layout.bytes, (size_t)rec->n_update, (size_t)rec->n_delta, &c->upd);
    k.to = bat_at_of(c->plan, &c->layout, &c->upd);
    k.to.q_start[0] = 0;
    bat_cut_whole(&k);
    k.to.counts[BAT_SHARE] = c->n_tok;
    bat_cut_divided(&k);
    k.to.counts[BAT_SHARE_END] = c->n_tok;
    k.to.counts[BAT_N_TOK] = c->n_tok;
    k.to.counts[BAT_N_ROW] = c->n_row;
    k.to.counts[BAT_N_OUT] = c->n_out;
    k.to.counts[BAT_N_UPDATE] = rec->n_update;
    k.to.counts[BAT_N_DELTA] = rec->n_delta;
    k.to.counts[BAT_EPOCH] = k.from.counts[BAT_EPOCH];
    bat_padding(d, rec->copy_pad, c->n_tok, c->n_row, &k.to);
    memcpy(c->plan + c->layout.bytes, rec->plan + rec->layout.bytes,
        rec->upd.bytes - rec->layout.bytes);
}

/* ---- synthetic steps ------------------------------------------------------------------ */

int32_t
bat_synth_rows(const struct bat_synth *m)
{
    return m->n_decode + (m->n_prefill > 0);
}

static int32_t
bat_synth_len(const struct bat_synth *m, int32_t r)
{
    return r < m->n_decode ? m->context : m->n_prefill;
}

static int64_t
bat_blocks(const struct bat_dims *d, int32_t len)
{
    return ((int64_t)len + d->block_size - 1) / d->block_size;
}

int64_t
bat_synth_blocks(const struct bat_dims *d, const struct bat_synth *m)
{
    return (m->n_decode * bat_blocks(d, m->context) + bat_blocks(d, m->n_prefill)) *
        bat_groups(d);
}

size_t
bat_synth_at(const struct bat_dims *d, const struct bat_synth *m, int32_t group, int32_t r)
{
    return ((size_t)group * (size_t)bat_synth_rows(m) + (size_t)r) * (size_t)d->stride;
}

/* Adds row r to the plan as new: it samples greedily and does not end. */
static void
bat_synth_fresh(struct bat *b, const struct bat_synth *m, struct bat_rec *rec,
    const struct bat_at *a, int32_t r)
{
    int32_t len = bat_synth_len(m, r);

    a->upd_idx[rec->n_update] = r;
    a->upd_rows[rec->n_update++] = (struct fdk_row){ .len = len,
        .max_len = INT32_MAX,
        .penalty = -1,
        .top_p = 1,
        .repetition = 1 };
    for (int32_t g = 0; g < bat_groups(&b->dims); g++)
        rec->table[rec->n_table++] =
            (struct bat_table){ .src = m->table + bat_synth_at(&b->dims, m, g, r),
                .at = bat_table_at(&b->dims, g, r),
                .n = (int32_t)bat_blocks(&b->dims, len) };
    b->shadow[r] = (struct bat_shadow){ 0 };
}

static void
bat_synth_row(struct bat *b, const struct bat_synth *m, struct bat_rec *rec,
    const struct bat_at *a, int32_t r)
{
    int32_t len = bat_synth_len(m, r), n = r < m->n_decode ? 1 : len, t = rec->n_tok;
    int32_t B = b->dims.block_size;

    for (int32_t i = 0; i < n; i++, t++) {
        a->ids[t] = (int32_t)(((int64_t)t * 7919 + 1) % b->vocab);
        a->pos[t] = len - n + i;
        a->row[t] = r;
        for (int32_t g = 0; g < bat_groups(&b->dims); g++) {
            const int32_t *own = m->own + bat_synth_at(&b->dims, m, g, r);

            a->slot_map[g * rec->T_pad + t] = own[a->pos[t] / B] * B + a->pos[t] % B;
        }
    }
    a->out[rec->n_out++] = (struct fdk_out){ .tok = t - 1,
        .row = r,
        .kind = FDK_OUT_SAMPLE,
        .pos = len,
        .n_top = -1 };
    rec->n_tok = t;
    a->q_start[r + 1] = t;
    a->kv_len[r] = len;
    a->state[r] = r;
}

void
bat_make(struct bat *b, const struct bat_synth *m, int fresh, struct bat_rec *rec)
{
    int32_t n_tok = m->n_decode + m->n_prefill, n_row = bat_synth_rows(m);
    struct bat_at a;

    OBJ_CHECK(b, BAT_MAGIC);
    ASSERT(n_row > 0 && n_row <= b->dims.S && n_tok <= b->dims.T && n_row <= b->dims.O);
    rec->n_row = n_row;
    rec->tables = m->table;
    rec->group_step = bat_synth_at(&b->dims, m, 1, 0);
    rec->n_decode = m->n_decode;
    rec->n_tok = rec->n_out = rec->n_update = rec->n_delta = 0;
    rec->n_table = rec->n_entry = rec->chosen = rec->mark = rec->n_split = 0;
    for (int32_t r = 0; r < n_row; r++)
        bat_mark_split(b, rec, r, r < m->n_decode ? 1 : m->n_prefill, r < m->n_decode);
    bat_pad_to(b, rec, n_tok);
    bat_layout(&b->dims, rec->T_pad, &rec->layout);
    bat_updates(rec->layout.bytes, fresh ? (size_t)n_row : 0, 0, &rec->upd);
    a = bat_at(rec);
    a.q_start[0] = 0;
    for (int32_t r = 0; r < n_row; r++) {
        bat_synth_row(b, m, rec, &a, r);
        if (fresh)
            bat_synth_fresh(b, m, rec, &a, r);
    }
    bat_padding(&b->dims, rec->T_pad, rec->n_tok, rec->n_row, &a);
    bat_copies_pad(b, rec, a.q_start);
    a.counts[BAT_N_TOK] = rec->n_tok;
    a.counts[BAT_N_ROW] = rec->n_row;
    a.counts[BAT_N_OUT] = rec->n_out;
    a.counts[BAT_N_UPDATE] = rec->n_update;
    a.counts[BAT_N_DELTA] = 0;
    a.counts[BAT_EPOCH] = 0;
}
