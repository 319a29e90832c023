/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines to stderr: "topic: fact value value", lowercase, one line per call, written
 * whole and at most LOG_LINE_BYTES at a time, so that lines of several threads and
 * processes do not mix. Any thread; no allocation.
 *
 * Logging never blocks: after log_start() a line goes into a queue (log_queue.h:
 * lock-free, bounded in bytes) and one thread writes the queue to stderr, in order.
 * When the reader of stderr is slow and the queue is full, a line is dropped and
 * counted, and "log: N lines were lost" follows the lines that were queued before.
 * stderr is shared with other processes, so none of its flags is changed.
 *
 * Without the thread, the thread that logs writes the line itself: in programs that
 * never call log_start() (tools, tests), before log_start() and after log_fini(), and
 * in the child of a fork. log_fini(), which exit() calls too, waits at most 1 s for the
 * reader. Lines it has not taken by then are dropped, or shown by the gate if the queue
 * is in the link segment (SIGRTMAX interrupts the thread's write()). A panic (panic.h)
 * writes the queued lines, then its text, and gives up when stderr has no room for 0.1
 * s. The gate shows the lines that a killed process had queued (log_adopt).
 *
 * Text: time stamp, a level letter, the program's name; under systemd (JOURNAL_STREAM
 * names stderr) a "<3>" priority prefix instead. JSON: one object a line with time,
 * level, prog, pid, topic, msg and, for log_fields(), the fields. In both formats
 * logged text may be hostile: control characters and invalid UTF-8 are replaced; a line
 * that is too long is cut and marked.
 *
 * Levels by volume: error, warn, info per event of the daemon's life, debug per
 * request, trace per step. Each topic (tbl/log_topics.h) may have a level of its own; a
 * line below the highest of them costs one comparison. Text or token ids of a prompt or
 * an answer are never logged.
 *
 * Rate: each call site shows at most log.rate lines a second; a summary says afterwards
 * how many were not shown. One atomic word per call site decides; no thread waits for
 * another.
 */
#ifndef FDD_DAEMON_COMMON_LOG_H
#define FDD_DAEMON_COMMON_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/log_queue.h"
#include "daemon/common/param.h"

#define LOG_LINE_BYTES LGQ_LINE_BYTES /* PIPE_BUF: a line is one atomic write to a pipe */

enum log_lv { LOG_LV_ERROR, LOG_LV_WARN, LOG_LV_INFO, LOG_LV_DEBUG, LOG_LV_TRACE };

/* Debug bits, tbl/debug_bits.h: LOG_DBG_sched, ... */
enum log_dbg_idx {
#define DBG_BIT(name, help) LOG_DBGI_##name,
#include "daemon/tbl/debug_bits.h"
#undef DBG_BIT
    LOG_DBGI__N
};
#define LOG_DBG(name) \
    (__atomic_load_n(&log_debug_bits, __ATOMIC_RELAXED) & (1u << LOG_DBGI_##name))

enum log_topic {
#define LOG_TOPIC(name, help) LOG_T_##name,
#include "daemon/tbl/log_topics.h"
#undef LOG_TOPIC
    LOG_T__N
};

extern int log_level; /* enum log_lv: the highest of any topic */
extern uint32_t log_debug_bits;

/* Open /dev/null on those of descriptors 0 to 2 that are closed. Otherwise the first
 * socket opened would get such a number, and receive what is printed. Reading and
 * writing these descriptors then fails. Call first in a program; log_init() does. */
void log_fill_std(void);

/* prog must be a literal. level: "error", "warn", "info", "debug" or "trace"; NULL is
 * "info". */
void log_init(const char *prog, const char *level);
/* From here on a thread writes the lines, from queue q, which must stay mapped (NULL: a
 * queue of this module's own). 0, or -errno: no thread was started, and lines are
 * written as before. */
int log_start(struct lgq *q);
/* Write the pending summaries and the queued lines, end the thread and stop counting.
 * -EBUSY: the thread hangs in write() for good and still uses the queue. */
int log_fini(void);
/* Show the lines that a dead process had queued but not written. */
void log_adopt(struct lgq *q);
/* For a panic, async-signal-safe. log_panic() writes the queued lines from this thread;
 * log_panic_put() then writes text, or drops it when stderr has no room. */
void log_panic(void);
void log_panic_put(const char *text, size_t n);
/* The last lines that this process queued, as lgq_last() gives them. Empty before
 * log_start(). */
size_t log_last(char *ret, size_t ret_bytes);
/* Apply log.level, log.levels, log.format and log.rate, as they are in struct par.
 * -EINVAL: a value was invalid; that setting is unchanged, the others are applied. */
int log_apply(enum par_log_level level, const char *levels, enum par_log_format format,
    int64_t rate);
/* Show no line, whatever its level and whatever log_apply() sets. A panic is still
 * shown. */
void log_mute(int on);
/* Lines that are not shown are added to *dropped, by any thread. NULL: not counted. */
void log_count(uint64_t *dropped);
/* Log the summaries of call sites whose second is over, or of all. Cheap when there are
 * none. Every logging call does it too. */
void log_flush(int all);

/* Copy text, as much as fits, with control characters and invalid UTF-8 replaced.
 * Returns its length; not terminated. */
size_t log_clean(const char *s, size_t n, char *ret, size_t ret_bytes);
/* Quote a name from outside for a message: quotes, backslashes, control characters and
 * invalid UTF-8 are escaped, so that it cannot pass for another text of the message. A
 * name that does not fit is cut, but the end quote is there. ret_bytes is at least 3.
 * Returns ret. */
const char *log_quote(const char *s, char *ret, size_t ret_bytes);

/* Set the default level of all topics. -EINVAL: unknown level, nothing changed. */
int log_set_level(const char *level);
const char *log_level_name(void);
/* Set the levels of topics from a list such as "gate=debug,control=warn". Topics not in
 * it have the default, which the level "default" means too. -EINVAL: nothing changed,
 * and one line in err names the bad word and the known ones. */
int log_set_levels(const char *list, char *err, size_t err_bytes);
int log_check_levels(const char *list, char *err, size_t err_bytes);
/* Write the list of levels in force as it would be after the changes in list. */
int log_merge_levels(const char *list, char *ret, size_t ret_bytes, char *err,
    size_t err_bytes);
/* Level in force of a topic. */
const char *log_topic_level(int topic);

/* Set the bits of a comma or space separated list; "+x" and "-x" change one
 * bit, a list without signs replaces all. On error -EINVAL, the unknown
 * word copied to err, nothing changed. */
int log_set_debug(const char *list, char *err, size_t err_bytes);
/* Names of the set bits, comma separated. */
void log_get_debug(char *ret, size_t ret_bytes);

/* A call site that logs; static, one per call. */
struct log_site {
    const char *fmt;  /* "topic: ..." */
    int16_t lv;       /* enum log_lv */
    uint16_t flags;   /* LOG_F_* */
    int32_t topic;    /* found at the first line: index + 1, or 0 before */
    uint64_t window;  /* second << 32 | lines shown in it */
    uint32_t dropped; /* lines not shown and not yet reported */
    uint32_t listed;  /* 1: in the list of call sites that dropped a line */
    struct log_site *next;
};
#define LOG_F_ALWAYS    1u /* shown whatever the level: a debug bit asks for it */
#define LOG_F_UNLIMITED 2u /* log.rate does not apply */

__attribute__((format(printf, 2, 3))) void
log_at(struct log_site *site, const char *fmt, ...);

/* A named value that goes with the message: a member in JSON, "key value" in text. */
struct log_field {
    const char *key;
    char kind;     /* 's' text, 'i' integer, 'f' real number, such as ms */
    const char *s; /* may hold any bytes */
    int64_t i;
    double f;
};
#define LOG_S(k, v) ((struct log_field){ .key = (k), .kind = 's', .s = (v) })
#define LOG_I(k, v) ((struct log_field){ .key = (k), .kind = 'i', .i = (int64_t)(v) })
#define LOG_R(k, v) ((struct log_field){ .key = (k), .kind = 'f', .f = (v) })
/* The site's fmt is the message: "topic: message", no conversions. */
void log_event(struct log_site *site, const struct log_field *f, size_t n_field);

#define LOG__FIRST(a, ...) a
#define LOG__SITE(l, fl, ...) \
    static struct log_site log__site = { .fmt = LOG__FIRST(__VA_ARGS__, 0), \
        .lv = (l), \
        .flags = (fl) }
#define LOG__AT(l, ...) \
    do { \
        if (__atomic_load_n(&log_level, __ATOMIC_RELAXED) >= (l)) { \
            LOG__SITE(l, 0, __VA_ARGS__); \
            log_at(&log__site, __VA_ARGS__); \
        } \
    } while (0)
#define log_error(...) LOG__AT(LOG_LV_ERROR, __VA_ARGS__)
#define log_warn(...)  LOG__AT(LOG_LV_WARN, __VA_ARGS__)
#define log_info(...)  LOG__AT(LOG_LV_INFO, __VA_ARGS__)
#define log_debug(...) LOG__AT(LOG_LV_DEBUG, __VA_ARGS__)
#define log_trace(...) LOG__AT(LOG_LV_TRACE, __VA_ARGS__)
/* For the actions of administrators: log.rate does not apply. */
#define log_audit(...) \
    do { \
        if (__atomic_load_n(&log_level, __ATOMIC_RELAXED) >= LOG_LV_INFO) { \
            LOG__SITE(LOG_LV_INFO, LOG_F_UNLIMITED, __VA_ARGS__); \
            log_at(&log__site, __VA_ARGS__); \
        } \
    } while (0)
/* Shown whatever the level is. */
#define log_line(l, ...) \
    do { \
        LOG__SITE(l, LOG_F_ALWAYS, __VA_ARGS__); \
        log_at(&log__site, __VA_ARGS__); \
    } while (0)
#define log_fields(l, fl, msg, f, n_field) \
    do { \
        if (__atomic_load_n(&log_level, __ATOMIC_RELAXED) >= (l)) { \
            LOG__SITE(l, fl, msg); \
            log_event(&log__site, f, n_field); \
        } \
    } while (0)

#endif
