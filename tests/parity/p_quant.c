/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares fdd's engine with quantized weights with transformers on the dequantized
 * matrices (quant.txt, made by quant_reference.py): the prompt's logprobs, greedy ids and
 * their logprobs. The checkpoints are the original ones and the KV cache is fp32, so only
 * quantization and rounding separate the two.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#define TOL     1e-4 /* of logprobs, as for fp32 weights (p_model) */
#define MAX_TOK 128

struct want { /* by position in the text */
    int32_t id;
    double logprob, gap;
    int near_tie;
};
struct text {
    uint32_t prompt[MAX_TOK], n_prompt, n;
    struct want want[MAX_TOK];
    struct {
        uint32_t id;
        float logprob;
    } got[MAX_TOK];
};
struct score {
    double worst;
    int n_bad, n_text, n_pos, n_greedy;
};

static void
on_record(void *arg, struct sim_req *r, const struct fdp_rec *rec)
{
    const struct fdp_logprob *lp = (const void *)(rec + 1);
    struct text *t = arg;
    uint32_t at = rec->position + (rec->type == FDP_T_LOGPROBS ? r->n_prompt : 0);

    if (rec->type != FDP_T_LOGPROBS && rec->type != FDP_T_PROMPT_LOGPROBS)
        return;
    SIM_CHECK(at < MAX_TOK && rec->len >= sizeof(*lp));
    t->got[at].id = lp->id;
    t->got[at].logprob = lp->logprob;
}

static void
compare(const char *what, const struct text *t, struct score *sc)
{
    for (uint32_t i = 1; i < t->n; i++) {
        const struct want *w = &t->want[i];
        double d = fabs((double)t->got[i].logprob - w->logprob);

        /* After a near-tie the two may differ, and both are right. */
        if (i >= t->n_prompt && t->got[i].id != (uint32_t)w->id &&
            (w->near_tie || w->gap < 2 * TOL))
            return;
        sc->n_pos++;
        sc->n_greedy += i >= t->n_prompt;
        sc->worst = d > sc->worst ? d : sc->worst;
        if (t->got[i].id == (uint32_t)w->id && d <= TOL)
            continue;
        (void)fprintf(stderr, "%s: position %u: token %u logprob %.7g, reference %d %.7g\n",
            what, i, t->got[i].id, (double)t->got[i].logprob, w->id, w->logprob);
        sc->n_bad++;
        if (t->got[i].id != (uint32_t)w->id)
            return;
    }
}

static void
run_text(struct sim *s, const char *what, struct text *t, struct score *sc)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL && t->n_prompt > 0 && t->n > t->n_prompt);
    s->record = on_record;
    s->record_arg = t;
    r->n_prompt = t->n_prompt;
    r->prompt = mem_array(r->n_prompt, 4);
    SIM_CHECK(r->prompt != NULL);
    memcpy(r->prompt, t->prompt, r->n_prompt * 4u);
    r->p.max_new = t->n - t->n_prompt;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS | FDP_S_PROMPT_LOGPROBS;
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0 && r->s[0].n_ids == r->p.max_new);
    for (uint32_t i = 0; i < r->s[0].n_ids; i++)
        SIM_CHECK(r->s[0].ids[i] == t->got[t->n_prompt + i].id);
    compare(what, t, sc);
    sc->n_text++;
}

/* Reads one line of a case into t. Returns 1 at its end, -1 if it is malformed. */
static int
take_line(struct text *t, char *line)
{
    struct want *w = &t->want[t->n];
    char gap[32] = "";
    int pos;

    if (strncmp(line, "prompt ", 7) == 0) {
        char *save, *p = strtok_r(line + 7, " \n", &save);

        memset(t, 0, sizeof(*t));
        for (; p != NULL && t->n_prompt < MAX_TOK; p = strtok_r(NULL, " \n", &save))
            t->prompt[t->n_prompt++] = (uint32_t)atoi(p);
        t->n = 1;
        return 0;
    }
    if (strncmp(line, "end", 3) == 0)
        return 1;
    memset(w, 0, sizeof(*w));
    if (t->n == MAX_TOK ||
        sscanf(line, "%*c %d %d %lf %31s", &pos, &w->id, &w->logprob, gap) < 3 ||
        (uint32_t)pos != t->n || (line[0] == 'g') != (t->n >= t->n_prompt))
        return -1;
    w->near_tie = gap[0] == '~';
    w->gap = atof(gap + w->near_tie);
    t->n++;
    return 0;
}

static enum par_quant_weights
weights_of(const char *word)
{
    uint32_t i = 0;

    while (strcmp(par_quant_weights_words[i], word) != 0)
        if (par_quant_weights_words[++i] == NULL)
            sim_fail(__FILE__, __LINE__, word);
    return (enum par_quant_weights)i;
}

static struct sim *
open_model(const char *dir, const char *weights, int group)
{
    struct sim_cfg c = { .max_reqs = 4,
        .max_seqs = 4,
        .max_tokens = 64,
        .max_len = 128,
        .n_block = 32,
        .block_size = 16,
        .chunked = 1,
        .threads = 2,
        .kv_dtype = FDK_F32 + 1,
        .model_dir = dir };
    char err[256];

    if (qnt_parse(weights_of(weights), group, &c.quant, err, sizeof(err)) != 0)
        sim_fail(__FILE__, __LINE__, err);
    return sim_new(&c);
}

static int
end_section(struct sim *s, const char *what, struct score *sc)
{
    int bad = sc->n_bad != 0 || sc->n_text == 0;

    (void)printf("%s: %s: %d texts, %d positions, %d greedy tokens, worst difference "
                 "%.2g of %g\n",
        bad ? "FAIL" : "PASS", what, sc->n_text, sc->n_pos, sc->n_greedy, sc->worst, TOL);
    sim_free(s);
    memset(sc, 0, sizeof(*sc));
    return bad;
}

int
main(void)
{
    const char *src = getenv("srcdir") != NULL ? getenv("srcdir") : ".";
    char path[4096], line[4096], name[64], weights[16], what[128] = "";
    static struct text t;
    struct score sc = { 0 };
    struct sim *s = NULL;
    int group, bad = 0, n_section = 0, rc;
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/tests/parity/quant.txt", src);
    f = fopen(path, "r");
    if (f == NULL) {
        (void)fprintf(stderr, "%s: cannot be read; set srcdir\n", path);
        return 1;
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "quant %63s %15s %d", name, weights, &group) == 3) {
            if (s != NULL)
                bad |= end_section(s, what, &sc);
            (void)snprintf(what, sizeof(what), "%s %s group %d", name, weights, group);
            (void)snprintf(path, sizeof(path), "%s/tests/parity/models/%s", src, name);
            s = open_model(path, weights, group);
            n_section++;
            continue;
        }
        rc = s == NULL ? -1 : take_line(&t, line);
        SIM_CHECK(rc >= 0);
        if (rc == 1)
            run_text(s, what, &t, &sc);
    }
    (void)fclose(f);
    SIM_CHECK(s != NULL && n_section >= 49);
    return bad | end_section(s, what, &sc);
}
