/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A step in the making, and what the files that make it offer one another. Each
 * uses only those above it here: scheduler.c (lists, slots, ends), budget (tokens
 * and time of a step), urgent (preemption for a better priority), admit (one
 * waiting sequence), order (who has the next turn), pick (the step).
 */
#ifndef FDD_DAEMON_WORKER_SCHEDULER_PICK_PRIV_H
#define FDD_DAEMON_WORKER_SCHEDULER_PICK_PRIV_H

#include "daemon/worker/scheduler_priv.h"

/* A sequence bypassed this often lets no other take blocks. */
#define SCH_MAX_PASSED 16
/* Unfinished prompts that waiting ones are compared with. */
#define SCH_MAX_DUPLICATE 16

struct sch_pick { /* one step in the making */
    struct sch *sch;
    struct sch_step *st;
    uint64_t now_ns;
    int32_t tokens, scores;    /* left of the step */
    int32_t long_left;         /* tokens left for long prompts in the first round */
    uint64_t long_ns;          /* predicted time of the step that they may fill */
    int first;                 /* the first round: long prompts have half of it */
    int32_t n_partial, n_long; /* unfinished prompts, with what they got by now */
    int32_t n_long_had;        /* of the long ones, those that had their turn */
    const struct seq *oldest;  /* prompt under way that has not had its turn, or NULL */
    int n_wanting;             /* prompts under way that got nothing so far */
    int closed;                /* no other waiting sequence goes */
    int admit;                 /* waiting ones may go */
    struct seq *scan;          /* behind the last candidate that waits */
    int32_t n_waiting;         /* candidates that wait */
    int scarce;                /* not all have a block and what they are owed */
    int32_t kept;              /* blocks for those that claimed before */
    int32_t n_out;             /* sequences that sit out, each for a block */
    int32_t promised;          /* blocks that running ones are owed or need for known
                                tokens */
    int32_t look_up;           /* blocks that may still be found */
    uint64_t target_ns;        /* time of the step; 0: none, or not predicted */
    uint64_t most_ns;          /* with the most room that an automatic target leaves */
    int timed;                 /* prefill is cut by it: somebody would wait longer */
    int cut;                   /* it was */
    int tiled;                 /* to the end of a tile (SCH_TILE) */
    int starved;               /* prefill-starved for too many steps: some goes */
    int32_t floor;             /* prefill tokens that may go whatever is predicted */
    int32_t n_prefill;         /* prefill tokens of the step */
    const struct seq *ahead[SCH_MAX_DUPLICATE];
    int32_t n_ahead;
    int32_t lack;             /* blocks the pool was short of for the last one refused */
    const struct seq *wanted; /* others may have been preempted for it already */
    int weighed;              /* whether some are to be was looked into */
};

/* What became of a waiting sequence. */
enum sch_verdict {
    SCH_GOES,
    SCH_STOP,  /* no other goes either: nothing is left */
    SCH_LATER, /* its prefix is being computed */
    SCH_LIMIT, /* no room among unfinished prompts, penalties, scores */
    SCH_SHORT  /* not enough blocks, or tokens to go in one step */
};

/* ---- tokens and time: scheduler_budget.c ------------------------------------------ */

int sch_is_long(const struct sch *sch, const struct seq *s);
/* n_pair of q tokens from position from on. */
int64_t sch_pairs(int32_t from, int32_t q);
/* Add what q tokens from position from on take. */
void sch_add_prompt(const struct sch *sch, int32_t from, int32_t q, struct cost_step *ret);
/* Would the step with q more tokens from position from on take ns at most? */
int sch_in_time(const struct sch_pick *p, int32_t from, int32_t q, uint64_t ns);
/* Tokens that a prompt may have in the first round. */
int32_t sch_share(const struct sch_pick *p, const struct seq *s);
/* Tokens of s from position from on in this step, most at most; 0: none.
 * whole: all that is missing or nothing, where a step can hold it. */
int32_t
sch_chunk(struct sch_pick *p, const struct seq *s, int32_t from, int32_t most, int whole);
/* A new row of the step, without tokens. */
struct sch_row *sch_row(struct sch_pick *p, struct seq *s);
/* Take blocks for q more tokens of a running sequence. Returns for how many there are. */
int32_t sch_hold(struct sch_pick *p, struct seq *s, int32_t q);
/* q more tokens for a row, which holds their blocks. */
void sch_give(struct sch_pick *p, struct sch_row *row, int32_t q);
/* One that runs counts where its prompt is unfinished. */
void sch_count_partial(struct sch_pick *p, const struct seq *s);
/* The decodes have their tokens: what prompts may have. */
void sch_begin_prompts(struct sch_pick *p);
/* The step's time with these n candidates in order, and the half of it that is for
 * long prompts in the first round. */
void sch_share_time(struct sch_pick *p, int32_t n);

/* ---- preemption for a better priority: scheduler_urgent.c ------------------------- */

/* Blocks that come back when what was launched is collected; those that are
 * shared are counted too: then less comes, and the next step sees that. */
int32_t sch_coming(const struct sch *sch);
/* Make room for whom the last step refused, before anybody is in this one. */
void sch_urge(struct sch_pick *p);
/* Could s be one that others are preempted for? */
int sch_is_urgent(const struct sch_pick *p, const struct seq *s);
/* s is refused: it lacks blocks, or a row. None is preempted where that would
 * not be enough. */
void sch_want(struct sch_pick *p, struct seq *s, int32_t lack, int32_t rows);

/* ---- one waiting sequence: scheduler_admit.c --------------------------------------- */

/* Count the blocks that running sequences are owed or need for the tokens that they
 * have or are about to have. */
void sch_promise(struct sch_pick *p);
/* Tokens of s that the prefix cache has. */
int32_t sch_find(struct sch_pick *p, struct seq *s);
/* Tokens that s would begin with of another sample of its request; 0: none. */
int32_t sch_shared(const struct sch *sch, const struct seq *s);
/* Into the step with s if it can go: it has its row, blocks and first tokens then. */
enum sch_verdict sch_admit(struct sch_pick *p, struct seq *s);
/* With all rows taken: the first that waits, and others of a priority better than a
 * running one's. */
void sch_want_rows(struct sch_pick *p);

/* ---- who has the next turn: scheduler_order.c -------------------------------------- */

/* Prompts under way in order of admission, then some that wait in theirs, put in the
 * order in which they may go: sch->cand. Returns how many. */
int32_t sch_candidates(struct sch_pick *p);

#endif
