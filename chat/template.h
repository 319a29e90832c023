/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A chat template: text, lexed and parsed once. The language is the subset of Jinja
 * 3.1 that chat templates use, with trim_blocks, lstrip_blocks, loop controls and
 * the block tag `generation`, as transformers sets it up. Not supported: include,
 * import, extends, block.
 *
 * tpl_new() checks the grammar; names, filters and tests are looked up when they
 * are reached. A template is constant afterwards: any number of threads may render.
 */
#ifndef FDD_CHAT_TEMPLATE_H
#define FDD_CHAT_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "chat/arena.h"
#include "chat/value.h"

#define TPL_MAX_BYTES (1u << 20)  /* of a template's text */
#define TPL_MAX_MEM   (64u << 20) /* bytes of its tokens and nodes */
#define TPL_MAX_DEPTH 200         /* of nested statements and expressions */

/* ---- tokens: lex.c ---------------------------------------------------------------- */

enum tok_kind {
    TOK_END,
    TOK_TEXT, /* between tags */
    TOK_BLOCK,
    TOK_BLOCK_END,
    TOK_PRINT,
    TOK_PRINT_END,
    TOK_NAME,
    TOK_STRING,
    TOK_INT,
    TOK_FLOAT,
    TOK_OP
};

enum tok_op { /* which operator a TOK_OP is */
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_CONCAT,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_ASSIGN,
    OP_DOT,
    OP_COMMA,
    OP_COLON,
    OP_PIPE,
    OP_LPAREN,
    OP_RPAREN,
    OP_LBRACKET,
    OP_RBRACKET,
    OP_LBRACE,
    OP_RBRACE,
    OP_IN,
    OP_NOT_IN /* made by the parser */
};

struct tpl_tok {
    enum tok_kind kind;
    enum tok_op op;
    int line;
    const char *p; /* the text; TOK_STRING: without quotes, escapes decoded */
    size_t n;
    int64_t i;
    double f;
};

/* ---- the tree: parse.c --------------------------------------------------------------- */

enum node_kind {
    /* expressions */
    NODE_CONST,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,
    NODE_ATTR,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_NEG,
    NODE_POS,
    NODE_BINARY,
    NODE_COMPARE,
    NODE_AND,
    NODE_OR,
    NODE_COND,
    /* statements */
    NODE_TEXT,
    NODE_PRINT,
    NODE_FOR,
    NODE_IF,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_FILTER_BLOCK,
    NODE_GENERATION,
    NODE_CALL_BLOCK,
    NODE_WITH,
    NODE_BREAK,
    NODE_CONTINUE
};

struct tpl_args { /* of a call, filter or test */
    size_t n, n_kw;
    struct tpl_node **at; /* [n] */
    struct tpl_name {
        const char *p;
        size_t n;
    } * kw;                  /* [n_kw] */
    struct tpl_node **kw_at; /* [n_kw] */
    struct tpl_node *rest;   /* *rest: further positional arguments, or NULL */
    struct tpl_node *more;   /* **more: further keyword arguments, or NULL */
};

struct tpl_body {
    size_t n;
    struct tpl_node **at;
};

/* Names that a macro's body reads although they are no parameters, in the order in which
 * they are passed. TPL_RECURSIVE: a loop that may be called. */
#define TPL_CALLER    1u
#define TPL_KWARGS    2u
#define TPL_VARARGS   4u
#define TPL_RECURSIVE 8u

struct tpl_node {
    enum node_kind kind;
    int line;
    enum tok_op op; /* BINARY; COMPARE has its operators in ops */
    const char *p;  /* NAME, ATTR, FILTER, TEST, MACRO: the name; TEXT: the text */
    size_t n;
    struct val value; /* CONST */
    struct tpl_node *a, *b, *c;
    size_t n_at;          /* LIST, TUPLE: elements; DICT: key, value, key, ...; */
    struct tpl_node **at; /* COMPARE: operands; MACRO: defaults of the last parameters */
    enum tok_op *ops;     /* COMPARE: [n_at - 1] */
    struct tpl_args *args;
    struct tpl_name *names; /* MACRO: parameters */
    size_t n_names;
    unsigned extra;              /* MACRO: TPL_CALLER, ...; FOR: TPL_RECURSIVE */
    struct tpl_body body, other; /* other: the else branch */
};
/*  ATTR    a.p                    ITEM    a[b]          SLICE   [a:b:c] as b of an ITEM
 *  CALL    a(args)                FILTER  a|p(args); a NULL in a filter block
 *  TEST    a is p(args)           NOT, NEG, POS  a      BINARY  a op b
 *  COND    b if a else c          PRINT   {{ a }}       IF      a, body, other
 *  FOR     a: target, b: iterable, c: condition or NULL, body, other
 *  SET     a: target (NAME, ATTR of a namespace, TUPLE), b
 *  SET_BLOCK, FILTER_BLOCK   a: target, b: chain of FILTERs or NULL, body
 *  CALL_BLOCK  a: the CALL, b: a MACRO, which is its caller
 *  WITH    at: target, value, target, ..., body */

struct template
{
    struct arena mem;
    struct tpl_tok *tok; /* used while the text is parsed */
    size_t n_tok;
    struct tpl_body body;
};

/* Returns 0; -EINVAL: err names the error and its line; -E2BIG; -ENOMEM. */
int tpl_new(const char *text, size_t bytes, struct template **ret, char err[VAL_ERR]);
struct template *tpl_free(struct template *t);

/* The two steps of tpl_new(): lex.c and parse.c. c->mem must be &t->mem. */
void tpl_lex(struct val_ctx *c, struct template *t, const char *text, size_t bytes);
void tpl_parse(struct val_ctx *c, struct template *t);

#endif
