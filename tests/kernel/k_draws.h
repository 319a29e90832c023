/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Compares the frequencies of drawn tokens with their exact probabilities. */
#ifndef FDD_TESTS_KERNEL_K_DRAWS_H
#define FDD_TESTS_KERNEL_K_DRAWS_H

#include <math.h>
#include <stdlib.h>

#include "tests/kernel/k_util.h"

/* Number of steps of K_MAX_ROW draws each that make $FDD_RULES_DRAWS
 * draws (9,600 by default). */
static inline int
k_draw_steps(void)
{
    const char *v = getenv("FDD_RULES_DRAWS");

    return ((v != NULL ? atoi(v) : 9600) + K_MAX_ROW - 1) / K_MAX_ROW;
}

/* Chi-square test of n draws from V ids; fails if p < 1e-4. Ids with few
 * expected draws are pooled. */
static inline void
k_check_counts(const double *p, const int *count, int V, int n)
{
    double chi = 0, rest_p = 0, z;
    int rest = 0, df = -1;

    for (int i = 0; i < V; i++) {
        double e = p[i] * n;

        if (p[i] == 0)
            assert_int_equal(count[i], 0);
        if (e < 8) {
            rest_p += p[i];
            rest += count[i];
            continue;
        }
        chi += (count[i] - e) * (count[i] - e) / e;
        df++;
    }
    if (rest_p * n >= 8) {
        chi += (rest - rest_p * n) * (rest - rest_p * n) / (rest_p * n);
        df++;
    }
    if (df <= 0)
        return;
    /* Wilson-Hilferty: 3.719 standard deviations correspond to p = 1e-4 */
    z = (cbrt(chi / df) - (1 - 2.0 / (9 * df))) / sqrt(2.0 / (9 * df));
    if (z > 3.719)
        print_error("%d draws: chi-square %g with %d degrees of freedom\n", n, chi, df);
    assert_true(z <= 3.719);
}

#endif
