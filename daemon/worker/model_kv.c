/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * KV groups of a program. Blocks of all groups have the same size, so that they share one
 * pool: layers of the same kind are divided into groups of as many layers as fit in a
 * block. The block size is chosen so that a sequence of the model's full length takes the
 * least memory; among equals the largest, which needs the fewest block tables.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

/* Attention layers with the same KV heads, dims and window. */
struct kind {
    int32_t n_kv_head, head_dim, window;
    int32_t n;      /* number of layers */
    uint64_t layer; /* elements of a token's key in a layer */
    int32_t each;   /* layers per group */
};

static int
is_kind(const struct kind *k, const struct mdl_program *p, int32_t window)
{
    return k->n_kv_head == p->n_kv_head && k->head_dim == p->cfg.head_dim &&
        k->window == window;
}

/* Set of[] to the kind of each layer, -1: no attention. Returns the number of kinds;
 * stops at FDK_MAX_KV_GROUPS + 1. */
static int32_t
find_kinds(const struct mdl_program *p, struct kind *kind, int32_t of[MDL_MAX_LAYER])
{
    int32_t D = p->cfg.head_dim, n = 0;

    for (int32_t i = 0; i < MDL_MAX_LAYER; i++)
        of[i] = -1;
    for (int32_t i = 0; i < p->n_op; i++) {
        const struct mdl_op *op = &p->op[i];
        int32_t k = 0;

        if (op->kind != MDL_OP_ATTENTION || of[op->layer] >= 0)
            continue;
        while (k < n && !is_kind(&kind[k], p, op->window))
            k++;
        if (k == FDK_MAX_KV_GROUPS)
            return k + 1;
        if (k == n)
            kind[n++] = (struct kind){ .n_kv_head = p->n_kv_head,
                .head_dim = D,
                .window = op->window,
                .layer = (uint64_t)p->n_kv_head * (uint64_t)D };
        kind[k].n++;
        of[op->layer] = k;
    }
    return n;
}

/* Elements that a sequence of max_len tokens takes if a block has `block` elements per
 * token; 0: there would be too many groups, or a layer does not fit in a block. */
static uint64_t
cost(const struct kind *kind, int32_t n, uint64_t block, int32_t max_len)
{
    uint64_t sum = 0;
    int32_t groups = 0;

    for (int32_t k = 0; k < n; k++) {
        int32_t each = (int32_t)(block / kind[k].layer), window = kind[k].window, len, g;

        if (each == 0)
            return 0;
        len = window > 0 && window < max_len ? window : max_len;
        g = (kind[k].n + each - 1) / each;
        groups += g;
        sum += (uint64_t)g * block * (uint64_t)len;
    }
    return groups <= FDK_MAX_KV_GROUPS ? sum : 0;
}

/* Choose the block size and set kind[].each. There always is a valid size: with the
 * largest, each kind has one group. */
static void
choose_block(struct kind *kind, int32_t n, int32_t max_len)
{
    uint64_t best = 0, least = 0;

    for (int32_t k = 0; k < n; k++)
        for (int32_t m = 1; m <= kind[k].n; m++) {
            uint64_t block = (uint64_t)m * kind[k].layer;
            uint64_t c = cost(kind, n, block, max_len);

            if (c == 0 || (best > 0 && (c > least || (c == least && block <= best))))
                continue;
            best = block;
            least = c;
        }
    for (int32_t k = 0; k < n; k++) {
        int32_t each = (int32_t)(best / kind[k].layer);

        kind[k].each = each < kind[k].n ? each : kind[k].n;
    }
}

void
mdl_kv_layers(const struct mdl_program *p, int32_t group, char *ret, size_t ret_bytes)
{
    size_t n = 0;

    ret[0] = '\0';
    for (int32_t l = 0, end; l < p->cfg.n_layer; l = end + 1) {
        end = l;
        if (p->kv_at[l].group != group)
            continue;
        while (end + 1 < p->cfg.n_layer && p->kv_at[end + 1].group == group)
            end++;
        (void)snprintf(ret + n, ret_bytes - n, end > l ? "%s%d-%d" : "%s%d",
            n > 0 ? " " : "", l, end);
        n += strlen(ret + n);
    }
}

int
mdl_set_kv_groups(struct mdl_program *p)
{
    struct kind kind[FDK_MAX_KV_GROUPS];
    int32_t of[MDL_MAX_LAYER], open[FDK_MAX_KV_GROUPS];
    int32_t n = find_kinds(p, kind, of);

    if (n > FDK_MAX_KV_GROUPS)
        return -ENOTSUP;
    p->n_kv_group = 0;
    choose_block(kind, n, p->cfg.max_pos);
    for (int32_t k = 0; k < n; k++)
        open[k] = -1;
    for (int32_t l = 0; l < MDL_MAX_LAYER; l++) {
        const struct kind *k = &kind[of[l] >= 0 ? of[l] : 0];
        int32_t *g = &open[of[l] >= 0 ? of[l] : 0];

        if (of[l] < 0)
            continue;
        if (*g < 0 || p->kv_group[*g].n_layer == k->each) {
            *g = p->n_kv_group++;
            p->kv_group[*g] =
                (struct mdl_kv_group){ 0, k->n_kv_head, k->head_dim, k->window };
        }
        p->kv_at[l] = (struct mdl_kv_at){ *g, p->kv_group[*g].n_layer++ };
    }
    return 0;
}
