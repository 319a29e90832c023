/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by fdbench's tests: a model, a workload, and capture of standard error.
 * Include it after cmocka.h. */
#ifndef FDD_TESTS_UNIT_FDBENCH_FIXTURE_H
#define FDD_TESTS_UNIT_FDBENCH_FIXTURE_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/listen.h"
#include "tools/fdbench/fdbench.h"

/* A number of a summary or distribution. */
#define N(o, key) fdb_figure(o, key, NULL, NULL)

/* The ids of a prompt and their number. */
#define IDS(buf)   ((const uint32_t *)(const void *)(buf).p)
#define N_IDS(buf) ((buf).n / sizeof(uint32_t))

#define VOCAB      777u
#define BOS        5u
#define EOS        7u

static const struct fdc_model_info model = {
    .vocab = VOCAB, .max_model_len = 100000, .bos_id = BOS, .n_eos = 1, .eos_ids = { EOS }
};

static void
cfg_of(struct fdb_cfg *c, enum fdb_arrival arrival, double rate, uint32_t n)
{
    fdb_cfg_init(c);
    c->seed = 11;
    c->arrival = arrival;
    c->rate = rate;
    c->n_request = n;
    c->n_warm = 0;
    c->concurrency = arrival == FDB_CLOSED ? 4 : 0;
    c->in = (struct fdb_len){ 3, 9 };
    c->out = (struct fdb_len){ 2, 6 };
}

#endif
