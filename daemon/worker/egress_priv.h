/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of egress offer one another: egress.c (records, tokens, ends) and
 * egress_answer.c (long answers, by turns).
 */
#ifndef FDD_DAEMON_WORKER_EGRESS_PRIV_H
#define FDD_DAEMON_WORKER_EGRESS_PRIV_H

#include <stddef.h>

#include "daemon/worker/egress.h"

/* ---- egress.c -------------------------------------------------------------------- */

/* The up ring is full: wait for the gate. */
void egr_wait_room(const struct egress *g);
/* The payload of a record, to be filled before the next call; waits for room. */
void *egr_claim(struct egress *g, uint64_t id, unsigned type, unsigned sample,
    uint32_t position, size_t len);
void egr_ids(struct egress *g, uint64_t id, unsigned type, unsigned sample,
    uint32_t position, const uint32_t *ids, uint32_t n);
/* Send all of a sample's text but the last keep bytes; quiet: count them only. */
void egr_text_send(struct egress *g, const struct req *r, unsigned sample, uint32_t keep,
    int quiet);
/* Append; what overflows is sent, but for enough to cut a stop string off. */
void egr_text_add(struct egress *g, const struct req *r, unsigned sample,
    const unsigned char *b, size_t n, int quiet);
/* DONE. */
void egr_done(struct egress *g, const struct req *r);
/* The request goes back to ingress; nothing may touch it after. */
void egr_release(struct egress *g, struct req *r);

/* ---- egress_answer.c -------------------------------------------------------------- */

/* The answer of an op that needs no engine: now, or by turns. */
void egr_answer(struct egress *g, struct req *r);
/* A piece of the long answer whose turn it is, where records of others do not have to
 * wait behind it for long; idle: there was nothing else to do. Returns the work done. */
int egr_job(struct egress *g, int idle);

#endif
