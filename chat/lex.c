/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/template.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lexer {
    struct val_ctx *c;
    struct template *t;
    const char *p; /* the text: line ends are \n, the last one is removed */
    size_t n, at;
    size_t room; /* tokens for which memory is allocated */
    int line;
    int line_start; /* at is the start of a line */
    int brackets;   /* open brackets in the tag */
};

static struct tpl_tok *
lex_add(struct lexer *x, enum tok_kind kind)
{
    struct template *t = x->t;

    if (t->n_tok == x->room) {
        size_t room = x->room > 0 ? 2 * x->room : 256;
        struct tpl_tok *tok = val_array(x->c, room, sizeof(*tok));

        if (t->n_tok > 0)
            memcpy(tok, t->tok, t->n_tok * sizeof(*tok));
        t->tok = tok;
        x->room = room;
    }
    t->tok[t->n_tok] = (struct tpl_tok){ .kind = kind, .line = x->line };
    return &t->tok[t->n_tok++];
}

static void
lex_lines(struct lexer *x, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        x->line += x->p[i] == '\n';
}

/* The end of the blanks that begin at `at`. */
static size_t
lex_space(const struct lexer *x, size_t at)
{
    size_t n;

    while (at < x->n && val_is_space(val_code(x->p + at, x->n - at, &n)))
        at += n;
    return at;
}

/* The start of the blanks that end at `end`, not before `from`. */
static size_t
lex_space_before(const struct lexer *x, size_t from, size_t end)
{
    while (end > from) {
        size_t k = end - 1, n;

        while (k > from && ((unsigned char)x->p[k] & 0xc0) == 0x80)
            k--;
        if (!val_is_space(val_code(x->p + k, x->n - k, &n)))
            break;
        end = k;
    }
    return end;
}

/* The end of the text between from and a tag, stripped by the tag's first sign or by
 * lstrip_blocks, which strips only the blanks of the tag's line. */
static size_t
lex_strip(const struct lexer *x, size_t from, size_t tag, int print)
{
    char sign = tag + 2 < x->n ? x->p[tag + 2] : '\0';
    size_t line = tag, blank;

    if (sign == '-')
        return lex_space_before(x, from, tag);
    if (sign == '+' || print)
        return tag;
    while (line > from && x->p[line - 1] != '\n')
        line--;
    if (line == from && !x->line_start)
        return tag;
    blank = lex_space_before(x, line, tag);
    return blank == line ? line : tag;
}

static size_t
lex_find_tag(const struct lexer *x, size_t at)
{
    for (; at + 1 < x->n; at++)
        if (x->p[at] == '{' &&
            (x->p[at + 1] == '%' || x->p[at + 1] == '{' || x->p[at + 1] == '#'))
            return at;
    return x->n;
}

/* The start of the text after a tag that ends at `at`: a - strips blanks; without a sign,
 * a newline after a block or comment is stripped. */
static size_t
lex_after(struct lexer *x, size_t at, char sign, int print)
{
    size_t end = at;

    if (sign == '-')
        end = lex_space(x, at);
    else if (sign != '+' && !print && at < x->n && x->p[at] == '\n')
        end = at + 1;
    lex_lines(x, at, end);
    x->line_start = x->p[end - 1] == '\n';
    return end;
}

static void
lex_comment(struct lexer *x, size_t tag)
{
    size_t from = tag + 2, at;

    from += from < x->n && (x->p[from] == '-' || x->p[from] == '+');
    at = from;
    while (at + 1 < x->n && !(x->p[at] == '#' && x->p[at + 1] == '}'))
        at++;
    if (at + 1 >= x->n)
        val_fail(x->c, "line %d: missing end of comment tag", x->line);
    lex_lines(x, tag, at);
    x->at = lex_after(x, at + 2, at > from ? x->p[at - 1] : '\0', 0);
}

/* Returns the end of the tag of this name at `at`, and its last sign in *ret_sign. 0: the
 * tag is another one. */
static size_t
lex_named_tag(const struct lexer *x, size_t at, const char *name, char *ret_sign)
{
    size_t n = strlen(name);

    at += 2;
    if (at < x->n && (x->p[at] == '-' || x->p[at] == '+'))
        at++;
    at = lex_space(x, at);
    if (n > x->n - at || memcmp(x->p + at, name, n) != 0)
        return 0;
    at = lex_space(x, at + n);
    *ret_sign = '\0';
    if (at < x->n && (x->p[at] == '-' || x->p[at] == '+'))
        *ret_sign = x->p[at++];
    return at + 1 < x->n && x->p[at] == '%' && x->p[at + 1] == '}' ? at + 2 : 0;
}

/* Read {% raw %} at tag and its text, unchanged, up to {% endraw %}. Returns 0 if it is
 * another tag. */
static int
lex_raw(struct lexer *x, size_t tag)
{
    char sign, end_sign;
    size_t from = lex_named_tag(x, tag, "raw", &sign), end, behind = 0, to;
    struct tpl_tok *tok;

    if (from == 0 || sign == '+')
        return 0;
    if (sign == '-')
        from = lex_space(x, from);
    lex_lines(x, tag, from);
    for (end = from; end + 1 < x->n && behind == 0; end++)
        if (x->p[end] == '{' && x->p[end + 1] == '%')
            behind = lex_named_tag(x, end, "endraw", &end_sign);
    if (behind == 0)
        val_fail(x->c, "line %d: missing end of raw directive", x->line);
    end--;
    x->line_start = x->p[from - 1] == '\n';
    to = lex_strip(x, from, end, 0);
    if (to > from) {
        tok = lex_add(x, TOK_TEXT);
        tok->p = x->p + from;
        tok->n = to - from;
    }
    lex_lines(x, from, behind);
    x->at = lex_after(x, behind, end_sign, 0);
    return 1;
}

/* ---- inside a tag ------------------------------------------------------------------ */

static int
is_name_start(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_' ||
        (ch & 0x80) != 0;
}

static int
is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

static int
hex_value(char ch)
{
    return is_digit(ch)          ? ch - '0'
        : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
        : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                 : -1;
}

/* Decode \xhh, \uhhhh or \Uhhhhhhhh at p, of n bytes. Returns the bytes read; 0: there is
 * no such escape. */
static size_t
lex_hex(struct lexer *x, const char *p, size_t n, char out[4], size_t *ret_n)
{
    size_t digits = p[1] == 'x' ? 2 : p[1] == 'u' ? 4 : p[1] == 'U' ? 8 : 0;
    uint32_t code = 0;

    if (digits == 0)
        return 0;
    for (size_t i = 0; i < digits; i++) {
        int v = i + 2 < n ? hex_value(p[i + 2]) : -1;

        if (v < 0 || code > 0x10ffff)
            val_fail(x->c, "line %d: bad escape in a string", x->line);
        code = code << 4 | (uint32_t)v;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        val_fail(x->c, "line %d: \\%c escape of an invalid code point", x->line, p[1]);
    *ret_n = val_code_put(code, out);
    return digits + 2;
}

static void
lex_unescape(struct lexer *x, struct tpl_tok *tok, const char *p, size_t n)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char *out = val_get(x->c, n + 1);
    size_t k = 0, got;

    for (size_t i = 0; i < n;) {
        const char *e;
        size_t took;

        if (p[i] != '\\' || i + 1 == n) {
            out[k++] = p[i++];
            continue;
        }
        if (p[i + 1] == '\n') {
            i += 2;
            continue;
        }
        e = p[i + 1] != '\0' ? strchr(from, p[i + 1]) : NULL;
        if (e != NULL) {
            out[k++] = to[e - from];
            i += 2;
            continue;
        }
        if (p[i + 1] >= '0' && p[i + 1] <= '7') {
            uint32_t code = 0;

            for (took = 1;
                 took < 4 && i + took < n && p[i + took] >= '0' && p[i + took] <= '7';
                 took++)
                code = code * 8 + (uint32_t)(p[i + took] - '0');
            k += val_code_put(code, out + k);
            i += took;
            continue;
        }
        took = lex_hex(x, p + i, n - i, out + k, &got);
        if (took > 0)
            k += got;
        else
            out[k++] = p[i];
        i += took > 0 ? took : 1;
    }
    tok->p = out;
    tok->n = k;
}

static void
lex_string(struct lexer *x)
{
    char quote = x->p[x->at];
    size_t from = x->at + 1, at = from;
    struct tpl_tok *tok;

    while (at < x->n && x->p[at] != quote)
        at += x->p[at] == '\\' && at + 1 < x->n ? 2 : 1;
    if (at >= x->n)
        val_fail(x->c, "line %d: unterminated string", x->line);
    tok = lex_add(x, TOK_STRING);
    lex_unescape(x, tok, x->p + from, at - from);
    lex_lines(x, from, at);
    x->at = at + 1;
}

/* Copies the digits at `at` to out, without single underscores between them. Returns the
 * position after the digits. */
static size_t
lex_digits(const struct lexer *x, size_t at, char *out, size_t *n, size_t room)
{
    while (at < x->n &&
        (is_digit(x->p[at]) ||
            (x->p[at] == '_' && at + 1 < x->n && is_digit(x->p[at + 1]) && *n > 0))) {
        if (x->p[at] != '_' && *n + 1 < room)
            out[(*n)++] = x->p[at];
        at++;
    }
    return at;
}

/* Reads a number like 0x1f, 0o17 or 0b11. Returns 0 if there is none. */
static int
lex_number_of_base(struct lexer *x)
{
    char mark = x->p[x->at] == '0' && x->at + 1 < x->n ? x->p[x->at + 1] | 0x20 : '\0';
    int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0, v;
    size_t at = x->at + 2;
    struct tpl_tok *tok;
    int64_t i = 0;

    if (base == 0 || at >= x->n || (v = hex_value(x->p[at])) < 0 || v >= base)
        return 0;
    for (; at < x->n; at++) {
        if (x->p[at] == '_')
            continue;
        v = hex_value(x->p[at]);
        if (v < 0 || v >= base)
            break;
        if (i > (INT64_MAX - v) / base)
            val_fail(x->c, "line %d: a number out of range", x->line);
        i = i * base + v;
    }
    tok = lex_add(x, TOK_INT);
    tok->p = x->p + x->at;
    tok->n = at - x->at;
    tok->i = i;
    x->at = at;
    return 1;
}

static void
lex_number(struct lexer *x)
{
    char text[64];
    size_t n = 0, at = lex_digits(x, x->at, text, &n, sizeof(text) - 16), e;
    struct tpl_tok *tok;
    int real = 0, is_index = x->at > 0 && x->p[x->at - 1] == '.';

    if (lex_number_of_base(x))
        return;
    if (!is_index && at + 1 < x->n && x->p[at] == '.' && is_digit(x->p[at + 1])) {
        real = 1;
        text[n++] = '.';
        at = lex_digits(x, at + 1, text, &n, sizeof(text) - 8);
    }
    e = !is_index && at < x->n && (x->p[at] == 'e' || x->p[at] == 'E') ? at + 1 : 0;
    if (e > 0 && e < x->n && (x->p[e] == '+' || x->p[e] == '-'))
        e++;
    if (e > 0 && e < x->n && is_digit(x->p[e])) {
        real = 1;
        text[n++] = 'e';
        if (!is_digit(x->p[e - 1]) && x->p[e - 1] != 'e' && x->p[e - 1] != 'E')
            text[n++] = x->p[e - 1];
        at = lex_digits(x, e, text, &n, sizeof(text));
    }
    text[n] = '\0';
    tok = lex_add(x, real ? TOK_FLOAT : TOK_INT);
    tok->p = x->p + x->at;
    tok->n = at - x->at;
    errno = 0;
    if (real)
        tok->f = strtod(text, NULL);
    else
        tok->i = strtoll(text, NULL, 10);
    if ((errno == ERANGE && !real) || n > 40)
        val_fail(x->c, "line %d: a number out of range", x->line);
    x->at = at;
}

static int
lex_operator(struct lexer *x)
{
    static const struct {
        char text[3];
        enum tok_op op;
    } ops[] = { { "//", OP_FLOORDIV }, { "**", OP_POW }, { "==", OP_EQ }, { "!=", OP_NE },
        { "<=", OP_LE }, { ">=", OP_GE }, { "+", OP_ADD }, { "-", OP_SUB },
        { "*", OP_MUL }, { "/", OP_DIV }, { "%", OP_MOD }, { "~", OP_CONCAT },
        { "<", OP_LT }, { ">", OP_GT }, { "=", OP_ASSIGN }, { ".", OP_DOT },
        { ",", OP_COMMA }, { ":", OP_COLON }, { "|", OP_PIPE }, { "(", OP_LPAREN },
        { ")", OP_RPAREN }, { "[", OP_LBRACKET }, { "]", OP_RBRACKET },
        { "{", OP_LBRACE }, { "}", OP_RBRACE } };

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        size_t n = strlen(ops[i].text);

        if (n <= x->n - x->at && memcmp(x->p + x->at, ops[i].text, n) == 0) {
            struct tpl_tok *tok = lex_add(x, TOK_OP);

            tok->op = ops[i].op;
            tok->p = x->p + x->at;
            tok->n = n;
            x->at += n;
            x->brackets +=
                tok->op == OP_LPAREN || tok->op == OP_LBRACKET || tok->op == OP_LBRACE;
            x->brackets -=
                tok->op == OP_RPAREN || tok->op == OP_RBRACKET || tok->op == OP_RBRACE;
            return 1;
        }
    }
    return 0;
}

/* Is the tag's end here? *ret_sign: its sign, or 0. */
static int
lex_at_end(const struct lexer *x, int print, char *ret_sign)
{
    size_t at = x->at;
    char first = print ? '}' : '%';

    *ret_sign = '\0';
    if (x->brackets > 0)
        return 0;
    if (at < x->n && (x->p[at] == '-' || (x->p[at] == '+' && !print))) {
        *ret_sign = x->p[at];
        at++;
    }
    return at + 1 < x->n && x->p[at] == first && x->p[at + 1] == '}';
}

static void
lex_tag(struct lexer *x, size_t tag, int print)
{
    char sign;

    (void)lex_add(x, print ? TOK_PRINT : TOK_BLOCK);
    x->at = tag + 2;
    x->brackets = 0;
    if (x->at < x->n && (x->p[x->at] == '-' || x->p[x->at] == '+'))
        x->at++;
    for (;;) {
        size_t at = lex_space(x, x->at);

        lex_lines(x, x->at, at);
        x->at = at;
        if (at >= x->n)
            val_fail(x->c, "line %d: a tag does not end", x->line);
        if (lex_at_end(x, print, &sign)) {
            (void)lex_add(x, print ? TOK_PRINT_END : TOK_BLOCK_END);
            x->at = lex_after(x, at + (sign != '\0' ? 3 : 2), sign, print);
            return;
        }
        if (x->p[at] == '"' || x->p[at] == '\'') {
            lex_string(x);
        } else if (is_digit(x->p[at])) {
            lex_number(x);
        } else if (is_name_start(x->p[at])) {
            struct tpl_tok *tok = lex_add(x, TOK_NAME);

            while (at < x->n && (is_name_start(x->p[at]) || is_digit(x->p[at])))
                at++;
            tok->p = x->p + x->at;
            tok->n = at - x->at;
            x->at = at;
        } else if (!lex_operator(x)) {
            val_fail(x->c, "line %d: unexpected char '%c'", x->line, x->p[at]);
        }
    }
}

/* Copy the text to x->p with \n for every line end, and without the last one. */
static void
lex_normalize(struct lexer *x, const char *text, size_t bytes)
{
    char *p = val_get(x->c, bytes + 1);
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n')
            continue;
        p[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (n > 0 && p[n - 1] == '\n')
        n--;
    x->p = p;
    x->n = n;
}

void
tpl_lex(struct val_ctx *c, struct template *t, const char *text, size_t bytes)
{
    struct lexer x = { .c = c, .t = t, .line = 1, .line_start = 1 };

    lex_normalize(&x, text, bytes);
    while (x.at < x.n) {
        size_t from = x.at, tag = lex_find_tag(&x, from), end = tag;
        int print = tag < x.n && x.p[tag + 1] == '{';

        if (tag < x.n)
            end = lex_strip(&x, from, tag, print);
        if (end > from) {
            struct tpl_tok *tok = lex_add(&x, TOK_TEXT);

            tok->p = x.p + from;
            tok->n = end - from;
        }
        lex_lines(&x, from, tag);
        if (tag == x.n)
            break;
        if (x.p[tag + 1] == '#')
            lex_comment(&x, tag);
        else if (print || !lex_raw(&x, tag))
            lex_tag(&x, tag, print);
    }
    (void)lex_add(&x, TOK_END);
}
