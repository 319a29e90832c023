/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and their sequences, from the gate's record to the terminal one.
 *
 * Ownership: ingress takes a struct req from the pool, fills it, opens it at
 * egress (QUE_OPEN) and hands it to the engine (QUE_ADD), or egress does after it
 * has sent the prompt back. The engine sends tokens and finally QUE_END to egress,
 * after which it never touches the request again; egress sends the terminal record
 * and returns the request (QUE_FREED) to ingress, which frees it. Between QUE_ADD
 * and QUE_END engine and egress both hold it: the first part of struct req is
 * constant then, the engine writes only its fields and struct seq, egress only its
 * fields and struct req_choice. A message's push publishes what was written before it.
 *
 * References across threads that may be late (cancel, stop string) carry
 * {idx, serial} instead of a pointer.
 *
 * A request owns n sequences, one per sample. Lengths of a sequence, in
 * tokens of prompt + PRIOR_IDS + output:
 *
 *   cached_len <= device_len <= max_len     and    n_tok <= device_len
 *
 *   cached_len  KV is computed (or issued in a launched step) below it
 *   n_tok       known to the host
 *   device_len  issued: n_tok + tokens that exist only on the device
 */
#ifndef FDD_DAEMON_WORKER_REQ_H
#define FDD_DAEMON_WORKER_REQ_H

#include <stdint.h>

#include "daemon/common/link.h"
#include "daemon/worker/detok.h"
#include "daemon/worker/finish.h"
#include "daemon/worker/prefix.h"
#include "daemon/worker/rules.h"
#include "kernels/fdk.h"
#include "libclient/fdproto.h"

enum req_st {
#define REQ_ST(name, text) REQ_ST_##name,
#include "daemon/tbl/req_states.h"
#undef REQ_ST
    REQ_ST__N
};

/* Of withheld logprobs; what would be more is refused. */
#define REQ_HELD_BYTES ((size_t)64 << 20)

/* Text of a sample that may have to be held back; see egress.c. */
#define REQ_TEXT_BYTES 1024u

struct fil_file;
struct tok_enc;
struct tok_span;

struct seq {
    struct req *req;
    struct seq *prev, *next; /* one of the scheduler's lists */
    uint16_t sample;
    uint8_t state;       /* enum req_st */
    uint8_t fresh;       /* the row's state is not on the device yet */
    int32_t slot;        /* state slot and block table, -1 */
    uint32_t generation; /* of the slot while held */
    int32_t n_tok, cached_len, device_len, max_len;
    int32_t n_scored; /* prompt logprobs of positions below are sent */
    uint32_t n_preempted;
    uint64_t last_epoch;  /* last step launched with it */
    uint64_t ids_epoch;   /* step that computed the last of the request's ids, 0: none
                                  since it was admitted */
    uint32_t *out;        /* ids from position req->n_ids on; entries below
                                  n_tok never change */
    struct kv_hash *hash; /* of blocks from number req->n_hash on */
    int32_t n_hash;       /* blocks with a hash, the request's included */
    int32_t n_registered; /* leading blocks of the table kv knows by hash */
    int32_t penalty;      /* entry of the pool while it holds a slot, -1 */
    int32_t slide_pos;    /* no block goes back before that position is computed */
    int32_t n_want;       /* places of its tables that it was admitted with, 0: none */
    int32_t n_owed;       /* blocks that it lacks of these */
    int32_t n_may;        /* of these there are in this step, where blocks are scarce */
    int32_t n_found;      /* tokens that the prefix cache had of it when it was last
                                  looked up while waiting, -1: never */
    uint64_t t_seen_ns;   /* when the scheduler first had it in view, 0 */
    uint32_t n_passed;    /* steps in which it was bypassed while waiting */
};

/* One sample as egress sees it. */
struct req_choice {
    struct dtk dtk;
    struct fin fin;
    unsigned char *text; /* [REQ_TEXT_BYTES] not sent yet, or NULL */
    uint32_t n_text;
    uint32_t text_off;         /* bytes sent, PRIOR_IDS included */
    uint32_t n_got, n_sent;    /* output tokens, PRIOR_IDS included */
    uint8_t closed;            /* CHOICE_END is sent */
    struct fdp_choice_end end; /* how its last token ended it */
    uint16_t shown;            /* its number in records */
    /* of best_of: */
    int32_t done;           /* FDK_DONE_* of its last token, */
    uint32_t n_all;         /* tokens, */
    double sum;             /* of their logprobs */
    struct fdp_logprob *lp; /* [tokens][n_lp of the request], or NULL, */
    uint32_t n_lp;          /* of which each token has that many */
    uint32_t *run;          /* [repetition.max_len]: tokens in a row that equal the one
                                  1 + i before them; or NULL */
    uint64_t t_last_ns;     /* of its last token, 0 */
    struct rls_reason reason;
};

struct req {
    uint32_t magic;
#define REQ_MAGIC 0x52455153u
    /* -- constant after QUE_OPEN -------------------------------------------- */
    uint32_t idx, serial; /* place in the pool; counts its owners */
    uint64_t id;          /* the gate's */
    struct fdp_req p;
    uint64_t user, t_submit_ns;
    uint64_t deadline_queue_ns, deadline_total_ns;
    uint64_t *started; /* where the gate sees that it has; may be NULL */
    uint64_t order;    /* of arrival */
    uint32_t *ids;     /* [n_ids] prompt, then PRIOR_IDS */
    int32_t n_prompt, n_ids;
    int32_t block_size;       /* tokens of a hashed block; 0: not cached */
    struct kv_hash hash_root; /* user and salt; zero: not cached */
    struct kv_hash *hash;     /* [n_hash] full blocks of ids */
    int32_t n_hash;
    int32_t penalized; /* 1: needs an entry of the pool of penalty counts and rules */
    int32_t min_len, max_len; /* absolute */
    int32_t n_seq;
    int32_t n_shown; /* samples that are returned */
    int32_t held; /* 1: more are drawn (best_of), and nothing is sent before all ended */
    int32_t n_lp; /* logprobs of a token that are kept till then, 0: none */
    int32_t n_stop;
    int32_t stop_ids[FDK_MAX_STOP_IDS];
    struct fin_set *stops;            /* or NULL */
    struct fdp_repetition repetition; /* count 0: none */
    const struct fil_file *file;      /* of FDP_OP_FILE, */
    struct fdp_file_ask file_ask;     /* and what of it */
    struct rls *rules;                /* or NULL */
    struct seq *seqs;                 /* [n_seq] */
    struct req_choice *choices;       /* [n_seq] */
    void *body;                       /* one allocation behind the two above */
    /* -- ingress ------------------------------------------------------------- */
    struct req *ing_next; /* free list, or texts in progress */
    unsigned char *blob;
    uint32_t blob_got;
    const char *text; /* in blob */
    uint32_t n_text;
    const struct tok_span *spans; /* in blob */
    uint32_t n_spans;
    struct tok_span *words; /* [FDP_MAX_BAD] bad words in blob, or NULL */
    uint32_t n_words, word_at;
    int32_t n_hashed; /* of hash[] are computed */
    struct tok_enc *enc;
    int32_t cancel; /* FDP_E_* asked for, 0; atomic, the others look at it */
    uint8_t where;  /* enum req_where */
    uint8_t cancel_sent;
    /* -- engine ---------------------------------------------------------------- */
    int32_t n_live __attribute__((aligned(64))); /* sequences not ENDED */
    int32_t code;                                /* first error, 0 */
    uint32_t detail;                             /* FDP_D_* of it */
    int32_t n_slot;                              /* sequences that hold a row */
    struct req *ended_next;                      /* ended, QUE_END not sent */
    struct req *dl_prev, *dl_next;               /* the scheduler's list of a tick, */
    uint32_t dl;                                 /* counted from 1; 0: in none */
    uint32_t n_preempted;
    uint64_t t_start_ns; /* first scheduled, 0 */
    uint32_t n_cached;   /* prompt tokens, at most n_prompt, that sample 0 found in
                                  the prefix cache when it was first admitted */
    /* -- egress ------------------------------------------------------------------ */
    uint64_t t_first_ns __attribute__((aligned(64)));
    int32_t n_open;    /* samples without CHOICE_END */
    uint32_t job_at;   /* progress of a long answer */
    uint8_t begun;     /* all that comes before its output is sent */
    uint8_t looked_at; /* each of its tokens is: egr_looks_at_each() */
    int32_t ended;     /* FDK_DONE_* of its end where nothing is to run */
    struct req *job_next;
};

/* Where ingress last saw it. */
enum req_where {
    REQ_IN_FREE,
    REQ_IN_BLOB,
    REQ_IN_TEXT,
    REQ_IN_HASH,
    REQ_IN_ENGINE,
    REQ_IN_EGRESS
};

const char *req_state_name(enum req_st st);

/* ---- pool: ingress only ----------------------------------------------------- */

struct req_pool {
    struct req *reqs;
    struct req *free;
    uint32_t n, n_free;
    uint32_t n_hash;   /* power of two */
    struct req **hash; /* open addressing by id */
    uint64_t order;
};

int req_pool_init(struct req_pool *rp, uint32_t n); /* -ENOMEM */
void req_pool_fini(struct req_pool *rp);
/* A zeroed request with idx, serial and order; NULL: none is free. */
struct req *req_get(struct req_pool *rp, uint64_t id);
/* Frees all that hangs off the request. */
void req_put(struct req_pool *rp, struct req *r);
struct req *req_find(const struct req_pool *rp, uint64_t id);

/* Sequences and choices, when ids, limits, block_size and hash_root are set;
 * room for the hashes too, which req_hash_step() fills. -ENOMEM. */
int req_make_seqs(struct req *r);
/* Hash up to max_blocks more blocks of ids. 1: all are done. */
int req_hash_step(struct req *r, const struct pfx_key *key, int32_t max_blocks);

/* ---- any owner ------------------------------------------------------------------ */

/* Token at position pos < n_tok. */
uint32_t req_token(const struct seq *s, int32_t pos);
/* Hash of block i < s->n_hash. */
const struct kv_hash *req_block_hash(const struct seq *s, int32_t i);
/* Does it want its prompt back? Egress hands it to the engine then, when all is sent. */
int req_echoes(const struct req *r);
/* Prompt (or recomputed output) still to be computed, besides one token. */
int req_is_prefill(const struct seq *s);
/* Are prompt logprobs all that is to be computed of it, and are there any? */
int req_is_scored(const struct req *r);
/* Does this sequence deliver prompt logprobs? Only sample 0 does. */
int req_wants_scores(const struct seq *s);
/* Engine's part and sequences agree; panics where not. */
void req_check(const struct req *r);

#endif
