/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/sim/arrivals.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

const char *const arr_kinds[ARR_N_ARRIVALS] = { "poisson", "burst", "long", "tail",
    "greedy" };

uint64_t
arr_rand(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double
arr_uniform(uint64_t *state)
{
    return (double)((arr_rand(state) >> 11) + 1) / 9007199254740992.0;
}

double
arr_normal(uint64_t *state)
{
    double r = sqrt(-2 * log(arr_uniform(state)));

    return r * cos(2 * M_PI * arr_uniform(state));
}

/* Draws lengths as bench/gpu_lines does. */
static int32_t
load_length(uint64_t *rng, double median, double sigma, int32_t lo, int32_t hi)
{
    double n = round(median * exp(sigma * arr_normal(rng)));

    return n < lo ? lo : n > hi ? hi : (int32_t)n;
}

/* Converts s of the active half of the time to s of all time. */
static double
load_burst(double s)
{
    return floor(s / 2) * 4 + fmod(s, 2);
}

static void
load_special(enum arr_kind kind, struct arr_req *r, int32_t i, uint64_t *rng)
{
    double tail;

    if (kind == ARR_LONG && i % 100 == 50) {
        r->n_in = 100000;
        r->kind = 1;
    } else if (kind == ARR_TAIL) {
        tail = 60 * pow(arr_uniform(rng), -1 / 1.2) - 40;
        r->n_out = tail > 8192 ? 8192 : (int32_t)tail;
    }
}

static int
by_time(const void *a, const void *b)
{
    const struct arr_req *x = a, *y = b;

    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    return x->user - y->user;
}

struct arr_load
arr_load_make(enum arr_kind kind, double rate, int32_t n, uint64_t seed)
{
    struct arr_load l = { .n = n };
    uint64_t rng = seed;
    double t = 0;

    l.req = mem_array((size_t)n, sizeof(*l.req));
    ASSERT(l.req != NULL && rate > 0);
    for (int32_t i = 0; i < n; i++) {
        struct arr_req *r = &l.req[i];

        t -= log(arr_uniform(&rng)) / (kind == ARR_BURST ? 2 * rate : rate);
        r->at_ns = (uint64_t)((kind == ARR_BURST ? load_burst(t) : t) * 1e9);
        r->n_in = load_length(&rng, 700, 0.85, 16, 4096);
        r->n_out = load_length(&rng, 200, 0.7, 8, 1024);
        load_special(kind, r, i, &rng);
        /* half of the requests belong to the greedy user */
        if (kind == ARR_GREEDY && i % 2 == 1) {
            r->user = r->kind = 1;
            r->at_ns = (uint64_t)(i / 128 * (128 / rate) * 1e9);
        }
    }
    qsort(l.req, (size_t)n, sizeof(*l.req), by_time);
    return l;
}

struct arr_load
arr_load_closed(int32_t c, int32_t n, int32_t n_in, int32_t n_out)
{
    struct arr_load l = { .n = n, .closed = c };

    l.req = mem_array((size_t)n, sizeof(*l.req));
    ASSERT(l.req != NULL && c > 0);
    for (int32_t i = 0; i < n; i++)
        l.req[i] = (struct arr_req){ .n_in = n_in, .n_out = n_out };
    return l;
}

int
arr_load_read(const char *path, struct arr_load *ret, char *err, size_t err_bytes)
{
    struct arr_load l = { .n = 0 };
    FILE *f = fopen(path, "re");
    char line[256];
    int no = 0;

    if (f == NULL) {
        (void)snprintf(err, err_bytes, "%s: %s", path, strerror(errno));
        return -ENOENT;
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        struct arr_req r = { .n_in = 0 }, *more;
        double t;

        no++;
        if (sscanf(line, "%lf,%d,%d", &t, &r.n_in, &r.n_out) != 3 || !(t >= 0) ||
            t > 1e9 || r.n_in < 1 || r.n_out < 1) {
            if (no == 1)
                continue; /* the line of column names */
            (void)snprintf(err, err_bytes,
                "%s: line %d is not \"time in s,prompt tokens,"
                "output tokens\"",
                path, no);
            (void)fclose(f);
            free(l.req);
            return -EINVAL;
        }
        r.at_ns = (uint64_t)(t * 1e9);
        more = reallocarray(l.req, (size_t)l.n + 1, sizeof(r));
        ASSERT(more != NULL);
        l.req = more;
        l.req[l.n++] = r;
    }
    (void)fclose(f);
    if (l.n == 0) {
        (void)snprintf(err, err_bytes, "%s: no requests", path);
        return -EINVAL;
    }
    qsort(l.req, (size_t)l.n, sizeof(*l.req), by_time);
    *ret = l;
    return 0;
}

void
arr_load_fini(struct arr_load *l)
{
    free(l->req);
    *l = (struct arr_load){ .n = 0 };
}
