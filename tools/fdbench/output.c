/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/report.h"

static int
is_stdout(const struct fdb_output *o)
{
    return o->path != NULL && strcmp(o->path, "-") == 0;
}

int
fdb_output_check(const struct fdb_output *o, size_t n, int *ret_quiet)
{
    size_t i, k;
    int is_new;
    FILE *f;

    for (i = 0; i < n; i++) {
        if (is_stdout(&o[i]) && o[i].no_stdout)
            return fct_usage("--%s -: must be a file", o[i].option);
        for (k = 0; k < i; k++)
            if (o[k].path != NULL && o[i].path != NULL &&
                strcmp(o[k].path, o[i].path) == 0 &&
                strncmp(o[k].path, "/dev/", 5) != 0) /* devices may be named twice */
                return is_stdout(&o[i])
                    ? fct_usage("--%s - and --%s -: one of them only", o[k].option,
                          o[i].option)
                    : fct_usage("--%s and --%s: both name the file %s", o[k].option,
                          o[i].option, o[i].path);
        *ret_quiet |= is_stdout(&o[i]);
    }
    for (i = 0; i < n; i++) {
        if (o[i].path == NULL || is_stdout(&o[i]))
            continue;
        is_new = access(o[i].path, F_OK) != 0;
        f = fopen(o[i].path, "a");
        if (f == NULL)
            return fct_fail(FCT_EX_IO, "%s: %s", o[i].path, strerror(errno));
        fclose(f);
        if (is_new)
            (void)unlink(o[i].path);
    }
    return 0;
}

int
fdb_output_write(const struct fdb_output *o, size_t n, const json_t *report, const void *log)
{
    int rc = 0, one;
    FILE *f;

    for (; n > 0; n--, o++) {
        if (o->path == NULL)
            continue;
        errno = 0;
        f = is_stdout(o) ? stdout : fopen(o->path, "w");
        one = f == NULL ? -errno : o->fn(f, report, log);
        if (one == 0 && (fflush(f) != 0 || ferror(f)))
            one = errno != 0 ? -errno : -EIO;
        if (f != NULL && f != stdout && fclose(f) != 0 && one == 0)
            one = -errno;
        if (one != 0)
            one = fct_fail(FCT_EX_IO, "%s: %s", o->path, strerror(-one));
        rc = rc == 0 ? one : rc;
    }
    return rc;
}

int
fdb_report_dump(FILE *out, const json_t *report, const void *log)
{
    (void)log;
    if (json_dumpf(report, out, JSON_INDENT(2)) != 0)
        return errno != 0 ? -errno : -ENOMEM;
    fputc('\n', out);
    return 0;
}
