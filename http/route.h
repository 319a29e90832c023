/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Routing of paths to handlers, and the checks of access (tbl/routes.h). */
#ifndef FDD_HTTP_ROUTE_H
#define FDD_HTTP_ROUTE_H

struct conn;

/* Handle a request that has been read completely. */
void rt_handle(struct conn *c);
/* The path of an index, for logs: text of the table, never of a client. */
const char *rt_path(unsigned path);

/* Write an error in the form of the path's API. */
struct problem;
struct buf;
void rt_error(const char *path, const struct problem *p, struct buf *b);

/* The handlers. */
#define ROUTE(method, path, fn, open) void fn(struct conn *c);
#include "http/tbl/routes.h"
#undef ROUTE

/* The decoded rest of the path after the route's path. Returns its length; -1: malformed,
 * or too long for ret. */
int rt_tail(const struct conn *c, char *ret, int ret_bytes);

#endif
