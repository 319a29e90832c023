/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* libfdclient: an event loop whose session has another thread parked on its ring. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "libclient/priv.h"
#include "tests/unit/client_fixture.h"

static fdc_req_t *
submit(struct fix *f, const char *prompt, size_t n, int exclusive)
{
    struct fdc_submit_opts o = { .size = sizeof(o),
        .exclusive_reader = exclusive != 0,
        .no_resume = exclusive != 0 };
    struct fdc_params p;
    fdc_req_t *r;

    fdc_params_init(&p);
    p.max_new = 8;
    assert_int_equal(fdc_submit_text(f->s, prompt, n, &p, &o, &r), 0);
    return r;
}

/* Reads one event of its request. */
static void *
next_main(void *arg)
{
    struct fdc_event ev = FDC_EVENT_INIT;

    return fdc_next(arg, &ev, 20000) == 1 ? arg : NULL;
}

/* Returns with mtx held and a thread parked, which has asked to be woken. */
static void
lock_parked(struct fdc *s)
{
    for (;;) {
        pthread_mutex_lock(&s->mtx);
        if (s->parked && fdr_load_acquire(s->cq_wait) == FDP_WAIT_FUTEX)
            return;
        pthread_mutex_unlock(&s->mtx);
        usleep(100);
    }
}

static void
set_stall(struct fix *f, int on)
{
    __atomic_store_n(&f->m.stall, on, __ATOMIC_RELEASE);
    /* it may sleep: the doorbell makes it look again */
    assert_int_equal(write(f->m.bell, &(uint64_t){ 1 }, 8), 8);
    while (__atomic_load_n(&f->m.stalled, __ATOMIC_ACQUIRE) != on)
        usleep(100);
}

/* The parked thread finds a full ring, takes all of it with its first look and leaves: the
 * descriptor is readable then. */
static void
t_full_ring(void **state)
{
    enum { SLOTS = 16 };
    char echo[488 + 232] = "echo"; /* TEXT of 8 and of 4 slots */
    struct fix *f = *state;
    struct pollfd p = { .events = POLLIN };
    fdc_req_t *own, *r, *any;
    pthread_t t;
    void *ok;

    f->m.cq_slots = SLOTS;
    begin(f, 0);
    p.fd = fdc_fd(f->s);
    set_stall(f, 1);
    own = submit(f, "hold", 4, 1);        /* ACCEPTED: 1 slot */
    r = submit(f, echo, sizeof(echo), 0); /* and 1 slot, DONE: 2 slots */
    assert_int_equal(fdc_dispatch(f->s), 0);
    assert_int_equal(pthread_create(&t, NULL, next_main, own), 0);
    lock_parked(f->s);
    set_stall(f, 0);
    while (fdr_load_acquire(f->s->cq.p_tail) != SLOTS)
        usleep(100);
    set_stall(f, 1); /* the gate has sent its wake-ups */
    assert_int_equal(poll(&p, 1, 0), 0);
    pthread_mutex_unlock(&f->s->mtx);
    pthread_join(t, &ok);
    assert_non_null(ok);
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_int_equal(fdc_dispatch(f->s), 1);
    assert_int_equal(fdc_wait_any(f->s, &any, 0), 1);
    assert_ptr_equal(any, r);
    set_stall(f, 0);
    fdc_req_free(own);
    fdc_req_free(r);
    end(f);
}

static int held[2], go[2]; /* pipes of the signal handler: it runs; it may return */

static void
hold_thread(int sig)
{
    char c = 'h';

    (void)sig;
    if (write(held[1], &c, 1) != 1 || read(go[0], &c, 1) != 1)
        _exit(1);
}

/* Keeps the parked thread from leaving the ring: it stays in a signal handler. */
static void
hold_parked(struct fix *f, pthread_t t)
{
    struct sigaction sa = { .sa_handler = hold_thread };
    char c;

    assert_int_equal(pipe(held), 0);
    assert_int_equal(pipe(go), 0);
    assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
    lock_parked(f->s);
    assert_int_equal(pthread_kill(t, SIGUSR1), 0);
    assert_int_equal(read(held[0], &c, 1), 1);
    pthread_mutex_unlock(&f->s->mtx);
}

/* Lets it leave, and waits until it has. */
static void
let_go(pthread_t t)
{
    void *ok;

    assert_int_equal(write(go[1], "g", 1), 1);
    pthread_join(t, &ok);
    assert_non_null(ok);
    for (int i = 0; i < 2; i++) {
        close(held[i]);
        close(go[i]);
    }
}

/* Reads all events that have arrived. Returns 1 if DONE is among them. */
static int
pump(struct fix *f)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;
    int done = 0;

    while (fdc_dispatch(f->s) > 0)
        while (fdc_wait_any(f->s, &r, 0) > 0)
            while (fdc_next(r, &ev, 0) > 0)
                done |= ev.type == FDC_T_DONE;
    return done;
}

/* The daemon ends while a thread is parked on the ring, so that the loop cannot open the
 * session again. When the thread leaves with its own request's end, the loop is woken. */
static void
t_down(void **state)
{
    struct fix *f = *state;
    struct fdc_event ev = FDC_EVENT_INIT;
    struct pollfd p = { .events = POLLIN };
    uint32_t flags = 0;
    fdc_req_t *own, *r;
    pthread_t t;

    begin(f, 20000);
    p.fd = fdc_fd(f->s);
    own = submit(f, "hold", 4, 1);
    assert_int_equal(fdc_next(own, &ev, 5000), 1);
    assert_int_equal(pthread_create(&t, NULL, next_main, own), 0);
    hold_parked(f, t);
    r = submit(f, "part", 4, 0); /* the gate hangs up */
    while (!(flags & FDC_S_RECONNECTING)) {
        assert_int_equal(poll(&p, 1, 5000), 1);
        (void)pump(f);
        assert_int_equal(fdc_state(f->s, &flags), 0);
    }
    while (poll(&p, 1, 50) == 1) /* the time to open it again has come */
        (void)pump(f);
    let_go(t);
    do
        assert_int_equal(poll(&p, 1, 5000), 1);
    while (!pump(f));
    fdc_req_free(own);
    fdc_req_free(r);
    end(f);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, NULL)

int
main(void)
{
    const struct CMUnitTest tests[] = { T(t_full_ring), T(t_down) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
