/* Opening backends, placing buffers by liveness, refusing what is not there. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/engine.h"
#include "daemon/worker/runner.h"

static void
unknown_and_missing_backends(void **state)
{
    struct run_open_args a = { .backend = "tpu", .n_thread = 1, .max_token = 8 };
    struct runner *run = NULL;
    char err[512] = "", why[128];

    (void)state;
    assert_int_equal(run_new(&a, &run, err, sizeof(err)), -ENOTSUP);
    assert_non_null(strstr(err, "tpu"));
    assert_null(run);
    if (fdk_ops_cuda.available(why, sizeof(why)) <= 0) {
        a.backend = "cuda";
        assert_int_equal(run_new(&a, &run, err, sizeof(err)), -ENODEV);
        assert_non_null(strstr(err, "device.backend"));
    }
    assert_null(run_free(NULL));
}

/* Random programs: no two buffers alive at one time share a byte, and the
 * arena is no larger than all of them together. */
static void
placement(void **state)
{
    struct bat_dims d = { .T = 3, .S = 2, .O = 2, .stride = 1, .block_size = 16 };
    unsigned seed = 9;
    size_t saved = 0;

    (void)state;
    for (int round = 0; round < 300; round++) {
        struct mdl_buf buf[20] = { 0 };
        struct mdl_program p = { .buf = buf, .n_buf = 20 };
        size_t off[20], bytes = 0, sum = 0;

        for (int i = 0; i < 20; i++) {
            buf[i].rows = rand_r(&seed) % 2 ? MDL_PER_TOKEN : MDL_PER_OUT;
            buf[i].width = 1 + rand_r(&seed) % 500;
            buf[i].first = rand_r(&seed) % 30;
            buf[i].last = buf[i].first + rand_r(&seed) % 8;
            sum += run_buf_bytes(&p, &d, 1, i);
        }
        assert_int_equal(run_place(&p, &d, 1, off, &bytes), 0);
        assert_true(bytes <= sum);
        saved += sum - bytes;
        for (int i = 0; i < 20; i++) {
            assert_true(off[i] % 256 == 0 && off[i] + run_buf_bytes(&p, &d, 1, i) <= bytes);
            for (int j = 0; j < i; j++) {
                int alive = buf[i].first <= buf[j].last && buf[j].first <= buf[i].last;
                int apart = off[i] + run_buf_bytes(&p, &d, 1, i) <= off[j] ||
                    off[j] + run_buf_bytes(&p, &d, 1, j) <= off[i];

                assert_true(!alive || apart);
            }
        }
    }
    assert_true(saved > 0);
}

static void
null_program_runs(void **state)
{
    struct run_open_args a = { .backend = "null", .n_thread = 1, .max_token = 64 };
    struct eng_cfg ec = { .max_reqs = 4, .max_seqs = 4, .max_tokens = 64, .max_len = 128,
        .block_size = 16 };
    struct mdl_program *p = run_null_program();
    struct runner *run = NULL;
    struct bat_dims d;
    struct fdk_kv kv;
    char err[512] = "";
    struct bat_rec *rec;
    int32_t *counts;
    uint64_t ns = 0;

    (void)state;
    eng_dims(&ec, &d);
    assert_int_equal(d.O, 4 + ENG_MAX_SCORES);
    assert_int_equal(run_new(&a, &run, err, sizeof(err)), 0);
    assert_int_equal(run_load(run, p, NULL, NULL, err, sizeof(err)), 0);
    assert_int_equal(kv_layout(1, 1, 1, 16, FDK_F32, &kv), 0);
    assert_int_equal(run_setup(run, &d, &kv, 9, 2, 1, err, sizeof(err)), 0);
    assert_int_equal(run->n_rec, 2);
    assert_int_equal(run->pad[run->n_pad - 1].T, 64);
    assert_int_equal(run->pad[0].O, 1);
    assert_int_equal(run_warm(run, 16), 0);
    /* an empty step is launched and comes back */
    rec = &run->rec[1];
    rec->T_pad = 8;
    counts = (int32_t *)(rec->plan + run->layout.counts);
    counts[0] = counts[1] = counts[2] = counts[3] = 0;
    assert_int_equal(run_launch(run, rec), 0);
    assert_int_equal(run_collect(run, rec, &ns), 0);
    run_free(run);
    mdl_free(p);
}

static void
depth_is_refused(void **state)
{
    struct eng_cfg ec = { .depth = 1 };
    struct engine *e = NULL;
    char err[256] = "";

    (void)state;
    assert_int_equal(eng_new(&ec, NULL, &e, err, sizeof(err)), -ENOTSUP);
    assert_non_null(strstr(err, "not available in this build"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_and_missing_backends),
        cmocka_unit_test(placement),
        cmocka_unit_test(null_program_runs),
        cmocka_unit_test(depth_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
