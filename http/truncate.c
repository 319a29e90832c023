/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Prompts that are tokenized before they are submitted: those that truncate_prompt_tokens
 * shortens, and those that may leave less room than the default of max_tokens. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "http/conn.h"
#include "http/gen_priv.h"

static void ask_next(struct gen *g);

/* The number of prompt tokens to keep. truncate_prompt_tokens -1: the model's length less
 * the output. */
static size_t
wanted(const struct gen *g)
{
    uint32_t all = g->model->info.max_model_len;
    uint32_t out = g->a.p.max_new == FDC_UNSET || g->a.p.max_new == 0 ? 1 : g->a.p.max_new;

    if (g->a.truncate > 0)
        return (size_t)g->a.truncate;
    return out < all ? all - out : 1;
}

static void
shorten(const struct gen *g, struct prompt *p)
{
    size_t n = wanted(g);

    if (g->a.truncate == ASK_I32_UNSET || p->n <= n)
        return;
    if (!g->a.keep_first)
        memmove(p->ids, p->ids + (p->n - n), n * sizeof(*p->ids));
    p->n = n;
}

static void
done(struct link_job *job)
{
    struct gen *g = job->arg;
    struct prompt *p;
    struct problem bad;

    if (g == NULL) {
        link_job_free(job);
        return;
    }
    g->job = NULL;
    if (job->rc != 0) {
        prb_from_status(&bad, job->rc);
        gen_fail(g, &bad);
        link_job_free(job);
        return;
    }
    for (p = g->prompt; p->ids != NULL; p++)
        ; /* the first prompt that is still text */
    p->ids = job->ids;
    p->n = job->n_ids;
    p->n_span = 0;
    job->ids = NULL;
    link_job_free(job);
    ask_next(g);
}

/* Tokenize the next prompt that is still text; when there is none, submit all. */
static void
ask_next(struct gen *g)
{
    struct problem bad;
    struct prompt *p = NULL;

    for (uint32_t i = 0; i < g->n_prompt && p == NULL; i++)
        if (g->prompt[i].ids == NULL)
            p = &g->prompt[i];
    if (g->link->main == NULL) {
        prb_from_status(&bad, FDC_E_DISCONNECTED);
        gen_fail(g, &bad);
        return;
    }
    if (p == NULL) {
        for (uint32_t i = 0; i < g->n_prompt; i++)
            shorten(g, &g->prompt[i]);
        gen_submit(g);
        return;
    }
    g->job = link_job_new(LNK_TOKENIZE, done, g);
    if (g->job == NULL) {
        (void)prb_set(&bad, 503, "out_of_memory", "out of memory");
        gen_fail(g, &bad);
        return;
    }
    g->job->flags = g->a.p.flags & FDC_F_NO_SPECIAL;
    g->job->text = p->text;
    g->job->n_text = p->n;
    g->job->spans = p->spans;
    g->job->n_spans = p->n_span;
    p->text = NULL;
    p->spans = NULL;
    link_ask(g->link, g->job);
}

/* If max_tokens was left out: may its default not fit after a prompt? A text has at most
 * a few more ids than bytes. */
static int
may_leave_less(const struct gen *g)
{
    int may = 0;

    for (uint32_t i = 0; i < g->n_prompt && g->a.max_is_ours; i++)
        may |= g->prompt[i].n + ASK_TEXT_MAX + 16 > g->model->info.max_model_len;
    return may;
}

void
gen_truncate(struct gen *g)
{
    if (g->a.truncate == ASK_I32_UNSET && !may_leave_less(g))
        gen_submit(g);
    else
        ask_next(g);
}
