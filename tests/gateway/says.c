/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake daemon whose model outputs the text that the prompt contains
 * (tests/unit/mock_gate.h), so that fdd-http's answers can be tested with any text.
 * Prints the path of its socket; ends when its standard input ends.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/mock_gate.h"

#define SESSIONS 16 /* clients at a time */

int
main(void)
{
    static struct mock m[SESSIONS];
    char c;

    for (int i = 0; i < SESSIONS; i++) {
        mock_init(&m[i]);
        m[i].cq_slots = 4096;
        m[i].arena_bytes = 1 << 20;
        m[i].info.max_model_len = 100000;
        m[i].info.has_tokenizer = 1;
        m[i].info.max_logprobs = 20;
        if (i == 0)
            mock_start(&m[i]);
        else
            mock_join(&m[i], &m[0]);
    }
    printf("%s\n", m[0].path);
    (void)fflush(stdout);
    while (read(STDIN_FILENO, &c, 1) > 0)
        ;
    (void)unlink(m[0].path);
    (void)rmdir(m[0].dir);
    _exit(0);
}
