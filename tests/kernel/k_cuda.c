/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_two.h"

/*
 * Rows, rotation and the KV write, and plans of the cuda backend compared with the cpu
 * backend, which defines each operation: fresh random data, odd sizes, padding that must
 * not be touched, poison after every buffer. For fp32 sums in another order the tolerance
 * is a small multiple of their rounding; copies, plans and counts must be equal. bf16
 * activations are compared with the cpu's fp32 results of the same numbers, rounded once.
 */

enum { PAD = 3 }; /* launch sizes exceed the live counts by this */

/* Makes a random step of n_row rows, each with at most `most` new tokens. */
static void
random_step(struct k_step *s, int n_row, int most, int block_size, int n_block)
{
    k_step_init(s);
    for (int r = 0; r < n_row; r++)
        k_step_row(s, tw_int(1, most), tw_int(0, 3 * block_size), block_size, n_block, r);
    for (int t = 0; t < s->n_tok; t++)
        s->ids[t] = tw_int(-1, 30);
    s->n_out = n_row;
    for (int o = 0; o < n_row; o++)
        s->out[o] =
            (struct fdk_out){ .tok = s->q_start[o + 1] - 1, .row = o, .pos = s->kv_len[o] };
    /* Padding may hold anything. */
    for (int t = s->n_tok; t < K_MAX_TOK; t++)
        s->ids[t] = s->pos[t] = s->slot_map[t] = s->row[t] = 0x7f7f7f7f;
}

static void *
random_weights(size_t n, enum fdk_dtype t)
{
    float *exact = malloc(n * 4);
    void *w = k_weights(n, t, k_rand(&tw.seed), exact);
    free(exact);
    return w;
}

/* ---- rows ---------------------------------------------------------------- */

static float *
run_embed(struct two_dev *t, const struct k_step *s, const void *w, enum fdk_dtype wt,
    int C, int V, const struct fdk_row *rows)
{
    char *d = NULL;
    struct fdk_batch b = tw_step(t, s, &d);
    size_t bytes = (size_t)(s->n_tok + PAD) * (size_t)C * 4;
    struct fdk_embed_args a = {
        .y = tw_new(t, NULL, bytes),
        .w = tw_new(t, w, (size_t)V * (size_t)C * fdk_dtype_bytes(wt)),
        .state = tw_new(t, rows, K_MAX_ROW * sizeof(*rows)),
        .b = &b,
        .T = s->n_tok + PAD,
        .C = C,
        .V = V,
        .w_dtype = wt,
        .scale = 1.5f,
    };
    OK(t->d.ops->embed(&a, t->d.st));
    float *y = tw_read(t, a.y, bytes);
    tw_free(t);
    return y;
}

static void
embed_is_exact(void **state)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_F16, FDK_BF16 };
    static const int widths[] = { 1, 33, 256, 1000, 4096 };
    static struct k_step s;
    struct fdk_row rows[K_MAX_ROW];
    (void)state;
    for (int i = 0; i < K_MAX_ROW; i++)
        rows[i] = (struct fdk_row){ .last_token = i };
    for (int ti = 0; ti < 3; ti++)
        for (int c = 0; c < 5; c++) {
            random_step(&s, tw_int(1, K_MAX_ROW), 9, 16, 97);
            void *w = random_weights(31 * (size_t)widths[c], types[ti]);
            float *want = run_embed(&tw.cpu, &s, w, types[ti], widths[c], 31, rows);
            float *got = run_embed(&tw.gpu, &s, w, types[ti], widths[c], 31, rows);
            tw_same(got, want, (size_t)(s.n_tok + PAD) * (size_t)widths[c] * 4, "embed");
            free(w);
            free(want);
            free(got);
        }
}

static float *
run_gather(struct two_dev *t, const struct k_step *s, const float *x, int C,
    enum fdk_dtype act)
{
    char *d = NULL;
    struct fdk_batch b = tw_step(t, s, &d);
    size_t n = (size_t)(s->n_tok + PAD) * (size_t)C;
    struct fdk_gather_args g = {
        .y = tw_new_act(t, NULL, n, act),
        .x = tw_new_act(t, x, n, act),
        .b = &b,
        .O = s->n_out + PAD,
        .C = C,
        .act = act,
    };
    OK(t->d.ops->gather(&g, t->d.st));
    float *y = tw_read_act(t, g.y, n, act);
    tw_free(t);
    return y;
}

static void
gather_is_exact(void **state)
{
    static const int widths[] = { 1, 33, 256, 1000 };
    static struct k_step s;
    (void)state;
    for (int i = 0; i < 8; i++) {
        int C = widths[i / 2];
        enum fdk_dtype act = i % 2 ? FDK_BF16 : FDK_F32;
        random_step(&s, tw_int(1, K_MAX_ROW), 9, 16, 97);
        size_t n = (size_t)(s.n_tok + PAD) * (size_t)C;
        float *x = malloc(n * 4);
        tw_normal(x, n);
        tw_as_act(x, n, act);
        float *want = run_gather(&tw.cpu, &s, x, C, FDK_F32);
        float *got = run_gather(&tw.gpu, &s, x, C, act);
        tw_near_act(got, want, n, act, 0, 0, "gather");
        free(x);
        free(want);
        free(got);
    }
}

static void
run_row_update(struct two_dev *t, const struct fdk_row *rows, const int32_t *idx,
    const struct fdk_delta *delta, const int32_t n[2], struct fdk_row *ret_rows,
    int32_t *ret_table)
{
    int32_t *d_n = tw_new(t, n, 8);
    struct fdk_row_update_args a = {
        .state = tw_new(t, NULL, 20 * sizeof(*rows)),
        .rows = tw_new(t, rows, 9 * sizeof(*rows)),
        .idx = tw_new(t, idx, 9 * 4),
        .n = d_n,
        .n_max = 9,
        .table = tw_new(t, NULL, 1000 * 4),
        .delta = tw_new(t, delta, 300 * sizeof(*delta)),
        .n_delta = d_n + 1,
        .n_delta_max = 300,
    };
    OK(t->d.ops->row_update(&a, t->d.st));
    tw_get(t, ret_rows, a.state, 20 * sizeof(*rows));
    tw_get(t, ret_table, a.table, 1000 * 4);
    tw_free(t);
}

static void
row_update_is_exact(void **state)
{
    static struct fdk_row rows[9], got[2][20];
    static int32_t table[2][1000];
    struct fdk_delta delta[300];
    int32_t idx[9];
    (void)state;
    for (int round = 0; round < 8; round++) {
        const int32_t n[2] = { tw_int(0, 9), tw_int(0, 300) };
        for (size_t i = 0; i < sizeof(rows); i++)
            ((unsigned char *)rows)[i] = (unsigned char)k_rand(&tw.seed);
        for (int i = 0; i < 9; i++)
            idx[i] = 2 * i + tw_int(0, 1);
        for (int i = 0; i < 300; i++)
            delta[i] = (struct fdk_delta){ 3 * i + tw_int(0, 2), tw_int(0, 1 << 30) };
        run_row_update(&tw.cpu, rows, idx, delta, n, got[0], table[0]);
        run_row_update(&tw.gpu, rows, idx, delta, n, got[1], table[1]);
        tw_same(got[1], got[0], sizeof(got[0]), "states");
        tw_same(table[1], table[0], sizeof(table[0]), "block table");
    }
}

/* Norms and silu_mul of the same numbers: `live` rows in a launch of T. */
struct rows_io {
    int live, T, C, add;
    enum fdk_dtype act;
    const float *x, *w; /* x: 2 T C numbers */
    float *norm, *residual, *silu;
};

static void
run_rows(struct two_dev *t, struct rows_io *r)
{
    size_t n = (size_t)r->T * (size_t)r->C;
    const int32_t live = r->live;
    struct fdk_rmsnorm_args a = {
        .y = tw_new_act(t, NULL, n, r->act),
        .x = tw_new(t, r->x, n * 4),
        .add = r->add ? tw_new_act(t, r->x + n, n, r->act) : NULL,
        .w = tw_new(t, r->w, (size_t)r->C * 4),
        .n = tw_new(t, &live, 4),
        .T = r->T,
        .C = r->C,
        .eps = 1e-5f,
        .act = r->act,
    };
    struct fdk_silu_mul_args s = {
        .y = tw_new_act(t, NULL, n, r->act),
        .gu = tw_new_act(t, r->x, 2 * n, r->act),
        .n = a.n,
        .T = r->T,
        .F = r->C,
        .act = r->act,
    };
    OK(t->d.ops->rmsnorm(&a, t->d.st));
    OK(t->d.ops->silu_mul(&s, t->d.st));
    r->norm = tw_read_act(t, a.y, n, r->act);
    r->residual = tw_read(t, a.x, n * 4);
    r->silu = tw_read_act(t, s.y, n, r->act);
    tw_free(t);
}

static void
rows_free(struct rows_io *r)
{
    free(r->norm);
    free(r->residual);
    free(r->silu);
}

static void
check_rows(int T, int C, int add, enum fdk_dtype act)
{
    size_t n = (size_t)(T + PAD) * (size_t)C;
    float *x = malloc(2 * n * 4), *w = malloc((size_t)C * 4);
    tw_normal(x, 2 * n);
    tw_normal(w, (size_t)C);
    tw_as_act(x, 2 * n, act);
    struct rows_io
        got = { .live = T, .T = T + PAD, .C = C, .add = add, .act = act, .x = x, .w = w },
        want = got;
    want.act = FDK_F32;
    run_rows(&tw.cpu, &want);
    run_rows(&tw.gpu, &got);
    /* Sums of C squares in another order; a root and exponentials of a few units. */
    tw_near_act(got.norm, want.norm, n, act, 2e-6, 1e-30, "norm");
    tw_same(got.residual, want.residual, n * 4, "residual");
    tw_near_act(got.silu, want.silu, n, act, act == FDK_F32 ? 1e-6 : 4e-6, 1e-30, "silu");
    rows_free(&want);
    rows_free(&got);
    free(x);
    free(w);
}

static void
rmsnorm_and_silu(void **state)
{
    static const int shape[][2] = { { 1, 1 }, { 5, 17 }, { 3, 256 }, { 40, 1000 },
        { 2, 4096 }, { 90, 5120 }, { 2, 8192 }, { 3, 12288 }, { 2, 16384 }, { 2, 16392 } };
    (void)state;
    for (size_t i = 0; i < 4 * sizeof(shape) / sizeof(shape[0]); i++)
        check_rows(shape[i / 4][0], shape[i / 4][1], i % 2, i & 2 ? FDK_BF16 : FDK_F32);
}

/* Silu of extreme values: no NaN where the cpu has none. */
static void
silu_of_large_numbers(void **state)
{
    static const float gate[] = { -3e38f, -1000, -104, -88.5f, -87, 0, 88, 1000, 3e38f };
    const int32_t live = 1;
    (void)state;
    for (int i = 0; i < 2; i++) {
        enum fdk_dtype act = i ? FDK_BF16 : FDK_F32;
        float x[32] = { 0 };
        for (int k = 0; k < 16; k++) {
            x[k] = gate[k % 9];
            x[16 + k] = 1;
        }
        tw_as_act(x, 32, act);
        struct fdk_silu_mul_args a = { .y = tw_new_act(&tw.gpu, NULL, 16, act),
            .gu = tw_new_act(&tw.gpu, x, 32, act),
            .n = tw_new(&tw.gpu, &live, 4),
            .T = 1,
            .F = 16,
            .act = act };
        OK(tw.gpu.d.ops->silu_mul(&a, tw.gpu.d.st));
        float *y = tw_read_act(&tw.gpu, a.y, 16, act);
        for (int k = 0; k < 16; k++)
            k_assert_near(y[k], x[k] < 0 ? 0 : x[k],
                x[k] < 0 ? 1e-30 : 1e-6 * (double)x[k], "silu", (size_t)k);
        free(y);
        tw_free(&tw.gpu);
    }
}

/* A row's bits do not depend on how many rows the launch has. */
static void
rows_stand_alone(void **state)
{
    enum { LIVE = 3, MANY = 300 };
    static const int widths[] = { 17, 1000, 4096, 8192 };
    (void)state;
    for (int i = 0; i < 8; i++) {
        int C = widths[i / 2];
        size_t n = (size_t)MANY * (size_t)C, live = (size_t)LIVE * (size_t)C;
        float *x = malloc(2 * n * 4), *w = malloc((size_t)C * 4);
        tw_normal(x, 2 * n);
        tw_normal(w, (size_t)C);
        struct rows_io many = { .live = MANY,
            .T = MANY,
            .C = C,
            .add = 1,
            .act = i % 2 ? FDK_BF16 : FDK_F32,
            .x = x,
            .w = w },
                       few = many;
        run_rows(&tw.gpu, &many);
        /* The addends of a small launch come right after its rows; silu's rows are two
         * rows each, so the first ones have the same numbers. */
        few.live = few.T = LIVE;
        float *y = malloc(2 * live * 4);
        memcpy(y, x, live * 4);
        memcpy(y + live, x + n, live * 4);
        few.x = y;
        run_rows(&tw.gpu, &few);
        tw_same(few.norm, many.norm, live * 4, "norm");
        tw_same(few.residual, many.residual, live * 4, "residual");
        tw_same(few.silu, many.silu, (size_t)C * 4, "silu");
        rows_free(&many);
        rows_free(&few);
        free(x);
        free(y);
        free(w);
    }
}

static void
rows_arguments(void **state)
{
    static float v[64];
    const struct fdk_ops *k = tw.gpu.d.ops;
    fdk_stream_t st = tw.gpu.d.st;
    struct k_step s;
    (void)state;
    k_step_init(&s);
    struct fdk_rmsnorm_args
        n = { .y = v, .x = v, .w = v, .n = (int32_t *)v, .T = 1, .C = 8, .act = FDK_F16 };
    struct fdk_silu_mul_args
        m = { .y = v, .gu = v, .n = (int32_t *)v, .T = 1, .F = 8, .act = FDK_F16 };
    struct fdk_gather_args g = { .y = v, .x = v, .b = &s.b, .O = 1, .C = 8, .act = FDK_F16 };
    assert_int_equal(k->rmsnorm(&n, st), -ENOTSUP);
    assert_int_equal(k->silu_mul(&m, st), -ENOTSUP);
    assert_int_equal(k->gather(&g, st), -ENOTSUP);
    n.act = m.act = g.act = FDK_DTYPE__N;
    assert_int_equal(k->rmsnorm(&n, st), -EINVAL);
    assert_int_equal(k->silu_mul(&m, st), -EINVAL);
    assert_int_equal(k->gather(&g, st), -EINVAL);
    assert_int_equal(k->act(FDK_BF16), FDK_BF16);
    assert_int_equal(k->act(FDK_I4), FDK_BF16);
    assert_int_equal(k->act(FDK_F16), FDK_F32);
    assert_int_equal(k->act(FDK_F32), FDK_F32);
}

/* ---- rotation and KV ----------------------------------------------------- */

enum { N_BLOCK = 96, N_LAYER = 2 };

struct att {                   /* a step through one layer */
    int H, K, D, rot, B, norm; /* norm 2: one over all heads */
    int interleaved, offset;   /* offset: of the norms' weights */
    int n_all, all_share;      /* norm 2: all heads and ranks that the norm covers;
                           * 0: only those of qkv */
    enum fdk_dtype t, act;
    struct k_step s;
    float *qkv, *all, *norms, *inv_freq, *head_scale;
    char *kv; /* content of the pool before */
    size_t n_qkv, kv_bytes;
};

struct att_out {
    float *cs, *qkv;
    char *kv;
};

static struct fdk_kv
att_kv(const struct att *a)
{
    uint64_t tokens = (uint64_t)(a->K * a->B),
             half = tokens * (uint64_t)a->D * fdk_dtype_bytes(a->t);
    struct fdk_kv kv = { .v_bytes = half,
        .block_size = a->B,
        .n_kv_head = a->K,
        .head_dim = a->D,
        .dtype = a->t };
    kv.k_scale_off = (2 * half + 3) / 4 * 4;
    kv.v_scale_off = kv.k_scale_off + 4 * tokens;
    kv.layer_bytes = kv.v_scale_off + 4 * tokens;
    kv.block_bytes = N_LAYER * kv.layer_bytes;
    return kv;
}

static void
att_new(struct att *a, int n_row, int most)
{
    random_step(&a->s, n_row, most, a->B, N_BLOCK / n_row);
    /* Each row has its own blocks, in the table of its state slot. */
    for (int r = 0; r < n_row; r++) {
        a->s.state[r] = (r * 3 + 5) % K_MAX_ROW;
        for (int i = 0; i < K_STRIDE; i++)
            a->s.block_table[a->s.state[r] * K_STRIDE + i] = i < N_BLOCK / n_row
                ? r * (N_BLOCK / n_row) + (i * 5 + 1) % (N_BLOCK / n_row)
                : 0;
    }
    for (int t = 0; t < a->s.n_tok; t++)
        a->s.slot_map[t] =
            a->s.block_table[a->s.state[a->s.row[t]] * K_STRIDE + a->s.pos[t] / a->B] *
                a->B +
            a->s.pos[t] % a->B;
    a->n_qkv = (size_t)(a->s.n_tok + PAD) * (size_t)((a->H + 2 * a->K) * a->D);
    a->qkv = malloc(a->n_qkv * 4);
    a->norms = malloc((size_t)((a->H + a->K) * a->D) * 4);
    a->inv_freq = malloc((size_t)(a->rot / 2 + 1) * 4);
    a->head_scale = malloc((size_t)(N_LAYER * 2 * a->K) * 4);
    tw_normal(a->qkv, a->n_qkv);
    tw_as_act(a->qkv, a->n_qkv, a->act);
    a->all = malloc(a->n_qkv * (size_t)(a->n_all + 1) * 4);
    tw_normal(a->all, a->n_qkv * (size_t)a->n_all);
    tw_as_act(a->all, a->n_qkv * (size_t)a->n_all, a->act);
    tw_normal(a->norms, (size_t)((a->H + a->K) * a->D));
    for (int i = 0; i < a->rot / 2; i++)
        a->inv_freq[i] = powf(10000, -2.0f * (float)i / (float)a->rot);
    for (int i = 0; i < N_LAYER * 2 * a->K; i++)
        a->head_scale[i] = 0.01f + 0.001f * (float)tw_int(0, 20);
    struct fdk_kv kv = att_kv(a);
    a->kv_bytes = N_BLOCK * kv.block_bytes;
    a->kv = malloc(a->kv_bytes);
    /* Bytes that are numbers in every type: floats of 0.5 to 1, small integers. */
    for (size_t i = 0; i < a->kv_bytes; i++)
        a->kv[i] = (char)(a->t == FDK_F32 || a->t == FDK_BF16
                ? (i % fdk_dtype_bytes(a->t) == fdk_dtype_bytes(a->t) - 1 ? 0x3f : 0x1c)
                : (int)(k_rand(&tw.seed) % 0x60));
    for (uint64_t b = 0; b < N_BLOCK * N_LAYER && a->t == FDK_I8; b++)
        for (uint64_t i = 0; i < 2 * (uint64_t)(a->K * a->B); i++) {
            float scale = 0.001f * (float)tw_int(1, 20);
            memcpy(a->kv + b * kv.layer_bytes + kv.k_scale_off + 4 * i, &scale, 4);
        }
}

static void
att_free(struct att *a)
{
    free(a->qkv);
    free(a->all);
    free(a->norms);
    free(a->inv_freq);
    free(a->head_scale);
    free(a->kv);
}

/* Launches rope_table and qkv of the step for T tokens, with activations of type act. */
static struct att_out
run_qkv(struct two_dev *t, const struct att *a, int T, enum fdk_dtype act)
{
    struct att_out r = { 0 };
    char *d = NULL;
    struct fdk_batch b = tw_step(t, &a->s, &d);
    struct fdk_kv kv = att_kv(a);
    size_t ncs = (size_t)(T * (a->rot + 1)) * 4;
    size_t nq = (size_t)T * (size_t)((a->H + 2 * a->K) * a->D);
    float *norms = tw_new(t, a->norms, (size_t)(a->H * a->D) * 4);
    void *norm2 = tw_new(t, a->norms + a->H * a->D, (size_t)(a->K * a->D) * 4);
    kv.base = tw_new(t, a->kv, a->kv_bytes);
    kv.scale = a->t == FDK_F8E4M3
        ? tw_new(t, a->head_scale, (size_t)(N_LAYER * 2 * a->K) * 4)
        : NULL;
    struct fdk_qkv_args q = {
        .qkv = tw_new_act(t, NULL, nq, act),
        .q_norm = a->norm ? norms : NULL,
        .k_norm = a->norm ? norm2 : NULL,
        .cs = tw_new(t, NULL, ncs),
        .b = &b,
        .kv = kv,
        .T = T,
        .H = a->H,
        .K = a->K,
        .D = a->D,
        .rot = a->rot,
        .layer = N_LAYER - 1,
        .eps = 1e-6f,
        .norm_offset = (float)a->offset,
        .norm_all = a->norm == 2,
        .n_all = a->n_all,
        .all_share = a->all_share,
        .interleaved = a->interleaved,
        .act = act,
    };
    if (a->n_all > 0)
        q.all = tw_new_act(t, a->all, a->n_qkv * (size_t)a->n_all, act);
    void *src = tw_new_act(t, a->qkv, a->n_qkv, act);
    OK(t->d.ops->copy(t->d.st, q.qkv, src, a->n_qkv * fdk_dtype_bytes(act)));
    struct fdk_rope_table_args rt = { .cs = (float *)(uintptr_t)q.cs,
        .inv_freq = tw_new(t, a->inv_freq, (size_t)(a->rot / 2 + 1) * 4),
        .b = &b,
        .T = T,
        .rot = a->rot,
        .scale = 1.25f };
    if (a->rot > 0)
        OK(t->d.ops->rope_table(&rt, t->d.st));
    OK(t->d.ops->qkv(&q, t->d.st));
    r.cs = tw_read(t, q.cs, (size_t)(a->s.n_tok + PAD) * (size_t)a->rot * 4);
    r.qkv = tw_read_act(t, q.qkv, a->n_qkv, act);
    r.kv = tw_read(t, kv.base, a->kv_bytes);
    tw_free(t);
    return r;
}

static void
att_out_free(struct att_out *r)
{
    free(r->cs);
    free(r->qkv);
    free(r->kv);
}

/* Compares stored numbers: fp32 within the rounding of norm and rotation, bf16 within
 * that plus one step of bf16, 8-bit types at most one step apart. */
static void
check_kv(const struct att *a, const char *got, const char *want)
{
    struct fdk_kv kv = att_kv(a);
    size_t eb = fdk_dtype_bytes(a->t), off = 0;
    for (; off + eb <= a->kv_bytes; off += eb) {
        int in_scales = a->t == FDK_I8 && off % kv.layer_bytes >= kv.k_scale_off;
        if (memcmp(got + off, want + off, eb) == 0)
            continue;
        if (in_scales) {
            off = off / 4 * 4;
            tw_near((const void *)(got + off), (const void *)(want + off), 1, 2e-6, 0,
                "kv scale");
            off += 3;
        } else if (eb == 4) {
            tw_near((const void *)(got + off), (const void *)(want + off), 1, 2e-6, 4e-6,
                "kv");
        } else if (eb == 2) {
            double y = k_from_half(*(const uint16_t *)(const void *)(want + off), a->t);
            k_assert_near(k_from_half(*(const uint16_t *)(const void *)(got + off), a->t),
                y, 0x1p-7 * fabs(y) + 4e-6, "kv", off);
        } else {
            int d = got[off] - want[off];
            if (abs(d) > 1)
                print_error("kv byte %zu of %s\n", off, fdk_dtype_name(a->t));
            assert_true(abs(d) <= 1);
        }
    }
}

/* A launch of many tokens gives the same bits. */
static void
check_qkv(struct att *a, int n_row, int most)
{
    att_new(a, n_row, most);
    int T = a->s.n_tok + PAD;
    /* A token without a slot keeps its keys and values. */
    if (a->s.n_tok > 2)
        a->s.slot_map[1] = -1;
    struct att_out want = run_qkv(&tw.cpu, a, T, FDK_F32);
    struct att_out got = run_qkv(&tw.gpu, a, T, a->act);
    struct att_out large = run_qkv(&tw.gpu, a, T + 300, a->act);
    /* cosf and sinf of large angles within two units of 1. */
    tw_near(got.cs, want.cs, (size_t)(T * a->rot), 0, 3e-7, "rope");
    /* A norm over all heads may change the keys in place too. */
    for (size_t row = (size_t)(a->H + 2 * a->K) * (size_t)a->D, i = 0; i < a->n_qkv;
         i += row)
        tw_near_act(got.qkv + i, want.qkv + i, a->norm == 2 ? (size_t)(a->H * a->D) : row,
            a->act, 2e-6, 4e-6, "qkv");
    check_kv(a, got.kv, want.kv);
    tw_same(large.qkv, got.qkv, a->n_qkv * 4, "qkv of many");
    tw_same(large.kv, got.kv, a->kv_bytes, "kv of many");
    att_out_free(&want);
    att_out_free(&got);
    att_out_free(&large);
    att_free(a);
}

static void
qkv_against_cpu(void **state)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_BF16, FDK_I8, FDK_F8E4M3 };
    static const int shape[][10] = {
        /* H, K, D, rot, B, norm, interleaved, offset, n_all, all_share */
        { 4, 2, 32, 32, 16, 0 },
        { 8, 1, 64, 64, 64, 1 },
        { 3, 3, 20, 20, 16, 1 },
        { 6, 2, 80, 32, 32, 0 },
        { 2, 2, 128, 128, 128, 1 },
        { 40, 2, 17, 0, 48, 1 },
        { 8, 2, 256, 256, 16, 1 },
        { 32, 8, 64, 64, 16, 0 },
        { 5, 1, 48, 16, 16, 1 },
        { 32, 8, 128, 64, 64, 1 },
        { 2, 1, 64, 24, 16, 0 },
        { 8, 2, 128, 64, 16, 0, 1, 0 },
        { 4, 1, 256, 256, 16, 1, 0, 1 },
        { 6, 3, 32, 32, 16, 2, 0, 0 },
        { 6, 3, 32, 32, 16, 2, 0, 0, 3, 1 },
        { 5, 1, 20, 20, 16, 2, 1, 1, 4, 2 },
    };
    static struct att a;
    (void)state;
    for (size_t ti = 0; ti < 8; ti++)
        for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
            /* With one norm over all heads, 16-bit results are rounded twice. */
            if (!tw_takes(ti + i, 5) || (shape[i][5] == 2 && ti % 2 != 0))
                continue;
            a = (struct att){ .H = shape[i][0],
                .K = shape[i][1],
                .D = shape[i][2],
                .rot = shape[i][3],
                .B = shape[i][4],
                .norm = shape[i][5],
                .interleaved = shape[i][6],
                .offset = shape[i][7],
                .n_all = shape[i][8],
                .all_share = shape[i][9],
                .t = types[ti / 2],
                .act = ti % 2 ? FDK_BF16 : FDK_F32 };
            check_qkv(&a, tw_int(1, 12), 3);
            check_qkv(&a, 1, 2 * a.B);
            check_qkv(&a, 3, a.B + 7);
        }
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed_is_exact),
        cmocka_unit_test(gather_is_exact),
        cmocka_unit_test(row_update_is_exact),
        cmocka_unit_test(rmsnorm_and_silu),
        cmocka_unit_test(silu_of_large_numbers),
        cmocka_unit_test(rows_stand_alone),
        cmocka_unit_test(rows_arguments),
        cmocka_unit_test(qkv_against_cpu),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    if (argc > 1)
        cmocka_set_skip_filter(argv[1]);
    rc = cmocka_run_group_tests_name("k_cuda", tests, NULL, NULL);
    tw_close();
    return rc;
}
