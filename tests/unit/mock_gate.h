/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A gate for libfdclient's tests: one thread that listens on a socket, serves one session
 * at a time with real sealed memfds, and answers as the prompt tells it:
 *
 *   "echo..."  the prompt's bytes come back as TEXT, then DONE
 *   "hold"     ACCEPTED, then nothing until CANCEL
 *   "err"      ERROR BAD_PARAM, detail top_p
 *   "die"      ACCEPTED and one token, then the socket closes
 *   "bye"      one token, then GOODBYE with mock.reason
 *   "bad"      a record of 0 slots
 *   "raw "...  a TOKENS record at position 6 with these bytes as its payload,
 *              then DONE
 *   "rec "...  a record with the header and payload that follow and the request's tag,
 *              then DONE
 *   "part"     the first time three tokens and the id of a fourth, then the socket
 *              closes; later the tokens after PRIOR_IDS; "parx": with other ids
 *   "reset"    the first time two tokens, CHOICE_END and ERROR as if the worker
 *              died; later the remaining tokens
 *   "say A B N\n" the N bytes that follow come back as TEXT, like a model's output: in
 *              records of A characters, or of 1 to B at random if B is not 0
 *   "hol A B N\n" like "say" but without an end, until CANCEL; "fai ": ended by ERROR
 *              NUMERIC
 *   "crash"    ACCEPTED, then ERROR as if the worker died
 *   "drip"     max_new tokens, 1 ms apart
 *   others     max_new tokens at once
 *
 * A token with text goes as TOKENS, with logprobs as IDS, LOGPROBS, TEXT.
 */
#ifndef FDD_TESTS_UNIT_MOCK_GATE_H
#define FDD_TESTS_UNIT_MOCK_GATE_H

#include <pthread.h>
#include <stdint.h>

#include "libclient/fdproto.h"
#include "libclient/fdring.h"

#define MOCK_STREAMS 128

struct mock_stream {
    uint64_t tag, next_ns;
    uint32_t flags, logprobs, left, pos, bytes, n;
    int used, hold, drip;
};

struct mock {
    /* set before mock_start() */
    uint32_t sq_slots, cq_slots, arena_bytes, max_inflight;
    int32_t refuse; /* welcome.err */
    int lie;        /* violation in the handshake: 1 geometry past the file, 2 no
                     * descriptors, 3 wrong major version, 4 regions that can be
                     * truncated, 5 a pipe as doorbell, 6 request cursors differ, 7 a gap
                     * of 64 MiB before the arena, 8 an empty message with descriptors, 9
                     * a region that cannot be written to, 10 a daemon of protocol 2 */
    int reason;     /* of GOODBYE; E_SLOW by default */
    int cancelled;  /* code of the answer to CANCEL; E_CANCELLED by default */
    uint32_t n_part, shift;
    int loading;          /* answer INFO with E_LOADING */
    uint32_t flood;       /* number of records that answer the first TOKENIZE */
    struct fdp_info info; /* the answer to INFO */
    /* atomics, used while it runs */
    int stall;      /* set: take no requests */
    int stalled;    /* the thread has seen stall */
    int unread;     /* set: leave the hello in the socket */
    uint32_t flags; /* of the last SUBMIT or TOKENIZE */
    uint32_t n_attach, n_submit, n_cancel, n_bells, n_bytes, n_room;
    /* the last SUBMIT; may be read after its answer came and
     * n_submit was read (acquire) */
    struct fdp_req last;
    unsigned char *blob;
    struct fdp_hello hello; /* the last one; read n_attach first (acquire) */

    char path[64], dir[32];
    int lsock, quit[2];
    pthread_t thread;
    int sock, bell;
    unsigned char *c2d, *d2c;
    uint32_t c2d_bytes, d2c_bytes, arena_off;
    struct fdr_cons sq;
    struct fdr_prod cq;
    struct mock_stream st[MOCK_STREAMS];
};

void mock_init(struct mock *m); /* defaults */
void mock_start(struct mock *m);
/* Starts one more gate on the socket of a started one; it serves another session. */
void mock_join(struct mock *m, const struct mock *first);
void mock_stop(struct mock *m); /* joins the thread, removes the socket */

#endif
