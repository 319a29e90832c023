/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Two users of one daemon: one keeps many requests open, the other sends one request
 * after another and measures the times between its tokens. Both are delegated users of a
 * trusted client, each with its own process and session.
 */
#ifndef FDD_TESTS_SYS_FAIR_LOAD_H
#define FDD_TESTS_SYS_FAIR_LOAD_H

#include <stddef.h>
#include <stdint.h>

struct fair_load {
    const char *sock;
    uint32_t n_open;       /* requests the other user keeps open; 0: no other user */
    uint32_t other_tokens; /* of each of these requests */
    uint32_t n_requests;   /* requests of the measuring user, one at a time */
    uint32_t n_tokens;     /* of each of its requests; at least 2 */
    unsigned settle_ms;    /* time for the other user's load to build up before
                            * measuring */
};

struct fair_seen {
    uint64_t *gap; /* ns between tokens, n_gap of them; free() it */
    size_t n_gap;
    uint64_t *total;     /* ns that each request took, n_requests of them; free() it */
    uint64_t other_done; /* requests of the other user that ended meanwhile */
    uint64_t other_refused;
};

/* Returns 0, or -1 with a line on standard error. */
int fair_load_run(const struct fair_load *cfg, struct fair_seen *ret);
/* Quantile q of v; sorts v. */
uint64_t fair_quantile(uint64_t *v, size_t n, double q);

#endif
