/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

int
fdb_against_read(const char *path, int any, json_t **ret_before)
{
    long long format;
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
        return fct_data("--against %s:%d: %s", path, e.line, e.text);
    format = fct_num(j, "format");
    if (strcmp(fct_str(j, "command"), "serve") != 0 ||
        !json_is_object(json_object_get(j, "config")) ||
        !json_is_object(json_object_get(j, "across_repeats")))
        rc = fct_data("--against %s: not what fdbench serve --json writes", path);
    else if (!any && format != FDB_FORMAT)
        rc = fct_data("--against %s: of another version of fdbench (%.40s), report format %lld "
                      "instead of %d; --against-any compares all the same",
            path, fct_str(j, "fdbench"), format, FDB_FORMAT);
    if (rc != 0)
        json_decref(j);
    else
        *ret_before = j;
    return rc;
}

/* ---- what differs ------------------------------------------------------------- */

struct differs {
    FILE *out;
    unsigned n;
};

/* Count a difference; returns the file that its text is written to. */
static FILE *
more(struct differs *d)
{
    if (d->n++ > 0)
        fputs(", ", d->out);
    return d->out;
}

/* A member as readable text: 8, 16:64, open-8.csv; "none" if it is missing. */
static char *
value_text(const json_t *v, char *ret, size_t n)
{
    const json_t *lo = json_array_get(v, 0), *hi = json_array_get(v, 1);
    char a[24], b[24], *text;

    if (v == NULL || json_is_null(v)) {
        snprintf(ret, n, "none");
    } else if (json_is_number(v)) {
        snprintf(ret, n, "%s", fct_figure(json_number_value(v), a));
    } else if (json_is_number(lo) && json_is_number(hi)) {
        snprintf(ret, n, json_equal(lo, hi) ? "%s" : "%s:%s",
            fct_figure(json_number_value(lo), a), fct_figure(json_number_value(hi), b));
    } else {
        text = json_is_string(v) ? strdup(json_string_value(v))
                                 : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        fct_plain(text != NULL ? text : "", SIZE_MAX, ret, n);
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

/* Returns 1 if the member differs, after it wrote how. */
static int
compare(struct differs *d, const char *label, const json_t *was, const json_t *is)
{
    char a[64], b[64];

    if (is_same(was, is))
        return 0;
    fprintf(more(d), "%s was %s, is %s", label, value_text(was, a, sizeof(a)),
        value_text(is, b, sizeof(b)));
    return 1;
}

/* The members of "config" that define a load. Other --repeats or --seed do not change it.
 * Limits affect only goodput; the table shows them. */
static const struct {
    const char *key, *label;
} options[] = { { "arrivals", "arrivals" }, { "concurrency", "-c" },
    { "rate_per_s", "--rate" }, { "rate_from_per_s", "--rate-from" },
    { "burstiness", "--burstiness" }, { "requests", "-n" }, { "duration_s", "--duration" },
    { "warmup", "--warmup" }, { "prefix_len", "--prefix-len" },
    { "prefixes", "--prefixes" }, { "turns", "--turns" }, { "text", "--text" },
    { "trace_digest", "digest of --trace" }, { "dataset_digest", "digest of --dataset" },
    /* the last two: only without a trace, which sets the lengths */
    { "prompt_len", "--input" }, { "output_len", "--output" } };

/* An interrupted run has fewer repeats, or requests, than its options asked for. */
static void
check_whole(struct differs *d, const char *which, const json_t *report)
{
    const json_t *cfg = json_object_get(report, "config");
    const json_t *list = json_object_get(report, "repeats"), *one;
    const char *what = "repeats";
    long long n = fct_num(cfg, what), n_done = (long long)json_array_size(list);
    size_t i;

    if (n_done == n && !(fct_real(cfg, "duration_s") > 0)) {
        what = "requests";
        n = n_done = fct_num(cfg, what);
        json_array_foreach(list, i, one)
            n_done =
                MIN(n_done, fct_num(one, "requests_ok") + fct_num(one, "requests_failed"));
    }
    if (n_done != n)
        fprintf(more(d), "%s run was broken off after %lld of %lld %s", which, n_done, n,
            what);
}

unsigned
fdb_against_differs(const json_t *before, const json_t *now, char *ret, size_t ret_bytes)
{
    struct differs d = { .out = fmemopen(ret, ret_bytes, "w") };
    const json_t *was = json_object_get(before, "config");
    const json_t *is = json_object_get(now, "config");
    const json_t *model = json_object_get(now, "model"), *v;
    const json_t *digest = fct_member(before, "model.digest");
    int traced = json_is_string(json_object_get(is, "trace_digest")) ||
        json_is_string(json_object_get(was, "trace_digest"));
    size_t i, n = sizeof(options) / sizeof(options[0]) - (traced ? 2 : 0);
    char text[2][64];
    const char *key;

    if (d.out == NULL)
        return (unsigned)snprintf(ret, ret_bytes, "out of memory");
    ret[0] = '\0';
    if (!compare(&d, "model", fct_member(before, "model.name"), fct_member(model, "name")) &&
        !is_same(digest, json_object_get(model, "digest")))
        fprintf(more(&d), "model %s was of other files (digest %.12s, is %.12s)",
            value_text(json_object_get(model, "name"), text[0], sizeof(text[0])),
            value_text(digest, text[1], sizeof(text[1])), fct_str(model, "digest"));
    for (i = 0; i < n; i++)
        (void)compare(&d, options[i].label, json_object_get(was, options[i].key),
            json_object_get(is, options[i].key));
    was = json_object_get(was, "sampling");
    json_object_foreach(json_object_get(is, "sampling"), key, v)
        (void)compare(&d, key, json_object_get(was, key), v);
    check_whole(&d, "the earlier", before);
    if (json_array_size(json_object_get(now, "repeats")) > 0)
        check_whole(&d, "this", now);
    fclose(d.out);
    return d.n;
}

/* ---- the table ---------------------------------------------------------------- */

/* The head of the table: templates (fct_text()) of a report. */
static const struct {
    const char *label, *text;
} facts[] = {
    { "commit", "{daemon.commit}[daemon.version|[daemon.commit|, ]fdd {daemon.version}]" },
    { "device",
        "{daemon.device}[daemon.device_uuid| {daemon.device_uuid}]"
        "[host|[daemon.device| of ]{host}]" },
    { "limits",
        FDB_LIMITS "[!config.limits.ttft_ms|[!config.limits.tpot_ms|"
                   "[!config.limits.itl_ms|[!config.limits.e2e_ms|none]]]]" },
    { "time", "{time}" },
    { "args", "{args}" },
};

/* Print one line for a fact that is equal in both reports, else two. */
static void
print_facts(FILE *out, const json_t *const report[2])
{
    char text[2][256], raw[512];

    for (size_t row = 0; row < sizeof(facts) / sizeof(facts[0]); row++) {
        for (int i = 0; i < 2; i++) {
            fct_fill(raw, sizeof(raw), facts[row].text, report[i]);
            fct_plain(raw[0] != '\0' ? raw : "not known", SIZE_MAX, text[i], 256);
        }
        if (strcmp(text[0], text[1]) == 0)
            fprintf(out, "%-8s both    %s\n", facts[row].label, text[0]);
        else
            fprintf(out, "%-8s before  %s\n%-8s now     %s\n", facts[row].label, text[0],
                "", text[1]);
    }
}

static void
print_row(FILE *out, const struct fdb_metric *m, const char *stat,
    const json_t *const across[2], int is_comparable)
{
    double was = fdb_figure(across[0], m->key, stat, "median");
    double is = fdb_figure(across[1], m->key, stat, "median");
    char ratio[24] = "-", text[64];

    if (stat == NULL && isnan(was) && isnan(is))
        return;
    snprintf(text, sizeof(text), "%s%s%s%s%s", m->label, stat != NULL ? " " : "",
        stat != NULL ? stat : "", m->unit[0] != '\0' ? ", " : "", m->unit);
    if (is_comparable && was > 0 && !isnan(is))
        snprintf(ratio, sizeof(ratio), "%.3f", is / was);
    fprintf(out, "%-32s", text);
    fdb_cell(out, 14, was);
    fdb_cell(out, 14, is);
    fprintf(out, " %10s\n", ratio);
}

void
fdb_against_text(FILE *out, const json_t *before, const json_t *now)
{
    static const char *const stats[] = { "p50", "p99", "max" };
    const json_t *const reports[2] = { before, now };
    const json_t *across[2];
    char text[1024], limits[2][96];
    const struct fdb_metric *m;
    size_t n[2], i;

    for (i = 0; i < 2; i++) {
        across[i] = json_object_get(reports[i], "across_repeats");
        n[i] = json_array_size(json_object_get(reports[i], "repeats"));
        fct_fill(limits[i], sizeof(limits[i]), FDB_LIMITS, reports[i]);
    }
    print_facts(out, reports);
    if (fdb_against_differs(before, now, text, sizeof(text)) > 0)
        fprintf(out, "not comparable: %s\n", text);
    if (n[0] > 1 || n[1] > 1)
        fprintf(out, "medians of %zu and of %zu runs\n", n[0], n[1]);
    fprintf(out, "\n%-32s %14s %14s %10s\n", "", "before", "now", "ratio");
    for (m = fdb_metrics; m < fdb_metrics + FDB_N_METRIC; m++) {
        int is_dist = m->kind == FDB_DIST;

        for (i = 0; m->is_compared && i < (is_dist ? 3 : 1); i++)
            print_row(out, m, is_dist ? stats[i] : NULL, across,
                m->kind != FDB_LIMITED || strcmp(limits[0], limits[1]) == 0);
    }
}
