/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The KV block pool: holders and contents of blocks. Numbers only, no tensors;
 * the runner owns the memory. Engine thread.
 *
 * A block holds block_size tokens of the layers of a KV group (model.h). Block 0 is the
 * dummy, to which padded tokens write; it is never allocated. Each slot
 * (running sequence) has for each group a table of blocks in token order. Blocks carry
 * reference counts, because tables share them. A place is a number of a block in token
 * order; the tables of a slot have as many places each, and blocks of all groups come from
 * the one pool.
 *
 * Groups whose layers have a window hold no blocks behind it: kv_slide() gives them back,
 * and their places are empty.
 *
 * Prefix cache: a full block whose contents are known carries the hash of
 * its tokens and of all before them (prefix.h). It is indexed from
 * the moment the step that fills it is planned: a sequence that attaches it runs in
 * that step or a later one, and in a step all keys are written before any
 * is read. Blocks of different groups have different names. A prefix of n blocks is found
 * where groups without a window have all of them, and those with one have the blocks that
 * the token behind it sees. When no sequence holds a block any more it stays indexed until it is
 * evicted: least recently used first, the end of a sequence before its
 * beginning.
 *
 * Host blocks are a second level: an evicted block is copied
 * there, and back when a sequence attaches it. kv only queues the copy commands
 * (kv_copy); the engine runs them before the next step, in
 * sequence: a command may read what an earlier one wrote, and may write
 * what an earlier one read. A quarter of
 * the commands between two steps is reserved for copies back. Where the others do
 * not suffice, the blocks evicted last are saved: these are beginnings, without
 * which ends are not found.
 *
 * The samples of a request hold the full blocks of its prompt together, whether they
 * have a name or not (kv_share), and each has a copy of the last, which they go on to
 * fill differently: the engine runs these copies (kv_dup) in the order of steps, behind
 * the commands above.
 *
 * Freeing is by step epoch: a block given back while a launched step may
 * still touch it is allocated again only when that step is collected (it
 * may be attached at once). A block's epoch only rises, whichever holder gives it back.
 *
 * Work between two steps is bounded: of long tables given back, max_drop blocks
 * are freed in each kv_collect() and the others when they are needed; until
 * then they count as held (n_pending).
 *
 *   n_block == 1 + n_free + n_deferred + n_cached + blocks with ref > 0
 */
#ifndef FDD_DAEMON_WORKER_KVCACHE_H
#define FDD_DAEMON_WORKER_KVCACHE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/worker/prefix.h"

#define KV_MAX_GROUP 8

struct kv_cfg {
    int32_t n_block; /* usable, without the dummy */
    int32_t block_size;
    int32_t n_slot, max_len;      /* tables, tokens each can hold */
    int32_t n_host;               /* host blocks, 0: no second level */
    int32_t max_copy;             /* copy commands between two steps */
    int32_t max_drop;             /* blocks of tables freed between two collections,
                                0: KV_MAX_DROP */
    int32_t n_group;              /* KV groups, 0: one */
    int32_t window[KV_MAX_GROUP]; /* tokens that a token of the group's layers may read,
                                itself included; 0: all before it */
    int32_t max_step; /* tokens of a sequence in a step, at most; with windows */
};

#define KV_MAX_DROP 2048

/* One copy between device block dev and host block host. */
struct kv_copy {
    int32_t dev, host, to_host;
};

/* Device block from to device block to. */
struct kv_dup {
    int32_t from, to;
};

struct kv_block; /* kvcache.c */
struct kv {
    uint32_t magic;
#define KV_MAGIC 0x4b56634du
    struct kv_cfg cfg;
    int32_t n_block; /* with the dummy */
    int32_t block_size;
    int32_t n_slot;
    int32_t stride;    /* places of a table */
    size_t group_step; /* entries of a group's tables */
    int32_t n_group;
    int32_t n_windowed;         /* groups with a window */
    int32_t most[KV_MAX_GROUP]; /* blocks of a slot's table, at most */
    int32_t n_free, n_deferred, n_cached;
    int32_t n_pending; /* places in tables given up whose blocks are still held */
    int32_t n_host_used;
    int32_t *table;       /* [n_group][n_slot][stride] entries of empty places: any */
    int32_t *n_held;      /* [n_slot] places, empty ones included */
    int32_t *empty;       /* [n_slot][n_group] leading places that are empty */
    int32_t *n_empty;     /* [n_slot] of all groups */
    uint64_t collected;   /* steps up to this epoch are done */
    struct kv_copy *copy; /* [max_copy] commands, oldest first */
    int32_t n_copy;
    struct kv_dup *dup; /* [n_slot * n_group] copies on the device, behind those */
    int32_t n_dup;
    /* since the start: places asked of kv_attach(), attached; blocks that lost their
     * contents, copied to the host and back */
    uint64_t n_lookup, n_hit, n_evicted, n_out, n_in;
    uint64_t n_back; /* and that came to be counted in kv_available() */
    /* kvcache.c's own: device blocks, then host blocks; lists, hash index */
    struct kv_block *block;
    struct kv_index *index;
};

struct kv_match {
    int32_t n;          /* places of the prefix found */
    int32_t n_host;     /* blocks of it that are only on the host, no more than can be
                                brought back now */
    int32_t n_dev;      /* places of the prefix that is on the device */
    int32_t n_dev_idle; /* n_idle of those */
    int32_t n_idle;     /* blocks of it counted in kv_available(): attaching them
                                lowers it, as bringing the n_host back does */
    int32_t n_seen;     /* places looked at, again and again with windows */
};

/* A group's table of a slot. */
static inline int32_t *
kv_row(const struct kv *kv, int32_t slot, int32_t group)
{
    return kv->table + (size_t)group * kv->group_step + (size_t)slot * (size_t)kv->stride;
}
/* KV slot of position pos of a group's table: block * block_size + offset. */
static inline int32_t
kv_slot(const struct kv *kv, int32_t slot, int32_t group, int32_t pos)
{
    return kv_row(kv, slot, group)[pos / kv->block_size] * kv->block_size +
        pos % kv->block_size;
}

struct kv *kv_new(const struct kv_cfg *cfg); /* NULL: no memory */
struct kv *kv_free(struct kv *kv);

/* Places of n_tok tokens. */
int32_t kv_blocks(const struct kv *kv, int32_t n_tok);
/* Blocks of a window's table that hold what the tokens of a step may read, at most. */
int32_t kv_most(int32_t window, int32_t max_step, int32_t block_size);
/* The first place that a token at position pos may read. */
int32_t kv_first(const struct kv *kv, int32_t group, int32_t pos);
/* Blocks that slot holds. */
static inline int32_t
kv_held(const struct kv *kv, int32_t slot)
{
    return kv->n_held[slot] * kv->n_group - kv->n_empty[slot];
}
/* Blocks that slot lacks, at most at a time, until it has had n places; n: more than it
 * has, in a pool with windows. */
int32_t kv_lack_windowed(const struct kv *kv, int32_t slot, int32_t n);
/* The same for any n, in any pool. */
static inline int32_t
kv_lack(const struct kv *kv, int32_t slot, int32_t n)
{
    int32_t more = n - kv->n_held[slot];

    if (more <= 0)
        return 0;
    return kv->n_windowed == 0 ? more * kv->n_group : kv_lack_windowed(kv, slot, n);
}
/* The same of a slot that begins with the places of n_tok tokens; all: those included. */
int32_t kv_lack_from_windowed(const struct kv *kv, int32_t n_tok, int32_t n, int all);
static inline int32_t
kv_lack_from(const struct kv *kv, int32_t n_tok, int32_t n, int all)
{
    if (kv->n_windowed > 0)
        return kv_lack_from_windowed(kv, n_tok, n, all);
    return (n - (all ? 0 : n_tok / kv->block_size)) * kv->n_group;
}
/* Blocks kv_grow() could allocate now: free ones and idle cached ones. */
int32_t kv_available(const struct kv *kv);
/* The same, after freeing blocks of tables given up until n are available. */
int32_t kv_reclaim(struct kv *kv, int32_t n);
/* Make the tables of slot cover n_tok tokens, evicting blocks without a holder.
 * -ENOSPC: not enough; nothing changed. */
int kv_grow(struct kv *kv, int32_t slot, int32_t n_tok);
/* Give back the blocks of slot that no token from position pos on reads; last_epoch as for
 * kv_drop(). Returns the first position with which there is one more. */
int32_t kv_slide(struct kv *kv, int32_t slot, int32_t pos, uint64_t last_epoch);
/* Give back all blocks of slot; last_epoch is the last step that may touch them
 * (0: none), at least the step that fills registered blocks. Registered
 * blocks stay indexed. Blocks beyond max_drop are freed later. */
void kv_drop(struct kv *kv, int32_t slot, uint64_t last_epoch);
/* Steps up to epoch are collected: their deferred blocks can be allocated. */
void kv_collect(struct kv *kv, uint64_t epoch);

/* How much of the prefix with these block hashes is here. Changes nothing. */
void kv_find(const struct kv *kv, const struct kv_hash *h, int32_t n, struct kv_match *ret);
/* Is a block of each group known by h on the device? */
int kv_has(const struct kv *kv, const struct kv_hash *h);
/* Make the first n places of slot's empty tables the blocks with the hashes h; a block
 * that is only on the host gets a device block and a copy command. Returns the
 * places attached: n, or fewer when the next is not indexed or blocks or commands ran out.
 * The blocks are full: the sequence must have a token beyond them. */
int32_t kv_attach(struct kv *kv, int32_t slot, const struct kv_hash *h, int32_t n);
/* Place i of slot's tables is full, or will be after the step being chosen, of
 * the tokens with hash h. It can be attached from now on, so that step must
 * run. Where another block of the group is known by h already this one stays private. */
void kv_register(struct kv *kv, int32_t slot, int32_t i, const struct kv_hash *h);
/* Nothing is known by h any more, on the device or the host. Those who hold the block keep
 * it. */
void kv_forget(struct kv *kv, const struct kv_hash *h);
/* Does slot hold what the token at position n_tok reads of those before? */
int kv_can_share(const struct kv *kv, int32_t slot, int32_t n_tok);
/* Make the full blocks of n_tok tokens of slot's empty tables those of slot from, which
 * kv_can_share(). They are full of the same tokens by steps that were launched. */
void kv_share(struct kv *kv, int32_t slot, int32_t from, int32_t n_tok);
/* Copy the blocks of place i of slot from to those of slot, as the steps launched so
 * far leave them. epoch: of the step being chosen, which must run. Once for a slot. */
void kv_dup(struct kv *kv, int32_t slot, int32_t from, int32_t i, uint64_t epoch);
/* The copy commands were launched. */
void kv_copied(struct kv *kv);
/* Could block b be allocated now without an eviction? */
int kv_is_empty(const struct kv *kv, int32_t b);
/* Could block b be allocated now? */
int kv_is_free(const struct kv *kv, int32_t b);
/* Check all invariants; panics on a mismatch. */
void kv_check(const struct kv *kv);

#endif
