/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Attributes of operations that Llama's layers do not have: the
 * GPU compared with the cpu. */
#include "config.h"

#include "tests/kernel/k_two.h"

#define PAD 3 /* rows of a launch that are not live */

struct norm_out {
    float *x, *y;
};

static struct norm_out
run_norm(struct two_dev *t, struct fdk_rmsnorm_args a, int live, const float *in,
    enum fdk_dtype act, int with_add, int with_y)
{
    size_t n = (size_t)a.T * (size_t)a.C;
    const int32_t rows = live;
    struct norm_out r = { NULL, NULL };

    a.y = with_y ? tw_new_act(t, NULL, n, act) : NULL;
    a.x = tw_new(t, in, n * 4);
    a.add = with_add ? tw_new_act(t, in + n, n, act) : NULL;
    a.w = tw_new(t, in, (size_t)a.C * 4);
    a.n = tw_new(t, &rows, 4);
    a.act = act;
    OK(t->d.ops->rmsnorm(&a, t->d.st));
    r.x = tw_read(t, a.x, n * 4);
    if (with_y)
        r.y = tw_read_act(t, a.y, n, act);
    tw_free(t);
    return r;
}

static void
check_norm(const struct fdk_rmsnorm_args *a, enum fdk_dtype act, int with_add, int with_y)
{
    size_t n = (size_t)a->T * (size_t)a->C;
    float *in = malloc(2 * n * 4);

    tw_normal(in, 2 * n);
    tw_as_act(in + n, n, act);
    struct norm_out want = run_norm(&tw.cpu, *a, a->T - PAD, in, FDK_F32, with_add, with_y);
    struct norm_out got = run_norm(&tw.gpu, *a, a->T - PAD, in, act, with_add, with_y);
    tw_near(got.x, want.x, n, 3e-6, 4e-6, "residual"); /* terms of up to 16 */
    if (with_y)
        tw_near_act(got.y, want.y, n, act, 3e-6, 4e-6, "norm");
    free(want.x);
    free(want.y);
    free(got.x);
    free(got.y);
    free(in);
}

static void
norms(void **state)
{
    static const int widths[] = { 17, 256, 4096, 5120 };

    (void)state;
    for (size_t i = 0; i < 32 * sizeof(widths) / sizeof(widths[0]); i++) {
        struct fdk_rmsnorm_args a = { .T = 5 + PAD, .C = widths[i / 32], .eps = 1e-5f };
        int post = i & 1, with_y = !post || (i & 2) != 0;

        a.norm = post ? FDK_NORM_POST : FDK_NORM_PRE;
        a.offset = i & 4 ? 1 : 0;
        a.add_scale = i & 8 ? 0.4f : 0;
        check_norm(&a, i & 16 ? FDK_BF16 : FDK_F32, 1, with_y);
        check_norm(&a, i & 16 ? FDK_BF16 : FDK_F32, 0, with_y);
    }
}

static float *
run_gelu(struct two_dev *t, int T, int F, const float *in, enum fdk_dtype act)
{
    size_t n = (size_t)(T + PAD) * (size_t)F;
    const int32_t live = T;
    struct fdk_silu_mul_args a = { .y = tw_new_act(t, NULL, n, act),
        .gu = tw_new_act(t, in, 2 * n, act),
        .n = tw_new(t, &live, 4),
        .T = T + PAD,
        .F = F,
        .gate = FDK_GATE_GELU_TANH,
        .act = act };

    OK(t->d.ops->silu_mul(&a, t->d.st));
    float *y = tw_read_act(t, a.y, n, act);
    tw_free(t);
    return y;
}

static void
gelu(void **state)
{
    static const int shape[][2] = { { 1, 1 }, { 5, 17 }, { 40, 1000 }, { 3, 12288 } };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(shape) / sizeof(shape[0]); i++) {
        enum fdk_dtype act = i % 2 ? FDK_BF16 : FDK_F32;
        int T = shape[i / 2][0], F = shape[i / 2][1];
        size_t n = (size_t)(T + PAD) * (size_t)F;
        float *in = malloc(2 * n * 4);

        tw_normal(in, 2 * n);
        for (size_t k = 0; k < 2 * n; k += 7)
            in[k] *= 20;
        tw_as_act(in, 2 * n, act);
        float *want = run_gelu(&tw.cpu, T, F, in, FDK_F32);
        float *got = run_gelu(&tw.gpu, T, F, in, act);
        for (size_t k = 0; k < n; k++) { /* 1 + tanh has a resolution of 2^-23 */
            const float *g = in + k / (size_t)F * 2 * (size_t)F + k % (size_t)F;

            tw_near_act(&got[k], &want[k], 1, act, 2e-6,
                2e-6 + 6e-7 * fabs((double)g[0] * g[F]), "gelu");
        }
        free(want);
        free(got);
        free(in);
    }
}

static float *
run_softcap(struct two_dev *t, struct fdk_softcap_args a, const float *in)
{
    size_t n = (size_t)a.T * (size_t)a.N;
    const int32_t live = a.first + a.T - PAD;

    a.y = tw_new(t, in, n * 4);
    a.n = tw_new(t, &live, 4);
    OK(t->d.ops->softcap(&a, t->d.st));
    float *y = tw_read(t, a.y, n * 4);
    tw_free(t);
    return y;
}

static void
softcaps(void **state)
{
    static const int widths[] = { 1, 33, 5000, 262144 };
    static const float value[][2] = { { 1, 30 }, { 0.4f, 0 }, { 0.5f, 5 } };

    (void)state;
    for (size_t i = 0; i < 3 * sizeof(widths) / sizeof(widths[0]); i++) {
        struct fdk_softcap_args a = { .first = i % 2 ? 8 : 0,
            .T = 4 + PAD,
            .N = widths[i / 3],
            .scale = value[i % 3][0],
            .cap = value[i % 3][1] };
        size_t n = (size_t)a.T * (size_t)a.N;
        float *in = malloc(n * 4);

        tw_normal(in, n);
        for (size_t k = 0; k < n; k++)
            in[k] *= 20;
        float *want = run_softcap(&tw.cpu, a, in), *got = run_softcap(&tw.gpu, a, in);
        tw_near(got, want, n, 2e-6, 2e-6 + 6e-7 * (double)a.cap, "softcap");
        free(want);
        free(got);
        free(in);
    }
}

static float *
run_rope(struct two_dev *t, const struct k_step *s, enum fdk_rope_len len, const float *freq)
{
    enum { ROT = 64 };
    struct fdk_row state[K_MAX_ROW] = { 0 };
    char *d = NULL;
    struct fdk_batch b = tw_step(t, s, &d);

    for (int i = 0; i < K_MAX_ROW; i++)
        state[i].max_len = 100 + i % 3 * 100; /* 100, 200, 300 */
    struct fdk_rope_table_args a = { .cs = tw_new(t, NULL, (size_t)(s->n_tok * ROT) * 4),
        .inv_freq = tw_new(t, freq, ROT * 4),
        .b = &b,
        .state = tw_new(t, state, sizeof(state)),
        .T = s->n_tok,
        .rot = ROT,
        .scale = 1.25f,
        .len = len,
        .long_from = 100,
        .ntk_theta = 10000,
        .ntk_factor = 4 };
    OK(t->d.ops->rope_table(&a, t->d.st));
    float *cs = tw_read(t, a.cs, (size_t)(s->n_tok * ROT) * 4);
    tw_free(t);
    return cs;
}

static void
rope_by_length(void **state)
{
    static struct k_step s;
    float freq[64];

    (void)state;
    for (int i = 0; i < 64; i++)
        freq[i] = powf(10000, -2.0f * (float)(i % 32) / 64) / (i < 32 ? 1 : 8);
    k_step_init(&s);
    for (int r = 0; r < 6; r++)
        k_step_row(&s, 5, 15 * r, 16, 96, r);
    for (int k = 0; k < 2; k++) {
        enum fdk_rope_len len = k ? FDK_ROPE_NTK : FDK_ROPE_LONG;
        float *want = run_rope(&tw.cpu, &s, len, freq);
        float *got = run_rope(&tw.gpu, &s, len, freq);

        /* Rounding of powers, times positions below 100. */
        tw_near(got, want, (size_t)(s.n_tok * 64), 0, k ? 2e-5 : 3e-7, "rope");
        free(want);
        free(got);
    }
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(gelu),
        cmocka_unit_test(softcaps),
        cmocka_unit_test(rope_by_length),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    if (argc > 1)
        cmocka_set_skip_filter(argv[1]);
    rc = cmocka_run_group_tests_name("k_cuda_rows", tests, NULL, NULL);
    tw_close();
    return rc;
}
