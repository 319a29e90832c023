/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static struct val eval(struct render *r, const struct tpl_node *n);
static enum flow run_body(struct render *r, const struct tpl_body *b);
static enum flow
run_loop(struct render *r, const struct tpl_node *n, struct val_list *l, int depth);

static void
deeper(struct render *r)
{
    val_steps(&r->c, 1);
    if (--r->c.depth < 0)
        val_fail(&r->c, "nested too deeply");
}

void
rnd_undefined(struct render *r, struct val v)
{
    val_fail(&r->c, "'%.*s' is undefined", v.s != NULL ? (int)v.s->n : 0,
        v.s != NULL ? v.s->p : "");
}

/* ---- scopes --------------------------------------------------------------------- */

static int
name_is(struct tpl_name a, const char *p, size_t n)
{
    return a.n == n && memcmp(a.p, p, n) == 0;
}

static struct rnd_var *
scope_find(struct render *r, const struct rnd_scope *s, const char *p, size_t n)
{
    val_steps(&r->c, s->n / 8);
    for (size_t i = 0; i < s->n; i++)
        if (name_is(s->at[i].name, p, n))
            return &s->at[i];
    return NULL;
}

void
rnd_set(struct render *r, struct rnd_scope *s, struct tpl_name name, struct val v)
{
    struct rnd_var *var = scope_find(r, s, name.p, name.n), *was = s->at;

    if (var != NULL) {
        var->value = v;
        return;
    }
    if (s->n == s->room) {
        s->room = s->room > 0 ? 2 * s->room : 8;
        s->at = val_array(&r->c, s->room, sizeof(*s->at));
        if (s->n > 0)
            memcpy(s->at, was, s->n * sizeof(*was));
    }
    s->at[s->n++] = (struct rnd_var){ name, v };
}

static struct val
lookup(struct render *r, const char *p, size_t n)
{
    struct val v;

    for (const struct rnd_scope *s = r->scope; s != NULL; s = s->up) {
        const struct rnd_var *var = scope_find(r, s, p, n);

        if (var != NULL)
            return var->value;
    }
    v = rnd_global(r, p, n);
    return v.type != VAL_UNDEF ? v : val_undefined(&r->c, p, n);
}

static struct rnd_scope *
scope_push(struct render *r, struct rnd_scope *up)
{
    struct rnd_scope *s = val_get(&r->c, sizeof(*s)), *was = r->scope;

    s->up = up;
    r->scope = s;
    return was;
}

/* ---- attributes and items -------------------------------------------------------- */

static struct val
loop_attr(struct render *r, const struct tpl_loop *l, const char *p, size_t n)
{
    int64_t i = (int64_t)l->i, all = (int64_t)l->l->n;
    const struct {
        const char *name;
        struct val v;
    } attrs[] = { { "index", val_int(i + 1) }, { "index0", val_int(i) },
        { "first", val_bool(i == 0) }, { "last", val_bool(i + 1 == all) },
        { "length", val_int(all) }, { "revindex", val_int(all - i) },
        { "revindex0", val_int(all - i - 1) }, { "depth", val_int(l->depth) },
        { "depth0", val_int(l->depth - 1) } };

    if (val_is_name("previtem", p, n))
        return i > 0 ? l->l->at[i - 1]
                     : val_undefined(&r->c, "there is no previous item", 25);
    if (val_is_name("nextitem", p, n))
        return i + 1 < all ? l->l->at[i + 1]
                           : val_undefined(&r->c, "there is no next item", 21);
    for (size_t k = 0; k < sizeof(attrs) / sizeof(attrs[0]); k++)
        if (val_is_name(attrs[k].name, p, n))
            return attrs[k].v;
    return val_undef;
}

static struct val
no_attr(struct render *r, struct val obj, const char *p, size_t n)
{
    struct val_buf b = { 0 };
    struct val v;

    val_add_text(&r->c, &b, val_type_name(obj));
    val_add_text(&r->c, &b, " object' has no attribute '");
    val_add(&r->c, &b, p, n < 64 ? n : 64, 0);
    v = val_built(&r->c, &b);
    v.type = VAL_UNDEF;
    return v;
}

/* Attributes of the Python type (methods) come before keys. */
struct val
rnd_attr(struct render *r, struct val obj, const char *p, size_t n)
{
    const struct val_str name = { .n = n, .p = p };
    struct val v;
    const struct val *found;

    if (obj.type == VAL_UNDEF)
        rnd_undefined(r, obj);
    if (obj.type == VAL_LOOP) {
        v = loop_attr(r, obj.loop, p, n);
        if (v.type != VAL_UNDEF || v.s != NULL)
            return v;
    }
    if (obj.type != VAL_NAMESPACE) {
        v = rnd_method(r, obj, p, n);
        if (v.type != VAL_UNDEF)
            return v;
    }
    if (obj.type == VAL_TUPLE && obj.l->group && val_is_name("grouper", p, n))
        return obj.l->at[0];
    if (obj.type == VAL_TUPLE && obj.l->group && val_is_name("list", p, n))
        return obj.l->at[1];
    if (obj.type == VAL_DICT || obj.type == VAL_NAMESPACE) {
        found = val_find(&r->c, obj.d, (struct val){ .type = VAL_STR, .s = &name });
        if (found != NULL)
            return *found;
    }
    return no_attr(r, obj, p, n);
}

static struct val
index_of(struct render *r, struct val obj, int64_t i)
{
    int64_t n = obj.type == VAL_STR ? (int64_t)val_chars(obj.s) : (int64_t)obj.l->n;
    size_t from;

    i = i < 0 ? i + n : i;
    if (i < 0 || i >= n)
        return val_undefined(&r->c, "list index out of range", 23);
    if (obj.type != VAL_STR)
        return obj.l->at[i];
    val_steps(&r->c, obj.s->n / 64);
    from = val_char_at(obj.s, (size_t)i);
    return val_sub(&r->c, obj.s, from, val_char_at(obj.s, (size_t)i + 1) - from);
}

struct val
rnd_item(struct render *r, struct val obj, struct val key)
{
    const struct val *found;

    if (obj.type == VAL_UNDEF)
        rnd_undefined(r, obj);
    if (obj.type == VAL_DICT) {
        found = val_find(&r->c, obj.d, key);
        if (found != NULL)
            return *found;
    } else if (obj.type == VAL_STR ||
        ((obj.type == VAL_LIST || obj.type == VAL_TUPLE) && !obj.l->lazy)) {
        if (rnd_is_int(key))
            return index_of(r, obj, rnd_int(key));
    }
    if (key.type == VAL_STR) {
        struct val v = obj.type == VAL_LOOP ? loop_attr(r, obj.loop, key.s->p, key.s->n)
            : obj.type == VAL_NAMESPACE || (obj.type == VAL_TUPLE && obj.l->group)
            ? rnd_attr(r, obj, key.s->p, key.s->n)
            : rnd_method(r, obj, key.s->p, key.s->n);

        if (v.type != VAL_UNDEF)
            return v;
        return no_attr(r, obj, key.s->p, key.s->n);
    }
    return val_undefined(&r->c, "no such element", 15);
}

/* A bound of a slice, clipped as in Python. */
static int64_t
slice_bound(struct render *r, const struct tpl_node *n, int64_t all, int64_t fallback,
    int64_t least, int64_t most)
{
    struct val v;
    int64_t i;

    if (n == NULL)
        return fallback;
    v = eval(r, n);
    if (v.type == VAL_NONE)
        return fallback;
    if (v.type == VAL_UNDEF)
        rnd_undefined(r, v);
    if (!rnd_is_int(v))
        val_fail(&r->c, "slice indices must be integers or None");
    i = rnd_int(v);
    i = i < 0 ? i + all : i;
    return i < least ? least : i > most ? most : i;
}

static struct val
slice_of(struct render *r, struct val obj, const struct tpl_node *n)
{
    int text = obj.type == VAL_STR;
    struct val_list *l;
    struct val v, step = n->c != NULL ? eval(r, n->c) : val_none;
    int64_t all, by = 1, from, to;

    if (obj.type == VAL_UNDEF)
        rnd_undefined(r, obj);
    if (!text && obj.type != VAL_LIST && obj.type != VAL_TUPLE)
        return val_undefined(&r->c, "a slice of a value that has none", 32);
    if (step.type != VAL_NONE) {
        if (!rnd_is_int(step))
            val_fail(&r->c, "slice indices must be integers or None");
        by = rnd_int(step);
        if (by == 0)
            val_fail(&r->c, "slice step cannot be zero");
    }
    l = val_iter(&r->c, obj);
    all = (int64_t)l->n;
    from = slice_bound(r, n->a, all, by > 0 ? 0 : all - 1, by > 0 ? 0 : -1,
        by > 0 ? all : all - 1);
    to = slice_bound(r, n->b, all, by > 0 ? all : -1, by > 0 ? 0 : -1,
        by > 0 ? all : all - 1);
    if (text && by == 1) {
        size_t a = val_char_at(obj.s, (size_t)from), z = val_char_at(obj.s, (size_t)to);

        return val_sub(&r->c, obj.s, a, z > a ? z - a : 0);
    }
    v = val_list(&r->c, text ? VAL_LIST : obj.type, l->n);
    for (int64_t i = from; by > 0 ? i < to : i > to;) {
        v.l->at[v.l->n++] = l->at[i];
        if (__builtin_add_overflow(i, by, &i))
            break;
    }
    val_steps(&r->c, v.l->n);
    if (text) {
        struct val_buf b = { 0 };

        for (size_t i = 0; i < v.l->n; i++)
            val_add_str(&r->c, &b, v.l->at[i].s);
        return val_built(&r->c, &b);
    }
    return v;
}

/* ---- calls ------------------------------------------------------------------------ */

struct val
rnd_arg(struct render *r, const struct rnd_args *a, size_t i, const char *name,
    struct val fallback)
{
    for (size_t k = 0; k < a->n_kw; k++)
        if (name_is(a->kw[k], name, strlen(name))) {
            if (i < a->n)
                val_fail(&r->c, "got multiple values for argument '%s'", name);
            return a->kw_at[k];
        }
    return i < a->n ? a->at[i] : fallback;
}

static int
in_names(const char *names, struct tpl_name name)
{
    for (const char *p = names; *p != '\0';) {
        const char *e = strchrnul(p, ',');

        if (name_is(name, p, (size_t)(e - p)))
            return 1;
        p = *e == ',' ? e + 1 : e;
    }
    return 0;
}

void
rnd_args_end(struct render *r, const char *fn, const struct rnd_args *a, size_t least,
    size_t most, const char *names)
{
    if (a->n + a->n_kw < least || a->n > most)
        val_fail(&r->c, "%s() takes %zu to %zu arguments, %zu given", fn, least, most,
            a->n + a->n_kw);
    for (size_t k = 0; k < a->n_kw; k++)
        if (!in_names(names, a->kw[k]))
            val_fail(&r->c, "%s() got an unexpected keyword argument '%.*s'", fn,
                (int)(a->kw[k].n < 64 ? a->kw[k].n : 64), a->kw[k].p);
}

/* Append a dict's entries (**kwargs) to the keyword arguments. */
static void
add_keywords(struct render *r, struct rnd_args *v, struct val d)
{
    struct tpl_name *kw;
    struct val *at;

    if (d.type != VAL_DICT)
        val_fail(&r->c, "argument after ** must be a mapping, not %s", val_type_name(d));
    kw = val_array(&r->c, v->n_kw + d.d->n + 1, sizeof(*kw));
    at = val_array(&r->c, v->n_kw + d.d->n + 1, sizeof(*at));
    for (size_t i = 0; i < v->n_kw; i++) {
        kw[i] = v->kw[i];
        at[i] = v->kw_at[i];
    }
    for (size_t i = 0; i < d.d->n; i++) {
        struct val key = d.d->at[i].key;

        if (key.type != VAL_STR)
            val_fail(&r->c, "keywords must be strings");
        kw[v->n_kw + i] = (struct tpl_name){ key.s->p, key.s->n };
        at[v->n_kw + i] = d.d->at[i].value;
    }
    v->kw = kw;
    v->kw_at = at;
    v->n_kw += d.d->n;
}

static struct rnd_args
eval_args(struct render *r, const struct tpl_args *a)
{
    struct rnd_args v = { .n = a->n, .n_kw = a->n_kw, .kw = a->kw };

    struct val_list *rest = a->rest != NULL ? val_iter(&r->c, eval(r, a->rest)) : NULL;

    v.n += rest != NULL ? rest->n : 0;
    v.at = v.n > 0 ? val_array(&r->c, v.n, sizeof(*v.at)) : NULL;
    v.kw_at = a->n_kw > 0 ? val_array(&r->c, a->n_kw, sizeof(*v.kw_at)) : NULL;
    for (size_t i = 0; i < a->n; i++)
        v.at[i] = eval(r, a->at[i]);
    for (size_t i = a->n; i < v.n; i++)
        v.at[i] = rest->at[i - a->n];
    for (size_t i = 0; i < a->n_kw; i++)
        v.kw_at[i] = eval(r, a->kw_at[i]);
    if (a->more != NULL)
        add_keywords(r, &v, eval(r, a->more));
    return v;
}

/* The rendered text of a body. */
static struct val
captured(struct render *r, const struct tpl_body *body)
{
    struct val_buf out = { .limit = RND_MAX_BYTES }, *was = r->out;

    r->out = &out;
    (void)run_body(r, body);
    r->out = was;
    return val_built(&r->c, &out);
}

/* Index of the macro's parameter of this name; n->n_names: none. */
static size_t
macro_param(const struct tpl_node *n, struct tpl_name name)
{
    size_t i = 0;

    while (i < n->n_names && !name_is(n->names[i], name.p, name.n))
        i++;
    return i;
}

/* Set a macro's parameters; defaults are evaluated in the scope of the call. */
static void
macro_params(struct render *r, const struct val_call *m, const struct rnd_args *a)
{
    const struct tpl_node *n = m->macro;
    size_t given = a->n < n->n_names ? a->n : n->n_names;

    if (a->n > n->n_names && !(n->extra & TPL_VARARGS))
        val_fail(&r->c, "macro '%.*s' takes not more than %zu argument(s)", (int)n->n,
            n->p, n->n_names);
    for (size_t i = 0; i < given; i++)
        rnd_set(r, r->scope, n->names[i], a->at[i]);
    for (size_t k = 0; k < a->n_kw; k++) {
        size_t i = macro_param(n, a->kw[k]);

        if (i < given)
            val_fail(&r->c, "macro '%.*s' got multiple values for '%.*s'", (int)n->n,
                n->p, (int)a->kw[k].n, a->kw[k].p);
        if (i < n->n_names)
            rnd_set(r, r->scope, n->names[i], a->kw_at[k]);
        else if (!name_is(a->kw[k], "caller", 6) || !(n->extra & TPL_CALLER))
            if (!(n->extra & TPL_KWARGS))
                val_fail(&r->c, "macro '%.*s' takes no keyword argument '%.*s'",
                    (int)n->n, n->p, (int)a->kw[k].n, a->kw[k].p);
    }
    for (size_t i = given; i < n->n_names; i++) {
        size_t d = n->n_names - n->n_at;

        if (scope_find(r, r->scope, n->names[i].p, n->names[i].n) != NULL)
            continue;
        rnd_set(r, r->scope, n->names[i],
            i >= d ? eval(r, n->at[i - d])
                   : val_undefined(&r->c, n->names[i].p, n->names[i].n));
    }
}

/* Set the variables caller, kwargs and varargs, each if the macro's body reads it. */
static void
macro_extra(struct render *r, const struct tpl_node *n, const struct rnd_args *a)
{
    struct val caller = val_undefined(&r->c, "No caller defined", 17), kw = val_dict(&r->c);
    size_t rest = a->n > n->n_names ? a->n - n->n_names : 0;
    struct val more = val_list(&r->c, VAL_TUPLE, rest);

    for (size_t i = 0; i < rest; i++)
        more.l->at[more.l->n++] = a->at[n->n_names + i];
    for (size_t k = 0; k < a->n_kw; k++) {
        size_t i = macro_param(n, a->kw[k]);

        if (i == n->n_names && (n->extra & TPL_CALLER) && name_is(a->kw[k], "caller", 6))
            caller = a->kw_at[k];
        else if (i == n->n_names)
            val_put(&r->c, kw.d, val_str(&r->c, a->kw[k].p, a->kw[k].n, 0), a->kw_at[k]);
    }
    if (n->extra & TPL_CALLER)
        rnd_set(r, r->scope, (struct tpl_name){ "caller", 6 }, caller);
    if (n->extra & TPL_KWARGS)
        rnd_set(r, r->scope, (struct tpl_name){ "kwargs", 6 }, kw);
    if (n->extra & TPL_VARARGS)
        rnd_set(r, r->scope, (struct tpl_name){ "varargs", 7 }, more);
}

static struct val
call_macro(struct render *r, const struct val_call *m, const struct rnd_args *a)
{
    struct rnd_scope *was = scope_push(r, m->scope);
    struct val v;

    macro_params(r, m, a);
    if (m->macro->extra != 0)
        macro_extra(r, m->macro, a);
    v = captured(r, &m->macro->body);
    r->scope = was;
    return v;
}

/* loop(list), of a recursive loop: the text of the loop run over other elements. */
static struct val
call_loop(struct render *r, const struct tpl_loop *loop, const struct rnd_args *a)
{
    struct rnd_scope *was = r->scope;
    struct val_buf out = { .limit = RND_MAX_BYTES }, *out_was = r->out;

    if (!(loop->node->extra & TPL_RECURSIVE))
        val_fail(&r->c,
            "The loop must have the 'recursive' marker to be called recursively.");
    rnd_args_end(r, "loop", a, 1, 1, "iterable");
    r->scope = loop->scope;
    r->out = &out;
    (void)run_loop(r, loop->node,
        val_iter(&r->c, rnd_arg(r, a, 0, "iterable", val_undef)), loop->depth + 1);
    r->out = out_was;
    r->scope = was;
    return val_built(&r->c, &out);
}

struct val
rnd_call(struct render *r, struct val fn, const struct rnd_args *a)
{
    struct val v;

    if (fn.type == VAL_UNDEF)
        rnd_undefined(r, fn);
    if (fn.type != VAL_FUNC && fn.type != VAL_METHOD && fn.type != VAL_MACRO &&
        fn.type != VAL_LOOP)
        val_fail(&r->c, "'%s' object is not callable", val_type_name(fn));
    deeper(r);
    v = fn.type == VAL_MACRO  ? call_macro(r, fn.call, a)
        : fn.type == VAL_LOOP ? call_loop(r, fn.loop, a)
                              : fn.call->fn(r, fn.call->self, a);
    r->c.depth++;
    return v;
}

/* ---- expressions ------------------------------------------------------------------- */

static struct val
eval_elements(struct render *r, const struct tpl_node *n, enum val_type type)
{
    struct val v = val_list(&r->c, type, n->n_at);

    for (size_t i = 0; i < n->n_at; i++)
        v.l->at[v.l->n++] = eval(r, n->at[i]);
    return v;
}

static struct val
eval_dict(struct render *r, const struct tpl_node *n)
{
    struct val v = val_dict(&r->c);

    for (size_t i = 0; i + 1 < n->n_at; i += 2) {
        struct val key = eval(r, n->at[i]);

        val_put(&r->c, v.d, key, eval(r, n->at[i + 1]));
    }
    return v;
}

static struct val
eval_compare(struct render *r, const struct tpl_node *n)
{
    struct val a = eval(r, n->at[0]);

    for (size_t i = 1; i < n->n_at; i++) {
        struct val b = eval(r, n->at[i]);

        if (!rnd_compare(r, n->ops[i - 1], a, b))
            return val_bool(0);
        a = b;
    }
    return val_bool(1);
}

static struct val
eval_filter(struct render *r, const struct tpl_node *n, const struct val *block)
{
    struct val v = n->a != NULL
        ? (block != NULL ? eval_filter(r, n->a, block) : eval(r, n->a))
        : *block;
    struct rnd_args a = eval_args(r, n->args);
    rnd_filter_fn *fn = rnd_filter(n->p, n->n);

    if (fn == NULL)
        val_fail(&r->c, "line %d: No filter named '%.*s'.", n->line, (int)n->n, n->p);
    return fn(r, v, &a);
}

static struct val
eval_test(struct render *r, const struct tpl_node *n)
{
    struct val v = eval(r, n->a);
    struct rnd_args a = eval_args(r, n->args);
    rnd_test_fn *fn = rnd_test(n->p, n->n);

    if (fn == NULL)
        val_fail(&r->c, "line %d: No test named '%.*s'.", n->line, (int)n->n, n->p);
    return val_bool(fn(r, v, &a));
}

static struct val
eval_sign(struct render *r, const struct tpl_node *n)
{
    struct val v = eval(r, n->a);

    if (v.type == VAL_UNDEF)
        rnd_undefined(r, v);
    if (v.type == VAL_FLOAT)
        return val_float(n->kind == NODE_NEG ? -v.f : v.f);
    if (!rnd_is_int(v))
        val_fail(&r->c, "bad operand type for unary %s: '%s'",
            n->kind == NODE_NEG ? "-" : "+", val_type_name(v));
    return n->kind == NODE_POS ? val_int(rnd_int(v)) : rnd_binary(r, OP_SUB, val_int(0), v);
}

static struct val
eval_call(struct render *r, const struct tpl_node *n)
{
    struct val fn = eval(r, n->a);
    struct rnd_args a = eval_args(r, n->args);

    return rnd_call(r, fn, &a);
}

static struct val
eval_item(struct render *r, const struct tpl_node *n)
{
    struct val obj = eval(r, n->a);

    return n->b->kind == NODE_SLICE
        ? slice_of(r, obj, n->b)
        : rnd_item(r, obj, eval(r, n->b));
}

static struct val
eval_kind(struct render *r, const struct tpl_node *n)
{
    struct val v;

    switch (n->kind) {
    case NODE_CONST:
        return n->value;
    case NODE_NAME:
        return lookup(r, n->p, n->n);
    case NODE_LIST:
        return eval_elements(r, n, VAL_LIST);
    case NODE_TUPLE:
        return eval_elements(r, n, VAL_TUPLE);
    case NODE_DICT:
        return eval_dict(r, n);
    case NODE_ATTR:
        return rnd_attr(r, eval(r, n->a), n->p, n->n);
    case NODE_ITEM:
        return eval_item(r, n);
    case NODE_CALL:
        return eval_call(r, n);
    case NODE_FILTER:
        return eval_filter(r, n, NULL);
    case NODE_TEST:
        return eval_test(r, n);
    case NODE_NOT:
        return val_bool(!val_true(eval(r, n->a)));
    case NODE_NEG:
    case NODE_POS:
        return eval_sign(r, n);
    case NODE_BINARY:
        v = eval(r, n->a);
        return rnd_binary(r, n->op, v, eval(r, n->b));
    case NODE_COMPARE:
        return eval_compare(r, n);
    case NODE_AND:
        v = eval(r, n->a);
        return val_true(v) ? eval(r, n->b) : v;
    case NODE_OR:
        v = eval(r, n->a);
        return val_true(v) ? v : eval(r, n->b);
    case NODE_COND:
        if (val_true(eval(r, n->a)))
            return eval(r, n->b);
        return n->c != NULL ? eval(r, n->c)
                            : val_undefined(&r->c, "the inline if has no else", 25);
    default:
        val_fail(&r->c, "line %d: not an expression", n->line);
    }
}

static struct val
eval(struct render *r, const struct tpl_node *n)
{
    struct val v;

    deeper(r);
    v = eval_kind(r, n);
    r->c.depth++;
    return v;
}

/* ---- statements ---------------------------------------------------------------------- */

static void
assign(struct render *r, const struct tpl_node *target, struct val v)
{
    struct val_list *l;
    struct val ns;

    if (target->kind == NODE_NAME) {
        rnd_set(r, r->scope, (struct tpl_name){ target->p, target->n }, v);
        return;
    }
    if (target->kind == NODE_ATTR) {
        ns = eval(r, target->a);
        if (ns.type != VAL_NAMESPACE)
            val_fail(&r->c, "cannot assign attribute on non-namespace object");
        val_put(&r->c, ns.d, val_str(&r->c, target->p, target->n, 0), v);
        return;
    }
    l = val_iter(&r->c, v);
    if (l->n != target->n_at)
        val_fail(&r->c,
            l->n > target->n_at ? "too many values to unpack (expected %zu)"
                                : "not enough values to unpack (expected %zu, got %zu)",
            target->n_at, l->n);
    for (size_t i = 0; i < target->n_at; i++)
        assign(r, target->at[i], l->at[i]);
}

/* The elements for which the condition of {% for .. if .. %} holds. */
static struct val_list *
filtered(struct render *r, const struct tpl_node *n, struct val_list *l)
{
    struct val kept = val_list(&r->c, VAL_LIST, l->n);

    for (size_t i = 0; i < l->n; i++) {
        struct rnd_scope *was = scope_push(r, r->scope);

        assign(r, n->a, l->at[i]);
        if (val_true(eval(r, n->c)))
            kept.l->at[kept.l->n++] = l->at[i];
        r->scope = was;
    }
    return kept.l;
}

static enum flow
run_loop(struct render *r, const struct tpl_node *n, struct val_list *l, int depth)
{
    struct rnd_scope *was = r->scope, *scope = NULL;
    struct tpl_loop *loop;
    enum flow f = FLOW_ON;

    if (n->c != NULL)
        l = filtered(r, n, l);
    loop = val_get(&r->c, sizeof(*loop));
    *loop = (struct tpl_loop){ .l = l,
        .depth = depth,
        .node = n,
        .scope = was,
        .changed = val_get(&r->c, sizeof(*loop->changed)) };
    for (; loop->i < l->n && f != FLOW_BREAK; loop->i++) {
        /* each turn has new variables; the scope is reused unless a macro keeps it */
        if (scope == NULL || scope->kept) {
            (void)scope_push(r, was);
            scope = r->scope;
        }
        scope->n = 0;
        r->scope = scope;
        rnd_set(r, r->scope, (struct tpl_name){ "loop", 4 },
            (struct val){ .type = VAL_LOOP, .loop = loop });
        assign(r, n->a, l->at[loop->i]);
        f = run_body(r, &n->body);
        r->scope = was;
    }
    if (l->n > 0)
        return FLOW_ON;
    return run_body(r, &n->other);
}

static enum flow
run_for(struct render *r, const struct tpl_node *n)
{
    return run_loop(r, n, val_iter(&r->c, eval(r, n->b)), 1);
}

static struct val
new_macro(struct render *r, const struct tpl_node *n)
{
    struct val_call *m = val_get(&r->c, sizeof(*m));

    *m = (struct val_call){ .macro = n, .scope = r->scope };
    for (struct rnd_scope *s = r->scope; s != NULL && !s->kept; s = s->up)
        s->kept = 1;
    return (struct val){ .type = VAL_MACRO, .call = m };
}

static void
run_macro(struct render *r, const struct tpl_node *n)
{
    rnd_set(r, r->scope, (struct tpl_name){ n->p, n->n }, new_macro(r, n));
}

static void
run_call_block(struct render *r, const struct tpl_node *n)
{
    struct val caller = new_macro(r, n->b), fn = eval(r, n->a->a);
    struct rnd_args a = eval_args(r, n->a->args);
    struct tpl_name *kw = val_array(&r->c, a.n_kw + 1, sizeof(*kw));
    struct val *at = val_array(&r->c, a.n_kw + 1, sizeof(*at));

    for (size_t i = 0; i < a.n_kw; i++) {
        kw[i] = a.kw[i];
        at[i] = a.kw_at[i];
    }
    kw[a.n_kw] = (struct tpl_name){ "caller", 6 };
    at[a.n_kw++] = caller;
    a.kw = kw;
    a.kw_at = at;
    val_add_value(&r->c, r->out, rnd_call(r, fn, &a));
}

/* {% with %}: the values are evaluated in the outer scope. */
static enum flow
run_with(struct render *r, const struct tpl_node *n)
{
    struct rnd_scope *was = r->scope, *scope;
    enum flow f;

    (void)scope_push(r, was);
    scope = r->scope;
    for (size_t i = 0; i + 1 < n->n_at; i += 2) {
        struct val v;

        r->scope = was;
        v = eval(r, n->at[i + 1]);
        r->scope = scope;
        assign(r, n->at[i], v);
    }
    r->scope = scope;
    f = run_body(r, &n->body);
    r->scope = was;
    return f;
}

/* The text of a block, rendered in a scope of its own. */
static struct val
run_block(struct render *r, const struct tpl_node *n)
{
    struct rnd_scope *was = scope_push(r, r->scope);
    struct val v = captured(r, &n->body);

    r->scope = was;
    return n->b != NULL ? eval_filter(r, n->b, &v) : v;
}

static enum flow
run(struct render *r, const struct tpl_node *n)
{
    struct rnd_scope *was;
    enum flow f;

    switch (n->kind) {
    case NODE_TEXT:
        val_add(&r->c, r->out, n->p, n->n, 0);
        return FLOW_ON;
    case NODE_PRINT:
        val_add_value(&r->c, r->out, eval(r, n->a));
        return FLOW_ON;
    case NODE_FOR:
        return run_for(r, n);
    case NODE_IF:
        return run_body(r, val_true(eval(r, n->a)) ? &n->body : &n->other);
    case NODE_SET:
        assign(r, n->a, eval(r, n->b));
        return FLOW_ON;
    case NODE_SET_BLOCK:
        assign(r, n->a, run_block(r, n));
        return FLOW_ON;
    case NODE_FILTER_BLOCK:
        val_add_value(&r->c, r->out, run_block(r, n));
        return FLOW_ON;
    case NODE_MACRO:
        run_macro(r, n);
        return FLOW_ON;
    case NODE_GENERATION:
        was = scope_push(r, r->scope);
        f = run_body(r, &n->body);
        r->scope = was;
        return f;
    case NODE_CALL_BLOCK:
        run_call_block(r, n);
        return FLOW_ON;
    case NODE_WITH:
        return run_with(r, n);
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        val_fail(&r->c, "line %d: not a statement", n->line);
    }
}

static enum flow
run_body(struct render *r, const struct tpl_body *b)
{
    enum flow f = FLOW_ON;

    deeper(r);
    for (size_t i = 0; i < b->n && f == FLOW_ON; i++)
        f = run(r, b->at[i]);
    r->c.depth++;
    return f;
}

void
rnd_run(struct render *r, const struct template *t)
{
    (void)run_body(r, &t->body);
}
