/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Paths that need no work of the model: models, health, version, metrics. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/version.h"
#include "http/conn.h"
#include "http/route.h"

#define INFO_STATS_MS 1000 /* longest wait for fdd's counters */

static void
reply_json(struct conn *c, struct buf *b)
{
    conn_reply(c, 200, "application/json", NULL, b->p, b->n);
    buf_fini(b);
}

/* Returns 0 if the daemon's uptime and steps advance, else -1 and why in *bad. A daemon
 * whose statistics are not available is assumed to be well. */
static int
check_moves(const struct gw *g, struct link *l, struct problem *bad)
{
    uint64_t age, most = (uint64_t)g->par->http_max_step_age_ms;

    (void)link_stats(l);
    age = sta_step_age_ms(&l->stats, g->now_ms);
    if (l->stats.is_still)
        (void)prb_set(bad, 503, "daemon_still", "fdd does not move");
    else if (most != 0 && age > most)
        (void)prb_set(bad, 503, "worker_still",
            "the worker of fdd has requests and has made no step for %llu ms",
            (unsigned long long)age);
    else
        return 0;
    bad->retry_ms = 1000;
    return -1;
}

void
rt_health(struct conn *c)
{
    struct problem bad, first = { .status = 0 };
    int is_ok = 0;

    /* A request to a missing daemon gets a 503 of its own, so one that answers is enough.
     * All are checked nevertheless, so that the age of their steps is known. */
    for (struct link *l = c->g->links; l != NULL; l = l->next) {
        if (gw_is_ready(c->g, l, &bad) == 0 && check_moves(c->g, l, &bad) == 0)
            is_ok = 1;
        else if (first.status == 0)
            first = bad;
    }
    if (is_ok) {
        conn_reply(c, 200, "application/json", NULL, "{\"status\":\"ok\"}\n", 16);
        return;
    }
    if (first.status == 0)
        (void)prb_set(&first, 503, "daemon_lost", "no model is served");
    conn_problem(c, &first);
}

void
rt_version(struct conn *c)
{
    struct buf b = { NULL };

    buf_str(&b, "{\"version\":");
    buf_json(&b, ver_text(), strlen(ver_text()));
    buf_str(&b, ",\"server\":\"fdd-http\"}\n");
    reply_json(c, &b);
}

void
rt_load(struct conn *c)
{
    struct buf b = { NULL };

    buf_fmt(&b, "{\"server_load\":%u}\n", c->g->met.streams);
    reply_json(c, &b);
}

static void
reply_metrics(struct conn *c)
{
    struct buf b = { NULL };

    c->work = NULL;
    c->drop = c->tick = NULL;
    met_print(c->g, &b);
    met_print_daemons(c->g, &b);
    conn_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, b.p, b.n);
    buf_fini(&b);
}

/* The client has disconnected. */
static void
drop_metrics(struct conn *c)
{
    c->work = NULL;
}

/* Wait a moment for the daemons that were asked for their statistics. */
static void
tick_metrics(struct conn *c)
{
    const struct gw *g = c->g;
    int waits = 0;

    for (struct link *l = g->links; l != NULL; l = l->next)
        waits |= link_stats(l) == NULL && l->stats.is_asked;
    if (!waits || g->now_ms - c->began_ms > INFO_STATS_MS)
        reply_metrics(c);
}

void
rt_metrics(struct conn *c)
{
    c->work = c;
    c->drop = drop_metrics;
    c->tick = tick_metrics;
    tick_metrics(c);
}

static void
put_model(const struct model *m, const char *name, size_t n, struct buf *b)
{
    buf_str(b, "{\"id\":");
    buf_json(b, name, n);
    buf_fmt(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"fdd\",\"root\":",
        (long long)m->created_s);
    buf_json(b, m->info.name, strlen(m->info.name));
    buf_str(b, ",\"parent\":null,\"max_model_len\":");
    if (m->info.vocab != 0)
        buf_fmt(b, "%u,\"permission\":[]}", m->info.max_model_len);
    else
        buf_str(b, "null,\"permission\":[]}");
}

/* Write all names of a model; if its daemon has not reported one yet, those from the
 * configuration. */
static void
put_names(const struct model *m, struct buf *b)
{
    const char *list = m->names;

    if (list[0] == '\0' && m->info.vocab != 0) {
        buf_str(b, b->p[b->n - 1] == '[' ? "" : ",");
        put_model(m, m->name, strlen(m->name), b);
    }
    while (*list != '\0') {
        size_t n;

        list += strspn(list, ", ");
        n = strcspn(list, ", ");
        if (n > 0) {
            buf_str(b, b->p[b->n - 1] == '[' ? "" : ",");
            put_model(m, list, n, b);
        }
        list += n;
    }
}

void
rt_models(struct conn *c)
{
    const struct link *l = c->g->links;
    struct problem bad;
    struct buf b = { NULL };

    if (l == NULL || (l->next == NULL && l->served->info.vocab == 0)) {
        (void)prb_set(&bad, 503, "model_loading", "fdd has not reported its model yet");
        bad.retry_ms = 1000;
        conn_problem(c, &bad);
        return;
    }
    buf_str(&b, "{\"object\":\"list\",\"data\":[");
    for (; l != NULL && !b.failed; l = l->next)
        if (!l->is_leaving)
            put_names(l->served, &b);
    buf_str(&b, "]}\n");
    reply_json(c, &b);
}

void
rt_model(struct conn *c)
{
    struct problem bad;
    struct buf b = { NULL };
    char name[256];
    int n = rt_tail(c, name, sizeof(name));
    const struct link *l;

    if (n < 0)
        n = 0;
    l = gw_link(c->g, name, (size_t)n, &bad);
    if (l == NULL) {
        bad.param[0] = '\0'; /* the name is in the path, not in a field */
        conn_problem(c, &bad);
        return;
    }
    put_model(l->served, name, (size_t)n, &b);
    reply_json(c, &b);
}
