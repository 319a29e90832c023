/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VOC_HEAD    3 /* u16 bytes, u8 kind */
#define VOC_SPECIAL 3 /* kind */

static uint16_t
length(const char *p)
{
    uint16_t n;

    memcpy(&n, p, sizeof(n));
    return n;
}

/* Number of tokens in the file. -EINVAL: it ends within one. */
static int64_t
count(const char *file, size_t bytes)
{
    size_t at = 0;
    int64_t n = 0;

    for (; bytes - at >= VOC_HEAD; n++) {
        size_t k = length(file + at);

        if (bytes - at - VOC_HEAD < k)
            return -EINVAL;
        at += VOC_HEAD + k;
    }
    return at == bytes && bytes <= UINT32_MAX ? n : -EINVAL;
}

int
voc_take(struct vocab *v, char *file, size_t bytes)
{
    int64_t n = count(file, bytes);
    uint32_t at = 0;

    *v = (struct vocab){ .file = file };
    v->at = n > 0 ? malloc((size_t)n * sizeof(*v->at)) : NULL;
    if (v->at == NULL) {
        voc_fini(v);
        return n < 0 ? (int)n : -ENOMEM;
    }
    for (; v->n < (uint32_t)n; v->n++) {
        v->at[v->n] = at + VOC_HEAD;
        at += VOC_HEAD + length(file + at);
    }
    return 0;
}

const char *
voc_text(const struct vocab *v, uint32_t id, size_t *ret_n)
{
    *ret_n = id < v->n ? length(v->file + v->at[id] - VOC_HEAD) : 0;
    return id < v->n ? v->file + v->at[id] : "";
}

static int
is_special(const struct vocab *v, uint32_t id)
{
    return v->file[v->at[id] - 1] == VOC_SPECIAL;
}

int
voc_special(const struct vocab *v, uint32_t **ret, uint32_t *ret_n)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < v->n; i++)
        n += (uint32_t)is_special(v, i);
    *ret = malloc(((size_t)n + 1) * sizeof(**ret));
    *ret_n = 0;
    if (*ret == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < v->n; i++)
        if (is_special(v, i))
            (*ret)[(*ret_n)++] = i;
    return 0;
}

void
voc_fini(struct vocab *v)
{
    free(v->file);
    free(v->at);
    memset(v, 0, sizeof(*v));
}
