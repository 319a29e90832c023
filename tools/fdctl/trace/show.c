/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/trace/trace.h"

#include "libclient/fdname.h"

const char *const ftr_kinds[TRC__N] = TRC_KIND_NAMES;

const char *
ftr_kind(const struct trc_event *e)
{
    return e->kind > 0 && e->kind < TRC__N ? ftr_kinds[e->kind] : "unknown";
}

const char *
ftr_code(int code)
{
    return code == 0 ? "ok" : fdn_status_name(code);
}

/* ---- steps ----------------------------------------------------------------------- */

void
ftr_show_step_head(int generations)
{
    printf("%-15s %8s %s%5s %6s %5s %5s %5s %-6s %6s %6s %4s %4s %5s %6s %6s "
           "%8s %8s %8s %9s %8s %8s %8s\n",
        "time", "step", generations ? " gen " : "", "rows", "tokens", "prefl", "decod",
        "verif", "how", "padded", "cached", "pree", "copy", "wait", "blocks", "free",
        "plan us", "launch", "ahead", "device", "gap", "until", "host");
}

static double
us(uint64_t a, uint64_t b)
{
    return (double)ftr_span(a, b) / 1e3;
}

void
ftr_show_step(const struct ftr_clock *c, const struct ftr_step *st, int generations)
{
    const struct trc_step *s = &st->s;
    char time[32], gen[16] = "", gap[32] = "-";

    ftr_time_text(c, s->t_launch_ns, time);
    if (generations)
        snprintf(gen, sizeof(gen), "%4u ", (unsigned)s->generation);
    if (st->gap_ns != FTR_NONE)
        snprintf(gap, sizeof(gap), "%.1f", (double)st->gap_ns / 1e3);
    printf("%s %8llu %s%5d %6d %5d %5d %5d %-6s %6d %6d %4d %4d %5d %6d %6d %8.1f %8.1f ",
        time, (unsigned long long)s->seq, gen, s->n_row, s->n_tok,
        s->n_row - s->n_decode - s->n_verify, s->n_decode, s->n_verify,
        (s->flags & TRC_GRAPH) != 0 ? "graph" : "eager", s->n_pad, s->n_cached,
        s->n_preempted, s->n_copy, s->n_waiting, s->blocks_used, s->blocks_free,
        us(s->t_pick_ns, s->t_launch_ns), us(s->t_launch_ns, s->t_queued_ns));
    if ((s->flags & TRC_DONE) == 0)
        puts(st->lost ? "lost with its worker" : "on its way");
    else
        printf("%8.1f %9.1f %8s %8.1f %8.1f%s%s\n", us(s->t_pick_ns, s->t_begin_ns),
            us(s->t_begin_ns, s->t_end_ns), gap, us(s->t_end_ns, s->t_collect_ns),
            us(s->t_collect_ns, s->t_done_ns),
            (s->flags & TRC_PROFILED) != 0 ? "  profiled" : "",
            (s->flags & TRC_DIVIDED) != 0 ? "  divided" : "");
}

int
ftr_show_sum(const struct ftr_step *steps, size_t n, int chosen)
{
    struct ftr_sum s;
    double secs;

    if (ftr_sum(steps, n, &s) != 0)
        return fct_fail(FCT_EX_SOFT, "out of memory");
    secs = (double)s.span_ns / 1e9;
    printf("%zu step%s", n, n == 1 ? "" : "s");
    if (s.n_done < n)
        printf(" (%zu collected)", s.n_done);
    if (s.n_done == 0) {
        putchar('\n');
        return 0;
    }
    if (!chosen && secs > 0)
        printf(" in %.3f s: %.1f tokens/s, %.1f results/s; device busy %.1f %%", secs,
            (double)s.tokens / secs, (double)s.outputs / secs,
            100 * (double)s.device_ns / (double)s.span_ns);
    printf("; device mean %.1f us, p99 %.1f us", (double)s.device_mean_ns / 1e3,
        (double)s.device_p99_ns / 1e3);
    if (s.n_gap > 0)
        printf("; gap mean %.1f us, p99 %.1f us", (double)s.gap_mean_ns / 1e3,
            (double)s.gap_p99_ns / 1e3);
    printf("; picked ahead p50 %.1f us, p99 %.1f us, most %.1f us",
        (double)s.ahead_p50_ns / 1e3, (double)s.ahead_p99_ns / 1e3,
        (double)s.ahead_max_ns / 1e3);
    printf("; graphs %.1f %%\n", 100 * (double)s.n_graph / (double)n);
    return 0;
}

/* ---- events ---------------------------------------------------------------------- */

/* Keys of an event's numbers, and the text of a table. */
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

void
ftr_show_event_head(void)
{
    printf("%-15s %8s %6s %-12s %8s  %s\n", "time", "request", "sample", "event", "step",
        "what");
}

void
ftr_show_event(const struct ftr_snap *snap, const struct trc_event *e)
{
    uint64_t step = ftr_event_step(snap, e);
    char time[32], at[24] = "-";
    json_t *facts = ftr_facts_json(e);

    ftr_time_text(&snap->clock, e->t_ns, time);
    if (step != FTR_NONE)
        snprintf(at, sizeof(at), "%llu", (unsigned long long)step);
    printf("%s %8llu %6u %-12s %8s", time, (unsigned long long)e->id, (unsigned)e->sample,
        ftr_kind(e), at);
    if (json_object_size(facts) > 0)
        fct_text(stdout, event_facts[e->kind].text, facts);
    putchar('\n');
    json_decref(facts);
}

static void
phase(const char *name, uint64_t from, uint64_t to, const char *before)
{
    if (from == FTR_NONE || to == FTR_NONE)
        printf("%s%s -", before, name);
    else
        printf("%s%s %.3f ms", before, name, (double)ftr_span(from, to) / 1e6);
}

void
ftr_show_life(const struct ftr_snap *snap, const struct ftr_life *l)
{
    uint64_t now = snap->ended || l->lost ? FTR_NONE : snap->clock.mono_ns;
    uint64_t end = l->t_end != FTR_NONE ? l->t_end : now;
    int never = l->t_start == FTR_NONE && l->t_first == FTR_NONE && l->t_submit != FTR_NONE;
    int never_first = l->t_first == FTR_NONE && l->t_start != FTR_NONE;

    printf("request %llu: ", (unsigned long long)l->id);
    phase("queued", l->t_submit, never ? end : l->t_start, "");
    if (!never)
        phase("prefill", l->t_start, never_first ? end : l->t_first, ", ");
    if (l->t_first != FTR_NONE)
        phase("decode", l->t_first, end, ", ");
    printf(", preempted %u time%s", l->n_preempted, l->n_preempted == 1 ? "" : "s");
    if (l->preempted_ns > 0)
        printf(" for %.3f ms", (double)l->preempted_ns / 1e6);
    if (l->t_end != FTR_NONE)
        printf(", %d output tokens, %s\n", l->n_out, ftr_code(l->code));
    else
        puts(l->lost ? ", lost with its worker" : ", not ended yet");
}

/* ---- JSON ------------------------------------------------------------------------ */

static json_t *
json_us(int is_known, uint64_t a, uint64_t b)
{
    return is_known ? fct_json_real(floor(us(a, b) * 1e3 + 0.5) / 1e3) : json_null();
}

static json_t *
json_ns(int is_known, uint64_t ns)
{
    return is_known ? json_integer((json_int_t)ns) : json_null();
}

static json_t *
json_ms(uint64_t from, uint64_t to)
{
    return from == FTR_NONE || to == FTR_NONE
        ? json_null()
        : fct_json_real((double)ftr_span(from, to) / 1e6);
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
    const struct trc_step *s = &st->s;
    int done = (s->flags & TRC_DONE) != 0;
    json_t *o = ftr_counts_json(st);

    json_object_update_new(o,
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                  "s:o, s:o, s:o, s:o, s:o}",
            "unix_ns", json_ns(1, ftr_real_ns(c, s->t_launch_ns)), "plan_us",
            json_us(1, s->t_pick_ns, s->t_launch_ns), "launch_us",
            json_us(1, s->t_launch_ns, s->t_queued_ns), "ahead_us",
            json_us(done, s->t_pick_ns, s->t_begin_ns), "device_us",
            json_us(done, s->t_begin_ns, s->t_end_ns), "gap_us",
            json_us(st->gap_ns != FTR_NONE, 0, st->gap_ns), "until_us",
            json_us(done, s->t_end_ns, s->t_collect_ns), "host_us",
            json_us(done, s->t_collect_ns, s->t_done_ns), "t_pick_ns",
            json_ns(1, s->t_pick_ns), "t_launch_ns", json_ns(1, s->t_launch_ns),
            "t_queued_ns", json_ns(1, s->t_queued_ns), "t_begin_ns",
            json_ns(done, s->t_begin_ns), "t_end_ns", json_ns(done, s->t_end_ns),
            "t_collect_ns", json_ns(done, s->t_collect_ns), "t_done_ns",
            json_ns(done, s->t_done_ns)));
    return o;
}

json_t *
ftr_facts_json(const struct trc_event *e)
{
    size_t k = e->kind < TRC__N ? e->kind : 0;
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
    uint64_t step = ftr_event_step(snap, e);
    json_t *o = json_pack("{s:I, s:i, s:s, s:i, s:o, s:I, s:I}", "request",
        (json_int_t)e->id, "sample", (int)e->sample, "event", ftr_kind(e), "generation",
        (int)e->generation, "step", json_ns(step != FTR_NONE, step), "unix_ns",
        (json_int_t)ftr_real_ns(&snap->clock, e->t_ns), "t_ns", (json_int_t)e->t_ns);

    json_object_update_new(o, ftr_facts_json(e));
    return o;
}

static json_t *
sum_json(const struct ftr_snap *snap)
{
    struct ftr_sum s;

    if (ftr_sum(snap->steps, snap->n_step, &s) != 0)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "steps", (json_int_t)s.n, "collected", (json_int_t)s.n_done, "graphs",
        (json_int_t)s.n_graph, "tokens", (json_int_t)s.tokens, "outputs",
        (json_int_t)s.outputs, "span_us", json_us(1, 0, s.span_ns), "device_us",
        json_us(1, 0, s.device_ns), "device_mean_us", json_us(1, 0, s.device_mean_ns),
        "device_p99_us", json_us(1, 0, s.device_p99_ns), "gap_mean_us",
        json_us(s.n_gap > 0, 0, s.gap_mean_ns), "gap_p99_us",
        json_us(s.n_gap > 0, 0, s.gap_p99_ns), "ahead_p50_us",
        json_us(s.n_done > 0, 0, s.ahead_p50_ns), "ahead_p99_us",
        json_us(s.n_done > 0, 0, s.ahead_p99_ns), "ahead_max_us",
        json_us(s.n_done > 0, 0, s.ahead_max_ns));
}

static json_t *
life_json(const struct ftr_life *l)
{
    int ended = l->t_end != FTR_NONE;

    return json_pack("{s:I, s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "request",
        (json_int_t)l->id, "state",
        ended         ? "ended"
            : l->lost ? "lost"
                      : "running",
        "generation", (int)l->generation, "preempted", (int)l->n_preempted, "queued_ms",
        json_ms(l->t_submit, l->t_start), "prefill_ms", json_ms(l->t_start, l->t_first),
        "decode_ms", json_ms(l->t_first, l->t_end), "preempted_ms",
        json_ms(0, l->preempted_ns), "output_tokens",
        ended ? json_integer(l->n_out) : json_null(), "result",
        ended ? json_string(ftr_code(l->code)) : json_null());
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
        "summary", sum_json(snap), "request", life != NULL ? life_json(life) : NULL,
        "steps", steps, "events", events);
}
