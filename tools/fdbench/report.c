/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"
#include "tools/fdbench/report_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/version.h"
#include "tools/fdbench/work.h"

/* ---- metrics ------------------------------------------------------------------ */

static double
or_nan(double v)
{
    return v < 0 ? (double)NAN : v;
}

#define ROW(key, label, unit, kind, field) \
    { \
        key, label, unit, kind, offsetof(struct fdb_sum, field) \
    }
const struct rep_scalar rep_scalars[REP_N_SCALAR] = {
    ROW("requests_ok", "requests that ended well", "", REP_U32, n_ok),
    ROW("requests_failed", "requests that failed", "", REP_U32, n_failed),
    ROW("prompt_tokens", "prompt tokens", "", REP_U64, n_prompt),
    ROW("cached_tokens", "found in the prefix cache", "tokens", REP_U64, n_cached),
    ROW("output_tokens", "output tokens", "", REP_U64, n_out),
    ROW("duration_s", "duration", "s", REP_DBL, wall_s),
    ROW("requests_per_s", "request throughput", "requests/s", REP_DBL, req_s),
    ROW("output_tokens_per_s", "output throughput", "tokens/s", REP_DBL, out_tok_s),
    ROW("total_tokens_per_s", "total throughput", "tokens/s", REP_DBL, total_tok_s),
    ROW("output_tokens_per_s_per_user", "output per user, 1 / median TPOT", "tokens/s",
        REP_USER, tpot),
    ROW("goodput_per_s", "goodput", "requests/s", REP_LIMIT, goodput),
    ROW("attainment", "share within the limits", "", REP_LIMIT, attain),
    ROW("max_concurrent_requests", "most requests open at a time", "", REP_U32,
        max_concurrent_requests),
    ROW("sends_delayed", "sends that waited for room in the session", "", REP_U32, n_held),
    ROW("fdbench_cpu_share", "fdbench's own processor use", "of a core", REP_DBL, cpu_share),
    ROW("late_ms", "worst lateness of a send", "ms", REP_DBL, late_ms),
};

static double
per_user(const struct fdb_dist_sum *tpot)
{
    return tpot->n > 0 && tpot->pct[0] > 0 ? 1000 / tpot->pct[0] : (double)NAN;
}

double
rep_scalar(const struct fdb_sum *s, size_t i)
{
    const void *p = (const char *)s + rep_scalars[i].offset;

    switch (rep_scalars[i].kind) {
    case REP_U32:
        return *(const uint32_t *)p;
    case REP_U64:
        return (double)*(const uint64_t *)p;
    case REP_LIMIT:
        return or_nan(*(const double *)p);
    case REP_USER:
        return per_user(p);
    case REP_DBL:
        break;
    }
    return *(const double *)p;
}

#define DIST(key, label, unit, field) \
    { \
        key, label, unit, offsetof(struct fdb_sum, field) \
    }
const struct rep_dist rep_dists[REP_N_DIST] = {
    DIST("ttft_ms", "TTFT", "ms", ttft),
    DIST("tpot_ms", "TPOT", "ms", tpot),
    DIST("itl_ms", "ITL", "ms", itl),
    DIST("e2e_ms", "E2E", "ms", e2e),
    DIST("queue_ms", "queue", "ms", queue),
    DIST("prompt_len", "prompt", "tokens", n_in),
    DIST("output_len", "output", "tokens", n_gen),
};

const struct fdb_dist_sum *
rep_dist(const struct fdb_sum *s, size_t i)
{
    return (const void *)((const char *)s + rep_dists[i].offset);
}

const char *const rep_stats[REP_N_STAT] = { "mean", "std", "min", "p50", "p90", "p95",
    "p99", "p99.9", "max" };

double
rep_stat(const struct fdb_dist_sum *d, size_t i)
{
    if (d->n == 0)
        return (double)NAN;
    return i == 0 ? d->mean : i == 1 ? d->std : i == 2 ? d->min : d->pct[i - 3];
}

struct rep_mmm
rep_mmm(double *v, size_t n)
{
    if (n == 0)
        return (struct rep_mmm){ (double)NAN, (double)NAN, (double)NAN };
    fdb_sort(v, n);
    return (struct rep_mmm){ fdb_percentile(v, n, 50), v[0], v[n - 1] };
}

static int
across(const struct fdb_result *r, size_t scalar, size_t dist, size_t stat,
    struct rep_mmm *ret)
{
    double *v = calloc((size_t)r->n + 1, sizeof(*v));
    uint32_t i;

    if (v == NULL)
        return -ENOMEM;
    for (i = 0; i < r->n; i++) {
        v[i] = scalar < REP_N_SCALAR ? rep_scalar(&r->sum[i], scalar)
                                     : rep_stat(rep_dist(&r->sum[i], dist), stat);
        if (isnan(v[i]))
            break;
    }
    *ret = rep_mmm(v, i == r->n ? i : 0);
    free(v);
    return 0;
}

int
rep_across_scalar(const struct fdb_result *r, size_t scalar, struct rep_mmm *ret)
{
    return across(r, scalar, 0, 0, ret);
}

int
rep_across_stat(const struct fdb_result *r, size_t dist, size_t stat, struct rep_mmm *ret)
{
    return across(r, REP_N_SCALAR, dist, stat, ret);
}

uint32_t
rep_middle(const struct fdb_result *r)
{
    uint32_t i, j, below;

    for (i = 0; i < r->n; i++) {
        for (j = below = 0; j < r->n; j++)
            below += r->sum[j].out_tok_s < r->sum[i].out_tok_s ||
                (r->sum[j].out_tok_s == r->sum[i].out_tok_s && j < i);
        if (below == (r->n - 1) / 2)
            return i;
    }
    return 0;
}

/* ---- words -------------------------------------------------------------------- */

char *
rep_num(double v, char *ret)
{
    double a = fabs(v);
    int digits = a >= 1000 ? 0
        : a >= 100         ? 1
        : a >= 10          ? 2
        : a >= 1           ? 3
        : a >= 0.1         ? 4
        : a >= 0.01        ? 5
                           : 6;

    if (isnan(v))
        snprintf(ret, 24, "-");
    else if (v == floor(v) && a < 1e15)
        snprintf(ret, 24, "%.0f", v);
    else
        snprintf(ret, 24, a < 1e15 ? "%.*f" : "%.*g", a < 1e15 ? digits : 6, v);
    return ret;
}

const char *
rep_load_unit(const struct fdb_cfg *cfg)
{
    return cfg->arrival == FDB_CLOSED ? "requests at a time"
        : cfg->n_turn > 1             ? "conversations/s"
                                      : "requests/s";
}

const char *
rep_step_within(const struct fdb_step *s)
{
    return s->within ? "yes" : s->behind ? "not sent in time" : "no";
}

int
rep_is_bound(const struct fdb_result *r)
{
    return r->bound > 0 && r->found >= r->bound;
}

/* Appends; a text that does not fit is cut. */
__attribute__((format(printf, 3, 4))) static void
say(char *ret, size_t ret_bytes, const char *fmt, ...)
{
    size_t n = strlen(ret);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(ret + n, ret_bytes - n, fmt, ap);
    va_end(ap);
}

static void
say_len(char *ret, size_t ret_bytes, const char *what, const struct fdb_len *l)
{
    if (l->lo == l->hi)
        say(ret, ret_bytes, "; %s of %u tokens", what, l->lo);
    else
        say(ret, ret_bytes, "; %s of %u to %u tokens", what, l->lo, l->hi);
}

void
rep_workload(const struct fdb_cfg *cfg, char *ret, size_t n)
{
    ret[0] = '\0';
    switch (cfg->arrival) {
    case FDB_CLOSED:
        say(ret, n, "closed loop, %u at a time", cfg->concurrency);
        break;
    case FDB_POISSON:
        say(ret, n, "Poisson arrivals, %g %s", cfg->rate, rep_load_unit(cfg));
        break;
    case FDB_GAMMA:
        say(ret, n, "gamma arrivals, %g %s, shape %g", cfg->rate, rep_load_unit(cfg),
            cfg->burstiness);
        break;
    case FDB_CONSTANT:
        say(ret, n, "even arrivals, %g %s", cfg->rate, rep_load_unit(cfg));
        break;
    case FDB_RAMP:
        say(ret, n, "arrivals growing from %g to %g %s", cfg->rate_from, cfg->rate,
            rep_load_unit(cfg));
        break;
    case FDB_TRACE:
        say(ret, n, "arrivals and lengths of %s",
            cfg->trace != NULL ? cfg->trace : "a file");
        break;
    }
    if (cfg->arrival != FDB_CLOSED && cfg->concurrency > 0)
        say(ret, n, ", at most %u at a time", cfg->concurrency);
    if (cfg->n_request > 0)
        say(ret, n, "; %u requests", cfg->n_request);
    else
        say(ret, n, "; requests");
    if (cfg->n_warm > 0)
        say(ret, n, " after %u to warm up", cfg->n_warm);
    if (cfg->duration_s > 0)
        say(ret, n, " for %s%g s", cfg->n_request > 0 ? "at most " : "", cfg->duration_s);
    if (cfg->n_repeat > 1)
        say(ret, n, ", %u times", cfg->n_repeat);
    if (cfg->arrival != FDB_TRACE) {
        say_len(ret, n, "prompts", &cfg->in);
        say_len(ret, n, "outputs", &cfg->out);
    }
    if (cfg->prefix_len > 0)
        say(ret, n, "; before each prompt one of %u prefixes of %u tokens", cfg->n_prefix,
            cfg->prefix_len);
    if (cfg->n_turn > 1)
        say(ret, n, "; conversations of %u turns", cfg->n_turn);
    say(ret, n, "; prompts as %s", cfg->text ? "text" : "token ids");
    if (cfg->dataset != NULL)
        say(ret, n, " cut from %s", cfg->dataset);
    say(ret, n, "; seed %" PRIu64, cfg->seed);
}

void
rep_limits(const struct fdb_slo *slo, char *ret, size_t n)
{
    const struct {
        const char *name;
        double ms;
    } rows[] = { { "TTFT", slo->ttft_ms }, { "TPOT", slo->tpot_ms },
        { "ITL", slo->itl_ms }, { "E2E", slo->e2e_ms } };
    size_t i;

    ret[0] = '\0';
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].ms > 0)
            say(ret, n, "%s%s %g ms", ret[0] != '\0' ? ", " : "", rows[i].name, rows[i].ms);
}

uint64_t
rep_preempted(const struct fdb_log *log, uint32_t repeat)
{
    uint64_t n = 0;
    size_t i;

    for (i = 0; i < log->n_rec; i++)
        if (!log->rec[i].warm && log->rec[i].repeat == repeat)
            n += log->rec[i].n_preempted;
    return n;
}

/* ---- text --------------------------------------------------------------------- */

static void
text_errors(FILE *out, const struct fdb_result *r)
{
    uint64_t preempted;
    uint32_t i, j;

    for (i = 0; i < r->n; i++) {
        const struct fdb_sum *s = &r->sum[i];
        char who[32] = "";

        if (r->n > 1)
            snprintf(who, sizeof(who), "repeat %u: ", i + 1);
        for (j = 0; j < s->n_fail; j++)
            fprintf(out, "%s%u failed with %s: %s\n", who, s->fail[j].n,
                fdc_status_name(s->fail[j].code), fdc_strerror(s->fail[j].code));
        preempted = rep_preempted(&r->log, i);
        fprintf(out, "%s%" PRIu64 " preemptions\n", who, preempted);
    }
}

static void
text_scalars(FILE *out, const struct fdb_result *r)
{
    char a[24], b[24], c[24];
    struct rep_mmm m;
    size_t i;

    if (r->n > 1)
        fprintf(out, "%-42s %12s %12s %12s\n", "", "median", "min", "max");
    for (i = 0; i < REP_N_SCALAR; i++) {
        const struct rep_scalar *s = &rep_scalars[i];

        if (rep_across_scalar(r, i, &m) != 0 || isnan(m.median))
            continue;
        if (r->n > 1)
            fprintf(out, "%-42s %12s %12s %12s%s%s\n", s->label, rep_num(m.median, a),
                rep_num(m.min, b), rep_num(m.max, c), s->unit[0] != '\0' ? " " : "",
                s->unit);
        else
            fprintf(out, "%-42s %12s%s%s\n", s->label, rep_num(m.median, a),
                s->unit[0] != '\0' ? " " : "", s->unit);
    }
}

/* One line: a distribution's name or "", what it is of the repeats, numbers. */
static void
text_dist(FILE *out, const struct fdb_result *r, size_t d, int which)
{
    static const char *const words[] = { "median", "min", "max" };
    struct rep_mmm m;
    char a[24], name[24] = "";
    size_t i;

    if (which == 0)
        snprintf(name, sizeof(name), "%s %s", rep_dists[d].label, rep_dists[d].unit);
    fprintf(out, "%-14s", name);
    if (r->n > 1)
        fprintf(out, " %-6s", words[which]);
    for (i = 0; i < REP_N_STAT; i++) {
        if (rep_across_stat(r, d, i, &m) != 0)
            m.median = m.min = m.max = (double)NAN;
        fprintf(out, " %9s",
            rep_num(which == 0   ? m.median
                    : which == 1 ? m.min
                                 : m.max,
                a));
    }
    fputc('\n', out);
}

static void
text_steps(FILE *out, const struct fdb_result *r)
{
    char a[8][24], limits[96];
    uint32_t i;

    rep_limits(&r->cfg.slo, limits, sizeof(limits));
    fprintf(out, "\nsearch: %s of %g %% of the requests\n", limits, r->cfg.slo_attain * 100);
    fprintf(out, "%12s %10s %10s %10s %10s %10s %10s %10s %8s  %s\n", "load", "TTFT p50",
        "TTFT p99", "TPOT p50", "TPOT p99", "tok/s", "tok/s/user", "goodput/s",
        "attained", "within");
    for (i = 0; i < r->n_step; i++) {
        const struct fdb_step *s = &r->step[i];

        fprintf(out, "%12s %10s %10s %10s %10s %10s %10s %10s %6.2f %%  %s\n",
            rep_num(s->load, a[0]), rep_num(rep_stat(&s->sum.ttft, 3), a[1]),
            rep_num(rep_stat(&s->sum.ttft, 6), a[2]),
            rep_num(rep_stat(&s->sum.tpot, 3), a[3]),
            rep_num(rep_stat(&s->sum.tpot, 6), a[4]), rep_num(s->sum.out_tok_s, a[5]),
            rep_num(rep_scalar(&s->sum, REP_PER_USER), a[6]), rep_num(s->goodput, a[7]),
            s->attain * 100, rep_step_within(s));
    }
    if (r->found > 0)
        fprintf(out, "largest load within the limits: %g %s%s\n", r->found,
            rep_load_unit(&r->cfg), rep_is_bound(r) ? ", the most that can be tried" : "");
    else
        fputs("no load tried was within the limits\n", out);
}

void
fdb_report_text(FILE *out, const struct fdb_result *r)
{
    const struct fdc_model_info *m = &r->model;
    char text[1024];
    size_t d, i;
    int which;

    fprintf(out, "%s, model %.*s, %s, %s\n", r->command,
        (int)strnlen(m->name, sizeof(m->name)), m->name, r->host, r->time);
    rep_workload(&r->cfg, text, sizeof(text));
    fprintf(out, "%s\n", text);
    rep_limits(&r->cfg.slo, text, sizeof(text));
    if (text[0] != '\0')
        fprintf(out, "limits: %s\n", text);
    fputc('\n', out);
    if (r->n > 0) {
        text_scalars(out, r);
        text_errors(out, r);
        fprintf(out, "\n%-14s%s", "", r->n > 1 ? "       " : "");
        for (i = 0; i < REP_N_STAT; i++)
            fprintf(out, " %9s", rep_stats[i]);
        fputc('\n', out);
        for (d = 0; d < REP_N_DIST; d++)
            for (which = 0; which < (r->n > 1 ? 3 : 1); which++)
                text_dist(out, r, d, which);
    }
    if (r->n_step > 0)
        text_steps(out, r);
}

/* ---- JSON --------------------------------------------------------------------- */

static json_t *
json_dist(const struct fdb_dist_sum *d)
{
    json_t *o = json_pack("{s:I}", "n", (json_int_t)d->n);
    size_t i;

    for (i = 0; i < REP_N_STAT; i++)
        json_object_set_new(o, rep_stats[i], fct_json_real(rep_stat(d, i)));
    return o;
}

static json_t *
json_sum(const struct fdb_sum *s)
{
    json_t *o = json_object(), *codes = json_object();
    size_t i;

    for (i = 0; i < REP_N_SCALAR; i++) {
        double v = rep_scalar(s, i);

        json_object_set_new(o, rep_scalars[i].key,
            rep_scalars[i].kind <= REP_U64 ? json_integer((json_int_t)v) : fct_json_real(v));
    }
    for (i = 0; i < REP_N_DIST; i++)
        json_object_set_new(o, rep_dists[i].key, json_dist(rep_dist(s, i)));
    for (i = 0; i < s->n_fail; i++)
        json_object_set_new(codes, fdc_status_name(s->fail[i].code),
            json_integer(s->fail[i].n));
    json_object_set_new(o, "errors", codes);
    return o;
}

static json_t *
json_repeats(const struct fdb_result *r)
{
    json_t *list = json_array();
    uint32_t i;

    for (i = 0; i < r->n; i++) {
        json_t *o = json_sum(&r->sum[i]);

        json_object_update_new(o,
            json_pack("{s:i, s:I, s:I, s:I, s:I}", "repeat", (int)i, "preemptions",
                (json_int_t)rep_preempted(&r->log, i), "begin_ns",
                (json_int_t)r->run[i].t_begin, "end_ns", (json_int_t)r->run[i].t_end,
                "fdbench_cpu_ns", (json_int_t)r->run[i].cpu_ns));
        json_array_append_new(list, o);
    }
    return list;
}

json_t *
rep_mmm_json(const struct rep_mmm *m)
{
    return json_pack("{s:o, s:o, s:o}", "median", fct_json_real(m->median), "min",
        fct_json_real(m->min), "max", fct_json_real(m->max));
}

static json_t *
json_across(const struct fdb_result *r)
{
    json_t *o = json_object();
    struct rep_mmm m;
    size_t i, j;

    for (i = 0; i < REP_N_SCALAR; i++)
        if (rep_across_scalar(r, i, &m) == 0)
            json_object_set_new(o, rep_scalars[i].key, rep_mmm_json(&m));
    for (i = 0; i < REP_N_DIST; i++) {
        json_t *d = json_object();

        for (j = 0; j < REP_N_STAT; j++)
            if (rep_across_stat(r, i, j, &m) == 0)
                json_object_set_new(d, rep_stats[j], rep_mmm_json(&m));
        json_object_set_new(o, rep_dists[i].key, d);
    }
    return o;
}

static json_t *
json_digest(uint64_t digest)
{
    char hex[17];

    snprintf(hex, sizeof(hex), "%016" PRIx64, digest);
    return json_string(hex);
}

/* Of times and lengths, wherever the file lies and however it is spaced. */
static json_t *
trace_digest(const struct fdb_cfg *c)
{
    uint64_t digest = c->n_row, time_bits;
    size_t i;

    for (i = 0; i < c->n_row; i++) {
        memcpy(&time_bits, &c->row[i].time_s, sizeof(time_bits));
        digest = fdb_mix(fdb_mix(digest, time_bits),
            ((uint64_t)c->row[i].n_prompt << 32) + c->row[i].n_out);
    }
    return c->n_row > 0 ? json_digest(digest) : json_null();
}

static json_t *
dataset_digest(const struct fdb_cfg *c)
{
    uint64_t digest = c->n_words;
    size_t i;

    for (i = 0; i < c->n_words; i++)
        digest = fdb_mix(digest, (unsigned char)c->words[i]);
    return c->dataset != NULL ? json_digest(digest) : json_null();
}

static json_t *
real_or_null(float v)
{
    return v == FDC_UNSET_F ? json_null() : fct_json_real((double)v);
}

/* Parameters of every request other than its lengths. */
static json_t *
json_sampling(const struct fct_req *q)
{
    const struct fdc_params *p = &q->p;


    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:i, s:b, s:b}",
        "temperature", real_or_null(p->temperature), "top_p", real_or_null(p->top_p),
        "min_p", real_or_null(p->min_p), "top_k",
        p->top_k == FDC_UNSET ? json_null() : json_integer(p->top_k), "presence_penalty",
        real_or_null(p->presence_penalty), "frequency_penalty",
        real_or_null(p->frequency_penalty), "repetition_penalty",
        real_or_null(p->repetition_penalty), "stream_interval", (int)q->o.stream_interval,
        "logprobs", (int)p->logprobs, "prompt_logprobs", (int)p->prompt_logprobs,
        "greedy", p->temperature == 0, "eos", (p->flags & FDC_F_IGNORE_EOS) == 0);
}

static json_t *
text_or_null(const char *text)
{
    return text != NULL ? fct_json_text(text, strlen(text)) : json_null();
}

static json_t *
json_cfg(const struct fdb_cfg *c)
{
    static const char *const names[] = { "closed", "poisson", "gamma", "constant", "ramp",
        "trace" };
    json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:i, s:[i,i], s:[i,i]}", "arrivals",
        names[c->arrival], "concurrency", (int)c->concurrency, "requests",
        (int)c->n_request, "warmup", (int)c->n_warm, "repeats", (int)c->n_repeat,
        "prompt_len", (int)c->in.lo, (int)c->in.hi, "output_len", (int)c->out.lo,
        (int)c->out.hi);
    char text[1024];

    /* the seed as text: JSON readers keep 53 bits of a number */
    snprintf(text, sizeof(text), "%" PRIu64, c->seed);
    json_object_update_new(o,
        json_pack("{s:o, s:o, s:o, s:o, s:i, s:i, s:i, s:b, s:o, s:o, "
                  "s:o, s:o, s:o, s:s, s:{s:f, s:f, s:f, s:f, s:f}}",
            "rate_per_s", fct_json_real(c->rate), "rate_from_per_s",
            fct_json_real(c->rate_from), "burstiness", fct_json_real(c->burstiness),
            "duration_s", fct_json_real(c->duration_s), "prefix_len", (int)c->prefix_len,
            "prefixes", (int)c->n_prefix, "turns", (int)c->n_turn, "text", c->text,
            "trace", text_or_null(c->trace), "trace_digest", trace_digest(c), "dataset",
            text_or_null(c->dataset), "dataset_digest", dataset_digest(c), "sampling",
            json_sampling(&c->req), "seed", text, "limits", "ttft_ms", c->slo.ttft_ms,
            "tpot_ms", c->slo.tpot_ms, "itl_ms", c->slo.itl_ms, "e2e_ms", c->slo.e2e_ms,
            "attainment", c->slo_attain));
    rep_workload(c, text, sizeof(text));
    json_object_set_new(o, "workload", fct_json_text(text, strlen(text)));
    return o;
}

static json_t *
json_search(const struct fdb_result *r)
{
    json_t *list = json_array(), *o;
    uint32_t i;

    for (i = 0; i < r->n_step; i++) {
        const struct fdb_step *s = &r->step[i];

        o = json_pack("{s:o, s:o, s:o, s:b, s:b, s:o}", "load", fct_json_real(s->load),
            "goodput_per_s", fct_json_real(or_nan(s->goodput)), "attainment",
            fct_json_real(or_nan(s->attain)), "within", s->within, "sent_in_time",
            !s->behind, "summary", json_sum(&s->sum));
        json_array_append_new(list, o);
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "unit", rep_load_unit(&r->cfg), "found",
        r->found > 0 ? fct_json_real(r->found) : json_null(), "bound",
        r->bound > 0 ? fct_json_real(r->bound) : json_null(), "steps", list);
}

static json_t *
json_daemon(const struct fdb_daemon *d)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "version", text_or_null(d->version),
        "commit", text_or_null(d->commit), "device", text_or_null(d->device),
        "device_uuid", text_or_null(d->device_uuid));
}

json_t *
fdb_report_json(const struct fdb_result *r)
{
    const struct fdc_model_info *m = &r->model;
    json_t *o, *model;
    char hex[2 * sizeof(m->digest) + 1];
    size_t i;

    for (i = 0; i < sizeof(m->digest); i++)
        snprintf(hex + 2 * i, 3, "%02x", m->digest[i]);
    model = json_pack("{s:o, s:s, s:I, s:I}", "name",
        fct_json_text(m->name, strnlen(m->name, sizeof(m->name))), "digest", hex, "vocab",
        (json_int_t)m->vocab, "max_model_len", (json_int_t)m->max_model_len);
    o = json_pack("{s:i, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "format",
        FDB_FORMAT, "fdbench", ver_text(), "daemon", json_daemon(&r->daemon), "command",
        r->command, "args", text_or_null(r->args), "time", text_or_null(r->time), "host",
        text_or_null(r->host), "model", model, "config", json_cfg(&r->cfg), "repeats",
        json_repeats(r), "across_repeats", json_across(r));
    if (r->n_step > 0)
        json_object_set_new(o, "search", json_search(r));
    return o;
}

/* ---- CSV ---------------------------------------------------------------------- */

int
fdb_report_csv(FILE *out, const struct fdb_result *r)
{
    const struct fdb_log *log = &r->log;
    size_t i;
    uint32_t j;

    errno = 0;
    fputs("repeat,index,warm,conversation,turn,prompt_tokens,cached_tokens,output_tokens,"
          "max_new,code,status,finish,preempted,due_ns,send_ns,first_ns,end_ns,queue_ns,"
          "arrivals\r\n",
        out);
    for (i = 0; i < log->n_rec; i++) {
        const struct fdb_rec *q = &log->rec[i];

        fprintf(out, "%u,%u,%u,%u,%u,%u,%u,%u,%u,%d,%s,%s,%u", q->repeat, q->index, q->warm,
            q->conversation, q->turn, q->n_prompt, q->n_cached, q->n_out, q->max_new,
            q->code, fdc_status_name(q->code), fdc_finish_name(q->finish), q->n_preempted);
        fprintf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",",
            q->t_due, q->t_send, q->t_first, q->t_end, q->queue_ns);
        for (j = 0; j < q->n_chunk; j++)
            fprintf(out, "%s%" PRIu64 ":%u", j > 0 ? " " : "",
                log->chunk[q->chunk + j].t_ns, log->chunk[q->chunk + j].n_tok);
        fputs("\r\n", out);
    }
    if (ferror(out) || fflush(out) != 0)
        return errno != 0 ? -errno : -EIO;
    return 0;
}
