/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How a model is divided among the ranks of a tensor-parallel group. Query heads, KV
 * heads and rows of gate and up are divided evenly. If there are fewer KV heads than
 * ranks, each KV head is on kv_share consecutive ranks, which have its query heads. Of
 * these ranks kv_split divide the tokens of a block among them; or those of all copies of
 * the model do. The vocabulary is divided into ranges of vocab_rows rows, a multiple of
 * VOCAB_ALIGN, so the last ranks may have fewer tokens.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/worker/model_priv.h"
#include "kernels/collective.h"

#define VOCAB_ALIGN 8 /* rows of logits stay aligned for vector instructions */

/* Why a model cannot be split over n ranks. */
struct misfit {
    const char *field;
    int32_t value;
    const char *why;
};

static struct misfit
find_misfit(const struct mdl_config *c, int32_t n)
{
    const struct misfit fits = { NULL, 0, NULL };

    if (c->n_head % n != 0)
        return (struct misfit){ "num_attention_heads", c->n_head, "is not divisible" };
    if (c->n_kv_head % n != 0 && n % c->n_kv_head != 0)
        return (struct misfit){ "num_key_value_heads", c->n_kv_head,
            "is neither a multiple nor a divisor" };
    if (c->ffn % n != 0)
        return (struct misfit){ "intermediate_size", c->ffn, "is not divisible" };
    return fits;
}

/* Text of the numbers of ranks that can split the model, like "1, 2, 4 are possible". */
static void
list_possible(const struct mdl_config *c, char *s, size_t size)
{
    size_t len = 0;
    int many = 0;

    for (int32_t n = 1; n <= FDK_MAX_RANKS; n++) {
        if (find_misfit(c, n).field != NULL)
            continue;
        many = n > 1;
        (void)snprintf(s + len, size - len, n > 1 ? ", %d" : "%d", n);
        len += strlen(s + len);
    }
    (void)snprintf(s + len, size - len, many ? " are possible" : " is possible");
}

int32_t
mdl_kv_share(const struct mdl_config *c, int32_t n)
{
    int fits = n >= 1 && n <= FDK_MAX_RANKS && find_misfit(c, n).field == NULL;

    return fits && c->n_kv_head < n ? n / c->n_kv_head : 1;
}

/* Set and check kv_split and kv_copies: some ranks of each copy share the tokens of their
 * KV heads, or those of all copies do. */
static int
set_kv_split(struct mdl_program *p, const struct mdl_ranks *ranks, char *err,
    size_t err_bytes)
{
    int32_t all = p->kv_share * (p->n_copy > 1 ? p->n_copy : 1), split = ranks->kv_split;
    char possible[32] = "1";
    int many = 0, is_heads;

    p->kv_split = split == 0 ? p->kv_share : split;
    p->kv_copies = p->kv_split == all && all > p->kv_share ? p->n_copy : 1;
    is_heads = p->kv_copies > 1 || (p->kv_split >= 1 && p->kv_share % p->kv_split == 0);
    if (is_heads && ranks->block % p->kv_split == 0)
        return 0;
    for (int32_t n = 2; n <= all; n++) {
        if ((p->kv_share % n != 0 && n != all) || ranks->block % n != 0)
            continue;
        (void)snprintf(possible + strlen(possible), sizeof(possible) - strlen(possible),
            ", %d", n);
        many = 1;
    }
    if (is_heads)
        return mdl_fail(-EINVAL, err, err_bytes,
            "parallel.decode_context_parallel_size = %d: it does not divide kv.block_size = "
            "%d; %s %s possible",
            p->kv_split, ranks->block, possible, many ? "are" : "is");
    return mdl_fail(-EINVAL, err, err_bytes,
        "decode_context_parallel_size = %d: with num_key_value_heads %d and "
        "tensor_parallel_size = %d a KV head is on %d rank%s%s; %s %s possible",
        split, p->cfg.n_kv_head, p->n_rank, p->kv_share, p->kv_share > 1 ? "s" : "",
        p->n_copy > 1 ? " of each copy" : "", possible, many ? "are" : "is");
}

/* Can n ranks split the model? name: the parameter with value n, for messages. */
static int
check_fits(const struct mdl_config *c, const char *name, int32_t n, char *err,
    size_t err_bytes)
{
    struct misfit m;
    char possible[64];

    list_possible(c, possible, sizeof(possible));
    if (n < 1 || n > FDK_MAX_RANKS)
        return mdl_fail(-EINVAL, err, err_bytes, "%s = %d is not in 1..%d; %s", name, n,
            FDK_MAX_RANKS, possible);
    m = find_misfit(c, n);
    if (m.field != NULL)
        return mdl_fail(-EINVAL, err, err_bytes, "%s = %d: %s %d %s; %s", name, n,
            m.field, m.value, m.why, possible);
    return 0;
}

int
mdl_set_ranks(struct mdl_program *p, const struct mdl_ranks *ranks, char *err,
    size_t err_bytes)
{
    const struct mdl_config *c = &p->cfg;
    int32_t n_rank = ranks->n;
    int rc = check_fits(c, "tensor_parallel_size", n_rank, err, err_bytes);

    if (rc == 0)
        rc = check_fits(c, "reference_splits", ranks->n_split, err, err_bytes);
    if (rc != 0)
        return rc;
    p->n_rank = n_rank;
    p->n_split = ranks->n_split;
    p->n_head = c->n_head / n_rank;
    p->kv_share = c->n_kv_head < n_rank ? n_rank / c->n_kv_head : 1;
    p->n_kv_head = c->n_kv_head * p->kv_share / n_rank;
    p->ffn = c->ffn / n_rank;
    p->vocab_rows = (c->vocab - 1) / n_rank + 1;
    if (n_rank > 1)
        p->vocab_rows = (p->vocab_rows + VOCAB_ALIGN - 1) / VOCAB_ALIGN * VOCAB_ALIGN;
    return set_kv_split(p, ranks, err, err_bytes);
}
