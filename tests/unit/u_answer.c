/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of each format are parsed to the same result however they are split.
 * Environment: SEED of the random splits; FDD_ANSWERS: another file (from answers.py);
 * FDD_ANSWER_SPLITS: number of random splits of each answer.
 */
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

#define MANY 4096

/* Kinds as characters: c, r, then for a call N name, A arguments, E end. */
struct said {
    char *text;
    size_t n, room;
    int last, n_call, n_end;
};

static void
add(struct said *s, const char *p, size_t n)
{
    if (s->n + n + 1 > s->room) {
        s->room = 2 * (s->n + n + 1);
        s->text = realloc(s->text, s->room);
        assert_non_null(s->text);
    }
    memcpy(s->text + s->n, p, n);
    s->n += n;
    s->text[s->n] = '\0';
}

static void
take(fdchat_answer_t *a, struct said *s)
{
    static const char *const mark[] = { "\1c", "\1r", "\1N", "\1A", "\1E" };
    struct fdchat_piece p;

    while (fdchat_answer_next(a, &p) == 1) {
        if ((int)p.kind != s->last)
            add(s, mark[p.kind], 2);
        s->last = (int)p.kind;
        add(s, p.text, p.bytes);
        if (p.kind == FDCHAT_CALL) {
            assert_int_equal(p.call, s->n_call);
            s->n_call++;
            assert_true(strlen(p.id) > 0);
            add(s, "\1i", 2);
            add(s, p.id, strlen(p.id));
        }
        s->n_end += p.kind == FDCHAT_CALL_END;
    }
}

static fdchat_answer_t *
begin(const char *format, const char *prompt, const char *tools, size_t held)
{
    struct fdchat_answer_opts o = { .size = sizeof(o),
        .format = format,
        .prompt = prompt,
        .prompt_bytes = prompt != NULL ? strlen(prompt) : 0,
        .tools = tools,
        .tools_bytes = tools != NULL ? strlen(tools) : 0,
        .seed = 7,
        .max_held = held };
    char err[FDCHAT_ERR_BYTES];
    fdchat_answer_t *a;

    if (fdchat_answer_new(&o, &a, err) != 0)
        fail_msg("%s: %s", format, err);
    return a;
}

/* Feeds the text in pieces that end at each of n places. */
static struct said
fed(fdchat_answer_t *a, const char *text, size_t bytes, const size_t *cut, size_t n)
{
    struct said s = { .last = -1 };
    size_t at = 0;

    add(&s, "", 0);
    for (size_t i = 0; i <= n; i++) {
        size_t to = i < n ? cut[i] : bytes;

        assert_int_equal(fdchat_answer_feed(a, text + at, to - at), 0);
        take(a, &s);
        at = to;
    }
    assert_int_equal(fdchat_answer_end(a), 0);
    take(a, &s);
    fdchat_answer_free(a);
    return s;
}

static uint64_t seed;

static size_t
below(size_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)((seed >> 33) % n);
}

struct sample {
    const char *format, *prompt, *text;
    size_t bytes;
};

static void
same(const struct sample *s, const char *tools, const struct said *want,
    const size_t *cut, size_t n)
{
    struct said got = fed(begin(s->format, s->prompt, tools, 0), s->text, s->bytes, cut, n);

    if (strcmp(got.text, want->text) != 0)
        fail_msg("%s: cut %zu times, first at %zu: %s\nwhole:\n%s\nin pieces:\n%s",
            s->format, n, n > 0 ? cut[0] : 0, s->text, want->text, got.text);
    free(got.text);
}

/* Splits the text at each byte, at all bytes, and at random ones. */
static void
splits(const struct sample *s, const char *tools, int n_random)
{
    struct said whole =
        fed(begin(s->format, s->prompt, tools, 0), s->text, s->bytes, NULL, 0);
    size_t *cut = calloc(s->bytes + 1, sizeof(*cut));

    assert_non_null(cut);
    for (size_t i = 0; i <= s->bytes; i++)
        same(s, tools, &whole, &i, 1);
    for (size_t i = 0; i < s->bytes; i++)
        cut[i] = i;
    same(s, tools, &whole, cut, s->bytes);
    for (int k = 0; k < n_random; k++) {
        size_t n = 0, step = 1 + below(20);

        for (size_t at = below(step); at < s->bytes; at += 1 + below(step))
            cut[n++] = at;
        same(s, tools, &whole, cut, n);
    }
    free(cut);
    free(whole.text);
}

/* ---- results --------------------------------------------------------------------- */

static json_t *
stripped(const char *p, size_t n)
{
    while (n > 0 && strchr(" \n\t", p[n - 1]) != NULL)
        n--;
    while (n > 0 && strchr(" \n\t", *p) != NULL)
        p++, n--;
    return json_stringn(p, n);
}

/* [content, reasoning, [[name, arguments], ..]] */
static json_t *
meant(const struct sample *s, const char *tools)
{
    fdchat_answer_t *a = begin(s->format, s->prompt, tools, 0);
    struct said text[2] = { { 0 }, { 0 } }, args = { 0 };
    json_t *calls = json_array(), *one;
    struct fdchat_piece p;

    add(&text[0], "", 0);
    add(&text[1], "", 0);
    assert_int_equal(fdchat_answer_feed(a, s->text, s->bytes), 0);
    assert_int_equal(fdchat_answer_end(a), 0);
    while (fdchat_answer_next(a, &p) == 1) {
        if (p.kind <= FDCHAT_REASONING)
            add(&text[p.kind], p.text, p.bytes);
        if (p.kind == FDCHAT_CALL) {
            json_array_append_new(calls, json_pack("[s%]", p.text, p.bytes));
            args.n = 0;
        }
        if (p.kind == FDCHAT_ARGUMENTS)
            add(&args, p.text, p.bytes);
        if (p.kind == FDCHAT_CALL_END) {
            one = json_loads(args.text, JSON_ALLOW_NUL, NULL);
            if (one == NULL)
                fail_msg("%s: arguments are no JSON: %s\n%s", s->format, args.text, s->text);
            json_array_append_new(json_array_get(calls, json_array_size(calls) - 1), one);
        }
    }
    one = json_pack("[o,o,o]", stripped(text[0].text, text[0].n),
        stripped(text[1].text, text[1].n), calls);
    free(text[0].text);
    free(text[1].text);
    free(args.text);
    fdchat_answer_free(a);
    return one;
}

static char *
line_of(FILE *f)
{
    char *line = NULL;
    size_t room = 0;

    if (getline(&line, &room, f) > 0)
        return line;
    free(line);
    return NULL;
}

static FILE *
answers_open(char **ret_tools)
{
    const char *src = getenv("FDD_SRC"), *file = getenv("FDD_ANSWERS");
    char path[4096];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/tests/chat/answers.jsonl",
        src != NULL ? src : ".");
    f = fopen(file != NULL ? file : path, "r");
    assert_non_null(f);
    *ret_tools = line_of(f);
    assert_non_null(*ret_tools);
    return f;
}

static void
each_answer(void (*what)(const struct sample *s, const json_t *row, const char *tools),
    size_t least)
{
    char *tools, *line;
    FILE *f = answers_open(&tools);
    size_t n = 0;

    for (; (line = line_of(f)) != NULL; free(line), n++) {
        json_t *row = json_loads(line, 0, NULL);
        struct sample s = { json_string_value(json_array_get(row, 0)),
            json_string_value(json_array_get(row, 1)),
            json_string_value(json_array_get(row, 2)),
            json_string_length(json_array_get(row, 2)) };

        assert_non_null(s.text);
        what(&s, row, tools);
        json_decref(row);
    }
    assert_true(n >= least);
    (void)fclose(f);
    free(tools);
}

static void
check_meaning(const struct sample *s, const json_t *row, const char *tools)
{
    json_t *got = meant(s, tools),
           *want = json_pack("[o,o,O]",
               stripped(json_string_value(json_array_get(row, 3)),
                   json_string_length(json_array_get(row, 3))),
               stripped(json_string_value(json_array_get(row, 4)),
                   json_string_length(json_array_get(row, 4))),
               json_array_get(row, 5));

    if (!json_equal(got, want))
        fail_msg("%s: %s\ngot  %s\nwant %s", s->format, s->text, json_dumps(got, 0),
            json_dumps(want, 0));
    json_decref(got);
    json_decref(want);
}

static void
t_meaning(void **state)
{
    (void)state;
    each_answer(check_meaning, 150);
}

static void
check_splits(const struct sample *s, const json_t *row, const char *tools)
{
    const char *n = getenv("FDD_ANSWER_SPLITS");

    (void)row;
    splits(s, tools, n != NULL ? atoi(n) : 50);
}

static void
t_splits(void **state)
{
    (void)state;
    each_answer(check_splits, 150);
}

/* ---- text that is no call ------------------------------------------------------------- */

/* Expected kinds and texts in turn, as take() writes them except
 * ids, with "|" for the byte 1. */
static void
says(const char *format, const char *prompt, const char *tools, const char *text,
    const char *want)
{
    struct sample s = { format, prompt, text, strlen(text) };
    struct said got = fed(begin(format, prompt, tools, 0), text, strlen(text), NULL, 0);
    char flat[65536];
    size_t n = 0;

    assert_true(got.n < sizeof(flat));
    for (const char *p = got.text; *p != '\0'; p++) {
        if (p[0] == '\1' && p[1] == 'i') {
            p += 1 + strcspn(p + 1, "\1");
            if (*p == '\0')
                break;
        }
        flat[n++] = *p == '\1' ? '|' : *p;
    }
    flat[n] = '\0';
    if (strcmp(flat, want) != 0)
        fail_msg("%s: %s\ngot  %s\nwant %s", format, text, flat, want);
    free(got.text);
    splits(&s, tools, 20);
}

static const char one_tool[] =
    "[{\"name\": \"f\", \"parameters\": {\"properties\": "
    "{\"a\": {\"type\": \"integer\"}, \"s\": {\"type\": \"string\"}, \"e\": {\"enum\": [1, \"x\"]}, "
    "\"o\": {\"anyOf\": [{\"type\": \"object\"}, {\"type\": \"null\"}]}}}}]";

static void
t_malformed(void **state)
{
    (void)state;
    says("hermes", NULL, NULL, " a  b\n ", "|c a  b\n ");
    says("hermes", NULL, NULL, "x <tool_call>oops</tool_call> y",
        "|cx <tool_call>oops</tool_call> y");
    says("hermes", NULL, NULL, "<tool_call>{\"name\": 5}", "|c<tool_call>{\"name\": 5}");
    says("hermes", NULL, NULL, "<tool_call>{\"nam", "|c<tool_call>{\"nam");
    says("hermes", NULL, NULL, "<tool_call><tool_call>{\"name\": \"f\"}</tool_call>",
        "|c<tool_call>|Nf|A{}|E");
    says("hermes", NULL, NULL, "<tool_ca", "|c<tool_ca");
    says("hermes", NULL, NULL, "a <think>", "|ca");
    says("hermes", NULL, NULL, "<think>a <b</think>\n\nc ", "|ra <b|cc ");
    says("hermes", "<|im_start|>assistant\n<think>\n", NULL, "a\n</think>b", "|ra|cb");
    says("hermes", "<think>\n\n</think>\n\n", NULL, "a</think>b", "|ca</think>b");
    /* an error is reported: the text so far stays, the text that follows is content */
    says("hermes", NULL, NULL,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>z",
        "|Nf|A{\"a\": 1}|E|c</tool_call>z");
    says("hermes", NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": <b>}}",
        "|Nf|A{\"a\": |E|c<b>}}");
    says("hermes", NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a",
        "|Nf|A{\"a");
    says("hermes", NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_",
        "|Nf|A{}|E");
    /* as models write them */
    says("hermes", NULL, NULL,
        "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>",
        "|Nf|A{\"a\": 1}|E");
    says("hermes", NULL, NULL,
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\u00e9}\"}</tool_call>",
        "|Nf|A{\"a\": \xc3\xa9}|E");
    says("hermes", NULL, NULL,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}</tool_call>",
        "|Nf|A{\"a\": \"x\\u000ay\"}|E");
    says("hermes", NULL, NULL,
        "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": null}}</tool_call>",
        "|Nf|A{}|E");
    says("hermes", "<think>", NULL,
        "a<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "|ra|Nf|A{}|E");
    says("hermes", "<think>", NULL, "a<tool_call>b</think>c", "|ra<tool_call>b|cc");
}

/* A format without markers takes text as a call only if the tool is known. */
static void
t_bare(void **state)
{
    (void)state;
    says("llama3", NULL, one_tool, "{\"name\": \"f\", \"parameters\": {}}", "|Nf|A{}|E");
    says("llama3", NULL, one_tool,
        "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {}}",
        "|Nf|A{}|E|Nf|A{}|E");
    says("llama3", NULL, one_tool, "{\"name\": \"f\", \"parameters\": {}}; and so",
        "|Nf|A{}|E|c; and so");
    says("llama3", NULL, one_tool, "{\"name\": \"Bob\", \"parameters\": {}}",
        "|c{\"name\": \"Bob\", \"parameters\": {}}");
    says("llama3", NULL, one_tool, "{\"city\": 1}", "|c{\"city\": 1}");
    says("llama3", NULL, one_tool, "see {\"name\": \"f\", \"parameters\": {}}",
        "|csee {\"name\": \"f\", \"parameters\": {}}");
    says("llama4", NULL, one_tool, "[f(a=1, s='x' \"y\")]",
        "|Nf|A{\"a\": 1, \"s\": \"xy\"}|E");
    says("llama4", NULL, one_tool, "[g(a=1)]", "|c[g(a=1)]");
    says("llama4", NULL, one_tool, "[f(1)]", "|c[f(1)]");
    says("llama4", NULL, one_tool, "[1, 2]", "|c[1, 2]");
    says("llama4", NULL, one_tool,
        "[f(), f(s=\"\"\"a\nb\"\"\", o={'k': (1, [None, True]), 2: -3.5e2,})]",
        "|Nf|A{}|E|Nf|A{\"s\": \"a\\nb\", \"o\": {\"k\": [1, [null, true]], \"2\": -3.5e2}}|E");
    says("llama4", NULL, one_tool, "[f(s='\\x41\\u00e9\\q\\'')]",
        "|Nf|A{\"s\": \"A\xc3\xa9\\\\q'\"}|E");
    says("llama4", NULL, one_tool, "[f(a=1 s=2)]", "|Nf|A{\"a\": 1|E|cs=2)]");
}

static void
t_types(void **state)
{
    static const char head[] = "<tool_call><function=f>";
    char text[512];
    static const struct {
        const char *key, *value, *want;
    } all[] = { { "a", "5", "5" }, { "a", "\n5\n", "5" }, { "a", "x5", "\"x5\"" },
        { "s", "5", "\"5\"" }, { "s", "\n\nx\n\n", "\"\\nx\\n\"" }, { "e", "1", "1" },
        { "e", "x", "\"x\"" }, { "o", "{\"k\": [1]}", "{\"k\": [1]}" },
        { "o", "None", "\"None\"" }, { "o", "NULL", "null" },
        { "o", "{\"k\": [1}", "\"{\\\"k\\\": [1}\"" }, { "u", "7", "\"7\"" } };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char want[512];

        (void)snprintf(text, sizeof(text),
            "%s<parameter=%s>%s</parameter></function></tool_call>", head, all[i].key,
            all[i].value);
        (void)snprintf(want, sizeof(want), "|Nf|A{\"%s\": %s}|E", all[i].key, all[i].want);
        says("qwen3-coder", NULL, one_tool, text, want);
    }
    says("qwen3-coder", NULL, one_tool,
        "<tool_call><function=f><parameter=s>x</parameter>junk",
        "|Nf|A{\"s\": \"x\"}|E|cjunk");
    says("qwen3-coder", NULL, one_tool, "<tool_call><function=f><parameter=s>x</para",
        "|Nf|A{\"s\": \"x</para");
    says("qwen3-coder", NULL, one_tool, "<function=f></function>", "|Nf|A{}|E");
}

/* A marker that is a token has no effect if it arrives as plain text. */
static void
t_special(void **state)
{
    static const char *const special[] = { "<tool_call>", "</tool_call>", "<think>",
        "</think>" };
    struct fdchat_answer_opts o = { .size = sizeof(o),
        .format = "hermes",
        .special = special,
        .n_special = 4 };
    char err[FDCHAT_ERR_BYTES];
    static const char body[] = "{\"name\": \"f\", \"arguments\": {}}";
    struct said s = { .last = -1 };
    fdchat_answer_t *a;

    (void)state;
    assert_int_equal(fdchat_answer_new(&o, &a, err), 0);
    assert_int_equal(fdchat_answer_feed(a, "<tool_call>", 11), 0);
    assert_int_equal(fdchat_answer_feed(a, body, strlen(body)), 0);
    assert_int_equal(fdchat_answer_special(a, "<tool_call>", 11), 0);
    assert_int_equal(fdchat_answer_feed(a, body, strlen(body)), 0);
    assert_int_equal(fdchat_answer_special(a, "</tool_call>", 12), 0);
    assert_int_equal(fdchat_answer_end(a), 0);
    take(a, &s);
    fdchat_answer_free(a);
    assert_non_null(
        strstr(s.text, "\1c<tool_call>{\"name\": \"f\", \"arguments\": {}}\1Nf\1icall_"));
    assert_int_equal(s.n_call, 1);
    assert_int_equal(s.n_end, 1);
    free(s.text);
}

/* Arguments are passed on as they are generated, and the text held back is bounded. */
static void
t_at_once(void **state)
{
    static const char head[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"";
    fdchat_answer_t *a = begin("hermes", NULL, NULL, 0);
    struct fdchat_piece p;
    char *big = malloc(MANY + 1);
    struct said s = { .last = -1 };

    (void)state;
    assert_non_null(big);
    assert_int_equal(fdchat_answer_feed(a, head, strlen(head)), 0);
    take(a, &s);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(fdchat_answer_feed(a, "text ", 5), 0);
        assert_int_equal(fdchat_answer_next(a, &p), 1);
        assert_int_equal(p.kind, FDCHAT_ARGUMENTS);
        assert_int_equal(p.bytes, 5);
        assert_int_equal(fdchat_answer_next(a, &p), 0);
    }
    fdchat_answer_free(a);
    free(s.text);

    s = (struct said){ .last = -1 };
    a = begin("hermes", NULL, NULL, MANY / 2);
    memset(big, 'y', MANY);
    memcpy(big, "<tool_call>{\"x\": \"", 18);
    assert_int_equal(fdchat_answer_feed(a, big, MANY), 0);
    take(a, &s);
    assert_true(s.n > MANY / 2);
    fdchat_answer_free(a);
    free(s.text);
    free(big);
}

/* Valid UTF-8 comes out in pieces that are valid UTF-8. */
static void
t_utf8(void **state)
{
    static const char text[] = "a\xc3\xa9\xe6\x9d\xb1\xf0\x9f\x98\x80";
    fdchat_answer_t *a = begin("hermes", NULL, NULL, 0);
    struct fdchat_piece p;
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        assert_int_equal(fdchat_answer_feed(a, text + i, 1), 0);
        while (fdchat_answer_next(a, &p) == 1) {
            assert_true(((unsigned char)p.text[0] & 0xc0) != 0x80);
            n += p.bytes;
            assert_true(n == 1 || n == 3 || n == 6 || n == 10);
        }
    }
    assert_int_equal(n, 10);
    fdchat_answer_free(a);
}

static void
t_formats(void **state)
{
    static const struct {
        const char *text, *want;
    } all[] = { { "{{ '<tool_call>' }}{{ '<think>' }}", "hermes" },
        { "<tool_call><function=x><parameter=y>", "qwen3-coder" },
        { "<tool_call>{{n}}<arg_key>", "glm-4.5" }, { "[TOOL_CALLS]", "mistral" },
        { "<|start_header_id|> {\"name\": .., \"parameters\": ..}", "llama3" },
        { "<|channel|>analysis to=functions.x", "gpt-oss" }, { "<think>", "think" },
        /* markers put together by expressions, as in the models' templates */
        { "{{- \"<|start|>assistant to=\" }}{{- \"functions.\" + tool_call.name + "
          "\"<|channel|>commentary \" }}",
            "gpt-oss" },
        { "{%- set dsml = '\xef\xbd\x9c"
          "DSML\xef\xbd\x9c' -%}<think>"
          "{{ '<' + dsml + 'function_calls>' }}",
            "deepseek-v3.2" },
        { "{%- set dsml = '\xef\xbd\x9c"
          "DSML\xef\xbd\x9c' -%}<think>"
          "{{ '<' + dsml + 'tool_calls>' }}",
            "deepseek-v4" },
        { "List of tools: <|tool_list_start|>[", "lfm2" },
        { "<think>{{- '<TOOLCALL>[' -}}", "nemotron-2" },
        { "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>```json", "deepseek-v3" },
        { "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>", "deepseek-v3.1" } };
    struct fdchat_answer_opts o = { .size = sizeof(o), .format = "no-such" };
    char err[FDCHAT_ERR_BYTES];
    fdchat_answer_t *a;
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_string_equal(fdchat_format_of_template(all[i].text, strlen(all[i].text)),
            all[i].want);
    assert_null(fdchat_format_of_template("x", 1));
    while (fdchat_format_name(n) != NULL) {
        fdchat_answer_free(begin(fdchat_format_name(n), NULL, one_tool, 0));
        n++;
    }
    assert_true(n >= 25);
    assert_true(fdchat_format_holds("gpt-oss", "<|return|>", 10));
    assert_true(fdchat_format_holds("gpt-oss", "<|channel|>", 11));
    assert_true(fdchat_format_holds("gemma4", "<|\"|>", 5));
    assert_true(fdchat_format_holds("hermes", "</tool_call>", 12));
    assert_true(fdchat_format_holds("hermes", "<think>", 7));
    assert_false(fdchat_format_holds("hermes", "<|im_end|>", 10));
    assert_false(fdchat_format_holds("hermes", "<|\"|>", 5));
    assert_false(fdchat_format_holds("hermes", "", 0));
    assert_false(fdchat_format_holds("no-such", "<think>", 7));
    assert_false(fdchat_format_holds(NULL, "<think>", 7));
    assert_int_equal(fdchat_answer_new(&o, &a, err), -EINVAL);
    assert_non_null(strstr(err, "no-such"));
    o.format = "hermes";
    o.tools = "{}";
    o.tools_bytes = 2;
    assert_int_equal(fdchat_answer_new(&o, &a, err), -EINVAL);
    assert_non_null(strstr(err, "array"));
}

/* Time is linear in the length of the text: no marker makes it read text twice. */
static void
t_linear(void **state)
{
    static const char *const bits[] = { "<tool_call>", "<tool_cal", "{\"name\":", " ",
        "<", "[f(" };
    size_t bytes = 2u << 20;
    char *text = malloc(bytes);

    (void)state;
    assert_non_null(text);
    for (size_t k = 0; k < sizeof(bits) / sizeof(bits[0]); k++) {
        fdchat_answer_t *a = begin(k == 5 ? "llama4" : "hermes", NULL, NULL, 0);
        clock_t t = clock();

        for (size_t i = 0; i < bytes; i++)
            text[i] = bits[k][i % strlen(bits[k])];
        assert_int_equal(fdchat_answer_feed(a, text, bytes), 0);
        assert_int_equal(fdchat_answer_end(a), 0);
        fdchat_answer_free(a);
        /* a quadratic parser takes hours */
        assert_true((double)(clock() - t) / CLOCKS_PER_SEC < 20);
    }
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_meaning),
        cmocka_unit_test(t_malformed),
        cmocka_unit_test(t_bare),
        cmocka_unit_test(t_types),
        cmocka_unit_test(t_special),
        cmocka_unit_test(t_at_once),
        cmocka_unit_test(t_utf8),
        cmocka_unit_test(t_formats),
        cmocka_unit_test(t_linear),
        cmocka_unit_test(t_splits),
    };
    const char *env = getenv("SEED");

    seed = env != NULL ? strtoull(env, NULL, 10) : 20261123;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
