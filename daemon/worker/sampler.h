/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling parameters of a sequence in the form that the device keeps.
 */
#ifndef FDD_DAEMON_WORKER_SAMPLER_H
#define FDD_DAEMON_WORKER_SAMPLER_H

#include "daemon/worker/req.h"
#include "kernels/fdk.h"

/* Write the row state of a sequence that has just got its slot: all that the device
 * needs to continue from the tokens known now, whether it is new or was preempted. */
void smp_row(const struct seq *s, struct fdk_row *ret);
/* Write the sequence's penalty counts over the same tokens: row[vocab] as in
 * fdk_sample_args. */
void smp_counts(const struct seq *s, int32_t vocab, uint16_t *row);
/* Write the sequence's entry of the pool of rules for the same tokens; returns its
 * length in int32_t. */
int32_t smp_rules(const struct seq *s, int32_t *entry);
/* Does the request need penalty counts? Only a request with rules may do without. */
int smp_counted(const struct req *r);
/* Number of chosen ids, whose logprobs follow the alternatives. */
int32_t smp_n_chosen(const struct req *r);
/* Number of alternatives per sampled token; -1: no logprob at all. */
int32_t smp_n_top(const struct req *r);
/* Number of alternatives per scored prompt token; -1 likewise. */
int32_t smp_n_top_prompt(const struct req *r);

#endif
