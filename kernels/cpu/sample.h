/*
 * Choosing a token from one row of logits. Scalar decisions live here, in
 * double precision over the few ids that matter; the passes over the whole
 * vocabulary are those of struct cpu_isa.
 */
#ifndef FDD_KERNELS_CPU_SAMPLE_H
#define FDD_KERNELS_CPU_SAMPLE_H

#include "kernels/cpu/isa.h"

#define SAMPLE_LANES 16            /* rows in work at a time, one heap each */

struct sample_cand {
    float x;
    int32_t id;
};

size_t sample_scratch_bytes(int R, int V);
int sample_n_slice(int V);

/* Everything for output o, given its row's slices. heap has V elements. */
void sample_row(const struct cpu_isa *isa, const struct fdk_sample_args *a, int o,
    const struct cpu_slice *slices, struct sample_cand *heap);

/* State after a token was chosen (shared with the null backend). */
void sample_commit(struct fdk_row *st, int32_t token, struct fdk_result *r);

#endif
