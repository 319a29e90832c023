/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Scales of an fp8 KV cache, from tensors of a checkpoint to the bits of
 * logprobs. Checkpoints are those of tests/parity with tensors added.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "daemon/worker/memplan.h"
#include "daemon/worker/weights_priv.h"
#include "tests/sim/sim.h"

#define MAX_FILE (1u << 20)
#define PROMPT   96
#define LAYERS   2 /* of the checkpoints used here */
#define HEADS    2
#define SCALES   (LAYERS * 2 * HEADS)
/* Largest allowed difference of a logprob between an fp8 and an fp32 cache; fp8
 * keeps an element to 1/16. */
#define TOL     0.25
#define QWEN    "qwen3-bf16"
#define K_NAME  "model.layers.%d.self_attn.k_scale"
#define V_NAME  "model.layers.%d.self_attn.v_scale"
#define K_OTHER "model.layers.%d.self_attn.k_proj.k_scale"
#define V_OTHER "model.layers.%d.self_attn.v_proj.v_scale"

static char dir[64];

/* ---- a checkpoint with more tensors ------------------------------------------ */

struct extra {
    char name[MDL_NAME];
    const char *dtype, *shape; /* as in the header: "F32", "[2]" */
    unsigned char data[64];
    size_t bytes;
};
static struct extra extra[16];
static int n_extra;

static void
add(const char *name, int layer, const char *dtype, const char *shape, const void *data,
    size_t bytes)
{
    struct extra *e = &extra[n_extra++];

    assert_true(n_extra <= 16 && bytes <= sizeof(e->data));
    memset(e, 0, sizeof(*e));
    (void)snprintf(e->name, sizeof(e->name), name, layer);
    e->dtype = dtype;
    e->shape = shape;
    e->bytes = bytes;
    memcpy(e->data, data, bytes);
}

static void
add_f32(const char *name, int layer, const char *shape, float a, float b)
{
    const float v[2] = { a, b };

    add(name, layer, "F32", shape, v, strcmp(shape, "[2]") == 0 ? 8 : 4);
}

/* Adds the table [layer][K or V][head] as tensors. */
static void
add_table(const float table[SCALES])
{
    n_extra = 0;
    for (int i = 0; i < LAYERS * 2; i++)
        add_f32(i % 2 ? V_NAME : K_NAME, i / 2, "[2]", table[2 * i], table[2 * i + 1]);
}

static void
path_of(char path[4096], const char *model, const char *file)
{
    const char *src = getenv("srcdir");

    if (model == NULL)
        (void)snprintf(path, 4096, "%s/%s", dir, file);
    else
        (void)snprintf(path, 4096, "%s/tests/parity/models/%s/%s",
            src != NULL ? src : ".", model, file);
}

static char *
read_file(const char *model, const char *file, size_t *ret_n)
{
    char path[4096], *data = malloc(MAX_FILE);
    FILE *f;

    path_of(path, model, file);
    f = fopen(path, "r");
    if (data == NULL || f == NULL)
        fail_msg("%s cannot be read; set srcdir", path);
    *ret_n = fread(data, 1, MAX_FILE, f);
    assert_true(*ret_n > 8 && *ret_n < MAX_FILE);
    (void)fclose(f);
    return data;
}

static void
write_file(const char *file, const void *a, size_t a_n, const void *b, size_t b_n,
    const void *c, size_t c_n)
{
    char path[4096];
    FILE *f;

    path_of(path, NULL, file);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(a, 1, a_n, f), a_n);
    assert_int_equal(fwrite(b, 1, b_n, f), b_n);
    assert_int_equal(fwrite(c, 1, c_n, f), c_n);
    assert_int_equal(fclose(f), 0);
}

/* Sets rows [first, first + n) of a matrix to zeros, in a file of this size. */
static void
zero_rows(char *file, size_t size, const char *name, uint64_t first, uint64_t n)
{
    struct wts_tensor *t = NULL;
    size_t n_t = 0, found = 0;
    char err[512] = "";
    uint64_t head;

    memcpy(&head, file, 8);
    assert_int_equal(wts_header_parse(file + 8, head, size - 8 - head, &t, &n_t, err,
                         sizeof(err)),
        0);
    for (size_t i = 0; i < n_t; i++) {
        uint64_t row = t[i].n_dim == 2 ? t[i].bytes / (uint64_t)t[i].shape[0] : 0;

        if (strcmp(t[i].name, name) != 0)
            continue;
        assert_true((first + n) * row <= t[i].bytes);
        memset(file + t[i].off + first * row, 0, n * row);
        found++;
    }
    assert_int_equal(found, 1);
    wts_tensors_free(t, n_t);
}

/* Writes a copy of a checkpoint with extra[] added after its tensors. */
static void
make(const char *model, const char *zero, uint64_t first, uint64_t n)
{
    size_t size, text_n, at, more = 0;
    char *file = read_file(model, "model.safetensors", &size), *config, *text;
    unsigned char data[sizeof(extra)];
    uint64_t head;

    memcpy(&head, file, 8);
    if (zero != NULL)
        zero_rows(file, size, zero, first, n);
    at = size - 8 - head;
    text_n = head;
    text = malloc(head + 16384);
    assert_non_null(text);
    memcpy(text, file + 8, head);
    while (text[text_n - 1] == ' ')
        text_n--;
    text_n--; /* the last brace */
    for (int i = 0; i < n_extra; i++) {
        const struct extra *e = &extra[i];

        text_n += (size_t)sprintf(text + text_n,
            ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,"
            "\"data_offsets\":[%zu,%zu]}",
            e->name, e->dtype, e->shape, at + more, at + more + e->bytes);
        memcpy(data + more, e->data, e->bytes);
        more += e->bytes;
    }
    text[text_n++] = '}';
    while (text_n % 8 != 0)
        text[text_n++] = ' ';
    /* length and text, old data, new data */
    config = malloc(8 + text_n);
    assert_non_null(config);
    memcpy(config, &(uint64_t){ text_n }, 8);
    memcpy(config + 8, text, text_n);
    write_file("model.safetensors", config, 8 + text_n, file + 8 + head, at, data, more);
    free(config);
    free(text);
    free(file);
    config = read_file(model, "config.json", &size);
    write_file("config.json", config, size, "", 0, "", 0);
    free(config);
}

/* ---- reading them ------------------------------------------------------------ */

/* Plans the model and reads its scales. Expects 0, or -EINVAL with `part` in the error. */
static void
take(float ret[SCALES], int want_n, const char *part)
{
    struct mdl_program *prog = NULL;
    struct wts_plan *wp = NULL;
    struct mdl_config mc;
    char err[1024] = "";
    int rc;

    assert_int_equal(mdl_config_read(dir, &mc, err, sizeof(err)), 0);
    assert_true(mc.n_layer == LAYERS && mc.n_kv_head == HEADS);
    assert_int_equal(mdl_build(&mc, 1, &prog, err, sizeof(err)), 0);
    if (wts_plan_new(dir, prog, 0, 0, &wp, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    assert_int_equal(wts_n_kv_scale(wp), want_n);
    assert_string_equal(wts_ignored(wp), "");
    rc = wts_kv_scales(wp, prog, ret, err, sizeof(err));
    if (part == NULL ? rc != 0
                     : rc != -EINVAL || strstr(err, part) == NULL ||
                strncmp(err, "W_MODEL: ", 9) != 0 || strchr(err, '\n') != NULL)
        fail_msg("rc %d, '%s', expected '%s'", rc, err, part != NULL ? part : "");
    wts_plan_free(wp);
    mdl_free(prog);
}

static void
expect(const float want[SCALES], int want_n)
{
    float got[SCALES];

    make(QWEN, NULL, 0, 0);
    take(got, want_n, NULL);
    for (int i = 0; i < SCALES; i++)
        if (memcmp(&got[i], &want[i], 4) != 0)
            fail_msg("scale %d is %g, not %g", i, (double)got[i], (double)want[i]);
}

static void
names_and_shapes(void **state)
{
    static const float ones[SCALES] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    static const float table[SCALES] = { 1.5f, 2, 0.1f, 4e-30f, 5, 1e30f, 7, 8 };
    static const float spread[SCALES] = { 3, 3, 0.25f, 0.25f, 0x1p-24f, 1.5f, 6, 6 };
    const uint16_t bf16 = 0x4040, f16[2] = { 0x0001, 0x3e00 };

    (void)state;
    n_extra = 0;
    expect(ones, 0);
    add_table(table);
    expect(table, 4);
    /* every dtype, every shape, both names, in one checkpoint */
    n_extra = 0;
    add(K_OTHER, 0, "BF16", "[1]", &bf16, 2);
    add_f32(V_NAME, 0, "[]", 0.25f, 0);
    add(K_NAME, 1, "F16", "[2]", f16, 4);
    add_f32(V_OTHER, 1, "[1]", 6, 0);
    expect(spread, 4);
}

static void
refuse(int want_n, const char *part)
{
    float got[SCALES];
    char text[2048];
    FILE *f;

    make(QWEN, NULL, 0, 0);
    take(got, want_n, part);
    /* the offline check says the same */
    f = fmemopen(text, sizeof(text), "w");
    assert_non_null(f);
    assert_int_equal(wts_check_dir(dir, f), EX_DATAERR);
    (void)fclose(f);
    assert_non_null(strstr(text, part));
}

static void
missing_ones(void **state)
{
    (void)state;
    n_extra = 0;
    add_f32(K_NAME, 0, "[]", 1, 0);
    add_f32(V_NAME, 0, "[]", 1, 0);
    refuse(2,
        "layer 1: tensor model.layers.1.self_attn.k_scale is missing, though the "
        "checkpoint has 2 other KV scales");
    add_f32(K_OTHER, 1, "[]", 1, 0);
    refuse(3, "layer 1: tensor model.layers.1.self_attn.v_scale is missing");
    /* no values at all */
    n_extra = 0;
    add_f32(K_NAME, 0, "[]", 1, 0);
    add_f32(K_NAME, 1, "[]", 1, 0);
    refuse(2, "layer 0: tensor model.layers.0.self_attn.v_scale is missing");
    add_f32(V_NAME, 0, "[]", 1, 0);
    add_f32(V_NAME, 1, "[]", 1, 0);
    add_f32(V_OTHER, 1, "[]", 1, 0);
    refuse(5,
        "layer 1 has its KV scale twice: model.layers.1.self_attn.v_scale and "
        "model.layers.1.self_attn.v_proj.v_scale");
}

static void
bad_values(void **state)
{
    static const struct {
        float v;
        const char *shown;
    } bad[] = { { 0, "is 0;" }, { -0.0f, "is -0;" }, { -1.5f, "is -1.5;" },
        { NAN, "is nan;" }, { INFINITY, "is inf;" }, { -INFINITY, "is -inf;" } };
    static const float three[3] = { 1, 1, 1 };
    static const unsigned char f8 = 0x38;
    const uint16_t zero = 0, inf16 = 0x7c00;
    char part[128];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        float t[SCALES] = { 1, 1, 1, 1, 1, 1, 1, 1 };

        t[2 * (i % 4) + i % 2] = bad[i].v;
        add_table(t);
        (void)snprintf(part, sizeof(part),
            "tensor model.layers.%zu.self_attn.%c_scale: "
            "element %zu %s",
            i % 4 / 2, i % 2 ? 'v' : 'k', i % 2, bad[i].shown);
        refuse(4, part);
    }
    add_table((const float[SCALES]){ 1, 1, 1, 1, 1, 1, 1, 1 });
    n_extra--;
    add(V_NAME, 1, "F32", "[3]", three, 12);
    refuse(4,
        "tensor model.layers.1.self_attn.v_scale has shape (3); a KV scale is one "
        "number, or one for each of the 2 KV heads");
    n_extra--;
    add(V_NAME, 1, "F32", "[1,1]", three, 4);
    refuse(4, "has shape (1, 1)");
    n_extra--;
    add(V_NAME, 1, "F32", "[0]", three, 0);
    refuse(4, "has shape (0)");
    n_extra--;
    add(V_NAME, 1, "F8_E4M3", "[]", &f8, 1);
    refuse(4,
        "tensor model.layers.1.self_attn.v_scale has dtype F8_E4M3, which is not "
        "supported");
    n_extra--;
    add(V_NAME, 1, "BF16", "[]", &zero, 2);
    refuse(4, "element 0 is 0;");
    n_extra--;
    add(V_NAME, 1, "F16", "[]", &inf16, 2);
    refuse(4, "element 0 is inf;");
}

/* Tensors that only look like scales are not used. */
static void
other_names(void **state)
{
    static const char *const names[] = { "model.layers.2.self_attn.k_scale",
        "model.layers.01.self_attn.k_scale", "model.layers.-1.self_attn.k_scale",
        "model.layers.18446744073709551616.self_attn.k_scale",
        "model.layers.0.self_attn.k_scale_2", "model.layers.0.self_attn.v_proj.k_scale",
        "model.layers.0.self_attn.q_scale", "layers.0.self_attn.k_scale" };
    struct mdl_program *prog = NULL;
    struct mdl_config mc;
    char err[1024] = "";

    (void)state;
    assert_int_equal(mdl_config_read(dir, &mc, err, sizeof(err)), 0);
    assert_int_equal(mdl_build(&mc, 1, &prog, err, sizeof(err)), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct wts_plan *wp = NULL;

        n_extra = 0;
        add_f32(K_NAME, 0, "[]", 1, 0);
        (void)snprintf(extra[0].name, sizeof(extra[0].name), "%s", names[i]);
        make(QWEN, NULL, 0, 0);
        assert_int_equal(wts_plan_new(dir, prog, 0, 0, &wp, err, sizeof(err)), -EINVAL);
        assert_non_null(strstr(err, "1 tensor is not part of the qwen3 model"));
        assert_non_null(strstr(err, names[i]));
    }
    mdl_free(prog);
}

/* ---- through the engine ------------------------------------------------------- */

struct answer {
    float lp[PROMPT];
    int n;
};

static void
on_record(void *arg, struct sim_req *r, const struct fdp_rec *rec)
{
    const struct fdp_logprob *lp = (const void *)(rec + 1);
    struct answer *a = arg;

    (void)r;
    if (rec->type != FDP_T_PROMPT_LOGPROBS)
        return;
    assert_true(rec->position < PROMPT && rec->len >= sizeof(*lp));
    a->lp[rec->position] = lp->logprob;
    a->n++;
}

/* Computes scales from an fp32 cache as a quantizer does: the largest magnitude
 * maps to that of e4m3, 448. */
static void
calibrate(const struct runner *run, float ret[SCALES])
{
    const struct fdk_kv *kv = run_root(run)->kv;
    size_t head = (size_t)(kv->block_size * kv->head_dim);

    assert_int_equal(kv->dtype, FDK_F32);
    for (size_t i = 0; i < SCALES; i++) {
        float top = 0;

        for (uint64_t b = 1; b < run_root(run)->mem.kv / kv->block_bytes; b++) {
            const float *x = (const void *)(run_root(run)->d_kv + b * kv->block_bytes +
                i / (2 * HEADS) * kv->layer_bytes + i / HEADS % 2 * kv->v_bytes);

            for (size_t e = 0; e < head; e++)
                top = fmaxf(top, fabsf(x[i % HEADS * head + e]));
        }
        assert_true(top > 0);
        ret[i] = top / 448;
    }
}

/* Computes the logprobs of a fixed prompt, in chunks, with the model in dir.
 * The scale table on the device must be want (NULL: none). ret_table: the
 * scales that the cache would need. */
static void
ask(enum fdk_dtype kv, const float want[SCALES], struct answer *ret, float ret_table[SCALES])
{
    struct sim_cfg c = { .max_reqs = 2,
        .max_seqs = 2,
        .max_tokens = 40,
        .max_len = 128,
        .n_block = 16,
        .block_size = 16,
        .chunked = 1,
        .kv_dtype = (int32_t)kv + 1,
        .backend = "cpu",
        .model_dir = dir };
    struct sim *s = sim_new(&c);
    struct sim_req *r = sim_req(s);

    assert_int_equal(run_root(s->run)->mem.kv_scales,
        mpl_scale_bytes(run_root(s->run)->kv, 1));
    if (want == NULL) {
        assert_null(run_root(s->run)->kv[0].scale);
        assert_int_equal(run_root(s->run)->mem.kv_scales, 0);
    } else {
        assert_int_equal(run_root(s->run)->mem.kv_scales, SCALES * sizeof(float));
        assert_memory_equal(run_root(s->run)->kv[0].scale, want, SCALES * sizeof(float));
    }
    memset(ret, 0, sizeof(*ret));
    s->record = on_record;
    s->record_arg = ret;
    r->n_prompt = PROMPT;
    r->prompt = mem_array(PROMPT, 4);
    assert_non_null(r->prompt);
    for (uint32_t i = 0; i < PROMPT; i++)
        r->prompt[i] = 3 + i * i * 7 % 251;
    r->p.max_new = 1;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_PROMPT_LOGPROBS;
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    assert_int_equal(r->code, 0);
    assert_true(ret->n >= PROMPT - 1);
    if (ret_table != NULL)
        calibrate(s->run, ret_table);
    sim_free(s);
}

static double
distance(const struct answer *a, const struct answer *b)
{
    double worst = 0;

    for (int i = 1; i < PROMPT; i++) {
        double d = fabs((double)a->lp[i] - (double)b->lp[i]);

        worst = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

static void
logprobs(void **state)
{
    static const char *const models[] = { QWEN, "llama31-gqa-tied-bf16" };
    static const float ones[SCALES] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    struct answer f32, plain, unit, scaled, other;
    float table[SCALES];

    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        n_extra = 0;
        make(models[i], NULL, 0, 0);
        ask(FDK_F32, NULL, &f32, table);
        ask(FDK_F8E4M3, ones, &plain, NULL);
        add_table(ones);
        make(models[i], NULL, 0, 0);
        ask(FDK_F8E4M3, ones, &unit, NULL);
        add_table(table);
        make(models[i], NULL, 0, 0);
        ask(FDK_F8E4M3, table, &scaled, NULL);
        ask(FDK_F32, NULL, &other, NULL);
        (void)printf("%s: fp8 from fp32: %.3g with scales 1, %.3g with calibrated ones\n",
            models[i], distance(&f32, &plain), distance(&f32, &scaled));
        assert_memory_equal(&plain, &unit, sizeof(plain));
        assert_memory_equal(&f32, &other, sizeof(f32));
        assert_memory_not_equal(&plain, &scaled, sizeof(plain));
        assert_true(distance(&f32, &plain) <= TOL);
        assert_true(distance(&f32, &scaled) <= TOL);
        assert_true(distance(&f32, &scaled) > 0);
    }
}

/* A scale so large that all values round to 0 removes one head of one layer, as zeros in
 * its rows of the projection do. So each scale is applied at its place. */
static void
every_scale_has_its_head(void **state)
{
    struct answer rest, huge, zeros;
    char name[MDL_NAME];

    (void)state;
    for (int i = 0; i < SCALES; i++) {
        float t[SCALES] = { 1, 1, 1, 1, 1, 1, 1, 1 };
        uint64_t head_dim = 32, head = (uint64_t)i % HEADS;

        n_extra = 0;
        make(QWEN, NULL, 0, 0);
        ask(FDK_F8E4M3, t, &rest, NULL);
        (void)snprintf(name, sizeof(name), "model.layers.%d.self_attn.%c_proj.weight",
            i / (2 * HEADS), i / HEADS % 2 ? 'v' : 'k');
        make(QWEN, name, head * head_dim, head_dim);
        ask(FDK_F8E4M3, t, &zeros, NULL);
        t[i] = 1e30f;
        add_table(t);
        make(QWEN, NULL, 0, 0);
        ask(FDK_F8E4M3, t, &huge, NULL);
        assert_memory_equal(&huge, &zeros, sizeof(huge));
        assert_memory_not_equal(&huge, &rest, sizeof(huge));
    }
}

static int
setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/u_kv_scale.XXXXXX");
    return mkdtemp(dir) == NULL;
}

static int
teardown(void **state)
{
    char path[4096];

    (void)state;
    path_of(path, NULL, "model.safetensors");
    (void)unlink(path);
    path_of(path, NULL, "config.json");
    (void)unlink(path);
    return rmdir(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_shapes),
        cmocka_unit_test(missing_ones),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(other_names),
        cmocka_unit_test(logprobs),
        cmocka_unit_test(every_scale_has_its_head),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
