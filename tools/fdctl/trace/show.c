/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/trace/trace.h"

#include "libclient/fdname.h"

static const char *const kinds[TRC__N] = TRC_KIND_NAMES;

const char *
ftr_kind(const struct trc_event *e)
{
    return e->kind > 0 && e->kind < TRC__N ? kinds[e->kind] : "unknown";
}

/* Index of an event's kind; 0, which has no facts, if it is unknown. */
static size_t
kind_of(const struct trc_event *e)
{
    return e->kind < TRC__N ? e->kind : 0;
}

const char *
ftr_code(int code)
{
    return code == 0 ? "ok" : fdn_status_name(code);
}

/* ---- JSON ------------------------------------------------------------------------ */

/* NULL, which json_pack() turns into null, for FTR_NONE. */
static json_t *
json_ns(uint64_t ns)
{
    return ns != FTR_NONE ? json_integer((json_int_t)ns) : NULL;
}

static json_t *
json_span(uint64_t from, uint64_t to, double unit_ns)
{
    return from == FTR_NONE || to == FTR_NONE
        ? NULL
        : json_real((double)ftr_span(from, to) / unit_ns);
}

static json_t *
json_us(uint64_t ns)
{
    return json_span(0, ns, 1e3);
}

json_t *
ftr_counts_json(const struct ftr_step *st)
{
    const struct trc_step *s = &st->s;

    return json_pack("{s:I, s:I, s:i, s:s, s:b, s:b, s:b, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
                     "s:i, s:i, s:i, s:i, s:i, s:i}",
        "step", (json_int_t)s->seq, "epoch", (json_int_t)s->epoch, "generation",
        (int)s->generation, "state",
        (s->flags & TRC_DONE) != 0 ? "done"
            : st->lost             ? "lost"
                                   : "on its way",
        "graph", (s->flags & TRC_GRAPH) != 0, "follows", (s->flags & TRC_FOLLOWS) != 0,
        "profiled", (s->flags & TRC_PROFILED) != 0, "divided",
        (s->flags & TRC_DIVIDED) != 0, "rows", s->n_row, "prefill",
        s->n_row - s->n_decode - s->n_verify, "decode", s->n_decode, "verify", s->n_verify,
        "tokens", s->n_tok, "padded_tokens", s->n_pad, "outputs", s->n_out, "cached_tokens",
        s->n_cached, "preempted", s->n_preempted, "copies", s->n_copy, "waiting",
        s->n_waiting, "blocks_used", s->blocks_used, "blocks_free", s->blocks_free);
}

json_t *
ftr_step_json(const struct ftr_clock *c, const struct ftr_step *st)
{
    struct trc_step s = st->s;
    json_t *o = ftr_counts_json(st);

    if ((s.flags & TRC_DONE) == 0)
        s.t_begin_ns = s.t_end_ns = s.t_collect_ns = s.t_done_ns = FTR_NONE;
    json_object_update_new(o,
        json_pack("{s:I, s:o, s:o, s:o?, s:o?, s:o?, s:o?, s:o?, s:I, s:I, s:I, s:o?, s:o?, "
                  "s:o?, s:o?}",
            "unix_ns", (json_int_t)ftr_real_ns(c, s.t_launch_ns), "plan_us",
            json_span(s.t_pick_ns, s.t_launch_ns, 1e3), "launch_us",
            json_span(s.t_launch_ns, s.t_queued_ns, 1e3), "ahead_us",
            json_span(s.t_pick_ns, s.t_begin_ns, 1e3), "device_us",
            json_span(s.t_begin_ns, s.t_end_ns, 1e3), "gap_us", json_us(st->gap_ns),
            "until_us", json_span(s.t_end_ns, s.t_collect_ns, 1e3), "host_us",
            json_span(s.t_collect_ns, s.t_done_ns, 1e3), "t_pick_ns",
            (json_int_t)s.t_pick_ns, "t_launch_ns", (json_int_t)s.t_launch_ns,
            "t_queued_ns", (json_int_t)s.t_queued_ns, "t_begin_ns", json_ns(s.t_begin_ns),
            "t_end_ns", json_ns(s.t_end_ns), "t_collect_ns", json_ns(s.t_collect_ns),
            "t_done_ns", json_ns(s.t_done_ns)));
    return o;
}

/* Keys of an event's numbers, and their template in the table. */
static const struct {
    const char *a, *b, *text;
} event_facts[TRC__N] = { [TRC_SUBMIT] = { "prompt_tokens", "output_tokens_max",
                              "  {prompt_tokens} prompt tokens, at most "
                              "{output_tokens_max} more" },
    [TRC_START] = { "cached_tokens", "slot", "  {cached_tokens} tokens cached, slot {slot}" },
    [TRC_RESUME] = { "cached_tokens", "slot",
        "  {cached_tokens} tokens cached, slot {slot}" },
    [TRC_PREEMPT] = { "tokens", NULL, "  had {tokens} tokens" },
    [TRC_END] = { "code", "output_tokens", "  {result}, {output_tokens} output tokens" } };

json_t *
ftr_facts_json(const struct trc_event *e)
{
    size_t k = kind_of(e);
    json_t *o = json_object();

    if (event_facts[k].a != NULL)
        json_object_set_new(o, event_facts[k].a, json_integer(e->a));
    if (k == TRC_END)
        json_object_set_new(o, "result", json_string(ftr_code(e->a)));
    if (event_facts[k].b != NULL)
        json_object_set_new(o, event_facts[k].b, json_integer(e->b));
    return o;
}

json_t *
ftr_event_json(const struct ftr_snap *snap, const struct trc_event *e)
{
    uint64_t step = ftr_number(snap, e->generation, e->epoch > 0 ? e->epoch : FTR_NONE);
    json_t *o = json_pack("{s:I, s:i, s:s, s:i, s:o?, s:I, s:I}", "request",
        (json_int_t)e->id, "sample", (int)e->sample, "event", ftr_kind(e), "generation",
        (int)e->generation, "step", json_ns(step), "unix_ns",
        (json_int_t)ftr_real_ns(&snap->clock, e->t_ns), "t_ns", (json_int_t)e->t_ns);

    json_object_update_new(o, ftr_facts_json(e));
    return o;
}

static int
by_number(const void *a, const void *b)
{
    return ftr_order(*(const uint64_t *)a, *(const uint64_t *)b, 0, 0);
}

/* Percentile pct of sorted values by nearest rank; NULL if there are none. */
static json_t *
rank_us(const uint64_t *v, size_t n, size_t pct)
{
    return n > 0 ? json_us(v[(n * pct + 99) / 100 - 1]) : NULL;
}

json_t *
ftr_sum(const struct ftr_step *steps, size_t n)
{
    uint64_t *device = calloc(3 * n + 1, sizeof(*device)), *gap = device + n;
    uint64_t *ahead = gap + n, device_ns = 0, gap_ns = 0, begin = 0, end = 0;
    json_int_t n_graph = 0, tokens = 0, outputs = 0;
    size_t n_done = 0, n_gap = 0, some;
    json_t *o;

    if (device == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        const struct trc_step *t = &steps[i].s;

        n_graph += (t->flags & TRC_GRAPH) != 0;
        if ((t->flags & TRC_DONE) == 0)
            continue;
        ahead[n_done] = ftr_span(t->t_pick_ns, t->t_begin_ns);
        device[n_done] = ftr_span(t->t_begin_ns, t->t_end_ns);
        device_ns += device[n_done++];
        tokens += t->n_tok;
        outputs += t->n_out;
        end = t->t_end_ns > end ? t->t_end_ns : end;
        if (steps[i].gap_ns != FTR_NONE) {
            gap[n_gap++] = steps[i].gap_ns;
            gap_ns += steps[i].gap_ns;
        }
    }
    /* A step launched ahead was picked while the device still ran others. */
    if (n > 0)
        begin = steps[0].gap_ns != FTR_NONE
            ? steps[0].s.t_begin_ns - steps[0].gap_ns
            : steps[0].s.t_pick_ns;
    qsort(device, n_done, sizeof(*device), by_number);
    qsort(gap, n_gap, sizeof(*gap), by_number);
    qsort(ahead, n_done, sizeof(*ahead), by_number);
    some = n_done > 0 ? n_done : 1; /* without steps: as for one of 0 us */
    o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o?, s:o?, s:o?, s:o?, "
                  "s:o?}",
        "steps", (json_int_t)n, "collected", (json_int_t)n_done, "graphs", n_graph,
        "tokens", tokens, "outputs", outputs, "span_us", json_span(begin, end, 1e3),
        "device_us", json_us(device_ns), "device_mean_us", json_us(device_ns / some),
        "device_p99_us", rank_us(device, some, 99), "gap_mean_us",
        n_gap > 0 ? json_us(gap_ns / n_gap) : NULL, "gap_p99_us", rank_us(gap, n_gap, 99),
        "ahead_p50_us", rank_us(ahead, n_done, 50), "ahead_p99_us",
        rank_us(ahead, n_done, 99), "ahead_max_us", rank_us(ahead, n_done, 100));
    free(device);
    return o;
}

static json_t *
life_json(const struct ftr_life *l)
{
    int ended = l->t_end != FTR_NONE;

    return json_pack("{s:I, s:s, s:i, s:i, s:o?, s:o?, s:o?, s:o, s:o?, s:s?}", "request",
        (json_int_t)l->id, "state",
        ended         ? "ended"
            : l->lost ? "lost"
                      : "running",
        "generation", (int)l->generation, "preempted", (int)l->n_preempted, "queued_ms",
        json_span(l->t_submit, l->t_start, 1e6), "prefill_ms",
        json_span(l->t_start, l->t_first, 1e6), "decode_ms",
        json_span(l->t_first, l->t_end, 1e6), "preempted_ms",
        json_span(0, l->preempted_ns, 1e6), "output_tokens",
        ended ? json_integer(l->n_out) : NULL, "result", ended ? ftr_code(l->code) : NULL);
}

json_t *
ftr_json(const struct ftr_snap *snap, const struct ftr_life *life)
{
    json_t *steps = json_array(), *events = json_array();

    for (size_t i = 0; i < snap->n_step; i++)
        json_array_append_new(steps, ftr_step_json(&snap->clock, &snap->steps[i]));
    for (size_t i = 0; i < snap->n_event; i++)
        json_array_append_new(events, ftr_event_json(snap, &snap->events[i]));
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:o*, s:o, s:o}", "daemon",
        snap->ended ? "ended" : "running", "unix_ns", (json_int_t)snap->clock.real_ns,
        "t_ns", (json_int_t)snap->clock.mono_ns, "steps_overwritten",
        (json_int_t)snap->lost_steps, "events_overwritten", (json_int_t)snap->lost_events,
        "summary", ftr_sum(snap->steps, snap->n_step), "request",
        life != NULL ? life_json(life) : NULL, "steps", steps, "events", events);
}

/* ---- steps ----------------------------------------------------------------------- */

#define STEP \
    "{time} {step:8} [generations|{generation:4} ]{rows:5} {tokens:6} {prefill:5} " \
    "{decode:5} {verify:5} [graph|graph ][!graph|eager ] {padded_tokens:6} " \
    "{cached_tokens:6} {preempted:4} {copies:4} {waiting:5} {blocks_used:6} " \
    "{blocks_free:6} {plan_us:8.1} {launch_us:8.1} [state=on its way|on its way]" \
    "[state=lost|lost with its worker][state=done|{ahead_us:8.1} {device_us:9.1} " \
    "[gap_us?|{gap_us:8.1}][!gap_us?|       -] {until_us:8.1} {host_us:8.1}[profiled|  profiled][divided|  divided]]\n"

void
ftr_show_head(int events, int generations)
{
    if (events)
        puts("time             request sample event            step  what");
    else
        printf("%-15s %8s %s%5s %6s %5s %5s %5s %-6s %6s %6s %4s %4s %5s %6s %6s "
               "%8s %8s %8s %9s %8s %8s %8s\n",
            "time", "step", generations ? " gen " : "", "rows", "tokens", "prefl",
            "decod", "verif", "how", "padded", "cached", "pree", "copy", "wait", "blocks",
            "free", "plan us", "launch", "ahead", "device", "gap", "until", "host");
}

void
ftr_show_step(const struct ftr_clock *c, const struct ftr_step *st, int generations)
{
    json_t *o = ftr_step_json(c, st);

    json_object_update_new(o,
        json_pack("{s:s, s:b}", "time", FTR_TIME(c, st->s.t_launch_ns), "generations",
            generations));
    fct_text(stdout, STEP, o);
    json_decref(o);
}

#define SUM \
    "{steps} step[1>steps|s][steps>1|s][steps>collected| ({collected} collected)][collected|" \
    "[!chosen|[span_us| in {span_us/1e6:.3} s: {tokens/span_us*1e6:.1} tokens/s, " \
    "{outputs/span_us*1e6:.1} results/s; device busy {device_us*100/span_us:.1} %]]; device " \
    "mean {device_mean_us:.1} us, p99 {device_p99_us:.1} us[gap_mean_us?|; gap mean " \
    "{gap_mean_us:.1} us, p99 {gap_p99_us:.1} us]; picked ahead p50 {ahead_p50_us:.1} us, " \
    "p99 {ahead_p99_us:.1} us, most {ahead_max_us:.1} us; graphs {graphs*100/steps:.1} %]\n"

int
ftr_show_sum(const struct ftr_step *steps, size_t n, int chosen)
{
    json_t *o = ftr_sum(steps, n);

    if (o == NULL)
        return fct_oom();
    json_object_set_new(o, "chosen", json_boolean(chosen));
    fct_text(stdout, SUM, o);
    json_decref(o);
    return 0;
}

/* ---- events ---------------------------------------------------------------------- */

void
ftr_show_event(const struct ftr_snap *snap, const struct trc_event *e)
{
    json_t *o = ftr_event_json(snap, e);

    json_object_set_new(o, "time", json_string(FTR_TIME(&snap->clock, e->t_ns)));
    fct_text(stdout, "{time} {request:8} {sample:6} {event:-12} {step:8}", o);
    if (event_facts[kind_of(e)].text != NULL)
        fct_text(stdout, event_facts[kind_of(e)].text, o);
    putchar('\n');
    json_decref(o);
}

#define LIFE \
    "request {request}: queued [queued_ms?|{queued_ms:.3} ms][!queued_ms?|-]" \
    "[!never|, prefill [prefill_ms?|{prefill_ms:.3} ms][!prefill_ms?|-]]" \
    "[has_first|, decode [decode_ms?|{decode_ms:.3} ms][!decode_ms?|-]]" \
    ", preempted {preempted} time[1>preempted|s][preempted>1|s]" \
    "[preempted_ms>0| for {preempted_ms:.3} ms]" \
    "[state=ended|, {output_tokens} output tokens, {result}]" \
    "[state=lost|, lost with its worker][state=running|, not ended yet]\n"

void
ftr_show_life(const struct ftr_snap *snap, const struct ftr_life *l)
{
    uint64_t now = snap->ended || l->lost ? FTR_NONE : snap->clock.mono_ns;
    uint64_t end = l->t_end != FTR_NONE ? l->t_end : now;
    int never = l->t_start == FTR_NONE && l->t_first == FTR_NONE && l->t_submit != FTR_NONE;
    int never_first = l->t_first == FTR_NONE && l->t_start != FTR_NONE;
    json_t *o = life_json(l);

    /* a phase that has not ended lasts until now */
    json_object_update_new(o,
        json_pack("{s:o?, s:o?, s:o?, s:b, s:b}", "queued_ms",
            json_span(l->t_submit, never ? end : l->t_start, 1e6), "prefill_ms",
            json_span(l->t_start, never_first ? end : l->t_first, 1e6), "decode_ms",
            json_span(l->t_first, end, 1e6), "never", never, "has_first",
            l->t_first != FTR_NONE));
    fct_text(stdout, LIFE, o);
    json_decref(o);
}
