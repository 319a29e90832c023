/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RATE_MIN 0.01
#define RATE_MAX 1e6
#define LEN_MAX 16777216u
#define SEARCH_S 10.0        /* of an open loop at each load */
#define LATE_MS 10.0         /* a send that late is worth a word */

struct serve {
    struct fdb_load l;
    struct fdb_result r;
    const char *csv, *json, *html, *arrival, *against;
    json_t *before;          /* the report that against holds */
    int search, quiet, against_any;
    int has_rate, has_from, has_burst, has_in, has_out, has_n, has_turns,
        has_prefix;
};

enum { O_HELP = 1, O_CONC, O_RATE, O_ARRIVAL, O_FROM, O_BURST, O_TRACE, O_IN, O_OUT,
    O_PREFIX, O_GROUPS, O_TURNS, O_TEXT, O_DATASET, O_N, O_WARM, O_DURATION, O_REPEATS,
    O_SEED, O_EOS, O_TTFT, O_TPOT, O_ITL, O_E2E, O_ATTAIN, O_SEARCH, O_CSV, O_JSON,
    O_HTML, O_AGAINST, O_ANY, O_PROGRESS, O_QUIET, O_IGNORE_EOS, O_MAX_TOKENS };

static const struct fct_opt load_opts[] = {
    { "concurrency", 'c', "N", "closed loop: so many requests at a time (8)", O_CONC },
    { "rate", 'r', "R", "open loop: requests (with --turns conversations) per second",
    O_RATE },
    { "arrival", 0, "KIND", "poisson, gamma, constant or ramp (poisson)", O_ARRIVAL },
    { "burstiness", 0, "X", "of gamma and ramp: below 1 in bursts, above 1 even (1)",
    O_BURST },
    { "rate-from", 0, "R", "where a ramp begins (a tenth of --rate)", O_FROM },
    { "trace", 0, "FILE", "open loop: lines time_s,prompt_tokens,output_tokens",
    O_TRACE },
    { "requests", 'n', "N", "requests of a run (10 for each of -c)", O_N },
    { "duration", 0, "S", "send for so long (open loop: 30)", O_DURATION },
    { "warmup", 0, "N", "requests before, not counted (as many as -c; 8)", O_WARM },
    { "repeats", 0, "N", "runs: median, minimum and maximum (1)", O_REPEATS },
    { "seed", 0, "N", "of lengths, tokens, arrivals and sampling (a new one)", O_SEED },
    FCT_OPT_END
};

static const struct fct_opt prompt_opts[] = {
    { "input", 'i', "N|LO:HI", "prompt tokens behind prefix and history (512)", O_IN },
    { "output", 'o', "N|LO:HI", "output tokens (128)", O_OUT },
    { "prefix-len", 0, "N", "tokens that a group of prompts begins with (0)", O_PREFIX },
    { "prefixes", 0, "N", "such groups (1)", O_GROUPS },
    { "turns", 0, "N", "of a conversation; each repeats what came before (1)", O_TURNS },
    { "text", 0, NULL, "prompts and answers as text instead of ids", O_TEXT },
    { "dataset", 0, "FILE", "with --text: cut prompts from this text", O_DATASET },
    { "eos", 0, NULL, "an answer may end before its length", O_EOS },
    FCT_OPT_END
};

static const struct fct_opt limit_opts[] = {
    { "ttft-ms", 0, "MS", "limit: time to first token", O_TTFT },
    { "tpot-ms", 0, "MS", "limit: time per output token of a request", O_TPOT },
    { "itl-ms", 0, "MS", "limit: longest gap between arrivals of a request", O_ITL },
    { "e2e-ms", 0, "MS", "limit: sending to end", O_E2E },
    { "attain", 0, "P", "share of requests within the limits for --search (0.99)",
    O_ATTAIN },
    { "search", 0, NULL, "find the highest -c or --rate within the limits", O_SEARCH },
    FCT_OPT_END
};

static const struct fct_opt out_opts[] = {
    { "csv", 0, "FILE", "raw log, a line a request (- is standard output)", O_CSV },
    { "json", 0, "FILE", "results as JSON (- is standard output)", O_JSON },
    { "html", 0, "FILE", "report with plots, one file", O_HTML },
    { "against", 0, "FILE", "compare with the --json of an earlier run: before, now, ratio",
    O_AGAINST },
    { "against-any", 0, NULL, "also with one of another load or model", O_ANY },
    { "progress", 0, NULL, "a line every few seconds in place of the bar", O_PROGRESS },
    { "quiet", 'q', NULL, "neither progress nor table", O_QUIET },
    { "help", 'h', NULL, "this text", O_HELP },
    FCT_OPT_END
};

/* What fdctl generate takes and people will write, not in the help. */
static const struct fct_opt other_opts[] = {
    { "ignore-eos", 0, NULL, "", O_IGNORE_EOS },
    { "max-tokens", 0, "N", "", O_MAX_TOKENS },
    FCT_OPT_END
};

/* Parameters of a request that mean something else here, or nothing. */
static int
is_ours(const char *name)
{
    static const char *const names[] = { "max-tokens", "seed", "n", "ignore-eos" };
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    return 0;
}

/* opts has room for all; returns what follows them. */
static struct fct_opt *
add_opts(struct fct_opt *opts, const struct fct_opt *from)
{
    for (; from->name != NULL; from++)
        if (from->id < FCT_PARAM_BASE || !is_ours(from->name))
            *opts++ = *from;
    *opts = (struct fct_opt)FCT_OPT_END;
    return opts;
}

static int
help(void)
{
    struct fct_opt params[64];

    puts("usage: fdbench serve [options]\n\n"
        "Send requests and report latencies, throughput and goodput. A closed loop\n"
        "keeps -c requests open; an open loop sends at --rate whatever happens.\n\n"
        "load:");
    fct_help_opts(stdout, load_opts);
    puts("\nrequests:");
    fct_help_opts(stdout, prompt_opts);
    puts("\nlimits (of a request; goodput counts those within all of them):");
    fct_help_opts(stdout, limit_opts);
    puts("\noutput:");
    fct_help_opts(stdout, out_opts);
    puts("\nparameters of every request:");
    (void)add_opts(params, fct_param_opts);
    fct_help_opts(stdout, params);
    return 0;
}

/* ---- options ------------------------------------------------------------- */

static int
take_load_option(struct serve *s, int id, const char *v)
{
    struct fdb_cfg *c = &s->l.cfg;

    switch (id) {
    case O_CONC:
        return fdb_opt_u32("--concurrency", v, 1, 65536, &c->concurrency);
    case O_RATE:
        s->has_rate = 1;
        return fdb_opt_dbl("--rate", v, RATE_MIN, RATE_MAX, &c->rate);
    case O_ARRIVAL:
        s->arrival = v;
        return 0;
    case O_FROM:
        s->has_from = 1;
        return fdb_opt_dbl("--rate-from", v, 0, RATE_MAX, &c->rate_from);
    case O_BURST:
        s->has_burst = 1;
        return fdb_opt_dbl("--burstiness", v, 0.01, 1e6, &c->burstiness);
    case O_TRACE:
        c->trace = v;
        return 0;
    case O_N:
        s->has_n = 1;
        return fdb_opt_u32("--requests", v, 1, 100000000, &c->n_request);
    case O_WARM:
        return fdb_opt_u32("--warmup", v, 0, 1000000, &c->n_warm);
    case O_DURATION:
        return fdb_opt_dbl("--duration", v, 0.01, 1e6, &c->duration_s);
    case O_REPEATS:
        return fdb_opt_u32("--repeats", v, 1, 1000, &c->n_repeat);
    default:
        return fct_u64("--seed", v, UINT64_MAX, &c->seed);
    }
}

static int
take_prompt_option(struct serve *s, int id, const char *v)
{
    struct fdb_cfg *c = &s->l.cfg;

    switch (id) {
    case O_IN:
        s->has_in = 1;
        return fdb_opt_len("--input", v, LEN_MAX, &c->in);
    case O_OUT:
        s->has_out = 1;
        return fdb_opt_len("--output", v, LEN_MAX, &c->out);
    case O_PREFIX:
        s->has_prefix = 1;
        return fdb_opt_u32("--prefix-len", v, 0, LEN_MAX, &c->prefix_len);
    case O_GROUPS:
        return fdb_opt_u32("--prefixes", v, 1, 1000000, &c->n_prefix);
    case O_TURNS:
        s->has_turns = 1;
        return fdb_opt_u32("--turns", v, 1, 10000, &c->n_turn);
    case O_TEXT:
        c->text = 1;
        return 0;
    case O_DATASET:
        c->dataset = v;
        return 0;
    default:
        c->req.p.flags &= ~(uint32_t)FDP_F_IGNORE_EOS;
        return 0;
    }
}

static int
take_option(struct serve *s, int id, const char *v)
{
    struct fdb_cfg *c = &s->l.cfg;

    switch (id) {
    case FCT_CLI_WORD:
        return fct_fail(FCT_EX_USAGE, "serve: unexpected '%s'; see fdbench serve --help",
            v);
    case O_TTFT:
        return fdb_opt_dbl("--ttft-ms", v, 0.001, 1e9, &c->slo.ttft_ms);
    case O_TPOT:
        return fdb_opt_dbl("--tpot-ms", v, 0.001, 1e9, &c->slo.tpot_ms);
    case O_ITL:
        return fdb_opt_dbl("--itl-ms", v, 0.001, 1e9, &c->slo.itl_ms);
    case O_E2E:
        return fdb_opt_dbl("--e2e-ms", v, 0.001, 1e9, &c->slo.e2e_ms);
    case O_ATTAIN:
        return fdb_opt_dbl("--attain", v, 0.01, 1, &c->slo_attain);
    case O_SEARCH:
        s->search = 1;
        return 0;
    case O_CSV:
        s->csv = v;
        return 0;
    case O_JSON:
        s->json = v;
        return 0;
    case O_HTML:
        s->html = v;
        return 0;
    case O_AGAINST:
        s->against = v;
        return 0;
    case O_ANY:
        s->against_any = 1;
        return 0;
    case O_PROGRESS:
        s->l.lines = 1;
        return 0;
    case O_MAX_TOKENS:
        return fct_fail(FCT_EX_USAGE, "--max-tokens %s: lengths of outputs are given by "
            "--output N or LO:HI", v);
    case O_IGNORE_EOS:
        c->req.p.flags |= FDP_F_IGNORE_EOS;
        return 0;
    case O_QUIET:
        s->quiet = s->l.quiet = 1;
        return 0;
    case O_CONC: case O_RATE: case O_ARRIVAL: case O_FROM: case O_BURST: case O_TRACE:
    case O_N: case O_WARM: case O_DURATION: case O_REPEATS: case O_SEED:
        return take_load_option(s, id, v);
    default:
        return id < FCT_PARAM_BASE ? take_prompt_option(s, id, v)
            : fct_req_set_opt(&c->req, id, v);
    }
}

/* ---- what goes together -------------------------------------------------- */

static int
set_arrival(struct serve *s)
{
    static const struct { const char *name; enum fdb_arrival kind; } kinds[] = {
        { "poisson", FDB_POISSON }, { "gamma", FDB_GAMMA }, { "constant", FDB_CONSTANT },
        { "ramp", FDB_RAMP }
    };
    struct fdb_cfg *c = &s->l.cfg;
    size_t i;

    c->arrival = !s->has_rate ? FDB_CLOSED : s->has_burst ? FDB_GAMMA : FDB_POISSON;
    if (s->arrival != NULL) {
        for (i = 0; i < 4 && strcmp(kinds[i].name, s->arrival) != 0; i++)
            ;
        if (i == 4)
            return fct_fail(FCT_EX_USAGE, "--arrival %s: must be poisson, gamma, "
                "constant or ramp", s->arrival);
        if (!s->has_rate)
            return fct_fail(FCT_EX_USAGE, "--arrival %s: needs --rate", s->arrival);
        c->arrival = kinds[i].kind;
    }
    if (s->has_burst && c->arrival != FDB_GAMMA && c->arrival != FDB_RAMP)
        return fct_fail(FCT_EX_USAGE, "--burstiness %g: needs --rate with --arrival "
            "gamma or ramp", c->burstiness);
    if (s->has_from && c->arrival != FDB_RAMP)
        return fct_fail(FCT_EX_USAGE, "--rate-from %g: needs --arrival ramp",
            c->rate_from);
    if (c->arrival == FDB_RAMP && !s->has_from)
        c->rate_from = c->rate / 10;
    return 0;
}

static int
set_trace(struct serve *s)
{
    struct fdb_cfg *c = &s->l.cfg;
    const char *other = s->has_rate ? "--rate" : s->has_in ? "--input" : s->has_out
        ? "--output" : s->has_turns ? "--turns" : s->search ? "--search" : NULL;

    if (c->trace == NULL)
        return 0;
    if (other != NULL)
        return fct_fail(FCT_EX_USAGE, "%s: not with --trace, which says when requests "
            "come and how long they are", other);
    c->arrival = FDB_TRACE;
    return 0;
}

static int
is_same(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0 && strncmp(a, "/dev/", 5) != 0;
}

static int
check_against(const struct serve *s)
{
    if (s->against == NULL)
        return s->against_any ? fct_fail(FCT_EX_USAGE, "--against-any: needs --against "
            "FILE") : 0;
    if (s->search)
        return fct_fail(FCT_EX_USAGE, "--against %s: not with --search, whose load is not "
            "known before", s->against);
    if (s->quiet)
        return fct_fail(FCT_EX_USAGE, "--against %s: prints a table, so neither with "
            "--quiet nor with --csv - or --json -", s->against);
    return 0;
}

static int
check_options(struct serve *s)
{
    struct fdb_cfg *c = &s->l.cfg;
    const struct fdb_slo *o = &c->slo;
    int rc = set_arrival(s), n_stdout = 0;

    if (rc == 0)
        rc = set_trace(s);
    if (rc != 0)
        return rc;
    if (c->dataset != NULL && !c->text)
        return fct_fail(FCT_EX_USAGE, "--dataset %s: needs --text", c->dataset);
    if (s->search && !(o->ttft_ms > 0 || o->tpot_ms > 0 || o->itl_ms > 0
        || o->e2e_ms > 0))
        return fct_fail(FCT_EX_USAGE, "--search: needs a limit: --ttft-ms, --tpot-ms, "
            "--itl-ms or --e2e-ms");
    if (s->search && (c->arrival == FDB_RAMP || c->n_repeat > 1))
        return fct_fail(FCT_EX_USAGE, "--search: not with %s", c->n_repeat > 1
            ? "--repeats" : "--arrival ramp");
    n_stdout = (s->csv != NULL && strcmp(s->csv, "-") == 0)
        + (s->json != NULL && strcmp(s->json, "-") == 0);
    if (n_stdout > 1)
        return fct_fail(FCT_EX_USAGE, "--csv - and --json -: one of them only");
    if (s->html != NULL && strcmp(s->html, "-") == 0)
        return fct_fail(FCT_EX_USAGE, "--html -: must be a file");
    if (is_same(s->csv, s->json) || is_same(s->json, s->html) || is_same(s->csv, s->html))
        return fct_fail(FCT_EX_USAGE, "--csv, --json and --html: two of them name the "
            "file %s", is_same(s->csv, s->json) ? s->csv : s->html);
    s->quiet |= n_stdout;
    return check_against(s);
}

/* A path that cannot be written is better known before the run. */
static int
check_output(const char *path)
{
    int is_new;
    FILE *f;

    if (path == NULL || strcmp(path, "-") == 0)
        return 0;
    is_new = access(path, F_OK) != 0;
    f = fopen(path, "a");
    if (f == NULL)
        return fct_fail(FCT_EX_IO, "%s: %s", path, strerror(errno));
    fclose(f);
    if (is_new)
        (void)unlink(path);
    return 0;
}

/* ---- runs ---------------------------------------------------------------- */

/* Has a measured request of this repeat ended? */
static int
has_ended(const struct fdb_log *log, uint32_t repeat)
{
    size_t i;

    for (i = log->n_rec; i > 0; i--)
        if (log->rec[i - 1].repeat == repeat && !log->rec[i - 1].warm)
            return 1;
    return 0;
}

static int
alloc_runs(struct fdb_result *r, uint32_t n)
{
    r->run = calloc(n, sizeof(*r->run));
    r->sum = calloc(n, sizeof(*r->sum));
    return r->run != NULL && r->sum != NULL ? 0 : fct_fail(FCT_EX_SOFT, "out of memory");
}

static int
run_repeats(struct serve *s)
{
    struct fdb_result *r = &s->r;
    const struct fdb_cfg *c = &s->l.cfg;
    int rc = alloc_runs(r, c->n_repeat);
    uint32_t i;

    for (i = 0; rc == 0 && i < c->n_repeat; i++) {
        rc = fdb_load_run(&s->l, i, &r->log, &r->run[i]);
        if (!has_ended(&r->log, i))
            break;
        if (fdb_summarize(&r->log, i, &r->run[i], &c->slo, &r->sum[i]) != 0)
            return fct_fail(FCT_EX_SOFT, "out of memory");
        r->n++;
    }
    return rc;
}

static int
add_step(struct fdb_result *r, double load, const struct fdb_sum *sum, int within,
    int behind)
{
    struct fdb_step *p = reallocarray(r->step, r->n_step + 1, sizeof(*p));

    if (p == NULL)
        return fct_fail(FCT_EX_SOFT, "out of memory");
    r->step = p;
    p[r->n_step++] = (struct fdb_step){ .load = load, .goodput = sum->goodput,
        .attain = sum->attain, .sum = *sum, .within = within, .behind = behind };
    return 0;
}

/* The result is that of the largest load within, or of the first one. */
static void
keep_step(struct serve *s, double load, int within, struct fdb_log *log,
    const struct fdb_run *run, const struct fdb_sum *sum)
{
    struct fdb_result *r = &s->r;
    size_t i;

    if (r->n > 0 && !(within && load > r->found)) {
        fdb_log_fini(log);
        return;
    }
    for (i = 0; i < log->n_rec; i++)
        log->rec[i].repeat = 0;
    fdb_log_fini(&r->log);
    r->log = *log;
    r->run[0] = *run;
    r->sum[0] = *sum;
    r->n = 1;
    r->cfg = s->l.cfg;
    r->found = within ? load : 0;
}

static int
one_step(void *arg, double load, int *ret_within)
{
    struct serve *s = arg;
    struct fdb_cfg *c = &s->l.cfg;
    struct fdb_log log = { .n_rec = 0 };
    uint32_t k = s->r.n_step;
    struct fdb_run run;
    struct fdb_sum sum;
    int rc, behind;

    if (c->arrival == FDB_CLOSED) {
        c->concurrency = (uint32_t)load;
        if (!s->has_n && !(c->duration_s > 0))
            c->n_request = 10 * c->concurrency;
    } else {
        c->rate = load;
    }
    rc = fdb_load_run(&s->l, k, &log, &run);
    if (rc != 0 && !has_ended(&log, k)) {
        fdb_log_fini(&log);
        return rc;
    }
    if (fdb_summarize(&log, k, &run, &c->slo, &sum) != 0) {
        fdb_log_fini(&log);
        return fct_fail(FCT_EX_SOFT, "out of memory");
    }
    /* What was broken off, or was another load, proves nothing. */
    behind = c->arrival != FDB_CLOSED && fdb_fell_behind(&log, k);
    *ret_within = rc == 0 && !behind && sum.attain >= c->slo_attain;
    if (!s->l.quiet)
        fprintf(stderr, "%s: %g %s: %.2f %% within the limits, goodput %.3g/s%s\n",
            fct_prog, load, c->arrival == FDB_CLOSED ? "at a time" : c->n_turn > 1
            ? "conversations/s" : "requests/s", sum.attain * 100, sum.goodput,
            behind ? "; could not be sent in time" : "");
    if (rc == 0)
        rc = add_step(&s->r, load, &sum, *ret_within, behind);
    keep_step(s, load, *ret_within, &log, &run, &sum);
    return rc;
}

/* More clients than conversations would be no other load. */
static uint32_t
most_clients(const struct serve *s)
{
    const struct fdb_cfg *c = &s->l.cfg;
    uint32_t n = s->l.info.max_inflight;
    uint32_t k = s->has_n ? (c->n_request - 1) / c->n_turn + 1 : n;

    return k < n ? k : n;
}

static int
run_search(struct serve *s)
{
    const struct fdb_cfg *c = &s->l.cfg;
    int closed = c->arrival == FDB_CLOSED;
    double found = 0;
    int rc = alloc_runs(&s->r, 1);

    if (rc != 0)
        return rc;
    s->r.bound = closed ? most_clients(s) : RATE_MAX;
    rc = fdb_search(closed ? c->concurrency : c->rate, closed ? 1 : RATE_MIN,
        s->r.bound, closed, one_step, s, &found);
    s->r.found = found;
    return rc;
}

/* ---- results ------------------------------------------------------------- */

static int
write_json(FILE *f, const struct fdb_result *r)
{
    json_t *j = fdb_report_json(r);
    int rc = j == NULL ? -ENOMEM : 0;

    if (rc == 0 && (json_dumpf(j, f, JSON_INDENT(2)) != 0 || fputc('\n', f) == EOF
        || fflush(f) != 0))
        rc = errno != 0 ? -errno : -EIO;
    json_decref(j);
    return rc;
}

static int
write_report(const char *path, int (*fn)(FILE *, const struct fdb_result *),
    const struct fdb_result *r)
{
    FILE *f;
    int rc;

    if (path == NULL)
        return 0;
    errno = 0;
    f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (f == NULL)
        return fct_fail(FCT_EX_IO, "%s: %s", path, strerror(errno));
    rc = fn(f, r);
    if (rc == 0 && (fflush(f) != 0 || ferror(f)))
        rc = errno != 0 ? -errno : -EIO;
    if (f != stdout && fclose(f) != 0 && rc == 0)
        rc = -errno;
    return rc == 0 ? 0 : fct_fail(FCT_EX_IO, "%s: %s", path, strerror(-rc));
}

static void
say_late(const struct serve *s)
{
    const struct fdb_cfg *c = &s->l.cfg;
    uint32_t i, n_held = 0;
    double late = 0;

    for (i = 0; i < s->r.n; i++) {
        late = s->r.sum[i].late_ms > late ? s->r.sum[i].late_ms : late;
        n_held += s->r.sum[i].n_held;
    }
    if (c->arrival == FDB_CLOSED || late < LATE_MS)
        return;
    if (n_held > 0)
        fct_fail(0, "requests were sent up to %.1f ms late: %u waited for a place among "
            "the %u that may be open at a time (%s)", late, n_held, c->concurrency > 0
            ? c->concurrency : s->l.info.max_inflight, c->concurrency > 0 ? "-c"
            : "sched.max_inflight_per_client");
    else
        fct_fail(0, "requests were sent up to %.1f ms late: fdbench had to wait for a "
            "processor", late);
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
        return fct_fail(FCT_EX_SOFT, "out of memory");
    n = fdb_against_differs(s->before, now, text, sizeof(text));
    json_decref(now);
    return n == 0 ? 0 : fct_fail(FCT_EX_DATA, "--against %s: not comparable: %s; "
        "--against-any compares all the same", s->against, text);
}

static int
report_against(const struct serve *s)
{
    json_t *now = fdb_report_json(&s->r);

    if (now == NULL)
        return fct_fail(FCT_EX_SOFT, "out of memory");
    printf("\nagainst %s\n", s->against);
    fdb_against_text(stdout, s->before, now);
    json_decref(now);
    return 0;
}

/* When every request fails the run has failed, for the commonest reason. */
static int
exit_of(const struct fdb_result *r)
{
    uint32_t i, n_ok = 0;

    for (i = 0; i < r->n; i++)
        n_ok += r->sum[i].n_ok;
    return n_ok > 0 || r->n == 0 || r->sum[0].n_fail == 0 ? 0
        : fct_exit_code(r->sum[0].fail[0].code);
}

static int
report(struct serve *s)
{
    struct fdb_result *r = &s->r;
    int rc = 0, one;

    if (r->n == 0)
        return 0;
    /* Files first: who reads standard output may have gone. */
    one = write_report(s->csv, fdb_report_csv, r);
    rc = rc == 0 ? one : rc;
    one = write_report(s->json, write_json, r);
    rc = rc == 0 ? one : rc;
    one = write_report(s->html, fdb_report_html, r);
    rc = rc == 0 ? one : rc;
    if (!s->quiet)
        fdb_report_text(stdout, r);
    one = s->before != NULL ? report_against(s) : 0;
    rc = rc == 0 ? one : rc;
    say_late(s);
    if (s->search && s->quiet && r->found == 0)
        fct_fail(0, "--search: no load was within the limits");
    return rc == 0 ? exit_of(r) : rc;
}

static int
serve(struct serve *s, const struct fct *f)
{
    struct fdb_cfg *c = &s->l.cfg;
    int rc = check_options(s), rc2;

    if (rc == 0)
        rc = fdb_cfg_read(c);
    if (rc == 0 && c->trace != NULL && c->n_request > c->n_row)
        rc = fct_fail(FCT_EX_USAGE, "--requests %u: %s has %zu", c->n_request, c->trace,
            c->n_row);
    if (rc == 0)
        rc = check_output(s->csv);
    if (rc == 0)
        rc = check_output(s->json);
    if (rc == 0)
        rc = check_output(s->html);
    if (rc == 0 && s->against != NULL)
        rc = fdb_against_read(s->against, s->against_any, &s->before);
    if (rc != 0)
        return rc;
    if (s->search && c->arrival != FDB_CLOSED && !s->has_n && !(c->duration_s > 0))
        c->duration_s = SEARCH_S;
    rc = fdb_load_open(f, &s->l);
    if (rc != 0)
        return rc;
    s->r.info = s->l.info;
    s->r.cfg = *c;
    rc = compare_loads(s);
    if (rc != 0)
        return rc;
    fdb_daemon_ask(f, &s->r.daemon);
    rc = s->search ? run_search(s) : run_repeats(s);
    rc2 = report(s);
    return rc != 0 ? rc : rc2;
}

int
fdb_cmd_serve(const struct fct *f, int argc, char **argv)
{
    struct fct_cli c = { .argc = argc, .argv = argv };
    struct fct_opt opts[128], *end;
    struct serve s;
    int id, rc = 0;

    memset(&s, 0, sizeof(s));
    fdb_cfg_init(&s.l.cfg);
    fdb_result_init(&s.r, "serve", argc, argv);
    end = add_opts(opts, load_opts);
    end = add_opts(end, prompt_opts);
    end = add_opts(end, limit_opts);
    end = add_opts(end, out_opts);
    end = add_opts(end, other_opts);
    (void)add_opts(end, fct_param_opts);
    while (rc == 0 && (id = fct_cli_next(&c, opts)) != FCT_CLI_END) {
        if (id == O_HELP) {
            fdb_cfg_fini(&s.l.cfg);
            return help();
        }
        rc = id == FCT_CLI_BAD ? FCT_EX_USAGE : take_option(&s, id, c.value);
    }
    if (rc == 0)
        rc = serve(&s, f);
    fdc_close(s.l.session);
    json_decref(s.before);
    fdb_cfg_fini(&s.l.cfg);
    fdb_log_fini(&s.r.log);
    free(s.r.run);
    free(s.r.sum);
    free(s.r.step);
    return rc;
}
