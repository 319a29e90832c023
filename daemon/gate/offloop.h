/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for system calls that may sleep, off the gate's loop: closing a descriptor that
 * may be the last reference, making a memfd, emptying, sealing or reading one that
 * another process holds locked, reaping a child that ends slowly.
 *
 * No job changes a mapping. The address space has one lock: a thread that holds it and
 * waits for a processor would hold up every mmap() of the loop, and page faults too.
 *
 * A client can make close() sleep: a TCP socket with SO_LINGER and unsent data, passed
 * over a UNIX socket and never received, is closed together with that socket, in the
 * thread that closes it. A signal ends that sleep, so each thread here gets one every
 * OFL_SIGNAL_MS while a job runs. A sleep that no signal ends blocks only its own thread,
 * of OFL_THREADS; if all hang, jobs wait.
 *
 * Such a sleep that a client can cause is the sealing of its memory: a write to it that
 * faults in a page of a FUSE server holds the file's lock until that server answers. So at
 * most OFL_SEALS_USER seals of one user, and OFL_SEALS in all, are queued or running. The
 * threads beyond them do the other jobs.
 *
 * All threads are made at the start: to make one later would map its stack, which takes
 * the address space's lock.
 *
 * One thread calls all functions. Those that queue a job make no system call but futex
 * wake-ups, take no lock and never sleep. The queue is bounded; when it is full they
 * return -EAGAIN, which is counted, and the caller keeps its descriptor. With twice as
 * many slots as there can be descriptors that does not happen.
 * Jobs begin in the order in which they were queued, and end in any order.
 *
 * o may be NULL: then the call does the work itself (tests).
 */
#ifndef FDD_DAEMON_GATE_OFFLOOP_H
#define FDD_DAEMON_GATE_OFFLOOP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define OFL_THREADS    16
#define OFL_SEALS      12
#define OFL_SEALS_USER 2
#define OFL_SIGNAL_MS  100

struct memfiles;
struct ofl;
/* How a child ended. is_done is set to 1 last; read it with acquire order. */
struct ofl_exit {
    uint32_t is_done;
    int code, status; /* as in siginfo_t */
};
/* Result of a job: rc is 0 or -errno. is_done as in ofl_exit. */
struct ofl_ret {
    uint32_t is_done;
    int rc;
};
struct ofl_count {
    uint64_t put, done, refused; /* jobs; refused: the queue was full */
    uint64_t interrupted;        /* jobs during which the timer's signal came */
    uint32_t threads, busy;
};

/* Makes a queue of `slots` jobs (rounded up to a power of two) and its threads. NULL: no
 * memory or no thread. */
struct ofl *ofl_new(uint32_t slots);
/* Ends: waits at most wait_ns for queued and running jobs. Threads that still hang are
 * left behind with the memory they use, until the process ends. */
struct ofl *ofl_free(struct ofl *o, uint64_t wait_ns);

/* Descriptor that becomes readable when memfds have been made, sealed or read; the caller
 * reads it. -1: o is NULL. */
int ofl_fd(const struct ofl *o);
/* Returns 0, or -EAGAIN: the queue is full and the caller keeps fd. */
int ofl_close(struct ofl *o, int fd);
/* Frees the first bytes of a memfd, also while it is mapped; fd stays open. Then sets
 * *ret_done to 1, which must stay valid until then; read it with acquire order. */
int ofl_punch(struct ofl *o, int fd, size_t bytes, uint32_t *ret_done);
/* Runs memfiles_make(). *m and *ret must stay valid until *ret is done. */
int ofl_make(struct ofl *o, struct memfiles *m, struct ofl_ret *ret);
/* Runs memfile_seal(). fd stays open, and *ret valid, until *ret is done. *n_user is the
 * number of seals of its user that are not done; a thread lowers it. Also returns -EBUSY:
 * there are too many; when ofl_fd() becomes readable, the caller may try again. */
int ofl_seal(struct ofl *o, int fd, uint32_t *n_user, struct ofl_ret *ret);
/* Reads n bytes at offset `at` of a memfd; past its end there are zeros. *to, fd and *ret
 * must stay valid until *ret is done. */
int ofl_read(struct ofl *o, int fd, void *to, uint32_t n, uint64_t at, struct ofl_ret *ret);
/* The job's rc; -EINPROGRESS: it is not done. */
int ofl_rc(const struct ofl_ret *ret);
/* Reaps a child that ended or was killed. *ret must stay valid until it is done; NULL:
 * the caller does not need it. */
int ofl_reap(struct ofl *o, pid_t pid, struct ofl_exit *ret);

void ofl_count(const struct ofl *o, struct ofl_count *ret);

#endif
