/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Llama 2, 3, 3.1 and models with the same graph (Mistral without a window, published as
 * LlamaForCausalLM). */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "LlamaForCausalLM", NULL };

static const char *const fields[] = { "mlp_bias", NULL };

static int
llama_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    struct mdl_json j = { json, "config.json", "", err, err_bytes };

    return mdl_json_bool(&j, "mlp_bias", &c->mlp_bias);
}

const struct mdl_family mdl_llama = {
    .name = "llama",
    .architectures = architectures,
    .fields = fields,
    .default_tied = 0,
    .config = llama_config,
    .build = mdl_build_dense,
};
