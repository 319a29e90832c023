/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/log.h"
#include "http/link.h"

#define MDL_MAX_TEMPLATE (1u << 20)
#define MDL_MAX_VALUES   200000u /* JSON values of tokenizer_config.json */

/* ---- names ---------------------------------------------------------------------- */

int
model_has_name(const struct model *m, const char *name, size_t n)
{
    const char *list = m->names;

    if (list[0] == '\0')
        return strlen(m->name) == n && memcmp(m->name, name, n) == 0;
    while (*list != '\0') {
        size_t k;

        list += strspn(list, ", ");
        k = strcspn(list, ", ");
        if (k == n && k > 0 && memcmp(list, name, n) == 0)
            return 1;
        list += k;
    }
    return 0;
}

static void
set_name(struct model *m, const char *said)
{
    const char *list = m->names + strspn(m->names, ", ");

    if (list[0] != '\0')
        (void)snprintf(m->name, sizeof(m->name), "%.*s", (int)strcspn(list, ", "), list);
    else if (said != NULL)
        (void)snprintf(m->name, sizeof(m->name), "%s", said[0] != '\0' ? said : "model");
}

/* ---- template --------------------------------------------------------------------- */

static int
read_whole(const char *path, struct buf *b)
{
    FILE *f = fopen(path, "re");
    int rc = f == NULL ? -errno : 0;

    while (rc == 0) {
        char *to = buf_room(b, 65536);
        size_t n = to != NULL ? fread(to, 1, 65536, f) : 0;

        b->n += n;
        if (to == NULL)
            rc = -ENOMEM;
        else if (b->n > MDL_MAX_TEMPLATE)
            rc = -EFBIG;
        else if (n == 0)
            break;
    }
    if (f != NULL)
        (void)fclose(f);
    return rc;
}

/* Add a token of the configuration: a string, or an object with a string `content`. */
static void
add_token(const struct jr *j, const char *name, struct buf *b)
{
    uint32_t i = jr_member(j, 0, name);
    struct buf text = { NULL };

    if (jr_type(j, i) == JR_OBJECT)
        i = jr_member(j, i, "content");
    if (jr_type(j, i) != JR_STRING)
        return;
    jr_text(j, i, &text);
    buf_str(b, b->n > 1 ? ",\"" : "\"");
    buf_str(b, name);
    buf_str(b, "\":");
    buf_json(b, text.p, text.n);
    buf_fini(&text);
}

/* The template in a configuration: a string, or one of a list of named templates. */
static void
template_of(const struct jr *j, struct buf *b)
{
    uint32_t i = jr_member(j, 0, "chat_template"), chosen = JR_NONE;

    if (jr_type(j, i) == JR_ARRAY)
        for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k].next)
            if (chosen == JR_NONE || jr_is(j, jr_member(j, k, "name"), "default"))
                chosen = jr_member(j, k, "template");
    if (jr_type(j, i) == JR_STRING)
        chosen = i;
    if (jr_type(j, chosen) == JR_STRING)
        jr_text(j, chosen, b);
}

/* Read the template's variables from the configuration, and the template if text is
 * empty. */
static void
read_config(const struct link_job *found, struct buf *variables, struct buf *text)
{
    static const char *const tokens[] = { "bos_token", "eos_token", "unk_token",
        "pad_token" };
    struct jr j = { NULL };

    buf_str(variables, "{");
    if (found->tokenizer_config != NULL &&
        jr_read(&j, found->tokenizer_config, found->config_n, MDL_MAX_VALUES) == 0) {
        for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
            add_token(&j, tokens[i], variables);
        if (text->n == 0)
            template_of(&j, text);
        jr_fini(&j);
    }
    buf_str(variables, "}");
}

/* The library's copy of a format's name, which lives as long as the program. */
static const char *
format_of(const char *parser)
{
    const char *name;

    for (size_t i = 0; (name = fdchat_format_name(i)) != NULL; i++)
        if (strcmp(name, parser) == 0)
            return name;
    return NULL;
}

static int
set_template(struct model *m, const struct served *conf, const struct buf *text)
{
    char err[FDCHAT_ERR_BYTES] = "";
    int rc = fdchat_template_new(text->p, text->n, &m->chat, err);

    if (rc != 0) {
        m->chat = NULL;
        log_error("http: the chat template cannot be used: %s", err);
        (void)snprintf(m->why_no_chat, sizeof(m->why_no_chat),
            "the model's chat template cannot be used: %.180s", err);
        return rc;
    }
    if (conf->parser[0] == '\0')
        m->format = fdchat_format_of_template(text->p, text->n);
    else if (strcmp(conf->parser, "none") != 0)
        m->format = format_of(conf->parser);
    log_info("http: model %s, chat template of %zu bytes, answers in format %s", m->name,
        text->n, m->format != NULL ? m->format : "none");
    return 0;
}

int
model_set(struct model *m, const struct served *conf, struct link_job *found)
{
    struct buf text = { NULL }, variables = { NULL };
    int rc = 0;

    m->info = found->info;
    m->special = found->special;
    m->n_special = found->n_special;
    found->special = NULL;
    set_name(m, found->info.name);
    m->created_s = (int64_t)time(NULL);
    if (conf->template[0] != '\0')
        rc = read_whole(conf->template, &text);
    else if (found->template_text != NULL)
        buf_add(&text, found->template_text, found->template_n);
    if (rc != 0) {
        log_error("http: chat template %s: %s", conf->template, strerror(-rc));
        (void)snprintf(m->why_no_chat, sizeof(m->why_no_chat),
            "the file of its chat template cannot be read");
    }
    read_config(found, &variables, &text);
    m->variables = variables.p;
    if (rc == 0 && text.n > 0)
        rc = set_template(m, conf, &text);
    else if (rc == 0)
        (void)snprintf(m->why_no_chat, sizeof(m->why_no_chat),
            "this model has no chat template; use /v1/completions, or name a file in "
            "chat.template of fdd-http.ini");
    if (rc == 0 && text.n == 0)
        log_info("http: model %s, without a chat template", m->name);
    buf_fini(&text);
    return rc;
}

static int
by_id(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

int
model_is_special(const struct model *m, uint32_t id)
{
    return m->n_special > 0 &&
        bsearch(&id, m->special, m->n_special, sizeof(id), by_id) != NULL;
}

struct model *
model_new(const struct served *conf)
{
    struct model *m = calloc(1, sizeof(*m));

    if (m == NULL)
        return NULL;
    atomic_init(&m->refs, 1);
    (void)snprintf(m->label, sizeof(m->label), "%s", conf->label);
    (void)snprintf(m->names, sizeof(m->names), "%s", conf->names);
    set_name(m, NULL);
    return m;
}

struct model *
model_ref(struct model *m)
{
    (void)atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void
model_unref(struct model *m)
{
    if (m == NULL || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
        return;
    fdchat_template_free(m->chat);
    free(m->variables);
    free(m->special);
    free(m);
}
