/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of scheduler.c (lists, slots, ends and deadlines) for the files that choose
 * steps (scheduler_pick_priv.h).
 */
#ifndef FDD_DAEMON_WORKER_SCHEDULER_PRIV_H
#define FDD_DAEMON_WORKER_SCHEDULER_PRIV_H

#include "daemon/worker/scheduler.h"

/* Priority of a sequence, smaller is better; under policy fcfs all are equal. */
int32_t sch_priority(const struct sch *sch, const struct seq *s);
/* Does a wait before b? By priority, arrival, sample. */
int sch_before(const struct sch *sch, const struct seq *a, const struct seq *b);
/* Number of rows that the sequence's user holds. */
int32_t *sch_served(struct sch *sch, const struct seq *s);
/* Prompt tokens that the sequence's user was given lately. */
uint64_t *sch_spent(struct sch *sch, const struct seq *s);
/* May the sequence's blocks be looked up and registered? */
int sch_is_cached(const struct sch *sch, const struct seq *s);

/* Extend the tables to n_tok tokens, with owed blocks first. 0, or -ENOSPC: nothing
 * changed. */
int sch_grow(struct sch *sch, struct seq *s, int32_t n_tok);
/* Set n, the places that the sequence's tables will have, for which blocks are kept; 0:
 * no blocks are kept. */
void sch_owe(struct sch *sch, struct seq *s, int32_t n);
/* Give back the blocks, of all running sequences, that no later token will read. */
void sch_slide(struct sch *sch);
/* Move a sequence from waiting to running, with a slot and a penalty entry; and back,
 * if it is in no step yet. */
void sch_start(struct sch *sch, struct seq *s);
void sch_unstart(struct sch *sch, struct seq *s);
/* Among the running sequences of the worst priority, the one admitted last. */
struct seq *sch_victim(const struct sch *sch);
/* The same among those that may be preempted for one of that priority, or NULL. */
struct seq *sch_victim_of(const struct sch *sch, int32_t priority);
int sch_may_urge(const struct sch *sch, int32_t priority, const struct seq *s);
/* Take the blocks of a running sequence, now or when it is collected. */
void sch_preempt(struct sch *sch, struct seq *s);
/* Register the sequence's blocks in the pool whose tokens are known and launched. */
void sch_register(struct sch *sch, struct seq *s);

#endif
