/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * For LD_PRELOAD: a real-time clock that jumps. CLOCK_REALTIME is shifted by the seconds
 * that another process writes as an int64_t to the file $FDD_CLOCK, which is mapped once.
 * Monotonic clocks are unchanged. A wait until a time of day ends by the shifted clock,
 * as under a kernel whose clock was set.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 5000000 /* time after which a waiter sees a jump */

static const int64_t none;
static const int64_t *shift_s = &none;

static __attribute__((constructor)) void
begin(void)
{
    const char *path = getenv("FDD_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p = MAP_FAILED;

    if (fd >= 0) {
        p = mmap(NULL, sizeof(*shift_s), PROT_READ, MAP_SHARED, fd, 0);
        (void)close(fd);
    }
    if (p != MAP_FAILED)
        shift_s = p;
}

static int
is_of_day(clockid_t id)
{
    return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
}

int
clock_gettime(clockid_t id, struct timespec *ts)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ts);

    if (rc == 0 && is_of_day(id))
        ts->tv_sec += __atomic_load_n(shift_s, __ATOMIC_RELAXED);
    return rc;
}

int
timespec_get(struct timespec *ts, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, ts) == 0 ? base : 0;
}

int
gettimeofday(struct timeval *tv, void *zone)
{
    struct timespec ts;

    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    *tv = (struct timeval){ ts.tv_sec, ts.tv_nsec / 1000 };
    return 0;
}

time_t
time(time_t *ret)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    if (ret != NULL)
        *ret = ts.tv_sec;
    return ts.tv_sec;
}

/* 1: Returns 1 if the time of day has come, else 0 with a time of
 * CLOCK_MONOTONIC to look again. */
static int
has_come(const struct timespec *until, struct timespec *ret)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec > until->tv_sec ||
        (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec))
        return 1;
    (void)clock_gettime(CLOCK_MONOTONIC, ret);
    ret->tv_nsec += LOOK_NS;
    if (ret->tv_nsec >= 1000000000) {
        ret->tv_sec++;
        ret->tv_nsec -= 1000000000;
    }
    return 0;
}

int
sem_timedwait(sem_t *sem, const struct timespec *until)
{
    struct timespec look;

    for (;;) {
        if (sem_trywait(sem) == 0)
            return 0;
        if (has_come(until, &look)) {
            errno = ETIMEDOUT;
            return -1;
        }
        if (sem_clockwait(sem, CLOCK_MONOTONIC, &look) == 0)
            return 0;
        if (errno != ETIMEDOUT)
            return -1;
    }
}

int
pthread_mutex_timedlock(pthread_mutex_t *m, const struct timespec *until)
{
    struct timespec look;
    int rc = ETIMEDOUT;

    while (rc == ETIMEDOUT && !has_come(until, &look))
        rc = pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &look);
    return rc;
}

int
clock_nanosleep(clockid_t id, int flags, const struct timespec *ts, struct timespec *rest)
{
    struct timespec look;

    while (is_of_day(id) && (flags & TIMER_ABSTIME) != 0) {
        if (has_come(ts, &look))
            return 0;
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &look, NULL);
    }
    return syscall(SYS_clock_nanosleep, id, flags, ts, rest) == 0 ? 0 : errno;
}
