/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Converts the messages of a request to the form that models' templates expect. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "http/items.h"
#include "http/model.h"

/* Add the text of a value unchanged. */
static void
add_raw(const struct jr *j, uint32_t i, struct buf *b)
{
    buf_add(b, j->text + j->node[i].at, j->node[i].bytes);
}

/* transformers marks the end of the message to be continued with this text. */
#define TAG  "CONTINUE_FINAL_MESSAGE_TAG"
#define TAG_ TAG " "

/* The node of a part's text; JR_NONE: it has none. */
static uint32_t
part_text(const struct jr *j, uint32_t i)
{
    static const char *const types[] = { "text", "input_text", "output_text" };
    uint32_t type = jr_member(j, i, "type"), text = jr_member(j, i, "text");
    int is_text = type == JR_NONE;

    if (jr_type(j, i) == JR_STRING)
        return i;
    if (jr_is(j, type, "refusal")) /* in an earlier answer that the client sends back */
        text = jr_member(j, i, "refusal");
    for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)
        is_text |= jr_is(j, type, types[k]);
    return (is_text || jr_is(j, type, "refusal")) && jr_type(j, text) == JR_STRING
        ? text
        : JR_NONE;
}

/* Add the text of a content: a string, or parts, joined by line feeds. Returns JR_NONE,
 * or the first part that is not text. */
static uint32_t
content_text(const struct jr *j, uint32_t i, struct buf *text)
{
    if (jr_type(j, i) == JR_STRING) {
        jr_text(j, i, text);
        return JR_NONE;
    }
    for (uint32_t k = i + 1; i < j->n && k < j->node[i].next; k = j->node[k].next) {
        uint32_t said = part_text(j, k);

        if (said == JR_NONE)
            return k;
        if (text->n > 0)
            buf_str(text, "\n");
        jr_text(j, said, text);
    }
    return JR_NONE;
}

static int
add_content(const struct jr *j, uint32_t i, int goes_on, struct buf *b, struct problem *bad)
{
    struct buf text = { NULL };
    char type[ITM_TYPE_BYTES];
    uint32_t other;
    int rc = 0;

    if (jr_type(j, i) == JR_STRING && !goes_on) {
        add_raw(j, i, b);
        return 0;
    }
    other = content_text(j, i, &text);
    if (other != JR_NONE)
        rc = prb_field(bad, "messages",
            "messages holds a content part of type \"%s\"; this model takes only type text, "
            "with a string as its text",
            itm_type(j, other, type));
    if (goes_on)
        buf_str(&text, TAG_);
    if (rc == 0)
        buf_json(b, text.p != NULL ? text.p : "", text.n);
    buf_fini(&text);
    return rc;
}

/* Add the reasoning by all three names under which templates read it. */
static void
add_reasoning(const struct jr *j, uint32_t m, struct buf *b)
{
    static const char *const names[] = { "reasoning_content", "reasoning", "thinking" };
    uint32_t from = JR_NONE;

    for (size_t i = 0; i < 3; i++)
        if (jr_type(j, from) != JR_STRING)
            from = jr_member(j, m, names[i]);
    for (size_t i = 0; i < 3 && jr_type(j, from) == JR_STRING; i++)
        if (jr_member(j, m, names[i]) == JR_NONE) {
            buf_fmt(b, ",\"%s\":", names[i]);
            add_raw(j, from, b);
        }
}

/* Add a call's function. Its arguments, a string with the text of an object, become that
 * object. */
static void
add_function(const struct jr *j, uint32_t i, struct buf *b)
{
    const char *sep = "{";

    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k + 1].next) {
        struct buf text = { NULL };
        struct jr inner = { NULL };
        int is_object = 0;

        buf_str(b, sep);
        sep = ",";
        add_raw(j, k, b);
        buf_str(b, ":");
        if (jr_is(j, k, "arguments") && jr_type(j, k + 1) == JR_STRING) {
            jr_text(j, k + 1, &text);
            is_object = text.p != NULL && jr_read(&inner, text.p, text.n, 100000) == 0 &&
                jr_type(&inner, 0) == JR_OBJECT;
        }
        if (is_object)
            buf_add(b, text.p, text.n);
        else
            add_raw(j, k + 1, b);
        jr_fini(&inner);
        buf_fini(&text);
    }
    buf_str(b, sep[0] == '{' ? "{}" : "}");
}

/* Check the calls: templates use their names and arguments without checking them. */
static int
check_calls(const struct jr *j, uint32_t i, struct problem *bad)
{
    int is_array = jr_type(j, i) == JR_ARRAY;

    if (jr_type(j, i) == JR_NULL)
        return 0;
    for (uint32_t c = i + 1; is_array && c < j->node[i].next; c = j->node[c].next) {
        uint32_t name = jr_member(j, jr_member(j, c, "function"), "name");

        if (jr_type(j, name) != JR_STRING)
            return prb_field(bad, "messages",
                "messages holds a tool call whose function has no name, which must be a "
                "string");
    }
    return is_array
        ? 0
        : prb_field(bad, "messages",
              "messages holds tool_calls that are %s; they must be an array",
              jr_type_name(jr_type(j, i)));
}

static void
add_calls(const struct jr *j, uint32_t i, struct buf *b)
{
    const char *sep = "[";

    for (uint32_t c = i + 1; c < j->node[i].next; c = j->node[c].next) {
        const char *member = "{";

        buf_str(b, sep);
        sep = ",";
        for (uint32_t k = c + 1; k < j->node[c].next; k = j->node[k + 1].next) {
            buf_str(b, member);
            member = ",";
            add_raw(j, k, b);
            buf_str(b, ":");
            if (jr_is(j, k, "function") && jr_type(j, k + 1) == JR_OBJECT)
                add_function(j, k + 1, b);
            else
                add_raw(j, k + 1, b);
        }
        buf_str(b, member[0] == '{' ? "{}" : "}");
    }
    buf_str(b, sep[0] == '[' ? "[]" : "]");
}

static int
add_message(const struct jr *j, uint32_t m, int goes_on, struct buf *b, struct problem *bad)
{
    const char *sep = "{";
    int rc = 0, has_content = 0;

    if (jr_type(j, m) != JR_OBJECT || jr_type(j, jr_member(j, m, "role")) != JR_STRING)
        return prb_field(bad, "messages", "a message is not an object with a role");
    for (uint32_t k = m + 1; k < j->node[m].next && rc == 0; k = j->node[k + 1].next) {
        int is_content = jr_is(j, k, "content");

        has_content |= is_content;
        buf_str(b, sep);
        sep = ",";
        add_raw(j, k, b);
        buf_str(b, ":");
        if (is_content && (jr_type(j, k + 1) == JR_ARRAY || jr_type(j, k + 1) == JR_STRING))
            rc = add_content(j, k + 1, goes_on, b, bad);
        else if (is_content && jr_type(j, k + 1) != JR_NULL)
            rc = prb_field(bad, "messages",
                "a message's content is %s; it must be a string, an array of parts or null",
                jr_type_name(jr_type(j, k + 1)));
        else if (jr_is(j, k, "tool_calls") && check_calls(j, k + 1, bad) != 0)
            rc = -1;
        else if (jr_is(j, k, "tool_calls") && jr_type(j, k + 1) == JR_ARRAY)
            add_calls(j, k + 1, b);
        else
            add_raw(j, k + 1, b);
    }
    if (rc == 0 && !has_content)
        buf_str(b, ",\"content\":null");
    add_reasoning(j, m, b);
    buf_str(b, "}");
    return rc;
}

static int
add_messages(const struct jr *j, uint32_t root, int goes_on, struct buf *b,
    struct problem *bad)
{
    uint32_t i = jr_member(j, root, "messages");
    const char *sep = "{\"messages\":[";
    int rc = 0;

    if (jr_type(j, i) != JR_ARRAY || jr_count(j, i) == 0)
        return prb_field(bad, "messages",
            "messages is %s; it must be an array of at least one message",
            i == JR_NONE ? "missing"
                : jr_count(j, i) == 0 && jr_type(j, i) == JR_ARRAY
                ? "empty"
                : jr_type_name(jr_type(j, i)));
    for (uint32_t m = i + 1; m < j->node[i].next && rc == 0; m = j->node[m].next) {
        buf_str(b, sep);
        sep = ",";
        rc = add_message(j, m, goes_on && j->node[m].next == j->node[i].next, b, bad);
    }
    buf_str(b, "]");
    return rc;
}

/* Add a field of the request as a variable of the same name. */
static void
add_field(const struct jr *j, uint32_t root, const char *name, struct buf *b)
{
    uint32_t i = jr_member(j, root, name);

    if (i == JR_NONE || jr_type(j, i) == JR_NULL ||
        (jr_type(j, i) == JR_ARRAY && jr_count(j, i) == 0))
        return;
    buf_fmt(b, ",\"%s\":", name);
    add_raw(j, i, b);
}

static int
add_variables(const struct jr *j, uint32_t root, int goes_on, struct buf *b,
    struct problem *bad)
{
    uint32_t more = jr_member(j, root, "chat_template_kwargs");
    uint32_t effort = jr_member(j, root, "reasoning_effort");
    uint32_t begin = jr_member(j, root, "add_generation_prompt");
    uint32_t choice = jr_member(j, root, "tool_choice");

    if (!jr_is(j, choice, "none"))
        add_field(j, root, "tools", b);
    add_field(j, root, "documents", b);
    add_field(j, root, "reasoning_effort", b);
    /* An effort also switches on the thinking of models that need enable_thinking. */
    if (jr_type(j, effort) == JR_STRING && jr_member(j, more, "enable_thinking") == JR_NONE)
        buf_fmt(b, ",\"enable_thinking\":%s", jr_is(j, effort, "none") ? "false" : "true");
    buf_fmt(b, ",\"add_generation_prompt\":%s",
        goes_on || jr_type(j, begin) == JR_FALSE ? "false" : "true");
    if (more == JR_NONE || jr_type(j, more) == JR_NULL)
        return 0;
    if (jr_type(j, more) != JR_OBJECT)
        return prb_field(bad, "chat_template_kwargs",
            "chat_template_kwargs is %s; it must be an object",
            jr_type_name(jr_type(j, more)));
    for (uint32_t k = more + 1; k < j->node[more].next; k = j->node[k + 1].next) {
        if (jr_is(j, k, "messages"))
            return prb_field(bad, "chat_template_kwargs",
                "chat_template_kwargs holds messages; they are a field of their own");
        buf_str(b, ",");
        add_raw(j, k, b);
        buf_str(b, ":");
        add_raw(j, k + 1, b);
    }
    return 0;
}

/* Is c an ASCII blank of Python's strip()? */
static int
is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

/* Offset of the last match of a text in another; n: none. */
static size_t
last_of(const char *p, size_t n, const char *what, size_t n_what)
{
    for (size_t at = n >= n_what ? n - n_what + 1 : 0; at > 0; at--)
        if (memcmp(p + at - 1, what, n_what) == 0)
            return at - 1;
    return n;
}

/* Does the prompt contain the whole final message? A template may leave some of
 * it out. */
static int
holds_final(const struct jr *j, uint32_t root, const struct fdchat_prompt *p)
{
    uint32_t i = jr_member(j, root, "messages"), last = JR_NONE;
    struct buf text = { NULL };
    size_t from = 0, n;
    int yes;

    for (uint32_t m = i + 1; m < j->node[i].next; m = j->node[m].next)
        last = m;
    (void)content_text(j, jr_member(j, last, "content"), &text);
    n = text.n;
    while (from < n && is_blank(text.p[from]))
        from++;
    while (n > from && is_blank(text.p[n - 1]))
        n--;
    yes = n == from || last_of(p->text, p->bytes, text.p + from, n - from) < p->bytes;
    buf_fini(&text);
    return yes;
}

/* Cut the prompt after the final message, at the place where transformers cuts it. */
static int
cut(const struct jr *j, uint32_t root, struct fdchat_prompt *p, struct problem *bad)
{
    size_t at = last_of(p->text, p->bytes, TAG, sizeof(TAG) - 1);

    if (at == p->bytes || !holds_final(j, root, p))
        return prb_field(bad, "continue_final_message",
            "the final message cannot be continued: it has no text, or the model's chat "
            "template does not write it as it is");
    if (p->bytes - at < sizeof(TAG_) - 1 || p->text[at + sizeof(TAG) - 1] != ' ')
        while (at > 0 && is_blank(p->text[at - 1]))
            at--;
    p->bytes = at;
    p->text[at] = '\0';
    while (p->n_span > 0 && p->spans[p->n_span - 1].at >= at)
        p->n_span--;
    if (p->n_span > 0 && p->spans[p->n_span - 1].at + p->spans[p->n_span - 1].bytes > at)
        p->spans[p->n_span - 1].bytes = at - p->spans[p->n_span - 1].at;
    return 0;
}

void
model_echo(const struct jr *j, uint32_t root, struct buf *ret)
{
    uint32_t i = jr_member(j, root, "messages"), last = JR_NONE;
    uint32_t begin = jr_member(j, root, "add_generation_prompt");
    int goes_on = jr_type(j, jr_member(j, root, "continue_final_message")) == JR_TRUE;

    for (uint32_t m = i + 1; i != JR_NONE && m < j->node[i].next; m = j->node[m].next)
        last = m;
    if (goes_on || jr_type(j, begin) == JR_FALSE ||
        jr_is(j, jr_member(j, last, "role"), "assistant"))
        (void)content_text(j, jr_member(j, last, "content"), ret);
}

int
model_render(const struct model *m, const struct jr *j, uint32_t root,
    struct fdchat_prompt *ret, struct problem *bad)
{
    char err[FDCHAT_ERR_BYTES] = "";
    int goes_on = jr_type(j, jr_member(j, root, "continue_final_message")) == JR_TRUE;
    struct buf b = { NULL };
    int rc;

    if (m->chat == NULL)
        return prb_set(bad, 400, "no_chat_template", "%s", m->why_no_chat);
    rc = add_messages(j, root, goes_on, &b, bad);
    if (rc == 0)
        rc = add_variables(j, root, goes_on, &b, bad);
    buf_str(&b, "}");
    if (rc == 0 && b.failed)
        rc = prb_set(bad, 503, "out_of_memory", "out of memory");
    if (rc == 0) {
        struct fdchat_args a = { .size = sizeof(a),
            .model = m->variables,
            .model_bytes = m->variables != NULL ? strlen(m->variables) : 0,
            .request = b.p,
            .request_bytes = b.n };

        rc = fdchat_render(m->chat, &a, ret, err);
        if (rc == -ENOMEM)
            rc = prb_set(bad, 503, "out_of_memory", "out of memory");
        else if (rc != 0)
            rc = prb_field(bad, "messages", "the model's chat template refuses this: %s",
                err);
        else if (goes_on) {
            rc = cut(j, root, ret, bad);
            if (rc != 0)
                fdchat_prompt_free(ret);
        }
    }
    buf_fini(&b);
    return rc;
}
