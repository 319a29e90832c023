/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/queue.h>

#define IDLE_NS    (100 * CLK_MS) /* longest wait between looks at signals */
#define NO_ROOM_NS (1 * CLK_MS)   /* until a send into a full request ring is retried */
#define LEAD_NS    (2 * CLK_MS)   /* time to prepare the first request */
#define PAUSE_MS   10u            /* shortest pause of a client whose request failed */

/* A conversation: its open request, or its next one. */
struct slot {
    struct fdb_ask ask;
    struct fdb_rec rec;
    struct fct_buf prompt;
    struct fdb_chunk *chunk;
    size_t cap_chunk;
    fdc_req_t *h;
    uint64_t t_wake;        /* time before which it is not sent */
    int held;               /* it waited for room in the session */
    TAILQ_ENTRY(slot) next; /* in one of phase's lists */
    SLIST_ENTRY(slot) of_all;
};
TAILQ_HEAD(list, slot);

struct phase {
    struct fdb_load *l;
    const struct fdb_cfg *cfg;
    struct fdb_work *w;
    struct fdb_log *log;
    struct fdb_run *run;
    SLIST_HEAD(, slot) all;
    struct list idle, rest; /* unused slots; clients that pause */
    struct list ready;      /* next turns, then start */
    struct slot *start;     /* the next conversation; NULL: not prepared */
    uint32_t repeat, index;
    uint8_t warm;
    int closed, bar; /* is it a closed loop? is a progress bar drawn? */
    uint32_t limit;  /* most requests open at a time */
    uint32_t n_open, n_rest, n_over;
    uint64_t n_tok, t0, t_stop, t_shown;
    int stopping; /* no more requests are sent */
    int rc;
};

/* Call it before other output. */
static void
clear_bar(const struct phase *p)
{
    if (p->bar && p->t_shown != p->t0)
        fputs("\r\033[K", stderr);
}

/* Send no more requests. Returns 1 for the first failure: the caller prints a message. */
static int
stop(struct phase *p)
{
    p->stopping = 1;
    if (p->rc == 0)
        clear_bar(p);
    return p->rc == 0;
}

static void
out_of_memory(struct phase *p)
{
    if (stop(p))
        p->rc = fct_fail(EX_SOFTWARE,
            "out of memory: %zu requests and %zu arrivals are in the log", p->log->n_rec,
            p->log->n_chunk);
}

/* Make the next prompt of s before it is due. */
static void
make_ready(struct phase *p, struct slot *s)
{
    s->held = 0;
    if (fdb_work_prompt(p->w, &s->ask, &s->prompt) != 0)
        out_of_memory(p);
    if (p->start != NULL)
        TAILQ_INSERT_BEFORE(p->start, s, next);
    else
        TAILQ_INSERT_TAIL(&p->ready, s, next);
}

/* Prepare the next conversation. */
static void
prepare(struct phase *p)
{
    struct fdb_ask ask;
    struct slot *s;

    if (p->start != NULL || p->stopping || !fdb_work_next(p->w, &ask))
        return;
    s = TAILQ_FIRST(&p->idle);
    if (s != NULL) {
        TAILQ_REMOVE(&p->idle, s, next);
    } else if ((s = calloc(1, sizeof(*s))) != NULL) {
        SLIST_INSERT_HEAD(&p->all, s, of_all);
    } else {
        out_of_memory(p);
        return;
    }
    s->ask = ask;
    s->t_wake = p->t0 + ask.due_ns;
    make_ready(p, s);
    p->start = s;
}

/* ---- the end of a request ------------------------------------------------ */

/* Continue with the next turn of s, or free the slot. */
static void
go_on(struct phase *p, struct slot *s)
{
    if (!s->ask.more || p->stopping) {
        TAILQ_INSERT_TAIL(&p->idle, s, next);
        return;
    }
    fdb_work_turn(p->w, &s->ask);
    make_ready(p, s);
}

static void
end_request(struct phase *p, struct slot *s, uint64_t now, uint32_t retry_ms)
{
    s->rec.t_end = now;
    if (fdb_log_rec(p->log, &s->rec, s->chunk) != 0)
        out_of_memory(p);
    p->n_open -= s->h != NULL;
    fdc_req_free(s->h);
    s->h = NULL;
    p->run->t_end = now;
    p->n_over++;
    /* A refused client pauses as long as the daemon asks for and does not retry. */
    if (s->rec.code != FDC_OK)
        retry_ms = MAX(retry_ms, PAUSE_MS);
    s->t_wake = now + retry_ms * CLK_MS;
    if (retry_ms > 0 && !p->stopping && (p->closed || s->ask.more)) {
        TAILQ_INSERT_TAIL(&p->rest, s, next);
        p->n_rest++;
    } else {
        go_on(p, s);
    }
}

static void
wake_up(struct phase *p, uint64_t now)
{
    struct slot *s, *after;

    for (s = TAILQ_FIRST(&p->rest); s != NULL; s = after) {
        after = TAILQ_NEXT(s, next);
        if (s->t_wake > now && !p->stopping)
            continue;
        TAILQ_REMOVE(&p->rest, s, next);
        p->n_rest--;
        go_on(p, s);
    }
}

/* Print each status once, with the parameter, which the log does not have. */
static void
say_failure(struct phase *p, uint32_t index, const struct fdc_error *e)
{
    uint64_t bit = e->code < 0 && e->code > -64 ? (uint64_t)1 << -e->code : 0;
    char text[256];

    if ((p->l->said & bit) != 0 || e->code == FDC_E_CANCELLED ||
        e->code == FDC_E_DISCONNECTED)
        return;
    p->l->said |= bit;
    clear_bar(p);
    fct_error_text(e, text, sizeof(text));
    fct_fail(0, "request %u: %s", index, text);
}

static void
session_over(struct phase *p, int why)
{
    if (stop(p))
        p->rc = fct_unav("%s (%s): %u of the requests ended before", fdc_strerror(why),
            fdc_status_name(why), p->n_over);
}

/* ---- sending ------------------------------------------------------------- */

static int
submit(struct phase *p, struct slot *s)
{
    struct fct_req q = p->cfg->req;

    q.p.max_new = s->ask.max_new;
    q.p.seed = fdb_mix(p->cfg->seed, ((uint64_t)p->repeat << 32) + p->index);
    q.o.user_ptr = s;
    q.text = s->prompt.p;
    q.n_text = s->prompt.n;
    q.ids = p->cfg->text ? NULL : (uint32_t *)(void *)s->prompt.p;
    q.n_ids = s->prompt.n / sizeof(*q.ids);
    return fct_req_submit(p->l->session, &q, &s->h);
}

/* Returns 0 if it was sent or failed at once, FDC_E_FULL if there is no room now. */
static int
send_one(struct phase *p, struct slot *s)
{
    struct fdb_run *run = p->run;
    uint64_t t_send = clk_now_ns();
    int rc;

    /* A closed loop's requests are due when a client is free to send them. */
    if (p->closed && !s->held)
        s->t_wake = t_send;
    rc = submit(p, s);
    if (rc == FDC_E_FULL || rc == FDC_E_TIMEOUT) {
        s->held = 1;
        return FDC_E_FULL;
    }
    if (rc < 0 && fdc_state(p->l->session, NULL) < 0) {
        session_over(p, rc);
        return 0;
    }
    TAILQ_REMOVE(&p->ready, s, next);
    if (s == p->start)
        p->start = NULL;
    s->rec = (struct fdb_rec){ .index = p->index++,
        .repeat = p->repeat,
        .warm = p->warm,
        .conversation = s->ask.conversation,
        .turn = s->ask.turn,
        .max_new = s->ask.max_new,
        .t_due = s->t_wake,
        .t_send = t_send };
    run->late_ms = fmax(run->late_ms, (double)(t_send - s->t_wake) / 1e6);
    run->t_begin = run->t_begin == 0 ? t_send : run->t_begin;
    run->n_held += (uint32_t)s->held;
    if (rc < 0) {
        s->rec.code = rc;
        say_failure(p, s->rec.index, &(struct fdc_error){ .code = rc });
        end_request(p, s, clk_now_ns(), 0);
    } else if (++p->n_open > run->max_concurrent_requests) {
        run->max_concurrent_requests = p->n_open;
    }
    return 0;
}

/* Send all requests that are due; next turns come before new conversations. */
static void
send_due(struct phase *p)
{
    for (;;) {
        uint64_t now = clk_now_ns();
        struct slot *s;

        if (p->t_stop != 0 && now >= p->t_stop)
            p->stopping = 1;
        prepare(p);
        s = TAILQ_FIRST(&p->ready);
        if (p->stopping || s == NULL || (s == p->start && s->t_wake > now))
            return;
        /* in a closed loop a paused client counts as open */
        if (p->n_open + (p->closed ? p->n_rest : 0) >= p->limit) {
            s->held |= !p->closed;
            return;
        }
        if (send_one(p, s) != 0 || p->stopping)
            return;
    }
}

/* ---- receiving ----------------------------------------------------------- */

/* Returns 1 if the request has ended. */
static int
take_event(struct phase *p, struct slot *s, const struct fdc_event *ev, uint64_t now)
{
    const struct fdc_done *d = ev->done;
    struct fdb_rec *r = &s->rec;
    int rc = 0;

    switch (ev->type) {
    case FDC_T_IDS:
        rc = fct_room(&s->chunk, (size_t)r->n_chunk + 1, &s->cap_chunk, sizeof(*s->chunk));
        if (rc != 0)
            break;
        r->t_first = r->n_chunk == 0 ? now : r->t_first;
        s->chunk[r->n_chunk++] = (struct fdb_chunk){ .t_ns = now, .n_tok = ev->n };
        r->n_out += ev->n;
        p->n_tok += ev->n;
        if (s->ask.more && !p->cfg->text)
            rc = fct_buf_add(&s->prompt, ev->ids, ev->n * sizeof(*ev->ids));
        break;
    case FDC_T_TEXT:
        if (s->ask.more && p->cfg->text)
            rc = fct_buf_add(&s->prompt, ev->text, ev->n);
        break;
    case FDC_T_ACCEPTED:
        r->n_prompt = ev->accepted->prompt_len;
        r->n_cached = ev->accepted->cached_len;
        break;
    case FDC_T_CHOICE_END:
        r->finish = ev->choice_end->finish;
        break;
    case FDC_T_DONE:
        r->n_prompt = d->prompt_tokens;
        r->n_cached = d->cached_tokens;
        r->n_out = d->output_tokens;
        r->n_preempted = d->n_preempted;
        r->queue_ns = d->t_start > d->t_submit ? d->t_start - d->t_submit : 0;
        p->run->n_preempted += d->n_preempted;
        end_request(p, s, now, 0);
        return 1;
    case FDC_T_ERROR:
        r->code = ev->error->code;
        say_failure(p, r->index, ev->error);
        if (fdc_state(p->l->session, NULL) < 0)
            session_over(p, r->code);
        end_request(p, s, now, ev->error->retry_after_ms);
        return 1;
    default:
        break;
    }
    if (rc != 0)
        out_of_memory(p);
    return 0;
}

/* Take the events that arrive until t_due. Returns 1 once a request has ended. */
static int
receive(struct phase *p, uint64_t t_due)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *h;
    uint64_t now = 0;

    while (now < t_due && fdc_wait_any(p->l->session, &h, 0) == 1) {
        int rc = fdc_next(h, &ev, 0);

        now = clk_now_ns();
        if (rc == 1 && take_event(p, fdc_req_user(h), &ev, now))
            return 1;
    }
    return 0;
}

static void
show(struct phase *p, uint64_t now)
{
    static const char full[] = "########################",
                      rest[] = "------------------------";
    const struct fdb_cfg *c = p->cfg;
    double s = now > p->t0 ? (double)(now - p->t0) / 1e9 : 0, part = 0;
    char of[24] = "", bar[32] = "", line[160];
    struct winsize ws = { .ws_col = 0 };
    int n, most = (int)sizeof(full) - 1;

    if ((!p->bar && (!p->l->lines || p->l->quiet)) || now < p->t_shown ||
        now - p->t_shown < (p->bar ? 200u : 5000u) * CLK_MS)
        return;
    p->t_shown = now;
    if (c->n_request > 0) {
        part = (double)p->n_over / c->n_request;
        snprintf(of, sizeof(of), "/%u", c->n_request);
    }
    if (c->duration_s > 0)
        part = fmax(part, s / c->duration_s);
    n = (int)(fmin(part, 1) * most);
    if (p->bar)
        snprintf(bar, sizeof(bar), " [%.*s%.*s]", n, full, most - n, rest);
    snprintf(line, sizeof(line), "%s: %.0f s: %u%s requests, %u open, %.0f tokens/s%s",
        p->warm ? "warm-up" : "run", s, p->n_over, of, p->n_open,
        s > 0 ? (double)p->n_tok / s : 0, bar);
    /* A line that wraps could not be overwritten. */
    (void)ioctl(STDERR_FILENO, TIOCGWINSZ, &ws);
    if (p->bar)
        fprintf(stderr, "\r%.*s\033[K", ws.ws_col > 0 ? ws.ws_col - 1 : 79, line);
    else
        fprintf(stderr, "%s\n", line);
}

/* ---- one phase ----------------------------------------------------------- */

/* The time until which the loop only has to receive. */
static uint64_t
next_due(const struct phase *p, uint64_t now)
{
    uint64_t t = now + IDLE_NS;
    const struct slot *s = TAILQ_FIRST(&p->ready);

    if (!p->stopping && s != NULL && p->n_open < p->limit) {
        if (s->held)
            t = now + NO_ROOM_NS;
        else if (!p->closed)
            t = MIN(t, s->t_wake);
    }
    for (s = TAILQ_FIRST(&p->rest); s != NULL; s = TAILQ_NEXT(s, next))
        t = MIN(t, s->t_wake);
    return MAX(t, now);
}

/* Sleep until t_due or until an event arrives. */
static void
wait_until(struct phase *p, uint64_t t_due)
{
    struct pollfd pfd = { .fd = fdc_fd(p->l->session), .events = POLLIN };
    uint64_t now = clk_now_ns();
    struct timespec ts;
    int rc = fdc_dispatch(p->l->session);

    if (rc < 0) {
        session_over(p, rc);
        return;
    }
    if (rc > 0 || t_due <= now)
        return;
    ts.tv_sec = (time_t)((t_due - now) / 1000000000u);
    ts.tv_nsec = (long)((t_due - now) % 1000000000u);
    (void)ppoll(&pfd, 1, &ts, NULL);
}

static void
loop(struct phase *p)
{
    struct slot *s;
    uint64_t now;

    for (;;) {
        now = clk_now_ns();
        if (fct_interrupted && stop(p))
            p->rc = fct_fail(FCT_EX_INT,
                "interrupted: %u requests ended before, %u are cancelled", p->n_over,
                p->n_open);
        wake_up(p, now);
        if (!p->stopping)
            send_due(p);
        /* after a failure all open requests end here */
        s = p->rc != 0 ? SLIST_FIRST(&p->all) : NULL;
        for (; s != NULL; s = SLIST_NEXT(s, of_all))
            if (s->h != NULL) {
                s->rec.code =
                    p->rc == EX_UNAVAILABLE ? FDC_E_DISCONNECTED : FDC_E_CANCELLED;
                end_request(p, s, now, 0);
            }
        if (p->n_open == 0 && (p->stopping || (TAILQ_EMPTY(&p->ready) && p->n_rest == 0)))
            return;
        show(p, now);
        if (!receive(p, next_due(p, now)))
            wait_until(p, next_due(p, clk_now_ns()));
    }
}

static int
run_phase(struct fdb_load *l, const struct fdb_cfg *cfg, uint32_t repeat, int warm,
    uint32_t first_index, struct fdb_log *log, struct fdb_run *ret)
{
    struct phase p = { .l = l,
        .cfg = cfg,
        .log = log,
        .run = ret,
        .repeat = repeat,
        .index = first_index,
        .warm = (uint8_t)warm,
        .closed = cfg->arrival == FDB_CLOSED,
        .bar = !l->quiet && !l->lines && isatty(STDERR_FILENO),
        .limit = l->info.max_inflight };
    uint64_t cpu = clk_of_ns(CLOCK_PROCESS_CPUTIME_ID);
    struct slot *s;
    int rc = fdb_work_new(cfg, &l->model, fdb_mix(cfg->seed, 2 * repeat + (uint64_t)warm),
        &p.w);

    if (rc != 0)
        return rc;
    TAILQ_INIT(&p.idle);
    TAILQ_INIT(&p.ready);
    TAILQ_INIT(&p.rest);
    if (cfg->concurrency > 0)
        p.limit = MIN(p.limit, cfg->concurrency);
    p.t0 = p.t_shown = clk_now_ns() + LEAD_NS;
    if (cfg->duration_s > 0)
        p.t_stop = p.t0 + (uint64_t)(cfg->duration_s * 1e9);
    loop(&p);
    ret->cpu_ns = clk_of_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    clear_bar(&p);
    while ((s = SLIST_FIRST(&p.all)) != NULL) {
        SLIST_REMOVE_HEAD(&p.all, of_all);
        fdc_req_free(s->h);
        free(s->prompt.p);
        free(s->chunk);
        free(s);
    }
    free(p.w);
    return p.rc;
}

int
fdb_load_run(struct fdb_load *l, uint32_t repeat, struct fdb_log *log, struct fdb_run *ret)
{
    struct fdb_cfg warm = l->cfg;
    uint32_t n_warm = repeat == 0 ? warm.n_warm : 0;
    struct fdb_run run = { .n_held = 0 };
    size_t first = log->n_rec, i;
    int rc = 0, code = FDC_OK;

    if (!fct_interrupted) {
        fct_catch(SIGINT, SA_RESETHAND);
        fct_catch(SIGTERM, SA_RESETHAND);
    }
    /* Else the timers of an open loop are up to 50 us late. */
    (void)prctl(PR_SET_TIMERSLACK, 1);
    *ret = run;
    if (n_warm > 0) {
        warm.arrival = FDB_CLOSED;
        warm.n_request = n_warm;
        warm.duration_s = 0;
        if (l->cfg.arrival != FDB_CLOSED)
            warm.concurrency = n_warm;
        rc = run_phase(l, &warm, repeat, 1, 0, log, &run);
        for (i = first; i < log->n_rec; i++)
            if (fct_exit_code(code = log->rec[i].code) != EX_DATAERR)
                break;
        /* If all warm-up requests are invalid, those of the run are so too. */
        if (rc == 0 && i == log->n_rec && i > first)
            rc = fct_data("every request of the warm-up was refused: %s (%s)",
                fdc_strerror(code), fdc_status_name(code));
    }
    if (rc == 0)
        rc = run_phase(l, &l->cfg, repeat, 0, n_warm, log, ret);
    return rc;
}
