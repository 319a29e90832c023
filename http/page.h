/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /: the page (page.html), which is embedded in the program. It needs no key, for it
 * holds no data; its requests need one. Its headers allow only its own script and style,
 * identified by their hashes, and requests to this gateway.
 */
#ifndef FDD_HTTP_PAGE_H
#define FDD_HTTP_PAGE_H

#include <stddef.h>

/* Write the headers of the page text, with the hashes of its first <script> and <style>.
 * Returns 0; -EINVAL: it lacks one; -ENOSPC. */
int page_headers(const char *text, size_t n, char *ret, size_t ret_bytes);

#endif
