/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* libfdclient: room that becomes free, batches, the last request freed by
 * another thread, error texts. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/client_fixture.h"

static uint64_t
now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t
get(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void
stall(struct fix *f, int on)
{
    __atomic_store_n(&f->m.stall, on, __ATOMIC_RELEASE);
    if (on) {
        /* it may sleep: the doorbell makes it look again */
        assert_int_equal(write(f->m.bell, &(uint64_t){ 1 }, 8), 8);
        while (!__atomic_load_n(&f->m.stalled, __ATOMIC_ACQUIRE))
            usleep(100);
    }
}

/* Fills the request ring of a gate that takes no requests.
 * Returns the number of requests. */
static uint32_t
fill(struct fix *f, fdc_req_t **r)
{
    uint32_t n = 0;

    while (fdc_submit_text(f->s, "hold", 4, NULL, NULL, &r[n]) == 0)
        n++;
    return n;
}

struct later {
    struct fix *f;
    fdc_req_t *r;
    unsigned ms;
};

static void *
go_on_later(void *arg)
{
    struct later *l = arg;

    usleep(l->ms * 1000);
    stall(l->f, 0);
    return NULL;
}

/* A waiting submit sleeps until the daemon has taken requests and wakes it. */
static void
t_room_wakes(void **state)
{
    struct fix *f = *state;
    struct fdc_submit_opts o = { .size = sizeof(o), .submit_timeout_ms = 10000 };
    struct later l = { .f = f, .ms = 60 };
    struct timespec cpu[2];
    fdc_req_t *r[64], *more;
    pthread_t t;
    uint64_t t0;
    uint32_t n;

    f->m.sq_slots = 4;
    begin(f, 0);
    stall(f, 1);
    n = fill(f, r);
    assert_int_equal(n, 4);
    assert_int_equal(pthread_create(&t, NULL, go_on_later, &l), 0);
    t0 = now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[0]);
    assert_int_equal(fdc_submit_text(f->s, "hold", 4, NULL, &o, &more), 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[1]);
    assert_true(now_ns() - t0 >= 50000000u);
    pthread_join(t, NULL);
    assert_true(get(&f->m.n_room) >= 1);
    /* It slept. */
    assert_true(
        (cpu[1].tv_sec - cpu[0].tv_sec) * 1000000000 + cpu[1].tv_nsec - cpu[0].tv_nsec <
        30000000);
    fdc_req_free(more);
    while (n > 0)
        fdc_req_free(r[--n]);
    end(f);
}

/* Reads events as an event loop does when the descriptor polls readable. */
static void
pump(struct fix *f)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;

    while (fdc_dispatch(f->s) > 0)
        while (fdc_wait_any(f->s, &r, 0) > 0)
            while (fdc_next(r, &ev, 0) > 0)
                ;
}

/* After FDC_E_FULL the descriptor polls readable once there is room. */
static void
t_room_polls(void **state)
{
    struct fix *f = *state;
    struct later l = { .f = f, .ms = 30 };
    fdc_req_t *r[64], *more = NULL;
    struct pollfd p = { .events = POLLIN };
    pthread_t t;
    int rc, tries = 0;
    uint32_t n;

    f->m.sq_slots = 4;
    begin(f, 0);
    p.fd = fdc_fd(f->s);
    stall(f, 1);
    n = fill(f, r);
    pump(f);
    assert_int_equal(fdc_submit_text(f->s, "hold", 4, NULL, NULL, &more), FDC_E_FULL);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(pthread_create(&t, NULL, go_on_later, &l), 0);
    do {
        /* the first time it may be readable for answers to requests in the ring */
        assert_int_equal(poll(&p, 1, 2000), 1);
        pump(f);
        rc = fdc_submit_text(f->s, "hold", 4, NULL, NULL, &more);
        assert_true(rc == 0 || rc == FDC_E_FULL);
    } while (rc != 0 && ++tries < 20);
    assert_int_equal(rc, 0);
    pthread_join(t, NULL);
    fdc_req_free(more);
    while (n > 0)
        fdc_req_free(r[--n]);
    end(f);
}

/* The room comes after a submit was refused, while the program still reads: the
 * descriptor polls readable once fdc_dispatch() has returned 0. */
static void
t_room_while_reading(void **state)
{
    struct fix *f = *state;
    struct fdc_event ev = FDC_EVENT_INIT;
    struct pollfd p = { .events = POLLIN };
    fdc_req_t *r, *more;

    f->m.max_inflight = 1;
    begin(f, 0);
    p.fd = fdc_fd(f->s);
    pump(f);
    assert_int_equal(fdc_submit_text(f->s, "hold", 4, NULL, NULL, &r), 0);
    assert_int_equal(poll(&p, 1, 5000), 1);
    while (fdc_dispatch(f->s) == 0)
        ;
    assert_int_equal(fdc_submit_text(f->s, "hold", 4, NULL, NULL, &more), FDC_E_FULL);
    fdc_cancel(r);
    while (fdc_next(r, &ev, 5000) > 0)
        ;
    assert_int_equal(ev.type, FDC_T_ERROR);
    fdc_req_free(r);
    assert_int_equal(fdc_dispatch(f->s), 0);
    assert_int_equal(poll(&p, 1, 1000), 1);
    assert_int_equal(fdc_submit_text(f->s, "hold", 4, NULL, NULL, &more), 0);
    assert_int_equal(fdc_next(more, &ev, 5000), 1);
    pump(f);
    assert_int_equal(poll(&p, 1, 0), 0); /* told once */
    fdc_req_free(more);
    end(f);
}

static void
describe(struct fdc_submit *b, size_t n, const char *text)
{
    memset(b, 0, n * sizeof(*b));
    for (size_t i = 0; i < n; i++) {
        b[i].size = sizeof(*b);
        b[i].text = text;
        b[i].n_text = strlen(text);
        b[i].status = 1;
    }
}

static void
free_all(struct fdc_submit *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fdc_req_free(b[i].req);
}

/* A batch rings one doorbell; all or the first requests are
 * sent, and the number is exact. */
static void
t_many(void **state)
{
    static const uint32_t ids[] = { 1, 2, 3 };
    struct fix *f = *state;
    struct fdc_submit b[40];
    char why[160] = "";
    struct fdc_submit_opts o = { .size = sizeof(o),
        .error_text = why,
        .error_text_bytes = sizeof(why) };
    uint32_t bells;

    f->m.sq_slots = 16;
    begin(f, 0);
    assert_int_equal(fdc_ping(f->s, 0, NULL, 5000), 0);
    usleep(20000); /* the gate sleeps */
    bells = get(&f->m.n_bells);
    describe(b, 8, "hold");
    b[3].text = NULL;
    b[3].n_text = 0;
    b[3].ids = ids;
    b[3].n_ids = 3;
    assert_int_equal(fdc_submit_many(f->s, b, 8, 0), 8);
    for (int i = 0; i < 8; i++)
        assert_true(b[i].req != NULL && b[i].status == 0);
    assert_int_equal(fdc_ping(f->s, 0, NULL, 5000), 0);
    assert_int_equal(get(&f->m.n_submit), 8);
    assert_true(get(&f->m.n_bells) - bells <= 2); /* one for the batch, one for the
                                                   * ping */
    free_all(b, 8);
    assert_int_equal(fdc_ping(f->s, 0, NULL, 5000), 0);
    /* more than the ring has slots slots */
    stall(f, 1);
    describe(b, 40, "hold");
    assert_int_equal(fdc_submit_many(f->s, b, 40, 0), 16);
    for (int i = 0; i < 40; i++)
        assert_true(
            (b[i].req != NULL) == (i < 16) && b[i].status == (i < 16 ? 0 : FDC_E_FULL));
    free_all(b, 40);
    describe(b, 40, "hold");
    b[1].opts = &o;
    assert_int_equal(fdc_submit_many(f->s, b, 2, 20), FDC_E_TIMEOUT);
    assert_non_null(strstr(why, ": request 2 of 2: 16 of 32 requests are open"));
    assert_int_equal(b[0].status, FDC_E_TIMEOUT);
    stall(f, 0);
    /* the most that may be open, which is more than the ring has slots */
    describe(b, 40, "hold");
    assert_int_equal(fdc_submit_many(f->s, b, 40, 300), 32);
    assert_int_equal(b[32].status, FDC_E_TIMEOUT);
    free_all(b, 40);
    assert_int_equal(fdc_submit_many(f->s, NULL, 0, 0), 0);
    end(f);
}

/* If one request is malformed none is sent. */
static void
t_many_bad(void **state)
{
    struct fix *f = *state;
    struct fdc_params p;
    struct fdc_submit b[3];
    char why[160] = "";
    struct fdc_submit_opts o = { .size = sizeof(o),
        .error_text = why,
        .error_text_bytes = sizeof(why) };
    uint32_t n;

    begin(f, 0);
    n = get(&f->m.n_submit);
    fdc_params_init(&p);
    p.n_stop_ids = 2;
    describe(b, 3, "hold");
    b[2].params = &p;
    assert_int_equal(fdc_submit_many(f->s, b, 3, 0), FDC_E_INVAL);
    assert_int_equal(b[2].status, FDC_E_INVAL);
    assert_null(b[0].req);
    describe(b, 3, "hold");
    b[1].n_text = 1 << 20;
    assert_int_equal(fdc_submit_many(f->s, b, 3, 0), FDC_E_ARENA);
    describe(b, 3, "hold");
    b[1].ids = (const uint32_t *)(const void *)b; /* text and ids at once */
    b[1].opts = &o;
    assert_int_equal(fdc_submit_many(f->s, b, 3, 0), FDC_E_INVAL);
    assert_non_null(strstr(why, "text and ids are both set: give one of them"));
    b[0].size = 8;
    assert_int_equal(fdc_submit_many(f->s, b, 3, 0), FDC_E_INVAL);
    /* handles of an earlier batch in the array, which are freed */
    describe(b, 3, "hold");
    b[1].params = &p;
    for (int i = 0; i < 3; i++)
        b[i].req = (fdc_req_t *)(void *)b;
    assert_int_equal(fdc_submit_many(f->s, b, 3, 0), FDC_E_INVAL);
    for (int i = 0; i < 3; i++)
        assert_null(b[i].req);
    assert_int_equal(fdc_ping(f->s, 0, NULL, 5000), 0);
    assert_int_equal(get(&f->m.n_submit), n);
    end(f);
}

static void *
free_later(void *arg)
{
    struct later *l = arg;

    usleep(l->ms * 1000);
    fdc_req_free(l->r);
    return NULL;
}

/* Another thread frees the last request: nothing is left to wait for. */
static void
t_last_freed(void **state)
{
    struct fix *f = *state;
    struct later l = { .f = f, .ms = 30 };
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *any;
    pthread_t t;
    uint64_t t0;

    begin(f, 0);
    assert_int_equal(fdc_submit_text(f->s, "hold", 4, NULL, NULL, &l.r), 0);
    assert_int_equal(fdc_next(l.r, &ev, 5000), 1);
    assert_int_equal(ev.type, FDC_T_ACCEPTED);
    assert_int_equal(pthread_create(&t, NULL, free_later, &l), 0);
    t0 = now_ns();
    assert_int_equal(fdc_wait_any(f->s, &any, 5000), 0);
    assert_true(now_ns() - t0 < 2000000000u);
    pthread_join(t, NULL);
    end(f);
}

/* While the model loads, the session's fields of info are there. */
static void
t_info_loading(void **state)
{
    struct fix *f = *state;
    struct fdc_model_info model = { .size = sizeof(model), .vocab = 9 };
    struct fdc_info i = { .size = sizeof(i), .model = &model };

    f->m.loading = 1;
    begin(f, 0);
    assert_int_equal(fdc_info(f->s, &i, 5000), 0);
    assert_int_equal(i.max_inflight, 32);
    assert_int_equal(i.max_request_bytes, f->m.arena_bytes);
    assert_int_equal(model.vocab, 0);
    assert_int_equal(model.size, sizeof(model));
    i.model = NULL;
    assert_int_equal(fdc_info(f->s, &i, 5000), 0);
    i.size = 8;
    assert_int_equal(fdc_info(f->s, &i, 5000), FDC_E_INVAL);
    end(f);
}

/* Lists whose elements are pointers, one of which is NULL. */
static void
t_null_element(void **state)
{
    struct fix *f = *state;
    char why[160] = "";
    struct fdc_submit_opts o = { .size = sizeof(o),
        .error_text = why,
        .error_text_bytes = sizeof(why) };
    const char *const texts[2] = { "a", NULL };
    static const uint32_t id = 5, len[2] = { 1, 0 };
    const uint32_t *const ids[2] = { NULL, &id };
    struct fdc_params p;
    fdc_req_t *r;

    begin(f, 0);
    fdc_params_init(&p);
    p.stop = texts;
    p.n_stop = 2;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &r), FDC_E_INVAL);
    assert_non_null(strstr(why, "stop[1] is NULL"));
    p.stop_len = len; /* its bytes are not read */
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &r), 0);
    fdc_params_init(&p);
    p.bad_words = texts;
    p.n_bad_words = 2;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &r), FDC_E_INVAL);
    assert_non_null(strstr(why, "bad_words[1] is NULL"));
    fdc_params_init(&p);
    p.bad_ids = ids;
    p.bad_ids_len = len;
    p.n_bad_ids = 2;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &r), FDC_E_INVAL);
    assert_non_null(strstr(why, "bad_ids[0] is NULL"));
    end(f);
}

/* Errors where value and bound by themselves would mislead. */
static void
t_error_texts(void **state)
{
    const float minus = -0.5f, nan = NAN;
    static const struct {
        struct fdc_error e;
        const char *text;
    } rows[] = {
        { { .detail = FDC_D_TEMPERATURE }, ": temperature is not a number" },
        { { .detail = FDC_D_BIAS }, ": logit_bias is not a number" },
        { { .detail = FDC_D_TOP_P }, ": top_p is -0.5, above 0" },
        { { .detail = FDC_D_SET, .arg = 512 }, ": prompt_from needs prompt_logprobs" },
        { { .detail = FDC_D_SET, .arg = 256, .item = 12 }, ": logprob_ids needs logprobs" },
        { { .detail = FDC_D_SET, .arg = 1u << 31 }, ": set is 2147483648" },
        { { .detail = FDC_D_PRIOR, .arg = 5 }, ": 5 prior_ids need n = best_of = 1" },
        { { .detail = FDC_D_PRIOR, .arg = 5, .limit = 4 }, ": prior_ids is 5, at most 4" },
        { { .detail = FDC_D_USER, .arg = 7 }, ": user is 7, but ipc.trusted_users" },
        { { .detail = FDC_D_SPANS }, ": a range of spans is empty" },
        { { .detail = FDC_D_SPANS, .arg = 1, .limit = 2 }, ": spans is 1, at least 2" },
        { { .detail = FDC_D_SPANS, .arg = 3 }, ": spans without a text" },
        { { .detail = FDC_D_MIN_NEW, .arg = 1 }, ": min_new is 1, must be 0" },
        { { .detail = FDC_D_ALLOWED }, ": allowed_ids leaves no token to choose" },
        { { .detail = FDC_D_REASONING, .arg = 5 },
            ": open_id and close_id of reasoning are both 5" },
        { { .code = FDC_E_BAD_TEXT, .detail = FDC_D_STOP, .arg = 3, .item = 4 },
            ": byte 3 of stop of item 4 (stop_string)" },
        { { .code = FDC_E_BAD_TEXT, .detail = FDC_D_SPANS, .arg = 3, .item = 13 },
            ": the range of spans at byte 3 splits a character" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fdc_error e = rows[i].e;
        char text[240];

        if (e.code == 0)
            e.code = FDC_E_BAD_PARAM;
        if (i < 3)
            memcpy(&e.arg, i < 2 ? &nan : &minus, sizeof(e.arg));
        fdc_error_text(&e, text, sizeof(text));
        if (strstr(text, rows[i].text) == NULL)
            fail_msg("\"%s\" does not have \"%s\"", text, rows[i].text);
    }
    assert_string_equal(fdc_error_text(NULL, NULL, 0), "");
}

/* Texts on why a session does not open. */
static void
t_open_texts(void **state)
{
    struct fdc_open_error e = { .size = sizeof(e) };
    struct {
        struct fdc_open_opts o;
        uint64_t more;
    } big = { .o = { .size = sizeof(big), .ret_error = &e }, .more = 1 };
    struct fdc_open_opts o = { .size = sizeof(o), .path = "", .ret_error = &e };
    fdc_t *s;

    (void)state;
    assert_int_equal(fdc_open(&o, &s), FDC_E_CONNECT);
    assert_string_equal(e.text, "the path of the socket is empty");
    o.path = NULL;
    unsetenv("FDD_SOCKET");
    setenv("FDD_INSTANCE", "Bad/Name", 1);
    assert_int_equal(fdc_open(&o, &s), FDC_E_CONNECT);
    assert_non_null(strstr(e.text, "FDD_INSTANCE is not an instance's name"));
    unsetenv("FDD_INSTANCE");
    e.text[0] = '\0';
    assert_int_equal(fdc_open(&big.o, &s), FDC_E_UNSUPPORTED);
    assert_non_null(strstr(e.text, fdc_strerror(FDC_E_UNSUPPORTED)));
}

/* With too few descriptors left, the reason says so, whichever of them is missing. The
 * gate is another process, which has enough. */
static void
t_no_descriptors(void **state)
{
    struct mock *m =
        mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct fdc_open_error e = { .size = sizeof(e) };
    struct fdc_open_opts o = { .size = sizeof(o), .reconnect_ms = 1000, .ret_error = &e };
    struct rlimit before, less;
    int up[2], rc = -1, n, low;
    char c;
    pid_t pid;
    fdc_t *s;

    (void)state;
    assert_true(m != MAP_FAILED);
    assert_int_equal(pipe(up), 0);
    mock_init(m);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed check ends the parent */
        mock_start(m);
        (void)!write(up[1], "x", 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(up[0], &c, 1), 1);
    o.path = m->path;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = dup(0);
    close(low);
    less = before;
    for (n = 0; rc != 0; n++) {
        less.rlim_cur = (rlim_t)(low + n);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
        rc = fdc_open(&o, &s);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, FDC_E_CONNECT);
        assert_int_equal(e.os_error, EMFILE);
        assert_non_null(strstr(e.text, strerror(EMFILE)));
    }
    assert_true(n >= 5);
    fdc_close(s);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    unlink(m->path);
    rmdir(m->dir);
    close(up[0]);
    close(up[1]);
    munmap(m, sizeof(*m));
}

/* Error texts name the field, its value and its range. */
static void
t_texts(void **state)
{
    struct fix *f = *state;
    char why[160] = "";
    struct fdc_submit_opts o = { .size = sizeof(o),
        .error_text = why,
        .error_text_bytes = sizeof(why) };
    struct fdc_open_error e = { .size = sizeof(e) };
    struct fdc_open_opts oo = { .size = sizeof(oo),
        .path = "/nonexistent/fdd.sock",
        .ret_error = &e };
    static char big[70000];
    struct fdc_params p;
    fdc_req_t *r;
    fdc_t *s;

    assert_int_equal(fdc_open(&oo, &s), FDC_E_CONNECT);
    assert_string_equal(e.text,
        "cannot connect to /nonexistent/fdd.sock: No such file or directory");
    begin(f, 0);
    memset(big, 'x', sizeof(big));
    assert_int_equal(fdc_submit_text(f->s, big, sizeof(big), NULL, &o, &r), FDC_E_ARENA);
    assert_non_null(strstr(why, "70008 bytes, must be at most 65536"));
    assert_non_null(strstr(why, "E_ARENA: "));
    fdc_params_init(&p);
    p.n = 70000;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &r), FDC_E_BAD_PARAM);
    assert_non_null(strstr(why, "n is 70000, at most 64"));
    p.n = 1;
    p.n_bias = 3;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &r), FDC_E_INVAL);
    assert_non_null(strstr(why, "bias is NULL with 3 elements"));
    o.error_text_bytes = 9;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &r), FDC_E_INVAL);
    assert_int_equal(strlen(why), 8); /* truncated, with its NUL */
    o.error_text_bytes = sizeof(why);
    for (int i = 0; i < 32; i++)
        assert_int_equal(fdc_submit_text(f->s, "hold", 4, NULL, NULL, &r), 0);
    assert_int_equal(fdc_submit_text(f->s, "x", 1, NULL, &o, &r), FDC_E_FULL);
    assert_non_null(strstr(why, "32 of 32 requests are open"));
    end(f);
}

static void
t_version(void **state)
{
    char text[16];

    (void)state;
    assert_int_equal(fdc_version(), FDC_VERSION);
    snprintf(text, sizeof(text), "%u.%u.%u", fdc_version() >> 16,
        fdc_version() >> 8 & 255, fdc_version() & 255);
    assert_string_equal(fdc_version_string(), text);
    assert_string_equal(FDC_VERSION_STRING, text);
}

/* An older program's event is smaller; an event without a size is refused. */
static void
t_event_size(void **state)
{
    struct fix *f = *state;
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;

    begin(f, 0);
    assert_int_equal(fdc_submit_text(f->s, "hold", 4, NULL, NULL, &r), 0);
    ev.size = 0;
    assert_int_equal(fdc_next(r, &ev, 5000), FDC_E_INVAL);
    ev.size = sizeof(ev);
    assert_int_equal(fdc_next(r, &ev, 5000), 1);
    assert_int_equal(ev.size, sizeof(ev));
    fdc_req_free(r);
    end(f);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, NULL)

int
main(void)
{
    const struct CMUnitTest tests[] = { T(t_room_wakes), T(t_room_polls),
        T(t_room_while_reading), T(t_many), T(t_many_bad), T(t_last_freed),
        T(t_info_loading), T(t_null_element), T(t_error_texts), T(t_open_texts),
        T(t_no_descriptors), T(t_texts), T(t_version), T(t_event_size) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
