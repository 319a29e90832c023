/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/param_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int
par_set_ref(struct par_set *ps, const struct par_ref *ref, const char *name,
    const char *value, enum par_origin from, char *err, size_t err_bytes)
{
    return ref->note ? par_set_note(ps, ref->idx, name, value, from, err, err_bytes)
                     : par_set_row(ps, ref, -1, name, value, from, err, err_bytes);
}

int
par_copy(struct par_set *dst, const struct par_set *src)
{
    if (par_copy_named(dst, src) != 0)
        return -ENOMEM;
    dst->par = src->par;
    memcpy(dst->from, src->from, par_n_defs);
    memcpy(dst->via, src->via, par_n_defs);
    memcpy(dst->where, src->where, par_n_defs * PAR_WHERE_BYTES);
    return 0;
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
    if (par_copy(was, ps) != 0) {
        par_free(was);
        snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    done = par_set_text(ps, name, value, from, err, err_bytes);
    if (done >= 0) {
        char why[512];

        rc = par_check(ps, why, sizeof(why));
        if (rc != 0) {
            (void)par_copy(ps, was);
            snprintf(err, err_bytes, "%s", why);
            done = rc;
        }
    }
    par_free(was);
    return done;
}

int
par_check_values(const struct par *p, char *err, size_t err_bytes)
{
    struct par_say say = { .text = NULL };
    const char *first;
    int is_error;

    par_check_each(p, &say);
    first = par_say_next(&say, NULL, &is_error);
    if (first != NULL)
        snprintf(err, err_bytes, "%s", first);
    par_say_clear(&say);
    return say.n_errors == 0 ? 0 : -EINVAL;
}

int
par_check(const struct par_set *ps, char *err, size_t err_bytes)
{
    return par_check_values(&ps->par, err, err_bytes);
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
        free(ps->named);
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
par_differs(const struct par_set *ps, const struct par_set *ps_new, size_t row)
{
    const struct par_def *d = &par_defs[row];

    return memcmp((const char *)&ps->par + d->offset,
               (const char *)&ps_new->par + d->offset, par_field_bytes(d)) != 0;
}

int
par_reload(struct par_set *ps, const struct par_set *ps_new)
{
    size_t i;
    int n = par_named_differ(ps, ps_new);

    if (par_copy_named(ps, ps_new) != 0)
        n = 0; /* the sections stay unchanged */

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
    static const char *const types[] = { "integer", "real", "boolean", "choice", "string" };
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
