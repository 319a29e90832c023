/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * wts_load(): staging, streams and threads; random weights that devices make; results.
 */
#include "config.h"

#include "daemon/worker/weights_load.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/worker/model_priv.h"

#define PAGE        4096
#define MAX_READER  WTS_MAX_RINGS
#define LINK_READER 8 /* readers that saturate a device's link */
#define MIN_SLOT    2 /* per reader: one is read while one is copied */
#define MAX_SLOT    WTS_RING_ENTRIES
#define MIN_SLOTS   4          /* of all readers */
#define CHUNK_BYTES (4u << 20) /* bytes that saturate a link, if the buffer allows */
#define MIN_WORK    (1u << 20) /* least raw bytes per reader */
#define PROGRESS_NS 20000000

/* ---- random weights made on the device ---- */

/* Make the destination's rows of the chunk, or all of it for a plain piece. */
static int
dummy_dest(struct wts_loading *l, const struct wts_chunk *c, const struct wts_dest *d)
{
    const struct wts_piece *pc = c->pc;
    const struct wts_target *t = &l->at[d->at];
    fdk_stream_t st = l->reader[0].stream[d->at];
    uint64_t cols = (uint64_t)pc->cols, first = c->first + (uint64_t)d->from * cols;
    uint64_t n = d->n > 0 ? (uint64_t)d->n * cols : c->n_elt;
    struct fdk_dummy_args a = wts_dummy_args(l->wp, pc->place, first, n);
    void *to = wts_dest_to(l->wp, c, d, t->arena);
    int rc;

    a.y = to != NULL ? to : t->mem;
    a.y_dtype = pc->src;
    rc = l->k->dummy(&a, st);
    return rc == 0 && to == NULL ? wts_pack_dest(l, st, c, d, t->mem) : rc;
}

static void
dummy_run(struct wts_loading *l)
{
    char *err = l->reader[0].err;
    struct wts_chunk c;

    while (wts_next_chunk(l, &c)) {
        struct wts_dest d;
        size_t filled = 0;
        int32_t i = 0;
        int rc = 0;

        while (rc == 0 && wts_next_dest(l->wp, &c, l->n_at, &i, &d)) {
            rc = dummy_dest(l, &c, &d);
            filled += wts_dest_filled(l->wp, &c, &d);
        }
        if (rc != 0) {
            (void)wts_device_error(rc, err, sizeof(l->reader[0].err));
            wts_load_fail(l, c.at, rc, err);
        } else {
            wts_chunk_done(l, filled);
        }
    }
}

/* ---- rows that the model does not fill ---- */

/* Write zeros, as many rows at a time as staging holds. */
static int
zero_dest(const struct wts_loading *l, int32_t place, enum fdk_pack what,
    const struct wts_dest *d)
{
    const struct wts_target *t = &l->at[d->at];
    struct fdk_pack_args a = { .w = wts_weight_in(l->wp, place, t->arena), .what = what };
    size_t row;
    int rc = 0;

    a.x = l->on_host ? l->mem : t->mem;
    a.x_dtype = what == FDK_PACK_SCALES ? FDK_F32 : a.w.format;
    row = fdk_row_bytes(a.x_dtype, (size_t)fdk_pack_width(&a));
    for (int64_t i = 0; i < d->n && rc == 0; i += a.n) {
        a.first = d->row + i;
        a.n = l->chunk / row < (size_t)(d->n - i) ? (int64_t)(l->chunk / row) : d->n - i;
        rc = l->k->weight_pack(&a, l->reader[0].stream[d->at]);
    }
    return rc;
}

static int
fill_zeros(struct wts_loading *l)
{
    int rc = 0;

    if (l->wp->n_rank == 1)
        return 0;
    if (l->on_host)
        memset(l->mem, 0, l->chunk);
    for (int32_t i = 0; i < l->n_at && !l->on_host && rc == 0; i++)
        rc = l->k->fill(l->reader[0].stream[i], l->at[i].mem, 0, l->chunk);
    for (int32_t w = 0; w < l->wp->n_place && rc == 0; w++) {
        struct wts_dest d;
        int32_t i = 0;

        while (rc == 0 && l->wp->place[w].alias < 0 &&
            wts_next_zeros(l->wp, w, l->n_at, &i, &d)) {
            rc = zero_dest(l, w, FDK_PACK_VALUES, &d);
            if (rc == 0 && l->wp->place[w].w.group > 0)
                rc = zero_dest(l, w, FDK_PACK_SCALES, &d);
        }
    }
    return rc != 0 ? wts_device_error(rc, l->err, sizeof(l->err)) : 0;
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

/* Choose the number of readers and slots, and the size of a slot. */
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
    if (wp->st->n_reader == 0 && !l->on_host && n > LINK_READER * l->n_at)
        n = LINK_READER * l->n_at;
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

/* Allocate pinned slots, staging on the devices, and the flag for values that are not
 * finite. */
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
    for (int32_t i = 0; i < l->n_at; i++) {
        struct wts_target *t = &l->at[i];

        rc = l->k->mem_alloc(l->ctx, t->dev, dev + sizeof(*t->bad), &p);
        if (rc != 0)
            return mdl_fail(rc, l->err, sizeof(l->err),
                "W_IO: no device memory for %zu bytes of staging", dev);
        t->mem = p;
        t->bad = (uint64_t *)(void *)(t->mem + dev);
    }
    return 0;
}

static int
open_reader(struct wts_loading *l, int n)
{
    struct wts_reader *r = &l->reader[n];
    int rc = 0;

    r->l = l;
    for (int j = 0; j < l->n_slot; j++)
        r->slot[j].off = (size_t)(n * l->n_slot + j) * l->chunk;
    for (int32_t i = 0; i < l->n_at && !l->on_host && rc == 0; i++) {
        rc = l->k->stream_new(l->ctx, l->at[i].dev, &r->stream[i]);
        for (int j = 0; j < l->n_slot && rc == 0; j++)
            rc = l->k->event_new(l->ctx, l->at[i].dev, &r->slot[j].ev[i]);
    }
    return rc;
}

static int
open_readers(struct wts_loading *l)
{
    int rc = 0;

    for (int i = 0; i < l->n_reader && rc == 0; i++)
        rc = open_reader(l, i);
    for (int32_t i = 0; i < l->n_at && rc == 0; i++) {
        fdk_stream_t st = l->reader[0].stream[i];

        if (l->at[i].bad != NULL)
            rc = l->k->fill(st, l->at[i].bad, 0xff, sizeof(*l->at[i].bad));
        if (rc == 0 && l->at[i].bad != NULL)
            rc = l->k->stream_sync(st);
    }
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
        rc = fill_zeros(l);
    if (rc == 0)
        rc = wts_check_unchanged(l->wp, l->err, sizeof(l->err));
    if (l->wp->dummy)
        return rc;
    st->how = "pread";
    wts_ring_open(&l->reader[0]);
    if (l->reader[0].ring != NULL)
        st->how = "io_uring";
    wts_ring_close(&l->reader[0]);
    return rc;
}

static void
close_target(struct wts_loading *l, int32_t i)
{
    for (int j = 0; j < l->n_reader; j++) {
        struct wts_reader *r = &l->reader[j];

        for (int n = 0; n < l->n_slot; n++)
            if (r->slot[n].ev[i] != NULL)
                l->k->event_free(r->slot[n].ev[i]);
        if (r->stream[i] != NULL)
            l->k->stream_free(r->stream[i]);
    }
    if (l->at[i].mem != NULL)
        l->k->mem_free(l->ctx, l->at[i].dev, l->at[i].mem);
}

static void
load_close(struct wts_loading *l)
{
    for (int32_t i = 0; i < l->n_at; i++)
        close_target(l, i);
    if (l->mem != NULL)
        l->k->host_free(l->ctx, l->mem);
    pthread_cond_destroy(&l->ended);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- running ---- */

/* Wait for the readers, and publish their progress. */
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
            __atomic_store_n(l->la.total, l->wp->bytes * (uint64_t)l->n_at,
                __ATOMIC_RELAXED);
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
        pthread_create(&l->reader[n].thread, NULL, wts_reader_main, &l->reader[n]) == 0)
        n++;
    pthread_mutex_lock(&l->lock);
    l->n_running -= l->n_reader - n;
    pthread_mutex_unlock(&l->lock);
    if (n == 0)
        wts_reader_run(&l->reader[0]);
    watch(l);
    for (int i = 0; i < n; i++)
        pthread_join(l->reader[i].thread, NULL);
}

/* Report the first weight that a device found not to be finite. */
static int
check_bad(struct wts_loading *l)
{
    const struct wts_piece *pc = l->wp->piece;
    uint64_t least = UINT64_MAX;

    for (int32_t i = 0; i < l->n_at && l->at[i].bad != NULL; i++) {
        fdk_stream_t st = l->reader[0].stream[i];
        uint64_t bad = UINT64_MAX;
        int rc = l->k->copy(st, &bad, l->at[i].bad, sizeof(bad));

        if (rc == 0)
            rc = l->k->stream_sync(st);
        if (rc != 0)
            return wts_device_error(rc, l->err, sizeof(l->err));
        least = bad < least ? bad : least;
    }
    if (least == UINT64_MAX || (l->rc != 0 && l->rc_at < least))
        return 0;
    for (; least >= pc->n_elt; pc++)
        least -= pc->n_elt;
    return wts_not_finite(pc, least, l->err, sizeof(l->err));
}

/* Wait until all streams have finished. */
static int
sync_readers(const struct wts_loading *l)
{
    int rc = 0;

    for (int n = 0; n < l->n_reader * l->n_at; n++) {
        fdk_stream_t st = l->reader[n / l->n_at].stream[n % l->n_at];
        int one = st != NULL ? l->k->stream_sync(st) : 0;

        rc = rc != 0 ? rc : one;
    }
    return rc;
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
    rc = sync_readers(l);
    if (rc != 0 && l->rc == 0)
        l->rc = wts_device_error(rc, l->err, sizeof(l->err));
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
wts_load(const struct wts_plan *wp, const struct fdk_ops *k, struct fdk_ctx *ctx,
    const struct wts_at *at, int32_t n_at, const struct wts_load_args *la, char *err,
    size_t err_bytes)
{
    struct wts_loading *l;
    pthread_condattr_t attr;
    int rc;

    if (n_at < 1 || n_at > FDK_MAX_DEVICES || n_at % wp->n_rank != 0)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_IO: weights of %d ranks cannot go to %d arenas", wp->n_rank, n_at);
    l = calloc(1, sizeof(*l));
    if (l == NULL)
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    l->wp = wp;
    l->k = k;
    l->ctx = ctx;
    l->la = *la;
    for (l->n_at = 0; l->n_at < n_at; l->n_at++)
        l->at[l->n_at] =
            (struct wts_target){ at[l->n_at].dev, at[l->n_at].arena, NULL, NULL };
    l->on_host = k->on_host;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->ended, &attr);
    pthread_condattr_destroy(&attr);
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
