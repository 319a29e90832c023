/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Several groups behind one gate: who gets a request, what becomes of it when its group dies,
 * when the daemon is ready and when it ends, and the restart of one group after another. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "tests/unit/gate_fixture.h"

#define N              3u
#define OWN            1000u
#define PROMPT         600u /* ids: 2400 bytes, of which 2304 are in the chain */
#define SIGKILL_STATUS 9

static const char *const sets[] = { "parallel.data_parallel_size=3", "device.list=cpu:3",
    "daemon.crash_max=3", NULL };

static void
dies(struct fix *f, uint32_t group, int status)
{
    fix_use(f, group);
    fix_die(f, status);
}

static void
ready(struct fix *f, uint32_t group)
{
    fix_use(f, group);
    fix_ready(f);
}

/* It dies as often as it is started, until it is given up. */
static void
fails(struct fix *f, uint32_t group)
{
    for (int k = 0; k < 3; k++) {
        dies(f, group, SIGKILL_STATUS);
        fix_step(f, 11000);
    }
}

/* All groups are ready. */
static void
open_groups(struct fix *f, const char *const *more)
{
    fix_open(f, more != NULL ? more : sets);
    for (uint32_t i = 0; i < f->g->n_wrk; i++)
        ready(f, i);
    fix_use(f, 0);
}

/* With a client. */
static void
begin(struct fix *f, const char *const *more, struct fcl *c)
{
    open_groups(f, more);
    assert_int_equal(fcl_open(f, c, OWN, NULL), FDP_OK);
}

static void
end(struct fix *f, struct fcl *c)
{
    fcl_close(c);
    fix_step(f, 0);
    fix_close(f);
}

static struct wlk *
link_of(const struct fix *f, uint32_t group)
{
    return &f->g->wrk[group].link;
}

/* A prompt of n ids that begins with the id mark. */
static void
submit(struct fcl *c, uint64_t tag, uint32_t mark, uint32_t n)
{
    unsigned char *buf = calloc(1, FDP_ITEM_SPAN(n * 4));
    struct fdp_item it = { .type = FDP_IT_PROMPT_IDS, .len = n * 4 };
    uint32_t id = 1;
    struct fdp_req q;

    assert_non_null(buf);
    fcl_req(&q, FDP_OP_SUBMIT, tag);
    memcpy(buf, &it, sizeof(it));
    for (uint32_t i = 0; i < n; i++)
        memcpy(buf + sizeof(it) + i * 4, i == 0 ? &mark : &id, 4);
    fcl_send(c, &q, buf, (uint32_t)FDP_ITEM_SPAN(n * 4), 0);
    free(buf);
}

/* Which group got the request that was sent last, and its id there. */
static uint32_t
taken(struct fix *f, uint64_t *ret_id)
{
    uint32_t group = N;

    *ret_id = 0;
    for (uint32_t i = 0; i < f->g->n_wrk; i++) {
        uint64_t id;

        if (f->g->wrk[i].link.seg == NULL)
            continue;
        fix_use(f, i);
        id = fix_take(f, NULL, NULL, NULL);
        if (id == 0)
            continue;
        assert_int_equal(*ret_id, 0);
        *ret_id = id;
        group = i;
    }
    if (group < N)
        fix_use(f, group);
    return group;
}

static uint32_t
place(struct fix *f, struct fcl *c, uint64_t tag, uint32_t mark, uint32_t n,
    uint64_t *ret_id)
{
    submit(c, tag, mark, n);
    fix_step(f, 0);
    return taken(f, ret_id);
}

static void
finish(struct fix *f, uint32_t group, uint64_t id)
{
    fix_use(f, group);
    fix_waccept(f, id, 1);
    fix_wtokens(f, id, 1);
    fix_wdone(f, id);
    fix_step(f, 0);
}

static int
count(struct fcl *c, unsigned type, uint64_t tag, int *ret_code)
{
    struct fdp_error e;
    struct frec r;
    int n = 0;

    while (fcl_recv(c, &r)) {
        n += r.h.type == type && r.h.tag == tag;
        if (r.h.type == FDP_T_ERROR && ret_code != NULL) {
            memcpy(&e, r.data, sizeof(e));
            *ret_code = e.code;
        }
    }
    return n;
}

/* ---- who gets a request ------------------------------------------------------------ */

/* Without anything to go by, all get the same number. Credits are those of all groups, and
 * the one that is too many goes where one is free. */
static void
t_least_loaded(void **state)
{
    uint64_t id[N * FIX_CREDITS], last;
    uint32_t group[N * FIX_CREDITS];
    struct fix f;
    struct fcl c;

    (void)state;
    begin(&f, NULL, &c);
    for (uint32_t i = 0; i < N * FIX_CREDITS; i++) {
        group[i] = place(&f, &c, i + 1, 1, 1, &id[i]);
        assert_true(group[i] < N);
        for (uint32_t k = i - i % N; k < i; k++)
            assert_true(group[k] != group[i]);
    }
    for (uint32_t g = 0; g < N; g++) {
        assert_int_equal(link_of(&f, g)->credits_used, FIX_CREDITS);
        assert_int_equal(link_of(&f, g)->n_with, FIX_CREDITS);
    }
    assert_int_equal(place(&f, &c, 100, 1, 1, &last), N);
    assert_int_equal(f.g->fair.n_queued, 1);
    finish(&f, group[5], id[5]);
    assert_int_equal(taken(&f, &last), group[5]);
    assert_int_equal(f.g->fair.n_queued, 0);
    end(&f, &c);
}

/* A group with a long prompt to compute gets no other; one with its first token does. */
static void
t_load(void **state)
{
    static const char *const two[] = { "parallel.data_parallel_size=2", NULL };
    uint64_t id, other;
    uint32_t g;
    struct fix f;
    struct fcl c;

    (void)state;
    begin(&f, two, &c);
    g = place(&f, &c, 1, 1, PROMPT, &id);
    for (uint64_t tag = 2; tag < 6; tag++)
        assert_int_equal(place(&f, &c, tag, 2, 1, &other), 1 - g);
    assert_true(link_of(&f, g)->due >= PROMPT);
    fix_use(&f, g);
    fix_waccept(&f, id, PROMPT);
    fix_wtokens(&f, id, 1);
    fix_step(&f, 0);
    assert_int_equal(link_of(&f, g)->due, 0);
    assert_int_equal(place(&f, &c, 6, 2, 1, &other), g);
    end(&f, &c);
}

/* What a worker reports makes a sequence of a slow group heavier. */
static void
t_share(void **state)
{
    struct cnt_worker w = { .steps = 0 };
    struct wlk l;

    (void)state;
    wlk_init(&l, 0);
    l.credits_used = 2;
    assert_int_equal(dsp_load(&l), 2);
    w.step_ns = 1000000;
    w.step_seqs = 20;
    w.prompt_tokens = 1000; /* 1 us a token, 50 us a sequence and step */
    dsp_measure(&l, &w);
    assert_int_equal(dsp_load(&l), 2 * 50);
    for (int i = 0; i < 100; i++) {
        w.step_ns += 1000000;
        w.step_seqs += 100;
        w.generation_tokens += 100;
        dsp_measure(&l, &w);
        assert_true(i != 0 || dsp_load(&l) == 2 * 45);
    }
    assert_int_equal(dsp_load(&l), 2 * 10);
    dsp_measure(&l, &w); /* nothing ran */
    assert_int_equal(dsp_load(&l), 2 * 10);
    w.step_ns += 1000000000; /* a pause of a second is no more than the most */
    w.step_seqs += 1;
    w.generation_tokens += 1;
    dsp_measure(&l, &w);
    assert_int_equal(dsp_load(&l), 2 * DSP_SHARE);
}

/* A prompt goes where its beginning was, for the same user alone, and not to a group that
 * is busier by more than that saves. */
static void
t_prefix(void **state)
{
    uint64_t id, other, tag = 10;
    uint32_t g, k;
    struct fix f;
    struct fcl c, d;

    (void)state;
    begin(&f, NULL, &c);
    assert_int_equal(fcl_open(&f, &d, OWN + 1, NULL), FDP_OK);
    g = place(&f, &c, 1, 5, PROMPT, &id);
    finish(&f, g, id);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(place(&f, &c, tag++, 5, PROMPT + i, &id), g);
        finish(&f, g, id);
    }
    assert_int_equal(f.g->dsp.n_cached, 4);
    /* the others got none so far: a prompt without a prefix goes to one of them */
    k = place(&f, &d, 2, 5, PROMPT, &id);
    assert_true(k != g);
    finish(&f, k, id);
    k = place(&f, &c, 3, 6, PROMPT, &id);
    assert_true(k != g);
    finish(&f, k, id);
    assert_int_equal(f.g->dsp.n_cached, 4);
    /* 576 of 600 tokens are saved: twice as much may be before them */
    assert_int_equal(place(&f, &c, tag++, 5, PROMPT, &other), g);
    link_of(&f, g)->due += 600;
    assert_int_equal(place(&f, &c, tag++, 5, PROMPT, &id), g);
    link_of(&f, g)->due += 600;
    k = place(&f, &c, tag++, 5, PROMPT, &id);
    assert_true(k != g && k < N);
    link_of(&f, g)->due -= 1200;
    fcl_close(&c);
    fcl_close(&d);
    fix_step(&f, 0);
    fix_close(&f);
}

/* A request of many samples costs no more than one group has. */
static void
t_samples(void **state)
{
    uint64_t id;
    uint32_t g;
    struct fix f;
    struct fcl c;

    (void)state;
    begin(&f, NULL, &c);
    fcl_submit_for(&c, 1, FIX_CREDITS + 4, 4, 0);
    fix_step(&f, 0);
    g = taken(&f, &id);
    assert_true(g < N);
    assert_int_equal(link_of(&f, g)->credits_used, FIX_CREDITS);
    end(&f, &c);
}

/* ---- death ------------------------------------------------------------------------- */

/* What has no output goes to another group, and its client sees one ACCEPTED; what has some
 * ends; each ends once. */
static void
t_moved(void **state)
{
    uint64_t a, b, id, n_ended = 0;
    int code = 0;
    uint32_t g;
    struct fix f;
    struct fcl c;
    struct frec r;

    (void)state;
    begin(&f, NULL, &c);
    g = place(&f, &c, 2, 7, PROMPT + 1, &b);
    fix_waccept(&f, b, PROMPT + 1);
    fix_wtokens(&f, b, 3);
    fix_step(&f, 0);
    assert_int_equal(place(&f, &c, 1, 7, PROMPT, &a), g);
    fix_waccept(&f, a, PROMPT);
    fix_step(&f, 0);
    fix_die(&f, SIGKILL_STATUS);
    assert_int_equal(link_of(&f, g)->n_with, 0);
    assert_int_equal(cnt_get(&f.g->env.cnt->requests_moved), 1);
    assert_true(taken(&f, &id) != g);
    assert_int_equal(id, a);
    fix_waccept(&f, id, PROMPT);
    fix_wtokens(&f, id, 2);
    fix_wdone(&f, id);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 0);
    for (int n_accepted = 0; fcl_recv(&c, &r);) {
        assert_true(r.h.type != FDP_T_EVENT); /* other groups are up */
        if (r.h.tag == 1 && r.h.type == FDP_T_ACCEPTED)
            assert_int_equal(++n_accepted, 1);
        if (r.h.type == FDP_T_DONE || r.h.type == FDP_T_ERROR)
            n_ended += r.h.tag;
        if (r.h.type == FDP_T_ERROR) {
            struct fdp_error e;

            assert_int_equal(r.h.tag, 2);
            memcpy(&e, r.data, sizeof(e));
            code = e.code;
            assert_int_equal(e.retry_after_ms, 1);
        }
    }
    assert_int_equal(n_ended, 1 + 2);
    assert_int_equal(code, FDP_E_GPU_RESET);
    fcl_close(&c);
    fix_close(&f);
}

/* Text that was sent back is output, too: it does not begin again elsewhere. */
static void
t_moved_text(void **state)
{
    unsigned char b[FDP_ITEM_SPAN(8)] __attribute__((aligned(8)));
    static const uint32_t ids[2] = { 1, 2 };
    struct fdp_req q = { .op = FDP_OP_DETOKENIZE, .n = 1 };
    struct fix f;
    struct fcl c;

    (void)state;
    begin(&f, NULL, &c);
    for (q.tag = 1; q.tag <= 2; q.tag++) {
        uint64_t id, other;
        uint32_t g;
        int code = 0;

        fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, sizeof(ids)), 0);
        fix_step(&f, 0);
        g = taken(&f, &id);
        assert_true(g < N);
        if (q.tag == 2)
            fix_wsend(&f, id, FDP_T_TEXT, "text", 4);
        fix_step(&f, 0);
        fix_die(&f, SIGKILL_STATUS);
        fix_step(&f, 0);
        assert_int_equal(cnt_get(&f.g->env.cnt->requests_moved), 1);
        if (q.tag == 1) {
            assert_true(taken(&f, &other) < N && other == id);
            fix_wdone(&f, id);
            fix_step(&f, 0);
        } else {
            assert_int_equal(count(&c, FDP_T_ERROR, 2, &code), 1);
            assert_int_equal(code, FDP_E_GPU_RESET);
        }
        assert_int_equal(f.g->jnl.n_open, 0);
    }
    end(&f, &c);
}

/* A killed worker may write until it is dead: no client gets that, and it ends nothing. */
static void
t_late_records(void **state)
{
    uint64_t a, id;
    uint32_t g;
    struct fix f;
    struct fcl c;

    (void)state;
    begin(&f, NULL, &c);
    g = place(&f, &c, 1, 7, 1, &a);
    f.g->wrk[g].is_killed = 1;
    f.g->wrk[g].link.up = 0;
    f.g->wrk[g].link.is_closed = 1;
    fix_step(&f, 2);
    assert_true(taken(&f, &id) != g);
    assert_int_equal(id, a);
    fix_use(&f, g);
    fix_waccept(&f, a, 1);
    fix_wtokens(&f, a, 4);
    fix_wdone(&f, a);
    fix_step(&f, 2);
    assert_int_equal(f.g->jnl.n_open, 1);
    assert_int_equal(count(&c, FDP_T_IDS, 1, NULL), 0);
    fix_die(&f, SIGKILL_STATUS);
    assert_int_equal(f.g->jnl.n_open, 1);
    end(&f, &c);
}

/* One that takes each worker down with it ends after RQ_MOVES of them. */
static void
t_moves_end(void **state)
{
    uint64_t id;
    int code = 0;
    struct fix f;
    struct fcl c;

    (void)state;
    begin(&f, NULL, &c);
    submit(&c, 1, 7, 1);
    fix_step(&f, 0);
    for (uint32_t i = 0; i <= RQ_MOVES; i++) {
        assert_int_equal(f.g->jnl.n_open, 1);
        assert_true(taken(&f, &id) < N);
        fix_waccept(&f, id, 1);
        fix_step(&f, 0);
        fix_die(&f, SIGKILL_STATUS);
    }
    assert_int_equal(f.g->jnl.n_open, 0);
    assert_int_equal(count(&c, FDP_T_ERROR, 1, &code), 1);
    assert_int_equal(code, FDP_E_GPU_RESET);
    fcl_close(&c);
    fix_close(&f);
}

/* The time in which a request must begin is over when it has begun, wherever that was; one
 * that had not begun expires in the queue. */
static void
t_moved_deadline(void **state)
{
    struct fask ask = { .max_new = 4, .ttl_queue_ms = 1000 };
    struct lnk_submit sub;
    uint64_t id = 0, other;
    int code = 0;
    struct fix f;
    struct fcl c;

    (void)state;
    for (int begun = 0; begun < 2; begun++) {
        open_groups(&f, NULL);
        assert_int_equal(fcl_open(&f, &c, OWN, NULL), FDP_OK);
        ask.tag = 1;
        fcl_ask(&c, ask);
        fix_step(&f, 0);
        for (uint32_t g = 0; g < N && id == 0; g++) {
            fix_use(&f, g);
            id = fix_take(&f, &sub, NULL, NULL);
        }
        assert_true(id != 0);
        if (!begun)
            fix_unbegin(&f, &sub);
        f.g->env.paused = 1;
        fix_die(&f, SIGKILL_STATUS);
        assert_int_equal(f.g->fair.n_queued, 1);
        fix_step(&f, 2000);
        f.g->env.paused = 0;
        fix_step(&f, 2);
        if (begun) {
            assert_true(taken(&f, &other) < N && other == id);
        } else {
            assert_int_equal(count(&c, FDP_T_ERROR, 1, &code), 1);
            assert_int_equal(code, FDP_E_DEADLINE);
        }
        id = 0;
        fcl_close(&c);
        fix_step(&f, 0);
        fix_close(&f);
    }
}

/* Cancelled, it ends with the code of the cancel and goes nowhere. */
static void
t_cancelled(void **state)
{
    uint64_t id;
    int code = 0;
    struct fix f;
    struct fcl c;

    (void)state;
    begin(&f, NULL, &c);
    assert_true(place(&f, &c, 1, 7, 1, &id) < N);
    fcl_cancel(&c, 1);
    fix_step(&f, 0);
    fix_die(&f, SIGKILL_STATUS);
    assert_int_equal(f.g->jnl.n_open, 0);
    assert_int_equal(count(&c, FDP_T_ERROR, 1, &code), 1);
    assert_int_equal(code, FDP_E_CANCELLED);
    fcl_close(&c);
    fix_close(&f);
}

/* ---- ready, down, the end ---------------------------------------------------------- */

/* Up as long as one group is; clients are told of the first and of the last. */
static void
t_events(void **state)
{
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, OWN, NULL), FDP_OK);
    ready(&f, 1);
    assert_int_equal(count(&c, FDP_T_EVENT, 0, NULL), 1);
    assert_string_equal(life_state_name(&f.g->life), "running");
    assert_int_equal(f.g->fair.credits, FIX_CREDITS);
    ready(&f, 0);
    assert_int_equal(f.g->fair.credits, 2 * FIX_CREDITS);
    dies(&f, 1, SIGKILL_STATUS);
    assert_int_equal(count(&c, FDP_T_EVENT, 0, NULL), 0);
    assert_int_equal(f.g->fair.credits, FIX_CREDITS);
    dies(&f, 0, SIGKILL_STATUS);
    assert_int_equal(count(&c, FDP_T_EVENT, 0, NULL), 1);
    assert_string_equal(life_state_name(&f.g->life), "starting");
    fcl_close(&c);
    fix_close(&f);
}

/* The service manager is told of the first group that is ready, and of how many are. */
static void
t_manager(void **state)
{
    static const char *const want[] = { "READY=1", "STATUS=1 of 3 groups ready",
        "STATUS=2 of 3 groups ready", "STATUS=1 of 3 groups ready" };
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    char text[256];
    struct fix f;
    ssize_t n;
    int fd;

    (void)state;
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "/tmp/u_groups.%d", (int)getpid());
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", sa.sun_path, 1), 0);
    fix_open(&f, sets);
    fix_step(&f, 2);
    for (uint32_t g = 1; g < N; g++) {
        ready(&f, g);
        fix_step(&f, 2);
    }
    dies(&f, 1, SIGKILL_STATUS);
    fix_step(&f, 2);
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
        assert_true(n > 0);
        text[n] = '\0';
        assert_string_equal(text, want[i]);
    }
    assert_int_equal(recv(fd, text, sizeof(text), MSG_DONTWAIT), -1);
    (void)close(fd);
    (void)unlink(sa.sun_path);
    fix_close(&f);
}

/* Each has a crash window of its own, and the daemon ends when none is left. */
static void
t_budget(void **state)
{
    uint64_t id;
    struct fix f;
    struct fcl c;

    (void)state;
    begin(&f, NULL, &c);
    for (uint32_t g = 0; g < N; g++) {
        for (int i = 0; i < 3; i++) {
            assert_int_equal(f.g->env.st, GATE_RUNNING);
            assert_int_equal(f.g->wrk[g].st, i == 0 ? WRK_READY : WRK_STARTING);
            dies(&f, g, SIGKILL_STATUS);
            fix_step(&f, 1000);
        }
        assert_int_equal(f.g->wrk[g].st, WRK_FAILED);
        if (g < N - 1) {
            assert_string_equal(life_state_name(&f.g->life), "running");
            assert_true(place(&f, &c, g + 1, 1, 1, &id) > g);
            finish(&f, f.at, id);
        }
    }
    assert_int_equal(f.g->env.st, GATE_DEGRADED);
    fix_step(&f, 60000);
    assert_int_equal(f.g->life.exit_code, EX_TEMPFAIL);
    fcl_close(&c);
    fix_close(&f);
}

/* One device is not there: the others serve. None is: the daemon ends with the exit code
 * that says so. */
static void
t_cannot_run(void **state)
{
    struct fix f;

    (void)state;
    fix_open(&f, sets);
    for (uint32_t g = 0; g < N; g++) {
        assert_int_equal(f.g->life.exit_code, -1);
        fix_use(&f, g);
        fix_die(&f, EX_UNAVAILABLE << 8);
        assert_int_equal(f.g->wrk[g].st, WRK_FAILED);
    }
    assert_int_equal(f.g->life.exit_code, EX_UNAVAILABLE);
    fix_close(&f);
}

/* A process that waits to be killed. */
static pid_t
a_process(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    return pid;
}

static void
ready_with_digest(struct fix *f, uint32_t group, unsigned char digest)
{
    struct lnk_ready *rd;

    fix_use(f, group);
    rd = lnk_claim(&f->w, 0, LNK_T_READY, 0, 0, sizeof(*rd));
    assert_non_null(rd);
    memset(rd, 0, sizeof(*rd));
    rd->credits = FIX_CREDITS;
    rd->info.vocab = FIX_VOCAB;
    rd->info.max_model_len = FIX_MAX_LEN;
    rd->info.has_tokenizer = 1;
    rd->info.model_digest[0] = digest;
    f->seg->w.phase = LNK_PH_READY;
    lnk_flush(&f->w);
    fix_step(f, 2);
}

/* A worker that loaded another model than the others serve is no copy of them. */
static void
t_other_model(void **state)
{
    struct fix f;
    pid_t pid;

    (void)state;
    fix_open(&f, sets);
    ready_with_digest(&f, 0, 1);
    ready_with_digest(&f, 1, 1);
    assert_int_equal(dsp_n_up(&f.g->dsp), 2);
    pid = a_process();
    f.g->wrk[2].pid = pid;
    f.g->wrk[2].pidfd = dup(2);
    ready_with_digest(&f, 2, 2);
    assert_int_equal(f.g->wrk[2].is_killed, 1);
    assert_int_equal(dsp_n_up(&f.g->dsp), 2);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    fix_use(&f, 2);
    f.g->wrk[2].pid = 0;
    fix_die(&f, SIGKILL_STATUS);
    fix_close(&f);
}

/* A hung group is killed, and what it had goes on elsewhere. */
static void
t_hung(void **state)
{
    uint64_t a, id;
    uint32_t g;
    struct fix f;
    struct fcl c;
    pid_t pid;

    (void)state;
    begin(&f, NULL, &c);
    g = place(&f, &c, 1, 7, 1, &a);
    pid = a_process();
    f.g->wrk[g].pid = pid;
    f.g->wrk[g].pidfd = dup(2);
    for (uint32_t i = 0; i < N; i++)
        f.side[i].seg->w.beat.activity = i == g ? LNK_ACT_SERVE : LNK_ACT_LOAD;
    f.seg->w.beat.activity = LNK_ACT_SERVE;
    for (int ms = 0; ms < 120000 && !f.g->wrk[g].is_killed; ms += 1000)
        fix_step(&f, 1000);
    assert_int_equal(f.g->wrk[g].is_killed, 1);
    fix_step(&f, 2);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(taken(&f, &id) != g && id == a);
    f.g->wrk[g].pid = 0;
    dies(&f, g, SIGKILL_STATUS);
    end(&f, &c);
}

/* ---- rolling restart --------------------------------------------------------------- */

/* One group after another: it ends what it has and gets nothing new meanwhile, the others
 * go on. */
static void
t_rolling(void **state)
{
    uint64_t id, other;
    uint32_t g;
    struct fix f;
    struct fcl c;

    (void)state;
    begin(&f, NULL, &c);
    g = place(&f, &c, 1, 7, 1, &id);
    assert_int_equal(g, 0);
    assert_int_equal(rol_begin(&f.g->rolling), 0);
    assert_int_equal(rol_begin(&f.g->rolling), -EBUSY);
    fix_step(&f, 2);
    assert_int_equal(f.g->wrk[0].st, WRK_STOPPING);
    fix_step(&f, 2);
    assert_int_equal(fix_wpeek(&f)->type, LNK_T_DRAIN);
    assert_int_equal(f.g->fair.credits, 2 * FIX_CREDITS + 1);
    for (uint64_t tag = 2; tag < 2 + 2 * FIX_CREDITS; tag++)
        assert_true(place(&f, &c, tag, 7, 1, &other) % N != 0);
    finish(&f, 0, id);
    assert_int_equal(count(&c, FDP_T_DONE, 1, NULL), 1);
    for (uint32_t i = 0; i < N; i++) {
        fix_use(&f, i);
        assert_int_equal(f.g->wrk[i].st, WRK_STOPPING);
        assert_int_equal(dsp_n_up(&f.g->dsp), N - 1);
        fix_die(&f, 0);
        assert_int_equal(f.g->wrk[i].st, WRK_STARTING);
        assert_int_equal(f.g->wrk[i].n_died, 0);
        for (int k = 0; k < 10; k++)
            fix_step(&f, 10);
        assert_int_equal(dsp_n_up(&f.g->dsp), N - 1); /* the next waits for this one */
        ready(&f, i);
        fix_step(&f, 2);
        fix_step(&f, 2);
    }
    assert_false(rol_is_active(&f.g->rolling));
    assert_string_equal(f.g->rolling.error, "");
    assert_int_equal(f.n_spawn, 2 * N);
    end(&f, &c);
}

/* A group that does not come back ends it; the others stay. One that had failed comes back
 * with the next try. */
static void
t_rolling_fails(void **state)
{
    struct fix f;

    (void)state;
    open_groups(&f, NULL);
    assert_int_equal(rol_begin(&f.g->rolling), 0);
    fix_step(&f, 2);
    dies(&f, 0, 0);
    dies(&f, 0, SIGKILL_STATUS);
    fix_step(&f, 2);
    assert_false(rol_is_active(&f.g->rolling));
    assert_non_null(strstr(f.g->rolling.error, "group 0 "));
    assert_int_equal(dsp_n_up(&f.g->dsp), N - 1);
    for (int i = 0; i < 2; i++) {
        fix_step(&f, 11000);
        dies(&f, 0, SIGKILL_STATUS);
    }
    assert_int_equal(f.g->wrk[0].st, WRK_FAILED);
    assert_int_equal(rol_begin(&f.g->rolling), 0);
    fix_step(&f, 2);
    assert_int_equal(f.g->wrk[0].st, WRK_STARTING);
    fix_close(&f);
}

/* Another model is loaded: the group that has it is killed, and no other one drains for it. */
static void
t_rolling_other_model(void **state)
{
    struct fix f;

    (void)state;
    open_groups(&f, NULL);
    assert_int_equal(rol_begin(&f.g->rolling), 0);
    fix_step(&f, 2);
    dies(&f, 0, 0);
    fix_use(&f, 0);
    f.g->wrk[0].pid = fork(); /* to be killed */
    if (f.g->wrk[0].pid == 0)
        for (;;)
            (void)pause();
    fix_ready_as(&f, FIX_VOCAB + 1, FIX_MAX_LEN);
    for (int k = 0; k < 5; k++)
        fix_step(&f, 2);
    assert_false(rol_is_active(&f.g->rolling));
    assert_non_null(strstr(f.g->rolling.error, "group 0 "));
    for (uint32_t i = 1; i < N; i++)
        assert_int_equal(f.g->wrk[i].st, WRK_READY);
    fix_close(&f);
}

/* Groups that are down come first: the one that is up must not wait for them for ever. */
static void
t_rolling_repairs(void **state)
{
    struct fix f;

    (void)state;
    open_groups(&f, NULL);
    for (uint32_t i = 1; i < N; i++)
        fails(&f, i);
    for (uint32_t i = 1; i < N; i++)
        assert_int_equal(f.g->wrk[i].st, WRK_FAILED);
    assert_int_equal(rol_begin(&f.g->rolling), 0);
    for (uint32_t i = 1; i < N; i++) {
        fix_step(&f, 2);
        assert_int_equal(f.g->wrk[i].st, WRK_STARTING);
        assert_int_equal(f.g->wrk[0].st, WRK_READY);
        ready(&f, i);
        fix_step(&f, 2);
    }
    fix_step(&f, 2);
    assert_int_equal(f.g->wrk[0].st, WRK_STOPPING);
    dies(&f, 0, 0);
    ready(&f, 0);
    fix_step(&f, 2);
    assert_false(rol_is_active(&f.g->rolling));
    assert_string_equal(f.g->rolling.error, "");
    fix_close(&f);
}

/* The last group that is up, when the others died behind it for good: it is left alone, and
 * that is said. */
static void
t_rolling_alone(void **state)
{
    struct fix f;

    (void)state;
    open_groups(&f, NULL);
    assert_int_equal(rol_begin(&f.g->rolling), 0);
    for (uint32_t i = 0; i < N - 1; i++) {
        fix_step(&f, 2);
        dies(&f, i, 0);
        ready(&f, i);
        if (i < N - 2)
            fix_step(&f, 2);
    }
    f.g->rolling.phase = ROL_NONE; /* held back while the others die */
    for (uint32_t i = 0; i < N - 1; i++)
        fails(&f, i);
    f.g->rolling.todo = UINT64_C(1) << (N - 1);
    f.g->rolling.phase = ROL_WAITS;
    f.g->rolling.at = 0;
    fix_step(&f, 2);
    assert_false(rol_is_active(&f.g->rolling));
    assert_non_null(strstr(f.g->rolling.error, "group 2 "));
    assert_int_equal(f.g->wrk[N - 1].st, WRK_READY);
    fix_close(&f);
}

/* While the daemon drains, the group whose turn it is comes back, and no other one goes. */
static void
t_rolling_drained(void **state)
{
    struct fix f;

    (void)state;
    open_groups(&f, NULL);
    assert_int_equal(rol_begin(&f.g->rolling), 0);
    fix_step(&f, 2);
    f.g->env.st = GATE_DRAINING;
    dies(&f, 0, 0);
    assert_int_equal(f.g->wrk[0].st, WRK_STARTING);
    ready(&f, 0);
    for (int k = 0; k < 5; k++)
        fix_step(&f, 2);
    assert_true(rol_is_active(&f.g->rolling));
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(f.g->wrk[i].st, WRK_READY);
    f.g->env.st = GATE_RUNNING;
    fix_step(&f, 2);
    fix_step(&f, 2);
    assert_int_equal(f.g->wrk[1].st, WRK_STOPPING);
    fix_close(&f);
}

/* A request that was checked against one group's length does not go to a group with a lower
 * limit while there is another. */
static void
t_length(void **state)
{
    struct fix f;
    struct fcl c;
    uint64_t id;

    (void)state;
    fix_open(&f, sets);
    ready(&f, 1);
    assert_int_equal(fcl_open(&f, &c, OWN, NULL), FDP_OK);
    f.g->env.paused = 1;
    for (uint64_t tag = 1; tag < 4; tag++)
        submit(&c, tag, (uint32_t)tag, PROMPT);
    fix_step(&f, 0);
    for (uint32_t i = 0; i < N; i += 2) {
        fix_use(&f, i);
        fix_ready_as(&f, FIX_VOCAB, PROMPT / 2);
    }
    f.g->env.paused = 0;
    for (int k = 0; k < 3; k++) {
        fix_step(&f, 0);
        assert_int_equal(taken(&f, &id), 1);
    }
    end(&f, &c);
}

/* One group cannot be restarted and serve. */
static void
t_rolling_one(void **state)
{
    static const char *const one[] = { NULL };
    struct fix f;

    (void)state;
    open_groups(&f, one);
    assert_int_equal(rol_begin(&f.g->rolling), -ENOTSUP);
    fix_close(&f);
}

/* ---- seen -------------------------------------------------------------------------- */

static json_t *
ask(struct fix *f, const char *question)
{
    return fix_ctl(f, CTL_ADMIN, question);
}

static void
t_admin(void **state)
{
    json_t *r, *list;
    struct fix f;

    (void)state;
    open_groups(&f, NULL);
    r = ask(&f, "{\"cmd\":\"status\"}");
    list = json_object_get(r, "workers");
    assert_int_equal(json_array_size(list), N);
    for (uint32_t i = 0; i < N; i++) {
        json_t *w = json_array_get(list, i);

        assert_int_equal(json_integer_value(json_object_get(w, "group")), i);
        assert_string_equal(json_string_value(json_object_get(w, "state")), "ready");
    }
    json_decref(r);
    f.g->wrk[0].st = WRK_FAILED;
    r = ask(&f, "{\"cmd\":\"status\"}");
    assert_int_equal(json_integer_value(
                         json_object_get(json_object_get(r, "worker"), "group")),
        1);
    f.g->wrk[0].st = WRK_READY;
    r = (json_decref(r), ask(&f, "{\"cmd\":\"debug\",\"kill_worker\":true,\"group\":3}"));
    assert_true(json_is_false(json_object_get(r, "ok")));
    assert_non_null(strstr(json_string_value(json_object_get(r, "error")), "no group 3"));
    json_decref(r);
    f.g->seg[0].w.steps = 3;
    f.g->seg[2].w.steps = 4;
    r = ask(&f, "{\"cmd\":\"stat\"}");
    list = json_object_get(r, "counters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *o = json_array_get(list, i);

        if (strcmp(json_string_value(json_object_get(o, "name")), "steps") == 0)
            assert_int_equal(json_integer_value(json_object_get(o, "value")), 7);
        if (strcmp(json_string_value(json_object_get(o, "name")), "groups_ready") == 0)
            assert_int_equal(json_integer_value(json_object_get(o, "value")), N);
    }
    json_decref(r);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_least_loaded),
        cmocka_unit_test(t_load),
        cmocka_unit_test(t_share),
        cmocka_unit_test(t_prefix),
        cmocka_unit_test(t_samples),
        cmocka_unit_test(t_moved),
        cmocka_unit_test(t_moved_text),
        cmocka_unit_test(t_late_records),
        cmocka_unit_test(t_moves_end),
        cmocka_unit_test(t_moved_deadline),
        cmocka_unit_test(t_cancelled),
        cmocka_unit_test(t_events),
        cmocka_unit_test(t_manager),
        cmocka_unit_test(t_budget),
        cmocka_unit_test(t_cannot_run),
        cmocka_unit_test(t_other_model),
        cmocka_unit_test(t_hung),
        cmocka_unit_test(t_rolling),
        cmocka_unit_test(t_rolling_fails),
        cmocka_unit_test(t_rolling_other_model),
        cmocka_unit_test(t_rolling_repairs),
        cmocka_unit_test(t_rolling_alone),
        cmocka_unit_test(t_rolling_drained),
        cmocka_unit_test(t_length),
        cmocka_unit_test(t_rolling_one),
        cmocka_unit_test(t_admin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
