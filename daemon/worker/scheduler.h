/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: which sequences run in the next step, and with how many
 * tokens. Pure policy over struct seq and the block pool; no tensors, no
 * clock of its own, no allocation after sch_new(). Engine thread.
 *
 * Steps overlap: up to D steps that were picked are not collected yet when
 * the next is. All lengths are the host's own (device_len counts tokens that
 * exist only on the device), so nothing is ever waited for.
 *
 * A step is made in this order:
 *
 *   1. decodes: every running sequence whose prompt is computed gets its one
 *      token, in the order of admission
 *   2. prompts in one order: those under way in that of admission, then waiting
 *      ones by (priority, arrival, sample), each as far ahead as it may pass
 *   3. what is left goes to prompts under way that got nothing, then to the
 *      chunks again, in the order of rows
 *
 * Who passes whom: a better priority always does. Of equal ones the one with
 * clearly less work left does, by the cost model and without what the prefix
 * cache has, as long as the other has not waited for max_overtake_ns and was
 * not passed over too often; between users only where its own user holds no
 * more rows. The gate sends users' requests in their fair order, so that
 * arrival counts between them; a user who is served already does not gain by
 * short prompts what another has waited for. The oldest prompt under way has a
 * token of every step in which there is time. A look at who waits is bounded.
 *
 * 2 and 3 share what is left of max_tokens and, with a target for the time
 * between tokens, of the time the cost model predicts: while somebody decodes,
 * and from the moment the step completes a prompt, whose first token the rest
 * of the step would hold back (one long prompt alone may fill a step). At
 * least one block's worth of prefill goes every fourth step, so that no prompt
 * starves. An automatic target leaves prompts little room while little is
 * left to compute, and more with it or for a long prompt, from its beginning to its end
 * (SCH_ROOM_LEAST_NS), but they always have as
 * many tokens of a step as bring the device to SCH_EFFICIENT percent of its
 * speed: where these take longer, the target is that much later. In 2
 * long prompts get half of it at most. At most max_partial prompts are
 * unfinished after a step, at most max_long of them longer than
 * long_threshold tokens; who may not go is skipped, not waited for, but
 * none takes blocks before a sequence that was bypassed too often.
 *
 * The samples of a request compute its prompt once: while one of them does, the others
 * wait, and then begin with its blocks (kv_share) and a copy of the last, so that each
 * has the prompt's last token to compute. One that was preempted does the same for as long
 * as another holds them.
 *
 * A waiting sequence is admitted when the pool can hold its known tokens
 * in addition to what running ones are still owed and leaves the reserves (ignored
 * while nothing runs). It takes blocks for the tokens of each step; those for the
 * rest of its prompt are counted as owed to it, and serve the prefix cache
 * till then. What the
 * prefix cache has of it is attached instead of computed, and what a running
 * prompt is about to compute is waited for.
 *
 * Where blocks lack, those of the best priority, then those admitted first, have what
 * there is: a decode its next block, a prompt what it is owed, so that none behind it
 * takes that, while those before it may. A prompt has as many tokens then as its blocks
 * hold. Another sits out the step; where what
 * leaving ones give back will not do, the sequence of the worst priority, of
 * these the one admitted last, is preempted: it gives up its blocks and waits.
 * What of it is still cached on the device or the host when it comes back is
 * attached, where that is cheaper than computing it, the rest is computed
 * again. The oldest of the best priority always makes progress and no token is
 * lost. A step in which a running sequence lacked a block admits none.
 *
 * Where the first waiting sequence of a better priority than a running one's is
 * refused for blocks or for a row, the next step begins with preempting those of
 * strictly worse priority, in the order above and before any has its row: as many
 * as are needed, SCH_MAX_URGED in a step, and none that was preempted
 * SCH_MAX_PREEMPTED times, nor any where all of them would not do. Till it goes
 * no sequence behind it takes blocks. What was preempted for it comes back when there
 * is room: it can preempt none of a better priority in turn.
 *
 * Results: for each collected step sch_collected() and sch_append() for its
 * tokens, in either order. sch_pick() may return 0 while steps are in flight
 * though there is work: it needs what they give back.
 *
 * Every sequence that is not ENDED is in exactly one of the lists waiting,
 * running, leaving (sch_check).
 */
#ifndef FDD_DAEMON_WORKER_SCHEDULER_H
#define FDD_DAEMON_WORKER_SCHEDULER_H

#include <stdint.h>

#include "daemon/common/trace.h"
#include "daemon/worker/cost.h"
#include "daemon/worker/kvcache.h"
#include "daemon/worker/req.h"

struct sch_cfg {
    int32_t max_seqs;       /* rows in a step, state slots */
    int32_t max_tokens;     /* tokens in a step */
    int32_t max_scores;     /* prompt logprobs in a step */
    int32_t chunked;        /* 0: a prompt runs in one step where it can */
    int32_t max_partial;    /* unfinished prompts after a step; 0: any number */
    int32_t max_long;       /* of these, long ones; 0: any number */
    int32_t long_threshold; /* a prompt of more tokens is long; 0: none */
    int32_t reserve_blocks; /* an admission must leave them available (kv_cache_ratio) */
    int32_t decode_blocks;  /* granted beyond the prompt at admission */
    int32_t n_penalty;      /* entries of the penalty pool */
    int32_t fcfs;           /* 1: priorities are ignored */
    int32_t unshared;       /* 1: each sample computes its prompt (tests) */
    int32_t n_copy;         /* struct bat_dims */
    int32_t min_split;      /* struct bat: what steps take depends on it */
    uint64_t max_overtake_ns; /* one that waited so long is passed by none of less work
                                left; 0: none is */
    uint64_t itl_target_ns;   /* 0: none; SCH_ITL_AUTO */
    struct pfx_key key;       /* for the blocks of generated tokens */
    struct cost *cost;        /* step times; NULL: none known */
    struct trc *trc;          /* starts and preemptions go there; NULL: nowhere */
};

/* Between two tokens of an answer, as near to 50 ms as a cost model off by some
 * percent allows. */
#define SCH_ITL_AUTO UINT64_MAX
#define SCH_ITL_NS   44000000ull
/* Room for prompts beyond the decodes of a step: the least while no more than
 * SCH_WORK_FEW_NS of prompts is left to compute, the most from SCH_WORK_MANY_NS on. It is
 * the room that is bounded, not the end of the step: prompts that start with few
 * decodes end with many, and would come faster than they are served. */
#define SCH_ROOM_LEAST_NS 18000000ull
#define SCH_ROOM_MOST_NS  39000000ull
#define SCH_WORK_FEW_NS   60000000ull
#define SCH_WORK_MANY_NS  120000000ull
/* A prompt that takes longer than this by itself keeps the most room to its end: two
 * steps of that do not do, and more of the least would hold it up. */
#define SCH_WORK_LONG_NS (2 * SCH_ROOM_MOST_NS)
/* A step that the time cuts has a multiple of these tokens: GEMMs compute tiles of rows,
 * and on an H200 a step of 525 tokens takes 18 ms where one of 512 takes 12.5, of 1,050
 * 32 where one of 1,020 takes 26. Of the first, where that is an eighth less at most;
 * else of the next, a fifth more where that is within the most room, or a quarter less.
 * A step smaller than the first is a multiple of the last. */
#define SCH_TILE_BEST 512
#define SCH_TILE      256
#define SCH_TILE_FEW  128
#define SCH_EFFICIENT 80
/* Nor does a prompt's share of a step grow beyond this to be efficient. */
#define SCH_MAX_EFFICIENT 2048

/* Steps that the cost model learns before sch_itl_target() asks it again. */
#define SCH_ITL_STEPS     64

#define SCH_MAX_URGED     4
#define SCH_MAX_PREEMPTED 8

struct sch_row { /* one row of a step */
    struct seq *seq;
    int32_t first; /* position of its first token */
    int32_t q_len;
    int32_t score_first; /* first position whose successor is scored */
    int32_t n_score;
    int32_t sample; /* 1: its next token is sampled */
    int32_t fresh;  /* 1: the row's state must be written first */
    int32_t decode; /* 1: its one token is a generated one, the newest */
};

struct sch_step {
    uint64_t epoch;
    int32_t n_row, n_tok, n_sample, n_score, n_preempted, n_decode;
    int32_t n_urged;       /* of n_preempted, for one of a better priority */
    int32_t urged;         /* best priority of these; only better ones are admitted */
    int32_t n_cached;      /* prompt tokens attached instead of computed */
    struct cost_step cost; /* what it will take, to learn from */
    struct sch_row *rows;  /* [max_seqs] */
};

struct sch_list {
    struct seq *head, *tail;
    int32_t n;
};

/* Last waiting sequence of a priority: where the next one belongs. */
struct sch_mark {
    int32_t priority;
    struct seq *tail;
};
#define SCH_MAX_MARK 64 /* priorities with a mark; the others are searched */

/* A waiting sequence that found the pool short: it is not looked up again before
 * as many blocks came back, or its prefix grew. */
struct sch_short {
    uint64_t order; /* of its request; with the next four, who it is */
    int32_t sample, n_tok;
    uint32_t n_preempted;
    int32_t n_h;                 /* hashes it could be attached by */
    int32_t n_found;             /* of these were there */
    int32_t lack;                /* blocks; 0: nothing is remembered */
    int32_t promised, n_running; /* then */
    uint64_t n_back, n_filled;   /* kv's and sch's, then */
};
#define SCH_N_SHORT 64 /* remembered, by order */

#define SCH_LOOK \
    64 /* waiting sequences examined for a step, and prompts
                                under way that are put in order with them */

/* A waiting sequence that others are to be preempted for. */
struct sch_want {
    struct seq *s;    /* NULL: there is none */
    int32_t priority; /* those of a worse one go */
    int32_t rows;     /* that must be free */
    int32_t lack;     /* blocks, beyond those that came back since: kv's n_back, */
    uint64_t n_back;  /* then */
};

struct sch_cand { /* a prompt that would have tokens of the step */
    struct seq *s;
    uint64_t work;   /* left of it */
    uint64_t whole;  /* with what is computed, not what the prefix cache had */
    int32_t pos;     /* by admission, then by arrival */
    int32_t served;  /* rows that its user holds */
    uint64_t spent;  /* prompt tokens that its user had lately */
    uint8_t late;    /* it waited so long that none of less work passes it */
    uint8_t skipped; /* it could not go */
};

#define SCH_N_SERVED 1024 /* counters of users' rows and prompt tokens */
/* Prompt tokens that a user had count half after this long. */
#define SCH_HALF_NS 2000000000u

#define SCH_N_TICK  1024u /* of the wheel of deadlines */

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
    int32_t worst;         /* no running sequence has a worse priority */
    struct seq *scan;      /* waiting: where the next look into the depth starts */
    struct seq **slot_seq; /* [max_seqs] */
    uint32_t *slot_gen;    /* [max_seqs] counts the owners of a slot */
    int32_t *slot_free;    /* stack */
    int32_t n_slot_free;
    int32_t *penalty_free; /* stack of pool entries */
    int32_t n_penalty_free;
    uint64_t epoch;   /* last step picked */
    uint64_t now_ns;  /* when it was */
    struct req **dl;  /* [SCH_N_TICK] requests by deadline */
    uint64_t dl_tick; /* ticks before are looked at */
    int32_t n_dl;
    uint64_t itl_ns, itl_learned; /* sch_itl_target(), and the steps learned then */
    int32_t n_starved;            /* steps in a row whose prefill the time cut short */
    struct req *ended_head, *ended_tail; /* for sch_take_ended() */
    int64_t n_owed;                      /* of all running sequences */
    uint64_t n_filled; /* owed blocks that were taken, since the start */
    uint64_t n_preempted;
    uint64_t n_found; /* look-ups of waiting sequences in the prefix cache */
    struct sch_cand cand[2 * SCH_LOOK]; /* in the order in which they have their turn */
    int32_t served[SCH_N_SERVED];       /* rows by user; some users share a counter */
    uint64_t spent[SCH_N_SERVED];       /* prompt tokens by user, halved at half_ns */
    uint64_t half_ns;
    int32_t n_req_running;    /* requests with at least one row */
    struct kv_hash *hash_buf; /* [stride] a sequence's hashes in one piece */
    uint32_t *id_buf;         /* [block_size] */
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
/* What a step with one decoding row takes at most, by the target for the time
 * between tokens, and by the cost model as it was SCH_ITL_STEPS learned steps ago at most;
 * 0: none, or not known yet. */
uint64_t sch_itl_target(struct sch *sch);
/* Every step up to epoch is collected. */
void sch_collected(struct sch *sch, uint64_t epoch);
/* A sampled token of a collected step, or one that is about to be; finished =
 * 1 ends the sequence. It must be running or preempting. */
void sch_append(struct sch *sch, struct seq *s, uint32_t token, int finished);
/* End a sequence, whatever its state. */
void sch_end(struct sch *sch, struct seq *s);
/* End all of a request with an error (the first one counts). FDP_E_NUMERIC: its blocks leave
 * the prefix cache. */
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
