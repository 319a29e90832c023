/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/items.h"

#include <stdio.h>
#include <string.h>

/* ---- answers --------------------------------------------------------------------- */

static void
flush_item(struct gen *g, struct choice *ch)
{
    struct items *it = &ch->items;

    if (it->fresh.n == 0)
        return;
    buf_add(&it->said, it->fresh.p, it->fresh.n);
    g->face->items->more(g, ch, it->fresh.p, it->fresh.n);
    it->fresh.n = 0;
}

static void
close_item(struct gen *g, struct choice *ch, int is_cut)
{
    if (ch->items.open == ITM_NONE)
        return;
    flush_item(g, ch);
    g->face->items->close(g, ch, is_cut);
    ch->items.open = ITM_NONE;
    ch->items.said.n = 0;
}

static void
open_item(struct gen *g, struct choice *ch, enum item_kind kind)
{
    close_item(g, ch, 0);
    ch->items.open = kind;
    g->face->items->open(g, ch);
    ch->items.n++;
}

static void
add(struct gen *g, struct choice *ch, enum item_kind kind, const struct fdchat_piece *p)
{
    if (p->bytes == 0)
        return;
    if (ch->items.open != kind)
        open_item(g, ch, kind);
    buf_add(&ch->items.fresh, p->text, p->bytes);
}

static void
begin(struct gen *g, struct choice *ch)
{
    if (g->a.stream == 1 && !g->is_begun) {
        g->is_begun = 1;
        g->face->items->start(g, &ch->items.out);
    }
}

void
itm_piece(struct gen *g, struct choice *ch, const struct fdchat_piece *p)
{
    struct items *it = &ch->items;

    begin(g, ch);
    switch (p->kind) {
    case FDCHAT_CONTENT:
        add(g, ch, ITM_TEXT, p);
        break;
    case FDCHAT_REASONING:
        if (g->a.include_reasoning != 0)
            add(g, ch, ITM_REASONING, p);
        break;
    case FDCHAT_CALL:
        close_item(g, ch, 0);
        it->name.n = 0;
        buf_add(&it->name, p->text, p->bytes);
        (void)snprintf(it->id, sizeof(it->id), "%s", p->id);
        ch->n_calls++;
        open_item(g, ch, ITM_CALL);
        break;
    case FDCHAT_ARGUMENTS:
        buf_add(&it->fresh, p->text, p->bytes);
        break;
    case FDCHAT_CALL_END:
        close_item(g, ch, 0);
        break;
    }
}

void
itm_end(struct gen *g, struct choice *ch)
{
    close_item(g, ch, ch->items.open == ITM_CALL);
}

void
itm_event(struct gen *g, struct choice *ch, struct buf *b)
{
    begin(g, ch);
    flush_item(g, ch);
    if (ch->finish != NULL && !ch->finish_sent) {
        itm_end(g, ch);
        ch->finish_sent = 1;
    }
    buf_add(b, ch->items.out.p, ch->items.out.n);
    ch->items.out.n = 0;
}

int
itm_has_news(const struct gen *g, const struct choice *ch)
{
    return !g->is_begun || ch->items.out.n > 0 || ch->items.fresh.n > 0 ||
        (ch->finish != NULL && !ch->finish_sent);
}

int
itm_failed(const struct items *it)
{
    return it->fresh.failed || it->said.failed || it->name.failed || it->out.failed ||
        it->done.failed;
}

void
itm_fini(struct items *it)
{
    buf_fini(&it->fresh);
    buf_fini(&it->said);
    buf_fini(&it->name);
    buf_fini(&it->out);
    buf_fini(&it->done);
}

/* ---- bodies ---------------------------------------------------------------------- */

void
itm_begin_message(struct itm_talk *t, const char *role, const struct buf *content)
{
    buf_fmt(t->b, "%s{\"role\":\"%s\"", t->sep, role);
    t->sep = ",";
    itm_text(t->b, "content", content);
}

void
itm_message(struct itm_talk *t, const char *role, const struct buf *content)
{
    itm_begin_message(t, role, content);
    buf_str(t->b, "}");
}

void
itm_raw(const struct jr *j, uint32_t i, struct buf *b)
{
    const char *p = j->text + j->node[i].at, *end = p + j->node[i].bytes, *from = p;
    int in_string = 0;

    for (; p < end; p++) {
        if (in_string && *p == '\\')
            p++;
        else if (*p == '"')
            in_string = !in_string;
        else if (!in_string && strchr(" \t\r\n", *p) != NULL) {
            buf_add(b, from, (size_t)(p - from));
            from = p + 1;
        }
    }
    buf_add(b, from, (size_t)(end - from));
}

uint32_t
itm_member(const struct jr *j, uint32_t i, const char *name)
{
    uint32_t k = jr_member(j, i, name);

    return k != JR_NONE && jr_type(j, k) == JR_NULL ? JR_NONE : k;
}

void
itm_copy(const struct jr *j, uint32_t i, const char *as, const char *name, struct buf *b)
{
    uint32_t k = itm_member(j, i, as);

    if (k == JR_NONE)
        return;
    buf_fmt(b, ",\"%s\":", name);
    itm_raw(j, k, b);
}

void
itm_text(struct buf *b, const char *name, const struct buf *text)
{
    buf_fmt(b, ",\"%s\":", name);
    buf_json(b, text->p != NULL ? text->p : "", text->n);
}

const char *
itm_type(const struct jr *j, uint32_t i, char ret[ITM_TYPE_BYTES])
{
    struct buf b = { NULL };

    jr_text(j, jr_member(j, i, "type"), &b);
    (void)snprintf(ret, ITM_TYPE_BYTES, "%s", b.p != NULL ? b.p : "");
    buf_fini(&b);
    return ret;
}

static int
is_among(const struct jr *j, uint32_t type, const char *const *types, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (jr_is(j, type, types[i]))
            return 1;
    return 0;
}

int
itm_parts(const struct jr *j, uint32_t i, const char *field, const char *const *types,
    size_t n, struct buf *ret, struct problem *bad)
{
    const char *sep = ret->n > 0 ? "\n" : "";
    char name[ITM_TYPE_BYTES];

    if (jr_type(j, i) == JR_STRING) {
        buf_str(ret, sep);
        jr_text(j, i, ret);
        return 0;
    }
    if (jr_type(j, i) != JR_ARRAY)
        return prb_field(bad, field,
            "%s holds a content that is %s; it must be a string or an array of parts",
            field, i == JR_NONE ? "missing" : jr_type_name(jr_type(j, i)));
    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k].next) {
        uint32_t type = jr_member(j, k, "type"), text = jr_member(j, k, "text");

        if (jr_is(j, type, "refusal"))
            text = jr_member(j, k, "refusal");
        if (!is_among(j, type, types, n) || jr_type(j, text) != JR_STRING)
            return prb_field(bad, field,
                "%s holds a part of type \"%s\"; this model takes only type %s, with a "
                "string as its text",
                field, itm_type(j, k, name), types[0]);
        buf_str(ret, sep);
        sep = "\n";
        jr_text(j, text, ret);
    }
    return 0;
}

void
itm_function(const struct jr *j, uint32_t i, struct buf *b)
{
    struct buf name = { NULL };

    jr_text(j, jr_member(j, i, "name"), &name);
    buf_str(b, ",\"function\":{\"name\":");
    buf_json(b, name.p != NULL ? name.p : "", name.n);
    buf_fini(&name);
}

static int
refuse_tool(const struct jr *j, uint32_t k, const char *type, struct problem *bad)
{
    char name[ITM_TYPE_BYTES];

    return prb_field(bad, "tools",
        "tools holds one of type \"%s\", which nothing here runs; tools are of type %s and "
        "have a name",
        itm_type(j, k, name), type);
}

int
itm_tools(const struct jr *j, const char *type, const char *as, int must_have,
    struct buf *b, struct problem *bad)
{
    uint32_t i = itm_member(j, 0, "tools");
    const char *sep = ",\"tools\":[";

    if (i != JR_NONE && jr_type(j, i) != JR_ARRAY)
        return prb_field(bad, "tools", "tools is %s; it must be an array",
            jr_type_name(jr_type(j, i)));
    if (i == JR_NONE || jr_count(j, i) == 0)
        return 0;
    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k].next) {
        uint32_t schema = itm_member(j, k, as);

        if ((itm_member(j, k, "type") != JR_NONE &&
                !jr_is(j, jr_member(j, k, "type"), type)) ||
            jr_type(j, jr_member(j, k, "name")) != JR_STRING)
            return refuse_tool(j, k, type, bad);
        if (schema != JR_NONE ? jr_type(j, schema) != JR_OBJECT : must_have)
            return prb_field(bad, "tools",
                "tools holds one whose %s is %s; it must be an object", as,
                schema == JR_NONE ? "missing" : jr_type_name(jr_type(j, schema)));
        buf_str(b, sep);
        sep = ",";
        buf_str(b, "{\"type\":\"function\"");
        itm_function(j, k, b);
        itm_copy(j, k, "description", "description", b);
        itm_copy(j, k, as, "parameters", b);
        buf_str(b, "}}");
    }
    buf_str(b, "]");
    return 0;
}

/* Fields that these APIs share with chat completions, including those of vLLM. */
static const struct item_field shared[] = { { "model", "model", ITF_PASSED },
    { "temperature", "temperature", ITF_PASSED }, { "top_p", "top_p", ITF_PASSED },
    { "top_k", "top_k", ITF_PASSED }, { "stream", "stream", ITF_PASSED },
    { "seed", "seed", ITF_PASSED }, { "min_p", "min_p", ITF_PASSED },
    { "ignore_eos", "ignore_eos", ITF_PASSED }, { "min_tokens", "min_tokens", ITF_PASSED },
    { "stream_interval", "stream_interval", ITF_PASSED },
    { "priority", "priority", ITF_PASSED }, { "request_id", "request_id", ITF_PASSED },
    { "cache_salt", "cache_salt", ITF_PASSED }, { "metadata", NULL, ITF_HARMLESS },
    { "user", NULL, ITF_HARMLESS }, { "service_tier", NULL, ITF_HARMLESS },
    { "safety_identifier", NULL, ITF_HARMLESS }, { "prompt_cache_key", NULL, ITF_HARMLESS },
    { "prompt_cache_retention", NULL, ITF_HARMLESS },
    { "stream_options", NULL, ITF_HARMLESS } };

static const struct item_field *
find_field(const struct jr *j, uint32_t key, const struct item_field *f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (jr_is(j, key, f[i].name))
            return &f[i];
    return NULL;
}

int
itm_fields(const struct jr *j, const struct item_field *fields, size_t n, struct buf *b,
    struct buf *ignored, struct problem *bad)
{
    if (jr_count(j, 0) / 2 > ASK_MAX_UNKNOWN)
        return prb_set(bad, 400, "invalid_json", "the body has more than %d fields",
            ASK_MAX_UNKNOWN);
    for (uint32_t k = 1; k < j->node[0].next; k = j->node[k + 1].next) {
        const struct item_field *f = find_field(j, k, fields, n);

        if (f == NULL)
            f = find_field(j, k, shared, sizeof(shared) / sizeof(shared[0]));
        if (f == NULL) {
            ask_ignore(ignored, j, k);
            continue;
        }
        if (jr_member(j, 0, f->name) != k + 1)
            return prb_field(bad, f->name, "%s comes twice", f->name);
        if (f->kind == ITF_REFUSED && !ask_is_off(j, k + 1))
            return prb_field(bad, f->name, "%s is not supported: %s; leave it out",
                f->name, f->as);
        if (f->kind == ITF_PASSED)
            itm_copy(j, 0, f->name, f->as, b);
    }
    return 0;
}

int
itm_translate(struct gen *g, const char *body, size_t n, struct problem *bad)
{
    struct jr j = { NULL };
    int rc = ask_json(&j, body, n, bad);

    if (rc == 0)
        rc = g->face->translate(&j, &g->body, &g->said, &g->ignored, bad);
    jr_fini(&j);
    if (rc == 0 && (g->body.failed || g->said.failed || g->ignored.failed))
        rc = prb_set(bad, 503, "out_of_memory", "out of memory");
    return rc;
}
