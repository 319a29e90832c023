/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/param_priv.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/*
 * inih copies each line into 200 bytes and cuts what is longer, takes an
 * indented line for a continuation, and does not see NUL. So the reader
 * hands it trimmed lines only, and a long value goes around it.
 */
struct reader {
    FILE *f;
    const char *path;
    struct par_set *ps;              /* working copy */
    void (*warn)(void *arg, const char *text);
    void *warn_arg;
    unsigned line;                   /* of the line last handed out */
    int long_value;                  /* value[] holds what did not fit */
    char value[PAR_MAX_LINE + 1];
    unsigned *def_line, *note_line;  /* line that set a row, 0: none yet */
    unsigned err_line;               /* 0: no error so far */
    char reason[512];
};

__attribute__((format(printf, 2, 3)))
static void
fail(struct reader *rd, const char *fmt, ...)
{
    va_list ap;

    if (rd->err_line != 0)
        return;
    rd->err_line = rd->line;
    va_start(ap, fmt);
    vsnprintf(rd->reason, sizeof(rd->reason), fmt, ap);
    va_end(ap);
}

/* Next line without its end: length, -1 at the end of the file or after an
 * error. */
static int
read_line(struct reader *rd, char *buf, size_t buf_bytes)
{
    size_t n = 0;
    int c = getc(rd->f);

    if (c == EOF)
        goto eof;
    rd->line++;
    for (; c != EOF && c != '\n'; c = getc(rd->f)) {
        if (c == '\0') {
            fail(rd, "NUL byte in column %zu: not a text file", n + 1);
            return -1;
        }
        if (n + 1 >= buf_bytes) {
            fail(rd, "line longer than %d bytes", PAR_MAX_LINE);
            return -1;
        }
        buf[n++] = (char)c;
    }
    if (c == EOF && ferror(rd->f))
        goto eof;
    if (n > 0 && buf[n - 1] == '\r')
        n--;
    buf[n] = '\0';
    if (!par_is_utf8(buf, n)) {
        fail(rd, "not valid UTF-8");
        return -1;
    }
    return (int)n;
eof:
    if (ferror(rd->f)) {
        rd->line += rd->line == 0;
        fail(rd, "cannot be read: %s", strerror(errno));
    }
    return -1;
}

/* Cut a comment behind the value and the blanks at its end. */
static void
trim_value(char *v)
{
    size_t n;
    char *p;

    for (p = v; (p = strchr(p, ';')) != NULL; p++)
        if (p == v || isspace((unsigned char)p[-1])) {
            *p = '\0';
            break;
        }
    for (n = strlen(v); n > 0 && isspace((unsigned char)v[n - 1]); n--)
        v[n - 1] = '\0';
}

/* The ini_reader of inih: one line of the file per call. */
static char *
next_line(char *str, int num, void *arg)
{
    struct reader *rd = arg;
    char buf[PAR_MAX_LINE + 1], *p = buf, *sep;
    int n;

    rd->long_value = 0;
    if (rd->err_line != 0)
        return NULL;
    n = read_line(rd, buf, sizeof(buf));
    if (n < 0)
        return NULL;
    if (rd->line == 1 && strncmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    while (isspace((unsigned char)*p))
        p++;
    if (*p == '#' || *p == ';')
        *p = '\0';
    sep = p + strcspn(p, "=:");
    if (*p == '[') {
        if (strchr(p, ']') == NULL)
            fail(rd, "section without ']'");
    } else if (*p != '\0' && *sep == '\0') {
        fail(rd, "neither 'key = value' nor '[section]'");
    } else if (sep == p && *p != '\0') {
        fail(rd, "no key before '%c'", *sep);
    }
    if (rd->err_line != 0)
        return NULL;
    if (strlen(p) + 2 > (size_t)num && *p != '[' && sep + 3 - p <= num) {
        char *v = sep + 1;

        while (isspace((unsigned char)*v))
            v++;
        trim_value(v);
        memcpy(rd->value, v, strlen(v) + 1);
        rd->long_value = 1;
        sep[1] = '\0';
    } else if (strlen(p) + 2 > (size_t)num) {
        fail(rd, "a section or key of that length does not exist");
        return NULL;
    }
    snprintf(str, (size_t)num, "%s\n", p);
    return str;
}

static int
on_value(void *arg, const char *section, const char *name, const char *value)
{
    struct reader *rd = arg;
    char err[512], full[128];
    struct par_ref ref;
    unsigned *line;
    int rc;

    if (rd->err_line != 0)
        return 1;
    if (rd->long_value)
        value = rd->value;
    if (par_find(section[0] != '\0' ? section : NULL, name, &ref, err, sizeof(err))
        != 0) {
        fail(rd, "%s", err);
        return 1;
    }
    line = ref.note ? &rd->note_line[ref.idx] : &rd->def_line[ref.idx];
    snprintf(full, sizeof(full), "%s%s%s", section, section[0] != '\0' ? "." : "", name);
    if (*line != 0) {
        fail(rd, "%s is set twice, first in line %u", full, *line);
        return 1;
    }
    *line = rd->line;
    rc = par_set_ref(rd->ps, &ref, full, value, PAR_FROM_FILE, err, sizeof(err));
    if (rc < 0) {
        fail(rd, "%s", err);
    } else if (rc == 1 && rd->warn != NULL) {
        char text[1024];

        snprintf(text, sizeof(text), "%s:%u: %s", rd->path, rd->line, err);
        rd->warn(rd->warn_arg, text);
    }
    return 1;
}

/* Values of --set stay, wherever the file was read. */
static void
take_over(struct par_set *ps, const struct par_set *from_file)
{
    size_t i;

    for (i = 0; i < par_n_defs; i++) {
        const struct par_def *d = &par_defs[i];
        size_t bytes = d->type == PAR_T_STR || d->type == PAR_T_ENUM
            ? PAR_STR_BYTES : sizeof(int64_t);

        if (from_file->from[i] != PAR_FROM_FILE || ps->from[i] == PAR_FROM_SET)
            continue;
        memcpy((char *)&ps->par + d->offset, (const char *)&from_file->par + d->offset,
            bytes);
        ps->from[i] = PAR_FROM_FILE;
    }
}

int
par_read_file(struct par_set *ps, const char *path,
    void (*warn)(void *arg, const char *text), void *arg, char *err, size_t err_bytes)
{
    struct reader *rd = calloc(1, sizeof(*rd));
    int rc = -ENOMEM, bad;

    snprintf(err, err_bytes, "%s: out of memory", path);
    if (rd == NULL)
        return rc;
    rd->path = path;
    rd->warn = warn;
    rd->warn_arg = arg;
    rd->ps = par_new();
    rd->def_line = calloc(par_n_defs, sizeof(*rd->def_line));
    rd->note_line = calloc(par_n_notes, sizeof(*rd->note_line));
    if (rd->ps == NULL || rd->def_line == NULL || rd->note_line == NULL)
        goto free_reader;
    rd->f = fopen(path, "re");
    if (rd->f == NULL) {
        rc = -errno;
        snprintf(err, err_bytes, "%s: %s", path, strerror(errno));
        goto free_reader;
    }
    bad = ini_parse_stream(next_line, rd, on_value, rd);
    if (bad != 0 && rd->err_line == 0) {
        rd->line = bad > 0 ? (unsigned)bad : rd->line;
        fail(rd, "cannot be understood");
    }
    rc = rd->err_line != 0 ? -EINVAL : 0;
    if (rc != 0)
        snprintf(err, err_bytes, "%s:%u: %s", path, rd->err_line, rd->reason);
    else
        take_over(ps, rd->ps);
    fclose(rd->f);
free_reader:
    par_free(rd->ps);
    free(rd->def_line);
    free(rd->note_line);
    free(rd);
    return rc;
}
