/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Binding programs: which runs of operations a table of fusions
 * covers, and for which steps. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kernels/program.h"

enum { X, Y, GU, H, DOWN, Q, LAST, N_BUF };
static float buf[N_BUF][4]; /* used only as addresses */
static int n_held, prepare_rc;

/* ---- programs of norm, gate and up, silu_mul, down ------------------------------------------- */

static struct fdk_op
norm(int y, int add)
{
    return (struct fdk_op){ .kind = FDK_OP_RMSNORM,
        .rmsnorm = { .y = buf[y], .x = buf[X], .add = add < 0 ? NULL : buf[add] } };
}

static struct fdk_op
gemm(int y, int x)
{
    return (struct fdk_op){ .kind = FDK_OP_GEMM, .gemm = { .y = buf[y], .x = buf[x] } };
}

static struct fdk_op
silu(int y, int gu)
{
    return (struct fdk_op){ .kind = FDK_OP_SILU_MUL,
        .silu_mul = { .y = buf[y], .gu = buf[gu] } };
}

#define N_MLP 4
static void
mlp(struct fdk_op *op)
{
    op[0] = norm(Y, -1);
    op[1] = gemm(GU, Y);
    op[2] = silu(H, GU);
    op[3] = gemm(DOWN, H);
}

/* ---- fusions ------------------------------------------------------------------------------ */

static int32_t
few_rows(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    int32_t *ret_least, int32_t *ret_most)
{
    (void)ctx;
    (void)dev;
    (void)op;
    assert_true(n >= 2);
    assert_true(*ret_least == 1 && *ret_most == INT32_MAX);
    *ret_least = 3;
    *ret_most = 8;
    return 2;
}

static int32_t
any_rows(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    int32_t *ret_least, int32_t *ret_most)
{
    (void)ctx;
    (void)dev;
    (void)op;
    (void)ret_least;
    (void)ret_most;
    return n >= 3 ? 3 : 0;
}

static int
hold(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n, void **ret)
{
    (void)ctx;
    (void)dev;
    (void)op;
    assert_int_equal(n, 2);
    if (prepare_rc != 0)
        return prepare_rc;
    n_held++;
    *ret = &n_held;
    return 0;
}

static void
let_go(struct fdk_ctx *ctx, int dev, void *data)
{
    (void)ctx;
    (void)dev;
    assert_ptr_equal(data, &n_held);
    n_held--;
}

static int
launch(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    (void)data;
    (void)op;
    (void)st;
    return n == 2 ? -s->T : -EINVAL;
}

static const struct fdk_fusion table[] = {
    { "gate", "gate", { FDK_OP_GEMM, FDK_OP_SILU_MUL }, 2, 1, few_rows, hold, let_go,
        launch },
    { "gate_down", "gate", { FDK_OP_GEMM, FDK_OP_SILU_MUL, FDK_OP_GEMM }, 3, 0, any_rows,
        NULL, NULL, launch },
};

/* Names of the launches of a step of T tokens and O outputs, as one text. */
static const char *
listed(int n_fusion, const struct fdk_op *op, int32_t n, int32_t T, int32_t O, int fused)
{
    static char text[256];
    const struct fdk_ops k = { .fusion = table, .n_fusion = n_fusion };
    const struct fdk_step s = { .T = T, .O = O };
    struct fdk_bound *b = NULL;
    struct fdk_launch l[16];
    int32_t m, at = 0;

    assert_int_equal(fdk_bind(&k, NULL, 0, op, n, &b), 0);
    m = fdk_launches(b, &s, fused, l);
    text[0] = '\0';
    for (int32_t i = 0; i < m; i++) {
        assert_true(l[i].first >= at);
        at = l[i].first + l[i].n;
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
            i > 0 ? " " : "", fdk_launch_name(b, &l[i]));
    }
    fdk_unbind(b);
    assert_int_equal(n_held, 0);
    return text;
}

#define PLAIN "rmsnorm gemm silu_mul gemm"
#define GATE  "rmsnorm gate gemm"

static void
row_ranges_and_order(void **state)
{
    struct fdk_op op[N_MLP];

    (void)state;
    mlp(op);
    assert_string_equal(listed(1, op, N_MLP, 2, 2, 1), PLAIN);
    assert_string_equal(listed(1, op, N_MLP, 3, 3, 1), GATE);
    assert_string_equal(listed(1, op, N_MLP, 8, 3, 1), GATE);
    assert_string_equal(listed(1, op, N_MLP, 9, 3, 1), PLAIN);
    assert_string_equal(listed(1, op, N_MLP, 3, 3, 0), PLAIN);
    assert_string_equal(listed(0, op, N_MLP, 3, 3, 1), PLAIN);
    /* the first in the table if both are possible */
    assert_string_equal(listed(2, op, N_MLP, 3, 3, 1), GATE);
    assert_string_equal(listed(2, op, N_MLP, 9, 3, 1), "rmsnorm gate_down");
    assert_string_equal(listed(2, op, 3, 9, 3, 1), "rmsnorm gemm silu_mul");
}

/* An intermediate result that a run does not store must have no later reader. */
static void
inner_results_end(void **state)
{
    struct fdk_op op[8];

    (void)state;
    mlp(op);
    op[4] = norm(LAST, GU);
    assert_string_equal(listed(1, op, 5, 4, 4, 1), PLAIN " rmsnorm");
    op[4] = norm(LAST, DOWN);
    assert_string_equal(listed(1, op, 5, 4, 4, 1), GATE " rmsnorm");
    /* another result at the same address */
    op[4] = gemm(GU, DOWN);
    op[5] = norm(LAST, GU);
    assert_string_equal(listed(1, op, 6, 4, 4, 1), GATE " gemm rmsnorm");
    /* a QKV in place reads before it writes */
    op[4] = (struct fdk_op){ .kind = FDK_OP_QKV, .qkv = { .qkv = buf[GU] } };
    assert_string_equal(listed(1, op, 6, 4, 4, 1), PLAIN " qkv rmsnorm");
}

static void
an_operation_between(void **state)
{
    struct fdk_op op[8];

    (void)state;
    mlp(op);
    mlp(op + 4);
    assert_string_equal(listed(1, op, 8, 4, 4, 1), GATE " " GATE);
    op[3] = op[2];
    op[2] = norm(LAST, -1);
    assert_string_equal(listed(1, op, 8, 4, 4, 1), "rmsnorm gemm rmsnorm silu_mul " GATE);
}

/* All operations of a run have the same rows in every step. */
static void
rows_are_the_same(void **state)
{
    struct fdk_op op[N_MLP];

    (void)state;
    mlp(op);
    op[2].rows = FDK_PER_OUT;
    assert_string_equal(listed(1, op, N_MLP, 4, 4, 1), PLAIN);
    op[1].rows = FDK_PER_OUT;
    assert_string_equal(listed(1, op, N_MLP, 100, 4, 1), GATE);
    assert_string_equal(listed(1, op, N_MLP, 4, 100, 1), PLAIN);
    assert_string_equal(listed(1, op, N_MLP, 4, 0, 1), "rmsnorm gemm");
    mlp(op);
    op[2].needs_output = 1;
    assert_string_equal(listed(1, op, N_MLP, 4, 4, 1), PLAIN);
    op[1].needs_output = 1;
    assert_string_equal(listed(1, op, N_MLP, 4, 4, 1), GATE);
    assert_string_equal(listed(1, op, N_MLP, 4, 0, 1), "rmsnorm gemm");
    mlp(op);
    op[1].slice = 16;
    assert_string_equal(listed(1, op, N_MLP, 4, 4, 1), PLAIN);
}

static void
slices(void **state)
{
    struct fdk_op op = { .kind = FDK_OP_SAMPLE, .rows = FDK_PER_OUT, .first = 8, .slice = 8 };
    struct fdk_step s = { .T = 100, .O = 20 };

    (void)state;
    assert_int_equal(fdk_op_rows(&op, &s), 8);
    s.O = 12;
    assert_int_equal(fdk_op_rows(&op, &s), 4);
    fdk_op_complete(&op, &s);
    assert_true(op.sample.first == 8 && op.sample.R == 4);
    s.O = 8;
    assert_int_equal(fdk_op_rows(&op, &s), 0);
    s.O = 0;
    assert_int_equal(fdk_op_rows(&op, &s), 0);
}

/* Scratch is planned before there are addresses: pointers change nothing. */
static void
scratch_by_shapes(void **state)
{
    struct fdk_op op = { .kind = FDK_OP_SAMPLE, .sample = { .R = 40, .V = 5000 } };
    size_t planned = fdk_op_scratch(&fdk_ops_cpu, NULL, &op), less;

    (void)state;
    op.sample.counts = (uint16_t *)(void *)buf;
    op.sample.logits = buf[X];
    assert_int_equal(fdk_op_scratch(&fdk_ops_cpu, NULL, &op), planned);
    op.sample.R = 39;
    less = fdk_op_scratch(&fdk_ops_cpu, NULL, &op);
    assert_true(planned > 0 && less <= planned);
    fdk_op_set_scratch(&op, buf, 16);
    assert_true(op.sample.scratch == buf && op.sample.scratch_bytes == 16);
}

/* A fusion that cannot be prepared is left out; an error of the device is returned. */
static void
prepared_once(void **state)
{
    const struct fdk_ops k = { .fusion = table, .n_fusion = 1 };
    const struct fdk_step s = { .T = 5, .O = 5 };
    struct fdk_launch l[8];
    struct fdk_op op[8];
    struct fdk_bound *b = NULL;

    (void)state;
    mlp(op);
    mlp(op + 4);
    assert_int_equal(fdk_bind(&k, NULL, 0, op, 8, &b), 0);
    assert_int_equal(n_held, 2);
    assert_int_equal(fdk_launches(b, &s, 1, l), 6);
    assert_int_equal(fdk_launch(b, &s, &l[1], NULL), -5);
    assert_string_equal(fdk_launch_kernels(b, &s, &l[1]), "gate");
    assert_string_equal(fdk_launch_kernels(b, &s, &l[0]), "rmsnorm");
    fdk_unbind(b);
    assert_int_equal(n_held, 0);
    prepare_rc = -ENOTSUP;
    assert_string_equal(listed(1, op, N_MLP, 5, 5, 1), PLAIN);
    prepare_rc = -ENOMEM;
    b = NULL;
    assert_int_equal(fdk_bind(&k, NULL, 0, op, 8, &b), -ENOMEM);
    assert_null(b);
    prepare_rc = 0;
}

/* ---- fusions that refuse a launch ------------------------------------------------------ */

static char done[64];
static const char *refused; /* names of fusions */

static int
note(const char *name)
{
    if (strstr(refused, name) != NULL)
        return -ENOTSUP;
    (void)snprintf(done + strlen(done), sizeof(done) - strlen(done), " %s", name);
    return 0;
}

static int
launch_all(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    (void)data;
    (void)s;
    (void)st;
    assert_true(n == 3 && op->kind == FDK_OP_GEMM && op->gemm.y == buf[GU]);
    return note("all");
}

static int
launch_gate(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    (void)data;
    (void)s;
    (void)st;
    assert_true(n == 2 && op->kind == FDK_OP_GEMM && op->gemm.y == buf[GU]);
    return note("gate");
}

static int
launch_down(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    (void)data;
    (void)s;
    (void)st;
    assert_true(n == 2 && op->kind == FDK_OP_SILU_MUL && op->silu_mul.y == buf[H]);
    return note("down");
}

static int32_t
two(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n, int32_t *ret_least,
    int32_t *ret_most)
{
    (void)ctx;
    (void)dev;
    (void)op;
    (void)ret_least;
    (void)ret_most;
    return n >= 2 ? 2 : 0;
}

static int
one_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    (void)st;
    assert_int_equal(a->T, 5);
    return note(a->y == buf[GU] ? "GEMM" : "gemm");
}

static int
one_silu(const struct fdk_silu_mul_args *a, fdk_stream_t st)
{
    (void)st;
    assert_int_equal(a->T, 5);
    return note("silu");
}

/* Operations of a refused fusion are launched as on a device that has not bound it. */
static void
refused_at_launch(void **state)
{
    static const struct fdk_fusion fusions[] = {
        { "all", "all", { FDK_OP_GEMM, FDK_OP_SILU_MUL, FDK_OP_GEMM }, 3, 0, any_rows,
            NULL, NULL, launch_all },
        { "gate", "gate", { FDK_OP_GEMM, FDK_OP_SILU_MUL }, 2, 0, two, NULL, NULL,
            launch_gate },
        { "down", "down", { FDK_OP_SILU_MUL, FDK_OP_GEMM }, 2, 0, two, NULL, NULL,
            launch_down },
    };
    static const struct {
        const char *refused, *done;
    } cases[] = {
        { "", " all" },
        { "all", " gate gemm" },
        { "all gate", " GEMM down" },
        { "all gate down", " GEMM silu gemm" },
        { "gate down", " all" },
    };
    const struct fdk_ops k = { .fusion = fusions,
        .n_fusion = 3,
        .gemm = one_gemm,
        .silu_mul = one_silu };
    const struct fdk_step s = { .T = 5, .O = 5 };
    struct fdk_launch l[8];
    struct fdk_op op[N_MLP];
    struct fdk_bound *b = NULL;

    (void)state;
    mlp(op);
    assert_int_equal(fdk_bind(&k, NULL, 0, op, N_MLP, &b), 0);
    assert_int_equal(fdk_launches(b, &s, 1, l), 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        done[0] = '\0';
        refused = cases[i].refused;
        assert_int_equal(fdk_launch(b, &s, &l[1], NULL), 0);
        assert_string_equal(done, cases[i].done);
    }
    fdk_unbind(b);
}

/* ---- a sum over ranks and the norm after it ------------------------------------------- */

static void
sum_and_norm(struct fdk_op op[3])
{
    op[0] = (struct fdk_op){ .kind = FDK_OP_ALL_REDUCE,
        .all_reduce = { .y = buf[DOWN], .x = buf[DOWN], .C = 64, .act = FDK_F32 } };
    op[1] = norm(Y, DOWN);
    op[1].rmsnorm.C = 64;
    op[1].rmsnorm.w = buf[Q];
    op[1].rmsnorm.eps = 0.5f;
    op[1].rmsnorm.offset = 1;
    op[2] = gemm(GU, Y);
}

static int
launches(const struct fdk_op *op, int32_t n)
{
    const struct fdk_step s = { .T = 4, .O = 4 };
    struct fdk_launch l[8];
    struct fdk_bound *b = NULL;
    int32_t got;

    assert_int_equal(fdk_bind(&fdk_ops_cpu, NULL, 0, op, n, &b), 0);
    got = fdk_launches(b, &s, 1, l);
    fdk_unbind(b);
    return got;
}

static void
a_sum_and_its_norm(void **state)
{
    const struct fdk_step s = { .T = 7, .O = 4 };
    struct fdk_all_reduce_args a;
    struct fdk_op op[4];

    (void)state;
    sum_and_norm(op);
    assert_int_equal(launches(op, 3), 2);
    a = fdk_reduce_norm_args(op, &s);
    assert_true(a.T == 7 && a.C == 64 && a.y == buf[Y] && a.x == buf[DOWN]);
    assert_true(a.residual == buf[X] && a.w == buf[Q] && a.eps == 0.5f && a.offset == 1);
    op[1].rmsnorm.add_scale = 1;
    assert_int_equal(launches(op, 3), 2);
    op[1].rmsnorm.add_scale = 0.5f;
    assert_int_equal(launches(op, 3), 3);
    sum_and_norm(op);
    op[1].rmsnorm.norm = FDK_NORM_POST;
    assert_int_equal(launches(op, 3), 3);
    sum_and_norm(op);
    op[1].rmsnorm.add = buf[H];
    assert_int_equal(launches(op, 3), 3);
    sum_and_norm(op);
    op[1].rmsnorm.act = FDK_BF16;
    assert_int_equal(launches(op, 3), 3);
    sum_and_norm(op);
    op[1].rows = FDK_PER_OUT;
    assert_int_equal(launches(op, 3), 3);
    sum_and_norm(op);
    op[3] = gemm(H, DOWN); /* reads the sum again */
    assert_int_equal(launches(op, 4), 4);
}

static void
gather_slices(void **state)
{
    struct fdk_op op = { .kind = FDK_OP_ALL_GATHER,
        .rows = FDK_PER_OUT,
        .first = 8,
        .slice = 8,
        .all_gather = { .x = buf[H], .y = buf[Q] } };
    const struct fdk_step s = { .T = 100, .O = 12 };
    const void *ret[FDK_OPERANDS];

    (void)state;
    fdk_op_complete(&op, &s);
    assert_true(op.all_gather.first == 8 && op.all_gather.T == 4);
    assert_true(fdk_op_reads(&op, ret) == 1 && ret[0] == buf[H]);
    assert_true(fdk_op_writes(&op, ret) == 1 && ret[0] == buf[Q]);
}

/* A layer, from attention to attention; on the cpu backend sum and norm are one launch. */
#define N_LAYER 10
static void
layer(struct fdk_op *op)
{
    op[0] = gemm(DOWN, H);
    sum_and_norm(op + 1); /* and gate and up */
    op[4] = silu(H, GU);
    op[5] = gemm(DOWN, H);
    sum_and_norm(op + 6); /* and query, key and value */
    op[9] = (struct fdk_op){ .kind = FDK_OP_QKV };
}

/* The launches as one text: number and rows; "+" sends, "-" takes. */
static const char *
by_turns(const struct fdk_ops *k, const struct fdk_op *op, int32_t n, int32_t T, int halves)
{
    static char text[512];
    const struct fdk_step s = { .T = T, .O = T, .halves = halves };
    struct fdk_launch l[FDK_LAUNCHES(N_LAYER)];
    struct fdk_bound *b = NULL;
    int32_t m;

    assert_int_equal(fdk_bind(k, NULL, 0, op, n, &b), 0);
    m = fdk_launches(b, &s, 1, l);
    text[0] = '\0';
    for (int32_t i = 0; i < m; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s%d:%d+%d",
            i > 0 ? " " : "",
            l[i].as == FDK_LAUNCH_SEND       ? "+"
                : l[i].as == FDK_LAUNCH_TAKE ? "-"
                                             : "",
            l[i].first, l[i].at, l[i].rows);
    fdk_unbind(b);
    return text;
}

static void
halves_by_turns(void **state)
{
    const struct fdk_ops none = { .n_fusion = 0 };
    struct fdk_op op[N_LAYER];

    (void)state;
    layer(op);
    assert_int_equal(fdk_halves(op, N_LAYER), 9);
    assert_int_equal(fdk_halves(op + 1, 4), 4);
    assert_int_equal(fdk_halves(op + 9, 1), 0);
    assert_int_equal(fdk_halves(op, 1), 0); /* no sum */
    assert_string_equal(by_turns(&fdk_ops_cpu, op, N_LAYER, 5, 1),
        "0:0+3 +1:0+3 0:3+2 +1:3+2 "
        "-1:0+3 3:0+3 4:0+3 5:0+3 +6:0+3 -1:3+2 3:3+2 4:3+2 5:3+2 +6:3+2 "
        "-6:0+3 8:0+3 -6:3+2 8:3+2 9:0+0");
    assert_string_equal(by_turns(&none, op, 4, 5, 1),
        "0:0+3 +1:0+3 0:3+2 +1:3+2 -1:0+3 2:0+3 3:0+3 -1:3+2 2:3+2 3:3+2");
    /* a sum at the end, and whole steps */
    assert_string_equal(by_turns(&none, op, 2, 5, 1),
        "0:0+3 +1:0+3 0:3+2 +1:3+2 -1:0+3 -1:3+2");
    assert_string_equal(by_turns(&none, op, 2, 1, 1), "0:0+0 1:0+0");
    assert_string_equal(by_turns(&none, op, 2, 5, 0), "0:0+0 1:0+0");
    op[0].needs_output = 1;
    assert_string_equal(by_turns(&none, op, 2, 5, 1), "0:0+0 +1:0+3 +1:3+2 -1:0+3 -1:3+2");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_ranges_and_order),
        cmocka_unit_test(inner_results_end),
        cmocka_unit_test(an_operation_between),
        cmocka_unit_test(rows_are_the_same),
        cmocka_unit_test(slices),
        cmocka_unit_test(scratch_by_shapes),
        cmocka_unit_test(prepared_once),
        cmocka_unit_test(refused_at_launch),
        cmocka_unit_test(a_sum_and_its_norm),
        cmocka_unit_test(gather_slices),
        cmocka_unit_test(halves_by_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
