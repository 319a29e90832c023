/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/trace.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "libclient/fdring.h"

/* ---- gate ------------------------------------------------------------------------- */

int
trc_create(const uint64_t boot_id[2], struct trc_seg **ret_seg, int *ret_fd)
{
    struct trc_seg *seg;
    void *p;
    int rc = mem_share(TRC_MEMFD, sizeof(*seg), &p, ret_fd);

    if (rc != 0)
        return rc;
    seg = p;
    seg->version = TRC_VERSION;
    seg->n_step = TRC_STEPS;
    seg->n_event = TRC_EVENTS;
    seg->boot_id[0] = boot_id[0];
    seg->boot_id[1] = boot_id[1];
    fdr_store_release(&seg->magic, TRC_MAGIC);
    *ret_seg = seg;
    return 0;
}

void
trc_destroy(struct trc_seg *seg, int fd)
{
    if (seg != NULL)
        fdr_store_release(&seg->magic, 0);
    mem_unshare(seg, sizeof(*seg), fd);
}

/* ---- worker ------------------------------------------------------------------------ */

static int
trc_check(const struct trc_seg *seg)
{
    return fdr_load_acquire(&seg->magic) == TRC_MAGIC && seg->version == TRC_VERSION &&
        seg->n_step == TRC_STEPS && seg->n_event == TRC_EVENTS;
}

int
trc_join(int fd, struct trc_seg **ret_seg)
{
    struct trc_seg *seg;
    struct stat st;

    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(*seg))
        return -EINVAL;
    seg = mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (seg == MAP_FAILED)
        return -EINVAL;
    if (!trc_check(seg)) {
        (void)munmap(seg, sizeof(*seg));
        return -EINVAL;
    }
    *ret_seg = seg;
    return 0;
}

void
trc_leave(struct trc_seg *seg)
{
    if (seg != NULL)
        (void)munmap(seg, sizeof(*seg));
}

void
trc_init(struct trc *t, struct trc_seg *seg, uint32_t generation)
{
    *t = (struct trc){ .seg = seg, .generation = generation };
    if (seg != NULL)
        t->base = __atomic_load_n(&seg->steps, __ATOMIC_RELAXED);
}

/* Store a record whose first word is its seq. Readers see the old record, none, or the
 * new one, and discard a mixture of both. */
static void
trc_store(uint64_t *dst, const uint64_t *src, size_t n_word, uint64_t seq)
{
    __atomic_store_n(&dst[0], 0, __ATOMIC_RELAXED);
    for (size_t i = 1; i < n_word; i++)
        __atomic_store_n(&dst[i], src[i], __ATOMIC_RELEASE);
    __atomic_store_n(&dst[0], seq, __ATOMIC_RELEASE);
}

void
trc_put_step(struct trc *t, struct trc_step *s)
{
    uint64_t seq;

    if (t == NULL || t->seg == NULL)
        return;
    seq = t->base + s->epoch;
    s->generation = t->generation;
    if (s->epoch > t->epoch)
        t->epoch = s->epoch;
    trc_store((uint64_t *)(void *)&t->seg->step[(seq - 1) % TRC_STEPS],
        (const uint64_t *)(const void *)s, sizeof(*s) / sizeof(uint64_t),
        seq << 1 | ((s->flags & TRC_DONE) != 0));
    if (seq > __atomic_load_n(&t->seg->steps, __ATOMIC_RELAXED))
        __atomic_store_n(&t->seg->steps, seq, __ATOMIC_RELEASE);
}

void
trc_put_event(struct trc *t, uint64_t t_ns, enum trc_kind kind, uint64_t id,
    uint32_t sample, int32_t a, int32_t b)
{
    struct trc_event e = { .t_ns = t_ns,
        .id = id,
        .kind = (uint16_t)kind,
        .sample = (uint16_t)sample,
        .a = a,
        .b = b };
    uint64_t seq;

    if (t == NULL || t->seg == NULL)
        return;
    e.epoch = t->epoch;
    e.generation = t->generation;
    seq = __atomic_load_n(&t->seg->events, __ATOMIC_RELAXED) + 1;
    trc_store((uint64_t *)(void *)&t->seg->event[(seq - 1) % TRC_EVENTS],
        (const uint64_t *)(const void *)&e, sizeof(e) / sizeof(uint64_t), seq << 1 | 1);
    __atomic_store_n(&t->seg->events, seq, __ATOMIC_RELEASE);
}

/* ---- readers ------------------------------------------------------------------------ */

int
trc_look(int fd, const struct trc_seg **ret_seg)
{
    const void *p;
    int rc = mem_look(fd, sizeof(struct trc_seg), &p);

    if (rc == 0 && !trc_check(p)) {
        (void)munmap((void *)(uintptr_t)p, sizeof(struct trc_seg));
        rc = -EPROTO;
    }
    if (rc == 0)
        *ret_seg = p;
    return rc;
}

uint64_t
trc_n_step(const struct trc_seg *seg)
{
    return __atomic_load_n(&seg->steps, __ATOMIC_ACQUIRE);
}

uint64_t
trc_n_event(const struct trc_seg *seg)
{
    return __atomic_load_n(&seg->events, __ATOMIC_ACQUIRE);
}

static int
trc_load(const uint64_t *src, uint64_t *dst, size_t n_word, uint64_t seq)
{
    uint64_t first = __atomic_load_n(&src[0], __ATOMIC_ACQUIRE);

    if (first >> 1 != seq)
        return 0;
    dst[0] = seq;
    /* acquire: the second load of seq may not move before these loads */
    for (size_t i = 1; i < n_word; i++)
        dst[i] = __atomic_load_n(&src[i], __ATOMIC_ACQUIRE);
    return __atomic_load_n(&src[0], __ATOMIC_RELAXED) == first;
}

int
trc_get_step(const struct trc_seg *seg, uint64_t i, struct trc_step *ret)
{
    return i > 0 &&
        trc_load((const uint64_t *)(const void *)&seg->step[(i - 1) % TRC_STEPS],
            (uint64_t *)(void *)ret, sizeof(*ret) / sizeof(uint64_t), i);
}

int
trc_get_event(const struct trc_seg *seg, uint64_t i, struct trc_event *ret)
{
    return i > 0 &&
        trc_load((const uint64_t *)(const void *)&seg->event[(i - 1) % TRC_EVENTS],
            (uint64_t *)(void *)ret, sizeof(*ret) / sizeof(uint64_t), i);
}
