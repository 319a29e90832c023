/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks. Only main loops read them. Functions that decide take now_ns as an
 * argument, so that tests use a fake clock.
 */
#ifndef FDD_DAEMON_COMMON_CLK_H
#define FDD_DAEMON_COMMON_CLK_H

#include <stdint.h>
#include <time.h>

#define CLK_US 1000ull
#define CLK_MS 1000000ull
#define CLK_S  1000000000ull

uint64_t clk_now_ns(void);        /* CLOCK_MONOTONIC */
uint64_t clk_wall_ns(void);       /* CLOCK_REALTIME */
uint64_t clk_of_ns(clockid_t id); /* any other; 0: cannot be read */
void clk_sleep_ns(uint64_t ns);   /* signals do not shorten it */

/* Spin-wait hint. */
#if defined(__x86_64__) || defined(__i386__)
#define clk_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define clk_relax() __asm__ volatile("yield" ::: "memory")
#else
#define clk_relax() __asm__ volatile("" ::: "memory")
#endif

#endif
