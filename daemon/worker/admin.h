/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin thread: answers the gate's admin questions, JSON over a SOCK_SEQPACKET pair.
 * It reads data that is constant after "ready" directly and asks the engine for snapshots
 * of the rest.
 *
 * {"id": N, "cmd": C, ...} with C one of model, memory, program, profile, requests,
 * debug, ping; or cancel: the gate no longer waits for an answer. A cancel ends a running
 * profile and is not answered. An answer is one JSON object whose first member is the id,
 * then a newline, cut into messages of at most ADM_CHUNK bytes.
 */
#ifndef FDD_DAEMON_WORKER_ADMIN_H
#define FDD_DAEMON_WORKER_ADMIN_H

#include <stddef.h>

#define ADM_CHUNK 32768

struct worker;
struct admin;

/* Before "ready": measures the peak of a group of several GPUs, for roofline bounds.
 * Measuring allocates and frees memory, which can block on a device whose collective
 * waits for another device; so such a group is never measured while it serves. A single
 * GPU, or the CPU, is measured on request instead. */
void adm_measure(struct worker *w);
/* Starts the admin thread; NULL if that fails. w->pip must exist. */
struct admin *adm_new(struct worker *w);
/* Ends the thread. Returns NULL. */
struct admin *adm_free(struct admin *a);
/* Answers one question (n bytes of text). Returns heap text that ends in a newline, or
 * NULL: out of memory, or the question has no answer. stop_fd becomes readable when the
 * engine has ended; -1: none. */
char *adm_answer(struct worker *w, const char *text, size_t n, int stop_fd);

#endif
