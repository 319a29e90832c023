/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks whether a request is well formed: the protocol's rules for records and items
 * that were copied out of a client's memory, and the model's limits for ids and lengths.
 * Pure functions, independent of sessions.
 *
 * A rejection is an ERROR with the parameter (FDP_D_*) and the offending value.
 */
#ifndef FDD_DAEMON_GATE_CHECK_H
#define FDD_DAEMON_GATE_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "libclient/fdproto.h"

struct lnk_ready;
struct par;

#define CHK_CHAR_MAX 4u /* most bytes of a UTF-8 character */

struct chk_err {
    int32_t code;    /* enum fdp_status */
    uint32_t detail; /* enum fdp_detail */
    uint32_t arg;
    uint32_t limit;    /* the bound that arg exceeds, 0: none */
    uint32_t item;     /* type of the item that contains it, 0: the record */
    uint32_t retry_ms; /* retry_after_ms, for codes of class RETRY; 0: not known here */
};

/* Limits that a request is checked against. vocab and max_model_len 0: not known. */
struct chk_limits {
    uint32_t vocab, max_model_len;
    int32_t max_logprobs; /* limit of logprobs; -1: not offered */
    uint32_t default_max_new;
    int trusted;
    int has_tokenizer; /* 1: yes, 0: no, -1: not known */
};

/* Contents of the items, in tokens and bytes. */
struct chk_items {
    uint32_t n_prompt_ids, prompt_text_bytes;
    uint8_t has_ids, has_text;
    uint32_t n_prior;
    uint32_t most_id;         /* largest id in all items, */
    uint32_t most[FDP_IT__N]; /* and in the items of each type; 0: none */
};

/* State of the check of a blob that arrives in pieces. Zeroed at first. */
struct chk_scan {
    struct chk_items items;
    uint64_t at;     /* offset of the first item that is not complete yet */
    uint64_t looked; /* bytes of that item that were checked: valid text, or ids */
    uint32_t most;   /* largest id among them */
    uint32_t text_at, spans_at, n_spans; /* offsets in the blob, number of spans */
    uint16_t n[FDP_IT__N];               /* items seen so far, by type */
};

/* Sets *e, with no bound and no item. Returns 1. */
int chk_fail(struct chk_err *e, int code, unsigned detail, uint64_t arg);
/* As chk_fail(), with the bound that arg exceeds. */
int chk_over(struct chk_err *e, int code, unsigned detail, uint64_t arg, uint64_t limit);
/* The payload of the ERROR record, without retry_after_ms. */
struct fdp_error chk_tell(const struct chk_err *e);
/* Bits 1 << FDP_IT_*: the items that are accepted under these parameters. */
uint64_t chk_offered(const struct par *par);
/* Fills in the limits in force; ready NULL: no model is loaded. */
void chk_limits(const struct par *par, const struct lnk_ready *ready, int trusted,
    struct chk_limits *ret);

/* Checks the scalars of a copied record (op, flags, ranges). Returns 0, or 1 with
 * *ret_err set. */
int
chk_req(const struct fdp_req *req, const struct chk_limits *lim, struct chk_err *ret_err);
/* Checks items of req->len bytes, the first `have` of which have arrived: structure,
 * counts, UTF-8. Each call continues where the last one stopped. Returns 0: no error so
 * far, and none at all once have is req->len; 1: *ret_err is set. */
int chk_scan(struct chk_scan *sc, const struct fdp_req *req, const unsigned char *blob,
    uint32_t have, struct chk_err *ret_err);
/* Checks ids against the vocabulary and lengths against the model, for items that have
 * passed chk_scan(). That looked at each id, so this takes no time. An error for ids too
 * large reports the largest one. */
int chk_model(const struct fdp_req *req, const struct chk_items *items,
    const struct chk_limits *lim, struct chk_err *ret_err);
/* Most tokens that the request may have: its prompt ids plus max_new, which includes the
 * ids of PRIOR_IDS. The tokens of a prompt given as text are not counted. */
uint64_t chk_tokens(const struct fdp_req *req, const struct chk_items *items);

#endif
