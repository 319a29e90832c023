/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* ERNIE 4.5, dense: Llama's graph; rotates neighbouring elements of a head. */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>

/* The second is Baidu's own class, for which the first checkpoints were published. */
static const char *const architectures[] = { "Ernie4_5ForCausalLM",
    "Ernie4_5_ForCausalLM", NULL };

static const char *const fields[] = { "use_bias", NULL };

/* Reads use_bias in place of attention_bias. */
static int
ernie4_5_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    struct mdl_json j = { json, "config.json", "", err, err_bytes };
    int bias = 0;

    if (mdl_json_bool(&j, "use_bias", &bias) != 0)
        return -EINVAL;
    c->interleaved = 1;
    c->qkv_bias = c->o_bias = c->mlp_bias = bias;
    return 0;
}

const struct mdl_family mdl_ernie4_5 = {
    .name = "ernie4_5",
    .architectures = architectures,
    .fields = fields,
    .default_kv_head = 2,
    .default_tied = 1,
    .default_eps = 1e-5,
    .default_theta = 500000,
    .default_head_dim = 128,
    .null_head_dim = 1,
    .config = ernie4_5_config,
    .build = mdl_build_dense,
};
