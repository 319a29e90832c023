/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One session, used as fdclient for Python does: an event loop with more requests than
 * there is room for, two threads that wait for their own requests and make blocking
 * calls, and one thread that cancels the loop's requests. Mostly for TSan.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/fdclient.h"
#include "tests/unit/mock_gate.h"

#define N_LOOP   400 /* requests of the loop, */
#define N_OPEN   48  /* most of them at a time; the session has room for 32 */
#define N_THREAD 60  /* requests of a thread */
#define MAX_NEW  24

struct one { /* a request of the loop */
    fdc_req_t *r;
    uint32_t want, ids, bytes;
    int cancelled; /* a cancel was sent */
    int ended;     /* 1: DONE, 2: cancelled */
};

struct fix {
    struct mock m;
    fdc_t *s;
    pthread_mutex_t mtx; /* keeps the cancelling thread from handles
                          * that are being freed */
    struct one one[N_LOOP];
    uint32_t first, next; /* requests first .. next - 1 have not
                           * ended, or wait for room */
    int over;
};

/* Length of the mock's text of n tokens: "t0 t1 ...". */
static uint32_t
text_bytes(uint32_t n)
{
    char buf[16];
    uint32_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (uint32_t)snprintf(buf, sizeof(buf), "t%u ", i);
    return sum;
}

static int
submit(struct fix *f, const char *text, uint32_t max_new, const struct fdc_submit_opts *o,
    fdc_req_t **ret_r)
{
    struct fdc_params p;

    fdc_params_init(&p);
    p.max_new = max_new;
    return fdc_submit_text(f->s, text, strlen(text), &p, o, ret_r);
}

/* ---- threads ----------------------------------------------------------------- */

static void *
reader_main(void *arg)
{
    static const char abc[] = "abc";
    struct fix *f = arg;
    struct fdc_submit_opts o = { .size = sizeof(o),
        .submit_timeout_ms = -1,
        .exclusive_reader = 1 };
    struct fdc_event ev = FDC_EVENT_INIT;

    for (uint32_t i = 0; i < N_THREAD; i++) {
        uint32_t want = 1 + i % MAX_NEW, n = 0, *ids;
        size_t n_ids;
        fdc_req_t *r;
        int rc = submit(f, i % 3 ? "fast" : "drip", want, &o, &r);
        if (rc)
            return (void *)"submit";
        while ((rc = fdc_next(r, &ev, 20000)) > 0)
            if (ev.type == FDC_T_IDS)
                n += ev.n;
        fdc_req_free(r);
        if (rc || n != want)
            return (void *)"tokens of a thread";
        if (fdc_tokenize(f->s, abc, 3, 0, &ids, &n_ids, 20000))
            return (void *)"tokenize";
        n = n_ids == 3 && ids[0] == 'a' && ids[2] == 'c';
        fdc_free(ids);
        if (!n)
            return (void *)"ids";
    }
    return NULL;
}

static void *
canceller_main(void *arg)
{
    struct fix *f = arg;
    unsigned seed = 7;

    while (!__atomic_load_n(&f->over, __ATOMIC_ACQUIRE)) {
        struct timespec ts = { .tv_nsec = 300000 };
        pthread_mutex_lock(&f->mtx);
        if (f->first < f->next) {
            struct one *q =
                &f->one[f->first + (uint32_t)rand_r(&seed) % (f->next - f->first)];
            if (q->r && !__atomic_load_n(&q->ended, __ATOMIC_RELAXED) &&
                fdc_cancel(q->r) == 0)
                q->cancelled = 1;
        }
        pthread_mutex_unlock(&f->mtx);
        nanosleep(&ts, NULL);
    }
    return NULL;
}

/* ---- the loop ---------------------------------------------------------------- */

static void
take_event(struct one *q, const struct fdc_event *ev)
{
    switch (ev->type) {
    case FDC_T_IDS:
        assert_int_equal(ev->position, q->ids);
        q->ids += ev->n;
        break;
    case FDC_T_TEXT:
        assert_int_equal(ev->position, q->bytes);
        q->bytes += ev->n;
        break;
    case FDC_T_DONE:
        __atomic_store_n(&q->ended, 1, __ATOMIC_RELAXED);
        break;
    case FDC_T_ERROR:
        assert_int_equal(ev->error->code, FDC_E_CANCELLED);
        __atomic_store_n(&q->ended, 2, __ATOMIC_RELAXED);
        break;
    default:
        break;
    }
}

/* Reads all events that have arrived, until the descriptor is armed. */
static void
take(struct fix *f)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;
    int rc;

    while ((rc = fdc_dispatch(f->s)) > 0)
        while (fdc_wait_any(f->s, &r, 0) > 0) {
            struct one *q = fdc_req_user(r);
            assert_ptr_equal(q->r, r);
            while (fdc_next(r, &ev, 0) > 0)
                take_event(q, &ev);
            if (!q->ended)
                continue;
            pthread_mutex_lock(&f->mtx);
            q->r = NULL;
            fdc_req_free(r);
            while (f->first < f->next && f->one[f->first].ended)
                f->first++;
            pthread_mutex_unlock(&f->mtx);
        }
    assert_int_equal(rc, 0);
}

/* Begins requests until there is no room, or enough are open.
 * Returns 1 if there is no room. */
static int
begin_some(struct fix *f)
{
    while (f->next < N_LOOP && f->next - f->first < N_OPEN) {
        struct one *q = &f->one[f->next];
        struct fdc_submit_opts o = { .size = sizeof(o), .user_ptr = q };
        int rc;
        q->want = 1 + f->next * 5 % MAX_NEW;
        pthread_mutex_lock(&f->mtx);
        rc = submit(f, f->next % 4 ? "drip" : "fast", q->want, &o, &q->r);
        f->next += rc == 0;
        pthread_mutex_unlock(&f->mtx);
        if (rc == FDC_E_FULL)
            return 1;
        assert_int_equal(rc, 0);
    }
    return 0;
}

static void
t_loop_and_threads(void **state)
{
    struct fix *f = *state;
    struct fdc_open_opts o = { .size = sizeof(o), .path = f->m.path };
    pthread_t th[3];
    struct pollfd p = { .events = POLLIN };
    uint32_t full = 0, done = 0;
    void *why;

    mock_start(&f->m);
    assert_int_equal(fdc_open(&o, &f->s), 0);
    p.fd = fdc_fd(f->s);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&th[i], NULL,
                             i < 2 ? reader_main : canceller_main, f),
            0);
    for (;;) {
        take(f);
        full += (uint32_t)begin_some(f);
        if (f->first == N_LOOP)
            break;
        assert_int_equal(poll(&p, 1, 20000), 1);
    }
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            __atomic_store_n(&f->over, 1, __ATOMIC_RELEASE);
        pthread_join(th[i], &why);
        assert_null(why);
    }
    for (uint32_t i = 0; i < N_LOOP; i++) {
        struct one *q = &f->one[i];
        assert_true(q->ended == 1 || q->cancelled);
        assert_true(q->ids <= q->want);
        if (q->ended == 1) {
            done++;
            assert_int_equal(q->ids, q->want);
            assert_int_equal(q->bytes, text_bytes(q->want));
        }
    }
    print_message("%u of %d complete, %u times no room\n", done, N_LOOP, full);
    assert_true(full > 0 && done > N_LOOP / 4 && done < N_LOOP);
    fdc_close(f->s);
    mock_stop(&f->m);
}

static int
setup(void **state)
{
    static struct fix f;

    mock_init(&f.m);
    pthread_mutex_init(&f.mtx, NULL);
    *state = &f;
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(t_loop_and_threads, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
