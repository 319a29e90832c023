/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/rest.h"

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/intake.h"
#include "daemon/gate/loopstat.h"
#include "daemon/gate/session.h"

void
rst_watch(struct sessions *t)
{
    t->t_watch = t->env->now + RST_WATCH_NS;
}

static void
rst_begin(struct sessions *t, struct client *c, uint64_t until)
{
    t->n_rest += (c->rests & CLI_RESTS_LOOP) == 0;
    c->rests |= CLI_RESTS_LOOP;
    c->t_read = until;
}

void
rst_open(struct sessions *t, struct client *c)
{
    if (c->usr->t_rest > t->env->now)
        rst_begin(t, c, c->usr->t_rest);
}

void
rst_tick(struct sessions *t)
{
    for (uint32_t i = 0; i < t->n && t->n_rest != 0; i++) {
        struct client *c = &t->v[i]->c;

        if ((c->rests & CLI_RESTS_LOOP) != 0 && c->t_read <= t->env->now) {
            c->rests &= (uint8_t)~CLI_RESTS_LOOP;
            t->n_rest--;
        }
    }
}

/* The loop waited for memory of c: pauses all rings of its user. */
static void
rst_waited(struct sessions *t, const struct client *c)
{
    struct usr *u = c->usr;
    uint64_t until = usr_rest(u, t->env->now);

    log_info("session: %llu (%s, pid %d) makes the daemon wait for its memory: requests of "
             "user %llu are not looked at for %llu ms",
        (unsigned long long)c->id, c->shown, (int)c->pid, (unsigned long long)u->key,
        (unsigned long long)(u->rest_ns / CLK_MS));
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->v[i]->c.usr == u && t->v[i]->c.st == CLI_OPEN)
            rst_begin(t, &t->v[i]->c, until);
    }
}

int
rst_poll(struct sessions *t)
{
    uint32_t at = t->first < t->n ? t->first : 0;
    int work = 0;

    for (uint32_t left = t->n; left != 0 && !itk_is_spent(t->intake); left--) {
        struct client *c = &t->v[at]->c;
        int64_t before;

        at = at + 1 < t->n ? at + 1 : 0;
        if (c->st_rests != CLI_ST_READ)
            continue;
        before = loopstat_switches();
        itk_touch(c);
        if (loopstat_switches() != before)
            rst_waited(t, c);
        else if (itk_is_due(c))
            work += itk_poll(t->intake, c);
    }
    t->first = at;
    if (t->env->now >= t->t_watch)
        t->t_watch = 0;
    return work;
}
