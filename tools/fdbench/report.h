/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What came of a run, as one JSON object, and what is made of it: a table, a page, a
 * comparison with an earlier run, files. All of them read figures from that object.
 */
#ifndef FDD_TOOLS_FDBENCH_REPORT_H
#define FDD_TOOLS_FDBENCH_REPORT_H

#include "tools/fdbench/fdbench.h"

/* ---- summaries: stat.c -------------------------------------------------------------- */

void fdb_sort(double *v, size_t n); /* ascending */
/* Percentile p (0..100) of v[n] sorted ascending; NAN for n = 0. */
double fdb_percentile(const double *v, size_t n, double p);
#define FDB_N_PCT 6
extern const double fdb_pct[FDB_N_PCT]; /* 50 90 95 99 99.9 100 */
/* {n, mean, std, min, p50, ...}, null for n = 0. v is sorted in place. */
json_t *fdb_dist(double *v, size_t n);
#define FDB_N_STAT (3 + FDB_N_PCT)
extern const char *const fdb_stats[FDB_N_STAT]; /* mean std min p50 ... p99.9 max */
extern const char *const fdb_mmm[3];            /* median min max */
/* Those of list[i].KEY, or list[i].KEY.STAT. Where one has no number it is of
 * the others if partly is set, or null. */
json_t *fdb_mmm_of(const json_t *list, const char *key, const char *stat, int partly);
/* The number o.A.B.C, B and C may be NULL; NAN where it is none. */
double fdb_figure(const json_t *o, const char *a, const char *b, const char *c);

enum fdb_times { FDB_TTFT, FDB_TPOT, FDB_ITL, FDB_E2E, FDB_QUEUE, FDB_IN, FDB_OUT };
#define FDB_N_TIMES (FDB_OUT + 1)
/* Of the requests of a repeat that ended well, in the order of the log; v has room for one
 * of each request and, for ITL, of each chunk. Returns how many. */
size_t fdb_values(const struct fdb_log *log, uint32_t repeat, enum fdb_times m, double *v);
/* Is it measured, and of this repeat? */
int fdb_is_of(const struct fdb_rec *r, uint32_t repeat);
/* Is any limit given; does a request meet every one? */
int fdb_has_limit(const struct fdb_slo *slo);
int
fdb_within(const struct fdb_log *log, const struct fdb_rec *r, const struct fdb_slo *slo);
/* Was an open loop's load not what was asked for: the last request that was due
 * sent too late, by more than 10 ms and by 5 % of the time that all were due in? */
int fdb_fell_behind(const struct fdb_log *log, uint32_t repeat);

/* A summary is a JSON object of these keys and "errors", {status: requests that failed with
 * it}, the most frequent first. */
enum fdb_kind { FDB_COUNT, FDB_REAL, FDB_LIMITED, FDB_DIST };
struct fdb_metric {
    const char *key, *label, *unit;
    enum fdb_kind kind; /* FDB_LIMITED: null without a limit */
    int is_compared;    /* by --against; of a distribution p50, p99 and max */
};
#define FDB_N_METRIC   23
#define FDB_FIRST_DIST (FDB_N_METRIC - FDB_N_TIMES) /* in the order of enum fdb_times */
extern const struct fdb_metric fdb_metrics[FDB_N_METRIC];
/* Of a repeat; new reference, NULL without memory. */
json_t *fdb_summarize(const struct fdb_log *log, uint32_t repeat,
    const struct fdb_run *run, const struct fdb_slo *slo);
/* The status of that name. */
int fdb_code_of(const char *name);
/* The status with which most requests of a summary failed; FDC_OK: none failed. */
int fdb_commonest(const json_t *summary);
/* Of summaries in which every request failed, the exit code of the commonest reason; else
 * 0. */
int fdb_exit_of(const json_t *summaries);

/* ---- a result -------------------------------------------------------------------- */

struct fdb_result {
    json_t *head;   /* command, args: the line; time: ISO 8601; host: and its processor */
    json_t *daemon; /* fdb_daemon_ask() */
    struct fdc_model_info model;
    struct fdb_cfg cfg;
    struct fdb_log log;
    json_t *repeats; /* summaries, with what fdb_add_repeat() adds */
    json_t *steps;   /* of a search for the load within a limit; NULL: none was made */
    double found;    /* the largest load within the limits; 0: none */
    double bound;    /* the largest that could be tried; 0: not known */
};
void fdb_result_init(struct fdb_result *r, const char *command, int argc, char **argv);
void fdb_result_fini(struct fdb_result *r);
/* Takes over the reference to summary. */
void fdb_add_repeat(struct fdb_result *r, json_t *summary, const struct fdb_run *run);
/* A load tried, and its summary; behind: it was not sent in time, fdb_fell_behind(). */
void
fdb_add_step(struct fdb_result *r, double load, json_t *summary, int within, int behind);
/* What the daemon says of itself: version, commit, device, device_uuid, "" where it does
 * not; nothing is printed when its admin socket gives no answer. */
json_t *fdb_daemon_ask(const struct fct *f);

/* Of the JSON report: another number when a key or a definition changes, so that
 * figures of two formats are not taken for the same. */
#define FDB_FORMAT 1
/* New reference, NULL without memory. Times in ms. */
json_t *fdb_report_json(const struct fdb_result *r);

/* Writes a report to out: 0 or -errno. The caller looks for errors of out itself. */
typedef int fdb_write_fn(FILE *out, const json_t *report, const void *log);
/* A file that a command writes; "-" is standard output, NULL no file. */
struct fdb_output {
    const char *option, *path;
    fdb_write_fn *fn;
    int no_stdout;
};

/* Text that need not be UTF-8, NULL: null; what fct_text() makes of o. */
json_t *fdb_text(const char *text);
json_t *fdb_filled(const char *text, const json_t *o);
/* A blank, and fct_figure() at the right of width characters. */
void fdb_cell(FILE *out, int width, double v);
/* Templates of a report: whether any limit was given; "TTFT 200 ms, TPOT 20 ms", or "". */
#define FDB_ANY_LIMIT \
    "config.limits.ttft_ms+config.limits.tpot_ms+config.limits.itl_ms+config.limits.e2e_ms>0"
#define FDB_LIMITS \
    "[*config.limits|[ttft_ms|TTFT {ttft_ms} ms][tpot_ms|[ttft_ms|, ]TPOT {tpot_ms} ms]" \
    "[itl_ms|[ttft_ms+tpot_ms>0|, ]ITL {itl_ms} ms]" \
    "[e2e_ms|[ttft_ms+tpot_ms+itl_ms>0|, ]E2E {e2e_ms} ms]]"
/* What a search varies: "requests at a time", "requests/s", "conversations/s". */
const char *fdb_load_unit(const struct fdb_cfg *cfg);

/* Table on out: every metric, with several repeats their median, min and max. */
void fdb_report_text(FILE *out, const json_t *report);
/* Writers of a struct fdb_output. One line a request of the struct fdb_log; raw: everything
 * from which the numbers follow. */
fdb_write_fn fdb_report_csv;
/* One file, no network: report.html with the report and what its plots need of the log. */
fdb_write_fn fdb_report_html;
/* Indented, with a newline. */
fdb_write_fn fdb_report_dump;

/* ---- a run against an earlier one: against.c -------------------------------------- */

/* The JSON report of an earlier serve that path holds. One of another format is
 * refused unless any is set. New reference. 0 or an exit code with the message
 * printed. */
int fdb_against_read(const char *path, int any, json_t **ret_before);
/* What makes two reports not comparable: workload, model, or that the earlier run
 * or this run was broken off. now needs no figures yet. In words in ret, cut where it is
 * full; returns how many differences there are. */
unsigned
fdb_against_differs(const json_t *before, const json_t *now, char *ret, size_t ret_bytes);
/* Table on out: what was measured, then before, now and now / before of each
 * figure. A figure that a report lacks is "-". */
void fdb_against_text(FILE *out, const json_t *before, const json_t *now);

/* ---- files: report.c ---------------------------------------------------------------- */

/* Before the run: can each be written, and to a place of its own? *ret_quiet becomes 1 if
 * one is standard output. 0 or an exit code with the message printed. */
int fdb_output_check(const struct fdb_output *o, size_t n, int *ret_quiet);
/* 0 or the exit code of the first that failed, with the messages printed. */
int fdb_output_write(const struct fdb_output *o, size_t n, const json_t *report,
    const void *log);

#endif
