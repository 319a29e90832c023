/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/trace/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/version.h"
#include "tools/fdctl/lib/fct.h"

/* Processes and threads are how the viewer groups tracks. */
enum { P_DEVICE = 1, P_ENGINE = 2, P_REQUEST = 3 };
/* An arrow ends so far inside its slice. */
#define FLOW_NS 500
enum { T_DEVICE = 1, T_ENGINE = 1, T_WORKER = 2 };

enum pf_kind {
    PF_CHOOSE,
    PF_LAUNCH,
    PF_COLLECT,
    PF_DEVICE,
    PF_FLOW_OUT,
    PF_FLOW_IN,
    PF_LOAD,
    PF_IDLE,
    PF_QUEUE,
    PF_WORKER,
    PF_BEGIN,
    PF_END,
    PF_POINT
};

struct pf_ev {
    uint64_t ts, dur; /* ns since the trace began */
    size_t order;     /* as emitted: what stands on one track stays in order */
    enum pf_kind kind;
    const struct ftr_step *step;
    const struct trc_event *event;
    const char *name;
    uint64_t id; /* of the request */
    uint32_t sample;
};

struct pf {
    FILE *out;
    const struct ftr_snap *snap;
    struct pf_ev *ev;
    size_t n, cap;
    uint64_t base, end; /* the trace begins and ends */
    int oom;
    struct pf_ev none; /* what is written to then */
};

static struct pf_ev *
emit(struct pf *p, uint64_t t_ns, enum pf_kind kind)
{
    if (p->oom || fct_room(&p->ev, p->n + 1, &p->cap, sizeof(*p->ev)) != 0) {
        p->oom = 1;
        return &p->none;
    }
    p->ev[p->n] =
        (struct pf_ev){ .ts = ftr_span(p->base, t_ns), .order = p->n, .kind = kind };
    return &p->ev[p->n++];
}

static int
by_time(const void *a, const void *b)
{
    const struct pf_ev *x = a, *y = b;

    if (x->ts != y->ts)
        return x->ts < y->ts ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* ---- steps ----------------------------------------------------------------------- */

/* A slice that begins where its track's last one ended, if not later: two
 * clocks may differ by more than what is between two slices. */
static uint64_t
slice(struct pf *p, uint64_t *track, uint64_t from, uint64_t to, enum pf_kind kind,
    const struct ftr_step *st)
{
    struct pf_ev *e;

    if (from < *track)
        from = *track;
    if (to < from)
        to = from;
    e = emit(p, from, kind);
    e->dur = to - from;
    e->step = st;
    *track = to;
    return from;
}

/* An edge on the engine's track: slices of different steps alternate there. */
struct edge {
    uint64_t from, to;
    enum pf_kind kind;
    const struct ftr_step *step;
};

static int
cmp_edge(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;

    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static int
engine_track(struct pf *p)
{
    struct edge *e = calloc(3 * p->snap->n_step + 1, sizeof(*e));
    uint64_t track = 0, from;
    size_t n = 0;

    if (e == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < p->snap->n_step; i++) {
        const struct ftr_step *st = &p->snap->steps[i];
        const struct trc_step *s = &st->s;

        e[n++] = (struct edge){ s->t_pick_ns, s->t_launch_ns, PF_CHOOSE, st };
        e[n++] = (struct edge){ s->t_launch_ns, s->t_queued_ns, PF_LAUNCH, st };
        if ((s->flags & TRC_DONE) != 0)
            e[n++] = (struct edge){ s->t_collect_ns, s->t_done_ns, PF_COLLECT, st };
    }
    qsort(e, n, sizeof(*e), cmp_edge);
    for (size_t i = 0; i < n; i++) {
        const struct trc_step *s = &e[i].step->s;

        from = slice(p, &track, e[i].from, e[i].to, e[i].kind, e[i].step);
        /* An arrow cannot point back; it begins inside its slice, not where two
         * slices touch. */
        if (e[i].kind == PF_LAUNCH && (s->flags & TRC_DONE) != 0 && from <= s->t_begin_ns) {
            uint64_t in = ftr_span(from, track) / 2, most = s->t_begin_ns - from;

            emit(p, from + (in < most ? in : most), PF_FLOW_OUT)->step = e[i].step;
        }
    }
    free(e);
    return 0;
}

static void
device_track(struct pf *p)
{
    uint64_t track = 0, from;
    uint32_t generation = 0;

    for (size_t i = 0; i < p->snap->n_step; i++) {
        const struct ftr_step *st = &p->snap->steps[i];
        const struct trc_step *s = &st->s;
        const struct ftr_step *next = i + 1 < p->snap->n_step ? st + 1 : NULL;

        if (generation != s->generation)
            emit(p, s->t_pick_ns, PF_WORKER)->step = st;
        generation = s->generation;
        emit(p, s->t_launch_ns, PF_QUEUE)->step = st;
        if ((s->flags & TRC_DONE) == 0)
            continue;
        from = slice(p, &track, s->t_begin_ns, s->t_end_ns, PF_DEVICE, st);
        emit(p, from, PF_LOAD)->step = st;
        if (next == NULL || (next->s.flags & TRC_FOLLOWS) == 0)
            emit(p, track, PF_IDLE);
    }
}

/* Only arrows that have both ends. */
static int
flows(struct pf *p)
{
    unsigned char *has = calloc(p->snap->n_step + 1, 1);
    size_t n = p->n;

    if (has == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (p->ev[i].kind == PF_FLOW_OUT)
            has[p->ev[i].step - p->snap->steps] = 1;
    for (size_t i = 0; i < n; i++) {
        const struct ftr_step *st = p->ev[i].step;

        if (p->ev[i].kind == PF_DEVICE && has[st - p->snap->steps]) {
            uint64_t in = p->ev[i].dur / 2 < FLOW_NS ? p->ev[i].dur / 2 : FLOW_NS;

            emit(p, p->base + p->ev[i].ts + in, PF_FLOW_IN)->step = st;
        }
    }
    free(has);
    return 0;
}

/* ---- requests -------------------------------------------------------------------- */

struct life {
    const struct trc_event *ev;
    size_t order;
};

static int
cmp_life(const void *a, const void *b)
{
    const struct life *x = a, *y = b;

    if (x->ev->id != y->ev->id)
        return x->ev->id < y->ev->id ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* One track: a request's, or that of one of its further samples. */
struct track {
    uint64_t id, t;
    uint32_t sample;
    const char *phase; /* open slice in it; NULL: none */
    int open, first;
};

static struct pf_ev *
on_track(struct pf *p, struct track *k, enum pf_kind kind, const char *name,
    const struct trc_event *e)
{
    struct pf_ev *v = emit(p, k->t, kind);

    v->name = name;
    v->event = e;
    v->id = k->id;
    v->sample = k->sample;
    return v;
}

static void
set_phase(struct pf *p, struct track *k, const char *name, const struct trc_event *e)
{
    if (k->phase != NULL)
        on_track(p, k, PF_END, k->phase, NULL);
    if (name != NULL)
        on_track(p, k, PF_BEGIN, name, e);
    k->phase = name;
}

static void
close_track(struct pf *p, struct track *k, const struct trc_event *e)
{
    if (!k->open)
        return;
    set_phase(p, k, NULL, NULL);
    on_track(p, k, PF_END, NULL, e);
    k->open = 0;
}

static const char *
phase_of(const struct track *k, const struct trc_event *e)
{
    switch ((enum trc_kind)e->kind) {
    case TRC_SUBMIT:
    case TRC_READY:
        return "queued";
    case TRC_START:
        return "prefill";
    case TRC_PREEMPT:
        return "preempted";
    case TRC_RESUME:
        return k->first ? "decode" : "prefill";
    case TRC_FIRST:
        return "decode";
    case TRC_END:
    case TRC__N:
        break;
    }
    return k->phase;
}

/* The events l[0..n) of one request, on the track of one sample. */
static void
sample_track(struct pf *p, const struct life *l, size_t n, uint32_t sample)
{
    struct track k = { .id = l[0].ev->id, .sample = sample };
    const char *phase;

    for (size_t i = 0; i < n; i++) {
        const struct trc_event *e = l[i].ev;
        int own = e->sample == sample && e->kind != TRC_END;

        if (e->t_ns > k.t)
            k.t = e->t_ns;
        /* another worker has begun it again */
        if (i > 0 && e->generation != l[i - 1].ev->generation) {
            close_track(p, &k, NULL);
            k.first = 0;
        }
        if (e->kind == TRC_END)
            close_track(p, &k, e);
        if (!own)
            continue;
        if (!k.open)
            on_track(p, &k, PF_BEGIN, NULL, e);
        k.open = 1;
        phase = phase_of(&k, e);
        if (e->kind == TRC_READY || e->kind == TRC_FIRST || e->kind == TRC_PREEMPT)
            on_track(p, &k, PF_POINT, ftr_kind(e), e);
        k.first |= e->kind == TRC_FIRST;
        if (phase != k.phase)
            set_phase(p, &k, phase, e);
    }
    if (k.t < p->end)
        k.t = p->end;
    close_track(p, &k, NULL);
}

static int
request_tracks(struct pf *p)
{
    size_t n = p->snap->n_event, a, b;
    struct life *l = calloc(n + 1, sizeof(*l));

    if (l == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        l[i] = (struct life){ &p->snap->events[i], i };
    qsort(l, n, sizeof(*l), cmp_life);
    for (a = 0; a < n; a = b) {
        uint32_t samples = 0;

        for (b = a; b < n && l[b].ev->id == l[a].ev->id; b++)
            if (l[b].ev->sample > samples)
                samples = l[b].ev->sample;
        for (uint32_t s = 0; s <= samples; s++)
            sample_track(p, l + a, b - a, s);
    }
    free(l);
    return 0;
}

/* ---- writing --------------------------------------------------------------------- */

static double
us(uint64_t ns)
{
    return (double)ns / 1e3;
}

/* An object of the list; takes over the reference. */
static void
put_object(struct pf *p, json_t *o)
{
    if (o == NULL)
        p->oom = 1;
    else
        (void)json_dumpf(o, p->out, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(o);
}

/* An event, with the members of more, which passes. */
static void
put(struct pf *p, const struct pf_ev *e, const char *ph, int pid, int tid, json_t *more)
{
    json_t *o = json_pack("{s:s, s:i, s:i, s:f}", "ph", ph, "pid", pid, "tid", tid, "ts",
        us(e->ts));

    json_object_update_new(o, more);
    put_object(p, o);
    fputs(",\n", p->out);
}

static json_t *
step_args(const struct ftr_step *st)
{
    json_t *o = ftr_counts_json(st);

    json_object_del(o, "follows");
    if ((st->s.flags & TRC_DONE) != 0)
        json_object_del(o, "state");
    if (st->gap_ns != FTR_NONE)
        json_object_set_new(o, "gap_us", json_real(us(st->gap_ns)));
    return o;
}

static void
put_slice(struct pf *p, const struct pf_ev *e)
{
    const struct trc_step *s = &e->step->s;
    int on_device = e->kind == PF_DEVICE;
    char name[48];

    if (!on_device)
        snprintf(name, sizeof(name), "%s",
            e->kind == PF_CHOOSE       ? "choose"
                : e->kind == PF_LAUNCH ? "launch"
                                       : "collect");
    else if (s->n_decode == s->n_row)
        snprintf(name, sizeof(name), "decode %d", s->n_row);
    else
        snprintf(name, sizeof(name), "%s %d",
            s->n_verify == s->n_row              ? "verify"
                : s->n_decode + s->n_verify == 0 ? "prefill"
                                                 : "mixed",
            s->n_tok);
    put(p, e, "X", on_device ? P_DEVICE : P_ENGINE, on_device ? T_DEVICE : T_ENGINE,
        json_pack("{s:f, s:s, s:s, s:o}", "dur", us(e->dur), "name", name, "cat",
            (s->flags & TRC_GRAPH) != 0 ? "step,graph" : "step,eager", "args",
            step_args(e->step)));
}

static void
counter(struct pf *p, const struct pf_ev *e, const char *name, int value)
{
    put(p, e, "C", P_ENGINE, T_ENGINE,
        json_pack("{s:s, s:{s:i}}", "name", name, "args", name, value));
}

static void
counters(struct pf *p, const struct pf_ev *e)
{
    const struct trc_step *s = e->step != NULL ? &e->step->s : NULL;

    if (e->kind == PF_QUEUE) {
        counter(p, e, "waiting", s->n_waiting);
        counter(p, e, "blocks used", s->blocks_used);
        counter(p, e, "blocks free", s->blocks_free);
    } else {
        counter(p, e, "tokens per step", s != NULL ? s->n_tok : 0);
        counter(p, e, "rows", s != NULL ? s->n_row : 0);
    }
}

static void
put_request(struct pf *p, const struct pf_ev *v)
{
    json_t *args =
        json_pack("{s:I, s:i}", "request", (json_int_t)v->id, "sample", (int)v->sample);
    char name[64], id[24];

    if (v->event != NULL)
        json_object_update_new(args, ftr_facts_json(v->event));
    else if (v->kind == PF_END && v->name == NULL)
        json_object_set_new(args, "result", json_string("lost, or not ended yet"));
    if (v->name != NULL)
        snprintf(name, sizeof(name), "%s", v->name);
    else if (v->sample == 0)
        snprintf(name, sizeof(name), "request %" PRIu64, v->id);
    else
        snprintf(name, sizeof(name), "request %" PRIu64 " sample %u", v->id, v->sample);
    /* A viewer may read the id as a number: one for each sample. */
    snprintf(id, sizeof(id), "0x%" PRIx64, v->id << 16 | v->sample);
    put(p, v,
        v->kind == PF_BEGIN     ? "b"
            : v->kind == PF_END ? "e"
                                : "n",
        P_REQUEST, 0,
        json_pack("{s:s, s:s, s:s, s:o}", "cat", "request", "id", id, "name", name,
            "args", args));
}

static void
put_event(struct pf *p, const struct pf_ev *e)
{
    char name[24];

    switch (e->kind) {
    case PF_CHOOSE:
    case PF_LAUNCH:
    case PF_COLLECT:
    case PF_DEVICE:
        put_slice(p, e);
        break;
    case PF_FLOW_OUT:
        put(p, e, "s", P_ENGINE, T_ENGINE,
            json_pack("{s:s, s:s, s:I}", "cat", "launch", "name", "launch", "id",
                (json_int_t)e->step->s.seq));
        break;
    case PF_FLOW_IN:
        put(p, e, "f", P_DEVICE, T_DEVICE,
            json_pack("{s:s, s:s, s:s, s:I}", "bp", "e", "cat", "launch", "name",
                "launch", "id", (json_int_t)e->step->s.seq));
        break;
    case PF_LOAD:
    case PF_IDLE:
    case PF_QUEUE:
        counters(p, e);
        break;
    case PF_WORKER:
        snprintf(name, sizeof(name), "worker %u", e->step->s.generation);
        put(p, e, "i", P_ENGINE, T_WORKER,
            json_pack("{s:s, s:s, s:s}", "s", "t", "cat", "worker", "name", name));
        break;
    case PF_BEGIN:
    case PF_END:
    case PF_POINT:
        put_request(p, e);
        break;
    }
}

/* "process_name" or "thread_name" of a track, and where the viewer puts it. */
static void
name_track(struct pf *p, int pid, int tid, const char *what, const char *name, int order)
{
    char key[32];

    snprintf(key, sizeof(key), "%s_name", what);
    put_object(p,
        json_pack("{s:s, s:i, s:i, s:s, s:{s:s}}", "ph", "M", "pid", pid, "tid", tid,
            "name", key, "args", "name", name));
    fputs(",\n", p->out);
    snprintf(key, sizeof(key), "%s_sort_index", what);
    put_object(p,
        json_pack("{s:s, s:i, s:i, s:s, s:{s:i}}", "ph", "M", "pid", pid, "tid", tid,
            "name", key, "args", "sort_index", order));
    fputs(",\n", p->out);
}

static int
write_all(struct pf *p)
{
    const struct ftr_snap *s = p->snap;

    fputs("{\"traceEvents\":[\n", p->out);
    name_track(p, P_DEVICE, 0, "process", "device", P_DEVICE);
    name_track(p, P_DEVICE, T_DEVICE, "thread", "device 0", 1);
    name_track(p, P_ENGINE, 0, "process", "engine", P_ENGINE);
    name_track(p, P_ENGINE, T_ENGINE, "thread", "engine thread", 1);
    name_track(p, P_ENGINE, T_WORKER, "thread", "workers", 2);
    name_track(p, P_REQUEST, 0, "process", "requests", P_REQUEST);
    for (size_t i = 0; i < p->n; i++)
        put_event(p, &p->ev[i]);
    /* what the list ends with, without a comma */
    fprintf(p->out,
        "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_labels\","
        "\"args\":{\"labels\":\"fdd%s\"}}\n],\n\"displayTimeUnit\":\"ms\",\n"
        "\"otherData\":{\"program\":\"fdctl %s\",\"steps\":\"%zu\","
        "\"steps_overwritten\":\"%" PRIu64 "\",\"events_overwritten\":\"%" PRIu64 "\","
        "\"begin_monotonic_ns\":\"%" PRIu64 "\",\"begin_unix_ns\":\"%" PRIu64 "\"}}\n",
        P_ENGINE, s->ended ? " (ended)" : "", ver_text(), s->n_step, s->lost_steps,
        s->lost_events, p->base, ftr_real_ns(&s->clock, p->base));
    errno = EIO;
    return p->oom ? -ENOMEM : fflush(p->out) != 0 || ferror(p->out) ? -errno : 0;
}

/* From the first thing that happened to the last. */
static void
find_span(struct pf *p)
{
    const struct ftr_snap *s = p->snap;

    p->base = s->clock.mono_ns;
    p->end = 0;
    for (size_t i = 0; i < s->n_step; i++) {
        const struct trc_step *t = &s->steps[i].s;
        const uint64_t at[] = { t->t_queued_ns, t->t_end_ns, t->t_done_ns };

        if (t->t_pick_ns < p->base)
            p->base = t->t_pick_ns;
        for (size_t k = 0; k < 3; k++)
            if (at[k] > p->end)
                p->end = at[k];
    }
    for (size_t i = 0; i < s->n_event; i++) {
        uint64_t t = s->events[i].t_ns;

        if (t < p->base)
            p->base = t;
        if (t > p->end)
            p->end = t;
    }
    if (p->end < p->base)
        p->end = p->base;
}

int
ftr_perfetto(FILE *out, const struct ftr_snap *snap)
{
    struct pf p = { .out = out, .snap = snap };
    int rc;

    find_span(&p);
    rc = engine_track(&p);
    if (rc == 0) {
        device_track(&p);
        rc = flows(&p);
    }
    if (rc == 0)
        rc = request_tracks(&p);
    if (rc == 0 && p.oom)
        rc = -ENOMEM;
    if (rc == 0) {
        if (p.n > 0) /* else there is no list */
            qsort(p.ev, p.n, sizeof(*p.ev), by_time);
        rc = write_all(&p);
    }
    free(p.ev);
    return rc;
}
