/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/doctor/doctor.h"

#include <ctype.h>
#include <dirent.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "daemon/common/link.h"
#include "libclient/fdproto.h"

#define N_HOLDERS 5

/* ---- limits --------------------------------------------------------------------- */

/* Soft and hard value of a line of limits; UINT64_MAX: unlimited. */
static int
limit_of(const char *text, const char *name, uint64_t *ret_soft, uint64_t *ret_hard)
{
    const char *p = strstr(text, name);
    uint64_t *out[2] = { ret_soft, ret_hard };

    if (p == NULL)
        return -ENOENT;
    p += strlen(name);
    for (int i = 0; i < 2; i++) {
        char *end;

        p += strspn(p, " ");
        if (strncmp(p, "unlimited", 9) == 0) {
            *out[i] = UINT64_MAX;
            p += 9;
            continue;
        }
        if (!isdigit((unsigned char)*p))
            return -EINVAL;
        *out[i] = strtoull(p, &end, 10);
        p = end;
    }
    return 0;
}

/* Does its capability CAP_IPC_LOCK free the process from that limit? Not in a
 * user namespace below the first one. */
static int
may_lock_all(const struct doc *d, const char *proc)
{
    unsigned long long inside = 1, outside = 1, n = 0, caps;
    char path[96], text[8192], value[32];

    snprintf(path, sizeof(path), "%s/uid_map", proc);
    if (doc_read_line(d, path, text, sizeof(text)) != 0 ||
        sscanf(text, "%llu %llu %llu", &inside, &outside, &n) != 3 || inside != 0 ||
        outside != 0 || n != UINT32_MAX)
        return 0;
    snprintf(path, sizeof(path), "%s/status", proc);
    if (doc_read(d, path, text, sizeof(text)) <= 0 ||
        doc_field(text, "CapEff", value, sizeof(value)) != 0)
        return 0;
    caps = strtoull(value, NULL, 16);
    return (caps >> CAP_IPC_LOCK & 1) != 0;
}

static void
check_rlimits(struct doc *d)
{
    char proc[64], path[96], text[4096], have[32], want[32], who[48] = "of this shell";
    /* What the gate locks: the ring of answers of every session. */
    uint64_t per = (uint64_t)d->par->ipc_cq_slots * FDP_SLOT + FDP_D2C_SLOTS;
    uint64_t lock = (uint64_t)d->par->ipc_max_clients * per;
    uint64_t files = par_descriptors(d->par), soft, hard;

    (void)doc_proc(d, proc, sizeof(proc));
    if (strcmp(proc, "/proc/self") != 0)
        snprintf(who, sizeof(who), "of the daemon, pid %ld", (long)d->daemon_pid);
    snprintf(path, sizeof(path), "%s/limits", proc);
    if (doc_read(d, path, text, sizeof(text)) <= 0) {
        doc_unknown(d, "memlock", path);
        return;
    }
    if (limit_of(text, "Max locked memory", &soft, &hard) != 0) {
        doc_unknown(d, "memlock", path);
    } else {
        int is_free = may_lock_all(d, proc), is_enough = soft >= lock || is_free;

        doc_add(d, is_enough ? DOC_OK : DOC_WARN, "memlock",
            "%s %s%s; %lld sessions lock %s" FIX
            "LimitMEMLOCK=infinity in the service (fdd.service has it), else "
            "ulimit -l unlimited before fdd, allowed by\n'* - memlock unlimited' in "
            "/etc/security/limits.d/fdd.conf",
            soft == UINT64_MAX ? "unlimited" : fct_bytes((double)soft, have), who,
            soft < lock && is_free ? ", which may lock more (CAP_IPC_LOCK)" : "",
            (long long)d->par->ipc_max_clients, fct_bytes((double)lock, want));
        doc_data(d, "soft",
            soft == UINT64_MAX ? json_null() : json_integer((json_int_t)soft));
        doc_data(d, "wanted", json_integer((json_int_t)lock));
    }
    if (limit_of(text, "Max open files", &soft, &hard) != 0) {
        doc_unknown(d, "nofile", path);
        return;
    }
    /* The daemon raises the soft limit itself. */
    doc_add(d, hard >= files ? DOC_OK : DOC_WARN, "nofile",
        "%llu, at most %llu %s; %llu needed" FIX
        "LimitNOFILE=65536 in the service, else ulimit -Hn, or a smaller "
        "ipc.max_clients (%lld)",
        (unsigned long long)soft, (unsigned long long)hard, who,
        (unsigned long long)files, (long long)d->par->ipc_max_clients);
    doc_data(d, "hard", hard == UINT64_MAX ? json_null() : json_integer((json_int_t)hard));
    doc_data(d, "wanted", json_integer((json_int_t)files));
}

static void
check_cgroup(struct doc *d)
{
    uint64_t limit, used;
    char a[32], b[32];
    struct cgr c;

    doc_cgroup(d, &c);
    limit = c.memory_max;
    used = c.memory_used;
    if (limit == CGR_NO_LIMIT) {
        doc_add(d, DOC_OK, "cgroup memory", "no limit");
        return;
    }
    doc_add(d, used > limit / 10 * 9 ? DOC_WARN : DOC_OK, "cgroup memory",
        "%s of %s used" FIX "raise the limit (systemd: MemoryMax=, docker: --memory), or the "
        "kernel ends the daemon",
        fct_bytes((double)used, a), fct_bytes((double)limit, b));
    doc_data(d, "limit", json_integer((json_int_t)limit));
    doc_data(d, "used", json_integer((json_int_t)used));
}

static void
check_shm(struct doc *d)
{
    uint64_t need = sizeof(struct lnk_seg), size, left;
    char path[1024], a[32], b[32], c[32];
    struct statvfs vfs;

    snprintf(path, sizeof(path), "%s/dev/shm", d->root);
    if (statvfs(path, &vfs) != 0) {
        doc_add(d, DOC_FAIL, "/dev/shm",
            "%s: fdd starts no worker, for what they share is made there" FIX
            "sudo mount -t tmpfs -o nosuid,nodev tmpfs /dev/shm",
            strerror(errno));
        return;
    }
    size = (uint64_t)vfs.f_blocks * vfs.f_frsize;
    left = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    doc_add(d, left >= need ? DOC_OK : DOC_WARN, "/dev/shm",
        "%s of %s free; %s needed" FIX
        "remove unused files (ls -l /dev/shm), or make it larger: sudo "
        "mount -o remount,size=1G /dev/shm (docker: --shm-size)",
        fct_bytes((double)left, a), fct_bytes((double)size, b), fct_bytes((double)need, c));
    doc_data(d, "size", json_integer((json_int_t)size));
    doc_data(d, "free", json_integer((json_int_t)left));
}

static void
check_overcommit(struct doc *d)
{
    uint64_t v;

    if (doc_read_u64(d, "/proc/sys/vm/overcommit_memory", &v) != 0) {
        doc_unknown(d, "overcommit", "/proc/sys/vm/overcommit_memory");
        return;
    }
    doc_add(d, v == 2 ? DOC_WARN : DOC_OK, "overcommit",
        "vm.overcommit_memory = %llu%s" FIX "sudo sysctl -w vm.overcommit_memory=0",
        (unsigned long long)v,
        v == 2 ? ": the KV pool's reserved addresses and CUDA's count as memory" : "");
}

static void
check_swap(struct doc *d, const char *meminfo)
{
    uint64_t total, left;
    char a[32], b[32];

    if (doc_field_u64(meminfo, "SwapTotal", &total) != 0 ||
        doc_field_u64(meminfo, "SwapFree", &left) != 0 || left > total) {
        doc_unknown(d, "swap", "/proc/meminfo");
        return;
    }
    doc_add(d, (total - left) / 2 > left ? DOC_NOTE : DOC_OK, "swap",
        total == 0 ? "none"
                   : "%s of %s used" FIX
                     "memory is short: weights that are swapped out make every step wait; "
                     "look at fdctl doctor memory",
        fct_bytes((double)(total - left), a), fct_bytes((double)total, b));
}

/* The choice in brackets of "always [madvise] never". */
static int
chosen(const struct doc *d, const char *path, char *ret, size_t ret_bytes)
{
    char line[128];
    const char *p;

    if (doc_read_line(d, path, line, sizeof(line)) != 0 || (p = strchr(line, '[')) == NULL)
        return -ENOENT;
    snprintf(ret, ret_bytes, "%.*s", (int)strcspn(p + 1, "]"), p + 1);
    return 0;
}

static void
check_pages(struct doc *d, const char *meminfo)
{
    static const char thp[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    uint64_t total = 0, left = 0, size = 0;
    char mode[32], a[32], b[32];

    if (chosen(d, thp, mode, sizeof(mode)) != 0)
        doc_unknown(d, "huge pages", thp);
    else
        doc_add(d, strcmp(mode, "never") == 0 ? DOC_WARN : DOC_OK, "huge pages",
            "transparent: %s%s" FIX "echo madvise | sudo tee %s", mode,
            strcmp(mode, "never") == 0 ? "; the CPU backend "
                                         "keeps weights and KV cache in small pages"
                                       : "",
            thp);
    if (chosen(d, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", mode,
            sizeof(mode)) == 0)
        doc_add(d, DOC_OK, "shared huge pages", "%s (rings are small)", mode);
    (void)doc_field_u64(meminfo, "HugePages_Total", &total);
    (void)doc_field_u64(meminfo, "HugePages_Free", &left);
    (void)doc_field_u64(meminfo, "Hugepagesize", &size);
    if (total == 0 || left > total || (size != 0 && total > UINT64_MAX / size)) {
        doc_add(d, DOC_OK, "reserved pages", "none");
        return;
    }
    doc_add(d, left > 0 ? DOC_NOTE : DOC_OK, "reserved pages",
        "%s in hugetlb pages, %s of it free; fdd uses none" FIX
        "if no other program wants them: sudo sysctl -w vm.nr_hugepages=0",
        fct_bytes((double)(total * size), a), fct_bytes((double)(left * size), b));
}

void
doc_limits(struct doc *d)
{
    char meminfo[8192];

    (void)doc_read(d, "/proc/meminfo", meminfo, sizeof(meminfo));
    check_rlimits(d);
    check_cgroup(d);
    check_shm(d);
    check_overcommit(d);
    check_swap(d, meminfo);
    check_pages(d, meminfo);
}

/* ---- memory ------------------------------------------------------------------------ */

int
doc_weights(const struct doc *d, const char *dir, uint64_t *ret_bytes, unsigned *ret_n)
{
    char path[2048];
    const struct dirent *e;
    uint64_t sum = 0;
    unsigned n = 0;
    DIR *dp;

    snprintf(path, sizeof(path), "%s%s", d->root, dir);
    dp = opendir(path);
    if (dp == NULL)
        return -errno;
    while ((e = readdir(dp)) != NULL) {
        size_t len = strlen(e->d_name);
        struct stat st;

        if (len < 12 || strcmp(e->d_name + len - 12, ".safetensors") != 0)
            continue;
        if ((size_t)snprintf(path, sizeof(path), "%s%s/%s", d->root, dir, e->d_name) >=
                sizeof(path) ||
            stat(path, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        sum += (uint64_t)st.st_size;
        n++;
    }
    closedir(dp);
    *ret_bytes = sum;
    *ret_n = n;
    return 0;
}

/* Does the model go where the CPU backend would put it? On a GPU the memory
 * plan of the worker decides. */
static void
check_model(struct doc *d, uint64_t room)
{
    const char *phase = fct_str(json_object_get(d->status, "worker"), "phase");
    const char *model = d->par->model_path;
    int is_loaded = strcmp(phase, "ready") == 0;
    int on_cpu = d->par->device_backend == PAR_DEVICE_BACKEND_CPU;
    char a[32], b[32];
    uint64_t bytes;
    unsigned n;

    if (model[0] == '\0' || strcmp(model, "null") == 0)
        return;
    if (doc_weights(d, model, &bytes, &n) != 0 || n == 0)
        return; /* group fdd says why */
    if (bytes <= room || is_loaded)
        doc_add(d, DOC_OK, "model", "%s of weights in %u file%s%s",
            fct_bytes((double)bytes, a), n, n == 1 ? "" : "s", is_loaded ? ", loaded" : "");
    else
        doc_add(d, on_cpu ? DOC_FAIL : DOC_NOTE, "model",
            "%s of weights in %u file%s; %s of host memory can be had" FIX
            "on the CPU backend: end what holds memory (below), set quant.weights "
            "= wint8, or take a smaller model",
            fct_bytes((double)bytes, a), n, n == 1 ? "" : "s", fct_bytes((double)room, b));
    doc_data(d, "bytes", json_integer((json_int_t)bytes));
    doc_data(d, "files", json_integer(n));
}

static void
check_holders(struct doc *d)
{
    struct doc_process top[N_HOLDERS], p;
    char path[1024], text[1024] = "";
    const struct dirent *e;
    json_t *list = json_array();
    size_t n = 0;
    DIR *dp;

    snprintf(path, sizeof(path), "%s/proc", d->root);
    dp = opendir(path);
    while (dp != NULL && (e = readdir(dp)) != NULL) {
        size_t i;

        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        doc_process(d, strtol(e->d_name, NULL, 10), &p);
        if (p.bytes == UINT64_MAX || p.uid < 0 || p.name[0] == '\0')
            continue;
        for (i = n; i > 0 && top[i - 1].bytes < p.bytes; i--)
            if (i < N_HOLDERS)
                top[i] = top[i - 1];
        if (i < N_HOLDERS)
            top[i] = p;
        n += n < N_HOLDERS;
    }
    if (dp != NULL)
        closedir(dp);
    for (size_t i = 0; i < n; i++)
        doc_list(&top[i], list, text, sizeof(text));
    if (n > 0)
        doc_add(d, DOC_OK, "held by", "%s", text);
    else
        doc_unknown(d, "held by", "/proc/PID/status");
    if (n > 0)
        doc_data(d, "processes", list);
    else
        json_decref(list);
}

void
doc_memory(struct doc *d)
{
    uint64_t total, room;
    struct cgr c;
    char meminfo[8192], a[32], b[32];

    if (doc_read(d, "/proc/meminfo", meminfo, sizeof(meminfo)) <= 0 ||
        doc_field_u64(meminfo, "MemTotal", &total) != 0 ||
        doc_field_u64(meminfo, "MemAvailable", &room) != 0) {
        doc_unknown(d, "host", "/proc/meminfo");
    } else {
        doc_add(d, room < total / 20 ? DOC_WARN : DOC_OK, "host",
            "%s of %s can be had" FIX
            "end what holds memory (below), or the kernel ends something",
            fct_bytes((double)room, a), fct_bytes((double)total, b));
        doc_data(d, "total", json_integer((json_int_t)total));
        doc_data(d, "available", json_integer((json_int_t)room));
        doc_cgroup(d, &c);
        if (c.memory_max != CGR_NO_LIMIT && c.memory_used <= c.memory_max &&
            c.memory_max - c.memory_used < room)
            room = c.memory_max - c.memory_used;
        check_model(d, room);
    }
    check_holders(d);
}
