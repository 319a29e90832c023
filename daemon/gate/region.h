/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the gate shares with one client: a sealed memfd, its mapping here
 * and a descriptor that stays with us. The thread of the loop calls.
 *
 * Two kinds:
 *
 *   REGION_THEIRS  the client writes, we map read-only.
 *   REGION_OURS    we write; the client's descriptor is a second open file of
 *                  the memfd, read-only, and the file's mode is 0400 before it
 *                  is sent. The client can neither map it writable nor open
 *                  it again for writing. F_SEAL_FUTURE_WRITE would forbid the
 *                  same and is not used: under it nobody can punch a hole.
 *
 * Who pays. A page of a memfd is charged to the cgroup of the process that
 * touches it first, and lives until the last descriptor or mapping is gone. A
 * client that keeps its descriptor would keep what we touched, and no process
 * can see how long. So:
 *
 *   - Pages come as they are used, never all at the start of a session.
 *   - region_empty() punches the whole file out before it lets go. What the
 *     client touches later is charged to the client.
 *
 * Freeing pages takes longer than an iteration of the loop may (64 MiB: 5 ms), and
 * so does unmapping pages (60 us a MiB); unmapping a file that was emptied takes a
 * few us. So a thread of offloop.h empties the file by its descriptor, which needs
 * no lock of our address space, and the loop unmaps it some ticks later. That is
 * what the descriptor is kept for: MADV_REMOVE works without one, but a region of
 * ours is locked in memory, one of theirs is read-only, and to change either takes
 * the lock that the loop's mmap() waits for.
 *
 * A page that cannot be had (cgroup limit, strict overcommit) must not kill
 * the daemon: a store into it would raise SIGBUS or wait for the OOM killer
 * in the middle of a record. So a store goes only below `ready`, and
 * region_reserve() moves that limit with MADV_POPULATE_WRITE, which reports
 * the failure as an error; the caller treats it as a full ring. It reserves
 * REGION_STEP bytes at a time: one system call for a thousand records of the
 * first pass through a ring, none in later passes, since pages stay.
 */
#ifndef FDD_DAEMON_GATE_REGION_H
#define FDD_DAEMON_GATE_REGION_H

#include <stdint.h>
#include <sys/queue.h>

#define REGION_STEP 65536u       /* bytes reserved at a time */
#define REGION_LATE_MAX 64u      /* regions that wait to be emptied */
#define REGION_LATE_BYTES (64ull << 20) /* and the pages in them */

struct ofl;

enum region_kind { REGION_THEIRS = 0, REGION_OURS };

struct region {
    unsigned char *p;   /* NULL: no region */
    int fd;             /* ours, for emptying */
    uint32_t bytes;     /* a multiple of the page size */
    uint32_t ready;     /* stores below this cannot fail; REGION_OURS only */
    uint64_t t_retry;   /* after a failure: do not ask the kernel before */
};

/* Make the file, map it, seal it, reserve the first step of one of ours.
 * *ret_fd is for the client alone: the caller sends and closes it. Returns 0
 * or -errno; then *r is empty. */
int region_make(struct region *r, const char *name, uint32_t bytes, enum region_kind kind,
    int *ret_fd);
/* A read-only descriptor of the memfd fd, whose mode becomes 0400. -errno. */
int region_share_fd(int fd);
/* Make stores below until safe. 0, or -errno: there is no memory now; then
 * the kernel is not asked again for a while. */
int region_reserve(struct region *r, uint32_t until, uint64_t now_ns);
/* Give all pages back, also while the client has the file, and unmap, all now. */
void region_empty(struct region *r);

/*
 * Regions of sessions that have ended: those that are being emptied, and those
 * whose client has still to read what was written last, since the daemon ended
 * the session. These are emptied some seconds later, the oldest at once when
 * there are too many or too large ones.
 */
struct region_dying;
struct region_bin {
    STAILQ_HEAD(, region_dying) dying; /* being emptied, the oldest first */
    struct { struct region r; uint64_t t_due; } late[REGION_LATE_MAX];
    uint32_t first, n;  /* of late */
    uint64_t bytes;     /* in those: sum of ready */
};

void region_bin_init(struct region_bin *b);
/* The daemon ends, and ofl has: unmap, and leave the contents to clients that still
 * read. What a thread that hangs was to empty is left alone. */
void region_bin_fini(struct region_bin *b);
/* Empty *r, off the loop; ofl NULL: now. Takes it over. */
void region_drop(struct region_bin *b, struct region *r, struct ofl *ofl);
/* The same when its client has had time to read. */
void region_drop_late(struct region_bin *b, struct region *r, uint64_t now_ns,
    struct ofl *ofl);
/* Empty what is due, unmap what is empty. */
void region_bin_tick(struct region_bin *b, uint64_t now_ns, struct ofl *ofl);

#endif
