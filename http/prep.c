/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/prep.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREP_NICE  5 /* loops take precedence if processors are few */
#define PREP_LEAST 19

static struct prep_job *
take(struct prep *p)
{
    struct prep_job *j = p->first;

    if (j != NULL)
        p->first = j->next;
    return j;
}

/* The nice value of a thread that is PREP_NICE below the process. */
static int
lower(void)
{
    int v = getpriority(PRIO_PROCESS, 0) + PREP_NICE;

    return v < PREP_LEAST ? v : PREP_LEAST;
}

static void *
run(void *arg)
{
    struct prep *p = arg;
    struct prep_job *j;

    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), lower());
    (void)pthread_mutex_lock(&p->lock);
    while (!p->end) {
        j = take(p);
        if (j == NULL) {
            (void)pthread_cond_wait(&p->more, &p->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&p->lock);
        j->work(j);
        ibx_put(j->back, &j->post);
        (void)pthread_mutex_lock(&p->lock);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

int
prep_init(struct prep *p, unsigned n_thread)
{
    sigset_t all, was;
    int rc = 0;

    memset(p, 0, sizeof(*p));
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->more, NULL);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &was);
    while (p->n_thread < n_thread && rc == 0) {
        rc = pthread_create(&p->thread[p->n_thread], NULL, run, p);
        p->n_thread += rc == 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
    return -rc;
}

void
prep_fini(struct prep *p)
{
    struct prep_job *j;

    (void)pthread_mutex_lock(&p->lock);
    p->end = 1;
    (void)pthread_cond_broadcast(&p->more);
    (void)pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->n_thread; i++)
        (void)pthread_join(p->thread[i], NULL);
    while ((j = take(p)) != NULL) {
        atomic_store(&j->is_cancelled, 1);
        ibx_put(j->back, &j->post);
    }
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->more);
}

void
prep_put(struct prep *p, struct prep_job *j)
{
    j->next = NULL;
    (void)pthread_mutex_lock(&p->lock);
    if (p->first == NULL)
        p->first = j;
    else
        p->last->next = j;
    p->last = j;
    (void)pthread_cond_signal(&p->more);
    (void)pthread_mutex_unlock(&p->lock);
}
