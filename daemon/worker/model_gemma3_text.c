/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Gemma 3: Gemma 2's graph without soft caps, with a norm over each query and key head,
 * and with other rope frequencies in layers with a window. Of multimodal models
 * (Gemma3ForConditionalGeneration), only the text model. */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>
#include <math.h>

static const char *const architectures[] = { "Gemma3ForCausalLM", NULL };
static const char *const image_architectures[] = { "Gemma3ForConditionalGeneration", NULL };

/* Tensors of the image encoder, named as before transformers 4.52 and since. */
static const char *const image_tensors[] = { "vision_tower.", "multi_modal_projector.",
    "model.vision_tower.", "model.multi_modal_projector.", NULL };

static const struct mdl_rename renames[] = { { "language_model.model.", "model." },
    { "language_model.lm_head.", "lm_head." }, { "model.language_model.", "model." },
    { NULL, NULL } };

/* Defaults of transformers' Gemma3TextConfig: text_config omits fields that equal
 * them. */
static const struct mdl_default text_defaults[] = { { "vocab_size", 262208 },
    { "hidden_size", 2304 }, { "intermediate_size", 9216 }, { "num_hidden_layers", 26 },
    { "num_attention_heads", 8 }, { "num_key_value_heads", 4 },
    { "max_position_embeddings", 131072 }, { NULL, 0 } };

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

/* transformers caps logits only in Gemma3ForCausalLM, not in the multimodal model. */
static int
gemma3_images_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    struct mdl_json j = { json, "config.json", "text_config.", err, err_bytes };

    if (gemma3_config(json, c, err, err_bytes) != 0)
        return -EINVAL;
    return c->logit_softcap == 0
        ? 0
        : mdl_json_refuse(&j, "final_logit_softcapping",
              "is not supported for model_type gemma3");
}

const struct mdl_family mdl_gemma3_text = {
    .name = "gemma3_text",
    .architectures = architectures,
    .fields = fields,
    .names = &names,
    .act_field = "hidden_activation",
    .default_tied = 1,
    .default_head_dim = 256,
    .default_kv_head = 4,
    .default_theta = 1000000,
    .default_local_theta = 10000,
    .default_window = 4096,
    .default_windowed = 1,
    .full_every = 6,
    .config = gemma3_config,
    .build = mdl_build_dense,
};

const struct mdl_family mdl_gemma3 = {
    .name = "gemma3",
    .architectures = image_architectures,
    .harmless = image_tensors,
    .nested = "text_config",
    .nested_type = "gemma3_text",
    .nested_defaults = text_defaults,
    .renames = renames,
    .fields = fields,
    .names = &names,
    .act_field = "hidden_activation",
    .default_tied = 1,
    .default_head_dim = 256,
    .default_kv_head = 4,
    .default_theta = 1000000,
    .default_local_theta = 10000,
    .default_window = 4096,
    .default_windowed = 1,
    .full_every = 6,
    .config = gemma3_images_config,
    .build = mdl_build_dense,
};
