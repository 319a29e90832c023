/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the admin thread: admin.c receives the questions and answers most;
 * admin_profile.c answers "profile", admin_program.c "program"; admin_answer.c has
 * helpers for answers.
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

/* The mean shape of a step. */
struct adm_shape {
    double tok, row, out; /* tokens, sequences, results */
    double ctx;           /* KV tokens of the sequences, summed */
    double pair;          /* query-key pairs: KV tokens that each token reads, summed */
};
/* Describes operation i and its cost in o: index, kind, layer, N, K, weights, bytes,
 * flops, roofline_us. Returns the roofline bound in ns; 0 if c is NULL. */
double adm_op(const struct worker *w, int32_t i, const struct adm_shape *s,
    const struct peak *c, json_t *o);
/* Only the cost of operation i: bytes and flops. Returns the roofline bound in ns; 0 if c
 * is NULL. */
double adm_op_cost(const struct worker *w, int32_t i, const struct adm_shape *s,
    const struct peak *c, double *ret_bytes, double *ret_flops);
/* Returns c with the device's measured peak, or NULL if it is unknown. With remeasure it
 * always measures, which takes seconds; else only if no measured peak is stored. */
const struct peak *adm_peak(struct worker *w, int remeasure, struct peak *c);
json_t *adm_peak_json(const struct worker *w, const struct peak *c);
/* The KV groups of the program. */
json_t *adm_kv_groups(const struct worker *w);

/* admin_program.c: the operations of a step, and the launches of every capture size. */
json_t *adm_program(struct worker *w, const json_t *q);

/* admin_profile.c: measures steps and waits for the end, at most about q's within_ms. */
json_t *adm_profile(struct worker *w, const json_t *q, int stop_fd);

#endif
