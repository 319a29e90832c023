/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * When to pick the next step: as late as keeps the device busy, so that a
 * request that arrives is in the very next step. Pure: no clock, no device, no
 * engine; all times are the caller's, ns, of one clock.
 *
 *   due = expected end of what is queued - lead
 *
 *   end    begin of the oldest step (end of the one before it, or when it was
 *          picked) + the predicted durations, each corrected by what recent
 *          steps of that length took: mean of actual / predicted minus
 *          its mean deviation. A step that lasts longer than expected is
 *          expected to end now.
 *   lead   recent maximum of pick until the device has enough to begin with +
 *          margin. The margin grows when
 *          the device was idle and shrinks slowly; LKA_MARGIN_MAX at most.
 *
 * A pick too early costs a request that arrives after it some of its time, a
 * pick too late leaves the device idle: doubts make it early. While a step of
 * unknown duration is queued the next is due at once.
 * The caller that waits for lka_due() ends the wait when the oldest step is done,
 * whatever was predicted.
 */
#ifndef FDD_DAEMON_WORKER_LOOKAHEAD_H
#define FDD_DAEMON_WORKER_LOOKAHEAD_H

#include <stdint.h>

#define LKA_MAX_DEPTH    7
/* Durations by their power of two, in us. */
#define LKA_N_CLASS      32
#define LKA_MARGIN_MIN   100000u
#define LKA_MARGIN_START 300000u
#define LKA_MARGIN_MAX   2000000u
/* The device takes so long from one step to the next at most where the next was
 * there in time. */
#define LKA_IDLE_NS      5000u

struct lka_step {
    uint64_t pick_ns;
    uint64_t predict_ns;     /* 0: unknown */
    uint64_t expect_ns;      /* corrected */
};

struct lka_class {           /* of actual / predicted duration */
    double mean, dev;
    int32_t n;               /* seen, LKA_FEW at most */
};

struct lka {
    int32_t depth;
    int32_t n;               /* steps queued, not collected */
    struct lka_step step[LKA_MAX_DEPTH + 1]; /* oldest first */
    uint64_t end_ns;         /* of the last that was collected */
    uint64_t launch_ns;      /* recent maximum of pick to queued */
    uint64_t margin_ns;
    struct lka_class all, cls[LKA_N_CLASS];
};

/* depth: steps ahead of the one that runs, 0 to LKA_MAX_DEPTH. */
void lka_init(struct lka *l, int32_t depth);
/* A step was queued; predict_ns 0: unknown. depth + 1 at most are. */
void lka_launched(struct lka *l, uint64_t pick_ns, uint64_t queued_ns, uint64_t predict_ns);
/* The oldest ended. idle_ns: the device had nothing to do before it though there was
 * work, and nothing but lka_due() had held its pick back. */
void lka_collected(struct lka *l, uint64_t begin_ns, uint64_t end_ns, uint64_t idle_ns);
/* When the next step is to be picked; <= now_ns: at once; UINT64_MAX: not before one
 * is collected. */
uint64_t lka_due(const struct lka *l, uint64_t now_ns);
/* When the oldest step ends, rather too early; 0: unknown, or there is none. */
uint64_t lka_end(const struct lka *l);
/* How long before the end of what is queued a step is due. */
uint64_t lka_lead(const struct lka *l);

#endif
