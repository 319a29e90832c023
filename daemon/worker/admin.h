/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to the gate's admin questions: JSON over a SOCK_SEQPACKET pair, a
 * thread of its own, which reads what is constant after "ready" and asks
 * the engine for snapshots of the rest.
 *
 * {"id": N, "cmd": C, ...} with C one of model, memory, program, profile,
 * requests, debug, ping; and cancel: the gate waits for an answer no more. It ends a profile that is running
 * and has no answer itself. An answer is one JSON object whose first member is the id, and a
 * newline, cut into messages of at most ADM_CHUNK bytes.
 */
#ifndef FDD_DAEMON_WORKER_ADMIN_H
#define FDD_DAEMON_WORKER_ADMIN_H

#include <stddef.h>

#define ADM_CHUNK 32768

struct worker;
struct admin;

/* Before "ready": what several GPUs can do, for rooflines. Measuring allocates and frees memory,
 * which can wait for a device whose collective waits for another one, so that nothing is
 * measured while they serve. One GPU, or the CPU, is measured when that is asked for. */
void adm_measure(struct worker *w);
/* NULL: no thread. w->pip must exist. */
struct admin *adm_new(struct worker *w);
/* Ends the thread. */
struct admin *adm_free(struct admin *a);
/* One question to its answer: heap text ending in a newline, NULL: no
 * memory, or nothing to say. stop_fd: readable when the engine has ended; -1. */
char *adm_answer(struct worker *w, const char *text, size_t n, int stop_fd);

#endif
