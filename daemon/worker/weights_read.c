/*
 * Reading weights: chunks of files through a ring of pinned slots to the
 * device. A slot is free, being read, or being copied; the copy stream is in
 * order, so the oldest copy ends first.
 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/worker/model_priv.h"

#define CHUNK_BYTES (4u << 20)   /* a slot, when the buffer allows */
#define MIN_SLOT 4
#define MAX_SLOT 64
#define PAGE 4096

enum slot_state { SLOT_FREE, SLOT_READ, SLOT_COPY };

struct slot {
    enum slot_state state;
    char *buf;
    fdk_event_t ev;
    uint64_t seq;                /* of the copy */
    const struct wts_piece *pc;
    uint64_t first, n_elt;       /* of the piece */
    size_t src_at, want, have;   /* source bytes stand at buf + src_at */
    size_t q_at;                 /* quantized: scales at buf, rows at buf + q_at */
    int n_eio;
};

struct load {
    const struct wts_plan *wp;
    const struct fdk_ops *k;
    const struct wts_load_args *la;
    char *arena;
    fdk_stream_t stream;
    struct slot slot[MAX_SLOT];
    int n_slot, n_read;
    size_t chunk;
    char *mem;
    struct io_uring ring;
    int uring;
    uint64_t seq, done;
    int32_t piece;               /* next to read */
    uint64_t elt;
    char *err;
    size_t err_bytes;
};

static size_t
elt_bytes(enum fdk_dtype t)
{
    return t == FDK_F32 ? 4 : 2;
}

/* ---- conversion ---- */

static uint32_t
f16_bits(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff, u;
    float f;

    if (e == 31)
        return sign | 0x7f800000 | m << 13;
    if (e != 0)
        return sign | (e + 112) << 23 | m << 13;
    f = (float)m * 0x1p-24f;
    memcpy(&u, &f, 4);
    return sign | u;
}

/* Of its own optimization: gcc 12 at -O2, when it could relate dst to src,
 * rewrote the address of the stores, took the function for one without
 * effects and dropped calls. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noipa))
#endif
void
wts_to_f32(void *dst, const void *src, enum fdk_dtype t, size_t n)
{
    const char *from = src;
    char *to = dst;

    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        uint32_t u;

        memcpy(&h, from + 2 * i, 2);
        u = t == FDK_BF16 ? (uint32_t)h << 16 : f16_bits(h);
        memcpy(to + 4 * i, &u, 4);
    }
}

/* ---- files ---- */

static int
same(const struct wts_file *f, const struct stat *st)
{
    return st->st_dev == f->dev && st->st_ino == f->ino && st->st_size == f->size
        && st->st_mtim.tv_sec == f->mtime.tv_sec
        && st->st_mtim.tv_nsec == f->mtime.tv_nsec;
}

int
wts_check_unchanged(const struct wts_plan *wp, char *err, size_t err_bytes)
{
    struct stat st;

    for (int32_t i = 0; i < wp->n_file; i++) {
        const struct wts_file *f = &wp->file[i];

        if (fstat(f->fd, &st) != 0)
            return mdl_fail(
                -EIO, err, err_bytes, "W_IO: %s: %s", f->path, strerror(errno));
        if (!same(f, &st))
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_CHANGED: %s: changed since its header "
                "was read; load again when it is complete",
                f->path);
        if (stat(f->path, &st) != 0 || !same(f, &st))
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_CHANGED: %s: replaced or removed since "
                "its header was read; load again",
                f->path);
    }
    return 0;
}

/* ---- one chunk ---- */

/* Staging bytes of a row on its way: its source, packed form and scales. */
static size_t
staged_row(const struct wts_plan *wp, const struct wts_piece *pc)
{
    return (size_t)pc->cols * elt_bytes(pc->src) + fdk_row_bytes(pc->dst, (size_t)pc->cols)
        + (size_t)qnt_groups(&wp->qnt, pc->cols) * sizeof(float);
}

static int
pack_rows(struct load *l, struct slot *s)
{
    const struct wts_piece *pc = s->pc;
    const struct qnt *q = &l->wp->qnt;
    size_t n = s->n_elt / (size_t)pc->cols, src = (size_t)pc->cols * elt_bytes(pc->src);
    size_t row = fdk_row_bytes(pc->dst, (size_t)pc->cols);
    size_t n_group = (size_t)qnt_groups(q, pc->cols);
    float *scale = (float *)(void *)s->buf;
    int32_t at;

    for (size_t i = 0; i < n; i++)
        if (qnt_row(s->buf + s->q_at + i * row, scale + i * n_group,
                s->buf + s->src_at + i * src, pc->src, pc->cols, q, &at) != 0)
            return mdl_fail(-EINVAL, l->err, l->err_bytes,
                "W_MODEL: tensor %s: element (%zu, %d) is not finite, which cannot be "
                "quantized; set quant.weights=none, or mend the checkpoint",
                pc->tensor != NULL ? pc->tensor : "(dummy)",
                (size_t)(s->first / (uint64_t)pc->cols) + i, at);
    return 0;
}

/* The slot's rows, and their scales to their own place. */
static int
copy_rows(struct load *l, const struct slot *s, size_t *ret_bytes)
{
    const struct wts_piece *pc = s->pc;
    size_t n = s->n_elt / (size_t)pc->cols, first = s->first / (size_t)pc->cols;
    size_t row = fdk_row_bytes(pc->dst, (size_t)pc->cols);
    size_t scales = (size_t)qnt_groups(&l->wp->qnt, pc->cols) * sizeof(float);
    int rc = l->k->copy(
        l->stream, l->arena + pc->dst_off + first * row, s->buf + s->q_at, n * row);

    *ret_bytes = n * (row + scales);
    if (rc != 0)
        return rc;
    return l->k->copy(
        l->stream, l->arena + pc->scale_off + first * scales, s->buf, n * scales);
}

static int
copy_slot(struct load *l, struct slot *s)
{
    const struct wts_piece *pc = s->pc;
    size_t elt = elt_bytes(pc->dst), bytes = s->n_elt * elt;
    int rc;

    if (pc->cols > 0) {
        rc = pack_rows(l, s);
        if (rc != 0)
            return rc;
        rc = copy_rows(l, s, &bytes);
    } else {
        if (pc->src != pc->dst)
            wts_to_f32(s->buf, s->buf + s->src_at, pc->src, s->n_elt);
        rc = l->k->copy(
            l->stream, l->arena + pc->dst_off + s->first * elt, s->buf, bytes);
    }
    if (rc == 0)
        rc = l->k->event_record(s->ev, l->stream);
    if (rc != 0)
        return mdl_fail(rc, l->err, l->err_bytes,
            "W_IO: copying weights to the device: %s", strerror(-rc));
    s->state = SLOT_COPY;
    s->seq = ++l->seq;
    l->done += bytes;
    if (l->la->progress != NULL)
        l->la->progress(l->la->arg, l->done, l->wp->bytes);
    return 0;
}

/* Queue (io_uring) what the slot still wants. */
static int
submit_read(struct load *l, struct slot *s)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
    uint64_t off = s->pc->off + s->first * elt_bytes(s->pc->src) + s->have;

    if (sqe == NULL)
        return mdl_fail(-EIO, l->err, l->err_bytes, "W_IO: io_uring has no free entry");
    io_uring_prep_read(sqe, l->wp->file[s->pc->file].fd, s->buf + s->src_at + s->have,
        (unsigned)(s->want - s->have), off);
    io_uring_sqe_set_data(sqe, s);
    s->state = SLOT_READ;
    l->n_read++;
    return 0;
}

/* A read ended with res (bytes or -errno): 1 the chunk is complete, 0 read
 * on, or a failure. */
static int
take_result(struct load *l, struct slot *s, int64_t res)
{
    const struct wts_file *f = &l->wp->file[s->pc->file];
    uint64_t off = s->pc->off + s->first * elt_bytes(s->pc->src) + s->have;
    const struct wts_state *st = l->wp->st;

    if (st->fault != NULL)
        res = st->fault(st->fault_arg, off, s->want - s->have, res);
    if (res == -EINTR || res == -EAGAIN)
        return 0;
    if (res == -EIO && s->n_eio++ < WTS_EIO_RETRY)
        return 0;
    if (res < 0)
        return mdl_fail(-EIO, l->err, l->err_bytes, "W_IO: %s: byte %llu (tensor %s): %s",
            f->path, (unsigned long long)off, s->pc->tensor, strerror((int)-res));
    if (res == 0)
        return mdl_fail(-EINVAL, l->err, l->err_bytes,
            "W_TRUNC: %s: ends at byte %llu, within "
            "tensor %s",
            f->path, (unsigned long long)off, s->pc->tensor);
    s->have += (size_t)res;
    return s->have == s->want;
}

static int
read_now(struct load *l, struct slot *s)
{
    int fd = l->wp->file[s->pc->file].fd, rc;

    do {
        uint64_t off = s->pc->off + s->first * elt_bytes(s->pc->src) + s->have;
        ssize_t n =
            pread(fd, s->buf + s->src_at + s->have, s->want - s->have, (off_t)off);

        rc = take_result(l, s, n < 0 ? -errno : n);
    } while (rc == 0);
    return rc < 0 ? rc : copy_slot(l, s);
}

/* Give the next chunk of work to a free slot. */
static int
start_slot(struct load *l, struct slot *s)
{
    const struct wts_piece *pc = &l->wp->piece[l->piece];
    uint64_t n = l->chunk / elt_bytes(pc->dst), rows;

    if (pc->cols > 0)
        n = l->chunk / staged_row(l->wp, pc) * (uint64_t)pc->cols;
    s->pc = pc;
    s->first = l->elt;
    s->n_elt = n < pc->n_elt - l->elt ? n : pc->n_elt - l->elt;
    s->src_at = pc->src != pc->dst ? l->chunk / 2 : 0;
    if (pc->cols > 0) {
        rows = s->n_elt / (uint64_t)pc->cols;
        s->q_at = rows * (size_t)qnt_groups(&l->wp->qnt, pc->cols) * sizeof(float);
        s->src_at = s->q_at + rows * fdk_row_bytes(pc->dst, (size_t)pc->cols);
    }
    s->want = s->n_elt * elt_bytes(pc->src);
    s->have = 0;
    s->n_eio = 0;
    l->elt += s->n_elt;
    if (l->elt == pc->n_elt) {
        l->piece++;
        l->elt = 0;
    }
    if (pc->file < 0) {
        wts_dummy_fill(l->wp, pc->place, s->first, s->n_elt, s->buf + s->src_at);
        return copy_slot(l, s);
    }
    return l->uring ? submit_read(l, s) : read_now(l, s);
}

/* ---- the ring ---- */

/* A free slot, or NULL; wait: for the oldest copy if there is none. */
static struct slot *
free_slot(struct load *l, int wait, int *ret_rc)
{
    struct slot *oldest = NULL;
    int rc;

    for (int i = 0; i < l->n_slot; i++) {
        struct slot *s = &l->slot[i];

        if (s->state == SLOT_FREE)
            return s;
        if (s->state == SLOT_COPY && (oldest == NULL || s->seq < oldest->seq))
            oldest = s;
    }
    if (oldest == NULL)
        return NULL;
    rc = wait ? l->k->event_sync(oldest->ev) : l->k->event_query(oldest->ev);
    if (rc < 0) {
        *ret_rc = mdl_fail(rc, l->err, l->err_bytes,
            "W_IO: copying weights to the device: %s", strerror(-rc));
        return NULL;
    }
    if (!wait && rc == 0)
        return NULL;
    oldest->state = SLOT_FREE;
    return oldest;
}

static int
reap(struct load *l)
{
    struct io_uring_cqe *cqe;
    struct slot *s;
    int rc;

    do
        rc = io_uring_submit_and_wait(&l->ring, 1);
    while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
    if (rc < 0)
        return mdl_fail(-EIO, l->err, l->err_bytes, "W_IO: io_uring: %s", strerror(-rc));
    while (io_uring_peek_cqe(&l->ring, &cqe) == 0) {
        int64_t res = cqe->res;

        s = io_uring_cqe_get_data(cqe);
        io_uring_cqe_seen(&l->ring, cqe);
        l->n_read--;
        s->state = SLOT_FREE;
        rc = take_result(l, s, res);
        if (rc == 0)
            rc = submit_read(l, s);
        else if (rc == 1)
            rc = copy_slot(l, s);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
run(struct load *l)
{
    int rc = 0;

    while (rc == 0 && (l->piece < l->wp->n_piece || l->n_read > 0)) {
        struct slot *s = NULL;

        if (l->piece < l->wp->n_piece)
            s = free_slot(l, l->n_read == 0, &rc);
        if (rc != 0)
            break;
        rc = s != NULL ? start_slot(l, s) : reap(l);
        /* Keep the disk busy while more slots are being filled. */
        if (rc == 0 && s != NULL && l->uring && l->n_read == 1)
            io_uring_submit(&l->ring);
    }
    return rc;
}

/* Buffers of reads in flight must not be freed under the kernel. */
static void
drain(struct load *l)
{
    struct io_uring_cqe *cqe;
    int rc = 0;

    while (l->n_read > 0 && (rc >= 0 || rc == -EINTR || rc == -EAGAIN)) {
        rc = io_uring_submit_and_wait(&l->ring, 1);
        while (io_uring_peek_cqe(&l->ring, &cqe) == 0) {
            io_uring_cqe_seen(&l->ring, cqe);
            l->n_read--;
        }
    }
}

static void
open_uring(struct load *l)
{
    struct wts_state *st = l->wp->st;
    int rc = st->uring_errno != 0 ? -st->uring_errno : 0;

    if (l->wp->dummy)
        return;
    st->how = "pread";
    if (!l->la->use_uring || rc != 0)
        return;
    /* Refused by seccomp or sysctl (EPERM), not built (ENOSYS), or over the
     * locked memory limit (ENOMEM): pread reads the same bytes. */
    if (io_uring_queue_init((unsigned)l->n_slot, &l->ring, 0) == 0) {
        l->uring = 1;
        st->how = "io_uring";
    }
}

static int
open_slots(struct load *l, struct fdk_ctx *ctx, int dev)
{
    size_t n = l->la->buffer_bytes / CHUNK_BYTES;
    void *mem;
    int rc;

    l->n_slot = n < MIN_SLOT ? MIN_SLOT : n > MAX_SLOT ? MAX_SLOT : (int)n;
    l->chunk = l->la->buffer_bytes / (size_t)l->n_slot / PAGE * PAGE;
    if (l->chunk < PAGE)
        l->chunk = PAGE;
    for (int32_t i = 0; i < l->wp->n_piece; i++) {
        const struct wts_piece *pc = &l->wp->piece[i];

        if (pc->cols > 0 && staged_row(l->wp, pc) > l->chunk) {
            l->chunk = (staged_row(l->wp, pc) + PAGE - 1) / PAGE * PAGE;
            l->n_slot = MIN_SLOT;
        }
    }
    rc = l->k->host_alloc(ctx, l->chunk * (size_t)l->n_slot, &mem);
    if (rc != 0)
        return mdl_fail(rc, l->err, l->err_bytes,
            "W_IO: no memory for %zu bytes of staging", l->chunk * (size_t)l->n_slot);
    l->mem = mem;
    rc = l->k->stream_new(ctx, dev, &l->stream);
    for (int i = 0; i < l->n_slot && rc == 0; i++) {
        l->slot[i].buf = l->mem + (size_t)i * l->chunk;
        rc = l->k->event_new(ctx, dev, &l->slot[i].ev);
    }
    if (rc != 0)
        return mdl_fail(rc, l->err, l->err_bytes, "W_IO: device streams and events: %s",
            strerror(-rc));
    return 0;
}

int
wts_load(const struct wts_plan *wp, const struct fdk_ops *k, struct fdk_ctx *ctx, int dev,
    void *arena, const struct wts_load_args *la, char *err, size_t err_bytes)
{
    struct load *l = calloc(1, sizeof(*l));
    int rc, sync;

    if (l == NULL)
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    l->wp = wp;
    l->k = k;
    l->la = la;
    l->arena = arena;
    l->err = err;
    l->err_bytes = err_bytes;
    rc = open_slots(l, ctx, dev);
    if (rc == 0)
        rc = wts_check_unchanged(wp, err, err_bytes);
    if (rc == 0) {
        open_uring(l);
        rc = run(l);
    }
    if (l->uring) {
        drain(l);
        io_uring_queue_exit(&l->ring);
    }
    if (l->stream != NULL) {
        sync = k->stream_sync(l->stream);
        if (rc == 0 && sync != 0)
            rc = mdl_fail(sync, err, err_bytes, "W_IO: copying weights to the device: %s",
                strerror(-sync));
    }
    if (rc == 0)
        rc = wts_check_unchanged(wp, err, err_bytes);
    for (int i = 0; i < l->n_slot; i++)
        if (l->slot[i].ev != NULL)
            k->event_free(l->slot[i].ev);
    if (l->stream != NULL)
        k->stream_free(l->stream);
    if (l->mem != NULL)
        k->host_free(ctx, l->mem);
    free(l);
    return rc;
}
