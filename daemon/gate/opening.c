/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/opening.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/gate/admit.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/memfile.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/request.h"
#include "daemon/gate/session.h"
#include "daemon/gate/watch.h"
#include "libclient/fdproto.h"

#define OPN_CQ_MIN 128u /* twice the longest record: room for it and its padding */

_Static_assert(OPN_CQ_MIN >= 2 * FDP_REC_MAX_SLOTS, "a longest record always fits");

struct opening {
    STAILQ_ENTRY(opening) next; /* in sessions.unwanted once its session has ended */
    struct ofl_ret ret;
    struct fdp_welcome w;
    struct memfiles f;
};

/* ---- the welcome ---------------------------------------------------------- */

static uint32_t
opn_pow2(uint32_t want, uint32_t lo, uint32_t hi)
{
    uint32_t v = lo;

    while (v < want && v < hi)
        v *= 2;
    return v;
}

/* Chooses the geometry: the client's hints, within the limits. */
static void
opn_geometry(const struct sessions *t, const struct fdp_hello *h, struct fdp_welcome *w)
{
    uint64_t max = (uint64_t)t->env->par->ipc_max_session_bytes;
    uint32_t sq = h->sq_slots != 0 ? h->sq_slots : (uint32_t)t->env->par->ipc_sq_slots;
    uint32_t cq = h->cq_slots != 0 ? h->cq_slots : (uint32_t)t->env->par->ipc_cq_slots;
    uint64_t arena =
        h->arena_bytes != 0 ? h->arena_bytes : (uint64_t)t->env->par->ipc_arena_bytes;
    uint64_t rest;

    w->sq_slots = opn_pow2(sq, 16, 65536);
    w->cq_slots = opn_pow2(cq, OPN_CQ_MIN, 1048576);
    /* The sizes asked for shrink until they fit; the smallest rings take 11 KiB, and
     * max_session_bytes is at least 1 MiB. */
    while ((uint64_t)w->cq_slots * FDP_SLOT > max / 4 && w->cq_slots > OPN_CQ_MIN)
        w->cq_slots /= 2;
    while ((uint64_t)w->sq_slots * sizeof(struct fdp_req) > max / 4 && w->sq_slots > 16)
        w->sq_slots /= 2;
    w->sq_off = FDP_C2D_SLOTS;
    w->cq_off = FDP_D2C_SLOTS;
    w->arena_off = w->sq_off + w->sq_slots * (uint32_t)sizeof(struct fdp_req);
    w->d2c_bytes = (w->cq_off + w->cq_slots * FDP_SLOT + 4095) & ~4095u;
    rest = max - w->d2c_bytes - w->arena_off;
    if (arena > rest)
        arena = rest;
    w->c2d_bytes = ((uint32_t)arena + w->arena_off + 4095) & ~4095u;
    if ((uint64_t)w->c2d_bytes + w->d2c_bytes > max)
        w->c2d_bytes -= 4096;
    w->arena_bytes = w->c2d_bytes - w->arena_off;
}

static int
opn_send(int fd, const struct fdp_welcome *w, const int fds[FDP_N_FDS])
{
    char ctl[CMSG_SPACE(sizeof(int) * FDP_N_FDS)] __attribute__((aligned(8)));
    struct iovec iov = { (void *)(uintptr_t)w, sizeof(*w) };
    struct msghdr m;
    struct cmsghdr *c;

    memset(&m, 0, sizeof(m));
    memset(ctl, 0, sizeof(ctl));
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = ctl;
    m.msg_controllen = sizeof(ctl);
    c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * FDP_N_FDS);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * FDP_N_FDS);
    return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*w) ? 0 : -errno;
}

static void
opn_fill_welcome(const struct sessions *t, const struct ses *s, const struct fdp_hello *h,
    struct fdp_welcome *w)
{
    w->magic = FDP_MAGIC;
    w->major = FDP_MAJOR;
    w->minor = FDP_MINOR;
    w->size = sizeof(*w);
    w->feat_on = (h->feat_want | h->feat_need) & FDP_FEAT_ALL;
    w->boot_id[0] = t->env->boot_id[0];
    w->boot_id[1] = t->env->boot_id[1];
    w->session_id = s->c.id;
    opn_geometry(t, h, w);
    w->max_inflight = s->c.trusted ? t->reqs->jnl->n_max
                                   : (uint32_t)t->env->par->sched_max_inflight_per_client;
    if (w->max_inflight > t->reqs->jnl->n_max)
        w->max_inflight = t->reqs->jnl->n_max;
}

/* Fills in the model as the worker reports it now. */
static void
opn_fill_model(const struct sessions *t, struct fdp_welcome *w)
{
    const struct lnk_ready *ready = dsp_ready(t->adm->dsp);

    if (ready == NULL)
        return;
    w->max_model_len = ready->info.max_model_len;
    w->vocab = ready->info.vocab;
    memcpy(w->model_digest, ready->info.model_digest, sizeof(w->model_digest));
    memcpy(w->model_name, ready->info.model_name, sizeof(w->model_name));
    w->model_name[sizeof(w->model_name) - 1] = '\0';
}

/* ---- the loop's side ------------------------------------------------------------ */

/* Frees o and closes the descriptors it still has. */
static void
opn_free(struct sessions *t, struct opening *o)
{
    if (o->ret.rc == 0) {
        (void)ofl_close(t->ofl, o->f.c2d.fd);
        (void)ofl_close(t->ofl, o->f.c2d.share);
        (void)ofl_close(t->ofl, o->f.d2c.fd);
        (void)ofl_close(t->ofl, o->f.d2c.share);
        (void)ofl_close(t->ofl, o->f.bell);
    }
    free(o);
}

int
opn_begin(struct sessions *t, struct ses *s, const struct fdp_hello *h)
{
    struct opening *o = calloc(1, sizeof(*o));
    int rc;

    if (o == NULL)
        return -ENOMEM;
    opn_fill_welcome(t, s, h, &o->w);
    o->f.c2d = (struct memfile){ .kind = MEMFILE_THEIRS, .bytes = o->w.c2d_bytes };
    o->f.d2c = (struct memfile){ .kind = MEMFILE_OURS, .bytes = o->w.d2c_bytes };
    rc = ofl_make(t->ofl, &o->f, &o->ret);
    if (rc != 0) {
        free(o);
        return rc;
    }
    s->opening = o;
    t->n_opens++;
    return 0;
}

static void
opn_lay_out(const struct sessions *t, struct ses *s, const struct fdp_welcome *w)
{
    struct fdp_state *st = (struct fdp_state *)(void *)(s->c.d2c.p + FDP_D2C_STATE);

    s->c.growing = 1;
    s->c.arena_off = w->arena_off;
    s->c.arena_bytes = w->arena_bytes;
    s->c.p_cq_wait = (uint32_t *)(void *)(s->c.c2d.p + FDP_C2D_CQ_WAIT);
    s->c.p_sq_wait = (uint32_t *)(void *)(s->c.c2d.p + FDP_C2D_SQ_WAIT);
    s->p_need_wakeup = (uint32_t *)(void *)(s->c.d2c.p + FDP_D2C_SQ_NEED_WAKEUP);
    fdr_cons_init(&s->c.sq, s->c.c2d.p + w->sq_off,
        (uint32_t *)(void *)(s->c.c2d.p + FDP_C2D_SQ_TAIL),
        (uint32_t *)(void *)(s->c.d2c.p + FDP_D2C_SQ_HEAD), w->sq_slots,
        sizeof(struct fdp_req));
    fdr_prod_init(&s->c.cq, s->c.d2c.p + w->cq_off,
        (uint32_t *)(void *)(s->c.d2c.p + FDP_D2C_CQ_TAIL),
        (uint32_t *)(void *)(s->c.c2d.p + FDP_C2D_CQ_HEAD), w->cq_slots, FDP_SLOT);
    fdr_store_relaxed(s->p_need_wakeup, 1);
    st->boot_id[0] = t->env->boot_id[0];
    st->boot_id[1] = t->env->boot_id[1];
    fdr_store_release(&st->state, t->env->st == GATE_RUNNING ? FDP_ST_RUN : FDP_ST_DRAIN);
}

/* Maps the regions and sends the welcome. Descriptors that it takes over are no longer
 * open in *o. */
static int
opn_map(struct sessions *t, struct ses *s, struct opening *o)
{
    int fds[FDP_N_FDS] = { o->f.c2d.share, o->f.d2c.share, o->f.bell };
    int rc = region_map(&s->c.c2d, &o->f.c2d);

    if (rc == 0)
        rc = region_map(&s->c.d2c, &o->f.d2c);
    /* Edge-triggered and never read: a client that misuses the shared descriptor harms
     * only itself. */
    if (rc == 0)
        rc = wch_add(t->watch, o->f.bell, SES_BELL_EVENTS, WCH_BELL, s);
    if (rc != 0)
        return rc;
    s->doorbell = o->f.bell;
    o->f.bell = -1;
    opn_lay_out(t, s, &o->w);
    opn_fill_model(t, &o->w);
    return opn_send(s->c.fd, &o->w, fds);
}

int
opn_end(struct sessions *t, struct ses *s)
{
    struct opening *o = s->opening;
    int rc = ofl_rc(&o->ret);

    if (rc == -EINPROGRESS)
        return rc;
    s->opening = NULL;
    t->n_opens--;
    if (rc == 0)
        rc = opn_map(t, s, o);
    opn_free(t, o);
    return rc;
}

void
opn_drop(struct sessions *t, struct ses *s)
{
    if (s->opening == NULL)
        return;
    STAILQ_INSERT_TAIL(&t->unwanted, s->opening, next);
    s->opening = NULL;
    t->n_opens--;
    opn_sweep(t);
}

void
opn_sweep(struct sessions *t)
{
    struct opening *o;

    while ((o = STAILQ_FIRST(&t->unwanted)) != NULL && ofl_rc(&o->ret) != -EINPROGRESS) {
        STAILQ_REMOVE_HEAD(&t->unwanted, next);
        opn_free(t, o);
    }
}
