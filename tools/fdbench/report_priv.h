/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What the reports of a result share: the metrics by name, how a result is
 * put in words, the plots, and the files. Private to this folder and its unit tests.
 */
#ifndef FDD_TOOLS_FDBENCH_REPORT_PRIV_H
#define FDD_TOOLS_FDBENCH_REPORT_PRIV_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/fdbench/fdbench.h"

/* ---- metrics --------------------------------------------------------------------- */

/* One number of a summary. */
enum rep_kind { REP_U32, REP_U64, REP_DBL, REP_LIMIT, REP_USER };
struct rep_scalar {
    const char *key; /* in JSON */
    const char *label, *unit;
    enum rep_kind kind; /* REP_U32, REP_U64: an integer in JSON */
    size_t offset;
};
#define REP_N_SCALAR 16
extern const struct rep_scalar rep_scalars[REP_N_SCALAR];
/* NAN: does not apply. */
double rep_scalar(const struct fdb_sum *s, size_t i);
#define REP_PER_USER 9 /* output tokens/s per user */

/* One distribution of a summary. */
struct rep_dist {
    const char *key, *label, *unit;
    size_t offset;
};
#define REP_N_DIST 7
extern const struct rep_dist rep_dists[REP_N_DIST];
const struct fdb_dist_sum *rep_dist(const struct fdb_sum *s, size_t i);

/* Its statistics: mean std min p50 p90 p95 p99 p99.9 max. */
#define REP_N_STAT (3 + FDB_N_PCT)
extern const char *const rep_stats[REP_N_STAT];
double rep_stat(const struct fdb_dist_sum *d, size_t i);

/* Over the repeats; NAN where a repeat has no value. -ENOMEM. */
struct rep_mmm {
    double median, min, max;
};
struct rep_mmm rep_mmm(double *v, size_t n); /* sorts v; NAN for n = 0 */
json_t *rep_mmm_json(const struct rep_mmm *m);
int rep_across_scalar(const struct fdb_result *r, size_t scalar, struct rep_mmm *ret);
int
rep_across_stat(const struct fdb_result *r, size_t dist, size_t stat, struct rep_mmm *ret);
/* The repeat whose output tokens/s are the (lower) median. */
uint32_t rep_middle(const struct fdb_result *r);

/* ---- words ----------------------------------------------------------------------- */

/* Three significant digits at least, "-" for NAN. ret[24]; returns ret. */
char *rep_num(double v, char *ret);
/* "closed loop, 16 at a time; 128 requests after ..." */
void rep_workload(const struct fdb_cfg *cfg, char *ret, size_t ret_bytes);
/* "TTFT 200 ms, TPOT 20 ms", or "" without a limit. */
void rep_limits(const struct fdb_slo *slo, char *ret, size_t ret_bytes);
/* What a search varies: "requests at a time", "requests/s", "conversations/s". */
const char *rep_load_unit(const struct fdb_cfg *cfg);
/* "yes", or why the load of a search is not within the limits. */
const char *rep_step_within(const struct fdb_step *s);
/* Was the largest load that could be tried within the limits? */
int rep_is_bound(const struct fdb_result *r);

/* Times a sequence was preempted, of all requests of a repeat. */
uint64_t rep_preempted(const struct fdb_log *log, uint32_t repeat);

/* ---- plots: plot.c, curves.c ----------------------------------------------------- */

enum plt_kind { PLT_LINE, PLT_STEP, PLT_AREA, PLT_DOTS, PLT_CHAIN, PLT_CROSS };

/* Points in the order drawn; a NAN in y breaks a line. */
struct plt_series {
    const double *x, *y;
    size_t n;
    enum plt_kind kind;
    int color;         /* 1..PLT_N_COLOR, 0: that of failures */
    int faint;         /* a line: pale; dots: small */
    const char *label; /* in the legend, NULL: none */
};
#define PLT_N_COLOR    5
#define PLT_MAX_SERIES 16
#define PLT_MAX_MARK   24

/* A dot with words to its lower right, or its upper right. */
struct plt_mark {
    double x, y;
    int color, above;
    char text[40];
};
/* A dashed line across at one value. */
struct plt_rule {
    double at;
    char text[40];
};

struct plt {
    const char *title, *note; /* note: one sentence below, NULL: none */
    const char *x_label, *y_label;
    int x_log, y_log;
    double x_lo, x_hi, y_lo, y_hi; /* axes; NAN: from the points */
    struct plt_series s[PLT_MAX_SERIES];
    size_t n_s;
    struct plt_mark mark[PLT_MAX_MARK];
    size_t n_mark;
    struct plt_rule h[4], v[4];
    size_t n_h, n_v;
};
void plt_init(struct plt *p, const char *title, const char *x_label, const char *y_label);
void plt_add(struct plt *p, enum plt_kind kind, int color, const double *x,
    const double *y, size_t n, const char *label);
/* A figure with the plot as SVG, or with the words "no data". */
void plt_write(FILE *out, const struct plt *p);
/* Round numbers that divide lo..hi in about want parts: the first one at or
 * above lo, and the distance. */
void plt_ticks(double lo, double hi, int want, double *ret_first, double *ret_step);
/* The plots of a result, each a figure on out. -ENOMEM. */
int crv_latency(FILE *out, const struct fdb_result *r);
int crv_time(FILE *out, const struct fdb_result *r);
int crv_search(FILE *out, const struct fdb_result *r);

/* ---- files: files.c ---------------------------------------------------------------- */

/* What a report's writer returns: 0 or -errno. */
typedef int rep_write_fn(FILE *out, const void *what);
/* Write a report to path: "-" is standard output, NULL no file. 0 or an exit code with the
 * message printed. */
int rep_write(const char *path, rep_write_fn *fn, const void *what);
/* Indented, with a newline; takes over the reference. 0 or -errno; NULL is -ENOMEM. */
int rep_dump_json(FILE *out, json_t *j);
/* Is standard output one of the two files? FCT_EX_USAGE, with the message printed, if both
 * are; else 0, and *ret_quiet becomes 1 if one is. */
int rep_check_stdout(const char *csv, const char *json, int *ret_quiet);

/* Text as HTML; what is not UTF-8 is replaced. */
void plt_text(FILE *out, const char *text, size_t n);

#endif
