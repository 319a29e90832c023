/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges between copies of a model: keys and values of each copy's tokens into all
 * caches, and results and rows at a step's end; recorded and replayed, with copies
 * that are late or die.
 */
#include "config.h"

#include "tests/kernel/k_ranks.h"

#include <sched.h>
#include <unistd.h>

enum {
    TOK = 48,
    BLOCK = 16,
    N_BLOCK = 40,
    LAYERS = 2,
    KV_HEADS = 3,
    OUTS = 12,
    SLOTS = 9
};

static int
late_hook(void *arg, int rank, int stage, uint64_t piece, int met)
{
    uint64_t s = (uint64_t)(uintptr_t)arg + piece * 32 + (uint64_t)met * 16 +
        (uint64_t)rank * 2 + (uint64_t)stage;
    uint64_t dice = k_rand(&s);
    if (dice % 8 == 0)
        sched_yield();
    if (dice % 64 == 1)
        usleep((useconds_t)(dice >> 8 & 1023));
    return 0;
}

/* ---- keys and values ------------------------------------------------------------------- */

static struct fdk_kv
kv_of(enum fdk_dtype t, int32_t D)
{
    uint64_t half = (uint64_t)KV_HEADS * BLOCK * (uint64_t)D * fdk_dtype_bytes(t);
    uint64_t scales = t == FDK_I8 ? KV_HEADS * BLOCK * 4u : 0;
    return (struct fdk_kv){ .block_bytes = LAYERS * 2 * (half + scales),
        .layer_bytes = 2 * (half + scales),
        .v_bytes = half,
        .k_scale_off = t == FDK_I8 ? 2 * half : 0,
        .v_scale_off = t == FDK_I8 ? 2 * half + scales : 0,
        .block_size = BLOCK,
        .n_kv_head = KV_HEADS,
        .head_dim = D,
        .dtype = t };
}

/* Copies, their caches, and the slots of tokens, of which each copy has its own range. */
struct caches {
    struct fdk_kv kv;
    size_t bytes;
    char *was[FDK_MAX_RANKS]; /* content of each cache before */
    char *want;               /* expected content of all caches
                               * afterwards, at the tokens' slots */
    void *d[FDK_MAX_RANKS];
    int32_t *d_slots[FDK_MAX_RANKS], *d_range[FDK_MAX_RANKS];
    struct fdk_batch b[FDK_MAX_RANKS];
    int32_t slots[FDK_MAX_RANKS][TOK], range[FDK_MAX_RANKS][2];
};

/* Copies the bytes of one head of a token, then of its scale. */
static void
take_vector(struct caches *c, char *to, const char *from, int32_t layer, int32_t slot,
    int32_t head, int value)
{
    const struct fdk_kv *kv = &c->kv;
    size_t eb = fdk_dtype_bytes(kv->dtype);
    size_t block =
        (size_t)(slot / BLOCK) * kv->block_bytes + (size_t)layer * kv->layer_bytes;
    size_t token = (size_t)head * BLOCK + (size_t)(slot % BLOCK), at, n;
    n = (size_t)kv->head_dim * eb;
    at = block + (value ? kv->v_bytes : 0) + token * n;
    memcpy(to + at, from + at, n);
    at = block + (value ? kv->v_scale_off : kv->k_scale_off) + 4 * token;
    if (kv->dtype == FDK_I8)
        memcpy(to + at, from + at, 4);
}

/* Draws slots: tokens that all copies have, which are not exchanged, then those of each
 * copy's range, of different lengths; some have no slot. All slots differ. */
static void
caches_new(struct side *s, struct caches *c, enum fdk_dtype t, int32_t D)
{
    int32_t free_slot[N_BLOCK * BLOCK], n_free = N_BLOCK * BLOCK;
    c->kv = kv_of(t, D);
    c->bytes = (size_t)c->kv.block_bytes * N_BLOCK;
    for (int32_t i = 0; i < n_free; i++)
        free_slot[i] = i;
    for (int q = 0; q < s->n; q++) {
        int32_t first = q * 2, end = q == 1 ? first : TOK - 3 * q;
        c->range[q][0] = first;
        c->range[q][1] = end;
        for (int32_t i = 0; i < TOK; i++) {
            int32_t at = (int32_t)(k_rand(&s->seed) % (uint64_t)n_free);
            c->slots[q][i] = i % 7 == 5 ? -1 : free_slot[at];
            free_slot[at] = free_slot[--n_free];
        }
        c->was[q] = malloc(c->bytes);
        assert_non_null(c->was[q]);
        for (size_t i = 0; i < c->bytes; i++)
            c->was[q][i] = (char)k_rand(&s->seed);
        c->d[q] = put(s, q, c->was[q], c->bytes);
        c->d_slots[q] = put(s, q, c->slots[q], sizeof(c->slots[q]));
        c->d_range[q] = put(s, q, c->range[q], sizeof(c->range[q]));
        c->b[q] = (struct fdk_batch){ .slot_map = c->d_slots[q] };
    }
}

/* Computes the expected content of rank q's cache after `layer` was exchanged. */
static void
caches_want(struct side *s, struct caches *c, int q, int32_t layer, char *to)
{
    for (int p = 0; p < s->n; p++)
        for (int32_t i = c->range[p][0]; i < c->range[p][1] && p != q; i++)
            for (int32_t h = 0; h < 2 * KV_HEADS && c->slots[p][i] >= 0; h++)
                take_vector(c, to, c->was[p], layer, c->slots[p][i], h / 2, h % 2);
}

static struct fdk_kv_share_args
share_args(struct side *s, struct caches *c, int q, int32_t layer, int begin)
{
    struct fdk_kv_share_args a = { .group = s->g,
        .b = &c->b[q],
        .range = c->d_range[q],
        .kv = c->kv,
        .T = TOK,
        .layer = layer,
        .begin = begin };
    a.kv.base = c->d[q];
    for (int p = 0; p < s->n; p++)
        a.peer[p] = c->d[p];
    return a;
}

static void
caches_free(struct side *s, struct caches *c)
{
    for (int q = 0; q < s->n; q++)
        free(c->was[q]);
}

static void
t_kv(void **state)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_BF16, FDK_F16, FDK_I8, FDK_F8E4M3 };
    static const int32_t dims[] = { 64, 20, 5 };
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (size_t k = 0; k < 5 * 3; k++) {
        const struct fdk_group_args a = kind((int)k % 3, n);
        void *seen[FDK_MAX_RANKS] = { NULL };
        static struct caches c;
        struct side s;
        side_open(&s, &a);
        caches_new(&s, &c, types[k % 5], dims[k / 5]);
        for (int q = 0; q < n; q++)
            seen[q] = put(&s, q, NULL, c.bytes);
        for (int q = 0; q < n; q++) {
            for (int32_t l = 0; l < LAYERS; l++) {
                const struct fdk_kv_share_args x = share_args(&s, &c, q, l, l == 0);
                if (l > 0 && q == n - 1)
                    OK(ops->stream_delay(s.st[q], 3000000));
                OK(ops->kv_share(&x, s.st[q]));
            }
            /* later launches, such as attention, find all of it */
            OK(ops->copy(s.st[q], seen[q], c.d[q], c.bytes));
        }
        side_sync(&s);
        for (int q = 0; q < n; q++) {
            char *want = malloc(c.bytes);
            assert_non_null(want);
            memcpy(want, c.was[q], c.bytes);
            for (int32_t l = 0; l < LAYERS; l++)
                caches_want(&s, &c, q, l, want);
            has(&s, q, c.d[q], want, c.bytes, fdk_dtype_name(types[k % 5]));
            has(&s, q, seen[q], want, c.bytes, "as it was read");
            free(want);
        }
        drop(&s, 1);
        caches_free(&s, &c);
        side_close(&s);
    }
}

/* Earlier launches of a copy have ended before another copy's keys arrive. */
static void
t_begin(void **state)
{
    int n;
    (void)state;
    FOR_WORLDS(n)
    {
        const struct fdk_group_args a = kind(2, n);
        static struct caches c;
        struct side s;
        side_open(&s, &a);
        caches_new(&s, &c, FDK_F32, 64);
        for (int q = 0; q < n; q++) {
            const struct fdk_kv_share_args x = share_args(&s, &c, q, 0, 1);
            if (q == 0) { /* it clears its cache late */
                OK(ops->stream_delay(s.st[q], 30000000));
                OK(ops->fill(s.st[q], c.d[q], 0, c.bytes));
                memset(c.was[q], 0, c.bytes);
            }
            OK(ops->kv_share(&x, s.st[q]));
        }
        side_sync(&s);
        for (int q = 0; q < n; q++) {
            char *want = malloc(c.bytes);
            assert_non_null(want);
            memcpy(want, c.was[q], c.bytes);
            caches_want(&s, &c, q, 0, want);
            has(&s, q, c.d[q], want, c.bytes, "cleared");
            free(want);
        }
        caches_free(&s, &c);
        side_close(&s);
    }
}

/* ---- rows ------------------------------------------------------------------------------- */

struct rows {
    struct fdk_row state[SLOTS];
    struct fdk_out out[OUTS];
    struct fdk_result results[OUTS], all[FDK_MAX_RANKS * OUTS];
    int32_t at[OUTS], slot[OUTS], n_out;
    void *d_state, *d_all;
    struct fdk_batch b;
    const int32_t *d_at;
    void *d_results;
};

static void
rows_new(struct side *s, struct rows *r, int q, int n_out)
{
    memset(r, 0, sizeof(*r));
    memset(r->all, 0x55, sizeof(r->all));
    r->n_out = n_out;
    for (int i = 0; i < SLOTS; i++) {
        r->state[i].last_token = 1000 * q + i;
        r->state[i].len = 100 * q + i;
        r->state[i].done = q;
        r->state[i].generation = (uint32_t)(i + 1);
    }
    for (int o = 0; o < OUTS; o++) {
        r->slot[o] = (o * 5 + 1) % SLOTS;
        r->out[o] = (struct fdk_out){ .row = o,
            .kind = q == 0 && o % 2 == 0 ? FDK_OUT_SAMPLE : FDK_OUT_SCORE };
        r->results[o].token = 7000 + 100 * q + o;
        r->results[o].logprob = (float)(q * 1000 + o);
        r->at[o] = o * s->n + q;
    }
    r->d_state = put(s, q, r->state, sizeof(r->state));
    r->d_all = put(s, q, r->all, sizeof(r->all));
    r->d_results = put(s, q, r->results, sizeof(r->results));
    r->d_at = put(s, q, r->at, sizeof(r->at));
    r->b = (struct fdk_batch){ .n_out = put(s, q, &r->n_out, 4),
        .state = put(s, q, r->slot, sizeof(r->slot)),
        .out = put(s, q, r->out, sizeof(r->out)) };
}

static struct fdk_row_share_args
rows_args(struct side *s, struct rows *r, int q, int divided, int O)
{
    struct fdk_row_share_args a = { .group = s->g,
        .b = &r[q].b,
        .results = r[q].d_results,
        .all = r[0].d_all,
        .at = divided ? r[q].d_at : NULL,
        .O = O };
    for (int p = 0; p < s->n; p++)
        a.state[p] = r[p].d_state;
    return a;
}

/* Checks that the states of rank q are its own, except those that rank 0 has sampled. */
static void
rows_check(struct side *s, const struct rows *r, int q, const void *at)
{
    struct fdk_row got[SLOTS];
    get(s, q, got, at, sizeof(got));
    for (int i = 0; i < SLOTS; i++) {
        int sampled = 0;
        for (int o = 0; o < r[0].n_out; o++)
            sampled |= r[0].slot[o] == i && r[0].out[o].kind == FDK_OUT_SAMPLE;
        int from = sampled ? 0 : q;
        assert_int_equal(got[i].last_token, r[from].state[i].last_token);
        assert_int_equal(got[i].len, r[from].state[i].len);
        assert_int_equal(got[i].done, r[from].state[i].done);
        assert_int_equal(got[i].generation, r[q].state[i].generation);
    }
}

static void
t_rows(void **state)
{
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (int divided = 0; divided < 2; divided++) {
        const struct fdk_group_args a = kind(2, n);
        static struct rows r[FDK_MAX_RANKS];
        struct fdk_result all[FDK_MAX_RANKS * OUTS];
        void *seen[FDK_MAX_RANKS] = { NULL };
        struct side s;
        side_open(&s, &a);
        for (int q = 0; q < n; q++)
            rows_new(&s, &r[q], q, q == 0 ? OUTS - 1 : divided ? OUTS - q : 0);
        for (int q = 0; q < n; q++)
            seen[q] = put(&s, q, NULL, q == 0 ? sizeof(all) : sizeof(r[q].state));
        for (int q = 0; q < n; q++) {
            const struct fdk_row_share_args x =
                rows_args(&s, r, q, divided, q == 0 || divided ? OUTS : 0);
            if (q == (divided ? n - 1 : 0))
                OK(ops->stream_delay(s.st[q], 3000000));
            OK(ops->row_share(&x, s.st[q]));
            /* later launches find all of it */
            if (q == 0)
                OK(ops->copy(s.st[q], seen[q], r[0].d_all, sizeof(all)));
            else
                OK(ops->copy(s.st[q], seen[q], r[q].d_state, sizeof(r[q].state)));
        }
        side_sync(&s);
        for (int q = 1; q < n; q++)
            rows_check(&s, r, q, seen[q]);
        get(&s, 0, all, seen[0], sizeof(all));
        for (int q = 0; q < n; q++) {
            rows_check(&s, r, q, r[q].d_state);
            for (int o = 0; o < r[q].n_out && divided; o++) {
                assert_memory_equal(&all[r[q].at[o]], &r[q].results[o], sizeof(all[0]));
                r[0].all[r[q].at[o]] = r[q].results[o];
            }
        }
        assert_memory_equal(all, r[0].all, sizeof(all));
        drop(&s, 1);
        side_close(&s);
    }
}

/* ---- graphs, late copies ------------------------------------------------------------------- */

#define REPLAYS (K_SLOW ? 200 : 2000)

/* A step's exchanges recorded once and replayed, with late copies: no replay uses data of
 * another. Rank q adds 1 to its counts each time. */
static void
t_graphs(void **state)
{
    int n;
    (void)state;
    FOR_WORLDS(n)
    {
        const struct fdk_group_args a = kind(2, n);
        struct fdk_graph *graph[FDK_MAX_RANKS];
        static struct rows r[FDK_MAX_RANKS];
        static struct caches c;
        char *want[FDK_MAX_RANKS];
        struct side s;
        side_open(&s, &a);
        if (on_cpu)
            fdk_cpu_group_hook(s.g, late_hook, (void *)(uintptr_t)(n * 1000));
        caches_new(&s, &c, FDK_I8, 32);
        for (int q = 0; q < n; q++)
            rows_new(&s, &r[q], q, q == 0 ? OUTS : 0);
        for (int q = 0; q < n; q++) {
            OK(ops->graph_begin(s.st[q]));
            for (int32_t l = 0; l < LAYERS; l++) {
                const struct fdk_kv_share_args x = share_args(&s, &c, q, l, l == 0);
                OK(ops->kv_share(&x, s.st[q]));
            }
            const struct fdk_row_share_args y = rows_args(&s, r, q, 0, q == 0 ? OUTS : 0);
            OK(ops->row_share(&y, s.st[q]));
            OK(ops->graph_end(s.st[q], &graph[q]));
            want[q] = malloc(c.bytes);
            assert_non_null(want[q]);
        }
        for (int i = 0; i < REPLAYS; i++) {
            /* new bytes for each replay, written before the step
             * as by its earlier launches */
            for (int q = 0; q < n; q++) {
                if (k_rand(&s.seed) % 64 == 0)
                    OK(ops->stream_delay(s.st[q], k_rand(&s.seed) % 300000));
                OK(ops->fill(s.st[q], c.d[q], (i * 8 + q) & 0xff, c.bytes));
                OK(ops->graph_launch(graph[q], s.st[q]));
            }
            if (i % 100 != 99)
                continue;
            side_sync(&s);
            for (int q = 0; q < n; q++)
                memset(c.was[q], (i * 8 + q) & 0xff, c.bytes);
            for (int q = 0; q < n; q++) {
                memcpy(want[q], c.was[q], c.bytes);
                for (int32_t l = 0; l < LAYERS; l++)
                    caches_want(&s, &c, q, l, want[q]);
                has(&s, q, c.d[q], want[q], c.bytes, "replay");
            }
        }
        side_sync(&s);
        for (int q = 0; q < n; q++) {
            rows_check(&s, r, q, r[q].d_state);
            ops->graph_free(graph[q]);
            free(want[q]);
        }
        caches_free(&s, &c);
        side_close(&s);
    }
}

/* ---- copies that do not arrive ---------------------------------------------------------------- */

static void
all_fail(struct side *s, int not, const char *what)
{
    for (int q = 0; q < s->n; q++) {
        if (q == not )
            continue;
        assert_int_equal(ops->stream_sync(s->st[q]), -EIO);
        if (strstr(ops->error_text(s->ctx, q), what) == NULL)
            fail_msg("rank %d: %s, not %s", q, ops->error_text(s->ctx, q), what);
    }
}

/* Errors name ranks by the group's numbers. */
static void
t_never_comes(void **state)
{
    static const int32_t number[] = { 10, 11, 12, 13, 14, 15, 16, 17 };
    char what[64];
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (int rows = 0; rows < 2; rows++) {
        struct fdk_group_args a = kind(2, n);
        static struct rows r[FDK_MAX_RANKS];
        static struct caches c;
        struct side s;
        a.spin_limit_us = LIMIT_US;
        a.number = number;
        side_open(&s, &a);
        caches_new(&s, &c, FDK_F32, 8);
        for (int q = 0; q < n; q++)
            rows_new(&s, &r[q], q, 1);
        for (int q = 0; q < n - 1; q++) {
            const struct fdk_kv_share_args x = share_args(&s, &c, q, 0, 1);
            const struct fdk_row_share_args y = rows_args(&s, r, q, 0, 1);
            OK(rows ? ops->row_share(&y, s.st[q]) : ops->kv_share(&x, s.st[q]));
        }
        snprintf(what, sizeof(what), "rank %d did not arrive within %d ms", 10 + n - 1,
            LIMIT_US / 1000);
        all_fail(&s, n - 1, what);
        caches_free(&s, &c);
        side_close(&s);
    }
}

/* A copy launches another layer, another size, or another operation. */
static void
t_other_operation(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct fdk_group_args a = kind(2, 2);
        static struct rows r[FDK_MAX_RANKS];
        static struct caches c;
        struct side s;
        a.spin_limit_us = LIMIT_US;
        side_open(&s, &a);
        caches_new(&s, &c, FDK_F32, 8);
        for (int q = 0; q < 2; q++)
            rows_new(&s, &r[q], q, 1);
        for (int q = 0; q < 2; q++) {
            struct fdk_kv_share_args x = share_args(&s, &c, q, k == 0 ? q : 0, 1);
            const struct fdk_row_share_args y = rows_args(&s, r, q, k == 3 && q == 1, 1);
            x.T -= k == 1 ? q : 0;
            OK((k == 2 && q == 1) || k == 3 ? ops->row_share(&y, s.st[q])
                                            : ops->kv_share(&x, s.st[q]));
        }
        for (int q = 0; q < 2; q++) {
            /* one is in its first meeting, the other perhaps in its second */
            assert_int_equal(ops->stream_sync(s.st[q]), -EIO);
            assert_non_null(
                strstr(ops->error_text(s.ctx, q), "launched different operations"));
        }
        caches_free(&s, &c);
        side_close(&s);
    }
}

static void
t_bad_arguments(void **state)
{
    const struct fdk_group_args a = { .n_rank = 2 };
    static struct rows r[FDK_MAX_RANKS];
    static struct caches c;
    struct side s;
    (void)state;
    const struct fdk_group_args in_host = { .n_rank = 2, .in_host = 1 };
    struct fdk_group *host = NULL;
    char err[256] = "";
    side_open(&s, &a);
    caches_new(&s, &c, FDK_F32, 8);
    for (int q = 0; q < 2; q++)
        rows_new(&s, &r[q], q, 1);
    const struct fdk_kv_share_args kv = share_args(&s, &c, 0, 0, 1);
    const struct fdk_row_share_args row = rows_args(&s, r, 0, 1, 1);
#define BAD(op, from, rc, ...) \
    do { \
        struct fdk_##op##_args b_ = from; \
        __VA_ARGS__; \
        assert_int_equal(ops->op(&b_, s.st[0]), rc); \
    } while (0)
    BAD(kv_share, kv, -EINVAL, b_.group = NULL);
    BAD(kv_share, kv, -EINVAL, b_.b = NULL);
    BAD(kv_share, kv, -EINVAL, b_.range = NULL);
    BAD(kv_share, kv, -EINVAL, b_.T = 0);
    BAD(kv_share, kv, -EINVAL, b_.layer = -1);
    BAD(kv_share, kv, -EINVAL, b_.kv.base = NULL);
    BAD(kv_share, kv, -EINVAL, b_.kv.head_dim = 0);
    BAD(kv_share, kv, -EINVAL, b_.kv.block_size = 0);
    BAD(kv_share, kv, -EINVAL, b_.peer[1] = NULL);
    BAD(kv_share, kv, -ENOTSUP, b_.kv.dtype = FDK_I4);
    BAD(row_share, row, -EINVAL, b_.group = NULL);
    BAD(row_share, row, -EINVAL, b_.b = NULL);
    BAD(row_share, row, -EINVAL, b_.state[1] = NULL);
    BAD(row_share, row, -EINVAL, b_.results = NULL);
    BAD(row_share, row, -EINVAL, b_.all = NULL);
    BAD(row_share, row, -EINVAL, b_.O = -1);
    OK(ops->group_new(s.ctx, &in_host, &host, err, sizeof(err)));
    BAD(kv_share, kv, -EINVAL, b_.group = host);
    BAD(row_share, row, -EINVAL, b_.group = host);
    ops->group_free(host);
    assert_int_equal(ops->kv_share(&kv, NULL), -EINVAL);
    assert_int_equal(ops->row_share(&row, NULL), -EINVAL);
    side_sync(&s); /* nothing was launched */
    caches_free(&s, &c);
    side_close(&s);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_kv),
        cmocka_unit_test(t_begin),
        cmocka_unit_test(t_rows),
        cmocka_unit_test(t_graphs),
        cmocka_unit_test(t_never_comes),
        cmocka_unit_test(t_other_operation),
        cmocka_unit_test(t_bad_arguments),
    };
    return both_backends(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
