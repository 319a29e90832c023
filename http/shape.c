/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/shape.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/text.h"
#include "http/gateway.h"

/* ---- calls ------------------------------------------------------------------------- */

/* Write new arguments into the calls' JSON: for a stream as a delta, for a whole answer
 * as the string. */
static void
put_args(const struct gen *g, struct choice *ch)
{
    const char *args = ch->args.p != NULL ? ch->args.p : "";

    if (!ch->call_is_open)
        return;
    if (g->a.stream == 1) {
        if (ch->args.n == 0)
            return;
        buf_fmt(&ch->calls,
            "%s{\"index\":%u,\"function\":{\"arguments\":", ch->calls.n > 0 ? "," : "",
            ch->n_calls - 1);
    }
    buf_json(&ch->calls, args, ch->args.n);
    buf_str(&ch->calls, "}}");
    ch->args.n = 0;
}

static void
close_call(const struct gen *g, struct choice *ch)
{
    put_args(g, ch);
    ch->call_is_open = 0;
}

static void
open_call(const struct gen *g, struct choice *ch, const struct fdchat_piece *p)
{
    close_call(g, ch);
    buf_str(&ch->calls, ch->calls.n > 0 ? ",{" : "{");
    if (g->a.stream == 1)
        buf_fmt(&ch->calls, "\"index\":%u,", ch->n_calls);
    buf_str(&ch->calls, "\"id\":");
    buf_json(&ch->calls, p->id, strlen(p->id));
    buf_str(&ch->calls, ",\"type\":\"function\",\"function\":{\"name\":");
    buf_json(&ch->calls, p->text, p->bytes);
    buf_str(&ch->calls, ",\"arguments\":");
    if (g->a.stream == 1)
        buf_str(&ch->calls, "\"\"}}");
    ch->n_calls++;
    ch->call_is_open = 1;
}

void
shp_piece(struct gen *g, struct choice *ch, const struct fdchat_piece *p)
{
    switch (p->kind) {
    case FDCHAT_CONTENT:
        buf_add(&ch->text, p->text, p->bytes);
        break;
    case FDCHAT_REASONING:
        if (g->a.include_reasoning != 0)
            buf_add(&ch->reasoning, p->text, p->bytes);
        break;
    case FDCHAT_CALL:
        open_call(g, ch, p);
        break;
    case FDCHAT_ARGUMENTS:
        buf_add(&ch->args, p->text, p->bytes);
        break;
    case FDCHAT_CALL_END:
        close_call(g, ch);
        break;
    }
}

/* ---- logprobs ------------------------------------------------------------------------ */

static void
put_bytes(struct buf *b, const char *p, size_t n)
{
    buf_str(b, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        buf_fmt(b, "%s%u", i > 0 ? "," : "", (unsigned char)p[i]);
    buf_str(b, "]");
}

/* Write a token as a string: its text, or its id with return_tokens_as_token_ids. */
static void
put_name(const struct gen *g, struct buf *b, uint32_t id, const char *p, size_t n)
{
    if (g->a.as_ids == 1)
        buf_fmt(b, "\"token_id:%u\"", id);
    else
        buf_json(b, p, n);
}

static void
put_token(const struct gen *g, struct buf *b, const char *p, size_t n,
    const struct fdc_logprob *l)
{
    buf_str(b, "{\"token\":");
    put_name(g, b, l->id, p, n);
    buf_str(b, ",\"logprob\":");
    buf_real(b, (double)l->logprob);
    put_bytes(b, p, n);
}

static void
chat_logprobs(const struct gen *g, struct choice *ch, const struct fdc_event *ev)
{
    struct buf *b = &ch->lp;
    size_t n;

    if (b->n > 0)
        buf_str(b, ",");
    for (uint32_t i = 0; i < ch->n_taken; i++) {
        const char *p = fdc_event_text(ev, i, &n);

        if (i > 1)
            buf_str(b, ",");
        put_token(g, b, p, n, &ch->taken[i]);
        buf_str(b, i == 0 ? ",\"top_logprobs\":[" : "}");
    }
    buf_str(b, "]}");
}

static uint32_t
characters(const char *p, size_t n)
{
    uint32_t k = 0;

    for (size_t i = 0; i < n; i++)
        k += ((unsigned char)p[i] & 0xc0) != 0x80;
    return k;
}

static void
put_top(const struct gen *g, struct choice *ch, const struct fdc_event *ev, uint32_t i,
    const char *sep)
{
    size_t n;
    const char *p = fdc_event_text(ev, i, &n);

    buf_str(&ch->lp_top, sep);
    put_name(g, &ch->lp_top, ch->taken[i].id, p, n);
    buf_str(&ch->lp_top, ":");
    buf_real(&ch->lp_top, (double)ch->taken[i].logprob);
}

static void
text_logprobs(const struct gen *g, struct choice *ch, const struct fdc_event *ev)
{
    const char *sep = ch->lp.n > 0 ? "," : "";
    int has_taken = 0;
    size_t n;
    const char *p = fdc_event_text(ev, 0, &n);

    buf_str(&ch->lp, sep);
    put_name(g, &ch->lp, ch->taken[0].id, p, n);
    buf_str(&ch->lp_values, sep);
    buf_real(&ch->lp_values, (double)ch->taken[0].logprob);
    buf_fmt(&ch->lp_offset, "%s%u", sep, ch->offset);
    ch->offset += characters(p, n);
    buf_fmt(&ch->lp_top, "%s{", sep);
    for (uint32_t i = 1; i < ch->n_taken; i++) {
        has_taken |= ch->taken[i].id == ch->taken[0].id;
        put_top(g, ch, ev, i, i > 1 ? "," : "");
    }
    if (!has_taken)
        put_top(g, ch, ev, 0, ch->n_taken > 1 ? "," : "");
    buf_str(&ch->lp_top, "}");
}

void
shp_logprobs(struct gen *g, struct choice *ch, const struct fdc_event *ev)
{
    if (ev->n != ch->n_taken || ev->n == 0)
        return;
    if (g->a.is_chat)
        chat_logprobs(g, ch, ev);
    else
        text_logprobs(g, ch, ev);
    ch->n_taken = 0;
}

/* Rank of a token among the alternatives, from 1; 0: it is none of them. */
static uint32_t
rank_of(const struct choice *s, uint32_t id)
{
    for (uint32_t i = 1; i < s->n_taken; i++)
        if (s->taken[i].id == id)
            return i;
    return 0;
}

/* Write an element of prompt_logprobs in vLLM's form: an object by ids, the prompt's
 * token first. */
static void
put_prompt_logprob(const struct gen *g, struct prompt *p, const struct fdc_event *ev)
{
    struct choice *s = &p->scored;
    struct buf *b = &p->lp;
    uint32_t most = (uint32_t)g->a.prompt_logprobs + 1;

    buf_str(b, ",{");
    for (uint32_t i = 0; i < s->n_taken && i < most; i++) {
        uint32_t rank = rank_of(s, s->taken[i].id);
        size_t n;
        const char *text = fdc_event_text(ev, i, &n);

        if (i > 0 && s->taken[i].id == s->taken[0].id)
            continue;
        buf_fmt(b, "%s\"%u\":{\"logprob\":", i > 0 ? "," : "", s->taken[i].id);
        buf_real(b, (double)s->taken[i].logprob);
        if (rank != 0)
            buf_fmt(b, ",\"rank\":%u,\"decoded_token\":", rank);
        else
            buf_str(b, ",\"rank\":null,\"decoded_token\":");
        buf_json(b, text, n);
        buf_str(b, "}");
    }
    buf_str(b, "}");
}

void
shp_prompt_logprobs(const struct gen *g, struct prompt *p, const struct fdc_event *ev)
{
    struct choice *s = &p->scored;
    uint32_t at = s->offset;

    if (ev->n != s->n_taken || ev->n == 0)
        return;
    if (g->a.prompt_logprobs >= 0)
        put_prompt_logprob(g, p, ev);
    if (g->a.echo == 1 && g->a.logprobs >= 0 && !g->a.is_chat) {
        /* prompt_logprobs may have requested more alternatives */
        if (s->n_taken > (uint32_t)g->a.logprobs + 1)
            s->n_taken = (uint32_t)g->a.logprobs + 1;
        buf_add(&p->starts, &at, sizeof(at));
        text_logprobs(g, s, ev);
        s->lp_offset.n = 0;
    }
    s->n_taken = 0;
}

/* ---- ids ---------------------------------------------------------------------------------- */

static void
add_id(struct buf *b, uint32_t id)
{
    buf_fmt(b, "%s%u", b->n > 0 ? "," : "", id);
}

static void
add_ids(struct buf *b, const struct fdc_event *ev)
{
    for (uint32_t i = 0; i < ev->n; i++)
        add_id(b, ev->ids[i]);
}

void
shp_prompt_ids(struct prompt *p, const struct fdc_event *ev)
{
    if (ev->position == 0 && ev->n > 0)
        p->first_id = ev->ids[0];
    p->n_seen += ev->n;
    add_ids(&p->seen, ev);
}

void
shp_ids(const struct gen *g, struct choice *ch, const struct fdc_event *ev)
{
    if (g->a.return_ids == 1)
        add_ids(&ch->ids, ev);
}

void
shp_id(const struct gen *g, struct choice *ch, uint32_t id)
{
    if (g->a.return_ids == 1)
        add_id(&ch->ids, id);
}

static void
put_ids(struct buf *b, const char *name, const struct buf *ids)
{
    buf_fmt(b, ",\"%s\":[", name);
    buf_add(b, ids->p, ids->n);
    buf_str(b, "]");
}

/* Write a prompt's ids (of a stream only in the first event) and its logprobs. */
static void
put_prompt(const struct gen *g, struct prompt *p, struct buf *b)
{
    if (g->a.return_ids == 1 && !p->seen_is_sent) {
        put_ids(b, "prompt_token_ids", &p->seen);
        p->seen_is_sent = g->a.stream == 1 || g->a.is_chat;
    }
    if (g->a.prompt_logprobs >= 0) {
        buf_str(b, ",\"prompt_logprobs\":[null");
        buf_add(b, p->lp.p, p->lp.n);
        buf_str(b, "]");
    }
}

/* Write the logprobs of an echoed prompt. The first token has none; its text is the
 * prompt's text before the second token. */
static void
echo_logprobs(const struct gen *g, const struct prompt *p, struct choice *ch)
{
    uint32_t all = characters(p->echo.p != NULL ? p->echo.p : "", p->echo.n), first, at;
    size_t n = 0;

    first = all > p->scored.offset ? all - p->scored.offset : 0;
    for (uint32_t k = 0; n < p->echo.n; n++) {
        k += ((unsigned char)p->echo.p[n] & 0xc0) != 0x80;
        if (k > first)
            break;
    }
    put_name(g, &ch->lp, p->first_id, p->echo.p != NULL ? p->echo.p : "", n);
    buf_str(&ch->lp_values, "null");
    buf_str(&ch->lp_top, "null");
    buf_str(&ch->lp_offset, "0");
    if (p->scored.lp.n > 0) {
        buf_str(&ch->lp, ",");
        buf_add(&ch->lp, p->scored.lp.p, p->scored.lp.n);
        buf_str(&ch->lp_values, ",");
        buf_add(&ch->lp_values, p->scored.lp_values.p, p->scored.lp_values.n);
        buf_str(&ch->lp_top, ",");
        buf_add(&ch->lp_top, p->scored.lp_top.p, p->scored.lp_top.n);
    }
    for (size_t i = 0; i < p->starts.n; i += sizeof(at)) {
        memcpy(&at, p->starts.p + i, sizeof(at));
        buf_fmt(&ch->lp_offset, ",%u", first + at);
    }
    ch->offset = all;
}

void
shp_echo(struct gen *g, struct prompt *p)
{
    if (g->a.echo != 1 || p->echo_is_done)
        return;
    p->echo_is_done = 1;
    for (uint32_t i = 0; i < g->a.n; i++) {
        struct choice *ch = &g->choice[p->index * g->a.n + i];

        ch->text.failed |= p->echo.failed || p->starts.failed;
        buf_add(&ch->text, p->echo.p, p->echo.n);
        if (g->a.logprobs >= 0 && !g->a.is_chat)
            echo_logprobs(g, p, ch);
    }
}

static void
put_logprobs(const struct gen *g, struct choice *ch, struct buf *b)
{
    if (g->a.logprobs < 0 || ch->lp.n == 0) {
        buf_str(b, ",\"logprobs\":null");
        return;
    }
    if (g->a.is_chat) {
        buf_str(b, ",\"logprobs\":{\"content\":[");
        buf_add(b, ch->lp.p, ch->lp.n);
        buf_str(b, "],\"refusal\":null}");
    } else {
        buf_str(b, ",\"logprobs\":{\"tokens\":[");
        buf_add(b, ch->lp.p, ch->lp.n);
        buf_str(b, "],\"token_logprobs\":[");
        buf_add(b, ch->lp_values.p, ch->lp_values.n);
        buf_str(b, "],\"top_logprobs\":[");
        buf_add(b, ch->lp_top.p, ch->lp_top.n);
        buf_str(b, "],\"text_offset\":[");
        buf_add(b, ch->lp_offset.p, ch->lp_offset.n);
        buf_str(b, "]}");
    }
}

/* ---- choices ---------------------------------------------------------------------------- */

static inline void
put_text(struct buf *b, const char *name, const struct buf *text)
{
    buf_str(b, "\"");
    buf_str(b, name);
    buf_str(b, "\":");
    buf_json(b, text->p != NULL ? text->p : "", text->n);
}

static void
put_finish(const struct gen *g, const struct choice *ch, struct buf *b)
{
    const char *finish = ch->finish;

    if (finish == NULL) {
        buf_str(b, ",\"finish_reason\":null");
        return;
    }
    if (ch->n_calls > 0 && strcmp(finish, "stop") == 0)
        finish = "tool_calls";
    buf_fmt(b, ",\"finish_reason\":\"%s\",\"stop_reason\":", finish);
    if (ch->stop_str >= 0 && (uint32_t)ch->stop_str < g->a.n_stop) {
        buf_json(b, g->a.stop_p[ch->stop_str], g->a.stop_len[ch->stop_str]);
        return;
    }
    for (uint32_t i = 0; i < g->a.n_stop_ids; i++)
        if (ch->stop_id >= 0 && g->a.stop_ids[i] == (uint32_t)ch->stop_id) {
            buf_fmt(b, "%d", ch->stop_id);
            return;
        }
    buf_str(b, "null");
}

/* Write the usage: the reported numbers of ended requests, the current ones of others. */
static void
put_usage(const struct gen *g, struct buf *b)
{
    uint64_t in = g->prompt_tokens, cached = g->cached_tokens, out = g->output_tokens;

    for (uint32_t i = 0; i < g->n_prompt; i++) {
        const struct prompt *p = &g->prompt[i];

        if (p->r == NULL || p->is_over)
            continue;
        in += p->accepted_tokens;
        cached += p->accepted_cached;
        for (uint32_t k = 0; k < g->a.n; k++)
            out += fdc_req_tokens(p->r, k);
    }
    buf_fmt(b,
        "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%llu}",
        (unsigned long long)in, (unsigned long long)out, (unsigned long long)(in + out),
        (unsigned long long)cached);
    if (g->reasoning_tokens > 0)
        buf_fmt(b, ",\"completion_tokens_details\":{\"reasoning_tokens\":%llu}",
            (unsigned long long)g->reasoning_tokens);
    buf_str(b, "}");
}

void
shp_begin(struct gen *g)
{
    const char *object = !g->a.is_chat ? "text_completion"
        : g->a.stream == 1             ? "chat.completion.chunk"
                                       : "chat.completion";

    g->prefix.n = 0;
    buf_str(&g->prefix, g->a.stream == 1 ? "data: {\"id\":" : "{\"id\":");
    buf_json(&g->prefix, g->id, strlen(g->id));
    buf_fmt(&g->prefix, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object,
        (long long)g->created_s);
    buf_json(&g->prefix, g->model->name, strlen(g->model->name));
    buf_str(&g->prefix, ",\"choices\":[");
}

int
shp_has_news(const struct gen *g, const struct choice *ch)
{
    return ch->text.n > 0 || ch->reasoning.n > 0 || ch->calls.n > 0 || ch->args.n > 0 ||
        ch->lp.n > 0 || ch->ids.n > 0 || (ch->finish != NULL && !ch->finish_sent) ||
        (g->a.is_chat && !ch->role_sent);
}

static void
forget(const struct gen *g, struct choice *ch)
{
    ch->text.n = 0;
    if (g->a.is_chat)
        ch->reasoning.n = ch->calls.n = 0;
    if (g->a.logprobs >= 0)
        ch->lp.n = ch->lp_values.n = ch->lp_top.n = ch->lp_offset.n = 0;
    if (g->a.return_ids == 1)
        ch->ids.n = 0;
}

static void
put_delta(const struct gen *g, struct choice *ch, struct buf *b)
{
    const char *sep = "";

    buf_str(b, ",\"delta\":{");
    if (ch->reasoning.n > 0) {
        put_text(b, "reasoning_content", &ch->reasoning);
        sep = ",";
    }
    if (ch->text.n > 0) {
        buf_str(b, sep);
        put_text(b, "content", &ch->text);
        sep = ",";
    }
    put_args(g, ch);
    if (ch->calls.n > 0) {
        buf_str(b, sep);
        buf_str(b, "\"tool_calls\":[");
        buf_add(b, ch->calls.p, ch->calls.n);
        buf_str(b, "]");
    }
    buf_str(b, "}");
}

/* Have all ids of the prompt come? They come before the first token of the answer. */
static int
has_all_ids(const struct prompt *p)
{
    return p->is_accepted && p->n_seen >= p->accepted_tokens;
}

static void
end_event(struct gen *g, struct buf *b)
{
    g->g->met.events++;
    buf_str(b, "}]");
    if (g->a.is_chat && g->a.return_ids == 1 && !g->prompt[0].seen_is_sent &&
        has_all_ids(&g->prompt[0]))
        put_prompt(g, &g->prompt[0], b);
    if (g->a.continuous_usage) {
        buf_str(b, ",\"usage\":");
        put_usage(g, b);
    } else if (g->a.include_usage) {
        buf_str(b, ",\"usage\":null");
    }
    buf_str(b, "}\n\n");
}

/* Write a choice without its closing brace. put_chat writes the text of a chat answer. */
static void
put_choice(const struct gen *g, struct choice *ch,
    void (*put_chat)(const struct gen *, struct choice *, struct buf *), struct buf *b)
{
    buf_str(b, "{\"index\":");
    buf_u64(b, ch->index);
    if (g->a.is_chat) {
        put_chat(g, ch, b);
    } else {
        buf_str(b, ",");
        put_text(b, "text", &ch->text);
    }
    put_logprobs(g, ch, b);
    put_finish(g, ch, b);
    if (g->a.return_ids == 1)
        put_ids(b, "token_ids", &ch->ids);
    if (!g->a.is_chat)
        put_prompt(g, &g->prompt[ch->index / g->a.n], b);
}

void
shp_event(struct gen *g, struct choice *ch, struct buf *b)
{
    if (g->a.is_chat && !ch->role_sent) {
        ch->role_sent = 1;
        buf_add(b, g->prefix.p, g->prefix.n);
        buf_fmt(b,
            "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
            "\"logprobs\":null,\"finish_reason\":null",
            ch->index);
        end_event(g, b);
        if (!shp_has_news(g, ch))
            return;
    }
    buf_add(b, g->prefix.p, g->prefix.n);
    put_choice(g, ch, put_delta, b);
    end_event(g, b);
    ch->finish_sent = ch->finish != NULL;
    forget(g, ch);
}

void
shp_usage_event(struct gen *g, struct buf *b)
{
    buf_add(b, g->prefix.p, g->prefix.n);
    buf_str(b, "],\"usage\":");
    put_usage(g, b);
    buf_str(b, "}\n\n");
}

static void
put_message(const struct gen *g, struct choice *ch, struct buf *b)
{
    buf_str(b, ",\"message\":{\"role\":\"assistant\",");
    close_call(g, ch);
    if (ch->text.n == 0 && ch->n_calls > 0)
        buf_str(b, "\"content\":null");
    else
        put_text(b, "content", &ch->text);
    buf_str(b, ",\"refusal\":null");
    if (ch->reasoning.n > 0) {
        buf_str(b, ",");
        put_text(b, "reasoning_content", &ch->reasoning);
    }
    if (ch->n_calls > 0) {
        buf_str(b, ",\"tool_calls\":[");
        buf_add(b, ch->calls.p, ch->calls.n);
        buf_str(b, "]");
    }
    buf_str(b, "}");
}

void
shp_whole(struct gen *g, struct buf *b)
{
    buf_add(b, g->prefix.p, g->prefix.n);
    for (uint32_t i = 0; i < g->n_choice; i++) {
        buf_str(b, i > 0 ? "," : "");
        put_choice(g, &g->choice[i], put_message, b);
        buf_str(b, "}");
    }
    buf_str(b, "],\"usage\":");
    put_usage(g, b);
    if (g->a.is_chat && g->n_prompt > 0)
        put_prompt(g, &g->prompt[0], b);
    buf_str(b, "}\n");
}

static void
end_stream(struct gen *g, struct buf *b)
{
    if (g->bad.status != 0) {
        buf_str(b, "data: ");
        prb_json(&g->bad, b);
        buf_str(b, "\n\n");
    } else if (g->a.include_usage) {
        shp_usage_event(g, b);
    }
    buf_str(b, "data: [DONE]\n\n");
}

const struct face face_text = { "cmpl-", 0, NULL, NULL, shp_begin, shp_piece,
    shp_has_news, shp_event, end_stream, shp_whole, ": still there\n\n", NULL };
const struct face face_chat = { "chatcmpl-", 1, NULL, NULL, shp_begin, shp_piece,
    shp_has_news, shp_event, end_stream, shp_whole, ": still there\n\n", NULL };
