/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Mistral 7B: Llama's graph; its first version has a window in every layer. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "MistralForCausalLM", NULL };

const struct mdl_family mdl_mistral = {
    .name = "mistral",
    .architectures = architectures,
    .default_kv_head = 8,
    .default_tied = 0,
    .default_window = 4096, /* as MistralConfig in transformers */
    .default_windowed = 1,
    .bias_unread = 1, /* transformers does not read it */
    .build = mdl_build_dense,
};
