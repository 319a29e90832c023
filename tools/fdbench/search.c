/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#define N_TRY_MAX    40
#define CLOSE_ENOUGH 1.05

struct search {
    fdb_try_fn *fn;
    void *arg;
    double good, bad; /* largest load within, smallest that is not; 0 */
    int n;
};

static int
try_load(struct search *s, double load)
{
    int within = 0, rc = s->fn(s->arg, load, &within);

    s->n++;
    if (rc != 0)
        return rc;
    if (within && load > s->good)
        s->good = load;
    if (!within && (s->bad == 0 || load < s->bad))
        s->bad = load;
    return 0;
}

int
fdb_search(double first, double lo, double hi, int whole, fdb_try_fn *fn, void *arg,
    double *ret_found)
{
    struct search s = { .fn = fn, .arg = arg };
    double load = first < lo ? lo : first > hi ? hi : first;
    int rc = try_load(&s, load);

    while (rc == 0 && s.bad == 0 && s.good < hi && s.n < N_TRY_MAX)
        rc = try_load(&s, fmin(s.good * 2, hi));
    while (rc == 0 && s.good == 0 && s.bad > lo && s.n < N_TRY_MAX) {
        load = s.bad / 2;
        rc = try_load(&s, fmax(whole ? floor(load) : load, lo));
    }
    while (rc == 0 && s.good > 0 && s.bad > 0 && s.n < N_TRY_MAX &&
        (whole ? s.bad - s.good > 1 : s.bad > s.good * CLOSE_ENOUGH)) {
        load = (s.good + s.bad) / 2;
        rc = try_load(&s, whole ? floor(load) : load);
    }
    *ret_found = s.good;
    return rc;
}
