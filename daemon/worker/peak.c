/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/peak.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/dir.h"
#include "daemon/common/log.h"
#include "daemon/common/sha256.h"

#define PEAK_FILE_MAX 65536

/* Plausible ranges: values outside come from no real machine. */
#define PEAK_LEAST      1e7
#define PEAK_MOST_READ  1e15
#define PEAK_MOST_FLOPS 1e18

/* ---- where --------------------------------------------------------------------------- */

int
peak_dir(const char *param, char *ret, size_t ret_bytes)
{
    return dir_cache(param, geteuid() == 0, ret, ret_bytes);
}

/* The value in a file's first line that begins with name, or "". */
static void
peak_line_of(const char *path, const char *name, char *ret, size_t ret_bytes)
{
    char line[512], *p;
    FILE *f = fopen(path, "re");

    ret[0] = '\0';
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        p = line + strlen(name);
        p += strspn(p, " \t:");
        p[strcspn(p, "\n")] = '\0';
        (void)snprintf(ret, ret_bytes, "%s", p);
        break;
    }
    if (f != NULL)
        (void)fclose(f);
    /* the text is written to JSON: only printable ASCII */
    for (p = ret; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            *p = '?';
}

int
peak_key(const struct fdk_ops *k, struct fdk_ctx *ctx, int dev, struct peak_key *ret)
{
    struct fdk_device_info di;
    int rc = k->device_info(ctx, dev, &di);

    if (rc != 0)
        return rc;
    memset(ret, 0, sizeof(*ret));
    (void)snprintf(ret->backend, sizeof(ret->backend), "%s", k->name);
    (void)snprintf(ret->device, sizeof(ret->device), "%s", di.name);
    ret->n_thread = di.n_proc;
    if (strcmp(k->name, "cuda") == 0)
        peak_line_of("/proc/driver/nvidia/version", "NVRM version", ret->driver,
            sizeof(ret->driver));
    else
        peak_line_of("/proc/cpuinfo", "model name", ret->driver, sizeof(ret->driver));
    return 0;
}

int
peak_path(const char *dir, const struct peak_key *key, char *ret, size_t ret_bytes)
{
    struct sha256 s;
    uint8_t d[32];
    char text[256], hex[17];
    int n = snprintf(text, sizeof(text), "%s\n%s\n%s\n%d", key->backend, key->device,
        key->driver, key->n_thread);

    sha256_init(&s);
    sha256_add(&s, text, (size_t)n);
    sha256_end(&s, d);
    for (size_t i = 0; i < 8; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", d[i]);
    n = snprintf(ret, ret_bytes, "%s/peaks-%s.json", dir, hex);
    return n >= 0 && (size_t)n < ret_bytes ? 0 : -ENAMETOOLONG;
}

/* ---- the file ------------------------------------------------------------------------- */

static int
peak_same(const json_t *o, const char *name, const char *want)
{
    const char *s = json_string_value(json_object_get(o, name));

    return s != NULL && strcmp(s, want) == 0;
}

static int
peak_sane(double v, double most)
{
    return isfinite(v) && v >= PEAK_LEAST && v <= most;
}

static int
peak_parse(const json_t *o, const struct peak_key *key, struct peak *c, char *err,
    size_t err_bytes)
{
    const json_t *f = json_object_get(o, "flops_per_s"), *v;
    const char *name;
    json_int_t version = json_integer_value(json_object_get(o, "version"));

    if (version != PEAK_VERSION) {
        (void)snprintf(err, err_bytes, "version %lld, not %d", (long long)version,
            PEAK_VERSION);
        return -EINVAL;
    }
    if (!peak_same(o, "backend", key->backend) || !peak_same(o, "device", key->device) ||
        !peak_same(o, "driver", key->driver) ||
        json_integer_value(json_object_get(o, "threads")) != key->n_thread) {
        (void)snprintf(err, err_bytes, "it is another machine's");
        return -EINVAL;
    }
    *c = (struct peak){ .read_bps =
                            json_number_value(json_object_get(o, "read_bytes_per_s")),
        .measured_s = (uint64_t)json_integer_value(json_object_get(o, "measured_s")) };
    if (!peak_sane(c->read_bps, PEAK_MOST_READ)) {
        (void)snprintf(err, err_bytes, "read_bytes_per_s %g is out of range", c->read_bps);
        return -EINVAL;
    }
    for (int t = 0; t < FDK_DTYPE__N; t++) {
        name = fdk_dtype_name((enum fdk_dtype)t);
        v = json_object_get(f, name);
        if (v == NULL && t != FDK_F32)
            continue;
        c->flops[t] = json_number_value(v);
        if (!peak_sane(c->flops[t], PEAK_MOST_FLOPS)) {
            (void)snprintf(err, err_bytes, "flops_per_s of %s, %g, is out of range", name,
                c->flops[t]);
            return -EINVAL;
        }
    }
    return 0;
}

int
peak_read(const char *path, const struct peak_key *key, struct peak *ret, char *err,
    size_t err_bytes)
{
    char text[PEAK_FILE_MAX];
    json_error_t je;
    json_t *o;
    ssize_t n = dir_read(path, O_NOFOLLOW, text, sizeof(text));
    int rc;

    if (n < 0) {
        (void)snprintf(err, err_bytes, "%s", strerror((int)-n));
        return (int)n;
    }
    o = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(o)) {
        (void)snprintf(err, err_bytes, "not a JSON object");
        json_decref(o);
        return -EINVAL;
    }
    rc = peak_parse(o, key, ret, err, err_bytes);
    json_decref(o);
    return rc;
}

static json_t *
peak_json(const struct peak_key *key, const struct peak *c)
{
    json_t *f = json_object();

    for (int t = 0; t < FDK_DTYPE__N; t++)
        if (c->flops[t] > 0)
            (void)json_object_set_new(f, fdk_dtype_name((enum fdk_dtype)t),
                json_real(c->flops[t]));
    return json_pack("{s:i, s:s, s:s, s:s, s:i, s:f, s:o, s:I}", "version", PEAK_VERSION,
        "backend", key->backend, "device", key->device, "driver", key->driver, "threads",
        key->n_thread, "read_bytes_per_s", c->read_bps, "flops_per_s", f, "measured_s",
        (json_int_t)c->measured_s);
}

static int
peak_mkdir(const char *path)
{
    char dir[640];
    char *slash;

    (void)snprintf(dir, sizeof(dir), "%s", path);
    slash = strrchr(dir, '/');
    if (slash == NULL || slash == dir)
        return 0;
    *slash = '\0';
    return mkdir(dir, 0755) == 0 || errno == EEXIST ? 0 : -errno;
}

int
peak_put(const char *path, const char *text)
{
    size_t n = strlen(text);
    char tmp[700];
    ssize_t done;
    int fd, rc = peak_mkdir(path);

    if (rc != 0)
        return rc;
    (void)snprintf(tmp, sizeof(tmp), "%s.%ld", path, (long)getpid());
    (void)unlink(tmp);
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    rc = fd < 0 ? -errno : 0;
    done = rc == 0 ? write(fd, text, n) : 0;
    if (rc == 0 && done != (ssize_t)n)
        rc = done < 0 ? -errno : -ENOSPC;
    if (fd >= 0 && close(fd) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(tmp, path) != 0)
        rc = -errno;
    if (rc != 0 && fd >= 0)
        (void)unlink(tmp);
    return rc;
}

int
peak_write(const char *path, const struct peak_key *key, const struct peak *c)
{
    json_t *o = peak_json(key, c);
    char *text = o != NULL ? json_dumps(o, JSON_INDENT(1)) : NULL;
    int rc = text != NULL ? peak_put(path, text) : -ENOMEM;

    json_decref(o);
    free(text);
    return rc;
}

/* ---- measuring ------------------------------------------------------------------------- */

int
peak_measure(const struct fdk_ops *k, struct fdk_ctx *ctx, int dev, struct peak *ret)
{
    static const enum fdk_dtype types[] = { FDK_F32, FDK_F16, FDK_BF16 };
    struct peak c = { .measured_s = clk_wall_ns() / CLK_S };
    int rc = k->probe(ctx, dev, FDK_PROBE_READ, FDK_F32, &c.read_bps);

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && rc == 0; i++) {
        rc = k->probe(ctx, dev, FDK_PROBE_FLOPS, types[i], &c.flops[types[i]]);
        if (rc == -ENOTSUP && types[i] != FDK_F32)
            rc = 0;
    }
    if (rc == 0)
        *ret = c;
    return rc;
}

static void
peak_keep(struct peak_cache *cc, const struct peak_key *key, const char *path)
{
    int rc = peak_write(path, key, &cc->c);

    if (rc == 0) {
        (void)snprintf(cc->file, sizeof(cc->file), "%s", path);
        return;
    }
    if (!cc->warned)
        log_warn("peak: %s cannot be written: %s; what the device can do is measured "
                 "again by every process (daemon.cache_dir)",
            path, strerror(-rc));
    cc->warned = 1;
}

/* Try to read the peak from its file. Returns 1 if cc has it now, else 0. */
static int
peak_kept(struct peak_cache *cc, const struct peak_key *key, const char *path)
{
    char err[256] = "";
    int rc = peak_read(path, key, &cc->c, err, sizeof(err));

    if (rc != 0) {
        if (rc != -ENOENT && rc != -ENOTDIR)
            log_warn("peak: %s: %s; measured again", path, err);
        return 0;
    }
    cc->have = 1;
    (void)snprintf(cc->from, sizeof(cc->from), "file");
    (void)snprintf(cc->file, sizeof(cc->file), "%s", path);
    return 1;
}

int
peak_get(struct peak_cache *cc, const struct fdk_ops *k, struct fdk_ctx *ctx, int dev,
    int busy, int remeasure, struct peak *ret)
{
    struct peak_key key;
    char dir[512], path[640] = "";
    struct peak c;
    int rc = remeasure || !cc->have ? peak_key(k, ctx, dev, &key) : 0;

    if (rc != 0)
        return rc;
    if ((remeasure || !cc->have) &&
        (peak_dir(cc->dir, dir, sizeof(dir)) != 0 ||
            peak_path(dir, &key, path, sizeof(path)) != 0))
        path[0] = '\0';
    if (!remeasure && (cc->have || (path[0] != '\0' && peak_kept(cc, &key, path)))) {
        *ret = cc->c;
        return 0;
    }
    rc = peak_measure(k, ctx, dev, &c);
    if (rc != 0)
        return rc;
    log_info("peak: %s reads %.1f GB/s, computes %.1f GFLOP/s in fp32%s", key.device,
        c.read_bps * 1e-9, c.flops[FDK_F32] * 1e-9,
        busy ? "; measured while the device had other work, and not kept" : "");
    *ret = c;
    cc->have = !busy;
    (void)snprintf(cc->from, sizeof(cc->from), "measured");
    cc->file[0] = '\0';
    if (busy)
        return 0;
    cc->c = c;
    if (path[0] != '\0')
        peak_keep(cc, &key, path);
    return 0;
}

double
peak_roofline_ns(const struct peak *c, double bytes, double flops, enum fdk_dtype t)
{
    double peak = c->flops[t] > 0 ? c->flops[t] : c->flops[FDK_F32];
    double b = c->read_bps > 0 ? bytes * 1e9 / c->read_bps : 0;
    double f = peak > 0 ? flops * 1e9 / peak : 0;

    return b > f ? b : f;
}
