/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling parameters of a sequence as the device keeps them.
 */
#ifndef FDD_DAEMON_WORKER_SAMPLER_H
#define FDD_DAEMON_WORKER_SAMPLER_H

#include "daemon/worker/req.h"
#include "kernels/fdk.h"

/* Row state of a sequence that has just got its slot: everything the device
 * needs to go on from the tokens known now, resumed or preempted alike. */
void smp_row(const struct seq *s, struct fdk_row *ret);
/* Its penalty counts, of the same moment: row[vocab] as fdk_sample_args has
 * them. */
void smp_counts(const struct seq *s, int32_t vocab, uint16_t *row);
/* Its entry of the pool of rules, of the same moment; returns its words. */
int32_t smp_rules(const struct seq *s, int32_t *entry);
/* Does it need penalty counts, which only a request with rules may do without? */
int smp_counted(const struct req *r);
/* Ids whose logprobs follow the alternatives. */
int32_t smp_n_chosen(const struct req *r);
/* Alternatives wanted per sampled token; -1: no logprob at all. */
int32_t smp_n_top(const struct req *r);
/* The same for scored prompt tokens. */
int32_t smp_n_top_prompt(const struct req *r);

#endif
