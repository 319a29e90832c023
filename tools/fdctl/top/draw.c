/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#define WIDE_W    130
#define WIDE_H    30
#define CHART_H   3  /* lines of a chart on a wide screen */
#define FIGURES_W 90 /* columns of the figures next to the charts */

/* ---- head ---------------------------------------------------------------- */

/* The worker that is shown; of several the first that is not ready. */
static const json_t *
worker_of(const struct top *t)
{
    const json_t *all = json_object_get(t->status, "workers"), *w;
    size_t i;

    if (t->group != CNT_ALL_GROUPS && json_array_get(all, t->group) != NULL)
        return json_array_get(all, t->group);
    json_array_foreach(all, i, w) {
        if (strcmp(fct_str(w, "phase"), "ready") != 0)
            return w;
    }
    return json_object_get(t->status, "worker");
}

static void
head(const struct top *t, struct top_canvas *c)
{
    const json_t *g = json_object_get(t->status, "groups");
    char up[24], right[96], model[sizeof(t->seg->model)], workers[80];
    int x, w;

    if (!json_is_object(g))
        snprintf(workers, sizeof(workers), ", worker %s", fct_str(worker_of(t), "phase"));
    else if (t->group != CNT_ALL_GROUPS)
        snprintf(workers, sizeof(workers), ", group %u %s", t->group,
            fct_str(worker_of(t), "phase"));
    else
        snprintf(workers, sizeof(workers), ", %lld of %lld groups", fct_num(g, "ready"),
            fct_num(g, "n"));
    top_age((double)t->raw.g.uptime_ns / 1e6, up);
    if (c->w < 78)
        snprintf(right, sizeof(right), "up %s ", up);
    else
        snprintf(right, sizeof(right), "up %s   every %g s   %s ", up, t->interval,
            t->clock);
    w = (int)strlen(right);
    x = top_print(c, 0, 1, c->w, TOP_HEAD, "fdd%s%s   ", t->status != NULL ? " " : "",
        fct_str(t->status, "version"));
    fct_plain(t->seg->model, sizeof(t->seg->model), model, sizeof(model));
    x = top_print(c, 0, x, c->w - w - 25, TOP_HEAD, "%s",
        model[0] != '\0' ? model : "no model yet");
    x = top_print(c, 0, x, c->w - w - 1, TOP_HEAD, "   %s",
        t->gone                 ? "ended"
            : t->silent > 0     ? "silent"
            : t->status != NULL ? fct_str(t->status, "state")
                                : "running");
    if (t->status != NULL && !t->gone)
        top_print(c, 0, x, c->w - w - 1, TOP_HEAD, "%s", workers);
    top_text(c, 0, c->w - w, 0, TOP_HEAD, right);
    top_paint(c, 0, 0, 0, TOP_HEAD);
}

/* What the worker does instead of working; "" if it works. */
static void
worker_text(const json_t *w, char *ret, size_t ret_bytes)
{
    const json_t *retry = json_object_get(w, "retry");
    const json_t *why = json_is_object(retry) ? retry : w;
    const char *phase = fct_str(w, "phase"), *death = fct_str(w, "last_death");
    const char *error = fct_str(why, "error"), *fix = fct_str(why, "fix");
    int is_none = strcmp(phase, "none") == 0;
    char in[24];

    if (strcmp(phase, "ready") == 0)
        ret[0] = '\0';
    else if (why == retry)
        snprintf(ret, ret_bytes, "worker blocked: %s%s%s", error,
            fix[0] != '\0' ? "; " : "", fix);
    else if (fct_num(w, "restart_in_ms") > 0)
        snprintf(ret, ret_bytes, "the worker died (%s), a new one starts in %s",
            death[0] != '\0' ? death : error, top_age(fct_real(w, "restart_in_ms"), in));
    else if (error[0] != '\0')
        snprintf(ret, ret_bytes, "worker %s: %s%s%s", phase, error,
            fix[0] != '\0' ? "; " : "", fix);
    else if (strcmp(phase, "loading") == 0)
        snprintf(ret, ret_bytes, "worker loading, %lld %%", fct_num(w, "load_percent"));
    else if (fct_num(w, "deaths") > 0)
        snprintf(ret, ret_bytes, "%s%s; %lld died before%s%s",
            is_none ? "no worker" : "worker ", is_none ? "" : phase, fct_num(w, "deaths"),
            death[0] != '\0' ? ", the last: " : "", death);
    else
        snprintf(ret, ret_bytes, "worker %s", phase);
}

/* One line for what is out of the ordinary. */
static void
notice(const struct top *t, struct top_canvas *c)
{
    char text[768] = "";
    enum top_attr attr = TOP_WARN;
    int n = 0;

    if (t->gone) {
        attr = TOP_BAD;
        snprintf(text, sizeof(text),
            "the daemon (pid %d) has ended; its last figures; waiting for a new one",
            (int)t->gate_pid);
    } else if (t->silent > 0) {
        attr = TOP_BAD;
        snprintf(text, sizeof(text),
            "the daemon (pid %d) has not moved for %d s: stopped or hung",
            (int)t->gate_pid, t->silent);
    } else if (t->frozen) {
        snprintf(text, sizeof(text), "frozen at %s; space goes on", t->clock);
    } else if (t->status != NULL) {
        const json_t *w = worker_of(t), *retry = json_object_get(w, "retry");
        const char *state = fct_str(t->status, "state");

        if (json_is_object(json_object_get(t->status, "groups")) &&
            strcmp(fct_str(w, "phase"), "ready") != 0)
            n = snprintf(text, sizeof(text), "group %lld: ", fct_num(w, "group"));
        worker_text(w, text + n, sizeof(text) - (size_t)n);
        if (text[0] != '\0' &&
            (strcmp(state, "degraded") == 0 || fct_num(w, "restart_in_ms") > 0 ||
                fct_str(json_is_object(retry) ? retry : w, "error")[0] != '\0'))
            attr = TOP_BAD;
        if (text[0] == '\0' && top_is_paused(t))
            snprintf(text, sizeof(text),
                "paused: requests are queued, none is started; p goes on");
        else if (text[0] == '\0' && strcmp(state, "draining") == 0)
            snprintf(text, sizeof(text),
                "draining: new requests are refused; D takes them again");
        else if (text[0] == '\0' && strcmp(state, "stopping") == 0)
            snprintf(text, sizeof(text), "stopping: the daemon ends when its requests have");
    }
    if (text[0] != '\0')
        top_print(c, 1, 0, 0, attr, " %s %s", t->gone || t->silent > 0 ? "!!" : "*", text);
}

/* ---- figures ------------------------------------------------------------- */

/* "name value", the name dim. Returns the column behind it. */
static int
pair(struct top_canvas *c, int y, int x, int x_end, enum top_attr attr, const char *name,
    const char *value)
{
    if (x + top_width(name) + 1 + top_width(value) > x_end)
        return x; /* not a part of a number */
    x = top_text(c, y, x, x_end, TOP_NAME, name);
    return top_text(c, y, x + 1, x_end, attr, value) + 2;
}

static void
right_aligned(struct top_canvas *c, int y, int x_end, enum top_attr attr, const char *text)
{
    top_text(c, y, x_end - top_width(text), x_end, attr, text);
}

static const char *const line_names[TOP_S__N] = { "out tok/s", "in tok/s", "busy",
    "KV use" };

/* Newest value and scale of a line. */
static const char *
line_value(const struct top *t, enum top_line line, char *ret)
{
    const struct top_rates *r = &t->r;

    if (!t->has_rates)
        return strcpy(ret, "-");
    switch (line) {
    case TOP_S_OUT:
        return top_rate(r->out, ret);
    case TOP_S_IN:
        return top_rate(r->in, ret);
    case TOP_S_BUSY:
        return top_share(r->busy, ret);
    default:
        return top_share(r->kv, ret);
    }
}

static enum top_attr
line_attr(const struct top *t, enum top_line line)
{
    if (line == TOP_S_KV && t->has_rates && t->r.kv > 0.95)
        return TOP_WARN;
    return TOP_VALUE;
}

static double
line_max(const struct top_series *s, enum top_line line, int w)
{
    return line == TOP_S_BUSY || line == TOP_S_KV ? 1 : top_series_max(s, w);
}

/* Four lines: name, value, sparkline. */
static void
sparks(const struct top *t, struct top_canvas *c, int y, int w)
{
    char value[24];

    for (int i = 0; i < TOP_S__N; i++) {
        enum top_line line = (enum top_line)i;
        struct top_series s = top_history_line(&t->hist, line);

        top_text(c, y + i, 1, 0, TOP_NAME, line_names[i]);
        right_aligned(c, y + i, 20, line_attr(t, line), line_value(t, line, value));
        if (w > 21)
            top_chart(c, y + i, 21, w - 21, 1, TOP_BAR, &s, line_max(&s, line, w - 21));
    }
}

/* "TTFT  p50 12.3 ms  p99 45.6 ms" */
static void
latency(const struct top *t, struct top_canvas *c, int y, int x, const char *name,
    enum top_latency which)
{
    const struct top_quant *q = &t->r.lat[which];
    char p50[24], p99[24];

    top_text(c, y, x, 0, TOP_NAME, name);
    top_text(c, y, x + 6, 0, TOP_NAME, "p50");
    right_aligned(c, y, x + 17, TOP_VALUE, top_ns(t->has_rates ? q->p50 : TOP_NONE, p50));
    top_text(c, y, x + 19, 0, TOP_NAME, "p99");
    right_aligned(c, y, x + 30, TOP_VALUE, top_ns(t->has_rates ? q->p99 : TOP_NONE, p99));
}

/* A counter, or a figure of the interval, by its place in struct top. */
struct figure {
    const char *name;
    const char *(*form)(double v, char *ret);
    size_t counter, rate; /* of a counter, its rate (0: is not shown) */
    enum top_attr more;   /* above 0; TOP_PLAIN: as 0 */
};
#define COUNTER(f) top_count, .counter = offsetof(struct top, raw.f)
#define RATE(f)    .rate = offsetof(struct top, r.f)
static const struct figure load[] = { { "running", COUNTER(w.requests_running) },
    { "waiting", COUNTER(w.requests_waiting) },
    { "queued", COUNTER(g.requests_queued), .more = TOP_WARN },
    { "queued tokens", COUNTER(g.queued_tokens) }, { "clients", COUNTER(g.sessions) } };
static const struct figure ended[] = { { "done", COUNTER(g.requests_done), RATE(done) },
    { "errors", COUNTER(g.requests_error), RATE(errors), TOP_BAD },
    { "rejected", COUNTER(g.requests_rejected), RATE(rejected), TOP_WARN },
    { "cancelled", COUNTER(w.cancelled), RATE(cancelled) } };
static const struct figure step[] = { { "step", top_ns, RATE(step_ns) },
    { "gap", top_ns, RATE(gap_ns) }, { "batch", top_rate, RATE(batch_seqs) },
    { "tokens", top_rate, RATE(batch_tokens) }, { "steps/s", top_rate, RATE(steps) },
    { "graphs", top_share, RATE(graph) } };
static const struct figure prefix[] = { { "hit rate", top_share, RATE(hit) },
    { "cached tok/s", top_rate, RATE(in_cached) },
    { "evicted", COUNTER(w.prefix_evictions), RATE(evicted) },
    { "preempted", COUNTER(w.preemptions), RATE(preempted), TOP_WARN } };
static const struct figure worker[] = {
    { "deaths", COUNTER(g.worker_deaths), .more = TOP_BAD },
    { "weights", top_bytes, .counter = offsetof(struct top, raw.w.weight_bytes) }
};
static const struct figure kv[] = { { "cached", COUNTER(w.kv_blocks_cached) },
    { "of", top_bytes, .counter = offsetof(struct top, raw.w.kv_bytes) } };

/* n of them, such as "errors 3 (0.5/s)". Returns the column behind. */
static int
show(const struct top *t, struct top_canvas *c, int y, int x, int x_end,
    const struct figure *f, size_t n)
{
    const char *base = (const char *)t;
    char v[24], rate[24], text[64];

    for (; n-- > 0; f++) {
        double r = f->rate == 0 ? 0
            : t->has_rates      ? *(const double *)(const void *)(base + f->rate)
                                : TOP_NONE;
        double now = f->counter == 0
            ? r
            : (double)*(const uint64_t *)(const void *)(base + f->counter);

        snprintf(text, sizeof(text), f->counter != 0 && r > 0 ? "%s (%s/s)" : "%s",
            f->form(now, v), top_rate(r, rate));
        x = pair(c, y, x, x_end, now > 0 && f->more != TOP_PLAIN ? f->more : TOP_VALUE,
            f->name, text);
    }
    return x;
}

static int
blocks(const struct top *t, struct top_canvas *c, int y, int x, int x_end)
{
    const struct cnt_worker *w = &t->raw.w;
    char used[24], all[24], text[64];

    snprintf(text, sizeof(text), "%s of %s blocks",
        top_count((double)w->kv_blocks_used, used),
        top_count((double)w->kv_blocks_total, all));
    if (x + top_width(text) <= x_end)
        x = top_text(c, y, x, x_end, TOP_VALUE, text) + 2;
    return show(t, c, y, x, x_end, kv, 1);
}

static void
narrow(const struct top *t, struct top_canvas *c, int y)
{
    int right = c->w - 38, x, bar = c->w >= 100 ? c->w - 80 : c->w >= 76 ? c->w - 60 : 8;
    char v[24];

    sparks(t, c, y, right - 2);
    show(t, c, y, right, c->w, load, 3);
    latency(t, c, y + 1, right, "TTFT", TOP_L_TTFT);
    latency(t, c, y + 2, right, "ITL", TOP_L_ITL);
    show(t, c, y + 3, right, c->w, step, 3);
    y += TOP_S__N;
    top_text(c, y, 1, 0, TOP_NAME, "KV");
    right_aligned(c, y, 9, line_attr(t, TOP_S_KV), line_value(t, TOP_S_KV, v));
    top_bar(c, y, 10, bar, t->has_rates ? t->r.kv : 0);
    x = show(t, c, y, 10 + bar + 1, c->w, prefix, 1);
    blocks(t, c, y, x, c->w);
    y++;
    x = show(t, c, y, 1, c->w, ended, 2);
    x = show(t, c, y, x, c->w, &prefix[3], 1);
    show(t, c, y, x, c->w, &ended[2], 2);
}

/* ---- a wide screen ------------------------------------------------------- */

static void
charts(const struct top *t, struct top_canvas *c, int y, int w, int each)
{
    char value[24], peak[24], text[48];

    for (int i = 0; i < TOP_S__N; i++, y += each) {
        enum top_line line = (enum top_line)i;
        struct top_series s = top_history_line(&t->hist, line);
        double max = line_max(&s, line, w - 15);

        top_text(c, y, 1, 0, TOP_NAME, line_names[i]);
        right_aligned(c, y + 1, 12, line_attr(t, line), line_value(t, line, value));
        if (line == TOP_S_OUT || line == TOP_S_IN)
            snprintf(text, sizeof(text), "max %s", top_rate(max, peak));
        else
            snprintf(text, sizeof(text), "max %s",
                top_share(top_series_max(&s, w - 15), peak));
        if (s.n > 0)
            right_aligned(c, y + 2, 12, TOP_DIM, text);
        top_chart(c, y, 14, w - 15, CHART_H, TOP_BAR, &s, max);
    }
}

static int
latencies(const struct top *t, struct top_canvas *c, int y, int x)
{
    static const char *const names[TOP_L__N] = { "TTFT", "ITL", "TPOT", "queue", "E2E" };
    char v[24];

    top_text(c, y, x, 0, TOP_NAME, "latency");
    right_aligned(c, y, x + 22, TOP_NAME, "p50");
    right_aligned(c, y, x + 33, TOP_NAME, "p90");
    right_aligned(c, y, x + 44, TOP_NAME, "p99");
    right_aligned(c, y, x + 55, TOP_NAME, "seen");
    for (int i = 0; i < TOP_L__N; i++) {
        const struct top_quant *q = &t->r.lat[i];

        y++;
        top_text(c, y, x + 2, 0, TOP_NAME, names[i]);
        right_aligned(c, y, x + 22, TOP_VALUE, top_ns(t->has_rates ? q->p50 : -1, v));
        right_aligned(c, y, x + 33, TOP_VALUE, top_ns(t->has_rates ? q->p90 : -1, v));
        right_aligned(c, y, x + 44, TOP_VALUE, top_ns(t->has_rates ? q->p99 : -1, v));
        right_aligned(c, y, x + 55, TOP_VALUE,
            top_count(t->has_rates ? (double)q->n : -1, v));
    }
    return y + 1;
}

static void
figures(const struct top *t, struct top_canvas *c, int y, int x)
{
    const json_t *w = worker_of(t);
    const struct cnt_seg *seg = &t->seg[t->group < cnt_n_group(t->seg) ? t->group : 0];
    int at, end = c->w;
    char v[24], text[64];

    top_text(c, y, x, 0, TOP_NAME, "requests");
    show(t, c, y++, x + 11, end, load, 5);
    top_text(c, y, x, 0, TOP_NAME, "ended");
    show(t, c, y++, x + 11, end, ended, 4);
    y = latencies(t, c, y, x);
    top_text(c, y, x, 0, TOP_NAME, "device");
    show(t, c, y++, x + 11, end, step, 6);
    top_text(c, y, x, 0, TOP_NAME, "KV");
    right_aligned(c, y, x + 10, line_attr(t, TOP_S_KV), line_value(t, TOP_S_KV, v));
    top_bar(c, y, x + 11, 20, t->has_rates ? t->r.kv : 0);
    at = blocks(t, c, y, x + 32, end);
    show(t, c, y++, at, end, &kv[1], 1);
    top_text(c, y, x, 0, TOP_NAME, "prefix");
    show(t, c, y++, x + 11, end, prefix, 4);
    top_text(c, y, x, 0, TOP_NAME, "worker");
    snprintf(text, sizeof(text), "%d", (int)seg->worker_pid);
    at = pair(c, y, x + 11, end, TOP_VALUE, "pid", seg->worker_pid != 0 ? text : "-");
    at = show(t, c, y, at, end, worker, 1);
    if (fct_num(w, "credits") > 0) {
        snprintf(text, sizeof(text), "%lld of %lld", fct_num(w, "credits_used"),
            fct_num(w, "credits"));
        at = pair(c, y, at, end, TOP_VALUE, "credits", text);
    }
    show(t, c, y, at, end, &worker[1], 1);
}

/* ---- foot, help, all ----------------------------------------------------- */

static void
keys(const struct top *t, struct top_canvas *c, int y)
{
    static const char *const what[][2] = { { "q", "quit" }, { "h", "help" },
        { "u r c", "views" }, { "s", "sort" }, { "k", "cancel" }, { "p", "pause" },
        { "d", "drain" }, { "space", "freeze" }, { "+ -", "interval" },
        { "S", "reverse" }, { "D", "drain off" } };
    int x = 1;

    for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
        const char *text = what[i][1];

        if (what[i][0][0] == 'p' && top_is_paused(t))
            text = "go on";
        if (what[i][0][0] == 's' && what[i][0][1] == 'p' && t->frozen)
            text = "thaw";
        if (x + (int)strlen(what[i][0]) + 1 + (int)strlen(text) > c->w)
            break;
        x = top_text(c, y, x, 0, TOP_VALUE, what[i][0]);
        x = top_text(c, y, x + 1, 0, TOP_NAME, text) + 2;
    }
}

/* The message, up to three lines; how many. */
static int
message(const struct top *t, struct top_canvas *c, int y_end, int draw)
{
    enum top_attr attr = t->ask != 0 ? TOP_SELECTED : t->message_bad ? TOP_BAD : TOP_GOOD;
    const char *text = t->message;
    char part[3][256];
    int n = 0, y;

    while (n < 3 && top_wrap(&text, c->w - 2, part[n], sizeof(part[0])))
        n++;
    for (y = 0; y < n && draw; y++)
        top_text(c, y_end - n + y, 1, 0, attr, part[y]);
    return n > 0 ? n : 1;
}

static void
help(struct top_canvas *c)
{
    static const char *const lines[][2] = { { "u r c", "show users, requests or clients" },
        { "up down pgup pgdn home end", "select a row" },
        { "s S", "sort by the next column; the other way round" },
        { "k", "cancel the selected request or client; asks" },
        { "p", "pause: start no queued request; or go on; asks" },
        { "d D", "drain: refuse new requests; asks; D takes them again" },
        { "space", "freeze the screen, and go on" }, { "+ -", "longer, shorter interval" },
        { "ctrl-l", "draw again" }, { "q", "quit" } };
    static const char *const about[] = {
        "tok/s, busy, step, gap, TTFT, ITL: over the last interval; - is none.",
        "busy: share of the time in which the model ran; gap: time the device",
        "waited between two steps although there was work.", NULL
    };
    int y = 1;

    top_text(c, 0, 1, 0, TOP_HEAD, "fdctl top: keys (any key goes back)");
    top_paint(c, 0, 0, 0, TOP_HEAD);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++, y++) {
        top_text(c, y, 1, 0, TOP_VALUE, lines[i][0]);
        top_text(c, y, c->w >= 80 ? 28 : 10 + (i == 1 ? 18 : 0), 0, TOP_PLAIN, lines[i][1]);
    }
    for (size_t i = 0; about[i] != NULL; i++)
        top_text(c, y + 1 + (int)i, 1, 0, TOP_NAME, about[i]);
}

void
top_draw(struct top *t, struct top_canvas *c)
{
    int y = 2, y_end = c->h, n;
    char text[80];

    if (c->w < TOP_MIN_W || c->h < TOP_MIN_H) {
        n = snprintf(text, sizeof(text), "%dx%d is too small: %dx%d at least", c->w, c->h,
            TOP_MIN_W, TOP_MIN_H);
        top_text(c, c->h / 2, c->w > n ? (c->w - n) / 2 : 0, 0, TOP_VALUE, text);
        return;
    }
    if (t->help) {
        help(c);
        return;
    }
    head(t, c);
    notice(t, c);
    c->dim = t->gone;
    if (c->w >= WIDE_W && c->h >= WIDE_H) {
        charts(t, c, y, c->w - FIGURES_W, CHART_H);
        figures(t, c, y, c->w - FIGURES_W);
        y += TOP_S__N * CHART_H;
    } else {
        narrow(t, c, y);
        y += TOP_S__N + 2;
    }
    n = t->once ? 0 : message(t, c, 0, 0);
    if (!t->once)
        y_end = c->h - 1 - (n < c->h - 1 - y - 2 ? n : 1);
    top_draw_table(t, c, y, y_end);
    c->dim = 0;
    if (t->once)
        return;
    message(t, c, c->h - 1, 1);
    keys(t, c, c->h - 1);
}
