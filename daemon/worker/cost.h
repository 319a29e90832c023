/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a step takes: a linear model of what is in it, fitted on line to
 * the times of the steps that were collected, so that the scheduler can cut
 * a prefill to the time there is and weigh a copy against a computation.
 * Engine thread; no allocation.
 *
 *   ns = c0 + c1 * tokens + c2 * context + c3 * pairs + c4 * max(0, tokens - COST_KNEE)
 *
 * with no c negative. Up to the knee a GPU's step takes the time of reading the
 * weights, beyond it that of the arithmetic: two slopes. On a CPU, where the knee is
 * at a few tokens, c4 is 0. The coefficients are fitted
 * by least squares with forgetting, on the relative error, so that a short
 * step counts as much as a long one. What the last steps say nothing about
 * stays as it was. A step that seems far longer than predicted (somebody
 * else had the processor) or far shorter hardly counts.
 * Nothing is predicted before COST_MIN_STEPS steps were learned.
 */
#ifndef FDD_DAEMON_WORKER_COST_H
#define FDD_DAEMON_WORKER_COST_H

#include <stdint.h>

#define COST_N 5
#define COST_MIN_STEPS 32
#define COST_KNEE 128

struct cost_step {           /* of one step */
    int32_t n_tok;           /* tokens, not padded */
    int64_t n_ctx;           /* KV tokens its decoding rows read */
    int64_t n_pair;          /* query-key pairs of its prefill chunks */
};

struct cost {
    double c[COST_N];        /* us per unit of cost.c's scale */
    double A[COST_N][COST_N], b[COST_N]; /* normal equations */
    uint64_t n;              /* steps learned */
    double copy_ns;          /* of one block between host and device, 0 unknown */
    struct cost_step most;   /* the largest counts learned, each by itself, */
    uint64_t longest_ns;     /* and the longest time */
    double scale;            /* tests: what is predicted is wrong by this factor */
};

void cost_init(struct cost *c);
void cost_learn(struct cost *c, const struct cost_step *s, uint64_t ns);
/* Predicted ns, 0: unknown. Never decreases when a count grows. */
uint64_t cost_predict(const struct cost *c, const struct cost_step *s);
/* What a step may take, for whoever wonders whether it hangs; 0: no step was learned.
 * Of a step with larger counts than any before a line through few small steps says
 * nothing: it is expected to take longer than the longest by as much as its counts
 * are larger. */
uint64_t cost_expect(const struct cost *c, const struct cost_step *s);
/* The fewest prompt tokens of a step at which the device reaches pct percent of the
 * speed that it has with many: what such a step takes beyond its tokens' share is then
 * 100 - pct percent of its time. Between 1 and most; 0: unknown. */
int32_t cost_efficient(const struct cost *c, int32_t pct, int32_t most);
/* What was learned tells enough to predict from, however few steps it was. */
void cost_trust(struct cost *c);
/* A batch of n blocks took ns to copy. */
void cost_learn_copy(struct cost *c, int32_t n, uint64_t ns);

#endif
