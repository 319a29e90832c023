/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Qwen2 and Qwen2.5, dense: Llama's graph with a bias on queries, keys and values. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "Qwen2ForCausalLM", NULL };

/* transformers does not read attention_bias for this family. */
static int
qwen2_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    (void)json;
    (void)err;
    (void)err_bytes;
    c->qkv_bias = 1;
    c->o_bias = 0;
    return 0;
}

const struct mdl_family mdl_qwen2 = {
    .name = "qwen2",
    .architectures = architectures,
    .default_kv_head = 32,
    .default_tied = 0,
    /* as Qwen2Config in transformers */
    .default_window = 4096,
    .default_windowed = 0,
    .default_full = 28,
    .config = qwen2_config,
    .build = mdl_build_dense,
};
