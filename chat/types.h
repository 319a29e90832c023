/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tools of a request say of their parameters' types, for formats that write
 * values without quotes.
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
 * the function alone. -EINVAL: err says why (512 bytes); -ENOMEM. What it takes of mem
 * lives as long as mem. */
int typ_new(const char *json, size_t bytes, struct arena *mem, const struct schema **ret,
    char *err);
/* Is there such a tool? No schema: any may be there. */
int typ_has(const struct schema *s, const char *name);
/* TYP_STRING where nothing is said. */
unsigned typ_types(const struct schema *s, const char *name, const char *key);
/* Is the text, as it stands, a JSON value of one of the types? Case of true, false and
 * null does not matter: *ret_as is what JSON writes for them, else NULL. A string is
 * none. */
int typ_fits(const char *text, size_t bytes, unsigned types, const char **ret_as);

#endif
