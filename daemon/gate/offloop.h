/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that may sleep, off the gate's loop: closing a descriptor whose
 * last reference may go with it, making a file in memory, emptying, sealing or reading one
 * that another process holds locked, collecting a child that takes its time to end.
 *
 * No job changes a mapping. The address space has one lock: a thread that holds
 * it and waits for a processor would hold up every mmap() of the loop, and page
 * faults too.
 *
 * Close sleeps where a client wants it to: a TCP socket with SO_LINGER and
 * unsent data, passed over a UNIX socket and never received, is closed together
 * with that socket, in the thread that closes it. A signal ends that sleep, so each
 * thread here gets one every OFL_SIGNAL_MS while a job runs. What no signal
 * ends (a file of a FUSE server that does not answer) holds up its own thread
 * alone: there are OFL_THREADS; if all hang, jobs wait. All are made at the start: who
 * makes one later maps its stack, which takes that lock.
 *
 * One thread calls all of these; those that give out a job make no system call but futex
 * wake-ups, take no lock and never sleep. The queue is bounded; a full one is -EAGAIN,
 * counted, and the caller keeps what it has. Give it twice as many slots as there can be
 * descriptors, and that does not happen.
 * Jobs begin in the order they came in; they end in any.
 *
 * o may be NULL: then the call does the work itself, as without this module
 * (tests; no thread could be made).
 */
#ifndef FDD_DAEMON_GATE_OFFLOOP_H
#define FDD_DAEMON_GATE_OFFLOOP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define OFL_THREADS   16
#define OFL_SIGNAL_MS 100

struct memfiles;
struct ofl;
/* How a child ended. is_done becomes 1 last; read it with acquire order. */
struct ofl_exit {
    uint32_t is_done;
    int code, status; /* as in siginfo_t */
};
/* 0 or -errno. is_done likewise. */
struct ofl_ret {
    uint32_t is_done;
    int rc;
};
struct ofl_count {
    uint64_t put, done, refused; /* jobs; refused: the queue was full */
    uint64_t interrupted;        /* jobs that a signal had to end or found at work */
    uint32_t threads, busy;
};

/* A queue of slots jobs (rounded up to a power of two) and its threads.
 * NULL: no memory or no thread. */
struct ofl *ofl_new(uint32_t slots);
/* End: wait at most wait_ns for the jobs that are queued or run. Threads that
 * hang then are left alone with what they use, until the process ends. */
struct ofl *ofl_free(struct ofl *o, uint64_t wait_ns);

/* Readable when files have been made, sealed or read; the caller reads it. -1: o is NULL. */
int ofl_fd(const struct ofl *o);
/* 0, or -EAGAIN: the queue is full, nothing was taken over. */
int ofl_close(struct ofl *o, int fd);
/* Free the first bytes of a file in memory, also while it is mapped; fd stays open.
 * *ret_done becomes 1 afterwards, and must be there until then; read it with
 * acquire order. */
int ofl_punch(struct ofl *o, int fd, size_t bytes, uint32_t *ret_done);
/* memfiles_make(). *m and *ret must be there until *ret is done. */
int ofl_make(struct ofl *o, struct memfiles *m, struct ofl_ret *ret);
/* memfile_seal(); fd stays open until *ret, which must be there until then, is done. */
int ofl_seal(struct ofl *o, int fd, struct ofl_ret *ret);
/* Read n bytes at this place of a file in memory; past its end there are zeros. *to, fd
 * and *ret must be there until *ret is done. */
int ofl_read(struct ofl *o, int fd, void *to, uint32_t n, uint64_t at, struct ofl_ret *ret);
/* -EINPROGRESS: it is not done. */
int ofl_rc(const struct ofl_ret *ret);
/* Collect a child that ended or was killed. *ret must be there until it is done; NULL:
 * the caller does not need it. */
int ofl_reap(struct ofl *o, pid_t pid, struct ofl_exit *ret);

void ofl_count(const struct ofl *o, struct ofl_count *ret);

#endif
