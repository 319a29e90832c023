/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Cost model: a step's time as a linear function of its contents, fitted online to the
 * times of collected steps. With it the scheduler cuts a prefill to the time left in a
 * step, and decides whether to copy KV blocks back or to recompute them. Engine thread;
 * no allocation.
 *
 *   ns = c0 + c1 * tokens + c2 * context + c3 * pairs + c4 * max(0, tokens - COST_KNEE)
 *
 * where no c is negative. Up to the knee a GPU's step is bound by reading the weights,
 * beyond it by arithmetic: hence two slopes. On a CPU, where the knee is at a few tokens,
 * c4 is 0. The coefficients are fitted by least squares with forgetting, on the relative
 * error, so that a short step counts as much as a long one. A coefficient that recent
 * steps do not determine keeps its value. A step far longer than predicted (the process
 * lost the processor) or far shorter has a small weight. Nothing is predicted before
 * COST_MIN_STEPS steps were learned.
 */
#ifndef FDD_DAEMON_WORKER_COST_H
#define FDD_DAEMON_WORKER_COST_H

#include <stdint.h>

#define COST_N         5
#define COST_MIN_STEPS 32
#define COST_KNEE      128

struct cost_step {  /* contents of one step */
    int32_t n_tok;  /* tokens, not padded */
    int64_t n_ctx;  /* KV tokens its decoding rows read */
    int64_t n_pair; /* query-key pairs of its prefill chunks */
};

struct cost {
    double c[COST_N];                    /* us per unit of cost.c's scaled counts */
    double A[COST_N][COST_N], b[COST_N]; /* normal equations */
    uint64_t n;                          /* steps learned */
    double copy_ns;        /* time to copy one block between host and device, 0:
                              unknown */
    struct cost_step most; /* largest value learned of each count separately */
    uint64_t longest_ns;   /* longest time learned */
    double scale;          /* for tests: predictions are multiplied by this */
};

/* Adds to s one copy's share (1 / n) of n_tok prompt tokens that n copies of the model
 * divide. */
void cost_add_prompt(struct cost_step *s, int32_t n_tok, int64_t n_pair, int32_t n);
void cost_init(struct cost *c);
void cost_learn(struct cost *c, const struct cost_step *s, uint64_t ns);
/* Predicted ns, 0: unknown. Never decreases when a count grows. */
uint64_t cost_predict(const struct cost *c, const struct cost_step *s);
/* Upper estimate of a step's ns, for the gate's hang check; 0: no step was learned. A fit
 * through few small steps does not extrapolate: a step with larger counts than all before
 * is expected to take the longest time so far, scaled in proportion. */
uint64_t cost_expect(const struct cost *c, const struct cost_step *s);
/* The fewest prompt tokens of a step at which the device reaches pct percent of its
 * throughput with many: fixed costs are then 100 - pct percent of the step's time.
 * Between 1 and most; 0: unknown. */
int32_t cost_efficient(const struct cost *c, int32_t pct, int32_t most);
/* Allows predictions from now on, even with fewer than COST_MIN_STEPS steps learned. */
void cost_trust(struct cost *c);
/* Learns that a batch of n blocks took ns to copy. */
void cost_learn_copy(struct cost *c, int32_t n, uint64_t ns);

#endif
