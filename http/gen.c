/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/conn.h"
#include "http/gen_priv.h"
#include "http/items.h"
#include "http/link.h"
#include "http/shape.h"

#define GEN_HEAD_MS    5000  /* longest time that a stream's head waits for ACCEPTED */
#define GEN_COMMENT_MS 15000 /* a silent stream sends a comment, for proxies' timeouts */

/* ---- waiting for room --------------------------------------------------------------- */

static void
wait_for_room(struct gen *g)
{
    struct link *l = g->link;

    if (g->is_waiting)
        return;
    g->is_waiting = 1;
    g->prev_wait = l->waiting_end;
    g->next_wait = NULL;
    if (l->waiting_end != NULL)
        l->waiting_end->next_wait = g;
    else
        l->waiting = g;
    l->waiting_end = g;
}

static void
wait_no_more(struct gen *g)
{
    struct link *l = g->link;

    if (!g->is_waiting)
        return;
    g->is_waiting = 0;
    if (g->prev_wait != NULL)
        g->prev_wait->next_wait = g->next_wait;
    else
        l->waiting = g->next_wait;
    if (g->next_wait != NULL)
        g->next_wait->prev_wait = g->prev_wait;
    else
        l->waiting_end = g->prev_wait;
}

void
gen_fail(struct gen *g, const struct problem *bad)
{
    if (g->bad.status == 0) {
        g->bad = *bad;
        prb_rename(&g->bad, g->face->names);
    }
    g->is_over = 1;
    g->link->is_touched = 1;
    wait_no_more(g);
    for (uint32_t i = 0; i < g->n_prompt; i++)
        if (g->prompt[i].r != NULL && !g->prompt[i].is_over)
            (void)fdc_cancel(g->prompt[i].r);
    conn_dirty(g->c);
}

static void
free_prompt(struct prompt *p)
{
    free(p->text);
    free(p->ids);
    free(p->spans);
    p->text = NULL;
    p->ids = NULL;
    p->spans = NULL;
}

/* max_tokens of a prompt: if it was left out, a long prompt may leave room for fewer than
 * the default. */
static uint32_t
max_new(const struct gen *g, const struct prompt *p)
{
    size_t all = g->model->info.max_model_len;

    if (!g->a.max_is_ours)
        return g->a.p.max_new;
    return p->ids != NULL && p->n < all && all - p->n < ASK_TEXT_MAX
        ? (uint32_t)(all - p->n)
        : ASK_TEXT_MAX;
}

/* Returns 0; 1: the session has no room; -1: the request has failed. */
static int
submit_prompt(struct gen *g, struct prompt *p)
{
    char text[300] = "";
    struct problem bad;
    int rc;

    g->a.o.user_ptr = p;
    g->a.o.error_text = text;
    g->a.o.error_text_bytes = sizeof(text);
    g->a.p.max_new = max_new(g, p);
    g->a.p.spans = p->spans;
    g->a.p.n_spans = p->n_span;
    rc = p->ids != NULL
        ? fdc_submit_ids(g->link->main, p->ids, p->n, &g->a.p, &g->a.o, &p->r)
        : fdc_submit_text(g->link->main, p->text, p->n, &g->a.p, &g->a.o, &p->r);
    if (rc == FDC_E_FULL)
        return 1;
    if (rc == 0) {
        free_prompt(p);
        g->n_submitted++;
        return 0;
    }
    p->r = NULL;
    prb_from_status(&bad, rc);
    if (bad.status < 500 && text[0] != '\0')
        (void)snprintf(bad.text, sizeof(bad.text), "%s", text);
    gen_fail(g, &bad);
    return -1;
}

void
gen_submit(struct gen *g)
{
    int rc = g->link->waiting != NULL && g->link->waiting != g; /* they came first */

    g->link->is_touched = 1;
    while (g->n_submitted < g->n_prompt && rc == 0)
        rc = submit_prompt(g, &g->prompt[g->n_submitted]);
    if (rc > 0)
        wait_for_room(g);
    else
        wait_no_more(g);
}

void
gen_submit_waiting(struct link *l)
{
    while (l->waiting != NULL && l->main != NULL) {
        struct gen *g = l->waiting;

        gen_submit(g);
        if (g->is_waiting)
            return;
    }
}

void
gen_fail_waiting(struct link *l, int status)
{
    struct problem bad;

    prb_from_status(&bad, status);
    while (l->waiting != NULL)
        gen_fail(l->waiting, &bad);
}

/* ---- end ------------------------------------------------------------------------------ */

static void
free_choice(struct choice *ch)
{
    fdchat_answer_free(ch->answer);
    buf_fini(&ch->text);
    buf_fini(&ch->reasoning);
    buf_fini(&ch->calls);
    buf_fini(&ch->args);
    buf_fini(&ch->lp);
    buf_fini(&ch->lp_values);
    buf_fini(&ch->lp_top);
    buf_fini(&ch->lp_offset);
    free(ch->taken);
    buf_fini(&ch->ids);
    buf_fini(&ch->held);
    itm_fini(&ch->items);
}

void
gen_free(struct gen *g)
{
    wait_no_more(g);
    if (g->job != NULL)
        g->job->arg = NULL;
    for (uint32_t i = 0; g->prompt != NULL && i < g->n_prompt; i++) {
        fdc_req_free(g->prompt[i].r);
        free_prompt(&g->prompt[i]);
        buf_fini(&g->prompt[i].echo);
        buf_fini(&g->prompt[i].starts);
        buf_fini(&g->prompt[i].lp);
        buf_fini(&g->prompt[i].seen);
        free_choice(&g->prompt[i].scored);
    }
    for (uint32_t i = 0; g->choice != NULL && i < g->n_choice; i++)
        free_choice(&g->choice[i]);
    if (g->link != NULL) {
        g->link->n_gen--;
        g->link->is_touched = 1;
    }
    model_unref(g->model);
    free(g->prompt);
    free(g->choice);
    buf_fini(&g->prefix);
    buf_fini(&g->said);
    buf_fini(&g->body);
    buf_fini(&g->ignored);
    ask_fini(&g->a);
    free(g);
}

void
gen_drop(struct conn *c)
{
    struct gen *g = c->work;

    keys_end(c->key);
    g->g->met.streams--;
    gen_free(g);
    c->work = NULL;
    c->drop = c->flush = c->tick = NULL;
}

/* ---- records ------------------------------------------------------------------------- */

static struct choice *
choice_of(struct gen *g, const struct prompt *p, uint32_t sample)
{
    return sample < g->a.n ? &g->choice[p->index * g->a.n + sample] : NULL;
}

static void
take_pieces(struct gen *g, struct choice *ch)
{
    struct fdchat_piece piece;

    while (fdchat_answer_next(ch->answer, &piece) == 1)
        g->face->piece(g, ch, &piece);
}

static void
take_text(struct gen *g, struct choice *ch, const char *p, size_t n)
{
    if (ch->answer == NULL) {
        const struct fdchat_piece piece = { .kind = FDCHAT_CONTENT, .text = p, .bytes = n };

        g->face->piece(g, ch, &piece);
        return;
    }
    if (fdchat_answer_feed(ch->answer, p, n) != 0)
        buf_fail(&ch->text);
    take_pieces(g, ch);
}

/* Feed a held name, unless it is a special token's that was not asked for. */
static void
let_go(struct gen *g, struct choice *ch)
{
    if (ch->held.n > 0 &&
        ((g->a.p.flags & FDC_F_KEEP_SPECIAL) != 0 ||
            !model_is_special(g->model, ch->held_id)))
        take_text(g, ch, ch->held.p, ch->held.n);
    ch->held.n = 0;
}

/* Names that belong to markers are fed. Another one may turn out to be the token that
 * ended the answer. */
static void
take_special(struct gen *g, struct choice *ch, const struct fdc_event *ev)
{
    size_t n;
    const char *name = fdc_event_text(ev, 0, &n);

    shp_id(g, ch, ev->special->id);
    if (ch->answer == NULL || name == NULL)
        return;
    let_go(g, ch);
    if (!fdchat_format_holds(g->model->format, name, n)) {
        ch->held_id = ev->special->id;
        buf_add(&ch->held, name, n);
        return;
    }
    if (fdchat_answer_special(ch->answer, name, n) != 0)
        buf_fail(&ch->text);
    take_pieces(g, ch);
}

/* The answer has ended. The name of the token that ended it shows only if that was asked
 * for. */
static void
let_go_last(struct gen *g, struct choice *ch, const struct fdc_choice_end *e)
{
    int ended = e->stop_id >= 0 && (uint32_t)e->stop_id == ch->held_id;

    if (ended && (g->a.p.flags & (FDC_F_KEEP_SPECIAL | FDC_F_KEEP_STOP)) == 0)
        ch->held.n = 0;
    let_go(g, ch);
}

static void
take_logprobs(struct choice *ch, const struct fdc_event *ev)
{
    struct fdc_logprob *p = realloc(ch->taken, (ev->n + 1) * sizeof(*p));

    if (p == NULL) {
        buf_fail(&ch->lp);
        return;
    }
    memcpy(p, ev->logprobs, ev->n * sizeof(*p));
    ch->taken = p;
    ch->n_taken = ev->n;
}

static void
end_choice(struct gen *g, struct choice *ch, const struct fdc_choice_end *e)
{
    if (ch->answer != NULL) {
        let_go_last(g, ch, e);
        if (fdchat_answer_end(ch->answer) != 0)
            buf_fail(&ch->text);
        take_pieces(g, ch);
    }
    ch->finish = e->finish == FDC_FIN_LENGTH ? "length" : "stop";
    ch->stop_id = e->stop_id;
    ch->stop_str = e->stop_str;
    g->reasoning_tokens += e->n_reasoning;
    if (e->finish == FDC_FIN_ERROR)
        ch->finish = "error";
}

static void
end_prompt(struct gen *g, struct prompt *p)
{
    p->is_over = 1;
    if (--g->n_open == 0)
        g->is_over = 1;
}

static void
take_done(struct gen *g, struct prompt *p, const struct fdc_done *d)
{
    g->prompt_tokens += d->prompt_tokens;
    g->cached_tokens += d->cached_tokens;
    g->output_tokens += d->output_tokens;
    g->g->met.prompt_tokens += d->prompt_tokens;
    g->g->met.output_tokens += d->output_tokens;
    end_prompt(g, p);
}

/* fdd does not let this process name users any more: when the request is repeated, it
 * counts under fdd-http's own user. */
static void
trusts_no_more(struct gen *g, struct problem *bad)
{
    g->link->is_trusted = 0;
    (void)prb_set(bad, 503, "overloaded",
        "fdd no longer lets this gateway name users; repeat the request");
    bad->retry_ms = 1;
}

/* Say which field is too long: the prompt, or the requested number of tokens if it
 * exceeds the model's length by itself: then a shorter prompt would not help. */
static void
is_too_long(const struct gen *g, const struct fdc_error *e, struct problem *bad)
{
    int newer = g->a.max_completion_tokens != ASK_UNSET;
    uint32_t asked = newer ? g->a.max_completion_tokens : g->a.max_tokens;
    const char *name = newer ? "max_completion_tokens" : "max_tokens";

    if (!g->a.is_chat)
        (void)snprintf(bad->param, sizeof(bad->param), "prompt");
    if (e->detail == FDC_D_MAX_NEW && asked != ASK_UNSET && e->item != 0) {
        uint32_t n = e->arg - asked;

        bad->n_prompt = n;
        bad->n_asked = asked;
        bad->limit = e->limit;
        (void)snprintf(bad->text, sizeof(bad->text),
            "This model's maximum context length is %u tokens; the prompt has %u and %s is "
            "%u, together %u. Lower %s to %u, or shorten the prompt.",
            e->limit, n, name, asked, e->arg, name, e->limit - n);
        return;
    }
    if (e->detail == FDC_D_PROMPT && e->arg > e->limit) {
        /* limit leaves a token for the answer */
        (void)snprintf(bad->text, sizeof(bad->text),
            "This model's maximum context length is %u tokens; the prompt has %u%s. "
            "Shorten the prompt.",
            asked != 0 ? e->limit + 1 : e->limit, e->arg,
            asked != 0 ? ", and its answer needs one at least" : "");
        return;
    }
    if (e->detail != FDC_D_MAX_NEW || asked == ASK_UNSET || e->arg != asked)
        return;
    (void)snprintf(bad->param, sizeof(bad->param), "%s", name);
    (void)snprintf(bad->text, sizeof(bad->text),
        "%s is %u, but this model's maximum context length is %u tokens, with the prompt. "
        "Lower %s.",
        name, asked, e->limit, name);
}

/* Count pending bytes. A client that does not read may make its stream hold only
 * so much. */
static void
check_pending(struct gen *g, size_t more)
{
    struct conn *c = g->c;

    g->pending += more;
    if (g->a.stream == 1 && conn_unsent(c) > 0 &&
        g->pending + conn_unsent(c) > (size_t)g->g->par->http_max_unsent_bytes)
        c->is_slow = 1;
    conn_dirty(c);
}

void
gen_event(struct prompt *p, const struct fdc_event *ev)
{
    struct gen *g = p->gen;
    struct choice *ch = choice_of(g, p, ev->sample);
    struct problem bad;

    if (ch == NULL && ev->type != FDC_T_DONE && ev->type != FDC_T_ERROR)
        return;
    switch (ev->type) {
    case FDC_T_ACCEPTED:
        /* A stream's head waits for all prompts: until then a refusal can set
         * the status. */
        if (!p->is_accepted && ++g->n_accepted == g->n_prompt)
            g->accepted = 1;
        p->is_accepted = 1;
        p->accepted_tokens = ev->accepted->prompt_len;
        p->accepted_cached = ev->accepted->cached_len;
        break;
    case FDC_T_PROMPT_IDS:
        shp_prompt_ids(p, ev);
        break;
    case FDC_T_IDS:
        shp_ids(g, ch, ev);
        break;
    case FDC_T_PROMPT_TEXT:
        if (ev->sample == 0 && (g->a.p.flags & FDC_F_PROMPT_TEXT) != 0)
            buf_add(&p->echo, ev->text, ev->n);
        break;
    case FDC_T_PROMPT_LOGPROBS:
        take_logprobs(&p->scored, ev);
        break;
    case FDC_T_TEXT:
        shp_echo(g, p);
        let_go(g, ch);
        take_text(g, ch, ev->text, ev->n);
        break;
    case FDC_T_SPECIAL:
        shp_echo(g, p);
        take_special(g, ch, ev);
        break;
    case FDC_T_LOGPROBS:
        shp_echo(g, p);
        take_logprobs(ch, ev);
        break;
    case FDC_T_TOKEN_TEXT:
        if (p->scored.n_taken > 0)
            shp_prompt_logprobs(g, p, ev);
        else
            shp_logprobs(g, ch, ev);
        break;
    case FDC_T_CHOICE_END:
        shp_echo(g, p);
        end_choice(g, ch, ev->choice_end);
        break;
    case FDC_T_DONE:
        take_done(g, p, ev->done);
        break;
    case FDC_T_ERROR:
        prb_from_error(&bad, ev->error);
        if (ev->error->detail == FDC_D_USER && !g->user_is_named)
            trusts_no_more(g, &bad);
        if (ev->error->code == FDC_E_TOO_LONG)
            is_too_long(g, ev->error, &bad);
        p->is_over = 1;
        gen_fail(g, &bad);
        break;
    default:
        return;
    }
    check_pending(g, ev->type == FDC_T_LOGPROBS ? ev->n * 64 : ev->n);
}

/* ---- answers -------------------------------------------------------------------------- */

static void
ignored_header(const struct gen *g, char *ret, size_t ret_bytes)
{
    const struct buf *names = g->face->translate != NULL ? &g->ignored : &g->a.ignored;

    ret[0] = '\0';
    if (names->n > 0)
        (void)snprintf(ret, ret_bytes, "x-fdd-ignored: %s\r\n", names->p);
}

static int
has_failed(const struct gen *g)
{
    for (uint32_t i = 0; i < g->n_choice; i++) {
        const struct choice *ch = &g->choice[i];

        if (ch->text.failed || ch->reasoning.failed || ch->calls.failed ||
            ch->args.failed || ch->lp.failed || ch->lp_values.failed ||
            ch->lp_top.failed || ch->lp_offset.failed || ch->ids.failed ||
            ch->held.failed || itm_failed(&ch->items))
            return 1;
    }
    for (uint32_t i = 0; i < g->n_prompt; i++)
        if (g->prompt[i].lp.failed || g->prompt[i].seen.failed)
            return 1;
    return g->prefix.failed || g->said.failed;
}

static void
flush_stream(struct gen *g)
{
    struct conn *c = g->c;
    struct buf *b = &g->g->event;

    if (!g->head_sent) {
        char headers[600];

        ignored_header(g, headers, sizeof(headers));
        conn_stream(c, headers);
        g->head_sent = 1;
    }
    for (uint32_t i = 0; i < g->n_choice && (g->accepted || g->is_over); i++)
        if (g->bad.status == 0 && g->face->has_news(g, &g->choice[i]))
            g->face->event(g, &g->choice[i], b);
    g->pending = 0;
    if (g->is_over && g->bad.status != 0)
        g->g->met.stream_errors++;
    if (g->is_over)
        g->face->end(g, b);
    if (b->n > 0)
        g->event_ms = g->g->now_ms;
    if (b->failed)
        c->out.failed = 1;
    conn_piece(c, b);
    buf_clear(b, GW_SCRATCH);
}

static void
answer_whole(struct gen *g)
{
    struct buf b = { NULL };
    char headers[600];

    ignored_header(g, headers, sizeof(headers));
    g->face->whole(g, &b);
    if (b.failed)
        g->c->out.failed = 1;
    conn_reply(g->c, 200, "application/json", headers, b.p, b.n);
    buf_fini(&b);
}

void
gen_flush(struct conn *c)
{
    struct gen *g = c->work;

    if (g->bad.status == 0 && buf_any_failed() && has_failed(g)) {
        struct problem bad;

        prb_from_status(&bad, FDC_E_NOMEM);
        gen_fail(g, &bad);
    }
    if (g->is_over && g->bad.status != 0 && !g->head_sent)
        conn_problem(c, &g->bad);
    else if (g->a.stream == 1 && (g->accepted || g->head_sent || g->is_over))
        flush_stream(g);
    else if (g->is_over)
        answer_whole(g);
    if (!g->is_over)
        return;
    if (g->head_sent)
        conn_end(c);
    gen_drop(c);
}

void
gen_tick(struct conn *c)
{
    struct gen *g = c->work;
    struct buf b = { NULL };
    uint64_t now = g->g->now_ms;

    if (g->a.stream != 1 || g->is_over)
        return;
    if (!g->head_sent && now - g->began_ms > GEN_HEAD_MS) {
        g->accepted = 1;
        conn_dirty(c);
    }
    if (g->head_sent && conn_unsent(c) == 0 && now - g->event_ms > GEN_COMMENT_MS) {
        g->event_ms = now;
        buf_str(&b, g->face->silence);
        conn_piece(c, &b);
        buf_fini(&b);
    }
}
