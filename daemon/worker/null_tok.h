/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer of the null model: 256 byte tokens, then <|bos|>, <|eos|>
 * and <|pad|>. Made at load from a tokenizer.json in memory, so that text
 * goes the way of any model's.
 */
#ifndef FDD_DAEMON_WORKER_NULL_TOK_H
#define FDD_DAEMON_WORKER_NULL_TOK_H

#include <stddef.h>

struct tok;

/* As tok_load(). */
int ntk_load(struct tok **ret, char *err, size_t err_bytes);

#endif
