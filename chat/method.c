/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/eval.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <utf8proc.h>

const struct val_str *
rnd_need_text(struct render *r, struct val v, const char *what)
{
    if (v.type != VAL_STR)
        val_fail(&r->c, "%s must be str, not %s", what, val_type_name(v));
    return v.s;
}

int64_t
rnd_need_int(struct render *r, struct val v)
{
    if (v.type == VAL_BOOL)
        return v.b;
    if (v.type != VAL_INT)
        val_fail(&r->c, "'%s' object cannot be interpreted as an integer", val_type_name(v));
    return v.i;
}

/* Byte offset of `what` in s from `from` on; s->n: not found. */
static size_t
find_in(struct render *r, const struct val_str *s, size_t from, const struct val_str *what)
{
    const char *p;

    val_steps(&r->c, (s->n - from) / 64 + 1);
    p = what->n == 0 ? s->p + from : memmem(s->p + from, s->n - from, what->p, what->n);
    return p != NULL ? (size_t)(p - s->p) : s->n;
}

/* ---- stripping and splitting ------------------------------------------------------ */

static int
in_chars(const struct val_str *chars, const char *p, size_t n)
{
    return memmem(chars->p, chars->n, p, n) != NULL;
}

static struct val
stripped(struct render *r, struct val self, const struct rnd_args *a, int left, int right)
{
    const struct val_str *s = self.s, *chars = NULL;
    struct val by = rnd_arg(r, a, 0, "", val_none);
    size_t from = 0, end = s->n, n;

    rnd_args_end(r, "strip", a, 0, 1, "");
    if (by.type != VAL_NONE)
        chars = rnd_need_text(r, by, "strip arg");
    val_steps(&r->c, s->n / 64);
    while (left && from < end) {
        uint32_t code = val_code(s->p + from, end - from, &n);

        if (chars != NULL ? !in_chars(chars, s->p + from, n) : !val_is_space(code))
            break;
        from += n;
    }
    while (right && end > from) {
        size_t k = end - 1;
        uint32_t code;

        while (k > from && ((unsigned char)s->p[k] & 0xc0) == 0x80)
            k--;
        code = val_code(s->p + k, end - k, &n);
        if (chars != NULL ? !in_chars(chars, s->p + k, n) : !val_is_space(code))
            break;
        end = k;
    }
    return val_sub(&r->c, s, from, end - from);
}

static struct val
m_strip(struct render *r, struct val self, const struct rnd_args *a)
{
    return stripped(r, self, a, 1, 1);
}

static struct val
m_lstrip(struct render *r, struct val self, const struct rnd_args *a)
{
    return stripped(r, self, a, 1, 0);
}

static struct val
m_rstrip(struct render *r, struct val self, const struct rnd_args *a)
{
    return stripped(r, self, a, 0, 1);
}

struct pieces {
    struct val v;
    size_t room;
};

static void
piece(struct render *r, struct pieces *p, struct val v)
{
    val_push(&r->c, p->v.l, &p->room, v);
}

/* Split at runs of blanks, at most `most` times. */
static struct val
split_blank(struct render *r, const struct val_str *s, int64_t most)
{
    struct pieces out = { .v = val_list(&r->c, VAL_LIST, 0) };
    size_t at = 0, n;

    val_steps(&r->c, s->n / 16);
    for (;;) {
        size_t from;

        while (at < s->n && val_is_space(val_code(s->p + at, s->n - at, &n)))
            at += n;
        if (at == s->n)
            return out.v;
        from = at;
        if (most == 0) {
            piece(r, &out, val_sub(&r->c, s, from, s->n - from));
            return out.v;
        }
        while (at < s->n && !val_is_space(val_code(s->p + at, s->n - at, &n)))
            at += n;
        piece(r, &out, val_sub(&r->c, s, from, at - from));
        most -= most > 0;
    }
}

static struct val
m_split(struct render *r, struct val self, const struct rnd_args *a)
{
    struct val by = rnd_arg(r, a, 0, "sep", val_none);
    int64_t most = rnd_need_int(r, rnd_arg(r, a, 1, "maxsplit", val_int(-1)));
    struct pieces out = { .v = val_list(&r->c, VAL_LIST, 0) };
    const struct val_str *s = self.s, *sep;
    size_t at = 0;

    rnd_args_end(r, "split", a, 0, 2, "sep,maxsplit");
    if (by.type == VAL_NONE)
        return split_blank(r, s, most);
    sep = rnd_need_text(r, by, "split arg");
    if (sep->n == 0)
        val_fail(&r->c, "empty separator");
    for (; most != 0; most -= most > 0) {
        size_t k = find_in(r, s, at, sep);

        if (k == s->n)
            break;
        piece(r, &out, val_sub(&r->c, s, at, k - at));
        at = k + sep->n;
    }
    piece(r, &out, val_sub(&r->c, s, at, s->n - at));
    return out.v;
}

/* As split_blank(), from the end. */
static struct val
rsplit_blank(struct render *r, const struct val_str *s, int64_t most)
{
    struct pieces out = { .v = val_list(&r->c, VAL_LIST, 0) };
    struct rnd_args none = { 0 };
    struct val rest = val_sub(&r->c, s, 0, s->n);

    val_steps(&r->c, s->n / 16);
    for (;;) {
        size_t at, n;

        rest = m_rstrip(r, rest, &none);
        if (rest.s->n == 0 || most-- == 0)
            break;
        for (at = rest.s->n; at > 0; at = n) {
            n = at - 1;
            while (n > 0 && ((unsigned char)rest.s->p[n] & 0xc0) == 0x80)
                n--;
            if (val_is_space(val_code(rest.s->p + n, rest.s->n - n, &(size_t){ 0 })))
                break;
        }
        piece(r, &out, val_sub(&r->c, rest.s, at, rest.s->n - at));
        rest = val_sub(&r->c, rest.s, 0, at);
    }
    if (rest.s->n > 0)
        piece(r, &out, rest);
    val_reverse(out.v.l);
    return out.v;
}

static struct val
m_rsplit(struct render *r, struct val self, const struct rnd_args *a)
{
    struct val by = rnd_arg(r, a, 0, "sep", val_none);
    int64_t most = rnd_need_int(r, rnd_arg(r, a, 1, "maxsplit", val_int(-1)));
    struct pieces out = { .v = val_list(&r->c, VAL_LIST, 0) };
    const struct val_str *s = self.s, *sep;
    size_t end = s->n;

    rnd_args_end(r, "rsplit", a, 0, 2, "sep,maxsplit");
    if (most < 0)
        return m_split(r, self, a);
    if (by.type == VAL_NONE)
        return rsplit_blank(r, s, most);
    sep = rnd_need_text(r, by, "rsplit arg");
    if (sep->n == 0)
        val_fail(&r->c, "empty separator");
    for (; most > 0; most--) {
        size_t k = end;

        val_steps(&r->c, end / 64 + 1);
        while (k >= sep->n && memcmp(s->p + k - sep->n, sep->p, sep->n) != 0)
            k--;
        if (k < sep->n)
            break;
        piece(r, &out, val_sub(&r->c, s, k, end - k));
        end = k - sep->n;
    }
    piece(r, &out, val_sub(&r->c, s, 0, end));
    val_reverse(out.v.l);
    return out.v;
}

size_t
rnd_line_end(const struct val_str *s, size_t i)
{
    size_t n;
    uint32_t code = val_code(s->p + i, s->n - i, &n);

    if (code == '\r' && i + 1 < s->n && s->p[i + 1] == '\n')
        return 2;
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
            code == 0x2028 || code == 0x2029
        ? n
        : 0;
}

static struct val
m_splitlines(struct render *r, struct val self, const struct rnd_args *a)
{
    int keep = val_true(rnd_arg(r, a, 0, "keepends", val_bool(0)));
    struct pieces out = { .v = val_list(&r->c, VAL_LIST, 0) };
    const struct val_str *s = self.s;
    size_t from = 0, n;

    rnd_args_end(r, "splitlines", a, 0, 1, "keepends");
    val_steps(&r->c, s->n / 16);
    for (size_t i = 0; i < s->n; i += n) {
        size_t e = rnd_line_end(s, i);

        (void)val_code(s->p + i, s->n - i, &n);
        if (e == 0)
            continue;
        n = e;
        piece(r, &out, val_sub(&r->c, s, from, i - from + (keep ? e : 0)));
        from = i + e;
    }
    if (from < s->n)
        piece(r, &out, val_sub(&r->c, s, from, s->n - from));
    return out.v;
}

/* ---- searching --------------------------------------------------------------------- */

/* Sets *ret to the slice of self from the second argument to the third, in characters.
 * Returns 0 if the slice begins after its end, else 1. */
static int
part_of(struct render *r, struct val self, const struct rnd_args *a, struct val *ret,
    int64_t *ret_from)
{
    int64_t all = (int64_t)val_chars(self.s), bound[2] = { 0, all };
    size_t at, end;

    for (size_t i = 0; i < 2; i++) {
        struct val v = rnd_arg(r, a, i + 1, "", val_none);

        if (v.type == VAL_NONE)
            continue;
        bound[i] = rnd_need_int(r, v);
        if (bound[i] < 0)
            bound[i] = bound[i] + all < 0 ? 0 : bound[i] + all;
    }
    if (bound[1] > all)
        bound[1] = all;
    *ret_from = bound[0];
    if (bound[0] > bound[1])
        return 0;
    at = val_char_at(self.s, (size_t)bound[0]);
    end = val_char_at(self.s, (size_t)bound[1]);
    *ret = val_sub(&r->c, self.s, at, end - at);
    return 1;
}

static int
begins(const struct val_str *s, const struct val_str *with, int at_end)
{
    return with->n <= s->n &&
        memcmp(s->p + (at_end ? s->n - with->n : 0), with->p, with->n) == 0;
}

static struct val
begins_with(struct render *r, struct val self, const struct rnd_args *a, int at_end)
{
    struct val with = rnd_arg(r, a, 0, "", val_undef);
    int64_t from;
    int there;

    rnd_args_end(r, at_end ? "endswith" : "startswith", a, 1, 3, "");
    there = part_of(r, self, a, &self, &from);
    if (with.type == VAL_TUPLE) {
        for (size_t i = 0; i < with.l->n; i++)
            if (begins(self.s, rnd_need_text(r, with.l->at[i], "tuple for startswith"),
                    at_end))
                return val_bool(there);
        return val_bool(0);
    }
    return val_bool(
        begins(self.s, rnd_need_text(r, with, "startswith first arg"), at_end) && there);
}

static struct val
m_startswith(struct render *r, struct val self, const struct rnd_args *a)
{
    return begins_with(r, self, a, 0);
}

static struct val
m_endswith(struct render *r, struct val self, const struct rnd_args *a)
{
    return begins_with(r, self, a, 1);
}

/* Position of the first or last match, in characters; -1: none. */
static int64_t
place_of(struct render *r, struct val self, const struct rnd_args *a, int last)
{
    const struct val_str *what =
        rnd_need_text(r, rnd_arg(r, a, 0, "", val_undef), "find arg");
    const struct val_str *s;
    int64_t from;
    size_t k;

    rnd_args_end(r, "find", a, 1, 3, "");
    if (!part_of(r, self, a, &self, &from) || what->n > self.s->n)
        return -1;
    s = self.s;
    k = last ? s->n - what->n : find_in(r, s, 0, what);
    if (last) {
        val_steps(&r->c, s->n / 16 + 1);
        while (memcmp(s->p + k, what->p, what->n) != 0)
            if (k-- == 0)
                return -1;
    } else if (k == s->n && what->n > 0) {
        return -1;
    }
    return from + (int64_t)val_chars(val_sub(&r->c, s, 0, k).s);
}

static struct val
m_find(struct render *r, struct val self, const struct rnd_args *a)
{
    return val_int(place_of(r, self, a, 0));
}

static struct val
m_rfind(struct render *r, struct val self, const struct rnd_args *a)
{
    return val_int(place_of(r, self, a, 1));
}

static struct val
must_be_there(struct render *r, int64_t at)
{
    if (at < 0)
        val_fail(&r->c, "substring not found");
    return val_int(at);
}

static struct val
m_index(struct render *r, struct val self, const struct rnd_args *a)
{
    return must_be_there(r, place_of(r, self, a, 0));
}

static struct val
m_rindex(struct render *r, struct val self, const struct rnd_args *a)
{
    return must_be_there(r, place_of(r, self, a, 1));
}

static struct val
m_count(struct render *r, struct val self, const struct rnd_args *a)
{
    const struct val_str *what =
        rnd_need_text(r, rnd_arg(r, a, 0, "", val_undef), "count arg");
    int64_t n = 0, from;

    rnd_args_end(r, "count", a, 1, 3, "");
    if (!part_of(r, self, a, &self, &from))
        return val_int(0);
    if (what->n == 0)
        return val_int((int64_t)val_chars(self.s) + 1);
    for (size_t k = find_in(r, self.s, 0, what); k < self.s->n;
         k = find_in(r, self.s, k + what->n, what))
        n++;
    return val_int(n);
}

static struct val
m_replace(struct render *r, struct val self, const struct rnd_args *a)
{
    const struct val_str *old =
        rnd_need_text(r, rnd_arg(r, a, 0, "", val_undef), "replace arg");
    const struct val_str *new =
        rnd_need_text(r, rnd_arg(r, a, 1, "", val_undef), "replace arg");
    int64_t most = rnd_need_int(r, rnd_arg(r, a, 2, "count", val_int(-1)));
    const struct val_str *s = self.s;
    struct val_buf b = { 0 };
    size_t at = 0, n;

    rnd_args_end(r, "replace", a, 2, 3, "count");
    while (most != 0) {
        size_t k = old->n > 0 ? find_in(r, s, at, old) : at;

        if (old->n > 0 && k == s->n)
            break;
        val_add_str(&r->c, &b, val_sub(&r->c, s, at, k - at).s);
        val_add_str(&r->c, &b, new);
        at = k + old->n;
        most -= most > 0;
        if (old->n == 0) { /* before each character and after the last */
            if (at == s->n)
                return val_built(&r->c, &b);
            (void)val_code(s->p + at, s->n - at, &n);
            val_add_str(&r->c, &b, val_sub(&r->c, s, at, n).s);
            at += n;
        }
    }
    val_add_str(&r->c, &b, val_sub(&r->c, s, at, s->n - at).s);
    return val_built(&r->c, &b);
}

static struct val
m_removeprefix(struct render *r, struct val self, const struct rnd_args *a)
{
    const struct val_str *p =
        rnd_need_text(r, rnd_arg(r, a, 0, "", val_undef), "removeprefix arg");

    rnd_args_end(r, "removeprefix", a, 1, 1, "");
    return begins(self.s, p, 0) ? val_sub(&r->c, self.s, p->n, self.s->n - p->n) : self;
}

static struct val
m_removesuffix(struct render *r, struct val self, const struct rnd_args *a)
{
    const struct val_str *p =
        rnd_need_text(r, rnd_arg(r, a, 0, "", val_undef), "removesuffix arg");

    rnd_args_end(r, "removesuffix", a, 1, 1, "");
    return begins(self.s, p, 1) ? val_sub(&r->c, self.s, 0, self.s->n - p->n) : self;
}

/* ---- letters --------------------------------------------------------------------- */

static struct val
by_filter(struct render *r, struct val self, const struct rnd_args *a, const char *name)
{
    return rnd_filter(name, strlen(name))(r, self, a);
}

static struct val
m_upper(struct render *r, struct val self, const struct rnd_args *a)
{
    return by_filter(r, self, a, "upper");
}

static struct val
m_lower(struct render *r, struct val self, const struct rnd_args *a)
{
    return by_filter(r, self, a, "lower");
}

static struct val
m_capitalize(struct render *r, struct val self, const struct rnd_args *a)
{
    return by_filter(r, self, a, "capitalize");
}

static int
is_letter(uint32_t code)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)code);

    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static int
is_cased(uint32_t code)
{
    return utf8proc_toupper((utf8proc_int32_t)code) != (utf8proc_int32_t)code ||
        utf8proc_tolower((utf8proc_int32_t)code) != (utf8proc_int32_t)code;
}

/* str.title(): a letter after a character without case becomes upper case. */
static struct val
m_title(struct render *r, struct val self, const struct rnd_args *a)
{
    const struct val_str *s = self.s;
    struct val_buf b = { 0 };
    int first = 1;

    rnd_args_end(r, "title", a, 0, 0, "");
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t code = val_code(s->p + i, s->n - i, &n);
        utf8proc_int32_t to = first ? utf8proc_totitle((utf8proc_int32_t)code)
                                    : utf8proc_tolower((utf8proc_int32_t)code);
        char bytes[4];

        val_add(&r->c, &b, bytes, val_code_put((uint32_t)to, bytes),
            s->mark != NULL ? s->mark[i] : s->marked);
        first = !is_cased(code);
    }
    return val_built(&r->c, &b);
}

static int
is_digit(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND;
}

static int
is_alnum(uint32_t code)
{
    return is_letter(code) || is_digit(code);
}

static int
is_space(uint32_t code)
{
    return val_is_space(code);
}

static struct val
all_are(struct render *r, struct val self, const struct rnd_args *a, int (*is)(uint32_t))
{
    const struct val_str *s = self.s;

    rnd_args_end(r, "is", a, 0, 0, "");
    val_steps(&r->c, s->n / 16);
    for (size_t i = 0, n; i < s->n; i += n)
        if (!is(val_code(s->p + i, s->n - i, &n)))
            return val_bool(0);
    return val_bool(s->n > 0);
}

static struct val
m_isdigit(struct render *r, struct val self, const struct rnd_args *a)
{
    return all_are(r, self, a, is_digit);
}

static struct val
m_isalpha(struct render *r, struct val self, const struct rnd_args *a)
{
    return all_are(r, self, a, is_letter);
}

static struct val
m_isalnum(struct render *r, struct val self, const struct rnd_args *a)
{
    return all_are(r, self, a, is_alnum);
}

static struct val
m_isspace(struct render *r, struct val self, const struct rnd_args *a)
{
    return all_are(r, self, a, is_space);
}

static struct val
m_join(struct render *r, struct val self, const struct rnd_args *a)
{
    struct val_list *l = val_iter(&r->c, rnd_arg(r, a, 0, "", val_undef));
    struct val_buf b = { 0 };

    rnd_args_end(r, "join", a, 1, 1, "");
    for (size_t i = 0; i < l->n; i++) {
        if (l->at[i].type != VAL_STR)
            val_fail(&r->c, "sequence item %zu: expected str instance, %s found", i,
                val_type_name(l->at[i]));
        if (i > 0)
            val_add_str(&r->c, &b, self.s);
        val_add_str(&r->c, &b, l->at[i].s);
    }
    return val_built(&r->c, &b);
}

/* The value of {name.attr[key]}; p: the n bytes in the braces; *next: position for {}. */
static struct val
format_field(struct render *r, const char *p, size_t n, const struct rnd_args *a,
    size_t *next)
{
    size_t k = 0, i = 0;
    struct val v;

    while (k < n && p[k] != '.' && p[k] != '[')
        k++;
    for (size_t j = 0; j < k; j++)
        i = p[j] >= '0' && p[j] <= '9' && i < 1000
            ? i * 10 + (size_t)(p[j] - '0')
            : SIZE_MAX / 20;
    if (k == 0)
        i = (*next)++;
    if (i < 1000) {
        if (i >= a->n)
            val_fail(&r->c,
                "Replacement index %zu out of range for positional args tuple", i);
        v = a->at[i];
    } else {
        size_t q = 0;

        while (q < a->n_kw && !(a->kw[q].n == k && memcmp(a->kw[q].p, p, k) == 0))
            q++;
        if (q == a->n_kw)
            val_fail(&r->c, "'%.*s'", (int)(k < 64 ? k : 64), p);
        v = a->kw_at[q];
    }
    while (k < n) {
        size_t e = ++k;

        while (e < n && p[e] != '.' && p[e] != '[' && p[e] != ']')
            e++;
        v = p[k - 1] == '.' ? rnd_attr(r, v, p + k, e - k)
                            : rnd_item(r, v, val_str(&r->c, p + k, e - k, 0));
        k = e + (e < n && p[e] == ']');
    }
    return v;
}

/* Format one field: s is field!conversion:specification. */
static void
format_one(struct render *r, struct val_buf *b, const struct val_str *s,
    const struct rnd_args *a, size_t *next)
{
    const char *colon = s->n > 0 ? memchr(s->p, ':', s->n) : NULL;
    size_t n = colon != NULL ? (size_t)(colon - s->p) : s->n, field = n;
    struct val v, spec = val_text(&r->c, "");

    if (colon != NULL)
        spec = val_sub(&r->c, s, n + 1, s->n - n - 1);
    if (memchr(spec.s->p, '{', spec.s->n) != NULL)
        val_fail(&r->c, "format(): a field in a specification is not supported");
    if (n >= 2 && s->p[n - 2] == '!')
        field = n - 2;
    v = format_field(r, s->p, field, a, next);
    if (field < n && s->p[n - 1] == 'r') {
        struct val_buf text = { 0 };

        val_add_repr(&r->c, &text, v);
        v = val_built(&r->c, &text);
    } else if (field < n && s->p[n - 1] == 's') {
        v = val_to_str(&r->c, v);
    } else if (field < n) {
        val_fail(&r->c, "Unknown conversion specifier '%c'", s->p[n - 1]);
    }
    rnd_add_format(r, b, v, spec.s);
}

static struct val
m_format(struct render *r, struct val self, const struct rnd_args *a)
{
    const struct val_str *s = self.s;
    struct val_buf b = { 0 };
    size_t next = 0;

    for (size_t i = 0; i < s->n;) {
        const char *e;
        size_t n;

        if (s->p[i] != '{' && s->p[i] != '}') {
            val_add_str(&r->c, &b, val_sub(&r->c, s, i, 1).s);
            i++;
            continue;
        }
        if (i + 1 < s->n && s->p[i + 1] == s->p[i]) {
            val_add_str(&r->c, &b, val_sub(&r->c, s, i, 1).s);
            i += 2;
            continue;
        }
        e = s->p[i] == '{' ? memchr(s->p + i, '}', s->n - i) : NULL;
        if (e == NULL)
            val_fail(&r->c, "Single '%c' encountered in format string", s->p[i]);
        n = (size_t)(e - (s->p + i)) - 1;
        format_one(r, &b, val_sub(&r->c, s, i + 1, n).s, a, &next);
        i += n + 2;
    }
    return val_built(&r->c, &b);
}

/* ---- dictionaries and lists ---------------------------------------------------------- */

static struct val
m_items(struct render *r, struct val self, const struct rnd_args *a)
{
    struct val v = val_list(&r->c, VAL_LIST, self.d->n);

    rnd_args_end(r, "items", a, 0, 0, "");
    val_steps(&r->c, self.d->n);
    for (size_t i = 0; i < self.d->n; i++) {
        struct val t = val_list(&r->c, VAL_TUPLE, 2);

        t.l->n = 2;
        t.l->at[0] = self.d->at[i].key;
        t.l->at[1] = self.d->at[i].value;
        v.l->at[v.l->n++] = t;
    }
    return v;
}

static struct val
m_keys(struct render *r, struct val self, const struct rnd_args *a)
{
    rnd_args_end(r, "keys", a, 0, 0, "");
    return (struct val){ .type = VAL_LIST, .l = val_iter(&r->c, self) };
}

static struct val
m_values(struct render *r, struct val self, const struct rnd_args *a)
{
    struct val v = val_list(&r->c, VAL_LIST, self.d->n);

    rnd_args_end(r, "values", a, 0, 0, "");
    val_steps(&r->c, self.d->n);
    for (size_t i = 0; i < self.d->n; i++)
        v.l->at[v.l->n++] = self.d->at[i].value;
    return v;
}

static struct val
m_get(struct render *r, struct val self, const struct rnd_args *a)
{
    const struct val *v;

    rnd_args_end(r, "get", a, 1, 2, "");
    v = val_find(&r->c, self.d, a->at[0]);
    return v != NULL ? *v : a->n > 1 ? a->at[1] : val_none;
}

static struct val
m_copy(struct render *r, struct val self, const struct rnd_args *a)
{
    rnd_args_end(r, "copy", a, 0, 0, "");
    return self;
}

static struct val
m_list_index(struct render *r, struct val self, const struct rnd_args *a)
{
    rnd_args_end(r, "index", a, 1, 1, "");
    for (size_t i = 0; i < self.l->n; i++)
        if (val_equal(&r->c, self.l->at[i], a->at[0]))
            return val_int((int64_t)i);
    val_fail(&r->c, "value is not in list");
}

static struct val
m_list_count(struct render *r, struct val self, const struct rnd_args *a)
{
    int64_t n = 0;

    rnd_args_end(r, "count", a, 1, 1, "");
    for (size_t i = 0; i < self.l->n; i++)
        n += val_equal(&r->c, self.l->at[i], a->at[0]);
    return val_int(n);
}

/* A method that changes its object: transformers renders in an immutable sandbox. */
static struct val
m_unsafe(struct render *r, struct val self, const struct rnd_args *a)
{
    (void)a;
    val_fail(&r->c, "access to a method that changes a '%s' object is unsafe.",
        val_type_name(self));
}

/* ---- loop ------------------------------------------------------------------------ */

static struct val
m_cycle(struct render *r, struct val self, const struct rnd_args *a)
{
    if (a->n == 0)
        val_fail(&r->c, "no items for cycling given");
    return a->at[self.loop->i % a->n];
}

/* loop.changed(): do its arguments differ from those of the last call? */
static struct val
m_changed(struct render *r, struct val self, const struct rnd_args *a)
{
    struct val now = val_list(&r->c, VAL_TUPLE, a->n);
    struct val_list **was = self.loop->changed;
    int same;

    for (size_t i = 0; i < a->n; i++)
        now.l->at[now.l->n++] = a->at[i];
    same = *was != NULL &&
        val_equal(&r->c, now, (struct val){ .type = VAL_TUPLE, .l = *was });
    *was = now.l;
    return val_bool(!same);
}

/* ---- looking up ------------------------------------------------------------------------- */

struct val
rnd_bound(struct render *r, const struct rnd_named *m, size_t n_m, struct val obj,
    const char *name, size_t n)
{
    for (size_t i = 0; i < n_m; i++)
        if (val_is_name(m[i].name, name, n)) {
            struct val_call *c = val_get(&r->c, sizeof(*c));

            *c = (struct val_call){ .fn = m[i].fn, .name = m[i].name, .self = obj };
            return (struct val){ .type = VAL_METHOD, .call = c };
        }
    return val_undef;
}

struct val
rnd_method(struct render *r, struct val obj, const char *name, size_t n)
{
    static const struct rnd_named text[] = { { "capitalize", m_capitalize },
        { "center", rnd_str_center }, { "index", m_index }, { "islower", rnd_str_islower },
        { "isupper", rnd_str_isupper }, { "ljust", rnd_str_ljust },
        { "partition", rnd_str_partition }, { "rindex", m_rindex },
        { "rjust", rnd_str_rjust }, { "rpartition", rnd_str_rpartition },
        { "zfill", rnd_str_zfill }, { "count", m_count }, { "endswith", m_endswith },
        { "find", m_find }, { "format", m_format }, { "isalnum", m_isalnum },
        { "isalpha", m_isalpha }, { "isdigit", m_isdigit }, { "isnumeric", m_isdigit },
        { "isdecimal", m_isdigit }, { "isspace", m_isspace }, { "join", m_join },
        { "lower", m_lower }, { "lstrip", m_lstrip }, { "removeprefix", m_removeprefix },
        { "removesuffix", m_removesuffix }, { "replace", m_replace }, { "rfind", m_rfind },
        { "rsplit", m_rsplit }, { "rstrip", m_rstrip }, { "split", m_split },
        { "splitlines", m_splitlines }, { "startswith", m_startswith },
        { "strip", m_strip }, { "title", m_title }, { "upper", m_upper } };
    static const struct rnd_named dict[] = { { "copy", m_copy }, { "get", m_get },
        { "items", m_items }, { "keys", m_keys }, { "values", m_values },
        { "clear", m_unsafe }, { "pop", m_unsafe }, { "popitem", m_unsafe },
        { "setdefault", m_unsafe }, { "update", m_unsafe } };
    static const struct rnd_named list[] = { { "copy", m_copy }, { "count", m_list_count },
        { "index", m_list_index }, { "append", m_unsafe }, { "clear", m_unsafe },
        { "extend", m_unsafe }, { "insert", m_unsafe }, { "pop", m_unsafe },
        { "remove", m_unsafe }, { "reverse", m_unsafe }, { "sort", m_unsafe } };
    static const struct rnd_named tuple[] = { { "count", m_list_count },
        { "index", m_list_index } };
    static const struct rnd_named loop[] = { { "changed", m_changed },
        { "cycle", m_cycle } };

#define BOUND(m) rnd_bound(r, m, sizeof(m) / sizeof((m)[0]), obj, name, n)
    switch (obj.type) {
    case VAL_STR:
        return BOUND(text);
    case VAL_DICT:
        return BOUND(dict);
    case VAL_LIST:
        return obj.l->lazy ? val_undef : BOUND(list);
    case VAL_TUPLE:
        return BOUND(tuple);
    case VAL_LOOP:
        return BOUND(loop);
    default:
        return val_undef;
    }
#undef BOUND
}
