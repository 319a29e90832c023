/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/intake.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/gate/admit.h"
#include "daemon/gate/blob.h"
#include "daemon/gate/check.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/reqlog.h"
#include "daemon/gate/request.h"
#include "libclient/fdproto.h"

#define ITK_BYTES_PER_TOKEN 4 /* bytes of text per token; few languages need fewer */
#define ITK_OUTPUT_GUESS    256
#define ITK_PAGE            4096u
#define ITK_EAGER_FOR_NS    (2 * CLK_S) /* eager for this time after a rejection */
/* Most bytes of a blob other than the prompt: headers, stop strings and ids. */
#define ITK_NO_PROMPT (64 + FDP_MAX_STOP * (16 + FDP_MAX_STOP_LEN) + 4 * FDP_MAX_STOP_IDS)

/* A request whose items are copied in pieces. */
struct itk_job {
    struct fdp_req req;
    struct usr *usr; /* user that is charged for its bytes */
    unsigned char *blob;
    uint32_t copied;
    struct chk_scan scan;
};

void
itk_begin(struct intake *k)
{
    k->loop++;
    k->bytes = k->cost = 0;
    k->is_late = 0;
}

int
itk_look(struct intake *k)
{
    if (!k->is_late) {
        k->is_late = env_is_late(k->env);
        k->cost = k->is_late ? k->cost : 0;
    }
    return k->is_late;
}

static void
itk_limits(const struct intake *k, int trusted, struct chk_limits *ret)
{
    chk_limits(k->env->par, dsp_ready(k->adm->dsp), trusted, ret);
}

uint32_t
itk_max_logprobs(const struct intake *k)
{
    struct chk_limits lim;

    itk_limits(k, 0, &lim);
    return lim.max_logprobs < 0 ? 0 : (uint32_t)lim.max_logprobs;
}

static uint64_t
itk_draw_seed(struct intake *k)
{
    uint64_t z = k->rng += 0x9e3779b97f4a7c15ull; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return z != UINT64_MAX ? z : 0; /* in libfdclient this value means "not set" */
}

/* ---- budgets ----------------------------------------------------------------- */

/* Is c's time charged? A user that is the only one, and a client that the administrator
 * trusts, may have all of it. */
static int
itk_has_share(const struct intake *k, const struct client *c)
{
    return k->reqs->fair->n_here > 1 && k->env->until != 0 && !c->trusted;
}

/* Returns u, with its budgets reset at its first use in a loop iteration. */
static struct usr *
itk_account(const struct intake *k, struct usr *u)
{
    if (u->loop != k->loop) {
        u->loop = k->loop;
        u->loop_bytes = u->loop_records = u->loop_ns = 0;
    }
    return u;
}

static int
itk_has_budget(struct intake *k, struct usr *u)
{
    (void)itk_account(k, u);
    return !itk_is_spent(k) && u->loop_bytes < ITK_USER_BYTES &&
        u->loop_records < ITK_USER_BATCH;
}

static void
itk_spend(struct intake *k, struct usr *u, uint32_t bytes)
{
    k->bytes += bytes;
    k->cost += bytes / ITK_LOOK_BYTES;
    cnt_add(&k->env->cnt->copied_bytes, bytes);
    itk_account(k, u)->loop_bytes += bytes;
}

/* ---- rejections -------------------------------------------------------------- */

static void
itk_answer_error(struct intake *k, struct client *c, const struct fdp_req *q,
    const struct chk_err *e)
{
    struct fdp_error fe = chk_tell(e);

    cnt_add(&k->env->cnt->requests_rejected, 1);
    if (e->code <= FDP_E_QUEUE_FULL && e->code > FDP_E_DEADLINE)
        fe.retry_after_ms = e->retry_ms != 0 ? e->retry_ms : adm_retry_ms(k->adm);
    cli_error(k->clients, c, q->tag, &fe);
}

static void
itk_tell_refused(struct intake *k, struct client *c, const struct fdp_req *q,
    const struct chk_err *e)
{
    log_debug("intake: session %llu request refused: code %d detail %u arg %u",
        (unsigned long long)c->id, e->code, e->detail, e->arg);
    if (e->code == FDP_E_OVERLOAD && e->detail == FDP_D_TTL)
        cnt_add(&k->env->cnt->requests_shed, 1);
    rql_refused(k->reqs->log, c, q, e->code, e->detail);
    itk_answer_error(k, c, q, e);
}

/* Rejects a request, whatever the code, and charges its user for the wasted work: the
 * more, the more bytes were copied and checked before. */
static void
itk_refuse(struct intake *k, struct client *c, struct usr *u, const struct fdp_req *q,
    uint32_t copied, const struct chk_err *e)
{
    itk_tell_refused(k, c, q, e);
    usr_refused(u, 1 + copied / ITK_INLINE, ITK_REFUSED_PER_S, k->env->now);
    c->t_refused = k->env->now;
}

/* Were too many requests of u rejected, and some of c lately? Another program of the same
 * user that sends only good requests is not affected. */
static int
itk_is_eager(const struct intake *k, const struct client *c, struct usr *u)
{
    return c->t_refused != 0 && k->env->now - c->t_refused < ITK_EAGER_FOR_NS &&
        usr_eager_ms(u, ITK_REFUSED_PER_S, k->env->now) != 0;
}

/* Rejects a request unread. */
static void
itk_refuse_eager(struct intake *k, struct client *c, struct usr *u, const struct fdp_req *q)
{
    struct chk_err e;

    (void)chk_fail(&e, FDP_E_LIMIT, 0, ITK_REFUSED_PER_S);
    e.retry_ms = usr_eager_ms(u, ITK_REFUSED_PER_S, k->env->now);
    cnt_add(&k->env->cnt->requests_unseen, 1);
    itk_answer_error(k, c, q, &e);
    /* Other users share the ring of a client that sends for another user. */
    if (u == c->usr && ++c->n_eager >= ITK_EAGER_BATCH) {
        c->n_eager = 0;
        c->t_read = k->env->now + ITK_EAGER_NS;
    }
}

/* ---- operations without items -------------------------------------------------- */

static void
itk_reply(struct intake *k, struct client *c, const struct fdp_req *q,
    const void *payload, uint32_t len)
{
    struct fdp_done done;

    if (len != 0)
        (void)cli_emit(k->clients, c, q->tag, FDP_T_REPLY, payload, len, 0);
    memset(&done, 0, sizeof(done));
    done.t_submit = done.t_start = done.t_first = done.t_end = k->env->now;
    (void)cli_emit(k->clients, c, q->tag, FDP_T_DONE, &done, sizeof(done), 0);
}

/* Rejects INFO and FILE while no model is loaded. Returns 1 if it did. */
static int
itk_has_no_model(struct intake *k, struct client *c, const struct fdp_req *q)
{
    struct chk_err e;

    if ((q->op != FDP_OP_INFO && q->op != FDP_OP_FILE) || dsp_ready(k->adm->dsp) != NULL)
        return 0;
    (void)chk_fail(&e, k->env->st == GATE_DEGRADED ? FDP_E_GPU_LOST : FDP_E_LOADING, 0, 0);
    itk_tell_refused(k, c, q, &e); /* not charged: waiting clients ask often */
    return 1;
}

static void
itk_info(struct intake *k, struct client *c, const struct fdp_req *q)
{
    const struct lnk_ready *ready = dsp_ready(k->adm->dsp);
    struct fdp_info info;

    info = ready->info;
    info.max_logprobs = itk_max_logprobs(k);
    info.max_n = FDP_MAX_N;
    info.max_stop = FDP_MAX_STOP;
    info.max_stop_len = FDP_MAX_STOP_LEN;
    info.max_stop_ids = FDP_MAX_STOP_IDS;
    info.max_bias = FDP_MAX_BIAS;
    info.max_bad = FDP_MAX_BAD;
    info.max_logprob_ids = FDP_MAX_LOGPROB_IDS;
    info.items = chk_offered(k->env->par);
    itk_reply(k, c, q, &info, sizeof(info));
}

static void
itk_cancel(struct intake *k, struct client *c, uint64_t tag)
{
    struct jreq *r = jnl_find_tag(k->reqs->jnl, c, tag);

    if (r == NULL) {
        cnt_add(&k->env->cnt->cancels_unknown, 1);
        return;
    }
    cnt_add(&k->env->cnt->cancels, 1);
    rq_cancel(k->reqs, r, FDP_E_CANCELLED, 0);
}

/* Answers the operations that need no worker. Returns 1 if it did. */
static int
itk_answer(struct intake *k, struct client *c, const struct fdp_req *q)
{
    if (itk_has_no_model(k, c, q))
        return 1;
    if (q->op == FDP_OP_CANCEL) {
        itk_cancel(k, c, q->tag);
    } else if (q->op == FDP_OP_INFO) {
        itk_info(k, c, q);
    } else if (q->op == FDP_OP_PING && !(q->flags & FDP_F_DEEP)) {
        cnt_add(&k->env->cnt->pings, 1);
        itk_reply(k, c, q, NULL, 0);
    } else {
        return 0;
    }
    return 1;
}

/* ---- from the record ----------------------------------------------------------- */

/* Checks that the items lie in the arena. */
static int
itk_check_place(const struct client *c, const struct fdp_req *q, struct chk_err *e)
{
    if (q->off % 8 != 0 || q->len % 8 != 0 || q->off > c->arena_bytes ||
        q->len > c->arena_bytes - q->off)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_BLOB,
            q->len > c->arena_bytes ? q->len : q->off);
    return 0;
}

/* The request's cost in tokens. If neither max_new nor the default limits the output,
 * only the model's length does, which few requests use up: then a guess, corrected when
 * it ends. */
static uint32_t
itk_cost(const struct fdp_req *q, uint64_t prompt, uint32_t default_max_new)
{
    int is_set = (q->set & FDP_S_MAX_NEW) != 0;
    uint64_t out = is_set ? q->max_new : default_max_new;

    if (q->op == FDP_OP_SUBMIT)
        prompt += jnl_samples(q) * (is_set || out != 0 ? out : ITK_OUTPUT_GUESS);
    return prompt > INT32_MAX ? INT32_MAX : (uint32_t)prompt;
}

/* Lower bound of the prompt's tokens, from items that are not read yet. */
static uint64_t
itk_least_prompt(const struct fdp_req *q)
{
    return q->len > ITK_NO_PROMPT ? (q->len - ITK_NO_PROMPT) / ITK_BYTES_PER_TOKEN : 1;
}

/* Checks that the queue has room for cost tokens; if not, sends what it can to the
 * workers and checks again. */
static int
itk_check_queue(struct intake *k, const struct usr *u, const struct fdp_req *q,
    uint64_t cost, struct chk_err *e)
{
    if (adm_check_queue(k->adm, u, q, cost, e) == 0)
        return 0;
    if (!dsp_is_up(k->adm->dsp))
        return 1;
    (void)rq_send(k->reqs);
    return adm_check_queue(k->adm, u, q, cost, e);
}

/* All checks that do not need the items. */
static int
itk_check_early(struct intake *k, const struct client *c, const struct usr *u,
    const struct fdp_req *q, const struct chk_limits *lim, struct chk_err *e)
{
    return itk_check_place(c, q, e) ||
        adm_check(k->adm, c, u, q->len + sizeof(struct jreq), e) ||
        (q->len > ITK_NO_PROMPT &&
            itk_check_queue(k, u, q,
                itk_cost(q, itk_least_prompt(q), lim->default_max_new), e));
}

/* ---- what a client wrote --------------------------------------------------------- */

/* Pauses c's ring: a thread reads for it (c2d.read), or for other sessions of its
 * user. */
static void
itk_wait_read(struct intake *k, struct client *c)
{
    c->usr->n_reads += c->c2d.read != NULL;
    k->n_waits++;
    c->rests |= CLI_RESTS_READ;
}

static void
itk_end_read(struct intake *k, struct client *c)
{
    if ((c->rests & CLI_RESTS_READ) == 0)
        return;
    c->usr->n_reads -= c->c2d.read != NULL;
    k->n_waits--;
    c->rests &= (uint8_t)~CLI_RESTS_READ;
}

/* Clients that wait for another session's read continue too, and try again. */
void
itk_read_done(struct intake *k, struct client *c)
{
    if (!region_is_reading(&c->c2d))
        itk_end_read(k, c);
}

static int
itk_is_here(struct client *c, uint64_t at, uint32_t n)
{
    return region_is_there(&c->c2d, at, n) || region_find(&c->c2d, at, n);
}

/* Copies n > 0 bytes of c's memory, each once. Returns 1 if some are not in memory and
 * were not read yet, or the read failed. */
static int
itk_read(struct intake *k, struct client *c, void *to, uint64_t at, uint32_t n)
{
    int rc;

    if (itk_is_here(c, at, n)) {
        fdr_copy_in(to, c->c2d.p + at, n);
        return 0;
    }
    if (c->c2d.read == NULL && c->usr->n_reads >= ITK_READS) {
        itk_wait_read(k, c);
        return 1;
    }
    rc = region_read(&c->c2d, to, at, n, k->ofl);
    if (rc == -EINPROGRESS) {
        itk_spend_time(k, c, ITK_READ_NS);
        itk_wait_read(k, c);
    } else if (rc != 0 && rc != -EAGAIN) {
        log_warn("intake: session %llu (%s, pid %d): its memory cannot be read: %s",
            (unsigned long long)c->id, c->shown, (int)c->pid, strerror(-rc));
        cli_kill(k->clients, c, FDP_E_OVERLOAD);
    }
    return rc != 0;
}

/* ---- items --------------------------------------------------------------------- */

/* The items are complete and well formed: queues the request. Returns 1 with *e set if it
 * is rejected. */
static int
itk_accept(struct intake *k, struct client *c, struct usr *u, struct fdp_req *q,
    unsigned char *blob, const struct chk_items *items, const struct chk_limits *lim,
    struct chk_err *e)
{
    uint64_t prompt = (uint64_t)items->n_prompt_ids + items->n_prior +
        items->prompt_text_bytes / ITK_BYTES_PER_TOKEN + 1;
    uint32_t cost = itk_cost(q, prompt, lim->default_max_new);
    struct rq_new n;

    if ((lim->vocab != 0 && chk_model(q, items, lim, e)) ||
        itk_check_queue(k, u, q, cost, e))
        return 1;
    if (q->op == FDP_OP_SUBMIT && !(q->set & FDP_S_SEED)) {
        q->seed = itk_draw_seed(k);
        q->set |= FDP_S_SEED;
    }
    q->off = 0;
    n.cli = c;
    n.usr = u;
    n.req = q;
    n.blob = blob;
    n.blob_bytes = q->len;
    n.cost = cost;
    n.est_prompt = (uint32_t)prompt; /* fits: items have at most 64 MiB */
    n.items = items;
    n.checked = lim->vocab != 0;
    rq_add(k->reqs, &n);
    return 0;
}

static void
itk_end_job(struct intake *k, struct client *c)
{
    struct itk_job *j = c->job;

    j->usr->bytes -= j->req.len;
    j->usr->n_jobs--;
    c->job = NULL;
    k->n_jobs--;
    free(j);
}

void
itk_drop(struct intake *k, struct client *c)
{
    itk_end_read(k, c);
    if (c->job == NULL)
        return;
    blb_free(&k->reqs->jnl->pages, c->job->blob, c->job->req.len, c->job->copied);
    itk_end_job(k, c);
}

/* All pieces have been copied. */
static void
itk_finish_job(struct intake *k, struct client *c)
{
    struct fdp_req q = c->job->req;
    struct chk_items items = c->job->scan.items;
    unsigned char *blob = c->job->blob;
    struct usr *u = c->job->usr;
    struct chk_limits lim;
    struct chk_err e;

    itk_end_job(k, c);
    /* The model and the load may have changed meanwhile. */
    itk_limits(k, c->trusted, &lim);
    if (adm_check(k->adm, c, u, q.len + sizeof(struct jreq), &e) ||
        itk_accept(k, c, u, &q, blob, &items, &lim, &e)) {
        blb_free(&k->reqs->jnl->pages, blob, q.len, q.len);
        itk_refuse(k, c, u, &q, q.len, &e);
    }
}

/* Copies the next piece. Returns 1 if the request was queued or rejected. */
static int
itk_piece(struct intake *k, struct client *c)
{
    struct itk_job *j = c->job;
    uint32_t max = itk_has_share(k, c) ? ITK_USER_PIECE : ITK_INLINE;
    uint32_t n = j->req.len - j->copied < max ? j->req.len - j->copied : max;
    struct fdp_req q = j->req;
    struct usr *u = j->usr;
    struct chk_err e;

    if (itk_read(k, c, j->blob + j->copied,
            (uint64_t)c->arena_off + j->req.off + j->copied, n))
        return 0;
    j->copied += n;
    itk_spend(k, c->usr, n);
    if (chk_scan(&j->scan, &j->req, j->blob, j->copied, &e)) {
        n = j->copied;
        itk_drop(k, c);
        itk_refuse(k, c, u, &q, n, &e);
        return 1;
    }
    if (j->copied < j->req.len)
        return 0;
    itk_finish_job(k, c);
    return 1;
}

static int
itk_begin_job(struct intake *k, struct client *c, struct usr *u, const struct fdp_req *q,
    struct chk_err *e)
{
    struct itk_job *j = calloc(1, sizeof(*j));

    if (j != NULL)
        j->blob = blb_new(&k->reqs->jnl->pages, q->len);
    if (j == NULL || j->blob == NULL) {
        free(j);
        return chk_fail(e, FDP_E_OVERLOAD, FDP_D_BLOB, q->len);
    }
    j->req = *q;
    j->usr = u;
    u->bytes += q->len;
    u->n_jobs++;
    c->job = j;
    k->n_jobs++;
    return 0;
}

/* Copies and accepts a request whose items are short and all in memory. Returns 1 with *e
 * set if it is refused, else 0. */
static int
itk_copy(struct intake *k, struct client *c, struct usr *u, struct fdp_req *q,
    const struct chk_limits *lim, struct chk_err *e)
{
    struct chk_scan scan;
    unsigned char *blob = NULL;

    if (q->len != 0) {
        blob = blb_new(&k->reqs->jnl->pages, q->len);
        if (blob == NULL)
            return chk_fail(e, FDP_E_OVERLOAD, FDP_D_BLOB, q->len);
        fdr_copy_in(blob, c->c2d.p + c->arena_off + q->off, q->len);
        itk_spend(k, c->usr, q->len);
    }
    memset(&scan, 0, sizeof(scan));
    if (chk_scan(&scan, q, blob, q->len, e) ||
        itk_accept(k, c, u, q, blob, &scan.items, lim, e)) {
        blb_free(&k->reqs->jnl->pages, blob, q->len, q->len);
        return 1;
    }
    return 0;
}

/* ---- one request of a client ------------------------------------------------------ */

/* Handles a copied record. Returns 1 if the request was answered, queued or rejected; 0:
 * its items are still being copied. */
static int
itk_request(struct intake *k, struct client *c, struct fdp_req *q)
{
    struct chk_limits lim;
    struct chk_err e;
    struct usr *u = c->usr, *payer;

    itk_limits(k, c->trusted, &lim);
    if (chk_req(q, &lim, &e))
        goto refuse;
    if (q->op != FDP_OP_CANCEL && jnl_find_tag(k->reqs->jnl, c, q->tag) != NULL) {
        (void)chk_fail(&e, FDP_E_BAD_PARAM, FDP_D_TAG, q->tag);
        goto refuse;
    }
    if (itk_answer(k, c, q))
        return 1;
    if (q->user != 0) {
        payer = usr_get(k->reqs->fair, q->user, k->env->now);
        if (payer == NULL) {
            (void)chk_fail(&e, FDP_E_OVERLOAD, FDP_D_USER, q->user);
            goto refuse;
        }
        u = payer;
    }
    if (itk_is_eager(k, c, u)) {
        itk_refuse_eager(k, c, u, q);
        return 1;
    }
    if (itk_check_early(k, c, u, q, &lim, &e))
        goto refuse;
    if (q->len > ITK_INLINE ||
        (q->len != 0 && !itk_is_here(c, (uint64_t)c->arena_off + q->off, q->len))) {
        if (itk_begin_job(k, c, u, q, &e))
            goto refuse;
        return itk_piece(k, c);
    }
    if (itk_copy(k, c, u, q, &lim, &e))
        goto refuse;
    return 1;

refuse:
    itk_refuse(k, c, u, q, 0, &e);
    return 1;
}

/* Offset in c's memory of the record after n others. */
static uint64_t
itk_slot_at(const struct client *c, uint32_t n)
{
    return (
        uint64_t)((const unsigned char *)fdr_cons_slot(&c->sq, c->sq.head + n) - c->c2d.p);
}

void
itk_touch(const struct client *c)
{
    uint64_t from, n, at = itk_slot_at(c, 0);
    struct fdp_req q __attribute__((aligned(8)));

    if (fdr_load_relaxed(c->sq.p_tail) == c->sq.head ||
        !region_is_there(&c->c2d, at, sizeof(q)))
        return;
    fdr_copy_in(&q, c->c2d.p + at, sizeof(q));
    from = c->job != NULL ? c->job->req.off + (uint64_t)c->job->copied : q.off;
    n = c->job != NULL ? c->job->req.len - c->job->copied : q.len;
    if (from > c->arena_bytes || n > c->arena_bytes - from)
        return;
    n = n < ITK_INLINE ? n : ITK_INLINE;
    from += c->arena_off;
    for (uint64_t i = from; i < from + n; i += ITK_PAGE) {
        if (region_is_there(&c->c2d, i, 1))
            (void)__atomic_load_n(&c->c2d.p[i], __ATOMIC_RELAXED);
    }
}

/* Handles the record at the head of the ring, or its next piece. */
static int
itk_next(struct intake *k, struct client *c, uint32_t at)
{
    struct fdp_req q __attribute__((aligned(8)));

    if (c->job != NULL)
        return itk_piece(k, c);
    if (itk_read(k, c, &q, itk_slot_at(c, at), sizeof(q)))
        return 0;
    itk_account(k, c->usr)->loop_records++;
    k->cost++;
    return itk_request(k, c, &q);
}

/* Called after the copies: the client may reuse n slots and their arena bytes. */
static void
itk_give_back(struct intake *k, struct client *c, uint32_t n)
{
    struct fdp_event room = { .kind = FDP_EV_ROOM };

    c->sq.head += n;
    /* pairs with the client's fdr_flag_raise() of sq_wait */
    fdr_publish(c->sq.p_head, c->sq.head);
    if (fdr_flag_check(c->p_sq_wait) != 0)
        (void)cli_emit(k->clients, c, 0, FDP_T_EVENT, &room, sizeof(room), 0);
}

void
itk_spend_time(struct intake *k, const struct client *c, uint64_t ns)
{
    if (itk_has_share(k, c))
        shr_spend(&c->usr->time, ns, USR_RATIO, k->env->now);
}

static int
itk_turn(struct intake *k, struct client *c, uint32_t max)
{
    int64_t avail;
    uint32_t n = 0;
    int work = 0;

    avail = fdr_cons_avail(&c->sq);
    if (avail < 0) {
        log_warn("intake: session %llu (%s, pid %d) has an impossible request cursor",
            (unsigned long long)c->id, c->shown, (int)c->pid);
        cli_kill(k->clients, c, FDP_E_PROTO);
        return 1;
    }
    while (n < max && n < (uint64_t)avail && c->st == CLI_OPEN && c->n_held == 0 &&
        c->t_read <= k->env->now && itk_has_budget(k, c->usr)) {
        work++;
        if (!itk_next(k, c, n))
            break;
        n++;
    }
    if (n != 0)
        itk_give_back(k, c, n);
    c->t_used = k->env->now;
    return work;
}

int
itk_poll(struct intake *k, struct client *c)
{
    struct usr *u;
    uint64_t t;
    int work;

    if (c->t_read > k->env->now || itk_until(c) > k->env->now)
        return 0;
    if (!itk_has_share(k, c))
        return itk_turn(k, c, ITK_BATCH);
    u = itk_account(k, c->usr);
    if (u->loop_ns >= ITK_USER_NS)
        return 0;
    t = clk_now_ns();
    work = itk_turn(k, c, ITK_USER_TURN);
    t = clk_now_ns() - t;
    t = t < ITK_TURN_NS ? t : ITK_TURN_NS;
    u->loop_ns += (uint32_t)t;
    itk_spend_time(k, c, t);
    return work;
}
