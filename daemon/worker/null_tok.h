/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer of the null model: 256 byte tokens, then <|bos|>, <|eos|>
 * and <|pad|>. Loaded from a tokenizer.json made in memory, so that text is
 * processed as for any model.
 */
#ifndef FDD_DAEMON_WORKER_NULL_TOK_H
#define FDD_DAEMON_WORKER_NULL_TOK_H

#include <stddef.h>

struct tok;

/* As tok_load(). */
int ntk_load(struct tok **ret, char *err, size_t err_bytes);

#endif
