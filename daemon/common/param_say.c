/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Errors and warnings about parameters: collecting and reporting them. */
#include "config.h"

#include "daemon/common/log.h"
#include "daemon/common/param_priv.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void
put(struct par_say *say, char kind, const char *line)
{
    size_t n = strlen(line) + 1;
    char *text = realloc(say->text, say->bytes + 1 + n);

    if (text == NULL)
        return;
    text[say->bytes] = kind;
    memcpy(text + say->bytes + 1, line, n);
    say->text = text;
    say->bytes += 1 + n;
}

void
par_say_error(struct par_say *say, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    if (say->n_errors++ >= PAR_MAX_ERRORS)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    put(say, 'E', text);
}

void
par_say_warning(struct par_say *say, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    put(say, 'W', text);
}

void
par_say_end(struct par_say *say)
{
    char text[64];

    if (say->n_errors <= PAR_MAX_ERRORS)
        return;
    snprintf(text, sizeof(text), "%u more errors", say->n_errors - PAR_MAX_ERRORS);
    put(say, 'E', text);
}

const char *
par_say_next(const struct par_say *say, const char *at, int *ret_is_error)
{
    const char *next = at == NULL ? say->text : at + strlen(at) + 1;

    if (next == NULL || next == say->text + say->bytes)
        return NULL;
    *ret_is_error = *next == 'E';
    return next + 1;
}

void
par_say_clear(struct par_say *say)
{
    free(say->text);
    say->text = NULL;
    say->bytes = 0;
}

void
par_say_log(struct par_say *say)
{
    const char *text = NULL;
    int is_error;

    while ((text = par_say_next(say, text, &is_error)) != NULL) {
        if (is_error)
            log_error("config: %s", text);
        else
            log_warn("config: %s", text);
    }
    par_say_clear(say);
}

int
par_names_row(const char *text, const struct par_def *d)
{
    char name[128];
    size_t n = (size_t)snprintf(name, sizeof(name), "%s.%s", d->section, d->key);
    const char *p;

    for (p = text; (p = strstr(p, name)) != NULL; p += n)
        if (p[n] == '\0' || strchr(" ,:;=)", p[n]) != NULL)
            return 1;
    return 0;
}

void
par_say_about(struct par_say *say, const struct par_set *ps, int is_error, const char *text)
{
    static const char *const from[] = { "", "", "--set", "fdctl set" };
    const char *fix = strstr(text, "; fix: ");
    int len = fix != NULL ? (int)(fix - text) : (int)strlen(text), n = 0;
    char full[2048];
    size_t at = (size_t)snprintf(full, sizeof(full), "%.*s", len, text), i;

    for (i = 0; i < par_n_defs; i++) {
        const char *where = ps->where[i][0] != '\0' ? ps->where[i] : from[ps->from[i]];

        if (where[0] == '\0' || at >= sizeof(full) || !par_names_row(text, &par_defs[i]))
            continue;
        at += (size_t)snprintf(full + at, sizeof(full) - at, "%s%s.%s: %s",
            n++ == 0 ? " (" : "; ", par_defs[i].section, par_defs[i].key, where);
    }
    if (at < sizeof(full))
        snprintf(full + at, sizeof(full) - at, "%s%s", n > 0 ? ")" : "",
            fix != NULL ? fix : "");
    if (is_error)
        par_say_error(say, "%s", full);
    else
        par_say_warning(say, "%s", full);
}
