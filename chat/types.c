/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/types.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "chat/json.h"

#define MAX_STEPS  10000000u
#define MAX_NEST   16
#define MAX_PARSED (256u << 20)

struct param {
    const char *key;
    unsigned types;
};
struct tool {
    const char *name;
    struct param *param;
    size_t n_param;
};
struct schema {
    struct tool *tool;
    size_t n;
};

static const struct {
    const char *name;
    unsigned type;
} names[] = { { "null", TYP_NULL }, { "integer", TYP_INTEGER }, { "int", TYP_INTEGER },
    { "number", TYP_NUMBER }, { "float", TYP_NUMBER }, { "boolean", TYP_BOOLEAN },
    { "bool", TYP_BOOLEAN }, { "object", TYP_OBJECT }, { "dict", TYP_OBJECT },
    { "array", TYP_ARRAY }, { "list", TYP_ARRAY }, { "string", TYP_STRING },
    { "str", TYP_STRING } };

static const struct val *
member(struct val_ctx *c, struct val v, const char *key)
{
    return v.type == VAL_DICT ? val_find(c, v.d, val_text(c, key)) : NULL;
}

static const char *
text_of(struct val_ctx *c, struct val v)
{
    char *p;

    if (v.type != VAL_STR)
        return NULL;
    p = val_get(c, v.s->n + 1);
    memcpy(p, v.s->p, v.s->n);
    return p;
}

static unsigned
named_type(struct val v)
{
    if (v.type == VAL_STR)
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (val_same(v.s, names[i].name))
                return names[i].type;
    return 0;
}

static unsigned
type_of_value(struct val v)
{
    switch (v.type) {
    case VAL_NONE:
        return TYP_NULL;
    case VAL_BOOL:
        return TYP_BOOLEAN;
    case VAL_INT:
    case VAL_BIG:
        return TYP_INTEGER;
    case VAL_FLOAT:
        return TYP_NUMBER;
    case VAL_LIST:
        return TYP_ARRAY;
    case VAL_DICT:
        return TYP_OBJECT;
    default:
        return TYP_STRING;
    }
}

static unsigned
types_of(struct val_ctx *c, struct val schema, int nest)
{
    static const char *const any[] = { "anyOf", "oneOf", "allOf" };
    const struct val *v;
    unsigned types = 0;

    if (nest == 0)
        return TYP_STRING;
    v = member(c, schema, "type");
    if (v != NULL && v->type == VAL_LIST)
        for (size_t i = 0; i < v->l->n; i++)
            types |= named_type(v->l->at[i]);
    else if (v != NULL)
        types |= named_type(*v);
    v = member(c, schema, "enum");
    for (size_t i = 0; v != NULL && v->type == VAL_LIST && i < v->l->n; i++)
        types |= type_of_value(v->l->at[i]);
    for (size_t k = 0; k < sizeof(any) / sizeof(any[0]); k++) {
        v = member(c, schema, any[k]);
        for (size_t i = 0; v != NULL && v->type == VAL_LIST && i < v->l->n; i++)
            types |= types_of(c, v->l->at[i], nest - 1);
    }
    return types != 0 ? types : TYP_STRING;
}

static void
tool_read(struct val_ctx *in, struct val_ctx *c, struct val v, struct tool *t)
{
    const struct val *f = member(in, v, "function"), *params, *props, *name;

    if (f != NULL)
        v = *f;
    name = member(in, v, "name");
    t->name = name != NULL ? text_of(c, *name) : NULL;
    if (t->name == NULL)
        val_fail(c, "a tool has no name");
    params = member(in, v, "parameters");
    if (params == NULL)
        params = member(in, v, "input_schema");
    props = params != NULL ? member(in, *params, "properties") : NULL;
    if (props == NULL || props->type != VAL_DICT)
        return;
    t->param = val_array(c, props->d->n, sizeof(*t->param));
    for (size_t i = 0; i < props->d->n; i++)
        t->param[t->n_param++] = (struct param){ text_of(c, props->d->at[i].key),
            types_of(in, props->d->at[i].value, MAX_NEST) };
}

/* Copies names and types of the tools to the memory of c, and reads them in that of in. */
static const struct schema *
tools_read(struct val_ctx *in, struct val_ctx *c, const char *json, size_t bytes)
{
    struct val v = jsn_read(in, json, bytes, 0);
    struct schema *s;

    if (v.type != VAL_LIST)
        val_fail(in, "tools is not a JSON array");
    s = val_get(c, sizeof(*s));
    s->tool = val_array(c, v.l->n, sizeof(*s->tool));
    for (size_t i = 0; i < v.l->n; i++)
        tool_read(in, c, v.l->at[i], &s->tool[s->n++]);
    return s;
}

int
typ_new(const char *json, size_t bytes, struct arena *mem, const struct schema **ret,
    char *err)
{
    struct val_ctx c = { .mem = mem, .steps = MAX_STEPS, .depth = JSN_MAX_DEPTH, .err = err };
    struct val_ctx in = { .steps = MAX_STEPS, .depth = JSN_MAX_DEPTH, .err = err };
    struct arena parsed;
    volatile int rc = -EINVAL;

    /* values take more memory than their text: they are freed before the answer comes */
    arn_init(&parsed, MAX_PARSED);
    in.mem = &parsed;
    if (setjmp(in.fail) == 0 && setjmp(c.fail) == 0) {
        *ret = tools_read(&in, &c, json, bytes);
        rc = 0;
    }
    arn_fini(&parsed);
    return rc;
}

static const struct tool *
find(const struct schema *s, const char *name)
{
    for (size_t i = 0; s != NULL && i < s->n; i++)
        if (strcmp(s->tool[i].name, name) == 0)
            return &s->tool[i];
    return NULL;
}

int
typ_has(const struct schema *s, const char *name)
{
    return s == NULL || find(s, name) != NULL;
}

unsigned
typ_types(const struct schema *s, const char *name, const char *key)
{
    const struct tool *t = find(s, name);

    for (size_t i = 0; t != NULL && i < t->n_param; i++)
        if (strcmp(t->param[i].key, key) == 0)
            return t->param[i].types;
    return TYP_STRING;
}

/* The TYP_* bit of a JSON text; 0: not JSON. */
static unsigned
type_of_text(const char *text, size_t bytes)
{
    char err[VAL_ERR];
    struct arena mem;
    struct val_ctx c = { .mem = &mem, .steps = MAX_STEPS, .depth = JSN_MAX_DEPTH, .err = err };
    volatile unsigned type = 0;

    arn_init(&mem, 64 * bytes + 65536);
    if (setjmp(c.fail) == 0)
        type = type_of_value(jsn_read(&c, text, bytes, 0));
    arn_fini(&mem);
    return type;
}

int
typ_fits(const char *text, size_t bytes, unsigned types, const char **ret_as)
{
    static const struct {
        const char *text;
        unsigned type;
    } plain[] = { { "null", TYP_NULL }, { "true", TYP_BOOLEAN }, { "false", TYP_BOOLEAN } };
    unsigned type;

    *ret_as = NULL;
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (bytes == strlen(plain[i].text) && strncasecmp(text, plain[i].text, bytes) == 0) {
            *ret_as = plain[i].text;
            return (types & plain[i].type) != 0;
        }
    type = bytes > 0 && text[0] != '"' ? type_of_text(text, bytes) : 0;
    /* an integer also fits the type number */
    if (type == TYP_INTEGER)
        type |= TYP_NUMBER;
    return (type & types) != 0;
}
