/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/egress_priv.h"

#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/worker/files.h"
#include "daemon/worker/tokenizer.h"

/* A piece is sent only while at most this much of the up ring is in use, so that other
 * records wait behind at most these slots, which the gate relays in one or two loop
 * iterations. */
#define EGR_JOB_SLOTS (LNK_UP_SLOTS / 8)

static void
egr_info(struct egress *g, const struct req *r)
{
    struct fdp_info *info = egr_claim(g, r->id, FDP_T_REPLY, 0, 0, sizeof(*info));

    *info = g->cfg.ready->info;
}

/* Bytes of the file that were requested and exist. */
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
    req_append(&g->jobs, r);
}

/* Each sends the next piece. Returns 1 if there is more. */
static int
egr_job_ids(struct egress *g, struct req *r)
{
    egr_prompt_ids(g, r);
    return r->job_at < (uint32_t)r->n_prompt;
}

static int
egr_job_text(struct egress *g, struct req *r)
{
    struct req_choice *ch = &r->choices[0];
    uint32_t from = ch->text_off + ch->n_text, all = (uint32_t)r->n_ids, n = 0;
    struct dtk *d = &ch->dtk;

    while (r->job_at < all && n++ < EGR_JOB_IDS &&
        ch->text_off + ch->n_text - from < EGR_JOB_BYTES)
        egr_text_add(g, r, 0, g->buf,
            dtk_push(d, r->ids[r->job_at++], g->buf, g->buf_bytes), 0);
    if (r->job_at < all)
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

/* ---- requests ------------------------------------------------------------------- */

/* Closes the returned samples from number i on, of which nothing was sent. */
static void
egr_close_rest(struct egress *g, const struct req *r, int32_t i, int32_t code)
{
    for (; i < r->n_shown; i++) {
        struct fdp_choice_end *end =
            egr_claim(g, r->id, FDP_T_CHOICE_END, (unsigned)i, 0, sizeof(*end));

        *end =
            (struct fdp_choice_end){ .finish = code != 0 ? FDP_FIN_ERROR : FDP_FIN_LENGTH,
                .stop_id = -1,
                .stop_str = -1 };
    }
}

void
egr_end(struct egress *g, struct req *r, int32_t code, int32_t done)
{
    int32_t last = r->n_ids > 0 ? (int32_t)r->ids[r->n_ids - 1] : -1;

    if (r->held && code == 0) {
        egr_best_begin(g, r);
        req_append(&g->jobs, r);
        return;
    }
    for (int32_t i = 0; i < r->n_seq && !r->held; i++) {
        struct fdp_choice_end end = { .finish = FDP_FIN_ERROR,
            .stop_id = -1,
            .stop_str = -1 };

        if (r->choices[i].closed)
            continue;
        if (code == 0 && done == FDK_DONE_STOP) {
            end.finish = FDP_FIN_STOP;
            end.stop_id = last;
        } else if (code == 0) {
            end.finish = FDP_FIN_LENGTH;
        }
        egr_close(g, r, (unsigned)i, end);
    }
    egr_close_rest(g, r, r->held ? 0 : r->n_seq, code);
    if (code == 0)
        egr_done(g, r);
    else
        egr_error(g, r->id, code, &(struct que_msg){ .kind = QUE_FAIL, .idx = r->detail });
    egr_release(g, r);
}

static void
egr_output(struct egress *g, struct req *r)
{
    r->begun = 1;
    if (r->ended != FDK_DONE_NO)
        egr_end(g, r, 0, r->ended);
}

void
egr_begin(struct egress *g, struct req *r)
{
    for (int32_t i = 0; i < r->n_seq; i++)
        egr_prime(g, r, (unsigned)i);
    r->looked_at = (uint8_t)egr_looks_at_each(r);
    if (r->n_ids == r->n_prompt) {
        egr_output(g, r);
        return;
    }
    r->replays = 1;
    r->job_at = 0;
    req_append(&g->jobs, r);
}

/* The prompt was sent back, or PRIOR_IDS are replayed. After both the request goes to the
 * engine, unless nothing is left to run. */
static void
egr_opened(struct egress *g, struct req *r)
{
    struct que_msg m = { .req = r,
        .kind = QUE_ADD,
        .idx = r->idx,
        .serial = r->serial,
        .n_top = QUE_NO_LOGPROB };
    int adds = r->ended == FDK_DONE_NO && (r->replays || r->n_ids == r->n_prompt);

    /* both release r if it has ended */
    if (r->replays)
        egr_output(g, r);
    else
        egr_begin(g, r);
    if (adds)
        que_push(g->cfg.q_stop, &m);
}

/* ---- turns ----------------------------------------------------------------------- */

static void
egr_give_up(struct egress *g, struct req *r, int32_t code)
{
    if (r->replays) { /* the output that it has is counted */
        egr_end(g, r, code, FDK_DONE_NO);
        return;
    }
    if (r->p.op == FDP_OP_SUBMIT && r->begun)
        egr_best_close(g, r);
    else if (r->p.op == FDP_OP_SUBMIT)
        egr_close_rest(g, r, 0, code);
    egr_error(g, r->id, code, &(struct que_msg){ .kind = QUE_FAIL });
    egr_release(g, r);
}

/* Returns 1 if there is more. */
static int
egr_piece(struct egress *g, struct req *r)
{
    switch (r->p.op) {
    case FDP_OP_TOKENIZE:
        return egr_job_ids(g, r);
    case FDP_OP_DETOKENIZE:
        return egr_job_text(g, r);
    case FDP_OP_FILE:
        return egr_job_file(g, r);
    default:
        if (r->replays)
            return egr_replay_piece(g, r);
        return r->begun ? egr_best_piece(g, r) : egr_prompt_piece(g, r);
    }
}

/* All pieces are sent. */
static void
egr_whole(struct egress *g, struct req *r)
{
    if (r->p.op == FDP_OP_SUBMIT && !r->begun) {
        egr_opened(g, r);
        return;
    }
    egr_done(g, r);
    egr_release(g, r);
}

int
egr_job(struct egress *g, int idle)
{
    struct req *r;
    int32_t code;

    if (g->jobs.head == NULL)
        return 0;
    /* a replay sends nothing before its end */
    if (!g->jobs.head->replays && !lnk_has_room(g->cfg.lnk, LNK_UP_SLOTS - EGR_JOB_SLOTS)) {
        lnk_flush(g->cfg.lnk);
        if (idle)
            egr_wait_room(g);
        return 1;
    }
    r = req_first(&g->jobs);
    code = req_given_up(r, g->now_ns);
    if (code != 0)
        egr_give_up(g, r, code);
    else if (egr_piece(g, r))
        req_append(&g->jobs, r);
    else
        egr_whole(g, r);
    return 1;
}
