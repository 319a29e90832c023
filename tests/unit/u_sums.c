/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives before a group is ready: wrong results on one rank and at one size, the
 * choice of the all-reduce method, and the file that keeps it.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/worker/worker.h"
#include "kernels/cpu/cpu.h"
#include "tests/sim/sim.h"

enum { RANKS = 3 };

static void
model(int32_t n_kv_head, char dir[64])
{
    char path[96];
    FILE *out;

    (void)snprintf(dir, 64, "/tmp/fdd-sums-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/config.json", dir);
    out = fopen(path, "w");
    assert_non_null(out);
    (void)fprintf(out,
        "{\"model_type\":\"llama\",\"hidden_size\":96,\"intermediate_size\":384,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":%d,"
        "\"num_key_value_heads\":%d,\"head_dim\":32,\"vocab_size\":259,"
        "\"max_position_embeddings\":512,\"torch_dtype\":\"bfloat16\"}",
        2 * n_kv_head, n_kv_head);
    (void)fclose(out);
}

static struct sim *
group_of(int32_t n_rank, int32_t halves, char dir[64])
{
    struct sim_cfg c = { .max_reqs = 4,
        .max_seqs = 4,
        .max_tokens = 256,
        .max_len = 192,
        .n_block = 40,
        .block_size = 16,
        .chunked = 1,
        .threads = 1,
        .exec = FDK_EXEC_THREAD,
        .n_rank = n_rank,
        .halves = halves };

    model(n_rank, dir);
    c.model_dir = dir;
    return sim_new(&c);
}

static struct sim *
group(char dir[64])
{
    return group_of(RANKS, 0, dir);
}

static void
end(struct sim *s, const char *dir)
{
    s->run->k = &fdk_ops_cpu;
    sim_free(s);
    sim_model_rm(dir);
}

/* ---- results that are wrong ------------------------------------------------------------ */

static struct fdk_ops wrong;
static fdk_stream_t wrong_on;                        /* stream of the rank with wrong
                                                      * results */
static int32_t wrong_sum, wrong_gather, wrong_ahead; /* wrong from this number of elements
                                                      * on */

static int
spoil(int rc, fdk_stream_t st, void *y, int32_t n, int32_t from)
{
    return rc != 0 || st != wrong_on || from == 0 || n < from
        ? rc
        : fdk_ops_cpu.fill(st, (float *)y + n - 1, 0, sizeof(float));
}

static int
spoiled_sum(const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    return spoil(fdk_ops_cpu.all_reduce(a, st), st, a->y, a->C, wrong_sum);
}

static int
spoiled_gather(const struct fdk_all_gather_args *a, fdk_stream_t st)
{
    return spoil(fdk_ops_cpu.all_gather(a, st), st, a->y, a->ldy, wrong_gather);
}

static void
check(struct sim *s, int rc, const char *what)
{
    char err[512] = "";

    s->run->k = &wrong;
    assert_int_equal(run_sums_check(s->run, err, sizeof(err)), rc);
    if (strstr(err, what) == NULL)
        fail_msg("%s, not %s", err, what);
    s->run->k = &fdk_ops_cpu;
}

static void
wrong_results(void **state)
{
    char dir[64];
    struct sim *s = group(dir);

    (void)state;
    wrong = fdk_ops_cpu;
    wrong.all_reduce = spoiled_sum;
    wrong.all_gather = spoiled_gather;
    for (int32_t q = 0; q < RANKS; q++) {
        char what[128];

        wrong_on = s->run->dev[q].stream;
        wrong_sum = wrong_gather = 0;
        check(s, 0, "");
        wrong_sum = 100;
        (void)snprintf(what, sizeof(what),
            "collectives: a sum of 1024 bytes of each of 3 ranks is wrong on rank %d "
            "(cpu-%d): element 255 is 0, not",
            q, q);
        check(s, -EIO, what);
        wrong_sum = 0;
        wrong_gather = 10000;
        (void)snprintf(what, sizeof(what),
            "gathering 21844 bytes of each of 3 ranks is wrong on rank %d", q);
        check(s, -EIO, what);
    }
    end(s, dir);
}

static int
spoiled_take(const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    return spoil(fdk_ops_cpu.reduce_take(a, st), st, a->y, a->C, wrong_ahead);
}

/* Sums with operands sent ahead, up to the size for which there is room. */
static void
wrong_ahead_of_sum(void **state)
{
    char dir[64];
    struct sim *s = group_of(2, 2, dir);

    (void)state;
    assert_int_equal(s->run->halves_least, 2);
    wrong = fdk_ops_cpu;
    wrong.reduce_take = spoiled_take;
    wrong_on = s->run->dev[1].stream;
    wrong_ahead = 0;
    check(s, 0, "");
    wrong_ahead = 100;
    check(s, -EIO,
        "collectives: a sum, sent ahead, of 1024 bytes of each of 2 ranks is wrong on rank 1 "
        "(cpu-1): element 255 is 0, not");
    check(s, -EIO, "; parallel.overlap_min_tokens = -1 does without sums of this kind");
    end(s, dir);
}

/* A device that fails the check is named, with the size. */
static void
failing_device(void **state)
{
    char dir[64], err[512] = "";
    struct sim *s = group(dir);

    (void)state;
    fdk_cpu_fail_after(s->run->ctx, 1, 3);
    assert_int_equal(run_sums_check(s->run, err, sizeof(err)), -EIO);
    assert_non_null(strstr(err,
        "a sum of 16 bytes of each of 3 ranks: rank 1 (cpu-1): failure "
        "injected by a test"));
    (void)pip_free(s->pip);
    s->pip = NULL;
    s->run = run_free(s->run);
    sim_drop(s);
    sim_model_rm(dir);
}

/* ---- ways --------------------------------------------------------------------------------- */

static struct fdk_ops timed;
static struct fdk_group_ways now_ways;
static int32_t whole_until; /* up to this size in bytes sending whole
                             * operands is faster */

static void
see_ways(struct fdk_group *g, const struct fdk_group_ways *set, struct fdk_group_ways *was)
{
    if (set != NULL)
        now_ways = *set;
    fdk_ops_cpu.group_ways(g, set, was);
}

/* Fake times of rank 0: a sum takes 1 ms, and 5 ms with the slower method. */
static const struct run_dev *root;
static uint64_t root_ns, recorded_ns[2];
static int n_normed; /* of these, sums with a residual and a norm */

static int
timed_sum(const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    int whole = now_ways.one_shot_bytes > 1;

    if (st == root->stream) {
        root_ns += whole == (4 * a->T * a->C <= whole_until) ? CLK_MS : 5 * CLK_MS;
        n_normed += a->residual != NULL;
    }
    return fdk_ops_cpu.all_reduce(a, st);
}

static int
timed_record(fdk_event_t ev, fdk_stream_t st)
{
    for (int i = 0; i < 2; i++)
        if (ev == root->ev_copy[i])
            recorded_ns[i] = root_ns;
    return fdk_ops_cpu.event_record(ev, st);
}

static uint64_t
timed_ns(fdk_event_t ev)
{
    return ev == root->ev_copy[0] ? recorded_ns[0] : recorded_ns[1];
}

static void
ways_by_time(void **state)
{
    static const struct {
        int32_t until;
        uint64_t bytes;
    } cases[] = { { 0, 1 }, { 16 << 10, 32 << 10 }, { 64 << 10, 128 << 10 },
        { 1 << 30, UINT64_MAX } };
    struct fdk_group_ways ways, was;
    char dir[64];
    struct sim *s = group(dir);

    (void)state;
    timed = fdk_ops_cpu;
    timed.group_ways = see_ways;
    timed.all_reduce = timed_sum;
    timed.event_record = timed_record;
    timed.event_ns = timed_ns;
    root = &s->run->dev[0];
    s->run->k = &timed;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        whole_until = cases[i].until;
        assert_int_equal(run_sums_choose(s->run, 60 * CLK_S, &ways), 0);
        if (ways.one_shot_bytes != cases[i].bytes)
            fail_msg("whole until %d: %llu bytes", (int)cases[i].until,
                (unsigned long long)ways.one_shot_bytes);
        assert_int_equal(ways.packet_bytes, 0);
        assert_true(n_normed > 0); /* timed as a step has them */
        fdk_ops_cpu.group_ways(s->run->group[0], NULL, &was);
        assert_true(was.one_shot_bytes == ways.one_shot_bytes);
    }
    /* no time left: nothing changes */
    was.one_shot_bytes = 12345;
    fdk_ops_cpu.group_ways(s->run->group[0], &was, NULL);
    assert_int_equal(run_sums_choose(s->run, 0, &ways), 1);
    assert_true(ways.one_shot_bytes == 12345);
    fdk_ops_cpu.group_ways(s->run->group[0], NULL, &was);
    assert_true(was.one_shot_bytes == 12345);
    end(s, dir);
}

/* ---- the file ------------------------------------------------------------------------------ */

static void
put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

static void
kept_ways(void **state)
{
    static const char *const bad[] = { "", "fdd sums 2\nwhole 5\npackets 0\n",
        "fdd sums 1\nwhole x\npackets 0\n", "fdd sums 1\nwhole 0\npackets 0\n",
        "fdd sums 1\nwhole 5\npackets 0\nmore\n", "fdd sums 1\nwhole 5\n" };
    struct fdk_group_ways ways = { UINT64_MAX, 65536, 0 }, got;
    char dir[64] = "/tmp/fdd-sums-XXXXXX", path[96];

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/sums", dir);
    assert_int_equal(wrk_sums_read(path, &got), -ENOENT);
    assert_int_equal(wrk_sums_write(path, &ways), 0);
    assert_int_equal(wrk_sums_read(path, &got), 0);
    assert_true(got.one_shot_bytes == UINT64_MAX && got.packet_bytes == 65536);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put(path, bad[i]);
        assert_int_equal(wrk_sums_read(path, &got), -EINVAL);
    }
    (void)unlink(path);
    (void)rmdir(dir);
}

/* Each kind of group has its own file. */
static void
file_of_a_group(void **state)
{
    static struct worker w;
    char dir[64], a[640], b[640];
    struct sim *s = group(dir);

    (void)state;
    w.run = s->run;
    (void)snprintf(w.par.daemon_cache_dir, sizeof(w.par.daemon_cache_dir), "/nowhere");
    assert_int_equal(wrk_sums_path(&w, a, sizeof(a)), 0);
    assert_true(strncmp(a, "/nowhere/sums-", 14) == 0);
    s->run->n_rank = 2;
    assert_int_equal(wrk_sums_path(&w, b, sizeof(b)), 0);
    assert_string_not_equal(a, b);
    s->run->n_rank = RANKS;
    s->run->n_copy = RANKS; /* the same devices, and sums over fewer of them */
    assert_int_equal(wrk_sums_path(&w, b, sizeof(b)), 0);
    assert_string_not_equal(a, b);
    s->run->n_copy = 1;
    s->run->dev[1].name[0] = 'x';
    assert_int_equal(wrk_sums_path(&w, b, sizeof(b)), 0);
    assert_string_not_equal(a, b);
    end(s, dir);
}

static void
shown(void **state)
{
    static const struct {
        struct fdk_group_ways ways;
        const char *text;
    } cases[] = {
        { { 65536, 0, 0 }, "process, whole up to 64.0 KiB, limit 700 ms" },
        { { UINT64_MAX, 0, 0 }, "process, whole, limit 700 ms" },
        { { 1, 1, 0 }, "process, in shares, limit 700 ms" },
        { { UINT64_MAX, 524288, 0 },
            "process, in packets up to 512.0 KiB, whole, limit 700 ms" },
    };
    struct runner run = { .k = &fdk_ops_cpu };
    static struct worker w;
    char text[160];

    (void)state;
    w.run = &run;
    w.par.parallel_spin_limit_ms = 700;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        w.ways = cases[i].ways;
        wrk_sums_text(&w, text, sizeof(text));
        if (strstr(text, cases[i].text) == NULL)
            fail_msg("%s, not %s", text, cases[i].text);
    }
}

/* ---- GEMMs --------------------------------------------------------------------------------- */

static struct {
    int32_t N, K;
} seen[64];
static int n_seen;

static int
see_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    if (st == root->stream && n_seen < 64) {
        seen[n_seen].N = a->N;
        seen[n_seen++].K = a->K;
    }
    return 0;
}

static int
was_seen(int32_t N, int32_t K)
{
    for (int i = 0; i < n_seen; i++)
        if (seen[i].N == N && seen[i].K == K)
            return 1;
    return 0;
}

/* No algorithm may be launched for the first time in a step of several ranks: the library may
 * then wait for the device, which may wait for another rank. */
static void
gemms_chosen(void **state)
{
    char dir[64];
    struct sim *s = group(dir);
    const struct mdl_program *p = s->run->prog;

    (void)state;
    timed = fdk_ops_cpu;
    timed.gemm_choose = see_gemm;
    root = &s->run->dev[0];
    s->run->k = &timed;
    n_seen = 0;
    assert_int_equal(run_on_all(s->run, run_warm_choose, 0), 0);
    assert_in_range(n_seen, 1, 63);
    for (int32_t i = 0; i < p->n_op; i++)
        if (p->op[i].kind == MDL_OP_GEMM && !was_seen(p->op[i].N, p->op[i].K))
            fail_msg("%d x %d was not chosen", (int)p->op[i].N, (int)p->op[i].K);
    end(s, dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_results),
        cmocka_unit_test(wrong_ahead_of_sum),
        cmocka_unit_test(failing_device),
        cmocka_unit_test(ways_by_time),
        cmocka_unit_test(kept_ways),
        cmocka_unit_test(file_of_a_group),
        cmocka_unit_test(shown),
        cmocka_unit_test(gemms_chosen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
