/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a group's collectives before they are used, and measures which way is the
 * fastest for each size.
 */
#include "config.h"

#include "daemon/worker/runner_sums.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

#define SUMS_LEAST  16         /* smallest size of the check, in bytes */
#define SUMS_STEP   8          /* factor from one size of the check to the next */
#define SUMS_FIRST  (4u << 10) /* smallest size of the choice, in bytes */
#define SUMS_FACTOR 4          /* factor from one size of the choice to the next */
#define SUMS_BEST   3          /* chains timed for each way; the fastest counts */

enum sums_way { SUMS_PACKETS, SUMS_WHOLE, SUMS_SHARES, SUMS__N };

static int
sums_begin(struct runner *run)
{
    run->sums = mem_zalloc(sizeof(*run->sums));
    return run->sums != NULL ? 0 : -ENOMEM;
}

/* Free run->sums, unless a launch thread hangs: that thread may still use it. */
static void
sums_end(struct runner *run)
{
    if (!run_ranks_idle(run))
        return;
    for (int32_t q = 0; q < run->n_rank && run->sums != NULL; q++)
        free(run->sums->h[q]);
    free(run->sums);
    run->sums = NULL;
}

/* ---- the check -------------------------------------------------------------------------- */

static int
sums_failed(struct runner *run, int rc, char *err, size_t err_bytes)
{
    const struct run_sums *s = run->sums;
    size_t bytes = s->n * sums_elt(run);
    const char *what = s->op == SUMS_GATHER ? "gathering"
        : s->op == SUMS_AHEAD               ? "a sum, sent ahead, of"
                                            : "a sum of";
    const char *without = s->op == SUMS_AHEAD
        ? "; parallel.overlap_min_tokens = -1 does without sums of this kind"
        : "";

    if (rc != 0)
        (void)snprintf(err, err_bytes,
            "collectives: %s %zu bytes of each of %d ranks: %s%s", what, bytes,
            run_copy_ranks(run), run_error(run), without);
    for (int32_t q = 0; q < run->n_rank && rc == 0; q++) {
        if (s->bad[q] < 0)
            continue;
        (void)snprintf(err, err_bytes,
            "collectives: %s %zu bytes of each of %d ranks is wrong on rank %d (%s): "
            "element %lld is %g, not %g; see whether the devices' links are well "
            "(nvidia-smi nvlink -e), or list other devices%s",
            what, bytes, run_copy_ranks(run), q, run->dev[q].name, (long long)s->bad[q],
            (double)s->was[q], (double)s->want[q], without);
        rc = -EIO;
    }
    return rc;
}

static int
sums_check_sizes(struct runner *run, char *err, size_t err_bytes)
{
    struct run_sums *s = run->sums;
    enum sums_op n_op = run->halves_least > 0 ? SUMS_OP__N : SUMS_AHEAD;
    struct fdk_group_ways ways = { 0 };
    size_t most = sums_most(run), ahead;
    int rc = 0;

    run->k->group_ways(run->group[0], NULL, &ways);
    ahead = (size_t)ways.ahead_bytes / sums_elt(run);

    for (size_t bytes = SUMS_LEAST; bytes < SUMS_STEP * most && rc == 0; bytes *= SUMS_STEP)
        for (s->op = SUMS_SUM; s->op < n_op && rc == 0; s->op++) {
            s->n = (bytes < most ? bytes : most) / sums_elt(run);
            if (s->op == SUMS_AHEAD && s->n > ahead)
                s->n = ahead;
            if (s->op == SUMS_GATHER && s->n > (size_t)run_copy_ranks(run))
                s->n /= (size_t)run_copy_ranks(run);
            rc = sums_failed(run, run_on_all(run, sums_check_rank, 0), err, err_bytes);
        }
    return rc;
}

int
run_sums_check(struct runner *run, char *err, size_t err_bytes)
{
    size_t most = sums_most(run);
    int rc;

    if (run->group[0] == NULL || most < SUMS_LEAST * FDK_MAX_RANKS)
        return 0;
    ASSERT(run->act == FDK_F32 || run->act == FDK_BF16);
    rc = sums_begin(run);
    for (int32_t q = 0; q < run->n_rank && rc == 0; q++) {
        run->sums->h[q] = malloc(most);
        rc = run->sums->h[q] == NULL ? -ENOMEM : 0;
    }
    if (rc != 0)
        (void)snprintf(err, err_bytes, "collectives: no memory to check them");
    else
        rc = sums_check_sizes(run, err, err_bytes);
    sums_end(run);
    return rc;
}

/* ---- the choice --------------------------------------------------------------------------- */

static struct fdk_group_ways
sums_ways(enum sums_way way)
{
    return (struct fdk_group_ways){ .one_shot_bytes = way == SUMS_SHARES ? 1 : UINT64_MAX,
        .packet_bytes = way == SUMS_PACKETS ? UINT64_MAX : 1 };
}

void
run_sums_set(const struct runner *run, const struct fdk_group_ways *ways)
{
    for (int32_t p = 0; p < run->n_copy; p++)
        run->k->group_ways(run->group[p], ways, NULL);
}

/* Measure the shortest time of a chain of sums done this way. */
static int
sums_time(struct runner *run, enum sums_way way, uint64_t *ret_ns)
{
    const struct fdk_group_ways w = sums_ways(way);
    struct run_dev *root = run_root(run);
    uint64_t best = UINT64_MAX;
    int rc = 0;

    run_sums_set(run, &w);
    for (int i = 0; i < SUMS_BEST && rc == 0; i++) {
        rc = run_on_all(run, sums_time_rank, 0);
        if (rc == 0) {
            uint64_t from = run->k->event_ns(root->ev_copy[0]),
                     to = run->k->event_ns(root->ev_copy[1]);

            best = to > from && to - from < best ? to - from : best;
        }
    }
    *ret_ns = best;
    return rc;
}

/* The size up to which a way is used: between the largest size it was best for and the
 * next size. best_at 0: it was best for none. */
static uint64_t
sums_bound(size_t best_at, size_t last)
{
    if (best_at == 0)
        return 1;
    return best_at == last ? UINT64_MAX : (uint64_t)best_at * SUMS_FACTOR / 2;
}

int32_t
run_sums_row(const struct runner *run)
{
    const struct mdl_program *p = run->prog;

    for (int32_t i = 0; i + 1 < p->n_op; i++) {
        const struct mdl_op *norm = &p->op[i + 1];

        if (p->op[i].kind == MDL_OP_ALLREDUCE && norm->kind == MDL_OP_RMSNORM &&
            norm->norm == FDK_NORM_PRE && (norm->scale == 0 || norm->scale == 1))
            return p->cfg.hidden;
    }
    return 0;
}

/* Set the number of elements for this size. Sums that a step fuses with a residual and a
 * norm are timed with them, as not every way takes one pass then. The residual is behind
 * the operand or behind the result; if neither has room, sums are plain. */
static void
sums_size(const struct runner *run, size_t bytes)
{
    struct run_sums *s = run->sums;
    size_t row = (size_t)run_sums_row(run);
    size_t n = row > 0 ? bytes / sums_elt(run) / row * row : 0;
    size_t used = (n + row) * sizeof(float);

    s->row = n > 0 ? row : 0;
    s->residual = (n * sums_elt(run) + SUMS_ALIGN - 1) / SUMS_ALIGN * SUMS_ALIGN;
    if (s->residual + used > sums_most(run))
        s->residual = 2 * sums_most(run);
    if (s->residual + used > (size_t)run_root(run)->mem.activations)
        s->row = 0;
    s->n = s->row > 0 ? n : bytes / sums_elt(run);
}

/* Returns 0, a device's error, or 1 if time ran out before the last size. */
static int
sums_choose_sizes(struct runner *run, int has_packets, uint64_t until_ns,
    struct fdk_group_ways *ret)
{
    size_t most = sums_most(run), best[SUMS__N] = { 0 }, last = 0;
    int rc = 0;

    for (size_t bytes = SUMS_FIRST; bytes <= most && rc == 0; bytes *= SUMS_FACTOR) {
        uint64_t ns[SUMS__N] = { UINT64_MAX, UINT64_MAX, UINT64_MAX };

        if (clk_now_ns() >= until_ns)
            return 1;
        sums_size(run, bytes);
        for (int w = has_packets ? SUMS_PACKETS : SUMS_WHOLE; w < SUMS__N && rc == 0; w++)
            rc = sums_time(run, (enum sums_way)w, &ns[w]);
        if (ns[SUMS_WHOLE] <= ns[SUMS_SHARES])
            best[SUMS_WHOLE] = bytes;
        if (ns[SUMS_PACKETS] < ns[SUMS_WHOLE] && ns[SUMS_PACKETS] < ns[SUMS_SHARES])
            best[SUMS_PACKETS] = bytes;
        last = bytes;
    }
    ret->one_shot_bytes = sums_bound(best[SUMS_WHOLE], last);
    ret->packet_bytes = has_packets ? sums_bound(best[SUMS_PACKETS], last) : 0;
    return rc;
}

int
run_sums_choose(struct runner *run, uint64_t budget_ns, struct fdk_group_ways *ret)
{
    struct fdk_group_ways was, ways;
    int rc;

    ASSERT(run->group[0] != NULL);
    run->k->group_ways(run->group[0], NULL, &was);
    *ret = was;
    if (sums_most(run) < SUMS_FIRST)
        return 1;
    rc = sums_begin(run);
    if (rc != 0)
        (void)snprintf(run_root(run)->refused, sizeof(run_root(run)->refused),
            "no memory to measure them");
    else
        rc = sums_choose_sizes(run, was.packet_bytes > 0, clk_now_ns() + budget_ns, &ways);
    sums_end(run);
    if (rc == 0)
        *ret = ways;
    run_sums_set(run, ret);
    return rc;
}
