/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs every operation of kernels/fdk.h on a list of shapes with seeded numbers; prints
 * one line for each case, with a hash of the written bytes, for `golden compare`.
 *
 *     golden_ops [--backend cpu|cuda] [--deterministic] [--only NAME] [--cache FOLDER]
 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>

#include "tests/parity/golden_ops.h"

struct golden g;

void
go_must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "golden_ops: %s: %s: %s: %s\n", g.name, what, strerror(-rc),
        g.ops->error_text(g.ctx, 0));
    exit(1);
}

static uint64_t
mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t
hash(uint64_t h, const char *p, size_t n)
{
    uint64_t x = 0;

    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&x, p, 8);
        h = mix(h, x);
    }
    x = 0;
    memcpy(&x, p, n);
    return mix(h, x ^ (uint64_t)n << 56);
}

/* ---- numbers --------------------------------------------------------------- */

uint64_t
go_rand(void)
{
    uint64_t z = g.seed += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int
go_int(int low, int high)
{
    return low + (int)(go_rand() % (uint64_t)(high - low + 1));
}

float
go_normal(void)
{
    uint64_t x = go_rand();
    int sum = (int)(x & 0xffff) + (int)(x >> 16 & 0xffff) + (int)(x >> 32 & 0xffff) +
        (int)(x >> 48);

    return ((float)sum - 131070) * (1 / 37837.0f);
}

static uint16_t
to_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Truncated; subnormals become 0. */
static uint16_t
to_f16(float x)
{
    uint32_t u;
    int e;

    memcpy(&u, &x, 4);
    e = (int)(u >> 23 & 0xff) - 112;
    if (e <= 0)
        return (uint16_t)(u >> 16 & 0x8000);
    return (uint16_t)((u >> 16 & 0x8000) | (uint32_t)e << 10 | (u >> 13 & 0x3ff));
}

static uint8_t
to_f8(uint8_t x)
{
    return (x & 0x7f) == 0x7f ? (uint8_t)(x - 1) : x;
}

void *
go_host(size_t n, enum fdk_dtype t, float scale)
{
    size_t bytes = fdk_row_bytes(t, n), n_long = (bytes + 7) / 8;
    uint64_t *p = malloc(n_long * 8);
    uint16_t *h = (void *)p;
    uint8_t *c = (void *)p;
    float *f = (void *)p;

    if (p == NULL)
        go_must(-ENOMEM, "malloc");
    if (t == FDK_F32)
        for (size_t i = 0; i < n; i++)
            f[i] = go_normal() * scale;
    else if (t == FDK_BF16)
        for (size_t i = 0; i < n; i++)
            h[i] = to_bf16(go_normal() * scale);
    else if (t == FDK_F16)
        for (size_t i = 0; i < n; i++)
            h[i] = to_f16(go_normal() * scale);
    else
        for (size_t i = 0; i < n_long; i++)
            p[i] = go_rand();
    for (size_t i = 0; t == FDK_F8E4M3 && i < bytes; i++)
        c[i] = to_f8(c[i]);
    return p;
}

/* ---- device memory ---------------------------------------------------------- */

static void *
take(size_t bytes)
{
    void *p;

    if (g.n_buf == (int)GO_N(g.buf))
        go_must(-ENOSPC, "buffers of a case");
    GO(g.ops->mem_alloc(g.ctx, 0, bytes, &p));
    return g.buf[g.n_buf++] = p;
}

void *
go_new(size_t bytes)
{
    void *p = take(bytes);

    GO(g.ops->fill(g.st, p, 0x7f, bytes));
    return p;
}

void *
go_copy(const void *src, size_t bytes)
{
    void *p = take(bytes);

    GO(g.ops->copy(g.st, p, src, bytes));
    GO(g.ops->stream_sync(g.st));
    return p;
}

void *
go_numbers(size_t n, enum fdk_dtype t, float scale)
{
    void *host = go_host(n, t, scale), *p = go_copy(host, fdk_row_bytes(t, n));

    free(host);
    return p;
}

/* ---- cases ------------------------------------------------------------------ */

int
go_begin(double multiplications, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(g.name, sizeof(g.name), format, ap);
    va_end(ap);
    g.seed = hash(1, g.name, strlen(g.name));
    return multiplications <= g.most && strncmp(g.name, g.only, strlen(g.only)) == 0;
}

static uint64_t
hash_device(uint64_t h, const void *p, size_t bytes)
{
    char *host = malloc(bytes);

    if (host == NULL)
        go_must(-ENOMEM, "malloc");
    GO(g.ops->copy(g.st, host, p, bytes));
    GO(g.ops->stream_sync(g.st));
    h = hash(h, host, bytes);
    free(host);
    return h;
}

void
go_end(int rc, const void *const out[], const size_t bytes[], int n)
{
    uint64_t h = 0;

    if (rc != -ENOTSUP)
        go_must(rc, "operation");
    for (int i = 0; i < n && rc == 0; i++)
        h = hash_device(h, out[i], bytes[i]);
    GO(g.ops->stream_sync(g.st));
    if (rc == 0)
        printf("%s %016llx\n", g.name, (unsigned long long)h);
    else
        printf("%s not-supported\n", g.name);
    while (g.n_buf > 0)
        g.ops->mem_free(g.ctx, 0, g.buf[--g.n_buf]);
}

void
go_end1(int rc, const void *out, size_t bytes)
{
    go_end(rc, &out, &bytes, 1);
}

/* ---- steps ------------------------------------------------------------------ */

void
go_step_init(struct go_step *s)
{
    memset(s, 0, sizeof(*s));
    for (int i = 0; i < GO_ROW; i++)
        s->state[i] = (i * 5 + 3) % GO_ROW;
}

void
go_step_row(struct go_step *s, int n, int before)
{
    int r = s->n_row++, at = s->state[r] * GO_STRIDE;

    for (int i = 0; i * GO_BLOCK < before + n; i++)
        s->block_table[at + i] = s->n_block++ ^ 1; /* neighbours swapped */
    for (int i = 0; i < n; i++) {
        int t = s->n_tok++, p = before + i;

        s->ids[t] = go_int(0, 999);
        s->pos[t] = p;
        s->row[t] = r;
        s->slot_map[t] = s->block_table[at + p / GO_BLOCK] * GO_BLOCK + p % GO_BLOCK;
    }
    s->q_start[r + 1] = s->n_tok;
    s->kv_len[r] = before + n;
    s->out[s->n_out++] =
        (struct fdk_out){ .tok = s->n_tok - 1, .row = r, .pos = before + n };
}

struct fdk_batch
go_batch(const struct go_step *s)
{
    const struct go_step *d = go_copy(s, sizeof(*s));

    return (struct fdk_batch){
        .n_tok = &d->n_tok,
        .n_row = &d->n_row,
        .n_out = &d->n_out,
        .ids = d->ids,
        .pos = d->pos,
        .slot_map = d->slot_map,
        .row = d->row,
        .q_start = d->q_start,
        .kv_len = d->kv_len,
        .state = d->state,
        .block_table = d->block_table,
        .out = d->out,
        .table_stride = GO_STRIDE,
        .max_row = GO_ROW,
    };
}

/* Scales of FDK_I8 follow the values of their layer; random bytes are written to all,
 * then the scales over them. */
struct fdk_kv
go_kv(const struct go_step *s, int K, int D, enum fdk_dtype t, size_t *ret_bytes)
{
    size_t n = (size_t)(K * GO_BLOCK), half = n * (size_t)D * fdk_dtype_bytes(t);
    size_t scales = t == FDK_I8 ? n * 4 : 0, blocks = (size_t)(s->n_block + 2);
    struct fdk_kv kv = {
        .v_bytes = half,
        .k_scale_off = 2 * half,
        .v_scale_off = 2 * half + scales,
        .layer_bytes = 2 * (half + scales),
        .block_bytes = GO_LAYERS * 2 * (half + scales),
        .block_size = GO_BLOCK,
        .n_kv_head = K,
        .head_dim = D,
        .dtype = t,
    };
    char *pool;

    *ret_bytes = blocks * kv.block_bytes;
    pool = go_host(*ret_bytes / fdk_dtype_bytes(t), t, 1);
    for (size_t i = 0; t == FDK_I8 && i < blocks * GO_LAYERS; i++)
        for (size_t k = 0; k < 2 * n; k++) {
            float x = 0.005f + 0.0001f * (float)go_int(0, 99);
            memcpy(pool + i * kv.layer_bytes + kv.k_scale_off + 4 * k, &x, 4);
        }
    kv.base = go_copy(pool, *ret_bytes);
    free(pool);
    if (t == FDK_F8E4M3) {
        float x[GO_LAYERS * 2 * 64];

        for (int i = 0; i < GO_LAYERS * 2 * K; i++)
            x[i] = 0.005f + 0.0001f * (float)go_int(0, 99);
        kv.scale = go_copy(x, (size_t)(GO_LAYERS * 2 * K) * 4);
    }
    return kv;
}

/* ---- the program ------------------------------------------------------------ */

static void
open_device(int deterministic, const char *cache)
{
    struct fdk_open_args a = { .n_device = 1,
        .max_token = GO_TOK,
        .deterministic = deterministic,
        .cache_dir = cache };
    char err[256] = "";
    int rc = g.ops->available(err, sizeof(err));

    if (rc <= 0) {
        printf("SKIP: %s\n", err);
        exit(77);
    }
    rc = g.ops->open(&a, &g.ctx, err, sizeof(err));
    if (rc != 0) {
        fprintf(stderr, "golden_ops: %s\n", err);
        exit(1);
    }
    GO(g.ops->stream_new(g.ctx, 0, &g.st));
}

int
main(int argc, char **argv)
{
    static const struct option options[] = {
        { "backend", required_argument, NULL, 'b' },
        { "deterministic", no_argument, NULL, 'd' },
        { "only", required_argument, NULL, 'o' },
        { "cache", required_argument, NULL, 'c' },
        { 0 },
    };
    const char *cache = NULL;
    int c, deterministic = 0;

    g = (struct golden){ .ops = &fdk_ops_cpu, .only = "" };
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'd')
            deterministic = 1;
        else if (c == 'o')
            g.only = optarg;
        else if (c == 'c')
            cache = optarg;
        else if (c == 'b' && strcmp(optarg, "cuda") == 0)
            g.ops = &fdk_ops_cuda;
        else if (c != 'b' || strcmp(optarg, "cpu") != 0)
            return 64;
    }
    g.most = g.ops == &fdk_ops_cuda ? 1e15 : 3e8;
    g.act = g.ops->act(FDK_BF16);
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device(deterministic, cache);
    go_rows_cases();
    go_load_cases();
    go_sample_cases();
    go_attention_cases();
    go_gemm_cases();
    g.ops->stream_free(g.st);
    g.ops->close(g.ctx);
    return 0;
}
