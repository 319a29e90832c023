/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/param_priv.h"
#include "daemon/common/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAX_SECTION 49 /* bytes of a section that inih keeps */

/*
 * inih copies each line into 200 bytes and cuts a longer one, reads an indented line as
 * a continuation, and does not see NUL. So this reader passes only trimmed lines to it,
 * and a long value bypasses it.
 */
struct reader {
    FILE *f;
    const char *path;
    struct par_set *ps; /* values of this file only */
    struct par_say *say;
    unsigned char *bad; /* rows with a wrong value, or one that could not be read */
    unsigned line;      /* of the line last handed out */
    int stop;           /* the rest of the file cannot be understood */
    int skip;           /* skip lines up to the next section: this one is unknown */
    int long_value;     /* value[] holds a value that is too long for inih */
    char value[PAR_MAX_LINE + 1];
    unsigned *def_line, *note_line; /* line that set a row; 0: none yet */
    int bad_lines;
    char at[PAR_WHERE_BYTES];
};

__attribute__((format(printf, 2, 3))) static void
fail(struct reader *rd, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    rd->bad_lines++;
    par_say_error(rd->say, "%s:%u: %s", rd->path, rd->line, text);
}

/* Give up on the rest of the file: all rows may have values there. */
static void
stop(struct reader *rd)
{
    rd->stop = 1;
    memset(rd->bad, 1, par_n_defs);
}

/* Read the next line. Returns its length without the line end; -1 at the end of the
 * file; -2 if it is wrong, which has been reported. */
static int
read_line(struct reader *rd, char *buf, size_t buf_bytes)
{
    size_t n = 0;
    int c = getc(rd->f);

    rd->line += c != EOF;
    for (; c != EOF && c != '\n'; c = getc(rd->f), n++) {
        if (c == '\0') {
            fail(rd, "NUL byte in column %zu: not a text file", n + 1);
            stop(rd);
            return -1;
        }
        if (n + 1 < buf_bytes)
            buf[n] = (char)c;
    }
    if (c == EOF && ferror(rd->f)) {
        rd->line += rd->line == 0;
        fail(rd, "cannot be read: %s", strerror(errno));
        stop(rd);
    }
    if (c == EOF && (n == 0 || rd->stop))
        return -1;
    if (n + 1 > buf_bytes) {
        buf[buf_bytes - 1] = '\0';
        par_mark_like(buf, rd->bad);
        fail(rd, "line longer than %d bytes", PAR_MAX_LINE);
        return -2;
    }
    if (n > 0 && buf[n - 1] == '\r')
        n--;
    buf[n] = '\0';
    if (txt_utf8(buf, n) != n) {
        par_mark_like(buf, rd->bad);
        fail(rd, "not valid UTF-8");
        return -2;
    }
    return (int)n;
}

/* Cut off a comment after the value, and trailing blanks. */
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

/* Is the rest of a line empty or a comment? inih would ignore all but the section of
 * "[log] level = info". */
static int
is_comment(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return *p == '\0' || *p == ';' || *p == '#';
}

/* May inih see this line? Errors are reported. */
static int
line_is_ok(struct reader *rd, const char *p, int num)
{
    const char *sep = p + strcspn(p, "=:");

    if (*p == '[') {
        /* lines after an unreadable section title belong to no known section */
        rd->skip = strchr(p, ']') == NULL || strlen(p) + 2 > (size_t)num ||
            strcspn(p + 1, "]") > MAX_SECTION;
        if (strchr(p, ']') == NULL)
            fail(rd, "section without ']'");
        else if (rd->skip)
            fail(rd, "a section or key of that length does not exist");
        else if (!is_comment(strchr(p, ']') + 1)) {
            par_mark_like(strchr(p, ']') + 1, rd->bad);
            fail(rd, "text after ']'; write each parameter on a line of its own");
        }
        return !rd->skip;
    }
    if (*p == '\0')
        return 1;
    if (rd->skip) {
        par_mark_like(p, rd->bad);
        return 0;
    }
    if (*sep == '\0')
        fail(rd, "neither 'key = value' nor '[section]'");
    else if (sep == p)
        fail(rd, "no key before '%c'", *sep);
    else if (strlen(p) + 2 > (size_t)num && sep + 3 - p > num)
        fail(rd, "a section or key of that length does not exist");
    else
        return 1;
    par_mark_like(p, rd->bad);
    return 0;
}

/* The ini_reader callback of inih: returns one line of the file per call. */
static char *
next_line(char *str, int num, void *arg)
{
    struct reader *rd = arg;
    char buf[PAR_MAX_LINE + 1], *p = buf, *sep;
    int n;

    rd->long_value = 0;
    if (rd->stop)
        return NULL;
    n = read_line(rd, buf, sizeof(buf));
    if (n == -1)
        return NULL;
    if (n == -2)
        buf[0] = '\0';
    if (rd->line == 1 && strncmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    while (isspace((unsigned char)*p))
        p++;
    if (*p == '#' || *p == ';' || !line_is_ok(rd, p, num))
        *p = '\0';
    sep = p + strcspn(p, "=:");
    if (strlen(p) + 2 > (size_t)num) {
        char *v = sep + 1;

        while (isspace((unsigned char)*v))
            v++;
        trim_value(v);
        memcpy(rd->value, v, strlen(v) + 1);
        rd->long_value = 1;
        sep[1] = '\0';
    }
    snprintf(str, (size_t)num, "%s\n", p);
    return str;
}

static int
on_value(void *arg, const char *section, const char *name, const char *value)
{
    struct reader *rd = arg;
    char err[768], full[128];
    const char *sec = section[0] != '\0' ? section : NULL;
    struct par_ref ref;
    unsigned *line;
    int rc;

    if (rd->long_value)
        value = rd->value;
    if (sec != NULL && par_section_name(sec) != NULL) {
        snprintf(rd->at, sizeof(rd->at), "%s:%u", rd->path, rd->line);
        if (par_set_named(rd->ps, par_section_name(sec), name, value, err, sizeof(err)) != 0)
            fail(rd, "%s", err);
        return 1;
    }
    if (par_find(sec, name, &ref, err, sizeof(err)) != 0) {
        rd->skip |= sec != NULL && !par_is_section(sec);
        if (ref.idx < par_n_defs)
            rd->bad[ref.idx] = 1;
        else
            par_mark_like(name, rd->bad);
        fail(rd, "%s", err);
        return 1;
    }
    line = ref.note ? &rd->note_line[ref.idx] : &rd->def_line[ref.idx];
    snprintf(full, sizeof(full), "%s%s%s", section, sec != NULL ? "." : "", name);
    if (*line != 0) {
        if (!ref.note)
            rd->bad[ref.idx] = 1;
        fail(rd, "%s is set twice, first in line %u", full, *line);
        return 1;
    }
    *line = rd->line;
    snprintf(rd->at, sizeof(rd->at), "%s:%u", rd->path, rd->line);
    rc = par_set_ref(rd->ps, &ref, full, value, PAR_FROM_FILE, err, sizeof(err));
    if (rc < 0) {
        if (!ref.note)
            rd->bad[ref.idx] = 1;
        fail(rd, "%s", err);
    } else if (rc == 1) {
        par_say_warning(rd->say, "%s:%u: %s", rd->path, rd->line, err);
    }
    return 1;
}

/* Lists of several files are joined; an empty value empties the list. */
static void
add_list(struct par_set *ps, struct reader *rd, size_t i)
{
    const struct par_def *d = &par_defs[i];
    char *old = (char *)&ps->par + d->offset, both[PAR_STR_BYTES];
    const char *more = (const char *)&rd->ps->par + d->offset;
    size_t at = strlen(ps->where[i]);

    if (ps->from[i] != PAR_FROM_FILE || old[0] == '\0' || more[0] == '\0') {
        memcpy(old, more, PAR_STR_BYTES);
        at = 0;
    } else if (par_list_add(old, more, both) != 0) {
        rd->line = rd->def_line[i];
        rd->bad[i] = 1;
        fail(rd, "%s.%s: together with what is set in %s more than %d bytes", d->section,
            d->key, ps->where[i], PAR_STR_BYTES - 1);
        return;
    } else {
        memcpy(old, both, sizeof(both));
    }
    snprintf(ps->where[i] + at, PAR_WHERE_BYTES - at, "%s%s", at > 0 ? ", " : "",
        rd->ps->where[i]);
}

/* Copy the values of this file to ps. Values of --set stay, wherever the file was
 * read. */
static void
take_over(struct par_set *ps, struct reader *rd)
{
    size_t i;

    if (par_add_named(ps, rd->ps) != 0)
        fail(rd, "out of memory");
    for (i = 0; i < par_n_defs; i++) {
        const struct par_def *d = &par_defs[i];

        if (rd->ps->from[i] != PAR_FROM_FILE || ps->from[i] == PAR_FROM_SET)
            continue;
        if (d->flags & PAR_F_LIST) {
            add_list(ps, rd, i);
        } else {
            memcpy((char *)&ps->par + d->offset, (char *)&rd->ps->par + d->offset,
                par_field_bytes(d));
            memcpy(ps->where[i], rd->ps->where[i], PAR_WHERE_BYTES);
        }
        ps->from[i] = PAR_FROM_FILE;
        ps->via[i] = rd->ps->via[i];
    }
}

/* Add the file to the list of files read. */
static int
note_file(struct par_set *ps, const char *path)
{
    char **files = realloc(ps->files, (ps->n_files + 1) * sizeof(*files));

    if (files == NULL)
        return -ENOMEM;
    ps->files = files;
    files[ps->n_files] = strdup(path);
    if (files[ps->n_files] == NULL)
        return -ENOMEM;
    ps->n_files++;
    return 0;
}

static int
read_lines(struct par_set *ps, struct reader *rd)
{
    int bad = ini_parse_stream(next_line, rd, on_value, rd);

    if (bad != 0 && rd->bad_lines == 0) {
        rd->line = bad > 0 ? (unsigned)bad : rd->line;
        fail(rd, "cannot be understood");
    }
    take_over(ps, rd);
    return rd->bad_lines != 0 ? -EINVAL : note_file(ps, rd->path);
}

/* Open a regular file of limited size, or /dev/null as an empty file. A pipe or an
 * endless file would block the daemon, which reads the file again at SIGHUP. */
static int
open_file(struct reader *rd)
{
    int fd = open(rd->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    int rc = -EINVAL;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0)
        rc = -errno;
    else if (!S_ISREG(st.st_mode) && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
        par_say_error(rd->say, "%s: not a regular file", rd->path);
    else if (st.st_size > PAR_MAX_FILE)
        par_say_error(rd->say, "%s: longer than %d KiB", rd->path, PAR_MAX_FILE >> 10);
    else
        rc = 0;
    if (rc == 0) {
        rd->f = fdopen(fd, "r");
        rc = rd->f != NULL ? 0 : -errno;
    }
    if (rc != 0)
        close(fd);
    return rc;
}

int
par_read_into(struct par_set *ps, const char *path, struct par_say *say,
    unsigned char *ret_bad)
{
    struct reader *rd = calloc(1, sizeof(*rd));
    int rc = -ENOMEM;

    if (rd == NULL)
        goto said;
    rd->path = path;
    rd->say = say;
    rd->bad = ret_bad;
    rd->ps = par_new();
    rd->def_line = calloc(par_n_defs, sizeof(*rd->def_line));
    rd->note_line = calloc(par_n_notes, sizeof(*rd->note_line));
    if (rd->ps == NULL || rd->def_line == NULL || rd->note_line == NULL)
        goto free_reader;
    rd->ps->at = rd->at;
    rc = open_file(rd);
    if (rc == 0)
        rc = read_lines(ps, rd);
    else
        memset(ret_bad, 1, par_n_defs);
    if (rd->f != NULL)
        fclose(rd->f);
free_reader:
    par_free(rd->ps);
    free(rd->def_line);
    free(rd->note_line);
    free(rd);
said:
    if (rc != 0 && rc != -EINVAL)
        par_say_error(say, "%s: %s", path, rc == -ENOMEM ? "out of memory" : strerror(-rc));
    return rc;
}

/* ---- one file ---------------------------------------------------------------------- */

int
par_read_file(struct par_set *ps, const char *path, struct par_say *say)
{
    unsigned char *bad = calloc(par_n_defs, 1);
    struct par_set *work = par_new();
    int rc = -ENOMEM;

    if (bad != NULL && work != NULL)
        rc = par_copy(work, ps);
    if (rc == 0)
        rc = par_read_into(work, path, say, bad);
    if (rc == 0)
        rc = par_copy(ps, work);
    par_free(work);
    free(bad);
    return rc;
}
