/* The block pool: misuse and limits first, then random use against a model. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/kvcache.h"

static void
grows_to_the_last_block(void **state)
{
    struct kv *kv = kv_new(4, 16, 2, 64);

    (void)state;
    assert_int_equal(kv_blocks(kv, 0), 0);
    assert_int_equal(kv_blocks(kv, 16), 1);
    assert_int_equal(kv_blocks(kv, 17), 2);
    assert_int_equal(kv_grow(kv, 0, 48), 0);
    assert_int_equal(kv->n_free, 1);
    /* too much for what is left: nothing changes */
    assert_int_equal(kv_grow(kv, 1, 32), -ENOSPC);
    assert_int_equal(kv->n_held[1], 0);
    assert_int_equal(kv->n_free, 1);
    assert_int_equal(kv_grow(kv, 1, 1), 0);
    assert_int_equal(kv_grow(kv, 1, 16), 0);
    assert_int_equal(kv->n_free, 0);
    assert_int_equal(kv_grow(kv, 1, 17), -ENOSPC);
    kv_check(kv);
    kv_drop(kv, 0, 0);
    assert_int_equal(kv->n_free, 3);
    kv_drop(kv, 1, 0);
    kv_check(kv);
    assert_int_equal(kv->n_free, 4);
    kv_free(kv);
}

static void
dummy_block_is_never_handed_out(void **state)
{
    struct kv *kv = kv_new(3, 16, 1, 48);

    (void)state;
    assert_int_equal(kv_grow(kv, 0, 48), 0);
    for (int i = 0; i < 3; i++)
        assert_true(kv->table[i] > 0);
    assert_int_equal(kv_slot(kv, 0, 0), kv->table[0] * 16);
    assert_int_equal(kv_slot(kv, 0, 33), kv->table[2] * 16 + 1);
    assert_int_equal(kv_owner(33), 0);
    kv_drop(kv, 0, 0);
    kv_free(kv);
}

static void
blocks_wait_for_their_step(void **state)
{
    struct kv *kv = kv_new(4, 16, 2, 64);

    (void)state;
    assert_int_equal(kv_grow(kv, 0, 32), 0);
    assert_int_equal(kv_grow(kv, 1, 32), 0);
    kv_drop(kv, 0, 5);
    kv_drop(kv, 1, 6);
    kv_check(kv);
    assert_int_equal(kv->n_free, 0);
    assert_int_equal(kv->n_deferred, 4);
    kv_collect(kv, 4);
    assert_int_equal(kv->n_free, 0);
    kv_collect(kv, 5);
    kv_check(kv);
    assert_int_equal(kv->n_free, 2);
    assert_int_equal(kv_grow(kv, 0, 64), -ENOSPC);
    kv_collect(kv, 6);
    assert_int_equal(kv->n_free, 4);
    kv_check(kv);
    kv_free(kv);
}

static void
random_use(void **state)
{
    struct kv *kv = kv_new(50, 32, 8, 1000);
    int32_t len[8] = { 0 }, held = 0;
    uint64_t epoch = 0;
    unsigned seed = 3;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        int s = rand_r(&seed) % 8;

        epoch++;
        if (rand_r(&seed) % 6 == 0) {
            held -= kv->n_held[s];
            kv_drop(kv, s, epoch);
            len[s] = 0;
        } else {
            int32_t want = len[s] + rand_r(&seed) % 90, need;

            if (want > 1000)
                want = 1000;
            need = kv_blocks(kv, want) - kv->n_held[s];
            if (kv_grow(kv, s, want) == 0) {
                len[s] = want;
                held += need > 0 ? need : 0;
            } else {
                assert_true(need > kv->n_free);
            }
        }
        if (rand_r(&seed) % 3 == 0)
            kv_collect(kv, epoch);
        kv_check(kv);
        assert_int_equal(held + kv->n_free + kv->n_deferred, 50);
        assert_int_equal(kv->n_held[s], kv_blocks(kv, len[s]));
    }
    kv_free(kv);
}

static void
layout_of_an_8b_model(void **state)
{
    struct fdk_kv kv;

    (void)state;
    /* 32 layers, 8 heads of 128, bf16: 8 MiB a block of 64 tokens */
    assert_int_equal(kv_layout(32, 8, 128, 64, FDK_BF16, &kv), 0);
    assert_int_equal(kv.block_bytes, 8 << 20);
    assert_int_equal(kv.layer_bytes, 256 << 10);
    assert_int_equal(kv.v_bytes, 128 << 10);
    assert_int_equal(kv_layout(INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, FDK_F32, &kv),
        -EOVERFLOW);
}

static void
plans(void **state)
{
    struct kv_plan_args a = { .mem_free = 16ull << 30, .model_len = 8192,
        .max_num_seqs = 256 };
    int32_t n = 0, len = 0;
    char err[512];

    (void)state;
    assert_int_equal(kv_layout(32, 8, 128, 64, FDK_BF16, &a.kv), 0);
    /* a quarter of the free memory, the dummy taken off */
    assert_int_equal(kv_plan(&a, &n, &len, err, sizeof(err)), 0);
    assert_int_equal(n, 511);
    assert_int_equal(len, 8192);
    a.mem_free = 1ull << 40;
    assert_int_equal(kv_plan(&a, &n, &len, err, sizeof(err)), 0);
    assert_int_equal(n, 511);
    /* no more than the sequences can use */
    a.max_num_seqs = 2;
    assert_int_equal(kv_plan(&a, &n, &len, err, sizeof(err)), 0);
    assert_int_equal(n, 256);
    /* the model's length follows what fits */
    a.memory_bytes = 101 * a.kv.block_bytes;
    assert_int_equal(kv_plan(&a, &n, &len, err, sizeof(err)), 0);
    assert_int_equal(n, 100);
    assert_int_equal(len, 6400);
    /* but not when a length was asked for */
    a.want_len = 6401;
    assert_int_equal(kv_plan(&a, &n, &len, err, sizeof(err)), -ENOSPC);
    assert_non_null(strstr(err, "6400"));
    a.want_len = 9000;
    assert_int_equal(kv_plan(&a, &n, &len, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "8192"));
    a.want_len = 0;
    a.memory_bytes = 1;
    assert_int_equal(kv_plan(&a, &n, &len, err, sizeof(err)), -ENOSPC);
    a.num_blocks = 7;
    assert_int_equal(kv_plan(&a, &n, &len, err, sizeof(err)), 0);
    assert_int_equal(n, 7);
    assert_int_equal(len, 448);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_to_the_last_block),
        cmocka_unit_test(dummy_block_is_never_handed_out),
        cmocka_unit_test(blocks_wait_for_their_step),
        cmocka_unit_test(random_use),
        cmocka_unit_test(layout_of_an_8b_model),
        cmocka_unit_test(plans),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
