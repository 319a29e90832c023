/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/model.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_priv.h"
#include "daemon/common/sha256.h"

/* ---- sections of config.json ---- */

static int
read_family(const struct mdl_json *j, struct mdl_config *c, const struct mdl_family **ret)
{
    const struct mdl_family *f;
    const char *type = NULL;
    const json_t *list, *v;
    char known[256] = "";
    size_t i;

    if (mdl_json_must_have(j, "model_type") != 0 ||
        mdl_json_str(j, "model_type", &type) != 0)
        return -EINVAL;
    f = mdl_family(type);
    if (f == NULL) {
        for (i = 0; mdl_families[i] != NULL; i++)
            snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s",
                i == 0 ? "is not supported; supported: " : ", ", mdl_families[i]->name);
        return mdl_json_refuse(j, "model_type", known);
    }
    snprintf(c->family, sizeof(c->family), "%s", f->name);
    snprintf(c->architecture, sizeof(c->architecture), "%s", f->architectures[0]);
    *ret = f;
    list = json_object_get(j->o, "architectures");
    if (list == NULL || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return mdl_json_refuse(j, "architectures", "is not a list");
    json_array_foreach(list, i, v) {
        for (int k = 0; f->architectures[k] != NULL; k++)
            if (json_is_string(v) && strcmp(json_string_value(v), f->architectures[k]) == 0)
                return 0;
    }
    snprintf(known, sizeof(known), "is not supported; model_type %s is supported as %s",
        f->name, f->architectures[0]);
    return mdl_json_refuse(j, "architectures", known);
}

static int
read_shape(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c)
{
    static const char *const need[] = { "num_hidden_layers", "num_attention_heads",
        "hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings" };
    char why[96];

    for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++)
        if (mdl_json_must_have(j, need[i]) != 0)
            return -EINVAL;
    if (mdl_json_i32(j, "num_hidden_layers", 1, MDL_MAX_LAYER, &c->n_layer) != 0 ||
        mdl_json_i32(j, "num_attention_heads", 1, MDL_MAX_HEAD, &c->n_head) != 0 ||
        mdl_json_i32(j, "hidden_size", 1, MDL_MAX_HIDDEN, &c->hidden) != 0 ||
        mdl_json_i32(j, "intermediate_size", 1, MDL_MAX_FFN, &c->ffn) != 0 ||
        mdl_json_i32(j, "vocab_size", 1, MDL_MAX_VOCAB, &c->vocab) != 0 ||
        mdl_json_i32(j, "max_position_embeddings", 1, MDL_MAX_POS, &c->max_pos) != 0)
        return -EINVAL;
    c->n_kv_head = c->n_head;
    if (json_object_get(j->o, "num_key_value_heads") == NULL && f->default_kv_head > 0 &&
        c->n_head % f->default_kv_head == 0)
        c->n_kv_head = f->default_kv_head;
    if (mdl_json_i32(j, "num_key_value_heads", 1, c->n_head, &c->n_kv_head) != 0)
        return -EINVAL;
    if (c->n_head % c->n_kv_head != 0) {
        snprintf(why, sizeof(why), "does not divide num_attention_heads = %d", c->n_head);
        return mdl_json_refuse(j, "num_key_value_heads", why);
    }
    c->head_dim = f->null_head_dim && json_is_null(json_object_get(j->o, "head_dim"))
        ? 0
        : f->default_head_dim;
    if (!mdl_json_has(j, "head_dim") && c->head_dim == 0) {
        if (c->hidden % c->n_head != 0) {
            snprintf(why, sizeof(why), "is not a multiple of num_attention_heads = %d",
                c->n_head);
            return mdl_json_refuse(j, "hidden_size", why);
        }
        c->head_dim = c->hidden / c->n_head;
    }
    if (mdl_json_i32(j, "head_dim", 2, MDL_MAX_HEAD_DIM, &c->head_dim) != 0)
        return -EINVAL;
    if (c->head_dim < 2 || c->head_dim > MDL_MAX_HEAD_DIM || c->head_dim % 2 != 0)
        return mdl_fail(-EINVAL, j->err, j->err_bytes,
            "%s: head_dim = %d is not an even number in 2..%d", j->file, c->head_dim,
            MDL_MAX_HEAD_DIM);
    return 0;
}

static int
read_dtype(const struct mdl_json *j, struct mdl_config *c)
{
    static const struct {
        const char *name;
        enum fdk_dtype dtype;
    } table[] = { { "float32", FDK_F32 }, { "float", FDK_F32 }, { "float16", FDK_F16 },
        { "half", FDK_F16 }, { "bfloat16", FDK_BF16 } };
    const char *key = mdl_json_has(j, "dtype") ? "dtype" : "torch_dtype";
    const char *name = "float32";

    if (mdl_json_str(j, key, &name) != 0)
        return -EINVAL;
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(name, table[i].name) == 0) {
            c->dtype = table[i].dtype;
            return 0;
        }
    }
    return mdl_json_refuse(j, key,
        "is not supported; supported: float32, float16, bfloat16");
}

static int
read_eos(const struct mdl_json *j, struct mdl_config *c)
{
    const json_t *v = mdl_json_field(j, "eos_token_id");
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    char why[64];

    if (v == NULL)
        return 0;
    if (n > MDL_MAX_EOS) {
        snprintf(why, sizeof(why), "has %zu ids, the limit is %d", n, MDL_MAX_EOS);
        return mdl_json_refuse(j, "eos_token_id", why);
    }
    snprintf(why, sizeof(why), "is not an id, or a list of ids, in 0..%d", c->vocab - 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;

        if (!json_is_integer(e) || json_integer_value(e) < 0 ||
            json_integer_value(e) >= c->vocab)
            return mdl_json_refuse(j, "eos_token_id", why);
        c->eos[i] = (int32_t)json_integer_value(e);
    }
    c->n_eos = (int32_t)n;
    return 0;
}

/* Set c->windowed from layer_types, if there is that field. */
static int
read_layer_types(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c)
{
    const json_t *v = mdl_json_field(j, "layer_types");

    if (v == NULL)
        return 0;
    if (!json_is_array(v) || json_array_size(v) != (size_t)c->n_layer)
        return mdl_json_refuse(j, "layer_types", "is not a list of num_hidden_layers names");
    for (int32_t i = 0; i < c->n_layer; i++) {
        const json_t *e = json_array_get(v, (size_t)i);
        const char *name = json_is_string(e) ? json_string_value(e) : "";

        c->windowed[i] = f->default_window > 0 && strcmp(name, "sliding_attention") == 0;
        if (!c->windowed[i] && strcmp(name, "full_attention") != 0)
            return mdl_json_refuse(j, "layer_types",
                f->default_window > 0
                    ? "is not supported; supported: full_attention, sliding_attention"
                    : "is not supported; every layer has to be full_attention");
        if (c->windowed[i] && c->window == 0)
            return mdl_json_refuse(j, "layer_types",
                "has sliding_attention, but there is no sliding_window");
        if (f->types_unread && !c->windowed[i] && c->window > 0 && c->window < c->max_pos)
            return mdl_json_refuse(j, "layer_types",
                "has full_attention, but sliding_window holds for every layer");
    }
    return 0;
}

/* Set c->windowed and c->window: which layers have a window, and its number of keys. */
static int
read_windows(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c)
{
    int used = f->default_window == 0 || f->default_windowed, some = 0;
    int32_t full = f->default_full, every = f->full_every;

    if (!f->default_windowed && mdl_json_bool(j, "use_sliding_window", &used) != 0)
        return -EINVAL;
    if (f->default_window == 0 && used && mdl_json_has(j, "sliding_window"))
        return mdl_json_refuse(j, "sliding_window",
            "(sliding window attention) is not supported");
    if (f->default_window > 0 && used &&
        !json_is_null(json_object_get(j->o, "sliding_window")))
        c->window = f->default_window;
    if (c->window > 0 && mdl_json_i32(j, "sliding_window", 1, MDL_MAX_POS, &c->window) != 0)
        return -EINVAL;
    if (f->default_full > 0 &&
        mdl_json_i32(j, "max_window_layers", 0, INT32_MAX, &full) != 0)
        return -EINVAL;
    if (mdl_fields_reads(f, "sliding_window_pattern") &&
        mdl_json_i32(j, "sliding_window_pattern", 1, MDL_MAX_LAYER, &every) != 0)
        return -EINVAL;
    for (int32_t i = 0; i < c->n_layer; i++)
        c->windowed[i] = c->window > 0 && i >= full && (every == 0 || (i + 1) % every != 0);
    if (read_layer_types(j, f, c) != 0)
        return -EINVAL;
    for (int32_t i = 0; i < c->n_layer; i++) {
        /* rotations of their own stay even if the window has no effect */
        if (c->rope_local_theta == 0)
            c->windowed[i] &= c->window < c->max_pos;
        some |= c->windowed[i] && c->window < c->max_pos;
    }
    c->window = some ? c->window : 0;
    return 0;
}

static int
read_gate(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c)
{
    const char *key = f->act_field != NULL ? f->act_field : "hidden_act";
    const char *act = f->act_field != NULL ? "gelu_pytorch_tanh" : "silu";

    if (mdl_json_str(j, key, &act) != 0)
        return -EINVAL;
    c->gate = strcmp(act, "silu") == 0 ? FDK_GATE_SILU : FDK_GATE_GELU_TANH;
    return c->gate == FDK_GATE_SILU || strcmp(act, "gelu_pytorch_tanh") == 0
        ? 0
        : mdl_json_refuse(j, key, "is not supported; supported: silu, gelu_pytorch_tanh");
}

static int
read_fields(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c)
{
    double eps;

    if (read_shape(j, f, c) != 0 || mdl_rope_read(j, f, c) != 0 ||
        read_dtype(j, c) != 0 || read_eos(j, c) != 0 || mdl_quant_read(j, c) != 0 ||
        read_gate(j, f, c) != 0 || read_windows(j, f, c) != 0)
        return -EINVAL;
    eps = f->default_eps > 0 ? f->default_eps : 1e-6;
    c->bos = -1;
    c->tied = f->default_tied;
    c->qkv_bias = f->default_bias;
    c->embed_scale = c->residual_scale = c->logit_scale = 1;
    c->attention_scale = (float)(1.0 / sqrt(c->head_dim));
    if (mdl_json_real(j, "rms_norm_eps", 0, 1, &eps) != 0 ||
        mdl_json_i32(j, "bos_token_id", 0, c->vocab - 1, &c->bos) != 0 ||
        mdl_json_bool(j, "tie_word_embeddings", &c->tied) != 0 ||
        mdl_json_bool(j, "attention_bias", &c->qkv_bias) != 0)
        return -EINVAL;
    c->qkv_bias = f->bias_unread ? 0 : c->qkv_bias;
    c->o_bias = c->qkv_bias;
    c->norm_eps = (float)eps;
    if (!(c->norm_eps > 0))
        return mdl_json_refuse(j, "rms_norm_eps", "is 0 as a 32-bit float");
    if (f->config != NULL && f->config(j->o, c, j->err, j->err_bytes) != 0)
        return -EINVAL;
    return mdl_fields_check(j, f, c);
}

/* Fields next to the nested object that apply to the text model too, and override
 * its own. */
static const char *const of_both[] = { "eos_token_id", "bos_token_id", "torch_dtype",
    "dtype", "quantization_config", "compression_config", "tie_word_embeddings", NULL };

/* Make *ret the text model's fields, as in a config.json of its own. Returns 0, -ENOMEM
 * or -EINVAL: the object is absent or bad, or a field next to it would change results. */
static int
text_fields(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c,
    json_t **ret)
{
    const json_t *in = mdl_json_field(j, f->nested), *v;
    const char *type = f->nested_type;
    json_t *o;
    struct mdl_json text = *j;
    int rc = 0;

    if (mdl_json_must_have(j, f->nested) != 0)
        return -EINVAL;
    if (!json_is_object(in))
        return mdl_json_refuse(j, f->nested, "is not an object");
    text.o = in;
    text.prefix = "text_config.";
    if (mdl_json_str(&text, "model_type", &type) != 0)
        return -EINVAL;
    if (strcmp(type, f->nested_type) != 0)
        return mdl_json_refuse(&text, "model_type", "is not the text model of this family");
    if (mdl_fields_check_parent(j, f, of_both, c) != 0)
        return -EINVAL;
    o = json_copy((json_t *)(uintptr_t)in);
    for (size_t i = 0; of_both[i] != NULL && o != NULL; i++)
        if ((v = mdl_json_field(j, of_both[i])) != NULL)
            rc |= json_object_set(o, of_both[i], (json_t *)(uintptr_t)v);
    text.o = o;
    for (const struct mdl_default *d = f->nested_defaults; d->key != NULL && o != NULL; d++)
        if (!mdl_json_has(&text, d->key))
            rc |= json_object_set_new(o, d->key, json_integer(d->value));
    if (o == NULL || rc != 0) {
        json_decref(o);
        return mdl_fail(-ENOMEM, j->err, j->err_bytes, "no memory for %s", j->file);
    }
    *ret = o;
    return 0;
}

static int
read_config(const struct mdl_json *j, struct mdl_config *c)
{
    const struct mdl_family *f = NULL;
    struct mdl_json text = *j;
    json_t *o = NULL;
    int rc;

    if (read_family(j, c, &f) != 0)
        return -EINVAL;
    if (f->nested == NULL)
        return read_fields(j, f, c);
    rc = text_fields(j, f, c, &o);
    if (rc != 0)
        return rc;
    text.o = o;
    text.prefix = "text_config.";
    rc = read_fields(&text, f, c);
    json_decref(o);
    return rc;
}

/* Ranges are not checked here but where the values become defaults of requests. */
static int
read_sampling(const struct mdl_json *j, struct mdl_sampling *g)
{
    const struct {
        const char *key;
        double *v;
    } rows[] = { { "temperature", &g->temperature }, { "top_p", &g->top_p },
        { "top_k", &g->top_k }, { "min_p", &g->min_p },
        { "repetition_penalty", &g->repetition_penalty } };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (mdl_json_real(j, rows[i].key, -DBL_MAX, DBL_MAX, rows[i].v) != 0)
            return -EINVAL;
    return mdl_json_bool(j, "do_sample", &g->do_sample);
}

/* ---- entry points ---- */

static json_t *
parse(const char *text, size_t n, const char *file, char *err, size_t err_bytes)
{
    json_error_t e;
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    char shown[128];

    if (o == NULL) {
        mdl_printable(shown, sizeof(shown), e.text, strlen(e.text));
        mdl_fail(-EINVAL, err, err_bytes, "%s: not valid JSON: line %d, column %d: %s",
            file, e.line, e.column, shown);
        return NULL;
    }
    if (!json_is_object(o)) {
        mdl_fail(-EINVAL, err, err_bytes, "%s: not a JSON object", file);
        json_decref(o);
        return NULL;
    }
    return o;
}

int
mdl_config_parse(const char *json, size_t n, const char *gen, size_t gen_n,
    struct mdl_config *ret, char *err, size_t err_bytes)
{
    struct mdl_json j = { NULL, "config.json", "", err, err_bytes };
    struct mdl_config c;
    struct sha256 s;
    uint8_t sum[32];
    json_t *o;
    int rc;

    memset(&c, 0, sizeof(c));
    c.gen = (struct mdl_sampling){ 1, NAN, NAN, NAN, NAN, NAN };
    o = parse(json, n, j.file, err, err_bytes);
    if (o == NULL)
        return -EINVAL;
    j.o = o;
    rc = read_config(&j, &c);
    json_decref(o);
    if (rc != 0)
        return rc;
    if (gen != NULL) {
        j.file = "generation_config.json";
        o = parse(gen, gen_n, j.file, err, err_bytes);
        if (o == NULL)
            return -EINVAL;
        j.o = o;
        rc = read_eos(&j, &c);
        if (rc == 0)
            rc = mdl_json_i32(&j, "bos_token_id", 0, c.vocab - 1, &c.bos);
        if (rc == 0)
            rc = read_sampling(&j, &c.gen);
        json_decref(o);
        if (rc != 0)
            return rc;
    }
    sha256_init(&s);
    sha256_add(&s, json, n);
    sha256_end(&s, sum);
    memcpy(c.digest, sum, sizeof(c.digest));
    *ret = c;
    return 0;
}

int
mdl_config_read(const char *dir, struct mdl_config *ret, char *err, size_t err_bytes)
{
    char *json = NULL, *gen = NULL, line[512];
    size_t n = 0, gen_n = 0;
    int rc;

    rc = mdl_read_file(dir, "config.json", MDL_MAX_CONFIG_BYTES, &json, &n, err, err_bytes);
    if (rc != 0)
        return rc;
    rc = mdl_read_file(dir, "generation_config.json", MDL_MAX_CONFIG_BYTES, &gen, &gen_n,
        line, sizeof(line));
    if (rc != 0 && rc != -ENOENT) {
        mdl_fail(rc, err, err_bytes, "%s", line);
        goto out;
    }
    rc = mdl_config_parse(json, n, gen, gen_n, ret, line, sizeof(line));
    if (rc != 0)
        mdl_fail(rc, err, err_bytes, "%s/%s", dir, line);
out:
    free(json);
    free(gen);
    return rc;
}
