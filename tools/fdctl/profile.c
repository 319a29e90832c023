/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"

/* How much longer the worker may take than requested: it may measure the device first. */
#define SLACK_MS    70000
#define WITHIN_S    10
#define WITHIN_MOST 600
#define N_SLOWEST   12

enum by { BY_DEFAULT, BY_OP, BY_KIND, BY_LAYER };

struct args {
    struct fct_plain q;
    enum by by;
    double within_s; /* 0: not given */
};

/* Group lines: a group's row has their sums, and their number as "n". New reference. */
static json_t *
group(const json_t *lines, enum by by)
{
    static const char *const sums[] = { "n", "us", "min_us", "bytes", "flops",
        "roofline_us" };
    const char *key = by == BY_KIND ? "kind" : "layer";
    json_t *rows = json_array(), *line, *row;
    size_t i, k;

    json_array_foreach(lines, i, line) {
        json_object_set_new(line, "n", json_integer(1));
        for (k = 0; by != BY_OP && (row = json_array_get(rows, k)) != NULL; k++)
            if (json_equal(json_object_get(row, key), json_object_get(line, key)))
                break;
        if (by == BY_OP || row == NULL) {
            json_array_append_new(rows, json_copy(line));
            continue;
        }
        for (k = 0; k < sizeof(sums) / sizeof(sums[0]); k++)
            json_object_set_new(row, sums[k],
                json_real(fct_real(row, sums[k]) + fct_real(line, sums[k])));
    }
    return rows;
}

static int
slower(const void *x, const void *y, void *arg)
{
    const json_t *a = *(const json_t *const *)x, *b = *(const json_t *const *)y;
    double d = fct_real(b, "us") - fct_real(a, "us");
    long long i = fct_num(a, "index") - fct_num(b, "index");

    (void)arg;
    return d != 0 ? (d > 0) - (d < 0) : (i > 0) - (i < 0);
}

/* "q_proj +2" for "model.layers.0.self_attn.q_proj.weight" and two more. */
static void
name_of(const json_t *weights, char *ret, size_t ret_bytes)
{
    const char *s = json_string_value(json_array_get(weights, 0)), *dot;
    size_t n = s != NULL ? strlen(s) : 0, more = json_array_size(weights);

    n -= n > 7 && strcmp(s + n - 7, ".weight") == 0 ? 7 : 0;
    for (; n > 0 && (dot = memchr(s, '.', n)) != NULL; s = dot + 1)
        n -= (size_t)(dot + 1 - s);
    snprintf(ret, ret_bytes, more > 1 ? "%.*s +%zu" : "%.*s", (int)n, n > 0 ? s : "",
        more - 1);
}

#define HEADS "         us     min us   step     GB/s   GFLOP/s roofline us % roofline\n"
#define RATES \
    " {us:10.1} {min_us:10.1} {us*100/^sum_us:5.1}%[us>0|[bytes+flops>0| {bytes/us*1e-3:8.1} " \
    "{flops/us*1e-3:9.1}[roofline_us| {roofline_us:11.1} {roofline_us*100/us:9.0}%]]]\n"
#define KINDS  "[*rows|{kind:-11} {n:5.0}" RATES "]"
#define LAYERS "[*rows|[0>layer|none       ][!0>layer|{layer:-11}] {n:5.0}" RATES "]"
#define OPS \
    "[*rows|[0>index|-   ][!0>index|{index:-4}] {kind:-10} [0>layer|    -]" \
    "[!0>layer|{layer:5}] {name:-15} {shape:10}" RATES "]"

/* Texts above and below the table: the measurement, the device's peak, the sums. */
#define HEAD \
    "{profiled.steps} [mode=live|steps of running requests][!mode=live|synthetic steps], " \
    "operation by operation[truncated|; fewer than asked for: {truncated}]\n" \
    "a step: {profiled.tokens:.1} tokens, padded to {profiled.padded_tokens:.1}, in " \
    "{profiled.rows:.1} rows ({profiled.decode_rows:.1} decode), {profiled.context:.1} " \
    "tokens of context each\n" \
    "[!measured_peak|measured peak: not known for this backend\n]" \
    "[*measured_peak|measured peak: read {read_bytes_per_s/1e9:.1} GB/s" \
    "[*flops|, {type} {per_s/1e9:.1} GFLOP/s]; measured {measured_s:d}" \
    "[file|, kept in {file}]\n" \
    "[under_load|               too low: measured while requests ran, and not kept\n]]"
#define SUMS \
    "\nsum of lines   {sum_us:10.1} us  {sum_to_profiled/.01:.1} % of the step\n" \
    "step, measured {profiled.us:10.1} us  from the device's begin to its end, events " \
    "included\n" \
    "[!unprofiled.steps|step, as usual          -     no step came after the measured " \
    "ones\n]" \
    "[unprofiled.steps|step, as usual {unprofiled.us:10.1} us  {unprofiled.steps} steps, " \
    "{unprofiled.graph} from a graph, {unprofiled.tokens:.1} tokens; measured is " \
    "{profiled_to_unprofiled:.2} times that\n]" \
    "[roofline_us>0|roofline bound {roofline_us:10.1} us  [unprofiled.us>0|" \
    "{roofline_us*100/unprofiled.us:.1} % of the step as usual][!unprofiled.us>0|" \
    "{roofline_us*100/profiled.us:.1} % of the step measured]\n]" \
    "[ranks|\nrank  device        computes us  exchanges us (waits for others, and " \
    "transfers)\n" \
    "[*ranks|{rank:4}  {device:-12} {compute_us:12.1} {exchange_us:13.1}\n]" \
    "transfer that nothing hides {exposed_us:.1} us, {exposed_us*100/profiled.us:.1} % of the step; " \
    "imbalance of what ranks compute {imbalance*100:.1} %\n]"

/* Print the rows in their order, or sorted only the most slowest ones. */
static void
table(const json_t *answer, enum by by, int sorted, size_t most)
{
    json_t *rows = group(json_object_get(answer, "lines"), by), *row;
    json_t *o = json_pack("{s:o, s:O?}", "rows", rows, "sum_us",
        json_object_get(answer, "sum_us"));
    char name[16];
    size_t i;

    if (sorted)
        fct_sort(rows, slower, NULL);
    while (json_array_size(rows) > most)
        json_array_remove(rows, json_array_size(rows) - 1);
    if (sorted && by == BY_OP)
        printf("\nthe %zu slowest (--by op: all)\n", json_array_size(rows));
    /* the further members that the templates use */
    json_array_foreach(rows, i, row) {
        long long N = fct_num(row, "N"), K = fct_num(row, "K");

        name_of(json_object_get(row, "weights"), name, sizeof(name));
        json_object_update_new(row,
            json_pack("{s:o, s:o}", "name", fct_json_text(name, strlen(name)), "shape",
                json_sprintf(K > 0 ? "%lld x %lld"
                        : N > 0    ? "%lld"
                                   : "",
                    N, K)));
    }
    fct_text(stdout,
        by == BY_OP         ? "op   kind       layer name               N x K  " HEADS OPS
            : by == BY_KIND ? "kind        lines" HEADS KINDS
                            : "layer       lines" HEADS LAYERS,
        o);
    json_decref(o);
}

static void
show(json_t *o, const void *args)
{
    enum by by = ((const struct args *)args)->by;
    json_t *peak = json_object_get(o, "measured_peak"), *list = json_array(), *v;
    const char *type;

    /* a list of the peaks for the template */
    json_object_foreach(json_object_get(peak, "flops_per_s"), type, v)
        json_array_append_new(list, json_pack("{s:s, s:O}", "type", type, "per_s", v));
    json_object_set_new(peak, "flops", list);
    fct_text(stdout, HEAD "\n", o);
    table(o, by == BY_DEFAULT ? BY_KIND : by, by == BY_DEFAULT || by == BY_KIND, SIZE_MAX);
    if (by == BY_DEFAULT)
        table(o, BY_OP, 1, N_SLOWEST);
    fct_text(stdout, SUMS, o);
}

static int
take_by(void *args, const char *value)
{
    static const char *const names[] = { "", "op", "kind", "layer" };

    for (int i = BY_OP; i <= BY_LAYER; i++)
        if (strcmp(value, names[i]) == 0) {
            ((struct args *)args)->by = (enum by)i;
            return 0;
        }
    return fct_usage("profile: --by %s: must be op, kind or layer", value);
}

#define FCT_ARGS struct args
static const struct fct_opt opts[] = { FCT_ASK(0, "group", "", CNT_MAX_GROUPS - 1, NULL),
    FCT_ASK(0, "steps", "", INT32_MAX, NULL),
    FCT_REAL(0, "within", "SECONDS", within_s, 0.001, WITHIN_MOST,
        "and wait for them no longer (10)", .range = "0.001 to 600"),
    FCT_ASK(0, "batch", "", INT32_MAX, NULL), FCT_ASK(0, "context", "", INT32_MAX, NULL),
    FCT_ASK(0, "prefill", "", INT32_MAX, NULL),
    FCT_FN(0, "by", "WHAT", take_by, "op, kind or layer (kind, and the slowest ops)"),
    FCT_ASK(0, "measure", NULL, 0, NULL),
    FCT_FLAG(0, "json", q.json, "the answer as JSON, with every operation"), FCT_OPT_HELP,
    FCT_OPT_END };

static int
be_patient(struct fct *f, void *args)
{
    const struct args *a = args;
    double ms = (a->within_s > 0 ? a->within_s : WITHIN_S) * 1e3;

    json_object_set_new(a->q.ask, "within_ms", json_integer((json_int_t)ms));
    if (!f->timeout_given)
        f->timeout_ms = (int)ms + SLACK_MS;
    return FCT_GO;
}

const struct fct_line fct_line_profile =
    FCT_LINE("fdctl profile [--steps N] [--within SECONDS] [--by op|kind|layer] [--json]\n"
             "       fdctl profile --batch ROWS [--context TOKENS] [--prefill TOKENS] [...]",
        "Time of every operation of the steps that run, or of a synthetic step on an "
        "idle\ndaemon, and what the device could do at best.",
        opts, .command = "profile", .prefix = "profile: ", .hint = FCT_HINT_SEE,
        .args_bytes = sizeof(struct args), .before = be_patient, .show = show);
