/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines to stderr: "topic: fact value value", lowercase, one line per
 * call, written whole and at most LOG_LINE_BYTES at a time, so that lines of
 * several threads and processes do not mix. Any thread; no allocation.
 *
 * Logging never blocks: after log_start() a line goes into a queue
 * (log_queue.h: lock-free, bounded in bytes) and one thread writes the queue
 * to stderr, in order. When the reader of stderr is slow and the queue is
 * full, a line is dropped and counted, and "log: N lines were lost" follows
 * those that were queued before. stderr is shared with other processes: no
 * flag of it is changed.
 *
 * Who writes without the thread: a program that never calls log_start()
 * (tools, tests), everything before it and after log_fini(), and the child
 * of a fork, each directly from the thread that logs. log_fini(), which
 * exit() calls too, waits at most 1 s for the reader; what it does not take
 * is dropped, or shown by the gate if the queue is in the link segment (SIGRTMAX
 * takes the thread out of its write()). A
 * panic (panic.h) writes what is queued, then its text, and gives up when
 * stderr has no room for 0.1 s. Of a process that was killed the gate shows
 * the lines that it had queued (log_adopt).
 *
 * Text: time stamp, a level letter, the program's name; under systemd
 * (JOURNAL_STREAM names stderr) a "<3>" priority prefix instead. JSON: one
 * object a line with time, level, prog, pid, topic, msg and, for log_fields(),
 * the fields. Either way what is logged may be hostile: controls and what is
 * no UTF-8 are replaced, a longer line is cut and says so.
 *
 * Levels by volume: error, warn, info per event of the daemon's life,
 * debug per request, trace per step. Each topic (tbl/log_topics.h) may have a
 * level of its own; a line below the highest of them costs one comparison.
 * Never a prompt's or an answer's text or ids.
 *
 * Rate: of one place in the code at most log.rate lines a second are shown;
 * a summary says afterwards how many were not. One atomic word per place
 * decides; nothing waits for anybody.
 */
#ifndef FDD_DAEMON_COMMON_LOG_H
#define FDD_DAEMON_COMMON_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/log_queue.h"
#include "daemon/common/param.h"

#define LOG_LINE_BYTES LGQ_LINE_BYTES /* PIPE_BUF: a pipe takes it whole or not at all */

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

/* Put something behind those of descriptors 0 to 2 that are closed, or the
 * first socket opened would take the place and get what is printed. Reading
 * and writing them then fails. First thing in a program; log_init does it. */
void log_fill_std(void);

/* prog must be a literal. level: "error", "warn", "info", "debug", "trace"
 * NULL is info. */
void log_init(const char *prog, const char *level);
/* From here on a thread writes what is logged, from q, which must stay mapped
 * (NULL: a queue of the log's own). -errno: no thread, lines are written as
 * before. */
int log_start(struct lgq *q);
/* Say what is still held back, write what is queued, end the thread, count
 * nothing any more. -EBUSY: the thread hangs in write() for good and uses the
 * queue still. */
int log_fini(void);
/* Show the lines that a dead process had queued and not written. */
void log_adopt(struct lgq *q);
/* A panic, async-signal-safe: write what is queued, here; then text of its own,
 * dropped when stderr has no room. */
void log_panic(void);
void log_panic_put(const char *text, size_t n);
/* The last lines that this process queued, as lgq_last() gives them. Empty
 * before log_start(). */
size_t log_last(char *ret, size_t ret_bytes);
/* log.level, log.levels, log.format, log.rate as they are in struct par. What
 * is not valid leaves that one as it is; -EINVAL then. */
int log_apply(enum par_log_level level, const char *levels, enum par_log_format format,
    int64_t rate);
/* Show no line, whatever its level, or what log_apply() set. A panic is shown. */
void log_mute(int on);
/* Lines not shown are added to *dropped, by any thread; NULL: nowhere. */
void log_count(uint64_t *dropped);
/* Summaries of places whose second is over, or of all. Cheap when there are
 * none. Logging does it too. */
void log_flush(int all);

/* Copy text with controls and what is no UTF-8 replaced, as much as fits.
 * Returns its length; not terminated. */
size_t log_clean(const char *s, size_t n, char *ret, size_t ret_bytes);
/* A name that somebody else chose, for a message: in quotes, with quotes, backslashes,
 * controls and what is no UTF-8 escaped, so that it cannot pass for other words
 * of the message. What does not fit is left out, the end quote is not.
 * ret_bytes is at least 3. Returns ret. */
const char *log_quote(const char *s, char *ret, size_t ret_bytes);

/* The default of all topics. -EINVAL: unknown level, nothing changed. */
int log_set_level(const char *level);
const char *log_level_name(void);
/* "gate=debug,control=warn": levels of topics, all others have the default;
 * the level "default" is that too. -EINVAL, nothing changed and one line in
 * err that names the word and the known ones. */
int log_set_levels(const char *list, char *err, size_t err_bytes);
int log_check_levels(const char *list, char *err, size_t err_bytes);
/* What the list would be after these changes to the levels in force. */
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

/* A place in the code that logs; static, one per call. */
struct log_site {
    const char *fmt;  /* "topic: ..." */
    int16_t lv;       /* enum log_lv */
    uint16_t flags;   /* LOG_F_* */
    int32_t topic;    /* found at the first line: index + 1 */
    uint64_t window;  /* second << 32 | lines shown in it */
    uint32_t dropped; /* lines not shown and not yet told */
    uint32_t listed;  /* in the list of places that dropped some */
    struct log_site *next;
};
#define LOG_F_ALWAYS    1u /* whatever the level: a debug bit asks for it */
#define LOG_F_UNLIMITED 2u /* log.rate does not count */

__attribute__((format(printf, 2, 3))) void
log_at(struct log_site *site, const char *fmt, ...);

/* A fact that goes with the message: in JSON a member, in text "key value". */
struct log_field {
    const char *key;
    char kind;     /* 's' text, 'i' integer, 'f' real, ms or such */
    const char *s; /* may hold anything */
    int64_t i;
    double f;
};
#define LOG_S(k, v) ((struct log_field){ .key = (k), .kind = 's', .s = (v) })
#define LOG_I(k, v) ((struct log_field){ .key = (k), .kind = 'i', .i = (int64_t)(v) })
#define LOG_R(k, v) ((struct log_field){ .key = (k), .kind = 'f', .f = (v) })
/* The place's fmt is the message: "topic: message", no conversions. */
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
/* What administrators do: log.rate does not count. */
#define log_audit(...) \
    do { \
        if (__atomic_load_n(&log_level, __ATOMIC_RELAXED) >= LOG_LV_INFO) { \
            LOG__SITE(LOG_LV_INFO, LOG_F_UNLIMITED, __VA_ARGS__); \
            log_at(&log__site, __VA_ARGS__); \
        } \
    } while (0)
/* Whatever the level is. */
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
