#include "config.h"

#include "daemon/common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int log_level = LOG_LV_INFO;
uint32_t log_debug_bits;

static const char *log_prog = "fdd";
static int log_journal;

static const char *const log_names[] = { "error", "warn", "info", "debug", "trace" };
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

void
log_init(const char *prog, const char *level)
{
    log_fill_std();
    log_prog = prog;
    log_journal = getenv("JOURNAL_STREAM") != NULL;
    if (level != NULL)
        (void)log_set_level(level);
}

int
log_set_level(const char *level)
{
    for (int i = 0; i <= LOG_LV_TRACE; i++) {
        if (strcmp(level, log_names[i]) == 0) {
            __atomic_store_n(&log_level, i, __ATOMIC_RELAXED);
            return 0;
        }
    }
    return -EINVAL;
}

const char *
log_level_name(void)
{
    return log_names[__atomic_load_n(&log_level, __ATOMIC_RELAXED)];
}

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

static int
log_prefix(int lv, char *buf, size_t bytes)
{
    static const int prio[] = { 3, 4, 6, 7, 7 };
    struct timespec ts;
    struct tm tm;

    if (log_journal)
        return snprintf(buf, bytes, "<%d>%s: ", prio[lv], log_prog);
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)localtime_r(&ts.tv_sec, &tm);
    return snprintf(buf, bytes, "%04d-%02d-%02d %02d:%02d:%02d.%03ld %c %s: ",
        tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
        ts.tv_nsec / 1000000, "EWIDT"[lv], log_prog);
}

void
log_line(int lv, const char *fmt, ...)
{
    char buf[1600];
    int saved = errno;
    int at = log_prefix(lv, buf, sizeof(buf));
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(buf + at, sizeof(buf) - (size_t)at - 1, fmt, ap);
    va_end(ap);
    if (n < 0)
        n = 0;
    if ((size_t)(at + n) > sizeof(buf) - 2)
        n = (int)sizeof(buf) - 2 - at;
    /* One line is one event: what is logged may quote hostile names. */
    for (int i = at; i < at + n; i++) {
        if ((unsigned char)buf[i] < 0x20 || buf[i] == 0x7f)
            buf[i] = buf[i] == '\n' ? ' ' : '?';
    }
    buf[at + n] = '\n';
    if (write(STDERR_FILENO, buf, (size_t)(at + n + 1)) < 0) {
        /* stderr is gone; there is no other sink */
    }
    errno = saved;
}
