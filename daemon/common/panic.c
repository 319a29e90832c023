/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/panic.h"

#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/log.h"

#define PAN_FRAMES 48
#define PAN_STACK  65536
#define PAN_LINES  4096

/* Where the text goes in addition to stderr; the only mutable global here. */
static struct {
    char *area;
    size_t bytes;
    volatile sig_atomic_t dying;
    volatile sig_atomic_t fd; /* -1: no file */
} pan = { .fd = -1 };

static void
pan_to_file(const char *s, size_t n)
{
    if (pan.fd >= 0 && write(pan.fd, s, n) < 0)
        pan.fd = -1;
}

/* Append to the area, keeping it NUL terminated. Signal safe. */
static void
pan_put(const char *s, size_t n)
{
    size_t at;
    size_t room;

    log_panic_put(s, n);
    pan_to_file(s, n);
    if (pan.area == NULL || pan.bytes == 0)
        return;
    at = strnlen(pan.area, pan.bytes - 1);
    room = pan.bytes - 1 - at;
    if (n > room)
        n = room;
    memcpy(pan.area + at, s, n);
    pan.area[at + n] = '\0';
}

static void
pan_puts(const char *s)
{
    pan_put(s, strlen(s));
}

static void
pan_hex(uint64_t v)
{
    char b[19];
    int at = sizeof(b) - 1;

    b[at] = '\0';
    do {
        b[--at] = "0123456789abcdef"[v & 15];
        v >>= 4;
    } while (v != 0);
    b[--at] = 'x';
    b[--at] = '0';
    pan_puts(b + at);
}

/* Symbols go through a pipe to the same outputs, since backtrace_symbols() would
 * allocate. */
static void
pan_backtrace(void)
{
    void *frame[PAN_FRAMES];
    char buf[512];
    int fds[2];
    int n = backtrace(frame, PAN_FRAMES);

    pan_puts("backtrace:\n");
    if (pipe(fds) != 0) {
        backtrace_symbols_fd(frame, n, STDERR_FILENO);
        return;
    }
    for (int i = 0; i < n; i++) {
        ssize_t got;

        backtrace_symbols_fd(&frame[i], 1, fds[1]);
        got = read(fds[0], buf, sizeof(buf));
        if (got > 0) {
            pan_puts("  ");
            pan_put(buf, (size_t)got);
        }
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
}

/* Begin a panic. log_panic() makes this thread the only writer. */
static void
pan_begin(void)
{
    pan.dying = 1;
    log_panic();
    pan_to_file(PAN_MARK "panic\n", 7);
    pan_puts("panic: ");
}

static void
pan_last_lines(void)
{
    char lines[PAN_LINES];
    size_t n;

    if (pan.fd < 0)
        return;
    n = log_last(lines, sizeof(lines));
    pan_to_file(PAN_MARK "lines\n", 7);
    pan_to_file(lines, n);
}

static const char *
pan_signame(int sig)
{
    switch (sig) {
    case SIGSEGV:
        return "SIGSEGV";
    case SIGBUS:
        return "SIGBUS";
    case SIGABRT:
        return "SIGABRT";
    case SIGFPE:
        return "SIGFPE";
    case SIGILL:
        return "SIGILL";
    default:
        return "signal";
    }
}

static void
pan_handler(int sig, siginfo_t *si, void *uc)
{
    (void)uc;
    if (!pan.dying) {
        pan_begin();
        pan_puts(pan_signame(sig));
        if (sig != SIGABRT) {
            pan_puts(" at address ");
            pan_hex((uint64_t)(uintptr_t)si->si_addr);
        }
        pan_puts("\n");
        pan_backtrace();
        pan_last_lines();
    }
    /* SA_RESETHAND restored the default action: die of the signal. */
    (void)raise(sig);
}

void
pan_install(char *area, size_t area_bytes)
{
    static const int sigs[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL };
    static char stack[PAN_STACK] __attribute__((aligned(16)));
    struct sigaction sa;
    stack_t ss;
    void *warm[2];

    pan.area = area;
    pan.bytes = area_bytes;
    if (area != NULL && area_bytes != 0)
        area[0] = '\0';
    /* The first backtrace() loads libgcc and allocates: do it now. */
    (void)backtrace(warm, 2);
    memset(&ss, 0, sizeof(ss));
    ss.ss_sp = stack;
    ss.ss_size = sizeof(stack);
    (void)sigaltstack(&ss, NULL);
    memset(&sa, 0, sizeof(sa));
    sa.sa_sigaction = pan_handler;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER;
    (void)sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++)
        (void)sigaction(sigs[i], &sa, NULL);
}

void
pan_file(int fd)
{
    pan.fd = fd;
}

/* Write the beginning of a panic. Returns 0 if one has begun already. */
static int
pan_first(const char *text)
{
    if (pan.dying)
        return 0;
    pan_begin();
    pan_puts(text);
    pan_puts("\n");
    return 1;
}

void
pan_panic(const char *fmt, ...)
{
    char buf[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    if (pan_first(buf)) {
        pan_backtrace();
        pan_last_lines();
    }
    abort();
}

void
pan_exit(int status, const char *fmt, ...)
{
    char buf[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    if (pan_first(buf))
        pan_last_lines();
    _exit(status);
}

void
pan_assert(const char *file, int line, const char *func, const char *what)
{
    const char *base = strstr(file, "daemon/");

    pan_panic("%s:%d %s(): assertion failed: %s", base != NULL ? base : file, line, func,
        what);
}
