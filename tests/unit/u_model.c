/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/worker/model.h"
#include "daemon/common/sha256.h"

/* Fields that a test may override: only the one line is in the text. */
#define SHAPE \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"hidden_size\":64," \
    "\"intermediate_size\":96,\"vocab_size\":256,\"max_position_embeddings\":512"
#define LLAMA(more)   "{\"model_type\":\"llama\"," SHAPE more "}"
#define MISTRAL(more) "{\"model_type\":\"mistral\"," SHAPE more "}"
#define QWEN2(more)   "{\"model_type\":\"qwen2\"," SHAPE more "}"
#define QWEN3(more)   "{\"model_type\":\"qwen3\"," SHAPE more "}"

static int
parse(const char *json, const char *gen, struct mdl_config *c, char *err, size_t n)
{
    return mdl_config_parse(json, strlen(json), gen, gen != NULL ? strlen(gen) : 0, c,
        err, n);
}

static struct mdl_config
accepted(const char *json, const char *gen)
{
    struct mdl_config c;
    char err[512] = "";

    if (parse(json, gen, &c, err, sizeof(err)) != 0)
        fail_msg("%s: %s", json, err);
    return c;
}

static void
refused(const char *json, const char *line)
{
    struct mdl_config c;
    char err[512] = "";
    int rc = parse(json, NULL, &c, err, sizeof(err));

    if (rc != -EINVAL || strncmp(err, line, strlen(line)) != 0 || strchr(err, '\n') != NULL)
        fail_msg("%s: rc %d, '%s'; expected '%s'", json, rc, err, line);
}

static void
defaults(void **state)
{
    struct mdl_config c = accepted(LLAMA(""), NULL);

    (void)state;
    assert_string_equal(c.family, "llama");
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_int_equal(c.n_kv_head, 4);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.tied, 0);
    assert_int_equal(c.qk_norm, 0);
    assert_int_equal(c.bos, -1);
    assert_int_equal(c.n_eos, 0);
    assert_int_equal(c.dtype, FDK_F32);
    assert_int_equal(c.rope, MDL_ROPE_DEFAULT);
    assert_true(c.rope_theta == 10000 && c.norm_eps == 1e-6f);
    c = accepted(QWEN3(""), NULL);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.qk_norm, 1);
    c = accepted(QWEN2(""), NULL);
    assert_string_equal(c.architecture, "Qwen2ForCausalLM");
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.tied + c.qk_norm + c.window, 0);
    c = accepted(LLAMA(",\"head_dim\":null,\"num_key_value_heads\":null,\"pretraining_"
                       "tp\":4,"
                       "\"sliding_window\":null,\"rope_scaling\":null,\"bos_token_id\":"
                       "null"),
        NULL);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.bos, -1);
}

/* Regression: a Qwen3 config.json without head_dim was refused if
 * hidden_size is no multiple of num_attention_heads or gives an unsupported
 * head size. The default is 128. */
static void
qwen3_head_dim(void **state)
{
    static const char *const shapes[] = { "\"num_attention_heads\":5,\"hidden_size\":64",
        "\"num_attention_heads\":64,\"hidden_size\":64",
        "\"num_attention_heads\":4,\"hidden_size\":4096",
        "\"num_attention_heads\":4,\"head_dim\":null,\"hidden_size\":62" };
    char json[512];

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct mdl_config c;

        snprintf(json, sizeof(json),
            "{\"model_type\":\"qwen3\",\"num_hidden_layers\":2,"
            "%s,\"intermediate_size\":96,\"vocab_size\":256,"
            "\"max_position_embeddings\":512}",
            shapes[i]);
        c = accepted(json, NULL);
        assert_int_equal(c.head_dim, 128);
    }
}

static void
values(void **state)
{
    struct mdl_config c = accepted(
        LLAMA(",\"num_key_value_heads\":2,\"head_dim\":32,"
              "\"tie_word_embeddings\":true,\"attention_bias\":true,\"mlp_bias\":true,"
              "\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\",\"bos_token_id\":1,"
              "\"hidden_act\":\"silu\",\"eos_token_id\":[2,7]"),
        NULL);

    (void)state;
    assert_int_equal(c.n_kv_head, 2);
    assert_int_equal(c.head_dim, 32);
    assert_int_equal(c.tied + c.qkv_bias + c.o_bias + c.mlp_bias, 4);
    assert_true(c.norm_eps == 1e-5f);
    assert_int_equal(c.dtype, FDK_BF16);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos[1], 7);
    c = accepted(LLAMA(",\"dtype\":\"float16\",\"eos_token_id\":5"), NULL);
    assert_int_equal(c.dtype, FDK_F16);
    assert_int_equal(c.eos[0], 5);
    /* generation_config.json has precedence; without its own,
     * those of config.json stay. */
    c = accepted(LLAMA(",\"eos_token_id\":5"), "{\"eos_token_id\":[6,7,8]}");
    assert_int_equal(c.n_eos, 3);
    assert_int_equal(c.eos[0], 6);
    c = accepted(LLAMA(",\"eos_token_id\":5"), "{\"temperature\":0.6}");
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 5);
    c = accepted(QWEN3(",\"use_sliding_window\":false,\"sliding_window\":4096,"
                       "\"max_window_layers\":2,\"layer_types\":[\"full_attention\","
                       "\"full_attention\"]"),
        NULL);
    assert_string_equal(c.family, "qwen3");
}

/* Checks the windows of layers 0 and 1; 0: none. */
static void
windows_are(const char *json, int first, int second)
{
    struct mdl_config c = accepted(json, NULL);
    int got[2] = { c.windowed[0] ? c.window : 0, c.windowed[1] ? c.window : 0 };

    if (got[0] != first || got[1] != second || (c.window > 0) != (first > 0 || second > 0))
        fail_msg("%s: %d, %d; expected %d, %d", json, got[0], got[1], first, second);
}

/* Windows as MistralConfig, Qwen2Config and Qwen3Config of transformers read them. A
 * window as long as the longest sequence counts as none. */
static void
windows(void **state)
{
#define LAYERS(a, b) ",\"layer_types\":[\"" a "_attention\",\"" b "_attention\"]"
    (void)state;
    windows_are(MISTRAL(""), 0, 0); /* 4096 of 512 positions */
    windows_are("{\"model_type\":\"mistral\",\"num_hidden_layers\":2,"
                "\"num_attention_heads\":4,\"hidden_size\":64,\"intermediate_size\":96,"
                "\"vocab_size\":256,\"max_position_embeddings\":32768}",
        4096, 4096);
    windows_are(MISTRAL(",\"sliding_window\":null"), 0, 0);
    windows_are(MISTRAL(",\"sliding_window\":16"), 16, 16);
    windows_are(MISTRAL(",\"sliding_window\":511"), 511, 511);
    windows_are(MISTRAL(",\"sliding_window\":512"), 0, 0);
    windows_are(QWEN3(",\"sliding_window\":64,\"max_window_layers\":0"), 0, 0);
    windows_are(QWEN3(",\"use_sliding_window\":true,\"sliding_window\":64"), 0, 0);
    windows_are(QWEN3(",\"use_sliding_window\":true,\"sliding_window\":64,"
                      "\"max_window_layers\":1"),
        0, 64);
    windows_are(QWEN3(",\"use_sliding_window\":true,\"sliding_window\":64,"
                      "\"max_window_layers\":0"),
        64, 64);
    windows_are(QWEN3(",\"use_sliding_window\":true,\"sliding_window\":64" LAYERS("sliding",
                    "full")),
        64, 0);
    windows_are(MISTRAL(",\"sliding_window\":16" LAYERS("full", "full")), 0, 0);
    windows_are(QWEN2(",\"use_sliding_window\":false,\"sliding_window\":64,"
                      "\"max_window_layers\":0"),
        0, 0);
    windows_are(QWEN2(",\"use_sliding_window\":true,\"sliding_window\":64"), 0, 0);
    windows_are(QWEN2(",\"use_sliding_window\":true,\"sliding_window\":64,"
                      "\"max_window_layers\":1"),
        0, 64);
    windows_are(QWEN2(",\"use_sliding_window\":true,\"sliding_window\":64" LAYERS("sliding",
                    "full")),
        64, 0);
#undef LAYERS
}

/* The attention of each layer has its window. */
static void
windows_in_the_program(void **state)
{
    struct mdl_config c =
        accepted(QWEN3(",\"use_sliding_window\":true,\"sliding_window\":64,"
                       "\"max_window_layers\":1"),
            NULL);
    struct mdl_program *p;
    char err[512];
    int n = 0;

    (void)state;
    assert_int_equal(mdl_build(&c, 1, &p, err, sizeof(err)), 0);
    for (int i = 0; i < p->n_op; i++) {
        double bytes, flops, more;

        if (p->op[i].kind != MDL_OP_ATTENTION)
            continue;
        assert_int_equal(p->op[i].window, p->op[i].layer == 1 ? 64 : 0);
        mdl_op_cost(p, &p->op[i], 1, 1, 64, 2, 2, 2, &bytes, &flops);
        mdl_op_cost(p, &p->op[i], 1, 1, 500, 2, 2, 2, &bytes, &more);
        assert_true(p->op[i].layer == 1 ? more == flops : more > flops);
        n++;
    }
    assert_true(n >= 2);
    mdl_free(p);
}

static void
rope_spellings(void **state)
{
    static const char *const same[] = {
        LLAMA(",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":5e5,"
              "\"factor\":8,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
              "\"original_max_position_embeddings\":64}"),
        LLAMA(",\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\","
              "\"factor\":8.0,"
              "\"low_freq_factor\":1,\"high_freq_factor\":4,"
              "\"original_max_position_embeddings\":64}"),
        LLAMA(",\"rope_theta\":500000.0,\"rope_scaling\":{\"type\":\"llama3\",\"factor\":"
              "8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0},"
              "\"original_max_position_embeddings\":64"),
    };
    struct mdl_config c;

    (void)state;
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        c = accepted(same[i], NULL);
        assert_int_equal(c.rope, MDL_ROPE_LLAMA3);
        assert_int_equal(c.rope_original_max_pos, 64);
        assert_true(c.rope_theta == 500000 && c.rope_factor == 8);
        assert_true(c.rope_low_freq == 1 && c.rope_high_freq == 4);
    }
    c = accepted(LLAMA(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}"), NULL);
    assert_int_equal(c.rope, MDL_ROPE_LINEAR);
    assert_true(c.rope_theta == 10000 && c.rope_factor == 2.5);
    c = accepted(LLAMA(",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":"
                       "1e6}"),
        NULL);
    assert_int_equal(c.rope, MDL_ROPE_DEFAULT);
    assert_true(c.rope_theta == 1e6);
}

/* ---- quantized checkpoints ---- */

#define QUANT(fields) LLAMA(",\"quantization_config\":{" fields "}")
#define CT(weights, rest) \
    QUANT("\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{" \
          "\"targets\":[\"Linear\"],\"weights\":{" weights "}" rest "}}")
#define F8 "\"num_bits\":8,\"type\":\"float\""

static void
quantized(void **state)
{
    static const struct {
        const char *json;
        enum mdl_quant quant;
    } ok[] = {
        { LLAMA(""), MDL_QUANT_NONE },
        /* as in Qwen3-FP8 and DeepSeek */
        { QUANT("\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\",\"quant_method\":"
                "\"fp8\",\"weight_block_size\":[128,128]"),
            MDL_QUANT_BLOCK },
        { QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":null,"
                "\"activation_scheme\":\"static\""),
            MDL_QUANT_TENSOR },
        { QUANT("\"quant_method\":\"fp8\""), MDL_QUANT_TENSOR },
        { QUANT("\"quant_method\":\"fbgemm_fp8\",\"activation_scale_ub\":1200.0"),
            MDL_QUANT_CHANNEL },
        { CT(F8, ""), MDL_QUANT_TENSOR },
        { CT(F8 ",\"strategy\":\"tensor\"",
              ",\"input_activations\":{" F8 ",\"strategy\":\"tensor\",\"dynamic\":false}"),
            MDL_QUANT_TENSOR },
        { CT(F8 ",\"strategy\":\"channel\",\"symmetric\":true,\"dynamic\":false",
              ",\"output_activations\":null,\"input_activations\":{" F8
              ",\"strategy\":\"token\",\"dynamic\":true}"),
            MDL_QUANT_CHANNEL },
        { CT(F8 ",\"strategy\":\"block\",\"block_structure\":[128,128]", ""),
            MDL_QUANT_BLOCK },
        { LLAMA(",\"compression_config\":{\"quant_method\":\"compressed-tensors\","
                "\"format\":\"float-quantized\",\"kv_cache_scheme\":{" F8 "},"
                "\"sparsity_config\":{\"format\":\"dense\"},\"transform_config\":{},"
                "\"config_groups\":{\"a\":{\"weights\":{" F8 "}},"
                "\"b\":{\"weights\":{" F8 "}}}}"),
            MDL_QUANT_TENSOR },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ok) / sizeof(ok[0]); i++)
        if (accepted(ok[i].json, NULL).quant != ok[i].quant)
            fail_msg("%s: not %d", ok[i].json, (int)ok[i].quant);
}

struct bad_quant {
    const char *json, *line; /* start of the error, after the common beginning */
};

static const struct bad_quant bad_top[] = {
    { QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":[64,128]"),
        "weight_block_size = [64,128] is not supported; supported: [128,128]" },
    { QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":[128]"),
        "weight_block_size = [128] is not" },
    { QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":128"),
        "weight_block_size = 128 is not" },
    { QUANT("\"quant_method\":\"fp8\",\"fmt\":\"e5m2\""),
        "fmt = \"e5m2\" is not supported; supported: e4m3" },
    { QUANT("\"quant_method\":\"fp8\",\"activation_scheme\":\"token\""),
        "activation_scheme = \"token\" is not supported; supported: dynamic, static" },
    { QUANT("\"quant_method\":\"fp8\",\"activation_scheme\":1"),
        "activation_scheme = 1 is not a string" },
    { QUANT("\"quant_method\":\"compressed-tensors\""),
        "config_groups = (absent) is not an object" },
    { QUANT("\"quant_method\":\"compressed-tensors\",\"config_groups\":{}"),
        "config_groups = {} has no group" },
    { QUANT("\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\""),
        "format = \"pack-quantized\" is not supported; supported: float-quantized" },
    { QUANT("\"quant_method\":\"compressed-tensors\",\"sparsity_config\":"
            "{\"format\":\"sparse-24-bitmask\"}"),
        "sparsity_config.format = \"sparse-24-bitmask\" is not supported" },
    { QUANT("\"quant_method\":\"compressed-tensors\",\"transform_config\":"
            "{\"config_groups\":{\"u\":1}}"),
        "transform_config = " },
    { QUANT("\"quant_method\":\"compressed-tensors\",\"kv_cache_scheme\":"
            "{\"num_bits\":4,\"type\":\"float\"}"),
        "kv_cache_scheme.num_bits = 4 is not" },
};

static const struct bad_quant bad_group[] = {
    { CT("\"num_bits\":8,\"type\":\"int\"", ""),
        "weights.type = \"int\" is not supported; supported: float" },
    { CT("\"num_bits\":8", ""), "weights.type = (absent) is not supported" },
    { CT("\"num_bits\":4,\"type\":\"float\"", ""),
        "weights.num_bits = 4 is not supported; supported: 8" },
    { CT(F8 ",\"strategy\":\"group\",\"group_size\":32", ""),
        "weights.strategy = \"group\" is not supported; supported: tensor, channel" },
    { CT(F8 ",\"strategy\":\"block\",\"block_structure\":[64,64]", ""),
        "weights.block_structure = [64,64] is not supported; supported: [128,128]" },
    { CT(F8 ",\"symmetric\":false", ""), "weights.symmetric = false is not" },
    { CT(F8 ",\"dynamic\":true", ""), "weights.dynamic = true is not" },
    { CT(F8, ",\"input_activations\":{" F8 ",\"strategy\":\"token\"}"),
        "input_activations.strategy = \"token\" with dynamic = false is not supported" },
    { CT(F8, ",\"input_activations\":{" F8 ",\"strategy\":\"x\"}"),
        "input_activations.strategy = \"x\" is not supported; supported: tensor," },
    { CT(F8, ",\"input_activations\":{\"num_bits\":8,\"type\":\"int\"}"),
        "input_activations.type = \"int\" is not supported" },
    { CT(F8, ",\"input_activations\":{" F8 ",\"dynamic\":\"local\"}"),
        "input_activations.dynamic = \"local\" is not true or false" },
    { CT(F8, ",\"output_activations\":{" F8 "}"), "output_activations = {" },
    { CT(F8, ",\"format\":\"int-quantized\""), "format = \"int-quantized\" is not" },
};

static void
quantized_refused(void **state)
{
    static const char group[] = "config.json: quantization_config.config_groups.group_0.";
    char line[512];

    (void)state;
    for (size_t i = 0; i < sizeof(bad_top) / sizeof(bad_top[0]); i++) {
        (void)snprintf(line, sizeof(line), "config.json: quantization_config.%s",
            bad_top[i].line);
        refused(bad_top[i].json, line);
    }
    for (size_t i = 0; i < sizeof(bad_group) / sizeof(bad_group[0]); i++) {
        (void)snprintf(line, sizeof(line), "%s%s", group, bad_group[i].line);
        refused(bad_group[i].json, line);
    }
    refused(CT(F8, "},\"group_1\":{"),
        "config.json: quantization_config.config_groups.group_1.weights = (absent) is not "
        "an object");
    refused(CT(F8, "},\"a\\nb\":{\"weights\":{" F8 ",\"strategy\":\"channel\"}"),
        "config.json: quantization_config.config_groups.a?b.weights.strategy = \"channel\" "
        "differs from another group's; one strategy for all is supported");
    refused(LLAMA(",\"quantization_config\":[]"),
        "config.json: quantization_config = [] is not an object");
}

static void
refusals(void **state)
{
    (void)state;
    refused("{", "config.json: not valid JSON: line 1");
    refused("[]", "config.json: not a JSON object");
    refused("{\"model_type\":\"llama\",\"model_type\":\"llama\"}",
        "config.json: not valid JSON");
    refused("{}", "config.json: model_type is missing");
    refused("{\"model_type\":7}", "config.json: model_type = 7 is not a string");
    refused("{\"model_type\":\"mamba\"}",
        "config.json: model_type = \"mamba\" is not supported; supported: ");
    refused(LLAMA(",\"architectures\":[\"LlamaForSequenceClassification\"]"),
        "config.json: architectures = [\"LlamaForSequenceClassification\"] is not "
        "supported");
    refused(QWEN2(",\"architectures\":[\"Qwen2ForSequenceClassification\"]"),
        "config.json: architectures = [\"Qwen2ForSequenceClassification\"] is not supported; "
        "model_type qwen2 is supported as Qwen2ForCausalLM");
    refused(QWEN2(",\"use_sliding_window\":true,\"sliding_window\":0"),
        "config.json: sliding_window = 0 is not in");
    refused("{\"model_type\":\"llama\"}", "config.json: num_hidden_layers is missing");
    refused(LLAMA(",\"num_key_value_heads\":3"),
        "config.json: num_key_value_heads = 3 does not divide num_attention_heads = 4");
    refused(LLAMA(",\"num_key_value_heads\":0"),
        "config.json: num_key_value_heads = 0 is not in 1..4");
    refused(LLAMA(",\"head_dim\":15"), "config.json: head_dim = 15 is not an even");
    refused(LLAMA(",\"head_dim\":514"), "config.json: head_dim = 514 is not in 2..512");
    refused(LLAMA(",\"head_dim\":\"16\""),
        "config.json: head_dim = \"16\" is not an integer");
    refused(LLAMA(",\"rms_norm_eps\":0"), "config.json: rms_norm_eps = 0 is not above 0");
    refused(LLAMA(",\"rms_norm_eps\":1e-60"), "config.json: rms_norm_eps = ");
    refused(LLAMA(",\"rms_norm_eps\":\"x\""),
        "config.json: rms_norm_eps = \"x\" is not a number");
    refused(LLAMA(",\"tie_word_embeddings\":1"),
        "config.json: tie_word_embeddings = 1 is not true or false");
    refused(LLAMA(",\"hidden_act\":\"gelu\""), "config.json: hidden_act = \"gelu\" is not");
    refused(LLAMA(",\"torch_dtype\":\"int8\""),
        "config.json: torch_dtype = \"int8\" is not");
    refused(LLAMA(",\"sliding_window\":4096"),
        "config.json: sliding_window = 4096 (sliding");
    refused(LLAMA(",\"layer_types\":[\"full_attention\",\"sliding_attention\"]"),
        "config.json: layer_types = ");
    refused(QWEN3(",\"layer_types\":[\"full_attention\",\"sliding_attention\"]"),
        "config.json: layer_types = ");
    refused(QWEN3(",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\","
                  "\"chunked_attention\"]"),
        "config.json: layer_types = ");
    refused(QWEN3(",\"use_sliding_window\":true,\"sliding_window\":0"),
        "config.json: sliding_window = 0 is not in");
    refused(LLAMA(",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}"),
        "config.json: quantization_config (method gptq): not supported; of checkpoints "
        "that are quantized already those of fp8, fbgemm_fp8 and compressed-tensors with "
        "8-bit floats are, or take the model's F32, F16 or BF16 files and set "
        "quant.weights");
    refused(LLAMA(",\"quantization_config\":{\"quantization\":\"wint4\"}"),
        "config.json: quantization_config (method wint4): ");
    refused(LLAMA(",\"quantization_config\":{}"),
        "config.json: quantization_config (method unknown): ");
    refused(LLAMA(",\"compression_config\":{\"quant_method\":\"a\\nb\"}"),
        "config.json: compression_config (method a?b): ");
    (void)accepted(LLAMA(",\"quantization_config\":null"), NULL);
    refused(LLAMA(",\"eos_token_id\":256"), "config.json: eos_token_id = 256 is not an id");
    refused(LLAMA(",\"eos_token_id\":[1,-1]"), "config.json: eos_token_id = [1,-1] is not");
    refused(LLAMA(",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]"), "config.json: eos_token_id = ");
    refused(LLAMA(",\"bos_token_id\":-1"),
        "config.json: bos_token_id = -1 is not in 0..255");
}

static void
refused_numbers(void **state)
{
    static const char *const key[] = { "num_hidden_layers", "num_attention_heads",
        "hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings" };
    static const int max[] = { MDL_MAX_LAYER, MDL_MAX_HEAD, MDL_MAX_HIDDEN, MDL_MAX_FFN,
        MDL_MAX_VOCAB, MDL_MAX_POS };
    static const char *const value[] = { "-3", "0", "99999999", "9223372036854775807",
        "1.5", "\"4\"", "true", "[]", "1e3" };
    char json[1024], line[256], err[512];
    struct mdl_config c;

    (void)state;
    for (size_t k = 0; k < 6; k++) {
        for (size_t v = 0; v < sizeof(value) / sizeof(value[0]); v++) {
            int n = snprintf(json, sizeof(json), "{\"model_type\":\"llama\"");

            for (size_t i = 0; i < 6; i++)
                n += snprintf(json + n, sizeof(json) - (size_t)n, ",\"%s\":%s", key[i],
                    i == k ? value[v] : "4");
            snprintf(json + n, sizeof(json) - (size_t)n, "}");
            assert_int_equal(parse(json, NULL, &c, err, sizeof(err)), -EINVAL);
            snprintf(line, sizeof(line), "config.json: %s = ", key[k]);
            assert_memory_equal(err, line, strlen(line));
            snprintf(line, sizeof(line), "config.json: %s = %s is not in 1..%d", key[k],
                value[v], max[k]);
            if (v < 4)
                assert_string_equal(err, line);
            else
                assert_non_null(strstr(err, "is not an integer"));
        }
    }
}

static void
refused_rope(void **state)
{
    (void)state;
    refused(LLAMA(",\"rope_theta\":0"), "config.json: rope_theta = 0 is not above 0");
    refused(LLAMA(",\"rope_theta\":1e300"), "config.json: rope_theta = ");
    refused(LLAMA(",\"rope_scaling\":{\"type\":\"mrope\",\"factor\":4}"),
        "config.json: rope_scaling.type = \"mrope\" is not supported; supported: "
        "default, linear, dynamic, llama3, yarn, longrope");
    refused(LLAMA(",\"rope_scaling\":{\"rope_type\":\"su\",\"factor\":4}"),
        "config.json: rope_scaling.rope_type = \"su\" is not supported");
    refused(LLAMA(",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":0.5}"),
        "config.json: rope_scaling.factor = 0.5 is below 1");
    refused(LLAMA(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4,\"mrope_section\":[1]}"),
        "config.json: rope_scaling.mrope_section = [1] is not a field of a rope type");
    refused(LLAMA(",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1]}"),
        "config.json: rope_scaling.short_factor = [1,1] is not a list of 8 numbers");
    refused(LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":0}"),
        "config.json: rope_scaling.beta_fast = 0 is not above 0");
    refused(LLAMA(",\"rope_scaling\":7"), "config.json: rope_scaling = 7 is not an object");
    refused(LLAMA(",\"rope_scaling\":{\"type\":\"linear\"}"),
        "config.json: rope_scaling.factor is missing");
    refused(LLAMA(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":-1}"),
        "config.json: rope_scaling.factor = -1 is not above 0");
    refused(LLAMA(",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,"
                  "\"low_freq_factor\":4,\"high_freq_factor\":4}"),
        "config.json: rope_parameters.high_freq_factor = 4 is not above low_freq_factor");
    refused(LLAMA(",\"partial_rotary_factor\":1.5"),
        "config.json: partial_rotary_factor = 1.5 is not above 0 and at most 1");
}

static struct mdl_program *
build(const char *json)
{
    struct mdl_config c = accepted(json, NULL);
    struct mdl_program *p = NULL;
    char err[256] = "";

    if (mdl_build(&c, 1, &p, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    return p;
}

/* A step with this tail reads only buffers that it wrote before. After the last attention
 * it has only output rows, or, with the other tail, only after the last norm. */
static void
check_tail(const struct mdl_program *p, enum mdl_tail tail)
{
    char written[256] = { 0 };
    int32_t n[MDL_OP__N] = { 0 };

    assert_true(p->has_tails && p->n_buf <= (int32_t)sizeof(written));
    for (int32_t i = 0; i < p->n_op; i++) {
        const struct mdl_op *op = &p->op[i];

        if (!mdl_op_runs(op, tail))
            continue;
        assert_true(op->in < 0 || written[op->in]);
        assert_true(op->in2 < 0 || written[op->in2]);
        if (op->out >= 0)
            written[op->out] = 1;
        if (op->kind != MDL_OP_GATHER && op->in >= 0)
            assert_int_equal(p->buf[op->in].rows, op->rows);
        assert_true(op->out < 0 || p->buf[op->out].rows == op->rows);
        if (op->tail == MDL_TAIL_OUTPUTS && op->kind != MDL_OP_ATTENTION)
            assert_int_equal(op->rows, MDL_PER_OUT);
        n[op->kind]++;
    }
    assert_int_equal(n[MDL_OP_GEMM], 4 * p->cfg.n_layer);
    assert_int_equal(n[MDL_OP_RMSNORM], 2 * p->cfg.n_layer + 1);
    assert_int_equal(n[MDL_OP_ATTENTION], p->cfg.n_layer);
    assert_int_equal(n[MDL_OP_GATHER], tail == MDL_TAIL_TOKENS ? 1 : 2);
    assert_int_equal(n[MDL_OP_LOGITS] + n[MDL_OP_SAMPLE], 2);
}

/* A buffer is written before it is read, its lifetime is exact, and
 * widths agree with the shapes. */
static void
check_program(const struct mdl_program *p)
{
    for (int32_t i = 0; i < p->n_op; i++) {
        const struct mdl_op *op = &p->op[i];
        const int32_t in[2] = { op->in, op->in2 };

        for (int k = 0; k < 2; k++) {
            if (in[k] < 0)
                continue;
            assert_true(in[k] < p->n_buf);
            assert_true(p->buf[in[k]].first < i);
            assert_true(p->buf[in[k]].last >= i);
        }
        if (op->out >= 0)
            assert_true(p->buf[op->out].first <= i && p->buf[op->out].last >= i);
        if (op->kind == MDL_OP_SILU_MUL)
            assert_int_equal(op[-1].out, op->in);
        assert_true(op->w < p->n_w && op->w2 < p->n_w && op->bias < p->n_w);
        if (op->kind == MDL_OP_GEMM || op->kind == MDL_OP_LOGITS) {
            const struct wts_ref *w = &p->w[op->w];
            int32_t rows = 0;

            for (int k = 0; k < w->n_part; k++)
                rows += w->rows[k];
            assert_int_equal(rows, op->N);
            assert_int_equal(w->cols, op->K);
            assert_int_equal(p->buf[op->in].width, op->K);
            assert_int_equal(p->buf[op->out].width, op->N);
            assert_int_equal(p->buf[op->in].rows, op->rows);
        }
    }
    for (int32_t i = 0; i < p->n_buf; i++)
        assert_true(p->buf[i].first >= 0 && p->buf[i].last > p->buf[i].first);
    check_tail(p, MDL_TAIL_TOKENS);
    check_tail(p, MDL_TAIL_OUTPUTS);
}

static void
program_llama(void **state)
{
    struct mdl_program *p = build(LLAMA(",\"num_key_value_heads\":2,\"attention_bias\":"
                                        "true"));
    /* embed, head, final norm; per layer 2 norms, attention with biases, mlp */
    uint64_t layer =
        2 * 64 + (64 + 2 * 32) * 64 + (64 + 2 * 32) + 64 * 64 + 64 + 3 * 64 * 96;

    (void)state;
    check_program(p);
    assert_int_equal(p->n_op, 2 + 9 + 3 + 9 + 8 + 2);
    assert_int_equal(mdl_n_param(p), 2 * 256 * 64 + 64 + 2 * layer);
    assert_int_equal(p->op[0].kind, MDL_OP_EMBED);
    assert_int_equal(p->op[2].kind, MDL_OP_RMSNORM);
    assert_int_equal(p->op[2].in2, -1);
    assert_int_equal(p->op[3].bias >= 0, 1);
    assert_string_equal(p->w[p->op[3].w].name[1], "model.layers.0.self_attn.k_proj.weight");
    assert_int_equal(p->w[p->op[3].w].rows[2], 32);
    assert_int_equal(p->w[p->op[3].bias].cols, 0);
    assert_int_equal(p->w[p->op[3].bias].as_f32, 1);
    assert_int_equal(p->op[4].w, -1);
    assert_true(p->op[5].f == 0.25f);
    /* The second norm adds the output projection. */
    assert_int_equal(p->op[7].in2, p->op[6].out);
    assert_int_equal(p->op[p->n_op - 1].kind, MDL_OP_SAMPLE);
    assert_int_equal(p->op[p->n_op - 4].kind, MDL_OP_RMSNORM);
    assert_int_equal(p->op[p->n_op - 4].in2, p->op[p->n_op - 5].out);
    assert_null(mdl_free(p));
    mdl_free(NULL);
}

/* Only queries, keys and values have a bias, whatever attention_bias is. */
static void
program_qwen2(void **state)
{
    static const char *const more[] = { "", ",\"attention_bias\":false",
        ",\"attention_bias\":true" };
    char json[512];

    (void)state;
    for (size_t k = 0; k < sizeof(more) / sizeof(more[0]); k++) {
        struct mdl_program *p;
        int n = 0;

        snprintf(json, sizeof(json), QWEN2(",\"num_key_value_heads\":2%s"), more[k]);
        p = build(json);
        check_program(p);
        for (int i = 0; i < p->n_op; i++) {
            const struct mdl_op *op = &p->op[i];
            const struct wts_ref *b = op->bias < 0 ? NULL : &p->w[op->bias];

            if (b == NULL)
                continue;
            assert_string_equal(b->name[0] + sizeof("model.layers.0"),
                "self_attn.q_proj.bias");
            assert_string_equal(b->name[2] + sizeof("model.layers.0"),
                "self_attn.v_proj.bias");
            assert_int_equal(b->n_part, 3);
            assert_int_equal(b->rows[0] + b->rows[1] + b->rows[2], op->N);
            assert_int_equal(p->op[i + 1].kind, MDL_OP_QKV);
            n++;
        }
        assert_int_equal(n, 2);
        for (int i = 0; i < p->n_w; i++)
            if (strstr(p->w[i].name[0], "bias") != NULL)
                n--;
        assert_int_equal(n, 0);
        mdl_free(p);
    }
}

static void
program_qwen3_tied(void **state)
{
    struct mdl_program *p = build(QWEN3(",\"head_dim\":32,\"tie_word_embeddings\":true,"
                                        "\"num_key_value_heads\":1"));
    const struct mdl_op *logits = &p->op[p->n_op - 2], *qkv = &p->op[4];

    (void)state;
    check_program(p);
    assert_int_equal(logits->kind, MDL_OP_LOGITS);
    assert_int_equal(p->w[logits->w].alias, p->op[0].w);
    assert_int_equal(qkv->kind, MDL_OP_QKV);
    assert_string_equal(p->w[qkv->w].name[0], "model.layers.0.self_attn.q_norm.weight");
    assert_string_equal(p->w[qkv->w2].name[0], "model.layers.0.self_attn.k_norm.weight");
    assert_int_equal(p->w[qkv->w2].rows[0], 32);
    mdl_free(p);
}

static void
frequencies(void **state)
{
    struct mdl_program *p = build(LLAMA(
        ",\"head_dim\":128,\"rope_theta\":500000,"
        "\"rope_scaling\":{\"rope_type\":\"llama3\","
        "\"factor\":8.0,\"low_freq_factor\":1.0,"
        "\"high_freq_factor\":4.0,\"original_max_"
        "position_embeddings\":8192}"));

    (void)state;
    assert_int_equal(p->rot, 128);
    for (int i = 0; i < 64; i++) {
        double f = pow(500000, -i / 64.0), len = 2 * 3.14159265358979323846 / f, s;

        if (len > 8192)
            f /= 8;
        else if (len >= 2048) {
            s = (8192 / len - 1) / 3;
            f = (1 - s) * f / 8 + s * f;
        }
        assert_true(fabs(p->inv_freq[i] - f) <= 1e-6 * f);
    }
    mdl_free(p);
    p = build(LLAMA(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"));
    assert_true(p->inv_freq[0] == 0.25f);
    mdl_free(p);
}

static void
costs(void **state)
{
    struct mdl_program *p = build(LLAMA(",\"num_key_value_heads\":2"));
    double bytes, flops, sum = 0;

    (void)state;
    mdl_op_cost(p, &p->op[3], 8, 8, 100, 2, 4, 4, &bytes, &flops);
    assert_true(flops == 2.0 * 8 * 128 * 64);
    assert_true(bytes == 2.0 * 128 * 64 + 4.0 * 8 * (128 + 64));
    mdl_op_cost(p, &p->op[5], 8, 8, 100, 2, 4, 4, &bytes, &flops);
    assert_true(flops == 4.0 * 8 * 100 * 64);
    assert_true(bytes == 8.0 * 100 * 2 * 32 * 4 + 2 * 4.0 * 8 * 64);
    for (int32_t i = 0; i < p->n_op; i++) {
        mdl_op_cost(p, &p->op[i], 1, 1, 0, 2, 2, 4, &bytes, &flops);
        assert_true(bytes > 0 && isfinite(bytes) && flops >= 0);
        if ((p->op[i].kind == MDL_OP_GEMM || p->op[i].kind == MDL_OP_LOGITS) &&
            mdl_op_runs(&p->op[i], MDL_TAIL_OUTPUTS))
            sum += flops / 2;
        assert_string_not_equal(mdl_op_name(p->op[i].kind), "?");
    }
    /* Multiplications of one token: every parameter but embedding and norms. */
    assert_true(sum == (double)mdl_n_param(p) - 256 * 64 - 5 * 64);
    mdl_free(p);
}

static void
directories(void **state)
{
    char dir[] = "/tmp/u_model.XXXXXX", path[128], err[1024];
    struct mdl_config c;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(mdl_config_read("/nonexistent", &c, err, sizeof(err)), -ENOENT);
    assert_memory_equal(err, "/nonexistent: No such file", 26);
    assert_int_equal(mdl_config_read(dir, &c, err, sizeof(err)), -ENOENT);
    assert_non_null(strstr(err, "/config.json: No such file"));
    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mdl_config_read(dir, &c, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "not a regular file"));
    unlink(path);
    assert_int_equal(symlink("nothing", path), 0);
    assert_int_equal(mdl_config_read(dir, &c, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "a link to a file that is not there"));
    unlink(path);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(LLAMA(",\"head_dim\":3"), f);
    fclose(f);
    assert_int_equal(mdl_config_read(dir, &c, err, sizeof(err)), -EINVAL);
    assert_memory_equal(err, dir, strlen(dir));
    assert_non_null(strstr(err, "/config.json: head_dim = 3 is not"));
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    assert_int_equal(mdl_config_read(dir, &c, err, sizeof(err)), -EFBIG);
    if (geteuid() != 0) {
        chmod(path, 0);
        assert_int_equal(mdl_config_read(dir, &c, err, sizeof(err)), -EACCES);
        assert_non_null(strstr(err, "a copy that it can read"));
        assert_null(strstr(err, "chmod"));
    }
    unlink(path);
    rmdir(dir);
}

static void
sha256(void **state)
{
    static const uint8_t abc[4] = { 0xba, 0x78, 0x16, 0xbf },
                         a1m[4] = { 0xcd, 0xc7, 0x6e, 0x5c };
    uint8_t sum[32], block[1000];
    struct sha256 s;

    (void)state;
    sha256_init(&s);
    sha256_add(&s, "abc", 3);
    sha256_end(&s, sum);
    assert_memory_equal(sum, abc, 4);
    memset(block, 'a', sizeof(block));
    sha256_init(&s);
    for (int i = 0; i < 1000; i++) {
        sha256_add(&s, block, 7);
        sha256_add(&s, block, 993);
    }
    sha256_end(&s, sum);
    assert_memory_equal(sum, a1m, 4);
    assert_int_equal(sum[31], 0xd0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(values),
        cmocka_unit_test(windows),
        cmocka_unit_test(windows_in_the_program),
        cmocka_unit_test(rope_spellings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(quantized),
        cmocka_unit_test(quantized_refused),
        cmocka_unit_test(refused_numbers),
        cmocka_unit_test(refused_rope),
        cmocka_unit_test(program_llama),
        cmocka_unit_test(qwen3_head_dim),
        cmocka_unit_test(program_qwen2),
        cmocka_unit_test(program_qwen3_tied),
        cmocka_unit_test(frequencies),
        cmocka_unit_test(costs),
        cmocka_unit_test(directories),
        cmocka_unit_test(sha256),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
