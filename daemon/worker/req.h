/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and their sequences, from the gate's record to the terminal one.
 *
 * Ownership: ingress takes a struct req from the pool, fills it, opens it at egress
 * (QUE_OPEN) and hands it to the engine (QUE_ADD). If the client wants its prompt back or
 * sends PRIOR_IDS, egress hands it over when it has handled them. The engine sends tokens
 * and finally QUE_END to egress, after which it never touches the request again; egress
 * sends the terminal record and returns the request (QUE_FREED) to ingress, which frees
 * it. Between QUE_ADD and QUE_END engine and egress both hold it: the first part of struct
 * req is constant then, the engine writes only its fields and struct seq, egress only its
 * fields and struct req_choice. Pushing a message publishes all earlier writes.
 *
 * Messages that may refer to a request that has ended (cancel, stop string) carry
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

/* Limit of the bytes of logprobs that best_of keeps; ingress rejects a request above
 * it. */
#define REQ_HELD_BYTES ((size_t)64 << 20)

/* Buffer for text of a sample that may have to be held back; see egress.c. */
#define REQ_TEXT_BYTES 1024u

struct fil_file;
struct tok_enc;
struct tok_span;

struct seq {
    struct req *req;
    struct seq *prev, *next; /* in one of the scheduler's lists */
    uint16_t sample;
    uint8_t state;       /* enum req_st */
    uint8_t fresh;       /* the row's state is not on the device yet */
    int32_t slot;        /* state slot and index of its block tables, -1: none */
    uint32_t generation; /* of the slot while held */
    int32_t n_tok, cached_len, device_len, max_len;
    int32_t n_scored; /* prompt logprobs of positions below this have been sent */
    uint32_t n_preempted;
    uint64_t last_epoch;  /* epoch of the last step launched with it */
    uint64_t ids_epoch;   /* epoch of the step that computed the last of the request's
                             ids, 0: none since it was admitted */
    uint32_t *out;        /* ids from position req->n_ids on; entries below
                             n_tok never change */
    struct kv_hash *hash; /* hashes of blocks from index req->n_hash on */
    int32_t n_hash;       /* number of blocks with a hash, the request's included */
    int32_t n_registered; /* leading blocks that are indexed in the prefix cache */
    int32_t penalty;      /* entry of the penalty pool while it holds a slot, else -1 */
    int32_t slide_pos;    /* position from which on a block may leave the window */
    int32_t n_want;       /* places in its tables that it was admitted for, 0: none */
    int32_t n_owed;       /* blocks that it still lacks for these places */
    int32_t n_may;        /* while blocks are scarce: how many it may take in this step */
    int32_t n_found;      /* tokens found in the prefix cache at the last lookup while
                             waiting, -1: never looked up */
    uint64_t t_seen_ns;   /* when the scheduler first considered it, 0: not yet */
    uint32_t n_passed;    /* steps in which it was bypassed while waiting */
};

/* One sample as egress sees it. */
struct req_choice {
    struct dtk dtk;
    struct fin fin;
    unsigned char *text; /* [REQ_TEXT_BYTES] text not sent yet, or NULL */
    uint32_t n_text;
    uint32_t text_off;         /* bytes sent, PRIOR_IDS included */
    uint32_t n_got, n_sent;    /* output tokens received and sent, PRIOR_IDS included */
    uint8_t closed;            /* CHOICE_END has been sent */
    struct fdp_choice_end end; /* how its last token ended it */
    uint16_t shown;            /* the sample's number in records */
    /* done to n_lp: best_of only */
    int32_t done;           /* FDK_DONE_* of the last token */
    uint32_t n_all;         /* number of tokens */
    double sum;             /* sum of the tokens' logprobs */
    struct fdp_logprob *lp; /* [tokens][req.n_lp], or NULL */
    uint32_t n_lp;          /* logprobs that each token has, at most req.n_lp */
    uint32_t *run;          /* [repetition.max_len] run[i]: how many of the last tokens in
                               a row equal the token 1 + i places before; or NULL */
    uint64_t t_last_ns;     /* time of its last token, 0: none */
    struct rls_reason reason;
};

struct req {
    uint32_t magic;
#define REQ_MAGIC 0x52455153u
    /* -- constant after QUE_OPEN -------------------------------------------- */
    uint32_t idx, serial; /* index in the pool; number of owners it has had */
    uint64_t id;          /* the gate's id */
    struct fdp_req p;
    uint64_t user, t_submit_ns;
    uint64_t deadline_queue_ns, deadline_total_ns;
    uint64_t *started; /* in the link: tells the gate that it has started; may be NULL */
    uint64_t order;    /* number in the order of arrival */
    uint32_t *ids;     /* [n_ids] prompt, then PRIOR_IDS */
    int32_t n_prompt, n_ids;
    int32_t block_size;       /* tokens of a hashed block; 0: no prefix caching */
    struct kv_hash hash_root; /* pfx_root() of user, salt and rope; zero: no caching */
    struct kv_hash *hash;     /* [n_hash] full blocks of ids */
    int32_t n_hash;
    int32_t penalized; /* 1: needs an entry of the pool of penalty counts and rules */
    int32_t min_len, max_len; /* tokens, prompt included */
    int32_t n_seq;
    int32_t n_shown; /* samples that are returned */
    int32_t held;    /* 1: best_of draws more samples; nothing is sent before all
                        have ended */
    int32_t n_lp;    /* with held: logprobs kept per token, 0: none */
    int32_t n_stop;
    int32_t stop_ids[FDK_MAX_STOP_IDS];
    struct fin_set *stops;            /* or NULL */
    struct fdp_repetition repetition; /* count 0: none */
    const struct fil_file *file;      /* FDP_OP_FILE: the file */
    struct fdp_file_ask file_ask;     /* FDP_OP_FILE: the requested range */
    struct rls *rules;                /* or NULL */
    struct seq *seqs;                 /* [n_seq] */
    struct req_choice *choices;       /* [n_seq] */
    void *body;                       /* the allocation that holds seqs and choices */
    /* -- the stage that has it ------------------------------------------------- */
    struct req *next; /* in the free list, or in a struct req_list of that stage */
    /* -- ingress ------------------------------------------------------------- */
    unsigned char *blob;
    uint32_t blob_got;
    const char *text; /* in blob */
    uint32_t n_text;
    const struct tok_span *spans; /* in blob */
    uint32_t n_spans;
    struct tok_span *words; /* [FDP_MAX_BAD] bad words in blob, or NULL */
    uint32_t n_words, word_at;
    int32_t n_hashed; /* entries of hash[] computed so far */
    struct tok_enc *enc;
    int32_t cancel; /* FDP_E_* of a cancellation, 0; atomic: engine and egress read it */
    uint8_t where;  /* enum req_where */
    uint8_t cancel_sent;
    /* -- engine ---------------------------------------------------------------- */
    int32_t n_live __attribute__((aligned(64))); /* sequences not ENDED */
    int32_t code;                                /* FDP_E_* of the first error, 0 */
    uint32_t detail;                             /* FDP_D_* of that error */
    int32_t n_slot;                              /* sequences that hold a row */
    struct req *ended_next;                      /* next ended request without QUE_END */
    struct req *dl_prev, *dl_next;               /* in the scheduler's deadline list dl */
    uint32_t dl;                                 /* 1 + the list's index; 0: in no list */
    uint32_t n_preempted;
    uint64_t t_start_ns; /* time when first scheduled, 0: not yet */
    uint32_t n_cached;   /* prompt tokens, at most n_prompt, that sample 0 found in
                            the prefix cache when it was first admitted */
    /* -- egress ------------------------------------------------------------------ */
    uint64_t t_first_ns __attribute__((aligned(64)));
    int32_t n_open;    /* samples without CHOICE_END */
    uint32_t job_at;   /* how far a long answer has been sent */
    uint8_t begun;     /* all records that precede its output are sent */
    uint8_t replays;   /* PRIOR_IDS are being replayed, job_at of them so far, or were */
    uint8_t looked_at; /* each token is examined on its own: egr_looks_at_each() */
    int32_t ended;     /* FDK_DONE_* of a request that ends without running */
};

/* The stage that has the request, as far as ingress knows. */
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
    uint32_t n_hash;   /* size of hash, a power of two */
    struct req **hash; /* open addressing by id */
    uint64_t order;
};

int req_pool_init(struct req_pool *rp, uint32_t n); /* 0 or -ENOMEM */
void req_pool_fini(struct req_pool *rp);
/* Take a request, zeroed except for id, idx, serial and order; NULL: none is free. */
struct req *req_get(struct req_pool *rp, uint64_t id);
/* Give a request back and free its allocations. */
void req_put(struct req_pool *rp, struct req *r);
struct req *req_find(const struct req_pool *rp, uint64_t id);

/* Allocate sequences, choices and room for the hashes, which req_hash_step() fills;
 * ids, limits, block_size and hash_root must be set. Returns 0 or -ENOMEM. */
int req_make_seqs(struct req *r);
/* Hash up to max_blocks more blocks of ids. Returns 1 when all are hashed. */
int req_hash_step(struct req *r, const struct pfx_key *key, int32_t max_blocks);

/* ---- lists of requests in progress, in turn: ingress, encode, egress ------------------ */

struct req_list {
    struct req *head, *tail; /* by req.next */
};

static inline void
req_append(struct req_list *l, struct req *r)
{
    r->next = NULL;
    if (l->tail != NULL)
        l->tail->next = r;
    else
        l->head = r;
    l->tail = r;
}

/* Takes the first; the list must not be empty. */
static inline struct req *
req_first(struct req_list *l)
{
    struct req *r = l->head;

    l->head = r->next;
    if (l->head == NULL)
        l->tail = NULL;
    r->next = NULL;
    return r;
}

/* ---- any owner ------------------------------------------------------------------ */

/* Token at position pos < n_tok. */
uint32_t req_token(const struct seq *s, int32_t pos);
/* Hash of block i < s->n_hash. */
const struct kv_hash *req_block_hash(const struct seq *s, int32_t i);
/* The error for a request that ingress, encode or egress still works on: its client
 * cancelled it or disconnected, or its deadline has passed. 0: none. */
int32_t req_given_up(const struct req *r, uint64_t now_ns);
/* Is the prompt sent back? */
int req_echoes(const struct req *r);
/* Does egress hand the request to the engine, after it sent the prompt back or replayed
 * PRIOR_IDS? Else ingress does. */
int req_via_egress(const struct req *r);
/* Do PRIOR_IDS end with a stop id that ended the output? Before min_len it does not. */
int req_has_stopped(const struct req *r);
/* Are there prompt tokens (or output to recompute) left to compute, more than one
 * token? */
int req_is_prefill(const struct seq *s);
/* Are prompt logprobs the only thing to compute for the request? */
int req_is_scored(const struct req *r);
/* Does this sequence deliver prompt logprobs? Only sample 0 does. */
int req_wants_scores(const struct seq *s);
/* Panics unless the engine's fields and the sequences are consistent. */
void req_check(const struct req *r);

#endif
