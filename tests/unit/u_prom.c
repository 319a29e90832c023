/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl stat: quantiles, choice of rows, text for Prometheus, the file. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/fdctl/stat/stat.h"

static char *text;
static size_t n_text;

static const char *
prom(const struct cnt_seg *s, unsigned names)
{
    FILE *f;

    free(text);
    text = NULL;
    f = open_memstream(&text, &n_text);
    assert_non_null(f);
    prm_print(f, s, names, "");
    assert_int_equal(fclose(f), 0);
    return text;
}

static int
count_of(const char *in, const char *what)
{
    int n = 0;

    for (; (in = strstr(in, what)) != NULL; in++)
        n++;
    return n;
}

#define HAS(line)     assert_int_equal(count_of(text, "\n" line "\n"), 1)
#define HAS_NOT(part) assert_null(strstr(text, part))

static struct cnt_seg seg;

static int
make(void **state)
{
    (void)state;
    memset(&seg, 0, sizeof(seg));
    snprintf(seg.model, sizeof(seg.model), "demo");
    seg.gate_pid = (int32_t)getpid();
    for (size_t i = 0; i < cnt_count(); i++)
        *(uint64_t *)(void *)((char *)&seg + cnt_row(i)->offset) = i + 1;
    return 0;
}

static int
drop(void **state)
{
    (void)state;
    free(text);
    text = NULL;
    return 0;
}

static void
quantiles_lie_within_their_range(void **state)
{
    const struct cnt_hist_row *r = cnt_hist_row(CNT_H_params_n); /* 1 2 5 10 20 */
    struct cnt_hist h = { .bucket = { 10, 10, 0, 20 } };

    (void)state;
    assert_int_equal(cnt_hist_count(r, h.bucket), 40);
    assert_true(fabs(cnt_hist_quantile(r, h.bucket, 0.125) - 0.5) < 1e-9);
    assert_true(fabs(cnt_hist_quantile(r, h.bucket, 0.25) - 1) < 1e-9);
    assert_true(fabs(cnt_hist_quantile(r, h.bucket, 0.5) - 2) < 1e-9);
    assert_true(fabs(cnt_hist_quantile(r, h.bucket, 0.75) - 7.5) < 1e-9);
    assert_true(fabs(cnt_hist_quantile(r, h.bucket, 1) - 10) < 1e-9);
    h.bucket[5] = 1; /* above the last bound */
    assert_true(isinf(cnt_hist_quantile(r, h.bucket, 1)));
    memset(&h, 0, sizeof(h));
    assert_true(cnt_hist_quantile(r, h.bucket, 0.5) < 0);
}

static void
times_read_well(void **state)
{
    static const struct {
        const char *unit;
        double v;
        const char *want;
    } rows[] = {
        { "ns", 0, "0 ns" },
        { "ns", 999, "999 ns" },
        { "ns", 1500, "1.5 us" },
        { "ns", 2.25e6, "2.25 ms" },
        { "ns", 1e9, "1 s" },
        { "ns", 90e9, "1.5 min" },
        { "ns", 7200e9, "2 h" },
        { "tokens", 17.5, "17.5" },
        { "tokens", 123456, "123456" },
    };
    char got[32];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stt_human(rows[i].unit, rows[i].v, got, sizeof(got));
        assert_string_equal(got, rows[i].want);
    }
}

static int
picked(const uint8_t *pick)
{
    int n = 0;

    for (size_t i = 0; i < STT_N_ROW; i++)
        n += pick[i];
    return n;
}

static void
words_name_rows(void **state)
{
    uint8_t pick[STT_N_ROW] = { 0 };

    (void)state;
    assert_int_equal(stt_pick("steps", pick), 0);
    assert_int_equal(picked(pick), 1);
    assert_int_equal(stt_pick("requests_running", pick), 0); /* one of the gate, one of
                                                              * the worker */
    assert_int_equal(picked(pick), 3);
    assert_int_equal(stt_pick("hist.*", pick), 0);
    assert_int_equal(picked(pick), 3 + CNT_H__N);
    assert_int_equal(stt_pick("*", pick), 0);
    assert_int_equal(picked(pick), (int)STT_N_ROW);
}

static void
unknown_word_names_the_nearest(void **state)
{
    uint8_t pick[STT_N_ROW] = { 0 };
    char said[512] = "";
    FILE *f = tmpfile();
    int saved = dup(STDERR_FILENO), a, b;

    (void)state;
    assert_non_null(f);
    fflush(stderr);
    dup2(fileno(f), STDERR_FILENO);
    a = stt_pick("worker.prempions", pick);
    b = stt_pick("zz*", pick);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_true(pread(fileno(f), said, sizeof(said) - 1, 0) > 0);
    fclose(f);
    assert_int_equal(a, EX_USAGE);
    assert_int_equal(b, EX_USAGE);
    assert_non_null(strstr(said, "'worker.prempions'; the nearest is 'preemptions'"));
    assert_non_null(strstr(said, "no counter matches 'zz*'"));
    assert_int_equal(picked(pick), 0);
}

static void
every_counter_appears_once_by_one_name(void **state)
{
    char name[128], other[128], line[300];

    (void)state;
    prom(&seg, PRM_NAMES_FDD);
    for (size_t i = 0; i < cnt_count(); i++) {
        const struct cnt_row *r = cnt_row(i);
        size_t n;

        prm_name(r, name, sizeof(name));
        n = strlen(name);
        snprintf(line, sizeof(line), "# TYPE %s %s\n", name,
            r->kind == CNT_counter ? "counter" : "gauge");
        assert_int_equal(count_of(text, line), 1);
        snprintf(line, sizeof(line), "# HELP %s ", name);
        assert_int_equal(count_of(text, line), 1);
        /* the linter's rules */
        assert_int_equal(n > 6 && strcmp(name + n - 6, "_total") == 0,
            r->kind == CNT_counter);
        assert_null(strchr(name, ':'));
        assert_null(strstr(name, "_ns"));
        assert_false(strcmp(name + n - 6, "_count") == 0);
        for (size_t k = 0; k < i; k++) {
            prm_name(cnt_row(k), other, sizeof(other));
            if (strcmp(name, other) == 0) /* one metric, distinguished by a label */
                assert_true(strstr(name, "request_success") != NULL ||
                    strstr(name, "by_source") != NULL);
        }
    }
    for (const char *p = text; *p != '\0'; p = strchr(p, '\n') + 1)
        assert_true(strncmp(p, "fdd_", 4) == 0 || strncmp(p, "# HELP fdd_", 11) == 0 ||
            strncmp(p, "# TYPE fdd_", 11) == 0);
}

static void
values_are_in_base_units(void **state)
{
    (void)state;
    seg.w.step_ns = 123000000456u;
    seg.g.uptime_ns = 5000000000u;
    seg.w.load_ns = 20;
    seg.w.tokenize_ns = UINT64_MAX;
    seg.w.kv_blocks_used = 1;
    seg.w.kv_blocks_total = 8;
    seg.w.prefix_lookups = 3;
    seg.w.kv_block_tokens = 16;
    seg.w.requests_waiting = 2;
    seg.g.requests_queued = 40;
    prom(&seg, PRM_NAMES_FDD);
    HAS("fdd_worker_step_seconds_total{model_name=\"demo\"} 123.000000456");
    HAS("fdd_gate_uptime_seconds 5");
    HAS("fdd_worker_load_seconds{model_name=\"demo\"} 0.00000002");
    HAS("fdd_worker_tokenize_seconds_total{model_name=\"demo\"} 18446744073.709551615");
    HAS("fdd_kv_cache_usage_perc{model_name=\"demo\"} 0.125");
    HAS("fdd_prefix_cache_queries_total{model_name=\"demo\"} 48");
    HAS("fdd_num_requests_waiting{model_name=\"demo\"} 42");
    HAS("fdd_cache_config_info{model_name=\"demo\",block_size=\"16\","
        "num_gpu_blocks=\"8\"} 1");
    seg.w.kv_blocks_total = 0; /* no division while a model loads */
    prom(&seg, PRM_NAMES_FDD);
    HAS("fdd_kv_cache_usage_perc{model_name=\"demo\"} 0");
}

static void
labels_are_escaped(void **state)
{
    struct cnt_seg copy;
    char *line;

    (void)state;
    snprintf(seg.model, sizeof(seg.model), "a\"b\\c\nd");
    seg.w.steps = 36;
    prom(&seg, PRM_NAMES_FDD);
    HAS("fdd_worker_steps_total{model_name=\"a\\\"b\\\\c\\nd\"} 36");
    memcpy(seg.model, "\xc3\xa4x\xe2\x82", 6); /* cut within a character */
    prom(&seg, PRM_NAMES_FDD);
    assert_non_null(strstr(text, "model_name=\"\xc3\xa4x\xef\xbf\xbd"));
    HAS_NOT("\xe2\x82");
    memset(seg.model, '"', sizeof(seg.model)); /* without a NUL */
    assert_int_equal(fct_seg_snap_group(&seg, CNT_ALL_GROUPS, &copy), 0);
    assert_int_equal(strlen(copy.model), sizeof(copy.model) - 1);
    prom(&copy, PRM_NAMES_FDD);
    line = strstr(text, "fdd_worker_steps_total{");
    assert_non_null(line);
    *strchr(line, '\n') = '\0';
    assert_int_equal(count_of(line, "\\\""), sizeof(copy.model) - 1);
}

static void
histograms_are_cumulative(void **state)
{
    (void)state;
    memset(seg.h, 0, sizeof(seg.h));
    cnt_see(seg.h, CNT_H_params_n, 1, 3);
    cnt_see(seg.h, CNT_H_params_n, 4, 2);
    cnt_see(seg.h, CNT_H_params_n, 100, 1);
    prom(&seg, PRM_NAMES_FDD);
    HAS("# TYPE fdd_request_params_n histogram");
    HAS("fdd_request_params_n_bucket{model_name=\"demo\",le=\"1.0\"} 3");
    HAS("fdd_request_params_n_bucket{model_name=\"demo\",le=\"2.0\"} 3");
    HAS("fdd_request_params_n_bucket{model_name=\"demo\",le=\"5.0\"} 5");
    HAS("fdd_request_params_n_bucket{model_name=\"demo\",le=\"20.0\"} 5");
    HAS("fdd_request_params_n_bucket{model_name=\"demo\",le=\"+Inf\"} 6");
    HAS("fdd_request_params_n_sum{model_name=\"demo\"} 111");
    HAS("fdd_request_params_n_count{model_name=\"demo\"} 6");
}

/* Finer buckets of fdd count for the next bound of vLLM's. */
static void
ranges_are_folded(void **state)
{
    (void)state;
    memset(seg.h, 0, sizeof(seg.h));
    cnt_see(seg.h, CNT_H_ttft, 60000, 1);   /* 60 us */
    cnt_see(seg.h, CNT_H_ttft, 1000000, 1); /* 1 ms: it is within the bound */
    cnt_see(seg.h, CNT_H_ttft, 1000001, 1);
    cnt_see(seg.h, CNT_H_ttft, 3000000000000u, 1);
    prom(&seg, PRM_NAMES_VLLM);
#define V "vllm:time_to_first_token_seconds"
#define L "engine=\"0\",model_name=\"demo\""
    HAS("# TYPE " V " histogram");
    HAS(V "_bucket{" L ",le=\"0.001\"} 2");
    HAS(V "_bucket{" L ",le=\"0.005\"} 3");
    HAS(V "_bucket{" L ",le=\"2560.0\"} 3");
    HAS(V "_bucket{" L ",le=\"+Inf\"} 4");
    HAS(V "_sum{" L "} 3000.002060001");
    HAS(V "_count{" L "} 4");
    assert_int_equal(count_of(text, V "_bucket{"), 22 + 1);
    HAS_NOT("fdd_time_to_first");
    HAS_NOT("le=\"5e-05\"} 0\n" V);
    HAS("# TYPE vllm:iteration_tokens_total histogram");
    HAS("# TYPE vllm:time_per_output_token_seconds histogram");
    HAS("# TYPE vllm:gpu_cache_usage_perc gauge");
    HAS("# TYPE fdd_step_seconds histogram");
    HAS("# TYPE fdd_gate_sessions gauge");
#undef V
#undef L
}

static double
bound_seconds(const struct cnt_hist_row *r, uint32_t b)
{
    return (double)r->bound[b] / (strcmp(r->unit, "ns") == 0 ? 1e9 : 1);
}

/* A bound that fdd does not have would show its counts under a lower bound. */
static void
bounds_of_vllm_are_ours(void **state)
{
#define VLN_ONE(kind, name, label, field, help)
#define VLN_VALUE(kind, name, label, value, help)
#define VLN_OLD(kind, name, label, value, help)
#define VLN_BOUNDS(bounds, ...) static const double b_##bounds[] = { __VA_ARGS__ };
#define VLN_HIST(name, own, hist, bounds, help)
#include "daemon/tbl/vllm_names.h"
#undef VLN_BOUNDS
#undef VLN_HIST
#define VLN_BOUNDS(bounds, ...)
#define VLN_HIST(name, own, hist, bounds, help) \
    for (size_t i = 0; i < sizeof(b_##bounds) / sizeof(b_##bounds[0]); i++) { \
        const struct cnt_hist_row *r = cnt_hist_row(CNT_H_##hist); \
        uint32_t b = 0; \
        while (b < r->n_bound && fabs(bound_seconds(r, b) - b_##bounds[i]) > 1e-12) \
            b++; \
        if (b == r->n_bound) \
            fail_msg("%s has no bound %g", #name, b_##bounds[i]); \
    }
    (void)state;
#include "daemon/tbl/vllm_names.h"
}

static void
both_names_agree(void **state)
{
    (void)state;
    seg.w.generation_tokens = 41;
    prom(&seg, PRM_NAMES_FDD | PRM_NAMES_VLLM);
    HAS("fdd_generation_tokens_total{model_name=\"demo\"} 41");
    HAS("vllm:generation_tokens_total{engine=\"0\",model_name=\"demo\"} 41");
    HAS("# TYPE vllm:request_success_total counter");
    assert_int_equal(count_of(text, "\nvllm:request_success_total{"), 4);
    assert_int_equal(count_of(text, "\nfdd_request_success_total{"), 4);
    assert_int_equal(count_of(text, "finished_reason=\"abort\"} "), 2);
}

static void
processes_are_told_apart(void **state)
{
    const char *rss = "\nfdd_process_resident_memory_bytes{process=\"gate\"} ";

    (void)state;
    seg.worker_pid = 0;
    prom(&seg, PRM_NAMES_FDD);
    HAS("# TYPE fdd_process_cpu_seconds_total counter");
    assert_int_equal(count_of(text, rss), 1);
    assert_int_equal(count_of(text, "\nfdd_process_open_fds{process=\"gate\"} "), 1);
    HAS_NOT("process=\"worker\"");
    assert_true(strtod(strstr(text, rss) + strlen(rss), NULL) > 65536);
    seg.worker_pid = seg.gate_pid;
    prom(&seg, PRM_NAMES_FDD);
    assert_int_equal(count_of(text, "# TYPE fdd_process_threads "), 1);
    assert_int_equal(count_of(text, "\nfdd_process_threads{"), 2);
}

static void
no_daemon_is_said(void **state)
{
    (void)state;
    prom(NULL, PRM_NAMES_FDD);
    assert_int_equal(count_of(text, "\n"), 3);
    HAS("fdd_up 0");
}

static void
file_appears_whole(void **state)
{
    char dir[] = "/tmp/fdd-prom.XXXXXX", path[64], bad[128];
    struct stat st;
    char got[64] = "";
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/fdd.prom", dir);
    umask(077);
    assert_int_equal(stt_textfile(path, NULL, PRM_NAMES_FDD), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(stt_textfile(path, &seg, PRM_NAMES_FDD), 0);
    f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(got, sizeof(got), f) != NULL && strcmp(got, "fdd_up 1\n") != 0)
        ;
    assert_string_equal(got, "fdd_up 1\n");
    fclose(f);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* a folder is in the way */
    assert_int_equal(stt_textfile(path, &seg, PRM_NAMES_FDD), EX_IOERR);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0); /* no file was left */
    assert_int_equal(stt_textfile(path, &seg, PRM_NAMES_FDD), EX_IOERR);
    snprintf(bad, sizeof(bad), "%s/", dir);
    assert_int_equal(stt_textfile(bad, &seg, PRM_NAMES_FDD), EX_USAGE);
}

/* Two groups: each has its own samples, the gate's metrics have no group, and the sums of
 * fdctl stat are over both. */
static void
t_groups(void **state)
{
    static struct cnt_seg two[2];
    struct cnt_seg sum;

    (void)state;
    two[0] = two[1] = seg;
    two[0].n_group = two[1].n_group = 2;
    two[1].g = (struct cnt_gate){ .loops = 7 };
    two[1].w.generation_tokens = 5;
    two[1].w.kv_block_tokens = two[0].w.kv_block_tokens;
    two[1].generation = 3;
    two[0].h[CNT_H_itl].sum = 1000000000;
    two[1].h[CNT_H_itl].sum = 500000000;
    two[1].h[CNT_H_loop_ns].sum = 9;
    (void)prom(two, PRM_NAMES_FDD | PRM_NAMES_VLLM);
    HAS("fdd_generation_tokens_total{group=\"1\",model_name=\"demo\"} 5");
    assert_int_equal(count_of(text, "\nfdd_generation_tokens_total{"), 2);
    HAS("vllm:generation_tokens_total{engine=\"1\",model_name=\"demo\"} 5");
    HAS("fdd_worker_generation{group=\"1\"} 3");
    HAS("fdd_inter_token_latency_seconds_sum{group=\"1\",model_name=\"demo\"} 0.5");
    assert_int_equal(count_of(text, "\nfdd_gate_loops_total "), 1);
    assert_int_equal(count_of(text, "\nfdd_loop_seconds_sum{"), 1);
    assert_int_equal(count_of(text, "# TYPE fdd_generation_tokens_total "), 1);
    assert_int_equal(cnt_of_group(two, CNT_ALL_GROUPS, &sum), 0);
    assert_int_equal(sum.w.generation_tokens, seg.w.generation_tokens + 5);
    assert_int_equal(sum.w.kv_block_tokens, seg.w.kv_block_tokens);
    assert_int_equal(sum.g.loops, seg.g.loops);
    assert_int_equal(sum.h[CNT_H_itl].sum, 1500000000);
    assert_int_equal(sum.h[CNT_H_loop_ns].sum, 0);
    assert_int_equal(cnt_of_group(two, 1, &sum), 0);
    assert_int_equal(sum.w.generation_tokens, 5);
    assert_int_equal(sum.g.loops, seg.g.loops);
    assert_int_equal(cnt_of_group(two, 2, &sum), -ENOENT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, make, drop)
        T(quantiles_lie_within_their_range),
        T(times_read_well),
        T(words_name_rows),
        T(unknown_word_names_the_nearest),
        T(every_counter_appears_once_by_one_name),
        T(values_are_in_base_units),
        T(labels_are_escaped),
        T(histograms_are_cumulative),
        T(ranges_are_folded),
        T(bounds_of_vllm_are_ours),
        T(both_names_agree),
        T(processes_are_told_apart),
        T(no_daemon_is_said),
        T(file_appears_whole),
        T(t_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
