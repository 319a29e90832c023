/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of tokenize and detokenize: an argument, a file or standard input, as a whole or
 * line by line.
 */
#ifndef FDD_TOOLS_FDCTL_LIB_LINES_H
#define FDD_TOOLS_FDCTL_LIB_LINES_H

#include "tools/fdctl/lib/fct.h"

struct txa {
    const char *text, *file; /* neither: standard input */
    uint32_t flags;
    int lines, json, has_source;
    /* Convert and print one; name is that of its place. 0 or an exit code, with the
     * message printed. */
    int (*one)(fdc_t *s, const struct txa *a, const char *name, const char *text,
        size_t n, int timeout_ms);
};
/* An exit code. */
int txa_run(const struct fct *f, const struct txa *a);

#endif
