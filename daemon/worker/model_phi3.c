/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Phi-3, Phi-3.5 and Phi-4: Llama's graph; one tensor holds q, k and v, another holds
 * gate and up. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "Phi3ForCausalLM", NULL };

static const struct mdl_names names = {
    .pre_attention = "input_layernorm",
    .pre_mlp = "post_attention_layernorm",
    .qkv = "self_attn.qkv_proj.weight",
    .gate_up = "mlp.gate_up_proj.weight",
};

const struct mdl_family mdl_phi3 = {
    .name = "phi3",
    .architectures = architectures,
    .names = &names,
    .default_eps = 1e-5,
    .default_original = 4096, /* as Phi3Config in transformers */
    .default_partial = 1,
    .rope_su = 1,
    .default_window = MDL_MAX_POS,
    .default_windowed = 1,
    .types_unread = 1,
    .bias_unread = 1, /* transformers does not read attention_bias */
    .build = mdl_build_dense,
};
