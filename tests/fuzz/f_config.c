/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as config.json and generation_config.json (separated by a NUL byte): refused
 * with one line, or a configuration within the limits whose program can be built.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model.h"

#define MUST(e) \
    do { \
        if (!(e)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
            abort(); \
        } \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
check_config(const struct mdl_config *c)
{
    MUST(mdl_family(c->family) != NULL);
    MUST(c->n_layer >= 1 && c->n_layer <= MDL_MAX_LAYER);
    MUST(c->n_head >= 1 && c->n_head <= MDL_MAX_HEAD);
    MUST(c->n_kv_head >= 1 && c->n_head % c->n_kv_head == 0);
    MUST(c->head_dim >= 2 && c->head_dim <= MDL_MAX_HEAD_DIM && c->head_dim % 2 == 0);
    MUST(c->hidden >= 1 && c->hidden <= MDL_MAX_HIDDEN);
    MUST(c->ffn >= 1 && c->ffn <= MDL_MAX_FFN);
    MUST(c->vocab >= 1 && c->vocab <= MDL_MAX_VOCAB);
    MUST(c->max_pos >= 1 && c->max_pos <= MDL_MAX_POS);
    MUST(c->norm_eps > 0 && c->norm_eps <= 1);
    MUST(c->quant >= MDL_QUANT_NONE && c->quant <= MDL_QUANT_CHANNEL);
    MUST(c->bos >= -1 && c->bos < c->vocab);
    MUST(c->n_eos >= 0 && c->n_eos <= MDL_MAX_EOS);
    for (int i = 0; i < c->n_eos; i++)
        MUST(c->eos[i] >= 0 && c->eos[i] < c->vocab);
}

static void
check_program(const struct mdl_program *p)
{
    double bytes, flops;

    MUST(p->n_op > 0 && p->op[p->n_op - 1].kind == MDL_OP_SAMPLE);
    for (int32_t i = 0; i < p->n_freq; i++)
        MUST(isfinite(p->inv_freq[i]));
    for (int32_t i = 0; i < p->n_buf; i++)
        MUST(p->buf[i].width > 0 && p->buf[i].first < p->buf[i].last);
    for (int32_t i = 0; i < p->n_op; i++) {
        mdl_op_cost(p, &p->op[i], 1, 1, 1, 2, 2, 4, &bytes, &flops);
        MUST(isfinite(bytes) && isfinite(flops) && bytes > 0);
    }
    MUST(mdl_n_param(p) > 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *cut = n > 0 ? memchr(data, 0, n) : NULL;
    size_t first = cut != NULL ? (size_t)(cut - data) : n;
    struct mdl_program *p = NULL;
    struct mdl_config c;
    char err[512] = "";
    int rc;

    rc = mdl_config_parse((const char *)data, first,
        cut != NULL ? (const char *)cut + 1 : NULL, cut != NULL ? n - first - 1 : 0, &c,
        err, sizeof(err));
    if (rc != 0) {
        MUST(rc == -EINVAL && strstr(err, "config.json: ") != NULL);
        MUST(strchr(err, '\n') == NULL);
        return 0;
    }
    check_config(&c);
    for (int32_t ranks = 1; ranks <= 8; ranks++) {
        err[0] = '\0';
        rc = mdl_build(&c, ranks, &p, err, sizeof(err));
        if (rc != 0) {
            MUST(rc == -EINVAL && err[0] != '\0' && strchr(err, '\n') == NULL);
            continue;
        }
        check_program(p);
        MUST(p->n_head * ranks == c.n_head && p->ffn * ranks == c.ffn);
        MUST((int64_t)p->vocab_rows * ranks >= c.vocab);
        MUST(mdl_free(p) == NULL);
        p = NULL;
    }
    return 0;
}
