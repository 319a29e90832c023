/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the weights module: the plan, and hooks for its tests.
 */
#ifndef FDD_DAEMON_WORKER_WEIGHTS_PRIV_H
#define FDD_DAEMON_WORKER_WEIGHTS_PRIV_H

#include <sys/types.h>
#include <time.h>

#include "daemon/worker/quant.h"
#include "daemon/worker/weights.h"

#define WTS_MAX_HEADER_BYTES (64u << 20)
#define WTS_MAX_INDEX_BYTES  (64u << 20)
#define WTS_MAX_TENSOR       262144
#define WTS_MAX_NAME         512
#define WTS_MAX_META_BYTES   (1u << 20)
#define WTS_MAX_FILE         1024
#define WTS_MAX_DIM          8
#define WTS_ALIGN            256
#define WTS_EIO_RETRY        3

struct wts_file {
    char *path;       /* as opened: directory/name */
    const char *name; /* the last part of path */
    int fd;           /* open from plan to wts_plan_free() */
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

/* One run of a tensor's bytes to rows of a weight, unchanged or converted by the
 * backend. */
struct wts_piece {
    int32_t file; /* -1: dummy */
    int32_t place;
    enum fdk_pack what;
    enum fdk_dtype src;
    uint64_t off, n_elt;
    int64_t row;  /* first row, of the model's weight */
    int32_t cols; /* elements of a row, where chunks have whole rows; 0: a chunk may end
                     with any element */
    /* Scales of the checkpoint that hold for several rows: rows of rep_cols elements,
     * each repeated rep times, rep_rows in all (so the last one fewer times). n_elt
     * counts elements in the file. rep = 0: no such scales. */
    int32_t rep, rep_cols, rep_rows;
    const char *tensor; /* borrowed from wts_plan.tensor; NULL: dummy */
};

enum wts_fill { WTS_FILL_LINEAR, WTS_FILL_NORM, WTS_FILL_BIAS };

struct wts_place {       /* the place of weight i of the program */
    struct fdk_weight w; /* of a rank; a vector has rows of one element; data is NULL */
    int32_t cols;        /* columns of the model's weight */
    int row_scale;       /* 1: one scale holds for all the model's columns of a row */
    enum wts_shard shard;
    int32_t split; /* wts_ref.split */
    int32_t dummy; /* number of the weight if n_split were 1 */
    int32_t n_cut;
    struct wts_cut cut[MDL_MAX_PART];
    enum fdk_dtype src; /* type before quantization */
    uint64_t off;       /* offset in the arena */
    int32_t alias;
    enum wts_fill fill; /* kind of a dummy weight */
    float scale;
};

static inline uint64_t
wts_n_elt(const struct fdk_weight *w)
{
    return (uint64_t)w->rows * (uint64_t)w->cols;
}

/* The state that wts_load() changes in a plan that it takes as const, and test hooks. */
struct wts_state {
    const char *how;
    /* Is called with the result of each read (bytes or -errno) and returns the result
     * to use instead: -EIO, fewer bytes, 0 for an early end. NULL: no hook. Called by
     * one thread at a time. */
    int64_t (*fault)(void *arg, uint64_t off, size_t n, int64_t res);
    void *fault_arg;
    int uring_errno;             /* pretend that io_uring is refused with EPERM, ENOSYS
                                    or ENOMEM */
    int n_reader;                /* threads that read; 0: chosen by the number of
                                    processors */
    uint64_t load_ns;            /* duration of the last wts_load() */
    struct wts_loading *loading; /* a load in the background */
};

#define WTS_PLAN_MAGIC 0x77706c6e

struct wts_plan {
    uint32_t magic;
    int dummy;
    uint64_t seed;
    uint64_t bytes; /* of a rank's weights */
    int32_t n_rank;
    enum fdk_dtype main_dtype;
    struct qnt qnt;
    const struct fdk_ops *k; /* backend whose layouts the weights have; NULL:
                                FDK_LAYOUT_ROWS */
    struct wts_file *file;
    int32_t n_file;
    struct wts_tensor *tensor;
    size_t n_tensor; /* sorted by name */
    struct wts_place *place;
    int32_t n_place;
    struct wts_piece *piece;
    int32_t n_piece; /* sorted by file, offset */
    char *ignored;
    int32_t n_kv_scale; /* tensors that are scales of an fp8 KV cache */
    uint8_t digest[32];
    struct wts_state *st;
};

/* As wts_header_parse(), for a file of a plan: where begins messages ("" for none),
 * data_off is the offset in the file of the first byte of data. */
int wts_header_read(const char *where, const char *json, size_t n, uint64_t data_off,
    uint64_t data_bytes, struct wts_tensor **ret, size_t *ret_n, char *err,
    size_t err_bytes);

/* weights_tensor.c: find a tensor by name; NULL if there is none. */
const struct wts_tensor *wts_find(const struct wts_plan *wp, const char *name);
/* Sort the tensors by name, for wts_find(). -EINVAL: a name is in two files. */
int wts_sort(struct wts_plan *wp, char *err, size_t err_bytes);
/* Rename tensors to the program's names; r may be NULL. -EINVAL: two get the same
 * name. */
int
wts_rename(struct wts_plan *wp, const struct mdl_rename *r, char *err, size_t err_bytes);
/* Write a shape as "(2, 3)". */
void wts_shape_text(char *s, size_t n, const int64_t *shape, int n_dim);
/* weights_read.c: read n bytes at off. 0, or -EIO or -EINVAL (the file ends) with a
 * line in err. */
int wts_read_exact(const struct wts_file *f, void *p, size_t n, uint64_t off, char *err,
    size_t err_bytes);
/* weights_tied.c: if the files have a tied head but not its embedding, rename the head
 * to the embedding, as transformers does. 0 or -ENOMEM. */
int wts_head_alone(struct wts_plan *wp, const struct mdl_program *p, char *err,
    size_t err_bytes);
/* If a tied weight of the program is also in the files, with other bytes, type or
 * shape, untie it. */
int
wts_untie(const struct wts_plan *wp, struct mdl_program *p, char *err, size_t err_bytes);
/* weights_fp8.c: check that every e4m3 tensor is one of the program's matrices and has
 * scales of the right dtype, shape and values, and that all others required by the
 * program exist. */
int wts_fp8_check(const struct wts_plan *wp, const struct mdl_program *p, char *err,
    size_t err_bytes);
/* The scales of an e4m3 tensor, or NULL. */
const struct wts_tensor *wts_fp8_scale(const struct wts_plan *wp, const char *weight);
enum wts_fp8_use { WTS_FP8_NOT, WTS_FP8_SCALE, WTS_FP8_UNUSED };
/* The relation to an e4m3 tensor of a tensor that the program does not use. */
enum wts_fp8_use wts_fp8_use(const struct wts_plan *wp, const char *name);
/* weights_kv.c: is it a scale of an fp8 KV cache, of a layer the model has? */
int wts_is_kv_scale(const struct mdl_program *p, const char *name);
/* weights_place.c: fill place, piece, bytes and main_dtype, by wp->qnt; their earlier
 * contents are discarded. */
int wts_place_all(struct wts_plan *wp, const struct mdl_program *p, char *err,
    size_t err_bytes);

/* weights_dummy.c: write elements [first, first + n) of weight idx, in its src type;
 * independent of how the weight is divided into calls. */
void wts_dummy_fill(const struct wts_plan *wp, int32_t idx, uint64_t first, size_t n,
    void *dst);
/* Arguments with which a device makes the same values; without y and y_dtype. */
struct fdk_dummy_args
wts_dummy_args(const struct wts_plan *wp, int32_t idx, uint64_t first, uint64_t n);

/* weights_read.c: check that the files have not changed since their headers were read.
 * 0, -EINVAL (W_CHANGED), -EIO. */
int wts_check_unchanged(const struct wts_plan *wp, char *err, size_t err_bytes);

#endif
