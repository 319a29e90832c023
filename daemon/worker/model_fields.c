/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of config.json that are not read. A field whose name suggests an operation or
 * attribute of the graph is refused unless its value means that there is none: ignoring
 * it would compute another model. All others are listed (mdl_config.ignored).
 */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>
#include <string.h>

/* Fields that are read for every family. */
static const char *const read_by_all[] = { "architectures", "model_type",
    "num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size",
    "vocab_size", "max_position_embeddings", "num_key_value_heads", "head_dim",
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
    "original_max_position_embeddings", "torch_dtype", "dtype", "eos_token_id",
    "bos_token_id", "quantization_config", "compression_config", "use_sliding_window",
    "sliding_window", "max_window_layers", "layer_types", "rms_norm_eps",
    "tie_word_embeddings", "attention_bias", NULL };

/* Fields that transformers reads for none of these families, even if their names contain
 * one of graph_words. */
static const char *const harmless[] = { "initializer_range", "norm_eps", "layer_norm_eps",
    "use_flash_attention", "use_flash_attention_2", "use_flash_attn", "flash_attn",
    "full_attn_mod", "output_attentions", "sliding_window_size", NULL };

/* Names of fields that describe the graph contain one of these. */
static const char *const graph_words[] = { "softcap", "multiplier", "scal", "expert",
    "moe", "alibi", "clip", "window", "rope", "rotary", "norm", "bias", "attn",
    "attention", "lora", "mup", "conv", "ssm", "mamba", "cross", "bidirectional", "chunk",
    "residual", "latent", "sink", NULL };

static int
is_one_of(const char *const *list, const char *key)
{
    for (; list != NULL && *list != NULL; list++)
        if (strcmp(*list, key) == 0)
            return 1;
    return 0;
}

int
mdl_fields_reads(const struct mdl_family *f, const char *key)
{
    return is_one_of(f->fields, key);
}

/* transformers also saves attributes of its own, as _attn_implementation_autoset. Their
 * names begin with '_', and none is a parameter of the graph. */
static int
names_graph(const char *key)
{
    if (key[0] == '_' || is_one_of(harmless, key) || strstr(key, "drop") != NULL)
        return 0;
    for (int i = 0; graph_words[i] != NULL; i++)
        if (strstr(key, graph_words[i]) != NULL)
            return 1;
    return 0;
}

/* Does the value mean that there is no such operation? Strings count as such values. */
static int
is_absence(const json_t *v)
{
    return json_is_string(v) || json_is_null(v) || json_is_false(v) ||
        (json_is_number(v) && json_number_value(v) == 0) ||
        (json_is_array(v) && json_array_size(v) == 0) ||
        (json_is_object(v) && json_object_size(v) == 0);
}

static void
list_ignored(struct mdl_config *c, const char *key)
{
    size_t n = strlen(c->ignored), left = sizeof(c->ignored) - n;
    char shown[48];

    mdl_printable(shown, sizeof(shown), key, strlen(key));
    if (strlen(shown) + 8 < left)
        (void)snprintf(c->ignored + n, left, "%s%s", n > 0 ? ", " : "", shown);
    else if (left > 5 && strcmp(c->ignored + n - 3, "...") != 0)
        (void)snprintf(c->ignored + n, left, ", ...");
}

static int
check_field(const struct mdl_json *j, const struct mdl_family *f, const char *key,
    const json_t *v, struct mdl_config *c)
{
    char why[96];

    if (names_graph(key) && !is_absence(v)) {
        snprintf(why, sizeof(why), "is not supported for model_type %s", f->name);
        return mdl_json_refuse(j, key, why);
    }
    list_ignored(c, key);
    return 0;
}

int
mdl_fields_check_parent(const struct mdl_json *j, const struct mdl_family *f,
    const char *const *taken, struct mdl_config *c)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)j->o, key, v) {
        if (strcmp(key, "architectures") == 0 || strcmp(key, "model_type") == 0 ||
            strcmp(key, f->nested) == 0 || is_one_of(taken, key))
            continue;
        if (check_field(j, f, key, v, c) != 0)
            return -EINVAL;
    }
    return 0;
}

int
mdl_fields_check(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)j->o, key, v) {
        if (is_one_of(read_by_all, key) || mdl_fields_reads(f, key) ||
            (f->act_field == NULL && strcmp(key, "hidden_act") == 0))
            continue;
        if (check_field(j, f, key, v, c) != 0)
            return -EINVAL;
    }
    return 0;
}
