/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Foreign text: validation of UTF-8, values in it, and distance from known words.
 * Pure functions, any thread.
 */
#ifndef FDD_DAEMON_COMMON_TEXT_H
#define FDD_DAEMON_COMMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed UTF-8 character (no surrogate, no overlong form) at s,
 * its code point in *ret_cp; 0: there is none in these n bytes. */
size_t txt_char(const void *s, size_t n, uint32_t *ret_cp);

/* How many bytes from the start are well-formed UTF-8: n when all are. NUL is a
 * character like others. */
size_t txt_utf8(const void *s, size_t n);

/* For text that comes byte by byte: bytes of the character of which c can be the next,
 * after the n bytes at s that such calls let through; 0: c cannot stand there. */
size_t txt_goes_on(const void *s, size_t n, unsigned char c);

/* Write the character as 1 to 4 bytes of UTF-8; how many. */
size_t txt_put(uint32_t cp, void *ret);

/* Value of the line "key..." in a text of such lines, without blanks, colons and equal signs
 * before it, blanks behind it and quotes around it, cut where ret is full. 0 or -ENOENT. */
int txt_field(const char *text, const char *key, char *ret, size_t ret_bytes);

/* The next range of a list of numbers such as "0-3,8", *list behind it. 1; 0: the list, or its
 * line, is over; -EINVAL: it is none. */
int txt_range(const char **list, unsigned long *ret_from, unsigned long *ret_to);

/* Append to the text that ends in bytes; nothing where it does not fit whole: -ENOSPC, else 0. */
int txt_add(char *text, size_t bytes, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Levenshtein distance, counting at most 63 bytes of each word. */
unsigned txt_distance(const char *a, const char *b);

#endif
