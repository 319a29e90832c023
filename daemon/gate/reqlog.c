/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/reqlog.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/log.h"
#include "daemon/gate/client.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/names.h"
#include "libclient/fdname.h"

#define RQL_FIELDS 24

struct rql_line {
    struct log_field f[RQL_FIELDS];
    size_t n;
    char user[NAMES_BYTES];
};

/* Durations in ns; total and first are measured from submission. */
struct rql_times {
    uint64_t queue, prefill, decode, total;
    uint64_t first; /* 0: no token came */
};

static const char *
rql_finish_name(unsigned finish)
{
    return finish == JREQ_FIN_MIXED ? "mixed" : fdn_finish_name(finish);
}

static void
rql_put(struct rql_line *l, struct log_field f)
{
    if (l->n < RQL_FIELDS)
        l->f[l->n++] = f;
}

/* The user's name; a delegated user is a number. */
static void
rql_user(const struct rql *q, struct rql_line *l, uint64_t key, int delegated)
{
    if (delegated)
        (void)snprintf(l->user, sizeof(l->user), "%llu", (unsigned long long)key);
    else
        names_of(q->names, (uid_t)key, l->user, sizeof(l->user));
    rql_put(l, LOG_S("user", l->user));
}

static double
rql_ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static uint64_t
rql_since(uint64_t t, uint64_t from)
{
    return t > from ? t - from : 0;
}

static void
rql_times(const struct rql *q, const struct jreq *r, const struct fdp_done *d,
    struct rql_times *ret)
{
    /* The worker uses the same clock; without its numbers, those noted by the gate. */
    uint64_t start = d != NULL && d->t_start != 0 ? d->t_start : r->t_sent;
    uint64_t first = d != NULL && d->t_first != 0 ? d->t_first : r->t_first;
    uint64_t end = d != NULL && d->t_end > r->t_submit ? d->t_end : q->env->now;

    memset(ret, 0, sizeof(*ret));
    ret->total = rql_since(end, r->t_submit);
    ret->queue = start != 0 ? rql_since(start, r->t_submit) : ret->total;
    if (first != 0 && r->n_out != 0) {
        ret->first = rql_since(first, r->t_submit);
        ret->prefill = rql_since(ret->first, ret->queue);
        ret->decode = rql_since(ret->total, ret->first);
    } else {
        ret->prefill = rql_since(ret->total, ret->queue);
    }
}

static void
rql_who(const struct rql *q, const struct jreq *r, struct rql_line *l)
{
    rql_put(l, LOG_I("id", r->id));
    rql_user(q, l, r->usr->key, r->req.user != 0);
    rql_put(l, LOG_S("client", r->client));
    rql_put(l, LOG_I("client_pid", r->client_pid));
    rql_put(l, LOG_S("op", fdn_op_name(r->req.op)));
    rql_put(l, LOG_I("n", r->req.n));
    rql_put(l, LOG_I("max_new", r->req.max_new));
}

static void
rql_tokens(const struct jreq *r, const struct fdp_done *d, struct rql_line *l)
{
    rql_put(l,
        LOG_I("prompt_tokens",
            d != NULL && d->prompt_tokens != 0 ? d->prompt_tokens : r->prompt_len));
    rql_put(l, LOG_I("cached_tokens", d != NULL ? d->cached_tokens : r->cached_len));
    rql_put(l, LOG_I("output_tokens", d != NULL ? d->output_tokens : r->n_out));
}

static void
rql_slow(const struct rql *q, const struct jreq *r, const struct fdp_done *d,
    const struct rql_times *t)
{
    uint64_t total = (uint64_t)q->env->par->log_slow_request_ms * CLK_MS;
    uint64_t first = (uint64_t)q->env->par->log_slow_first_token_ms * CLK_MS;
    uint32_t each = r->n_out / (r->req.n != 0 ? r->req.n : 1);
    struct rql_line l;

    if ((total == 0 || t->total < total) &&
        (first == 0 || (t->first != 0 ? t->first : t->total) < first))
        return;
    cnt_add(&q->env->cnt->requests_slow, 1);
    l.n = 0;
    rql_who(q, r, &l);
    rql_tokens(r, d, &l);
    rql_put(&l, LOG_R("queue_ms", rql_ms(t->queue)));
    rql_put(&l, LOG_R("prefill_ms", rql_ms(t->prefill)));
    rql_put(&l, LOG_R("decode_ms", rql_ms(t->decode)));
    if (each > 1)
        rql_put(&l, LOG_R("tpot_ms", rql_ms(t->decode) / (each - 1)));
    if (t->first != 0)
        rql_put(&l, LOG_R("ttft_ms", rql_ms(t->first)));
    rql_put(&l, LOG_R("total_ms", rql_ms(t->total)));
    if (d != NULL)
        rql_put(&l, LOG_I("preempted", d->n_preempted));
    rql_put(&l, LOG_I("concurrent_at_start", r->n_concurrent));
    /* r still counts as open, but is in no queue */
    rql_put(&l, LOG_I("concurrent_at_end", q->jnl->n_open - q->fair->n_queued - 1));
    log_fields(LOG_LV_WARN, 0, "request: slow request", l.f, l.n);
}

/* One line, whose level and text depend on the end. */
static void
rql_say(const struct jreq *r, int code, const struct rql_line *l)
{
    if (code == FDP_OK)
        log_fields(LOG_LV_INFO, LOG_F_UNLIMITED, "request: done", l->f, l->n);
    else if (r->cli == NULL)
        log_fields(LOG_LV_INFO, LOG_F_UNLIMITED, "request: client gone", l->f, l->n);
    else if (code == FDP_E_CANCELLED)
        log_fields(LOG_LV_INFO, LOG_F_UNLIMITED, "request: cancelled", l->f, l->n);
    else
        log_fields(LOG_LV_WARN, LOG_F_UNLIMITED, "request: failed", l->f, l->n);
}

void
rql_end(const struct rql *q, struct jreq *r, int code, const struct fdp_done *done)
{
    enum par_log_requests what = q->env->par->log_requests;
    struct rql_line l;
    struct rql_times t;

    if (r->logged ||
        (what == PAR_LOG_REQUESTS_NO && q->env->par->log_slow_request_ms == 0 &&
            q->env->par->log_slow_first_token_ms == 0))
        return;
    r->logged = 1;
    rql_times(q, r, done, &t);
    if (r->kind == FAIR_GEN)
        rql_slow(q, r, done, &t);
    if (what == PAR_LOG_REQUESTS_NO || (what == PAR_LOG_REQUESTS_ERRORS && code == FDP_OK))
        return;
    l.n = 0;
    rql_who(q, r, &l);
    rql_tokens(r, done, &l);
    if (code == FDP_OK && r->kind == FAIR_GEN) {
        rql_put(&l, LOG_S("finish", rql_finish_name(r->finish)));
    } else if (code != FDP_OK) {
        rql_put(&l, LOG_S("error", fdn_status_name(code)));
        rql_put(&l, LOG_I("code", code));
    }
    rql_put(&l, LOG_R("queue_ms", rql_ms(t.queue)));
    if (t.first != 0)
        rql_put(&l, LOG_R("ttft_ms", rql_ms(t.first)));
    rql_put(&l, LOG_R("total_ms", rql_ms(t.total)));
    if (done != NULL)
        rql_put(&l, LOG_I("preempted", done->n_preempted));
    rql_say(r, code, &l);
}

void
rql_refused(const struct rql *q, const struct client *c, const struct fdp_req *req,
    int code, uint32_t detail)
{
    struct rql_line l;
    int delegated = req->user != 0 && c->trusted;

    if (q->env->par->log_requests == PAR_LOG_REQUESTS_NO)
        return;
    l.n = 0;
    rql_user(q, &l, delegated ? req->user : c->uid, delegated);
    rql_put(&l, LOG_S("client", c->name));
    rql_put(&l, LOG_I("client_pid", c->pid));
    rql_put(&l, LOG_S("op", fdn_op_name(req->op)));
    rql_put(&l, LOG_I("n", req->n));
    rql_put(&l, LOG_I("max_new", req->max_new));
    rql_put(&l, LOG_S("error", fdn_status_name(code)));
    rql_put(&l, LOG_I("code", code));
    rql_put(&l, LOG_I("detail", detail));
    log_fields(LOG_LV_WARN, 0, "request: rejected", l.f, l.n);
}
