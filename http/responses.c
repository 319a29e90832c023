/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's /v1/responses, without state: translates its bodies into chat-completions
 * bodies, and writes its answers. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "http/gateway.h"
#include "http/items.h"

/* ---- input -------------------------------------------------------------------------- */

/* Messages in the making: the items of one turn of the model become one message, and so
 * do the instructions at the beginning. */
struct talk {
    struct itm_talk out;
    struct buf system, content, thought, calls;
    int is_turn; /* content, thought and calls are of a turn of the model */
};

/* Write the gathered items as messages. */
static void
end_turn(struct talk *t)
{
    if (t->system.n > 0)
        itm_message(&t->out, "system", &t->system);
    t->system.n = 0;
    if (!t->is_turn)
        return;
    t->is_turn = 0;
    itm_begin_message(&t->out, "assistant", &t->content);
    if (t->thought.n > 0)
        itm_text(t->out.b, "reasoning_content", &t->thought);
    if (t->calls.n > 0) {
        buf_str(t->out.b, ",\"tool_calls\":[");
        buf_add(t->out.b, t->calls.p, t->calls.n);
        buf_str(t->out.b, "]");
    }
    buf_str(t->out.b, "}");
    t->content.n = t->thought.n = t->calls.n = 0;
}

static void
begin_turn(struct talk *t, int is_new)
{
    if (t->system.n > 0 || is_new)
        end_turn(t);
    t->is_turn = 1;
}

static int
take_text(struct talk *t, uint32_t i, struct buf *ret)
{
    static const char *const types[] = { "input_text", "output_text", "text",
        "reasoning_text", "summary_text", "refusal" };

    return itm_parts(t->out.j, i, "input", types, 6, ret, t->out.bad);
}

static int
take_message(struct talk *t, uint32_t i)
{
    uint32_t role = jr_member(t->out.j, i, "role"),
             content = jr_member(t->out.j, i, "content");
    struct buf text = { NULL };
    int rc;

    if (jr_is(t->out.j, role, "assistant")) {
        begin_turn(t, t->content.n > 0 || t->calls.n > 0);
        return take_text(t, content, &t->content);
    }
    if (jr_is(t->out.j, role, "system") || jr_is(t->out.j, role, "developer")) {
        if (t->is_turn)
            end_turn(t);
        return take_text(t, content, &t->system);
    }
    if (!jr_is(t->out.j, role, "user"))
        return prb_field(t->out.bad, "input",
            "input holds a message whose role is not user, assistant, system or developer");
    end_turn(t);
    rc = take_text(t, content, &text);
    if (rc == 0)
        itm_message(&t->out, "user", &text);
    buf_fini(&text);
    return rc;
}

static int
take_reasoning(struct talk *t, uint32_t i)
{
    uint32_t content = itm_member(t->out.j, i, "content");

    begin_turn(t, t->content.n > 0 || t->calls.n > 0);
    if (content == JR_NONE || jr_count(t->out.j, content) == 0)
        content = itm_member(t->out.j, i, "summary");
    return content == JR_NONE ? 0 : take_text(t, content, &t->thought);
}

static int
take_call(struct talk *t, uint32_t i)
{
    const struct jr *j = t->out.j;

    if (jr_type(j, jr_member(j, i, "name")) != JR_STRING ||
        jr_type(j, jr_member(j, i, "call_id")) != JR_STRING ||
        jr_type(j, jr_member(j, i, "arguments")) != JR_STRING)
        return prb_field(t->out.bad, "input",
            "input holds a function_call without string name, call_id or arguments");
    begin_turn(t, 0);
    buf_str(&t->calls, t->calls.n > 0 ? ",{" : "{");
    buf_str(&t->calls, "\"type\":\"function\"");
    itm_copy(j, i, "call_id", "id", &t->calls);
    itm_function(j, i, &t->calls);
    itm_copy(j, i, "arguments", "arguments", &t->calls);
    buf_str(&t->calls, "}}");
    return 0;
}

static int
take_output(struct talk *t, uint32_t i)
{
    struct buf text = { NULL };
    int rc = take_text(t, jr_member(t->out.j, i, "output"), &text);

    if (rc == 0 && jr_type(t->out.j, jr_member(t->out.j, i, "call_id")) != JR_STRING)
        rc = prb_field(t->out.bad, "input",
            "input holds a function_call_output without call_id");
    if (rc == 0) {
        end_turn(t);
        itm_begin_message(&t->out, "tool", &text);
        itm_copy(t->out.j, i, "call_id", "tool_call_id", t->out.b);
        buf_str(t->out.b, "}");
    }
    buf_fini(&text);
    return rc;
}

static int
take_item(struct talk *t, uint32_t i)
{
    static const struct {
        const char *type;
        int (*fn)(struct talk *t, uint32_t i);
    } kinds[] = { { "message", take_message }, { "reasoning", take_reasoning },
        { "function_call", take_call }, { "function_call_output", take_output } };
    uint32_t type = itm_member(t->out.j, i, "type");
    char name[ITM_TYPE_BYTES];

    if (type == JR_NONE && jr_type(t->out.j, i) == JR_OBJECT)
        return take_message(t, i);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
        if (jr_is(t->out.j, type, kinds[k].type))
            return kinds[k].fn(t, i);
    return prb_field(t->out.bad, "input",
        "input holds an item of type \"%s\"; message, reasoning, function_call and "
        "function_call_output are taken",
        itm_type(t->out.j, i, name));
}

static int
put_input(struct talk *t)
{
    const struct jr *j = t->out.j;
    uint32_t i = itm_member(j, 0, "input"), first = itm_member(j, 0, "instructions");
    struct buf text = { NULL };
    int rc = 0;

    if (jr_type(j, i) != JR_STRING && (jr_type(j, i) != JR_ARRAY || jr_count(j, i) == 0))
        return prb_field(t->out.bad, "input",
            "input must be a string, or an array of at least one item");
    buf_str(t->out.b, "{\"messages\":[");
    if (first != JR_NONE && jr_type(j, first) != JR_STRING)
        return prb_field(t->out.bad, "instructions", "instructions must be a string");
    jr_text(j, first, &t->system);
    if (jr_type(j, i) == JR_STRING) {
        end_turn(t);
        jr_text(j, i, &text);
        itm_message(&t->out, "user", &text);
        buf_fini(&text);
    }
    for (uint32_t k = i + 1; jr_type(j, i) == JR_ARRAY && k < j->node[i].next && rc == 0;
         k = j->node[k].next)
        rc = take_item(t, k);
    end_turn(t);
    buf_str(t->out.b, "]");
    buf_fini(&t->system);
    buf_fini(&t->content);
    buf_fini(&t->thought);
    buf_fini(&t->calls);
    return rc;
}

/* ---- other fields --------------------------------------------------------------------- */

static const char no_state[] = "nothing is kept between requests";
static const struct item_field fields[] = { { "input", NULL, ITF_READ },
    { "instructions", NULL, ITF_READ }, { "tools", NULL, ITF_READ },
    { "reasoning", NULL, ITF_READ }, { "text", NULL, ITF_READ },
    { "include", NULL, ITF_READ }, { "truncation", NULL, ITF_READ },
    { "max_output_tokens", "max_completion_tokens", ITF_PASSED },
    { "tool_choice", "tool_choice", ITF_PASSED },
    { "parallel_tool_calls", "parallel_tool_calls", ITF_PASSED },
    { "chat_template_kwargs", "chat_template_kwargs", ITF_PASSED },
    { "max_tool_calls", NULL, ITF_HARMLESS },
    { "previous_response_id", no_state, ITF_REFUSED },
    { "conversation", no_state, ITF_REFUSED }, { "store", no_state, ITF_REFUSED },
    { "background", no_state, ITF_REFUSED }, { "prompt", no_state, ITF_REFUSED },
    { "top_logprobs", "/v1/chat/completions has logprobs", ITF_REFUSED } };

static int
put_others(const struct jr *j, struct buf *b, struct problem *bad)
{
    uint32_t include = itm_member(j, 0, "include"), cut = itm_member(j, 0, "truncation");
    static const char *const objects[] = { "reasoning", "text" };

    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
        uint32_t k = itm_member(j, 0, objects[i]);

        if (k != JR_NONE && jr_type(j, k) != JR_OBJECT)
            return prb_field(bad, objects[i], "%s is %s; it must be an object",
                objects[i], jr_type_name(jr_type(j, k)));
    }
    itm_copy(j, itm_member(j, 0, "reasoning"), "effort", "reasoning_effort", b);
    itm_copy(j, itm_member(j, 0, "text"), "format", "response_format", b);
    if (cut != JR_NONE && !jr_is(j, cut, "disabled"))
        return prb_field(bad, "truncation",
            "truncation takes disabled: what is too long is refused");
    if (include != JR_NONE && jr_type(j, include) != JR_ARRAY)
        return prb_field(bad, "include", "include is %s; it must be an array",
            jr_type_name(jr_type(j, include)));
    if (include != JR_NONE)
        for (uint32_t k = include + 1; k < j->node[include].next; k = j->node[k].next)
            if (!jr_is(j, k, "reasoning.encrypted_content"))
                return prb_field(bad, "include",
                    "include takes only reasoning.encrypted_content, which is null here");
    return 0;
}

/* Fields of the request that the answer repeats, and their values if they are missing. */
static const char *const repeated[][2] = { { "instructions", "null" },
    { "max_output_tokens", "null" }, { "metadata", "{}" },
    { "parallel_tool_calls", "true" },
    { "reasoning", "{\"effort\":null,\"summary\":null}" }, { "temperature", "null" },
    { "text", "{\"format\":{\"type\":\"text\"}}" }, { "tool_choice", "\"auto\"" },
    { "tools", "[]" }, { "top_p", "null" } };

static int
translate(const struct jr *j, struct buf *b, struct buf *said, struct buf *ignored,
    struct problem *bad)
{
    struct talk t = { .out = { j, b, bad, "" } };

    if (jr_type(j, 0) != JR_OBJECT)
        return prb_set(bad, 400, "invalid_json", "the body is %s; it must be an object",
            jr_type_name(jr_type(j, 0)));
    if (put_input(&t) != 0 ||
        itm_fields(j, fields, sizeof(fields) / sizeof(fields[0]), b, ignored, bad) != 0 ||
        itm_tools(j, "function", "parameters", 0, b, bad) != 0 ||
        put_others(j, b, bad) != 0)
        return -1;
    buf_str(b, "}");
    for (size_t i = 0; i < sizeof(repeated) / sizeof(repeated[0]); i++) {
        if (itm_member(j, 0, repeated[i][0]) == JR_NONE)
            buf_fmt(said, ",\"%s\":%s", repeated[i][0], repeated[i][1]);
        itm_copy(j, 0, repeated[i][0], repeated[i][0], said);
    }
    buf_str(said,
        ",\"truncation\":\"disabled\",\"previous_response_id\":null,\"background\":false,"
        "\"store\":false");
    return 0;
}

/* ---- answers ------------------------------------------------------------------------- */

static void
begin_event(struct gen *g, struct buf *b, const char *type)
{
    g->g->met.events++;
    buf_fmt(b, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%llu", type, type,
        (unsigned long long)g->sequence++);
}

static void
put_response(const struct gen *g, const char *status, struct buf *b)
{
    int is_over = status[0] != 'i' || status[3] == 'o'; /* the status is not in_progress */
    const struct problem *bad = &g->bad;

    buf_str(b, "{\"id\":");
    buf_json(b, g->id, strlen(g->id));
    buf_fmt(b, ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":",
        (long long)g->created_s, status);
    buf_json(b, g->model->name, strlen(g->model->name));
    if (bad->status != 0) {
        buf_fmt(b, ",\"error\":{\"code\":\"%s\",\"message\":",
            bad->status == 429      ? "rate_limit_exceeded"
                : bad->status < 500 ? "invalid_prompt"
                                    : "server_error");
        buf_json(b, bad->text, strlen(bad->text));
        buf_str(b, "}");
    } else {
        buf_str(b, ",\"error\":null");
    }
    buf_fmt(b, ",\"incomplete_details\":%s",
        strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    buf_str(b, ",\"output\":[");
    if (is_over)
        buf_add(b, g->choice[0].items.done.p, g->choice[0].items.done.n);
    buf_str(b, "],\"usage\":");
    if (is_over && bad->status == 0)
        buf_fmt(b,
            "{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu},"
            "\"output_tokens\":%llu,\"output_tokens_details\":{\"reasoning_tokens\":%llu},"
            "\"total_tokens\":%llu}",
            (unsigned long long)g->prompt_tokens, (unsigned long long)g->cached_tokens,
            (unsigned long long)g->output_tokens, (unsigned long long)g->reasoning_tokens,
            (unsigned long long)(g->prompt_tokens + g->output_tokens));
    else
        buf_str(b, "null");
    buf_add(b, g->said.p, g->said.n);
    buf_str(b, "}");
}

static void
put_id(const struct gen *g, const struct choice *ch, uint32_t index, struct buf *b)
{
    static const char
        *const kind[] = { [ITM_REASONING] = "rs", [ITM_TEXT] = "msg", [ITM_CALL] = "fc" };
    char id[200];

    (void)snprintf(id, sizeof(id), "%s_%s_%u", kind[ch->items.open],
        g->id + strlen(g->face->id), index);
    buf_json(b, id, strlen(id));
}

/* Write the content part of the open item, with the text said[n]. */
static void
put_part(const struct choice *ch, const char *said, size_t n, struct buf *b)
{
    int is_text = ch->items.open == ITM_TEXT;

    buf_fmt(b, "{\"type\":\"%s\",\"text\":", is_text ? "output_text" : "reasoning_text");
    buf_json(b, said, n);
    buf_str(b, is_text ? ",\"annotations\":[],\"logprobs\":[]}" : "}");
}

static void
put_item(const struct gen *g, const struct choice *ch, uint32_t index, const char *status,
    struct buf *b)
{
    const struct items *it = &ch->items;
    const char *said = it->said.p != NULL ? it->said.p : "";

    buf_str(b, "{\"id\":");
    put_id(g, ch, index, b);
    buf_fmt(b, ",\"status\":\"%s\"", status);
    if (it->open == ITM_CALL) {
        buf_str(b, ",\"type\":\"function_call\",\"call_id\":");
        buf_json(b, it->id, strlen(it->id));
        itm_text(b, "name", &it->name);
        itm_text(b, "arguments", &it->said);
        buf_str(b, "}");
        return;
    }
    buf_str(b,
        it->open == ITM_TEXT ? ",\"type\":\"message\",\"role\":\"assistant\""
                             : ",\"type\":\"reasoning\",\"summary\":[]");
    buf_str(b, ",\"content\":[");
    if (status[0] != 'i' || status[3] == 'o')
        put_part(ch, said, it->said.n, b);
    buf_str(b, "]}");
}

static void
begin_item_event(struct gen *g, struct choice *ch, const char *type, uint32_t index)
{
    struct buf *b = &ch->items.out;

    begin_event(g, b, type);
    buf_fmt(b, ",\"output_index\":%u,\"item_id\":", index);
    put_id(g, ch, index, b);
    if (ch->items.open != ITM_CALL)
        buf_str(b, ",\"content_index\":0");
}

static void
open_item(struct gen *g, struct choice *ch)
{
    struct buf *b = &ch->items.out;
    uint32_t index = ch->items.n;

    if (g->a.stream != 1)
        return;
    begin_event(g, b, "response.output_item.added");
    buf_fmt(b, ",\"output_index\":%u,\"item\":", index);
    put_item(g, ch, index, "in_progress", b);
    buf_str(b, "}\n\n");
    if (ch->items.open == ITM_CALL)
        return;
    begin_item_event(g, ch, "response.content_part.added", index);
    buf_str(b, ",\"part\":");
    put_part(ch, "", 0, b);
    buf_str(b, "}\n\n");
}

static void
more_item(struct gen *g, struct choice *ch, const char *p, size_t n)
{
    static const char *const type[] = { [ITM_REASONING] = "response.reasoning_text.delta",
        [ITM_TEXT] = "response.output_text.delta",
        [ITM_CALL] = "response.function_call_arguments.delta" };
    struct buf *b = &ch->items.out;

    if (g->a.stream != 1)
        return;
    begin_item_event(g, ch, type[ch->items.open], ch->items.n - 1);
    buf_str(b, ch->items.open == ITM_TEXT ? ",\"logprobs\":[],\"delta\":" : ",\"delta\":");
    buf_json(b, p, n);
    buf_str(b, "}\n\n");
}

static void
close_events(struct gen *g, struct choice *ch, const char *status)
{
    static const char *const type[] = { [ITM_REASONING] = "response.reasoning_text.done",
        [ITM_TEXT] = "response.output_text.done",
        [ITM_CALL] = "response.function_call_arguments.done" };
    struct items *it = &ch->items;
    uint32_t index = it->n - 1;

    begin_item_event(g, ch, type[it->open], index);
    if (it->open == ITM_CALL)
        itm_text(&it->out, "name", &it->name);
    buf_str(&it->out, it->open == ITM_TEXT ? ",\"logprobs\":[]" : "");
    itm_text(&it->out, it->open == ITM_CALL ? "arguments" : "text", &it->said);
    buf_str(&it->out, "}\n\n");
    if (it->open != ITM_CALL) {
        begin_item_event(g, ch, "response.content_part.done", index);
        buf_str(&it->out, ",\"part\":");
        put_part(ch, it->said.p, it->said.n, &it->out);
        buf_str(&it->out, "}\n\n");
    }
    begin_event(g, &it->out, "response.output_item.done");
    buf_fmt(&it->out, ",\"output_index\":%u,\"item\":", index);
    put_item(g, ch, index, status, &it->out);
    buf_str(&it->out, "}\n\n");
}

static void
close_item(struct gen *g, struct choice *ch, int is_cut)
{
    struct items *it = &ch->items;
    const char *status = is_cut ? "incomplete" : "completed";

    if (g->a.stream == 1)
        close_events(g, ch, status);
    buf_str(&it->done, it->done.n > 0 ? "," : "");
    put_item(g, ch, it->n - 1, status, &it->done);
}

static void
response_event(struct gen *g, const char *type, const char *status, struct buf *b)
{
    begin_event(g, b, type);
    buf_str(b, ",\"response\":");
    put_response(g, status, b);
    buf_str(b, "}\n\n");
}

static void
start(struct gen *g, struct buf *b)
{
    response_event(g, "response.created", "in_progress", b);
    response_event(g, "response.in_progress", "in_progress", b);
}

static const struct item_ops ops = { start, open_item, more_item, close_item };

static const char *
end_status(const struct gen *g)
{
    const char *finish = g->choice[0].finish;

    return g->bad.status != 0 ? "failed"
        : finish != NULL && strcmp(finish, "length") == 0
        ? "incomplete"
        : "completed";
}

static void
end(struct gen *g, struct buf *b)
{
    char type[32];

    if (!g->is_begun)
        start(g, b);
    (void)snprintf(type, sizeof(type), "response.%s", end_status(g));
    response_event(g, type, end_status(g), b);
}

static void
whole(struct gen *g, struct buf *b)
{
    itm_end(g, &g->choice[0]);
    put_response(g, end_status(g), b);
    buf_str(b, "\n");
}

static const char *const names[][2] = { { "messages", "input" },
    { "max_completion_tokens", "max_output_tokens" },
    { "max_tokens", "max_output_tokens" }, { "reasoning_effort", "reasoning.effort" },
    { "response_format", "text.format" }, { NULL, NULL } };

const struct face face_responses = { "resp_", 1, translate, names, NULL, itm_piece,
    itm_has_news, itm_event, end, whole, ": still there\n\n", &ops };
