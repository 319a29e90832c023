/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/trace/trace.h"

#include <ctype.h>
#include <fnmatch.h>

/* Retries for a record that is being written; only a dead writer leaves it so. */
#define FTR_TRIES  40
#define FTR_NAP_NS 100000

uint64_t
ftr_span(uint64_t a, uint64_t b)
{
    return b > a ? b - a : 0;
}

/* ---- reading --------------------------------------------------------------------- */

/* Copy records first..last of a ring, as far as it still has them, to ret, oldest first.
 * Returns their number. The newest is read first: the oldest are overwritten anyway. */
static size_t
read_ring(const struct trc_seg *seg, int events, uint64_t first, uint64_t last, void *ret,
    uint64_t *lost, uint64_t *torn)
{
    size_t bytes = events ? sizeof(struct trc_event) : sizeof(struct ftr_step), n = 0;
    uint64_t size = events ? TRC_EVENTS : TRC_STEPS, most = ftr_span(first, last + 1);
    char *to = (char *)ret + (size_t)(most < size ? most : size) * bytes;

    for (uint64_t i = last; i >= first && i > 0 && last - i < size; i--) {
        void *at = to - bytes;
        int got = 0, gone = 0;

        for (int k = 0; k < FTR_TRIES && !got && !gone; k++) {
            if (k > 0)
                clk_sleep_ns(FTR_NAP_NS);
            got = events ? trc_get_event(seg, i, at) : trc_get_step(seg, i, at);
            gone = !got && (events ? trc_n_event(seg) : trc_n_step(seg)) >= i + size;
        }
        to -= got ? bytes : 0;
        n += (size_t)got;
        *lost += (uint64_t)gone;
        *torn += !got && !gone;
    }
    memmove(ret, to, n * bytes);
    return n;
}

void
ftr_read_steps(const struct trc_seg *seg, uint64_t first, uint64_t last,
    struct ftr_snap *snap)
{
    snap->n_step += read_ring(seg, 0, first, last, snap->steps + snap->n_step,
        &snap->lost_steps, &snap->torn_steps);
}

int
ftr_read(const struct trc_seg *seg, uint64_t first_step, struct ftr_snap *ret_snap)
{
    struct ftr_snap s = { 0 };

    s.steps = calloc(TRC_STEPS, sizeof(*s.steps));
    s.events = calloc(TRC_EVENTS, sizeof(*s.events));
    if (s.steps == NULL || s.events == NULL) {
        ftr_free(&s);
        return -ENOMEM;
    }
    s.n_event =
        read_ring(seg, 1, 0, trc_n_event(seg), s.events, &s.lost_events, &s.torn_events);
    ftr_read_steps(seg, first_step, trc_n_step(seg), &s);
    s.clock = (struct ftr_clock){ clk_now_ns(), clk_wall_ns() };
    *ret_snap = s;
    return 0;
}

void
ftr_free(struct ftr_snap *snap)
{
    free(snap->steps);
    free(snap->events);
    snap->steps = NULL;
    snap->events = NULL;
}

void
ftr_derive(struct ftr_snap *snap)
{
    uint32_t newest = snap->generation;

    if (newest == 0 && snap->n_step > 0)
        newest = snap->steps[snap->n_step - 1].s.generation;
    snap->n_base = 0;
    for (size_t i = snap->n_step; i > 0 && snap->n_base < FTR_BASES; i--) {
        const struct trc_step *s = &snap->steps[i - 1].s;

        if (snap->n_base == 0 || snap->bases[snap->n_base - 1].generation != s->generation)
            snap->bases[snap->n_base++] =
                (struct ftr_base){ s->generation, s->seq - s->epoch };
    }
    for (size_t i = 0; i < snap->n_step; i++) {
        struct ftr_step *st = &snap->steps[i];
        const struct trc_step *before = i > 0 ? &st[-1].s : NULL;

        st->gap_ns = FTR_NONE;
        st->lost =
            (st->s.flags & TRC_DONE) == 0 && (snap->ended || st->s.generation < newest);
        if ((st->s.flags & TRC_DONE) != 0 && (st->s.flags & TRC_FOLLOWS) != 0 &&
            before != NULL && before->seq + 1 == st->s.seq &&
            before->generation == st->s.generation && (before->flags & TRC_DONE) != 0)
            st->gap_ns = ftr_span(before->t_end_ns, st->s.t_begin_ns);
    }
}

/* ---- filters --------------------------------------------------------------------- */

int
ftr_match_step(const struct ftr_step *s, const struct ftr_filter *f)
{
    if (s->s.t_launch_ns < f->since_ns || s->s.t_launch_ns > f->until_ns ||
        s->s.seq < f->step_a || s->s.seq > f->step_b)
        return 0;
    if (f->slow_ns == FTR_NONE)
        return 1;
    return ((s->s.flags & TRC_DONE) != 0 &&
               ftr_span(s->s.t_begin_ns, s->s.t_end_ns) > f->slow_ns) ||
        (s->gap_ns != FTR_NONE && s->gap_ns > f->slow_ns);
}

int
ftr_match_event(const struct trc_event *e, const struct ftr_filter *f)
{
    return e->t_ns >= f->since_ns && e->t_ns <= f->until_ns &&
        (f->request == 0 || e->id == f->request);
}

int
ftr_order(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return a != b ? (a < b ? -1 : 1) : c < d ? -1 : c > d;
}

int
ftr_by_request(const void *a, const void *b)
{
    const struct trc_event *x = a, *y = b;

    return ftr_order(x->id, y->id, x->seq, y->seq);
}

/* Keep all events of requests alive in the time chosen, also those before it. */
static void
keep_whole(struct ftr_snap *snap, const struct ftr_filter *f)
{
    struct trc_event *e = snap->events;
    size_t n = snap->n_event, kept = 0, end;

    qsort(e, n, sizeof(*e), ftr_by_request);
    for (size_t i = 0; i < n; i = end) {
        uint64_t from = FTR_NONE, to = 0;

        for (end = i; end < n && e[end].id == e[i].id; end++) {
            from = e[end].t_ns < from ? e[end].t_ns : from;
            if (e[end].kind == TRC_END && e[end].t_ns > to)
                to = e[end].t_ns;
        }
        if (from > f->until_ns || (to != 0 && to < f->since_ns) ||
            (f->request != 0 && f->request != e[i].id))
            continue;
        memmove(e + kept, e + i, (end - i) * sizeof(*e));
        kept += end - i;
    }
    snap->n_event = kept;
}

/* Keep the last ones of n (last 0: all). Returns their number. */
static size_t
keep_last(void *list, size_t n, size_t bytes, uint64_t last)
{
    if (last == 0 || n <= last)
        return n;
    memmove(list, (char *)list + (n - (size_t)last) * bytes, (size_t)last * bytes);
    return (size_t)last;
}

void
ftr_filter(struct ftr_snap *snap, const struct ftr_filter *f)
{
    size_t n = 0, n_event = 0;
    struct ftr_filter g = *f;

    for (size_t i = 0; i < snap->n_step; i++)
        if (ftr_match_step(&snap->steps[i], f))
            snap->steps[n++] = snap->steps[i];
    snap->n_step = n = keep_last(snap->steps, n, sizeof(*snap->steps), f->last);
    /* Steps chosen by number limit the time of events. */
    if (f->request == 0 && n > 0 &&
        (f->step_a > 0 || f->step_b != FTR_NONE || (f->last > 0 && f->whole_requests))) {
        const struct trc_step *b = &snap->steps[0].s, *e = &snap->steps[n - 1].s;

        g.since_ns = b->t_pick_ns > g.since_ns ? b->t_pick_ns : g.since_ns;
        if ((e->flags & TRC_DONE) != 0 && e->t_done_ns < g.until_ns)
            g.until_ns = e->t_done_ns;
    }
    if (f->whole_requests) {
        keep_whole(snap, &g);
        return;
    }
    for (size_t i = 0; i < snap->n_event; i++)
        if (ftr_match_event(&snap->events[i], &g))
            snap->events[n_event++] = snap->events[i];
    snap->n_event = keep_last(snap->events, n_event, sizeof(*snap->events), f->last);
}

/* ---- times ----------------------------------------------------------------------- */

uint64_t
ftr_real_ns(const struct ftr_clock *c, uint64_t t_ns)
{
    return c->real_ns - (c->mono_ns - t_ns);
}

const char *
ftr_time_text(const struct ftr_clock *c, uint64_t t_ns, char ret[32])
{
    uint64_t real = ftr_real_ns(c, t_ns);
    time_t s = (time_t)(real / 1000000000u);
    struct tm tm;
    size_t n;

    localtime_r(&s, &tm);
    n = strftime(ret, 32, "%H:%M:%S", &tm);
    snprintf(ret + n, 32 - n, ".%06u", (unsigned)(real % 1000000000u / 1000));
    return ret;
}

/* Parse HH:MM:SS[.fraction] to UNIX ns, at most now. Returns 0 if it has another form. */
static int
wall(const char *text, uint64_t now_real_ns, uint64_t *ret_ns)
{
    time_t now = (time_t)(now_real_ns / 1000000000u), t;
    struct tm tm;

    localtime_r(&now, &tm);
    if (fnmatch("[0-9][0-9]:[0-9][0-9]:[0-9][0-9]?(.+([0-9]))", text, FNM_EXTMATCH) != 0 ||
        strptime(text, "%H:%M:%S", &tm) == NULL || tm.tm_sec > 60)
        return 0;
    do {
        tm.tm_isdst = -1;
        t = mktime(&tm);
        tm.tm_mday--;
    } while (t > now);
    *ret_ns = (uint64_t)t * 1000000000u + (uint64_t)(strtod(text + 8, NULL) * 1e9 + 0.5);
    return 1;
}

int
ftr_time(const char *what, const char *text, const struct ftr_clock *now, uint64_t *ret_ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = { { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { "m", 60e9 },
        { "min", 60e9 }, { "h", 3600e9 } };
    uint64_t real;
    char *end;
    double v;

    if (wall(text, now->real_ns, &real)) {
        uint64_t ago = ftr_span(real, now->real_ns);

        *ret_ns = ago < now->mono_ns ? now->mono_ns - ago : 0;
        return 0;
    }
    v = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1;
    for (size_t i = 0; v >= 0 && end > text && i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(end, units[i].name) == 0) {
            v *= units[i].ns;
            *ret_ns = v < (double)now->mono_ns ? now->mono_ns - (uint64_t)v : 0;
            return 0;
        }
    return fct_usage("trace: %s %s: not a time; give how long ago, such as "
                     "5s, 200ms or 2m, or a time of day such as 14:03:00 or 14:03:00.250",
        what, text);
}

/* ---- one request ------------------------------------------------------------------ */

int
ftr_life(const struct ftr_snap *snap, uint64_t id, struct ftr_life *ret_life)
{
    struct ftr_life l = { .id = 0 };
    uint64_t out[256] = { 0 }; /* when a sample lost its blocks */
    int queued = 0;

    l.t_submit = l.t_start = l.t_first = l.t_end = l.from = l.to = FTR_NONE;
    for (size_t i = 0; i < snap->n_event; i++) {
        const struct trc_event *e = &snap->events[i];
        uint64_t *o = &out[e->sample % 256], *t;

        if (e->id != id)
            continue;
        l.id = id;
        /* A new worker runs it: forget the steps of the one before. */
        if (e->generation != l.generation || e->kind == TRC_SUBMIT) {
            l.from = l.to = FTR_NONE;
            queued = 0;
        }
        l.generation = e->generation;
        queued |= e->kind == TRC_SUBMIT || e->kind == TRC_READY;
        /* Begin at its start, or at its first event if the start was overwritten. */
        if (l.from == FTR_NONE && (e->kind == TRC_START || !queued))
            l.from = e->epoch + (e->kind == TRC_START);
        t = e->kind == TRC_SUBMIT  ? &l.t_submit
            : e->kind == TRC_START ? &l.t_start
            : e->kind == TRC_FIRST ? &l.t_first
                                   : NULL;
        if (t != NULL && *t == FTR_NONE)
            *t = e->t_ns;
        if (e->kind == TRC_PREEMPT) {
            l.n_preempted++;
            *o = e->t_ns;
        }
        if (e->kind == TRC_RESUME && *o > 0) {
            l.preempted_ns += ftr_span(*o, e->t_ns);
            *o = 0;
        }
        if (e->kind == TRC_END) {
            l.t_end = e->t_ns;
            l.to = e->epoch;
            l.code = e->a;
            l.n_out = e->b;
        }
    }
    l.lost = l.t_end == FTR_NONE &&
        (snap->ended || (snap->generation != 0 && l.generation < snap->generation));
    *ret_life = l;
    return l.id != 0 ? 0 : -ENOENT;
}

uint64_t
ftr_number(const struct ftr_snap *snap, uint32_t generation, uint64_t epoch)
{
    for (size_t i = 0; i < snap->n_base && epoch != FTR_NONE; i++)
        if (snap->bases[i].generation == generation)
            return snap->bases[i].base + epoch;
    return FTR_NONE;
}

int
ftr_life_steps(const struct ftr_snap *snap, const struct ftr_life *l, uint64_t *ret_a,
    uint64_t *ret_b)
{
    *ret_a = ftr_number(snap, l->generation, l->from);
    if (*ret_a == FTR_NONE)
        return -ENOENT;
    *ret_b = l->to != FTR_NONE ? *ret_a + ftr_span(l->from, l->to) : FTR_NONE;
    /* without an end: up to the last step of its worker */
    for (size_t i = snap->n_step; i > 0 && *ret_b == FTR_NONE; i--)
        if (snap->steps[i - 1].s.generation == l->generation)
            *ret_b = snap->steps[i - 1].s.seq;
    return 0;
}
