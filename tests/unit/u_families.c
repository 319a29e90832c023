/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The program that each family's config.json gives. Numerical
 * results are checked by p_model. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/worker/model.h"

#define SHAPE \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2," \
    "\"hidden_size\":64,\"head_dim\":16,\"intermediate_size\":96,\"vocab_size\":256," \
    "\"max_position_embeddings\":512"
#define MODEL(type, more) "{\"model_type\":\"" type "\"," SHAPE more "}"

static int
parse(const char *json, struct mdl_config *c, char *err, size_t n)
{
    return mdl_config_parse(json, strlen(json), NULL, 0, c, err, n);
}

static struct mdl_program *
build(const char *json)
{
    struct mdl_program *p = NULL;
    struct mdl_config c;
    char err[512] = "";

    if (parse(json, &c, err, sizeof(err)) != 0 ||
        mdl_build(&c, 1, &p, err, sizeof(err)) != 0)
        fail_msg("%s: %s", json, err);
    return p;
}

static void
refused(const char *json, const char *line)
{
    struct mdl_config c;
    char err[512] = "";
    int rc = parse(json, &c, err, sizeof(err));

    if (rc != -EINVAL || strncmp(err, line, strlen(line)) != 0)
        fail_msg("%s: rc %d, '%s'; expected '%s'", json, rc, err, line);
}

/* The n-th operation of that kind, from 0, that a step with
 * outputs for all tokens runs. */
static const struct mdl_op *
op_of(const struct mdl_program *p, enum mdl_op_kind kind, int n)
{
    for (int32_t i = 0; i < p->n_op; i++)
        if (p->op[i].kind == kind && mdl_op_runs(&p->op[i], MDL_TAIL_TOKENS) && n-- == 0)
            return &p->op[i];
    return NULL;
}

static int
n_of(const struct mdl_program *p, enum mdl_op_kind kind)
{
    int n = 0;

    while (op_of(p, kind, n) != NULL)
        n++;
    return n;
}

static const char *
weight(const struct mdl_program *p, int32_t w)
{
    return w < 0 ? "" : p->w[w].name[0];
}

/* Checks the norms of layer 1, in order, and the final one: "PRE name", "POST name". */
static void
norms_are(const struct mdl_program *p, const char *const *want, int n)
{
    int first = 0;

    while (op_of(p, MDL_OP_RMSNORM, first)->layer < 1)
        first++;
    for (int i = 0; i <= n; i++) {
        const struct mdl_op *op =
            op_of(p, MDL_OP_RMSNORM, i < n ? first + i : n_of(p, MDL_OP_RMSNORM) - 1);
        char got[MDL_NAME + 8];

        snprintf(got, sizeof(got), "%s %s", op->norm == FDK_NORM_POST ? "POST" : "PRE",
            weight(p, op->w));
        assert_string_equal(got, i < n ? want[i] : "PRE model.norm.weight");
    }
}

#define L0 "model.layers.0."
#define L1 "model.layers.1."

static void
olmo2(void **state)
{
    /* The norm after a layer's MLP is in the next layer's program. */
    static const char *const norms[] = { "POST " L0 "post_feedforward_layernorm.weight",
        "POST " L1 "post_attention_layernorm.weight" };
    struct mdl_program *p = build(MODEL("olmo2", ""));
    const struct mdl_op *qkv = op_of(p, MDL_OP_QKV, 0),
                        *first = op_of(p, MDL_OP_RMSNORM, 0);

    (void)state;
    norms_are(p, norms, 2);
    assert_true(first->norm == FDK_NORM_POST && first->in2 == -1 && first->w == -1);
    assert_int_equal(first->out, op_of(p, MDL_OP_GEMM, 0)->in);
    assert_int_equal(p->cfg.qk_norm, MDL_QK_ALL);
    assert_int_equal(p->w[qkv->w].rows[0], 64);
    assert_int_equal(p->w[qkv->w2].rows[0], 32);
    mdl_free(p);
}

static void
olmo3(void **state)
{
    static const char *const norms[] = { "POST " L0 "post_feedforward_layernorm.weight",
        "POST " L1 "post_attention_layernorm.weight" };
    struct mdl_program *p = build(MODEL("olmo3",
        ",\"sliding_window\":64,\"rope_theta\":10000,"
        "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}"));
    const struct mdl_op *rope = op_of(p, MDL_OP_ROPE_TABLE, 0);
    const struct mdl_op *local = op_of(p, MDL_OP_ROPE_TABLE, 1);

    (void)state;
    norms_are(p, norms, 2);
    assert_int_equal(p->cfg.qk_norm, MDL_QK_ALL);
    /* Every fourth layer has full attention, and only its rotations are scaled. */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(op_of(p, MDL_OP_ATTENTION, i)->window, i == 3 ? 0 : 64);
        assert_int_equal(op_of(p, MDL_OP_QKV, i)->in2, (i == 3 ? rope : local)->out);
    }
    assert_true(p->inv_freq[0] == 0.125f && p->inv_freq[8] == 1);
    mdl_free(p);
    p = build(MODEL("olmo3", ""));
    assert_true(p->cfg.rope_theta == 500000 && p->cfg.rope_local_theta == 500000);
    mdl_free(p);
}

static void
granite(void **state)
{
    struct mdl_program *p = build(MODEL("granite",
        ",\"embedding_multiplier\":12,\"residual_multiplier\":0.22,"
        "\"attention_multiplier\":0.125,\"logits_scaling\":8,\"attention_bias\":true,"
        "\"mlp_bias\":true"));
    const struct mdl_op *cap = op_of(p, MDL_OP_SOFTCAP, 0);

    (void)state;
    assert_true(op_of(p, MDL_OP_EMBED, 0)->f == 12);
    assert_true(op_of(p, MDL_OP_ATTENTION, 3)->f == 0.125f);
    for (int i = 0; i < n_of(p, MDL_OP_RMSNORM); i++)
        assert_true(op_of(p, MDL_OP_RMSNORM, i)->scale == 0.22f);
    assert_true(cap->scale == 0.125f && cap->softcap == 0);
    assert_true(cap[-1].kind == MDL_OP_LOGITS && cap[1].kind == MDL_OP_SAMPLE);
    assert_true(cap->in == cap[-1].out && cap->out == cap->in && cap[1].in == cap->in);
    for (int i = 0; i < n_of(p, MDL_OP_GEMM); i++)
        assert_true(op_of(p, MDL_OP_GEMM, i)->bias >= 0);
    mdl_free(p);
    p = build(MODEL("granite", ""));
    assert_int_equal(n_of(p, MDL_OP_SOFTCAP), 0);
    mdl_free(p);
    refused(MODEL("granite", ",\"logits_scaling\":0"),
        "config.json: logits_scaling = 0 is not");
}

static void
smollm3(void **state)
{
    static const struct {
        const char *json;
        int none[4], window[4];
    } cases[] = {
        { MODEL("smollm3", ""), { 0, 0, 0, 1 }, { 0 } },
        { MODEL("smollm3",
              ",\"no_rope_layer_interval\":2,\"use_sliding_window\":true,"
              "\"sliding_window\":64"),
            { 0, 1, 0, 1 }, { 0, 64, 0, 64 } },
        { MODEL("smollm3", ",\"no_rope_layers\":[1,0,0,1]"), { 0, 1, 1, 0 }, { 0 } },
    };

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct mdl_program *p = build(cases[k].json);

        for (int i = 0; i < 4; i++) {
            assert_int_equal(op_of(p, MDL_OP_QKV, i)->in2 < 0, cases[k].none[i]);
            assert_int_equal(op_of(p, MDL_OP_ATTENTION, i)->window, cases[k].window[i]);
        }
        assert_true(p->cfg.rope_theta == 2e6 && p->cfg.tied);
        mdl_free(p);
    }
    refused(MODEL("smollm3", ",\"no_rope_layers\":[1,0]"), "config.json: no_rope_layers = ");
}

#define FACTORS(x) "[" x "," x "," x "," x "," x "," x "]"
static void
phi3(void **state)
{
    struct mdl_program *p = build(MODEL("phi3",
        ",\"original_max_position_embeddings\":128,\"partial_rotary_factor\":0.75,"
        "\"attention_bias\":true,\"rope_scaling\":{\"type\":\"su\",\"short_factor\":" FACTORS(
            "2") ",\"long_factor\":" FACTORS("4") "}"));
    const struct mdl_op *gemm = op_of(p, MDL_OP_GEMM, 0);
    struct fdk_rope_table_args a;
    int32_t each;

    (void)state;
    assert_string_equal(weight(p, gemm->w), L0 "self_attn.qkv_proj.weight");
    assert_true(p->w[gemm->w].n_part == 1 && gemm->N == 128 && gemm->bias == -1);
    assert_string_equal(weight(p, op_of(p, MDL_OP_GEMM, 2)->w),
        L0 "mlp.gate_up_proj.weight");
    assert_int_equal(p->rot, 12);
    mdl_rope_args(p, op_of(p, MDL_OP_ROPE_TABLE, 0), &a);
    assert_true(a.len == FDK_ROPE_LONG && a.long_from == 128 && a.rot == 12);
    assert_true(fabs(a.scale - sqrt(1 + log(4) / log(128))) < 1e-6);
    assert_true(p->inv_freq[0] == 0.5f && p->inv_freq[6] == 0.25f && p->n_freq == 12);
    assert_int_equal(mdl_rope_from(&p->cfg, &each), 128);
    assert_int_equal(each, 0);
    mdl_free(p);
    p = build(MODEL("phi3", ",\"sliding_window\":64"));
    assert_int_equal(op_of(p, MDL_OP_ATTENTION, 0)->window, 64);
    assert_int_equal(mdl_rope_from(&p->cfg, &each), 0);
    mdl_free(p);
    p = build(MODEL("phi3", ""));
    assert_int_equal(op_of(p, MDL_OP_ATTENTION, 0)->window, 0);
    mdl_free(p);
    refused(MODEL("phi3", ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1]}"),
        "config.json: rope_scaling.short_factor = [1] is not a list of 8 numbers above 0");
}

#define GEMMA_NORMS \
    { \
        "POST " L0 "post_feedforward_layernorm.weight", \
            "PRE " L1 "input_layernorm.weight", \
            "POST " L1 "post_attention_layernorm.weight", \
            "PRE " L1 "pre_feedforward_layernorm.weight" \
    }

static void
gemma2(void **state)
{
    static const char *const norms[] = GEMMA_NORMS;
    struct mdl_program *p = build(MODEL("gemma2",
        ",\"sliding_window\":64,"
        "\"query_pre_attn_scalar\":144"));
    const struct mdl_op *cap = op_of(p, MDL_OP_SOFTCAP, 0);

    (void)state;
    norms_are(p, norms, 4);
    assert_true(
        p->cfg.norm_offset == 1 && p->cfg.gate == FDK_GATE_GELU_TANH && p->cfg.tied);
    assert_true(op_of(p, MDL_OP_EMBED, 0)->f == 8);
    assert_true(cap->scale == 1 && cap->softcap == 30);
    for (int i = 0; i < 4; i++) {
        const struct mdl_op *att = op_of(p, MDL_OP_ATTENTION, i);

        assert_int_equal(att->window, i % 2 == 0 ? 64 : 0);
        assert_true(att->softcap == 50 && att->f == 1 / 12.0f);
    }
    mdl_free(p);
    p = build(MODEL("gemma2",
        ",\"attn_logit_softcapping\":null,"
        "\"final_logit_softcapping\":null"));
    assert_int_equal(n_of(p, MDL_OP_SOFTCAP), 0);
    assert_true(op_of(p, MDL_OP_ATTENTION, 0)->softcap == 0);
    mdl_free(p);
    refused(MODEL("gemma2", ",\"hidden_activation\":\"relu\""),
        "config.json: hidden_activation = \"relu\" is not supported; supported: silu, "
        "gelu_pytorch_tanh");
    refused(MODEL("gemma2", ",\"use_bidirectional_attention\":true"),
        "config.json: use_bidirectional_attention = true is not supported for model_type gemma2");
}

static void
gemma3(void **state)
{
    static const char *const norms[] = GEMMA_NORMS;
    static const char *const same[] = {
        MODEL("gemma3_text",
            ",\"sliding_window\":64,\"sliding_window_pattern\":2,"
            "\"rope_theta\":10000,\"rope_local_base_freq\":100,"
            "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}"),
        MODEL("gemma3_text",
            ",\"sliding_window\":64,\"layer_types\":[\"sliding_attention\","
            "\"full_attention\",\"sliding_attention\",\"full_attention\"],"
            "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,"
            "\"rope_theta\":10000},\"sliding_attention\":{\"rope_type\":\"default\","
            "\"rope_theta\":100}}"),
    };

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct mdl_program *p = build(same[k]);
        const struct mdl_op *rope = op_of(p, MDL_OP_ROPE_TABLE, 0);
        const struct mdl_op *local = op_of(p, MDL_OP_ROPE_TABLE, 1);

        norms_are(p, norms, 4);
        assert_int_equal(p->cfg.qk_norm, MDL_QK_HEAD);
        assert_true(op_of(p, MDL_OP_ATTENTION, 0)->f == 1 / 16.0f);
        assert_true(rope->freq == 0 && local->freq == 8 && p->n_freq == 16);
        assert_true(p->inv_freq[0] == 0.125f && p->inv_freq[8] == 1);
        assert_true(fabs(p->inv_freq[12] - 0.1) < 1e-6);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(op_of(p, MDL_OP_ATTENTION, i)->window, i % 2 == 0 ? 64 : 0);
            assert_int_equal(op_of(p, MDL_OP_QKV, i)->in2, (i % 2 == 0 ? local : rope)->out);
        }
        mdl_free(p);
    }
    refused(MODEL("gemma3_text", ",\"attn_logit_softcapping\":50"),
        "config.json: attn_logit_softcapping = 50 is not supported for model_type gemma3_text");
}

#define IMAGES(text, more) \
    "{\"model_type\":\"gemma3\",\"text_config\":{" text "}" more "}"

/* The text model of a multimodal model, with defaults for fields
 * missing in its config.json. */
static void
gemma3_images(void **state)
{
    static const char json[] = IMAGES(
        "\"model_type\":\"gemma3_text\",\"hidden_size\":64,\"intermediate_size\":96,"
        "\"num_hidden_layers\":7,\"head_dim\":16,\"sliding_window\":64,\"eos_token_id\":9,"
        "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}",
        ",\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"eos_token_id\":[1,106],"
        "\"_attn_implementation_autoset\":true,"
        "\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\":false,"
        "\"mm_tokens_per_image\":256,\"vision_config\":{\"hidden_size\":1152}");
    struct mdl_program *p = build(json);

    (void)state;
    assert_string_equal(p->cfg.family, "gemma3");
    assert_string_equal(p->cfg.architecture, "Gemma3ForConditionalGeneration");
    assert_true(p->cfg.vocab == 262208 && p->cfg.n_head == 8 && p->cfg.n_kv_head == 4);
    assert_true(p->cfg.max_pos == 131072 && p->cfg.hidden == 64 && p->cfg.norm_offset == 1);
    assert_true(p->cfg.n_eos == 2 && p->cfg.eos[1] == 106 && p->cfg.dtype == FDK_BF16);
    assert_int_equal(p->cfg.tied, 0);
    assert_true(p->cfg.rope_factor == 8 && p->cfg.rope_theta == 1000000);
    assert_string_equal(p->cfg.ignored,
        "_attn_implementation_autoset, mm_tokens_per_image, vision_config");
    for (int i = 0; i < 7; i++)
        assert_int_equal(op_of(p, MDL_OP_ATTENTION, i)->window, i == 5 ? 0 : 64);
    mdl_free(p);
    refused("{\"model_type\":\"gemma3\"," SHAPE "}", "config.json: text_config is missing");
    refused("{\"model_type\":\"gemma3\",\"text_config\":7}",
        "config.json: text_config = 7 is not an object");
    refused(IMAGES("\"model_type\":\"llama\"", ""),
        "config.json: text_config.model_type = \"llama\" is not the text model of this family");
    refused(IMAGES("\"hidden_size\":0", ""),
        "config.json: text_config.hidden_size = 0 is not in");
    refused(IMAGES(SHAPE, ",\"logits_scaling\":2"),
        "config.json: logits_scaling = 2 is not supported for model_type gemma3");
    refused(IMAGES(SHAPE ",\"attn_logit_softcapping\":50", ""),
        "config.json: text_config.attn_logit_softcapping = 50 is not supported");
    refused(IMAGES(SHAPE ",\"final_logit_softcapping\":30", ""),
        "config.json: text_config.final_logit_softcapping = 30 is not supported");
}

static void
glm(void **state)
{
    static const char *const norms[] = { "PRE " L1 "input_layernorm.weight",
        "PRE " L1 "post_attention_layernorm.weight" };
    struct mdl_program *p = build(MODEL("glm", ""));

    (void)state;
    norms_are(p, norms, 2);
    assert_true(p->rot == 8 && p->cfg.interleaved && p->cfg.norm_offset == 0);
    assert_true(
        op_of(p, MDL_OP_GEMM, 0)->bias >= 0 && op_of(p, MDL_OP_GEMM, 1)->bias == -1);
    mdl_free(p);
}

static void
glm4(void **state)
{
    static const char *const norms[] = { "POST " L0 "post_mlp_layernorm.weight",
        "PRE " L1 "input_layernorm.weight", "POST " L1 "post_self_attn_layernorm.weight",
        "PRE " L1 "post_attention_layernorm.weight" };
    struct mdl_program *p = build(MODEL("glm4", ""));

    (void)state;
    norms_are(p, norms, 4);
    assert_true(p->rot == 8 && p->cfg.interleaved && p->cfg.norm_offset == 0);
    assert_true(
        op_of(p, MDL_OP_GEMM, 0)->bias >= 0 && op_of(p, MDL_OP_GEMM, 1)->bias == -1);
    mdl_free(p);
    p = build(MODEL("glm4", ",\"attention_bias\":false,\"partial_rotary_factor\":1"));
    assert_true(p->rot == 16 && op_of(p, MDL_OP_GEMM, 0)->bias == -1);
    mdl_free(p);
}

/* Regression: a Llama with a partial_rotary_factor in its config.json rotated half of
 * each head and differed from transformers, where only Phi-3 and GLM read that field. */
static void
partial_factor(void **state)
{
    static const char *const whole[] = { MODEL("llama", ",\"partial_rotary_factor\":0.5"),
        MODEL("qwen3", ",\"rope_parameters\":{\"partial_rotary_factor\":0.2}"),
        MODEL("olmo3",
            ",\"rope_parameters\":{\"full_attention\":{\"partial_rotary_factor\":0.5},"
            "\"sliding_attention\":{\"partial_rotary_factor\":0.5}}") };
    struct mdl_program *p;

    (void)state;
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        p = build(whole[i]);
        assert_int_equal(p->rot, 16);
        mdl_free(p);
    }
    p = build(MODEL("phi3", ",\"partial_rotary_factor\":0.5"));
    assert_int_equal(p->rot, 8);
    mdl_free(p);
    refused(MODEL("glm", ",\"partial_rotary_factor\":0.2"),
        "config.json: partial_rotary_factor = 0.2 of head_dim = 16 is not an even number");
    refused(MODEL("llama",
                ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,"
                "\"partial_rotary_factor\":0.5}"),
        "config.json: partial_rotary_factor = 0.5 is not supported for model_type llama with "
        "rope_type linear");
}

#define HEADS(type, n, more) \
    "{\"model_type\":\"" type "\",\"num_hidden_layers\":2,\"num_attention_heads\":" n \
    ",\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":256," \
    "\"max_position_embeddings\":512" more "}"

static void
heads_are(const char *json, int32_t kv, int32_t dim)
{
    struct mdl_program *p = build(json);

    assert_int_equal(p->cfg.n_kv_head, kv);
    assert_int_equal(p->cfg.head_dim, dim);
    mdl_free(p);
}

/* Regression: without num_key_value_heads, weights of a GLM or Gemma did not have the
 * shape that fdd expected, though transformers loads them: their classes have their own
 * defaults. The same held for an ERNIE whose head_dim is null, and for a Mistral with
 * attention_bias, which Mistral does not have. */
static void
class_defaults(void **state)
{
    struct mdl_program *p;

    (void)state;
    heads_are(HEADS("llama", "8", ""), 8, 8);
    heads_are(HEADS("mistral", "16", ""), 8, 4);
    heads_are(HEADS("qwen2", "32", ""), 32, 2);
    heads_are(HEADS("gemma2", "8", ""), 4, 256);
    heads_are(HEADS("gemma3_text", "8", ""), 4, 256);
    heads_are(HEADS("smollm3", "8", ""), 4, 8);
    heads_are(HEADS("glm", "8", ""), 2, 128);
    heads_are(HEADS("glm4", "8", ""), 2, 128);
    heads_are(HEADS("ernie4_5", "8", ""), 2, 128);
    heads_are(HEADS("ernie4_5", "8", ",\"num_key_value_heads\":null"), 8, 128);
    heads_are(HEADS("ernie4_5", "8", ",\"head_dim\":null"), 2, 8);
    heads_are(HEADS("mistral", "4", ""), 4, 16);
    p = build(MODEL("mistral", ",\"attention_bias\":true"));
    assert_int_equal(op_of(p, MDL_OP_GEMM, 0)->bias, -1);
    mdl_free(p);
}

/* Regression: a Phi-3 without original_max_position_embeddings switched to the
 * long factors at another length than transformers, whose class has 4,096
 * whatever stands next to the type. */
static void
phi3_original(void **state)
{
    struct mdl_program *p = build(MODEL("phi3",
        ",\"rope_scaling\":{\"type\":\"longrope\",\"original_max_position_embeddings\":64,"
        "\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[2,2,2,2,2,2,2,2]}"));

    (void)state;
    assert_int_equal(p->cfg.rope_original_max_pos, 4096);
    mdl_free(p);
}

#define YARN "\"rope_type\":\"yarn\",\"factor\":4"

/* Regression: Gemma 3 and OLMo 3 have rotations for each kind of layer, and transformers
 * ignores other settings next to them. fdd took a rope_parameters without kinds, and the
 * original length of config.json itself, and gave other answers. */
static void
rope_kinds(void **state)
{
    struct mdl_program *p;

    (void)state;
    p = build(MODEL("olmo3",
        ",\"original_max_position_embeddings\":64,\"rope_parameters\":{\"full_attention\":{" YARN
        ",\"original_max_position_embeddings\":128}}"));
    assert_int_equal(p->cfg.rope_original_max_pos, 128);
    mdl_free(p);
    p = build(MODEL("gemma3_text",
        ",\"sliding_window\":64,\"rope_parameters\":{\"full_attention\":null,"
        "\"sliding_attention\":{\"rope_theta\":100}}"));
    assert_true(p->cfg.rope_theta == 1000000 && p->cfg.rope_local_theta == 100);
    mdl_free(p);
    refused(MODEL("gemma3_text", ",\"rope_parameters\":{" YARN "}"),
        "config.json: rope_parameters.rope_type = \"yarn\" is not in an object for a kind");
    refused(MODEL("olmo3",
                ",\"rope_parameters\":{\"full_attention\":{" YARN "}},"
                "\"rope_scaling\":{" YARN "}"),
        "config.json: rope_scaling = {\"rope_type\":\"yarn\",\"factor\":4} is there besides");
    refused(MODEL("olmo3", ",\"rope_scaling\":{" YARN ",\"truncate\":false}"),
        "config.json: rope_scaling.truncate = false is not supported");
}

static void
window_is(const char *json, int layer, int want)
{
    struct mdl_program *p = build(json);

    assert_int_equal(op_of(p, MDL_OP_ATTENTION, layer)->window, want);
    mdl_free(p);
}

/* Regression: Mistral, Phi-3, Gemma and OLMo 3 lost their windows with use_sliding_window
 * = false, or in their first layers with max_window_layers. transformers reads both only
 * for Qwen, and the first for SmolLM3. */
static void
window_fields(void **state)
{
#define FULL "\"full_attention\""
#define UNREAD \
    ",\"sliding_window\":64,\"use_sliding_window\":false,\"max_window_layers\":3"
    (void)state;
    window_is(MODEL("mistral", UNREAD), 0, 64);
    window_is(MODEL("phi3", UNREAD), 0, 64);
    window_is(MODEL("gemma2", UNREAD), 0, 64);
    window_is(MODEL("gemma3_text", UNREAD), 0, 64);
    window_is(MODEL("olmo3", UNREAD), 0, 64);
    window_is(MODEL("qwen2", UNREAD), 3, 0);
    window_is(MODEL("smollm3",
                  ",\"sliding_window\":64,\"use_sliding_window\":true,"
                  "\"no_rope_layer_interval\":1,\"max_window_layers\":3"),
        0, 64);
    window_is(MODEL("phi3", ",\"layer_types\":[" FULL "," FULL "," FULL "," FULL "]"), 0, 0);
    refused(MODEL("phi3",
                ",\"sliding_window\":64,\"layer_types\":[\"sliding_attention\","
                "\"full_attention\",\"sliding_attention\",\"full_attention\"]"),
        "config.json: layer_types = [\"sliding_attention\",\"full_attention\"");
#undef UNREAD
#undef FULL
}

/* Regression: a Gemma 3 or OLMo 3 whose sliding_window was not below
 * max_position_embeddings had the rotations of full attention in every layer. In
 * transformers the layer's kind decides. */
static void
window_of_whole_length(void **state)
{
    static const char *const same[] = {
        MODEL("gemma3_text", ",\"sliding_window_pattern\":4"),
        MODEL("gemma3_text", ",\"sliding_window\":512,\"sliding_window_pattern\":4"),
        MODEL("olmo3",
            ",\"sliding_window\":512,"
            "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}"),
    };

    (void)state;
    for (size_t k = 0; k < sizeof(same) / sizeof(same[0]); k++) {
        struct mdl_program *p = build(same[k]);
        const struct mdl_op *rope = op_of(p, MDL_OP_ROPE_TABLE, 0);
        const struct mdl_op *local = op_of(p, MDL_OP_ROPE_TABLE, 1);

        assert_true(local != NULL && p->cfg.window == 0);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(op_of(p, MDL_OP_ATTENTION, i)->window, 0);
            assert_int_equal(op_of(p, MDL_OP_QKV, i)->in2, (i == 3 ? rope : local)->out);
        }
        mdl_free(p);
    }
}

static void
ernie(void **state)
{
    struct mdl_program *p = build(MODEL("ernie4_5", ",\"use_bias\":true"));

    (void)state;
    assert_true(p->cfg.interleaved && p->rot == 16 && p->cfg.tied);
    for (int i = 0; i < n_of(p, MDL_OP_GEMM); i++)
        assert_true(op_of(p, MDL_OP_GEMM, i)->bias >= 0);
    mdl_free(p);
    p = build(MODEL("ernie4_5", ""));
    assert_true(op_of(p, MDL_OP_GEMM, 0)->bias == -1 && p->cfg.rope_theta == 500000);
    mdl_free(p);
}

/* Regression: the first checkpoints of ERNIE 4.5 were refused, since their config.json names
 * Baidu's class. */
static void
ernie_first(void **state)
{
    struct mdl_program *p =
        build(MODEL("ernie4_5", ",\"architectures\":[\"Ernie4_5_ForCausalLM\"]"));

    (void)state;
    assert_string_equal(p->cfg.family, "ernie4_5");
    mdl_free(p);
}

static void
yarn(void **state)
{
    struct mdl_program *p = build(MODEL("llama",
        ",\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
        "\"original_max_position_embeddings\":256}"));
    double low =
        trunc(16 * log(256 / (32 * 2 * 3.14159265358979323846)) / (2 * log(10000)));
    double high = ceil(16 * log(256 / (1 * 2 * 3.14159265358979323846)) / (2 * log(10000)));

    (void)state;
    assert_int_equal(p->cfg.max_pos, 1024);
    assert_true(fabs(p->rope_scale - (0.1 * log(4) + 1)) < 1e-6);
    for (int i = 0; i < 8; i++) {
        double f = pow(10000, -i / 8.0), ramp = (i - low) / (high - low);

        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        f = f / 4 * ramp + f * (1 - ramp);
        assert_true(fabs(p->inv_freq[i] - f) < 1e-6 * f);
    }
    mdl_free(p);
}

static void
dynamic(void **state)
{
    struct mdl_program *p =
        build(MODEL("llama", ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":3}"));
    struct fdk_rope_table_args a;
    int32_t each;

    (void)state;
    mdl_rope_args(p, op_of(p, MDL_OP_ROPE_TABLE, 0), &a);
    assert_true(a.len == FDK_ROPE_NTK && a.long_from == 512);
    assert_true(a.ntk_theta == 10000 && a.ntk_factor == 3 && p->cfg.max_pos == 3 * 512);
    assert_int_equal(mdl_rope_from(&p->cfg, &each), 512);
    assert_int_equal(each, 1);
    mdl_free(p);
}

/* Fields that would change the graph are refused; with a value that turns the feature off
 * they are listed among the fields without effect. */
static void
fields(void **state)
{
    static const char *const graph[] = { "\"final_logit_softcapping\":30",
        "\"residual_multiplier\":0.2", "\"num_local_experts\":8", "\"clip_qkv\":8.0",
        "\"use_qk_norm\":true", "\"no_rope_layers\":[1,0]", "\"logits_scaling\":2",
        "\"rope_local_base_freq\":1e4", "\"use_bias\":true" };
    char json[1024], line[128];
    struct mdl_config c;

    (void)state;
    for (size_t i = 0; i < sizeof(graph) / sizeof(graph[0]); i++) {
        snprintf(json, sizeof(json), MODEL("llama", ",%s"), graph[i]);
        snprintf(line, sizeof(line),
            "config.json: %.*s = ", (int)(strchr(graph[i] + 1, '"') - graph[i] - 1),
            graph[i] + 1);
        refused(json, line);
    }
    assert_int_equal(parse(MODEL("llama",
                               ",\"use_cache\":true,\"final_logit_softcapping\":null,"
                               "\"initializer_range\":0.02,\"num_experts\":0,"
                               "\"rms_norm_eps\":1e-5,\"attention_dropout\":0.1,"
                               "\"full_attn_mod\":1,\"activation\":\"swiglu\","
                               "\"transformers_version\":\"4.1\""),
                         &c, line, sizeof(line)),
        0);
    assert_string_equal(c.ignored,
        "use_cache, final_logit_softcapping, initializer_range, num_experts, "
        "attention_dropout, full_attn_mod, activation, transformers_version");
}

/* Regression: models saved by transformers 4.46 to 4.51 were refused, since config.json had
 * attributes of its class: "_attn_implementation_autoset = true is not supported". */
static void
fields_of_class(void **state)
{
    char line[128] = "";
    struct mdl_config c;

    (void)state;
    if (parse(MODEL("llama",
                  ",\"_attn_implementation_autoset\":true,\"_flash_attn_2_enabled\":true,"
                  "\"output_attentions\":true,\"use_flash_attention_2\":true"),
            &c, line, sizeof(line)) != 0)
        fail_msg("%s", line);
    assert_string_equal(c.ignored,
        "_attn_implementation_autoset, _flash_attn_2_enabled, output_attentions, "
        "use_flash_attention_2");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(olmo2),
        cmocka_unit_test(olmo3),
        cmocka_unit_test(glm),
        cmocka_unit_test(granite),
        cmocka_unit_test(smollm3),
        cmocka_unit_test(phi3),
        cmocka_unit_test(gemma2),
        cmocka_unit_test(gemma3),
        cmocka_unit_test(gemma3_images),
        cmocka_unit_test(glm4),
        cmocka_unit_test(partial_factor),
        cmocka_unit_test(class_defaults),
        cmocka_unit_test(phi3_original),
        cmocka_unit_test(rope_kinds),
        cmocka_unit_test(window_fields),
        cmocka_unit_test(window_of_whole_length),
        cmocka_unit_test(ernie),
        cmocka_unit_test(ernie_first),
        cmocka_unit_test(yarn),
        cmocka_unit_test(dynamic),
        cmocka_unit_test(fields),
        cmocka_unit_test(fields_of_class),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
