/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks. Everything that decides takes now_ns as an argument, so that
 * tests drive it with a fake clock; only main loops read these.
 */
#ifndef FDD_DAEMON_COMMON_CLK_H
#define FDD_DAEMON_COMMON_CLK_H

#include <stdint.h>

#define CLK_US 1000ull
#define CLK_MS 1000000ull
#define CLK_S  1000000000ull

uint64_t clk_now_ns(void);       /* CLOCK_MONOTONIC */
uint64_t clk_wall_ns(void);      /* CLOCK_REALTIME */
void clk_sleep_ns(uint64_t ns);  /* whole, whatever signals arrive */

/* Spin-wait hint. */
#if defined(__x86_64__) || defined(__i386__)
#define clk_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define clk_relax() __asm__ volatile("yield" ::: "memory")
#else
#define clk_relax() __asm__ volatile("" ::: "memory")
#endif

#endif
