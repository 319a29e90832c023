/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the gate shares with one client: a sealed memfd, its mapping in the gate
 * and a descriptor that the gate keeps. Called by the loop's thread.
 *
 * Two kinds:
 *
 *   MEMFILE_THEIRS  the client writes, the gate maps it read-only. Punching a hole
 *                  into the file blocks a reader, in a page fault, for as long as
 *                  it takes. So once the client has mapped it, region_seal() forbids
 *                  holes (F_SEAL_FUTURE_WRITE: existing writable mappings stay so),
 *                  and nothing is read before.
 *   MEMFILE_OURS   the gate writes; the client's descriptor is a second open file of
 *                  the memfd, read-only, and the file's mode is 0400 before it
 *                  is sent. The client can neither map it writable nor open
 *                  it again for writing. F_SEAL_FUTURE_WRITE would forbid the
 *                  same and is not used: with it the gate could not punch holes either.
 *
 * Charging. A page of a memfd is charged to the cgroup of the process that touches it
 * first, and exists until the last descriptor and mapping are closed. A client that keeps
 * its descriptor would keep the pages that the gate touched, and no process can see for
 * how long. So:
 *
 *   - Pages are allocated as they are used, never all at the start of a session.
 *   - region_empty() punches out a complete file of ours before it closes it. Pages that
 *     the client touches later are charged to the client.
 *   - One of theirs cannot be punched once it is sealed, and before that a client could
 *     make it wait for ever: a write that faults in a page holds the file's lock. There
 *     the gate allocates no page: nothing is read before the seal, and then a page that
 *     the client never wrote is read by pread(), which finds zeros, and not by the
 *     mapping. So every page of it is the client's.
 *
 * pread() waits for the lock of a page that is being allocated or swapped in: for as long
 * as a low-priority client that holds it gets no processor. So region_read() leaves it to
 * a thread of offloop.h.
 *
 * Freeing pages takes longer than a loop iteration may (64 MiB: 5 ms), and so does
 * unmapping pages (60 us per MiB); unmapping an emptied file takes a few us. So a thread
 * of offloop.h empties the file by its descriptor, which needs no lock of the gate's
 * address space, and the loop unmaps it some ticks later. One of theirs, which is not
 * emptied, is unmapped in pieces, over several ticks. The descriptor is kept for the
 * emptying: MADV_REMOVE works without one, but not on a mapping that is locked in memory
 * (OURS) or read-only (THEIRS), and to change either takes the lock that the loop's
 * mmap() waits for.
 *
 * A page that cannot be allocated (cgroup limit, strict overcommit) must not kill the
 * daemon: a store into it would raise SIGBUS or wait for the OOM killer in the middle of
 * a record. So stores go only below `ready`, and region_reserve() raises that limit with
 * MADV_POPULATE_WRITE, which reports the failure as an error; the caller treats it as a
 * full ring. It reserves REGION_STEP bytes at a time: one system call for a thousand
 * records in the first pass through a ring, none in later passes, since pages stay.
 */
#ifndef FDD_DAEMON_GATE_REGION_H
#define FDD_DAEMON_GATE_REGION_H

#include <stdint.h>
#include <sys/queue.h>

#include "daemon/gate/memfile.h"
#include "libclient/fdring.h"

#define REGION_COPY_MAX   65536u
#define REGION_STEP       MEMFILE_STEP  /* bytes reserved at a time */
#define REGION_LATE_MAX   64u           /* regions waiting to be emptied late */
#define REGION_LATE_BYTES (64ull << 20) /* limit of the pages in them */

struct ofl;
struct ofl_ret;
struct region_reading;

struct region {
    unsigned char *p; /* NULL: no region */
    int fd;           /* the gate's descriptor, for emptying */
    uint32_t bytes;   /* a multiple of the page size */
    uint32_t ready;   /* MEMFILE_OURS: stores below this offset cannot fail */
    uint32_t page_shift;
    uint64_t t_retry;       /* after a failure: do not ask the kernel before this time */
    uint64_t *there;        /* MEMFILE_THEIRS: a bit per page seen in memory; or NULL */
    struct ofl_ret *sealed; /* result of region_seal() */
    struct region_reading *read; /* state of region_read() */
};

/* Maps a file and reserves the first step of one of ours. Takes over f->fd, leaves
 * f->share. Returns 0, or -errno: then *r is empty, and both descriptors are closed. */
int region_map(struct region *r, struct memfile *f);
/* Makes stores below offset `until` safe. Returns 0, or -errno: there is no memory now;
 * then the kernel is not asked again for a while. */
int region_reserve(struct region *r, uint32_t until, uint64_t now_ns);
/* Forbids holes and new writable mappings of one of theirs, off the loop; ofl NULL: at
 * once. Returns 0, or -errno: the job was not queued. *n_user, -EBUSY: as ofl_seal(). */
int region_seal(struct region *r, uint32_t *n_user, struct ofl *ofl);
/* Result of region_seal(): -EINPROGRESS, 0, or -errno. -EINVAL: the kernel has no such
 * seal. */
int region_sealed(const struct region *r);
/* Are all pages of these n bytes (1..REGION_COPY_MAX) of one of theirs in memory? Asks
 * the kernel. */
int region_find(struct region *r, uint64_t at, uint32_t n);
/* Copies bytes whose pages are not all in memory, off the loop; ofl NULL: at once.
 * Returns 0: copied; -EINPROGRESS: when offloop's descriptor becomes readable, call again
 * with the same place (with another one, the bytes read are lost); or -errno. */
int region_read(struct region *r, void *to, uint64_t at, uint32_t n, struct ofl *ofl);
/* Is a thread reading from it? */
int region_is_reading(const struct region *r);
/* As region_find(), from earlier answers of the kernel only. */
static inline int
region_is_there(const struct region *r, uint64_t at, uint32_t n)
{
    uint64_t i = at >> r->page_shift, last = (at + n - 1) >> r->page_shift;

    if (r->there == NULL)
        return 0;
    while (r->there[i / 64] >> (i % 64) & 1) {
        if (i++ == last)
            return 1;
    }
    return 0;
}
/* Gives all our pages back, even while the client has the file, and unmaps it, all at
 * once. */
void region_empty(struct region *r);

/*
 * Regions of ended sessions: those being emptied, and those whose client has still to
 * read the last records, since the daemon ended the session. The latter are emptied some
 * seconds later; the oldest ones at once when there are too many or they are too large.
 */
struct region_dying;
struct region_bin {
    STAILQ_HEAD(, region_dying) dying; /* being emptied, in no order */
    uint32_t n_vain; /* ticks since one was unmapped or came in, up to a limit */
    struct {
        struct region r;
        uint64_t t_due;
    } late[REGION_LATE_MAX];
    uint32_t first, n; /* of late[], a ring: index of the oldest, number */
    uint64_t bytes;    /* sum of `ready` of those in late[] */
};

void region_bin_init(struct region_bin *b);
/* At the end of the daemon, after ofl_free(): unmaps the late ones and leaves their
 * contents to clients that still read. A region that a hung thread was to empty is left
 * as it is. */
void region_bin_fini(struct region_bin *b);
/* Empties *r off the loop, and unmaps it later; ofl NULL: at once. Takes *r over. */
void region_drop(struct region_bin *b, struct region *r, struct ofl *ofl);
/* As region_drop(), after its client has had time to read. */
void
region_drop_late(struct region_bin *b, struct region *r, uint64_t now_ns, struct ofl *ofl);
/* Is there more to unmap in the next ticks? No, if threads use all regions for long: then
 * a tick now and then is enough. */
int region_bin_has_dying(const struct region_bin *b);
/* Empties regions that are due, unmaps empty ones. */
void region_bin_tick(struct region_bin *b, uint64_t now_ns, struct ofl *ofl);

#endif
