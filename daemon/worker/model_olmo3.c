/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* OLMo 3: OLMo 2's graph; three of four layers have a window and unscaled
 * rope frequencies. */
#include "config.h"

#include "daemon/worker/model_priv.h"

static const char *const architectures[] = { "Olmo3ForCausalLM", NULL };

static const struct mdl_names names = {
    .post_attention = "post_attention_layernorm",
    .post_mlp = "post_feedforward_layernorm",
};

static int
olmo3_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    (void)json;
    (void)err;
    (void)err_bytes;
    c->qk_norm = MDL_QK_ALL;
    return 0;
}

const struct mdl_family mdl_olmo3 = {
    .name = "olmo3",
    .architectures = architectures,
    .names = &names,
    .default_eps = 1e-5,
    .default_theta = 500000,
    .default_local_theta = 500000,
    .default_window = 4096,
    .default_windowed = 1,
    .full_every = 4,
    .config = olmo3_config,
    .build = mdl_build_dense,
};
