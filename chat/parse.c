/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
need_block_end(struct parser *p)
{
    if (p->tok->kind != TOK_BLOCK_END)
        prs_unexpected(p, "end of statement block");
    p->tok++;
}

static void parse_body(struct parser *p, struct tpl_body *ret, const char *const *ends);

static struct tpl_node *
parse_target_one(struct parser *p, int attributes)
{
    struct tpl_node *n;

    if (prs_skip_op(p, OP_LPAREN)) {
        struct nodes l = { 0 };

        n = prs_node(p, NODE_TUPLE);
        prs_deeper(p);
        do {
            prs_add(p, &l, parse_target_one(p, 0));
        } while (prs_skip_op(p, OP_COMMA) && !prs_is_op(p, OP_RPAREN));
        p->c->depth++;
        prs_need_op(p, OP_RPAREN, "')'");
        n->at = l.at;
        n->n_at = l.n;
        return n;
    }
    n = prs_name(p);
    if (n->kind == NODE_CONST)
        val_fail(p->c, "line %d: cannot assign to a constant", n->line);
    if (attributes && prs_is_op(p, OP_DOT)) {
        struct tpl_node *a = prs_two(p, NODE_ATTR, OP_DOT, n, NULL);

        p->tok++;
        prs_need_name(p, &a->p, &a->n);
        return a;
    }
    return n;
}

/* A name, or names separated by commas. */
static struct tpl_node *
parse_target(struct parser *p, int attributes)
{
    struct tpl_node *n = parse_target_one(p, attributes), *tuple;
    struct nodes l = { 0 };

    if (!prs_is_op(p, OP_COMMA))
        return n;
    tuple = prs_node(p, NODE_TUPLE);
    prs_add(p, &l, n);
    while (prs_skip_op(p, OP_COMMA) &&
        (p->tok->kind == TOK_NAME || prs_is_op(p, OP_LPAREN)) && !prs_is_word(p->tok, "in"))
        prs_add(p, &l, parse_target_one(p, attributes));
    tuple->at = l.at;
    tuple->n_at = l.n;
    return tuple;
}

static struct tpl_node *
parse_for(struct parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL },
                             *const end[] = { "endfor", NULL };
    struct tpl_node *n = prs_node(p, NODE_FOR);

    n->a = parse_target(p, 0);
    prs_need_word(p, "in");
    n->b = prs_tuple(p, 0, 0);
    if (prs_skip_word(p, "if"))
        n->c = prs_expr(p);
    if (prs_skip_word(p, "recursive"))
        n->extra = TPL_RECURSIVE;
    need_block_end(p);
    p->loops++;
    parse_body(p, &n->body, ends);
    p->loops--;
    if (prs_skip_word(p, "else")) {
        need_block_end(p);
        parse_body(p, &n->other, end);
    }
    prs_need_word(p, "endfor");
    return n;
}

static struct tpl_node *
parse_if(struct parser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    static const char *const end[] = { "endif", NULL };
    struct tpl_node *n = prs_node(p, NODE_IF), *top = n;

    for (;;) {
        n->a = prs_tuple(p, 0, 0);
        need_block_end(p);
        parse_body(p, &n->body, ends);
        if (!prs_skip_word(p, "elif"))
            break;
        n->other.at = val_array(p->c, 1, sizeof(*n->other.at));
        n->other.n = 1;
        n->other.at[0] = prs_node(p, NODE_IF);
        n = n->other.at[0];
    }
    if (prs_skip_word(p, "else")) {
        need_block_end(p);
        parse_body(p, &n->other, end);
    }
    prs_need_word(p, "endif");
    return top;
}

/* |name|name(args): the first filter has no operand. */
static struct tpl_node *
parse_chain(struct parser *p)
{
    struct tpl_node *n = NULL;

    while (prs_skip_op(p, OP_PIPE))
        n = prs_filter(p, n);
    return n;
}

static struct tpl_node *
parse_set(struct parser *p)
{
    static const char *const end[] = { "endset", NULL };
    struct tpl_node *n = prs_node(p, NODE_SET);

    n->a = parse_target(p, 1);
    if (prs_skip_op(p, OP_ASSIGN)) {
        n->b = prs_tuple(p, 0, 1);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    n->b = parse_chain(p);
    need_block_end(p);
    parse_body(p, &n->body, end);
    prs_need_word(p, "endset");
    return n;
}

/* Parameters in parentheses; the last ones may have defaults. */
static void
parse_params(struct parser *p, struct tpl_node *n)
{
    struct nodes defaults = { 0 };
    struct tpl_name names[64];

    prs_need_op(p, OP_LPAREN, "'('");
    while (!prs_is_op(p, OP_RPAREN)) {
        if (n->n_names > 0)
            prs_need_op(p, OP_COMMA, "','");
        if (n->n_names == sizeof(names) / sizeof(names[0]))
            val_fail(p->c, "line %d: too many parameters", n->line);
        prs_need_name(p, &names[n->n_names].p, &names[n->n_names].n);
        n->n_names++;
        if (prs_skip_op(p, OP_ASSIGN))
            prs_add(p, &defaults, prs_expr(p));
        else if (defaults.n > 0)
            val_fail(p->c, "line %d: non-default argument follows default argument",
                n->line);
    }
    prs_need_op(p, OP_RPAREN, "')'");
    n->names = val_array(p->c, n->n_names + 1, sizeof(*n->names));
    memcpy(n->names, names, n->n_names * sizeof(*names));
    n->at = defaults.at;
    n->n_at = defaults.n;
}

/* A macro's body; n->extra: which of caller, kwargs and varargs it reads. */
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
    struct tpl_node *n = prs_node(p, NODE_MACRO);

    prs_need_name(p, &n->p, &n->n);
    parse_params(p, n);
    need_block_end(p);
    parse_macro_body(p, n, end);
    prs_need_word(p, "endmacro");
    return n;
}

/* {% call(item) macro(list) %}: the body becomes a macro, passed to the other
 * as caller. */
static struct tpl_node *
parse_call_block(struct parser *p)
{
    static const char *const end[] = { "endcall", NULL };
    struct tpl_node *n = prs_node(p, NODE_CALL_BLOCK), *caller = prs_node(p, NODE_MACRO);

    caller->p = "caller";
    caller->n = 6;
    if (prs_is_op(p, OP_LPAREN))
        parse_params(p, caller);
    n->a = prs_expr(p);
    if (n->a->kind != NODE_CALL)
        val_fail(p->c, "line %d: expected call", n->line);
    n->b = caller;
    need_block_end(p);
    parse_macro_body(p, caller, end);
    prs_need_word(p, "endcall");
    return n;
}

static struct tpl_node *
parse_with(struct parser *p)
{
    static const char *const end[] = { "endwith", NULL };
    struct tpl_node *n = prs_node(p, NODE_WITH);
    struct nodes l = { 0 };

    while (p->tok->kind != TOK_BLOCK_END) {
        if (l.n > 0)
            prs_need_op(p, OP_COMMA, "','");
        prs_add(p, &l, parse_target_one(p, 0));
        prs_need_op(p, OP_ASSIGN, "'='");
        prs_add(p, &l, prs_expr(p));
    }
    need_block_end(p);
    n->at = l.at;
    n->n_at = l.n;
    parse_body(p, &n->body, end);
    prs_need_word(p, "endwith");
    return n;
}

static struct tpl_node *
parse_filter_block(struct parser *p)
{
    static const char *const end[] = { "endfilter", NULL };
    struct tpl_node *n = prs_node(p, NODE_FILTER_BLOCK);

    n->b = prs_filter(p, NULL);
    while (prs_skip_op(p, OP_PIPE))
        n->b = prs_filter(p, n->b);
    need_block_end(p);
    parse_body(p, &n->body, end);
    prs_need_word(p, "endfilter");
    return n;
}

static struct tpl_node *
parse_generation(struct parser *p)
{
    static const char *const end[] = { "endgeneration", NULL };
    struct tpl_node *n = prs_node(p, NODE_GENERATION);

    need_block_end(p);
    parse_body(p, &n->body, end);
    prs_need_word(p, "endgeneration");
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
    int is_break = prs_is_word(p->tok, "break");

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (prs_skip_word(p, all[i].word))
            return all[i].parse(p);
    if (is_break || prs_is_word(p->tok, "continue")) {
        if (p->loops == 0)
            val_fail(p->c, "line %d: '%s' outside of a loop", p->tok->line,
                is_break ? "break" : "continue");
        p->tok++;
        return prs_node(p, is_break ? NODE_BREAK : NODE_CONTINUE);
    }
    if (p->tok->kind != TOK_NAME)
        prs_unexpected(p, "a tag's name");
    val_fail(p->c, "line %d: unknown tag '%.*s'", p->tok->line,
        (int)(p->tok->n < 64 ? p->tok->n : 64), p->tok->p);
}

static int
at_end(const struct parser *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++)
        if (prs_is_word(p->tok + 1, *ends))
            return 1;
    return 0;
}

/* Nodes up to a tag whose name is in ends; its name is then the next token. NULL: up to
 * the template's end. */
static void
parse_body(struct parser *p, struct tpl_body *ret, const char *const *ends)
{
    struct nodes l = { 0 };
    struct tpl_node *n;

    prs_deeper(p);
    while (p->tok->kind != TOK_END) {
        if (p->tok->kind == TOK_TEXT) {
            n = prs_node(p, NODE_TEXT);
            n->p = p->tok->p;
            n->n = p->tok->n;
            p->tok++;
        } else if (p->tok->kind == TOK_PRINT) {
            p->tok++;
            n = prs_node(p, NODE_PRINT);
            n->a = prs_tuple(p, 0, 1);
            if (p->tok->kind != TOK_PRINT_END)
                prs_unexpected(p, "end of print statement");
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
        prs_add(p, &l, n);
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
        (void)snprintf(err, VAL_ERR, "the template has %zu bytes, the limit is %u", bytes,
            TPL_MAX_BYTES);
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
