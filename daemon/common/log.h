/*
 * Log lines to stderr: "topic: fact value value", lowercase, one line per
 * call. With a time stamp, a level letter and the program's name; under
 * systemd (JOURNAL_STREAM set) with a "<3>" priority prefix instead.
 *
 * Levels by volume: error, warn, info per event of the daemon's life,
 * debug per request, trace per step. Never a prompt's or an answer's text.
 * Any thread; one write() per line, so lines do not mix.
 */
#ifndef FDD_DAEMON_COMMON_LOG_H
#define FDD_DAEMON_COMMON_LOG_H

#include <stddef.h>
#include <stdint.h>

enum log_lv { LOG_LV_ERROR, LOG_LV_WARN, LOG_LV_INFO, LOG_LV_DEBUG, LOG_LV_TRACE };

/* Debug bits, tbl/debug_bits.h: LOG_DBG_sched, ... */
enum log_dbg_idx {
#define DBG_BIT(name, help) LOG_DBGI_##name,
#include "daemon/tbl/debug_bits.h"
#undef DBG_BIT
    LOG_DBGI__N
};
#define LOG_DBG(name) (__atomic_load_n(&log_debug_bits, __ATOMIC_RELAXED) & \
    (1u << LOG_DBGI_##name))

extern int log_level;            /* enum log_lv; read by the macros below */
extern uint32_t log_debug_bits;

/* Put something behind those of descriptors 0 to 2 that are closed, or the
 * first socket opened would take the place and get what is printed. Reading
 * and writing them then fails. First thing in a program; log_init does it. */
void log_fill_std(void);

/* prog must be a literal. level: "error", "warn", "info", "debug", "trace"
 * (par->log_level); NULL is info. */
void log_init(const char *prog, const char *level);
/* -EINVAL: unknown level, nothing changed. */
int log_set_level(const char *level);
const char *log_level_name(void);
/* Set the bits of a comma or space separated list; "+x" and "-x" change one
 * bit, a list without signs replaces all. On error -EINVAL, the unknown
 * word copied to err, nothing changed. */
int log_set_debug(const char *list, char *err, size_t err_bytes);
/* Names of the set bits, comma separated. */
void log_get_debug(char *ret, size_t ret_bytes);

__attribute__((format(printf, 2, 3)))
void log_line(int lv, const char *fmt, ...);

#define LOG__AT(lv, ...)                                                \
    do {                                                                \
        if (__atomic_load_n(&log_level, __ATOMIC_RELAXED) >= (lv))      \
            log_line((lv), __VA_ARGS__);                                \
    } while (0)
#define log_error(...) LOG__AT(LOG_LV_ERROR, __VA_ARGS__)
#define log_warn(...)  LOG__AT(LOG_LV_WARN, __VA_ARGS__)
#define log_info(...)  LOG__AT(LOG_LV_INFO, __VA_ARGS__)
#define log_debug(...) LOG__AT(LOG_LV_DEBUG, __VA_ARGS__)
#define log_trace(...) LOG__AT(LOG_LV_TRACE, __VA_ARGS__)

#endif
