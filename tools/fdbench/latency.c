/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/report_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_BATCH_MAX 64
#define LEN_MAX     16777216u

/* Of one batch. prefill: first sending to the last request's first token; step: median of
 * the requests' time per output token. */
enum { S_PREFILL, S_STEP, S_BATCH, S_TOK, N_METRIC };
static const char *const metrics[N_METRIC] = { "prefill_ms", "step_ms", "batch_ms",
    "output_tokens_per_s" };
struct sample {
    double v[N_METRIC]; /* NAN: no request ended well */
    uint32_t n_failed;
    int32_t code; /* the commonest failure, or FDC_OK */
};

struct latency {
    struct fdb_load l;
    struct fdb_result r; /* args, time and host alone */
    uint32_t batch[N_BATCH_MAX], n_batch, at;
    struct sample *sample; /* [n_batch][n_repeat] */
    uint32_t n_done[N_BATCH_MAX];
    uint32_t n_warm; /* batches */
    const char *csv, *json;
    int quiet;
};

/* ---- options ------------------------------------------------------------- */

static int
take_batches(void *args, const char *text)
{
    struct latency *a = args;
    const char *p = text;
    char one[24];
    size_t n;
    int rc;

    a->n_batch = 0;
    for (;;) {
        n = strcspn(p, ",");
        snprintf(one, sizeof(one), "%.*s", (int)(n < 20 ? n : 20), p);
        if (a->n_batch == N_BATCH_MAX)
            return fct_fail(FCT_EX_USAGE, "--batch %s: at most %d sizes", text, N_BATCH_MAX);
        rc = fct_u32("--batch", one, 1, 65536, &a->batch[a->n_batch]);
        if (rc != 0)
            return rc;
        a->n_batch++;
        if (p[n] == '\0')
            return 0;
        p += n + 1;
    }
}

static int
take_length(const char *what, const char *text, struct fdb_len *ret)
{
    uint32_t n;
    int rc = fct_u32(what, text, 1, LEN_MAX, &n);

    if (rc == 0)
        *ret = (struct fdb_len){ .dist = FDB_FIXED, .lo = n, .hi = n };
    return rc;
}

static int
take_in(void *args, const char *v)
{
    return take_length("--input", v, &((struct latency *)args)->l.cfg.in);
}

static int
take_out(void *args, const char *v)
{
    return take_length("--output", v, &((struct latency *)args)->l.cfg.out);
}

#define L struct latency
static const struct fct_opt lat_opts[] = {
    { "batch", 'b', "N,N...", "requests at once (1)", FCT_FN(take_batches) },
    { "input", 'i', "N", "prompt tokens of each (512)", FCT_FN(take_in) },
    { "output", 'o', "N", "output tokens of each (128)", FCT_FN(take_out) },
    { "repeats", 0, "N", "batches of each size: median, minimum, maximum (5)",
        FCT_U32(L, l.cfg.n_repeat, 1, 1000) },
    { "warmup", 0, "N", "batches before, not counted (1)", FCT_U32(L, n_warm, 0, 1000) },
    { "seed", 0, "N", "of tokens and sampling (a new one)",
        FCT_U64(L, l.cfg.seed, UINT64_MAX) },
    { "csv", 0, "FILE", "a line a batch (- is standard output)", FCT_TEXT(L, csv) },
    { "json", 0, "FILE", "results as JSON (- is standard output)", FCT_TEXT(L, json) },
    { "progress", 0, NULL, "a line every few seconds in place of the bar",
        FCT_FLAG(L, l.lines) },
    { "quiet", 'q', NULL, "neither progress nor table", FCT_FLAG(L, quiet),
        FCT_HAS(L, l.quiet) },
    FCT_OPT_HELP, FCT_OPT_END
};
#undef L

static const struct fct_line lat_line = { .usage = "fdbench latency [options]",
    .about = "Send batches of equal requests at once: time of the prefill (until every\n"
             "request has its first token), time per step, tokens per second.",
    .opts = { lat_opts },
    .hint = FCT_HINT_SEE };

/* ---- runs ---------------------------------------------------------------- */

static int
measure(const struct fdb_log *log, uint32_t repeat, const struct fdb_run *run,
    struct sample *ret)
{
    static const struct fdb_slo none;
    struct sample m = { .v = { NAN, NAN, NAN, NAN } };
    uint64_t t_first = 0;
    struct fdb_sum sum;
    size_t i;

    if (fdb_summarize(log, repeat, run, &none, &sum) != 0)
        return fct_oom();
    for (i = 0; i < log->n_rec; i++) {
        const struct fdb_rec *r = &log->rec[i];

        if (r->repeat == repeat && !r->warm && r->code == FDC_OK && r->t_first > t_first)
            t_first = r->t_first;
    }
    m.n_failed = sum.n_failed;
    m.code = sum.n_fail > 0 ? sum.fail[0].code : FDC_OK;
    if (t_first > run->t_begin) {
        m.v[S_PREFILL] = (double)(t_first - run->t_begin) / 1e6;
        m.v[S_STEP] = sum.tpot.pct[0];
        m.v[S_BATCH] = sum.wall_s * 1e3;
        m.v[S_TOK] = sum.out_tok_s;
    }
    for (i = 0; i < sum.n_fail; i++)
        fct_fail(0, "batch of %u: %u failed with %s: %s", run->max_concurrent_requests,
            sum.fail[i].n, fdc_status_name(sum.fail[i].code),
            fdc_strerror(sum.fail[i].code));
    *ret = m;
    return 0;
}

/* The batches of one size. */
static int
run_size(struct latency *a, uint32_t at)
{
    struct fdb_cfg *c = &a->l.cfg;
    struct fdb_log log = { .n_rec = 0 };
    uint64_t seed = c->seed;
    struct fdb_run run;
    uint32_t i;
    int rc = 0, one = 0;

    c->concurrency = c->n_request = a->batch[at];
    c->n_warm = a->batch[at] * a->n_warm;
    c->seed = seed + at;
    for (i = 0; rc == 0 && one == 0 && i < c->n_repeat; i++) {
        rc = fdb_load_run(&a->l, i, &log, &run);
        /* A batch that was broken off says nothing. */
        if (rc == 0)
            one = measure(&log, i, &run, &a->sample[(size_t)at * c->n_repeat + i]);
        if (rc == 0 && one == 0)
            a->n_done[at]++;
        fdb_log_fini(&log);
    }
    c->seed = seed;
    return rc != 0 ? rc : one;
}

/* ---- results ------------------------------------------------------------- */

static struct rep_mmm
across(const struct latency *a, uint32_t at, int metric)
{
    const struct sample *s = a->sample + (size_t)at * a->l.cfg.n_repeat;
    double v[1000];
    size_t n = 0;
    uint32_t i;

    for (i = 0; i < a->n_done[at] && i < 1000; i++)
        if (!isnan(s[i].v[metric]))
            v[n++] = s[i].v[metric];
    return rep_mmm(v, n);
}

static void
print_text(const struct latency *a)
{
    const struct fdb_cfg *c = &a->l.cfg;
    uint32_t i;
    int k;

    printf("latency, model %.64s, %s, %s\n"
           "prompt %u, output %u tokens; median (min - max) of %u batches\n\n"
           "%7s  %29s  %29s  %29s  %29s\n",
        a->l.model.name, a->r.host, a->r.time, c->in.hi, c->out.hi, c->n_repeat, "batch",
        "prefill ms", "ms per step", "batch ms", "output tokens/s");
    for (i = 0; i < a->n_batch && a->n_done[i] > 0; i++) {
        printf("%7u", a->batch[i]);
        for (k = 0; k < N_METRIC; k++) {
            struct rep_mmm m = across(a, i, k);
            char text[64];

            if (isnan(m.median))
                snprintf(text, sizeof(text), "-");
            else
                snprintf(text, sizeof(text), "%.*f (%.*f - %.*f)", k == S_TOK ? 1 : 3,
                    m.median, k == S_TOK ? 1 : 3, m.min, k == S_TOK ? 1 : 3, m.max);
            printf("  %29s", text);
        }
        putchar('\n');
    }
}

static json_t *
to_json(const struct latency *a)
{
    const struct fdb_cfg *c = &a->l.cfg;
    const char *model = a->l.model.name;
    json_t *list = json_array(), *o;
    uint32_t i, j, n_failed;
    struct rep_mmm m;
    char seed[24];
    int k;

    for (i = 0; list != NULL && i < a->n_batch && a->n_done[i] > 0; i++) {
        for (n_failed = 0, j = 0; j < a->n_done[i]; j++)
            n_failed += a->sample[(size_t)i * c->n_repeat + j].n_failed;
        o = json_pack("{s:I, s:I, s:I}", "batch", (json_int_t)a->batch[i], "batches",
            (json_int_t)a->n_done[i], "requests_failed", (json_int_t)n_failed);
        for (k = 0; o != NULL && k < N_METRIC; k++) {
            m = across(a, i, k);
            json_object_set_new(o, metrics[k], rep_mmm_json(&m));
        }
        if (o == NULL || json_array_append_new(list, o) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    /* a seed as text: JSON readers keep 53 bits of a number */
    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)c->seed);
    return json_pack("{s:s, s:o, s:s, s:o, s:o, s:I, s:I, s:s, s:o}", "command",
        "latency", "args", fct_json_text(a->r.args, strlen(a->r.args)), "time", a->r.time,
        "host", fct_json_text(a->r.host, strlen(a->r.host)), "model",
        fct_json_text(model, strnlen(model, sizeof(a->l.model.name))), "prompt_tokens",
        (json_int_t)c->in.hi, "output_tokens", (json_int_t)c->out.hi, "seed", seed,
        "sizes", list);
}

static int
write_json(FILE *f, const void *a)
{
    return rep_dump_json(f, to_json(a));
}

static int
write_csv(FILE *f, const void *what)
{
    const struct latency *a = what;
    const struct fdb_cfg *c = &a->l.cfg;
    uint32_t i, k;

    fputs("batch,repeat,prompt_tokens,output_tokens,prefill_ms,step_ms,batch_ms,"
          "output_tokens_per_s,requests_failed\n",
        f);
    for (i = 0; i < a->n_batch; i++)
        for (k = 0; k < a->n_done[i]; k++) {
            const struct sample *s = &a->sample[(size_t)i * c->n_repeat + k];

            fprintf(f, "%u,%u,%u,%u,%.17g,%.17g,%.17g,%.17g,%u\n", a->batch[i], k,
                c->in.hi, c->out.hi, s->v[S_PREFILL], s->v[S_STEP], s->v[S_BATCH],
                s->v[S_TOK], s->n_failed);
        }
    return ferror(f) ? -EIO : 0;
}

/* When every request of every batch fails the run has failed. */
static int
exit_of(const struct latency *a)
{
    uint32_t i, j;

    for (i = 0; i < a->n_batch; i++)
        for (j = 0; j < a->n_done[i]; j++)
            if (!isnan(a->sample[(size_t)i * a->l.cfg.n_repeat + j].v[S_PREFILL]))
                return 0;
    return fct_exit_code(a->sample[0].code);
}

/* ---- the command --------------------------------------------------------- */

static int
latency(struct latency *a, const struct fct *f)
{
    struct fdb_cfg *c = &a->l.cfg;
    uint32_t i, most = 0;
    int rc, rc2;

    for (i = 0; i < a->n_batch; i++)
        most = a->batch[i] > most ? a->batch[i] : most;
    if (rep_check_stdout(a->csv, a->json, &a->quiet) != 0)
        return FCT_EX_USAGE;
    a->sample = calloc((size_t)a->n_batch * c->n_repeat, sizeof(*a->sample));
    if (a->sample == NULL)
        return fct_oom();
    c->concurrency = most;
    rc = fdb_load_open(f, &a->l);
    if (rc != 0)
        return rc;
    for (i = 0; rc == 0 && i < a->n_batch; i++)
        rc = run_size(a, i);
    if (a->n_done[0] == 0)
        return rc;
    /* Files first: who reads standard output may have gone. */
    rc2 = rep_write(a->csv, write_csv, a);
    rc = rc == 0 ? rc2 : rc;
    rc2 = rep_write(a->json, write_json, a);
    if (!a->quiet)
        print_text(a);
    rc = rc == 0 ? rc2 : rc;
    return rc == 0 ? exit_of(a) : rc;
}

int
fdb_cmd_latency(const struct fct *f, int argc, char **argv)
{
    struct latency a;
    int rc;

    memset(&a, 0, sizeof(a));
    fdb_cfg_init(&a.l.cfg);
    fdb_result_init(&a.r, "latency", argc, argv);
    a.l.cfg.n_repeat = 5;
    a.n_warm = 1;
    a.batch[0] = a.n_batch = 1;
    rc = fct_parse(&lat_line, argc, argv, &a);
    if (rc == FCT_GO)
        rc = latency(&a, f);
    fdc_close(a.l.session);
    fdb_cfg_fini(&a.l.cfg);
    free(a.sample);
    return rc;
}
