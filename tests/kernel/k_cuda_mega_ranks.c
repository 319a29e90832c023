/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda backend's one kernel for the layers of a step of one row, on ranks that share
 * a model: compared with the same program run as one kernel per operation, eager and in a
 * graph; a rank that does not arrive, and ranks that have bound different programs.
 */
#include "config.h"

#include "kernels/program.h"
#include "tests/kernel/k_ranks.h"

enum {
    LAYERS = 3,
    OPS = 11 * LAYERS + 2,
    BLOCK = 64,
    N_BLOCK = 64,
    REPLAYS = 20,
    SCRATCH = 32 << 20
};

struct shape { /* shape of a rank */
    enum fdk_dtype w;
    int group; /* elements that share a scale, 0: a whole row */
    int C, F, H, K, D;
};
static const struct shape shapes[] = {
    { FDK_BF16, 0, 4096, 7168, 16, 4, 128 },
    { FDK_BF16, 0, 896, 2432, 8, 2, 64 },
    { FDK_BF16, 0, 8192, 3584, 8, 1, 128 },
    { FDK_I8, 0, 1024, 1536, 4, 2, 128 },
    { FDK_F8E4M3, 128, 1024, 2560, 8, 1, 64 },
    { FDK_I4, 128, 4608, 2560, 8, 2, 128 },
};
#define N_SHAPE (sizeof(shapes) / sizeof(shapes[0]))

struct rank {
    struct fdk_batch b;
    void *step, *x, *top, *kv; /* arrays of a step, and its results */
    void *x0, *kv0;            /* initial content of x and kv */
    struct fdk_att_plan_args plan;
    struct fdk_attention_args att;
    struct fdk_op op[OPS];
    int n_op;
    struct fdk_bound *bound;
    struct fdk_graph *graph;
};
static struct chain {
    struct side s;
    struct shape of;
    size_t kv_bytes;
    struct rank r[FDK_MAX_RANKS];
} c;

/* Results of all ranks: the residual stream, its norm, the KV cache. */
struct left {
    float *x[FDK_MAX_RANKS];
    uint16_t *top[FDK_MAX_RANKS], *kv[FDK_MAX_RANKS];
};

/* ---- programs ------------------------------------------------------------------- */

static void *
random_new(int q, uint64_t key, size_t n, enum fdk_dtype t, float mean, float deviation)
{
    const struct fdk_dummy_args a = { .y = put(&c.s, q, NULL, n * fdk_dtype_bytes(t)),
        .y_dtype = t,
        .key = key,
        .n = n,
        .mean = mean,
        .scale = deviation / 148 };
    OK(ops->dummy(&a, c.s.st[q]));
    return a.y;
}

static struct fdk_op *
op_add(struct rank *r, enum fdk_op_kind kind)
{
    assert_true(r->n_op < OPS);
    r->op[r->n_op] = (struct fdk_op){ .kind = kind, .rows = FDK_PER_TOKEN };
    return &r->op[r->n_op++];
}

static void
norm(struct rank *r, void *y, void *add, const float *w)
{
    op_add(r, FDK_OP_RMSNORM)->rmsnorm = (struct fdk_rmsnorm_args){ .y = y,
        .x = r->x,
        .add = add,
        .w = w,
        .n = r->b.n_tok,
        .C = c.of.C,
        .eps = 1e-5f,
        .act = FDK_BF16 };
}

/* y = w x, with the rank's own w. */
static void
gemm(int q, void *y, void *x, int N, int K, uint64_t key, void *scratch)
{
    struct rank *r = &c.r[q];
    struct fdk_gemm_args *g = &op_add(r, FDK_OP_GEMM)->gemm;

    *g = (struct fdk_gemm_args){ .y = y,
        .x = x,
        .w = random_new(q, key * 16 + (uint64_t)q, (size_t)N * (size_t)K, FDK_BF16, 0,
            1 / sqrtf((float)K)),
        .n = r->b.n_tok,
        .N = N,
        .K = K,
        .ldy = N,
        .w_dtype = c.of.w,
        .w_group = c.of.group != 0 ? c.of.group : K,
        .act = FDK_BF16,
        .y_dtype = FDK_BF16,
        .scratch = scratch,
        .scratch_bytes = SCRATCH };
    if (c.of.w == FDK_BF16)
        return;
    struct fdk_pack_args a = {
        .w = { c.of.w, .rows = N, .cols = K, .group = g->w_group },
        .x = g->w,
        .x_dtype = FDK_BF16,
        .bad = put(&c.s, q, NULL, 8),
        .n = N,
    };
    OK(ops->weight_layout(&a.w));
    a.w.data = put(&c.s, q, NULL, a.w.bytes);
    OK(ops->weight_pack(&a, c.s.st[q]));
    g->w = a.w.data;
    g->w_scale = (void *)((char *)a.w.data + a.w.scale_at);
}

static void
sum(struct rank *r, void *x)
{
    op_add(r, FDK_OP_ALL_REDUCE)->all_reduce = (struct fdk_all_reduce_args){ .group = c.s.g,
        .y = x,
        .x = x,
        .n = r->b.n_tok,
        .C = c.of.C,
        .act = FDK_BF16 };
}

static void
attention(struct rank *r, int layer, void *y, void *qkv, void *cs)
{
    struct fdk_op *op;
    op_add(r, FDK_OP_QKV)->qkv = (struct fdk_qkv_args){ .qkv = qkv,
        .cs = cs,
        .kv = r->att.kv,
        .H = c.of.H,
        .K = c.of.K,
        .D = c.of.D,
        .rot = c.of.D,
        .layer = layer,
        .eps = 1e-5f,
        .act = FDK_BF16 };
    op = op_add(r, FDK_OP_ATTENTION);
    op->attention = r->att;
    op->attention.y = y;
    op->attention.qkv = qkv;
    op->attention.layer = layer;
}

static void
program(int q)
{
    const int C = c.of.C, F = c.of.F, HD = c.of.H * c.of.D, QKV = HD + 2 * c.of.K * c.of.D;
    struct rank *r = &c.r[q];
    void *y = put(&c.s, q, NULL, (size_t)C * 2),
         *cs = put(&c.s, q, NULL, (size_t)c.of.D * 4);
    void *qkv = put(&c.s, q, NULL, (size_t)QKV * 2),
         *gu = put(&c.s, q, NULL, (size_t)F * 4);
    void *att = put(&c.s, q, NULL, (size_t)HD * 2), *o = put(&c.s, q, NULL, (size_t)C * 2);
    void *hidden = put(&c.s, q, NULL, (size_t)F * 2),
         *down = put(&c.s, q, NULL, (size_t)C * 2);
    void *scratch = put(&c.s, q, NULL, SCRATCH);
    const float *w = random_new(q, 7, (size_t)C, FDK_F32, 1, 0.3f);

    op_add(r, FDK_OP_ROPE_TABLE)->rope_table = (struct fdk_rope_table_args){ .cs = cs,
        .inv_freq = random_new(q, 8, (size_t)c.of.D / 2, FDK_F32, 0.3f, 0.1f),
        .rot = c.of.D,
        .scale = 1 };
    for (int i = 0; i < LAYERS; i++) {
        const uint64_t key = 100 + 4 * (uint64_t)i;
        norm(r, y, i > 0 ? down : NULL, w);
        gemm(q, qkv, y, QKV, C, key, scratch);
        attention(r, i, att, qkv, cs);
        gemm(q, o, att, C, HD, key + 1, scratch);
        sum(r, o);
        norm(r, y, o, w);
        gemm(q, gu, y, 2 * F, C, key + 2, scratch);
        op_add(r, FDK_OP_SILU_MUL)->silu_mul = (struct fdk_silu_mul_args){ .y = hidden,
            .gu = gu,
            .n = r->b.n_tok,
            .F = F,
            .act = FDK_BF16 };
        gemm(q, down, hidden, C, F, key + 3, scratch);
        sum(r, down);
    }
    norm(r, r->top, down, w);
}

/* Makes the buffers that attention needs besides a layer's, and the plan of a step. */
static void
plan_new(int q)
{
    struct rank *r = &c.r[q];
    struct fdk_attention_args *a = &r->att;
    const uint64_t half = (uint64_t)c.of.K * BLOCK * (uint64_t)c.of.D * 2;
    int32_t qa, bt;

    *a = (struct fdk_attention_args){ .b = &r->b,
        .kv = { .base = r->kv,
            .block_bytes = LAYERS * 2 * half,
            .layer_bytes = 2 * half,
            .v_bytes = half,
            .block_size = BLOCK,
            .n_kv_head = c.of.K,
            .head_dim = c.of.D,
            .dtype = FDK_BF16 },
        .n_work = put(&c.s, q, NULL, 4),
        .n_done = put(&c.s, q, NULL, 4),
        .T = 1,
        .H = c.of.H,
        .K = c.of.K,
        .D = c.of.D,
        .scale = 1.0f / sqrtf((float)c.of.D),
        .act = FDK_BF16 };
    ops->att_shape(a, &qa, &bt);
    a->n_work_max = fdk_tiles_max(1, 1, qa, bt);
    a->work = put(&c.s, q, NULL, (size_t)a->n_work_max * sizeof(*a->work));
    a->scratch_bytes = ops->attention_scratch(c.s.ctx, a);
    a->scratch = put(&c.s, q, NULL, a->scratch_bytes);
    size_t bytes = ops->att_plan_bytes(a, a->n_work_max);
    a->plan = put(&c.s, q, NULL, bytes);
    r->plan = k_plan_of(a, qa, bt, bytes);
}

static void
chain_new(const struct shape *of, int n, uint32_t limit_us)
{
    const struct fdk_group_args a = { .n_rank = n, .spin_limit_us = limit_us };

    memset(&c, 0, sizeof(c));
    c.of = *of;
    side_open(&c.s, &a);
    c.kv_bytes = (size_t)N_BLOCK * LAYERS * 2 * (size_t)(of->K * BLOCK * of->D) * 2;
    for (int q = 0; q < n; q++) {
        struct rank *r = &c.r[q];

        r->step = put(&c.s, q, NULL, sizeof(struct k_step));
        r->b = k_batch_at(r->step, 1);
        r->x0 = random_new(q, 1, (size_t)of->C, FDK_F32, 0, 1);
        r->x = put(&c.s, q, NULL, (size_t)of->C * 4);
        r->top = put(&c.s, q, NULL, (size_t)of->C * 2);
        r->kv0 = random_new(q, 20 + (uint64_t)q, c.kv_bytes / 2, FDK_BF16, 0, 1);
        r->kv = put(&c.s, q, NULL, c.kv_bytes);
        plan_new(q);
        program(q);
        OK(fdk_bind(ops, c.s.ctx, q, r->op, r->n_op, &r->bound));
    }
    side_sync(&c.s);
}

/* guards: 0 after a failure, where buffers cannot be read. */
static void
chain_free(int guards)
{
    for (int q = 0; q < c.s.n; q++) {
        ops->graph_free(c.r[q].graph);
        fdk_unbind(c.r[q].bound);
    }
    drop(&c.s, guards);
    side_close(&c.s);
}

/* ---- steps ------------------------------------------------------------------------ */

/* A step of one token after `before` others. */
static void
step_put(int before)
{
    static struct k_step st;

    k_step_init(&st);
    k_step_row(&st, 1, before, BLOCK, N_BLOCK, 3);
    for (int q = 0; q < c.s.n; q++)
        OK(ops->copy(c.s.st[q], c.r[q].step, &st, sizeof(st)));
    side_sync(&c.s);
}

static struct fdk_step
step_of(const struct rank *r)
{
    return (struct fdk_step){ .b = &r->b,
        .T = 1,
        .n_work = r->att.n_work_max,
        .att = { { .b = &r->b,
            .work = r->att.work,
            .n_work = r->att.n_work,
            .n_done = r->att.n_done,
            .plan = r->att.plan } } };
}

static void
rank_begin(int q)
{
    struct rank *r = &c.r[q];

    OK(ops->copy(c.s.st[q], r->x, r->x0, (size_t)c.of.C * 4));
    OK(ops->copy(c.s.st[q], r->kv, r->kv0, c.kv_bytes));
}

static void
rank_launch(int q, int fused)
{
    struct fdk_launch l[OPS];
    const struct rank *r = &c.r[q];
    const struct fdk_step s = step_of(r);
    int n = fdk_launches(r->bound, &s, fused, l);

    OK(ops->att_plan(&r->plan, c.s.st[q]));
    for (int i = 0; i < n; i++)
        OK(fdk_launch(r->bound, &s, &l[i], c.s.st[q]));
}

/* All layers are one launch, except the sum after the last one, which
 * is launched with the norm. */
static void
check_launches(void)
{
    struct fdk_launch l[OPS];
    const struct fdk_step s = step_of(&c.r[0]);
    int n = fdk_launches(c.r[0].bound, &s, 1, l);

    assert_int_equal(n, 3);
    assert_string_equal(fdk_launch_name(c.r[0].bound, &l[1]), "decode_layers_ranks");
    assert_int_equal(l[1].n, 11 * LAYERS - 1);
    assert_int_equal(l[2].n, 2);
}

static void
left_free(struct left *l)
{
    for (int q = 0; q < c.s.n; q++) {
        free(l->x[q]);
        free(l->top[q]);
        free(l->kv[q]);
    }
}

/* Collects the results, which must be equal on all ranks except for the KV cache. */
static struct left
left_now(void)
{
    struct left l;

    side_sync(&c.s);
    for (int q = 0; q < c.s.n; q++) {
        l.x[q] = malloc((size_t)c.of.C * 4);
        l.top[q] = malloc((size_t)c.of.C * 2);
        l.kv[q] = malloc(c.kv_bytes);
        assert_true(l.x[q] != NULL && l.top[q] != NULL && l.kv[q] != NULL);
        get(&c.s, q, l.x[q], c.r[q].x, (size_t)c.of.C * 4);
        get(&c.s, q, l.top[q], c.r[q].top, (size_t)c.of.C * 2);
        get(&c.s, q, l.kv[q], c.r[q].kv, c.kv_bytes);
        same((char *)l.x[q], (char *)l.x[0], (size_t)c.of.C * 4, "residual", q);
        same((char *)l.top[q], (char *)l.top[0], (size_t)c.of.C * 2, "norm", q);
    }
    return l;
}

static struct left
run(int fused, int first)
{
    for (int k = 0; k < c.s.n; k++)
        rank_begin((first + k) % c.s.n);
    for (int k = 0; k < c.s.n; k++)
        rank_launch((first + k) % c.s.n, fused);
    return left_now();
}

static void
left_same(const struct left *a, const struct left *b)
{
    for (int q = 0; q < c.s.n; q++) {
        same((char *)a->x[q], (char *)b->x[q], (size_t)c.of.C * 4, "residual", q);
        same((char *)a->top[q], (char *)b->top[q], (size_t)c.of.C * 2, "norm", q);
        same((char *)a->kv[q], (char *)b->kv[q], c.kv_bytes, "KV", q);
    }
}

/* |got - want| / |want|. */
static double
distance(const void *got, const void *want, size_t n, enum fdk_dtype t)
{
    const size_t eb = fdk_dtype_bytes(t);
    double diff = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        double g = (double)f32_of((const char *)got + i * eb, t);
        double w = (double)f32_of((const char *)want + i * eb, t);
        diff += (g - w) * (g - w);
        all += w * w;
    }
    return sqrt(diff / (all > 0 ? all : 1));
}

/* Distance of the keys and values that the two ways have written, which
 * must be those of one token. */
static double
kv_distance(const uint16_t *got, const uint16_t *want, const uint16_t *before)
{
    const size_t n = c.kv_bytes / 2, most = (size_t)(LAYERS * 2 * c.of.K * c.of.D);
    uint16_t *g = malloc(most * 2), *w = malloc(most * 2);
    size_t m = 0;
    double d;

    assert_true(g != NULL && w != NULL);
    for (size_t i = 0; i < n; i++)
        if (got[i] != before[i] || want[i] != before[i]) {
            assert_true(m < most);
            g[m] = got[i];
            w[m++] = want[i];
        }
    assert_true(m > most / 2);
    d = distance(g, w, m, FDK_BF16);
    free(g);
    free(w);
    return d;
}

static double
left_near(const struct left *got, const struct left *want)
{
    double worst = fmax(distance(got->x[0], want->x[0], (size_t)c.of.C, FDK_F32),
        distance(got->top[0], want->top[0], (size_t)c.of.C, FDK_BF16));
    uint16_t *before = malloc(c.kv_bytes);

    assert_non_null(before);
    for (int q = 0; q < c.s.n; q++) {
        get(&c.s, q, before, c.r[q].kv0, c.kv_bytes);
        worst = fmax(worst, kv_distance(got->kv[q], want->kv[q], before));
    }
    free(before);
    assert_true(worst < 2e-2);
    return worst;
}

static void
capture(void)
{
    for (int q = 0; q < c.s.n; q++) {
        ops->graph_free(c.r[q].graph);
        OK(ops->graph_begin(c.s.st[q]));
        rank_launch(q, 1);
        OK(ops->graph_end(c.s.st[q], &c.r[q].graph));
    }
}

/* Replays in direct succession, the ranks in turn. */
static void
replay_all(const struct left *want)
{
    struct left l;

    for (int i = 0; i < REPLAYS; i++)
        for (int k = 0; k < c.s.n; k++) {
            const int q = (i + k) % c.s.n;
            rank_begin(q);
            OK(ops->graph_launch(c.r[q].graph, c.s.st[q]));
        }
    l = left_now();
    left_same(&l, want);
    left_free(&l);
}

static void
one_length(int before)
{
    struct left alone, fused;

    step_put(before);
    alone = run(0, 0);
    fused = run(1, 1);
    printf("%d ranks, %s, C %d, %d tokens before: within %.1e\n", c.s.n,
        fdk_dtype_name(c.of.w), c.of.C, before, left_near(&fused, &alone));
    for (int i = 0; i < 2; i++)
        replay_all(&fused);
    left_free(&alone);
    left_free(&fused);
}

static void
t_steps(void **state)
{
    static const int before[] = { 0, 15, 63, 64, 700, 1500 };
    int n;

    (void)state;
    for (n = 2; n <= n_device && n <= 4; n++)
        for (size_t i = 0; i < N_SHAPE; i++) {
            chain_new(&shapes[i], n, 0);
            check_launches();
            capture();
            for (size_t k = 0; k < sizeof(before) / sizeof(before[0]); k++)
                one_length(before[k]);
            chain_free(1);
        }
}

/* Rank 1 has bound one more program: no rank runs the one kernel, and all get the bits of
 * single operations. After it is unbound they run the one kernel again. */
static void
t_others_bound(void **state)
{
    struct left alone, fused, now;
    struct fdk_bound *other;

    (void)state;
    chain_new(&shapes[0], 2, 0);
    step_put(100);
    alone = run(0, 0);
    fused = run(1, 0);
    assert_int_not_equal(memcmp(alone.x[0], fused.x[0], (size_t)c.of.C * 4), 0);
    OK(fdk_bind(ops, c.s.ctx, 1, c.r[1].op, c.r[1].n_op, &other));
    now = run(1, 0);
    left_same(&now, &alone);
    left_free(&now);
    fdk_unbind(other);
    now = run(1, 1);
    left_same(&now, &fused);
    left_free(&now);
    left_free(&alone);
    left_free(&fused);
    chain_free(1);
}

static void
t_never_comes(void **state)
{
    uint64_t t0;

    (void)state;
    chain_new(&shapes[0], 2, LIMIT_US);
    step_put(100);
    rank_begin(0);
    t0 = now_us();
    rank_launch(0, 1);
    assert_int_equal(ops->stream_sync(c.s.st[0]), -EIO);
    assert_true(now_us() - t0 < 8 * LIMIT_US);
    assert_non_null(
        strstr(ops->error_text(c.s.ctx, 0), "rank 1 did not arrive within 400 ms"));
    (void)ops->stream_sync(c.s.st[1]);
    chain_free(0);
}

/* The host aborts for rank 1 while rank 0 waits for it. */
static void
t_told(void **state)
{
    (void)state;
    chain_new(&shapes[0], 2, 0);
    step_put(100);
    rank_begin(0);
    rank_launch(0, 1);
    ops->group_abort(c.s.g, 1);
    assert_int_equal(ops->stream_sync(c.s.st[0]), -EIO);
    assert_non_null(strstr(ops->error_text(c.s.ctx, 0), "rank 1"));
    (void)ops->stream_sync(c.s.st[1]);
    chain_free(0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_steps),
        cmocka_unit_test(t_others_bound),
        cmocka_unit_test(t_never_comes),
        cmocka_unit_test(t_told),
    };
    char err[256] = "";

    ops = &fdk_ops_cuda;
    n_device = ops->available(err, sizeof(err));
    if (n_device < 2) {
        printf("SKIP: two GPUs are needed, %d here%s%s\n", n_device > 0 ? n_device : 0,
            err[0] != '\0' ? ": " : "", err);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
