/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Gemma 3, text: Gemma 2's graph without soft caps, with a norm over each query and key
 * head, and rotations of their own in layers with a window. */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>
#include <math.h>

static const char *const architectures[] = { "Gemma3ForCausalLM", NULL };

static const char *const fields[] = { "hidden_activation", "query_pre_attn_scalar",
    "final_logit_softcapping", "rope_local_base_freq", "sliding_window_pattern",
    "_sliding_window_pattern", NULL };

static const struct mdl_names names = {
    .pre_attention = "input_layernorm",
    .post_attention = "post_attention_layernorm",
    .pre_mlp = "pre_feedforward_layernorm",
    .post_mlp = "post_feedforward_layernorm",
};

static int
gemma3_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    struct mdl_json j = { json, "config.json", "", err, err_bytes };
    double scalar = 256, logits = 0;

    if (mdl_json_real(&j, "query_pre_attn_scalar", 0, 1e6, &scalar) != 0 ||
        mdl_json_real(&j, "final_logit_softcapping", 0, 1e6, &logits) != 0)
        return -EINVAL;
    c->qk_norm = MDL_QK_HEAD;
    c->norm_offset = 1;
    c->embed_scale = (float)sqrt(c->hidden);
    c->attention_scale = (float)(1 / sqrt(scalar));
    c->logit_softcap = (float)logits;
    return 0;
}

const struct mdl_family mdl_gemma3_text = {
    .name = "gemma3_text",
    .architectures = architectures,
    .fields = fields,
    .names = &names,
    .act_field = "hidden_activation",
    .default_tied = 1,
    .default_head_dim = 256,
    .default_theta = 1000000,
    .default_local_theta = 10000,
    .default_window = 4096,
    .default_windowed = 1,
    .full_every = 6,
    .config = gemma3_config,
    .build = mdl_build_dense,
};
