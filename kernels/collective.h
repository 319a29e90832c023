/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between the devices of one context. A group is 2 to FDK_MAX_RANKS of them;
 * the index of a device in the group is its rank. Each rank has a workspace of the same
 * layout, which all others write to: no address of an operand leaves its rank. Workspaces
 * are in the memory of their ranks, or in pinned host memory for devices that cannot
 * reach each other's memory.
 *
 * Every rank launches the same collectives of a group in the same order on a stream of
 * its device; each rank may use its own thread, or one thread launches for one rank after
 * the other. The collectives of a rank must be ordered (by one stream, or by events). The
 * launch does not wait; the operation, on the stream,
 * waits for the other ranks. A thread that launches for several ranks must not wait for
 * one of their streams before it has launched the collective for all of them. Launches
 * can be captured. A graph holds no count of launches: it may be replayed any number of
 * times, mixed with other graphs and launches, in the same order on all ranks.
 *
 * Sums: fp32, ((rank 0 + rank 1) + rank 2) + .., rounded once to the operands' type. So
 * every rank gets the same bits for any size, algorithm and order of arrival.
 *
 * A rank waits for the others at most fdk_group_args.spin_limit_us from its own arrival,
 * and again at each synchronization of the ranks (one or two for each piece of the
 * operands, see doc/kernels.md). After that time it fails and makes all others fail:
 * fdk_ops.error_text of each names the rank that did not arrive. A rank that arrives
 * later fails at the latest in the operation after the one that the others gave up. If
 * ranks launch different operations, sizes or types, they detect it at their first
 * synchronization, and all fail the same way. If the device of a rank fails for any
 * reason, or group_abort() names the rank, the others fail within milliseconds of waiting
 * for it. As after any failure, every later call on the device returns -EIO, events
 * complete, and streams, memory and the group can be freed.
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
                                  Does not limit operands: larger ones are sent in
                                  pieces */
    uint64_t one_shot_bytes; /* operands up to this size are sent to every rank in full;
                                  for larger ones each rank sums a share; 0: the backend's
                                  choice */
    uint64_t packet_bytes;  /* all-reduces up to this size are sent in flagged packets, on
                                  backends that have them; 0: the backend's
                                  choice, 1: none */
    uint32_t spin_limit_us; /* 0: 2,000,000 */
    const int32_t *number;  /* [n_rank] number of each rank in errors, 0..255; NULL: its
                                  index in the group */
    int32_t in_host;        /* 1: workspaces are in host memory and packets are not used;
                                  such a group has no kv_share and row_share */
    uint64_t ahead_bytes;   /* largest operand of reduce_send(); 0: it is not used. 0 in
                                  effect for a group of more than two ranks or with
                                  in_host */
};

/* Size limits of the algorithms for all-reduces: see fdk_group_args. */
struct fdk_group_ways {
    uint64_t one_shot_bytes, packet_bytes; /* packet_bytes 0: the backend has no
                                              packets */
    uint64_t ahead_bytes; /* largest operand of reduce_send(); read only */
};

/* y = sum over the ranks of x. With a residual: residual += that sum; y = residual /
 * rms(residual) * (w + offset), as fdk_ops.rmsnorm with FDK_NORM_PRE. The residual is
 * equal on all ranks before, and so after. n has the same value on all ranks. */
struct fdk_all_reduce_args {
    struct fdk_group *group;
    void *y;            /* (T, C) act; may be x */
    const void *x;      /* (T, C) act: this rank's addend */
    float *residual;    /* (T, C), or NULL */
    const float *w;     /* (C), with a residual */
    const int32_t *n;   /* [1] live rows: no others are read or written; NULL: T */
    int32_t T, C;       /* without a residual also 1 and the number of elements */
    float eps, offset;  /* offset is added to the weights */
    enum fdk_dtype act; /* FDK_F32, FDK_F16, FDK_BF16 */
};

/* y[t][r C + c] = x[t][c] of rank r: with T = 1 the operands are concatenated. The first
 * row of x and of y is row `first`. each: an all-to-all exchange, x[t][q C + c] of rank r
 * goes only to rank q. */
struct fdk_all_gather_args {
    struct fdk_group *group;
    void *y;       /* (T, n_rank C) dtype, rows ldy elements apart; does not overlap x */
    const void *x; /* (T, C) dtype; each: (T, n_rank C) */
    const int32_t *n; /* [1] live rows, the same value on all ranks: rows [first,
                                  min(first + T, *n)); NULL: T */
    int32_t first, T, C, ldy;
    int32_t each; /* 1: each rank gets its own C elements of a row; 0: all get the same */
    enum fdk_dtype dtype; /* any but FDK_I4 */
};

/*
 * Copies: ranks of a group that have the same weights, or the same slices of them, and KV
 * caches of the same layout, in which a token has the same slot. A step's prompts may be
 * divided among the copies: each computes its own rows, and all get the keys and values
 * of all tokens.
 */

/*
 * The tokens of a block may also be divided among the copies (kv.n_own is a multiple of
 * the number of copies, and copy p holds the shares from p n_own / n_rank on). Then
 * fdk_ops.qkv writes the keys and values of all tokens of a step to the rank's stage,
 * those of token t at slot t. From there they are copied to the copy that owns the
 * token's slot, if this rank has the owner's index within its copy. All copies have
 * computed the tokens before range[0]; each copy takes those from its own stage.
 */

/* Copies keys and values of tokens [range[0], range[1]) of this copy's step, which
 * fdk_ops.qkv has written to its cache, to the same slots of the other copies' caches.
 * When the operation is done, this copy's cache holds those of the others' tokens. A
 * token with a negative slot is skipped. Where ranks share the tokens of a block
 * (kv.n_own), each has the same share as its peers. 8-bit values are sent with their
 * scales; static scales are the same on all copies. */
struct fdk_kv_share_args {
    struct fdk_group *group;
    const struct fdk_batch *b; /* slot_map */
    const int32_t *range;      /* [2] within 0..T; each copy has its own */
    struct fdk_kv kv;          /* this copy's */
    void *peer[FDK_MAX_RANKS]; /* kv.base of each rank of the group */
    struct fdk_kv stage;       /* the rank's: as kv, but of one layer; base NULL: none */
    int32_t T;                 /* equal on all ranks */
    int32_t layer;             /* of its KV group */
    int32_t begin; /* 1: the first of the step: it writes only after all ranks have
                                  reached it, when their launches before the step have
                                  ended */
};

/* The end of a step. Result o of each rank, rank 0 included, is copied to all[at[o]] on
 * rank 0. Then last_token, len and done of the rows that rank 0 has sampled are copied to
 * the row states of the other ranks. Both transfers are complete when the operation is
 * done. */
struct fdk_row_share_args {
    struct fdk_group *group;
    const struct fdk_batch *b;            /* out, state and n_out of this copy */
    struct fdk_row *state[FDK_MAX_RANKS]; /* row states of each rank of the group */
    const struct fdk_result *results;     /* (O) this copy's; used with at */
    struct fdk_result *all;               /* rank 0's; used with at */
    const int32_t *at; /* [O]; NULL: only rank 0 has outputs, and no result is copied */
    int32_t O;         /* 0: this copy has no outputs */
};

/*
 * fdk_ops.group_new   allocates the workspaces and waits for the devices; not while one
 *                     of them captures. Returns 0, -EINVAL, -ENOMEM, -EIO, or -ENOTSUP if
 *                     a rank cannot reach another's memory and in_host is not set, or if
 *                     its streams do not run on their own thread (FDK_EXEC_INLINE and
 *                     FDK_EXEC_DEFER of the cpu backend). err: the reason.
 * fdk_ops.group_free  call it when all ranks have ended their work, and after freeing the
 *                     graphs and bound programs with the group's collectives.
 * fdk_ops.group_bytes bytes that group_new() allocates for each rank, on its device or in
 * host
 *                     memory; 0 for arguments that it refuses.
 * fdk_ops.group_ways  stores the present limits in *was and takes new ones from *set;
 *                     either may be NULL. Call it while no collective runs; captured ones
 *                     keep their limits.
 * fdk_ops.group_abort the rank will run no more collectives: the others fail, and their
 *                     error_text names the first rank for which this was called.
 *                     Collectives that the rank launches nevertheless fail or give the
 *                     right result. Any thread; waits for no device.
 * fdk_ops.all_reduce, all_gather
 *                     the rank is that of the stream's device; -EINVAL if it has none.
 *                     Operands are aligned to their type; those aligned to 16 bytes, with
 *                     rows of a multiple of 16 bytes, are faster. cpu: -ENOTSUP for rows
 *                     of more than FDK_CPU_NORM_MAX elements with a residual in a 16-bit
 *                     type.
 * fdk_ops.reduce_send, reduce_take
 *                     an all-reduce in two launches with the same arguments. After
 *                     reduce_send() x is transferred to the other rank while the stream
 *                     continues; reduce_take() waits for the other rank's x and computes
 *                     the sum, with the bits of all_reduce(). x must not change in
 *                     between. reduce_send() number i + 2 must follow reduce_take()
 *                     number i. Neither can be captured. -ENOTSUP: the operand is larger
 *                     than fdk_group_args.ahead_bytes, or the stream captures; otherwise
 *                     errors as of all_reduce().
 * fdk_ops.kv_share, row_share
 *                     errors as of all_reduce(); also -EINVAL for a rank without an
 *                     address or a group with in_host.
 * The null backend checks the arguments and leaves the operands as they are.
 */
#define FDK_CPU_NORM_MAX 262144

#ifdef __cplusplus
}
#endif
#endif
