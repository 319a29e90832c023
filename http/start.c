/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* From a body to requests of fdd. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "http/conn.h"
#include "http/gen.h"
#include "http/gen_priv.h"
#include "http/items.h"
#include "http/route.h"
#include "http/shape.h"

#define GEN_MAX_SPANS 16384 /* of fdd */

/* ---- prompts ------------------------------------------------------------------------- */

static int
no_memory(struct problem *bad)
{
    return prb_set(bad, 503, "out_of_memory", "out of memory");
}

static int
make_prompts(struct gen *g, uint32_t n, struct problem *bad)
{
    g->prompt = calloc(n, sizeof(*g->prompt));
    g->choice = calloc((size_t)n * g->a.n, sizeof(*g->choice));
    if (g->prompt == NULL || g->choice == NULL)
        return no_memory(bad);
    g->n_prompt = g->n_open = n;
    g->n_choice = n * g->a.n;
    for (uint32_t i = 0; i < n; i++) {
        g->prompt[i].gen = g;
        g->prompt[i].index = i;
    }
    for (uint32_t i = 0; i < g->n_choice; i++) {
        g->choice[i].index = i;
        g->choice[i].stop_id = g->choice[i].stop_str = -1;
    }
    return 0;
}

static int
take_text(struct gen *g, struct prompt *p, uint32_t i, struct problem *bad)
{
    struct buf b = { NULL };

    jr_text(&g->a.j, i, &b);
    buf_add(&b, "", 0);
    if (b.failed) {
        buf_fini(&b);
        return no_memory(bad);
    }
    p->text = b.p;
    p->n = b.n;
    if (g->a.echo == 1 && (g->a.p.flags & FDC_F_PROMPT_TEXT) == 0)
        buf_add(&p->echo, b.p, b.n);
    return 0;
}

static int
take_ids(struct gen *g, struct prompt *p, uint32_t i, struct problem *bad)
{
    uint32_t n;

    if (ask_ids(&g->a.j, i, "prompt", ASK_MAX_VALUES, &p->ids, &n, bad) != 0)
        return -1;
    p->n = n;
    return 0;
}

/* prompt: a text, ids, or an array of such. */
static int
text_prompts(struct gen *g, struct problem *bad)
{
    const struct jr *j = &g->a.j;
    uint32_t i = g->a.prompt, n = jr_count(j, i), at = 0;
    int is_list;

    if (i == JR_NONE)
        return prb_field(bad, "prompt", "prompt is missing");
    if (jr_type(j, i) == JR_STRING)
        return make_prompts(g, 1, bad) != 0 ? -1 : take_text(g, &g->prompt[0], i, bad);
    if (jr_type(j, i) != JR_ARRAY || n == 0)
        return prb_field(bad, "prompt",
            "prompt is %s; it must be a string, an array of token ids, or an array of those",
            jr_type(j, i) == JR_ARRAY ? "empty" : jr_type_name(jr_type(j, i)));
    is_list = jr_type(j, i + 1) == JR_STRING || jr_type(j, i + 1) == JR_ARRAY;
    if (!is_list)
        return make_prompts(g, 1, bad) != 0 ? -1 : take_ids(g, &g->prompt[0], i, bad);
    if (n > ASK_MAX_PROMPTS)
        return prb_field(bad, "prompt", "prompt has %u prompts; at most %d are taken", n,
            ASK_MAX_PROMPTS);
    if (make_prompts(g, n, bad) != 0)
        return -1;
    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k].next) {
        int rc = jr_type(j, k) == JR_STRING
            ? take_text(g, &g->prompt[at], k, bad)
            : take_ids(g, &g->prompt[at], k, bad);

        if (rc != 0)
            return -1;
        at++;
    }
    return 0;
}

static int
take_spans(struct prompt *p, const struct fdchat_prompt *text, struct problem *bad)
{
    if (text->n_span == 0)
        return 0;
    if (text->n_span > GEN_MAX_SPANS)
        return prb_field(bad, "messages",
            "the conversation has %zu pieces; at most %d are taken", text->n_span,
            GEN_MAX_SPANS);
    p->spans = calloc(text->n_span, sizeof(*p->spans));
    if (p->spans == NULL)
        return no_memory(bad);
    for (size_t i = 0; i < text->n_span; i++)
        if (text->spans[i].bytes > 0)
            p->spans[p->n_span++] = (struct fdc_span){ (uint32_t)text->spans[i].at,
                (uint32_t)text->spans[i].bytes };
    return 0;
}

static int
make_answers(struct gen *g, const struct fdchat_prompt *text, struct problem *bad)
{
    const struct jr_node *tools = g->a.tools != JR_NONE ? &g->a.j.node[g->a.tools] : NULL;
    struct fdchat_answer_opts o = { .size = sizeof(o),
        .format = g->g->model.format,
        .prompt = text->text,
        .prompt_bytes = text->bytes,
        .tools = tools != NULL ? g->a.j.text + tools->at : NULL,
        .tools_bytes = tools != NULL ? tools->bytes : 0,
        .no_calls = g->a.no_calls };
    char err[FDCHAT_ERR_BYTES] = "";

    for (uint32_t i = 0; i < g->n_choice && o.format != NULL; i++) {
        int rc;

        if (getrandom(&o.seed, sizeof(o.seed), 0) < 0)
            o.seed = i;
        rc = fdchat_answer_new(&o, &g->choice[i].answer, err);
        if (rc != 0)
            return prb_field(bad, "tools", "%s", err);
    }
    return 0;
}

static int
chat_prompt(struct gen *g, struct problem *bad)
{
    struct fdchat_prompt text = { NULL };
    struct prompt *p;
    int rc;

    if (make_prompts(g, 1, bad) != 0 ||
        model_render(&g->g->model, &g->a.j, 0, &text, bad) != 0)
        return -1;
    p = &g->prompt[0];
    if (g->a.echo == 1)
        model_echo(&g->a.j, 0, &p->echo);
    p->text = malloc(text.bytes + 1);
    rc = p->text == NULL ? no_memory(bad) : make_answers(g, &text, bad);
    if (p->text != NULL) {
        memcpy(p->text, text.text, text.bytes);
        p->text[text.bytes] = '\0';
        p->n = text.bytes;
    }
    if (rc == 0 && g->g->par->chat_special_in_content == PAR_CHAT_SPECIAL_IN_CONTENT_LITERAL)
        rc = take_spans(p, &text, bad);
    fdchat_prompt_free(&text);
    return rc;
}

/* ---- may it come ------------------------------------------------------------------------ */

static int
check_model(struct gen *g, struct problem *bad)
{
    struct buf name = { NULL };
    int rc = 0;

    if (g->g->draining)
        rc = prb_set(bad, 503, "draining", "the gateway is ending");
    else if (g->g->link.main == NULL)
        rc = prb_set(bad, 503, "daemon_lost", "there is no connection to fdd");
    else if (g->g->model.name[0] == '\0')
        rc = prb_set(bad, 503, "model_loading", "the model is not ready");
    if (rc != 0)
        bad->retry_ms = 1000;
    if (rc != 0 || g->a.model == JR_NONE)
        return rc;
    jr_text(&g->a.j, g->a.model, &name);
    if (name.p == NULL || !model_has_name(&g->g->model, g->g->par, name.p, name.n)) {
        rc = prb_set(bad, 404, "model_not_found", "there is no model %.200s; there is %s",
            name.p != NULL ? name.p : "", g->g->model.name);
        (void)snprintf(bad->param, sizeof(bad->param), "model");
    }
    buf_fini(&name);
    return rc;
}

static int
check_key(struct gen *g, struct problem *bad)
{
    struct key *k = g->c->key;

    if (g->a.priority != ASK_I32_UNSET && g->a.priority != 0 && k != NULL &&
        !k->may_prioritize)
        return prb_field(bad, "priority", "this key may not set priority");
    if (k == NULL)
        return 0;
    if (k->inflight != 0 && k->running >= k->inflight) {
        (void)prb_set(bad, 429, "rate_limit_exceeded",
            "this key may have %u requests at a time", k->inflight);
        bad->retry_ms = 1000;
        return -1;
    }
    if (k->user != 0)
        g->a.o.user = k->user;
    return 0;
}

static void
name_it(struct gen *g)
{
    const char *kind = g->face->id;
    uint64_t r[2] = { 0, 0 };

    if (g->a.id.n > 0)
        (void)snprintf(g->id, sizeof(g->id), "%s%s", kind, g->a.id.p);
    else if (g->c->id[0] != '\0')
        (void)snprintf(g->id, sizeof(g->id), "%s%s", kind, g->c->id);
    else {
        if (getrandom(r, sizeof(r), 0) < 0)
            r[0] = g->g->now_ms;
        (void)snprintf(g->id, sizeof(g->id), "%s%016llx%016llx", kind,
            (unsigned long long)r[0], (unsigned long long)r[1]);
    }
}

/* ---- start ---------------------------------------------------------------------------------- */

/* Is it one text, or an array of texts alone? */
static int
is_text(const struct gen *g)
{
    const struct jr *j = &g->a.j;
    uint32_t i = g->a.prompt;

    if (jr_type(j, i) != JR_ARRAY)
        return jr_type(j, i) == JR_STRING;
    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k].next)
        if (jr_type(j, k) != JR_STRING)
            return 0;
    return 1;
}

static int
prepare(struct gen *g, struct problem *bad)
{
    const struct face *face = g->face;
    const char *body = g->c->body;
    size_t n = g->c->body_n;

    if (face->translate != NULL) {
        if (itm_translate(g, body, n, bad) != 0)
            return -1;
        body = g->body.p;
        n = g->body.n;
    }
    if (ask_read(&g->a, body, n, face->is_chat, bad) != 0 || check_model(g, bad) != 0 ||
        check_key(g, bad) != 0)
        return -1;
    /* A text is its own echo; ids are turned into text by the daemon. */
    if (g->a.echo == 1 && !face->is_chat &&
        (g->a.logprobs >= 0 || !is_text(g) || g->a.truncate != ASK_I32_UNSET))
        g->a.p.flags |= FDC_F_PROMPT_TEXT;
    if ((g->face->is_chat ? chat_prompt(g, bad) : text_prompts(g, bad)) != 0)
        return -1;
    /* What a client has written whole is its own to mark up; in a conversation only the
     * template's words are (their spans are not). */
    g->a.p.flags |= FDC_F_PARSE_SPECIAL;
    /* A parser tells a special token from text that reads the same. A daemon that gives
     * files out sends them apart. */
    if (g->face->is_chat && g->g->model.format != NULL &&
        (g->g->link.model.offers & FDC_HAS_FILE) != 0)
        g->a.p.flags |= FDC_F_ALONE;
    name_it(g);
    g->created_s = (int64_t)time(NULL);
    if (face->begin != NULL)
        face->begin(g);
    return 0;
}

static void
start(struct conn *c, const struct face *face)
{
    struct gen *g = calloc(1, sizeof(*g));
    struct problem bad = { .status = 0 };

    if (g == NULL) {
        (void)no_memory(&bad);
        conn_problem(c, &bad);
        return;
    }
    g->g = c->g;
    g->c = c;
    g->face = face;
    g->began_ms = g->event_ms = c->g->now_ms;
    if (prepare(g, &bad) != 0) {
        ask_fini(&g->a);
        gen_free(g);
        prb_rename(&bad, face->names);
        conn_problem(c, &bad);
        return;
    }
    ask_forget(&g->a);
    buf_fini(&g->body);
    conn_forget(c);
    if (c->key != NULL)
        c->key->running++;
    c->g->met.streams++;
    c->work = g;
    c->drop = gen_drop;
    c->flush = gen_flush;
    c->tick = gen_tick;
    gen_truncate(g);
}

void
rt_completions(struct conn *c)
{
    start(c, &face_text);
}

void
rt_chat(struct conn *c)
{
    start(c, &face_chat);
}

void
rt_messages(struct conn *c)
{
    start(c, &face_messages);
}

void
rt_responses(struct conn *c)
{
    start(c, &face_responses);
}
