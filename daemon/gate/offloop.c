/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/offloop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/gate/memfile.h"

#define OFL_MAGIC     0x4f464c31u
#define OFL_SIGNAL    (SIGRTMAX - 1) /* the log has SIGRTMAX */
#define OFL_SLOTS_MAX (1u << 20)
#define OFL_POLL_NS   (1 * CLK_MS) /* interval at which ofl_free() checks */

enum ofl_kind { OFL_CLOSE, OFL_PUNCH, OFL_MAKE, OFL_SEAL, OFL_READ, OFL_REAP };

struct ofl_job {
    uint32_t full; /* set by the caller, cleared by the thread that takes the job */
    int32_t kind;  /* enum ofl_kind */
    int64_t id;    /* descriptor or pid */
    size_t bytes;  /* OFL_PUNCH, OFL_READ */
    uint64_t at;   /* OFL_READ, as is `to` */
    void *to;
    uint32_t *ret_done;        /* OFL_PUNCH */
    struct memfiles *files;    /* OFL_MAKE */
    struct ofl_ret *ret;       /* OFL_MAKE, OFL_SEAL, OFL_READ */
    uint32_t *n_user;          /* OFL_SEAL */
    uint32_t *n_seals;         /* OFL_SEAL: ofl.seals; NULL: neither is counted */
    struct ofl_exit *ret_exit; /* OFL_REAP */
};

struct ofl {
    uint32_t magic, slots;
    struct ofl_job *job; /* [slots] */
    sem_t posted;        /* jobs not taken yet, plus threads to end */
    uint64_t put;        /* used only by the caller */
    uint64_t refused;
    uint64_t taken; /* jobs taken by threads */
    uint64_t done, interrupted;
    uint32_t threads, busy;
    uint32_t seals;      /* queued or running */
    uint32_t stop, left; /* 1: threads are to end; number that did */
    int efd;             /* eventfd: written when memfds have been made, sealed or read */
};

/* Set when the signal of this thread's timer came. */
static _Thread_local volatile sig_atomic_t ofl_signalled;

/* A handler is needed so that a system call returns with EINTR. */
static void
ofl_on_signal(int sig)
{
    (void)sig;
    ofl_signalled = 1;
}

/* ---- jobs ---------------------------------------------------------------------- */

static void
ofl_do_reap(pid_t pid, struct ofl_exit *ret)
{
    siginfo_t si;
    int rc;

    memset(&si, 0, sizeof(si));
    do
        rc = waitid(P_PID, (id_t)pid, &si, WEXITED);
    while (rc != 0 && errno == EINTR);
    if (ret == NULL)
        return;
    ret->code = rc == 0 ? si.si_code : CLD_KILLED;
    ret->status = rc == 0 ? si.si_status : SIGKILL;
    __atomic_store_n(&ret->is_done, 1, __ATOMIC_RELEASE);
}

static int
ofl_do_read(const struct ofl_job *j)
{
    size_t done = 0;

    while (done < j->bytes) {
        ssize_t got = pread((int)j->id, (char *)j->to + done, j->bytes - done,
            (off_t)(j->at + done));

        if (got < 0 && errno != EINTR)
            return -errno;
        if (got == 0) {
            memset((char *)j->to + done, 0, j->bytes - done);
            return 0;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

static void
ofl_say(struct ofl_ret *ret, int rc, int efd)
{
    uint64_t one = 1;

    ret->rc = rc;
    __atomic_store_n(&ret->is_done, 1, __ATOMIC_RELEASE);
    if (efd >= 0 && write(efd, &one, sizeof(one)) < 0) {
        /* the eventfd is signalled already */
    }
}

static void
ofl_do_seal(const struct ofl_job *j, int efd)
{
    int rc = memfile_seal((int)j->id);

    if (j->n_seals != NULL) {
        (void)__atomic_sub_fetch(j->n_seals, 1, __ATOMIC_RELEASE);
        (void)__atomic_sub_fetch(j->n_user, 1, __ATOMIC_RELEASE);
    }
    ofl_say(j->ret, rc, efd);
}

static void
ofl_do(const struct ofl_job *j, int efd)
{
    switch ((enum ofl_kind)j->kind) {
    case OFL_CLOSE:
        /* it is closed even after EINTR */
        (void)close((int)j->id);
        break;
    case OFL_PUNCH:
        (void)fallocate((int)j->id, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
            (off_t)j->bytes);
        __atomic_store_n(j->ret_done, 1, __ATOMIC_RELEASE);
        break;
    case OFL_MAKE:
        ofl_say(j->ret, memfiles_make(j->files), efd);
        break;
    case OFL_SEAL:
        ofl_do_seal(j, efd);
        break;
    case OFL_READ:
        ofl_say(j->ret, ofl_do_read(j), efd);
        break;
    case OFL_REAP:
        ofl_do_reap((pid_t)j->id, j->ret_exit);
        break;
    }
}

static void
ofl_arm(timer_t timer, uint64_t ns)
{
    struct timespec t = { .tv_sec = (time_t)(ns / CLK_S), .tv_nsec = (long)(ns % CLK_S) };
    struct itimerspec its = { .it_interval = t, .it_value = t };

    (void)timer_settime(timer, 0, &its, NULL);
}

/* Copies the next job and frees its slot. */
static void
ofl_take(struct ofl *o, struct ofl_job *ret)
{
    uint64_t i = __atomic_fetch_add(&o->taken, 1, __ATOMIC_ACQ_REL);
    struct ofl_job *j = &o->job[i & (o->slots - 1)];

    /* Pairs with the store in ofl_put(), which comes before sem_post(). */
    ASSERT(__atomic_load_n(&j->full, __ATOMIC_ACQUIRE) != 0);
    *ret = *j;
    __atomic_store_n(&j->full, 0, __ATOMIC_RELEASE);
}

static void
ofl_run(struct ofl *o, timer_t timer, int has_timer)
{
    struct ofl_job j;

    ofl_take(o, &j);
    (void)__atomic_add_fetch(&o->busy, 1, __ATOMIC_ACQ_REL);
    ofl_signalled = 0;
    if (has_timer)
        ofl_arm(timer, OFL_SIGNAL_MS * CLK_MS);
    ofl_do(&j, o->efd);
    if (has_timer)
        ofl_arm(timer, 0);
    if (ofl_signalled)
        (void)__atomic_add_fetch(&o->interrupted, 1, __ATOMIC_RELAXED);
    (void)__atomic_sub_fetch(&o->busy, 1, __ATOMIC_ACQ_REL);
    (void)__atomic_add_fetch(&o->done, 1, __ATOMIC_RELEASE);
}

static void *
ofl_thread(void *arg)
{
    struct ofl *o = arg;
    struct sigevent ev;
    timer_t timer = NULL;
    int has_timer;

    memset(&ev, 0, sizeof(ev));
    ev.sigev_notify = SIGEV_THREAD_ID;
    ev.sigev_signo = OFL_SIGNAL;
    ev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    has_timer = timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0;
    for (;;) {
        while (sem_wait(&o->posted) != 0)
            continue;
        /* Each post is a job until `stop` is set, so earlier jobs are done first. */
        if (__atomic_load_n(&o->stop, __ATOMIC_ACQUIRE))
            break;
        ofl_run(o, timer, has_timer);
    }
    if (has_timer)
        (void)timer_delete(timer);
    (void)__atomic_add_fetch(&o->left, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* The loop handles the process's signals; this thread gets only its timer's. */
static int
ofl_thread_new(struct ofl *o)
{
    sigset_t all, old;
    pthread_attr_t at;
    pthread_t th;
    int rc;

    (void)sigfillset(&all);
    (void)sigdelset(&all, OFL_SIGNAL);
    if (pthread_attr_init(&at) != 0)
        return -ENOMEM;
    (void)pthread_attr_setdetachstate(&at, PTHREAD_CREATE_DETACHED);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&th, &at, ofl_thread, o);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0)
        (void)pthread_setname_np(th, "fdd-offloop");
    (void)pthread_attr_destroy(&at);
    return -rc;
}

/* ---- the caller's side ------------------------------------------------------------ */

struct ofl *
ofl_new(uint32_t slots)
{
    struct sigaction sa;
    struct ofl *o;
    uint32_t n = 64;

    while (n < slots && n < OFL_SLOTS_MAX)
        n *= 2;
    memset(&sa, 0, sizeof(sa));
    sa.sa_handler = ofl_on_signal; /* no SA_RESTART: the call must end */
    (void)sigemptyset(&sa.sa_mask);
    OBJ_ALLOC(o, OFL_MAGIC);
    if (o == NULL)
        return NULL;
    o->slots = n;
    o->job = mem_array(n, sizeof(*o->job));
    o->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (o->job == NULL || o->efd < 0 || sem_init(&o->posted, 0, 0) != 0)
        goto free_job;
    if (sigaction(OFL_SIGNAL, &sa, NULL) != 0)
        goto fini_sem;
    while (o->threads < OFL_THREADS && ofl_thread_new(o) == 0)
        o->threads++;
    if (o->threads != 0)
        return o;

fini_sem:
    (void)sem_destroy(&o->posted);
free_job:
    if (o->efd >= 0)
        (void)close(o->efd);
    free(o->job);
    OBJ_FREE(o, OFL_MAGIC);
    return NULL;
}

struct ofl *
ofl_free(struct ofl *o, uint64_t wait_ns)
{
    uint64_t until = clk_now_ns() + wait_ns;

    if (o == NULL)
        return NULL;
    OBJ_CHECK(o, OFL_MAGIC);
    while (__atomic_load_n(&o->done, __ATOMIC_ACQUIRE) < o->put && clk_now_ns() < until)
        clk_sleep_ns(OFL_POLL_NS);
    __atomic_store_n(&o->stop, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < OFL_THREADS; i++)
        (void)sem_post(&o->posted);
    while (__atomic_load_n(&o->left, __ATOMIC_ACQUIRE) < o->threads) {
        if (clk_now_ns() >= until)
            return NULL; /* a hanging thread still uses it */
        clk_sleep_ns(OFL_POLL_NS);
    }
    (void)sem_destroy(&o->posted);
    (void)close(o->efd);
    free(o->job);
    OBJ_FREE(o, OFL_MAGIC);
    return NULL;
}

int
ofl_fd(const struct ofl *o)
{
    return o != NULL ? o->efd : -1;
}

static int
ofl_put(struct ofl *o, const struct ofl_job *job)
{
    struct ofl_job *j;

    if (o == NULL) {
        ofl_do(job, -1);
        return 0;
    }
    j = &o->job[o->put & (o->slots - 1)];
    /* Pairs with ofl_take(), which has made its copy. */
    if (__atomic_load_n(&j->full, __ATOMIC_ACQUIRE) != 0) {
        o->refused++;
        return -EAGAIN;
    }
    j->kind = job->kind;
    j->id = job->id;
    j->bytes = job->bytes;
    j->at = job->at;
    j->to = job->to;
    j->ret_done = job->ret_done;
    j->files = job->files;
    j->ret = job->ret;
    j->n_user = job->n_user;
    j->n_seals = job->n_seals;
    j->ret_exit = job->ret_exit;
    __atomic_store_n(&j->full, 1, __ATOMIC_RELEASE);
    o->put++;
    (void)sem_post(&o->posted);
    return 0;
}

int
ofl_close(struct ofl *o, int fd)
{
    return fd < 0 ? 0 : ofl_put(o, &(struct ofl_job){ .kind = OFL_CLOSE, .id = fd });
}

int
ofl_punch(struct ofl *o, int fd, size_t bytes, uint32_t *ret_done)
{
    return ofl_put(o,
        &(struct ofl_job){ .kind = OFL_PUNCH, .id = fd, .bytes = bytes, .ret_done = ret_done });
}

int
ofl_make(struct ofl *o, struct memfiles *m, struct ofl_ret *ret)
{
    return ofl_put(o, &(struct ofl_job){ .kind = OFL_MAKE, .files = m, .ret = ret });
}

int
ofl_seal(struct ofl *o, int fd, uint32_t *n_user, struct ofl_ret *ret)
{
    struct ofl_job j = { .kind = OFL_SEAL, .id = fd, .n_user = n_user, .ret = ret };
    int rc;

    if (o == NULL)
        return ofl_put(NULL, &j);
    if (__atomic_load_n(&o->seals, __ATOMIC_ACQUIRE) >= OFL_SEALS ||
        __atomic_load_n(n_user, __ATOMIC_ACQUIRE) >= OFL_SEALS_USER)
        return -EBUSY;
    j.n_seals = &o->seals;
    (void)__atomic_add_fetch(&o->seals, 1, __ATOMIC_RELAXED);
    (void)__atomic_add_fetch(n_user, 1, __ATOMIC_RELAXED);
    rc = ofl_put(o, &j);
    if (rc != 0) {
        (void)__atomic_sub_fetch(&o->seals, 1, __ATOMIC_RELAXED);
        (void)__atomic_sub_fetch(n_user, 1, __ATOMIC_RELAXED);
    }
    return rc;
}

int
ofl_read(struct ofl *o, int fd, void *to, uint32_t n, uint64_t at, struct ofl_ret *ret)
{
    return ofl_put(o,
        &(struct ofl_job){ .kind = OFL_READ,
            .id = fd,
            .bytes = n,
            .at = at,
            .to = to,
            .ret = ret });
}

int
ofl_rc(const struct ofl_ret *ret)
{
    /* acquire order: rc was stored before is_done */
    return __atomic_load_n(&ret->is_done, __ATOMIC_ACQUIRE) ? ret->rc : -EINPROGRESS;
}

int
ofl_reap(struct ofl *o, pid_t pid, struct ofl_exit *ret)
{
    return pid <= 0
        ? 0
        : ofl_put(o, &(struct ofl_job){ .kind = OFL_REAP, .id = pid, .ret_exit = ret });
}

void
ofl_count(const struct ofl *o, struct ofl_count *ret)
{
    memset(ret, 0, sizeof(*ret));
    if (o == NULL)
        return;
    ret->put = o->put;
    ret->refused = o->refused;
    ret->done = __atomic_load_n(&o->done, __ATOMIC_ACQUIRE);
    ret->interrupted = __atomic_load_n(&o->interrupted, __ATOMIC_RELAXED);
    ret->threads = o->threads;
    ret->busy = __atomic_load_n(&o->busy, __ATOMIC_RELAXED);
}
