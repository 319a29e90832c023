/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"
#include "tools/fdbench/report_priv.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/counter.h"

#define SPIN_US    1000 /* longer than a round trip: the client never sleeps */
#define N_PROMPT   8
#define MAX_CLIENT 256
#define MAX_STREAM 1024

struct ipc_cfg {
    uint32_t n_ping, n_parked, n_client, n_stream, n_token;
    double gap_ms;
    int json;
};

/* Figures of one client, and of the daemon while all clients run. */
struct client {
    fdc_t *s;
    const struct ipc_cfg *cfg;
    uint32_t vocab;
    pthread_mutex_t *begin; /* held until all may begin */
    pthread_t thread;
    uint64_t n_token, cpu_ns;
    int rc; /* 0 or a status */
};

struct streaming {
    double wall_s;
    uint64_t n_token, n_record, client_cpu_ns, gate_cpu_ns;
    uint64_t futex, fd, sleeps, loops;
    int foreign; /* others were served meanwhile */
};

struct ipc {
    const struct fct *f;
    struct ipc_cfg cfg;
    struct fdc_info info;
    struct fdc_model_info model;
    const struct cnt_seg *seg;
    struct fdb_dist_sum trip[4]; /* us */
    struct streaming st;
    char spin[24]; /* the daemon's ipc.spin_us, "" if it does not say */
};

static const char *const trip_names[4] = { "gate, spinning", "worker, spinning",
    "gate, parked", "worker, parked" };
static const char *const trip_keys[4] = { "gate_spinning", "worker_spinning",
    "gate_parked", "worker_parked" };

/* ---- sessions ------------------------------------------------------------------- */

static int
attach(const struct fct *f, uint32_t spin_us, fdc_t **ret)
{
    struct fdc_open_opts opts = { .size = sizeof(opts),
        .path = f->socket,
        .name = fct_prog,
        .spin_us = spin_us };
    int rc = fdc_open(&opts, ret);

    return rc < 0 ? fct_status_fail(f->socket, rc) : 0;
}

/* Messages for a daemon that is not there come from fct_open(). */
static int
meet(struct ipc *p)
{
    json_t *answer = NULL;
    const json_t *row = NULL;
    const char *value;
    fdc_t *s;
    int rc = fct_open(p->f, 0, &s), i;

    if (rc != 0)
        return rc;
    p->info.size = sizeof(p->info);
    p->info.model = &p->model;
    p->model.size = sizeof(p->model);
    /* a worker that has just become ready may not have told its sizes yet */
    for (i = 0; i < 50; i++) {
        rc = fdc_info(s, &p->info, p->f->timeout_ms);
        if (rc != FDC_E_LOADING && (rc < 0 || p->model.vocab != 0))
            break;
        clk_sleep_ns(20 * CLK_MS);
    }
    fdc_close(s);
    if (rc < 0 && rc != FDC_E_LOADING)
        return fct_status_fail("the model's sizes", rc);
    if (rc < 0 || p->model.vocab == 0)
        return fct_fail(FCT_EX_TEMP,
            "the model is still loading; wait for it with\n"
            "  fdbench --wait 60 ipc");
    if (p->cfg.n_token + N_PROMPT > p->model.max_model_len)
        return fct_fail(FCT_EX_USAGE,
            "--tokens %u: with the prompt of %d more than the "
            "model's length, %u",
            p->cfg.n_token, N_PROMPT, p->model.max_model_len);
    if (p->cfg.n_stream > p->info.max_inflight)
        return fct_fail(FCT_EX_USAGE,
            "--streams %u: the daemon allows a session %u "
            "requests at a time; use more --clients",
            p->cfg.n_stream, p->info.max_inflight);
    if (fct_ask_once(p->f, json_pack("{s:s, s:s}", "cmd", "config", "name", "ipc.spin_us"),
            1, &answer) == 0)
        row = json_array_get(json_object_get(answer, "config"), 0);
    value = json_string_value(json_object_get(row, "value"));
    if (value != NULL)
        snprintf(p->spin, sizeof(p->spin), "%s", value);
    json_decref(answer);
    return 0;
}

/* ---- round trips ------------------------------------------------------------------ */

static int
round_trips(const struct ipc *p, int deep, int parked, struct fdb_dist_sum *ret)
{
    uint32_t i, n = parked ? p->cfg.n_parked : p->cfg.n_ping;
    double *v = calloc((size_t)n + 1, sizeof(*v));
    uint64_t ns;
    fdc_t *s;
    int rc;

    if (v == NULL)
        return fct_oom();
    rc = attach(p->f, parked ? FDC_SPIN_NONE : SPIN_US, &s);
    if (rc != 0) {
        free(v);
        return rc;
    }
    /* the first ones meet cold caches and a sleeping daemon */
    for (i = 0; rc >= 0 && i < 10; i++)
        rc = fdc_ping(s, deep, &ns, p->f->timeout_ms);
    for (i = 0; rc >= 0 && i < n; i++) {
        if (parked)
            clk_sleep_ns((uint64_t)(p->cfg.gap_ms * 1e6));
        rc = fdc_ping(s, deep, &ns, p->f->timeout_ms);
        v[i] = (double)ns / 1e3;
    }
    fdc_close(s);
    fdb_dist_of(v, n, ret);
    free(v);
    if (rc < 0)
        return fct_status_fail(deep ? "round trip to the worker" : "round trip to the gate",
            rc);
    return 0;
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
    uint32_t ids[N_PROMPT], i, n_open = 0;
    struct fdc_submit_opts opts = { .size = sizeof(opts), .submit_timeout_ms = 10000 };
    struct fdc_params par;
    struct timespec t;
    fdc_req_t *r;

    fdc_params_init(&par);
    par.flags = FDC_F_IGNORE_EOS;
    par.temperature = 0;
    par.max_new = c->cfg->n_token;
    for (i = 0; i < N_PROMPT; i++)
        ids[i] = (i + 1) % c->vocab;
    pthread_mutex_lock(c->begin);
    pthread_mutex_unlock(c->begin);
    for (i = 0; c->rc == 0 && i < c->cfg->n_stream; i++) {
        int rc = fdc_submit_ids(c->s, ids, N_PROMPT, &par, &opts, &r);

        c->rc = rc < 0 ? rc : 0;
        n_open += rc >= 0;
    }
    while (c->rc == 0 && n_open > 0)
        c->rc = take(c, &n_open);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    c->cpu_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    return NULL;
}

/* The gate's processor time, ns; 0: cannot be read. */
static uint64_t
gate_cpu(const struct cnt_seg *seg)
{
    struct timespec t;
    clockid_t clk;

    if (clock_getcpuclockid(seg->gate_pid, &clk) != 0 || clock_gettime(clk, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void
differ(const struct cnt_gate *a, const struct cnt_gate *b, struct streaming *st)
{
    st->n_record = b->records_relayed - a->records_relayed;
    st->n_token = b->tokens_relayed - a->tokens_relayed;
    st->futex = b->wakes_futex - a->wakes_futex;
    st->fd = b->wakes_fd - a->wakes_fd;
    st->sleeps = b->sleeps - a->sleeps;
    st->loops = b->loops - a->loops;
}

/* Threads that wait at *begin; fewer than asked for: none of them will do a thing. */
static int
make_threads(const struct ipc *p, struct client *c, uint32_t *ret_n)
{
    uint32_t i;
    int e = 0;

    for (*ret_n = 0; *ret_n < p->cfg.n_client; ++*ret_n) {
        e = pthread_create(&c[*ret_n].thread, NULL, run_client, &c[*ret_n]);
        if (e != 0)
            break;
    }
    if (e == 0)
        return 0;
    for (i = 0; i < *ret_n; i++)
        c[i].rc = FDC_E_NOMEM;
    return fct_fail(FCT_EX_SOFT, "--clients %u: no thread for number %u: %s",
        p->cfg.n_client, *ret_n + 1, strerror(e));
}

static int
run_clients(struct ipc *p, struct client *c, pthread_mutex_t *begin)
{
    struct streaming *st = &p->st;
    uint64_t cpu[2], t, mine = 0;
    struct cnt_seg now[2];
    uint32_t i, n;
    int rc, status = 0;

    pthread_mutex_lock(begin);
    rc = make_threads(p, c, &n);
    fct_seg_snap(p->seg, &now[0]);
    cpu[0] = gate_cpu(p->seg);
    t = clk_now_ns();
    pthread_mutex_unlock(begin);
    for (i = 0; i < n; i++) {
        pthread_join(c[i].thread, NULL);
        status = status == 0 ? c[i].rc : status;
        mine += c[i].n_token;
        st->client_cpu_ns += c[i].cpu_ns;
    }
    st->wall_s = (double)(clk_now_ns() - t) / 1e9;
    fct_seg_snap(p->seg, &now[1]);
    cpu[1] = gate_cpu(p->seg);
    st->gate_cpu_ns = cpu[1] - cpu[0];
    differ(&now[0].g, &now[1].g, st);
    st->foreign = st->n_token != mine;
    if (rc == 0 && status != 0)
        rc = fct_status_fail("streaming", status);
    return rc;
}

static int
stream(struct ipc *p)
{
    pthread_mutex_t begin = PTHREAD_MUTEX_INITIALIZER;
    struct client *c = calloc(p->cfg.n_client, sizeof(*c));
    uint32_t i;
    int rc = 0;

    if (c == NULL)
        return fct_oom();
    for (i = 0; rc == 0 && i < p->cfg.n_client; i++) {
        c[i] = (struct client){ .cfg = &p->cfg, .vocab = p->model.vocab, .begin = &begin };
        rc = attach(p->f, FDC_SPIN_NONE, &c[i].s);
    }
    if (rc == 0)
        rc = run_clients(p, c, &begin);
    for (i = 0; i < p->cfg.n_client; i++)
        fdc_close(c[i].s);
    free(c);
    return rc;
}

/* ---- results ----------------------------------------------------------------------- */

static double
per_token(const struct streaming *st, uint64_t n)
{
    return st->n_token > 0 ? (double)n / (double)st->n_token : (double)NAN;
}

static void
print_text(const struct ipc *p)
{
    const struct streaming *st = &p->st;
    char a[4][24];
    size_t i;

    printf("%-18s %8s %10s %10s %10s %10s\n", "round trips, us", "n", "p50", "p90", "p99",
        "max");
    for (i = 0; i < 4; i++) {
        const struct fdb_dist_sum *t = &p->trip[i];

        printf("%-18s %8zu %10s %10s %10s %10s\n", trip_names[i], t->n,
            rep_num(t->pct[0], a[0]), rep_num(t->pct[1], a[1]), rep_num(t->pct[3], a[2]),
            rep_num(t->max, a[3]));
    }
    printf("spinning: the client polls; parked: it sleeps, and was %g ms idle before\n",
        p->cfg.gap_ms);
    if (p->spin[0] != '\0')
        printf("the daemon's ipc.spin_us is %s\n", p->spin);
    printf("\nstreaming: %u clients, %u streams each, %u tokens a stream\n",
        p->cfg.n_client, p->cfg.n_stream, p->cfg.n_token);
    printf("%-32s %12" PRIu64 "\n", "tokens relayed", st->n_token);
    printf("%-32s %12s\n", "tokens per second",
        rep_num((double)st->n_token / st->wall_s, a[0]));
    printf("%-32s %12s\n", "records per token", rep_num(per_token(st, st->n_record), a[0]));
    printf("%-32s %12s futex %s, socket %s\n", "wake-ups of clients per token",
        rep_num(per_token(st, st->futex + st->fd), a[0]),
        rep_num(per_token(st, st->futex), a[1]), rep_num(per_token(st, st->fd), a[2]));
    printf("%-32s %12s\n", "sleeps of the gate per token",
        rep_num(per_token(st, st->sleeps), a[0]));
    printf("%-32s %12s us\n", "processor time of the gate",
        rep_num(per_token(st, st->gate_cpu_ns) / 1e3, a[0]));
    printf("%-32s %12s us\n", "processor time of the clients",
        rep_num(per_token(st, st->client_cpu_ns) / 1e3, a[0]));
    if (st->foreign)
        puts("others used the daemon meanwhile: the figures per token include theirs");
}

static json_t *
per_token_json(const struct streaming *st, uint64_t n, double by)
{
    return fct_json_real(per_token(st, n) / by);
}

static int
print_json(const struct ipc *p)
{
    const struct streaming *st = &p->st;
    json_t *o = json_pack("{s:s}", "command", "ipc"), *s;
    size_t i;

    for (i = 0; i < 4; i++) {
        const struct fdb_dist_sum *t = &p->trip[i];

        json_object_set_new(o, trip_keys[i],
            json_pack("{s:I, s:o, s:o, s:o, s:o}", "n", (json_int_t)t->n, "p50_us",
                fct_json_real(t->pct[0]), "p90_us", fct_json_real(t->pct[1]), "p99_us",
                fct_json_real(t->pct[3]), "max_us", fct_json_real(t->max)));
    }
    s = json_pack("{s:i, s:i, s:i, s:I, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "clients", (int)p->cfg.n_client, "streams", (int)p->cfg.n_stream,
        "tokens_per_stream", (int)p->cfg.n_token, "tokens_relayed", (json_int_t)st->n_token,
        "duration_s", fct_json_real(st->wall_s), "shared_with_others", st->foreign,
        "records_per_token", per_token_json(st, st->n_record, 1), "wakes_futex_per_token",
        per_token_json(st, st->futex, 1), "wakes_fd_per_token",
        per_token_json(st, st->fd, 1), "gate_sleeps_per_token",
        per_token_json(st, st->sleeps, 1), "gate_iterations_per_token",
        per_token_json(st, st->loops, 1), "gate_cpu_us_per_token",
        per_token_json(st, st->gate_cpu_ns, 1e3), "client_cpu_us_per_token",
        per_token_json(st, st->client_cpu_ns, 1e3));
    json_object_set_new(o, "streaming", s);
    json_object_set_new(o, "gap_ms", fct_json_real(p->cfg.gap_ms));
    json_object_set_new(o, "daemon_spin_us",
        p->spin[0] != '\0' ? json_string(p->spin) : json_null());
    return fct_print_json(o);
}

/* ---- command ----------------------------------------------------------------------- */

#define C struct ipc_cfg
static const struct fct_opt ipc_opts[] = {
    { "pings", 'n', "N", "round trips with a polling client (10000)",
        FCT_U32(C, n_ping, 1, 10000000) },
    { "parked", 0, "N", "round trips with a sleeping one (500)",
        FCT_U32(C, n_parked, 1, 1000000) },
    { "gap", 0, "MS", "idle before each of those (2)", FCT_REAL(C, gap_ms, 0, 10000) },
    { "clients", 'c', "N", "sessions that take tokens at a time (4)",
        FCT_U32(C, n_client, 1, MAX_CLIENT) },
    { "streams", 0, "N", "requests of each (4)", FCT_U32(C, n_stream, 1, MAX_STREAM) },
    { "tokens", 0, "N", "tokens of each request (200)", FCT_U32(C, n_token, 1, 1000000) },
    FCT_OPT_JSON(C, "one JSON object"), FCT_OPT_HELP, FCT_OPT_END
};
#undef C

static const struct fct_line ipc_line = { .usage = "fdbench ipc [options]",
    .about = "Round trips through shared memory, and what streaming costs in wake-ups and\n"
             "processor time, from the counters of a daemon without other clients.",
    .opts = { ipc_opts } };

int
fdb_cmd_ipc(const struct fct *f, int argc, char **argv)
{
    struct ipc p = { .f = f,
        .cfg = { .n_ping = 10000,
            .n_parked = 500,
            .n_client = 4,
            .n_stream = 4,
            .n_token = 200,
            .gap_ms = 2 } };
    int rc = fct_parse(&ipc_line, argc, argv, &p.cfg), i;

    if (rc != FCT_GO)
        return rc;
    rc = meet(&p);
    if (rc == 0)
        rc = fct_seg_open(f, &p.seg);
    if (rc != 0)
        return rc;
    for (i = 0; rc == 0 && i < 4; i++)
        rc = round_trips(&p, i & 1, i >> 1, &p.trip[i]);
    if (rc == 0)
        rc = stream(&p);
    fct_seg_close(p.seg);
    if (rc == 0)
        rc = p.cfg.json ? print_json(&p) : (print_text(&p), 0);
    return rc;
}
