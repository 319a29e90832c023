/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Qwen3, dense: Llama's graph with a norm over each query and key head. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "Qwen3ForCausalLM", NULL };

static int
qwen3_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    (void)json;
    (void)err;
    (void)err_bytes;
    c->qk_norm = MDL_QK_HEAD;
    return 0;
}

const struct mdl_family mdl_qwen3 = {
    .name = "qwen3",
    .architectures = architectures,
    .default_kv_head = 32,
    .default_tied = 0,
    /* as Qwen3Config in transformers */
    .default_head_dim = 128,
    .default_window = 4096,
    .default_windowed = 0,
    .default_full = 28,
    .config = qwen3_config,
    .build = mdl_build_dense,
};
