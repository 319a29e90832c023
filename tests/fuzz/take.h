/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A fuzz input, read from its front. */
#ifndef FDD_TESTS_FUZZ_TAKE_H
#define FDD_TESTS_FUZZ_TAKE_H

#include <stddef.h>
#include <stdint.h>

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
