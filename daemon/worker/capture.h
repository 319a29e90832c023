/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of step sizes that have a graph. A step of n tokens is padded to the smallest
 * size of the list that is not below n; a larger step runs without a graph. A graph
 * depends only on the padded size: how the tokens are split among rows, prompts and
 * answers is read from device memory.
 *
 * Default sizes: 1, 2, 4, 8 to 128 by 8, 144 to 256 by 16, 288 to 1024 by 32, then eight
 * sizes per doubling, up to a limit, and the limit itself. Pure functions.
 */
#ifndef FDD_DAEMON_WORKER_CAPTURE_H
#define FDD_DAEMON_WORKER_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#define CAP_MAX        256 /* sizes of a list */
#define CAP_MAX_TOKENS 131072

struct cap {
    int32_t n;
    int32_t size[CAP_MAX]; /* ascending, without duplicates */
};

/* Sizes up to max >= 1, max included. */
void cap_default(int32_t max, struct cap *ret);
/* Parses a list as the user writes it: numbers from 1 to max, separated by commas or
 * spaces, also in brackets, in any order. -EINVAL with one line in err: no number, not a
 * number, out of range, too many. */
int cap_parse(const char *text, int32_t max, struct cap *ret, char *err, size_t err_bytes);
/* Steps of `first` to `most` tokens use the kernels of smaller steps but are padded to
 * `size`, which uses others. */
struct cap_cut {
    int32_t first, most, size;
};
/* most[i]: the largest number of tokens for which the same kernels are used as for
 * size[i]. Returns 1 and the first range of tokens that the list cuts in two (*ret), or 0
 * if there is none. */
int cap_cuts(const struct cap *c, const int32_t *most, struct cap_cut *ret);
/* Smallest size >= n; 0 if there is none or n < 1. */
int32_t cap_map(const struct cap *c, int32_t n);

#endif
