/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a safetensors header, after eight bytes that are the size of the data:
 * refused with a code, or the tensors cover the data exactly.
 */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/weights.h"

#define MUST(e) \
    do { \
        if (!(e)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
            abort(); \
        } \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int
has_code(const char *err)
{
    static const char *const code[] = { "W_JSON: ", "W_SHAPE: ", "W_LAYOUT: ", "W_LIMIT: " };

    for (size_t i = 0; i < sizeof(code) / sizeof(code[0]); i++)
        if (strncmp(err, code[i], strlen(code[i])) == 0)
            return 1;
    return 0;
}

static int
is_line(const char *s)
{
    for (; *s != '\0'; s++)
        if (*s < 32 || *s > 126)
            return 0;
    return 1;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wts_tensor *t = NULL;
    uint64_t bytes = 0, at;
    size_t n_t = 0;
    char err[512] = "";
    int rc;

    if (n < 8)
        return 0;
    for (int i = 7; i >= 0; i--)
        bytes = bytes << 8 | data[i];
    rc = wts_header_parse((const char *)data + 8, n - 8, bytes, &t, &n_t, err, sizeof(err));
    if (rc != 0) {
        MUST(rc == -EINVAL && t == NULL && n_t == 0);
        MUST(has_code(err) && is_line(err));
        return 0;
    }
    at = n;
    for (size_t i = 0; i < n_t; i++) {
        MUST(t[i].off == at && t[i].n_dim >= 0 && t[i].n_dim <= 8);
        MUST(t[i].name != NULL && strlen(t[i].name) <= 512 && t[i].dtype_name != NULL);
        at += t[i].bytes;
    }
    MUST(at == n + bytes);
    wts_tensors_free(t, n_t);
    return 0;
}
