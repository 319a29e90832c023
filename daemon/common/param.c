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

enum { RESTART = 0, RELOAD = PAR_F_RELOAD, LIST = PAR_F_LIST };

/* ---- the table ---------------------------------------------------------------- */

#define PAR_INT(s, k, a, u, lo, d, hi, f, h)
#define PAR_DBL(s, k, a, u, lo, d, hi, f, h)
#define PAR_BOOL(s, k, a, d, f, h)
#define PAR_C(name, word) word,
#define PAR_ENUM(s, k, a, c, d, f, h)                                       \
    const char *const par_##s##_##k##_words[] = { c NULL };                 \
    _Static_assert(sizeof(enum par_##s##_##k) == sizeof(uint32_t), "enum_field()");
#define PAR_STR(s, k, a, d, f, h)
#include "daemon/tbl/params.h"
#undef PAR_INT
#undef PAR_DBL
#undef PAR_BOOL
#undef PAR_C
#undef PAR_ENUM
#undef PAR_STR

const struct par_def par_defs[] = {
#define PAR_INT(s, k, a, u, lo_, d, hi_, f, h)                          \
    { .section = #s, .key = #k, .aliases = a, .unit = u, .help = h,     \
      .def = #d, .type = PAR_T_INT,                                     \
      .offset = offsetof(struct par, s##_##k), .lo = lo_, .hi = hi_, .flags = f },
#define PAR_DBL(s, k, a, u, lo_, d, hi_, f, h)                          \
    { .section = #s, .key = #k, .aliases = a, .unit = u, .help = h,     \
      .def = #d, .type = PAR_T_DBL,                                     \
      .offset = offsetof(struct par, s##_##k), .dlo = lo_, .dhi = hi_, .flags = f },
#define PAR_BOOL(s, k, a, d, f, h)                                      \
    { .section = #s, .key = #k, .aliases = a, .unit = "", .help = h,    \
      .def = #d, .type = PAR_T_BOOL,                                    \
      .offset = offsetof(struct par, s##_##k), .lo = 0, .hi = 1, .flags = f },
#define PAR_ENUM(s, k, a, c, d, f, h)                                   \
    { .section = #s, .key = #k, .aliases = a, .unit = "", .help = h,    \
      .words = par_##s##_##k##_words, .def = d, .type = PAR_T_ENUM,     \
      .offset = offsetof(struct par, s##_##k), .flags = f },
#define PAR_STR(s, k, a, d, f, h)                                       \
    { .section = #s, .key = #k, .aliases = a, .unit = "", .help = h,    \
      .def = d, .type = PAR_T_STR,                                      \
      .offset = offsetof(struct par, s##_##k), .flags = f },
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
    return d->type == PAR_T_STR ? PAR_STR_BYTES : d->type == PAR_T_ENUM ? sizeof(uint32_t)
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

static uint32_t *
enum_field(struct par *p, const struct par_def *d)
{
    return (uint32_t *)(void *)((char *)p + d->offset);
}

static char *
str_field(struct par *p, const struct par_def *d)
{
    return (char *)p + d->offset;
}

/* Text to the row's field; the field is changed only on success. */
static int
set_field(struct par_set *ps, const struct par_ref *ref, const char *name,
    const char *value, char *err, size_t err_bytes)
{
    const struct par_def *d = &par_defs[ref->idx];
    char text[PAR_STR_BYTES];
    uint32_t choice = 0;
    int64_t i = 0;
    double r = 0;
    int rc;

    switch (d->type) {
    case PAR_T_INT:
        rc = par_parse_int(d, name, value, ref->scale, &i, err, err_bytes);
        if (rc == 0)
            *int_field(&ps->par, d) = i;
        return rc;
    case PAR_T_BOOL:
        rc = par_parse_bool(name, value, &i, err, err_bytes);
        if (rc == 0)
            *int_field(&ps->par, d) = i;
        return rc;
    case PAR_T_DBL:
        rc = par_parse_dbl(d, name, value, &r, err, err_bytes);
        if (rc == 0)
            *dbl_field(&ps->par, d) = r;
        return rc;
    case PAR_T_ENUM:
        rc = par_parse_enum(d, name, value, &choice, err, err_bytes);
        if (rc == 0)
            *enum_field(&ps->par, d) = choice;
        return rc;
    default:
        rc = par_parse_str(name, value, text, err, err_bytes);
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
    snprintf(ps->where[ref->idx], PAR_WHERE_BYTES, "%s",
        from == PAR_FROM_FILE && ps->at != NULL ? ps->at : "");
    return 0;
}

int
par_set_ref(struct par_set *ps, const struct par_ref *ref, const char *name,
    const char *value, enum par_origin from, char *err, size_t err_bytes)
{
    return ref->note ? par_set_note(ps, ref->idx, name, value, from, err, err_bytes)
        : par_set_row(ps, ref, -1, name, value, from, err, err_bytes);
}

void
par_copy(struct par_set *dst, const struct par_set *src)
{
    dst->par = src->par;
    memcpy(dst->from, src->from, par_n_defs);
    memcpy(dst->via, src->via, par_n_defs);
    memcpy(dst->where, src->where, par_n_defs * PAR_WHERE_BYTES);
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
    ps->where = calloc(par_n_defs, PAR_WHERE_BYTES);
    if (ps->from == NULL || ps->via == NULL || ps->where == NULL)
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
        free(ps->where);
        for (size_t i = 0; i < ps->n_files; i++)
            free(ps->files[i]);
        free(ps->files);
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
par_diff(const struct par_set *ps, const struct par_set *ps_new,
    void (*each)(void *arg, size_t row), void *arg)
{
    size_t i;
    int n = 0;

    for (i = 0; i < par_n_defs; i++) {
        const struct par_def *d = &par_defs[i];

        if (memcmp((const char *)&ps->par + d->offset,
                (const char *)&ps_new->par + d->offset, par_field_bytes(d)) == 0)
            continue;
        each(arg, i);
        n++;
    }
    return n;
}

int
par_reload(struct par_set *ps, const struct par_set *ps_new)
{
    size_t i;
    int n = 0;

    for (i = 0; i < par_n_defs; i++) {
        const struct par_def *d = &par_defs[i];
        const char *src = (const char *)&ps_new->par + d->offset;
        char *dst = (char *)&ps->par + d->offset;
        int same = memcmp(src, dst, par_field_bytes(d)) == 0;

        if ((d->flags & PAR_F_RELOAD) == 0 && !same)
            continue;
        n += !same;
        memcpy(dst, src, par_field_bytes(d));
        ps->from[i] = ps_new->from[i];
        ps->via[i] = ps_new->via[i];
        memcpy(ps->where[i], ps_new->where[i], PAR_WHERE_BYTES);
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
        if (par_defs[i].flags & PAR_F_RELOAD)
            memcpy((char *)both + par_defs[i].offset,
                (const char *)&ps_new->par + par_defs[i].offset,
                par_field_bytes(&par_defs[i]));
    n = snprintf(err, err_bytes, "with the values that need a restart: ");
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
    ret->words = d->words;
    ret->def = d->type != PAR_T_BOOL ? d->def : d->def[0] == '1' ? "yes" : "no";
    ret->reload = (d->flags & PAR_F_RELOAD) != 0;
    ret->list = (d->flags & PAR_F_LIST) != 0;
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
    else if (d->type == PAR_T_ENUM)
        snprintf(ret, ret_bytes, "%s",
            d->words[*(const uint32_t *)(const void *)field]);
    else
        snprintf(ret, ret_bytes, "%s", field);
    *ret_from = (enum par_origin)ps->from[i];
}

const char *
par_where(const struct par_set *ps, size_t i)
{
    return ps->where[i];
}

size_t
par_n_files(const struct par_set *ps)
{
    return ps->n_files;
}

const char *
par_file(const struct par_set *ps, size_t i)
{
    return ps->files[i];
}
