/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a panic. pan_install() makes fatal signals write a reason and a backtrace
 * to an area (for the worker: lnk_seg.panic, which the gate reads after its death) and
 * to stderr before the process dies of the signal. Failed assertions end the same way.
 * Async-signal-safe after install.
 */
#ifndef FDD_DAEMON_COMMON_PANIC_H
#define FDD_DAEMON_COMMON_PANIC_H

#include <stddef.h>

/* Install handlers for SIGSEGV, SIGBUS, SIGABRT, SIGFPE and SIGILL. area
 * (may be NULL) must stay mapped; calling again replaces the area. */
void pan_install(char *area, size_t area_bytes);

/* Panics go to this file too, with the last log lines: PAN_MARK "panic\n", the text,
 * PAN_MARK "lines\n", the lines. -1: no file. */
#define PAN_MARK "\x1e"
void pan_file(int fd);

/* Write the text and a backtrace as above, then abort(). */
__attribute__((noreturn, format(printf, 1, 2))) void pan_panic(const char *fmt, ...);

/* A resource outside the program failed (a device and its memory): write the text, then
 * _exit(status). Calls nothing that could touch that resource and writes no core. */
__attribute__((noreturn, format(printf, 2, 3))) void
pan_exit(int status, const char *fmt, ...);

__attribute__((noreturn)) void
pan_assert(const char *file, int line, const char *func, const char *what);

#endif
