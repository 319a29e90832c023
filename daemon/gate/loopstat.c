/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/loopstat.h"

#include <string.h>
#include <sys/resource.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"

int64_t
loopstat_switches(void)
{
    struct rusage u;

    return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nvcsw : 0;
}

void
loopstat_init(struct loopstat *ls, struct cnt_gate *cnt, struct cnt_hist *hist)
{
    memset(ls, 0, sizeof(*ls));
    ls->cnt = cnt;
    ls->hist = hist;
}

/* Adds the short iterations to the histograms, and reads a new base. */
static void
loopstat_rebase(struct loopstat *ls, uint64_t now_ns)
{
    if (ls->n_quick != 0) {
        cnt_see(ls->hist, CNT_H_loop_ns, ls->quick_ns / ls->n_quick, ls->n_quick);
        cnt_see(ls->hist, CNT_H_loop_wall_ns, ls->quick_ns / ls->n_quick, ls->n_quick);
        ls->n_quick = ls->quick_ns = 0;
    }
    ls->cpu_base = clk_of_ns(CLOCK_THREAD_CPUTIME_ID);
    ls->t_base = now_ns;
}

static void
loopstat_count_switches(struct loopstat *ls)
{
    int64_t n = loopstat_switches();

    if (n > ls->switches)
        cnt_add(&ls->cnt->loop_switches, (uint64_t)(n - ls->switches));
    ls->switches = n;
}

static void
loopstat_slow(struct loopstat *ls, uint64_t wall_ns)
{
    uint64_t cpu_ns = clk_of_ns(CLOCK_THREAD_CPUTIME_ID) - ls->cpu_base;

    cnt_see(ls->hist, CNT_H_loop_ns, cpu_ns < wall_ns ? cpu_ns : wall_ns, 1);
    cnt_see(ls->hist, CNT_H_loop_wall_ns, wall_ns, 1);
    loopstat_count_switches(ls);
}

static void
loopstat_end(struct loopstat *ls, uint64_t now_ns)
{
    uint64_t wall_ns = now_ns - ls->t_begin, copied = ls->cnt->copied_bytes;

    if (copied - ls->copied > ls->cnt->loop_copied_max)
        cnt_set(&ls->cnt->loop_copied_max, copied - ls->copied);
    ls->copied = copied;
    if (wall_ns > LOOPSTAT_QUICK_NS) {
        loopstat_slow(ls, wall_ns);
    } else {
        ls->n_quick++;
        ls->quick_ns += wall_ns;
    }
}

static __attribute__((noinline)) void
loopstat_turn(struct loopstat *ls, uint64_t now_ns)
{
    if (ls->woke) {
        ls->woke = 0;
        return;
    }
    if (ls->t_begin != 0)
        loopstat_end(ls, now_ns);
    else
        ls->switches = loopstat_switches(); /* before the first iteration */
    ls->t_begin = now_ns;
    if (now_ns - ls->t_base >= LOOPSTAT_BASE_NS)
        loopstat_rebase(ls, now_ns);
}

void
loopstat_next(struct loopstat *ls, uint64_t now_ns)
{
    uint64_t wall_ns = now_ns - ls->t_begin;

    /* nearly all iterations, in few instructions; the base is younger than
     * LOOPSTAT_QUICK_NS */
    if (!ls->woke && now_ns - ls->t_base < LOOPSTAT_BASE_NS &&
        ls->cnt->copied_bytes == ls->copied) {
        ls->t_begin = now_ns;
        ls->n_quick++;
        ls->quick_ns += wall_ns;
    } else {
        loopstat_turn(ls, now_ns);
    }
}

void
loopstat_sleep(struct loopstat *ls, uint64_t now_ns)
{
    if (ls->t_begin == 0)
        return;
    loopstat_end(ls, now_ns);
    if (now_ns - ls->t_wake > LOOPSTAT_AWAKE_NS)
        loopstat_count_switches(ls);
}

void
loopstat_wake(struct loopstat *ls, uint64_t now_ns)
{
    ls->t_begin = ls->t_wake = now_ns;
    ls->woke = 1;
    ls->switches = loopstat_switches();
    if (now_ns - ls->t_base >= LOOPSTAT_BASE_NS)
        loopstat_rebase(ls, now_ns);
}
