/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats of answers: how a family of models marks reasoning and tool calls. One row
 * per format, one string per form of a call. A form is the text that the model writes,
 * with these placeholders, around each of which blanks may stand:
 *
 *   %N         a function's name, up to the text that follows
 *   %A         its arguments, a JSON object
 *   %O         {"name": .., "arguments": ..}, or a list of such objects
 *   %o         as %O if a brace or bracket follows, and then the form ends; else
 *              nothing
 *   %P         f(a=1, b='x'), or a list of such calls
 *   %G         k:v,k:v}, strings in FMT_QUOTE
 *   %( %)      parameters, any number: inside %K the key, %S attributes of the tag,
 *              %V the value
 *   %{ %}      calls, one or more
 *   %_         nothing
 *   ^          as the first character: only at an answer's start
 */
#ifndef FDD_CHAT_FORMAT_H
#define FDD_CHAT_FORMAT_H

#include <stddef.h>

#define FMT_TRIM_NL  1u /* a value's first and last newline are markup */
#define FMT_LOOSE    2u /* a function's name ends at a blank, < or [ */
#define FMT_KIMI_ID  4u /* calls are named functions.NAME:N, which is also the id */
#define FMT_SHORT_ID 8u /* ids are nine letters and digits */

#define FMT_QUOTE    "<|\"|>" /* around strings in %G */

#define FMT_MARKS    2
#define FMT_CALLS    4
#define FMT_DROPS    7
struct fmt {
    const char *name;
    const char *has[2]; /* a template of this format holds each of them */
    const char *lacks;  /* and does not hold this */
    const char *or_has; /* or it holds this: many models' marks are only in answers */
    const char *think[FMT_MARKS], *answer[FMT_MARKS]; /* begin and end of reasoning */
    const char *call[FMT_CALLS];
    const char *drop[FMT_DROPS]; /* other markup, which is dropped */
    unsigned flags;
};

/* Row i; NULL: i is past the last row. */
const struct fmt *fmt_at(size_t i);
const struct fmt *fmt_named(const char *name);
/* Does one of the format's markers hold the text? */
int fmt_holds(const struct fmt *f, const char *text, size_t bytes);
/* The first row that the template's text fits, or NULL. */
const struct fmt *fmt_of_template(const char *text, size_t bytes);

#endif
