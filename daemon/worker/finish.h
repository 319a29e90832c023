/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings, matched byte by byte over the output text of one sample, across token
 * boundaries. The match that completes first wins (of those that complete at the same
 * byte the longest, then the first listed), so the result does not depend on how the text
 * was cut. Ingress makes the sets, which are constant after that; struct fin belongs to
 * egress. fin_push() does not allocate.
 */
#ifndef FDD_DAEMON_WORKER_FINISH_H
#define FDD_DAEMON_WORKER_FINISH_H

#include <stddef.h>
#include <stdint.h>

#include "libclient/fdproto.h"

struct fin_set {
    uint32_t magic;
#define FIN_MAGIC 0x46494e53u
    uint32_t n;
    uint16_t len[FDP_MAX_STOP];
    unsigned char text[FDP_MAX_STOP][FDP_MAX_STOP_LEN];
    /* fail[k][i]: length of the longest proper prefix of stop string k that is a suffix
     * of its first i + 1 bytes */
    uint16_t fail[FDP_MAX_STOP][FDP_MAX_STOP_LEN];
};

struct fin {
    uint16_t at[FDP_MAX_STOP]; /* matched length of each stop string */
};

struct fin_set *fin_set_new(void); /* NULL: out of memory */
struct fin_set *fin_set_free(struct fin_set *fs);
/* 0, or -EINVAL: empty, longer than FDP_MAX_STOP_LEN, or the set is full. */
int fin_set_add(struct fin_set *fs, const void *text, size_t n);

void fin_init(struct fin *f);
/* Takes n bytes of text. Returns the index of the stop string that they complete and sets
 * *ret_end to the end of the match in b; -1: none. */
int fin_push(const struct fin_set *fs, struct fin *f, const unsigned char *b, size_t n,
    size_t *ret_end);
/* Number of bytes at the end of the text so far that may begin a stop string and must be
 * held back; at most FDP_MAX_STOP_LEN - 1. */
uint32_t fin_hold(const struct fin_set *fs, const struct fin *f);

#endif
