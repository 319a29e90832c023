/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The types of the parameters of a request's tools, for formats that write values
 * without quotes.
 */
#ifndef FDD_CHAT_TYPES_H
#define FDD_CHAT_TYPES_H

#include <stddef.h>

#include "chat/arena.h"

#define TYP_NULL    1u
#define TYP_INTEGER 2u
#define TYP_NUMBER  4u
#define TYP_BOOLEAN 8u
#define TYP_OBJECT  16u
#define TYP_ARRAY   32u
#define TYP_STRING  64u

struct schema;

/* json: a list of tools, each {"type": "function", "function": {"name", "parameters"}} or
 * only the function. Returns 0; -EINVAL: err says why (512 bytes); -ENOMEM. *ret is in
 * mem and lives as long as mem. */
int typ_new(const char *json, size_t bytes, struct arena *mem, const struct schema **ret,
    char *err);
/* Is there a tool of this name? Without a schema (NULL): 1 for every name. */
int typ_has(const struct schema *s, const char *name);
/* The types of a tool's parameter, TYP_STRING if the schema gives none. */
unsigned typ_types(const struct schema *s, const char *name, const char *key);
/* Is the text, unchanged, a JSON value of one of the types? A string never is. The case
 * of true, false and null does not matter: *ret_as is their JSON text, NULL
 * for others. */
int typ_fits(const char *text, size_t bytes, unsigned types, const char **ret_as);

#endif
