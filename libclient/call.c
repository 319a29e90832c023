/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Blocking calls, which send a non-generating request and read its events to the end; and
 * fdc_read_text(). */
#include "config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/priv.h"

#define MAX_ANSWER ((size_t)4 * FDP_MAX_BLOB) /* most bytes that a call returns */

typedef int (*take_fn)(void *ctx, const struct fdc_event *ev);

static int
call(struct fdc *s, struct fdp_req *slot, const struct blob *b, int timeout_ms,
    take_fn take, void *ctx)
{
    uint64_t deadline = fdc__deadline(timeout_ms);
    struct sub u = { .slot = *slot, .b = *b, .internal = 1 };
    struct fdc_event ev;
    struct fdc_req *r;
    int rc = fdc__sub_init(s, &u, NULL);

    if (rc || fdc__send(s, &u, 1, timeout_ms, &rc) < 0)
        return rc;
    r = u.r;
    while ((rc = fdc__next(r, &ev, deadline)) > 0) {
        if (ev.type == FDP_T_ERROR)
            rc = ev.error->code;
        else if (ev.type == FDP_T_DONE)
            rc = 0;
        else
            rc = take(ctx, &ev);
        if (rc == 0 && ev.type != FDP_T_DONE && fdc__over(deadline))
            rc = FDP_E_TIMEOUT;
        if (rc < 0 || ev.type == FDP_T_DONE)
            break;
    }
    fdc_req_free(r);
    return rc;
}

struct growing { /* an array that grows; events append by element position */
    unsigned char *p;
    size_t n, cap;
    uint32_t type, size;
};

/* Keeps one byte free after the end for a NUL. */
static int
take_growing(void *ctx, const struct fdc_event *ev)
{
    struct growing *g = (struct growing *)ctx;
    size_t at = (size_t)ev->position * g->size, add = (size_t)ev->n * g->size;

    if (ev->type != g->type)
        return 0;
    if (at != g->n)
        return FDP_E_PROTO;
    if (at + add > MAX_ANSWER)
        return FDP_E_NOMEM;
    if (at + add + 1 > g->cap) {
        size_t cap = g->cap ? g->cap * 2 : 4096;
        unsigned char *p;
        while (cap < at + add + 1)
            cap *= 2;
        p = (unsigned char *)realloc(g->p, cap);
        if (p == NULL)
            return FDP_E_NOMEM;
        g->p = p;
        g->cap = cap;
    }
    memcpy(g->p + at, ev->data, add);
    g->n = at + add;
    return 0;
}

static int
call_growing(struct fdc *s, uint16_t op, uint32_t flags, struct blob *b,
    struct growing *g, int timeout_ms)
{
    struct fdc_event none = { .type = g->type };
    struct fdp_req slot;
    int rc = fdc__check(s);

    if (rc)
        return rc;
    if (b->prompt == NULL && b->prompt_bytes)
        return FDP_E_INVAL;
    none.data = "";
    fdc__fill_op(&slot, op, flags);
    rc = take_growing(g, &none); /* so that an empty answer is allocated memory, too */
    if (rc == 0)
        rc = call(s, &slot, b, timeout_ms, take_growing, g);
    if (rc) {
        free(g->p);
        return rc;
    }
    g->p[g->n] = 0;
    return 0;
}

int
fdc_tokenize(fdc_t *s, const char *text, size_t n_bytes, uint32_t flags,
    uint32_t **ret_ids, size_t *ret_n, int timeout_ms)
{
    return fdc_tokenize_spans(s, text, n_bytes, flags, NULL, 0, ret_ids, ret_n, timeout_ms);
}

int
fdc_tokenize_spans(fdc_t *s, const char *text, size_t n_bytes, uint32_t flags,
    const struct fdc_span *spans, size_t n_spans, uint32_t **ret_ids, size_t *ret_n,
    int timeout_ms)
{
    struct blob b = { .type = FDP_IT_PROMPT_TEXT, .prompt = text, .prompt_bytes = n_bytes };
    struct growing g = { .type = FDP_T_PROMPT_IDS, .size = 4 };
    struct fdc_params p;
    int rc;

    if (ret_ids == NULL || ret_n == NULL || (spans == NULL && n_spans != 0) ||
        n_spans > UINT32_MAX)
        return FDP_E_INVAL;
    fdc_params_init(&p);
    p.spans = spans;
    p.n_spans = (uint32_t)n_spans;
    b.p = &p;
    if (flags & FDC_LITERAL)
        flags &= ~(FDC_LITERAL | FDP_F_PARSE_SPECIAL);
    else
        flags |= FDP_F_PARSE_SPECIAL;
    rc = call_growing(s, FDP_OP_TOKENIZE, flags, &b, &g, timeout_ms);
    if (rc)
        return rc;
    *ret_ids = (uint32_t *)(void *)g.p;
    *ret_n = g.n / 4;
    return 0;
}

int
fdc_detokenize(fdc_t *s, const uint32_t *ids, size_t n_ids, uint32_t flags,
    char **ret_text, size_t *ret_n, int timeout_ms)
{
    struct blob b = { .type = FDP_IT_PROMPT_IDS, .prompt = ids };
    struct growing g = { .type = FDP_T_TEXT, .size = 1 };
    int rc;

    if (ret_text == NULL || ret_n == NULL)
        return FDP_E_INVAL;
    b.prompt_bytes = n_ids > SIZE_MAX / 4 ? SIZE_MAX : n_ids * 4;
    rc = call_growing(s, FDP_OP_DETOKENIZE, flags, &b, &g, timeout_ms);
    if (rc)
        return rc;
    *ret_text = (char *)g.p;
    *ret_n = g.n;
    return 0;
}

struct reading { /* a file that is read in pieces */
    struct growing g;
    uint64_t size;
    uint32_t from; /* offset at which the current piece begins */
};

static int
take_file(void *ctx, const struct fdc_event *ev)
{
    struct reading *r = (struct reading *)ctx;
    struct fdc_event piece = *ev;
    struct fdp_file f;

    if (ev->type == FDP_T_REPLY && ev->n >= sizeof(f)) {
        memcpy(&f, ev->data, sizeof(f));
        r->size = f.size;
    }
    if (ev->type != FDP_T_BYTES)
        return 0;
    piece.position += r->from;
    return take_growing(&r->g, &piece);
}

static int
left_ms(uint64_t deadline)
{
    uint64_t now = fdc__now(), ms;

    if (deadline == FDC_NEVER)
        return -1;
    ms = deadline > now ? (deadline - now) / 1000000u + 1 : 0;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* Reads the next piece. */
static int
read_piece(struct fdc *s, struct reading *r, const char *name, uint64_t deadline)
{
    unsigned char item[sizeof(struct fdp_file_ask) + FDP_MAX_FILE_NAME];
    struct fdp_file_ask ask = { .off = r->g.n, .len = FDP_MAX_FILE_READ };
    struct blob b = { .type = FDP_IT_FILE, .prompt = item };
    size_t n = strlen(name);
    struct fdp_req slot;

    r->from = (uint32_t)r->g.n;
    memcpy(item, &ask, sizeof(ask));
    memcpy(item + sizeof(ask), name, n);
    b.prompt_bytes = sizeof(ask) + n;
    fdc__fill_op(&slot, FDP_OP_FILE, 0);
    return call(s, &slot, &b, left_ms(deadline), take_file, r);
}

int
fdc_file(fdc_t *s, const char *name, char **ret_bytes, size_t *ret_n, int timeout_ms)
{
    struct reading r = { .g = { .type = FDP_T_BYTES, .size = 1 } };
    struct fdc_event none = { .type = FDP_T_BYTES };
    uint64_t deadline = fdc__deadline(timeout_ms);
    int rc = fdc__check(s);
    size_t before;

    if (rc)
        return rc;
    if (!name || !ret_bytes || !ret_n || !*name || strlen(name) > FDP_MAX_FILE_NAME)
        return FDP_E_INVAL;
    none.data = "";
    rc = take_growing(&r.g, &none);
    do {
        before = r.g.n;
        if (rc == 0)
            rc = read_piece(s, &r, name, deadline);
        if (rc == 0 && r.g.n == before && r.g.n < r.size)
            rc = FDP_E_PROTO; /* no bytes came although the file has more */
    } while (rc == 0 && r.g.n < r.size);
    if (rc) {
        free(r.g.p);
        return rc;
    }
    r.g.p[r.g.n] = 0;
    *ret_bytes = (char *)r.g.p;
    *ret_n = r.g.n;
    return 0;
}

void
fdc_free(void *ptr)
{
    free(ptr);
}

static int
take_info(void *ctx, const struct fdc_event *ev)
{
    struct fdp_info *i = (struct fdp_info *)ctx;

    if (ev->type != FDP_T_REPLY)
        return 0;
    memcpy(i, ev->data, ev->n < sizeof(*i) ? ev->n : sizeof(*i));
    /* Makes the name printable and the ids safe to iterate. */
    i->model_name[sizeof(i->model_name) - 1] = '\0';
    if (i->n_eos > sizeof(i->eos_ids) / sizeof(i->eos_ids[0]))
        i->n_eos = sizeof(i->eos_ids) / sizeof(i->eos_ids[0]);
    return 0;
}

static void
fill_model(struct fdc_model_info *ret, const struct fdp_info *i)
{
    struct fdc_model_info m = { .size = ret->size,
        .vocab = i->vocab,
        .max_model_len = i->max_model_len,
        .bos_id = i->bos_id,
        .has_tokenizer = i->has_tokenizer != 0,
        .n_eos = i->n_eos,
        .block_size = i->block_size,
        .set = i->set,
        .temperature = i->temperature,
        .top_p = i->top_p,
        .top_k = i->top_k,
        .min_p = i->min_p,
        .repetition_penalty = i->repetition_penalty,
        .max_logprobs = i->max_logprobs,
        .max_n = i->max_n,
        .max_stop = i->max_stop,
        .max_stop_len = i->max_stop_len,
        .max_stop_ids = i->max_stop_ids,
        .max_bias = i->max_bias,
        .max_bad = i->max_bad,
        .max_logprob_ids = i->max_logprob_ids,
        .offers = i->items };

    memcpy(m.eos_ids, i->eos_ids, sizeof(m.eos_ids));
    memcpy(m.digest, i->model_digest, sizeof(m.digest));
    memcpy(m.name, i->model_name, sizeof(m.name));
    memcpy(ret, &m, ret->size < sizeof(m) ? ret->size : sizeof(m));
}

int
fdc_info(fdc_t *s, struct fdc_info *ret_info, int timeout_ms)
{
    struct fdc_info v = { 0 };
    struct fdp_info model = { 0 };
    struct blob b = { 0 };
    struct fdp_req slot;
    int rc = fdc__check(s);

    if (rc)
        return rc;
    if (ret_info == NULL || ret_info->size < sizeof(v) ||
        (ret_info->model && ret_info->model->size < sizeof(*ret_info->model)))
        return FDP_E_INVAL;
    fdc__fill_op(&slot, FDP_OP_INFO, 0);
    rc = call(s, &slot, &b, timeout_ms, take_info, &model);
    if (rc && rc != FDP_E_LOADING)
        return rc;
    pthread_mutex_lock(&s->mtx);
    v.size = ret_info->size;
    v.max_inflight = s->n_tag;
    v.boot_id[0] = s->w.boot_id[0];
    v.boot_id[1] = s->w.boot_id[1];
    v.session_id = s->w.session_id;
    v.features = s->w.feat_on;
    v.max_request_bytes = s->a_size;
    v.major = s->w.major;
    v.minor = s->w.minor;
    v.n_reconnect = s->re.n_done;
    pthread_mutex_unlock(&s->mtx);
    v.model = ret_info->model;
    if (v.model)
        fill_model(v.model, &model);
    memcpy(ret_info, &v, sizeof(v));
    return 0;
}

static int
take_nothing(void *ctx, const struct fdc_event *ev)
{
    (void)ctx;
    (void)ev;
    return 0;
}

int
fdc_ping(fdc_t *s, int deep, uint64_t *ret_ns, int timeout_ms)
{
    struct blob b = { 0 };
    struct fdp_req slot;
    uint64_t t0;
    int rc = fdc__check(s);

    if (rc)
        return rc;
    fdc__fill_op(&slot, FDP_OP_PING, deep ? FDP_F_DEEP : 0);
    t0 = fdc__now();
    rc = call(s, &slot, &b, timeout_ms, take_nothing, NULL);
    if (rc == 0 && ret_ns)
        *ret_ns = fdc__now() - t0;
    return rc;
}

int64_t
fdc_read_text(fdc_req_t *r, char *buf, size_t cap, int timeout_ms)
{
    uint64_t deadline = fdc__deadline(timeout_ms);
    struct fdc_event ev;
    int rc = fdc__check_req(r);
    uint32_t n;

    if (rc)
        return rc;
    if (buf == NULL || cap == 0)
        return FDP_E_INVAL;
    while (r->text_len == 0) {
        rc = fdc__next(r, &ev, deadline);
        if (rc < 0)
            return rc;
        if (rc == 0 || ev.type == FDP_T_DONE || ev.type == FDP_T_ERROR)
            return r->term == FDP_T_ERROR ? r->end.error.code : 0;
        if ((ev.type == FDP_T_TEXT || ev.type == FDP_T_PROMPT_TEXT) && ev.sample == 0) {
            r->text = ev.text;
            r->text_len = ev.n;
        }
        if (r->text_len == 0 && fdc__over(deadline))
            return FDP_E_TIMEOUT;
    }
    n = r->text_len < cap ? r->text_len : (uint32_t)cap;
    memcpy(buf, r->text, n);
    r->text += n;
    r->text_len -= n;
    return n;
}
