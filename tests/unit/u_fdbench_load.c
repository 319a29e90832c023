/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdbench's load: runs with a scripted gate. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/fdbench_fixture.h"
#include "tests/unit/mock_gate.h"

static struct mock mock;
static struct fct fct;

static int
setup(void **state)
{
    (void)state;
    mock_init(&mock);
    mock_start(&mock);
    memset(&fct, 0, sizeof(fct));
    fct.timeout_ms = 20000;
    snprintf(fct.socket, sizeof(fct.socket), "%s", mock.path);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    mock_stop(&mock);
    return 0;
}

static void
load_of(struct fdb_load *l, const struct fdb_cfg *c)
{
    memset(l, 0, sizeof(*l));
    l->f = &fct;
    l->cfg = *c;
    l->quiet = 1;
    l->info.max_inflight = mock.max_inflight < 64 ? mock.max_inflight : 64;
    l->model = model;
    assert_int_equal(fct_open(&fct, 65536, &l->session), 0);
}

/* Checks that hold for every log. */
static void
check_log(const struct fdb_log *log, const struct fdb_run *run, uint32_t n_warm)
{
    size_t i, n_chunk = 0;
    uint32_t k, n, seen = 0;

    for (i = 0; i < log->n_rec; i++) {
        const struct fdb_rec *r = &log->rec[i];
        const struct fdb_chunk *c = log->chunk + r->chunk;

        assert_int_equal(r->chunk, n_chunk);
        n_chunk += r->n_chunk;
        assert_int_equal(r->warm, r->index < n_warm);
        assert_true(r->t_due <= r->t_send && r->t_send <= r->t_end);
        seen += r->index;
        for (n = 0, k = 0; k < r->n_chunk; k++) {
            n += c[k].n_tok;
            assert_true(c[k].t_ns >= (k > 0 ? c[k - 1].t_ns : r->t_send));
            assert_true(c[k].t_ns <= r->t_end);
        }
        assert_int_equal(n, r->n_out);
        assert_true(r->t_first == (r->n_chunk > 0 ? c[0].t_ns : 0));
        if (!r->warm)
            assert_true(r->t_send >= run->t_begin && r->t_end <= run->t_end);
        if (r->code == FDC_OK)
            assert_true(r->n_out == r->max_new && r->finish == FDC_FIN_LENGTH);
    }
    assert_int_equal(n_chunk, log->n_chunk);
    /* Every index once. */
    assert_int_equal(seen, log->n_rec * (log->n_rec - 1) / 2);
}

static void
test_closed_loop(void **state)
{
    struct fdb_log log = { .n_rec = 0 };
    struct fdb_run run;
    struct fdb_cfg c;
    struct fdb_load l;
    json_t *s;

    (void)state;
    cfg_of(&c, FDB_CLOSED, 0, 50);
    c.n_warm = 3;
    c.n_turn = 3;
    load_of(&l, &c);
    assert_int_equal(fdb_load_run(&l, 0, &log, &run), 0);
    assert_int_equal(log.n_rec, 53);
    check_log(&log, &run, 3);
    assert_in_range(run.max_concurrent_requests, 1, 4);
    s = fdb_summarize(&log, 0, &run, &c.slo);
    assert_true(N(s, "requests_ok") == 50);
    assert_true(fdb_figure(s, "ttft_ms", "n", NULL) == 50);
    assert_true(fdb_figure(s, "output_len", "n", NULL) == 50);
    assert_true(fabs(fdb_figure(s, "output_len", "mean", NULL) * 50 -
                    N(s, "output_tokens")) < 1e-6);
    json_decref(s);
    fdb_log_fini(&log);
    /* Repeats after the first have no warm-up. */
    assert_int_equal(fdb_load_run(&l, 1, &log, &run), 0);
    assert_int_equal(log.n_rec, 50);
    check_log(&log, &run, 0);
    fdb_log_fini(&log);
    fdc_close(l.session);
}

static void
test_open_loop(void **state)
{
    struct fdb_log log = { .n_rec = 0 };
    struct fdb_run run;
    struct fdb_cfg c;
    struct fdb_load l;
    uint64_t due[20] = { 0 };
    size_t i;

    (void)state;
    cfg_of(&c, FDB_CONSTANT, 500, 20);
    load_of(&l, &c);
    assert_int_equal(fdb_load_run(&l, 0, &log, &run), 0);
    assert_int_equal(log.n_rec, 20);
    check_log(&log, &run, 0);
    for (i = 0; i < 20; i++)
        due[log.rec[i].index] = log.rec[i].t_due;
    for (i = 1; i < 20; i++)
        assert_true(due[i] - due[0] == 2000000u * i);
    for (i = 0; i < 20; i++)
        assert_true((double)(log.rec[i].t_send - log.rec[i].t_due) / 1e6 <= run.late_ms);
    fdb_log_fini(&log);
    fdc_close(l.session);
}

/* Runs prompts cut from word. Returns how many begin with it, by chance. */
static uint32_t
text_run(struct fdb_cfg *c, const char *word, uint32_t n)
{
    struct fct_buf p = { .n = 0 };
    struct fdb_work *w;
    struct fdb_ask a;
    uint32_t n_begin = 0;

    cfg_of(c, FDB_CLOSED, 0, n);
    c->text = 1;
    c->dataset = c->words = word;
    c->n_words = strlen(word);
    c->token_bytes = 3;
    assert_int_equal(fdb_work_new(c, &model, fdb_mix(c->seed, 0), &w), 0);
    while (fdb_work_next(w, &a)) {
        assert_int_equal(fdb_work_prompt(w, &a, &p), 0);
        n_begin += memcmp(p.p, word, strlen(word)) == 0;
    }
    free(p.p);
    free(w);
    return n_begin;
}

static void
test_refusals(void **state)
{
    struct fdb_log log = { .n_rec = 0 };
    struct fdb_run run;
    struct fdb_cfg c;
    struct fdb_load l;
    json_t *s;
    uint32_t n_bad = text_run(&c, "err", 40);

    (void)state;
    assert_in_range(n_bad, 1, 39);
    load_of(&l, &c);
    listen_begin();
    assert_int_equal(fdb_load_run(&l, 0, &log, &run), 0);
    /* The error is reported once, with the parameter; nothing is sent again. */
    assert_non_null(strstr(listen_end(), "E_BAD_PARAM"));
    assert_non_null(strstr(said, "top_p"));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    assert_int_equal(log.n_rec, 40);
    assert_int_equal(__atomic_load_n(&mock.n_submit, __ATOMIC_ACQUIRE), 40);
    s = fdb_summarize(&log, 0, &run, &c.slo);
    assert_true(N(s, "requests_failed") == n_bad && N(s, "requests_ok") == 40 - n_bad);
    assert_true(fdb_figure(s, "errors", "E_BAD_PARAM", NULL) == n_bad);
    assert_int_equal(json_object_size(json_object_get(s, "errors")), 1);
    assert_int_equal(fdb_commonest(s), FDC_E_BAD_PARAM);
    json_decref(s);
    check_log(&log, &run, 0);
    fdb_log_fini(&log);
    fdc_close(l.session);
}

/* Conversations whose later turns are larger than the session accepts: those fail when
 * they are sent, and no other ready turn is lost. */
static void
test_turns_fail_at_once(void **state)
{
    struct fdb_log log = { .n_rec = 0 };
    struct fdb_run run;
    struct fdb_cfg c;
    struct fdb_load l;
    uint32_t n_large = 0;

    (void)state;
    cfg_of(&c, FDB_CLOSED, 0, 60);
    c.n_turn = 3;
    c.in = (struct fdb_len){ 2000, 16000 };
    load_of(&l, &c);
    listen_begin();
    assert_int_equal(fdb_load_run(&l, 0, &log, &run), 0);
    assert_non_null(strstr(listen_end(), "E_ARENA"));
    assert_int_equal(log.n_rec, 60);
    for (size_t i = 0; i < log.n_rec; i++)
        n_large += log.rec[i].code == FDC_E_ARENA;
    assert_in_range(n_large, 1, 59);
    check_log(&log, &run, 0);
    fdb_log_fini(&log);
    fdc_close(l.session);
}

static void
test_daemon_gone(void **state)
{
    struct fdb_log log = { .n_rec = 0 };
    struct fdb_run run;
    struct fdb_cfg c;
    struct fdb_load l;

    (void)state;
    assert_true(text_run(&c, "die", 60) > 0);
    load_of(&l, &c);
    listen_begin();
    assert_int_equal(fdb_load_run(&l, 0, &log, &run), EX_UNAVAILABLE);
    assert_non_null(strstr(listen_end(), "E_DISCONNECTED"));
    assert_true(log.n_rec >= 1 && log.n_rec < 60);
    assert_int_equal(log.rec[log.n_rec - 1].code, FDC_E_DISCONNECTED);
    check_log(&log, &run, 0);
    fdb_log_fini(&log);
    fdc_close(l.session);
}

static void *
interrupt(void *arg)
{
    const struct timespec nap = { .tv_nsec = 200000000 };

    nanosleep(&nap, NULL);
    kill(getpid(), SIGINT);
    return arg;
}

/* The last test, as an interrupt stays in effect. */
static void
test_interrupt(void **state)
{
    struct fdb_log log = { .n_rec = 0 };
    struct fdb_run run;
    struct fdb_cfg c;
    struct fdb_load l;
    pthread_t thread;

    (void)state;
    cfg_of(&c, FDB_CLOSED, 0, 0);
    c.duration_s = 600;
    load_of(&l, &c);
    listen_begin();
    /* The handler is in place with the first run. */
    c.n_request = 1;
    l.cfg.n_request = 1;
    assert_int_equal(fdb_load_run(&l, 0, &log, &run), 0);
    l.cfg.n_request = 0;
    assert_int_equal(pthread_create(&thread, NULL, interrupt, NULL), 0);
    assert_int_equal(fdb_load_run(&l, 1, &log, &run), FCT_EX_INT);
    pthread_join(thread, NULL);
    assert_non_null(strstr(listen_end(), "interrupted"));
    assert_true(log.n_rec > 1);
    assert_true(run.t_end > run.t_begin);
    fdb_log_fini(&log);
    fdc_close(l.session);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(test_closed_loop,
                                            setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_loop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_turns_fail_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_daemon_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_interrupt, setup, teardown) };

    (void)alarm(60); /* a run that does not end fails the test */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
