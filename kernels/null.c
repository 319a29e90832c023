/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/sample.h"
#include "kernels/cpu/vdev.h"

#include <string.h>

/*
 * The null backend: the virtual device (by default executing immediately in the
 * caller) without arithmetic, except for the bookkeeping of tokens. sample() returns a
 * hash of the output's input token and position, so every token depends only on the
 * prompt:
 *
 *   token = mix(input id at out.tok, out.pos) % V
 *
 * where the input id is the row's last token if the step has -1. Logprobs
 * are -1; the top logprobs are those of the ids after the token, all -2. Stop ids,
 * min_len and max_len work as on the cpu backend: below min_len a stop id is replaced by
 * the next id that is not one. Penalty counts are updated but do not change tokens. Rules
 * mask and force ids as on the cpu backend: a masked id is replaced by the next allowed
 * one. Biases have no effect; the logprobs of fdk_rules.chosen are -2.
 */

#define NULL_LOGPROB     (-1.0f)
#define NULL_TOP_LOGPROB (-2.0f)

static uint32_t
mix32(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

int32_t
fdk_null_token(int32_t input, int32_t pos, int32_t V)
{
    return (int32_t)(mix32(mix32((uint32_t)input) + (uint32_t)pos) % (uint32_t)V);
}

static int
is_stop(const struct fdk_row *st, int32_t token)
{
    for (int i = 0; i < st->n_stop && i < FDK_MAX_STOP_IDS; i++)
        if (st->stop_ids[i] == token)
            return 1;
    return 0;
}

static int
is_masked(const struct fdk_row *st, const int32_t *entry, int32_t token)
{
    const struct fdk_rules *ru = (const struct fdk_rules *)(const void *)entry;
    if (st->len < st->min_len && is_stop(st, token))
        return 1;
    if (ru == NULL)
        return 0;
    for (int32_t i = 0; i < ru->n_ban; i++)
        if (fdk_rules_banned(ru, entry, i, st->len) == token)
            return 1;
    return !fdk_rules_allow(ru, entry, token);
}

/* First id from `token` on that may be chosen; -1: none. */
static int32_t
null_choose(const struct fdk_row *st, const int32_t *entry, int32_t token, int32_t V)
{
    const struct fdk_rules *ru = (const struct fdk_rules *)(const void *)entry;
    if (ru != NULL && fdk_rules_forced(ru) >= 0)
        return fdk_rules_forced(ru);
    for (int32_t i = 0; i < V; i++, token = (token + 1) % V)
        if (!is_masked(st, entry, token))
            return token;
    return -1;
}

static void
null_chosen(const struct fdk_sample_args *a, const struct fdk_out *out, const int32_t *entry)
{
    const struct fdk_rules *ru = (const struct fdk_rules *)(const void *)entry;
    float *ret = a->chosen + (size_t)(out->rules - 1) * FDK_MAX_CHOSEN;
    for (int32_t i = 0; i < ru->n_chosen; i++)
        ret[i] = NULL_TOP_LOGPROB;
}

static void
null_output(const struct fdk_sample_args *a, int o)
{
    const struct fdk_out *out = &a->b->out[o];
    struct fdk_row *st = &a->state[a->b->state[out->row]];
    struct fdk_result *r = &a->results[o];
    memset(r, 0, sizeof(*r));
    r->token = -1;
    r->generation = st->generation;
    if (out->kind == FDK_OUT_SCORE) {
        r->token = out->target;
    } else if (st->done != FDK_DONE_NO) {
        r->done = st->done;
        return;
    } else {
        int32_t id = a->b->ids[out->tok];
        int32_t token = fdk_null_token(id >= 0 ? id : st->last_token, out->pos, a->V);
        const int32_t *entry = sample_rules(a, out);
        token = null_choose(st, entry, token, a->V);
        if (token < 0) {
            r->bad = FDK_BAD_EMPTY;
            return;
        }
        if (entry != NULL && out->n_top >= 0)
            null_chosen(a, out, entry);
        sample_commit(a, out, st, token, r);
    }
    if (out->n_top < 0)
        return;
    r->logprob = NULL_LOGPROB;
    for (; r->n_top < out->n_top && r->n_top < FDK_MAX_LOGPROBS && r->n_top < a->V - 1;
         r->n_top++) {
        r->top_id[r->n_top] = (r->token + 1 + r->n_top) % a->V;
        r->top_logprob[r->n_top] = NULL_TOP_LOGPROB;
    }
}

static void
null_exec(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    (void)st;
    if (cmd->op == CMD_ROW_UPDATE) {
        cpu_row_update(&cmd->u.row_update);
    } else if (cmd->op == CMD_ATT_PLAN) {
        *cmd->u.att_plan.n_work = 0;
        *cmd->u.att_plan.n_done = 0;
    } else if (cmd->op == CMD_SAMPLE) {
        const struct fdk_sample_args *a = &cmd->u.sample;
        for (int o = a->first; o < a->first + a->R && o < *a->b->n_out; o++)
            null_output(a, o);
    }
}

static int
null_available(char *why, size_t why_bytes)
{
    if (why_bytes > 0)
        why[0] = '\0';
    return 1;
}

static int
null_open(const struct fdk_open_args *args, struct fdk_ctx **ret, char *err,
    size_t err_bytes)
{
    return cpu_ctx_new(args, &fdk_ops_null, null_exec, ret, err, err_bytes);
}

const struct fdk_ops fdk_ops_null = {
    .name = "null", .echo = 1, .available = null_available, .open = null_open, VDEV_OPS
};
