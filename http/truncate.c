/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Prompts that become ids before they are submitted: those of which truncate_prompt_tokens
 * takes a part, and those which may leave less than the output that is taken where
 * max_tokens is left out. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "http/conn.h"
#include "http/gen_priv.h"

static void ask_next(struct gen *g);

/* -1: what the output leaves of the model's length. */
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
        ; /* the first that is text */
    p->ids = job->ids;
    p->n = job->n_ids;
    p->n_span = 0;
    job->ids = NULL;
    link_job_free(job);
    ask_next(g);
}

/* The next prompt that is text; when there is none, all are submitted. */
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

/* May the output that is taken where max_tokens is left out not fit? A text has few ids
 * more than bytes. */
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
