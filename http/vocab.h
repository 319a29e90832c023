/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The bytes of each token, from a model's file "vocabulary" (fdclient(3)). One thread. */
#ifndef FDD_HTTP_VOCAB_H
#define FDD_HTTP_VOCAB_H

#include <stddef.h>
#include <stdint.h>

struct vocab {
    char *file;   /* malloc()ed; NULL: not read */
    uint32_t *at; /* [n]: offset in file of the bytes of each id */
    uint32_t n;
};

/* Takes over file, also on failure. Returns 0; -EINVAL: it is no such file; -ENOMEM. */
int voc_take(struct vocab *v, char *file, size_t bytes);
/* The bytes of a token and their number, which is 0 for an unknown id. */
const char *voc_text(const struct vocab *v, uint32_t id, size_t *ret_n);
/* Sets *ret to the ids of special tokens, ascending, malloc()ed. Returns 0; -ENOMEM. */
int voc_special(const struct vocab *v, uint32_t **ret, uint32_t *ret_n);
void voc_fini(struct vocab *v);

#endif
