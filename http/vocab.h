/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The bytes of each token, out of a model's file "vocabulary" (fdclient(3)). One thread. */
#ifndef FDD_HTTP_VOCAB_H
#define FDD_HTTP_VOCAB_H

#include <stddef.h>
#include <stdint.h>

struct vocab {
    char *file;   /* malloc()ed; NULL: it was not read */
    uint32_t *at; /* [n]: where the bytes of each id begin */
    uint32_t n;
};

/* Takes file over, also when it fails. 0, -EINVAL: it is no such file; -ENOMEM. */
int voc_take(struct vocab *v, char *file, size_t bytes);
/* The bytes of a token and their number; an id that there is not has none. */
const char *voc_text(const struct vocab *v, uint32_t id, size_t *ret_n);
void voc_fini(struct vocab *v);

#endif
