/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings, matched byte by byte over the output text of one sample,
 * wherever tokens cut it. The match that is complete first wins (of those
 * complete at one byte the longest, then the first named), so the result
 * does not depend on how the text was cut. Sets are made in ingress and
 * constant after; struct fin belongs to egress. No allocation in fin_push.
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
    /* fail[k][i]: longest proper prefix of stop k that ends its first i + 1 */
    uint16_t fail[FDP_MAX_STOP][FDP_MAX_STOP_LEN];
};

struct fin {
    uint16_t at[FDP_MAX_STOP]; /* matched prefix of each stop string */
};

struct fin_set *fin_set_new(void); /* NULL: no memory */
struct fin_set *fin_set_free(struct fin_set *fs);
/* -EINVAL: empty, longer than FDP_MAX_STOP_LEN, or FDP_MAX_STOP there. */
int fin_set_add(struct fin_set *fs, const void *text, size_t n);

void fin_init(struct fin *f);
/* Take n bytes of text. Returns the index of the stop string they complete,
 * with *ret_end = bytes taken up to and including its last one, or -1. */
int fin_push(const struct fin_set *fs, struct fin *f, const unsigned char *b, size_t n,
    size_t *ret_end);
/* Bytes at the end of the text so far that may be the beginning of a stop
 * string and must be held back; at most FDP_MAX_STOP_LEN - 1. */
uint32_t fin_hold(const struct fin_set *fs, const struct fin *f);

#endif
