/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* libfdclient with the mock gate (mock_gate.h). */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/fdclient.h"
#include "tests/unit/mock_gate.h"

/* ---- counts allocations of this thread ----------------------------------- */

#if !defined(FDD_SANITIZED) && defined(__GLIBC__)
#define COUNT_MALLOC 1
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
static __thread int counting, n_alloc;

void *
malloc(size_t n)
{
    n_alloc += counting;
    return __libc_malloc(n);
}

void *
calloc(size_t n, size_t m)
{
    n_alloc += counting;
    return __libc_calloc(n, m);
}

void *
realloc(void *p, size_t n)
{
    n_alloc += counting;
    return __libc_realloc(p, n);
}
#endif

/* ---- fixture ------------------------------------------------------------- */

struct fix {
    struct mock m;
    fdc_t *s;
};

static int
open_mock(struct fix *f, uint32_t max_unread)
{
    struct fdc_open_opts o = { .size = sizeof(o),
        .path = f->m.path,
        .name = "u_client",
        .max_unread_bytes = max_unread,
        .connect_timeout_ms = 2000 };
    return fdc_open(&o, &f->s);
}

static void
begin(struct fix *f)
{
    mock_start(&f->m);
    assert_int_equal(open_mock(f, 0), 0);
}

static void
end(struct fix *f)
{
    fdc_close(f->s);
    mock_stop(&f->m);
}

static int
setup(void **state)
{
    static struct fix f;

    mock_init(&f.m);
    f.s = NULL;
    *state = &f;
    return 0;
}

static fdc_req_t *
submit_as(fdc_t *s, const char *text, uint32_t max_new, uint32_t flags, int8_t logprobs)
{
    struct fdc_submit_opts o = { .size = sizeof(o), .submit_timeout_ms = 5000 };
    struct fdc_params p;
    fdc_req_t *r = NULL;

    fdc_params_init(&p);
    p.max_new = max_new;
    p.flags = flags;
    p.logprobs = logprobs;
    assert_int_equal(fdc_submit_text(s, text, strlen(text), &p, &o, &r), 0);
    assert_non_null(r);
    return r;
}

static fdc_req_t *
submit(fdc_t *s, const char *text, uint32_t max_new, uint32_t flags)
{
    return submit_as(s, text, max_new, flags, -1);
}

/* Reads r to its end. Returns 0 for DONE, else the error's code. */
static int
finish(fdc_req_t *r, uint32_t *ret_tokens)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    uint32_t n = 0;
    int rc, end_code = 1;

    while ((rc = fdc_next(r, &ev, 5000)) > 0) {
        assert_int_equal(end_code, 1);
        if (ev.type == FDC_T_IDS)
            n += ev.n;
        if (ev.type == FDC_T_DONE)
            end_code = 0;
        if (ev.type == FDC_T_ERROR)
            end_code = ev.error->code;
    }
    assert_int_equal(rc, 0);
    assert_int_not_equal(end_code, 1);
    if (ret_tokens)
        *ret_tokens = n;
    return end_code;
}

static void
t_open(void **state)
{
    struct fix *f = *state;
    struct fdc_model_info model = { .size = sizeof(model) };
    struct fdc_info i = { .size = sizeof(i), .model = &model };
    uint64_t ns = 0;
    uint32_t flags = 9;

    begin(f);
    assert_int_equal(__atomic_load_n(&f->m.n_attach, __ATOMIC_ACQUIRE), 1);
    assert_string_equal(f->m.hello.name, "u_client");
    assert_int_equal(fdc_info(f->s, &i, 2000), 0);
    assert_int_equal(model.vocab, 777);
    assert_string_equal(model.name, "mock");
    assert_int_equal(i.max_inflight, 32);
    assert_int_equal(i.max_request_bytes, f->m.arena_bytes);
    assert_int_equal(fdc_ping(f->s, 0, &ns, 2000), 0);
    assert_true(ns > 0 && ns < 2000000000u);
    assert_int_equal(fdc_state(f->s, &flags), 0);
    assert_int_equal(flags, 0);
    end(f);
}

static void
t_open_fails(void **state)
{
    struct fix *f = *state;
    struct fdc_open_error e = { .size = sizeof(e) };
    struct fdc_open_opts o = { .size = sizeof(o),
        .path = "/nonexistent/sock",
        .ret_error = &e };
    static const int lies[][2] = { { 1, FDC_E_PROTO }, { 2, FDC_E_PROTO },
        { 3, FDC_E_VERSION }, { 10, FDC_E_VERSION } };
    char text[240];

    assert_int_equal(fdc_open(&o, NULL), FDC_E_INVAL);
    assert_int_equal(fdc_open(&o, &f->s), FDC_E_CONNECT);
    assert_int_equal(e.os_error, ENOENT);
    f->m.refuse = FDC_E_LIMIT;
    mock_start(&f->m);
    o.path = f->m.path;
    assert_int_equal(fdc_open(&o, &f->s), FDC_E_LIMIT);
    assert_int_equal(e.retry_after_ms, 77);
    /* Regression: closing a socket with an unread message resets
     * it, which hid the reason. */
    __atomic_store_n(&f->m.unread, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 100; i++)
        assert_int_equal(fdc_open(&o, &f->s), FDC_E_LIMIT);
    mock_stop(&f->m);
    f->m.blob = NULL;
    for (int i = 0; i < 4; i++) {
        mock_init(&f->m);
        f->m.lie = lies[i][0];
        mock_start(&f->m);
        assert_int_equal(fdc_open(&o, &f->s), lies[i][1]);
        mock_stop(&f->m);
    }
    assert_true(e.major == 2 && e.minor == 0); /* the program can see the version */
    (void)snprintf(text, sizeof(text),
        "the daemon at %s speaks protocol 2.0, this program's library 3.0", f->m.path);
    assert_string_equal(e.text, text);
    assert_null(f->s);
}

static const struct fdp_item *
item(const struct mock *m, uint32_t *at, int type, uint32_t len)
{
    const struct fdp_item *it = (const void *)(m->blob + *at);
    assert_int_equal(it->type, type);
    assert_int_equal(it->rsv, 0);
    assert_int_equal(it->len, len);
    *at += (uint32_t)FDP_ITEM_SPAN(len);
    assert_true(*at <= m->last.len);
    return it + 1;
}

static void
t_record(void **state)
{
    static const char *const stops[] = { "\n\n", "endless" };
    static const uint32_t ids[] = { 7, 8, 9 }, prior[] = { 11, 12 };
    static const struct fdc_bias bias[] = { { 3, -1.5f }, { 8, 2 }, { 3, 0.5f } };
    static const struct fdc_bias sums[] = { { 3, -1.0f }, { 8, 2 } };
    struct fix *f = *state;
    struct fdc_params p;
    struct fdc_submit_opts o = { .size = sizeof(o),
        .priority = -4,
        .salt[15] = 0xee,
        .stream_interval = 3,
        .user_ptr = &p };
    fdc_req_t *r;
    uint32_t at = 0;

    begin(f);
    fdc_params_init(&p);
    p.max_new = 3;
    p.flags = 0;
    p.seed = 0x1122334455667788u;
    p.temperature = 0.5f;
    p.top_k = 40;
    p.n = 2;
    p.stop = stops;
    p.n_stop = 2;
    p.stop_ids = ids;
    p.n_stop_ids = 3;
    p.prior_ids = prior;
    p.n_prior = 2;
    p.bias = bias;
    p.n_bias = 3;
    assert_int_equal(fdc_submit_ids(f->s, ids, 3, &p, &o, &r), 0);
    assert_ptr_equal(fdc_req_user(r), &p);
    assert_int_equal(fdc_req_tokens(r, 1), 2);
    assert_int_equal(finish(r, NULL), 0);
    assert_int_equal(fdc_req_tokens(r, 0), 5);
    assert_int_equal(fdc_req_tokens(r, 1), 5);
    assert_int_equal(fdc_req_tokens(r, 2), 0);
    assert_int_equal(__atomic_load_n(&f->m.n_submit, __ATOMIC_ACQUIRE), 1);
    assert_int_equal(f->m.last.op, FDP_OP_SUBMIT);
    assert_int_equal(f->m.last.n, 2);
    assert_int_equal(f->m.last.seed, p.seed);
    assert_int_equal(f->m.last.top_k, 40);
    assert_int_equal(f->m.last.priority, -4);
    assert_int_equal(f->m.last.stream_interval, 3);
    assert_int_equal(f->m.last.salt[15], 0xee);
    assert_int_equal(f->m.last.n_prior, 2);
    assert_true(f->m.last.temperature == 0.5f && f->m.last.top_p == 0);
    assert_int_equal(f->m.last.set,
        FDP_S_MAX_NEW | FDP_S_SEED | FDP_S_TEMPERATURE | FDP_S_TOP_K);
    assert_int_equal(f->m.last.tag, fdc_req_tag(r));
    assert_memory_equal(item(&f->m, &at, FDP_IT_PROMPT_IDS, 12), ids, 12);
    assert_memory_equal(item(&f->m, &at, FDP_IT_PRIOR_IDS, 8), prior, 8);
    assert_memory_equal(item(&f->m, &at, FDP_IT_STOP_STRING, 2), "\n\n\0\0\0\0\0\0", 8);
    assert_memory_equal(item(&f->m, &at, FDP_IT_STOP_STRING, 7), "endless\0", 8);
    assert_memory_equal(item(&f->m, &at, FDP_IT_STOP_IDS, 12), ids, 12);
    assert_memory_equal(item(&f->m, &at, FDP_IT_LOGIT_BIAS, 16), sums, 16);
    assert_int_equal(at, f->m.last.len);
    fdc_req_free(r);
    end(f);
}

static void
t_params_size(void **state)
{
    struct fix *f = *state;
    struct {
        struct fdc_params p;
        uint32_t more[4];
    } big;
    fdc_req_t *r;

    begin(f);
    memset(&big, 0, sizeof(big));
    fdc_params_init_sized(&big.p, sizeof(big));
    big.p.max_new = 1;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &big.p, NULL, &r), 0);
    fdc_req_free(r);
    big.more[1] = 1;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &big.p, NULL, &r), FDC_E_UNSUPPORTED);
    big.p.size = 4;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &big.p, NULL, &r), FDC_E_INVAL);
    fdc_params_init(&big.p);
    big.p.n_stop = 1;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &big.p, NULL, &r), FDC_E_INVAL);
    end(f);
}

static void
t_events(void **state)
{
    static const uint8_t want[] = { FDC_T_ACCEPTED, FDC_T_IDS, FDC_T_LOGPROBS, FDC_T_TEXT,
        FDC_T_IDS, FDC_T_LOGPROBS, FDC_T_TEXT, FDC_T_CHOICE_END, FDC_T_DONE };
    struct fix *f = *state;
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;

    begin(f);
    r = submit_as(f->s, "xyz", 2, FDC_F_TEXT, 1);
    for (unsigned i = 0; i < sizeof(want); i++) {
        assert_int_equal(fdc_next(r, &ev, 5000), 1);
        assert_int_equal(ev.type, want[i]);
        if (i == 0)
            assert_int_equal(ev.accepted->seed, 42);
        if (i == 4)
            assert_true(ev.n == 1 && ev.position == 1 && ev.ids[0] == 1001);
        if (i == 5)
            assert_true(ev.n == 2 && ev.logprobs[1].logprob == -1.5f);
        if (i == 6)
            assert_true(ev.n == 3 && ev.position == 3 && !memcmp(ev.text, "t1 ", 3));
        if (i == 7)
            assert_true(ev.choice_end->finish == FDC_FIN_LENGTH);
    }
    assert_int_equal(ev.done->output_tokens, 2);
    assert_int_equal(fdc_next(r, &ev, 5000), 0);
    fdc_req_free(r);
    r = submit(f->s, "err", 2, 0);
    assert_int_equal(fdc_next(r, &ev, 5000), 1);
    assert_int_equal(ev.type, FDC_T_ERROR);
    assert_int_equal(ev.error->code, FDC_E_BAD_PARAM);
    assert_string_equal(fdc_detail_name(ev.error->detail), "top_p");
    fdc_req_free(r);
    end(f);
}

static void
t_read_text(void **state)
{
    struct fix *f = *state;
    char got[64], part[2];
    size_t n = 0;
    int64_t k;
    fdc_req_t *r;

    begin(f);
    r = submit(f->s, "drip", 5, FDC_F_TEXT);
    while ((k = fdc_read_text(r, part, sizeof(part), 5000)) > 0) {
        memcpy(got + n, part, (size_t)k);
        n += (size_t)k;
    }
    assert_int_equal(k, 0);
    assert_int_equal(fdc_read_text(r, part, sizeof(part), 0), 0);
    got[n] = 0;
    assert_string_equal(got, "t0 t1 t2 t3 t4 ");
    fdc_req_free(r);
    r = submit(f->s, "err", 1, FDC_F_TEXT);
    assert_int_equal(fdc_read_text(r, part, 2, 5000), FDC_E_BAD_PARAM);
    assert_int_equal(fdc_read_text(r, part, 2, 5000), FDC_E_BAD_PARAM);
    fdc_req_free(r);
    end(f);
}

/* Prompts of every length pass through a small arena and small
 * rings in both directions. */
static void
t_wrap(void **state)
{
    enum { N = 1500, AHEAD = 5 };
    struct fix *f = *state;
    struct fdc_submit_opts o = { .size = sizeof(o), .submit_timeout_ms = 5000 };
    struct fdc_params p;
    fdc_req_t *r[AHEAD] = { NULL };
    static char text[AHEAD][3000];
    size_t len[AHEAD];
    uint32_t x = 12345;

    f->m.sq_slots = 4;
    f->m.cq_slots = 128;
    f->m.arena_bytes = 8000;
    begin(f);
    fdc_params_init(&p);
    for (int i = 0; i < N + AHEAD; i++) {
        int a = i % AHEAD;
        if (r[a]) {
            struct fdc_event ev = FDC_EVENT_INIT;
            size_t at = 0;
            while (fdc_next(r[a], &ev, 5000) > 0)
                if (ev.type == FDC_T_TEXT) {
                    assert_int_equal(ev.position, at);
                    assert_true(at + ev.n <= len[a]);
                    assert_memory_equal(ev.text, text[a] + at, ev.n);
                    at += ev.n;
                }
            assert_int_equal(at, len[a]);
            fdc_req_free(r[a]);
            r[a] = NULL;
        }
        if (i >= N)
            continue;
        x = x * 1664525u + 1013904223u;
        len[a] = 4 + (x >> 8) % (sizeof(text[a]) - 4);
        memcpy(text[a], "echo", 4);
        for (size_t j = 4; j < len[a]; j++)
            text[a][j] = (char)(x >> (j % 24)) ^ (char)j;
        assert_int_equal(fdc_submit_text(f->s, text[a], len[a], &p, &o, &r[a]), 0);
    }
    assert_int_equal(__atomic_load_n(&f->m.n_submit, __ATOMIC_ACQUIRE), N);
    end(f);
}

static void
t_wait_any(void **state)
{
    enum { N = 24 };
    struct fix *f = *state;
    fdc_req_t *r[N], *any;
    struct fdc_event ev = FDC_EVENT_INIT;
    int ends[N] = { 0 }, over = 0, rc;

    begin(f);
    assert_int_equal(fdc_wait_any(f->s, &any, -1), 0);
    for (int i = 0; i < N; i++) {
        r[i] = submit(f->s, i % 2 ? "drip" : "fast", 1 + (uint32_t)i, FDC_F_TEXT);
        fdc_req_set_user(r[i], &ends[i]);
    }
    while ((rc = fdc_wait_any(f->s, &any, 5000)) > 0) {
        assert_int_equal(fdc_next(any, &ev, 0), 1);
        if (ev.type == FDC_T_DONE || ev.type == FDC_T_ERROR) {
            ++*(int *)fdc_req_user(any);
            over++;
        }
    }
    assert_int_equal(rc, 0);
    assert_int_equal(over, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(ends[i], 1);
        assert_int_equal(fdc_req_tokens(r[i], 0), 1 + i);
        fdc_req_free(r[i]);
    }
    end(f);
}

/* With `more` set the next event is available; it is 0 in a request's last event. */
static void
t_more(void **state)
{
    struct fix *f = *state;
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;
    int rc, n_more = 0;

    begin(f);
    r = submit(f->s, "hold", 1, 0);
    assert_int_equal(fdc_next(r, &ev, 5000), 1);
    assert_int_equal(ev.more, 0);
    fdc_req_free(r);
    r = submit(f->s, "fast", 100, FDC_F_TEXT);
    ev.more = 0;
    while ((rc = fdc_next(r, &ev, ev.more ? 0 : 5000)) > 0) {
        n_more += ev.more != 0;
        assert_true(ev.more <= 1);
        assert_true(!ev.more || ev.type != FDC_T_DONE);
    }
    assert_int_equal(rc, 0);
    assert_true(n_more >= 100); /* TEXT arrives together with IDS */
    fdc_req_free(r);
    end(f);
}

static void
t_cancel(void **state)
{
    struct fix *f = *state;
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;

    begin(f);
    r = submit(f->s, "hold", 1, 0);
    assert_int_equal(fdc_next(r, &ev, 5000), 1);
    assert_int_equal(fdc_next(r, &ev, 0), FDC_E_AGAIN);
    assert_int_equal(fdc_next(r, &ev, 20), FDC_E_TIMEOUT);
    assert_int_equal(fdc_cancel(r), 0);
    assert_int_equal(finish(r, NULL), FDC_E_CANCELLED);
    assert_int_equal(fdc_cancel(r), 0);
    fdc_req_free(r);
    /* Requests freed while open, far more than there are tags. */
    for (int i = 0; i < 200; i++)
        fdc_req_free(submit(f->s, i % 2 ? "hold" : "drip", 50, FDC_F_TEXT));
    assert_int_equal(finish(submit(f->s, "x", 3, 0), NULL), 0);
    end(f);
}

static void
t_full(void **state)
{
    static char big[70000];
    struct fix *f = *state;
    struct fdc_submit_opts o = { .size = sizeof(o) };
    struct fdc_params p;
    fdc_req_t *r[32], *more = NULL;

    begin(f);
    fdc_params_init(&p);
    memset(big, 'x', sizeof(big));
    assert_int_equal(fdc_submit_text(f->s, big, sizeof(big), &p, &o, &more), FDC_E_ARENA);
    for (int i = 0; i < 32; i++)
        r[i] = submit(f->s, "hold", 1, 0);
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &more), FDC_E_FULL);
    o.submit_timeout_ms = 20;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &more), FDC_E_TIMEOUT);
    fdc_cancel(r[3]);
    o.submit_timeout_ms = 5000;
    assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, &o, &more), 0);
    fdc_req_free(more);
    for (int i = 0; i < 32; i++)
        fdc_req_free(r[i]);
    /* The gate takes no requests: the arena is used up first. */
    assert_int_equal(fdc_ping(f->s, 0, NULL, 5000), 0);
    __atomic_store_n(&f->m.stall, 1, __ATOMIC_RELEASE);
    o.submit_timeout_ms = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(fdc_submit_text(f->s, big, 20000, &p, &o, &r[i]), 0);
    assert_int_equal(fdc_submit_text(f->s, big, 20000, &p, &o, &more), FDC_E_FULL);
    o.submit_timeout_ms = 20;
    assert_int_equal(fdc_submit_text(f->s, big, 20000, &p, &o, &more), FDC_E_TIMEOUT);
    __atomic_store_n(&f->m.stall, 0, __ATOMIC_RELEASE);
    o.submit_timeout_ms = 5000;
    assert_int_equal(fdc_submit_text(f->s, big, 20000, &p, &o, &r[3]), 0);
    for (int i = 0; i < 4; i++)
        fdc_req_free(r[i]);
    end(f);
}

/* One request is not read while another is: its own limit ends it, and no other. */
static void
t_unread_limit(void **state)
{
    struct fix *f = *state;
    fdc_req_t *lazy, *r;
    struct fdc_event ev = FDC_EVENT_INIT;
    uint32_t n;

    mock_start(&f->m);
    assert_int_equal(open_mock(f, 8000), 0);
    lazy = submit(f->s, "drip", 100000, FDC_F_TEXT);
    r = submit(f->s, "drip", 400, 0);
    assert_int_equal(finish(r, &n), 0);
    assert_int_equal(n, 400);
    fdc_req_free(r);
    n = 0;
    while (fdc_next(lazy, &ev, 5000) > 0 && ev.type != FDC_T_ERROR)
        n++;
    assert_int_equal(ev.type, FDC_T_ERROR);
    assert_int_equal(ev.error->code, FDC_E_UNREAD);
    assert_true(n > 100 && n < 260);
    fdc_req_free(lazy);
    assert_int_equal(fdc_ping(f->s, 0, NULL, 5000), 0);
    assert_int_equal(__atomic_load_n(&f->m.n_cancel, __ATOMIC_RELAXED), 1);
    end(f);
}

static void
t_no_malloc(void **state)
{
#ifdef COUNT_MALLOC
    struct fix *f = *state;
    fdc_req_t *r[8];
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *any;
    int over = 0;
    uint64_t tokens = 0;

    begin(f);
    for (int i = 0; i < 8; i++)
        r[i] = submit_as(f->s, "x", 5000, FDC_F_TEXT, i % 2 ? 1 : -1);
    n_alloc = 0;
    counting = 1;
    while (over < 8 && fdc_wait_any(f->s, &any, 5000) > 0)
        while (fdc_next(any, &ev, 0) > 0) {
            tokens += ev.type == FDC_T_IDS ? ev.n : 0;
            over += ev.type == FDC_T_DONE;
        }
    counting = 0;
    assert_int_equal(tokens, 8 * 5000);
    assert_int_equal(n_alloc, 0);
    counting = 1;
    fdc_req_free(submit(f->s, "x", 1, 0));
    counting = 0;
    assert_true(n_alloc > 0); /* the counter counts */
    for (int i = 0; i < 8; i++)
        fdc_req_free(r[i]);
    end(f);
#else
    (void)state;
    skip();
#endif
}

static void
ends_with(struct fix *f, const char *prompt, int why, uint32_t n_first)
{
    fdc_req_t *other, *r, *more;
    uint32_t n = 0, flags;
    char text[160] = "";
    struct fdc_submit_opts o = { .size = sizeof(o),
        .error_text = text,
        .error_text_bytes = sizeof(text) };

    begin(f);
    other = submit(f->s, "hold", 1, 0);
    r = submit(f->s, prompt, 1, 0);
    assert_int_equal(finish(r, &n), why);
    assert_int_equal(n, n_first);
    assert_int_equal(finish(other, NULL), why);
    /* Regression: a daemon that had ended gave "the daemon is draining ...:
     * 0 of 32 requests are open" */
    assert_int_equal(fdc_submit_text(f->s, "x", 1, NULL, &o, &more), why);
    assert_non_null(strstr(text, ": the session is over, open another one"));
    assert_int_equal(fdc_ping(f->s, 0, NULL, 1000), why);
    assert_int_equal(fdc_wait_any(f->s, &more, 1000), why);
    assert_int_equal(fdc_dispatch(f->s), why);
    assert_int_equal(fdc_state(f->s, &flags), why);
    fdc_req_free(r);
    fdc_req_free(other);
    end(f);
}

static void
t_session_ends(void **state)
{
    struct fix *f = *state;

    ends_with(f, "die", FDC_E_DISCONNECTED, 1);
    mock_init(&f->m);
    ends_with(f, "bye", FDC_E_SLOW, 1);
    mock_init(&f->m);
    ends_with(f, "bad", FDC_E_PROTO, 0);
}

/* ---- event loops and threads --------------------------------------------- */

static int
loop_once(struct fix *f, int *ret_tokens)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;
    int rc, over = 0;

    while ((rc = fdc_dispatch(f->s)) > 0)
        while (fdc_wait_any(f->s, &r, 0) > 0)
            while (fdc_next(r, &ev, 0) > 0) {
                *ret_tokens += ev.type == FDC_T_IDS ? (int)ev.n : 0;
                over += ev.type == FDC_T_DONE || ev.type == FDC_T_ERROR;
            }
    return rc < 0 ? rc : over;
}

static void
t_fd(void **state)
{
    struct fix *f = *state;
    struct pollfd p = { .events = POLLIN };
    int over = 0, tokens = 0, waits = 0;

    begin(f);
    p.fd = fdc_fd(f->s);
    assert_true(p.fd >= 0);
    submit(f->s, "drip", 30, FDC_F_TEXT);
    submit(f->s, "drip", 20, 0);
    while (over < 2) {
        int rc = loop_once(f, &tokens);
        assert_true(rc >= 0);
        over += rc;
        if (over < 2) {
            assert_int_equal(poll(&p, 1, 5000), 1);
            waits++;
        }
    }
    assert_int_equal(tokens, 50);
    assert_true(waits >= 10);
    assert_true(__atomic_load_n(&f->m.n_bytes, __ATOMIC_RELAXED) >= 10);
    assert_int_equal(loop_once(f, &tokens), 0);
    assert_int_equal(poll(&p, 1, 0), 0);
    /* The end of the gate wakes the loop too. */
    mock_stop(&f->m);
    assert_int_equal(poll(&p, 1, 5000), 1);
    assert_int_equal(fdc_dispatch(f->s), FDC_E_DISCONNECTED);
    fdc_close(f->s);
}

struct worker {
    struct fix *f;
    uint32_t id, done;
};

static void *
worker_main(void *arg)
{
    struct worker *w = arg;
    struct fdc_event ev = FDC_EVENT_INIT;

    for (uint32_t i = 0; i < 40; i++) {
        uint32_t want = 1 + (i * 7 + w->id) % 19, n = 0;
        struct fdc_submit_opts o = { .size = sizeof(o),
            .submit_timeout_ms = -1,
            .exclusive_reader = 1 };
        fdc_req_t *r;
        struct fdc_params p;
        fdc_params_init(&p);
        p.max_new = want;
        if (fdc_submit_text(w->f->s, i % 4 ? "fast" : "drip", 4, &p, &o, &r))
            return NULL;
        if (i % 5 == 4)
            fdc_cancel(r);
        while (fdc_next(r, &ev, 5000) > 0) {
            if (ev.type == FDC_T_IDS)
                n += ev.n;
            if (ev.type == FDC_T_DONE ? n == want
                                      : ev.type == FDC_T_ERROR && i % 5 == 4 &&
                        ev.error->code == FDC_E_CANCELLED)
                w->done++;
        }
        fdc_req_free(r);
    }
    return NULL;
}

static void
t_threads(void **state)
{
    enum { N = 6 };
    struct fix *f = *state;
    struct worker w[N];
    pthread_t th[N];
    struct pollfd p = { .events = POLLIN };
    int over = 0, tokens = 0;

    begin(f);
    p.fd = fdc_fd(f->s);
    for (uint32_t i = 0; i < N; i++) {
        w[i] = (struct worker){ f, i, 0 };
        assert_int_equal(pthread_create(&th[i], NULL, worker_main, &w[i]), 0);
    }
    for (uint32_t i = 0; i < N; i++) {
        pthread_join(th[i], NULL);
        assert_int_equal(w[i].done, 40);
    }
    /* An event loop runs while a thread blocks on its own request. */
    submit(f->s, "drip", 60, 0);
    w[0].done = 0;
    assert_int_equal(pthread_create(&th[0], NULL, worker_main, &w[0]), 0);
    while (over < 1) {
        int rc = loop_once(f, &tokens);
        assert_true(rc >= 0);
        over += rc;
        if (over < 1)
            assert_int_equal(poll(&p, 1, 5000), 1);
    }
    pthread_join(th[0], NULL);
    assert_int_equal(w[0].done, 40);
    assert_int_equal(tokens, 60);
    end(f);
}

static void *
next_main(void *arg)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r = arg;
    int rc;

    while ((rc = fdc_next(r, &ev, 20000)) > 0 && ev.type != FDC_T_DONE &&
        ev.type != FDC_T_ERROR)
        continue;
    return rc > 0 ? arg : NULL;
}

/* The daemon wakes one thread: when the thread that reads the ring leaves for good, the
 * next waiting thread takes its place. */
static void
t_handover(void **state)
{
    struct fix *f = *state;
    fdc_req_t *first, *rest;
    pthread_t th[2];
    struct timespec t0, t1;
    void *ok;

    begin(f);
    first = submit(f->s, "drip", 200, 0);
    rest = submit(f->s, "hold", 4, 0);
    assert_int_equal(pthread_create(&th[0], NULL, next_main, first), 0);
    usleep(50000); /* it reads the ring, for 200 ms */
    assert_int_equal(pthread_create(&th[1], NULL, next_main, rest), 0);
    pthread_join(th[0], &ok);
    assert_non_null(ok);
    usleep(50000);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    assert_int_equal(fdc_cancel(rest), 0);
    pthread_join(th[1], &ok);
    assert_non_null(ok);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    assert_true(t1.tv_sec - t0.tv_sec < 10); /* long before its own deadline */
    fdc_req_free(first);
    fdc_req_free(rest);
    end(f);
}

static void
t_fork(void **state)
{
    struct fix *f = *state;
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r, *x;
    pid_t pid;
    int st;

    begin(f);
    r = submit(f->s, "hold", 1, 0);
    assert_int_equal(fdc_next(r, &ev, 5000), 1);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int bad = fdc_next(r, &ev, 0) != FDC_E_FORKED;
        bad |= fdc_submit_text(f->s, "x", 1, NULL, NULL, &x) != FDC_E_FORKED;
        bad |= fdc_cancel(r) != FDC_E_FORKED || fdc_dispatch(f->s) != FDC_E_FORKED;
        bad |= fdc_ping(f->s, 0, NULL, 100) != FDC_E_FORKED;
        fdc_req_free(r);
        fdc_close(f->s);
        _exit(bad ? 1 : 7);
    }
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFEXITED(st));
    assert_int_equal(WEXITSTATUS(st), 7);
    assert_int_equal(fdc_ping(f->s, 0, NULL, 2000), 0);
    assert_int_equal(fdc_next(r, &ev, 0), FDC_E_AGAIN);
    assert_int_equal(__atomic_load_n(&f->m.n_cancel, __ATOMIC_RELAXED), 0);
    fdc_req_free(r);
    end(f);
}

static void
t_tokens(void **state)
{
    struct fix *f = *state;
    char in[5000], *out;
    uint32_t *ids;
    size_t n, m;

    begin(f);
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (char)(i * 7 + 1);
    assert_int_equal(fdc_tokenize(f->s, in, sizeof(in), 0, &ids, &n, 5000), 0);
    assert_int_equal(n, sizeof(in));
    assert_int_equal(ids[4999], (unsigned char)in[4999]);
    assert_int_equal(fdc_detokenize(f->s, ids, n, 0, &out, &m, 5000), 0);
    assert_int_equal(m, sizeof(in));
    assert_memory_equal(in, out, m);
    assert_int_equal(out[m], 0);
    fdc_free(ids);
    fdc_free(out);
    assert_int_equal(fdc_tokenize(f->s, NULL, 0, 0, &ids, &n, 5000), 0);
    assert_int_equal(n, 0);
    fdc_free(ids);
    end(f);
}

/* fdc_tokenize() parses names of special tokens by default; requests do not. */
static void
t_special(void **state)
{
    static const uint32_t rows[][2] = { { 0, FDC_F_PARSE_SPECIAL },
        { FDC_F_PARSE_SPECIAL, FDC_F_PARSE_SPECIAL },
        { FDC_F_NO_SPECIAL, FDC_F_NO_SPECIAL | FDC_F_PARSE_SPECIAL }, { FDC_LITERAL, 0 },
        { FDC_LITERAL | FDC_F_NO_SPECIAL, FDC_F_NO_SPECIAL } };
    const struct fdc_span span = { 1, 1 };
    struct fix *f = *state;
    struct fdc_params p;
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;
    uint32_t *ids;
    size_t n;

    begin(f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(fdc_tokenize(f->s, "x", 1, rows[i][0], &ids, &n, 5000), 0);
        assert_int_equal(__atomic_load_n(&f->m.flags, __ATOMIC_ACQUIRE), rows[i][1]);
        fdc_free(ids);
    }
    assert_int_equal(fdc_tokenize_spans(f->s, "xy", 2, FDC_F_NO_SPECIAL, &span, 1, &ids,
                         &n, 5000),
        0);
    assert_int_equal(__atomic_load_n(&f->m.flags, __ATOMIC_ACQUIRE),
        FDC_F_NO_SPECIAL | FDC_F_PARSE_SPECIAL);
    assert_int_equal(n, 2);
    fdc_free(ids);
    assert_int_equal(fdc_tokenize_spans(f->s, "xy", 2, 0, NULL, 1, &ids, &n, 5000),
        FDC_E_INVAL);
    fdc_params_init(&p);
    assert_int_equal(p.flags & FDC_F_PARSE_SPECIAL, 0);
    for (int i = 0; i < 2; i++) {
        p.flags = i ? FDC_F_PARSE_SPECIAL : 0;
        p.max_new = 1;
        assert_int_equal(fdc_submit_text(f->s, "x", 1, &p, NULL, &r), 0);
        while (fdc_next(r, &ev, 5000) > 0)
            ;
        assert_int_equal(__atomic_load_n(&f->m.n_submit, __ATOMIC_ACQUIRE), i + 1);
        assert_int_equal(__atomic_load_n(&f->m.flags, __ATOMIC_ACQUIRE), p.flags);
        fdc_req_free(r);
    }
    end(f);
}

static void
t_names(void **state)
{
    (void)state;
    assert_string_equal(fdc_status_name(FDC_E_QUEUE_FULL), "E_QUEUE_FULL");
    assert_string_equal(fdc_strerror(FDC_E_CANCELLED), "cancelled");
    assert_string_equal(fdc_strerror(-9999), "unknown status");
    assert_int_equal(fdc_is_retryable(FDC_E_OVERLOAD), 1);
    assert_int_equal(fdc_is_retryable(FDC_E_PERM), 0);
    assert_int_equal(fdc_is_retryable(7), 0);
    assert_string_equal(fdc_status_name(7), "OK");
    assert_string_equal(fdc_status_name(-9999), "E_?");
    assert_string_equal(fdc_finish_name(FDC_FIN_ERROR), "error");
    assert_string_equal(fdc_finish_name(FDC_FIN_REPETITION + 1), "?");
    assert_string_equal(fdc_finish_name(FDC_FIN_STOP), "stop");
    for (uint32_t d = 1; d < FDP_D__N; d++)
        assert_string_not_equal(fdc_detail_name(d), "?");
    unsetenv("FDD_SOCKET");
    assert_int_equal(fdc_default_socket()[0], '/');
    setenv("FDD_SOCKET", "/x/y", 1);
    assert_string_equal(fdc_default_socket(), "/x/y");
    assert_int_equal(fdc_dispatch(NULL), FDC_E_INVAL);
    assert_int_equal(fdc_cancel(NULL), FDC_E_INVAL);
    fdc_close(NULL);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, NULL)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(t_open),
        T(t_open_fails),
        T(t_record),
        T(t_params_size),
        T(t_events),
        T(t_read_text),
        T(t_wrap),
        T(t_wait_any),
        T(t_more),
        T(t_cancel),
        T(t_full),
        T(t_unread_limit),
        T(t_no_malloc),
        T(t_session_ends),
        T(t_fd),
        T(t_threads),
        T(t_handover),
        T(t_fork),
        T(t_tokens),
        T(t_special),
        T(t_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
