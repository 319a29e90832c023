/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* TOKENS records at the client: two events each, and malformed records. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libclient/fdclient.h"
#include "tests/unit/mock_gate.h"

struct fix {
    struct mock m;
    fdc_t *s;
};

static void
begin(struct fix *f)
{
    struct fdc_open_opts o = { .size = sizeof(o), .connect_timeout_ms = 2000 };

    mock_init(&f->m);
    mock_start(&f->m);
    o.path = f->m.path;
    assert_int_equal(fdc_open(&o, &f->s), 0);
}

static void
end(struct fix *f)
{
    fdc_close(f->s);
    mock_stop(&f->m);
}

static fdc_req_t *
submit(struct fix *f, const void *prompt, size_t n, uint32_t max_new)
{
    struct fdc_submit_opts o = { .size = sizeof(o), .submit_timeout_ms = 5000 };
    struct fdc_params p;
    fdc_req_t *r = NULL;

    fdc_params_init(&p);
    p.max_new = max_new;
    assert_int_equal(fdc_submit_text(f->s, prompt, n, &p, &o, &r), 0);
    return r;
}

/* The mock sends one TOKENS record of len bytes of payload. */
static fdc_req_t *
submit_raw(struct fix *f, uint32_t text_off, uint16_t n_ids, uint16_t n_text, size_t len)
{
    struct fdp_tokens t = { text_off, n_ids, n_text };
    unsigned char b[4 + 4000] = "raw ";

    assert_true(len <= sizeof(b) - 4);
    for (size_t i = 0; i < len; i++)
        b[4 + i] = (unsigned char)('A' + i % 26);
    memcpy(b + 4, &t, len < sizeof(t) ? len : sizeof(t));
    return submit(f, b, 4 + len, 0);
}

static void
t_two_events(void **state)
{
    static const struct {
        uint32_t text_off;
        uint16_t n_ids, n_text;
    } v[] = { { 0, 1, 1 }, { 9, 1, 28 }, { 0xfffffff0u, 7, 4 }, { 70000, 3, 11 },
        { 1, 500, 1500 } };
    struct fix f;
    struct fdc_event ev = FDC_EVENT_INIT;

    (void)state;
    begin(&f);
    for (size_t k = 0; k < sizeof(v) / sizeof(v[0]); k++) {
        size_t n = 8 + 4 * (size_t)v[k].n_ids + v[k].n_text;
        fdc_req_t *r = submit_raw(&f, v[k].text_off, v[k].n_ids, v[k].n_text, n);
        size_t at = 8;

        assert_int_equal(fdc_next(r, &ev, 5000), 1);
        assert_int_equal(ev.type, FDC_T_IDS);
        assert_true(ev.n == v[k].n_ids && ev.position == 6 && ev.sample == 0);
        assert_int_equal((uintptr_t)ev.ids % 4, 0);
        for (uint32_t i = 0; i < ev.n * 4; i++, at++)
            assert_int_equal(((const unsigned char *)ev.ids)[i], 'A' + at % 26);
        assert_int_equal(fdc_next(r, &ev, 5000), 1);
        assert_int_equal(ev.type, FDC_T_TEXT);
        assert_true(ev.n == v[k].n_text && ev.position == v[k].text_off);
        for (uint32_t i = 0; i < ev.n; i++, at++)
            assert_int_equal(ev.text[i], 'A' + at % 26);
        assert_int_equal(at, n);
        assert_int_equal(fdc_req_tokens(r, 0), 6u + v[k].n_ids);
        assert_int_equal(fdc_next(r, &ev, 5000), 1);
        assert_int_equal(ev.type, FDC_T_DONE);
        assert_int_equal(fdc_next(r, &ev, 5000), 0);
        fdc_req_free(r);
    }
    end(&f);
}

static void
t_stream(void **state)
{
    static const uint8_t want[] = { FDC_T_ACCEPTED, FDC_T_IDS, FDC_T_TEXT, FDC_T_IDS,
        FDC_T_TEXT, FDC_T_CHOICE_END, FDC_T_DONE };
    struct fix f;
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;

    (void)state;
    begin(&f);
    r = submit(&f, "x", 1, 2);
    for (unsigned i = 0; i < sizeof(want); i++) {
        assert_int_equal(fdc_next(r, &ev, 5000), 1);
        assert_int_equal(ev.type, want[i]);
        if (i == 3)
            assert_true(ev.n == 1 && ev.position == 1 && ev.ids[0] == 1001);
        if (i == 4)
            assert_true(ev.n == 3 && ev.position == 3 && !memcmp(ev.text, "t1 ", 3));
    }
    assert_int_equal(fdc_req_tokens(r, 0), 2);
    fdc_req_free(r);
    end(&f);
}

/* Wrong lengths end the session; nothing of the record is delivered. */
static void
t_lies(void **state)
{
    static const struct {
        uint16_t n_ids, n_text;
        size_t len;
    } v[] = { { 0, 0, 0 }, { 1, 1, 7 }, { 0, 4, 12 }, { 1, 0, 12 }, { 1, 1, 12 },
        { 2, 1, 16 }, { UINT16_MAX, 1, 40 }, { 1, UINT16_MAX, 40 },
        { UINT16_MAX, UINT16_MAX, 3000 } };
    struct fix f;
    struct fdc_event ev = FDC_EVENT_INIT;

    (void)state;
    for (size_t k = 0; k < sizeof(v) / sizeof(v[0]); k++) {
        fdc_req_t *r;

        begin(&f);
        r = submit_raw(&f, 0, v[k].n_ids, v[k].n_text, v[k].len);
        assert_int_equal(fdc_next(r, &ev, 5000), 1);
        assert_int_equal(ev.type, FDC_T_ERROR);
        assert_int_equal(ev.error->code, FDC_E_PROTO);
        assert_int_equal(fdc_state(f.s, NULL), FDC_E_PROTO);
        fdc_req_free(r);
        end(&f);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_two_events),
        cmocka_unit_test(t_stream),
        cmocka_unit_test(t_lies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
