/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/cost.h"

#include <string.h>

/* Scales that bring the terms of usual steps to similar size. */
#define COST_TOK  64.0
#define COST_CTX  16384.0
#define COST_PAIR 65536.0

/* A step's weight halves every 1,000 steps or so. */
#define COST_KEEP 0.9993
/* Weight of a coefficient's old value in a fit: relative to all that was learned, and the
 * minimum. */
#define COST_ANCHOR     1e-9
#define COST_ANCHOR_MIN 1e-10
/* A learned step counts as at most this factor shorter than predicted. */
#define COST_LEAST 4.0
/* Weight of the newest copy time. */
#define COST_COPY 0.125

void
cost_add_prompt(struct cost_step *s, int32_t n_tok, int64_t n_pair, int32_t n)
{
    s->n_tok += (n_tok + n - 1) / n;
    s->n_pair += n_pair / n;
}

void
cost_init(struct cost *c)
{
    memset(c, 0, sizeof(*c));
    c->scale = 1;
}

static void
cost_terms(const struct cost_step *s, double x[COST_N])
{
    x[0] = 1;
    x[1] = (double)s->n_tok / COST_TOK;
    x[2] = (double)s->n_ctx / COST_CTX;
    x[3] = (double)s->n_pair / COST_PAIR;
    x[4] = s->n_tok > COST_KNEE ? (double)(s->n_tok - COST_KNEE) / COST_TOK : 0;
}

static double
cost_us(const struct cost *c, const double x[COST_N])
{
    double us = 0;

    for (int i = 0; i < COST_N; i++)
        us += c->c[i] * x[i];
    return us;
}

/* Solves M x = y for the coefficients in the set (bit mask); the others are 0. M is
 * symmetric and positive definite. */
static void
cost_solve(const double M[COST_N][COST_N], const double y[COST_N], unsigned set,
    double ret_x[COST_N])
{
    double a[COST_N][COST_N + 1];

    for (int i = 0; i < COST_N; i++) {
        for (int j = 0; j < COST_N; j++)
            a[i][j] = (set >> i & set >> j & 1) != 0 ? M[i][j] : i == j;
        a[i][COST_N] = (set >> i & 1) != 0 ? y[i] : 0;
    }
    for (int i = 0; i < COST_N; i++) {
        for (int r = i + 1; r < COST_N; r++) {
            double f = a[r][i] / a[i][i];

            for (int j = i; j <= COST_N; j++)
                a[r][j] -= f * a[i][j];
        }
    }
    for (int i = COST_N - 1; i >= 0; i--) {
        ret_x[i] = a[i][COST_N];
        for (int j = i + 1; j < COST_N; j++)
            ret_x[i] -= a[i][j] * ret_x[j];
        ret_x[i] /= a[i][i];
    }
}

/* Fits the coefficients; the most negative one is set to 0 until none is negative. */
static void
cost_fit(struct cost *c)
{
    double M[COST_N][COST_N], y[COST_N], x[COST_N], anchor = 0;
    unsigned set = (1u << COST_N) - 1;
    int worst;

    for (int i = 0; i < COST_N; i++)
        anchor += c->A[i][i] * COST_ANCHOR;
    anchor = anchor > COST_ANCHOR_MIN ? anchor : COST_ANCHOR_MIN;
    memcpy(M, c->A, sizeof(M));
    for (int i = 0; i < COST_N; i++) {
        M[i][i] += anchor;
        y[i] = c->b[i] + anchor * c->c[i];
    }
    do {
        cost_solve(M, y, set, x);
        worst = -1;
        for (int i = 0; i < COST_N; i++)
            if (x[i] < 0 && (worst < 0 || x[i] < x[worst]))
                worst = i;
        if (worst >= 0)
            set &= ~(1u << worst);
    } while (worst >= 0 && set != 0);
    for (int i = 0; i < COST_N; i++)
        c->c[i] = (set >> i & 1) != 0 && x[i] > 0 ? x[i] : 0;
}

/* Updates the largest counts and the longest time. */
static void
cost_most(struct cost *c, const struct cost_step *s, uint64_t ns)
{
    c->most.n_tok = s->n_tok > c->most.n_tok ? s->n_tok : c->most.n_tok;
    c->most.n_ctx = s->n_ctx > c->most.n_ctx ? s->n_ctx : c->most.n_ctx;
    c->most.n_pair = s->n_pair > c->most.n_pair ? s->n_pair : c->most.n_pair;
    c->longest_ns = ns > c->longest_ns ? ns : c->longest_ns;
}

void
cost_learn(struct cost *c, const struct cost_step *s, uint64_t ns)
{
    double us = ns > 1000 ? (double)ns / 1000 : 1, x[COST_N], was;

    cost_terms(s, x);
    was = cost_us(c, x);
    if (c->n >= COST_MIN_STEPS && us < was / COST_LEAST)
        us = was / COST_LEAST;
    /* relative error: all terms and the time itself are divided by the time, so that an
     * outlier of long duration hardly counts */
    for (int i = 0; i < COST_N; i++)
        x[i] /= us;
    for (int i = 0; i < COST_N; i++) {
        for (int j = 0; j < COST_N; j++)
            c->A[i][j] = c->A[i][j] * COST_KEEP + x[i] * x[j];
        c->b[i] = c->b[i] * COST_KEEP + x[i];
    }
    cost_fit(c);
    c->n++;
    cost_most(c, s, ns);
}

void
cost_trust(struct cost *c)
{
    c->n = c->n > COST_MIN_STEPS ? c->n : COST_MIN_STEPS;
}

uint64_t
cost_predict(const struct cost *c, const struct cost_step *s)
{
    double x[COST_N], ns;

    if (c->n < COST_MIN_STEPS)
        return 0;
    cost_terms(s, x);
    ns = cost_us(c, x) * 1000 * c->scale;
    if (ns >= 9e18)
        return (uint64_t)9e18;
    return ns >= 1 ? (uint64_t)ns : 1;
}

int32_t
cost_efficient(const struct cost *c, int32_t pct, int32_t most)
{
    double slope = (c->c[1] + c->c[4]) / COST_TOK, e = (double)pct / 100, n;

    if (c->n < COST_MIN_STEPS)
        return 0;
    /* solves slope * n = e * time(n), on the right side of the knee */
    n = e * (c->c[0] - c->c[4] * COST_KNEE / COST_TOK);
    if (n < (1 - e) * slope * COST_KNEE) {
        n = e * c->c[0];
        slope -= e * c->c[1] / COST_TOK;
    } else {
        slope *= 1 - e;
    }
    if (slope * most <= n)
        return most;
    n /= slope;
    return n > 1 ? (int32_t)n : 1;
}

/* How many times n is as large as the largest before, at least 1. Values below those of a
 * usual step do not count. */
static double
cost_larger(double n, double most, double usual)
{
    if (most < usual)
        most = usual;
    return n > most ? n / most : 1;
}

uint64_t
cost_expect(const struct cost *c, const struct cost_step *s)
{
    double r = cost_larger(s->n_tok, c->most.n_tok, 1), more;
    uint64_t ns = cost_predict(c, s);

    more = cost_larger((double)s->n_ctx, (double)c->most.n_ctx, COST_CTX);
    r = more > r ? more : r;
    more = cost_larger((double)s->n_pair, (double)c->most.n_pair, COST_PAIR);
    r = more > r ? more : r;
    if (r > 1 || ns == 0) {
        more = (double)c->longest_ns * r;
        if (more >= 9e18)
            return (uint64_t)9e18;
        ns = (uint64_t)more > ns ? (uint64_t)more : ns;
    }
    return ns;
}

void
cost_learn_copy(struct cost *c, int32_t n, uint64_t ns)
{
    double one;

    if (n <= 0)
        return;
    one = (double)ns / n;
    if (one < 1)
        one = 1;
    c->copy_ns = c->copy_ns == 0 ? one : c->copy_ns + (one - c->copy_ns) * COST_COPY;
}
