/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of egress, in layers; each file may call those listed before it:
 * egress_record.c, egress_token.c (tokens of a sample), egress_best.c (best_of),
 * egress_prompt.c (a prompt that is sent back), egress_answer.c (ends, and long answers
 * in turn), egress.c (messages).
 */
#ifndef FDD_DAEMON_WORKER_EGRESS_PRIV_H
#define FDD_DAEMON_WORKER_EGRESS_PRIV_H

#include <stddef.h>

#include "daemon/worker/egress.h"

/* ---- egress_record.c ------------------------------------------------------------- */

/* The up ring is full: waits a moment for the gate. */
void egr_wait_room(const struct egress *g);
#define EGR_MAX_IDS (FDP_REC_MAX_LEN / 4)
/* Claims a record and returns its payload, which must be filled before the next call.
 * Waits for room. */
void *egr_claim(struct egress *g, uint64_t id, unsigned type, unsigned sample,
    uint32_t position, size_t len);
void egr_ids(struct egress *g, uint64_t id, unsigned type, unsigned sample,
    uint32_t position, const uint32_t *ids, uint32_t n);
/* Sends ERROR, with the fields of m. */
void egr_error(struct egress *g, uint64_t id, int32_t code, const struct que_msg *m);
/* Sends DONE. */
void egr_done(struct egress *g, const struct req *r);
/* Returns the request to ingress; it must not be used after this. */
void egr_release(struct egress *g, struct req *r);

/* ---- egress_token.c --------------------------------------------------------------- */

/* Logprobs of one token: its own, then those of its alternatives. n 0: none were
 * requested. */
#define EGR_MAX_LP (1 + FDP_MAX_LOGPROBS + FDP_MAX_LOGPROB_IDS)
struct egr_lp {
    uint32_t n;
    struct fdp_logprob p[EGR_MAX_LP];
};
/* Reads the logprobs of q's message at index `at`. */
void egr_read_lp(struct que *q, uint32_t at, struct egr_lp *ret);
/* Sends the logprobs record of this type and, with FDP_F_TOKEN_TEXT, the TOKEN_TEXT
 * record that follows it. */
void egr_logprobs(struct egress *g, const struct req *r, unsigned type, unsigned shown,
    uint32_t position, const struct egr_lp *lp);

/* Sends a sample's pending text except its last keep bytes. quiet: counts the bytes
 * without sending them. */
void egr_text_send(struct egress *g, const struct req *r, unsigned sample, uint32_t keep,
    int quiet);
/* Appends n bytes to a sample's pending text. When the buffer is full its text is sent,
 * except enough to remove a stop string later. */
void egr_text_add(struct egress *g, const struct req *r, unsigned sample,
    const unsigned char *b, size_t n, int quiet);
int egr_wants_text(const struct egress *g, const struct req *r);
/* The id of a sample's output token number `at`. */
uint32_t egr_out_id(const struct req *r, unsigned sample, uint32_t at);
/* Initializes a sample's output, which begins after the prompt and PRIOR_IDS. */
void egr_prime(struct egress *g, struct req *r, unsigned sample);
/* Replays the next ids of output that was delivered before (PRIOR_IDS), unsent. Returns 1
 * if there are more. The last may end the sample, which is the only one of r. */
int egr_replay_piece(struct egress *g, struct req *r);
/* Must each output token of r be examined, for rules, repetition or FDP_F_ALONE? */
int egr_looks_at_each(const struct req *r);
/* Takes the next token of a sample and sends its records: ids and text only when `due`
 * ids are pending. done: FDK_DONE_*. Returns 1 if the token ends the sample; the caller
 * must then close it with its req_choice.end. */
int egr_take(struct egress *g, struct req *r, unsigned sample, uint32_t id, int32_t done,
    const struct egr_lp *lp, uint32_t due);
/* Sends a sample's remaining text, then CHOICE_END. */
void egr_close(struct egress *g, struct req *r, unsigned sample, struct fdp_choice_end end);

/* ---- egress_best.c ---------------------------------------------------------------- */

/* Takes a token of a sample whose records are withheld. Returns 1 if a stop string or a
 * repetition ended the sample, so that the engine must be told. */
int egr_hold(struct egress *g, struct req *r, unsigned sample, const struct que_msg *m,
    const struct egr_lp *lp);
/* All samples have ended: ranks them and selects those to return. */
void egr_best_begin(struct egress *g, struct req *r);
/* Sends the next tokens of the selected samples. Returns 1 if there are more. */
int egr_best_piece(struct egress *g, struct req *r);
/* Closes, with an error, selected samples that are not completely sent. */
void egr_best_close(struct egress *g, struct req *r);

/* ---- egress_prompt.c -------------------------------------------------------------- */

/* Limits of a long answer per poll: ids, or bytes of text or of a file. */
#define EGR_JOB_IDS   4096u
#define EGR_JOB_BYTES (4 * FDP_REC_MAX_LEN)
/* Begins to send the prompt of a request that wants it back: initializes the progress. */
void egr_prompt_begin(const struct egress *g, struct req *r);
/* Sends the next ids or text of the prompt. Returns 1 if there is more. */
int egr_prompt_piece(struct egress *g, struct req *r);
/* Sends the next ids of the prompt. */
void egr_prompt_ids(struct egress *g, struct req *r);

/* ---- egress_answer.c -------------------------------------------------------------- */

/* Answers an op that needs no engine, immediately or in turns. */
void egr_answer(struct egress *g, struct req *r);
/* Everything before the output of r is sent: begins the output, after PRIOR_IDS are
 * replayed in turns. Ends r if nothing is left to run. */
void egr_begin(struct egress *g, struct req *r);
/* Ends r: the engine has finished with it, or it needed no engine. */
void egr_end(struct egress *g, struct req *r, int32_t code, int32_t done);
/* Sends a piece of the long answer whose turn it is, unless the up ring is so full that
 * it would delay other requests. idle: there was no other work. Returns nonzero if there
 * was work. */
int egr_job(struct egress *g, int idle);

#endif
