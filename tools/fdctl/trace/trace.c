/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"

#include <sys/stat.h>

#include "tools/fdctl/trace/trace.h"

#define SHOWN      32 /* without -n, in a table */
#define POLL_MS    20
#define CHECK_MS   1000 /* --follow: is the daemon still there */
#define TORN_POLLS 50   /* --follow: a step is written within this many polls */

struct opt {
    uint32_t group;
    int events, all, follow, json, perfetto, has_request, has_last, has_slow;
    const char *since, *until, *steps, *file;
    uint64_t request, last;
    double slow_us;
};

/* ---- command line ------------------------------------------------------------------ */

static int
take_file(void *args, const char *value)
{
    struct opt *o = args;

    if (!o->perfetto)
        return fct_usage("trace: unexpected '%s'; filters are --request ID, "
                         "--since T, --until T, --step A:B and --slow US",
            value);
    if (o->file != NULL)
        return fct_usage("trace: unexpected '%s'; --perfetto has its file, %s", value,
            o->file);
    o->file = value;
    return 0;
}

static int
take_perfetto(void *args, const char *value)
{
    ((struct opt *)args)->perfetto = 1;
    return value != NULL ? take_file(args, value) : 0;
}

static int
take_request(void *args, const char *value)
{
    struct opt *o = args;
    int rc = fct_u64("trace: --request", value, INT64_MAX, &o->request);

    return rc == 0 && o->request == 0
        ? fct_usage("trace: --request 0: requests count from 1")
        : rc;
}

static int
take_last(void *args, const char *value)
{
    return fct_u64("trace: -n", value, INT64_MAX, &((struct opt *)args)->last);
}

#define A struct opt
static const struct fct_opt opts[] = {
    { "last", 'n', "N", "the last N (32; all with a filter or in JSON)",
        FCT_FN(take_last), FCT_HAS(A, has_last) },
    { "all", 0, NULL, "all that the trace has", FCT_FLAG(A, all) },
    { "events", 0, NULL, "what happened to requests instead of steps", FCT_FLAG(A, events) },
    { "request", 0, "ID", "its events, and the steps from its start to its end",
        FCT_FN(take_request), FCT_HAS(A, has_request) },
    { "since", 0, "T", "not before T: 5s, 200ms, 2m ago, or HH:MM:SS[.mmm]",
        FCT_TEXT(A, since) },
    { "until", 0, "T", "not after T", FCT_TEXT(A, until) },
    { "step", 0, "A[:B]", "step number A, or A to B", FCT_TEXT(A, steps) },
    { "slow", 0, "US", "steps whose device time or gap is longer",
        FCT_REAL(A, slow_us, 0, 1e12), .range = "0 or more microseconds",
        FCT_HAS(A, has_slow) },
    { "follow", 'f', NULL, "print as they come", FCT_FLAG(A, follow) },
    { "group", 'g', "N", "of this group (0)", FCT_U32(A, group, 0, 31) },
    FCT_OPT_JSON(A, "{\"steps\": [...], \"events\": [...], \"summary\": {...}}"),
    { "perfetto", 0, FCT_MAYBE,
        "Trace Event JSON for the Perfetto viewer, to FILE or\n"
        "                               standard output, or to fdd-trace.json if that\n"
        "                               is a terminal",
        FCT_FN(take_perfetto) },
    FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line = {
    .usage = "fdctl trace [-n N | --all] [--events] [--request ID] [--since T]\n"
             "           [--until T] [--step A[:B]] [--slow US] [--group N]\n"
             "           [--follow] [--json | --perfetto [FILE]]",
    .about = "The last steps of the engine and what happened to requests, read from shared\n"
             "memory; for administrators. Times are in us.",
    .opts = { opts },
    .operand = take_file,
    .prefix = "trace: "
};

/* Options that exclude each other. */
static int
conflicts(const struct opt *o)
{
    const char *a = NULL, *b = NULL;

    if (o->has_last && o->all)
        a = "-n", b = "--all";
    if (o->json && o->perfetto)
        a = "--json", b = "--perfetto";
    if (o->events && o->has_slow)
        a = "--events", b = "--slow";
    if (o->events && o->perfetto)
        a = "--events", b = "--perfetto";
    if (o->follow && (o->until != NULL || o->steps != NULL || o->perfetto || o->all))
        a = "--follow",
        b = o->until != NULL   ? "--until"
            : o->steps != NULL ? "--step"
            : o->perfetto      ? "--perfetto"
                               : "--all";
    if (o->has_last && o->last == 0 && !o->follow)
        return fct_usage("trace: -n 0: must be 1 or more");
    if (o->follow && o->has_request && !o->events)
        return fct_usage("trace: --follow --request follows events: add --events");
    return a == NULL ? 0 : fct_usage("trace: %s and %s exclude each other", a, b);
}

/* A, A: or A:B */
static int
step_range(const char *text, struct ftr_filter *f)
{
    unsigned long long a, b;
    char *end;
    int bad;

    errno = 0;
    a = strtoull(text, &end, 10);
    bad = end == text || a == 0;
    b = a;
    if (!bad && *end == ':' && end[1] == '\0')
        b = FTR_NONE, end++;
    else if (!bad && *end == ':')
        b = strtoull(end + 1, &end, 10);
    if (bad || *end != '\0' || errno == ERANGE || strpbrk(text, "+- ") != NULL)
        return fct_usage("trace: --step %s: give a step's number or a range such as 120:180",
            text);
    if (b < a)
        return fct_usage("trace: --step %s: ends before it begins", text);
    f->step_a = a;
    f->step_b = b;
    return 0;
}

/* Did options choose records? Then all that match are shown. */
static int
chooses(const struct opt *o)
{
    return o->since != NULL || o->until != NULL || o->steps != NULL || o->has_request ||
        o->has_slow;
}

static int
make_filter(const struct opt *o, const struct ftr_clock *now, struct ftr_filter *f)
{
    int rc = 0;

    ftr_filter_init(f);
    if (o->since != NULL)
        rc = ftr_time("--since", o->since, now, &f->since_ns);
    if (rc == 0 && o->until != NULL)
        rc = ftr_time("--until", o->until, now, &f->until_ns);
    if (rc == 0 && o->since != NULL && o->until != NULL && f->since_ns > f->until_ns)
        rc = fct_usage("trace: --since %s is after --until %s", o->since, o->until);
    if (rc == 0 && o->steps != NULL)
        rc = step_range(o->steps, f);
    if (o->has_slow)
        f->slow_ns = (uint64_t)(o->slow_us * 1e3 + 0.5);
    f->request = o->request;
    f->last = o->last;
    if (!o->all && !o->json && !o->perfetto && !chooses(o) && !o->has_last)
        f->last = SHOWN;
    f->whole_requests = o->perfetto;
    return rc;
}

/* ---- the daemon ------------------------------------------------------------------ */

/* Whether it runs, and which worker; the trace says neither when it was killed. */
static void
ask_state(const struct fct *f, uint32_t group, int *ret_ended, uint32_t *ret_generation)
{
    struct fct quick = *f;
    struct fct_admin *a;
    json_t *st = NULL;
    const json_t *w;
    int rc;

    quick.timeout_ms = 2000;
    rc = fct_admin_open(&quick, 1, &a);
    *ret_ended = rc == FCT_EX_UNAV;
    *ret_generation = 0;
    if (rc != 0)
        return;
    if (fct_ask(a, json_pack("{s:s}", "cmd", "status"), 1, &st) == 0) {
        w = json_array_get(json_object_get(st, "workers"), group);
        *ret_generation = (uint32_t)json_integer_value(json_object_get(w, "generation"));
        /* the one it had is dead, and no other is there yet */
        *ret_generation += json_integer_value(json_object_get(w, "pid")) == 0;
    }
    json_decref(st);
    fct_admin_close(a);
}

static void
say_lost(const struct ftr_snap *s, int events)
{
    if (s->lost_steps > 0)
        fct_fail(0, "trace: %llu step%s overwritten while reading",
            (unsigned long long)s->lost_steps, s->lost_steps == 1 ? " was" : "s were");
    if (s->torn_steps > 0)
        fct_fail(0, "trace: %llu step%s unreadable: the worker died while writing",
            (unsigned long long)s->torn_steps, s->torn_steps == 1 ? " is" : "s are");
    if (events && s->lost_events > 0)
        fct_fail(0, "trace: %llu event%s overwritten while reading",
            (unsigned long long)s->lost_events, s->lost_events == 1 ? " was" : "s were");
}

/* ---- what is not there ----------------------------------------------------------- */

static int
no_request(const struct ftr_snap *s, uint64_t id)
{
    uint64_t lo = UINT64_MAX, hi = 0;

    for (size_t i = 0; i < s->n_event; i++) {
        lo = s->events[i].id < lo ? s->events[i].id : lo;
        hi = s->events[i].id > hi ? s->events[i].id : hi;
    }
    if (hi == 0)
        return fct_data("trace: request %llu is not in the trace, which has no requests yet",
            (unsigned long long)id);
    return fct_data("trace: request %llu is not in the trace, which has the "
                    "requests %llu to %llu in its last %zu events",
        (unsigned long long)id, (unsigned long long)lo, (unsigned long long)hi, s->n_event);
}

/* What the trace holds, if nothing was chosen; before it is reduced. */
static void
range_text(const struct ftr_snap *s, int events, char *ret, size_t ret_bytes)
{
    char a[32], b[32];

    if (events ? s->n_event == 0 : s->n_step == 0) {
        snprintf(ret, ret_bytes, "the trace has no %s yet", events ? "events" : "steps");
        return;
    }
    if (events) {
        ftr_time_text(&s->clock, s->events[0].t_ns, a);
        ftr_time_text(&s->clock, s->events[s->n_event - 1].t_ns, b);
        snprintf(ret, ret_bytes, "the trace has %zu events, of %s to %s", s->n_event, a, b);
        return;
    }
    ftr_time_text(&s->clock, s->steps[0].s.t_launch_ns, a);
    ftr_time_text(&s->clock, s->steps[s->n_step - 1].s.t_launch_ns, b);
    snprintf(ret, ret_bytes, "the trace has the steps %llu to %llu, of %s to %s",
        (unsigned long long)s->steps[0].s.seq,
        (unsigned long long)s->steps[s->n_step - 1].s.seq, a, b);
}

/* ---- once ------------------------------------------------------------------------ */

static int
show_tables(const struct opt *o, const struct ftr_snap *s, const struct ftr_life *l)
{
    int generations = s->n_step > 0 &&
        s->steps[0].s.generation != s->steps[s->n_step - 1].s.generation,
        rc = 0;

    if (o->events || l != NULL) {
        ftr_show_event_head();
        for (size_t i = 0; i < s->n_event; i++)
            ftr_show_event(s, &s->events[i]);
        if (l == NULL)
            printf("%zu event%s\n", s->n_event, s->n_event == 1 ? "" : "s");
    }
    if (!o->events) {
        if (l != NULL)
            putchar('\n');
        ftr_show_step_head(generations);
        for (size_t i = 0; i < s->n_step; i++)
            ftr_show_step(&s->clock, &s->steps[i], generations);
        rc = ftr_show_sum(s->steps, s->n_step, o->has_slow);
    }
    if (l != NULL)
        ftr_show_life(s, l);
    return rc;
}

static int
write_perfetto(const struct opt *o, const struct ftr_snap *s)
{
    const char *path = o->file != NULL ? o->file
        : isatty(STDOUT_FILENO)        ? "fdd-trace.json"
                                       : "-";
    FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    struct stat st;
    int rc;

    if (out == NULL)
        return fct_fail(FCT_EX_IO, "trace: %s: %s", path, strerror(errno));
    rc = ftr_perfetto(out, s);
    if (out == stdout)
        return rc == 0 ? 0
                       : fct_fail(rc == -ENOMEM ? FCT_EX_SOFT : FCT_EX_IO,
                             "trace: standard output: %s", strerror(-rc));
    if (fstat(fileno(out), &st) != 0)
        st.st_mode = 0;
    if (fclose(out) != 0 && rc == 0)
        rc = -errno;
    if (rc != 0) {
        fct_fail(0, "trace: %s: %s", path, strerror(-rc));
        if (S_ISREG(st.st_mode)) /* half a trace cannot be read */
            (void)unlink(path);
        return FCT_EX_IO;
    }
    fct_fail(0, "%s: %zu steps, %zu events; open it in https://ui.perfetto.dev", path,
        s->n_step, s->n_event);
    return 0;
}

static int
once(const struct fct *f, const struct trc_seg *seg, const struct opt *o)
{
    struct ftr_filter filter;
    struct ftr_life life, *l = NULL;
    struct ftr_snap s;
    uint64_t first = 0, n = trc_n_step(seg);
    char range[192];
    int rc;

    /* Further back only if a filter may ask for it: what is not read cannot vanish. */
    if (!chooses(o) && !o->all && !o->json && !o->perfetto) {
        uint64_t want = (o->has_last ? o->last : SHOWN) + 1;

        first = n > want ? n - want + 1 : 0;
    }
    if (ftr_read(seg, o->events ? 0 : first, &s) != 0)
        return fct_oom();
    ask_state(f, o->group, &s.ended, &s.generation);
    if (s.ended)
        fct_fail(0, "trace: the daemon has ended; this is what it left");
    ftr_derive(&s);
    rc = make_filter(o, &s.clock, &filter);
    if (rc == 0 && o->has_request) {
        rc = ftr_life(&s, o->request, &life) == 0 ? 0 : no_request(&s, o->request);
        l = rc == 0 ? &life : NULL;
        if (l != NULL && o->steps == NULL &&
            ftr_life_steps(&s, o->request, &filter.step_a, &filter.step_b) != 0)
            filter.step_a = FTR_NONE;
    }
    if (rc == 0 && o->steps != NULL &&
        (s.n_step == 0 || filter.step_b < s.steps[0].s.seq ||
            filter.step_a > s.steps[s.n_step - 1].s.seq))
        rc = s.n_step == 0
            ? fct_data("trace: step %s is not in the trace, which has no steps yet",
                  o->steps)
            : fct_data("trace: step %s is not in the trace, which has the steps %llu to %llu",
                  o->steps, (unsigned long long)s.steps[0].s.seq,
                  (unsigned long long)s.steps[s.n_step - 1].s.seq);
    if (rc == 0) {
        range_text(&s, o->events, range, sizeof(range));
        ftr_filter(&s, &filter);
        say_lost(&s, o->events || o->json || o->perfetto || l != NULL);
        rc = o->perfetto ? write_perfetto(o, &s) : 0;
        if (o->json)
            rc = fct_print_json(ftr_json(&s, l));
        else if (!o->perfetto)
            rc = show_tables(o, &s, l);
        if (l == NULL && (o->events ? s.n_event == 0 : s.n_step == 0))
            fct_fail(0, "trace: nothing chosen; %s", range);
    }
    ftr_free(&s);
    return rc;
}

/* ---- follow ---------------------------------------------------------------------- */

struct follow {
    const struct fct *f;
    const struct opt *o;
    const struct trc_seg *seg;
    struct ftr_filter filter;
    struct ftr_snap snap;   /* its clock, worker and bases; one step at a time */
    struct ftr_step before; /* seq 0: none */
    uint64_t next, missed;
    int torn; /* times that record next could not be read */
    uint64_t t_check;
    uint64_t shown;
};

/* The segment in use is not the daemon's any more, or it has ended. */
static int
check(struct follow *w)
{
    const struct trc_seg *now;
    uint32_t generation;
    int ended, other, rc;

    if (__atomic_load_n(&w->seg->magic, __ATOMIC_ACQUIRE) != TRC_MAGIC)
        return fct_unav("the daemon ended");
    if (clk_now_ns() - w->t_check < CHECK_MS * UINT64_C(1000000))
        return 0;
    w->t_check = clk_now_ns();
    rc = fct_trace_try(w->f, w->o->group, CHECK_MS, &now);
    if (rc == -ETIMEDOUT)
        return 0; /* it stands still, and so does its trace */
    if (rc != 0)
        return fct_unav(rc == -ENOENT ? "the daemon ended" : "the daemon's trace: %s",
            strerror(-rc));
    other = memcmp(now->boot_id, w->seg->boot_id, sizeof(now->boot_id)) != 0;
    trc_leave((struct trc_seg *)(uintptr_t)now);
    if (other)
        return fct_unav("the daemon ended, and another was started");
    ask_state(w->f, w->o->group, &ended, &generation);
    if (ended)
        return fct_unav("the daemon ended");
    if (generation != 0)
        w->snap.generation = generation;
    return 0;
}

static void
show_followed(struct follow *w, struct ftr_step *st)
{
    struct ftr_step pair[2] = { w->before, *st };
    struct ftr_snap two = w->snap;

    two.steps = w->before.s.seq != 0 ? pair : pair + 1;
    two.n_step = w->before.s.seq != 0 ? 2 : 1;
    ftr_derive(&two);
    w->before = pair[1];
    w->snap.n_base = two.n_base;
    memcpy(w->snap.bases, two.bases, sizeof(two.bases));
    if (!ftr_match_step(&pair[1], &w->filter))
        return;
    w->shown++;
    if (w->o->json)
        (void)fct_print_json(ftr_step_json(&w->snap.clock, &pair[1]));
    else
        ftr_show_step(&w->snap.clock, &pair[1], 1);
}

/* All steps there are that are collected, or never will be. */
static void
follow_steps(struct follow *w)
{
    uint64_t n = trc_n_step(w->seg);
    struct ftr_step st, newest;

    for (; w->next <= n && !fct_interrupted; w->next++) {
        if (!trc_get_step(w->seg, w->next, &st.s)) {
            /* being written, unless it is overwritten or its worker died over it */
            if (trc_n_step(w->seg) < w->next + TRC_STEPS && w->torn++ < TORN_POLLS)
                return;
            w->missed++;
            w->torn = 0;
            w->before.s.seq = 0;
            continue;
        }
        w->torn = 0;
        if (trc_get_step(w->seg, n, &newest.s) && newest.s.generation > w->snap.generation)
            w->snap.generation = newest.s.generation;
        if ((st.s.flags & TRC_DONE) == 0 && st.s.generation >= w->snap.generation)
            return;
        show_followed(w, &st);
    }
}

static void
follow_events(struct follow *w)
{
    uint64_t n = trc_n_event(w->seg);
    struct trc_event e;
    struct trc_step s;

    /* which numbers the steps have that events name */
    if (trc_get_step(w->seg, trc_n_step(w->seg), &s)) {
        w->snap.bases[0] = (struct ftr_base){ s.generation, s.seq - s.epoch };
        w->snap.n_base = 1;
    }
    for (; w->next <= n && !fct_interrupted; w->next++) {
        if (!trc_get_event(w->seg, w->next, &e)) {
            w->missed++;
            continue;
        }
        if (!ftr_match_event(&e, &w->filter))
            continue;
        w->shown++;
        if (w->o->json)
            (void)fct_print_json(ftr_event_json(&w->snap, &e));
        else
            ftr_show_event(&w->snap, &e);
    }
}

static int
follow_start(struct follow *w)
{
    uint64_t n = w->o->events ? trc_n_event(w->seg) : trc_n_step(w->seg);
    uint64_t size = w->o->events ? TRC_EVENTS : TRC_STEPS, back = 0;
    int rc, ended;

    w->snap.clock = (struct ftr_clock){ clk_now_ns(), clk_wall_ns() };
    rc = make_filter(w->o, &w->snap.clock, &w->filter);
    if (rc != 0)
        return rc;
    ask_state(w->f, w->o->group, &ended, &w->snap.generation);
    if (ended)
        return fct_unav("trace: the daemon has ended");
    if (w->o->has_last)
        back = w->o->last;
    else if (w->o->since != NULL || w->o->has_request)
        back = size;
    if (back > size - size / 8)
        back = size - size / 8; /* the rest may vanish before it is read */
    w->next = n > back ? n - back + 1 : 1;
    w->t_check = clk_now_ns();
    return 0;
}

static int
follow(const struct fct *f, const struct trc_seg *seg, const struct opt *o)
{
    struct follow w = { .f = f, .o = o, .seg = seg };
    int rc = follow_start(&w);

    if (rc != 0)
        return rc;
    fct_catch(SIGINT, 0);
    fct_catch(SIGTERM, 0);
    if (!o->json && o->events)
        ftr_show_event_head();
    else if (!o->json)
        ftr_show_step_head(1);
    while (rc == 0 && !fct_interrupted) {
        if (o->events)
            follow_events(&w);
        else
            follow_steps(&w);
        if (fct_flush() != 0)
            return FCT_EX_IO;
        if (w.missed > 0)
            fct_fail(0, "trace: %llu %s were overwritten before they were read",
                (unsigned long long)w.missed, o->events ? "events" : "steps");
        w.missed = 0;
        rc = check(&w);
        if (rc == 0 && !fct_interrupted)
            clk_sleep_ns(POLL_MS * CLK_MS);
    }
    if (!o->json)
        printf("%llu %s\n", (unsigned long long)w.shown, o->events ? "events" : "steps");
    return rc;
}

int
fct_cmd_trace(const struct fct *f, int argc, char **argv)
{
    const struct trc_seg *seg = NULL;
    struct ftr_filter filter;
    struct ftr_clock now = { clk_now_ns(), clk_wall_ns() };
    struct opt o = { 0 };
    int rc = fct_parse(&line, argc, argv, &o);

    if (rc == FCT_GO)
        rc = conflicts(&o);
    else
        return rc;
    if (rc != 0)
        return rc;
    /* Options are judged before the daemon is looked for. */
    rc = make_filter(&o, &now, &filter);
    if (rc == 0)
        rc = fct_trace_open(f, o.group, &seg);
    if (rc != 0)
        return rc;
    return o.follow ? follow(f, seg, &o) : once(f, seg, &o);
}
