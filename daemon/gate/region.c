/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/obj.h"
#include "daemon/gate/offloop.h"

/* Missing in the oldest headers and kernels that fdd is built for. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define REGION_RETRY_NS (10 * CLK_MS) /* a failing charge may first try to reclaim */
#define REGION_LATE_NS  (5 * CLK_S)   /* time for a client to read its last records */
#define REGION_UNMAPS   16u           /* looked at per tick; unmapping takes some 5 us */
#define REGION_VAIN     500u          /* ticks in which nothing could be unmapped */
#define REGION_PIECE    (1u << 20)    /* unmapping it with pages takes some 60 us */
#define REGION_PIECES   4u            /* of them unmapped per tick */

/* A region whose session has ended. */
struct region_dying {
    STAILQ_ENTRY(region_dying) next;
    struct region r;
    uint32_t is_empty; /* set to 1 by another thread */
};

/* A read by a thread, running or done. */
struct region_reading {
    struct ofl_ret ret;
    uint64_t at;
    uint32_t n;
    unsigned char bytes[];
};

int
region_map(struct region *r, struct memfile *f)
{
    int prot = f->kind == MEMFILE_OURS ? PROT_READ | PROT_WRITE : PROT_READ;
    void *p = mmap(NULL, f->bytes, prot, MAP_SHARED, f->fd, 0);
    int rc = 0;

    memset(r, 0, sizeof(*r));
    if (p == MAP_FAILED) {
        rc = -errno;
        memfile_close(f);
        return rc;
    }
    r->p = p;
    r->fd = f->fd;
    r->bytes = f->bytes;
    f->fd = -1;
    while (1l << r->page_shift < sysconf(_SC_PAGESIZE))
        r->page_shift++;
    if (f->kind == MEMFILE_OURS) {
        /* Best effort: ordinary users may lock only 8 MiB. */
        (void)mlock2(p, r->bytes, MLOCK_ONFAULT);
        rc = region_reserve(r, 1, 0);
    } else {
        r->there = calloc((r->bytes >> r->page_shift) / 64 + 1, sizeof(*r->there));
        rc = r->there != NULL ? 0 : -ENOMEM;
    }
    if (rc != 0) {
        region_empty(r);
        memfile_close(f);
    }
    return rc;
}

int
region_reserve(struct region *r, uint32_t until, uint64_t now_ns)
{
    uint64_t end;
    int rc;

    if (until <= r->ready)
        return 0;
    ASSERT(until <= r->bytes);
    if (now_ns < r->t_retry)
        return -ENOMEM;
    end = ((uint64_t)until + REGION_STEP - 1) / REGION_STEP * REGION_STEP;
    if (end > r->bytes)
        end = r->bytes;
    do
        rc = madvise(r->p + r->ready, (size_t)(end - r->ready), MADV_POPULATE_WRITE);
    while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        r->t_retry = now_ns + REGION_RETRY_NS;
        return -errno;
    }
    r->ready = (uint32_t)end;
    return 0;
}

/* Unmaps r and closes its descriptor off the loop, since that may be the last reference.
 * 0 or -EAGAIN. */
static int
region_unmap(struct region *r, struct ofl *ofl)
{
    if (r->p != NULL && r->bytes != 0)
        (void)munmap(r->p, r->bytes);
    r->p = NULL;
    free(r->there);
    free(r->sealed);
    free(r->read);
    r->there = NULL;
    r->sealed = NULL;
    r->read = NULL;
    return ofl_close(ofl, r->fd);
}

/* ---- what a client writes -------------------------------------------------- */

int
region_seal(struct region *r, uint32_t *n_user, struct ofl *ofl)
{
    struct ofl_ret *s = calloc(1, sizeof(*s));
    int rc = s != NULL ? ofl_seal(ofl, r->fd, n_user, s) : -ENOMEM;

    if (rc == 0)
        r->sealed = s;
    else
        free(s);
    return rc;
}

int
region_sealed(const struct region *r)
{
    return ofl_rc(r->sealed);
}

/* Notes which of n pages are in memory. */
static void
region_look(struct region *r, uint64_t first, uint32_t n)
{
    unsigned char is_there[REGION_COPY_MAX / 4096 + 1];

    ASSERT(n <= sizeof(is_there));
    if (r->there == NULL ||
        mincore(r->p + (first << r->page_shift), (size_t)n << r->page_shift, is_there) != 0)
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (is_there[i] & 1)
            r->there[(first + i) / 64] |= 1ull << ((first + i) % 64);
    }
}

int
region_find(struct region *r, uint64_t at, uint32_t n)
{
    uint64_t first = at >> r->page_shift, last = (at + n - 1) >> r->page_shift;

    region_look(r, first, (uint32_t)(last - first) + 1);
    return region_is_there(r, at, n);
}

int
region_is_reading(const struct region *r)
{
    return r->read != NULL && ofl_rc(&r->read->ret) == -EINPROGRESS;
}

/* Queues the read; r->read is NULL before. */
static int
region_begin_read(struct region *r, uint64_t at, uint32_t n, struct ofl *ofl)
{
    struct region_reading *d = calloc(1, sizeof(*d) + n);
    int rc;

    if (d == NULL)
        return -ENOMEM;
    d->at = at;
    d->n = n;
    rc = ofl_read(ofl, r->fd, d->bytes, n, at, &d->ret);
    if (rc == 0)
        r->read = d;
    else
        free(d);
    return rc;
}

int
region_read(struct region *r, void *to, uint64_t at, uint32_t n, struct ofl *ofl)
{
    struct region_reading *d = r->read;
    int rc;

    if (region_is_reading(r))
        return -EINPROGRESS;
    if (d == NULL || d->at != at || d->n != n) {
        free(d);
        r->read = NULL;
        rc = region_begin_read(r, at, n, ofl);
        if (rc != 0)
            return rc;
        d = r->read;
    }
    rc = ofl_rc(&d->ret);
    if (rc == -EINPROGRESS)
        return rc;
    if (rc == 0)
        memcpy(to, d->bytes, n);
    free(d);
    r->read = NULL;
    return rc;
}

/* Is another thread using r? */
static int
region_is_lent(const struct region *r)
{
    return (r->sealed != NULL && region_sealed(r) == -EINPROGRESS) || region_is_reading(r);
}

/* Can it have pages that the gate allocated? One of theirs cannot, unless the kernel has
 * no seal for it. To punch it could take for ever: a client can hold its lock. */
static int
region_is_charged(const struct region *r)
{
    return r->there == NULL || (r->sealed != NULL && region_sealed(r) == -EINVAL);
}

void
region_empty(struct region *r)
{
    uint32_t is_empty = 0;

    /* If another thread still uses it, the end of the process frees it. */
    if (r->p != NULL && !region_is_lent(r)) {
        if (region_is_charged(r))
            (void)ofl_punch(NULL, r->fd, r->bytes, &is_empty);
        (void)region_unmap(r, NULL);
    }
    memset(r, 0, sizeof(*r));
}

/* ---- after the session --------------------------------------------------- */

void
region_bin_init(struct region_bin *b)
{
    memset(b, 0, sizeof(*b));
    STAILQ_INIT(&b->dying);
}

void
region_drop(struct region_bin *b, struct region *r, struct ofl *ofl)
{
    struct region_dying *d;

    if (r->p == NULL)
        return;
    d = ofl != NULL ? calloc(1, sizeof(*d)) : NULL;
    if (d != NULL && !region_is_charged(r)) {
        d->is_empty = 1;
    } else if (d == NULL || ofl_punch(ofl, r->fd, r->bytes, &d->is_empty) != 0) {
        free(d);
        region_empty(r);
        return;
    }
    d->r = *r;
    STAILQ_INSERT_TAIL(&b->dying, d, next);
    b->n_vain = 0;
    memset(r, 0, sizeof(*r));
}

/* Has it been emptied, and does no thread use it? */
static int
region_is_dead(const struct region_dying *d)
{
    /* pairs with the store of offloop's thread */
    return __atomic_load_n(&d->is_empty, __ATOMIC_ACQUIRE) && !region_is_lent(&d->r);
}

/* Does our mapping have pages in this range? One that was emptied has none. */
static int
region_has_pages(const struct region *r, uint32_t from, uint32_t to)
{
    uint64_t i = from >> r->page_shift, end = ((uint64_t)to - 1) >> r->page_shift;

    while (r->there != NULL && i <= end) {
        if (r->there[i / 64] != 0)
            return 1;
        i += 64;
    }
    return 0;
}

/* Unmaps from the end, at most *pieces pieces with pages. Returns 1 when all is
 * unmapped. */
static int
region_unmap_some(struct region *r, uint32_t *pieces)
{
    uint32_t keep = r->bytes;

    while (keep != 0) {
        uint32_t from = (keep - 1) / REGION_PIECE * REGION_PIECE;
        uint32_t full = (uint32_t)region_has_pages(r, from, keep);

        if (full > *pieces)
            break;
        *pieces -= full;
        keep = from;
    }
    if (keep != r->bytes)
        (void)munmap(r->p + keep, r->bytes - keep);
    r->bytes = keep;
    return keep == 0;
}

/* Looks at the first `max` regions. Those that a thread still uses go to the end of the
 * list: one that it uses for ever must not hold up the others. Returns the number of those
 * unmapped, or begun to be. */
static uint32_t
region_bury(struct region_bin *b, uint32_t max, uint32_t pieces, struct ofl *ofl)
{
    const struct region_dying *used = NULL; /* the first of them */
    struct region_dying *d;
    uint32_t n = 0;

    while (max-- != 0 && (d = STAILQ_FIRST(&b->dying)) != NULL && d != used) {
        if (region_is_dead(d)) {
            n++;
            if (!region_unmap_some(&d->r, &pieces) || region_unmap(&d->r, ofl) != 0)
                break;
            STAILQ_REMOVE_HEAD(&b->dying, next);
            free(d);
            continue;
        }
        STAILQ_REMOVE_HEAD(&b->dying, next);
        STAILQ_INSERT_TAIL(&b->dying, d, next);
        if (used == NULL)
            used = d;
    }
    return n;
}

static struct region
region_late_take(struct region_bin *b)
{
    struct region r = b->late[b->first].r;

    ASSERT(b->n != 0);
    b->first = (b->first + 1) % REGION_LATE_MAX;
    b->n--;
    b->bytes -= r.ready;
    return r;
}

void
region_drop_late(struct region_bin *b, struct region *r, uint64_t now_ns, struct ofl *ofl)
{
    uint32_t i;

    if (r->p == NULL)
        return;
    while (b->n == REGION_LATE_MAX ||
        (b->n != 0 && b->bytes + r->ready > REGION_LATE_BYTES)) {
        struct region old = region_late_take(b);

        region_drop(b, &old, ofl);
    }
    i = (b->first + b->n++) % REGION_LATE_MAX;
    b->late[i].r = *r;
    b->late[i].t_due = now_ns + REGION_LATE_NS;
    b->bytes += r->ready;
    memset(r, 0, sizeof(*r));
}

int
region_bin_has_dying(const struct region_bin *b)
{
    return !STAILQ_EMPTY(&b->dying) && b->n_vain < REGION_VAIN;
}

void
region_bin_tick(struct region_bin *b, uint64_t now_ns, struct ofl *ofl)
{
    while (b->n != 0 && now_ns >= b->late[b->first].t_due) {
        struct region r = region_late_take(b);

        region_drop(b, &r, ofl);
    }
    if (region_bury(b, REGION_UNMAPS, REGION_PIECES, ofl) != 0)
        b->n_vain = 0;
    else if (b->n_vain < REGION_VAIN)
        b->n_vain++;
}

void
region_bin_fini(struct region_bin *b)
{
    while (b->n != 0) {
        struct region r = region_late_take(b);

        (void)region_unmap(&r, NULL);
    }
    (void)region_bury(b, UINT32_MAX, UINT32_MAX, NULL);
}
