/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the admin thread: admin.c takes the questions, admin_profile.c answers one
 * of them, admin_answer.c has what answers are made of.
 */
#ifndef FDD_DAEMON_WORKER_ADMIN_PRIV_H
#define FDD_DAEMON_WORKER_ADMIN_PRIV_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/worker/peak.h"

struct worker;

void adm_set(json_t *o, const char *key, json_t *v);
json_t *adm_int(uint64_t v);
json_t *adm_error(const char *text);

/* Means of steps. */
struct adm_shape {
    double tok, row, out; /* tokens, sequences, results */
    double ctx;           /* KV tokens of the sequences, */
    double pair;          /* and as seen by each of the tokens */
};
/* Name operation i and its cost in o: index, kind, layer, N, K, weights, bytes,
 * flops, roofline_us. Returns the roofline bound in ns, 0 where c is NULL. */
double adm_op(const struct worker *w, int32_t i, const struct adm_shape *s,
    const struct peak *c, json_t *o);
/* The cost alone: bytes, and the roofline bound in ns. */
double adm_op_cost(const struct worker *w, int32_t i, const struct adm_shape *s,
    const struct peak *c, double *ret_bytes, double *ret_flops);
/* The device's measured peak in c, or NULL where it is unknown. May take seconds;
 * always does with remeasure. */
const struct peak *adm_peak(struct worker *w, int remeasure, struct peak *c);
json_t *adm_peak_json(const struct worker *w, const struct peak *c);
/* The KV groups of the program. */
json_t *adm_kv_groups(const struct worker *w);

/* admin_program.c: operations of a step, and launches of every size of the capture list. */
json_t *adm_program(struct worker *w, const json_t *q);

/* admin_profile.c: measure steps and wait until that is done, at most about within_ms of q. */
json_t *adm_profile(struct worker *w, const json_t *q, int stop_fd);

#endif
