/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/link.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/obj.h"

/* Limits of waiting for parameters that are half written. */
#define LNK_PAR_TRIES   100
#define LNK_PAR_WAIT_NS 50000u

/* Make shared memory under a name that exists only between shm_open and shm_unlink.
 * Every user may make files in that folder: so the name cannot be guessed, O_EXCL
 * rejects an existing one, and the object opened must be ours. */
static int
lnk_shm(void)
{
    char name[64];
    uint64_t r[2];
    struct stat st;
    int fd, rc = 0;

    if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
        return -EIO;
    (void)snprintf(name, sizeof(name), "/fdd-link-%016llx%016llx",
        (unsigned long long)r[0], (unsigned long long)r[1]);
    fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return -errno;
    (void)shm_unlink(name);
    if (fstat(fd, &st) != 0)
        rc = -errno;
    else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        rc = -EPERM;
    if (rc == 0)
        return fd;
    (void)close(fd);
    return rc;
}

int
lnk_create(const struct par *par, uint64_t generation, struct lnk_seg **ret_seg, int *ret_fd)
{
    struct lnk_seg *seg;
    int fd = lnk_shm();
    int rc;

    if (fd < 0)
        return fd;
    /* Take the pages now: a full /dev/shm must be an error here, not a
     * SIGBUS later. */
    rc = posix_fallocate(fd, 0, (off_t)sizeof(*seg));
    if (rc != 0) {
        rc = -rc;
        goto close_fd;
    }
    seg = mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (seg == MAP_FAILED) {
        rc = -errno;
        goto close_fd;
    }
    if (sem_init(&seg->worker_sem, 1, 0) != 0) {
        rc = -errno;
        goto unmap;
    }
    seg->version = LNK_VERSION;
    seg->bytes = sizeof(*seg);
    seg->generation = generation;
    seg->gate_pid = (int32_t)getpid();
    seg->n_group = 1;
    if (par != NULL)
        memcpy(&seg->par, par, sizeof(*par));
    /* magic last: a segment that has it is complete */
    fdr_store_release(&seg->magic, LNK_MAGIC);
    *ret_seg = seg;
    *ret_fd = fd;
    return 0;

unmap:
    (void)munmap(seg, sizeof(*seg));
close_fd:
    (void)close(fd);
    return rc;
}

/* Copy 64-bit words that the other side may read or write at the same time. */
static void
lnk_copy_par(struct par *dst, const struct par *src)
{
    uint64_t *d = (uint64_t *)(void *)dst;
    const uint64_t *s = (const uint64_t *)(const void *)src;

    _Static_assert(sizeof(*dst) % sizeof(*d) == 0, "whole words");
    for (size_t i = 0; i < sizeof(*dst) / sizeof(*d); i++)
        __atomic_store_n(&d[i], __atomic_load_n(&s[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void
lnk_put_par(struct lnk_seg *seg, const struct par *par)
{
    /* an exchange, so that the stores to par come after it */
    uint32_t seq = __atomic_fetch_add(&seg->par_seq, 1, __ATOMIC_ACQ_REL);

    lnk_copy_par(&seg->par, par);
    fdr_store_release(&seg->par_seq, seq + 2);
}

int
lnk_get_par(struct lnk_seg *seg, struct par *ret)
{
    for (int i = 0; i < LNK_PAR_TRIES; i++) {
        uint32_t seq = fdr_load_acquire(&seg->par_seq);

        if (seq % 2 == 0) {
            lnk_copy_par(ret, &seg->par);
            /* an exchange, so that the loads of par come before it */
            if (__atomic_fetch_add(&seg->par_seq, 0, __ATOMIC_ACQ_REL) == seq)
                return 0;
        }
        clk_sleep_ns(LNK_PAR_WAIT_NS);
    }
    return -EAGAIN;
}

int
lnk_join(int fd, struct lnk_seg **ret_seg)
{
    struct lnk_seg *seg;
    struct stat st;

    if (fstat(fd, &st) != 0)
        return -errno;
    if (st.st_size != (off_t)sizeof(*seg))
        return -EINVAL;
    seg = mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (seg == MAP_FAILED)
        return -errno;
    if (fdr_load_acquire(&seg->magic) != LNK_MAGIC || seg->version != LNK_VERSION ||
        seg->bytes != sizeof(*seg)) {
        (void)munmap(seg, sizeof(*seg));
        return -EINVAL;
    }
    *ret_seg = seg;
    return 0;
}

void
lnk_leave(struct lnk_seg *seg)
{
    if (seg != NULL)
        (void)munmap(seg, sizeof(*seg));
}

void
lnk_init_gate(struct lnk *l, struct lnk_seg *seg, int efd)
{
    l->seg = seg;
    l->efd = efd;
    l->is_gate = 1;
    l->bad = 0;
    fdr_prod_init(&l->out, seg->down, &seg->down_tail.v, &seg->down_head.v,
        LNK_DOWN_SLOTS, FDP_SLOT);
    fdr_cons_init(&l->in, seg->up, &seg->up_tail.v, &seg->up_head.v, LNK_UP_SLOTS, FDP_SLOT);
}

void
lnk_init_worker(struct lnk *l, struct lnk_seg *seg, int efd)
{
    l->seg = seg;
    l->efd = efd;
    l->is_gate = 0;
    l->bad = 0;
    fdr_prod_init(&l->out, seg->up, &seg->up_tail.v, &seg->up_head.v, LNK_UP_SLOTS,
        FDP_SLOT);
    fdr_cons_init(&l->in, seg->down, &seg->down_tail.v, &seg->down_head.v, LNK_DOWN_SLOTS,
        FDP_SLOT);
}

static void
lnk_pad(struct fdr_prod *p)
{
    uint32_t n = p->n_slot - (p->tail & (p->n_slot - 1));

    /* n_slot of a record is 8 bits wide: at most 255 slots of padding */
    while (n > 0) {
        struct fdp_rec *pad = fdr_prod_slot(p, p->tail);
        uint32_t k = n < FDP_REC_MAX_SLOTS ? n : FDP_REC_MAX_SLOTS;

        memset(pad, 0, sizeof(*pad));
        pad->type = FDP_T_PAD;
        pad->n_slot = (uint8_t)k;
        p->tail += k;
        n -= k;
    }
}

/* Atomic: in the worker, one thread reads the link and another one writes to it. */
static void
lnk_spoil(struct lnk *l)
{
    __atomic_store_n(&l->bad, 1, __ATOMIC_RELAXED);
}

void *
lnk_claim(struct lnk *l, uint64_t id, unsigned type, unsigned sample, uint32_t position,
    uint32_t len)
{
    struct fdr_prod *p = &l->out;
    uint32_t n, cost;
    struct fdp_rec *rec;
    int64_t room;

    ASSERT(len <= FDP_REC_MAX_LEN);
    n = FDP_REC_SLOTS(len);
    cost = fdr_prod_cost(p, n);
    room = fdr_prod_room(p, cost);
    if (room < 0)
        lnk_spoil(l);
    if (room < (int64_t)cost)
        return NULL;
    if (cost != n)
        lnk_pad(p);
    rec = fdr_prod_slot(p, p->tail);
    p->tail += n;
    rec->tag = id;
    rec->type = (uint8_t)type;
    rec->n_slot = (uint8_t)n;
    rec->sample = (uint16_t)sample;
    rec->position = position;
    rec->len = len;
    rec->rsv = 0;
    return rec + 1;
}

int
lnk_has_room(struct lnk *l, uint32_t slots)
{
    int64_t room = fdr_prod_room(&l->out, slots);

    if (room < 0)
        lnk_spoil(l);
    return room >= (int64_t)slots;
}

/* Lowering the flag makes sure that one sleep gets one wake-up. */
static void
lnk_post(struct lnk_seg *seg)
{
    if (fdr_flag_lower(&seg->worker_parked.v))
        (void)sem_post(&seg->worker_sem);
}

void
lnk_ring(struct lnk_cursor *bell)
{
    if (fdr_flag_lower(&bell->v))
        (void)syscall(SYS_futex, &bell->v, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void
lnk_wake_worker(struct lnk *l)
{
    lnk_post(l->seg);
    lnk_ring(&l->seg->bell_egr);
    lnk_ring(&l->seg->bell_eng);
}

void
lnk_flush(struct lnk *l)
{
    struct fdr_prod *p = &l->out;
    struct lnk_seg *seg = l->seg;

    if (p->pub == p->tail)
        return;
    p->pub = p->tail;
    fdr_publish(p->p_tail, p->tail);
    if (l->is_gate) {
        lnk_post(seg);
    } else if (fdr_flag_lower(&seg->gate_parked.v)) {
        uint64_t one = 1;

        if (l->efd >= 0 && write(l->efd, &one, sizeof(one)) < 0) {
            /* EAGAIN: the counter is full, so the gate is woken anyway */
        }
    }
}

const struct fdp_rec *
lnk_peek(struct lnk *l)
{
    for (;;) {
        int64_t n = fdr_cons_avail(&l->in);
        const struct fdp_rec *rec;

        if (n < 0)
            lnk_spoil(l);
        if (n <= 0)
            return NULL;
        rec = fdr_cons_slot(&l->in, l->in.head);
        /* A dying worker may have written anything; the gate must survive that. */
        if (rec->n_slot == 0 || rec->n_slot > n || rec->n_slot > FDP_REC_MAX_SLOTS ||
            rec->len > rec->n_slot * FDP_SLOT - sizeof(*rec) ||
            (l->in.head & (l->in.n_slot - 1)) + rec->n_slot > l->in.n_slot) {
            lnk_spoil(l);
            return NULL;
        }
        if (rec->type != FDP_T_PAD)
            return rec;
        fdr_cons_release(&l->in, rec->n_slot);
    }
}

void
lnk_next(struct lnk *l, const struct fdp_rec *rec)
{
    fdr_cons_release(&l->in, rec->n_slot);
}

int
lnk_worker_park(struct lnk *l, uint64_t timeout_ns)
{
    struct lnk_seg *seg = l->seg;
    int woken = 1;

    fdr_flag_raise(&seg->worker_parked.v, 1);
    if (fdr_cons_recheck(&l->in) == 0) {
        uint64_t until = clk_now_ns() + timeout_ns;
        struct timespec ts = { (time_t)(until / CLK_S), (long)(until % CLK_S) };

        woken = sem_clockwait(&seg->worker_sem, CLOCK_MONOTONIC, &ts) == 0;
    }
    fdr_flag_raise(&seg->worker_parked.v, 0);
    /* A post between our last check and here would end the next sleep early: take it
     * back. */
    while (sem_trywait(&seg->worker_sem) == 0)
        continue;
    return woken;
}

/* Without a look at worker_parked, which the thread may raise after it looked at its other
 * queues. A post that lnk_worker_park() takes back was made before the thread looks again. */
void
lnk_wake_ingress(struct lnk *l)
{
    (void)sem_post(&l->seg->worker_sem);
}

int
lnk_gate_park(struct lnk *l)
{
    fdr_flag_raise(&l->seg->gate_parked.v, 1);
    return fdr_cons_recheck(&l->in) != 0;
}

void
lnk_gate_unpark(struct lnk *l)
{
    fdr_flag_raise(&l->seg->gate_parked.v, 0);
}
