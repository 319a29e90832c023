/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdd-http's readers: HTTP in any pieces, JSON and its bounds, names of this machine, keys. */
#include "config.h"

#include "http/ask.h"
#include "http/h1.h"
#include "http/json.h"
#include "http/keys.h"
#include "http/listen.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- HTTP ----------------------------------------------------------------------------- */

static int
head(struct h1 *h, const char *text)
{
    size_t scanned = 0, n = strlen(text), i;
    int whole = h1_head(h, text, n, 32768, &scanned), rc = 0;

    scanned = 0;
    for (i = 1; i <= n && rc == 0; i++)
        rc = h1_head(h, text, i, 32768, &scanned);
    assert_int_equal(rc, whole);
    return rc;
}

static void
t_head(void **state)
{
    static const char text[] =
        "POST /v1/x?a=b HTTP/1.1\r\nHOST: localhost:80\r\n"
        "content-LENGTH:  12 \r\nAuthorization: Bearer k\r\n"
        "Content-Type: application/json\r\n\r\n";
    struct h1 h;

    (void)state;
    assert_int_equal(head(&h, text), (int)sizeof(text) - 1);
    assert_int_equal(h.method, H1_POST);
    assert_int_equal(h.path.n, 5);
    assert_memory_equal(text + h.path.at, "/v1/x", 5);
    assert_memory_equal(text + h.query.at, "a=b", 3);
    assert_int_equal(h.length, 12);
    assert_true(h.keep_alive);
    assert_true(h1_same(text, h.authorization, "bearer K"));
    assert_int_equal(head(&h, "GET / HTTP/1.0\r\n\r\n"), 18);
    assert_false(h.keep_alive);
    assert_int_equal(head(&h, "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n"),
        49);
    assert_false(h.keep_alive);
    assert_int_equal(head(&h, "GET / HTTP/1.1\r\nHost: a\r\n"), 0);
    assert_int_equal(head(&h, "GET / HTTP/1.1\r\n\r\n"), -400);
    assert_int_equal(head(&h, "GET / HTTP/3.0\r\nHost: a\r\n\r\n"), -505);
    assert_int_equal(head(&h, "GET / HTTP/1.1\r\nHost: a\r\nExpect: y\r\n\r\n"), -417);
}

static void
t_head_limits(void **state)
{
    struct buf b = { NULL };
    struct h1 h;
    size_t scanned = 0;

    (void)state;
    buf_str(&b, "GET /");
    for (int i = 0; i < 9000; i++)
        buf_str(&b, "a");
    assert_int_equal(h1_head(&h, b.p, b.n, 32768, &scanned), -414);
    b.n = 0;
    scanned = 0;
    buf_str(&b, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 100; i++)
        buf_str(&b, "a: b\r\n");
    buf_str(&b, "\r\n");
    assert_int_equal(h1_head(&h, b.p, b.n, 32768, &scanned), -431);
    scanned = 0;
    assert_int_equal(h1_head(&h, b.p, 300, 300, &scanned), -431);
    buf_fini(&b);
}

static int
chunks(const char *text, struct buf *body, size_t max, size_t step, size_t *ret_used)
{
    struct h1_chunks c = { 0 };
    const char *why = NULL;
    size_t n = strlen(text), at = 0;
    int rc = 0;

    body->n = 0;
    while (rc == 0 && at < n) {
        size_t used, k = step < n - at ? step : n - at;

        rc = h1_chunk(&c, text + at, k, &used, body, max, &why);
        assert_true(used == k || rc != 0);
        at += used;
    }
    *ret_used = at;
    return rc;
}

static void
t_chunks(void **state)
{
    struct buf b = { NULL };
    size_t used;

    (void)state;
    for (size_t step = 1; step < 30; step++) {
        assert_int_equal(chunks("5\r\nhello\r\nA\r\n, worldly!\r\n0\r\n\r\nGET", &b, 100,
                             step, &used),
            1);
        assert_int_equal(b.n, 15);
        assert_memory_equal(b.p, "hello, worldly!", 15);
        assert_int_equal(used, 30);
        assert_int_equal(chunks("5\r\nhello\r\nA\r\n, worldly!\r\n0\r\n\r\n", &b, 14,
                             step, &used),
            -413);
        assert_int_equal(chunks("ffffffff\r\n", &b, 14, step, &used), 0);
        assert_int_equal(chunks("fffffffff\r\n", &b, 14, step, &used), -400);
        assert_int_equal(chunks("5\r\nhelloX", &b, 14, step, &used), -400);
        assert_int_equal(chunks("0\r\nA: b\r\n\r\n", &b, 14, step, &used), -400);
        assert_int_equal(chunks("5;a\r\nhello\r\n", &b, 14, step, &used), -400);
    }
    buf_fini(&b);
}

/* ---- JSON ------------------------------------------------------------------------------- */

static void
t_json(void **state)
{
    static const char text[] =
        " {\"a\": [1, -2.5e3, \"x\\u00e9\\ud83d\\ude00\\n\"], \"b\": {}, "
        "\"\\u0061b\": null, \"c\": true, \"c\": 9007199254740993} ";
    struct buf b = { NULL };
    struct jr j;
    int64_t v;
    uint32_t a;

    (void)state;
    assert_int_equal(jr_read(&j, text, strlen(text), 100), 0);
    a = jr_member(&j, 0, "a");
    assert_int_equal(jr_count(&j, a), 3);
    assert_int_equal(jr_int(&j, a + 1, &v), 0);
    assert_int_equal(v, 1);
    assert_int_equal(jr_int(&j, a + 2, &v), 0);
    assert_int_equal(v, -2500);
    jr_text(&j, a + 3, &b);
    assert_string_equal(b.p, "x\xc3\xa9\xf0\x9f\x98\x80\n");
    assert_int_equal(jr_type(&j, jr_member(&j, 0, "ab")), JR_NULL);
    assert_int_equal(jr_member(&j, 0, "d"), JR_NONE);
    /* the last of two; digits beyond a double's are kept */
    assert_int_equal(jr_int(&j, jr_member(&j, 0, "c"), &v), 0);
    assert_int_equal(v, 9007199254740993);
    jr_fini(&j);
    b.n = 0;
    buf_json(&b, "a\"\\\n\x01\xff\xc3\xa9", 8);
    assert_string_equal(b.p, "\"a\\\"\\\\\\n\\u0001\xef\xbf\xbd\xc3\xa9\"");
    buf_fini(&b);
}

static void
t_json_refused(void **state)
{
    static const char *const bad[] = { "", " ", "{", "[", "[1", "[1,", "[1,]", "[,1]",
        "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:2}", "[1 2]", "01", "-", "1.",
        ".5", "1e", "+1", "NaN", "Infinity", "tru", "nulll", "\"", "\"\\x\"", "\"\\u12\"",
        "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\t\"", "\"\xff\"", "[1]]",
        "1 2", "{\"a\":1}x", "/* */1", "'a'" };
    struct jr j;
    char deep[200];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (jr_read(&j, bad[i], strlen(bad[i]), 100) != -EINVAL)
            fail_msg("taken: %s", bad[i]);
        assert_non_null(j.err);
        assert_null(j.node);
    }
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    assert_int_equal(jr_read(&j, deep, 130, 100), -EINVAL);
    assert_int_equal(jr_read(&j, deep + 1, 128, 100), 0);
    jr_fini(&j);
    assert_int_equal(jr_read(&j, "[1,2,3,4]", 9, 4), -E2BIG);
    assert_int_equal(jr_read(&j, "[1,2,3,4]", 9, 5), 0);
    assert_int_equal(j.n, 5);
    jr_fini(&j);
}

static void
t_reals(void **state)
{
    static const struct {
        double v;
        const char *text;
    } all[] = { { 0, "0.0" }, { -1.5, "-1.5" }, { 0.1, "0.1" }, { -HUGE_VAL, "-9999.0" },
        { 1e300, "1e+300" }, { -3.4657421112060547, "-3.4657421112060547" } };
    struct buf b = { NULL };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        b.n = 0;
        buf_real(&b, all[i].v);
        assert_string_equal(b.p, all[i].text);
    }
    buf_fini(&b);
}

/* ---- fields -------------------------------------------------------------------------------- */

static void
refused(const char *body, int is_chat, const char *param, const char *text)
{
    struct problem bad = { .status = 0 };
    struct ask a;

    if (ask_read(&a, body, strlen(body), is_chat, &bad) != -1)
        fail_msg("taken: %s", body);
    ask_fini(&a);
    assert_int_equal(bad.status, 400);
    assert_string_equal(bad.param, param);
    if (strstr(bad.text, text) == NULL)
        fail_msg("%s: %s", body, bad.text);
}

static void
t_fields(void **state)
{
    static const char body[] =
        "{\"prompt\":\"a\",\"max_tokens\":7,\"temperature\":0.5,\"top_k\":-1,\"stop\":[\"x\",\"yy\"],"
        "\"n\":2,\"seed\":5,\"best_of\":null,\"use_beam_search\":false,\"zzz\":1,\"a\\nb\":2,"
        "\"logit_bias\":{\"5\":1.5},\"stop_token_ids\":[3,4],\"cache_salt\":\"s\"}";
    struct problem bad = { .status = 0 };
    struct ask a;

    (void)state;
    assert_int_equal(ask_read(&a, body, strlen(body), 0, &bad), 0);
    assert_int_equal(a.p.max_new, 7);
    assert_int_equal(a.p.n, 2);
    assert_int_equal(a.p.top_k, 0);
    assert_int_equal(a.p.seed, 5);
    assert_int_equal(a.p.n_stop, 2);
    assert_string_equal(a.p.stop[1], "yy");
    assert_int_equal(a.p.n_stop_ids, 2);
    assert_int_equal(a.p.n_bias, 1);
    assert_true(a.p.top_p == FDC_UNSET_F);
    assert_true(a.o.salt[0] != 0 || a.o.salt[1] != 0);
    assert_string_equal(a.ignored.p, "zzz");
    ask_fini(&a);
    refused("[]", 0, "", "must be an object");
    refused("{\"prompt\":\"a\",\"n\":1,\"n\":2}", 0, "n", "twice");
    refused("{\"prompt\":\"a\",\"n\":65}", 0, "n", "from 1 to 64");
    refused("{\"prompt\":\"a\",\"n\":1.5}", 0, "n", "whole number");
    refused("{\"prompt\":\"a\",\"temperature\":\"hot\"}", 0, "temperature", "a string");
    refused("{\"prompt\":\"a\",\"stream\":1}", 0, "stream", "true or false");
    refused("{\"prompt\":\"a\",\"stop\":[1]}", 0, "stop", "strings");
    refused("{\"prompt\":\"a\",\"stop\":\"\"}", 0, "stop", "0 bytes");
    refused("{\"prompt\":\"a\",\"max_tokens\":0}", 0, "max_tokens", "at least 1");
    refused("{\"prompt\":\"a\",\"stream_options\":{}}", 0, "stream_options", "stream: true");
    refused("{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}", 0, "logit_bias", "token ids");
    refused("{\"messages\":[],\"top_logprobs\":2}", 1, "top_logprobs", "logprobs: true");
    refused("{\"messages\":[],\"tool_choice\":\"required\"}", 1, "tool_choice",
        "guided decoding");
    refused("{\"messages\":[],\"response_format\":{\"type\":\"json_object\"}}", 1,
        "response_format", "guided decoding");
}

/* ---- who may -------------------------------------------------------------------------------- */

static void
t_local_names(void **state)
{
    static const char *const yes[] = { "localhost", "LocalHost:80", "127.0.0.1:8000",
        "127.9.9.9", "[::1]", "[::1]:8000" };
    static const char *const no[] = { "", "example.org", "localhost.example.org",
        "10.0.0.1", "127.0.0.1.example.org", "[::2]:80", "0.0.0.0", "127.1", "[::1" };

    (void)state;
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        assert_true(lis_is_local_name(yes[i], strlen(yes[i])));
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (lis_is_local_name(no[i], strlen(no[i])))
            fail_msg("local: %s", no[i]);
}

#define HASH_K1 \
    "6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0" /* of "k1" */

static int
read_keys(struct keys *ks, const char *text, char *err)
{
    char path[] = "/tmp/u_http.XXXXXX";
    int fd = mkstemp(path), rc;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    rc = keys_read(ks, path, err, 512);
    (void)unlink(path);
    return rc;
}

static void
t_keys(void **state)
{
    struct keys ks = { NULL };
    char err[512] = "";
    struct key *k;

    (void)state;
    assert_int_equal(read_keys(&ks,
                         "# a comment\n\n" HASH_K1 " alice user=1001 inflight=2\n", err),
        0);
    k = keys_find(&ks, "k1", 2);
    assert_non_null(k);
    assert_string_equal(k->name, "alice");
    assert_int_equal(k->user, 1001);
    assert_int_equal(k->inflight, 2);
    assert_null(keys_find(&ks, "k2", 2));
    assert_null(keys_find(&ks, "", 0));
    /* a line that is wrong changes nothing, and is named */
    k->running = 1;
    assert_int_equal(read_keys(&ks, HASH_K1 " bob\nxyz carol\n", err), -EINVAL);
    assert_non_null(strstr(err, "line 2"));
    assert_string_equal(k->name, "alice");
    assert_int_equal(read_keys(&ks, HASH_K1 " bob admin\n", err), -EINVAL);
    assert_int_equal(read_keys(&ks, HASH_K1 " bob\n" HASH_K1 " carol\n", err), -EINVAL);
    assert_int_equal(read_keys(&ks, HASH_K1 " bob user=-1\n", err), -EINVAL);
    /* a key that is gone opens nothing, and its requests go on */
    assert_int_equal(read_keys(&ks, "", err), 0);
    assert_null(keys_find(&ks, "k1", 2));
    assert_int_equal(k->running, 1);
    assert_int_equal(read_keys(&ks, HASH_K1 " bob priority\n", err), 0);
    assert_ptr_equal(keys_find(&ks, "k1", 2), k);
    assert_string_equal(k->name, "bob");
    assert_true(k->may_prioritize);
    assert_int_equal(k->running, 1);
    keys_fini(&ks);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_head),
        cmocka_unit_test(t_head_limits),
        cmocka_unit_test(t_chunks),
        cmocka_unit_test(t_json),
        cmocka_unit_test(t_json_refused),
        cmocka_unit_test(t_reals),
        cmocka_unit_test(t_fields),
        cmocka_unit_test(t_local_names),
        cmocka_unit_test(t_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
