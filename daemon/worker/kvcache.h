/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The KV block pool: who holds each block and what it contains. It handles only block
 * numbers; the runner owns the memory. Engine thread.
 *
 * A block holds block_size tokens of the layers of a KV group (model.h). Block 0 is the
 * dummy, to which padded tokens write; it is never allocated. Each slot (running
 * sequence) has for each group a table of blocks in token order. Blocks carry reference
 * counts, because tables share them. A place is the index of a block in a table; all
 * tables of a slot have the same number of places, and blocks of all groups come from one
 * pool.
 *
 * A group whose layers have a window keeps no blocks from before it: kv_slide() gives
 * them back, and their places are empty.
 *
 * Prefix cache: a full block whose contents are known carries the hash of its tokens and
 * of all before them (prefix.h). It is indexed when the step that fills it is planned: a
 * sequence that attaches it runs in that step or a later one, and in a step all keys are
 * written before any is read. Blocks of different groups have different hashes. A prefix
 * of n blocks is found if groups without a window have all of its blocks, and groups with
 * a window have those that the token after the prefix reads. A block that no sequence
 * holds any more stays indexed until it is evicted: least recently used first, the end of
 * a sequence before its beginning.
 *
 * Host blocks are a second level: an evicted block is copied to the host, and back when a
 * sequence attaches it. This module only queues the copy commands (kv_copy); the engine
 * runs them before the next step, in order: a command may read a block that an earlier
 * one wrote, and may write one that an earlier one read. A quarter of the commands
 * between two steps is reserved for copies back to the device. If the others do not
 * suffice, the blocks evicted last are saved: they are beginnings, without which ends are
 * not found.
 *
 * The samples of a request share the full blocks of its prompt, indexed or not
 * (kv_share). Each sample gets a copy of the last, partly filled block, since they fill
 * it differently: the engine runs these copies (kv_dup) in the order of steps, after the
 * copy commands.
 *
 * Freeing is by step epoch: a block given back while a launched step may
 * still touch it is allocated again only when that step is collected (it
 * may be attached at once). A block's epoch only rises, whichever holder gives it back.
 *
 * Work between two steps is bounded: when long tables are given back, each kv_collect()
 * frees max_drop of their blocks; the others are freed later, or when they are needed,
 * and count as held until then (n_pending).
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
    int32_t n_block; /* usable blocks, without the dummy */
    int32_t block_size;
    int32_t n_slot, max_len;      /* number of slots; tokens that each can hold */
    int32_t n_host;               /* host blocks, 0: no second level */
    int32_t max_copy;             /* copy commands between two steps, at most */
    int32_t max_drop;             /* blocks of tables freed between two collections,
                                0: KV_MAX_DROP */
    int32_t n_group;              /* KV groups, 0: one */
    int32_t window[KV_MAX_GROUP]; /* tokens that a token of the group's layers may read,
                                     including itself; 0: all before it */
    int32_t max_step; /* most tokens of a sequence in a step; used with windows */
};

#define KV_MAX_DROP 2048

/* One copy between device block dev and host block host. */
struct kv_copy {
    int32_t dev, host, to_host;
};

/* A copy of device block `from` to device block `to`. */
struct kv_dup {
    int32_t from, to;
};

struct kv_block; /* kvcache_priv.h */
struct kv {
    uint32_t magic;
#define KV_MAGIC 0x4b56634du
    struct kv_cfg cfg;
    int32_t n_block; /* device blocks, with the dummy */
    int32_t block_size;
    int32_t n_slot;
    int32_t stride;    /* places of a table, at most */
    size_t group_step; /* entries of a group's tables */
    int32_t n_group;
    int32_t n_windowed;         /* groups with a window */
    int32_t most[KV_MAX_GROUP]; /* most blocks of a slot's table */
    int32_t n_free, n_deferred, n_cached;
    int32_t n_pending; /* blocks of tables given back that are not freed yet */
    int32_t n_host_used;
    int32_t *table;       /* [n_group][n_slot][stride] blocks; undefined at empty
                             places */
    int32_t *n_held;      /* [n_slot] places, including empty ones */
    int32_t *empty;       /* [n_slot][n_group] leading places that are empty */
    int32_t *n_empty;     /* [n_slot] empty places of all groups */
    uint64_t collected;   /* steps up to this epoch are done */
    struct kv_copy *copy; /* [max_copy] commands, oldest first */
    int32_t n_copy;
    struct kv_dup *dup; /* [n_slot * n_group] copies on the device, run after those */
    int32_t n_dup;
    /* Counters since the start: places looked up and attached by kv_attach(); blocks
     * evicted, copied to the host, and copied back. */
    uint64_t n_lookup, n_hit, n_evicted, n_out, n_in;
    uint64_t n_back; /* blocks that became available (kv_available()), since the start */
    /* Internal: device blocks, then host blocks; lists and hash index. */
    struct kv_block *block;
    struct kv_index *index;
};

struct kv_match {
    int32_t n;          /* places found of the prefix */
    int32_t n_host;     /* its blocks that are only on the host, at most as many as can be
                           brought back now */
    int32_t n_dev;      /* places of the prefix found with device blocks only */
    int32_t n_dev_idle; /* n_idle of those n_dev places */
    int32_t n_idle;     /* its blocks that kv_available() counts: attaching takes these
                           and n_host more from it */
    int32_t n_seen;     /* places looked at; with windows some are counted several
                           times */
};

/* A slot's table for a group. */
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

struct kv *kv_new(const struct kv_cfg *cfg); /* NULL: out of memory */
struct kv *kv_free(struct kv *kv);

/* Places that n_tok tokens need. */
int32_t kv_blocks(const struct kv *kv, int32_t n_tok);
/* The most blocks of a windowed group that the tokens of a step may read. */
int32_t kv_most(int32_t window, int32_t max_step, int32_t block_size);
/* The first place that a token at position pos may read. */
int32_t kv_first(const struct kv *kv, int32_t group, int32_t pos);
/* Blocks that slot holds. */
static inline int32_t
kv_held(const struct kv *kv, int32_t slot)
{
    return kv->n_held[slot] * kv->n_group - kv->n_empty[slot];
}
/* The most blocks that slot needs in addition, at any one time, until it has n places.
 * For pools with windows; n is greater than slot's places. */
int32_t kv_lack_windowed(const struct kv *kv, int32_t slot, int32_t n);
/* The same for any n and any pool. */
static inline int32_t
kv_lack(const struct kv *kv, int32_t slot, int32_t n)
{
    int32_t more = n - kv->n_held[slot];

    if (more <= 0)
        return 0;
    return kv->n_windowed == 0 ? more * kv->n_group : kv_lack_windowed(kv, slot, n);
}
/* The same for a slot that is to begin with the places of n_tok tokens. all: includes the
 * blocks of these places. */
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
/* Frees blocks of tables given back until n are available. Returns kv_available(). */
int32_t kv_reclaim(struct kv *kv, int32_t n);
/* Extends the tables of slot to n_tok tokens, evicting blocks without a holder. Returns
 * 0, or -ENOSPC with nothing changed. */
int kv_grow(struct kv *kv, int32_t slot, int32_t n_tok);
/* Gives back the blocks of slot that no token from position pos on reads; last_epoch as
 * for kv_drop(). Returns the lowest position with which another block could be given
 * back. */
int32_t kv_slide(struct kv *kv, int32_t slot, int32_t pos, uint64_t last_epoch);
/* Gives back all blocks of slot; last_epoch is the last step that may touch them (0:
 * none) and not before the step that fills registered blocks. Registered blocks stay
 * indexed. Blocks beyond max_drop are freed later. */
void kv_drop(struct kv *kv, int32_t slot, uint64_t last_epoch);
/* Steps up to epoch are collected: their deferred blocks become available. */
void kv_collect(struct kv *kv, uint64_t epoch);

/* How much of the prefix with these n block hashes is cached. Changes nothing. */
void kv_find(const struct kv *kv, const struct kv_hash *h, int32_t n, struct kv_match *ret);
/* Does the device have a block of each group indexed by h? */
int kv_has(const struct kv *kv, const struct kv_hash *h);
/* Fills the first n places of slot's empty tables with the blocks with hashes h; a block
 * that is only on the host gets a device block and a copy command. Returns the number of
 * places attached: fewer than n if the next is not indexed, or blocks or commands ran
 * out. The blocks are full: the sequence must have a token beyond them. */
int32_t kv_attach(struct kv *kv, int32_t slot, const struct kv_hash *h, int32_t n);
/* Indexes place i of slot's tables by h: it is filled with these tokens, or will be after
 * the step being chosen. It can be attached from now on, so that step must run. If the
 * group already has a block indexed by h, this one stays private. */
void kv_register(struct kv *kv, int32_t slot, int32_t i, const struct kv_hash *h);
/* Unindexes the blocks indexed by h, on the device and the host. Sequences that hold them
 * keep them. */
void kv_forget(struct kv *kv, const struct kv_hash *h);
/* Does slot hold all blocks that the token at position n_tok reads, its own excluded? */
int kv_can_share(const struct kv *kv, int32_t slot, int32_t n_tok);
/* Fills slot's empty tables with the full blocks that slot `from` holds for the first
 * n_tok tokens; kv_can_share() must hold for `from`. Launched steps have filled the
 * blocks. */
void kv_share(struct kv *kv, int32_t slot, int32_t from, int32_t n_tok);
/* Copies the blocks at place i of slot `from` to those of slot, as the steps launched so
 * far leave them. epoch: the step being chosen, which must run. At most once per slot and
 * step. */
void kv_dup(struct kv *kv, int32_t slot, int32_t from, int32_t i, uint64_t epoch);
/* The copy commands and copies on the device were launched: empties their queues. */
void kv_copied(struct kv *kv);
/* Could block b be allocated now without an eviction? */
int kv_is_empty(const struct kv *kv, int32_t b);
/* Could block b be allocated now? */
int kv_is_free(const struct kv *kv, int32_t b);
/* Check all invariants; panics on a mismatch. */
void kv_check(const struct kv *kv);

#endif
