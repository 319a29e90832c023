/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 (FIPS 180-4): digests of model files, hashed keys. Any thread; the only state
 * is the caller's.
 */
#ifndef FDD_DAEMON_COMMON_SHA256_H
#define FDD_DAEMON_COMMON_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t h[8];
    uint64_t n_bytes;
    uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t n);
/* Ends the message; s must be initialized again before further use. */
void sha256_end(struct sha256 *s, uint8_t ret[32]);

#endif
