/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Memory shared with clients: write access, ownership of pages,
 * memory left after the end. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/gate/intake.h"
#include "daemon/gate/memfile.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/region.h"
#include "daemon/gate/session.h"
#include "tests/unit/gate_fixture.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define KIB 1024u

static int no_memory; /* set: no pages can be allocated */
static unsigned n_populate;

static int looks_at = -1;    /* descriptor of the region that is dropped */
static uint64_t full_unmaps; /* bytes of that file at the time of an munmap() */
static uint32_t off_loop;    /* number of calls on other threads that
                              * lock the address space */
static uint32_t here_reads;  /* pread() on this thread */
static uint32_t held_reads;  /* pread() on other threads, which waits there
                              * while reads_wait is set */
static int reads_wait;
static uint32_t held_seals; /* the same for seals that forbid writing */
static int seals_wait;

static void
note_thread(void)
{
    if (syscall(SYS_gettid) != getpid())
        (void)__atomic_add_fetch(&off_loop, 1, __ATOMIC_RELAXED);
}

/* Replaces libc's function. */
int
munmap(void *p, size_t n)
{
    struct stat st;

    note_thread();
    if (looks_at >= 0 && fstat(looks_at, &st) == 0)
        full_unmaps += (uint64_t)st.st_blocks * 512;
    return (int)syscall(SYS_munmap, p, n);
}

int
munlock(const void *p, size_t n)
{
    note_thread();
    return (int)syscall(SYS_munlock, p, n);
}

int
mprotect(void *p, size_t n, int prot)
{
    note_thread();
    return (int)syscall(SYS_mprotect, p, n, prot);
}

int
madvise(void *p, size_t n, int advice)
{
    note_thread();
    if (advice == MADV_POPULATE_WRITE) {
        n_populate++;
        if (no_memory) {
            errno = ENOMEM;
            return -1;
        }
    }
    return (int)syscall(SYS_madvise, p, n, advice);
}

ssize_t
pread(int fd, void *to, size_t n, off_t at)
{
    if (syscall(SYS_gettid) == getpid()) {
        here_reads++;
    } else {
        (void)__atomic_add_fetch(&held_reads, 1, __ATOMIC_ACQ_REL);
        while (__atomic_load_n(&reads_wait, __ATOMIC_ACQUIRE))
            clk_sleep_ns(CLK_MS / 10);
    }
    return (ssize_t)syscall(SYS_pread64, fd, to, n, at);
}

int
fcntl(int fd, int cmd, ...)
{
    va_list ap;
    long arg;

    va_start(ap, cmd);
    arg = va_arg(ap, long);
    va_end(ap);
    if (cmd == F_ADD_SEALS && (arg & F_SEAL_FUTURE_WRITE) != 0 &&
        syscall(SYS_gettid) != getpid()) {
        (void)__atomic_add_fetch(&held_seals, 1, __ATOMIC_ACQ_REL);
        while (__atomic_load_n(&seals_wait, __ATOMIC_ACQUIRE))
            clk_sleep_ns(CLK_MS / 10);
    }
    return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static int
make_and_map(struct region *r, uint32_t bytes, enum memfile_kind kind, int *ret_fd)
{
    struct memfile f = { .kind = kind, .bytes = bytes };
    int rc = memfile_make(&f, "t");

    memset(r, 0, sizeof(*r));
    if (rc == 0)
        rc = region_map(r, &f);
    *ret_fd = f.share;
    return rc;
}

static uint64_t
bytes_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void
t_pages_as_used(void **state)
{
    struct region ours, theirs;
    int fd, fd2;

    (void)state;
    assert_int_equal(make_and_map(&ours, 1024 * KIB, MEMFILE_OURS, &fd), 0);
    assert_int_equal(make_and_map(&theirs, 1024 * KIB, MEMFILE_THEIRS, &fd2), 0);
    assert_int_equal(bytes_of(fd2), 0);
    assert_int_equal(bytes_of(fd), REGION_STEP);
    assert_int_equal(ours.ready, REGION_STEP);
    n_populate = 0;
    for (uint32_t at = 0; at < 300 * KIB; at += 64) {
        assert_int_equal(region_reserve(&ours, at + 64, 1), 0);
        ours.p[at + 63] = 1;
        assert_in_range(bytes_of(fd), at + 64, at + 64 + REGION_STEP);
    }
    assert_int_equal(n_populate, 4); /* fewer than one for each record */
    assert_int_equal(region_reserve(&ours, 1024 * KIB, 1), 0);
    assert_int_equal(ours.ready, 1024 * KIB);
    region_empty(&ours);
    region_empty(&theirs);
    (void)close(fd);
    (void)close(fd2);
}

/* Tries to open the file as a user who does not own it. Returns 1 if that succeeded. */
static int
stranger_opens(int fd)
{
    pid_t pid = fork();
    int st = 0;

    if (pid == 0) {
        char path[40];

        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            _exit(2);
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        _exit(open(path, O_RDWR) >= 0 ? 1 : errno == EACCES ? 0 : 3);
    }
    assert_true(pid > 0 && waitpid(pid, &st, 0) == pid && WIFEXITED(st));
    return WEXITSTATUS(st);
}

static void
t_read_only(void **state)
{
    struct region r;
    struct stat st;
    void *p;
    int fd;

    (void)state;
    assert_int_equal(make_and_map(&r, 64 * KIB, MEMFILE_OURS, &fd), 0);
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0400);
    assert_int_equal(stranger_opens(fd), 0);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
        MAP_FAILED);
    p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    assert_int_equal(mprotect(p, 4096, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(madvise(p, 4096, MADV_REMOVE), -1);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    assert_int_equal(fallocate(fd, 0, 0, 65536), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    r.p[5] = 7;
    assert_int_equal(((volatile unsigned char *)p)[5], 7);
    (void)munmap(p, 4096);
    region_empty(&r);
    (void)close(fd);
}

/* No pages of ours are left, even if a process keeps descriptor and mapping. Those of the
 * client are its own. */
static void
t_empty(void **state)
{
    enum memfile_kind kinds[] = { MEMFILE_OURS, MEMFILE_THEIRS };

    (void)state;
    for (int k = 0; k < 2; k++) {
        int prot = kinds[k] == MEMFILE_OURS ? PROT_READ : PROT_READ | PROT_WRITE;
        struct region r;
        unsigned char *p;
        int fd;

        assert_int_equal(make_and_map(&r, 512 * KIB, kinds[k], &fd), 0);
        p = mmap(NULL, 512 * KIB, prot, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        if (kinds[k] == MEMFILE_OURS) {
            assert_int_equal(region_reserve(&r, 512 * KIB, 0), 0);
            memset(r.p, 1, 512 * KIB);
        } else {
            memset(p, 1, 512 * KIB);
        }
        assert_int_equal(bytes_of(fd), 512 * KIB);
        region_empty(&r);
        assert_null(r.p);
        assert_int_equal(bytes_of(fd), kinds[k] == MEMFILE_OURS ? 0 : 512 * KIB);
        (void)munmap(p, 512 * KIB);
        (void)close(fd);
    }
}

/* The same off the loop. No other thread changes a mapping, since the loop would wait for
 * it. The loop itself unmaps regions that have no pages left, which takes no time. */
static void
t_drop(void **state)
{
    enum memfile_kind kinds[] = { MEMFILE_OURS, MEMFILE_THEIRS };
    struct ofl *o = ofl_new(64);
    static struct region_bin b;

    (void)state;
    assert_non_null(o);
    region_bin_init(&b);
    for (int k = 0; k < 2; k++) {
        uint64_t until = clk_now_ns() + 10 * CLK_S;
        struct region r;
        unsigned char *at;
        int fd;

        assert_int_equal(make_and_map(&r, 5000 * KIB, kinds[k], &fd), 0);
        if (kinds[k] == MEMFILE_OURS)
            assert_int_equal(region_reserve(&r, 5000 * KIB, 0), 0);
        else
            assert_int_equal(fallocate(fd, 0, 0, 5000 * KIB), 0);
        assert_int_equal(bytes_of(fd), 5000 * KIB);
        at = r.p;
        looks_at = kinds[k] == MEMFILE_OURS ? fd : -1;
        region_drop(&b, &r, o);
        assert_null(r.p);
        while (!STAILQ_EMPTY(&b.dying) && clk_now_ns() < until) {
            region_bin_tick(&b, 1, o);
            clk_sleep_ns(CLK_MS);
        }
        looks_at = -1;
        assert_true(STAILQ_EMPTY(&b.dying));
        assert_int_equal(bytes_of(fd), kinds[k] == MEMFILE_OURS ? 0 : 5000 * KIB);
        assert_int_equal(msync(at, 4096, MS_ASYNC), -1); /* not mapped */
        (void)close(fd);
    }
    assert_null(ofl_free(o, 10 * CLK_S));
    region_bin_fini(&b);
    assert_int_equal(full_unmaps, 0);
    assert_int_equal(off_loop, 0);
}

static void
t_no_memory(void **state)
{
    struct region r;
    int fd;

    (void)state;
    no_memory = 1;
    assert_int_equal(make_and_map(&r, 256 * KIB, MEMFILE_OURS, &fd), -ENOMEM);
    assert_null(r.p);
    no_memory = 0;
    assert_int_equal(make_and_map(&r, 256 * KIB, MEMFILE_OURS, &fd), 0);
    no_memory = 1;
    assert_int_equal(region_reserve(&r, REGION_STEP, 1), 0);
    n_populate = 0;
    for (uint64_t t = 1; t <= 100; t++) /* 10 ms in steps of 100 us */
        assert_int_equal(region_reserve(&r, REGION_STEP + 1, CLK_S + t * 100 * CLK_US),
            -ENOMEM);
    assert_in_range(n_populate, 1, 2);
    assert_int_equal(r.ready, REGION_STEP);
    no_memory = 0;
    assert_int_equal(region_reserve(&r, REGION_STEP + 1, 2 * CLK_S), 0);
    region_empty(&r);
    (void)close(fd);
}

static void
t_late(void **state)
{
    static struct region_bin l;
    int fd[REGION_LATE_MAX + 1];
    struct region r;

    (void)state;
    for (uint32_t i = 0; i <= REGION_LATE_MAX; i++) {
        assert_int_equal(make_and_map(&r, 64 * KIB, MEMFILE_OURS, &fd[i]), 0);
        region_drop_late(&l, &r, i, NULL);
        assert_null(r.p);
    }
    assert_int_equal(bytes_of(fd[0]), 0); /* the bin is full: the oldest is dropped */
    assert_int_equal(bytes_of(fd[1]), 64 * KIB);
    region_bin_tick(&l, 4 * CLK_S, NULL);
    assert_int_equal(bytes_of(fd[1]), 64 * KIB);
    region_bin_tick(&l, 6 * CLK_S, NULL);
    for (uint32_t i = 0; i <= REGION_LATE_MAX; i++) {
        assert_int_equal(bytes_of(fd[i]), 0);
        (void)close(fd[i]);
    }
    assert_int_equal(l.bytes, 0);
    /* the number of their pages is bounded too */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(make_and_map(&r, 32u << 20, MEMFILE_OURS, &fd[i]), 0);
        assert_int_equal(region_reserve(&r, 32u << 20, 0), 0);
        region_drop_late(&l, &r, CLK_S, NULL);
    }
    assert_int_equal(bytes_of(fd[0]), 0);
    assert_int_equal(bytes_of(fd[1]), 32u << 20);
    assert_int_equal(l.bytes, REGION_LATE_BYTES);
    region_bin_fini(&l); /* the clients may still read */
    assert_int_equal(bytes_of(fd[2]), 32u << 20);
    for (int i = 0; i < 3; i++)
        (void)close(fd[i]);
}

/* ---- in sessions --------------------------------------------------------- */

/* The largest completion ring uses no memory until it is used, and none when the
 * client has left, even if the client keeps the descriptors. Pages that the
 * client wrote itself stay. */
static void
t_kept(void **state)
{
    struct fix f;
    struct fcl c;
    struct fdp_hello h;
    uint64_t wrote;
    int kept[2];

    (void)state;
    fix_open(&f, NULL);
    fcl_hello(&h);
    h.cq_slots = 1048576;
    assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_OK);
    assert_true(bytes_of(c.d2c_fd) <= 2 * REGION_STEP);
    memset(c.c2d + c.w.arena_off, 1, c.w.arena_bytes);
    wrote = bytes_of(c.c2d_fd);
    fcl_submit(&c, 1, 1000, 4);
    fix_step(&f, 0);
    kept[0] = dup(c.c2d_fd);
    kept[1] = dup(c.d2c_fd);
    fcl_close(&c);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 0);
    assert_in_range(bytes_of(kept[0]), wrote, wrote + 4096); /* plus the page of one
                                                              * slot */
    assert_int_equal(bytes_of(kept[1]), 0);
    (void)close(kept[0]);
    (void)close(kept[1]);
    fix_close(&f);
}

/* Items in pages that the client never wrote are zeros, and no page is allocated for
 * them: it would count for the daemon, and could not be freed. */
static void
t_holes(void **state)
{
    static unsigned char copy[REGION_COPY_MAX];
    struct fix f;
    struct fcl c;
    struct fdp_req q;
    struct region *r;
    uint64_t before;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 2, 4); /* pages of the first slots and items */
    fix_step(&f, 0);
    before = bytes_of(c.c2d_fd);
    for (uint32_t off = 65536; off + 262144 <= c.w.arena_bytes; off += 262144) {
        fcl_req(&q, FDP_OP_SUBMIT, 2 + off);
        q.off = off;
        q.len = off % 524288 < 262144 ? 262144 : 65536; /* copied in pieces, and at
                                                         * once */
        fcl_send(&c, &q, NULL, 0, 0);
        fix_step(&f, 0);
        fcl_want_error(&c, 2 + off, FDP_E_UNSUPPORTED, FDP_D_ITEM);
    }
    assert_int_equal(bytes_of(c.c2d_fd), before);
    /* a copy from pages of both kinds */
    r = &f.g->ses.v[0]->c.c2d;
    memset(c.c2d + c.w.arena_off + 131072, 7, 10000);
    for (int i = 0; i < 2; i++) {
        memset(copy, 1, sizeof(copy));
        assert_false(region_find(r, c.w.arena_off + 131072 - 800, 65536));
        assert_int_equal(region_read(r, copy, c.w.arena_off + 131072 - 800, 65536, NULL), 0);
        for (uint32_t k = 0; k < 65536; k++)
            assert_int_equal(copy[k], k >= 800 && k < 10800 ? 7 : 0);
        assert_true(region_find(r, c.w.arena_off + 131072, 10000));
        assert_true(region_is_there(r, c.w.arena_off + 131072, 10000));
    }
    assert_in_range(bytes_of(c.c2d_fd), before, before + 4 * 4096);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Sends at most n pings with tags from first on; fewer if there is no
 * room. Returns their number. */
static uint32_t
pings(struct fix *f, struct fcl *c, uint64_t first, uint32_t n)
{
    uint32_t i;

    for (i = 0; i < n && fdr_prod_room(&c->sq, 1) > 0; i++) {
        struct fdp_req q;

        fcl_req(&q, FDP_OP_PING, first + i);
        q.max_new = 0;
        fcl_send(c, &q, NULL, 0, 0);
        fix_step(f, 0);
    }
    return i;
}

/* Sends a request with items at this place of the arena, where nothing was written. */
static void
send_hole(struct fix *f, struct fcl *c, uint64_t tag, uint32_t off, uint32_t len)
{
    struct fdp_req q;

    fcl_req(&q, FDP_OP_SUBMIT, tag);
    q.off = off;
    q.len = len;
    fcl_send(c, &q, NULL, 0, 0);
    fix_step(f, 0);
}

static void
until_held(uint32_t n)
{
    uint64_t t = clk_now_ns();

    while (__atomic_load_n(&held_reads, __ATOMIC_ACQUIRE) < n &&
        clk_now_ns() - t < 10 * CLK_S)
        clk_sleep_ns(CLK_MS / 10);
    assert_int_equal(__atomic_load_n(&held_reads, __ATOMIC_ACQUIRE), n);
}

static void
until_idle(const struct ofl *o)
{
    struct ofl_count n = { .put = 1 };

    while (n.done < n.put) {
        clk_sleep_ns(CLK_MS / 10);
        ofl_count(o, &n);
    }
}

/* Waits until offloop has nothing to do, then handles its doorbell as the loop does. */
static void
until_read(struct fix *f, struct ofl *o)
{
    until_idle(o);
    ses_off_done(&f->g->ses);
    fix_step(f, 0);
}

/* Reading a missing page waits; only its session is delayed, not the others. */
static void
t_read_waits(void **state)
{
    struct ofl *o = ofl_new(64);
    struct fix f;
    struct fcl c[ITK_READS + 1], other;
    struct frec rec;

    (void)state;
    assert_non_null(o);
    fix_open(&f, NULL);
    fix_ready(&f);
    for (uint32_t i = 0; i <= ITK_READS; i++)
        assert_int_equal(fcl_open(&f, &c[i], 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, 1001, NULL), FDP_OK);
    f.g->itk.ofl = o;
    here_reads = held_reads = 0;
    reads_wait = 1;
    for (uint32_t i = 0; i <= ITK_READS; i++)
        send_hole(&f, &c[i], 7, 65536, i % 2 == 0 ? 8192 : 262144);
    until_held(ITK_READS);
    assert_int_equal(f.g->itk.n_waits, ITK_READS + 1);
    (void)pings(&f, &other, 1, 3);
    for (uint64_t n = 1; n <= 3; n++) {
        assert_true(fcl_recv(&other, &rec));
        assert_int_equal(rec.h.tag, n);
    }
    for (uint32_t i = 0; i <= ITK_READS; i++)
        assert_false(fcl_recv(&c[i], &rec));
    assert_int_equal(held_reads, ITK_READS);
    /* A session ends meanwhile: its memory stays until the thread no longer uses it. */
    f.g->ses.ofl = o;
    fcl_close(&c[0]);
    fix_step(&f, 0);
    for (int i = 0; i < 3; i++)
        fix_step(&f, 200);
    assert_true(region_bin_has_dying(&f.g->ses.bin));
    __atomic_store_n(&reads_wait, 0, __ATOMIC_RELEASE);
    for (int i = 0; i < 20; i++)
        until_read(&f, o);
    assert_int_equal(f.g->itk.n_waits, 0);
    for (uint32_t i = 1; i <= ITK_READS; i++)
        fcl_want_error(&c[i], 7, FDP_E_UNSUPPORTED, FDP_D_ITEM);
    assert_int_equal(here_reads, 0);
    f.g->ses.ofl = NULL;
    f.g->itk.ofl = NULL;
    assert_null(ofl_free(o, 10 * CLK_S));
    for (uint32_t i = 1; i <= ITK_READS; i++)
        fcl_close(&c[i]);
    fcl_close(&other);
    fix_step(&f, 50);
    fix_close(&f);
}

/* A region that a thread uses for ever neither holds up those dropped later, nor keeps the
 * loop awake. */
static void
t_used_for_ever(void **state)
{
    struct ofl *o = ofl_new(64);
    uint64_t until = clk_now_ns() + 10 * CLK_S;
    static unsigned char copy[4096];
    static struct region_bin b;
    struct region used, r;
    unsigned char *used_at, *at;
    int fd[2], own_fd;

    (void)state;
    assert_non_null(o);
    region_bin_init(&b);
    assert_int_equal(make_and_map(&used, 64 * KIB, MEMFILE_THEIRS, &fd[0]), 0);
    assert_int_equal(make_and_map(&r, 64 * KIB, MEMFILE_OURS, &fd[1]), 0);
    held_reads = 0;
    reads_wait = 1;
    assert_int_equal(region_read(&used, copy, 0, sizeof(copy), o), -EINPROGRESS);
    until_held(1);
    used_at = used.p;
    at = r.p;
    own_fd = r.fd;
    region_drop(&b, &used, o);
    region_drop(&b, &r, o);
    while ((msync(at, 4096, MS_ASYNC) == 0 || fcntl(own_fd, F_GETFD) >= 0) &&
        clk_now_ns() < until) {
        region_bin_tick(&b, 1, o);
        clk_sleep_ns(CLK_MS);
    }
    assert_int_equal(msync(at, 4096, MS_ASYNC), -1);
    assert_int_equal(fcntl(own_fd, F_GETFD), -1);
    assert_int_equal(msync(used_at, 4096, MS_ASYNC), 0);
    assert_true(region_bin_has_dying(&b));
    for (int i = 0; i < 1000; i++)
        region_bin_tick(&b, 1, o);
    assert_false(region_bin_has_dying(&b));
    __atomic_store_n(&reads_wait, 0, __ATOMIC_RELEASE);
    until_idle(o);
    region_bin_tick(&b, 1, o);
    assert_true(STAILQ_EMPTY(&b.dying));
    assert_null(ofl_free(o, 10 * CLK_S));
    region_bin_fini(&b);
    (void)close(fd[0]);
    (void)close(fd[1]);
}

static void
steps(struct fix *f)
{
    for (int i = 0; i < 20; i++) {
        clk_sleep_ns(CLK_MS);
        ses_off_done(&f->g->ses);
        fix_step(f, 2);
    }
}

/* A user whose seals hang waits with its other sessions, also after those have ended; the
 * sessions of other users begin. */
static void
t_seals_hang(void **state)
{
    struct ofl *o = ofl_new(64);
    struct fix f;
    struct fcl c[OFL_SEALS_USER + 1], other;

    (void)state;
    assert_non_null(o);
    fix_open(&f, NULL);
    for (int i = 0; i <= OFL_SEALS_USER; i++)
        assert_int_equal(fcl_connect(&f, &c[i], 1000, NULL), FDP_OK);
    assert_int_equal(fcl_connect(&f, &other, 1001, NULL), FDP_OK);
    f.g->ses.ofl = o;
    held_seals = 0;
    seals_wait = 1;
    for (int i = 0; i < OFL_SEALS_USER; i++)
        fcl_ring(&c[i]);
    (void)gate_events(f.g, 0);
    steps(&f);
    assert_int_equal(__atomic_load_n(&held_seals, __ATOMIC_ACQUIRE), OFL_SEALS_USER);
    for (int i = 0; i < OFL_SEALS_USER; i++)
        fcl_close(&c[i]);
    (void)gate_events(f.g, 0);
    steps(&f);
    assert_int_equal(f.g->ses.n, 2);
    fcl_ring(&c[OFL_SEALS_USER]);
    (void)gate_events(f.g, 0);
    steps(&f);
    assert_int_equal(__atomic_load_n(&held_seals, __ATOMIC_ACQUIRE), OFL_SEALS_USER);
    assert_int_equal(f.g->ses.v[0]->c.st, CLI_MAPS);
    fcl_ring(&other);
    (void)gate_events(f.g, 0);
    steps(&f);
    assert_int_equal(__atomic_load_n(&held_seals, __ATOMIC_ACQUIRE), OFL_SEALS_USER + 1);
    __atomic_store_n(&seals_wait, 0, __ATOMIC_RELEASE);
    until_idle(o);
    steps(&f); /* the one that waited is sealed */
    until_idle(o);
    steps(&f);
    for (uint32_t i = 0; i < f.g->ses.n; i++) {
        assert_int_equal(f.g->ses.v[i]->c.st, CLI_OPEN);
        assert_int_equal(f.g->ses.v[i]->c.usr->n_seals, 0);
    }
    assert_int_equal(f.g->ses.n, 2);
    f.g->ses.ofl = NULL;
    assert_null(ofl_free(o, 10 * CLK_S));
    fcl_close(&c[OFL_SEALS_USER]);
    fcl_close(&other);
    fix_step(&f, 50);
    fix_close(&f);
}

/* Memory of a client that was not sealed is not punched: the client could make that wait
 * for ever. */
static void
t_not_punched(void **state)
{
    struct ofl *o = ofl_new(64);
    static struct region_bin b;
    struct ofl_count n;
    struct region r;
    int fd;

    (void)state;
    assert_non_null(o);
    region_bin_init(&b);
    assert_int_equal(make_and_map(&r, 64 * KIB, MEMFILE_THEIRS, &fd), 0);
    region_drop(&b, &r, o);
    ofl_count(o, &n);
    assert_int_equal(n.put, 0);
    region_bin_tick(&b, 1, o);
    assert_true(STAILQ_EMPTY(&b.dying));
    ofl_count(o, &n);
    assert_int_equal(n.put, 1); /* the descriptor is closed */
    assert_null(ofl_free(o, 10 * CLK_S));
    region_bin_fini(&b);
    (void)close(fd);
}

/* A sealed region keeps its pages: a few are unmapped in each tick. */
static void
t_pieces(void **state)
{
    static unsigned char copy[4096];
    static struct region_bin b;
    uint32_t bytes = 12u << 20, ticks = 0;
    struct region r;
    int fd;

    (void)state;
    region_bin_init(&b);
    assert_int_equal(make_and_map(&r, bytes, MEMFILE_THEIRS, &fd), 0);
    for (uint32_t at = 0; at < bytes; at += 4096)
        assert_int_equal(pwrite(fd, "x", 1, at), 1);
    assert_int_equal(region_seal(&r, NULL, NULL), 0);
    assert_int_equal(region_sealed(&r), 0);
    for (uint32_t at = 0; at < bytes; at += sizeof(copy)) {
        assert_true(region_find(&r, at, sizeof(copy)));
        fdr_copy_in(copy, r.p + at, sizeof(copy));
    }
    {
        struct ofl *o = ofl_new(64);
        unsigned char *p = r.p;

        assert_non_null(o);
        region_drop(&b, &r, o);
        while (!STAILQ_EMPTY(&b.dying)) {
            assert_int_equal(msync(p, 4096, MS_ASYNC), 0);
            assert_true(region_bin_has_dying(&b)); /* the loop sleeps no longer than a tick */
            region_bin_tick(&b, 1, o);
            ticks++;
            assert_in_range(ticks, 1, 3);
            /* from the end */
            assert_int_equal(msync(p + bytes - (ticks * (4u << 20)), 4096, MS_ASYNC), -1);
        }
        assert_int_equal(ticks, 3);
        assert_false(region_bin_has_dying(&b));
        assert_null(ofl_free(o, 10 * CLK_S));
    }
    region_bin_fini(&b);
    assert_int_equal(bytes_of(fd), bytes); /* the pages are the client's */
    (void)close(fd);
}

/* A session ended by the daemon: for a while the client can read the last records. */
static void
t_last_words(void **state)
{
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 7, 2, 4);
    fix_step(&f, 0);
    life_stop_now(&f.g->life, 0);
    assert_int_equal(f.g->ses.n, 0);
    fcl_want_error(&c, 7, FDP_E_DRAINING, 0);
    assert_int_equal(fcl_state(&c), FDP_ST_GOODBYE);
    region_bin_tick(&f.g->ses.bin, f.now + 2 * CLK_S, NULL);
    assert_int_equal(fcl_state(&c), FDP_ST_GOODBYE);
    region_bin_tick(&f.g->ses.bin, f.now + 10 * CLK_S, NULL);
    assert_int_equal(fcl_state(&c), 0);
    assert_int_equal(bytes_of(c.d2c_fd) <= 4096, 1); /* the page looked at above */
    fcl_close(&c);
    fix_close(&f);
}

/* Without a page for the next records they wait in the session, as with a full ring, and
 * arrive in order when there is memory again. */
static void
t_no_page(void **state)
{
    uint64_t n = 0, n_sent;
    struct fix f;
    struct fcl c;
    struct frec rec;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    no_memory = 1;
    n_sent = pings(&f, &c, 1, 1500);
    assert_true(f.g->ses.v[0]->c.n_held > 0);
    assert_true(f.g->ses.v[0]->c.growing);
    while (fcl_recv(&c, &rec))
        assert_int_equal(rec.h.tag, ++n);
    assert_in_range(n, 100, REGION_STEP / FDP_SLOT);
    no_memory = 0;
    for (int i = 0; i < 100 && n < n_sent; i++) {
        fix_step(&f, 20);
        while (fcl_recv(&c, &rec))
            assert_int_equal(rec.h.tag, ++n);
    }
    assert_int_equal(n, n_sent);
    assert_int_equal(f.g->ses.v[0]->c.n_held, 0);
    for (int i = 0; i < 50; i++) { /* into the second pass */
        n_sent += pings(&f, &c, n + 1, 200);
        while (fcl_recv(&c, &rec))
            assert_int_equal(rec.h.tag, ++n);
    }
    assert_int_equal(n, n_sent);
    assert_true(n * 2 > c.w.cq_slots);
    assert_false(f.g->ses.v[0]->c.growing);
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_pages_as_used),
        cmocka_unit_test(t_read_only),
        cmocka_unit_test(t_empty),
        cmocka_unit_test(t_drop),
        cmocka_unit_test(t_no_memory),
        cmocka_unit_test(t_late),
        cmocka_unit_test(t_kept),
        cmocka_unit_test(t_holes),
        cmocka_unit_test(t_read_waits),
        cmocka_unit_test(t_used_for_ever),
        cmocka_unit_test(t_seals_hang),
        cmocka_unit_test(t_not_punched),
        cmocka_unit_test(t_pieces),
        cmocka_unit_test(t_last_words),
        cmocka_unit_test(t_no_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
