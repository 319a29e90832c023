/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading with quantization: what lands in the arena is, row by row, what
 * cpu_quant_row() makes of the rows that land there without it.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/worker/weights_priv.h"
#include "kernels/cpu/cpu.h"
#include "tests/test_device.h"

#define CONFIG \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"hidden_size\":%d,\"head_dim\":16," \
    "\"intermediate_size\":%d,\"vocab_size\":256,\"max_position_embeddings\":512," \
    "\"tie_word_embeddings\":true,\"dtype\":\"%s\"}"

static const struct fdk_ops *k = &fdk_ops_cpu;
static struct fdk_ctx *ctx;
static struct mdl_program *prog;
static char dir[64];

static const struct qnt schemes[] = { { FDK_I8, 0 }, { FDK_I8, 32 }, { FDK_I8, 64 },
    { FDK_I8, 128 }, { FDK_I4, 0 }, { FDK_I4, 32 }, { FDK_I4, 64 }, { FDK_I4, 128 },
    { FDK_F8E4M3, 0 }, { FDK_F8E4M3, 32 }, { FDK_F8E4M3, 128 } };
#define N_SCHEME (sizeof(schemes) / sizeof(schemes[0]))
/* Of the six ways to load a directory TSan, under which one takes seconds, tries
 * every third with each scheme, another one with the next. */
#ifdef FDD_TSAN
#define LOAD_STEP 3
#else
#define LOAD_STEP 1
#endif

/* ---- loading ---- */

static struct wts_plan *
plan(const char *path, int dummy, const struct qnt *q)
{
    struct wts_plan *wp = NULL;
    struct mdl_config cfg;
    char err[1024] = "";

    mdl_free(prog);
    prog = NULL;
    if (mdl_config_read(path, &cfg, err, sizeof(err)) != 0 ||
        mdl_build(&cfg, 1, &prog, err, sizeof(err)) != 0 ||
        wts_plan_new(path, prog, dummy, 5, &wp, err, sizeof(err)) != 0 ||
        (q != NULL && wts_plan_quantize(wp, prog, q, err, sizeof(err)) != 0))
        fail_msg("%s", err);
    return wp;
}

/* A device with memory of its own, as far as the loader can tell. */
static const struct wts_plan *device_plan;

/* What it does in the order of its stream. */
static int
device_pack(const struct fdk_pack_args *a, fdk_stream_t st)
{
    struct fdk_pack_args mine = *a;
    uint64_t bad = UINT64_MAX;
    int rc;

    assert_int_equal(k->stream_sync(st), 0);
    mine.bad = &bad;
    rc = fdk_ops_cpu.weight_pack(&mine, NULL);
    if (bad < __atomic_load_n(a->bad, __ATOMIC_RELAXED))
        __atomic_store_n(a->bad, bad, __ATOMIC_RELAXED);
    return rc;
}

/* Which weight it is shows in the key. */
static int
device_dummy(const struct fdk_dummy_args *a, fdk_stream_t st)
{
    const struct wts_plan *wp = device_plan;
    int32_t i = 0;

    assert_int_equal(k->stream_sync(st), 0);
    while (i < wp->n_place && wts_dummy_args(wp, i, 0, 1).key != a->key)
        i++;
    assert_true(i < wp->n_place && wp->place[i].src == a->y_dtype);
    wts_dummy_fill(wp, i, a->first, (size_t)a->n, a->y);
    return 0;
}

static void
use_device(int on)
{
    static struct fdk_ops device;

    device = fdk_ops_cpu;
    device.on_host = 0;
    device.weight_pack = device_pack;
    device.dummy = device_dummy;
    k = on ? &device : &fdk_ops_cpu;
}

static char *
load(struct wts_plan *wp, int uring, size_t buffer, const char *want_err)
{
    uint64_t done = 0, total = 0;
    struct wts_load_args la = { uring, buffer, &done, &total, 0, NULL, 0 };
    char err[1024] = "", *copy = malloc(wts_bytes(wp));
    fdk_stream_t st;
    void *arena;
    int rc;

    assert_non_null(copy);
    device_plan = wp;
    assert_int_equal(k->mem_alloc(ctx, td_dev(), wts_bytes(wp), &arena), 0);
    assert_int_equal(k->stream_new(ctx, td_dev(), &st), 0);
    assert_int_equal(k->fill(st, arena, 0xee, wts_bytes(wp)), 0);
    assert_int_equal(k->stream_sync(st), 0);
    rc = wts_load(wp, k, ctx, &(struct wts_at){ td_dev(), arena }, 1, &la, err, sizeof(err));
    if ((rc == 0) != (want_err[0] == '\0') || strstr(err, want_err) == NULL)
        fail_msg("rc %d, '%s'; expected '%s'", rc, err, want_err);
    if (rc == 0)
        assert_true(done > 0 && done <= total && total == wts_bytes(wp));
    assert_int_equal(k->copy(st, copy, arena, wts_bytes(wp)), 0);
    assert_int_equal(k->stream_sync(st), 0);
    k->stream_free(st);
    k->mem_free(ctx, td_dev(), arena);
    return copy;
}

/* ---- comparing ---- */

static int
in_layer_gemm(int32_t w)
{
    for (int32_t i = 0; i < prog->n_op; i++)
        if (prog->op[i].kind == MDL_OP_GEMM && prog->op[i].w == w)
            return 1;
    return 0;
}

/* Returns the bytes the weight takes, its scales included. */
static uint64_t
check_weight(int32_t i, const struct qnt *q, const struct wts_plan *pa, const char *a,
    const struct wts_plan *pb, const char *b)
{
    const struct wts_ref *w = &prog->w[i];
    enum fdk_dtype t = wts_dtype(pa, i);
    size_t elt = t == FDK_F32 ? 4 : 2, cols = (size_t)(w->cols > 0 ? w->cols : 1);
    size_t packed, n_group, rows = 0;
    char *out;
    float *scale;

    for (int j = 0; j < w->n_part; j++)
        rows += (size_t)w->rows[j];
    assert_int_equal(wts_offset(pb, i) % 256, 0);
    if (!in_layer_gemm(i)) {
        assert_int_equal(wts_dtype(pb, i), t);
        assert_int_equal(wts_weight(pb, i).group + (int)wts_weight(pb, i).scale_at, 0);
        assert_memory_equal(a + wts_offset(pa, i), b + wts_offset(pb, i), rows * cols * elt);
        return rows * cols * elt;
    }
    packed = fdk_row_bytes(q->dtype, cols);
    n_group = (size_t)qnt_groups(q, w->cols);
    out = malloc(packed);
    scale = malloc(n_group * 4);
    assert_int_equal(wts_dtype(pb, i), q->dtype);
    assert_int_equal(wts_weight(pb, i).group, qnt_group(q, w->cols));
    assert_int_equal(wts_weight(pb, i).scale_at % 256, 0);
    for (size_t r = 0; r < rows; r++) {
        int32_t at;

        assert_int_equal(cpu_quant_row(out, scale, a + wts_offset(pa, i) + r * cols * elt,
                             t, w->cols, q->dtype, qnt_group(q, w->cols), &at),
            0);
        assert_memory_equal(b + wts_offset(pb, i) + r * packed, out, packed);
        assert_memory_equal(b + wts_offset(pb, i) + wts_weight(pb, i).scale_at +
                r * n_group * 4,
            scale, n_group * 4);
    }
    free(out);
    free(scale);
    return rows * packed + rows * n_group * 4;
}

static void
check_dir(const char *path, int dummy)
{
    static const size_t buffers[] = { 1, 30000, 1 << 20 };
    struct wts_plan *pa = plan(path, dummy, NULL);
    char *a = load(pa, 1, 1 << 20, "");

    for (size_t s = 0; s < N_SCHEME; s++)
        for (int n = (int)(s % LOAD_STEP); n < 6; n += LOAD_STEP) {
            const struct qnt *q = &schemes[s];
            struct wts_plan *pb = plan(path, dummy, q);
            uint64_t bytes = 0;
            char *b;

            use_device((n + (int)s) % 3 != 0);
            pb->st->n_reader = n % 4;
            b = load(pb, n % 2, buffers[n / 2], "");
            use_device(0);
            for (int32_t i = 0; i < prog->n_w; i++)
                if (prog->w[i].alias < 0)
                    bytes += check_weight(i, q, pa, a, pb, b);
            assert_int_equal(wts_main_dtype(pb), wts_main_dtype(pa));
            for (int32_t i = 0; i < prog->n_w; i++)
                if (in_layer_gemm(i))
                    assert_true(
                        fabs(wts_elt_bytes(pb, i) * (double)wts_n_elt(&pb->place[i].w) -
                            (double)check_weight(i, q, pa, a, pb, b)) < 256);
            /* what the packed form takes, and no more than its alignment */
            assert_true(wts_bytes(pb) >= bytes &&
                wts_bytes(pb) < bytes + (uint64_t)prog->n_w * 2 * WTS_ALIGN);
            free(b);
            wts_plan_free(pb);
        }
    free(a);
    wts_plan_free(pa);
}

static void
checkpoints(void **state)
{
    /* bf16 tied; parts in two types, biases, 48 columns; sharded F32; f16 */
    static const char *const name[] = { "llama31-gqa-tied-bf16", "llama-bias-mixed",
        "llama-linear-sharded", "llama31-old-f16", "qwen3-bf16" };
    const char *src = getenv("srcdir");
    char path[4096];

    (void)state;
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        snprintf(path, sizeof(path), "%s/tests/parity/models/%s", src != NULL ? src : ".",
            name[i]);
        check_dir(path, 0);
    }
}

/* ---- models of a config.json alone ---- */

static void
write_file(const char *name, const void *data, size_t n)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void
write_config(int hidden, int ffn, const char *dtype)
{
    char text[1024];

    write_file("config.json", text,
        (size_t)snprintf(text, sizeof(text), CONFIG, hidden, ffn, dtype));
}

static void
dummy(void **state)
{
    static const char *const dtype[] = { "bfloat16", "float32", "float16" };

    (void)state;
    for (int i = 0; i < 3; i++) {
        /* one row of down_proj is more than a slot of the smallest buffer */
        write_config(64, 2600, dtype[i]);
        check_dir(dir, 1);
    }
}

static void
odd_columns(void **state)
{
    const struct qnt q4 = { FDK_I4, 32 }, q8 = { FDK_I8, 32 }, qf = { FDK_F8E4M3, 0 };
    struct wts_plan *wp;
    char err[1024] = "";

    (void)state;
    write_config(64, 95, "float32");
    wp = plan(dir, 1, &q8);
    free(load(wp, 0, 1 << 20, ""));
    wts_plan_free(wp);
    wp = plan(dir, 1, &qf);
    free(load(wp, 0, 1 << 20, ""));
    wts_plan_free(wp);
    wp = plan(dir, 1, NULL);
    assert_int_equal(wts_plan_quantize(wp, prog, &q4, err, sizeof(err)), -EINVAL);
    assert_string_equal(err,
        "W_MODEL: tensor model.layers.0.mlp.down_proj.weight has 95 "
        "columns: quant.weights=wint4 packs two of a row into a byte and needs an even "
        "number; use wint8 or none");
    wts_plan_free(wp);
}

/* ---- a weight that is not finite ---- */

static char *
read_whole(const char *path, size_t *ret_n)
{
    char *data = malloc(1 << 20);
    FILE *f = fopen(path, "r");

    assert_true(data != NULL && f != NULL);
    *ret_n = fread(data, 1, 1 << 20, f);
    assert_true(*ret_n > 0 && *ret_n < 1 << 20);
    fclose(f);
    return data;
}

static void
not_finite(void **state)
{
    static const char *const file[] = { "config.json", "model.safetensors" };
    const uint16_t inf = 0x7f80;
    const char *src = getenv("srcdir");
    const struct wts_tensor *t;
    struct wts_plan *wp;
    char path[4096], *data = NULL;
    size_t n = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        free(data);
        snprintf(path, sizeof(path), "%s/tests/parity/models/qwen3-bf16/%s",
            src != NULL ? src : ".", file[i]);
        data = read_whole(path, &n);
        write_file(file[i], data, n);
    }
    wp = plan(dir, 0, NULL);
    t = wts_find(wp, "model.layers.1.mlp.up_proj.weight");
    assert_int_equal(t->dtype, FDK_BF16);
    memcpy(data + t->off + 2 * (48 * 7 + 5), &inf, 2);
    wts_plan_free(wp);
    write_file(file[1], data, n);
    for (size_t s = 0; s < N_SCHEME; s++) {
        wp = plan(dir, 0, &schemes[s]);
        for (int how = 0; how < 4; how++) {
            use_device(how & 1);
            free(load(wp, how >> 1, 1,
                "W_MODEL: tensor model.layers.1.mlp.up_proj."
                "weight: element (7, 5) is not finite"));
        }
        use_device(0);
        wts_plan_free(wp);
    }
    /* Unquantized it is the checkpoint's business. */
    wp = plan(dir, 0, NULL);
    free(load(wp, 1, 1, ""));
    wts_plan_free(wp);
    free(data);
}

static void
digests(void **state)
{
    uint8_t sum[N_SCHEME + 1][32];
    struct wts_plan *wp;

    (void)state;
    write_config(64, 96, "float32");
    for (size_t i = 0; i <= N_SCHEME; i++) {
        wp = plan(dir, 1, i < N_SCHEME ? &schemes[i] : NULL);
        wts_digest(wp, sum[i]);
        wts_plan_free(wp);
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(sum[i], sum[j], 32);
    }
}

static void
unlink_all(void)
{
    static const char *const name[] = { "config.json", "model.safetensors" };
    char path[128];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, name[i]);
        unlink(path);
    }
}

static int
setup(void **state)
{
    struct fdk_open_args oa = { .n_device = 1, .n_thread = 1, .max_token = 8 };
    char err[256];

    td_open(&oa);
    (void)state;
    strcpy(dir, "/tmp/u_weights_quant.XXXXXX");
    return mkdtemp(dir) == NULL || k->open(&oa, &ctx, err, sizeof(err)) != 0;
}

static int
teardown(void **state)
{
    (void)state;
    unlink_all();
    rmdir(dir);
    mdl_free(prog);
    k->close(ctx);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints),
        cmocka_unit_test(dummy),
        cmocka_unit_test(odd_columns),
        cmocka_unit_test(digests),
        cmocka_unit_test(not_finite),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
