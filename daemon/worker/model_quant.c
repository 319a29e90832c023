/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads from config.json how a checkpoint's weights are quantized.
 * Supported are e4m3 weights with fp32 or 16-bit scales:
 *
 *   fp8                 weight_block_size [128, 128] (DeepSeek, Qwen3-FP8): a scale
 *                       per block; without it one per tensor
 *   fbgemm_fp8          a scale per row
 *   compressed-tensors  8-bit floats, strategy tensor, channel or block
 *
 * Which tensors are e4m3 follows from their own types. The checkpoint's scheme for
 * activations must be a known one, but is not applied: activations keep
 * their type, which is more precise.
 */
#include "config.h"

#include "daemon/worker/model.h"

#include <errno.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

/* An object of the configuration; prefix: the path of its fields, for messages. */
struct part {
    struct mdl_json j;
    char prefix[160];
};

static int
open_part(struct part *p, const struct mdl_json *of, const char *key)
{
    char shown[64];

    p->j = *of;
    p->j.o = json_object_get(of->o, key);
    (void)snprintf(p->prefix, sizeof(p->prefix), "%s%s.", of->prefix,
        mdl_printable(shown, sizeof(shown), key, strlen(key)));
    p->j.prefix = p->prefix;
    return json_is_object(p->j.o) ? 0 : mdl_json_refuse(of, key, "is not an object");
}

/* Returns 0 if the field is absent or its string is in the NULL-ended list, else
 * -EINVAL. */
static int
one_of(const struct mdl_json *j, const char *key, const char *const *list, const char *why)
{
    const char *s = NULL;

    if (mdl_json_str(j, key, &s) != 0)
        return -EINVAL;
    for (; s != NULL && *list != NULL; list++)
        if (strcmp(s, *list) == 0)
            return 0;
    return s == NULL ? 0 : mdl_json_refuse(j, key, why);
}

static int
is_block_128(const json_t *v)
{
    return json_is_array(v) && json_array_size(v) == 2 &&
        json_integer_value(json_array_get(v, 0)) == MDL_FP8_BLOCK &&
        json_integer_value(json_array_get(v, 1)) == MDL_FP8_BLOCK;
}

static int
read_fp8(const struct mdl_json *j, struct mdl_config *c)
{
    static const char *const schemes[] = { "dynamic", "static", NULL };
    static const char *const fmts[] = { "e4m3", "e4m3fn", "float8_e4m3fn", NULL };

    if (one_of(j, "activation_scheme", schemes,
            "is not supported; supported: dynamic, static (activations are not "
            "quantized in either)") != 0 ||
        one_of(j, "fmt", fmts, "is not supported; supported: e4m3") != 0)
        return -EINVAL;
    c->quant = MDL_QUANT_TENSOR;
    if (!mdl_json_has(j, "weight_block_size"))
        return 0;
    c->quant = MDL_QUANT_BLOCK;
    return is_block_128(json_object_get(j->o, "weight_block_size"))
        ? 0
        : mdl_json_refuse(j, "weight_block_size",
              "is not supported; supported: [128,128], or none for a scale per tensor");
}

/* ---- compressed-tensors ---- */

/* Check num_bits and type of a "quantization args" object. */
static int
check_float8(const struct mdl_json *j)
{
    static const char *const types[] = { "float", NULL };
    int32_t bits = 8;

    if (mdl_json_i32(j, "num_bits", 1, 64, &bits) != 0)
        return -EINVAL;
    if (bits != 8)
        return mdl_json_refuse(j, "num_bits", "is not supported; supported: 8");
    if (!mdl_json_has(j, "type"))
        return mdl_json_refuse(j, "type", "is not supported; supported: float (e4m3)");
    return one_of(j, "type", types, "is not supported; supported: float (e4m3)");
}

static int
read_weights(const struct mdl_json *group, struct mdl_config *c)
{
    static const struct {
        const char *name;
        enum mdl_quant quant;
    } known[] = { { "tensor", MDL_QUANT_TENSOR }, { "channel", MDL_QUANT_CHANNEL },
        { "block", MDL_QUANT_BLOCK } };
    enum mdl_quant quant = MDL_QUANT_NONE;
    const char *strategy = "tensor";
    int symmetric = 1, dynamic = 0;
    struct part w;

    if (open_part(&w, group, "weights") != 0 || check_float8(&w.j) != 0 ||
        mdl_json_bool(&w.j, "symmetric", &symmetric) != 0 ||
        mdl_json_bool(&w.j, "dynamic", &dynamic) != 0 ||
        mdl_json_str(&w.j, "strategy", &strategy) != 0)
        return -EINVAL;
    if (!symmetric)
        return mdl_json_refuse(&w.j, "symmetric", "is not supported; supported: true");
    if (dynamic)
        return mdl_json_refuse(&w.j, "dynamic", "is not supported; supported: false");
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(strategy, known[i].name) == 0)
            quant = known[i].quant;
    if (quant == MDL_QUANT_NONE)
        return mdl_json_refuse(&w.j, "strategy",
            "is not supported; supported: tensor, channel, block");
    if (quant == MDL_QUANT_BLOCK && !is_block_128(json_object_get(w.j.o, "block_structure")))
        return mdl_json_refuse(&w.j, "block_structure",
            "is not supported; supported: [128,128]");
    if (c->quant != MDL_QUANT_NONE && c->quant != quant)
        return mdl_json_refuse(&w.j, "strategy",
            "differs from another group's; one strategy for all is supported");
    c->quant = quant;
    return 0;
}

static int
check_activations(const struct mdl_json *group)
{
    static const char *const strategies[] = { "tensor", "token", "group", "block", NULL };
    const char *strategy = "tensor";
    int dynamic = 0;
    struct part a;

    if (mdl_json_has(group, "output_activations"))
        return mdl_json_refuse(group, "output_activations",
            "is not supported; supported: null");
    if (!mdl_json_has(group, "input_activations"))
        return 0;
    if (open_part(&a, group, "input_activations") != 0 || check_float8(&a.j) != 0 ||
        mdl_json_bool(&a.j, "dynamic", &dynamic) != 0 ||
        one_of(&a.j, "strategy", strategies,
            "is not supported; supported: tensor, token, group, block") != 0 ||
        mdl_json_str(&a.j, "strategy", &strategy) != 0)
        return -EINVAL;
    if (!dynamic && strcmp(strategy, "tensor") != 0)
        return mdl_json_refuse(&a.j, "strategy",
            "with dynamic = false is not supported; supported: tensor");
    return 0;
}

static const char *const formats[] = { "float-quantized", "naive-quantized", NULL };
#define FORMATS "is not supported; supported: float-quantized, naive-quantized"

static int
read_group(const struct mdl_json *groups, const char *key, struct mdl_config *c)
{
    struct part g;

    if (open_part(&g, groups, key) != 0 ||
        one_of(&g.j, "format", formats, FORMATS) != 0 || read_weights(&g.j, c) != 0)
        return -EINVAL;
    return check_activations(&g.j);
}

/* Refuse what would change results and is not supported: rotations, sparsity, KV cache
 * types other than 8-bit floats. */
static int
check_rest(const struct mdl_json *j)
{
    static const char *const dense[] = { "dense", NULL };
    const json_t *t = json_object_get(j->o, "transform_config");
    struct part p;

    if (json_is_object(t) ? json_object_size(t) > 0 : mdl_json_has(j, "transform_config"))
        return mdl_json_refuse(j, "transform_config", "is not supported; supported: null");
    if (mdl_json_has(j, "sparsity_config") &&
        (open_part(&p, j, "sparsity_config") != 0 ||
            one_of(&p.j, "format", dense, "is not supported; supported: dense") != 0))
        return -EINVAL;
    if (mdl_json_has(j, "kv_cache_scheme") &&
        (open_part(&p, j, "kv_cache_scheme") != 0 || check_float8(&p.j) != 0))
        return -EINVAL;
    return 0;
}

static int
read_compressed(const struct mdl_json *j, struct mdl_config *c)
{
    struct part groups;
    const char *key;
    json_t *v;

    if (one_of(j, "format", formats, FORMATS) != 0 || check_rest(j) != 0 ||
        open_part(&groups, j, "config_groups") != 0)
        return -EINVAL;
    json_object_foreach((json_t *)(uintptr_t)groups.j.o, key, v) {
        if (read_group(&groups.j, key, c) != 0)
            return -EINVAL;
    }
    return c->quant != MDL_QUANT_NONE
        ? 0
        : mdl_json_refuse(j, "config_groups", "has no group");
}

/* ---- the method ---- */

static int
refuse_method(const struct mdl_json *j, const char *key)
{
    static const char *const name[] = { "quant_method", "quantization", "quant_type" };
    const json_t *v = json_object_get(j->o, key), *m = NULL;
    char shown[48];

    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]) && !json_is_string(m); i++)
        m = json_object_get(v, name[i]);
    if (json_is_string(m))
        mdl_printable(shown, sizeof(shown), json_string_value(m), json_string_length(m));
    return mdl_fail(-EINVAL, j->err, j->err_bytes,
        "%s: %s (method %s): not supported; of checkpoints that are quantized already "
        "those of fp8, fbgemm_fp8 and compressed-tensors with 8-bit floats are, or take "
        "the model's F32, F16 or BF16 files and set quant.weights to quantize them while "
        "loading",
        j->file, key, json_is_string(m) ? shown : "unknown");
}

int
mdl_quant_read(const struct mdl_json *j, struct mdl_config *c)
{
    const char *key = mdl_json_has(j, "quantization_config")
        ? "quantization_config"
        : "compression_config";
    const char *method;
    struct part p;

    c->quant = MDL_QUANT_NONE;
    if (!mdl_json_has(j, key))
        return 0;
    if (open_part(&p, j, key) != 0)
        return -EINVAL;
    method = json_string_value(json_object_get(p.j.o, "quant_method"));
    if (method != NULL && strcmp(method, "fp8") == 0)
        return read_fp8(&p.j, c);
    if (method != NULL && strcmp(method, "compressed-tensors") == 0)
        return read_compressed(&p.j, c);
    if (method == NULL || strcmp(method, "fbgemm_fp8") != 0)
        return refuse_method(j, key);
    c->quant = MDL_QUANT_CHANNEL;
    return 0;
}

const char *
mdl_quant_name(enum mdl_quant q)
{
    return q == MDL_QUANT_BLOCK  ? "fp8, a scale per block of 128x128"
        : q == MDL_QUANT_TENSOR  ? "fp8, a scale per tensor"
        : q == MDL_QUANT_CHANNEL ? "fp8, a scale per row"
                                 : "none";
}
