/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer_norm.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define RX_MAX_BYTES 65536u
#define RX_STACK_MIN 32768u
#define RX_STACK_MAX (1u << 20)
#define RX_MIN_LIMIT 10000000u

/*
 * The reference's tables are those of Unicode 16, while the C library's may be older
 * (PCRE2 10.42: Unicode 14). The characters added since then are added to each class,
 * which has no effect if PCRE2 has them.
 */
static const struct {
    uint32_t lo, hi;
    char cat[3];
} rx_newer[] = {
    { 0x897, 0x897, "Mn" },
    { 0xcf3, 0xcf3, "Mc" },
    { 0xece, 0xece, "Mn" },
    { 0x1b4e, 0x1b4f, "Po" },
    { 0x1b7f, 0x1b7f, "Po" },
    { 0x1c89, 0x1c89, "Lu" },
    { 0x1c8a, 0x1c8a, "Ll" },
    { 0x2427, 0x2429, "So" },
    { 0x2ffc, 0x2fff, "So" },
    { 0x31e4, 0x31e5, "So" },
    { 0x31ef, 0x31ef, "So" },
    { 0xa7cb, 0xa7cc, "Lu" },
    { 0xa7cd, 0xa7cd, "Ll" },
    { 0xa7da, 0xa7da, "Lu" },
    { 0xa7db, 0xa7db, "Ll" },
    { 0xa7dc, 0xa7dc, "Lu" },
    { 0x105c0, 0x105f3, "Lo" },
    { 0x10d40, 0x10d49, "Nd" },
    { 0x10d4a, 0x10d4d, "Lo" },
    { 0x10d4e, 0x10d4e, "Lm" },
    { 0x10d4f, 0x10d4f, "Lo" },
    { 0x10d50, 0x10d65, "Lu" },
    { 0x10d69, 0x10d6d, "Mn" },
    { 0x10d6e, 0x10d6e, "Pd" },
    { 0x10d6f, 0x10d6f, "Lm" },
    { 0x10d70, 0x10d85, "Ll" },
    { 0x10d8e, 0x10d8f, "Sm" },
    { 0x10ec2, 0x10ec4, "Lo" },
    { 0x10efc, 0x10eff, "Mn" },
    { 0x1123f, 0x11240, "Lo" },
    { 0x11241, 0x11241, "Mn" },
    { 0x11380, 0x11389, "Lo" },
    { 0x1138b, 0x1138b, "Lo" },
    { 0x1138e, 0x1138e, "Lo" },
    { 0x11390, 0x113b5, "Lo" },
    { 0x113b7, 0x113b7, "Lo" },
    { 0x113b8, 0x113ba, "Mc" },
    { 0x113bb, 0x113c0, "Mn" },
    { 0x113c2, 0x113c2, "Mc" },
    { 0x113c5, 0x113c5, "Mc" },
    { 0x113c7, 0x113ca, "Mc" },
    { 0x113cc, 0x113cd, "Mc" },
    { 0x113ce, 0x113ce, "Mn" },
    { 0x113cf, 0x113cf, "Mc" },
    { 0x113d0, 0x113d0, "Mn" },
    { 0x113d1, 0x113d1, "Lo" },
    { 0x113d2, 0x113d2, "Mn" },
    { 0x113d3, 0x113d3, "Lo" },
    { 0x113d4, 0x113d5, "Po" },
    { 0x113d7, 0x113d8, "Po" },
    { 0x113e1, 0x113e2, "Mn" },
    { 0x116d0, 0x116e3, "Nd" },
    { 0x1171e, 0x1171e, "Mc" },
    { 0x11b00, 0x11b09, "Po" },
    { 0x11bc0, 0x11be0, "Lo" },
    { 0x11be1, 0x11be1, "Po" },
    { 0x11bf0, 0x11bf9, "Nd" },
    { 0x11f00, 0x11f01, "Mn" },
    { 0x11f02, 0x11f02, "Lo" },
    { 0x11f03, 0x11f03, "Mc" },
    { 0x11f04, 0x11f10, "Lo" },
    { 0x11f12, 0x11f33, "Lo" },
    { 0x11f34, 0x11f35, "Mc" },
    { 0x11f36, 0x11f3a, "Mn" },
    { 0x11f3e, 0x11f3f, "Mc" },
    { 0x11f40, 0x11f40, "Mn" },
    { 0x11f41, 0x11f41, "Mc" },
    { 0x11f42, 0x11f42, "Mn" },
    { 0x11f43, 0x11f4f, "Po" },
    { 0x11f50, 0x11f59, "Nd" },
    { 0x11f5a, 0x11f5a, "Mn" },
    { 0x1342f, 0x1342f, "Lo" },
    { 0x13439, 0x1343f, "Cf" },
    { 0x13440, 0x13440, "Mn" },
    { 0x13441, 0x13446, "Lo" },
    { 0x13447, 0x13455, "Mn" },
    { 0x13460, 0x143fa, "Lo" },
    { 0x16100, 0x1611d, "Lo" },
    { 0x1611e, 0x16129, "Mn" },
    { 0x1612a, 0x1612c, "Mc" },
    { 0x1612d, 0x1612f, "Mn" },
    { 0x16130, 0x16139, "Nd" },
    { 0x16d40, 0x16d42, "Lm" },
    { 0x16d43, 0x16d6a, "Lo" },
    { 0x16d6b, 0x16d6c, "Lm" },
    { 0x16d6d, 0x16d6f, "Po" },
    { 0x16d70, 0x16d79, "Nd" },
    { 0x18cff, 0x18cff, "Lo" },
    { 0x1b132, 0x1b132, "Lo" },
    { 0x1b155, 0x1b155, "Lo" },
    { 0x1cc00, 0x1ccef, "So" },
    { 0x1ccf0, 0x1ccf9, "Nd" },
    { 0x1cd00, 0x1ceb3, "So" },
    { 0x1d2c0, 0x1d2d3, "No" },
    { 0x1df25, 0x1df2a, "Ll" },
    { 0x1e030, 0x1e06d, "Lm" },
    { 0x1e08f, 0x1e08f, "Mn" },
    { 0x1e4d0, 0x1e4ea, "Lo" },
    { 0x1e4eb, 0x1e4eb, "Lm" },
    { 0x1e4ec, 0x1e4ef, "Mn" },
    { 0x1e4f0, 0x1e4f9, "Nd" },
    { 0x1e5d0, 0x1e5ed, "Lo" },
    { 0x1e5ee, 0x1e5ef, "Mn" },
    { 0x1e5f0, 0x1e5f0, "Lo" },
    { 0x1e5f1, 0x1e5fa, "Nd" },
    { 0x1e5ff, 0x1e5ff, "Po" },
    { 0x1f6dc, 0x1f6dc, "So" },
    { 0x1f774, 0x1f776, "So" },
    { 0x1f77b, 0x1f77f, "So" },
    { 0x1f7d9, 0x1f7d9, "So" },
    { 0x1f8b2, 0x1f8bb, "So" },
    { 0x1f8c0, 0x1f8c1, "So" },
    { 0x1fa75, 0x1fa77, "So" },
    { 0x1fa87, 0x1fa89, "So" },
    { 0x1fa8f, 0x1fa8f, "So" },
    { 0x1faad, 0x1faaf, "So" },
    { 0x1fabb, 0x1fabf, "So" },
    { 0x1fac6, 0x1fac6, "So" },
    { 0x1face, 0x1facf, "So" },
    { 0x1fada, 0x1fadc, "So" },
    { 0x1fadf, 0x1fadf, "So" },
    { 0x1fae8, 0x1fae9, "So" },
    { 0x1faf7, 0x1faf8, "So" },
    { 0x1fbcb, 0x1fbef, "So" },
    { 0x2b739, 0x2b739, "Lo" },
    { 0x2ebf0, 0x2ee5d, "Lo" },
    { 0x31350, 0x323af, "Lo" },
};

static const char rx_space[] =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

/* Oniguruma's word characters that are not L, M, Nd, Nl or Pc. */
static const char rx_word_more[] =
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";

/* Superscripts and fractions that \w matches outside of brackets only. */
static const char rx_word_alone[] = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

bool
tok_rx_is_newer_word(uint32_t cp)
{
    size_t i;

    for (i = 0; i < sizeof(rx_newer) / sizeof(rx_newer[0]); i++) {
        const char *cat = rx_newer[i].cat;
        if (cp >= rx_newer[i].lo && cp <= rx_newer[i].hi)
            return *cat == 'L' || *cat == 'M' || !strcmp(cat, "Nd");
    }
    return false;
}

/*
 * State of a translation. Most subjects are ASCII and need no Unicode tables, so each
 * pattern is also compiled to match bytes: classes become their ASCII members, and the
 * byte FF, which no subject holds, stands for every other character and for classes
 * without members.
 */
struct rx_tr {
    const char *s;
    size_t n, at;
    bool ascii;
    struct tok_buf out;
    char *err;
    size_t err_bytes;
};

__attribute__((format(printf, 3, 4))) static int
rx_err(struct rx_tr *t, int rc, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(t->err, t->err_bytes, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < t->err_bytes)
        snprintf(t->err + n, t->err_bytes - (size_t)n, " at byte %zu", t->at);
    return rc;
}

static int
rx_put(struct rx_tr *t, const char *s)
{
    return tok_buf_put(&t->out, s, strlen(s));
}

static int
rx_peek(const struct rx_tr *t, size_t ahead)
{
    return t->at + ahead < t->n ? (unsigned char)t->s[t->at + ahead] : -1;
}

/* Copies the pattern's byte at `at`; in ASCII patterns a whole character becomes FF. */
static int
rx_put_byte(struct rx_tr *t)
{
    unsigned char c = (unsigned char)t->s[t->at++];

    if (t->ascii && c >= 0x80)
        return c >= 0xc0 ? rx_put(t, "\\xff") : 0;
    return tok_buf_put(&t->out, &c, 1);
}

static int
rx_put_ascii_property(struct rx_tr *t, const char *name)
{
    char item[8];
    int c, rc = rx_put(t, "\\xff");

    for (c = 0; !rc && c < 128; c++) {
        if (strncmp(utf8proc_category_string(c), name, strlen(name)))
            continue;
        snprintf(item, sizeof(item), "\\x%02x", (unsigned)c);
        rc = rx_put(t, item);
    }
    return rc;
}

/* Writes the members of \p{name} for use inside brackets. */
static int
rx_put_property(struct rx_tr *t, const char *name)
{
    char item[48];
    size_t i;
    int rc;

    if (t->ascii)
        return rx_put_ascii_property(t, name);
    /* ASCII ranges, which PCRE2 matches by a bitmap, make the common case fast */
    if (!strcmp(name, "L") && (rc = rx_put(t, "a-zA-Z")))
        return rc;
    if (!strcmp(name, "N") && (rc = rx_put(t, "0-9")))
        return rc;
    snprintf(item, sizeof(item), "\\p{%s}", name);
    rc = rx_put(t, item);
    for (i = 0; !rc && i < sizeof(rx_newer) / sizeof(rx_newer[0]); i++) {
        if (strncmp(rx_newer[i].cat, name, strlen(name)))
            continue;
        snprintf(item, sizeof(item), "\\x{%x}-\\x{%x}", (unsigned)rx_newer[i].lo,
            (unsigned)rx_newer[i].hi);
        rc = rx_put(t, item);
    }
    return rc;
}

static int
rx_put_word(struct rx_tr *t)
{
    static const char *const parts[] = { "L", "M", "Nd", "Nl", "Pc" };
    size_t i;
    int rc = 0;

    for (i = 0; !rc && i < sizeof(parts) / sizeof(parts[0]); i++)
        rc = rx_put_property(t, parts[i]);
    return rc || t->ascii ? rc : rx_put(t, rx_word_more);
}

/* Writes the members of \s, \d or \w. */
static int
rx_put_class(struct rx_tr *t, int lower)
{
    if (lower == 's')
        return rx_put(t, t->ascii ? "\\t-\\r " : rx_space);
    if (lower == 'd')
        return rx_put_property(t, "Nd");
    return rx_put_word(t);
}

/* Reads "{Name}" or "{^Name}" after \p; `at` is at the brace. */
static int
rx_property_name(struct rx_tr *t, char name[4], bool *negated)
{
    static const char *const known[] = { "L", "M", "N", "P", "S", "Z", "Lu", "Ll", "Lt",
        "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi",
        "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co" };
    size_t end, i, len;

    if (rx_peek(t, 0) != '{')
        return rx_err(t, -ENOTSUP, "\\p without braces is not supported");
    t->at++;
    if (rx_peek(t, 0) == '^') {
        *negated = !*negated;
        t->at++;
    }
    for (end = t->at; end < t->n && t->s[end] != '}'; end++)
        ;
    len = end - t->at;
    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i]) == len && !memcmp(known[i], t->s + t->at, len))
            break;
    if (i == sizeof(known) / sizeof(known[0]) || end == t->n)
        return rx_err(t, -ENOTSUP,
            "property \\p{%.*s} is not supported (supported: "
            "general categories but C and Cn)",
            (int)(len > 40 ? 40 : len), t->s + t->at);
    strcpy(name, known[i]);
    t->at = end + 1;
    return 0;
}

/* Translates \xHH, \x{H...} and \uHHHH; `at` is after the letter. */
static int
rx_hex(struct rx_tr *t, int letter)
{
    char item[24];
    uint32_t cp = 0;
    unsigned n = 0, max = letter == 'u' ? 4 : 2;
    bool braces = letter == 'x' && rx_peek(t, 0) == '{';

    if (braces) {
        t->at++;
        max = 6;
    }
    for (; n < max; n++, t->at++) {
        int c = rx_peek(t, 0);
        if (c >= '0' && c <= '9')
            c -= '0';
        else if (c >= 'a' && c <= 'f')
            c -= 'a' - 10;
        else if (c >= 'A' && c <= 'F')
            c -= 'A' - 10;
        else
            break;
        cp = cp * 16 + (uint32_t)c;
    }
    if (!n || (letter == 'u' && n != 4) || (braces && rx_peek(t, 0) != '}') ||
        cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000) || (!braces && cp > 0x7f && n < 4))
        return rx_err(t, -ENOTSUP, "hexadecimal escape is not supported");
    t->at += braces;
    snprintf(item, sizeof(item), "\\x{%x}", (unsigned)cp);
    return rx_put(t, item);
}

/* Translates an escape that means the same inside and outside of brackets. 1: it is
 * none. */
static int
rx_escape_common(struct rx_tr *t, int c)
{
    char item[3] = { '\\', (char)c, 0 };

    if (c >= 0x80)
        return rx_put_byte(t);
    t->at++;
    if (strchr("rntfae", c))
        return rx_put(t, item);
    if (c == 'v')
        return rx_put(t, "\\x0b");
    if (c == 'x' || c == 'u')
        return rx_hex(t, c);
    if (c < 127 && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c))
        return rx_put(t, item);
    if (c == ' ')
        return rx_put(t, " ");
    t->at--;
    return 1;
}

static int
rx_escape(struct rx_tr *t)
{
    int c = rx_peek(t, 1), rc;
    bool negated;
    char name[4];

    t->at++;
    if (c < 1)
        return rx_err(t, -EINVAL, "pattern ends in a backslash or holds a NUL");
    if (strchr("sSdDwW", c)) {
        t->at++;
        rc = rx_put(t, c < 'a' ? "[^" : "[");
        rc = rc ? rc : rx_put_class(t, c | 32);
        if (!rc && (c | 32) == 'w')
            rc = rx_put(t, rx_word_alone);
        return rc ? rc : rx_put(t, "]");
    }
    if (c == 'p' || c == 'P') {
        t->at++;
        negated = c == 'P';
        rc = rx_property_name(t, name, &negated);
        rc = rc ? rc : rx_put(t, negated ? "[^" : "[");
        rc = rc ? rc : rx_put_property(t, name);
        return rc ? rc : rx_put(t, "]");
    }
    if (c == 'A' || c == 'z' || c == 'Z') {
        char item[3] = { '\\', (char)c, 0 };
        t->at++;
        return rx_put(t, item);
    }
    rc = rx_escape_common(t, c);
    return rc == 1 ? rx_err(t, -ENOTSUP, "escape \\%c is not supported", c) : rc;
}

/* Translates an escape inside brackets; *ret_set: it stands for more than one
 * character. */
static int
rx_class_escape(struct rx_tr *t, bool *ret_set)
{
    int c = rx_peek(t, 1), rc;
    bool negated;
    char name[4];

    t->at++;
    *ret_set = true;
    if (c < 1)
        return rx_err(t, -EINVAL, "pattern ends in a backslash or holds a NUL");
    if (strchr("sdw", c)) {
        t->at++;
        return rx_put_class(t, c);
    }
    if (c == 'S') {
        /* PCRE2 takes U+180E for white space, the reference does not */
        t->at++;
        return rx_put(t, t->ascii ? "\\S" : "\\S\\x{180e}");
    }
    if (c == 'p' || c == 'P') {
        t->at++;
        negated = c == 'P';
        rc = rx_property_name(t, name, &negated);
        if (!rc && negated)
            return rx_err(t, -ENOTSUP, "\\P inside brackets is not supported");
        return rc ? rc : rx_put_property(t, name);
    }
    *ret_set = false;
    rc = rx_escape_common(t, c);
    return rc == 1 ? rx_err(t, -ENOTSUP, "escape \\%c inside brackets is not supported", c)
                   : rc;
}

static int
rx_class(struct rx_tr *t)
{
    int rc = rx_put(t, "["), c;
    bool set;

    t->at++;
    if (!rc && rx_peek(t, 0) == '^') {
        t->at++;
        rc = rx_put(t, "^");
    }
    if (rx_peek(t, 0) == ']')
        return rx_err(t, -ENOTSUP, "\"]\" first in brackets is not supported");
    while (!rc) {
        c = rx_peek(t, 0);
        if (c < 1)
            return rx_err(t, -EINVAL, "brackets are not closed");
        if (c == ']') {
            t->at++;
            return rx_put(t, "]");
        }
        if (c == '[')
            return rx_err(t, -ENOTSUP, "\"[\" inside brackets is not supported");
        if (c == '&' && rx_peek(t, 1) == '&')
            return rx_err(t, -ENOTSUP, "\"&&\" inside brackets is not supported");
        set = false;
        if (c == '\\') {
            rc = rx_class_escape(t, &set);
        } else {
            rc = rx_put_byte(t);
        }
        if (!rc && set && rx_peek(t, 0) == '-' && rx_peek(t, 1) != ']')
            return rx_err(t, -ENOTSUP, "a range that starts with a class");
    }
    return rc;
}

static int
rx_group(struct rx_tr *t)
{
    static const char *const known[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>",
        "(?i:", "(?-i:", "(?i)" };
    size_t i, len;

    if (rx_peek(t, 1) == '*')
        return rx_err(t, -EINVAL, "\"(*\" has no meaning");
    if (rx_peek(t, 1) != '?') {
        t->at++;
        return rx_put(t, "(");
    }
    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        len = strlen(known[i]);
        if (t->n - t->at < len || memcmp(t->s + t->at, known[i], len))
            continue;
        if (!strcmp(known[i], "(?i)") && t->at)
            break;
        t->at += len;
        return rx_put(t, known[i]);
    }
    return rx_err(t, -ENOTSUP, "group \"(?%c\" is not supported",
        rx_peek(t, 2) > ' ' ? rx_peek(t, 2) : ' ');
}

/* Translates "{n}", "{n,}", "{n,m}", or a literal brace. */
static int
rx_brace(struct rx_tr *t)
{
    size_t end = t->at + 1, digits = 0;
    bool comma = false;

    for (; end < t->n && t->s[end] != '}'; end++) {
        if (t->s[end] == ',' && !comma)
            comma = true;
        else if (t->s[end] < '0' || t->s[end] > '9')
            break;
        else if (!comma)
            digits++;
    }
    if (end == t->n || t->s[end] != '}' || (!digits && !comma)) {
        t->at++;
        return rx_put(t, "\\{");
    }
    if (!digits)
        return rx_err(t, -ENOTSUP, "\"{,\" is not supported");
    if (end + 1 < t->n && t->s[end + 1] == '+')
        return rx_err(t, -ENOTSUP, "\"+\" after \"}\" is not supported");
    if (tok_buf_put(&t->out, t->s + t->at, end + 1 - t->at))
        return -ENOMEM;
    t->at = end + 1;
    return 0;
}

static int
rx_translate(struct rx_tr *t)
{
    int rc = 0;

    while (!rc && t->at < t->n) {
        switch (t->s[t->at]) {
        case '\\':
            rc = rx_escape(t);
            break;
        case '[':
            rc = rx_class(t);
            break;
        case '(':
            rc = rx_group(t);
            break;
        case '{':
            rc = rx_brace(t);
            break;
        case '\0':
            return rx_err(t, -ENOTSUP, "NUL in a pattern is not supported");
        default:
            rc = rx_put_byte(t);
        }
    }
    return rc;
}

static int
rx_quote(struct rx_tr *t)
{
    int rc = 0;

    while (!rc && t->at < t->n) {
        unsigned char c = (unsigned char)t->s[t->at];
        if (c < 0x80 && strchr("\\^$.[]|()?*+{}#-", c) && c)
            rc = tok_buf_put(&t->out, "\\", 1);
        rc = rc ? rc : rx_put_byte(t);
    }
    return rc;
}

static int
rx_build(struct rx_tr *t, bool literal, pcre2_code **ret)
{
    uint32_t how = PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_compile_context *cc = NULL;
    PCRE2_SIZE at = 0;
    int code = 0, rc;

    rc = literal ? rx_quote(t) : rx_translate(t);
    if (rc)
        goto free_out;
    rc = -ENOMEM;
    cc = pcre2_compile_context_create(NULL);
    if (!cc)
        goto free_out;
    pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
    if (!t->ascii)
        how |= PCRE2_UTF | PCRE2_UCP;
    *ret = pcre2_compile(t->out.p ? t->out.p : (PCRE2_SPTR) "", t->out.n, how, &code, &at,
        cc);
    rc = 0;
    if (!*ret) {
        char text[120] = "";

        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof(text));
        rc = -EINVAL;
        snprintf(t->err, t->err_bytes, "%s", text);
    }
free_out:
    if (rc == -ENOMEM)
        snprintf(t->err, t->err_bytes, "out of memory");
    pcre2_compile_context_free(cc);
    tok_buf_fini(&t->out);
    return rc;
}

int
tok_rx_compile(struct tok_rx *rx, const char *pattern, size_t n, bool literal, char *err,
    size_t err_bytes)
{
    struct rx_tr t = { .s = pattern, .n = n, .err = err, .err_bytes = err_bytes };
    char unused[8];
    int rc;

    if (err_bytes)
        err[0] = 0;
    if (n > RX_MAX_BYTES)
        return rx_err(&t, -EINVAL, "pattern is longer than %u bytes", RX_MAX_BYTES);
    rc = rx_build(&t, literal, &rx->code);
    if (rc)
        return rc;
    rx->jit = pcre2_jit_compile(rx->code, PCRE2_JIT_COMPLETE) == 0;
    /* a pattern that cannot be compiled for bytes is used without that */
    t = (struct rx_tr){ .s = pattern,
        .n = n,
        .ascii = true,
        .err = unused,
        .err_bytes = sizeof(unused) };
    rx->ascii = NULL;
    if (!rx->jit || rx_build(&t, literal, &rx->ascii))
        return 0;
    if (pcre2_jit_compile(rx->ascii, PCRE2_JIT_COMPLETE)) {
        pcre2_code_free(rx->ascii);
        rx->ascii = NULL;
    }
    return 0;
}

void
tok_rx_fini(struct tok_rx *rx)
{
    pcre2_code_free(rx->code);
    pcre2_code_free(rx->ascii);
    rx->code = rx->ascii = NULL;
}

int
tok_rx_run_init(struct tok_rx_run *run)
{
    run->md = pcre2_match_data_create(1, NULL);
    run->mc = pcre2_match_context_create(NULL);
    run->stack = pcre2_jit_stack_create(RX_STACK_MIN, RX_STACK_MAX, NULL);
    if (!run->md || !run->mc) {
        tok_rx_run_fini(run);
        return -ENOMEM;
    }
    /* without a stack of its own, PCRE2 takes 32 KiB of the thread's stack */
    if (run->stack)
        pcre2_jit_stack_assign(run->mc, NULL, run->stack);
    tok_rx_run_limit(run, 0);
    return 0;
}

void
tok_rx_run_fini(struct tok_rx_run *run)
{
    pcre2_match_data_free(run->md);
    pcre2_match_context_free(run->mc);
    pcre2_jit_stack_free(run->stack);
    *run = (struct tok_rx_run){ 0 };
}

void
tok_rx_run_limit(struct tok_rx_run *run, size_t n)
{
    uint64_t limit = RX_MIN_LIMIT + (uint64_t)n * 4;

    pcre2_set_match_limit(run->mc, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
}

int
tok_rx_find(const struct tok_rx *rx, struct tok_rx_run *run, const uint8_t *s, size_t n,
    bool ascii, size_t at, size_t *ret_a, size_t *ret_b)
{
    const pcre2_code *code = ascii && rx->ascii ? rx->ascii : rx->code;
    PCRE2_SIZE *ov;
    int rc;

    if (rx->jit) {
        rc = pcre2_jit_match(code, s, n, at, PCRE2_NO_UTF_CHECK, run->md, run->mc);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(code, s, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, run->md,
                run->mc);
    } else {
        rc = pcre2_match(rx->code, s, n, at, PCRE2_NO_UTF_CHECK, run->md, run->mc);
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return -ENOMEM;
    if (rc < 0)
        return -E2BIG;
    ov = pcre2_get_ovector_pointer(run->md);
    *ret_a = ov[0];
    *ret_b = ov[1];
    return 1;
}
