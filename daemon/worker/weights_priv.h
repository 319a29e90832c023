/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the weights module: the plan, and hooks for its tests.
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

/* One tensor's way: bytes of a file to rows of a weight, as they are or converted by the
 * backend. */
struct wts_piece {
    int32_t file; /* -1: dummy */
    int32_t place;
    enum fdk_pack what;
    enum fdk_dtype src;
    uint64_t off, n_elt;
    int64_t row;  /* of the model's weight, the first */
    int32_t cols; /* elements of a row, where rows go whole; 0: any element may be the last
                     of a chunk */
    /* Scales of the checkpoint that hold for several rows: rows of rep_cols
     * elements, each written rep times, rep_rows in all (of the last one fewer).
     * n_elt counts what the file has. rep = 0: none of this. */
    int32_t rep, rep_cols, rep_rows;
    const char *tensor; /* borrowed from wts_plan.tensor; NULL: dummy */
};

enum wts_fill { WTS_FILL_LINEAR, WTS_FILL_NORM, WTS_FILL_BIAS };

struct wts_place {       /* of weight i of the program */
    struct fdk_weight w; /* a rank's; of a vector: rows of one element; data is NULL */
    int32_t cols;        /* of the model's weight */
    int row_scale;       /* a scale is one of all the model's columns */
    enum wts_shard shard;
    int32_t split; /* wts_ref.split */
    int32_t dummy; /* number of the weight in a program that is not split */
    int32_t n_cut;
    struct wts_cut cut[MDL_MAX_PART];
    enum fdk_dtype src; /* before quantization */
    uint64_t off;       /* in the arena */
    int32_t alias;
    enum wts_fill fill; /* dummy weights */
    float scale;
};

static inline uint64_t
wts_n_elt(const struct fdk_weight *w)
{
    return (uint64_t)w->rows * (uint64_t)w->cols;
}

/* What wts_load() changes in a plan it takes as const, and test hooks. */
struct wts_state {
    const char *how;
    /* Sees each read's result (bytes or -errno) and returns what is to be
     * believed: -EIO, fewer bytes, 0 for an early end. NULL: none. By one thread
     * at a time. */
    int64_t (*fault)(void *arg, uint64_t off, size_t n, int64_t res);
    void *fault_arg;
    int uring_errno;             /* pretend io_uring refuses: EPERM, ENOSYS, ENOMEM */
    int n_reader;                /* threads that read; 0: by the processors */
    uint64_t load_ns;            /* of the last wts_load */
    struct wts_loading *loading; /* in the background */
};

#define WTS_PLAN_MAGIC 0x77706c6e

struct wts_plan {
    uint32_t magic;
    int dummy;
    uint64_t seed;
    uint64_t bytes; /* of a rank */
    int32_t n_rank;
    enum fdk_dtype main_dtype;
    struct qnt qnt;
    const struct fdk_ops *k; /* whose layouts the weights have; NULL: FDK_LAYOUT_ROWS */
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

/* wts_header_parse() for a file of a plan: where stands in messages ("" for
 * none), data_off is the first byte of data in the file. */
int wts_header_read(const char *where, const char *json, size_t n, uint64_t data_off,
    uint64_t data_bytes, struct wts_tensor **ret, size_t *ret_n, char *err,
    size_t err_bytes);

/* weights_tensor.c: NULL if there is none. */
const struct wts_tensor *wts_find(const struct wts_plan *wp, const char *name);
/* By name, for wts_find(). -EINVAL: one stands in two files. */
int wts_sort(struct wts_plan *wp, char *err, size_t err_bytes);
/* Names of tensors as the program has them; r may be NULL. -EINVAL: two become one. */
int
wts_rename(struct wts_plan *wp, const struct mdl_rename *r, char *err, size_t err_bytes);
/* "(2, 3)". */
void wts_shape_text(char *s, size_t n, const int64_t *shape, int n_dim);
/* weights_read.c: n bytes at off. -EIO, -EINVAL (the file ends), with a line in
 * err. */
int wts_read_exact(const struct wts_file *f, void *p, size_t n, uint64_t off, char *err,
    size_t err_bytes);
/* weights_tied.c: a tied head that is in the files without its embedding becomes that, as in
 * transformers. -ENOMEM. */
int wts_head_alone(struct wts_plan *wp, const struct mdl_program *p, char *err,
    size_t err_bytes);
/* A tied weight of the program that is in the files too, with other
 * bytes, type or shape, becomes one of its own. */
int
wts_untie(const struct wts_plan *wp, struct mdl_program *p, char *err, size_t err_bytes);
/* weights_fp8.c: every e4m3 tensor is one of the program's matrices and has its
 * scales: dtype, shape and values. Others the program asks for are there. */
int wts_fp8_check(const struct wts_plan *wp, const struct mdl_program *p, char *err,
    size_t err_bytes);
/* The scales of an e4m3 tensor. */
const struct wts_tensor *wts_fp8_scale(const struct wts_plan *wp, const char *weight);
enum wts_fp8_use { WTS_FP8_NOT, WTS_FP8_SCALE, WTS_FP8_UNUSED };
/* What a tensor that the program does not ask for is to an e4m3 one. */
enum wts_fp8_use wts_fp8_use(const struct wts_plan *wp, const char *name);
/* weights_kv.c: is it a scale of an fp8 KV cache, of a layer the model has? */
int wts_is_kv_scale(const struct mdl_program *p, const char *name);
/* weights_place.c: fill place, piece, bytes and main_dtype, by wp->qnt; what
 * they held before is forgotten. */
int wts_place_all(struct wts_plan *wp, const struct mdl_program *p, char *err,
    size_t err_bytes);

/* weights_dummy.c: elements [first, first + n) of weight idx, in its src
 * type; the same whatever the split. */
void wts_dummy_fill(const struct wts_plan *wp, int32_t idx, uint64_t first, size_t n,
    void *dst);
/* What a device needs to make the same: all but y and y_dtype. */
struct fdk_dummy_args
wts_dummy_args(const struct wts_plan *wp, int32_t idx, uint64_t first, uint64_t n);

/* weights_read.c: are the files what they were when their headers were read?
 * -EINVAL (W_CHANGED), -EIO. */
int wts_check_unchanged(const struct wts_plan *wp, char *err, size_t err_bytes);

#endif
