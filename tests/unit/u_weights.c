/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/weights_fixture.h"

/* ---- types ---- */

static void
load_types(void **state)
{
    static const char *const dtype[] = { "F32", "F16", "BF16" };
    struct wts_plan *wp;

    (void)state;
    for (int t = 0; t < 3; t++) {
        model(t == 1 ? "true" : "false", "float32", dtype[t]);
        write_tensors(SINGLE, 0, 1);
        for (int how = 0; how < 16; how++) {
            use_device(how & 1);
            n_reader = how & 2 ? 5 : 0;
            background = how >> 2 & 1;
            load_and_check(how >> 3, 1);
            load_and_check(how >> 3, 100000);
            load_and_check(how >> 3, 64 << 20);
        }
        n_reader = background = 0;
        use_device(0);
        wp = plan(0);
        assert_int_equal(wts_main_dtype(wp), t);
        assert_string_equal(wts_ignored(wp), "");
        wts_plan_free(wp);
    }
    /* Parts of one weight in different types: that weight becomes F32. */
    spec_of("0.self_attn.k_proj.weight")->dtype = "F16";
    write_tensors(SINGLE, 0, 1);
    load_and_check(1, 1);
    wp = plan(0);
    for (int32_t i = 0; i < prog->n_w; i++)
        if (strcmp(prog->w[i].name[0], "model.layers.0.self_attn.q_proj.weight") == 0)
            assert_int_equal(wts_dtype(wp, i), FDK_F32);
    assert_int_equal(wts_main_dtype(wp), FDK_BF16);
    wts_plan_free(wp);
}

static void
half_floats(void **state)
{
    const uint16_t h[] = { 0, 0x8000, 0x3c00, 0xc000, 0x0001, 0x8001, 0x03ff, 0x0400,
        0x7bff, 0x7c00, 0xfc00, 0x7e00 };
    const float f[] = { 0, -0.0f, 1, -2, 0x1p-24f, -0x1p-24f, 0x1.ff8p-15f, 0x1p-14f,
        65504, INFINITY, -INFINITY, NAN };
    float out[12];

    (void)state;
    fdk_to_f32(out, h, FDK_F16, 12);
    for (int i = 0; i < 11; i++)
        assert_int_equal(bits(out[i]), bits(f[i]));
    assert_true(isnan(out[11]));
}

/* ---- shards and links ---- */

static void
write_index(const char *a, const char *b)
{
    char *text = malloc(1 << 16);
    size_t n = (size_t)sprintf(text, "{\"metadata\":{},\"weight_map\":{");

    for (int i = 0; i < n_spec; i++)
        n += (size_t)sprintf(text + n, "%s\"%s\":\"%s\"", i == 0 ? "" : ",", spec[i].name,
            i % 2 == 0 ? a : b);
    n += (size_t)sprintf(text + n, "}}");
    write_file(INDEX, text, n);
    free(text);
}

static void
shards(void **state)
{
    char a[256], b[256], c[256];

    (void)state;
    model("false", "bfloat16", "BF16");
    write_tensors("a.safetensors", 0, 2);
    write_tensors("b.safetensors", 1, 2);
    write_index("a.safetensors", "b.safetensors");
    load_and_check(1, 1);
    load_and_check(0, 1);
    write_index("b.safetensors", "a.safetensors");
    plan_refused(-EINVAL, "W_MODEL",
        "is not in it, though " INDEX " says so; it is in a.safe");
    /* The two files swapped on disk. */
    write_index("a.safetensors", "b.safetensors");
    path_of(a, sizeof(a), "a.safetensors");
    path_of(b, sizeof(b), "b.safetensors");
    path_of(c, sizeof(c), "blob");
    assert_int_equal(rename(a, c) | rename(b, a) | rename(c, b), 0);
    plan_refused(-EINVAL, "W_MODEL", "is not in it");
    write_tensors("a.safetensors", 0, 1);
    plan_refused(-EINVAL, "W_MODEL", "is in both");
    unlink(a);
    plan_refused(-ENOENT, "W_PATH", "a.safetensors");
    write_index("../a.safetensors", "b.safetensors");
    plan_refused(-EINVAL, "W_PATH", "../a.safetensors is not the name");
    write_index("/etc/passwd", "b.safetensors");
    plan_refused(-EINVAL, "W_PATH", "/etc/passwd is not the name");
    write_file(INDEX, "{\"weight_map\":{\"x\":1}}", 22);
    plan_refused(-EINVAL, "W_JSON", "other than file names");
    write_file(INDEX, "{\"weight_map\":[]}", 17);
    plan_refused(-EINVAL, "W_JSON", "no object weight_map");
    write_file(INDEX, "{\"weight_map\":{}", 16);
    plan_refused(-EINVAL, "W_JSON", "line 1");
    write_file(INDEX, "{\"weight_map\":{}}", 17);
    plan_refused(-EINVAL, "W_MODEL", "tensors that config.json asks for are missing");
}

static void
links(void **state)
{
    char path[256];

    (void)state;
    model("false", "float32", "F32");
    write_tensors("blob", 0, 1);
    path_of(path, sizeof(path), SINGLE);
    assert_int_equal(symlink("blob", path), 0);
    load_and_check(1, 1 << 20);
    unlink(path);
    assert_int_equal(symlink("nowhere", path), 0);
    plan_refused(-EINVAL, "W_PATH", "a link to a file that is not there");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    plan_refused(-EINVAL, "W_PATH", "not a regular file");
    rmdir(path);
    plan_refused(-ENOENT, "W_PATH", "neither " SINGLE " nor");
}

/* ---- what the program asks for ---- */

static void
expected_set(void **state)
{
    struct wts_plan *wp;

    (void)state;
    model("true", "float32", "F32");
    n_spec--;
    write_tensors(SINGLE, 0, 1);
    plan_refused(-EINVAL, "W_MODEL",
        "1 tensor that config.json asks for is missing: "
        "model.norm.weight");
    n_spec = 2;
    write_tensors(SINGLE, 0, 1);
    plan_refused(-EINVAL, "W_MODEL",
        "tensors that config.json asks for are missing: "
        "model.layers.0.self_attn.q_proj.weight, "
        "model.layers.0.self_attn.k_proj.weight, ");
    model("true", "float32", "F32");
    spec_of("1.mlp.up_proj")->rows = 95;
    write_tensors(SINGLE, 0, 1);
    plan_refused(-EINVAL, "W_MODEL",
        "tensor model.layers.1.mlp.up_proj.weight has shape "
        "(95, 64); config.json asks for (96, 64)");
    model("true", "float32", "F32");
    spec_of("0.input_layernorm")->cols = 1;
    write_tensors(SINGLE, 0, 1);
    plan_refused(-EINVAL, "W_MODEL", "has shape (64, 1); config.json asks for (64)");
    model("true", "float32", "F32");
    spec_of("down_proj")->dtype = "U8";
    write_tensors(SINGLE, 0, 1);
    plan_refused(-EINVAL, "W_MODEL", "has dtype U8, which is not supported");
    model("true", "float32", "F32");
    add_spec("model.layers.2.input_layernorm.weight", "F32", 64, 0);
    write_tensors(SINGLE, 0, 1);
    plan_refused(-EINVAL, "W_MODEL",
        "1 tensor is not part of the llama model of config.json "
        "(2 layers): model.layers.2.input_layernorm.weight");
    /* Harmless ones are reported, in any type. */
    model("true", "float32", "F32");
    add_spec("model.layers.1.self_attn.rotary_emb.inv_freq", "U8", 8, 0);
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    assert_string_equal(wts_ignored(wp), "1: model.layers.1.self_attn.rotary_emb.inv_freq");
    wts_plan_free(wp);
    load_and_check(1, 1);
    /* Of every family: a Granite with rotary frequencies did not load. */
    snprintf(prog->cfg.family, sizeof(prog->cfg.family), "granite");
    wp = plan(0);
    assert_string_equal(wts_ignored(wp), "1: model.layers.1.self_attn.rotary_emb.inv_freq");
    wts_plan_free(wp);
    model("false", "float32", "F32");
    add_spec("model.layers.x.self_attn.rotary_emb.inv_freq", "F32", 8, 0);
    write_tensors(SINGLE, 0, 1);
    plan_refused(-EINVAL, "W_MODEL", "layers.x");
}

static void
rename_spec(const char *in_name, const char *name)
{
    struct spec *s = spec_of(in_name);

    snprintf(s->name, sizeof(s->name), "%s", name);
}

/* A tied checkpoint that was saved with its head in place of the embedding did not load. */
static void
head_without_embedding(void **state)
{
    struct wts_plan *wp;

    (void)state;
    model("true", "bfloat16", "BF16");
    rename_spec("embed_tokens", "lm_head.weight");
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    assert_int_equal(prog->cfg.tied, 1);
    assert_non_null(wts_find(wp, "model.embed_tokens.weight"));
    assert_string_equal(wts_ignored(wp), "");
    wts_plan_free(wp);
    model("false", "bfloat16", "BF16");
    rename_spec("embed_tokens", "model.embed.weight");
    write_tensors(SINGLE, 0, 1);
    plan_refused(-EINVAL, "W_MODEL", "missing: model.embed_tokens.weight");
}

/* Of the files that there are. */
static void
build_again(void)
{
    struct mdl_config cfg;
    char err[512] = "";

    mdl_free(prog);
    prog = NULL;
    if (mdl_config_read(dir, &cfg, err, sizeof(err)) != 0 ||
        mdl_build(&cfg, 1, &prog, err, sizeof(err)) != 0)
        fail_msg("%s", err);
}

/* The head's bytes become those of the embedding but for the last flip ones. */
static void
head_is_embedding(const struct wts_plan *wp, size_t flip)
{
    const struct wts_tensor *head = wts_find(wp, "lm_head.weight");
    const struct wts_tensor *embed = wts_find(wp, "model.embed_tokens.weight");
    char path[256], *data = malloc(embed->bytes);
    FILE *f;

    assert_non_null(data);
    assert_int_equal(head->bytes, embed->bytes);
    path_of(path, sizeof(path), SINGLE);
    f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)embed->off, SEEK_SET), 0);
    assert_int_equal(fread(data, 1, embed->bytes, f), embed->bytes);
    for (size_t i = 0; i < flip; i++)
        data[embed->bytes - 1 - i] ^= 1;
    assert_int_equal(fseek(f, (long)head->off, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, embed->bytes, f), embed->bytes);
    assert_int_equal(fclose(f), 0);
    free(data);
}

/* A head that config.json ties and the file has too was dropped, whatever it was. */
static void
tied_and_there(void **state)
{
    struct wts_plan *wp;
    char *arena;

    (void)state;
    model("true", "bfloat16", "BF16");
    add_spec("lm_head.weight", "BF16", 256, 64);
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    assert_int_equal(prog->cfg.tied, 0);
    assert_string_equal(wts_ignored(wp), "");
    arena = load(wp, 0, 1 << 20, 0, "");
    check_arena(wp, arena);
    free(arena);
    for (size_t flip = 0; flip < 2; flip++) {
        head_is_embedding(wp, flip);
        wts_plan_free(wp);
        build_again();
        wp = plan(0);
        assert_int_equal(prog->cfg.tied, flip == 0);
        assert_string_equal(wts_ignored(wp), flip == 0 ? "1: lm_head.weight" : "");
    }
    wts_plan_free(wp);
    model("true", "bfloat16", "BF16");
    add_spec("lm_head.weight", "F32", 256, 64);
    write_tensors(SINGLE, 0, 1);
    load_and_check(0, 1 << 20);
    assert_int_equal(prog->cfg.tied, 0);
    model("true", "bfloat16", "BF16");
    add_spec("lm_head.weight", "BF16", 255, 64);
    write_tensors(SINGLE, 0, 1);
    plan_refused(-EINVAL, "W_MODEL",
        "tensor lm_head.weight has shape (255, 64); "
        "config.json asks for (256, 64)");
}

static void
damaged_files(void **state)
{
    static const char *const codes[] = { "W_HDRLEN", "W_JSON", "W_LAYOUT", "W_SHAPE" };
    char path[256], err[1024], *data = malloc(1 << 20);
    struct wts_plan *wp = NULL;
    size_t n, cut;
    FILE *f;

    (void)state;
    assert_non_null(data);
    model("true", "float32", "BF16");
    write_tensors(SINGLE, 0, 1);
    path_of(path, sizeof(path), SINGLE);
    f = fopen(path, "r");
    assert_non_null(f);
    n = fread(data, 1, 1 << 20, f);
    fclose(f);
    for (cut = 0; cut < n; cut += cut < 16 ? 1 : 4093) {
        int known = 0;

        write_file(SINGLE, data, cut);
        assert_int_equal(wts_plan_new(dir, prog, 0, 0, &wp, err, sizeof(err)), -EINVAL);
        for (int i = 0; i < 4; i++)
            known |= strncmp(err, codes[i], strlen(codes[i])) == 0;
        if (!known)
            fail_msg("cut at %zu: %s", cut, err);
    }
    data[n] = 0;
    write_file(SINGLE, data, n + 1);
    plan_refused(-EINVAL, "W_LAYOUT", "end at byte");
    memset(data, 0xff, 8);
    write_file(SINGLE, data, n);
    plan_refused(-EINVAL, "W_HDRLEN", "header of 18446744073709551615 bytes");
    write_file(SINGLE, "version https://git-lfs.github.com/spec/v1\n", 43);
    plan_refused(-EINVAL, "W_HDRLEN", "git lfs pull");
    free(data);
}

/* ---- faults ---- */

struct fault {
    int n_eio, every; /* EIO at each of every n-th read, n_eio times a place */
    uint64_t at;
    int n, times, short_read, end;
};

static int64_t
on_read(void *arg, uint64_t off, size_t n, int64_t res)
{
    struct fault *f = arg;

    f->n++;
    if (f->short_read && res > 1)
        return 1 + (int64_t)(off * 2654435761u % (uint64_t)res);
    if (f->end && f->n > 3)
        return 0;
    if (f->n_eio == 0 || n == 0)
        return res;
    if (f->at == 0)
        f->at = off;
    return off == f->at && f->times++ < f->n_eio ? -EIO : res;
}

static void
faults(void **state)
{
    struct wts_plan *wp;
    struct fault f;
    char *arena;

    (void)state;
    model("false", "float32", "BF16");
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    wp->st->fault = on_read;
    wp->st->fault_arg = &f;
    for (int uring = 0; uring < 2; uring++) {
        f = (struct fault){ .n_eio = 3 };
        arena = load(wp, uring, 1, 0, "");
        check_arena(wp, arena);
        free(arena);
        assert_int_equal(f.times, 4);
        f = (struct fault){ .n_eio = 4 };
        free(load(wp, uring, 1, -EIO, "W_IO: "));
        f = (struct fault){ .short_read = 1 };
        arena = load(wp, uring, 1, 0, "");
        check_arena(wp, arena);
        free(arena);
        f = (struct fault){ .end = 1 };
        free(load(wp, uring, 1, -EINVAL, "W_TRUNC: "));
    }
    wp->st->fault = NULL;
    wp->st->uring_errno = EPERM;
    arena = load(wp, 1, 1 << 20, 0, "");
    check_arena(wp, arena);
    assert_string_equal(wts_how(wp), "pread");
    free(arena);
    wts_plan_free(wp);
}

static void
touch(const char *path)
{
    struct timespec t[2] = { { 1000000000, 0 }, { 1000000000, 0 } };

    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

/* Truncates the file once loading is under way. */
static int64_t
cut_file(void *arg, uint64_t off, size_t n, int64_t res)
{
    (void)off;
    (void)n;
    assert_int_equal(truncate(arg, 5000), 0);
    return res;
}

static void
changed_files(void **state)
{
    struct wts_plan *wp;
    char path[256], other[256];

    (void)state;
    model("false", "float32", "F32");
    path_of(path, sizeof(path), SINGLE);
    path_of(other, sizeof(other), "blob");
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    touch(path);
    free(load(wp, 1, 1 << 20, -EINVAL, "W_CHANGED: "));
    wts_plan_free(wp);
    wp = plan(0);
    write_tensors("blob", 0, 1);
    assert_int_equal(rename(other, path), 0);
    free(load(wp, 0, 1 << 20, -EINVAL, "W_CHANGED: "));
    wts_plan_free(wp);
    wp = plan(0);
    unlink(path);
    free(load(wp, 0, 1 << 20, -EINVAL, "W_CHANGED: "));
    wts_plan_free(wp);
    for (int uring = 0; uring < 2; uring++) {
        write_tensors(SINGLE, 0, 1);
        wp = plan(0);
        wp->st->fault = cut_file;
        wp->st->fault_arg = path;
        free(load(wp, uring, 16384, -EINVAL, "W_TRUNC: "));
        wts_plan_free(wp);
    }
}

/* ---- the rest ---- */

static void
dummy(void **state)
{
    struct wts_plan *wp;
    char *a, *b;

    (void)state;
    model("true", "bfloat16", "BF16");
    wp = plan(1);
    assert_int_equal(wts_main_dtype(wp), FDK_BF16);
    a = load(wp, 0, 1, 0, "");
    b = load(wp, 1, 1 << 20, 0, "");
    assert_string_equal(wts_how(wp), "dummy");
    for (int32_t i = 0; i < prog->n_w; i++) {
        const struct wts_ref *w = &prog->w[i];
        size_t n = wts_n_elt(&wp->place[i].w), elt = wts_dtype(wp, i) == FDK_F32 ? 4 : 2;
        const char *p = a + wts_offset(wp, i);
        double sum = 0, sq = 0, mean, sd, want_sd = 0.02, want = 0, worst = 0;

        /* Independent of chunks. */
        assert_memory_equal(p, b + wts_offset(wp, i), n * elt);
        for (size_t e = 0; e < n; e++) {
            uint32_t u = 0;
            float f;

            memcpy((char *)&u + 4 - elt, p + e * elt, elt);
            memcpy(&f, &u, 4);
            sum += f;
            sq += (double)f * f;
        }
        mean = sum / (double)n;
        sd = sqrt(sq / (double)n - mean * mean);
        if (w->cols == 0)
            want = strstr(w->name[0], "norm") != NULL ? 1 : 0;
        else if (strstr(w->name[0], "embed") == NULL && w->alias < 0)
            want_sd = 1 / sqrt(w->cols);
        worst = 5 * want_sd / sqrt((double)n);
        if (fabs(mean - want) > worst || fabs(sd / want_sd - 1) > 4 / sqrt((double)n))
            fail_msg("%s: mean %g sd %g, expected %g %g", w->name[0], mean, sd, want,
                want_sd);
    }
    free(a);
    free(b);
    wts_plan_free(wp);
}

static void
digests(void **state)
{
    struct wts_plan *wp;
    uint8_t a[32], b[32];

    (void)state;
    model("true", "float32", "F32");
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    wts_digest(wp, a);
    wts_plan_free(wp);
    wp = plan(0);
    wts_digest(wp, b);
    wts_plan_free(wp);
    assert_memory_equal(a, b, 32);
    spec_of("up_proj")->dtype = "BF16";
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    wts_digest(wp, b);
    wts_plan_free(wp);
    assert_memory_not_equal(a, b, 32);
}

static void
check_dir(void **state)
{
    char text[2048], path[256];
    FILE *f;

    (void)state;
    model("true", "float32", "F32");
    write_tensors(SINGLE, 0, 1);
    f = fmemopen(text, sizeof(text), "w");
    assert_non_null(f);
    assert_int_equal(wts_check_dir(dir, f), EX_OK);
    fclose(f);
    assert_non_null(strstr(text, "layers      2, hidden 64, ffn 96\n"));
    assert_non_null(strstr(text, "tokenizer   none"));
    assert_non_null(strstr(text, "weights     F32, "));
    assert_non_null(strstr(text, "\nok\n"));
    f = fopen("/dev/null", "w");
    assert_non_null(f);
    assert_int_equal(wts_check_dir("/nonexistent", f), EX_NOINPUT);
    spec_of("up_proj")->rows--;
    write_tensors(SINGLE, 0, 1);
    assert_int_equal(wts_check_dir(dir, f), EX_DATAERR);
    if (geteuid() != 0) {
        path_of(path, sizeof(path), SINGLE);
        assert_int_equal(chmod(path, 0), 0);
        assert_int_equal(wts_check_dir(dir, f), EX_NOPERM);
    }
    fclose(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_types),
        cmocka_unit_test(half_floats),
        cmocka_unit_test(shards),
        cmocka_unit_test(links),
        cmocka_unit_test(expected_set),
        cmocka_unit_test(tied_and_there),
        cmocka_unit_test(head_without_embedding),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(faults),
        cmocka_unit_test(changed_files),
        cmocka_unit_test(dummy),
        cmocka_unit_test(digests),
        cmocka_unit_test(check_dir),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
