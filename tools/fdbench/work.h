/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run of fdbench sends: conversations of one turn or more, one after
 * the other. Lengths and tokens follow from the seed and the conversation's
 * number alone, so that nothing is kept and any run can be repeated.
 */
#ifndef FDD_TOOLS_FDBENCH_WORK_H
#define FDD_TOOLS_FDBENCH_WORK_H

#include "tools/fdbench/fdbench.h"

/* What a request asks for; its prompt follows from these numbers and the seed. */
struct fdb_ask {
    uint32_t conversation, turn;
    uint32_t n_prefix, n_new; /* shared tokens (first turn), its own */
    uint32_t max_new;
    int more;        /* a turn follows */
    uint64_t due_ns; /* open loop: after the run's beginning */
};
struct fdb_work; /* the requests of a run, in order */
/* Keeps cfg. To be freed with free(). 0 or an exit code, with the message printed. */
int fdb_work_new(const struct fdb_cfg *cfg, const struct fdc_model_info *model,
    uint64_t seed, struct fdb_work **ret);
/* The next conversation's first request. 0: there is none. */
int fdb_work_next(struct fdb_work *w, struct fdb_ask *ret);
/* What a turn asked for, which has more, becomes what the next one does. */
void fdb_work_turn(const struct fdb_work *w, struct fdb_ask *a);
/* Append what a asks for, text or uint32_t ids, to nothing if it is a first turn. -ENOMEM. */
int fdb_work_prompt(const struct fdb_work *w, const struct fdb_ask *a, struct fct_buf *p);
uint64_t fdb_mix(uint64_t a, uint64_t b);

#endif
