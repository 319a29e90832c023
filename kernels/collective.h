/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between the devices of one context. A group is 2 to FDK_MAX_RANKS of them;
 * the place of a device in the group is its rank. Each rank has a workspace of the same
 * layout, which all others write to: no address of an operand leaves its rank. Workspaces are
 * in the memory of their ranks, or in pinned memory of the host for devices that do not reach
 * each other's.
 *
 * Every rank launches the same collectives of a group in the same order, each from its own
 * thread or one after the other, on a stream of its device; those of a rank follow one
 * another (one stream, or events). The launch does not wait; the operation, on the stream,
 * waits for the other ranks. A thread that launches for several ranks must not wait for one
 * of their streams before it has launched the collective for all of them. Launches can be
 * captured. A graph holds no count of launches: it may be replayed any number of times, mixed
 * with other graphs and launches, in the same order on all ranks.
 *
 * Sums: fp32, ((rank 0 + rank 1) + rank 2) + .., rounded once to the operands' type. So every
 * rank has the same bits, whatever the size, the algorithm and the order of arrival.
 *
 * A rank waits for the others at most fdk_group_args.spin_limit_us from its own arrival, and
 * again each time the ranks meet (once or twice for each piece of the operands, see
 * doc/kernels.md). When that is over it fails, and makes all others fail: fdk_ops.error_text
 * of each names the rank that did not come. A rank that comes later fails at the latest in the
 * operation behind the one that the others gave up. Ranks that come with different operations, sizes
 * or types find that when they first meet, and all fail the same way. A rank whose device
 * fails, for whatever reason, or that group_abort() names makes the others fail within
 * milliseconds, where they wait for it and where they come to wait. As after any failure
 * every later call on the device is -EIO, events complete, and streams, memory and the group
 * can be freed.
 */
#ifndef FDD_KERNELS_COLLECTIVE_H
#define FDD_KERNELS_COLLECTIVE_H

#include "kernels/fdk.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fdk_group_args {
    int32_t n_rank;        /* 2..FDK_MAX_RANKS */
    const int32_t *device; /* [n_rank] devices of the context in the order of ranks, each
                                  once; NULL: 0, 1, .. */
    uint64_t bytes; /* of buffers in each rank's workspace; 0: the backend's choice.
                                  Bounds no operand: larger ones go in pieces */
    uint64_t one_shot_bytes; /* operands up to here are sent whole to every rank, larger ones
                                  summed in shares; 0: the backend's choice */
    uint64_t packet_bytes;  /* all-reduces up to here are sent in packets that carry their
                                  own flags, on backends that have them; 0: the backend's
                                  choice, 1: none */
    uint32_t spin_limit_us; /* 0: 2,000,000 */
    const int32_t *number; /* [n_rank] what errors call a rank, 0..255; NULL: its place in the
                                  group */
    int32_t in_host; /* 1: workspaces are in the host's memory, and nothing goes in packets;
                                  such a group has no kv_share and row_share */
    uint64_t ahead_bytes; /* of an operand that reduce_send() takes, at most; 0: none. A group
                                  of more than two ranks, or in_host, has none */
};

/* Up to which sizes all-reduces go which way: fdk_group_args. */
struct fdk_group_ways {
    uint64_t one_shot_bytes, packet_bytes; /* packet_bytes 0: the backend has no packets */
    uint64_t ahead_bytes; /* room for what reduce_send() takes; not set, only told */
};

/* y = sum over the ranks of x. With a residual: residual += that sum; y = residual /
 * rms(residual) * (w + offset), as fdk_ops.rmsnorm with FDK_NORM_PRE. The residual's values are the same on all ranks
 * before, and so after. n has the same value on all ranks. */
struct fdk_all_reduce_args {
    struct fdk_group *group;
    void *y;            /* (T, C) act; may be x */
    const void *x;      /* (T, C) act: this rank's addend */
    float *residual;    /* (T, C), or NULL */
    const float *w;     /* (C), with a residual */
    const int32_t *n;   /* [1] live rows: no others are read or written; NULL: T */
    int32_t T, C;       /* 1 and a number of elements will do without a residual */
    float eps, offset;  /* offset: of the weights */
    enum fdk_dtype act; /* FDK_F32, FDK_F16, FDK_BF16 */
};

/* y[t][r C + c] = x[t][c] of rank r: with T = 1 one operand behind the other. The first row
 * of x and of y is row `first`. each: an all-to-all exchange, x[t][q C + c] of rank r is for
 * rank q alone. */
struct fdk_all_gather_args {
    struct fdk_group *group;
    void *y;       /* (T, n_rank C) dtype, rows ldy elements apart; does not overlap x */
    const void *x; /* (T, C) dtype; each: (T, n_rank C) */
    const int32_t *n; /* [1] live rows, the same value on all ranks: rows [first,
                                  min(first + T, *n)); NULL: T */
    int32_t first, T, C, ldy;
    int32_t each; /* 1: to each rank its own C elements of a row; 0: to all the same */
    enum fdk_dtype dtype; /* any but FDK_I4 */
};

/*
 * Copies: ranks of a group that have the same weights, or the same slices of them, and KV caches
 * of one layout, in which a token has the same slot. A step's prompts may be divided among
 * them: each copy computes rows of its own, and all have the keys and values of all tokens.
 */

/*
 * The tokens of a block may be divided among the copies as well (kv.n_own is a multiple of
 * their number, and copy p has shares from p n_own / n_rank on). Then fdk_ops.qkv writes those
 * of all tokens of a step to a stage of its own, token t's at slot t. They go to the copy
 * that owns their slot and is of this rank's place, those of tokens before range[0], which all
 * copies have computed, from each to itself.
 */

/* Keys and values of tokens [range[0], range[1]) of this copy's step, which fdk_ops.qkv has
 * written to its cache, go to the same slots of the other copies' caches. When it is done
 * those of the others' tokens are in this copy's cache. A slot that is negative is none; of
 * ranks that share the tokens of a block (kv.n_own) each has the same share as its peers.
 * Values of 8 bits go with their scales; static scales are the same on all copies. */
struct fdk_kv_share_args {
    struct fdk_group *group;
    const struct fdk_batch *b; /* slot_map */
    const int32_t *range;      /* [2] within 0..T; each copy has its own */
    struct fdk_kv kv;          /* this copy's */
    void *peer[FDK_MAX_RANKS]; /* kv.base of each rank of the group */
    struct fdk_kv stage;       /* of one layer, as kv; base NULL: there is none */
    int32_t T;                 /* equal on all ranks */
    int32_t layer;             /* of its KV group */
    int32_t begin; /* 1: the step's first: before it writes, all ranks have come to it, and so
                                  have ended what they launched before the step */
};

/* The end of a step. What copies other than rank 0 of the group scored becomes rank 0's: result
 * o of each goes to all[at[o]], rank 0's own too. Then the rows that rank 0 has sampled
 * become the others': last_token, len and done of their states. When it is done all is there. */
struct fdk_row_share_args {
    struct fdk_group *group;
    const struct fdk_batch *b;            /* out, state and n_out of this copy */
    struct fdk_row *state[FDK_MAX_RANKS]; /* of each rank of the group */
    const struct fdk_result *results;     /* (O) this copy's; with at */
    struct fdk_result *all;               /* rank 0's; with at */
    const int32_t *at; /* [O]; NULL: rank 0 alone has outputs, and no result moves */
    int32_t O;         /* 0: this copy has no outputs */
};

/*
 * fdk_ops.group_new   allocates the workspaces, waits for the devices; not while one of them
 *                     records. -EINVAL, -ENOMEM, -EIO; -ENOTSUP where a rank cannot reach
 *                     another's memory without in_host, or its streams do not run by themselves (FDK_EXEC_INLINE
 *                     and FDK_EXEC_DEFER of the cpu backend). err: the reason.
 * fdk_ops.group_free  after the work of all ranks; graphs and bound programs with the
 *                     group's collectives are freed before.
 * fdk_ops.group_bytes what group_new() allocates for each rank, on its device or in the host's
 *                     memory; 0 for arguments that it refuses.
 * fdk_ops.group_ways  set ways, if not NULL, and what they were, if not NULL. While no collective
 *                     runs; those that are recorded keep theirs.
 * fdk_ops.group_abort rank will come to no more collectives: the others fail, and their
 *                     error_text names the first rank that a group was told of. What the rank
 *                     itself launches nevertheless fails or is right. Any thread; waits for
 *                     no device.
 * fdk_ops.all_reduce, all_gather
 *                     the rank is that of the stream's device; -EINVAL where it has none.
 *                     Operands are aligned to their type; those aligned to 16 bytes, and rows
 *                     of such a length, are faster. cpu: -ENOTSUP for rows of more than
 *                     FDK_CPU_NORM_MAX elements with a residual in a 16-bit type.
 * fdk_ops.reduce_send, reduce_take
 *                     an all-reduce in two launches of the same arguments: x travels to the
 *                     other rank while the stream goes on, and the sum, the same bits, is made
 *                     by the second, which waits for the other rank's x. x stays as it is in
 *                     between. Number i + 2 of the first follows number i of the second.
 *                     Neither is recorded. -ENOTSUP: no room for the operand
 *                     (fdk_group_args.ahead_bytes), or a recording; as all_reduce besides.
 * fdk_ops.kv_share, row_share
 *                     as these. -EINVAL besides: a rank without an address, a group in_host.
 * The null backend checks the arguments and leaves the operands as they are.
 */
#define FDK_CPU_NORM_MAX 262144

#ifdef __cplusplus
}
#endif
#endif
