/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_kv.h"

/*
 * Attention tiles: the bound on their number compared with an exhaustive search, the
 * device's list compared with the host's, and replays of one graph for every distribution
 * of its tokens over rows.
 */

enum { ROUNDS = K_SLOW ? 20 : 1000, G_STEP = K_SLOW ? 3 : 1 };

static int
ceil_div(int n, int d)
{
    return (n + d - 1) / d;
}

static int
gcd(int a, int b)
{
    return b == 0 ? a : gcd(b, a % b);
}

/* ---- the bound ----------------------------------------------------------- */

enum { DP_N = 64, DP_M = 512 };

/* most[n][m]: most tiles of m tokens in at most n rows, found by trying
 * every length of the last row. */
static int16_t most[DP_N + 1][DP_M + 1];

static void
search(int N, int M, int a, int b)
{
    int16_t tiles[DP_M + 1];
    for (int m = 0; m <= M; m++)
        tiles[m] = (int16_t)ceil_div(m * a, b);
    memset(most, 0, sizeof(most));
    for (int n = 1; n <= N; n++)
        for (int m = 0; m <= M; m++) {
            int16_t best = 0;
            for (int q = 0; q <= m; q++) {
                int16_t t = (int16_t)(most[n - 1][m - q] + tiles[q]);
                best = t > best ? t : best;
            }
            most[n][m] = best;
        }
}

static void
a1_bound_holds_for_every_split(void **state)
{
    int worst = 0;
    (void)state;
    for (int a = 1; a <= 32; a += G_STEP)
        for (int b = 16; b <= 128; b *= 2) {
            int exact = a % b == 0 || b % (a % b) == 0;
            search(16, 256, a, b);
            for (int n = 1; n <= 16; n++)
                for (int m = 1; m <= 256; m++) {
                    int gap = fdk_tiles_max(n, m, a, b) - most[n][m];
                    assert_true(gap >= 0);
                    if (exact)
                        assert_int_equal(gap, 0);
                    if (n <= 6 && b <= 16)
                        assert_true(gap <= 5);
                    worst = gap > worst ? gap : worst;
                }
        }
    print_message("largest gap to the bound: %d tiles\n", worst);
}

/* Distributions of tokens other than rows of one token and one long row. */
static void
a1_witness_splits(void **state)
{
    static const struct {
        int N, M, a, b, ones, most, bound;
        int split[6]; /* count, length, ... */
    } rows[] = {
        { 2, 26, 5, 64, 3, 4, 4, { 2, 13 } },
        { 8, 160, 5, 64, 19, 20, 20, { 6, 1, 1, 13, 1, 141 } },
        { 64, 512, 5, 64, 99, 101, 103, { 32, 1, 31, 13, 1, 77 } },
        { 33, 429, 5, 64, 64, 66, 66, { 33, 13 } },
        { 2, 22, 6, 64, 3, 4, 4, { 2, 11 } },
        { 2, 65, 7, 64, 8, 9, 9, { 1, 10, 1, 55 } },
        { 64, 512, 12, 64, 148, 153, 156, { 24, 1, 39, 11, 1, 59 } },
        { 64, 512, 8, 64, 120, 120, 120, { 63, 1, 1, 449 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int N = rows[i].N, M = rows[i].M, a = rows[i].a, b = rows[i].b;
        int n = 0, m = 0, tiles = 0;
        for (int k = 0; k < 6; k += 2) {
            n += rows[i].split[k];
            m += rows[i].split[k] * rows[i].split[k + 1];
            tiles += rows[i].split[k] * ceil_div(rows[i].split[k + 1] * a, b);
        }
        search(N, M, a, b);
        assert_int_equal(n, N);
        assert_int_equal(m, M);
        assert_int_equal(tiles, rows[i].most);
        assert_int_equal(most[N][M], rows[i].most);
        assert_int_equal(fdk_tiles_max(N, M, a, b), rows[i].bound);
        assert_int_equal((N - 1) * ceil_div(a, b) + ceil_div((M - N + 1) * a, b),
            rows[i].ones);
    }
}

static void
test_bound_limits(void **state)
{
    (void)state;
    assert_int_equal(fdk_tiles_max(0, 100, 5, 64), 0);
    assert_int_equal(fdk_tiles_max(100, 0, 5, 64), 0);
    assert_int_equal(fdk_tiles_max(-1, -1, 5, 64), 0);
    assert_int_equal(fdk_tiles_max(1, INT32_MAX, 1, 1), INT32_MAX);
    assert_int_equal(fdk_tiles_max(INT32_MAX, INT32_MAX, 7, 2), INT32_MAX);
    assert_int_equal(fdk_tiles_max(1 << 20, 1 << 20, 1, 1 << 20), 1 << 20);
    assert_int_equal(fdk_row_bytes(FDK_I4, 10), 5);
    assert_int_equal(fdk_row_bytes(FDK_BF16, 10), 20);
    assert_int_equal(fdk_row_bytes(FDK_F8E4M3, 10), 10);
    assert_int_equal(fdk_dtype_bytes(FDK_I4), 0);
    assert_string_equal(fdk_dtype_name(FDK_I4), "i4");
}

/* ---- the list ------------------------------------------------------------ */

/* Draws lengths of at most n_row rows, some of them 0, that add up to at most m. */
static int
random_split(int *len, int n_row, int m, uint64_t *seed)
{
    int n = 1 + (int)(k_rand(seed) % (uint64_t)n_row);
    for (int r = 0; r < n; r++) {
        int spread = k_rand(seed) % 3 == 0 ? m : 2 * m / n + 1;
        len[r] = (int)(k_rand(seed) % (uint64_t)((spread < m ? spread : m) + 1));
        m -= len[r];
    }
    return n;
}

/* Draws outputs at ascending tokens, sometimes two at one token. */
static void
random_outputs(struct k_step *s, uint64_t *seed)
{
    int rare = 1 + (int)(k_rand(seed) % 60);
    s->n_out = 0;
    for (int t = 0; t < s->n_tok; t++)
        for (int k = 0; k < 2; k++)
            if (k_rand(seed) % (uint64_t)rare == 0 && s->n_out < K_MAX_TOK)
                s->out[s->n_out++].tok = t;
}

/* Returns whether one of the tile's query rows has an output. */
static int
tile_wanted(const struct k_step *s, const struct k_plan *p, struct fdk_work w)
{
    int n = s->q_start[w.row + 1] < s->n_tok ? s->q_start[w.row + 1] : s->n_tok;
    n = (n - s->q_start[w.row]) * p->a;
    for (int q = w.tile * p->bt; q < (w.tile + 1) * p->bt && q < n; q++)
        for (int o = 0; o < s->n_out; o++)
            if (s->out[o].tok == s->q_start[w.row] + q / p->a)
                return 1;
    return 0;
}

/* The host's list equals the device's; with outputs only, it leaves
 * out tiles without an output. */
static void
host_lists(struct k_dev *d, struct k_step *s, const struct k_plan *p, uint64_t *seed)
{
    int32_t n_work = -7, n = 0;
    uint32_t n_done = 99;
    size_t bytes = (size_t)p->n_max * sizeof(*p->work);
    struct fdk_att_plan_args a = { .work = malloc(bytes),
        .n_work = &n_work,
        .n_done = &n_done,
        .b = &s->b,
        .a = p->a,
        .bt = p->bt,
        .n_max = p->n_max };
    assert_non_null(a.work);
    memset(a.work, 0x7f, bytes);
    assert_int_equal(d->ops->att_plan_host(d->ctx, 0, &a), 0);
    assert_memory_equal(a.work, p->work, bytes);
    assert_true(n_work == p->n_work && n_done == 0);
    random_outputs(s, seed);
    a.outputs = 1;
    assert_int_equal(d->ops->att_plan(&a, d->st), -EINVAL);
    memset(a.work, 0x7f, bytes);
    assert_int_equal(d->ops->att_plan_host(d->ctx, 0, &a), 0);
    for (int i = 0; i < p->n_work; i++)
        if (tile_wanted(s, p, p->work[i]))
            assert_memory_equal(&a.work[n++], &p->work[i], sizeof(*p->work));
    assert_int_equal(n_work, n);
    for (; n < p->n_max; n++)
        assert_int_equal(a.work[n].row & a.work[n].tile, -1);
    free(a.work);
}

static void
test_list_is_the_hosts(void **state)
{
    static struct k_step s;
    struct k_dev d;
    uint64_t seed = 1;
    (void)state;
    k_open(&d, 1, NULL);
    for (int round = 0; round < 2000; round++) {
        int len[K_MAX_ROW], n, M = 1 + (int)(k_rand(&seed) % 600), at = 0;
        struct k_plan p = { .a = 1 + (int)(k_rand(&seed) % 32),
            .bt = 1 + (int)(k_rand(&seed) % 128),
            .n_work = -7,
            .n_done = 99 };
        k_step_init(&s);
        n = random_split(len, K_MAX_ROW, M, &seed);
        s.n_row = n;
        for (int r = 0; r < n; r++)
            s.q_start[r + 1] = s.q_start[r] + len[r];
        s.n_tok = s.q_start[n];
        if (round % 7 == 0) /* the live count limits it */
            s.n_tok -= (int)(k_rand(&seed) % 20);
        p.n_max = fdk_tiles_max(K_MAX_ROW, M, p.a, p.bt);
        p.work = malloc((size_t)(p.n_max + K_GUARD) * sizeof(*p.work));
        memset(p.work, 0x7f, (size_t)(p.n_max + K_GUARD) * sizeof(*p.work));
        k_plan_launch(&d, &s.b, &p);
        k_sync(&d);
        for (int r = 0; r < n; r++) {
            int end = s.q_start[r + 1] < s.n_tok ? s.q_start[r + 1] : s.n_tok;
            int rows = end > s.q_start[r] ? (end - s.q_start[r]) * p.a : 0;
            for (int t = 0; t < ceil_div(rows, p.bt); t++, at++) {
                assert_int_equal(p.work[at].row, r);
                assert_int_equal(p.work[at].tile, t);
            }
        }
        assert_int_equal(p.n_work, at);
        assert_int_equal(p.n_done, 0);
        for (; at < p.n_max; at++)
            assert_int_equal(p.work[at].row & p.work[at].tile, -1);
        host_lists(&d, &s, &p, &seed);
        k_plan_free(&p);
    }
    k_close(&d);
}

/* More tiles than the launch has room for are an error of the device, without a write;
 * on the host an error code. */
static void
test_list_never_overflows(void **state)
{
    static struct k_step s;
    struct k_dev d;
    struct k_plan p = { .a = 5, .bt = 64, .n_max = 3 };
    struct fdk_att_plan_args host;
    (void)state;
    k_open(&d, 1, NULL);
    k_step_init(&s);
    k_step_row(&s, 13, 0, 16, 8, 0);
    k_step_row(&s, 13, 0, 16, 8, 1);
    p.work = malloc((3 + K_GUARD) * sizeof(*p.work));
    host = (struct fdk_att_plan_args){ .work = p.work,
        .n_work = &p.n_work,
        .n_done = &p.n_done,
        .b = &s.b,
        .a = p.a,
        .bt = p.bt,
        .n_max = p.n_max };
    assert_int_equal(d.ops->att_plan_host(d.ctx, 0, &host), -EINVAL);
    memset(p.work, 0x7f, (3 + K_GUARD) * sizeof(*p.work));
    k_plan_launch(&d, &s.b, &p);
    assert_int_equal(d.ops->stream_sync(d.st), -EIO);
    assert_non_null(strstr(d.ops->error_text(d.ctx, 0), "row 1 of 2"));
    k_plan_free(&p);
    k_close(&d);
}

/* ---- replays ------------------------------------------------------------- */

enum { LAYERS = 2, B = 16, PER_ROW = 20, N_BLOCK = K_MAX_ROW * PER_ROW };

struct model {      /* KV write and attention of some layers */
    int H, K, D, M; /* M: tokens of the recorded step */
    struct k_dev d;
    struct k_step s;
    struct fdk_kv kv;
    struct k_plan plan;
    struct fdk_graph *g;
    float *in, *qkv, *y; /* (M, stride), (LAYERS, M, H D) */
    size_t stride, kv_floats;
};

static void
layers(struct model *m, const struct fdk_batch *b, int T, struct k_plan *p, float *y)
{
    const struct fdk_ops *o = m->d.ops;
    size_t row = (size_t)(m->H * m->D);
    for (int l = 0; l < LAYERS; l++) {
        const struct fdk_qkv_args q = {
            .qkv = m->qkv,
            .b = b,
            .kv = m->kv,
            .T = T,
            .H = m->H,
            .K = m->K,
            .D = m->D,
            .layer = l,
        };
        struct fdk_attention_args a = {
            .y = y + (size_t)(l * m->M) * row,
            .qkv = m->qkv,
            .b = b,
            .kv = m->kv,
            .T = T,
            .H = m->H,
            .K = m->K,
            .D = m->D,
            .layer = l,
            .scale = 0.3f,
            .work = p->work,
            .n_work = &p->n_work,
            .n_done = &p->n_done,
            .n_work_max = p->n_max,
        };
        if (p->work == NULL)
            k_plan_init(&m->d, &a, p);
        if (l == 0)
            k_plan_launch(&m->d, b, p);
        assert_int_equal(o->qkv(&q, m->d.st), 0);
        assert_int_equal(o->attention(&a, m->d.st), 0);
    }
}

static void
model_open(struct model *m, int H, int K, int D, int M)
{
    memset(m, 0, sizeof(*m));
    m->H = H;
    m->K = K;
    m->D = D;
    m->M = M;
    m->stride = (size_t)((H + 2 * K) * D);
    k_open(&m->d, 2, NULL);
    m->kv_floats = k_kv_layout(&m->kv, K, B, D, LAYERS, N_BLOCK, FDK_F32) / 4;
    m->kv.base = k_new(m->kv_floats);
    k_fill(m->kv.base, m->kv_floats, 3);
    m->in = malloc((size_t)M * m->stride * 4);
    k_fill(m->in, (size_t)M * m->stride, 4);
    m->qkv = malloc((size_t)M * m->stride * 4);
    memcpy(m->qkv, m->in, (size_t)M * m->stride * 4);
    m->y = k_new((size_t)(LAYERS * M * H * D));
    k_step_init(&m->s);
    assert_int_equal(m->d.ops->graph_begin(m->d.st), 0);
    layers(m, &m->s.b, M, &m->plan, m->y);
    assert_int_equal(m->d.ops->graph_end(m->d.st, &m->g), 0);
}

static void
model_close(struct model *m)
{
    k_check(m->y, (size_t)(LAYERS * m->M * m->H * m->D));
    k_check(m->kv.base, m->kv_floats);
    m->d.ops->graph_free(m->g);
    k_close(&m->d);
    k_plan_free(&m->plan);
    k_free(m->y);
    k_free(m->kv.base);
    free(m->in);
    free(m->qkv);
}

/* Makes the step with these row lengths, each after up to 20 cached tokens. */
static void
set_step(struct model *m, const int *len, int n, uint64_t seed)
{
    struct k_step *s = &m->s;
    k_step_init(s);
    for (int r = 0; r < n; r++) {
        k_step_row(s, len[r], (int)(k_rand(&seed) % 21), B, N_BLOCK, 0);
        for (int i = 0; i < PER_ROW; i++)
            s->block_table[K_SLOT(r) * K_STRIDE + i] = (r * PER_ROW + i) * 3 % N_BLOCK;
        for (int t = s->q_start[r]; t < s->n_tok; t++)
            s->slot_map[t] =
                s->block_table[K_SLOT(r) * K_STRIDE + s->pos[t] / B] * B + s->pos[t] % B;
    }
}

static int
exact_tiles(const struct model *m)
{
    int tiles = 0;
    for (int r = 0; r < m->s.n_row; r++)
        tiles += ceil_div((m->s.q_start[r + 1] - m->s.q_start[r]) * m->plan.a, m->plan.bt);
    return tiles;
}

/* Eager launches with the shapes of this step. */
static float *
run_eager(struct model *m)
{
    struct fdk_batch b = m->s.b;
    struct k_plan p = { 0 };
    float *y = malloc((size_t)(LAYERS * m->M * m->H * m->D) * 4);
    memset(y, 0, (size_t)(LAYERS * m->M * m->H * m->D) * 4);
    b.max_row = m->s.n_row;
    layers(m, &b, m->s.n_tok > 0 ? m->s.n_tok : 1, &p, y);
    k_sync(&m->d);
    k_plan_free(&p);
    return y;
}

/* Replays into m->y; padding must be untouched. */
static void
run_replay(struct model *m)
{
    size_t row = (size_t)(m->H * m->D), n = (size_t)m->s.n_tok * row;
    uint32_t canary = K_CANARY;
    for (size_t i = 0; i < LAYERS * (size_t)m->M * row; i++)
        memcpy(m->y + i, &canary, 4);
    assert_int_equal(m->d.ops->graph_launch(m->g, m->d.st), 0);
    k_sync(&m->d);
    for (size_t l = 0; l < LAYERS; l++)
        assert_true(k_untouched(m->y + l * (size_t)m->M * row + n, (size_t)m->M * row - n));
}

static void
assert_same(const struct model *m, const float *want)
{
    size_t row = (size_t)(m->H * m->D);
    for (size_t l = 0; l < LAYERS; l++)
        assert_memory_equal(m->y + l * (size_t)m->M * row, want + l * (size_t)m->M * row,
            (size_t)m->s.n_tok * row * 4);
}

/* Key or value of the second layer. */
static const float *
key_at(const struct model *m, const int32_t *table, int pos, int head, int value)
{
    return (void *)k_kv_at(&m->kv, 1, table[pos / B] * B + pos % B, head, value);
}

/* Compares the first and last head of every third token with double precision. */
static void
check_reference(const struct model *m)
{
    double p[400];
    for (int t = 0; t < m->s.n_tok; t += 3)
        for (int h = 0; h<m->H; h += m->H> 1 ? m->H - 1 : 1) {
            int r = m->s.row[t], see = m->s.pos[t] + 1, kh = h / (m->H / m->K);
            const int32_t *table = m->s.block_table + K_SLOT(r) * K_STRIDE;
            const float *q = m->in + (size_t)t * m->stride + h * m->D;
            double top = -INFINITY, sum = 0;
            for (int j = 0; j < see; j++) {
                const float *k = key_at(m, table, j, kh, 0);
                p[j] = 0;
                for (int i = 0; i < m->D; i++)
                    p[j] += (double)q[i] * k[i] * 0.3f;
                top = p[j] > top ? p[j] : top;
            }
            for (int j = 0; j < see; j++)
                sum += p[j] = exp(p[j] - top);
            for (int i = 0; i < m->D; i++) {
                double y = 0;
                for (int j = 0; j < see; j++)
                    y += p[j] / sum * key_at(m, table, j, kh, 1)[i];
                k_assert_near(m->y[(size_t)((m->M + t) * m->H * m->D + h * m->D + i)], y,
                    4e-6, "y", (size_t)t);
            }
        }
}

/* k rows of n0 tokens, where n0 is the shortest length whose last tile wastes most. */
static int
adversarial(const struct model *m, int *len, int k)
{
    int n0 = 1, g = gcd(m->plan.a, m->plan.bt), left = m->M, n = 0;
    while (n0 * m->plan.a % m->plan.bt != g % m->plan.bt)
        n0++;
    for (; n < k && left >= n0; n++, left -= n0)
        len[n] = n0;
    if (n == 0)
        len[n++] = left;
    else if (k % 2)
        len[n - 1] += left; /* a full step */
    return n;
}

static void
check_splits(int H, int K, int D, int M, int rounds)
{
    static struct model m;
    uint64_t seed = (uint64_t)(M * H);
    int len[K_MAX_ROW];
    model_open(&m, H, K, D, M);
    for (int round = 0; round < rounds + K_MAX_ROW; round++) {
        int n = round < rounds ? random_split(len, K_MAX_ROW, M, &seed)
                               : adversarial(&m, len, round - rounds + 1);
        set_step(&m, len, n, seed);
        float *want = run_eager(&m);
        run_replay(&m);
        assert_same(&m, want);
        if (round % 40 == 0)
            check_reference(&m);
        free(want);
    }
    model_close(&m);
}

static void
a2_replay_is_eager_for_every_split(void **state)
{
    (void)state;
    check_splits(5, 1, 16, 8, ROUNDS);
    check_splits(5, 1, 16, 40, ROUNDS);
    check_splits(2, 1, 16, 160, ROUNDS);
    check_splits(8, 2, 16, 64, ROUNDS / 10);
    check_splits(40, 1, 8, 32, ROUNDS / 10);
    check_splits(3, 3, 7, 96, ROUNDS / 10);
}

/* Fewest and most tiles that a step of this size can have. */
static void
set_extreme(struct model *m, int largest)
{
    int len[K_MAX_ROW], n = 1;
    len[0] = 1;
    if (largest) {
        n = K_MAX_ROW;
        for (int r = 0; r < n; r++)
            len[r] = r < n - 1 ? 1 : m->M - n + 1;
    }
    set_step(m, len, n, 77);
    if (largest)
        assert_int_equal(exact_tiles(m), m->plan.n_max);
    else
        assert_int_equal(exact_tiles(m), 1);
}

static void
a3_no_tile_of_an_earlier_replay(void **state)
{
    static struct model m, fresh;
    (void)state;
    model_open(&m, 5, 1, 8, 160);
    for (int i = 0; i < 3; i++) {
        set_extreme(&m, i != 1);
        run_replay(&m);
        model_open(&fresh, 5, 1, 8, 160);
        set_extreme(&fresh, i != 1);
        run_replay(&fresh);
        assert_same(&m, fresh.y);
        model_close(&fresh);
    }
    model_close(&m);
}

static void
a4_poisoned_list_changes_nothing(void **state)
{
    static struct model m;
    uint64_t seed = 9;
    int len[K_MAX_ROW];
    (void)state;
    model_open(&m, 5, 1, 8, 160);
    for (int round = 0; round < 50; round++) {
        set_step(&m, len, random_split(len, K_MAX_ROW, 160, &seed), seed);
        float *want = run_eager(&m);
        memset(m.plan.work, 0x7f, (size_t)m.plan.n_max * sizeof(*m.plan.work));
        m.plan.n_work = 0x7f7f7f7f;
        m.plan.n_done = 0x7f7f7f7f;
        run_replay(&m);
        assert_same(&m, want);
        free(want);
    }
    model_close(&m);
}

static void
a5_tiles_done_are_the_live_ones(void **state)
{
    static struct model m;
    uint64_t seed = 10;
    int len[K_MAX_ROW];
    (void)state;
    model_open(&m, 8, 2, 16, 160);
    for (int round = 0; round < 100; round++) {
        set_step(&m, len, random_split(len, K_MAX_ROW, 160, &seed), seed);
        run_replay(&m);
        assert_int_equal(m.plan.n_done, exact_tiles(&m) * LAYERS);
        assert_int_equal(m.plan.n_work, exact_tiles(&m));
    }
    for (int largest = 0; largest < 2; largest++) {
        set_extreme(&m, largest);
        run_replay(&m);
        assert_int_equal(m.plan.n_done, exact_tiles(&m) * LAYERS);
    }
    model_close(&m);
}

/* Work items that the step does not have are an error of the device, and a launch without
 * room for every distribution is refused. */
static void
test_attention_checks_its_list(void **state)
{
    static const struct fdk_work bad[] = {
        { -1, -1 },
        { 2, 0 },
        { 0, 4 },
        { 0, -1 },
        { 0x7f7f7f7f, 0x7f7f7f7f },
    };
    static struct model m;
    int len[] = { 20, 3 };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        model_open(&m, 5, 1, 8, 32);
        set_step(&m, len, 2, 1);
        struct fdk_attention_args a = {
            .y = m.y,
            .qkv = m.qkv,
            .b = &m.s.b,
            .kv = m.kv,
            .T = 32,
            .H = 5,
            .K = 1,
            .D = 8,
            .work = m.plan.work,
            .n_work = &m.plan.n_work,
            .n_done = &m.plan.n_done,
            .n_work_max = m.plan.n_max - 1,
        };
        assert_int_equal(m.d.ops->attention(&a, m.d.st), -EINVAL);
        a.n_work_max++;
        a.n_done = NULL;
        assert_int_equal(m.d.ops->attention(&a, m.d.st), -EINVAL);
        a.n_done = &m.plan.n_done;
        m.plan.n_work = 2;
        m.plan.work[0] = (struct fdk_work){ 0, 3 };
        m.plan.work[1] = bad[i];
        assert_int_equal(m.d.ops->attention(&a, m.d.st), 0);
        assert_int_equal(m.d.ops->stream_sync(m.d.st), -EIO);
        assert_non_null(strstr(m.d.ops->error_text(m.d.ctx, 0), "work item 1"));
        model_close(&m);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a1_bound_holds_for_every_split),
        cmocka_unit_test(a1_witness_splits),
        cmocka_unit_test(test_bound_limits),
        cmocka_unit_test(test_list_is_the_hosts),
        cmocka_unit_test(test_list_never_overflows),
        cmocka_unit_test(a2_replay_is_eager_for_every_split),
        cmocka_unit_test(a3_no_tile_of_an_earlier_replay),
        cmocka_unit_test(a4_poisoned_list_changes_nothing),
        cmocka_unit_test(a5_tiles_done_are_the_live_ones),
        cmocka_unit_test(test_attention_checks_its_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
