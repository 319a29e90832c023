/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A step in the making, and the functions that its files share. Each file calls only
 * those that precede it in this list: scheduler.c (lists, slots, ends), budget (tokens
 * and time of a step), urgent (preemption for a better priority), admit (one waiting
 * sequence), order (which candidate has the next turn), pick (the step).
 */
#ifndef FDD_DAEMON_WORKER_SCHEDULER_PICK_PRIV_H
#define FDD_DAEMON_WORKER_SCHEDULER_PICK_PRIV_H

#include "daemon/worker/scheduler_priv.h"

/* While a sequence that was bypassed this often waits, no other takes blocks. */
#define SCH_MAX_PASSED 16
/* Most unfinished prompts whose next blocks a waiting one is compared with. */
#define SCH_MAX_DUPLICATE 16

struct sch_pick {
    struct sch *sch;
    struct sch_step *st;
    uint64_t now_ns;
    int32_t tokens, scores;    /* still available in the step */
    int32_t long_left;         /* tokens left for long prompts in the first round */
    uint64_t long_ns;          /* predicted time up to which they may fill the step */
    int first;                 /* 1: first iteration over the candidates: long prompts
                                  get half of the step */
    int32_t n_partial, n_long; /* unfinished prompts after their tokens so far */
    int32_t n_long_had;        /* long unfinished prompts that had their turn */
    const struct seq *oldest;  /* first running prompt that has not had its turn, or
                                  NULL */
    int n_wanting;             /* running prompts that got no tokens so far */
    int closed;                /* 1: no more waiting sequences are admitted */
    int admit;                 /* 1: waiting sequences may be admitted */
    struct seq *scan;          /* next waiting sequence after the last candidate */
    int32_t n_waiting;         /* waiting candidates */
    int scarce;                /* 1: blocks may not suffice for all next tokens and owed
                                  blocks */
    int32_t kept;              /* blocks kept for the sequences that claimed so far */
    int32_t n_out;             /* sequences that sit out the step for lack of a block */
    int32_t promised;          /* blocks that running sequences are owed or need for
                                  known tokens */
    int32_t look_up;           /* prefix hits that may still be looked up */
    uint64_t target_ns;        /* target for the time of the step; 0: none, or not
                                  predicted */
    uint64_t most_ns;          /* the same with the most room that an automatic target
                                  leaves */
    int timed;                 /* 1: the target limits prefill, since more of it would
                                  delay a decode */
    int cut;                   /* 1: the target cut prefill short */
    int tiled;                 /* 1: the step was cut to the end of a tile (SCH_TILE) */
    int starved;               /* 1: prefill-starved for too many steps: some must be
                                  computed */
    /* prefill tokens allowed up to floor_ns (a long prompt: half_floor_ns), even if the
     * target is earlier */
    int32_t floor;
    uint64_t floor_ns, half_floor_ns;
    int32_t n_prefill; /* prefill tokens of the step */
    const struct seq *ahead[SCH_MAX_DUPLICATE];
    int32_t n_ahead;
    int32_t lack;             /* blocks that the pool lacked for the last rejected
                                 sequence */
    const struct seq *wanted; /* others may have been preempted for this sequence
                                 already */
    int weighed;              /* 1: preemption for a waiting sequence was considered */
};

/* The result of trying to admit a waiting sequence. */
enum sch_verdict {
    SCH_GOES,
    SCH_STOP,  /* the step is full: no other is admitted either */
    SCH_LATER, /* its prefix is being computed */
    SCH_LIMIT, /* a limit: unfinished prompts, penalties, scores */
    SCH_SHORT  /* not enough blocks, or not enough tokens for its one step */
};

/* ---- tokens and time: scheduler_budget.c ------------------------------------------ */

int sch_is_long(const struct sch *sch, const struct seq *s);
/* n_pair of q tokens from position from on. */
int64_t sch_pairs(int32_t from, int32_t q);
/* Add the work of q prompt tokens from position from on to *ret. */
void sch_add_prompt(const struct sch *sch, int32_t from, int32_t q, struct cost_step *ret);
/* Would the step with q more tokens from position from on take at most ns? */
int sch_in_time(const struct sch_pick *p, int32_t from, int32_t q, uint64_t ns);
/* Limit of a prompt's tokens by the sharing among long prompts. */
int32_t sch_share(const struct sch_pick *p, const struct seq *s);
/* Tokens of s from position from on in this step, at most most; 0: none. whole: all
 * missing tokens or none, if a step can hold them. */
int32_t
sch_chunk(struct sch_pick *p, const struct seq *s, int32_t from, int32_t most, int whole);
/* Add a row without tokens to the step. */
struct sch_row *sch_row(struct sch_pick *p, struct seq *s);
/* Take blocks for q more tokens of a running sequence. Returns for how many tokens
 * there were blocks. */
int32_t sch_hold(struct sch_pick *p, struct seq *s, int32_t q);
/* Add q tokens to a row, which holds their blocks. */
void sch_give(struct sch_pick *p, struct sch_row *row, int32_t q);
/* Count a running sequence if its prompt is unfinished. */
void sch_count_partial(struct sch_pick *p, const struct seq *s);
/* After the decodes: set the tokens and the time that prompts may have. */
void sch_begin_prompts(struct sch_pick *p);
/* Set the target for the step's time from these n candidates, and the half of it that
 * long prompts may fill. */
void sch_share_time(struct sch_pick *p, int32_t n);

/* ---- preemption for a better priority: scheduler_urgent.c ------------------------- */

/* Number of blocks that may become free when the launched steps are collected. Shared
 * blocks are counted too; if fewer become free, the next step accounts for that. */
int32_t sch_coming(const struct sch *sch);
/* Preempt for the sequence that the last step rejected, before any has its row. */
void sch_urge(struct sch_pick *p);
/* May others be preempted for s? */
int sch_is_urgent(const struct sch_pick *p, const struct seq *s);
/* Request preemption for s, which lacks blocks or a row. Nothing is requested if it
 * would not be enough. */
void sch_want(struct sch_pick *p, struct seq *s, int32_t lack, int32_t rows);

/* ---- one waiting sequence: scheduler_admit.c --------------------------------------- */

/* Count the blocks that running sequences are owed or need for tokens that they have or
 * are about to have. */
void sch_promise(struct sch_pick *p);
/* Tokens of s in the prefix cache. */
int32_t sch_find(struct sch_pick *p, struct seq *s);
/* Tokens of s that it could share with another sample of its request; 0: none. */
int32_t sch_shared(const struct sch *sch, const struct seq *s);
/* Admit s to the step if possible: it then has its row, blocks and first tokens. */
enum sch_verdict sch_admit(struct sch_pick *p, struct seq *s);
/* If all rows are taken, request preemption for the first waiting sequence and others
 * with a priority better than a running one's. */
void sch_want_rows(struct sch_pick *p);

/* ---- order of candidates: scheduler_order.c -------------------------------------- */

/* Write the candidates to sch->cand: running prompts in order of admission, then some
 * waiting ones in theirs, reordered by who may bypass. Returns their number. */
int32_t sch_candidates(struct sch_pick *p);

#endif
