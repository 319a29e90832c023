/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference for a random workload. Requests are drawn from a finite set of contents,
 * and the answer to a request depends only on its content. So each content is computed
 * once, as the only request, by the simple loop (no run-ahead, graphs or prefix cache,
 * and a pool that never runs out). A request that ran in any batch composition or chunks,
 * preempted or resumed, must get the same ids, the same text and the same bits of every
 * logprob.
 */
#ifndef FDD_TESTS_SIM_REF_H
#define FDD_TESTS_SIM_REF_H

#include "tests/sim/sim.h"

/* Features that contents may use. */
#define REF_SAMPLES 1u /* n up to SIM_MAX_N */
#define REF_SCORES  2u /* prompt logprobs */
#define REF_PENALTY 4u
#define REF_RANDOM  8u  /* temperature, top_k, top_p, min_p */
#define REF_SHARED  16u /* groups of prompts with a common beginning */
#define REF_TEXT    32u /* text and stop strings (null model) */
#define REF_STOP    64u /* stop ids, eos, min_new */
#define REF_RULES \
    128u /* biases, allowed and banned ids, chosen logprobs, reasoning; only together with
          * REF_PENALTY, since they share its pool */
#define REF_ALL 255u

struct ref_cfg {
    unsigned ask; /* REF_* */
    uint32_t n_content;
    uint32_t max_prompt, max_new;
    uint64_t seed;
    /* fills in content i; r is fresh; or NULL */
    void (*fill)(struct sim_req *r, uint32_t i);
};
struct ref;

/* Makes a reference for simulations like this one. */
struct ref *ref_new(const struct sim_cfg *like, const struct ref_cfg *cfg);
void ref_free(struct ref *f);
/* Fills a fresh request (sim_req) with a content; the caller submits it. */
void ref_fill(const struct ref *f, struct sim_req *r, uint32_t content);
/* Adds an item to sim_req.items. */
void ref_item(struct sim_req *r, unsigned type, const void *p, uint32_t len);
/* Checks an ended request: its answer is the reference's, or the beginning
 * of that if it ended early. */
void ref_check(struct ref *f, const struct sim_req *r);
/* Checks every request of s when it ends. */
void ref_watch(struct ref *f, struct sim *s);
/* Makes a request of s with a content and submits it. */
struct sim_req *ref_ask(const struct ref *f, struct sim *s, uint32_t content);

#endif
