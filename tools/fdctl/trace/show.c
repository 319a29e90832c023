/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/trace/trace.h"

#include <math.h>
#include <string.h>

#include "libclient/fdname.h"
#include "tools/fdctl/lib/fct.h"

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
        "verif", "how", "bucket", "cached", "pree", "copy", "wait", "blocks", "free",
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
        printf("%8.1f %9.1f %8s %8.1f %8.1f%s\n", us(s->t_pick_ns, s->t_begin_ns),
            us(s->t_begin_ns, s->t_end_ns), gap, us(s->t_end_ns, s->t_collect_ns), us(s->t_collect_ns, s->t_done_ns),
            (s->flags & TRC_PROFILED) != 0 ? "  profiled" : "");
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
        printf(" in %.3f s: %.1f tokens/s, %.1f results/s; device busy %.1f %%",
            secs, (double)s.tokens / secs, (double)s.outputs / secs,
            100 * (double)s.device_ns / (double)s.span_ns);
    printf("; device mean %.1f us, p99 %.1f us", (double)s.device_mean_ns / 1e3,
        (double)s.device_p99_ns / 1e3);
    if (s.n_gap > 0)
        printf("; gap mean %.1f us, p99 %.1f us", (double)s.gap_mean_ns / 1e3,
            (double)s.gap_p99_ns / 1e3);
    printf("; picked ahead p50 %.1f us, p99 %.1f us, most %.1f us", (double)s.ahead_p50_ns / 1e3,
        (double)s.ahead_p99_ns / 1e3, (double)s.ahead_max_ns / 1e3);
    printf("; graphs %.1f %%\n", 100 * (double)s.n_graph / (double)n);
    return 0;
}

/* ---- events ---------------------------------------------------------------------- */

void
ftr_show_event_head(void)
{
    printf("%-15s %8s %6s %-12s %8s  %s\n", "time", "request", "sample", "event",
        "step", "what");
}

static void
event_text(const struct trc_event *e, char *ret, size_t ret_bytes)
{
    ret[0] = '\0';
    switch ((enum trc_kind)e->kind) {
    case TRC_SUBMIT:
        snprintf(ret, ret_bytes, "%d prompt tokens, at most %d more", e->a, e->b);
        break;
    case TRC_START:
    case TRC_RESUME:
        snprintf(ret, ret_bytes, "%d tokens cached, slot %d", e->a, e->b);
        break;
    case TRC_PREEMPT:
        snprintf(ret, ret_bytes, "had %d tokens", e->a);
        break;
    case TRC_END:
        snprintf(ret, ret_bytes, "%s, %d output tokens", ftr_code(e->a), e->b);
        break;
    case TRC_READY:
    case TRC_FIRST:
    case TRC__N:
        break;
    }
}

void
ftr_show_event(const struct ftr_snap *snap, const struct trc_event *e)
{
    uint64_t step = ftr_event_step(snap, e);
    char time[32], text[96], at[24] = "-";

    ftr_time_text(&snap->clock, e->t_ns, time);
    event_text(e, text, sizeof(text));
    if (step != FTR_NONE)
        snprintf(at, sizeof(at), "%llu", (unsigned long long)step);
    printf("%s %8llu %6u %-12s %8s%s%s\n", time, (unsigned long long)e->id,
        (unsigned)e->sample, ftr_kind(e), at, text[0] != '\0' ? "  " : "", text);
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
    int never = l->t_start == FTR_NONE && l->t_first == FTR_NONE
        && l->t_submit != FTR_NONE;
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
json_us(uint64_t a, uint64_t b)
{
    return fct_json_real(floor(us(a, b) * 1e3 + 0.5) / 1e3);
}

static json_t *
json_ns(uint64_t ns)
{
    return json_integer((json_int_t)ns);
}

static const char *
state(const struct ftr_step *st)
{
    if ((st->s.flags & TRC_DONE) != 0)
        return "done";
    return st->lost ? "lost" : "on its way";
}

static void
add_times(json_t *o, const struct ftr_step *st)
{
    const struct trc_step *s = &st->s;
    int done = (s->flags & TRC_DONE) != 0;

    json_object_set_new(o, "plan_us", json_us(s->t_pick_ns, s->t_launch_ns));
    json_object_set_new(o, "launch_us", json_us(s->t_launch_ns, s->t_queued_ns));
    json_object_set_new(o, "ahead_us", done ? json_us(s->t_pick_ns, s->t_begin_ns)
        : json_null());
    json_object_set_new(o, "device_us", done ? json_us(s->t_begin_ns, s->t_end_ns)
        : json_null());
    json_object_set_new(o, "gap_us", st->gap_ns != FTR_NONE ? json_us(0, st->gap_ns)
        : json_null());
    json_object_set_new(o, "until_us", done ? json_us(s->t_end_ns, s->t_collect_ns)
        : json_null());
    json_object_set_new(o, "host_us", done ? json_us(s->t_collect_ns, s->t_done_ns)
        : json_null());
    json_object_set_new(o, "t_pick_ns", json_ns(s->t_pick_ns));
    json_object_set_new(o, "t_launch_ns", json_ns(s->t_launch_ns));
    json_object_set_new(o, "t_queued_ns", json_ns(s->t_queued_ns));
    json_object_set_new(o, "t_begin_ns", done ? json_ns(s->t_begin_ns) : json_null());
    json_object_set_new(o, "t_end_ns", done ? json_ns(s->t_end_ns) : json_null());
    json_object_set_new(o, "t_collect_ns", done ? json_ns(s->t_collect_ns)
        : json_null());
    json_object_set_new(o, "t_done_ns", done ? json_ns(s->t_done_ns) : json_null());
}

json_t *
ftr_step_json(const struct ftr_clock *c, const struct ftr_step *st)
{
    const struct trc_step *s = &st->s;
    json_t *o = json_pack("{s:I, s:I, s:i, s:s, s:b, s:b, s:b, s:i, s:i, s:i, s:i, s:i}",
        "step", (json_int_t)s->seq, "epoch", (json_int_t)s->epoch,
        "generation", (int)s->generation, "state", state(st),
        "graph", (s->flags & TRC_GRAPH) != 0, "follows", (s->flags & TRC_FOLLOWS) != 0,
        "profiled", (s->flags & TRC_PROFILED) != 0, "rows", s->n_row,
        "prefill", s->n_row - s->n_decode - s->n_verify, "decode", s->n_decode,
        "verify", s->n_verify, "tokens", s->n_tok);

    if (o == NULL)
        return NULL;
    json_object_set_new(o, "bucket", json_integer(s->n_pad));
    json_object_set_new(o, "outputs", json_integer(s->n_out));
    json_object_set_new(o, "cached_tokens", json_integer(s->n_cached));
    json_object_set_new(o, "preempted", json_integer(s->n_preempted));
    json_object_set_new(o, "copies", json_integer(s->n_copy));
    json_object_set_new(o, "waiting", json_integer(s->n_waiting));
    json_object_set_new(o, "blocks_used", json_integer(s->blocks_used));
    json_object_set_new(o, "blocks_free", json_integer(s->blocks_free));
    json_object_set_new(o, "unix_ns", json_ns(ftr_real_ns(c, s->t_launch_ns)));
    add_times(o, st);
    return o;
}

json_t *
ftr_event_json(const struct ftr_snap *snap, const struct trc_event *e)
{
    uint64_t step = ftr_event_step(snap, e);
    json_t *o = json_pack("{s:I, s:i, s:s, s:i, s:o, s:I, s:I}",
        "request", (json_int_t)e->id, "sample", (int)e->sample, "event", ftr_kind(e),
        "generation", (int)e->generation,
        "step", step != FTR_NONE ? json_ns(step) : json_null(),
        "unix_ns", (json_int_t)ftr_real_ns(&snap->clock, e->t_ns),
        "t_ns", (json_int_t)e->t_ns);

    if (o == NULL)
        return NULL;
    if (e->kind == TRC_SUBMIT) {
        json_object_set_new(o, "prompt_tokens", json_integer(e->a));
        json_object_set_new(o, "output_tokens_max", json_integer(e->b));
    } else if (e->kind == TRC_START || e->kind == TRC_RESUME) {
        json_object_set_new(o, "cached_tokens", json_integer(e->a));
        json_object_set_new(o, "slot", json_integer(e->b));
    } else if (e->kind == TRC_PREEMPT) {
        json_object_set_new(o, "tokens", json_integer(e->a));
    } else if (e->kind == TRC_END) {
        json_object_set_new(o, "code", json_integer(e->a));
        json_object_set_new(o, "result", json_string(ftr_code(e->a)));
        json_object_set_new(o, "output_tokens", json_integer(e->b));
    }
    return o;
}

static json_t *
sum_json(const struct ftr_snap *snap)
{
    struct ftr_sum s;
    json_t *o;

    if (ftr_sum(snap->steps, snap->n_step, &s) != 0)
        return NULL;
    o = json_pack("{s:I, s:I, s:I, s:I, s:I}", "steps", (json_int_t)s.n,
        "collected", (json_int_t)s.n_done, "graphs", (json_int_t)s.n_graph,
        "tokens", (json_int_t)s.tokens, "outputs", (json_int_t)s.outputs);
    json_object_set_new(o, "span_us", json_us(0, s.span_ns));
    json_object_set_new(o, "device_us", json_us(0, s.device_ns));
    json_object_set_new(o, "device_mean_us", json_us(0, s.device_mean_ns));
    json_object_set_new(o, "device_p99_us", json_us(0, s.device_p99_ns));
    json_object_set_new(o, "gap_mean_us", s.n_gap > 0 ? json_us(0, s.gap_mean_ns)
        : json_null());
    json_object_set_new(o, "gap_p99_us", s.n_gap > 0 ? json_us(0, s.gap_p99_ns)
        : json_null());
    json_object_set_new(o, "ahead_p50_us", s.n_done > 0 ? json_us(0, s.ahead_p50_ns)
        : json_null());
    json_object_set_new(o, "ahead_p99_us", s.n_done > 0 ? json_us(0, s.ahead_p99_ns)
        : json_null());
    json_object_set_new(o, "ahead_max_us", s.n_done > 0 ? json_us(0, s.ahead_max_ns)
        : json_null());
    return o;
}

static json_t *
json_ms(uint64_t from, uint64_t to)
{
    return from == FTR_NONE || to == FTR_NONE ? json_null()
        : fct_json_real((double)ftr_span(from, to) / 1e6);
}

static json_t *
life_json(const struct ftr_life *l)
{
    int ended = l->t_end != FTR_NONE;
    json_t *o = json_pack("{s:I, s:s, s:i, s:i}", "request", (json_int_t)l->id,
        "state", ended ? "ended" : l->lost ? "lost" : "running",
        "generation", (int)l->generation, "preempted", (int)l->n_preempted);

    json_object_set_new(o, "queued_ms", json_ms(l->t_submit, l->t_start));
    json_object_set_new(o, "prefill_ms", json_ms(l->t_start, l->t_first));
    json_object_set_new(o, "decode_ms", json_ms(l->t_first, l->t_end));
    json_object_set_new(o, "preempted_ms", json_ms(0, l->preempted_ns));
    json_object_set_new(o, "output_tokens", ended ? json_integer(l->n_out)
        : json_null());
    json_object_set_new(o, "result", ended ? json_string(ftr_code(l->code))
        : json_null());
    return o;
}

json_t *
ftr_json(const struct ftr_snap *snap, const struct ftr_life *life)
{
    json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:I}",
        "daemon", snap->ended ? "ended" : "running",
        "unix_ns", (json_int_t)snap->clock.real_ns, "t_ns",
        (json_int_t)snap->clock.mono_ns,
        "steps_overwritten", (json_int_t)snap->lost_steps,
        "events_overwritten", (json_int_t)snap->lost_events);
    json_t *steps = json_array(), *events = json_array();

    for (size_t i = 0; i < snap->n_step; i++)
        json_array_append_new(steps, ftr_step_json(&snap->clock, &snap->steps[i]));
    for (size_t i = 0; i < snap->n_event; i++)
        json_array_append_new(events, ftr_event_json(snap, &snap->events[i]));
    json_object_set_new(o, "summary", sum_json(snap));
    if (life != NULL)
        json_object_set_new(o, "request", life_json(life));
    json_object_set_new(o, "steps", steps);
    json_object_set_new(o, "events", events);
    return o;
}
