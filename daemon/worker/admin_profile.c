/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/admin_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/worker/profile.h"
#include "daemon/worker/worker.h"

#define ADM_STEPS      32
#define ADM_WITHIN_MS  10000
#define ADM_WITHIN_MAX 600000
#define ADM_CONTEXT    1024
#define ADM_LOOK_MS    2

struct adm_ask {
    int64_t steps, within_ms, batch, context, prefill;
    int is_synthetic;
};

/* ---- the question ------------------------------------------------------------------------- */

static json_t *
adm_fail(const char *error, const char *fix)
{
    return json_pack("{s:b, s:s, s:s}", "ok", 0, "error", error, "fix", fix);
}

/* Reads an optional integer of the question. Returns NULL, or the error as an answer. */
static json_t *
adm_take(const json_t *q, const char *key, int64_t least, int64_t most, int64_t *ret)
{
    const json_t *v = json_object_get(q, key);
    char text[160];

    if (v == NULL)
        return NULL;
    if (json_is_integer(v) && json_integer_value(v) >= least &&
        json_integer_value(v) <= most) {
        *ret = json_integer_value(v);
        return NULL;
    }
    (void)snprintf(text, sizeof(text), "%s must be a whole number from %lld to %lld", key,
        (long long)least, (long long)most);
    if (json_is_integer(v))
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), ", not %lld",
            (long long)json_integer_value(v));
    return adm_error(text);
}

static json_t *
adm_take_all(const struct worker *w, const json_t *q, struct adm_ask *a)
{
    json_t *bad;

    *a = (struct adm_ask){ .steps = ADM_STEPS,
        .within_ms = ADM_WITHIN_MS,
        .context = w->max_len < ADM_CONTEXT ? w->max_len : ADM_CONTEXT };
    bad = adm_take(q, "steps", 1, PRF_MAX_STEPS, &a->steps);
    if (bad == NULL)
        bad = adm_take(q, "within_ms", 1, ADM_WITHIN_MAX, &a->within_ms);
    if (bad == NULL)
        bad = adm_take(q, "batch", 0, INT32_MAX, &a->batch);
    if (bad == NULL)
        bad = adm_take(q, "context", 1, INT32_MAX, &a->context);
    if (bad == NULL)
        bad = adm_take(q, "prefill", 0, INT32_MAX, &a->prefill);
    a->is_synthetic = json_object_get(q, "batch") != NULL ||
        json_object_get(q, "context") != NULL || json_object_get(q, "prefill") != NULL;
    return bad;
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* The thread that wrote to stop_fd has seen the engine end. Reading synchronizes with it;
 * the value is written back for adm_main(). */
static void
adm_see_end(int stop_fd)
{
    uint64_t n;

    if (read(stop_fd, &n, sizeof(n)) == (ssize_t)sizeof(n) &&
        write(stop_fd, &n, sizeof(n)) != (ssize_t)sizeof(n))
        log_error("worker: the admin thread cannot be told to end");
}

/* Waits until the engine gives p back. Returns 0, or -ECANCELED if the engine has ended.
 * Any message from the gate meanwhile means that the answer is no longer wanted, and
 * stops the profile. */
static int
adm_await(struct worker *w, struct prf *p, int64_t within_ms, int stop_fd)
{
    uint64_t until = clk_now_ns() + (uint64_t)within_ms * CLK_MS;
    struct engine *e = w->pip->eng;
    int stopped = 0;

    while (!eng_profile_ready(e)) {
        struct pollfd pfd[2] = { { .fd = stop_fd, .events = POLLIN },
            { .fd = stopped ? -1 : w->admin_fd, .events = POLLIN } };
        int n = poll(pfd, 2, ADM_LOOK_MS);

        if (n > 0 && pfd[0].revents != 0) {
            adm_see_end(stop_fd);
            return -ECANCELED;
        }
        if (!stopped && ((n > 0 && pfd[1].revents != 0) || clk_now_ns() >= until)) {
            stopped = 1;
            eng_profile_stop(e, p);
            pip_ring_engine(w->pip);
        }
    }
    return 0;
}

/* ---- the answer ----------------------------------------------------------------------------- */

static double
adm_us(uint64_t sum_ns, int32_t n)
{
    return n > 0 ? (double)sum_ns / n / 1e3 : 0;
}

static json_t *
adm_steps_json(const struct prf_steps *s)
{
    double n = s->n > 0 ? s->n : 1;
    json_t *o = json_object();

    adm_set(o, "steps", json_integer(s->n));
    adm_set(o, "graph", json_integer(s->n_graph));
    adm_set(o, "divided", json_integer(s->n_split));
    adm_set(o, "us", json_real(adm_us(s->sum_ns, s->n)));
    adm_set(o, "min_us", json_real((double)s->min_ns / 1e3));
    adm_set(o, "tokens", json_real(s->tok / n));
    adm_set(o, "padded_tokens", json_real(s->pad / n));
    adm_set(o, "rows", json_real(s->row / n));
    adm_set(o, "decode_rows", json_real(s->decode / n));
    adm_set(o, "results", json_real(s->out / n));
    adm_set(o, "context", json_real(s->row > 0 ? s->ctx / s->row : 0));
    return o;
}

/* Describes a line that is not an operation, but is in each step. */
static void
adm_other(json_t *o, int32_t k)
{
    static const char *const names[RUN_LINE__N] = { [RUN_LINE_DELAY] = "delay",
        [RUN_LINE_UPLOAD] = "upload",
        [RUN_LINE_UPDATES] = "updates",
        [RUN_LINE_RESULTS] = "results" };

    adm_set(o, "index", json_integer(-1));
    adm_set(o, "kind", json_string(names[k]));
    adm_set(o, "layer", json_integer(-1));
    adm_set(o, "N", json_integer(0));
    adm_set(o, "K", json_integer(0));
    adm_set(o, "weights", json_array());
    adm_set(o, "bytes", json_real(0));
    adm_set(o, "flops", json_real(0));
    adm_set(o, "roofline_us", json_real(0));
}

static json_t *
adm_lines(const struct worker *w, const struct prf *p, const struct peak *c,
    double *ret_roofline_ns, uint64_t *ret_sum_ns)
{
    const struct prf_steps *m = &p->measured;
    double n = m->n;
    struct adm_shape sh = { .tok = m->tok / n,
        .row = m->row / n,
        .out = m->out / n,
        .ctx = m->ctx / n,
        .pair = m->pair / n };
    json_t *a = json_array();

    for (int32_t i = 0; i < p->n_line; i++) {
        const struct prf_line *l = &p->line[i];
        json_t *o = json_object();
        double roofline_ns = 0, us = (double)l->sum_ns / n / 1e3;

        /* scaled, since steps without this tail did not run it */
        if (i < w->prog->n_op)
            roofline_ns = adm_op(w, i, &sh, c, o) * l->n / n;
        else
            adm_other(o, i - w->prog->n_op);
        *ret_roofline_ns += roofline_ns;
        *ret_sum_ns += l->sum_ns;
        adm_set(o, "calls", json_integer(l->n));
        adm_set(o, "us", json_real(us));
        adm_set(o, "min_us", json_real((double)l->min_ns / 1e3));
        adm_set(o, "roofline_fraction", json_real(us > 0 ? roofline_ns / 1e3 / us : 0));
        if (l->n > 0)
            (void)json_array_append(a, o);
        json_decref(o);
    }
    return a;
}

/* Computing time of the busiest rank minus that of the least busy one, as a fraction of
 * the former. */
static double
adm_imbalance(const struct prf *p)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (int32_t i = 0; i < p->run->n_rank; i++) {
        uint64_t ns = p->rank[i].compute_ns;

        least = ns < least ? ns : least;
        most = ns > most ? ns : most;
    }
    return most > 0 ? (double)(most - least) / (double)most : 0;
}

/* With several ranks: each rank's times in a measured step. */
static void
adm_ranks(const struct prf *p, json_t *o)
{
    json_t *a = json_array();

    for (int32_t i = 0; i < p->run->n_rank; i++) {
        json_t *r = json_object();

        adm_set(r, "rank", json_integer(i));
        adm_set(r, "device", json_string(p->run->dev[i].name));
        adm_set(r, "compute_us", json_real(adm_us(p->rank[i].compute_ns, p->measured.n)));
        adm_set(r, "exchange_us", json_real(adm_us(p->rank[i].exchange_ns, p->measured.n)));
        (void)json_array_append_new(a, r);
    }
    adm_set(o, "ranks", a);
    adm_set(o, "imbalance", json_real(adm_imbalance(p)));
    adm_set(o, "exposed_us", json_real(adm_us(p->exposed_ns, p->measured.n)));
}

static json_t *
adm_profile_json(const struct worker *w, const struct prf *p, const struct peak *c)
{
    double roofline_ns = 0, measured = adm_us(p->measured.sum_ns, p->measured.n);
    double plain = adm_us(p->plain.sum_ns, p->plain.n), sum;
    json_t *o = json_object(), *lines;
    uint64_t sum_ns = 0;

    lines = adm_lines(w, p, c, &roofline_ns, &sum_ns);
    sum = adm_us(sum_ns, p->measured.n);
    adm_set(o, "ok", json_true());
    adm_set(o, "mode", json_string(p->is_synthetic ? "synthetic" : "live"));
    adm_set(o, "backend", json_string(w->run->k->name));
    adm_set(o, "asked", json_integer(p->n_step));
    adm_set(o, "truncated",
        json_string(p->interrupted ? "a request came in"
                : p->measured.n < p->n_step || p->plain.n < p->n_step
                ? "the time limit was reached"
                : ""));
    adm_set(o, "profiled", adm_steps_json(&p->measured));
    adm_set(o, "unprofiled", adm_steps_json(&p->plain));
    adm_set(o, "sum_us", json_real(sum));
    adm_set(o, "roofline_us", json_real(roofline_ns / 1e3));
    adm_set(o, "sum_to_profiled", json_real(measured > 0 ? sum / measured : 0));
    adm_set(o, "profiled_to_unprofiled", json_real(plain > 0 ? measured / plain : 0));
    adm_set(o, "measured_peak", adm_peak_json(w, c));
    adm_set(o, "lines", lines);
    if (p->run->n_rank > 1)
        adm_ranks(p, o);
    return o;
}

static json_t *
adm_result(const struct worker *w, const struct prf *p, const struct adm_ask *a,
    const struct peak *c)
{
    char text[200];

    if (p->n_busy > 0) {
        (void)snprintf(text, sizeof(text),
            "%d request%s running: a synthetic step needs an "
            "idle daemon",
            p->n_busy, p->n_busy == 1 ? " is" : "s are");
        return adm_fail(text,
            "fdctl drain --wait, then again and fdctl drain --off; or "
            "fdctl profile without a shape, for the steps that run");
    }
    if (p->measured.n > 0)
        return adm_profile_json(w, p, c);
    if (p->interrupted)
        return adm_fail("a request came in before a step was measured",
            "again, when no "
            "requests come: fdctl drain");
    (void)snprintf(text, sizeof(text), "no step %s within %g s",
        p->is_synthetic ? "was done" : "ran", (double)a->within_ms / 1e3);
    return adm_fail(text,
        p->is_synthetic
            ? "fdctl profile --within SECONDS, or a smaller shape"
            : "fdctl profile while requests run, or fdctl profile --batch 1 --context 1024 for "
              "a synthetic step");
}

json_t *
adm_profile(struct worker *w, const json_t *q, int stop_fd)
{
    struct bat_synth synth;
    struct adm_ask a;
    struct prf *p = NULL;
    struct peak peak;
    const struct peak *c;
    char err[512];
    int again = json_is_true(json_object_get(q, "measure")), rc;
    json_t *o = adm_take_all(w, q, &a);

    if (o == NULL && again && w->peak_fixed)
        o = adm_fail("GPUs that share a model are measured only before the worker is ready",
            "without --measure; to measure again, remove peaks-*.json in daemon.cache_dir "
            "and restart fdd");
    if (o != NULL)
        return o;
    synth = (struct bat_synth){ .n_decode = (int32_t)a.batch,
        .context = (int32_t)a.context,
        .n_prefill = (int32_t)a.prefill };
    if (a.is_synthetic && prf_synth_check(w->run, &synth, w->max_len, err, sizeof(err)) != 0)
        return adm_error(err);
    c = adm_peak(w, again, &peak);
    rc = prf_new(w->run, (int32_t)a.steps, a.is_synthetic ? &synth : NULL, &p);
    if (rc == 0)
        rc = eng_profile(w->pip->eng, p);
    if (rc == 0) {
        pip_ring_engine(w->pip);
        rc = adm_await(w, p, a.within_ms, stop_fd);
    }
    if (rc == 0)
        o = adm_result(w, p, &a, c);
    else
        o = adm_error(rc == -ECANCELED ? "the worker ends" : strerror(-rc));
    (void)prf_free(p);
    return o;
}
