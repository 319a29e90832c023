/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of wts_load(): reading (weights_read.c), where rows go and what is converted on
 * the host (weights_host.c), threads that do both (weights_reader.c), and what drives them
 * (weights_load.c).
 */
#ifndef FDD_DAEMON_WORKER_WEIGHTS_LOAD_H
#define FDD_DAEMON_WORKER_WEIGHTS_LOAD_H

#include <liburing.h>
#include <pthread.h>

#include "daemon/worker/weights_priv.h"

/* Bytes of a file on their way to memory. */
struct wts_read {
    int32_t file;
    int n_eio;
    const char *tensor;
    uint64_t off; /* of to[0] */
    char *to;
    size_t want, have;
};

/* Elements [first, first + n_elt) of a piece. */
struct wts_chunk {
    const struct wts_piece *pc;
    uint64_t first, n_elt;
    uint64_t at; /* elements of the plan before these */
};

/* What a read that ended with res (bytes or -errno) comes to: 1 all is there,
 * 0 read on, or a failure with its line in err. */
int wts_read_result(const struct wts_plan *wp, struct wts_read *r, int64_t res, char *err,
    size_t err_bytes);
/* Read by pread: bytes or -errno. */
int64_t wts_read_some(const struct wts_plan *wp, const struct wts_read *r);
/* Put what r still wants into the ring's queue; its completion carries r. -ENOSPC. */
int wts_read_queue(const struct wts_plan *wp, struct io_uring *ring, struct wts_read *r);

/* Bytes of n elements as the checkpoint has them. */
size_t wts_src_bytes(const struct wts_piece *pc, uint64_t n);
/* Staging that a row takes which cannot be split: raw, and of repeated scales what
 * becomes of it. 0: any element can begin a chunk. */
size_t wts_row_bytes(const struct wts_piece *pc);
/* Elements of the piece for `bytes` of staging, at least a row. */
uint64_t wts_chunk_elts(const struct wts_piece *pc, size_t bytes);
/* The weight in an arena. */
struct fdk_weight wts_weight_in(const struct wts_plan *wp, int32_t i, void *arena);
/* Is it read to its place as it is? Then a chunk may begin with any element, and every rank
 * has all of it. */
int wts_is_plain(const struct wts_piece *pc);
/* Each row of scales to all the rows it holds for, as fp32; bytes of these. */
void wts_repeat(const struct wts_chunk *c, void *dst, const void *src);
size_t wts_repeat_bytes(const struct wts_chunk *c);

/* Rows of a chunk that a rank has. They are counted as they were read, or as wts_repeat()
 * makes them. Of a plain piece: n = 0, all that was read. */
struct wts_dest {
    int32_t at;     /* which arena */
    int64_t row, n; /* of the rank's weight, from row on */
    int64_t from;   /* the first, of the chunk */
};
/* The next of a chunk's, for n_at arenas; *i is 0 before the first call. 0: there is none. */
int wts_next_dest(const struct wts_plan *wp, const struct wts_chunk *c, int32_t n_at,
    int32_t *i, struct wts_dest *ret);
/* The next rows of weight `place` that no part of the model fills: zeros; from is 0. */
int wts_next_zeros(const struct wts_plan *wp, int32_t place, int32_t n_at, int32_t *i,
    struct wts_dest *ret);
/* Of what stands for the chunk: bytes before the rows, and of them. */
size_t wts_dest_off(const struct wts_chunk *c, const struct wts_dest *d);
size_t wts_dest_bytes(const struct wts_chunk *c, const struct wts_dest *d);
/* Where these bytes go in the arena as they are. NULL: the backend packs them. */
void *wts_dest_to(const struct wts_plan *wp, const struct wts_chunk *c,
    const struct wts_dest *d, void *arena);
/* What packing them takes, of one that is not plain; x: where they stand. */
struct fdk_pack_args wts_dest_pack(const struct wts_plan *wp, const struct wts_chunk *c,
    const struct wts_dest *d, void *arena, const void *x, uint64_t *bad);
/* Bytes of numbers and scales that they bring, whatever the layout. */
size_t wts_dest_filled(const struct wts_plan *wp, const struct wts_chunk *c,
    const struct wts_dest *d);
/* The message that element i of the piece is not finite: -EINVAL. */
int wts_not_finite(const struct wts_piece *pc, uint64_t i, char *err, size_t err_bytes);

enum wts_slot_state { WTS_SLOT_FREE, WTS_SLOT_READ, WTS_SLOT_COPY };

struct wts_slot {
    struct wts_read rd; /* first: a completion carries its address */
    enum wts_slot_state state;
    struct wts_chunk c;
    size_t off; /* of its staging, on the host and on every device */
    fdk_event_t ev[FDK_MAX_DEVICES];
    uint32_t copying; /* bit i: ev[i] is behind a copy to arena i */
    uint64_t seq;     /* of the reader's copies */
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

/* An arena that is filled, and what its device has for that. */
struct wts_target {
    int dev;
    char *arena, *mem; /* mem: staging */
    uint64_t *bad;     /* on the device: the first element not finite */
};

struct wts_loading {
    const struct wts_plan *wp;
    const struct fdk_ops *k;
    struct fdk_ctx *ctx;
    struct wts_target at[FDK_MAX_DEVICES];
    int32_t n_at;
    int on_host, staged;
    struct wts_load_args la;
    int n_reader, n_slot; /* slots of each */
    size_t chunk;
    char *mem;
    pthread_t thread; /* of a load in the background, */
    int result;       /* and what it came to */
    struct wts_reader reader[WTS_MAX_RINGS];

    pthread_mutex_t lock; /* all below */
    pthread_cond_t ended;
    int n_running;
    int32_t piece; /* next chunk */
    uint64_t elt, read;
    uint64_t done;
    int rc; /* of the first chunk that failed */
    uint64_t rc_at;
    char err[1024];
    int stop; /* wts_load_stop() */
};

/* ---- weights_reader.c ---- */

/* Chunks are given out in order, and those given out before a failed one still
 * end: what remains is the first failure of all. */
void wts_load_fail(struct wts_loading *l, uint64_t at, int rc, const char *err);
/* 0: there is none, or loading ends. */
int wts_next_chunk(struct wts_loading *l, struct wts_chunk *ret);
/* filled: bytes of the arenas. */
void wts_chunk_done(struct wts_loading *l, size_t filled);
/* The message that a device failed; returns rc. */
int wts_device_error(int rc, char *err, size_t err_bytes);
/* A dest's rows stand at x, where the device reads them. */
int wts_pack_dest(const struct wts_loading *l, fdk_stream_t st, const struct wts_chunk *c,
    const struct wts_dest *d, const void *x);
void wts_ring_open(struct wts_reader *r);
void wts_ring_close(struct wts_reader *r);
/* Until nothing is left to read. */
void wts_reader_run(struct wts_reader *r);
/* The same as a thread; arg: the reader. */
void *wts_reader_main(void *arg);

#endif
