/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/region.h"

#include <errno.h>
#include <fcntl.h>
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
    int share = fd;
    int rc = 0;
    void *p;

    memset(r, 0, sizeof(*r));
    if (fd < 0)
        return fd;
    p = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        rc = -errno;
        goto close_fd;
    }
    r->p = p;
    r->bytes = bytes;
    if (kind == REGION_OURS) {
        /* Best effort: ordinary users may lock 8 MiB. */
        (void)mlock2(p, bytes, MLOCK_ONFAULT);
        rc = region_reserve(r, 1, 0);
        share = rc == 0 ? region_share_fd(fd) : rc;
    }
    if (share < 0) {
        rc = share;
        region_empty(r, NULL);
        goto close_fd;
    }
    *ret_fd = share;
    if (share == fd)
        return 0;

close_fd:
    (void)close(fd);
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

void
region_empty(struct region *r, struct ofl *ofl)
{
    if (r->p != NULL && ofl_empty(ofl, r->p, r->bytes) != 0)
        (void)ofl_empty(NULL, r->p, r->bytes);
    memset(r, 0, sizeof(*r));
}

/* ---- later --------------------------------------------------------------- */

static struct region
region_late_take(struct region_late *l)
{
    struct region r = l->at[l->first].r;

    ASSERT(l->n != 0);
    l->first = (l->first + 1) % REGION_LATE_MAX;
    l->n--;
    l->bytes -= r.ready;
    return r;
}

void
region_empty_later(struct region_late *l, struct region *r, uint64_t now_ns,
    struct ofl *ofl)
{
    uint32_t i;

    if (r->p == NULL)
        return;
    while (l->n == REGION_LATE_MAX || (l->n != 0 && l->bytes + r->ready > REGION_LATE_BYTES)) {
        struct region old = region_late_take(l);

        region_empty(&old, ofl);
    }
    i = (l->first + l->n++) % REGION_LATE_MAX;
    l->at[i].r = *r;
    l->at[i].t_due = now_ns + REGION_LATE_NS;
    l->bytes += r->ready;
    memset(r, 0, sizeof(*r));
}

void
region_late_tick(struct region_late *l, uint64_t now_ns, struct ofl *ofl)
{
    while (l->n != 0 && now_ns >= l->at[l->first].t_due) {
        struct region r = region_late_take(l);

        region_empty(&r, ofl);
    }
}

void
region_late_fini(struct region_late *l)
{
    while (l->n != 0) {
        struct region r = region_late_take(l);

        (void)munmap(r.p, r.bytes);
    }
}
