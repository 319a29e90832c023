/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/statseg.h"

#include <stdio.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/mem.h"
#include "libclient/fdring.h"

static void
seg_format(struct cnt_seg *seg, const uint64_t boot_id[2], uint32_t n_group)
{
    seg->version = CNT_VERSION;
    seg->n_gate = CNT_N_GATE;
    seg->n_worker = CNT_N_WORKER;
    seg->n_hist = CNT_H__N;
    seg->n_group = n_group;
    seg->boot_id[0] = boot_id[0];
    seg->boot_id[1] = boot_id[1];
    seg->t_start_ns = clk_wall_ns();
    seg->gate_pid = (int32_t)getpid();
}

int
seg_open(const uint64_t boot_id[2], uint32_t n_group, struct cnt_seg **ret_seg, int *ret_fd)
{
    struct cnt_seg *seg;
    void *p;
    int rc = mem_share(CNT_MEMFD, cnt_bytes(n_group), &p, ret_fd);

    if (rc != 0)
        return rc;
    seg = p;
    /* the first segment's magic is set last, when all are complete */
    for (uint32_t i = n_group; i-- > 0;) {
        seg_format(&seg[i], boot_id, n_group);
        fdr_store_release(&seg[i].magic, CNT_MAGIC);
    }
    *ret_seg = seg;
    return 0;
}

void
seg_close(struct cnt_seg *seg, int fd)
{
    uint32_t n = seg != NULL ? seg->n_group : 0;

    /* so that readers of the segment see the end */
    for (uint32_t i = 0; i < n; i++)
        fdr_store_release(&seg[i].magic, 0);
    mem_unshare(seg, cnt_bytes(n), fd);
}

void
seg_worker(struct cnt_seg *seg, uint32_t group, int32_t pid, uint64_t generation)
{
    seg[group].worker_pid = pid;
    seg[group].generation = generation;
}

void
seg_worker_gone(struct cnt_seg *seg, uint32_t group)
{
    for (size_t i = 0; i < cnt_count(); i++) {
        const struct cnt_row *row = cnt_row(i);

        if (row->worker && row->kind == CNT_gauge)
            cnt_set((void *)((char *)&seg[group] + row->offset), 0);
    }
}

void
seg_tick(struct cnt_seg *seg, const struct seg_now *now)
{
    struct cnt_gate *c = &seg->g;

    cnt_set(&c->uptime_ns, now->uptime_ns);
    cnt_set(&c->sessions, now->sessions);
    cnt_set(&c->users, now->users);
    cnt_set(&c->requests_queued, now->requests_queued);
    cnt_set(&c->requests_running, now->requests_running);
    cnt_set(&c->journal_bytes, now->journal_bytes);
    cnt_set(&c->queued_tokens, now->queued_tokens);
    cnt_set(&c->service_rate, now->service_rate);
    cnt_set(&c->groups, now->groups);
    cnt_set(&c->groups_ready, now->groups_ready);
    cnt_set(&c->placed_cached, now->placed_cached);
    for (uint32_t i = 0; now->model != NULL && i < seg->n_group; i++) {
        if (seg[i].model[0] == '\0')
            (void)snprintf(seg[i].model, sizeof(seg[i].model), "%s", now->model);
    }
}
