/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of wts_load(): reading (weights_read.c), converting on the host
 * (weights_host.c), and what drives both (weights_load.c).
 */
#ifndef FDD_DAEMON_WORKER_WEIGHTS_LOAD_H
#define FDD_DAEMON_WORKER_WEIGHTS_LOAD_H

#include <liburing.h>

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
/* Where the chunk's bytes stand in the arena one behind the other: as they are read, or of
 * repeated scales those of wts_repeat(). NULL: the backend packs them. */
void *wts_chunk_to(const struct wts_plan *wp, const struct wts_chunk *c, void *arena);
/* What packing the chunk takes; x: its elements as they were read, or those of
 * wts_repeat(). Of one that is not plain. */
struct fdk_pack_args wts_chunk_pack(const struct wts_plan *wp, const struct wts_chunk *c,
    void *arena, const void *x, uint64_t *bad);
/* Bytes of numbers and scales that it brings, whatever the layout. */
size_t wts_chunk_filled(const struct wts_plan *wp, const struct wts_chunk *c);
/* Is it read to its place as it is? */
int wts_is_plain(const struct wts_piece *pc);
/* Each row of scales to all the rows it holds for, as fp32. */
void wts_repeat(const struct wts_chunk *c, void *dst, const void *src);
/* The message that element i of the piece is not finite: -EINVAL. */
int wts_not_finite(const struct wts_piece *pc, uint64_t i, char *err, size_t err_bytes);

#endif
