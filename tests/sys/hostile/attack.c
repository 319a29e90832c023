/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * attack MODE CLIENT_SOCKET ADMIN_SOCKET SECONDS [SEED]
 *
 * One process of a hostile user, over the protocol itself. Prints a summary. Exit status
 * 1: the daemon allowed something that it must not. `attack --list` prints the modes. The
 * mode burn touches no daemon: it uses as much CPU as an attack can.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sys/hostile/attack.h"

#define ATK_RETRY_US 3000

int
atk_left(const struct attack *a)
{
    return raw_now_ns() < a->t_end;
}

uint64_t
atk_rnd(struct attack *a)
{
    uint64_t z = a->rng += 0x9e3779b97f4a7c15ull; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

int
atk_session(struct attack *a, struct raw *r, const struct fdp_hello *h)
{
    while (atk_left(a)) {
        if (raw_open(r, a->client, h) == 0) {
            a->n_open++;
            return 0;
        }
        raw_close(r);
        a->n_refused++;
        usleep(ATK_RETRY_US);
    }
    return -1;
}

int
atk_sessions(struct attack *a, struct raw *r, int max, const struct fdp_hello *h)
{
    int n = 0;

    while (n < max && atk_left(a) && raw_open(&r[n], a->client, h) == 0) {
        a->n_open++;
        n++;
    }
    if (n < max) {
        raw_close(&r[n]);
        a->n_refused++;
    }
    return n;
}

void
atk_wait(const struct attack *a)
{
    while (atk_left(a))
        usleep(20000);
}

static void
atk_burn(struct attack *a)
{
    while (atk_left(a))
        a->n_op++;
}

static const struct {
    const char *name;
    void (*run)(struct attack *a);
} modes[] = {
    { "random", atk_random },
    { "wild", atk_wild },
    { "cursors", atk_cursors },
    { "toctou", atk_toctou },
    { "punch", atk_punch },
    { "bell", atk_bell },
    { "pings", atk_pings },
    { "herd", atk_herd },
    { "seals", atk_seals },
    { "stopped", atk_stopped },
    { "handshake", atk_handshake },
    { "flood", atk_flood },
    { "connect", atk_connect },
    { "slow", atk_slow },
    { "idle", atk_idle },
    { "keepmem", atk_keepmem },
    { "linger-hello", atk_linger_hello },
    { "linger-open", atk_linger_open },
    { "linger-admin", atk_linger_admin },
    { "noread", atk_noread },
    { "greedy", atk_greedy },
    { "greedy-long", atk_greedy_long },
    { "blob", atk_blob },
    { "republish", atk_republish },
    { "big", atk_big },
    { "log", atk_log },
    { "admin-hold", atk_admin_hold },
    { "admin-slow", atk_admin_slow },
    { "admin-flood", atk_admin_flood },
    { "admin-noread", atk_admin_noread },
    { "admin-empty", atk_admin_empty },
    { "admin-fuzz", atk_admin_fuzz },
    { "burn", atk_burn },
};
#define N_MODES (sizeof(modes) / sizeof(modes[0]))

static int
list_modes(void)
{
    for (size_t i = 0; i + 1 < N_MODES; i++)
        puts(modes[i].name);
    return 0;
}

int
main(int argc, char **argv)
{
    struct attack a = { .rng = (uint64_t)getpid() };

    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list_modes();
    if (argc < 5) {
        fprintf(stderr, "usage: attack MODE CLIENT_SOCKET ADMIN_SOCKET SECONDS [SEED]\n");
        return 64;
    }
    a.client = argv[2];
    a.admin = argv[3];
    a.t_end = raw_now_ns() + (uint64_t)(atof(argv[4]) * 1e9);
    if (argc > 5)
        a.rng = strtoull(argv[5], NULL, 10);
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < N_MODES; i++) {
        if (strcmp(argv[1], modes[i].name) != 0)
            continue;
        modes[i].run(&a);
        printf("%s: sessions %lu, refused %lu, ended %lu, acts %lu\n", argv[1], a.n_open,
            a.n_refused, a.n_ended, a.n_op);
        fflush(stdout);
        _exit(a.bad); /* threads of some modes sleep */
    }
    fprintf(stderr, "attack: no mode %s\n", argv[1]);
    return 64;
}
