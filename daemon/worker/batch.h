/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A step flattened into arrays: struct sch_step to the plan block that is
 * uploaded as it stands, and the step record that remembers what was asked
 * until the results are back. Engine thread.
 *
 * The plan block lies on the host (pinned, one per record) and on the device
 * (one, at a fixed address, so that graphs may be recorded against it). Its
 * parts follow each other without gaps for the step's padded size, so that a
 * step is one upload:
 *
 *   head     counts, per row, outputs, per token, attention plans: bat_layout(), by
 *            T_pad alone
 *   updates  what changes on the device: rows that are new with their state,
 *            and entries of block tables; directly behind the head
 *
 * Padding tokens carry id 0, the dummy block's slots and the dummy row.
 *
 * There are D + 1 records; each carries the epoch of its step and, for each
 * output, slot and generation, so that a late result cannot reach the next
 * owner of a slot.
 *
 * Copies of the model (bat_dims.n_copy) divide long prompts. The tokens of a prompt in a step
 * are cut into 2 n_copy shards, and copy p has shards p and 2 n_copy - 1 - p: as many tokens and, with
 * causal attention, as much attention as each other one. The record says which rows are divided and
 * nothing of a copy; bat_copy_fill() makes of it the plan of one. There a divided row is two,
 * one for each shard, behind the rows that all copies compute.
 *
 * Block tables stay on the device, by KV group and state slot. The shadow in struct bat
 * knows how much of a slot's tables was sent for which owner.
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
    const uint32_t *more; /* [T + 1] bytes that the runner adds to the head of a
                                padded size; NULL: none */
    int32_t n_copy;       /* of the model, 0: one */
    int32_t min_split; /* the least that struct bat's may be, 1 or more: there is room for as
                                many divided rows as a step can have; one copy: not read */
};

/* Byte offsets of the head for one padded size. */
struct bat_layout {
    size_t counts; /* BAT_N_COUNT x i32 */
    size_t q_start, kv_len, state, out;
    size_t out_at; /* several copies: which output of the step each of a copy's is */
    size_t ids, pos, row;
    size_t slot_map; /* [groups][T_pad] */
    size_t more;     /* the runner's: attention plans */
    size_t bytes;    /* of the head */
};
enum {
    BAT_N_TOK,
    BAT_N_ROW,
    BAT_N_OUT,
    BAT_N_UPDATE,
    BAT_N_DELTA,
    BAT_EPOCH, /* of the step, its low half: what its mark says */
    BAT_SHARE, /* a copy's plan: its tokens of divided rows, [BAT_SHARE, BAT_SHARE_END) */
    BAT_SHARE_END,
    BAT_N_COUNT
};

/* A row's new table entries travel with the plan up to this number, more as copies of
 * their own, by way of the record's pinned tables. */
#define BAT_MAX_DELTA 64
struct bat_table {
    const int32_t *src;
    int32_t at, n;
};

/* Byte offsets of a step's updates. */
struct bat_updates {
    size_t idx, rows, delta, bytes;
};

/* An entry of the pool of a row that is new on the device. */
struct bat_entry {
    int32_t at;
    int32_t counts;  /* 1: with penalty counts */
    int32_t n_rules; /* words of its rules, 0: none */
};

enum bat_out_kind { BAT_OUT_SAMPLE, BAT_OUT_SCORE };
struct bat_out { /* whose result o is */
    int32_t slot;
    uint32_t generation;
    int32_t kind; /* enum bat_out_kind */
    int32_t pos;  /* absolute position of the token */
};

/* What a copy computes of a divided step. */
struct bat_copy {
    unsigned char *plan; /* pinned, bat_plan_bytes() */
    int32_t n_tok, n_row, n_out;
    struct bat_layout layout; /* of bat_rec.copy_pad */
    struct bat_updates upd;
};

struct run_marks;
struct bat_rec {
    uint64_t epoch; /* 0: free */
    int32_t n_row, n_tok, n_out, n_update, n_delta, n_table, n_entry;
    int32_t chosen; /* 1: there are rows with logprobs of chosen ids */
    int32_t n_decode;
    int32_t T_pad;
    int32_t graph; /* 1: T_pad is a size of the capture list; with n_split: copy_pad is */
    int32_t n_split; /* rows that copies divide; 0: each computes all, and then plan is theirs */
    int32_t copy_pad; /* with n_split: tokens of each copy, padded */
    struct bat_layout layout;
    struct bat_updates upd;
    uint64_t expect_ns; /* how long it may take, 0: unknown */
    struct cost_step cost;
    int32_t n_cmd; /* with the device's queue */
    int32_t mark;  /* the step is to say when most of it is done */
    int32_t held;  /* nothing but lka_due() held its pick back */
    uint64_t t_launch_ns;
    uint64_t t_work_ns; /* since when there was work without a pause */
    struct trc_step trace;
    unsigned char *plan;        /* pinned, bat_plan_bytes() */
    const int32_t *tables;      /* the host's block tables, [groups][slots][stride] */
    size_t group_step;          /* entries of a group's */
    struct fdk_result *results; /* pinned, [O] */
    struct bat_out *outs;       /* [O] */
    struct bat_table *table;    /* [S * groups] */
    int32_t *h_table;        /* pinned, as large as the device's tables: what these copies
                                are made from */
    struct bat_entry *entry; /* [S] of the pool, to upload */
    uint8_t *split;          /* [S] is row r divided? */
    struct bat_copy *copy;   /* [n_copy], NULL: one */
    float *h_chosen;         /* pinned, [entries][FDK_MAX_CHOSEN]: as on the device */
    struct run_marks *marks; /* runner.h: [ranks] where this step's operations leave their
                                events; NULL: not measured */
};

/* A synthetic step: n_decode rows of context tokens that decode one,
 * and a row with a prompt of n_prefill tokens, none if that is 0. */
struct bat_synth {
    int32_t n_decode, context, n_prefill;
    const int32_t *table; /* [groups][rows][stride] blocks they read, of slots 0, 1, ... */
    const int32_t *own;   /* the same where they may be written, else the dummy, 0 */
};

/* What the device's tables of a slot hold. */
struct bat_shadow {
    uint32_t generation;
    int32_t n;
};

struct bat {
    uint32_t magic;
#define BAT_MAGIC 0x42415443u
    struct bat_dims dims;
    const struct cap *cap; /* sizes with a graph; NULL: none */
    uint16_t *counts;      /* host side of the pool: penalty counts, [entries][vocab] */
    int32_t *rules;        /* and rules, [entries][fdk_rules_words(vocab)] */
    int32_t vocab;
    struct bat_shadow *shadow; /* [S] by slot */
    int32_t min_split; /* tokens of a prompt in a step from which on copies divide them */
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
/* Where shard s of n begins in len tokens: sizes differ by one at most. */
static inline int32_t
bat_shard(int32_t len, int32_t s, int32_t n)
{
    return (int32_t)((int64_t)len * s / n);
}
/* The shards of copy p, i 0 and 1, of 2 n_copy. */
static inline int32_t
bat_shard_of(int32_t p, int32_t i, int32_t n_copy)
{
    return i == 0 ? p : 2 * n_copy - 1 - p;
}
/* Of len tokens those that copy p has. */
int32_t bat_share(int32_t len, int32_t p, int32_t n_copy);
/* Launch bounds that follow from the padded token count. */
int32_t bat_pad_rows(const struct bat_dims *d, int32_t T_pad);
int32_t bat_pad_outs(const struct bat_dims *d, int32_t T_pad);

void bat_layout(const struct bat_dims *d, int32_t T_pad, struct bat_layout *ret);
/* The largest plan block. */
size_t bat_plan_bytes(const struct bat_dims *d);
/* What a KV group's operations see of a plan block at base (host or device); the group's
 * block tables lie elsewhere. */
void bat_view(const struct bat_dims *d, int32_t T_pad, void *base, int32_t group,
    const int32_t *table, struct fdk_batch *ret);
/* Where the device's table of a slot begins. */
int32_t bat_table_at(const struct bat_dims *d, int32_t group, int32_t slot);

struct bat *bat_new(const struct bat_dims *d); /* NULL: no memory */
struct bat *bat_free(struct bat *b);
/* Flatten st into rec (its buffers set by the runner). Rows new on the device
 * come with their fdk_row in the plan. */
void bat_fill(struct bat *b, const struct sch_step *st, const struct kv *kv,
    struct bat_rec *rec);
/* What copy p computes of a step with n_split, into rec->copy[p]; both plans are the
 * host's. The attention plans behind it are not made. */
void bat_copy_fill(const struct bat_dims *d, const struct bat_rec *rec, int32_t p);
/* Rows of a synthetic step, and blocks that one needs. */
int32_t bat_synth_rows(const struct bat_synth *m);
int64_t bat_synth_blocks(const struct bat_dims *d, const struct bat_synth *m);
/* Where the table of a row begins in bat_synth.table and own. */
size_t bat_synth_at(const struct bat_dims *d, const struct bat_synth *m, int32_t group,
    int32_t r);
/* bat_fill() for a synthetic step: no sequence may hold a slot. fresh: with states
 * and tables of its rows, which the next owners of their slots replace. */
void bat_make(struct bat *b, const struct bat_synth *m, int fresh, struct bat_rec *rec);

#endif
