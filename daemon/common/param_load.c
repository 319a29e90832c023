/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which files are read, in which order. */
#include "config.h"

#include "daemon/common/param_priv.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- folders ------------------------------------------------------------------ */

void
par_src_init(struct par_src *src, const char *conf, const char *instance)
{
    const char *name = instance != NULL ? instance : "fdd";

    memset(src, 0, sizeof(*src));
    src->may_miss = conf == NULL;
    if (conf != NULL) {
        snprintf(src->file, sizeof(src->file), "%s", conf);
        snprintf(src->dir[1], sizeof(src->dir[1]), "%s.d", conf);
        return;
    }
    snprintf(src->file, sizeof(src->file), FDD_SYSCONFDIR "/fdd/%s.ini", name);
    snprintf(src->dir[0], sizeof(src->dir[0]), FDD_VENDORDIR "/fdd/%s.ini.d", name);
    snprintf(src->dir[1], sizeof(src->dir[1]), FDD_SYSCONFDIR "/fdd/%s.ini.d", name);
}

struct load {
    struct par_set *ps;
    struct par_say *say;
    unsigned char *bad; /* rows with a wrong value, or one that could not be read */
    int rc;             /* error of the first file that could not be opened */
};

/* A file in one of the folders. */
struct piece {
    char name[256];
    const char *dir;
};
struct pieces {
    struct piece *p;
    size_t n;
};

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct piece *)a)->name, ((const struct piece *)b)->name);
}

static int
add_piece(struct pieces *ps, const char *dir, const char *name)
{
    struct piece *p;

    for (size_t i = 0; i < ps->n; i++)
        if (strcmp(ps->p[i].name, name) == 0) {
            ps->p[i].dir = dir;
            return 0;
        }
    p = realloc(ps->p, (ps->n + 1) * sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    ps->p = p;
    snprintf(p[ps->n].name, sizeof(p[ps->n].name), "%s", name);
    p[ps->n++].dir = dir;
    return 0;
}

/* Add *.ini of dir, which replace files of the same name. The folder need not exist. */
static int
list_dir(const char *dir, struct pieces *ps)
{
    DIR *d = dir[0] != '\0' ? opendir(dir) : NULL;
    struct dirent *e;
    int rc = 0;

    if (d == NULL)
        return dir[0] == '\0' || errno == ENOENT ? 0 : -errno;
    while (rc == 0 && (e = readdir(d)) != NULL) {
        size_t n = strlen(e->d_name);

        if (e->d_name[0] != '.' && n > 4 && strcmp(e->d_name + n - 4, ".ini") == 0)
            rc = add_piece(ps, dir, e->d_name);
    }
    closedir(d);
    return rc;
}

static void
load_error(struct load *ld, int rc)
{
    if (ld->rc == 0)
        ld->rc = rc;
}

static void
load_piece(struct load *ld, const struct piece *p)
{
    char path[PAR_STR_BYTES + 300];
    int rc;

    snprintf(path, sizeof(path), "%s/%s", p->dir, p->name);
    rc = par_read_into(ld->ps, path, ld->say, ld->bad);
    if (rc != 0)
        load_error(ld, rc);
}

static void
load_dirs(struct load *ld, const struct par_src *src)
{
    struct pieces ps = { NULL, 0 };

    for (int i = 0; i < 2; i++) {
        int rc = list_dir(src->dir[i], &ps);

        if (rc != 0) {
            memset(ld->bad, 1, par_n_defs);
            par_say_error(ld->say, "%s: %s", src->dir[i], strerror(-rc));
            load_error(ld, rc);
        }
    }
    if (ps.n > 0)
        qsort(ps.p, ps.n, sizeof(*ps.p), by_name);
    for (size_t i = 0; i < ps.n; i++)
        load_piece(ld, &ps.p[i]);
    free(ps.p);
}

/* ---- all sources ------------------------------------------------------------------ */

static void
load_sets(struct load *ld, const struct par_src *src)
{
    char name[128], err[768];
    struct par_ref ref;

    for (int i = 0; i < src->n_sets; i++) {
        const char *eq = strchr(src->sets[i], '=');
        int rc;

        if (eq == NULL) {
            par_say_error(ld->say, "--set %s: no \"=\"; write --set section.key=value",
                src->sets[i]);
            par_mark_like(src->sets[i], ld->bad);
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(eq - src->sets[i]), src->sets[i]);
        rc = par_set_text(ld->ps, name, eq + 1, PAR_FROM_SET, err, sizeof(err));
        if (rc > 0)
            par_say_warning(ld->say, "%s", err);
        if (rc >= 0)
            continue;
        par_say_error(ld->say, "%s", err);
        (void)par_find(NULL, name, &ref, err, sizeof(err));
        if (!ref.note && ref.idx < par_n_defs)
            ld->bad[ref.idx] = 1;
    }
}

/* Does a message name a parameter whose own value is wrong or unknown? Then it adds
 * nothing new. */
static int
is_known(const struct load *ld, const char *text)
{
    for (size_t i = 0; i < par_n_defs; i++)
        if (ld->bad[i] && par_names_row(text, &par_defs[i]))
            return 1;
    return 0;
}

static void
load_check(struct load *ld)
{
    struct par_say found = { .text = NULL };
    const char *text = NULL;
    int is_error;

    par_check_each(&ld->ps->par, &found);
    while ((text = par_say_next(&found, text, &is_error)) != NULL)
        if (!is_known(ld, text))
            par_say_about(ld->say, ld->ps, 1, text);
    par_say_clear(&found);
    par_check_named(ld->ps, ld->say);
}

int
par_load(struct par_set *ps, const struct par_src *src, struct par_say *say)
{
    struct load ld = { ps, say, calloc(par_n_defs, 1), 0 };
    unsigned before = say->n_errors;

    if (ld.bad == NULL) {
        par_say_error(say, "out of memory");
        return -ENOMEM;
    }
    if (src->file[0] != '\0' && (!src->may_miss || access(src->file, F_OK) == 0))
        load_error(&ld, par_read_into(ps, src->file, say, ld.bad));
    load_dirs(&ld, src);
    load_sets(&ld, src);
    load_check(&ld);
    free(ld.bad);
    return ld.rc != 0 ? ld.rc : say->n_errors != before ? -EINVAL : 0;
}
