/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdbench: measures a daemon under load as a client. It talks to the daemon only through
 * libfdclient, keeps a raw log of every request and derives every number from that log.
 *
 *   main.c     commands                      work.c    lengths, prefixes, turns, arrivals
 *   load.c     one run: submit and collect   stat.c    summary of the log
 *   serve.c    options, repeats, search      html.c    the page: report.html and its data
 *   setup.c    defaults, options' values, trace and text files, session
 *   report.c   metrics, JSON, text, CSV and the files that a command writes
 *   against.c  a run against an earlier one; latency.c, ipc.c, start.c the other commands
 *
 * A command stores its measurements in one JSON object; its table, the page and the
 * comparison are views of that object.
 *
 * Definitions (as in the usual serving benchmarks):
 *   TTFT   from sending the request to its first token
 *   TPOT   (end - first token) / (output tokens - 1), of requests with two tokens or more
 *   ITL    every gap between two successive deliveries of tokens to a request, all pooled
 *   E2E    from sending the request to the last record
 *   goodput  requests per second that meet every limit given
 * Percentiles interpolate linearly between the two nearest ranks: of n sorted
 * values the one at h = (n - 1) * (p / 100), equal to numpy.percentile to the
 * last bit. A time is (double)ns / 1e6 ms. Mean and standard deviation (of
 * the population) are plain sums in the order of the log.
 * A function that returns int returns 0, or an exit code after it printed a message,
 * unless its comment says otherwise.
 */
#ifndef FDD_TOOLS_FDBENCH_H
#define FDD_TOOLS_FDBENCH_H

#include <inttypes.h>
#include <sys/param.h>

#include "tools/fdctl/lib/fct.h"

/* ---- options -------------------------------------------------------------- */

#define FDB_LEN_MAX 16777216u /* tokens */
/* "N" or "LO:HI": tokens, both ends included. */
struct fdb_len {
    uint32_t lo, hi;
};

enum fdb_arrival {
    FDB_CLOSED,
    FDB_POISSON,
    FDB_GAMMA,
    FDB_CONSTANT,
    FDB_RAMP,
    FDB_TRACE
};
extern const char *const fdb_arrivals[]; /* "closed" ... */

/* Limits of a request; 0: none. */
struct fdb_slo {
    double ttft_ms, tpot_ms, itl_ms, e2e_ms;
};

/* A line of a trace file. */
struct fdb_row {
    double time_s;
    uint32_t n_prompt, n_out, line;
};

struct fdb_cfg {
    enum fdb_arrival arrival;
    uint32_t concurrency; /* requests at a time; open loop: most at a time, 0: no limit */
    double rate;          /* requests, or conversations, per second; a ramp's last rate */
    double rate_from;     /* a ramp's first rate */
    double burstiness;    /* shape of the gamma distribution; 1 is Poisson */
    uint32_t n_request;   /* measured, per repeat; 0: duration_s decides */
    uint32_t n_warm;      /* sent before the first repeat, not counted */
    uint32_t n_repeat;
    double duration_s; /* time after which submitting stops; 0: n_request decides */
    struct fdb_len in; /* tokens of a prompt without its prefix or the turns before */
    struct fdb_len out;
    uint32_t prefix_len;       /* tokens shared by a group of prompts */
    uint32_t n_prefix;         /* groups */
    uint32_t n_turn;           /* turns of a conversation; each repeats those before it */
    const char *trace;         /* file of requests: time_s,prompt_tokens,output_tokens */
    const struct fdb_row *row; /* [n_row] lines of trace; their prompts include the prefix */
    size_t n_row;
    int text;            /* send prompts as text and ask for text */
    const char *dataset; /* text file that prompts are cut from; NULL: made-up words */
    const char *words;   /* [n_words] the text, in bytes */
    size_t n_words;
    double token_bytes; /* measured bytes of that text per token */
    uint64_t seed;
    struct fct_req req; /* sampling parameters */
    struct fdb_slo slo;
    double slo_attain; /* --search: the share of requests that must be within slo */
};

/* ---- the raw log ---------------------------------------------------------- */

/* Tokens that arrived together. */
struct fdb_chunk {
    uint64_t t_ns;
    uint32_t n_tok;
};

/* One request. Times: client's CLOCK_MONOTONIC, ns; 0: did not happen. */
struct fdb_rec {
    uint32_t index;  /* in the run, warm-up included */
    uint32_t repeat; /* from 0 */
    uint8_t warm;    /* 1: warm-up, in no summary */
    uint32_t conversation, turn;
    uint32_t n_prompt, n_cached, n_out; /* tokens, counted by the daemon */
    uint32_t max_new;
    int32_t code;    /* FDC_OK or the status of the failure */
    uint32_t finish; /* FDC_FIN_* */
    uint32_t n_preempted;
    uint64_t t_due; /* when it should have been sent */
    uint64_t t_send, t_first, t_end;
    uint64_t queue_ns; /* time in the daemon before it was first scheduled */
    uint64_t chunk;    /* index in the log's chunks of the first of its n_chunk */
    uint32_t n_chunk;
};

struct fdb_log {
    struct fdb_rec *rec;
    size_t n_rec, cap_rec;
    struct fdb_chunk *chunk; /* those of a request are consecutive, in order of time */
    size_t n_chunk, cap_chunk;
};

/* Figures of one repeat that are not in the log. */
struct fdb_run {
    uint64_t t_begin, t_end;          /* first measured send to last end, ns */
    uint64_t cpu_ns;                  /* fdbench's own processor time between them */
    double late_ms;                   /* longest delay of a send after t_due */
    uint32_t max_concurrent_requests; /* most requests open at a time */
    uint32_t n_held;                  /* sends that waited for room in the session */
    uint64_t n_preempted;             /* number of preemptions of sequences */
};

/* ---- requests to send: work.c --------------------------------------------- */

/* A request to send. Its lengths and tokens follow from the seed and the conversation's
 * number, so that nothing has to be stored and any run can be repeated. */
struct fdb_ask {
    uint32_t conversation, turn;
    uint32_t n_prefix, n_new; /* tokens shared (first turn only), and its own */
    uint32_t max_new;
    int more;        /* another turn follows */
    uint64_t due_ns; /* open loop: time after the start of the run */
};
struct fdb_work; /* the conversations of a run, one after the other */
/* Keeps the pointer to cfg. *ret is to be freed with free(). */
int fdb_work_new(const struct fdb_cfg *cfg, const struct fdc_model_info *model,
    uint64_t seed, struct fdb_work **ret);
/* The next conversation's first request. Returns 0 if there is none. */
int fdb_work_next(struct fdb_work *w, struct fdb_ask *ret);
/* Replace a turn, which has more set, by the next one. */
void fdb_work_turn(const struct fdb_work *w, struct fdb_ask *a);
/* Append a's prompt (text or uint32_t ids) to p; a first turn empties p. 0 or -ENOMEM. */
int fdb_work_prompt(const struct fdb_work *w, const struct fdb_ask *a, struct fct_buf *p);
uint64_t fdb_mix(uint64_t a, uint64_t b);

/* ---- one run: load.c ------------------------------------------------------- */

struct fdb_load {
    const struct fct *f;
    fdc_t *session;
    struct fdc_info info;
    struct fdc_model_info model;
    struct fdb_cfg cfg;
    int quiet;     /* no progress bar */
    int lines;     /* in its place a line every few seconds */
    uint64_t said; /* failures explained already, a bit for each code */
};
/* Run the warm-up (before repeat 0) and one repeat; append the requests to log. Returns 0
 * or an exit code, such as FCT_EX_INT (the first SIGINT or SIGTERM) or EX_UNAVAILABLE
 * (the session is over); log and *ret then have the requests that ended before. */
int fdb_load_run(struct fdb_load *l, uint32_t repeat, struct fdb_log *log,
    struct fdb_run *ret);
/* Append a request and its chunks. Returns 0 or -ENOMEM. */
int fdb_log_rec(struct fdb_log *log, const struct fdb_rec *r, const struct fdb_chunk *c);
void fdb_log_fini(struct fdb_log *log);

/* ---- setup.c, serve.c ----------------------------------------------------- */

/* Set the defaults of all options. */
void fdb_cfg_init(struct fdb_cfg *cfg);
void fdb_cfg_fini(struct fdb_cfg *cfg);
/* Read the trace and text files. */
int fdb_cfg_read(struct fdb_cfg *cfg);
/* Get the daemon's limits and the model; waits a moment for a model just become ready. */
int fdb_meet(const struct fct *f, fdc_t *s, struct fdc_info *ret_info,
    struct fdc_model_info *ret_model);
/* Open the session, get the limits and the model, and complete cfg with them. */
int fdb_load_open(const struct fct *f, struct fdb_load *l);
/* Submit n_prompt ids (at most 16) for exactly n_out greedy tokens. Returns a status. */
int fdb_submit_plain(fdc_t *s, uint32_t vocab, uint32_t n_prompt, uint32_t n_out,
    fdc_req_t **ret);
/* Parse "N" or "LO:HI", 1 to FDB_LEN_MAX; text NULL: *ret stays as it is. */
int fdb_opt_len(const char *what, const char *text, struct fdb_len *ret);

/* Run with this load: is it within the limits? Returns 0 or an exit code. */
typedef int fdb_try_fn(void *arg, double load, int *ret_within);
/* Find the largest load in [lo, hi] within the limits: from first, it is doubled or
 * halved until enclosed, then bisected to 5 % (whole: to one). *ret_found 0: none. */
int fdb_search(double first, double lo, double hi, int whole, fdb_try_fn *fn, void *arg,
    double *ret_found);

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
/* Median, min and max of list[i].KEY, or list[i].KEY.STAT. Elements without a number are
 * left out if partly is set; else the figures are null. */
json_t *fdb_mmm_of(const json_t *list, const char *key, const char *stat, int partly);
/* The number o.A.B.C, where B and C may be NULL; NAN if it is not a number. */
double fdb_figure(const json_t *o, const char *a, const char *b, const char *c);

enum fdb_times { FDB_TTFT, FDB_TPOT, FDB_ITL, FDB_E2E, FDB_QUEUE, FDB_IN, FDB_OUT };
#define FDB_N_TIMES (FDB_OUT + 1)
/* Get a metric's values of a repeat's successful requests, in the order of the log. v has
 * room for one per request and, for ITL, one per chunk. Returns their number. */
size_t fdb_values(const struct fdb_log *log, uint32_t repeat, enum fdb_times m, double *v);
/* Is it a measured request of this repeat? */
int fdb_is_of(const struct fdb_rec *r, uint32_t repeat);
/* Is any limit given? Does a request meet every limit? */
int fdb_has_limit(const struct fdb_slo *slo);
int
fdb_within(const struct fdb_log *log, const struct fdb_rec *r, const struct fdb_slo *slo);
/* Did an open loop fall behind its rate? It did if the last request due was sent late by
 * more than 10 ms and more than 5 % of the time over which requests were due. */
int fdb_fell_behind(const struct fdb_log *log, uint32_t repeat);

/* A summary is a JSON object of these keys and "errors", {status: requests that failed
 * with it}, the most frequent first. */
enum fdb_kind { FDB_COUNT, FDB_REAL, FDB_LIMITED, FDB_DIST };
struct fdb_metric {
    const char *key, *label, *unit;
    enum fdb_kind kind; /* FDB_LIMITED: null without a limit */
    int is_compared;    /* by --against; a distribution: its p50, p99 and max */
};
#define FDB_N_METRIC   23
#define FDB_FIRST_DIST (FDB_N_METRIC - FDB_N_TIMES) /* as ordered in enum fdb_times */
extern const struct fdb_metric fdb_metrics[FDB_N_METRIC];
/* Summary of a repeat; new reference, NULL without memory. */
json_t *fdb_summarize(const struct fdb_log *log, uint32_t repeat,
    const struct fdb_run *run, const struct fdb_slo *slo);
/* The status with this name. */
int fdb_code_of(const char *name);
/* The status with which most requests of a summary failed; FDC_OK: none failed. */
int fdb_commonest(const json_t *summary);
/* Exit code of the first summary's commonest failure if all requests failed, else 0. */
int fdb_exit_of(const json_t *summaries);

/* ---- a result -------------------------------------------------------------------- */

struct fdb_result {
    json_t *head;   /* command, args; time (ISO 8601); host and its processor */
    json_t *daemon; /* fdb_daemon_ask() */
    struct fdc_model_info model;
    struct fdb_cfg cfg;
    struct fdb_log log;
    json_t *repeats; /* summaries, extended by fdb_add_repeat() */
    json_t *steps;   /* the loads that a search tried; NULL: no search */
    double found;    /* the largest load within the limits; 0: none */
    double bound;    /* the largest load that the search may try; 0: not known */
};
void fdb_result_init(struct fdb_result *r, const char *command, int argc, char **argv);
void fdb_result_fini(struct fdb_result *r);
/* Takes over the reference to summary. */
void fdb_add_repeat(struct fdb_result *r, json_t *summary, const struct fdb_run *run);
/* Add a load that the search tried, and its summary; behind: fdb_fell_behind(). */
void
fdb_add_step(struct fdb_result *r, double load, json_t *summary, int within, int behind);
/* The daemon's version, commit, device and device_uuid; "": not known. Prints nothing. */
json_t *fdb_daemon_ask(const struct fct *f);

/* Format of the JSON report: incremented when a key or a definition changes, so that
 * figures of different formats are not compared. */
#define FDB_FORMAT 1
/* New reference, NULL without memory. Times in ms. */
json_t *fdb_report_json(const struct fdb_result *r);

/* Writes a report to out. Returns 0 or -errno; the caller checks out for errors. */
typedef int fdb_write_fn(FILE *out, const json_t *report, const void *log);
/* A file that a command writes; path "-" is standard output, NULL no file. */
struct fdb_output {
    const char *option, *path;
    fdb_write_fn *fn;
    int no_stdout;
};

json_t *fdb_text(const char *text);                    /* need not be UTF-8; NULL: null */
json_t *fdb_filled(const char *text, const json_t *o); /* fct_fill() as a JSON text */
/* Print a blank, and fct_figure() right-aligned in width characters. */
void fdb_cell(FILE *out, int width, double v);
/* Template of a report's limits: "TTFT 200 ms, TPOT 20 ms", or "" without a limit. */
#define FDB_LIMITS \
    "[*config.limits|[ttft_ms|TTFT {ttft_ms} ms][tpot_ms|[ttft_ms|, ]TPOT {tpot_ms} ms]" \
    "[itl_ms|[ttft_ms|, ][!ttft_ms|[tpot_ms|, ]]ITL {itl_ms} ms]" \
    "[e2e_ms|[ttft_ms|, ][!ttft_ms|[tpot_ms|, ][!tpot_ms|[itl_ms|, ]]]E2E {e2e_ms} ms]]"
/* What the load is counted in: "requests at a time", "requests/s", "conversations/s". */
const char *fdb_load_unit(const struct fdb_cfg *cfg);

/* Print a table of every metric; with several repeats their median, min and max. */
void fdb_report_text(FILE *out, const json_t *report);
/* Writers of a struct fdb_output. This one prints a line per request of the struct
 * fdb_log, with the raw data that all figures are computed from. */
fdb_write_fn fdb_report_csv;
/* report.html, which needs no network, with the report and the data of its plots. */
fdb_write_fn fdb_report_html;
/* The report as JSON, indented, with a newline. */
fdb_write_fn fdb_report_dump;

/* ---- a run against an earlier one: against.c -------------------------------------- */

/* Read an earlier serve's JSON report; any: also of another format. New reference. */
int fdb_against_read(const char *path, int any, json_t **ret_before);
/* Write to ret, cut to its size, why two reports cannot be compared: workload, model, or
 * an interrupted run. now needs no figures yet. Returns the number of differences. */
unsigned
fdb_against_differs(const json_t *before, const json_t *now, char *ret, size_t ret_bytes);
/* Print the workload, then before, now and now / before of each figure; "-": missing. */
void fdb_against_text(FILE *out, const json_t *before, const json_t *now);

/* ---- files: report.c ---------------------------------------------------------------- */

/* Check before the run that each file can be written and none is named twice. *ret_quiet
 * becomes 1 if one is standard output. */
int fdb_output_check(const struct fdb_output *o, size_t n, int *ret_quiet);
/* Returns 0 or the exit code of the first file that failed; prints a message for each. */
int fdb_output_write(const struct fdb_output *o, size_t n, const json_t *report,
    const void *log);

/* ---- commands ------------------------------------------------------------- */

fct_cmd_fn fdb_cmd_serve, fdb_cmd_latency, fdb_cmd_ipc, fdb_cmd_start;

#endif
