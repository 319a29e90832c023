/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#define WIDE_W    130
#define WIDE_H    30
#define CHART_H   3  /* lines of a chart on a wide screen */
#define FIGURES_W 90 /* columns of the figures next to the charts */

/* ---- head ---------------------------------------------------------------- */

/* The group's worker; for all groups the first that is not ready. */
static const json_t *
worker_of(const struct top *t)
{
    const json_t *all = json_object_get(t->status, "workers");
    const json_t *w = json_array_get(all, t->group); /* NULL for CNT_ALL_GROUPS */
    size_t i;

    if (w != NULL)
        return w;
    json_array_foreach(all, i, w)
        if (strcmp(fct_str(w, "phase"), "ready") != 0)
            return w;
    return json_object_get(t->status, "worker");
}

static void
head(const struct top *t, struct top_canvas *c)
{
    const json_t *g = json_object_get(t->status, "groups");
    const char *phase = fct_str(worker_of(t), "phase");
    char right[96], workers[80] = "";
    int x, w;

    if (json_is_object(g) && t->group == CNT_ALL_GROUPS)
        fct_fill(workers, sizeof(workers), ", {ready} of {n} groups", g);
    else if (json_is_object(g))
        snprintf(workers, sizeof(workers), ", group %u %s", t->group, phase);
    else if (t->status != NULL)
        snprintf(workers, sizeof(workers), ", worker %s", phase);
    w = snprintf(right, sizeof(right), c->w < 78 ? " up %s " : " up %s   every %g s   %s ",
        TOP_FORM(TOP_AGE, (double)t->raw.g.uptime_ns / 1e6), t->interval, t->clock);
    x = top_print(c, 0, 1, TOP_HEAD, "fdd%s%s   ", t->status != NULL ? " " : "",
        fct_str(t->status, "version"));
    x = top_text(c, 0, x, c->w - w - 24, TOP_HEAD,
        t->raw.model[0] != '\0' ? t->raw.model : "no model yet");
    top_print(c, 0, x, TOP_HEAD, "   %s%s",
        t->gone                 ? "ended"
            : t->silent > 0     ? "silent"
            : t->status != NULL ? fct_str(t->status, "state")
                                : "running",
        t->gone ? "" : workers);
    top_text(c, 0, c->w - w, 0, TOP_HEAD, right);
    top_paint(c, 0, TOP_HEAD);
}

/* Templates: why a worker does not work, and its state. */
static const char worker_error[] =
    "[retry|worker blocked: {retry.error}[retry.fix|; {retry.fix}]]"
    "[!retry|[in|the worker died ([last_death|{last_death}][!last_death|{error}]), "
    "a new one starts in {in}]"
    "[!in|[error|worker {phase}: {error}[fix|; {fix}]]]]";
static const char worker_is[] =
    "[phase=loading|worker loading, {load_percent} %]"
    "[!phase=loading|[deaths|[phase=none|no worker][!phase=none|worker {phase}]; "
    "{deaths} died before[last_death|, the last: {last_death}]]"
    "[!deaths|worker {phase}]]";
/* Template: the daemon's state if its worker works. */
static const char daemon_is[] =
    "[paused|paused: requests are queued, none is started; p goes on]"
    "[!paused|[state=draining|draining: new requests are refused; D takes them again]"
    "[state=stopping|stopping: the daemon ends when its requests have]]";

/* Why the daemon does not work; "" if it does. Returns whether it is an error. */
static int
trouble(const struct top *t, char *ret, size_t ret_bytes)
{
    const json_t *shown = worker_of(t);
    double in_ms = fct_real(shown, "restart_in_ms");
    int n = 0, is_error;
    json_t *w;

    if (strcmp(fct_str(shown, "phase"), "ready") == 0) {
        fct_fill(ret, ret_bytes, daemon_is, t->status);
        return 0;
    }
    if (json_is_object(json_object_get(t->status, "groups")))
        n = snprintf(ret, ret_bytes, "group %lld: ", fct_num(shown, "group"));
    w = json_copy((json_t *)(uintptr_t)shown);
    if (in_ms > 0)
        json_object_set_new(w, "in", json_string(TOP_FORM(TOP_AGE, in_ms)));
    fct_fill(ret + n, ret_bytes - (size_t)n, worker_error, w);
    is_error = ret[n] != '\0';
    if (!is_error)
        fct_fill(ret + n, ret_bytes - (size_t)n, worker_is, w);
    json_decref(w);
    return is_error || strcmp(fct_str(t->status, "state"), "degraded") == 0;
}

/* Draw the line about an unusual state. */
static void
notice(const struct top *t, struct top_canvas *c)
{
    char text[768] = "";
    int is_bad = t->gone || t->silent > 0, pid = (int)t->raw.gate_pid;

    if (t->gone)
        snprintf(text, sizeof(text),
            "the daemon (pid %d) has ended; its last figures; waiting for a new one", pid);
    else if (t->silent > 0)
        snprintf(text, sizeof(text),
            "the daemon (pid %d) has not moved for %d s: stopped or hung", pid, t->silent);
    else if (t->frozen)
        snprintf(text, sizeof(text), "frozen at %s; space goes on", t->clock);
    else if (t->status != NULL)
        is_bad = trouble(t, text, sizeof(text));
    if (text[0] != '\0')
        top_print(c, 1, 0, is_bad ? TOP_BAD : TOP_WARN, " %s %s",
            t->gone || t->silent > 0 ? "!!" : "*", text);
}

/* ---- figures ------------------------------------------------------------- */

/* Draw "name value". Returns the column after it. */
static int
pair(struct top_canvas *c, int y, int x, enum top_attr attr, const char *name,
    const char *value)
{
    if (x + top_width(name) + 1 + top_width(value) > c->w)
        return x; /* a cut number would be wrong */
    x = top_text(c, y, x, 0, TOP_NAME, name);
    return top_text(c, y, x + 1, 0, attr, value) + 2;
}

/* A counter, or a figure of the interval, by its offset in struct top. */
struct figure {
    const char *name;
    enum top_form form;
    size_t counter, rate; /* offsets of the counter and its rate; 0: not shown */
    enum top_attr more;   /* attribute of a value above 0; TOP_PLAIN: as of 0 */
};
#define COUNTER(f) TOP_COUNT, .counter = offsetof(struct top, raw.f)
#define RATE(f)    .rate = offsetof(struct top, r.f)
static const struct figure load[] = { { "running", COUNTER(w.requests_running) },
    { "waiting", COUNTER(w.requests_waiting) },
    { "queued", COUNTER(g.requests_queued), .more = TOP_WARN },
    { "queued tokens", COUNTER(g.queued_tokens) }, { "clients", COUNTER(g.sessions) } };
static const struct figure ended[] = { { "done", COUNTER(g.requests_done), RATE(done) },
    { "errors", COUNTER(g.requests_error), RATE(errors), TOP_BAD },
    { "rejected", COUNTER(g.requests_rejected), RATE(rejected), TOP_WARN },
    { "cancelled", COUNTER(w.cancelled), RATE(cancelled) } };
static const struct figure step[] = { { "step", TOP_NS, RATE(step_ns) },
    { "gap", TOP_NS, RATE(gap_ns) }, { "batch", TOP_RATE, RATE(batch_seqs) },
    { "tokens", TOP_RATE, RATE(batch_tokens) }, { "steps/s", TOP_RATE, RATE(steps) },
    { "graphs", TOP_SHARE, RATE(graph) } };
static const struct figure prefix[] = { { "hit rate", TOP_SHARE, RATE(hit) },
    { "cached tok/s", TOP_RATE, RATE(in_cached) },
    { "evicted", COUNTER(w.prefix_evictions), RATE(evicted) },
    { "preempted", COUNTER(w.preemptions), RATE(preempted), TOP_WARN } };
static const struct figure worker[] = {
    { "deaths", COUNTER(g.worker_deaths), .more = TOP_BAD },
    { "weights", TOP_BYTES, .counter = offsetof(struct top, raw.w.weight_bytes) }
};
static const struct figure kv[] = { { "cached", COUNTER(w.kv_blocks_cached) },
    { "of", TOP_BYTES, .counter = offsetof(struct top, raw.w.kv_bytes) } };
static const struct figure watched[TOP_S__N] = { { "out tok/s", TOP_RATE, RATE(out) },
    { "in tok/s", TOP_RATE, RATE(in) }, { "busy", TOP_SHARE, RATE(busy) },
    { "KV use", TOP_SHARE, RATE(kv) } };

static double
rate_of(const struct top *t, const struct figure *f)
{
    return *(const double *)(const void *)((const char *)t + f->rate);
}

/* Draw n figures, such as "errors 3 (0.5/s)". Returns the column after them. */
static int
show(const struct top *t, struct top_canvas *c, int y, int x, const struct figure *f,
    size_t n)
{
    char text[64];

    for (; n-- > 0; f++) {
        const void *at = (const char *)t + f->counter;
        double r = f->rate != 0 ? rate_of(t, f) : 0;
        double now = f->counter != 0 ? (double)*(const uint64_t *)at : r;

        snprintf(text, sizeof(text), f->counter != 0 && r > 0 ? "%s (%s/s)" : "%s",
            TOP_FORM(f->form, now), TOP_FORM(TOP_RATE, r));
        x = pair(c, y, x, now > 0 && f->more != TOP_PLAIN ? f->more : TOP_VALUE, f->name,
            text);
    }
    return x;
}

void
top_remember(struct top *t)
{
    for (int i = 0; i < TOP_S__N; i++)
        top_history_add(&t->hist[i], rate_of(t, &watched[i]));
}

/* Draw the newest value of a watched figure up to column x_end. */
static void
newest(const struct top *t, struct top_canvas *c, int y, int x_end, int line)
{
    top_right(c, y, x_end, line == TOP_S_KV && t->r.kv > 0.95 ? TOP_WARN : TOP_VALUE,
        TOP_FORM(watched[line].form, rate_of(t, &watched[line])));
}

/* Draw the watched figures up to column x_end: name, newest value and a chart h high;
 * next to a chart of several lines its greatest value. */
static void
charts(const struct top *t, struct top_canvas *c, int y, int x_end, int h)
{
    int x = h > 1 ? 14 : 21, w = x_end - x;
    char text[48];

    for (int i = 0; i < TOP_S__N; i++, y += h) {
        double max = top_history_max(&t->hist[i], w);

        top_text(c, y, 1, 0, TOP_NAME, watched[i].name);
        newest(t, c, h > 1 ? y + 1 : y, h > 1 ? 12 : 20, i);
        snprintf(text, sizeof(text), "max %s", TOP_FORM(watched[i].form, max));
        if (h > 1 && t->hist[i].n > 0)
            top_right(c, y + 2, 12, TOP_DIM, text);
        if (w > 0)
            top_chart(c, y, x, w, h, &t->hist[i], watched[i].form == TOP_SHARE ? 1 : max);
    }
}

/* Draw the KV use, and a bar of w cells at x_bar. Returns the column after it. */
static int
kv_bar(const struct top *t, struct top_canvas *c, int y, int x, int x_bar, int w)
{
    top_text(c, y, x, 0, TOP_NAME, "KV");
    newest(t, c, y, x_bar - 1, TOP_S_KV);
    top_bar(c, y, x_bar, w, t->r.kv);
    return x_bar + w + 1;
}

static int
blocks(const struct top *t, struct top_canvas *c, int y, int x)
{
    const struct cnt_worker *w = &t->raw.w;
    char text[64];

    snprintf(text, sizeof(text), "%s of %s blocks",
        TOP_FORM(TOP_COUNT, (double)w->kv_blocks_used),
        TOP_FORM(TOP_COUNT, (double)w->kv_blocks_total));
    if (x + top_width(text) <= c->w)
        x = top_text(c, y, x, 0, TOP_VALUE, text) + 2;
    return show(t, c, y, x, kv, 1);
}

static const char *const latency_names[TOP_L__N] = { "TTFT", "ITL", "TPOT", "queue", "E2E" };

static void
narrow(const struct top *t, struct top_canvas *c, int y)
{
    int right = c->w - 38, x, bar = c->w >= 100 ? c->w - 80 : c->w >= 76 ? c->w - 60 : 8;

    charts(t, c, y, right - 2, 1);
    show(t, c, y++, right, load, 3);
    for (int i = TOP_L_TTFT; i <= TOP_L_ITL; i++) {
        x = top_print(c, y, right, TOP_NAME, "%-6sp50", latency_names[i]);
        x = top_print(c, y, x, TOP_VALUE, "%8s", TOP_FORM(TOP_NS, t->r.lat[i].p50));
        x = top_text(c, y, x, 0, TOP_NAME, "  p99");
        top_print(c, y++, x, TOP_VALUE, "%8s", TOP_FORM(TOP_NS, t->r.lat[i].p99));
    }
    show(t, c, y++, right, step, 3);
    x = kv_bar(t, c, y, 1, 10, bar);
    x = show(t, c, y, x, prefix, 1);
    blocks(t, c, y, x);
    y++;
    x = show(t, c, y, 1, ended, 2);
    x = show(t, c, y, x, &prefix[3], 1);
    show(t, c, y, x, &ended[2], 2);
}

/* ---- a wide screen ------------------------------------------------------- */

/* Draw a line: its name and n figures. Returns the column after it. */
static int
row(const struct top *t, struct top_canvas *c, int y, const char *name,
    const struct figure *f, size_t n)
{
    int x = c->w - FIGURES_W;

    top_text(c, y, x, 0, TOP_NAME, name);
    return show(t, c, y, x + 11, f, n);
}

static void
figures(const struct top *t, struct top_canvas *c, int y)
{
    const json_t *w = worker_of(t);
    static const char form[] = "%11s%11s%11s%11s";
    int x = c->w - FIGURES_W, at;
    char text[64];

    row(t, c, y++, "requests", load, 5);
    row(t, c, y++, "ended", ended, 4);
    top_text(c, y, x, 0, TOP_NAME, "latency");
    top_print(c, y++, x + 11, TOP_NAME, form, "p50", "p90", "p99", "seen");
    for (int i = 0; i < TOP_L__N; i++) {
        const struct top_quant *q = &t->r.lat[i];

        top_text(c, y, x + 2, 0, TOP_NAME, latency_names[i]);
        top_print(c, y++, x + 11, TOP_VALUE, form, TOP_FORM(TOP_NS, q->p50),
            TOP_FORM(TOP_NS, q->p90), TOP_FORM(TOP_NS, q->p99), TOP_FORM(TOP_COUNT, q->n));
    }
    row(t, c, y++, "device", step, 6);
    at = kv_bar(t, c, y, x, x + 11, 20);
    at = blocks(t, c, y, at);
    show(t, c, y++, at, &kv[1], 1);
    row(t, c, y++, "prefix", prefix, 4);
    snprintf(text, sizeof(text), t->raw.worker_pid != 0 ? "%d" : "-", t->raw.worker_pid);
    at = row(t, c, y, "worker", NULL, 0);
    at = pair(c, y, at, TOP_VALUE, "pid", text);
    at = show(t, c, y, at, worker, 1);
    if (fct_num(w, "credits") > 0) {
        fct_fill(text, sizeof(text), "{credits_used} of {credits}", w);
        at = pair(c, y, at, TOP_VALUE, "credits", text);
    }
    show(t, c, y, at, &worker[1], 1);
}

/* ---- the lower part: a table -------------------------------------------------- */

#define SPARE_MAX 14 /* cells that a text or a bar gets beyond its width */

static int
is_wide(const struct top_col *col)
{
    return col->form == TOP_TEXT || col->form == TOP_SHARE;
}

/* Draw a cell of row r, or of the headings (r NULL) with text name. */
static void
cell(struct top_canvas *c, int y, int x, int w, const json_t *r,
    const struct top_col *col, const char *name)
{
    double v = fct_real(r, col->key);
    const char *text = r == NULL ? name
        : col->form == TOP_TEXT  ? fct_str(r, col->key)
                                 : TOP_FORM(col->form, v);

    if (r != NULL && col->form == TOP_SHARE && v < 0)
        return;
    if (r != NULL && col->form == TOP_SHARE)
        top_bar(c, y, x, w, v);
    else if (is_wide(col))
        top_text(c, y, x, x + w, TOP_PLAIN, text);
    else if (top_width(text) <= w)
        top_right(c, y, x + w, TOP_PLAIN, text);
    else /* a cut number would be wrong */
        top_text(c, y, x, x + w, TOP_PLAIN, "...");
}

/* Draw row r, or the headings. Spare cells go to text and bars. */
static void
line(const struct top *t, struct top_canvas *c, int y, const json_t *r)
{
    const struct top_col *cols = top_tables[t->view].cols, *col;
    const struct top_col *sorted = &cols[t->sort[t->view]];
    int down = TOP_IS_DOWN(sorted) != t->reverse[t->view], x = 1, left = c->w - 1, n = 0;
    const char *arrow = c->utf8 ? down ? "\u25be" : "\u25b4" : down ? "v" : "^";
    char name[32];

    for (col = cols; col->name != NULL; col++) {
        if (col->from <= c->w) {
            left -= col->width + 1;
            n += is_wide(col);
        }
    }
    left = left < 0 ? 0 : left / n < SPARE_MAX ? left / n : SPARE_MAX;
    for (col = cols; col->name != NULL; col++) {
        int w = col->width + (is_wide(col) ? left : 0);

        if (col->from > c->w)
            continue;
        snprintf(name, sizeof(name), "%s%s", col->name, col == sorted ? arrow : "");
        if (top_width(name) > w)
            name[strlen(col->name)] = '\0';
        cell(c, y, x, w, r, col, name);
        x += w + 1;
    }
}

/* Draw "requests 12 of 345, by AGE" in a rule. */
static void
title(const struct top *t, struct top_canvas *c, int y)
{
    const struct top_table *of = &top_tables[t->view];
    size_t n_row = json_array_size(t->rows[t->view]), end = t->first + (size_t)t->page;
    int x;

    for (x = 0; x < c->w; x++)
        top_text(c, y, x, 0, TOP_DIM, c->utf8 ? "\u2500" : "-");
    x = top_print(c, y, 2, TOP_VALUE, " %s ", of->title);
    if (t->deny[0] != '\0')
        return;
    x = top_text(c, y, x, 0, TOP_VALUE, TOP_FORM(TOP_COUNT, (double)n_row));
    if (n_row > (size_t)t->page)
        x = top_print(c, y, x, TOP_PLAIN, ", %s to %s",
            TOP_FORM(TOP_COUNT, (double)t->first + 1),
            TOP_FORM(TOP_COUNT, (double)(end < n_row ? end : n_row)));
    top_print(c, y, x, TOP_PLAIN, ", by %s%s ", of->cols[t->sort[t->view]].name,
        t->reverse[t->view] ? " reversed" : "");
}

/* Draw the table in lines y to y_end. */
static void
table(struct top *t, struct top_canvas *c, int y, int y_end)
{
    size_t n_row = json_array_size(t->rows[t->view]), page;
    int has_title = y_end - y >= 4;

    t->page = y_end - y - 1 - has_title;
    if (t->page < 1)
        t->page = 1;
    page = (size_t)t->page;
    if (t->first > t->sel)
        t->first = t->sel;
    if (t->sel >= t->first + page)
        t->first = t->sel - page + 1;
    if (t->first > 0 && t->first + page > n_row)
        t->first = n_row > page ? n_row - page : 0;
    if (has_title)
        title(t, c, y++);
    line(t, c, y, NULL);
    top_paint(c, y++, TOP_HEAD);
    if (t->deny[0] != '\0') {
        y = top_wrapped(c, y, y_end, 2, c->w - 2, TOP_WARN, "No table: the daemon answered");
        top_wrapped(c, y, y_end, 4, c->w - 2, TOP_PLAIN, t->deny);
        return;
    }
    if (n_row == 0 && t->t_rows != 0)
        top_print(c, y, 2, TOP_DIM, "no %s", top_tables[t->view].title);
    else if (n_row == 0 && !t->gone)
        top_text(c, y, 2, 0, TOP_DIM, "asking the daemon ...");
    for (size_t i = t->first; i < n_row && y < y_end; i++, y++) {
        line(t, c, y, json_array_get(t->rows[t->view], i));
        if (i == t->sel && !t->once) {
            top_text(c, y, 0, 0, TOP_SELECTED, ">");
            top_paint(c, y, TOP_SELECTED);
        }
    }
}

/* ---- foot, help, all ----------------------------------------------------- */

static void
keys(const struct top *t, struct top_canvas *c, int y)
{
    int is_paused = json_is_true(json_object_get(t->status, "paused"));
    const char *const what[][2] = { { "q", "quit" }, { "h", "help" }, { "u r c", "views" },
        { "s", "sort" }, { "k", "cancel" }, { "p", is_paused ? "go on" : "pause" },
        { "d", "drain" }, { "space", t->frozen ? "thaw" : "freeze" },
        { "+ -", "interval" }, { "S", "reverse" }, { "D", "drain off" } };
    int x = 1;

    for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
        if (x + (int)(strlen(what[i][0]) + 1 + strlen(what[i][1])) > c->w)
            break;
        x = top_text(c, y, x, 0, TOP_VALUE, what[i][0]);
        x = top_text(c, y, x + 1, 0, TOP_NAME, what[i][1]) + 2;
    }
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
    static const char about[] =
        "tok/s, busy, step, gap, TTFT, ITL: over the last interval; - is none.\n"
        "busy: share of the time in which the model ran; gap: time the device\n"
        "waited between two steps although there was work.";
    int y = 1;

    top_text(c, 0, 1, 0, TOP_HEAD, "fdctl top: keys (any key goes back)");
    top_paint(c, 0, TOP_HEAD);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++, y++) {
        top_text(c, y, 1, 0, TOP_VALUE, lines[i][0]);
        top_text(c, y, c->w >= 80 ? 28 : 10 + (i == 1 ? 18 : 0), 0, TOP_PLAIN, lines[i][1]);
    }
    top_wrapped(c, y + 1, c->h, 1, INT_MAX, TOP_NAME, about);
}

void
top_draw(struct top *t, struct top_canvas *c)
{
    enum top_attr attr = t->ask != NULL ? TOP_SELECTED
        : t->message_bad                ? TOP_BAD
                                        : TOP_GOOD;
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
        charts(t, c, y, c->w - FIGURES_W - 1, CHART_H);
        figures(t, c, y);
        y += TOP_S__N * CHART_H;
    } else {
        narrow(t, c, y);
        y += TOP_S__N + 2;
    }
    /* lines of the message, at most 3, counted by drawing it above the canvas */
    n = top_wrapped(c, -3, 0, 1, c->w - 1, attr, t->message) + 3;
    if (!t->once)
        y_end -= 1 + (n == 0 || n >= y_end - 1 - y - 2 ? 1 : n);
    table(t, c, y, y_end);
    c->dim = 0;
    if (t->once)
        return;
    top_wrapped(c, c->h - 1 - n, c->h - 1, 1, c->w - 1, attr, t->message);
    keys(t, c, c->h - 1);
}
