/*
 * The runner: a device, the program bound to it, and the steps on its way.
 * Opened and filled by the worker's main thread (run_new, run_load,
 * run_setup, in this order), then used by the engine thread alone.
 *
 *   run_launch()   plan up, row updates, program (graph or eager), results
 *                  down, event: all asynchronous on one stream
 *   run_collect()  waits for the event of one record
 *
 * Nothing is allocated after run_setup(), but for graphs: the first step of
 * each padded size records its own when device.graph is on and the backend
 * has them; run_warm() does so ahead of "ready".
 */
#ifndef FDD_DAEMON_WORKER_RUNNER_H
#define FDD_DAEMON_WORKER_RUNNER_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/worker/batch.h"
#include "daemon/worker/model.h"
#include "daemon/worker/weights.h"
#include "kernels/fdk.h"

/* Logits buffer: rows of one slice so that it stays below this, at least 1. */
#define RUN_LOGITS_BYTES (16u << 20)

struct run_open_args {
    const char *backend;     /* "auto", "cpu", "cuda", "null" */
    int32_t n_thread, spin_us;
    int32_t max_token;
};

/* One operation with its pointers; T and O are set at launch. */
struct run_op {
    enum mdl_op_kind kind;
    union {
        struct fdk_embed_args embed;
        struct fdk_rope_table_args rope;
        struct fdk_rmsnorm_args norm;
        struct fdk_gemm_args gemm;
        struct fdk_qkv_args qkv;
        struct fdk_attention_args att;
        struct fdk_silu_mul_args silu;
        struct fdk_gather_args gather;
        struct fdk_sample_args sample;
    };
};

/* One padded size: its launch bounds and, once recorded, its graph. */
struct run_pad {
    int32_t T, S, O;
    struct fdk_batch b;
    struct fdk_graph *graph;
};

struct run_mem {             /* bytes on the device, for the log and fdctl */
    uint64_t weights, kv, activations, scratch, state, plan;
};

struct runner {
    uint32_t magic;
#define RUN_MAGIC 0x52554e31u
    const struct fdk_ops *k;
    struct fdk_ctx *ctx;
    fdk_stream_t stream;
    int use_graph;
    struct mdl_program *prog;
    const struct wts_plan *wp;
    void *d_weights, *d_act, *d_scratch, *d_inv_freq, *d_kv;
    struct fdk_row *d_state; /* [S + 1], the last is the dummy row */
    unsigned char *d_plan;
    struct fdk_result *d_results; /* [O] */
    struct fdk_kv kv;
    struct bat_dims dims;
    struct bat_layout layout;
    int32_t R;               /* rows of a logits slice */
    struct run_op *op;
    struct run_pad *pad;
    int32_t n_pad;
    struct bat_rec *rec;     /* [n_rec] */
    int32_t n_rec;
    fdk_event_t *ev_begin;   /* [n_rec] */
    struct run_mem mem;
};

/* -ENODEV (no such device here), -ENOTSUP (unknown backend), -ENOMEM; err
 * says why. */
int run_new(const struct run_open_args *a, struct runner **ret, char *err, size_t err_bytes);
struct runner *run_free(struct runner *run);
/* Memory the device has left. */
uint64_t run_mem_free(const struct runner *run);

/* Take the program and fill its weights. wp NULL: the program has none. Both
 * must stay until run_free(). */
int run_load(struct runner *run, struct mdl_program *prog, const struct wts_plan *wp,
    const struct wts_load_args *la, char *err, size_t err_bytes);
/* Place buffers, make the KV pool of n_block blocks (dummy included), bind
 * the program and make n_rec step records. */
int run_setup(struct runner *run, const struct bat_dims *dims, const struct fdk_kv *kv,
    int32_t n_block, int32_t n_rec, int use_graph, char *err, size_t err_bytes);
/* Record the graphs of all sizes up to max_tokens. */
int run_warm(struct runner *run, int32_t max_tokens);

/* Launch a filled record. 0 or -errno, after which the device is lost. */
int run_launch(struct runner *run, struct bat_rec *rec);
/* Wait for it: rec->results[0 .. n_out) are valid. *ret_model_ns is the time
 * the device took. */
int run_collect(struct runner *run, struct bat_rec *rec, uint64_t *ret_model_ns);
/* Why the device failed. */
const char *run_error(const struct runner *run);

/* ---- runner_program.c --------------------------------------------------------- */

/* The program of the null model: it only samples. NULL: no memory. */
struct mdl_program *run_null_program(void);
#define RUN_NULL_VOCAB 259
#define RUN_NULL_BOS 256
#define RUN_NULL_EOS 257
#define RUN_NULL_LEN 65536
/* Offsets of the program's buffers in one arena such that buffers alive at
 * the same time never overlap; off[n_buf]. */
int run_place(const struct mdl_program *p, const struct bat_dims *d, int32_t R,
    size_t *off, size_t *ret_bytes);
/* Bytes of buffer i. */
size_t run_buf_bytes(const struct mdl_program *p, const struct bat_dims *d, int32_t R,
    int32_t i);
/* Fill run->op from run->prog; needs everything allocated. */
int run_bind(struct runner *run, const size_t *off);
/* Scratch for the largest launch. */
size_t run_scratch_bytes(struct runner *run);
/* Launch the whole program for one padded size. */
int run_program(struct runner *run, struct run_pad *pad);

#endif
