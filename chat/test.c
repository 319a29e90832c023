/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/eval.h"

#include <string.h>

static struct val
call_filter(struct render *r, const char *name, struct val v)
{
    struct rnd_args none = { 0 };

    return rnd_filter(name, strlen(name))(r, v, &none);
}

static struct val
test_arg(struct render *r, const struct rnd_args *a)
{
    rnd_args_end(r, "a test", a, 1, 1, "other,num,seq,value");
    return a->n > 0 ? a->at[0] : a->kw_at[0];
}

#define TEST(name, cond) \
    static int t_##name(struct render *r, struct val v, const struct rnd_args *a) \
    { \
        (void)r; \
        (void)a; \
        return (cond); \
    }
TEST(defined, v.type != VAL_UNDEF)
TEST(undefined, v.type == VAL_UNDEF)
TEST(none, v.type == VAL_NONE)
TEST(string, v.type == VAL_STR)
TEST(mapping, v.type == VAL_DICT)
TEST(number, val_is_number(v))
TEST(integer, v.type == VAL_INT || v.type == VAL_BIG)
TEST(float, v.type == VAL_FLOAT)
TEST(boolean, v.type == VAL_BOOL)
TEST(true, v.type == VAL_BOOL && v.b)
TEST(false, v.type == VAL_BOOL && !v.b)
TEST(callable,
    v.type == VAL_FUNC || v.type == VAL_METHOD || v.type == VAL_MACRO ||
        v.type == VAL_LOOP || v.type == VAL_UNDEF)
TEST(iterable,
    v.type == VAL_STR || v.type == VAL_LIST || v.type == VAL_TUPLE ||
        v.type == VAL_DICT || v.type == VAL_UNDEF || v.type == VAL_LOOP)
TEST(sequence,
    v.type == VAL_STR || ((v.type == VAL_LIST || v.type == VAL_TUPLE) && !v.l->lazy) ||
        v.type == VAL_DICT || v.type == VAL_UNDEF)
TEST(escaped, rnd_is_safe(v))
TEST(filter, v.type == VAL_STR && rnd_filter(v.s->p, v.s->n) != NULL)
TEST(test, v.type == VAL_STR && rnd_test(v.s->p, v.s->n) != NULL)
TEST(eq, val_equal(&r->c, v, test_arg(r, a)))
TEST(ne, !val_equal(&r->c, v, test_arg(r, a)))
TEST(lt, val_compare(&r->c, v, test_arg(r, a)) < 0)
TEST(le, val_compare(&r->c, v, test_arg(r, a)) <= 0)
TEST(gt, val_compare(&r->c, v, test_arg(r, a)) > 0)
TEST(ge, val_compare(&r->c, v, test_arg(r, a)) >= 0)
TEST(in, val_contains(&r->c, test_arg(r, a), v))
TEST(lower,
    v.type == VAL_STR && val_equal(&r->c, v, call_filter(r, "lower", v)) &&
        !val_equal(&r->c, v, call_filter(r, "upper", v)))
TEST(upper,
    v.type == VAL_STR && val_equal(&r->c, v, call_filter(r, "upper", v)) &&
        !val_equal(&r->c, v, call_filter(r, "lower", v)))
#undef TEST

static int
rest_of_two(struct render *r, struct val v, int64_t is)
{
    return val_equal(&r->c, rnd_binary(r, OP_MOD, v, val_int(2)), val_int(is));
}

static int
t_odd(struct render *r, struct val v, const struct rnd_args *a)
{
    (void)a;
    return rest_of_two(r, v, 1);
}

static int
t_even(struct render *r, struct val v, const struct rnd_args *a)
{
    (void)a;
    return rest_of_two(r, v, 0);
}

static int
t_divisibleby(struct render *r, struct val v, const struct rnd_args *a)
{
    return !val_true(rnd_binary(r, OP_MOD, v, test_arg(r, a)));
}

static int
t_sameas(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val b = test_arg(r, a);

    if (v.type != b.type)
        return 0;
    return v.type <= VAL_FLOAT || v.type == VAL_STR ? val_equal(&r->c, v, b) : v.d == b.d;
}

rnd_test_fn *
rnd_test(const char *name, size_t n)
{
    static const struct {
        const char *name;
        rnd_test_fn *fn;
    } all[] = { { "!=", t_ne }, { "<", t_lt }, { "<=", t_le }, { "==", t_eq },
        { ">", t_gt }, { ">=", t_ge }, { "boolean", t_boolean },
        { "callable", t_callable }, { "defined", t_defined },
        { "divisibleby", t_divisibleby }, { "eq", t_eq }, { "escaped", t_escaped },
        { "filter", t_filter }, { "test", t_test }, { "equalto", t_eq },
        { "even", t_even }, { "false", t_false }, { "float", t_float }, { "ge", t_ge },
        { "greaterthan", t_gt }, { "gt", t_gt }, { "in", t_in }, { "integer", t_integer },
        { "iterable", t_iterable }, { "le", t_le }, { "lessthan", t_lt },
        { "lower", t_lower }, { "lt", t_lt }, { "mapping", t_mapping }, { "ne", t_ne },
        { "none", t_none }, { "number", t_number }, { "odd", t_odd },
        { "sameas", t_sameas }, { "sequence", t_sequence }, { "string", t_string },
        { "true", t_true }, { "undefined", t_undefined }, { "upper", t_upper } };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (val_is_name(all[i].name, name, n))
            return all[i].fn;
    return NULL;
}
