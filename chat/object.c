/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/answer.h"

#include <stdio.h>
#include <string.h>

#include "chat/value.h"

static int
is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* ---- a JSON value ------------------------------------------------------------------------ */

static int
scan_string(struct ans_scan *s, char c)
{
    if (s->escape) {
        s->escape = 0;
    } else if (c == '\\') {
        s->escape = 1;
    } else if (c == '"') {
        s->in_string = 0;
        return s->depth == 0 ? SCAN_DONE : SCAN_MORE;
    }
    return SCAN_MORE;
}

int
ans_scan(struct ans_scan *s, char c)
{
    int first = !s->begun;

    if (s->in_string)
        return scan_string(s, c);
    s->begun = 1;
    if (!first && s->depth == 0 && (is_blank(c) || c == ',' || c == '}' || c == ']'))
        return SCAN_OVER;
    switch (c) {
    case '"':
        s->in_string = 1;
        return s->depth == 0 && !first ? SCAN_BAD : SCAN_MORE;
    case '{':
    case '[':
        if (s->depth == 0 && !first)
            return SCAN_BAD;
        s->depth++;
        return SCAN_MORE;
    case '}':
    case ']':
        if (s->depth == 0)
            return SCAN_BAD;
        return --s->depth == 0 ? SCAN_DONE : SCAN_MORE;
    case ',':
    case ':':
    case ' ':
    case '\n':
    case '\t':
    case '\r':
        return s->depth == 0 ? SCAN_BAD : SCAN_MORE;
    default:
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                (c >= 'A' && c <= 'Z') || c == '-' || c == '+' || c == '.'
            ? SCAN_MORE
            : SCAN_BAD;
    }
}

size_t
ans_as_written(char c, int in_string, char out[8])
{
    if (in_string && (unsigned char)c < 0x20)
        return (size_t)snprintf(out, 8, "\\u%04x", (unsigned)c);
    out[0] = c;
    return 1;
}

static int
hex_of(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *p = c != '\0' ? strchr(digits, c >= 'A' && c <= 'F' ? c | 0x20 : c) : NULL;

    return p != NULL ? (int)(p - digits) : -1;
}

static int
code_out(struct ans_escape *e, char out[8])
{
    uint32_t code = e->code;
    size_t n = 0;

    e->on = 0;
    if (code >= 0xd800 && code < 0xdc00) {
        e->high = code;
        return 0;
    }
    if (code >= 0xdc00 && code < 0xe000 && e->high != 0)
        code = 0x10000 + ((e->high - 0xd800) << 10) + (code - 0xdc00);
    e->high = 0;
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        code = 0xfffd;
    n += val_code_put(code, out + n);
    return (int)n;
}

int
ans_unescape(struct ans_escape *e, char c, char out[8])
{
    static const char from[] = "nrtbf\"\\/'", to[] = "\n\r\t\b\f\"\\/'";
    const char *k;
    int h;

    if (e->hex_left > 0) {
        h = hex_of(c);
        if (h < 0)
            return -1;
        e->code = 16 * e->code + (uint32_t)h;
        return --e->hex_left > 0 ? 0 : code_out(e, out);
    }
    if (!e->on) {
        e->on = c == '\\';
        out[0] = c;
        return e->on ? 0 : 1;
    }
    e->code = 0;
    e->hex_left = c == 'u'      ? 4
        : e->python && c == 'x' ? 2
        : e->python && c == 'U' ? 8
                                : 0;
    if (e->hex_left > 0)
        return 0;
    e->on = 0;
    k = c != '\0' ? strchr(from, c) : NULL;
    if (k != NULL) {
        out[0] = to[k - from];
        return 1;
    }
    if (!e->python)
        return -1;
    /* Python keeps unknown escapes and drops an escaped line end */
    out[0] = '\\';
    out[1] = c;
    return c == '\n' ? 0 : 2;
}

/* ---- {"name": .., "arguments": ..} ----------------------------------------------------------- */

void
ans_object_begin(struct fdchat_answer *a)
{
    struct ans_buf args = a->object.args;

    a->object = (struct ans_object){ .at = OBJ_OPEN, .args = args };
    a->mode = ANS_OBJECT;
}

static void
object_new(struct ans_object *o)
{
    o->args.n = 0;
    o->have_name = o->have_args = o->told = o->nested = 0;
    o->at = OBJ_KEY;
}

static void
args_put(struct fdchat_answer *a, const char *p, size_t n)
{
    if (a->object.told)
        ans_args(a, p, n);
    else
        ans_keep(a, &a->object.args, p, n);
}

/* Report the call: its name is known. Arguments that came before the name follow
 * at once. */
static void
tell(struct fdchat_answer *a)
{
    ans_tell(a);
    a->object.told = 1;
    ans_args(a, a->object.args.p, a->object.args.n);
    a->object.args.n = 0;
}

static int
key_is(const struct fdchat_answer *a, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strlen(*names) == a->n_key && memcmp(*names, a->key, a->n_key) == 0)
            return 1;
    return 0;
}

/* Returns 0 if no call has such a key. */
static int
key_read(struct fdchat_answer *a)
{
    static const char *const name[] = { "name", "tool_name", NULL };
    static const char *const args[] = { "arguments", "parameters", NULL };
    static const char *const known[] = { "type", "id", "function", "tool_call_id", NULL };
    struct ans_object *o = &a->object;

    o->value = key_is(a, name) ? OBJ_NAME : key_is(a, args) ? OBJ_ARGUMENTS : OBJ_OTHER;
    if ((o->value == OBJ_NAME && o->have_name) ||
        (o->value == OBJ_ARGUMENTS && o->have_args))
        o->value = OBJ_OTHER;
    o->scan = (struct ans_scan){ 0 };
    o->escape = (struct ans_escape){ 0 };
    return !a->bare || o->value != OBJ_OTHER || key_is(a, known) || o->have_name;
}

static int
name_byte(struct fdchat_answer *a, char c, int k)
{
    struct ans_object *o = &a->object;
    char out[8];
    int n;

    if (!o->scan.in_string && k != SCAN_DONE)
        return 0;
    if (k == SCAN_DONE)
        return 1;
    if (a->n_name == 0 && o->begun == 0) {
        o->begun = c;
        return 1;
    }
    n = ans_unescape(&o->escape, c, out);
    if (n < 0 || a->n_name + (size_t)n > ANS_NAME)
        return 0;
    memcpy(a->name + a->n_name, out, (size_t)n);
    a->n_name += (size_t)n;
    return 1;
}

static int
args_byte(struct fdchat_answer *a, char c, int in_string, int k)
{
    struct ans_object *o = &a->object;
    char out[8];
    int n;

    if (o->begun == 0) {
        o->begun = c;
        if (c != '{' && c != '[' && c != '"' && c != 'n')
            return 0;
        if (o->have_name)
            tell(a);
        if (c == '"')
            return 1;
    }
    if (o->begun == 'n')
        return 1;
    if (o->begun != '"') {
        args_put(a, out, ans_as_written(c, in_string, out));
        return 1;
    }
    if (k == SCAN_DONE)
        return 1;
    n = ans_unescape(&o->escape, c, out);
    if (n > 0)
        args_put(a, out, (size_t)n);
    return n >= 0;
}

static int
value_over(struct fdchat_answer *a)
{
    struct ans_object *o = &a->object;

    o->at = OBJ_AFTER;
    if (o->value == OBJ_NAME) {
        if (!ans_name_ok(a))
            return 0;
        o->have_name = 1;
        if (o->have_args)
            tell(a);
    }
    if (o->value == OBJ_ARGUMENTS) {
        o->have_args = 1;
        if (o->begun == 'n')
            args_put(a, "{}", 2);
    }
    if (o->told && a->open)
        ans_told_end(a);
    return 1;
}

/* Returns 0 if it is no call. *ret_more: c must be read again, by between(). */
static int
value_byte(struct fdchat_answer *a, char c, int *ret_more)
{
    static const char *const function[] = { "function", NULL };
    struct ans_object *o = &a->object;
    int in_string = o->scan.in_string, k;

    if (!o->scan.begun && is_blank(c))
        return 1;
    if (!o->scan.begun) {
        o->begun = 0;
        if (o->value == OBJ_NAME)
            a->n_name = 0;
        if (c == '{' && o->value == OBJ_OTHER && !o->nested && key_is(a, function)) {
            o->nested = 1;
            o->at = OBJ_KEY;
            return 1;
        }
    }
    k = ans_scan(&o->scan, c);
    if (k == SCAN_BAD)
        return 0;
    if (k == SCAN_OVER) {
        *ret_more = 1;
        return value_over(a);
    }
    if (o->value == OBJ_NAME && !name_byte(a, c, k))
        return 0;
    if (o->value == OBJ_ARGUMENTS && !args_byte(a, c, in_string, k))
        return 0;
    return k != SCAN_DONE || value_over(a);
}

static int
object_end(struct fdchat_answer *a)
{
    struct ans_object *o = &a->object;

    if (o->nested) {
        o->nested = 0;
        o->at = OBJ_AFTER;
        return 1;
    }
    if (!o->have_name || (!o->have_args && a->bare))
        return 0;
    if (!o->told) {
        tell(a);
        ans_args(a, "{}", 2);
        ans_told_end(a);
    }
    a->raw.n = 0;
    o->at = OBJ_NEXT;
    if (!o->list)
        ans_step_next(a);
    return 1;
}

/* A byte outside of values. Returns 0 if it is no call. */
static int
between(struct fdchat_answer *a, char c)
{
    struct ans_object *o = &a->object;

    if (o->at == OBJ_IN_KEY) {
        if (c == '"')
            o->at = OBJ_COLON;
        else if (a->n_key == ANS_NAME)
            return 0;
        else
            a->key[a->n_key++] = c;
        return 1;
    }
    if (is_blank(c))
        return 1;
    switch (o->at) {
    case OBJ_OPEN:
        if (c == '{')
            object_new(o);
        else if (c == '[' && !o->list)
            o->list = 1;
        else if (c == ']' && o->list)
            ans_step_next(a);
        else
            return 0;
        return 1;
    case OBJ_KEY:
        a->n_key = 0;
        o->at = OBJ_IN_KEY;
        return c == '"' || (c == '}' && object_end(a));
    case OBJ_COLON:
        o->at = OBJ_VALUE;
        return c == ':' && key_read(a);
    case OBJ_AFTER:
        o->at = OBJ_KEY;
        return c == ',' || (c == '}' && object_end(a));
    default:
        o->at = OBJ_OPEN;
        if (c == ']')
            ans_step_next(a);
        return c == ',' || c == ']';
    }
}

void
ans_object_byte(struct fdchat_answer *a, char c, uint8_t special)
{
    int more, ok;

    if (!a->open)
        ans_keep(a, &a->raw, &c, 1);
    ok = special == 0 || a->object.scan.in_string;
    do {
        more = 0;
        if (ok)
            ok = a->object.at == OBJ_VALUE ? value_byte(a, c, &more) : between(a, c);
    } while (ok && more);
    if (!ok)
        ans_fail_at(a, c, special);
}
