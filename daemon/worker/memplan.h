/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory plan: every buffer of the worker with its size, computed from
 * configuration, model and device before any of them is allocated, and the
 * KV pool that fits in the rest. Pure functions over numbers; main thread.
 *
 * On a device, per rank (fixed includes the estimate for graphs):
 *
 *   blocks = (free * gpu_memory_utilization - fixed) / block_bytes
 *
 * and the smallest number over the ranks. After capture the memory of graphs is
 * known; mpl_settle() then sizes the pool again before its memory is allocated.
 *
 * On the CPU, which shares its memory with other processes, the pool has a quarter
 * of the memory left after the fixed buffers, but at most 4 GiB and at most the
 * blocks of max_num_seqs sequences of full length.
 */
#ifndef FDD_DAEMON_WORKER_MEMPLAN_H
#define FDD_DAEMON_WORKER_MEMPLAN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/fdk.h"

/* Group of a row; its sum is compared with a member of struct run_mem after the start. */
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
    MPL_HOST_SHARED, /* shared by ranks that cannot access each other's memory */
    MPL_OTHER,
    MPL__N
};

struct mpl_row {
    const char *name;
    enum mpl_group group;
    int host; /* 1: host memory for all ranks; 0: device memory of each rank */
    uint64_t bytes;
    char how[96]; /* how it was computed */
};
#define MPL_MAX_ROW 25

/* Bytes of the buffers whose size depends on the served length. */
struct mpl_sizes {
    uint64_t rows, tables, plan, results; /* on the device */
    uint64_t activations, scratch;
    uint64_t host_plan, host_results; /* pinned, per step record; host_plan
                                         includes tables */
};

struct mpl_rank {
    uint64_t mem_total, mem_free;
};

struct mpl_in {
    int is_cpu;
    const struct mpl_rank *rank; /* [n_rank] current device memory */
    int32_t n_rank;
    /* parameters */
    double utilization, swap_gib;
    uint32_t n_group; /* groups on this machine, each with such a plan; 0: one */
    uint64_t host_free, host_total; /* bytes of host memory, free and in all; 0:
                                       not known */
    int32_t n_share;       /* ranks of the group, which divide swap_gib evenly; 0: one */
    int64_t num_blocks;    /* kv.num_blocks; 0: from memory */
    uint64_t memory_bytes; /* kv.memory_bytes; 0: by the rules above */
    int64_t want_len;      /* model.max_model_len; 0: as long as model and pool allow */
    int32_t max_num_seqs, max_tokens, decode_blocks, n_penalty, n_rec, n_graph;
    int chunked, max_partial;
    int64_t long_threshold; /* sched.long_prefill_token_threshold, 0: default */
    /* model */
    int32_t model_len, vocab, n_op;
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* mpl_layout() of each KV group */
    int32_t n_kv;
    int32_t most[FDK_MAX_KV_GROUPS]; /* limit of blocks of a group that a sequence holds,
                                        0: as many as its tokens fill */
    uint64_t weights, quant_weights, rope; /* bytes per rank */
    uint64_t collectives;                  /* bytes of a rank's workspace, 0: one rank */
    uint64_t in_host; /* bytes of pinned host memory per rank for run_open_args.in_host */
};

struct mpl {
    struct mpl_row row[MPL_MAX_ROW];
    int32_t n_row;
    uint64_t device_bytes, host_bytes; /* sums over the rows */
    uint64_t fixed; /* device_bytes without the KV pool and its dummy */
    uint64_t limit; /* bytes a rank may use: the smallest limit of all ranks */
    uint64_t block_bytes;
    int32_t block_size;
    int32_t n_kv, most[FDK_MAX_KV_GROUPS];
    int32_t n_block;   /* usable blocks, without the dummy */
    int32_t max_block; /* with the dummy: addresses to reserve */
    int32_t n_host;    /* host blocks; each has block_bytes on each of n_share ranks */
    int32_t n_share;
    int32_t max_len;     /* tokens of a sequence */
    int round;           /* iterations of planning so far */
    int64_t tokens;      /* tokens that n_block blocks hold in sequences of max_len */
    int32_t concurrency; /* sequences of max_len that run at a time */
    int32_t decode_blocks, max_seqs;
    int by_limit; /* 1: n_block follows from limit */
};

/* Byte layout of a KV group's blocks: fills *ret except base and scale.
 *   K and V: n_kv_head * block_size * head_dim * bytes(dtype) each, in every
 *   layer, draft layers after the model's; FDK_I8: then a float per (head,
 *   token) for K and for V
 * Returns 0, -EOVERFLOW or -EINVAL (the KV cache cannot have this type, or a bad
 * size). */
int mpl_layout(int32_t n_layer, int32_t n_draft_layer, int32_t n_kv_head,
    int32_t head_dim, int32_t block_size, enum fdk_dtype dtype, struct fdk_kv *ret);

/* Tokens per block in block tables; a rank's kv may hold only a share of them. */
static inline int32_t
mpl_block_tokens(const struct fdk_kv *kv)
{
    return kv->block_size * (kv->n_own > 1 ? kv->n_own : 1);
}
/* Give the blocks of all groups the size of the largest, so that they share a pool. */
void mpl_share(struct fdk_kv *kv, int32_t n);

/* Bytes of fdk_kv.scale of n groups. Types with static scales (FDK_F8E4M3) have a float
 * for each head, K and V, and layer that fits in a block; other types have 0. */
uint64_t mpl_scale_bytes(const struct fdk_kv *kv, int32_t n);

/* The most blocks of a KV group that a sequence of max_len tokens holds. */
int32_t mpl_most(const struct mpl *m, int32_t group);
/* The most blocks of all groups that a sequence holds while its tables grow to n
 * places. */
int64_t mpl_need(const struct mpl *m, int64_t n);

/* A plan is made in iterations: mpl_begin() sets m->max_len, the length for which the
 * caller computes buffer sizes; mpl_round() takes these sizes. It returns 1: call it
 * again, with the sizes for the new max_len; 0: the plan is complete; or -ENOSPC,
 * -EINVAL, -EOVERFLOW with one line in err that names value, limit and the largest length
 * that fits. */
int mpl_begin(const struct mpl_in *in, struct mpl *ret, char *err, size_t err_bytes);
int mpl_round(const struct mpl_in *in, const struct mpl_sizes *z, struct mpl *m,
    char *err, size_t err_bytes);

/* Size the pool again, up to max_block, after graphs have been captured. graphs: bytes
 * that they use; rank[i].mem_free: bytes left after fixed buffers, graphs and `mapped`
 * bytes of the pool. Returns 0, or -ENOSPC with one line in err. */
int mpl_settle(struct mpl *m, uint64_t graphs, uint64_t mapped,
    const struct mpl_rank *rank, int32_t n_rank, char *err, size_t err_bytes);

/* Blocks that new prompts may fill: kv.kv_cache_ratio of n_block. */
int32_t mpl_prompt_blocks(int32_t n_block, double ratio);
/* Planned bytes of a group. */
uint64_t mpl_bytes(const struct mpl *m, enum mpl_group group);
const char *mpl_group_name(enum mpl_group group);
/* Format a number of bytes like "13.2 MiB". */
void mpl_show_bytes(uint64_t bytes, char *ret, size_t ret_bytes);

#endif
