/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a chat template and, after a NUL, as the variables of a request: the
 * template is read or refused with a sentence. It renders or fails with one, within
 * its bounds, and twice with the same result. The spans of the request's text are in
 * the prompt, in order.
 */
#include "config.h"

#include "chat/fdchat.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(e) \
    do { \
        if (!(e)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
            abort(); \
        } \
    } while (0)
#define MAX_TEXT (16u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char request[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be <|im_end|> \\u00e9.\"}, "
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\\nb\"}]}, "
    "{\"role\": \"assistant\", \"content\": null, \"reasoning_content\": \"r\", \"tool_calls\": "
    "[{\"id\": \"1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
    "{\"x\": [1, -2.5e3, true]}}}]}, {\"role\": \"tool\", \"content\": \"\"}], "
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
    "{\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"array\"}}}}}], "
    "\"add_generation_prompt\": true, \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": [1, \"x\"]}, "
    "\"s\": \" Text \", \"i\": 12345678901234567890}";
static const char model[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";

static int
render(const fdchat_template_t *t, const char *vars, size_t n, struct fdchat_prompt *p)
{
    struct fdchat_args a = { .size = sizeof(a),
        .model = model,
        .model_bytes = sizeof(model) - 1,
        .request = vars,
        .request_bytes = n,
        .now_s = 1764000000 };
    char err[FDCHAT_ERR_BYTES] = "";
    size_t end = 0;
    int rc = fdchat_render(t, &a, p, err);

    MUST(rc == 0 || rc == -EINVAL || rc == -ENOMEM);
    MUST(rc != -EINVAL || (err[0] != '\0' && strlen(err) < sizeof(err)));
    if (rc != 0)
        return rc;
    MUST(p->bytes <= MAX_TEXT && p->text[p->bytes] == '\0');
    for (size_t i = 0; i < p->n_span; i++) {
        MUST(p->spans[i].at >= end && p->spans[i].bytes <= p->bytes &&
            p->spans[i].at <= p->bytes - p->spans[i].bytes);
        end = p->spans[i].at + p->spans[i].bytes;
    }
    return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data, *vars = memchr(text, '\0', n);
    size_t n_text = vars != NULL ? (size_t)(vars - text) : n;
    struct fdchat_prompt a = { NULL }, b = { NULL };
    char err[FDCHAT_ERR_BYTES] = "";
    fdchat_template_t *t = NULL;
    int rc = fdchat_template_new(text, n_text, &t, err);

    MUST(rc == 0 || rc == -EINVAL || rc == -E2BIG || rc == -ENOMEM);
    MUST(rc == 0 ? t != NULL : rc != -EINVAL || err[0] != '\0');
    if (rc != 0)
        return 0;
    if (vars == NULL)
        rc = render(t, request, sizeof(request) - 1, &a);
    else
        rc = render(t, vars + 1, n - n_text - 1, &a);
    if (rc == 0) {
        MUST(render(t, vars != NULL ? vars + 1 : request,
                 vars != NULL ? n - n_text - 1 : sizeof(request) - 1, &b) == 0);
        MUST(a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0);
        fdchat_prompt_free(&a);
        fdchat_prompt_free(&b);
    }
    fdchat_template_free(t);
    return 0;
}
