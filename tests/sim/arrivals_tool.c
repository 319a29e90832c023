/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/sim/arrivals.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obj.h"

struct tool {
    struct par_set *ps;
    struct arr_cfg cfg;
    struct arr_load load;
    const char *trace, *policy;
    enum arr_kind kind;
    double rate;
    int32_t n, closed, n_in, n_out;
    uint64_t seed;
    int json;
};

static const char tool_help[] =
    "s_arrivals                    the tests\n"
    "s_arrivals --update           write their figures (tests/sim/arrivals.ref)\n"
    "s_arrivals OPTION...          one run\n"
    "  --trace FILE                time in s, prompt tokens, output tokens\n"
    "  --arrivals KIND             poisson (default), burst, long, tail, greedy\n"
    "  --rate R                    requests a second (8)\n"
    "  --n N                       requests (10000)\n"
    "  --closed C                  C at a time, with --in and --out tokens (1024, 512)\n"
    "  --seed S                    (1)\n"
    "  --policy P                  new (default): steps are picked when they are due;\n"
    "                              old: as soon as a slot is free, depth 2, no time target,\n"
    "                              in the order of arrival;\n"
    "                              nochunk: as new, prompts are not split\n"
    "  --target-ms T --max-tokens N --depth D --set NAME=VALUE\n"
    "  --device h200-8b|FILE --noise SHARE\n"
    "  --wrong X                   step times are learned X times too long\n"
    "  --ttft-ms T --itl-ms T      limits for goodput (200, 60)\n"
    "  --steps FILE                a line for each step\n"
    "  --requests FILE             a line for each request\n"
    "  --json\n";

enum {
    O_TRACE = 256,
    O_ARRIVALS,
    O_RATE,
    O_N,
    O_CLOSED,
    O_IN,
    O_OUT,
    O_SEED,
    O_POLICY,
    O_TARGET,
    O_TOKENS,
    O_DEPTH,
    O_SET,
    O_DEVICE,
    O_NOISE,
    O_WRONG,
    O_TTFT,
    O_ITL,
    O_STEPS,
    O_REQUESTS,
    O_JSON,
    O_LATE,
    O_HELP
};

static const struct option tool_options[] = { { "trace", 1, NULL, O_TRACE },
    { "arrivals", 1, NULL, O_ARRIVALS }, { "rate", 1, NULL, O_RATE },
    { "n", 1, NULL, O_N }, { "closed", 1, NULL, O_CLOSED }, { "in", 1, NULL, O_IN },
    { "out", 1, NULL, O_OUT }, { "seed", 1, NULL, O_SEED }, { "policy", 1, NULL, O_POLICY },
    { "target-ms", 1, NULL, O_TARGET }, { "max-tokens", 1, NULL, O_TOKENS },
    { "depth", 1, NULL, O_DEPTH }, { "set", 1, NULL, O_SET },
    { "device", 1, NULL, O_DEVICE }, { "noise", 1, NULL, O_NOISE },
    { "wrong", 1, NULL, O_WRONG }, { "ttft-ms", 1, NULL, O_TTFT },
    { "itl-ms", 1, NULL, O_ITL }, { "steps", 1, NULL, O_STEPS },
    { "requests", 1, NULL, O_REQUESTS }, { "json", 0, NULL, O_JSON },
    { "late", 0, NULL, O_LATE }, { "help", 0, NULL, O_HELP }, { NULL, 0, NULL, 0 } };

static int
tool_par(struct tool *t, const char *name, const char *value)
{
    char err[512];

    if (par_set_text(t->ps, name, value, PAR_FROM_SET, err, sizeof(err)) == 0)
        return 0;
    (void)fprintf(stderr, "%s\n", err);
    return -EINVAL;
}

static int
tool_set(struct tool *t, char *text)
{
    char *eq = strchr(text, '=');

    if (eq == NULL) {
        (void)fprintf(stderr, "--set %s: NAME=VALUE is wanted\n", text);
        return -EINVAL;
    }
    *eq = '\0';
    return tool_par(t, text, eq + 1);
}

static int
tool_policy(struct tool *t, const char *name)
{
    t->policy = name;
    if (strcmp(name, "new") == 0)
        return 0;
    if (strcmp(name, "nochunk") == 0)
        return tool_par(t, "sched.enable_chunked_prefill", "no");
    if (strcmp(name, "old") != 0) {
        (void)fprintf(stderr, "--policy %s: old, new or nochunk\n", name);
        return -EINVAL;
    }
    t->cfg.policy = ARR_EARLY;
    t->cfg.late = 1;
    return tool_par(t, "sched.itl_target_ms", "0") |
        tool_par(t, "device.overlap_depth", "2") | tool_par(t, "sched.policy", "fcfs");
}

static int
tool_kind(struct tool *t, const char *name)
{
    for (int i = 0; i < ARR_N_ARRIVALS; i++)
        if (strcmp(name, arr_kinds[i]) == 0) {
            t->kind = (enum arr_kind)i;
            return 0;
        }
    (void)fprintf(stderr, "--arrivals %s: not a kind\n", name);
    return -EINVAL;
}

static int
tool_device(struct tool *t, const char *name)
{
    char err[512];

    if (strcmp(name, "h200-8b") == 0)
        return 0;
    if (arr_dev_read(name, &t->cfg.dev, err, sizeof(err)) != 0) {
        (void)fprintf(stderr, "%s\n", err);
        return -EINVAL;
    }
    return 0;
}

static int
tool_option(struct tool *t, int o, char *a)
{
    switch (o) {
    case O_TRACE:
        t->trace = a;
        return 0;
    case O_ARRIVALS:
        return tool_kind(t, a);
    case O_RATE:
        t->rate = strtod(a, NULL);
        return t->rate > 0 ? 0 : -EINVAL;
    case O_N:
        t->n = (int32_t)strtol(a, NULL, 10);
        return t->n > 0 ? 0 : -EINVAL;
    case O_CLOSED:
        t->closed = (int32_t)strtol(a, NULL, 10);
        return t->closed > 0 ? 0 : -EINVAL;
    case O_IN:
        t->n_in = (int32_t)strtol(a, NULL, 10);
        return t->n_in > 0 ? 0 : -EINVAL;
    case O_OUT:
        t->n_out = (int32_t)strtol(a, NULL, 10);
        return t->n_out > 0 ? 0 : -EINVAL;
    case O_SEED:
        t->seed = strtoull(a, NULL, 10);
        return 0;
    case O_POLICY:
        return tool_policy(t, a);
    case O_TARGET:
        return tool_par(t, "sched.itl_target_ms", a);
    case O_TOKENS:
        return tool_par(t, "sched.max_num_batched_tokens", a);
    case O_DEPTH:
        return tool_par(t, "device.overlap_depth", a);
    case O_SET:
        return tool_set(t, a);
    case O_DEVICE:
        return tool_device(t, a);
    case O_NOISE:
        t->cfg.dev.noise = strtod(a, NULL);
        return 0;
    case O_WRONG:
        t->cfg.fault.wrong = strtod(a, NULL);
        return 0;
    case O_TTFT:
        t->cfg.ttft_ms = strtod(a, NULL);
        return 0;
    case O_ITL:
        t->cfg.itl_ms = strtod(a, NULL);
        return 0;
    case O_STEPS:
        t->cfg.steps = a;
        return 0;
    case O_REQUESTS:
        t->cfg.requests = a;
        return 0;
    case O_JSON:
        t->json = 1;
        return 0;
    case O_LATE:
        t->cfg.late = 1;
        return 0;
    default:
        return -EINVAL;
    }
}

static void
tool_table(const struct tool *t, const struct arr_sum *s)
{
    (void)printf("requests %d, policy %s, device %s\n", t->load.n, t->policy,
        t->cfg.dev.name);
    (void)printf("  output throughput   %10.1f tokens/s, %.1f s\n", s->tok_s, s->wall_s);
    (void)printf("  TTFT p50, p99, max  %10.2f %9.2f %9.2f ms\n", s->ttft.p50,
        s->ttft.p99, s->ttft.max);
    if (t->kind == ARR_LONG || t->kind == ARR_GREEDY)
        for (int k = 0; k < ARR_N_KIND; k++)
            (void)printf("    %-17s %10.2f %9.2f %9.2f ms\n",
                t->kind == ARR_LONG ? k ? "100k prompts" : "short"
                    : k             ? "greedy user"
                                    : "other user",
                s->kind_ttft[k].p50, s->kind_ttft[k].p99, s->kind_ttft[k].max);
    (void)printf("  TPOT p50, p99       %10.2f %9.2f ms\n", s->tpot.p50, s->tpot.p99);
    (void)printf("  ITL p50, p99, max   %10.2f %9.2f %9.2f ms\n", s->itl.p50, s->itl.p99,
        s->itl.max);
    (void)printf("  goodput             %10.2f requests/s (TTFT %g, ITL %g ms)\n",
        s->goodput, t->cfg.ttft_ms, t->cfg.itl_ms);
    (void)printf("  steps %llu, device busy %.1f %%, waits p50 %.1f p99 %.1f us, picked "
                 "ahead p50 %.2f p99 %.2f max %.2f ms, preempted %llu; %.2f s of CPU\n",
        (unsigned long long)s->n_step, s->busy * 100, s->gap.p50, s->gap.p99, s->ahead.p50,
        s->ahead.p99, s->ahead.max, (unsigned long long)s->n_preempted, s->cpu_s);
}

static void
tool_json(const struct tool *t, const struct arr_sum *s)
{
    (void)printf(
        "{\"requests\": %d, \"policy\": \"%s\", \"output_tokens_per_s\": %.3f, "
        "\"ttft_ms\": {\"p50\": %.4f, \"p99\": %.4f, \"max\": %.4f}, "
        "\"tpot_ms\": {\"p50\": %.4f, \"p99\": %.4f}, "
        "\"itl_ms\": {\"p50\": %.4f, \"p99\": %.4f, \"max\": %.4f}, \"goodput_per_s\": %.4f, "
        "\"kind_ttft_ms\": [{\"p50\": %.4f, \"p99\": %.4f}, {\"p50\": %.4f, \"p99\": %.4f}], "
        "\"steps\": %llu, \"busy\": %.4f}\n",
        s->n_ok, t->policy, s->tok_s, s->ttft.p50, s->ttft.p99, s->ttft.max, s->tpot.p50,
        s->tpot.p99, s->itl.p50, s->itl.p99, s->itl.max, s->goodput, s->kind_ttft[0].p50,
        s->kind_ttft[0].p99, s->kind_ttft[1].p50, s->kind_ttft[1].p99,
        (unsigned long long)s->n_step, s->busy);
}

static int
tool_load(struct tool *t)
{
    char err[512];

    if (t->closed > 0)
        t->load = arr_load_closed(t->closed, t->n, t->n_in, t->n_out);
    else if (t->trace == NULL)
        t->load = arr_load_make(t->kind, t->rate, t->n, t->seed);
    else if (arr_load_read(t->trace, &t->load, err, sizeof(err)) != 0) {
        (void)fprintf(stderr, "%s\n", err);
        return -EINVAL;
    }
    /* room for the long requests */
    if (t->kind == ARR_LONG && t->cfg.dev.max_len < 131072)
        t->cfg.dev.max_len = 131072;
    return 0;
}

int
arr_tool(int argc, char **argv)
{
    struct tool t = { .ps = par_new(),
        .rate = 8,
        .n = 10000,
        .n_in = 1024,
        .n_out = 512,
        .seed = 1,
        .policy = "new" };
    struct arr_sum sum;
    int o, rc = 0;

    ASSERT(t.ps != NULL);
    arr_dev_h200_8b(&t.cfg.dev);
    t.cfg.ttft_ms = 200;
    t.cfg.itl_ms = 60;
    while (rc == 0 && (o = getopt_long(argc, argv, "", tool_options, NULL)) != -1)
        rc = tool_option(&t, o, optarg);
    if (rc != 0 || optind != argc) {
        (void)fputs(tool_help, stderr);
    } else if ((rc = tool_load(&t)) == 0) {
        t.cfg.par = par_get(t.ps);
        t.cfg.seed = t.seed;
        arr_run(&t.cfg, &t.load, &sum);
        (t.json ? tool_json : tool_table)(&t, &sum);
        arr_load_fini(&t.load);
    }
    par_free(t.ps);
    return rc == 0 && optind == argc ? 0 : 2;
}
