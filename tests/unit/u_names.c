/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Names of users: the name service is queried only at start and reload. Here it is a
 * fake: the linker takes this file's functions before those of the C library. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "daemon/gate/names.h"
#include "tests/unit/gate_fixture.h"

static struct user {
    char name[80];
    uid_t uid;
} users[] = {
    { "root", 0 },
    { "alice", 70001 },
    { "bob", 70002 },
    { "carol", 70003 },
    { "dave", 70004 },
    { "a-name-that-is-far-longer-than-the-sixty-three-bytes-that-a-row-can-hold", 70005 },
};
#define N_USERS (sizeof(users) / sizeof(users[0]))
static int n_asked;

static struct passwd *
found(size_t i)
{
    static struct passwd pw;

    pw.pw_name = users[i].name;
    pw.pw_uid = users[i].uid;
    return &pw;
}

struct passwd *
getpwnam(const char *name)
{
    n_asked++;
    for (size_t i = 0; i < N_USERS; i++) {
        if (strcmp(users[i].name, name) == 0)
            return found(i);
    }
    return NULL;
}

struct passwd *
getpwuid(uid_t uid)
{
    n_asked++;
    for (size_t i = 0; i < N_USERS; i++) {
        if (users[i].uid == uid)
            return found(i);
    }
    return NULL;
}

struct group *
getgrnam(const char *name)
{
    static char member[] = "carol", stranger[] = "nobody-here";
    static char *members[] = { stranger, member, NULL };
    static struct group gr;

    n_asked++;
    gr.gr_gid = 80000;
    gr.gr_mem = members;
    return strcmp(name, "staff") == 0 ? &gr : NULL;
}

static struct names n;

static void
want(uid_t uid, const char *name)
{
    char got[NAMES_BYTES];
    int before = n_asked;

    names_of(&n, uid, got, sizeof(got));
    assert_string_equal(got, name);
    assert_int_equal(n_asked, before);
}

static void
t_names(void **state)
{
    struct names_lists l = { .trusted = "alice, 70009",
        .weights = "bob:4,70004:2",
        .group = "staff",
        .admin_group = "no-such-group" };

    (void)state;
    names_load(&n, &l);
    assert_true(n_asked > 0);
    want(0, "root");
    want(70001, "alice");
    want(70002, "bob");
    want(70003, "carol");
    want(70004, "dave");
    want(70005, "70005");
    want((uid_t)-2, "4294967294");
}

static void
t_trusted(void **state)
{
    struct names_lists l = { .trusted = ", alice,,70009 ghost 18446744073709551615,-1 "
                                        "4294967295",
        .weights = "bob:4" };
    int before;

    (void)state;
    names_load(&n, &l);
    before = n_asked;
    assert_true(names_in_list(&n, 70001));
    assert_true(names_in_list(&n, 70009));
    assert_false(names_in_list(&n, 70002));
    assert_false(names_in_list(&n, 0));
    assert_false(names_in_list(&n, (uid_t)-1));
    assert_int_equal(n_asked, before);
    l.trusted = NULL;
    names_load(&n, &l);
    assert_false(names_in_list(&n, 70001));
}

/* A long name is not cut: half of it may be another user's name. */
static void
t_long_name(void **state)
{
    struct names_lists l = { .trusted = "70005" };

    (void)state;
    names_load(&n, &l);
    assert_true(names_in_list(&n, 70005));
    want(70005, "70005");
}

/* More names than the table has entries. */
static void
t_many(void **state)
{
    char text[512] = "";
    size_t at = 0;
    struct names_lists l = { .trusted = text };

    (void)state;
    for (int i = 0; i < 255; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%d,", i % 10);
    names_load(&n, &l);
    assert_true(n.n_trusted <= NAMES_TRUSTED_MAX && n.n_rows <= NAMES_MAX);
    assert_true(names_in_list(&n, 9));
    assert_false(names_in_list(&n, 10));
}

/* Sessions and requests of known and unknown users do not query the name service. */
static void
t_loop_asks_nothing(void **state)
{
    static const char *const sets[] = { "ipc.trusted_users=alice", "log.requests=all",
        NULL };
    static const uid_t uids[] = { 0, 70001, 70002, 70008 };
    struct fdp_hello h;
    struct fix f;
    struct fcl c;
    json_t *rq, *r;
    int before;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    before = n_asked;
    for (size_t i = 0; i < sizeof(uids) / sizeof(uids[0]); i++) {
        struct lnk_submit sub;

        fcl_hello(&h);
        assert_int_equal(fcl_open(&f, &c, uids[i], &h), FDP_OK);
        fcl_submit(&c, 1, 4, 4);
        fix_step(&f, 10);
        fix_wdone(&f, fix_take(&f, &sub, NULL, NULL));
        fix_step(&f, 10);
        rq = json_pack("{s:s}", "cmd", "clients");
        r = ctl_execute(&f.g->ctl, NULL, rq, CTL_ADMIN, f.now);
        assert_true(json_is_true(json_object_get(r, "ok")));
        json_decref(r);
        json_decref(rq);
        fcl_close(&c);
        fix_step(&f, 10);
    }
    assert_int_equal(n_asked, before);
    cnf_apply(&f.g->cnf);
    assert_true(n_asked > before);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_names),
        cmocka_unit_test(t_trusted),
        cmocka_unit_test(t_long_name),
        cmocka_unit_test(t_many),
        cmocka_unit_test(t_loop_asks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
