/*
 * A step flattened into arrays: struct sch_step to the plan block that is
 * uploaded as it stands, and the step record that remembers what was asked
 * until the results are back. Engine thread.
 *
 * The plan block has one layout, on the host (pinned, one per record) and on
 * the device (one, at a fixed address, so that graphs may be recorded against
 * it); bat_view() gives the pointers into either. Launch sizes come from
 * T_pad alone (bat_pad); padding tokens carry id 0, the dummy block's slots
 * and the dummy row.
 *
 * There are D + 1 records; each carries the epoch of its step and, for each
 * output, slot and generation, so that a late result cannot reach the next
 * owner of a slot.
 *
 * Block tables are uploaded by rows that changed: the shadow in struct bat
 * knows what each batch row's table on the device holds.
 */
#ifndef FDD_DAEMON_WORKER_BATCH_H
#define FDD_DAEMON_WORKER_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/worker/kvcache.h"
#include "daemon/worker/scheduler.h"
#include "kernels/fdk.h"

struct bat_dims {
    int32_t T, S, O;         /* maxima: tokens, rows, outputs of a step */
    int32_t stride;          /* blocks in a table */
    int32_t block_size;
};

/* Byte offsets in the plan block. Parts in the order of upload: head (counts
 * to outputs), tokens, row updates, tables. */
struct bat_layout {
    size_t counts;           /* n_tok, n_row, n_out, n_update: 4 x i32 */
    size_t q_start, kv_len, state, out;
    size_t ids, pos, slot_map, row;
    size_t upd_idx, upd_rows;
    size_t table;
    size_t bytes;
};

enum bat_out_kind { BAT_OUT_SAMPLE, BAT_OUT_SCORE };
struct bat_out {             /* whose result o is */
    int32_t slot;
    uint32_t generation;
    int32_t kind;            /* enum bat_out_kind */
    int32_t pos;             /* absolute position of the token */
};

struct bat_rec {
    uint64_t epoch;          /* 0: free */
    int32_t n_row, n_tok, n_out, n_update;
    int32_t T_pad;
    int32_t table_lo, table_hi; /* table rows to upload: [lo, hi) */
    uint64_t t_launch_ns;
    unsigned char *plan;     /* pinned, layout.bytes */
    struct fdk_result *results; /* pinned, [O] */
    struct bat_out *outs;    /* [O] */
    fdk_event_t ev;
};

/* What the device's table row r holds. */
struct bat_shadow { int32_t slot; uint32_t generation; int32_t n; };

struct bat {
    uint32_t magic;
#define BAT_MAGIC 0x42415443u
    struct bat_dims dims;
    struct bat_layout layout;
    struct bat_shadow *shadow; /* [S] */
};

/* Padded token count: 1, 2, 4, 8..128 by 8, 144..256 by 16, 288..1024 by
 * 32, then powers of two, at most T_max. */
int32_t bat_pad(int32_t n_tok, int32_t T_max);
/* Launch bounds that follow from it. */
int32_t bat_pad_rows(const struct bat_dims *d, int32_t T_pad);
int32_t bat_pad_outs(const struct bat_dims *d, int32_t T_pad);

void bat_layout(const struct bat_dims *d, struct bat_layout *ret);
/* Pointers of a plan block at base (host or device). */
void bat_view(const struct bat_dims *d, const struct bat_layout *l, void *base,
    struct fdk_batch *ret);

struct bat *bat_new(const struct bat_dims *d);  /* NULL: no memory */
struct bat *bat_free(struct bat *b);
/* Flatten st into rec (plan and results set by the runner, outs by its
 * owner). Rows new on the device come with their fdk_row in the plan. */
void bat_fill(struct bat *b, const struct sch_step *st, const struct kv *kv,
    struct bat_rec *rec);

#endif
