/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights: checkpoint files to the program's weights on a device. Main thread of the
 * worker, at load only; wts_load() has threads of its own.
 *
 * The plan is made from the headers of model.safetensors, or of the shards named by
 * model.safetensors.index.json, before anything is allocated; every field is checked
 * (error codes W_*, below). Reading goes through bounded staging by io_uring, or by
 * pread where io_uring is refused; files are never mapped, so that a truncated file is
 * an error and not SIGBUS.
 */
#ifndef FDD_DAEMON_WORKER_WEIGHTS_H
#define FDD_DAEMON_WORKER_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/worker/model.h"
#include "kernels/fdk.h"

struct wts_tensor { /* one tensor of a checkpoint file */
    char *name;
    enum fdk_dtype dtype;   /* FDK_DTYPE__N: a dtype of the format that fdd does not
                               support */
    const char *dtype_name; /* as the format spells it (static) */
    int32_t n_dim;
    int64_t shape[8];
    int32_t file;        /* index into wts_plan.files */
    uint64_t off, bytes; /* absolute in the file */
};

struct qnt;
struct wts_plan; /* the files, their tensors, and the place of each */

/* Parse one safetensors header (fuzzing entry): json is the header text, data_bytes the
 * size of the data after it. Fills a heap array. err: one line "W_SHAPE: tensor x: ..."
 * . */
int wts_header_parse(const char *json, size_t n, uint64_t data_bytes,
    struct wts_tensor **ret, size_t *ret_n, char *err, size_t err_bytes);
void wts_tensors_free(struct wts_tensor *t, size_t n);

/*
 * Codes that begin an error line:
 *   W_PATH    a file cannot be opened, is no regular file, or its name in the
 *             index is more than a file name
 *   W_HDRLEN  the header's length does not fit the file
 *   W_JSON    the header or index is not valid JSON of the required form
 *   W_SHAPE   dtype, shape and size of a tensor do not agree
 *   W_LAYOUT  tensors overlap, leave holes, or do not end with the file
 *   W_LIMIT   more tensors, longer names or more metadata than allowed
 *   W_MODEL   the tensors are not those that config.json requires
 *   W_IO      reading failed
 *   W_TRUNC   a file ended early while its weights were read
 *   W_CHANGED a file was changed or replaced since its header was read
 */

/* Check dir against the program and make the plan. -ENOENT, -EACCES, -EINVAL, -EIO; err
 * is one line that begins with the W_ code and names file and tensor. dummy = 1: no
 * files, but random weights of realistic scale from seed, in p->cfg.dtype, or in e4m3
 * if p->cfg.quant says that the checkpoint is quantized. If config.json ties the head
 * to the embedding but the files hold a head that differs from it, that head is used,
 * and p->cfg.tied becomes 0. (transformers 5 does so and warns; transformers 4 and vLLM
 * drop the head.) */
int wts_plan_new(const char *dir, struct mdl_program *p, int dummy, uint64_t seed,
    struct wts_plan **ret, char *err, size_t err_bytes);
struct wts_plan *wts_plan_free(struct wts_plan *wp);

/* Quantize the layers' matrices while they are loaded (quant.h). Call once, before
 * wts_load(). -EINVAL: this checkpoint cannot be quantized, or already is; then the
 * plan may only be given to wts_plan_free(). */
int wts_plan_quantize(struct wts_plan *wp, const struct mdl_program *p,
    const struct qnt *q, char *err, size_t err_bytes);

/* Let the backend choose the layouts of matrices that only GEMMs read; all others, and
 * these before the call, have FDK_LAYOUT_ROWS. Call before wts_load(). -ENOTSUP: the
 * backend has no GEMM for one of them. On any error the plan may only be given to
 * wts_plan_free(). */
int wts_plan_layout(struct wts_plan *wp, const struct mdl_program *p,
    const struct fdk_ops *k, char *err, size_t err_bytes);

/* Device bytes of a rank's weights, as packed. Weights have the same shapes and offsets
 * in every rank. */
uint64_t wts_bytes(const struct wts_plan *wp);
/* Weight i of a rank, without data, which is wts_offset() bytes after the start of the
 * arena (256-byte aligned). A vector has rows of one element. Tied aliases share an
 * offset. */
struct fdk_weight wts_weight(const struct wts_plan *wp, int32_t i);
uint64_t wts_offset(const struct wts_plan *wp, int32_t i);
enum fdk_dtype wts_dtype(const struct wts_plan *wp, int32_t i); /* its format */
/* Device bytes per element of weight i, scales included. */
double wts_elt_bytes(const struct wts_plan *wp, int32_t i);
/* The dtype of most of the checkpoint's linear weights, before they are quantized here
 * (kv_dtype = auto follows it). */
enum fdk_dtype wts_main_dtype(const struct wts_plan *wp);
/* Digest of the headers (names, dtypes, shapes, file sizes), and of how the weights are
 * quantized, if they are. */
void wts_digest(const struct wts_plan *wp, uint8_t ret[32]);
/* Number of the checkpoint's tensors that are scales of an fp8 KV cache:
 * model.layers.N.self_attn.k_scale and .v_scale, or .k_proj.k_scale and
 * .v_proj.v_scale, of shape (), (1) or (n_kv_head). */
int32_t wts_n_kv_scale(const struct wts_plan *wp);
/* Read these scales (after wts_plan_new(), before or after wts_load()) to
 * ret[n_layer][2: K, V][n_kv_head]; all 1 if there are none. Every value must be finite
 * and greater than 0, and every layer must have both or none: else -EINVAL. On -EINVAL
 * or -EIO err has a W_ line, and ret's contents are undefined. */
int wts_kv_scales(const struct wts_plan *wp, const struct mdl_program *p, float *ret,
    char *err, size_t err_bytes);
/* Copy a rank's share of those scales to ret[n_layer][2: K, V][program.n_kv_head]. */
void wts_kv_scales_of(const struct mdl_program *p, const float *scale, int32_t rank,
    float *ret);
/* Extra tensors that were ignored, for the log: "n: name name ...", or "". */
const char *wts_ignored(const struct wts_plan *wp);

#define WTS_MAX_RINGS    16 /* most reader threads */
#define WTS_RING_ENTRIES 8
struct io_uring;
/* The memory for a rank's weights: wts_bytes() on a device. */
struct wts_at {
    int dev;
    void *arena;
};
struct wts_load_args {
    int use_uring;
    size_t buffer_bytes;
    uint64_t *done, *total; /* bytes so far and in all, for other threads to read; both
                               may be NULL */
    int background;         /* 1: wts_load() returns at once; call wts_load_wait() */
    struct io_uring *ring;  /* [n_ring], of at least WTS_RING_ENTRIES, one for each
                               reader (confine.h); NULL: each reader opens its own */
    int n_ring;
};
/* Fill the arenas at[n_at]: those of ranks 0, 1, ... of the program, and again from
 * rank 0 on for each further copy. Every byte of the files is read once, whatever n_at
 * is, and goes to all arenas that need it. The files must not have changed since the
 * plan (W_CHANGED). Several threads read; the backend converts, quantizes and packs
 * (fdk_ops.weight_pack). Staging takes buffer_bytes of the host and of each device, or
 * the memory of four rows of a matrix to be quantized if that is more. A weight to be
 * quantized that is not finite is an error (W_MODEL). Of several errors the first in
 * the order of the files is reported. One thread updates done with relaxed stores,
 * after it has set total to the bytes of all arenas. -EINVAL: n_at is no multiple of
 * the program's ranks, or above FDK_MAX_DEVICES. */
int wts_load(const struct wts_plan *wp, const struct fdk_ops *k, struct fdk_ctx *ctx,
    const struct wts_at *at, int32_t n_at, const struct wts_load_args *la, char *err,
    size_t err_bytes);
/* Wait for a load in the background and return its result; 0 if there is none. Call
 * before wts_plan_free(), and before arena or ctx are freed. */
int wts_load_wait(const struct wts_plan *wp, char *err, size_t err_bytes);
/* As wts_load_wait(), but bytes not read yet are not read any more. */
void wts_load_stop(const struct wts_plan *wp);
/* How the last wts_load() read ("io_uring", "pread" or "dummy"), and how long it took. */
const char *wts_how(const struct wts_plan *wp);
uint64_t wts_load_ns(const struct wts_plan *wp);

/* Offline check of a model directory and its tokenizer: prints a short report, or one
 * line of error, to out. Returns an exit status of sysexits.h: EX_OK, EX_NOINPUT,
 * EX_NOPERM, EX_DATAERR, EX_IOERR, EX_OSERR. */
int wts_check_dir(const char *dir, FILE *out);

#endif
