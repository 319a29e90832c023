/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints with e4m3 matrices: what lands in the arena is the file's bytes
 * and a scale for each row and group, whatever the scales hold for in the
 * file; and what is refused.
 */
#include "config.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/worker/weights_priv.h"
#include "tests/test_device.h"

/* Neither width is a multiple of a block; q, k and v are less than one. */
#define CONFIG \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"hidden_size\":200,\"head_dim\":16," \
    "\"intermediate_size\":300,\"vocab_size\":256,\"max_position_embeddings\":512," \
    "\"tie_word_embeddings\":false,\"dtype\":\"bfloat16\"%s%s}"
#define QUANT   ",\"quantization_config\":"
#define BLOCK   "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}"
#define TENSOR  "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}"
#define CHANNEL "{\"quant_method\":\"fbgemm_fp8\"}"
#define MAX_T   128

static const struct fdk_ops *const k = &fdk_ops_cpu;
static struct fdk_ctx *ctx;
static struct mdl_program *prog;
static char dir[64];

struct tensor {
    char name[MDL_NAME + 16];
    const char *dtype;
    int n_dim, dim[2];
    size_t bytes;
    unsigned char *data;
};
static struct tensor ten[MAX_T];
static int n_ten;

/* ---- a model directory ---- */

static void
write_file(const char *name, const void *data, size_t n)
{
    char path[128];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void
write_tensors(void)
{
    size_t at = 0, n = 1, bytes = 1 << 20;
    char *out = malloc(1 << 22), *head = out + 8;
    uint64_t len;

    assert_non_null(out);
    head[0] = '{';
    for (int i = 0; i < n_ten; i++) {
        const struct tensor *t = &ten[i];

        n += (size_t)snprintf(head + n, bytes - n,
            "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i == 0 ? "" : ",", t->name, t->dtype);
        for (int d = 0; d < t->n_dim; d++)
            n += (size_t)snprintf(head + n, bytes - n, "%s%d", d == 0 ? "" : ",", t->dim[d]);
        n += (size_t)snprintf(head + n, bytes - n, "],\"data_offsets\":[%zu,%zu]}", at,
            at + t->bytes);
        at += t->bytes;
    }
    head[n++] = '}';
    len = n;
    memcpy(out, &len, 8);
    for (int i = 0; i < n_ten; i++) {
        memcpy(head + n, ten[i].data, ten[i].bytes);
        n += ten[i].bytes;
    }
    assert_true(n < (1 << 22) - 8);
    write_file("model.safetensors", out, n + 8);
    free(out);
}

static size_t
width(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 || strcmp(dtype, "I32") == 0 ? 4
        : strncmp(dtype, "F8", 2) == 0
        ? 1
        : 2;
}

static uint64_t seed;

static unsigned
number(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33);
}

static struct tensor *
add(const char *name, const char *end, const char *dtype, int n_dim, int d0, int d1)
{
    struct tensor *t = &ten[n_ten++];

    assert_true(n_ten <= MAX_T);
    (void)snprintf(t->name, sizeof(t->name), "%s%s", name, end);
    t->dtype = dtype;
    t->n_dim = n_dim;
    t->dim[0] = d0;
    t->dim[1] = d1;
    t->bytes = (size_t)(n_dim > 0 ? d0 : 1) * (size_t)(n_dim > 1 ? d1 : 1) * width(dtype);
    t->data = malloc(t->bytes);
    assert_non_null(t->data);
    for (size_t i = 0; i < t->bytes; i++)
        t->data[i] = (unsigned char)(number() % 0x7f);
    return t;
}

static struct tensor *
tensor(const char *name)
{
    for (int i = 0; i < n_ten; i++)
        if (strcmp(ten[i].name, name) == 0)
            return &ten[i];
    return NULL;
}

/* Scales that every 16-bit type has: small multiples of powers of two. */
static void
set(struct tensor *t, size_t i, float v)
{
    uint32_t u;
    uint16_t h;

    memcpy(&u, &v, 4);
    h = strcmp(t->dtype, "BF16") == 0
        ? (uint16_t)(u >> 16)
        : (uint16_t)((u - 0x38000000) >> 13);
    if (width(t->dtype) == 4)
        memcpy(t->data + 4 * i, &u, 4);
    else
        memcpy(t->data + 2 * i, &h, 2);
}

static float
scale_of(const char *weight, size_t i)
{
    unsigned h = 5;

    for (; *weight != '\0'; weight++)
        h = h * 31 + (unsigned char)*weight;
    return (float)(16 + (h + i * 7) % 16) * 0x1p-12f;
}

static void
add_scale(const char *weight, const char *end, const char *dtype, int n_dim, int d0, int d1)
{
    struct tensor *t = add(weight, end, dtype, n_dim, d0, d1);

    for (size_t i = 0; i < t->bytes / width(dtype); i++)
        set(t, i, scale_of(weight, i));
}

static void
clear(void)
{
    for (int i = 0; i < n_ten; i++)
        free(ten[i].data);
    n_ten = 0;
}

struct scheme {
    const char *config;
    const char *end, *dtype; /* of scales */
    int n_dim;               /* tensor: 0, 1; channel: 1, 2 */
    const char *plain;       /* weights whose name has it stay BF16 */
};

static int
is_layer_matrix(const struct wts_ref *w)
{
    return w->cols > 0 && strstr(w->name[0], ".layers.") != NULL;
}

static void
model(const struct scheme *s)
{
    struct mdl_config cfg;
    char text[1024], err[512] = "";

    clear();
    write_file("config.json", text,
        (size_t)snprintf(text, sizeof(text), CONFIG, s->config != NULL ? QUANT : "",
            s->config != NULL ? s->config : ""));
    mdl_free(prog);
    prog = NULL;
    if (mdl_config_read(dir, &cfg, err, sizeof(err)) != 0 ||
        mdl_build(&cfg, 1, &prog, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    for (int32_t i = 0; i < prog->n_w; i++) {
        const struct wts_ref *w = &prog->w[i];

        for (int j = 0; j < w->n_part; j++) {
            const char *name = w->name[j];
            int fp8 = s->config != NULL && strstr(name, s->plain) == NULL &&
                (is_layer_matrix(w) || strstr(name, "lm_head") != NULL);
            int r = w->rows[j], b0 = (r + 127) / 128, b1 = (w->cols + 127) / 128;

            (void)add(name, "", fp8 ? "F8_E4M3" : "BF16", w->cols > 0 ? 2 : 1, r, w->cols);
            if (fp8 && prog->cfg.quant == MDL_QUANT_BLOCK)
                add_scale(name, s->end, s->dtype, 2, b0, b1);
            else if (fp8 && prog->cfg.quant == MDL_QUANT_TENSOR)
                add_scale(name, s->end, s->dtype, s->n_dim, 1, 1);
            else if (fp8)
                add_scale(name, s->end, s->dtype, s->n_dim, r, 1);
        }
    }
}

/* ---- loading ---- */

static struct wts_plan *
plan(int dummy)
{
    struct wts_plan *wp = NULL;
    char err[1024] = "";

    if (wts_plan_new(dir, prog, dummy, 5, &wp, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    return wp;
}

static char *
load(struct wts_plan *wp, int uring, size_t buffer)
{
    struct wts_load_args la = { .use_uring = uring, .buffer_bytes = buffer };
    char err[1024] = "", *copy = malloc(wts_bytes(wp));
    fdk_stream_t st;
    void *arena;

    assert_non_null(copy);
    assert_int_equal(k->mem_alloc(ctx, td_dev(), wts_bytes(wp), &arena), 0);
    assert_int_equal(k->stream_new(ctx, td_dev(), &st), 0);
    assert_int_equal(k->fill(st, arena, 0xee, wts_bytes(wp)), 0);
    assert_int_equal(k->stream_sync(st), 0);
    if (wts_load(wp, k, ctx, &(struct wts_at){ td_dev(), arena }, 1, &la, err,
            sizeof(err)) != 0)
        fail_msg("%s", err);
    assert_int_equal(k->copy(st, copy, arena, wts_bytes(wp)), 0);
    assert_int_equal(k->stream_sync(st), 0);
    k->stream_free(st);
    k->mem_free(ctx, td_dev(), arena);
    return copy;
}

/* Scale of row r of a tensor, group g of n. */
static float
want_scale(const char *name, int r, int g, int n)
{
    return scale_of(name,
        prog->cfg.quant == MDL_QUANT_BLOCK        ? (size_t)(r / 128 * n + g)
            : prog->cfg.quant == MDL_QUANT_TENSOR ? 0
                                                  : (size_t)r);
}

static void
check_weight(const struct wts_plan *wp, int32_t i, const char *arena)
{
    const struct wts_ref *w = &prog->w[i];
    const char *v = arena + wts_offset(wp, i), *sc = v + wts_weight(wp, i).scale_at;
    int group = prog->cfg.quant == MDL_QUANT_BLOCK ? 128 : w->cols;
    int n = (w->cols - 1) / (group < w->cols ? group : w->cols) + 1;

    assert_int_equal(wts_dtype(wp, i), FDK_F8E4M3);
    assert_int_equal(wts_weight(wp, i).group, group < w->cols ? group : w->cols);
    assert_int_equal(wts_weight(wp, i).scale_at % 256, 0);
    assert_true(fabs(wts_elt_bytes(wp, i) - (1 + 4.0 * n / w->cols)) <
        256.0 / (double)wts_n_elt(&wp->place[i].w));
    for (int j = 0; j < w->n_part; j++) {
        const struct tensor *t = tensor(w->name[j]);

        assert_memory_equal(v, t->data, t->bytes);
        v += t->bytes;
        for (int r = 0; r < w->rows[j]; r++)
            for (int g = 0; g < n; g++, sc += 4) {
                float got, want = want_scale(t->name, r, g, n);

                memcpy(&got, sc, 4);
                if (got != want)
                    fail_msg("%s: scale (%d, %d) is %g, expected %g", t->name, r, g,
                        (double)got, (double)want);
            }
    }
}

static void
check_scheme(const struct scheme *s)
{
    static const size_t buffers[] = { 1, 30000, 1 << 20 };
    struct wts_plan *wp;

    model(s);
    write_tensors();
    for (int b = 0; b < 6; b++) {
        char *arena;
        int n_fp8 = 0;

        wp = plan(0);
        if (strstr(s->plain, "layers") == NULL && strcmp(s->plain, "mlp") != 0)
            assert_int_equal(wts_main_dtype(wp), FDK_F8E4M3);
        assert_string_equal(wts_ignored(wp), "");
        arena = load(wp, b % 2, buffers[b / 2]);
        for (int32_t i = 0; i < prog->n_w; i++) {
            const struct wts_ref *w = &prog->w[i];
            const struct tensor *t = tensor(w->name[0]);

            if (strcmp(t->dtype, "F8_E4M3") == 0) {
                check_weight(wp, i, arena);
                n_fp8++;
                continue;
            }
            assert_int_equal(wts_weight(wp, i).group + (int)wts_weight(wp, i).scale_at, 0);
            if (w->cols > 0 && w->n_part == 1)
                assert_memory_equal(arena + wts_offset(wp, i), t->data, t->bytes);
        }
        assert_true(n_fp8 > 0);
        free(arena);
        wts_plan_free(wp);
    }
}

static void
schemes(void **state)
{
    static const struct scheme all[] = {
        { BLOCK, "_scale_inv", "F32", 2, "lm_head" },
        { BLOCK, "_scale_inv", "BF16", 2, "layers.1.self_attn" },
        { TENSOR, "_scale", "F32", 0, "lm_head" },
        { TENSOR, "_scale_inv", "BF16", 0, "down_proj" },
        { TENSOR, "_scale", "F32", 1, "o_proj" },
        { TENSOR, "_scale", "F16", 2, "lm_head" },
        { CHANNEL, "_scale", "F32", 2, "layers.0." },
        { CHANNEL, "_scale", "BF16", 1, "lm_head" },
        { CHANNEL, "_scale", "F16", 2, "mlp" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        check_scheme(&all[i]);
}

/* Scales of activations are named once and not used. */
static void
activation_scales(void **state)
{
    const struct scheme s = { TENSOR, "_scale", "F32", 0, "lm_head" };
    char name[MDL_NAME];
    struct wts_plan *wp;

    (void)state;
    model(&s);
    for (int i = 0, n = n_ten; i < n; i++)
        if (strcmp(ten[i].dtype, "F8_E4M3") == 0) {
            (void)snprintf(name, sizeof(name), "%.*s",
                (int)(strlen(ten[i].name) - strlen("weight")), ten[i].name);
            (void)add(name, i % 2 == 0 ? "input_scale" : "activation_scale", "F32", 0, 0, 0);
        }
    write_tensors();
    wp = plan(0);
    assert_memory_equal(wts_ignored(wp), "14: model.layers.0.mlp.down_proj.", 33);
    wts_plan_free(wp);
}

/* ---- refusals ---- */

static void
plan_refused(const char *part)
{
    struct wts_plan *wp = NULL;
    char err[1024] = "";
    int rc;

    write_tensors();
    rc = wts_plan_new(dir, prog, 0, 0, &wp, err, sizeof(err));
    if (rc != -EINVAL || strncmp(err, "W_MODEL: ", 9) != 0 || strstr(err, part) == NULL ||
        strchr(err, '\n') != NULL)
        fail_msg("rc %d, '%s'; expected '%s'", rc, err, part);
    assert_null(wp);
}

static const struct scheme block = { BLOCK, "_scale_inv", "F32", 2, "lm_head" };
static const struct scheme one = { TENSOR, "_scale", "F32", 0, "lm_head" };
static const struct scheme channel = { CHANNEL, "_scale", "F32", 2, "lm_head" };
#define UP   "model.layers.1.mlp.up_proj.weight"
#define GATE "model.layers.1.mlp.gate_proj.weight"

/* Another tensor in the place of one that is there. */
static void
replace(const char *name, const char *dtype, int n_dim, int d0, int d1)
{
    struct tensor *t = tensor(name), *u, old;

    assert_non_null(t);
    u = add(name, "", dtype, n_dim, d0, d1);
    for (size_t i = 0; i < u->bytes / width(dtype); i++)
        if (width(dtype) > 1)
            set(u, i, 1);
    old = *t;
    *t = *u;
    *u = old;
    free(u->data);
    n_ten--;
}

static void
no_scales(void **state)
{
    (void)state;
    model(&block);
    (void)strcpy(tensor(UP "_scale_inv")->name, "model.layers.1.mlp.up_proj.bias_scale");
    plan_refused("tensor " UP " is F8_E4M3, but there is neither " UP "_scale_inv nor " UP
                 "_scale with its scales");
    model(&block);
    add_scale(UP, "_scale", "F32", 2, 3, 2);
    plan_refused("tensor " UP " has its scales twice: " UP "_scale_inv and " UP "_scale; "
                 "keep one");
    /* scales of what has none */
    model(&block);
    add_scale("model.embed_tokens.weight", "_scale", "F32", 0, 0, 0);
    plan_refused("1 tensor is not part of the llama model of config.json (2 layers): "
                 "model.embed_tokens.weight_scale");
    model(&block);
    (void)add("model.norm.", "input_scale", "F32", 0, 0, 0);
    plan_refused("1 tensor is not part of the llama model");
}

static void
scale_types(void **state)
{
    static const struct {
        const struct scheme *s;
        const char *end, *dtype;
        int n_dim, d0, d1;
        const char *want;
    } bad[] = {
        { &block, "_scale_inv", "I32", 2, 3, 2,
            " has dtype I32, which is not supported for "
            "scales; supported: F32, F16, BF16" },
        { &block, "_scale_inv", "F8_E8M0", 2, 3, 2, " has dtype F8_E8M0, which is not" },
        { &block, "_scale_inv", "F32", 2, 2, 2,
            " has shape (2, 2); the quantization_config "
            "of config.json (fp8, a scale per block of 128x128) asks for (3, 2)" },
        { &block, "_scale_inv", "F32", 2, 3, 1, " has shape (3, 1); " },
        { &block, "_scale_inv", "F32", 1, 6, 0, " has shape (6); " },
        { &one, "_scale", "F32", 2, 300, 1,
            " has shape (300, 1); the quantization_config of "
            "config.json (fp8, a scale per tensor) asks for () or (1)" },
        { &one, "_scale", "F32", 1, 2, 0, " has shape (2); " },
        { &channel, "_scale", "F32", 0, 0, 0,
            " has shape (); the quantization_config of "
            "config.json (fp8, a scale per row) asks for (300, 1) or (300)" },
        { &channel, "_scale", "F32", 2, 300, 2, " has shape (300, 2); " },
        { &channel, "_scale", "BF16", 2, 1, 300, " has shape (1, 300); " },
    };
    char name[MDL_NAME + 16], want[256];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        model(bad[i].s);
        (void)snprintf(name, sizeof(name), UP "%s", bad[i].end);
        replace(name, bad[i].dtype, bad[i].n_dim, bad[i].d0, bad[i].d1);
        (void)snprintf(want, sizeof(want), "tensor %s%s", name, bad[i].want);
        plan_refused(want);
    }
}

static void
scale_values(void **state)
{
    const float bad[] = { 0, -0.5f, NAN, INFINITY, FLT_MAX / 440 };
    struct wts_plan *wp;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        model(&channel);
        set(tensor(UP "_scale"), 299, bad[i]);
        plan_refused("tensor " UP "_scale: element 299 is ");
    }
    model(&channel);
    set(tensor(UP "_scale"), 299, FLT_MAX / 448);
    set(tensor(UP "_scale"), 298, 1e-45f);
    write_tensors();
    wp = plan(0);
    wts_plan_free(wp);
}

static void
weights(void **state)
{
    const struct scheme none = { NULL, "", "", 0, "" };

    (void)state;
    model(&block);
    replace(UP, "F8_E5M2", 2, 300, 200);
    plan_refused("tensor " UP " has dtype F8_E5M2, which is not supported; supported: F32, "
                 "F16, BF16, F8_E4M3");
    model(&block);
    replace(UP, "BF16", 2, 300, 200);
    plan_refused("tensor " GATE " is F8_E4M3 and " UP " is BF16; they are computed as one "
                 "matrix, so both have to be F8_E4M3 or neither");
    model(&block);
    replace("model.embed_tokens.weight", "F8_E4M3", 2, 256, 200);
    plan_refused("tensor model.embed_tokens.weight has dtype F8_E4M3, which is supported "
                 "for the matrices of products only");
    model(&block);
    replace("model.norm.weight", "F8_E4M3", 1, 200, 0);
    plan_refused("tensor model.norm.weight has dtype F8_E4M3, which is not supported; "
                 "supported: F32, F16, BF16");
    model(&none);
    replace(UP, "F8_E4M3", 2, 300, 200);
    plan_refused("tensor " UP " is F8_E4M3, but config.json has no quantization_config");
}

static void
quantized_again(void **state)
{
    const struct qnt q = { FDK_I8, 32 };
    struct wts_plan *wp;
    char err[512] = "";

    (void)state;
    model(&block);
    write_tensors();
    for (int dummy = 0; dummy < 2; dummy++) {
        wp = plan(dummy);
        assert_int_equal(wts_plan_quantize(wp, prog, &q, err, sizeof(err)), -EINVAL);
        assert_string_equal(err,
            "W_MODEL: the checkpoint is quantized already (fp8, a "
            "scale per block of 128x128): quant.weights=wint8 cannot quantize it again; set "
            "it to none");
        wts_plan_free(wp);
    }
}

/* ---- the rest ---- */

/* Without files the layers' matrices are e4m3, grouped as the scheme says. */
static void
dummy(void **state)
{
    static const struct scheme *const all[] = { &block, &one, &channel };

    (void)state;
    for (int s = 0; s < 3; s++) {
        struct wts_plan *wp;
        char *arena;

        model(all[s]);
        wp = plan(1);
        arena = load(wp, 0, 1 << 20);
        for (int32_t i = 0; i < prog->n_w; i++) {
            const struct wts_ref *w = &prog->w[i];

            if (!is_layer_matrix(w)) {
                assert_int_equal(wts_weight(wp, i).group, 0);
                continue;
            }
            assert_int_equal(wts_dtype(wp, i), FDK_F8E4M3);
            assert_int_equal(wts_weight(wp, i).group,
                s > 0 || w->cols < 128 ? w->cols : 128);
            for (size_t e = 0; e < wts_n_elt(&wp->place[i].w); e++)
                assert_true((arena[wts_offset(wp, i) + e] & 0x7f) != 0x7f);
        }
        free(arena);
        wts_plan_free(wp);
    }
}

static void
report(void **state)
{
    char text[2048];
    FILE *f;

    (void)state;
    model(&channel);
    write_tensors();
    f = fmemopen(text, sizeof(text), "w");
    assert_non_null(f);
    assert_int_equal(wts_check_dir(dir, f), EX_OK);
    (void)fclose(f);
    assert_non_null(strstr(text, "weights     F8_E4M3, "));
    assert_non_null(strstr(text, "quantized   fp8, a scale per row\n"));
    assert_non_null(strstr(text, "\nok\n"));
}

static int
setup(void **state)
{
    struct fdk_open_args oa = { .n_device = 1, .n_thread = 1, .max_token = 8 };
    char err[256];

    td_open(&oa);
    (void)state;
    (void)strcpy(dir, "/tmp/u_weights_fp8.XXXXXX");
    return mkdtemp(dir) == NULL || k->open(&oa, &ctx, err, sizeof(err)) != 0;
}

static int
teardown(void **state)
{
    static const char *const name[] = { "config.json", "model.safetensors" };
    char path[128];

    (void)state;
    clear();
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, name[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
    mdl_free(prog);
    k->close(ctx);
    return 0;
}

/* Of a model that sees images the text model's tensors are found by the program's names. */
static void
renames(void **state)
{
    static const struct mdl_rename to[] = { { "language_model.model.", "model." },
        { "model.language_model.", "model." }, { NULL, NULL } };
    char a[] = "language_model.model.norm.weight", b[] = "model.language_model.x",
         c[] = "vision_tower.norm.weight", err[256] = "";
    struct wts_tensor t[] = { { .name = a }, { .name = b }, { .name = c } };
    struct wts_file file = { .path = a };
    struct wts_plan wp = { .tensor = t, .n_tensor = 3, .file = &file };

    (void)state;
    assert_int_equal(wts_rename(&wp, NULL, err, sizeof(err)), 0);
    assert_null(wts_find(&wp, "model.norm.weight"));
    assert_int_equal(wts_rename(&wp, to, err, sizeof(err)), 0);
    assert_non_null(wts_find(&wp, "model.norm.weight"));
    assert_non_null(wts_find(&wp, "model.x"));
    assert_non_null(wts_find(&wp, "vision_tower.norm.weight"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemes),
        cmocka_unit_test(activation_scales),
        cmocka_unit_test(no_scales),
        cmocka_unit_test(scale_types),
        cmocka_unit_test(scale_values),
        cmocka_unit_test(weights),
        cmocka_unit_test(quantized_again),
        cmocka_unit_test(dummy),
        cmocka_unit_test(report),
        cmocka_unit_test(renames),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
