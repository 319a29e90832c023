/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a prompt back to a request that wants it, ids and then text, in turn with other
 * long answers: a prompt of megabytes does not delay the tokens of other requests.
 */
#include "config.h"

#include "daemon/worker/egress_priv.h"

#include <string.h>

#include "daemon/worker/tokenizer.h"

/* Collects a prompt's text into records. */
struct egr_echo {
    uint32_t n, at;
    unsigned char b[FDP_REC_MAX_LEN];
};

static void
egr_echo_send(struct egress *g, const struct req *r, struct egr_echo *o)
{
    if (o->n > 0)
        memcpy(egr_claim(g, r->id, FDP_T_PROMPT_TEXT, 0, o->at, o->n), o->b, o->n);
    o->at += o->n;
    o->n = 0;
}

/* Adds the next n bytes, in g->buf. They are whole characters, and records are cut
 * between characters. */
static void
egr_echo_add(struct egress *g, const struct req *r, struct egr_echo *o, size_t n)
{
    const unsigned char *b = g->buf;

    while (n > 0) {
        size_t k = sizeof(o->b) - o->n;

        if (n <= k) {
            k = n;
        } else {
            while (k > 0 && (b[k] & 0xc0) == 0x80)
                k--;
        }
        memcpy(o->b + o->n, b, k);
        o->n += (uint32_t)k;
        b += k;
        n -= k;
        if (n > 0)
            egr_echo_send(g, r, o);
    }
}

/* job_at counts the ids sent (0 to n_prompt), then those whose text was taken (n_prompt
 * to 2 n_prompt). */
static uint32_t
egr_prompt_end(const struct req *r)
{
    return (uint32_t)r->n_prompt * ((r->p.flags & FDP_F_PROMPT_TEXT) != 0 ? 2 : 1);
}

void
egr_prompt_begin(const struct egress *g, struct req *r)
{
    r->job_at = (r->p.flags & FDP_F_PROMPT_IDS) != 0 ? 0 : (uint32_t)r->n_prompt;
    if ((r->p.flags & FDP_F_PROMPT_TEXT) != 0)
        dtk_init(&r->choices[0].dtk, g->cfg.tok, (r->p.flags & FDP_F_KEEP_SPECIAL) == 0);
}

void
egr_prompt_ids(struct egress *g, struct req *r)
{
    uint32_t n = (uint32_t)r->n_prompt - r->job_at;

    if (n > EGR_JOB_IDS)
        n = EGR_JOB_IDS;
    egr_ids(g, r->id, FDP_T_PROMPT_IDS, 0, r->job_at, r->ids + r->job_at, n);
    r->job_at += n;
}

static void
egr_prompt_text(struct egress *g, struct req *r)
{
    struct dtk *d = &r->choices[0].dtk;
    uint32_t from = r->choices[0].text_off, end = egr_prompt_end(r), n = 0;
    struct egr_echo o = { .n = 0, .at = from };

    while (r->job_at < end && n++ < EGR_JOB_IDS && o.at + o.n - from < EGR_JOB_BYTES)
        egr_echo_add(g, r, &o,
            dtk_push(d, r->ids[r->job_at++ - (uint32_t)r->n_prompt], g->buf, g->buf_bytes));
    if (r->job_at == end)
        egr_echo_add(g, r, &o, dtk_finish(d, g->buf, g->buf_bytes));
    egr_echo_send(g, r, &o);
    r->choices[0].text_off = o.at;
}

int
egr_prompt_piece(struct egress *g, struct req *r)
{
    if (r->job_at < (uint32_t)r->n_prompt)
        egr_prompt_ids(g, r);
    else
        egr_prompt_text(g, r);
    return r->job_at < egr_prompt_end(r);
}
