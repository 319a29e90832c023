/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of a tensor-parallel group: what its ranks have, put together, is to the byte what
 * one device loads of the same files, in every format; and every byte is read once.
 */
#include "config.h"

#include "tests/unit/weights_fixture.h"

#define MAX_RANK 8
#define MANY \
    "\"num_attention_heads\":24,\"num_key_value_heads\":%d,\"head_dim\":8," \
    "\"intermediate_size\":192,\"hidden_size\":64,\"num_hidden_layers\":2"
#define WIDE \
    "\"num_attention_heads\":24,\"num_key_value_heads\":%d,\"head_dim\":64," \
    "\"intermediate_size\":1536,\"hidden_size\":32,\"num_hidden_layers\":1"

static const int32_t sizes[] = { 2, 3, 4, 6, 8 };
#define N_SIZE (sizeof(sizes) / sizeof(sizes[0]))

#ifdef FDD_SANITIZED
#define FEW 1
#else
#define FEW 0
#endif

struct sample {
    const char *type, *shape, *more; /* of config.json */
    int32_t kv_heads;
    const char *dtype; /* of the tensors */
    const char *quant; /* fp8 of the matrices of layers, by "quant_method": or NULL */
    enum fdk_dtype to; /* quantized while loading; FDK_F32: not */
    int32_t group;
    int dummy;
};

/* What one device has, and each rank. */
struct loaded {
    struct mdl_program *p;
    struct wts_plan *wp;
    char *arena[MAX_RANK];
    uint64_t read;
};

/* ---- files ---- */

static int
is_layer_matrix(const struct wts_ref *w)
{
    return w->cols > 0 && strstr(w->name[0], ".layers.") != NULL;
}

static void
add_scales(const char *name, enum mdl_quant quant, int32_t rows, int32_t cols)
{
    char s[MDL_NAME + 16];

    snprintf(s, sizeof(s), "%.100s_scale", name);
    if (quant == MDL_QUANT_BLOCK)
        add_spec(s, "F32", (rows + 127) / 128, (cols + 127) / 128);
    else
        add_spec(s, "F32", quant == MDL_QUANT_TENSOR ? 1 : rows, 0);
}

static void
write_model(const struct sample *s)
{
    struct mdl_program *p = NULL;
    struct mdl_config cfg;
    char text[1024], err[512] = "", shape[512];
    int n;

    unlink_all();
    (void)snprintf(shape, sizeof(shape), s->shape, s->kv_heads);
    n = snprintf(text, sizeof(text),
        "{\"model_type\":\"%s\",\"vocab_size\":250,\"max_position_embeddings\":512,"
        "\"dtype\":\"%s\",%s%s%s}",
        s->type, strcmp(s->dtype, "F32") == 0 ? "float32" : "bfloat16", shape, s->more,
        s->quant != NULL ? s->quant : "");
    write_file("config.json", text, (size_t)n);
    if (mdl_config_read(dir, &cfg, err, sizeof(err)) != 0 ||
        mdl_build(&cfg, 1, &p, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    n_spec = 0;
    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];
        int fp8 = s->quant != NULL && is_layer_matrix(w);

        for (int j = 0; j < w->n_part && w->alias < 0; j++) {
            add_spec(w->name[j], fp8 ? "F8_E4M3" : s->dtype, w->rows[j], w->cols);
            if (fp8)
                add_scales(w->name[j], cfg.quant, w->rows[j], w->cols);
        }
    }
    mdl_free(p);
    write_tensors(SINGLE, 0, 1);
}

/* ---- loading ---- */

static int64_t
count_read(void *arg, uint64_t off, size_t n, int64_t res)
{
    (void)off;
    (void)n;
    if (res > 0)
        *(uint64_t *)arg += (uint64_t)res;
    return res;
}

static int
try_plan(const struct sample *s, int32_t n_rank, struct loaded *l, char *err, size_t n)
{
    const struct qnt q = { s->to, s->group };
    struct mdl_config cfg;
    int rc = mdl_config_read(dir, &cfg, err, n);

    if (rc == 0)
        rc = mdl_build(&cfg, n_rank, &l->p, err, n);
    if (rc == 0)
        rc = wts_plan_new(dir, l->p, s->dummy, 5, &l->wp, err, n);
    if (rc == 0 && s->to != FDK_F32)
        rc = wts_plan_quantize(l->wp, l->p, &q, err, n);
    return rc == 0 ? wts_plan_layout(l->wp, l->p, k, err, n) : rc;
}

static void
drop(struct loaded *l)
{
    for (int i = 0; i < MAX_RANK; i++)
        if (l->arena[i] != NULL)
            k->mem_free(ctx, i, l->arena[i]);
    wts_plan_free(l->wp);
    mdl_free(l->p);
    memset(l, 0, sizeof(*l));
}

static const struct wts_plan *device_plan;

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

/* Several threads find what is not finite. */
static int
ranks_pack(const struct fdk_pack_args *a, fdk_stream_t st)
{
    struct fdk_pack_args mine = *a;
    uint64_t bad = UINT64_MAX, least;
    int rc = k->stream_sync(st);

    mine.bad = &bad;
    if (rc == 0)
        rc = fdk_ops_cpu.weight_pack(&mine, NULL);
    least = a->bad != NULL ? __atomic_load_n(a->bad, __ATOMIC_RELAXED) : 0;
    while (bad < least &&
        !__atomic_compare_exchange_n(a->bad, &least, bad, 0, __ATOMIC_RELAXED,
            __ATOMIC_RELAXED))
        ;
    return rc;
}

static void
as_device(int on)
{
    static struct fdk_ops device;

    use_device(on);
    if (!on)
        return;
    device = *k;
    device.dummy = device_dummy;
    device.weight_pack = ranks_pack;
    k = &device;
}

/* Ways to load: where to, how much staging, how many threads, by which calls. */
#define N_WAY 8
static int
load_ranks(struct loaded *l, int32_t n, int way, char *err, size_t err_bytes)
{
    static const size_t buffers[] = { 1, 20000, 1 << 20, 1 };
    uint64_t done = 0, total = 0;
    const struct wts_load_args la = { way >> 1 & 1, buffers[way & 3], &done, &total,
        way >> 2 & 1, NULL, 0 };
    struct wts_at at[MAX_RANK];
    int rc;

    for (int32_t r = 0; r < n; r++) {
        void *p;

        assert_int_equal(k->mem_alloc(ctx, r, wts_bytes(l->wp), &p), 0);
        memset(p, 0xee, wts_bytes(l->wp));
        l->arena[r] = p;
        at[r] = (struct wts_at){ r, p };
    }
    l->wp->st->n_reader = way == 0 ? 0 : 3;
    l->wp->st->fault_arg = l->wp->st->fault == NULL ? &l->read : l->wp->st->fault_arg;
    l->wp->st->fault = l->wp->st->fault == NULL ? count_read : l->wp->st->fault;
    device_plan = l->wp;
    rc = wts_load(l->wp, k, ctx, at, n, &la, err, err_bytes);
    if (rc == 0)
        rc = wts_load_wait(l->wp, err, err_bytes);
    if (rc == 0)
        assert_true(done > 0 && done <= total && total == wts_bytes(l->wp) * (uint64_t)n);
    return rc;
}

static void
load_model(const struct sample *s, int32_t n_rank, int32_t n_at, int way, struct loaded *l)
{
    char err[1024] = "";

    memset(l, 0, sizeof(*l));
    if (try_plan(s, n_rank, l, err, sizeof(err)) != 0 ||
        load_ranks(l, n_at, way, err, sizeof(err)) != 0)
        fail_msg("%d ranks: %s", n_rank, err);
}

/* ---- comparing ---- */

static const char *
values_at(const struct loaded *l, int32_t r, int32_t i, int64_t row)
{
    const struct fdk_weight w = wts_weight(l->wp, i);

    return l->arena[r] + wts_offset(l->wp, i) +
        (size_t)row * fdk_row_bytes(w.format, (size_t)w.cols);
}

static const char *
scales_at(const struct loaded *l, int32_t r, int32_t i, int64_t row)
{
    const struct fdk_weight w = wts_weight(l->wp, i);

    return l->arena[r] + wts_offset(l->wp, i) + w.scale_at +
        (size_t)row * (size_t)fdk_weight_groups(&w) * sizeof(float);
}

static int
all_zero(const char *p, size_t n)
{
    while (n > 0 && *p == 0) {
        p++;
        n--;
    }
    return n == 0;
}

/* Row `row` of rank r's weight i is row `of` of the model's, of which the rank has the columns
 * from its own on; of = -1: zeros. */
static void
check_row(const struct loaded *one, const struct loaded *l, int32_t i, int32_t r,
    int64_t row, int64_t of)
{
    const struct fdk_weight a = wts_weight(one->wp, i), b = wts_weight(l->wp, i);
    size_t bytes = fdk_row_bytes(b.format, (size_t)b.cols);
    size_t scales = (size_t)fdk_weight_groups(&b) * sizeof(float);
    size_t off = 0, scale_off = 0;

    if (b.cols < a.cols) {
        off = (size_t)r * bytes;
        scale_off = a.group == a.cols ? 0 : (size_t)r * scales;
    }
    if (of < 0
            ? !all_zero(values_at(l, r, i, row), bytes) ||
                !all_zero(scales_at(l, r, i, row), scales)
            : memcmp(values_at(l, r, i, row), values_at(one, 0, i, of) + off, bytes) != 0)
        fail_msg("%s: row %lld of rank %d of %d", l->p->w[i].name[0], (long long)row, r,
            l->p->n_rank);
    if (of >= 0 &&
        memcmp(scales_at(l, r, i, row), scales_at(one, 0, i, of) + scale_off, scales) != 0)
        fail_msg("%s: scales of row %lld of rank %d of %d", l->p->w[i].name[0],
            (long long)row, r, l->p->n_rank);
}

static void
check_weight(const struct loaded *one, const struct loaded *l, int32_t i, int32_t r)
{
    const struct wts_ref *w = &l->p->w[i];
    const struct fdk_weight a = wts_weight(one->wp, i), b = wts_weight(l->wp, i);
    int64_t row = 0, first = 0;

    assert_int_equal(a.format, b.format);
    assert_int_equal(b.cols, w->cols == 0 ? 1 : w->rank_cols);
    assert_int_equal(b.layout, FDK_LAYOUT_ROWS);
    assert_int_equal(b.group, a.group == a.cols ? b.cols : a.group);
    for (int32_t c = 0; c < w->n_cut; c++) {
        const struct wts_cut *cut = &w->cut[c];
        int64_t from = (int64_t)(r / cut->share) * cut->rank_rows;

        for (int64_t j = 0; j < cut->rank_rows; j++)
            check_row(one, l, i, r, row++,
                from + j < cut->rows && (w->shard != WTS_FIRST || r == 0)
                    ? first + from + j
                    : -1);
        first += cut->rows;
    }
    assert_int_equal(row, b.rows);
}

static void
check_ranks(const struct loaded *one, const struct loaded *l)
{
    assert_int_equal(one->p->n_w, l->p->n_w);
    for (int32_t i = 0; i < l->p->n_w; i++)
        for (int32_t r = 0; r < l->p->n_rank; r++) {
            int32_t of = l->p->w[i].alias;

            if (of < 0)
                check_weight(one, l, i, r);
            else
                assert_true(wts_offset(l->wp, i) == wts_offset(l->wp, of));
        }
}

/* Every size that divides, in every way. */
static void
check_sample(const struct sample *s)
{
    struct loaded one;

    as_device(0);
    if (!s->dummy)
        write_model(s);
    load_model(s, 1, 1, 0, &one);
    for (size_t i = 0; i < N_SIZE; i++)
        for (int way = 0; way < N_WAY; way++) {
            struct loaded l;

            if ((s->kv_heads % sizes[i] != 0 && sizes[i] % s->kv_heads != 0) ||
                (FEW && (i + (size_t)way) % 5 != 0))
                continue;
            as_device(way & 1);
            load_model(s, sizes[i], sizes[i], way, &l);
            check_ranks(&one, &l);
            assert_true(s->dummy || (l.read == one.read && l.read > 0));
            drop(&l);
        }
    as_device(0);
    drop(&one);
}

/* ---- tests ---- */

#define BIASES ",\"attention_bias\":true,\"mlp_bias\":true"
#define TIED   ",\"tie_word_embeddings\":true"

static void
floats(void **state)
{
    static const struct sample samples[] = {
        { "granite", MANY, BIASES, 24, "BF16", NULL, FDK_F32, 0, 0 },
        { "granite", MANY, BIASES TIED, 2, "F16", NULL, FDK_F32, 0, 0 },
        { "llama", MANY, TIED, 1, "F32", NULL, FDK_F32, 0, 0 },
        { "phi3", MANY, "", 2, "BF16", NULL, FDK_F32, 0, 0 },
        { "glm4", MANY, ",\"attention_bias\":true", 6, "F16", NULL, FDK_F32, 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
        check_sample(&samples[i]);
}

/* Tensors of one weight in two types are widened. */
static void
mixed_types(void **state)
{
    const struct sample s = { "llama", MANY, "", 2, "BF16", NULL, FDK_F32, 0, 0 };
    struct loaded one, four;

    (void)state;
    write_model(&s);
    spec_of("1.self_attn.k_proj")->dtype = "F16";
    spec_of("0.mlp.up_proj")->dtype = "F32";
    write_tensors(SINGLE, 0, 1);
    load_model(&s, 1, 1, 0, &one);
    for (int way = 0; way < N_WAY; way++) {
        as_device(way & 1);
        load_model(&s, 4, 4, way, &four);
        check_ranks(&one, &four);
        assert_int_equal(four.read, one.read);
        drop(&four);
    }
    as_device(0);
    drop(&one);
}

static void
quantized(void **state)
{
    static const struct sample samples[] = {
        { "granite", MANY, BIASES, 2, "BF16", NULL, FDK_I8, 0, 0 },
        { "llama", MANY, "", 24, "F32", NULL, FDK_I4, 0, 0 },
        { "phi3", MANY, "", 1, "F16", NULL, FDK_F8E4M3, 0, 0 },
        { "llama", WIDE, "", 2, "F16", NULL, FDK_I8, 64, 0 },
        { "phi3", WIDE, "", 24, "BF16", NULL, FDK_I4, 32, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
        check_sample(&samples[i]);
}

#define FP8(more) ",\"quantization_config\":{\"quant_method\":\"fp8\"" more "}"
#define CHANNEL \
    ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\"," \
    "\"format\":\"float-quantized\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"]," \
    "\"weights\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\"," \
    "\"symmetric\":true,\"dynamic\":false},\"input_activations\":{\"num_bits\":8," \
    "\"type\":\"float\",\"strategy\":\"token\",\"symmetric\":true,\"dynamic\":true}}}}"

static void
checkpoints_in_fp8(void **state)
{
    static const struct sample samples[] = {
        { "llama", MANY, "", 2, "BF16", FP8(",\"activation_scheme\":\"dynamic\""),
            FDK_F32, 0, 0 },
        { "llama", MANY, "", 24, "BF16", CHANNEL, FDK_F32, 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
        check_sample(&samples[i]);
}

/* Blocks of 128 rows may be cut, those of columns may not. */
static void
fp8_blocks(void **state)
{
    const struct sample s = { "llama", WIDE, "", 2, "BF16",
        FP8(",\"weight_block_size\":[128,128]"), FDK_F32, 0, 0 };
    struct loaded one, l;
    char err[1024] = "";

    (void)state;
    write_model(&s);
    load_model(&s, 1, 1, 0, &one);
    assert_int_equal(wts_weight(one.wp, one.p->op[3].w).format, FDK_F8E4M3);
    for (int way = 0; way < N_WAY; way++)
        for (int32_t n = 2; n <= 6; n += 2) {
            as_device(way & 1);
            load_model(&s, n, n, way, &l);
            check_ranks(&one, &l);
            assert_int_equal(l.read, one.read);
            drop(&l);
        }
    as_device(0);
    memset(&l, 0, sizeof(l));
    assert_int_equal(try_plan(&s, 8, &l, err, sizeof(err)), -EINVAL);
    assert_string_equal(err,
        "W_MODEL: tensor model.layers.0.self_attn.o_proj.weight has 1536 columns, which are "
        "192 for each of 8 ranks: no multiple of the 128 that share a scale; set "
        "parallel.tensor_parallel_size to a size that does not cut the checkpoint's blocks");
    drop(&l);
    drop(&one);
}

static void
random_weights(void **state)
{
    static const struct sample samples[] = {
        { "granite", MANY, BIASES, 2, "BF16", NULL, FDK_F32, 0, 1 },
        { "phi3", MANY, "", 24, "F32", NULL, FDK_I4, 0, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        write_model(&samples[i]);
        check_sample(&samples[i]);
    }
}

/* Copies of all ranks, of one and of several, from one reading. */
static void
copies(void **state)
{
    const struct sample s = { "llama", MANY, "", 2, "BF16", NULL, FDK_I8, 0, 0 };
    struct loaded one, l;
    char err[256] = "";

    (void)state;
    write_model(&s);
    load_model(&s, 1, 1, 0, &one);
    for (int way = 0; way < N_WAY; way++) {
        as_device(way & 1);
        load_model(&s, 2, 6, way, &l);
        check_ranks(&one, &l);
        for (int32_t r = 2; r < 6; r++)
            for (int32_t i = 0; i < l.p->n_w; i++)
                assert_memory_equal(values_at(&l, r, i, 0), values_at(&l, r % 2, i, 0),
                    wts_weight(l.wp, i).bytes);
        assert_int_equal(l.read, one.read);
        drop(&l);
        load_model(&s, 1, 3, way, &l);
        for (int32_t r = 0; r < 3; r++)
            for (int32_t i = 0; i < l.p->n_w; i++)
                assert_memory_equal(values_at(&l, r, i, 0), values_at(&one, 0, i, 0),
                    wts_weight(l.wp, i).bytes);
        assert_int_equal(l.read, one.read);
        drop(&l);
    }
    as_device(0);
    memset(&l, 0, sizeof(l));
    assert_int_equal(try_plan(&s, 2, &l, err, sizeof(err)), 0);
    assert_int_equal(load_ranks(&l, 3, 0, err, sizeof(err)), -EINVAL);
    assert_string_equal(err, "W_IO: weights of 2 ranks cannot go to 3 arenas");
    drop(&l);
    drop(&one);
}

/* ---- errors ---- */

static int64_t
fail_at(void *arg, uint64_t off, size_t n, int64_t res)
{
    uint64_t at = *(const uint64_t *)arg;

    return off <= at && at < off + n ? -EIO : res;
}

/* The error of a load with n ranks. */
static void
error_of(const struct sample *s, int32_t n, int way, uint64_t *fault, char *err, size_t size)
{
    struct loaded l;

    memset(&l, 0, sizeof(l));
    if (try_plan(s, n, &l, err, size) != 0)
        fail_msg("%s", err);
    l.wp->st->fault = fault != NULL ? fail_at : NULL;
    l.wp->st->fault_arg = fault;
    assert_int_not_equal(load_ranks(&l, n, way, err, size), 0);
    drop(&l);
}

/* Make an element NaN. */
static void
spoil(const struct wts_plan *wp, const char *name, uint64_t i)
{
    const struct wts_tensor *t = wts_find(wp, name);
    FILE *f = fopen(wp->file[0].path, "r+");

    assert_true(f != NULL && t != NULL && t->dtype == FDK_BF16);
    assert_int_equal(fseek(f, (long)(t->off + 2 * i), SEEK_SET), 0);
    assert_int_equal(fwrite("\xc0\x7f", 2, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

/* With any number of ranks the first in the files' order, as with one. */
static void
errors(void **state)
{
    static const struct sample samples[] = {
        { "llama", MANY, "", 2, "BF16", NULL, FDK_I8, 0, 0 },
        { "llama", WIDE, "", 2, "BF16", NULL, FDK_I8, 32, 0 },
    };
    static const char down[] = "model.layers.0.mlp.down_proj.weight";

    (void)state;
    for (size_t s = 0; s < 2; s++) {
        char want[1024] = "", got[1024] = "";
        uint64_t cols = s == 0 ? 192 : 1536, fault;
        struct loaded l;

        write_model(&samples[s]);
        memset(&l, 0, sizeof(l));
        assert_int_equal(try_plan(&samples[s], 1, &l, want, sizeof(want)), 0);
        /* The first of these is what a later rank has. */
        spoil(l.wp, down, 5 * cols + cols - 3);
        spoil(l.wp, down, 7 * cols + 1);
        spoil(l.wp, down, 20 * cols + cols / 2);
        fault = wts_find(l.wp, "model.layers.0.mlp.gate_proj.weight")->off + 100;
        drop(&l);
        for (int way = 0; way < N_WAY; way++)
            for (int32_t n = 1; n <= 4; n += n) {
                as_device(way & 1);
                error_of(&samples[s], n, way, NULL, got, sizeof(got));
                if (strstr(got, "down_proj.weight: element (5, ") == NULL)
                    fail_msg("%d ranks, way %d: %s", n, way, got);
                error_of(&samples[s], n, way, &fault, got, sizeof(got));
                if (strncmp(got, "W_IO: ", 6) != 0 || strstr(got, "gate_proj") == NULL)
                    fail_msg("%d ranks, way %d: %s", n, way, got);
            }
        as_device(0);
    }
}

static void
refusals(void **state)
{
    const struct sample odd = { "llama",
        "\"num_attention_heads\":6,\"num_key_value_heads\":%d,\"head_dim\":2,"
        "\"intermediate_size\":18,\"hidden_size\":64,\"num_hidden_layers\":1",
        "", 6, "BF16", NULL, FDK_I4, 0, 0 };
    const struct sample group = { "llama", MANY, "", 4, "BF16", NULL, FDK_I8, 64, 0 };
    struct loaded l;
    char err[1024];

    (void)state;
    write_model(&odd);
    memset(&l, 0, sizeof(l));
    assert_int_equal(try_plan(&odd, 2, &l, err, sizeof(err)), -EINVAL);
    assert_string_equal(err,
        "W_MODEL: tensor model.layers.0.mlp.down_proj.weight has 9 columns for each rank: "
        "quant.weights=wint4 packs two of a row into a byte and needs an even number; use "
        "wint8 or none");
    drop(&l);
    write_model(&group);
    assert_int_equal(try_plan(&group, 4, &l, err, sizeof(err)), -EINVAL);
    assert_string_equal(err,
        "W_MODEL: tensor model.layers.0.self_attn.o_proj.weight has 192 columns, which are 48 "
        "for each of 4 ranks: no multiple of the 64 that share a scale; set quant.group_size "
        "to one that divides them, or to 0 (a scale per row)");
    drop(&l);
}

/* A rank's scales of keys and values are those of its heads. */
static void
kv_scales(void **state)
{
    const struct sample s = { "llama", MANY, "", 2, "BF16", NULL, FDK_F32, 0, 0 };
    const float all[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    struct mdl_config cfg;
    char err[256];

    (void)state;
    write_model(&s);
    assert_int_equal(mdl_config_read(dir, &cfg, err, sizeof(err)), 0);
    for (int32_t n = 1; n <= 8; n += n) {
        struct mdl_program *p = NULL;

        assert_int_equal(mdl_build(&cfg, n, &p, err, sizeof(err)), 0);
        for (int32_t r = 0; r < n; r++) {
            float got[8] = { 0 };

            wts_kv_scales_of(p, all, r, got);
            for (int32_t i = 0; i < 4; i++)
                for (int32_t h = 0; h < p->n_kv_head; h++)
                    assert_true(got[i * p->n_kv_head + h] ==
                        all[i * 2 + (n == 1 ? h : r / (n / 2))]);
        }
        mdl_free(p);
    }
}

static int
setup_ranks(void **state)
{
    const struct fdk_open_args oa = { .n_device = MAX_RANK, .n_thread = 1, .max_token = 8 };
    char err[256];

    (void)state;
    strcpy(dir, "/tmp/u_ranks.XXXXXX");
    return mkdtemp(dir) == NULL || k->open(&oa, &ctx, err, sizeof(err)) != 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats),
        cmocka_unit_test(mixed_types),
        cmocka_unit_test(quantized),
        cmocka_unit_test(checkpoints_in_fp8),
        cmocka_unit_test(fp8_blocks),
        cmocka_unit_test(random_weights),
        cmocka_unit_test(copies),
        cmocka_unit_test(errors),
        cmocka_unit_test(refusals),
        cmocka_unit_test(kv_scales),
    };

    return cmocka_run_group_tests(tests, setup_ranks, teardown);
}
