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

int
seg_open(const uint64_t boot_id[2], struct cnt_seg **ret_seg, int *ret_fd)
{
    struct cnt_seg *seg;
    void *p;
    int rc = mem_share(CNT_MEMFD, sizeof(*seg), &p, ret_fd);

    if (rc != 0)
        return rc;
    seg = p;
    seg->version = CNT_VERSION;
    seg->n_gate = CNT_N_GATE;
    seg->n_worker = CNT_N_WORKER;
    seg->n_hist = CNT_H__N;
    seg->boot_id[0] = boot_id[0];
    seg->boot_id[1] = boot_id[1];
    seg->t_start_ns = clk_wall_ns();
    seg->gate_pid = (int32_t)getpid();
    fdr_store_release(&seg->magic, CNT_MAGIC);
    *ret_seg = seg;
    return 0;
}

void
seg_close(struct cnt_seg *seg, int fd)
{
    /* readers of the segment see the end */
    if (seg != NULL)
        fdr_store_release(&seg->magic, 0);
    mem_unshare(seg, sizeof(*seg), fd);
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
    seg->worker_pid = now->worker_pid;
    seg->generation = now->generation;
    if (now->model != NULL && seg->model[0] == '\0')
        (void)snprintf(seg->model, sizeof(seg->model), "%s", now->model);
}
