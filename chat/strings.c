/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Filters and methods that few templates use. */
#include "config.h"

#include "chat/eval.h"

#include <string.h>

#include <utf8proc.h>

#define MOST_WIDTH 1000000 /* of a padded text */

static int64_t
count_of(struct render *r, struct val v, int64_t least)
{
    int64_t n = rnd_is_int(v) ? rnd_int(v) : least - 1;

    if (n < least)
        val_fail(&r->c, "expected an integer of at least %lld", (long long)least);
    return n;
}

static void
check_width(struct render *r, int64_t width)
{
    if (width > MOST_WIDTH)
        val_fail(&r->c, "the template takes too much memory");
}

/* ---- groups ------------------------------------------------------------------------- */

struct val
rnd_batch(struct render *r, struct val v, const struct rnd_args *a)
{
    int64_t most = count_of(r, rnd_arg(r, a, 0, "linecount", val_undef), 1);
    struct val fill = rnd_arg(r, a, 1, "fill_with", val_none), one = val_none;
    struct val_list *l = val_iter(&r->c, v);
    struct val out = val_list(&r->c, VAL_LIST, l->n);
    size_t room = 0;

    rnd_args_end(r, "batch", a, 1, 2, "linecount,fill_with");
    for (size_t i = 0; i < l->n; i++) {
        if (i % (uint64_t)most == 0) {
            one = val_list(&r->c, VAL_LIST, 0);
            out.l->at[out.l->n++] = one;
            room = 0;
        }
        val_push(&r->c, one.l, &room, l->at[i]);
    }
    val_steps(&r->c, l->n);
    while (l->n > 0 && fill.type != VAL_NONE && one.l->n < (uint64_t)most) {
        val_steps(&r->c, 1);
        val_push(&r->c, one.l, &room, fill);
    }
    out.l->lazy = 1;
    return out;
}

struct val
rnd_slice(struct render *r, struct val v, const struct rnd_args *a)
{
    int64_t n = count_of(r, rnd_arg(r, a, 0, "slices", val_undef), 1);
    struct val fill = rnd_arg(r, a, 1, "fill_with", val_none);
    struct val_list *l = val_iter(&r->c, v);
    int64_t each = (int64_t)l->n / n, more = (int64_t)l->n % n;
    struct val out = val_list(&r->c, VAL_LIST, 0);
    size_t room = 0, at = 0;

    rnd_args_end(r, "slice", a, 1, 2, "slices,fill_with");
    for (int64_t i = 0; i < n; i++) {
        struct val one = val_list(&r->c, VAL_LIST, (size_t)each + 1);

        val_steps(&r->c, (uint64_t)each + 1);
        for (int64_t k = 0; k < each + (i < more); k++)
            one.l->at[one.l->n++] = l->at[at++];
        if (fill.type != VAL_NONE && i >= more)
            one.l->at[one.l->n++] = fill;
        val_push(&r->c, out.l, &room, one);
    }
    out.l->lazy = 1;
    return out;
}

/* The filter attr: obj.name, which never looks up obj['name']. */
struct val
rnd_attr_filter(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val name = rnd_arg(r, a, 0, "name", val_undef);

    rnd_args_end(r, "attr", a, 1, 1, "name");
    if (name.type != VAL_STR)
        val_fail(&r->c, "attr: the name must be a string");
    if (v.type == VAL_UNDEF)
        rnd_undefined(r, v);
    if (v.type != VAL_DICT)
        return rnd_attr(r, v, name.s->p, name.s->n);
    v = rnd_method(r, v, name.s->p, name.s->n);
    return v.type != VAL_UNDEF ? v : val_undefined(&r->c, name.s->p, name.s->n);
}

/* ---- columns -------------------------------------------------------------------------- */

static struct val
padded(struct render *r, struct val self, const struct rnd_args *a, char align)
{
    int64_t width = count_of(r, rnd_arg(r, a, 0, "", val_undef), INT64_MIN + 1);
    struct val fill = rnd_arg(r, a, 1, "", val_text(&r->c, " "));
    size_t n;

    rnd_args_end(r, "a method", a, 1, 2, "");
    if (fill.type != VAL_STR || val_chars(fill.s) != 1)
        val_fail(&r->c, "The fill character must be exactly one character long");
    check_width(r, width);
    return rnd_padded(r, self.s, width, val_code(fill.s->p, fill.s->n, &n), align);
}

struct val
rnd_str_center(struct render *r, struct val self, const struct rnd_args *a)
{
    return padded(r, self, a, '^');
}

struct val
rnd_str_ljust(struct render *r, struct val self, const struct rnd_args *a)
{
    return padded(r, self, a, '<');
}

struct val
rnd_str_rjust(struct render *r, struct val self, const struct rnd_args *a)
{
    return padded(r, self, a, '>');
}

struct val
rnd_str_zfill(struct render *r, struct val self, const struct rnd_args *a)
{
    int64_t width = count_of(r, rnd_arg(r, a, 0, "", val_undef), INT64_MIN + 1);
    size_t sign = self.s->n > 0 && (self.s->p[0] == '-' || self.s->p[0] == '+');
    struct val_buf b = { 0 };

    rnd_args_end(r, "zfill", a, 1, 1, "");
    check_width(r, width);
    val_add_str(&r->c, &b, val_sub(&r->c, self.s, 0, sign).s);
    val_add_str(&r->c, &b,
        rnd_padded(r, val_sub(&r->c, self.s, sign, self.s->n - sign).s,
            width - (int64_t)sign, '0', '>')
            .s);
    return val_built(&r->c, &b);
}

struct val
rnd_center(struct render *r, struct val v, const struct rnd_args *a)
{
    int64_t width = count_of(r, rnd_arg(r, a, 0, "width", val_int(80)), INT64_MIN + 1);

    rnd_args_end(r, "center", a, 0, 1, "width");
    check_width(r, width);
    return rnd_padded(r, val_to_str(&r->c, v).s, width, ' ', '^');
}

/* ---- within texts --------------------------------------------------------------------- */

static int
in_run(uint32_t code)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)code);

    return code == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
        (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

/* Counts the runs of letters, digits and _. */
struct val
rnd_wordcount(struct render *r, struct val v, const struct rnd_args *a)
{
    const struct val_str *s = val_to_str(&r->c, v).s;
    int64_t count = 0;
    int was = 0;

    rnd_args_end(r, "wordcount", a, 0, 0, "");
    val_steps(&r->c, s->n / 16);
    for (size_t i = 0, n; i < s->n; i += n) {
        int is = in_run(val_code(s->p + i, s->n - i, &n));

        count += is && !was;
        was = is;
    }
    return val_int(count);
}

struct val
rnd_truncate(struct render *r, struct val v, const struct rnd_args *a)
{
    int64_t most = count_of(r, rnd_arg(r, a, 0, "length", val_int(255)), 0);
    int kill = val_true(rnd_arg(r, a, 1, "killwords", val_bool(0)));
    struct val end = rnd_arg(r, a, 2, "end", val_text(&r->c, "..."));
    struct val leeway = rnd_arg(r, a, 3, "leeway", val_int(5));
    struct val_buf b = { 0 };
    size_t n;

    rnd_args_end(r, "truncate", a, 0, 4, "length,killwords,end,leeway");
    leeway = leeway.type == VAL_NONE ? val_int(5) : leeway;
    if (v.type != VAL_STR && val_iter(&r->c, v)->n <= (uint64_t)most + 5)
        return v;
    if (v.type != VAL_STR || end.type != VAL_STR)
        val_fail(&r->c, "truncate: expected a string, got %s",
            val_type_name(v.type != VAL_STR ? v : end));
    if (most < (int64_t)val_chars(end.s) || most > INT64_MAX / 2)
        val_fail(&r->c, "truncate: no room for its end");
    if ((int64_t)val_chars(v.s) <= most + count_of(r, leeway, 0))
        return v;
    n = val_char_at(v.s, (size_t)most - val_chars(end.s));
    for (size_t i = n; i > 0 && !kill; i--)
        if (v.s->p[i - 1] == ' ') {
            n = i - 1;
            break;
        }
    val_add_str(&r->c, &b, val_sub(&r->c, v.s, 0, n).s);
    val_add_str(&r->c, &b, end.s);
    return val_built(&r->c, &b);
}

static struct val
three(struct render *r, struct val a, struct val b, struct val c)
{
    struct val v = val_list(&r->c, VAL_TUPLE, 3);

    v.l->at[v.l->n++] = a;
    v.l->at[v.l->n++] = b;
    v.l->at[v.l->n++] = c;
    return v;
}

static struct val
partition(struct render *r, struct val self, const struct rnd_args *a, int last)
{
    struct val sep = rnd_arg(r, a, 0, "", val_undef), none = val_text(&r->c, "");
    const struct val_str *s = self.s;

    rnd_args_end(r, "partition", a, 1, 1, "");
    if (sep.type != VAL_STR)
        val_fail(&r->c, "must be str, not %s", val_type_name(sep));
    if (sep.s->n == 0)
        val_fail(&r->c, "empty separator");
    val_steps(&r->c, s->n / 16 + 1);
    for (size_t i = 0; sep.s->n <= s->n && i <= s->n - sep.s->n; i++) {
        size_t k = last ? s->n - sep.s->n - i : i;

        if (memcmp(s->p + k, sep.s->p, sep.s->n) == 0)
            return three(r, val_sub(&r->c, s, 0, k), sep,
                val_sub(&r->c, s, k + sep.s->n, s->n - k - sep.s->n));
    }
    return last ? three(r, none, none, self) : three(r, self, none, none);
}

struct val
rnd_str_partition(struct render *r, struct val self, const struct rnd_args *a)
{
    return partition(r, self, a, 0);
}

struct val
rnd_str_rpartition(struct render *r, struct val self, const struct rnd_args *a)
{
    return partition(r, self, a, 1);
}

static struct val
of_case(struct render *r, struct val self, const struct rnd_args *a, int upper)
{
    int any = 0;

    rnd_args_end(r, "a method", a, 0, 0, "");
    val_steps(&r->c, self.s->n / 16);
    for (size_t i = 0, n; i < self.s->n; i += n) {
        utf8proc_category_t k = utf8proc_category(
            (utf8proc_int32_t)val_code(self.s->p + i, self.s->n - i, &n));

        if (k == UTF8PROC_CATEGORY_LT ||
            k == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU))
            return val_bool(0);
        any |= k == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
    }
    return val_bool(any);
}

struct val
rnd_str_isupper(struct render *r, struct val self, const struct rnd_args *a)
{
    return of_case(r, self, a, 1);
}

struct val
rnd_str_islower(struct render *r, struct val self, const struct rnd_args *a)
{
    return of_case(r, self, a, 0);
}
