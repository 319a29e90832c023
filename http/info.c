/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Paths that ask nothing of the model: models, health, version, metrics. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/version.h"
#include "http/conn.h"
#include "http/route.h"

#define INFO_STATS_MS 1000 /* for fdd's counters */

static void
reply_json(struct conn *c, struct buf *b)
{
    conn_reply(c, 200, "application/json", NULL, b->p, b->n);
    buf_fini(b);
}

/* Can a request be answered now? */
static int
is_ready(const struct gw *g, struct problem *bad)
{
    uint32_t flags = 0;

    if (g->draining)
        return prb_set(bad, 503, "draining", "the gateway is ending");
    if (g->link.main == NULL || fdc_state(g->link.main, &flags) < 0)
        return prb_set(bad, 503, "daemon_lost", "there is no connection to fdd");
    if ((flags & FDC_S_RECONNECTING) != 0)
        return prb_set(bad, 503, "daemon_lost",
            "the connection to fdd is being opened again");
    if ((flags & FDC_S_DRAIN) != 0)
        return prb_set(bad, 503, "draining", "fdd takes no new requests");
    if (g->link.model.vocab == 0 || (flags & FDC_S_DOWN) != 0)
        return prb_set(bad, 503, "model_loading", "the model is not ready");
    return 0;
}

void
rt_health(struct conn *c)
{
    struct problem bad;

    if (is_ready(c->g, &bad) == 0) {
        conn_reply(c, 200, "application/json", NULL, "{\"status\":\"ok\"}\n", 16);
        return;
    }
    bad.retry_ms = 1000;
    conn_problem(c, &bad);
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
reply_metrics(struct conn *c, const struct cnt_seg *seg)
{
    struct buf b = { NULL };

    c->work = NULL;
    c->drop = c->tick = NULL;
    met_print(c->g, &b);
    met_print_daemon(seg, &b);
    conn_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, b.p, b.n);
    buf_fini(&b);
}

/* The client has left. */
static void
drop_metrics(struct conn *c)
{
    c->work = NULL;
}

/* fdd is asked for its counters once; its answer takes a moment. */
static void
tick_metrics(struct conn *c)
{
    struct gw *g = c->g;
    const struct cnt_seg *seg = sta_get(&g->stats, g->par->daemon_socket, g->now_ms);

    if (seg != NULL || !g->stats.is_asked || g->now_ms - c->began_ms > INFO_STATS_MS)
        reply_metrics(c, seg);
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
put_model(const struct gw *g, const char *name, size_t n, struct buf *b)
{
    buf_str(b, "{\"id\":");
    buf_json(b, name, n);
    buf_fmt(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"fdd\",\"root\":",
        (long long)g->model.created_s);
    buf_json(b, g->link.model.name, strlen(g->link.model.name));
    buf_fmt(b, ",\"parent\":null,\"max_model_len\":%u,\"permission\":[]}",
        g->link.model.max_model_len);
}

static int
has_model(struct conn *c)
{
    struct problem bad;

    if (c->g->model.name[0] != '\0')
        return 1;
    (void)prb_set(&bad, 503, "model_loading", "fdd has not said yet which model it has");
    bad.retry_ms = 1000;
    conn_problem(c, &bad);
    return 0;
}

void
rt_models(struct conn *c)
{
    const char *list = c->g->par->model_name, *sep = "";
    struct buf b = { NULL };

    if (!has_model(c))
        return;
    buf_str(&b, "{\"object\":\"list\",\"data\":[");
    if (list[0] == '\0')
        put_model(c->g, c->g->model.name, strlen(c->g->model.name), &b);
    while (*list != '\0') {
        size_t n;

        list += strspn(list, ", ");
        n = strcspn(list, ", ");
        if (n > 0) {
            buf_str(&b, sep);
            sep = ",";
            put_model(c->g, list, n, &b);
        }
        list += n;
    }
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

    if (!has_model(c))
        return;
    if (n > 0 && model_has_name(&c->g->model, c->g->par, name, (size_t)n)) {
        put_model(c->g, name, (size_t)n, &b);
        reply_json(c, &b);
        return;
    }
    (void)prb_set(&bad, 404, "model_not_found",
        "there is no model of that name; there is %s", c->g->model.name);
    conn_problem(c, &bad);
}
