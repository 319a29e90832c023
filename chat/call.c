/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ENTER 1u /* the call's parameters begin */
#define LEAVE 2u /* they end */

/* ---- a form's text ------------------------------------------------------------------- */

static int
step_add(struct ans_form *f, enum ans_op op)
{
    if (f->n == ANS_OPS)
        return -EINVAL;
    f->step[f->n++].op = op;
    return 0;
}

static int
op_of(char c)
{
    static const struct {
        char c;
        enum ans_op op;
    } ops[] = { { 'N', OP_NAME }, { 'A', OP_ARGS }, { 'O', OP_OBJECT },
        { 'o', OP_MAYBE_OBJECT }, { 'P', OP_PYTHON }, { 'G', OP_GEMMA },
        { '(', OP_PARAMS }, { ')', OP_PARAMS_END }, { '{', OP_CALLS },
        { '}', OP_CALLS_END }, { 'K', OP_KEY }, { 'S', OP_ATTRS }, { 'V', OP_VALUE } };

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (ops[i].c == c)
            return (int)ops[i].op;
    return -EINVAL;
}

/* Set `other` of each loop's begin and end to the other's step. */
static int
loops_join(struct ans_form *f, enum ans_op begin, enum ans_op end)
{
    size_t at = ANS_OPS;

    for (size_t i = 0; i < f->n; i++) {
        if (f->step[i].op == begin)
            at = i;
        if (f->step[i].op != end)
            continue;
        if (at == ANS_OPS)
            return -EINVAL;
        f->step[i].other = (uint8_t)at;
        f->step[at].other = (uint8_t)i;
    }
    return 0;
}

int
ans_form_read(const struct fdchat_answer *a, const char *text, struct ans_form *ret)
{
    struct ans_form *f = ret;
    int rc = 0;

    memset(f, 0, sizeof(*f));
    if (*text == '^') {
        f->at_start = 1;
        text++;
    }
    while (*text != '\0' && rc == 0) {
        size_t n = strcspn(text, "%");
        int op = n > 0 ? OP_LIT : op_of(text[1]);

        if (n == 0 && text[1] == '_') {
            text += 2;
            continue;
        }
        rc = op < 0 ? op : step_add(f, (enum ans_op)op);
        if (rc == 0 && n > 0)
            ans_lit_set(a, &f->step[f->n - 1].lit, text, n);
        text += n > 0 ? n : 2;
    }
    if (rc == 0)
        rc = step_add(f, OP_END);
    if (rc == 0)
        rc = loops_join(f, OP_PARAMS, OP_PARAMS_END);
    return rc != 0 ? rc : loops_join(f, OP_CALLS, OP_CALLS_END);
}

/* ---- from step to step ----------------------------------------------------------------- */

struct choice {
    const struct ans_lit *lit;
    size_t next;
    unsigned acts;
};
struct choices {
    struct choice at[4];
    size_t n;
};

/* The texts that may come next when the form is at a step. */
static void
choices_of(const struct ans_form *f, size_t at, unsigned acts, struct choices *ret)
{
    const struct ans_step *s = &f->step[at];

    switch (s->op) {
    case OP_LIT:
        if (ret->n < sizeof(ret->at) / sizeof(ret->at[0]))
            ret->at[ret->n++] = (struct choice){ &s->lit, at + 1, acts };
        break;
    case OP_PARAMS:
        choices_of(f, at + 1, acts | ENTER, ret);
        choices_of(f, s->other + 1u, acts | ENTER | LEAVE, ret);
        break;
    case OP_PARAMS_END:
        choices_of(f, s->other + 1u, acts, ret);
        choices_of(f, at + 1, acts | LEAVE, ret);
        break;
    case OP_CALLS:
        choices_of(f, at + 1, acts, ret);
        break;
    case OP_CALLS_END:
        choices_of(f, s->other + 1u, acts, ret);
        choices_of(f, at + 1, acts, ret);
        break;
    default:
        break;
    }
}

static void
form_over(struct fdchat_answer *a)
{
    if (a->n_call == a->call_before) {
        ans_fail(a);
        return;
    }
    a->raw.n = 0;
    a->fresh = 0;
    a->chain = a->has_bare;
    a->mode = ANS_TEXT;
}

static void
value_begin(struct fdchat_answer *a)
{
    static const unsigned json =
        TYP_NULL | TYP_NUMBER | TYP_BOOLEAN | TYP_OBJECT | TYP_ARRAY;
    const struct ans_buf *attrs = &a->value;

    a->types = typ_types(a->schema, a->name, a->key);
    if (a->now->step[a->step - 1].op == OP_LIT && a->step >= 2 &&
        a->now->step[a->step - 2].op == OP_ATTRS) {
        char text[ANS_NAME + 1];

        (void)snprintf(text, sizeof(text), "%.*s", (int)attrs->n,
            attrs->n > 0 ? attrs->p : "");
        if (strstr(text, "string=\"true\"") != NULL)
            a->types = TYP_STRING;
        else if (strstr(text, "string=\"false\"") != NULL)
            a->types = json;
    }
    if (a->n_param++ > 0)
        ans_args(a, ", ", 2);
    ans_args(a, "\"", 1);
    ans_args_string(a, a->key, a->n_key);
    ans_args(a, "\": ", 3);
    a->streams = a->types == TYP_STRING;
    if (a->streams)
        ans_args(a, "\"", 1);
    a->value.n = 0;
    a->value_begun = a->newline = 0;
    a->mode = ANS_VALUE_OF;
}

static void
step_enter(struct fdchat_answer *a, size_t step)
{
    a->step = step;
    switch (a->now->step[step].op) {
    case OP_NAME:
        a->n_name = 0;
        a->mode = ANS_NAME_OF;
        break;
    case OP_KEY:
        a->n_key = 0;
        a->mode = ANS_KEY_OF;
        break;
    case OP_ATTRS:
        a->value.n = 0;
        a->mode = ANS_ATTRS_OF;
        break;
    case OP_VALUE:
        value_begin(a);
        break;
    case OP_ARGS:
        a->scan = (struct ans_scan){ 0 };
        a->mode = ANS_ARGS;
        break;
    case OP_OBJECT:
        ans_object_begin(a);
        break;
    case OP_MAYBE_OBJECT:
        a->mode = ANS_MAYBE;
        break;
    case OP_PYTHON:
        ans_literal_begin(a, 0);
        break;
    case OP_GEMMA:
        ans_literal_begin(a, 1);
        break;
    case OP_END:
        form_over(a);
        break;
    default:
        a->mode = ANS_EXPECT;
        break;
    }
}

void
ans_form_begin(struct fdchat_answer *a, const struct ans_form *f, size_t step)
{
    a->now = f;
    a->call_before = a->n_call;
    a->in_params = 0;
    step_enter(a, step);
}

void
ans_step_next(struct fdchat_answer *a)
{
    step_enter(a,
        a->now->step[a->step].op == OP_OBJECT || a->mode != ANS_OBJECT
            ? a->step + 1
            : a->now->n - 1);
}

void
ans_params_close(struct fdchat_answer *a)
{
    if (!a->in_params)
        return;
    if (a->mode == ANS_VALUE_OF)
        ans_args(a, a->streams ? "\"" : "null", a->streams ? 1 : 4);
    ans_args(a, "}", 1);
    a->in_params = 0;
}

/* The text of a choice has come: go on to its next step. */
static void
choice_taken(struct fdchat_answer *a, const struct choice *c)
{
    if (!a->open)
        ans_keep(a, &a->raw, c->lit->p, c->lit->n);
    if (c->acts & ENTER) {
        ans_tell(a);
        ans_args(a, "{", 1);
        a->in_params = 1;
        a->n_param = 0;
    }
    if (c->acts & LEAVE) {
        ans_args(a, "}", 1);
        a->in_params = 0;
        ans_told_end(a);
    }
    step_enter(a, c->next);
}

static int
choose(struct fdchat_answer *a, const struct choices *c, char byte, uint8_t special,
    char *ret_c)
{
    const struct ans_lit *lit[4];

    for (size_t i = 0; i < c->n; i++)
        lit[i] = c->at[i].lit;
    return ans_match(a, byte, special, lit, c->n, ret_c);
}

static int
is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void
expect_byte(struct fdchat_answer *a, char c, uint8_t special)
{
    struct choices all = { .n = 0 };
    char first;
    int k;

    if (a->n_hold == 0 && special == 0 && is_blank(c)) {
        if (!a->open)
            ans_keep(a, &a->raw, &c, 1);
        return;
    }
    /* some models write one call after another between the marks */
    if (a->n_hold == 0 && special == 0 && c == '{' && a->step > 0 &&
        a->now->step[a->step - 1].op == OP_OBJECT) {
        step_enter(a, a->step - 1);
        ans_again(a, &c, &special, 1);
        return;
    }
    choices_of(a->now, a->step, 0, &all);
    k = choose(a, &all, c, special, &first);
    if (k >= 0) {
        choice_taken(a, &all.at[k]);
    } else if (k == -2) {
        ans_again(a, &first, a->hold_special, 1);
        ans_fail(a);
    }
}

/* ---- names, keys, values ------------------------------------------------------------------ */

static size_t
trim(char *p, size_t n)
{
    size_t from = 0;

    while (from < n && is_blank(p[from]))
        from++;
    while (n > from && is_blank(p[n - 1]))
        n--;
    memmove(p, p + from, n - from);
    p[n - from] = '\0';
    return n - from;
}

/* The name is functions.NAME:N: keep it as the id and shorten it to NAME. Returns 0 if it
 * has no such form. */
static int
kimi_id(struct fdchat_answer *a)
{
    static const char head[] = "functions.";
    const char *colon = strrchr(a->name, ':');
    size_t n = sizeof(head) - 1;

    if (colon == NULL || a->n_name >= sizeof(a->id) || colon[1] == '\0' ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return 0;
    memcpy(a->id, a->name, a->n_name + 1);
    if (strncmp(a->name, head, n) != 0)
        n = 0;
    a->n_name = (size_t)(colon - a->name) - n;
    memmove(a->name, a->name + n, a->n_name);
    a->name[a->n_name] = '\0';
    return 1;
}

int
ans_name_ok(struct fdchat_answer *a)
{
    a->name[a->n_name] = '\0';
    a->n_name = trim(a->name, a->n_name);
    if (a->fmt->flags & FMT_LOOSE)
        a->n_name = strcspn(a->name, " \t\r\n<[");
    a->name[a->n_name] = '\0';
    if ((a->fmt->flags & FMT_KIMI_ID) && !kimi_id(a))
        return 0;
    for (size_t i = 0; i < a->n_name; i++)
        if ((unsigned char)a->name[i] <= ' ' || strchr("<>{}()[]\"'", a->name[i]) != NULL)
            return 0;
    return a->n_name > 0 && (!a->bare || typ_has(a->schema, a->name));
}

static void
value_put(struct fdchat_answer *a, char c)
{
    if (a->streams) {
        ans_args_string(a, &c, 1);
        return;
    }
    ans_keep(a, &a->value, &c, 1);
    if (a->value.n <= a->max_held)
        return;
    ans_args(a, "\"", 1);
    ans_args_string(a, a->value.p, a->value.n);
    a->value.n = 0;
    a->streams = 1;
}

static void
value_byte(struct fdchat_answer *a, char c)
{
    int begun = a->value_begun;

    a->value_begun = 1;
    if (a->fmt->flags & FMT_TRIM_NL) {
        if (!begun && c == '\n')
            return;
        if (a->newline)
            value_put(a, '\n');
        a->newline = c == '\n';
        if (a->newline)
            return;
    }
    value_put(a, c);
}

static void
value_end(struct fdchat_answer *a)
{
    const char *p = a->value.p, *as;
    size_t n = a->value.n;

    if (a->streams) {
        ans_args(a, "\"", 1);
        return;
    }
    while (n > 0 && is_blank(*p))
        p++, n--;
    while (n > 0 && is_blank(p[n - 1]))
        n--;
    if (typ_fits(p, n, a->types, &as)) {
        ans_args(a, as != NULL ? as : p, as != NULL ? strlen(as) : n);
        return;
    }
    ans_args(a, "\"", 1);
    ans_args_string(a, a->value.p, a->value.n);
    ans_args(a, "\"", 1);
}

/* Add a byte to the name, key, attributes or value, as a->mode says. Returns 0 if a name,
 * key or attributes become too long, else 1. */
static int
text_put(struct fdchat_answer *a, char c)
{
    if (!a->open)
        ans_keep(a, &a->raw, &c, 1);
    if (a->mode == ANS_VALUE_OF) {
        value_byte(a, c);
    } else if (a->mode == ANS_ATTRS_OF) {
        if (a->value.n == ANS_NAME)
            return 0;
        ans_keep(a, &a->value, &c, 1);
    } else {
        size_t *n = a->mode == ANS_NAME_OF ? &a->n_name : &a->n_key;

        if (*n == ANS_NAME)
            return 0;
        (a->mode == ANS_NAME_OF ? a->name : a->key)[(*n)++] = c;
    }
    return 1;
}

static int
text_end(struct fdchat_answer *a)
{
    if (a->mode == ANS_NAME_OF)
        return ans_name_ok(a);
    if (a->mode == ANS_KEY_OF)
        a->n_key = trim(a->key, a->n_key);
    if (a->mode == ANS_VALUE_OF)
        value_end(a);
    return a->mode != ANS_KEY_OF || a->n_key > 0;
}

static void
text_byte(struct fdchat_answer *a, char c, uint8_t special)
{
    struct choices all = { .n = 0 };
    char first;
    int k;

    choices_of(a->now, a->step + 1, 0, &all);
    k = choose(a, &all, c, special, &first);
    if (k == -2 && !text_put(a, first)) {
        ans_fail(a);
    } else if (k >= 0 && !text_end(a)) {
        if (!a->open)
            ans_keep(a, &a->raw, all.at[k].lit->p, all.at[k].lit->n);
        ans_fail(a);
    } else if (k >= 0) {
        choice_taken(a, &all.at[k]);
    }
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void
args_byte(struct fdchat_answer *a, char c, uint8_t special)
{
    int in_string = a->scan.in_string, k;
    char out[8];

    if (!a->open)
        ans_keep(a, &a->raw, &c, 1);
    if (!a->scan.begun && special == 0 && is_blank(c))
        return;
    if ((!a->scan.begun && c != '{') || (special != 0 && !in_string)) {
        ans_fail_at(a, c, special);
        return;
    }
    if (!a->scan.begun)
        ans_tell(a);
    k = ans_scan(&a->scan, c);
    if (k == SCAN_BAD) {
        ans_fail_at(a, c, special);
        return;
    }
    ans_args(a, out, ans_as_written(c, in_string, out));
    if (k != SCAN_DONE)
        return;
    ans_told_end(a);
    ans_step_next(a);
}

static void
maybe_byte(struct fdchat_answer *a, char c, uint8_t special)
{
    if (special == 0 && is_blank(c)) {
        ans_keep(a, &a->raw, &c, 1);
        return;
    }
    if (special == 0 && (c == '{' || c == '['))
        ans_object_begin(a);
    else
        ans_step_next(a);
    ans_again(a, &c, &special, 1);
}

void
ans_form_byte(struct fdchat_answer *a, char c, uint8_t special)
{
    switch (a->mode) {
    case ANS_EXPECT:
        expect_byte(a, c, special);
        break;
    case ANS_ARGS:
        args_byte(a, c, special);
        break;
    case ANS_OBJECT:
        ans_object_byte(a, c, special);
        break;
    case ANS_MAYBE:
        maybe_byte(a, c, special);
        break;
    case ANS_LITERAL:
        ans_literal_byte(a, c, special);
        break;
    default:
        text_byte(a, c, special);
        break;
    }
    if (a->raw.n > a->max_held && a->mode != ANS_TEXT && !a->open)
        ans_fail(a);
}

void
ans_form_end(struct fdchat_answer *a)
{
    if (a->mode == ANS_LITERAL) {
        ans_literal_end(a);
        return;
    }
    if (a->mode != ANS_VALUE_OF)
        return;
    for (size_t i = 0; i < a->n_hold; i++)
        value_byte(a, a->hold[i]);
    if (!a->streams)
        ans_args(a, a->value.p, a->value.n);
}
