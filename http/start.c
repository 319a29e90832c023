/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Turns the body of a generating request into requests of fdd. */
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

#define GEN_MAX_SPANS 16384      /* fdd's limit of spans */
#define GEN_MAX_BYTES (8u << 20) /* bytes of a prompt: the size of a session's arena */

/* A request that is being read. */
struct start {
    struct prep_job job; /* must be first */
    struct gw *gw;
    struct conn *c; /* NULL: the client has disconnected */
    struct gen *g;
    const struct face *face;
    struct buf body; /* the body, if a prep thread reads it */
    size_t held;
    struct model *models[SRV_MAX]; /* references */
    size_t n_model;
    struct problem in_vain; /* why no request can be served now; status 0: it can */
    int rc;
    struct problem bad;
};

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
    if (n == 0)
        return prb_field(bad, "prompt", "prompt holds an array without token ids");
    p->n = n;
    return 0;
}

/* Read the field prompt: a text, an array of ids, or an array of either. */
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
        .format = g->model->format,
        .prompt = text->text,
        .prompt_bytes = text->bytes,
        .tools = tools != NULL && !g->a.no_calls ? g->a.j.text + tools->at : NULL,
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

    if (make_prompts(g, 1, bad) != 0 || model_render(g->model, &g->a.j, 0, &text, bad) != 0)
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
    if (rc == 0 && g->is_literal)
        rc = take_spans(p, &text, bad);
    fdchat_prompt_free(&text);
    return rc;
}

/* ---- access, user ----------------------------------------------------------------------- */

static int
check_key(struct gen *g, struct problem *bad)
{
    struct key *k = g->c->key;

    if (g->a.priority != ASK_I32_UNSET && g->a.priority != 0 && k != NULL &&
        !k->may_prioritize)
        return prb_field(bad, "priority", "this key may not set priority");
    if (keys_begin(k) != 0) {
        (void)prb_set(bad, 429, "rate_limit_exceeded",
            "this key may have %u requests at a time", k->inflight);
        bad->retry_ms = 1000;
        return -1;
    }
    return 0;
}

/* Set the user under which fdd counts the request. One that the administrator has set for
 * a key is always sent, and fdd answers with an error if it may not be named; the user of
 * an address, or of a key without one, is sent only if the daemon lets fdd-http name
 * users. */
static void
name_user(struct gen *g)
{
    const struct key *k = g->c->key;
    size_t n = g->a.has_user ? sizeof(g->a.user_hash) : 0;
    uint64_t user = k != NULL ? keys_user(k, (const char *)g->a.user_hash, n) : g->c->user;

    g->user_is_named = k != NULL && (k->user != 0 || (k->may_delegate && n > 0));
    if (g->user_is_named || g->link->is_trusted)
        g->a.o.user = user;
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

/* ---- reading: in the loop, or on a prep thread -------------------------------------------- */

/* Is the prompt a string, or an array of only strings? */
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
choose(struct gen *g, const struct start *s, struct problem *bad)
{
    struct buf name = { NULL };
    struct model *m;

    if (g->a.model != JR_NONE) {
        jr_text(&g->a.j, g->a.model, &name);
        buf_add(&name, "", 0);
    }
    m = gw_model(s->models, s->n_model, name.p, name.n, bad);
    buf_fini(&name);
    if (m == NULL)
        return -1;
    g->model = model_ref(m);
    return 0;
}

/* Refuse prompts that are too long for every daemon. */
static int
check_prompts(const struct gen *g, struct problem *bad)
{
    for (uint32_t i = 0; i < g->n_prompt; i++)
        if (g->prompt[i].n * (g->prompt[i].ids != NULL ? 4 : 1) > GEN_MAX_BYTES)
            return prb_field(bad, g->a.is_chat ? "messages" : "prompt",
                "the prompt has %zu %s; at most %u bytes of text, or 4 bytes an id, are taken",
                g->prompt[i].n, g->prompt[i].ids != NULL ? "ids" : "bytes", GEN_MAX_BYTES);
    return 0;
}

/* Read a request without using its conn or gw, so that any thread may do it. */
static int
read_request(struct gen *g, const struct start *s, struct problem *bad)
{
    const struct face *face = g->face;

    if (face->translate != NULL) {
        if (itm_translate(g, g->src, g->n_src, bad) != 0)
            return -1;
        g->src = g->body.p;
        g->n_src = g->body.n;
    }
    if (ask_read(&g->a, g->src, g->n_src, face->is_chat, bad) != 0)
        return -1;
    if (s->in_vain.status != 0) {
        *bad = s->in_vain;
        return -1;
    }
    if (choose(g, s, bad) != 0)
        return -1;
    /* For echo a text is known already; the daemon turns ids into text. */
    if (g->a.echo == 1 && !face->is_chat &&
        (g->a.logprobs >= 0 || !is_text(g) || g->a.truncate != ASK_I32_UNSET))
        g->a.p.flags |= FDC_F_PROMPT_TEXT;
    if ((g->face->is_chat ? chat_prompt(g, bad) : text_prompts(g, bad)) != 0)
        return -1;
    /* Names of special tokens in a prompt that the client has written are special tokens;
     * in a conversation only those of the template are (spans mark the others
     * as text). */
    g->a.p.flags |= FDC_F_PARSE_SPECIAL;
    /* The answer's parser must tell special tokens from text that reads the same:
     * FDC_F_ALONE makes the daemon send them apart. It leaves to us which of them show,
     * so we must know the special ones. */
    if (g->face->is_chat && g->model->format != NULL && g->model->special != NULL)
        g->a.p.flags |= FDC_F_ALONE;
    return check_prompts(g, bad);
}

/* ---- start ---------------------------------------------------------------------------------- */

/* Begin a request that was read: submit its prompts to fdd. Returns 0; -1: *bad
 * says why. */
static int
begin(struct gen *g, struct problem *bad)
{
    struct link *l = gw_link_of(g->g, g->model);

    if (l == NULL || l->main == NULL) {
        (void)prb_set(bad, 503, "daemon_lost", "there is no connection to fdd");
        bad->retry_ms = 1000;
        return -1;
    }
    if (check_key(g, bad) != 0)
        return -1;
    g->link = l;
    l->n_gen++;
    name_user(g);
    name_it(g);
    g->created_s = (int64_t)time(NULL);
    if (g->face->begin != NULL)
        g->face->begin(g);
    g->c->work = g;
    g->c->drop = gen_drop;
    g->c->flush = gen_flush;
    g->c->tick = gen_tick;
    g->g->met.streams++;
    gen_truncate(g);
    return 0;
}

static void
free_start(struct start *s)
{
    for (size_t i = 0; i < s->n_model; i++)
        model_unref(s->models[i]);
    buf_fini(&s->body);
    free(s);
}

static void
discard(struct gen *g)
{
    if (g != NULL)
        gen_free(g);
}

static void
refuse(struct start *s, struct problem *bad)
{
    discard(s->g);
    s->g = NULL;
    prb_rename(bad, s->face->names);
    conn_problem(s->c, bad);
}

/* Read the request on a prep thread. Large memory is freed here, too. */
static void
prepare(struct prep_job *job)
{
    struct start *s = (struct start *)(void *)job;

    if (atomic_load(&job->is_cancelled)) {
        s->rc = -1;
    } else {
        s->rc = read_request(s->g, s, &s->bad);
        ask_forget(&s->g->a);
        buf_fini(&s->g->body);
    }
    s->g->src = NULL;
    buf_fini(&s->body);
    if (s->rc != 0 || atomic_load(&job->is_cancelled)) {
        discard(s->g);
        s->g = NULL;
    }
}

/* Called in the loop after a prep thread has read the request: begins it. */
static void
prepared(struct post *p)
{
    struct start *s = (struct start *)(void *)p;
    struct conn *c = s->c;

    conn_put_back(s->gw, s->held);
    if (c != NULL) {
        c->work = NULL;
        c->drop = NULL;
        if (s->g == NULL || begin(s->g, &s->bad) != 0)
            refuse(s, &s->bad);
        conn_dirty(c);
    } else {
        discard(s->g);
    }
    free_start(s);
}

/* The client has disconnected while a prep thread reads its request. */
static void
prepare_drop(struct conn *c)
{
    struct start *s = c->work;

    s->c = NULL;
    atomic_store(&s->job.is_cancelled, 1);
    c->work = NULL;
    c->drop = NULL;
}

static void
hand_over(struct start *s)
{
    struct conn *c = s->c;
    size_t at;

    s->gw = c->g;
    s->job.post.fn = prepared;
    s->job.work = prepare;
    s->job.back = &c->g->inbox;
    atomic_init(&s->job.is_cancelled, 0);
    s->g->n_src = c->body_n;
    conn_take_body(c, &s->body, &at, &s->held);
    s->g->src = s->body.p + at;
    c->work = s;
    c->drop = prepare_drop;
    prep_put(&c->g->sh->prep, &s->job);
}

/* Sets *bad if no request can be served now. It is reported only after the body was
 * checked: errors in the body come first. */
static void
look_for_fdd(const struct conn *c, struct problem *bad)
{
    const struct link *l = c->g->links;

    if (c->g->draining)
        (void)prb_set(bad, 503, "draining", "the gateway is shutting down");
    else if (l == NULL || (l->next == NULL && l->main == NULL))
        (void)prb_set(bad, 503, "daemon_lost", "there is no connection to fdd");
    bad->retry_ms = 1000;
}

static void
start(struct conn *c, const struct face *face)
{
    struct gen *g = calloc(1, sizeof(*g));
    struct start *s = calloc(1, sizeof(*s));
    struct problem bad = { .status = 0 };

    if (g == NULL || s == NULL) {
        (void)no_memory(&bad);
        free(s);
        free(g);
        conn_problem(c, &bad);
        return;
    }
    s->g = g;
    s->c = c;
    s->n_model = gw_models(c->g, s->models);
    look_for_fdd(c, &s->in_vain);
    g->g = c->g;
    g->c = c;
    g->face = s->face = face;
    g->is_literal =
        c->g->par->chat_special_in_content == PAR_CHAT_SPECIAL_IN_CONTENT_LITERAL;
    g->began_ms = g->event_ms = c->g->now_ms;
    if (c->body_n > PREP_BYTES) {
        hand_over(s);
        return;
    }
    g->src = c->body;
    g->n_src = c->body_n;
    if (read_request(g, s, &bad) != 0) {
        refuse(s, &bad);
    } else {
        ask_forget(&g->a);
        buf_fini(&g->body);
        conn_forget(c);
        if (begin(g, &bad) != 0)
            refuse(s, &bad);
    }
    free_start(s);
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
