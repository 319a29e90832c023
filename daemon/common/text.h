/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from outside: validation of UTF-8, values in it, and distance from known words.
 * Pure functions, any thread.
 */
#ifndef FDD_DAEMON_COMMON_TEXT_H
#define FDD_DAEMON_COMMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed UTF-8 character (no surrogate, no overlong form) at s, with
 * its code point in *ret_cp; 0: these n bytes begin with none. */
size_t txt_char(const void *s, size_t n, uint32_t *ret_cp);

/* Number of bytes from the start that are well-formed UTF-8: n if all are. NUL is an
 * ordinary character. */
size_t txt_utf8(const void *s, size_t n);

/* For text that arrives byte by byte: s has the n bytes of an incomplete character that
 * earlier calls accepted. Returns the length of the character if c can be its next
 * byte, 0 if not. */
size_t txt_goes_on(const void *s, size_t n, unsigned char c);

/* Write the character as UTF-8. Returns the number of bytes, 1 to 4. */
size_t txt_put(uint32_t cp, void *ret);

/* Value of the line "key..." in a text of such lines, without the blanks, colons and equal
 * signs before it, the blanks after it and the quotes around it; cut to fit ret. 0 or
 * -ENOENT. */
int txt_field(const char *text, const char *key, char *ret, size_t ret_bytes);

/* Reads the next range of a list of numbers such as "0-3,8" and moves *list past it. Returns
 * 1, 0 at the end of the list or of its line, or -EINVAL for text that is no such list. */
int txt_range(const char **list, unsigned long *ret_from, unsigned long *ret_to);

/* Append to text, a buffer of `bytes` bytes. 0, or -ENOSPC: it does not fit whole and nothing
 * was appended. */
int txt_add(char *text, size_t bytes, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Levenshtein distance, counting at most 63 bytes of each word. */
unsigned txt_distance(const char *a, const char *b);

#endif
