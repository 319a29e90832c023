/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"

/* ---- answers ------------------------------------------------------------- */

static void
text(const json_t *o, const char *key, char *ret, size_t ret_bytes)
{
    const char *s = json_string_value(json_object_get(o, key));

    snprintf(ret, ret_bytes, "%s", s != NULL ? s : "");
    ret[txt_utf8(ret, strlen(ret))] = '\0'; /* not in the middle of a character */
}

static struct top_row *
add(struct top_rows *rows)
{
    struct top_row *r;

    if (fct_room(&rows->row, rows->n + 1, &rows->cap, sizeof(*r)) != 0)
        return NULL;
    r = &rows->row[rows->n++];
    memset(r, 0, sizeof(*r));
    r->rate = r->share = TOP_NONE;
    return r;
}

void
top_rows_free(struct top_rows *rows)
{
    free(rows->row);
    memset(rows, 0, sizeof(*rows));
}

static int
by_id(const void *a, const void *b)
{
    const struct top_row *x = *(const struct top_row *const *)a;
    const struct top_row *y = *(const struct top_row *const *)b;

    return x->id < y->id ? -1 : x->id > y->id;
}

/* Pointers to the rows, by id; NULL: no memory, or there are none. */
static const struct top_row **
index_of(const struct top_rows *rows)
{
    const struct top_row **ix = rows->n > 0 ? malloc(rows->n * sizeof(*ix)) : NULL;
    size_t i;

    for (i = 0; i < rows->n && ix != NULL; i++)
        ix[i] = &rows->row[i];
    if (ix != NULL)
        qsort(ix, rows->n, sizeof(*ix), by_id);
    return ix;
}

static const struct top_row *
find(const struct top_row **ix, size_t n, const struct top_row *key)
{
    const struct top_row **p;

    p = ix != NULL ? bsearch(&key, ix, n, sizeof(*ix), by_id) : NULL;
    return p != NULL ? *p : NULL;
}

/* Tokens per second: what came since the rows before; of a new one, since it was
 * submitted. */
static double
rate_of(const struct top_row *r, const struct top_row *old, double secs)
{
    if (old != NULL && secs > 0 && r->output >= old->output)
        return (double)(r->output - old->output) / secs;
    return r->age_ms > 0 ? (double)r->output * 1e3 / (double)r->age_ms : TOP_NONE;
}

int
top_rows_requests(const json_t *answer, const struct top_rows *old, double secs,
    struct top_rows *ret)
{
    const json_t *list = json_object_get(answer, "requests"), *o;
    const struct top_row **ix = index_of(old);
    struct top_row *r = NULL;
    size_t i;

    ret->n = 0;
    json_array_foreach(list, i, o) {
        r = add(ret);
        if (r == NULL)
            break;
        r->id = fct_num(o, "id");
        r->session = fct_num(o, "session");
        r->pid = fct_num(o, "pid");
        r->n = fct_num(o, "n");
        r->prompt = fct_num(o, "prompt_tokens");
        r->output = fct_num(o, "output_tokens");
        r->max_new = fct_num(o, "max_new");
        r->cost = fct_num(o, "cost");
        r->priority = fct_num(o, "priority");
        r->weight = fct_num(o, "weight");
        r->age_ms = fct_num(o, "age_ms");
        text(o, "user", r->user, sizeof(r->user));
        text(o, "client", r->name, sizeof(r->name));
        text(o, "state", r->state, sizeof(r->state));
        text(o, "op", r->op, sizeof(r->op));
        r->queued = strcmp(r->state, "queued") == 0;
        r->running = !r->queued;
        r->rate = r->queued ? TOP_NONE : rate_of(r, find(ix, old->n, r), secs);
        if (r->max_new > 0)
            r->share = (double)r->output / (double)(r->max_new * (r->n > 0 ? r->n : 1));
    }
    free(ix);
    return r == NULL && json_array_size(list) > 0 ? -ENOMEM : 0;
}

/* What the requests add to a session's or a user's row. */
static void
take(struct top_row *r, const struct top_row *q)
{
    r->running += q->running;
    r->queued += q->queued;
    r->prompt += q->prompt;
    r->output += q->output;
    if (q->rate >= 0)
        r->rate = (r->rate >= 0 ? r->rate : 0) + q->rate;
}

int
top_rows_clients(const json_t *answer, const struct top_rows *requests, struct top_rows *ret)
{
    const json_t *list = json_object_get(answer, "clients"), *o;
    const struct top_row **ix;
    struct top_row *r = NULL;
    size_t i;

    ret->n = 0;
    json_array_foreach(list, i, o) {
        r = add(ret);
        if (r == NULL)
            return -ENOMEM;
        r->id = r->session = fct_num(o, "session");
        r->pid = fct_num(o, "pid");
        r->sessions = 1;
        r->weight = fct_num(o, "weight");
        r->age_ms = fct_num(o, "age_ms");
        r->total = fct_num(o, "requests_total");
        r->held = fct_num(o, "held_records");
        text(o, "user", r->user, sizeof(r->user));
        text(o, "name", r->name, sizeof(r->name));
        text(o, "state", r->state, sizeof(r->state));
    }
    ix = index_of(ret);
    for (i = 0; i < requests->n; i++) {
        struct top_row key = { .id = requests->row[i].session };
        const struct top_row *s = find(ix, ret->n, &key);

        if (s != NULL)
            take(&ret->row[s - ret->row], &requests->row[i]);
    }
    free(ix);
    return 0;
}

/* The user's row, made if there is none. Users are few. */
static struct top_row *
user_row(struct top_rows *rows, const char *user)
{
    struct top_row *r;
    size_t i;

    for (i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].user, user) == 0)
            return &rows->row[i];
    r = add(rows);
    if (r != NULL)
        snprintf(r->user, sizeof(r->user), "%s", user);
    return r;
}

int
top_rows_users(const struct top_rows *requests, const struct top_rows *clients,
    struct top_rows *ret)
{
    struct top_row *r;
    size_t i;

    ret->n = 0;
    for (i = 0; i < clients->n; i++) {
        r = user_row(ret, clients->row[i].user);
        if (r == NULL)
            return -ENOMEM;
        r->sessions++;
        r->weight = clients->row[i].weight;
        r->total += clients->row[i].total;
    }
    for (i = 0; i < requests->n; i++) {
        r = user_row(ret, requests->row[i].user);
        if (r == NULL)
            return -ENOMEM;
        take(r, &requests->row[i]);
        r->weight = requests->row[i].weight;
        r->cost += requests->row[i].queued ? requests->row[i].cost : 0;
        if (requests->row[i].age_ms > r->age_ms)
            r->age_ms = requests->row[i].age_ms;
    }
    return 0;
}

/* ---- columns and order --------------------------------------------------- */

#define AT(field) offsetof(struct top_row, field)

static const struct top_col user_cols[] = { { "USER", TOP_K_TEXT, AT(user), 14, 0, 0 },
    { "CLIENTS", TOP_K_COUNT, AT(sessions), 7, 0, 1 },
    { "RUN", TOP_K_COUNT, AT(running), 6, 0, 1 },
    { "QUEUED", TOP_K_COUNT, AT(queued), 6, 0, 1 },
    { "PROMPT", TOP_K_COUNT, AT(prompt), 9, 72, 1 },
    { "OUTPUT", TOP_K_COUNT, AT(output), 9, 72, 1 },
    { "TOK/S", TOP_K_RATE, AT(rate), 8, 0, 1 },
    { "OLDEST", TOP_K_AGE, AT(age_ms), 7, 0, 1 },
    { "WEIGHT", TOP_K_COUNT, AT(weight), 6, 110, 1 },
    { "QUEUED TOK", TOP_K_COUNT, AT(cost), 10, 110, 1 },
    { "TOTAL", TOP_K_COUNT, AT(total), 9, 110, 1 }, { NULL, 0, 0, 0, 0, 0 } };
static const struct top_col request_cols[] = { { "ID", TOP_K_INT, AT(id), 8, 0, 0 },
    { "USER", TOP_K_TEXT, AT(user), 9, 0, 0 }, { "CLIENT", TOP_K_TEXT, AT(name), 9, 78, 0 },
    { "STATE", TOP_K_TEXT, AT(state), 7, 0, 0 },
    { "PROMPT", TOP_K_COUNT, AT(prompt), 7, 0, 1 },
    { "OUTPUT", TOP_K_COUNT, AT(output), 7, 0, 1 },
    { "TOK/S", TOP_K_RATE, AT(rate), 6, 0, 1 }, { "AGE", TOP_K_AGE, AT(age_ms), 7, 0, 1 },
    { "PRI", TOP_K_INT, AT(priority), 4, 72, 0 },
    { "OF MAX", TOP_K_BAR, AT(share), 16, 110, 1 },
    { "MAX", TOP_K_COUNT, AT(max_new), 7, 100, 1 }, { "N", TOP_K_INT, AT(n), 3, 120, 1 },
    { "COST", TOP_K_COUNT, AT(cost), 8, 130, 1 },
    { "WEIGHT", TOP_K_COUNT, AT(weight), 6, 140, 1 },
    { "SESSION", TOP_K_INT, AT(session), 8, 150, 0 },
    { "PID", TOP_K_INT, AT(pid), 9, 160, 0 }, { "OP", TOP_K_TEXT, AT(op), 10, 170, 0 },
    { NULL, 0, 0, 0, 0, 0 } };
static const struct top_col client_cols[] = { { "SESSION", TOP_K_INT, AT(id), 8, 0, 0 },
    { "USER", TOP_K_TEXT, AT(user), 10, 0, 0 },
    { "CLIENT", TOP_K_TEXT, AT(name), 10, 0, 0 }, { "PID", TOP_K_INT, AT(pid), 9, 90, 0 },
    { "RUN", TOP_K_COUNT, AT(running), 5, 0, 1 },
    { "QUEUED", TOP_K_COUNT, AT(queued), 6, 0, 1 },
    { "TOTAL", TOP_K_COUNT, AT(total), 8, 72, 1 },
    { "TOK/S", TOP_K_RATE, AT(rate), 6, 0, 1 },
    { "HELD", TOP_K_COUNT, AT(held), 5, 100, 1 },
    { "AGE", TOP_K_AGE, AT(age_ms), 7, 0, 1 }, { "STATE", TOP_K_TEXT, AT(state), 7, 80, 0 },
    { "WEIGHT", TOP_K_COUNT, AT(weight), 6, 110, 1 }, { NULL, 0, 0, 0, 0, 0 } };

const struct top_col *
top_cols(enum top_view view)
{
    return view == TOP_V_USERS  ? user_cols
        : view == TOP_V_CLIENTS ? client_cols
                                : request_cols;
}

struct order {
    const struct top_col *col;
    int sign;
};

static int
compare(const void *a, const void *b, void *arg)
{
    const struct order *o = arg;
    const char *x = (const char *)a + o->col->at, *y = (const char *)b + o->col->at;
    const struct top_row *p = a, *q = b;
    double u, v;
    int64_t i, k;
    int d;

    if (o->col->kind == TOP_K_TEXT) {
        d = strcmp(x, y);
    } else if (o->col->kind == TOP_K_RATE || o->col->kind == TOP_K_BAR) {
        memcpy(&u, x, sizeof(u));
        memcpy(&v, y, sizeof(v));
        d = u < v ? -1 : u > v;
    } else {
        memcpy(&i, x, sizeof(i));
        memcpy(&k, y, sizeof(k));
        d = i < k ? -1 : i > k;
    }
    if (d != 0)
        return o->sign * d;
    return p->id != q->id ? (p->id < q->id ? -1 : 1) : strcmp(p->user, q->user);
}

void
top_rows_sort(struct top_rows *rows, const struct top_col *col, int reverse)
{
    struct order o = { col, (col->down != 0) != (reverse != 0) ? -1 : 1 };

    if (rows->n > 1)
        qsort_r(rows->row, rows->n, sizeof(*rows->row), compare, &o);
}
