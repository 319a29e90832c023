/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/prom.h"
#include "http/conn.h"
#include "http/gateway.h"

static const double bounds[MET_BOUNDS] = { 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2.5, 5,
    10, 30, 120 };
static const char *const classes[MET__CLASSES] = { "2xx", "4xx", "429", "5xx" };
static const char *const paths[MET_PATHS] = {
#define ROUTE(method, path, fn, open) path,
#include "http/tbl/routes.h"
#undef ROUTE
    [MET_PATHS - 1] = "other",
};

void
met_request(struct metrics *m, unsigned path, int status, uint64_t ms)
{
    int c = status == 429 ? MET_429
        : status >= 500   ? MET_5XX
        : status >= 400   ? MET_4XX
                          : MET_2XX;
    double s = (double)ms / 1000;
    unsigned i = 0;

    m->requests[path < MET_PATHS ? path : MET_PATHS - 1][c]++;
    while (i < MET_BOUNDS && s > bounds[i])
        i++;
    m->seconds[i]++;
    m->seconds_sum += s;
}

static void
one(struct buf *b, const char *name, const char *kind, const char *help, uint64_t v)
{
    buf_fmt(b, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, kind, name,
        (unsigned long long)v);
}

static void
print_requests(const struct metrics *m, struct buf *b)
{
    uint64_t sum = 0;

    buf_str(b,
        "# HELP http_requests_total Requests answered, by path and class of status.\n"
        "# TYPE http_requests_total counter\n");
    for (int p = 0; p < MET_PATHS; p++)
        for (int c = 0; c < MET__CLASSES; c++)
            if (m->requests[p][c] > 0)
                buf_fmt(b, "http_requests_total{handler=\"%s\",status=\"%s\"} %llu\n",
                    paths[p], classes[c], (unsigned long long)m->requests[p][c]);
    buf_str(b,
        "# HELP http_request_duration_seconds From the first byte of a request to the "
        "last of its answer.\n"
        "# TYPE http_request_duration_seconds histogram\n");
    for (int i = 0; i < MET_BOUNDS; i++) {
        sum += m->seconds[i];
        buf_fmt(b, "http_request_duration_seconds_bucket{le=\"%g\"} %llu\n", bounds[i],
            (unsigned long long)sum);
    }
    sum += m->seconds[MET_BOUNDS];
    buf_fmt(b,
        "http_request_duration_seconds_bucket{le=\"+Inf\"} %llu\n"
        "http_request_duration_seconds_sum %.6f\n"
        "http_request_duration_seconds_count %llu\n",
        (unsigned long long)sum, m->seconds_sum, (unsigned long long)sum);
}

static uint32_t
sessions(const struct gw *g)
{
    uint32_t n = 0;

    for (const struct link *l = g->links; l != NULL; l = l->next)
        n += l->main != NULL;
    return n;
}

void
met_publish(struct gw *g)
{
    struct shared *sh = g->sh;

    (void)pthread_mutex_lock(&sh->lock);
    sh->met[g->index] = g->met;
    sh->connected[g->index] = sessions(g);
    (void)pthread_mutex_unlock(&sh->lock);
}

static void
add(struct metrics *sum, const struct metrics *m)
{
    for (int p = 0; p < MET_PATHS; p++)
        for (int c = 0; c < MET__CLASSES; c++)
            sum->requests[p][c] += m->requests[p][c];
    for (int i = 0; i <= MET_BOUNDS; i++)
        sum->seconds[i] += m->seconds[i];
    sum->seconds_sum += m->seconds_sum;
    sum->accepted += m->accepted;
    sum->refused += m->refused;
    sum->events += m->events;
    sum->sends += m->sends;
    sum->bytes += m->bytes;
    sum->left += m->left;
    sum->slow += m->slow;
    sum->paced += m->paced;
    sum->stream_errors += m->stream_errors;
    sum->prompt_tokens += m->prompt_tokens;
    sum->output_tokens += m->output_tokens;
    sum->streams += m->streams;
}

uint32_t
met_all(const struct gw *g, struct metrics *ret)
{
    struct shared *sh = g->sh;
    uint32_t n = sessions(g);

    *ret = g->met;
    (void)pthread_mutex_lock(&sh->lock);
    for (unsigned i = 0; i < sh->n_loop; i++)
        if (i != g->index) {
            add(ret, &sh->met[i]);
            n += sh->connected[i];
        }
    (void)pthread_mutex_unlock(&sh->lock);
    return n;
}

void
met_print(const struct gw *g, struct buf *b)
{
    struct metrics all, *m = &all;
    uint32_t connected = met_all(g, m);

    print_requests(m, b);
    one(b, "fdd_http_connections", "gauge", "Connections now.", atomic_load(&g->sh->n_conn));
    one(b, "fdd_http_streams", "gauge", "Generating requests now.", m->streams);
    one(b, "fdd_http_connected", "gauge",
        "Sessions with daemons: one per daemon and loop.", connected);
    one(b, "fdd_http_held_bytes", "gauge", "Long bodies that are received or read now.",
        atomic_load(&g->sh->held));
    one(b, "fdd_http_connections_total", "counter", "Connections accepted.", m->accepted);
    one(b, "fdd_http_refused_total", "counter",
        "Connections closed at once: their address had http.max_per_address.", m->refused);
    one(b, "fdd_http_events_total", "counter", "SSE events sent.", m->events);
    one(b, "fdd_http_sends_total", "counter", "send() calls.", m->sends);
    one(b, "fdd_http_sent_bytes_total", "counter", "Bytes sent.", m->bytes);
    one(b, "fdd_http_left_total", "counter",
        "Clients that left before their answer's end.", m->left);
    one(b, "fdd_http_slow_total", "counter",
        "Streams ended because their reader stopped.", m->slow);
    one(b, "fdd_http_paced_total", "counter",
        "Times that a long body waited, so that streams did not.", m->paced);
    one(b, "fdd_http_stream_errors_total", "counter",
        "Streams that ended with an error event.", m->stream_errors);
    one(b, "fdd_http_prompt_tokens_total", "counter", "Tokens of prompts.",
        m->prompt_tokens);
    one(b, "fdd_http_output_tokens_total", "counter", "Tokens of answers.",
        m->output_tokens);
}

/* ---- daemons ---------------------------------------------------------------------------- */

/* A metric in a daemon's text: its head (# HELP and # TYPE), then its samples. */
struct family {
    const char *head, *samples, *end;
    int is_done;
};

struct families {
    struct family *f;
    size_t n;
};

static const char *
line_behind(const char *p)
{
    return strchr(p, '\n') + 1;
}

/* Split a text, which ends with a line end, into its metrics. Returns 0; -1:
 * no memory. */
static int
split(const struct buf *text, struct families *ret)
{
    static const char begin[] = "# HELP ";
    const char *p = text->p, *end = text->p + text->n;
    size_t room = 0;

    while (p < end) {
        struct family *f = ret->f;

        if (ret->n == room) {
            room = room == 0 ? 256 : 2 * room;
            f = realloc(ret->f, room * sizeof(*f));
            if (f == NULL)
                return -1;
            ret->f = f;
        }
        f[ret->n].head = p;
        f[ret->n].samples = p = line_behind(line_behind(p));
        while (p < end && strncmp(p, begin, sizeof(begin) - 1) != 0)
            p = line_behind(p);
        f[ret->n].end = p;
        f[ret->n++].is_done = 0;
    }
    return 0;
}

/* Find the same metric in another daemon's text; the search begins at index `at`. */
static struct family *
find(const struct families *in, size_t at, const struct family *f)
{
    size_t n = (size_t)(f->samples - f->head);

    for (size_t k = 0; k < in->n; k++) {
        struct family *o = &in->f[(at + k) % in->n];

        if ((size_t)(o->samples - o->head) == n && memcmp(o->head, f->head, n) == 0)
            return o;
    }
    return NULL;
}

void
met_join(const struct buf *text, size_t n, struct buf *b)
{
    struct families all[SRV_MAX] = { { NULL, 0 } };

    for (size_t i = 0; i < n && i < SRV_MAX; i++)
        if (split(&text[i], &all[i]) != 0)
            b->failed = 1;
    for (size_t i = 0; i < n && i < SRV_MAX; i++)
        for (size_t k = 0; k < all[i].n; k++) {
            const struct family *f = &all[i].f[k];

            if (f->is_done)
                continue;
            buf_add(b, f->head, (size_t)(f->end - f->head));
            for (size_t j = i + 1; j < n && j < SRV_MAX; j++) {
                struct family *o = find(&all[j], k, f);

                if (o == NULL)
                    continue;
                buf_add(b, o->samples, (size_t)(o->end - o->samples));
                o->is_done = 1;
            }
        }
    for (size_t i = 0; i < n && i < SRV_MAX; i++)
        free(all[i].f);
}

static void
print_daemon(const struct link *l, const char *label, struct buf *b)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    if (f == NULL) {
        b->failed = 1;
        return;
    }
    prm_print(f, l->stats.seg, PRM_NAMES_FDD | PRM_NAMES_VLLM, label);
    if (fclose(f) == 0)
        buf_add(b, text, n);
    else
        b->failed = 1;
    free(text);
}

void
met_print_daemons(struct gw *g, struct buf *b)
{
    struct buf text[SRV_MAX] = { { NULL } };
    size_t n = 0;

    buf_str(b,
        "# HELP fdd_http_daemon_metrics 1: those of fdd are here as well, which it gives to "
        "the members of ipc.group.\n# TYPE fdd_http_daemon_metrics gauge\n");
    for (struct link *l = g->links; l != NULL && n < SRV_MAX; l = l->next) {
        char name[2 * sizeof(l->conf.label)], label[sizeof(name) + 16] = "";

        if (l->is_leaving)
            continue;
        prm_escape(l->conf.label, name, sizeof(name));
        if (name[0] != '\0')
            (void)snprintf(label, sizeof(label), "daemon=\"%s\"", name);
        buf_fmt(b, "fdd_http_daemon_metrics%s%s%s %d\n", label[0] != '\0' ? "{" : "",
            label, label[0] != '\0' ? "}" : "", link_stats(l) != NULL);
        if (l->stats.seg != NULL)
            print_daemon(l, label, &text[n++]);
    }
    for (size_t i = 0; i < n; i++)
        b->failed |= text[i].failed;
    if (!b->failed)
        met_join(text, n, b);
    for (size_t i = 0; i < n; i++)
        buf_fini(&text[i]);
}
