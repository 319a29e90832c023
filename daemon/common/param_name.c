/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/param_priv.h"
#include "daemon/common/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void
normalize(const char *name, char *ret, size_t ret_bytes)
{
    size_t i;

    for (i = 0; i + 1 < ret_bytes && name[i] != '\0'; i++)
        ret[i] = name[i] == '-' ? '_' : name[i];
    ret[i] = '\0';
}

/* Distance of a name from a row: the least of its full name, key and aliases. */
static unsigned
row_distance(const char *full, const char *key, const struct par_def *d)
{
    char text[128], *save = NULL, *w;
    unsigned best, n;

    snprintf(text, sizeof(text), "%s.%s", d->section, d->key);
    best = txt_distance(full, text);
    n = txt_distance(key, d->key);
    best = n < best ? n : best;
    snprintf(text, sizeof(text), "%s", d->aliases);
    for (w = strtok_r(text, ",", &save); w != NULL; w = strtok_r(NULL, ",", &save)) {
        w[strcspn(w, "*")] = '\0';
        n = txt_distance(key, w);
        best = n < best ? n : best;
    }
    return best;
}

int
par_is_section(const char *section)
{
    size_t i;

    for (i = 0; i < par_n_defs; i++)
        if (strcmp(par_defs[i].section, section) == 0)
            return 1;
    return 0;
}

static int
unknown_section(const char *section, char *err, size_t err_bytes)
{
    const char *nearest = NULL;
    char shown[64];
    unsigned n, best = ~0u, near;
    size_t i;

    for (i = 0; i < par_n_defs; i++) {
        n = txt_distance(section, par_defs[i].section);
        if (n < best) {
            best = n;
            nearest = par_defs[i].section;
        }
    }
    near = strlen(section) > 4 ? (unsigned)strlen(section) / 2 : 2;
    snprintf(err, err_bytes, "unknown section [%s]; %s%s%s",
        par_show(section, shown, sizeof(shown)),
        best <= near ? "nearest is [" : par_program,
        best <= near ? nearest : ".ini(5) lists them all", best <= near ? "]" : "");
    return -ENOENT;
}

static int
unknown_name(const char *section, const char *name, struct par_ref *ret, char *err,
    size_t err_bytes)
{
    const char *dot = strchr(name, '.');
    const char *key = section == NULL && dot != NULL ? dot + 1 : name;
    char full[256], shown[64];
    unsigned n, best = ~0u;
    size_t i, at = 0;

    if (section != NULL && !par_is_section(section))
        return unknown_section(section, err, err_bytes);
    snprintf(full, sizeof(full), "%s%s%s", section != NULL ? section : "",
        section != NULL ? "." : "", name);
    for (i = 0; i < par_n_defs; i++) {
        n = row_distance(full, key, &par_defs[i]);
        if (n < best) {
            best = n;
            at = i;
        }
    }
    if (best <= 2 || best <= strlen(key) / 3)
        ret->idx = at;
    if (ret->idx == at)
        snprintf(err, err_bytes, "unknown parameter '%s'; nearest is %s.%s",
            par_show(full, shown, sizeof(shown)), par_defs[at].section, par_defs[at].key);
    else
        snprintf(err, err_bytes, "unknown parameter '%s'; %s.ini(5) lists them all",
            par_show(full, shown, sizeof(shown)), par_program);
    return -ENOENT;
}

void
par_mark_like(const char *line, unsigned char *mark)
{
    char buf[128], *key;

    normalize(line + strspn(line, " \t"), buf, sizeof(buf));
    buf[strspn(buf, "abcdefghijklmnopqrstuvwxyz0123456789_.")] = '\0';
    key = strrchr(buf, '.') != NULL ? strrchr(buf, '.') + 1 : buf;
    for (size_t i = 0; *key != '\0' && i < par_n_defs; i++)
        if (strcmp(par_defs[i].key, key) == 0 || par_word_in(key, par_defs[i].aliases))
            mark[i] = 1;
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
            : par_word_in(full, d->aliases)
            ? full
            : NULL;

        if (by_key || as != NULL) {
            *ret = (struct par_ref){ .note = 0,
                .idx = i,
                .scale = by_key ? 1 : alias_scale(d->aliases, as) };
            return 0;
        }
    }
    for (i = 0; i < par_n_notes; i++) {
        const struct par_note *n = &par_notes[i];

        /* Notes are names of other servers: any section may have them. */
        if (strcmp(n->key, key) == 0 || par_word_in(full, n->aliases)) {
            *ret = (struct par_ref){ .note = 1, .idx = i, .scale = 1 };
            return 0;
        }
    }
    normalize(name, buf, sizeof(buf));
    *ret = (struct par_ref){ .idx = par_n_defs };
    return unknown_name(section, buf, ret, err, err_bytes);
}
