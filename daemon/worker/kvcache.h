/*
 * The KV block pool: who holds which block. Numbers only, no tensors; the
 * bytes live where the runner put them. Engine thread.
 *
 * A block holds block_size tokens of all layers. Block 0 is the dummy: what
 * a padded launch must write goes there; it is never handed out. Each slot
 * (running sequence) has a table of blocks in token order. Blocks carry
 * reference counts, so that tables may share them.
 *
 * Freeing is by step epoch: a block let go of while a launched step may
 * still touch it becomes free only when that step has been collected.
 *
 *   n_block == 1 + n_free + n_deferred + blocks with ref > 0   (kv_check)
 */
#ifndef FDD_DAEMON_WORKER_KVCACHE_H
#define FDD_DAEMON_WORKER_KVCACHE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/fdk.h"

/* KV ownership over ranks; compute split is another map. One group now. */
#define KV_N_GROUP 1

struct kv {
    uint32_t magic;
#define KV_MAGIC 0x4b56634du
    int32_t n_block;         /* with the dummy */
    int32_t block_size;
    int32_t n_slot;          /* tables */
    int32_t stride;          /* blocks a table can hold */
    int32_t n_free, n_deferred;
    int32_t *table;          /* [n_slot][stride] */
    int32_t *n_held;         /* [n_slot] */
    int32_t *ref;            /* [n_block] */
    int32_t *next;           /* [n_block] links of the two lists below */
    uint64_t *epoch;         /* [n_block] of deferred blocks */
    int32_t free_head;       /* LIFO; -1 ends */
    int32_t defer_head, defer_tail; /* FIFO, epochs ascending */
    uint64_t collected;      /* steps up to this epoch are done */
};

/* Rank that holds position pos of a sequence, and where within its table. */
int32_t kv_owner(int32_t pos);
/* KV slot of position pos of table slot: block * block_size + offset. */
int32_t kv_slot(const struct kv *kv, int32_t slot, int32_t pos);

/* n_block usable blocks; tables of n_slot sequences of up to max_len
 * tokens. NULL: no memory. */
struct kv *kv_new(int32_t n_block, int32_t block_size, int32_t n_slot, int32_t max_len);
struct kv *kv_free(struct kv *kv);

/* Blocks that n_tok tokens need. */
int32_t kv_blocks(const struct kv *kv, int32_t n_tok);
/* Make the table of slot cover n_tok tokens. -ENOSPC: not enough free
 * blocks, nothing changed. */
int kv_grow(struct kv *kv, int32_t slot, int32_t n_tok);
/* Let go of all blocks of slot; last_epoch is the last step launched with
 * it (0: none). */
void kv_drop(struct kv *kv, int32_t slot, uint64_t last_epoch);
/* Steps up to epoch are collected: their deferred blocks become free. */
void kv_collect(struct kv *kv, uint64_t epoch);
/* Walk everything; panics where it disagrees. */
void kv_check(const struct kv *kv);

/* Byte layout of the blocks: fills *ret but for base.
 *   layer_bytes = 2 * n_kv_head * block_size * head_dim * bytes(dtype)
 *   block_bytes = n_layer * layer_bytes, V at layer + layer_bytes / 2
 * -EOVERFLOW. */
int kv_layout(int32_t n_layer, int32_t n_kv_head, int32_t head_dim, int32_t block_size,
    enum fdk_dtype dtype, struct fdk_kv *ret);

/* How many usable blocks to have. */
struct kv_plan_args {
    uint64_t memory_bytes;   /* kv.memory_bytes, 0 = by the rule below */
    int64_t num_blocks;      /* kv.num_blocks, 0 = by memory */
    uint64_t mem_free;       /* of the device */
    int32_t model_len;       /* of the model */
    int64_t want_len;        /* model.max_model_len, 0 = what fits */
    int32_t max_num_seqs;
    struct fdk_kv kv;        /* block_bytes, block_size */
};
/* 0: by default a quarter of the free memory, at most 4 GiB and at most what
 * max_num_seqs sequences of full length need. *ret_len is the model length
 * to serve. -ENOSPC/-EINVAL with one line in err that names the largest
 * length that fits or the limit. */
int kv_plan(const struct kv_plan_args *a, int32_t *ret_blocks, int32_t *ret_len, char *err,
    size_t err_bytes);

#endif
