/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Flattens a step (struct sch_step) into arrays: the plan block, which is uploaded as it
 * is, and the step record, which keeps the requested outputs until their results are
 * back. Engine thread.
 *
 * The plan block lies on the host (pinned, one per record) and on the device (one, at a
 * fixed address, so that graphs may be captured with it). For the step's padded size its
 * arrays follow each other without gaps, so that a step is one upload:
 *
 *   head     counts; arrays per row, output and token; attention plans. Its layout
 *            depends only on T_pad (bat_layout())
 *   updates  changes to the device's tables: the state of new rows, and block table
 *            entries; directly after the head
 *
 * Padding tokens carry id 0, the dummy block's slots and the dummy row.
 *
 * There are D + 1 records (D: device.overlap_depth). Each carries the epoch of its step
 * and, for each output, slot and generation, so that a late result cannot reach the next
 * owner of a slot.
 *
 * Copies of the model (bat_dims.n_copy) divide long prompts. The tokens of a prompt in a
 * step are cut into 2 n_copy shards, and copy p computes shards p and 2 n_copy - 1 - p:
 * so all copies have equally many tokens and, with causal attention, equal attention
 * work. The record only says which rows are divided; bat_copy_fill() makes the plan of
 * one copy from it. In a copy's plan a divided row is two rows, one per shard, after the
 * rows that all copies compute.
 *
 * Block tables stay on the device, by KV group and state slot. The shadow in struct bat
 * records how many entries of a slot's tables were sent, and for which owner.
 */
#ifndef FDD_DAEMON_WORKER_BATCH_H
#define FDD_DAEMON_WORKER_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/trace.h"
#include "daemon/worker/capture.h"
#include "daemon/worker/kvcache.h"
#include "daemon/worker/scheduler.h"
#include "kernels/fdk.h"

struct bat_dims {
    int32_t T, S, O; /* maxima: tokens, rows, outputs of a step */
    int32_t stride;  /* blocks in a table */
    int32_t block_size;
    int32_t n_group;      /* KV groups, 0: one */
    const uint32_t *more; /* [T + 1] by padded size: bytes that the runner adds to the
                             head; NULL: none */
    int32_t n_copy;       /* copies of the model, 0: one */
    int32_t min_split;    /* lower bound of bat.min_split, at least 1; bounds the divided
                          rows of a step. Not used with one copy */
};

/* Byte offsets of the head for one padded size. */
struct bat_layout {
    size_t counts; /* BAT_N_COUNT x i32 */
    size_t q_start, kv_len, state, out;
    size_t out_at; /* several copies: [O] a copy's output to the step's output */
    size_t ids, pos, row;
    size_t slot_map; /* [groups][T_pad] */
    size_t more;     /* attention plans, filled by the runner */
    size_t bytes;    /* size of the head */
};
enum {
    BAT_N_TOK,
    BAT_N_ROW,
    BAT_N_OUT,
    BAT_N_UPDATE,
    BAT_N_DELTA,
    BAT_EPOCH, /* low 32 bits of the step's epoch: the value that its progress mark
                  writes */
    BAT_SHARE, /* a copy's plan: range of tokens of divided rows, [BAT_SHARE,
                  BAT_SHARE_END) */
    BAT_SHARE_END,
    BAT_N_COUNT
};

/* Up to this many new table entries of a row travel in the plan. More are copied
 * separately, through the record's pinned tables. */
#define BAT_MAX_DELTA 64
struct bat_table {
    const int32_t *src;
    int32_t at, n;
};

/* Byte offsets of a step's updates. */
struct bat_updates {
    size_t idx, rows, delta, bytes;
};

/* A row's entry in the penalty pool, when the row is new on the device. */
struct bat_entry {
    int32_t at;
    int32_t counts;  /* 1: has penalty counts */
    int32_t n_rules; /* 32-bit words of its rules, 0: none */
};

enum bat_out_kind { BAT_OUT_SAMPLE, BAT_OUT_SCORE };
struct bat_out { /* the sequence that an output belongs to */
    int32_t slot;
    uint32_t generation;
    int32_t kind; /* enum bat_out_kind */
    int32_t pos;  /* absolute position of the token */
};

/* A copy's share of a divided step. */
struct bat_copy {
    unsigned char *plan; /* pinned, bat_plan_bytes() */
    int32_t n_tok, n_row, n_out;
    struct bat_layout layout; /* for bat_rec.copy_pad tokens */
    struct bat_updates upd;
};

struct run_marks;
struct bat_rec {
    uint64_t epoch; /* of its step; 0: the record is free */
    int32_t n_row, n_tok, n_out, n_update, n_delta, n_table, n_entry;
    int32_t chosen; /* 1: some rows want logprobs of chosen ids */
    int32_t n_decode;
    int32_t T_pad;
    int32_t graph;   /* 1: T_pad (with n_split: copy_pad) is a size of the capture list */
    int32_t n_split; /* rows divided among copies; 0: each copy computes all rows and uses
                        plan */
    int32_t copy_pad; /* with n_split: tokens of each copy, padded */
    struct bat_layout layout;
    struct bat_updates upd;
    uint64_t expect_ns; /* longest time it is expected to take, 0: unknown */
    struct cost_step cost;
    int32_t n_cmd; /* commands it puts into the device's queue */
    int32_t mark;  /* 1: the device reports when most of the step is done */
    int32_t held;  /* 1: the pick was delayed only by lka_due() */
    uint64_t t_launch_ns;
    uint64_t t_work_ns; /* start of the current busy period */
    struct trc_step trace;
    unsigned char *plan;        /* pinned, bat_plan_bytes() */
    const int32_t *tables;      /* the host's block tables, [groups][slots][stride] */
    size_t group_step;          /* entries of one group's tables */
    struct fdk_result *results; /* pinned, [O] */
    struct bat_out *outs;       /* [O] */
    struct bat_table *table;    /* [S * groups] */
    int32_t *h_table;           /* pinned, as large as the device's tables: source of the
                                copies in table */
    struct bat_entry *entry;    /* [S] entries of the penalty pool to upload */
    uint8_t *split;             /* [S] 1: row r is divided */
    struct bat_copy *copy;      /* [n_copy]; NULL: one copy */
    float *h_chosen;            /* pinned, [entries][FDK_MAX_CHOSEN]: copy of the device's
                                array */
    struct run_marks *marks; /* runner.h: [ranks] events that time this step's operations;
                                NULL: not measured */
};

/* A synthetic step: n_decode rows that decode one token with a context of `context`
 * tokens, and, unless n_prefill is 0, one row with a prompt of n_prefill tokens. */
struct bat_synth {
    int32_t n_decode, context, n_prefill;
    const int32_t *table; /* [groups][rows][stride] blocks read, for slots 0, 1, ... */
    const int32_t *own;   /* the same table, with 0 (the dummy block) where a block may
                             not be written */
};

/* How much of a slot's tables the device has, and for which owner. */
struct bat_shadow {
    uint32_t generation;
    int32_t n;
};

struct bat {
    uint32_t magic;
#define BAT_MAGIC 0x42415443u
    struct bat_dims dims;
    const struct cap *cap; /* sizes with a graph; NULL: no graphs */
    uint16_t *counts;      /* host side of the penalty pool: counts, [entries][vocab] */
    int32_t *rules;        /* host side of the penalty pool: rules,
                              [entries][fdk_rules_words(vocab)] */
    int32_t vocab;
    struct bat_shadow *shadow; /* [S] by slot */
    int32_t min_split; /* prompts with at least this many tokens in a step are divided
                          among copies */
};

static inline int32_t
bat_groups(const struct bat_dims *d)
{
    return d->n_group > 0 ? d->n_group : 1;
}
static inline int32_t
bat_copies(const struct bat_dims *d)
{
    return d->n_copy > 0 ? d->n_copy : 1;
}
/* First token of shard s when len tokens are cut into n shards. Sizes differ by at most
 * one. */
static inline int32_t
bat_shard(int32_t len, int32_t s, int32_t n)
{
    return (int32_t)((int64_t)len * s / n);
}
/* Shard i (0 or 1) of copy p, among 2 n_copy shards. */
static inline int32_t
bat_shard_of(int32_t p, int32_t i, int32_t n_copy)
{
    return i == 0 ? p : 2 * n_copy - 1 - p;
}
/* How many of len tokens copy p computes. */
int32_t bat_share(int32_t len, int32_t p, int32_t n_copy);
/* Bounds on the rows and outputs of a step with T_pad tokens. */
int32_t bat_pad_rows(const struct bat_dims *d, int32_t T_pad);
int32_t bat_pad_outs(const struct bat_dims *d, int32_t T_pad);

void bat_layout(const struct bat_dims *d, int32_t T_pad, struct bat_layout *ret);
/* Size of the largest plan block. */
size_t bat_plan_bytes(const struct bat_dims *d);
/* The arguments that a KV group's operations read from a plan block at base (host or
 * device). The group's block tables are passed in table. */
void bat_view(const struct bat_dims *d, int32_t T_pad, void *base, int32_t group,
    const int32_t *table, struct fdk_batch *ret);
/* Index of a slot's first entry in the device's block tables. */
int32_t bat_table_at(const struct bat_dims *d, int32_t group, int32_t slot);

struct bat *bat_new(const struct bat_dims *d); /* NULL: out of memory */
struct bat *bat_free(struct bat *b);
/* Flattens st into rec, whose buffers the runner has set. The plan holds the fdk_row of
 * each row that is new on the device. */
void bat_fill(struct bat *b, const struct sch_step *st, const struct kv *kv,
    struct bat_rec *rec);
/* Makes copy p's plan of a step with n_split, in rec->copy[p]. Both plans are host
 * memory. Does not make the copy's attention plans. */
void bat_copy_fill(const struct bat_dims *d, const struct bat_rec *rec, int32_t p);
/* Rows of a synthetic step, and the blocks it needs. */
int32_t bat_synth_rows(const struct bat_synth *m);
int64_t bat_synth_blocks(const struct bat_dims *d, const struct bat_synth *m);
/* Index of row r's first entry in bat_synth.table and own. */
size_t bat_synth_at(const struct bat_dims *d, const struct bat_synth *m, int32_t group,
    int32_t r);
/* bat_fill() for a synthetic step; no sequence may hold a slot. fresh: also uploads the
 * states and block tables of its rows; the next owners of these slots replace them. */
void bat_make(struct bat *b, const struct bat_synth *m, int fresh, struct bat_rec *rec);

#endif
