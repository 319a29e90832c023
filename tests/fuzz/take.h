/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A fuzz input, read from its front. */
#ifndef FDD_TESTS_FUZZ_TAKE_H
#define FDD_TESTS_FUZZ_TAKE_H

#include <stddef.h>
#include <stdint.h>

/* Says which kinds of records or items no input of the corpus held, and returns how many.
 * Asked for by replay.c when it has run the corpus, if a target has it. */
int fuzz_missing(void);

struct in {
    const uint8_t *p;
    size_t n;
};

/* A little-endian number of n bytes; missing bytes are 0. */
static inline uint32_t
take(struct in *in, unsigned bytes)
{
    uint32_t v = 0;

    for (unsigned i = 0; i < bytes && in->n > 0; i++, in->p++, in->n--)
        v |= (uint32_t)*in->p << (8 * i);
    return v;
}

#endif
