/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the body of a request: nodes lie within the text and within each other,
 * strings are UTF-8, a document can be written and read again, and every request is
 * accepted or refused with a sentence.
 */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"
#include "http/ask.h"

#define MUST(e) \
    do { \
        if (!(e)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
            abort(); \
        } \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
look(const struct jr *j, size_t n)
{
    struct buf b = { NULL }, again = { NULL };
    int64_t v;

    MUST(j->n > 0 && j->node[0].next == j->n);
    for (uint32_t i = 0; i < j->n; i++) {
        const struct jr_node *k = &j->node[i];

        MUST(k->bytes > 0 && (size_t)k->at + k->bytes <= n && k->next > i &&
            k->next <= j->n);
        if (k->type == JR_STRING) {
            struct jr twice;

            b.n = again.n = 0;
            buf_add(&b, "", 0);
            jr_text(j, i, &b);
            MUST(txt_utf8(b.p, b.n) == b.n);
            buf_json(&again, b.p, b.n);
            MUST(jr_read(&twice, again.p, again.n, 1) == 0);
            jr_fini(&twice);
        } else if (k->type == JR_NUMBER) {
            (void)jr_int(j, i, &v);
            MUST(jr_real(j, i) == jr_real(j, i));
        }
        (void)jr_count(j, i);
    }
    buf_fini(&b);
    buf_fini(&again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct jr j;
    int rc = jr_read(&j, (const char *)data, n, 200);

    if (rc == 0)
        look(&j, n);
    else
        MUST(rc == -E2BIG || (rc == -EINVAL && j.err != NULL && j.err_at <= n));
    jr_fini(&j);
    for (int is_chat = 0; is_chat < 2; is_chat++) {
        struct problem bad = { .status = 0 };
        struct ask a;

        if (ask_read(&a, (const char *)data, n, is_chat, &bad) != 0)
            MUST(bad.status >= 400 && bad.text[0] != '\0');
        ask_fini(&a);
    }
    return 0;
}
