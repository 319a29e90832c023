/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Perplexity of a model under each kind of weights and KV cache, from the engine's own
 * prompt logprobs. The default is the demo model on chapters it was not trained on
 * (held_out.txt; texts are separated by a form feed). A text longer than the model's
 * length is divided into pieces, and the first token of each piece is not scored.
 *
 * Usage: b_ppl [TEXT [MODEL_DIR]]
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/tokenizer.h"
#include "tests/sim/sim.h"

#define MAX_TEXT (64u << 20)
#define BLOCK    32

struct corpus {
    uint32_t *ids; /* all pieces, one after another */
    size_t n_ids;
    size_t *end; /* [n_piece] */
    size_t n_piece, n_byte;
    int32_t len; /* length of the longest piece allowed */
};

struct scores {
    double *lp; /* [n_ids] of the corpus, NAN where there is none */
    size_t at;  /* begin of the piece that is running */
};

/* ---- the text ---- */

static void
add_text(struct corpus *c, struct tok_enc *enc, const char *text, size_t n)
{
    const uint32_t *ids;
    size_t n_ids;
    int rc = tok_enc_begin(enc, text, n, TOK_ADD_SPECIAL);

    while (rc == 0)
        rc = tok_enc_step(enc, 1 << 20);
    ids = tok_enc_ids(enc, &n_ids);
    if (rc != 1 || ids == NULL) {
        (void)fprintf(stderr, "b_ppl: the text is not UTF-8, or no memory\n");
        exit(1);
    }
    c->n_byte += n;
    for (size_t at = 0; at < n_ids;) {
        size_t m = n_ids - at < (size_t)c->len ? n_ids - at : (size_t)c->len;

        c->ids = mem_regrow(c->ids, c->n_ids + m, sizeof(*c->ids));
        c->end = mem_regrow(c->end, c->n_piece + 1, sizeof(*c->end));
        SIM_CHECK(c->ids != NULL && c->end != NULL);
        memcpy(c->ids + c->n_ids, ids + at, m * sizeof(*ids));
        c->n_ids += m;
        c->end[c->n_piece++] = c->n_ids;
        at += m;
    }
}

static void
read_corpus(struct corpus *c, const char *path, const char *model)
{
    char err[512], *text = malloc(MAX_TEXT + 1), *p;
    FILE *f = fopen(path, "r");
    struct tok *tok;
    struct tok_enc *enc;
    size_t n;

    if (f == NULL || text == NULL) {
        (void)fprintf(stderr, "b_ppl: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    n = fread(text, 1, MAX_TEXT, f);
    (void)fclose(f);
    text[n] = '\0';
    if (tok_load(model, &tok, err, sizeof(err)) != 0) {
        (void)fprintf(stderr, "b_ppl: %s\n", err);
        exit(1);
    }
    enc = tok_enc_new(tok);
    SIM_CHECK(enc != NULL);
    for (p = text; p < text + n;) {
        size_t m = strcspn(p, "\f"), cut = m;

        while (cut > 0 && (p[cut - 1] == '\n' || p[cut - 1] == ' '))
            cut--;
        if (cut > 0)
            add_text(c, enc, p, cut);
        p += m;
        p += strspn(p, "\f\n");
        if (m == 0 && *p == '\0')
            break;
    }
    (void)tok_enc_free(enc);
    (void)tok_free(tok);
    free(text);
}

/* ---- one configuration ---- */

static void
on_record(void *arg, struct sim_req *r, const struct fdp_rec *rec)
{
    const struct fdp_logprob *lp = (const void *)(rec + 1);
    struct scores *sc = arg;

    (void)r;
    if (rec->type == FDP_T_PROMPT_LOGPROBS)
        sc->lp[sc->at + rec->position] = (double)lp->logprob;
}

static void
run(const struct corpus *c, const struct sim_cfg *cfg, double *lp)
{
    struct sim *s = sim_new(cfg);
    struct scores sc = { lp, 0 };

    s->record = on_record;
    s->record_arg = &sc;
    for (size_t i = 0; i < c->n_ids; i++)
        lp[i] = (double)NAN;
    for (size_t i = 0; i < c->n_piece; i++) {
        struct sim_req *r = sim_req(s);

        sc.at = i > 0 ? c->end[i - 1] : 0;
        r->n_prompt = (uint32_t)(c->end[i] - sc.at);
        r->prompt = mem_array(r->n_prompt, 4);
        SIM_CHECK(r->prompt != NULL);
        memcpy(r->prompt, c->ids + sc.at, r->n_prompt * 4u);
        r->p.max_new = 1;
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
        sim_submit(s, r, NULL);
        sim_wait(s, r);
        SIM_CHECK(r->code == 0);
    }
    sim_free(s);
}

/* Mean of -lp, and of its difference to base with its standard error. */
static void
row(const struct corpus *c, enum fdk_dtype stored, const char *weights, int group,
    const char *kv, const double *lp, const double *base)
{
    double sum = 0, diff = 0, sq = 0, n = 0, nats;
    char name[32], g[16];

    for (size_t i = 0; i < c->n_ids; i++) {
        double d = base[i] - lp[i];

        if (isnan(lp[i]))
            continue;
        n++;
        sum -= lp[i];
        diff += d;
        sq += d * d;
    }
    nats = sum / n;
    diff /= n;
    (void)snprintf(g, sizeof(g), group == 0 ? "per row" : "g%d", group);
    (void)snprintf(name, sizeof(name), "%s %s", weights, g);
    if (strcmp(weights, "none") == 0)
        (void)snprintf(name, sizeof(name), "%s", fdk_dtype_name(stored));
    (void)printf("| %-14s | %-7s | %.4f | %8.3f | %+.5f +- %.5f |\n", name, kv, nats,
        exp(nats), diff, sqrt((sq / n - diff * diff) / n));
}

int
main(int argc, char **argv)
{
    static const struct {
        enum par_quant_weights weights;
        int group;
        enum fdk_dtype kv;
    } rows[] = {
        { PAR_QUANT_WEIGHTS_NONE, 0, FDK_F32 },
        { PAR_QUANT_WEIGHTS_NONE, 0, FDK_BF16 },
        { PAR_QUANT_WEIGHTS_NONE, 0, FDK_F8E4M3 },
        { PAR_QUANT_WEIGHTS_NONE, 0, FDK_I8 },
        { PAR_QUANT_WEIGHTS_WINT8, 0, FDK_F32 },
        { PAR_QUANT_WEIGHTS_WINT8, 128, FDK_F32 },
        { PAR_QUANT_WEIGHTS_WINT8, 64, FDK_F32 },
        { PAR_QUANT_WEIGHTS_WINT8, 32, FDK_F32 },
        { PAR_QUANT_WEIGHTS_WINT4, 0, FDK_F32 },
        { PAR_QUANT_WEIGHTS_WINT4, 128, FDK_F32 },
        { PAR_QUANT_WEIGHTS_WINT4, 64, FDK_F32 },
        { PAR_QUANT_WEIGHTS_WINT4, 32, FDK_F32 },
        { PAR_QUANT_WEIGHTS_WINT8, 0, FDK_I8 },
        { PAR_QUANT_WEIGHTS_WINT4, 64, FDK_I8 },
    };
    const char *src = getenv("FDD_SRC") != NULL ? getenv("FDD_SRC") : ".";
    char text[4096], model[4096], err[512];
    struct sim_cfg cfg = { .max_reqs = 4,
        .max_seqs = 4,
        .chunked = 1,
        .max_tokens = 512,
        .block_size = BLOCK,
        .threads = 2,
        .model_dir = model };
    struct corpus c = { 0 };
    struct mdl_config mc;
    double *lp, *base;

    (void)snprintf(text, sizeof(text), "%s/tests/bench/held_out.txt", src);
    (void)snprintf(model, sizeof(model), "%s/conf/models/demo", src);
    if (argc > 2)
        (void)snprintf(model, sizeof(model), "%s", argv[2]);
    if (mdl_config_read(model, &mc, err, sizeof(err)) != 0) {
        (void)fprintf(stderr, "b_ppl: %s; set FDD_SRC\n", err);
        return 1;
    }
    cfg.max_len = mc.max_pos < 2048 ? mc.max_pos : 2048;
    cfg.n_block = 2 * (cfg.max_len / BLOCK + 1);
    c.len = cfg.max_len - 1;
    read_corpus(&c, argc > 1 ? argv[1] : text, model);
    (void)printf("%s: %zu bytes, %zu tokens in %zu pieces, %zu of them scored\n\n",
        argc > 1 ? argv[1] : "tests/bench/held_out.txt", c.n_byte, c.n_ids, c.n_piece,
        c.n_ids - c.n_piece);
    (void)printf(
        "| weights | KV | nats/token | perplexity | nats more than the first row |\n"
        "| --- | --- | --- | --- | --- |\n");
    lp = mem_array(c.n_ids, sizeof(*lp));
    base = mem_array(c.n_ids, sizeof(*base));
    SIM_CHECK(lp != NULL && base != NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        SIM_CHECK(
            qnt_parse(rows[i].weights, rows[i].group, &cfg.quant, err, sizeof(err)) == 0);
        cfg.kv_dtype = (int32_t)rows[i].kv + 1;
        run(&c, &cfg, i == 0 ? base : lp);
        row(&c, mc.dtype, par_quant_weights_words[rows[i].weights], rows[i].group,
            fdk_dtype_name(rows[i].kv), i == 0 ? base : lp, base);
    }
    free(lp);
    free(base);
    free(c.ids);
    free(c.end);
    return 0;
}
