/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/statseg.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/gate/gate.h"
#include "libclient/fdring.h"

void
seg_name(const char *runtime_dir, char *ret)
{
    uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a 64 */

    for (const unsigned char *p = (const unsigned char *)runtime_dir; *p != '\0'; p++)
        h = (h ^ *p) * 0x100000001b3ull;
    (void)snprintf(ret, SEG_NAME_BYTES, "/fdd-%016llx", (unsigned long long)h);
}

int
seg_open(const char *name, gid_t gid, const uint64_t boot_id[2], struct cnt_seg **ret_seg,
    int *ret_fd)
{
    struct cnt_seg *seg;
    void *p;
    int rc = mem_share(name, "fdd-stat", gid, 0640, sizeof(*seg), &p, ret_fd);

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
seg_close(const char *name, struct cnt_seg *seg, int fd)
{
    /* whoever watches sees the end */
    if (seg != NULL)
        fdr_store_release(&seg->magic, 0);
    mem_unshare(name, seg, sizeof(*seg), fd);
}

void
seg_tick(struct gate *g, uint64_t now_ns)
{
    struct cnt_gate *c = g->cnt;

    cnt_set(&c->uptime_ns, now_ns - g->t_boot);
    cnt_set(&c->sessions, g->n_ses);
    cnt_set(&c->requests_queued, g->fair.n_queued);
    cnt_set(&c->requests_running, g->jnl.n_open - g->fair.n_queued);
    cnt_set(&c->journal_bytes, g->jnl.bytes);
    cnt_set(&c->queued_tokens, g->fair.cost_queued);
    cnt_set(&c->drain_rate, (uint64_t)drain_rate(&g->fair.drain, now_ns));
    g->seg->worker_pid = (int32_t)g->wrk[0].pid;
    g->seg->generation = g->wrk[0].generation;
    if (g->wrk[0].st == WRK_READY && g->seg->model[0] == '\0')
        (void)snprintf(g->seg->model, sizeof(g->seg->model), "%.*s",
            (int)sizeof(g->wrk[0].ready.info.model_name), g->wrk[0].ready.info.model_name);
}
