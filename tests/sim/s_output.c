/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may want of its output beyond ids and text, through the whole pipeline,
 * at every depth, with graphs and without: files of the model.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/files.h"
#include "daemon/worker/tokenizer.h"
#include "tests/sim/sim.h"

static const struct sim_cfg base = { .max_reqs = 8,
    .max_seqs = 4,
    .max_tokens = 64,
    .max_len = 512,
    .n_block = 128,
    .block_size = 16,
    .chunked = 1 };

/* fn on a simulation of each kind. */
static void
everywhere(const struct sim_cfg *like, struct sim_rng *g,
    void (*fn)(struct sim *s, struct sim_rng *g))
{
    for (int32_t i = 0; i <= 2 * ENG_MAX_DEPTH + 1; i++) {
        struct sim_cfg c = *like;
        struct sim *s;

        c.depth = i / 2;
        c.graph = i % 2;
        c.prefix = i / 2 % 2;
        c.exec = c.depth > 0 ? FDK_EXEC_DEFER : FDK_EXEC_DEFAULT;
        c.seed = (uint64_t)i;
        s = sim_new(&c);
        fn(s, g);
        sim_drain(s);
        sim_free(s);
    }
}

/* ---- files -------------------------------------------------------------------------- */

static struct sim_req *
ask_file(struct sim *s, const char *name, uint64_t off, uint32_t len)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->p.op = FDP_OP_FILE;
    r->file = name;
    r->file_ask = (struct fdp_file_ask){ .off = off, .len = len };
    sim_submit(s, r, NULL);
    return r;
}

static void
is_file(const struct sim_req *r, const struct fil_file *f, uint32_t off, uint32_t n)
{
    SIM_CHECK(r->code == 0 && r->file_size == f->n && r->n_bytes == n);
    SIM_CHECK(n == 0 || memcmp(r->bytes, f->bytes + off, n) == 0);
}

/* Ranges of it, and what there is not. */
static void
files(struct sim *s, struct sim_rng *g)
{
    const struct fil_file *f = &s->cfg.files->f[FIL_TEMPLATE];
    struct sim_req *r;

    for (int i = 0; i < 20; i++) {
        uint32_t off = sim_range(g, 0, (uint32_t)f->n), len = sim_range(g, 1, 70000);

        r = ask_file(s, f->name, off, len);
        sim_wait(s, r);
        is_file(r, f, off, (uint32_t)(f->n - off < len ? f->n - off : len));
    }
    r = ask_file(s, f->name, f->n, 1);
    sim_wait(s, r);
    is_file(r, f, 0, 0);
    r = ask_file(s, f->name, f->n + 1, 1);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_PARAM && r->detail == FDP_D_FILE);
    SIM_CHECK(r->arg == f->n + 1 && r->limit == f->n);
    r = ask_file(s, "chat_parser.json", 0, 1);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_NO_FILE && r->detail == FDP_D_FILE && r->limit == 0);
    r = ask_file(s, "tokenizer_config.json", 0, 1); /* is too large */
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_NO_FILE && r->arg == 9 && r->limit == 8);
    r = ask_file(s, "config.json", 0, 1);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_NO_FILE);
    r = sim_req(s);
    r->p.op = FDP_OP_FILE;
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_PARAM && r->detail == FDP_D_FILE);
}

/* Slots of the up ring in use. */
static uint32_t
up_used(const struct sim *s)
{
    return fdr_load_acquire(&s->seg->up_tail.v) - fdr_load_relaxed(&s->seg->up_head.v);
}

/* A large one does not hold up who comes after it, nor fill the ring. */
static void
large_file(struct sim *s, struct sim_rng *g)
{
    const struct fil_file *f = &s->cfg.files->f[FIL_VOCABULARY];
    struct sim_req *a[4], *b;

    (void)g;
    for (int i = 0; i < 4; i++)
        a[i] = ask_file(s, f->name, 0, FDP_MAX_FILE_READ);
    b = sim_req(s);
    b->p.max_new = 3;
    b->p.flags |= FDP_F_IGNORE_EOS;
    sim_submit(s, b, "hi");
    while (!b->terminal) {
        (void)pip_poll(s->pip, s->now_ns);
        (void)sim_device(s, 1000);
        SIM_CHECK(up_used(s) < LNK_UP_SLOTS / 4);
        if (up_used(s) >= LNK_UP_SLOTS / 16)
            sim_records(s);
    }
    for (int i = 0; i < 4; i++)
        SIM_CHECK(!a[i]->terminal);
    /* a gate that reads nothing */
    for (int i = 0; i < 200; i++) {
        SIM_CHECK(egr_poll(s->pip->egr, s->now_ns) > 0);
        SIM_CHECK(up_used(s) < LNK_UP_SLOTS / 4);
    }
    sim_drain(s);
    for (int i = 0; i < 4; i++)
        is_file(a[i], f, 0, FDP_MAX_FILE_READ);
}

static void
t_files(struct sim_rng *g)
{
    static unsigned char small[100000], large[3u << 20];
    struct files fs = { .magic = FIL_MAGIC };
    struct sim_cfg c = base;

    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (unsigned char)sim_u32(g);
    memcpy(small, large + 77, sizeof(small));
    fs.f[FIL_TEMPLATE] =
        (struct fil_file){ "chat_template.jinja", small, sizeof(small), 0, 8 };
    fs.f[FIL_TOKENIZER_CONFIG] =
        (struct fil_file){ "tokenizer_config.json", NULL, 0, 9, 8 };
    fs.f[FIL_GENERATION_CONFIG].name = "generation_config.json";
    fs.f[FIL_PARSER].name = "chat_parser.json";
    fs.f[FIL_VOCABULARY] = (struct fil_file){ "vocabulary", large, sizeof(large), 0, 8 };
    c.files = &fs;
    everywhere(&c, g, files);
    everywhere(&c, g, large_file);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(t_files) };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
