/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_two.h"

#include "daemon/worker/weights_priv.h"
#include "kernels/cpu/cpu.h"

/*
 * Weights on the cuda backend compared to the bit with the loader's functions on the
 * host: conversion, quantization, random weights, and whole checkpoints loaded both ways.
 */

static const struct qnt schemes[] = { { FDK_F32, 0 }, { FDK_I8, 0 }, { FDK_I8, 32 },
    { FDK_I8, 128 }, { FDK_I4, 0 }, { FDK_I4, 32 }, { FDK_I4, 64 }, { FDK_I4, 128 },
    { FDK_F8E4M3, 0 }, { FDK_F8E4M3, 64 }, { FDK_F8E4M3, 128 } };
#define N_SCHEME (sizeof(schemes) / sizeof(schemes[0]))

static void
widens_every_half(void **state)
{
    struct two_dev *t = &tw.gpu;
    uint16_t *h = malloc(65536 * 2);
    uint32_t *want = malloc(65536 * 4), *got;

    (void)state;
    for (int i = 0; i < 65536; i++)
        h[i] = (uint16_t)i;
    for (int i = 0; i < 2; i++) {
        enum fdk_dtype type = i == 0 ? FDK_F16 : FDK_BF16;
        size_t n = i == 0 ? 65536 : 65533;
        struct fdk_pack_args a = { .w = { FDK_F32, .rows = 1, .cols = (int32_t)n },
            .x = tw_new(t, h, n * 2),
            .n = 1,
            .x_dtype = type };

        a.w.data = tw_new(t, NULL, n * 4);
        OK(t->d.ops->weight_pack(&a, t->d.st));
        got = tw_read(t, a.w.data, n * 4);
        fdk_to_f32(want, h, type, n);
        tw_same(got, want, n * 4, "widened");
        free(got);
        tw_free(t);
    }
    free(h);
    free(want);
}

/* ---- quantization ---- */

/* Rows of many magnitudes: ordinary ones, zeros, subnormals, equal magnitudes of both
 * signs, and values whose quotients are half way between integers. */
static float
element(int kind, int i)
{
    switch (kind) {
    case 0:
        return k_normal(&tw.seed);
    case 1:
        return 0 * (i % 2 ? -1.0f : 1.0f);
    case 2:
        return (float)tw_int(-9, 9) * 0x1p-149f;
    case 3:
        return (float)tw_int(-16, 16) * 0.5f;
    case 4:
        return (float)tw_int(-896, 896) * 0.5f;
    case 5:
        return ldexpf((float)tw_int(-300, 300), tw_int(-140, 100));
    default:
        return k_normal(&tw.seed) * 1e-6f + (i % 61 == 7 ? 3 : 0);
    }
}

static void *
rows_of(int rows, int cols, enum fdk_dtype t)
{
    char *x = malloc((size_t)rows * (size_t)cols * 4);

    for (int i = 0; i < rows * cols; i++) {
        float f = element(i / cols % 7, i);
        uint16_t h = t == FDK_BF16 ? k_to_bf16(f) : k_to_f16(fminf(fabsf(f), 6e4f));

        if (t == FDK_F32)
            memcpy(x + 4 * (size_t)i, &f, 4);
        else
            memcpy(x + 2 * (size_t)i, &h, 2);
    }
    return x;
}

static void
quantize_rows(int rows, int cols, enum fdk_dtype type, const struct qnt *q)
{
    struct two_dev *t = &tw.gpu;
    size_t elt = fdk_dtype_bytes(type), row = fdk_row_bytes(q->dtype, (size_t)cols);
    size_t n_group = (size_t)qnt_groups(q, cols), n = (size_t)rows;
    char *x = rows_of(rows, cols, type), *want = malloc(n * row), *got;
    float *scale = malloc(n * n_group * 4);
    const uint64_t none = UINT64_MAX;
    struct fdk_pack_args a = { .w = { q->dtype, .rows = rows, .cols = cols,
                                   .group = qnt_group(q, cols) },
        .x = tw_new(t, x, n * (size_t)cols * elt),
        .bad = tw_new(t, &none, 8),
        .bad_first = 77,
        .n = rows,
        .x_dtype = type };
    uint64_t bad;
    int32_t at;

    for (size_t r = 0; r < n; r++)
        OK(cpu_quant_row(want + r * row, scale + r * n_group, x + r * (size_t)cols * elt,
            type, cols, q->dtype, qnt_group(q, cols), &at));
    OK(t->d.ops->weight_layout(&a.w));
    a.w.data = tw_new(t, NULL, a.w.bytes);
    OK(t->d.ops->weight_pack(&a, t->d.st));
    got = tw_read(t, (char *)a.w.data + a.w.scale_at, n * n_group * 4);
    tw_same(got, scale, n * n_group * 4, "scales");
    free(got);
    got = tw_read(t, a.w.data, n * row);
    tw_same(got, want, n * row, "rows");
    free(got);
    tw_get(t, &bad, a.bad, 8);
    assert_true(bad == none);
    tw_free(t);
    free(x);
    free(want);
    free(scale);
}

static void
quantizes_as_the_host(void **state)
{
    static const int cols[] = { 1, 2, 31, 32, 34, 95, 96, 130, 256, 257, 1000, 4098 };
    static const enum fdk_dtype types[] = { FDK_F32, FDK_F16, FDK_BF16 };

    (void)state;
    for (size_t s = 1; s < N_SCHEME; s++)
        for (size_t c = 0; c < sizeof(cols) / sizeof(cols[0]); c++)
            for (int i = 0; i < 3; i++)
                if ((schemes[s].dtype != FDK_I4 || cols[c] % 2 == 0) && tw_takes(s + c, 3))
                    quantize_rows(14, cols[c], types[i], &schemes[s]);
}

static void
finds_the_first_bad_weight(void **state)
{
    static const uint32_t evil[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xff800001 };
    static const int group[] = { 32, 128, 1000 };
    struct two_dev *t = &tw.gpu;
    const int rows = 40, cols = 1000;
    uint64_t bad;

    (void)state;
    for (int n = 0; n < 12; n++) {
        uint32_t *x = rows_of(rows, cols, FDK_F32);
        const uint64_t before = n % 3 == 2 ? 1000 : UINT64_MAX;
        uint64_t want = UINT64_MAX;

        for (int i = 0; i < 3; i++) {
            uint64_t at = (uint64_t)tw_int(0, rows * cols - 1);

            x[at] = evil[n % 4];
            want = at < want ? at : want;
        }
        struct fdk_pack_args a = { .w = { n % 2 ? FDK_I8 : FDK_I4, .rows = rows,
                                       .cols = cols, .group = group[n % 3] },
            .x = tw_new(t, x, (size_t)(rows * cols) * 4),
            .bad = tw_new(t, &before, 8),
            .bad_first = 5000,
            .n = rows,
            .x_dtype = FDK_F32 };

        OK(t->d.ops->weight_layout(&a.w));
        a.w.data = tw_new(t, NULL, a.w.bytes);
        OK(t->d.ops->weight_pack(&a, t->d.st));
        tw_get(t, &bad, a.bad, 8);
        assert_int_equal(bad, before == 1000 ? 1000 : 5000 + want);
        tw_free(t);
        free(x);
    }
}

/* ---- windows of columns ---- */

/* Rows of which a weight has only some columns are packed as on the cpu backend. bad_at:
 * element that is not finite, -1: none. */
static void
pack_window(enum fdk_dtype from, struct fdk_weight w, int x_cols, int x_at, int row_scale,
    int bad_at)
{
    struct two_dev *t = &tw.gpu;
    size_t x_bytes = (size_t)w.rows * fdk_row_bytes(from, (size_t)x_cols);
    char *x = rows_of(w.rows, x_cols, fdk_is_float(from) ? from : FDK_F32), *want, *got;
    const uint64_t none = UINT64_MAX;
    uint64_t want_bad = none, got_bad;
    struct fdk_pack_args a = { .w = w,
        .x_dtype = from,
        .n = w.rows,
        .x = x,
        .x_cols = x_cols,
        .x_at = x_at,
        .x_row_scale = row_scale,
        .bad = &want_bad,
        .bad_first = 300 };

    if (bad_at >= 0)
        memset(x + (size_t)bad_at * fdk_dtype_bytes(from), 0xff, fdk_dtype_bytes(from));
    OK(fdk_ops_cpu.weight_layout(&a.w));
    want = calloc(1, a.w.bytes);
    a.w.data = want;
    OK(fdk_ops_cpu.weight_pack(&a, NULL));
    a.x = tw_new(t, x, x_bytes);
    a.bad = tw_new(t, &none, 8);
    got = calloc(1, a.w.bytes);
    a.w.data = tw_new(t, got, a.w.bytes);
    free(got);
    OK(t->d.ops->weight_pack(&a, t->d.st));
    tw_get(t, &got_bad, a.bad, 8);
    assert_int_equal(got_bad, want_bad);
    got = tw_read(t, a.w.data, a.w.bytes);
    if (want_bad == none)
        tw_same(got, want, a.w.bytes, "window");
    free(got);
    free(want);
    free(x);
    tw_free(t);
}

static void
windows_equal_the_host(void **state)
{
    static const int cols[] = { 2, 32, 96, 130, 256, 4096 };
    static const enum fdk_dtype types[] = { FDK_F32, FDK_F16, FDK_BF16 };

    (void)state;
    for (size_t c = 0; c < sizeof(cols) / sizeof(cols[0]); c++)
        for (int rank = 0; rank < 4; rank++)
            for (size_t s = 0; s < N_SCHEME; s++) {
                enum fdk_dtype from = types[(c + s) % 3];
                struct fdk_weight w = { schemes[s].dtype, .rows = 9, .cols = cols[c] };
                int all = 4 * cols[c], at = rank * cols[c];
                int row_scale = schemes[s].group == 0 && schemes[s].dtype != FDK_F32;

                w.group = schemes[s].dtype == FDK_F32 ? 0 : qnt_group(&schemes[s], cols[c]);
                pack_window(from, w, all, at, row_scale, -1);
                if (w.group > 0) /* a NaN in the window, and elsewhere in its row */
                    for (int k = 0; k < 2; k++)
                        pack_window(from, w, all, at, row_scale,
                            3 * all + (k == 0 ? at + 1 : (at + all - 1) % all));
                if (w.group > 0) /* not quantized */
                    pack_window(w.format, w, all, at, row_scale, -1);
            }
    for (int rank = 0; rank < 4; rank++)
        pack_window(FDK_BF16, (struct fdk_weight){ FDK_BF16, .rows = 33, .cols = 50 },
            200, 50 * rank, 0, -1);
}

/* Also for the scales only. */
static void
windows_of_scales(void **state)
{
    struct two_dev *t = &tw.gpu;
    float x[6 * 8], got[6 * 2];
    struct fdk_pack_args a = { .w = { FDK_F8E4M3, .rows = 6, .cols = 256, .group = 128 },
        .what = FDK_PACK_SCALES,
        .x_dtype = FDK_F32,
        .n = 6,
        .x_cols = 8,
        .x_at = 6 };

    (void)state;
    for (int i = 0; i < 48; i++)
        x[i] = (float)i;
    OK(t->d.ops->weight_layout(&a.w));
    a.w.data = tw_new(t, NULL, a.w.bytes);
    a.x = tw_new(t, x, sizeof(x));
    OK(t->d.ops->weight_pack(&a, t->d.st));
    tw_get(t, got, (char *)a.w.data + a.w.scale_at, sizeof(got));
    for (int i = 0; i < 12; i++)
        assert_true(got[i] == (float)(i / 2 * 8 + 6 + i % 2));
    tw_free(t);
}

static void
refuses_nonsense(void **state)
{
    struct two_dev *t = &tw.gpu;
    char *p = tw_new(t, NULL, 4096);
    const struct fdk_pack_args good = { .w = { FDK_I4, .rows = 1, .cols = 96, .group = 32,
                                            .data = p },
        .n = 1,
        .x = p,
        .bad = (void *)p,
        .x_dtype = FDK_F32 };
    struct fdk_pack_args a = good;
    struct fdk_dummy_args d = { .y = p, .n = 8, .y_dtype = FDK_I8 };

    (void)state;
    a.w.cols = 95;
    assert_int_equal(t->d.ops->weight_pack(&a, t->d.st), -EINVAL);
    a = good;
    a.w.group = 33;
    assert_int_equal(t->d.ops->weight_pack(&a, t->d.st), -EINVAL);
    a.w.group = 128;
    assert_int_equal(t->d.ops->weight_pack(&a, t->d.st), -EINVAL);
    a = good;
    a.bad = NULL;
    assert_int_equal(t->d.ops->weight_pack(&a, t->d.st), -EINVAL);
    a = good;
    a.x_dtype = FDK_I8;
    assert_int_equal(t->d.ops->weight_pack(&a, t->d.st), -ENOTSUP);
    a = good;
    a.n = 2;
    assert_int_equal(t->d.ops->weight_pack(&a, t->d.st), -EINVAL);
    a = good;
    a.w.layout = 1;
    assert_int_equal(t->d.ops->weight_pack(&a, t->d.st), -ENOTSUP);
    a = good;
    a.x_at = 2;
    assert_int_equal(t->d.ops->weight_pack(&a, t->d.st), -EINVAL);
    assert_int_equal(t->d.ops->dummy(&d, t->d.st), -ENOTSUP);
    d.n = 0;
    assert_int_equal(t->d.ops->dummy(&d, t->d.st), -EINVAL);
    tw_free(t);
}

/* ---- random weights ---- */

static void
dummies_equal_the_host(void **state)
{
    static const uint64_t span[][2] = { { 0, 1 }, { 0, 2048 }, { 1, 2047 }, { 2047, 2 },
        { 5000, 9001 }, { (1ull << 34) + 17, 6000 } };
    struct two_dev *t = &tw.gpu;
    struct wts_place place[2] = { { .fill = WTS_FILL_NORM, .scale = 0.02f },
        { .fill = WTS_FILL_LINEAR, .scale = 0.015625f } };
    struct wts_plan wp = { .dummy = 1, .seed = tw.seed, .place = place, .n_place = 2 };

    (void)state;
    for (size_t i = 0; i < 6 * sizeof(span) / sizeof(span[0]); i++) {
        const uint64_t *s = span[i / 6];
        enum fdk_dtype type = (enum fdk_dtype)(i / 2 % 3);
        size_t bytes = (size_t)s[1] * fdk_dtype_bytes(type);
        struct fdk_dummy_args a = wts_dummy_args(&wp, (int32_t)(i % 2), s[0], s[1]);
        char *want = malloc(bytes), *got;

        place[i % 2].src = type;
        a.y = tw_new(t, NULL, bytes);
        a.y_dtype = type;
        OK(t->d.ops->dummy(&a, t->d.st));
        wts_dummy_fill(&wp, (int32_t)(i % 2), s[0], (size_t)s[1], want);
        got = tw_read(t, a.y, bytes);
        tw_same(got, want, bytes, "random weights");
        free(got);
        free(want);
        tw_free(t);
    }
}

/* ---- whole checkpoints ---- */

#define MAX_RANK 4

/* Loads the weights of n ranks, all on one device. */
static char *
load(struct two_dev *t, struct wts_plan *wp, int32_t n, int uring, size_t buffer)
{
    struct wts_load_args la = { .use_uring = uring,
        .buffer_bytes = buffer,
        .background = uring };
    char *arena = tw_new(t, NULL, wts_bytes(wp) * (size_t)n), err[1024] = "", *copy;
    struct wts_at at[MAX_RANK];

    for (int32_t i = 0; i < n; i++)
        at[i] = (struct wts_at){ 0, arena + (size_t)i * wts_bytes(wp) };
    if (wts_load(wp, t->d.ops, t->d.ctx, at, n, &la, err, sizeof(err)) != 0 ||
        wts_load_wait(wp, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    copy = tw_read(t, arena, wts_bytes(wp) * (size_t)n);
    tw_free(t);
    return copy;
}

/* Makes a plan for n ranks, or NULL if the model or its scale groups cannot be divided. */
static struct wts_plan *
plan(const char *path, int32_t n, const struct qnt *q, int dummy, struct mdl_program **ret)
{
    struct wts_plan *wp = NULL;
    struct mdl_config cfg;
    char err[1024] = "";

    *ret = NULL;
    if (mdl_config_read(path, &cfg, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    if (mdl_build(&cfg, n, ret, err, sizeof(err)) == 0) {
        OK(wts_plan_new(path, *ret, dummy, 5, &wp, err, sizeof(err)));
        if (q->dtype == FDK_F32 || wts_plan_quantize(wp, *ret, q, err, sizeof(err)) == 0)
            return wp;
    }
    assert_true(n > 1);
    wts_plan_free(wp);
    *ret = mdl_free(*ret);
    return NULL;
}

static void
checkpoints_equal_the_host(void **state)
{
    static const char *const name[] = { "llama31-gqa-tied-bf16", "llama-bias-mixed",
        "llama-linear-sharded", "llama31-old-f16", "qwen3-bf16" };
    const char *src = getenv("srcdir");
    int32_t n_loaded[MAX_RANK + 1] = { 0 };
    char path[4096];

    (void)state;
    for (size_t i = 0; i < 6 * N_SCHEME * sizeof(name) / sizeof(name[0]); i++) {
        const struct qnt *q = &schemes[i / 6 % N_SCHEME];
        int32_t n = 1 << i / 2 % 3;
        struct mdl_program *p;
        struct wts_plan *wp;
        char *want, *got;

        snprintf(path, sizeof(path), "%s/tests/parity/models/%s", src != NULL ? src : ".",
            name[i / 6 / N_SCHEME]);
        wp = plan(path, n, q, i % 2 != 0, &p);
        if (wp == NULL)
            continue;
        n_loaded[n]++;
        want = load(&tw.cpu, wp, n, 0, 1 << 20);
        wp->st->n_reader = tw_int(1, 16);
        got = load(&tw.gpu, wp, n, tw_int(0, 1), (size_t)tw_int(1, 1 << 18));
        tw_same(got, want, wts_bytes(wp) * (size_t)n, path);
        free(want);
        free(got);
        wts_plan_free(wp);
        mdl_free(p);
    }
    assert_true(n_loaded[2] > 0 && n_loaded[4] > 0);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widens_every_half),
        cmocka_unit_test(quantizes_as_the_host),
        cmocka_unit_test(finds_the_first_bad_weight),
        cmocka_unit_test(windows_equal_the_host),
        cmocka_unit_test(windows_of_scales),
        cmocka_unit_test(refuses_nonsense),
        cmocka_unit_test(dummies_equal_the_host),
        cmocka_unit_test(checkpoints_equal_the_host),
    };
    int rc = tw_open();

    if (rc != 0)
        return rc;
    if (argc > 1)
        cmocka_set_skip_filter(argv[1]);
    rc = cmocka_run_group_tests_name("k_cuda_load", tests, NULL, NULL);
    tw_close();
    return rc;
}
