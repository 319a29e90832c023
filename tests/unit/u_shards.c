/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The program of a rank of a tensor-parallel group, for every family: the ranks' shapes
 * make up the whole model's, sums and gathers are at the right places, and models that
 * cannot be divided are refused. */
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
#include <cmocka.h>

#include "daemon/worker/model.h"

#define N_SIZE 6
static const int32_t sizes[N_SIZE] = { 1, 2, 3, 4, 6, 8 };

struct shape {
    int32_t heads, kv_heads, ffn, vocab;
};

static int
build_as(const char *type, struct shape s, const char *more, int32_t n_rank,
    struct mdl_program **ret, char *err, size_t err_bytes)
{
    const struct mdl_family *f = mdl_family(type);
    const char *nested = f != NULL ? f->nested : NULL;
    struct mdl_config c;
    char json[768], outer[128] = "";

    if (nested != NULL)
        snprintf(outer, sizeof(outer), "{\"model_type\":\"%s\",\"%s\":", type, nested);
    snprintf(json, sizeof(json),
        "%s{\"model_type\":\"%s\",\"num_hidden_layers\":3,\"num_attention_heads\":%d,"
        "\"num_key_value_heads\":%d,\"hidden_size\":64,\"head_dim\":16,"
        "\"intermediate_size\":%d,\"vocab_size\":%d,\"max_position_embeddings\":512%s}%s",
        outer, nested != NULL ? f->nested_type : type, s.heads, s.kv_heads, s.ffn,
        s.vocab, more, nested != NULL ? "}" : "");
    if (mdl_config_parse(json, strlen(json), NULL, 0, &c, err, err_bytes) != 0)
        fail_msg("%s: %s", json, err);
    return mdl_build(&c, n_rank, ret, err, err_bytes);
}

static struct mdl_program *
build(const char *type, struct shape s, const char *more, int32_t n_rank)
{
    struct mdl_program *p = NULL;
    char err[512] = "";

    if (build_as(type, s, more, n_rank, &p, err, sizeof(err)) != 0)
        fail_msg("%s, %d ranks: %s", type, n_rank, err);
    return p;
}

/* Builds the program of one device that computes as n_split ranks do. */
static int
build_reference(const char *type, struct shape s, const char *more, int32_t n_split,
    struct mdl_program **ret, char *err, size_t err_bytes)
{
    struct mdl_program *one = build(type, s, more, 1);
    struct mdl_config c = one->cfg;

    mdl_free(one);
    return mdl_build_reference(&c, n_split, ret, err, err_bytes);
}

static void
refused(const char *type, struct shape s, int32_t n_rank, const char *line)
{
    struct mdl_program *p = NULL;
    char err[512] = "";

    assert_int_equal(build_as(type, s, "", n_rank, &p, err, sizeof(err)), -EINVAL);
    assert_null(p);
    assert_string_equal(err, line);
}

/* Checks a cut over n ranks: each row of the model is on
 * exactly `share` ranks, in turn. */
static void
check_cut(const struct wts_cut *c, int32_t n)
{
    uint8_t *holders = calloc((size_t)c->rows, 1);

    assert_non_null(holders);
    assert_int_equal(n % c->share, 0);
    for (int32_t r = 0; r < n; r++)
        for (int32_t i = 0; i < c->rank_rows; i++)
            if (r / c->share * c->rank_rows + i < c->rows)
                holders[r / c->share * c->rank_rows + i]++;
    for (int32_t i = 0; i < c->rows; i++)
        assert_int_equal(holders[i], c->share);
    free(holders);
}

static int32_t
rank_rows(const struct wts_ref *w)
{
    int32_t n = 0;

    for (int32_t i = 0; i < w->n_cut; i++)
        n += w->cut[i].rank_rows;
    return n;
}

static void
check_weight(const struct mdl_program *p, const struct wts_ref *w)
{
    int32_t rows = 0, cuts = 0;

    for (int32_t i = 0; i < w->n_part; i++)
        rows += w->rows[i];
    for (int32_t i = 0; i < w->n_cut; i++) {
        cuts += w->cut[i].rows;
        check_cut(&w->cut[i], p->n_rank);
        if (w->shard != WTS_ROWS)
            assert_true(
                w->cut[i].share == p->n_rank && w->cut[i].rank_rows == w->cut[i].rows);
    }
    assert_int_equal(rows, cuts);
    assert_int_equal(w->rank_cols * (w->shard == WTS_COLS ? p->n_rank : 1), w->cols);
}

/* The operation after op in a step with op's tail. */
static const struct mdl_op *
next_op(const struct mdl_program *p, const struct mdl_op *op)
{
    const struct mdl_op *o = op + 1;

    while (o < p->op + p->n_op && op->tail != MDL_TAIL_BOTH && !mdl_op_runs(o, op->tail))
        o++;
    return o;
}

/* Checks that the products of a weight are summed, and that only rank 0 has its bias. */
static void
check_row_parallel(const struct mdl_program *p, const struct mdl_op *op)
{
    const struct mdl_op *sum = next_op(p, op), *norm = next_op(p, sum);

    assert_true(op->bias < 0 || p->w[op->bias].shard == WTS_FIRST);
    if (p->n_rank == 1) {
        assert_int_equal(sum->kind, MDL_OP_RMSNORM);
        assert_int_equal(sum->in2, op->out);
        return;
    }
    assert_int_equal(sum->kind, MDL_OP_ALLREDUCE);
    assert_true(sum->in == op->out && sum->out == op->out && sum->N == op->N);
    assert_true(sum->rows == op->rows && sum->tail == op->tail && sum->layer == op->layer);
    assert_int_equal(norm->kind, MDL_OP_RMSNORM);
    assert_int_equal(norm->in2, sum->out);
}

static void
check_products(const struct mdl_program *p)
{
    int32_t reduces = 0, columns = 0;

    for (int32_t i = 0; i < p->n_op; i++) {
        const struct mdl_op *op = &p->op[i];

        reduces += op->kind == MDL_OP_ALLREDUCE;
        if (op->kind != MDL_OP_GEMM && op->kind != MDL_OP_LOGITS)
            continue;
        assert_int_equal(op->N, rank_rows(&p->w[op->w]));
        assert_int_equal(op->K, p->w[op->w].rank_cols);
        assert_int_equal(p->buf[op->in].width, op->K);
        assert_int_equal(p->buf[op->out].width, op->N);
        assert_true(op->bias < 0 || rank_rows(&p->w[op->bias]) == op->N);
        assert_true(p->w[op->w].shard == WTS_COLS || p->w[op->w].shard == WTS_ROWS);
        if (p->w[op->w].shard == WTS_COLS) {
            columns++;
            check_row_parallel(p, op);
        } else if (op->bias >= 0) {
            assert_int_equal(p->w[op->bias].shard, WTS_ROWS);
        }
    }
    assert_int_equal(columns, 2 * (p->cfg.n_layer + 1)); /* those of the last layer are
                                                          * there twice */
    assert_int_equal(reduces, p->n_rank > 1 ? columns : 0);
}

static int32_t
rank_width(const struct mdl_program *p)
{
    return (p->n_head + 2 * p->n_kv_head) * p->cfg.head_dim;
}

/* A norm over all heads reads the rows of all ranks, and has only the
 * weights of the rank's own rows. */
static void
check_qkv(const struct mdl_program *p, const struct mdl_op *op)
{
    const struct mdl_op *gather = op - 1;
    int is_all = p->cfg.qk_norm == MDL_QK_ALL;

    assert_int_equal(p->buf[op->out].width, rank_width(p));
    if (is_all) {
        assert_int_equal(rank_rows(&p->w[op->w]), p->n_head * p->cfg.head_dim);
        assert_int_equal(rank_rows(&p->w[op->w2]), p->n_kv_head * p->cfg.head_dim);
    }
    if (!is_all || p->n_rank == 1) {
        assert_int_equal(op->in, op->out);
        return;
    }
    assert_int_equal(gather->kind, MDL_OP_ALLGATHER);
    assert_true(
        gather->in == op->out && gather->out == op->in && gather->in != gather->out);
    assert_true(gather->N == rank_width(p) && gather->layer == op->layer &&
        gather->rows == MDL_PER_TOKEN);
    assert_int_equal(p->buf[op->in].width, p->n_rank * rank_width(p));
    assert_int_equal(gather[-1].kind, MDL_OP_GEMM);
}

/* A rank's query heads are with the KV heads that they read in the whole model. */
static void
check_heads(const struct mdl_program *p)
{
    int32_t of_model = p->cfg.n_head / p->cfg.n_kv_head, of_rank = p->n_head / p->n_kv_head;

    assert_int_equal(p->n_head * p->n_rank, p->cfg.n_head);
    for (int32_t r = 0; r < p->n_rank; r++)
        for (int32_t h = 0; h < p->n_head; h++)
            assert_int_equal((r * p->n_head + h) / of_model,
                r / p->kv_share * p->n_kv_head + h / of_rank);
    for (int32_t g = 0; g < p->n_kv_group; g++)
        assert_int_equal(p->kv_group[g].n_kv_head, p->n_kv_head);
    for (int32_t i = 0; i < p->n_op; i++) {
        const struct mdl_op *op = &p->op[i];

        if (op->kind == MDL_OP_QKV)
            check_qkv(p, op);
        if (op->kind == MDL_OP_ATTENTION)
            assert_int_equal(p->buf[op->in].width, rank_width(p));
        if (op->kind == MDL_OP_ATTENTION)
            assert_int_equal(p->buf[op->out].width, p->n_head * p->cfg.head_dim);
        if (op->kind == MDL_OP_SILU_MUL)
            assert_true(op->N == p->ffn && p->buf[op->in].width == 2 * op->N &&
                p->buf[op->out].width == op->N && op->N * p->n_rank == p->cfg.ffn);
    }
}

/* Queries, keys and values, and gate and up, are cut separately, even
 * if they are in one tensor. */
static void
check_parts(const struct mdl_program *p)
{
    int32_t D = p->cfg.head_dim;

    for (int32_t i = 0; i < p->n_op; i++) {
        const struct mdl_op *op = &p->op[i];
        const struct wts_ref *w = op->w >= 0 ? &p->w[op->w] : NULL;

        if (op->kind != MDL_OP_GEMM || w->shard != WTS_ROWS)
            continue;
        if (next_op(p, op)->kind == MDL_OP_QKV || next_op(p, op)->kind == MDL_OP_ALLGATHER) {
            assert_true(w->n_cut == 3 && w->cut[0].rank_rows == p->n_head * D &&
                w->cut[0].share == 1);
            for (int k = 1; k < 3; k++)
                assert_true(w->cut[k].rank_rows == p->n_kv_head * D &&
                    w->cut[k].share == p->kv_share);
        } else {
            assert_true(w->n_cut == 2 && w->cut[0].rank_rows == p->ffn &&
                w->cut[1].rank_rows == p->ffn);
        }
    }
}

static void
check_head(const struct mdl_program *p)
{
    const struct mdl_op *sample = &p->op[p->n_op - 1], *op = sample - 1;
    int32_t all = p->n_rank * p->vocab_rows;

    assert_true(all >= p->cfg.vocab && p->vocab_rows < p->cfg.vocab / p->n_rank + 9);
    assert_true(p->n_rank > 1 || p->vocab_rows == p->cfg.vocab);
    assert_int_equal(sample->kind, MDL_OP_SAMPLE);
    assert_true(sample->N == p->cfg.vocab && sample->K == all);
    assert_true(p->buf[sample->in].width == all && p->buf[sample->in].f32);
    if (p->n_rank > 1) {
        assert_int_equal(op->kind, MDL_OP_ALLGATHER);
        assert_true(op->N == p->vocab_rows && op->rows == MDL_PER_OUT);
        assert_true(op->in != op->out && op->out == sample->in);
        op--;
    }
    if (op->kind == MDL_OP_SOFTCAP) {
        assert_true(op->N == p->vocab_rows && op->in == op->out && op->out == op[1].in);
        op--;
    }
    assert_int_equal(op->kind, MDL_OP_LOGITS);
    assert_true(op->N == p->vocab_rows && op->out == op[1].in && p->buf[op->out].f32);
    assert_int_equal(p->op[0].kind, MDL_OP_EMBED);
    assert_true(p->op[0].N == p->cfg.vocab && p->w[p->op[0].w].shard == WTS_ROWS);
    assert_int_equal(rank_rows(&p->w[p->op[0].w]), p->vocab_rows);
    assert_int_equal(rank_rows(&p->w[op->w]), p->vocab_rows);
}

static void
check_program(const struct mdl_program *p)
{
    for (int32_t i = 0; i < p->n_w; i++)
        check_weight(p, &p->w[i]);
    check_products(p);
    check_heads(p);
    check_parts(p);
    check_head(p);
}

static void
every_family(void **state)
{
    const struct shape shapes[] = { { 48, 48, 96, 250 }, { 48, 24, 48, 250 },
        { 24, 1, 24, 65 }, { 24, 2, 48, 7 } };

    (void)state;
    for (int f = 0; mdl_families[f] != NULL; f++) {
        const char *type = mdl_families[f]->name;
        int built = 0;

        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            struct mdl_program *one = build(type, shapes[s], "", 1);

            check_program(one);
            for (int t = 1; t < N_SIZE; t++) {
                struct mdl_program *p;

                if (sizes[t] == 3 && shapes[s].kv_heads == 2)
                    continue;
                p = build(type, shapes[s], "", sizes[t]);
                check_program(p);
                assert_int_equal(mdl_n_param(p), mdl_n_param(one));
                assert_int_equal(p->n_w, one->n_w);
                mdl_free(p);
                built++;
            }
            mdl_free(one);
        }
        assert_int_equal(built, 4 * 5 - 1);
    }
}

/* The program of a rank equals that of one device without the collectives. */
static void
same_operations(void **state)
{
    const struct shape s = { 24, 4, 48, 250 };
    struct mdl_program *one = build("gemma2", s, "", 1), *two = build("gemma2", s, "", 2);
    int32_t at = 0;

    (void)state;
    for (int32_t i = 0; i < two->n_op; i++) {
        const struct mdl_op *a = &one->op[at], *b = &two->op[i];

        if (b->kind == MDL_OP_ALLREDUCE || b->kind == MDL_OP_ALLGATHER)
            continue;
        assert_true(a->kind == b->kind && a->layer == b->layer && a->tail == b->tail &&
            a->rows == b->rows && a->w == b->w && a->bias == b->bias && a->f == b->f &&
            a->scale == b->scale && a->softcap == b->softcap && a->window == b->window);
        at++;
    }
    assert_int_equal(at, one->n_op);
    mdl_free(one);
    mdl_free(two);
}

static void
biases(void **state)
{
    const struct shape s = { 24, 2, 48, 250 };
    struct mdl_program *p = build("ernie4_5", s, ",\"use_bias\":true", 4);
    int32_t first = 0;

    (void)state;
    check_program(p);
    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];

        first += w->shard == WTS_FIRST;
        if (strstr(w->name[0], "q_proj.bias") != NULL)
            assert_true(w->n_cut == 3 && w->cut[1].share == 2);
    }
    assert_int_equal(first, 2 * p->cfg.n_layer);
    mdl_free(p);
}

static void
refusals(void **state)
{
    (void)state;
    refused("llama", (struct shape){ 32, 8, 96, 250 }, 3,
        "tensor_parallel_size = 3: num_attention_heads 32 is not divisible; 1, 2, 4, 8 are "
        "possible");
    refused("llama", (struct shape){ 24, 4, 96, 250 }, 6,
        "tensor_parallel_size = 6: num_key_value_heads 4 is neither a multiple nor a "
        "divisor; 1, 2, 4, 8 are possible");
    refused("qwen3", (struct shape){ 24, 8, 98, 250 }, 4,
        "tensor_parallel_size = 4: intermediate_size 98 is not divisible; 1, 2 are possible");
    refused("llama", (struct shape){ 7, 1, 5, 250 }, 2,
        "tensor_parallel_size = 2: num_attention_heads 7 is not divisible; 1 is possible");
    refused("llama", (struct shape){ 32, 8, 96, 250 }, 9,
        "tensor_parallel_size = 9 is not in 1..8; 1, 2, 4, 8 are possible");
    refused("llama", (struct shape){ 24, 24, 96, 250 }, 0,
        "tensor_parallel_size = 0 is not in 1..8; 1, 2, 3, 4, 6, 8 are possible");
}

/* Regression: the error for a kv_split that does not divide a KV block suggested
 * numbers that are refused too. */
static void
refused_shares(void **state)
{
    static const struct {
        struct mdl_ranks ranks;
        const char *line;
    } t[] = {
        { { .n = 1, .n_copy = 3, .kv_split = 3, .n_split = 1, .block = 64 },
            "parallel.decode_context_parallel_size = 3: it does not divide kv.block_size = 64; "
            "1 is possible" },
        { { .n = 1, .n_copy = 3, .kv_split = 2, .n_split = 1, .block = 64 },
            "decode_context_parallel_size = 2: with num_key_value_heads 1 and "
            "tensor_parallel_size = 1 a KV head is on 1 rank of each copy; 1 is possible" },
        { { .n = 6, .n_copy = 1, .kv_split = 6, .n_split = 1, .block = 16 },
            "parallel.decode_context_parallel_size = 6: it does not divide kv.block_size = 16; "
            "1, 2 are possible" },
        { { .n = 6, .n_copy = 1, .kv_split = 4, .n_split = 1, .block = 48 },
            "decode_context_parallel_size = 4: with num_key_value_heads 1 and "
            "tensor_parallel_size = 6 a KV head is on 6 ranks; 1, 2, 3, 6 are possible" },
    };
    struct mdl_program *one = build("llama", (struct shape){ 6, 1, 96, 250 }, "", 1),
                       *p = NULL;
    char err[256];

    (void)state;
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        assert_int_equal(mdl_build_ranks(&one->cfg, &t[i].ranks, &p, err, sizeof(err)),
            -EINVAL);
        assert_null(p);
        assert_string_equal(err, t[i].line);
    }
    mdl_free(one);
}

/* Each sum over ranks becomes a sum of n_split products, each with its columns; otherwise
 * the program is that of one device. */
static void
reference_of_ranks(void **state)
{
    const struct shape s = { 8, 2, 96, 250 };
    struct mdl_program *one = build("ernie4_5", s, ",\"use_bias\":true", 1), *p = NULL;
    int32_t n[MDL_OP__N] = { 0 }, more = 0;
    char err[256];

    (void)state;
    assert_int_equal(build_reference("ernie4_5", s, ",\"use_bias\":true", 4, &p, err,
                         sizeof(err)),
        0);
    for (int32_t i = 0; i < p->n_op; i++)
        n[p->op[i].kind]++;
    for (int32_t i = 0; i < one->n_op; i++)
        n[one->op[i].kind]--;
    /* two sums in a layer, those of the last layer in both tails */
    assert_int_equal(n[MDL_OP_COLUMNS], 4 * 8);
    assert_int_equal(n[MDL_OP_ADD], 3 * 8);
    assert_int_equal(n[MDL_OP_GEMM], 3 * 8);
    assert_int_equal(n[MDL_OP_ALLREDUCE] + n[MDL_OP_ALLGATHER] + n[MDL_OP_QKV], 0);
    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];

        more += w->split > 0;
        assert_true(w->shard == WTS_COLS ? w->rank_cols == w->cols / 4 : w->split == 0);
        assert_true(w->split == 0 || w->split == w[-1].split + 1);
    }
    assert_int_equal(more, 3 * 2 * 3);
    assert_int_equal(mdl_n_param(p), mdl_n_param(one));
    assert_string_equal(mdl_op_name(MDL_OP_COLUMNS), "columns");
    assert_string_equal(mdl_op_name(MDL_OP_ADD), "add");
    mdl_free(p);
    mdl_free(one);
    p = NULL;
    assert_int_equal(build_reference("llama", (struct shape){ 8, 2, 98, 250 }, "", 4, &p,
                         err, sizeof(err)),
        -EINVAL);
    assert_string_equal(err,
        "reference_splits = 4: intermediate_size 98 is not divisible; 1, 2 are possible");
    assert_int_equal(build_reference("llama", s, "", 0, &p, err, sizeof(err)), -EINVAL);
    assert_string_equal(err, "reference_splits = 0 is not in 1..8; 1, 2, 4, 8 are possible");
    assert_null(p);
}

/* The operations and the link traffic of ranks add up. */
static void
costs(void **state)
{
    const struct shape s = { 24, 4, 48, 256 };
    struct mdl_program *one = build("llama", s, "", 1), *four = build("llama", s, "", 4);
    double bytes, flops, a = 0, b = 0;

    (void)state;
    for (int32_t i = 0; i < one->n_op; i++) {
        mdl_op_cost(one, &one->op[i], 8, 8, 100, 2, 2, 2, &bytes, &flops);
        if (one->op[i].kind != MDL_OP_RMSNORM && one->op[i].kind != MDL_OP_ROPE_TABLE &&
            one->op[i].kind != MDL_OP_SAMPLE)
            a += flops;
        assert_true(mdl_op_link_bytes(one, &one->op[i], 8, 8, 2, 2, 2) == 0);
    }
    for (int32_t i = 0; i < four->n_op; i++) {
        const struct mdl_op *op = &four->op[i];
        double link = mdl_op_link_bytes(four, op, 8, 4, 2, 2, 2);

        mdl_op_cost(four, op, 8, 8, 100, 2, 2, 2, &bytes, &flops);
        assert_true(bytes > 0);
        if (op->kind != MDL_OP_RMSNORM && op->kind != MDL_OP_ROPE_TABLE &&
            op->kind != MDL_OP_SAMPLE)
            b += flops;
        if (op->kind == MDL_OP_ALLREDUCE)
            assert_true(link == 2.0 * 2 * (op->rows == MDL_PER_OUT ? 4 : 8) * 64 * 3 / 4);
        else if (op->kind == MDL_OP_ALLGATHER)
            assert_true(link == 4.0 * 4 * 64 * 3 && bytes == 4.0 * 8 * 64 * 5);
        else if (op->kind == MDL_OP_EMBED)
            assert_true(link == 2.0 * 8 * 64 * 3 / 4);
        else
            assert_true(link == 0);
    }
    assert_true(a == 4 * b);
    assert_string_equal(mdl_op_name(MDL_OP_ALLREDUCE), "allreduce");
    assert_string_equal(mdl_op_name(MDL_OP_ALLGATHER), "allgather");
    mdl_free(one);
    mdl_free(four);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(same_operations),
        cmocka_unit_test(biases),
        cmocka_unit_test(refusals),
        cmocka_unit_test(refused_shares),
        cmocka_unit_test(reference_of_ranks),
        cmocka_unit_test(costs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
