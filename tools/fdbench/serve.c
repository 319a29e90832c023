/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#define RATE_MIN     0.01
#define RATE_MAX     1e6
#define SEARCH_S     10.0 /* duration of an open loop at each load */
#define LATE_MS      10.0 /* delay of a send from which on a message is printed */
#define N_TRY_MAX    40
#define CLOSE_ENOUGH 1.05

struct serve {
    struct fdb_load l;
    struct fdb_result r;
    struct fdb_output out[3];
    const char *arrival, *against, *input, *output;
    json_t *before; /* the report read from the file against */
    int search, quiet, against_any;
    int has_from, has_burst, has_n;
};

/* ---- options ------------------------------------------------------------- */

/* An option of fdctl generate that users are likely to try. */
static int
take_max_tokens(void *args, const char *v)
{
    (void)args;
    return fct_usage("--max-tokens %s: lengths of outputs are given by --output N or LO:HI",
        v);
}

#define FCT_ARGS struct serve
static const struct fct_opt serve_opts[] = { FCT_OPT_HEAD("load:"),
    FCT_U32('c', "concurrency", "N", l.cfg.concurrency, 1, 65536,
        "closed loop: this many requests at a time (8)"),
    FCT_REAL('r', "rate", "R", l.cfg.rate, RATE_MIN, RATE_MAX,
        "open loop: requests (with --turns conversations) per second"),
    FCT_TEXT(0, "arrival", "KIND", arrival, "poisson, gamma, constant or ramp (poisson)"),
    FCT_REAL(0, "burstiness", "X", l.cfg.burstiness, 0.01, 1e6,
        "of gamma and ramp: below 1 in bursts, above 1 even (1)", FCT_HAS(has_burst)),
    FCT_REAL(0, "rate-from", "R", l.cfg.rate_from, 0, RATE_MAX,
        "where a ramp begins (a tenth of --rate)", FCT_HAS(has_from)),
    FCT_TEXT(0, "trace", "FILE", l.cfg.trace,
        "open loop: lines time_s,prompt_tokens,output_tokens"),
    FCT_U32('n', "requests", "N", l.cfg.n_request, 1, 100000000,
        "requests of a run (10 for each of -c)", FCT_HAS(has_n)),
    FCT_REAL(0, "duration", "S", l.cfg.duration_s, 0.01, 1e6,
        "stop sending after this time (open loop: 30)"),
    FCT_U32(0, "warmup", "N", l.cfg.n_warm, 0, 1000000,
        "warm-up requests, not counted (as many as -c; 8)"),
    FCT_U32(0, "repeats", "N", l.cfg.n_repeat, 1, 1000,
        "runs: median, minimum and maximum (1)"),
    FCT_U64(0, "seed", "N", l.cfg.seed, UINT64_MAX,
        "of lengths, tokens, arrivals and sampling (a new one)"),
    FCT_OPT_HEAD("requests:"),
    FCT_TEXT('i', "input", "N|LO:HI", input, "prompt tokens after prefix and history (512)"),
    FCT_TEXT('o', "output", "N|LO:HI", output, "output tokens (128)"),
    FCT_U32(0, "prefix-len", "N", l.cfg.prefix_len, 0, FDB_LEN_MAX,
        "tokens of the prefix that a group of prompts shares (0)"),
    FCT_U32(0, "prefixes", "N", l.cfg.n_prefix, 1, 1000000, "such groups (1)"),
    FCT_U32(0, "turns", "N", l.cfg.n_turn, 1, 10000,
        "of a conversation; each repeats what came before (1)"),
    FCT_FLAG(0, "text", l.cfg.text, "prompts and answers as text instead of ids"),
    FCT_TEXT(0, "dataset", "FILE", l.cfg.dataset, "with --text: cut prompts from this text"),
    FCT_BITS(0, "eos", l.cfg.req.p.flags, 0, FDC_F_IGNORE_EOS,
        "an answer may end before its length"),
    FCT_OPT_HEAD("limits (of a request; goodput counts those within all of them):"),
    FCT_REAL(0, "ttft-ms", "MS", l.cfg.slo.ttft_ms, 0.001, 1e9,
        "limit: time to first token"),
    FCT_REAL(0, "tpot-ms", "MS", l.cfg.slo.tpot_ms, 0.001, 1e9,
        "limit: time per output token of a request"),
    FCT_REAL(0, "itl-ms", "MS", l.cfg.slo.itl_ms, 0.001, 1e9,
        "limit: longest gap between tokens of a request"),
    FCT_REAL(0, "e2e-ms", "MS", l.cfg.slo.e2e_ms, 0.001, 1e9, "limit: sending to end"),
    FCT_REAL(0, "attain", "P", l.cfg.slo_attain, 0.01, 1,
        "share of requests within the limits for --search (0.99)"),
    FCT_FLAG(0, "search", search, "find the highest -c or --rate within the limits"),
    FCT_OPT_HEAD("output:"),
    FCT_TEXT(0, "csv", "FILE", out[0].path,
        "raw log, a line a request (- is standard output)"),
    FCT_TEXT(0, "json", "FILE", out[1].path, "results as JSON (- is standard output)"),
    FCT_TEXT(0, "html", "FILE", out[2].path, "report with plots, one file"),
    FCT_TEXT(0, "against", "FILE", against,
        "compare with the --json of an earlier run: before, now, ratio"),
    FCT_FLAG(0, "against-any", against_any,
        "compare also with a run of another load or model"),
    FCT_FLAG(0, "progress", l.lines, "a line every few seconds in place of the bar"),
    FCT_FLAG('q', "quiet", quiet, "neither progress nor table", FCT_HAS(l.quiet)),
    FCT_OPT_HELP, FCT_BITS(0, "ignore-eos", l.cfg.req.p.flags, FDC_F_IGNORE_EOS, 0, ""),
    FCT_FN(0, "max-tokens", "N", take_max_tokens, ""),
    FCT_OPT_HEAD("parameters of every request:"), FCT_OPT_END };

/* Parameters of a request that have another meaning here, or none. */
static const char *const not_here[] = { "max-tokens", "seed", "n", "ignore-eos",
    "best-of", "alone", "echo", "token-text", NULL };

static const struct fct_line serve_line = FCT_LINE("fdbench serve [options]",
    "Send requests and report latencies, throughput and goodput. A closed loop\n"
    "keeps -c requests open; an open loop sends at --rate whatever happens.",
    serve_opts, .opts[1] = fct_param_opts, .hint = FCT_HINT_SEE,
    .req = 1 + offsetof(FCT_ARGS, l.cfg.req), .less = not_here);

static int
set_arrival(struct serve *s)
{
    struct fdb_cfg *c = &s->l.cfg;
    int kind = FDB_POISSON, is_open = c->rate > 0;

    c->arrival = !is_open ? FDB_CLOSED : s->has_burst ? FDB_GAMMA : FDB_POISSON;
    if (s->arrival != NULL) {
        while (kind <= FDB_RAMP && strcmp(fdb_arrivals[kind], s->arrival) != 0)
            kind++;
        if (kind > FDB_RAMP)
            return fct_usage("--arrival %s: must be poisson, gamma, constant or ramp",
                s->arrival);
        if (!is_open)
            return fct_usage("--arrival %s: needs --rate", s->arrival);
        c->arrival = (enum fdb_arrival)kind;
    }
    if (s->has_burst && c->arrival != FDB_GAMMA && c->arrival != FDB_RAMP)
        return fct_usage("--burstiness %g: needs --rate with --arrival gamma or ramp",
            c->burstiness);
    if (s->has_from && c->arrival != FDB_RAMP)
        return fct_usage("--rate-from %g: needs --arrival ramp", c->rate_from);
    if (c->arrival == FDB_RAMP && !s->has_from)
        c->rate_from = c->rate / 10;
    return 0;
}

static int
check_against(const struct serve *s)
{
    if (s->against == NULL && s->against_any)
        return fct_usage("--against-any: needs --against FILE");
    if (s->against != NULL && s->search)
        return fct_usage("--against %s: not with --search, whose load is not known before",
            s->against);
    if (s->against != NULL && s->quiet)
        return fct_usage("--against %s: prints a table: not with --quiet, --csv - or --json -",
            s->against);
    return 0;
}

static int
check_options(struct serve *s)
{
    struct fdb_cfg *c = &s->l.cfg;
    const char *other = c->rate > 0 ? "--rate"
        : s->input != NULL          ? "--input"
        : s->output != NULL         ? "--output"
        : c->n_turn > 1             ? "--turns"
        : s->search                 ? "--search"
                                    : NULL;
    int rc;

    if ((rc = fdb_opt_len("--input", s->input, &c->in)) != 0 ||
        (rc = fdb_opt_len("--output", s->output, &c->out)) != 0 ||
        (rc = set_arrival(s)) != 0)
        return rc;
    if (c->trace != NULL && other != NULL)
        return fct_usage(
            "%s: not with --trace, which says when requests come and how long they are",
            other);
    if (c->trace != NULL)
        c->arrival = FDB_TRACE;
    if (c->dataset != NULL && !c->text)
        return fct_usage("--dataset %s: needs --text", c->dataset);
    if (s->search && !fdb_has_limit(&c->slo))
        return fct_usage(
            "--search: needs a limit: --ttft-ms, --tpot-ms, --itl-ms or --e2e-ms");
    if (s->search && (c->arrival == FDB_RAMP || c->n_repeat > 1))
        return fct_usage("--search: not with %s",
            c->n_repeat > 1 ? "--repeats" : "--arrival ramp");
    return 0;
}

/* ---- search ------------------------------------------------------------- */

int
fdb_search(double first, double lo, double hi, int whole, fdb_try_fn *fn, void *arg,
    double *ret_found)
{
    /* good: largest load within the limits, bad: smallest beyond; 0: none yet */
    double load = fmin(fmax(first, lo), hi), good = 0, bad = 0;
    int rc = 0, within, done = 0;

    for (int n = 0; rc == 0 && !done && n < N_TRY_MAX; n++) {
        within = 0;
        rc = fn(arg, load, &within);
        if (rc == 0)
            *(within ? &good : &bad) = load;
        if (bad == 0) {
            done = good >= hi;
            load = fmin(good * 2, hi);
        } else if (good == 0) {
            done = bad <= lo;
            load = fmax(whole ? floor(bad / 2) : bad / 2, lo);
        } else {
            done = whole ? bad - good <= 1 : bad <= good * CLOSE_ENOUGH;
            load = whole ? floor((good + bad) / 2) : (good + bad) / 2;
        }
    }
    *ret_found = good;
    return rc;
}

/* ---- runs ---------------------------------------------------------------- */

/* Run a repeat, append it to log, summarize it; *ret_summary NULL: no request ended. */
static int
run_one(struct serve *s, uint32_t repeat, struct fdb_log *log, struct fdb_run *ret_run,
    json_t **ret_summary)
{
    int rc = fdb_load_run(&s->l, repeat, log, ret_run);

    *ret_summary = NULL;
    if (log->n_rec == 0 || !fdb_is_of(&log->rec[log->n_rec - 1], repeat))
        return rc;
    *ret_summary = fdb_summarize(log, repeat, ret_run, &s->l.cfg.slo);
    return *ret_summary != NULL ? rc : fct_oom();
}

static int
one_step(void *arg, double load, int *ret_within)
{
    struct serve *s = arg;
    struct fdb_result *r = &s->r;
    struct fdb_cfg *c = &s->l.cfg;
    struct fdb_log log = { .n_rec = 0 }, other;
    uint32_t k = (uint32_t)json_array_size(r->steps);
    int rc, behind, closed = c->arrival == FDB_CLOSED;
    struct fdb_run run;
    double attain;
    json_t *sum;
    size_t i;

    if (!closed)
        c->rate = load;
    else
        c->concurrency = (uint32_t)load;
    if (closed && !s->has_n && !(c->duration_s > 0))
        c->n_request = 10 * c->concurrency;
    rc = run_one(s, k, &log, &run, &sum);
    if (sum == NULL) {
        fdb_log_fini(&log);
        return rc;
    }
    attain = fct_real(sum, "attainment");
    /* An interrupted run, or one sent too late, is not within the limits. */
    behind = !closed && fdb_fell_behind(&log, k);
    *ret_within = rc == 0 && !behind && attain >= c->slo_attain;
    if (!s->l.quiet)
        fprintf(stderr, "%s: %g %s: %.2f %% within the limits, goodput %.3g/s%s\n",
            fct_prog, load, closed ? "at a time" : fdb_load_unit(c), attain * 100,
            fct_real(sum, "goodput_per_s"), behind ? "; could not be sent in time" : "");
    /* the report shows the largest load within the limits, else the first one tried */
    if (json_array_size(r->repeats) == 0 || (*ret_within && load > r->found)) {
        for (i = 0; i < log.n_rec; i++)
            log.rec[i].repeat = 0;
        other = r->log;
        r->log = log;
        log = other;
        r->cfg = *c;
        json_array_clear(r->repeats);
        fdb_add_repeat(r, json_copy(sum), &run);
        r->found = *ret_within ? load : 0;
    }
    fdb_log_fini(&log);
    if (rc == 0)
        fdb_add_step(r, load, sum, *ret_within, behind);
    else
        json_decref(sum);
    return rc;
}

/* ---- results ------------------------------------------------------------- */

static void
say_late(const struct serve *s)
{
    const struct fdb_cfg *c = &s->l.cfg;
    const json_t *one;
    char why[160] = "fdbench had to wait for a processor";
    long long n_held = 0;
    double late = 0;
    size_t i;

    json_array_foreach(s->r.repeats, i, one) {
        late = fmax(late, fct_real(one, "late_ms"));
        n_held += fct_num(one, "sends_delayed");
    }
    if (n_held > 0)
        snprintf(why, sizeof(why),
            "%lld waited for a place among the %u that may be open at a time (%s)",
            n_held, c->concurrency > 0 ? c->concurrency : s->l.info.max_inflight,
            c->concurrency > 0 ? "-c" : "sched.max_inflight_per_client");
    if (c->arrival != FDB_CLOSED && late >= LATE_MS)
        fct_fail(0, "requests were sent up to %.1f ms late: %s", late, why);
}

/* Before the run: is the earlier report one of the same load and model? */
static int
compare_loads(const struct serve *s)
{
    char text[1024];
    json_t *now;
    unsigned n;

    if (s->before == NULL || s->against_any)
        return 0;
    now = fdb_report_json(&s->r);
    if (now == NULL)
        return fct_oom();
    n = fdb_against_differs(s->before, now, text, sizeof(text));
    json_decref(now);
    return n == 0
        ? 0
        : fct_data("--against %s: not comparable: %s; --against-any compares all the same",
              s->against, text);
}

static int
report(struct serve *s)
{
    json_t *all;
    int rc;

    if (json_array_size(s->r.repeats) == 0)
        return 0;
    all = fdb_report_json(&s->r);
    if (all == NULL)
        return fct_oom();
    /* Files first: the reader of standard output may have closed the pipe. */
    rc = fdb_output_write(s->out, 3, all, &s->r.log);
    if (!s->quiet)
        fdb_report_text(stdout, all);
    if (s->before != NULL) {
        printf("\nagainst %s\n", s->against);
        fdb_against_text(stdout, s->before, all);
    }
    json_decref(all);
    say_late(s);
    if (s->search && s->quiet && s->r.found == 0)
        fct_fail(0, "--search: no load was within the limits");
    return rc == 0 ? fdb_exit_of(s->r.repeats) : rc;
}

static int
serve(struct serve *s, const struct fct *f)
{
    struct fdb_cfg *c = &s->l.cfg;
    struct fdb_run run;
    json_t *sum;
    int rc, rc2, closed;

    if ((rc = check_options(s)) != 0 || (rc = fdb_output_check(s->out, 3, &s->quiet)) != 0 ||
        (rc = check_against(s)) != 0 || (rc = fdb_cfg_read(c)) != 0)
        return rc;
    if (c->trace != NULL && c->n_request > c->n_row)
        return fct_usage("--requests %u: %s has %zu", c->n_request, c->trace, c->n_row);
    if (s->against != NULL)
        rc = fdb_against_read(s->against, s->against_any, &s->before);
    if (s->search && c->arrival != FDB_CLOSED && !s->has_n && !(c->duration_s > 0))
        c->duration_s = SEARCH_S;
    if (rc != 0 || (rc = fdb_load_open(f, &s->l)) != 0)
        return rc;
    closed = c->arrival == FDB_CLOSED;
    s->r.model = s->l.model;
    s->r.cfg = *c;
    if ((rc = compare_loads(s)) != 0)
        return rc;
    s->r.daemon = fdb_daemon_ask(f);
    if (s->search) {
        /* More clients than conversations would not raise the load. */
        s->r.bound = !closed ? RATE_MAX
            : s->has_n ? fmin(s->l.info.max_inflight, (c->n_request - 1) / c->n_turn + 1)
                       : s->l.info.max_inflight;
        rc = fdb_search(closed ? c->concurrency : c->rate, closed ? 1 : RATE_MIN,
            s->r.bound, closed, one_step, s, &s->r.found);
    }
    for (uint32_t i = 0; !s->search && rc == 0 && i < c->n_repeat; i++) {
        rc = run_one(s, i, &s->r.log, &run, &sum);
        if (sum == NULL)
            break;
        fdb_add_repeat(&s->r, sum, &run);
    }
    rc2 = report(s);
    return rc != 0 ? rc : rc2;
}

int
fdb_cmd_serve(const struct fct *f, int argc, char **argv)
{
    struct serve s = { .out = { { "csv", NULL, fdb_report_csv, 0 },
                           { "json", NULL, fdb_report_dump, 0 },
                           { "html", NULL, fdb_report_html, 1 } } };
    int rc;

    fdb_cfg_init(&s.l.cfg);
    fdb_result_init(&s.r, "serve", argc, argv);
    rc = fct_parse(&serve_line, argc, argv, &s);
    if (rc == FCT_GO)
        rc = serve(&s, f);
    fdc_close(s.l.session);
    json_decref(s.before);
    fdb_cfg_fini(&s.l.cfg);
    fdb_result_fini(&s.r);
    return rc;
}
