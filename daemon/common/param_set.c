/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Setting a row of the table from a text, and showing it as one. */
#include "config.h"

#include "daemon/common/param_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* Convert text and store it in the row's field, which changes only on success. */
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
        if (rc == 0 && par_names_row("graph.capture_sizes", d))
            rc = par_sizes(name, text, text, sizeof(text), err, err_bytes);
        if (rc == 0)
            memcpy(str_field(&ps->par, d), text, PAR_STR_BYTES);
        return rc;
    }
}

/* A row may be set by its own name and by a note in the same place. Does the new value
 * differ from the value that was set there the other way? */
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
    if (origin == from && from != PAR_FROM_DEFAULT && from != PAR_FROM_RUNTIME &&
        was != via && contradicts(ps, d, old, via >= 0 ? via : was)) {
        memcpy((char *)&ps->par + d->offset, old, par_field_bytes(d));
        snprintf(err, err_bytes,
            "%s = %s contradicts %s.%s = %s, set by %s; remove one "
            "of them",
            name, par_show(value, shown, sizeof(shown)), d->section, d->key,
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
        snprintf(ret, ret_bytes, "%lld", (long long)*(const int64_t *)(const void *)field);
    else if (d->type == PAR_T_BOOL)
        snprintf(ret, ret_bytes, "%s", *(const int64_t *)(const void *)field ? "yes" : "no");
    else if (d->type == PAR_T_DBL)
        format_dbl(*(const double *)(const void *)field, ret, ret_bytes);
    else if (d->type == PAR_T_ENUM)
        snprintf(ret, ret_bytes, "%s", d->words[*(const uint32_t *)(const void *)field]);
    else
        snprintf(ret, ret_bytes, "%s", field);
    *ret_from = (enum par_origin)ps->from[i];
}
