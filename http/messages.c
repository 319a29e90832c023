/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Anthropic's /v1/messages: translates its bodies into chat-completions bodies, and
 * writes its answers. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "http/gateway.h"
#include "http/items.h"
#include "http/messages.h"

/* ---- messages --------------------------------------------------------------------- */

static const char *const text_type[] = { "text" };

static int
refuse_block(const struct itm_talk *t, uint32_t block, const char *role)
{
    char type[ITM_TYPE_BYTES];

    return prb_field(t->bad, "messages",
        "messages: a block of type \"%s\" in a message of role %s; this model takes text%s",
        itm_type(t->j, block, type), role,
        strcmp(role, "user") == 0 ? " and tool_result" : ", thinking and tool_use");
}

/* The text of system, without Claude Code's billing block: that differs in each request,
 * so that no prefix would be cached. */
static int
system_text(struct itm_talk *t, uint32_t i, struct buf *ret)
{
    const struct jr *j = t->j;
    struct buf one = { NULL };
    int rc = 0;

    if (jr_type(j, i) != JR_ARRAY)
        return itm_parts(j, i, "system", text_type, 1, ret, t->bad);
    for (uint32_t k = i + 1; k < j->node[i].next && rc == 0; k = j->node[k].next) {
        one.n = 0;
        jr_text(j, jr_member(j, k, "text"), &one);
        if (!jr_is(j, jr_member(j, k, "type"), "text") ||
            jr_type(j, jr_member(j, k, "text")) != JR_STRING)
            rc = prb_field(t->bad, "system",
                "system takes only blocks of type text, whose text is a string");
        else if (one.n > 0 && strncmp(one.p, "x-anthropic-billing-header", 26) != 0) {
            buf_str(ret, ret->n > 0 ? "\n" : "");
            buf_add(ret, one.p, one.n);
        }
    }
    buf_fini(&one);
    return rc;
}

static int
tool_result(struct itm_talk *t, uint32_t block)
{
    const struct jr *j = t->j;
    uint32_t content = itm_member(j, block, "content");
    struct buf text = { NULL };
    int rc = 0;

    if (jr_type(j, jr_member(j, block, "tool_use_id")) != JR_STRING)
        return prb_field(t->bad, "messages", "messages: a tool_result has no tool_use_id");
    if (content != JR_NONE)
        rc = itm_parts(j, content, "messages", text_type, 1, &text, t->bad);
    if (rc == 0) {
        itm_begin_message(t, "tool", &text);
        itm_copy(j, block, "tool_use_id", "tool_call_id", t->b);
        buf_str(t->b, "}");
    }
    buf_fini(&text);
    return rc;
}

static int
user_blocks(struct itm_talk *t, uint32_t i)
{
    const struct jr *j = t->j;
    struct buf text = { NULL };
    int rc = 0, has_text = 0;

    for (uint32_t k = i + 1; k < j->node[i].next && rc == 0; k = j->node[k].next) {
        uint32_t type = jr_member(j, k, "type");

        if (jr_is(j, type, "text") && jr_type(j, jr_member(j, k, "text")) == JR_STRING) {
            buf_str(&text, has_text ? "\n" : "");
            jr_text(j, jr_member(j, k, "text"), &text);
            has_text = 1;
        } else if (jr_is(j, type, "tool_result")) {
            if (has_text)
                itm_message(t, "user", &text);
            text.n = 0;
            has_text = 0;
            rc = tool_result(t, k);
        } else {
            rc = refuse_block(t, k, "user");
        }
    }
    if (rc == 0 && (has_text || jr_count(j, i) == 0))
        itm_message(t, "user", &text);
    buf_fini(&text);
    return rc;
}

static int
tool_use(struct itm_talk *t, uint32_t block, struct buf *calls)
{
    const struct jr *j = t->j;
    uint32_t input = itm_member(j, block, "input");

    if (jr_type(j, jr_member(j, block, "id")) != JR_STRING ||
        jr_type(j, jr_member(j, block, "name")) != JR_STRING ||
        (input != JR_NONE && jr_type(j, input) != JR_OBJECT))
        return prb_field(t->bad, "messages",
            "messages: a tool_use has an id and a name, which are strings, and an input, "
            "which is an object");
    buf_str(calls, calls->n > 0 ? ",{\"type\":\"function\"" : "{\"type\":\"function\"");
    itm_copy(j, block, "id", "id", calls);
    itm_function(j, block, calls);
    if (input == JR_NONE)
        buf_str(calls, ",\"arguments\":{}");
    itm_copy(j, block, "input", "arguments", calls);
    buf_str(calls, "}}");
    return 0;
}

static int
assistant_blocks(struct itm_talk *t, uint32_t i)
{
    const struct jr *j = t->j;
    struct buf text = { NULL }, thought = { NULL }, calls = { NULL };
    int rc = 0;

    for (uint32_t k = i + 1; k < j->node[i].next && rc == 0; k = j->node[k].next) {
        uint32_t type = jr_member(j, k, "type");

        if (jr_is(j, type, "text"))
            rc = itm_parts(j, jr_member(j, k, "text"), "messages", text_type, 1, &text,
                t->bad);
        else if (jr_is(j, type, "thinking"))
            jr_text(j, jr_member(j, k, "thinking"), &thought);
        else if (jr_is(j, type, "tool_use"))
            rc = tool_use(t, k, &calls);
        else if (!jr_is(j, type, "redacted_thinking"))
            rc = refuse_block(t, k, "assistant");
    }
    if (rc == 0) {
        itm_begin_message(t, "assistant", &text);
        if (thought.n > 0)
            itm_text(t->b, "reasoning_content", &thought);
        if (calls.n > 0) {
            buf_str(t->b, ",\"tool_calls\":[");
            buf_add(t->b, calls.p, calls.n);
            buf_str(t->b, "]");
        }
        buf_str(t->b, "}");
    }
    buf_fini(&text);
    buf_fini(&thought);
    buf_fini(&calls);
    return rc;
}

static int
one_message(struct itm_talk *t, uint32_t m)
{
    const struct jr *j = t->j;
    uint32_t role = jr_member(j, m, "role"), content = jr_member(j, m, "content");
    const char *name = jr_is(j, role, "user") ? "user"
        : jr_is(j, role, "assistant")         ? "assistant"
        : jr_is(j, role, "system")            ? "system"
                                              : NULL;
    struct buf text = { NULL };
    int rc;

    if (name == NULL)
        return prb_field(t->bad, "messages",
            "messages: a message's role is user or assistant");
    if (jr_type(j, content) == JR_ARRAY && name[0] == 'u')
        return user_blocks(t, content);
    if (jr_type(j, content) == JR_ARRAY && name[0] == 'a')
        return assistant_blocks(t, content);
    rc = name[0] == 's' ? system_text(t, content, &text)
                        : itm_parts(j, content, "messages", text_type, 1, &text, t->bad);
    if (rc == 0)
        itm_message(t, name, &text);
    buf_fini(&text);
    return rc;
}

/* Is the last message text of the model? Then the answer continues it. */
static int
is_begun(const struct jr *j, uint32_t messages)
{
    uint32_t last = JR_NONE, content;
    int yes = 0;

    for (uint32_t m = messages + 1; m < j->node[messages].next; m = j->node[m].next)
        last = m;
    if (!jr_is(j, jr_member(j, last, "role"), "assistant"))
        return 0;
    content = jr_member(j, last, "content");
    if (jr_type(j, content) == JR_STRING)
        return !jr_is(j, content, "");
    for (uint32_t k = content + 1; k < j->node[content].next; k = j->node[k].next) {
        if (jr_is(j, jr_member(j, k, "type"), "tool_use"))
            return 0;
        yes |= jr_is(j, jr_member(j, k, "type"), "text") &&
            !jr_is(j, jr_member(j, k, "text"), "");
    }
    return yes;
}

static int
put_messages(struct itm_talk *t)
{
    const struct jr *j = t->j;
    uint32_t system = itm_member(j, 0, "system"), i = jr_member(j, 0, "messages");
    struct buf text = { NULL };
    int rc = 0;

    if (jr_type(j, i) != JR_ARRAY || jr_count(j, i) == 0)
        return prb_field(t->bad, "messages",
            "messages must be an array of at least one message");
    buf_str(t->b, "{\"messages\":[");
    if (system != JR_NONE)
        rc = system_text(t, system, &text);
    if (rc == 0 && text.n > 0)
        itm_message(t, "system", &text);
    buf_fini(&text);
    for (uint32_t m = i + 1; m < j->node[i].next && rc == 0; m = j->node[m].next)
        rc = one_message(t, m);
    buf_str(t->b, "]");
    if (rc == 0 && is_begun(j, i))
        buf_str(t->b, ",\"continue_final_message\":true");
    return rc;
}

/* ---- other fields ------------------------------------------------------------------- */

static int
put_tools(const struct jr *j, struct buf *b, struct problem *bad)
{
    uint32_t choice = itm_member(j, 0, "tool_choice"), type = jr_member(j, choice, "type");
    uint32_t stop = itm_member(j, 0, "stop_sequences");

    if (stop != JR_NONE && jr_type(j, stop) != JR_ARRAY)
        return prb_field(bad, "stop_sequences",
            "stop_sequences is %s; it must be an array of strings",
            jr_type_name(jr_type(j, stop)));
    if (choice != JR_NONE && !jr_is(j, type, "auto") && !jr_is(j, type, "none"))
        return prb_field(bad, "tool_choice",
            "tool_choice takes the types auto and none; any and tool need guided decoding, "
            "which is not offered");
    if (jr_type(j, jr_member(j, choice, "disable_parallel_tool_use")) == JR_TRUE)
        return prb_field(bad, "tool_choice",
            "tool_choice.disable_parallel_tool_use is not supported: the model decides "
            "how many calls it makes");
    if (choice != JR_NONE)
        buf_fmt(b, ",\"tool_choice\":\"%s\"", jr_is(j, type, "none") ? "none" : "auto");
    return itm_tools(j, "custom", "input_schema", 1, b, bad);
}

/* thinking becomes the variable enable_thinking, which some models' templates read. */
static int
put_thinking(const struct jr *j, struct buf *b, struct problem *bad)
{
    uint32_t i = itm_member(j, 0, "thinking"),
             more = itm_member(j, 0, "chat_template_kwargs");
    uint32_t type = jr_member(j, i, "type"), out = itm_member(j, 0, "output_config");
    int off = jr_is(j, type, "disabled");

    if (i != JR_NONE && !off && !jr_is(j, type, "enabled") && !jr_is(j, type, "adaptive"))
        return prb_field(bad, "thinking",
            "thinking.type must be enabled, adaptive or disabled");
    if (itm_member(j, out, "format") != JR_NONE)
        return prb_field(bad, "output_config",
            "output_config.format is not supported: guided decoding is not offered; leave it "
            "out");
    itm_copy(j, out, "effort", "reasoning_effort", b);
    if (off || jr_is(j, jr_member(j, i, "display"), "omitted"))
        buf_str(b, ",\"include_reasoning\":false");
    if (more != JR_NONE)
        itm_copy(j, 0, "chat_template_kwargs", "chat_template_kwargs", b);
    else if (i != JR_NONE)
        buf_fmt(b, ",\"chat_template_kwargs\":{\"enable_thinking\":%s}",
            off ? "false" : "true");
    return 0;
}

static const struct item_field fields[] = { { "messages", NULL, ITF_READ },
    { "system", NULL, ITF_READ }, { "tools", NULL, ITF_READ },
    { "tool_choice", NULL, ITF_READ }, { "thinking", NULL, ITF_READ },
    { "output_config", NULL, ITF_READ }, { "chat_template_kwargs", NULL, ITF_READ },
    { "max_tokens", "max_completion_tokens", ITF_PASSED },
    { "stop_sequences", "stop", ITF_PASSED }, { "cache_control", NULL, ITF_HARMLESS },
    { "container", "nothing but the model answers here", ITF_REFUSED },
    { "mcp_servers", "nothing but the model answers here", ITF_REFUSED },
    { "output_format", "guided decoding is not offered", ITF_REFUSED } };

int
msg_translate(const struct jr *j, int counts, struct buf *b, struct buf *ignored,
    struct problem *bad)
{
    struct itm_talk t = { j, b, bad, "" };

    if (jr_type(j, 0) != JR_OBJECT)
        return prb_set(bad, 400, "invalid_json", "the body is %s; it must be an object",
            jr_type_name(jr_type(j, 0)));
    if (put_messages(&t) != 0)
        return -1;
    if (!counts && itm_member(j, 0, "max_tokens") == JR_NONE)
        return prb_field(bad, "max_tokens", "max_tokens is missing");
    if (itm_fields(j, fields, sizeof(fields) / sizeof(fields[0]), b, ignored, bad) != 0 ||
        put_tools(j, b, bad) != 0 || put_thinking(j, b, bad) != 0)
        return -1;
    buf_str(b, "}");
    return 0;
}

static int
translate(const struct jr *j, struct buf *b, struct buf *said, struct buf *ignored,
    struct problem *bad)
{
    (void)said;
    return msg_translate(j, 0, b, ignored, bad);
}

/* ---- answers ------------------------------------------------------------------------- */

static void
begin_event(struct gen *g, struct buf *b, const char *type)
{
    g->g->met.events++;
    buf_fmt(b, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void
put_usage(const struct gen *g, uint64_t prompt, uint64_t cached, struct buf *b)
{
    buf_fmt(b,
        ",\"usage\":{\"input_tokens\":%llu,\"cache_creation_input_tokens\":0,"
        "\"cache_read_input_tokens\":%llu,\"output_tokens\":%llu}",
        (unsigned long long)(prompt - cached), (unsigned long long)cached,
        (unsigned long long)g->output_tokens);
}

static void
put_head(const struct gen *g, struct buf *b)
{
    buf_str(b, "\"id\":");
    buf_json(b, g->id, strlen(g->id));
    buf_str(b, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    buf_json(b, g->model->name, strlen(g->model->name));
}

static void
put_stop(const struct gen *g, const struct choice *ch, struct buf *b)
{
    int hit = ch->stop_str >= 0 && (uint32_t)ch->stop_str < g->a.n_stop;
    const char *why = ch->n_calls > 0 && strcmp(ch->finish, "stop") == 0 ? "tool_use"
        : strcmp(ch->finish, "length") == 0                              ? "max_tokens"
        : hit                                                            ? "stop_sequence"
                                                                         : "end_turn";

    buf_fmt(b, "\"stop_reason\":\"%s\",\"stop_sequence\":", why);
    if (hit)
        buf_json(b, g->a.stop_p[ch->stop_str], g->a.stop_len[ch->stop_str]);
    else
        buf_str(b, "null");
}

/* Write the open block with the text said[n]; n 0: as it begins. */
static void
put_block(const struct choice *ch, const char *said, size_t n, struct buf *b)
{
    const struct items *it = &ch->items;
    struct jr j = { NULL };

    if (it->open == ITM_TEXT) {
        buf_str(b, "{\"type\":\"text\",\"text\":");
        buf_json(b, said, n);
    } else if (it->open == ITM_REASONING) {
        buf_str(b, "{\"type\":\"thinking\",\"thinking\":");
        buf_json(b, said, n);
        buf_str(b, ",\"signature\":\"\"");
    } else {
        buf_str(b, "{\"type\":\"tool_use\",\"id\":");
        buf_json(b, it->id, strlen(it->id));
        itm_text(b, "name", &it->name);
        buf_str(b, ",\"input\":");
        /* Arguments that the answer's end has cut off are not an object. */
        if (jr_read(&j, said, n, ASK_MAX_VALUES) == 0 && jr_type(&j, 0) == JR_OBJECT)
            buf_add(b, said, n);
        else
            buf_str(b, "{}");
        jr_fini(&j);
    }
    buf_str(b, "}");
}

static void
open_block(struct gen *g, struct choice *ch)
{
    struct buf *b = &ch->items.out;

    if (g->a.stream != 1)
        return;
    begin_event(g, b, "content_block_start");
    buf_fmt(b, ",\"index\":%u,\"content_block\":", ch->items.n);
    put_block(ch, "", 0, b);
    buf_str(b, "}\n\n");
}

static void
more_block(struct gen *g, struct choice *ch, const char *p, size_t n)
{
    static const char *const delta[] = { [ITM_REASONING] = "thinking_delta\",\"thinking",
        [ITM_TEXT] = "text_delta\",\"text",
        [ITM_CALL] = "input_json_delta\",\"partial_json" };
    struct buf *b = &ch->items.out;

    if (g->a.stream != 1)
        return;
    begin_event(g, b, "content_block_delta");
    buf_fmt(b, ",\"index\":%u,\"delta\":{\"type\":\"%s\":", ch->items.n - 1,
        delta[ch->items.open]);
    buf_json(b, p, n);
    buf_str(b, "}}\n\n");
}

static void
close_block(struct gen *g, struct choice *ch, int is_cut)
{
    struct items *it = &ch->items;

    (void)is_cut;
    if (g->a.stream == 1) {
        begin_event(g, &it->out, "content_block_stop");
        buf_fmt(&it->out, ",\"index\":%u}\n\n", it->n - 1);
        return;
    }
    buf_str(&it->done, it->done.n > 0 ? "," : "");
    put_block(ch, it->said.p != NULL ? it->said.p : "", it->said.n, &it->done);
}

static void
start(struct gen *g, struct buf *b)
{
    begin_event(g, b, "message_start");
    buf_str(b, ",\"message\":{");
    put_head(g, b);
    buf_str(b, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null");
    put_usage(g, g->prompt[0].accepted_tokens, g->prompt[0].accepted_cached, b);
    buf_str(b, "}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
}

static const struct item_ops ops = { start, open_block, more_block, close_block };

static void
end(struct gen *g, struct buf *b)
{
    if (g->bad.status != 0) {
        buf_str(b, "event: error\ndata: ");
        prb_json_messages(&g->bad, b);
        buf_str(b, "\n\n");
        return;
    }
    begin_event(g, b, "message_delta");
    buf_str(b, ",\"delta\":{");
    put_stop(g, &g->choice[0], b);
    buf_str(b, "}");
    put_usage(g, g->prompt_tokens, g->cached_tokens, b);
    buf_str(b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void
whole(struct gen *g, struct buf *b)
{
    struct choice *ch = &g->choice[0];

    itm_end(g, ch);
    buf_str(b, "{");
    put_head(g, b);
    buf_str(b, ",\"content\":[");
    buf_add(b, ch->items.done.p, ch->items.done.n);
    buf_str(b, "],");
    put_stop(g, ch, b);
    put_usage(g, g->prompt_tokens, g->cached_tokens, b);
    buf_str(b, "}\n");
}

static const char *const names[][2] = { { "max_completion_tokens", "max_tokens" },
    { "stop", "stop_sequences" }, { "reasoning_effort", "output_config.effort" },
    { NULL, NULL } };

const struct face face_messages = { "msg_", 1, translate, names, NULL, itm_piece,
    itm_has_news, itm_event, end, whole, "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    &ops };
