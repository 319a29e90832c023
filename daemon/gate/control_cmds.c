/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/trace.h"
#include "daemon/common/version.h"
#include "daemon/gate/conf.h"
#include "daemon/gate/crash.h"
#include "daemon/gate/svcrate.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/gauge.h"
#include "daemon/gate/intake.h"
#include "daemon/gate/life.h"
#include "daemon/gate/names.h"
#include "daemon/gate/request.h"
#include "daemon/gate/rolling.h"
#include "daemon/gate/runtime.h"
#include "daemon/gate/session.h"
#include "daemon/gate/supervise.h"
#include "libclient/fdname.h"

#define INT(v) json_integer((json_int_t)(v))

static json_t *
ctl_hex(const void *p, size_t n)
{
    char b[129];

    for (size_t i = 0; i < n && i < 64; i++)
        (void)snprintf(b + 2 * i, 3, "%02x", ((const unsigned char *)p)[i]);
    return json_string(b);
}

json_t *
ctl_do_help(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *r = ctl_ok();
    json_t *list;

    (void)ctl, (void)c, (void)rq, (void)now_ns;
    list = json_array();
    for (int i = 0; i < CMD_IDX__N; i++)
        (void)json_array_append_new(list,
            json_pack("{s:s, s:s, s:s}", "name", cmd_rows[i].name, "permission",
                cmd_rows[i].perm == CTL_ADMIN ? "ADMIN" : "READ", "help", cmd_rows[i].help));
    ctl_put(r, "commands", list);
    return r;
}

/* ---- status and statistics ------------------------------------------------ */

/* What a blocked worker waits for, its tries and its error; null if it is not blocked. */
static json_t *
ctl_retry(const struct wrk *w, uint64_t now_ns)
{
    const struct rty *y = &w->rty;
    json_t *o;

    if (y->n == 0)
        return json_null();
    o = json_object();
    ctl_put(o, "waits_for", json_string(rty_what(y->code)));
    ctl_put(o, "exit_code", INT(y->code));
    ctl_put(o, "since_ms", INT((now_ns - y->t_since) / CLK_MS));
    ctl_put(o, "tries", INT(y->n));
    ctl_put(o, "next_in_ms",
        INT(w->st == WRK_BACKOFF && w->t_restart > now_ns ? (w->t_restart - now_ns) / CLK_MS
                                                          : 0));
    ctl_put(o, "error", ctl_string(y->error, sizeof(y->error)));
    ctl_put(o, "fix", ctl_string(y->fix, sizeof(y->fix)));
    return o;
}

/* The entries of device.list; "device" and "device_uuid" are rank 0's. The worker may
 * have written anything there. */
static void
ctl_devices(json_t *o, const struct lnk_worker_state *ws)
{
    uint32_t n = ws != NULL ? __atomic_load_n(&ws->n_device, __ATOMIC_ACQUIRE) : 0;
    const struct lnk_device *root = NULL;
    json_t *list = json_array();

    for (uint32_t i = 0; i < n && i < LNK_MAX_DEVICES; i++) {
        const struct lnk_device *d = &ws->device[i];
        uint32_t rank = __atomic_load_n(&d->rank, __ATOMIC_RELAXED);
        json_t *e = json_object();

        ctl_put(e, "device", ctl_string(d->name, sizeof(d->name)));
        ctl_put(e, "uuid", ctl_string(d->uuid, sizeof(d->uuid)));
        ctl_put(e, "rank", rank < LNK_MAX_DEVICES ? INT(rank) : json_null());
        ctl_put(e, "is_used", json_boolean(rank < LNK_MAX_DEVICES));
        (void)json_array_append_new(list, e);
        root = rank == 0 ? d : root;
    }
    ctl_put(o, "device", ctl_string(root != NULL ? root->name : "", sizeof(root->name)));
    ctl_put(o, "device_uuid",
        ctl_string(root != NULL ? root->uuid : "", sizeof(root->uuid)));
    ctl_put(o, "devices", list);
}

static json_t *
ctl_worker(const struct wrk *w, int all, uint64_t now_ns)
{
    json_t *o = json_object();
    const struct lnk_worker_state *ws = w->link.seg != NULL ? &w->link.seg->w : NULL;

    ctl_put(o, "group", INT(w->idx));
    ctl_put(o, "state", json_string(sup_state_name(w)));
    ctl_put(o, "phase", json_string(sup_phase_name(w)));
    ctl_put(o, "pid", INT(w->pid));
    ctl_put(o, "generation", INT(w->generation));
    ctl_put(o, "uptime_ms", INT(w->link.seg != NULL ? (now_ns - w->t_start) / CLK_MS : 0));
    ctl_put(o, "load_percent", INT(sup_load_percent(w)));
    ctl_put(o, "load_done_bytes", INT(ws != NULL ? ws->load_done_bytes : 0));
    ctl_put(o, "load_total_bytes", INT(ws != NULL ? ws->load_total_bytes : 0));
    ctl_devices(o, ws);
    ctl_put(o, "tensor_parallel_size",
        INT(ws != NULL && ws->n_copy > 0 ? ws->n_rank / ws->n_copy : 0));
    ctl_put(o, "prefill_context_parallel_size", INT(ws != NULL ? ws->n_copy : 0));
    ctl_put(o, "all_reduce",
        ctl_string(ws != NULL ? ws->all_reduce : "", sizeof(ws->all_reduce)));
    ctl_put(o, "divides_prompts",
        ctl_string(ws != NULL ? ws->copies : "", sizeof(ws->copies)));
    ctl_put(o, "credits", INT(w->link.ready.credits));
    ctl_put(o, "credits_used", INT(w->link.credits_used));
    ctl_put(o, "requests", INT(w->link.n_with));
    ctl_put(o, "requests_total", INT(w->link.n_sent));
    ctl_put(o, "load_tokens", INT(dsp_load(&w->link)));
    ctl_put(o, "itl_target_us",
        INT(ws != NULL ? __atomic_load_n(&ws->beat.itl_target_ns, __ATOMIC_RELAXED) / CLK_US
                       : 0));
    ctl_put(o, "heartbeat_age_ms",
        INT(w->link.seg != NULL ? (now_ns - w->hng.t_beat) / CLK_MS : 0));
    ctl_put(o, "starts", INT(w->n_starts));
    ctl_put(o, "deaths", INT(w->n_died));
    ctl_put(o, "last_death", ctl_string(w->last_death, sizeof(w->last_death)));
    ctl_put(o, "error", ctl_string(ws != NULL ? ws->error : w->error, sizeof(w->error)));
    ctl_put(o, "fix", ctl_string(w->fix, sizeof(w->fix)));
    ctl_put(o, "restart_in_ms",
        INT(w->st == WRK_BACKOFF && w->t_restart > now_ns ? (w->t_restart - now_ns) / CLK_MS
                                                          : 0));
    ctl_put(o, "retry", ctl_retry(w, now_ns));
    ctl_put(o, "last_crash", crs_json(&w->crash, all));
    return o;
}

static json_t *
ctl_model(const struct ctl *ctl)
{
    const struct lnk_ready *ready = dsp_ready(ctl->dsp);
    const struct fdp_info *i;
    json_t *o, *eos;

    if (ready == NULL)
        return json_null();
    i = &ready->info;
    o = json_object();
    eos = json_array();
    for (uint32_t k = 0; k < i->n_eos && k < 8; k++)
        (void)json_array_append_new(eos, INT(i->eos_ids[k]));
    ctl_put(o, "name", ctl_string(i->model_name, sizeof(i->model_name)));
    ctl_put(o, "path",
        ctl_string(ctl->env->par->model_path, sizeof(ctl->env->par->model_path)));
    ctl_put(o, "vocab", INT(i->vocab));
    ctl_put(o, "max_model_len", INT(i->max_model_len));
    ctl_put(o, "model_len", INT(ready->model_len));
    ctl_put(o, "block_size", INT(i->block_size));
    ctl_put(o, "max_logprobs", INT(itk_max_logprobs(ctl->itk)));
    ctl_put(o, "has_tokenizer", json_boolean(i->has_tokenizer));
    ctl_put(o, "bos_id", INT(i->bos_id));
    ctl_put(o, "eos_ids", eos);
    ctl_put(o, "digest", ctl_hex(i->model_digest, sizeof(i->model_digest)));
    return o;
}

/* The socket unit whose socket the daemon uses and that starts it for the next client. */
static json_t *
ctl_socket_unit(const struct ctl *ctl)
{
    return ctl->rt->socket_unit[0] != '\0' ? json_string(ctl->rt->socket_unit) : json_null();
}

/* The worker shown for all: one that is ready, else one that may become so. */
static const struct wrk *
ctl_main_worker(const struct ctl *ctl)
{
    const struct wrk *best = &ctl->wrk[0];

    for (uint32_t i = 1; i < ctl->n_wrk && best->st != WRK_READY; i++) {
        if (ctl->wrk[i].st == WRK_READY || best->st == WRK_FAILED)
            best = &ctl->wrk[i];
    }
    return best;
}

/* State of the groups; null if there is one group. */
static json_t *
ctl_groups(const struct ctl *ctl)
{
    const struct rolling *r = ctl->rolling;
    json_t *o;

    if (ctl->n_wrk < 2)
        return json_null();
    o = json_object();
    ctl_put(o, "n", INT(ctl->n_wrk));
    ctl_put(o, "ready", INT(dsp_n_up(ctl->dsp)));
    ctl_put(o, "moved", INT(cnt_get(&ctl->env->cnt->requests_moved)));
    ctl_put(o, "placed_cached", INT(ctl->dsp->n_cached));
    ctl_put(o, "rolling", json_boolean(rol_is_active(r)));
    ctl_put(o, "rolling_group", INT(r->at));
    ctl_put(o, "rolling_phase", json_string(rol_phase_name(r)));
    ctl_put(o, "rolling_error", ctl_string(r->error, sizeof(r->error)));
    return o;
}

json_t *
ctl_do_status(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *r = ctl_ok();
    json_t *workers;
    int all = ctl_is_admin(c);

    (void)rq;
    ctl_put(r, "version", json_string(PACKAGE_VERSION));
    ctl_put(r, "commit", json_string(ver_commit()));
    ctl_put(r, "pid", INT(getpid()));
    ctl_put(r, "boot_id", ctl_hex(ctl->env->boot_id, sizeof(ctl->env->boot_id)));
    ctl_put(r, "uptime_ms", INT((now_ns - ctl->env->t_boot) / CLK_MS));
    ctl_put(r, "state", json_string(life_state_name(ctl->life)));
    ctl_put(r, "paused", json_boolean(ctl->env->paused));
    ctl_put(r, "instance", json_string(ctl->rt->instance));
    ctl_put(r, "runtime_dir", json_string(ctl->rt->dir));
    ctl_put(r, "socket", json_string(ctl->rt->socket));
    ctl_put(r, "socket_unit", ctl_socket_unit(ctl));
    ctl_put(r, "admin_socket", json_string(ctl->rt->admin_socket));
    ctl_put(r, "sessions", INT(ctl->ses->n));
    ctl_put(r, "requests",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "queued",
            (json_int_t)ctl->fair->n_queued, "queued_tokens",
            (json_int_t)ctl->fair->cost_queued, "service_rate",
            (json_int_t)svc_rate(&ctl->fair->svcrate, now_ns), "shed",
            (json_int_t)ctl->env->cnt->requests_shed, "running",
            (json_int_t)(ctl->jnl->n_open - ctl->fair->n_queued), "total",
            (json_int_t)ctl->env->cnt->requests_total, "done",
            (json_int_t)ctl->env->cnt->requests_done, "error",
            (json_int_t)ctl->env->cnt->requests_error, "rejected",
            (json_int_t)ctl->env->cnt->requests_rejected));
    workers = json_array();
    for (uint32_t i = 0; i < ctl->n_wrk; i++)
        (void)json_array_append_new(workers, ctl_worker(&ctl->wrk[i], all, now_ns));
    ctl_put(r, "worker", ctl_worker(ctl_main_worker(ctl), all, now_ns));
    ctl_put(r, "workers", workers);
    ctl_put(r, "groups", ctl_groups(ctl));
    ctl_put(r, "model", ctl_model(ctl));
    ctl_put(r, "last_crash", crs_json(ctl->before, all));
    return r;
}

/* Written as text directly, in a third of the time that an object takes. Names and texts
 * of the table need no escapes. */
static json_t *
ctl_counters(const struct cnt_seg *sum)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    if (f == NULL)
        return NULL;
    (void)fputs("{\"ok\":true,\"counters\":[", f);
    for (size_t i = 0; i < cnt_count(); i++) {
        const struct cnt_row *row = cnt_row(i);
        const uint64_t *v = (const void *)((const char *)sum + row->offset);

        (void)fprintf(f,
            "%s{\"name\":\"%s\",\"scope\":\"%s\",\"kind\":\"%s\",\"unit\":\"%s\","
            "\"value\":%lld,\"help\":\"%s\"}",
            i > 0 ? "," : "", row->name, row->worker ? "worker" : "gate",
            row->kind == CNT_gauge ? "gauge" : "counter", row->unit,
            (long long)cnt_get(v), row->help);
    }
    (void)fputs("]}", f);
    return ctl_made(f, &text);
}

json_t *
ctl_do_stat(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    struct cnt_seg sum;

    (void)c, (void)rq, (void)now_ns;
    gau_set(ctl->gauges);
    (void)cnt_of_group(ctl->seg, CNT_ALL_GROUPS, &sum);
    return ctl_counters(&sum);
}

/* Sends a segment to this peer. The descriptor is a separate open file, read-only: the
 * gate's own is writable. */
static json_t *
ctl_segment(struct ctl_conn *c, int fd, size_t bytes)
{
    int ro = mem_reopen(fd);
    json_t *r;

    if (ro < 0)
        return ctl_fail(NULL, "no descriptor for the segment: %s", strerror(-ro));
    if (ctl_send_fd(c, ro) != 0)
        return ctl_fail(NULL,
            "a descriptor is sent only after earlier replies have been read");
    r = ctl_ok();
    ctl_put(r, "bytes", INT(bytes));
    return r;
}

json_t *
ctl_do_stat_fd(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    (void)rq, (void)now_ns;
    return ctl_segment(c, ctl->stat_fd, cnt_bytes(ctl->n_wrk));
}

json_t *
ctl_do_trace_fd(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *error;
    const struct wrk *w = ctl_group(ctl, rq, &error);

    (void)now_ns;
    if (w == NULL)
        return error;
    if (json_object_get(rq, "group") == NULL)
        w = &ctl->wrk[0];
    return ctl_segment(c, w->trace_fd, sizeof(struct trc_seg));
}

/* ---- requests and clients -------------------------------------------------- */

static json_t *
ctl_request(const struct ctl *ctl, const struct jreq *q, uint64_t now_ns)
{
    const struct client *s = q->cli;
    json_t *o = json_object();
    char user[64];

    if (s != NULL && q->usr->key == s->uid)
        names_of(ctl->names, s->uid, user, sizeof(user));
    else
        (void)snprintf(user, sizeof(user), "%llu", (unsigned long long)q->usr->key);
    ctl_put(o, "id", INT(q->id));
    ctl_put(o, "session", INT(s != NULL ? s->id : 0));
    ctl_put(o, "client", json_string(s != NULL ? s->name : ""));
    ctl_put(o, "pid", INT(s != NULL ? s->pid : 0));
    ctl_put(o, "uid", INT(s != NULL ? (json_int_t)s->uid : (json_int_t)q->usr->key));
    ctl_put(o, "user", json_string(user));
    ctl_put(o, "tag", INT(q->tag & INT64_MAX));
    ctl_put(o, "op", json_string(fdn_op_name(q->req.op)));
    ctl_put(o, "state", json_string(jnl_state_name(q->st)));
    ctl_put(o, "n", INT(q->req.n));
    ctl_put(o, "prompt_bytes", INT(q->blob_bytes));
    ctl_put(o, "prompt_tokens", INT(q->prompt_len));
    ctl_put(o, "output_tokens", INT(q->n_out));
    ctl_put(o, "max_new", INT(q->req.max_new));
    ctl_put(o, "age_ms", INT((now_ns - q->t_submit) / CLK_MS));
    ctl_put(o, "priority", INT(q->req.priority));
    ctl_put(o, "cost", INT(q->cost));
    ctl_put(o, "weight", INT(q->usr->weight));
    return o;
}

json_t *
ctl_do_requests(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *r = ctl_ok();
    json_t *list;

    (void)c, (void)rq;
    list = json_array();
    for (uint32_t i = 0; i < ctl->jnl->n_max; i++) {
        if (ctl->jnl->pool[i].st != JNL_FREE)
            (void)json_array_append_new(list, ctl_request(ctl, &ctl->jnl->pool[i], now_ns));
    }
    ctl_put(r, "requests", list);
    return r;
}

json_t *
ctl_do_cancel(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *id = json_object_get(rq, "id");
    json_t *session = json_object_get(rq, "session");
    json_int_t n = 0;
    json_t *r;

    (void)c, (void)now_ns;
    for (uint32_t i = 0; i < ctl->jnl->n_max; i++) {
        struct jreq *q = &ctl->jnl->pool[i];

        if (q->st == JNL_FREE || q->cli == NULL)
            continue;
        if (id != NULL ? q->id != (uint64_t)json_integer_value(id)
                       : q->cli->id != (uint64_t)json_integer_value(session))
            continue;
        rq_cancel(ctl->reqs, q, FDP_E_CANCELLED, 0);
        n++;
    }
    if (n == 0 && id != NULL)
        return ctl_fail("fdctl requests", "no open request has id %lld",
            (long long)json_integer_value(id));
    if (n == 0) {
        for (uint32_t i = 0; i < ctl->ses->n; i++) {
            if (ctl->ses->v[i]->c.id == (uint64_t)json_integer_value(session))
                goto found;
        }
        return ctl_fail("fdctl clients", "no session has number %lld",
            (long long)json_integer_value(session));
    }
found:
    r = ctl_ok();
    ctl_put(r, "cancelled", INT(n));
    return r;
}

json_t *
ctl_do_clients(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *r = ctl_ok();
    json_t *list;

    (void)c, (void)rq;
    list = json_array();
    for (uint32_t i = 0; i < ctl->ses->n; i++) {
        const struct client *s = &ctl->ses->v[i]->c;
        json_t *o;
        char user[64];

        if (s->st <= CLI_MAKES)
            continue;
        o = json_object();
        names_of(ctl->names, s->uid, user, sizeof(user));
        ctl_put(o, "session", INT(s->id));
        ctl_put(o, "name", json_string(s->name));
        ctl_put(o, "pid", INT(s->pid));
        ctl_put(o, "uid", INT(s->uid));
        ctl_put(o, "user", json_string(user));
        ctl_put(o, "age_ms", INT((now_ns - ctl->ses->v[i]->t_open) / CLK_MS));
        ctl_put(o, "inflight", INT(s->n_inflight));
        ctl_put(o, "requests_total", INT(s->n_requests));
        ctl_put(o, "weight", INT(s->usr->weight));
        ctl_put(o, "user_queued_tokens", INT(s->usr->queue[FAIR_GEN].cost));
        ctl_put(o, "user_running", INT(s->usr->n_held));
        ctl_put(o, "held_records", INT(s->n_held));
        ctl_put(o, "held_bytes", INT(s->held_bytes));
        ctl_put(o, "shared_bytes", INT((uint64_t)s->c2d.bytes + s->d2c.bytes));
        ctl_put(o, "trusted", json_boolean(s->trusted));
        ctl_put(o, "state", json_string(s->st != CLI_DOOMED ? "open" : "closing"));
        (void)json_array_append_new(list, o);
    }
    ctl_put(r, "clients", list);
    return r;
}

/* ---- worker, end, debug ------------------------------------------------------ */

json_t *
ctl_do_model(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    return ctl_ask_worker(ctl, c, rq, now_ns, CTL_WORKER_TIMEOUT_NS);
}

json_t *
ctl_do_memory(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    return ctl_ask_worker(ctl, c, rq, now_ns, CTL_WORKER_TIMEOUT_NS);
}

json_t *
ctl_do_program(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    return ctl_ask_worker(ctl, c, rq, now_ns, CTL_WORKER_SLOW_NS);
}

/* The worker checks the numbers, since it has the limits of a step. */
json_t *
ctl_do_profile(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *within = json_object_get(rq, "within_ms");

    return ctl_ask_worker(ctl, c, rq, now_ns,
        CTL_WORKER_SLOW_NS +
            (within != NULL ? (uint64_t)json_integer_value(within) * CLK_MS
                            : CTL_WORKER_SLOW_NS));
}

/* timeout_ms of the request, else daemon.drain_timeout_ms. */
static uint64_t
ctl_timeout_ns(const struct ctl *ctl, json_t *rq)
{
    json_t *t = json_object_get(rq, "timeout_ms");

    return (uint64_t)(t != NULL ? json_integer_value(t)
                                : ctl->env->par->daemon_drain_timeout_ms) *
        CLK_MS;
}

json_t *
ctl_do_drain(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    int off = json_is_true(json_object_get(rq, "off"));

    life_drain(ctl->life, !off);
    if (!off && json_is_true(json_object_get(rq, "wait")) && ctl->jnl->n_open != 0 &&
        ctl_defer_drain(c, now_ns + ctl_timeout_ns(ctl, rq)) == 0)
        return NULL;
    return ctl_drain_state(ctl);
}

json_t *
ctl_do_pause(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *r;

    (void)c, (void)now_ns;
    if (life_pause(ctl->life, !json_is_true(json_object_get(rq, "off"))) != 0)
        return ctl_fail(ctl->env->st == GATE_DRAINING ? "fdctl drain --off" : "fdctl status",
            "the daemon is %s: the requests in its queue must reach the worker",
            life_state_name(ctl->life));
    r = ctl_ok();
    ctl_put(r, "paused", json_boolean(ctl->env->paused));
    ctl_put(r, "state", json_string(life_state_name(ctl->life)));
    ctl_put(r, "queued", INT(ctl->fair->n_queued));
    ctl_put(r, "running", INT(ctl->jnl->n_open - ctl->fair->n_queued));
    return r;
}

json_t *
ctl_do_stop(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *r = ctl_ok();

    (void)c, (void)now_ns;
    ctl_put(r, "pid", INT(getpid()));
    ctl_put(r, "requests", INT(ctl->jnl->n_open));
    ctl_put(r, "socket_unit", ctl_socket_unit(ctl));
    life_stop(ctl->life,
        json_is_true(json_object_get(rq, "now")) ? 0 : ctl_timeout_ns(ctl, rq), 0);
    return r;
}

static json_t *
ctl_debug_state(const struct ctl *ctl)
{
    json_t *r = ctl_ok();
    json_t *known = json_array(), *topics = json_array();
    uint64_t dropped = 0;
    char bits[256];

    for (uint32_t i = 0; i < ctl->n_wrk; i++)
        dropped += cnt_get(&ctl->seg[i].w.log_dropped);

    log_get_debug(bits, sizeof(bits));
#define DBG_BIT(name, help) \
    (void)json_array_append_new(known, \
        json_pack("{s:s, s:s}", "name", #name, "help", help));
#include "daemon/tbl/debug_bits.h"
#undef DBG_BIT
#define LOG_TOPIC(name, help) \
    (void)json_array_append_new(topics, \
        json_pack("{s:s, s:s, s:s}", "name", #name, "level", \
            log_topic_level(LOG_T_##name), "help", help));
#include "daemon/tbl/log_topics.h"
#undef LOG_TOPIC
    ctl_put(r, "level", json_string(log_level_name()));
    ctl_put(r, "levels", json_string(ctl->env->par->log_levels));
    ctl_put(r, "topics", topics);
    ctl_put(r, "format", json_string(par_log_format_words[ctl->env->par->log_format]));
    ctl_put(r, "rate", INT(ctl->env->par->log_rate));
    ctl_put(r, "requests", json_string(par_log_requests_words[ctl->env->par->log_requests]));
    ctl_put(r, "dropped", INT(cnt_get(&ctl->env->cnt->log_dropped) + dropped));
    ctl_put(r, "bits", json_string(bits));
    ctl_put(r, "known", known);
    return r;
}

/* Changes the parameters, so that config shows the values and the worker gets them.
 * Applies all of the request or nothing. */
static json_t *
ctl_debug_set(struct ctl *ctl, const char *bits, const char *level, const char *topics)
{
    uint32_t before = log_debug_bits;
    char err[512], now[PAR_STR_BYTES], levels[PAR_STR_BYTES];
    int bad;

    if (topics != NULL &&
        log_merge_levels(topics, levels, sizeof(levels), err, sizeof(err)) != 0)
        return ctl_fail("fdctl debug shows topics and levels", "%s", err);
    bad = bits != NULL ? log_set_debug(bits, err, sizeof(err)) : 0;
    log_get_debug(now, sizeof(now));
    __atomic_store_n(&log_debug_bits, before, __ATOMIC_RELAXED);
    if (bad != 0)
        return ctl_unknown_bit(err);
    if (level != NULL &&
        par_set_text(ctl->cnf->ps, "log.level", level, PAR_FROM_RUNTIME, err,
            sizeof(err)) < 0)
        return ctl_fail("fdctl debug", "%s", err);
    if (topics != NULL)
        (void)par_set_text(ctl->cnf->ps, "log.levels", levels, PAR_FROM_RUNTIME, err,
            sizeof(err));
    if (bits != NULL)
        (void)par_set_text(ctl->cnf->ps, "log.debug", now, PAR_FROM_RUNTIME, err,
            sizeof(err));
    cnf_apply(ctl->cnf);
    log_info("control: log level %s%s%s%s%s", log_level_name(),
        topics != NULL ? ", topics " : "", topics != NULL ? levels : "",
        bits != NULL ? ", debug bits " : "", bits != NULL ? now : "");
    return ctl_debug_state(ctl);
}

json_t *
ctl_do_debug(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    const char *bits = json_string_value(json_object_get(rq, "bits"));
    const char *level = json_string_value(json_object_get(rq, "level"));
    const char *topics = json_string_value(json_object_get(rq, "topic"));
    json_t *r;
    struct wrk *w = ctl_group(ctl, rq, &r);

    if (w == NULL)
        return r;
    if (bits != NULL || level != NULL || topics != NULL)
        return ctl_debug_set(ctl, bits, level, topics);
    if (json_is_true(json_object_get(rq, "panic"))) {
        r = ctl_ok();
        ctl_put(r, "panic",
            ctl_string(w->panic[0] != '\0' ? w->panic : w->last_death, SIZE_MAX));
        ctl_put(r, "generation", INT(w->panic_generation));
        return r;
    }
    if (json_is_true(json_object_get(rq, "selfcheck"))) {
        ses_check(ctl->ses);
        cnt_add(&ctl->env->cnt->selfchecks, 1);
        r = ctl_ok();
        ctl_put(r, "selfcheck", json_string("ok"));
        ctl_put(r, "sessions", INT(ctl->ses->n));
        ctl_put(r, "requests", INT(ctl->jnl->n_open));
        return r;
    }
    if (json_is_true(json_object_get(rq, "kill_worker"))) {
        if (w->pid <= 0 || w->dead)
            return ctl_fail("fdctl status", "no worker is running");
        r = ctl_ok();
        ctl_put(r, "killed", INT(w->pid));
        sup_kill(w, "fdctl debug kill-worker");
        return r;
    }
    if (json_is_true(json_object_get(rq, "fail_device")) ||
        json_is_true(json_object_get(rq, "stop_rank")))
        return LOG_DBG(faults)
            ? ctl_ask_worker(ctl, c, rq, now_ns, CTL_WORKER_TIMEOUT_NS)
            : ctl_fail("log.debug=faults in the configuration, or fdctl debug +faults",
                  "the debug bit faults is not set");
    return ctl_debug_state(ctl);
}
