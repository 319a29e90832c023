/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/program.h"
#include "tests/kernel/k_two.h"

/*
 * The cuda backend's one kernel for the layers of a step of one row: eager and in a
 * graph, compared with the same program run as one kernel per operation with a sync after
 * each. Each operation writes its own region; with one row, regions between the ends of
 * layers need not be written.
 */

enum {
    T_MAX = 4,
    N_KV = 2,
    POOL = 5120,
    STRIDE = 256,
    LONG = 3600,
    SCRATCH = 64 << 20,
    OPS = 1300
};

/* Regions: results of each of N_KV layers, then those of a step. */
enum { Y, Q, ATT, O, Z, GU, HIDDEN, DOWN, PART };
enum { X = N_KV * PART, CS, TOP, LAST, LOGITS, DONE, REGION };

static struct two_dev *const g = &tw.gpu;

struct shape {
    enum fdk_dtype w;
    int group, down_group; /* elements that share a scale, 0: a whole row */
    int C, F, H, K, D, block, rot, V;
    int norms, bias; /* norms of q and k; bias of the qkv product */
};
static const struct shape shapes[] = {
    { FDK_I8, 0, 0, 1024, 1536, 8, 2, 128, 16, 128, 1003, 1, 1 },
    { FDK_I8, 128, 128, 512, 8192, 16, 2, 64, 64, 64, 1008, 0, 0 },
    { FDK_I8, 0, 0, 512, 1536, 8, 8, 64, 64, 32, 1008, 1, 1 },
    { FDK_F8E4M3, 0, 128, 1024, 8192, 4, 4, 128, 16, 64, 1008, 0, 1 },
    { FDK_F8E4M3, 128, 128, 512, 1536, 16, 2, 128, 16, 128, 1003, 1, 1 },
    { FDK_F8E4M3, 128, 0, 1024, 5120, 8, 1, 64, 64, 64, 1008, 1, 0 },
    { FDK_F8E4M3, 128, 128, 2560, 1536, 8, 2, 128, 16, 128, 1003, 0, 0 },
    { FDK_I8, 0, 0, 3072, 1536, 8, 2, 128, 16, 128, 1008, 1, 1 },
    { FDK_BF16, 0, 0, 1536, 4864, 8, 2, 64, 64, 64, 1003, 0, 1 },
    { FDK_F8E4M3, 256, 256, 512, 1536, 8, 2, 64, 64, 64, 1008, 0, 1 },
    { FDK_BF16, 0, 0, 1024, 2816, 16, 2, 128, 128, 16, 1003, 0, 0 },
    { FDK_BF16, 0, 0, 896, 4864, 14, 2, 64, 64, 64, 1008, 1, 1 },
    { FDK_I4, 0, 128, 512, 8192, 8, 8, 64, 64, 32, 1003, 1, 0 },
    { FDK_I4, 128, 128, 1024, 1536, 8, 2, 128, 16, 128, 1003, 1, 1 },
    { FDK_I4, 128, 128, 1024, 9216, 8, 2, 128, 16, 128, 1003, 0, 0 },
    { FDK_I4, 128, 128, 4608, 14336, 16, 4, 128, 128, 64, 1008, 0, 0 },
    { FDK_BF16, 0, 0, 512, 1536, 64, 64, 64, 64, 64, 1008, 0, 1 }, /* qkv: 768 row groups */
};

struct matrix {
    void *w;
    float *scale;
    int N, K, group;
    enum fdk_dtype t;
};
struct region { /* T_MAX rows and one more, which stays poison */
    size_t at;
    int width, ld, bytes; /* width and ld in elements; bytes of an element */
};
struct chain {
    struct shape s;
    struct k_step step;
    struct fdk_batch b;
    struct fdk_kv kv;
    int n_layer;
    int alone, differ;     /* alone: run each operation by itself, with a sync; differ:
                            * the results of both ways may differ */
    struct fdk_op op[OPS]; /* operations of the bound program */
    int n_op;
    struct fdk_bound *bound;
    double worst[2];       /* largest distance: in the first layer, in the others */
    size_t kv_from, bytes; /* offset of KV after the regions, and total size */
    char *init, *want;     /* initial content of any step; content before, then
                            * expected after this step */
    int32_t table[K_MAX_ROW * STRIDE];
    struct region region[REGION];
    struct matrix qkv[N_KV], o[N_KV], gu[N_KV], down[N_KV], out;
    /* on the device */
    float *norm, *head_norm, *bias, *inv_freq;
    char *mem, *d_want, *d_step;
    void *d_table, *scratch;
    struct fdk_att_plan_args plan;
    struct fdk_attention_args att;
    struct fdk_graph *graph;
};

/* Makes roughly normal numbers of type t. */
static void *
random_new(size_t n, enum fdk_dtype t, float mean, float deviation)
{
    const struct fdk_dummy_args a = { .y = tw_new(g, NULL, n * fdk_dtype_bytes(t)),
        .y_dtype = t,
        .key = k_rand(&tw.seed),
        .n = n,
        .mean = mean,
        .scale = deviation / 148 };
    OK(g->d.ops->dummy(&a, g->d.st));
    return a.y;
}

/* Makes a matrix whose products with numbers around 1 are around 1. */
static struct matrix
matrix_new(enum fdk_dtype t, int N, int K, int group)
{
    struct matrix m = { .N = N, .K = K, .group = group != 0 ? group : K, .t = t };
    m.w = random_new((size_t)N * (size_t)K, FDK_BF16, 0, 1 / sqrtf((float)K));
    if (t == FDK_BF16)
        return m;
    struct fdk_pack_args a = { .w = { t, .rows = N, .cols = K, .group = m.group },
        .x = m.w,
        .x_dtype = FDK_BF16,
        .bad = tw_new(g, NULL, 8),
        .n = N };
    OK(g->d.ops->weight_layout(&a.w));
    a.w.data = tw_new(g, NULL, a.w.bytes);
    OK(g->d.ops->weight_pack(&a, g->d.st));
    m.w = a.w.data;
    m.scale = (void *)((char *)a.w.data + a.w.scale_at);
    return m;
}

static void
layers_new(struct chain *c, const struct shape *s)
{
    const int HD = s->H * s->D, QKV = HD + 2 * s->K * s->D;
    const int width[] = { s->C, QKV, HD, s->C, s->C, 2 * s->F, s->F, s->C };
    const int top[] = { s->C, s->rot, s->C, s->C, s->V + 5, 1 };
    for (int i = 0; i < N_KV; i++) {
        c->qkv[i] = matrix_new(s->w, QKV, s->C, s->group);
        c->o[i] = matrix_new(s->w, s->C, HD, s->group);
        c->gu[i] = matrix_new(s->w, 2 * s->F, s->C, s->group);
        c->down[i] = matrix_new(s->w, s->C, s->F, s->down_group);
    }
    /* 16-bit weights if the vocabulary is odd, as in most models. */
    c->out = matrix_new(s->V % 2 ? FDK_BF16 : s->w, s->V, s->C, s->group);
    for (int i = 0; i < REGION; i++) {
        struct region *r = &c->region[i];
        r->at = c->kv_from;
        r->ld = i < X ? width[i % PART] : top[i - X];
        r->width = i == LOGITS ? s->V : r->ld;
        r->bytes = i < X || i == TOP || i == LAST ? 2 : 4;
        c->kv_from += (size_t)(((T_MAX + 1) * r->ld * r->bytes + 255) & ~255);
    }
    c->norm = random_new((size_t)s->C, FDK_F32, 1, 0.3f);
    c->head_norm = random_new((size_t)s->D * 2, FDK_F32, 1, 0.3f);
    c->bias = random_new((size_t)QKV, FDK_F32, 0, 0.5f);
    c->inv_freq = random_new((size_t)s->rot / 2, FDK_F32, 0.3f, 0.1f);
    c->scratch = tw_new(g, NULL, SCRATCH);
}

static void *
at(const struct chain *c, int region)
{
    return c->mem + c->region[region].at;
}

/* Makes the buffers that attention needs besides a layer's
 * regions, and the plan of a step. */
static void
plan_new(struct chain *c, const struct shape *s)
{
    struct fdk_attention_args *a = &c->att;
    int32_t qa, bt;
    *a = (struct fdk_attention_args){ .b = &c->b,
        .kv = c->kv,
        .n_work = tw_new(g, NULL, 4),
        .n_done = at(c, DONE),
        .T = T_MAX,
        .H = s->H,
        .K = s->K,
        .D = s->D,
        .scale = (s->norms ? 1.5f : 1.0f) / sqrtf((float)s->D),
        .act = FDK_BF16 };
    g->d.ops->att_shape(a, &qa, &bt);
    a->n_work_max = fdk_tiles_max(T_MAX, T_MAX, qa, bt);
    a->work = tw_new(g, NULL, (size_t)a->n_work_max * sizeof(*a->work));
    a->scratch_bytes = g->d.ops->attention_scratch(g->d.ctx, a);
    a->scratch = tw_new(g, NULL, a->scratch_bytes);
    size_t bytes = g->d.ops->att_plan_bytes(a, a->n_work_max);
    a->plan = tw_new(g, NULL, bytes);
    c->plan = k_plan_of(a, qa, bt, bytes);
}

static void
chain_new(struct chain *c, const struct shape *s)
{
    uint64_t half = (uint64_t)s->K * (uint64_t)s->block * (uint64_t)s->D * 2;
    size_t kv_bytes = (size_t)(POOL / s->block) * N_KV * 2 * half;
    memset(c, 0, sizeof(*c));
    c->s = *s;
    c->n_layer = N_KV;
    k_step_init(&c->step);
    c->b = tw_step(g, &c->step, &c->d_step);
    c->b.block_table = c->d_table = tw_new(g, NULL, sizeof(c->table));
    c->b.table_stride = STRIDE;
    c->b.max_row = T_MAX;
    layers_new(c, s);
    c->bytes = c->kv_from + kv_bytes;
    c->mem = tw_new(g, NULL, c->bytes);
    c->d_want = tw_new(g, NULL, c->bytes);
    c->kv = (struct fdk_kv){ .base = c->mem + c->kv_from,
        .block_bytes = N_KV * 2 * half,
        .layer_bytes = 2 * half,
        .v_bytes = half,
        .block_size = s->block,
        .n_kv_head = s->K,
        .head_dim = s->D,
        .dtype = FDK_BF16 };
    c->init = malloc(c->bytes);
    c->want = malloc(c->bytes);
    memset(c->init, TW_POISON, c->kv_from);
    tw_get(g, c->init + c->kv_from, random_new(kv_bytes / 2, FDK_BF16, 0, 1), kv_bytes);
    memset(c->init + c->kv_from, 0xff, c->kv.block_bytes); /* belongs to no row: NaN */
    plan_new(c, s);
}

static void
chain_free(struct chain *c)
{
    printf("%s, scales of %d and %d: first layer within %.1e, the rest %.1e\n",
        fdk_dtype_name(c->s.w), c->s.group, c->s.down_group, c->worst[0], c->worst[1]);
    g->d.ops->graph_free(c->graph);
    fdk_unbind(c->bound);
    assert_true(c->differ || c->s.group == 256); /* otherwise the one kernel never ran */
    tw_free(g);
    free(c->init);
    free(c->want);
}

static struct fdk_op *
op_add(struct chain *c, enum fdk_op_kind kind, enum fdk_rows rows)
{
    assert_true(c->n_op < OPS);
    c->op[c->n_op] = (struct fdk_op){ .kind = kind, .rows = rows };
    return &c->op[c->n_op++];
}

static void
norm(struct chain *c, int y, int add)
{
    op_add(c, FDK_OP_RMSNORM, FDK_PER_TOKEN)->rmsnorm =
        (struct fdk_rmsnorm_args){ .y = at(c, y),
            .x = at(c, X),
            .add = add < 0 ? NULL : at(c, add),
            .w = c->norm,
            .n = c->b.n_tok,
            .C = c->s.C,
            .eps = 1e-5f,
            .act = FDK_BF16 };
}

static void
gemm(struct chain *c, int y, int x, const struct matrix *m, const float *bias)
{
    op_add(c, FDK_OP_GEMM, y == LOGITS ? FDK_PER_OUT : FDK_PER_TOKEN)->gemm =
        (struct fdk_gemm_args){ .y = at(c, y),
            .x = at(c, x),
            .w = m->w,
            .w_scale = m->scale,
            .w_group = m->group,
            .bias = bias,
            .n = y == LOGITS ? c->b.n_out : c->b.n_tok,
            .N = m->N,
            .K = m->K,
            .ldy = c->region[y].ld,
            .w_dtype = m->t,
            .act = FDK_BF16,
            .y_dtype = y == LOGITS ? FDK_F32 : FDK_BF16,
            .scratch = c->scratch,
            .scratch_bytes = SCRATCH };
}

static void
attention(struct chain *c, int i, int r)
{
    const struct shape *s = &c->s;
    struct fdk_op *op;
    op_add(c, FDK_OP_QKV, FDK_PER_TOKEN)->qkv = (struct fdk_qkv_args){ .qkv = at(c, r + Q),
        .cs = at(c, CS),
        .q_norm = s->norms ? c->head_norm : NULL,
        .k_norm = s->norms ? c->head_norm + s->D : NULL,
        .kv = c->kv,
        .H = s->H,
        .K = s->K,
        .D = s->D,
        .rot = s->rot,
        .layer = i,
        .eps = 1e-5f,
        .act = FDK_BF16 };
    op = op_add(c, FDK_OP_ATTENTION, FDK_PER_TOKEN);
    op->attention = c->att;
    op->attention.y = at(c, r + ATT);
    op->attention.qkv = at(c, r + Q);
    op->attention.layer = i;
}

static void
layer(struct chain *c, int i, int add)
{
    const int r = i * PART;
    norm(c, r + Y, add);
    gemm(c, r + Q, r + Y, &c->qkv[i], c->s.bias ? c->bias : NULL);
    attention(c, i, r);
    gemm(c, r + O, r + ATT, &c->o[i], NULL);
    norm(c, r + Z, r + O);
    gemm(c, r + GU, r + Z, &c->gu[i], NULL);
    op_add(c, FDK_OP_SILU_MUL, FDK_PER_TOKEN)->silu_mul =
        (struct fdk_silu_mul_args){ .y = at(c, r + HIDDEN),
            .gu = at(c, r + GU),
            .n = c->b.n_tok,
            .F = c->s.F,
            .act = FDK_BF16 };
    gemm(c, r + DOWN, r + HIDDEN, &c->down[i], NULL);
}

static void
chain_bind(struct chain *c)
{
    int add = -1;
    if (c->bound != NULL)
        return;
    op_add(c, FDK_OP_ROPE_TABLE, FDK_PER_TOKEN)->rope_table =
        (struct fdk_rope_table_args){ .cs = at(c, CS),
            .inv_freq = c->inv_freq,
            .rot = c->s.rot,
            .scale = 1 };
    for (int i = 0; i < c->n_layer; i++) {
        layer(c, i % N_KV, add);
        add = i % N_KV * PART + DOWN;
    }
    norm(c, TOP, add);
    op_add(c, FDK_OP_GATHER, FDK_PER_OUT)->gather =
        (struct fdk_gather_args){ .y = at(c, LAST),
            .x = at(c, TOP),
            .C = c->s.C,
            .act = FDK_BF16 };
    gemm(c, LOGITS, LAST, &c->out, NULL);
    OK(fdk_bind(g->d.ops, g->d.ctx, 0, c->op, c->n_op, &c->bound));
}

static struct fdk_step
chain_step_of(const struct chain *c)
{
    return (struct fdk_step){ .b = &c->b,
        .T = c->att.T,
        .O = c->att.T,
        .n_work = c->att.n_work_max,
        .att = { { .b = &c->b,
            .work = c->att.work,
            .n_work = c->att.n_work,
            .n_done = c->att.n_done,
            .plan = c->att.plan } } };
}

static void
chain_launch(struct chain *c)
{
    static struct fdk_launch l[OPS];
    const struct fdk_step s = chain_step_of(c);
    int rc = g->d.ops->att_plan(&c->plan, g->d.st);
    int n = fdk_launches(c->bound, &s, !c->alone, l);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = fdk_launch(c->bound, &s, &l[i], g->d.st);
        if (c->alone)
            k_sync(&g->d);
    }
    if (rc != 0)
        print_error("%s\n", g->d.ops->error_text(g->d.ctx, 0));
    OK(rc);
}

/* In a step of one row all 9 operations of every layer must be in launches of the one
 * kernel, unless it does not support the weights' groups. */
static void
check_launches(const struct chain *c)
{
    static struct fdk_launch l[OPS];
    const struct fdk_step s = chain_step_of(c);
    int n = fdk_launches(c->bound, &s, 1, l), fused = 0;
    for (int i = 0; i < n; i++)
        if (strcmp(fdk_launch_name(c->bound, &l[i]), "decode_layers") == 0)
            fused += l[i].n;
    assert_int_equal(fused, c->att.T > 1 || c->s.group == 256 ? 0 : 9 * c->n_layer);
    assert_int_equal(n, c->n_op - fused + (fused > 0 ? (c->n_layer + 127) / 128 : 0));
}

/* Address of the keys of layer i % N_KV, head i / N_KV. */
static char *
keys_at(const struct chain *c, char *mem, int slot, int i)
{
    return mem + c->kv_from + (size_t)(slot / c->s.block) * c->kv.block_bytes +
        (size_t)(i % N_KV) * c->kv.layer_bytes +
        (size_t)((i / N_KV * c->s.block + slot % c->s.block) * c->s.D) * 2;
}

/* A step of n tokens after `before` others. Cache after these is NaN. */
static void
step_row(struct chain *c, int n, int before, int *block, int odd)
{
    struct k_step *s = &c->step;
    const int r = s->n_row++, size = c->s.block, end = before + n;
    int32_t *table = &c->table[K_SLOT(r) * STRIDE];
    for (int i = 0; i * size < end; i++, ++*block) {
        assert_true(*block < POOL / size && i < STRIDE);
        table[i] = *block * odd % (POOL / size);
    }
    for (int p = before; p < end || p % size != 0; p++) {
        int slot = table[p / size] * size + p % size;
        for (int i = 0; i < N_KV * c->s.K; i++) {
            char *key = keys_at(c, c->want, slot, i);
            memset(key, 0xff, (size_t)c->s.D * 2);
            memset(key + c->kv.v_bytes, 0xff, (size_t)c->s.D * 2);
        }
        if (p >= end)
            continue;
        s->pos[s->n_tok] = p;
        s->row[s->n_tok] = r;
        s->slot_map[s->n_tok++] = slot;
    }
    s->q_start[r + 1] = s->n_tok;
    s->kv_len[r] = end;
    if (n < 2 || tw_int(0, 1)) /* a chunk need not have an output */
        s->out[s->n_out++] = (struct fdk_out){ .tok = s->n_tok - 1, .row = r };
}

/* Gives a row its blocks in random order; later entries of its table are block 0. */
static void
chain_step(struct chain *c, int n_row, const int *n, const int *before)
{
    struct k_step *s = &c->step;
    int odd = 10 * tw_int(0, 9) + 3, block = 1; /* not a multiple of 2 or 5 */
    k_step_init(s);
    memset(s->ids, TW_POISON, (size_t)((char *)s->q_start - (char *)s->ids));
    memset(s->out, TW_POISON, sizeof(s->out));
    memset(c->table, 0, sizeof(c->table));
    memcpy(c->want, c->init, c->bytes);
    for (int r = 0; r < n_row; r++)
        step_row(c, n[r], before[r], &block, odd);
    tw_normal((float *)(void *)(c->want + c->region[X].at), (size_t)(s->n_tok * c->s.C));
    (void)tw_step(g, s, &c->d_step);
    tw_put(g, c->d_table, c->table, sizeof(c->table));
    tw_put(g, c->d_want, c->want, c->bytes);
}

static char *
chain_run(struct chain *c, struct fdk_graph *graph)
{
    OK(g->d.ops->copy(g->d.st, c->mem, c->d_want, c->bytes));
    OK(g->d.ops->fill(g->d.st, c->att.scratch, TW_POISON, c->att.scratch_bytes));
    if (graph != NULL)
        OK(g->d.ops->graph_launch(graph, g->d.st));
    else
        chain_launch(c);
    return tw_read(g, c->mem, c->bytes);
}

static void
same(const char *a, const char *b, size_t bytes, const char *what)
{
    if (memcmp(a, b, bytes) != 0)
        tw_same(a, b, bytes, what);
}

static float
number(const char *p, int bytes)
{
    float f = 0;
    memcpy((char *)&f + 4 - bytes, p, (size_t)bytes);
    return f;
}

/* Checks that a row is close as a whole and no element is far off: bf16 rounding
 * errors grow with each layer. */
static void
near_row(struct chain *c, int region, const char *got, const char *want, int n)
{
    const int deep = c->n_layer > N_KV, rest = deep || (region >= PART && region != CS);
    const int bytes = c->region[region].bytes;
    const double tol = deep ? 5e-2 : rest ? 2e-2 : 1e-2;
    double all = 0, diff = 0, far = 0;
    for (int i = 0; i < n; i++) {
        double x = number(got + i * bytes, bytes), y = number(want + i * bytes, bytes);
        all += y * y;
        diff += (x - y) * (x - y);
        far = fmax(far, fabs(x - y) - fabs(y) / 32);
    }
    diff = sqrt(diff / (all > 0 ? all : 1));
    c->worst[rest] = fmax(c->worst[rest], diff);
    if (!(diff <= tol) || !(far <= 10 * tol * sqrt(all / n))) {
        print_error("region %d, %d tokens of %d: %g off, an element %g of %g\n", region,
            c->step.n_tok, c->att.T, diff, far, sqrt(all / n));
        fail();
    }
}

/* Returns whether a region is written by a step. */
static int
region_kept(const struct chain *c, int region)
{
    return c->att.T > 1 || region >= X || region == (c->n_layer - 1) % N_KV * PART + DOWN;
}

/* Checks that live rows, keys and values are near, and everything else is unchanged. */
static void
near_memory(struct chain *c, char *got, char *plain)
{
    const int D = c->s.D;
    for (int i = 0; i < DONE; i++) {
        const struct region *r = &c->region[i];
        for (int t = 0; t < (i >= LAST ? c->step.n_out : c->step.n_tok); t++) {
            size_t from = r->at + (size_t)(t * r->ld * r->bytes);
            if (region_kept(c, i))
                near_row(c, i, got + from, plain + from, r->width);
            memcpy(c->want + from, got + from, (size_t)(r->width * r->bytes));
        }
    }
    for (int i = 0; i < N_KV * c->s.K * c->step.n_tok; i++) {
        int t = i / (N_KV * c->s.K), k = i % (N_KV * c->s.K), q = k % N_KV * PART + Q;
        int slot = c->step.slot_map[t];
        int v = t * c->region[q].ld + (c->s.H + c->s.K + k / N_KV) * D;
        char *key = keys_at(c, got, slot, k), *want = keys_at(c, c->want, slot, k);
        char *near = keys_at(c, plain, slot, k);
        near_row(c, q, key, near, D);
        near_row(c, q, key + c->kv.v_bytes, near + c->kv.v_bytes, D);
        memcpy(want, key, (size_t)D * 2);
        memcpy(want + c->kv.v_bytes,
            region_kept(c, q) ? got + c->region[q].at + (size_t)v * 2 : key + c->kv.v_bytes,
            (size_t)D * 2);
    }
    memcpy(c->want + c->region[DONE].at, plain + c->region[DONE].at, 4);
    same(got, c->want, c->bytes, "memory");
}

static void
compare_step(struct chain *c)
{
    c->alone = 1;
    char *plain = chain_run(c, NULL);
    c->alone = 0;
    char *eager = chain_run(c, NULL);
    for (int i = 0; i < 3; i++) {
        char *replay = chain_run(c, c->graph);
        same(replay, eager, c->bytes, "replay");
        free(replay);
    }
    c->differ |= memcmp(eager, plain, c->bytes) != 0;
    near_memory(c, eager, plain);
    free(eager);
    free(plain);
}

static void
chain_capture(struct chain *c, int T)
{
    g->d.ops->graph_free(c->graph);
    c->att.T = T;
    chain_bind(c);
    check_launches(c);
    OK(g->d.ops->graph_begin(g->d.st));
    chain_launch(c);
    OK(g->d.ops->graph_end(g->d.st, &c->graph));
}

/* All counts of tokens, in rows of 1 to 4; the first row's history is sometimes long. */
static void
every_count(struct chain *c, int T)
{
    chain_capture(c, T);
    for (int live = 0; live <= T; live++) {
        int n[T_MAX], before[T_MAX], n_row = 0;
        if (!tw_takes((size_t)(T - live), 3))
            continue;
        for (int left = live; left > 0; left -= n[n_row++]) {
            n[n_row] = tw_int(0, 3) == 0 ? tw_int(1, left) : 1;
            before[n_row] = tw_int(0, n_row == 0 && tw_int(0, 1) == 0 ? LONG : 150);
        }
        chain_step(c, n_row, n, before);
        compare_step(c);
    }
}

/* Lengths at which KV tiles of 16 tokens, and their shares among
 * thread blocks, begin and end. */
static void
every_length(struct chain *c)
{
    static const int before[] = { 0, 1, 14, 15, 16, 63, 64, 255, 511, 512, 1023, 2047,
        LONG };
    const int one = 1;
    chain_capture(c, 1);
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        if (!tw_takes(i, 6))
            continue;
        chain_step(c, 1, &one, &before[i]);
        compare_step(c);
    }
}

static void
steps_equal_single_operations(void **state)
{
    static struct chain c;
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (!tw_takes(i + 2, 3))
            continue;
        chain_new(&c, &shapes[i]);
        for (int T = 1; T <= T_MAX; T *= 4)
            every_count(&c, T);
        every_length(&c);
        chain_free(&c);
    }
}

/* Layers use the same regions and the same KV in turn. */
static void
more_layers_than_a_launch_holds(void **state)
{
    static struct chain c;
    (void)state;
    chain_new(&c, &shapes[1]);
    c.n_layer = 140;
    every_count(&c, 1);
    chain_free(&c);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_equal_single_operations),
        cmocka_unit_test(more_layers_than_a_launch_holds),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    tw_close();
    return rc;
}
