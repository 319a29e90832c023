/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl top without a terminal: figures, rows, the screen as text, the admin
 * socket that answers late, in pieces or not at all. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/fdctl/top/top.h"

static char buf[300000];

#define NEAR(v, want) assert_true((v) > (want)*0.999 && (v) < (want)*1.001)

/* The canvas as text. */
static const char *
printed(const struct top_canvas *c)
{
    FILE *f = fmemopen(buf, sizeof(buf), "w");

    assert_non_null(f);
    top_canvas_print(c, f);
    fclose(f);
    return buf;
}

static void
shows(const char *text, const char *what)
{
    if (strstr(text, what) == NULL)
        fail_msg("no \"%s\" in:\n%s", what, text);
}

/* ---- figures ------------------------------------------------------------- */

static void
t_numbers(void **state)
{
    static const struct {
        enum top_form form;
        double v;
        const char *want;
    } rows[] = {
        { TOP_COUNT, 0, "0" },
        { TOP_COUNT, 999, "999" },
        { TOP_COUNT, 1000, "1,000" },
        { TOP_COUNT, 9999999, "9,999,999" },
        { TOP_COUNT, 12345678, "12.3M" },
        { TOP_COUNT, 123e9, "123G" },
        { TOP_COUNT, TOP_NONE, "-" },
        { TOP_RATE, 0, "0" },
        { TOP_RATE, 0.44, "0.4" },
        { TOP_RATE, 99.96, "100" },
        { TOP_RATE, 12345.6, "12,346" },
        { TOP_NS, 850, "850 ns" },
        { TOP_NS, 12345, "12.3 us" },
        { TOP_NS, 999600, "1.00 ms" },
        { TOP_NS, 123456789, "123 ms" },
        { TOP_NS, 80e9, "80.0 s" },
        { TOP_SHARE, 0.453, "45 %" },
        { TOP_SHARE, TOP_NONE, "-" },
        { TOP_BYTES, 512, "512 B" },
        { TOP_BYTES, 1536, "1.5 KiB" },
        { TOP_BYTES, 1048575, "1.0 MiB" },
        { TOP_AGE, 1234, "1.2 s" },
        { TOP_AGE, 185000, "3 m 05" },
        { TOP_AGE, 7500000, "2 h 05" },
        { TOP_AGE, 86400e3 * 3, "3 d" },
        { TOP_INT, -12345, "-12345" },
        { TOP_INT, 0, "0" },
    };
    char r[24];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(top_form(rows[i].form, rows[i].v, r), rows[i].want);
}

static void
t_quantile(void **state)
{
    static const uint64_t bound[] = { 10, 20, 40 };
    const struct cnt_hist_row row = { .bound = bound, .n_bound = 3 };
    const uint64_t none[4] = { 0, 0, 0, 0 };
    const uint64_t even[4] = { 10, 0, 10, 0 }, over[4] = { 0, 0, 0, 5 };
    const uint64_t one[4] = { 0, 1, 0, 0 };

    (void)state;
    assert_true(top_quantile(none, &row, 0.5) < 0);
    NEAR(top_quantile(even, &row, 0.5), 10);
    NEAR(top_quantile(even, &row, 0.25), 5);
    NEAR(top_quantile(even, &row, 0.75), 30);
    NEAR(top_quantile(even, &row, 0.99), 39.6);
    NEAR(top_quantile(over, &row, 0.5), 40);
    NEAR(top_quantile(one, &row, 0.5), 15);
}

static void
t_rates(void **state)
{
    static struct cnt_seg a, b;
    struct top_rates r;

    (void)state;
    a.w.steps = 10;
    a.w.generation_tokens = 100;
    a.w.preemptions = 7; /* of a worker that has died */
    a.g.requests_done = 3;
    b = a;
    top_rates(&a, &b, 2, &r);
    assert_true(r.out == 0 && r.busy == 0 && r.step_ns < 0 && r.hit < 0 && r.kv < 0);
    assert_true(r.lat[TOP_L_ITL].p50 < 0 && r.lat[TOP_L_ITL].n == 0);
    b.w.steps += 100;
    b.w.model_ns = 500000000;
    b.w.gap_ns = 1000000;
    b.w.generation_tokens += 400;
    b.w.prompt_tokens = 60;
    b.w.cached_tokens = 20;
    b.w.prefix_lookups = 8;
    b.w.prefix_hits = 2;
    b.w.kv_blocks_used = 30;
    b.w.kv_blocks_total = 120;
    b.w.steps_graph = 75;
    b.w.steps_eager = 25;
    b.w.step_seqs = 250;
    b.w.batch_seqs = 40; /* the last step says nothing about the others */
    b.w.preemptions = 1;
    b.g.requests_done = 13;
    b.h[CNT_H_itl].bucket[0] = 99;
    b.h[CNT_H_step_tokens].sum = 460;
    top_rates(&a, &b, 2, &r);
    NEAR(r.out, 200);
    NEAR(r.in, 40);
    NEAR(r.in_cached, 10);
    NEAR(r.steps, 50);
    NEAR(r.busy, 0.25);
    NEAR(r.step_ns, 5e6);
    NEAR(r.gap_ns, 1e4);
    NEAR(r.batch_tokens, 4.6);
    NEAR(r.batch_seqs, 2.5);
    NEAR(r.graph, 0.75);
    NEAR(r.hit, 0.25);
    NEAR(r.kv, 0.25);
    NEAR(r.done, 5);
    assert_true(r.preempted == 0);
    assert_true(r.lat[TOP_L_ITL].n == 99);
    NEAR(r.lat[TOP_L_ITL].p50, 25000);
    b.w.model_ns = 9000000000u;
    top_rates(&a, &b, 2, &r);
    assert_true(r.busy == 1);
    top_rates(&b, &b, 0, &r); /* no time has passed */
    assert_true(r.out < 0 && r.busy < 0 && r.kv < 0 && r.lat[TOP_L_ITL].n < 0);
}

static void
t_history(void **state)
{
    static struct top_history h;
    struct top t = { .r = { .out = 1, .in = 2, .busy = 0.25, .kv = 0.5 } };

    (void)state;
    assert_true(top_history_max(&h, 10) == 0);
    for (size_t i = 0; i < TOP_HISTORY + 5; i++)
        top_history_add(&h, (double)i);
    NEAR(top_history_max(&h, 3), (double)TOP_HISTORY + 4);
    top_history_add(&h, TOP_NONE);
    NEAR(top_history_max(&h, 2), (double)TOP_HISTORY + 4);
    assert_true(top_history_max(&h, 1) == 0);
    /* the oldest ones are left out */
    h.v[(h.n - 1) % TOP_HISTORY] = 9999;
    NEAR(top_history_max(&h, TOP_HISTORY), 9999);
    for (size_t i = 0; i < TOP_HISTORY; i++)
        top_history_add(&h, 1);
    NEAR(top_history_max(&h, 2 * TOP_HISTORY), 1);
    top_remember(&t);
    NEAR(top_history_max(&t.hist[TOP_S_OUT], 9), 1);
    NEAR(top_history_max(&t.hist[TOP_S_IN], 9), 2);
    NEAR(top_history_max(&t.hist[TOP_S_BUSY], 9), 0.25);
    NEAR(top_history_max(&t.hist[TOP_S_KV], 9), 0.5);
}

/* ---- canvas -------------------------------------------------------------- */

static void
t_text(void **state)
{
    struct top_canvas c;

    (void)state;
    assert_int_equal(top_canvas_init(&c, 10, 2, 1), 0);
    assert_int_equal(top_text(&c, 0, 0, 0, TOP_PLAIN, "a\033[2J\x7f"), 6);
    assert_string_equal(printed(&c), "a?[2J?\n");
    assert_int_equal(top_text(&c, 1, 8, 0, TOP_PLAIN, "xyz"), 10);
    assert_int_equal(top_text(&c, 1, 0, 3, TOP_PLAIN, "abcdef"), 3);
    assert_string_equal(printed(&c), "a?[2J?\nabc     xy\n");
    assert_int_equal(top_text(&c, 2, 0, 0, TOP_PLAIN, "out"), 0);
    assert_int_equal(top_text(&c, -1, 0, 0, TOP_PLAIN, "out"), 0);
    /* broken UTF-8: overlong, cut, lone; a mark for each byte */
    assert_int_equal(top_text(&c, 0, 0, 0, TOP_PLAIN,
                         "\xc0\x80\xe2\x82"
                         "a\xff"),
        6);
    shows(printed(&c), "????a?");
    free(c.cell);
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        return;
    assert_int_equal(top_canvas_init(&c, 5, 1, 1), 0);
    /* two columns each: the third has no room; a combining mark takes none */
    assert_int_equal(top_text(&c, 0, 0, 0, TOP_PLAIN, "\u4e16\u754c\u4eba"), 4);
    assert_string_equal(printed(&c), "\u4e16\u754c\n");
    assert_int_equal(top_width("\u4e16e\u0301"), 3);
    free(c.cell);
    assert_int_equal(top_canvas_init(&c, 5, 1, 0), 0);
    assert_int_equal(top_text(&c, 0, 0, 0, TOP_PLAIN, "\u4e16a"), 2);
    assert_string_equal(printed(&c), "?a\n");
    free(c.cell);
}

static void
t_pictures(void **state)
{
    static const struct top_history s = { { 0, 1, 2, 4, -1, 8 }, 6 }; /* newest: 8 */
    struct top_canvas c;

    (void)state;
    assert_int_equal(top_canvas_init(&c, 8, 3, 1), 0);
    top_chart(&c, 0, 0, 8, 1, &s, 8);
    assert_string_equal(printed(&c), "  \u2581\u2581\u2582\u2584 \u2588\n");
    top_chart(&c, 0, 0, 8, 4, &s, 8); /* does not fit: not drawn */
    assert_string_equal(printed(&c), "  \u2581\u2581\u2582\u2584 \u2588\n");
    top_bar(&c, 1, 0, 6, 0.5);
    shows(printed(&c), "[\u2588\u2588\u00b7\u00b7]");
    top_bar(&c, 1, 0, 6, 0.001);
    shows(printed(&c), "[\u258f\u00b7\u00b7\u00b7]");
    top_bar(&c, 1, 0, 6, 7);
    shows(printed(&c), "[\u2588\u2588\u2588\u2588]");
    free(c.cell);
    assert_int_equal(top_canvas_init(&c, 6, 3, 0), 0);
    top_chart(&c, 0, 0, 3, 2, &s, 8);
    assert_string_equal(printed(&c), "  #\n# #\n");
    top_bar(&c, 2, 0, 6, 0.5);
    shows(printed(&c), "[##..]");
    free(c.cell);
}

/* ---- rows ---------------------------------------------------------------- */

static json_t *
requests_of(const char *text, const json_t *old, double secs)
{
    json_t *o = json_loads(text, 0, NULL), *r;

    assert_non_null(o);
    r = top_rows_requests(o, old, secs);
    assert_non_null(r);
    json_decref(o);
    return r;
}

static long long
num(const json_t *rows, size_t i, const char *key)
{
    return fct_num(json_array_get(rows, i), key);
}

static double
real(const json_t *rows, size_t i, const char *key)
{
    return fct_real(json_array_get(rows, i), key);
}

static const char three[] =
    "{\"requests\":["
    "{\"id\":7,\"session\":1,\"user\":\"bea\",\"client\":\"x\",\"state\":\"running\","
    "\"n\":2,\"output_tokens\":50,\"max_new\":100,\"age_ms\":1000,\"priority\":-3,"
    "\"cost\":90},"
    "{\"id\":5,\"session\":2,\"user\":\"al\",\"client\":\"y\",\"state\":\"queued\","
    "\"output_tokens\":0,\"max_new\":0,\"age_ms\":3000,\"priority\":0,\"cost\":40},"
    "{\"id\":9,\"session\":2,\"user\":\"al\",\"client\":\"y\",\"state\":\"running\","
    "\"output_tokens\":10,\"max_new\":20,\"age_ms\":500,\"priority\":2,\"cost\":30}]}";

static void
t_rows(void **state)
{
    json_t *a, *b, *c, *u, *o;

    (void)state;
    a = requests_of(three, NULL, 0);
    assert_int_equal(json_array_size(a), 3);
    NEAR(real(a, 0, "rate"), 50); /* over its age */
    NEAR(real(a, 0, "share"), 0.25);
    assert_true(
        real(a, 1, "rate") < 0 && real(a, 1, "share") < 0 && num(a, 1, "queued") == 1);
    /* over the time since */
    b = requests_of("{\"requests\":[{\"id\":7,\"output_tokens\":90,\"age_ms\":3000},"
                    "{\"id\":8,\"output_tokens\":5,\"age_ms\":1000}]}",
        a, 2);
    NEAR(real(b, 0, "rate"), 20);
    NEAR(real(b, 1, "rate"), 5);
    o = json_loads("{\"clients\":[{\"session\":2,\"user\":\"al\",\"name\":\"y\","
                   "\"requests_total\":11},{\"session\":4,\"user\":\"cy\",\"name\":\"z\"}]}",
        0, NULL);
    c = top_rows_clients(o, a);
    assert_int_equal(json_array_size(c), 2);
    assert_int_equal(num(c, 0, "running"), 1);
    assert_int_equal(num(c, 0, "queued"), 1);
    NEAR(real(c, 0, "rate"), 20);
    u = top_rows_users(a, c);
    assert_int_equal(json_array_size(u), 3);
    assert_string_equal(fct_str(json_array_get(u, 0), "user"), "al");
    assert_int_equal(num(u, 0, "sessions"), 1);
    assert_int_equal(num(u, 0, "age_ms"), 3000);
    assert_int_equal(num(u, 0, "cost"), 40);
    assert_int_equal(num(u, 0, "requests_total"), 11);
    assert_string_equal(fct_str(json_array_get(u, 2), "user"),
        "bea"); /* its session has gone */
    assert_int_equal(num(u, 2, "sessions"), 0);
    json_decref(o);
    /* what is no list, and fields of another kind */
    json_decref(b);
    b = requests_of("{\"requests\":{\"id\":1}}", a, 1);
    assert_int_equal(json_array_size(b), 0);
    json_decref(b);
    b = requests_of("{\"requests\":[7,{\"id\":\"x\",\"user\":5}]}", a, 1);
    assert_int_equal(json_array_size(b), 2);
    assert_string_equal(fct_str(json_array_get(b, 1), "user"), "");
    json_decref(a);
    json_decref(b);
    json_decref(c);
    json_decref(u);
}

static const struct top_col *
col(enum top_view view, const char *name)
{
    const struct top_col *c = top_tables[view].cols;

    while (c->name != NULL && strcmp(c->name, name) != 0)
        c++;
    assert_non_null(c->name);
    return c;
}

static void
order_is(json_t *rows, const char *by, int reverse, int64_t a, int64_t b, int64_t c)
{
    top_rows_sort(rows, col(TOP_V_REQUESTS, by), reverse);
    assert_int_equal(num(rows, 0, "id"), a);
    assert_int_equal(num(rows, 1, "id"), b);
    assert_int_equal(num(rows, 2, "id"), c);
}

static void
t_sort(void **state)
{
    json_t *none = json_array(), *r = requests_of(three, none, 0);

    (void)state;
    order_is(r, "ID", 0, 5, 7, 9);
    order_is(r, "ID", 1, 9, 7, 5);
    order_is(r, "USER", 0, 5, 9, 7); /* equal ones by id */
    order_is(r, "TOK/S", 0, 7, 9, 5);
    order_is(r, "AGE", 0, 5, 7, 9);
    order_is(r, "AGE", 1, 9, 7, 5);
    order_is(r, "PRI", 0, 7, 5, 9);
    order_is(r, "OF MAX", 0, 9, 7, 5);
    top_rows_sort(none, col(TOP_V_USERS, "RUN"), 0);
    json_decref(none);
    json_decref(r);
}

/* ---- the screen ---------------------------------------------------------- */

static struct top *
busy_top(void)
{
    static const char clients[] = "{\"clients\":[{\"session\":2,\"user\":\"al\","
                                  "\"name\":\"y\"}]}";
    static struct top all;
    struct top *t = &all;
    json_t *o = json_loads(clients, 0, NULL);
    int i;

    memset(t, 0, sizeof(*t));
    strcpy(t->raw.model, "demo-7b");
    t->raw.gate_pid = 4321;
    t->interval = 1;
    t->view = TOP_V_REQUESTS;
    t->t_rows = 1;
    strcpy(t->clock, "14:02:11");
    t->r = (struct top_rates){ .out = 12345,
        .in = 678,
        .busy = 0.87,
        .kv = 0.45,
        .hit = 0.83,
        .step_ns = 1.2e6,
        .gap_ns = 5000,
        .batch_seqs = 16,
        .errors = 0.5,
        .lat = { { 12.3e6, 2e7, 45.6e6, 12 }, { 1.2e6, 2e6, 3.4e6, 99 } } };
    t->raw.w.requests_running = 16;
    t->raw.w.requests_waiting = 3;
    t->raw.g.requests_queued = 1234;
    t->raw.g.requests_error = 5;
    t->raw.w.kv_blocks_used = 460;
    t->raw.w.kv_blocks_total = 1024;
    t->raw.w.preemptions = 2;
    t->status = json_pack("{s:s, s:s, s:{s:s}}", "version", "0.1.0", "state", "running",
        "worker", "phase", "ready");
    for (i = 0; i < 100; i++)
        top_remember(t);
    t->rows[TOP_V_REQUESTS] = requests_of(three, NULL, 0);
    t->rows[TOP_V_CLIENTS] = top_rows_clients(o, t->rows[TOP_V_REQUESTS]);
    t->rows[TOP_V_USERS] = top_rows_users(t->rows[TOP_V_REQUESTS], t->rows[TOP_V_CLIENTS]);
    json_decref(o);
    return t;
}

static void
set(struct top *t, const char *of, const char *key, json_t *value)
{
    json_t *o = of != NULL ? json_object_get(t->status, of) : t->status;

    assert_int_equal(json_object_set_new(o, key, value), 0);
}

static void
free_top(struct top *t)
{
    json_decref(t->status);
    json_decref(t->followed);
    for (int i = 0; i < TOP_V__N; i++)
        json_decref(t->rows[i]);
}

static const char *
drawn(struct top *t, int w, int h)
{
    struct top_canvas c;

    assert_int_equal(top_canvas_init(&c, w, h, 0), 0);
    top_draw(t, &c);
    printed(&c);
    free(c.cell);
    return buf;
}

static void
t_layout(void **state)
{
    static const char *const always[] = { "out tok/s", "12,345", "in tok/s", "678",
        "busy", "87 %", "KV use", "45 %", "running 16", "waiting 3", "queued 1,234",
        "TTFT", "12.3 ms", "45.6 ms", "ITL", "3.40 ms", "step 1.20 ms", "gap 5.00 us",
        "batch 16", "hit rate 83 %", "460 of 1,024 blocks", "errors 5 (0.5/s)",
        "preempted 2", "demo-7b", "0.1.0", "running", "q quit", "TOK/S" };
    static const int sizes[][2] = { { 60, 12 }, { 60, 24 }, { 76, 13 }, { 80, 24 },
        { 100, 30 }, { 130, 30 }, { 131, 29 }, { 200, 50 }, { 300, 100 } };
    struct top *t = busy_top();
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const char *text = drawn(t, sizes[i][0], sizes[i][1]);

        for (k = 0; k < sizeof(always) / sizeof(always[0]); k++)
            if (strstr(text, always[k]) == NULL)
                fail_msg("%dx%d: no \"%s\" in:\n%s", sizes[i][0], sizes[i][1], always[k],
                    text);
        shows(text, "queued ");
    }
    shows(drawn(t, 80, 24), "requests 3, by ID");
    shows(drawn(t, 80, 24), "worker ready");
    shows(drawn(t, 200, 50), "E2E");
    shows(drawn(t, 59, 12), "59x12 is too small: 60x12 at least");
    shows(drawn(t, 80, 11), "80x11 is too small");
    t->view = TOP_V_USERS;
    shows(drawn(t, 80, 24), "OLDEST");
    t->view = TOP_V_CLIENTS;
    shows(drawn(t, 80, 24), "SESSION");
    free_top(t);
}

/* Any size, whatever is to be said, stays within its lines. */
static void
t_every_size(void **state)
{
    struct top *t = busy_top();
    char user[300] = "", state_text[300] = "";
    int w, h, i;

    (void)state;
    memset(t->message, 'm', sizeof(t->message) - 1);
    memset(t->deny, 0, sizeof(t->deny));
    t->raw.g.requests_error = t->raw.w.requests_running = UINT64_MAX;
    json_object_set_new(json_array_get(t->rows[TOP_V_REQUESTS], 0), "id",
        json_integer(INT64_MAX));
    memset(user, 'u', sizeof(user) - 1);
    json_object_set_new(json_array_get(t->rows[TOP_V_REQUESTS], 1), "user",
        json_string(user));
    memset(state_text, 's', sizeof(state_text) - 1);
    set(t, NULL, "state", json_string(state_text));
    for (w = 1; w <= 220; w += 7)
        for (h = 1; h <= 60; h += 5)
            for (i = 0; i < 8; i++) {
                const char *p;

                t->view = i % TOP_V__N;
                t->help = i == 3;
                t->gone = i == 4;
                t->once = i == 5;
                if (i == 6)
                    memset(t->deny, 'd', sizeof(t->deny) - 1);
                else
                    t->deny[0] = '\0';
                for (p = drawn(t, w, h); *p != '\0'; p += strcspn(p, "\n") + 1)
                    if (strcspn(p, "\n") > (size_t)w)
                        fail_msg("%dx%d: wider", w, h);
            }
    free_top(t);
}

static void
t_notices(void **state)
{
    struct top *t = busy_top();
    const char *text;

    (void)state;
    t->frozen = 1;
    shows(drawn(t, 80, 24), "frozen at 14:02:11; space goes on");
    shows(drawn(t, 80, 24), "space thaw");
    t->frozen = 0;
    set(t, NULL, "paused", json_true());
    shows(drawn(t, 80, 24), "paused: requests are queued, none is started");
    shows(drawn(t, 80, 24), "p go on");
    set(t, NULL, "state", json_string("draining"));
    set(t, NULL, "paused", json_false());
    shows(drawn(t, 80, 24), "draining: new requests are refused");
    set(t, "worker", "phase", json_string("loading"));
    set(t, "worker", "load_percent", json_integer(42));
    shows(drawn(t, 80, 24), "worker loading, 42 %");
    set(t, "worker", "phase", json_string("none"));
    set(t, "worker", "last_death", json_string("ended by signal 9 (Killed)"));
    set(t, "worker", "restart_in_ms", json_integer(1500));
    shows(drawn(t, 80, 24),
        "the worker died (ended by signal 9 (Killed)), a new one "
        "starts in 1.5 s");
    set(t, "worker", "restart_in_ms", json_integer(0));
    set(t, "worker", "deaths", json_integer(3));
    shows(drawn(t, 80, 24), "no worker; 3 died before");
    set(t, "worker", "error", json_string("no such model"));
    set(t, "worker", "fix", json_string("set model.path"));
    shows(drawn(t, 80, 24), "worker none: no such model; set model.path");
    t->silent = 7;
    text = drawn(t, 80, 24);
    shows(text, "!! the daemon (pid 4321) has not moved for 7 s");
    shows(text, "silent");
    t->gone = 1;
    text = drawn(t, 80, 24);
    shows(text, "!! the daemon (pid 4321) has ended");
    shows(text, "12,345"); /* its last figures stay */
    shows(text, "waiting for a new one");
    free_top(t);
}

/* Select the request of this id. */
static void
follow(struct top *t, int64_t id)
{
    json_t *row = json_pack("{s:I}", "id", (json_int_t)id);

    top_follow(t, row);
    top_select(t);
    json_decref(row);
}

static void
t_table(void **state)
{
    struct top *t = busy_top();
    const json_t *r;
    const char *text;

    (void)state;
    follow(t, 7);
    r = top_selected(t);
    assert_int_equal(top_row_id(r), 7);
    shows(drawn(t, 80, 24), "\n>       7 bea");
    /* it follows when the order changes, and on a screen with one row */
    t->reverse[TOP_V_REQUESTS] = 1;
    follow(t, 5);
    assert_int_equal(t->sel, 2);
    shows(drawn(t, 60, 12), "\n>       5 al");
    assert_int_equal(t->page, 1);
    assert_int_equal(t->first, 2);
    /* it ends: the last one */
    json_array_remove(t->rows[TOP_V_REQUESTS], 2);
    top_select(t);
    assert_int_equal(top_row_id(top_selected(t)), 7);
    json_array_clear(t->rows[TOP_V_REQUESTS]);
    top_select(t);
    assert_null(top_selected(t));
    shows(drawn(t, 80, 24), "no requests");
    strcpy(t->deny,
        "user x may not use \"requests\": that takes group fdd-admin\n"
        "fix: sudo usermod -aG fdd-admin x");
    text = drawn(t, 80, 24);
    shows(text, "that takes group fdd-admin\n");
    shows(text, "    fix: sudo usermod -aG fdd-admin x\n");
    shows(text, "12,345");
    strcpy(t->message,
        "an answer of the daemon that is longer than a line of a terminal "
        "with eighty columns can be");
    text = drawn(t, 80, 24);
    shows(text, " columns can be\n q quit");
    free_top(t);
}

/* ---- admin socket -------------------------------------------------------- */

static struct {
    int n;
    char cmd[16], text[200], why[200];
} heard;

static void
on_answer(void *arg, const char *cmd, const json_t *answer, const char *why)
{
    (void)arg;
    heard.n++;
    snprintf(heard.cmd, sizeof(heard.cmd), "%s", cmd);
    snprintf(heard.text, sizeof(heard.text), "%s",
        answer != NULL ? json_string_value(json_object_get(answer, "a")) : "");
    snprintf(heard.why, sizeof(heard.why), "%s", why != NULL ? why : "");
}

static int
listen_at(const char *path)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static void
reply(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void
heard_is(int n, const char *cmd, const char *text, const char *why)
{
    assert_int_equal(heard.n, n);
    assert_string_equal(heard.cmd, cmd);
    assert_string_equal(heard.text, text);
    shows(heard.why, why);
}

static void
t_link(void **state)
{
    char dir[] = "/tmp/u_top.XXXXXX", path[64], got[256];
    struct top_link l;
    struct pollfd p;
    int lfd, fd;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/s", dir);
    top_link_init(&l, path, on_answer, NULL);
    /* no request and no client */
    assert_int_equal(top_link_ask(&l, fct_question("x")), 0);
    top_link_step(&l, 1);
    heard_is(1, "x", "", "No such file");
    assert_int_equal(l.failed, ENOENT);
    assert_int_equal(json_object_size(l.q), 0);
    /* two questions, the answers in pieces */
    lfd = listen_at(path);
    assert_int_equal(top_link_ask(&l, fct_question("x")), 0);
    assert_int_equal(top_link_ask(&l, fct_question("x")), -EEXIST);
    assert_int_equal(top_link_ask(&l, fct_question("y")), 0);
    assert_int_equal(top_link_wait(&l, 5, 1000, &p), 0);
    top_link_step(&l, 5);
    fd = accept(lfd, NULL, NULL);
    assert_int_equal(top_link_wait(&l, 5, 1000, &p), 1000);
    assert_int_equal(p.fd, l.admin.fd);
    reply(fd, "{\"a\":");
    top_link_step(&l, 6);
    assert_int_equal(heard.n, 1);
    reply(fd, "\"one\"}\n");
    top_link_step(&l, 7);
    heard_is(2, "x", "one", "");
    assert_int_equal(recv(fd, got, sizeof(got), 0), 2 * 12);
    reply(fd, "{\"a\":\"two\"}\n");
    top_link_step(&l, 8);
    heard_is(3, "y", "two", "");
    /* silence: both are over after a second, and another connection is made */
    (void)top_link_ask(&l, fct_question("x"));
    (void)top_link_ask(&l, fct_question("y"));
    top_link_step(&l, 10);
    top_link_step(&l, TOP_ASK_NS);
    assert_int_equal(heard.n, 3);
    assert_int_equal(top_link_wait(&l, TOP_ASK_NS, 1000, &p), 10);
    top_link_step(&l, TOP_ASK_NS + 10);
    heard_is(5, "y", "", "did not answer within 1 s");
    close(fd);
    (void)top_link_ask(&l, fct_question("x"));
    top_link_step(&l, 1);
    fd = accept(lfd, NULL, NULL);
    reply(fd, "nonsense\n");
    top_link_step(&l, 2);
    heard_is(6, "x", "", "no JSON object");
    close(fd);
    (void)top_link_ask(&l, fct_question("x"));
    top_link_step(&l, 1);
    close(accept(lfd, NULL, NULL));
    top_link_step(&l, 2);
    heard_is(7, "x", "", "");
    assert_true(heard.why[0] != '\0');
    (void)top_link_ask(&l, fct_question("x"));
    top_link_fini(&l); /* without an answer */
    assert_int_equal(heard.n, 7);
    close(lfd);
    unlink(path);
    rmdir(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_numbers),
        cmocka_unit_test(t_quantile),
        cmocka_unit_test(t_rates),
        cmocka_unit_test(t_history),
        cmocka_unit_test(t_text),
        cmocka_unit_test(t_pictures),
        cmocka_unit_test(t_rows),
        cmocka_unit_test(t_sort),
        cmocka_unit_test(t_layout),
        cmocka_unit_test(t_every_size),
        cmocka_unit_test(t_notices),
        cmocka_unit_test(t_table),
        cmocka_unit_test(t_link),
    };

    (void)setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
