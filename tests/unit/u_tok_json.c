/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The reader of a tokenizer.json's large values. */
#include "config.h"

#include "daemon/worker/tokenizer_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tok_js
reader(const char *s)
{
    return (struct tok_js){ .s = s, .n = strlen(s) };
}

/* Rounded twice, as in the reference: the digits, then the power of ten. */
static void
numbers(void **state)
{
    static const struct {
        const char *s;
        double digits, times, by;
    } rows[] = { { "0", 0, 1, 1 }, { "-2", -2, 1, 1 }, { "3.25", 325, 1, 100 },
        { "1e3", 1, 1e3, 1 }, { "-12.344e-2", -12344, 1, 1e5 },
        { "-92.030920993190389", -92030920993190389.0, 1, 1e15 },
        { "9.9999990000000000001", 9999999000000000000.0, 1, 1e18 } };
    static const char *const bad[] = { "", "-", "01", "1.", ".5", "1e", "+1", "1e999", "x" };
    double got, want;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tok_js js = reader(rows[i].s);

        want = rows[i].digits * rows[i].times / rows[i].by;
        assert_true(tok_js_number(&js, &got));
        if (memcmp(&got, &want, sizeof(got)) != 0)
            fail_msg("%s is %.20g, not %.20g", rows[i].s, got, want);
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct tok_js js = reader(bad[i]);

        if (tok_js_number(&js, &got) && js.at == strlen(bad[i]))
            fail_msg("\"%s\" is a number", bad[i]);
    }
}

static void
strings(void **state)
{
    static const struct {
        const char *s, *plain; /* NULL: refused */
    } rows[] = { { "\"\"", "" }, { "\"a\\n\\u00e9\\/\"", "a\n\xc3\xa9/" },
        { "\"\\ud83d\\ude00x\"", "\xf0\x9f\x98\x80x" }, { "\"\\ud83d\"", NULL },
        { "\"\\ude00\"", NULL }, { "\"\\ud83d\\u0041\"", NULL }, { "\"\\q\"", NULL },
        { "\"a", NULL }, { "\"\\", NULL }, { "\"\n\"", NULL }, { "\"\\u12g4\"", NULL } };
    uint8_t out[64];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tok_js js = reader(rows[i].s);
        struct tok_js_text t;
        bool good = tok_js_string(&js, &t);

        assert_int_equal(good, rows[i].plain != NULL);
        assert_int_equal(js.why == NULL, good);
        if (!good)
            continue;
        assert_int_equal(tok_js_plain(&t, out), strlen(rows[i].plain));
        assert_memory_equal(out, rows[i].plain, strlen(rows[i].plain));
    }
}

/* A byte that ends or breaks a string is found at every place, after every other byte. */
static void
places(void **state)
{
    char s[40];
    unsigned at, c, before;

    (void)state;
    for (before = 0x20; before < 256; before += 0x1b)
        for (at = 1; at < 24; at++)
            for (c = 0; c < 256; c++) {
                struct tok_js js = { .s = s, .n = 32 };
                struct tok_js_text t = { .s = NULL };
                bool good = c >= 0x20;

                memset(s, (int)before, sizeof(s));
                s[0] = s[31] = '"';
                s[at] = (char)c;
                s[at + 1] = 'n';
                if (before == '"' || before == '\\')
                    continue;
                assert_int_equal(tok_js_string(&js, &t), good);
                assert_int_equal(js.at, !good ? at : c == '"' ? at + 1 : 32);
                if (good) {
                    assert_int_equal(t.n, c == '"' ? at - 1 : 30);
                    assert_int_equal(t.escaped, c == '\\');
                }
            }
}

/* White space of any length and kind before a value. */
static void
spaces(void **state)
{
    char s[64];
    unsigned at, c;

    (void)state;
    for (at = 0; at < 40; at++)
        for (c = 1; c < 256; c++) {
            struct tok_js js = { .s = s, .n = at + 10 };
            bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';

            memset(s, ' ', sizeof(s));
            s[at / 2] = '\n';
            s[at] = (char)c;
            s[at + 9] = 'x';
            assert_int_equal(tok_js_peek(&js), (char)(space ? 'x' : c));
            assert_int_equal(js.at, space ? at + 9 : at);
            js = (struct tok_js){ .s = s, .n = at };
            assert_int_equal(tok_js_peek(&js), 0);
            assert_int_equal(js.at, at);
        }
}

static void
values(void **state)
{
    static const char *const good[] = { "{}", "[]", "[[],{}, [1 ,2],\"x\"]",
        "{\"a\":{\"b\":[true,false,null]},\"c\":-0.5e+7}", "\"]\"" };
    static const char *const bad[] = { "{", "[", "[1,]", "{\"a\":1,}", "{\"a\"}", "{1:2}",
        "[1 2]", "[}", "{]", "tru", "", "[nul]" };
    char deep[3000];
    size_t i, line, column;
    struct tok_js js;

    (void)state;
    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        js = reader(good[i]);
        assert_true(tok_js_skip(&js));
        assert_int_equal(js.at, js.n);
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        js = reader(bad[i]);
        if (tok_js_skip(&js) || !js.why)
            fail_msg("\"%s\" is a value", bad[i]);
    }
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = 0;
    js = reader(deep);
    assert_false(tok_js_skip(&js));
    assert_string_equal(js.why, "nested too deep");
    js = reader("[1,\n 2,\n\n  x]");
    assert_false(tok_js_skip(&js));
    tok_js_place(&js, &line, &column);
    assert_int_equal(line, 4);
    assert_int_equal(column, 3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(strings),
        cmocka_unit_test(places),
        cmocka_unit_test(spaces),
        cmocka_unit_test(values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
