/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reads a parameter file; keeps the first error and the last warning. */
#ifndef FDD_TESTS_UNIT_PARAM_FIXTURE_H
#define FDD_TESTS_UNIT_PARAM_FIXTURE_H

#include <stdio.h>

#include "daemon/common/param.h"

/* warned is left unchanged if there is no warning. */
static inline int
read_file(struct par_set *ps, const char *path, char *warned, size_t warned_bytes,
    char *err, size_t err_bytes)
{
    struct par_say say = { .text = NULL };
    int rc = par_read_file(ps, path, &say), is_error;

    err[0] = '\0';
    for (const char *p = par_say_next(&say, NULL, &is_error); p != NULL;
         p = par_say_next(&say, p, &is_error)) {
        if (!is_error)
            snprintf(warned, warned_bytes, "%s", p);
        else if (err[0] == '\0')
            snprintf(err, err_bytes, "%s", p);
    }
    par_say_clear(&say);
    return rc;
}

#endif
