/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* GLM-4 of 2024: norms only before both sublayers; GLM-4 0414, dense: norms before and
 * after both. Both models rotate neighbouring elements in the first half of a head. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const glm_architectures[] = { "GlmForCausalLM", NULL };
static const char *const glm4_architectures[] = { "Glm4ForCausalLM", NULL };

static const struct mdl_names glm_names = {
    .pre_attention = "input_layernorm",
    .pre_mlp = "post_attention_layernorm",
    .gate_up = "mlp.gate_up_proj.weight",
};

static const struct mdl_names glm4_names = {
    .pre_attention = "input_layernorm",
    .post_attention = "post_self_attn_layernorm",
    .pre_mlp = "post_attention_layernorm",
    .post_mlp = "post_mlp_layernorm",
    .gate_up = "mlp.gate_up_proj.weight",
};

static int
glm_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    (void)json;
    (void)err;
    (void)err_bytes;
    c->o_bias = 0;
    c->interleaved = 1;
    return 0;
}

const struct mdl_family mdl_glm = {
    .name = "glm",
    .architectures = glm_architectures,
    .names = &glm_names,
    .default_bias = 1,
    .default_eps = 0.00000015625,
    .default_partial = 0.5,
    .default_head_dim = 128,
    .default_kv_head = 2,
    .config = glm_config,
    .build = mdl_build_dense,
};

const struct mdl_family mdl_glm4 = {
    .name = "glm4",
    .architectures = glm4_architectures,
    .names = &glm4_names,
    .default_bias = 1,
    .default_eps = 0.00000015625,
    .default_partial = 0.5,
    .default_head_dim = 128,
    .default_kv_head = 2,
    .config = glm_config,
    .build = mdl_build_dense,
};
