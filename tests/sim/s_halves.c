/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps in two halves, where one half's sums travel while the other half is computed: the
 * same bits as whole steps, for every family, with copies and shared KV heads, for steps
 * of any composition.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "tests/sim/ranks.h"

/* Two ranks, each with its own KV head, or with a shared one. */
static const struct heads two[] = { { 2, 4, 2 }, { 2, 4, 1 } };

/* Computes the answers with each step in two halves where that is possible. */
static void
in_halves(const struct sim_cfg *of, int together, struct book *ret)
{
    struct sim_cfg c = *of;
    struct sim *s;

    c.halves = 2;
    s = sim_new(&c);
    SIM_CHECK(s->run->halves_least == 2);
    answers(&c, together, 0, ret, s);
    for (int32_t i = 0; i < s->run->n_rank; i++)
        SIM_CHECK(__atomic_load_n(&s->run->dev[i].n_halves, __ATOMIC_RELAXED) > 0);
    sim_free(s);
}

static void
families_in_halves(struct sim_rng *g)
{
    (void)g;
    for (size_t i = 0; i < N_FAMILY; i++)
        for (size_t k = 0; k < sizeof(two) / sizeof(two[0]); k++) {
            static struct book whole, got;
            char dir[64];
            struct sim_cfg c;

            if (FEW && (i + k) % 3 != 0)
                continue;
            model(&families[i], &two[k], dir);
            c = base(dir, 2);
            c.kv_split = k == 1 ? 2 : 0;
            answers(&c, 0, 0, &whole, NULL);
            in_halves(&c, 1, &got);
            same(&whole, &got, families[i].name);
            sim_model_rm(dir);
        }
}

/* Steps of other sizes, some with graphs, and separate operations. On GPUs the bits of a
 * separate norm differ from those of a norm fused with the sum before it. */
static void
ways_of_running(struct sim_rng *g)
{
    static const int32_t tokens[] = { 2, 7, 64, 256 };
    static struct book whole, got;
    char dir[64], what[64];
    struct sim_cfg c;

    (void)g;
    model(&families[0], &two[0], dir);
    c = base(dir, 2);
    answers(&c, 0, 0, &whole, NULL);
    for (int i = 0; i < 8; i++) {
        c.depth = i % 4;
        c.max_tokens = tokens[i % 4];
        c.max_seqs = tokens[i % 4] < 8 ? tokens[i % 4] : 8;
        c.unfused = i >= 4;
        c.graph = i % 2;
        if (i == 4 && sim_gpus() > 0)
            answers(&c, 0, 0, &whole, NULL);
        c.capture = i % 2 ? "1,2" : NULL;
        (void)snprintf(what, sizeof(what), "%d tokens, depth %d", tokens[i % 4], i % 4);
        if (c.graph && c.max_tokens == 2)
            continue;
        in_halves(&c, 1, &got);
        same(&whole, &got, what);
    }
    sim_model_rm(dir);
}

/* Two copies of two ranks. */
static void
copies(struct sim_rng *g)
{
    static struct book whole, got;
    char dir[64];
    struct sim_cfg c;

    (void)g;
    if (!sim_has(4))
        return;
    model(&families[1], &two[0], dir);
    c = base(dir, 2);
    c.n_copy = 2;
    c.min_split = 8;
    answers(&c, 0, 0, &whole, NULL);
    in_halves(&c, 1, &got);
    same(&whole, &got, "two copies");
    sim_model_rm(dir);
}

/* Launch threads that are late, for whole steps and halves alternately. */
static void
late_launches(struct sim_rng *g)
{
    static struct book whole, got;
    char dir[64];
    struct sim_cfg c;

    model(&families[4], &two[0], dir);
    c = base(dir, 2);
    answers(&c, 1, 0, &whole, NULL);
    c.depth = 3;
    c.halves = 4;
    answers_late(&c, g, &got);
    same(&whole, &got, "launched late");
    sim_model_rm(dir);
}

/* More than two ranks, and ranks that exchange through host memory, do not use halves. */
static void
whole_steps_alone(struct sim_rng *g)
{
    char dir[64];
    struct sim_cfg c;

    (void)g;
    for (int i = 0; i < 3; i++) {
        struct sim *s;

        if (i == 0 && !sim_has(all_heads[1].T))
            continue;
        model(&families[0], i == 0 ? &all_heads[1] : &two[0], dir);
        c = base(dir, i == 0 ? all_heads[1].T : i == 1 ? 2 : 1);
        c.in_host = i == 1;
        c.halves = 2;
        s = sim_new(&c);
        SIM_CHECK(s->run->halves_least == 0);
        sim_free(s);
        sim_model_rm(dir);
    }
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(families_in_halves),
        SIM_TEST(ways_of_running), SIM_TEST(copies), SIM_TEST(late_launches),
        SIM_TEST(whole_steps_alone) };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
