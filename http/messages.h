/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Anthropic's API: what others than its face need of it. */
#ifndef FDD_HTTP_MESSAGES_H
#define FDD_HTTP_MESSAGES_H

#include "http/json.h"
#include "http/problem.h"

/* A body of /v1/messages, or with counts of /v1/messages/count_tokens, as one of chat
 * completions; names of unknown fields into ignored. 0 or -1. Any thread. */
int msg_translate(const struct jr *j, int counts, struct buf *b, struct buf *ignored,
    struct problem *bad);

#endif
