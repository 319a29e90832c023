/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary embedding: its fields of config.json, and the frequencies computed from
 * them. The rules are those of modeling_rope_utils.py in transformers, with one
 * difference: if frequencies depend on the length of a sequence (dynamic, longrope),
 * they are those of the greatest length that it may reach, from its first token on
 * (struct fdk_rope_table_args).
 */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- config.json ---- */

static const struct {
    const char *name;
    enum mdl_rope kind;
} rope_types[] = {
    { "default", MDL_ROPE_DEFAULT },
    { "linear", MDL_ROPE_LINEAR },
    { "dynamic", MDL_ROPE_DYNAMIC },
    { "llama3", MDL_ROPE_LLAMA3 },
    { "yarn", MDL_ROPE_YARN },
    { "longrope", MDL_ROPE_LONGROPE },
};

const char *
mdl_rope_name(enum mdl_rope kind)
{
    for (size_t i = 0; i < sizeof(rope_types) / sizeof(rope_types[0]); i++)
        if (rope_types[i].kind == kind)
            return rope_types[i].name;
    return "?";
}

static int
read_type(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c)
{
    const char *type = "default";
    char known[128] = "is not supported; supported: ";

    if (mdl_json_str(j, "type", &type) != 0 || mdl_json_str(j, "rope_type", &type) != 0)
        return -EINVAL;
    /* Names in files that are older than the name longrope. */
    if (f->rope_su && (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0))
        type = "longrope";
    for (size_t i = 0; i < sizeof(rope_types) / sizeof(rope_types[0]); i++) {
        size_t n = strlen(known);

        if (strcmp(type, rope_types[i].name) == 0) {
            c->rope = rope_types[i].kind;
            return 0;
        }
        (void)snprintf(known + n, sizeof(known) - n, "%s%s", i > 0 ? ", " : "",
            rope_types[i].name);
    }
    return mdl_json_refuse(j, mdl_json_has(j, "rope_type") ? "rope_type" : "type", known);
}

/* Refuse unknown fields of the object: they may change the angles. */
static int
check_known(const struct mdl_json *j)
{
    static const char *const known[] = { "rope_theta", "partial_rotary_factor", "type",
        "rope_type", "factor", "low_freq_factor", "high_freq_factor",
        "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
        "mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor",
        "finetuned", NULL };
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)j->o, key, v) {
        int i = 0;

        while (known[i] != NULL && strcmp(known[i], key) != 0)
            i++;
        if (known[i] == NULL && !json_is_null(v))
            return mdl_json_refuse(j, key,
                "is not a field of a rope type that is supported");
    }
    return 0;
}

static int
read_factor(const struct mdl_json *j, struct mdl_config *c)
{
    int is_ratio = c->rope == MDL_ROPE_YARN || c->rope == MDL_ROPE_LONGROPE;

    if (is_ratio && !mdl_json_has(j, "factor"))
        c->rope_factor = (double)c->max_pos / c->rope_original_max_pos;
    else if (mdl_json_must_have(j, "factor") != 0)
        return -EINVAL;
    return mdl_json_real(j, "factor", 0, 1e6, &c->rope_factor);
}

static int
read_llama3(const struct mdl_json *j, struct mdl_config *c)
{
    if (mdl_json_must_have(j, "low_freq_factor") != 0 ||
        mdl_json_must_have(j, "high_freq_factor") != 0 ||
        mdl_json_real(j, "low_freq_factor", 0, 1e6, &c->rope_low_freq) != 0 ||
        mdl_json_real(j, "high_freq_factor", 0, 1e6, &c->rope_high_freq) != 0)
        return -EINVAL;
    if (c->rope_high_freq <= c->rope_low_freq)
        return mdl_json_refuse(j, "high_freq_factor", "is not above low_freq_factor");
    return 0;
}

static double
yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static int
read_yarn(const struct mdl_json *j, struct mdl_config *c)
{
    double mscale = 0, all = 0;

    c->rope_beta_fast = 32;
    c->rope_beta_slow = 1;
    c->rope_truncate = 1;
    if (mdl_json_real(j, "mscale", -1, 1e6, &mscale) != 0 ||
        mdl_json_real(j, "mscale_all_dim", -1, 1e6, &all) != 0 ||
        mdl_json_real(j, "beta_fast", 0, 1e6, &c->rope_beta_fast) != 0 ||
        mdl_json_real(j, "beta_slow", 0, 1e6, &c->rope_beta_slow) != 0 ||
        mdl_json_bool(j, "truncate", &c->rope_truncate) != 0)
        return -EINVAL;
    if (c->rope_theta <= 1)
        return mdl_json_refuse(j, "rope_theta", "is not above 1, as yarn needs it");
    c->rope_attention = mscale != 0 && all != 0
        ? yarn_mscale(c->rope_factor, mscale) / yarn_mscale(c->rope_factor, all)
        : yarn_mscale(c->rope_factor, 1);
    return mdl_json_real(j, "attention_factor", 0, 1e6, &c->rope_attention);
}

static int
read_factors(const struct mdl_json *j, const char *key, int32_t n, float *ret)
{
    const json_t *v = mdl_json_field(j, key);
    char why[64];

    snprintf(why, sizeof(why), "is not a list of %d numbers above 0", n);
    if (!json_is_array(v) || json_array_size(v) != (size_t)n)
        return mdl_json_refuse(j, key, why);
    for (int32_t i = 0; i < n; i++) {
        ret[i] = (float)json_number_value(json_array_get(v, (size_t)i));
        if (!(ret[i] > 0) || !isfinite(ret[i]))
            return mdl_json_refuse(j, key, why);
    }
    return 0;
}

static int
read_longrope(const struct mdl_json *j, struct mdl_config *c)
{
    if (read_factors(j, "short_factor", c->rot / 2, c->rope_short) != 0 ||
        read_factors(j, "long_factor", c->rot / 2, c->rope_long) != 0)
        return -EINVAL;
    if (c->rope_factor > 1 && c->rope_original_max_pos > 1)
        c->rope_attention =
            sqrt(1 + log(c->rope_factor) / log((double)c->rope_original_max_pos));
    return mdl_json_real(j, "attention_factor", 0, 1e6, &c->rope_attention);
}

/* Read the fields that the object's type needs; top: the fields of config.json itself. */
static int
read_scaling(const struct mdl_json *top, const struct mdl_json *j,
    const struct mdl_family *f, struct mdl_config *c)
{
    const char *original = "original_max_position_embeddings";
    double longest = c->max_pos;

    if (c->rope == MDL_ROPE_DEFAULT)
        return 0;
    if (mdl_json_i32(j, original, 1, MDL_MAX_POS, &c->rope_original_max_pos) != 0)
        return -EINVAL;
    if (f->default_original > 0)
        c->rope_original_max_pos = f->default_original;
    /* transformers does not use the top-level field for objects per kind of layer */
    if (f->default_local_theta == 0 &&
        mdl_json_i32(top, original, 1, MDL_MAX_POS, &c->rope_original_max_pos) != 0)
        return -EINVAL;
    if (c->rope == MDL_ROPE_DYNAMIC)
        c->rope_original_max_pos = c->max_pos;
    if (read_factor(j, c) != 0)
        return -EINVAL;
    if (c->rope == MDL_ROPE_DYNAMIC && (c->rope_factor < 1 || c->rot <= 2))
        return mdl_json_refuse(j, "factor",
            "is below 1, or only two numbers of a head are rotated");
    if (c->rope == MDL_ROPE_DYNAMIC || c->rope == MDL_ROPE_YARN)
        longest = fmin(c->rope_factor * c->rope_original_max_pos, MDL_MAX_POS);
    if (longest > c->max_pos)
        c->max_pos = (int32_t)longest;
    if (c->rope == MDL_ROPE_YARN && f->default_local_theta > 0 &&
        json_is_false(json_object_get(j->o, "truncate")))
        return mdl_json_refuse(j, "truncate",
            "is not supported for a model with rotations for kinds of layers");
    return c->rope == MDL_ROPE_LLAMA3 ? read_llama3(j, c)
        : c->rope == MDL_ROPE_YARN    ? read_yarn(j, c)
        : c->rope == MDL_ROPE_LONGROPE
        ? read_longrope(j, c)
        : 0;
}

/* Read theta and the rotated share from config.json, or from an object in it. */
static int
read_basics(const struct mdl_json *j, double *theta, double *partial)
{
    return mdl_json_real(j, "rope_theta", 0, MDL_MAX_REAL, theta) != 0 ||
            mdl_json_real(j, "partial_rotary_factor", 0, 1, partial) != 0
        ? -EINVAL
        : 0;
}

/* Make *ret the object in field key of j's object. */
static int
open_object(const struct mdl_json *j, const char *key, const char *prefix,
    struct mdl_json *ret)
{
    *ret = *j;
    ret->o = mdl_json_field(j, key);
    ret->prefix = prefix;
    return json_is_object(ret->o) ? 0 : mdl_json_refuse(j, key, "is not an object");
}

/* Read the theta of layers with a window. */
static int
read_local(const struct mdl_json *top, const struct mdl_json *params, struct mdl_config *c)
{
    const char *type = "default";
    double partial = 1;
    struct mdl_json j;

    if (mdl_json_real(top, "rope_local_base_freq", 0, MDL_MAX_REAL,
            &c->rope_local_theta) != 0)
        return -EINVAL;
    if (params == NULL || !mdl_json_has(params, "sliding_attention"))
        return 0;
    if (open_object(params, "sliding_attention", "rope_parameters.sliding_attention.",
            &j) != 0 ||
        check_known(&j) != 0 || mdl_json_str(&j, "rope_type", &type) != 0 ||
        read_basics(&j, &c->rope_local_theta, &partial) != 0)
        return -EINVAL;
    return strcmp(type, "default") == 0
        ? 0
        : mdl_json_refuse(&j, "rope_type", "is not supported; supported: default");
}

/* rope_parameters has an object for each kind of layer; transformers reads no field next
 * to them. *ret: the object of layers without a window. Returns 1 if there is one, 0 if
 * not, or -EINVAL. */
static int
find_full(const struct mdl_json *params, struct mdl_json *ret)
{
    const char *key;
    json_t *v;

    if (mdl_json_has(params, "full_attention"))
        return open_object(params, "full_attention", "rope_parameters.full_attention.",
                   ret) != 0
            ? -EINVAL
            : 1;
    json_object_foreach((json_t *)(uintptr_t)params->o, key, v)
        if (!json_is_null(v) && strcmp(key, "sliding_attention") != 0)
            return mdl_json_refuse(params, key,
                "is not in an object for a kind of layers: full_attention, "
                "sliding_attention");
    return 0;
}

/* Find the object that holds the rope type: rope_scaling if it exists, else
 * rope_parameters, in which newer files keep rope_theta too, or its object for layers
 * without a window. Returns 1 if there is one, 0 if not, or -EINVAL. */
static int
find_object(const struct mdl_json *top, const struct mdl_family *f, struct mdl_config *c,
    struct mdl_json *ret)
{
    const json_t *o = mdl_json_field(top, "rope_scaling");
    int has_params = mdl_json_has(top, "rope_parameters"),
        kinds = f->default_local_theta > 0;
    struct mdl_json params;

    if (has_params && open_object(top, "rope_parameters", "rope_parameters.", &params) != 0)
        return -EINVAL;
    if (kinds && read_local(top, has_params ? &params : NULL, c) != 0)
        return -EINVAL;
    if (o != NULL && (!json_is_object(o) || json_object_size(o) > 0)) {
        if (kinds && has_params)
            return mdl_json_refuse(top, "rope_scaling", "is there besides rope_parameters");
        return open_object(top, "rope_scaling", "rope_scaling.", ret) != 0 ? -EINVAL : 1;
    }
    if (!has_params)
        return 0;
    if (kinds)
        return find_full(&params, ret);
    *ret = params;
    return 1;
}

/* Set c->rot. A family that does not read partial_rotary_factor rotates whole heads. If
 * such a file sets the factor together with a scaling type, transformers computes too few
 * frequencies for these heads, so it is refused. */
static int
read_rot(const struct mdl_json *j, const struct mdl_family *f, double partial,
    struct mdl_config *c)
{
    if (f->default_partial == 0 && partial != 1 && c->rope != MDL_ROPE_DEFAULT)
        return mdl_fail(-EINVAL, j->err, j->err_bytes,
            "%s: partial_rotary_factor = %g is not supported for model_type %s with "
            "rope_type %s",
            j->file, partial, f->name, mdl_rope_name(c->rope));
    c->rot = f->default_partial == 0 ? c->head_dim : (int32_t)(c->head_dim * partial);
    return c->rot >= 2 && c->rot % 2 == 0
        ? 0
        : mdl_fail(-EINVAL, j->err, j->err_bytes,
              "%s: partial_rotary_factor = %g of head_dim = %d is not an even number",
              j->file, partial, c->head_dim);
}

int
mdl_rope_read(const struct mdl_json *top, const struct mdl_family *f, struct mdl_config *c)
{
    double partial = f->default_partial > 0 ? f->default_partial : 1;
    struct mdl_json j = *top;
    int found;

    c->rope_theta = f->default_theta > 0 ? f->default_theta : 10000;
    c->rope_local_theta = f->default_local_theta;
    c->rope_factor = c->rope_attention = 1;
    c->rope_original_max_pos = c->max_pos;
    if (read_basics(top, &c->rope_theta, &partial) != 0)
        return -EINVAL;
    found = find_object(top, f, c, &j);
    if (found < 0 || (found > 0 && read_basics(&j, &c->rope_theta, &partial) != 0))
        return -EINVAL;
    if (found > 0 && (check_known(&j) != 0 || read_type(&j, f, c) != 0))
        return -EINVAL;
    if (read_rot(&j, f, partial, c) != 0)
        return -EINVAL;
    return found > 0 ? read_scaling(top, &j, f, c) : 0;
}

/* ---- frequencies ---- */

/* Computed in floats and in this order, as the reference does: at position 100,000 the
 * last bit of a frequency makes a thousandth of a radian. */
static float
freq_llama3(const struct mdl_config *c, float f)
{
    float factor = (float)c->rope_factor, len = 6.2831853071795864769f / f, s;

    if (len > (float)(c->rope_original_max_pos / c->rope_low_freq))
        return f / factor;
    if (len < (float)(c->rope_original_max_pos / c->rope_high_freq))
        return f;
    s = ((float)c->rope_original_max_pos / len - (float)c->rope_low_freq) /
        (float)(c->rope_high_freq - c->rope_low_freq);
    return (1 - s) * f / factor + s * f;
}

/* The (fractional) index whose angle makes that many turns within the original length. */
static double
yarn_index(const struct mdl_config *c, double turns)
{
    return c->rot * log(c->rope_original_max_pos / (turns * 2 * 3.14159265358979323846)) /
        (2 * log(c->rope_theta));
}

static float
freq_yarn(const struct mdl_config *c, int32_t i, float power)
{
    double low = yarn_index(c, c->rope_beta_fast), high = yarn_index(c, c->rope_beta_slow);
    float ramp, keep;

    if (c->rope_truncate) {
        low = trunc(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, c->rot - 1);
    if (low == high)
        high += 0.001;
    ramp = ((float)i - (float)low) / (float)(high - low);
    keep = 1 - fminf(fmaxf(ramp, 0), 1);
    return 1.0f / ((float)c->rope_factor * power) * (1 - keep) + 1.0f / power * keep;
}

/* Frequency of index i; table: 1: longrope's table for long sequences, else 0. */
static float
freq_of(const struct mdl_config *c, int table, int32_t i)
{
    float power = powf((float)c->rope_theta, (float)(2 * i) / (float)c->rot);

    switch (c->rope) {
    case MDL_ROPE_LINEAR:
        return 1.0f / power / (float)c->rope_factor;
    case MDL_ROPE_LLAMA3:
        return freq_llama3(c, 1.0f / power);
    case MDL_ROPE_YARN:
        return freq_yarn(c, i, power);
    case MDL_ROPE_LONGROPE:
        return 1.0f / ((table ? c->rope_long : c->rope_short)[i] * power);
    case MDL_ROPE_DEFAULT:
    case MDL_ROPE_DYNAMIC:
        break;
    }
    return 1.0f / power;
}

int
mdl_rope_freqs(struct mdl_program *p)
{
    const struct mdl_config *c = &p->cfg;
    int32_t n = c->rot / 2, tables = c->rope == MDL_ROPE_LONGROPE ? 2 : 1;
    int local = c->rope_local_theta > 0;

    p->rot = c->rot;
    p->rope_scale = (float)c->rope_attention;
    p->n_freq = (tables + local) * n;
    p->inv_freq = calloc((size_t)p->n_freq, sizeof(*p->inv_freq));
    if (p->inv_freq == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < tables * n; i++)
        p->inv_freq[i] = freq_of(c, i / n, i % n);
    for (int32_t i = 0; local && i < n; i++)
        p->inv_freq[tables * n + i] =
            1.0f / powf((float)c->rope_local_theta, (float)(2 * i) / (float)c->rot);
    for (int32_t i = 0; i < p->n_freq; i++)
        if (!isfinite(p->inv_freq[i]))
            return -EDOM;
    return isfinite(p->rope_scale) ? 0 : -EDOM;
}
