/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread of wts_load(): it reads chunks of the files, in the plan's order, into slots
 * of its own, and brings each chunk to all ranks that have rows of it. If the devices'
 * memory is the host's and one rank has the whole chunk, it is read, or converted,
 * directly to its place. Else a slot is pinned memory, copied on streams of the
 * thread's own while the thread reads the next; chunks that the device converts go
 * through staging there.
 */
#include "config.h"

#include "daemon/worker/weights_load.h"

#include <errno.h>
#include <string.h>

#include "daemon/worker/confine.h"
#include "daemon/worker/model_priv.h"

/* ---- shared by all readers ---- */

void
wts_load_fail(struct wts_loading *l, uint64_t at, int rc, const char *err)
{
    pthread_mutex_lock(&l->lock);
    if (l->rc == 0 || at < l->rc_at) {
        l->rc = rc;
        l->rc_at = at;
        (void)mdl_fail(rc, l->err, sizeof(l->err), "%s", err);
    }
    pthread_mutex_unlock(&l->lock);
}

int
wts_next_chunk(struct wts_loading *l, struct wts_chunk *ret)
{
    const struct wts_piece *pc;
    int more = 0;

    pthread_mutex_lock(&l->lock);
    if (l->rc == 0 && !l->stop && l->piece < l->wp->n_piece) {
        pc = &l->wp->piece[l->piece];
        *ret = (struct wts_chunk){ .pc = pc,
            .first = l->elt,
            .at = l->read,
            .n_elt = wts_chunk_elts(pc, l->chunk) };
        if (ret->n_elt > pc->n_elt - l->elt)
            ret->n_elt = pc->n_elt - l->elt;
        l->elt += ret->n_elt;
        l->read += ret->n_elt;
        if (l->elt == pc->n_elt) {
            l->piece++;
            l->elt = 0;
        }
        more = 1;
    }
    pthread_mutex_unlock(&l->lock);
    return more;
}

void
wts_chunk_done(struct wts_loading *l, size_t filled)
{
    pthread_mutex_lock(&l->lock);
    l->done += filled;
    pthread_mutex_unlock(&l->lock);
}

int
wts_device_error(int rc, char *err, size_t err_bytes)
{
    return mdl_fail(rc, err, err_bytes, "W_IO: copying weights to the device: %s",
        strerror(-rc));
}

/* ---- from a chunk to its place ---- */

int
wts_pack_dest(const struct wts_loading *l, fdk_stream_t st, const struct wts_chunk *c,
    const struct wts_dest *d, const void *x)
{
    const struct wts_target *t = &l->at[d->at];
    const struct fdk_pack_args a = wts_dest_pack(l->wp, c, d, t->arena, x, t->bad);

    return l->k->weight_pack(&a, st);
}

/* Copy or pack the rows at x, in pinned memory. */
static int
copy_dest(struct wts_reader *r, struct wts_slot *s, const struct wts_dest *d, const char *x)
{
    const struct wts_loading *l = r->l;
    const struct wts_target *t = &l->at[d->at];
    fdk_stream_t st = r->stream[d->at];
    void *to = wts_dest_to(l->wp, &s->c, d, t->arena);
    char *via = to == NULL ? t->mem + s->off + wts_dest_off(&s->c, d) : NULL;
    int rc = l->k->copy(st, to != NULL ? to : via, x, wts_dest_bytes(&s->c, d));

    s->copying |= 1u << d->at;
    return rc == 0 && to == NULL ? wts_pack_dest(l, st, &s->c, d, via) : rc;
}

/* Copy the chunk at x, in pinned memory, to all its destinations. */
static int
copy_chunk(struct wts_reader *r, struct wts_slot *s, const char *x, size_t *ret_filled)
{
    const struct wts_loading *l = r->l;
    struct wts_dest d;
    int32_t i = 0;
    int rc = 0;

    s->copying = 0;
    while (rc == 0 && wts_next_dest(l->wp, &s->c, l->n_at, &i, &d)) {
        rc = copy_dest(r, s, &d, x + wts_dest_off(&s->c, &d));
        *ret_filled += wts_dest_filled(l->wp, &s->c, &d);
    }
    for (int32_t at = 0; at < l->n_at && rc == 0; at++)
        if ((s->copying >> at & 1) != 0)
            rc = l->k->event_record(s->ev[at], r->stream[at]);
    if (rc != 0)
        return wts_device_error(rc, r->err, sizeof(r->err));
    s->state = WTS_SLOT_COPY;
    s->seq = ++r->seq;
    return 0;
}

/* As copy_chunk(), if the devices' memory is the host's. */
static int
fill_on_host(struct wts_reader *r, const struct wts_slot *s, const char *x,
    size_t *ret_filled)
{
    const struct wts_loading *l = r->l;
    const struct wts_chunk *c = &s->c;
    uint64_t bad = UINT64_MAX;
    struct wts_dest d;
    int32_t i = 0;
    int rc = 0;

    while (rc == 0 && wts_next_dest(l->wp, c, l->n_at, &i, &d)) {
        const char *from = x + wts_dest_off(c, &d);
        char *arena = l->at[d.at].arena;

        if (!wts_is_plain(c->pc)) {
            const struct fdk_pack_args a = wts_dest_pack(l->wp, c, &d, arena, from, &bad);

            rc = l->k->weight_pack(&a, NULL);
        } else if (wts_dest_to(l->wp, c, &d, arena) != x) {
            memcpy(wts_dest_to(l->wp, c, &d, arena), x, wts_dest_bytes(c, &d));
        }
        *ret_filled += wts_dest_filled(l->wp, c, &d);
    }
    if (rc != 0)
        return wts_device_error(rc, r->err, sizeof(r->err));
    return bad == UINT64_MAX
        ? 0
        : wts_not_finite(c->pc, c->first + (bad - c->at), r->err, sizeof(r->err));
}

/* Bring the chunk to its places; its raw bytes are at s->rd.to. */
static int
finish_chunk(struct wts_reader *r, struct wts_slot *s)
{
    struct wts_loading *l = r->l;
    char *x = s->rd.to;
    size_t filled = 0;
    int rc;

    s->state = WTS_SLOT_FREE;
    if (s->c.pc->rep > 0) {
        x = l->mem + s->off;
        wts_repeat(&s->c, x, s->rd.to);
    }
    rc = l->on_host ? fill_on_host(r, s, x, &filled) : copy_chunk(r, s, x, &filled);
    if (rc == 0)
        wts_chunk_done(l, filled);
    return rc;
}

/* Choose the address to read to. Repeated scales are expanded in front of the bytes
 * read. A load whose pieces are all read to their places has no slots. */
static void
aim_chunk(const struct wts_loading *l, struct wts_slot *s)
{
    const struct wts_piece *pc = s->c.pc;
    const struct wts_dest first = { 0 };

    s->rd = (struct wts_read){ .file = pc->file,
        .tensor = pc->tensor,
        .off = pc->off + wts_src_bytes(pc, s->c.first),
        .want = wts_src_bytes(pc, s->c.n_elt) };
    if (l->on_host && wts_is_plain(pc))
        s->rd.to = wts_dest_to(l->wp, &s->c, &first, l->at[0].arena);
    else
        s->rd.to = l->mem + s->off + (pc->rep > 0 ? wts_repeat_bytes(&s->c) : 0);
}

/* ---- reading ---- */

static int
take_result(struct wts_reader *r, struct wts_slot *s, int64_t res)
{
    const struct wts_state *st = r->l->wp->st;

    if (st->fault != NULL) {
        pthread_mutex_lock(&r->l->lock);
        res =
            st->fault(st->fault_arg, s->rd.off + s->rd.have, s->rd.want - s->rd.have, res);
        pthread_mutex_unlock(&r->l->lock);
    }
    return wts_read_result(r->l->wp, &s->rd, res, r->err, sizeof(r->err));
}

static int
queue_read(struct wts_reader *r, struct wts_slot *s)
{
    if (wts_read_queue(r->l->wp, r->ring, &s->rd) != 0)
        return mdl_fail(-EIO, r->err, sizeof(r->err), "W_IO: io_uring has no free entry");
    s->state = WTS_SLOT_READ;
    r->n_read++;
    return 0;
}

/* Handle finished reads; wait: wait for at least one. */
static int
reap(struct wts_reader *r, int wait)
{
    struct io_uring_cqe *cqe;
    struct wts_slot *s;
    int rc;

    do
        rc = io_uring_submit_and_wait(r->ring, (unsigned)wait);
    while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
    if (rc < 0)
        return mdl_fail(-EIO, r->err, sizeof(r->err), "W_IO: io_uring: %s", strerror(-rc));
    while (io_uring_peek_cqe(r->ring, &cqe) == 0) {
        int64_t res = cqe->res;

        s = io_uring_cqe_get_data(cqe);
        io_uring_cqe_seen(r->ring, cqe);
        r->n_read--;
        s->state = WTS_SLOT_FREE;
        rc = take_result(r, s, res);
        if (rc == 0)
            rc = queue_read(r, s);
        else if (rc == 1)
            rc = finish_chunk(r, s);
        if (rc < 0)
            wts_load_fail(r->l, s->c.at, rc, r->err);
    }
    return 0;
}

static int
start_chunk(struct wts_reader *r, struct wts_slot *s)
{
    struct wts_loading *l = r->l;
    int rc;

    aim_chunk(l, s);
    if (s->c.pc->file < 0) {
        wts_dummy_fill(l->wp, s->c.pc->place, s->c.first, s->c.n_elt, s->rd.to);
        return finish_chunk(r, s);
    }
    if (r->ring != NULL) {
        rc = queue_read(r, s);
        return rc != 0 ? rc : reap(r, 0);
    }
    do
        rc = take_result(r, s, wts_read_some(l->wp, &s->rd));
    while (rc == 0);
    return rc < 0 ? rc : finish_chunk(r, s);
}

/* ---- a reader ---- */

/* Have all copies from the slot finished? Returns as event_query(); wait: wait for
 * them. */
static int
copies_done(const struct wts_loading *l, const struct wts_slot *s, int wait)
{
    int rc = 1;

    for (int32_t at = 0; at < l->n_at && rc > 0; at++)
        if ((s->copying >> at & 1) != 0 && !wait)
            rc = l->k->event_query(s->ev[at]);
        else if ((s->copying >> at & 1) != 0 && (rc = l->k->event_sync(s->ev[at])) == 0)
            rc = 1;
    return rc;
}

/* A free slot, or NULL; wait: if there is none, wait for the oldest copy. */
static struct wts_slot *
free_slot(struct wts_reader *r, int wait)
{
    struct wts_loading *l = r->l;
    struct wts_slot *oldest = NULL;
    int rc;

    for (int i = 0; i < l->n_slot; i++) {
        struct wts_slot *s = &r->slot[i];

        if (s->state == WTS_SLOT_FREE)
            return s;
        if (s->state == WTS_SLOT_COPY && (oldest == NULL || s->seq < oldest->seq))
            oldest = s;
    }
    if (oldest == NULL)
        return NULL;
    rc = copies_done(l, oldest, wait);
    if (rc < 0) {
        (void)wts_device_error(rc, r->err, sizeof(r->err));
        wts_load_fail(l, oldest->c.at, rc, r->err);
        return NULL;
    }
    if (!wait && rc == 0)
        return NULL;
    oldest->state = WTS_SLOT_FREE;
    return oldest;
}

/* io_uring may be refused by seccomp or sysctl (EPERM), not be built in (ENOSYS), have
 * no restrictions (EINVAL), or exceed the locked memory limit (ENOMEM): then pread
 * reads the same bytes. */
void
wts_ring_open(struct wts_reader *r)
{
    const struct wts_loading *l = r->l;
    int i = (int)(r - l->reader);

    r->ring = NULL;
    if (!l->la.use_uring || l->wp->st->uring_errno != 0 || l->wp->dummy)
        return;
    if (l->la.ring != NULL)
        r->ring = i < l->la.n_ring ? &l->la.ring[i] : NULL;
    else if (cfn_ring_open(&r->own, WTS_RING_ENTRIES) == 0)
        r->ring = &r->own;
}

void
wts_ring_close(struct wts_reader *r)
{
    if (r->ring == &r->own)
        io_uring_queue_exit(&r->own);
    r->ring = NULL;
}

/* Cached data is read at once by the submitting call, so a reader then has one read in
 * flight; when a disk must be read, it has one in each slot. */
void
wts_reader_run(struct wts_reader *r)
{
    struct wts_loading *l = r->l;
    int rc;

    wts_ring_open(r);
    for (;;) {
        struct wts_slot *s = free_slot(r, r->n_read == 0);

        if (s != NULL && wts_next_chunk(l, &s->c)) {
            rc = start_chunk(r, s);
            if (rc < 0)
                wts_load_fail(l, s->c.at, rc, r->err);
        } else if (r->n_read == 0) {
            break;
        } else if ((rc = reap(r, 1)) != 0) {
            wts_load_fail(l, 0, rc, r->err);
            break;
        }
    }
    wts_ring_close(r);
}

void *
wts_reader_main(void *arg)
{
    struct wts_reader *r = arg;
    struct wts_loading *l = r->l;

    wts_reader_run(r);
    pthread_mutex_lock(&l->lock);
    l->n_running--;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}
