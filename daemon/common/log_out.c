/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/log_priv.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"

#define OUT_DRAIN_NS  (1 * CLK_S) /* log_fini() waits this long for a slow reader */
#define OUT_CANCEL_NS (200 * CLK_MS)
#define OUT_SIGNAL    SIGRTMAX     /* interrupts a write() that hangs */
#define OUT_NAP_NS    (1 * CLK_MS) /* lines gather: logging wakes no thread */
#define OUT_IDLE_NS   (1 * CLK_S)
#define OUT_FULL_MS \
    100                            /* wait for room on a descriptor that another process
                                      made non-blocking, and for each text of a panic */
#define OUT_BUSY_NS (100 * CLK_MS) /* a panic waits at most this long for the writer */

static struct {
    struct lgq own;
    struct lgq *q;    /* NULL: the logging thread writes */
    struct lgq *made; /* the writer's queue, also after its end */
    pthread_t th;
    uint32_t running, stop, done;
    uint32_t busy, dying; /* busy: the writer is writing lines; dying: a panic takes
                             over */
    uint32_t shut;        /* log_fini() gave up on a slow reader: nothing more is
                             written */
    uint32_t mute;        /* a panic gave up on it: nothing more is written */
} out;
static uint64_t *out_counter;

static uint32_t
out_get(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static void
out_set(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}

/* Can stderr take data within ms? For a pipe that means 4,096 bytes. */
static int
out_has_room(int ms)
{
    struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

    return poll(&p, 1, ms) > 0;
}

/* Returns -1 if shutting down before all of p was written, else 0. */
static int
out_write(const char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = write(STDERR_FILENO, p, n);

        if (k < 0 && errno == EAGAIN)
            (void)out_has_room(OUT_FULL_MS);
        else if (k < 0 && errno != EINTR)
            return 0; /* stderr is closed; there is no other sink */
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        }
        if (k < 0 && out_get(&out.shut))
            return -1;
    }
    return 0;
}

void
log_count(uint64_t *dropped)
{
    __atomic_store_n(&out_counter, dropped, __ATOMIC_RELAXED);
}

void
log_count_one(void)
{
    uint64_t *counter = __atomic_load_n(&out_counter, __ATOMIC_RELAXED);

    if (counter != NULL)
        (void)__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

void
log_put(const char *line, size_t n)
{
    struct lgq *q = __atomic_load_n(&out.q, __ATOMIC_ACQUIRE);

    if (q == NULL && !out_get(&out.shut))
        (void)out_write(line, n);
    else if (q == NULL || lgq_put(q, line, n) != 0)
        log_count_one();
}

/* ---- the writer ------------------------------------------------------------ */

static void
out_tell_lost(uint64_t lost)
{
    char line[LOG_LINE_BYTES];

    if (lost != 0)
        (void)out_write(line, log_lost_line(lost, line));
}

/* Write whole lines with one write(). Returns 0 if there are none. */
static int
out_some(struct lgq *q)
{
    char buf[LOG_LINE_BYTES];
    uint64_t next;
    size_t n;

    out_set(&out.busy, 1); /* set busy, then check dying; log_panic() does the reverse */
    while (out_get(&out.dying)) {
        out_set(&out.busy, 0);
        (void)pause(); /* log_panic() has taken over */
    }
    n = lgq_take(q, buf, sizeof(buf), &next);
    if (n != 0 && out_write(buf, n) == 0)
        lgq_release(q, next);
    out_tell_lost(lgq_lost(q));
    out_set(&out.busy, 0);
    return n != 0;
}

/* Exists only so that write() returns with EINTR. */
static void
out_on_signal(int sig)
{
    (void)sig;
}

static void *
out_thread(void *arg)
{
    struct lgq *q = arg;
    int some = 0;

    while (!out_get(&out.shut)) {
        uint32_t stop = out_get(&out.stop); /* read first, so that all lines put before
                                               it are seen */

        if (out_some(q)) {
            some = 1;
        } else if (stop) {
            break;
        } else if (some) {
            some = 0;
            clk_sleep_ns(OUT_NAP_NS);
        } else {
            lgq_wait(q, OUT_IDLE_NS);
        }
    }
    out_set(&out.done, 1);
    return NULL;
}

/* The child of a fork has no writer thread: it writes its lines itself. */
static void
out_in_child(void)
{
    __atomic_store_n(&out.q, NULL, __ATOMIC_RELEASE);
    out.running = 0;
}

int
log_out_start(struct lgq *q)
{
    static int once;
    struct sigaction sa = { .sa_handler = out_on_signal };
    sigset_t all, before;
    int rc;

    if (out.running)
        return -EBUSY;
    if (!once && pthread_atfork(NULL, NULL, out_in_child) != 0)
        return -ENOMEM;
    once = 1;
    q = q != NULL ? q : &out.own;
    lgq_init(q);
    out.stop = out.done = out.shut = 0;
    /* Block all signals but ours in the thread: the gate receives signals by a
     * signalfd. */
    (void)sigaction(OUT_SIGNAL, &sa, NULL);
    (void)sigfillset(&all);
    (void)sigdelset(&all, OUT_SIGNAL);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&out.th, NULL, out_thread, q);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return -rc;
    (void)pthread_setname_np(out.th, "fdd-log");
    out.running = 1;
    out.made = q;
    __atomic_store_n(&out.q, q, __ATOMIC_RELEASE);
    return 0;
}

static int
out_wait_done(uint64_t ns)
{
    uint64_t end = clk_now_ns() + ns;

    while (!out_get(&out.done) && clk_now_ns() < end) {
        lgq_wake(out.made);
        if (out_get(&out.shut))
            (void)pthread_kill(out.th, OUT_SIGNAL);
        clk_sleep_ns(CLK_MS);
    }
    return out_get(&out.done) != 0;
}

int
log_out_fini(void)
{
    if (!out.running) {
        log_count(NULL);
        return 0;
    }
    out.running = 0;
    out_set(&out.stop, 1);
    if (!out_wait_done(OUT_DRAIN_NS))
        out_set(&out.shut, 1); /* before any thread writes its lines itself */
    __atomic_store_n(&out.q, NULL, __ATOMIC_RELEASE);
    log_count(NULL);
    if (!out_wait_done(OUT_CANCEL_NS)) {
        (void)pthread_detach(out.th);
        return -EBUSY;
    }
    (void)pthread_join(out.th, NULL);
    return 0;
}

/* ---- a death --------------------------------------------------------------- */

void
log_panic(void)
{
    struct lgq *q = __atomic_load_n(&out.q, __ATOMIC_ACQUIRE);
    char buf[LOG_LINE_BYTES];
    uint64_t next;
    size_t n;

    if (q == NULL || out_get(&out.dying))
        return;
    out_set(&out.dying, 1);
    for (uint64_t ns = 0; out_get(&out.busy) && ns < OUT_BUSY_NS; ns += CLK_MS) {
        lgq_wake(q);
        clk_sleep_ns(CLK_MS);
    }
    while ((n = lgq_take(q, buf, sizeof(buf), &next)) != 0 && !out.mute) {
        log_panic_put(buf, n);
        lgq_release(q, next);
    }
}

void
log_panic_put(const char *text, size_t n)
{
    if (out.mute || out_get(&out.shut))
        return;
    if (!out_has_room(OUT_FULL_MS))
        out.mute = 1; /* the reader is stalled, and the process must end */
    else if (write(STDERR_FILENO, text, n) < 0)
        out.mute = 1;
}

size_t
log_last(char *ret, size_t ret_bytes)
{
    if (out.made != NULL)
        return lgq_last(out.made, ret, ret_bytes);
    ret[0] = '\0';
    return 0;
}

void
log_adopt(struct lgq *q)
{
    char buf[LOG_LINE_BYTES], line[LOG_LINE_BYTES];
    uint64_t next, lost;
    size_t n;

    while ((n = lgq_take(q, buf, sizeof(buf), &next)) != 0) {
        for (size_t at = 0; at < n;) {
            const char *end = memchr(buf + at, '\n', n - at);
            size_t len = (end != NULL ? (size_t)(end - buf) : n) - at;
            size_t k = log_clean(buf + at, len, line, sizeof(line) - 1);

            line[k++] = '\n';
            log_put(line, k);
            at += len + 1;
        }
        lgq_release(q, next);
    }
    lost = lgq_lost(q);
    if (lost != 0)
        log_put(line, log_lost_line(lost, line));
}
