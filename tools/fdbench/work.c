/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

struct fdb_work {
    const struct fdb_cfg *cfg;
    struct fdc_model_info model;
    uint64_t seed;
    uint64_t n_request;    /* number of requests; UINT64_MAX: no limit */
    uint32_t conversation; /* number of the next one */
    uint64_t rng;          /* random state of the arrivals */
    double due;            /* when the next one is due, in mean intervals of arrivals */
};

/* ---- random numbers ------------------------------------------------------ */

/* splitmix64 */
static uint64_t
draw(uint64_t *rng)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t
fdb_mix(uint64_t a, uint64_t b)
{
    uint64_t rng = a, x = draw(&rng);

    rng = x ^ b;
    return draw(&rng);
}

/* 0 < u < 1 */
static double
draw_unit(uint64_t *rng)
{
    return ((double)(draw(rng) >> 11) + 0.5) * 0x1p-53;
}

static uint32_t
draw_between(uint64_t *rng, uint32_t lo, uint32_t hi)
{
    return lo + (uint32_t)(((draw(rng) >> 32) * ((uint64_t)(hi - lo) + 1)) >> 32);
}

/* Gamma distribution with mean shape, by Marsaglia and Tsang's rejection method. */
static double
draw_gamma(uint64_t *rng, double shape)
{
    double d, c, x, v;

    if (shape < 1) {
        x = draw_gamma(rng, shape + 1);
        return x * pow(draw_unit(rng), 1 / shape);
    }
    d = shape - 1.0 / 3;
    c = 1 / sqrt(9 * d);
    for (;;) {
        x = sqrt(-2 * log(draw_unit(rng))); /* Box-Muller: normal */
        x *= cos(2 * 3.14159265358979323846 * draw_unit(rng));
        v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(draw_unit(rng)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

/* ---- arrivals ------------------------------------------------------------ */

static double
due_seconds(const struct fdb_work *w, uint32_t conversation)
{
    const struct fdb_cfg *c = w->cfg;
    double a = c->rate_from, b = c->rate, n = w->due, t_s, slope, n_end;

    switch (c->arrival) {
    case FDB_CLOSED:
        return 0;
    case FDB_TRACE:
        return c->row[conversation % c->n_row].time_s - c->row[0].time_s;
    case FDB_RAMP:
        t_s = c->duration_s > 0 ? c->duration_s
                                : (double)w->n_request / c->n_turn / ((a + b) / 2);
        /* the time at which n are sent, at a rate from a to b within t_s, then at b */
        slope = (b - a) / t_s;
        n_end = (a + b) / 2 * t_s;
        if (n >= n_end)
            return t_s + (n - n_end) / b;
        if (fabs(slope) * t_s < 1e-9 * b)
            return n / b;
        return (sqrt(a * a + 2 * slope * n) - a) / slope;
    default:
        return w->due / c->rate;
    }
}

/* ---- requests ------------------------------------------------------------ */

static int
check_lengths(const struct fdb_cfg *c, uint32_t model_len)
{
    uint64_t turn = (uint64_t)c->in.hi + c->out.hi, all = c->prefix_len + turn * c->n_turn;
    const struct fdb_row *r;
    char turns[40] = "";

    if (model_len == 0)
        return 0;
    for (r = c->row; r < c->row + c->n_row; r++)
        if ((uint64_t)r->n_prompt + r->n_out > model_len)
            return fct_data("%s:%u: %u prompt and %u output tokens: the model takes %u together",
                c->trace, r->line, r->n_prompt, r->n_out, model_len);
    if (c->n_row > 0 || all <= model_len)
        return 0;
    if (c->n_turn > 1)
        snprintf(turns, sizeof(turns), "then --turns %u of ", c->n_turn);
    return fct_usage(
        "--prefix-len %u, %s--input %u and --output %u: %llu tokens; the model takes %u",
        c->prefix_len, turns, c->in.hi, c->out.hi, (unsigned long long)all, model_len);
}

int
fdb_work_new(const struct fdb_cfg *cfg, const struct fdc_model_info *model, uint64_t seed,
    struct fdb_work **ret)
{
    struct fdb_work *w;
    int rc = check_lengths(cfg, model->max_model_len);

    if (rc != 0)
        return rc;
    if (model->vocab <= model->n_eos + 2)
        return fct_data("the model has %u tokens: prompts cannot be made of them",
            model->vocab);
    w = calloc(1, sizeof(*w));
    if (w == NULL)
        return fct_oom();
    w->cfg = cfg;
    w->model = *model;
    w->seed = seed;
    w->rng = fdb_mix(seed, 0x61727269);
    w->n_request = cfg->n_request > 0 ? cfg->n_request : UINT64_MAX;
    if (cfg->arrival == FDB_TRACE)
        w->n_request = MIN(w->n_request, cfg->n_row);
    *ret = w;
    return 0;
}

/* Random state of a turn: a function of the seed, the conversation and the turn. */
static uint64_t
turn_rng(const struct fdb_work *w, const struct fdb_ask *a)
{
    return fdb_mix(fdb_mix(w->seed, a->conversation + 1), a->turn);
}

static void
fill(const struct fdb_work *w, struct fdb_ask *a)
{
    const struct fdb_cfg *c = w->cfg;
    uint64_t rng = turn_rng(w, a), at = (uint64_t)a->conversation * c->n_turn + a->turn;

    if (c->n_row > 0) {
        const struct fdb_row *r = &c->row[a->conversation % c->n_row];

        a->n_prefix = MIN(c->prefix_len, r->n_prompt);
        a->n_new = r->n_prompt - a->n_prefix;
        a->max_new = r->n_out;
    } else {
        a->n_prefix = a->turn == 0 ? c->prefix_len : 0;
        a->n_new = draw_between(&rng, c->in.lo, c->in.hi);
        a->max_new = draw_between(&rng, c->out.lo, c->out.hi);
    }
    a->more = a->turn + 1 < c->n_turn && at + 1 < w->n_request;
}

int
fdb_work_next(struct fdb_work *w, struct fdb_ask *ret)
{
    uint32_t k = w->conversation;
    double due;

    if ((uint64_t)k * w->cfg->n_turn >= w->n_request || k == UINT32_MAX)
        return 0;
    due = due_seconds(w, k);
    *ret = (struct fdb_ask){ .conversation = k,
        .due_ns = due < 1e9 ? (uint64_t)(due * 1e9) : (uint64_t)1000000000000000000 };
    fill(w, ret);
    /* the gap to the next arrival is 1 on average */
    w->due += w->cfg->arrival == FDB_POISSON ? -log(draw_unit(&w->rng))
        : w->cfg->arrival == FDB_GAMMA || w->cfg->arrival == FDB_RAMP
        ? draw_gamma(&w->rng, w->cfg->burstiness) / w->cfg->burstiness
        : 1;
    w->conversation++;
    return 1;
}

void
fdb_work_turn(const struct fdb_work *w, struct fdb_ask *a)
{
    *a = (struct fdb_ask){ .conversation = a->conversation, .turn = a->turn + 1 };
    fill(w, a);
}

/* ---- prompts ------------------------------------------------------------- */

/* Add n ids of the vocabulary other than BOS and EOS. */
static int
add_ids(const struct fdb_work *w, uint64_t rng, uint32_t n, struct fct_buf *p)
{
    const struct fdc_model_info *m = &w->model;
    uint32_t id, k;
    int rc = 0;

    while (rc == 0 && n > 0) {
        id = draw_between(&rng, 0, m->vocab - 1);
        for (k = 0; k < m->n_eos && k < 8 && m->eos_ids[k] != id; k++)
            ;
        if ((k < m->n_eos && k < 8) || (m->bos_id >= 0 && id == (uint32_t)m->bos_id))
            continue;
        rc = fct_buf_add(p, &id, sizeof(id));
        n--;
    }
    return rc;
}

static int
goes_on(const struct fdb_cfg *c, size_t at)
{
    return at < c->n_words && ((unsigned char)c->words[at] & 0xc0) == 0x80;
}

/* Add about n tokens of the text, from a random place, in whole characters. */
static int
add_words(const struct fdb_work *w, uint64_t rng, uint32_t n, struct fct_buf *p)
{
    const struct fdb_cfg *c = w->cfg;
    size_t bytes = (size_t)ceil(n * (c->token_bytes > 0 ? c->token_bytes : 4)), at, k;
    char mark[24];
    int rc = 0;

    if (n == 0)
        return 0;
    at = (size_t)(draw_unit(&rng) * (double)c->n_words);
    /* Made-up words repeat early: a number keeps two prompts from being equal. */
    if (c->dataset == NULL) {
        k = (size_t)snprintf(mark, sizeof(mark), "%llx ",
            (unsigned long long)(draw(&rng) >> 32));
        k = MIN(k, bytes);
        rc = fct_buf_add(p, mark, k);
        bytes -= k;
    }
    while (goes_on(c, at))
        at++;
    while (rc == 0 && bytes > 0) {
        if (at >= c->n_words)
            at = 0;
        k = MIN(c->n_words - at, bytes);
        bytes -= k;
        while (goes_on(c, at + k))
            k++;
        rc = fct_buf_add(p, c->words + at, k);
        at += k;
    }
    return rc;
}

int
fdb_work_prompt(const struct fdb_work *w, const struct fdb_ask *a, struct fct_buf *p)
{
    const struct fdb_cfg *c = w->cfg;
    int (*add)(const struct fdb_work *, uint64_t, uint32_t, struct fct_buf *) =
        c->text ? add_words : add_ids;
    /* c->seed, not w->seed: all repeats share prefixes, which the warm-up caches. */
    uint64_t shared =
        fdb_mix(c->seed, 0x70726566u + (uint64_t)(a->conversation % c->n_prefix));
    int rc = 0;

    if (a->turn == 0)
        p->n = 0;
    else if (c->text)
        rc = fct_buf_add(p, " ", 1);
    if (rc == 0)
        rc = add(w, shared, a->n_prefix, p);
    return rc == 0 ? add(w, fdb_mix(turn_rng(w, a), 1), a->n_new, p) : rc;
}
