/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What the examples of event loops share: everything but the loop. */
#ifndef FDD_EXAMPLES_ANSWERS_H
#define FDD_EXAMPLES_ANSWERS_H

#include <fdclient.h>

struct answers {
    fdc_t *session;
    int n_open; /* requests that have not ended */
    int failed;
};

/* Opens a session and submits each prompt. 0, or -1 after a message. */
int answers_begin(struct answers *a, int n, char **prompts);

/* Prints what has arrived, without waiting: call it once before the loop, and whenever
 * fdc_fd(a->session) is readable. 1: the loop goes on; 0: all answers have ended. */
int answers_take(struct answers *a);

/* The program's exit status. */
int answers_end(struct answers *a);

#endif
