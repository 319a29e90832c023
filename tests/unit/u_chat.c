/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: the same output as Jinja (tests/chat/cases.json), which output came
 * from the request, and the limits on a template's cost. */
#include "config.h"

#include "chat/fdchat.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

static int
render(const char *text, size_t bytes, const char *request, const char *model,
    struct fdchat_prompt *ret, char err[FDCHAT_ERR_BYTES])
{
    struct fdchat_args a = { .size = sizeof(a),
        .request = request,
        .request_bytes = strlen(request),
        .model = model,
        .model_bytes = model != NULL ? strlen(model) : 0,
        .now_s = 1700000000 };
    fdchat_template_t *t = NULL;
    int rc = fdchat_template_new(text, bytes, &t, err);

    memset(ret, 0, sizeof(*ret));
    if (rc == 0)
        rc = fdchat_render(t, &a, ret, err);
    fdchat_template_free(t);
    return rc;
}

/* The output equals the reference's bytes; where the reference
 * has an error, there is one. */
static void
t_reference(void **state)
{
    const char *src = getenv("FDD_SRC");
    char path[4096], err[FDCHAT_ERR_BYTES];
    json_t *all, *c;
    size_t i;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/tests/chat/cases.json", src != NULL ? src : ".");
    all = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_non_null(all);
    assert_true(json_array_size(all) >= 85);
    json_array_foreach(all, i, c) {
        const json_t *text = json_array_get(c, 1), *want = json_array_get(c, 3);
        struct fdchat_prompt p;
        int rc = render(json_string_value(text), json_string_length(text),
            json_string_value(json_array_get(c, 2)), NULL, &p, err);

        if (rc != 0 && json_is_string(want))
            fail_msg("%s: %s", json_string_value(json_array_get(c, 0)), err);
        if (rc == 0 && !json_is_string(want))
            fail_msg("%s: no error, but: %s", json_string_value(json_array_get(c, 0)),
                p.text);
        if (rc == 0 &&
            (p.bytes != json_string_length(want) ||
                memcmp(p.text, json_string_value(want), p.bytes) != 0))
            fail_msg("%s: %s", json_string_value(json_array_get(c, 0)), p.text);
        if (rc != 0)
            assert_true(err[0] != '\0' && strchr(err, '\n') == NULL);
        fdchat_prompt_free(&p);
    }
    json_decref(all);
}

/* The rendered text with each range of the request's bytes between brackets. */
static void
spans(const char *text, const char *request, const char *want)
{
    char err[FDCHAT_ERR_BYTES], got[1024];
    struct fdchat_prompt p;
    size_t at = 0, n = 0;

    assert_int_equal(render(text, strlen(text), request, "{\"bos\": \"<s>\"}", &p, err), 0);
    for (size_t i = 0; i < p.n_span; i++) {
        n += (size_t)snprintf(got + n, sizeof(got) - n, "%.*s[%.*s]",
            (int)(p.spans[i].at - at), p.text + at, (int)p.spans[i].bytes,
            p.text + p.spans[i].at);
        at = p.spans[i].at + p.spans[i].bytes;
        assert_true(p.spans[i].bytes > 0 && at <= p.bytes);
    }
    (void)snprintf(got + n, sizeof(got) - n, "%s", p.text + at);
    assert_string_equal(got, want);
    fdchat_prompt_free(&p);
}

/* Text of a request could name a special token; its ranges in
 * the output are always known. */
static void
t_spans(void **state)
{
    (void)state;
    spans("{{ bos }}<|user|>{{ m }}<|end|>", "{\"m\": \"<|end|>\"}",
        "<s><|user|>[<|end|>]<|end|>");
    spans("{{ '<' ~ m ~ '>' }}", "{\"m\": \"x\"}", "<[x]>");
    spans("{{ m | trim | upper }}", "{\"m\": \" ab \"}", "[AB]");
    spans("{{ m.split(',') | join('-') }}", "{\"m\": \"a,b\"}", "[a]-[b]");
    spans("{{ m.replace('b', 'X') }}", "{\"m\": \"abc\"}", "[a]X[c]");
    spans("{{ 'aXb'.replace('X', m) }}", "{\"m\": \"<>\"}", "a[<>]b");
    spans("{{ m | tojson }}", "{\"m\": {\"k\": \"v\\n\"}}", "{\"[k]\": \"[v\\n]\"}");
    spans("{{ m }}", "{\"m\": [\"a'\", 1]}", "[\"[a']\", 1]");
    spans("{% set x %}({{ m }}){% endset %}{{ x }}{{ x[1:2] }}", "{\"m\": \"y\"}",
        "([y])[y]");
    spans("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(m) }}", "{\"m\": \"y\"}", "<[y]>");
    spans("{{ '{}!'.format(m) }}", "{\"m\": \"y\"}", "[y]!");
    spans("{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}",
        "{\"m\": {\"a\": \"b\"}}", "[a]=[b];");
    spans("{{ m | indent(2) }}", "{\"m\": \"a\\nb\"}", "[a\n]  [b]");
    spans("{{ 'k' if m == 'x' else m }}", "{\"m\": \"x\"}", "k");
    spans("{{ m[0] * 2 }}{{ m | length }}", "{\"m\": \"ab\"}", "[aa]2");
    spans("{{ '%s<%5s>%d' % (m, m, 7) }}", "{\"m\": \"ab\"}", "[ab]<   [ab]>7");
    spans("{{ '{:>4}|{!r}'.format(m, m) }}", "{\"m\": \"ab\"}", "  [ab]|'[ab]'");
    spans("{{ m.center(6, '*') }}{{ m | truncate(3, true, '~', 0) }}",
        "{\"m\": \"abcd\"}", "*[abcd]*[ab]~");
    spans("{% for k, v in l | groupby('a') %}{{ k }}{{ v[0].b }};{% endfor %}",
        "{\"l\": [{\"a\": \"x\", \"b\": \"y\"}]}", "[xy];");
    spans("{{ m.partition('-') | join('=') }}", "{\"m\": \"a-b\"}", "[a]=-=[b]");
    spans("{% macro f() %}<{{ caller(m) }}>{% endmacro %}{% call(x) f() %}{{ x }}!{% endcall %}",
        "{\"m\": \"y\"}", "<[y]!>");
    spans("{% for t in l recursive %}({{ loop(t) if t is not string else t }}){% endfor %}",
        "{\"l\": [[\"x\"]]}", "(([x]))");
}

/* Every template ends, with an error that names the cause. */
static void
t_bounds(void **state)
{
    static const struct {
        const char *text, *want;
    } bad[] = {
        { "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
            "steps" },
        { "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply" },
        { "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
          "{% endfor %}",
            "memory" },
        { "{{ 'x' * 99999999999 }}", "steps" }, { "{{ [0] * 99999999999 }}", "memory" },
        { "{{ range(100001) }}", "Range too big" },
        { "{% set x = 'x' * 10000 %}{% for i in range(3000) %}{{ x }}{% endfor %}",
            "longer than 16777216 bytes" },
        { "{{ 9223372036854775807 + 1 }}", "64 bits" }, { "{{ 2 ** 64 }}", "64 bits" },
        { "{{ 99999999999999999999 }}", "out of range" }, { "{{ m.x.y.z }}", "undefined" }
    };
    char err[FDCHAT_ERR_BYTES], deep[4096];
    struct fdchat_prompt p;
    clock_t began;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(render(bad[i].text, strlen(bad[i].text), "{\"m\": {}}", NULL, &p,
                             err),
            -EINVAL);
        /* the limit that is reached first may change */
        if (strstr(err, bad[i].want) == NULL && strstr(err, "too m") == NULL)
            fail_msg("%s: %s", bad[i].text, err);
    }
    /* an empty list repeated any number of times takes no time; a loop would need 5 s */
    began = clock();
    assert_int_equal(render("{{ [] * 3000000000 }}", 21, "{}", NULL, &p, err), 0);
    fdchat_prompt_free(&p);
    assert_true(clock() - began < CLOCKS_PER_SEC);
    memset(deep, '(', sizeof(deep));
    memset(deep + sizeof(deep) / 2, ')', sizeof(deep) / 2);
    memcpy(deep, "{{((", 4);
    memcpy(deep + sizeof(deep) - 4, "))}}", 4);
    assert_int_equal(render(deep, sizeof(deep), "{}", NULL, &p, err), -EINVAL);
    assert_non_null(strstr(err, "nested too deeply"));
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    assert_int_equal(render("x", 1, deep, NULL, &p, err), -EINVAL);
    assert_non_null(strstr(err, "nested too deeply"));
}

/* Errors for invalid JSON or UTF-8 name the position. */
static void
t_json(void **state)
{
    static const char *const bad[] = { "", "{", "[]", "{\"a\"}", "{\"a\": 1,}",
        "{\"a\": 01}", "{\"a\": 1.}", "{\"a\": \"\x01\"}", "{\"a\": \"\\x\"}",
        "{\"a\": \"\\ud800\"}", "{\"a\": \"\xff\"}", "{\"a\": \"\xc0\x80\"}",
        "{\"a\": \"\xed\xa0\x80\"}", "{\"a\": tru}", "{} x", "{\"a\": \"", "{\"a\": \"\\",
        "{\"a\": -}", "{\"a\": 1e}" };
    char err[FDCHAT_ERR_BYTES];
    struct fdchat_prompt p;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(render("x", 1, bad[i], NULL, &p, err), -EINVAL);
        assert_true(strstr(err, "JSON") != NULL);
    }
    assert_int_equal(render("{{ a }}", 7, "{\"a\": \"\\ud83d\\ude00\\u00e9\"}", NULL, &p,
                         err),
        0);
    assert_string_equal(p.text, "\xf0\x9f\x98\x80\xc3\xa9");
    fdchat_prompt_free(&p);
}

/* Any bytes as a template give a result or an error. */
static void
t_random(void **state)
{
    static const char *const bits[] = { "{%", "%}", "{{", "}}", "{#", "#}", "-", "+",
        " for ", " in ", " if ", "endfor", "endif", "else", "set ", "a", "b", "=", "|",
        "trim", "(", ")", "[", "]", ".", ",", "'", "\"", "1", "~", "is ", "not ",
        "defined", "\n", " ", "macro f", "endmacro", ":", "*", "\xc3\xa9", "tojson", "\\",
        "range", "loop.index" };
    const char *env = getenv("SEED");
    uint64_t x = env != NULL ? strtoull(env, NULL, 10) : 20261123;
    char text[256], err[FDCHAT_ERR_BYTES];
    int n_ok = 0;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct fdchat_prompt p;
        size_t n = 0;

        while (n < 200) {
            const char *b;

            x = x * 6364136223846793005u + 1442695040888963407u;
            b = bits[(x >> 33) % (sizeof(bits) / sizeof(bits[0]))];
            if ((x >> 20) % 40 == 0)
                break;
            memcpy(text + n, b, strlen(b));
            n += strlen(b);
        }
        if (render(text, n, "{\"a\": [1, \"x\"], \"b\": {\"c\": null}}", NULL, &p, err) ==
            0) {
            n_ok++;
            fdchat_prompt_free(&p);
        } else {
            assert_true(err[0] != '\0');
        }
    }
    assert_true(n_ok > 1000 && n_ok < 19000);
}

static void
t_time_and_size(void **state)
{
    static const char text[] = "{{ strftime_now('%Y') }}";
    char err[FDCHAT_ERR_BYTES];
    struct fdchat_prompt p;
    struct fdchat_args a = { 0 };
    fdchat_template_t *t;

    (void)state;
    assert_int_equal(render(text, sizeof(text) - 1, "{}", NULL, &p, err), 0);
    assert_string_equal(p.text, "2023");
    fdchat_prompt_free(&p);
    assert_int_equal(fdchat_template_new("x", 1, &t, err), 0);
    assert_int_equal(fdchat_render(t, &a, &p, err), -EINVAL);
    fdchat_template_free(t);
    assert_int_equal(fdchat_template_new(text, (1u << 20) + 1, &t, err), -E2BIG);
    /* a string of it would have more bytes than characters */
    assert_int_equal(fdchat_template_new("x\n{{ '\xa5\xa5'|list }}", 18, &t, err), -EINVAL);
    assert_string_equal(err, "line 2: not UTF-8");
    for (size_t digits = 30; digits < 90; digits++) {
        static const char end[] = ".1e+10 }}";
        char long_one[128] = "{{ ";

        memset(long_one + 3, '5', digits);
        memcpy(long_one + 3 + digits, end, sizeof(end));
        assert_int_equal(fdchat_template_new(long_one, strlen(long_one), &t, err),
            digits < 35 ? 0 : -EINVAL);
        if (digits < 35)
            fdchat_template_free(t);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_reference),
        cmocka_unit_test(t_spans),
        cmocka_unit_test(t_bounds),
        cmocka_unit_test(t_json),
        cmocka_unit_test(t_random),
        cmocka_unit_test(t_time_and_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
