/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

/* ---- figures of an interval -------------------------------------------------------- */

double
top_quantile(const uint64_t *bucket, const struct cnt_hist_row *row, double q)
{
    return fmin(cnt_hist_quantile(row, bucket, q), (double)row->bound[row->n_bound - 1]);
}

static double
per(double v, double by)
{
    return by > 0 ? v / by : TOP_NONE;
}

#define GREW(counter) \
    (now->counter > old->counter ? (double)(now->counter - old->counter) : 0)

void
top_rates(const struct cnt_seg *old, const struct cnt_seg *now, double secs,
    struct top_rates *ret)
{
    static const enum cnt_hist_idx which[TOP_L__N] = { CNT_H_ttft, CNT_H_itl, CNT_H_tpot,
        CNT_H_queue, CNT_H_e2e };
    double steps = GREW(w.steps), model_ns = GREW(w.model_ns);
    double cached = GREW(w.cached_tokens), graph = GREW(w.steps_graph);
    uint64_t delta[CNT_MAX_BUCKET];

    ret->in_cached = per(cached, secs);
    ret->in = per(cached + GREW(w.prompt_tokens), secs);
    ret->out = per(GREW(w.generation_tokens), secs);
    ret->steps = per(steps, secs);
    ret->busy = fmin(per(model_ns / 1e9, secs), 1); /* a step counts where it ends */
    ret->step_ns = per(model_ns, steps);
    ret->gap_ns = per(GREW(w.gap_ns), steps);
    ret->batch_seqs = per(GREW(w.step_seqs), steps);
    ret->batch_tokens = per(GREW(h[CNT_H_step_tokens].sum), steps);
    ret->graph = per(graph, graph + GREW(w.steps_eager));
    ret->kv = secs > 0 ? per((double)now->w.kv_blocks_used, (double)now->w.kv_blocks_total)
                       : TOP_NONE;
    ret->hit = per(GREW(w.prefix_hits), GREW(w.prefix_lookups));
    ret->done = per(GREW(g.requests_done), secs);
    ret->errors = per(GREW(g.requests_error), secs);
    ret->rejected = per(GREW(g.requests_rejected), secs);
    ret->cancelled = per(GREW(w.cancelled), secs);
    ret->preempted = per(GREW(w.preemptions), secs);
    ret->evicted = per(GREW(w.prefix_evictions), secs);
    for (int i = 0; i < TOP_L__N; i++) {
        const struct cnt_hist_row *row = cnt_hist_row(which[i]);
        struct top_quant *q = &ret->lat[i];

        for (uint32_t k = 0; k < CNT_MAX_BUCKET; k++)
            delta[k] = (uint64_t)GREW(h[which[i]].bucket[k]);
        q->n = secs > 0 ? (double)cnt_hist_count(row, delta) : TOP_NONE;
        q->p50 = top_quantile(delta, row, 0.5);
        q->p90 = top_quantile(delta, row, 0.9);
        q->p99 = top_quantile(delta, row, 0.99);
    }
}

/* ---- answers: rows are the daemon's objects with further members ----------------- */

int64_t
top_row_id(const json_t *row)
{
    return fct_num(row, json_object_get(row, "id") != NULL ? "id" : "session");
}

/* Add row, unless NULL, to the index under this id. Returns the id's row. */
static json_t *
by_id(json_t *ix, long long id, json_t *row)
{
    char key[24];

    snprintf(key, sizeof(key), "%lld", id);
    if (row != NULL)
        json_object_set(ix, key, row);
    return json_object_get(ix, key);
}

json_t *
top_rows_requests(const json_t *answer, const json_t *old, double secs)
{
    json_t *rows = json_array(), *ix = json_object(), *o, *row, *was;
    size_t i;

    json_array_foreach(old, i, o)
        (void)by_id(ix, top_row_id(o), o);
    json_array_foreach(json_object_get(answer, "requests"), i, o) {
        int is_queued = strcmp(fct_str(o, "state"), "queued") == 0;
        double out = fct_real(o, "output_tokens"), age_ms = fct_real(o, "age_ms");
        double max = fct_real(o, "max_new") * fmax(fct_real(o, "n"), 1);
        double rate = TOP_NONE, more;

        row = json_is_object(o) ? json_copy(o) : json_object();
        json_array_append_new(rows, row);
        json_object_set_new(row, is_queued ? "queued" : "running", json_integer(1));
        /* tokens per second since the old row, or since submission if it is new */
        was = by_id(ix, top_row_id(row), NULL);
        more = out - fct_real(was, "output_tokens");
        if (!is_queued && was != NULL && secs > 0 && more >= 0)
            rate = more / secs;
        else if (!is_queued && age_ms > 0)
            rate = out * 1e3 / age_ms;
        json_object_set_new(row, "rate", json_real(rate));
        json_object_set_new(row, "share", json_real(max > 0 ? out / max : TOP_NONE));
    }
    json_decref(ix);
    return rows;
}

/* Add a request's figures to a session's or a user's row, which may be NULL. */
static void
take(json_t *row, const json_t *q)
{
    static const char *const sums[] = { "running", "queued", "prompt_tokens",
        "output_tokens" };
    double more = fct_real(q, "rate");

    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
        fct_add_num(row, sums[i], fct_num(q, sums[i]));
    if (more >= 0)
        json_object_set_new(row, "rate", json_real(fmax(fct_real(row, "rate"), 0) + more));
}

json_t *
top_rows_clients(const json_t *answer, const json_t *requests)
{
    json_t *rows = json_array(), *ix = json_object(), *o, *row;
    size_t i;

    json_array_foreach(json_object_get(answer, "clients"), i, o) {
        row = json_is_object(o) ? json_copy(o) : json_object();
        json_array_append_new(rows, row);
        json_object_set_new(row, "rate", json_real(TOP_NONE));
        (void)by_id(ix, top_row_id(row), row);
    }
    json_array_foreach(requests, i, o)
        take(by_id(ix, fct_num(o, "session"), NULL), o);
    json_decref(ix);
    return rows;
}

json_t *
top_rows_users(const json_t *requests, const json_t *clients)
{
    const json_t *const lists[] = { clients, requests };
    json_t *by_user = json_object(), *rows = json_array(), *o, *row;
    const char *user;
    size_t i;

    for (int k = 0; k < 2; k++)
        json_array_foreach(lists[k], i, o) {
            user = fct_str(o, "user");
            if (json_object_get(by_user, user) == NULL)
                json_object_set_new(by_user, user,
                    json_pack("{s:s, s:f}", "user", user, "rate", TOP_NONE));
            row = json_object_get(by_user, user);
            json_object_set_new(row, "weight", json_integer(fct_num(o, "weight")));
            if (k == 0) {
                fct_add_num(row, "sessions", 1);
                fct_add_num(row, "requests_total", fct_num(o, "requests_total"));
                continue;
            }
            take(row, o);
            if (fct_num(o, "queued") != 0)
                fct_add_num(row, "cost", fct_num(o, "cost"));
            if (fct_num(o, "age_ms") > fct_num(row, "age_ms"))
                json_object_set(row, "age_ms", json_object_get(o, "age_ms"));
        }
    json_object_foreach(by_user, user, row)
        json_array_append(rows, row);
    json_decref(by_user);
    return rows;
}

/* ---- columns and order --------------------------------------------------- */

static const struct top_col user_cols[] = { { "USER", TOP_TEXT, "user", 14, 0 },
    { "CLIENTS", TOP_COUNT, "sessions", 7, 0 }, { "RUN", TOP_COUNT, "running", 6, 0 },
    { "QUEUED", TOP_COUNT, "queued", 6, 0 },
    { "PROMPT", TOP_COUNT, "prompt_tokens", 9, 72 },
    { "OUTPUT", TOP_COUNT, "output_tokens", 9, 72 }, { "TOK/S", TOP_RATE, "rate", 8, 0 },
    { "OLDEST", TOP_AGE, "age_ms", 7, 0 }, { "WEIGHT", TOP_COUNT, "weight", 6, 110 },
    { "QUEUED TOK", TOP_COUNT, "cost", 10, 110 },
    { "TOTAL", TOP_COUNT, "requests_total", 9, 110 }, { .name = NULL } };
static const struct top_col request_cols[] = { { "ID", TOP_INT, "id", 8, 0 },
    { "USER", TOP_TEXT, "user", 9, 0 }, { "CLIENT", TOP_TEXT, "client", 9, 78 },
    { "STATE", TOP_TEXT, "state", 7, 0 }, { "PROMPT", TOP_COUNT, "prompt_tokens", 7, 0 },
    { "OUTPUT", TOP_COUNT, "output_tokens", 7, 0 }, { "TOK/S", TOP_RATE, "rate", 6, 0 },
    { "AGE", TOP_AGE, "age_ms", 7, 0 }, { "PRI", TOP_INT, "priority", 4, 72 },
    { "OF MAX", TOP_SHARE, "share", 16, 110 }, { "MAX", TOP_COUNT, "max_new", 7, 100 },
    { "N", TOP_COUNT, "n", 3, 120 }, { "COST", TOP_COUNT, "cost", 8, 130 },
    { "WEIGHT", TOP_COUNT, "weight", 6, 140 }, { "SESSION", TOP_INT, "session", 8, 150 },
    { "PID", TOP_INT, "pid", 9, 160 }, { "OP", TOP_TEXT, "op", 10, 170 },
    { .name = NULL } };
static const struct top_col client_cols[] = { { "SESSION", TOP_INT, "session", 8, 0 },
    { "USER", TOP_TEXT, "user", 10, 0 }, { "CLIENT", TOP_TEXT, "name", 10, 0 },
    { "PID", TOP_INT, "pid", 9, 90 }, { "RUN", TOP_COUNT, "running", 5, 0 },
    { "QUEUED", TOP_COUNT, "queued", 6, 0 },
    { "TOTAL", TOP_COUNT, "requests_total", 8, 72 }, { "TOK/S", TOP_RATE, "rate", 6, 0 },
    { "HELD", TOP_COUNT, "held_records", 5, 100 }, { "AGE", TOP_AGE, "age_ms", 7, 0 },
    { "STATE", TOP_TEXT, "state", 7, 80 }, { "WEIGHT", TOP_COUNT, "weight", 6, 110 },
    { .name = NULL } };

const struct top_table top_tables[TOP_V__N] = {
    { "users", "user", user_cols, "select a request (r) or a client (c) to cancel" },
    { "requests", "id", request_cols, "cancel request {id} of {user} ({client})? y/n" },
    { "clients", "session", client_cols,
        "cancel all {running+queued} requests of session {session}, {name} of {user}? y/n" }
};

struct order {
    const struct top_col *col;
    int sign;
};

static int
compare(const void *a, const void *b, void *arg)
{
    const json_t *p = *(const json_t *const *)a, *q = *(const json_t *const *)b;
    const struct order *o = arg;
    const char *key = o->col->key;
    double u = fct_real(p, key), v = fct_real(q, key);
    long long i = top_row_id(p), k = top_row_id(q);
    int d = (u > v) - (u < v);

    if (o->col->form == TOP_TEXT)
        d = strcmp(fct_str(p, key), fct_str(q, key));
    if (d != 0)
        return o->sign * d;
    return i != k ? (i < k ? -1 : 1) : strcmp(fct_str(p, "user"), fct_str(q, "user"));
}

void
top_rows_sort(json_t *rows, const struct top_col *col, int reverse)
{
    struct order o = { col, TOP_IS_DOWN(col) != reverse ? -1 : 1 };

    fct_sort(rows, compare, &o);
}

/* ---- the row selected ---------------------------------------------------- */

const json_t *
top_selected(const struct top *t)
{
    return json_array_get(t->rows[t->view], t->sel);
}

void
top_follow(struct top *t, const json_t *row)
{
    json_decref(t->followed);
    t->followed = json_incref(json_object_get(row, top_tables[t->view].key));
}

void
top_select(struct top *t)
{
    const struct top_table *table = &top_tables[t->view];
    json_t *rows = t->rows[t->view], *r;
    size_t i, n = json_array_size(rows);

    top_rows_sort(rows, &table->cols[t->sort[t->view]], t->reverse[t->view]);
    json_array_foreach(rows, i, r) {
        if (json_equal(json_object_get(r, table->key), t->followed)) {
            t->sel = i;
            return;
        }
    }
    /* It has ended: select the row in its place. */
    top_follow(t, NULL);
    if (t->sel >= n)
        t->sel = n > 0 ? n - 1 : 0;
}
