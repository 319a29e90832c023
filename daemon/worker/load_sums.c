/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives at the start of a group of ranks: every start checks them; the first start
 * also measures the fastest way of an all-reduce for each size. The result is kept in the
 * cache folder as sums-KEY; the key covers backend, devices, driver, number of ranks,
 * memory, type, size of a row and build.
 */
#include "config.h"

#include "daemon/worker/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/sha256.h"
#include "daemon/common/version.h"

#define SUMS_FORMAT "fdd sums 1\n"
/* Time budgets of measuring; the check of all sizes takes less. */
#define SUMS_NS      (500 * CLK_MS)
#define SUMS_NS_HOST (200 * CLK_MS)

/* ---- the file --------------------------------------------------------------------------- */

int
wrk_sums_path(const struct worker *w, char *ret, size_t ret_bytes)
{
    const struct run_dev *root = run_root(w->run);
    char dir[512], text[512], hex[17];
    struct peak_key key;
    struct sha256 s;
    uint8_t d[32];
    int n, rc = peak_dir(w->par.daemon_cache_dir, dir, sizeof(dir));

    if (rc == 0)
        rc = peak_key(w->run->k, w->run->ctx, root->idx, &key);
    if (rc != 0)
        return rc;
    n = snprintf(text, sizeof(text), "%s\n%s\n%s\n%d\n%d\n%d\n%s\n%d\n%s", key.backend,
        key.device, key.driver, key.n_thread, run_copy_ranks(w->run), w->run->in_host,
        fdk_dtype_name(w->run->act), run_sums_row(w->run), ver_text());
    sha256_init(&s);
    for (int32_t i = 0; i < w->run->n_rank; i++)
        sha256_add(&s, w->run->dev[i].name, strlen(w->run->dev[i].name) + 1);
    sha256_add(&s, text, (size_t)n);
    sha256_end(&s, d);
    for (int i = 0; i < 8; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", d[i]);
    n = snprintf(ret, ret_bytes, "%s/sums-%s", dir, hex);
    return n < 0 || (size_t)n >= ret_bytes ? -ENAMETOOLONG : 0;
}

int
wrk_sums_read(const char *path, struct fdk_group_ways *ret)
{
    struct fdk_group_ways ways = { 0 };
    FILE *f = fopen(path, "re");
    char text[128];
    size_t n;
    int at = 0;

    if (f == NULL)
        return -errno;
    n = fread(text, 1, sizeof(text) - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    if (strncmp(text, SUMS_FORMAT, strlen(SUMS_FORMAT)) != 0 ||
        sscanf(text + strlen(SUMS_FORMAT), "whole %" SCNu64 "\npackets %" SCNu64 "\n%n",
            &ways.one_shot_bytes, &ways.packet_bytes, &at) != 2 ||
        at == 0 || text[strlen(SUMS_FORMAT) + (size_t)at] != '\0' ||
        ways.one_shot_bytes == 0)
        return -EINVAL;
    *ret = ways;
    return 0;
}

int
wrk_sums_write(const char *path, const struct fdk_group_ways *ways)
{
    char text[128];

    (void)snprintf(text, sizeof(text),
        SUMS_FORMAT "whole %" PRIu64 "\npackets %" PRIu64 "\n", ways->one_shot_bytes,
        ways->packet_bytes);
    return peak_put(path, text);
}

/* ---- text ------------------------------------------------------------------------------- */

/* Writes "", "WHAT, " or "WHAT up to 64.0 KiB, ". */
static void
sums_upto(const char *what, uint64_t bytes, char *ret, size_t ret_bytes)
{
    char size[32];

    mpl_show_bytes(bytes, size, sizeof(size));
    if (bytes <= 1)
        ret[0] = '\0';
    else if (bytes == UINT64_MAX)
        (void)snprintf(ret, ret_bytes, "%s, ", what);
    else
        (void)snprintf(ret, ret_bytes, "%s up to %s, ", what, size);
}

void
wrk_sums_text(const struct worker *w, char *ret, size_t ret_bytes)
{
    char packets[48], whole[48];

    sums_upto("in packets", w->ways.packet_bytes, packets, sizeof(packets));
    sums_upto("whole", w->ways.one_shot_bytes, whole, sizeof(whole));
    if (packets[0] == '\0' && whole[0] == '\0')
        (void)snprintf(whole, sizeof(whole), "in shares, ");
    (void)snprintf(ret, ret_bytes, "%s, %s%slimit %lld ms",
        w->run->in_host          ? "through the host's memory"
            : w->run->k->on_host ? "own, in the memory of this process"
                                 : "own kernels, which write to peer memory",
        packets, whole, (long long)w->par.parallel_spin_limit_ms);
}

/* ---- at the start ------------------------------------------------------------------------- */

static int
sums_measure(struct worker *w, const char *path, char *err, size_t err_bytes)
{
    uint64_t budget = w->run->k->on_host ? SUMS_NS_HOST : SUMS_NS, t0 = clk_now_ns();
    int rc = run_sums_choose(w->run, budget, &w->ways), kept;

    if (rc < 0) {
        (void)snprintf(err, err_bytes, "collectives: measuring: %s", run_error(w->run));
        return rc;
    }
    if (rc > 0) {
        log_info("load: collectives: not all sizes measured in %llu ms: sums go the ways that "
                 "the backend chooses",
            (unsigned long long)(budget / CLK_MS));
        return 0;
    }
    log_info("load: collectives: ways of sums measured in %.3f s",
        (double)(clk_now_ns() - t0) / 1e9);
    kept = path[0] != '\0' ? wrk_sums_write(path, &w->ways) : 0;
    if (kept != 0)
        log_warn("load: %s cannot be written: %s; collectives are measured at every start "
                 "(daemon.cache_dir)",
            path, strerror(-kept));
    return 0;
}

int
wrk_load_sums(struct worker *w, char *err, size_t err_bytes)
{
    char path[640], text[160];
    int rc;

    if (w->run->group[0] == NULL)
        return 0;
    if (w->devs.apart[0] != w->devs.apart[1])
        log_info("load: %s cannot reach the memory of %s: what ranks exchange goes through the "
                 "host's (nvidia-smi topo -p2p r)",
            w->devs.at[w->devs.apart[0]].name, w->devs.at[w->devs.apart[1]].name);
    rc = run_sums_check(w->run, err, err_bytes);
    if (rc != 0)
        return rc;
    if (wrk_sums_path(w, path, sizeof(path)) != 0)
        path[0] = '\0';
    rc = path[0] != '\0' ? wrk_sums_read(path, &w->ways) : -ENOENT;
    if (rc == 0)
        run_sums_set(w->run, &w->ways);
    else
        rc = sums_measure(w, path, err, err_bytes);
    if (rc != 0)
        return rc;
    wrk_sums_text(w, text, sizeof(text));
    log_info("load: sums over %d devices: %s", run_copy_ranks(w->run), text);
    return 0;
}
