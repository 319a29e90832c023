/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /: the page (page.html), which is within the program. It comes without a key, for it
 * holds nothing; its requests need one. Its headers let it run its own script and
 * style, known by their hashes, and ask this gateway, and nothing else.
 */
#ifndef FDD_HTTP_PAGE_H
#define FDD_HTTP_PAGE_H

#include <stddef.h>

/* The headers of a page whose first <script> and <style> have what text says.
 * 0; -EINVAL: it lacks one; -ENOSPC. */
int page_headers(const char *text, size_t n, char *ret, size_t ret_bytes);

#endif
