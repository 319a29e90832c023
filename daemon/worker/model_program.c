/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Queries about a program that has been built. */
#include "config.h"

#include "daemon/worker/model.h"

int32_t
mdl_rope_from(const struct mdl_config *c, int32_t *ret_each)
{
    *ret_each = c->rope == MDL_ROPE_DYNAMIC;
    return *ret_each || c->rope == MDL_ROPE_LONGROPE ? c->rope_original_max_pos : 0;
}

void
mdl_rope_args(const struct mdl_program *p, const struct mdl_op *op,
    struct fdk_rope_table_args *ret)
{
    const struct mdl_config *c = &p->cfg;
    int32_t each;

    *ret = (struct fdk_rope_table_args){ .rot = p->rot, .scale = op->f };
    if (op->freq > 0 || mdl_rope_from(c, &each) == 0)
        return;
    ret->len = each ? FDK_ROPE_NTK : FDK_ROPE_LONG;
    ret->long_from = c->rope_original_max_pos;
    ret->ntk_theta = (float)c->rope_theta;
    ret->ntk_factor = (float)c->rope_factor;
}

uint64_t
mdl_n_param(const struct mdl_program *p)
{
    uint64_t n = 0;

    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];

        for (int k = 0; k < w->n_part && w->alias < 0 && w->split == 0; k++)
            n += (uint64_t)w->rows[k] * (uint64_t)(w->cols > 0 ? w->cols : 1);
    }
    return n;
}

const char *
mdl_op_name(enum mdl_op_kind k)
{
    static const char *const name[MDL_OP__N] = {
        [MDL_OP_EMBED] = "embed",
        [MDL_OP_ROPE_TABLE] = "rope_table",
        [MDL_OP_RMSNORM] = "rmsnorm",
        [MDL_OP_GEMM] = "gemm",
        [MDL_OP_QKV] = "qkv",
        [MDL_OP_ATTENTION] = "attention",
        [MDL_OP_MERGE] = "merge",
        [MDL_OP_SILU_MUL] = "silu_mul",
        [MDL_OP_GATHER] = "gather",
        [MDL_OP_LOGITS] = "logits",
        [MDL_OP_SOFTCAP] = "softcap",
        [MDL_OP_SAMPLE] = "sample",
        [MDL_OP_ALLREDUCE] = "allreduce",
        [MDL_OP_ALLGATHER] = "allgather",
        [MDL_OP_COLUMNS] = "columns",
        [MDL_OP_ADD] = "add",
        [MDL_OP_KVSHARE] = "kvshare",
        [MDL_OP_ROWSHARE] = "rowshare",
    };

    return k < MDL_OP__N ? name[k] : "?";
}
