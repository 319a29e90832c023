/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* /tokenize and /detokenize, by the helper thread. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "http/ask.h"
#include "http/conn.h"
#include "http/messages.h"
#include "http/route.h"

/* The client has left: the result is thrown away. */
static void
drop(struct conn *c)
{
    struct link_job *job = c->work;

    job->arg = NULL;
    c->work = NULL;
}

static void
wait_for(struct conn *c, struct link_job *job)
{
    conn_forget(c);
    c->work = job;
    c->drop = drop;
    link_ask(&c->g->link, job);
}

static void
no_memory(struct conn *c)
{
    struct problem bad;

    (void)prb_set(&bad, 503, "out_of_memory", "out of memory");
    conn_problem(c, &bad);
}

static void
done(struct link_job *job)
{
    struct conn *c = job->arg;
    struct buf b = { NULL };
    struct problem bad;

    if (c == NULL) {
        link_job_free(job);
        return;
    }
    c->work = NULL;
    c->drop = NULL;
    if (job->rc != 0) {
        prb_from_status(&bad, job->rc);
        conn_problem(c, &bad);
    } else if (job->kind == LNK_TOKENIZE) {
        buf_fmt(&b, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", job->n_ids,
            c->g->link.model.max_model_len);
        for (size_t i = 0; i < job->n_ids; i++)
            buf_fmt(&b, "%s%u", i > 0 ? "," : "", job->ids[i]);
        buf_str(&b, "],\"token_strs\":null}\n");
        conn_reply(c, 200, "application/json", NULL, b.p, b.n);
    } else {
        buf_str(&b, "{\"prompt\":");
        buf_json(&b, job->text, job->n_text);
        buf_str(&b, "}\n");
        conn_reply(c, 200, "application/json", NULL, b.p, b.n);
    }
    buf_fini(&b);
    link_job_free(job);
}

/* As chat completions submit it. */
static int
conversation(struct conn *c, const struct jr *j, struct link_job *job, struct problem *bad)
{
    int literal = c->g->par->chat_special_in_content == PAR_CHAT_SPECIAL_IN_CONTENT_LITERAL;
    struct fdchat_prompt p = { NULL };
    struct buf b = { NULL };

    if (model_render(&c->g->model, j, 0, &p, bad) != 0)
        return -1;
    buf_add(&b, p.text, p.bytes);
    job->text = b.p;
    job->n_text = b.n;
    job->spans = literal ? calloc(p.n_span + 1, sizeof(*job->spans)) : NULL;
    for (size_t i = 0; job->spans != NULL && i < p.n_span; i++)
        if (p.spans[i].bytes > 0)
            job->spans[job->n_spans++] =
                (struct fdc_span){ (uint32_t)p.spans[i].at, (uint32_t)p.spans[i].bytes };
    fdchat_prompt_free(&p);
    if (jr_type(j, jr_member(j, 0, "add_special_tokens")) != JR_TRUE)
        job->flags = FDC_F_NO_SPECIAL;
    return b.failed || (literal && job->spans == NULL)
        ? prb_set(bad, 503, "out_of_memory", "out of memory")
        : 0;
}

/* The text to tokenize: prompt, or the conversation in the model's template. */
static int
text_of(struct conn *c, const struct jr *j, struct link_job *job, struct problem *bad)
{
    uint32_t prompt = jr_member(j, 0, "prompt");
    int special = jr_type(j, jr_member(j, 0, "add_special_tokens")) != JR_FALSE;
    struct buf b = { NULL };

    if (jr_type(j, jr_member(j, 0, "return_token_strs")) == JR_TRUE)
        return prb_field(bad, "return_token_strs",
            "token strings are not sent; /detokenize has them");
    if (jr_type(j, prompt) == JR_STRING) {
        jr_text(j, prompt, &b);
        buf_add(&b, "", 0);
    } else if (jr_member(j, 0, "messages") != JR_NONE) {
        return conversation(c, j, job, bad);
    } else {
        return prb_field(bad, "prompt", "prompt must be a string, or messages an array");
    }
    job->text = b.p;
    job->n_text = b.n;
    job->flags = special ? 0 : FDC_F_NO_SPECIAL;
    return b.failed ? prb_set(bad, 503, "out_of_memory", "out of memory") : 0;
}

void
rt_tokenize(struct conn *c)
{
    struct link_job *job = link_job_new(LNK_TOKENIZE, done, c);
    struct jr j = { NULL };
    struct problem bad;

    if (job == NULL) {
        no_memory(c);
        return;
    }
    if (ask_json(&j, c->body, c->body_n, &bad) == 0 && text_of(c, &j, job, &bad) == 0) {
        jr_fini(&j);
        wait_for(c, job);
        return;
    }
    jr_fini(&j);
    link_job_free(job);
    conn_problem(c, &bad);
}

static void
counted(struct link_job *job)
{
    struct conn *c = job->arg;
    struct buf b = { NULL };
    struct problem bad;

    if (c != NULL) {
        c->work = NULL;
        c->drop = NULL;
        prb_from_status(&bad, job->rc);
        buf_fmt(&b, "{\"input_tokens\":%zu}\n", job->n_ids);
        if (job->rc != 0)
            conn_problem(c, &bad);
        else
            conn_reply(c, 200, "application/json", NULL, b.p, b.n);
    }
    buf_fini(&b);
    link_job_free(job);
}

/* Anthropic's: the tokens of a body of /v1/messages. */
void
rt_count_tokens(struct conn *c)
{
    struct link_job *job = link_job_new(LNK_TOKENIZE, counted, c);
    struct jr j = { NULL }, chat = { NULL };
    struct buf body = { NULL }, ignored = { NULL };
    struct problem bad;
    int rc;

    if (job == NULL) {
        no_memory(c);
        return;
    }
    rc = ask_json(&j, c->body, c->body_n, &bad);
    if (rc == 0)
        rc = msg_translate(&j, 1, &body, &ignored, &bad);
    if (rc == 0)
        rc = ask_json(&chat, body.p, body.n, &bad);
    if (rc == 0)
        rc = conversation(c, &chat, job, &bad);
    jr_fini(&j);
    jr_fini(&chat);
    buf_fini(&body);
    buf_fini(&ignored);
    if (rc == 0) {
        wait_for(c, job);
        return;
    }
    link_job_free(job);
    conn_problem(c, &bad);
}

void
rt_detokenize(struct conn *c)
{
    struct link_job *job = link_job_new(LNK_DETOKENIZE, done, c);
    struct jr j = { NULL };
    struct problem bad;
    uint32_t n = 0;

    if (job == NULL) {
        no_memory(c);
        return;
    }
    if (ask_json(&j, c->body, c->body_n, &bad) == 0 &&
        ask_ids(&j, jr_member(&j, 0, "tokens"), "tokens", ASK_MAX_VALUES, &job->ids, &n,
            &bad) == 0) {
        jr_fini(&j);
        job->n_ids = n;
        job->flags = FDC_F_KEEP_SPECIAL;
        wait_for(c, job);
        return;
    }
    jr_fini(&j);
    link_job_free(job);
    conn_problem(c, &bad);
}
