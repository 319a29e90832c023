/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

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
        return fct_fail(FCT_EX_IO, "standard output: %s", strerror(errno));
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

void
fct_age(long long ms, char *ret, size_t ret_bytes)
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

void
fct_date(time_t t, int with_seconds, char *ret, size_t ret_bytes)
{
    struct tm tm;

    if (t == 0 || localtime_r(&t, &tm) == NULL ||
        strftime(ret, ret_bytes, with_seconds ? "%Y-%m-%d %H:%M:%S" : "%Y-%m-%d %H:%M",
            &tm) == 0)
        snprintf(ret, ret_bytes, "?");
}

void
fct_plain(const char *text, size_t n, char *ret, size_t ret_bytes)
{
    size_t at = 0, i = 0, out, len;
    char one[8];
    uint32_t cp;

    while (i < n && text[i] != '\0') {
        /* n may be SIZE_MAX: not more than is there before a NUL */
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

/* A scalar, or a short list of them, as text. */
static void
scalar(const json_t *j, char *ret, size_t ret_bytes)
{
    const char *key;
    size_t i, at = 0;
    char item[128];
    json_t *v;

    ret[0] = '\0';
    switch (j != NULL ? json_typeof(j) : JSON_NULL) {
    case JSON_STRING:
        fct_plain(json_string_value(j), json_string_length(j), ret, ret_bytes);
        break;
    case JSON_INTEGER:
        snprintf(ret, ret_bytes, "%lld", (long long)json_integer_value(j));
        break;
    case JSON_REAL:
        snprintf(ret, ret_bytes, "%.6g", json_real_value(j));
        break;
    case JSON_TRUE:
        snprintf(ret, ret_bytes, "yes");
        break;
    case JSON_FALSE:
        snprintf(ret, ret_bytes, "no");
        break;
    case JSON_NULL:
        snprintf(ret, ret_bytes, "-");
        break;
    case JSON_ARRAY:
        json_array_foreach(j, i, v) {
            if (at + 1 >= ret_bytes)
                break;
            scalar(v, item, sizeof(item));
            at += (size_t)snprintf(ret + at, ret_bytes - at, i > 0 ? " %s" : "%s", item);
        }
        break;
    case JSON_OBJECT:
        json_object_foreach((json_t *)(uintptr_t)j, key, v) {
            if (at + 1 >= ret_bytes)
                break;
            scalar(v, item, sizeof(item));
            at += (size_t)snprintf(ret + at, ret_bytes - at, at > 0 ? " %s=%s" : "%s=%s",
                key, item);
        }
        break;
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

static void
cell(FILE *out, const struct table *t, int c, const char *text)
{
    int pad = t->width[c] - display_width(text), last = c == t->n - 1;

    fprintf(out, "%s%*s%s%*s", c > 0 ? "  " : "", t->right[c] ? pad : 0, "", text,
        t->right[c] || last ? 0 : pad, "");
}

static void
show_table(FILE *out, const json_t *rows, int indent)
{
    struct table t = { .n = 0 };
    const json_t *row, *v;
    char text[1024];
    size_t i;

    measure(rows, &t);
    fprintf(out, "%*s", indent, "");
    for (int c = 0; c < t.n; c++)
        cell(out, &t, c, t.cols[c]);
    fputc('\n', out);
    json_array_foreach(rows, i, row) {
        fprintf(out, "%*s", indent, "");
        for (int c = 0; c < t.n; c++) {
            text[0] = '\0';
            if ((v = json_object_get(row, t.cols[c])) != NULL)
                scalar(v, text, sizeof(text));
            cell(out, &t, c, text);
        }
        fputc('\n', out);
    }
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
    const char *dot = strchr(path, '.');
    char key[64];

    if (dot == NULL)
        return path[0] != '\0' ? json_object_get(o, path) : o;
    snprintf(key, sizeof(key), "%.*s", (int)(dot - path), path);
    return fct_member(json_object_get(o, key), dot + 1);
}

static int
holds(const json_t *o, const char *cond)
{
    char key[64];
    const json_t *v;
    double n;

    if (cond[0] == '!')
        return !holds(o, cond + 1);
    snprintf(key, sizeof(key), "%.*s", (int)strcspn(cond, "=?"), cond);
    cond += strlen(key);
    v = fct_member(o, key);
    n = json_number_value(v);
    if (*cond == '=')
        return json_is_string(v) && strcmp(json_string_value(v), cond + 1) == 0;
    return *cond == '?' ? v != NULL
                        : n < 0 || n > 0 || json_is_true(v) || json_is_object(v) ||
            json_array_size(v) > 0 || json_string_length(v) > 0;
}

/* "PATH", "PATH:FORM" or "PATH/N:FORM" */
static void
put_value(FILE *out, const json_t *o, char *spec)
{
    char text[1024] = "", *form = strchr(spec, ':'), *by, *kind;
    long width, digits = -1;
    const json_t *v;
    double scale = 1;

    if (form != NULL)
        *form++ = '\0';
    if ((by = strchr(spec, '/')) != NULL) {
        *by++ = '\0';
        scale = strtod(by, NULL);
    }
    v = fct_member(o, spec);
    if (form == NULL && json_is_string(v)) {
        fputs(json_string_value(v), out);
        return;
    }
    width = strtol(form != NULL ? form : "", &kind, 10);
    if (*kind == '.')
        digits = strtol(kind + 1, &kind, 10);
    if (strcmp(kind, "age") == 0)
        fct_age((long long)json_integer_value(v), text, sizeof(text));
    else if (strcmp(kind, "bytes") == 0)
        (void)fct_bytes(json_number_value(v), text);
    else if (strcmp(kind, "fig") == 0)
        (void)fct_figure(json_is_number(v) ? json_number_value(v) : (double)NAN, text);
    else if (strcmp(kind, "MiB") == 0)
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v) >> 20);
    else if (kind[0] == 'd')
        fct_date((time_t)json_integer_value(v), kind[1] == 's', text, sizeof(text));
    else if (digits >= 0)
        snprintf(text, sizeof(text), "%.*f", (int)digits, json_number_value(v) / scale);
    else if (json_is_string(v))
        snprintf(text, sizeof(text), "%s", json_string_value(v));
    else if (v != NULL)
        scalar(v, text, sizeof(text));
    fprintf(out, "%*s", (int)width, text);
}

static void
fill(FILE *out, const char *p, const char *end, const json_t *o)
{
    char head[96];

    while (p < end) {
        const char *from = p + 1, *to = from + strcspn(from, *p == '{' ? "}" : "|");
        const json_t *v;
        int deep = 1;

        if (*p != '{' && *p != '[') {
            fputc(*p++, out);
            continue;
        }
        snprintf(head, sizeof(head), "%.*s", (int)(to - from), from);
        if (*p == '{') {
            put_value(out, o, head);
            p = to + 1;
            continue;
        }
        for (p = from = to + 1; p < end && deep > 0; p++)
            deep += (*p == '[') - (*p == ']');
        v = head[0] == '*' ? fct_member(o, head + 1) : NULL;
        for (size_t i = 0; i < json_array_size(v); i++)
            fill(out, from, p - 1, json_array_get(v, i));
        if (json_is_object(v) || (head[0] != '*' && holds(o, head)))
            fill(out, from, p - 1, v != NULL ? v : o);
    }
}

void
fct_text(FILE *out, const char *text, const json_t *o)
{
    fill(out, text, text + strlen(text), o);
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
