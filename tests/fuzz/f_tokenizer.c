/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A hostile tokenizer.json: loading it, and using it if it loads. */
#include "config.h"

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif

#include "daemon/worker/detok.h"
#include "daemon/worker/tokenizer.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char text[] = "Hello  world's 12345\r\n\tab aab \xc3\xa9\xcc\x81 <s>x</s> "
                           "\xe4\xb8\xad\xf0\x9f\x91\x8d'LL  ";

static void
use(const struct tok *tok)
{
    struct tok_enc *enc = tok_enc_new(tok);
    const uint32_t *ids;
    uint8_t *out;
    struct dtk d;
    size_t n_ids, i;
    unsigned flags;
    int rc;

    if (!enc)
        return;
    out = malloc(dtk_max_bytes(tok));
    for (flags = 0; out && flags < 4; flags++) {
        rc = tok_enc_begin(enc, text, sizeof(text), flags);
        while (!rc)
            rc = tok_enc_step(enc, 3);
        if (rc != 1 && rc != -ENOMEM && rc != -E2BIG)
            abort();
        ids = tok_enc_ids(enc, &n_ids);
        dtk_init(&d, tok, flags & 1);
        for (i = 0; i < n_ids; i++) {
            if (ids[i] >= tok_vocab_size(tok))
                abort();
            if (dtk_push(&d, ids[i], out, dtk_max_bytes(tok)) > dtk_max_bytes(tok))
                abort();
        }
    }
    free(out);
    tok_enc_free(enc);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tok *tok = NULL;
    char path[64], err[256] = "";
    int fd = memfd_create("f_tokenizer", MFD_CLOEXEC), rc;

    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    rc = tok_load(path, &tok, err, sizeof(err));
    close(fd);
    if (rc > 0 || (rc < 0 && (tok || !err[0])) || (!rc && !tok))
        abort();
    if (tok)
        use(tok);
    tok_free(tok);
    return 0;
}
