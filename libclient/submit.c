/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/priv.h"

/* ---- parameters ---------------------------------------------------------- */

/* Copy the caller's struct, whose size may be that of an older or newer library. */
static int
read_params(const struct fdc_params *in, struct fdc_params *out)
{
    fdc_params_init(out);
    if (in == NULL)
        return 0;
    if (in->size < offsetof(struct fdc_params, n_stop))
        return FDP_E_INVAL;
    memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
    for (size_t i = sizeof(*out); i < in->size; i++)
        if (((const unsigned char *)in)[i])
            return FDP_E_UNSUPPORTED;
    if ((out->n_stop && !out->stop) || (out->n_stop_ids && !out->stop_ids) ||
        (out->n_prior && !out->prior_ids) || (out->n_bias && !out->bias) ||
        (out->n_allowed && !out->allowed_ids) || (out->n_bad_words && !out->bad_words) ||
        (out->grammar_len && !out->grammar) || (out->n_spans && !out->spans) ||
        (out->n_bad_ids && (!out->bad_ids || !out->bad_ids_len)) ||
        (out->n_logprob_ids && !out->logprob_ids))
        return FDP_E_INVAL;
    return 0;
}

/* ---- tags ---------------------------------------------------------------- */

static int
tag_take(struct fdc *s, struct fdc_req *r)
{
    struct tag_entry *t;

    if (s->tag_free == 0)
        return 0;
    t = &s->tags[s->tag_free - 1];
    r->tag = (uint64_t)t->gen << 32 | (s->tag_free - 1);
    s->tag_free = t->next_free;
    t->used = 1;
    t->cancel = 0;
    t->req = r;
    s->n_open++;
    r->open = 1;
    return 1;
}

static void
tag_untake(struct fdc *s, struct fdc_req *r)
{
    struct tag_entry *t = &s->tags[(uint32_t)r->tag];

    if (!r->open || !t->used || t->req != r)
        return;
    r->open = 0;
    t->used = 0;
    t->req = NULL;
    t->next_free = s->tag_free;
    s->tag_free = (uint32_t)r->tag + 1;
    s->n_open--;
}

static struct fdc_req *
req_new(struct fdc *s, uint32_t n, uint32_t n_prior)
{
    struct fdc_req *r = (struct fdc_req *)calloc(1, sizeof(*r) + (size_t)n * 4);

    if (r == NULL)
        return NULL;
    r->magic = FDC_REQ_MAGIC;
    r->s = s;
    r->n = n;
    r->internal = 1; /* until it is submitted */
    for (uint32_t i = 0; i < n; i++)
        r->n_out[i] = n_prior;
    return r;
}

static void
link_req(struct fdc *s, struct fdc_req *r)
{
    r->all_next = s->all;
    if (s->all)
        s->all->all_prev = r;
    s->all = r;
}

void
fdc__req_drop(struct fdc_req *r)
{
    struct fdc *s = r->s;

    fdc__unready(r);
    fdc__queue_free(r);
    if (r->all_prev)
        r->all_prev->all_next = r->all_next;
    else
        s->all = r->all_next;
    if (r->all_next)
        r->all_next->all_prev = r->all_prev;
    r->magic = 0;
    free(r);
}

/* ---- submit -------------------------------------------------------------- */

/* One try: registers r and queues its slot. */
static int
try_submit(struct fdc *s, struct fdc_req *r, struct fdp_req *slot, const struct blob *b,
    uint32_t span)
{
    int rc, taken;

    pthread_mutex_lock(&s->mtx);
    (void)fdc__drain(s);
    rc = s->dead;
    taken = rc == 0 && tag_take(s, r);
    pthread_mutex_unlock(&s->mtx);
    if (!taken)
        return rc ? rc : FDP_E_LIMIT;

    slot->tag = r->tag;
    pthread_mutex_lock(&s->mtx_sq);
    rc = fdc__push(s, slot, b, span);
    pthread_mutex_unlock(&s->mtx_sq);
    if (rc == 0)
        return 0;

    pthread_mutex_lock(&s->mtx);
    tag_untake(s, r);
    if (rc == FDP_E_PROTO)
        fdc__die(s, rc);
    else
        (void)fdc__drain(s);
    rc = s->dead ? s->dead : rc;
    pthread_mutex_unlock(&s->mtx);
    return rc;
}

/* The gate takes slots without telling: look again after a while. */
static int
wait_room(struct fdc *s, int why, uint64_t deadline, uint32_t *nap_us)
{
    struct timespec ts = { .tv_nsec = (long)*nap_us * 1000 };
    uint64_t now = fdc__now();
    int rc = 0;

    if (now >= deadline)
        return deadline ? FDP_E_TIMEOUT : FDP_E_AGAIN;
    if (why == FDP_E_LIMIT) {
        pthread_mutex_lock(&s->mtx);
        rc = fdc__wait(s, WAIT_ROOM, NULL, deadline);
        if (s->dead) /* which may be E_LIMIT itself */
            rc = s->dead;
        pthread_mutex_unlock(&s->mtx);
        return rc < 0 ? rc : 0;
    }
    nanosleep(&ts, NULL);
    if (*nap_us < 1000)
        *nap_us *= 2;
    pthread_mutex_lock(&s->mtx);
    fdc__look(s);
    rc = s->dead;
    pthread_mutex_unlock(&s->mtx);
    return rc;
}

int
fdc__submit(struct fdc *s, struct fdp_req *slot, const struct blob *b, int internal,
    int timeout_ms, struct fdc_req **ret_req)
{
    uint64_t deadline = fdc__deadline(timeout_ms);
    uint32_t nap_us = 20, span;
    struct fdc_req *r;
    int rc = fdc__blob_bytes(s, b, &span);

    if (rc)
        return rc;
    r = req_new(s, slot->n ? slot->n : 1, slot->n_prior);
    if (r == NULL)
        return FDP_E_NOMEM;
    if (b->p)
        r->user = b->p->user_ptr;
    pthread_mutex_lock(&s->mtx);
    link_req(s, r);
    pthread_mutex_unlock(&s->mtx);
    for (;;) {
        rc = try_submit(s, r, slot, b, span);
        if (rc != FDP_E_AGAIN && rc != FDP_E_LIMIT)
            break;
        rc = wait_room(s, rc, deadline, &nap_us);
        if (rc)
            break;
    }
    pthread_mutex_lock(&s->mtx);
    if (rc) {
        fdc__req_drop(r);
    } else {
        r->internal = (uint8_t)internal;
        if (r->unread || r->term)
            fdc__ready(r);
    }
    pthread_mutex_unlock(&s->mtx);
    if (rc == 0)
        *ret_req = r;
    return rc;
}

static int
submit_prompt(struct fdc *s, int type, const void *data, size_t n, size_t unit,
    const struct fdc_params *params, struct fdc_req **ret_req)
{
    struct fdc_params p;
    struct fdp_req slot;
    struct blob b = { .type = type, .prompt = data, .p = &p };
    int rc = fdc__check(s);

    if (rc)
        return rc;
    if (ret_req == NULL || (data == NULL && n))
        return FDP_E_INVAL;
    if (n > FDP_MAX_BLOB)
        return FDP_E_TOO_LONG;
    b.prompt_bytes = n * unit;
    rc = read_params(params, &p);
    if (rc)
        return rc;
    fdc__fill_slot(&slot, FDP_OP_SUBMIT, &p);
    return fdc__submit(s, &slot, &b, p.exclusive_reader != 0, p.submit_timeout_ms, ret_req);
}

int
fdc_submit_text(fdc_t *s, const char *text, size_t n_bytes,
    const struct fdc_params *params, fdc_req_t **ret_req)
{
    return submit_prompt(s, FDP_IT_PROMPT_TEXT, text, n_bytes, 1, params, ret_req);
}

int
fdc_submit_ids(fdc_t *s, const uint32_t *ids, size_t n_ids,
    const struct fdc_params *params, fdc_req_t **ret_req)
{
    return submit_prompt(s, FDP_IT_PROMPT_IDS, ids, n_ids, 4, params, ret_req);
}

/* ---- cancel and free ----------------------------------------------------- */

static void
cancel_open(struct fdc *s, struct fdc_req *r)
{
    struct tag_entry *t = &s->tags[(uint32_t)r->tag];

    if (!t->cancel) {
        t->cancel = 1;
        s->n_cancel++;
    }
    if (fdc__flush_cancels(s))
        fdc__die(s, FDP_E_PROTO);
}

int
fdc_cancel(fdc_req_t *r)
{
    int rc;

    if (r == NULL || r->magic != FDC_REQ_MAGIC)
        return FDP_E_INVAL;
    rc = fdc__check(r->s);
    if (rc)
        return rc;
    pthread_mutex_lock(&r->s->mtx);
    if (r->open)
        cancel_open(r->s, r);
    pthread_mutex_unlock(&r->s->mtx);
    return 0;
}

void
fdc_req_free(fdc_req_t *r)
{
    struct fdc *s;
    int forked;

    if (r == NULL || r->magic != FDC_REQ_MAGIC)
        return;
    s = r->s;
    forked = fdc__check(s) != 0;
    if (forked) {
        fdc__req_drop(r);
        return;
    }
    pthread_mutex_lock(&s->mtx);
    if (r->open) {
        s->tags[(uint32_t)r->tag].req = NULL;
        cancel_open(s, r);
    }
    fdc__req_drop(r);
    pthread_mutex_unlock(&s->mtx);
}

void
fdc_req_set_user(fdc_req_t *r, void *ptr)
{
    if (r && r->magic == FDC_REQ_MAGIC)
        __atomic_store_n(&r->user, ptr, __ATOMIC_RELEASE);
}

void *
fdc_req_user(const fdc_req_t *r)
{
    return r && r->magic == FDC_REQ_MAGIC
        ? __atomic_load_n(&r->user, __ATOMIC_ACQUIRE)
        : NULL;
}

uint64_t
fdc_req_tag(const fdc_req_t *r)
{
    return r && r->magic == FDC_REQ_MAGIC ? r->tag : 0;
}

uint32_t
fdc_req_tokens(const fdc_req_t *r, uint32_t sample)
{
    if (r == NULL || r->magic != FDC_REQ_MAGIC || sample >= r->n)
        return 0;
    return __atomic_load_n(&r->n_out[sample], __ATOMIC_RELAXED);
}
