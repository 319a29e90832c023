/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"

/* The worker takes so much longer than it is told to, at worst: the device may
 * have to be measured first. */
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

/* ---- rows: lines of the answer, or several of one kind or layer ------------------------- */

/* Lines put together: of several the sums, and how many as "n". New reference. */
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

/* "q_proj +2" of "model.layers.0.self_attn.q_proj.weight" and two more. */
static void
name_of(const json_t *weights, char *ret, size_t ret_bytes)
{
    const char *s = json_string_value(json_array_get(weights, 0)), *dot;
    size_t n = s != NULL ? strlen(s) : 0, more = json_array_size(weights);

    if (n > 7 && strcmp(s + n - 7, ".weight") == 0)
        n -= 7;
    dot = n > 0 ? memrchr(s, '.', n) : NULL;
    if (dot != NULL) {
        n -= (size_t)(dot + 1 - s);
        s = dot + 1;
    }
    snprintf(ret, ret_bytes, more > 1 ? "%.*s +%zu" : "%.*s", (int)n, s != NULL ? s : "",
        more - 1);
}

/* ---- printing -------------------------------------------------------------------------- */

#define HEADS "         us     min us   step     GB/s   GFLOP/s roofline us % roofline\n"
#define RATES \
    " {us:10.1} {min_us:10.1} {step:5.1}%[has_rates| {gb_s:8.1} {gflop_s:9.1}" \
    "[roofline_us| {roofline_us:11.1} {of_roofline:9.0}%]]\n"
#define GROUPS "[*rows|{left:-11} {n:5.0}" RATES "]"
#define OPS    "[*rows|{at:-4} {kind:-10} {on:5} {name:-15} {shape:10}" RATES "]"

/* What the templates want of a row and it does not have. */
static void
complete(json_t *row, enum by by, double step_us)
{
    long long N = fct_num(row, "N"), K = fct_num(row, "K");
    double us = fct_real(row, "us"), per_us = us > 0 ? 1 / us : 0;
    char at[24] = "-", on[24] = "-", name[20], shape[48] = "", left[12];

    name_of(json_object_get(row, "weights"), name, sizeof(name));
    snprintf(shape, sizeof(shape), K > 0 ? "%lld x %lld" : N > 0 ? "%lld" : "", N, K);
    if (fct_num(row, "index") >= 0)
        snprintf(at, sizeof(at), "%lld", fct_num(row, "index"));
    if (fct_num(row, "layer") >= 0)
        snprintf(on, sizeof(on), "%lld", fct_num(row, "layer"));
    snprintf(left, sizeof(left), "%s",
        by == BY_KIND      ? fct_str(row, "kind")
            : on[0] != '-' ? on
                           : "none");
    name[15] = '\0';
    json_object_update_new(row,
        json_pack("{s:s, s:s, s:o, s:s, s:s, s:f, s:b, s:f, s:f, s:f}", "at", at, "on",
            on, "name", fct_json_text(name, strlen(name)), "shape", shape, "left", left,
            "step", step_us > 0 ? 100 * us / step_us : 0.0, "has_rates",
            us > 0 && (fct_real(row, "bytes") > 0 || fct_real(row, "flops") > 0), "gb_s",
            fct_real(row, "bytes") * per_us * 1e-3, "gflop_s",
            fct_real(row, "flops") * per_us * 1e-3, "of_roofline",
            100 * fct_real(row, "roofline_us") * per_us));
}

/* Above and below the table: what was measured, the device's peak, the sums. */
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
    "[of_usual|roofline bound {roofline_us:10.1} us  {of_usual:.1} % of the step as usual\n]" \
    "[of_measured|roofline bound {roofline_us:10.1} us  {of_measured:.1} % of the step " \
    "measured\n]" \
    "[ranks|\nrank  device        computes us  exchanges us (waits for others, and " \
    "transfers)\n" \
    "[*ranks|{rank:4}  {device:-12} {compute_us:12.1} {exchange_us:13.1}\n]" \
    "transfer that nothing hides {exposed_us:.1} us, {exposed:.1} % of the step; " \
    "imbalance of what ranks compute {imbalanced:.1} %\n]"

/* What the texts want and the answer does not have. */
static void
add_members(json_t *o)
{
    double usual = fct_real(json_object_get(o, "unprofiled"), "us");
    double measured = fct_real(json_object_get(o, "profiled"), "us");
    json_t *peak = json_object_get(o, "measured_peak"), *list = json_array(), *v;
    const char *type;

    json_object_foreach(json_object_get(peak, "flops_per_s"), type, v)
        json_array_append_new(list, json_pack("{s:s, s:O}", "type", type, "per_s", v));
    json_object_set_new(peak, "flops", list);
    if (fct_real(o, "roofline_us") > 0)
        json_object_set_new(o, usual > 0 ? "of_usual" : "of_measured",
            json_real(100 * fct_real(o, "roofline_us") / (usual > 0 ? usual : measured)));
    json_object_set_new(o, "exposed",
        json_real(measured > 0 ? 100 * fct_real(o, "exposed_us") / measured : 0));
    json_object_set_new(o, "imbalanced", json_real(100 * fct_real(o, "imbalance")));
}

/* The slowest most of the rows, or all in their order. */
static void
table(const json_t *answer, enum by by, int sorted, size_t most)
{
    json_t *rows = group(json_object_get(answer, "lines"), by), *row;
    json_t *o = json_pack("{s:o}", "rows", rows);
    size_t i;

    if (sorted)
        fct_sort(rows, slower, NULL);
    while (json_array_size(rows) > most)
        json_array_remove(rows, json_array_size(rows) - 1);
    if (sorted && by == BY_OP)
        printf("\nthe %zu slowest (--by op: all)\n", json_array_size(rows));
    json_array_foreach(rows, i, row)
        complete(row, by, fct_real(answer, "sum_us"));
    fct_text(stdout,
        by == BY_OP         ? "op   kind       layer name               N x K  " HEADS OPS
            : by == BY_KIND ? "kind        lines" HEADS GROUPS
                            : "layer       lines" HEADS GROUPS,
        o);
    json_decref(o);
}

static void
show(json_t *o, const void *args)
{
    enum by by = ((const struct args *)args)->by;

    add_members(o);
    fct_text(stdout, HEAD "\n", o);
    table(o, by == BY_DEFAULT ? BY_KIND : by, by == BY_DEFAULT || by == BY_KIND, SIZE_MAX);
    if (by == BY_DEFAULT)
        table(o, BY_OP, 1, N_SLOWEST);
    fct_text(stdout, SUMS, o);
}

/* ---- the command ------------------------------------------------------------------------ */

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

#define Q struct fct_plain
static const struct fct_opt opts[] = {
    { "group", 0, "", NULL, FCT_ASK(Q, ask, CNT_MAX_GROUPS - 1) },
    { "steps", 0, "", NULL, FCT_ASK(Q, ask, INT32_MAX) },
    { "within", 0, "SECONDS", "and wait for them no longer (10)",
        FCT_REAL(struct args, within_s, 0.001, WITHIN_MOST), .range = "0.001 to 600" },
    { "batch", 0, "", NULL, FCT_ASK(Q, ask, INT32_MAX) },
    { "context", 0, "", NULL, FCT_ASK(Q, ask, INT32_MAX) },
    { "prefill", 0, "", NULL, FCT_ASK(Q, ask, INT32_MAX) },
    { "by", 0, "WHAT", "op, kind or layer (kind, and the slowest ops)", FCT_FN(take_by) },
    { "measure", 0, NULL, NULL, FCT_ASK(Q, ask, 0) },
    FCT_OPT_JSON(Q, "the answer as JSON, with every operation"), FCT_OPT_HELP, FCT_OPT_END
};

static int
be_patient(struct fct *f, void *args)
{
    const struct args *a = args;
    double ms = (a->within_s > 0 ? a->within_s : WITHIN_S) * 1e3;

    json_object_set_new(a->q.ask, "within_ms", json_integer((json_int_t)ms));
    if (f->timeout_ms >= 0)
        f->timeout_ms = (int)ms + SLACK_MS;
    return FCT_GO;
}

const struct fct_line fct_line_profile = {
    .usage =
        "fdctl profile [--steps N] [--within SECONDS] [--by op|kind|layer] [--json]\n"
        "       fdctl profile --batch ROWS [--context TOKENS] [--prefill TOKENS] [...]",
    .about = "Time of every operation of the steps that run, or of a synthetic step on an "
             "idle\ndaemon, and what the device could do at best.",
    .opts = { opts },
    .command = "profile",
    .prefix = "profile: ",
    .hint = FCT_HINT_SEE,
    .args_bytes = sizeof(struct args),
    .before = be_patient,
    .show = show
};
