/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rank has the embeddings of its shard of the vocabulary; other ranks read them from
 * its memory. Devices that cannot access each other's memory read copies of all shards in
 * host memory.
 */
#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/worker/model.h"
#include "daemon/worker/weights.h"

/* Index of the weight that is the table of embeddings, or -1. */
static int32_t
run_embed_w(const struct mdl_program *prog)
{
    for (int32_t i = 0; i < prog->n_op; i++)
        if (prog->op[i].kind == MDL_OP_EMBED)
            return prog->op[i].w;
    return -1;
}

uint64_t
run_embed_bytes(const struct mdl_program *prog, const struct wts_plan *wp)
{
    int32_t w = run_embed_w(prog);

    return wp != NULL && w >= 0 ? wts_weight(wp, w).bytes : 0;
}

int
run_embed_new(struct runner *run, char *err, size_t err_bytes)
{
    uint64_t bytes = run->in_host ? run_embed_bytes(run->prog, run->wp) : 0;
    int rc = 0;

    for (int32_t i = 0; i < run->n_rank && bytes > 0 && rc == 0; i++) {
        void *p = NULL;

        rc = run->k->host_alloc(run->ctx, (size_t)bytes, &p);
        run->h_embed[i] = p;
        if (rc == 0)
            run->dev[i].mem.in_host += bytes;
        else
            (void)snprintf(err, err_bytes, "%s: no host memory for embeddings (%llu MiB)",
                run->k->name, (unsigned long long)(bytes >> 20));
    }
    return rc;
}

void
run_embed_free(struct runner *run)
{
    for (int32_t i = 0; i < run->n_rank; i++)
        if (run->h_embed[i] != NULL)
            run->k->host_free(run->ctx, run->h_embed[i]);
}

int
run_load_embed(struct runner *run, char *err, size_t err_bytes)
{
    int rc = 0;

    for (int32_t i = 0; i < run->n_rank && run->h_embed[i] != NULL && rc == 0; i++) {
        struct run_dev *dev = &run->dev[i];
        const unsigned char *w = (const unsigned char *)dev->d_weights +
            wts_offset(run->wp, run_embed_w(run->prog));

        rc = run->k->copy(dev->stream, run->h_embed[i], w,
            run_embed_bytes(run->prog, run->wp));
        if (rc == 0)
            rc = run->k->stream_sync(dev->stream);
        if (rc != 0)
            (void)snprintf(err, err_bytes, "%s: the embeddings cannot be copied: %s",
                dev->name, strerror(-rc));
    }
    return rc;
}
