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
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/gate/offloop.h"

/* Newer than the oldest headers and kernels we build on. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define REGION_RETRY_NS (10 * CLK_MS) /* a failing charge may try to reclaim first */
#define REGION_LATE_NS (5 * CLK_S)    /* for a client to read its last records */
#define REGION_UNMAPS 16u             /* in a tick: some 5 us each */

/* Has left its session. */
struct region_dying {
    STAILQ_ENTRY(region_dying) next;
    struct region r;
    uint32_t is_empty;                /* another thread sets it */
};

static int
region_memfd(const char *name, uint32_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    int rc;

    if (fd < 0 && errno == EINVAL) /* kernel before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        rc = -errno;
        (void)close(fd);
        return rc;
    }
    return fd;
}

int
region_share_fd(int fd)
{
    return fchmod(fd, 0400) == 0 ? mem_reopen(fd) : -errno;
}

int
region_make(struct region *r, const char *name, uint32_t bytes, enum region_kind kind,
    int *ret_fd)
{
    int prot = kind == REGION_OURS ? PROT_READ | PROT_WRITE : PROT_READ;
    int fd = region_memfd(name, bytes);
    int rc = 0, share;
    void *p;

    memset(r, 0, sizeof(*r));
    if (fd < 0)
        return fd;
    p = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        rc = -errno;
        (void)close(fd);
        return rc;
    }
    r->p = p;
    r->fd = fd;
    r->bytes = bytes;
    if (kind == REGION_OURS) {
        /* Best effort: ordinary users may lock 8 MiB. */
        (void)mlock2(p, bytes, MLOCK_ONFAULT);
        rc = region_reserve(r, 1, 0);
        share = rc == 0 ? region_share_fd(fd) : rc;
    } else {
        share = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (share < 0)
            share = -errno;
    }
    if (share < 0)
        region_empty(r);
    else
        *ret_fd = share;
    return share < 0 ? share : 0;
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

/* Its last reference may go with it: not on the loop. 0, or -EAGAIN. */
static int
region_unmap(struct region *r, struct ofl *ofl)
{
    if (r->p != NULL)
        (void)munmap(r->p, r->bytes);
    r->p = NULL;
    return ofl_close(ofl, r->fd);
}

void
region_empty(struct region *r)
{
    uint32_t is_empty = 0;

    if (r->p != NULL) {
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
    if (d == NULL || ofl_punch(ofl, r->fd, r->bytes, &d->is_empty) != 0) {
        free(d);
        region_empty(r);
        return;
    }
    d->r = *r;
    STAILQ_INSERT_TAIL(&b->dying, d, next);
    memset(r, 0, sizeof(*r));
}

/* One that has been emptied; NULL: none is first. */
static struct region_dying *
region_dead(struct region_bin *b)
{
    struct region_dying *d = STAILQ_FIRST(&b->dying);

    /* pairs with the store of offloop's thread */
    return d != NULL && __atomic_load_n(&d->is_empty, __ATOMIC_ACQUIRE) ? d : NULL;
}

static void
region_bury(struct region_bin *b, uint32_t max, struct ofl *ofl)
{
    struct region_dying *d;

    while (max-- != 0 && (d = region_dead(b)) != NULL && region_unmap(&d->r, ofl) == 0) {
        STAILQ_REMOVE_HEAD(&b->dying, next);
        free(d);
    }
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
    while (b->n == REGION_LATE_MAX || (b->n != 0 && b->bytes + r->ready > REGION_LATE_BYTES)) {
        struct region old = region_late_take(b);

        region_drop(b, &old, ofl);
    }
    i = (b->first + b->n++) % REGION_LATE_MAX;
    b->late[i].r = *r;
    b->late[i].t_due = now_ns + REGION_LATE_NS;
    b->bytes += r->ready;
    memset(r, 0, sizeof(*r));
}

void
region_bin_tick(struct region_bin *b, uint64_t now_ns, struct ofl *ofl)
{
    while (b->n != 0 && now_ns >= b->late[b->first].t_due) {
        struct region r = region_late_take(b);

        region_drop(b, &r, ofl);
    }
    region_bury(b, REGION_UNMAPS, ofl);
}

void
region_bin_fini(struct region_bin *b)
{
    while (b->n != 0) {
        struct region r = region_late_take(b);

        (void)region_unmap(&r, NULL);
    }
    region_bury(b, UINT32_MAX, NULL);
}
