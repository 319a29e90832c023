/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* /tokenize and /detokenize, by the helper thread. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "http/ask.h"
#include "http/conn.h"
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
        struct fdchat_prompt text;

        if (model_render(&c->g->model, j, 0, &text, bad) != 0)
            return -1;
        buf_add(&b, text.text, text.bytes);
        fdchat_prompt_free(&text);
        special = jr_type(j, jr_member(j, 0, "add_special_tokens")) == JR_TRUE;
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
