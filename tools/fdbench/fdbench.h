/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdbench: what a daemon does under load, seen from a client. It speaks
 * through libfdclient alone, keeps a raw log of every request and derives
 * every number from that log.
 *
 *   main.c     commands                      work.c    lengths, prefixes, turns, arrivals
 *   load.c     one run: submit and collect   stat.c    the log to a summary
 *   serve.c    options, repeats, search      html.c    the page: report.html and its data
 *   setup.c    defaults, options' values, trace and text files, session
 *   report.c   metrics, JSON, text, CSV and the files that a command writes
 *   against.c  a run against an earlier one; latency.c, ipc.c, start.c the other commands
 *
 * A command makes one JSON object of what it measured; its table, the page and the
 * comparison are views of that object.
 *
 * Definitions (the field's, of its serving benchmark):
 *   TTFT   sending of the request to its first token
 *   TPOT   (end - first token) / (output tokens - 1), of requests with two tokens or more
 *   ITL    every gap between two successive arrivals of a request, all requests pooled
 *   E2E    sending to the last record
 *   goodput  requests per second that meet every limit given
 * Percentiles interpolate linearly between the two nearest ranks: of n sorted
 * values the one at h = (n - 1) * (p / 100), as numpy.percentile does, to the
 * last bit. A time is (double)ns / 1e6 ms. Mean and standard deviation (of
 * the population) are plain sums in the order of the log.
 */
#ifndef FDD_TOOLS_FDBENCH_H
#define FDD_TOOLS_FDBENCH_H

#include <inttypes.h>
#include <sys/param.h>

#include "tools/fdctl/lib/fct.h"

/* ---- what is asked for ---------------------------------------------------- */

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

/* 0: not a limit. */
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
    uint32_t concurrency; /* closed loop; an open loop's most at a time, 0: none */
    double rate;          /* requests, or conversations, per second; a ramp's end */
    double rate_from;     /* where a ramp begins */
    double burstiness;    /* gamma's shape, 1 is Poisson */
    uint32_t n_request;   /* measured, per repeat; 0: duration_s decides */
    uint32_t n_warm;      /* before the first repeat, not counted */
    uint32_t n_repeat;
    double duration_s; /* end submitting after so long, 0: n_request decides */
    struct fdb_len in; /* tokens of a prompt behind its prefix, or its history */
    struct fdb_len out;
    uint32_t prefix_len;       /* tokens shared by a group of prompts */
    uint32_t n_prefix;         /* groups */
    uint32_t n_turn;           /* turns of a conversation; each repeats those before it */
    const char *trace;         /* file of requests: time_s,prompt_tokens,output_tokens */
    const struct fdb_row *row; /* [n_row] lines of trace; their prompts include the prefix */
    size_t n_row;
    int text;            /* prompts as text, and text in the answer */
    const char *dataset; /* text file prompts are cut from, NULL: made up */
    const char *words;   /* [n_words] its text */
    size_t n_words;
    double token_bytes; /* bytes of such text for a token, measured */
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
    uint32_t index;  /* of the run, warm-up included */
    uint32_t repeat; /* from 0 */
    uint8_t warm;    /* 1: warm-up, in no summary */
    uint32_t conversation, turn;
    uint32_t n_prompt, n_cached, n_out; /* tokens, as the daemon says */
    uint32_t max_new;
    int32_t code;    /* FDC_OK, or why it failed */
    uint32_t finish; /* FDC_FIN_* */
    uint32_t n_preempted;
    uint64_t t_due; /* when it was to be sent */
    uint64_t t_send, t_first, t_end;
    uint64_t queue_ns; /* in the daemon, before it was first scheduled */
    uint64_t chunk;    /* first of its n_chunk in the log's chunks */
    uint32_t n_chunk;
};

struct fdb_log {
    struct fdb_rec *rec;
    size_t n_rec, cap_rec;
    struct fdb_chunk *chunk; /* of one request together, in order */
    size_t n_chunk, cap_chunk;
};

/* Of one repeat. */
struct fdb_run {
    uint64_t t_begin, t_end;          /* first measured send to last end, ns */
    uint64_t cpu_ns;                  /* fdbench's own meanwhile */
    double late_ms;                   /* worst lateness of a send behind t_due */
    uint32_t max_concurrent_requests; /* requests at a time */
    uint32_t n_held;                  /* sends that waited for room in the session */
    uint64_t n_preempted;             /* times that a sequence was preempted */
};

/* ---- what is sent: work.c ------------------------------------------------- */

/* What a request asks for. Lengths and tokens follow from the seed and the conversation's
 * number alone, so that nothing is kept and any run can be repeated. */
struct fdb_ask {
    uint32_t conversation, turn;
    uint32_t n_prefix, n_new; /* shared tokens (first turn), its own */
    uint32_t max_new;
    int more;        /* a turn follows */
    uint64_t due_ns; /* open loop: after the run's beginning */
};
struct fdb_work; /* the conversations of a run, one after the other */
/* Keeps cfg. To be freed with free(). 0 or an exit code, with the message printed. */
int fdb_work_new(const struct fdb_cfg *cfg, const struct fdc_model_info *model,
    uint64_t seed, struct fdb_work **ret);
/* The next conversation's first request. 0: there is none. */
int fdb_work_next(struct fdb_work *w, struct fdb_ask *ret);
/* What a turn asked for, which has more, becomes what the next one does. */
void fdb_work_turn(const struct fdb_work *w, struct fdb_ask *a);
/* Append what a asks for, text or uint32_t ids, to nothing if it is a first turn. -ENOMEM. */
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
    uint64_t said; /* failures explained before, a bit for each code */
};
/* Warm-up (before repeat 0) and one repeat into log. 0 or an exit code, with the
 * message printed; log and *ret then have what ended before: FCT_EX_INT (the
 * first SIGINT or SIGTERM), EX_UNAVAILABLE (the session is over). */
int fdb_load_run(struct fdb_load *l, uint32_t repeat, struct fdb_log *log,
    struct fdb_run *ret);
int fdb_log_rec(struct fdb_log *log, const struct fdb_rec *r, const struct fdb_chunk *c);
void fdb_log_fini(struct fdb_log *log);

/* ---- setup.c, serve.c ----------------------------------------------------- */

/* cfg with what stands when no option says otherwise. */
void fdb_cfg_init(struct fdb_cfg *cfg);
void fdb_cfg_fini(struct fdb_cfg *cfg);
/* Read the trace and text files. 0 or an exit code with the message printed. */
int fdb_cfg_read(struct fdb_cfg *cfg);
/* The daemon's limits and the model, waiting a moment for one that has just become ready. 0
 * or an exit code with the message printed. */
int fdb_meet(const struct fct *f, fdc_t *s, struct fdc_info *ret_info,
    struct fdc_model_info *ret_model);
/* Session, what the daemon says of itself, and what of cfg depends on it. */
int fdb_load_open(const struct fct *f, struct fdb_load *l);
/* n_prompt ids, at most 16; n_out tokens, greedily and whatever they are. A status. */
int fdb_submit_plain(fdc_t *s, uint32_t vocab, uint32_t n_prompt, uint32_t n_out,
    fdc_req_t **ret);
/* "N" or "LO:HI", 1 to FDB_LEN_MAX; NULL: nothing. EX_USAGE with the message. */
int fdb_opt_len(const char *what, const char *text, struct fdb_len *ret);

/* Is load within the limits? 0 or an exit code. */
typedef int fdb_try_fn(void *arg, double load, int *ret_within);
/* The largest load of [lo, hi] within, beginning at first: doubled or halved
 * until it is enclosed, then bisected to 5 % (whole: to one). 0: none. */
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
/* Those of list[i].KEY, or list[i].KEY.STAT. Where one has no number it is of
 * the others if partly is set, or null. */
json_t *fdb_mmm_of(const json_t *list, const char *key, const char *stat, int partly);
/* The number o.A.B.C, without what is NULL of B and C; NAN where it is none. */
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

/* Text that need not be UTF-8, NULL: null; what fct_fill() makes of o. */
json_t *fdb_text(const char *text);
json_t *fdb_filled(const char *text, const json_t *o);
/* A blank, and fct_figure() at the right of width characters. */
void fdb_cell(FILE *out, int width, double v);
/* Of a report, a template: "TTFT 200 ms, TPOT 20 ms", or "" without a limit. */
#define FDB_LIMITS \
    "[*config.limits|[ttft_ms|TTFT {ttft_ms} ms][tpot_ms|[ttft_ms|, ]TPOT {tpot_ms} ms]" \
    "[itl_ms|[ttft_ms|, ][!ttft_ms|[tpot_ms|, ]]ITL {itl_ms} ms]" \
    "[e2e_ms|[ttft_ms|, ][!ttft_ms|[tpot_ms|, ][!tpot_ms|[itl_ms|, ]]]E2E {e2e_ms} ms]]"
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

/* ---- commands ------------------------------------------------------------- */

fct_cmd_fn fdb_cmd_serve, fdb_cmd_latency, fdb_cmd_ipc, fdb_cmd_start;

#endif
