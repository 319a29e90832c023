/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines on their way to stderr: a ring of LGQ_BYTES bytes that any thread fills and
 * one thread empties.
 *
 * Lock-free for the producers, because the engine thread takes no lock and a signal
 * handler must be able to read the queue in any interrupted thread: lgq_put() claims
 * room by a compare-and-exchange of tail, copies the line and commits it by one store.
 * It never waits: without room the line is counted and dropped. Lines leave in the
 * order in which room was claimed.
 *
 * A record is 8 bytes of header and the line, a multiple of 8 bytes long. The header
 * holds the record's own position in the stream of bytes. So the bytes of a former lap
 * are never taken for a committed record, and records are found again from any
 * position. Lines hold no NUL byte; the header's last byte is NUL.
 *
 * Lines that were taken stay readable until they are overwritten: lgq_last(). The queue
 * may lie in memory that another process reads after the death of this one
 * (lnk_seg.log): it holds no pointers, and readers check every number in it.
 */
#ifndef FDD_DAEMON_COMMON_LOG_QUEUE_H
#define FDD_DAEMON_COMMON_LOG_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#define LGQ_BYTES      (256u << 10)
#define LGQ_LINE_BYTES 4096u /* of a line, its newline included */

struct lgq {
    uint64_t tail __attribute__((aligned(128))); /* claimed up to here */
    uint64_t n_lost;                             /* lines dropped and not yet reported */
    uint64_t lost_at; /* tail when the first of them was dropped */
    uint64_t head __attribute__((aligned(128))); /* taken up to here */
    uint32_t asleep;                             /* futex: the reader waits for a line */
    unsigned char data[LGQ_BYTES] __attribute__((aligned(128)));
};

/* All zero is an empty queue. */
void lgq_init(struct lgq *q);
/* Any thread; never waits. Put a line with its newline, at most LGQ_LINE_BYTES. 0, or
 * -ENOBUFS: no room, the line is dropped and counted. */
int lgq_put(struct lgq *q, const char *line, size_t n);

/* For the reader. Copies whole lines to ret, as many as fit into ret_bytes (at least
 * LGQ_LINE_BYTES) and precede the next unreported loss. Returns their bytes, 0 if there
 * are none. They stay in the queue until lgq_release() with *ret_next.
 * Async-signal-safe. */
size_t lgq_take(const struct lgq *q, char *ret, size_t ret_bytes, uint64_t *ret_next);
void lgq_release(struct lgq *q, uint64_t next);
/* Returns how many lines were dropped, and resets that number, if the reader has reached
 * the position of the first dropped line. Else returns 0. */
uint64_t lgq_lost(struct lgq *q);
/* Sleep until there is a line, or until timeout_ns have passed. */
void lgq_wait(struct lgq *q, uint64_t timeout_ns);
/* Wake the reader. */
void lgq_wake(struct lgq *q);

/* The last lines that were put, taken or not: as many whole lines as fit, oldest first,
 * NUL terminated. Returns their length. Async-signal-safe. */
size_t lgq_last(const struct lgq *q, char *ret, size_t ret_bytes);

#endif
