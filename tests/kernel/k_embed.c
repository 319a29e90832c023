/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_util.h"

/* embed, gather, row_update: the operations that only move data. */

enum { V = 50, C = 37, T = 9 };

static void
test_embed(void **state)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_F16, FDK_BF16 };
    static struct k_step s;
    static struct fdk_row rows[8];
    (void)state;
    for (int isa = 0; isa < 3; isa++)
        for (int i = 0; i < 3; i++) {
            if (!k_has_isa(k_isas[isa]))
                continue;
            struct k_dev d;
            k_open(&d, 2, k_isas[isa]);
            float *exact = malloc(V * C * 4), *y = k_new((T + 2) * C);
            void *w = k_weights(V * C, types[i], 4, exact);
            k_step_init(&s);
            k_step_row(&s, T, 0, 16, 8, 0);
            for (int t = 0; t < T; t++)
                s.ids[t] = t * 5 % V;
            s.ids[3] = -1;
            s.state[0] = 6;
            rows[6].last_token = V - 1;
            const struct fdk_embed_args a = {
                .y = y,
                .w = w,
                .state = rows,
                .b = &s.b,
                .T = T + 2,
                .C = C,
                .V = V,
                .w_dtype = types[i],
                .scale = 2,
            };
            assert_int_equal(d.ops->embed(&a, d.st), 0);
            k_sync(&d);
            k_check(y, (T + 2) * C);
            assert_true(k_untouched(y + T * C, 2 * C));
            for (int t = 0; t < T; t++)
                for (int c = 0; c < C; c++)
                    assert_true(
                        y[t * C + c] == 2 * exact[(t == 3 ? V - 1 : t * 5 % V) * C + c]);
            free(exact);
            free(w);
            k_free(y);
            k_close(&d);
        }
}

/* An embedding table in n shards, the last with fewer rows than it has room for. */
static void
test_embed_shards(void **state)
{
    static struct k_step s;
    static float w[V * C], y[T * C], want[T * C];
    struct k_dev d;
    (void)state;
    k_open(&d, 2, NULL);
    k_fill(w, V * C, 9);
    k_step_init(&s);
    k_step_row(&s, T, 0, 16, 8, 0);
    for (int t = 0; t < T; t++)
        s.ids[t] = (t * 17 + 16) % V;
    struct fdk_embed_args a = {
        .y = want,
        .w = w,
        .b = &s.b,
        .T = T,
        .C = C,
        .V = V,
        .w_dtype = FDK_F32,
        .scale = 3,
    };
    assert_int_equal(d.ops->embed(&a, d.st), 0);
    k_sync(&d);
    for (int n = 1; n <= FDK_MAX_RANKS; n++) {
        float *shard[FDK_MAX_RANKS];
        a.w = NULL;
        a.y = y;
        a.shard_rows = (V + n - 1) / n;
        for (int i = 0; i < n; i++) {
            int first = i * a.shard_rows;
            int rows = V - first < a.shard_rows ? V - first : a.shard_rows;
            shard[i] = malloc((size_t)(rows * C) * sizeof(float) + 1);
            assert_non_null(shard[i]);
            memcpy(shard[i], w + first * C, (size_t)(rows * C) * sizeof(float));
            a.shard[i] = shard[i];
        }
        memset(y, 0, sizeof(y));
        assert_int_equal(d.ops->embed(&a, d.st), 0);
        k_sync(&d);
        assert_memory_equal(y, want, sizeof(y));
        a.shard[n - 1] = NULL;
        assert_int_equal(d.ops->embed(&a, d.st), -EINVAL);
        for (int i = 0; i < n; i++)
            free(shard[i]);
    }
    a.shard_rows = V / FDK_MAX_RANKS;
    assert_int_equal(d.ops->embed(&a, d.st), -EINVAL);
    k_close(&d);
}

/* An id outside the vocabulary stops the device and is named. */
static void
test_embed_bad_id(void **state)
{
    static struct k_step s;
    static float w[V * C], y[T * C];
    struct k_dev d;
    (void)state;
    k_open(&d, 1, NULL);
    k_step_init(&s);
    k_step_row(&s, T, 0, 16, 8, 0);
    s.ids[2] = V;
    const struct fdk_embed_args a = {
        .y = y,
        .w = w,
        .b = &s.b,
        .T = T,
        .C = C,
        .V = V,
        .w_dtype = FDK_F32,
        .scale = 1,
    };
    assert_int_equal(d.ops->embed(&a, d.st), 0);
    assert_int_equal(d.ops->stream_sync(d.st), -EIO);
    assert_non_null(strstr(d.ops->error_text(d.ctx, 0), "token id 50 at index 2"));
    k_close(&d);
}

static void
test_gather(void **state)
{
    static struct k_step s;
    struct k_dev d;
    float *x = malloc(T * C * 4), *y = k_new(5 * C);
    (void)state;
    k_open(&d, 2, NULL);
    k_fill(x, T * C, 1);
    k_step_init(&s);
    k_step_row(&s, T, 0, 16, 8, 0);
    s.n_out = 3;
    s.out[0].tok = 8;
    s.out[1].tok = 0;
    s.out[2].tok = 8;
    const struct fdk_gather_args a = { .y = y, .x = x, .b = &s.b, .O = 5, .C = C };
    assert_int_equal(d.ops->gather(&a, d.st), 0);
    k_sync(&d);
    k_check(y, 5 * C);
    assert_memory_equal(y, x + 8 * C, C * 4);
    assert_memory_equal(y + C, x, C * 4);
    assert_memory_equal(y + 2 * C, x + 8 * C, C * 4);
    assert_true(k_untouched(y + 3 * C, 2 * C));
    free(x);
    k_free(y);
    k_close(&d);
}

static void
test_row_update(void **state)
{
    static struct fdk_row rows[6], new_rows[4];
    static const int32_t idx[4] = { 5, 0, 3, 1 };
    struct k_dev d;
    int32_t n = 3;
    (void)state;
    k_open(&d, 1, NULL);
    for (int i = 0; i < 6; i++)
        rows[i].len = -1;
    for (int i = 0; i < 4; i++)
        new_rows[i].len = 10 + i;
    const struct fdk_row_update_args a = {
        .state = rows,
        .rows = new_rows,
        .idx = idx,
        .n = &n,
        .n_max = 4,
    };
    assert_int_equal(d.ops->row_update(&a, d.st), 0);
    k_sync(&d);
    assert_int_equal(rows[5].len, 10);
    assert_int_equal(rows[0].len, 11);
    assert_int_equal(rows[3].len, 12);
    assert_int_equal(rows[1].len, -1);
    k_close(&d);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed_bad_id),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_embed_shards),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_row_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
