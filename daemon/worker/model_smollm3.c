/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* SmolLM3: Llama's graph; some layers have no rotary embedding. */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>

static const char *const architectures[] = { "SmolLM3ForCausalLM", NULL };

static const char *const fields[] = { "no_rope_layers", "no_rope_layer_interval",
    "mlp_bias", NULL };

/* In no_rope_layers 1 stands for a layer that has rotary embedding. */
static int
read_no_rope(const struct mdl_json *j, struct mdl_config *c)
{
    const json_t *v = mdl_json_field(j, "no_rope_layers");
    int32_t every = 4;

    if (mdl_json_i32(j, "no_rope_layer_interval", 1, INT32_MAX, &every) != 0)
        return -EINVAL;
    if (v != NULL && (!json_is_array(v) || json_array_size(v) < (size_t)c->n_layer))
        return mdl_json_refuse(j, "no_rope_layers", "is not a list of num_hidden_layers");
    for (int32_t i = 0; i < c->n_layer; i++) {
        const json_t *e = v != NULL ? json_array_get(v, (size_t)i) : NULL;

        if (e != NULL && !json_is_integer(e))
            return mdl_json_refuse(j, "no_rope_layers", "is not a list of 0 and 1");
        c->no_rope[i] = e != NULL ? json_integer_value(e) == 0 : (i + 1) % every == 0;
    }
    return 0;
}

static int
smollm3_config(const void *json, struct mdl_config *c, char *err, size_t err_bytes)
{
    struct mdl_json j = { json, "config.json", "", err, err_bytes };
    int some = 0;

    if (read_no_rope(&j, c) != 0 || mdl_json_bool(&j, "mlp_bias", &c->mlp_bias) != 0)
        return -EINVAL;
    /* Without layer_types, only layers without rotary embedding have windows. */
    for (int32_t i = 0; i < c->n_layer; i++) {
        if (!mdl_json_has(&j, "layer_types"))
            c->windowed[i] &= c->no_rope[i];
        some |= c->windowed[i];
    }
    c->window = some ? c->window : 0;
    return 0;
}

const struct mdl_family mdl_smollm3 = {
    .name = "smollm3",
    .architectures = architectures,
    .fields = fields,
    .default_kv_head = 4,
    .default_tied = 1,
    .default_theta = 2000000,
    .default_window = MDL_MAX_POS,
    .config = smollm3_config,
    .build = mdl_build_dense,
};
