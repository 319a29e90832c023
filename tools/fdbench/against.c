/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"
#include "tools/fdbench/report_priv.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ------------------------------------------------------------------ */

int
fdb_against_read(const char *path, int any, json_t **ret_before)
{
    const json_t *format;
    json_error_t e;
    json_t *j;
    char *text;
    size_t n;
    int rc = fct_slurp(path, &text, &n);

    if (rc != 0)
        return rc;
    j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    free(text);
    if (j == NULL)
        return fct_fail(FCT_EX_DATA, "--against %s:%d: %s", path, e.line, e.text);
    format = json_object_get(j, "format");
    if (strcmp(fct_str(j, "command"), "serve") != 0 ||
        !json_is_object(json_object_get(j, "config")) ||
        !json_is_object(json_object_get(j, "across_repeats")))
        rc = fct_fail(FCT_EX_DATA, "--against %s: not what fdbench serve --json writes",
            path);
    else if (!any && json_integer_value(format) != FDB_FORMAT)
        rc = fct_fail(FCT_EX_DATA,
            "--against %s: of another version of fdbench (%.40s), "
            "report format %lld instead of %d; --against-any compares all the same",
            path, fct_str(j, "fdbench"), (long long)json_integer_value(format), FDB_FORMAT);
    if (rc != 0) {
        json_decref(j);
        return rc;
    }
    *ret_before = j;
    return 0;
}

/* ---- what differs ------------------------------------------------------------- */

struct differs {
    char *ret;
    size_t n, at;
    unsigned n_found;
};

__attribute__((format(printf, 2, 3))) static void
add(struct differs *d, const char *fmt, ...)
{
    va_list ap;
    int k;

    if (d->at > 0 && d->at < d->n)
        d->at += (size_t)snprintf(d->ret + d->at, d->n - d->at, ", ");
    d->n_found++;
    if (d->at >= d->n)
        return;
    va_start(ap, fmt);
    k = vsnprintf(d->ret + d->at, d->n - d->at, fmt, ap);
    va_end(ap);
    d->at += k > 0 ? (size_t)k : 0;
}

/* A member as one reads it: 8, 16:64, open-8.csv; "none" where it is not. */
static char *
value_text(const json_t *v, char *ret, size_t n)
{
    const json_t *lo = json_array_get(v, 0), *hi = json_array_get(v, 1);
    char a[24], b[24], *text;

    if (json_is_string(v)) {
        fct_plain(json_string_value(v), json_string_length(v), ret, n);
    } else if (json_is_number(v)) {
        snprintf(ret, n, "%s", rep_num(json_number_value(v), a));
    } else if (json_is_number(lo) && json_is_number(hi)) {
        snprintf(ret, n, json_equal(lo, hi) ? "%s" : "%s:%s",
            rep_num(json_number_value(lo), a), rep_num(json_number_value(hi), b));
    } else if (v == NULL || json_is_null(v)) {
        snprintf(ret, n, "none");
    } else {
        text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        fct_plain(text != NULL ? text : "", text != NULL ? strlen(text) : 0, ret, n);
        free(text);
    }
    return ret;
}

static int
is_same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a != NULL ? a : json_null(), b != NULL ? b : json_null());
}

static void
compare(struct differs *d, const char *label, const json_t *before, const json_t *now)
{
    char a[64], b[64];

    if (!is_same(before, now))
        add(d, "%s was %s, is %s", label, value_text(before, a, sizeof(a)),
            value_text(now, b, sizeof(b)));
}

/* The options that make a load. Neither --repeats nor --seed: more runs of a load, or
 * other tokens, are the same load. Limits only concern goodput; the table says so. */
static void
compare_loads(struct differs *d, const json_t *before, const json_t *now)
{
    static const struct {
        const char *key, *label;
    } rows[] = { { "arrivals", "arrivals" }, { "concurrency", "-c" },
        { "rate_per_s", "--rate" }, { "rate_from_per_s", "--rate-from" },
        { "burstiness", "--burstiness" }, { "requests", "-n" },
        { "duration_s", "--duration" }, { "warmup", "--warmup" },
        { "prefix_len", "--prefix-len" }, { "prefixes", "--prefixes" },
        { "turns", "--turns" }, { "text", "--text" } };
    int traced = json_is_string(json_object_get(now, "trace_digest")) ||
        json_is_string(json_object_get(before, "trace_digest"));
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        compare(d, rows[i].label, json_object_get(before, rows[i].key),
            json_object_get(now, rows[i].key));
    if (!traced) {
        compare(d, "--input", json_object_get(before, "prompt_len"),
            json_object_get(now, "prompt_len"));
        compare(d, "--output", json_object_get(before, "output_len"),
            json_object_get(now, "output_len"));
    }
    compare(d, "digest of --trace", json_object_get(before, "trace_digest"),
        json_object_get(now, "trace_digest"));
    compare(d, "digest of --dataset", json_object_get(before, "dataset_digest"),
        json_object_get(now, "dataset_digest"));
}

static void
compare_sampling(struct differs *d, const json_t *before, const json_t *now)
{
    const json_t *v;
    const char *key;

    json_object_foreach((json_t *)(uintptr_t)now, key, v)
        compare(d, key, json_object_get(before, key), v);
}

static void
compare_models(struct differs *d, const json_t *before, const json_t *now)
{
    const json_t *a = json_object_get(before, "name"), *b = json_object_get(now, "name");
    char text[2][64];

    if (!is_same(a, b))
        compare(d, "model", a, b);
    else if (!is_same(json_object_get(before, "digest"), json_object_get(now, "digest")))
        add(d, "model %s was of other files (digest %.12s, is %.12s)",
            value_text(b, text[0], sizeof(text[0])),
            value_text(json_object_get(before, "digest"), text[1], sizeof(text[1])),
            fct_str(now, "digest"));
}

/* A run that was interrupted has fewer repeats, or requests, than were asked for. */
static void
check_whole(struct differs *d, const char *which, const json_t *report)
{
    const json_t *cfg = json_object_get(report, "config");
    const json_t *list = json_object_get(report, "repeats"), *one;
    long long n = fct_num(cfg, "requests"), n_sent;
    size_t i;

    if (json_array_size(list) != (size_t)fct_num(cfg, "repeats")) {
        add(d, "%s run was broken off after %zu of %lld repeats", which,
            json_array_size(list), fct_num(cfg, "repeats"));
        return;
    }
    if (json_number_value(json_object_get(cfg, "duration_s")) > 0)
        return;
    json_array_foreach(list, i, one) {
        n_sent = fct_num(one, "requests_ok") + fct_num(one, "requests_failed");
        if (n_sent < n) {
            add(d, "%s run was broken off after %lld of %lld requests", which, n_sent, n);
            return;
        }
    }
}

static void
compare_reports(struct differs *d, const json_t *before, const json_t *now)
{
    const json_t *was = json_object_get(before, "config");
    const json_t *is = json_object_get(now, "config");

    compare_models(d, json_object_get(before, "model"), json_object_get(now, "model"));
    compare_loads(d, was, is);
    compare_sampling(d, json_object_get(was, "sampling"), json_object_get(is, "sampling"));
    check_whole(d, "the earlier", before);
}

unsigned
fdb_against_differs(const json_t *before, const json_t *now, char *ret, size_t ret_bytes)
{
    struct differs d = { .ret = ret, .n = ret_bytes };

    ret[0] = '\0';
    compare_reports(&d, before, now);
    return d.n_found;
}

/* ---- the table ---------------------------------------------------------------- */

/* Numbers of across_repeats; stat NULL: a scalar. */
static double
figure(const json_t *report, const char *key, const char *stat)
{
    const json_t *o = json_object_get(json_object_get(report, "across_repeats"), key);

    o = json_object_get(stat != NULL ? json_object_get(o, stat) : o, "median");
    return json_is_number(o) ? json_number_value(o) : (double)NAN;
}

static void
row(FILE *out, const char *label, double before, double now, int is_comparable)
{
    char a[24], b[24], ratio[24] = "-";

    if (is_comparable && before > 0 && !isnan(now))
        snprintf(ratio, sizeof(ratio), "%.3f", now / before);
    fprintf(out, "%-32s %14s %14s %10s\n", label, rep_num(before, a), rep_num(now, b),
        ratio);
}

static void
limits_text(const json_t *report, char *ret, size_t n)
{
    const json_t *l = json_object_get(json_object_get(report, "config"), "limits");
    struct fdb_slo slo = { .ttft_ms = json_number_value(json_object_get(l, "ttft_ms")),
        .tpot_ms = json_number_value(json_object_get(l, "tpot_ms")),
        .itl_ms = json_number_value(json_object_get(l, "itl_ms")),
        .e2e_ms = json_number_value(json_object_get(l, "e2e_ms")) };

    rep_limits(&slo, ret, n);
    if (ret[0] == '\0')
        snprintf(ret, n, "none");
}

static void
scalar_rows(FILE *out, const json_t *before, const json_t *now)
{
    static const char *const keys[] = { "requests_ok", "requests_failed", "duration_s",
        "requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "goodput_per_s",
        "attainment" };
    char label[64], limits[2][96];
    size_t i, k;
    int same_limits;

    limits_text(before, limits[0], sizeof(limits[0]));
    limits_text(now, limits[1], sizeof(limits[1]));
    same_limits = strcmp(limits[0], limits[1]) == 0;
    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        for (k = 0; k < REP_N_SCALAR; k++) {
            const struct rep_scalar *s = &rep_scalars[k];
            double was = figure(before, s->key, NULL), is = figure(now, s->key, NULL);

            if (strcmp(s->key, keys[i]) != 0 || (isnan(was) && isnan(is)))
                continue;
            snprintf(label, sizeof(label), "%s%s%s", s->label,
                s->unit[0] != '\0' ? ", " : "", s->unit);
            row(out, label, was, is, s->kind != REP_LIMIT || same_limits);
        }
}

/* TTFT, TPOT, ITL and E2E. */
static void
dist_rows(FILE *out, const json_t *before, const json_t *now)
{
    static const char *const stats[] = { "p50", "p99", "max" };
    char label[64];
    size_t d, i;

    for (d = 0; d < 4; d++)
        for (i = 0; i < sizeof(stats) / sizeof(stats[0]); i++) {
            snprintf(label, sizeof(label), "%s %s, %s", rep_dists[d].label, stats[i],
                rep_dists[d].unit);
            row(out, label, figure(before, rep_dists[d].key, stats[i]),
                figure(now, rep_dists[d].key, stats[i]), 1);
        }
}

/* One line for what is the same, two for what is not. */
static void
fact(FILE *out, const char *label, const char *before, const char *now)
{
    char a[256], b[256];

    fct_plain(before, strlen(before), a, sizeof(a));
    fct_plain(now, strlen(now), b, sizeof(b));
    if (a[0] == '\0')
        snprintf(a, sizeof(a), "not known");
    if (b[0] == '\0')
        snprintf(b, sizeof(b), "not known");
    if (strcmp(a, b) == 0)
        fprintf(out, "%-8s both    %s\n", label, a);
    else
        fprintf(out, "%-8s before  %s\n%-8s now     %s\n", label, a, "", b);
}

static void
daemon_text(const json_t *report, char *ret, size_t n)
{
    const json_t *d = json_object_get(report, "daemon");
    const char *version = fct_str(d, "version"), *commit = fct_str(d, "commit");

    snprintf(ret, n, "%s%s%s", commit,
        commit[0] != '\0' && version[0] != '\0' ? ", fdd "
            : version[0] != '\0'                ? "fdd "
                                                : "",
        version);
}

static void
device_text(const json_t *report, char *ret, size_t n)
{
    const json_t *d = json_object_get(report, "daemon");
    const char *uuid = fct_str(d, "device_uuid"), *host = fct_str(report, "host");

    snprintf(ret, n, "%.24s%s%.48s%s%.120s", fct_str(d, "device"),
        uuid[0] != '\0' ? " " : "", uuid, host[0] != '\0' ? " of " : "", host);
}

static void
facts(FILE *out, const json_t *before, const json_t *now)
{
    static const struct {
        const char *label;
        void (*fn)(const json_t *, char *, size_t);
    } rows[] = { { "commit", daemon_text }, { "device", device_text },
        { "limits", limits_text } };
    char a[256], b[256];
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rows[i].fn(before, a, sizeof(a));
        rows[i].fn(now, b, sizeof(b));
        fact(out, rows[i].label, a, b);
    }
    fact(out, "time", fct_str(before, "time"), fct_str(now, "time"));
    fact(out, "args", fct_str(before, "args"), fct_str(now, "args"));
}

void
fdb_against_text(FILE *out, const json_t *before, const json_t *now)
{
    size_t n[2] = { json_array_size(json_object_get(before, "repeats")),
        json_array_size(json_object_get(now, "repeats")) };
    char text[1024] = "";
    struct differs d = { .ret = text, .n = sizeof(text) };

    facts(out, before, now);
    compare_reports(&d, before, now);
    check_whole(&d, "this", now);
    if (d.n_found > 0)
        fprintf(out, "not comparable: %s\n", text);
    if (n[0] > 1 || n[1] > 1)
        fprintf(out, "medians of %zu and of %zu runs\n", n[0], n[1]);
    fprintf(out, "\n%-32s %14s %14s %10s\n", "", "before", "now", "ratio");
    scalar_rows(out, before, now);
    dist_rows(out, before, now);
}
