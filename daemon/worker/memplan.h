/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory plan: every buffer of the worker with its size, computed from
 * configuration, model and device before any of them is allocated, and the
 * KV pool that fits in the rest. Pure functions over numbers; main thread.
 *
 * On a device, per rank, graphs counted before blocks:
 *
 *   blocks = (free * gpu_memory_utilization - fixed) / block_bytes
 *
 * and the smallest over the ranks. Capture shows what graphs really take;
 * mpl_settle() then sizes the pool again before its memory is allocated.
 *
 * On the CPU, whose memory others use too, the pool has a quarter of what is
 * free after the fixed buffers, at most 4 GiB, and at most what
 * max_num_seqs sequences of full length need.
 */
#ifndef FDD_DAEMON_WORKER_MEMPLAN_H
#define FDD_DAEMON_WORKER_MEMPLAN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/fdk.h"

/* What a row's bytes are compared with after the start (struct run_mem). */
enum mpl_group {
    MPL_WEIGHTS,
    MPL_ACTIVATIONS,
    MPL_SCRATCH,
    MPL_STATE,
    MPL_PLAN,
    MPL_PENALTY,
    MPL_GRAPHS,
    MPL_COLLECTIVES,
    MPL_KV_SCALES,
    MPL_KV,
    MPL_HOST,
    MPL_HOST_KV,
    MPL_HOST_PENALTY,
    MPL_HOST_SHARED, /* what ranks that do not reach each other share */
    MPL_OTHER,
    MPL__N
};

struct mpl_row {
    const char *name;
    enum mpl_group group;
    int host; /* 1: host memory, of all ranks; 0: device memory of each rank */
    uint64_t bytes;
    char how[96]; /* how it was computed */
};
#define MPL_MAX_ROW 25

/* Buffers whose size follows from the served length. */
struct mpl_sizes {
    uint64_t rows, tables, plan, results; /* on the device */
    uint64_t activations, scratch;
    uint64_t host_plan, host_results; /* pinned, of one step record; host_plan with tables */
};

struct mpl_rank {
    uint64_t mem_total, mem_free;
};

struct mpl_in {
    int is_cpu;
    const struct mpl_rank *rank; /* [n_rank] as they are now */
    int32_t n_rank;
    /* parameters */
    double utilization, swap_gib;
    uint32_t n_group; /* groups on this machine, each with such a plan; 0: one */
    uint64_t host_free, host_total; /* memory the machine has left, and has; 0: not known */
    int32_t n_share;       /* ranks of the group, which share swap_gib out; 0: one */
    int64_t num_blocks;    /* 0: by memory */
    uint64_t memory_bytes; /* 0: by the rules above */
    int64_t want_len;      /* 0: what the model and the pool allow */
    int32_t max_num_seqs, max_tokens, decode_blocks, n_penalty, n_rec, n_graph;
    int chunked, max_partial;
    int64_t long_threshold; /* as configured, 0: default */
    /* model */
    int32_t model_len, vocab, n_op;
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* mpl_layout() of each KV group */
    int32_t n_kv;
    int32_t most[FDK_MAX_KV_GROUPS]; /* blocks of a group that a sequence holds at most, 0:
                                as many as its tokens fill */
    uint64_t weights, quant_weights, rope;
    uint64_t collectives; /* workspace of a group of ranks, 0: one rank */
    uint64_t in_host; /* of a rank: what those that do not reach each other's memory share */
};

struct mpl {
    struct mpl_row row[MPL_MAX_ROW];
    int32_t n_row;
    uint64_t device_bytes, host_bytes; /* sums */
    uint64_t fixed; /* device_bytes without the KV pool and its dummy */
    uint64_t limit; /* what a rank may take, the least of them */
    uint64_t block_bytes;
    int32_t block_size;
    int32_t n_kv, most[FDK_MAX_KV_GROUPS];
    int32_t n_block;   /* usable, without the dummy */
    int32_t max_block; /* with the dummy: addresses to reserve */
    int32_t n_host;    /* host blocks, each of block_bytes for each of n_share ranks */
    int32_t n_share;
    int32_t max_len;     /* tokens of a sequence */
    int round;           /* iterations of planning so far */
    int64_t tokens;      /* of sequences of max_len, in n_block blocks */
    int32_t concurrency; /* sequences of max_len that run at a time */
    int32_t decode_blocks, max_seqs;
    int by_limit; /* 1: n_block follows from limit */
};

/* Byte layout of a KV group's blocks: fills *ret but for base and scale.
 *   K and V: n_kv_head * block_size * head_dim * bytes(dtype) each, in every
 *   layer, draft layers behind the model's; FDK_I8: then a float per (head,
 *   token) for K and for V
 * -EOVERFLOW, -EINVAL: no type for KV. */
int mpl_layout(int32_t n_layer, int32_t n_draft_layer, int32_t n_kv_head,
    int32_t head_dim, int32_t block_size, enum fdk_dtype dtype, struct fdk_kv *ret);

/* Groups share a pool: all blocks become as large as the largest. */
/* Tokens of a block of the tables, of which kv has a share. */
static inline int32_t
mpl_block_tokens(const struct fdk_kv *kv)
{
    return kv->block_size * (kv->n_own > 1 ? kv->n_own : 1);
}
void mpl_share(struct fdk_kv *kv, int32_t n);

/* Bytes of fdk_kv.scale of n groups: a float for each layer that a block has room for, K and
 * V, and head where the type has static scales (FDK_F8E4M3), else 0. */
uint64_t mpl_scale_bytes(const struct fdk_kv *kv, int32_t n);

/* Blocks of a KV group that a sequence of max_len tokens holds at most. */
int32_t mpl_most(const struct mpl *m, int32_t group);
/* Blocks that a sequence holds at most until each of its tables has n places. */
int64_t mpl_need(const struct mpl *m, int64_t n);

/* A plan is made in iterations: mpl_begin() sets m->max_len, the length for which the
 * caller computes buffer sizes; mpl_round() takes them. 1: again, with the sizes for the new
 * max_len; 0: planned. -ENOSPC, -EINVAL, -EOVERFLOW with one line in err that names value,
 * limit and the largest length that fits. */
int mpl_begin(const struct mpl_in *in, struct mpl *ret, char *err, size_t err_bytes);
int mpl_round(const struct mpl_in *in, const struct mpl_sizes *z, struct mpl *m,
    char *err, size_t err_bytes);

/* Graphs are captured and took graphs bytes; rank[i].mem_free is what is
 * left after fixed buffers, graphs and mapped bytes of the pool. Sizes the
 * pool again, up to max_block. -ENOSPC with one line in err. */
int mpl_settle(struct mpl *m, uint64_t graphs, uint64_t mapped,
    const struct mpl_rank *rank, int32_t n_rank, char *err, size_t err_bytes);

/* Blocks that new prompts may fill: kv.kv_cache_ratio of n_block. */
int32_t mpl_prompt_blocks(int32_t n_block, double ratio);
/* Planned bytes of a group. */
uint64_t mpl_bytes(const struct mpl *m, enum mpl_group group);
const char *mpl_group_name(enum mpl_group group);
/* "13.2 MiB". */
void mpl_show_bytes(uint64_t bytes, char *ret, size_t ret_bytes);

#endif
