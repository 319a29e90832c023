/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Choosing the daemon for a request. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "http/gateway.h"

/* Write the names of all models, for an error. */
static void
list_names(struct model *const *m, size_t n, char *ret, size_t ret_bytes)
{
    size_t at = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < n && at < ret_bytes; i++)
        at += (size_t)snprintf(ret + at, ret_bytes - at, "%s%s", i > 0 ? ", " : "",
            m[i]->name[0] != '\0' ? m[i]->name : m[i]->label);
}

static int
unknown(const struct model *m, struct problem *bad)
{
    int rc = m->label[0] != '\0'
        ? prb_set(bad, 503, "model_loading", "the model %s is not ready", m->label)
        : prb_set(bad, 503, "model_loading", "fdd has not reported its model yet");

    bad->retry_ms = 1000;
    return rc;
}

struct model *
gw_model(struct model *const *m, size_t n_model, const char *name, size_t n,
    struct problem *bad)
{
    struct model *found = NULL;
    char all[400];

    list_names(m, n_model, all, sizeof(all));
    if (name == NULL && n_model != 1) {
        (void)prb_field(bad, "model", "model is missing; there are %s", all);
        return NULL;
    }
    for (size_t i = 0; i < n_model && found == NULL; i++)
        if (name == NULL || model_has_name(m[i], name, n) ||
            (n_model == 1 && m[i]->info.vocab == 0))
            found = m[i];
    if (found == NULL) {
        (void)prb_set(bad, 404, "model_not_found",
            "there is no model \"%.*s\"; there %s %s", n < 200 ? (int)n : 200, name,
            n_model == 1 ? "is" : "are", all);
        (void)snprintf(bad->param, sizeof(bad->param), "model");
        return NULL;
    }
    if (found->info.vocab == 0) {
        (void)unknown(found, bad);
        return NULL;
    }
    return found;
}

size_t
gw_models(const struct gw *g, struct model *ret[SRV_MAX])
{
    size_t n = 0;

    for (const struct link *l = g->links; l != NULL && n < SRV_MAX; l = l->next)
        if (!l->is_leaving)
            ret[n++] = model_ref(l->served);
    return n;
}

struct link *
gw_first(const struct gw *g)
{
    struct link *l = g->links;

    while (l != NULL && l->is_leaving)
        l = l->next;
    return l;
}

struct link *
gw_link_of(const struct gw *g, const struct model *m)
{
    for (struct link *l = g->links; l != NULL; l = l->next)
        if (!l->is_leaving && strcmp(l->conf.label, m->label) == 0)
            return l;
    return NULL;
}

struct link *
gw_link(const struct gw *g, const char *name, size_t n, struct problem *bad)
{
    struct model *models[SRV_MAX] = { NULL }, *m;
    size_t n_model = gw_models(g, models);
    struct link *l = NULL;

    m = gw_model(models, n_model, name, n, bad);
    if (m != NULL)
        l = gw_link_of(g, m);
    for (size_t i = 0; i < n_model; i++)
        model_unref(models[i]);
    return l;
}

int
gw_is_ready(const struct gw *g, const struct link *l, struct problem *bad)
{
    uint32_t flags = 0;
    int rc = 0;

    if (g->draining)
        rc = prb_set(bad, 503, "draining", "the gateway is shutting down");
    else if (l == NULL)
        rc = prb_set(bad, 503, "daemon_lost", "this model is served no more");
    else if (l->main == NULL || fdc_state(l->main, &flags) < 0)
        rc = prb_set(bad, 503, "daemon_lost", "there is no connection to fdd");
    else if ((flags & FDC_S_RECONNECTING) != 0)
        rc = prb_set(bad, 503, "daemon_lost", "the connection to fdd is being opened again");
    else if ((flags & FDC_S_DRAIN) != 0)
        rc = prb_set(bad, 503, "draining", "fdd takes no new requests");
    else if (l->model.vocab == 0 || (flags & FDC_S_DOWN) != 0)
        rc = prb_set(bad, 503, "model_loading", "the model is not ready");
    if (rc != 0)
        bad->retry_ms = 1000;
    return rc;
}
