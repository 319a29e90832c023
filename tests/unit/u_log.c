/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The log: levels of topics, both formats of a line with any content, and the rate limit
 * of a call site with one and with several threads. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/log_priv.h"

#define CAP_BYTES (1u << 20)

static int cap_fd = -1, cap_saved = -1;
static char cap_text[CAP_BYTES];

/* Captures the log from here on ... */
static void
cap_begin(void)
{
    cap_fd = memfd_create("log", MFD_CLOEXEC);
    cap_saved = dup(STDERR_FILENO);
    assert_true(cap_fd >= 0 && cap_saved >= 0);
    /* otherwise two threads could write at the same offset */
    assert_int_equal(fcntl(cap_fd, F_SETFL, O_APPEND), 0);
    assert_true(dup2(cap_fd, STDERR_FILENO) >= 0);
}

/* ... until here. Returns the number of lines. */
static int
cap_end(void)
{
    ssize_t n;
    int lines = 0;

    assert_true(dup2(cap_saved, STDERR_FILENO) >= 0);
    n = pread(cap_fd, cap_text, CAP_BYTES - 1, 0);
    assert_true(n >= 0 && n < CAP_BYTES - 1);
    (void)close(cap_fd);
    (void)close(cap_saved);
    cap_text[n] = '\0';
    for (ssize_t i = 0; i < n; i++)
        lines += cap_text[i] == '\n';
    return lines;
}

static int
setup(void **state)
{
    (void)state;
    (void)unsetenv("JOURNAL_STREAM");
    log_init("test", "info");
    return log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 0);
}

/* ---- levels --------------------------------------------------------------- */

static void
t_topic_levels(void **state)
{
    char err[512], list[256];

    (void)state;
    assert_int_equal(log_level, LOG_LV_INFO);
    assert_int_equal(log_set_levels("gate=debug, control=warn", err, sizeof(err)), 0);
    assert_int_equal(log_level, LOG_LV_DEBUG);
    assert_string_equal(log_level_name(), "info");
    assert_string_equal(log_topic_level(LOG_T_gate), "debug");
    assert_string_equal(log_topic_level(LOG_T_control), "warn");
    assert_string_equal(log_topic_level(LOG_T_relay), "info");
    cap_begin();
    log_debug("gate: one %d", 1);
    log_trace("gate: two");
    log_debug("relay: three");
    log_info("control: four");
    log_warn("control: five");
    log_info("relay: six");
    assert_int_equal(cap_end(), 3);
    assert_non_null(strstr(cap_text, " D test: gate: one 1\n"));
    assert_non_null(strstr(cap_text, " W test: control: five\n"));
    assert_non_null(strstr(cap_text, " I test: relay: six\n"));
    /* the default changes all other topics */
    assert_int_equal(log_set_level("error"), 0);
    assert_string_equal(log_topic_level(LOG_T_relay), "error");
    assert_string_equal(log_topic_level(LOG_T_gate), "debug");
    assert_int_equal(log_merge_levels("relay=trace,gate=default", list, sizeof(list), err,
                         sizeof(err)),
        0);
    assert_string_equal(list, "relay=trace,control=warn");
    assert_int_equal(log_level, LOG_LV_DEBUG); /* merged text only */
    assert_int_equal(log_set_levels(list, err, sizeof(err)), 0);
    assert_int_equal(log_level, LOG_LV_TRACE);
    assert_int_equal(log_set_levels("", err, sizeof(err)), 0);
    assert_int_equal(log_level, LOG_LV_ERROR);
}

static void
t_bad_levels(void **state)
{
    static const struct {
        const char *list, *say;
    } rows[] = {
        { "gat=debug", "unknown log topic \"gat\"; the topics are config, gate," },
        { "=debug", "unknown log topic \"\"" },
        { "gate=loud",
            "unknown level \"loud\" of log topic gate; the levels are "
            "error, warn," },
        { "gate=", "unknown level \"\" of log topic gate" },
        { "gate", "log topic gate has no level; write gate=debug" },
        { "relay=warn,gate:debug", "unknown log topic \"gate:debug\"" },
    };
    char err[512];

    (void)state;
    assert_int_equal(log_set_levels("memory=trace", err, sizeof(err)), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(log_set_levels(rows[i].list, err, sizeof(err)), -EINVAL);
        assert_non_null(strstr(err, rows[i].say));
        assert_int_equal(log_check_levels(rows[i].list, err, sizeof(err)), -EINVAL);
        assert_string_equal(log_topic_level(LOG_T_relay), "info");
        assert_string_equal(log_topic_level(LOG_T_memory), "trace");
    }
    /* after an error the other settings are still applied */
    assert_int_equal(log_apply(PAR_LOG_LEVEL_WARN, "gate=loud", PAR_LOG_FORMAT_TEXT, 7),
        -EINVAL);
    assert_string_equal(log_level_name(), "warn");
    assert_string_equal(log_topic_level(LOG_T_memory), "trace");
    assert_int_equal(log_apply(PAR_LOG_LEVEL_INFO, "gate=warn", PAR_LOG_FORMAT_TEXT, -1),
        -EINVAL);
    assert_string_equal(log_level_name(), "info");
    assert_string_equal(log_topic_level(LOG_T_gate), "warn");
}

/* ---- lines ---------------------------------------------------------------- */

static const char nasty[] =
    "a\"b\\c\nd\te\x01\x7f\xc2\x9b"
    "2J\xff"
    "\xc3(\xf0\x9f\x98\x80\xed\xa0\x80!";

static void
t_text_lines(void **state)
{
    struct stat st;
    char v[64];

    (void)state;
    cap_begin();
    log_info("gate: %s", nasty);
    assert_int_equal(cap_end(), 1);
    assert_non_null(strstr(cap_text,
        "I test: gate: a\"b\\c d?e??"
        "?2J?"
        "?("
        "\xf0\x9f\x98\x80?"
        "??"
        "!\n"));
    /* the journal's prefix only if the journal reads it */
    assert_int_equal(setenv("JOURNAL_STREAM", "1:1", 1), 0);
    cap_begin();
    log_init("test", NULL);
    log_warn("gate: x");
    assert_int_equal(fstat(STDERR_FILENO, &st), 0);
    (void)snprintf(v, sizeof(v), "%llu:%llu", (unsigned long long)st.st_dev,
        (unsigned long long)st.st_ino);
    (void)setenv("JOURNAL_STREAM", v, 1);
    log_init("test", NULL);
    log_warn("gate: y");
    (void)cap_end();
    assert_null(strstr(cap_text, "<4>test: gate: x"));
    assert_non_null(strstr(cap_text, "\n<4>test: gate: y\n"));
}

static json_t *
parse_line(const char *line)
{
    json_error_t je;
    json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, &je);

    if (o == NULL)
        print_error("%s: %s\n", je.text, line);
    assert_non_null(o);
    return o;
}

static const char *
text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    assert_non_null(s);
    return s;
}

static void
t_json_lines(void **state)
{
    const struct log_field f[] = { LOG_S("client", nasty), LOG_I("id", -5),
        LOG_R("total_ms", 1.5), LOG_S("empty", "") };
    int y, d;
    json_t *o;

    (void)state;
    assert_int_equal(log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_JSON, 0), 0);
    cap_begin();
    log_info("gate: %s", nasty);
    assert_int_equal(cap_end(), 1);
    o = parse_line(cap_text);
    assert_string_equal(text_of(o, "level"), "info");
    assert_string_equal(text_of(o, "prog"), "test");
    assert_string_equal(text_of(o, "topic"), "gate");
    assert_int_equal(json_integer_value(json_object_get(o, "pid")), getpid());
    assert_string_equal(text_of(o, "msg"),
        "a\"b\\c\nd\te\x01\x7f\xc2\x9b"
        "2J"
        "\xef\xbf\xbd"
        "\xef\xbf\xbd(\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!");
    assert_int_equal(sscanf(text_of(o, "time"),
                         "%4d-%*2d-%2dT%*2d:%*2d:%*2d.%*3d%*1[+-]"
                         "%*2d:%*2d",
                         &y, &d),
        2);
    assert_int_equal(strlen(text_of(o, "time")), strlen("2026-01-02T03:04:05.678+00:00"));
    json_decref(o);

    cap_begin();
    log_fields(LOG_LV_WARN, 0, "request: done", f, 4);
    assert_int_equal(cap_end(), 1);
    o = parse_line(cap_text);
    assert_string_equal(text_of(o, "topic"), "request");
    assert_string_equal(text_of(o, "msg"), "done");
    assert_int_equal(json_integer_value(json_object_get(o, "id")), -5);
    assert_true(json_real_value(json_object_get(o, "total_ms")) == 1.5);
    assert_string_equal(text_of(o, "empty"), "");
    json_decref(o);

    /* the same as text: values other than plain words are quoted */
    assert_int_equal(log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 0), 0);
    cap_begin();
    log_fields(LOG_LV_WARN, 0, "request: done", f + 1, 3);
    (void)cap_end();
    assert_non_null(strstr(cap_text,
        " W test: request: done: id -5 total_ms 1.500 "
        "empty \"\"\n"));
}

/* A long line is cut between characters, marked as cut, and stays one line; in JSON it
 * stays an object with all its fields. */
static void
t_long_lines(void **state)
{
    static const char *const pieces[] = { "x", "\xc3\xa9", "\x01", "\"", "\xff",
        "\xf0\x9f\x98\x80" };
    static char text[20000];
    struct log_field f[2] = { LOG_S("client", text), LOG_I("id", 1) };

    (void)state;
    for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++) {
        size_t len = strlen(pieces[k]);
        json_t *o;

        for (size_t shift = 0; shift < 4; shift++) {
            memset(text, 'a', shift);
            for (size_t i = shift; i + len < sizeof(text); i += len)
                memcpy(text + i, pieces[k], len + 1);
            assert_int_equal(log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 0), 0);
            cap_begin();
            log_info("gate: %s", text);
            assert_int_equal(cap_end(), 1);
            assert_true(strlen(cap_text) <= LOG_LINE_BYTES);
            assert_string_equal(cap_text + strlen(cap_text) - 7, " [cut]\n");
            assert_true(len == 1 || strstr(cap_text, "?") == NULL);
            assert_int_equal(log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_JSON, 0), 0);
            cap_begin();
            log_info("gate: %s", text);
            log_fields(LOG_LV_INFO, 0, "request: done", f, 2);
            assert_int_equal(cap_end(), 2);
            *strchr(cap_text, '\n') = '\0';
            assert_true(strlen(cap_text) < LOG_LINE_BYTES);
            o = parse_line(cap_text);
            assert_non_null(strstr(text_of(o, "msg"), " [cut]"));
            assert_true(k == 4 || strstr(text_of(o, "msg"), "\xef\xbf\xbd") == NULL);
            json_decref(o);
            o = parse_line(cap_text + strlen(cap_text) + 1);
            assert_int_equal(json_integer_value(json_object_get(o, "id")), 1);
            json_decref(o);
        }
    }
}

/* ---- rate ----------------------------------------------------------------- */

static void
t_rate_of_a_place(void **state)
{
    struct log_site s = { .fmt = "gate: x", .lv = LOG_LV_ERROR, .listed = 1 };
    uint64_t now = 100 * CLK_S + 5;
    uint32_t held = 9;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(log_rate_take(&s, now, 3, &held), 1);
    assert_int_equal(held, 0);
    for (int i = 0; i < 7; i++)
        assert_int_equal(log_rate_take(&s, now + (uint64_t)i * 100 * CLK_MS, 3, &held), 0);
    /* a thread that read its clock before the second began */
    assert_int_equal(log_rate_take(&s, now - CLK_S, 3, &held), 0);
    assert_int_equal(log_rate_take(&s, now + CLK_S, 3, &held), 1);
    assert_int_equal(held, 8);
    assert_int_equal(log_rate_take(&s, now + CLK_S, 3, &held), 1);
    assert_int_equal(held, 0);
    /* without a limit all lines are shown, and the held ones are reported */
    assert_int_equal(log_rate_take(&s, now + CLK_S, 2, &held), 0);
    assert_int_equal(log_rate_take(&s, now + CLK_S, 0, &held), 1);
    assert_int_equal(held, 1);
}

static void
flood(int n)
{
    for (int i = 0; i < n; i++)
        log_error("gate: flood number %d", i);
}

/* In whatever seconds lines fall: the lines shown and those in the summaries are all
 * lines, and the counter equals the summaries. */
static void
sum_of(const char *text, unsigned *ret_shown, unsigned *ret_told)
{
    *ret_shown = *ret_told = 0;
    while (*text != '\0') {
        const char *p = strstr(text, "gate: "), *end = strchr(text, '\n');
        unsigned n;

        assert_true(p != NULL && end != NULL && p < end);
        if (sscanf(p, "gate: %u lines like this were not shown: flood number %%d\n", &n) ==
            1)
            *ret_told += n;
        else
            (*ret_shown)++;
        text = end + 1;
    }
}

static void
t_summary(void **state)
{
    uint64_t dropped = 0;
    unsigned shown, told;

    (void)state;
    assert_int_equal(log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 5), 0);
    log_count(&dropped);
    cap_begin();
    flood(200);
    log_flush(1); /* as at the end of the process */
    (void)cap_end();
    log_count(NULL);
    sum_of(cap_text, &shown, &told);
    assert_int_equal(shown + told, 200);
    assert_int_equal(told, dropped);
    assert_true(shown >= 5 && shown <= 50);
    /* nothing is left */
    cap_begin();
    log_flush(1);
    assert_int_equal(cap_end(), 0);
}

#define FLOOD_THREADS 4
#define FLOOD_EACH    3000

static void *
flooder(void *arg)
{
    (void)arg;
    flood(FLOOD_EACH);
    return NULL;
}

static void
t_threads_lose_no_line(void **state)
{
    pthread_t th[FLOOD_THREADS];
    uint64_t dropped = 0;
    unsigned shown, told;

    (void)state;
    assert_int_equal(log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 20), 0);
    log_count(&dropped);
    cap_begin();
    for (int i = 0; i < FLOOD_THREADS; i++)
        assert_int_equal(pthread_create(&th[i], NULL, flooder, NULL), 0);
    /* levels may change at the same time */
    for (int i = 0; i < 100; i++)
        assert_int_equal(log_apply(PAR_LOG_LEVEL_INFO,
                             i % 2 ? "gate=error" : "relay=trace", PAR_LOG_FORMAT_TEXT, 20),
            0);
    for (int i = 0; i < FLOOD_THREADS; i++)
        assert_int_equal(pthread_join(th[i], NULL), 0);
    log_flush(1);
    (void)cap_end();
    log_count(NULL);
    sum_of(cap_text, &shown, &told);
    assert_int_equal(shown + told, FLOOD_THREADS * FLOOD_EACH);
    assert_int_equal(told, dropped);
}

static void
t_quoted_names(void **state)
{
    char b[16];

    (void)state;
    assert_string_equal(log_quote("plain", b, sizeof(b)), "\"plain\"");
    assert_string_equal(log_quote("", b, sizeof(b)), "\"\"");
    assert_string_equal(log_quote("a\"\\\x1b", b, sizeof(b)), "\"a\\\"\\\\\\u001b\"");
    assert_string_equal(log_quote("\xff\n", b, sizeof(b)), "\"\\ufffd\\n\"");
    assert_string_equal(log_quote("much longer than it", b, sizeof(b)), "\"much longer t\"");
    assert_string_equal(log_quote("twelve bytes\"", b, sizeof(b)), "\"twelve bytes\"");
    assert_string_equal(log_quote("x", b, 3), "\"\"");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(t_topic_levels, setup),
        cmocka_unit_test_setup(t_bad_levels, setup),
        cmocka_unit_test_setup(t_text_lines, setup),
        cmocka_unit_test_setup(t_quoted_names, setup),
        cmocka_unit_test_setup(t_json_lines, setup),
        cmocka_unit_test_setup(t_long_lines, setup),
        cmocka_unit_test_setup(t_rate_of_a_place, setup),
        cmocka_unit_test_setup(t_summary, setup),
        cmocka_unit_test_setup(t_threads_lose_no_line, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
