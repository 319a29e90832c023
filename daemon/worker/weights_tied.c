/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads that config.json ties to the embedding but that are in the files, with the
 * embedding or instead of it.
 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

#define TIED_CHUNK ((size_t)1 << 20)

/* Do two tensors hold the same bytes? 1: yes, 0: no, -EIO, -EINVAL, -ENOMEM. */
static int
tied_same(const struct wts_plan *wp, const struct wts_tensor *a,
    const struct wts_tensor *b, char *err, size_t err_bytes)
{
    char *buf = NULL;
    int rc = 1;

    if (a->dtype != b->dtype || a->n_dim != b->n_dim || a->bytes != b->bytes ||
        memcmp(a->shape, b->shape, (size_t)a->n_dim * sizeof(a->shape[0])) != 0)
        return 0;
    buf = malloc(2 * TIED_CHUNK);
    if (buf == NULL)
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    for (uint64_t at = 0; at < a->bytes && rc == 1; at += TIED_CHUNK) {
        uint64_t left = a->bytes - at;
        size_t n = left < TIED_CHUNK ? (size_t)left : TIED_CHUNK;

        rc = wts_read_exact(&wp->file[a->file], buf, n, a->off + at, err, err_bytes);
        if (rc == 0)
            rc = wts_read_exact(&wp->file[b->file], buf + TIED_CHUNK, n, b->off + at, err,
                err_bytes);
        if (rc == 0)
            rc = memcmp(buf, buf + TIED_CHUNK, n) == 0;
    }
    free(buf);
    return rc;
}

int
wts_head_alone(struct wts_plan *wp, const struct mdl_program *p, char *err, size_t err_bytes)
{
    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];
        const char *embed = w->alias < 0 ? NULL : p->w[w->alias].name[0];
        const struct wts_tensor *head = wts_find(wp, w->name[0]);
        char *name;

        if (embed == NULL || head == NULL || wts_find(wp, embed) != NULL)
            continue;
        name = strdup(embed);
        if (name == NULL)
            return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
        free(wp->tensor[head - wp->tensor].name);
        wp->tensor[head - wp->tensor].name = name;
        return wts_sort(wp, err, err_bytes);
    }
    return 0;
}

int
wts_untie(const struct wts_plan *wp, struct mdl_program *p, char *err, size_t err_bytes)
{
    for (int32_t i = 0; i < p->n_w; i++) {
        struct wts_ref *w = &p->w[i];
        const struct wts_tensor *own = wts_find(wp, w->name[0]), *of;
        int rc;

        if (w->alias < 0 || own == NULL)
            continue;
        of = wts_find(wp, p->w[w->alias].name[0]);
        rc = of != NULL ? tied_same(wp, own, of, err, err_bytes) : 1;
        if (rc < 0)
            return rc;
        if (rc == 1)
            continue;
        w->alias = -1;
        p->cfg.tied = 0;
    }
    return 0;
}
