#include "config.h"

#include "tests/kernel/k_util.h"

/* Causal attention over paged KV, against double precision, and the promise
 * that a query's bits depend on nothing but its own history. */

enum { N_BLOCK = 96, LAYERS = 2, LAYER = 1, MAX_LEN = 300 };

struct shape {
    int H, K, D, block_size;
    enum fdk_dtype t;
};

/* The logical history of one row: every KV layout must hold these numbers. */
static float hist_k[MAX_LEN][4][128], hist_v[MAX_LEN][4][128];
static float queries[MAX_LEN][8][128];

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

static struct fdk_kv
kv_new(const struct shape *sh, size_t *ret_floats)
{
    struct fdk_kv kv = {
        .block_size = sh->block_size, .n_kv_head = sh->K, .head_dim = sh->D, .dtype = sh->t,
    };
    kv.v_bytes = (uint64_t)(sh->K * sh->block_size * sh->D) * fdk_dtype_bytes(sh->t);
    kv.layer_bytes = 2 * kv.v_bytes;
    kv.block_bytes = LAYERS * kv.layer_bytes;
    *ret_floats = N_BLOCK * kv.block_bytes / 4;
    kv.base = k_new(*ret_floats);    /* NaN wherever nothing was written */
    return kv;
}

static void
kv_put(const struct fdk_kv *kv, int slot, int h, int i, int value, float x)
{
    size_t e = (size_t)((h * kv->block_size + slot % kv->block_size) * kv->head_dim + i);
    char *p = (char *)kv->base + (uint64_t)(slot / kv->block_size) * kv->block_bytes +
        LAYER * kv->layer_bytes + (value ? kv->v_bytes : 0) +
        e * fdk_dtype_bytes(kv->dtype);
    uint16_t b = k_to_bf16(x);
    memcpy(p, kv->dtype == FDK_F32 ? (void *)&x : (void *)&b, fdk_dtype_bytes(kv->dtype));
}

/* Row of tokens [from, to) of the history, its blocks filled up to `to`. */
static void
add_row(struct k_step *s, const struct shape *sh, const struct fdk_kv *kv, int from, int to,
    int salt)
{
    int r = s->n_row;
    k_step_row(s, to - from, from, sh->block_size, N_BLOCK, salt);
    for (int p = 0; p < to; p++)
        for (int h = 0; h < sh->K; h++)
            for (int i = 0; i < sh->D; i++) {
                int slot = s->block_table[r * K_STRIDE + p / sh->block_size] *
                    sh->block_size + p % sh->block_size;
                kv_put(kv, slot, h, i, 0, hist_k[p][h][i]);
                kv_put(kv, slot, h, i, 1, hist_v[p][h][i]);
            }
}

static void
attend(struct k_dev *d, struct k_step *s, const struct shape *sh, const struct fdk_kv *kv,
    float *y)
{
    size_t stride = (size_t)((sh->H + 2 * sh->K) * sh->D);
    float *qkv = malloc((size_t)s->n_tok * stride * 4);
    for (int t = 0; t < s->n_tok; t++)
        for (int h = 0; h < sh->H; h++)
            memcpy(qkv + (size_t)t * stride + (size_t)(h * sh->D), queries[s->pos[t]][h],
                (size_t)sh->D * 4);
    const struct fdk_attention_args a = {
        .y = y, .qkv = qkv, .b = &s->b, .kv = *kv, .T = s->n_tok + 1, .H = sh->H,
        .K = sh->K, .D = sh->D, .layer = LAYER, .scale = 1 / sqrtf((float)sh->D),
    };
    assert_int_equal(d->ops->attention(&a, d->st), 0);
    k_sync(d);
    free(qkv);
}

static void
expect(const struct shape *sh, int pos, int h, double *ret)
{
    static double p[MAX_LEN];
    double m = -INFINITY, l = 0;
    int kh = h / (sh->H / sh->K);
    for (int j = 0; j <= pos; j++) {
        p[j] = 0;
        for (int i = 0; i < sh->D; i++)
            p[j] += (double)queries[pos][h][i] * hist_k[j][kh][i];
        p[j] *= 1 / sqrt(sh->D);
        m = p[j] > m ? p[j] : m;
    }
    for (int j = 0; j <= pos; j++)
        l += p[j] = exp(p[j] - m);
    for (int i = 0; i < sh->D; i++) {
        ret[i] = 0;
        for (int j = 0; j <= pos; j++)
            ret[i] += p[j] / l * hist_v[j][kh][i];
    }
}

static const struct shape shapes[] = {
    { 4, 2, 32, 16, FDK_F32 },  { 4, 2, 64, 64, FDK_BF16 }, { 8, 1, 20, 16, FDK_BF16 },
    { 4, 4, 128, 128, FDK_F32 }, { 6, 2, 80, 48, FDK_BF16 }, { 3, 1, 7, 32, FDK_F32 },
};

static void
check_shape(struct k_dev *d, const struct shape *sh)
{
    static struct k_step s;
    size_t kv_floats;
    double want[128];
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
                k_assert_near(y[(size_t)t * row + (size_t)(h * sh->D + i)], want[i], 4e-6,
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

/* Positions 0..LEN in pieces of the given sizes, each piece a step of its own
 * beside another row, in blocks of the given size. */
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
    for (int kind = 0; kind < 3; kind += 2) {
        struct shape sh = shapes[kind];
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

/* The KV type changes nothing but the rounding of what is stored. */
static void
test_kv_dtypes_agree(void **state)
{
    struct shape sh = { 4, 2, 64, 32, FDK_F32 };
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_kv_dtypes_agree),
    };
    make_history();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
