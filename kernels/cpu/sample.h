/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing a token from one row of logits. The scalar code is here, in
 * double precision over the few remaining candidates; struct cpu_isa has the passes over
 * the full vocabulary.
 */
#ifndef FDD_KERNELS_CPU_SAMPLE_H
#define FDD_KERNELS_CPU_SAMPLE_H

#include "kernels/cpu/isa.h"

#define SAMPLE_LANES 16 /* rows processed at a time, one heap each */

struct sample_cand {
    float x;
    int32_t id;
};

/* Scratch of a thread for one row, V elements each. */
struct sample_lane {
    struct sample_cand *heap;
    float *penalized; /* NULL without penalty counts */
};

size_t sample_scratch_bytes(const struct fdk_sample_args *a);
int sample_n_slice(int V);
/* Areas of a->scratch. */
struct sample_lane sample_lane(const struct fdk_sample_args *a, int lane);
struct cpu_slice *sample_slices(const struct fdk_sample_args *a);

/* Row `at` of the logits. */
static inline float *
sample_logits(const struct fdk_sample_args *a, int at)
{
    return a->logits + (size_t)at * (size_t)(a->ldl > 0 ? a->ldl : a->V);
}

/* Samples or scores output o, given its row's slices. */
void sample_row(const struct cpu_isa *isa, const struct fdk_sample_args *a, int o,
    const struct cpu_slice *slices, struct sample_lane lane);

/* Updates state and counts after a token was chosen (shared with the null backend). */
void sample_commit(const struct fdk_sample_args *a, const struct fdk_out *out,
    struct fdk_row *st, int32_t token, struct fdk_result *r);
/* The row's entry of the pool of rules, or NULL. */
int32_t *sample_rules(const struct fdk_sample_args *a, const struct fdk_out *out);

#endif
