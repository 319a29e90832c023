/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reads a fuzz input from its beginning. */
#ifndef FDD_TESTS_FUZZ_TAKE_H
#define FDD_TESTS_FUZZ_TAKE_H

#include <stddef.h>
#include <stdint.h>

/* Prints the kinds of records or items that no input of the corpus held, and returns
 * their number. A target may define it; replay.c calls it after the corpus. */
int fuzz_missing(void);

struct in {
    const uint8_t *p;
    size_t n;
};

/* Takes a little-endian number of n bytes; missing bytes count as 0. */
static inline uint32_t
take(struct in *in, unsigned bytes)
{
    uint32_t v = 0;

    for (unsigned i = 0; i < bytes && in->n > 0; i++, in->p++, in->n--)
        v |= (uint32_t)*in->p << (8 * i);
    return v;
}

#endif
