/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One option or one element of a key: ids (of a bias its bits too), or a text. */
struct fct_rule {
    enum fct_rule_kind kind;
    size_t n;
    uint32_t *w;
    char *text;
};

void
fct_rules_fini(struct fct_rules *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->rule[i].w);
        free(l->rule[i].text);
    }
    free(l->rule);
    memset(l, 0, sizeof(*l));
}

/* A copy of n ids and of a text, which may be missing. */
static int
add_rule(struct fct_rules *l, enum fct_rule_kind kind, const uint32_t *w, size_t n,
    const char *text)
{
    struct fct_rule *more = realloc(l->rule, (l->n + 1) * sizeof(*more)), *r;

    if (more == NULL)
        return -ENOMEM;
    l->rule = more;
    r = &more[l->n];
    *r = (struct fct_rule){ .kind = kind, .n = n };
    r->w = calloc(n + 1, sizeof(*w));
    r->text = text != NULL ? strdup(text) : NULL;
    if (r->w == NULL || (text != NULL && r->text == NULL)) {
        free(r->w);
        free(r->text);
        return -ENOMEM;
    }
    if (n > 0)
        memcpy(r->w, w, n * sizeof(*w));
    l->n++;
    return 0;
}

int
fct_rules_copy(struct fct_rules *dst, const struct fct_rules *src)
{
    int rc = 0;

    for (size_t i = 0; i < src->n && rc == 0; i++)
        rc = add_rule(dst, src->rule[i].kind, src->rule[i].w, src->rule[i].n,
            src->rule[i].text);
    return rc;
}

static int
add_bias(struct fct_rules *l, const char *id, const char *end_of_id, double bias)
{
    float v = (float)bias;
    uint32_t w[2];
    uint64_t n;
    char *end;

    if (id[0] < '0' || id[0] > '9')
        return -EINVAL;
    errno = 0;
    n = strtoull(id, &end, 10);
    if (errno != 0 || end != end_of_id || n > UINT32_MAX)
        return -EINVAL;
    w[0] = (uint32_t)n;
    memcpy(&w[1], &v, sizeof(v));
    return add_rule(l, FCT_RULE_BIAS, w, 2, NULL);
}

static int
add_ids(struct fct_rules *l, enum fct_rule_kind kind, const char *text)
{
    char err[128];
    uint32_t *ids = NULL;
    size_t n = 0;
    int rc = fct_parse_ids(text, strlen(text), &ids, &n, err, sizeof(err));

    if (rc == 0 && kind == FCT_RULE_REASONING && n != 3)
        rc = -EINVAL;
    if (rc == 0)
        rc = add_rule(l, kind, ids, n, NULL);
    free(ids);
    return rc == -ENOMEM || rc == 0 ? rc : -EINVAL;
}

int
fct_rules_add(struct fct_rules *l, enum fct_rule_kind kind, const char *text)
{
    const char *eq = strchr(text, '=');
    char *end;
    double v;

    if (kind == FCT_RULE_BAD_WORD)
        return add_rule(l, kind, NULL, 0, text);
    if (kind != FCT_RULE_BIAS)
        return add_ids(l, kind, text);
    if (eq == NULL)
        return -EINVAL;
    v = strtod(eq + 1, &end);
    return end == eq + 1 || *end != '\0' ? -EINVAL : add_bias(l, text, eq, v);
}

/* ---- from JSON -------------------------------------------------------------------- */

static int
json_ids(struct fct_rules *l, enum fct_rule_kind kind, const json_t *v)
{
    size_t n = json_array_size(v);
    uint32_t *ids = calloc(n + 1, sizeof(*ids));
    int rc = ids == NULL ? -ENOMEM : json_is_array(v) && n > 0 ? 0 : -EINVAL;

    for (size_t i = 0; i < n && rc == 0; i++) {
        json_int_t id = json_integer_value(json_array_get(v, i));

        if (!json_is_integer(json_array_get(v, i)) || id < 0 || id > UINT32_MAX)
            rc = -EINVAL;
        else
            ids[i] = (uint32_t)id;
    }
    if (rc == 0 && kind == FCT_RULE_REASONING && n != 3)
        rc = -EINVAL;
    if (rc == 0)
        rc = add_rule(l, kind, ids, n, NULL);
    free(ids);
    return rc;
}

static int
json_biases(struct fct_rules *l, json_t *v)
{
    const char *id;
    json_t *bias;
    int rc = json_is_object(v) ? 0 : -EINVAL;

    json_object_foreach(v, id, bias)
        if (rc == 0)
            rc = json_is_number(bias)
                ? add_bias(l, id, id + strlen(id), json_number_value(bias))
                : -EINVAL;
    return rc;
}

int
fct_rules_json(struct fct_rules *l, enum fct_rule_kind kind, const json_t *v,
    const char **ret_want)
{
    static const char *const want[] = { [FCT_RULE_BIAS] = "an object of ids and numbers",
        [FCT_RULE_ALLOW] = "a list of token ids",
        [FCT_RULE_BAD_WORD] = "a text or a list of texts",
        [FCT_RULE_BAD_IDS] = "a list of token ids or a list of such lists",
        [FCT_RULE_LOGPROB] = "a list of token ids",
        [FCT_RULE_REASONING] =
            "a list of three: tokens at most, the opening id, the closing id" };
    int deep = kind == FCT_RULE_BAD_IDS
        ? json_is_array(json_array_get(v, 0))
        : kind == FCT_RULE_BAD_WORD && json_is_array(v);
    int rc = 0;

    *ret_want = want[kind];
    if (kind == FCT_RULE_BIAS)
        return json_biases(l, (json_t *)(uintptr_t)v);
    for (size_t i = 0, n = deep ? json_array_size(v) : 1; i < n && rc == 0; i++) {
        const json_t *e = deep ? json_array_get(v, i) : v;

        if (kind != FCT_RULE_BAD_WORD)
            rc = json_ids(l, kind, e);
        else if (!json_is_string(e) || strlen(json_string_value(e)) != json_string_length(e))
            rc = -EINVAL; /* a NUL ends it in struct fdc_params */
        else
            rc = add_rule(l, kind, NULL, 0, json_string_value(e));
    }
    return rc;
}

/* ---- to parameters ------------------------------------------------------------------ */

/* The ids of all rules of a kind, one behind the other. */
static uint32_t
join(const struct fct_rules *l, enum fct_rule_kind kind, uint32_t *ret)
{
    uint32_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        if (l->rule[i].kind != kind)
            continue;
        memcpy(ret + n, l->rule[i].w, l->rule[i].n * sizeof(*ret));
        n += (uint32_t)l->rule[i].n;
    }
    return n;
}

void *
fct_rules_params(const struct fct_rules *l, struct fdc_params *p)
{
    size_t n_id = 4;
    const void **ptr;
    uint32_t *w;

    for (size_t i = 0; i < l->n; i++)
        n_id += l->rule[i].n + 1;
    /* pointers of texts and of sequences, lengths, then ids */
    ptr = calloc(2 * l->n + n_id + 1, sizeof(*ptr));
    if (ptr == NULL)
        return NULL;
    w = (uint32_t *)(void *)(ptr + 2 * l->n);
    p->bad_words = (const char *const *)ptr;
    p->bad_ids = (const uint32_t *const *)(ptr + l->n);
    p->bad_ids_len = w;
    for (size_t i = 0; i < l->n; i++) {
        const struct fct_rule *r = &l->rule[i];

        if (r->kind == FCT_RULE_BAD_WORD)
            ptr[p->n_bad_words++] = r->text;
        if (r->kind != FCT_RULE_BAD_IDS)
            continue;
        ptr[l->n + p->n_bad_ids] = r->w;
        w[p->n_bad_ids++] = (uint32_t)r->n;
    }
    w += p->n_bad_ids;
    p->allowed_ids = w;
    w += p->n_allowed = join(l, FCT_RULE_ALLOW, w);
    p->logprob_ids = w;
    w += p->n_logprob_ids = join(l, FCT_RULE_LOGPROB, w);
    p->bias = (const struct fdc_bias *)(const void *)w;
    p->n_bias = join(l, FCT_RULE_BIAS, w) / 2;
    w += 2 * (size_t)p->n_bias;
    /* the last one counts, as with other options */
    for (size_t i = 0; i < l->n; i++)
        if (l->rule[i].kind == FCT_RULE_REASONING) {
            memcpy(w, l->rule[i].w, 3 * sizeof(*w));
            p->reasoning = (const struct fdc_reasoning *)(const void *)w;
        }
    return ptr;
}
