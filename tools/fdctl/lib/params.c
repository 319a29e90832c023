/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"


enum ptype {
    P_COUNT,
    P_U16,
    P_U32,
    P_U64,
    P_I32,
    P_F32,
    P_FLAG,
    P_STOP,
    P_STOP_ID,
    P_RULE
};

/* X(id, name, type, field of struct fct_req, flag, argument, help).
 * The daemon judges the values; here they only have to fit their type. */
#define PARAM_ROWS(X) \
    X(max_tokens, "max-tokens", P_U32, p.max_new, 0, "N", \
        "output tokens at most; 0: the prompt is only scored") \
    X(min_tokens, "min-tokens", P_U32, p.min_new, 0, "N", "no stop before this many") \
    X(temperature, "temperature", P_F32, p.temperature, 0, "T", \
        "0 is greedy (the model's)") \
    X(top_p, "top-p", P_F32, p.top_p, 0, "P", "smallest set of probability P; 1: off") \
    X(top_k, "top-k", P_U32, p.top_k, 0, "K", "the K likeliest; 0: off (the model's)") \
    X(min_p, "min-p", P_F32, p.min_p, 0, "P", "at least P of the likeliest; 0: off") \
    X(presence_penalty, "presence-penalty", P_F32, p.presence_penalty, 0, "X", \
        "-2 to 2 (0)") \
    X(frequency_penalty, "frequency-penalty", P_F32, p.frequency_penalty, 0, "X", \
        "-2 to 2 (0)") \
    X(repetition_penalty, "repetition-penalty", P_F32, p.repetition_penalty, 0, "X", \
        "0.001 to 2 (the model's)") \
    X(seed, "seed", P_U64, p.seed, 0, "N", "same seed, same tokens") \
    X(n, "n", P_U16, p.n, 0, "N", "samples of each prompt (1)") \
    X(best_of, "best-of", P_U32, p.best_of, 0, "N", \
        "draw N samples and return the likeliest n") \
    X(logprobs, "logprobs", P_COUNT, p.logprobs, 0, "K", \
        "log-probabilities of the output, K alternatives") \
    X(prompt_logprobs, "prompt-logprobs", P_COUNT, p.prompt_logprobs, 0, "K", \
        "the same for the prompt") \
    X(prompt_from, "prompt-from", P_U32, p.prompt_from, 0, "N", \
        "with --prompt-logprobs: from token N of it on") \
    X(token_text, "token-text", P_FLAG, p.n, FDC_F_TOKEN_TEXT, NULL, \
        "the text of each token with its log-probability") \
    X(echo, "echo", P_FLAG, p.n, FDC_F_PROMPT_TEXT, NULL, "the prompt's text, too") \
    X(alone, "alone", P_FLAG, p.n, FDC_F_ALONE, NULL, \
        "special and added tokens apart from the text") \
    X(priority, "priority", P_I32, o.priority, 0, "N", "smaller first (0)") \
    X(stream_interval, "stream-interval", P_U16, o.stream_interval, 0, "N", \
        "tokens per piece at least") \
    X(timeout_ms, "timeout-ms", P_U32, o.ttl_total_ms, 0, "MS", "end after so long") \
    X(queue_timeout_ms, "queue-timeout-ms", P_U32, o.ttl_queue_ms, 0, "MS", \
        "give up when not begun after so long") \
    X(user, "user", P_U64, o.user, 0, "UID", "act for this user (trusted users)") \
    X(stop, "stop", P_STOP, p.n, 0, "TEXT", "end at this text; may be repeated") \
    X(stop_id, "stop-id", P_STOP_ID, p.n, 0, "ID", "end at this token; may be repeated") \
    X(logit_bias, "logit-bias", P_RULE, p.n, FCT_RULE_BIAS, "ID=X", \
        "add -100 to 100 to a token's logit; may be repeated") \
    X(allow_ids, "allow-ids", P_RULE, p.n, FCT_RULE_ALLOW, "ID,ID...", \
        "no other token is chosen; may be repeated") \
    X(bad_words, "bad-words", P_RULE, p.n, FCT_RULE_BAD_WORD, "TEXT", \
        "this text does not come; may be repeated") \
    X(bad_ids, "bad-ids", P_RULE, p.n, FCT_RULE_BAD_IDS, "ID,ID...", \
        "this sequence does not come; may be repeated") \
    X(logprob_ids, "logprob-ids", P_RULE, p.n, FCT_RULE_LOGPROB, "ID,ID...", \
        "log-probabilities of these too, with --logprobs") \
    X(reasoning, "reasoning", P_RULE, p.n, FCT_RULE_REASONING, "N,OPEN,CLOSE", \
        "N tokens at most between two token ids") \
    X(ignore_eos, "ignore-eos", P_FLAG, p.n, FDC_F_IGNORE_EOS, NULL, \
        "go on behind the end of the text") \
    X(keep_stop, "keep-stop", P_FLAG, p.n, FDC_F_KEEP_STOP, NULL, \
        "the stop text stays in the output") \
    X(no_special, "no-special", P_FLAG, p.n, FDC_F_NO_SPECIAL, NULL, \
        "add no begin-of-text token to a text prompt") \
    X(parse_special, "parse-special", P_FLAG, p.n, FDC_F_PARSE_SPECIAL, NULL, \
        "names of special tokens in the prompt are those tokens") \
    X(keep_special, "keep-special", P_FLAG, p.n, FDC_F_KEEP_SPECIAL, NULL, \
        "show special tokens in the output")

struct prow {
    const char *name;
    enum ptype type;
    size_t offset;
    uint32_t flag;
};

static const struct prow prows[] = {
#define X(id, name, type, field, flag, arg, help) \
    { name, type, offsetof(struct fct_req, field), flag },
    PARAM_ROWS(X)
#undef X
};
#define N_PROWS (sizeof(prows) / sizeof(prows[0]))

enum {
#define X(id, name, type, field, flag, arg, help) PRM_##id,
    PARAM_ROWS(X)
#undef X
};

const struct fct_opt fct_param_opts[] = {
#define X(par, name, type, field, flag, arg, help) \
    { name, 0, arg, help, .id = FCT_PARAM_BASE + PRM_##par },
    PARAM_ROWS(X)
#undef X
        FCT_OPT_END
};

/* ---- rules: what changes which tokens may be chosen --------------------------------- */

/* One option or one element of a key. */
struct fct_rule {
    enum fct_rule_kind kind;
    size_t n;   /* bytes of a text, else words: ids, or of a bias its id and its bits */
    void *data; /* behind a text there is a NUL */
};

static int
add_rule(struct fct_rules *l, enum fct_rule_kind kind, const void *data, size_t n)
{
    struct fct_rule *r = realloc(l->rule, (l->n + 1) * sizeof(*r));
    size_t bytes = kind == FCT_RULE_BAD_WORD ? n : n * sizeof(uint32_t);

    if (r == NULL)
        return -ENOMEM;
    l->rule = r;
    r += l->n;
    *r = (struct fct_rule){ kind, n, calloc(1, bytes + 1) };
    if (r->data == NULL)
        return -ENOMEM;
    memcpy(r->data, data, bytes);
    l->n++;
    return 0;
}

static void
rules_fini(struct fct_rules *l)
{
    while (l->n > 0)
        free(l->rule[--l->n].data);
    free(l->rule);
    l->rule = NULL;
}

static int
rules_copy(struct fct_rules *dst, const struct fct_rules *src)
{
    int rc = 0;

    for (size_t i = 0; i < src->n && rc == 0; i++)
        rc = add_rule(dst, src->rule[i].kind, src->rule[i].data, src->rule[i].n);
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
    return add_rule(l, FCT_RULE_BIAS, w, 2);
}

/* The ids, which pass if rc is 0. */
static int
add_rule_ids(struct fct_rules *l, enum fct_rule_kind kind, int rc, uint32_t *ids, size_t n)
{
    if (rc == 0 && kind == FCT_RULE_REASONING && n != 3)
        rc = -EINVAL;
    if (rc == 0)
        rc = add_rule(l, kind, ids, n);
    free(ids);
    return rc == 0 || rc == -ENOMEM ? rc : -EINVAL;
}

static int
rules_add(struct fct_rules *l, enum fct_rule_kind kind, const char *text)
{
    const char *eq = strchr(text, '=');
    uint32_t *ids = NULL;
    char err[128], *end;
    size_t n = 0;
    double v;
    int rc;

    if (kind == FCT_RULE_BAD_WORD)
        return add_rule(l, kind, text, strlen(text));
    if (kind == FCT_RULE_BIAS && eq != NULL) {
        v = strtod(eq + 1, &end);
        return end == eq + 1 || *end != '\0' ? -EINVAL : add_bias(l, text, eq, v);
    }
    if (kind == FCT_RULE_BIAS)
        return -EINVAL;
    rc = fct_parse_ids(text, strlen(text), &ids, &n, err, sizeof(err));
    return add_rule_ids(l, kind, rc, ids, n);
}

/* ---- from JSON -------------------------------------------------------------------- */

static int
ids_json(const json_t *v, uint32_t **ret_ids, size_t *ret_n)
{
    size_t n = json_array_size(v);
    uint32_t *ids = json_is_array(v) ? calloc(n + 1, sizeof(*ids)) : NULL;

    if (ids == NULL)
        return json_is_array(v) ? -ENOMEM : -EINVAL;
    for (size_t i = 0; i < n; i++) {
        json_int_t id = json_integer_value(json_array_get(v, i));

        if (!json_is_integer(json_array_get(v, i)) || id < 0 || id > UINT32_MAX) {
            free(ids);
            return -EINVAL;
        }
        ids[i] = (uint32_t)id;
    }
    *ret_ids = ids;
    *ret_n = n;
    return 0;
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

static int
rules_json(struct fct_rules *l, enum fct_rule_kind kind, const json_t *v,
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
        uint32_t *ids = NULL;
        size_t n_ids = 0;

        if (kind == FCT_RULE_BAD_WORD) { /* a NUL ends it in struct fdc_params */
            const char *text = json_string_value(e);

            rc = text == NULL || strlen(text) != json_string_length(e)
                ? -EINVAL
                : add_rule(l, kind, text, strlen(text));
            continue;
        }
        rc = ids_json(e, &ids, &n_ids);
        if (rc == 0 && n_ids == 0)
            rc = -EINVAL;
        rc = add_rule_ids(l, kind, rc, ids, n_ids);
    }
    return rc;
}

/* ---- to parameters ------------------------------------------------------------------ */

/* The ids of all rules of a kind at *w, one behind the other; *w goes behind them. */
static uint32_t *
join_rules(const struct fct_rules *l, enum fct_rule_kind kind, uint32_t **w, uint32_t *ret_n)
{
    uint32_t *from = *w;

    for (size_t i = 0; i < l->n; i++) {
        if (l->rule[i].kind != kind)
            continue;
        memcpy(*w, l->rule[i].data, l->rule[i].n * sizeof(**w));
        *w += l->rule[i].n;
    }
    *ret_n = (uint32_t)(*w - from);
    return from;
}

static void *
rules_params(const struct fct_rules *l, struct fdc_params *p)
{
    const void **words, **seqs, *reasoning = NULL;
    uint32_t *w, *seq_len;
    size_t n = l->n, n_id = sizeof(*p->reasoning) / sizeof(*w);

    for (size_t i = 0; i < n; i++)
        n_id += l->rule[i].kind == FCT_RULE_BAD_WORD ? 0 : l->rule[i].n;
    /* pointers of texts and of sequences, lengths, ids */
    words = calloc(3 * n + n_id + 1, sizeof(*words));
    if (words == NULL)
        return NULL;
    seqs = words + n;
    seq_len = (uint32_t *)(void *)(seqs + n);
    w = seq_len + n;
    p->bad_words = (const char *const *)words;
    p->bad_ids = (const uint32_t *const *)seqs;
    p->bad_ids_len = seq_len;
    for (size_t i = 0; i < n; i++) {
        const struct fct_rule *r = &l->rule[i];

        if (r->kind == FCT_RULE_BAD_WORD) {
            words[p->n_bad_words++] = r->data;
        } else if (r->kind == FCT_RULE_BAD_IDS) {
            seq_len[p->n_bad_ids] = (uint32_t)r->n;
            seqs[p->n_bad_ids++] = r->data;
        } else if (r->kind == FCT_RULE_REASONING) {
            reasoning = r->data; /* the last one counts, as with other options */
        }
    }
    p->allowed_ids = join_rules(l, FCT_RULE_ALLOW, &w, &p->n_allowed);
    p->logprob_ids = join_rules(l, FCT_RULE_LOGPROB, &w, &p->n_logprob_ids);
    p->bias = (const void *)join_rules(l, FCT_RULE_BIAS, &w, &p->n_bias);
    p->n_bias /= 2;
    if (reasoning != NULL) {
        memcpy(w, reasoning, 3 * sizeof(*w));
        p->reasoning = (const void *)w;
    }
    return words;
}

/* ---- requests -------------------------------------------------------------------- */

void
fct_req_init(struct fct_req *r)
{
    memset(r, 0, sizeof(*r));
    fdc_params_init(&r->p);
    r->o.size = sizeof(r->o);
}

void
fct_req_fini(struct fct_req *r)
{
    for (uint32_t i = 0; i < r->n_stop; i++)
        free(r->stop[i]);
    free(r->stop);
    free(r->stop_len);
    free(r->stop_ids);
    rules_fini(&r->rules);
    free(r->text);
    free(r->ids);
    json_decref(r->label);
    memset(r, 0, sizeof(*r));
}

static void *
dup_bytes(const void *p, size_t n)
{
    void *q = malloc(n + 1);

    if (q != NULL) {
        if (n > 0)
            memcpy(q, p, n);
        ((char *)q)[n] = '\0';
    }
    return q;
}

static int
add_stop(struct fct_req *r, const char *text, size_t n)
{
    char **stop = realloc(r->stop, (r->n_stop + 1) * sizeof(*stop));
    uint32_t *len;

    if (stop == NULL)
        return -ENOMEM;
    r->stop = stop;
    len = realloc(r->stop_len, (r->n_stop + 1) * sizeof(*len));
    if (len == NULL)
        return -ENOMEM;
    r->stop_len = len;
    len[r->n_stop] = (uint32_t)n;
    stop[r->n_stop] = dup_bytes(text, n);
    if (stop[r->n_stop] == NULL)
        return -ENOMEM;
    r->n_stop++;
    return 0;
}

static int
add_stop_id(struct fct_req *r, uint32_t id)
{
    uint32_t *ids = realloc(r->stop_ids, (r->n_stop_ids + 1) * sizeof(*ids));

    if (ids == NULL)
        return -ENOMEM;
    r->stop_ids = ids;
    ids[r->n_stop_ids++] = id;
    return 0;
}

int
fct_req_copy(struct fct_req *dst, const struct fct_req *src)
{
    int rc = 0;

    fct_req_init(dst);
    dst->p = src->p;
    dst->o = src->o;
    for (uint32_t i = 0; i < src->n_stop && rc == 0; i++)
        rc = add_stop(dst, src->stop[i], src->stop_len[i]);
    for (uint32_t i = 0; i < src->n_stop_ids && rc == 0; i++)
        rc = add_stop_id(dst, src->stop_ids[i]);
    if (rc == 0)
        rc = rules_copy(&dst->rules, &src->rules);
    if (src->text != NULL && rc == 0)
        rc = (dst->text = dup_bytes(src->text, src->n_text)) != NULL ? 0 : -ENOMEM;
    if (src->ids != NULL && rc == 0)
        rc = (dst->ids = dup_bytes(src->ids, src->n_ids * sizeof(*src->ids))) != NULL
            ? 0
            : -ENOMEM;
    dst->n_text = src->n_text;
    dst->n_ids = src->n_ids;
    dst->has_prompt = src->has_prompt;
    dst->label = json_incref(src->label);
    if (rc != 0)
        fct_req_fini(dst);
    return rc;
}

/* FDC_UNSET and FDC_UNSET64 are no values. */
static uint64_t
type_max(enum ptype t)
{
    return t == P_COUNT  ? INT8_MAX
        : t == P_U16     ? UINT16_MAX
        : t == P_U32     ? UINT32_MAX - 1
        : t == P_STOP_ID ? UINT32_MAX
                         : UINT64_MAX - 1;
}

/* v is known to fit the type. */
static void
store_u64(struct fct_req *r, const struct prow *row, uint64_t v)
{
    char *field = (char *)r + row->offset;

    r->p.flags |= row->flag;
    if (row->type == P_COUNT)
        *(int32_t *)(void *)field = (int32_t)v;
    else if (row->type == P_U16 || row->type == P_U32)
        *(uint32_t *)(void *)field = (uint32_t)v;
    else
        *(uint64_t *)(void *)field = v;
}

void *
fct_req_params(const struct fct_req *r, struct fdc_params *ret)
{
    *ret = r->p;
    ret->stop = (const char *const *)r->stop;
    ret->stop_len = r->stop_len;
    ret->n_stop = r->n_stop;
    ret->stop_ids = r->stop_ids;
    ret->n_stop_ids = r->n_stop_ids;
    return rules_params(&r->rules, ret);
}

int
fct_req_set_opt(struct fct_req *r, int id, const char *value)
{
    const struct prow *row = &prows[id - FCT_PARAM_BASE];
    char what[64], *end;
    uint64_t u = 0;
    double d = 0;
    long long i;
    int rc = 0;

    snprintf(what, sizeof(what), "--%s", row->name);
    switch (row->type) {
    case P_FLAG:
        r->p.flags |= row->flag;
        return 0;
    case P_STOP:
        return add_stop(r, value, strlen(value)) == 0 ? 0 : fct_oom();
    case P_RULE:
        rc = rules_add(&r->rules, (enum fct_rule_kind)row->flag, value);
        if (rc == -EINVAL)
            return fct_fail(FCT_EX_USAGE, "%s %s: must be %s", what, value,
                fct_param_opts[id - FCT_PARAM_BASE].arg);
        return rc == 0 ? 0 : fct_oom();
    case P_F32:
        rc = fct_dbl(what, value, &d);
        if (rc == 0)
            *(float *)(void *)((char *)r + row->offset) = (float)d;
        return rc;
    case P_I32:
        i = strtoll(value, &end, 10);
        if (end == value || *end != '\0' || i < INT32_MIN || i > INT32_MAX)
            return fct_fail(FCT_EX_USAGE, "%s %s: not a whole number of 32 bits", what,
                value);
        *(int32_t *)(void *)((char *)r + row->offset) = (int32_t)i;
        return 0;
    default:
        rc = fct_u64(what, value, type_max(row->type), &u);
        if (rc != 0)
            return rc;
        if (row->type == P_STOP_ID)
            return add_stop_id(r, (uint32_t)u) == 0 ? 0 : fct_oom();
        store_u64(r, row, u);
        return 0;
    }
}

/* ---- from JSON -------------------------------------------------------------- */

static int
json_u64(const json_t *v, uint64_t max, uint64_t *ret)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        (uint64_t)json_integer_value(v) > max)
        return -EINVAL;
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

/* A whole number of 64 bits, as text too: JSON's integers end at 2^63 - 1 here. */
static int
json_wide(const json_t *v, uint64_t *ret)
{
    const char *s = json_string_value(v);
    char *end;

    if (s == NULL)
        return json_u64(v, type_max(P_U64), ret);
    if (s[0] < '0' || s[0] > '9' || strlen(s) != json_string_length(v))
        return -EINVAL;
    errno = 0;
    *ret = strtoull(s, &end, 10);
    return errno == 0 && *end == '\0' && *ret <= type_max(P_U64) ? 0 : -EINVAL;
}

/* A string or an array of them; an id or an array of them. */
static int
json_list(struct fct_req *r, enum ptype type, const json_t *v)
{
    const json_t *e = v;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    uint64_t u;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        if (json_is_array(v))
            e = json_array_get(v, i);
        if (type == P_STOP)
            rc = json_is_string(e)
                ? add_stop(r, json_string_value(e), json_string_length(e))
                : -EINVAL;
        else
            rc = json_u64(e, UINT32_MAX, &u) == 0 ? add_stop_id(r, (uint32_t)u) : -EINVAL;
    }
    return rc;
}

static int
set_json_row(struct fct_req *r, const struct prow *row, const json_t *v,
    const char **ret_want)
{
    char *field = (char *)r + row->offset;
    uint64_t u;
    int rc;

    switch (row->type) {
    case P_FLAG:
        *ret_want = "true or false";
        if (!json_is_boolean(v))
            return -EINVAL;
        r->p.flags &= ~row->flag;
        r->p.flags |= json_is_true(v) ? row->flag : 0;
        return 0;
    case P_STOP:
        *ret_want = "a text or a list of texts";
        return json_list(r, row->type, v);
    case P_STOP_ID:
        *ret_want = "a token id or a list of them";
        return json_list(r, row->type, v);
    case P_RULE:
        return rules_json(&r->rules, (enum fct_rule_kind)row->flag, v, ret_want);
    case P_F32:
        *ret_want = "a number";
        if (!json_is_number(v))
            return -EINVAL;
        *(float *)(void *)field = (float)json_number_value(v);
        return 0;
    case P_I32:
        *ret_want = "a whole number of 32 bits";
        if (!json_is_integer(v) || json_integer_value(v) < INT32_MIN ||
            json_integer_value(v) > INT32_MAX)
            return -EINVAL;
        *(int32_t *)(void *)field = (int32_t)json_integer_value(v);
        return 0;
    default:
        *ret_want = row->type == P_COUNT ? "a whole number from 0 to 127"
            : row->type == P_U16         ? "a whole number from 0 to 65535"
            : row->type == P_U32
            ? "a whole number from 0 to 4294967294"
            : "a whole number from 0 to 18446744073709551614, in quotes from "
              "9223372036854775808 on";
        rc = row->type == P_U64 ? json_wide(v, &u) : json_u64(v, type_max(row->type), &u);
        if (rc == 0)
            store_u64(r, row, u);
        return rc;
    }
}

/* Ids, or with may_be_text a text. */
static int
set_prompt(struct fct_req *r, const json_t *v, int may_be_text)
{
    uint32_t *ids;
    char *text;
    int rc;

    if (json_is_array(v)) {
        rc = ids_json(v, &ids, &r->n_ids);
        if (rc == 0) {
            free(r->ids);
            r->ids = ids;
        }
        return rc;
    }
    if (!may_be_text || !json_is_string(v))
        return -EINVAL;
    text = dup_bytes(json_string_value(v), json_string_length(v));
    if (text == NULL)
        return -ENOMEM;
    free(r->text);
    r->text = text;
    r->n_text = json_string_length(v);
    return 0;
}

int
fct_req_set_json(struct fct_req *r, const char *key, const json_t *value, char *err,
    size_t err_bytes)
{
    const char *want = "";
    struct fct_near near = { .name = "", .best = 3 };
    char name[64], nearest[64];
    size_t i;
    int rc;

    fct_swap(key, '_', '-', name);
    near.like = name;
    if (strcmp(name, "prompt") == 0 || strcmp(name, "ids") == 0 ||
        strcmp(name, "prompt-ids") == 0) {
        want = name[0] == 'p' && name[6] == '\0'
            ? "a text or a list of token ids"
            : "a list of token ids";
        if (r->has_prompt) {
            snprintf(err, err_bytes, "%s: there is a prompt already", key);
            return -EINVAL;
        }
        rc = set_prompt(r, value, strcmp(name, "prompt") == 0);
        r->has_prompt = 1;
    } else if (strcmp(name, "id") == 0) {
        json_decref(r->label);
        r->label = json_deep_copy(value);
        return r->label != NULL ? 0 : -ENOMEM;
    } else {
        for (i = 0; i < N_PROWS; i++) {
            if (strcmp(prows[i].name, name) == 0)
                break;
            fct_near(&near, prows[i].name);
        }
        if (i == N_PROWS) {
            fct_swap(near.name, '-', '_', nearest);
            snprintf(err, err_bytes, "unknown key \"%s\"%s%s%s", name[0] ? key : "",
                nearest[0] ? "; did you mean \"" : "", nearest, nearest[0] ? "\"?" : "");
            return -EINVAL;
        }
        rc = set_json_row(r, &prows[i], value, &want);
    }
    if (rc == -EINVAL)
        snprintf(err, err_bytes, "%s: must be %s", key, want);
    else if (rc != 0)
        snprintf(err, err_bytes, "out of memory");
    return rc;
}
