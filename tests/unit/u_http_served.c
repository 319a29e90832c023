/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdd-http: sections [model NAME], users of keys and addresses, the prep threads. */
#include "config.h"

#include "daemon/common/sha256.h"
#include "http/gateway.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- sections ---------------------------------------------------------------------------- */

struct fix {
    struct par_set *ps;
    char path[64];
    char said[4096]; /* the errors, a line each */
};

static int
load(struct fix *f, const char *text)
{
    struct par_say say = { .text = NULL };
    struct par_src src = { .file = "" };
    const char *line = NULL;
    int fd, rc, is_error;

    (void)par_free(f->ps);
    f->ps = par_new();
    assert_non_null(f->ps);
    (void)snprintf(f->path, sizeof(f->path), "/tmp/u_http_served.XXXXXX");
    fd = mkstemp(f->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    (void)snprintf(src.file, sizeof(src.file), "%s", f->path);
    rc = par_load(f->ps, &src, &say);
    f->said[0] = '\0';
    while ((line = par_say_next(&say, line, &is_error)) != NULL) {
        size_t at = strlen(f->said);

        (void)snprintf(f->said + at, sizeof(f->said) - at, "%s\n", line);
    }
    par_say_clear(&say);
    (void)unlink(f->path);
    return rc;
}

static void
refused(struct fix *f, const char *text, const char *why)
{
    assert_int_equal(load(f, text), -EINVAL);
    if (strstr(f->said, why) == NULL)
        fail_msg("not said: %s, but: %s", why, f->said);
}

static void
t_sections(void **state)
{
    struct fix f = { .ps = NULL };
    struct served_list l;

    (void)state;
    assert_int_equal(load(&f, "[daemon]\nsocket = /run/a\n[model]\nname = x, y\n"), 0);
    assert_int_equal(srv_read(f.ps, &l), 0);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.s[0].label, "");
    assert_string_equal(l.s[0].socket, "/run/a");
    assert_string_equal(l.s[0].names, "x, y");
    srv_free(&l);

    assert_int_equal(load(&f,
                         "[chat]\nparser = hermes\n"
                         "[model small]\nsocket = /run/s\n"
                         "[model Qwen/Qwen2.5-7B-Instruct]\nsocket = /run/q\nname = qwen,q\n"
                         "parser = none\n"),
        0);
    assert_int_equal(srv_read(f.ps, &l), 0);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.s[0].names, "small");
    assert_string_equal(l.s[0].socket, "/run/s");
    assert_string_equal(l.s[0].parser, "hermes");
    assert_string_equal(l.s[1].names, "qwen,q");
    assert_string_equal(l.s[1].parser, "none");
    assert_true(srv_same(&l.s[1], &l.s[1]));
    assert_false(srv_same(&l.s[0], &l.s[1]));
    srv_free(&l);
    (void)par_free(f.ps);
}

static void
t_sections_refused(void **state)
{
    struct fix f = { .ps = NULL };

    (void)state;
    refused(&f, "[model a]\nname = b\n", "[model a] names no socket");
    refused(&f, "[model a]\nsockt = /run/a\n", "unknown parameter [model a] sockt");
    refused(&f, "[model a]\nsocket = /x\nsocket = /y\n", "is set twice, first in ");
    refused(&f, "[model a]\nsocket = /x\n[model b]\nsocket = /y\nname = c, a\n",
        "[model a] and [model b] both have the name a");
    refused(&f, "[daemon]\nsocket = /z\n[model a]\nsocket = /x\n",
        "daemon.socket cannot be used together with sections");
    refused(&f, "[model a]\nsocket = /x\nparser = nonsense\n", "no such format");
    refused(&f, "[model a,b]\nsocket = /x\n", "no blank, comma");
    refused(&f, "[model 0123456789012345678901234567890123456789012345]\nsocket = /x\n",
        "of that length does not exist");
    (void)par_free(f.ps);
}

/* What a reload takes over, and how much of it is new. */
static void
t_reload(void **state)
{
    struct fix a = { .ps = NULL }, b = { .ps = NULL };
    struct served_list l;

    (void)state;
    assert_int_equal(load(&a, "[model a]\nsocket = /x\n"), 0);
    assert_int_equal(load(&b, "[model b]\nsocket = /y\n"), 0);
    assert_true(par_reload(a.ps, b.ps) > 0);
    assert_int_equal(srv_read(a.ps, &l), 0);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.s[0].label, "b");
    srv_free(&l);
    assert_int_equal(par_reload(a.ps, b.ps), 0);
    (void)par_free(a.ps);
    (void)par_free(b.ps);
}

/* ---- which model ------------------------------------------------------------------------ */

static void
t_choose(void **state)
{
    struct model a = { .label = "a", .names = "a,aa", .name = "a", .info = { .vocab = 9 } };
    struct model b = { .label = "b", .names = "b", .name = "b" };
    struct model *one[] = { &a }, *two[] = { &a, &b };
    struct problem bad;

    (void)state;
    assert_ptr_equal(gw_model(one, 1, NULL, 0, &bad), &a);
    assert_ptr_equal(gw_model(two, 2, "aa", 2, &bad), &a);
    assert_null(gw_model(two, 2, NULL, 0, &bad));
    assert_int_equal(bad.status, 400);
    assert_string_equal(bad.param, "model");
    assert_null(gw_model(two, 2, "c", 1, &bad));
    assert_int_equal(bad.status, 404);
    assert_non_null(strstr(bad.text, "a, b"));
    /* of one that has not answered, only its own requests learn */
    assert_null(gw_model(two, 2, "b", 1, &bad));
    assert_int_equal(bad.status, 503);
    assert_int_equal(bad.retry_ms, 1000);
}

/* ---- users -------------------------------------------------------------------------------- */

static void
t_peers(void **state)
{
    struct peers *ps = malloc(sizeof(*ps));

    (void)state;
    assert_non_null(ps);
    peer_init(ps);
    for (int i = 0; i < 3; i++)
        assert_int_equal(peer_add(ps, "10.0.0.1", 3), 0);
    assert_int_equal(peer_add(ps, "10.0.0.1", 3), -EMFILE);
    assert_int_equal(peer_add(ps, "10.0.0.2", 3), 0);
    peer_drop(ps, "10.0.0.1");
    assert_int_equal(peer_add(ps, "10.0.0.1", 3), 0);
    assert_int_equal(peer_add(ps, "10.0.0.1", 4), 0);
    peer_fini(ps);
    free(ps);
    assert_true(peer_user("a", "x", 1) != peer_user("a", "y", 1));
    assert_true(peer_user("a", "x", 1) != peer_user("b", "x", 1));
    assert_true(peer_user("ab", "x", 1) != peer_user("a", "bx", 2));
    assert_true(peer_user("a", "x", 1) > UINT32_MAX); /* no uid */
}

/* Many keys: each is found, a neighbour of none is. */
static void
t_many_keys(void **state)
{
    char path[] = "/tmp/u_http_keys.XXXXXX", err[512] = "", text[32];
    FILE *f = fdopen(mkstemp(path), "w");
    struct keys ks = { NULL };
    struct key *k;

    (void)state;
    assert_non_null(f);
    for (int i = 0; i < 1000; i++) {
        uint8_t hash[32];
        struct sha256 s;

        (void)snprintf(text, sizeof(text), "key-%d", i);
        sha256_init(&s);
        sha256_add(&s, text, strlen(text));
        sha256_end(&s, hash);
        for (int b = 0; b < 32; b++)
            (void)fprintf(f, "%02x", hash[b]);
        (void)fprintf(f, " name-%d%s\n", i, i == 7 ? " delegate user=5" : "");
    }
    assert_int_equal(fclose(f), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(keys_read(&ks, path, err, sizeof(err)), 0);
        assert_int_equal(ks.n, 1000);
    }
    for (int i = 0; i < 1000; i++) {
        char name[32];

        (void)snprintf(text, sizeof(text), "key-%d", i);
        (void)snprintf(name, sizeof(name), "name-%d", i);
        k = keys_find(&ks, text, strlen(text));
        assert_non_null(k);
        assert_string_equal(k->name, name);
        assert_null(keys_find(&ks, text, strlen(text) + 1));
    }
    for (size_t i = 1; i < ks.n; i++)
        assert_true(memcmp(ks.k[i - 1]->hash, ks.k[i]->hash, 32) < 0);
    (void)unlink(path);
    keys_fini(&ks);
}

static void
t_key_users(void **state)
{
    struct key plain = { .hash = { 1 } }, other = { .hash = { 2 } },
               named = { .hash = { 3 }, .user = 1001 },
               all = { .hash = { 4 }, .user = 1002, .may_delegate = 1, .inflight = 2 };

    (void)state;
    assert_true(keys_user(&plain, NULL, 0) > UINT32_MAX);
    assert_true(keys_user(&plain, NULL, 0) != keys_user(&other, NULL, 0));
    assert_true(keys_user(&plain, "u", 1) == keys_user(&plain, NULL, 0));
    assert_int_equal(keys_user(&named, "u", 1), 1001);
    assert_int_equal(keys_user(&all, NULL, 0), 1002);
    assert_true(keys_user(&all, "u", 1) > UINT32_MAX);
    assert_true(keys_user(&all, "u", 1) != keys_user(&all, "v", 1));
    all.hash[0] = 5; /* the same user of another key is another */
    assert_true(keys_user(&all, "u", 1) !=
        keys_user(&(struct key){ .hash = { 4 }, .may_delegate = 1 }, "u", 1));
    assert_int_equal(keys_begin(&all), 0);
    assert_int_equal(keys_begin(&all), 0);
    assert_int_equal(keys_begin(&all), -EAGAIN);
    keys_end(&all);
    assert_int_equal(keys_begin(&all), 0);
    assert_int_equal(keys_begin(NULL), 0);
    keys_end(NULL);
}

/* ---- prep threads --------------------------------------------------------------------------- */

struct job {
    struct prep_job job;
    pthread_t on;
    int worked, saw_cancelled, came_back;
};

static void
job_work(struct prep_job *j)
{
    struct job *me = (struct job *)(void *)j;

    me->on = pthread_self();
    me->saw_cancelled = atomic_load(&j->is_cancelled);
    me->worked++;
}

static void
job_back(struct post *p)
{
    ((struct job *)(void *)p)->came_back++;
}

static void
t_prep(void **state)
{
    static struct job jobs[100];
    struct inbox in;
    struct prep p;

    (void)state;
    memset(jobs, 0, sizeof(jobs));
    assert_int_equal(ibx_init(&in), 0);
    assert_int_equal(prep_init(&p, 3), 0);
    atomic_store(&jobs[50].job.is_cancelled, 1);
    for (int i = 0; i < 100; i++) {
        jobs[i].job.back = &in;
        jobs[i].job.work = job_work;
        jobs[i].job.post.fn = job_back;
        prep_put(&p, &jobs[i].job);
    }
    for (int n = 0; n < 100;) {
        struct pollfd pf = { .fd = in.fd, .events = POLLIN };

        assert_int_equal(poll(&pf, 1, 10000), 1);
        ibx_take(&in);
        n = 0;
        for (int i = 0; i < 100; i++)
            n += jobs[i].came_back;
    }
    for (int i = 0; i < 100; i++) {
        assert_int_equal(jobs[i].worked, 1);
        assert_int_equal(jobs[i].came_back, 1);
        assert_int_equal(jobs[i].saw_cancelled, i == 50);
        assert_false(pthread_equal(jobs[i].on, pthread_self()));
    }
    prep_fini(&p);
    /* what no thread took comes back, too */
    assert_int_equal(prep_init(&p, 0), 0);
    prep_put(&p, &jobs[0].job);
    prep_fini(&p);
    ibx_fini(&in);
    assert_int_equal(jobs[0].came_back, 2);
    assert_int_equal(jobs[0].worked, 1);
    assert_true(atomic_load(&jobs[0].job.is_cancelled));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_sections),
        cmocka_unit_test(t_sections_refused),
        cmocka_unit_test(t_reload),
        cmocka_unit_test(t_choose),
        cmocka_unit_test(t_peers),
        cmocka_unit_test(t_many_keys),
        cmocka_unit_test(t_key_users),
        cmocka_unit_test(t_prep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
