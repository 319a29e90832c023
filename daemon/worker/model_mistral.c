/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Mistral 7B: Llama's graph, in its first version with a window in every layer. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "MistralForCausalLM", NULL };

/* transformers does not read attention_bias of this family. */
static int
mistral_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    (void)json;
    (void)err;
    (void)err_bytes;
    c->qkv_bias = c->o_bias = 0;
    return 0;
}

const struct mdl_family mdl_mistral = {
    .name = "mistral",
    .architectures = architectures,
    .default_kv_head = 8,
    .default_tied = 0,
    .default_window = 4096, /* of MistralConfig in transformers */
    .default_windowed = 1,
    .config = mistral_config,
    .build = mdl_build_dense,
};
