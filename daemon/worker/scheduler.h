/*
 * The scheduler: which sequences run in the next step, and with how many
 * tokens. Pure policy over struct seq and the block pool; no tensors, no
 * clock of its own, no allocation after sch_new(). Engine thread.
 *
 * Running sequences come first, in the order of their admission; each takes
 * what is left of the step's token budget (chunked prefill is nothing but
 * that). When blocks run out, the sequence admitted last gives up its own
 * and waits to be recomputed from prompt + output, so that the oldest
 * always makes progress and no token is lost. A step that preempted admits
 * nobody.
 *
 * Waiting sequences are ordered by (priority, arrival, sample) and admitted
 * in that order when the pool can hold all their known tokens beside what
 * running ones are still owed, plus a reserve for the growth of those.
 *
 * Every sequence that is not ENDED is in exactly one of the lists waiting,
 * running, leaving (sch_check).
 */
#ifndef FDD_DAEMON_WORKER_SCHEDULER_H
#define FDD_DAEMON_WORKER_SCHEDULER_H

#include <stdint.h>

#include "daemon/worker/kvcache.h"
#include "daemon/worker/req.h"

struct sch_cfg {
    int32_t max_seqs;        /* rows in a step, state slots */
    int32_t max_tokens;      /* tokens in a step */
    int32_t max_scores;      /* prompt logprobs in a step */
    int32_t chunked;         /* 0: a prompt runs in one step where it can */
};

struct sch_row {             /* one row of a step */
    struct seq *seq;
    int32_t first;           /* position of its first token */
    int32_t q_len;
    int32_t score_first;     /* first position whose successor is scored */
    int32_t n_score;
    int32_t sample;          /* 1: its next token is sampled */
    int32_t fresh;           /* 1: the row's state must be written first */
};

struct sch_step {
    uint64_t epoch;
    int32_t n_row, n_tok, n_sample, n_score, n_preempted;
    struct sch_row *rows;    /* [max_seqs] */
};

struct sch_list { struct seq *head, *tail; int32_t n; };

struct sch {
    uint32_t magic;
#define SCH_MAGIC 0x53434844u
    struct sch_cfg cfg;
    struct kv *kv;
    struct sch_list waiting, running, leaving;
    struct seq **slot_seq;   /* [max_seqs] */
    uint32_t *slot_gen;      /* [max_seqs] counts the owners of a slot */
    int32_t *slot_free;      /* stack */
    int32_t n_slot_free;
    uint64_t epoch;          /* last step picked */
    uint64_t next_deadline;  /* no deadline passes before, UINT64_MAX none */
    struct req *ended_head, *ended_tail; /* for sch_take_ended() */
    uint64_t n_preempted;
    int32_t n_req_running;   /* requests with at least one row */
};

/* kv must have cfg->max_seqs slots. NULL: no memory. */
struct sch *sch_new(const struct sch_cfg *cfg, struct kv *kv);
struct sch *sch_free(struct sch *sch);

/* Rows of a step. -ENOMEM. */
int sch_step_init(struct sch_step *st, int32_t max_seqs);
void sch_step_fini(struct sch_step *st);

/* Take a request: all its sequences wait. */
void sch_add(struct sch *sch, struct req *r);
/* Take a request without sequences: it has ended already. */
void sch_pass(struct sch *sch, struct req *r);
/* Choose the next step and commit it: blocks are reserved, cached_len and
 * device_len advance. Returns n_row; 0: nothing to do. */
int32_t sch_pick(struct sch *sch, uint64_t now_ns, struct sch_step *st);
/* Every step up to epoch is collected. */
void sch_collected(struct sch *sch, uint64_t epoch);
/* A sampled token of a collected step; finished = 1 ends the sequence. */
void sch_append(struct sch *sch, struct seq *s, uint32_t token, int finished);
/* End a sequence, whatever its state. */
void sch_end(struct sch *sch, struct seq *s);
/* End all of a request with an error (the first one counts). */
void sch_end_req(struct sch *sch, struct req *r, int32_t code);
/* Requests past their deadline end with FDP_E_DEADLINE. */
void sch_expire(struct sch *sch, uint64_t now_ns);
/* Next request of which every sequence has ended, NULL if none. */
struct req *sch_take_ended(struct sch *sch);
/* The sequence that holds a slot in this generation, or NULL. */
struct seq *sch_slot(const struct sch *sch, int32_t slot, uint32_t generation);
/* Is there anything to run or to wait for? */
int sch_busy(const struct sch *sch);
/* Walk everything, kv_check() and req_check() included; panics. */
void sch_check(const struct sch *sch);

#endif
