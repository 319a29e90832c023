/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Cost model: a step's time as a linear function of its contents, fitted online to
 * the times of collected steps. The scheduler cuts a prefill to the time left with
 * it and weighs a copy against a computation.
 * Engine thread; no allocation.
 *
 *   ns = c0 + c1 * tokens + c2 * context + c3 * pairs + c4 * max(0, tokens - COST_KNEE)
 *
 * with no c negative. Up to the knee a GPU's step takes the time of reading the
 * weights, beyond it that of the arithmetic: two slopes. On a CPU, where the knee is
 * at a few tokens, c4 is 0. The coefficients are fitted
 * by least squares with forgetting, on the relative error, so that a short
 * step counts as much as a long one. A coefficient
 * that the last steps do not determine stays. A step far longer than predicted (the
 * processor was taken away) or far shorter has a small weight.
 * Nothing is predicted before COST_MIN_STEPS steps were learned.
 */
#ifndef FDD_DAEMON_WORKER_COST_H
#define FDD_DAEMON_WORKER_COST_H

#include <stdint.h>

#define COST_N         5
#define COST_MIN_STEPS 32
#define COST_KNEE      128

struct cost_step {  /* of one step */
    int32_t n_tok;  /* tokens, not padded */
    int64_t n_ctx;  /* KV tokens its decoding rows read */
    int64_t n_pair; /* query-key pairs of its prefill chunks */
};

struct cost {
    double c[COST_N];                    /* us per unit of cost.c's scale */
    double A[COST_N][COST_N], b[COST_N]; /* normal equations */
    uint64_t n;                          /* steps learned */
    double copy_ns;        /* of one block between host and device, 0 unknown */
    struct cost_step most; /* the largest counts learned, each by itself, */
    uint64_t longest_ns;   /* and the longest time */
    double scale;          /* tests: predictions are wrong by this factor */
};

/* What tokens of a prompt add that n copies of the model divide: to each 1 / n of them. */
void cost_add_prompt(struct cost_step *s, int32_t n_tok, int64_t n_pair, int32_t n);
void cost_init(struct cost *c);
void cost_learn(struct cost *c, const struct cost_step *s, uint64_t ns);
/* Predicted ns, 0: unknown. Never decreases when a count grows. */
uint64_t cost_predict(const struct cost *c, const struct cost_step *s);
/* What a step may take, for the gate's hang check; 0: no step was learned.
 * A line through few small steps does not extrapolate: a step with larger counts than
 * any before is expected to take longer than the longest in proportion. */
uint64_t cost_expect(const struct cost *c, const struct cost_step *s);
/* The fewest prompt tokens of a step at which the device reaches pct percent of its
 * throughput with many: fixed costs are then 100 - pct percent of the step's time.
 * Between 1 and most; 0: unknown. */
int32_t cost_efficient(const struct cost *c, int32_t pct, int32_t most);
/* Predict from the steps learned so far, however few they are. */
void cost_trust(struct cost *c);
/* A batch of n blocks took ns to copy. */
void cost_learn_copy(struct cost *c, int32_t n, uint64_t ns);

#endif
