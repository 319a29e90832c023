#include "config.h"

#include "tests/kernel/k_util.h"

/* rope_table, then qkv: norms, rotation and the KV write of one layer. */

struct shape {
    int H, K, D, rot, block_size, norm;
    enum fdk_dtype t;
};

enum { N_BLOCK = 24, LAYERS = 3, LAYER = 1, N_TOK = 21 };

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
    kv.base = k_new(*ret_floats);
    return kv;
}

static double
kv_read(const struct fdk_kv *kv, int slot, int h, int i, int value)
{
    size_t e = (size_t)((h * kv->block_size + slot % kv->block_size) * kv->head_dim + i);
    const char *p = (const char *)kv->base +
        (uint64_t)(slot / kv->block_size) * kv->block_bytes + LAYER * kv->layer_bytes +
        (value ? kv->v_bytes : 0) + e * fdk_dtype_bytes(kv->dtype);
    if (kv->dtype == FDK_F32)
        return *(const float *)(const void *)p;
    return k_from_half(*(const uint16_t *)(const void *)p, FDK_BF16);
}

/* The head as it should come out, in double precision. */
static void
expect(const struct shape *sh, const float *src, const float *norm, const double *freq,
    int pos, double *ret)
{
    double sq = 0, inv = 1;
    for (int i = 0; i < sh->D; i++)
        sq += (double)src[i] * src[i];
    if (norm != NULL)
        inv = 1 / sqrt(sq / sh->D + 1e-6f);
    for (int i = 0; i < sh->D; i++)
        ret[i] = src[i] * inv * (norm != NULL ? norm[i] : 1);
    for (int i = 0; i < sh->rot / 2; i++) {
        double re = ret[i], im = ret[i + sh->rot / 2];
        /* The angle is a product of floats by definition. */
        float angle = (float)pos * (float)freq[i];
        double c = cos(angle) * 1.25, s = sin(angle) * 1.25;
        ret[i] = re * c - im * s;
        ret[i + sh->rot / 2] = im * c + re * s;
    }
}

static void
check(struct k_dev *d, const struct shape *sh)
{
    static struct k_step s;
    float inv_freq[64], norm[2][512];
    double freq[64], want[512];
    size_t stride = (size_t)((sh->H + 2 * sh->K) * sh->D), kv_floats;
    struct fdk_kv kv = kv_new(sh, &kv_floats);
    k_step_init(&s);
    k_step_row(&s, 8, 5, sh->block_size, N_BLOCK, 0);
    k_step_row(&s, 1, 30, sh->block_size, N_BLOCK, 1);
    k_step_row(&s, N_TOK - 9, 0, sh->block_size, N_BLOCK, 2);
    s.slot_map[N_TOK - 1] = -1;
    for (int i = 0; i < sh->rot / 2; i++) {
        inv_freq[i] = powf(10000, -2.0f * (float)i / (float)sh->rot);
        freq[i] = inv_freq[i];
    }
    k_fill(norm[0], (size_t)sh->D, 1);
    k_fill(norm[1], (size_t)sh->D, 2);
    size_t n = N_TOK * stride, n_cs = (size_t)((N_TOK + 1) * sh->rot);
    float *qkv = k_new(n + stride), *in = malloc(n * 4), *cs = k_new(n_cs);
    k_fill(in, n, 3);
    memcpy(qkv, in, n * 4);
    const struct fdk_rope_table_args ra = {
        .cs = cs, .inv_freq = inv_freq, .b = &s.b, .T = N_TOK + 1, .rot = sh->rot,
        .scale = 1.25f,
    };
    const struct fdk_qkv_args a = {
        .qkv = qkv, .q_norm = sh->norm ? norm[0] : NULL, .k_norm = sh->norm ? norm[1] : NULL,
        .cs = cs, .b = &s.b, .kv = kv, .T = N_TOK + 1, .H = sh->H, .K = sh->K, .D = sh->D,
        .rot = sh->rot, .layer = LAYER, .eps = 1e-6f,
    };
    assert_int_equal(d->ops->rope_table(&ra, d->st), 0);
    assert_int_equal(d->ops->qkv(&a, d->st), 0);
    k_sync(d);
    k_check(qkv, n + stride);
    k_check(cs, n_cs);
    k_check(kv.base, kv_floats);
    assert_true(k_untouched(qkv + n, stride));
    for (int t = 0; t < N_TOK; t++) {
        const float *row = in + (size_t)t * stride;
        for (int h = 0; h < sh->H; h++) {
            expect(sh, row + h * sh->D, a.q_norm, freq, s.pos[t], want);
            for (int i = 0; i < sh->D; i++)
                k_assert_near(qkv[(size_t)t * stride + (size_t)(h * sh->D + i)], want[i],
                    2e-6 * (fabs(want[i]) + 1), "q", (size_t)i);
        }
        for (int h = 0; h < sh->K && s.slot_map[t] >= 0; h++) {
            const float *k = row + (sh->H + h) * sh->D, *v = k + sh->K * sh->D;
            double ulp = sh->t == FDK_F32 ? 2e-6 : 0x1p-8;
            expect(sh, k, a.k_norm, freq, s.pos[t], want);
            for (int i = 0; i < sh->D; i++) {
                k_assert_near(kv_read(&kv, s.slot_map[t], h, i, 0), want[i],
                    ulp * (fabs(want[i]) + 1e-3) + 2e-6, "k", (size_t)i);
                k_assert_near(kv_read(&kv, s.slot_map[t], h, i, 1), v[i],
                    sh->t == FDK_F32 ? 0 : 0x1p-8 * fabs((double)v[i]), "v", (size_t)i);
            }
        }
    }
    free(in);
    k_free(qkv);
    k_free(cs);
    k_free(kv.base);
}

static void
test_reference(void **state)
{
    static const struct shape shapes[] = {
        { 4, 2, 32, 32, 16, 0, FDK_F32 },  { 8, 1, 64, 64, 64, 1, FDK_BF16 },
        { 3, 3, 20, 20, 16, 1, FDK_F32 },  { 6, 2, 80, 32, 32, 0, FDK_BF16 },
        { 2, 2, 128, 128, 128, 1, FDK_F32 }, { 2, 1, 17, 2, 48, 1, FDK_BF16 },
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!k_has_isa(k_isas[i]))
            continue;
        struct k_dev d;
        k_open(&d, 2, k_isas[i]);
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            check(&d, &shapes[s]);
        k_close(&d);
    }
}

static void
test_arguments(void **state)
{
    static struct k_step s;
    static float v[4096];
    struct k_dev d;
    (void)state;
    k_open(&d, 1, NULL);
    k_step_init(&s);
    struct fdk_qkv_args a = {
        .qkv = v, .cs = v, .b = &s.b, .T = 1, .H = 2, .K = 1, .D = 16, .rot = 16,
        .kv = { v, 4096, 2048, 1024, 16, 1, 16, FDK_F32 },
    };
    assert_int_equal(d.ops->qkv(&a, d.st), 0);
    a.kv.dtype = FDK_F16;
    assert_int_equal(d.ops->qkv(&a, d.st), -ENOTSUP);
    a.kv.dtype = FDK_F32;
    a.kv.v_bytes = 1023;
    assert_int_equal(d.ops->qkv(&a, d.st), -EINVAL);
    a.kv.v_bytes = 1024;
    a.rot = 18;
    assert_int_equal(d.ops->qkv(&a, d.st), -EINVAL);
    a.rot = 16;
    a.D = 1024;
    assert_int_equal(d.ops->qkv(&a, d.st), -ENOTSUP);
    k_close(&d);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
