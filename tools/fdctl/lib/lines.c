/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/lines.h"

#include <stdlib.h>
#include <string.h>

static int
run_lines(fdc_t *s, const struct txa *a, const char *file, const char *text, size_t n,
    int timeout_ms)
{
    size_t at, len, line = 1;
    char name[600];
    int rc = 0;

    for (at = 0; at < n && rc == 0; at += len + 1, line++) {
        const char *nl = memchr(text + at, '\n', n - at);

        len = nl != NULL ? (size_t)(nl - (text + at)) : n - at;
        snprintf(name, sizeof(name), "%s:%zu", file, line);
        rc = a->one(s, a, name, text + at, len, timeout_ms);
    }
    return rc;
}

/* Text given, file or standard input, in lines or as a whole. */
int
txa_run(const struct fct *f, const struct txa *a)
{
    const char *name = a->text != NULL ? "argument"
        : a->file == NULL || strcmp(a->file, "-") == 0
        ? "standard input"
        : a->file;
    char *text = NULL;
    size_t n = 0;
    fdc_t *s = NULL;
    int rc;

    if (a->text != NULL) {
        text = strdup(a->text);
        rc = text != NULL ? 0 : fct_oom();
        n = rc == 0 ? strlen(text) : 0;
    } else {
        rc = fct_slurp(a->file != NULL ? a->file : "-", &text, &n);
    }
    if (rc == 0)
        rc = fct_open(f, n, &s);
    if (rc == 0)
        rc = a->lines ? run_lines(s, a, name, text, n, f->timeout_ms)
                      : a->one(s, a, name, text, n, f->timeout_ms);
    if (rc == 0)
        rc = fct_flush();
    fdc_close(s);
    free(text);
    return rc;
}
