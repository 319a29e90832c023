/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

/* Type of a row's parameter, in its lo. A value must fit it; the daemon checks more. */
enum type { P_COUNT, P_U16, P_U32, P_U64, P_I32, P_F32, P_FLAG, P_LIST };
static const struct {
    const char *is;
    uint64_t max; /* below FDC_UNSET and FDC_UNSET64 */
} types[] = { [P_COUNT] = { "a whole number from 0 to 127", INT8_MAX },
    [P_U16] = { "a whole number from 0 to 65535", UINT16_MAX },
    [P_U32] = { "a whole number from 0 to 4294967294", UINT32_MAX - 1 },
    [P_U64] = { "a whole number from 0 to 18446744073709551614, in quotes from "
                "9223372036854775808 on",
        UINT64_MAX - 1 },
    [P_I32] = { "a whole number of 32 bits", 0 },
    [P_F32] = { "a number", 0 },
    [P_FLAG] = { "true or false", 0 } };
/* Text of a list type, by the row's hi. */
static const char *const list_is[] = { [FCT_L_STOP] = "a text or a list of texts",
    [FCT_L_STOP_ID] = "a token id or a list of them",
    [FCT_L_BIAS] = "an object of ids and numbers",
    [FCT_L_ALLOW] = "a list of token ids",
    [FCT_L_BAD_WORD] = "a text or a list of texts",
    [FCT_L_BAD_IDS] = "a list of token ids or a list of such lists",
    [FCT_L_LOGPROB] = "a list of token ids",
    [FCT_L_REASONING] = "a list of three: tokens at most, the opening id, the closing id" };

#define NUMBER(type, name, value, field, text) \
    FCT_ROW(name, 0, value, text, .take = FCT_T_PARAM, .lo = type, \
        .at = offsetof(struct fct_req, field))
#define FLAG(name, flag, text) \
    FCT_ROW(name, 0, NULL, text, .take = FCT_T_PARAM, .lo = P_FLAG, .hi = flag)
#define LIST(name, value, kind, text) \
    FCT_ROW(name, 0, value, text, .take = FCT_T_PARAM, .lo = P_LIST, .hi = kind)
const struct fct_opt fct_param_opts[] = {
    NUMBER(P_U32, "max-tokens", "N", p.max_new,
        "output tokens at most; 0: the prompt is only scored"),
    NUMBER(P_U32, "min-tokens", "N", p.min_new, "no stop before this many"),
    NUMBER(P_F32, "temperature", "T", p.temperature, "0 is greedy (the model's)"),
    NUMBER(P_F32, "top-p", "P", p.top_p, "smallest set of probability P; 1: off"),
    NUMBER(P_U32, "top-k", "K", p.top_k, "the K likeliest; 0: off (the model's)"),
    NUMBER(P_F32, "min-p", "P", p.min_p, "at least P of the likeliest; 0: off"),
    NUMBER(P_F32, "presence-penalty", "X", p.presence_penalty, "-2 to 2 (0)"),
    NUMBER(P_F32, "frequency-penalty", "X", p.frequency_penalty, "-2 to 2 (0)"),
    NUMBER(P_F32, "repetition-penalty", "X", p.repetition_penalty,
        "0.001 to 2 (the model's)"),
    NUMBER(P_U64, "seed", "N", p.seed, "same seed, same tokens"),
    NUMBER(P_U16, "n", "N", p.n, "samples of each prompt (1)"),
    NUMBER(P_U32, "best-of", "N", p.best_of, "draw N samples and return the likeliest n"),
    NUMBER(P_COUNT, "logprobs", "K", p.logprobs,
        "log-probabilities of the output, K alternatives"),
    NUMBER(P_COUNT, "prompt-logprobs", "K", p.prompt_logprobs, "the same for the prompt"),
    NUMBER(P_U32, "prompt-from", "N", p.prompt_from,
        "with --prompt-logprobs: from token N of it on"),
    FLAG("token-text", FDC_F_TOKEN_TEXT, "the text of each token with its log-probability"),
    FLAG("echo", FDC_F_PROMPT_TEXT, "the prompt's text, too"),
    FLAG("alone", FDC_F_ALONE, "special and added tokens in records of their own"),
    NUMBER(P_I32, "priority", "N", o.priority, "smaller first (0)"),
    NUMBER(P_U16, "stream-interval", "N", o.stream_interval, "tokens per piece at least"),
    NUMBER(P_U32, "timeout-ms", "MS", o.ttl_total_ms, "end after so long"),
    NUMBER(P_U32, "queue-timeout-ms", "MS", o.ttl_queue_ms,
        "give up when not begun after so long"),
    NUMBER(P_U64, "user", "UID", o.user, "act for this user (trusted users)"),
    LIST("stop", "TEXT", FCT_L_STOP, "end at this text; may be repeated"),
    LIST("stop-id", "ID", FCT_L_STOP_ID, "end at this token; may be repeated"),
    LIST("logit-bias", "ID=X", FCT_L_BIAS,
        "add -100 to 100 to a token's logit; may be repeated"),
    LIST("allow-ids", "ID,ID...", FCT_L_ALLOW, "no other token is chosen; may be repeated"),
    LIST("bad-words", "TEXT", FCT_L_BAD_WORD, "this text does not come; may be repeated"),
    LIST("bad-ids", "ID,ID...", FCT_L_BAD_IDS,
        "this sequence does not come; may be repeated"),
    LIST("logprob-ids", "ID,ID...", FCT_L_LOGPROB,
        "log-probabilities of these too, with --logprobs"),
    LIST("reasoning", "N,OPEN,CLOSE", FCT_L_REASONING,
        "N tokens at most between two token ids"),
    FLAG("ignore-eos", FDC_F_IGNORE_EOS, "generate on after the end of the text"),
    FLAG("keep-stop", FDC_F_KEEP_STOP, "the stop text stays in the output"),
    FLAG("no-special", FDC_F_NO_SPECIAL, "add no begin-of-text token to a text prompt"),
    FLAG("parse-special", FDC_F_PARSE_SPECIAL,
        "names of special tokens in the prompt are those tokens"),
    FLAG("keep-special", FDC_F_KEEP_SPECIAL, "show special tokens in the output"), FCT_OPT_END
};

/* ---- lists -------------------------------------------------------------------------- */

/* Append an element and take over its reference; NULL means that there was no memory. */
static int
put(struct fct_req *r, const struct fct_opt *row, json_t *element)
{
    json_t **list = &r->list[row->hi];

    if (*list == NULL)
        *list = json_array();
    return json_array_append_new(*list, element) == 0 ? 0 : -ENOMEM;
}

static uint32_t
bits_of(double v)
{
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof(f));
    return bits;
}

static int
put_bias(struct fct_req *r, const struct fct_opt *row, const char *id, size_t n, double bias)
{
    uint64_t v;

    return fct_digits(id, n, UINT32_MAX, &v)
        ? put(r, row, json_pack("[I,I]", (json_int_t)v, (json_int_t)bits_of(bias)))
        : -EINVAL;
}

/* Parse an option's text into a list; what is the option's name. */
static int
list_text(struct fct_req *r, const struct fct_opt *row, const char *what, const char *text)
{
    const char *eq = strchr(text, '=');
    uint32_t *ids = NULL;
    char err[128], *end;
    uint64_t id;
    size_t n = 0;
    double v;
    int rc;

    if (row->hi == FCT_L_STOP || row->hi == FCT_L_BAD_WORD)
        return put(r, row, json_stringn_nocheck(text, strlen(text)));
    if (row->hi == FCT_L_STOP_ID) {
        rc = fct_u64(what, text, UINT32_MAX, &id);
        return rc == 0 ? put(r, row, json_integer((json_int_t)id)) : rc;
    }
    if (row->hi == FCT_L_BIAS) {
        v = eq != NULL ? strtod(eq + 1, &end) : 0;
        return eq == NULL || end == eq + 1 || *end != '\0'
            ? -EINVAL
            : put_bias(r, row, text, (size_t)(eq - text), v);
    }
    rc = fct_parse_ids(text, strlen(text), &ids, &n, err, sizeof(err));
    if (rc == 0)
        rc = row->hi == FCT_L_REASONING && n != 3
            ? -EINVAL
            : put(r, row, fct_json_ids(ids, n));
    free(ids);
    return rc == 0 || rc == -ENOMEM ? rc : -EINVAL;
}

static int
is_id(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= 0 &&
        json_integer_value(v) <= UINT32_MAX;
}

static int
is_ids(const json_t *v)
{
    size_t n = 0;

    while (is_id(json_array_get(v, n)))
        n++;
    return json_is_array(v) && n == json_array_size(v);
}

/* Is v a valid element of a list of this kind? */
static int
is_element(enum fct_list kind, const json_t *v)
{
    if (kind == FCT_L_BAD_WORD) /* a NUL ends it in struct fdc_params */
        return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v);
    return kind == FCT_L_STOP   ? json_is_string(v)
        : kind == FCT_L_STOP_ID ? is_id(v)
                                : is_ids(v) && json_array_size(v) > 0 &&
            (kind != FCT_L_REASONING || json_array_size(v) == 3);
}

static int
list_json(struct fct_req *r, const struct fct_opt *row, const json_t *v)
{
    enum fct_list kind = (enum fct_list)row->hi;
    int many = kind == FCT_L_BAD_IDS
        ? json_array_size(v) > 0
        : kind == FCT_L_STOP || kind == FCT_L_STOP_ID || kind == FCT_L_BAD_WORD;
    int rc =
        (kind == FCT_L_BIAS ? json_is_object(v) : many && json_is_array(v)) ? 0 : -EINVAL;
    const char *id;
    json_t *e;
    size_t i;

    if (kind != FCT_L_BIAS && is_element(kind, v))
        return put(r, row, json_deep_copy(v));
    json_object_foreach((json_t *)(uintptr_t)v, id, e)
        if (rc == 0)
            rc = json_is_number(e)
                ? put_bias(r, row, id, strlen(id), json_number_value(e))
                : -EINVAL;
    json_array_foreach(v, i, e)
        if (rc == 0)
            rc = is_element(kind, e) ? put(r, row, json_deep_copy(e)) : -EINVAL;
    return rc;
}

/* Copy the numbers of a list and its lists to to (NULL: none). Returns the count. */
static size_t
numbers(const json_t *list, uint32_t *to)
{
    const json_t *v;
    size_t i, n = 0;

    json_array_foreach(list, i, v) {
        if (json_is_array(v))
            n += numbers(v, to != NULL ? to + n : NULL);
        else if (to != NULL)
            to[n++] = (uint32_t)json_integer_value(v);
        else
            n++;
    }
    return n;
}

/* Write a list's numbers at *w and advance *w. Returns where they are. */
static uint32_t *
put_numbers(const json_t *list, uint32_t **w, uint32_t *ret_n)
{
    uint32_t *from = *w;

    *ret_n = (uint32_t)numbers(list, from);
    *w += *ret_n;
    return from;
}

void *
fct_req_params(const struct fct_req *r, struct fdc_params *ret)
{
    size_t n_word = sizeof(*ret->reasoning) / sizeof(uint32_t), n[FCT_N_LIST];
    size_t n_pointer, i;
    uint32_t *w, *len;
    const void **p;
    json_t *e;

    for (i = 0; i < FCT_N_LIST; i++) {
        n[i] = json_array_size(r->list[i]);
        n_word += n[i] + numbers(r->list[i], NULL);
    }
    /* layout: pointers to texts and sequences, then lengths and numbers */
    n_pointer = n[FCT_L_STOP] + n[FCT_L_BAD_WORD] + n[FCT_L_BAD_IDS];
    p = calloc(n_pointer + n_word, sizeof(*p));
    if (p == NULL)
        return NULL;
    w = (uint32_t *)(void *)(p + n_pointer);
    *ret = r->p;
    ret->stop = (const char *const *)p;
    ret->stop_len = w;
    ret->n_stop = (uint32_t)n[FCT_L_STOP];
    json_array_foreach(r->list[FCT_L_STOP], i, e) {
        *p++ = json_string_value(e);
        *w++ = (uint32_t)json_string_length(e);
    }
    ret->bad_words = (const char *const *)p;
    ret->n_bad_words = (uint32_t)n[FCT_L_BAD_WORD];
    json_array_foreach(r->list[FCT_L_BAD_WORD], i, e)
        *p++ = json_string_value(e);
    ret->bad_ids = (const uint32_t *const *)p;
    ret->bad_ids_len = len = w;
    ret->n_bad_ids = (uint32_t)n[FCT_L_BAD_IDS];
    w += n[FCT_L_BAD_IDS];
    json_array_foreach(r->list[FCT_L_BAD_IDS], i, e)
        *p++ = put_numbers(e, &w, &len[i]);
    ret->stop_ids = put_numbers(r->list[FCT_L_STOP_ID], &w, &ret->n_stop_ids);
    ret->allowed_ids = put_numbers(r->list[FCT_L_ALLOW], &w, &ret->n_allowed);
    ret->logprob_ids = put_numbers(r->list[FCT_L_LOGPROB], &w, &ret->n_logprob_ids);
    ret->bias = (const void *)put_numbers(r->list[FCT_L_BIAS], &w, &ret->n_bias);
    ret->n_bias /= 2;
    /* the last one counts, as with other options */
    if (n[FCT_L_REASONING] > 0) {
        ret->reasoning = (const void *)w;
        (void)numbers(json_array_get(r->list[FCT_L_REASONING], n[FCT_L_REASONING] - 1), w);
    }
    return (void *)(uintptr_t)ret->stop;
}

/* ---- requests -------------------------------------------------------------------- */

int
fct_req_submit(fdc_t *s, const struct fct_req *r, fdc_req_t **ret)
{
    struct fdc_params p;
    void *lists = fct_req_params(r, &p);
    int rc = FDC_E_NOMEM;

    if (lists != NULL)
        rc = r->ids != NULL ? fdc_submit_ids(s, r->ids, r->n_ids, &p, &r->o, ret)
                            : fdc_submit_text(s, r->text, r->n_text, &p, &r->o, ret);
    free(lists);
    return rc;
}

void
fct_req_init(struct fct_req *r)
{
    *r = (struct fct_req){ .o.size = sizeof(r->o) };
    fdc_params_init(&r->p);
}

void
fct_req_fini(struct fct_req *r)
{
    for (int i = 0; i < FCT_N_LIST; i++)
        json_decref(r->list[i]);
    free(r->text);
    free(r->ids);
    json_decref(r->label);
    memset(r, 0, sizeof(*r));
}

/* A copy with a NUL appended; NULL if p is NULL or there is no memory. */
static void *
dup_bytes(const void *p, size_t n)
{
    char *q = p != NULL ? malloc(n + 1) : NULL;

    if (q != NULL) {
        memcpy(q, p, n);
        q[n] = '\0';
    }
    return q;
}

int
fct_req_copy(struct fct_req *dst, const struct fct_req *src)
{
    int bad;

    *dst = *src;
    dst->text = dup_bytes(src->text, src->n_text);
    dst->ids = dup_bytes(src->ids, src->n_ids * sizeof(*src->ids));
    dst->label = json_incref(src->label);
    bad = (src->text != NULL && dst->text == NULL) ||
        (src->ids != NULL && dst->ids == NULL);
    for (int i = 0; i < FCT_N_LIST; i++) {
        dst->list[i] = json_deep_copy(src->list[i]);
        bad |= src->list[i] != NULL && dst->list[i] == NULL;
    }
    if (bad)
        fct_req_fini(dst);
    return bad ? -ENOMEM : 0;
}

/* Store a value that fits its type, a float as its bits. Returns 0. */
static int
store(struct fct_req *r, const struct fct_opt *row, uint64_t v)
{
    uint32_t word = (uint32_t)v, flag = (uint32_t)row->hi;
    char *field = (char *)r + row->at;

    if (row->lo == P_FLAG)
        r->p.flags = v != 0 ? r->p.flags | flag : r->p.flags & ~flag;
    else if (row->lo == P_U64)
        memcpy(field, &v, sizeof(v));
    else
        memcpy(field, &word, sizeof(word));
    return 0;
}

int
fct_req_set_opt(struct fct_req *r, const struct fct_opt *row, const char *value)
{
    char what[64], *end;
    uint64_t u = 0;
    double d = 0;
    long long i;
    int rc;

    snprintf(what, sizeof(what), "--%s", row->name);
    switch (row->lo) {
    case P_FLAG:
        return store(r, row, 1);
    case P_LIST:
        rc = list_text(r, row, what, value);
        if (rc == -EINVAL)
            return fct_usage("%s %s: must be %s", what, value, row->arg);
        return rc == -ENOMEM ? fct_oom() : rc;
    case P_F32:
        rc = fct_dbl(what, value, &d);
        return rc == 0 ? store(r, row, bits_of(d)) : rc;
    case P_I32:
        i = strtoll(value, &end, 10);
        if (end == value || *end != '\0' || i < INT32_MIN || i > INT32_MAX)
            return fct_usage("%s %s: not a whole number of 32 bits", what, value);
        return store(r, row, (uint64_t)i);
    default:
        rc = fct_u64(what, value, types[row->lo].max, &u);
        return rc == 0 ? store(r, row, u) : rc;
    }
}

/* ---- from JSON -------------------------------------------------------------- */

/* Returns 0, or -EINVAL if v is not of the row's type. */
static int
set_json_row(struct fct_req *r, const struct fct_opt *row, const json_t *v)
{
    long long i = json_integer_value(v);
    uint64_t u = (uint64_t)i, max;
    int fits;

    switch (row->lo) {
    case P_LIST:
        return list_json(r, row, v);
    case P_FLAG:
        fits = json_is_boolean(v);
        u = json_is_true(v);
        break;
    case P_F32:
        fits = json_is_number(v);
        u = bits_of(json_number_value(v));
        break;
    case P_I32:
        fits = json_is_integer(v) && i >= INT32_MIN && i <= INT32_MAX;
        break;
    default:
        max = types[row->lo].max;
        /* 64 bits may come as text too: jansson's integers end at 2^63 - 1 */
        fits = json_is_integer(v) ? i >= 0 && u <= max
                                  : row->lo == P_U64 &&
                fct_digits(json_string_value(v), json_string_length(v), max, &u);
    }
    return fits ? store(r, row, u) : -EINVAL;
}

/* Set the prompt from ids, or with may_be_text from a text. */
static int
set_prompt(struct fct_req *r, const json_t *v, int may_be_text)
{
    if (is_ids(v)) {
        r->n_ids = json_array_size(v);
        r->ids = calloc(r->n_ids + 1, sizeof(*r->ids));
        if (r->ids != NULL)
            (void)numbers(v, r->ids);
        return r->ids != NULL ? 0 : -ENOMEM;
    }
    if (!may_be_text || !json_is_string(v))
        return -EINVAL;
    r->n_text = json_string_length(v);
    r->text = dup_bytes(json_string_value(v), r->n_text);
    return r->text != NULL ? 0 : -ENOMEM;
}

int
fct_req_set_json(struct fct_req *r, const char *key, const json_t *value, char *err,
    size_t err_bytes)
{
    const struct fct_opt *row = fct_param_opts;
    char name[64], nearest[64];
    struct fct_near near = { .like = name, .name = "", .best = 3 };
    int rc, is_prompt;

    fct_swap(key, '_', '-', name);
    is_prompt = strcmp(name, "prompt") == 0;
    if (strcmp(name, "id") == 0) {
        json_decref(r->label);
        r->label = json_deep_copy(value);
        return r->label != NULL ? 0 : -ENOMEM;
    }
    if (is_prompt || strcmp(name, "ids") == 0 || strcmp(name, "prompt-ids") == 0) {
        if (r->has_prompt) {
            snprintf(err, err_bytes, "%s: there is a prompt already", key);
            return -EINVAL;
        }
        rc = set_prompt(r, value, is_prompt);
        r->has_prompt = 1;
        row = NULL;
    } else {
        for (; row->name != NULL && strcmp(row->name, name) != 0; row++)
            fct_near(&near, row->name);
        if (row->name == NULL) {
            fct_swap(near.name, '-', '_', nearest);
            snprintf(err, err_bytes, "unknown key \"%s\"%s%s%s", name[0] ? key : "",
                nearest[0] ? "; did you mean \"" : "", nearest, nearest[0] ? "\"?" : "");
            return -EINVAL;
        }
        if (row->lo == P_LIST) { /* in place of the command line's */
            json_decref(r->list[row->hi]);
            r->list[row->hi] = NULL;
        }
        rc = set_json_row(r, row, value);
    }
    if (rc == -EINVAL)
        snprintf(err, err_bytes, "%s: must be %s", key,
            row == NULL ? is_prompt ? "a text or a list of token ids" : list_is[FCT_L_ALLOW]
                : row->lo == P_LIST ? list_is[row->hi]
                                    : types[row->lo].is);
    else if (rc != 0)
        snprintf(err, err_bytes, "out of memory");
    return rc;
}
