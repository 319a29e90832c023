/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/trace/trace.h"

#include <inttypes.h>

#include "daemon/common/version.h"

/* The viewer groups tracks by process and thread. */
enum { P_DEVICE = 1, P_ENGINE = 2, P_REQUEST = 3 };
enum { T_DEVICE = 1, T_ENGINE = 1, T_WORKER = 2 };
/* An arrow ends this long after the beginning of its slice, unless the slice is short. */
#define FLOW_NS 500
#define DUMP    (JSON_COMPACT | JSON_REAL_PRECISION(15))

struct pf_ev {
    uint64_t ts;    /* ns since the trace began */
    uint64_t order; /* order of emission, kept for equal times */
    char *text;     /* the JSON object as text */
};

struct pf {
    FILE *out;
    struct ftr_snap *snap;
    struct pf_ev *ev;
    size_t n, cap;
    int n_rank;          /* most ranks of a step */
    uint32_t generation; /* of the last step's worker */
    uint64_t base, end;  /* first and last time of the trace */
    uint64_t track[P_ENGINE + 1][T_DEVICE + TRC_RANKS]; /* [pid][tid]: end of the last slice */
    int oom;
};

/* Add an event with the members of more; takes over the reference to more. */
static void
emit(struct pf *p, uint64_t t_ns, const char *ph, int pid, int tid, json_t *more)
{
    uint64_t ts = ftr_span(p->base, t_ns);
    json_t *o = json_pack("{s:s, s:i, s:i, s:f}", "ph", ph, "pid", pid, "tid", tid, "ts",
        FTR_US(ts));
    int rc = json_object_update_new(o, more);
    char *text = rc == 0 ? json_dumps(o, DUMP) : NULL;

    json_decref(o);
    if (text == NULL || fct_room(&p->ev, p->n + 1, &p->cap, sizeof(*p->ev)) != 0) {
        free(text);
        p->oom = 1;
        return;
    }
    p->ev[p->n] = (struct pf_ev){ ts, p->n, text };
    p->n++;
}

static int
by_time(const void *a, const void *b)
{
    const struct pf_ev *x = a, *y = b;

    return ftr_order(x->ts, y->ts, x->order, y->order);
}

/* ---- steps ----------------------------------------------------------------------- */

/* Add a slice; it begins no earlier than its track's last one ended, as the clocks of
 * host and device may differ by more than the gap. Returns where it begins. */
static uint64_t
slice(struct pf *p, int pid, int tid, uint64_t from, uint64_t to, const char *name,
    const struct ftr_step *st)
{
    uint64_t *track = &p->track[pid][tid];
    json_t *args = ftr_counts_json(st);

    json_object_del(args, "follows");
    if ((st->s.flags & TRC_DONE) != 0)
        json_object_del(args, "state");
    if (st->gap_ns != FTR_NONE)
        json_object_set_new(args, "gap_us", json_real(FTR_US(st->gap_ns)));
    from = from < *track ? *track : from;
    *track = to < from ? from : to;
    emit(p, from, "X", pid, tid,
        json_pack("{s:f, s:s, s:s, s:o}", "dur", FTR_US(*track - from), "name", name, "cat",
            (st->s.flags & TRC_DIVIDED) != 0     ? "step,divided"
                : (st->s.flags & TRC_GRAPH) != 0 ? "step,graph"
                                                 : "step,eager",
            "args", args));
    return from;
}

static void
counter(struct pf *p, uint64_t t_ns, const char *name, int value)
{
    emit(p, t_ns, "C", P_ENGINE, T_ENGINE,
        json_pack("{s:s, s:{s:i}}", "name", name, "args", name, value));
}

/* Add a step's slices on the device; each further rank has a track of its own. */
static void
device_slices(struct pf *p, const struct ftr_step *st, int has_arrow, int is_last)
{
    const struct trc_step *s = &st->s;
    const uint64_t *track = &p->track[P_DEVICE][T_DEVICE];
    int is_decode = s->n_decode == s->n_row;
    int n_rank = s->n_rank > TRC_RANKS ? TRC_RANKS : s->n_rank;
    uint64_t from, in;
    char name[48];

    snprintf(name, sizeof(name), "%s %d",
        is_decode                            ? "decode"
            : s->n_verify == s->n_row        ? "verify"
            : s->n_decode + s->n_verify == 0 ? "prefill"
                                             : "mixed",
        is_decode ? s->n_row : s->n_tok);
    from = slice(p, P_DEVICE, T_DEVICE, s->t_begin_ns, s->t_end_ns, name, st);
    p->n_rank = n_rank > p->n_rank ? n_rank : p->n_rank;
    for (int r = 1; r < n_rank; r++)
        (void)slice(p, P_DEVICE, T_DEVICE + r,
            s->t_begin_ns + (uint64_t)(int64_t)s->rank_begin_ns[r],
            s->t_begin_ns + (uint64_t)(int64_t)s->rank_end_ns[r], name, st);
    counter(p, from, "tokens per step", s->n_tok);
    counter(p, from, "rows", s->n_row);
    if (is_last) {
        counter(p, *track, "tokens per step", 0);
        counter(p, *track, "rows", 0);
    }
    in = (*track - from) / 2;
    if (has_arrow)
        emit(p, from + (in < FLOW_NS ? in : FLOW_NS), "f", P_DEVICE, T_DEVICE,
            json_pack("{s:s, s:s, s:s, s:I}", "bp", "e", "cat", "launch", "name",
                "launch", "id", (json_int_t)s->seq));
}

/* Add a step from its pick to its end on the device; is_last: no other step followed. */
static void
launched(struct pf *p, const struct ftr_step *st, int is_last)
{
    const struct trc_step *s = &st->s;
    int is_done = (s->flags & TRC_DONE) != 0, has_arrow;
    uint64_t from, in, most;
    char name[24];

    (void)slice(p, P_ENGINE, T_ENGINE, s->t_pick_ns, s->t_launch_ns, "choose", st);
    from = slice(p, P_ENGINE, T_ENGINE, s->t_launch_ns, s->t_queued_ns, "launch", st);
    /* An arrow cannot point back in time; it begins inside its slice, not at its edge. */
    has_arrow = is_done && from <= s->t_begin_ns;
    in = (p->track[P_ENGINE][T_ENGINE] - from) / 2;
    most = ftr_span(from, s->t_begin_ns);
    if (has_arrow)
        emit(p, from + (in < most ? in : most), "s", P_ENGINE, T_ENGINE,
            json_pack("{s:s, s:s, s:I}", "cat", "launch", "name", "launch", "id",
                (json_int_t)s->seq));
    snprintf(name, sizeof(name), "worker %u", s->generation);
    if (p->generation != s->generation)
        emit(p, s->t_pick_ns, "i", P_ENGINE, T_WORKER,
            json_pack("{s:s, s:s, s:s}", "s", "t", "cat", "worker", "name", name));
    p->generation = s->generation;
    counter(p, s->t_launch_ns, "waiting", s->n_waiting);
    counter(p, s->t_launch_ns, "blocks used", s->blocks_used);
    counter(p, s->t_launch_ns, "blocks free", s->blocks_free);
    if (is_done)
        device_slices(p, st, has_arrow, is_last);
}

/* The engine launches and collects in order. t_collect_ns 0: never collected. */
static void
step_tracks(struct pf *p)
{
    const struct ftr_step *st = p->snap->steps;
    size_t n = p->snap->n_step;

    for (size_t i = 0, old = 0; i <= n; i++) {
        for (; old < i && (i == n || st[old].s.t_collect_ns < st[i].s.t_pick_ns); old++)
            if ((st[old].s.flags & TRC_DONE) != 0)
                (void)slice(p, P_ENGINE, T_ENGINE, st[old].s.t_collect_ns,
                    st[old].s.t_done_ns, "collect", &st[old]);
        if (i < n)
            launched(p, &st[i], i + 1 == n || (st[i + 1].s.flags & TRC_FOLLOWS) == 0);
    }
}

/* ---- requests -------------------------------------------------------------------- */

/* The track of a request, or of one of its further samples. */
struct track {
    struct pf *p;
    uint64_t id, t;
    uint32_t sample;
    const char *phase; /* name of the open slice; NULL: the track is not open */
    int first;         /* the first token has come */
};

/* ph: "b" begins and "e" ends slice name (NULL: the whole request), "n" is an instant. */
static void
on_track(const struct track *k, const char *ph, const char *name, const struct trc_event *e)
{
    json_t *args =
        json_pack("{s:I, s:i}", "request", (json_int_t)k->id, "sample", (int)k->sample);
    char own[64], id[24];

    if (e != NULL)
        json_object_update_new(args, ftr_facts_json(e));
    else if (ph[0] == 'e' && name == NULL)
        json_object_set_new(args, "result", json_string("lost, or not ended yet"));
    snprintf(own, sizeof(own),
        k->sample == 0 ? "request %" PRIu64 : "request %" PRIu64 " sample %u", k->id,
        k->sample);
    /* A viewer may read the id as a number, so samples differ in its low bits. */
    snprintf(id, sizeof(id), "0x%" PRIx64, k->id << 16 | k->sample);
    emit(k->p, k->t, ph, P_REQUEST, 0,
        json_pack("{s:s, s:s, s:s, s:o}", "cat", "request", "id", id, "name",
            name != NULL ? name : own, "args", args));
}

static void
set_phase(struct track *k, const char *name, const struct trc_event *e)
{
    if (k->phase != NULL)
        on_track(k, "e", k->phase, NULL);
    if (name != NULL)
        on_track(k, "b", name, e);
    k->phase = name;
}

static void
close_track(struct track *k, const struct trc_event *e)
{
    if (k->phase == NULL)
        return;
    set_phase(k, NULL, NULL);
    on_track(k, "e", NULL, e);
}

/* Add the events e[0..n) of a request to the track of one sample. */
static void
sample_track(struct pf *p, const struct trc_event *e, size_t n, uint32_t sample)
{
    static const char *const phases[TRC__N] = { [TRC_SUBMIT] = "queued",
        [TRC_READY] = "queued",
        [TRC_START] = "prefill",
        [TRC_PREEMPT] = "preempted",
        [TRC_RESUME] = "prefill",
        [TRC_FIRST] = "decode" };
    struct track k = { .p = p, .id = e->id, .sample = sample };

    for (size_t i = 0; i < n; i++, e++) {
        const char *phase = e->kind < TRC__N ? phases[e->kind] : NULL;

        k.t = e->t_ns > k.t ? e->t_ns : k.t;
        /* a new worker has restarted the request */
        if (i > 0 && e->generation != e[-1].generation) {
            close_track(&k, NULL);
            k.first = 0;
        }
        if (e->kind == TRC_END)
            close_track(&k, e);
        if (e->sample != sample || phase == NULL)
            continue;
        if (k.phase == NULL)
            on_track(&k, "b", NULL, e);
        if (e->kind == TRC_RESUME && k.first)
            phase = "decode";
        if (e->kind == TRC_READY || e->kind == TRC_FIRST || e->kind == TRC_PREEMPT)
            on_track(&k, "n", ftr_kind(e), e);
        k.first |= e->kind == TRC_FIRST;
        if (phase != k.phase)
            set_phase(&k, phase, e);
    }
    k.t = k.t < p->end ? p->end : k.t;
    close_track(&k, NULL);
}

static void
request_tracks(struct pf *p)
{
    const struct trc_event *e = p->snap->events;
    size_t n = p->snap->n_event, b;

    if (n > 0) /* else there is no list */
        qsort(p->snap->events, n, sizeof(*e), ftr_by_request);
    for (size_t a = 0; a < n; a = b) {
        uint32_t samples = 0;

        for (b = a; b < n && e[b].id == e[a].id; b++)
            samples = e[b].sample > samples ? e[b].sample : samples;
        for (uint32_t s = 0; s <= samples; s++)
            sample_track(p, e + a, b - a, s);
    }
}

/* ---- writing --------------------------------------------------------------------- */

/* Write "process_name" or "thread_name" of a track, and its place in the viewer. */
static void
name_track(struct pf *p, int pid, int tid, const char *what, const char *name, int place)
{
    fprintf(p->out,
        "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s_name\",\"args\":{\"name\":\"%s\"}},\n"
        "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%d}},\n",
        pid, tid, what, name, pid, tid, what, place);
}

static int
write_all(struct pf *p)
{
    const struct ftr_snap *s = p->snap;

    fputs("{\"traceEvents\":[\n", p->out);
    name_track(p, P_DEVICE, 0, "process", "device", P_DEVICE);
    name_track(p, P_DEVICE, T_DEVICE, "thread", "device 0", 1);
    for (int r = 1; r < p->n_rank; r++) {
        char name[24];

        snprintf(name, sizeof(name), "device of rank %d", r);
        name_track(p, P_DEVICE, T_DEVICE + r, "thread", name, 1 + r);
    }
    name_track(p, P_ENGINE, 0, "process", "engine", P_ENGINE);
    name_track(p, P_ENGINE, T_ENGINE, "thread", "engine thread", 1);
    name_track(p, P_ENGINE, T_WORKER, "thread", "workers", 2);
    name_track(p, P_REQUEST, 0, "process", "requests", P_REQUEST);
    for (size_t i = 0; i < p->n; i++)
        fprintf(p->out, "%s,\n", p->ev[i].text);
    /* the last element, without a comma */
    fprintf(p->out,
        "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_labels\",\"args\":{\"labels\":\"fdd%s\"}}\n],\n\"displayTimeUnit\":\"ms\",\n"
        "\"otherData\":{\"program\":\"fdctl "
        "%s\",\"steps\":\"%zu\",\"steps_overwritten\":\"%" PRIu64
        "\",\"events_overwritten\":\"%" PRIu64 "\",\"begin_monotonic_ns\":\"%" PRIu64
        "\",\"begin_unix_ns\":\"%" PRIu64 "\"}}\n",
        P_ENGINE, s->ended ? " (ended)" : "", ver_text(), s->n_step, s->lost_steps,
        s->lost_events, p->base, ftr_real_ns(&s->clock, p->base));
    errno = EIO;
    return fflush(p->out) != 0 || ferror(p->out) ? -errno : 0;
}

static void
reach(struct pf *p, uint64_t t_ns)
{
    p->base = t_ns < p->base ? t_ns : p->base;
    p->end = t_ns > p->end ? t_ns : p->end;
}

int
ftr_perfetto(FILE *out, struct ftr_snap *snap)
{
    struct pf p = { .out = out, .snap = snap };
    int rc;

    /* the trace's first and last time */
    p.base = snap->clock.mono_ns;
    for (size_t i = 0; i < snap->n_step; i++) {
        const struct trc_step *t = &snap->steps[i].s;

        reach(&p, t->t_pick_ns);
        reach(&p, (t->flags & TRC_DONE) != 0 ? t->t_done_ns : t->t_queued_ns);
    }
    for (size_t i = 0; i < snap->n_event; i++)
        reach(&p, snap->events[i].t_ns);
    p.end = p.end < p.base ? p.base : p.end;
    step_tracks(&p);
    request_tracks(&p);
    if (p.n > 0) /* else there is no list */
        qsort(p.ev, p.n, sizeof(*p.ev), by_time);
    rc = p.oom ? -ENOMEM : write_all(&p);
    while (p.n > 0)
        free(p.ev[--p.n].text);
    free(p.ev);
    return rc;
}
