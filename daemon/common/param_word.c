/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Values as users write them: words of other servers, lists of sizes. */
#include "config.h"

#include "daemon/common/param_priv.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct value_word {
    const char *section, *key, *words, *value;
};
static const struct value_word value_words[] = {
#define PAR_NOTE(s, k, a, kind, ok, known, t)
#define PAR_VALUE(s, k, w, v) { #s, #k, w, v },
#include PAR_NOTES
#undef PAR_NOTE
#undef PAR_VALUE
};

void
par_lower(const char *text, char ret[64])
{
    size_t i;

    for (i = 0; i < 63 && text[i] != '\0'; i++)
        ret[i] = (char)tolower((unsigned char)text[i]);
    ret[i] = '\0';
}

int
par_value_word(const struct par_def *d, const char *name, const char **value, char *err,
    size_t err_bytes)
{
    char low[64], shown[64];
    size_t i;

    par_lower((*value)[0] == '{' ? "{}" : *value, low);
    for (i = 0; i < sizeof(value_words) / sizeof(value_words[0]); i++) {
        const struct value_word *w = &value_words[i];

        if (strcmp(w->key, d->key) != 0 || strcmp(w->section, d->section) != 0 ||
            !par_word_in(low, w->words))
            continue;
        if (w->value != NULL) {
            *value = w->value;
            return 0;
        }
        snprintf(err, err_bytes, "%s = %s: not available in this build; default is %s",
            name, par_show(*value, shown, sizeof(shown)), d->def);
        return -EINVAL;
    }
    return 0;
}

/* ---- lists of sizes --------------------------------------------------------------- */

static int
by_value(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;

    return (x > y) - (x < y);
}

int
par_sizes(const char *name, const char *text, char *ret, size_t ret_bytes, char *err,
    size_t err_bytes)
{
    long v[PAR_STR_BYTES / 2];
    size_t n = 0, i, at = 0;
    const char *p = text;
    char *end;

    while (*p != '\0') {
        while (*p == ' ')
            p++;
        errno = 0;
        v[n] = strtol(p, &end, 10);
        if (end == p || errno != 0 || !isdigit((unsigned char)*p))
            return par_bad_value(name, text, err, err_bytes,
                "a list of token counts, "
                "comma separated, like 1,2,4,8; nothing for the default list");
        if (v[n] < 1 || v[n] > 131072)
            return par_bad_value(name, text, err, err_bytes,
                "token counts are 1 to "
                "131072, not %ld",
                v[n]);
        n++;
        for (p = end; *p == ' '; p++)
            ;
        if (*p != '\0' && (*p != ',' || p[1] == '\0'))
            return par_bad_value(name, text, err, err_bytes,
                "a comma and a number must "
                "follow %ld",
                v[n - 1]);
        p += *p == ',';
    }
    qsort(v, n, sizeof(v[0]), by_value);
    memset(ret, 0, ret_bytes);
    for (i = 0; i < n; i++)
        if (i == 0 || v[i] != v[i - 1])
            at += (size_t)snprintf(ret + at, ret_bytes - at, "%s%ld", at > 0 ? "," : "",
                v[i]);
    return 0;
}
