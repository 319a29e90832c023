/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/sim/arrivals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/capture.h"
#include "daemon/worker/lookahead.h"
#include "daemon/worker/scheduler.h"
#include "daemon/worker/worker.h"

#define MAX_DEPTH 4
#define MAX_USER  2
#define SEND_NS   15000 /* time of a client between two requests that it sends at once */
#define AGAIN_NS  50000 /* from the end of a request to the client's next one */
#define HOT_NS    4e9   /* time in ns in which the device's heat falls to 1/e */
#define N_HIST    (48 << 9)

struct hist {
    uint64_t n, max;
    uint32_t *at; /* [N_HIST] */
};

struct live {  /* a request in the engine, by req.idx */
    int32_t i; /* index of the request in the load */
    int32_t n; /* tokens published */
    uint64_t first, last, worst;
};

struct flight {
    uint64_t epoch, pick, begin, end, cmds_from, idle;
    int32_t cmds;
    struct cost_step cost;
    int32_t n_out, n_row;
    struct {
        int32_t slot;
        uint32_t generation;
    } * out; /* [max_seqs] */
};

struct sim {
    const struct arr_cfg *cfg;
    const struct arr_load *load;
    struct arr_sum *sum;
    struct worker w;
    struct eng_cfg ec;
    struct cap cap;
    struct req_pool rp;
    struct kv *kv;
    struct sch *sch;
    struct sch_step st;
    struct cost cost;
    struct lka lka;
    uint64_t now, rng;
    uint64_t dev_end; /* end of the last step launched */
    uint64_t work;    /* time since when there was a step to pick, */
    int idle_due;     /* and only lka_due() delayed it */
    uint64_t *at;     /* [n] time when a request is sent */
    int32_t n_at;     /* number of requests with a time */
    int32_t next[MAX_USER], turn;
    struct live *live; /* [credits] */
    int32_t n_live, credits, n_end;
    struct flight fl[MAX_DEPTH + 1];
    uint64_t done;      /* epoch of the last collected step */
    struct live **told; /* requests with tokens not yet published */
    size_t n_told;
    struct req **ended;
    size_t n_ended;
    double *ttft, *tpot; /* [n] ms, < 0: none */
    struct hist itl, ahead, gap;
    double busy, hot; /* ns; fraction of the last second in large steps */
    FILE *steps;
};

/* ---- figures ----------------------------------------------------------------------- */

/* Histogram index: 512 bins for each power of two. */
static int32_t
hist_at(uint64_t v)
{
    int k = 63 - __builtin_clzll(v | 512);

    return (k - 9) << 9 | (int32_t)(v >> (k - 9) & 511);
}

static void
hist_add(struct hist *h, uint64_t v)
{
    int32_t i = v < 512 ? (int32_t)v : hist_at(v) + 512;

    h->at[i < N_HIST ? i : N_HIST - 1]++;
    h->n++;
    h->max = v > h->max ? v : h->max;
}

static double
hist_value(int32_t i)
{
    int k = (i - 512) >> 9;

    return i < 512 ? i : ldexp((i & 511) + 512.5, k);
}

static double
hist_percentile(const struct hist *h, double p)
{
    uint64_t want = (uint64_t)((double)h->n * p), n = 0;

    if (h->n == 0)
        return 0;
    for (int32_t i = 0; i < N_HIST; i++) {
        n += h->at[i];
        if (n > want)
            return hist_value(i);
    }
    return (double)h->max;
}

static struct arr_dist
hist_dist(const struct hist *h, double unit)
{
    return (struct arr_dist){ hist_percentile(h, 0.5) / unit,
        hist_percentile(h, 0.99) / unit, (double)h->max / unit };
}

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
at_share(const double *v, size_t n, double p)
{
    double h = (double)(n - 1) * p;
    size_t i = (size_t)h;

    return i + 1 < n ? v[i] + (v[i + 1] - v[i]) * (h - (double)i) : v[n - 1];
}

/* Percentiles of the values that are at least 0; kind < 0: all kinds. */
static struct arr_dist
dist_of(const struct sim *s, const double *all, int32_t kind)
{
    double *v = mem_array((size_t)s->load->n, sizeof(*v));
    struct arr_dist d = { 0 };
    size_t n = 0;

    ASSERT(v != NULL);
    for (int32_t i = 0; i < s->load->n; i++)
        if (all[i] >= 0 && (kind < 0 || s->load->req[i].kind == kind))
            v[n++] = all[i];
    qsort(v, n, sizeof(*v), by_value);
    if (n > 0)
        d = (struct arr_dist){ at_share(v, n, 0.5), at_share(v, n, 0.99), v[n - 1] };
    free(v);
    return d;
}

/* ---- time --------------------------------------------------------------------------- */

/* The host's clock at time t. */
static uint64_t
sim_clock(const struct sim *s, uint64_t t)
{
    const struct arr_fault *f = &s->cfg->fault;
    int64_t n = 0;

    if (f->jump_ns != 0 && t >= f->jump_at_ns)
        n = f->jump_every_ns > 0 ? 1 + (int64_t)((t - f->jump_at_ns) / f->jump_every_ns) : 1;
    return t + 1000000000000u + (uint64_t)(n * f->jump_ns);
}

static void
sim_spend(struct sim *s, double us)
{
    s->now += (uint64_t)(us * 1000);
}

static uint64_t
sim_duration(struct sim *s, int32_t n_pad)
{
    const struct arr_fault *f = &s->cfg->fault;
    double ns = arr_dev_ns(&s->cfg->dev, &s->st.cost, n_pad);
    double x = 1 + s->cfg->dev.noise * arr_normal(&s->rng);

    ns *= (x < 0.5 ? 0.5 : x) * (1 + s->cfg->dev.hot * s->hot);
    if (f->slow > 0 && s->now >= f->slow_from_ns && s->now < f->slow_to_ns)
        ns *= f->slow;
    return (uint64_t)ns;
}

/* ---- arrivals ------------------------------------------------------------------------ */

static struct req *
sim_req(struct sim *s, int32_t i)
{
    const struct arr_req *q = &s->load->req[i];
    struct req *r = req_get(&s->rp, (uint64_t)i + 1);
    int32_t most = s->ec.max_len;

    ASSERT(r != NULL && q->user < MAX_USER);
    r->where = REQ_IN_ENGINE;
    r->user = (uint64_t)q->user;
    r->n_ids = r->n_prompt = q->n_in < most ? q->n_in : most - 1;
    r->max_len = r->n_ids + q->n_out < most ? r->n_ids + q->n_out : most;
    r->n_seq = 1;
    r->p.priority = q->priority;
    r->t_submit_ns = sim_clock(s, s->at[i]);
    r->ids = mem_array((size_t)r->n_ids, sizeof(*r->ids));
    ASSERT(r->ids != NULL);
    ASSERT_Z(req_make_seqs(r));
    s->live[r->idx] = (struct live){ .i = i };
    return r;
}

/* Index of the next request of user, or n. */
static int32_t
sim_next(struct sim *s, int32_t user)
{
    int32_t *i = &s->next[user];

    while (*i < s->n_at && s->load->req[*i].user != user)
        (*i)++;
    return *i;
}

/* Time when the engine sees the next request of user; UINT64_MAX: none for now. */
static uint64_t
sim_next_at(struct sim *s, int32_t user)
{
    int32_t i = sim_next(s, user);

    return i < s->n_at ? s->at[i] + (uint64_t)(s->cfg->dev.in_us * 1000) : UINT64_MAX;
}

/* Takes the requests that have arrived, one of each user in turn, while there is room. */
static int
sim_take(struct sim *s)
{
    int n = 0, none = 0;

    while (s->n_live < s->credits && none < MAX_USER) {
        int32_t u = s->turn++ % MAX_USER;

        if (sim_next_at(s, u) > s->now) {
            none++;
            continue;
        }
        none = 0;
        sch_add(s->sch, sim_req(s, s->next[u]++));
        s->n_live++;
        n++;
    }
    return n;
}

static void
sim_more_closed(struct sim *s)
{
    if (s->load->closed == 0 || s->n_at == s->load->n)
        return;
    s->at[s->n_at++] = s->now + (uint64_t)(s->cfg->dev.out_us * 1000) + AGAIN_NS;
}

/* ---- results ------------------------------------------------------------------------- */

static void
sim_token(struct sim *s, struct live *l)
{
    uint64_t t = s->now + (uint64_t)(s->cfg->dev.out_us * 1000);

    if (l->n++ == 0) {
        l->first = t;
        s->ttft[l->i] = (double)(t - s->at[l->i]) / 1e6;
    } else if (t > l->last) {
        hist_add(&s->itl, t - l->last);
        l->worst = t - l->last > l->worst ? t - l->last : l->worst;
    }
    l->last = t;
    s->sum->n_out++;
}

static void
sim_end(struct sim *s, struct req *r)
{
    const struct live *l = &s->live[r->idx];
    const struct arr_cfg *c = s->cfg;

    ASSERT(r->code == 0);
    s->sum->n_ok += l->n == r->max_len - r->n_ids;
    if (l->n > 1)
        s->tpot[l->i] = (double)(l->last - l->first) / 1e6 / (l->n - 1);
    s->sum->n_good += s->ttft[l->i] <= c->ttft_ms && (double)l->worst <= c->itl_ms * 1e6;
    s->sum->wall_s = (double)l->last / 1e9;
    req_put(&s->rp, r);
    s->n_live--;
    s->n_end++;
    sim_more_closed(s);
}

/* Publishes the collected tokens to the clients. */
static void
sim_publish(struct sim *s)
{
    for (size_t i = 0; i < s->n_told; i++)
        sim_token(s, s->told[i]);
    s->n_told = 0;
    for (size_t i = 0; i < s->n_ended; i++)
        sim_end(s, s->ended[i]);
    s->n_ended = 0;
}

static struct flight *
sim_oldest(struct sim *s)
{
    return &s->fl[(s->done + 1) % (MAX_DEPTH + 1)];
}

static int32_t
sim_n_flight(const struct sim *s)
{
    return (int32_t)(s->sch->epoch - s->done);
}

static void
sim_collect(struct sim *s)
{
    struct flight *f = sim_oldest(s);
    double wrong = s->cfg->fault.wrong > 0 ? s->cfg->fault.wrong : 1;
    uint64_t took = f->end - f->begin, end = sim_clock(s, f->end);
    struct req *r;

    sim_spend(s, s->cfg->dev.collect_us + s->cfg->dev.row_us * f->n_row);
    s->done++;
    for (int32_t i = 0; i < f->n_out; i++) {
        struct seq *q = sch_slot(s->sch, f->out[i].slot, f->out[i].generation);

        ASSERT(q != NULL && q->state != REQ_ST_FINISHING);
        s->told[s->n_told++] = &s->live[q->req->idx];
        sch_append(s->sch, q, 0, q->n_tok + 1 == q->max_len);
    }
    sch_collected(s->sch, s->done);
    cost_learn(&s->cost, &f->cost, (uint64_t)((double)took * wrong));
    lka_collected(&s->lka, end - took, end, f->idle);
    while ((r = sch_take_ended(s->sch)) != NULL)
        s->ended[s->n_ended++] = r;
}

static int
sim_collect_done(struct sim *s)
{
    int n = 0;

    while (sim_n_flight(s) > 0 && sim_oldest(s)->end <= s->now) {
        sim_collect(s);
        n++;
    }
    return n;
}

/* ---- a step -------------------------------------------------------------------------- */

/* The driver's queue holds this many commands: adding more waits until the device has
 * taken earlier ones, in order. */
static void
sim_queue(struct sim *s, int32_t cmds)
{
    double more = cmds - s->cfg->dev.queue_cmds, left;
    int32_t n = sim_n_flight(s);

    for (int32_t i = 1; i < n; i++)
        more += s->fl[(s->done + (uint64_t)i) % (MAX_DEPTH + 1)].cmds;
    for (int32_t i = 1; i < n && more > 0; i++) {
        const struct flight *f = &s->fl[(s->done + (uint64_t)i) % (MAX_DEPTH + 1)];
        double each = (double)(f->end - f->begin) / f->cmds;
        uint64_t until;

        left = more < f->cmds ? more : f->cmds;
        until = f->begin + (uint64_t)(left * each);
        s->now = until > s->now ? until : s->now;
        more -= left;
    }
}

static void
sim_record(struct sim *s, const struct flight *f)
{
    if (s->steps == NULL)
        return;
    (void)fprintf(s->steps,
        "%llu pick %.3f begin %.3f end %.3f tok %d decode %d sample %d "
        "waiting %d predict %.3f\n",
        (unsigned long long)f->epoch, (double)f->pick / 1e6, (double)f->begin / 1e6,
        (double)f->end / 1e6, s->st.n_tok, s->st.n_decode, s->st.n_sample,
        s->sch->waiting.n, (double)cost_predict(&s->cost, &f->cost) / 1e6);
}

static void
sim_launch(struct sim *s, uint64_t pick)
{
    const struct arr_dev *d = &s->cfg->dev;
    struct flight *f = &s->fl[s->st.epoch % (MAX_DEPTH + 1)];
    int32_t pad = s->st.n_tok <= d->graph_tok ? cap_map(&s->cap, s->st.n_tok) : 0;
    uint64_t from, free_at = s->dev_end + (uint64_t)(d->gap_us * 1000);

    sim_spend(s, d->graph_us + d->row_us * s->st.n_row);
    from = s->now > free_at ? s->now : free_at;
    f->epoch = s->st.epoch;
    f->pick = pick;
    f->begin = from;
    f->end = from + sim_duration(s, pad > 0 ? pad : s->st.n_tok);
    f->cost = s->st.cost;
    f->n_row = s->st.n_row;
    f->n_out = 0;
    f->cmds = pad > 0 ? 4 : d->eager_cmds;
    if (s->dev_end > s->work)
        s->work = s->dev_end;
    f->idle = from > s->work ? from - s->work : 0;
    hist_add(&s->gap, f->idle);
    f->idle = s->idle_due ? f->idle : 0;
    hist_add(&s->ahead, from - pick);
    for (int32_t i = 0; i < s->st.n_row; i++)
        if (s->st.rows[i].sample) {
            f->out[f->n_out].slot = s->st.rows[i].seq->slot;
            f->out[f->n_out++].generation = s->st.rows[i].seq->generation;
        }
    s->hot *= exp(-(double)(f->end - s->dev_end) / HOT_NS);
    s->hot += pad == 0 ? 1 - exp(-(double)(f->end - f->begin) / HOT_NS) : 0;
    s->busy += (double)(f->end - f->begin);
    s->dev_end = f->end;
    if (pad == 0) {
        sim_spend(s, d->eager_us - d->graph_us);
        sim_queue(s, f->cmds);
    }
    lka_launched(&s->lka, sim_clock(s, pick), sim_clock(s, s->now),
        cost_predict(&s->cost, &f->cost));
    sim_record(s, f);
    s->sum->n_step++;
}

/* Time when a step may be picked; UINT64_MAX: not before one is collected. */
static uint64_t
sim_due(struct sim *s)
{
    uint64_t clock = sim_clock(s, s->now), due;

    if (sim_n_flight(s) > s->ec.depth)
        return UINT64_MAX;
    if (s->cfg->policy == ARR_EARLY)
        return 0;
    due = lka_due(&s->lka, clock);
    return due == UINT64_MAX ? due : due <= clock ? 0 : s->now + (due - clock);
}

static int
sim_pick(struct sim *s)
{
    uint64_t pick = s->now;

    if (sim_due(s) > s->now || !sch_busy(s->sch))
        return 0;
    if (sch_pick(s->sch, sim_clock(s, pick), &s->st) == 0) {
        s->work = s->now;
        s->idle_due = 0;
        return 0;
    }
    if (s->cfg->check)
        sch_check(s->sch);
    sim_launch(s, pick);
    s->idle_due = 1;
    return 1;
}

/* There is nothing to do: advances to the next time when there may be. */
static void
sim_sleep(struct sim *s, int empty)
{
    uint64_t at = UINT64_MAX, t;

    for (int32_t u = 0; u < MAX_USER && s->n_live < s->credits; u++) {
        t = sim_next_at(s, u);
        at = t < at ? t : at;
    }
    if (sim_n_flight(s) > 0 && sim_oldest(s)->end < at)
        at = sim_oldest(s)->end;
    if (sch_busy(s->sch) && !empty) {
        t = sim_due(s);
        at = t < at ? t : at;
    }
    if (at == UINT64_MAX)
        WRONG("requests are open and nothing moves");
    s->now = at > s->now ? at : s->now;
}

static void
sim_poll(struct sim *s)
{
    int was_busy = sch_busy(s->sch), work, picked, due;

    work = sim_take(s);
    if (!was_busy && sch_busy(s->sch)) {
        s->work = s->now;
        s->idle_due = 0;
    }
    work += sim_collect_done(s);
    if (!s->cfg->late)
        sim_publish(s);
    due = sch_busy(s->sch) && sim_due(s) <= s->now;
    picked = sim_pick(s);
    if (s->cfg->late)
        sim_publish(s);
    if (work == 0 && picked == 0)
        sim_sleep(s, due);
}

/* ---- life ---------------------------------------------------------------------------- */

/* The shapes that prime.c measures before the first request. */
static void
sim_prime(struct sim *s)
{
    static const struct {
        int32_t n_decode, context, n_prefill;
    } shape[] = { { 1, 256, 0 }, { 8, 512, 0 }, { 0, 0, 64 }, { 0, 0, 128 },
        { 32, 512, 0 }, { 0, 0, 512 }, { 64, 1024, 0 }, { 128, 1024, 0 }, { 0, 0, 2048 },
        { 256, 512, 0 } };
    double wrong = s->cfg->fault.wrong > 0 ? s->cfg->fault.wrong : 1;

    cost_init(&s->cost);
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        int32_t q = shape[i].n_prefill;
        struct cost_step step = { .n_tok = shape[i].n_decode + q,
            .n_ctx = (int64_t)shape[i].n_decode * shape[i].context,
            .n_pair = (int64_t)q * (q + 1) / 2 };

        cost_learn(&s->cost, &step,
            (uint64_t)(arr_dev_ns(&s->cfg->dev, &step, step.n_tok) * wrong));
    }
    cost_trust(&s->cost);
}

static void
sim_configure(struct sim *s)
{
    const struct arr_dev *d = &s->cfg->dev;
    int32_t n_seq, ahead;

    s->w.par = *s->cfg->par;
    s->w.par.device_backend = PAR_DEVICE_BACKEND_CUDA;
    s->w.seg = mem_aligned(128, sizeof(*s->w.seg));
    ASSERT(s->w.seg != NULL);
    s->w.prog = calloc(1, sizeof(*s->w.prog));
    ASSERT(s->w.prog != NULL);
    s->w.prog->n_kv_group = 1;
    s->w.n_block = d->n_block;
    s->w.max_len = d->max_len;
    wrk_eng_cfg(&s->w, &s->ec);
    s->ec.sch.cost = &s->cost;
    s->ec.sch.max_scores = 1; /* no request wants logprobs of its prompt */
    ASSERT(s->ec.depth >= 0 && s->ec.depth <= MAX_DEPTH);
    n_seq = s->ec.sch.max_seqs;
    ahead = n_seq / 8 > 8 ? n_seq / 8 : 8;
    s->credits = n_seq + ahead;
    cap_default(d->graph_tok, &s->cap);
}

static void
sim_new(struct sim *s)
{
    struct kv_cfg kc;
    size_t n = (size_t)s->load->n, rows;

    sim_configure(s);
    sim_prime(s);
    lka_init(&s->lka, s->ec.depth);
    kc = (struct kv_cfg){ .n_block = s->ec.n_block,
        .block_size = s->ec.block_size,
        .n_slot = s->ec.sch.max_seqs,
        .max_len = s->ec.max_len };
    s->kv = kv_new(&kc);
    ASSERT(s->kv != NULL);
    s->sch = sch_new(&s->ec.sch, s->kv);
    ASSERT(s->sch != NULL);
    rows = (size_t)s->ec.sch.max_seqs;
    ASSERT_Z(sch_step_init(&s->st, s->ec.sch.max_seqs));
    ASSERT_Z(req_pool_init(&s->rp, (uint32_t)s->credits));
    s->live = mem_array((size_t)s->credits, sizeof(*s->live));
    s->told = mem_array(rows * (MAX_DEPTH + 1), sizeof(*s->told));
    s->ended = mem_array((size_t)s->credits, sizeof(*s->ended));
    s->at = mem_array(n, sizeof(*s->at));
    s->ttft = mem_array(n, sizeof(*s->ttft));
    s->tpot = mem_array(n, sizeof(*s->tpot));
    s->itl.at = mem_array(N_HIST, sizeof(*s->itl.at));
    s->ahead.at = mem_array(N_HIST, sizeof(*s->itl.at));
    s->gap.at = mem_array(N_HIST, sizeof(*s->itl.at));
    ASSERT(s->live != NULL && s->told != NULL && s->ended != NULL && s->at != NULL &&
        s->ttft != NULL && s->tpot != NULL && s->itl.at != NULL && s->ahead.at != NULL &&
        s->gap.at != NULL);
    for (int i = 0; i <= MAX_DEPTH; i++) {
        s->fl[i].out = mem_array(rows, sizeof(*s->fl[i].out));
        ASSERT(s->fl[i].out != NULL);
    }
    for (size_t i = 0; i < n; i++) {
        s->ttft[i] = s->tpot[i] = -1;
        s->at[i] = s->load->closed > 0 ? i * SEND_NS : s->load->req[i].at_ns;
    }
    s->n_at =
        s->load->closed > 0 && s->load->closed < s->load->n ? s->load->closed : s->load->n;
    s->rng = s->cfg->seed;
    s->steps = s->cfg->steps != NULL ? fopen(s->cfg->steps, "we") : NULL;
}

static void
sim_fini(struct sim *s)
{
    if (s->steps != NULL)
        (void)fclose(s->steps);
    for (int i = 0; i <= MAX_DEPTH; i++)
        free(s->fl[i].out);
    free(s->live);
    free(s->told);
    free(s->ended);
    free(s->at);
    free(s->ttft);
    free(s->tpot);
    free(s->itl.at);
    free(s->ahead.at);
    free(s->gap.at);
    sch_step_fini(&s->st);
    (void)sch_free(s->sch);
    (void)kv_free(s->kv);
    req_pool_fini(&s->rp);
    free(s->w.prog);
    free(s->w.seg);
}

static void
sim_record_requests(const struct sim *s)
{
    FILE *f = s->cfg->requests != NULL ? fopen(s->cfg->requests, "we") : NULL;

    if (f == NULL)
        return;
    for (int32_t i = 0; i < s->load->n; i++) {
        const struct arr_req *q = &s->load->req[i];

        (void)fprintf(f, "at %.3f in %d out %d user %d ttft %.3f tpot %.3f\n",
            (double)s->at[i] / 1e6, q->n_in, q->n_out, q->user, s->ttft[i], s->tpot[i]);
    }
    (void)fclose(f);
}

static void
sim_sum(struct sim *s)
{
    struct arr_sum *r = s->sum;

    sim_record_requests(s);
    r->tok_s = r->wall_s > 0 ? (double)r->n_out / r->wall_s : 0;
    r->goodput = r->wall_s > 0 ? r->n_good / r->wall_s : 0;
    r->busy = r->wall_s > 0 ? s->busy / r->wall_s / 1e9 : 0;
    r->ttft = dist_of(s, s->ttft, -1);
    r->tpot = dist_of(s, s->tpot, -1);
    for (int32_t k = 0; k < ARR_N_KIND; k++)
        r->kind_ttft[k] = dist_of(s, s->ttft, k);
    r->itl = hist_dist(&s->itl, 1e6);
    r->ahead = hist_dist(&s->ahead, 1e6);
    r->gap = hist_dist(&s->gap, 1e3);
    r->n_preempted = s->sch->n_preempted;
}

void
arr_run(const struct arr_cfg *cfg, const struct arr_load *load, struct arr_sum *ret)
{
    struct sim *s = mem_zalloc(sizeof(*s));
    clock_t begin = clock();

    ASSERT(s != NULL && load->n > 0);
    *ret = (struct arr_sum){ .n_ok = 0 };
    s->cfg = cfg;
    s->load = load;
    s->sum = ret;
    sim_new(s);
    while (s->n_end < load->n)
        sim_poll(s);
    sch_check(s->sch);
    sim_sum(s);
    sim_fini(s);
    free(s);
    ret->cpu_s = (double)(clock() - begin) / CLOCKS_PER_SEC;
}
