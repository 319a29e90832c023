/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Which step sizes have a graph. A step of n tokens is padded to the
 * smallest size of the list that holds it; a larger one runs without a
 * graph. The size is all a graph knows of a step: how its tokens are split
 * among rows, prompts and answers is read from device memory.
 *
 * Default sizes: 1, 2, 4, 8 to 128 by 8, 144 to 256 by 16, 288 to 1024 by
 * 32, then eight to each power of two, up to a limit, and the limit itself.
 * Pure functions.
 */
#ifndef FDD_DAEMON_WORKER_CAPTURE_H
#define FDD_DAEMON_WORKER_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#define CAP_MAX        256 /* sizes of a list */
#define CAP_MAX_TOKENS 131072

struct cap {
    int32_t n;
    int32_t size[CAP_MAX]; /* ascending, no two alike */
};

/* Sizes up to max >= 1, max included. */
void cap_default(int32_t max, struct cap *ret);
/* A list as the user writes it: numbers from 1 to max, separated by commas or
 * spaces, also in brackets, in any order. -EINVAL with one line in err: no
 * number, not a number, out of range, too many. */
int cap_parse(const char *text, int32_t max, struct cap *ret, char *err, size_t err_bytes);
/* Steps of `first` to `most` tokens, which are computed as fewer tokens are, are padded to
 * `size`, which is not. */
struct cap_cut {
    int32_t first, most, size;
};
/* most[n]: the largest number of tokens that is computed as size[i] are. 1 and the first
 * class that the list cuts in two, or 0. */
int cap_cuts(const struct cap *c, const int32_t *most, struct cap_cut *ret);
/* Smallest size >= n, 0 when there is none or n < 1. */
int32_t cap_map(const struct cap *c, int32_t n);

#endif
