/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens to nodes: shared by the parsers of expressions (expression.c) and of statements
 * (parse.c). An error is raised by val_fail() and names the line.
 */
#ifndef FDD_CHAT_PARSE_H
#define FDD_CHAT_PARSE_H

#include "chat/template.h"

struct parser {
    struct val_ctx *c;
    const struct tpl_tok *tok; /* the next token */
    int loops;                 /* open loops; > 0: break and continue are allowed */
    unsigned extra;            /* TPL_CALLER, ...: which of these names the body reads */
};

struct nodes {
    size_t n, room;
    struct tpl_node **at;
};

void prs_add(struct parser *p, struct nodes *l, struct tpl_node *node);
struct tpl_node *prs_node(struct parser *p, enum node_kind kind);
struct tpl_node *prs_two(struct parser *p, enum node_kind kind, enum tok_op op,
    struct tpl_node *a, struct tpl_node *b);
/* Fails at the next token. want: what was expected instead, as the error shows it. */
__attribute__((noreturn)) void prs_unexpected(struct parser *p, const char *want);
/* Enter a level of nesting, or fail if it is too deep; the caller leaves it by
 * p->c->depth++. */
void prs_deeper(struct parser *p);

/* prs_is: is the next token this one? prs_skip: as prs_is, and step over the token if it
 * is. prs_need: step over the token, or fail if it is another one. */
int prs_is_op(const struct parser *p, enum tok_op op);
int prs_skip_op(struct parser *p, enum tok_op op);
void prs_need_op(struct parser *p, enum tok_op op, const char *text);
int prs_is_word(const struct tpl_tok *k, const char *name);
int prs_skip_word(struct parser *p, const char *name);
void prs_need_word(struct parser *p, const char *name);
void prs_need_name(struct parser *p, const char **ret_p, size_t *ret_n);

struct tpl_node *prs_name(struct parser *p);
struct tpl_node *prs_expr(struct parser *p);
/* An expression, or a tuple if commas follow. parentheses: may be empty before a ")".
 * conditions 0: an inline "if" is not parsed as part of it. */
struct tpl_node *prs_tuple(struct parser *p, int parentheses, int conditions);
/* A filter's name and arguments, after the "|"; node is its operand. */
struct tpl_node *prs_filter(struct parser *p, struct tpl_node *node);

#endif
