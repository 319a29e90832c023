/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <ctype.h>

#include "daemon/common/param.h"
#include "daemon/common/text.h"

#define SLURP_MAX ((size_t)1 << 30)

int
fct_room(void *p, size_t need, size_t *cap, size_t size)
{
    size_t want = *cap;
    void *base;

    if (need <= *cap)
        return 0;
    while (want < need)
        want = want * 2 + 256;
    memcpy(&base, p, sizeof(base));
    base = reallocarray(base, want, size);
    if (base == NULL)
        return -ENOMEM;
    memcpy(p, &base, sizeof(base));
    *cap = want;
    return 0;
}

int
fct_slurp(const char *path, char **ret_text, size_t *ret_n)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    const char *name = f == stdin ? "standard input" : path;
    struct fct_buf all = { NULL, 0, 0 };
    char part[4096];
    size_t k = 0;
    int rc = 0;

    if (f == NULL)
        return fct_fail(errno == EACCES ? EX_NOPERM : EX_NOINPUT, "%s: %s", path,
            strerror(errno));
    /* the first, empty piece makes the text of an empty file */
    do {
        if (all.n + k > SLURP_MAX || fct_buf_add(&all, part, k) != 0)
            rc = fct_data("%s: too large", name);
    } while (rc == 0 && (k = fread(part, 1, sizeof(part), f)) > 0);
    if (rc == 0 && ferror(f))
        rc = fct_fail(EX_IOERR, "%s: %s", name, strerror(errno));
    if (f != stdin)
        fclose(f);
    if (rc != 0) {
        free(all.p);
        return rc;
    }
    *ret_text = all.p;
    *ret_n = all.n;
    return 0;
}

int
fct_digits(const char *text, size_t n, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0, digit;
    size_t i = 0;

    for (; i < n && isdigit((unsigned char)text[i]); i++) {
        digit = (uint64_t)(text[i] - '0');
        if (v > (max - digit) / 10)
            break;
        v = v * 10 + digit;
    }
    *ret = v;
    return n > 0 && i == n;
}

int
fct_parse_ids(const char *text, size_t n, uint32_t **ret_ids, size_t *ret_n, char *err,
    size_t err_bytes)
{
    size_t n_ids = 0, cap = 0, line = 1, len;
    int open = 0, closed = 0, rc = 0;
    uint32_t *ids = NULL;
    char shown[64], word[64];
    uint64_t id;

    for (size_t i = 0; i < n && rc == 0; i += len) {
        int opens = text[i] == '[' && !open && n_ids == 0;
        int closes = text[i] == ']' && open && !closed;

        len = 1;
        open |= opens;
        closed |= closes;
        line += text[i] == '\n';
        if (opens || closes || isspace((unsigned char)text[i]) ||
            (text[i] == ',' && n_ids > 0 && !closed))
            continue;
        /* at least one character, so that a ',' or ']' in the wrong place is shown */
        for (; i + len < n && strchr(" \t\r\n,]", text[i + len]) == NULL; len++)
            ;
        if (closed || !fct_digits(text + i, len, UINT32_MAX, &id)) {
            snprintf(word, sizeof(word), "%.*s", (int)(len > 40 ? 40 : len), text + i);
            snprintf(err, err_bytes, "line %zu: '%s': %s", line,
                par_show(word, shown, sizeof(shown)),
                closed ? "after the end of the list"
                       : "not a token id (a whole number from 0 to 4294967295)");
            rc = -EINVAL;
        } else if (fct_room(&ids, n_ids + 1, &cap, sizeof(*ids)) != 0) {
            snprintf(err, err_bytes, "out of memory");
            rc = -ENOMEM;
        } else {
            ids[n_ids++] = (uint32_t)id;
        }
    }
    if (rc == 0 && open && !closed) {
        snprintf(err, err_bytes, "line %zu: the list has no ']'", line);
        rc = -EINVAL;
    } else if (rc == 0 && n_ids == 0) {
        snprintf(err, err_bytes, "empty: no token ids");
        rc = -ENODATA;
    }
    if (rc != 0) {
        free(ids);
        return rc;
    }
    *ret_ids = ids;
    *ret_n = n_ids;
    return 0;
}

int
fct_check_utf8(const char *what, const char *text, size_t n)
{
    size_t at = txt_utf8(text, n);

    return at == n ? 0
                   : fct_data("%s: not valid UTF-8 at byte %zu (0x%02x)", what, at,
                         (unsigned char)text[at]);
}

static int
parse_line(const char *line, size_t n, const struct fct_req *dflt, struct fct_req *ret,
    char *err, size_t err_bytes)
{
    json_error_t je;
    json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je), *v;
    const char *key;
    int rc = fct_req_copy(ret, dflt);

    if (rc != 0) {
        snprintf(err, err_bytes, "out of memory");
    } else if (o == NULL) {
        snprintf(err, err_bytes, "column %d: %s%s", je.column, je.text,
            json_error_code(&je) == json_error_numeric_overflow
                ? "; write a whole number above 9223372036854775807 in quotes"
                : "");
        rc = -EINVAL;
    } else if (!json_is_object(o)) {
        snprintf(err, err_bytes, "not a JSON object");
        rc = -EINVAL;
    }
    json_object_foreach(o, key, v)
        if (rc == 0)
            rc = fct_req_set_json(ret, key, v, err, err_bytes);
    if (rc == 0 && !ret->has_prompt) {
        snprintf(err, err_bytes, "no \"prompt\" and no \"ids\"");
        rc = -EINVAL;
    }
    if (rc != 0)
        fct_req_fini(ret);
    json_decref(o);
    return rc;
}

int
fct_parse_batch(const char *path, const char *text, size_t n, const struct fct_req *dflt,
    struct fct_req **ret_reqs, size_t *ret_n)
{
    struct fct_req *reqs = NULL;
    size_t at, len, line = 1, n_reqs = 0, cap = 0;
    char err[256];
    int rc = 0;

    for (at = 0; at < n && rc == 0; at += len + 1, line++) {
        const char *nl = memchr(text + at, '\n', n - at);

        len = nl != NULL ? (size_t)(nl - (text + at)) : n - at;
        if (strspn(text + at, " \t\r\n\v\f") >= len)
            continue;
        if (fct_room(&reqs, n_reqs + 1, &cap, sizeof(*reqs)) != 0)
            rc = fct_oom();
        else if (parse_line(text + at, len, dflt, &reqs[n_reqs], err, sizeof(err)) != 0)
            rc = fct_data("%s:%zu: %s", path, line, err);
        else
            n_reqs++;
    }
    if (rc == 0 && n_reqs == 0)
        rc = fct_data("%s: empty: no requests", path);
    if (rc == 0) {
        *ret_reqs = reqs;
        *ret_n = n_reqs;
        return 0;
    }
    while (n_reqs > 0)
        fct_req_fini(&reqs[--n_reqs]);
    free(reqs);
    return rc;
}
