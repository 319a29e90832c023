/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of wts_load(): reading (weights_read.c), the places of rows and their
 * conversion on the host (weights_host.c), the threads that do both (weights_reader.c),
 * and their control (weights_load.c).
 */
#ifndef FDD_DAEMON_WORKER_WEIGHTS_LOAD_H
#define FDD_DAEMON_WORKER_WEIGHTS_LOAD_H

#include <liburing.h>
#include <pthread.h>

#include "daemon/worker/weights_priv.h"

/* Bytes of a file that are being read to memory. */
struct wts_read {
    int32_t file;
    int n_eio;
    const char *tensor;
    uint64_t off; /* offset in the file of to[0] */
    char *to;
    size_t want, have;
};

/* Elements [first, first + n_elt) of a piece. */
struct wts_chunk {
    const struct wts_piece *pc;
    uint64_t first, n_elt;
    uint64_t at; /* number of the plan's elements before these */
};

/* Evaluate a read that ended with res (bytes or -errno). Returns 1 if all has been
 * read, 0 if there is more to read, or -errno with a line in err. */
int wts_read_result(const struct wts_plan *wp, struct wts_read *r, int64_t res, char *err,
    size_t err_bytes);
/* Read with pread. Returns bytes or -errno. */
int64_t wts_read_some(const struct wts_plan *wp, const struct wts_read *r);
/* Queue a read of the rest of r in the ring; its completion carries r. -ENOSPC. */
int wts_read_queue(const struct wts_plan *wp, struct io_uring *ring, struct wts_read *r);

/* Bytes of n elements in the checkpoint. */
size_t wts_src_bytes(const struct wts_piece *pc, uint64_t n);
/* Staging bytes for a row, which cannot be split: its raw bytes and, for repeated
 * scales, the rows made of them. 0: a chunk may begin with any element. */
size_t wts_row_bytes(const struct wts_piece *pc);
/* Elements of the piece that fit into `bytes` of staging, at least a row. */
uint64_t wts_chunk_elts(const struct wts_piece *pc, size_t bytes);
/* Weight i with its data in an arena. */
struct fdk_weight wts_weight_in(const struct wts_plan *wp, int32_t i, void *arena);
/* Is the piece read to its place unchanged? Then a chunk may begin with any element,
 * and every rank has all of it. */
int wts_is_plain(const struct wts_piece *pc);
/* wts_repeat() writes each row of scales, as fp32, to all the rows that it holds for;
 * wts_repeat_bytes() gives the bytes of those rows. */
void wts_repeat(const struct wts_chunk *c, void *dst, const void *src);
size_t wts_repeat_bytes(const struct wts_chunk *c);

/* Rows of a chunk that go to a rank. They are counted in the chunk as read, or as
 * wts_repeat() writes it. For a plain piece n is 0: the whole chunk. */
struct wts_dest {
    int32_t at;     /* index of the arena */
    int64_t row, n; /* n rows of the rank's weight, from row on */
    int64_t from;   /* first of these rows, counted in the chunk */
};
/* The next destination of a chunk, among n_at arenas; *i is 0 before the first call.
 * Returns 0 at the end. */
int wts_next_dest(const struct wts_plan *wp, const struct wts_chunk *c, int32_t n_at,
    int32_t *i, struct wts_dest *ret);
/* The next rows of weight `place` that no rows of the model fill, and that become
 * zeros; from is 0. */
int wts_next_zeros(const struct wts_plan *wp, int32_t place, int32_t n_at, int32_t *i,
    struct wts_dest *ret);
/* In the buffer that holds the chunk: bytes before the rows, and bytes of the rows. */
size_t wts_dest_off(const struct wts_chunk *c, const struct wts_dest *d);
size_t wts_dest_bytes(const struct wts_chunk *c, const struct wts_dest *d);
/* The address in the arena for these bytes if they need no packing, else NULL. */
void *wts_dest_to(const struct wts_plan *wp, const struct wts_chunk *c,
    const struct wts_dest *d, void *arena);
/* Arguments for packing the rows of a chunk that is not plain; x: address of the rows. */
struct fdk_pack_args wts_dest_pack(const struct wts_plan *wp, const struct wts_chunk *c,
    const struct wts_dest *d, void *arena, const void *x, uint64_t *bad);
/* Bytes that the rows fill in the arena: numbers and scales, whatever the layout. */
size_t wts_dest_filled(const struct wts_plan *wp, const struct wts_chunk *c,
    const struct wts_dest *d);
/* Write the message that element i of the piece is not finite; returns -EINVAL. */
int wts_not_finite(const struct wts_piece *pc, uint64_t i, char *err, size_t err_bytes);

enum wts_slot_state { WTS_SLOT_FREE, WTS_SLOT_READ, WTS_SLOT_COPY };

struct wts_slot {
    struct wts_read rd; /* first member: a completion carries its address */
    enum wts_slot_state state;
    struct wts_chunk c;
    size_t off; /* offset of its staging, on the host and on every device */
    fdk_event_t ev[FDK_MAX_DEVICES];
    uint32_t copying; /* bit i: ev[i] was recorded after a copy to arena i */
    uint64_t seq;     /* number of the copy among the reader's */
};

struct wts_loading;
struct wts_reader {
    struct wts_loading *l;
    pthread_t thread;
    fdk_stream_t stream[FDK_MAX_DEVICES];
    struct wts_slot slot[WTS_RING_ENTRIES];
    int n_read;
    uint64_t seq;
    struct io_uring own, *ring; /* NULL: pread */
    char err[1024];
};

/* An arena to be filled, and the buffers of its device. */
struct wts_target {
    int dev;
    char *arena, *mem; /* mem: staging */
    uint64_t *bad;     /* on the device: index of the first element that is not finite */
};

struct wts_loading {
    const struct wts_plan *wp;
    const struct fdk_ops *k;
    struct fdk_ctx *ctx;
    struct wts_target at[FDK_MAX_DEVICES];
    int32_t n_at;
    int on_host, staged;
    struct wts_load_args la;
    int n_reader, n_slot; /* slots of each reader */
    size_t chunk;
    char *mem;
    pthread_t thread; /* thread of a load in the background */
    int result;       /* its result */
    struct wts_reader reader[WTS_MAX_RINGS];

    pthread_mutex_t lock; /* guards all members below */
    pthread_cond_t ended;
    int n_running;
    int32_t piece; /* next chunk */
    uint64_t elt, read;
    uint64_t done;
    int rc; /* of the first chunk that failed, in the order of the files */
    uint64_t rc_at;
    char err[1024];
    int stop; /* wts_load_stop() */
};

/* ---- weights_reader.c ---- */

/* Record the failure of the chunk at `at`. Chunks are given out in order, and those
 * given out before a failed one are still completed, so that the first failure of all
 * is reported. */
void wts_load_fail(struct wts_loading *l, uint64_t at, int rc, const char *err);
/* Take the next chunk. Returns 0 if there is none, or if loading ends, else 1. */
int wts_next_chunk(struct wts_loading *l, struct wts_chunk *ret);
/* Count a finished chunk. filled: the bytes that it filled in the arenas. */
void wts_chunk_done(struct wts_loading *l, size_t filled);
/* Write the message that a device failed; returns rc. */
int wts_device_error(int rc, char *err, size_t err_bytes);
/* Pack the rows of d, which are at x in memory that the device reads. */
int wts_pack_dest(const struct wts_loading *l, fdk_stream_t st, const struct wts_chunk *c,
    const struct wts_dest *d, const void *x);
void wts_ring_open(struct wts_reader *r);
void wts_ring_close(struct wts_reader *r);
/* Read chunks until none is left. */
void wts_reader_run(struct wts_reader *r);
/* wts_reader_run() as a thread; arg: the reader. */
void *wts_reader_main(void *arg);

#endif
