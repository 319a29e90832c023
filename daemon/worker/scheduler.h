/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: which sequences run in the next step, and with how many tokens. Pure
 * policy over struct seq and the block pool; no tensors, no clock of its own, no
 * allocation after sch_new(). Engine thread.
 *
 * Steps overlap: when a step is picked, up to D earlier steps are not collected yet.
 * All lengths are the host's own (device_len counts tokens that exist only on the
 * device), so the scheduler never waits for results.
 *
 * A step is made in this order:
 *
 *   1. decodes: every running sequence whose prompt is computed gets its one
 *      token, in order of admission
 *   2. prompts in one order: first running ones in order of admission, then waiting
 *      ones by (priority, arrival, sample), each moved ahead of those it may bypass
 *   3. tokens left over go to running prompts that got none, then to more tokens for
 *      the prompts of the step, in order of rows
 *
 * Bypassing: a better priority always may. Among equal priorities, a sequence with
 * clearly less work left (by the cost model, without tokens in the prefix cache) may
 * bypass another, as long as the other has waited less than max_overtake_ns and was not
 * bypassed too often. A sequence of another user may only if its own user holds no more
 * rows. The gate sends the requests of users in their fair order, so arrival counts
 * between users; a user who is already served cannot use short prompts to pass one who
 * has waited. The oldest running prompt gets a token in every step in which there is
 * time. The number of waiting sequences examined is bounded.
 *
 * 2 and 3 share the rest of max_tokens and, if there is an ITL target, the rest of the
 * time that the cost model predicts. The time counts while any sequence decodes, and
 * from the moment the step completes a prompt, since the rest of the step would delay
 * its first token (a single long prompt may fill a step). Every fourth step has at
 * least one block of prefill, so that no prompt starves. An automatic target leaves
 * little room for prompts while little work is left to compute, and more when there is
 * more: in proportion to the time of the step's decodes, or the most there may be for a
 * long prompt, from its beginning to its end (SCH_ROOM_LEAST_NS). But prompts always
 * get as many tokens of a step as bring the device to SCH_EFFICIENT percent of its
 * speed; if these take longer, the target is exceeded by that much. In 2, long prompts
 * get at most half. At most max_partial prompts are unfinished after a step, at most
 * max_long of them longer than long_threshold tokens. A sequence that may not go is
 * skipped without holding up others, but none takes blocks before a sequence that was
 * bypassed too often.
 *
 * The samples of a request compute its prompt once. While one of them does, the others
 * wait, and then begin with its blocks (kv_share) and a copy of the last block, so that
 * each has the prompt's last token to compute. A preempted sample can do the same as
 * long as another one holds the blocks.
 *
 * A waiting sequence is admitted when the pool can hold its known tokens in addition to
 * the blocks owed to running ones and keeps the reserves (ignored while nothing runs).
 * It takes blocks for the tokens of each step. The blocks for the rest of its prompt
 * are counted as owed to it, and serve the prefix cache until then. Tokens in the
 * prefix cache are attached instead of computed; if a running prompt is about to
 * compute such tokens, the sequence waits for it.
 *
 * When blocks are scarce, running sequences claim them by priority, then in order of
 * admission: a decode its next block, a prompt the blocks it is owed. A later sequence
 * cannot take claimed blocks, an earlier one can. A prompt then gets as many tokens as
 * its blocks hold. A sequence without a block sits out the step. If the blocks of
 * leaving sequences will not be enough, the sequence of the worst priority, and among
 * these the one admitted last, is preempted: it gives up its blocks and waits. When it
 * is resumed, its tokens that are still cached on the device or the host are attached
 * where that is cheaper than computing them; the rest is computed again. The oldest
 * sequence of the best priority always makes progress and no token is lost. A step in
 * which a running sequence lacked a block admits none.
 *
 * If the first waiting sequence with a better priority than a running one is rejected
 * for lack of blocks or a row, the next step begins by preempting running sequences of
 * strictly worse priority, in the order above and before any has its row: as many as
 * are needed, at most SCH_MAX_URGED in a step, none that was preempted
 * SCH_MAX_PREEMPTED times, and none at all if preempting all of them would not be
 * enough. Until the sequence is admitted, none after it takes blocks. The preempted
 * ones are resumed when there is room: they cannot preempt one of a better priority in
 * turn.
 *
 * Results: for each collected step, call sch_collected(), and sch_append() for its
 * tokens, in either order. sch_pick() may return 0 while steps are in flight although
 * there is work: it needs the blocks that they give back.
 *
 * Every sequence that is not ENDED is in exactly one of the lists waiting, running,
 * leaving (sch_check).
 */
#ifndef FDD_DAEMON_WORKER_SCHEDULER_H
#define FDD_DAEMON_WORKER_SCHEDULER_H

#include <stdint.h>

#include "daemon/common/trace.h"
#include "daemon/worker/cost.h"
#include "daemon/worker/kvcache.h"
#include "daemon/worker/req.h"

struct sch_cfg {
    int32_t max_seqs;         /* rows in a step, state slots */
    int32_t max_tokens;       /* tokens in a step */
    int32_t max_scores;       /* prompt logprobs in a step */
    int32_t chunked;          /* 0: a prompt runs in one step if it fits */
    int32_t max_partial;      /* unfinished prompts after a step; 0: any number */
    int32_t max_long;         /* of these, long ones; 0: no limit */
    int32_t long_threshold;   /* a prompt of more tokens is long; 0: none is */
    int32_t reserve_blocks;   /* blocks that an admission must leave available
                               (kv_cache_ratio) */
    int32_t decode_blocks;    /* blocks granted beyond the prompt at admission */
    int32_t n_penalty;        /* entries of the penalty pool */
    int32_t fcfs;             /* 1: priorities are ignored */
    int32_t unshared;         /* 1: each sample computes its prompt (tests) */
    int32_t n_copy;           /* struct bat_dims */
    int32_t min_split;        /* as in struct bat; the time of a step depends on it */
    uint64_t max_overtake_ns; /* a sequence that has waited this long is not bypassed by
                                 one with less work left; 0: none is bypassed */
    uint64_t itl_target_ns;   /* 0: none; SCH_ITL_AUTO */
    struct pfx_key key;       /* hash key for the blocks of generated tokens */
    struct cost *cost;        /* step times; NULL: none known */
    struct trc *trc;          /* records starts and preemptions; NULL: nowhere */
};

/* Automatic target of the time between two tokens of an answer: as near to 50 ms as a
 * cost model that errs by some percent allows. */
#define SCH_ITL_AUTO UINT64_MAX
#define SCH_ITL_NS   44000000ull
/* Room for prompts in a step in addition to its decodes: the least while at most
 * SCH_WORK_FEW_NS of prompt work is left, the most from SCH_WORK_MANY_NS on. With the
 * most, prompts take SCH_EFFICIENT percent of the step, within the two limits here. In
 * a longer step they would hardly be computed faster, but each first token waits for
 * its end. And answers that begin with few others end with many: were the room then not
 * larger, clients that send the next request when an answer ends would send prompts
 * faster than they are computed. A long prompt has SCH_ROOM_MOST_NS. */
#define SCH_ROOM_LEAST_NS 18000000ull
#define SCH_ROOM_MOST_NS  39000000ull
#define SCH_WORK_FEW_NS   60000000ull
#define SCH_WORK_MANY_NS  120000000ull
/* A prompt that takes longer than this keeps the most room to its end: two such steps
 * are not enough for it, and more steps with the least room would hold it up. */
#define SCH_WORK_LONG_NS (2 * SCH_ROOM_MOST_NS)
/* A step that is cut by time has a multiple of these tokens. GEMMs compute tiles of
 * rows: on an H200 a step of 525 tokens takes 18 ms but one of 512 takes 12.5, and one
 * of 1,050 takes 32 but one of 1,020 takes 26. A multiple of SCH_TILE_BEST is used if
 * that loses at most an eighth of the tokens; else of SCH_TILE, a fifth more if that is
 * within the most room, or a quarter less; else of SCH_TILE_FEW, if that loses at most
 * an eighth. A step smaller than SCH_TILE_BEST is a multiple of SCH_TILE_FEW. */
#define SCH_TILE_BEST 512
#define SCH_TILE      256
#define SCH_TILE_FEW  128
#define SCH_EFFICIENT 80
/* Limit of the prompt tokens that a step gets only to be efficient. */
#define SCH_MAX_EFFICIENT 2048

/* Steps that the cost model learns before sch_itl_target() reads it again. */
#define SCH_ITL_STEPS     64

#define SCH_MAX_URGED     4
#define SCH_MAX_PREEMPTED 8

struct sch_row { /* one row of a step */
    struct seq *seq;
    int32_t first; /* position of its first token */
    int32_t q_len;
    int32_t score_first; /* first position whose successor is scored */
    int32_t n_score;
    int32_t sample; /* 1: a token is sampled from it */
    int32_t fresh;  /* 1: the row's state must be written first */
    int32_t decode; /* 1: its only token is the newest generated one */
};

struct sch_step {
    uint64_t epoch;
    int32_t n_row, n_tok, n_sample, n_score, n_preempted, n_decode;
    int32_t n_urged;       /* of n_preempted, those preempted for a better priority */
    int32_t urged;         /* best priority of these; only better ones are admitted */
    int32_t n_cached;      /* prompt tokens found in the prefix cache instead of
                              computed */
    struct cost_step cost; /* the work of the step, from which the cost model learns */
    struct sch_row *rows;  /* [max_seqs] */
};

struct sch_list {
    struct seq *head, *tail;
    int32_t n;
};

/* Last waiting sequence of a priority: the next one is linked after it. */
struct sch_mark {
    int32_t priority;
    struct seq *tail;
};
#define SCH_MAX_MARK 64 /* priorities with a mark; the others are searched */

/* A waiting sequence for which the pool was short. It is not looked up again before the
 * lacking number of blocks came back, or more of its prefix is cached. */
struct sch_short {
    uint64_t order; /* of its request; order to n_preempted identify the sequence's
                       state */
    int32_t sample, n_tok;
    uint32_t n_preempted;
    int32_t n_h;                 /* hashes that it could be attached by */
    int32_t n_found;             /* of these, hashes that were found */
    int32_t lack;                /* blocks that were lacking; 0: this entry is empty */
    int32_t promised, n_running; /* p->promised and running sequences at that time */
    uint64_t n_back, n_filled;   /* kv's and sch's counters at that time */
};
#define SCH_N_SHORT 64 /* entries, indexed by order */

#define SCH_LOOK \
    64 /* waiting sequences examined for a step, and running prompts that are ordered
          with them */

/* A waiting sequence for which others are to be preempted. */
struct sch_want {
    struct seq *s;    /* NULL: there is none */
    int32_t priority; /* only sequences of a worse one are preempted */
    int32_t rows;     /* rows that must be free */
    int32_t lack;     /* blocks needed, less those that came back since: kv's n_back
                         minus n_back */
    uint64_t n_back;  /* kv's n_back at that time */
};

struct sch_cand { /* a prompt that is a candidate for tokens of the step */
    struct seq *s;
    uint64_t work;   /* predicted time of the rest of its prompt */
    uint64_t whole;  /* of the whole prompt, without the tokens found in the prefix
                        cache */
    int32_t pos;     /* place in the order of admission, then of arrival */
    int32_t served;  /* rows that its user holds */
    uint64_t spent;  /* prompt tokens that its user was given lately */
    uint8_t late;    /* it has waited too long to be bypassed for less work */
    uint8_t skipped; /* it could not be admitted */
};

#define SCH_N_SERVED 1024 /* counters of users' rows and prompt tokens */
/* Half-life of the prompt tokens counted for a user. */
#define SCH_HALF_NS 2000000000u

#define SCH_N_TICK  1024u /* slots of the deadline wheel */

struct sch {
    uint32_t magic;
#define SCH_MAGIC 0x53434844u
    struct sch_cfg cfg;
    struct kv *kv;
    struct sch_list waiting, running, leaving;
    struct sch_mark mark[SCH_MAX_MARK]; /* by priority */
    int32_t n_mark;
    struct sch_short lack[SCH_N_SHORT];
    struct sch_want want;
    int32_t worst;         /* no running sequence has a priority worse than this */
    struct seq *scan;      /* waiting: where the next examination of later sequences
                              starts */
    struct seq **slot_seq; /* [max_seqs] */
    uint32_t *slot_gen;    /* [max_seqs] counts the owners of a slot */
    int32_t *slot_free;    /* stack */
    int32_t n_slot_free;
    int32_t *penalty_free; /* stack of pool entries */
    int32_t n_penalty_free;
    uint64_t epoch;   /* last step picked */
    uint64_t now_ns;  /* time of the pick */
    struct req **dl;  /* [SCH_N_TICK] requests by deadline */
    uint64_t dl_tick; /* all earlier ticks have been examined */
    int32_t n_dl;
    uint64_t itl_ns, itl_learned;        /* the value of sch_itl_target(), and the steps
                                     learned when it was computed */
    int32_t n_starved;                   /* consecutive prefill-starved steps */
    struct req *ended_head, *ended_tail; /* for sch_take_ended() */
    int64_t n_owed;                      /* blocks owed to all running sequences */
    uint64_t n_filled; /* owed blocks that were taken, since the start */
    uint64_t n_preempted;
    uint64_t n_found; /* look-ups of waiting sequences in the prefix cache */
    struct sch_cand cand[2 * SCH_LOOK]; /* candidates, in the order of their turns */
    int32_t served[SCH_N_SERVED];       /* rows by user; users may share a counter */
    uint64_t spent[SCH_N_SERVED];       /* prompt tokens by user, halved at half_ns */
    uint64_t half_ns;
    int32_t n_req_running;    /* requests with at least one row */
    struct kv_hash *hash_buf; /* [stride] a sequence's hashes, contiguous */
    uint32_t *id_buf;         /* [block_size] */
};

/* kv must have cfg->max_seqs slots. Returns NULL if there is no memory. */
struct sch *sch_new(const struct sch_cfg *cfg, struct kv *kv);
struct sch *sch_free(struct sch *sch);

/* Allocate the rows of a step. 0 or -ENOMEM. */
int sch_step_init(struct sch_step *st, int32_t max_seqs);
void sch_step_fini(struct sch_step *st);

/* Add a request: all its sequences wait. */
void sch_add(struct sch *sch, struct req *r);
/* Add a request without sequences: it has already ended. */
void sch_pass(struct sch *sch, struct req *r);
/* Choose the next step and commit it: blocks are reserved, cached_len and device_len
 * advance. Returns n_row; 0: no step is possible now. */
int32_t sch_pick(struct sch *sch, uint64_t now_ns, struct sch_step *st);
/* Upper bound of the time of a step with one decoding row: the ITL target, or more if
 * the automatic target is exceeded for efficiency. The cost model is read again after
 * SCH_ITL_STEPS learned steps. 0: no target, or not known yet. */
uint64_t sch_itl_target(struct sch *sch);
/* All steps up to epoch are collected. */
void sch_collected(struct sch *sch, uint64_t epoch);
/* Add a sampled token of a step that is collected, or is about to be; finished = 1 ends
 * the sequence. It must be running or preempting. */
void sch_append(struct sch *sch, struct seq *s, uint32_t token, int finished);
/* End a sequence in any state. */
void sch_end(struct sch *sch, struct seq *s);
/* End all sequences of a request with an error; the first error counts. FDP_E_NUMERIC:
 * the request's blocks are removed from the prefix cache. */
void sch_end_req(struct sch *sch, struct req *r, int32_t code);
/* End requests past their deadline with FDP_E_DEADLINE. */
void sch_expire(struct sch *sch, uint64_t now_ns);
/* Next request whose sequences have all ended, or NULL. */
struct req *sch_take_ended(struct sch *sch);
/* The sequence that holds a slot in this generation, or NULL. */
struct seq *sch_slot(const struct sch *sch, int32_t slot, uint32_t generation);
/* Is any sequence waiting, running or leaving? */
int sch_busy(const struct sch *sch);
/* Check all invariants, kv_check() and req_check() included; panics on a violation. */
void sch_check(const struct sch *sch);

#endif
