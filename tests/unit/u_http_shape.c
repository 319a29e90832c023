/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdd-http's answers: what a stream's deltas add up to is what the whole answer says, for
 * content, reasoning and tool calls, however the model's text is cut. */
#include "config.h"

#include "http/gateway.h"
#include "http/shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static const char said[] =
    "<think>Which one?</think>Let me \"look\".\n<tool_call>\n{\"name\": \"find\", \"arguments\": "
    "{\"q\": \"a\\\"b\\u00e9\", \"n\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"stop\", "
    "\"arguments\": {}}\n</tool_call>";
static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"find\",\"parameters\":{\"type\":\"object\"}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\"}}]";

static struct gw gateway;
static struct model model = { .name = "m" };

static void
begin(struct gen *g, struct choice *ch, int stream)
{
    struct fdchat_answer_opts o = { .size = sizeof(o),
        .format = "hermes",
        .tools = tools,
        .tools_bytes = sizeof(tools) - 1,
        .seed = 1 };
    char err[FDCHAT_ERR_BYTES] = "";

    memset(g, 0, sizeof(*g));
    memset(ch, 0, sizeof(*ch));
    g->g = &gateway;
    g->model = &model;
    g->a.is_chat = 1;
    g->a.stream = (uint8_t)stream;
    g->a.include_reasoning = 255;
    g->a.logprobs = ASK_I32_UNSET;
    g->choice = ch;
    g->n_choice = 1;
    ch->stop_id = ch->stop_str = -1;
    if (fdchat_answer_new(&o, &ch->answer, err) != 0)
        fail_msg("%s", err);
    shp_begin(g);
}

static void
end(struct gen *g, struct choice *ch)
{
    fdchat_answer_free(ch->answer);
    buf_fini(&ch->text);
    buf_fini(&ch->reasoning);
    buf_fini(&ch->calls);
    buf_fini(&ch->args);
    buf_fini(&g->prefix);
}

static void
pieces(struct gen *g, struct choice *ch)
{
    struct fdchat_piece p;

    while (fdchat_answer_next(ch->answer, &p) == 1)
        shp_piece(g, ch, &p);
}

static void
add(json_t *to, const char *key, const json_t *v)
{
    const char *was = json_string_value(json_object_get(to, key));

    if (v != NULL)
        (void)json_object_set_new(to, key,
            json_sprintf("%s%s", was != NULL ? was : "", json_string_value(v)));
}

/* A delta into the message that they make. */
static void
merge(json_t *message, json_t *delta)
{
    json_t *calls = json_object_get(message, "tool_calls"), *c;
    size_t i;

    add(message, "content", json_object_get(delta, "content"));
    add(message, "reasoning_content", json_object_get(delta, "reasoning_content"));
    json_array_foreach(json_object_get(delta, "tool_calls"), i, c) {
        size_t at = (size_t)json_integer_value(json_object_get(c, "index"));
        json_t *f = json_object_get(c, "function");

        assert_true(at <= json_array_size(calls));
        if (at == json_array_size(calls)) {
            assert_non_null(json_object_get(c, "id"));
            assert_non_null(json_object_get(f, "name"));
            (void)json_object_del(c, "index");
            (void)json_array_append(calls, c);
        } else {
            assert_null(json_object_get(c, "id"));
            add(json_object_get(json_array_get(calls, at), "function"), "arguments",
                json_object_get(f, "arguments"));
        }
    }
}

static void
take_events(const struct buf *b, json_t *message, const char **ret_finish)
{
    const char *at = b->p;

    while (at != NULL && *at != '\0') {
        const char *stop = strstr(at, "\n\n");
        json_error_t je;
        json_t *e, *c;

        assert_memory_equal(at, "data: ", 6);
        e = json_loadb(at + 6, (size_t)(stop - at - 6), 0, &je);
        if (e == NULL)
            fail_msg("%s: %.200s", je.text, at);
        c = json_array_get(json_object_get(e, "choices"), 0);
        merge(message, json_object_get(c, "delta"));
        if (json_is_string(json_object_get(c, "finish_reason")))
            *ret_finish = strcmp(json_string_value(json_object_get(c, "finish_reason")),
                              "tool_calls") == 0
                ? "tool_calls"
                : "other";
        json_decref(e);
        at = stop + 2;
    }
}

/* The message that comes of a stream cut every step bytes, with an event each. */
static json_t *
streamed(size_t step, size_t n)
{
    json_t *message = json_pack("{s:[]}", "tool_calls");
    const char *finish = NULL;
    struct choice ch;
    struct gen g;
    struct buf b = { NULL };

    begin(&g, &ch, 1);
    for (size_t at = 0; at < n; at += step) {
        assert_int_equal(fdchat_answer_feed(ch.answer, said + at,
                             step < n - at ? step : n - at),
            0);
        pieces(&g, &ch);
        if (shp_has_news(&g, &ch))
            shp_event(&g, &ch, &b);
    }
    assert_int_equal(fdchat_answer_end(ch.answer), 0);
    pieces(&g, &ch);
    ch.finish = "stop";
    shp_event(&g, &ch, &b);
    assert_false(shp_has_news(&g, &ch));
    take_events(&b, message, &finish);
    assert_string_equal(finish,
        json_array_size(json_object_get(message, "tool_calls")) > 0 ? "tool_calls" : "other");
    buf_fini(&b);
    end(&g, &ch);
    return message;
}

static json_t *
whole(size_t n)
{
    json_t *answer, *message;
    struct choice ch;
    struct gen g;
    struct buf b = { NULL };

    begin(&g, &ch, 0);
    assert_int_equal(fdchat_answer_feed(ch.answer, said, n), 0);
    assert_int_equal(fdchat_answer_end(ch.answer), 0);
    pieces(&g, &ch);
    ch.finish = "stop";
    shp_whole(&g, &b);
    answer = json_loadb(b.p, b.n, 0, NULL);
    if (answer == NULL)
        fail_msg("%s", b.p);
    message = json_incref(
        json_object_get(json_array_get(json_object_get(answer, "choices"), 0), "message"));
    json_decref(answer);
    buf_fini(&b);
    end(&g, &ch);
    return message;
}

static const char *
text(const json_t *message, const char *key)
{
    const char *s = json_string_value(json_object_get(message, key));

    return s != NULL ? s : "";
}

/* Cut off anywhere, and arriving in pieces of any size. */
static void
t_deltas(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof(said); n++)
        for (size_t step = 1; step < 40; step += 1 + n % 5) {
            json_t *a = whole(n), *b = streamed(step, n);
            json_t *calls = json_object_get(a, "tool_calls");

            assert_string_equal(text(a, "content"), text(b, "content"));
            assert_string_equal(text(a, "reasoning_content"), text(b, "reasoning_content"));
            if (calls != NULL ? !json_equal(calls, json_object_get(b, "tool_calls"))
                              : json_array_size(json_object_get(b, "tool_calls")) != 0)
                fail_msg("%zu bytes in steps of %zu: %s\n%s", n, step, json_dumps(a, 0),
                    json_dumps(b, 0));
            json_decref(a);
            json_decref(b);
        }
}

static void
t_calls(void **state)
{
    json_t *m = whole(sizeof(said) - 1), *calls = json_object_get(m, "tool_calls"), *args;

    (void)state;
    assert_string_equal(text(m, "reasoning_content"), "Which one?");
    assert_string_equal(text(m, "content"), "Let me \"look\".");
    assert_int_equal(json_array_size(calls), 2);
    args =
        json_loads(text(json_object_get(json_array_get(calls, 0), "function"), "arguments"),
            0, NULL);
    assert_string_equal(text(args, "q"), "a\"b\xc3\xa9");
    assert_string_equal(
        text(json_object_get(json_array_get(calls, 1), "function"), "arguments"), "{}");
    json_decref(args);
    json_decref(m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_deltas),
        cmocka_unit_test(t_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
