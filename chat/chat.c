/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/fdchat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <utf8proc.h>

#include "chat/eval.h"
#include "chat/json.h"

_Static_assert(FDCHAT_ERR_BYTES == VAL_ERR, "one size of error texts");

#define FIRST_ROOM 65536 /* most bytes allocated for a prompt before it is rendered */

struct fdchat_template {
    struct template *t;
};

/* The first line with invalid UTF-8; 0: none. Values must be valid UTF-8. */
static size_t
bad_line(const char *text, size_t n)
{
    size_t line = 1;

    for (size_t i = 0; i < n;) {
        utf8proc_int32_t code;
        utf8proc_ssize_t got = (unsigned char)text[i] < 0x80
            ? 1
            : utf8proc_iterate((const utf8proc_uint8_t *)text + i,
                  n - i < 4 ? (utf8proc_ssize_t)(n - i) : 4, &code);

        if (got <= 0)
            return line;
        line += text[i] == '\n';
        i += (size_t)got;
    }
    return 0;
}

int
fdchat_template_new(const char *text, size_t bytes, fdchat_template_t **ret,
    char err[FDCHAT_ERR_BYTES])
{
    size_t line = bytes <= TPL_MAX_BYTES ? bad_line(text, bytes) : 0;
    fdchat_template_t *t;
    int rc;

    if (line != 0) {
        (void)snprintf(err, FDCHAT_ERR_BYTES, "line %zu: not UTF-8", line);
        return -EINVAL;
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        (void)snprintf(err, FDCHAT_ERR_BYTES, "out of memory");
        return -ENOMEM;
    }
    rc = tpl_new(text, bytes, &t->t, err);
    if (rc != 0) {
        free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void
fdchat_template_free(fdchat_template_t *t)
{
    if (t == NULL)
        return;
    (void)tpl_free(t->t);
    free(t);
}

static void
variables(struct render *r, const char *json, size_t bytes, int marked, const char *whose)
{
    struct val v;

    if (json == NULL)
        return;
    v = jsn_read(&r->c, json, bytes, marked);
    if (v.type != VAL_DICT)
        val_fail(&r->c, "the %s's variables are no JSON object", whose);
    for (size_t i = 0; i < v.d->n; i++)
        rnd_set(r, r->scope, (struct tpl_name){ v.d->at[i].key.s->p, v.d->at[i].key.s->n },
            v.d->at[i].value);
}

/* The next range of marked bytes from `at` on. Returns 0 if there is none. */
static int
next_span(const struct val_buf *out, size_t at, struct fdchat_span *ret)
{
    const unsigned char *m = out->n > at ? memchr(out->mark + at, 1, out->n - at) : NULL,
                        *end;

    if (m == NULL)
        return 0;
    ret->at = (size_t)(m - out->mark);
    end = memchr(m, 0, out->n - ret->at);
    ret->bytes = end != NULL ? (size_t)(end - m) : out->n - ret->at;
    return 1;
}

static int
prompt_take(struct fdchat_prompt *ret, const struct val_buf *out)
{
    struct fdchat_span s = { 0, 0 };
    size_t n = 0;

    for (size_t at = 0; next_span(out, at, &s); at = s.at + s.bytes)
        n++;
    *ret = (struct fdchat_prompt){ .bytes = out->n,
        .text = malloc(out->n + 1),
        .spans = malloc((n + 1) * sizeof(*ret->spans)) };
    if (ret->text == NULL || ret->spans == NULL) {
        fdchat_prompt_free(ret);
        return -ENOMEM;
    }
    if (out->n > 0)
        memcpy(ret->text, out->p, out->n);
    ret->text[out->n] = '\0';
    for (size_t at = 0; next_span(out, at, &s); at = s.at + s.bytes)
        ret->spans[ret->n_span++] = s;
    return 0;
}

int
fdchat_render(const fdchat_template_t *t, const struct fdchat_args *a,
    struct fdchat_prompt *ret, char err[FDCHAT_ERR_BYTES])
{
    struct arena mem;
    struct rnd_scope top = { 0 }, vars = { .up = &top };
    struct val_buf out = { .limit = RND_MAX_BYTES };
    struct render r = {
        .c = { .mem = &mem, .steps = RND_MAX_STEPS, .depth = RND_MAX_DEPTH, .err = err },
        .scope = &top,
        .out = &out
    };
    int rc;

    err[0] = '\0';
    if (a->size < offsetof(struct fdchat_args, now_s)) {
        (void)snprintf(err, FDCHAT_ERR_BYTES, "fdchat_args.size is not set");
        return -EINVAL;
    }
    r.now_s = a->size >= sizeof(*a) && a->now_s != 0 ? a->now_s : (int64_t)time(NULL);
    arn_init(&mem, RND_MAX_MEM);
    if (setjmp(r.c.fail) != 0) {
        arn_fini(&mem);
        return -EINVAL;
    }
    variables(&r, a->model, a->model_bytes, 0, "model");
    variables(&r, a->request, a->request_bytes, 1, "request");
    r.scope = &vars;
    /* a prompt is about as long as its request: saves copies while it grows */
    val_room(&r.c, &out, a->request_bytes < FIRST_ROOM ? a->request_bytes : FIRST_ROOM);
    rnd_run(&r, t->t);
    rc = prompt_take(ret, &out);
    if (rc != 0)
        (void)snprintf(err, FDCHAT_ERR_BYTES, "out of memory");
    arn_fini(&mem);
    return rc;
}

void
fdchat_prompt_free(struct fdchat_prompt *p)
{
    free(p->text);
    free(p->spans);
    *p = (struct fdchat_prompt){ 0 };
}
