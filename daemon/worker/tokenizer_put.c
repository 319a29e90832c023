/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Adding tokens in the spelling of a file, and finding them by it. */
#include "config.h"

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_load.h"

#include <errno.h>

size_t
tok_ld_bytes(const uint8_t *s, size_t n, uint8_t *out, bool *ret_raw)
{
    size_t i = 0, k = 0;
    uint32_t cp;
    int b;

    while (i < n) {
        i += tok_utf8_get(s + i, &cp);
        b = bpe_char_to_byte(cp);
        if (b < 0) {
            memcpy(out, s, n);
            *ret_raw = true;
            return n;
        }
        out[k++] = (uint8_t)b;
    }
    *ret_raw = false;
    return k;
}

int
tok_ld_put(struct tok_ld *ld, const uint8_t *s, size_t n, uint32_t id, unsigned flags)
{
    uint8_t bytes[TOK_MAX_TOKEN_BYTES];
    int name = (int)(n > 60 ? 60 : n), rc;
    const char *text = (const char *)s;
    bool raw = false;

    if (n > TOK_MAX_TOKEN_BYTES)
        return tok_ld_err(ld, -EINVAL,
            "token of id %u has %zu bytes, more than the %u allowed", (unsigned)id, n,
            TOK_MAX_TOKEN_BYTES);
    if (ld->tok->kind == TOK_MODEL_BYTES) {
        n = tok_ld_bytes(s, n, bytes, &raw);
        s = bytes;
    }
    rc = bpe_add_token(ld->tok->bpe, id, s, n, flags | (raw ? BPE_TOK_RAW : 0));
    if (rc == -EEXIST)
        return tok_ld_err(ld, -EINVAL,
            "token \"%.*s\" has id %u, which another token has already", name, text,
            (unsigned)id);
    if (rc == -ENOTUNIQ)
        return tok_ld_err(ld, -EINVAL,
            "model: the vocabulary has the token \"%.*s\" twice", name, text);
    if (rc)
        return tok_ld_err(ld, rc, "token \"%.*s\": %s", name, text, strerror(-rc));
    if (n > ld->tok->max_token_bytes)
        ld->tok->max_token_bytes = n;
    return 0;
}

int
tok_ld_find(struct tok_ld *ld, const char *name, size_t n)
{
    const uint8_t *s = (const uint8_t *)name;
    uint8_t bytes[TOK_MAX_TOKEN_BYTES];
    bool raw;

    if (n > TOK_MAX_TOKEN_BYTES)
        return -ENOENT;
    if (ld->tok->kind != TOK_MODEL_BYTES)
        return bpe_find(ld->tok->bpe, s, n);
    n = tok_ld_bytes(s, n, bytes, &raw);
    return raw ? bpe_find_raw(ld->tok->bpe, bytes, n) : bpe_find(ld->tok->bpe, bytes, n);
}
