/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * When to pick the next step: as late as possible without leaving the device idle, so
 * that a request that arrives gets into the very next step. Pure functions: no clock,
 * device or engine; the caller passes all times, in ns of one clock.
 *
 *   due = expected end of the queued steps - lead
 *
 *   end    begin of the oldest step (end of the one before it, or when it was picked) +
 *          the predicted durations, each corrected by recent steps of similar length: the
 *          mean of actual / predicted minus its mean deviation. A step that lasts longer
 *          than expected is expected to end now.
 *   mark   a long step signals when most of it is done (lka_wants_mark()). No step is due
 *          before that is seen. Then the rest is expected to take mark - begin, times the
 *          ratio of rest to beginning in recent steps: so only the last quarter of the
 *          step is predicted.
 *   lead   recent maximum of the time from pick until the device can begin the step, +
 *          margin. The margin grows when the device was idle and shrinks slowly; at most
 *          LKA_MARGIN_MAX.
 *
 * A pick too early delays a request that arrives after it; a pick too late leaves the
 * device idle. If in doubt the pick is early. While a step of unknown duration is queued,
 * the next is due at once. A caller that waits for lka_due() must stop waiting when the
 * oldest step is done, whatever was predicted.
 */
#ifndef FDD_DAEMON_WORKER_LOOKAHEAD_H
#define FDD_DAEMON_WORKER_LOOKAHEAD_H

#include <stdint.h>

#define LKA_MAX_DEPTH 7
/* Classes of durations, by power of two in us. */
#define LKA_N_CLASS      32
#define LKA_MARGIN_MIN   100000u
#define LKA_MARGIN_START 300000u
#define LKA_MARGIN_MAX   2000000u
/* Longest time that the device needs between two steps if the second was queued in
 * time. */
#define LKA_IDLE_NS 5000u
/* A step predicted to last at least this long gets a mark. */
#define LKA_MARK_NS 5000000u
/* Least time between two looks at a mark. */
#define LKA_LOOK_NS 200000u
/* After a step whose mark did not come, this many steps have no marks. */
#define LKA_UNMARKED 64

struct lka_step {
    uint64_t pick_ns;
    uint64_t predict_ns; /* 0: unknown */
    uint64_t expect_ns;  /* predict_ns corrected */
    int32_t marks;       /* 1: the device signals when most of the step is done */
    uint64_t before_ns;  /* last look that did not see the mark; 0: none */
    uint64_t mark_ns;    /* first look that saw the mark; 0: not seen yet */
};

struct lka_class { /* statistics of a ratio, such as actual / predicted duration */
    double mean, dev;
    int32_t n; /* values seen, at most LKA_FEW */
};

struct lka {
    int32_t depth;
    int32_t n;                               /* steps queued, not collected */
    struct lka_step step[LKA_MAX_DEPTH + 1]; /* oldest first */
    uint64_t end_ns;                         /* end of the last collected step */
    uint64_t launch_ns;                      /* recent maximum of the time from pick to
                                                queued */
    uint64_t margin_ns;
    struct lka_class all, cls[LKA_N_CLASS];
    struct lka_class rest; /* ratio (end - mark) / (mark - begin) */
    int32_t unmarked;      /* number of next steps without marks */
};

/* depth: steps launched ahead of the running one, 0 to LKA_MAX_DEPTH. */
void lka_init(struct lka *l, int32_t depth);
/* A step was queued; predict_ns 0: unknown. At most depth + 1 may be queued. */
void lka_launched(struct lka *l, uint64_t pick_ns, uint64_t queued_ns, uint64_t predict_ns);
/* Should a step of this predicted duration have a mark, at about three quarters? */
int lka_wants_mark(const struct lka *l, uint64_t predict_ns);
/* The step launched last has a mark. */
void lka_will_mark(struct lka *l);
/* Reports whether the oldest step had passed its mark at now_ns. */
void lka_look(struct lka *l, uint64_t now_ns, int passed);
/* When to look at the mark next; UINT64_MAX: no mark is expected. */
uint64_t lka_look_at(const struct lka *l, uint64_t now_ns);
/* The oldest step ended. idle_ns: how long the device was idle before it although there
 * was work, only because lka_due() delayed the step. */
void lka_collected(struct lka *l, uint64_t begin_ns, uint64_t end_ns, uint64_t idle_ns);
/* When to pick the next step; <= now_ns: at once; UINT64_MAX: not before a step is
 * collected or a mark is seen. */
uint64_t lka_due(const struct lka *l, uint64_t now_ns);
/* A low estimate of when the oldest step ends; 0: unknown, or there is none. */
uint64_t lka_end(const struct lka *l);
/* How long before the end of the queued steps the next step is due. */
uint64_t lka_lead(const struct lka *l);

#endif
