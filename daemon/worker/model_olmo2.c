/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* OLMo 2: norms only after attention and MLP; the norms of queries and keys go over
 * all heads. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "Olmo2ForCausalLM", NULL };

static const struct mdl_names names = {
    .post_attention = "post_attention_layernorm",
    .post_mlp = "post_feedforward_layernorm",
};

static int
olmo2_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    (void)json;
    (void)err;
    (void)err_bytes;
    c->qk_norm = MDL_QK_ALL;
    return 0;
}

const struct mdl_family mdl_olmo2 = {
    .name = "olmo2",
    .architectures = architectures,
    .names = &names,
    .default_eps = 1e-5,
    .config = olmo2_config,
    .build = mdl_build_dense,
};
