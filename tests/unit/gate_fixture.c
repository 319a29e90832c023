/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/gate_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "daemon/common/obj.h"

/* Uses ASSERT() instead of cmocka's macros: the fuzz target and the
 * benchmark use this file too. */

static struct fix *fix_now; /* the current fixture, as sup.spawn has no argument for it */

void
fix_use(struct fix *f, uint32_t group)
{
    struct fix_side *from = &f->side[f->at], *to = &f->side[group];

    ASSERT(group < FIX_GROUPS);
    from->w = f->w;
    from->seg = f->seg;
    from->worker_admin_fd = f->worker_admin_fd;
    from->n_part = f->n_part;
    memcpy(from->part, f->part, sizeof(f->part));
    f->w = to->w;
    f->seg = to->seg;
    f->worker_admin_fd = to->worker_admin_fd;
    f->n_part = to->n_part;
    memcpy(f->part, to->part, sizeof(f->part));
    f->at = group;
}

static int
fix_spawn(struct sup *s, struct wrk *w, int worker_admin_fd)
{
    struct fix *f = fix_now;

    (void)s;
    if (f->at != (uint32_t)w->idx)
        fix_use(f, (uint32_t)w->idx);
    if (f->seg != NULL)
        lnk_leave(f->seg);
    if (f->worker_admin_fd >= 0)
        (void)close(f->worker_admin_fd);
    ASSERT_Z(lnk_join(w->link_fd, &f->seg));
    lnk_init_worker(&f->w, f->seg, w->efd);
    f->worker_admin_fd = dup(worker_admin_fd);
    f->n_spawn++;
    return 0; /* pid 0: no process */
}

void
fix_open(struct fix *f, const char *const *sets)
{
    struct par_set *ps = par_new();
    char err[512];

    memset(f, 0, sizeof(*f));
    fix_now = f;
    f->worker_admin_fd = -1;
    for (uint32_t i = 0; i < FIX_GROUPS; i++)
        f->side[i].worker_admin_fd = -1;
    ASSERT(ps != NULL);
    ASSERT_Z(par_set_text(ps, "sched.reserved_seqs", "0", PAR_FROM_SET, err, sizeof(err)));
    for (; sets != NULL && *sets != NULL; sets++) {
        const char *eq = strchr(*sets, '=');
        char name[128];

        (void)snprintf(name, sizeof(name), "%.*s", (int)(eq - *sets), *sets);
        ASSERT_Z(par_set_text(ps, name, eq + 1, PAR_FROM_SET, err, sizeof(err)));
    }
    log_init("test", getenv("FDD_TEST_LOG") != NULL ? "trace" : "error");
    f->now = 1000 * 1000000000ull;
    f->g = gate_new(ps, f->now);
    ASSERT(f->g != NULL);
    f->g->sup.spawn = fix_spawn;
    ASSERT_Z(gate_open(f->g));
    for (uint32_t i = 0; i < f->g->n_wrk; i++)
        ASSERT_Z(sup_start(&f->g->sup, &f->g->wrk[i]));
    if (f->at != 0)
        fix_use(f, 0);
}

static void
fix_drop_part(struct fix *f, uint32_t i)
{
    free(f->part[i].blob);
    memmove(&f->part[i], &f->part[i + 1], (--f->n_part - i) * sizeof(f->part[0]));
}

void
fix_close(struct fix *f)
{
    uint32_t n = f->g->n_wrk;

    gate_check(f->g);
    f->g = gate_free(f->g);
    for (uint32_t i = 0; i < n; i++) {
        if (n > 1)
            fix_use(f, i);
        while (f->n_part != 0)
            fix_drop_part(f, 0);
        lnk_leave(f->seg);
        f->seg = NULL;
        if (f->worker_admin_fd >= 0)
            (void)close(f->worker_admin_fd);
    }
}

void
fix_listen(struct fix *f, int backlog, struct sockaddr_un *ret, socklen_t *ret_len)
{
    int l = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

    memset(ret, 0, sizeof(*ret));
    ret->sun_family = AF_UNIX;
    *ret_len = sizeof(*ret);
    ASSERT(bind(l, (struct sockaddr *)ret, sizeof(sa_family_t)) == 0);
    ASSERT(getsockname(l, (struct sockaddr *)ret, ret_len) == 0);
    ASSERT(listen(l, backlog) == 0);
    f->g->rt.listen_fd = l;
    ASSERT(wch_add(&f->g->watch, l, LSN_EVENTS, WCH_LISTEN, NULL) == 0);
}

void
fix_step(struct fix *f, uint64_t ms)
{
    int rounds = 0;

    f->now += ms * 1000000u;
    if (ms >= 2)
        f->g->t_tick = 0; /* a tick is due */
    do {
        f->g->env.now = f->now;
        (void)gate_events(f->g, 0);
        ASSERT(++rounds < 100000);
    } while (gate_poll(f->g, f->now) != 0 ||
        (f->g->life.exit_code < 0 && wch_has_more(&f->g->watch)));
    gate_check(f->g);
}

void
fix_ready(struct fix *f)
{
    fix_ready_as(f, FIX_VOCAB, FIX_MAX_LEN);
}

void
fix_ready_as(struct fix *f, uint32_t vocab, uint32_t max_len)
{
    struct lnk_ready *rd = lnk_claim(&f->w, 0, LNK_T_READY, 0, 0, sizeof(*rd));

    ASSERT(rd != NULL);
    memset(rd, 0, sizeof(*rd));
    rd->credits = FIX_CREDITS;
    rd->info.vocab = vocab;
    rd->info.max_model_len = max_len;
    rd->info.has_tokenizer = 1;
    rd->info.max_logprobs = 20;
    rd->info.block_size = 64;
    (void)snprintf(rd->info.model_name, sizeof(rd->info.model_name), "fake");
    f->seg->w.phase = LNK_PH_READY;
    lnk_flush(&f->w);
    fix_step(f, 2);
}

const struct fdp_rec *
fix_wpeek(struct fix *f)
{
    return lnk_peek(&f->w);
}

void
fix_wnext(struct fix *f, const struct fdp_rec *r)
{
    lnk_next(&f->w, r);
}

void
fix_wsend(struct fix *f, uint64_t id, unsigned type, const void *p, uint32_t len)
{
    void *to = lnk_claim(&f->w, id, type, 0, 0, len);

    ASSERT(to != NULL);
    memcpy(to, p, len);
    lnk_flush(&f->w);
}

void
fix_wdone(struct fix *f, uint64_t id)
{
    struct fdp_done d;

    memset(&d, 0, sizeof(d));
    fix_wsend(f, id, FDP_T_DONE, &d, sizeof(d));
}

void
fix_waccept(struct fix *f, uint64_t id, uint32_t n_prompt)
{
    struct fdp_accepted a = { n_prompt, 0, 0 };

    fix_wsend(f, id, FDP_T_ACCEPTED, &a, sizeof(a));
}

void
fix_wtokens(struct fix *f, uint64_t id, uint32_t n)
{
    static const uint32_t ids[FDP_REC_MAX_LEN / 4];

    while (n != 0) {
        uint32_t k = n < FDP_REC_MAX_LEN / 4 ? n : FDP_REC_MAX_LEN / 4;

        fix_wsend(f, id, FDP_T_IDS, ids, k * 4);
        n -= k;
    }
}

void
fix_werror(struct fix *f, uint64_t id, int code)
{
    struct fdp_error e = { .code = code };

    fix_wsend(f, id, FDP_T_ERROR, &e, sizeof(e));
}

static void
fix_take_submit(struct fix *f, const struct fdp_rec *r)
{
    struct fix_part *p = &f->part[f->n_part++];

    ASSERT(f->n_part <= FIX_PARTS && r->len == sizeof(p->sub));
    p->id = r->tag;
    p->got = 0;
    memcpy(&p->sub, r + 1, sizeof(p->sub));
    p->blob = malloc(p->sub.req.len + 1u);
    ASSERT(p->blob != NULL);
}

static void
fix_take_blob(struct fix *f, const struct fdp_rec *r)
{
    for (uint32_t i = 0; i < f->n_part; i++) {
        struct fix_part *p = &f->part[i];

        if (p->id != r->tag)
            continue;
        ASSERT(r->len <= p->sub.req.len - p->got);
        memcpy(p->blob + p->got, r + 1, r->len);
        p->got += r->len;
        return;
    }
    ASSERT(0); /* a piece of an unknown request */
}

/* Takes records of requests up to another kind of record. Returns the index of the first
 * complete request, or FIX_PARTS if there is none. */
static uint32_t
fix_take_records(struct fix *f)
{
    const struct fdp_rec *r;

    for (;;) {
        for (uint32_t i = 0; i < f->n_part; i++) {
            if (f->part[i].got == f->part[i].sub.req.len)
                return i;
        }
        r = fix_wpeek(f);
        if (r != NULL && r->type == LNK_T_SUBMIT)
            fix_take_submit(f, r);
        else if (r != NULL && r->type == LNK_T_BLOB)
            fix_take_blob(f, r);
        else
            return FIX_PARTS;
        fix_wnext(f, r);
    }
}

uint64_t
fix_take(struct fix *f, struct lnk_submit *ret, unsigned char *blob, uint32_t *ret_bytes)
{
    uint32_t i = fix_take_records(f);
    struct fix_part *p = &f->part[i];
    uint64_t id;

    /* Long items come over several iterations. */
    while (i == FIX_PARTS && f->n_part != 0 && fix_wpeek(f) == NULL) {
        fix_step(f, 0);
        if (fix_wpeek(f) == NULL)
            break;
        i = fix_take_records(f);
        p = &f->part[i];
    }
    if (i == FIX_PARTS)
        return 0;
    id = p->id;
    if (blob != NULL)
        memcpy(blob, p->blob, p->got);
    f->seg->started[p->sub.place] = id;
    if (ret != NULL)
        *ret = p->sub;
    if (ret_bytes != NULL)
        *ret_bytes = p->got;
    fix_drop_part(f, i);
    return id;
}

void
fix_unbegin(struct fix *f, const struct lnk_submit *sub)
{
    f->seg->started[sub->place] = 0;
}

uint64_t
fix_take_cancel(struct fix *f, int *ret_code)
{
    const struct fdp_rec *r = fix_wpeek(f);
    uint64_t id;

    if (r == NULL || r->type != LNK_T_CANCEL)
        return 0;
    id = r->tag;
    for (uint32_t i = 0; i < f->n_part; i++) {
        if (f->part[i].id == id)
            fix_drop_part(f, i--);
    }
    if (ret_code != NULL)
        *ret_code = ((const struct lnk_cancel *)(const void *)(r + 1))->code;
    fix_wnext(f, r);
    return id;
}

void
fix_die(struct fix *f, int status)
{
    f->g->wrk[f->at].dead = 1;
    f->g->wrk[f->at].status = status;
    fix_step(f, 2);
}

/* ---- client -------------------------------------------------------------- */

void
fcl_hello(struct fdp_hello *h)
{
    memset(h, 0, sizeof(*h));
    h->magic = FDP_MAGIC;
    h->major = FDP_MAJOR;
    h->minor = FDP_MINOR;
    h->size = sizeof(*h);
    (void)snprintf(h->name, sizeof(h->name), "test");
}

static int
fcl_recv_welcome(struct fcl *c)
{
    char ctl[CMSG_SPACE(sizeof(int) * FDP_N_FDS)] __attribute__((aligned(8)));
    struct iovec iov = { &c->w, sizeof(c->w) };
    struct msghdr m;
    struct cmsghdr *cm;
    int fds[FDP_N_FDS];

    memset(&m, 0, sizeof(m));
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = ctl;
    m.msg_controllen = sizeof(ctl);
    if (recvmsg(c->fd, &m, MSG_DONTWAIT) != (ssize_t)sizeof(c->w))
        return FDP_E_DISCONNECTED;
    cm = CMSG_FIRSTHDR(&m);
    if (c->w.err != FDP_OK) {
        ASSERT(cm == NULL);
        return c->w.err;
    }
    ASSERT(cm != NULL && cm->cmsg_len == CMSG_LEN(sizeof(fds)));
    memcpy(fds, CMSG_DATA(cm), sizeof(fds));
    c->c2d_fd = fds[0];
    c->d2c_fd = fds[1];
    c->bell = fds[2];
    return FDP_OK;
}

int
fcl_connect(struct fix *f, struct fcl *c, uid_t uid, const struct fdp_hello *hello)
{
    struct fdp_hello h;
    int sv[2];
    int rc;

    memset(c, 0, sizeof(*c));
    c->fd = c->bell = c->c2d_fd = c->d2c_fd = -1;
    fcl_hello(&h);
    if (hello != NULL)
        h = *hello;
    ASSERT_Z(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv));
    c->fd = sv[1];
    if (ses_adopt(&f->g->ses, sv[0], 100, uid, uid) == 0) {
        ASSERT(send(c->fd, &h, sizeof(h), MSG_NOSIGNAL) == (ssize_t)sizeof(h));
        fix_step(f, 0);
    }
    rc = fcl_recv_welcome(c);
    for (int ms = 0; ms < 5000 && f->g->ses.n_opens != 0; ms++) {
        clk_sleep_ns(CLK_MS);
        ses_off_done(&f->g->ses);
        fix_step(f, 0);
        rc = fcl_recv_welcome(c);
    }
    if (rc != FDP_OK) {
        fcl_close(c);
        return rc;
    }
    c->c2d = mmap(NULL, c->w.c2d_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->c2d_fd, 0);
    c->d2c = mmap(NULL, c->w.d2c_bytes, PROT_READ, MAP_SHARED, c->d2c_fd, 0);
    ASSERT(c->c2d != MAP_FAILED && c->d2c != MAP_FAILED);
    fdr_prod_init(&c->sq, c->c2d + c->w.sq_off,
        (uint32_t *)(void *)(c->c2d + FDP_C2D_SQ_TAIL),
        (uint32_t *)(void *)(c->d2c + FDP_D2C_SQ_HEAD), c->w.sq_slots, 128);
    fdr_cons_init(&c->cq, c->d2c + c->w.cq_off,
        (uint32_t *)(void *)(c->d2c + FDP_D2C_CQ_TAIL),
        (uint32_t *)(void *)(c->c2d + FDP_C2D_CQ_HEAD), c->w.cq_slots, FDP_SLOT);
    return FDP_OK;
}

void
fcl_ring(struct fcl *c)
{
    uint64_t one = 1;

    ASSERT(write(c->bell, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

int
fcl_open(struct fix *f, struct fcl *c, uid_t uid, const struct fdp_hello *hello)
{
    int rc = fcl_connect(f, c, uid, hello);

    if (rc == FDP_OK) {
        fcl_ring(c);
        (void)gate_events(f->g, 0); /* without a poll, so that the order of
                                     * turns does not change */
    }
    return rc;
}

void
fcl_close(struct fcl *c)
{
    int fds[4] = { c->fd, c->bell, c->c2d_fd, c->d2c_fd };

    if (c->c2d != NULL)
        (void)munmap(c->c2d, c->w.c2d_bytes);
    if (c->d2c != NULL)
        (void)munmap(c->d2c, c->w.d2c_bytes);
    for (int i = 0; i < 4; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
    }
    memset(c, 0, sizeof(*c));
    c->fd = c->bell = c->c2d_fd = c->d2c_fd = -1;
}

void
fcl_req(struct fdp_req *q, unsigned op, uint64_t tag)
{
    memset(q, 0, sizeof(*q));
    q->op = (uint16_t)op;
    q->tag = tag;
    q->n = 1;
    q->max_new = 16;
    q->top_p = 1.0f;
    q->repetition_penalty = 1.0f;
    q->set = FDP_S_MAX_NEW | FDP_S_TEMPERATURE | FDP_S_TOP_P | FDP_S_TOP_K | FDP_S_MIN_P |
        FDP_S_PRESENCE | FDP_S_FREQUENCY | FDP_S_REPETITION;
}

uint32_t
fcl_item(unsigned char *buf, uint32_t at, unsigned type, const void *p, uint32_t len)
{
    struct fdp_item it = { .type = (uint16_t)type, .len = len };

    memset(buf + at, 0, FDP_ITEM_SPAN(len));
    memcpy(buf + at, &it, sizeof(it));
    if (len != 0)
        memcpy(buf + at + sizeof(it), p, len);
    return at + (uint32_t)FDP_ITEM_SPAN(len);
}

void
fcl_send(struct fcl *c, struct fdp_req *q, const void *blob, uint32_t len, uint32_t off)
{
    ASSERT(fdr_prod_room(&c->sq, 1) >= 1);
    if (len != 0) {
        ASSERT(off <= c->w.arena_bytes && len <= c->w.arena_bytes - off);
        memcpy(c->c2d + c->w.arena_off + off, blob, len);
        q->off = off;
        q->len = len;
    }
    memcpy(fdr_prod_slot(&c->sq, c->sq.tail), q, sizeof(*q));
    c->sq.tail++;
    fdr_prod_commit(&c->sq);
}

void
fcl_submit(struct fcl *c, uint64_t tag, uint32_t n_ids, uint32_t max_new)
{
    unsigned char *buf = calloc(1, FDP_ITEM_SPAN(n_ids * 4));
    struct fdp_req q;

    fcl_req(&q, FDP_OP_SUBMIT, tag);
    q.max_new = max_new;
    ASSERT(buf != NULL);
    *(struct fdp_item *)(void *)buf =
        (struct fdp_item){ .type = FDP_IT_PROMPT_IDS, .len = n_ids * 4 };
    for (uint32_t i = 0; i < n_ids; i++)
        ((uint32_t *)(void *)(buf + 8))[i] = 1;
    fcl_send(c, &q, buf, (uint32_t)FDP_ITEM_SPAN(n_ids * 4), 0);
    free(buf);
}

void
fcl_submit_for(struct fcl *c, uint64_t tag, unsigned n, uint32_t max_new, uint64_t user)
{
    unsigned char b[16] __attribute__((aligned(8)));
    const uint32_t one = 1;
    struct fdp_req q;

    fcl_req(&q, FDP_OP_SUBMIT, tag);
    q.n = (uint16_t)n;
    q.max_new = max_new;
    q.user = user;
    fcl_send(c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), 0);
}

void
fcl_cancel(struct fcl *c, uint64_t tag)
{
    struct fdp_req q;

    memset(&q, 0, sizeof(q));
    q.op = FDP_OP_CANCEL;
    q.tag = tag;
    fcl_send(c, &q, NULL, 0, 0);
}

void
fcl_ping(struct fcl *c, uint64_t tag)
{
    struct fdp_req q;

    fcl_req(&q, FDP_OP_PING, tag);
    fcl_send(c, &q, NULL, 0, 0);
}

int
fcl_recv(struct fcl *c, struct frec *ret)
{
    while (fdr_cons_avail(&c->cq) > 0) {
        const struct fdp_rec *r = fdr_cons_slot(&c->cq, c->cq.head);
        int pad = r->type == FDP_T_PAD;

        ASSERT(r->n_slot > 0 && r->n_slot <= c->w.cq_slots);
        if (!pad) {
            ASSERT(r->len <= FDP_REC_MAX_LEN);
            ASSERT(r->n_slot == FDP_REC_SLOTS(r->len));
            ret->h = *r;
            memcpy(ret->data, r + 1, r->len);
        }
        fdr_cons_release(&c->cq, r->n_slot);
        if (!pad)
            return 1;
    }
    return 0;
}

void
fcl_want_error(struct fcl *c, uint64_t tag, int code, uint32_t detail)
{
    struct fdp_error e;
    struct frec r;

    ASSERT(fcl_recv(c, &r));
    ASSERT(r.h.type == FDP_T_ERROR && r.h.len == sizeof(e));
    memcpy(&e, r.data, sizeof(e));
    if (e.code != code || r.h.tag != tag || e.detail != detail)
        pan_panic("error for tag %llu: code %d detail %u instead of %d %u",
            (unsigned long long)r.h.tag, e.code, e.detail, code, detail);
}

uint32_t
fcl_state(const struct fcl *c)
{
    return fdr_load_acquire((const uint32_t *)(const void *)(c->d2c + FDP_D2C_STATE));
}

uint32_t
fcl_reason(const struct fcl *c)
{
    return fdr_load_acquire((const uint32_t *)(const void *)(c->d2c + FDP_D2C_STATE) + 1);
}

/* ---- load ---------------------------------------------------------------- */

void
fcl_ask(struct fcl *c, struct fask a)
{
    unsigned char b[16] __attribute__((aligned(8)));
    const uint32_t one = 1;
    struct fdp_req q;

    fcl_req(&q, FDP_OP_SUBMIT, a.tag);
    q.max_new = a.max_new;
    q.ttl_queue_ms = a.ttl_queue_ms;
    q.ttl_total_ms = a.ttl_total_ms;
    q.user = a.user;
    fcl_send(c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), 0);
}

void
fslow_take(struct fix *f, struct fslow *w)
{
    struct lnk_submit sub;
    uint64_t id;

    while ((id = fix_take(f, &sub, NULL, NULL)) != 0) {
        ASSERT(w->n < FSL_ROWS);
        w->row[w->n].id = id;
        w->row[w->n].tag = sub.req.tag;
        w->row[w->n++].left = sub.req.max_new;
        fix_waccept(f, id, 1);
    }
}

void
fslow_work(struct fix *f, struct fslow *w, double rate, uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 10) {
        fslow_take(f, w);
        w->budget += rate / 100;
        while (w->n != 0 && w->budget >= 1) {
            uint32_t k = w->row[0].left;

            if (w->budget < k)
                k = (uint32_t)w->budget;

            fix_wtokens(f, w->row[0].id, k);
            w->budget -= k;
            w->row[0].left -= k;
            if (w->row[0].left == 0) {
                fix_wdone(f, w->row[0].id);
                memmove(w->row, w->row + 1, --w->n * sizeof(w->row[0]));
                fix_step(f, 0);
                fslow_take(f, w);
            }
        }
        fix_step(f, 10);
    }
}

struct fdp_error
fcl_error(struct fcl *c, uint64_t tag)
{
    struct fdp_error e = { 0 };
    struct frec r;

    while (fcl_recv(c, &r)) {
        if (r.h.type != FDP_T_ERROR || r.h.tag != tag)
            continue;
        memcpy(&e, r.data, sizeof(e));
        return e;
    }
    pan_panic("no error for tag %llu", (unsigned long long)tag);
}

int
fcl_errors(struct fcl *c, uint64_t tag)
{
    struct frec r;
    int n = 0;

    while (fcl_recv(c, &r))
        n += r.h.type == FDP_T_ERROR && r.h.tag == tag;
    return n;
}

json_t *
fix_ctl(struct fix *f, int perm, const char *line)
{
    json_t *rq = json_loads(line, 0, NULL), *r;

    r = ctl_execute(&f->g->ctl, NULL, rq, perm, f->now);
    json_decref(rq);
    if (json_is_string(r)) { /* a JSON object as text */
        rq = json_loads(json_string_value(r), JSON_REJECT_DUPLICATES, NULL);
        json_decref(r);
        r = rq;
    }
    ASSERT(json_is_object(r));
    return r;
}
