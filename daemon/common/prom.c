/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/prom.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/text.h"

/* The text is written metric by metric: all samples of one follow its head. */

struct prm {
    FILE *out;
    const struct cnt_seg *s;   /* the current group's element */
    const struct cnt_seg *all; /* and the array of all n groups */
    uint32_t n;
    const char *label; /* added to all samples, or "" */
    char group[24];    /* group="1"; empty if there is one group */
    char engine[24];   /* engine="1" */
    char model[1024];  /* model_name="..." */
    char head[160];    /* name of the metric begun last */
};

/* ---- labels and numbers ------------------------------------------------------------ */

/* A label's value is UTF-8 with \, " and line ends escaped; a name cut off within a
 * character gets U+FFFD. */
void
prm_escape(const char *text, char *ret, size_t ret_bytes)
{
    size_t n = strlen(text), at = 0, len;
    uint32_t cp;

    for (size_t i = 0; i < n && at + 4 < ret_bytes; i += len > 0 ? len : 1) {
        len = txt_char(text + i, n - i, &cp);
        if (len == 0)
            at += (size_t)snprintf(ret + at, ret_bytes - at, "\xef\xbf\xbd");
        else if (text[i] == '\n')
            at += (size_t)snprintf(ret + at, ret_bytes - at, "\\n");
        else
            at += (size_t)snprintf(ret + at, ret_bytes - at, "%s%.*s",
                text[i] == '\\' || text[i] == '"' ? "\\" : "", (int)len, text + i);
    }
    ret[at] = '\0';
}

static void
prm_double(double v, char *ret, size_t ret_bytes)
{
    if (v == floor(v) && fabs(v) < 9e15) {
        snprintf(ret, ret_bytes, "%.0f", v);
        return;
    }
    snprintf(ret, ret_bytes, "%.15g", v);
    if (strtod(ret, NULL) < v || strtod(ret, NULL) > v)
        snprintf(ret, ret_bytes, "%.17g", v);
}

/* Exact: a double would lose nanoseconds of large sums. */
static void
prm_ns(uint64_t ns, char *ret, size_t ret_bytes)
{
    size_t n;

    snprintf(ret, ret_bytes, "%llu.%09llu", (unsigned long long)(ns / 1000000000u),
        (unsigned long long)(ns % 1000000000u));
    for (n = strlen(ret); ret[n - 1] == '0'; n--)
        ret[n - 1] = '\0';
    if (ret[n - 1] == '.')
        ret[n - 1] = '\0';
}

/* A bound as other servers write it: "1.0", "0.025", "1e+06". */
static void
prm_bound(double v, char *ret, size_t ret_bytes)
{
    snprintf(ret, ret_bytes, "%g", v);
    if (strtod(ret, NULL) < v || strtod(ret, NULL) > v)
        snprintf(ret, ret_bytes, "%.12g", v);
    if (strpbrk(ret, ".e") == NULL)
        snprintf(ret + strlen(ret), ret_bytes - strlen(ret), ".0");
}

/* ---- metrics ----------------------------------------------------------------------- */

static void
prm_head(struct prm *p, const char *prefix, const char *name, const char *kind,
    const char *help)
{
    char full[sizeof(p->head)];

    snprintf(full, sizeof(full), "%s%s", prefix, name);
    if (strcmp(full, p->head) == 0)
        return;
    memcpy(p->head, full, sizeof(full));
    fprintf(p->out, "# HELP %s %s.\n# TYPE %s %s\n", full, help, full, kind);
}

/* Print one sample of the metric begun last; its labels are joined by commas. */
static void
prm_sample(struct prm *p, const char *suffix, const char *a, const char *b, const char *c,
    const char *value)
{
    const char *label[4] = { p->label, a, b, c };
    int n = 0;

    fprintf(p->out, "%s%s", p->head, suffix);
    for (int i = 0; i < 4; i++)
        if (label[i][0] != '\0')
            fprintf(p->out, "%c%s", n++ == 0 ? '{' : ',', label[i]);
    fprintf(p->out, "%s %s\n", n > 0 ? "}" : "", value);
}

/* Make group the current group. */
static void
prm_turn(struct prm *p, uint32_t group)
{
    p->s = &p->all[group];
    p->group[0] = '\0';
    if (p->n > 1)
        snprintf(p->group, sizeof(p->group), "group=\"%u\"", group);
    snprintf(p->engine, sizeof(p->engine), "engine=\"%u\"", group);
}

/* The label for the current group under the names of prefix. */
static const char *
prm_engine(const struct prm *p, const char *prefix)
{
    return strcmp(prefix, "vllm:") == 0 ? p->engine : p->group;
}

static void
prm_value(struct prm *p, const char *prefix, const char *name, const char *kind,
    const char *label, double v, const char *help)
{
    char text[64];

    prm_double(v, text, sizeof(text));
    prm_head(p, prefix, name, kind, help);
    prm_sample(p, "", prm_engine(p, prefix), p->model, label, text);
}

static int
prm_is_ns(const char *unit)
{
    return strcmp(unit, "ns") == 0;
}

/* Print a histogram with n bounds; bound NULL: with the bounds of row i. A bucket of
 * row i that ends above a bound counts into the next bound. */
static void
prm_one_hist(struct prm *p, const char *prefix, const char *name, enum cnt_hist_idx i,
    const double *bound, size_t n, const char *help)
{
    const struct cnt_hist_row *row = cnt_hist_row(i);
    const struct cnt_hist *h = &p->s->h[i];
    const char *engine = prm_engine(p, prefix);
    double scale = prm_is_ns(row->unit) ? 1e9 : 1, v;
    uint64_t sum = 0;
    char le[64], num[64], text[32];
    uint32_t b = 0;

    prm_head(p, prefix, name, "histogram", help);
    for (size_t k = 0; k < (bound != NULL ? n : row->n_bound); k++) {
        v = bound != NULL ? bound[k] : (double)row->bound[k] / scale;
        while (b < row->n_bound && (double)row->bound[b] <= v * scale + 0.5)
            sum += h->bucket[b++];
        prm_bound(v, num, sizeof(num) - 8);
        snprintf(le, sizeof(le), "le=\"%.40s\"", num);
        snprintf(text, sizeof(text), "%llu", (unsigned long long)sum);
        prm_sample(p, "_bucket", engine, p->model, le, text);
    }
    while (b <= row->n_bound)
        sum += h->bucket[b++];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)sum);
    prm_sample(p, "_bucket", engine, p->model, "le=\"+Inf\"", text);
    if (prm_is_ns(row->unit))
        prm_ns(h->sum, num, sizeof(num));
    else
        snprintf(num, sizeof(num), "%llu", (unsigned long long)h->sum);
    prm_sample(p, "_sum", engine, p->model, "", num);
    prm_sample(p, "_count", engine, p->model, "", text);
}

/* Histograms of the gate's loop belong to no group. */
static int
prm_is_loop(enum cnt_hist_idx i)
{
    return i == CNT_H_loop_ns || i == CNT_H_loop_wall_ns;
}

static void
prm_hist(struct prm *p, const char *prefix, const char *name, enum cnt_hist_idx i,
    const double *bound, size_t n, const char *help)
{
    for (uint32_t k = 0; k < (prm_is_loop(i) ? 1 : p->n); k++) {
        prm_turn(p, k);
        if (prm_is_loop(i))
            p->group[0] = '\0';
        prm_one_hist(p, prefix, name, i, bound, n, help);
    }
}

/* ---- names of other servers ------------------------------------------------------ */

#define VLN_BOUNDS(bounds, ...) static const double vln_##bounds[] = { __VA_ARGS__ };
#include "daemon/tbl/vllm_names.h"

static const struct {
    const char *name, *own, *help;
    enum cnt_hist_idx idx;
    const double *bound;
    size_t n_bound;
} vln_hist[] = {
#define VLN_HIST(name, own, hist, bounds, help) \
    { #name, own, help, CNT_H_##hist, vln_##bounds, \
        sizeof(vln_##bounds) / sizeof(vln_##bounds[0]) },
#include "daemon/tbl/vllm_names.h"
};
#define N_VLN_HIST (sizeof(vln_hist) / sizeof(vln_hist[0]))

static const struct {
    size_t offset;
    const char *name;
} vln_one[] = {
#define VLN_ONE(kind, name, label, field, help) \
    { offsetof(struct cnt_seg, field), "fdd_" #name },
#include "daemon/tbl/vllm_names.h"
};

/* The gate's counters are shown under group 0. */
static void
prm_vllm_values(struct prm *p, const char *prefix, int old)
{
#define VLN_EACH(kind, name, label, value, help) \
    for (uint32_t k = 0; k < p->n; k++) { \
        const struct cnt_seg *s = &p->all[k]; \
\
        prm_turn(p, k); \
        prm_value(p, prefix, #name, #kind, label, (double)(value), help); \
    }
#define VLN_ONE(kind, name, label, field, help) \
    VLN_EACH(kind, name, label, s->field, help)
#define VLN_VALUE(kind, name, label, value, help) VLN_EACH(kind, name, label, value, help)
#define VLN_OLD(kind, name, label, value, help) \
    if (old) \
    VLN_EACH(kind, name, label, value, help)
#include "daemon/tbl/vllm_names.h"
#undef VLN_EACH
}

static void
prm_cache_config(struct prm *p, const char *prefix)
{
    char label[96];

    for (uint32_t k = 0; k < p->n; k++) {
        prm_turn(p, k);
        snprintf(label, sizeof(label), "block_size=\"%llu\",num_gpu_blocks=\"%llu\"",
            (unsigned long long)p->s->w.kv_block_tokens,
            (unsigned long long)p->s->w.kv_blocks_total);
        prm_value(p, prefix, "cache_config_info", "gauge", label, 1,
            "Tokens of a KV block and how many blocks there are, as labels");
    }
}

static void
prm_shared_names(struct prm *p, unsigned names)
{
    if (names & PRM_NAMES_FDD) {
        prm_vllm_values(p, "fdd_", 0);
        prm_cache_config(p, "fdd_");
        for (size_t i = 0; i < N_VLN_HIST; i++)
            if (vln_hist[i].own[0] != '\0')
                prm_hist(p, "fdd_", vln_hist[i].own, vln_hist[i].idx, NULL, 0,
                    vln_hist[i].help);
    }
    if (names & PRM_NAMES_VLLM) {
        prm_vllm_values(p, "vllm:", 1);
        prm_cache_config(p, "vllm:");
        for (size_t i = 0; i < N_VLN_HIST; i++)
            prm_hist(p, "vllm:", vln_hist[i].name, vln_hist[i].idx, vln_hist[i].bound,
                vln_hist[i].n_bound, vln_hist[i].help);
    }
}

/* ---- our own names --------------------------------------------------------------- */

static const char *
prm_shared(const struct cnt_row *row)
{
    for (size_t i = 0; i < sizeof(vln_one) / sizeof(vln_one[0]); i++)
        if (vln_one[i].offset == row->offset)
            return vln_one[i].name;
    return NULL;
}

static int
prm_cut(char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    if (n <= k || strcmp(name + n - k, end) != 0)
        return 0;
    name[n - k] = '\0';
    return 1;
}

void
prm_name(const struct cnt_row *row, char *ret, size_t ret_bytes)
{
    const char *shared = prm_shared(row);
    char base[64];
    int ns, count;

    if (shared != NULL) {
        snprintf(ret, ret_bytes, "%s", shared);
        return;
    }
    snprintf(base, sizeof(base), "%s", row->name);
    (void)prm_cut(base, "_total");
    ns = prm_is_ns(row->unit) && prm_cut(base, "_ns");
    count = prm_cut(base, "_count");
    snprintf(ret, ret_bytes, "fdd_%s_%s%s%s%s%s", row->worker ? "worker" : "gate", base,
        ns ? "_seconds" : "", count ? "_" : "", count ? row->unit : "",
        row->kind == CNT_counter ? "_total" : "");
}

static void
prm_counter(struct prm *p, const struct cnt_row *r, uint32_t group)
{
    uint64_t v = cnt_get((const void *)((const char *)&p->all[group] + r->offset));
    char text[64];

    prm_turn(p, group);
    if (prm_is_ns(r->unit))
        prm_ns(v, text, sizeof(text));
    else
        snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
    prm_sample(p, "", r->worker ? p->group : "", r->worker ? p->model : "", "", text);
}

static void
prm_own(struct prm *p)
{
    char name[128];
    size_t k;

    for (size_t i = 0; i < cnt_count(); i++) {
        const struct cnt_row *r = cnt_row(i);

        if (prm_shared(r) != NULL)
            continue;
        prm_name(r, name, sizeof(name));
        prm_head(p, name, "", r->kind == CNT_counter ? "counter" : "gauge", r->help);
        for (k = 0; k < (r->worker ? p->n : 1); k++)
            prm_counter(p, r, (uint32_t)k);
    }
    for (size_t i = 0; i < CNT_H__N; i++) {
        const struct cnt_hist_row *r = cnt_hist_row(i);

        for (k = 0; k < N_VLN_HIST && (size_t)vln_hist[k].idx != i; k++)
            ;
        if (k < N_VLN_HIST)
            continue;
        snprintf(name, sizeof(name), "%s", r->name);
        if (prm_is_ns(r->unit) && prm_cut(name, "_ns"))
            strcat(name, "_seconds");
        prm_hist(p, "fdd_", name, (enum cnt_hist_idx)i, NULL, 0, r->help);
    }
}

/* ---- processes --------------------------------------------------------------------- */

#define PRC_N 6
static const struct {
    const char *name, *kind, *help;
} prc_rows[PRC_N] = {
    { "resident_memory_bytes", "gauge", "Resident memory of the process" },
    { "virtual_memory_bytes", "gauge", "Address space of the process" },
    { "cpu_seconds_total", "counter", "CPU time of the process, user and system" },
    { "threads", "gauge", "Threads of the process" },
    { "start_time_seconds", "gauge", "When the process started, since 1970" },
    { "open_fds", "gauge", "File descriptors of the process" },
};

static double
prc_boot_time(void)
{
    FILE *f = fopen("/proc/stat", "re");
    char line[256];
    unsigned long long t = 0;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL && t == 0)
        if (sscanf(line, "btime %llu", &t) != 1)
            t = 0;
    if (f != NULL)
        fclose(f);
    return (double)t;
}

/* Number of open descriptors. A process that may not read the folder (even the daemon's
 * own user may not) gets the folder's size as the kernel (6.2 and later) reports it, or
 * -1. */
static double
prc_fds(int32_t pid)
{
    char path[64];
    const struct dirent *e;
    struct stat st;
    double n = 0;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    d = opendir(path);
    if (d == NULL)
        return stat(path, &st) == 0 && st.st_size > 0 ? (double)st.st_size : -1;
    while ((e = readdir(d)) != NULL)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Values in the order of prc_rows; -1: not known. */
static void
prc_read(int32_t pid, double ret[PRC_N])
{
    unsigned long long user, sys, start, size;
    double tick = (double)sysconf(_SC_CLK_TCK);
    char path[64], text[2048] = "", *p;
    long n_thread, rss;
    FILE *f;

    for (int i = 0; i < PRC_N; i++)
        ret[i] = -1;
    if (pid <= 0)
        return;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    f = fopen(path, "re");
    if (f == NULL)
        return;
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    p = strrchr(text, ')'); /* a program's name may hold any bytes */
    if (p == NULL ||
        sscanf(p + 1,
            " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu "
            "%llu %*d %*d %*d %*d %ld %*d %llu %llu %ld",
            &user, &sys, &n_thread, &start, &size, &rss) != 6)
        return;
    ret[0] = (double)rss * (double)sysconf(_SC_PAGESIZE);
    ret[1] = (double)size;
    ret[2] = (double)(user + sys) / tick;
    ret[3] = (double)n_thread;
    ret[4] = prc_boot_time() + (double)start / tick;
    ret[5] = prc_fds(pid);
}

static void
prm_process(struct prm *p, int i, double v, const char *process)
{
    char text[64];

    if (v < 0)
        return;
    prm_head(p, "fdd_process_", prc_rows[i].name, prc_rows[i].kind, prc_rows[i].help);
    prm_double(v, text, sizeof(text));
    prm_sample(p, "", process, p->group, "", text);
}

static void
prm_processes(struct prm *p)
{
    double v[1 + CNT_MAX_GROUPS][PRC_N];

    prc_read(p->all->gate_pid, v[0]);
    for (uint32_t k = 0; k < p->n; k++)
        prc_read(p->all[k].worker_pid, v[1 + k]);
    for (int i = 0; i < PRC_N; i++) {
        p->group[0] = '\0';
        prm_process(p, i, v[0][i], "process=\"gate\"");
        for (uint32_t k = 0; k < p->n; k++) {
            prm_turn(p, k);
            prm_process(p, i, v[1 + k][i], "process=\"worker\"");
        }
    }
}

void
prm_print(FILE *out, const struct cnt_seg *s, unsigned names, const char *label)
{
    struct prm p = { .out = out, .s = s, .all = s, .label = label };
    char model[960], text[64];

    prm_head(&p, "fdd_", "up", "gauge", "1 while the daemon runs");
    prm_sample(&p, "", "", "", "", s != NULL ? "1" : "0");
    if (s == NULL)
        return;
    p.n = cnt_n_group(s);
    prm_escape(s->model, model, sizeof(model));
    snprintf(p.model, sizeof(p.model), "model_name=\"%s\"", model);
    prm_head(&p, "fdd_", "start_time_seconds", "gauge",
        "Start time of the daemon, Unix seconds");
    prm_ns(s->t_start_ns, text, sizeof(text));
    prm_sample(&p, "", "", "", "", text);
    prm_head(&p, "fdd_", "worker_generation", "gauge",
        "Number of the worker that runs, counted from the daemon's start");
    for (uint32_t k = 0; k < p.n; k++) {
        prm_turn(&p, k);
        snprintf(text, sizeof(text), "%llu", (unsigned long long)s[k].generation);
        prm_sample(&p, "", p.group, "", "", text);
    }
    prm_shared_names(&p, names);
    prm_own(&p);
    prm_processes(&p);
}
