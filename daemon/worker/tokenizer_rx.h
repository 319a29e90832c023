/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Patterns of a tokenizer, and the byte buffer that all its files use. */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_RX_H
#define FDD_DAEMON_WORKER_TOKENIZER_RX_H

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growable buffer of bytes. */
struct tok_buf {
    uint8_t *p;
    size_t n, cap;
};

/* Appends n bytes; 0 or -ENOMEM. p may be NULL if n is 0. */
int tok_buf_put(struct tok_buf *b, const void *p, size_t n);

/* Makes room for n more bytes; 0 or -ENOMEM. */
int tok_buf_room(struct tok_buf *b, size_t n);

void tok_buf_fini(struct tok_buf *b);

/* A compiled pattern; jit: it was compiled to machine code. */
struct tok_rx {
    pcre2_code *code;
    pcre2_code *ascii; /* the same for ASCII subjects, faster; may be NULL */
    bool jit;
};

/*
 * Compiles a pattern written for Oniguruma (literal: a plain string) with the same
 * meaning: classes are written out where PCRE2's differ. A pattern that would have
 * another meaning in PCRE2 is refused. 0, -ENOTSUP, -EINVAL or -ENOMEM with a reason in
 * err.
 */
int tok_rx_compile(struct tok_rx *rx, const char *pattern, size_t n, bool literal,
    char *err, size_t err_bytes);

void tok_rx_fini(struct tok_rx *rx);

/* Matching state of one thread. */
struct tok_rx_run {
    pcre2_match_data *md;
    pcre2_match_context *mc;
    pcre2_jit_stack *stack;
};

int tok_rx_run_init(struct tok_rx_run *run);

void tok_rx_run_fini(struct tok_rx_run *run);

/* Limits the work of one match in a text of n bytes. */
void tok_rx_run_limit(struct tok_rx_run *run, size_t n);

/*
 * Searches s[0 .. n), valid UTF-8 (ascii: only ASCII), from offset at. 1: found at
 * *ret_a .. *ret_b; 0: not found; -E2BIG, -ENOMEM.
 */
int tok_rx_find(const struct tok_rx *rx, struct tok_rx_run *run, const uint8_t *s,
    size_t n, bool ascii, size_t at, size_t *ret_a, size_t *ret_b);

/* Whether cp is a word character added after Unicode 14. */
bool tok_rx_is_newer_word(uint32_t cp);

#endif
