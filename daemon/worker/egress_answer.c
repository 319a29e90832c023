/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/egress_priv.h"

#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/worker/files.h"
#include "daemon/worker/tokenizer.h"

/* Of a long answer per poll: ids, or bytes of a file. */
#define EGR_JOB_IDS   4096u
#define EGR_JOB_BYTES (4 * FDP_REC_MAX_LEN)
/* A piece goes while no more of the up ring is in use: the records of others wait behind
 * these slots at most, which the gate relays in one iteration or two. */
#define EGR_JOB_SLOTS (LNK_UP_SLOTS / 8)

void
egr_job_push(struct egress *g, struct req *r)
{
    r->job_next = NULL;
    if (g->job_tail != NULL)
        g->job_tail->job_next = r;
    else
        g->job_head = r;
    g->job_tail = r;
}

static struct req *
egr_job_pop(struct egress *g)
{
    struct req *r = g->job_head;

    g->job_head = r->job_next;
    if (g->job_head == NULL)
        g->job_tail = NULL;
    r->job_next = NULL;
    return r;
}

static void
egr_info(struct egress *g, const struct req *r)
{
    struct fdp_info *info = egr_claim(g, r->id, FDP_T_REPLY, 0, 0, sizeof(*info));

    *info = g->cfg.ready->info;
}

/* Bytes of the file that were asked for. */
static uint32_t
egr_file_bytes(const struct req *r)
{
    size_t left = r->file->n - (size_t)r->file_ask.off;

    return left < r->file_ask.len ? (uint32_t)left : r->file_ask.len;
}

void
egr_answer(struct egress *g, struct req *r)
{
    struct fdp_file *f;

    r->job_at = 0;
    switch (r->p.op) {
    case FDP_OP_INFO:
        egr_info(g, r);
        egr_done(g, r);
        egr_release(g, r);
        return;
    case FDP_OP_DETOKENIZE:
        dtk_init(&r->choices[0].dtk, g->cfg.tok, (r->p.flags & FDP_F_KEEP_SPECIAL) == 0);
        break;
    case FDP_OP_FILE:
        f = egr_claim(g, r->id, FDP_T_REPLY, 0, 0, sizeof(*f));
        *f = (struct fdp_file){ .size = r->file->n };
        break;
    case FDP_OP_TOKENIZE:
        break;
    default:
        WRONG("an op that egress cannot answer");
    }
    egr_job_push(g, r);
}

/* Of each the next piece. 1: there is more. */
static int
egr_job_ids(struct egress *g, struct req *r)
{
    uint32_t n = (uint32_t)r->n_ids - r->job_at;

    if (n > EGR_JOB_IDS)
        n = EGR_JOB_IDS;
    egr_ids(g, r->id, FDP_T_PROMPT_IDS, 0, r->job_at, r->ids + r->job_at, n);
    r->job_at += n;
    return r->job_at < (uint32_t)r->n_ids;
}

static int
egr_job_text(struct egress *g, struct req *r)
{
    struct dtk *d = &r->choices[0].dtk;
    uint32_t n = (uint32_t)r->n_ids - r->job_at, end;

    end = r->job_at + (n < EGR_JOB_IDS ? n : EGR_JOB_IDS);
    for (; r->job_at < end; r->job_at++)
        egr_text_add(g, r, 0, g->buf,
            dtk_push(d, r->ids[r->job_at], g->buf, g->buf_bytes), 0);
    if (end < (uint32_t)r->n_ids)
        return 1;
    egr_text_add(g, r, 0, g->buf, dtk_finish(d, g->buf, g->buf_bytes), 0);
    egr_text_send(g, r, 0, 0, 0);
    return 0;
}

static int
egr_job_file(struct egress *g, struct req *r)
{
    const unsigned char *from = r->file->bytes + r->file_ask.off;
    uint32_t all = egr_file_bytes(r), n;

    for (uint32_t sent = 0; r->job_at < all && sent < EGR_JOB_BYTES; sent += n) {
        n = all - r->job_at < FDP_REC_MAX_LEN ? all - r->job_at : FDP_REC_MAX_LEN;
        memcpy(egr_claim(g, r->id, FDP_T_BYTES, 0, r->job_at, n), from + r->job_at, n);
        r->job_at += n;
    }
    return r->job_at < all;
}

int
egr_job(struct egress *g, int idle)
{
    struct req *r;
    int more;

    if (g->job_head == NULL)
        return 0;
    if (!lnk_has_room(g->cfg.lnk, LNK_UP_SLOTS - EGR_JOB_SLOTS)) {
        lnk_flush(g->cfg.lnk);
        if (idle)
            egr_wait_room(g);
        return 1;
    }
    r = egr_job_pop(g);
    if (r->p.op == FDP_OP_TOKENIZE)
        more = egr_job_ids(g, r);
    else if (r->p.op == FDP_OP_DETOKENIZE)
        more = egr_job_text(g, r);
    else if (r->p.op == FDP_OP_FILE)
        more = egr_job_file(g, r);
    else
        more = egr_best_piece(g, r);
    if (more) {
        egr_job_push(g, r);
        return 1;
    }
    egr_done(g, r);
    egr_release(g, r);
    return 1;
}
