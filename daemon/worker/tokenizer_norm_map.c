/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Normalizers by a table of SentencePiece. */
#include "config.h"

#include "daemon/worker/tokenizer_norm.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/common/text.h"

#define MAP_GRAPHEME 6u /* graphemes of fewer bytes are looked up as a whole */
#define MAP_MAX_TEXT ((size_t)1 << 30)

/* ---- the double array ---- */

static uint32_t
map_offset(uint32_t cell)
{
    return cell >> 10 << ((cell & (1u << 9)) >> 6);
}

/*
 * Follows the edge for byte c, not 0, from a node; false: there is none. If an entry
 * ends there, *ret_text is the offset of its text, else -1.
 */
static bool
map_step(const struct tok_charsmap *m, uint32_t *node, uint8_t c, int64_t *ret_text)
{
    size_t at = *node ^ c;
    uint32_t cell;

    *ret_text = -1;
    if (!c || at >= m->n_cells)
        return false;
    cell = m->cell[at];
    if ((cell & 0x800000ffu) != c)
        return false;
    at ^= map_offset(cell);
    if (cell >> 8 & 1 && at < m->n_cells && (m->cell[at] & 0x7fffffffu) < m->n_text)
        *ret_text = m->cell[at] & 0x7fffffffu;
    *node = (uint32_t)at;
    return true;
}

/* The shortest or longest entry that s begins with: returns the offset of its text or
 * -1; *ret_n: its length. */
static int64_t
map_find(const struct tok_charsmap *m, const uint8_t *s, size_t n, bool longest,
    size_t *ret_n)
{
    uint32_t node = map_offset(m->cell[0]);
    int64_t found = -1, text;
    size_t i;

    for (i = 0; i < n && map_step(m, &node, s[i], &text); i++) {
        if (text < 0)
            continue;
        found = text;
        *ret_n = i + 1;
        if (!longest)
            break;
    }
    return found;
}

/* Whether no entry is just the ASCII character c, or begins with c and another ASCII
 * character. */
static bool
map_keeps(const struct tok_charsmap *m, uint8_t c)
{
    uint32_t node = map_offset(m->cell[0]), next;
    int64_t text;
    uint8_t more;

    if (!map_step(m, &node, c, &text))
        return true;
    for (more = 1; text < 0 && more < 128; more++) {
        int64_t unused;

        next = node;
        if (map_step(m, &next, more, &unused))
            return false;
    }
    return text < 0;
}

int
tok_charsmap_init(struct tok_charsmap *map, const uint8_t *blob, size_t n,
    const char **ret_why)
{
    uint32_t bytes = 0;
    unsigned c;

    *ret_why = "out of memory";
    if (n > 4)
        bytes = blob[0] | (uint32_t)blob[1] << 8 | (uint32_t)blob[2] << 16 |
            (uint32_t)blob[3] << 24;
    if (!bytes || bytes % 4 || bytes > n - 4 || n > MAP_MAX_TEXT) {
        *ret_why = "its first four bytes are not the size of a double array";
        return -EINVAL;
    }
    if (bytes == n - 4 || blob[n - 1] ||
        txt_utf8(blob + 4 + bytes, n - 4 - bytes) != n - 4 - bytes) {
        *ret_why = "no UTF-8 ended by NUL behind its double array";
        return -EINVAL;
    }
    map->n_cells = bytes / 4;
    map->n_text = n - 4 - bytes;
    map->cell = malloc(bytes);
    map->text = malloc(map->n_text);
    if (!map->cell || !map->text)
        return -ENOMEM;
    for (c = 0; c < map->n_cells; c++) {
        const uint8_t *p = blob + 4 + 4 * (size_t)c;
        map->cell[c] =
            p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }
    memcpy(map->text, blob + 4 + bytes, map->n_text);
    for (c = 0; c < 128; c++)
        map->keep[c] = map_keeps(map, (uint8_t)c);
    return 0;
}

void
tok_charsmap_fini(struct tok_charsmap *map)
{
    free(map->cell);
    free(map->text);
    *map = (struct tok_charsmap){ 0 };
}

static int
map_put(const struct tok_charsmap *m, int64_t text, struct tok_buf *out)
{
    const uint8_t *p = m->text + text;

    return tok_buf_put(out, p, strlen((const char *)p));
}

/* ---- graphemes, of which only those of less than MAP_GRAPHEME bytes matter ---- */

static bool
map_is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0xad || cp == 0x61c ||
        cp == 0x180e || cp == 0x200b || cp == 0x200e || cp == 0x200f ||
        (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2060 && cp <= 0x206f) ||
        cp == 0xfeff || (cp >= 0xfff0 && cp <= 0xfffb);
}

static bool
map_is_prepend(uint32_t cp)
{
    return cp >= 0x600 && tok_in(tok_tab_prepend, tok_n_prepend, cp);
}

static bool
map_extends(uint32_t cp)
{
    return cp >= 0x300 && tok_in(tok_tab_extend, tok_n_extend, cp);
}

/* Whether two adjacent Hangul letters or syllables join. */
static bool
map_hangul(uint32_t a, uint32_t b)
{
    bool lv = a >= 0xac00 && a <= 0xd7a3 && (a - 0xac00) % 28 == 0;
    bool lvt = a >= 0xac00 && a <= 0xd7a3 && !lv;

    if (a >= 0x1100 && a <= 0x115f)
        return (b >= 0x1100 && b <= 0x11a7) || (b >= 0xac00 && b <= 0xd7a3);
    if (lv || (a >= 0x1160 && a <= 0x11a7))
        return b >= 0x1160 && b <= 0x11ff;
    return (lvt || (a >= 0x11a8 && a <= 0x11ff)) && b >= 0x11a8 && b <= 0x11ff;
}

/* The length of the grapheme at the beginning of s, n > 0. */
static size_t
map_grapheme(const uint8_t *s, size_t n)
{
    uint32_t last, cp;
    size_t i = tok_utf8_get(s, &last), len;

    if (last == '\r')
        return i < n && s[i] == '\n' ? 2 : 1;
    while (i < n && !map_is_control(last)) {
        len = tok_utf8_get(s + i, &cp);
        if (!map_extends(cp) && !map_hangul(last, cp) &&
            (!map_is_prepend(last) || map_is_control(cp)))
            break;
        i += len;
        last = cp;
    }
    return i;
}

/* Maps one grapheme: by the first entry it begins with, or character by character, until
 * out has more than limit bytes (-E2BIG). */
static int
map_one(const struct tok_charsmap *m, const uint8_t *s, size_t n, size_t limit,
    struct tok_buf *out)
{
    size_t i, len, used;
    int64_t text;
    uint32_t cp;
    int rc = 0;

    if (n < MAP_GRAPHEME && (text = map_find(m, s, n, false, &used)) >= 0)
        return map_put(m, text, out);
    for (i = 0; !rc && i < n; i += len) {
        len = tok_utf8_get(s + i, &cp);
        text = map_find(m, s + i, len, false, &used);
        rc = text >= 0 ? map_put(m, text, out) : tok_buf_put(out, s + i, len);
        if (out->n > limit)
            return -E2BIG;
    }
    return rc;
}

int
tok_norm_map(const struct tok_charsmap *map, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out)
{
    size_t at = 0, end, was = out->n, limit = was + TOK_NORM_LIMIT(n);
    int rc = 0;

    while (!rc && at < n) {
        /* ASCII before ASCII is a grapheme, unless it is a CR */
        for (end = at; end + 1 < n && s[end] < 0x80 && s[end + 1] < 0x80 &&
             map->keep[s[end]] && s[end] != '\r';)
            end++;
        rc = tok_buf_put(out, s + at, end - at);
        at = end;
        end += map_grapheme(s + at, n - at);
        rc = rc ? rc : map_one(map, s + at, end - at, limit, out);
        if (!at && out->n == was && !run->later)
            run->cut_off = true;
        if (out->n > limit)
            return -E2BIG;
        at = end;
    }
    return rc;
}

/* ---- SentencePiece's own normalizer ---- */

/* Replaces the beginning of s by its longest entry, or keeps one character. Returns the
 * bytes used of s. */
static size_t
map_next(const struct tok_charsmap *m, const uint8_t *s, size_t n, const uint8_t **ret,
    size_t *ret_n)
{
    size_t used = 0;
    int64_t text = m->n_cells ? map_find(m, s, n, true, &used) : -1;
    uint32_t cp;

    if (text < 0) {
        *ret = s;
        *ret_n = tok_utf8_get(s, &cp);
        return *ret_n;
    }
    *ret = m->text + text;
    *ret_n = strlen((const char *)*ret);
    return used;
}

int
tok_norm_sentencepiece(const struct tok_norm_op *op, struct tok_norm_run *run,
    const uint8_t *s, size_t n, struct tok_buf *out)
{
    static const char mark[] = "\xe2\x96\x81";
    const char *space = op->escape ? mark : " ";
    size_t len = strlen(space), at = 0, from, n_to, i, limit = out->n + TOK_NORM_LIMIT(n);
    bool after = op->one_space, begun = run->later || !op->dummy_prefix;
    const uint8_t *to;

    if (tok_buf_room(out, n + n / 2 + len))
        return -ENOMEM;
    for (from = out->n; at < n;) {
        /* bytes that are kept: neither a space nor the beginning of an entry */
        for (i = at; begun && i < n && s[i] < 0x80 && s[i] != ' ' &&
             (!op->map.n_cells || (op->map.keep[s[i]] && (i + 1 == n || s[i + 1] < 0x80)));)
            i++;
        if (i > at) {
            if (tok_buf_put(out, s + at, i - at))
                return -ENOMEM;
            at = i;
            after = false;
            continue;
        }
        at += map_next(&op->map, s + at, n - at, &to, &n_to);
        for (i = 0; i < n_to; i++) {
            bool is = to[i] == ' ';

            if (is && after && op->one_space)
                continue;
            if (!begun && tok_buf_put(out, space, len))
                return -ENOMEM;
            begun = true;
            after = is && op->one_space;
            if (is ? tok_buf_put(out, space, len) : tok_buf_put(out, &to[i], 1))
                return -ENOMEM;
        }
        if (out->n > limit)
            return -E2BIG;
    }
    /* the prefix is added before any of the text is removed */
    if (!begun && n > 0 && !op->one_space && tok_buf_put(out, space, len))
        return -ENOMEM;
    while (op->one_space && out->n - from >= len &&
        !memcmp(out->p + out->n - len, space, len))
        out->n -= len;
    return 0;
}
