/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps with graphs compared with steps launched operation by operation: a tiny model on
 * the cpu backend, the same requests in the same steps, the same ids and bits. A graph
 * serves any distribution of its tokens over rows.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/hooks.h"
#include "tests/sim/ref.h"

static char dir[64];

static struct sim_cfg
base(int graph)
{
    return (struct sim_cfg){ .max_reqs = 16,
        .max_seqs = 8,
        .max_tokens = 256,
        .max_len = 256,
        .n_block = 120,
        .block_size = 16,
        .chunked = 1,
        .exec = FDK_EXEC_DEFER,
        .pace = SIM_PACE_FAST,
        .model_dir = dir,
        .graph = graph };
}

/* ---- two simulations, the same requests --------------------------------------------------- */

struct pair {
    struct sim *eager, *graph;
};

static struct pair
pair_new(struct sim_cfg c)
{
    struct pair p;

    c.graph = 0;
    p.eager = sim_new(&c);
    c.graph = 1;
    p.graph = sim_new(&c);
    return p;
}

static void
pair_free(struct pair *p)
{
    sim_free(p->eager);
    sim_free(p->graph);
}

static struct sim_req *
ask(struct sim *s, struct sim_rng g, uint32_t n_prompt, uint32_t max_new)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = n_prompt;
    r->prompt = mem_array(n_prompt, 4);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = sim_range(&g, 3, 250);
    r->p.max_new = max_new;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = 4;
    sim_submit(s, r, NULL);
    return r;
}

/* Runs prompts of these lengths as one step. */
static void
batch(struct sim *s, struct sim_rng g, const uint32_t *len, int n, uint64_t *ret_hash)
{
    struct sim_req *r[8];
    uint64_t before = s->pip->eng->epoch;

    for (int i = 0; i < n; i++) {
        r[i] = ask(s, g, len[i], 2);
        (void)sim_u32(&g);
    }
    sim_drain(s);
    /* prompts together, then the second tokens */
    SIM_CHECK(s->pip->eng->epoch == before + 2);
    for (int i = 0; i < n; i++) {
        SIM_CHECK(r[i]->code == 0);
        ret_hash[i] =
            r[i]->s[0].lp_hash ^ r[i]->s[0].ids[0] ^ (uint64_t)r[i]->s[0].ids[1] << 32;
    }
}

static void
same(struct pair *p, struct sim_rng *g, const uint32_t *len, int n)
{
    uint64_t a[8], b[8], before = p->graph->run->n_graph;
    struct sim_rng seed = { sim_u32(g) };

    batch(p->eager, seed, len, n, a);
    batch(p->graph, seed, len, n, b);
    SIM_CHECK(memcmp(a, b, (size_t)n * sizeof(a[0])) == 0);
    SIM_CHECK(p->graph->run->n_graph == before + 2 && p->eager->run->n_graph == 0);
}

/* Divides m tokens into n lengths. */
static void
cut(struct sim_rng *g, uint32_t m, int n, uint32_t *len)
{
    for (int i = 0; i < n; i++)
        len[i] = 1;
    m -= (uint32_t)n;
    for (int i = 0; i < n; i++) {
        uint32_t k = i == n - 1 ? m : sim_range(g, 0, m);

        len[i] += k;
        m -= k;
    }
}

#ifdef FDD_SANITIZED
#define N_COMPOSITION 10
#else
#define N_COMPOSITION 40
#endif

static int
n_composition(void)
{
    const char *v = getenv("FDD_SIM_STEPS");

    return v != NULL && strtoull(v, NULL, 10) >= 1000000 ? 1000 : N_COMPOSITION;
}

static void
a2_any_composition_of_a_captured_size(struct sim_rng *g)
{
    static const int32_t sizes[] = { 8, 24, 64, 200 };
    struct sim_cfg c = base(0);
    struct pair p;

    c.capture = "1,2,4,8,24,64,200";
    p = pair_new(c);
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        uint32_t len[8];

        for (int i = 0; i < n_composition(); i++) {
            int n = (int)sim_range(g, 1, 8);

            cut(g, sim_range(g, 8, (uint32_t)sizes[k]), n, len);
            same(&p, g, len, n);
        }
        /* as many rows as possible, tiles exactly full, one token more */
        for (uint32_t each = 1; each * 8 <= (uint32_t)sizes[k]; each++) {
            for (int i = 0; i < 8; i++)
                len[i] = each;
            same(&p, g, len, 8);
        }
    }
    pair_free(&p);
}

/* The step that records a graph is a step like any other and leaves nothing behind. */
static void
a2_recorded_by_whatever_step_comes_first(struct sim_rng *g)
{
    static const uint32_t first[][8] = { { 1 }, { 1, 1, 1 }, { 60 }, { 30, 2 } };
    static const int n_first[] = { 1, 3, 1, 2 };

    for (size_t k = 0; k < sizeof(n_first) / sizeof(n_first[0]); k++) {
        struct sim_cfg c = base(0);
        struct pair p;

        c.capture = "64";
        c.lazy = 1;
        p = pair_new(c);
        same(&p, g, first[k], n_first[k]);
        for (int i = 0; i < 10; i++) {
            uint32_t len[8];
            int n = (int)sim_range(g, 1, 8);

            cut(g, sim_range(g, 8, 64), n, len);
            same(&p, g, len, n);
        }
        pair_free(&p);
    }
}

static void
a3_largest_smallest_largest(struct sim_rng *g)
{
    static const uint32_t large[8] = { 25, 25, 25, 25, 25, 25, 25, 25 }, one[1] = { 3 };
    static const uint32_t long_one[1] = { 200 };
    struct sim_cfg c = base(0);
    struct pair p;

    c.capture = "200";
    p = pair_new(c);
    for (int i = 0; i < 3; i++) {
        same(&p, g, large, 8);
        same(&p, g, one, 1);
        same(&p, g, large, 8);
        same(&p, g, long_one, 1);
        same(&p, g, one, 1);
    }
    pair_free(&p);
}

/* The work list and everything else that the device keeps between steps is overwritten
 * with garbage before each step. */
static void
a4_poisoned_between_steps(struct sim_rng *g)
{
    struct sim_cfg c = base(0);
    struct pair p;

    c.capture = "8,64,200";
    p = pair_new(c);
    for (int i = 0; i < 40 && sim_is_virtual(p.graph); i++) {
        uint32_t len[8];
        int n = (int)sim_range(g, 1, 8);
        struct runner *run = p.graph->run;

        cut(g, sim_range(g, 8, 200), n, len);
        memset(run_root(run)->d_results, 0x7f,
            (size_t)run->dims.O * sizeof(*run_root(run)->d_results));
        memset(run_root(run)->d_plan, 0x7f, bat_plan_bytes(&run->dims));
        memset(run_root(run)->d_act, 0x7f, run_root(run)->mem.activations);
        same(&p, g, len, n);
    }
    pair_free(&p);
}

/* Only existing tiles are computed, not all that there is room for; in the last layer
 * only those with an output, which are the last of each row. */
static void
a5_tiles_executed(struct sim_rng *g)
{
    struct sim_cfg c = base(1);
    struct sim *s;

    c.capture = "200";
    s = sim_new(&c);
    for (int i = 0; i < 30 && sim_is_virtual(s); i++) {
        const struct runner *run = s->run;
        struct sim_req *r[8];
        uint32_t len[8];
        int n = (int)sim_range(g, 1, 8), want = 0, n_layer;
        const struct run_att *few;

        cut(g, sim_range(g, 8, 200), n, len);
        for (int k = 0; k < n; k++) {
            r[k] = ask(s, *g, len[k], 1);
            want += ((int32_t)len[k] * run->att_a + run->att_b - 1) / run->att_b;
        }
        sim_drain(s);
        for (int k = 0; k < n; k++)
            SIM_CHECK(r[k]->code == 0);
        n_layer = s->prog->cfg.n_layer;
        few = run_root(run)->few[0].att;
        SIM_CHECK(run_root(run)->few[0].O >= n && few[0].counts[0] == want);
        SIM_CHECK(few[0].counts[1] == want * (n_layer - 1));
        SIM_CHECK(few[1].counts[0] == n && few[1].counts[1] == n);
    }
    sim_free(s);
}

/* KV written by a replay from any offset within a block is read by a replay. */
static void
a6_any_offset_in_a_block(struct sim_rng *g)
{
    struct pair p;
    struct sim_cfg c = base(0);

    c.capture = "4,16,32";
    c.max_tokens = 32;
    p = pair_new(c);
    for (uint32_t off = 0; off < 16; off++) {
        struct sim_rng seed = { sim_u32(g) };
        struct sim_req *a = NULL, *b = NULL;

        /* chunks of 32 minus one token of a decoding row, at odd positions */
        (void)ask(p.eager, seed, off + 1, 12);
        (void)ask(p.graph, seed, off + 1, 12);
        for (int i = 0; i < 2; i++) {
            (void)sim_poll(p.eager);
            (void)sim_poll(p.graph);
        }
        a = ask(p.eager, seed, 70 + off, 4);
        b = ask(p.graph, seed, 70 + off, 4);
        sim_drain(p.eager);
        sim_drain(p.graph);
        SIM_CHECK(a->code == 0 && b->code == 0);
        SIM_CHECK(a->s[0].lp_hash == b->s[0].lp_hash);
        SIM_CHECK(memcmp(a->s[0].ids, b->s[0].ids, 16) == 0);
    }
    SIM_CHECK(p.graph->run->n_eager == 0);
    pair_free(&p);
}

/* A decode and three prompts of 80: 241 tokens, a graph of 256. */
static void
a7_mixed_batch_hits_a_graph(struct sim_rng *g)
{
    struct sim_cfg c = base(0);
    uint64_t hash[2][4], steps;
    struct pair p = pair_new(c);
    struct sim_rng seed = { sim_u32(g) };

    for (int k = 0; k < 2; k++) {
        struct sim *s = k == 0 ? p.eager : p.graph;
        const struct cnt_worker *w = &s->cnt->w;
        struct sim_req *r[4];

        r[0] = ask(s, seed, 9, 30);
        for (int i = 0; i < 5; i++)
            (void)sim_poll(s);
        steps = cnt_get(&w->steps_graph) + cnt_get(&w->steps_eager);
        for (int i = 1; i < 4; i++)
            r[i] = ask(s, (struct sim_rng){ seed.s + (uint64_t)i }, 80, 20);
        (void)sim_poll(s);
        SIM_CHECK(s->pip->eng->step.n_row == 4 && s->pip->eng->step.n_tok == 241);
        SIM_CHECK(s->run->rec[0].T_pad == (k == 0 ? 241 : 256));
        (void)sim_poll(s);
        SIM_CHECK(cnt_get(&w->steps_graph) + cnt_get(&w->steps_eager) > steps);
        sim_drain(s);
        for (int i = 0; i < 4; i++)
            hash[k][i] = r[i]->s[0].lp_hash;
    }
    SIM_CHECK(cnt_get(&p.graph->cnt->w.steps_eager) == 0);
    SIM_CHECK(cnt_get(&p.eager->cnt->w.steps_graph) == 0);
    SIM_CHECK(memcmp(hash[0], hash[1], sizeof(hash[0])) == 0);
    pair_free(&p);
}

/* One graph, every length of context. */
static void
a8_any_context_by_one_graph(struct sim_rng *g)
{
    struct sim_cfg c = base(0);
    struct pair p;
    struct sim_rng seed = { sim_u32(g) };
    struct sim_req *a, *b;

    c.capture = "1";
    c.max_tokens = 1;
    p = pair_new(c);
    a = ask(p.eager, seed, 1, 255);
    b = ask(p.graph, seed, 1, 255);
    sim_drain(p.eager);
    sim_drain(p.graph);
    SIM_CHECK(a->s[0].n_ids == 255 && a->s[0].lp_hash == b->s[0].lp_hash);
    SIM_CHECK(p.graph->run->n_graph == 255 && p.graph->run->n_eager == 0);
    pair_free(&p);
}

static void
a11_larger_steps_are_eager(struct sim_rng *g)
{
    struct sim_cfg c = base(1);
    struct sim *s;
    uint64_t epoch;

    c.capture = "1,4,64";
    s = sim_new(&c);
    (void)ask(s, *g, 65, 3);
    sim_drain(s);
    SIM_CHECK(s->run->n_eager == 1 && s->run->n_graph == 2);
    (void)ask(s, *g, 64, 1);
    sim_drain(s);
    SIM_CHECK(s->run->n_eager == 1 && s->run->n_graph == 3);
    SIM_CHECK(cnt_get(&s->cnt->w.steps_eager) == 1);
    /* with nothing to do nothing is launched */
    epoch = s->pip->eng->epoch;
    for (int i = 0; i < 10; i++)
        (void)sim_poll(s);
    SIM_CHECK(s->pip->eng->epoch == epoch && s->run->n_graph + s->run->n_eager == epoch);
    sim_free(s);
}

/* ---- a13 ---------------------------------------------------------------------------------- */

/* Between graph_begin and graph_end: no allocation, no wait, no copy. */
static const struct fdk_ops *spied;
static struct fdk_ops spy;
static int capturing, n_captured, n_forbidden, n_alive;

static int
spy_begin(fdk_stream_t st)
{
    capturing = 1;
    n_captured++;
    return spied->graph_begin(st);
}

static int
spy_end(fdk_stream_t st, struct fdk_graph **ret)
{
    int rc = spied->graph_end(st, ret);

    capturing = 0;
    n_alive += rc == 0;
    return rc;
}

static void
spy_free(struct fdk_graph *graph)
{
    n_alive--;
    spied->graph_free(graph);
}

static int
spy_copy(fdk_stream_t st, void *dst, const void *src, size_t bytes)
{
    n_forbidden += capturing;
    return spied->copy(st, dst, src, bytes);
}

static int
spy_alloc(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret)
{
    n_forbidden += capturing;
    return spied->mem_alloc(ctx, dev, bytes, ret);
}

static int
spy_sync(fdk_stream_t st)
{
    n_forbidden += capturing;
    return spied->stream_sync(st);
}

static int
spy_event_sync(fdk_event_t ev)
{
    n_forbidden += capturing;
    return spied->event_sync(ev);
}

static void
a13_only_launches_in_a_capture(struct sim_rng *g)
{
    struct sim_cfg c = base(1);
    struct sim *s;

    c.lazy = 1;
    c.depth = 2;
    s = sim_new(&c);
    spied = s->run->k;
    spy = *spied;
    spy.graph_begin = spy_begin;
    spy.graph_end = spy_end;
    spy.copy = spy_copy;
    spy.mem_alloc = spy_alloc;
    spy.stream_sync = spy_sync;
    spy.event_sync = spy_event_sync;
    s->run->k = &spy;
    for (int i = 0; i < 10; i++)
        (void)ask(s, *g, sim_range(g, 1, 250), 5);
    sim_drain(s);
    SIM_CHECK(n_captured > 3 && n_forbidden == 0);
    s->run->k = spied;
    sim_free(s);
}

/* ---- changes at run time ------------------------------------------------------------------ */

/* Changing to other graphs, or none, under load changes no result. */
static void
graphs_switched_under_load(struct sim_rng *g)
{
    static const char *const lists[] = { "8", "1,2,3,4,5,6,7,8", "5,17,64,100", "256",
        "1,3,5,7,9,200" };
    const struct ref_cfg rc = { .ask = REF_ALL & ~REF_TEXT & ~REF_PENALTY,
        .n_content = 50,
        .max_prompt = 150,
        .max_new = 40,
        .seed = 21 };
    struct sim_cfg c = base(1);
    struct ref *f = ref_new(&c, &rc);

    for (int depth = 0; depth <= ENG_MAX_DEPTH; depth++) {
        int n_change = 0;
        struct sim *s;

        c.depth = depth;
        c.lazy = depth % 2;
        c.pace = SIM_PACE_RANDOM;
        c.seed = sim_u32(g);
        s = sim_new(&c);
        ref_watch(f, s);
        for (int i = 0; i < 500; i++) {
            struct cap cap;
            char err[256];

            if (s->n_open < 10 && sim_u32(g) % 8 == 0)
                (void)ref_ask(f, s, sim_range(g, 0, 49));
            SIM_CHECK(
                cap_parse(lists[sim_range(g, 0, 4)], 256, &cap, err, sizeof(err)) == 0);
            if (sim_u32(g) % 25 == 0)
                n_change += eng_set_graph(s->pip->eng, sim_u32(g) % 4 != 0, &cap) == 0;
            (void)sim_poll(s);
        }
        sim_drain(s);
        SIM_CHECK(n_change > 5 && s->n_error == 0 && s->n_done > 20);
        SIM_CHECK(s->run->n_graph > 0 && s->run->n_eager > 0);
        sim_free(s);
    }
    ref_free(f);
}

/* Graphs of sizes no longer used are freed; otherwise each change of
 * graph.capture_sizes would leak memory. */
static void
recapture_frees(struct sim_rng *g)
{
    static const char *const lists[] = { "1,2,3,4,5,6,7,8", "5,17,64,100", "8" };
    struct sim_cfg c = base(1);
    struct sim *s;

    c.lazy = 1;
    s = sim_new(&c);
    spied = s->run->k;
    spy = *spied;
    spy.graph_begin = spy_begin;
    spy.graph_end = spy_end;
    spy.graph_free = spy_free;
    s->run->k = &spy;
    n_captured = n_alive = 0;
    for (int i = 0; i < 30; i++) {
        struct cap cap;
        char err[256];
        int n_held = 0;

        SIM_CHECK(cap_parse(lists[i % 3], 256, &cap, err, sizeof(err)) == 0);
        SIM_CHECK(eng_set_graph(s->pip->eng, 1, &cap) == 0);
        for (int k = 0; k < 3; k++)
            (void)ask(s, *g, sim_range(g, 1, 90), 3);
        sim_drain(s);
        for (int32_t k = 0; k < run_root(s->run)->n_pad; k++)
            n_held += (run_root(s->run)->pad[k].graph != NULL) +
                (run_root(s->run)->few[k].graph != NULL);
        SIM_CHECK(n_alive == n_held && n_held > 0);
    }
    SIM_CHECK(n_captured >= 30);
    s->run->k = spied;
    sim_free(s);
}

/* ---- a recorded graph has the launches that the bound program lists ----------------------- */

#define NAMES (1 << 18)

struct program_of {
    struct run_dev *dev;
    const struct run_pad *pad;
};

static int
program_launch(void *arg)
{
    const struct program_of *p = arg;

    return run_program(p->dev, p->pad);
}

/* Returns whether the symbol, up to the newline, is of a function
 * whose name begins with this. */
static int
is_kernel(const char *symbol, const char *name, size_t n)
{
    const char *end = strchr(symbol, '\n');

    for (const char *p = symbol + 1; p + n <= end; p++)
        if (memcmp(p, name, n) == 0 && p[-1] >= '0' && p[-1] <= '9')
            return 1;
    return 0;
}

/* Returns whether these symbols are those that `want` names
 * (fdk_ops.op_kernels of all launches). */
static int
kernels_match(const char *want, const char *symbols)
{
    size_t n = strcspn(want, " ");
    const char *rest = want + n + (want[n] == ' ');
    const char *next = strchr(symbols, '\n');
    int maybe = n > 1 && want[n - 1] == '?';

    if (n == 0)
        return symbols[0] == '\0';
    if (want[0] == '-') { /* kernels of a library: at least one */
        for (int i = 0; i < 4 && next != NULL; i++, next = strchr(next + 1, '\n'))
            if (kernels_match(rest, next + 1))
                return 1;
        return 0;
    }
    if (next != NULL && is_kernel(symbols, want, n - (size_t)maybe) &&
        kernels_match(rest, next + 1))
        return 1;
    return maybe && kernels_match(rest, symbols);
}

/* Checks the graphs of every size; *ret_fused: number of
 * launches of several operations. */
static void
listed_is_recorded(struct run_dev *dev, const struct run_pad *pad, int32_t *ret_fused)
{
    const struct run_form *f = run_form(dev, pad->tail);
    struct fdk_launch *l = mem_array((size_t)f->n, sizeof(*l));
    char *want = mem_array(NAMES, 1), *got = mem_array(NAMES, 1);
    struct program_of p = { dev, pad };
    struct fdk_step s;
    int32_t n;
    int rc;

    SIM_CHECK(l != NULL && want != NULL && got != NULL);
    run_step(pad, &s);
    n = fdk_launches(f->bound, &s, 1, l);
    for (int32_t i = 0; i < n; i++) {
        size_t at = strlen(want);

        *ret_fused += l[i].n > 1;
        (void)snprintf(want + at, NAMES - at, "%s%s", at > 0 ? " " : "",
            fdk_launch_kernels(f->bound, &s, &l[i]));
    }
    if (dev->run->k->on_host) {
        /* one command for each launch, and the mark */
        SIM_CHECK(pad->graph->n == (size_t)n + 1 && *ret_fused == 0);
    } else if ((rc = fdk_cuda_kernels(dev->stream, program_launch, &p, got, NAMES)) == 0) {
        if (!kernels_match(want, got)) {
            (void)printf("%d tokens: listed\n%s\nrecorded\n%s", pad->T, want, got);
            SIM_CHECK(0);
        }
    } else {
        SIM_CHECK(rc == -ENOTSUP);
    }
    free(l);
    free(want);
    free(got);
}

static void
listed_is_recorded_of(struct sim_cfg c)
{
    struct run_dev *dev;
    struct sim *s;
    int32_t fused = 0;

    c.any_order = 1;
    s = sim_new(&c);
    dev = run_root(s->run);
    for (int32_t i = 0; i < dev->n_pad; i++) {
        listed_is_recorded(dev, &dev->pad[i], &fused);
        if (dev->few[i].T > 0)
            listed_is_recorded(dev, &dev->few[i], &fused);
    }
    (void)printf("%s: %d fused launches in %d sizes\n", c.model_dir, fused, dev->n_pad);
    sim_free(s);
}

/* For a model with matrices in fp32, and for the demo model in 16, 8 and 4 bits. */
static void
list_of_launches(struct sim_rng *g)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_I8, FDK_I4 };
    const char *src = getenv("FDD_SRC") != NULL ? getenv("FDD_SRC") : getenv("srcdir");
    struct sim_cfg c = base(1);
    char path[512];

    (void)g;
    listed_is_recorded_of(c);
    (void)snprintf(path, sizeof(path), "%s/conf/models/demo", src != NULL ? src : ".");
    c.model_dir = path;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        c.quant = (struct qnt){ .dtype = types[i] };
        listed_is_recorded_of(c);
    }
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = {
        SIM_TEST(a2_any_composition_of_a_captured_size),
        SIM_TEST(a2_recorded_by_whatever_step_comes_first),
        SIM_TEST(a3_largest_smallest_largest),
        SIM_TEST(a4_poisoned_between_steps),
        SIM_TEST(a5_tiles_executed),
        SIM_TEST(a6_any_offset_in_a_block),
        SIM_TEST(a7_mixed_batch_hits_a_graph),
        SIM_TEST(a8_any_context_by_one_graph),
        SIM_TEST(a11_larger_steps_are_eager),
        SIM_TEST(a13_only_launches_in_a_capture),
        SIM_TEST(graphs_switched_under_load),
        SIM_TEST(recapture_frees),
        SIM_TEST(list_of_launches),
    };
    int rc;

    sim_model(dir);
    rc = sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
    sim_model_rm(dir);
    return rc;
}
