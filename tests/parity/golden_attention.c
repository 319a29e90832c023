/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Rotary tables, qkv, plans of attention and attention. */
#include "config.h"

#include <math.h>

#include "tests/parity/golden_ops.h"

static struct go_step s;

struct heads {
    int H, K, D;
};
static const struct heads heads[] = { { 4, 1, 64 }, { 4, 4, 128 }, { 8, 8, 64 },
    { 32, 8, 64 }, { 32, 8, 128 }, { 16, 8, 128 }, { 16, 2, 128 }, { 8, 1, 64 },
    { 8, 1, 128 }, { 16, 16, 128 } };

struct load { /* load of a step: rows that decode after up to `history`
               * tokens, and a prompt */
    const char *name;
    int n_decode, history, n_prompt, before;
};
static const struct load loads[] = {
    { "decode1", 1, 300, 0, 0 },
    { "decode1.long", 1, 2400, 0, 0 },
    { "decode8", 8, 700, 0, 0 },
    { "decode64", 64, 400, 0, 0 },
    { "prompt33", 0, 0, 33, 0 },
    { "prompt128", 0, 0, 128, 0 },
    { "prompt640", 0, 0, 640, 0 },
    { "prompt2048", 0, 0, 2048, 0 },
    { "chunk257", 0, 0, 257, 512 },
    { "mixed", 20, 500, 130, 64 },
};

static double
step_of(const struct load *l)
{
    double reads = 0;

    go_step_init(&s);
    for (int i = 0; i < l->n_decode; i++)
        go_step_row(&s, 1, l->history - i * l->history / (2 * l->n_decode) - 1);
    if (l->n_prompt > 0)
        go_step_row(&s, l->n_prompt, l->before);
    for (int t = 0; t < s.n_tok; t++)
        reads += s.pos[t] + 1;
    return reads;
}

static void
attention(const struct heads *h, const struct load *l, enum fdk_dtype t)
{
    size_t pool, width = (size_t)((h->H + 2 * h->K) * h->D);
    double reads = step_of(l);

    if (!go_begin(2 * reads * h->H * h->D, "attention %s H=%d K=%d D=%d kv=%s", l->name,
            h->H, h->K, h->D, fdk_dtype_name(t)))
        return;
    step_of(l); /* its ids come from the case's seed */
    struct fdk_batch b = go_batch(&s);
    size_t bytes = (size_t)(s.n_tok * h->H * h->D) * fdk_dtype_bytes(g.act);
    struct fdk_attention_args a = {
        .y = go_new(bytes),
        .qkv = go_numbers((size_t)s.n_tok * width, g.act, 1),
        .b = &b,
        .kv = go_kv(&s, h->K, h->D, t, &pool),
        .T = s.n_tok,
        .H = h->H,
        .K = h->K,
        .D = h->D,
        .layer = 1,
        .scale = 1 / sqrtf((float)h->D),
        .act = g.act,
    };
    struct fdk_att_plan_args p = { .b = &b, .att = &a };
    g.ops->att_shape(&a, &p.a, &p.bt);
    p.n_max = a.n_work_max = fdk_tiles_max(b.max_row, a.T, p.a, p.bt);
    a.work = p.work = go_new((size_t)p.n_max * sizeof(*p.work));
    a.n_work = p.n_work = go_new(4);
    a.n_done = p.n_done = go_new(4);
    if (g.ops->att_plan_bytes != NULL)
        p.plan_bytes = g.ops->att_plan_bytes(&a, p.n_max);
    if (p.plan_bytes > 0)
        a.plan = p.plan = go_new(p.plan_bytes);
    a.scratch_bytes = g.ops->attention_scratch(g.ctx, &a);
    if (a.scratch_bytes > 0)
        a.scratch = go_new(a.scratch_bytes);
    GO(g.ops->att_plan(&p, g.st));
    go_end1(g.ops->attention(&a, g.st), a.y, bytes);
}

static void
qkv(const struct heads *h, const struct load *l, enum fdk_dtype t, int norm, int rot)
{
    size_t pool;

    step_of(l);
    if (!go_begin(8.0 * s.n_tok * (h->H + 2 * h->K) * h->D,
            "qkv %s H=%d K=%d D=%d kv=%s norm=%d rot=%d", l->name, h->H, h->K, h->D,
            fdk_dtype_name(t), norm, rot))
        return;
    step_of(l);
    struct fdk_batch b = go_batch(&s);
    size_t n = (size_t)s.n_tok * (size_t)((h->H + 2 * h->K) * h->D);
    struct fdk_qkv_args a = {
        .qkv = go_numbers(n, g.act, 1),
        .q_norm = norm ? go_numbers((size_t)h->D, FDK_F32, 1) : NULL,
        .k_norm = norm ? go_numbers((size_t)h->D, FDK_F32, 1) : NULL,
        .cs = go_numbers((size_t)(s.n_tok * rot), FDK_F32, 1),
        .b = &b,
        .kv = go_kv(&s, h->K, h->D, t, &pool),
        .T = s.n_tok,
        .H = h->H,
        .K = h->K,
        .D = h->D,
        .rot = rot,
        .layer = 1,
        .eps = 1e-6f,
        .act = g.act,
    };
    int rc = g.ops->qkv(&a, g.st);
    const void *out[] = { a.qkv, a.kv.base };
    const size_t bytes[] = { n * fdk_dtype_bytes(g.act), pool };
    go_end(rc, out, bytes, 2);
}

static void
rope(const struct load *l, int rot)
{
    float inv[64];

    step_of(l);
    if (!go_begin(s.n_tok * rot, "rope_table %s rot=%d", l->name, rot))
        return;
    step_of(l);
    for (int i = 0; i < rot / 2; i++)
        inv[i] = powf(500000, -2 * (float)i / (float)rot);
    struct fdk_batch b = go_batch(&s);
    size_t bytes = (size_t)(s.n_tok * rot) * 4;
    struct fdk_rope_table_args a = {
        .cs = go_new(bytes),
        .inv_freq = go_copy(inv, (size_t)(rot / 2) * 4),
        .b = &b,
        .T = s.n_tok,
        .rot = rot,
        .scale = 1,
    };
    go_end1(g.ops->rope_table(&a, g.st), a.cs, bytes);
}

void
go_attention_cases(void)
{
    enum fdk_dtype types[] = { FDK_BF16, FDK_I8, FDK_F8E4M3, FDK_F32 };

    for (size_t l = 0; l < GO_N(loads); l++) {
        rope(&loads[l], 64);
        rope(&loads[l], 128);
        for (size_t h = 0; h < GO_N(heads); h++)
            for (size_t t = 0; t < GO_N(types); t++) {
                if (l % 2 == 0)
                    qkv(&heads[h], &loads[l], types[t], h % 2 == 0,
                        l % 4 == 0 ? heads[h].D : heads[h].D / 2);
                if (types[t] != FDK_F32 || h < 4)
                    attention(&heads[h], &loads[l], types[t]);
            }
    }
}
