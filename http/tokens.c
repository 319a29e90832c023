/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* /tokenize and /detokenize, on the helper thread of the model's link. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "http/ask.h"
#include "http/conn.h"
#include "http/messages.h"
#include "http/route.h"

/* A body that is being read. */
struct reading {
    struct prep_job job; /* must be first */
    struct gw *gw;
    struct conn *c; /* NULL: the client has disconnected */
    struct link_job *to;
    struct buf body; /* the body, if a prep thread reads it */
    size_t held;
    const char *src;
    size_t n_src;
    struct model *models[SRV_MAX]; /* references */
    size_t n_model;
    struct model *model; /* reference to the chosen model */
    int is_literal;      /* names of special tokens in messages are text */
    int is_count;        /* the body is one of /v1/messages/count_tokens */
    int rc;
    struct problem bad;
};

/* ---- answer ------------------------------------------------------------------------- */

/* The client has disconnected: the result is discarded. */
static void
drop(struct conn *c)
{
    struct link_job *job = c->work;

    job->arg = NULL;
    c->work = NULL;
}

/* Write each token as text. Bytes of incomplete characters become U+FFFD. */
static void
put_strs(const struct link_job *job, struct buf *b)
{
    buf_str(b, job->vocab != NULL ? "],\"token_strs\":[" : "],\"token_strs\":null}\n");
    if (job->vocab == NULL)
        return;
    for (size_t i = 0; i < job->n_ids; i++) {
        size_t n;
        const char *text = voc_text(job->vocab, job->ids[i], &n);

        buf_str(b, i > 0 ? "," : "");
        buf_json(b, text, n);
    }
    buf_str(b, "]}\n");
}

/* Write the answer on the helper thread: a million ids are 7 MB of text. */
static void
shape(struct link_job *job)
{
    struct buf *b = &job->out;

    if (job->kind == LNK_DETOKENIZE) {
        buf_str(b, "{\"prompt\":");
        buf_json(b, job->text, job->n_text);
        buf_str(b, "}\n");
        return;
    }
    buf_fmt(b, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", job->n_ids,
        job->info.max_model_len);
    for (size_t i = 0; i < job->n_ids; i++)
        buf_fmt(b, "%s%u", i > 0 ? "," : "", job->ids[i]);
    put_strs(job, b);
}

static void
shape_count(struct link_job *job)
{
    buf_fmt(&job->out, "{\"input_tokens\":%zu}\n", job->n_ids);
}

static void
done(struct link_job *job)
{
    struct conn *c = job->arg;
    struct problem bad;

    if (c == NULL) {
        link_job_free(job);
        return;
    }
    c->work = NULL;
    c->drop = NULL;
    if (job->rc == 0 && job->out.failed)
        job->rc = FDC_E_NOMEM;
    if (job->rc != 0) {
        prb_from_status(&bad, job->rc);
        conn_problem(c, &bad);
    } else {
        conn_reply(c, 200, "application/json", NULL, job->out.p, job->out.n);
    }
    link_job_free(job);
}

/* ---- request ------------------------------------------------------------------------ */

/* Render a conversation as chat completions do. */
static int
conversation(struct reading *r, const struct jr *j)
{
    struct link_job *job = r->to;
    struct fdchat_prompt p = { NULL };
    struct buf b = { NULL };

    if (model_render(r->model, j, 0, &p, &r->bad) != 0)
        return -1;
    buf_add(&b, p.text, p.bytes);
    job->text = b.p;
    job->n_text = b.n;
    job->spans = r->is_literal ? calloc(p.n_span + 1, sizeof(*job->spans)) : NULL;
    for (size_t i = 0; job->spans != NULL && i < p.n_span; i++)
        if (p.spans[i].bytes > 0)
            job->spans[job->n_spans++] =
                (struct fdc_span){ (uint32_t)p.spans[i].at, (uint32_t)p.spans[i].bytes };
    fdchat_prompt_free(&p);
    if (jr_type(j, jr_member(j, 0, "add_special_tokens")) != JR_TRUE)
        job->flags = FDC_F_NO_SPECIAL;
    return b.failed || (r->is_literal && job->spans == NULL)
        ? prb_set(&r->bad, 503, "out_of_memory", "out of memory")
        : 0;
}

/* The text to tokenize: prompt, or the conversation in the model's template. */
static int
text_of(struct reading *r, const struct jr *j)
{
    uint32_t prompt = jr_member(j, 0, "prompt");
    int special = jr_type(j, jr_member(j, 0, "add_special_tokens")) != JR_FALSE;
    struct problem *bad = &r->bad;
    struct buf b = { NULL };

    r->to->want_strs = jr_type(j, jr_member(j, 0, "return_token_strs")) == JR_TRUE;
    if (jr_type(j, prompt) == JR_STRING) {
        jr_text(j, prompt, &b);
        buf_add(&b, "", 0);
    } else if (jr_member(j, 0, "messages") != JR_NONE) {
        return conversation(r, j);
    } else {
        return prb_field(bad, "prompt", "prompt must be a string, or messages an array");
    }
    r->to->text = b.p;
    r->to->n_text = b.n;
    r->to->flags = special ? 0 : FDC_F_NO_SPECIAL;
    return b.failed ? prb_set(bad, 503, "out_of_memory", "out of memory") : 0;
}

static int
ids_of(struct reading *r, const struct jr *j)
{
    uint32_t n = 0;
    int rc = ask_ids(j, jr_member(j, 0, "tokens"), "tokens", ASK_MAX_VALUES, &r->to->ids,
        &n, &r->bad);

    r->to->n_ids = n;
    r->to->flags = FDC_F_KEEP_SPECIAL;
    for (uint32_t i = 0; i < n && rc == 0 && r->to->info.vocab != 0; i++)
        if (r->to->ids[i] >= r->to->info.vocab)
            rc = prb_field(&r->bad, "tokens", "tokens holds %u; ids are below %u",
                r->to->ids[i], r->to->info.vocab);
    return rc;
}

static int
choose(struct reading *r, const struct jr *j)
{
    uint32_t i = jr_member(j, 0, "model");
    struct buf name = { NULL };
    struct model *m;

    if (i != JR_NONE && jr_type(j, i) != JR_STRING && jr_type(j, i) != JR_NULL)
        return prb_field(&r->bad, "model", "model is %s; it must be a string",
            jr_type_name(jr_type(j, i)));
    if (jr_type(j, i) == JR_STRING) {
        jr_text(j, i, &name);
        buf_add(&name, "", 0);
    }
    m = gw_model(r->models, r->n_model, name.p, name.n, &r->bad);
    buf_fini(&name);
    if (m == NULL)
        return -1;
    r->model = model_ref(m);
    r->to->info = m->info;
    return 0;
}

/* Read a body of /v1/messages/count_tokens. */
static int
count_of(struct reading *r, const struct jr *j)
{
    struct buf body = { NULL }, ignored = { NULL };
    struct jr chat = { NULL };
    int rc = msg_translate(j, 1, &body, &ignored, &r->bad);

    if (rc == 0)
        rc = ask_json(&chat, body.p, body.n, &r->bad);
    if (rc == 0)
        rc = conversation(r, &chat);
    jr_fini(&chat);
    buf_fini(&body);
    buf_fini(&ignored);
    return rc;
}

/* Read the body, in the loop or on a prep thread. */
static void
read_body(struct prep_job *job)
{
    struct reading *r = (struct reading *)(void *)job;
    struct jr j = { NULL };

    r->rc = -1;
    if (!atomic_load(&job->is_cancelled) &&
        ask_json(&j, r->src, r->n_src, &r->bad) == 0 && choose(r, &j) == 0)
        r->rc = r->is_count ? count_of(r, &j)
            : r->to->kind == LNK_TOKENIZE
            ? text_of(r, &j)
            : ids_of(r, &j);
    jr_fini(&j);
    buf_fini(&r->body);
}

/* The body was read: hand the job to the helper thread. */
static void
after(struct post *p)
{
    struct reading *r = (struct reading *)(void *)p;
    struct conn *c = r->c;
    struct link *l = r->rc == 0 ? gw_link_of(r->gw, r->model) : NULL;

    conn_put_back(r->gw, r->held);
    if (r->rc == 0 && l == NULL) {
        r->rc = prb_set(&r->bad, 503, "daemon_lost", "this model is served no more");
        r->bad.retry_ms = 1000;
    }
    if (c != NULL) {
        c->work = NULL;
        c->drop = NULL;
    }
    if (c != NULL && r->rc == 0) {
        r->to->arg = c;
        c->work = r->to;
        c->drop = drop;
        link_ask(l, r->to);
        r->to = NULL;
    } else if (c != NULL) {
        conn_problem(c, &r->bad);
    }
    link_job_free(r->to);
    for (size_t i = 0; i < r->n_model; i++)
        model_unref(r->models[i]);
    model_unref(r->model);
    free(r);
}

static void
drop_reading(struct conn *c)
{
    struct reading *r = c->work;

    r->c = NULL;
    atomic_store(&r->job.is_cancelled, 1);
    c->work = NULL;
    c->drop = NULL;
}

static void
take(struct conn *c, enum link_kind kind, int is_count)
{
    struct link_job *to = link_job_new(kind, done, NULL);
    struct reading *r = calloc(1, sizeof(*r));
    struct problem bad;
    size_t at;

    if (to == NULL || r == NULL) {
        link_job_free(to);
        free(r);
        (void)prb_set(&bad, 503, "out_of_memory", "out of memory");
        conn_problem(c, &bad);
        return;
    }
    to->shape = is_count ? shape_count : shape;
    r->is_count = is_count;
    r->is_literal =
        c->g->par->chat_special_in_content == PAR_CHAT_SPECIAL_IN_CONTENT_LITERAL;
    r->gw = c->g;
    r->c = c;
    r->to = to;
    r->n_model = gw_models(c->g, r->models);
    r->src = c->body;
    r->n_src = c->body_n;
    r->job.post.fn = after;
    r->job.work = read_body;
    r->job.back = &c->g->inbox;
    atomic_init(&r->job.is_cancelled, 0);
    if (r->n_src > PREP_BYTES) {
        conn_take_body(c, &r->body, &at, &r->held);
        r->src = r->body.p + at;
        c->work = r;
        c->drop = drop_reading;
        prep_put(&c->g->sh->prep, &r->job);
        return;
    }
    read_body(&r->job);
    conn_forget(c);
    after(&r->job.post);
}

void
rt_tokenize(struct conn *c)
{
    take(c, LNK_TOKENIZE, 0);
}

/* Anthropic's /v1/messages/count_tokens. */
void
rt_count_tokens(struct conn *c)
{
    take(c, LNK_TOKENIZE, 1);
}

void
rt_detokenize(struct conn *c)
{
    take(c, LNK_DETOKENIZE, 0);
}
