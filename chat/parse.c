/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/template.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    struct val_ctx *c;
    const struct tpl_tok *tok; /* the next */
    int loops;                 /* open ones: break and continue may come */
    unsigned extra;            /* TPL_CALLER, ...: names that were read */
};

struct nodes {
    size_t n, room;
    struct tpl_node **at;
};

static void
nodes_add(struct parser *p, struct nodes *l, struct tpl_node *node)
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

static struct tpl_node *
node_new(struct parser *p, enum node_kind kind)
{
    struct tpl_node *n = val_get(p->c, sizeof(*n));

    n->kind = kind;
    n->line = p->tok->line;
    return n;
}

/* ---- tokens ---------------------------------------------------------------------- */

__attribute__((noreturn)) static void
unexpected(struct parser *p, const char *want)
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

static int
is_op(const struct parser *p, enum tok_op op)
{
    return p->tok->kind == TOK_OP && p->tok->op == op;
}

static int
skip_op(struct parser *p, enum tok_op op)
{
    if (!is_op(p, op))
        return 0;
    p->tok++;
    return 1;
}

static void
need_op(struct parser *p, enum tok_op op, const char *text)
{
    if (!skip_op(p, op))
        unexpected(p, text);
}

static int
is_word(const struct tpl_tok *k, const char *word)
{
    return k->kind == TOK_NAME && k->n == strlen(word) && memcmp(k->p, word, k->n) == 0;
}

static int
skip_word(struct parser *p, const char *word)
{
    if (!is_word(p->tok, word))
        return 0;
    p->tok++;
    return 1;
}

static void
need_word(struct parser *p, const char *word)
{
    if (!skip_word(p, word))
        unexpected(p, word);
}

static void
need_block_end(struct parser *p)
{
    if (p->tok->kind != TOK_BLOCK_END)
        unexpected(p, "end of statement block");
    p->tok++;
}

static void
need_name(struct parser *p, const char **ret_p, size_t *ret_n)
{
    if (p->tok->kind != TOK_NAME)
        unexpected(p, "a name");
    *ret_p = p->tok->p;
    *ret_n = p->tok->n;
    p->tok++;
}

static void
deeper(struct parser *p)
{
    if (--p->c->depth < 0)
        val_fail(p->c, "line %d: nested too deeply", p->tok->line);
}

/* ---- expressions ------------------------------------------------------------------ */

static struct tpl_node *parse_expr(struct parser *p);
static struct tpl_node *parse_unary(struct parser *p, int filters);
static struct tpl_node *parse_postfix(struct parser *p, struct tpl_node *node);
static struct tpl_node *parse_primary(struct parser *p);
static struct tpl_node *parse_tuple(struct parser *p, int parentheses, int conditions);

static struct tpl_node *
node_two(struct parser *p, enum node_kind kind, enum tok_op op, struct tpl_node *a,
    struct tpl_node *b)
{
    struct tpl_node *n = node_new(p, kind);

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

    need_op(p, OP_LPAREN, "'('");
    while (!is_op(p, OP_RPAREN)) {
        if (at.n + kw.n > 0) {
            need_op(p, OP_COMMA, "','");
            if (is_op(p, OP_RPAREN))
                break;
        }
        if (r->rest == NULL && skip_op(p, OP_MUL)) {
            r->rest = parse_expr(p);
            if (!skip_op(p, OP_COMMA))
                break;
        }
        if (skip_op(p, OP_POW)) {
            r->more = parse_expr(p);
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
            need_name(p, &names[kw.n].p, &names[kw.n].n);
            p->tok++;
            nodes_add(p, &kw, parse_expr(p));
        } else if (kw.n > 0) {
            unexpected(p, "a keyword argument");
        } else {
            nodes_add(p, &at, parse_expr(p));
        }
    }
    need_op(p, OP_RPAREN, "')'");
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
    struct tpl_node *n = node_new(p, NODE_CONST);
    struct val_buf b = { 0 };

    for (; p->tok->kind == TOK_STRING; p->tok++)
        val_add(p->c, &b, p->tok->p, p->tok->n, 0);
    n->value = val_str(p->c, b.n > 0 ? b.p : "", b.n, 0);
    return n;
}

static struct tpl_node *
parse_name(struct parser *p)
{
    static const struct {
        const char *word;
        struct val v;
    } consts[] = { { "true", { .type = VAL_BOOL, .b = 1 } },
        { "True", { .type = VAL_BOOL, .b = 1 } }, { "false", { .type = VAL_BOOL } },
        { "False", { .type = VAL_BOOL } }, { "none", { .type = VAL_NONE } },
        { "None", { .type = VAL_NONE } } };
    struct tpl_node *n = node_new(p, NODE_NAME);

    for (size_t i = 0; i < sizeof(consts) / sizeof(consts[0]); i++)
        if (skip_word(p, consts[i].word)) {
            n->kind = NODE_CONST;
            n->value = consts[i].v;
            return n;
        }
    p->extra |= is_word(p->tok, "caller") ? TPL_CALLER
        : is_word(p->tok, "kwargs")       ? TPL_KWARGS
        : is_word(p->tok, "varargs")
        ? TPL_VARARGS
        : 0;
    need_name(p, &n->p, &n->n);
    return n;
}

static struct tpl_node *
parse_list(struct parser *p)
{
    struct tpl_node *n = node_new(p, NODE_LIST);
    struct nodes l = { 0 };

    need_op(p, OP_LBRACKET, "'['");
    while (!is_op(p, OP_RBRACKET)) {
        if (l.n > 0)
            need_op(p, OP_COMMA, "','");
        if (is_op(p, OP_RBRACKET))
            break;
        nodes_add(p, &l, parse_expr(p));
    }
    need_op(p, OP_RBRACKET, "']'");
    n->at = l.at;
    n->n_at = l.n;
    return n;
}

static struct tpl_node *
parse_dict(struct parser *p)
{
    struct tpl_node *n = node_new(p, NODE_DICT);
    struct nodes l = { 0 };

    need_op(p, OP_LBRACE, "'{'");
    while (!is_op(p, OP_RBRACE)) {
        if (l.n > 0)
            need_op(p, OP_COMMA, "','");
        if (is_op(p, OP_RBRACE))
            break;
        nodes_add(p, &l, parse_expr(p));
        need_op(p, OP_COLON, "':'");
        nodes_add(p, &l, parse_expr(p));
    }
    need_op(p, OP_RBRACE, "'}'");
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
        return parse_name(p);
    case TOK_STRING:
        return parse_strings(p);
    case TOK_INT:
        n = node_new(p, NODE_CONST);
        n->value = val_int(p->tok++->i);
        return n;
    case TOK_FLOAT:
        n = node_new(p, NODE_CONST);
        n->value = val_float(p->tok++->f);
        return n;
    default:
        break;
    }
    if (skip_op(p, OP_LPAREN)) {
        n = parse_tuple(p, 1, 1);
        need_op(p, OP_RPAREN, "')'");
        return n;
    }
    if (is_op(p, OP_LBRACKET))
        return parse_list(p);
    if (is_op(p, OP_LBRACE))
        return parse_dict(p);
    unexpected(p, "an expression");
}

/* What is between brackets: an index or a slice. */
static struct tpl_node *
parse_index(struct parser *p)
{
    struct tpl_node *n = node_new(p, NODE_SLICE), *first = NULL;

    if (!is_op(p, OP_COLON)) {
        first = parse_expr(p);
        if (!is_op(p, OP_COLON))
            return first;
    }
    n->a = first;
    need_op(p, OP_COLON, "':'");
    if (!is_op(p, OP_COLON) && !is_op(p, OP_RBRACKET))
        n->b = parse_expr(p);
    if (skip_op(p, OP_COLON) && !is_op(p, OP_RBRACKET))
        n->c = parse_expr(p);
    return n;
}

static struct tpl_node *
parse_subscript(struct parser *p, struct tpl_node *node)
{
    struct tpl_node *n;

    if (skip_op(p, OP_DOT)) {
        if (p->tok->kind == TOK_INT) {
            n = node_two(p, NODE_ITEM, OP_DOT, node, node_new(p, NODE_CONST));
            n->b->value = val_int(p->tok++->i);
            return n;
        }
        n = node_two(p, NODE_ATTR, OP_DOT, node, NULL);
        need_name(p, &n->p, &n->n);
        return n;
    }
    need_op(p, OP_LBRACKET, "'['");
    n = node_two(p, NODE_ITEM, OP_DOT, node, parse_index(p));
    need_op(p, OP_RBRACKET, "']'");
    return n;
}

static struct tpl_node *
parse_call(struct parser *p, struct tpl_node *node)
{
    struct tpl_node *n = node_two(p, NODE_CALL, OP_DOT, node, NULL);

    n->args = parse_args(p);
    return n;
}

static struct tpl_node *
parse_postfix(struct parser *p, struct tpl_node *node)
{
    for (;;) {
        if (is_op(p, OP_DOT) || is_op(p, OP_LBRACKET))
            node = parse_subscript(p, node);
        else if (is_op(p, OP_LPAREN))
            node = parse_call(p, node);
        else
            return node;
    }
}

static struct tpl_node *
parse_filter(struct parser *p, struct tpl_node *node)
{
    struct tpl_node *n = node_two(p, NODE_FILTER, OP_PIPE, node, NULL);

    need_name(p, &n->p, &n->n);
    n->args = is_op(p, OP_LPAREN) ? parse_args(p) : val_get(p->c, sizeof(*n->args));
    return n;
}

/* May what comes be a test's one argument without parentheses? */
static int
is_test_arg(const struct parser *p)
{
    switch (p->tok->kind) {
    case TOK_NAME:
        return !is_word(p->tok, "else") && !is_word(p->tok, "or") &&
            !is_word(p->tok, "and");
    case TOK_STRING:
    case TOK_INT:
    case TOK_FLOAT:
        return 1;
    default:
        return is_op(p, OP_LBRACKET) || is_op(p, OP_LBRACE);
    }
}

static struct tpl_node *
parse_test(struct parser *p, struct tpl_node *node)
{
    struct tpl_node *n = node_two(p, NODE_TEST, OP_DOT, node, NULL), *not ;
    int negated = skip_word(p, "not");

    need_name(p, &n->p, &n->n);
    if (is_op(p, OP_LPAREN)) {
        n->args = parse_args(p);
    } else {
        n->args = val_get(p->c, sizeof(*n->args));
        /* "a is defined if ..." and "... in ..." end the test */
        if (is_test_arg(p) && !is_word(p->tok, "if") && !is_word(p->tok, "in") &&
            !is_word(p->tok, "not")) {
            if (is_word(p->tok, "is"))
                val_fail(p->c, "line %d: tests cannot be chained with is", p->tok->line);
            n->args->at = val_array(p->c, 1, sizeof(*n->args->at));
            n->args->at[0] = parse_postfix(p, parse_primary(p));
            n->args->n = 1;
        }
    }
    if (!negated)
        return n;
    not = node_two(p, NODE_NOT, OP_DOT, n, NULL);
    return not ;
}

static struct tpl_node *
parse_filters(struct parser *p, struct tpl_node *node)
{
    for (;;) {
        if (skip_op(p, OP_PIPE))
            node = parse_filter(p, node);
        else if (skip_word(p, "is"))
            node = parse_test(p, node);
        else if (is_op(p, OP_LPAREN))
            node = parse_call(p, node);
        else
            return node;
    }
}

static struct tpl_node *
parse_unary(struct parser *p, int filters)
{
    struct tpl_node *n;

    deeper(p);
    if (skip_op(p, OP_SUB))
        n = node_two(p, NODE_NEG, OP_SUB, parse_unary(p, 0), NULL);
    else if (skip_op(p, OP_ADD))
        n = node_two(p, NODE_POS, OP_ADD, parse_unary(p, 0), NULL);
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

    while (skip_op(p, OP_POW))
        n = node_two(p, NODE_BINARY, OP_POW, n, parse_unary(p, 1));
    return n;
}

static struct tpl_node *
parse_product(struct parser *p)
{
    struct tpl_node *n = parse_pow(p);

    while (is_op(p, OP_MUL) || is_op(p, OP_DIV) || is_op(p, OP_FLOORDIV) ||
        is_op(p, OP_MOD)) {
        enum tok_op op = p->tok++->op;

        n = node_two(p, NODE_BINARY, op, n, parse_pow(p));
    }
    return n;
}

static struct tpl_node *
parse_concat(struct parser *p)
{
    struct tpl_node *n = parse_product(p);

    while (skip_op(p, OP_CONCAT))
        n = node_two(p, NODE_BINARY, OP_CONCAT, n, parse_product(p));
    return n;
}

static struct tpl_node *
parse_sum(struct parser *p)
{
    struct tpl_node *n = parse_concat(p);

    while (is_op(p, OP_ADD) || is_op(p, OP_SUB)) {
        enum tok_op op = p->tok++->op;

        n = node_two(p, NODE_BINARY, op, n, parse_concat(p));
    }
    return n;
}

/* The comparison that comes, if one does. */
static int
skip_comparison(struct parser *p, enum tok_op *ret)
{
    if (p->tok->kind == TOK_OP && p->tok->op >= OP_EQ && p->tok->op <= OP_GE) {
        *ret = p->tok++->op;
        return 1;
    }
    if (skip_word(p, "in")) {
        *ret = OP_IN;
        return 1;
    }
    if (is_word(p->tok, "not") && is_word(p->tok + 1, "in")) {
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
            nodes_add(p, &l, first);
        ops[n_op++] = op;
        nodes_add(p, &l, parse_sum(p));
    }
    if (n_op == 0)
        return first;
    n = node_new(p, NODE_COMPARE);
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

    if (!is_word(p->tok, "not"))
        return parse_compare(p);
    deeper(p);
    p->tok++;
    n = node_two(p, NODE_NOT, OP_DOT, parse_not(p), NULL);
    p->c->depth++;
    return n;
}

static struct tpl_node *
parse_and(struct parser *p)
{
    struct tpl_node *n = parse_not(p);

    while (skip_word(p, "and"))
        n = node_two(p, NODE_AND, OP_DOT, n, parse_not(p));
    return n;
}

static struct tpl_node *
parse_or(struct parser *p)
{
    struct tpl_node *n = parse_and(p);

    while (skip_word(p, "or"))
        n = node_two(p, NODE_OR, OP_DOT, n, parse_and(p));
    return n;
}

static struct tpl_node *
parse_expr(struct parser *p)
{
    struct tpl_node *n, *cond;

    deeper(p);
    n = parse_or(p);
    while (skip_word(p, "if")) {
        cond = node_two(p, NODE_COND, OP_DOT, parse_or(p), n);
        cond->c = skip_word(p, "else") ? parse_expr(p) : NULL;
        n = cond;
    }
    p->c->depth++;
    return n;
}

/* One expression, or several with commas. conditions 0: "if" does not belong to it. */
static struct tpl_node *
parse_tuple(struct parser *p, int parentheses, int conditions)
{
    struct tpl_node *n, *tuple;
    struct nodes l = { 0 };
    int comma = 0;

    if (parentheses && is_op(p, OP_RPAREN)) {
        n = node_new(p, NODE_TUPLE);
        return n;
    }
    tuple = node_new(p, NODE_TUPLE);
    for (;;) {
        if (comma &&
            (p->tok->kind == TOK_BLOCK_END || p->tok->kind == TOK_PRINT_END ||
                is_op(p, OP_RPAREN)))
            break;
        n = conditions ? parse_expr(p) : parse_or(p);
        nodes_add(p, &l, n);
        if (!skip_op(p, OP_COMMA))
            break;
        comma = 1;
    }
    if (!comma)
        return n;
    tuple->at = l.at;
    tuple->n_at = l.n;
    return tuple;
}

/* ---- statements ---------------------------------------------------------------------- */

static void parse_body(struct parser *p, struct tpl_body *ret, const char *const *ends);

static struct tpl_node *
parse_target_one(struct parser *p, int attributes)
{
    struct tpl_node *n;

    if (skip_op(p, OP_LPAREN)) {
        struct nodes l = { 0 };

        n = node_new(p, NODE_TUPLE);
        deeper(p);
        do {
            nodes_add(p, &l, parse_target_one(p, 0));
        } while (skip_op(p, OP_COMMA) && !is_op(p, OP_RPAREN));
        p->c->depth++;
        need_op(p, OP_RPAREN, "')'");
        n->at = l.at;
        n->n_at = l.n;
        return n;
    }
    n = parse_name(p);
    if (n->kind == NODE_CONST)
        val_fail(p->c, "line %d: cannot assign to a constant", n->line);
    if (attributes && is_op(p, OP_DOT)) {
        struct tpl_node *a = node_two(p, NODE_ATTR, OP_DOT, n, NULL);

        p->tok++;
        need_name(p, &a->p, &a->n);
        return a;
    }
    return n;
}

/* A name, or names with commas. */
static struct tpl_node *
parse_target(struct parser *p, int attributes)
{
    struct tpl_node *n = parse_target_one(p, attributes), *tuple;
    struct nodes l = { 0 };

    if (!is_op(p, OP_COMMA))
        return n;
    tuple = node_new(p, NODE_TUPLE);
    nodes_add(p, &l, n);
    while (skip_op(p, OP_COMMA) && (p->tok->kind == TOK_NAME || is_op(p, OP_LPAREN)) &&
        !is_word(p->tok, "in"))
        nodes_add(p, &l, parse_target_one(p, attributes));
    tuple->at = l.at;
    tuple->n_at = l.n;
    return tuple;
}

static struct tpl_node *
parse_for(struct parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL },
                             *const end[] = { "endfor", NULL };
    struct tpl_node *n = node_new(p, NODE_FOR);

    n->a = parse_target(p, 0);
    need_word(p, "in");
    n->b = parse_tuple(p, 0, 0);
    if (skip_word(p, "if"))
        n->c = parse_expr(p);
    if (skip_word(p, "recursive"))
        n->extra = TPL_RECURSIVE;
    need_block_end(p);
    p->loops++;
    parse_body(p, &n->body, ends);
    p->loops--;
    if (skip_word(p, "else")) {
        need_block_end(p);
        parse_body(p, &n->other, end);
    }
    need_word(p, "endfor");
    return n;
}

static struct tpl_node *
parse_if(struct parser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    static const char *const end[] = { "endif", NULL };
    struct tpl_node *n = node_new(p, NODE_IF), *top = n;

    for (;;) {
        n->a = parse_tuple(p, 0, 0);
        need_block_end(p);
        parse_body(p, &n->body, ends);
        if (!skip_word(p, "elif"))
            break;
        n->other.at = val_array(p->c, 1, sizeof(*n->other.at));
        n->other.n = 1;
        n->other.at[0] = node_new(p, NODE_IF);
        n = n->other.at[0];
    }
    if (skip_word(p, "else")) {
        need_block_end(p);
        parse_body(p, &n->other, end);
    }
    need_word(p, "endif");
    return top;
}

/* |name|name(args): the innermost has no operand. */
static struct tpl_node *
parse_chain(struct parser *p)
{
    struct tpl_node *n = NULL;

    while (skip_op(p, OP_PIPE))
        n = parse_filter(p, n);
    return n;
}

static struct tpl_node *
parse_set(struct parser *p)
{
    static const char *const end[] = { "endset", NULL };
    struct tpl_node *n = node_new(p, NODE_SET);

    n->a = parse_target(p, 1);
    if (skip_op(p, OP_ASSIGN)) {
        n->b = parse_tuple(p, 0, 1);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    n->b = parse_chain(p);
    need_block_end(p);
    parse_body(p, &n->body, end);
    need_word(p, "endset");
    return n;
}

/* Between parentheses: names, the last ones with values. */
static void
parse_params(struct parser *p, struct tpl_node *n)
{
    struct nodes defaults = { 0 };
    struct tpl_name names[64];

    need_op(p, OP_LPAREN, "'('");
    while (!is_op(p, OP_RPAREN)) {
        if (n->n_names > 0)
            need_op(p, OP_COMMA, "','");
        if (n->n_names == sizeof(names) / sizeof(names[0]))
            val_fail(p->c, "line %d: too many parameters", n->line);
        need_name(p, &names[n->n_names].p, &names[n->n_names].n);
        n->n_names++;
        if (skip_op(p, OP_ASSIGN))
            nodes_add(p, &defaults, parse_expr(p));
        else if (defaults.n > 0)
            val_fail(p->c, "line %d: non-default argument follows default argument",
                n->line);
    }
    need_op(p, OP_RPAREN, "')'");
    n->names = val_array(p->c, n->n_names + 1, sizeof(*n->names));
    memcpy(n->names, names, n->n_names * sizeof(*names));
    n->at = defaults.at;
    n->n_at = defaults.n;
}

/* A macro's body, and what it reads. */
static void
parse_macro_body(struct parser *p, struct tpl_node *n, const char *const *end)
{
    unsigned extra = p->extra;
    int loops = p->loops;

    p->loops = 0;
    p->extra = 0;
    parse_body(p, &n->body, end);
    n->extra = p->extra;
    for (size_t i = 0; i < n->n_names; i++)
        if (val_is_name("caller", n->names[i].p, n->names[i].n))
            n->extra &= ~TPL_CALLER;
        else if (val_is_name("kwargs", n->names[i].p, n->names[i].n))
            n->extra &= ~TPL_KWARGS;
        else if (val_is_name("varargs", n->names[i].p, n->names[i].n))
            n->extra &= ~TPL_VARARGS;
    p->loops = loops;
    p->extra |= extra;
}

static struct tpl_node *
parse_macro(struct parser *p)
{
    static const char *const end[] = { "endmacro", NULL };
    struct tpl_node *n = node_new(p, NODE_MACRO);

    need_name(p, &n->p, &n->n);
    parse_params(p, n);
    need_block_end(p);
    parse_macro_body(p, n, end);
    need_word(p, "endmacro");
    return n;
}

/* {% call(item) macro(list) %}: the body is a macro, which the other one has as caller. */
static struct tpl_node *
parse_call_block(struct parser *p)
{
    static const char *const end[] = { "endcall", NULL };
    struct tpl_node *n = node_new(p, NODE_CALL_BLOCK), *caller = node_new(p, NODE_MACRO);

    caller->p = "caller";
    caller->n = 6;
    if (is_op(p, OP_LPAREN))
        parse_params(p, caller);
    n->a = parse_expr(p);
    if (n->a->kind != NODE_CALL)
        val_fail(p->c, "line %d: expected call", n->line);
    n->b = caller;
    need_block_end(p);
    parse_macro_body(p, caller, end);
    need_word(p, "endcall");
    return n;
}

static struct tpl_node *
parse_with(struct parser *p)
{
    static const char *const end[] = { "endwith", NULL };
    struct tpl_node *n = node_new(p, NODE_WITH);
    struct nodes l = { 0 };

    while (p->tok->kind != TOK_BLOCK_END) {
        if (l.n > 0)
            need_op(p, OP_COMMA, "','");
        nodes_add(p, &l, parse_target_one(p, 0));
        need_op(p, OP_ASSIGN, "'='");
        nodes_add(p, &l, parse_expr(p));
    }
    need_block_end(p);
    n->at = l.at;
    n->n_at = l.n;
    parse_body(p, &n->body, end);
    need_word(p, "endwith");
    return n;
}

static struct tpl_node *
parse_filter_block(struct parser *p)
{
    static const char *const end[] = { "endfilter", NULL };
    struct tpl_node *n = node_new(p, NODE_FILTER_BLOCK);

    n->b = parse_filter(p, NULL);
    while (skip_op(p, OP_PIPE))
        n->b = parse_filter(p, n->b);
    need_block_end(p);
    parse_body(p, &n->body, end);
    need_word(p, "endfilter");
    return n;
}

static struct tpl_node *
parse_generation(struct parser *p)
{
    static const char *const end[] = { "endgeneration", NULL };
    struct tpl_node *n = node_new(p, NODE_GENERATION);

    need_block_end(p);
    parse_body(p, &n->body, end);
    need_word(p, "endgeneration");
    return n;
}

static struct tpl_node *
parse_statement(struct parser *p)
{
    static const struct {
        const char *word;
        struct tpl_node *(*parse)(struct parser *);
    } all[] = { { "for", parse_for }, { "if", parse_if }, { "set", parse_set },
        { "macro", parse_macro }, { "filter", parse_filter_block },
        { "generation", parse_generation }, { "call", parse_call_block },
        { "with", parse_with } };
    int is_break = is_word(p->tok, "break");

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (skip_word(p, all[i].word))
            return all[i].parse(p);
    if (is_break || is_word(p->tok, "continue")) {
        if (p->loops == 0)
            val_fail(p->c, "line %d: '%s' outside of a loop", p->tok->line,
                is_break ? "break" : "continue");
        p->tok++;
        return node_new(p, is_break ? NODE_BREAK : NODE_CONTINUE);
    }
    if (p->tok->kind != TOK_NAME)
        unexpected(p, "a tag's name");
    val_fail(p->c, "line %d: unknown tag '%.*s'", p->tok->line,
        (int)(p->tok->n < 64 ? p->tok->n : 64), p->tok->p);
}

static int
at_end(const struct parser *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++)
        if (is_word(p->tok + 1, *ends))
            return 1;
    return 0;
}

/* Up to the tag that is one of ends, whose name is the next token then; NULL: all. */
static void
parse_body(struct parser *p, struct tpl_body *ret, const char *const *ends)
{
    struct nodes l = { 0 };
    struct tpl_node *n;

    deeper(p);
    while (p->tok->kind != TOK_END) {
        if (p->tok->kind == TOK_TEXT) {
            n = node_new(p, NODE_TEXT);
            n->p = p->tok->p;
            n->n = p->tok->n;
            p->tok++;
        } else if (p->tok->kind == TOK_PRINT) {
            p->tok++;
            n = node_new(p, NODE_PRINT);
            n->a = parse_tuple(p, 0, 1);
            if (p->tok->kind != TOK_PRINT_END)
                unexpected(p, "end of print statement");
            p->tok++;
        } else {
            if (at_end(p, ends)) {
                p->tok++;
                break;
            }
            p->tok++;
            n = parse_statement(p);
            need_block_end(p);
        }
        nodes_add(p, &l, n);
    }
    if (ends != NULL && p->tok->kind == TOK_END)
        val_fail(p->c, "line %d: unexpected end of template, expected '%s'", p->tok->line,
            ends[0]);
    p->c->depth++;
    ret->at = l.at;
    ret->n = l.n;
}

void
tpl_parse(struct val_ctx *c, struct template *t)
{
    struct parser p = { .c = c, .tok = t->tok };

    parse_body(&p, &t->body, NULL);
}

int
tpl_new(const char *text, size_t bytes, struct template **ret, char err[VAL_ERR])
{
    struct template *t = calloc(1, sizeof(*t));
    struct val_ctx c = { .steps = UINT64_MAX, .depth = TPL_MAX_DEPTH, .err = err };

    err[0] = '\0';
    if (t == NULL)
        return -ENOMEM;
    if (bytes > TPL_MAX_BYTES) {
        (void)snprintf(err, VAL_ERR, "the template has %zu bytes, at most %u are taken",
            bytes, TPL_MAX_BYTES);
        free(t);
        return -E2BIG;
    }
    arn_init(&t->mem, TPL_MAX_MEM);
    c.mem = &t->mem;
    if (setjmp(c.fail) != 0) {
        (void)tpl_free(t);
        return -EINVAL;
    }
    tpl_lex(&c, t, text, bytes);
    tpl_parse(&c, t);
    *ret = t;
    return 0;
}

struct template *
tpl_free(struct template *t)
{
    if (t != NULL)
        arn_fini(&t->mem);
    free(t);
    return NULL;
}
