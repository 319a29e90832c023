/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_kv.h"

/* Causal attention over paged KV, with and without a window and a soft cap of
 * scores, compared with double precision; and the guarantee that a query's bits
 * depend only on its own history. */

enum { N_BLOCK = 96, LAYERS = 2, LAYER = 1, MAX_LEN = 300 };

struct shape {
    int H, K, D, block_size;
    enum fdk_dtype t;
    int window;
    float softcap;
};

/* The logical history of one row: every KV layout stores these numbers. */
static float hist_k[MAX_LEN][4][128], hist_v[MAX_LEN][4][128];
static float queries[MAX_LEN][8][128];
/* The history as an 8-bit cache stores it, and its scales; F8: per head. */
static uint8_t code[2][MAX_LEN][4][128];
static float scale[2][MAX_LEN][4], head_scale[LAYERS * 2 * 4];

static void
make_history(void)
{
    k_fill(&hist_k[0][0][0], sizeof(hist_k) / 4, 11);
    k_fill(&hist_v[0][0][0], sizeof(hist_v) / 4, 12);
    k_fill(&queries[0][0][0], sizeof(queries) / 4, 13);
    for (size_t i = 0; i < sizeof(hist_k) / 4; i++) {
        float *k = &hist_k[0][0][0] + i, *v = &hist_v[0][0][0] + i;
        *k = (float)k_from_half(k_to_bf16(*k), FDK_BF16);
        *v = (float)k_from_half(k_to_bf16(*v), FDK_BF16);
    }
}

/* Sets the history to the values of random bytes. */
static void
make_history8(enum fdk_dtype t, int K)
{
    uint64_t seed = 99 + (uint64_t)t;
    for (int v = 0; v < 2; v++)
        for (int h = 0; h < K; h++) {
            float whole = 0.01f + 0.003f * (float)(v * 4 + h);
            head_scale[(LAYER * 2 + v) * K + h] = whole;
            for (int p = 0; p < MAX_LEN; p++) {
                scale[v][p][h] =
                    t == FDK_F8E4M3 ? whole : 0.002f + 0.0001f * (float)(p * 4 + h);
                for (int i = 0; i < 128; i++) {
                    uint8_t c = (uint8_t)k_rand(&seed);
                    float x = t == FDK_I8 ? (float)(int8_t)c : k_from_f8(c &= 0xfe);
                    code[v][p][h][i] = c;
                    (v ? hist_v : hist_k)[p][h][i] = x * scale[v][p][h];
                }
            }
        }
}

static struct fdk_kv
kv_new(const struct shape *sh, size_t *ret_floats)
{
    struct fdk_kv kv;
    size_t bytes = k_kv_layout(&kv, sh->K, sh->block_size, sh->D, LAYERS, N_BLOCK, sh->t);
    *ret_floats = bytes / 4;
    kv.base = k_new(*ret_floats); /* NaN wherever nothing was written */
    if (sh->t == FDK_F8E4M3)
        kv.scale = head_scale;
    return kv;
}

static void
kv_put(const struct fdk_kv *kv, int slot, int p, int h, int v)
{
    const float *x = v ? hist_v[p][h] : hist_k[p][h];
    char *at = k_kv_at(kv, LAYER, slot, h, v);
    size_t D = (size_t)kv->head_dim;
    if (kv->dtype == FDK_F32)
        memcpy(at, x, D * 4);
    else if (kv->dtype != FDK_BF16)
        memcpy(at, code[v][p][h], D);
    for (size_t i = 0; i < D && kv->dtype == FDK_BF16; i++) {
        uint16_t b = k_to_bf16(x[i]);
        memcpy(at + 2 * i, &b, 2);
    }
    if (kv->dtype == FDK_I8)
        memcpy(k_kv_scale_at(kv, LAYER, slot, h, v), &scale[v][p][h], 4);
}

/* Adds a row of tokens [from, to) of the history. Its blocks are filled up to `to`,
 * except before the window of the first token. */
static void
add_row(struct k_step *s, const struct shape *sh, const struct fdk_kv *kv, int from,
    int to, int salt)
{
    int r = s->n_row, back = sh->window > 0 ? sh->window - 1 : from;
    k_step_row(s, to - from, from, sh->block_size, N_BLOCK, salt);
    for (int p = back < from ? from - back : 0; p < to; p++)
        for (int h = 0; h < sh->K; h++)
            for (int v = 0; v < 2; v++)
                kv_put(kv,
                    s->block_table[K_SLOT(r) * K_STRIDE + p / sh->block_size] *
                            sh->block_size +
                        p % sh->block_size,
                    p, h, v);
}

/* Computes y from the queries in qkv. */
static void
attend_to(struct k_dev *d, struct k_step *s, const struct shape *sh,
    const struct fdk_kv *kv, const float *qkv, float *y)
{
    struct fdk_attention_args a = {
        .y = y,
        .qkv = qkv,
        .b = &s->b,
        .kv = *kv,
        .T = s->n_tok + 1,
        .H = sh->H,
        .K = sh->K,
        .D = sh->D,
        .layer = LAYER,
        .window = sh->window,
        .step_window = sh->window,
        .softcap = sh->softcap,
        .scale = 1 / sqrtf((float)sh->D),
    };
    struct k_plan plan;
    k_plan_init(d, &a, &plan);
    k_plan_launch(d, &s->b, &plan);
    assert_int_equal(d->ops->attention(&a, d->st), 0);
    k_sync(d);
    k_plan_free(&plan);
}

/* Returns new queries, in which each token's query is repeated n times. */
static float *
new_queries(const struct k_step *s, const struct shape *sh, size_t n)
{
    size_t row = (size_t)((sh->H + 2 * sh->K) * sh->D), T = (size_t)s->n_tok;
    float *qkv = calloc(T * n * row, 4);
    for (size_t t = 0; t < T * n; t++)
        for (int h = 0; h < sh->H; h++)
            memcpy(qkv + t * row + (size_t)(h * sh->D), queries[s->pos[t / n]][h],
                (size_t)sh->D * 4);
    return qkv;
}

static void
attend(struct k_dev *d, struct k_step *s, const struct shape *sh, const struct fdk_kv *kv,
    float *y)
{
    float *qkv = new_queries(s, sh, 1);
    attend_to(d, s, sh, kv, qkv, y);
    free(qkv);
}

static void
expect(const struct shape *sh, int pos, int h, double *ret)
{
    static double p[MAX_LEN];
    double m = -INFINITY, l = 0;
    int kh = h / (sh->H / sh->K);
    int first = sh->window > 0 && pos >= sh->window ? pos - sh->window + 1 : 0;
    for (int j = first; j <= pos; j++) {
        p[j] = 0;
        for (int i = 0; i < sh->D; i++)
            p[j] += (double)queries[pos][h][i] * hist_k[j][kh][i];
        p[j] *= 1 / sqrt(sh->D);
        if (sh->softcap > 0)
            p[j] = sh->softcap * tanh(p[j] / sh->softcap);
        m = p[j] > m ? p[j] : m;
    }
    for (int j = first; j <= pos; j++)
        l += p[j] = exp(p[j] - m);
    for (int i = 0; i < sh->D; i++) {
        ret[i] = 0;
        for (int j = first; j <= pos; j++)
            ret[i] += p[j] / l * hist_v[j][kh][i];
    }
}

static const struct shape shapes[] = {
    { 4, 2, 32, 16, FDK_F32, 0, 0 },
    { 4, 2, 64, 64, FDK_BF16, 0, 0 },
    { 8, 1, 20, 16, FDK_BF16, 0, 0 },
    { 4, 4, 128, 128, FDK_F32, 0, 0 },
    { 6, 2, 80, 48, FDK_BF16, 0, 0 },
    { 3, 1, 7, 32, FDK_F32, 0, 0 },
};

static void
check_shape(struct k_dev *d, const struct shape *sh)
{
    static struct k_step s;
    size_t kv_floats;
    double want[128], tol = 4e-6 + 2e-7 * (double)sh->softcap; /* error of a score: 2^-23
                                                                * of the cap */
    struct fdk_kv kv = kv_new(sh, &kv_floats);
    k_step_init(&s);
    add_row(&s, sh, &kv, 0, 70, 0);
    add_row(&s, sh, &kv, 128, 129, 1);
    add_row(&s, sh, &kv, 60, 67, 2);
    add_row(&s, sh, &kv, 0, 1, 3);
    size_t row = (size_t)(sh->H * sh->D), n = ((size_t)s.n_tok + 1) * row;
    float *y = k_new(n);
    attend(d, &s, sh, &kv, y);
    k_check(y, n);
    k_check(kv.base, kv_floats);
    assert_true(k_untouched(y + (size_t)s.n_tok * row, row));
    for (int t = 0; t < s.n_tok; t += 1 + (t % 5 == 0))
        for (int h = 0; h < sh->H; h++) {
            expect(sh, s.pos[t], h, want);
            for (int i = 0; i < sh->D; i++)
                k_assert_near(y[(size_t)t * row + (size_t)(h * sh->D + i)], want[i], tol,
                    "y", (size_t)t);
        }
    k_free(y);
    k_free(kv.base);
}

static void
test_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!k_has_isa(k_isas[i]))
            continue;
        struct k_dev d;
        k_open(&d, 2, k_isas[i]);
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            check_shape(&d, &shapes[s]);
        k_close(&d);
    }
}

/* Windows at both sides of a block, a chunk and the row's length. */
static void
test_windows_and_caps(void **state)
{
    static const int windows[] = { 0, 1, 2, 15, 16, 17, 31, 63, 64, 65, 100, 128, 129,
        299, 5000 };
    static const float caps[] = { 0, 1.5f, 30 };
    uint64_t seed = 5;
    (void)state;
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        const char *isa = k_isas[i % 3];
        struct k_dev d;
        if (!k_has_isa(isa))
            continue;
        k_open(&d, 2, isa);
        for (int k = 0; k < 3; k++) {
            struct shape sh = shapes[k_rand(&seed) % (sizeof(shapes) / sizeof(shapes[0]))];
            sh.window = windows[i];
            sh.softcap = caps[k];
            check_shape(&d, &sh);
        }
        k_close(&d);
    }
}

/* ---- keys in shares ------------------------------------------------------------ */

/* Writes the row's tokens that belong to this share. */
static void
put_share(const struct k_step *s, int r, int to, const struct shape *sh,
    const struct fdk_kv *kv)
{
    int block = sh->block_size * kv->n_own;
    for (int p = 0; p < to; p++) {
        int slot = s->block_table[K_SLOT(r) * K_STRIDE + p / block] * block + p % block;
        int here = fdk_kv_place(kv, slot);
        for (int h = 0; h < sh->K && here >= 0; h++)
            for (int v = 0; v < 2; v++)
                kv_put(kv, here, p, h, v);
    }
}

/* Computes the results of share kv->own for the first of the equal queries, into x in
 * the layout that merge reads. */
static void
attend_share(struct k_dev *d, struct k_step *s, const struct shape *sh,
    const struct fdk_kv *kv, float *x)
{
    size_t n = (size_t)kv->n_own, T = (size_t)s->n_tok;
    size_t out = (size_t)(sh->H * (sh->D + 1));
    float *qkv = new_queries(s, sh, n), *y = k_new((T + 1) * n * out);
    attend_to(d, s, sh, kv, qkv, y);
    for (size_t t = 0; t < T; t++) {
        for (size_t q = 1; q < n; q++) /* all queries are equal */
            assert_memory_equal(y + t * n * out, y + (t * n + q) * out, out * 4);
        memcpy(x + (t * n + (size_t)kv->own) * out, y + t * n * out, out * 4);
    }
    free(qkv);
    k_free(y);
}

/* Checks that a share without keys for a query gives zeros and -Inf, which has no weight.
 * Returns the number of such results. */
static int
check_empty(const struct k_step *s, const struct shape *sh, const struct fdk_kv *kv,
    const float *x)
{
    size_t out = (size_t)(sh->H * (sh->D + 1));
    int n = 0;
    for (int t = 0; t < s->n_tok; t++) {
        const float *y = x + ((size_t)(t * kv->n_own) + (size_t)kv->own) * out;
        int first =
            sh->window > 0 && s->pos[t] >= sh->window ? s->pos[t] - sh->window + 1 : 0;
        int none = fdk_kv_count(kv, s->pos[t] + 1) == fdk_kv_count(kv, first);
        for (int h = 0; h < sh->H; h++) {
            assert_int_equal(y[sh->H * sh->D + h] == -INFINITY, none);
            for (int i = 0; i < sh->D && none; i++)
                assert_true(y[h * sh->D + i] == 0);
        }
        n += none;
    }
    return n;
}

/* C11: attention over shares of the keys, merged, equals attention over all keys, and no
 * query's result is NaN because a share has no keys for it. */
static void
check_shares(struct k_dev *d, const struct shape *sh, int n_own)
{
    static struct k_step s;
    size_t kv_floats, row = (size_t)(sh->H * sh->D), out = (size_t)(sh->H * (sh->D + 1));
    struct fdk_kv kv = { .n_own = n_own };
    double want[128];
    int n_empty = 0;
    k_step_init(&s);
    k_step_row(&s, 70, 0, sh->block_size * n_own, N_BLOCK, 0);
    k_step_row(&s, 1, 128, sh->block_size * n_own, N_BLOCK, 1);
    k_step_row(&s, 1, 0, sh->block_size * n_own, N_BLOCK, 2);
    size_t T = (size_t)s.n_tok;
    float *x = k_new(T * (size_t)n_own * out), *y = k_new((T + 1) * row);
    for (int own = 0; own < n_own; own++) {
        kv = kv_new(sh, &kv_floats);
        kv.n_own = n_own;
        kv.own = own;
        put_share(&s, 0, 70, sh, &kv);
        put_share(&s, 1, 129, sh, &kv);
        put_share(&s, 2, 1, sh, &kv);
        attend_share(d, &s, sh, &kv, x);
        n_empty += check_empty(&s, sh, &kv, x);
        k_check(kv.base, kv_floats);
        k_free(kv.base);
    }
    assert_true(n_empty > 0);
    struct fdk_merge_args m = { .y = y,
        .x = x,
        .n = s.b.n_tok,
        .T = s.n_tok + 1,
        .H = sh->H,
        .D = sh->D,
        .n_own = n_own };
    assert_int_equal(d->ops->merge(&m, d->st), 0);
    k_sync(d);
    assert_true(k_untouched(y + T * row, row));
    for (int t = 0; t < s.n_tok; t++)
        for (int h = 0; h < sh->H; h++) {
            expect(sh, s.pos[t], h, want);
            for (int i = 0; i < sh->D; i++)
                k_assert_near(y[(size_t)t * row + (size_t)(h * sh->D + i)], want[i], 5e-6,
                    "y", (size_t)t);
        }
    k_free(x);
    k_free(y);
}

static void
c11_shares(void **state)
{
    static const int windows[] = { 0, 3, 40 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!k_has_isa(k_isas[i]))
            continue;
        struct k_dev d;
        k_open(&d, 2, k_isas[i]);
        for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++)
            for (int n_own = 2; n_own <= 8; n_own += n_own) {
                struct shape sh = shapes[k];
                sh.window = windows[(k + (size_t)n_own) % 3];
                check_shares(&d, &sh, n_own);
            }
        k_close(&d);
    }
}

/* Positions 0..LEN in pieces of the given sizes, each piece in a step of its own with
 * another row, in blocks of the given size. */
static void
run_chunked(struct k_dev *d, const struct shape *sh, int piece, float *ret_y)
{
    enum { LEN = 200 };
    static struct k_step s;
    size_t kv_floats, row = (size_t)(sh->H * sh->D);
    for (int from = 0; from < LEN; from += piece) {
        struct fdk_kv kv = kv_new(sh, &kv_floats);
        int to = from + piece < LEN ? from + piece : LEN;
        float *y = malloc((size_t)(to - from + 4) * row * 4);
        k_step_init(&s);
        if (piece % 2)
            add_row(&s, sh, &kv, 3, 5, 4);
        int first = s.n_tok;
        add_row(&s, sh, &kv, from, to, 1);
        attend(d, &s, sh, &kv, y);
        memcpy(ret_y + (size_t)from * row, y + (size_t)first * row,
            (size_t)(to - from) * row * 4);
        free(y);
        k_free(kv.base);
    }
}

static void
test_invariance(void **state)
{
    static const int pieces[] = { 200, 64, 33, 19, 100 };
    static const int blocks[] = { 16, 64, 128, 48, 32 };
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct shape sh = shapes[kind / 2 * 2];
        sh.window = kind % 2 ? 70 : 0;
        sh.softcap = kind % 2 ? 2 : 0;
        size_t n = 200 * (size_t)(sh.H * sh.D);
        float *one = malloc(n * 4), *y = malloc(n * 4);
        for (int i = 0; i < 5; i++) {
            struct k_dev d;
            k_open(&d, 1 + i % 3, NULL);
            sh.block_size = blocks[i];
            run_chunked(&d, &sh, pieces[i], i == 0 ? one : y);
            k_close(&d);
            if (i > 0)
                assert_memory_equal(one, y, n * 4);
        }
        free(one);
        free(y);
    }
}

/* The KV type changes only the rounding of the stored values. */
static void
test_kv_dtypes_agree(void **state)
{
    struct shape sh = { 4, 2, 64, 32, FDK_F32, 0, 0 };
    size_t n = 200 * 4 * 64;
    float *a = malloc(n * 4), *b = malloc(n * 4);
    struct k_dev d;
    (void)state;
    k_open(&d, 2, NULL);
    run_chunked(&d, &sh, 90, a);
    sh.t = FDK_BF16;
    run_chunked(&d, &sh, 90, b);
    assert_memory_equal(a, b, n * 4);
    k_close(&d);
    free(a);
    free(b);
}

/* Inconsistent windows and invalid caps are refused. */
static void
test_bad_arguments(void **state)
{
    static struct k_step s;
    struct shape sh = { 4, 2, 32, 16, FDK_F32, 0, 0 };
    const struct {
        int window, step_window;
        float softcap;
    } bad[] = { { -1, -1, 0 }, { 5, 0, 0 }, { 5, 6, 0 }, { 0, 0, -1 }, { 0, 0, NAN } };
    size_t kv_floats;
    float y[2 * 4 * 32], qkv[2 * 8 * 32];
    struct fdk_kv kv = kv_new(&sh, &kv_floats);
    struct k_plan plan;
    struct k_dev d;
    (void)state;
    k_open(&d, 1, NULL);
    k_step_init(&s);
    add_row(&s, &sh, &kv, 0, 1, 0);
    for (int i = 0; i < 5; i++) {
        struct fdk_attention_args a = { .y = y,
            .qkv = qkv,
            .b = &s.b,
            .kv = kv,
            .T = 2,
            .H = 4,
            .K = 2,
            .D = 32,
            .layer = LAYER,
            .scale = 1 };
        k_plan_init(&d, &a, &plan);
        a.window = bad[i].window;
        a.step_window = bad[i].step_window;
        a.softcap = bad[i].softcap;
        assert_int_equal(d.ops->attention(&a, d.st), -EINVAL);
        k_plan_free(&plan);
    }
    k_close(&d);
    k_free(kv.base);
}

/* The result with an 8-bit cache equals, to the bit, that with an fp32 cache
 * of the dequantized values. */
static void
test_kv8_is_stored_times_scale(void **state)
{
    static const struct shape odd[] = {
        { 4, 2, 64, 32, 0, 0, 0 },
        { 3, 1, 7, 16, 0, 0, 0 },
        { 8, 4, 20, 16, 0, 0, 0 },
        { 6, 2, 80, 48, 0, 0, 0 },
        { 4, 4, 128, 64, 0, 0, 0 },
        { 2, 1, 17, 16, 0, 0, 0 },
    };
    static const enum fdk_dtype types[] = { FDK_I8, FDK_F8E4M3 };
    (void)state;
    for (int k = 0; k < 36; k++) {
        const char *isa = k_isas[k % 3];
        struct shape sh = odd[k / 6];
        size_t n = 200 * (size_t)(sh.H * sh.D);
        float *a = malloc(n * 4), *b = malloc(n * 4);
        struct k_dev d;
        if (k_has_isa(isa) && (!K_SLOW || k / 6 == k % 6)) {
            k_open(&d, 2, isa);
            make_history8(types[k / 3 % 2], sh.K);
            sh.window = k % 2 ? 33 : 0;
            sh.t = FDK_F32;
            run_chunked(&d, &sh, 200, a);
            sh.t = types[k / 3 % 2];
            run_chunked(&d, &sh, 75, b);
            assert_memory_equal(a, b, n * 4);
            k_close(&d);
        }
        free(a);
        free(b);
    }
    make_history();
}

/* No scale array: all scales are 1. */
static void
test_f8_without_scales(void **state)
{
    struct shape sh = { 2, 1, 32, 16, FDK_F8E4M3, 0, 0 };
    float y[2][2 * 32];
    (void)state;
    for (int k = 0; k < 2; k++) {
        static struct k_step s;
        struct k_dev d;
        size_t kv_floats;
        float one[LAYERS * 2] = { 1, 1, 1, 1 };
        make_history8(FDK_F8E4M3, 1);
        struct fdk_kv kv = kv_new(&sh, &kv_floats);
        kv.scale = k ? one : NULL;
        k_open(&d, 1, NULL);
        k_step_init(&s);
        add_row(&s, &sh, &kv, 99, 100, 0);
        attend(&d, &s, &sh, &kv, y[k]);
        k_close(&d);
        k_free(kv.base);
    }
    assert_memory_equal(y[0], y[1], sizeof(y[0]));
    assert_true(fabsf(y[0][0]) > 0 && isfinite(y[0][0]));
    make_history();
}

/* One graph, recorded once, for every length of the history. */
static void
check_lengths(const struct shape *sh)
{
    static struct k_step s;
    struct k_dev d;
    size_t kv_floats, row = (size_t)(sh->H * sh->D);
    size_t stride = (size_t)((sh->H + 2 * sh->K) * sh->D);
    struct fdk_kv kv = kv_new(sh, &kv_floats);
    float *y = k_new(2 * row), *eager = malloc(row * 4), *qkv = calloc(2 * stride, 4);
    /* An 8-bit cache has all bytes: values up to 13, scores up to hundreds. */
    double want[128], tol = fdk_dtype_bytes(sh->t) == 1 ? 2e-4 : 4e-6;
    struct fdk_graph *g;
    struct k_plan plan;
    k_open(&d, 2, NULL);
    k_step_init(&s);
    add_row(&s, sh, &kv, MAX_LEN - 1, MAX_LEN, 0);
    struct fdk_attention_args a = {
        .y = y,
        .qkv = qkv,
        .b = &s.b,
        .kv = kv,
        .T = 2,
        .H = sh->H,
        .K = sh->K,
        .D = sh->D,
        .layer = LAYER,
        .scale = 1 / sqrtf((float)sh->D),
    };
    k_plan_init(&d, &a, &plan);
    assert_int_equal(d.ops->graph_begin(d.st), 0);
    k_plan_launch(&d, &s.b, &plan);
    assert_int_equal(d.ops->attention(&a, d.st), 0);
    assert_int_equal(d.ops->graph_end(d.st, &g), 0);
    for (int len = 1; len <= MAX_LEN; len += K_SLOW ? 13 : 1) {
        s.kv_len[0] = len;
        s.pos[0] = len - 1;
        for (int h = 0; h < sh->H; h++)
            memcpy(qkv + h * sh->D, queries[len - 1][h], (size_t)sh->D * 4);
        k_plan_launch(&d, &s.b, &plan);
        assert_int_equal(d.ops->attention(&a, d.st), 0);
        k_sync(&d);
        memcpy(eager, y, row * 4);
        memset(y, 0x55, row * 4);
        assert_int_equal(d.ops->graph_launch(g, d.st), 0);
        k_sync(&d);
        assert_memory_equal(y, eager, row * 4);
        for (int h = 0; h < sh->H; h++) {
            expect(sh, len - 1, h, want);
            for (int i = 0; i < sh->D; i++)
                k_assert_near(y[h * sh->D + i], want[i], tol, "y", (size_t)len);
        }
    }
    k_check(y, 2 * row);
    assert_true(k_untouched(y + row, row));
    d.ops->graph_free(g);
    k_close(&d);
    k_plan_free(&plan);
    k_free(y);
    k_free(kv.base);
    free(eager);
    free(qkv);
}

static void
a8_one_graph_for_every_length(void **state)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_BF16, FDK_I8, FDK_F8E4M3 };
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct shape sh = { 4, 2, 32, 16, types[i], 0, 0 };
        if (i >= 2)
            make_history8(types[i], sh.K);
        check_lengths(&sh);
    }
    make_history();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_windows_and_caps),
        cmocka_unit_test(c11_shares),
        cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_kv_dtypes_agree),
        cmocka_unit_test(test_kv8_is_stored_times_scale),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_f8_without_scales),
        cmocka_unit_test(a8_one_graph_for_every_length),
    };
    make_history();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
