/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Global functions of templates. */
#include "config.h"

#include "chat/eval.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void
put_entries(struct render *r, struct val_dict *d, const struct val_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct val_list *entry = val_iter(&r->c, l->at[i]);

        if (entry->n != 2)
            val_fail(&r->c,
                "dictionary update sequence element #%zu has length %zu; 2 is required",
                i, entry->n);
        val_put(&r->c, d, entry->at[0], entry->at[1]);
    }
}

static struct val
keywords(struct render *r, struct val self, const struct rnd_args *a, enum val_type type)
{
    struct val v = val_dict(&r->c);

    (void)self;
    if (a->n > 1)
        val_fail(&r->c, "dict expected at most 1 argument, got %zu", a->n);
    if (a->n == 1 && a->at[0].type != VAL_DICT)
        put_entries(r, v.d, val_iter(&r->c, a->at[0]));
    for (size_t i = 0; a->n == 1 && a->at[0].type == VAL_DICT && i < a->at[0].d->n; i++)
        val_put(&r->c, v.d, a->at[0].d->at[i].key, a->at[0].d->at[i].value);
    for (size_t i = 0; i < a->n_kw; i++)
        val_put(&r->c, v.d, val_str(&r->c, a->kw[i].p, a->kw[i].n, 0), a->kw_at[i]);
    v.type = type;
    return v;
}

static struct val
g_namespace(struct render *r, struct val self, const struct rnd_args *a)
{
    return keywords(r, self, a, VAL_NAMESPACE);
}

static struct val
g_dict(struct render *r, struct val self, const struct rnd_args *a)
{
    return keywords(r, self, a, VAL_DICT);
}

/* joiner(): its result is empty when first called, then its text. */
static struct val
g_joined(struct render *r, struct val self, const struct rnd_args *a)
{
    struct val used = val_text(&r->c, "used");

    rnd_args_end(r, "joiner", a, 0, 0, "");
    if (val_find(&r->c, self.d, used) != NULL)
        return *val_find(&r->c, self.d, val_text(&r->c, "sep"));
    val_put(&r->c, self.d, used, val_none);
    return val_text(&r->c, "");
}

static struct val
g_joiner(struct render *r, struct val self, const struct rnd_args *a)
{
    struct val_call *c = val_get(&r->c, sizeof(*c));

    rnd_args_end(r, "joiner", a, 0, 1, "sep");
    self = val_dict(&r->c);
    val_put(&r->c, self.d, val_text(&r->c, "sep"),
        rnd_arg(r, a, 0, "sep", val_text(&r->c, ", ")));
    *c = (struct val_call){ .fn = g_joined, .name = "joiner", .self = self };
    return (struct val){ .type = VAL_FUNC, .call = c };
}

#define RANGE_MAX 100000 /* MAX_RANGE of Jinja's sandbox */
static struct val
g_range(struct render *r, struct val self, const struct rnd_args *a)
{
    int64_t from = 0, to, by = 1, n;
    struct val v;

    (void)self;
    rnd_args_end(r, "range", a, 1, 3, "");
    to = rnd_need_int(r, a->at[a->n > 1]);
    if (a->n > 1)
        from = rnd_need_int(r, a->at[0]);
    if (a->n > 2)
        by = rnd_need_int(r, a->at[2]);
    if (by == 0)
        val_fail(&r->c, "range() arg 3 must not be zero");
    if (from < -(1ll << 60) || from > 1ll << 60 || to < -(1ll << 60) || to > 1ll << 60 ||
        by < -(1ll << 60) || by > 1ll << 60)
        val_fail(&r->c, "Range too big.");
    n = by > 0 ? (to - from + by - 1) / by : (from - to - by - 1) / -by;
    n = (by > 0 ? to > from : to < from) ? n : 0;
    if (n > RANGE_MAX)
        val_fail(&r->c,
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
            RANGE_MAX);
    val_steps(&r->c, (uint64_t)n);
    v = val_list(&r->c, VAL_LIST, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        v.l->at[v.l->n++] = val_int(from + i * by);
    return v;
}

static struct val
g_raise(struct render *r, struct val self, const struct rnd_args *a)
{
    const struct val_str *s =
        val_to_str(&r->c, rnd_arg(r, a, 0, "message", val_text(&r->c, ""))).s;

    (void)self;
    if (s->n == 0 || s->p[0] == '\0')
        val_fail(&r->c, "the template refuses the conversation without a message");
    val_fail(&r->c, "%.*s", (int)(s->n < VAL_ERR ? s->n : VAL_ERR), s->p);
}

static struct val
g_strftime(struct render *r, struct val self, const struct rnd_args *a)
{
    const struct val_str *f =
        rnd_need_text(r, rnd_arg(r, a, 0, "format", val_undef), "format");
    char form[256], out[1024];
    time_t t = (time_t)r->now_s;
    struct tm tm;
    size_t n = 0;

    (void)self;
    rnd_args_end(r, "strftime_now", a, 1, 1, "format");
    if (f->n >= sizeof(form) || localtime_r(&t, &tm) == NULL)
        val_fail(&r->c, "strftime_now: the format is too long");
    for (size_t i = 0; i < f->n; i++) {
        int two = f->p[i] == '%' && i + 1 < f->n;

        /* the time has no zone, as in Python: %Z and %z give nothing */
        if (two && (f->p[i + 1] == 'Z' || f->p[i + 1] == 'z')) {
            i++;
            continue;
        }
        form[n++] = f->p[i];
        if (two)
            form[n++] = f->p[++i];
    }
    form[n] = '\0';
    n = strftime(out, sizeof(out), form, &tm);
    return val_str(&r->c, memcpy(val_get(&r->c, n + 1), out, n), n, 0);
}

struct val
rnd_global(struct render *r, const char *name, size_t n)
{
    static const struct rnd_named all[] = { { "dict", g_dict }, { "joiner", g_joiner },
        { "namespace", g_namespace }, { "raise_exception", g_raise },
        { "range", g_range }, { "strftime_now", g_strftime } };
    struct val v = rnd_bound(r, all, sizeof(all) / sizeof(all[0]), val_none, name, n);

    if (val_is_name("self", name, n)) /* of blocks, which are not supported: empty */
        return (struct val){ .type = VAL_NAMESPACE, .d = val_dict(&r->c).d };
    if (v.type == VAL_METHOD)
        v.type = VAL_FUNC;
    return v;
}
