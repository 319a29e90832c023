/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/param_priv.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { RESTART = 0, RELOAD = 1 };

const struct par_def par_defs[] = {
#define PAR_INT(s, k, a, u, lo_, d, hi_, f, h)                          \
    { .section = #s, .key = #k, .aliases = a, .unit = u, .help = h,     \
      .choices = "", .def = #d, .type = PAR_T_INT,                      \
      .offset = offsetof(struct par, s##_##k), .lo = lo_, .hi = hi_, .reload = f },
#define PAR_DBL(s, k, a, u, lo_, d, hi_, f, h)                          \
    { .section = #s, .key = #k, .aliases = a, .unit = u, .help = h,     \
      .choices = "", .def = #d, .type = PAR_T_DBL,                      \
      .offset = offsetof(struct par, s##_##k), .dlo = lo_, .dhi = hi_, .reload = f },
#define PAR_BOOL(s, k, a, d, f, h)                                      \
    { .section = #s, .key = #k, .aliases = a, .unit = "", .help = h,    \
      .choices = "", .def = #d, .type = PAR_T_BOOL,                     \
      .offset = offsetof(struct par, s##_##k), .lo = 0, .hi = 1, .reload = f },
#define PAR_ENUM(s, k, a, c, d, f, h)                                   \
    { .section = #s, .key = #k, .aliases = a, .unit = "", .help = h,    \
      .choices = c, .def = d, .type = PAR_T_ENUM,                       \
      .offset = offsetof(struct par, s##_##k), .reload = f },
#define PAR_STR(s, k, a, d, f, h)                                       \
    { .section = #s, .key = #k, .aliases = a, .unit = "", .help = h,    \
      .choices = "", .def = d, .type = PAR_T_STR,                       \
      .offset = offsetof(struct par, s##_##k), .reload = f },
#include "daemon/tbl/params.h"
#undef PAR_INT
#undef PAR_DBL
#undef PAR_BOOL
#undef PAR_ENUM
#undef PAR_STR
};
const size_t par_n_defs = sizeof(par_defs) / sizeof(par_defs[0]);

size_t
par_field_bytes(const struct par_def *d)
{
    return d->type == PAR_T_STR || d->type == PAR_T_ENUM ? PAR_STR_BYTES
        : d->type == PAR_T_DBL ? sizeof(double) : sizeof(int64_t);
}

static int64_t *
int_field(struct par *p, const struct par_def *d)
{
    return (int64_t *)(void *)((char *)p + d->offset);
}

static double *
dbl_field(struct par *p, const struct par_def *d)
{
    return (double *)(void *)((char *)p + d->offset);
}

static char *
str_field(struct par *p, const struct par_def *d)
{
    return (char *)p + d->offset;
}

const char *
par_show(const char *text, char *buf, size_t buf_bytes)
{
    size_t i, max = buf_bytes - 1 < 60 ? buf_bytes - 1 : 60;

    for (i = 0; i < max && text[i] != '\0'; i++)
        buf[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    /* Do not end inside a character. */
    if (text[i] != '\0')
        while (i > 0 && ((unsigned char)text[i] & 0xc0) == 0x80)
            i--;
    buf[i] = '\0';
    return buf;
}

int
par_is_utf8(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s, *end = p + len;

    while (p < end) {
        unsigned c = *p++, n, min;

        if (c < 0x80)
            continue;
        if (c >= 0xc2 && c <= 0xdf) {
            n = 1, min = 0x80, c &= 0x1f;
        } else if (c >= 0xe0 && c <= 0xef) {
            n = 2, min = 0x800, c &= 0x0f;
        } else if (c >= 0xf0 && c <= 0xf4) {
            n = 3, min = 0x10000, c &= 0x07;
        } else {
            return 0;
        }
        if ((size_t)(end - p) < n)
            return 0;
        for (; n > 0; n--, p++) {
            if ((*p & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (*p & 0x3f);
        }
        if (c < min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return 0;
    }
    return 1;
}

int
par_is_size(const struct par_def *d)
{
    size_t n = strlen(d->key);

    return d->type == PAR_T_INT && n > 6 && strcmp(d->key + n - 6, "_bytes") == 0;
}

void
par_format(const struct par_def *d, int64_t v, char *ret, size_t ret_bytes)
{
    static const char suffix[] = "gmk";
    int i;

    for (i = 0; par_is_size(d) && i < 3; i++) {
        int64_t unit = (int64_t)1 << (30 - 10 * i);

        if (v != 0 && v % unit == 0) {
            snprintf(ret, ret_bytes, "%lld%c", (long long)(v / unit), suffix[i]);
            return;
        }
    }
    snprintf(ret, ret_bytes, "%lld", (long long)v);
}

void
par_default_text(const struct par_def *d, char *ret, size_t ret_bytes)
{
    if (d->type == PAR_T_INT)
        par_format(d, strtoll(d->def, NULL, 10), ret, ret_bytes);
    else if (d->type == PAR_T_BOOL)
        snprintf(ret, ret_bytes, "%s", d->def[0] == '1' ? "yes" : "no");
    else
        snprintf(ret, ret_bytes, "%s", d->def);
}

/* ---- values from text ------------------------------------------------------- */

int
par_bad_value(const char *name, const char *value, char *err, size_t err_bytes,
    const char *fmt, ...)
{
    char shown[64], reason[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(reason, sizeof(reason), fmt, ap);
    va_end(ap);
    snprintf(err, err_bytes, "%s = %s: %s%s", name,
        value[0] == '\0' ? "(nothing)" : par_show(value, shown, sizeof(shown)), reason,
        strstr(value, " #") != NULL ? "; a comment behind a value begins with \" ;\""
        : "");
    return -EINVAL;
}

static int
parse_int(const struct par_def *d, const char *name, const char *value, int64_t scale,
    int64_t *ret, char *err, size_t err_bytes)
{
    char lo[32], hi[32], *end;
    long long v;
    int64_t unit = scale;
    int range;

    errno = 0;
    v = strtoll(value, &end, 10);
    range = errno == ERANGE;
    if (par_is_size(d) && end != value && *end != '\0') {
        int shift = *end == 'k' || *end == 'K' ? 10 : *end == 'm' || *end == 'M' ? 20
            : *end == 'g' || *end == 'G' ? 30 : 0;

        if (shift != 0) {
            unit <<= shift;
            end++;
        }
    }
    if (end == value || *end != '\0' || isspace((unsigned char)value[0]))
        return par_bad_value(name, value, err, err_bytes, par_is_size(d)
            ? "not a size; write a whole number of bytes, or with k, m or g, like 32m"
            : "not a whole number");
    if (scale > 1 && v < 0)
        v = 0;
    if (range || __builtin_mul_overflow((int64_t)v, unit, ret) || *ret < d->lo
        || *ret > d->hi) {
        par_format(d, scale > 1 ? d->lo / scale : d->lo, lo, sizeof(lo));
        par_format(d, scale > 1 ? d->hi / scale : d->hi, hi, sizeof(hi));
        return par_bad_value(name, value, err, err_bytes, "must be %s to %s%s%s", lo, hi,
            scale > 1 || d->unit[0] == '\0' || par_is_size(d) ? "" : " ",
            scale > 1 || par_is_size(d) ? "" : d->unit);
    }
    return 0;
}

static int
parse_dbl(const struct par_def *d, const char *name, const char *value, double *ret,
    char *err, size_t err_bytes)
{
    char *end;
    double v = strtod(value, &end);

    if (end == value || *end != '\0' || isspace((unsigned char)value[0])
        || strpbrk(value, "xXnN") != NULL)
        return par_bad_value(name, value, err, err_bytes, "not a number");
    if (!isfinite(v) || v < d->dlo || v > d->dhi)
        return par_bad_value(name, value, err, err_bytes, "must be %g to %g%s%s", d->dlo,
            d->dhi, d->unit[0] != '\0' ? " " : "", d->unit);
    *ret = v;
    return 0;
}

int
par_word_in(const char *word, const char *list)
{
    size_t n = strlen(word);

    while (*list != '\0') {
        size_t len = strcspn(list, "|,*");

        if (len == n && strncmp(word, list, n) == 0)
            return 1;
        list += len;
        if (*list == '*')
            list += strcspn(list, ",");
        if (*list != '\0')
            list++;
    }
    return 0;
}

int
par_parse_bool(const char *name, const char *value, int64_t *ret, char *err,
    size_t err_bytes)
{
    char low[8];
    size_t i;

    for (i = 0; i < sizeof(low) - 1 && value[i] != '\0'; i++)
        low[i] = (char)tolower((unsigned char)value[i]);
    low[i] = '\0';
    if (value[i] == '\0' && i > 0) {
        if (par_word_in(low, "yes|true|on|1")) {
            *ret = 1;
            return 0;
        }
        if (par_word_in(low, "no|false|off|0")) {
            *ret = 0;
            return 0;
        }
    }
    return par_bad_value(name, value, err, err_bytes, "write yes or no");
}

static int
parse_str(const struct par_def *d, const char *name, const char *value, char *ret,
    char *err, size_t err_bytes)
{
    size_t i, len = strlen(value);
    char choices[128];

    if (d->type == PAR_T_ENUM && !par_word_in(value, d->choices)) {
        snprintf(choices, sizeof(choices), "%s", d->choices);
        for (i = 0; choices[i] != '\0'; i++)
            if (choices[i] == '|')
                choices[i] = ' ';
        return par_bad_value(name, value, err, err_bytes, "must be one of: %s", choices);
    }
    if (len >= PAR_STR_BYTES)
        return par_bad_value(name, value, err, err_bytes, "%zu bytes long, at most "
            "%d are allowed", len, PAR_STR_BYTES - 1);
    for (i = 0; i < len; i++)
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
            return par_bad_value(name, value, err, err_bytes,
                "control character 0x%02x in the value", (unsigned char)value[i]);
    if (!par_is_utf8(value, len))
        return par_bad_value(name, value, err, err_bytes, "not valid UTF-8");
    memset(ret, 0, PAR_STR_BYTES);
    memcpy(ret, value, len);
    return 0;
}

/* Text to the row's field; the field is changed only on success. */
static int
set_field(struct par_set *ps, const struct par_ref *ref, const char *name,
    const char *value, char *err, size_t err_bytes)
{
    const struct par_def *d = &par_defs[ref->idx];
    char text[PAR_STR_BYTES];
    int64_t i = 0;
    double r = 0;
    int rc;

    switch (d->type) {
    case PAR_T_INT:
        rc = parse_int(d, name, value, ref->scale, &i, err, err_bytes);
        if (rc == 0)
            *int_field(&ps->par, d) = i;
        return rc;
    case PAR_T_BOOL:
        rc = par_parse_bool(name, value, &i, err, err_bytes);
        if (rc == 0)
            *int_field(&ps->par, d) = i;
        return rc;
    case PAR_T_DBL:
        rc = parse_dbl(d, name, value, &r, err, err_bytes);
        if (rc == 0)
            *dbl_field(&ps->par, d) = r;
        return rc;
    default:
        rc = parse_str(d, name, value, text, err, err_bytes);
        if (rc == 0 && d->offset == offsetof(struct par, graph_capture_sizes))
            rc = par_sizes(name, text, text, sizeof(text), err, err_bytes);
        if (rc == 0)
            memcpy(str_field(&ps->par, d), text, PAR_STR_BYTES);
        return rc;
    }
}

/* Does the row's new value go against what the other of {row, note} asked
 * for in the same place? */
static int
contradicts(const struct par_set *ps, const struct par_def *d, const void *old, int note)
{
    const char *now = (const char *)&ps->par + d->offset;
    int64_t a, b;

    if (note < 0 || par_notes[note].kind != PAR_N_OVERLAP)
        return memcmp(now, old, par_field_bytes(d)) != 0;
    memcpy(&a, old, sizeof(a));
    memcpy(&b, now, sizeof(b));
    return (a != 0) != (b != 0);
}

int
par_set_row(struct par_set *ps, const struct par_ref *ref, int via, const char *name,
    const char *value, enum par_origin from, char *err, size_t err_bytes)
{
    const struct par_def *d = &par_defs[ref->idx];
    int was = ps->via[ref->idx] - 1, rc;
    char old[PAR_STR_BYTES], shown[64], text[PAR_STR_BYTES];
    enum par_origin origin;

    rc = par_value_word(d, name, &value, err, err_bytes);
    if (rc != 0)
        return rc;
    memcpy(old, (const char *)&ps->par + d->offset, par_field_bytes(d));
    par_value(ps, ref->idx, text, sizeof(text), &origin);
    rc = set_field(ps, ref, name, value, err, err_bytes);
    if (rc != 0)
        return rc;
    if (origin == from && from != PAR_FROM_DEFAULT && from != PAR_FROM_RUNTIME
        && was != via && contradicts(ps, d, old, via >= 0 ? via : was)) {
        memcpy((char *)&ps->par + d->offset, old, par_field_bytes(d));
        snprintf(err, err_bytes, "%s = %s contradicts %s.%s = %s, set by %s; remove one "
            "of them", name, par_show(value, shown, sizeof(shown)), d->section, d->key,
            text[0] != '\0' ? text : "(nothing)",
            was >= 0 ? par_notes[was].key : "its own name");
        return -EINVAL;
    }
    ps->from[ref->idx] = (unsigned char)from;
    ps->via[ref->idx] = (unsigned char)(via + 1);
    return 0;
}

int
par_set_ref(struct par_set *ps, const struct par_ref *ref, const char *name,
    const char *value, enum par_origin from, char *err, size_t err_bytes)
{
    return ref->note ? par_set_note(ps, ref->idx, name, value, from, err, err_bytes)
        : par_set_row(ps, ref, -1, name, value, from, err, err_bytes);
}

/* Values, origins and what set them. */
static void
par_copy(struct par_set *dst, const struct par_set *src)
{
    dst->par = src->par;
    memcpy(dst->from, src->from, par_n_defs);
    memcpy(dst->via, src->via, par_n_defs);
}

int
par_set_text(struct par_set *ps, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes)
{
    struct par_ref ref;
    int rc = par_find(NULL, name, &ref, err, err_bytes);

    return rc == 0 ? par_set_ref(ps, &ref, name, value, from, err, err_bytes) : rc;
}

int
par_set_checked(struct par_set *ps, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes)
{
    struct par_set *was = par_new();
    int rc, done;

    if (was == NULL) {
        snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    par_copy(was, ps);
    done = par_set_text(ps, name, value, from, err, err_bytes);
    if (done >= 0) {
        char why[512];

        rc = par_check(ps, why, sizeof(why));
        if (rc != 0) {
            par_copy(ps, was);
            snprintf(err, err_bytes, "%s", why);
            done = rc;
        }
    }
    par_free(was);
    return done;
}

/* ---- names ------------------------------------------------------------------ */

static void
normalize(const char *name, char *ret, size_t ret_bytes)
{
    size_t i;

    for (i = 0; i + 1 < ret_bytes && name[i] != '\0'; i++)
        ret[i] = name[i] == '-' ? '_' : name[i];
    ret[i] = '\0';
}

unsigned
par_distance(const char *a, const char *b)
{
    unsigned char row[65];
    size_t i, j, n = strnlen(b, 63);

    for (j = 0; j <= n; j++)
        row[j] = (unsigned char)j;
    for (i = 0; i < 63 && a[i] != '\0'; i++) {
        unsigned char diag = row[0];

        row[0] = (unsigned char)(i + 1);
        for (j = 1; j <= n; j++) {
            unsigned char up = row[j], best = (unsigned char)(diag + (a[i] != b[j - 1]));

            if (up + 1 < best)
                best = (unsigned char)(up + 1);
            if (row[j - 1] + 1 < best)
                best = (unsigned char)(row[j - 1] + 1);
            diag = up;
            row[j] = best;
        }
    }
    return row[n];
}

/* Distance of a name to a row: its full name, key and aliases. */
static unsigned
row_distance(const char *full, const char *key, const struct par_def *d)
{
    char text[128], *save = NULL, *w;
    unsigned best, n;

    snprintf(text, sizeof(text), "%s.%s", d->section, d->key);
    best = par_distance(full, text);
    n = par_distance(key, d->key);
    best = n < best ? n : best;
    snprintf(text, sizeof(text), "%s", d->aliases);
    for (w = strtok_r(text, ",", &save); w != NULL; w = strtok_r(NULL, ",", &save)) {
        w[strcspn(w, "*")] = '\0';
        n = par_distance(key, w);
        best = n < best ? n : best;
    }
    return best;
}

static int
unknown_name(const char *section, const char *name, char *err, size_t err_bytes)
{
    const char *nearest = NULL, *dot = strchr(name, '.');
    const char *key = section == NULL && dot != NULL ? dot + 1 : name;
    char full[256], shown[64];
    unsigned n, best = ~0u, near;
    size_t i, at = 0;

    if (section != NULL) {
        for (i = 0; i < par_n_defs; i++) {
            if (strcmp(par_defs[i].section, section) == 0)
                break;
            n = par_distance(section, par_defs[i].section);
            if (n < best) {
                best = n;
                nearest = par_defs[i].section;
            }
        }
        if (i == par_n_defs) {
            near = strlen(section) > 4 ? (unsigned)strlen(section) / 2 : 2;
            snprintf(err, err_bytes, "unknown section [%s]; %s%s%s",
                par_show(section, shown, sizeof(shown)),
                best <= near ? "nearest is [" : "fdd.ini(5) lists them all",
                best <= near ? nearest : "", best <= near ? "]" : "");
            return -ENOENT;
        }
    }
    snprintf(full, sizeof(full), "%s%s%s", section != NULL ? section : "",
        section != NULL ? "." : "", name);
    for (i = 0, best = ~0u; i < par_n_defs; i++) {
        n = row_distance(full, key, &par_defs[i]);
        if (n < best) {
            best = n;
            at = i;
        }
    }
    if (best <= 2 || best <= strlen(key) / 3)
        snprintf(err, err_bytes, "unknown parameter '%s'; nearest is %s.%s",
            par_show(full, shown, sizeof(shown)), par_defs[at].section, par_defs[at].key);
    else
        snprintf(err, err_bytes, "unknown parameter '%s'; fdd.ini(5) lists them all",
            par_show(full, shown, sizeof(shown)));
    return -ENOENT;
}

static int64_t
alias_scale(const char *aliases, const char *name)
{
    size_t n = strlen(name);
    const char *p;

    for (p = aliases; (p = strstr(p, name)) != NULL; p += n)
        if ((p == aliases || p[-1] == ',') && p[n] == '*')
            return strtoll(p + n + 1, NULL, 10);
    return 1;
}

int
par_find(const char *section, const char *name, struct par_ref *ret, char *err,
    size_t err_bytes)
{
    char buf[128], full[192], *key = buf, *sec = NULL, *dot;
    size_t i;

    normalize(name, buf, sizeof(buf));
    snprintf(full, sizeof(full), "%s%s%s", section != NULL ? section : "",
        section != NULL ? "." : "", buf);
    if (section != NULL) {
        sec = (char *)(uintptr_t)section;
    } else if ((dot = strchr(buf, '.')) != NULL) {
        *dot = '\0';
        sec = buf;
        key = dot + 1;
    }
    for (i = 0; i < par_n_defs; i++) {
        const struct par_def *d = &par_defs[i];
        int own = sec == NULL || strcmp(d->section, sec) == 0;
        int by_key = sec != NULL && own && strcmp(d->key, key) == 0;
        const char *as = own && par_word_in(key, d->aliases) ? key
            : par_word_in(full, d->aliases) ? full : NULL;

        if (by_key || as != NULL) {
            *ret = (struct par_ref){ .note = 0, .idx = i,
                .scale = by_key ? 1 : alias_scale(d->aliases, as) };
            return 0;
        }
    }
    for (i = 0; i < par_n_notes; i++) {
        const struct par_note *n = &par_notes[i];

        /* Notes are not ours: any section may name them. */
        if (strcmp(n->key, key) == 0 || par_word_in(full, n->aliases)) {
            *ret = (struct par_ref){ .note = 1, .idx = i, .scale = 1 };
            return 0;
        }
    }
    normalize(name, buf, sizeof(buf));
    return unknown_name(section, buf, err, err_bytes);
}

int
par_is_reloadable(const char *name)
{
    struct par_ref ref;
    char err[8];
    int rc = par_find(NULL, name, &ref, err, sizeof(err));

    return rc != 0 ? rc : ref.note ? 0 : par_defs[ref.idx].reload;
}

/* ---- sets ------------------------------------------------------------------- */

struct par_set *
par_new(void)
{
    struct par_set *ps = calloc(1, sizeof(*ps));
    char err[256];
    size_t i;

    if (ps == NULL)
        return NULL;
    ps->magic = PAR_SET_MAGIC;
    ps->from = calloc(par_n_defs, 1);
    ps->via = calloc(par_n_defs, 1);
    if (ps->from == NULL || ps->via == NULL)
        return par_free(ps);
    for (i = 0; i < par_n_defs; i++) {
        struct par_ref ref = { .note = 0, .idx = i, .scale = 1 };

        if (par_set_ref(ps, &ref, par_defs[i].key, par_defs[i].def, PAR_FROM_DEFAULT, err,
                sizeof(err)) != 0)
            return par_free(ps);
    }
    return ps;
}

struct par_set *
par_free(struct par_set *ps)
{
    if (ps != NULL) {
        free(ps->from);
        free(ps->via);
        ps->magic = 0;
        free(ps);
    }
    return NULL;
}

const struct par *
par_get(const struct par_set *ps)
{
    return &ps->par;
}

int
par_reload(struct par_set *ps, const struct par_set *ps_new, char *ret_ignored,
    size_t ignored_bytes)
{
    size_t i, at = 0;
    int n = 0;

    if (ignored_bytes > 0)
        ret_ignored[0] = '\0';
    for (i = 0; i < par_n_defs; i++) {
        const struct par_def *d = &par_defs[i];
        const char *src = (const char *)&ps_new->par + d->offset;
        char *dst = (char *)&ps->par + d->offset;
        int same = memcmp(src, dst, par_field_bytes(d)) == 0;

        if (d->reload) {
            memcpy(dst, src, par_field_bytes(d));
            ps->from[i] = ps_new->from[i];
            n += !same;
        } else if (!same && at < ignored_bytes) {
            int len = snprintf(ret_ignored + at, ignored_bytes - at, "%s%s.%s",
                at > 0 ? " " : "", d->section, d->key);

            at += len > 0 ? (size_t)len : 0;
        }
    }
    return n;
}

int
par_reload_check(const struct par_set *ps, const struct par_set *ps_new, char *err,
    size_t err_bytes)
{
    struct par *both = malloc(sizeof(*both));
    size_t i;
    int rc, n;

    if (both == NULL)
        return -ENOMEM;
    *both = ps->par;
    for (i = 0; i < par_n_defs; i++)
        if (par_defs[i].reload)
            memcpy((char *)both + par_defs[i].offset,
                (const char *)&ps_new->par + par_defs[i].offset,
                par_field_bytes(&par_defs[i]));
    n = snprintf(err, err_bytes, "beside what needs a restart: ");
    if (n < 0 || (size_t)n >= err_bytes)
        n = 0;
    rc = par_check_values(both, err + n, err_bytes - (size_t)n);
    free(both);
    return rc;
}

size_t
par_count(void)
{
    return par_n_defs;
}

void
par_row(size_t i, struct par_row *ret)
{
    static const char *const types[] = { "integer", "real", "boolean", "choice",
        "string" };
    const struct par_def *d = &par_defs[i];

    memset(ret, 0, sizeof(*ret));
    ret->section = d->section;
    ret->key = d->key;
    ret->aliases = d->aliases;
    ret->unit = d->unit;
    ret->help = d->help;
    ret->type = types[d->type];
    ret->choices = d->choices;
    ret->def = d->type != PAR_T_BOOL ? d->def : d->def[0] == '1' ? "yes" : "no";
    ret->reload = d->reload;
    if (d->type == PAR_T_INT) {
        snprintf(ret->min, sizeof(ret->min), "%lld", (long long)d->lo);
        snprintf(ret->max, sizeof(ret->max), "%lld", (long long)d->hi);
    } else if (d->type == PAR_T_DBL) {
        snprintf(ret->min, sizeof(ret->min), "%g", d->dlo);
        snprintf(ret->max, sizeof(ret->max), "%g", d->dhi);
    }
}

/* The shortest text that reads back as v. */
static void
format_dbl(double v, char *ret, size_t ret_bytes)
{
    int digits;

    for (digits = 6; digits <= 17; digits++) {
        snprintf(ret, ret_bytes, "%.*g", digits, v);
        if (strtod(ret, NULL) == v)
            return;
    }
}

void
par_value(const struct par_set *ps, size_t i, char *ret, size_t ret_bytes,
    enum par_origin *ret_from)
{
    const struct par_def *d = &par_defs[i];
    const char *field = (const char *)&ps->par + d->offset;

    if (d->type == PAR_T_INT)
        snprintf(ret, ret_bytes, "%lld",
            (long long)*(const int64_t *)(const void *)field);
    else if (d->type == PAR_T_BOOL)
        snprintf(ret, ret_bytes, "%s", *(const int64_t *)(const void *)field ? "yes"
            : "no");
    else if (d->type == PAR_T_DBL)
        format_dbl(*(const double *)(const void *)field, ret, ret_bytes);
    else
        snprintf(ret, ret_bytes, "%s", field);
    *ret_from = (enum par_origin)ps->from[i];
}
