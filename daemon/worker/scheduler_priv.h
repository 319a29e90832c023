/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What scheduler.c, which keeps lists, slots, ends and deadlines, offers those that
 * choose steps (scheduler_pick_priv.h).
 */
#ifndef FDD_DAEMON_WORKER_SCHEDULER_PRIV_H
#define FDD_DAEMON_WORKER_SCHEDULER_PRIV_H

#include "daemon/worker/scheduler.h"

/* Smaller is better; policy fcfs knows one only. */
int32_t sch_priority(const struct sch *sch, const struct seq *s);
/* Order of waiting: priority, arrival, sample. */
int sch_before(const struct sch *sch, const struct seq *a, const struct seq *b);
/* Rows that its user holds. */
int32_t *sch_served(struct sch *sch, const struct seq *s);
/* Prompt tokens that its user had lately. */
uint64_t *sch_spent(struct sch *sch, const struct seq *s);
/* May the sequence's blocks be looked up and registered? */
int sch_is_cached(const struct sch *sch, const struct seq *s);

/* Blocks of its table for n_tok tokens, owed ones first; -ENOSPC: nothing changed. */
int sch_grow(struct sch *sch, struct seq *s, int32_t n_tok);
/* Blocks are kept for the n places that its tables will have; 0: none. */
void sch_owe(struct sch *sch, struct seq *s, int32_t n);
/* Blocks that no token of it will read go back, of all running sequences. */
void sch_slide(struct sch *sch);
/* From waiting to running, with a slot and a penalty entry; and back, when it
 * is in no step yet. */
void sch_start(struct sch *sch, struct seq *s);
void sch_unstart(struct sch *sch, struct seq *s);
/* Of the running sequences of the worst priority the one admitted last. */
struct seq *sch_victim(const struct sch *sch);
/* The same, of those that may be preempted for one of that priority, or NULL. */
struct seq *sch_victim_of(const struct sch *sch, int32_t priority);
int sch_may_urge(const struct sch *sch, int32_t priority, const struct seq *s);
/* Take the blocks of a running sequence, now or when it is collected. */
void sch_preempt(struct sch *sch, struct seq *s);
/* Tell the pool about blocks that are issued and whose tokens are known. */
void sch_register(struct sch *sch, struct seq *s);

#endif
