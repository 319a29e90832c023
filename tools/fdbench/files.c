/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/report_priv.h"

#include <errno.h>
#include <string.h>

int
rep_dump_json(FILE *out, json_t *j)
{
    int rc = j == NULL ? -ENOMEM : 0;

    if (rc == 0 &&
        (json_dumpf(j, out, JSON_INDENT(2)) != 0 || fputc('\n', out) == EOF ||
            fflush(out) != 0))
        rc = errno != 0 ? -errno : -EIO;
    json_decref(j);
    return rc;
}

int
rep_write(const char *path, rep_write_fn *fn, const void *what)
{
    FILE *f;
    int rc;

    if (path == NULL)
        return 0;
    errno = 0;
    f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (f == NULL)
        return fct_fail(FCT_EX_IO, "%s: %s", path, strerror(errno));
    rc = fn(f, what);
    if (rc == 0 && (fflush(f) != 0 || ferror(f)))
        rc = errno != 0 ? -errno : -EIO;
    if (f != stdout && fclose(f) != 0 && rc == 0)
        rc = -errno;
    return rc == 0 ? 0 : fct_fail(FCT_EX_IO, "%s: %s", path, strerror(-rc));
}

int
rep_check_stdout(const char *csv, const char *json, int *ret_quiet)
{
    int n =
        (csv != NULL && strcmp(csv, "-") == 0) + (json != NULL && strcmp(json, "-") == 0);

    *ret_quiet |= n > 0;
    return n < 2 ? 0 : fct_fail(FCT_EX_USAGE, "--csv - and --json -: one of them only");
}
