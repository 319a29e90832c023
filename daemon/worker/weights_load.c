/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * wts_load(): threads that read chunks of the files, in the plan's order, each
 * into slots of its own. Where the device's memory is the host's, a chunk is
 * read to its place, or converted to it. Else a slot is pinned memory, copied on
 * a stream of the thread's own while it reads the next; what the device converts
 * goes through staging there.
 */
#include "config.h"

#include "daemon/worker/weights_load.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/worker/confine.h"
#include "daemon/worker/model_priv.h"

#define PAGE        4096
#define MAX_READER  WTS_MAX_RINGS
#define LINK_READER 8 /* are enough for a device's link */
#define MIN_SLOT    2 /* of a reader: one is read while one is copied */
#define MAX_SLOT    WTS_RING_ENTRIES
#define MIN_SLOTS   4          /* of all */
#define CHUNK_BYTES (4u << 20) /* when the buffer allows: what a link needs */
#define MIN_WORK    (1u << 20) /* raw bytes worth a reader */
#define PROGRESS_NS 20000000

enum slot_state { SLOT_FREE, SLOT_READ, SLOT_COPY };

struct slot {
    struct wts_read rd; /* first: a completion carries its address */
    enum slot_state state;
    struct wts_chunk c;
    char *host, *dev;
    fdk_event_t ev;
    uint64_t seq; /* of the reader's copies */
};

struct reader {
    struct wts_loading *l;
    pthread_t thread;
    fdk_stream_t stream;
    struct slot slot[MAX_SLOT];
    int n_read;
    uint64_t seq;
    struct io_uring own, *ring; /* NULL: pread */
    char err[1024];
};

struct wts_loading {
    const struct wts_plan *wp;
    const struct fdk_ops *k;
    struct fdk_ctx *ctx;
    int dev, on_host, staged;
    struct wts_load_args la;
    char *arena;
    int n_reader, n_slot; /* slots of each */
    size_t chunk;
    char *mem, *dev_mem;
    uint64_t *bad;    /* on the device: the first element not finite */
    pthread_t thread; /* of a load in the background, */
    int result;       /* and what it came to */
    struct reader reader[MAX_READER];

    pthread_mutex_t lock; /* all below */
    pthread_cond_t ended;
    int n_running;
    int32_t piece; /* next chunk */
    uint64_t elt, at;
    uint64_t done;
    int rc; /* of the first chunk that failed */
    uint64_t rc_at;
    char err[1024];
    int stop; /* wts_load_stop() */
};

/* ---- what all readers share ---- */

/* Chunks are given out in order, and those given out before a failed one still
 * end: what remains is the first failure of all. */
static void
load_fail(struct wts_loading *l, uint64_t at, int rc, const char *err)
{
    pthread_mutex_lock(&l->lock);
    if (l->rc == 0 || at < l->rc_at) {
        l->rc = rc;
        l->rc_at = at;
        (void)mdl_fail(rc, l->err, sizeof(l->err), "%s", err);
    }
    pthread_mutex_unlock(&l->lock);
}

static int
next_chunk(struct wts_loading *l, struct wts_chunk *ret)
{
    const struct wts_piece *pc;
    int more = 0;

    pthread_mutex_lock(&l->lock);
    if (l->rc == 0 && !l->stop && l->piece < l->wp->n_piece) {
        pc = &l->wp->piece[l->piece];
        *ret = (struct wts_chunk){ .pc = pc,
            .first = l->elt,
            .at = l->at,
            .n_elt = wts_chunk_elts(pc, l->chunk) };
        if (ret->n_elt > pc->n_elt - l->elt)
            ret->n_elt = pc->n_elt - l->elt;
        l->elt += ret->n_elt;
        l->at += ret->n_elt;
        if (l->elt == pc->n_elt) {
            l->piece++;
            l->elt = 0;
        }
        more = 1;
    }
    pthread_mutex_unlock(&l->lock);
    return more;
}

static void
chunk_done(struct wts_loading *l, const struct wts_chunk *c)
{
    pthread_mutex_lock(&l->lock);
    l->done += wts_chunk_filled(l->wp, c);
    pthread_mutex_unlock(&l->lock);
}

static int
device_error(int rc, char *err, size_t err_bytes)
{
    return mdl_fail(rc, err, err_bytes, "W_IO: copying weights to the device: %s",
        strerror(-rc));
}

/* ---- a chunk's way to its place ---- */

/* x is where the device reads it. */
static int
pack(const struct wts_loading *l, fdk_stream_t st, const struct wts_chunk *c, const void *x)
{
    const struct fdk_pack_args a = wts_chunk_pack(l->wp, c, l->arena, x, l->bad);

    return l->k->weight_pack(&a, st);
}

/* The chunk's n bytes stand at x, pinned. */
static int
copy_chunk(struct reader *r, struct slot *s, const char *x, size_t n)
{
    const struct wts_loading *l = r->l;
    void *to = wts_chunk_to(l->wp, &s->c, l->arena);
    int rc = l->k->copy(r->stream, to != NULL ? to : s->dev, x, n);

    if (rc == 0 && to == NULL)
        rc = pack(l, r->stream, &s->c, s->dev);
    if (rc == 0)
        rc = l->k->event_record(s->ev, r->stream);
    if (rc != 0)
        return device_error(rc, r->err, sizeof(r->err));
    s->state = SLOT_COPY;
    s->seq = ++r->seq;
    return 0;
}

static int
pack_on_host(struct reader *r, const struct wts_chunk *c, const void *x)
{
    const struct wts_loading *l = r->l;
    uint64_t bad = UINT64_MAX;
    const struct fdk_pack_args a = wts_chunk_pack(l->wp, c, l->arena, x, &bad);
    int rc = l->k->weight_pack(&a, NULL);

    if (rc != 0)
        return device_error(rc, r->err, sizeof(r->err));
    return bad == UINT64_MAX
        ? 0
        : wts_not_finite(c->pc, c->first + (bad - c->at), r->err, sizeof(r->err));
}

/* The chunk's raw bytes stand at s->rd.to. */
static int
finish_chunk(struct reader *r, struct slot *s)
{
    struct wts_loading *l = r->l;
    const struct wts_chunk *c = &s->c;
    void *to = wts_chunk_to(l->wp, c, l->arena);
    char *x = s->rd.to;
    size_t n = s->rd.want;
    int rc = 0;

    s->state = SLOT_FREE;
    if (c->pc->rep > 0) {
        x = l->on_host && to != NULL ? to : s->host;
        wts_repeat(c, x, s->rd.to);
        n = wts_chunk_filled(l->wp, c);
    }
    if (!l->on_host)
        rc = copy_chunk(r, s, x, n);
    else if (to == NULL)
        rc = pack_on_host(r, c, x);
    if (rc == 0)
        chunk_done(l, c);
    return rc;
}

/* Repeated scales grow in front of where they were read. */
static void
aim_chunk(const struct wts_loading *l, struct slot *s)
{
    const struct wts_piece *pc = s->c.pc;

    s->rd = (struct wts_read){ .file = pc->file,
        .tensor = pc->tensor,
        .off = pc->off + wts_src_bytes(pc, s->c.first),
        .to = s->host,
        .want = wts_src_bytes(pc, s->c.n_elt) };
    if (l->on_host && wts_is_plain(pc))
        s->rd.to = wts_chunk_to(l->wp, &s->c, l->arena);
    else if (pc->rep > 0)
        s->rd.to = s->host + wts_chunk_filled(l->wp, &s->c);
}

/* ---- reading ---- */

static int
take_result(struct reader *r, struct slot *s, int64_t res)
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
queue_read(struct reader *r, struct slot *s)
{
    if (wts_read_queue(r->l->wp, r->ring, &s->rd) != 0)
        return mdl_fail(-EIO, r->err, sizeof(r->err), "W_IO: io_uring has no free entry");
    s->state = SLOT_READ;
    r->n_read++;
    return 0;
}

/* Take what has been read; wait: until something has. */
static int
reap(struct reader *r, int wait)
{
    struct io_uring_cqe *cqe;
    struct slot *s;
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
        s->state = SLOT_FREE;
        rc = take_result(r, s, res);
        if (rc == 0)
            rc = queue_read(r, s);
        else if (rc == 1)
            rc = finish_chunk(r, s);
        if (rc < 0)
            load_fail(r->l, s->c.at, rc, r->err);
    }
    return 0;
}

static int
start_chunk(struct reader *r, struct slot *s)
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

/* A free slot, or NULL; wait: for the oldest copy if there is none. */
static struct slot *
free_slot(struct reader *r, int wait)
{
    struct wts_loading *l = r->l;
    struct slot *oldest = NULL;
    int rc;

    for (int i = 0; i < l->n_slot; i++) {
        struct slot *s = &r->slot[i];

        if (s->state == SLOT_FREE)
            return s;
        if (s->state == SLOT_COPY && (oldest == NULL || s->seq < oldest->seq))
            oldest = s;
    }
    if (oldest == NULL)
        return NULL;
    rc = wait ? l->k->event_sync(oldest->ev) : l->k->event_query(oldest->ev);
    if (rc < 0) {
        (void)device_error(rc, r->err, sizeof(r->err));
        load_fail(l, oldest->c.at, rc, r->err);
        return NULL;
    }
    if (!wait && rc == 0)
        return NULL;
    oldest->state = SLOT_FREE;
    return oldest;
}

/* Refused by seccomp or sysctl (EPERM), not built (ENOSYS), without restrictions
 * (EINVAL), or over the locked memory limit (ENOMEM): pread reads the same bytes. */
static void
open_ring(struct reader *r)
{
    const struct wts_loading *l = r->l;
    int i = (int)(r - l->reader);

    r->ring = NULL;
    if (!l->la.use_uring || l->wp->st->uring_errno != 0 || l->wp->dummy)
        return;
    if (l->la.ring != NULL)
        r->ring = i < l->la.n_ring ? &l->la.ring[i] : NULL;
    else if (cfn_ring_open(&r->own, MAX_SLOT) == 0)
        r->ring = &r->own;
}

static void
close_ring(struct reader *r)
{
    if (r->ring == &r->own)
        io_uring_queue_exit(&r->own);
    r->ring = NULL;
}

/* What is cached is read at once by the call that asks for it, so a reader has
 * one read under way, and as many as it has slots where a disk must be asked. */
static void
reader_run(struct reader *r)
{
    struct wts_loading *l = r->l;
    int rc;

    open_ring(r);
    for (;;) {
        struct slot *s = free_slot(r, r->n_read == 0);

        if (s != NULL && next_chunk(l, &s->c)) {
            rc = start_chunk(r, s);
            if (rc < 0)
                load_fail(l, s->c.at, rc, r->err);
        } else if (r->n_read == 0) {
            break;
        } else if ((rc = reap(r, 1)) != 0) {
            load_fail(l, 0, rc, r->err);
            break;
        }
    }
    close_ring(r);
}

static void *
reader_main(void *arg)
{
    struct reader *r = arg;
    struct wts_loading *l = r->l;

    reader_run(r);
    pthread_mutex_lock(&l->lock);
    l->n_running--;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- random weights made on the device ---- */

static int
dummy_chunk(struct wts_loading *l, const struct wts_chunk *c)
{
    const struct wts_piece *pc = c->pc;
    struct reader *r = &l->reader[0];
    struct fdk_dummy_args a = wts_dummy_args(l->wp, pc->place, c->first, c->n_elt);
    int rc;

    a.y = pc->cols > 0 ? l->dev_mem : wts_chunk_to(l->wp, c, l->arena);
    a.y_dtype = pc->src;
    rc = l->k->dummy(&a, r->stream);
    if (rc == 0 && pc->cols > 0)
        rc = pack(l, r->stream, c, l->dev_mem);
    return rc != 0 ? device_error(rc, r->err, sizeof(r->err)) : 0;
}

static void
dummy_run(struct wts_loading *l)
{
    struct wts_chunk c;
    int rc;

    while (next_chunk(l, &c)) {
        rc = dummy_chunk(l, &c);
        if (rc != 0)
            load_fail(l, c.at, rc, l->reader[0].err);
        else
            chunk_done(l, &c);
    }
}

/* ---- opening ---- */

static int
count_cpus(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 2;
    return CPU_COUNT(&set);
}

/* Readers, slots and their size. */
static void
plan_slots(struct wts_loading *l)
{
    const struct wts_plan *wp = l->wp;
    size_t buffer = l->la.buffer_bytes, row = 0;
    uint64_t raw = 0;
    int n = wp->st->n_reader > 0 ? wp->st->n_reader : count_cpus();

    for (int32_t i = 0; i < wp->n_piece; i++) {
        size_t b = wts_row_bytes(&wp->piece[i]);

        row = b > row ? b : row;
        raw += wts_src_bytes(&wp->piece[i], wp->piece[i].n_elt);
        l->staged |= !wts_is_plain(&wp->piece[i]);
    }
    n = n < 2 ? 2 : n > MAX_READER ? MAX_READER : n;
    if (wp->st->n_reader == 0 && !l->on_host && n > LINK_READER)
        n = LINK_READER;
    if (wp->st->n_reader == 0 && raw / MIN_WORK + 1 < (uint64_t)n)
        n = (int)(raw / MIN_WORK) + 1;
    l->n_reader = n;
    l->n_slot = (int)(buffer / CHUNK_BYTES / (size_t)n);
    l->n_slot = l->n_slot < MIN_SLOT ? MIN_SLOT : l->n_slot;
    l->n_slot = l->n_slot > MAX_SLOT ? MAX_SLOT : l->n_slot;
    l->chunk = buffer / (size_t)(l->n_reader * l->n_slot) / PAGE * PAGE;
    l->chunk = l->chunk < PAGE ? PAGE : l->chunk;
    if (row <= l->chunk)
        return;
    l->chunk = (row + PAGE - 1) / PAGE * PAGE;
    while (l->n_reader * l->n_slot > MIN_SLOTS &&
        (size_t)(l->n_reader * l->n_slot) * l->chunk > buffer)
        if (l->n_slot > MIN_SLOT)
            l->n_slot--;
        else
            l->n_reader--;
}

/* Memory: pinned slots, staging on the device, and the word for what is not finite. */
static int
open_memory(struct wts_loading *l)
{
    size_t n = l->chunk * (size_t)(l->n_reader * l->n_slot), dev = 0;
    void *p = NULL;
    int rc = 0;

    if (!l->on_host && l->staged)
        dev = l->wp->dummy ? l->chunk : n;
    if (!l->wp->dummy || l->on_host)
        rc = l->on_host && !l->staged ? 0 : l->k->host_alloc(l->ctx, n, &p);
    if (rc != 0)
        return mdl_fail(rc, l->err, sizeof(l->err),
            "W_IO: no memory for %zu bytes of staging", n);
    l->mem = p;
    if (dev == 0)
        return 0;
    rc = l->k->mem_alloc(l->ctx, l->dev, dev + sizeof(*l->bad), &p);
    if (rc != 0)
        return mdl_fail(rc, l->err, sizeof(l->err),
            "W_IO: no device memory for %zu bytes of staging", dev);
    l->dev_mem = p;
    l->bad = (uint64_t *)(void *)(l->dev_mem + dev);
    return 0;
}

static int
open_readers(struct wts_loading *l)
{
    int rc = 0;

    for (int i = 0; i < l->n_reader; i++) {
        struct reader *r = &l->reader[i];

        r->l = l;
        if (!l->on_host && rc == 0)
            rc = l->k->stream_new(l->ctx, l->dev, &r->stream);
        for (int j = 0; j < l->n_slot; j++) {
            size_t at = (size_t)(i * l->n_slot + j) * l->chunk;

            r->slot[j].host = l->mem != NULL ? l->mem + at : NULL;
            r->slot[j].dev = l->dev_mem != NULL ? l->dev_mem + at : NULL;
            if (!l->on_host && rc == 0)
                rc = l->k->event_new(l->ctx, l->dev, &r->slot[j].ev);
        }
    }
    if (rc == 0 && l->bad != NULL)
        rc = l->k->fill(l->reader[0].stream, l->bad, 0xff, sizeof(*l->bad));
    if (rc == 0 && l->bad != NULL)
        rc = l->k->stream_sync(l->reader[0].stream);
    return rc != 0 ? mdl_fail(rc, l->err, sizeof(l->err),
                         "W_IO: device streams and events: %s", strerror(-rc))
                   : 0;
}

static int
load_open(struct wts_loading *l)
{
    struct wts_state *st = l->wp->st;
    int rc;

    plan_slots(l);
    if (l->wp->dummy && !l->on_host) {
        l->n_reader = 1;
        l->chunk *= (size_t)l->n_slot;
    }
    rc = open_memory(l);
    if (rc == 0)
        rc = open_readers(l);
    if (rc == 0)
        rc = wts_check_unchanged(l->wp, l->err, sizeof(l->err));
    if (l->wp->dummy)
        return rc;
    st->how = "pread";
    open_ring(&l->reader[0]);
    if (l->reader[0].ring != NULL)
        st->how = "io_uring";
    close_ring(&l->reader[0]);
    return rc;
}

static void
load_close(struct wts_loading *l)
{
    for (int i = 0; i < l->n_reader; i++) {
        struct reader *r = &l->reader[i];

        for (int j = 0; j < l->n_slot; j++)
            if (r->slot[j].ev != NULL)
                l->k->event_free(r->slot[j].ev);
        if (r->stream != NULL)
            l->k->stream_free(r->stream);
    }
    if (l->dev_mem != NULL)
        l->k->mem_free(l->ctx, l->dev, l->dev_mem);
    if (l->mem != NULL)
        l->k->host_free(l->ctx, l->mem);
    pthread_cond_destroy(&l->ended);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- running ---- */

/* Wait for the readers, and tell how far they are. */
static void
watch(struct wts_loading *l)
{
    uint64_t told = 0, done;
    int running;

    do {
        uint64_t until = clk_now_ns() + PROGRESS_NS;
        const struct timespec ts = { (time_t)(until / CLK_S), (long)(until % CLK_S) };

        pthread_mutex_lock(&l->lock);
        if (l->n_running > 0)
            (void)pthread_cond_timedwait(&l->ended, &l->lock, &ts);
        running = l->n_running;
        done = l->done;
        pthread_mutex_unlock(&l->lock);
        if (done > told && l->la.done != NULL) {
            __atomic_store_n(l->la.total, l->wp->bytes, __ATOMIC_RELAXED);
            __atomic_store_n(l->la.done, done, __ATOMIC_RELAXED);
        }
        told = done;
    } while (running > 0);
}

static void
run_readers(struct wts_loading *l)
{
    int n = 0;

    l->n_running = l->n_reader;
    while (n < l->n_reader &&
        pthread_create(&l->reader[n].thread, NULL, reader_main, &l->reader[n]) == 0)
        n++;
    pthread_mutex_lock(&l->lock);
    l->n_running -= l->n_reader - n;
    pthread_mutex_unlock(&l->lock);
    if (n == 0)
        reader_run(&l->reader[0]);
    watch(l);
    for (int i = 0; i < n; i++)
        pthread_join(l->reader[i].thread, NULL);
}

/* A weight that the device found not to be finite. */
static int
check_bad(struct wts_loading *l)
{
    const struct wts_piece *pc = l->wp->piece;
    uint64_t bad = UINT64_MAX;
    int rc;

    if (l->bad == NULL)
        return 0;
    rc = l->k->copy(l->reader[0].stream, &bad, l->bad, sizeof(bad));
    if (rc == 0)
        rc = l->k->stream_sync(l->reader[0].stream);
    if (rc != 0)
        return device_error(rc, l->err, sizeof(l->err));
    if (bad == UINT64_MAX || (l->rc != 0 && l->rc_at < bad))
        return 0;
    for (; bad >= pc->n_elt; pc++)
        bad -= pc->n_elt;
    return wts_not_finite(pc, bad, l->err, sizeof(l->err));
}

static int
load_all(struct wts_loading *l)
{
    uint64_t t0;
    int rc = load_open(l);

    if (rc != 0)
        return rc;
    t0 = clk_now_ns();
    if (l->wp->dummy && !l->on_host) {
        dummy_run(l);
        watch(l);
    } else {
        run_readers(l);
    }
    for (int i = 0; i < l->n_reader; i++) {
        rc = l->reader[i].stream != NULL ? l->k->stream_sync(l->reader[i].stream) : 0;
        if (rc != 0 && l->rc == 0)
            l->rc = device_error(rc, l->err, sizeof(l->err));
    }
    rc = check_bad(l);
    rc = rc != 0 ? rc : l->rc;
    if (rc == 0)
        rc = wts_check_unchanged(l->wp, l->err, sizeof(l->err));
    if (rc == 0 && l->piece < l->wp->n_piece)
        rc = mdl_fail(-ECANCELED, l->err, sizeof(l->err), "W_IO: loading was given up");
    l->wp->st->load_ns = clk_now_ns() - t0;
    return rc;
}

static void *
background_main(void *arg)
{
    struct wts_loading *l = arg;

    l->result = load_all(l);
    return NULL;
}

static int
load_end(struct wts_loading *l, int rc, char *err, size_t err_bytes)
{
    if (rc != 0)
        (void)mdl_fail(rc, err, err_bytes, "%s", l->err);
    load_close(l);
    return rc;
}

int
wts_load(const struct wts_plan *wp, const struct fdk_ops *k, struct fdk_ctx *ctx, int dev,
    void *arena, const struct wts_load_args *la, char *err, size_t err_bytes)
{
    struct wts_loading *l = calloc(1, sizeof(*l));
    pthread_condattr_t at;
    int rc;

    if (l == NULL)
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    l->wp = wp;
    l->k = k;
    l->ctx = ctx;
    l->dev = dev;
    l->la = *la;
    l->arena = arena;
    l->on_host = k->on_host;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&at);
    pthread_condattr_setclock(&at, CLOCK_MONOTONIC);
    pthread_cond_init(&l->ended, &at);
    pthread_condattr_destroy(&at);
    if (la->background && pthread_create(&l->thread, NULL, background_main, l) == 0) {
        wp->st->loading = l;
        return 0;
    }
    rc = load_all(l);
    return load_end(l, rc, err, err_bytes);
}

void
wts_load_stop(const struct wts_plan *wp)
{
    struct wts_loading *l = wp->st->loading;
    char err[1024];

    if (l != NULL) {
        pthread_mutex_lock(&l->lock);
        l->stop = 1;
        pthread_mutex_unlock(&l->lock);
    }
    (void)wts_load_wait(wp, err, sizeof(err));
}

uint64_t
wts_load_ns(const struct wts_plan *wp)
{
    return wp->st->load_ns;
}

int
wts_load_wait(const struct wts_plan *wp, char *err, size_t err_bytes)
{
    struct wts_loading *l = wp->st->loading;

    if (l == NULL)
        return 0;
    wp->st->loading = NULL;
    pthread_join(l->thread, NULL);
    return load_end(l, l->result, err, err_bytes);
}
