/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Granite 3, dense: Llama's graph with four multipliers. */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>

static const char *const architectures[] = { "GraniteForCausalLM", NULL };

static const char *const fields[] = { "embedding_multiplier", "residual_multiplier",
    "attention_multiplier", "logits_scaling", "mlp_bias", NULL };

static int
granite_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    struct mdl_json j = { json, "config.json", "", err, err_bytes };
    double embed = 1, residual = 1, attention = 1, logits = 1;

    if (mdl_json_real(&j, "embedding_multiplier", 0, 1e6, &embed) != 0 ||
        mdl_json_real(&j, "residual_multiplier", 0, 1e6, &residual) != 0 ||
        mdl_json_real(&j, "attention_multiplier", 0, 1e6, &attention) != 0 ||
        mdl_json_real(&j, "logits_scaling", 1e-6, 1e6, &logits) != 0)
        return -EINVAL;
    c->embed_scale = (float)embed;
    c->residual_scale = (float)residual;
    c->attention_scale = (float)attention;
    c->logit_scale = (float)(1 / logits);
    return mdl_json_bool(&j, "mlp_bias", &c->mlp_bias);
}

const struct mdl_family mdl_granite = {
    .name = "granite",
    .architectures = architectures,
    .fields = fields,
    .config = granite_config,
    .build = mdl_build_dense,
};
