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
 *   mark   a long step says when most of it is done (lka_wants_mark()). Behind
 *          it nothing is due before that was seen; then the step ends after
 *          mark - begin times what that share was in recent steps: the
 *          prediction that is left to be wrong is of a quarter of the step.
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

#define LKA_MAX_DEPTH 7
/* Durations by their power of two, in us. */
#define LKA_N_CLASS      32
#define LKA_MARGIN_MIN   100000u
#define LKA_MARGIN_START 300000u
#define LKA_MARGIN_MAX   2000000u
/* The device takes so long from one step to the next at most where the next was
 * there in time. */
#define LKA_IDLE_NS 5000u
/* A step that is predicted to last this long or longer is worth a mark. */
#define LKA_MARK_NS 5000000u
/* A mark is looked for no more often than this. */
#define LKA_LOOK_NS 200000u
/* Steps without marks after one whose mark did not come. */
#define LKA_UNMARKED 64

struct lka_step {
    uint64_t pick_ns;
    uint64_t predict_ns; /* 0: unknown */
    uint64_t expect_ns;  /* corrected */
    int32_t marks;       /* says when most of it is done */
    uint64_t before_ns;  /* a look after this one sees the mark; 0: none before */
    uint64_t mark_ns;    /* the first that saw it; 0: none yet */
};

struct lka_class { /* of actual / predicted duration */
    double mean, dev;
    int32_t n; /* seen, LKA_FEW at most */
};

struct lka {
    int32_t depth;
    int32_t n;                               /* steps queued, not collected */
    struct lka_step step[LKA_MAX_DEPTH + 1]; /* oldest first */
    uint64_t end_ns;                         /* of the last that was collected */
    uint64_t launch_ns;                      /* recent maximum of pick to queued */
    uint64_t margin_ns;
    struct lka_class all, cls[LKA_N_CLASS];
    struct lka_class rest; /* of (end - mark) / (mark - begin) */
    int32_t unmarked;      /* steps to go without marks */
};

/* depth: steps ahead of the one that runs, 0 to LKA_MAX_DEPTH. */
void lka_init(struct lka *l, int32_t depth);
/* A step was queued; predict_ns 0: unknown. depth + 1 at most are. */
void lka_launched(struct lka *l, uint64_t pick_ns, uint64_t queued_ns, uint64_t predict_ns);
/* Is a step of that predicted duration worth a mark at about three quarters of it? */
int lka_wants_mark(const struct lka *l, uint64_t predict_ns);
/* The step launched last has one. */
void lka_will_mark(struct lka *l);
/* A look at the oldest step: has it passed its mark? */
void lka_look(struct lka *l, uint64_t now_ns, int passed);
/* When to look next; UINT64_MAX: there is no mark to come. */
uint64_t lka_look_at(const struct lka *l, uint64_t now_ns);
/* The oldest ended. idle_ns: the device had nothing to do before it though there was
 * work, and nothing but lka_due() had held its pick back. */
void lka_collected(struct lka *l, uint64_t begin_ns, uint64_t end_ns, uint64_t idle_ns);
/* When the next step is to be picked; <= now_ns: at once; UINT64_MAX: not before one
 * is collected or a mark is seen. */
uint64_t lka_due(const struct lka *l, uint64_t now_ns);
/* When the oldest step ends, rather too early; 0: unknown, or there is none. */
uint64_t lka_end(const struct lka *l);
/* How long before the end of what is queued a step is due. */
uint64_t lka_lead(const struct lka *l);

#endif
