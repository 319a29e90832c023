/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Gemma 2: norms before and after both sublayers, soft caps, every other layer
 * with a window. */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>
#include <math.h>

static const char *const architectures[] = { "Gemma2ForCausalLM", NULL };

static const char *const fields[] = { "hidden_activation", "query_pre_attn_scalar",
    "attn_logit_softcapping", "final_logit_softcapping", NULL };

static const struct mdl_names names = {
    .pre_attention = "input_layernorm",
    .post_attention = "post_attention_layernorm",
    .pre_mlp = "pre_feedforward_layernorm",
    .post_mlp = "post_feedforward_layernorm",
};

static int
gemma2_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    struct mdl_json j = { json, "config.json", "", err, err_bytes };
    double scalar = 256, attention = 50, logits = 30;

    if (mdl_json_real(&j, "query_pre_attn_scalar", 0, 1e6, &scalar) != 0 ||
        mdl_json_real(&j, "attn_logit_softcapping", 0, 1e6, &attention) != 0 ||
        mdl_json_real(&j, "final_logit_softcapping", 0, 1e6, &logits) != 0)
        return -EINVAL;
    c->norm_offset = 1;
    c->embed_scale = (float)sqrt(c->hidden);
    c->attention_scale = (float)(1 / sqrt(scalar));
    /* null: no soft cap; an absent field: the default. */
    c->att_softcap = json_is_null(json_object_get(json, "attn_logit_softcapping"))
        ? 0
        : (float)attention;
    c->logit_softcap =
        json_is_null(json_object_get(json, "final_logit_softcapping")) ? 0 : (float)logits;
    return 0;
}

const struct mdl_family mdl_gemma2 = {
    .name = "gemma2",
    .architectures = architectures,
    .fields = fields,
    .names = &names,
    .act_field = "hidden_activation",
    .default_kv_head = 4,
    .default_tied = 1,
    .default_head_dim = 256,
    .default_window = 4096,
    .default_windowed = 1,
    .full_every = 2,
    .config = gemma2_config,
    .build = mdl_build_dense,
};
