/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"

#include <sys/stat.h>

#include "tools/fdctl/trace/trace.h"

#define SHOWN      32 /* rows of a table without -n */
#define POLL_MS    20
#define CHECK_MS   1000 /* --follow: interval of checking that the daemon runs */
#define TORN_POLLS 50   /* --follow: polls until an incomplete record is skipped */

struct opt {
    uint32_t group;
    int events, all, follow, json, perfetto, has_last, has_request, has_slow;
    const char *since, *until, *steps, *file;
    double slow_us;
    struct ftr_filter filter;
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
take_last(void *args, const char *value)
{
    return fct_u64("trace: -n", value, INT64_MAX, &((struct opt *)args)->filter.last);
}

#define FCT_ARGS struct opt
static const struct fct_opt opts[] = {
    FCT_FN('n', "last", "N", take_last, "the last N (32; all with a filter or in JSON)",
        FCT_HAS(has_last)),
    FCT_FLAG(0, "all", all, "all that the trace has"),
    FCT_FLAG(0, "events", events, "what happened to requests instead of steps"),
    FCT_U64(0, "request", "ID", filter.request, INT64_MAX,
        "its events, and the steps from its start to its end", FCT_HAS(has_request)),
    FCT_TEXT(0, "since", "T", since, "not before T: 5s, 200ms, 2m ago, or HH:MM:SS[.mmm]"),
    FCT_TEXT(0, "until", "T", until, "not after T"),
    FCT_TEXT(0, "step", "A[:B]", steps, "step number A, or A to B"),
    FCT_REAL(0, "slow", "US", slow_us, 0, 1e12, "steps whose device time or gap is longer",
        .range = "0 or more microseconds", FCT_HAS(has_slow)),
    FCT_FLAG('f', "follow", follow, "print as they come"),
    FCT_U32('g', "group", "N", group, 0, 31, "of this group (0)"),
    FCT_FLAG(0, "json", json, "{\"steps\": [...], \"events\": [...], \"summary\": {...}}"),
    FCT_FN(0, "perfetto", FCT_MAYBE, take_perfetto,
        "Trace Event JSON for the Perfetto viewer, to FILE or\n"
        "                               standard output, or to fdd-trace.json if that\n"
        "                               is a terminal"),
    FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line =
    FCT_LINE("fdctl trace [-n N | --all] [--events] [--request ID] [--since T]\n"
             "           [--until T] [--step A[:B]] [--slow US] [--group N]\n"
             "           [--follow] [--json | --perfetto [FILE]]",
        "The last steps of the engine and what happened to requests, read from shared\n"
        "memory; for administrators. Times are in us.",
        opts, .operand = take_file, .prefix = "trace: ");

static int
conflicts(const struct opt *o)
{
    const struct {
        int is_so;
        const char *text;
    } wrong[] = {
        { o->has_request && o->filter.request == 0, "--request 0: requests count from 1" },
        { o->has_last && o->filter.last == 0 && !o->follow, "-n 0: must be 1 or more" },
        { o->follow && o->filter.request != 0 && !o->events,
            "--follow --request follows events: add --events" },
        { o->follow && o->until != NULL, "--follow and --until exclude each other" },
        { o->follow && o->steps != NULL, "--follow and --step exclude each other" },
        { o->follow && o->perfetto, "--follow and --perfetto exclude each other" },
        { o->follow && o->all, "--follow and --all exclude each other" },
        { o->events && o->perfetto, "--events and --perfetto exclude each other" },
        { o->events && o->has_slow, "--events and --slow exclude each other" },
        { o->json && o->perfetto, "--json and --perfetto exclude each other" },
        { o->has_last && o->all, "-n and --all exclude each other" },
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (wrong[i].is_so)
            return fct_usage("trace: %s", wrong[i].text);
    return 0;
}

/* A, A: or A:B */
static int
step_range(const char *text, struct ftr_filter *f)
{
    const char *colon = strchrnul(text, ':');
    int is_range = fct_digits(text, (size_t)(colon - text), UINT64_MAX, &f->step_a);

    f->step_b = strcmp(colon, ":") == 0 ? FTR_NONE : f->step_a;
    if (colon[0] != '\0' && colon[1] != '\0')
        is_range &= fct_digits(colon + 1, strlen(colon + 1), UINT64_MAX, &f->step_b);
    if (!is_range || f->step_a == 0)
        return fct_usage("trace: --step %s: give a step's number or a range such as 120:180",
            text);
    if (f->step_b < f->step_a)
        return fct_usage("trace: --step %s: ends before it begins", text);
    return 0;
}

/* Do options select records? If so, all matching ones are shown. */
static int
chooses(const struct opt *o)
{
    return o->since != NULL || o->until != NULL || o->steps != NULL ||
        o->filter.request != 0 || o->has_slow;
}

static int
make_filter(struct opt *o, const struct ftr_clock *now)
{
    struct ftr_filter *f = &o->filter;
    int rc = 0;

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
    if (!o->all && !o->json && !o->perfetto && !chooses(o) && !o->has_last)
        f->last = SHOWN;
    f->whole_requests = o->perfetto;
    return rc;
}

/* ---- the daemon ------------------------------------------------------------------ */

/* Ask whether the daemon runs, and its worker's generation: the trace may lack both. */
static void
ask_state(const struct fct *f, uint32_t group, struct ftr_snap *s)
{
    struct fct quick = *f;
    json_t *st = NULL;
    const json_t *w;
    uint32_t generation;
    int rc;

    quick.timeout_ms = 2000;
    rc = fct_ask_once(&quick, fct_question("status"), 1, &st);
    s->ended = rc == EX_UNAVAILABLE;
    w = json_array_get(json_object_get(st, "workers"), group);
    /* pid 0: the worker is dead and the next one not started yet */
    generation = (uint32_t)fct_num(w, "generation") + (fct_num(w, "pid") == 0);
    if (rc == 0 && generation != 0)
        s->generation = generation;
    json_decref(st);
}

static void
say_lost(uint64_t n, const char *one, const char *several, const char *why)
{
    if (n > 0)
        fct_fail(0, "trace: %llu %s %s", (unsigned long long)n, n == 1 ? one : several, why);
}

static int
no_request(struct ftr_snap *s, uint64_t id)
{
    char has[96] = "no requests yet";

    qsort(s->events, s->n_event, sizeof(*s->events), ftr_by_request);
    if (s->n_event > 0)
        snprintf(has, sizeof(has), "the requests %llu to %llu in its last %zu events",
            (unsigned long long)s->events[0].id,
            (unsigned long long)s->events[s->n_event - 1].id, s->n_event);
    return fct_data("trace: request %llu is not in the trace, which has %s",
        (unsigned long long)id, has);
}

/* Describe the records of the trace and their times, before filters reduce them. */
static void
range_text(const struct ftr_snap *s, int events, int with_times, char ret[128])
{
    const struct trc_event *e = s->events;
    const struct ftr_step *st = s->steps;
    size_t last = (events ? s->n_event : s->n_step) - 1;
    int n;

    if (last == SIZE_MAX) {
        snprintf(ret, 128, "no %s yet", events ? "events" : "steps");
        return;
    }
    n = events ? snprintf(ret, 128, "%zu events", last + 1)
               : snprintf(ret, 128, "the steps %llu to %llu",
                     (unsigned long long)st[0].s.seq, (unsigned long long)st[last].s.seq);
    if (with_times)
        snprintf(ret + n, 128 - (size_t)n, ", of %s to %s",
            FTR_TIME(&s->clock, events ? e[0].t_ns : st[0].s.t_launch_ns),
            FTR_TIME(&s->clock, events ? e[last].t_ns : st[last].s.t_launch_ns));
}

/* ---- once ------------------------------------------------------------------------ */

static int
show_tables(const struct opt *o, const struct ftr_snap *s, const struct ftr_life *l)
{
    int generations = s->n_step > 0 &&
        s->steps[0].s.generation != s->steps[s->n_step - 1].s.generation,
        rc = 0;

    if (o->events || l != NULL) {
        ftr_show_head(1, 0);
        for (size_t i = 0; i < s->n_event; i++)
            ftr_show_event(s, &s->events[i]);
        if (l == NULL)
            printf("%zu event%s\n", s->n_event, s->n_event == 1 ? "" : "s");
    }
    if (!o->events) {
        if (l != NULL)
            putchar('\n');
        ftr_show_head(0, generations);
        for (size_t i = 0; i < s->n_step; i++)
            ftr_show_step(&s->clock, &s->steps[i], generations);
        rc = ftr_show_sum(s->steps, s->n_step, o->has_slow);
    }
    if (l != NULL)
        ftr_show_life(s, l);
    return rc;
}

static int
write_perfetto(const struct opt *o, struct ftr_snap *s)
{
    const char *path = o->file != NULL ? o->file
        : isatty(STDOUT_FILENO)        ? "fdd-trace.json"
                                       : "-";
    FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    struct stat st;
    int rc, is_file;

    if (out == NULL)
        return fct_fail(EX_IOERR, "trace: %s: %s", path, strerror(errno));
    rc = ftr_perfetto(out, s);
    is_file = out != stdout && fstat(fileno(out), &st) == 0 && S_ISREG(st.st_mode);
    if (out != stdout && fclose(out) != 0 && rc == 0)
        rc = -errno;
    if (rc != 0 && is_file) /* an incomplete file cannot be read */
        (void)unlink(path);
    if (rc != 0)
        return fct_fail(rc == -ENOMEM && out == stdout ? EX_SOFTWARE : EX_IOERR,
            "trace: %s: %s", out == stdout ? "standard output" : path, strerror(-rc));
    if (out != stdout)
        fct_fail(0, "%s: %zu steps, %zu events; open it in https://ui.perfetto.dev", path,
            s->n_step, s->n_event);
    return 0;
}

static int
once(const struct fct *f, const struct trc_seg *seg, struct opt *o)
{
    struct ftr_life life, *l = o->filter.request != 0 ? &life : NULL;
    struct ftr_filter *filter = &o->filter;
    struct ftr_snap s;
    uint64_t first = 0;
    char range[128];
    int rc = 0;

    /* Read far back only if a filter needs it: a shorter copy loses fewer records. */
    if (!chooses(o) && !o->all && !o->json && !o->perfetto && !o->events)
        first = ftr_span(filter->last + 1, trc_n_step(seg) + 1);
    if (ftr_read(seg, first, &s) != 0)
        return fct_oom();
    ask_state(f, o->group, &s);
    if (s.ended)
        fct_fail(0, "trace: the daemon has ended; this is what it left");
    ftr_derive(&s);
    if (l != NULL && ftr_life(&s, filter->request, l) != 0)
        rc = no_request(&s, filter->request);
    else if (l != NULL && o->steps == NULL)
        (void)ftr_life_steps(&s, l, &filter->step_a, &filter->step_b);
    if (rc == 0 && o->steps != NULL &&
        (s.n_step == 0 || filter->step_b < s.steps[0].s.seq ||
            filter->step_a > s.steps[s.n_step - 1].s.seq)) {
        range_text(&s, 0, 0, range);
        rc = fct_data("trace: step %s is not in the trace, which has %s", o->steps, range);
    }
    if (rc != 0)
        goto free_copy;
    range_text(&s, o->events, 1, range);
    ftr_filter(&s, filter);
    say_lost(s.lost_steps, "step was", "steps were", "overwritten while reading");
    say_lost(s.torn_steps, "step is", "steps are",
        "unreadable: the worker died while writing");
    if (o->events || o->json || o->perfetto || l != NULL)
        say_lost(s.lost_events, "event was", "events were", "overwritten while reading");
    rc = o->perfetto ? write_perfetto(o, &s)
        : o->json    ? fct_print_json(ftr_json(&s, l))
                     : show_tables(o, &s, l);
    if (l == NULL && (o->events ? s.n_event : s.n_step) == 0)
        fct_fail(0, "trace: nothing chosen; the trace has %s", range);
free_copy:
    ftr_free(&s);
    return rc;
}

/* ---- follow ---------------------------------------------------------------------- */

struct follow {
    const struct fct *f;
    const struct opt *o;
    const struct trc_seg *seg;
    struct ftr_snap snap;    /* clock, worker and bases; its steps are those below */
    struct ftr_step pair[2]; /* the step before, and the last one; seq 0: none */
    uint64_t next, missed;
    int torn; /* times that record next could not be read */
    uint64_t t_check;
    uint64_t shown;
};

/* Returns 0, or an exit code if the daemon has ended or uses another segment. */
static int
check(struct follow *w)
{
    const struct trc_seg *now;
    int other, rc;

    if (__atomic_load_n(&w->seg->magic, __ATOMIC_ACQUIRE) != TRC_MAGIC)
        return fct_unav("the daemon ended");
    if (clk_now_ns() - w->t_check < CHECK_MS * UINT64_C(1000000))
        return 0;
    w->t_check = clk_now_ns();
    rc = fct_trace_open(w->f, w->o->group, CHECK_MS, &now);
    /* the daemon hangs, and so its trace does not grow, or it refuses for now */
    if (rc == -ETIMEDOUT || rc == -EBUSY)
        return 0;
    if (rc != 0)
        return fct_unav(rc == -ENOENT ? "the daemon ended" : "the daemon's trace: %s",
            strerror(-rc));
    other = memcmp(now->boot_id, w->seg->boot_id, sizeof(now->boot_id)) != 0;
    trc_leave((struct trc_seg *)(uintptr_t)now);
    if (other)
        return fct_unav("the daemon ended, and another was started");
    ask_state(w->f, w->o->group, &w->snap);
    return w->snap.ended ? fct_unav("the daemon ended") : 0;
}

/* Print the new steps that are collected or never will be. */
static void
follow_steps(struct follow *w)
{
    uint64_t n = trc_n_step(w->seg);
    struct ftr_step *last = &w->pair[1];
    struct trc_step st, newest;
    int is_first;

    for (; w->next <= n && !fct_interrupted; w->next++) {
        if (!trc_get_step(w->seg, w->next, &st)) {
            /* It is being written, unless it was overwritten or its worker died. */
            if (trc_n_step(w->seg) < w->next + TRC_STEPS && w->torn++ < TORN_POLLS)
                return;
            w->missed++;
            w->torn = 0;
            w->pair[1].s.seq = 0;
            continue;
        }
        w->torn = 0;
        if (trc_get_step(w->seg, n, &newest) && newest.generation > w->snap.generation)
            w->snap.generation = newest.generation;
        if ((st.flags & TRC_DONE) == 0 && st.generation >= w->snap.generation)
            return;
        is_first = last->s.seq == 0;
        w->pair[0] = *last;
        last->s = st;
        w->snap.steps = w->pair + is_first;
        w->snap.n_step = 2 - (size_t)is_first;
        ftr_derive(&w->snap);
        if (!ftr_match_step(last, &w->o->filter))
            continue;
        w->shown++;
        if (w->o->json)
            (void)fct_print_json(ftr_step_json(&w->snap.clock, last));
        else
            ftr_show_step(&w->snap.clock, last, 1);
    }
}

static void
follow_events(struct follow *w)
{
    uint64_t n = trc_n_event(w->seg);
    struct trc_event e;
    struct trc_step s;

    /* for the ring's numbers of the steps that events name */
    if (trc_get_step(w->seg, trc_n_step(w->seg), &s)) {
        w->snap.bases[0] = (struct ftr_base){ s.generation, s.seq - s.epoch };
        w->snap.n_base = 1;
    }
    for (; w->next <= n && !fct_interrupted; w->next++) {
        if (!trc_get_event(w->seg, w->next, &e)) {
            w->missed++;
            continue;
        }
        if (!ftr_match_event(&e, &w->o->filter))
            continue;
        w->shown++;
        if (w->o->json)
            (void)fct_print_json(ftr_event_json(&w->snap, &e));
        else
            ftr_show_event(&w->snap, &e);
    }
}

static int
follow(const struct fct *f, const struct trc_seg *seg, const struct opt *o)
{
    struct follow w = { .f = f, .o = o, .seg = seg };
    uint64_t size = o->events ? TRC_EVENTS : TRC_STEPS;
    uint64_t most = size - size / 8; /* the rest may be overwritten before it is read */
    uint64_t back = o->has_last ? o->filter.last
        : o->since != NULL || o->filter.request != 0
        ? size
        : 0;
    int rc = 0;

    w.snap.clock = (struct ftr_clock){ clk_now_ns(), clk_wall_ns() };
    back = back < most ? back : most;
    w.next = ftr_span(back, o->events ? trc_n_event(seg) : trc_n_step(seg)) + 1;
    w.t_check = clk_now_ns();
    ask_state(f, o->group, &w.snap);
    if (w.snap.ended)
        return fct_unav("trace: the daemon has ended");
    fct_catch(SIGINT, 0);
    fct_catch(SIGTERM, 0);
    if (!o->json)
        ftr_show_head(o->events, 1);
    while (rc == 0 && !fct_interrupted) {
        if (o->events)
            follow_events(&w);
        else
            follow_steps(&w);
        if (fct_flush() != 0)
            return EX_IOERR;
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
    struct ftr_clock now = { clk_now_ns(), clk_wall_ns() };
    struct opt o = { .filter = FTR_ALL };
    int rc = fct_parse(&line, argc, argv, &o);

    if (rc != FCT_GO)
        return rc;
    rc = conflicts(&o);
    /* Check options before connecting to the daemon. */
    if (rc == 0)
        rc = make_filter(&o, &now);
    if (rc == 0)
        rc = fct_trace_open(f, o.group, 0, &seg);
    if (rc != 0)
        return rc;
    return o.follow ? follow(f, seg, &o) : once(f, seg, &o);
}
