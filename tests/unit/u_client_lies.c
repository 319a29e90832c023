/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* libfdclient with a daemon that violates the protocol (mock_gate.h); f_client
 * generates random violations. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "libclient/fdclient.h"
#include "tests/unit/count_fds.h"
#include "tests/unit/mock_gate.h"

#define FLOOD_SLOTS (1u << 19)

static struct mock m;

/* Opens a session with the daemon that m describes. */
static fdc_t *
open_mock(void)
{
    struct fdc_open_opts o = { .size = sizeof(o),
        .path = m.path,
        .max_unread_bytes = 1u << 30 };
    fdc_t *s = NULL;

    mock_start(&m);
    assert_int_equal(fdc_open(&o, &s), 0);
    return s;
}

static fdc_t *
begin(uint32_t flood, int reason)
{
    mock_init(&m);
    m.flood = flood;
    m.reason = reason;
    if (flood)
        m.cq_slots = FLOOD_SLOTS;
    return open_mock();
}

static void
end(fdc_t *s)
{
    fdc_close(s);
    mock_stop(&m);
}

static void
open_lie(int lie, int want)
{
    struct fdc_open_opts o = { .size = sizeof(o), .path = m.path };
    fdc_t *s = NULL;
    int n_fd, rc;

    n_fd = count_fds();
    mock_init(&m);
    m.lie = lie;
    mock_start(&m);
    rc = fdc_open(&o, &s);
    if (rc == 0)
        fdc_close(s);
    mock_stop(&m);
    assert_int_equal(rc, want);
    assert_int_equal(count_fds(), n_fd);
}

/* Regression: a daemon, or a process in its place, truncated the file:
 * the program died of SIGBUS. */
static void
t_unsealed(void **state)
{
    (void)state;
    open_lie(4, FDC_E_PROTO);
}

/* Regression: with a pipe without a reader as the doorbell the program died of SIGPIPE. */
static void
t_doorbell(void **state)
{
    (void)state;
    open_lie(5, FDC_E_PROTO);
}

/* Regression: the first submit walked through 2^31 slots that were never used. */
static void
t_cursors(void **state)
{
    (void)state;
    open_lie(6, FDC_E_PROTO);
}

/* Regression: the program mapped all that the file had before the arena. */
static void
t_gap(void **state)
{
    (void)state;
    open_lie(7, FDC_E_PROTO);
}

static void
t_empty_welcome(void **state)
{
    (void)state;
    open_lie(8, FDC_E_DISCONNECTED);
}

static void
t_read_only(void **state)
{
    (void)state;
    open_lie(9, FDC_E_PROTO);
}

/* Sends a request that is answered by this record, then DONE. */
static fdc_req_t *
submit_record(fdc_t *s, struct fdp_rec h, const void *payload)
{
    unsigned char text[256] = "rec ";
    fdc_req_t *r = NULL;

    memcpy(text + 4, &h, sizeof(h));
    memcpy(text + 4 + sizeof(h), payload, h.len);
    assert_int_equal(fdc_submit_text(s, (const char *)text, 4 + sizeof(h) + h.len, NULL,
                         NULL, &r),
        0);
    return r;
}

/* Regression: codes that must not end a request: the reader took 0 for
 * success and AGAIN for "not yet". */
static void
t_error_codes(void **state)
{
    static const int codes[][2] = { { 0, FDC_E_INTERNAL }, { 7, FDC_E_INTERNAL },
        { FDC_E_AGAIN, FDC_E_INTERNAL }, { FDC_E_TIMEOUT, FDC_E_INTERNAL },
        { FDC_E_BAD_PARAM, FDC_E_BAD_PARAM }, { -777, -777 } };
    fdc_t *s = begin(0, FDC_E_SLOW);

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        struct fdc_error e = { .code = codes[i][0] };
        fdc_req_t *r = submit_record(s,
            (struct fdp_rec){ .type = FDC_T_ERROR, .len = sizeof(e) }, &e);
        char text[8];

        assert_int_equal(fdc_read_text(r, text, sizeof(text), 5000), codes[i][1]);
        fdc_req_free(r);
    }
    end(s);
}

static void
ends_session(struct fdp_rec h, const void *payload)
{
    fdc_t *s = begin(0, FDC_E_SLOW);
    fdc_req_t *r = submit_record(s, h, payload);
    struct fdc_event e = FDC_EVENT_INIT;

    assert_int_equal(fdc_next(r, &e, 5000), 1);
    assert_int_equal(e.type, FDC_T_ERROR);
    assert_int_equal(e.error->code, FDC_E_PROTO);
    assert_int_equal(fdc_next(r, &e, 5000), 0);
    assert_int_equal(fdc_state(s, NULL), FDC_E_PROTO);
    end(s);
}

/* The sample number, which a program uses as an index of its own array. */
static void
t_sample(void **state)
{
    uint32_t id = 5;

    (void)state;
    ends_session((struct fdp_rec){ .type = FDC_T_IDS, .sample = 1, .len = 4 }, &id);
}

/* A program may read the first entry without checking the count. */
static void
t_no_logprobs(void **state)
{
    (void)state;
    ends_session((struct fdp_rec){ .type = FDC_T_LOGPROBS }, "");
}

/* An event of the session is not an event of a request. */
static void
t_event(void **state)
{
    fdc_t *s = begin(0, FDC_E_SLOW);
    struct fdp_event ev = { FDP_EV_DOWN, 0 };
    struct fdc_event e = FDC_EVENT_INIT;
    fdc_req_t *r;

    (void)state;
    r = submit_record(s, (struct fdp_rec){ .type = FDP_T_EVENT, .len = sizeof(ev) }, &ev);
    assert_int_equal(fdc_next(r, &e, 5000), 1);
    assert_int_equal(e.type, FDC_T_DONE);
    end(s);
}

static int
bye(fdc_t *s)
{
    struct fdc_event e = FDC_EVENT_INIT;
    fdc_req_t *r;

    assert_int_equal(fdc_submit_text(s, "bye", 3, NULL, NULL, &r), 0);
    while (fdc_next(r, &e, 5000) == 1 && e.type != FDC_T_ERROR)
        continue;
    assert_int_equal(e.type, FDC_T_ERROR);
    return e.error->code;
}

/* Regression: when the session had ended with E_LIMIT, submit took it for a full queue
 * and waited in a busy loop. */
static void
t_over_limit(void **state)
{
    fdc_t *s = begin(0, FDC_E_LIMIT);
    struct fdc_submit_opts o = { .size = sizeof(o), .submit_timeout_ms = 1000 };
    fdc_req_t *r;

    (void)state;
    assert_int_equal(bye(s), FDC_E_LIMIT);
    assert_int_equal(fdc_submit_text(s, "more", 4, NULL, &o, &r), FDC_E_LIMIT);
    end(s);
}

/* A session does not end because there is nothing to read yet. */
static void
t_over_again(void **state)
{
    fdc_t *s = begin(0, FDC_E_AGAIN);

    (void)state;
    assert_int_equal(bye(s), FDC_E_DISCONNECTED);
    assert_int_equal(fdc_state(s, NULL), FDC_E_DISCONNECTED);
    end(s);
}

/* Regression: a call returned only when nothing was left to
 * read, however late that was. */
static void
t_flood(void **state)
{
    fdc_t *s = begin(FLOOD_SLOTS - 2, FDC_E_SLOW);
    uint32_t *ids;
    size_t n;

    (void)state;
    assert_int_equal(fdc_tokenize(s, "x", 1, 0, &ids, &n, 5), FDC_E_TIMEOUT);
    end(s);
}

/* Fields that programs print as text and lists that they walk. */
static void
t_info(void **state)
{
    struct fdc_model_info model = { .size = sizeof(model) };
    struct fdc_info i = { .size = sizeof(i), .model = &model };
    fdc_t *s;

    (void)state;
    mock_init(&m);
    memset(m.info.model_name, 'x', sizeof(m.info.model_name));
    m.info.n_eos = 1000;
    s = open_mock();
    assert_int_equal(fdc_info(s, &i, 5000), 0);
    assert_int_equal(model.n_eos, 8);
    assert_int_equal(strnlen(model.name, 64), 63);
    end(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(t_unsealed),
        cmocka_unit_test(t_doorbell), cmocka_unit_test(t_cursors), cmocka_unit_test(t_gap),
        cmocka_unit_test(t_empty_welcome), cmocka_unit_test(t_read_only),
        cmocka_unit_test(t_error_codes), cmocka_unit_test(t_sample),
        cmocka_unit_test(t_no_logprobs), cmocka_unit_test(t_event),
        cmocka_unit_test(t_over_limit), cmocka_unit_test(t_over_again),
        cmocka_unit_test(t_flood), cmocka_unit_test(t_info) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
