/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Mistral 7B: Llama's graph, in its first version with a window in every layer. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "MistralForCausalLM", NULL };

static const char *const harmless[] = {
    "model.layers.*.self_attn.rotary_emb.inv_freq",
    "model.rotary_emb.inv_freq",
    NULL,
};

const struct mdl_family mdl_mistral = {
    .name = "mistral",
    .architectures = architectures,
    .harmless = harmless,
    .default_tied = 0,
    .default_window = 4096, /* of MistralConfig in transformers */
    .default_windowed = 1,
    .build = mdl_build_dense,
};
