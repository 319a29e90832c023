/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#define BATCH_MAX 65536u

/* Figures of a batch. prefill: from the first send to the first token of the last
 * request; step: median of the requests' time per output token. */
static const struct {
    const char *key, *label;
    int digits;
} columns[] = { { "prefill_ms", "prefill ms", 3 }, { "step_ms", "ms per step", 3 },
    { "batch_ms", "batch ms", 3 }, { "output_tokens_per_s", "output tokens/s", 1 } };
#define N_COLUMN (sizeof(columns) / sizeof(columns[0]))

struct latency {
    struct fdb_load l;
    struct fdb_result r; /* two members are used: head becomes the report, and repeats has
                            a summary of each batch, with the keys of columns[], "batch"
                            and "repeat" */
    uint32_t *batch;
    size_t n_batch;
    uint32_t n_warm; /* batches of the warm-up */
    const char *csv, *json;
    int quiet;
};

static int
take_batches(void *args, const char *text)
{
    struct latency *a = args;
    char why[96];
    size_t i;

    free(a->batch);
    a->batch = NULL;
    if (fct_parse_ids(text, strlen(text), &a->batch, &a->n_batch, why, sizeof(why)) != 0)
        return fct_usage("--batch %s: must be a whole number from 1 to %u", text, BATCH_MAX);
    for (i = 0; i < a->n_batch; i++)
        if (a->batch[i] < 1 || a->batch[i] > BATCH_MAX)
            return fct_usage("--batch %u: must be a whole number from 1 to %u",
                a->batch[i], BATCH_MAX);
    return 0;
}

#define FCT_ARGS struct latency
static const struct fct_opt lat_opts[] = {
    FCT_FN('b', "batch", "N,N...", take_batches, "requests at once (1)"),
    FCT_U32('i', "input", "N", l.cfg.in.hi, 1, FDB_LEN_MAX, "prompt tokens of each (512)"),
    FCT_U32('o', "output", "N", l.cfg.out.hi, 1, FDB_LEN_MAX, "output tokens of each (128)"),
    FCT_U32(0, "repeats", "N", l.cfg.n_repeat, 1, 1000,
        "batches of each size: median, minimum, maximum (5)"),
    FCT_U32(0, "warmup", "N", n_warm, 0, 1000, "warm-up batches, not counted (1)"),
    FCT_U64(0, "seed", "N", l.cfg.seed, UINT64_MAX, "of tokens and sampling (a new one)"),
    FCT_TEXT(0, "csv", "FILE", csv, "a line a batch (- is standard output)"),
    FCT_TEXT(0, "json", "FILE", json, "results as JSON (- is standard output)"),
    FCT_FLAG(0, "progress", l.lines, "a line every few seconds in place of the bar"),
    FCT_FLAG('q', "quiet", quiet, "neither progress nor table", FCT_HAS(l.quiet)),
    FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line lat_line = FCT_LINE("fdbench latency [options]",
    "Send batches of equal requests at once: time of the prefill (until every\n"
    "request has its first token), time per step, tokens per second.",
    lat_opts, .hint = FCT_HINT_SEE);

/* The summary of a batch; without times if no request succeeded. */
static json_t *
measure(const struct fdb_log *log, uint32_t repeat, const struct fdb_run *run)
{
    static const struct fdb_slo none;
    json_t *sum = fdb_summarize(log, repeat, run, &none), *n;
    const struct fdb_rec *r;
    uint64_t t_first = 0;
    const char *name;

    for (r = log->rec; r < log->rec + log->n_rec; r++)
        if (fdb_is_of(r, repeat) && r->code == FDC_OK)
            t_first = MAX(t_first, r->t_first);
    if (t_first > run->t_begin)
        json_object_update_new(sum,
            json_pack("{s:f, s:o, s:f}", "prefill_ms",
                (double)(t_first - run->t_begin) / 1e6, "step_ms",
                fct_json_real(fdb_figure(sum, "tpot_ms", "p50", NULL)), "batch_ms",
                fct_real(sum, "duration_s") * 1e3));
    else
        json_object_del(sum, "output_tokens_per_s");
    json_object_foreach(json_object_get(sum, "errors"), name, n)
        fct_fail(0, "batch of %u: %lld failed with %s: %s", run->max_concurrent_requests,
            (long long)json_integer_value(n), name, fdc_strerror(fdb_code_of(name)));
    return sum;
}

/* Run the batches of one size: adds each to a->r.repeats, and their figures to sizes. */
static int
run_size(struct latency *a, uint32_t size, json_t *sizes)
{
    struct fdb_cfg cfg = a->l.cfg;
    struct fdb_log log = { .n_rec = 0 };
    json_t *list = json_array(), *o, *sum;
    json_int_t n_failed = 0;
    struct fdb_run run;
    uint32_t i;
    size_t k;
    int rc = 0;

    a->l.cfg.concurrency = a->l.cfg.n_request = size;
    a->l.cfg.n_warm = size * a->n_warm;
    a->l.cfg.seed += json_array_size(sizes);
    for (i = 0; rc == 0 && i < cfg.n_repeat; i++) {
        rc = fdb_load_run(&a->l, i, &log, &run);
        /* An interrupted batch has no summary. */
        sum = rc == 0 ? measure(&log, i, &run) : NULL;
        fdb_log_fini(&log);
        if (sum == NULL)
            break;
        n_failed += fct_num(sum, "requests_failed");
        json_object_update_new(sum,
            json_pack("{s:I, s:I}", "batch", (json_int_t)size, "repeat", (json_int_t)i));
        json_array_append(list, sum);
        json_array_append_new(a->r.repeats, sum);
    }
    a->l.cfg = cfg;
    o = json_pack("{s:I, s:I, s:I}", "batch", (json_int_t)size, "batches", (json_int_t)i,
        "requests_failed", n_failed);
    for (k = 0; k < N_COLUMN; k++)
        json_object_set_new(o, columns[k].key, fdb_mmm_of(list, columns[k].key, NULL, 1));
    if (i > 0)
        json_array_append(sizes, o);
    json_decref(o);
    json_decref(list);
    return rc;
}

static void
print_text(const struct latency *a)
{
    const json_t *size;
    char text[64];
    size_t i, k;

    printf("latency, model %.64s, %s, %s\n"
           "prompt %u, output %u tokens; median (min - max) of %u batches\n\n%7s",
        a->l.model.name, fct_str(a->r.head, "host"), fct_str(a->r.head, "time"),
        a->l.cfg.in.hi, a->l.cfg.out.hi, a->l.cfg.n_repeat, "batch");
    for (k = 0; k < N_COLUMN; k++)
        printf("  %29s", columns[k].label);
    json_array_foreach(json_object_get(a->r.head, "sizes"), i, size) {
        printf("\n%7lld", fct_num(size, "batch"));
        for (k = 0; k < N_COLUMN; k++) {
            const json_t *of = json_object_get(size, columns[k].key);
            int digits = columns[k].digits;

            snprintf(text, sizeof(text), "%.*f (%.*f - %.*f)", digits,
                fct_real(of, "median"), digits, fct_real(of, "min"), digits,
                fct_real(of, "max"));
            printf("  %29s", json_is_number(json_object_get(of, "median")) ? text : "-");
        }
    }
    putchar('\n');
}

static int
write_csv(FILE *f, const json_t *report, const void *batches)
{
    const json_t *one;
    size_t i, k;

    fputs("batch,repeat,prompt_tokens,output_tokens,prefill_ms,step_ms,batch_ms,"
          "output_tokens_per_s,requests_failed\n",
        f);
    json_array_foreach((const json_t *)batches, i, one) {
        fprintf(f, "%lld,%lld,%lld,%lld", fct_num(one, "batch"), fct_num(one, "repeat"),
            fct_num(report, "prompt_tokens"), fct_num(report, "output_tokens"));
        for (k = 0; k < N_COLUMN; k++)
            fprintf(f, ",%.17g", fdb_figure(one, columns[k].key, NULL, NULL));
        fprintf(f, ",%lld\n", fct_num(one, "requests_failed"));
    }
    return 0;
}

static int
latency(struct latency *a, const struct fct *f)
{
    const struct fdb_output out[] = { { "csv", a->csv, write_csv, 0 },
        { "json", a->json, fdb_report_dump, 0 } };
    size_t i, n = a->n_batch;
    struct fdb_cfg *c = &a->l.cfg;
    int rc = fdb_output_check(out, 2, &a->quiet), rc2;

    c->in.lo = c->in.hi;
    c->out.lo = c->out.hi;
    for (i = 0; i < n; i++)
        c->concurrency = MAX(c->concurrency, a->batch[i]);
    if (rc == 0)
        rc = fdb_load_open(f, &a->l);
    json_object_update_new(a->r.head,
        json_pack("{s:o, s:I, s:I, s:o, s:[]}", "model",
            fct_json_text(a->l.model.name, strnlen(a->l.model.name, sizeof(a->l.model.name))),
            "prompt_tokens", (json_int_t)c->in.hi, "output_tokens", (json_int_t)c->out.hi,
            /* as text: JSON readers keep only 53 bits of a number */
            "seed", json_sprintf("%" PRIu64, c->seed), "sizes"));
    for (i = 0; rc == 0 && i < n; i++)
        rc = run_size(a, a->batch[i], json_object_get(a->r.head, "sizes"));
    if (json_array_size(a->r.repeats) == 0)
        return rc;
    /* Files first: the reader of standard output may have closed the pipe. */
    rc2 = fdb_output_write(out, 2, a->r.head, a->r.repeats);
    if (!a->quiet)
        print_text(a);
    rc = rc == 0 ? rc2 : rc;
    return rc == 0 ? fdb_exit_of(a->r.repeats) : rc;
}

int
fdb_cmd_latency(const struct fct *f, int argc, char **argv)
{
    struct latency a = { .n_warm = 1 };
    int rc;

    fdb_cfg_init(&a.l.cfg);
    fdb_result_init(&a.r, "latency", argc, argv);
    a.l.cfg.n_repeat = 5;
    (void)take_batches(&a, "1");
    rc = fct_parse(&lat_line, argc, argv, &a);
    if (rc == FCT_GO)
        rc = latency(&a, f);
    fdc_close(a.l.session);
    fdb_cfg_fini(&a.l.cfg);
    fdb_result_fini(&a.r);
    free(a.batch);
    return rc;
}
