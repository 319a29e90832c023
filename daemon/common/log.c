/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log_priv.h"

#define LOG_AS_DEFAULT (-1)
#define LOG_UNTOUCHED  (-2)

_Static_assert((int)LOG_LV_ERROR == (int)PAR_LOG_LEVEL_ERROR &&
        (int)LOG_LV_WARN == (int)PAR_LOG_LEVEL_WARN &&
        (int)LOG_LV_INFO == (int)PAR_LOG_LEVEL_INFO &&
        (int)LOG_LV_DEBUG == (int)PAR_LOG_LEVEL_DEBUG &&
        (int)LOG_LV_TRACE == (int)PAR_LOG_LEVEL_TRACE,
    "log_apply() takes one for the other");

int log_level = LOG_LV_INFO;
static int log_muted;
uint32_t log_debug_bits;

/* These are read by any thread and written by the thread that configures. */
static int log_default = LOG_LV_INFO;
static int log_topic_lv[LOG_T__N] = {
#define LOG_TOPIC(name, help) LOG_AS_DEFAULT,
#include "daemon/tbl/log_topics.h"
#undef LOG_TOPIC
};
static uint32_t log_per_second;

static const char *const log_topics[] = {
#define LOG_TOPIC(name, help) #name,
#include "daemon/tbl/log_topics.h"
#undef LOG_TOPIC
};
static const char *const log_bits[] = {
#define DBG_BIT(name, help) #name,
#include "daemon/tbl/debug_bits.h"
#undef DBG_BIT
};

void
log_fill_std(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            return;
}

/* Does the journal read our stderr? The child of a service may have inherited the
 * variable but write to a file. */
static int
log_is_journal(void)
{
    const char *v = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat st;

    return v != NULL && sscanf(v, "%llu:%llu", &dev, &ino) == 2 &&
        fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

void
log_init(const char *prog, const char *level)
{
    log_fill_std();
    log_form_as(prog, log_is_journal());
    if (level != NULL)
        (void)log_set_level(level);
}

/* ---- the writer ----------------------------------------------------------- */

static void
log_at_exit(void)
{
    (void)log_fini();
}

int
log_start(struct lgq *q)
{
    static int once;

    if (!once && atexit(log_at_exit) != 0)
        return -ENOMEM;
    once = 1;
    return log_out_start(q);
}

int
log_fini(void)
{
    log_flush(1);
    return log_out_fini();
}

/* ---- levels --------------------------------------------------------------- */

static int
log_find_level(const char *word, size_t n)
{
    for (int i = 0; i <= LOG_LV_TRACE; i++) {
        if (strlen(log_lv_name(i)) == n && memcmp(log_lv_name(i), word, n) == 0)
            return i;
    }
    return -1;
}

static int
log_find_topic(const char *word, size_t n)
{
    for (int i = 0; i < LOG_T__N; i++) {
        if (strlen(log_topics[i]) == n && memcmp(log_topics[i], word, n) == 0)
            return i;
    }
    return -1;
}

static int
log_topic_at(int topic)
{
    int lv = topic >= 0 ? __atomic_load_n(&log_topic_lv[topic], __ATOMIC_RELAXED)
                        : LOG_AS_DEFAULT;

    return lv >= 0 ? lv : __atomic_load_n(&log_default, __ATOMIC_RELAXED);
}

/* Recompute log_level, which the log macros compare with. */
static void
log_raise(void)
{
    int most = __atomic_load_n(&log_default, __ATOMIC_RELAXED);

    for (int i = 0; i < LOG_T__N; i++)
        most = log_topic_at(i) > most ? log_topic_at(i) : most;
    if (__atomic_load_n(&log_muted, __ATOMIC_RELAXED))
        most = LOG_LV_ERROR - 1;
    __atomic_store_n(&log_level, most, __ATOMIC_RELAXED);
}

int
log_set_level(const char *level)
{
    int lv = log_find_level(level, strlen(level));

    if (lv < 0)
        return -EINVAL;
    __atomic_store_n(&log_default, lv, __ATOMIC_RELAXED);
    log_raise();
    return 0;
}

const char *
log_level_name(void)
{
    return log_lv_name(__atomic_load_n(&log_default, __ATOMIC_RELAXED));
}

const char *
log_topic_level(int topic)
{
    return log_lv_name(log_topic_at(topic));
}

static int
log_refuse_topic(const char *word, size_t n, char *err, size_t err_bytes)
{
    int at = snprintf(err, err_bytes, "unknown log topic \"%.*s\"; the topics are",
        n < 60 ? (int)n : 60, word);

    for (int i = 0; i < LOG_T__N && at > 0 && (size_t)at < err_bytes; i++)
        at += snprintf(err + at, err_bytes - (size_t)at, "%s %s", i > 0 ? "," : "",
            log_topics[i]);
    return -EINVAL;
}

/* One "topic=level" of n bytes. */
static int
log_parse_level(const char *p, size_t n, int *lv, char *err, size_t err_bytes)
{
    const char *eq = memchr(p, '=', n);
    size_t n_topic = eq != NULL ? (size_t)(eq - p) : n;
    size_t n_level = eq != NULL ? n - n_topic - 1 : 0;
    int topic = log_find_topic(p, n_topic), level;

    if (topic < 0)
        return log_refuse_topic(p, n_topic, err, err_bytes);
    if (eq == NULL) {
        (void)snprintf(err, err_bytes, "log topic %s has no level; write %s=debug",
            log_topics[topic], log_topics[topic]);
        return -EINVAL;
    }
    if (n_level == 7 && memcmp(eq + 1, "default", 7) == 0) {
        lv[topic] = LOG_AS_DEFAULT;
        return 0;
    }
    level = log_find_level(eq + 1, n_level);
    if (level < 0) {
        (void)snprintf(err, err_bytes,
            "unknown level \"%.*s\" of log topic %s; the "
            "levels are error, warn, info, debug, trace, default",
            n_level < 60 ? (int)n_level : 60, eq + 1, log_topics[topic]);
        return -EINVAL;
    }
    lv[topic] = level;
    return 0;
}

/* Writes the levels of the listed topics only. */
static int
log_parse_levels(const char *list, int *lv, char *err, size_t err_bytes)
{
    for (const char *p = list; *p != '\0';) {
        size_t n = strcspn(p, ", \t");

        if (n > 0 && log_parse_level(p, n, lv, err, err_bytes) != 0)
            return -EINVAL;
        p += n;
        p += strspn(p, ", \t");
    }
    return 0;
}

static void
log_fill_levels(int *lv, int with)
{
    for (int i = 0; i < LOG_T__N; i++)
        lv[i] = with;
}

int
log_check_levels(const char *list, char *err, size_t err_bytes)
{
    int lv[LOG_T__N];

    log_fill_levels(lv, LOG_UNTOUCHED);
    return log_parse_levels(list, lv, err, err_bytes);
}

int
log_set_levels(const char *list, char *err, size_t err_bytes)
{
    int lv[LOG_T__N];

    log_fill_levels(lv, LOG_AS_DEFAULT);
    if (log_parse_levels(list, lv, err, err_bytes) != 0)
        return -EINVAL;
    for (int i = 0; i < LOG_T__N; i++)
        __atomic_store_n(&log_topic_lv[i], lv[i], __ATOMIC_RELAXED);
    log_raise();
    return 0;
}

int
log_merge_levels(const char *list, char *ret, size_t ret_bytes, char *err, size_t err_bytes)
{
    int lv[LOG_T__N];
    size_t at = 0;

    for (int i = 0; i < LOG_T__N; i++)
        lv[i] = __atomic_load_n(&log_topic_lv[i], __ATOMIC_RELAXED);
    if (log_parse_levels(list, lv, err, err_bytes) != 0)
        return -EINVAL;
    if (ret_bytes > 0)
        ret[0] = '\0';
    for (int i = 0; i < LOG_T__N && at < ret_bytes; i++) {
        int n = lv[i] < 0
            ? 0
            : snprintf(ret + at, ret_bytes - at, "%s%s=%s", at > 0 ? "," : "",
                  log_topics[i], log_lv_name(lv[i]));

        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

void
log_mute(int on)
{
    __atomic_store_n(&log_muted, on, __ATOMIC_RELAXED);
    log_raise();
}

int
log_apply(enum par_log_level level, const char *levels, enum par_log_format format,
    int64_t rate)
{
    char err[16];
    int rc = 0;

    __atomic_store_n(&log_default, (int)level, __ATOMIC_RELAXED);
    log_raise();
    if (log_set_levels(levels, err, sizeof(err)) != 0)
        rc = -EINVAL;
    log_form_as_json(format == PAR_LOG_FORMAT_JSON);
    if (rate < 0 || rate > INT32_MAX)
        rc = -EINVAL;
    else
        __atomic_store_n(&log_per_second, (uint32_t)rate, __ATOMIC_RELAXED);
    return rc;
}

/* ---- debug bits ----------------------------------------------------------- */

static int
log_bit(const char *word, size_t n)
{
    for (int i = 0; i < LOG_DBGI__N; i++) {
        if (strlen(log_bits[i]) == n && memcmp(log_bits[i], word, n) == 0)
            return i;
    }
    return -1;
}

int
log_set_debug(const char *list, char *err, size_t err_bytes)
{
    uint32_t bits = __atomic_load_n(&log_debug_bits, __ATOMIC_RELAXED);
    uint32_t plain = 0;
    int n_plain = 0, n_signed = 0;

    for (const char *p = list; *p != '\0';) {
        size_t n = strcspn(p, ", ");
        int sign = n > 0 && (*p == '+' || *p == '-') ? *p : 0;
        const char *word = p + (sign != 0);
        size_t len = n - (sign != 0);

        if (n > 0) {
            int i = log_bit(word, len);

            if (i < 0) {
                (void)snprintf(err, err_bytes, "%.*s", (int)len, word);
                return -EINVAL;
            }
            if (sign == '-')
                bits &= ~(1u << i);
            else if (sign == '+')
                bits |= 1u << i;
            else
                plain |= 1u << i;
            n_plain += sign == 0;
            n_signed += sign != 0;
        }
        p += n;
        p += strspn(p, ", ");
    }
    if (n_signed == 0)
        bits = plain;
    else if (n_plain != 0)
        bits |= plain;
    __atomic_store_n(&log_debug_bits, bits, __ATOMIC_RELAXED);
    return 0;
}

void
log_get_debug(char *ret, size_t ret_bytes)
{
    uint32_t bits = __atomic_load_n(&log_debug_bits, __ATOMIC_RELAXED);
    size_t at = 0;

    if (ret_bytes == 0)
        return;
    ret[0] = '\0';
    for (int i = 0; i < LOG_DBGI__N; i++) {
        int n;

        if (!(bits & (1u << i)))
            continue;
        n = snprintf(ret + at, ret_bytes - at, "%s%s", at > 0 ? "," : "", log_bits[i]);
        if (n < 0 || (size_t)n >= ret_bytes - at)
            return;
        at += (size_t)n;
    }
}

/* ---- lines ---------------------------------------------------------------- */

/* The call site's topic, or -1 for a prefix that the table does not have. */
static int
log_site_topic(struct log_site *s)
{
    int i = __atomic_load_n(&s->topic, __ATOMIC_RELAXED);
    size_t n;

    if (i > 0)
        return i - 1 < LOG_T__N ? i - 1 : -1;
    n = log_prefix_bytes(s->fmt);
    i = s->fmt[n] == ':' ? log_find_topic(s->fmt, n) : -1;
    __atomic_store_n(&s->topic, (i >= 0 ? i : LOG_T__N) + 1, __ATOMIC_RELAXED);
    return i;
}

static void
log_write(struct log_msg *m)
{
    char line[LOG_LINE_BYTES];

    log_put(line, log_form(m, line));
}

static void
log_summary(const struct log_site *s, uint32_t dropped)
{
    struct log_msg m = { .lv = s->lv };
    size_t n = log_prefix_bytes(s->fmt);
    char text[LOG_MSG_BYTES];
    int len;

    if (s->fmt[n] != ':')
        n = 0;
    len = snprintf(text, sizeof(text), "%.*s%s%u lines like this were not shown: %s",
        (int)n, s->fmt, n > 0 ? ": " : "", dropped, s->fmt + (n > 0 ? n + 2 : 0));
    m.text = text;
    m.text_bytes = (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1;
    log_write(&m);
}

void
log_flush(int all)
{
    struct log_site *s = NULL;
    uint64_t now;
    uint32_t n;

    if (!log_rate_any())
        return;
    now = clk_now_ns();
    while (log_rate_next(&s, now, all, &n) != NULL)
        log_summary(s, n);
}

/* Returns whether this call site may log now. */
static int
log_may(struct log_site *s)
{
    uint32_t dropped = 0;

    if (!(s->flags & LOG_F_ALWAYS) && log_topic_at(log_site_topic(s)) < s->lv)
        return 0;
    if (s->flags & LOG_F_UNLIMITED)
        return 1;
    if (!log_rate_take(s, clk_now_ns(),
            __atomic_load_n(&log_per_second, __ATOMIC_RELAXED), &dropped)) {
        log_count_one();
        return 0;
    }
    if (dropped != 0)
        log_summary(s, dropped);
    return 1;
}

void
log_at(struct log_site *site, const char *fmt, ...)
{
    struct log_msg m = { .lv = site->lv };
    char text[LOG_MSG_BYTES];
    int saved = errno;
    va_list ap;
    int n;

    if (log_may(site)) {
        va_start(ap, fmt);
        n = vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        m.text = text;
        m.text_bytes = n < 0 ? 0 : (size_t)n;
        m.cut = m.text_bytes >= sizeof(text);
        if (m.cut)
            m.text_bytes = sizeof(text) - 1;
        log_write(&m);
        log_flush(0);
    }
    errno = saved;
}

void
log_event(struct log_site *site, const struct log_field *f, size_t n_field)
{
    struct log_msg m = { .lv = site->lv, .f = f, .n_field = n_field };
    int saved = errno;

    if (log_may(site)) {
        m.text = site->fmt;
        m.text_bytes = strlen(site->fmt);
        log_write(&m);
        log_flush(0);
    }
    errno = saved;
}
