/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct wts_tensor *)a)->name,
        ((const struct wts_tensor *)b)->name);
}

const struct wts_tensor *
wts_find(const struct wts_plan *wp, const char *name)
{
    struct wts_tensor key = { .name = (char *)(uintptr_t)name };

    return wp->n_tensor == 0
        ? NULL
        : bsearch(&key, wp->tensor, wp->n_tensor, sizeof(*wp->tensor), by_name);
}

int
wts_sort(struct wts_plan *wp, char *err, size_t err_bytes)
{
    char shown[96];

    if (wp->n_tensor > 0)
        qsort(wp->tensor, wp->n_tensor, sizeof(*wp->tensor), by_name);
    for (size_t i = 1; i < wp->n_tensor; i++) {
        const struct wts_tensor *a = &wp->tensor[i - 1], *b = &wp->tensor[i];

        if (strcmp(a->name, b->name) == 0)
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_MODEL: tensor %s is in both %s and %s",
                mdl_printable(shown, sizeof(shown), a->name, strlen(a->name)),
                wp->file[a->file].path, wp->file[b->file].path);
    }
    return 0;
}

/* Rename in place: no name becomes longer. */
static void
rename_one(char *name, const struct mdl_rename *r)
{
    for (; r->from != NULL; r++) {
        size_t from = strlen(r->from), to = strlen(r->to);

        if (strncmp(name, r->from, from) != 0)
            continue;
        memcpy(name, r->to, to);
        memmove(name + to, name + from, strlen(name + from) + 1);
        return;
    }
}

int
wts_rename(struct wts_plan *wp, const struct mdl_rename *r, char *err, size_t err_bytes)
{
    if (r == NULL)
        return 0;
    for (size_t i = 0; i < wp->n_tensor; i++)
        rename_one(wp->tensor[i].name, r);
    return wts_sort(wp, err, err_bytes);
}

void
wts_shape_text(char *s, size_t n, const int64_t *shape, int n_dim)
{
    size_t at = 0;

    snprintf(s, n, "()");
    for (int i = 0; i < n_dim && at < n; i++)
        at += (size_t)snprintf(s + at, n - at, "%s%lld%s", i == 0 ? "(" : ", ",
            (long long)shape[i], i == n_dim - 1 ? ")" : "");
}
