/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The client protocol without libfdclient and its checks, for programs that violate it.
 * One thread only.
 */
#ifndef FDD_TESTS_SYS_HOSTILE_RAW_H
#define FDD_TESTS_SYS_HOSTILE_RAW_H

#include <stddef.h>
#include <stdint.h>

#include "libclient/fdproto.h"

#define RAW_NO_CONNECT (-1) /* errno says why */
#define RAW_NO_WELCOME 1000 /* the daemon closed, or sent something else */

struct raw {
    int sock, fd[FDP_N_FDS]; /* -1: none */
    struct fdp_welcome w;
    unsigned char *c2d;
    const unsigned char *d2c;
    uint32_t tail; /* next request slot */
    uint32_t head; /* next completion slot */
};

uint64_t raw_now_ns(void);
/* Returns a connected socket of type SOCK_SEQPACKET or SOCK_STREAM, or -1 with errno. */
int raw_dial(const char *path, int type);
struct fdp_hello raw_hello(void);
/* Connects and shakes hands; h NULL: with raw_hello(). Returns 0, RAW_NO_CONNECT,
 * RAW_NO_WELCOME, or the status of the refusal as a positive number. Call
 * raw_close() in every case. */
int raw_open(struct raw *r, const char *path, const struct fdp_hello *h);
void raw_close(struct raw *r);
/* Is the session over? */
int raw_gone(const struct raw *r);

uint32_t *raw_word(const struct raw *r, size_t c2d_off);
uint32_t raw_read(const struct raw *r, size_t d2c_off);
/* A valid request except for the fields that its operation needs. */
struct fdp_req raw_req(uint64_t tag, uint16_t op);
struct fdp_req *raw_slot(const struct raw *r, uint32_t at);
/* Number of free request slots by the daemon's cursor. */
uint32_t raw_room(const struct raw *r);
/* Puts q into the next slot. raw_publish() publishes it, and rings the
 * doorbell if the daemon sleeps. */
void raw_put(struct raw *r, const struct fdp_req *q);
void raw_publish(struct raw *r);
void raw_ring(const struct raw *r); /* rings in any case */
/* Writes an item at this offset of the arena. Returns its size with padding. */
uint32_t
raw_item(const struct raw *r, uint32_t off, uint16_t type, const void *p, uint32_t len);
/* A request for tokens of a short prompt. slot: which 64 bytes of the arena. */
struct fdp_req
raw_generate(const struct raw *r, uint64_t tag, uint32_t slot, uint32_t max_new);
/* Takes the next record, with at most cap bytes of its payload.
 * Returns 0 if there is none. */
int raw_next(struct raw *r, struct fdp_rec *ret, void *payload, size_t cap);
/* Reads and drops all records. Returns the number of requests that ended. */
unsigned raw_skip(struct raw *r);
/* Sends len bytes and n descriptors in one message. Returns 0 or -1. */
int raw_send_fds(int sock, const void *p, size_t len, const int *fds, int n);

#endif
