/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that are being tokenized, a slice at a time, in turn.
 *
 * A slice costs about what its bytes cost, but some steps of a text cannot be cut: its
 * check for UTF-8, some normalizers, the end of a very long pretoken, the copy of its
 * ids. For a text of 16 MB each takes up to some 100 ms. So there are two lists of texts:
 *
 *   ingress's own     texts of one slice (ENC_SLICE), which most prompts are
 *   thread encode's   longer texts; enc_poll() takes them from a queue and returns them
 *                     through another, so that a long text delays no other request
 *
 * A struct encode belongs to one thread.
 */
#ifndef FDD_DAEMON_WORKER_ENCODE_H
#define FDD_DAEMON_WORKER_ENCODE_H

#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/worker/queue.h"
#include "daemon/worker/req.h"

#define ENC_SLICE (16u << 10) /* bytes of text per poll */
#define ENC_IDLE  4           /* idle encoders kept for later texts */
/* An encoder's memory grows with its longest text; one of a longer text is not kept. */
#define ENC_KEEP (1u << 20)

struct tok;
struct tok_enc;

struct enc_cfg {
    const struct tok *tok; /* NULL: no text comes */
    int32_t vocab;
    struct cnt_worker *cnt;
    struct que *in, *out; /* QUE_TEXT from and to ingress; NULL: enc_poll() is not used */
};

struct encode {
    struct enc_cfg cfg;
    struct req_list texts;
    struct tok_enc *idle[ENC_IDLE];
    int32_t n_idle;
};

/* A text that has ended. */
struct enc_done {
    struct req *r;
    /* 0: its ids are in r->ids, before the prior ids. -EILSEQ: not UTF-8; -E2BIG: too
     * long for the tokenizer; -ERANGE: arg is an id that is not in the model's vocabulary;
     * -ECANCELED: arg is what req_given_up() said; -ENOMEM */
    int32_t rc;
    uint32_t arg;
};

void enc_init(struct encode *e, const struct enc_cfg *cfg);
/* Frees the encoders; texts are dropped. */
void enc_fini(struct encode *e);
/* Queues r for its text. */
static inline void
enc_put(struct encode *e, struct req *r)
{
    req_append(&e->texts, r);
}
/* The encoder that r->enc is for other texts of r; 0 or -ENOMEM. */
int enc_take(struct encode *e, struct req *r);
/* Takes r's encoder back, if it has one. */
void enc_drop(struct encode *e, struct req *r);
/* Is a text queued? */
static inline int
enc_is_busy(const struct encode *e)
{
    return e->texts.head != NULL;
}
/* Encodes about max_bytes of the text whose turn it is. Returns their cost in bytes;
 * ret->r is NULL unless the text has ended. enc_is_busy() must be true. */
uint32_t
enc_slice(struct encode *e, uint64_t now_ns, uint32_t max_bytes, struct enc_done *ret);
/* One slice of the texts that came through cfg.in. Returns the number of texts that came
 * or ended, plus 1 if there is more to do: 0 means that the thread may sleep. *ret_ended
 * is 1 if a text was put into cfg.out. */
int enc_poll(struct encode *e, uint64_t now_ns, int *ret_ended);

#endif
