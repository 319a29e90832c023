/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/finish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obj.h"

struct fin_set *
fin_set_new(void)
{
    struct fin_set *fs;

    OBJ_ALLOC(fs, FIN_MAGIC);
    return fs;
}

struct fin_set *
fin_set_free(struct fin_set *fs)
{
    if (fs != NULL)
        OBJ_FREE(fs, FIN_MAGIC);
    return NULL;
}

int
fin_set_add(struct fin_set *fs, const void *text, size_t n)
{
    uint32_t k = fs->n, m = 0;
    unsigned char *t;

    OBJ_CHECK(fs, FIN_MAGIC);
    if (n == 0 || n > FDP_MAX_STOP_LEN || k >= FDP_MAX_STOP)
        return -EINVAL;
    t = fs->text[k];
    memcpy(t, text, n);
    fs->len[k] = (uint16_t)n;
    fs->fail[k][0] = 0;
    for (size_t i = 1; i < n; i++) {
        while (m > 0 && t[m] != t[i])
            m = fs->fail[k][m - 1];
        if (t[m] == t[i])
            m++;
        fs->fail[k][i] = (uint16_t)m;
    }
    fs->n++;
    return 0;
}

void
fin_init(struct fin *f)
{
    memset(f, 0, sizeof(*f));
}

int
fin_push(const struct fin_set *fs, struct fin *f, const unsigned char *b, size_t n,
    size_t *ret_end)
{
    for (size_t i = 0; i < n; i++) {
        int hit = -1;

        for (uint32_t k = 0; k < fs->n; k++) {
            uint32_t m = f->at[k];

            while (m > 0 && fs->text[k][m] != b[i])
                m = fs->fail[k][m - 1];
            if (fs->text[k][m] == b[i])
                m++;
            if (m == fs->len[k]) {
                if (hit < 0 || fs->len[k] > fs->len[hit])
                    hit = (int)k;
                m = fs->fail[k][m - 1];
            }
            f->at[k] = (uint16_t)m;
        }
        if (hit >= 0) {
            *ret_end = i + 1;
            return hit;
        }
    }
    return -1;
}

uint32_t
fin_hold(const struct fin_set *fs, const struct fin *f)
{
    uint32_t hold = 0;

    for (uint32_t k = 0; k < fs->n; k++)
        if (f->at[k] > hold)
            hold = f->at[k];
    return hold;
}
