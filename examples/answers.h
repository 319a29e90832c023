/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Code shared by the examples of event loops: everything except the loop. */
#ifndef FDD_EXAMPLES_ANSWERS_H
#define FDD_EXAMPLES_ANSWERS_H

#include <fdclient.h>

struct answers {
    fdc_t *session;
    int n_open; /* requests that have not ended */
    int failed;
};

/* Opens a session and submits each prompt. Returns 0, or -1 after printing why. */
int answers_begin(struct answers *a, int n, char **prompts);

/* Prints the events that have arrived, without waiting. Call it once before the loop, and
 * whenever fdc_fd(a->session) is readable. Returns 0 when all answers have ended,
 * else 1. */
int answers_take(struct answers *a);

/* Closes the session. Returns the program's exit status. */
int answers_end(struct answers *a);

#endif
