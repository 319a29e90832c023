/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include <pthread.h>

#define SPIN_US    1000 /* longer than a round trip: the client never sleeps */
#define N_PROMPT   8
#define N_COLD     10 /* first trips, not measured: caches are cold, the daemon sleeps */
#define MAX_CLIENT 256
#define MAX_STREAM 1024

/* Index: bit 0: to the worker, else to the gate; bit 1: parked. */
static const char *const trips[4] = { "gate_spinning", "worker_spinning", "gate_parked",
    "worker_parked" };

struct ipc {
    const struct fct *f;
    uint32_t n_ping, n_parked, n_client, n_stream, n_token; /* from the options */
    double gap_ms;
    int json;
    struct fdc_model_info model;
    const struct cnt_seg *seg;
    pthread_mutex_t begin; /* held until all client threads exist */
    json_t *result;
};

/* A session that receives tokens. */
struct client {
    fdc_t *s;
    struct ipc *p;
    pthread_t thread;
    uint64_t n_token, cpu_ns;
    int rc; /* 0 or a status */
};

/* ---- sessions ------------------------------------------------------------------- */

static int
meet(struct ipc *p)
{
    struct fdc_info info;
    fdc_t *s;
    int rc = fct_open(p->f, 0, &s);

    if (rc != 0)
        return rc;
    rc = fdb_meet(p->f, s, &info, &p->model);
    fdc_close(s);
    if (rc != 0)
        return rc;
    if (p->n_token + N_PROMPT > p->model.max_model_len)
        return fct_usage("--tokens %u: with the prompt of %d more than the model's length, %u",
            p->n_token, N_PROMPT, p->model.max_model_len);
    if (p->n_stream > info.max_inflight)
        return fct_usage("--streams %u: the daemon allows a session %u requests at a time; use more "
                         "--clients",
            p->n_stream, info.max_inflight);
    return 0;
}

/* ---- round trips ------------------------------------------------------------------ */

static int
round_trips(const struct ipc *p, int kind)
{
    int deep = kind & 1, parked = kind >> 1, rc;
    uint32_t i, n = parked ? p->n_parked : p->n_ping;
    double *v = calloc((size_t)n + 1, sizeof(*v));
    struct fct f = *p->f;
    uint64_t ns;
    fdc_t *s;

    f.spin_us = parked ? FDC_SPIN_NONE : SPIN_US;
    rc = v != NULL ? fct_open(&f, 0, &s) : fct_oom();
    if (rc != 0) {
        free(v);
        return rc;
    }
    for (i = 0; rc >= 0 && i < N_COLD + n; i++) {
        if (parked && i >= N_COLD)
            clk_sleep_ns((uint64_t)(p->gap_ms * 1e6));
        rc = fdc_ping(s, deep, &ns, p->f->timeout_ms);
        v[i < N_COLD ? 0 : i - N_COLD] = (double)ns / 1e3;
    }
    fdc_close(s);
    fdb_sort(v, n);
    json_object_set_new(p->result, trips[kind],
        json_pack("{s:I, s:f, s:f, s:f, s:f}", "n", (json_int_t)n, "p50_us",
            fdb_percentile(v, n, 50), "p90_us", fdb_percentile(v, n, 90), "p99_us",
            fdb_percentile(v, n, 99), "max_us", fdb_percentile(v, n, 100)));
    free(v);
    return rc >= 0
        ? 0
        : fct_status_fail(deep ? "round trip to the worker" : "round trip to the gate", rc);
}

/* ---- streaming ------------------------------------------------------------------- */

static int
take(struct client *c, uint32_t *ret_open)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;
    int rc = fdc_wait_any(c->s, &r, -1);

    if (rc <= 0)
        return rc < 0 ? rc : FDC_E_INTERNAL;
    while ((rc = fdc_next(r, &ev, 0)) == 1) {
        if (ev.type == FDC_T_IDS)
            c->n_token += ev.n;
        if (ev.type == FDC_T_ERROR)
            return ev.error->code;
        if (ev.type == FDC_T_DONE) {
            fdc_req_free(r);
            --*ret_open;
            return 0;
        }
    }
    return rc == FDC_E_AGAIN || rc == FDC_E_TIMEOUT ? 0 : rc;
}

static void *
run_client(void *arg)
{
    struct client *c = arg;
    uint32_t i, n_open = 0;
    fdc_req_t *r;

    pthread_mutex_lock(&c->p->begin);
    pthread_mutex_unlock(&c->p->begin);
    for (i = 0; c->rc == 0 && i < c->p->n_stream; i++) {
        int rc = fdb_submit_plain(c->s, c->p->model.vocab, N_PROMPT, c->p->n_token, &r);

        c->rc = rc < 0 ? rc : 0;
        n_open += rc >= 0;
    }
    while (c->rc == 0 && n_open > 0)
        c->rc = take(c, &n_open);
    c->cpu_ns = clk_of_ns(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

/* Read the counters. Returns the gate's processor time since its start, in us. */
static double
snap(const struct ipc *p, struct cnt_seg *ret)
{
    clockid_t clk;

    (void)fct_seg_snap_group(p->seg, CNT_ALL_GROUPS, ret);
    return clock_getcpuclockid(p->seg->gate_pid, &clk) == 0
        ? (double)clk_of_ns(clk) / 1e3
        : 0;
}

static int
run_clients(struct ipc *p, struct client *c)
{
    struct cnt_seg before, now;
    double gate_us, client_us = 0, wall_s, n_relayed;
    uint64_t t, mine = 0;
    uint32_t i, n;
    int rc = 0, status = 0, e = 0;

    pthread_mutex_lock(&p->begin);
    for (n = 0; e == 0 && n < p->n_client; n += e == 0)
        e = pthread_create(&c[n].thread, NULL, run_client, &c[n]);
    if (e != 0)
        rc = fct_fail(EX_SOFTWARE, "--clients %u: no thread for number %u: %s",
            p->n_client, n + 1, strerror(e));
    for (i = 0; e != 0 && i < n; i++) /* a thread is missing: the others end at once */
        c[i].rc = FDC_E_NOMEM;
    gate_us = snap(p, &before);
    t = clk_now_ns();
    pthread_mutex_unlock(&p->begin);
    for (i = 0; i < n; i++) {
        pthread_join(c[i].thread, NULL);
        status = status == 0 ? c[i].rc : status;
        mine += c[i].n_token;
        client_us += (double)c[i].cpu_ns / 1e3;
    }
    wall_s = (double)(clk_now_ns() - t) / 1e9;
    gate_us = snap(p, &now) - gate_us;
#define GREW(counter)     ((double)now.g.counter - (double)before.g.counter)
#define PER_TOKEN(figure) fct_json_real((figure) / n_relayed)
    n_relayed = GREW(tokens_relayed);
    json_object_set_new(p->result, "streaming",
        json_pack("{s:i, s:i, s:i, s:I, s:f, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
            "clients", (int)p->n_client, "streams", (int)p->n_stream, "tokens_per_stream",
            (int)p->n_token, "tokens_relayed", (json_int_t)n_relayed, "duration_s",
            wall_s, "shared_with_others", n_relayed != (double)mine, "records_per_token",
            PER_TOKEN(GREW(records_relayed)), "wakes_futex_per_token",
            PER_TOKEN(GREW(wakes_futex)), "wakes_fd_per_token", PER_TOKEN(GREW(wakes_fd)),
            "gate_sleeps_per_token", PER_TOKEN(GREW(sleeps)), "gate_iterations_per_token",
            PER_TOKEN(GREW(loops)), "gate_cpu_us_per_token", PER_TOKEN(gate_us),
            "client_cpu_us_per_token", PER_TOKEN(client_us)));
    return rc == 0 && status != 0 ? fct_status_fail("streaming", status) : rc;
}

static int
stream(struct ipc *p)
{
    struct client *c = calloc(p->n_client, sizeof(*c));
    struct fct f = *p->f;
    uint32_t i;
    int rc = 0;

    if (c == NULL)
        return fct_oom();
    f.spin_us = FDC_SPIN_NONE;
    for (i = 0; rc == 0 && i < p->n_client; i++) {
        c[i].p = p;
        rc = fct_open(&f, 0, &c[i].s);
    }
    if (rc == 0)
        rc = run_clients(p, c);
    for (i = 0; i < p->n_client; i++)
        fdc_close(c[i].s);
    free(c);
    return rc;
}

#define FIGURES " {n:9} {p50_us:10fig} {p90_us:10fig} {p99_us:10fig} {max_us:10fig}\n]"
static const char text[] =
    "round trips, us           n        p50        p90        p99        max\n"
    "[*gate_spinning|gate, spinning   " FIGURES
    "[*worker_spinning|worker, spinning " FIGURES
    "[*gate_parked|gate, parked     " FIGURES "[*worker_parked|worker, parked   " FIGURES
    "spinning: the client polls; parked: it sleeps, and was {gap_ms} ms idle before\n"
    "[daemon_spin_us|the daemon's ipc.spin_us is {daemon_spin_us}\n]\n[*streaming|"
    "streaming: {clients} clients, {streams} streams each, {tokens_per_stream} tokens a stream\n"
    "tokens relayed                   {tokens_relayed:12fig}\n"
    "tokens per second                {tokens_relayed/duration_s:12fig}\n"
    "records per token                {records_per_token:12fig}\n"
    "wake-ups of clients per token    {wakes_futex_per_token+wakes_fd_per_token:12fig}\n"
    "  by futex                       {wakes_futex_per_token:12fig}\n"
    "  by socket                      {wakes_fd_per_token:12fig}\n"
    "sleeps of the gate per token     {gate_sleeps_per_token:12fig}\n"
    "iterations of the gate per token {gate_iterations_per_token:12fig}\n"
    "processor time of the gate       {gate_cpu_us_per_token:12fig} us\n"
    "processor time of the clients    {client_cpu_us_per_token:12fig} us\n"
    "[shared_with_others|others used the daemon meanwhile: the figures per token include theirs\n]]";

#define FCT_ARGS struct ipc
static const struct fct_opt ipc_opts[] = { FCT_U32('n', "pings", "N", n_ping, 1, 10000000,
                                               "round trips with a polling client (10000)"),
    FCT_U32(0, "parked", "N", n_parked, 1, 1000000, "round trips with a sleeping one (500)"),
    FCT_REAL(0, "gap", "MS", gap_ms, 0, 10000, "idle time before each --parked ping (2)"),
    FCT_U32('c', "clients", "N", n_client, 1, MAX_CLIENT,
        "sessions that take tokens at a time (4)"),
    FCT_U32(0, "streams", "N", n_stream, 1, MAX_STREAM, "requests of each (4)"),
    FCT_U32(0, "tokens", "N", n_token, 1, 1000000, "tokens of each request (200)"),
    FCT_FLAG(0, "json", json, "one JSON object"), FCT_OPT_HELP, FCT_OPT_END };

static const struct fct_line ipc_line = FCT_LINE("fdbench ipc [options]",
    "Round trips through shared memory, and what streaming costs in wake-ups and\n"
    "processor time, from the counters of a daemon without other clients.",
    ipc_opts, .text = text);

int
fdb_cmd_ipc(const struct fct *f, int argc, char **argv)
{
    struct ipc p = { .f = f,
        .n_ping = 10000,
        .n_parked = 500,
        .n_client = 4,
        .n_stream = 4,
        .n_token = 200,
        .gap_ms = 2,
        .begin = PTHREAD_MUTEX_INITIALIZER };
    json_t *answer = NULL;
    int rc = fct_parse(&ipc_line, argc, argv, &p), i;

    if (rc != FCT_GO || (rc = meet(&p)) != 0 || (rc = fct_seg_open(f, 0, &p.seg)) != 0)
        return rc;
    p.result = json_pack("{s:s}", "command", "ipc");
    for (i = 0; rc == 0 && i < 4; i++)
        rc = round_trips(&p, i);
    if (rc == 0)
        rc = stream(&p);
    cnt_unlook(p.seg);
    if (rc != 0) {
        json_decref(p.result);
        return rc;
    }
    (void)fct_ask_once(f, json_pack("{s:s, s:s}", "cmd", "config", "name", "ipc.spin_us"),
        1, &answer);
    json_object_update_new(p.result,
        json_pack("{s:f, s:O?}", "gap_ms", p.gap_ms, "daemon_spin_us",
            fct_member(answer, "config.0.value")));
    json_decref(answer);
    return fct_finish(&ipc_line, p.result, &p, p.json);
}
