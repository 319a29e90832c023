#include "config.h"

#include "tools/fdctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/counter.h"

/* The daemon's rule: FNV-1a of the runtime folder's path. */
static void
seg_path(const char *dir, char *ret, size_t ret_bytes)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *dir != '\0'; dir++)
        h = (h ^ (unsigned char)*dir) * 0x100000001b3u;
    snprintf(ret, ret_bytes, "/fdd-%016llx", (unsigned long long)h);
}

static const struct cnt_seg *
map_seg(const char *name)
{
    const struct cnt_seg *seg;
    struct stat st;
    int fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(*seg)) {
        close(fd);
        errno = EPROTO;
        return NULL;
    }
    seg = mmap(NULL, sizeof(*seg), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (seg == MAP_FAILED)
        return NULL;
    if (__atomic_load_n(&seg->magic, __ATOMIC_ACQUIRE) != CNT_MAGIC
        || seg->version != CNT_VERSION || seg->n_gate != CNT_N_GATE
        || seg->n_worker != CNT_N_WORKER) {
        munmap((void *)(uintptr_t)seg, sizeof(*seg));
        errno = EPROTO;
        return NULL;
    }
    return seg;
}

/* By the folder's path as given, as resolved, or by what the daemon says. */
static const struct cnt_seg *
find_seg(const struct fct *f)
{
    const struct cnt_seg *seg;
    struct fct_admin *a;
    json_t *st = NULL;
    char name[300], *real;
    int e;

    seg_path(f->dir, name, sizeof(name));
    seg = map_seg(name);
    e = errno;
    if (seg == NULL && e == ENOENT && (real = realpath(f->dir, NULL)) != NULL) {
        seg_path(real, name, sizeof(name));
        free(real);
        seg = map_seg(name);
        e = errno;
    }
    if (seg == NULL && e == ENOENT && fct_admin_open(f, 1, &a) == 0) {
        if (fct_ask(a, json_pack("{s:s}", "cmd", "status"), 1, &st) == 0
            && json_is_string(json_object_get(st, "shm"))) {
            snprintf(name, sizeof(name), "%s",
                json_string_value(json_object_get(st, "shm")));
            seg = map_seg(name);
            e = errno;
        }
        json_decref(st);
        fct_admin_close(a);
    }
    errno = e;
    return seg;
}

static uint64_t
value(const struct cnt_seg *seg, const struct cnt_row *row)
{
    return cnt_get((const uint64_t *)(const void *)((const char *)seg + row->offset));
}

static void
snapshot(const struct cnt_seg *seg, uint64_t *ret)
{
    size_t i;

    for (i = 0; i < cnt_count(); i++)
        ret[i] = value(seg, cnt_row(i));
}

static int
print_json(const struct cnt_seg *seg, const uint64_t *now)
{
    json_t *o = json_object(), *g = json_object(), *w = json_object();
    size_t i;
    int rc;

    for (i = 0; i < cnt_count(); i++)
        json_object_set_new(cnt_row(i)->worker ? w : g, cnt_row(i)->name,
            json_integer((json_int_t)now[i]));
    json_object_set_new(o, "t_start_ns", json_integer((json_int_t)seg->t_start_ns));
    json_object_set_new(o, "gate_pid", json_integer(seg->gate_pid));
    json_object_set_new(o, "worker_pid", json_integer(seg->worker_pid));
    json_object_set_new(o, "generation", json_integer((json_int_t)seg->generation));
    json_object_set_new(o, "gate", g);
    json_object_set_new(o, "worker", w);
    rc = fct_print_json(o);
    json_decref(o);
    return rc;
}

/* All rows; before NULL: without rates. */
static void
print_text(const uint64_t *now, const uint64_t *before, double secs)
{
    size_t i;

    for (i = 0; i < cnt_count(); i++) {
        const struct cnt_row *r = cnt_row(i);
        char rate[32] = "";

        if (before != NULL && r->kind == CNT_counter && now[i] != before[i])
            snprintf(rate, sizeof(rate), "%.1f/s", (double)(now[i] - before[i]) / secs);
        if (before != NULL && r->kind == CNT_counter && now[i] == before[i])
            continue;
        printf("%-6s %-18s %16llu %12s %-9s %s\n", r->worker ? "worker" : "gate", r->name,
            (unsigned long long)now[i], rate, r->unit, r->help);
    }
}

static int
watch(const struct cnt_seg *seg, double interval, int json)
{
    size_t bytes = cnt_count() * sizeof(uint64_t);
    uint64_t *now = malloc(bytes), *before = malloc(bytes), t0, t1;
    const struct timespec nap = { .tv_sec = (time_t)interval,
        .tv_nsec = (long)((interval - (double)(time_t)interval) * 1e9) };
    int rc = now != NULL && before != NULL ? 0 : fct_fail(FCT_EX_SOFT, "out of memory");

    if (rc == 0)
        snapshot(seg, before);
    for (t0 = fct_now_ns(); rc == 0; t0 = t1) {
        nanosleep(&nap, NULL);
        if (__atomic_load_n(&seg->magic, __ATOMIC_ACQUIRE) != CNT_MAGIC) {
            rc = fct_fail(FCT_EX_UNAV, "the daemon ended");
            break;
        }
        snapshot(seg, now);
        t1 = fct_now_ns();
        if (json) {
            rc = print_json(seg, now);
        } else {
            if (isatty(STDOUT_FILENO))
                fputs("\033[H\033[2J", stdout);
            print_text(now, before, (double)(t1 - t0) / 1e9);
            putchar('\n');
            rc = fflush(stdout) != 0 ? FCT_EX_IO : 0;
        }
        memcpy(before, now, bytes);
    }
    free(now);
    free(before);
    return rc;
}

static int
once(const struct cnt_seg *seg, int json)
{
    uint64_t *now = malloc(cnt_count() * sizeof(uint64_t));
    int rc = 0;

    if (now == NULL)
        return fct_fail(FCT_EX_SOFT, "out of memory");
    snapshot(seg, now);
    if (json)
        rc = print_json(seg, now);
    else
        print_text(now, NULL, 1);
    free(now);
    return rc;
}

/* The segment's group cannot be asked for; the client socket has the same. */
static int
no_permission(const struct fct *f)
{
    struct stat st = { .st_gid = 0 };
    char what[600];

    snprintf(what, sizeof(what), "statistics of %s", f->dir);
    (void)stat(f->socket, &st);
    return fct_no_permission(what, st.st_gid);
}

int
fct_cmd_stat(const struct fct *f, int argc, char **argv)
{
    enum { O_HELP = 1, O_ONCE, O_INTERVAL, O_JSON };
    static const struct fct_opt opts[] = {
        { "once", '1', NULL, "print once and end", O_ONCE },
        { "interval", 'i', "S", "seconds between two prints (1)", O_INTERVAL },
        { "json", 0, NULL, "{\"gate\": {...}, \"worker\": {...}}", O_JSON },
        { "help", 'h', NULL, "this text", O_HELP },
        FCT_OPT_END
    };
    struct fct_cli c = { .argc = argc, .argv = argv };
    const struct cnt_seg *seg;
    double interval = 1;
    int id, rc, json = 0, one = 0;

    while ((id = fct_cli_next(&c, opts)) != FCT_CLI_END) {
        if (id == FCT_CLI_BAD)
            return FCT_EX_USAGE;
        if (id == FCT_CLI_WORD)
            return fct_fail(FCT_EX_USAGE, "stat: unexpected '%s'", c.value);
        if (id == O_HELP) {
            puts("usage: fdctl stat [-1] [-i S] [--json]\n\n"
                "Counters, read from shared memory without asking the daemon.\n");
            fct_help_opts(stdout, opts);
            return 0;
        }
        json |= id == O_JSON;
        one |= id == O_ONCE;
        if (id == O_INTERVAL && (rc = fct_dbl("--interval", c.value, &interval)) != 0)
            return rc;
    }
    if (!(interval >= 0.01 && interval <= 86400))
        return fct_fail(FCT_EX_USAGE, "--interval: must be 0.01 to 86400 seconds");
    seg = find_seg(f);
    if (seg == NULL && (errno == EACCES || errno == EPERM))
        return no_permission(f);
    if (seg == NULL && errno == EPROTO)
        return fct_fail(FCT_EX_PROTO, "statistics of %s: made by another version of fdd",
            f->dir);
    if (seg == NULL)
        return fct_fail(FCT_EX_UNAV, "no daemon with the runtime folder %s: "
            "%s; start it:\n"
            "  sudo systemctl start fdd\nor for yourself:\n  fdd --set model.path=DIR",
            f->dir, strerror(errno));
    rc = one ? once(seg, json) : watch(seg, interval, json);
    munmap((void *)(uintptr_t)seg, sizeof(*seg));
    return rc;
}
