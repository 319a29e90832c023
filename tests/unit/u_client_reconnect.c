/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* libfdclient with reconnect_ms and a gate (mock_gate.h) that hangs up. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/client_fixture.h"

static fdc_req_t *
submit(struct fix *f, const char *prompt, uint32_t n, int logprobs)
{
    struct fdc_submit_opts o = { .size = sizeof(o), .submit_timeout_ms = 5000 };
    struct fdc_params p;
    fdc_req_t *r;

    fdc_params_init(&p);
    p.max_new = 8;
    p.n = n;
    p.logprobs = logprobs ? 1 : -1;
    assert_int_equal(fdc_submit_text(f->s, prompt, strlen(prompt), &p, &o, &r), 0);
    return r;
}

struct seen {
    uint32_t n_ids, n_text, n_lp, accepted, ended, finish;
    char text[256];
    int code;
};

static void
take(struct seen *v, const struct fdc_event *ev)
{
    if (ev->sample != 0)
        return;
    switch (ev->type) {
    case FDC_T_ACCEPTED:
        v->accepted++;
        break;
    case FDC_T_IDS:
        assert_int_equal(ev->position, v->n_ids);
        for (uint32_t i = 0; i < ev->n; i++)
            assert_int_equal(ev->ids[i], 1000 + v->n_ids++);
        break;
    case FDC_T_TEXT:
        assert_int_equal(ev->position, v->n_text);
        memcpy(v->text + v->n_text, ev->text, ev->n);
        v->n_text += ev->n;
        break;
    case FDC_T_LOGPROBS:
        assert_int_equal(ev->position, v->n_lp++);
        break;
    case FDC_T_CHOICE_END:
        v->ended++;
        v->finish = ev->choice_end->finish;
        break;
    case FDC_T_ERROR:
        v->code = ev->error->code;
        break;
    case FDC_T_DONE:
        v->code = 0;
    }
}

static struct seen
finish(fdc_req_t *r)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    struct seen v = { .code = 1 };
    int rc;

    while ((rc = fdc_next(r, &ev, 5000)) > 0)
        take(&v, &ev);
    assert_int_equal(rc, 0);
    fdc_req_free(r);
    return v;
}

static void
is_whole(const struct seen *v)
{
    assert_int_equal(v->code, 0);
    assert_int_equal(v->n_ids, 8);
    assert_string_equal(v->text, "t0 t1 t2 t3 t4 t5 t6 t7 ");
    assert_int_equal(v->accepted, 1);
    assert_int_equal(v->ended, 1);
    assert_int_equal(v->finish, FDC_FIN_LENGTH);
}

/* The fourth token's id has arrived and its text has not: the token is requested again,
 * and the program gets only the missing text. */
static void
t_part(void **state)
{
    struct fix *f = *state;
    struct fdc_info i = { .size = sizeof(i) };
    struct seen v;

    begin(f, 5000);
    v = finish(submit(f, "part", 1, 0));
    is_whole(&v);
    assert_int_equal(__atomic_load_n(&f->m.n_submit, __ATOMIC_ACQUIRE), 2);
    assert_int_equal(f->m.last.n_prior, 3);
    assert_int_equal(f->m.last.seed, 42);
    assert_true(f->m.last.set & FDP_S_SEED);
    assert_int_equal(fdc_info(f->s, &i, 5000), 0);
    assert_int_equal(i.n_reconnect, 1);
    end(f);
}

static void
t_part_logprobs(void **state)
{
    struct fix *f = *state;
    struct seen v;

    begin(f, 5000);
    v = finish(submit(f, "part", 1, 1));
    is_whole(&v);
    assert_int_equal(v.n_lp, 8);
    end(f);
}

/* A worker restarts: the program sees neither its CHOICE_END nor its ERROR. */
static void
t_reset(void **state)
{
    struct fix *f = *state;
    struct seen v;

    begin(f, 5000);
    v = finish(submit(f, "reset", 1, 0));
    is_whole(&v);
    assert_int_equal(__atomic_load_n(&f->m.n_submit, __ATOMIC_ACQUIRE), 2);
    assert_int_equal(f->m.last.n_prior, 2);
    end(f);
}

/* The worker dies with it each time: it is not sent for ever. */
static void
t_crashes(void **state)
{
    struct fix *f = *state;

    begin(f, 5000);
    assert_int_equal(finish(submit(f, "crash", 1, 0)).code, FDC_E_GPU_RESET);
    assert_int_equal(__atomic_load_n(&f->m.n_submit, __ATOMIC_ACQUIRE), 5);
    end(f);
}

/* Computing again gives other tokens: the request cannot go on. */
static void
t_differs(void **state)
{
    struct fix *f = *state;
    struct seen v;

    begin(f, 5000);
    v = finish(submit(f, "parx", 1, 0));
    assert_int_equal(v.code, FDC_E_DISCONNECTED);
    assert_int_equal(v.n_ids, 4);
    end(f);
}

/* A request of several samples cannot go on, nor can any request without the option. */
static void
t_ends(void **state)
{
    struct fix *f = *state;
    struct fdc_submit_opts o = { .size = sizeof(o), .no_resume = 1 };
    struct seen v;
    fdc_req_t *r;

    begin(f, 5000);
    assert_int_equal(finish(submit(f, "die", 2, 0)).code, FDC_E_DISCONNECTED);
    /* and the session goes on */
    v = finish(submit(f, "fast", 1, 0));
    is_whole(&v);
    assert_int_equal(fdc_submit_text(f->s, "die", 3, NULL, &o, &r), 0);
    assert_int_equal(finish(r).code, FDC_E_DISCONNECTED);
    assert_int_equal(fdc_state(f->s, NULL), 0);
    fdc_close(f->s);
    mock_stop(&f->m);
    mock_init(&f->m);
    begin(f, 0);
    assert_int_equal(finish(submit(f, "part", 1, 0)).code, FDC_E_DISCONNECTED);
    assert_int_equal(fdc_state(f->s, NULL), FDC_E_DISCONNECTED);
    end(f);
}

/* A program that never waits notices that the daemon was killed. */
static void
polls(struct fix *f, int any, uint32_t reconnect_ms)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r, *ready;
    uint32_t n = 0;
    int rc;

    begin(f, reconnect_ms);
    r = submit(f, "hold", 1, 0);
    assert_int_equal(fdc_next(r, &ev, 5000), 1);
    mock_stop(&f->m);
    while ((rc = any ? fdc_wait_any(f->s, &ready, 0) : fdc_next(r, &ev, 0)) == FDC_E_AGAIN) {
        assert_true(++n < 10000);
        usleep(1000);
    }
    assert_int_equal(rc, 1);
    if (any)
        assert_int_equal(fdc_next(r, &ev, 0), 1);
    assert_int_equal(ev.type, FDC_T_ERROR);
    assert_int_equal(ev.error->code, FDC_E_DISCONNECTED);
    fdc_req_free(r);
    fdc_close(f->s);
}

static void
t_polls(void **state)
{
    struct fix *f = *state;

    polls(f, 0, 0);
    mock_init(&f->m);
    polls(f, 1, 0);
    mock_init(&f->m);
    polls(f, 0, 300);
}

/* No daemon is there within reconnect_ms. */
static void
t_gives_up(void **state)
{
    struct fix *f = *state;
    char why[160] = "";
    struct fdc_submit_opts o = { .size = sizeof(o),
        .error_text = why,
        .error_text_bytes = sizeof(why) };
    struct fdc_event ev = FDC_EVENT_INIT;
    uint32_t flags = 0;
    fdc_req_t *r, *r2;

    begin(f, 1000);
    r = submit(f, "hold", 1, 0);
    r2 = submit(f, "hold", 1, 0);
    assert_int_equal(fdc_next(r, &ev, 5000), 1);
    assert_int_equal(fdc_next(r2, &ev, 5000), 1);
    mock_stop(&f->m);
    assert_int_equal(fdc_next(r, &ev, 50), FDC_E_TIMEOUT);
    assert_int_equal(fdc_state(f->s, &flags), 0);
    assert_true(flags & FDC_S_RECONNECTING);
    assert_int_equal(fdc_submit_text(f->s, "x", 1, NULL, &o, &r2), FDC_E_DISCONNECTED);
    assert_non_null(strstr(why, ": there is no daemon now, trying to reconnect"));
    o.submit_timeout_ms = 10;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, NULL, &o, &r2), FDC_E_TIMEOUT);
    assert_non_null(strstr(why, ": no room within 10 ms: there is no daemon now"));
    /* cancelled while there is no daemon */
    assert_int_equal(fdc_cancel(r2), 0);
    assert_int_equal(finish(r2).code, FDC_E_CANCELLED);
    assert_int_equal(fdc_wait_any(f->s, &r, 5000), 1);
    assert_int_equal(finish(r).code, FDC_E_DISCONNECTED);
    assert_int_equal(fdc_state(f->s, NULL), FDC_E_DISCONNECTED);
    fdc_close(f->s);
}

/* The worker dies, and then the session ends for good, all of it before the program
 * reads: the request that was to be sent again ends, too. */
static void
t_lost_at_end(void **state)
{
    struct fix *f = *state;
    fdc_req_t *r, *last;
    struct seen v;

    begin(f, 5000);
    __atomic_store_n(&f->m.stall, 1, __ATOMIC_RELEASE);
    r = submit(f, "reset", 1, 0);
    last = submit(f, "bye", 1, 0);
    __atomic_store_n(&f->m.stall, 0, __ATOMIC_RELEASE);
    while (__atomic_load_n(&f->m.n_submit, __ATOMIC_ACQUIRE) < 2)
        usleep(100);
    usleep(20000); /* GOODBYE follows at once */
    v = finish(r);
    assert_int_equal(v.code, FDC_E_GPU_RESET);
    assert_int_equal(v.n_ids, 2);
    assert_int_equal(finish(last).code, FDC_E_SLOW);
    assert_int_equal(fdc_state(f->s, NULL), FDC_E_SLOW);
    end(f);
}

/* In an event loop, which only the descriptor wakes. */
static void
t_loop(void **state)
{
    struct fix *f = *state;
    struct fdc_event ev = FDC_EVENT_INIT;
    struct seen v = { .code = 1 };
    struct pollfd p = { .events = POLLIN };
    fdc_req_t *r, *any;
    int n_poll = 0;

    begin(f, 5000);
    p.fd = fdc_fd(f->s);
    r = submit(f, "part", 1, 0);
    while (v.code == 1) {
        while (fdc_dispatch(f->s) > 0)
            while (fdc_wait_any(f->s, &any, 0) > 0)
                while (fdc_next(any, &ev, 0) > 0)
                    take(&v, &ev);
        if (v.code == 1)
            assert_int_equal(poll(&p, 1, 5000), 1);
        assert_true(++n_poll < 200); /* it sleeps, too */
    }
    is_whole(&v);
    fdc_req_free(r);
    end(f);
}

/* Ends f's gate and lets another one answer at its socket. */
static void
replace_gate(struct fix *f, struct mock *m)
{
    uint32_t flags = 0;

    mock_start(m);
    mock_stop(&f->m);
    while (!(flags & FDC_S_RECONNECTING))
        assert_int_equal(fdc_state(f->s, &flags), 0);
    assert_int_equal(mkdir(f->m.dir, 0700), 0);
    assert_int_equal(symlink(m->path, f->m.path), 0);
}

/* A gate hangs and does not read the CANCEL, another one takes its place; or the worker
 * dies before the gate reads it. The request is not sent again. */
static void
t_cancelled(void **state)
{
    struct fix *f = *state;
    struct fdc_event ev = FDC_EVENT_INIT;
    struct seen v;
    struct mock m;
    fdc_req_t *r;

    mock_init(&m);
    m.cancelled = FDC_E_GPU_RESET;
    begin(f, 5000);
    r = submit(f, "hold", 1, 0);
    assert_int_equal(fdc_next(r, &ev, 5000), 1);
    __atomic_store_n(&f->m.stall, 1, __ATOMIC_RELEASE);
    assert_int_equal(write(f->m.bell, &(uint64_t){ 1 }, 8), 8); /* it may sleep */
    while (!__atomic_load_n(&f->m.stalled, __ATOMIC_ACQUIRE))
        usleep(100);
    assert_int_equal(fdc_cancel(r), 0);
    replace_gate(f, &m);
    assert_int_equal(finish(r).code, FDC_E_CANCELLED);
    v = finish(submit(f, "fast", 1, 0));
    is_whole(&v);
    assert_int_equal(__atomic_load_n(&m.n_submit, __ATOMIC_ACQUIRE), 1);

    r = submit(f, "hold", 1, 0);
    assert_int_equal(fdc_cancel(r), 0);
    assert_int_equal(finish(r).code, FDC_E_GPU_RESET);
    assert_int_equal(__atomic_load_n(&m.n_submit, __ATOMIC_ACQUIRE), 2);
    fdc_close(f->s);
    mock_stop(&m);
    unlink(f->m.path);
    rmdir(f->m.dir);
}

/* A request is too large for the next daemon's arena, which is smaller. */
static void
t_smaller_arena(void **state)
{
    static char big[20000];
    char why[160] = "";
    struct fix *f = *state;
    struct fdc_submit_opts o = { .size = sizeof(o),
        .submit_timeout_ms = 3000,
        .error_text = why,
        .error_text_bytes = sizeof(why) };
    struct seen v;
    struct mock m;
    fdc_req_t *r;

    mock_init(&m);
    m.arena_bytes = 4096;
    begin(f, 20000);
    replace_gate(f, &m);
    assert_int_equal(fdc_submit_text(f->s, big, sizeof(big), NULL, &o, &r), FDC_E_ARENA);
    assert_non_null(strstr(why, "20008 bytes, must be at most 4096"));
    v = finish(submit(f, "fast", 1, 0));
    is_whole(&v);
    fdc_close(f->s);
    mock_stop(&m);
    unlink(f->m.path);
    rmdir(f->m.dir);
}

static void *
reader(void *arg)
{
    struct fix *f = arg;
    uintptr_t whole = 0;

    for (int i = 0; i < 20; i++) {
        struct fdc_submit_opts o = { .size = sizeof(o),
            .submit_timeout_ms = 5000,
            .exclusive_reader = 1 };
        struct fdc_event ev = FDC_EVENT_INIT;
        uint32_t n = 0, done = 0;
        struct fdc_params p;
        fdc_req_t *r;

        fdc_params_init(&p);
        p.max_new = 8;
        if (fdc_submit_text(f->s, "part", 4, &p, &o, &r))
            continue;
        while (fdc_next(r, &ev, 5000) > 0) {
            if (ev.type == FDC_T_IDS && ev.position == n && ev.ids[0] == 1000 + n)
                n += ev.n;
            done |= ev.type == FDC_T_DONE;
        }
        whole += done && n == 8;
        fdc_req_free(r);
        usleep(1000);
    }
    return (void *)whole;
}

/* Several threads read their own requests while the gate hangs up again and again and
 * another thread queries the session. */
static void
t_threads(void **state)
{
    struct fix *f = *state;
    pthread_t t[4];
    void *whole;

    begin(f, 20000);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, reader, f), 0);
    for (int i = 0; i < 10; i++) {
        usleep(8000);
        assert_int_equal(fdc_state(f->s, NULL), 0);
        (void)fdc_dispatch(f->s);
        __atomic_store_n(&f->m.n_part, 0, __ATOMIC_RELAXED);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(t[i], &whole), 0);
        assert_int_equal((uintptr_t)whole, 20);
    }
    assert_true(__atomic_load_n(&f->m.n_attach, __ATOMIC_ACQUIRE) > 1);
    end(f);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, NULL)

int
main(void)
{
    const struct CMUnitTest tests[] = { T(t_part), T(t_part_logprobs), T(t_reset),
        T(t_crashes), T(t_differs), T(t_ends), T(t_polls), T(t_gives_up),
        T(t_lost_at_end), T(t_loop), T(t_cancelled), T(t_smaller_arena), T(t_threads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
