/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks before the first step which operations the backend's kernels support. The worker
 * does not start if no kernel computes an operation. It logs operations that only a slow
 * kernel computes, and capture sizes that split a class of GEMM rows in two.
 */
#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/log.h"

/* Numbers of tokens to check, besides that of the largest step. */
static const int32_t run_sizes_checked[] = { 1, 8, 64, 128, 512 };
#define RUN_N_CHECKED (sizeof(run_sizes_checked) / sizeof(run_sizes_checked[0]))

int
run_op_takes(const struct run_dev *dev, const struct run_form *f, int32_t i,
    const struct fdk_step *s, char *why, size_t why_bytes)
{
    const struct fdk_ops *k = dev->run->k;
    struct fdk_op op = f->op[i];

    why[0] = '\0';
    if (k->op_takes == NULL || fdk_op_rows(&op, s) == 0)
        return 0;
    fdk_op_complete(&op, s);
    return k->op_takes(dev->run->ctx, dev->idx, &op, why, why_bytes);
}

/* One line of text: the operation, its shape, and what the backend supports instead. */
static void
run_takes_text(const struct run_dev *dev, const struct run_form *f, int32_t i, int rows,
    const char *why, char *ret, size_t n)
{
    const struct mdl_op *o = &dev->run->prog->op[f->line[i]];
    char shape[RUN_TAKES_TEXT / 2];
    size_t at;

    fdk_op_text(dev->run->k, &f->op[i], shape, sizeof(shape));
    (void)snprintf(ret, n, "operation %s", mdl_op_name(o->kind));
    at = strlen(ret);
    if (o->layer >= 0)
        (void)snprintf(ret + at, n - at, " of layer %d", o->layer);
    at = strlen(ret);
    (void)snprintf(ret + at, n - at, " (%s), %d rows: the %s backend takes %s", shape,
        rows, dev->run->k->name, why);
}

/* Check one operation at all these sizes. Returns the first result of op_takes() that is
 * not 0, with a text that describes it. */
static int
run_check_op(struct run_dev *dev, const struct run_form *f, int32_t i, char *text, size_t n)
{
    char why[RUN_TAKES_TEXT / 2];

    for (size_t j = 0; j <= RUN_N_CHECKED; j++) {
        int32_t T = j < RUN_N_CHECKED ? run_sizes_checked[j] : dev->run->dims.T;
        struct run_pad pad;
        struct fdk_step s;
        int rc;

        if (T > dev->run->dims.T)
            continue;
        run_pad_init(dev, T, bat_pad_outs(&dev->run->dims, T), &pad);
        run_step(&pad, &s);
        rc = run_op_takes(dev, f, i, &s, why, sizeof(why));
        if (rc == 0)
            continue;
        run_takes_text(dev, f, i, fdk_op_rows(&f->op[i], &s), why, text, n);
        return rc;
    }
    return 0;
}

static int
run_check_ops(struct run_dev *dev, char *err, size_t err_bytes)
{
    char text[RUN_TAKES_TEXT], said[RUN_TAKES_TEXT] = "";

    for (int t = 0; t < 2; t++)
        for (int32_t i = 0; i < dev->form[t].n; i++) {
            const struct run_form *f = &dev->form[t];
            const struct mdl_op *o = &dev->run->prog->op[f->line[i]];
            int rc = run_check_op(dev, f, i, text, sizeof(text));

            if (rc < 0) {
                (void)snprintf(err, err_bytes, "no kernel for %s", text);
                return rc;
            }
            /* layers are alike: log only the first slow one */
            if (rc == 0 || t > 0 || o->layer > 0 || strcmp(text, said) == 0)
                continue;
            (void)snprintf(said, sizeof(said), "%s", text);
            log_warn("runner: a slow kernel computes %s", text);
        }
    return 0;
}

/* ---- classes of rows ---------------------------------------------------------------- */

/* The largest number of tokens whose GEMMs are computed like those of T tokens. */
static int32_t
run_class_most(const struct run_dev *dev, int32_t T)
{
    const struct run_form *f = &dev->form[0];
    int32_t least = INT32_MAX;
    struct run_pad pad;
    struct fdk_step s;

    run_pad_init(dev, T, bat_pad_outs(&dev->run->dims, T), &pad);
    run_step(&pad, &s);
    for (int32_t i = 0; i < f->n; i++) {
        struct fdk_op op = f->op[i];
        int32_t most;

        if (op.kind != FDK_OP_GEMM || op.rows != FDK_PER_TOKEN)
            continue;
        fdk_op_complete(&op, &s);
        most = dev->run->k->gemm_class(dev->run->ctx, dev->idx, &op.gemm);
        least = most < least ? most : least;
    }
    return least;
}

void
run_check_sizes(struct runner *run)
{
    int32_t most[CAP_MAX];
    struct cap_cut cut;

    if (!run_uses_graph(run) || run->k->gemm_class == NULL)
        return;
    for (int32_t i = 0; i < run->cap.n; i++)
        most[i] = run_class_most(run_root(run), run->cap.size[i]);
    if (!cap_cuts(&run->cap, most, &cut))
        return;
    log_warn("runner: graph.capture_sizes: steps of %d to %d tokens are padded to %d, where GEMMs use other "
             "kernels than up to %d: the tokens of these steps depend on the number of rows, and "
             "the steps take longer; add %d",
        cut.first, cut.most, cut.size, cut.most, cut.most);
}

/* Checks rank 0 only: all ranks have the same kind of device. */
int
run_check(struct runner *run, char *err, size_t err_bytes)
{
    int rc = run_check_ops(run_root(run), err, err_bytes);

    if (rc == 0)
        run_check_sizes(run);
    return rc;
}

const char *
run_fell_back(const struct runner *run)
{
    const struct run_dev *root = run_root(run);

    return run->k->fell_back == NULL ? "" : run->k->fell_back(run->ctx, root->idx);
}

void
run_check_launches(struct runner *run)
{
    if (run_fell_back(run)[0] != '\0')
        log_warn("runner: %s", run_fell_back(run));
}
