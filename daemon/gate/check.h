/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a request well formed? Rules of the protocol for records and items that
 * were copied out of a client's memory, and of the model for ids and lengths.
 * Pure functions: nothing here knows a session.
 *
 * A refusal is ERROR with the parameter (FDP_D_*) and the offending value.
 */
#ifndef FDD_DAEMON_GATE_CHECK_H
#define FDD_DAEMON_GATE_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "libclient/fdproto.h"

struct lnk_ready;
struct par;

#define CHK_CHAR_MAX 4u /* bytes of a character */

struct chk_err {
    int32_t code;    /* enum fdp_status */
    uint32_t detail; /* enum fdp_detail */
    uint32_t arg;
    uint32_t limit;    /* the bound that arg passed, 0: none */
    uint32_t item;     /* type of the item, 0: the record */
    uint32_t retry_ms; /* of class RETRY; 0: nothing better is known here */
};

/* What a request is checked against. vocab and max_model_len 0: not known. */
struct chk_limits {
    uint32_t vocab, max_model_len;
    int32_t max_logprobs; /* -1: not offered */
    uint32_t default_max_new;
    int trusted;
    int has_tokenizer; /* 1, 0, -1 not known */
};

/* What the items hold, in tokens and bytes. */
struct chk_items {
    uint32_t n_prompt_ids, prompt_text_bytes;
    uint8_t has_ids, has_text;
    uint32_t n_prior;
    uint32_t most_id;         /* the largest id in any item, */
    uint32_t most[FDP_IT__N]; /* and by type; 0: none */
};

/* A blob that comes in pieces. Zeroed at first. */
struct chk_scan {
    struct chk_items items;
    uint64_t at;     /* of the item that is not complete yet */
    uint64_t looked; /* bytes of it looked at: text that is valid, or ids */
    uint32_t most;   /* the largest of these ids */
    uint32_t text_at, spans_at, n_spans; /* where they begin in the blob */
    uint16_t n[FDP_IT__N];               /* items by type */
};

/* Set the error; returns 1. */
int chk_fail(struct chk_err *e, int code, unsigned detail, uint64_t arg);
/* The same with the bound that arg passed. */
int chk_over(struct chk_err *e, int code, unsigned detail, uint64_t arg, uint64_t limit);
/* The record that tells it, without retry_after_ms. */
struct fdp_error chk_tell(const struct chk_err *e);
/* 1 << FDP_IT_*: the items that are taken under these parameters. */
uint64_t chk_offered(const struct par *par);
/* The limits in force; ready NULL: no model is loaded. */
void chk_limits(const struct par *par, const struct lnk_ready *ready, int trusted,
    struct chk_limits *ret);

/* Scalars of a copied record (op, flags, ranges). 0, or 1 with *ret_err. */
int
chk_req(const struct fdp_req *req, const struct chk_limits *lim, struct chk_err *ret_err);
/* Items of req->len bytes, of which have bytes are there: structure, counts,
 * UTF-8. Each call goes on where the last one stopped. 0: no error so far, and
 * none at all once have is req->len; 1: *ret_err. */
int chk_scan(struct chk_scan *sc, const struct fdp_req *req, const unsigned char *blob,
    uint32_t have, struct chk_err *ret_err);
/* Ids against the vocabulary, lengths against the model: of items that have passed
 * chk_scan(), which looked at each id, so that this takes no time. An id that is too
 * large is told by the largest. */
int chk_model(const struct fdp_req *req, const struct chk_items *items,
    const struct chk_limits *lim, struct chk_err *ret_err);
/* Tokens that the request may come to, but for a prompt given as text: max_new counts the
 * ids of PRIOR_IDS. */
uint64_t chk_tokens(const struct fdp_req *req, const struct chk_items *items);

#endif
