/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of small models for tests of loading: a list of tensors, files made from
 * it, plans, and loads with checks of the arena. The content of a tensor follows from its
 * name. Include it after config.h.
 */
#ifndef FDD_TESTS_UNIT_WEIGHTS_FIXTURE_H
#define FDD_TESTS_UNIT_WEIGHTS_FIXTURE_H

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
#include <sysexits.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/worker/weights_priv.h"
#include "tests/test_device.h"

#define CONFIG \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"hidden_size\":64,\"intermediate_size\":96," \
    "\"vocab_size\":256,\"max_position_embeddings\":512,\"attention_bias\":true," \
    "\"tie_word_embeddings\":%s,\"dtype\":\"%s\"}"
#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"
#define MAX_T  64

static char dir[64];
static int n_reader, background; /* settings of the loads that follow */
static struct io_uring *ring;    /* rings made before the load, NULL: none */
static int n_ring;
static struct mdl_program *prog;
static struct fdk_ctx *ctx;
static const struct fdk_ops *k = &fdk_ops_cpu;

/* ---- a model directory ---- */

struct spec {
    char name[MDL_NAME];
    const char *dtype;
    int32_t rows, cols;
};
static struct spec spec[MAX_T];
static int n_spec;

static inline void
path_of(char *path, size_t n, const char *name)
{
    snprintf(path, n, "%s/%s", dir, name);
}

static inline void
write_file(const char *name, const void *data, size_t n)
{
    char path[256];
    FILE *f;

    path_of(path, sizeof(path), name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline size_t
width(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 ? 4
        : strcmp(dtype, "U8") == 0 || strcmp(dtype, "F8_E4M3") == 0
        ? 1
        : 2;
}

/* Element i of a tensor: small integers, exact in every type; scales are positive. */
static inline int
value(const char *name, size_t i)
{
    int is_scale = strstr(name, "_scale") != NULL;
    unsigned h = 7;

    for (; *name != '\0'; name++)
        h = h * 31 + (unsigned char)*name;
    return (int)((h + i * 37) % 101) - (is_scale ? -1 : 50);
}

static inline uint32_t
bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    return u;
}

static inline uint16_t
to_half(int v)
{
    uint32_t u = bits((float)v);

    return v == 0
        ? 0
        : (uint16_t)((u >> 16 & 0x8000) | (((u & 0x7fffffff) - 0x38000000) >> 13));
}

static inline void
put(char *p, const char *dtype, int v)
{
    uint32_t u = bits((float)v);
    uint16_t h = strcmp(dtype, "BF16") == 0 ? (uint16_t)(u >> 16) : to_half(v);

    if (strcmp(dtype, "F32") == 0)
        memcpy(p, &u, 4);
    else if (strcmp(dtype, "F8_E4M3") == 0)
        *p = (char)(v & 0xf7); /* no NaN */
    else
        memcpy(p, &h, width(dtype));
}

/* Writes the tensors first, first + step, .. as one file. */
static inline void
write_tensors(const char *name, int first, int step)
{
    size_t data = 0, n = 1;
    char *head = malloc(1 << 16), *out = malloc(1 << 20), *p;
    uint64_t len;

    assert_non_null(head);
    assert_non_null(out);
    head[0] = '{';
    for (int i = first; i < n_spec; i += step) {
        const struct spec *s = &spec[i];
        size_t bytes =
            (size_t)s->rows * (size_t)(s->cols > 0 ? s->cols : 1) * width(s->dtype);

        n += (size_t)sprintf(head + n, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d",
            i == first ? "" : ",", s->name, s->dtype, s->rows);
        if (s->cols > 0)
            n += (size_t)sprintf(head + n, ",%d", s->cols);
        n += (size_t)sprintf(head + n, "],\"data_offsets\":[%zu,%zu]}", data, data + bytes);
        data += bytes;
    }
    head[n++] = '}';
    while (n % 8 != 0)
        head[n++] = ' ';
    len = n;
    memcpy(out, &len, 8);
    memcpy(out + 8, head, n);
    p = out + 8 + n;
    for (int i = first; i < n_spec; i += step) {
        const struct spec *s = &spec[i];
        size_t elts = (size_t)s->rows * (size_t)(s->cols > 0 ? s->cols : 1);

        for (size_t e = 0; e < elts; e++, p += width(s->dtype))
            put(p, s->dtype, value(s->name, e));
    }
    write_file(name, out, (size_t)(p - out));
    free(head);
    free(out);
}

static inline struct spec *
spec_of(const char *part)
{
    for (int i = 0; i < n_spec; i++)
        if (strstr(spec[i].name, part) != NULL)
            return &spec[i];
    fail_msg("no tensor %s", part);
    return NULL;
}

static inline void
add_spec(const char *name, const char *dtype, int32_t rows, int32_t cols)
{
    struct spec *s = &spec[n_spec++];

    assert_true(n_spec <= MAX_T);
    snprintf(s->name, sizeof(s->name), "%s", name);
    s->dtype = dtype;
    s->rows = rows;
    s->cols = cols;
}

static inline void
unlink_all(void)
{
    static const char *const name[] = { SINGLE, INDEX, "config.json", "a.safetensors",
        "b.safetensors", "blob", "tokenizer.json" };
    char path[256];

    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        path_of(path, sizeof(path), name[i]);
        unlink(path);
    }
}

/* Writes config.json and makes the list of tensors that its
 * model needs, all of one type. */
static inline void
model(const char *tied, const char *config_dtype, const char *dtype)
{
    struct mdl_config cfg;
    char text[1024], err[512] = "";
    int n = snprintf(text, sizeof(text), CONFIG, tied, config_dtype);

    unlink_all();
    write_file("config.json", text, (size_t)n);
    mdl_free(prog);
    prog = NULL;
    if (mdl_config_read(dir, &cfg, err, sizeof(err)) != 0 ||
        mdl_build(&cfg, 1, &prog, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    n_spec = 0;
    for (int32_t i = 0; i < prog->n_w; i++)
        for (int j = 0; j < prog->w[i].n_part && prog->w[i].alias < 0; j++)
            add_spec(prog->w[i].name[j], dtype, prog->w[i].rows[j], prog->w[i].cols);
}

static inline struct wts_plan *
plan(int dummy)
{
    struct wts_plan *wp = NULL;
    char err[1024] = "";

    if (wts_plan_new(dir, prog, dummy, 5, &wp, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    return wp;
}

static inline void
plan_refused(int rc, const char *code, const char *part)
{
    struct wts_plan *wp = NULL;
    char err[1024] = "";
    int got = wts_plan_new(dir, prog, 0, 0, &wp, err, sizeof(err));

    if (got != rc || strncmp(err, code, strlen(code)) != 0 || strstr(err, part) == NULL ||
        strchr(err, '\n') != NULL)
        fail_msg("rc %d, '%s'; expected %d, %s, '%s'", got, err, rc, code, part);
    assert_null(wp);
}

/* ---- loading ---- */

/* Loads the weights. Returns a copy of the arena; the caller frees it. */
static inline char *
load(struct wts_plan *wp, int uring, size_t buffer, int want_rc, const char *want_err)
{
    uint64_t done = 0, total = 0;
    struct wts_load_args la = { uring, buffer, &done, &total, background, ring, n_ring };
    char err[1024] = "", *copy = malloc(wts_bytes(wp));
    fdk_stream_t st;
    void *arena;
    int rc;

    assert_non_null(copy);
    wp->st->n_reader = n_reader;
    assert_int_equal(k->mem_alloc(ctx, td_dev(), wts_bytes(wp), &arena), 0);
    assert_int_equal(k->stream_new(ctx, td_dev(), &st), 0);
    assert_int_equal(k->fill(st, arena, 0xee, wts_bytes(wp)), 0);
    assert_int_equal(k->stream_sync(st), 0);
    rc = wts_load(wp, k, ctx, &(struct wts_at){ td_dev(), arena }, 1, &la, err, sizeof(err));
    if (rc == 0 && background)
        rc = wts_load_wait(wp, err, sizeof(err));
    if (rc != want_rc || strncmp(err, want_err, strlen(want_err)) != 0)
        fail_msg("rc %d, '%s'; expected %d, '%s'", rc, err, want_rc, want_err);
    if (rc == 0)
        assert_true(done > 0 && done <= total && total == wts_bytes(wp));
    assert_int_equal(k->copy(st, copy, arena, wts_bytes(wp)), 0);
    assert_int_equal(k->stream_sync(st), 0);
    k->stream_free(st);
    k->mem_free(ctx, td_dev(), arena);
    return copy;
}

/* Checks that every weight is at the plan's offset, in the plan's type. */
static inline void
check_arena(const struct wts_plan *wp, const char *arena)
{
    static const char *const name[] = { "F32", "F16", "BF16" };

    for (int32_t i = 0; i < prog->n_w; i++) {
        const struct wts_ref *w = &prog->w[i];
        enum fdk_dtype t = wts_dtype(wp, i);
        const char *p = arena + wts_offset(wp, i);
        char want[4];

        assert_int_equal(wts_offset(wp, i) % 256, 0);
        if (w->alias >= 0) {
            assert_int_equal(wts_offset(wp, i), wts_offset(wp, w->alias));
            assert_int_equal(t, wts_dtype(wp, w->alias));
            continue;
        }
        if (w->as_f32)
            assert_int_equal(t, FDK_F32);
        for (int j = 0; j < w->n_part; j++) {
            size_t n = (size_t)w->rows[j] * (size_t)(w->cols > 0 ? w->cols : 1);

            for (size_t e = 0; e < n; e++, p += width(name[t])) {
                put(want, name[t], value(w->name[j], e));
                if (memcmp(p, want, width(name[t])) != 0)
                    fail_msg("%s element %zu", w->name[j], e);
            }
        }
    }
}

/* weight_pack() of a fake device with separate memory: the loader sends chunks through
 * slots and its stream, and the device converts. */
static inline int
device_pack(const struct fdk_pack_args *a, fdk_stream_t st)
{
    int rc = k->stream_sync(st);

    return rc != 0 ? rc : fdk_ops_cpu.weight_pack(a, NULL);
}

static inline void
use_device(int on)
{
    static struct fdk_ops device;

    device = fdk_ops_cpu;
    device.on_host = 0;
    device.weight_pack = device_pack;
    k = on ? &device : &fdk_ops_cpu;
}

static inline void
load_and_check(int uring, size_t buffer)
{
    struct wts_plan *wp = plan(0);
    char *arena = load(wp, uring, buffer, 0, "");

    check_arena(wp, arena);
    if (!uring)
        assert_string_equal(wts_how(wp), "pread");
    free(arena);
    wts_plan_free(wp);
}

static inline int
setup(void **state)
{
    struct fdk_open_args oa = { .n_device = 1, .n_thread = 1, .max_token = 8 };
    char err[256];

    td_open(&oa);
    (void)state;
    strcpy(dir, "/tmp/u_weights.XXXXXX");
    return mkdtemp(dir) == NULL || k->open(&oa, &ctx, err, sizeof(err)) != 0;
}

static inline int
teardown(void **state)
{
    (void)state;
    unlink_all();
    rmdir(dir);
    mdl_free(prog);
    k->close(ctx);
    return 0;
}

#endif
