#include "config.h"

#include "tests/kernel/k_twin.h"

/*
 * Every operation of the cuda backend against the cpu backend, which defines
 * what each means: fresh random data, odd sizes, padding that must not be
 * touched, poison behind every buffer. Where fp32 sums are taken in another
 * order the tolerance is a small multiple of their rounding; copies, plans,
 * counts and chosen tokens must be equal.
 */

enum { PAD = 3 };                /* launch sizes exceed the live counts by this */

/* A random step of n_row rows, at most `most` new tokens each. */
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
        s->out[o] = (struct fdk_out){ .tok = s->q_start[o + 1] - 1, .row = o,
            .pos = s->kv_len[o] };
    /* What is padded is anything. */
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
run_embed(struct twin_dev *t, const struct k_step *s, const void *w, enum fdk_dtype wt,
    int C, int V, const struct fdk_row *rows)
{
    char *d = NULL;
    struct fdk_batch b = tw_step(t, s, &d);
    size_t bytes = (size_t)(s->n_tok + PAD) * (size_t)C * 4;
    struct fdk_embed_args a = {
        .y = tw_new(t, NULL, bytes), .w = tw_new(t, w, (size_t)V * (size_t)C *
            fdk_dtype_bytes(wt)), .state = tw_new(t, rows, K_MAX_ROW * sizeof(*rows)),
        .b = &b, .T = s->n_tok + PAD, .C = C, .V = V, .w_dtype = wt, .scale = 1.5f,
    };
    struct fdk_gather_args g = {
        .y = tw_new(t, NULL, bytes), .x = a.y, .b = &b, .O = s->n_out + PAD, .C = C,
    };
    OK(t->d.ops->embed(&a, t->d.st));
    OK(t->d.ops->gather(&g, t->d.st));
    k_sync(&t->d);
    float *y = malloc(2 * bytes);
    tw_get(t, y, a.y, bytes);
    tw_get(t, y + bytes / 4, g.y, bytes);
    tw_free(t);
    return y;
}

static void
embed_and_gather_are_exact(void **state)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_F16, FDK_BF16 };
    static const int widths[] = { 1, 33, 256, 1000 };
    static struct k_step s;
    struct fdk_row rows[K_MAX_ROW];
    (void)state;
    for (int i = 0; i < K_MAX_ROW; i++)
        rows[i] = (struct fdk_row){ .last_token = i };
    for (int ti = 0; ti < 3; ti++)
        for (int c = 0; c < 4; c++) {
            random_step(&s, tw_int(1, K_MAX_ROW), 9, 16, 97);
            void *w = random_weights(31 * (size_t)widths[c], types[ti]);
            float *want = run_embed(&tw.cpu, &s, w, types[ti], widths[c], 31, rows);
            float *got = run_embed(&tw.gpu, &s, w, types[ti], widths[c], 31, rows);
            tw_same(got, want, 2 * (size_t)(s.n_tok + PAD) * (size_t)widths[c] * 4,
                "embed, gather");
            free(w);
            free(want);
            free(got);
        }
}

static void
run_row_update(struct twin_dev *t, const struct fdk_row *rows, const int32_t *idx,
    const struct fdk_delta *delta, const int32_t n[2], struct fdk_row *ret_rows,
    int32_t *ret_table)
{
    int32_t *d_n = tw_new(t, n, 8);
    struct fdk_row_update_args a = {
        .state = tw_new(t, NULL, 20 * sizeof(*rows)), .rows = tw_new(t, rows, 9 *
            sizeof(*rows)), .idx = tw_new(t, idx, 9 * 4), .n = d_n, .n_max = 9,
        .table = tw_new(t, NULL, 1000 * 4), .delta = tw_new(t, delta, 300 *
            sizeof(*delta)), .n_delta = d_n + 1, .n_delta_max = 300,
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

/* y and x of a norm, then silu_mul of the same numbers, in one array. */
static float *
run_norm(struct twin_dev *t, int T, int C, const float *x, const float *w, int add)
{
    const int32_t live = T;
    size_t n = (size_t)(T + PAD) * (size_t)C, bytes = n * 4;
    struct fdk_rmsnorm_args a = {
        .y = tw_new(t, NULL, bytes), .x = tw_new(t, x, bytes),
        .add = add ? tw_new(t, x + n, bytes) : NULL, .w = tw_new(t, w, (size_t)C * 4),
        .n = tw_new(t, &live, 4), .T = T + PAD, .C = C, .eps = 1e-5f,
    };
    struct fdk_silu_mul_args s = {
        .y = tw_new(t, NULL, bytes), .gu = tw_new(t, x, 2 * bytes), .n = a.n,
        .T = T + PAD, .F = C,
    };
    OK(t->d.ops->rmsnorm(&a, t->d.st));
    OK(t->d.ops->silu_mul(&s, t->d.st));
    float *y = malloc(3 * bytes);
    tw_get(t, y, a.y, bytes);
    tw_get(t, y + n, a.x, bytes);
    tw_get(t, y + 2 * n, s.y, bytes);
    tw_free(t);
    return y;
}

static void
rmsnorm_and_silu(void **state)
{
    static const int shape[][2] = { { 1, 1 }, { 5, 17 }, { 3, 256 }, { 40, 1000 },
        { 2, 8192 } };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(shape) / sizeof(shape[0]); i++) {
        int T = shape[i / 2][0], C = shape[i / 2][1];
        size_t n = (size_t)(T + PAD) * (size_t)C;
        float *x = malloc(2 * n * 4), *w = malloc((size_t)C * 4);
        tw_normal(x, 2 * n);
        tw_normal(w, (size_t)C);
        float *want = run_norm(&tw.cpu, T, C, x, w, i % 2);
        float *got = run_norm(&tw.gpu, T, C, x, w, i % 2);
        /* Sums of C squares in another order; expf within two units. */
        tw_near(got, want, n, 2e-6, 1e-30, "norm");
        tw_same(got + n, want + n, n * 4, "residual");
        tw_near(got + 2 * n, want + 2 * n, n, 1e-6, 1e-30, "silu");
        free(x);
        free(w);
        free(want);
        free(got);
    }
}

/* ---- gemm ---------------------------------------------------------------- */

struct mat {
    int T, N, K, ldy, group;     /* T live rows */
    enum fdk_dtype t;
    int bias;
    const float *x, *scale, *b;
    const void *w;
};

/* Rows first .. of `split` at a time; rows beyond T are poison or anything. */
static float *
run_gemm(struct twin_dev *t, const struct mat *m, int split)
{
    const int32_t live = m->T;
    int T = m->T + split;             /* the last launch may reach beyond */
    size_t groups = (size_t)((m->K - 1) / m->group + 1);
    size_t bytes = (size_t)T * (size_t)m->ldy * 4;
    struct fdk_gemm_args a = {
        .y = tw_new(t, NULL, bytes), .x = tw_new(t, NULL, (size_t)T * (size_t)m->K * 4),
        .w = tw_new(t, m->w, (size_t)m->N * fdk_row_bytes(m->t, (size_t)m->K)),
        .w_scale = tw_new(t, m->scale, (size_t)m->N * groups * 4), .w_group = m->group,
        .bias = m->bias ? tw_new(t, m->b, (size_t)m->N * 4) : NULL,
        .n = tw_new(t, &live, 4), .T = split, .N = m->N, .K = m->K, .ldy = m->ldy,
        .w_dtype = m->t,
    };
    tw_put(t, (void *)(uintptr_t)a.x, m->x, (size_t)m->T * (size_t)m->K * 4);
    a.scratch_bytes = t->d.ops->gemm_scratch(&a);
    if (a.scratch_bytes > 0)
        a.scratch = tw_new(t, NULL, a.scratch_bytes);
    float *y0 = a.y;
    for (; a.first < m->T; a.first += split, a.y += (size_t)split * (size_t)a.ldy)
        OK(t->d.ops->gemm(&a, t->d.st));
    float *y = tw_read(t, y0, (size_t)m->T * (size_t)m->ldy * 4);
    tw_free(t);
    return y;
}

static void
random_mat(struct mat *m)
{
    size_t nx = (size_t)m->T * (size_t)m->K, nw = (size_t)m->N * (size_t)m->K;
    size_t ns = (size_t)m->N * (size_t)((m->K - 1) / m->group + 1);
    float *x = malloc(nx * 4), *s = malloc(ns * 4), *b = malloc((size_t)m->N * 4);
    tw_normal(x, nx);
    tw_normal(s, ns);
    tw_normal(b, (size_t)m->N);
    /* Numbers that a 16-bit type holds: rounding x is then no difference. */
    for (size_t i = 0; i < nx && m->t != FDK_F32; i++)
        x[i] = m->t == FDK_F16 ? (float)k_from_half(k_to_f16(x[i]), FDK_F16) :
            (float)k_from_half(k_to_bf16(x[i]), FDK_BF16);
    if (m->t == FDK_I8 || m->t == FDK_I4) {
        unsigned char *w = malloc(nw);
        for (size_t i = 0; i < nw; i++)
            w[i] = (unsigned char)k_rand(&tw.seed);
        m->w = w;
    } else {
        m->w = random_weights(nw, m->t);
    }
    m->x = x;
    m->scale = s;
    m->b = b;
}

static void
free_mat(struct mat *m)
{
    free((void *)(uintptr_t)m->x);
    free((void *)(uintptr_t)m->scale);
    free((void *)(uintptr_t)m->b);
    free((void *)(uintptr_t)m->w);
}

/* fp32 sums of K products in another order: their rounding grows like the
 * root of K; quantized weights reach 128 times their scale. */
static void
gemm_against_cpu(void **state)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_F16, FDK_BF16, FDK_I8, FDK_I4 };
    static const int shape[][4] = {   /* T, N, K, group */
        { 1, 8, 16, 16 }, { 3, 33, 48, 48 }, { 17, 64, 128, 32 }, { 65, 100, 250, 250 },
        { 64, 256, 512, 128 }, { 129, 96, 1024, 64 }, { 600, 64, 64, 64 },
    };
    (void)state;
    for (size_t ti = 0; ti < 5; ti++)
        for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
            struct mat m = { .T = shape[i][0], .N = shape[i][1], .K = shape[i][2],
                .ldy = shape[i][1] + (i % 2 ? 3 : 0), .group = shape[i][3],
                .t = types[ti], .bias = (int)(i + ti) % 2 };
            random_mat(&m);
            float *want = run_gemm(&tw.cpu, &m, m.T);
            float *got = run_gemm(&tw.gpu, &m, m.T + PAD);
            double unit = ti >= 3 ? 128 : 1;
            size_t n = (size_t)m.T * (size_t)m.ldy;
            if (m.ldy == m.N)
                tw_near(got, want, n, 1e-6, unit * 1e-6 * m.K, "gemm");
            for (int r = 0; r < m.T && m.ldy != m.N; r++)
                tw_near(got + (size_t)r * (size_t)m.ldy, want + (size_t)r * (size_t)m.ldy,
                    (size_t)m.N, 1e-6, unit * 1e-6 * m.K, "gemm");
            free(want);
            free(got);
            free_mat(&m);
        }
}

/* A row's bits do not depend on how many rows a launch has: always with fp32 and
 * quantized weights, and with all when the device was opened so. */
static void
gemm_rows_stand_alone(void **state)
{
    static const int split[] = { 1, 3, 8, 64, 200, 512 };
    static const int shape[][2] = { { 64, 128 }, { 256, 512 }, { 1024, 2048 },
        { 6144, 2048 }, { 2048, 8192 } };
    static const enum fdk_dtype types[] = { FDK_BF16, FDK_F16, FDK_F32, FDK_I8, FDK_I4 };
    (void)state;
    for (int ti = 0; ti < 5; ti++)
        for (size_t i = 0; i < (ti == 0 ? 5 : 2); i++) {
            struct mat m = { .T = 200, .N = shape[i][0], .K = shape[i][1],
                .ldy = shape[i][0], .group = 64, .t = types[ti] };
            int exact = tw.deterministic || ti >= 2;
            random_mat(&m);
            float *want = run_gemm(&tw.gpu, &m, 200);
            for (size_t k = i < 2 ? 0 : 1; k < sizeof(split) / sizeof(split[0]); k++) {
                float *got = run_gemm(&tw.gpu, &m, split[k]);
                if (exact || split[k] > 8)
                    tw_same(got, want, (size_t)m.T * (size_t)m.N * 4, "gemm rows");
                else
                    tw_near(got, want, (size_t)m.T * (size_t)m.N, 1e-6, 1e-6 * m.K, "few");
                free(got);
            }
            float *large = run_gemm(&tw.gpu, &m, 600);
            if (exact)
                tw_same(large, want, (size_t)m.T * (size_t)m.N * 4, "gemm rows");
            else if (memcmp(large, want, (size_t)m.T * (size_t)m.N * 4) != 0)
                printf("note: %s %dx%d: launches of 600 rows differ in last bits\n",
                    fdk_dtype_name(m.t), m.N, m.K);
            tw_near(large, want, (size_t)m.T * (size_t)m.N, 1e-6, 1e-4 * m.K, "large");
            free(large);
            free(want);
            free_mat(&m);
        }
}

/* x as it comes: bf16 rounding of it is what differs. */
static void
gemm_rounds_activations(void **state)
{
    struct mat m = { .T = 50, .N = 128, .K = 512, .ldy = 128, .group = 512,
        .t = FDK_BF16 };
    (void)state;
    random_mat(&m);
    tw_normal((float *)(uintptr_t)m.x, 50 * 512);
    float *want = run_gemm(&tw.cpu, &m, 50), *got = run_gemm(&tw.gpu, &m, 50);
    double d = tw_distance(got, want, 50 * 128);
    assert_true(d > 0 && d < 4e-3);
    free(want);
    free(got);
    free_mat(&m);
}

static void
gemm_arguments(void **state)
{
    static float v[64];
    const struct k_dev *d = &tw.gpu.d;
    struct fdk_gemm_args a = { .y = v, .x = v, .w = v, .n = (int32_t *)v, .T = 1, .N = 1,
        .K = 8, .ldy = 1, .w_dtype = FDK_U8 };
    (void)state;
    assert_int_equal(d->ops->gemm(&a, d->st), -ENOTSUP);
    a.w_dtype = FDK_I8;
    assert_int_equal(d->ops->gemm(&a, d->st), -EINVAL);
    a.w_dtype = FDK_BF16;
    assert_true(d->ops->gemm_scratch(&a) >= 16);
    assert_int_equal(d->ops->gemm(&a, d->st), -EINVAL);
    a.ldy = 0;
    assert_int_equal(d->ops->gemm(&a, d->st), -EINVAL);
}

/* ---- KV and attention ---------------------------------------------------- */

enum { N_BLOCK = 96, N_LAYER = 2 };

struct att {                     /* a step through one layer */
    int H, K, D, rot, B, norm;
    enum fdk_dtype t;
    struct k_step s;
    float *qkv, *norms, *inv_freq, *head_scale;
    char *kv;                    /* what the pool holds before */
    size_t n_qkv, kv_bytes;
};

struct att_out {
    float *cs, *qkv, *y;
    char *kv;
    struct fdk_work *work;
    int32_t n_work, n_max, bt;
    uint32_t n_done;
};

static struct fdk_kv
att_kv(const struct att *a)
{
    uint64_t tokens = (uint64_t)(a->K * a->B), half = tokens * (uint64_t)a->D *
        fdk_dtype_bytes(a->t);
    struct fdk_kv kv = { .v_bytes = half, .block_size = a->B, .n_kv_head = a->K,
        .head_dim = a->D, .dtype = a->t };
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
    /* Each row has blocks of its own, in the table of its state slot. */
    for (int r = 0; r < n_row; r++) {
        a->s.state[r] = (r * 3 + 5) % K_MAX_ROW;
        for (int i = 0; i < K_STRIDE; i++)
            a->s.block_table[a->s.state[r] * K_STRIDE + i] = i < N_BLOCK / n_row ?
                r * (N_BLOCK / n_row) + (i * 5 + 1) % (N_BLOCK / n_row) : 0;
    }
    for (int t = 0; t < a->s.n_tok; t++)
        a->s.slot_map[t] = a->s.block_table[a->s.state[a->s.row[t]] * K_STRIDE +
            a->s.pos[t] / a->B] * a->B + a->s.pos[t] % a->B;
    a->n_qkv = (size_t)(a->s.n_tok + PAD) * (size_t)((a->H + 2 * a->K) * a->D);
    a->qkv = malloc(a->n_qkv * 4);
    a->norms = malloc((size_t)(2 * a->D) * 4);
    a->inv_freq = malloc((size_t)(a->rot / 2 + 1) * 4);
    a->head_scale = malloc((size_t)(N_LAYER * 2 * a->K) * 4);
    tw_normal(a->qkv, a->n_qkv);
    tw_normal(a->norms, (size_t)(2 * a->D));
    for (int i = 0; i < a->rot / 2; i++)
        a->inv_freq[i] = powf(10000, -2.0f * (float)i / (float)a->rot);
    for (int i = 0; i < N_LAYER * 2 * a->K; i++)
        a->head_scale[i] = 0.01f + 0.001f * (float)tw_int(0, 20);
    struct fdk_kv kv = att_kv(a);
    a->kv_bytes = N_BLOCK * kv.block_bytes;
    a->kv = malloc(a->kv_bytes);
    /* Numbers of every type: floats of 0.5 to 1, small bytes. */
    for (size_t i = 0; i < a->kv_bytes; i++)
        a->kv[i] = (char)(a->t == FDK_F32 || a->t == FDK_BF16 ?
            (i % fdk_dtype_bytes(a->t) == fdk_dtype_bytes(a->t) - 1 ? 0x3f : 0x1c) :
            (int)(k_rand(&tw.seed) % 0x60));
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
    free(a->norms);
    free(a->inv_freq);
    free(a->head_scale);
    free(a->kv);
}

/* The same step launched for so many tokens that a row's parts are not blocks of
 * their own: the same bits. */
static void
same_in_one_block(struct twin_dev *t, const struct fdk_attention_args *small,
    const float *want, size_t bytes)
{
    struct fdk_attention_args at = *small;
    struct fdk_att_plan_args p = { .b = at.b };
    at.T += 4096 / at.H;
    at.scratch = NULL;
    at.scratch_bytes = 0;
    at.y = tw_new(t, NULL, (size_t)(at.T * at.H * at.D) * 4);
    t->d.ops->att_shape(&at, &p.a, &p.bt);
    p.n_max = at.n_work_max = fdk_tiles_max(K_MAX_ROW, at.T, p.a, p.bt);
    at.work = p.work = tw_new(t, NULL, (size_t)p.n_max * sizeof(*p.work));
    at.n_work = p.n_work = tw_new(t, NULL, 4);
    at.n_done = p.n_done = tw_new(t, NULL, 4);
    OK(t->d.ops->att_plan(&p, t->d.st));
    OK(t->d.ops->attention(&at, t->d.st));
    float *y = tw_read(t, at.y, bytes);
    tw_same(y, want, bytes, "attention in one block");
    free(y);
}

/* rope_table and qkv on this backend; attention over kv and q as given. */
static struct att_out
run_att(struct twin_dev *t, const struct att *a, const struct att_out *given)
{
    struct att_out r = { 0 };
    char *d = NULL;
    struct fdk_batch b = tw_step(t, &a->s, &d);
    int T = a->s.n_tok + PAD;
    struct fdk_kv kv = att_kv(a);
    size_t ny = (size_t)(T * a->H * a->D) * 4, ncs = (size_t)(T * (a->rot + 1)) * 4;
    float *norms = tw_new(t, a->norms, (size_t)(2 * a->D) * 4);
    kv.base = tw_new(t, a->kv, a->kv_bytes);
    kv.scale = a->t == FDK_F8E4M3 ? tw_new(t, a->head_scale,
        (size_t)(N_LAYER * 2 * a->K) * 4) : NULL;
    struct fdk_qkv_args q = {
        .qkv = tw_new(t, a->qkv, a->n_qkv * 4), .q_norm = a->norm ? norms : NULL,
        .k_norm = a->norm ? norms + a->D : NULL, .cs = tw_new(t, NULL, ncs), .b = &b,
        .kv = kv, .T = T, .H = a->H, .K = a->K, .D = a->D, .rot = a->rot,
        .layer = N_LAYER - 1, .eps = 1e-6f,
    };
    struct fdk_rope_table_args rt = { .cs = (float *)(uintptr_t)q.cs, .inv_freq =
        tw_new(t, a->inv_freq, (size_t)(a->rot / 2 + 1) * 4), .b = &b, .T = T,
        .rot = a->rot, .scale = 1.25f };
    if (a->rot > 0)
        OK(t->d.ops->rope_table(&rt, t->d.st));
    OK(t->d.ops->qkv(&q, t->d.st));
    r.cs = tw_read(t, q.cs, ncs);
    r.qkv = tw_read(t, q.qkv, a->n_qkv * 4);
    r.kv = tw_read(t, kv.base, a->kv_bytes);
    if (given != NULL) {
        tw_put(t, q.qkv, given->qkv, a->n_qkv * 4);
        tw_put(t, kv.base, given->kv, a->kv_bytes);
    }
    struct fdk_attention_args at = {
        .y = tw_new(t, NULL, ny), .qkv = q.qkv, .b = &b, .kv = kv, .T = T, .H = a->H,
        .K = a->K, .D = a->D, .layer = N_LAYER - 1, .scale = 0.125f,
    };
    struct fdk_att_plan_args p = { .b = &b };
    t->d.ops->att_shape(&at, &p.a, &p.bt);
    r.bt = p.bt;
    r.n_max = p.n_max = at.n_work_max = fdk_tiles_max(K_MAX_ROW, T, p.a, p.bt);
    size_t n_work = (size_t)p.n_max * sizeof(*p.work);
    at.work = p.work = tw_new(t, NULL, n_work);
    at.n_work = p.n_work = tw_new(t, NULL, 4);
    at.n_done = p.n_done = tw_new(t, NULL, 4);
    at.scratch_bytes = t->d.ops->attention_scratch(&at);
    at.scratch = at.scratch_bytes > 0 ? tw_new(t, NULL, at.scratch_bytes) : NULL;
    OK(t->d.ops->att_plan(&p, t->d.st));
    OK(t->d.ops->attention(&at, t->d.st));
    r.y = tw_read(t, at.y, ny);
    if (t == &tw.gpu)
        same_in_one_block(t, &at, r.y, (size_t)(a->s.n_tok * a->H * a->D) * 4);
    r.work = tw_read(t, at.work, n_work);
    tw_get(t, &r.n_work, at.n_work, 4);
    tw_get(t, &r.n_done, at.n_done, 4);
    tw_free(t);
    return r;
}

static void
att_out_free(struct att_out *r)
{
    free(r->cs);
    free(r->qkv);
    free(r->kv);
    free(r->y);
    free(r->work);
}

/* Stored numbers: fp32 within rounding of norm and rotation, bf16 within that
 * and a step of its own, 8-bit types a step apart where rounding tips it. */
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

static void
check_att(struct att *a, int n_row, int most)
{
    att_new(a, n_row, most);
    struct att_out want = run_att(&tw.cpu, a, NULL), got = run_att(&tw.gpu, a, &want);
    int T = a->s.n_tok + PAD, tiles = 0;
    /* cosf and sinf of large angles within two units of 1. */
    tw_near(got.cs, want.cs, (size_t)(T * a->rot), 0, 3e-7, "rope");
    tw_near(got.qkv, want.qkv, a->n_qkv, 2e-6, 4e-6, "qkv");
    check_kv(a, got.kv, want.kv);
    /* Scores are sums of up to 256 products and reach some tens: their rounding
     * moves each weight by up to 2e-5 of itself, under values of up to 2. */
    tw_near(got.y, want.y, (size_t)(T * a->H * a->D), 1e-5, 5e-5, "attention");
    if (got.bt == want.bt) {
        assert_int_equal(got.n_work, want.n_work);
        tw_same(got.work, want.work, (size_t)got.n_max * sizeof(*got.work), "plan");
    }
    for (int i = 0; i < got.n_max; i++) {
        tiles += got.work[i].row >= 0;
        assert_int_equal(got.work[i].row >= 0, i < got.n_work);
        assert_int_equal(got.work[i].tile >= 0, i < got.n_work);
    }
    assert_int_equal(got.n_work, tiles);
    assert_int_equal(got.n_done, tiles);
    att_out_free(&want);
    att_out_free(&got);
    att_free(a);
}

static void
a5_a6_qkv_plan_and_attention(void **state)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_BF16, FDK_I8, FDK_F8E4M3 };
    static const int shape[][6] = {  /* H, K, D, rot, B, norm */
        { 4, 2, 32, 32, 16, 0 }, { 8, 1, 64, 64, 64, 1 }, { 3, 3, 20, 20, 16, 1 },
        { 6, 2, 80, 32, 32, 0 }, { 2, 2, 128, 128, 128, 1 }, { 40, 2, 17, 0, 48, 1 },
        { 8, 2, 256, 256, 16, 1 }, { 32, 8, 64, 64, 16, 0 },
    };
    static struct att a;
    (void)state;
    for (size_t ti = 0; ti < 4; ti++)
        for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
            a = (struct att){ .H = shape[i][0], .K = shape[i][1], .D = shape[i][2],
                .rot = shape[i][3], .B = shape[i][4], .norm = shape[i][5],
                .t = types[ti] };
            check_att(&a, tw_int(1, 12), 3);
            check_att(&a, 1, 2 * a.B);
            check_att(&a, 3, a.B + 7);
        }
}

static void
att_plan_equals_the_cpu(void **state)
{
    static struct k_step s;
    struct fdk_work *work[2];
    int32_t n_work[2];
    (void)state;
    for (int round = 0; round < 60; round++) {
        random_step(&s, tw_int(1, K_MAX_ROW), round % 3 ? 40 : 2, 16, 97);
        int qa = tw_int(1, 12), bt = 1 << tw_int(0, 6);
        int n_max = fdk_tiles_max(K_MAX_ROW, K_MAX_TOK, qa, bt);
        for (int i = 0; i < 2; i++) {
            struct twin_dev *t = i == 0 ? &tw.cpu : &tw.gpu;
            char *d = NULL;
            struct fdk_batch b = tw_step(t, &s, &d);
            size_t bytes = (size_t)n_max * sizeof(**work);
            struct fdk_att_plan_args a = { .work = tw_new(t, NULL, bytes), .n_work =
                tw_new(t, NULL, 4), .n_done = tw_new(t, NULL, 4), .b = &b, .a = qa,
                .bt = bt, .n_max = n_max };
            uint32_t done = 1;
            OK(t->d.ops->att_plan(&a, t->d.st));
            work[i] = tw_read(t, a.work, bytes);
            tw_get(t, &n_work[i], a.n_work, 4);
            tw_get(t, &done, a.n_done, 4);
            assert_int_equal(done, 0);
            tw_free(t);
        }
        assert_int_equal(n_work[0], n_work[1]);
        tw_same(work[1], work[0], (size_t)n_max * sizeof(**work), "plan");
        free(work[0]);
        free(work[1]);
    }
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed_and_gather_are_exact),
        cmocka_unit_test(row_update_is_exact),
        cmocka_unit_test(rmsnorm_and_silu),
        cmocka_unit_test(gemm_against_cpu),
        cmocka_unit_test(gemm_rows_stand_alone),
        cmocka_unit_test(gemm_rounds_activations),
        cmocka_unit_test(gemm_arguments),
        cmocka_unit_test(att_plan_equals_the_cpu),
        cmocka_unit_test(a5_a6_qkv_plan_and_attention),
    };
    const struct CMUnitTest deterministic[] = {
        cmocka_unit_test(gemm_against_cpu),
        cmocka_unit_test(gemm_rows_stand_alone),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    if (argc > 1)
        cmocka_set_skip_filter(argv[1]);
    rc = cmocka_run_group_tests_name("k_cuda", tests, NULL, NULL);
    tw_close();
    tw.deterministic = 1;
    if (tw_open() != 0)
        return 1;
    rc += cmocka_run_group_tests_name("k_cuda deterministic", deterministic, NULL, NULL);
    tw_close();
    return rc;
}
