/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Anthropic's API: the interface for other files than its face. */
#ifndef FDD_HTTP_MESSAGES_H
#define FDD_HTTP_MESSAGES_H

#include "http/json.h"
#include "http/problem.h"

/* Translate a body of /v1/messages, or, if counts is set, of /v1/messages/count_tokens,
 * into a chat-completions body. ignored gets the names of unknown fields. Returns 0 or
 * -1. Any thread. */
int msg_translate(const struct jr *j, int counts, struct buf *b, struct buf *ignored,
    struct problem *bad);

#endif
