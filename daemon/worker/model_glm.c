/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* GLM-4 of 2024: norms before both sublayers alone; neighbours of the first half of a head
 * are rotated. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "GlmForCausalLM", NULL };

static const struct mdl_names names = {
    .pre_attention = "input_layernorm",
    .pre_mlp = "post_attention_layernorm",
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
    .architectures = architectures,
    .names = &names,
    .default_bias = 1,
    .default_eps = 0.00000015625,
    .default_partial = 0.5,
    .default_head_dim = 128,
    .config = glm_config,
    .build = mdl_build_dense,
};
