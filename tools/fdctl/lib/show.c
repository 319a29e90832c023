/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <ctype.h>

#include "daemon/common/text.h"
#include "daemon/common/version.h"

#define COLS_MAX 24

int
fct_print_json(json_t *j)
{
    int rc = j == NULL
        ? -ENOMEM
        : json_dumpf(j, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));

    json_decref(j);
    if (rc == -ENOMEM)
        return fct_oom();
    if (rc != 0)
        return fct_fail(EX_IOERR, "standard output: %s", strerror(errno));
    putchar('\n');
    return fct_flush();
}

const char *
fct_str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s != NULL ? s : "";
}

long long
fct_num(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

void
fct_add_num(json_t *o, const char *key, long long n)
{
    json_object_set_new(o, key, json_integer(fct_num(o, key) + n));
}

double
fct_real(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

int
fct_daemon_version(const json_t *status, char *ret, size_t ret_bytes)
{
    const char *version = fct_str(status, "version"), *commit = fct_str(status, "commit");

    snprintf(ret, ret_bytes, commit[0] != '\0' ? "%s (%s)" : "%s", version, commit);
    return strcmp(version, PACKAGE_VERSION) != 0 ||
        (commit[0] != '\0' && ver_commit()[0] != '\0' && strcmp(commit, ver_commit()) != 0);
}

const char *
fct_bytes(double bytes, char *ret)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    size_t u = 0;

    for (; bytes >= 1024 && u < 6; u++)
        bytes /= 1024;
    snprintf(ret, 24, u == 0 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
    return ret;
}

char *
fct_figure(double v, char *ret)
{
    double a = fabs(v), digits = v == rint(v) ? 0 : ceil(3 - log10(a));

    if (isnan(v))
        snprintf(ret, 24, "-");
    else if (a < 1e15)
        snprintf(ret, 24, "%.*f", (int)fmin(6, fmax(0, digits)), v);
    else
        snprintf(ret, 24, "%.6g", v);
    return ret;
}

static void
age(long long ms, char *ret, size_t ret_bytes)
{
    if (ms < 1000)
        snprintf(ret, ret_bytes, "%lld ms", ms);
    else if (ms < 120000)
        snprintf(ret, ret_bytes, "%.1f s", (double)ms / 1e3);
    else if (ms < 7200000)
        snprintf(ret, ret_bytes, "%lld min", ms / 60000);
    else if (ms < 172800000)
        snprintf(ret, ret_bytes, "%.1f h", (double)ms / 3.6e6);
    else
        snprintf(ret, ret_bytes, "%lld days", ms / 86400000);
}

static void
date(time_t t, int with_seconds, char *ret, size_t ret_bytes)
{
    struct tm tm;

    if (t == 0 || localtime_r(&t, &tm) == NULL ||
        strftime(ret, ret_bytes, with_seconds ? "%F %T" : "%F %R", &tm) == 0)
        snprintf(ret, ret_bytes, "?");
}

void
fct_plain(const char *text, size_t n, char *ret, size_t ret_bytes)
{
    size_t at = 0, i = 0, out, len;
    char one[8];
    uint32_t cp;

    while (i < n && text[i] != '\0') {
        /* n may be SIZE_MAX: do not read past a NUL */
        len = txt_char(text + i, strnlen(text + i, n - i < 4 ? n - i : 4), &cp);
        if (len == 0)
            snprintf(one, sizeof(one), "\xef\xbf\xbd");
        else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
            snprintf(one, sizeof(one), "\\x%02x", (unsigned)cp);
        else
            snprintf(one, sizeof(one), "%.*s", (int)len, text + i);
        i += len > 0 ? len : 1;
        out = strlen(one);
        if (at + out >= ret_bytes)
            break;
        memcpy(ret + at, one, out);
        at += out;
    }
    ret[at] = '\0';
}

void
fct_sort(json_t *list, int (*cmp)(const void *a, const void *b, void *arg), void *arg)
{
    size_t n = json_array_size(list);
    json_t **of = n > 1 ? calloc(n, sizeof(json_t *)) : NULL;

    for (size_t i = 0; of != NULL && i < n; i++)
        of[i] = json_incref(json_array_get(list, i));
    if (of != NULL)
        qsort_r(of, n, sizeof(json_t *), cmp, arg);
    for (size_t i = 0; of != NULL && i < n; i++)
        json_array_set_new(list, i, of[i]);
    free(of);
}

/* A scalar, or a short list or object of scalars, as text. */
static void
scalar(const json_t *j, char *ret, size_t ret_bytes)
{
    const char *key;
    size_t i, at = 0;
    char item[128];
    json_t *v;

    if (json_is_string(j))
        fct_plain(json_string_value(j), json_string_length(j), ret, ret_bytes);
    else if (json_is_integer(j))
        snprintf(ret, ret_bytes, "%lld", (long long)json_integer_value(j));
    else if (json_is_real(j))
        snprintf(ret, ret_bytes, "%.6g", json_real_value(j));
    else
        snprintf(ret, ret_bytes, "%s",
            json_is_true(j)                             ? "yes"
                : json_is_false(j)                      ? "no"
                : json_is_array(j) || json_is_object(j) ? ""
                                                        : "-");
    json_array_foreach(j, i, v) {
        if (at + 1 >= ret_bytes)
            break;
        scalar(v, item, sizeof(item));
        at += (size_t)snprintf(ret + at, ret_bytes - at, i > 0 ? " %s" : "%s", item);
    }
    json_object_foreach((json_t *)(uintptr_t)j, key, v) {
        if (at + 1 >= ret_bytes)
            break;
        scalar(v, item, sizeof(item));
        at += (size_t)snprintf(ret + at, ret_bytes - at, at > 0 ? " %s=%s" : "%s=%s", key,
            item);
    }
}

static int
is_table(const json_t *j)
{
    for (size_t i = 0; i < json_array_size(j); i++)
        if (!json_is_object(json_array_get(j, i)))
            return 0;
    return json_array_size(j) > 0;
}

static int
display_width(const char *s)
{
    int n = 0;

    for (; *s != '\0'; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

struct table {
    const char *cols[COLS_MAX];
    int width[COLS_MAX], right[COLS_MAX];
    int n;
};

static void
measure(const json_t *rows, struct table *t)
{
    char text[1024];
    const char *key;
    json_t *row, *v;
    size_t i;
    int c, w;

    json_array_foreach(rows, i, row)
        json_object_foreach(row, key, v) {
            for (c = 0; c < t->n && strcmp(t->cols[c], key) != 0; c++)
                ;
            if (c == COLS_MAX)
                continue;
            if (c == t->n) {
                t->cols[c] = key;
                t->width[c] = display_width(key);
                t->right[c] = 1;
                t->n++;
            }
            scalar(v, text, sizeof(text));
            w = display_width(text);
            t->width[c] = w > t->width[c] ? w : t->width[c];
            t->right[c] &= json_is_number(v) || json_is_null(v);
        }
}

/* Print a row, or the names of the columns if row is NULL. */
static void
show_row(FILE *out, const struct table *t, const json_t *row, int indent)
{
    const json_t *v;
    char text[1024];
    int pad;

    fprintf(out, "%*s", indent, "");
    for (int c = 0; c < t->n; c++) {
        snprintf(text, sizeof(text), "%s", row == NULL ? t->cols[c] : "");
        if ((v = json_object_get(row, t->cols[c])) != NULL)
            scalar(v, text, sizeof(text));
        pad = t->width[c] - display_width(text);
        fprintf(out, "%s%*s%s%*s", c > 0 ? "  " : "", t->right[c] ? pad : 0, "", text,
            t->right[c] || c == t->n - 1 ? 0 : pad, "");
    }
    fputc('\n', out);
}

static void
show_table(FILE *out, const json_t *rows, int indent)
{
    struct table t = { .n = 0 };
    const json_t *row;
    size_t i;

    measure(rows, &t);
    show_row(out, &t, NULL, indent);
    json_array_foreach(rows, i, row)
        show_row(out, &t, row, indent);
}

static void
show_object(FILE *out, const json_t *j, int indent)
{
    char text[4096];
    const char *key;
    int width = 0;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)j, key, v)
        if (!json_is_object(v) && !is_table(v) && display_width(key) > width)
            width = display_width(key);
    json_object_foreach((json_t *)(uintptr_t)j, key, v) {
        if (json_is_object(v) || is_table(v)) {
            fprintf(out, "%*s%s:\n", indent, "", key);
            fct_show(out, v, indent + 2);
            continue;
        }
        scalar(v, text, sizeof(text));
        fprintf(out, "%*s%-*s  %s\n", indent, "", width, key, text);
    }
}

void
fct_show(FILE *out, const json_t *j, int indent)
{
    char text[4096];

    if (json_is_object(j)) {
        show_object(out, j, indent);
    } else if (is_table(j)) {
        show_table(out, j, indent);
    } else if (json_is_array(j) && json_array_size(j) == 0) {
        fprintf(out, "%*snone\n", indent, "");
    } else {
        scalar(j, text, sizeof(text));
        fprintf(out, "%*s%s\n", indent, "", text);
    }
}

/* ---- templates ------------------------------------------------------------------ */

const json_t *
fct_member(const json_t *o, const char *path)
{
    size_t n = strcspn(path, ".");
    char key[64];

    if (n == 0)
        return o;
    snprintf(key, sizeof(key), "%.*s", (int)n, path);
    o = json_is_array(o) ? json_array_get(o, strtoul(key, NULL, 10))
                         : json_object_get(o, key);
    return path[n] == '.' ? fct_member(o, path + n + 1) : o;
}

/* An object, and the scope around it. */
struct scope {
    const json_t *o;
    const struct scope *up;
};

/* The member whose path is at *p; advances *p past it. */
static const json_t *
take_member(const struct scope *s, const char **p)
{
    char path[64];
    size_t n;

    for (; **p == '^'; ++*p)
        s = s->up;
    n = strcspn(*p, "+-*/=?>:");
    snprintf(path, sizeof(path), "%.*s", (int)n, *p);
    *p += n;
    return fct_member(s->o, path);
}

static double
take_operand(const struct scope *s, const char **p)
{
    const json_t *v;
    char *end;
    double n;

    if (!isdigit((unsigned char)**p) && **p != '.') {
        v = take_member(s, p);
        return json_is_number(v) ? json_number_value(v) : (double)NAN;
    }
    n = strtod(*p, &end);
    *p = end;
    return n;
}

static double
take_number(const struct scope *s, const char **p)
{
    double n = take_operand(s, p), m;

    while (**p != '\0' && strchr("+-*/", **p) != NULL) {
        char op = *(*p)++;

        m = take_operand(s, p);
        n = op == '+'   ? n + m
            : op == '-' ? n - m
            : op == '*' ? n * m
            : m != 0    ? n / m
                        : 0;
    }
    return n;
}

static int
holds(const struct scope *s, const char *cond)
{
    const char *p = cond;
    const json_t *v;
    double n;

    if (cond[0] == '!')
        return !holds(s, cond + 1);
    n = take_number(s, &p);
    if (*p == '>') {
        p++;
        return n > take_number(s, &p);
    }
    p = cond;
    v = take_member(s, &p);
    if (*p == '=')
        return json_is_string(v) && strcmp(json_string_value(v), p + 1) == 0;
    return *p == '?' ? v != NULL && !json_is_null(v)
                     : n < 0 || n > 0 || json_is_true(v) || json_is_object(v) ||
            json_array_size(v) > 0 || json_string_length(v) > 0;
}

static void
put_value(FILE *out, const struct scope *s, const char *spec)
{
    const char *p = spec;
    const json_t *v = take_member(s, &p);
    int is_alone = *p == ':' || *p == '\0';
    char text[1024] = "", *kind;
    long width, digits = 0;
    double n;

    p = spec;
    n = take_number(s, &p);
    if (*p == '\0' && json_is_string(v)) {
        fputs(json_string_value(v), out);
        return;
    }
    width = strtol(*p == ':' ? p + 1 : p, &kind, 10);
    if (*kind == '.') {
        digits = strtol(kind + 1, &kind, 10);
        is_alone = 0;
    }
    if (strcmp(kind, "fig") == 0)
        (void)fct_figure(n, text);
    n = isnan(n) ? 0 : n;
    if (strcmp(kind, "age") == 0)
        age((long long)n, text, sizeof(text));
    else if (strcmp(kind, "bytes") == 0)
        (void)fct_bytes(n, text);
    else if (strcmp(kind, "MiB") == 0)
        snprintf(text, sizeof(text), "%lld", (long long)n >> 20);
    else if (kind[0] == 'd')
        date((time_t)n, kind[1] == 's', text, sizeof(text));
    else if (kind[0] == '\0' && !is_alone)
        snprintf(text, sizeof(text), "%.*f", (int)digits, n);
    else if (kind[0] == '\0' && json_is_string(v))
        snprintf(text, sizeof(text), "%s", json_string_value(v));
    else if (kind[0] == '\0' && v != NULL)
        scalar(v, text, sizeof(text));
    fprintf(out, "%*s", (int)width, text);
}

static void
fill(FILE *out, const char *p, const char *end, const struct scope *s)
{
    char head[96];

    while (p < end) {
        const char *from = p + 1, *to = from + strcspn(from, *p == '{' ? "}" : "|");
        const char *path = head + 1;
        struct scope in = { NULL, s };
        int deep = 1;

        if (*p != '{' && *p != '[') {
            fputc(*p++, out);
            continue;
        }
        snprintf(head, sizeof(head), "%.*s", (int)(to - from), from);
        if (*p == '{') {
            put_value(out, s, head);
            p = to + 1;
            continue;
        }
        for (p = from = to + 1; p < end && deep > 0; p++)
            deep += (*p == '[') - (*p == ']');
        if (head[0] != '*') {
            if (holds(s, head))
                fill(out, from, p - 1, s);
            continue;
        }
        in.o = take_member(s, &path);
        if (json_is_object(in.o))
            fill(out, from, p - 1, &in);
        for (size_t i = 0; i < json_array_size(in.o); i++)
            fill(out, from, p - 1, &(struct scope){ json_array_get(in.o, i), s });
    }
}

void
fct_text(FILE *out, const char *text, const json_t *o)
{
    fill(out, text, text + strlen(text), &(struct scope){ o, NULL });
}

void
fct_fill(char *ret, size_t ret_bytes, const char *text, const json_t *o)
{
    FILE *out = fmemopen(ret, ret_bytes, "w");

    ret[0] = ret[ret_bytes - 1] = '\0';
    if (out == NULL)
        return;
    fct_text(out, text, o);
    fclose(out);
    ret[ret_bytes - 1] = '\0';
}
