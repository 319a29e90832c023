/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Members of objects, and errors. */
#include "config.h"

#include "daemon/worker/tokenizer_load.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int
tok_ld_err(struct tok_ld *ld, int rc, const char *fmt, ...)
{
    va_list ap;
    int n;

    n = snprintf(ld->err, ld->err_bytes, "%s: ", ld->file);
    if (n >= 0 && (size_t)n < ld->err_bytes) {
        va_start(ap, fmt);
        vsnprintf(ld->err + n, ld->err_bytes - (size_t)n, fmt, ap);
        va_end(ap);
        /* text from the file: a message must be one line without terminal controls */
        for (char *p = ld->err + n; *p != '\0'; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                *p = '?';
    }
    return rc;
}

const char *
tok_ld_type(const json_t *o)
{
    const char *s = json_string_value(json_object_get(o, "type"));

    return s ? s : "(none)";
}

int
tok_ld_no_memory(struct tok_ld *ld)
{
    return tok_ld_err(ld, -ENOMEM, "out of memory");
}

int
tok_ld_bool(struct tok_ld *ld, const json_t *o, const char *name, bool missing, bool *ret)
{
    const json_t *v = json_object_get(o, name);

    *ret = missing;
    if (v && !json_is_boolean(v))
        return tok_ld_err(ld, -EINVAL, "%s: \"%s\" is not true or false", tok_ld_type(o),
            name);
    if (v)
        *ret = json_is_true(v);
    return 0;
}

int
tok_ld_char(struct tok_ld *ld, const json_t *o, const char *name, uint8_t *ret,
    uint8_t *ret_n)
{
    const json_t *v = json_object_get(o, name);
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    uint32_t cp;

    if (!n || tok_utf8_get((const uint8_t *)s, &cp) != n)
        return tok_ld_err(ld, -EINVAL, "%s: \"%s\" is not one character", tok_ld_type(o),
            name);
    memcpy(ret, s, n);
    *ret_n = (uint8_t)n;
    return 0;
}

int
tok_ld_text(struct tok_ld *ld, const json_t *o, const char *name, struct tok_buf *ret)
{
    const json_t *v = json_object_get(o, name);

    if (!json_is_string(v) || json_string_length(v) > TOK_MAX_TEXT)
        return tok_ld_err(ld, -EINVAL, "%s: \"%s\" is not a string of at most %u bytes",
            tok_ld_type(o), name, TOK_MAX_TEXT);
    if (tok_buf_put(ret, json_string_value(v), json_string_length(v)))
        return tok_ld_no_memory(ld);
    return 0;
}

int
tok_ld_pattern(struct tok_ld *ld, const json_t *o, struct tok_rx *rx,
    struct tok_buf *ret_text)
{
    const json_t *pattern = json_object_get(o, "pattern"), *v;
    bool literal;
    char why[200];
    int rc;

    v = json_object_get(pattern, "String");
    literal = v != NULL;
    if (!v)
        v = json_object_get(pattern, "Regex");
    if (!json_is_string(v) || !json_string_length(v))
        return tok_ld_err(ld, -EINVAL,
            "%s: \"pattern\" is not {\"Regex\": ...} or {\"String\": ...} with text in it",
            tok_ld_type(o));
    if (literal && ret_text)
        return tok_buf_put(ret_text, json_string_value(v), json_string_length(v))
            ? tok_ld_no_memory(ld)
            : 0;
    rc = tok_rx_compile(rx, json_string_value(v), json_string_length(v), literal, why,
        sizeof(why));
    if (rc)
        return tok_ld_err(ld, rc, "%s: pattern \"%.100s\": %s", tok_ld_type(o),
            json_string_value(v), why);
    return 0;
}

int
tok_ld_list(struct tok_ld *ld, const json_t *o, const char *name, const char *what,
    int depth, json_t **ret)
{
    *ret = json_object_get(o, name);
    if (!json_is_array(*ret))
        return tok_ld_err(ld, -EINVAL, "%s Sequence has no array \"%s\"", what, name);
    if (depth == TOK_MAX_DEPTH)
        return tok_ld_err(ld, -EINVAL, "%s is nested deeper than %d", what, TOK_MAX_DEPTH);
    return 0;
}
