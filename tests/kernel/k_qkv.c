/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_kv.h"

/* rope_table, then qkv: norms, rotation and the KV write of one layer. */

struct shape {
    int H, K, D, rot, block_size, norm; /* norm 2: one over all heads */
    enum fdk_dtype t;
    int interleaved;
    float offset; /* of the norms' weights */
};

enum { N_BLOCK = 24, LAYERS = 3, LAYER = 1, N_TOK = 21 };

static struct fdk_kv
kv_new(const struct shape *sh, size_t *ret_floats)
{
    struct fdk_kv kv;
    size_t bytes = k_kv_layout(&kv, sh->K, sh->block_size, sh->D, LAYERS, N_BLOCK, sh->t);
    *ret_floats = bytes / 4;
    kv.base = k_new(*ret_floats);
    return kv;
}

static double
kv_read(const struct fdk_kv *kv, int slot, int h, int i, int value)
{
    const char *p = k_kv_at(kv, LAYER, slot, h, value);
    if (kv->dtype == FDK_F32)
        return ((const float *)(const void *)p)[i];
    return k_from_half(((const uint16_t *)(const void *)p)[i], FDK_BF16);
}

/* Expected result of head h of the n at src, in double precision. */
static void
expect(const struct shape *sh, const float *src, int h, int n, const float *norm,
    const double *freq, int pos, double *ret)
{
    int all = sh->norm == 2, m = all ? n * sh->D : sh->D;
    const float *of = all ? src : src + h * sh->D;
    double sq = 0, inv = 1;
    for (int i = 0; i < m; i++)
        sq += (double)of[i] * of[i];
    if (norm != NULL)
        inv = 1 / sqrt(sq / m + 1e-6f);
    src += h * sh->D;
    if (norm != NULL && all)
        norm += h * sh->D;
    for (int i = 0; i < sh->D; i++)
        ret[i] = src[i] * inv * (norm != NULL ? (double)norm[i] + sh->offset : 1);
    for (int i = 0; i < sh->rot / 2; i++) {
        int r = sh->interleaved ? 2 * i : i, j = sh->interleaved ? r + 1 : i + sh->rot / 2;
        double re = ret[r], im = ret[j];
        /* The angle is a product of floats by definition. */
        float angle = (float)pos * (float)freq[i];
        double c = cos(angle) * 1.25, s = sin(angle) * 1.25;
        ret[r] = re * c - im * s;
        ret[j] = im * c + re * s;
    }
}

static void
check(struct k_dev *d, const struct shape *sh)
{
    static struct k_step s;
    float inv_freq[64], norm[2][512];
    double freq[64], want[512];
    size_t stride = (size_t)((sh->H + 2 * sh->K) * sh->D), kv_floats;
    struct fdk_kv kv = kv_new(sh, &kv_floats);
    k_step_init(&s);
    k_step_row(&s, 8, 5, sh->block_size, N_BLOCK, 0);
    k_step_row(&s, 1, 30, sh->block_size, N_BLOCK, 1);
    k_step_row(&s, N_TOK - 9, 0, sh->block_size, N_BLOCK, 2);
    s.slot_map[N_TOK - 1] = -1;
    for (int i = 0; i < sh->rot / 2; i++) {
        inv_freq[i] = powf(10000, -2.0f * (float)i / (float)sh->rot);
        freq[i] = inv_freq[i];
    }
    k_fill(norm[0], 512, 1);
    k_fill(norm[1], 512, 2);
    size_t n = N_TOK * stride, n_cs = (size_t)((N_TOK + 1) * sh->rot);
    float *qkv = k_new(n + stride), *in = malloc(n * 4), *cs = k_new(n_cs);
    k_fill(in, n, 3);
    memcpy(qkv, in, n * 4);
    const struct fdk_rope_table_args ra = {
        .cs = cs,
        .inv_freq = inv_freq,
        .b = &s.b,
        .T = N_TOK + 1,
        .rot = sh->rot,
        .scale = 1.25f,
    };
    const struct fdk_qkv_args a = {
        .qkv = qkv,
        .q_norm = sh->norm ? norm[0] : NULL,
        .k_norm = sh->norm ? norm[1] : NULL,
        .cs = cs,
        .b = &s.b,
        .kv = kv,
        .T = N_TOK + 1,
        .H = sh->H,
        .K = sh->K,
        .D = sh->D,
        .rot = sh->rot,
        .layer = LAYER,
        .eps = 1e-6f,
        .norm_offset = sh->offset,
        .norm_all = sh->norm == 2,
        .interleaved = sh->interleaved,
    };
    if (sh->rot > 0)
        assert_int_equal(d->ops->rope_table(&ra, d->st), 0);
    assert_int_equal(d->ops->qkv(&a, d->st), 0);
    k_sync(d);
    k_check(qkv, n + stride);
    k_check(cs, n_cs);
    k_check(kv.base, kv_floats);
    assert_true(k_untouched(qkv + n, stride));
    for (int t = 0; t < N_TOK; t++) {
        const float *row = in + (size_t)t * stride;
        for (int h = 0; h < sh->H; h++) {
            expect(sh, row, h, sh->H, a.q_norm, freq, s.pos[t], want);
            for (int i = 0; i < sh->D; i++)
                k_assert_near(qkv[(size_t)t * stride + (size_t)(h * sh->D + i)], want[i],
                    2e-6 * (fabs(want[i]) + 1), "q", (size_t)i);
        }
        for (int h = 0; h < sh->K && s.slot_map[t] >= 0; h++) {
            const float *k = row + sh->H * sh->D, *v = k + (sh->K + h) * sh->D;
            double ulp = sh->t == FDK_F32 ? 2e-6 : 0x1p-8;
            expect(sh, k, h, sh->K, a.k_norm, freq, s.pos[t], want);
            for (int i = 0; i < sh->D; i++) {
                k_assert_near(kv_read(&kv, s.slot_map[t], h, i, 0), want[i],
                    ulp * (fabs(want[i]) + 1e-3) + 2e-6, "k", (size_t)i);
                k_assert_near(kv_read(&kv, s.slot_map[t], h, i, 1), v[i],
                    sh->t == FDK_F32 ? 0 : 0x1p-8 * fabs((double)v[i]), "v", (size_t)i);
            }
        }
    }
    free(in);
    k_free(qkv);
    k_free(cs);
    k_free(kv.base);
}

static void
test_reference(void **state)
{
    static const struct shape shapes[] = {
        { 4, 2, 32, 32, 16, 0, FDK_F32, 0, 0 },
        { 4, 2, 32, 16, 16, 0, FDK_F32, 1, 0 },
        { 3, 1, 20, 20, 16, 1, FDK_BF16, 1, 1 },
        { 6, 3, 16, 16, 16, 2, FDK_F32, 0, 0 },
        { 5, 1, 16, 8, 16, 2, FDK_F32, 0, 1 },
        { 2, 1, 32, 0, 16, 1, FDK_F32, 0, 1 },
        { 8, 1, 64, 64, 64, 1, FDK_BF16, 0, 0 },
        { 3, 3, 20, 20, 16, 1, FDK_F32, 0, 0 },
        { 6, 2, 80, 32, 32, 0, FDK_BF16, 0, 0 },
        { 2, 2, 128, 128, 128, 1, FDK_F32, 0, 0 },
        { 2, 1, 17, 2, 48, 1, FDK_BF16, 0, 0 },
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!k_has_isa(k_isas[i]))
            continue;
        struct k_dev d;
        k_open(&d, 2, k_isas[i]);
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            check(&d, &shapes[s]);
        k_close(&d);
    }
}

/* Copies rank's heads of q, k, v from the model's row; `share` ranks have the same K. */
static void
take_rank(const struct shape *sh, int n, int share, int rank, const float *row, float *ret)
{
    size_t h = (size_t)(sh->H / n * sh->D), k = (size_t)(sh->K * share / n * sh->D);
    const float *keys = row + sh->H * sh->D, *values = keys + sh->K * sh->D;

    memcpy(ret, row + (size_t)rank * h, h * 4);
    memcpy(ret + h, keys + (size_t)(rank / share) * k, k * 4);
    memcpy(ret + h + k, values + (size_t)(rank / share) * k, k * 4);
}

/* A norm over the heads of n ranks, each with some of them: q, keys and values
 * have the bits of one device. */
static void
check_ranks(struct k_dev *d, const struct shape *sh, int n, int share)
{
    static struct k_step s;
    const struct shape part = { sh->H / n, sh->K * share / n, sh->D, 0, 16, 2, FDK_F32, 0,
        0 };
    size_t width = (size_t)((sh->H + 2 * sh->K) * sh->D), floats;
    size_t w = (size_t)((part.H + 2 * part.K) * sh->D);
    float norm[2][512],
        *row = malloc(N_TOK * width * 4), *all = k_new(N_TOK * w * (size_t)n);
    float *one = k_new(N_TOK * width), *own = k_new(N_TOK * w);
    struct fdk_kv kv = kv_new(sh, &floats), mine = kv_new(&part, &floats);

    k_step_init(&s);
    k_step_row(&s, N_TOK, 0, 16, N_BLOCK, 1);
    k_fill(norm[0], 512, 1);
    k_fill(norm[1], 512, 2);
    k_fill(row, N_TOK * width, 3);
    memcpy(one, row, N_TOK * width * 4);
    for (size_t t = 0; t < N_TOK; t++)
        for (int r = 0; r < n; r++)
            take_rank(sh, n, share, r, row + t * width,
                all + (t * (size_t)n + (size_t)r) * w);
    struct fdk_qkv_args a = { .qkv = one,
        .q_norm = norm[0],
        .k_norm = norm[1],
        .b = &s.b,
        .kv = kv,
        .T = N_TOK,
        .H = sh->H,
        .K = sh->K,
        .D = sh->D,
        .layer = LAYER,
        .eps = 1e-6f,
        .norm_all = 1 };
    assert_int_equal(d->ops->qkv(&a, d->st), 0);
    k_sync(d);
    a.qkv = own;
    a.kv = mine;
    a.H = part.H;
    a.K = part.K;
    a.all = all;
    a.n_all = n;
    a.all_share = share;
    for (int r = 0; r < n; r++) {
        a.q_norm = norm[0] + r * part.H * sh->D;
        a.k_norm = norm[1] + r / share * part.K * sh->D;
        for (size_t t = 0; t < N_TOK; t++)
            take_rank(sh, n, share, r, row + t * width, own + t * w);
        assert_int_equal(d->ops->qkv(&a, d->st), 0);
        k_sync(d);
        for (size_t t = 0; t < N_TOK; t++) {
            assert_memory_equal(own + t * w, one + t * width + r * part.H * sh->D,
                (size_t)(part.H * sh->D) * 4);
            for (int h = 0; h < 2 * part.K; h++)
                assert_memory_equal(k_kv_at(&mine, LAYER, s.slot_map[t], h / 2, h % 2),
                    k_kv_at(&kv, LAYER, s.slot_map[t], r / share * part.K + h / 2, h % 2),
                    (size_t)sh->D * 4);
        }
    }
    a.n_all = share + 1; /* ranks have different numbers */
    assert_int_equal(d->ops->qkv(&a, d->st), share > 1 ? -EINVAL : 0);
    a.norm_all = 0;
    assert_int_equal(d->ops->qkv(&a, d->st), -EINVAL);
    k_sync(d);
    free(row);
    k_free(all);
    k_free(one);
    k_free(own);
    k_free(kv.base);
    k_free(mine.base);
}

static void
test_norm_of_ranks(void **state)
{
    static const struct shape shapes[] = { { 6, 6, 16, 0, 16, 2, FDK_F32, 0, 0 },
        { 6, 3, 20, 0, 16, 2, FDK_F32, 0, 0 }, { 12, 2, 18, 0, 16, 2, FDK_F32, 0, 0 } };
    static const int ranks[][2] = { { 3, 1 }, { 3, 1 }, { 4, 2 } };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct k_dev d;

        if (!k_has_isa(k_isas[i]))
            continue;
        k_open(&d, 2, k_isas[i]);
        for (int k = 0; k < 3; k++)
            check_ranks(&d, &shapes[k], ranks[k][0], ranks[k][1]);
        k_close(&d);
    }
}

/* Frequencies depend on the greatest length of each row. */
static void
check_rope_len(struct k_dev *d, enum fdk_rope_len len)
{
    enum { ROT = 8, FROM = 40 };
    static struct k_step s;
    static const int32_t max_len[] = { 40, 41, 100 };
    static struct fdk_row state[K_MAX_ROW];
    float freq[ROT], *cs = k_new(N_TOK * ROT);
    k_step_init(&s);
    for (int r = 0; r < 3; r++) {
        k_step_row(&s, 7, 10 * r, 16, N_BLOCK, r);
        state[s.state[r]].max_len = max_len[r];
    }
    for (int i = 0; i < ROT; i++)
        freq[i] = i < ROT / 2 ? powf(100, -2.0f * (float)i / ROT) : 0.25f / (float)(i + 1);
    const struct fdk_rope_table_args a = {
        .cs = cs,
        .inv_freq = freq,
        .b = &s.b,
        .state = state,
        .T = N_TOK,
        .rot = ROT,
        .scale = 0.5f,
        .len = len,
        .long_from = FROM,
        .ntk_theta = 100,
        .ntk_factor = 4,
    };
    assert_int_equal(d->ops->rope_table(&a, d->st), 0);
    k_sync(d);
    k_check(cs, N_TOK * ROT);
    for (int t = 0; t < N_TOK; t++)
        for (int i = 0; i < ROT / 2; i++) {
            int n = max_len[s.row[t]];
            double base = 100 * pow(4.0 * n / FROM - 3, ROT / (ROT - 2.0)), f = freq[i];
            if (n > FROM)
                f = len == FDK_ROPE_LONG ? freq[ROT / 2 + i] : pow(base, -2.0 * i / ROT);
            k_assert_near(cs[t * ROT + i], 0.5 * cos(s.pos[t] * f), 1e-5, "cos", (size_t)i);
            k_assert_near(cs[t * ROT + ROT / 2 + i], 0.5 * sin(s.pos[t] * f), 1e-5, "sin",
                (size_t)i);
        }
    k_free(cs);
}

static void
test_rope_len(void **state)
{
    struct k_dev d;
    (void)state;
    k_open(&d, 1, NULL);
    check_rope_len(&d, FDK_ROPE_LONG);
    check_rope_len(&d, FDK_ROPE_NTK);
    k_close(&d);
}

/* ---- what is written, byte for byte -------------------------------------- */

/* A head's vector as the cache stores it, in plain C. */
static void
put(const struct fdk_kv *kv, int slot, int h, int value, const float *x)
{
    char *p = k_kv_at(kv, LAYER, slot, h, value);
    int D = kv->head_dim;
    float top = 0, scale = 1;
    if (kv->scale != NULL)
        scale = kv->scale[(LAYER * 2 + value) * kv->n_kv_head + h];
    if (kv->dtype == FDK_I8) {
        for (int i = 0; i < D; i++)
            top = isnan(x[i]) || fabsf(x[i]) > top ? fabsf(x[i]) : top;
        scale = top / 127;
        memcpy(k_kv_scale_at(kv, LAYER, slot, h, value), &scale, 4);
    }
    for (int i = 0; i < D; i++) {
        uint16_t half = k_to_bf16(x[i]);
        if (kv->dtype == FDK_F32)
            memcpy(p + 4 * i, &x[i], 4);
        else if (kv->dtype == FDK_BF16)
            memcpy(p + 2 * i, &half, 2);
        else if (kv->dtype == FDK_F8E4M3)
            p[i] = (char)k_to_f8(x[i] / scale);
        else
            p[i] = scale > 0 && isfinite(scale)
                ? (char)fmaxf(-127, fminf(127, rintf(x[i] / scale)))
                : 0;
    }
}

/* Vectors of all kinds: wide and narrow, zero, halves, the edges of e4m3. */
static void
fill_odd(float *x, size_t n, int D, uint64_t seed)
{
    static const float edge[] = {
        0,
        -0.0f,
        448,
        463.9f,
        464,
        465,
        -449,
        1e9f,
        -1e30f,
        0x1p-9f,
        0x1p-10f,
        0x1.8p-9f,
        -0x1.8p-10f,
        0x1p-11f,
        0x1.1p-6f,
        0x1.fp-7f,
        17,
        19,
        1.0625f,
        -1.1875f,
        1e-40f,
        -1e-44f,
        240,
        248,
    };
    for (size_t i = 0; i < n; i++) {
        size_t vec = i / (size_t)D;
        x[i] = k_normal(&seed) * ldexpf(1, (int)(vec * 7 % 23) - 11);
        if (vec % 5 == 1)
            x[i] = edge[k_rand(&seed) % (sizeof(edge) / sizeof(edge[0]))];
        else if (vec % 5 == 2) /* halves between two integers */
            x[i] = i % (size_t)D == 0 ? 127 : (float)((int)(k_rand(&seed) % 254) - 127) / 2;
        else if (vec % 11 == 3)
            x[i] = i % 3 ? 0.0f : -0.0f;
        else if (vec % 13 == 4)
            x[i] *= 1e-42f;
    }
}

static void
check_bytes(struct k_dev *d, const struct shape *sh, const float *scale)
{
    static struct k_step s;
    struct fdk_kv kv, want;
    size_t stride = (size_t)((sh->H + 2 * sh->K) * sh->D), kv_floats;
    kv = kv_new(sh, &kv_floats);
    want = kv_new(sh, &kv_floats);
    kv.scale = want.scale = scale;
    k_step_init(&s);
    k_step_row(&s, 40, 5, sh->block_size, N_BLOCK, 0);
    k_step_row(&s, 1, 30, sh->block_size, N_BLOCK, 1);
    k_step_row(&s, 50, 0, sh->block_size, N_BLOCK, 2);
    s.slot_map[7] = -1;
    float *qkv = malloc((size_t)s.n_tok * stride * 4);
    fill_odd(qkv, (size_t)s.n_tok * stride, sh->D, 8);
    /* NaN, Inf: kept, or the whole vector reads as NaN */
    size_t v0 = (size_t)(sh->H + sh->K) * (size_t)sh->D;
    qkv[3 * stride + v0] = NAN;
    qkv[4 * stride + v0] = -INFINITY;
    for (int t = 0; t < s.n_tok; t++)
        for (int h = 0; h < sh->K && s.slot_map[t] >= 0; h++)
            for (int v = 0; v < 2; v++)
                put(&want, s.slot_map[t], h, v,
                    qkv + (size_t)t * stride + (size_t)((sh->H + v * sh->K + h) * sh->D));
    const struct fdk_qkv_args a = {
        .qkv = qkv,
        .b = &s.b,
        .kv = kv,
        .T = s.n_tok + 1,
        .H = sh->H,
        .K = sh->K,
        .D = sh->D,
        .layer = LAYER,
    };
    assert_int_equal(d->ops->qkv(&a, d->st), 0);
    k_sync(d);
    k_check(kv.base, kv_floats);
    assert_memory_equal(kv.base, want.base, kv_floats * 4);
    free(qkv);
    k_free(kv.base);
    k_free(want.base);
}

/* Every type, odd sizes and every instruction set give the bytes of the reference. */
static void
test_kv_bytes(void **state)
{
    static const struct shape shapes[] = {
        { 2, 2, 17, 0, 16, 0, 0, 0, 0 },
        { 1, 1, 128, 0, 64, 0, 0, 0, 0 },
        { 3, 3, 7, 0, 48, 0, 0, 0, 0 },
        { 4, 1, 80, 0, 32, 0, 0, 0, 0 },
        { 2, 2, 1, 0, 16, 0, 0, 0, 0 },
    };
    static const enum fdk_dtype types[] = { FDK_F32, FDK_BF16, FDK_I8, FDK_F8E4M3 };
    float scale[LAYERS * 2 * 3];
    (void)state;
    for (size_t i = 0; i < LAYERS * 2 * 3; i++)
        scale[i] = i % 4 == 0 ? 0.5f : 0.013f * (float)(i + 1);
    for (int i = 0; i < 3; i++) {
        if (!k_has_isa(k_isas[i]))
            continue;
        struct k_dev d;
        k_open(&d, 2, k_isas[i]);
        for (size_t s = 0; s < 5 * 4; s++) {
            struct shape sh = shapes[s / 4];
            sh.t = types[s % 4];
            check_bytes(&d, &sh, NULL);
            if (sh.t == FDK_F8E4M3)
                check_bytes(&d, &sh, scale);
        }
        k_close(&d);
    }
}

/* All e4m3 roundings: each byte's value, the middle to the next and their
 * neighbours in fp32 on both sides. */
static void
test_f8_rounding(void **state)
{
    enum { D = 512, T = 3 };
    static struct k_step s;
    struct shape sh = { 1, 1, D, 0, 16, 0, FDK_F8E4M3, 0, 0 };
    size_t kv_floats, n = 0;
    struct fdk_kv kv = kv_new(&sh, &kv_floats);
    float *qkv = calloc(T * 3 * D, 4), in[T * D] = { 0 };
    struct k_dev d;
    (void)state;
    for (int c = 0; c < 126; c++) {
        float x = k_from_f8((uint8_t)c), mid = (x + k_from_f8((uint8_t)(c + 1))) / 2;
        const float v[] = { x, nextafterf(x, 1000), mid, nextafterf(mid, 0),
            nextafterf(mid, 1000), -x, -mid, nextafterf(-mid, 0), nextafterf(-mid, -1000),
            nextafterf(-x, 0) };
        for (size_t i = 0; i < 10; i++, n++)
            in[n] = v[i];
    }
    for (int t = 0; t < T; t++)
        memcpy(qkv + t * 3 * D + D, in + t * D, D * 4);
    k_step_init(&s);
    k_step_row(&s, T, 0, 16, N_BLOCK, 0);
    k_open(&d, 1, NULL);
    const struct fdk_qkv_args a = {
        .qkv = qkv,
        .b = &s.b,
        .kv = kv,
        .T = T,
        .H = 1,
        .K = 1,
        .D = D,
        .layer = LAYER,
    };
    assert_int_equal(d.ops->qkv(&a, d.st), 0);
    k_sync(&d);
    for (size_t i = 0; i < n; i++)
        assert_int_equal((uint8_t)k_kv_at(&kv, LAYER, s.slot_map[i / D], 0, 0)[i % D],
            k_to_f8(in[i]));
    k_close(&d);
    k_free(kv.base);
    free(qkv);
}

struct written { /* KV of one graph and of eager launches */
    struct shape sh;
    struct k_dev d;
    struct k_step s;
    struct fdk_graph *g;
    struct fdk_qkv_args a;
    struct fdk_kv kv[2];
    size_t kv_floats;
    float *qkv, *in, *cs;
};

/* Rows of random lengths that start anywhere in a block. */
static void
random_step(struct written *w, uint64_t *seed)
{
    int left = 1 + (int)(k_rand(seed) % N_TOK), B = w->sh.block_size;
    k_step_init(&w->s);
    while (left > 0 && w->s.n_row < 3) {
        int n = 1 + (int)(k_rand(seed) % (uint64_t)left);
        int r = (int)(k_rand(seed) % (uint64_t)B);
        k_step_row(&w->s, n, (int)(k_rand(seed) % 3) * B + r, B, 8, 0);
        for (int i = 0; i < n; i++) { /* the row's own blocks */
            int t = w->s.n_tok - n + i;
            w->s.slot_map[t] =
                ((w->s.n_row - 1) * 8 + w->s.pos[t] / B) * B + w->s.pos[t] % B;
        }
        left -= n;
    }
}

static void
run_written(struct written *w, int replay)
{
    size_t n = (size_t)(N_TOK * (w->sh.H + 2 * w->sh.K) * w->sh.D);
    memcpy(w->qkv, w->in, n * 4);
    w->a.kv = w->kv[replay];
    w->a.T = w->s.n_tok;
    if (replay) {
        assert_int_equal(w->d.ops->graph_launch(w->g, w->d.st), 0);
    } else {
        assert_int_equal(w->d.ops->rope_table(&(struct fdk_rope_table_args){ .cs = w->cs,
                                                  .inv_freq = w->in,
                                                  .b = &w->s.b,
                                                  .T = w->a.T,
                                                  .rot = w->sh.rot,
                                                  .scale = 1 },
                             w->d.st),
            0);
        assert_int_equal(w->d.ops->qkv(&w->a, w->d.st), 0);
    }
    k_sync(&w->d);
}

static void
check_written(struct written *w)
{
    uint64_t seed = 5;
    size_t n = (size_t)(N_TOK * (w->sh.H + 2 * w->sh.K) * w->sh.D);
    k_open(&w->d, 2, NULL);
    w->qkv = malloc(n * 4);
    w->in = malloc(n * 4);
    w->cs = malloc((size_t)(N_TOK * w->sh.rot) * 4);
    for (int i = 0; i < 2; i++)
        w->kv[i] = kv_new(&w->sh, &w->kv_floats);
    k_fill(w->in, n, 4);
    k_step_init(&w->s);
    w->a = (struct fdk_qkv_args){
        .qkv = w->qkv,
        .cs = w->cs,
        .b = &w->s.b,
        .kv = w->kv[1],
        .T = N_TOK,
        .H = w->sh.H,
        .K = w->sh.K,
        .D = w->sh.D,
        .rot = w->sh.rot,
        .layer = LAYER,
    };
    assert_int_equal(w->d.ops->graph_begin(w->d.st), 0);
    assert_int_equal(w->d.ops->rope_table(&(struct fdk_rope_table_args){ .cs = w->cs,
                                              .inv_freq = w->in,
                                              .b = &w->s.b,
                                              .T = N_TOK,
                                              .rot = w->sh.rot,
                                              .scale = 1 },
                         w->d.st),
        0);
    assert_int_equal(w->d.ops->qkv(&w->a, w->d.st), 0);
    assert_int_equal(w->d.ops->graph_end(w->d.st, &w->g), 0);
    for (int round = 0; round < 200; round++) {
        random_step(w, &seed);
        run_written(w, 0);
        run_written(w, 1);
        assert_memory_equal(w->kv[0].base, w->kv[1].base, w->kv_floats * 4);
        /* The newest token of each row is at its place: V is not rotated. */
        for (int r = 0; r < w->s.n_row; r++) {
            int t = w->s.q_start[r + 1] - 1;
            const char *at = k_kv_at(&w->kv[1], LAYER, w->s.slot_map[t], 0, 1);
            char was[4 * 64];
            size_t bytes = (size_t)w->sh.D * fdk_dtype_bytes(w->sh.t);
            memcpy(was, at, bytes);
            put(&w->kv[1], w->s.slot_map[t], 0, 1,
                w->in + (size_t)t * n / N_TOK + (size_t)((w->sh.H + w->sh.K) * w->sh.D));
            assert_memory_equal(was, at, bytes);
        }
    }
    for (int i = 0; i < 2; i++) {
        k_check(w->kv[i].base, w->kv_floats);
        k_free(w->kv[i].base);
    }
    w->d.ops->graph_free(w->g);
    k_close(&w->d);
    free(w->qkv);
    free(w->in);
    free(w->cs);
}

static void
a6_kv_by_replay_is_kv_by_eager(void **state)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_BF16, FDK_I8, FDK_F8E4M3 };
    (void)state;
    for (int i = 0; i < 4; i++) {
        static struct written w;
        memset(&w, 0, sizeof(w));
        w.sh = (struct shape){ 2, 2, 20, 20, i % 2 ? 16 : 5, 0, types[i], 0, 0 };
        check_written(&w);
    }
}

static void
test_arguments(void **state)
{
    static struct k_step s;
    static float v[4096];
    struct k_dev d;
    (void)state;
    k_open(&d, 1, NULL);
    k_step_init(&s);
    struct fdk_qkv_args a = {
        .qkv = v,
        .cs = v,
        .b = &s.b,
        .T = 1,
        .H = 2,
        .K = 1,
        .D = 16,
        .rot = 16,
        .kv = { .base = v,
            .block_bytes = 4096,
            .layer_bytes = 2048,
            .v_bytes = 1024,
            .block_size = 16,
            .n_kv_head = 1,
            .head_dim = 16,
            .dtype = FDK_F32 },
    };
    assert_int_equal(d.ops->qkv(&a, d.st), 0);
    a.kv.dtype = FDK_F16;
    assert_int_equal(d.ops->qkv(&a, d.st), -ENOTSUP);
    a.kv.dtype = FDK_F32;
    a.kv.v_bytes = 1023;
    assert_int_equal(d.ops->qkv(&a, d.st), -EINVAL);
    a.kv.v_bytes = 1024;
    a.kv.dtype = FDK_F8E4M3;
    assert_int_equal(d.ops->qkv(&a, d.st), 0);
    a.kv.dtype = FDK_I8; /* scales overlap the values */
    assert_int_equal(d.ops->qkv(&a, d.st), -EINVAL);
    a.kv.k_scale_off = 1280;
    a.kv.v_scale_off = 1344;
    assert_int_equal(d.ops->qkv(&a, d.st), 0);
    a.kv.v_scale_off = 1343;
    assert_int_equal(d.ops->qkv(&a, d.st), -EINVAL);
    a.kv.v_scale_off = 1340;
    assert_int_equal(d.ops->qkv(&a, d.st), -EINVAL);
    a.kv.v_scale_off = 2048 - 60;
    assert_int_equal(d.ops->qkv(&a, d.st), -EINVAL);
    a.kv.dtype = FDK_F32;
    a.rot = 18;
    assert_int_equal(d.ops->qkv(&a, d.st), -EINVAL);
    a.rot = 16;
    a.D = 1024;
    assert_int_equal(d.ops->qkv(&a, d.st), -ENOTSUP);
    k_close(&d);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_norm_of_ranks),
        cmocka_unit_test(test_rope_len),
        cmocka_unit_test(test_kv_bytes),
        cmocka_unit_test(test_f8_rounding),
        cmocka_unit_test(a6_kv_by_replay_is_kv_by_eager),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
