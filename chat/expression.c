/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/parse.h"

#include <string.h>

void
prs_add(struct parser *p, struct nodes *l, struct tpl_node *node)
{
    if (l->n == l->room) {
        size_t room = l->room > 0 ? 2 * l->room : 4;
        struct tpl_node **at = val_array(p->c, room, sizeof(*at));

        if (l->n > 0)
            memcpy(at, l->at, l->n * sizeof(*at));
        l->at = at;
        l->room = room;
    }
    l->at[l->n++] = node;
}

struct tpl_node *
prs_node(struct parser *p, enum node_kind kind)
{
    struct tpl_node *n = val_get(p->c, sizeof(*n));

    n->kind = kind;
    n->line = p->tok->line;
    return n;
}

/* ---- tokens ---------------------------------------------------------------------- */

void
prs_unexpected(struct parser *p, const char *want)
{
    static const char *const kinds[] = { "end of template", "text",
        "begin of statement block", "end of statement block", "begin of print statement",
        "end of print statement" };
    const struct tpl_tok *k = p->tok;

    if (k->kind <= TOK_PRINT_END)
        val_fail(p->c, "line %d: expected %s, got '%s'", k->line, want, kinds[k->kind]);
    val_fail(p->c, "line %d: expected %s, got '%.*s'", k->line, want,
        (int)(k->n < 64 ? k->n : 64), k->p);
}

int
prs_is_op(const struct parser *p, enum tok_op op)
{
    return p->tok->kind == TOK_OP && p->tok->op == op;
}

int
prs_skip_op(struct parser *p, enum tok_op op)
{
    if (!prs_is_op(p, op))
        return 0;
    p->tok++;
    return 1;
}

void
prs_need_op(struct parser *p, enum tok_op op, const char *text)
{
    if (!prs_skip_op(p, op))
        prs_unexpected(p, text);
}

int
prs_is_word(const struct tpl_tok *k, const char *name)
{
    return k->kind == TOK_NAME && k->n == strlen(name) && memcmp(k->p, name, k->n) == 0;
}

int
prs_skip_word(struct parser *p, const char *name)
{
    if (!prs_is_word(p->tok, name))
        return 0;
    p->tok++;
    return 1;
}

void
prs_need_word(struct parser *p, const char *name)
{
    if (!prs_skip_word(p, name))
        prs_unexpected(p, name);
}

void
prs_need_name(struct parser *p, const char **ret_p, size_t *ret_n)
{
    if (p->tok->kind != TOK_NAME)
        prs_unexpected(p, "a name");
    *ret_p = p->tok->p;
    *ret_n = p->tok->n;
    p->tok++;
}

void
prs_deeper(struct parser *p)
{
    if (--p->c->depth < 0)
        val_fail(p->c, "line %d: nested too deeply", p->tok->line);
}

/* ---- expressions ------------------------------------------------------------------ */

static struct tpl_node *parse_unary(struct parser *p, int filters);
static struct tpl_node *parse_postfix(struct parser *p, struct tpl_node *node);
static struct tpl_node *parse_primary(struct parser *p);

struct tpl_node *
prs_two(struct parser *p, enum node_kind kind, enum tok_op op, struct tpl_node *a,
    struct tpl_node *b)
{
    struct tpl_node *n = prs_node(p, kind);

    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static struct tpl_args *
parse_args(struct parser *p)
{
    struct tpl_args *r = val_get(p->c, sizeof(*r));
    struct nodes at = { 0 }, kw = { 0 };
    struct tpl_name *names = NULL;
    size_t room = 0;

    prs_need_op(p, OP_LPAREN, "'('");
    while (!prs_is_op(p, OP_RPAREN)) {
        if (at.n + kw.n > 0) {
            prs_need_op(p, OP_COMMA, "','");
            if (prs_is_op(p, OP_RPAREN))
                break;
        }
        if (r->rest == NULL && prs_skip_op(p, OP_MUL)) {
            r->rest = prs_expr(p);
            if (!prs_skip_op(p, OP_COMMA))
                break;
        }
        if (prs_skip_op(p, OP_POW)) {
            r->more = prs_expr(p);
            break;
        }
        if (p->tok->kind == TOK_NAME && p->tok[1].kind == TOK_OP &&
            p->tok[1].op == OP_ASSIGN) {
            if (kw.n == room) {
                struct tpl_name *was = names;

                room = room > 0 ? 2 * room : 4;
                names = val_array(p->c, room, sizeof(*names));
                if (kw.n > 0)
                    memcpy(names, was, kw.n * sizeof(*names));
            }
            prs_need_name(p, &names[kw.n].p, &names[kw.n].n);
            p->tok++;
            prs_add(p, &kw, prs_expr(p));
        } else if (kw.n > 0) {
            prs_unexpected(p, "a keyword argument");
        } else {
            prs_add(p, &at, prs_expr(p));
        }
    }
    prs_need_op(p, OP_RPAREN, "')'");
    *r = (struct tpl_args){ .n = at.n,
        .n_kw = kw.n,
        .at = at.at,
        .kw = names,
        .kw_at = kw.at,
        .rest = r->rest,
        .more = r->more };
    return r;
}

static struct tpl_node *
parse_strings(struct parser *p)
{
    struct tpl_node *n = prs_node(p, NODE_CONST);
    struct val_buf b = { 0 };

    for (; p->tok->kind == TOK_STRING; p->tok++)
        val_add(p->c, &b, p->tok->p, p->tok->n, 0);
    n->value = val_str(p->c, b.n > 0 ? b.p : "", b.n, 0);
    return n;
}

struct tpl_node *
prs_name(struct parser *p)
{
    static const struct {
        const char *word;
        struct val v;
    } consts[] = { { "true", { .type = VAL_BOOL, .b = 1 } },
        { "True", { .type = VAL_BOOL, .b = 1 } }, { "false", { .type = VAL_BOOL } },
        { "False", { .type = VAL_BOOL } }, { "none", { .type = VAL_NONE } },
        { "None", { .type = VAL_NONE } } };
    struct tpl_node *n = prs_node(p, NODE_NAME);

    for (size_t i = 0; i < sizeof(consts) / sizeof(consts[0]); i++)
        if (prs_skip_word(p, consts[i].word)) {
            n->kind = NODE_CONST;
            n->value = consts[i].v;
            return n;
        }
    p->extra |= prs_is_word(p->tok, "caller") ? TPL_CALLER
        : prs_is_word(p->tok, "kwargs")       ? TPL_KWARGS
        : prs_is_word(p->tok, "varargs")
        ? TPL_VARARGS
        : 0;
    prs_need_name(p, &n->p, &n->n);
    return n;
}

static struct tpl_node *
parse_list(struct parser *p)
{
    struct tpl_node *n = prs_node(p, NODE_LIST);
    struct nodes l = { 0 };

    prs_need_op(p, OP_LBRACKET, "'['");
    while (!prs_is_op(p, OP_RBRACKET)) {
        if (l.n > 0)
            prs_need_op(p, OP_COMMA, "','");
        if (prs_is_op(p, OP_RBRACKET))
            break;
        prs_add(p, &l, prs_expr(p));
    }
    prs_need_op(p, OP_RBRACKET, "']'");
    n->at = l.at;
    n->n_at = l.n;
    return n;
}

static struct tpl_node *
parse_dict(struct parser *p)
{
    struct tpl_node *n = prs_node(p, NODE_DICT);
    struct nodes l = { 0 };

    prs_need_op(p, OP_LBRACE, "'{'");
    while (!prs_is_op(p, OP_RBRACE)) {
        if (l.n > 0)
            prs_need_op(p, OP_COMMA, "','");
        if (prs_is_op(p, OP_RBRACE))
            break;
        prs_add(p, &l, prs_expr(p));
        prs_need_op(p, OP_COLON, "':'");
        prs_add(p, &l, prs_expr(p));
    }
    prs_need_op(p, OP_RBRACE, "'}'");
    n->at = l.at;
    n->n_at = l.n;
    return n;
}

static struct tpl_node *
parse_primary(struct parser *p)
{
    struct tpl_node *n;

    switch (p->tok->kind) {
    case TOK_NAME:
        return prs_name(p);
    case TOK_STRING:
        return parse_strings(p);
    case TOK_INT:
        n = prs_node(p, NODE_CONST);
        n->value = val_int(p->tok++->i);
        return n;
    case TOK_FLOAT:
        n = prs_node(p, NODE_CONST);
        n->value = val_float(p->tok++->f);
        return n;
    default:
        break;
    }
    if (prs_skip_op(p, OP_LPAREN)) {
        n = prs_tuple(p, 1, 1);
        prs_need_op(p, OP_RPAREN, "')'");
        return n;
    }
    if (prs_is_op(p, OP_LBRACKET))
        return parse_list(p);
    if (prs_is_op(p, OP_LBRACE))
        return parse_dict(p);
    prs_unexpected(p, "an expression");
}

/* The content of [ ]: an index or a slice. */
static struct tpl_node *
parse_index(struct parser *p)
{
    struct tpl_node *n = prs_node(p, NODE_SLICE), *first = NULL;

    if (!prs_is_op(p, OP_COLON)) {
        first = prs_expr(p);
        if (!prs_is_op(p, OP_COLON))
            return first;
    }
    n->a = first;
    prs_need_op(p, OP_COLON, "':'");
    if (!prs_is_op(p, OP_COLON) && !prs_is_op(p, OP_RBRACKET))
        n->b = prs_expr(p);
    if (prs_skip_op(p, OP_COLON) && !prs_is_op(p, OP_RBRACKET))
        n->c = prs_expr(p);
    return n;
}

static struct tpl_node *
parse_subscript(struct parser *p, struct tpl_node *node)
{
    struct tpl_node *n;

    if (prs_skip_op(p, OP_DOT)) {
        if (p->tok->kind == TOK_INT) {
            n = prs_two(p, NODE_ITEM, OP_DOT, node, prs_node(p, NODE_CONST));
            n->b->value = val_int(p->tok++->i);
            return n;
        }
        n = prs_two(p, NODE_ATTR, OP_DOT, node, NULL);
        prs_need_name(p, &n->p, &n->n);
        return n;
    }
    prs_need_op(p, OP_LBRACKET, "'['");
    n = prs_two(p, NODE_ITEM, OP_DOT, node, parse_index(p));
    prs_need_op(p, OP_RBRACKET, "']'");
    return n;
}

static struct tpl_node *
parse_call(struct parser *p, struct tpl_node *node)
{
    struct tpl_node *n = prs_two(p, NODE_CALL, OP_DOT, node, NULL);

    n->args = parse_args(p);
    return n;
}

static struct tpl_node *
parse_postfix(struct parser *p, struct tpl_node *node)
{
    for (;;) {
        if (prs_is_op(p, OP_DOT) || prs_is_op(p, OP_LBRACKET))
            node = parse_subscript(p, node);
        else if (prs_is_op(p, OP_LPAREN))
            node = parse_call(p, node);
        else
            return node;
    }
}

struct tpl_node *
prs_filter(struct parser *p, struct tpl_node *node)
{
    struct tpl_node *n = prs_two(p, NODE_FILTER, OP_PIPE, node, NULL);

    prs_need_name(p, &n->p, &n->n);
    n->args = prs_is_op(p, OP_LPAREN) ? parse_args(p) : val_get(p->c, sizeof(*n->args));
    return n;
}

/* Can the next token begin a test's one argument without parentheses? */
static int
is_test_arg(const struct parser *p)
{
    switch (p->tok->kind) {
    case TOK_NAME:
        return !prs_is_word(p->tok, "else") && !prs_is_word(p->tok, "or") &&
            !prs_is_word(p->tok, "and");
    case TOK_STRING:
    case TOK_INT:
    case TOK_FLOAT:
        return 1;
    default:
        return prs_is_op(p, OP_LBRACKET) || prs_is_op(p, OP_LBRACE);
    }
}

static struct tpl_node *
parse_test(struct parser *p, struct tpl_node *node)
{
    struct tpl_node *n = prs_two(p, NODE_TEST, OP_DOT, node, NULL), *not ;
    int negated = prs_skip_word(p, "not");

    prs_need_name(p, &n->p, &n->n);
    if (prs_is_op(p, OP_LPAREN)) {
        n->args = parse_args(p);
    } else {
        n->args = val_get(p->c, sizeof(*n->args));
        /* if, in and not end the test: "a is defined if ..." */
        if (is_test_arg(p) && !prs_is_word(p->tok, "if") && !prs_is_word(p->tok, "in") &&
            !prs_is_word(p->tok, "not")) {
            if (prs_is_word(p->tok, "is"))
                val_fail(p->c, "line %d: tests cannot be chained with is", p->tok->line);
            n->args->at = val_array(p->c, 1, sizeof(*n->args->at));
            n->args->at[0] = parse_postfix(p, parse_primary(p));
            n->args->n = 1;
        }
    }
    if (!negated)
        return n;
    not = prs_two(p, NODE_NOT, OP_DOT, n, NULL);
    return not ;
}

static struct tpl_node *
parse_filters(struct parser *p, struct tpl_node *node)
{
    for (;;) {
        if (prs_skip_op(p, OP_PIPE))
            node = prs_filter(p, node);
        else if (prs_skip_word(p, "is"))
            node = parse_test(p, node);
        else if (prs_is_op(p, OP_LPAREN))
            node = parse_call(p, node);
        else
            return node;
    }
}

static struct tpl_node *
parse_unary(struct parser *p, int filters)
{
    struct tpl_node *n;

    prs_deeper(p);
    if (prs_skip_op(p, OP_SUB))
        n = prs_two(p, NODE_NEG, OP_SUB, parse_unary(p, 0), NULL);
    else if (prs_skip_op(p, OP_ADD))
        n = prs_two(p, NODE_POS, OP_ADD, parse_unary(p, 0), NULL);
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (filters)
        n = parse_filters(p, n);
    p->c->depth++;
    return n;
}

static struct tpl_node *
parse_pow(struct parser *p)
{
    struct tpl_node *n = parse_unary(p, 1);

    while (prs_skip_op(p, OP_POW))
        n = prs_two(p, NODE_BINARY, OP_POW, n, parse_unary(p, 1));
    return n;
}

static struct tpl_node *
parse_product(struct parser *p)
{
    struct tpl_node *n = parse_pow(p);

    while (prs_is_op(p, OP_MUL) || prs_is_op(p, OP_DIV) || prs_is_op(p, OP_FLOORDIV) ||
        prs_is_op(p, OP_MOD)) {
        enum tok_op op = p->tok++->op;

        n = prs_two(p, NODE_BINARY, op, n, parse_pow(p));
    }
    return n;
}

static struct tpl_node *
parse_concat(struct parser *p)
{
    struct tpl_node *n = parse_product(p);

    while (prs_skip_op(p, OP_CONCAT))
        n = prs_two(p, NODE_BINARY, OP_CONCAT, n, parse_product(p));
    return n;
}

static struct tpl_node *
parse_sum(struct parser *p)
{
    struct tpl_node *n = parse_concat(p);

    while (prs_is_op(p, OP_ADD) || prs_is_op(p, OP_SUB)) {
        enum tok_op op = p->tok++->op;

        n = prs_two(p, NODE_BINARY, op, n, parse_concat(p));
    }
    return n;
}

/* Step over a comparison operator. Returns 0 if the next token is none. */
static int
skip_comparison(struct parser *p, enum tok_op *ret)
{
    if (p->tok->kind == TOK_OP && p->tok->op >= OP_EQ && p->tok->op <= OP_GE) {
        *ret = p->tok++->op;
        return 1;
    }
    if (prs_skip_word(p, "in")) {
        *ret = OP_IN;
        return 1;
    }
    if (prs_is_word(p->tok, "not") && prs_is_word(p->tok + 1, "in")) {
        p->tok += 2;
        *ret = OP_NOT_IN;
        return 1;
    }
    return 0;
}

static struct tpl_node *
parse_compare(struct parser *p)
{
    struct tpl_node *first = parse_sum(p), *n;
    struct nodes l = { 0 };
    enum tok_op op, ops[16];
    size_t n_op = 0;

    while (skip_comparison(p, &op)) {
        if (n_op == sizeof(ops) / sizeof(ops[0]))
            val_fail(p->c, "line %d: too many comparisons in a chain", p->tok->line);
        if (n_op == 0)
            prs_add(p, &l, first);
        ops[n_op++] = op;
        prs_add(p, &l, parse_sum(p));
    }
    if (n_op == 0)
        return first;
    n = prs_node(p, NODE_COMPARE);
    n->at = l.at;
    n->n_at = l.n;
    n->ops = val_array(p->c, n_op, sizeof(*n->ops));
    memcpy(n->ops, ops, n_op * sizeof(*ops));
    return n;
}

static struct tpl_node *
parse_not(struct parser *p)
{
    struct tpl_node *n;

    if (!prs_is_word(p->tok, "not"))
        return parse_compare(p);
    prs_deeper(p);
    p->tok++;
    n = prs_two(p, NODE_NOT, OP_DOT, parse_not(p), NULL);
    p->c->depth++;
    return n;
}

static struct tpl_node *
parse_and(struct parser *p)
{
    struct tpl_node *n = parse_not(p);

    while (prs_skip_word(p, "and"))
        n = prs_two(p, NODE_AND, OP_DOT, n, parse_not(p));
    return n;
}

static struct tpl_node *
parse_or(struct parser *p)
{
    struct tpl_node *n = parse_and(p);

    while (prs_skip_word(p, "or"))
        n = prs_two(p, NODE_OR, OP_DOT, n, parse_and(p));
    return n;
}

struct tpl_node *
prs_expr(struct parser *p)
{
    struct tpl_node *n, *cond;

    prs_deeper(p);
    n = parse_or(p);
    while (prs_skip_word(p, "if")) {
        cond = prs_two(p, NODE_COND, OP_DOT, parse_or(p), n);
        cond->c = prs_skip_word(p, "else") ? prs_expr(p) : NULL;
        n = cond;
    }
    p->c->depth++;
    return n;
}

struct tpl_node *
prs_tuple(struct parser *p, int parentheses, int conditions)
{
    struct tpl_node *n, *tuple;
    struct nodes l = { 0 };
    int comma = 0;

    if (parentheses && prs_is_op(p, OP_RPAREN)) {
        n = prs_node(p, NODE_TUPLE);
        return n;
    }
    tuple = prs_node(p, NODE_TUPLE);
    for (;;) {
        if (comma &&
            (p->tok->kind == TOK_BLOCK_END || p->tok->kind == TOK_PRINT_END ||
                prs_is_op(p, OP_RPAREN)))
            break;
        n = conditions ? prs_expr(p) : parse_or(p);
        prs_add(p, &l, n);
        if (!prs_skip_op(p, OP_COMMA))
            break;
        comma = 1;
    }
    if (!comma)
        return n;
    tuple->at = l.at;
    tuple->n_at = l.n;
    return tuple;
}
