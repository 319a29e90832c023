/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens to nodes: what expressions (expression.c) and statements (parse.c) are parsed by. An
 * error leaves by val_fail() with the line.
 */
#ifndef FDD_CHAT_PARSE_H
#define FDD_CHAT_PARSE_H

#include "chat/template.h"

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

void prs_add(struct parser *p, struct nodes *l, struct tpl_node *node);
struct tpl_node *prs_node(struct parser *p, enum node_kind kind);
struct tpl_node *prs_two(struct parser *p, enum node_kind kind, enum tok_op op,
    struct tpl_node *a, struct tpl_node *b);
/* want: what was expected in place of the next token. */
__attribute__((noreturn)) void prs_unexpected(struct parser *p, const char *want);
/* Nesting is bounded: take one level, which the caller gives back by p->c->depth++. */
void prs_deeper(struct parser *p);

/* Is the next token that? skip: then it is taken. need: it must be. */
int prs_is_op(const struct parser *p, enum tok_op op);
int prs_skip_op(struct parser *p, enum tok_op op);
void prs_need_op(struct parser *p, enum tok_op op, const char *text);
int prs_is_word(const struct tpl_tok *k, const char *name);
int prs_skip_word(struct parser *p, const char *name);
void prs_need_word(struct parser *p, const char *name);
void prs_need_name(struct parser *p, const char **ret_p, size_t *ret_n);

struct tpl_node *prs_name(struct parser *p);
struct tpl_node *prs_expr(struct parser *p);
/* One expression, or several with commas. conditions 0: "if" does not belong to it. */
struct tpl_node *prs_tuple(struct parser *p, int parentheses, int conditions);
/* A filter's name and arguments, of node; behind the "|". */
struct tpl_node *prs_filter(struct parser *p, struct tpl_node *node);

#endif
