/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths. ROUTE(method, path, function, open): a path that ends with a slash matches all
 * paths below it; "/" matches only itself. open: needs no key.
 */
ROUTE(GET, "/health", rt_health, 1)
ROUTE(GET, "/ping", rt_health, 1)
ROUTE(GET, "/version", rt_version, 0)
ROUTE(GET, "/load", rt_load, 0)
ROUTE(GET, "/metrics", rt_metrics, 0)
ROUTE(GET, "/", rt_page, 1)
ROUTE(GET, "/fdd/live", rt_live, 0)
ROUTE(GET, "/v1/models", rt_models, 0)
ROUTE(GET, "/v1/models/", rt_model, 0)
ROUTE(POST, "/v1/completions", rt_completions, 0)
ROUTE(POST, "/v1/chat/completions", rt_chat, 0)
ROUTE(POST, "/v1/messages", rt_messages, 0)
ROUTE(POST, "/v1/messages/count_tokens", rt_count_tokens, 0)
ROUTE(POST, "/v1/responses", rt_responses, 0)
ROUTE(POST, "/tokenize", rt_tokenize, 0)
ROUTE(POST, "/detokenize", rt_detokenize, 0)
