/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/log_priv.h"
#include "daemon/common/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FORM_MARK " [cut]"
/* Bytes of a JSON line that are kept for the fields after the message. Fields have
 * short keys, and texts of at most FORM_FIELD_BYTES. */
#define FORM_TAIL        1600u
#define FORM_FIELD_BYTES 64u

struct form {
    char *p;
    size_t n, max;
    int cut;
};

/* Read by any thread and written by the thread that configures. */
static const char *form_prog = "fdd";
static int form_journal, form_is_json;

static const char *const form_levels[] = { "error", "warn", "info", "debug", "trace" };

const char *
log_lv_name(int lv)
{
    return form_levels[lv];
}

static void
form_put(struct form *o, const char *s, size_t n)
{
    if (o->cut || n > o->max - o->n) {
        o->cut = 1;
        return;
    }
    memcpy(o->p + o->n, s, n);
    o->n += n;
}

static void
form_str(struct form *o, const char *s)
{
    form_put(o, s, strlen(s));
}

static int
form_is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

/* Append text with control characters and invalid UTF-8 replaced: one line is one
 * event, and a terminal would obey control sequences. */
static void
form_text(struct form *o, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t len = txt_char(s + i, n - i, &c);

        if (len == 0)
            form_put(o, "?", 1);
        else if (form_is_control(c))
            form_put(o, c == '\n' ? " " : "?", 1);
        else
            form_put(o, s + i, len);
        i += len != 0 ? len : 1;
    }
}

size_t
log_clean(const char *s, size_t n, char *ret, size_t ret_bytes)
{
    struct form o = { ret, 0, ret_bytes, 0 };

    form_text(&o, s, n);
    return o.n;
}

static void
form_escaped(struct form *o, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t len = txt_char(s + i, n - i, &c);
        char esc[8];

        if (len == 0) {
            form_put(o, "\\ufffd", 6);
        } else if (c == '"' || c == '\\') {
            esc[0] = '\\';
            esc[1] = (char)c;
            form_put(o, esc, 2);
        } else if (c == '\n') {
            form_put(o, "\\n", 2);
        } else if (form_is_control(c)) {
            (void)snprintf(esc, sizeof(esc), "\\u%04x", (unsigned)c & 0xffffu);
            form_put(o, esc, 6);
        } else {
            form_put(o, s + i, len);
        }
        i += len != 0 ? len : 1;
    }
}

const char *
log_quote(const char *s, char *ret, size_t ret_bytes)
{
    struct form o = { ret, 0, ret_bytes - 2, 0 };

    form_put(&o, "\"", 1);
    form_escaped(&o, s, strlen(s));
    ret[o.n] = '"';
    ret[o.n + 1] = '\0';
    return ret;
}

/* Bytes of the message without an incomplete character at its cut end. */
static size_t
form_whole(const struct log_msg *m)
{
    size_t n = m->text_bytes;
    uint32_t c;

    for (size_t back = 1; m->cut && back <= 3 && back <= n; back++) {
        const unsigned char *p = (const unsigned char *)m->text + n - back;

        if ((*p & 0xc0) == 0x80)
            continue;
        return *p >= 0xc0 && txt_char(p, back, &c) == 0 ? n - back : n;
    }
    return n;
}

static void
form_number(struct form *o, const struct log_field *f)
{
    char b[48];

    if (f->kind == 'i')
        (void)snprintf(b, sizeof(b), "%lld", (long long)f->i);
    else
        (void)snprintf(b, sizeof(b), "%.3f", isfinite(f->f) ? f->f : 0.0);
    form_str(o, b);
}

static size_t
form_field_bytes(const char *s)
{
    return strnlen(s, FORM_FIELD_BYTES);
}

/* A word as it is, or quoted when it could be taken for something else. */
static void
form_word(struct form *o, const char *s)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789_.:/@+-";
    size_t n = form_field_bytes(s);

    if (n != 0 && strspn(s, plain) >= n) {
        form_put(o, s, n);
        return;
    }
    form_put(o, "\"", 1);
    form_escaped(o, s, n);
    form_put(o, "\"", 1);
}

static void
form_now(struct timespec *ret_ts, struct tm *ret_tm)
{
    (void)clock_gettime(CLOCK_REALTIME, ret_ts);
    (void)localtime_r(&ret_ts->tv_sec, ret_tm);
}

static void
form_prefix(struct form *o, const struct log_msg *m)
{
    static const int prio[] = { 3, 4, 6, 7, 7 };
    struct timespec ts;
    struct tm tm;
    char b[128];

    if (m->journal) {
        (void)snprintf(b, sizeof(b), "<%d>", prio[m->lv]);
    } else {
        form_now(&ts, &tm);
        (void)snprintf(b, sizeof(b), "%04d-%02d-%02d %02d:%02d:%02d.%03ld %c ",
            tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
            tm.tm_sec, ts.tv_nsec / 1000000, "EWIDT"[m->lv]);
    }
    form_str(o, b);
    form_str(o, m->prog);
    form_str(o, ": ");
}

static size_t
form_line_text(const struct log_msg *m, char *ret)
{
    struct form o = { ret, 0, LOG_LINE_BYTES - sizeof(FORM_MARK), 0 };

    form_prefix(&o, m);
    if (m->topic_bytes != 0) {
        form_text(&o, m->topic, m->topic_bytes);
        form_str(&o, ": ");
    }
    form_text(&o, m->text, form_whole(m));
    if (m->n_field != 0)
        form_str(&o, ":");
    for (size_t i = 0; i < m->n_field; i++) {
        form_str(&o, " ");
        form_str(&o, m->f[i].key);
        form_str(&o, " ");
        if (m->f[i].kind == 's')
            form_word(&o, m->f[i].s);
        else
            form_number(&o, &m->f[i]);
    }
    if (m->cut || o.cut) {
        memcpy(ret + o.n, FORM_MARK, sizeof(FORM_MARK) - 1);
        o.n += sizeof(FORM_MARK) - 1;
    }
    ret[o.n++] = '\n';
    return o.n;
}

static void
form_member(struct form *o, const char *key)
{
    form_str(o, o->n == 0 ? "{\"" : ",\"");
    form_str(o, key);
    form_str(o, "\":");
}

static void
form_string(struct form *o, const char *key, const char *s, size_t n)
{
    form_member(o, key);
    form_put(o, "\"", 1);
    form_escaped(o, s, n);
    form_put(o, "\"", 1);
}

static void
form_time(struct form *o)
{
    struct timespec ts;
    struct tm tm;
    char b[160];
    long off;
    int n;

    form_now(&ts, &tm);
    off = tm.tm_gmtoff / 60;
    n = snprintf(b, sizeof(b), "%04d-%02d-%02dT%02d:%02d:%02d.%03ld%c%02ld:%02ld",
        tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
        ts.tv_nsec / 1000000, off < 0 ? '-' : '+', labs(off) / 60, labs(off) % 60);
    form_string(o, "time", b, n > 0 ? (size_t)n : 0);
}

static size_t
form_line_json(const struct log_msg *m, char *ret)
{
    struct form o = { ret, 0, LOG_LINE_BYTES - FORM_TAIL, 0 };
    struct log_field pid = LOG_I("pid", getpid());
    const char *level = form_levels[m->lv];

    form_time(&o);
    form_string(&o, "level", level, strlen(level));
    form_string(&o, "prog", m->prog, strlen(m->prog));
    form_member(&o, "pid");
    form_number(&o, &pid);
    form_string(&o, "topic", m->topic, m->topic_bytes);
    form_member(&o, "msg");
    form_put(&o, "\"", 1);
    form_escaped(&o, m->text, form_whole(m));
    o.max = LOG_LINE_BYTES;
    if (m->cut || o.cut) {
        o.cut = 0;
        form_str(&o, FORM_MARK);
    }
    form_put(&o, "\"", 1);
    o.max = LOG_LINE_BYTES - 2;
    for (size_t i = 0; i < m->n_field; i++) {
        const struct log_field *f = &m->f[i];
        size_t before = o.n;

        if (f->kind == 's') {
            form_string(&o, f->key, f->s, form_field_bytes(f->s));
        } else {
            form_member(&o, f->key);
            form_number(&o, f);
        }
        if (o.cut) { /* keep the line a valid JSON object */
            o.n = before;
            break;
        }
    }
    o.p[o.n++] = '}';
    o.p[o.n++] = '\n';
    return o.n;
}

/* ---- a line ----------------------------------------------------------------------- */

void
log_form_as(const char *prog, int journal)
{
    form_prog = prog;
    form_journal = journal;
}

void
log_form_as_json(int json)
{
    __atomic_store_n(&form_is_json, json, __ATOMIC_RELAXED);
}

size_t
log_prefix_bytes(const char *fmt)
{
    return strspn(fmt, "abcdefghijklmnopqrstuvwxyz_0123456789");
}

size_t
log_form(struct log_msg *m, char *ret)
{
    size_t n = log_prefix_bytes(m->text);

    m->prog = form_prog;
    m->journal = form_journal;
    m->topic = m->text;
    if (n < m->text_bytes && m->text[n] == ':') {
        m->topic_bytes = n;
        n += 1 + (n + 1 < m->text_bytes && m->text[n + 1] == ' ');
        m->text += n;
        m->text_bytes -= n;
    }
    return __atomic_load_n(&form_is_json, __ATOMIC_RELAXED)
        ? form_line_json(m, ret)
        : form_line_text(m, ret);
}

size_t
log_lost_line(uint64_t n, char *ret)
{
    struct log_msg m = { .lv = LOG_LV_WARN };
    char text[128];

    m.text = text;
    m.text_bytes = (size_t)snprintf(text, sizeof(text),
        "log: %llu lines were lost "
        "because the reader of the log is slow",
        (unsigned long long)n);
    return log_form(&m, ret);
}
