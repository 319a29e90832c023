/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference of a random workload: requests are drawn from a finite set
 * of contents, and what a request answers depends on its content alone, so
 * each content is computed once, alone, by the simple loop (no step ahead, no
 * graph, no prefix cache, a pool that never runs out). Whatever ran in other
 * batch composition, in other chunks, preempted or resumed must have the same ids, the
 * same text and the same bits of every logprob.
 */
#ifndef FDD_TESTS_SIM_REF_H
#define FDD_TESTS_SIM_REF_H

#include "tests/sim/sim.h"

/* What contents may ask for. */
#define REF_SAMPLES 1u /* n up to SIM_MAX_N */
#define REF_SCORES  2u /* prompt logprobs */
#define REF_PENALTY 4u
#define REF_RANDOM  8u  /* temperature, top_k, top_p, min_p */
#define REF_SHARED  16u /* prompts begin alike in families */
#define REF_TEXT    32u /* text and stop strings (null model) */
#define REF_STOP    64u /* stop ids, eos, min_new */
#define REF_RULES \
    128u /* biases, allowed and banned ids, chosen logprobs, reasoning;
                           with REF_PENALTY alone, since they share its pool */
#define REF_ALL 255u

struct ref_cfg {
    unsigned ask; /* REF_* */
    uint32_t n_content;
    uint32_t max_prompt, max_new;
    uint64_t seed;
    /* NULL, or who says what content i is; r is fresh */
    void (*fill)(struct sim_req *r, uint32_t i);
};
struct ref;

/* For simulations like this one. */
struct ref *ref_new(const struct sim_cfg *like, const struct ref_cfg *cfg);
void ref_free(struct ref *f);
/* Fill a fresh request (sim_req) with a content; submit it after. */
void ref_fill(const struct ref *f, struct sim_req *r, uint32_t content);
/* Add an item of those that sim_req.items holds. */
void ref_item(struct sim_req *r, unsigned type, const void *p, uint32_t len);
/* Of an ended request: what it got is the reference's, or, when it ended
 * early, the beginning of it. */
void ref_check(struct ref *f, const struct sim_req *r);
/* Let every request of s that ends be checked. */
void ref_watch(struct ref *f, struct sim *s);
/* A fresh request of s with a content, submitted. */
struct sim_req *ref_ask(const struct ref *f, struct sim *s, uint32_t content);

#endif
