/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The egress stage: tokens to records. One thread, the only writer of the
 * up ring.
 *
 *   in    QUE_OPEN, QUE_REFUSE, QUE_FAIL, QUE_ANSWER from ingress
 *         QUE_TOKEN, QUE_SCORE, QUE_END from the engine
 *   out   records to the gate; QUE_STOP, QUE_ADD to the engine; QUE_FREED to
 *         ingress
 *
 * The records of a request, in this order: LNK_T_TOKENIZED, ACCEPTED, PROMPT_IDS,
 * PROMPT_TEXT; then for each token IDS, LOGPROBS, TOKEN_TEXT, TEXT (or SPECIAL for IDS
 * and TEXT); CHOICE_END per sample; one DONE or ERROR. A prompt that is sent back goes in
 * pieces, in turn with other long answers; the engine gets the request when all of its
 * prompt is sent. PRIOR_IDS are replayed in pieces too, unsent, before the engine gets the
 * request. If more samples are drawn than returned (best_of) the output is sent when all
 * samples have ended, also in pieces. Between two pieces a cancel or the deadline ends the
 * request. Adjacent IDS and TEXT records are merged into one TOKENS record if that fits a
 * slot. Text that may begin a stop string, and the bytes of an unfinished character, are
 * held back. A stop string ends its sample here: later tokens are dropped and the engine
 * gets a QUE_STOP.
 *
 * Egress waits while the up ring is full; the gate always reads it.
 */
#ifndef FDD_DAEMON_WORKER_EGRESS_H
#define FDD_DAEMON_WORKER_EGRESS_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/counter.h"
#include "daemon/common/link.h"
#include "daemon/worker/queue.h"
#include "daemon/worker/req.h"

struct egr_cfg {
    struct lnk *lnk;
    struct que *q_ing;     /* from ingress */
    struct que *q_eng;     /* from the engine */
    struct que *q_stop;    /* to the engine: at least the slots of q_eng and one per
                              request */
    struct que *q_freed;   /* to ingress: at least a slot per request */
    const struct tok *tok; /* NULL: no text */
    const struct lnk_ready *ready;
    struct cnt_worker *cnt;
    struct cnt_hist *hist;        /* [CNT_H__N], or NULL */
    void (*wait_room)(void *arg); /* for tests: called while the up ring is full; else NULL */
    void *arg;
};

struct egress {
    uint32_t magic;
#define EGR_MAGIC 0x45475231u
    struct egr_cfg cfg;
    uint64_t now_ns;
    unsigned char *buf; /* [buf_bytes] text of one token */
    size_t buf_bytes;
    int mute; /* 1: records are written to scratch, not to the ring */
    uint64_t scratch[FDP_REC_MAX_LEN / 8];
    struct req_list jobs; /* requests whose long answers are being sent, in turn */
    pid_t parent;
    uint64_t n_terminal; /* DONE and ERROR records sent */
};

struct egress *egr_new(const struct egr_cfg *cfg); /* NULL: out of memory */
struct egress *egr_free(struct egress *g);
/* Handles the queued messages. Returns nonzero if there was work. */
int egr_poll(struct egress *g, uint64_t now_ns);
int egr_pending(struct egress *g);

#endif
