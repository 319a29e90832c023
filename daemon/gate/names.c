/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/names.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES_PASSWD "/etc/passwd"
#define NAMES_SEP    ", "

static void
names_add(struct names *n, uid_t uid, const char *name)
{
    struct names_row *r = &n->rows[n->n_rows];

    if (n->n_rows == NAMES_MAX || name[0] == '\0' || strlen(name) >= NAMES_BYTES)
        return;
    for (uint32_t i = 0; i < n->n_rows; i++) {
        if (n->rows[i].uid == uid)
            return;
    }
    r->uid = uid;
    (void)snprintf(r->name, sizeof(r->name), "%s", name);
    n->n_rows++;
}

/* Looks up a uid or a name. Returns 0, or -ENOENT: no such user. */
static int
names_look_up(struct names *n, const char *word, uid_t *ret_uid)
{
    const struct passwd *pw;
    unsigned long v;
    char *end;

    errno = 0;
    v = strtoul(word, &end, 10);
    if (*end == '\0') {
        if (errno != 0 || v >= (uid_t)-1)
            return -ENOENT;
        pw = getpwuid((uid_t)v);
        *ret_uid = (uid_t)v;
    } else {
        pw = getpwnam(word);
        if (pw == NULL)
            return -ENOENT;
        *ret_uid = pw->pw_uid;
    }
    if (pw != NULL)
        names_add(n, pw->pw_uid, pw->pw_name);
    return 0;
}

/* Adds every item of a list, without its weight if it has one. trusted: also to
 * n->trusted. */
static void
names_add_list(struct names *n, const char *list, int trusted)
{
    for (list += strspn(list, NAMES_SEP); *list != '\0'; list += strspn(list, NAMES_SEP)) {
        size_t len = strcspn(list, NAMES_SEP);
        char word[128], *colon;
        uid_t uid;

        (void)snprintf(word, sizeof(word), "%.*s", (int)len, list);
        colon = trusted ? NULL : strrchr(word, ':');
        if (colon != NULL)
            *colon = '\0';
        if (len < sizeof(word) && names_look_up(n, word, &uid) == 0 && trusted &&
            n->n_trusted < NAMES_TRUSTED_MAX)
            n->trusted[n->n_trusted++] = uid;
        list += len;
    }
}

static void
names_add_members(struct names *n, const char *group)
{
    const struct group *gr = group[0] != '\0' ? getgrnam(group) : NULL;

    for (char **m = gr != NULL ? gr->gr_mem : NULL;
         m != NULL && *m != NULL && n->n_rows < NAMES_MAX; m++) {
        const struct passwd *pw = getpwnam(*m);

        if (pw != NULL)
            names_add(n, pw->pw_uid, pw->pw_name);
    }
}

static void
names_add_file(struct names *n)
{
    FILE *f = fopen(NAMES_PASSWD, "re");
    const struct passwd *pw;

    while (f != NULL && n->n_rows < NAMES_MAX && (pw = fgetpwent(f)) != NULL)
        names_add(n, pw->pw_uid, pw->pw_name);
    if (f != NULL)
        (void)fclose(f);
}

static int
names_order(const void *a, const void *b)
{
    const uid_t *x = a, *y = b; /* a row begins with its uid */

    return (*x > *y) - (*x < *y);
}

void
names_load(struct names *n, const struct names_lists *lists)
{
    const struct passwd *pw = getpwuid(geteuid());

    n->n_rows = n->n_trusted = 0;
    if (pw != NULL)
        names_add(n, pw->pw_uid, pw->pw_name);
    names_add(n, 0, "root");
    names_add_list(n, lists->trusted != NULL ? lists->trusted : "", 1);
    names_add_list(n, lists->weights != NULL ? lists->weights : "", 0);
    names_add_members(n, lists->admin_group != NULL ? lists->admin_group : "");
    names_add_members(n, lists->group != NULL ? lists->group : "");
    names_add_file(n);
    qsort(n->rows, n->n_rows, sizeof(n->rows[0]), names_order);
    qsort(n->trusted, n->n_trusted, sizeof(n->trusted[0]), names_order);
}

void
names_of(const struct names *n, uid_t uid, char *ret, size_t ret_bytes)
{
    const struct names_row *r =
        bsearch(&uid, n->rows, n->n_rows, sizeof(n->rows[0]), names_order);

    if (r != NULL)
        (void)snprintf(ret, ret_bytes, "%s", r->name);
    else
        (void)snprintf(ret, ret_bytes, "%u", (unsigned)uid);
}

void
names_ask(uid_t uid, char *ret, size_t ret_bytes)
{
    const struct passwd *pw = getpwuid(uid);

    if (pw != NULL)
        (void)snprintf(ret, ret_bytes, "%s", pw->pw_name);
    else
        (void)snprintf(ret, ret_bytes, "%u", (unsigned)uid);
}

int
names_in_list(const struct names *n, uid_t uid)
{
    return bsearch(&uid, n->trusted, n->n_trusted, sizeof(n->trusted[0]), names_order) !=
        NULL;
}
