/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Intake: request rings to journal. Rules V1 to V8 of the protocol live
 * here: each shared word is loaded once, each record and each blob is copied
 * once and only the copy is looked at; nothing outside the copy follows a
 * number the client wrote.
 *
 * Structural lies (impossible cursors) end the session; a bad request is
 * answered by ERROR with the parameter (FDP_D_*) and the offending value;
 * ITK_ERRORS_PER_S of those in a second end the session.
 */
#ifndef FDD_DAEMON_GATE_INTAKE_H
#define FDD_DAEMON_GATE_INTAKE_H

#include <stddef.h>
#include <stdint.h>

#include "libclient/fdproto.h"

struct gate;
struct ses;
struct jreq;

#define ITK_BATCH        32u         /* records of one session per round */
#define ITK_BATCH_BYTES  (1u << 20)  /* after so many copied bytes, too */
#define ITK_ERRORS_PER_S 16u
#define ITK_TOKENS_EACH  1024u       /* sched.max_queued_tokens = 0, see its help */

struct itk_err {
    int32_t code;      /* enum fdp_status */
    uint32_t detail;   /* enum fdp_detail */
    uint32_t arg;
    uint32_t retry_ms; /* of class RETRY; 0: nothing better is known here */
};

/* What a request is checked against. vocab and max_model_len 0: not known. */
struct itk_limits {
    uint32_t vocab, max_model_len;
    int32_t max_logprobs;  /* -1: not offered */
    uint32_t default_max_new;
    int trusted;
    int has_tokenizer; /* 1, 0, -1 not known */
};

/* What the items hold, in tokens and bytes. */
struct itk_items {
    uint32_t n_prompt_ids, prompt_text_bytes;
    int has_ids, has_text;
    uint32_t n_prior, n_stop, n_stop_ids;
};

/* Take up to ITK_BATCH records of a session. Returns how many. */
int itk_poll(struct gate *g, struct ses *s, uint64_t now_ns);

/* Scalars of a copied record (op, flags, ranges). 0 or 1 with *ret_err. */
int itk_check_req(const struct fdp_req *req, const struct itk_limits *lim,
    struct itk_err *ret_err);
/* Items of a copied blob: structure, counts, UTF-8. 0 or 1 with *ret_err. */
int itk_check_items(const struct fdp_req *req, const unsigned char *blob,
    uint32_t blob_bytes, struct itk_items *ret_items, struct itk_err *ret_err);
/* Ids against the vocabulary, lengths against the model. */
int itk_check_model(const struct fdp_req *req, const unsigned char *blob,
    uint32_t blob_bytes, const struct itk_limits *lim, struct itk_err *ret_err);
/* The limits in force for a session. */
void itk_limits(const struct gate *g, const struct ses *s, struct itk_limits *ret);
/* Alternatives that a request may ask for now. */
uint32_t itk_max_logprobs(const struct gate *g);

#endif
