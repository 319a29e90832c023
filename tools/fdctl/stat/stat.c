/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/stat/stat.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include "tools/fdctl/commands.h"

void
stt_human(const char *unit, double v, char *ret, size_t ret_bytes)
{
    static const struct {
        double from;
        const char *unit;
    } steps[] = { { 3600e9, "h" }, { 60e9, "min" }, { 1e9, "s" }, { 1e6, "ms" },
        { 1e3, "us" }, { 0, "ns" } };
    size_t i = 0;

    if (strcmp(unit, "ns") != 0) {
        snprintf(ret, ret_bytes, v < 1e4 ? "%.4g" : "%.0f", v);
        return;
    }
    while (v < steps[i].from)
        i++;
    snprintf(ret, ret_bytes, "%.3g %s", steps[i].from > 0 ? v / steps[i].from : v,
        steps[i].unit);
}

/* ---- which rows -------------------------------------------------------------------- */

static const char *
row_name(size_t i)
{
    return i < cnt_count() ? cnt_row(i)->name : cnt_hist_row(i - cnt_count())->name;
}

static const char *
row_group(size_t i)
{
    return i >= cnt_count() ? "hist" : cnt_row(i)->worker ? "worker" : "gate";
}

int
stt_pick(const char *word, uint8_t pick[STT_N_ROW])
{
    const char *bare = strchr(word, '.');
    struct fct_near near = { .like = bare != NULL ? bare + 1 : word, .best = ~0u };
    char full[128];
    int n = 0;

    for (size_t i = 0; i < STT_N_ROW; i++) {
        snprintf(full, sizeof(full), "%s.%s", row_group(i), row_name(i));
        if (fnmatch(word, row_name(i), 0) != 0 && fnmatch(word, full, 0) != 0)
            continue;
        pick[i] = 1;
        n++;
    }
    if (n > 0)
        return 0;
    if (strpbrk(word, "*?[") != NULL)
        return fct_usage("stat: no counter matches '%s'; fdctl stat -1 lists all", word);
    for (size_t i = 0; i < STT_N_ROW; i++)
        fct_near(&near, row_name(i));
    return fct_usage(
        "stat: no counter is named '%s'; the nearest is '%s'; fdctl stat -1 lists all",
        word, near.name);
}

static uint64_t
value(const struct cnt_seg *s, const struct cnt_row *row)
{
    return cnt_get((const uint64_t *)(const void *)((const char *)s + row->offset));
}

static json_t *
numbers(const uint64_t *v, uint32_t n)
{
    json_t *list = json_array();

    for (; n > 0; n--)
        json_array_append_new(list, json_integer((json_int_t)*v++));
    return list;
}

static int
print_json(const struct cnt_seg *s, const uint8_t *pick)
{
    json_t *g = json_object(), *w = json_object(), *h = json_object();

    for (size_t i = 0; i < cnt_count(); i++)
        if (pick[i])
            json_object_set_new(cnt_row(i)->worker ? w : g, cnt_row(i)->name,
                json_integer((json_int_t)value(s, cnt_row(i))));
    for (size_t i = 0; i < CNT_H__N; i++) {
        const struct cnt_hist_row *row = cnt_hist_row(i);

        if (pick[cnt_count() + i])
            json_object_set_new(h, row->name,
                json_pack("{s:s, s:o, s:o, s:I, s:I}", "unit", row->unit, "bounds",
                    numbers(row->bound, row->n_bound), "counts",
                    numbers(s->h[i].bucket, row->n_bound + 1), "count",
                    (json_int_t)cnt_hist_count(row, s->h[i].bucket), "sum",
                    (json_int_t)s->h[i].sum));
    }
    return fct_print_json(json_pack("{s:I, s:i, s:i, s:I, s:o, s:o, s:o, s:o}",
        "t_start_ns", (json_int_t)s->t_start_ns, "gate_pid", s->gate_pid, "worker_pid",
        s->worker_pid, "generation", (json_int_t)s->generation, "model",
        fct_json_text(s->model, strlen(s->model)), "gate", g, "worker", w, "histograms", h));
}

/* ---- text -------------------------------------------------------------------------- */

struct stat_args {
    double interval; /* 0: not given */
    const char *textfile;
    unsigned names; /* 0: not given */
    int json, once, prom;
    uint32_t group;
    uint8_t pick[STT_N_ROW]; /* 0: not given */
    /* the samples: now, and before, taken secs earlier; secs 0: no before, no rates */
    struct cnt_seg now, before;
    double secs;
};

static void
print_counters(const struct stat_args *a)
{
    for (size_t i = 0; i < cnt_count(); i++) {
        const struct cnt_row *r = cnt_row(i);
        uint64_t n = value(&a->now, r), more = 0;
        char rate[32] = "";

        if (a->secs > 0 && r->kind == CNT_counter) {
            /* a restarted worker counts from 0 again */
            more = value(&a->before, r);
            more = n >= more ? n - more : n;
            if (more == 0)
                continue;
            snprintf(rate, sizeof(rate), "%.1f/s", (double)more / a->secs);
        }
        if (a->pick[i])
            printf("%-6s %-18s %16llu %12s %-9s %s\n", row_group(i), r->name,
                (unsigned long long)n, rate, r->unit, r->help);
    }
}

static void
print_hists(const struct stat_args *a)
{
    static const double qs[] = { 0.5, 0.9, 0.99 };
    struct cnt_hist h;

    for (size_t i = 0; i < CNT_H__N; i++) {
        const struct cnt_hist_row *r = cnt_hist_row(i);
        char rate[32] = "", mean[32] = "-", q[3][32];
        uint64_t n;

        h = a->now.h[i];
        for (size_t b = 0; b < CNT_MAX_BUCKET; b++)
            h.bucket[b] -= a->before.h[i].bucket[b];
        h.sum -= a->before.h[i].sum;
        n = cnt_hist_count(r, h.bucket);
        if (!a->pick[cnt_count() + i] || (a->secs > 0 && n == 0))
            continue;
        if (n > 0)
            stt_human(r->unit, (double)h.sum / (double)n, mean, sizeof(mean));
        if (a->secs > 0)
            snprintf(rate, sizeof(rate), "%.1f/s", (double)n / a->secs);
        for (size_t k = 0; k < 3; k++) {
            double at = cnt_hist_quantile(r, h.bucket, qs[k]);
            double last = (double)r->bound[r->n_bound - 1];

            snprintf(q[k], sizeof(q[k]), at < 0 ? "-" : at > last ? ">" : "");
            if (at >= 0)
                stt_human(r->unit, fmin(at, last), q[k] + strlen(q[k]), sizeof(q[k]) - 1);
        }
        printf("%-6s %-18s %16llu %12s mean %-8s p50 %-8s p90 %-8s p99 %-8s %s\n", "hist",
            r->name, (unsigned long long)cnt_hist_count(r, a->now.h[i].bucket), rate,
            mean, q[0], q[1], q[2], r->help);
    }
}

/* ---- a file that Prometheus's node exporter reads ------------------------------------ */

#define ASK_MS 5000 /* longest wait for the daemon's answer */

int
stt_textfile(const char *path, const struct cnt_seg *s, unsigned names)
{
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    FILE *out;
    char *tmp;
    int fd, e;

    if (base[0] == '\0')
        return fct_usage("stat: --textfile '%s': does not name a file", path);
    /* the collector reads only *.prom, so it ignores this name */
    if (asprintf(&tmp, "%.*s.%s.XXXXXX", (int)(base - path), path, base) < 0)
        return fct_oom();
    fd = mkostemp(tmp, O_CLOEXEC);
    out = fd >= 0 ? fdopen(fd, "w") : NULL;
    e = out == NULL ? errno : 0;
    if (out != NULL) {
        prm_print(out, s, names, "");
        e = fchmod(fd, 0644) != 0 || fflush(out) != 0 ? errno : ferror(out) ? EIO : 0;
        e = fclose(out) != 0 && e == 0 ? errno : e;
    } else if (fd >= 0) {
        close(fd);
    }
    if (e == 0 && rename(tmp, path) != 0)
        e = errno;
    if (e != 0 && fd >= 0)
        (void)unlink(tmp);
    free(tmp);
    if (e == 0)
        return 0;
    return fct_fail(e == EACCES || e == EPERM || e == EROFS ? EX_NOPERM : EX_IOERR,
        "stat: --textfile %s: %s", path, strerror(e));
}

/* Unmap the segment if its daemon has ended. */
static void
drop_ended(const struct cnt_seg **seg)
{
    if (*seg == NULL || fct_seg_alive(*seg))
        return;
    cnt_unlook(*seg);
    *seg = NULL;
}

static int
textfile_once(const struct fct *f, const struct stat_args *a, const struct cnt_seg **seg)
{
    struct cnt_seg *all = NULL;
    int rc = 0;

    /* Keep the segment while its daemon lives, which may be too busy to send another. */
    drop_ended(seg);
    if (*seg == NULL)
        rc = fct_seg_open(f, ASK_MS, seg);
    drop_ended(seg);
    if (rc == -EBUSY && !a->once)
        return 0; /* refused for now: the file stays as it is until the next time */
    if (rc != 0 && rc != -ENOENT && (rc = fct_seg_open(f, 0, seg)) != 0)
        return rc; /* message printed */
    if (*seg != NULL && (all = fct_seg_snap_each(*seg)) == NULL)
        return fct_oom();
    rc = stt_textfile(a->textfile, all, a->names);
    free(all);
    return rc;
}

/* Write the file once, or each interval until a signal, also while no daemon runs. */
static int
textfile_loop(const struct fct *f, const struct stat_args *a)
{
    const struct timespec nap = { .tv_sec = (time_t)a->interval,
        .tv_nsec = (long)((a->interval - floor(a->interval)) * 1e9) };
    const struct cnt_seg *seg = NULL;
    sigset_t set;
    int rc;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (!a->once)
        sigprocmask(SIG_BLOCK, &set, NULL);
    do
        rc = textfile_once(f, a, &seg);
    while (rc == 0 && !a->once && sigtimedwait(&set, NULL, &nap) <= 0);
    if (seg != NULL)
        cnt_unlook(seg);
    return rc;
}

/* ---- the command ------------------------------------------------------------------- */

static int
print(const struct stat_args *a)
{
    if (a->json)
        return print_json(&a->now, a->pick);
    if (a->secs > 0 && isatty(STDOUT_FILENO))
        fputs("\033[H\033[2J", stdout);
    print_counters(a);
    print_hists(a);
    if (a->secs > 0)
        putchar('\n');
    return fct_flush();
}

/* Print the counters once, or the changes in each interval. */
static int
watch(const struct cnt_seg *seg, struct stat_args *a)
{
    uint64_t t0 = clk_now_ns(), t1;
    int rc = fct_seg_snap_group(seg, a->group, &a->now);

    if (rc == 0 && a->once)
        return print(a);
    for (; rc == 0; t0 = t1) {
        clk_sleep_ns((uint64_t)(a->interval * 1e9));
        if (!fct_seg_alive(seg))
            return fct_unav("stat: the daemon, process %d, has ended; when "
                            "it runs again:\n  fdctl --wait 60 stat",
                (int)a->now.gate_pid);
        a->before = a->now;
        (void)fct_seg_snap_group(seg, a->group, &a->now);
        t1 = clk_now_ns();
        a->secs = (double)(t1 - t0) / 1e9;
        rc = print(a);
    }
    return rc;
}

static int
take_names(void *args, const char *value)
{
    unsigned *names = &((struct stat_args *)args)->names;

    *names = strcmp(value, "fdd") == 0 ? PRM_NAMES_FDD
        : strcmp(value, "vllm") == 0   ? PRM_NAMES_VLLM
        : strcmp(value, "both") == 0
        ? PRM_NAMES_FDD | PRM_NAMES_VLLM
        : 0;
    return *names != 0 ? 0
                       : fct_usage("stat: --names %s: must be fdd, vllm or both", value);
}

static int
take_word(void *args, const char *word)
{
    return stt_pick(word, ((struct stat_args *)args)->pick);
}

#define FCT_ARGS struct stat_args
static const struct fct_opt opts[] = { FCT_FLAG('1', "once", once, "print once and end"),
    FCT_REAL('i', "interval", "S", interval, 0.01, 86400,
        "seconds between two prints (1) or writes (15)", .range = "0.01 to 86400 seconds"),
    FCT_U32('g', "group", "N", group, 0, CNT_MAX_GROUPS - 1,
        "the worker of this group (the sum of all)"),
    FCT_FLAG(0, "json", json, "{\"gate\": {...}, \"worker\": {...}, \"histograms\": {...}}"),
    FCT_FLAG(0, "prometheus", prom, "once, in Prometheus' text format"),
    FCT_FN(0, "names", "fdd|vllm|both", take_names,
        "names of metrics that vLLM has too (fdd)"),
    FCT_TEXT(0, "textfile", "FILE", textfile,
        "write this format into FILE, for node_exporter"),
    FCT_OPT_HELP, FCT_OPT_END };

static const struct fct_line line =
    FCT_LINE("fdctl stat [-1] [-i S] [--group N] [--json] [NAME|GLOB ...]\n"
             "       fdctl stat --prometheus [--names fdd|vllm|both]\n"
             "       fdctl stat --textfile FILE [-1] [-i S] [--names fdd|vllm|both]",
        "Counters, read from shared memory. Root can read them even if the daemon does\n"
        "not answer.",
        opts, .operand = take_word);

/* Check for options that exclude each other. */
static int
check(const struct stat_args *a, int has_words)
{
    int is_prom = a->prom || a->textfile != NULL;
    const struct {
        int is_so;
        const char *text; /* format; %s is the option of Prometheus' format */
    } wrong[] = {
        { is_prom && a->json, "stat: --json and %s are two formats; name one" },
        { a->prom && a->textfile != NULL,
            "stat: --prometheus prints and --textfile writes a file; name one" },
        { is_prom && a->group != CNT_ALL_GROUPS,
            "stat: %s has every group, by its label; --group needs the text or --json" },
        { is_prom && has_words,
            "stat: %s has every metric; names of counters need the text or --json" },
        { a->names != 0 && !is_prom, "stat: --names needs --prometheus or --textfile" },
        { a->prom && a->interval > 0,
            "stat: --prometheus prints once; to repeat: --textfile FILE -i S" },
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (wrong[i].is_so)
            return fct_usage(wrong[i].text, a->prom ? "--prometheus" : "--textfile");
    return FCT_GO;
}

int
fct_cmd_stat(const struct fct *f, int argc, char **argv)
{
    struct stat_args a = { .group = CNT_ALL_GROUPS };
    struct cnt_seg *all = NULL;
    const struct cnt_seg *seg;
    int rc = fct_parse(&line, argc, argv, &a);
    int has_words = memchr(a.pick, 1, sizeof(a.pick)) != NULL;

    if (rc == FCT_GO)
        rc = check(&a, has_words);
    if (rc != FCT_GO)
        return rc;
    if (!has_words)
        memset(a.pick, 1, sizeof(a.pick));
    if (a.names == 0)
        a.names = PRM_NAMES_FDD;
    if (a.interval <= 0)
        a.interval = a.textfile != NULL ? 15 : 1;
    if (a.textfile != NULL)
        return textfile_loop(f, &a);
    if ((rc = fct_seg_open(f, 0, &seg)) != 0)
        return rc;
    if (!fct_seg_alive(seg))
        rc = fct_unav("stat: the daemon of %s, process %d, has ended", f->dir,
            (int)seg->gate_pid);
    else if (!a.prom)
        rc = watch(seg, &a);
    else if ((all = fct_seg_snap_each(seg)) == NULL)
        rc = fct_oom();
    else
        prm_print(stdout, all, a.names, "");
    free(all);
    cnt_unlook(seg);
    return rc;
}
