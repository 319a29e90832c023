/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A gate with a worker that violates the protocol on the link, in its segment and on its
 * admin socket; two honest clients and an administrator run at the same time.
 *
 * Input: commands, each an opcode byte with its arguments (one_command()).
 *
 * All structures are consistent after each command. A client gets only records and text
 * of its own requests, and no record after a terminal one. Every request has ended once
 * when the worker has died and an honest one has replaced it.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/obj.h"
#include "tests/fuzz/take.h"
#include "tests/unit/gate_fixture.h"

#define N_CLIENT       2
#define N_ASKED        64u /* most requests of a client that the worker remembers */
#define TAG(client, i) ((uint64_t)((client) + 1) << 40 | (i))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct run {
    struct fix f;
    struct fcl c[N_CLIENT];
    uint32_t n_asked[N_CLIENT];
    uint8_t ended[N_CLIENT][N_ASKED];
    struct {
        uint64_t id;
        uint32_t client;
    } seen[N_ASKED]; /* SUBMITs received */
    uint32_t n_seen;
    int overlaid; /* 1: the simulated worker moved its ring's tail, so records may overlap
                     the text of others, and texts are not checked */
    int admin;
};

static uint32_t seen[FDP_T__N]; /* records sent for requests */

int
fuzz_missing(void)
{
    int n = 0;

    for (unsigned i = 0; i < FDP_T__N; i++) {
        if (seen[i] != 0)
            continue;
        fprintf(stderr, "f_worker: no request was sent a record of type %u\n", i);
        n++;
    }
    return n;
}

/* ---- clients --------------------------------------------------------------- */

static void
read_all(struct run *t, uint32_t k)
{
    struct frec r;

    while (fcl_recv(&t->c[k], &r)) {
        uint32_t i = (uint32_t)r.h.tag;

        if (r.h.tag == 0) {
            ASSERT(r.h.type == FDP_T_EVENT);
            continue;
        }
        ASSERT(r.h.tag == TAG(k, i) && i < t->n_asked[k]);
        ASSERT(!t->ended[k][i]);
        if (r.h.type == FDP_T_DONE || r.h.type == FDP_T_ERROR)
            t->ended[k][i] = 1;
        for (uint32_t b = 0; r.h.type == FDP_T_TEXT && b < r.h.len && !t->overlaid; b++)
            ASSERT(r.data[b] == 'A' + k || r.data[b] == 'z');
    }
}

static void
ask(struct run *t, struct in *in, uint32_t k)
{
    uint32_t what = take(in, 1);
    struct fask a = { .max_new = 1 + what % 64 };

    if (t->n_asked[k] >= N_ASKED || fcl_state(&t->c[k]) == FDP_ST_GOODBYE ||
        fdr_prod_room(&t->c[k].sq, 1) < 1)
        return;
    a.tag = TAG(k, t->n_asked[k]++);
    if (what & 64)
        a.ttl_queue_ms = 1 + take(in, 1);
    if (what & 128)
        a.ttl_total_ms = 1 + take(in, 1);
    fcl_ask(&t->c[k], a);
}

/* ---- administrator ----------------------------------------------------------- */

/* Reads the socket. Returns the number of bytes; *ret_last is the last one. */
static size_t
admin_read(struct run *t, char *ret_last)
{
    static char buf[65536];
    size_t all = 0;
    ssize_t n;

    do {
        n = t->admin >= 0 ? recv(t->admin, buf, sizeof(buf), MSG_DONTWAIT) : -1;
        if (n > 0)
            *ret_last = buf[n - 1];
        all += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    if (n == 0) {
        (void)close(t->admin);
        t->admin = -1;
    }
    return all;
}

static void
admin_ask(struct run *t, uint32_t what)
{
    static const char *const lines[] = { "{\"cmd\":\"status\"}\n",
        "{\"cmd\":\"config\"}\n", "{\"cmd\":\"debug\",\"panic\":true}\n",
        "{\"cmd\":\"requests\"}\n", "{\"cmd\":\"clients\"}\n", "{\"cmd\":\"model\"}\n",
        "{\"cmd\":\"profile\"}\n", "{\"cmd\":\"stat\"}\n" };
    const char *line = lines[what % 8];
    char last = 0;
    int sv[2];

    /* On a separate connection, as one may wait for the worker's answer. */
    if (what % 8 != 5 && what % 8 != 6 && t->admin >= 0) {
        (void)close(t->admin);
        t->admin = -1;
        fix_step(&t->f, 0);
    }
    if (t->admin < 0) {
        ASSERT_Z(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv));
        t->admin = sv[1];
        (void)ctl_adopt(&t->f.g->ctl, sv[0], 1, 0, 0, t->f.now);
    }
    (void)send(t->admin, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
    fix_step(&t->f, 0);
    ASSERT(admin_read(t, &last) != 0 ? last == '\n' : what % 8 == 5 || what % 8 == 6);
}

/* ---- worker ------------------------------------------------------------------- */

/* Takes all records from the gate, of any type. */
static uint32_t
worker_take(struct run *t)
{
    const struct fdp_rec *r;
    struct lnk_submit sub;
    uint32_t n = 0;

    while ((r = lnk_peek(&t->f.w)) != NULL) {
        if (r->type == LNK_T_SUBMIT && r->len == sizeof(sub)) {
            memcpy(&sub, r + 1, sizeof(sub));
            t->seen[t->n_seen % N_ASKED].id = r->tag;
            t->seen[t->n_seen++ % N_ASKED].client = (uint32_t)(sub.req.tag >> 40) - 1;
        }
        lnk_next(&t->f.w, r);
        n++;
    }
    return n;
}

static uint32_t
pick(const struct run *t, uint32_t v)
{
    return v % (t->n_seen < N_ASKED ? t->n_seen : N_ASKED);
}

static void
worker_publish(struct run *t)
{
    struct fdr_prod *p = &t->f.w.out;

    p->pub = p->tail;
    fdr_publish(p->p_tail, p->tail);
}

/* Sends any record: header and payload from the input, for a request or for none. */
static void
worker_put(struct run *t, struct in *in, uint32_t op)
{
    static const uint8_t types[] = { FDP_T_PAD, FDP_T_ACCEPTED, FDP_T_PROMPT_IDS,
        FDP_T_IDS, FDP_T_TEXT, FDP_T_LOGPROBS, FDP_T_PROMPT_LOGPROBS, FDP_T_CHOICE_END,
        FDP_T_DONE, FDP_T_ERROR, FDP_T_REPLY, FDP_T_EVENT, FDP_T_TOKENS, LNK_T_TOKENIZED,
        LNK_T_READY, LNK_T_STATE };
    struct {
        struct fdp_rec h;
        unsigned char data[FDP_REC_MAX_LEN];
    } r;
    struct fdr_prod *p = &t->f.w.out;
    uint32_t what = take(in, 1), who = take(in, 1), left, at;
    int text, mark = 'z'; /* mark of the text until its request is known */

    memset(&r, 0, sizeof(r));
    r.h.type = types[what % 16];
    if (what & 0x10)
        r.h.type = (uint8_t)take(in, 1);
    r.h.sample = what & 0x20 ? (uint16_t)take(in, 2) : 0;
    r.h.position = what & 0x20 ? take(in, 4) : 0;
    r.h.len = take(in, what & 0x40 ? 2 : 1) % (sizeof(r.data) + 1);
    text = r.h.type == FDP_T_TEXT;
    if (t->n_seen != 0 && who < 0xc0) {
        seen[r.h.type < FDP_T__N ? r.h.type : FDP_T_PAD]++;
        r.h.tag = t->seen[pick(t, who)].id;
        mark = 'A' + (int)t->seen[pick(t, who)].client;
    } else {
        r.h.tag = take(in, 4);
        text = 1;
    }
    memset(r.data, mark, sizeof(r.data));
    if (!(what & 0x80)) /* bytes after the payload belong to other records */
        memset(r.data + r.h.len, 'x', sizeof(r.data) - r.h.len);
    for (uint32_t i = 0; !text && i < r.h.len && in->n > 0; i++)
        r.data[i] = (unsigned char)take(in, 1);
    r.h.n_slot = (uint8_t)FDP_REC_SLOTS(r.h.len);
    if (what & 0x80) {
        r.h.n_slot = (uint8_t)take(in, 1);
        r.h.len = take(in, 4);
    }
    at = p->tail & (p->n_slot - 1);
    left = r.h.n_slot < FDP_REC_MAX_SLOTS ? r.h.n_slot : FDP_REC_MAX_SLOTS;
    if (at + left > p->n_slot)
        left = p->n_slot - at;
    if (left == 0)
        left = 1;
    memcpy(fdr_prod_slot(p, p->tail), &r, (size_t)left * FDP_SLOT);
    p->tail += r.h.n_slot;
    if (op & 16)
        worker_publish(t);
}

static void
worker_ready(struct run *t, struct in *in)
{
    struct {
        struct fdp_rec h;
        struct lnk_ready rd;
    } r;
    struct fdr_prod *p = &t->f.w.out;
    uint32_t *word = (uint32_t *)(void *)&r.rd;

    memset(&r, 0, sizeof(r));
    r.h.type = LNK_T_READY;
    r.h.len = sizeof(r.rd);
    r.h.n_slot = (uint8_t)FDP_REC_SLOTS(r.h.len);
    r.rd = (struct lnk_ready){ .credits = 1 + take(in, 1) % 16,
        .info = { .vocab = FIX_VOCAB,
            .max_model_len = FIX_MAX_LEN,
            .max_logprobs = 20,
            .block_size = 64 } };
    for (uint32_t k = take(in, 1) % 8; k > 0; k--) {
        uint32_t at = take(in, 1) % (sizeof(r.rd) / 4);

        word[at] = take(in, 4);
    }
    if ((p->tail & (p->n_slot - 1)) + r.h.n_slot > p->n_slot)
        return;
    memcpy(fdr_prod_slot(p, p->tail), &r, sizeof(r));
    p->tail += r.h.n_slot;
    worker_publish(t);
}

/* Writes fields of the segment that the worker owns: state, log, panic text. */
static void
worker_scribble(struct run *t, struct in *in)
{
    struct lnk_seg *seg = t->f.seg;
    static const struct {
        size_t at, n;
    } part[] = { { offsetof(struct lnk_seg, w), sizeof(seg->w) },
        { offsetof(struct lnk_seg, log), sizeof(seg->log) },
        { offsetof(struct lnk_seg, panic), sizeof(seg->panic) },
        { offsetof(struct lnk_seg, down_head), sizeof(seg->down_head) },
        { offsetof(struct lnk_seg, up_tail), sizeof(seg->up_tail) },
        { offsetof(struct lnk_seg, started), sizeof(uint64_t) * N_ASKED },
        { offsetof(struct lnk_seg, worker_parked), sizeof(struct lnk_cursor) * 4 },
        { offsetof(struct lnk_seg, up_head), sizeof(seg->up_head) } };
    uint32_t which = take(in, 1), at = take(in, 2), k = take(in, 1);
    uint32_t times = which & 8 ? 64 : 1;
    unsigned char *p = (unsigned char *)seg + part[which % 8].at;
    unsigned char v = (unsigned char)take(in, 1);

    at = at % (uint32_t)part[which % 8].n;
    for (uint32_t i = 0; i < k * times && at + i < part[which % 8].n; i++)
        p[at + i] = times == 1 && i != 0 ? (unsigned char)take(in, 1) : v;
}

static void
worker_answers(struct run *t, struct in *in)
{
    static const char *const texts[] = { "{\"ok\":true}\n", "{\"id\":1,\"ok\":true}\n",
        "{\"id\":", "{", "\n", "}\n" };
    unsigned char b[64];
    uint32_t what = take(in, 1), k = 0;

    if (what < 128) {
        (void)send(t->f.worker_admin_fd, texts[what % 6], strlen(texts[what % 6]),
            MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    }
    for (; k < what % sizeof(b); k++)
        b[k] = (unsigned char)take(in, 1);
    (void)send(t->f.worker_admin_fd, b, k, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* An honest worker ends all requests that it was given. */
static void
worker_honest(struct run *t)
{
    const struct fdp_rec *r;

    while ((r = lnk_peek(&t->f.w)) != NULL) {
        uint64_t id = r->tag;
        unsigned type = r->type;

        lnk_next(&t->f.w, r);
        if (type == LNK_T_SUBMIT)
            fix_wdone(&t->f, id);
        else if (type == LNK_T_CANCEL)
            fix_werror(&t->f, id, FDP_E_CANCELLED);
    }
}

static int
link_is_bad(const struct run *t)
{
    return t->f.g->wrk[0].link.seg != NULL && t->f.g->wrk[0].link.lnk.bad;
}

/* ---- the run -------------------------------------------------------------------- */

static void
step(struct run *t, uint32_t ms)
{
    fix_step(&t->f, ms);
    if (link_is_bad(t)) /* the gate would kill it; there is no process here */
        fix_die(&t->f, SIGKILL);
}

static void
one_command(struct run *t, struct in *in)
{
    uint32_t op = take(in, 1);

    switch (op % 14) {
    case 0:
    case 1:
    case 2:
        worker_put(t, in, op);
        break;
    case 3:
        ask(t, in, op / 16 % N_CLIENT);
        break;
    case 4:
        (void)worker_take(t);
        break;
    case 5:
        read_all(t, op / 16 % N_CLIENT);
        break;
    case 6:
        if (t->n_asked[op / 16 % N_CLIENT] != 0 &&
            fdr_prod_room(&t->c[op / 16 % N_CLIENT].sq, 1) >= 1)
            fcl_cancel(&t->c[op / 16 % N_CLIENT],
                TAG(op / 16 % N_CLIENT, take(in, 1) % t->n_asked[op / 16 % N_CLIENT]));
        break;
    case 7:
        worker_ready(t, in);
        break;
    case 8:
        worker_scribble(t, in);
        break;
    case 9:
        t->overlaid = 1;
        t->f.w.out.tail += (uint32_t)(int32_t)(int8_t)take(in, 1);
        worker_publish(t);
        break;
    case 10:
        fix_die(&t->f, op & 16 ? SIGSEGV : (int)(take(in, 1) << 8));
        break;
    case 11:
        admin_ask(t, op / 16);
        break;
    case 12:
        worker_answers(t, in);
        break;
    case 13:
        step(t, take(in, 1) * (op & 16 ? 16 : 1));
        return;
    }
    step(t, 0);
}

static int
all_ended(const struct run *t)
{
    for (uint32_t k = 0; k < N_CLIENT; k++) {
        for (uint32_t i = 0; i < t->n_asked[k]; i++) {
            if (!t->ended[k][i])
                return 0;
        }
    }
    return 1;
}

/* The hostile worker dies; its successor is honest. */
static void
finish(struct run *t)
{
    uint32_t n_spawn;

    if (t->f.g->wrk[0].link.seg != NULL)
        fix_die(&t->f, SIGKILL);
    n_spawn = t->f.n_spawn;
    for (int i = 0; i < 400 && !all_ended(t); i++) {
        for (uint32_t k = 0; k < N_CLIENT; k++)
            read_all(t, k);
        step(t, 50);
        if (t->f.n_spawn != n_spawn) {
            n_spawn = t->f.n_spawn;
            fix_ready(&t->f);
        }
        if (t->f.g->wrk[0].link.seg != NULL)
            worker_honest(t);
    }
    for (uint32_t k = 0; k < N_CLIENT; k++) {
        int over = fcl_state(&t->c[k]) == FDP_ST_GOODBYE;

        read_all(t, k);
        ASSERT(!over || fcl_reason(&t->c[k]) != (uint32_t)-FDP_E_PROTO);
        for (uint32_t i = 0; !over && i < t->n_asked[k]; i++)
            ASSERT(t->ended[k][i]);
    }
    ASSERT(t->f.g->jnl.n_open == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const sets[] = { "ipc.arena_bytes=65536", "ipc.cq_slots=128",
        "ipc.sq_slots=16", "sched.max_concurrency=64", NULL };
    static struct run t;
    struct in in = { data, n };

    if (n > 8192)
        return 0;
    memset(&t, 0, sizeof(t));
    t.admin = -1;
    fix_open(&t.f, sets);
    for (uint32_t k = 0; k < N_CLIENT; k++)
        ASSERT(fcl_open(&t.f, &t.c[k], 1000 + k, NULL) == FDP_OK);
    if (take(&in, 1) % 8 != 0)
        fix_ready(&t.f);
    while (in.n > 0 && t.f.g->life.exit_code < 0)
        one_command(&t, &in);
    finish(&t);
    for (uint32_t k = 0; k < N_CLIENT; k++)
        fcl_close(&t.c[k]);
    if (t.admin >= 0)
        (void)close(t.admin);
    fix_step(&t.f, 0);
    fix_close(&t.f);
    return 0;
}
