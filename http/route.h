/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which path goes where, and who may (tbl/routes.h). */
#ifndef FDD_HTTP_ROUTE_H
#define FDD_HTTP_ROUTE_H

struct conn;

/* A whole request is there. */
void rt_handle(struct conn *c);
/* The path of an index, for logs: never what a client wrote. */
const char *rt_path(unsigned path);

/* An error as the API of the path writes it. */
struct problem;
struct buf;
void rt_error(const char *path, const struct problem *p, struct buf *b);

/* The handlers. */
#define ROUTE(method, path, fn, open) void fn(struct conn *c);
#include "http/tbl/routes.h"
#undef ROUTE

/* The rest of the path behind that of the route, decoded; its length, -1: it is not text. */
int rt_tail(const struct conn *c, char *ret, int ret_bytes);

#endif
