/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The ingress stage: turns records of the gate into requests that the engine can run. One
 * thread; it owns the request pool and is the only stage that allocates.
 *
 *   in    the down ring; QUE_FREED from egress
 *   out   QUE_ADD, QUE_CANCEL to the engine; QUE_OPEN, QUE_REFUSE, QUE_FAIL,
 *         QUE_ANSWER to egress
 *
 *         QUE_TEXT to encode, and back
 *
 * Texts of one slice are tokenized here, longer ones by the thread of encode.h, so that a
 * long text delays no other request. The blocks of prompts, whether text or ids, are
 * hashed (prefix.h) ING_HASH_SLICE ids at a time, round robin. Checks that need the model are made here, not in the gate: ids against the
 * vocabulary, lengths in tokens, whether there is a tokenizer, whether this build
 * supports the request.
 */
#ifndef FDD_DAEMON_WORKER_INGRESS_H
#define FDD_DAEMON_WORKER_INGRESS_H

#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/common/link.h"
#include "daemon/worker/encode.h"
#include "daemon/worker/queue.h"
#include "daemon/worker/req.h"

#define ING_HASH_SLICE 16384 /* ids hashed per poll */
#define ING_RECORDS    64    /* records of the gate per poll */

struct files;
struct tok;

/* Values of parameters that a request does not set. */
struct ing_defaults {
    float temperature, top_p, min_p, repetition_penalty;
    uint32_t top_k;
};

struct ing_cfg {
    struct lnk *lnk;
    struct que *q_eng;          /* to the engine: at least 2 slots per request */
    struct que *q_egr;          /* to egress */
    struct que *q_freed;        /* from egress */
    struct que *q_text, *q_ids; /* to and from encode; NULL: all texts are tokenized here */
    const struct tok *tok;      /* NULL: ids only */
    const struct files *files; /* NULL: none */
    uint32_t max_reqs;
    int32_t vocab, max_len;
    int32_t n_eos;
    int32_t eos[8];
    int32_t block_size; /* of the KV cache */
    int32_t prefix;     /* 0: no prefix cache, nothing is hashed */
    struct pfx_key key;
    /* A request of more than rope_from tokens in all has other RoPE frequencies, which
     * with rope_each depend on its greatest length; so its prefix hashes differ from
     * those of shorter requests. 0: all requests use the same frequencies. */
    int32_t rope_from, rope_each;
    int32_t n_penalty; /* entries of the penalty pool, 0: penalties are refused */
    struct ing_defaults dflt;
    struct cnt_worker *cnt;
    int64_t max_logprobs, default_max_tokens, max_waiting_ms; /* as in struct
                                                                 ing_limits */
};

/* Limits that may change while ingress runs. */
struct ing_limits {
    int64_t max_logprobs; /* -1: logprobs are not offered */
    int64_t default_max_tokens, max_waiting_ms;
};

struct ingress {
    uint32_t magic;
#define ING_MAGIC 0x494e4731u
    struct ing_cfg cfg;
    struct req_pool pool;
    struct req_list bans, hashes; /* requests in progress, served in turn */
    struct encode texts;
    int bans_turn; /* bans came last, not a text */
    uint64_t now_ns;
    int draining;             /* LNK_T_DRAIN came */
    uint32_t n_asked, n_told; /* LNK_T_RELOAD records received; answered by
                                 ing_set_limits() */
    uint32_t n_taken;         /* answers copied to cfg */
    struct ing_limits limits; /* of the last answer */
};

struct ingress *ing_new(const struct ing_cfg *cfg); /* NULL: out of memory */
struct ingress *ing_free(struct ingress *g);
int ing_poll(struct ingress *g, uint64_t now_ns);
/* LNK_T_RELOAD came and another thread must supply new limits. Later records wait for
 * them. */
int ing_reloading(const struct ingress *g);
/* For that thread: waits until limits are needed, ing_wake() is called or ns have passed;
 * returns whether limits are needed. ing_set_limits() then supplies them. */
int ing_wait_reload(const struct ingress *g, uint64_t ns);
void ing_wake(struct ingress *g);
void ing_set_limits(struct ingress *g, const struct ing_limits *l);
/* Requests in the pool that egress has not released. */
uint32_t ing_open(const struct ingress *g);

/* ---- ingress_check.c: checks of a request ---------------------------------------- */

struct ing_bad {
    int32_t code;
    uint32_t detail, arg, limit, item;
};

/* Sets the error, with the limit that arg exceeded; returns -1. */
static inline int
ing_over(struct ing_bad *b, int32_t code, uint32_t detail, uint64_t arg, uint64_t limit)
{
    *b = (struct ing_bad){ .code = code,
        .detail = detail,
        .arg = arg > UINT32_MAX ? UINT32_MAX : (uint32_t)arg,
        .limit = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit };
    return -1;
}
/* Sets an error without a limit; returns -1. */
static inline int
ing_bad(struct ing_bad *b, int32_t code, uint32_t detail, uint64_t arg)
{
    return ing_over(b, code, detail, arg, 0);
}
/* Reads the items of r's blob into r. Returns 0, or -1 with *ret_bad. */
int ing_items(const struct ing_cfg *c, struct req *r, struct ing_bad *ret_bad);
/* The prompt is known (r->ids, n_prompt): checks lengths, makes the sequences and
 * prepares the use of the prefix cache. Returns 1 if PRIOR_IDS already are the whole
 * output (*ret_done is FDK_DONE_*), 0 if there is something to run, -1 with *ret_bad. */
int ing_prompt(const struct ing_cfg *c, struct req *r, int32_t *ret_done,
    struct ing_bad *ret_bad);

/* ---- ingress_rules.c: items that become rules ------------------------------------- */

/* Reads an item that is a rule; any other type is an error. Returns 0, or -1 with
 * *ret_bad. */
int ing_rule(const struct ing_cfg *c, struct req *r, const struct fdp_item *it,
    struct ing_bad *ret_bad);
/* Bans the next of r->words, as tokenized with and without a space before it. r->enc must
 * be set. Returns 0, or -1 with *ret_bad. */
int ing_ban_word(struct ingress *g, struct req *r, struct ing_bad *ret_bad);

#endif
