/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl: options, requests from options and JSON, ids, results, the admin
 * connection. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/listen.h"
#include "tools/fdctl/commands.h"
#include "tools/fdctl/stat/stat.h"

static char err[512];

/* ---- options ---------------------------------------------------------------- */

/* What came, in its order. */
static char seen[256];

#define SEE(name) \
    static int name(void *args, const char *value) \
    { \
        size_t at = strlen(seen); \
\
        (void)args; \
        snprintf(seen + at, sizeof(seen) - at, " " #name "=%s", \
            value != NULL ? value : "NULL"); \
        return 0; \
    }
SEE(alpha)
SEE(beta)
SEE(gamma_)
SEE(once)
SEE(operand)

static const struct fct_opt opts[] = { FCT_FN('a', "alpha", NULL, alpha, ""),
    FCT_FN('b', "beta", "X", beta, ""), FCT_FN(0, "gamma", "Y", gamma_, ""),
    FCT_FN('1', "once", NULL, once, ""), FCT_OPT_END };
static const struct fct_line all = { .opts = { opts }, .operand = operand },
                             own = { .opts = { opts }, .is_main = 1 };

static void
test_cli(void **state)
{
    const char *argv[] = { "cmd", "-a", "-ab", "v", "-bw", "--gamma=", "--gamma",
        "--alpha", "word", "-", "-1", "--", "--alpha", "-a" };

    (void)state;
    seen[0] = '\0';
    assert_int_equal(fct_parse(&all, 14, (char **)argv, NULL), FCT_GO);
    assert_string_equal(seen,
        " alpha=NULL alpha=NULL beta=v beta=w gamma_= gamma_=--alpha operand=word operand=- "
        "once=NULL operand=--alpha operand=-a");
    /* those before a command end at it */
    seen[0] = '\0';
    assert_int_equal(fct_parse(&own, 14, (char **)argv, NULL), FCT_GO);
    assert_string_equal(seen, " alpha=NULL alpha=NULL beta=v beta=w gamma_= gamma_=--alpha");
    assert_int_equal(optind, 8);
}

static int
one_option(const char *option, int is_main)
{
    const char *argv[] = { "cmd", option };

    return fct_parse(is_main ? &own : &all, 2, (char **)argv, NULL);
}

static void
test_cli_errors(void **state)
{
    (void)state;
    SAYS(one_option("--alph", 0), EX_USAGE,
        "fdctl: cmd: unknown option --alph; did you mean --alpha?\n");
    SAYS(one_option("--zzzzzzzz", 0), EX_USAGE,
        "fdctl: cmd: unknown option --zzzzzzzz; see fdctl cmd --help\n");
    SAYS(one_option("--zzzzzzzz", 1), EX_USAGE,
        "fdctl: unknown option --zzzzzzzz; see fdctl --help\n");
    SAYS(one_option("-z", 0), EX_USAGE, "fdctl: cmd: unknown option -z; see --help\n");
    SAYS(one_option("--beta", 0), EX_USAGE, "fdctl: cmd: --beta needs a value: --beta X\n");
    SAYS(one_option("-b", 0), EX_USAGE,
        "fdctl: cmd: --beta needs a value: --beta "
        "X\n");
    SAYS(one_option("--alpha=1", 0), EX_USAGE, "fdctl: cmd: --alpha takes no value\n");
}

static int
generate(int n, const char *a, const char *b, const char *c)
{
    const char *argv[] = { "generate", a, b, c, NULL };
    struct fct f = { .timeout_ms = 10, .socket = "/nonexistent/fdd.sock" };

    return fct_cmd_generate(&f, n + 1, (char **)argv);
}

static void
test_generate_arguments(void **state)
{
    (void)state;
    SAYS(generate(0, NULL, NULL, NULL), 64,
        "fdctl: generate: no prompt; give -p TEXT, "
        "--ids-file FILE, --batch FILE or - for standard input\n");
    SAYS(generate(2, "--max-token", "3", NULL), 64,
        "fdctl: generate: unknown option --max-token; did you mean --max-tokens?\n");
    SAYS(generate(3, "-px", "--max-tokens", "many"), 64,
        "fdctl: --max-tokens many: not a whole number\n");
    SAYS(generate(3, "-px", "--max-tokens", "-1"), 64,
        "fdctl: --max-tokens -1: not a whole number\n");
    SAYS(generate(3, "-px", "--max-tokens", "4294967296"), 64,
        "fdctl: --max-tokens 4294967296: at most 4294967294\n");
    SAYS(generate(3, "-px", "--temperature", "warm"), 64,
        "fdctl: --temperature warm: not a number\n");
    SAYS(generate(3, "-px", "--n-requests", "0"), 64,
        "fdctl: --n-requests 0: at least "
        "1\n");
    SAYS(generate(2, "-px", "-", NULL), 64,
        "fdctl: generate: one prompt only: -p, "
        "--prompt-file, --ids-file, --batch or -\n");
    SAYS(generate(1, "hello", NULL, NULL), 64,
        "fdctl: generate: unexpected 'hello'; a prompt is given with -p\n");
    SAYS(generate(2, "--ids-file", "/nonexistent/ids", NULL), 66,
        "fdctl: /nonexistent/ids: No such file or directory\n");
    SAYS(generate(2, "-p", "a\xff", NULL), 65,
        "fdctl: -p: not valid UTF-8 at byte 1 (0xff)\n");
    SAYS(generate(1, "-px", NULL, NULL), 69,
        "fdctl: no daemon at /nonexistent/fdd.sock: "
        "No such file or directory; start it:\n  sudo systemctl start fdd\nor one "
        "of your own:\n"
        "  fdd --set daemon.runtime_dir=/nonexistent --set model.path=MODEL\nor name "
        "another one with --instance NAME (fdctl ls shows them) or --runtime-dir "
        "DIR\n");
}

static void
test_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(fct_exit_code(FDC_OK), 0);
    assert_int_equal(fct_exit_code(FDC_E_TOO_LONG), 65);
    assert_int_equal(fct_exit_code(FDC_E_BAD_PARAM), 65);
    assert_int_equal(fct_exit_code(FDC_E_GPU_RESET), 75);
    assert_int_equal(fct_exit_code(FDC_E_QUEUE_FULL), 75);
    assert_int_equal(fct_exit_code(FDC_E_CONNECT), 69);
    assert_int_equal(fct_exit_code(FDC_E_DISCONNECTED), 69);
    assert_int_equal(fct_exit_code(FDC_E_PERM), 77);
    assert_int_equal(fct_exit_code(FDC_E_VERSION), 76);
    assert_int_equal(fct_exit_code(FDC_E_INTERNAL), 70);
    assert_int_equal(fct_exit_code(FDC_E_CANCELLED), 1);
    assert_int_equal(fct_exit_code(-12345), 70);
}

/* ---- ids and text ----------------------------------------------------------- */

static void
ids_are(const char *text, size_t n, ...)
{
    uint32_t *ids = NULL;
    size_t n_ids = 0, i;
    va_list ap;

    assert_int_equal(fct_parse_ids(text, strlen(text), &ids, &n_ids, err, sizeof(err)), 0);
    assert_int_equal(n_ids, n);
    va_start(ap, n);
    for (i = 0; i < n; i++)
        assert_int_equal(ids[i], va_arg(ap, unsigned));
    va_end(ap);
    free(ids);
}

static void
ids_refused(const char *text, int rc, const char *want)
{
    uint32_t *ids = NULL;
    size_t n = 0;

    assert_int_equal(fct_parse_ids(text, strlen(text), &ids, &n, err, sizeof(err)), rc);
    assert_string_equal(err, want);
    assert_null(ids);
}

static void
ids_bad(const char *text, const char *want)
{
    ids_refused(text, -EINVAL, want);
}

static void
test_ids(void **state)
{
    (void)state;
    ids_are("[1, 2,3]", 3, 1u, 2u, 3u);
    ids_are("1 2\n3\t4\r\n", 4, 1u, 2u, 3u, 4u);
    ids_are("1,2, 4294967295", 3, 1u, 2u, 4294967295u);
    ids_are(" [ 0 ] \n", 1, 0u);
    ids_refused("", -ENODATA, "empty: no token ids");
    ids_refused("[]", -ENODATA, "empty: no token ids");
    ids_refused(" \n", -ENODATA, "empty: no token ids");
    ids_bad("1 x", "line 1: 'x': not a token id (a whole number from 0 to 4294967295)");
    ids_bad("1\n-2",
        "line 2: '-2': not a token id (a whole number from 0 to "
        "4294967295)");
    ids_bad("1, 2]", "line 1: ']': not a token id (a whole number from 0 to 4294967295)");
    ids_bad(",1", "line 1: ',1': not a token id (a whole number from 0 to 4294967295)");
    ids_bad("1.5", "line 1: '1.5': not a token id (a whole number from 0 to 4294967295)");
    ids_bad("4294967296",
        "line 1: '4294967296': not a token id (a whole number from 0 to 4294967295)");
    ids_bad("99999999999999999999999",
        "line 1: '99999999999999999999999': not a token id (a whole number from 0 to "
        "4294967295)");
    ids_bad("[1, 2", "line 1: the list has no ']'");
    ids_bad("[1] 2", "line 1: '2': after the end of the list");
    ids_bad("[[1]]",
        "line 1: '[1': not a token id (a whole number from 0 to "
        "4294967295)");
}

static void
test_utf8(void **state)
{
    (void)state;
    assert_int_equal(fct_check_utf8("x", "", 0), 0);
    assert_int_equal(fct_check_utf8("x", "abc", 3), 0);
    assert_int_equal(fct_check_utf8("x", "a\0b", 3), 0);
    assert_int_equal(fct_check_utf8("x", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9), 0);
    SAYS(fct_check_utf8("x", "ab\xff", 3), 65,
        "fdctl: x: not valid UTF-8 at byte 2 (0xff)\n");
    SAYS(fct_check_utf8("x", "\xc3\xa4\xc3", 3), 65,
        "fdctl: x: not valid UTF-8 at byte 2 (0xc3)\n");
    SAYS(fct_check_utf8("x", "a\xed\xa0\x80", 4), 65,
        "fdctl: x: not valid UTF-8 at byte 1 (0xed)\n"); /* surrogate */
    SAYS(fct_check_utf8("x", "a\xc0\x80", 3), 65,
        "fdctl: x: not valid UTF-8 at byte 1 (0xc0)\n"); /* overlong */
    SAYS(fct_check_utf8("x", "\xf4\x90\x80\x80", 4), 65,
        "fdctl: x: not valid UTF-8 at byte 0 (0xf4)\n"); /* too large */
}

static void
test_json_text(void **state)
{
    json_t *j = fct_json_text("q\"\\\n\x01\0\xc3\xa4", 8);
    char *text = json_dumps(j, JSON_ENCODE_ANY);

    (void)state;
    assert_string_equal(text, "\"q\\\"\\\\\\n\\u0001\\u0000\xc3\xa4\"");
    free(text);
    json_decref(j);
    j = fct_json_text("a\xff\xc3\xa4\xe2\x82", 6);
    assert_string_equal(json_string_value(j),
        "a\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd");
    json_decref(j);
    j = fct_json_real((double)-INFINITY);
    assert_true(json_is_null(j));
    json_decref(j);
}

/* ---- requests --------------------------------------------------------------- */

static const struct fct_opt *
option(const char *name)
{
    const struct fct_opt *o;

    for (o = fct_param_opts; o->name != NULL; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    fail_msg("no option --%s", name);
    return NULL;
}

static void
test_request_options(void **state)
{
    struct fct_req r, copy;
    struct fdc_params p;
    void *lists;

    (void)state;
    fct_req_init(&r);
#define SET(name, value) assert_int_equal(fct_req_set_opt(&r, option(name), value), 0)
    SET("max-tokens", "7");
    SET("temperature", "0.5");
    SET("top-k", "40");
    SET("seed", "18446744073709551614");
    SET("priority", "-3");
    SET("logprobs", "5");
    SET("n", "2");
    SET("ignore-eos", NULL);
    SET("stop", "one");
    SET("stop", "two");
    SET("stop-id", "9");
    SET("timeout-ms", "1000");
    assert_int_equal(r.p.max_new, 7);
    assert_true(r.p.temperature == 0.5f);
    assert_int_equal(r.p.top_k, 40);
    assert_true(r.p.seed == UINT64_MAX - 1);
    assert_int_equal(r.o.priority, -3);
    assert_int_equal(r.p.logprobs, 5);
    assert_int_equal(r.p.n, 2);
    assert_int_equal(r.o.ttl_total_ms, 1000);
    assert_int_equal(r.p.flags, FDC_F_TEXT | FDC_F_IGNORE_EOS);
    assert_int_equal(fct_req_copy(&copy, &r), 0);
    fct_req_fini(&r);
    lists = fct_req_params(&copy, &p);
    assert_non_null(lists);
    assert_int_equal(p.n_stop, 2);
    assert_string_equal(p.stop[1], "two");
    assert_int_equal(p.stop_len[1], 3);
    assert_int_equal(p.n_stop_ids, 1);
    assert_int_equal(p.stop_ids[0], 9);
    free(lists);
    SAYS(fct_req_set_opt(&copy, option("logprobs"), "256"), 64,
        "fdctl: --logprobs 256: at most 127\n");
    SAYS(fct_req_set_opt(&copy, option("priority"), "9999999999"), 64,
        "fdctl: --priority 9999999999: not a whole number of 32 bits\n");
    fct_req_fini(&copy);
}

/* The lists of a request, and that its copy has them. */
static void
test_request_lists(void **state)
{
    struct fct_req r, copy;
    struct fdc_params p;
    void *lists;

    (void)state;
    fct_req_init(&r);
    SET("allow-ids", "5,6");
    SET("allow-ids", "9");
    SET("bad-ids", "1,2");
    SET("bad-words", "x y");
    SET("logit-bias", "7=1.5");
    SET("logprob-ids", "3");
    SET("reasoning", "1,1,1");
    SET("reasoning", "30,40,50");
    SET("stop", "one");
    SET("stop-id", "9");
    assert_int_equal(fct_req_copy(&copy, &r), 0);
    fct_req_fini(&r);
    lists = fct_req_params(&copy, &p);
    assert_non_null(lists);
    assert_int_equal(p.n_allowed, 3);
    assert_int_equal(p.allowed_ids[2], 9);
    assert_int_equal(p.n_bad_ids, 1);
    assert_int_equal(p.bad_ids_len[0], 2);
    assert_int_equal(p.bad_ids[0][1], 2);
    assert_int_equal(p.n_bad_words, 1);
    assert_string_equal(p.bad_words[0], "x y");
    assert_int_equal(p.n_bias, 1);
    assert_int_equal(p.bias[0].id, 7);
    assert_true(p.bias[0].bias == 1.5f);
    assert_int_equal(p.n_logprob_ids, 1);
    assert_int_equal(p.logprob_ids[0], 3);
    assert_int_equal(p.reasoning->max_tokens, 30); /* the last one counts */
    assert_int_equal(p.reasoning->close_id, 50);
    assert_int_equal(p.reasoning->rsv, 0);
    assert_int_equal(p.n_stop, 1);
    assert_string_equal(p.stop[0], "one");
    assert_int_equal(p.stop_ids[0], 9);
    free(lists);
    fct_req_fini(&copy);
}

static void
test_batch(void **state)
{
    static const char text[] =
        "{\"prompt\": \"a\\u0000b\", \"max_tokens\": 3, \"stop\": [\"x\", \"y\"], "
        "\"id\": 7}\n"
        "\n"
        "  {\"ids\": [1, 2], \"top-p\": 1, \"ignore_eos\": false, \"stop_id\": 4}\r\n"
        "{\"prompt\": [5], \"stop\": \"z\"}";
    struct fct_req dflt, *r = NULL;
    size_t i, n = 0;

    (void)state;
    fct_req_init(&dflt);
    assert_int_equal(fct_req_set_opt(&dflt, option("ignore-eos"), NULL), 0);
    assert_int_equal(fct_req_set_opt(&dflt, option("max-tokens"), "99"), 0);
    assert_int_equal(fct_parse_batch("f", text, sizeof(text) - 1, &dflt, &r, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(r[0].n_text, 3);
    assert_memory_equal(r[0].text, "a\0b", 3);
    assert_int_equal(r[0].p.max_new, 3);
    assert_int_equal(json_array_size(r[0].list[FCT_L_STOP]), 2);
    assert_int_equal(json_integer_value(r[0].label), 7);
    assert_true(r[0].p.flags & FDC_F_IGNORE_EOS);
    assert_int_equal(r[1].n_ids, 2);
    assert_int_equal(r[1].ids[1], 2);
    assert_int_equal(r[1].p.max_new, 99);
    assert_true(r[1].p.top_p == 1.0f);
    assert_false(r[1].p.flags & FDC_F_IGNORE_EOS);
    assert_int_equal(json_integer_value(json_array_get(r[1].list[FCT_L_STOP_ID], 0)), 4);
    assert_int_equal(r[2].n_ids, 1);
    assert_string_equal(json_string_value(json_array_get(r[2].list[FCT_L_STOP], 0)), "z");
    for (i = 0; i < n; i++)
        fct_req_fini(&r[i]);
    free(r);
    fct_req_fini(&dflt);
}

static void
assert_list(const struct fct_req *r, enum fct_list which, const char *want)
{
    char *is = json_dumps(r->list[which], JSON_COMPACT);

    assert_non_null(is);
    assert_string_equal(is, want);
    free(is);
}

static void
test_batch_lists(void **state)
{
    static const char text[] =
        "{\"prompt\": \"x\", \"allow_ids\": [1, 2], \"stop\": [\"b\", \"c\"]}\n"
        "{\"prompt\": \"x\", \"stop\": []}\n"
        "{\"prompt\": \"x\"}\n";
    struct fct_req dflt, *r = NULL;
    size_t i, n = 0;

    (void)state;
    fct_req_init(&dflt);
    assert_int_equal(fct_req_set_opt(&dflt, option("allow-ids"), "7"), 0);
    assert_int_equal(fct_req_set_opt(&dflt, option("stop"), "a"), 0);
    assert_int_equal(fct_parse_batch("f", text, sizeof(text) - 1, &dflt, &r, &n), 0);
    assert_int_equal(n, 3);
    assert_list(&r[0], FCT_L_ALLOW, "[[1,2]]");
    assert_list(&r[0], FCT_L_STOP, "[\"b\",\"c\"]");
    assert_list(&r[1], FCT_L_ALLOW, "[[7]]");
    assert_int_equal(json_array_size(r[1].list[FCT_L_STOP]), 0);
    assert_list(&r[2], FCT_L_ALLOW, "[[7]]");
    assert_list(&r[2], FCT_L_STOP, "[\"a\"]");
    for (i = 0; i < n; i++)
        fct_req_fini(&r[i]);
    free(r);
    fct_req_fini(&dflt);
}

static int
batch(const char *text)
{
    struct fct_req dflt, *r = NULL;
    size_t n = 0;
    int rc;

    fct_req_init(&dflt);
    rc = fct_parse_batch("f", text, strlen(text), &dflt, &r, &n);
    fct_req_fini(&dflt);
    return rc;
}

static void
test_batch_errors(void **state)
{
    (void)state;
    SAYS(batch(""), 65, "fdctl: f: empty: no requests\n");
    SAYS(batch("{\"prompt\": \"x\"}\n{\"prompt\": \"x\", \"max_token\": 3}\n"), 65,
        "fdctl: f:2: unknown key \"max_token\"; did you mean \"max_tokens\"?\n");
    SAYS(batch("\n\n{\"max_tokens\": 3}\n"), 65,
        "fdctl: f:3: no \"prompt\" and no \"ids\"\n");
    SAYS(batch("[1]\n"), 65, "fdctl: f:1: not a JSON object\n");
    SAYS(batch("{\"prompt\": 3}"), 65,
        "fdctl: f:1: prompt: must be a text or a list of token ids\n");
    SAYS(batch("{\"ids\": [1, -1]}"), 65,
        "fdctl: f:1: ids: must be a list of token "
        "ids\n");
    SAYS(batch("{\"ids\": \"1\"}"), 65, "fdctl: f:1: ids: must be a list of token ids\n");
    SAYS(batch("{\"prompt\": \"x\", \"ids\": [1]}"), 65,
        "fdctl: f:1: ids: there is a prompt already\n");
    SAYS(batch("{\"prompt\": \"x\", \"temperature\": \"hot\"}"), 65,
        "fdctl: f:1: temperature: must be a number\n");
    SAYS(batch("{\"prompt\": \"x\", \"logprobs\": 256}"), 65,
        "fdctl: f:1: logprobs: must be a whole number from 0 to 127\n");
    SAYS(batch("{\"prompt\": \"x\", \"ignore_eos\": 1}"), 65,
        "fdctl: f:1: ignore_eos: must be true or false\n");
    SAYS(batch("{\"prompt\": \"x\", \"stop\": [1]}"), 65,
        "fdctl: f:1: stop: must be a text or a list of texts\n");
    listen_begin();
    assert_int_equal(batch("{\"prompt\": \"x\", \"prompt\": \"y\"}"), 65);
    assert_non_null(strstr(listen_end(), "fdctl: f:1: column "));
    listen_begin();
    assert_int_equal(batch("{\"prompt\": \"\xff\"}"), 65);
    assert_non_null(strstr(listen_end(), "fdctl: f:1: column "));
}

/* ---- results ---------------------------------------------------------------- */

static void
add(struct fct_result *r, uint32_t type, uint32_t sample, uint32_t position, uint32_t n,
    const void *data)
{
    struct fdc_event ev = { .type = type,
        .sample = sample,
        .position = position,
        .n = n,
        .data = data };

    assert_int_equal(fct_result_add(r, &ev, 1000 + position), 0);
}

static char *
dump(const struct fct_result *r)
{
    json_t *j = fct_result_json(r);
    char *text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9));

    json_decref(j);
    return text;
}

/* A seed of 2^63 or more that the daemon had drawn could not be sent back: the
 * result shows it as text, and a batch took numbers alone. */
static void
test_wide_seed(void **state)
{
    static const uint64_t seeds[] = { 0, 7, INT64_MAX, (uint64_t)INT64_MAX + 1,
        UINT64_MAX - 1 };
    static const char *const bad[] = { "\"18446744073709551615\"",
        "\"18446744073709551616\"", "\"-1\"", "\"\"", "\"7x\"", "\" 7\"", "-1", "7.0" };
    struct fct_req dflt, *r = NULL;
    char line[128], *seed;
    size_t i, n = 0;

    (void)state;
    fct_req_init(&dflt);
    for (i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        const struct fdc_accepted acc = { .prompt_len = 1, .seed = seeds[i] };
        struct fct_result res;
        json_t *o;

        assert_int_equal(fct_result_init(&res, &dflt, 0), 0);
        add(&res, FDC_T_ACCEPTED, 0, 0, 1, &acc);
        o = fct_result_json(&res);
        seed = json_dumps(json_object_get(o, "seed"), JSON_ENCODE_ANY);
        snprintf(line, sizeof(line), "{\"ids\": [1], \"seed\": %s}", seed);
        assert_int_equal(fct_parse_batch("f", line, strlen(line), &dflt, &r, &n), 0);
        assert_true(r[0].p.seed == seeds[i]);
        fct_req_fini(&r[0]);
        free(r);
        free(seed);
        json_decref(o);
        fct_result_fini(&res);
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(line, sizeof(line), "{\"ids\": [1], \"seed\": %s}", bad[i]);
        SAYS(fct_parse_batch("f", line, strlen(line), &dflt, &r, &n), 65,
            "fdctl: f:1: seed: must be a whole number from 0 to 18446744073709551614, "
            "in quotes from 9223372036854775808 on\n");
    }
    SAYS(fct_parse_batch("f", "{\"seed\": 9223372036854775808}", 29, &dflt, &r, &n), 65,
        "fdctl: f:1: column 28: too big integer near '9223372036854775808'; write a whole "
        "number above 9223372036854775807 in quotes\n");
    fct_req_fini(&dflt);
}

static void
test_result(void **state)
{
    static const uint32_t prompt[] = { 1, 2 }, out0[] = { 7, 8 }, out1[] = { 9 };
    static const struct fdc_logprob lp[] = { { 7, -0.5f }, { 7, -0.5f }, { 3, -1.25f } };
    static const struct fdc_logprob plp[] = { { 2, -0.1f } };
    const struct fdc_accepted acc = { .prompt_len = 2, .cached_len = 0, .seed = 5 };
    const struct fdc_choice_end stop = { FDC_FIN_STOP, 2, -1, 0, 0, 0 };
    const struct fdc_choice_end eos = { FDC_FIN_STOP, 1, 9, -1, 0, 0 };
    const struct fdc_done done = { 2, 1, 3, 0, 1000000, 2000000, 3000000, 5000000 };
    struct fct_result r;
    struct fct_req q;
    char *text;

    (void)state;
    fct_req_init(&q);
    fct_req_set_opt(&q, option("n"), "2");
    fct_req_set_opt(&q, option("logprobs"), "2");
    fct_req_set_opt(&q, option("prompt-logprobs"), "0");
    fct_req_set_opt(&q, option("stop"), "end");
    assert_int_equal(fct_result_init(&r, &q, 3), 0);
    add(&r, FDC_T_ACCEPTED, 0, 0, 1, &acc);
    add(&r, FDC_T_PROMPT_IDS, 0, 0, 2, prompt);
    add(&r, FDC_T_PROMPT_LOGPROBS, 0, 1, 1, plp);
    add(&r, FDC_T_IDS, 0, 0, 2, out0);
    add(&r, FDC_T_LOGPROBS, 0, 0, 3, lp);
    add(&r, FDC_T_TEXT, 0, 0, 2, "ab");
    add(&r, FDC_T_IDS, 1, 0, 1, out1);
    add(&r, FDC_T_CHOICE_END, 0, 0, 1, &stop);
    add(&r, FDC_T_CHOICE_END, 1, 0, 1, &eos);
    assert_false(r.is_over);
    add(&r, FDC_T_DONE, 0, 0, 1, &done);
    assert_true(r.is_over);
    text = dump(&r);
    assert_string_equal(text,
        "{\"index\":3,\"prompt_ids\":[1,2],\"ids\":[7,8],"
        "\"text\":\"ab\",\"logprobs\":[{\"id\":7,\"logprob\":-0.5,\"top\":[[7,-0.5],"
        "[3,-1.25]]}],\"finish_reason\":\"stop\",\"stop_reason\":\"end\","
        "\"prompt_logprobs\":[null,{\"id\":2,\"logprob\":-0.100000001,\"top\":[]}],"
        "\"cached_tokens\":1,\"usage\":{\"prompt_tokens\":2,\"cached_tokens\":1,"
        "\"output_tokens\":3,\"preempted\":0},\"seed\":5,\"timings\":{\"queue_ms\":1.0,"
        "\"ttft_ms\":2.0,\"total_ms\":4.0,\"tokens_per_s\":500.0},"
        "\"choices\":[{\"index\":0,"
        "\"ids\":[7,8],\"text\":\"ab\",\"logprobs\":[{\"id\":7,\"logprob\":-0.5,"
        "\"top\":[[7,-0.5],[3,-1.25]]}],\"finish_reason\":\"stop\","
        "\"stop_reason\":\"end\"},"
        "{\"index\":1,\"ids\":[9],\"text\":\"\",\"logprobs\":[],"
        "\"finish_reason\":\"stop\","
        "\"stop_reason\":9}]}");
    free(text);
    fct_result_fini(&r);
    fct_req_fini(&q);
}

static void
test_result_error(void **state)
{
    const struct fdc_error e = { .code = FDC_E_BAD_PARAM,
        .detail = FDC_D_TEMPERATURE,
        .arg = 0xbf800000u };
    const struct fdc_error nan = { .code = FDC_E_BAD_PARAM,
        .detail = FDC_D_TEMPERATURE,
        .arg = 0x7fc00000u };
    const struct fdc_error c = { .code = FDC_E_CANCELLED };
    struct fct_result r;
    struct fct_req q;
    char *text, shown[256];

    (void)state;
    fct_req_init(&q);
    assert_int_equal(fct_result_init(&r, &q, 0), 0);
    add(&r, FDC_T_ERROR, 0, 0, 1, &e);
    assert_true(r.is_over);
    text = dump(&r);
    assert_string_equal(text,
        "{\"index\":0,\"prompt_ids\":[],\"ids\":[],\"text\":\"\","
        "\"finish_reason\":\"error\",\"stop_reason\":null,\"cached_tokens\":0,"
        "\"usage\":{\"prompt_tokens\":0,\"cached_tokens\":0,\"output_tokens\":0,"
        "\"preempted\":0},\"error\":{\"code\":-10,\"name\":\"E_BAD_PARAM\",\"message\":"
        "\"a request parameter is malformed or out of range\",\"detail\":\"temperature\","
        "\"arg\":-1.0,\"limit\":0.0,\"item\":null,\"retry_after_ms\":0}}");
    free(text);
    fct_error_text(&e, shown, sizeof(shown));
    assert_string_equal(shown,
        "E_BAD_PARAM: a request parameter is malformed or out of "
        "range: temperature is -1, at least 0");
    fct_error_text(&nan, shown, sizeof(shown));
    assert_non_null(strstr(shown, ": temperature is not a number"));
    add(&r, FDC_T_ERROR, 0, 0, 1, &c);
    text = dump(&r);
    assert_non_null(strstr(text, "\"finish_reason\":\"cancelled\""));
    free(text);
    fct_result_fini(&r);
    fct_req_fini(&q);
}

static void
test_show(void **state)
{
    json_t *j =
        json_loads("{\"a\": 1, \"long\": \"x\", \"list\": [1, 2], \"o\": {\"k\": "
                   "true},"
                   "\"t\": [{\"n\": 1, \"s\": \"ab\"}, {\"n\": 10, \"s\": \"c\"}]}",
            0, NULL);
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    (void)state;
    fct_show(f, j, 0);
    fct_show(f, NULL, 0); /* an answer that lacks its list */
    fclose(f);
    assert_string_equal(text,
        "a     1\n"
        "long  x\n"
        "list  1 2\n"
        "o:\n"
        "  k  yes\n"
        "t:\n"
        "   n  s\n"
        "   1  ab\n"
        "  10  c\n"
        "-\n");
    free(text);
    json_decref(j);
}

static void
test_text(void **state)
{
    static const struct {
        const char *text, *want;
    } c[] = { { "a {s} {n} {x}|]}.", "a x 7 |]}." },
        { "{o.a:age} {n:4}{n:-3};{s:3}", "1.5 s    77  ;  x" },
        { "{o.a/1e3:.2} {o.a:9bytes}", "1.50   1.5 KiB" },
        { "[s|S{n}][e|E][!e|!][z|Z][z?|there][y?|Y][t|T][s=x|is][s=y|no]", "S7!thereTis" },
        { "[*l|<{}>][*r|{k}[more|+],][*o|{a}][*e|no]", "<p><q>1,2+,1500" },
        { "[n|[e|no][!e|[s|in]]]", "in" }, { "{s}[*y|no][n|", "x" } };
    json_t *o = json_loads(
        "{\"s\": \"x\", \"e\": \"\", \"n\": 7, \"z\": 0, \"t\": true, \"o\": {\"a\": 1500},"
        "\"l\": [\"p\", \"q\"], \"r\": [{\"k\": 1}, {\"k\": 2, \"more\": true}]}",
        0, NULL);

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        char *text = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);

        fct_text(f, c[i].text, o);
        fclose(f);
        assert_string_equal(text, c[i].want);
        free(text);
    }
    json_decref(o);
}

/* ---- admin socket ----------------------------------------------------------- */

static void
test_paths(void **state)
{
    char dir[128], want[256];
    struct fct f;

    (void)state;
    unsetenv("FDD_SOCKET");
    unsetenv("RUNTIME_DIRECTORY");
    setenv("FDD_RUNTIME_DIR", "/env/dir/", 1);
    assert_int_equal(fct_paths(&f, NULL, NULL, NULL, NULL), 0);
    assert_string_equal(f.dir, "/env/dir");
    assert_string_equal(f.socket, "/env/dir/fdd.sock");
    assert_string_equal(f.admin, "/env/dir/admin.sock");
    assert_int_equal(fct_paths(&f, NULL, "/x/a.sock", "/opt/dir", NULL), 0);
    assert_string_equal(f.socket, "/opt/dir/fdd.sock");
    assert_string_equal(f.admin, "/x/a.sock");
    unsetenv("FDD_RUNTIME_DIR");
    assert_int_equal(fct_paths(&f, "/s/my.sock", NULL, NULL, NULL), 0);
    assert_string_equal(f.socket, "/s/my.sock");
    assert_string_equal(f.admin, "/s/admin.sock");
    memset(dir, 'd', sizeof(dir));
    dir[0] = '/';
    dir[100] = '\0';
    snprintf(want, sizeof(want),
        "fdctl: %s/admin.sock: longer than the 107 bytes a "
        "socket's path can have\n",
        dir);
    SAYS(fct_paths(&f, NULL, NULL, dir, NULL), 64, want);
}

struct server {
    int fd, n;
    const char *const *answers;
    char asked[4][256];
};

/* Answers each line with the next text, cut in two. */
static void *
serve(void *arg)
{
    struct server *sv = arg;
    int fd = accept(sv->fd, NULL, NULL), i;

    for (i = 0; i < sv->n; i++) {
        ssize_t k = recv(fd, sv->asked[i], sizeof(sv->asked[i]) - 1, 0);
        size_t len = strlen(sv->answers[i]);

        sv->asked[i][k > 0 ? k : 0] = '\0';
        if (send(fd, sv->answers[i], len / 2, MSG_NOSIGNAL) < 0)
            break;
        usleep(2000);
        if (send(fd, sv->answers[i] + len / 2, len - len / 2, MSG_NOSIGNAL) < 0)
            break;
    }
    close(fd);
    return NULL;
}

static void
test_admin(void **state)
{
    static const char *const answers[] = { "{\"ok\": true, \"x\": 3}\n",
        "{\"ok\": false, \"error\": \"no\", \"fix\": \"sudo usermod -aG fdd-admin u\"}\n",
        "{\"ok\": false, \"error\": \"bad name\"}\n" };
    struct server sv = { .n = 3, .answers = answers };
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    char dir[] = "/tmp/u_fdctl.XXXXXX";
    struct fct f = { .timeout_ms = 5000 };
    struct fct_admin a;
    json_t *answer = NULL;
    pthread_t t;
    int fd;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(fct_paths(&f, NULL, NULL, dir, NULL), 0);
    SAYS(fct_admin_open(&f, 1, &a), 69, "");
    strcpy(un.sun_path, f.admin);
    sv.fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(sv.fd, (struct sockaddr *)&un, sizeof(un)), 0);
    assert_int_equal(listen(sv.fd, 1), 0);
    assert_int_equal(pthread_create(&t, NULL, serve, &sv), 0);
    assert_int_equal(fct_admin_open(&f, 0, &a), 0);
    assert_int_equal(fct_ask(&a, json_pack("{s:s}", "cmd", "status"), 0, &answer), 0);
    assert_int_equal(json_integer_value(json_object_get(answer, "x")), 3);
    json_decref(answer);
    SAYS(fct_ask(&a, json_pack("{s:s}", "cmd", "stop"), 0, &answer), 77,
        "fdctl: no\n  sudo usermod -aG fdd-admin u\n");
    SAYS(fct_ask(&a, json_pack("{s:s}", "cmd", "set"), 0, &answer), 65, "fdctl: bad name\n");
    pthread_join(t, NULL);
    SAYS(fct_ask(&a, json_pack("{s:s}", "cmd", "help"), 1, &answer), 69, "");
    assert_string_equal(sv.asked[0], "{\"cmd\":\"status\"}\n");
    fct_admin_close(&a);
    /* refused, and hung up, before anything was asked */
    assert_int_equal(fct_admin_open(&f, 0, &a), 0);
    fd = accept(sv.fd, NULL, NULL);
    assert_int_equal(send(fd, answers[1], strlen(answers[1]), MSG_NOSIGNAL),
        (ssize_t)strlen(answers[1]));
    close(fd);
    SAYS(fct_ask(&a, json_pack("{s:s}", "cmd", "stop"), 0, &answer), 77,
        "fdctl: no\n  sudo usermod -aG fdd-admin u\n");
    fct_admin_close(&a);
    close(sv.fd);
    unlink(f.admin);
    rmdir(dir);
}

/* Text of a stranger's does nothing to a terminal. */
static void
test_plain(void **state)
{
    static const struct {
        const char *in, *out;
    } c[] = { { "", "" }, { "Qwen3-0.6B", "Qwen3-0.6B" },
        { "caf\xc3\xa9 \xe2\x82\xac", "caf\xc3\xa9 \xe2\x82\xac" },
        { "a\033[2Jb", "a\\x1b[2Jb" }, { "a\nb\tc\r\x7f", "a\\x0ab\\x09c\\x0d\\x7f" },
        { "\xc2\x9b"
          "31m",
            "\\x9b31m" },
        { "\x9b"
          "31m",
            "\xef\xbf\xbd"
            "31m" },
        { "cut\xe2\x82", "cut\xef\xbf\xbd\xef\xbf\xbd" } };
    char text[64];
    struct cnt_seg *seg = calloc(1, sizeof(*seg)), *snap = calloc(1, sizeof(*snap));

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        fct_plain(c[i].in, SIZE_MAX, text, sizeof(text));
        assert_string_equal(text, c[i].out);
    }
    memset(text, 'z', sizeof(text));
    fct_plain("ab\033c", SIZE_MAX, text, 6);
    assert_string_equal(text, "ab");
    fct_plain("abcdef", 3, text, sizeof(text));
    assert_string_equal(text, "abc");
    /* nor does a name that has no end */
    memset(seg->model, '\033', sizeof(seg->model));
    assert_int_equal(fct_seg_snap_group(seg, CNT_ALL_GROUPS, snap), 0);
    assert_null(strchr(snap->model, '\033'));
    assert_true(strlen(snap->model) > 100 && strlen(snap->model) < sizeof(snap->model));
    free(snap);
    free(seg);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_cli),
        cmocka_unit_test(test_cli_errors),
        cmocka_unit_test(test_generate_arguments),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_json_text),
        cmocka_unit_test(test_request_options),
        cmocka_unit_test(test_request_lists),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_batch_lists),
        cmocka_unit_test(test_batch_errors),
        cmocka_unit_test(test_wide_seed),
        cmocka_unit_test(test_result),
        cmocka_unit_test(test_result_error),
        cmocka_unit_test(test_show),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_admin),
    };

    return cmocka_run_group_tests_name("fdctl", tests, NULL, NULL);
}
