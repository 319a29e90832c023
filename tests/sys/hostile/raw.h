/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The client protocol without libfdclient and without its checks, for programs
 * that lie. One thread.
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
/* A connected socket of type SOCK_SEQPACKET or SOCK_STREAM; -1 and errno. */
int raw_dial(const char *path, int type);
struct fdp_hello raw_hello(void);
/* Connect and shake hands, h NULL: with raw_hello(). 0; RAW_NO_CONNECT,
 * RAW_NO_WELCOME, or the status of the refusal as a positive number. raw_close
 * whatever it returns. */
int raw_open(struct raw *r, const char *path, const struct fdp_hello *h);
void raw_close(struct raw *r);
/* Is the session over? */
int raw_gone(const struct raw *r);

uint32_t *raw_word(const struct raw *r, size_t c2d_off);
uint32_t raw_read(const struct raw *r, size_t d2c_off);
/* A request that is valid but for what its operation needs. */
struct fdp_req raw_req(uint64_t tag, uint16_t op);
struct fdp_req *raw_slot(const struct raw *r, uint32_t at);
/* Free request slots, as far as the daemon says. */
uint32_t raw_room(const struct raw *r);
/* Into the next slot; raw_publish shows it, and rings where the daemon sleeps. */
void raw_put(struct raw *r, const struct fdp_req *q);
void raw_publish(struct raw *r);
void raw_ring(const struct raw *r); /* in any case */
/* An item at this offset of the arena. Returns the bytes that it takes. */
uint32_t
raw_item(const struct raw *r, uint32_t off, uint16_t type, const void *p, uint32_t len);
/* A request for tokens of a short prompt. slot: which 64 bytes of the arena. */
struct fdp_req
raw_generate(const struct raw *r, uint64_t tag, uint32_t slot, uint32_t max_new);
/* The next record, with at most cap bytes of its payload. 0: there is none. */
int raw_next(struct raw *r, struct fdp_rec *ret, void *payload, size_t cap);
/* Read and forget what there is. Returns how many requests ended. */
unsigned raw_skip(struct raw *r);
/* Send len bytes and n descriptors in one message. 0 or -1. */
int raw_send_fds(int sock, const void *p, size_t len, const int *fds, int n);

#endif
