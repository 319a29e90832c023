/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include "daemon/common/version.h"

/* ---- texts -------------------------------------------------------------------- */

void
fdb_cell(FILE *out, int width, double v)
{
    char num[24];

    fprintf(out, " %*s", width, fct_figure(v, num));
}

const char *
fdb_load_unit(const struct fdb_cfg *cfg)
{
    return cfg->arrival == FDB_CLOSED ? "requests at a time"
        : cfg->n_turn > 1             ? "conversations/s"
                                      : "requests/s";
}

json_t *
fdb_text(const char *text)
{
    return text != NULL ? fct_json_text(text, strlen(text)) : json_null();
}

json_t *
fdb_filled(const char *text, const json_t *o)
{
    char all[8192];

    fct_fill(all, sizeof(all), text, o);
    return fdb_text(all);
}

/* ---- JSON --------------------------------------------------------------------- */

/* Digest of a trace's times and lengths, or of a data set's bytes; the path and a trace's
 * blanks do not count. null: there is none. */
static json_t *
digest_json(const struct fdb_cfg *c, int is_trace)
{
    size_t n = is_trace ? c->n_row : c->n_words, i;
    uint64_t digest = n, bits;

    for (i = 0; i < n; i++) {
        if (is_trace) {
            memcpy(&bits, &c->row[i].time_s, sizeof(bits));
            digest = fdb_mix(fdb_mix(digest, bits),
                ((uint64_t)c->row[i].n_prompt << 32) + c->row[i].n_out);
        } else {
            digest = fdb_mix(digest, (unsigned char)c->words[i]);
        }
    }
    return (is_trace ? n > 0 : c->dataset != NULL)
        ? json_sprintf("%016" PRIx64, digest)
        : json_null();
}

const char *const fdb_arrivals[] = { "closed", "poisson", "gamma", "constant", "ramp",
    "trace" };

/* A sampling parameter; null: the model's default. */
static json_t *
par_json(float v)
{
    return v == FDC_UNSET_F ? json_null() : fct_json_real((double)v);
}

/* Add the other parameters of requests. null: not given, as in a report of before they
 * were there. */
static void
add_params(json_t *to, const struct fct_req *r)
{
    static const char *const lists[FCT_N_LIST] = { [FCT_L_STOP] = "stop",
        [FCT_L_STOP_ID] = "stop_id",
        [FCT_L_BIAS] = "logit_bias",
        [FCT_L_ALLOW] = "allow_ids",
        [FCT_L_BAD_WORD] = "bad_words",
        [FCT_L_BAD_IDS] = "bad_ids",
        [FCT_L_LOGPROB] = "logprob_ids",
        [FCT_L_REASONING] = "reasoning" };
    const struct {
        const char *key;
        long long value; /* 0: not given */
    } numbers[] = { { "min_tokens", r->p.min_new }, { "prompt_from", r->p.prompt_from },
        { "priority", r->o.priority }, { "timeout_ms", r->o.ttl_total_ms },
        { "queue_timeout_ms", r->o.ttl_queue_ms } };
    static const struct {
        const char *key;
        uint32_t flag;
    } flags[] = { { "keep_stop", FDC_F_KEEP_STOP }, { "no_special", FDC_F_NO_SPECIAL },
        { "parse_special", FDC_F_PARSE_SPECIAL }, { "keep_special", FDC_F_KEEP_SPECIAL } };
    size_t i;

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        json_object_set_new(to, numbers[i].key,
            numbers[i].value != 0 ? json_integer(numbers[i].value) : json_null());
    for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        json_object_set_new(to, flags[i].key,
            (r->p.flags & flags[i].flag) != 0 ? json_true() : json_null());
    for (i = 0; i < FCT_N_LIST; i++)
        json_object_set_new(to, lists[i],
            r->list[i] != NULL ? json_deep_copy(r->list[i]) : json_null());
}

/* Template of the workload (cfg_json()): "closed loop, 16 at a time; 128 ...". */
#define UNIT    "[turns>1|conversations/s][!turns>1|requests/s]"
#define AT_RATE " arrivals, {rate_per_s} " UNIT
static const char workload[] =
    "[arrivals=closed|closed loop, {concurrency} at a time]"
    "[arrivals=trace|arrivals and lengths of {trace}]"
    "[arrivals=ramp|arrivals growing from {rate_from_per_s} to {rate_per_s} " UNIT "]"
    "[arrivals=poisson|Poisson" AT_RATE "][arrivals=constant|even" AT_RATE "]"
    "[arrivals=gamma|gamma" AT_RATE ", shape {burstiness}]"
    "[!arrivals=closed|[concurrency|, at most {concurrency} at a time]]"
    "; [requests|{requests} ]requests[warmup| after {warmup} to warm up]"
    "[duration_s| for [requests|at most ]{duration_s} s][repeats>1|, {repeats} times]"
    "[!arrivals=trace|; prompts of {prompt_len.0}[prompt_len.1>prompt_len.0| to {prompt_len.1}]"
    " tokens; outputs of {output_len.0}[output_len.1>output_len.0| to {output_len.1}] tokens]"
    "[prefix_len|; before each prompt one of {prefixes} prefixes of {prefix_len} tokens]"
    "[turns>1|; conversations of {turns} turns]"
    "; prompts as [text|text][!text|token ids][dataset| cut from {dataset}]; seed {seed}";

static json_t *
cfg_json(const struct fdb_cfg *c)
{
    const struct fdc_params *p = &c->req.p;
    json_t *o = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:[i,i], s:[i,i], s:f, s:f, s:f, s:f, s:i, s:i, s:i, "
        "s:b, s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:i, "
        "s:b, s:b}, s:o, s:{s:f, s:f, s:f, s:f, s:f}}",
        "arrivals", fdb_arrivals[c->arrival], "concurrency", (int)c->concurrency,
        "requests", (int)c->n_request, "warmup", (int)c->n_warm, "repeats",
        (int)c->n_repeat, "prompt_len", (int)c->in.lo, (int)c->in.hi, "output_len",
        (int)c->out.lo, (int)c->out.hi, "rate_per_s", c->rate, "rate_from_per_s",
        c->rate_from, "burstiness", c->burstiness, "duration_s", c->duration_s,
        "prefix_len", (int)c->prefix_len, "prefixes", (int)c->n_prefix, "turns",
        (int)c->n_turn, "text", c->text, "trace", fdb_text(c->trace), "trace_digest",
        digest_json(c, 1), "dataset", fdb_text(c->dataset), "dataset_digest",
        digest_json(c, 0), "sampling", "temperature", par_json(p->temperature), "top_p",
        par_json(p->top_p), "min_p", par_json(p->min_p), "top_k",
        p->top_k == FDC_UNSET ? json_null() : json_integer(p->top_k), "presence_penalty",
        par_json(p->presence_penalty), "frequency_penalty", par_json(p->frequency_penalty),
        "repetition_penalty", par_json(p->repetition_penalty), "stream_interval",
        (int)c->req.o.stream_interval, "logprobs", (int)p->logprobs, "prompt_logprobs",
        (int)p->prompt_logprobs, "greedy", p->temperature == 0, "eos",
        (p->flags & FDC_F_IGNORE_EOS) == 0, "seed", json_sprintf("%" PRIu64, c->seed),
        "limits", "ttft_ms", c->slo.ttft_ms, "tpot_ms", c->slo.tpot_ms, "itl_ms",
        c->slo.itl_ms, "e2e_ms", c->slo.e2e_ms, "attainment", c->slo_attain);

    add_params(json_object_get(o, "sampling"), &c->req);
    json_object_set_new(o, "workload", fdb_filled(workload, o));
    return o;
}

void
fdb_result_fini(struct fdb_result *r)
{
    fdb_log_fini(&r->log);
    json_decref(r->head);
    json_decref(r->daemon);
    json_decref(r->repeats);
    json_decref(r->steps);
}

void
fdb_add_repeat(struct fdb_result *r, json_t *summary, const struct fdb_run *run)
{
    json_object_update_new(summary,
        json_pack("{s:I, s:I, s:I, s:I, s:I}", "repeat",
            (json_int_t)json_array_size(r->repeats), "preemptions",
            (json_int_t)run->n_preempted, "begin_ns", (json_int_t)run->t_begin, "end_ns",
            (json_int_t)run->t_end, "fdbench_cpu_ns", (json_int_t)run->cpu_ns));
    json_array_append_new(r->repeats, summary);
}

void
fdb_add_step(struct fdb_result *r, double load, json_t *summary, int within, int behind)
{
    if (r->steps == NULL)
        r->steps = json_array();
    json_array_append_new(r->steps,
        json_pack("{s:f, s:O, s:O, s:b, s:b, s:o}", "load", load, "goodput_per_s",
            json_object_get(summary, "goodput_per_s"), "attainment",
            json_object_get(summary, "attainment"), "within", within, "sent_in_time",
            !behind, "summary", summary));
}

json_t *
fdb_report_json(const struct fdb_result *r)
{
    const struct fdc_model_info *m = &r->model;
    char hex[2 * sizeof(m->digest) + 1];
    json_t *o, *across = json_object(), *d;
    size_t i, j;

    for (i = 0; i < FDB_N_METRIC; i++) {
        const char *key = fdb_metrics[i].key;

        d = i < FDB_FIRST_DIST ? fdb_mmm_of(r->repeats, key, NULL, 0) : json_object();
        for (j = 0; i >= FDB_FIRST_DIST && j < FDB_N_STAT; j++)
            json_object_set_new(d, fdb_stats[j],
                fdb_mmm_of(r->repeats, key, fdb_stats[j], 0));
        json_object_set_new(across, key, d);
    }
    for (i = 0; i < sizeof(m->digest); i++)
        snprintf(hex + 2 * i, 3, "%02x", m->digest[i]);
    o = json_pack("{s:i, s:s, s:O?}", "format", FDB_FORMAT, "fdbench", ver_text(),
        "daemon", r->daemon);
    json_object_update(o, r->head);
    json_object_update_new(o,
        json_pack("{s:{s:o, s:s, s:I, s:I}, s:o, s:O, s:o}", "model", "name",
            fct_json_text(m->name, strnlen(m->name, sizeof(m->name))), "digest", hex,
            "vocab", (json_int_t)m->vocab, "max_model_len", (json_int_t)m->max_model_len,
            "config", cfg_json(&r->cfg), "repeats", r->repeats, "across_repeats", across));
    if (r->steps != NULL)
        json_object_set_new(o, "search",
            json_pack("{s:s, s:o, s:o, s:O}", "unit", fdb_load_unit(&r->cfg), "found",
                r->found > 0 ? json_real(r->found) : json_null(), "bound",
                r->bound > 0 ? json_real(r->bound) : json_null(), "steps", r->steps));
    return o;
}

/* ---- text --------------------------------------------------------------------- */

static void
text_errors(FILE *out, const json_t *repeats)
{
    const char *name;
    const json_t *one, *n;
    char who[40] = "";
    size_t i;

    json_array_foreach(repeats, i, one) {
        if (json_array_size(repeats) > 1)
            snprintf(who, sizeof(who), "repeat %zu: ", i + 1);
        json_object_foreach(json_object_get(one, "errors"), name, n)
            fprintf(out, "%s%lld failed with %s: %s\n", who,
                (long long)json_integer_value(n), name, fdc_strerror(fdb_code_of(name)));
        fprintf(out, "%s%lld preemptions\n", who, fct_num(one, "preemptions"));
    }
}

/* One column for one repeat; median, minimum and maximum for several. */
static void
text_scalars(FILE *out, const json_t *across, int n_column)
{
    const struct fdb_metric *m;

    if (n_column > 1)
        fprintf(out, "%-42s %12s %12s %12s\n", "", "median", "min", "max");
    for (m = fdb_metrics; m->kind != FDB_DIST; m++) {
        if (isnan(fdb_figure(across, m->key, "median", NULL)))
            continue;
        fprintf(out, "%-42s", m->label);
        for (int k = 0; k < n_column; k++)
            fdb_cell(out, 12, fdb_figure(across, m->key, fdb_mmm[k], NULL));
        fprintf(out, "%s%s\n", m->unit[0] != '\0' ? " " : "", m->unit);
    }
}

static void
text_dists(FILE *out, const json_t *across, int n_column)
{
    const struct fdb_metric *m;
    char name[24];

    fprintf(out, "\n%-14s%s", "", n_column > 1 ? "       " : "");
    for (int i = 0; i < FDB_N_STAT; i++)
        fprintf(out, " %9s", fdb_stats[i]);
    for (m = &fdb_metrics[FDB_FIRST_DIST]; m < &fdb_metrics[FDB_N_METRIC]; m++)
        for (int k = 0; k < n_column; k++) {
            snprintf(name, sizeof(name), "%s %s", m->label, m->unit);
            fprintf(out, "\n%-14s", k == 0 ? name : "");
            if (n_column > 1)
                fprintf(out, " %-6s", fdb_mmm[k]);
            for (int i = 0; i < FDB_N_STAT; i++)
                fdb_cell(out, 9, fdb_figure(across, m->key, fdb_stats[i], fdb_mmm[k]));
        }
    fputc('\n', out);
}

static void
text_search(FILE *out, const json_t *report)
{
    static const char steps[] =
        "        load   TTFT p50   TTFT p99   TPOT p50   TPOT p99      tok/s tok/s/user  "
        "goodput/s attained  within\n"
        "[*search.steps|{load:12fig}"
        " {summary.ttft_ms.p50:10fig} {summary.ttft_ms.p99:10fig}"
        " {summary.tpot_ms.p50:10fig} {summary.tpot_ms.p99:10fig}"
        " {summary.output_tokens_per_s:10fig} {summary.output_tokens_per_s_per_user:10fig}"
        " {summary.goodput_per_s:10fig} {attainment/0.01:6.2} %"
        "  [within|yes][!within|[sent_in_time|no][!sent_in_time|not sent in time]]\n]"
        "[!search.found|no load tried was within the limits\n]"
        "[search.found|largest load within the limits: {search.found} {search.unit}"
        "[search.bound?|[!search.bound>search.found|, the most that can be tried]]\n]";

    fct_text(out, "\nsearch: " FDB_LIMITS, report);
    fprintf(out, " of %g %% of the requests\n",
        fdb_figure(report, "config", "limits", "attainment") * 100);
    fct_text(out, steps, report);
}

void
fdb_report_text(FILE *out, const json_t *report)
{
    const json_t *across = json_object_get(report, "across_repeats");
    const json_t *repeats = json_object_get(report, "repeats");
    int n_column = json_array_size(repeats) > 1 ? 3 : 1;

    fct_text(out,
        "{command}, model {model.name}, {host}, {time}\n{config.workload}\n"
        "[config.limits.ttft_ms+config.limits.tpot_ms+config.limits.itl_ms"
        "+config.limits.e2e_ms>0|limits: " FDB_LIMITS "\n]\n",
        report);
    if (json_array_size(repeats) > 0) {
        text_scalars(out, across, n_column);
        text_errors(out, repeats);
        text_dists(out, across, n_column);
    }
    if (json_object_get(report, "search") != NULL)
        text_search(out, report);
}

int
fdb_report_csv(FILE *out, const json_t *report, const void *of)
{
    const struct fdb_log *log = of;
    const struct fdb_chunk *c;
    const struct fdb_rec *q;

    (void)report;
    fputs("repeat,index,warm,conversation,turn,prompt_tokens,cached_tokens,output_tokens,"
          "max_new,code,status,finish,preempted,due_ns,send_ns,first_ns,end_ns,queue_ns,"
          "arrivals\r\n",
        out);
    for (q = log->rec; q < log->rec + log->n_rec; q++) {
        fprintf(out, "%u,%u,%u,%u,%u,%u,%u,%u,%u,%d,%s,%s,%u", q->repeat, q->index, q->warm,
            q->conversation, q->turn, q->n_prompt, q->n_cached, q->n_out, q->max_new,
            q->code, fdc_status_name(q->code), fdc_finish_name(q->finish), q->n_preempted);
        fprintf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",",
            q->t_due, q->t_send, q->t_first, q->t_end, q->queue_ns);
        c = log->chunk + q->chunk;
        for (uint32_t j = 0; j < q->n_chunk; j++)
            fprintf(out, "%s%" PRIu64 ":%u", j > 0 ? " " : "", c[j].t_ns, c[j].n_tok);
        fputs("\r\n", out);
    }
    return 0;
}

/* ---- files ---------------------------------------------------------------------- */

static int
is_stdout(const struct fdb_output *o)
{
    return o->path != NULL && strcmp(o->path, "-") == 0;
}

int
fdb_output_check(const struct fdb_output *o, size_t n, int *ret_quiet)
{
    const struct fdb_output *end = o + n, *a, *b;
    int is_new;
    FILE *f;

    for (a = o; a < end; a++) {
        if (is_stdout(a) && a->no_stdout)
            return fct_usage("--%s -: must be a file", a->option);
        for (b = o; a->path != NULL && b < a; b++)
            if (b->path != NULL && strcmp(b->path, a->path) == 0 &&
                strncmp(b->path, "/dev/", 5) != 0) /* devices may be named twice */
                return is_stdout(a)
                    ? fct_usage("--%s - and --%s -: one of them only", b->option, a->option)
                    : fct_usage("--%s and --%s: both name the file %s", b->option,
                          a->option, a->path);
        *ret_quiet |= is_stdout(a);
    }
    for (a = o; a < end; a++) {
        if (a->path == NULL || is_stdout(a))
            continue;
        is_new = access(a->path, F_OK) != 0;
        f = fopen(a->path, "a");
        if (f == NULL)
            return fct_fail(EX_IOERR, "%s: %s", a->path, strerror(errno));
        fclose(f);
        if (is_new)
            (void)unlink(a->path);
    }
    return 0;
}

int
fdb_output_write(const struct fdb_output *o, size_t n, const json_t *report, const void *log)
{
    int rc = 0, one;
    FILE *f;

    for (; n > 0; n--, o++) {
        if (o->path == NULL)
            continue;
        errno = 0;
        f = is_stdout(o) ? stdout : fopen(o->path, "w");
        one = f == NULL ? -errno : o->fn(f, report, log);
        if (one == 0 && (fflush(f) != 0 || ferror(f)))
            one = errno != 0 ? -errno : -EIO;
        if (f != NULL && f != stdout && fclose(f) != 0 && one == 0)
            one = -errno;
        if (one != 0)
            one = fct_fail(EX_IOERR, "%s: %s", o->path, strerror(-one));
        rc = rc == 0 ? one : rc;
    }
    return rc;
}

int
fdb_report_dump(FILE *out, const json_t *report, const void *log)
{
    (void)log;
    if (json_dumpf(report, out, JSON_INDENT(2)) != 0)
        return errno != 0 ? -errno : -ENOMEM;
    fputc('\n', out);
    return 0;
}
