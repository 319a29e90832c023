/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of egress offer one another, each to those behind it: egress_record.c,
 * egress_token.c (tokens of a sample), egress_best.c (best_of), egress_prompt.c (what of
 * the prompt is sent back), egress_answer.c (ends, and long answers by turns), egress.c
 * (messages).
 */
#ifndef FDD_DAEMON_WORKER_EGRESS_PRIV_H
#define FDD_DAEMON_WORKER_EGRESS_PRIV_H

#include <stddef.h>

#include "daemon/worker/egress.h"

/* ---- egress_record.c ------------------------------------------------------------- */

/* The up ring is full: wait for the gate. */
void egr_wait_room(const struct egress *g);
#define EGR_MAX_IDS (FDP_REC_MAX_LEN / 4)
/* The payload of a record, to be filled before the next call; waits for room. */
void *egr_claim(struct egress *g, uint64_t id, unsigned type, unsigned sample,
    uint32_t position, size_t len);
void egr_ids(struct egress *g, uint64_t id, unsigned type, unsigned sample,
    uint32_t position, const uint32_t *ids, uint32_t n);
/* ERROR, as m tells it. */
void egr_error(struct egress *g, uint64_t id, int32_t code, const struct que_msg *m);
/* DONE. */
void egr_done(struct egress *g, const struct req *r);
/* The request goes back to ingress; nothing may touch it after. */
void egr_release(struct egress *g, struct req *r);

/* ---- egress_token.c --------------------------------------------------------------- */

/* Logprobs of one token: it, then its alternatives. n 0: none were asked for. */
#define EGR_MAX_LP (1 + FDP_MAX_LOGPROBS + FDP_MAX_LOGPROB_IDS)
struct egr_lp {
    uint32_t n;
    struct fdp_logprob p[EGR_MAX_LP];
};
/* Those of the message at place at. */
void egr_read_lp(struct que *q, uint32_t at, struct egr_lp *ret);
/* The record of that type, and with FDP_F_TOKEN_TEXT the one behind it. */
void egr_logprobs(struct egress *g, const struct req *r, unsigned type, unsigned shown,
    uint32_t position, const struct egr_lp *lp);

/* Send all of a sample's text but the last keep bytes; quiet: count them only. */
void egr_text_send(struct egress *g, const struct req *r, unsigned sample, uint32_t keep,
    int quiet);
/* Append; what overflows is sent, but for enough to cut a stop string off. */
void egr_text_add(struct egress *g, const struct req *r, unsigned sample,
    const unsigned char *b, size_t n, int quiet);
int egr_wants_text(const struct egress *g, const struct req *r);
/* Output token at of a sample. */
uint32_t egr_out_id(const struct req *r, unsigned sample, uint32_t at);
/* Go over the output that was delivered before; it may end the sample. */
void egr_prime(struct egress *g, struct req *r, unsigned sample);
/* Do rules, a repetition or tokens apart look at each of its tokens? */
int egr_looks_at_each(const struct req *r);
/* The next token of a sample: its records, those of ids and text once due ids wait.
 * done is FDK_DONE_*. 1: it ends the sample, which is the caller's to close, as end of
 * its choice says. */
int egr_take(struct egress *g, struct req *r, unsigned sample, uint32_t id, int32_t done,
    const struct egr_lp *lp, uint32_t due);
/* What is left of its text, then CHOICE_END. */
void egr_close(struct egress *g, struct req *r, unsigned sample, struct fdp_choice_end end);

/* ---- egress_best.c ---------------------------------------------------------------- */

/* A token of a sample whose records are withheld. 1: a stop string or a repetition ended
 * it, and the engine does not know. */
int egr_hold(struct egress *g, struct req *r, unsigned sample, const struct que_msg *m,
    const struct egr_lp *lp);
/* All have ended: which are returned, and in which order. */
void egr_best_begin(struct egress *g, struct req *r);
/* The next tokens of those. 1: there are more. */
int egr_best_piece(struct egress *g, struct req *r);
/* Those that are not sent, or not whole, end with an error. */
void egr_best_close(struct egress *g, struct req *r);

/* ---- egress_prompt.c -------------------------------------------------------------- */

/* Of a long answer per poll: ids, or bytes of text or of a file. */
#define EGR_JOB_IDS   4096u
#define EGR_JOB_BYTES (4 * FDP_REC_MAX_LEN)
/* The prompt of a request that wants it back: set the progress to its start. */
void egr_prompt_begin(const struct egress *g, struct req *r);
/* The next ids, or text. 1: there is more. */
int egr_prompt_piece(struct egress *g, struct req *r);
/* The next ids. */
void egr_prompt_ids(struct egress *g, struct req *r);

/* ---- egress_answer.c -------------------------------------------------------------- */

/* The answer of an op that needs no engine: now, or by turns. */
void egr_answer(struct egress *g, struct req *r);
/* r has a long answer, to be sent by turns; its job_at is set. */
void egr_job_push(struct egress *g, struct req *r);
/* All that comes before the output of r is sent. Where nothing is to run it ends. */
void egr_begin(struct egress *g, struct req *r);
/* The engine has done with r, or there was nothing for it to do. */
void egr_end(struct egress *g, struct req *r, int32_t code, int32_t done);
/* A piece of the long answer whose turn it is, where records of others do not have to
 * wait behind it for long; idle: there was nothing else to do. Returns the work done. */
int egr_job(struct egress *g, int idle);

#endif
