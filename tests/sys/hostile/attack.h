/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks, grouped by target. Each runs until its time is over, whatever the daemon does;
 * attack.c lists them.
 */
#ifndef FDD_TESTS_SYS_HOSTILE_ATTACK_H
#define FDD_TESTS_SYS_HOSTILE_ATTACK_H

#include <stdint.h>

#include "tests/sys/hostile/raw.h"

struct attack {
    const char *client, *admin; /* sockets */
    uint64_t t_end;
    uint64_t rng;
    unsigned long n_open, n_refused, n_ended, n_op; /* opened, refused, ended sessions;
                                                     * actions */
    int bad; /* the daemon allowed something that it must not */
};

int atk_left(const struct attack *a);
uint64_t atk_rnd(struct attack *a);
/* Opens a session, retrying as often as needed. Returns 0, or -1 if the time is over. */
int atk_session(struct attack *a, struct raw *r, const struct fdp_hello *h);
/* Opens as many sessions as the daemon allows, at most max. Returns their number. */
int atk_sessions(struct attack *a, struct raw *r, int max, const struct fdp_hello *h);
void atk_wait(const struct attack *a);

/* rings and records: attack_ring.c */
void atk_random(struct attack *a);
void atk_wild(struct attack *a);
void atk_cursors(struct attack *a);
void atk_toctou(struct attack *a);
void atk_punch(struct attack *a);
void atk_bell(struct attack *a);
void atk_pings(struct attack *a);
void atk_herd(struct attack *a);
void atk_seals(struct attack *a);
void atk_stopped(struct attack *a);

/* connections and descriptors: attack_connect.c */
void atk_handshake(struct attack *a);
void atk_flood(struct attack *a);
void atk_connect(struct attack *a);
void atk_slow(struct attack *a);
void atk_idle(struct attack *a);
void atk_keepmem(struct attack *a);
void atk_linger_hello(struct attack *a);
void atk_linger_open(struct attack *a);
void atk_linger_admin(struct attack *a);

/* requests: attack_request.c */
void atk_noread(struct attack *a);
void atk_greedy(struct attack *a);
void atk_greedy_long(struct attack *a);
void atk_blob(struct attack *a);
void atk_republish(struct attack *a);
void atk_big(struct attack *a);
void atk_log(struct attack *a);

/* the admin socket: attack_admin.c */
void atk_admin_hold(struct attack *a);
void atk_admin_slow(struct attack *a);
void atk_admin_flood(struct attack *a);
void atk_admin_noread(struct attack *a);
void atk_admin_empty(struct attack *a);
void atk_admin_fuzz(struct attack *a);

#endif
