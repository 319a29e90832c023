/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Named sections: [model small]. */
#include "config.h"

#include "daemon/common/param_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t
par_n_named(const struct par_set *ps)
{
    return ps->n_named;
}

const struct par_named *
par_named(const struct par_set *ps, size_t i)
{
    return i < ps->n_named ? &ps->named[i] : NULL;
}

const char *
par_section_name(const char *section)
{
    size_t n = strlen(par_named_kind);

    if (n == 0 || strncmp(section, par_named_kind, n) != 0 || section[n] != ' ')
        return NULL;
    section += n;
    return section + strspn(section, " ");
}

static struct par_named *
find(const struct par_set *ps, const char *name, const char *key)
{
    for (size_t i = 0; i < ps->n_named; i++)
        if (strcmp(ps->named[i].name, name) == 0 && strcmp(ps->named[i].key, key) == 0)
            return &ps->named[i];
    return NULL;
}

static int
add(struct par_set *ps, const struct par_named *row)
{
    struct par_named *p = find(ps, row->name, row->key);

    if (p == NULL) {
        p = realloc(ps->named, (ps->n_named + 1) * sizeof(*p));
        if (p == NULL)
            return -ENOMEM;
        ps->named = p;
        p += ps->n_named++;
    }
    *p = *row;
    return 0;
}

int
par_set_named(struct par_set *ps, const char *name, const char *key, const char *value,
    char *err, size_t err_bytes)
{
    struct par_named row;
    const struct par_named *was;
    char full[160];
    int rc;

    (void)snprintf(full, sizeof(full), "[%s %.60s] %.30s", par_named_kind, name, key);
    if (name[0] == '\0' || strlen(name) >= sizeof(row.name)) {
        (void)snprintf(err, err_bytes, "[%s %.60s]: a name has 1 to %zu bytes",
            par_named_kind, name, sizeof(row.name) - 1);
        return -EINVAL;
    }
    if (!par_word_in(key, par_named_keys)) {
        (void)snprintf(err, err_bytes, "unknown parameter %s; such a section takes %s",
            full, par_named_keys);
        return -ENOENT;
    }
    was = find(ps, name, key);
    if (was != NULL) {
        (void)snprintf(err, err_bytes, "%s is set twice, first in %s", full, was->where);
        return -EINVAL;
    }
    memset(&row, 0, sizeof(row));
    (void)snprintf(row.name, sizeof(row.name), "%s", name);
    (void)snprintf(row.key, sizeof(row.key), "%s", key);
    (void)snprintf(row.where, sizeof(row.where), "%s", ps->at != NULL ? ps->at : "");
    rc = par_parse_str(full, value, row.value, err, err_bytes);
    if (rc == 0 && add(ps, &row) != 0) {
        (void)snprintf(err, err_bytes, "out of memory");
        rc = -ENOMEM;
    }
    return rc;
}

int
par_add_named(struct par_set *ps, const struct par_set *more)
{
    int rc = 0;

    for (size_t i = 0; i < more->n_named && rc == 0; i++)
        rc = add(ps, &more->named[i]);
    return rc;
}

int
par_copy_named(struct par_set *dst, const struct par_set *src)
{
    size_t n = src->n_named;
    struct par_named *p = n > 0 ? malloc(n * sizeof(*p)) : NULL;

    if (n > 0 && p == NULL)
        return -ENOMEM;
    if (n > 0)
        memcpy(p, src->named, n * sizeof(*p));
    free(dst->named);
    dst->named = p;
    dst->n_named = n;
    return 0;
}

int
par_named_differ(const struct par_set *a, const struct par_set *b)
{
    int n = a->n_named != b->n_named;

    for (size_t i = 0; i < a->n_named; i++) {
        const struct par_named *k = &a->named[i], *o = find(b, k->name, k->key);

        n += o == NULL || strcmp(k->value, o->value) != 0;
    }
    return n;
}
