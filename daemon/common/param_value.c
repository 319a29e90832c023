/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/param_priv.h"
#include "daemon/common/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *
par_show(const char *text, char *buf, size_t buf_bytes)
{
    size_t i, max = buf_bytes - 1 < 60 ? buf_bytes - 1 : 60;

    for (i = 0; i < max && text[i] != '\0'; i++)
        buf[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    /* do not end inside a character */
    if (text[i] != '\0')
        while (i > 0 && ((unsigned char)text[i] & 0xc0) == 0x80)
            i--;
    buf[i] = '\0';
    return buf;
}

int
par_is_size(const struct par_def *d)
{
    size_t n = strlen(d->key);

    return d->type == PAR_T_INT && n > 6 && strcmp(d->key + n - 6, "_bytes") == 0;
}

void
par_format(const struct par_def *d, int64_t v, char *ret, size_t ret_bytes)
{
    static const char suffix[] = "gmk";
    int i;

    for (i = 0; par_is_size(d) && i < 3; i++) {
        int64_t unit = (int64_t)1 << (30 - 10 * i);

        if (v != 0 && v % unit == 0) {
            snprintf(ret, ret_bytes, "%lld%c", (long long)(v / unit), suffix[i]);
            return;
        }
    }
    snprintf(ret, ret_bytes, "%lld", (long long)v);
}

void
par_default_text(const struct par_def *d, char *ret, size_t ret_bytes)
{
    if (d->type == PAR_T_INT)
        par_format(d, strtoll(d->def, NULL, 10), ret, ret_bytes);
    else if (d->type == PAR_T_BOOL)
        snprintf(ret, ret_bytes, "%s", d->def[0] == '1' ? "yes" : "no");
    else
        snprintf(ret, ret_bytes, "%s", d->def);
}

/* ---- values from text ------------------------------------------------------- */

int
par_bad_value(const char *name, const char *value, char *err, size_t err_bytes,
    const char *fmt, ...)
{
    char shown[64], reason[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(reason, sizeof(reason), fmt, ap);
    va_end(ap);
    snprintf(err, err_bytes, "%s = %s: %s%s", name,
        value[0] == '\0' ? "(nothing)" : par_show(value, shown, sizeof(shown)), reason,
        strstr(value, " #") != NULL ? "; a comment after a value begins with \" ;\"" : "");
    return -EINVAL;
}

/* ---- units ------------------------------------------------------------------- */

/* A unit's size in the smallest unit of its kind: us, bytes, tokens. */
struct unit {
    const char *names; /* separated by |, in lower case */
    int64_t size;
};
struct unit_kind {
    const char *units; /* the units in the table to which this kind applies */
    const char *hint;
    int any_case, n;
    struct unit unit[6];
};

static const struct unit_kind unit_kinds[] = {
    { "us|ms|s", "us, ms, s, min, h or d", 0, 6,
        { { "us", 1 }, { "ms", 1000 }, { "s", 1000000 }, { "min", 60000000 },
            { "h", 3600000000 }, { "d", 86400000000 } } },
    { "bytes|GiB", "k, m, g or t (also KB, MiB, ...: powers of 1024)", 1, 5,
        { { "b|bytes", 1 }, { "k|kb|kib", 1 << 10 }, { "m|mb|mib", 1 << 20 },
            { "g|gb|gib", 1 << 30 }, { "t|tb|tib", (int64_t)1 << 40 } } },
    { "tokens", "k, m or g (powers of 1024)", 1, 3,
        { { "k", 1 << 10 }, { "m", 1 << 20 }, { "g", 1 << 30 } } }
};

/* Returns NULL if numbers of this row have no unit. */
static const struct unit_kind *
kind_of(const struct par_def *d)
{
    size_t i;

    for (i = 0; i < sizeof(unit_kinds) / sizeof(unit_kinds[0]); i++)
        if (par_word_in(d->unit, unit_kinds[i].units) && d->unit[0] != '\0')
            return &unit_kinds[i];
    return NULL;
}

static int64_t
unit_size(const struct unit_kind *k, const char *word)
{
    char low[8];
    size_t i;

    for (i = 0; i < sizeof(low) - 1 && word[i] != '\0'; i++)
        low[i] = k->any_case ? (char)tolower((unsigned char)word[i]) : word[i];
    low[i] = '\0';
    for (i = 0; i < (size_t)k->n && word[0] != '\0'; i++)
        if (par_word_in(low, k->unit[i].names))
            return k->unit[i].size;
    return 0;
}

/* Size of the row's own unit. */
static int64_t
base_size(const struct unit_kind *k, const struct par_def *d)
{
    int64_t n = unit_size(k, d->unit);

    return n != 0 ? n : 1;
}

static const char *
skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* Is the rest letters only? Then it was meant as a unit. */
static int
is_word(const char *p)
{
    size_t n = 0;

    while (isalpha((unsigned char)p[n]))
        n++;
    return n > 0 && n < 16 && p[n] == '\0';
}

static int
bad_unit(const struct par_def *d, const char *name, const char *value, const char *word,
    char *err, size_t err_bytes)
{
    const struct unit_kind *k = kind_of(d);

    return par_bad_value(name, value, err, err_bytes,
        "the unit '%s' does not fit; write "
        "a number%s%s%s%s",
        word, d->unit[0] != '\0' ? " of " : "", d->unit,
        k != NULL ? ", or one with " : " without a unit", k != NULL ? k->hint : "");
}

/* Parse [-]digits[.digits] as *ret_v / *ret_div. Returns the first character after the
 * number, or NULL if there is none. *ret_big: the number exceeds an int64_t. */
static const char *
read_decimal(const char *p, int64_t *ret_v, int64_t *ret_div, int *ret_big)
{
    int64_t sign = *p == '-' ? -1 : 1;
    int dot = 0;

    *ret_v = *ret_big = 0;
    *ret_div = 1;
    p += *p == '-' || *p == '+';
    if (!isdigit((unsigned char)*p))
        return NULL;
    for (; isdigit((unsigned char)*p) || (*p == '.' && !dot); p++) {
        if (*p == '.') {
            dot = 1;
            if (!isdigit((unsigned char)p[1]))
                return NULL;
            continue;
        }
        *ret_big |= __builtin_mul_overflow(*ret_v, 10, ret_v);
        *ret_big |= __builtin_add_overflow(*ret_v, sign * (*p - '0'), ret_v);
        if (dot)
            *ret_big |= __builtin_mul_overflow(*ret_div, 10, ret_div);
    }
    return p;
}

static int
out_of_range(const struct par_def *d, const char *name, const char *value, int64_t scale,
    char *err, size_t err_bytes)
{
    int bare = scale > 1 || d->unit[0] == '\0' || par_is_size(d);
    char lo[32], hi[32];

    par_format(d, d->lo / scale, lo, sizeof(lo));
    par_format(d, d->hi / scale, hi, sizeof(hi));
    return par_bad_value(name, value, err, err_bytes, "must be %s to %s%s%s", lo, hi,
        bare ? "" : " ", bare ? "" : d->unit);
}

int
par_parse_int(const struct par_def *d, const char *name, const char *value, int64_t scale,
    int64_t *ret, char *err, size_t err_bytes)
{
    const struct unit_kind *k = kind_of(d);
    int64_t v = 0, div = 1, mul = scale;
    int big = 0;
    const char *end = read_decimal(value, &v, &div, &big);
    const char *word = end != NULL ? skip_blanks(end) : "";

    if (end != NULL && *word != '\0') {
        int64_t size = k != NULL ? unit_size(k, word) : 0;

        if (size == 0 && is_word(word))
            return bad_unit(d, name, value, word, err, err_bytes);
        if (size == 0)
            end = NULL;
        mul = size;
        if (size != 0)
            big |= __builtin_mul_overflow(div, base_size(k, d), &div);
        scale = 1;
    }
    if (end == NULL || (div > 1 && *word == '\0'))
        return par_bad_value(name, value, err, err_bytes,
            par_is_size(d)
                ? "not a size; write a whole number of bytes, or with k, m or g, like 32m"
                : "not a whole number");
    if (scale > 1 && v < 0)
        v = 0;
    big |= __builtin_mul_overflow(v, mul, &v);
    if (!big && v % div != 0)
        return par_bad_value(name, value, err, err_bytes, "not a whole number of %s",
            d->unit);
    /* if too big, div may have any value, even 0 */
    if (big || v / div < d->lo || v / div > d->hi)
        return out_of_range(d, name, value, scale, err, err_bytes);
    *ret = v / div;
    return 0;
}

int
par_parse_dbl(const struct par_def *d, const char *name, const char *value, double *ret,
    char *err, size_t err_bytes)
{
    const struct unit_kind *k = kind_of(d);
    char *end;
    const char *word;
    double v = strtod(value, &end);
    size_t hex = strcspn(value, "xXnN");

    if (end == value || isspace((unsigned char)value[0]) || value + hex < end)
        return par_bad_value(name, value, err, err_bytes, "not a number");
    word = skip_blanks(end);
    if (*word != '\0') {
        int64_t size = k != NULL ? unit_size(k, word) : 0;

        if (size == 0 && is_word(word))
            return bad_unit(d, name, value, word, err, err_bytes);
        if (size == 0)
            return par_bad_value(name, value, err, err_bytes, "not a number");
        v = v * (double)size / (double)base_size(k, d);
    }
    if (!isfinite(v) || v < d->dlo || v > d->dhi)
        return par_bad_value(name, value, err, err_bytes, "must be %g to %g%s%s", d->dlo,
            d->dhi, d->unit[0] != '\0' ? " " : "", d->unit);
    *ret = v;
    return 0;
}

/* ---- words ---------------------------------------------------------------------- */

int
par_word_in(const char *word, const char *list)
{
    size_t n = strlen(word);

    while (*list != '\0') {
        size_t len = strcspn(list, "|,*");

        if (len == n && strncmp(word, list, n) == 0)
            return 1;
        list += len;
        if (*list == '*')
            list += strcspn(list, ",");
        if (*list != '\0')
            list++;
    }
    return 0;
}

int
par_parse_bool(const char *name, const char *value, int64_t *ret, char *err,
    size_t err_bytes)
{
    char low[8];
    size_t i;

    for (i = 0; i < sizeof(low) - 1 && value[i] != '\0'; i++)
        low[i] = (char)tolower((unsigned char)value[i]);
    low[i] = '\0';
    if (value[i] == '\0' && i > 0) {
        if (par_word_in(low, "yes|true|on|1")) {
            *ret = 1;
            return 0;
        }
        if (par_word_in(low, "no|false|off|0")) {
            *ret = 0;
            return 0;
        }
    }
    return par_bad_value(name, value, err, err_bytes, "write yes or no");
}

const char *
par_words(const char *const *words, const char *sep, char *ret, size_t ret_bytes)
{
    size_t at = 0;

    ret[0] = '\0';
    for (size_t i = 0; words != NULL && words[i] != NULL && at < ret_bytes; i++)
        at +=
            (size_t)snprintf(ret + at, ret_bytes - at, "%s%s", i > 0 ? sep : "", words[i]);
    return ret;
}

int
par_parse_enum(const struct par_def *d, const char *name, const char *value,
    uint32_t *ret, char *err, size_t err_bytes)
{
    char words[128];

    for (uint32_t i = 0; d->words[i] != NULL; i++)
        if (strcmp(value, d->words[i]) == 0) {
            *ret = i;
            return 0;
        }
    return par_bad_value(name, value, err, err_bytes, "must be one of: %s",
        par_words(d->words, " ", words, sizeof(words)));
}

int
par_parse_str(const char *name, const char *value, char *ret, char *err, size_t err_bytes)
{
    size_t i, len = strlen(value);

    if (len >= PAR_STR_BYTES)
        return par_bad_value(name, value, err, err_bytes,
            "%zu bytes long, at most "
            "%d are allowed",
            len, PAR_STR_BYTES - 1);
    for (i = 0; i < len; i++)
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
            return par_bad_value(name, value, err, err_bytes,
                "control character 0x%02x in the value", (unsigned char)value[i]);
    if (txt_utf8(value, len) != len)
        return par_bad_value(name, value, err, err_bytes, "not valid UTF-8");
    memset(ret, 0, PAR_STR_BYTES);
    memcpy(ret, value, len);
    return 0;
}


/* ---- lists ----------------------------------------------------------------------- */

/* Length of the key of a list's entry: the text before = or :. Keys are unique in a
 * list. */
static size_t
word_key(const char *word, size_t len)
{
    size_t n = strcspn(word, "=:");

    return n < len ? n : len;
}

static void
drop_key(char *list, const char *word, size_t key)
{
    char *p = list;

    while (*p != '\0') {
        size_t n = strcspn(p, ","), gone = n + (p[n] == ',');

        if (word_key(p, n) == key && strncmp(p, word, key) == 0)
            memmove(p, p + gone, strlen(p + gone) + 1);
        else
            p += gone;
    }
}

int
par_list_add(const char *list, const char *more, char ret[PAR_STR_BYTES])
{
    const char *const part[2] = { list, more };
    char out[2 * PAR_STR_BYTES + 2] = "";
    size_t at = 0;

    for (int i = 0; i < 2; i++) {
        const char *p = part[i] + strspn(part[i], ", ");

        for (; *p != '\0'; p += strspn(p, ", ")) {
            size_t len = strcspn(p, ", ");

            /* a later entry replaces an earlier one */
            drop_key(out, p, word_key(p, len));
            at = strlen(out);
            snprintf(out + at, sizeof(out) - at, "%s%.*s",
                at > 0 && out[at - 1] != ',' ? "," : "", (int)len, p);
            p += len;
        }
    }
    at = strlen(out);
    if (at >= PAR_STR_BYTES)
        return -ENOSPC;
    memset(ret, 0, PAR_STR_BYTES);
    memcpy(ret, out, at);
    return 0;
}
