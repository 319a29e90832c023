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

/* A line, or several of one kind or layer. */
struct row {
    const char *kind;
    const json_t *weights;
    long long index, layer, N, K;
    int n;
    double us, min_us, bytes, flops, roofline_us;
};

/* ---- reading the answer ---------------------------------------------------------- */

static struct row
row_of(const json_t *l)
{
    return (struct row){ .kind = fct_str(l, "kind"),
        .weights = json_object_get(l, "weights"),
        .index = fct_num(l, "index"),
        .layer = fct_num(l, "layer"),
        .N = fct_num(l, "N"),
        .K = fct_num(l, "K"),
        .n = 1,
        .us = fct_real(l, "us"),
        .min_us = fct_real(l, "min_us"),
        .bytes = fct_real(l, "bytes"),
        .flops = fct_real(l, "flops"),
        .roofline_us = fct_real(l, "roofline_us") };
}

/* Lines put together; at most as many as there are lines. Returns how many. */
static size_t
group(const json_t *lines, enum by by, struct row *ret)
{
    size_t n = 0, k;

    for (size_t i = 0; i < json_array_size(lines); i++) {
        struct row r = row_of(json_array_get(lines, i));

        for (k = 0; k < n; k++)
            if (by == BY_KIND ? strcmp(ret[k].kind, r.kind) == 0
                              : by == BY_LAYER && ret[k].layer == r.layer)
                break;
        if (k == n) {
            ret[n++] = r;
            continue;
        }
        ret[k].n++;
        ret[k].us += r.us;
        ret[k].min_us += r.min_us;
        ret[k].bytes += r.bytes;
        ret[k].flops += r.flops;
        ret[k].roofline_us += r.roofline_us;
    }
    return n;
}

static int
slower(const void *x, const void *y)
{
    const struct row *a = x, *b = y;

    return a->us < b->us      ? 1
        : a->us > b->us       ? -1
        : a->index < b->index ? -1
                              : a->index > b->index;
}

/* ---- printing -------------------------------------------------------------------------- */

/* "q_proj +2" of "model.layers.0.self_attn.q_proj.weight" and two more. */
static void
name_of(const struct row *r, char *ret, size_t ret_bytes)
{
    const char *s = json_string_value(json_array_get(r->weights, 0)), *dot, *from;
    size_t n, more = json_array_size(r->weights);
    char plus[16] = "";

    ret[0] = '\0';
    if (s == NULL)
        return;
    n = strlen(s);
    if (n > 7 && strcmp(s + n - 7, ".weight") == 0)
        n -= 7;
    from = s;
    for (dot = s; dot < s + n; dot++)
        if (*dot == '.')
            from = dot + 1;
    if (more > 1)
        snprintf(plus, sizeof(plus), " +%zu", more - 1);
    snprintf(ret, ret_bytes, "%.*s%s", (int)(s + n - from), from, plus);
}

static void
print_rates(const struct row *r, double step_us)
{
    printf(" %10.1f %10.1f %5.1f%%", r->us, r->min_us,
        step_us > 0 ? 100 * r->us / step_us : 0);
    if (r->us <= 0 || (r->bytes <= 0 && r->flops <= 0)) {
        putchar('\n');
        return;
    }
    printf(" %8.1f %9.1f", r->bytes / r->us * 1e-3, r->flops / r->us * 1e-3);
    if (r->roofline_us > 0)
        printf(" %11.1f %9.0f%%", r->roofline_us, 100 * r->roofline_us / r->us);
    putchar('\n');
}

static void
print_head(const char *left, int width)
{
    printf("%-*s %10s %10s %6s %8s %9s %11s %10s\n", width, left, "us", "min us", "step",
        "GB/s", "GFLOP/s", "roofline us", "% roofline");
}

static void
print_groups(const struct row *rows, size_t n, enum by by, double step_us)
{
    char left[32];

    print_head(by == BY_KIND ? "kind        lines" : "layer       lines", 17);
    for (size_t i = 0; i < n; i++) {
        if (by == BY_KIND)
            snprintf(left, sizeof(left), "%-11.11s", rows[i].kind);
        else if (rows[i].layer < 0)
            snprintf(left, sizeof(left), "%-11s", "none");
        else
            snprintf(left, sizeof(left), "%-11lld", rows[i].layer);
        printf("%s %5d", left, rows[i].n);
        print_rates(&rows[i], step_us);
    }
}

static void
print_ops(const struct row *rows, size_t n, double step_us)
{
    char name[20], shape[24];

    print_head("op   kind       layer name               N x K", 48);
    for (size_t i = 0; i < n; i++) {
        const struct row *r = &rows[i];
        char index[16] = "-", layer[16] = "-";

        name_of(r, name, sizeof(name));
        shape[0] = '\0';
        if (r->K > 0)
            snprintf(shape, sizeof(shape), "%lld x %lld", r->N, r->K);
        else if (r->N > 0)
            snprintf(shape, sizeof(shape), "%lld", r->N);
        if (r->index >= 0)
            snprintf(index, sizeof(index), "%lld", r->index);
        if (r->layer >= 0)
            snprintf(layer, sizeof(layer), "%lld", r->layer);
        printf("%-4s %-10s %5s %-15.15s %10s", index, r->kind, layer, name, shape);
        print_rates(r, step_us);
    }
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
    "measured\n]"

/* What the texts want and the answer does not have. */
static void
add_members(json_t *o)
{
    double usual = fct_real(json_object_get(o, "unprofiled"), "us");
    double step = usual > 0 ? usual : fct_real(json_object_get(o, "profiled"), "us");
    json_t *peak = json_object_get(o, "measured_peak"), *list = json_array(), *v;
    const char *type;

    json_object_foreach(json_object_get(peak, "flops_per_s"), type, v)
        json_array_append_new(list, json_pack("{s:s, s:O}", "type", type, "per_s", v));
    json_object_set_new(peak, "flops", list);
    if (fct_real(o, "roofline_us") > 0)
        json_object_set_new(o, usual > 0 ? "of_usual" : "of_measured",
            json_real(100 * fct_real(o, "roofline_us") / step));
}

static void
show(json_t *o, const void *args)
{
    enum by by = ((const struct args *)args)->by;
    const json_t *lines = json_object_get(o, "lines");
    double step = fct_real(o, "sum_us");
    struct row *rows = calloc(json_array_size(lines) + 1, sizeof(*rows));
    size_t n;

    if (rows == NULL) {
        (void)fct_oom();
        return;
    }
    add_members(o);
    fct_text(stdout, HEAD "\n", o);
    if (by == BY_LAYER || by == BY_KIND || by == BY_DEFAULT) {
        n = group(lines, by == BY_DEFAULT ? BY_KIND : by, rows);
        if (by != BY_LAYER)
            qsort(rows, n, sizeof(*rows), slower);
        print_groups(rows, n, by == BY_LAYER ? BY_LAYER : BY_KIND, step);
    }
    if (by == BY_DEFAULT) {
        n = group(lines, BY_OP, rows);
        qsort(rows, n, sizeof(*rows), slower);
        n = n < N_SLOWEST ? n : N_SLOWEST;
        printf("\nthe %zu slowest (--by op: all)\n", n);
        print_ops(rows, n, step);
    } else if (by == BY_OP) {
        print_ops(rows, group(lines, BY_OP, rows), step);
    }
    fct_text(stdout, SUMS, o);
    free(rows);
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
