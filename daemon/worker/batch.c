#include "config.h"

#include "daemon/worker/batch.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/sampler.h"

#define BAT_ALIGN 256

int32_t
bat_pad(int32_t n_tok, int32_t T_max)
{
    int32_t t;

    if (n_tok <= 4)
        t = n_tok <= 2 ? n_tok : 4;
    else if (n_tok <= 128)
        t = (n_tok + 7) / 8 * 8;
    else if (n_tok <= 256)
        t = (n_tok + 15) / 16 * 16;
    else if (n_tok <= 1024)
        t = (n_tok + 31) / 32 * 32;
    else
        for (t = 2048; t < n_tok; t *= 2)
            continue;
    return t < T_max ? t : T_max;
}

int32_t
bat_pad_rows(const struct bat_dims *d, int32_t T_pad)
{
    return T_pad < d->S ? T_pad : d->S;
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
bat_layout(const struct bat_dims *d, struct bat_layout *ret)
{
    size_t T = (size_t)d->T, S = (size_t)d->S, O = (size_t)d->O, at = 0;

    ret->counts = bat_place(&at, 4, sizeof(int32_t));
    ret->q_start = bat_place(&at, S + 1, sizeof(int32_t));
    ret->kv_len = bat_place(&at, S, sizeof(int32_t));
    ret->state = bat_place(&at, S, sizeof(int32_t));
    ret->out = bat_place(&at, O, sizeof(struct fdk_out));
    ret->ids = bat_place(&at, T, sizeof(int32_t));
    ret->pos = bat_place(&at, T, sizeof(int32_t));
    ret->slot_map = bat_place(&at, T, sizeof(int32_t));
    ret->row = bat_place(&at, T, sizeof(int32_t));
    ret->upd_idx = bat_place(&at, S, sizeof(int32_t));
    ret->upd_rows = bat_place(&at, S, sizeof(struct fdk_row));
    ret->table = bat_place(&at, S * (size_t)d->stride, sizeof(int32_t));
    ret->bytes = at;
}

void
bat_view(const struct bat_dims *d, const struct bat_layout *l, void *base,
    struct fdk_batch *ret)
{
    unsigned char *b = base;
    const int32_t *counts = (const int32_t *)(b + l->counts);

    *ret = (struct fdk_batch) {
        .n_tok = counts, .n_row = counts + 1, .n_out = counts + 2,
        .ids = (const int32_t *)(b + l->ids), .pos = (const int32_t *)(b + l->pos),
        .slot_map = (const int32_t *)(b + l->slot_map),
        .row = (const int32_t *)(b + l->row),
        .q_start = (const int32_t *)(b + l->q_start),
        .kv_len = (const int32_t *)(b + l->kv_len),
        .block_table = (const int32_t *)(b + l->table),
        .state = (const int32_t *)(b + l->state),
        .out = (const struct fdk_out *)(b + l->out),
        .table_stride = d->stride, .max_row = d->S
    };
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
    bat_layout(d, &b->layout);
    b->shadow = mem_array((size_t)d->S, sizeof(*b->shadow));
    if (b->shadow == NULL)
        return bat_free(b);
    for (int32_t i = 0; i < d->S; i++)
        b->shadow[i].slot = -1;
    return b;
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

/* Host pointers into a record's plan. */
struct bat_at {
    int32_t *counts, *q_start, *kv_len, *state, *ids, *pos, *slot_map, *row;
    int32_t *upd_idx, *table;
    struct fdk_out *out;
    struct fdk_row *upd_rows;
};

static struct bat_at
bat_at(const struct bat_layout *l, unsigned char *p)
{
    return (struct bat_at) {
        .counts = (int32_t *)(p + l->counts), .q_start = (int32_t *)(p + l->q_start),
        .kv_len = (int32_t *)(p + l->kv_len), .state = (int32_t *)(p + l->state),
        .ids = (int32_t *)(p + l->ids), .pos = (int32_t *)(p + l->pos),
        .slot_map = (int32_t *)(p + l->slot_map), .row = (int32_t *)(p + l->row),
        .upd_idx = (int32_t *)(p + l->upd_idx), .table = (int32_t *)(p + l->table),
        .out = (struct fdk_out *)(p + l->out),
        .upd_rows = (struct fdk_row *)(p + l->upd_rows)
    };
}

static void
bat_add_out(struct bat_rec *rec, const struct bat_at *a, const struct seq *s,
    struct fdk_out out)
{
    a->out[rec->n_out] = out;
    rec->outs[rec->n_out] = (struct bat_out) {
        .slot = s->slot, .generation = s->generation, .pos = out.pos,
        .kind = out.kind == FDK_OUT_SAMPLE ? BAT_OUT_SAMPLE : BAT_OUT_SCORE
    };
    rec->n_out++;
}

static void
bat_outs(struct bat_rec *rec, const struct bat_at *a, const struct sch_row *row, int32_t r,
    int32_t t0)
{
    const struct seq *s = row->seq;

    for (int32_t i = 0; i < row->n_score; i++) {
        int32_t p = row->score_first + i;

        bat_add_out(rec, a, s, (struct fdk_out) {
            .tok = t0 + p - row->first, .row = r, .kind = FDK_OUT_SCORE,
            .target = (int32_t)s->req->ids[p + 1], .pos = p + 1,
            .n_top = smp_n_top_prompt(s->req) });
    }
    if (row->sample)
        bat_add_out(rec, a, s, (struct fdk_out) {
            .tok = t0 + row->q_len - 1, .row = r, .kind = FDK_OUT_SAMPLE,
            .pos = row->first + row->q_len, .n_top = smp_n_top(s->req) });
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
        a->ids[t] = pos >= s->req->n_ids && pos == s->device_len - 1 - row->sample &&
            !row->fresh ? -1 : (int32_t)req_token(s, pos);
        a->pos[t] = pos;
        a->slot_map[t] = kv_slot(kv, s->slot, pos);
        a->row[t] = r;
    }
    rec->n_tok = t;
}

/* The row's table: into the plan, marked for upload where the device's
 * differs. */
static void
bat_table(struct bat *b, const struct kv *kv, struct bat_rec *rec, const struct bat_at *a,
    const struct seq *s, int32_t r)
{
    struct bat_shadow *sh = &b->shadow[r];
    int32_t n = kv->n_held[s->slot];

    memcpy(a->table + (size_t)r * (size_t)b->dims.stride,
        kv->table + (size_t)s->slot * (size_t)kv->stride, (size_t)n * sizeof(int32_t));
    if (sh->slot == s->slot && sh->generation == s->generation && sh->n == n)
        return;
    *sh = (struct bat_shadow) { s->slot, s->generation, n };
    if (rec->table_lo >= rec->table_hi)
        rec->table_lo = r;
    rec->table_hi = r + 1;
}

static void
bat_padding(const struct bat *b, struct bat_rec *rec, const struct bat_at *a)
{
    int32_t S_pad;

    rec->T_pad = bat_pad(rec->n_tok, b->dims.T);
    S_pad = bat_pad_rows(&b->dims, rec->T_pad);
    for (int32_t t = rec->n_tok; t < rec->T_pad; t++) {
        a->ids[t] = 0;
        a->pos[t] = 0;
        a->slot_map[t] = t % b->dims.block_size;
        a->row[t] = S_pad - 1;
    }
    for (int32_t r = rec->n_row; r < S_pad; r++) {
        a->q_start[r + 1] = rec->n_tok;
        a->kv_len[r] = 0;
        a->state[r] = b->dims.S;
    }
}

void
bat_fill(struct bat *b, const struct sch_step *st, const struct kv *kv, struct bat_rec *rec)
{
    struct bat_at a = bat_at(&b->layout, rec->plan);

    OBJ_CHECK(b, BAT_MAGIC);
    ASSERT(st->n_row > 0 && st->n_row <= b->dims.S && st->n_tok <= b->dims.T);
    ASSERT(st->n_sample + st->n_score <= b->dims.O && kv->stride == b->dims.stride);
    rec->epoch = st->epoch;
    rec->n_row = st->n_row;
    rec->n_tok = rec->n_out = rec->n_update = 0;
    rec->table_lo = rec->table_hi = 0;
    a.q_start[0] = 0;
    for (int32_t r = 0; r < st->n_row; r++) {
        const struct sch_row *row = &st->rows[r];
        const struct seq *s = row->seq;
        int32_t t0 = rec->n_tok;

        bat_tokens(rec, &a, kv, row, r);
        bat_outs(rec, &a, row, r, t0);
        bat_table(b, kv, rec, &a, s, r);
        a.q_start[r + 1] = rec->n_tok;
        a.kv_len[r] = row->first + row->q_len;
        a.state[r] = s->slot;
        if (row->fresh) {
            a.upd_idx[rec->n_update] = s->slot;
            smp_row(s, &a.upd_rows[rec->n_update]);
            rec->n_update++;
        }
    }
    bat_padding(b, rec, &a);
    a.counts[0] = rec->n_tok;
    a.counts[1] = rec->n_row;
    a.counts[2] = rec->n_out;
    a.counts[3] = rec->n_update;
}
