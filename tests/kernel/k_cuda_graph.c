/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_two.h"

#include <unistd.h>

/*
 * The cuda device: memory, reserved addresses, streams, events, sticky errors, and
 * graphs: a step of a one-layer model captured once at a padded size and replayed for any
 * distribution of tokens over rows, with the same bits as eager launches.
 */

enum {
    T_PAD = 64,
    S_PAD = 8,
    O_PAD = 8,
    BLOCK = 16,
    N_BLOCK = 128,
    H = 8,
    K = 2,
    D = 32,
    C = 256,
    F = 384,
    V = 1000,
    QKV = (H + 2 * K) * D,
};

static struct two_dev *const g = &tw.gpu;

struct chain {
    struct k_step s;
    char *d_step;
    struct fdk_batch b;
    struct fdk_kv kv;
    size_t kv_bytes, mem_bytes;
    char *kv_init;
    enum fdk_dtype act;
    enum fdk_dtype w_type, down_type;
    struct fdk_row rows[K_MAX_ROW]; /* by state slot */
    /* on the device */
    struct fdk_row *state;
    struct fdk_result *res;
    struct fdk_work *work;
    int32_t *n_work, n_max, a, bt;
    uint32_t *n_done;
    void *emb, *w_qkv, *w_o, *w_gu, *w_down, *w_out;
    float *norm, *inv_freq;
    char *mem;
    float *x, *cs, *logits; /* in mem, as the buffers above */
    void *y, *qkv, *att, *o, *gu, *h, *last;
    void *plan, *scratch, *att_scratch, *sample_scratch;
    size_t plan_bytes, scratch_bytes, att_scratch_bytes, sample_scratch_bytes;
};

struct chain_out {
    struct fdk_result res[O_PAD];
    struct fdk_row rows[K_MAX_ROW]; /* by state slot */
    float att[T_PAD * H * D];       /* or the same number of a
                                     * shorter type, then poison */
    uint32_t n_done;
    int32_t n_work;
    char *kv;
};

static void *
weights(size_t n, enum fdk_dtype t)
{
    float *exact = malloc(n * 4);
    char *w = k_weights(n, t, k_rand(&tw.seed), exact);
    void *p = tw_new(g, w, n * fdk_dtype_bytes(t));
    free(exact);
    free(w);
    return p;
}

static void
kv_new(struct chain *c)
{
    uint64_t half = (uint64_t)K * BLOCK * D * 2;
    c->kv = (struct fdk_kv){ .block_bytes = 2 * half,
        .layer_bytes = 2 * half,
        .v_bytes = half,
        .block_size = BLOCK,
        .n_kv_head = K,
        .head_dim = D,
        .dtype = FDK_BF16 };
    c->kv_bytes = N_BLOCK * c->kv.block_bytes;
    c->kv_init = malloc(c->kv_bytes);
    for (size_t i = 0; i < c->kv_bytes; i += 2) {
        uint16_t v = k_to_bf16(k_normal(&tw.seed));
        memcpy(c->kv_init + i, &v, 2);
    }
    c->kv.base = tw_new(g, c->kv_init, c->kv_bytes);
}

static void *
take(struct chain *c, size_t n)
{
    c->mem_bytes += n * sizeof(float);
    return c->mem + c->mem_bytes - n * sizeof(float);
}

/* Every buffer has room for fp32. */
static void
activations_new(struct chain *c)
{
    c->mem = tw_new(g, NULL,
        sizeof(float) *
            (size_t)(T_PAD * (3 * C + D + QKV + H * D + 3 * F) + O_PAD * (C + V)));
    c->x = take(c, T_PAD * C);
    c->y = take(c, T_PAD * C);
    c->o = take(c, T_PAD * C);
    c->cs = take(c, T_PAD * D);
    c->qkv = take(c, T_PAD * QKV);
    c->att = take(c, T_PAD * H * D);
    c->gu = take(c, T_PAD * 2 * F);
    c->h = take(c, T_PAD * F);
    c->last = take(c, O_PAD * C);
    c->logits = take(c, O_PAD * V);
}

static struct fdk_gemm_args
gemm_args(struct chain *c, void *y, const void *x, void *w, int N, int k, enum fdk_dtype t)
{
    int out = y == c->logits;
    struct fdk_gemm_args a = { .y = y,
        .x = x,
        .w = w,
        .n = out ? c->b.n_out : c->b.n_tok,
        .T = out ? O_PAD : T_PAD,
        .N = N,
        .K = k,
        .w_group = k,
        .ldy = N,
        .w_dtype = t,
        .act = c->act,
        .y_dtype = out ? FDK_F32 : c->act };
    size_t need = g->d.ops->gemm_scratch(&a);
    if (need > c->scratch_bytes) {
        c->scratch = tw_new(g, NULL, need);
        c->scratch_bytes = need;
    }
    a.scratch = c->scratch;
    a.scratch_bytes = c->scratch_bytes;
    return a;
}

static struct fdk_attention_args
att_args(const struct chain *c)
{
    return (struct fdk_attention_args){ .y = c->att,
        .qkv = c->qkv,
        .b = &c->b,
        .kv = c->kv,
        .work = c->work,
        .n_work = c->n_work,
        .n_done = c->n_done,
        .plan = c->plan,
        .n_work_max = c->n_max,
        .T = T_PAD,
        .H = H,
        .K = K,
        .D = D,
        .scale = 0.18f,
        .act = c->act,
        .scratch = c->att_scratch,
        .scratch_bytes = c->att_scratch_bytes };
}

static void
tiles_new(struct chain *c)
{
    const struct fdk_ops *k = g->d.ops;
    struct fdk_attention_args at = att_args(c);
    k->att_shape(&at, &c->a, &c->bt);
    c->n_max = fdk_tiles_max(S_PAD, T_PAD, c->a, c->bt);
    c->work = tw_new(g, NULL, (size_t)c->n_max * sizeof(*c->work));
    c->n_work = tw_new(g, NULL, 4);
    c->n_done = tw_new(g, NULL, 4);
    at = att_args(c);
    c->att_scratch_bytes = k->attention_scratch(g->d.ctx, &at);
    c->att_scratch = tw_new(g, NULL, c->att_scratch_bytes + 4);
    c->plan_bytes = k->att_plan_bytes != NULL ? k->att_plan_bytes(&at, c->n_max) : 0;
    c->plan = c->plan_bytes > 0 ? tw_new(g, NULL, c->plan_bytes) : NULL;
}

/* Opens a chain with activations of type act and weights of suitable types. */
static void
chain_new(struct chain *c, enum fdk_dtype act)
{
    float host[C], freq[D / 2];
    memset(c, 0, sizeof(*c));
    c->act = act;
    c->w_type = act == FDK_BF16 ? FDK_BF16 : FDK_F16;
    c->down_type = act;
    k_step_init(&c->s);
    c->b = tw_step(g, &c->s, &c->d_step);
    c->b.max_row = S_PAD;
    kv_new(c);
    tw_normal(host, C);
    for (int i = 0; i < D / 2; i++)
        freq[i] = powf(10000, -2.0f * (float)i / D);
    c->norm = tw_new(g, host, sizeof(host));
    c->inv_freq = tw_new(g, freq, sizeof(freq));
    c->emb = weights((size_t)V * C, FDK_BF16);
    c->w_qkv = weights((size_t)QKV * C, c->w_type);
    c->w_o = weights((size_t)C * H * D, c->w_type);
    c->w_gu = weights((size_t)2 * F * C, c->w_type);
    c->w_down = weights((size_t)C * F, c->down_type);
    c->w_out = weights((size_t)V * C, c->w_type);
    c->state = tw_new(g, NULL, sizeof(c->rows));
    c->res = tw_new(g, NULL, O_PAD * sizeof(*c->res));
    activations_new(c);
    tiles_new(c);
    const struct fdk_sample_args sa = { .b = &c->b, .R = O_PAD, .V = V };
    c->sample_scratch_bytes = g->d.ops->sample_scratch(&sa);
    c->sample_scratch = tw_new(g, NULL, c->sample_scratch_bytes + 4);
}

static void
chain_free(struct chain *c)
{
    tw_free(g);
    free(c->kv_init);
}

static void
gemm(struct chain *c, void *y, const void *x, void *w, int N, int k, enum fdk_dtype t)
{
    const struct fdk_gemm_args a = gemm_args(c, y, x, w, N, k, t);
    OK(g->d.ops->gemm(&a, g->d.st));
}

static void
norm(struct chain *c, void *y, float *x, const void *add)
{
    const struct fdk_rmsnorm_args a = { .y = y,
        .x = x,
        .add = add,
        .w = c->norm,
        .n = c->b.n_tok,
        .T = T_PAD,
        .C = C,
        .eps = 1e-5f,
        .act = c->act };
    OK(g->d.ops->rmsnorm(&a, g->d.st));
}

static void
chain_attention(struct chain *c)
{
    const struct fdk_ops *k = g->d.ops;
    const struct fdk_rope_table_args rope = { .cs = c->cs,
        .inv_freq = c->inv_freq,
        .b = &c->b,
        .T = T_PAD,
        .rot = D,
        .scale = 1 };
    const struct fdk_qkv_args qkv = { .qkv = c->qkv,
        .cs = c->cs,
        .b = &c->b,
        .kv = c->kv,
        .T = T_PAD,
        .H = H,
        .K = K,
        .D = D,
        .rot = D,
        .eps = 1e-5f,
        .act = c->act };
    const struct fdk_attention_args at = att_args(c);
    OK(k->rope_table(&rope, g->d.st));
    OK(k->qkv(&qkv, g->d.st));
    OK(k->attention(&at, g->d.st));
}

/* Every launch of a step. */
static void
chain_launch(struct chain *c)
{
    const struct fdk_ops *k = g->d.ops;
    const struct fdk_attention_args at = att_args(c);
    const struct fdk_att_plan_args plan = { .work = c->work,
        .n_work = c->n_work,
        .n_done = c->n_done,
        .b = &c->b,
        .a = c->a,
        .bt = c->bt,
        .n_max = c->n_max,
        .att = &at,
        .plan = c->plan,
        .plan_bytes = c->plan_bytes };
    const struct fdk_embed_args em = { .y = c->x,
        .w = c->emb,
        .state = c->state,
        .b = &c->b,
        .T = T_PAD,
        .C = C,
        .V = V,
        .w_dtype = FDK_BF16,
        .scale = 1 };
    const struct fdk_silu_mul_args si = { .y = c->h,
        .gu = c->gu,
        .n = c->b.n_tok,
        .T = T_PAD,
        .F = F,
        .act = c->act };
    const struct fdk_gather_args
        ga = { .y = c->last, .x = c->y, .b = &c->b, .O = O_PAD, .C = C, .act = c->act };
    const struct fdk_sample_args sa = { .results = c->res,
        .state = c->state,
        .logits = c->logits,
        .b = &c->b,
        .R = O_PAD,
        .V = V,
        .scratch = c->sample_scratch,
        .scratch_bytes = c->sample_scratch_bytes };
    OK(k->att_plan(&plan, g->d.st));
    OK(k->embed(&em, g->d.st));
    norm(c, c->y, c->x, NULL);
    gemm(c, c->qkv, c->y, c->w_qkv, QKV, C, c->w_type);
    chain_attention(c);
    gemm(c, c->o, c->att, c->w_o, C, H * D, c->w_type);
    norm(c, c->y, c->x, c->o);
    gemm(c, c->gu, c->y, c->w_gu, 2 * F, C, c->w_type);
    OK(k->silu_mul(&si, g->d.st));
    gemm(c, c->o, c->h, c->w_down, C, F, c->down_type);
    norm(c, c->y, c->x, c->o);
    OK(k->gather(&ga, g->d.st));
    gemm(c, c->logits, c->last, c->w_out, V, C, c->w_type);
    OK(k->sample(&sa, g->d.st));
}

static struct fdk_graph *
chain_capture(struct chain *c)
{
    struct fdk_graph *graph = NULL;
    chain_launch(c); /* allocates the scratch that products need */
    OK(g->d.ops->graph_begin(g->d.st));
    chain_launch(c);
    OK(g->d.ops->graph_end(g->d.st, &graph));
    assert_non_null(graph);
    return graph;
}

/* Draws a step of n tokens over n_row rows with histories of up to `before` tokens. */
static void
chain_step(struct chain *c, int n_row, const int *n, const int *before)
{
    k_step_init(&c->s);
    for (int r = 0; r < n_row; r++) {
        k_step_row(&c->s, n[r], before[r], BLOCK, N_BLOCK, r);
        for (int i = 0; i < K_STRIDE; i++) /* a row's blocks are its own */
            c->s.block_table[K_SLOT(r) * K_STRIDE + i] =
                n_row == 1 ? i * 2 + 1 : r * (N_BLOCK / S_PAD) + i % (N_BLOCK / S_PAD);
        c->s.out[r] = (struct fdk_out){ .tok = c->s.n_tok - 1,
            .row = r,
            .n_top = 2,
            .pos = c->s.kv_len[r] };
        c->rows[K_SLOT(r)] = (struct fdk_row){ .seed = (uint64_t)r,
            .top_p = r % 2 ? 0.9f : 1,
            .temperature = r % 3 ? 0.8f : 0,
            .max_len = 1 << 20,
            .penalty = -1,
            .last_token = r };
    }
    c->s.n_out = n_row;
    for (int t = 0; t < c->s.n_tok; t++) {
        c->s.ids[t] = tw_int(-1, V - 1);
        c->s.slot_map[t] =
            c->s.block_table[K_SLOT(c->s.row[t]) * K_STRIDE + c->s.pos[t] / BLOCK] * BLOCK +
            c->s.pos[t] % BLOCK;
    }
    for (int t = c->s.n_tok; t < K_MAX_TOK; t++)
        c->s.ids[t] = c->s.pos[t] = c->s.slot_map[t] = c->s.row[t] = 0x7f7f7f7f;
    (void)tw_step(g, &c->s, &c->d_step);
}

/* Restores the state, poisons all buffers that a step must write itself, then runs it. */
static void
chain_run(struct chain *c, struct fdk_graph *graph, struct chain_out *ret)
{
    const struct fdk_ops *k = g->d.ops;
    fdk_stream_t st = g->d.st;
    tw_put(g, c->kv.base, c->kv_init, c->kv_bytes);
    tw_put(g, c->state, c->rows, sizeof(c->rows));
    OK(k->fill(st, c->res, TW_POISON, O_PAD * sizeof(*c->res)));
    OK(k->fill(st, c->mem, TW_POISON, c->mem_bytes));
    OK(k->fill(st, c->work, TW_POISON, (size_t)c->n_max * sizeof(*c->work)));
    OK(k->fill(st, c->n_work, TW_POISON, 4));
    OK(k->fill(st, c->n_done, TW_POISON, 4));
    if (c->scratch_bytes > 0)
        OK(k->fill(st, c->scratch, TW_POISON, c->scratch_bytes));
    if (graph != NULL)
        OK(k->graph_launch(graph, st));
    else
        chain_launch(c);
    OK(k->stream_sync(st));
    tw_get(g, ret->res, c->res, sizeof(ret->res));
    tw_get(g, ret->rows, c->state, sizeof(ret->rows));
    tw_get(g, ret->att, c->att, sizeof(ret->att));
    tw_get(g, &ret->n_done, c->n_done, 4);
    tw_get(g, &ret->n_work, c->n_work, 4);
    ret->kv = tw_read(g, c->kv.base, c->kv_bytes);
}

static void
same_out(const struct chain *c, const struct chain_out *a, const struct chain_out *b)
{
    int32_t tiles = 0;
    tw_same(a->att, b->att, sizeof(a->att), "attention");
    tw_same(a->kv, b->kv, c->kv_bytes, "kv");
    tw_same(a->res, b->res, sizeof(a->res), "results");
    tw_same(a->rows, b->rows, sizeof(a->rows), "states");
    for (int r = 0; r < c->s.n_row; r++) {
        int n = c->s.q_start[r + 1] - c->s.q_start[r];
        tiles += (n * c->a + c->bt - 1) / c->bt;
        assert_in_range(a->res[r].token, 0, V - 1);
        assert_int_equal(a->rows[c->s.state[r]].last_token, a->res[r].token);
    }
    assert_int_equal(a->n_work, tiles);
    assert_int_equal(a->n_done, tiles);
    assert_int_equal(b->n_done, tiles);
}

static void
compare_step(struct chain *c, struct fdk_graph *graph)
{
    static struct chain_out eager, replay;
    chain_run(c, NULL, &eager);
    chain_run(c, graph, &replay);
    same_out(c, &replay, &eager);
    free(eager.kv);
    free(replay.kv);
}

/* Any split of up to T_PAD tokens among up to S_PAD rows, rows beginning
 * anywhere in a block, through one graph. */
static void
every_split(enum fdk_dtype act)
{
    static struct chain c;
    chain_new(&c, act);
    struct fdk_graph *graph = chain_capture(&c);
    for (int round = 0; round < 40; round++) {
        if (!tw_takes((size_t)round, 9))
            continue;
        int n[S_PAD], before[S_PAD], n_row = tw_int(1, S_PAD), left = T_PAD;
        for (int r = 0; r < n_row; r++) {
            int most = left - (n_row - r - 1);
            n[r] = round % 3 == 0 ? 1
                : r == n_row - 1 && round % 2
                ? most
                : tw_int(1, most);
            before[r] = tw_int(0, 100);
            left -= n[r];
        }
        chain_step(&c, n_row, n, before);
        compare_step(&c, graph);
    }
    g->d.ops->graph_free(graph);
    chain_free(&c);
}

static void
a2_a4_a5_a6_replay_equals_eager(void **state)
{
    (void)state;
    every_split(FDK_F32);
    every_split(FDK_BF16);
}

/* An empty step completes and changes nothing. */
static void
nothing(enum fdk_dtype act)
{
    static struct chain c;
    static struct chain_out out, poison;
    chain_new(&c, act);
    struct fdk_graph *graph = chain_capture(&c);
    memset(&poison, TW_POISON, sizeof(poison));
    for (int i = 0; i < 4; i++) {
        chain_step(&c, 0, NULL, NULL);
        chain_run(&c, i % 2 ? graph : NULL, &out);
        assert_int_equal(out.n_work, 0);
        assert_int_equal(out.n_done, 0);
        tw_same(out.kv, c.kv_init, c.kv_bytes, "kv");
        tw_same(out.rows, c.rows, sizeof(out.rows), "states");
        tw_same(out.res, poison.res, sizeof(out.res), "results");
        tw_same(out.att, poison.att, sizeof(out.att), "attention");
        free(out.kv);
    }
    g->d.ops->graph_free(graph);
    chain_free(&c);
}

static void
a_step_of_nothing(void **state)
{
    (void)state;
    nothing(FDK_F32);
    nothing(FDK_BF16);
}

static void
large_small_large(enum fdk_dtype act)
{
    static struct chain c;
    static struct chain_out out[3], fresh;
    static const int large[S_PAD] = { 9, 1, 13, 5, 1, 17, 1, 17 }, small[] = { 1 };
    static const int before[S_PAD] = { 3, 90, 0, 31, 16, 15, 64, 1 };
    chain_new(&c, act);
    struct fdk_graph *graph = chain_capture(&c);
    for (int i = 0; i < 3; i++) {
        chain_step(&c, i == 1 ? 1 : S_PAD, i == 1 ? small : large, before);
        chain_run(&c, graph, &out[i]);
        chain_run(&c, NULL, &fresh);
        same_out(&c, &out[i], &fresh);
        free(out[i].kv);
        free(fresh.kv);
    }
    g->d.ops->graph_free(graph);
    chain_free(&c);
}

static void
a3_large_small_large(void **state)
{
    (void)state;
    large_small_large(FDK_F32);
    large_small_large(FDK_BF16);
}

static void
a8_one_graph_for_every_length(void **state)
{
    static struct chain c;
    (void)state;
    chain_new(&c, FDK_BF16);
    struct fdk_graph *graph = chain_capture(&c);
    for (int len = 1; len <= K_STRIDE * BLOCK; len += len < 70 ? 1 : tw_int(20, 90)) {
        const int one = 1, before = len - 1;
        if (!tw_takes((size_t)len, 16))
            continue;
        chain_step(&c, 1, &one, &before);
        compare_step(&c, graph);
    }
    g->d.ops->graph_free(graph);
    chain_free(&c);
}

/* ---- what a capture forbids ---------------------------------------------- */

static void
a13_allocation_in_a_capture_fails(void **state)
{
    const struct fdk_ops *k = g->d.ops;
    struct fdk_graph *graph = NULL;
    void *p = NULL;
    int32_t *n = tw_new(g, NULL, 64);
    (void)state;
    OK(k->graph_begin(g->d.st));
    OK(k->fill(g->d.st, n, 1, 64));
    assert_int_not_equal(k->mem_alloc(g->d.ctx, 0, 1 << 20, &p), 0);
    assert_null(p);
    assert_int_not_equal(k->graph_end(g->d.st, &graph), 0);
    assert_null(graph);
    /* Refused, but the device still works. */
    assert_string_equal(k->error_text(g->d.ctx, 0), "");
    OK(k->stream_sync(g->d.st));
    OK(k->mem_alloc(g->d.ctx, 0, 1 << 20, &p));
    k->mem_free(g->d.ctx, 0, p);
    tw_free(g);
}

static void
a13_waiting_in_a_capture_is_refused(void **state)
{
    const struct fdk_ops *k = g->d.ops;
    struct fdk_graph *graph = NULL, *other = NULL;
    fdk_event_t ev;
    unsigned char byte[64];
    char *p = tw_new(g, NULL, 64);
    (void)state;
    assert_int_equal(k->graph_end(g->d.st, &other), -EINVAL);
    OK(k->event_new(g->d.ctx, 0, &ev));
    OK(k->event_record(ev, g->d.st));
    OK(k->graph_begin(g->d.st));
    OK(k->fill(g->d.st, p, 5, 64));
    assert_int_equal(k->stream_sync(g->d.st), -EBUSY);
    assert_int_equal(k->stream_wait(g->d.st, ev), -EBUSY);
    assert_int_equal(k->event_record(ev, g->d.st), -EBUSY);
    assert_int_equal(k->graph_begin(g->d.st), -EINVAL);
    OK(k->graph_end(g->d.st, &graph));
    tw_get(g, byte, p, 64);
    assert_int_equal(byte[7], TW_POISON); /* recorded, not run */
    OK(k->graph_begin(g->d.st));
    assert_int_equal(k->graph_launch(graph, g->d.st), -EINVAL);
    OK(k->graph_end(g->d.st, &other));
    OK(k->graph_launch(graph, g->d.st));
    tw_get(g, byte, p, 64);
    assert_int_equal(byte[7], 5);
    k->graph_free(graph);
    k->graph_free(other);
    k->event_free(ev);
    tw_free(g);
}

/* Shapes that are multiplied for the first time during a capture. */
static void
a13_first_gemm_in_a_capture(void **state)
{
    static float y[2][7 * 136];
    const int32_t live = 7;
    struct fdk_graph *graph = NULL;
    float *x = malloc(7 * 264 * 4);
    (void)state;
    tw_normal(x, 7 * 264);
    struct fdk_gemm_args a = { .y = tw_new(g, NULL, sizeof(y[0])),
        .x = tw_new_act(g, x, 7 * 264, FDK_BF16),
        .w = weights(136 * 264, FDK_BF16),
        .n = tw_new(g, &live, 4),
        .T = 7,
        .N = 136,
        .K = 264,
        .ldy = 136,
        .w_dtype = FDK_BF16,
        .act = FDK_BF16,
        .y_dtype = FDK_F32 };
    a.scratch_bytes = g->d.ops->gemm_scratch(&a);
    a.scratch = tw_new(g, NULL, a.scratch_bytes);
    OK(g->d.ops->graph_begin(g->d.st));
    OK(g->d.ops->gemm(&a, g->d.st));
    OK(g->d.ops->graph_end(g->d.st, &graph));
    OK(g->d.ops->graph_launch(graph, g->d.st));
    tw_get(g, y[0], a.y, sizeof(y[0]));
    OK(g->d.ops->fill(g->d.st, a.y, TW_POISON, sizeof(y[0])));
    OK(g->d.ops->gemm(&a, g->d.st));
    tw_get(g, y[1], a.y, sizeof(y[1]));
    tw_same(y[0], y[1], sizeof(y[0]), "gemm");
    g->d.ops->graph_free(graph);
    free(x);
    tw_free(g);
}

/* ---- devices ------------------------------------------------------------- */

static void
memory_and_info(void **state)
{
    const struct fdk_ops *k = g->d.ops;
    struct fdk_device_info info;
    unsigned char back[1000];
    void *h, *p;
    (void)state;
    OK(k->device_info(g->d.ctx, 0, &info));
    printf("%s, %d multiprocessors, %llu MiB free of %llu\n", info.name, info.n_proc,
        (unsigned long long)(info.mem_free >> 20),
        (unsigned long long)(info.mem_total >> 20));
    assert_true(info.n_proc > 0 && info.mem_free > 0 && info.mem_free <= info.mem_total);
    assert_int_equal(info.peer_mask & 1, 1);
    assert_int_equal(k->device_info(g->d.ctx, 7, &info), -EINVAL);
    assert_int_equal(k->mem_alloc(g->d.ctx, 0, 0, &p), -EINVAL);
    assert_int_equal(k->mem_alloc(g->d.ctx, 0, (size_t)1 << 46, &p), -ENOMEM);
    OK(k->mem_alloc(g->d.ctx, 0, 1000, &p));
    assert_int_equal((uintptr_t)p % 256, 0);
    OK(k->host_alloc(g->d.ctx, 1000, &h));
    memset(h, 3, 1000);
    OK(k->copy(g->d.st, p, h, 1000));
    OK(k->fill(g->d.st, (char *)p + 1, 9, 7));
    OK(k->copy_peer(g->d.st, 0, (char *)p + 500, 0, p, 100));
    OK(k->copy(g->d.st, back, p, 1000));
    k_sync(&g->d);
    assert_true(back[0] == 3 && back[1] == 9 && back[7] == 9 && back[8] == 3);
    assert_true(back[500] == 3 && back[507] == 9 && back[999] == 3);
    assert_int_equal(k->copy_peer(g->d.st, 1, p, 0, p, 1), -EINVAL);
    k->host_free(g->d.ctx, h);
    k->mem_free(g->d.ctx, 0, p);
}

/* A graph recorded against addresses that have no memory yet. */
static void
reserved_addresses(void **state)
{
    enum { MIB = 1 << 20 };
    const struct fdk_ops *k = g->d.ops;
    static struct k_step s;
    struct fdk_graph *graph = NULL;
    char *base = NULL, *d = NULL;
    float x[64], y[64];
    (void)state;
    k_step_init(&s);
    s.n_out = 1;
    struct fdk_batch b = tw_step(g, &s, &d);
    tw_normal(x, 64);
    assert_int_equal(k->mem_reserve(g->d.ctx, 0, 1000, (void **)&base), -EINVAL);
    OK(k->mem_reserve(g->d.ctx, 0, 64u * MIB, (void **)&base));
    struct fdk_gather_args a = { .y = (float *)(void *)(base + 10 * MIB),
        .x = tw_new(g, x, sizeof(x)),
        .b = &b,
        .O = 1,
        .C = 64 };
    OK(k->graph_begin(g->d.st));
    OK(k->gather(&a, g->d.st));
    OK(k->graph_end(g->d.st, &graph));
    OK(k->mem_map(g->d.ctx, 0, base, 8u * MIB, 4u * MIB));
    assert_int_equal(k->mem_map(g->d.ctx, 0, base, 10u * MIB, 4u * MIB), -EINVAL);
    assert_int_equal(k->mem_map(g->d.ctx, 0, base, 62u * MIB, 4u * MIB), -EINVAL);
    OK(k->graph_launch(graph, g->d.st));
    tw_get(g, y, base + 10 * MIB, sizeof(y));
    tw_same(y, x, sizeof(x), "mapped");
    OK(k->mem_unmap(g->d.ctx, 0, base, 8u * MIB, 4u * MIB));
    assert_int_equal(k->mem_unmap(g->d.ctx, 0, base, 8u * MIB, 4u * MIB), -EINVAL);
    OK(k->mem_map(g->d.ctx, 0, base, 0, 32u * MIB));
    OK(k->graph_launch(graph, g->d.st));
    tw_get(g, y, base + 10 * MIB, sizeof(y));
    tw_same(y, x, sizeof(x), "mapped again");
    k->graph_free(graph);
    OK(k->mem_release(g->d.ctx, 0, base, 64u * MIB));
    assert_int_equal(k->mem_release(g->d.ctx, 0, base, 64u * MIB), -EINVAL);
    tw_free(g);
}

static uint64_t
now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The host sees the progress of a stream, inside and outside a graph. */
static void
marks(void **state)
{
    const struct fdk_ops *k = g->d.ops;
    struct fdk_graph *graph;
    const uint32_t value[4] = { 0, 7, 8, 9 };
    uint32_t *dev = tw_new(g, value, sizeof(value)), *at;
    void *host;
    uint64_t until;
    (void)state;
    OK(k->host_alloc(g->d.ctx, 4, &host));
    at = host;
    *at = 0;
    OK(k->stream_delay(g->d.st, 5000000));
    OK(k->copy(g->d.st, dev, dev + 1, 4));
    OK(k->stream_mark(g->d.st, at, dev));
    OK(k->stream_delay(g->d.st, 200000000));
    assert_int_equal(__atomic_load_n(at, __ATOMIC_ACQUIRE), 0);
    for (until = now_ns() + 100000000; __atomic_load_n(at, __ATOMIC_ACQUIRE) == 0;)
        assert_true(now_ns() < until);
    assert_int_equal(*at, 7);
    OK(k->stream_sync(g->d.st));
    OK(k->graph_begin(g->d.st));
    OK(k->stream_mark(g->d.st, at, dev));
    OK(k->graph_end(g->d.st, &graph));
    for (int i = 2; i < 4; i++) {
        OK(k->copy(g->d.st, dev, dev + i, 4));
        OK(k->graph_launch(graph, g->d.st));
        OK(k->stream_sync(g->d.st));
        assert_int_equal(*at, value[i]);
    }
    assert_int_equal(k->stream_mark(g->d.st, NULL, dev), -EINVAL);
    assert_int_equal(k->stream_mark(g->d.st, at, NULL), -EINVAL);
    k->graph_free(graph);
    k->host_free(g->d.ctx, host);
}

static void
streams_and_events(void **state)
{
    const struct fdk_ops *k = g->d.ops;
    fdk_stream_t other;
    fdk_event_t ev[3];
    unsigned char byte = 0;
    char *p = tw_new(g, NULL, 2);
    (void)state;
    OK(k->stream_new(g->d.ctx, 0, &other));
    for (int i = 0; i < 3; i++)
        OK(k->event_new(g->d.ctx, 0, &ev[i]));
    assert_int_equal(k->event_query(ev[0]), 1);
    assert_int_equal(k->event_ns(ev[0]), 0);
    OK(k->event_record(ev[0], g->d.st));
    OK(k->stream_delay(g->d.st, 20000000));
    OK(k->fill(g->d.st, p, 1, 1));
    OK(k->event_record(ev[1], g->d.st));
    OK(k->stream_wait(other, ev[1]));
    OK(k->copy(other, p + 1, p, 1));
    OK(k->event_record(ev[2], other));
    assert_int_equal(k->event_query(ev[1]), 0);
    assert_int_equal(k->event_query(ev[2]), 0);
    OK(k->event_sync(ev[2]));
    uint64_t now = now_ns();
    assert_int_equal(k->event_query(ev[1]), 1);
    tw_get(g, &byte, p + 1, 1);
    assert_int_equal(byte, 1);
    uint64_t n0 = k->event_ns(ev[0]), n1 = k->event_ns(ev[1]), n2 = k->event_ns(ev[2]);
    assert_true(n1 - n0 >= 19900000 && n1 - n0 < 40000000 && n2 >= n1);
    assert_in_range(now - n2 + 1000000, 0, 6000000);
    for (int i = 0; i < 3; i++)
        k->event_free(ev[i]);
    k->stream_free(other);
    tw_free(g);
}

/* The base of the device clock advances and stays equal to the host's clock. */
static void
clock_does_not_drift(void **state)
{
    fdk_event_t ev;
    (void)state;
    OK(g->d.ops->event_new(g->d.ctx, 0, &ev));
    for (int i = 0; i < 8; i++) {
        usleep(450000);
        OK(g->d.ops->event_record(ev, g->d.st));
        OK(g->d.ops->event_sync(ev));
        assert_in_range(now_ns() - g->d.ops->event_ns(ev) + 1000000, 0, 4000000);
    }
    g->d.ops->event_free(ev);
}

/* ---- errors -------------------------------------------------------------- */

static void
bad_token_fails_the_context(void **state)
{
    static struct k_step s;
    const struct fdk_open_args args = { .n_device = 1 }, none = { .n_device = 99 };
    struct two_dev t = { .d.ops = &fdk_ops_cuda };
    char err[256] = "", *d = NULL;
    void *p;
    (void)state;
    assert_int_equal(fdk_ops_cuda.open(&none, &t.d.ctx, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "99"));
    OK(fdk_ops_cuda.open(&args, &t.d.ctx, err, sizeof(err)));
    OK(fdk_ops_cuda.stream_new(t.d.ctx, 0, &t.d.st));
    k_step_init(&s);
    s.n_tok = 2;
    s.ids[1] = 12345;
    struct fdk_batch b = tw_step(&t, &s, &d);
    struct fdk_embed_args a = { .y = tw_new(&t, NULL, 256),
        .w = tw_new(&t, NULL, 256),
        .state = tw_new(&t, NULL, sizeof(struct fdk_row)),
        .b = &b,
        .T = 2,
        .C = 4,
        .V = 8,
        .w_dtype = FDK_F32,
        .scale = 1 };
    OK(fdk_ops_cuda.embed(&a, t.d.st));
    assert_int_equal(fdk_ops_cuda.stream_sync(t.d.st), -EIO);
    assert_non_null(strstr(fdk_ops_cuda.error_text(t.d.ctx, 0), "12345"));
    assert_int_equal(fdk_ops_cuda.embed(&a, t.d.st), -EIO);
    assert_int_equal(fdk_ops_cuda.mem_alloc(t.d.ctx, 0, 256, &p), -EIO);
    fdk_ops_cuda.stream_free(t.d.st);
    fdk_ops_cuda.close(t.d.ctx);
    assert_string_equal(fdk_ops_cuda.error_text(g->d.ctx, 0), "");
}

/* The last test: nothing on this device works afterwards. */
static void
sticky_after_a_wild_pointer(void **state)
{
    const struct fdk_ops *k = g->d.ops;
    struct fdk_device_info info;
    unsigned char byte = 0;
    fdk_event_t ev;
    char *p = tw_new(g, NULL, 256);
    void *q;
    (void)state;
    OK(k->event_new(g->d.ctx, 0, &ev));
    OK(k->stream_fail(g->d.st));
    /* Results of later launches are not visible. */
    (void)k->copy(g->d.st, &byte, p, 1);
    assert_int_equal(k->stream_sync(g->d.st), -EIO);
    printf("error_text: %s\n", k->error_text(g->d.ctx, 0));
    assert_non_null(strstr(k->error_text(g->d.ctx, 0), "cudaErrorIllegalAddress"));
    assert_int_equal(byte, 0);
    assert_int_equal(k->fill(g->d.st, p, 0, 256), -EIO);
    assert_int_equal(k->event_record(ev, g->d.st), -EIO);
    assert_int_equal(k->event_query(ev), -EIO);
    assert_int_equal(k->mem_alloc(g->d.ctx, 0, 256, &q), -EIO);
    assert_int_equal(k->host_alloc(g->d.ctx, 256, &q), -EIO);
    assert_int_equal(k->device_info(g->d.ctx, 0, &info), -EIO);
    assert_int_equal(k->graph_begin(g->d.st), -EIO);
    k->event_free(ev);
    g->n_buf = 0;
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_and_info),
        cmocka_unit_test(streams_and_events),
        cmocka_unit_test(marks),
        cmocka_unit_test(reserved_addresses),
        cmocka_unit_test(a13_waiting_in_a_capture_is_refused),
        cmocka_unit_test(a13_allocation_in_a_capture_fails),
        cmocka_unit_test(a13_first_gemm_in_a_capture),
        cmocka_unit_test(a_step_of_nothing),
        cmocka_unit_test(a2_a4_a5_a6_replay_equals_eager),
        cmocka_unit_test(a3_large_small_large),
        cmocka_unit_test(a8_one_graph_for_every_length),
        cmocka_unit_test(clock_does_not_drift),
        cmocka_unit_test(bad_token_fails_the_context),
        cmocka_unit_test(sticky_after_a_wild_pointer),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    if (argc > 1)
        cmocka_set_skip_filter(argv[1]);
    rc = cmocka_run_group_tests_name("k_cuda_graph", tests, NULL, NULL);
    tw_close();
    return rc;
}
