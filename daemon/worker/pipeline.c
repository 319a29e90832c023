/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/pipeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/common/slice.h"

#define PIP_PARK_NS   (100 * CLK_MS) /* longest sleep of a thread: the heartbeat */
#define PIP_DRAIN_NS  (5 * CLK_MS)   /* ingress's sleep while the last requests end */
#define PIP_LIMITS_NS (50 * CLK_US)  /* ingress's sleep while new limits are due */
#define PIP_STALL_NS  (200 * CLK_US) /* the engine's sleep while egress has no room */
#define PIP_SLACK_NS  CLK_US         /* timer slack of the engine thread */

struct pip_wire {
    struct que *q;
    uint32_t slots;
    struct lnk_cursor *bell; /* the reader's bell; NULL: ingress, which sleeps on
                                the link */
};

static int
pip_wire(struct pipeline *p)
{
    uint32_t n = p->cfg.ing.max_reqs, out = eng_out_slots(&p->cfg.eng);
    const struct pip_wire wires[] = {
        { &p->q_add, 2 * n + 16, p->bell_eng },   /* ingress to engine */
        { &p->q_open, 4 * n + 64, p->bell_egr },  /* ingress to egress */
        { &p->q_token, out, p->bell_egr },        /* engine to egress */
        { &p->q_stop, 2 * out + n, p->bell_eng }, /* egress to engine */
        { &p->q_freed, n + 16, NULL },            /* egress to ingress */
        { &p->q_text, n, &p->bell_enc },          /* ingress to tokenize */
        { &p->q_ids, n, NULL },                   /* tokenize to ingress */
    };

    for (size_t i = 0; i < sizeof(wires) / sizeof(wires[0]); i++)
        if (que_init(wires[i].q, wires[i].slots, wires[i].bell) != 0)
            return -ENOMEM;
    return 0;
}

static int
pip_stages(struct pipeline *p, char *err, size_t err_bytes)
{
    struct pip_cfg *c = &p->cfg;
    struct egr_cfg gc = { .lnk = c->lnk,
        .q_ing = &p->q_open,
        .q_eng = &p->q_token,
        .q_stop = &p->q_stop,
        .q_freed = &p->q_freed,
        .tok = c->tok,
        .ready = c->ready,
        .cnt = c->cnt,
        .hist = c->hist,
        .wait_room = c->wait_room,
        .arg = c->arg };
    int rc;

    c->ing.lnk = c->lnk;
    c->ing.q_eng = &p->q_add;
    c->ing.q_egr = &p->q_open;
    c->ing.q_freed = &p->q_freed;
    c->ing.q_text = &p->q_text;
    c->ing.q_ids = &p->q_ids;
    c->ing.tok = c->tok;
    c->ing.cnt = c->cnt;
    c->eng.q_in = &p->q_add;
    c->eng.q_stop = &p->q_stop;
    c->eng.q_out = &p->q_token;
    c->eng.cnt = c->cnt;
    c->eng.hist = c->hist;
    c->eng.sch.trc = c->trc;
    rc = eng_new(&c->eng, c->run, &p->eng, err, err_bytes);
    if (rc != 0)
        return rc;
    enc_init(&p->enc,
        &(struct enc_cfg){ .tok = c->tok,
            .vocab = c->ing.vocab,
            .cnt = c->cnt,
            .in = &p->q_text,
            .out = &p->q_ids });
    p->ing = ing_new(&c->ing);
    p->egr = egr_new(&gc);
    return p->ing == NULL || p->egr == NULL ? -ENOMEM : 0;
}

int
pip_new(const struct pip_cfg *cfg, struct pipeline **ret, char *err, size_t err_bytes)
{
    /* queues need a larger alignment than malloc() gives */
    struct pipeline *p = mem_aligned(_Alignof(struct pipeline), sizeof(*p));
    int rc;

    err[0] = '\0';
    if (p == NULL) {
        (void)snprintf(err, err_bytes, "out of memory for the pipeline");
        return -ENOMEM;
    }
    p->magic = PIP_MAGIC;
    p->cfg = *cfg;
    p->parent = getppid();
    p->bell_eng = &cfg->lnk->seg->bell_eng;
    p->bell_egr = &cfg->lnk->seg->bell_egr;
    rc = pip_wire(p);
    if (rc == 0)
        rc = pip_stages(p, err, err_bytes);
    if (rc != 0) {
        if (err[0] == '\0')
            (void)snprintf(err, err_bytes, "out of memory for the pipeline");
        (void)pip_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

struct pipeline *
pip_free(struct pipeline *p)
{
    if (p == NULL)
        return NULL;
    ASSERT(p->n_thread == 0);
    (void)egr_free(p->egr);
    (void)ing_free(p->ing);
    enc_fini(&p->enc);
    (void)eng_free(p->eng);
    que_fini(&p->q_ids);
    que_fini(&p->q_text);
    que_fini(&p->q_freed);
    que_fini(&p->q_stop);
    que_fini(&p->q_token);
    que_fini(&p->q_open);
    que_fini(&p->q_add);
    OBJ_FREE(p, PIP_MAGIC);
    return NULL;
}

void
pip_ready(struct pipeline *p)
{
    struct que_msg m = { .kind = QUE_READY, .n_top = QUE_NO_LOGPROB };

    ASSERT(p->n_thread == 0);
    que_push(&p->q_open, &m);
}

/* ---- threads ----------------------------------------------------------------------------- */

int
pip_stopped(const struct pipeline *p)
{
    return fdr_load_acquire(&p->stop) != 0;
}

static void
pip_stop(struct pipeline *p)
{
    fdr_publish(&p->stop, 1);
    lnk_ring(p->bell_eng);
    lnk_ring(p->bell_egr);
    lnk_ring(&p->bell_enc);
    ing_wake(p->ing);
}

int
pip_wait_reload(struct pipeline *p)
{
    while (!pip_stopped(p))
        if (ing_wait_reload(p->ing, PIP_PARK_NS))
            return 1;
    return 0;
}

/* Returns 1 to go on polling for cfg.spin_ns after the last work, 0 when it is time
 * to sleep. */
static int
pip_spin(const struct pipeline *p, uint64_t last_ns, uint64_t now_ns)
{
    if (now_ns - last_ns >= p->cfg.spin_ns)
        return 0;
    clk_relax();
    return 1;
}

static void *
pip_ingress(void *arg)
{
    struct pipeline *p = arg;
    uint64_t last = 0;

    for (;;) {
        uint64_t now = clk_now_ns();

        if (ing_poll(p->ing, now)) {
            last = now;
            continue;
        }
        if (p->ing->draining && ing_open(p->ing) == 0) {
            pip_stop(p);
            return NULL;
        }
        if (ing_reloading(p->ing)) {
            clk_sleep_ns(PIP_LIMITS_NS);
            continue;
        }
        if (pip_spin(p, last, now))
            continue;
        log_flush(0);
        if (lnk_worker_park(p->cfg.lnk, p->ing->draining ? PIP_DRAIN_NS : PIP_PARK_NS))
            last = clk_now_ns();
        if (getppid() != p->parent)
            _exit(0);
    }
}

static void *
pip_encode(void *arg)
{
    struct pipeline *p = arg;

    (void)slc_set(SLC_LONG_NS);
    while (!pip_stopped(p)) {
        int ended, work = enc_poll(&p->enc, clk_now_ns(), &ended);

        if (ended)
            lnk_wake_ingress(p->cfg.lnk);
        if (work != 0)
            continue;
        que_park(&p->bell_enc);
        if (que_recheck(&p->q_text) != 0 || pip_stopped(p))
            que_unpark(&p->bell_enc);
        else
            (void)que_sleep(&p->bell_enc, PIP_PARK_NS);
    }
    return NULL;
}

static void *
pip_engine(void *arg)
{
    struct pipeline *p = arg;
    uint64_t last = 0;

    (void)prctl(PR_SET_TIMERSLACK, PIP_SLACK_NS);
    while (!pip_stopped(p)) {
        uint64_t now = clk_now_ns();

        if (eng_poll(p->eng, now)) {
            last = now;
            continue;
        }
        if (eng_wait(p->eng))
            continue;
        if (pip_spin(p, last, now))
            continue;
        que_park(p->bell_eng);
        if (eng_pending(p->eng) || pip_stopped(p))
            que_unpark(p->bell_eng);
        else if (que_sleep(p->bell_eng, eng_stalled(p->eng) ? PIP_STALL_NS : PIP_PARK_NS))
            last = clk_now_ns();
    }
    return NULL;
}

static void *
pip_egress(void *arg)
{
    struct pipeline *p = arg;
    uint64_t last = 0;

    while (!pip_stopped(p)) {
        uint64_t now = clk_now_ns();

        if (egr_poll(p->egr, now)) {
            last = now;
            continue;
        }
        if (pip_spin(p, last, now))
            continue;
        que_park(p->bell_egr);
        if (egr_pending(p->egr) || pip_stopped(p))
            que_unpark(p->bell_egr);
        else if (que_sleep(p->bell_egr, PIP_PARK_NS))
            last = clk_now_ns();
    }
    return NULL;
}

static int
pip_thread(struct pipeline *p, pthread_t *th, const char *name, void *(*fn)(void *))
{
    int rc = pthread_create(th, NULL, fn, p);

    if (rc != 0)
        return -rc;
    (void)pthread_setname_np(*th, name);
    p->n_thread++;
    return 0;
}

int
pip_start(struct pipeline *p)
{
    int rc = pip_thread(p, &p->th_egr, "fdd-egress", pip_egress);

    if (rc == 0)
        rc = pip_thread(p, &p->th_eng, "fdd-engine", pip_engine);
    if (rc == 0)
        rc = pip_thread(p, &p->th_enc, "fdd-tokenize", pip_encode);
    if (rc == 0)
        rc = pip_thread(p, &p->th_ing, "fdd-ingress", pip_ingress);
    if (rc != 0) { /* the caller frees what those that were started use */
        pip_stop(p);
        pip_join(p);
    }
    return rc;
}

void
pip_join(struct pipeline *p)
{
    /* in reverse of the order in which they were started */
    if (p->n_thread > 3)
        (void)pthread_join(p->th_ing, NULL);
    if (p->n_thread > 2)
        (void)pthread_join(p->th_enc, NULL);
    if (p->n_thread > 1)
        (void)pthread_join(p->th_eng, NULL);
    if (p->n_thread > 0)
        (void)pthread_join(p->th_egr, NULL);
    p->n_thread = 0;
}

int
pip_poll(struct pipeline *p, uint64_t now_ns)
{
    int work = ing_poll(p->ing, now_ns), ended;

    work |= enc_poll(&p->enc, now_ns, &ended);
    work |= eng_poll(p->eng, now_ns);
    return work | egr_poll(p->egr, now_ns);
}

void
pip_ring_engine(struct pipeline *p)
{
    lnk_ring(p->bell_eng);
}
