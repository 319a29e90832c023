/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The ingress stage: records of the gate to requests the engine can run.
 * One thread; it owns the request pool and is the only stage that
 * allocates.
 *
 *   in    the down ring; QUE_FREED from egress
 *   out   QUE_ADD, QUE_CANCEL to the engine; QUE_OPEN, QUE_REFUSE, QUE_FAIL,
 *         QUE_ANSWER to egress
 *
 * Texts are tokenized in slices of ING_SLICE bytes, round robin over the
 * requests that have one, so that a long text delays others by a slice. So
 * are the blocks of a prompt hashed (prefix.h), ING_HASH_SLICE ids at a
 * time, whether it came as text or as ids.
 * What the gate cannot know is checked here: ids against the vocabulary,
 * lengths in tokens, whether there is a tokenizer, what this build can do.
 */
#ifndef FDD_DAEMON_WORKER_INGRESS_H
#define FDD_DAEMON_WORKER_INGRESS_H

#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/common/link.h"
#include "daemon/worker/queue.h"
#include "daemon/worker/req.h"

#define ING_SLICE      (16u << 10) /* bytes of text per poll */
#define ING_HASH_SLICE 16384       /* ids hashed per poll */
#define ING_RECORDS    64          /* records of the gate per poll */
#define ING_ENCODERS   4           /* kept for the next text */

struct files;
struct tok;

/* What is taken for what a request does not set. */
struct ing_defaults {
    float temperature, top_p, min_p, repetition_penalty;
    uint32_t top_k;
};

struct ing_cfg {
    struct lnk *lnk;
    struct que *q_eng;         /* to the engine: 2 slots per request at least */
    struct que *q_egr;         /* to egress */
    struct que *q_freed;       /* from egress */
    const struct tok *tok;     /* NULL: ids only */
    const struct files *files; /* NULL: none */
    uint32_t max_reqs;
    int32_t vocab, max_len;
    int32_t n_eos;
    int32_t eos[8];
    int32_t block_size; /* of the KV cache */
    int32_t prefix;     /* 0: no prefix cache, nothing is hashed */
    struct pfx_key key;
    /* Keys of a request that may have more than rope_from tokens are rotated in a way of
     * their own, with rope_each in one by its greatest length; 0: all in the same way. */
    int32_t rope_from, rope_each;
    int32_t n_penalty; /* entries of the penalty pool, 0: penalties are refused */
    struct ing_defaults dflt;
    struct cnt_worker *cnt;
    int64_t max_logprobs, default_max_tokens, max_waiting_ms; /* struct ing_limits */
};

/* What may change while it runs. */
struct ing_limits {
    int64_t max_logprobs; /* -1: not offered */
    int64_t default_max_tokens, max_waiting_ms;
};

struct ing_list {
    struct req *head, *tail;
};

struct ingress {
    uint32_t magic;
#define ING_MAGIC 0x494e4731u
    struct ing_cfg cfg;
    struct req_pool pool;
    struct ing_list texts, hashes; /* in progress, by turns */
    struct tok_enc *enc[ING_ENCODERS];
    int32_t n_enc;
    uint64_t now_ns;
    int draining;             /* LNK_T_DRAIN came */
    uint32_t n_asked, n_told; /* LNK_T_RELOAD that came, and that were answered */
    uint32_t n_taken;         /* answers in cfg */
    struct ing_limits limits; /* of the last answer */
};

struct ingress *ing_new(const struct ing_cfg *cfg); /* NULL: no memory */
struct ingress *ing_free(struct ingress *g);
int ing_poll(struct ingress *g, uint64_t now_ns);
/* LNK_T_RELOAD came: another thread owes limits. Records behind it wait for them. */
int ing_reloading(const struct ingress *g);
/* That thread: wait until it is so, or ing_wake() is called, or ns have passed, and
 * whether it is; then give the limits. */
int ing_wait_reload(const struct ingress *g, uint64_t ns);
void ing_wake(struct ingress *g);
void ing_set_limits(struct ingress *g, const struct ing_limits *l);
/* Requests that have not come back yet. */
uint32_t ing_open(const struct ingress *g);

/* ---- ingress_check.c: what a request asks for ------------------------------------ */

struct ing_bad {
    int32_t code;
    uint32_t detail, arg, limit, item;
};

/* Set the error, with the bound that arg passed; returns -1. */
static inline int
ing_over(struct ing_bad *b, int32_t code, uint32_t detail, uint64_t arg, uint64_t limit)
{
    *b = (struct ing_bad){ .code = code,
        .detail = detail,
        .arg = arg > UINT32_MAX ? UINT32_MAX : (uint32_t)arg,
        .limit = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit };
    return -1;
}
/* The same without a bound. */
static inline int
ing_bad(struct ing_bad *b, int32_t code, uint32_t detail, uint64_t arg)
{
    return ing_over(b, code, detail, arg, 0);
}
/* Walk the blob's items into r. 0, or *ret_bad. */
int ing_items(const struct ing_cfg *c, struct req *r, struct ing_bad *ret_bad);
/* The prompt is known (r->ids, n_prompt): limits, stop ids, sequences, whether
 * it is cached.
 * Returns 1 when PRIOR_IDS already are the whole output (*ret_done is
 * FDK_DONE_*), 0 when there is something to run, -1 with *ret_bad. */
int ing_prompt(const struct ing_cfg *c, struct req *r, int32_t *ret_done,
    struct ing_bad *ret_bad);

/* ---- ingress_rules.c: items that become rules ------------------------------------- */

/* One of them, or an item that nothing knows. 0, or -1 with *ret_bad. */
int ing_rule(const struct ing_cfg *c, struct req *r, const struct fdp_item *it,
    struct ing_bad *ret_bad);
/* The next of r->words, as the tokenizer has it with and without a space before it, is
 * banned. r->enc is there. 0, or -1 with *ret_bad. */
int ing_ban_word(struct ingress *g, struct req *r, struct ing_bad *ret_bad);

#endif
