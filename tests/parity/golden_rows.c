/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Operations on rows, and operations for loading. */
#include "config.h"

#include "tests/parity/golden_ops.h"

static struct go_step s;

static const int rows[] = { 1, 2, 8, 33, 128, 640, 2048 };
static const int widths[] = { 256, 2048, 4096, 5120 };

/* Fills in a's buffers, for T rows of C. */
static void
run_norm(struct fdk_rmsnorm_args a, int add)
{
    size_t n = (size_t)a.T * (size_t)a.C, bytes = n * fdk_dtype_bytes(g.act);
    const int32_t live = a.T;

    a.y = go_new(bytes);
    a.x = go_numbers(n, FDK_F32, 1);
    a.add = add ? go_numbers(n, g.act, 1) : NULL;
    a.w = go_numbers((size_t)a.C, FDK_F32, 1);
    a.n = go_copy(&live, 4);
    a.eps = 1e-5f;
    a.act = g.act;
    int rc = g.ops->rmsnorm(&a, g.st);
    const void *out[] = { a.y, a.x };
    go_end(rc, out, (const size_t[]){ bytes, n * 4 }, 2);
}

static void
norm(int T, int C, int add)
{
    if (go_begin(16.0 * T * C, "rmsnorm T=%d C=%d add=%d", T, C, add))
        run_norm((struct fdk_rmsnorm_args){ .T = T, .C = C }, add);
}

/* Norms with attributes that Llama's norms do not have. */
static void
norm_any(int T, int C, enum fdk_norm where)
{
    if (go_begin(16.0 * T * C, "rmsnorm_any T=%d C=%d post=%d", T, C,
            where == FDK_NORM_POST))
        run_norm((struct fdk_rmsnorm_args){ .T = T,
                     .C = C,
                     .offset = 1,
                     .add_scale = 0.22f,
                     .norm = where },
            1);
}

static void
gated(int T, int F, enum fdk_gate gate)
{
    size_t n = (size_t)T * (size_t)F, bytes = n * fdk_dtype_bytes(g.act);
    const int32_t live = T;

    if (!go_begin(16.0 * T * F, "%s T=%d F=%d",
            gate == FDK_GATE_SILU ? "silu_mul" : "gelu_mul", T, F))
        return;
    struct fdk_silu_mul_args a = {
        .y = go_new(bytes),
        .gu = go_numbers(2 * n, g.act, 2),
        .n = go_copy(&live, 4),
        .T = T,
        .F = F,
        .gate = gate,
        .act = g.act,
    };
    go_end1(g.ops->silu_mul(&a, g.st), a.y, bytes);
}

static void
softcap(int T, int N)
{
    size_t bytes = (size_t)T * (size_t)N * 4;
    const int32_t live = T;

    if (!go_begin(8.0 * T * N, "softcap T=%d N=%d", T, N))
        return;
    struct fdk_softcap_args a = {
        .y = go_numbers((size_t)T * (size_t)N, FDK_F32, 20),
        .n = go_copy(&live, 4),
        .T = T,
        .N = N,
        .scale = 0.5f,
        .cap = 30,
    };
    go_end1(g.ops->softcap(&a, g.st), a.y, bytes);
}

/* Makes a step of T tokens in rows of 1, 2, 3, ... */
static void
step_of(int T)
{
    go_step_init(&s);
    for (int n = 1; s.n_tok < T && s.n_row < GO_ROW; n++)
        go_step_row(&s, n <= T - s.n_tok ? n : T - s.n_tok, 3 * n);
}

static void
embed(int T, int C, enum fdk_dtype t)
{
    struct fdk_row state[GO_ROW];
    size_t bytes = (size_t)T * (size_t)C * 4;

    if (!go_begin(4.0 * T * C, "embed T=%d C=%d %s", T, C, fdk_dtype_name(t)))
        return;
    step_of(T);
    for (int i = 0; i < GO_ROW; i++)
        state[i] = (struct fdk_row){ .last_token = go_int(0, 999) };
    for (int i = 0; i < s.n_tok; i += 3)
        s.ids[i] = -1;
    struct fdk_batch b = go_batch(&s);
    struct fdk_embed_args a = {
        .y = go_new(bytes),
        .w = go_numbers((size_t)(1000 * C), t, 1),
        .state = go_copy(state, sizeof(state)),
        .b = &b,
        .T = T,
        .C = C,
        .V = 1000,
        .w_dtype = t,
        .scale = 1,
    };
    go_end1(g.ops->embed(&a, g.st), a.y, bytes);
}

static void
gather(int T, int C)
{
    if (!go_begin(4.0 * T * C, "gather T=%d C=%d", T, C))
        return;
    step_of(T);
    struct fdk_batch b = go_batch(&s);
    size_t bytes = (size_t)(s.n_out * C) * fdk_dtype_bytes(g.act);
    struct fdk_gather_args a = {
        .y = go_new(bytes),
        .x = go_numbers((size_t)T * (size_t)C, g.act, 1),
        .b = &b,
        .O = s.n_out,
        .C = C,
        .act = g.act,
    };
    go_end1(g.ops->gather(&a, g.st), a.y, bytes);
}

static void
row_update(int n)
{
    enum { MOST = 64, DELTAS = 300, TABLE = 1000 };
    struct fdk_row row[MOST];
    struct fdk_delta delta[DELTAS];
    int32_t idx[MOST];
    const int32_t count[2] = { n, 4 * n };

    if (!go_begin(1, "row_update n=%d", n))
        return;
    for (size_t i = 0; i < sizeof(row); i++)
        ((unsigned char *)row)[i] = (unsigned char)go_rand();
    for (int i = 0; i < MOST; i++)
        idx[i] = 2 * i + go_int(0, 1);
    for (int i = 0; i < DELTAS; i++)
        delta[i] = (struct fdk_delta){ 3 * i + go_int(0, 2), go_int(0, 1 << 30) };
    int32_t *d = go_copy(count, sizeof(count));
    struct fdk_row_update_args a = {
        .state = go_new(2 * sizeof(row)),
        .rows = go_copy(row, sizeof(row)),
        .idx = go_copy(idx, sizeof(idx)),
        .n = d,
        .n_max = MOST,
        .table = go_new(TABLE * 4),
        .delta = go_copy(delta, sizeof(delta)),
        .n_delta = d + 1,
        .n_delta_max = DELTAS,
    };
    int rc = g.ops->row_update(&a, g.st);
    const void *out[] = { a.state, a.table };
    const size_t bytes[] = { 2 * sizeof(row), TABLE * 4 };
    go_end(rc, out, bytes, 2);
}

void
go_rows_cases(void)
{
    static const enum fdk_dtype types[] = { FDK_BF16, FDK_F16, FDK_F32 };

    for (size_t c = 0; c < GO_N(widths); c++)
        for (size_t r = 0; r < GO_N(rows); r++) {
            for (int add = 0; add < 2; add++)
                norm(rows[r], widths[c], add);
            gated(rows[r], 3 * widths[c], FDK_GATE_SILU);
            embed(rows[r], widths[c], types[(c + r) % GO_N(types)]);
            gather(rows[r], widths[c]);
        }
    for (int n = 0; n <= 64; n += 16)
        row_update(n);
    for (size_t r = 0; r < GO_N(rows); r++) {
        norm_any(rows[r], 2304, FDK_NORM_PRE);
        norm_any(rows[r], 2304, FDK_NORM_POST);
        gated(rows[r], 9216, FDK_GATE_GELU_TANH);
    }
    for (size_t r = 0; r < 3; r++)
        softcap(rows[r], 256000);
}

/* ---- loading ----------------------------------------------------------------- */

static void
load_half(enum fdk_dtype t)
{
    enum { N = 100001 };

    if (g.ops->on_host || !go_begin(N, "widen %s n=%d", fdk_dtype_name(t), N))
        return;
    struct fdk_pack_args a = { .w = { FDK_F32, .rows = 1, .cols = N, .data = go_new(N * 4) },
        .x = go_numbers(N, t, 1),
        .n = 1,
        .x_dtype = t };
    go_end1(g.ops->weight_pack(&a, g.st), a.w.data, N * 4);
}

static void
quantize(enum fdk_dtype from, enum fdk_dtype to, int group)
{
    enum { ROWS = 300, COLS = 2048 };
    const uint64_t none = UINT64_MAX;
    size_t scales = (size_t)ROWS * (size_t)(COLS / group) * 4;
    size_t values = ROWS * fdk_row_bytes(to, COLS);

    if (g.ops->on_host ||
        !go_begin(ROWS * COLS, "quantize %s to %s group=%d", fdk_dtype_name(from),
            fdk_dtype_name(to), group))
        return;
    struct fdk_pack_args a = {
        .w = { to, .rows = ROWS, .cols = COLS, .group = group },
        .x = go_numbers((size_t)ROWS * COLS, from, 1),
        .bad = go_copy(&none, 8),
        .n = ROWS,
        .x_dtype = from,
    };
    int rc = g.ops->weight_layout(&a.w);
    a.w.data = go_new((size_t)a.w.bytes);
    if (rc == 0)
        rc = g.ops->weight_pack(&a, g.st);
    const void *out[] = { a.w.data, (char *)a.w.data + a.w.scale_at, a.bad };
    const size_t bytes[] = { values, scales, 8 };
    go_end(rc, out, bytes, 3);
}

static void
dummy(enum fdk_dtype t)
{
    enum { N = 100001 };
    size_t bytes = N * fdk_dtype_bytes(t);

    if (g.ops->dummy == NULL || !go_begin(N, "dummy %s n=%d", fdk_dtype_name(t), N))
        return;
    struct fdk_dummy_args a = { .y = go_new(bytes),
        .key = 7,
        .first = 1000,
        .n = N,
        .scale = 0.01f,
        .y_dtype = t };
    go_end1(g.ops->dummy(&a, g.st), a.y, bytes);
}

void
go_load_cases(void)
{
    static const enum fdk_dtype from[] = { FDK_F32, FDK_F16, FDK_BF16 };
    static const enum fdk_dtype to[] = { FDK_I8, FDK_I4, FDK_F8E4M3 };

    for (size_t i = 0; i < GO_N(from); i++) {
        if (from[i] != FDK_F32)
            load_half(from[i]);
        dummy(from[i]);
        for (size_t k = 0; k < GO_N(to); k++)
            for (int group = 64; group <= 2048; group *= 32)
                quantize(from[i], to[k], group);
    }
}
