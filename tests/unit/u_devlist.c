/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* device.list: every mistake is one error that names the entry; a
 * valid list is read as written. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "daemon/common/devlist.h"
#include "daemon/common/param.h"

static char err[512];

static void
refused(const char *list, const char *want)
{
    struct dvl l = { .n = -7 };

    err[0] = '\0';
    if (dvl_parse(list, &l, err, sizeof(err)) != -EINVAL)
        fail_msg("\"%s\" is taken", list);
    assert_int_equal(l.n, -7);
    if (strncmp(err, "device.list: ", 13) != 0 || strstr(err, want) == NULL ||
        strchr(err, '\n') != NULL)
        fail_msg("\"%s\": \"%s\" does not say \"%s\"", list, err, want);
}

static void
test_refused(void **state)
{
    static const struct {
        const char *list, *want;
    } bad[] = {
        { "tpu:0", "\"tpu\" is no kind" },
        { "CUDA:0", "\"CUDA\" is no kind" },
        { "0", "\"0\" says no kind of device; write cuda:0" },
        { "7,cuda:1", "\"7\" says no kind of device; write cuda:7" },
        { ":0", "\"\" is no kind" },
        { "cud:0", "\"cud\" is no kind" },
        { "cudax:0", "no kind" },
        { "cuda", "write cuda:0" },
        { "cpu", "write cpu:1" },
        { ",", "empty entry" },
        { "cuda:0,", "empty entry" },
        { ",cuda:0", "empty entry" },
        { "cuda:0, ,cuda:1", "empty entry" },
        { "cuda:", "neither a number" },
        { "cuda:-1", "neither a number" },
        { "cuda:1x", "neither a number" },
        { "cuda: 1", "neither a number" },
        { "cuda:1 2", "neither a number" },
        { "cuda:gpu-1a2b", "neither a number" },
        { "cuda:**", "neither a number" },
        { "gpu-1a2b", "no kind" },
        { "cpu:1,GPU-1a2b", "another kind" },
        { "cpu:1,MIG-1a2b", "another kind" },
        { "GPU-1a2", "too short" },
        { "MIG-", "too short" },
        { "GPU-1a2x", "hex digit" },
        { "GPU-1a2b,cuda:GPU-1a2b", "listed before" },
        { "12345", "no kind" },
        { "MIG-1a2b3c4d-0000-0000-0000-0000000000001", "after MIG-" },
        { "cuda:32", "too large" },
        { "cuda:99999", "too large" },
        { "cuda:4294967296", "too large" },
        { "cuda:18446744073709551616", "too large" },
        { "cuda:0,cuda:0", "listed before" },
        { "cuda:1,cuda:0,cuda:01", "listed before" },
        { "cuda:GPU-1a2b,cuda:GPU-1A2B", "listed before" },
        { "cuda:GPU-1a2b,cuda:GPU-1a2b3c", "listed before" },
        { "cuda:GPU-1a2b3c,cuda:GPU-1a2b", "listed before" },
        { "cuda:*,cuda:0", "lists all devices already" },
        { "cuda:0,cuda:*", "remove the other" },
        { "cuda:*,cuda:*", "remove the other" },
        { "cuda:0,cpu:1", "another kind" },
        { "cpu:1,cuda:0", "another kind" },
        { "cuda:*,cpu:1", "another kind" },
        { "cuda:GPU-", "too short" },
        { "cuda:GPU-1a2", "too short" },
        { "cuda:GPU-1a2g", "hex digit" },
        { "cuda:GPU-1a2b 3c", "hex digit" },
        { "cuda:GPU-1a2b3c4d5", "dash" },
        { "cuda:GPU-1a2b-3c4d", "hex digit" },
        { "cuda:GPU-1a2b3c4d-0000-0000-0000-0000000000001", "has 36 characters" },
        { "cpu:0", "1 to 32" },
        { "cpu:33", "1 to 32" },
        { "cpu:*", "1 to 32" },
        { "cpu:-1", "1 to 32" },
        { "cpu:GPU-1a2b", "1 to 32" },
        { "cpu:", "1 to 32" },
        { "cpu:1,cpu:1", "listed twice" },
        { "cuda:0000000000000000000000000000000000000000000000000000000000000000000000",
            "longer than" },
    };
    char list[400] = "";

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        refused(bad[i].list, bad[i].want);
    for (int i = 0; i < DVL_MAX; i++)
        (void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "cuda:%d,", i);
    (void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "cuda:GPU-abcd");
    refused(list, "more than 32");
}

static void
parsed(const char *list, struct dvl *l)
{
    if (dvl_parse(list, l, err, sizeof(err)) != 0)
        fail_msg("\"%s\": %s", list, err);
}

static void
test_taken(void **state)
{
    static const char whole[] = "GPU-1a2b3c4d-5e6f-7081-92a3-b4c5d6e7f809";
    char text[64];
    struct dvl l;

    (void)state;
    parsed("", &l);
    assert_int_equal(l.kind, DVL_NONE);
    parsed(" \t ", &l);
    assert_int_equal(l.kind, DVL_NONE);
    assert_int_equal(l.n, 0);
    parsed("cuda:31", &l);
    assert_int_equal(l.kind, DVL_CUDA);
    assert_int_equal(l.n, 1);
    assert_int_equal(l.dev[0].idx, 31);
    assert_string_equal(l.dev[0].uuid, "");
    parsed(" cuda:2 ,\tcuda:0,cuda:GPU-1A2B ", &l);
    assert_int_equal(l.n, 3);
    assert_int_equal(l.dev[0].idx, 2);
    assert_int_equal(l.dev[1].idx, 0);
    assert_int_equal(l.dev[2].idx, -1);
    assert_string_equal(l.dev[2].uuid, "GPU-1a2b");
    (void)snprintf(text, sizeof(text), "cuda:%s", whole);
    parsed(text, &l);
    assert_string_equal(l.dev[0].uuid, whole);
    parsed(whole, &l); /* as nvidia-smi -L prints it */
    assert_int_equal(l.kind, DVL_CUDA);
    assert_int_equal(l.n, 1);
    assert_int_equal(l.dev[0].idx, -1);
    assert_string_equal(l.dev[0].uuid, whole);
    parsed("GPU-1A2b, MIG-5e6F7081-0000, cuda:MIG-7777,cuda:3", &l);
    assert_int_equal(l.n, 4);
    assert_string_equal(l.dev[0].uuid, "GPU-1a2b");
    assert_string_equal(l.dev[1].uuid, "MIG-5e6f7081-0000");
    assert_string_equal(l.dev[2].uuid, "MIG-7777");
    assert_int_equal(l.dev[3].idx, 3);
    assert_int_equal(dvl_uuid_is(whole, "MIG-1a2b3c4d-5"), 1);
    assert_int_equal(dvl_uuid_is("", "GPU-1a2b"), 0);
    parsed("cuda:*", &l);
    assert_int_equal(l.all, 1);
    assert_int_equal(l.n, 0);
    parsed("cpu:32", &l);
    assert_int_equal(l.kind, DVL_CPU);
    assert_int_equal(l.n, 32);
    assert_int_equal(l.dev[31].idx, 31);
    assert_int_equal(dvl_uuid_is(whole, "GPU-1A2b3c4d-5"), 1);
    assert_int_equal(dvl_uuid_is(whole, whole), 1);
    assert_int_equal(dvl_uuid_is(whole, "GPU-1a2c"), 0);
    assert_int_equal(dvl_uuid_is("GPU-1a2b", whole), 0);
}

/* Random text never breaks the parser. A list that it accepts is
 * accepted again when printed. */
static void
test_random(void **state)
{
    static const char *const piece[] = { "cuda", "cpu", ":", ",", "*", "GPU-", "MIG-",
        "-", "0", "1", "17", "1a2b3c4d", " ", "x", "" };
    const char *s = getenv("SEED");
    unsigned seed = s != NULL ? (unsigned)atoi(s) : 20260817u;
    struct dvl a, b;
    char list[256];
    int taken = 0;

    (void)state;
    for (int i = 0; i < 200000; i++) {
        int n = 0;

        for (int k = rand_r(&seed) % 9; k >= 0; k--)
            n += snprintf(list + n, sizeof(list) - (size_t)n, "%s",
                piece[(size_t)rand_r(&seed) % (sizeof(piece) / sizeof(piece[0]))]);
        if (dvl_parse(list, &a, err, sizeof(err)) != 0) {
            assert_true(strlen(err) > 20);
            continue;
        }
        taken++;
        assert_true(a.n >= 0 && a.n <= DVL_MAX);
        assert_int_equal(a.kind == DVL_NONE, a.n == 0 && !a.all);
        assert_int_equal(dvl_parse(list, &b, err, sizeof(err)), 0);
        assert_memory_equal(&a, &b, sizeof(a));
    }
    assert_true(taken > 100);
}

static void
test_check(void **state)
{
    struct par_set *ps = par_new();

    (void)state;
    assert_non_null(ps);
    assert_int_equal(dvl_check("cuda:0,cuda:1", PAR_DEVICE_BACKEND_AUTO, -1, 1, 1, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err,
        "has 2 devices, and parallel.tensor_parallel_size = 1 uses one; name one, or set "
        "parallel.tensor_parallel_size or parallel.data_parallel_size = 2"));
    assert_int_equal(dvl_check("cuda:0,cuda:1", PAR_DEVICE_BACKEND_AUTO, -1, 1, 2, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cpu:4", PAR_DEVICE_BACKEND_CPU, -1, 1, 4, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cuda:0,cuda:1,cuda:2", PAR_DEVICE_BACKEND_AUTO, -1, 1, 2,
                         1, err, sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err,
        "has 3 devices, and parallel.tensor_parallel_size = 2 uses 2; remove 1"));
    assert_int_equal(dvl_check("cuda:0", PAR_DEVICE_BACKEND_AUTO, -1, 1, 4, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(
        strstr(err, "has 1 device, and parallel.tensor_parallel_size = 4 uses 4; add 3"));
    assert_int_equal(dvl_check("", PAR_DEVICE_BACKEND_AUTO, -1, 1, 2, 1, err, sizeof(err)),
        -EINVAL);
    assert_non_null(
        strstr(err, "it is empty, and parallel.tensor_parallel_size = 2 needs 2"));
    assert_int_equal(dvl_check("cuda:*", PAR_DEVICE_BACKEND_AUTO, -1, 1, 2, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cpu:2", PAR_DEVICE_BACKEND_CPU, 1, 1, 2, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err, "device.test_entry = 1 has one device compute"));
    assert_int_equal(dvl_check("cpu:2", PAR_DEVICE_BACKEND_CPU, -1, 1, 1, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_int_equal(dvl_check("cuda:0", PAR_DEVICE_BACKEND_CPU, -1, 1, 1, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err, "does not fit device.backend = cpu"));
    assert_int_equal(dvl_check("cpu:1", PAR_DEVICE_BACKEND_CUDA, -1, 1, 1, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_int_equal(dvl_check("cpu:1", PAR_DEVICE_BACKEND_NULL, -1, 1, 1, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cuda:0", PAR_DEVICE_BACKEND_NULL, -1, 1, 1, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_int_equal(dvl_check("cpu:2", PAR_DEVICE_BACKEND_CPU, 1, 1, 1, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cpu:2", PAR_DEVICE_BACKEND_CPU, 2, 1, 1, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err, "device.test_entry = 2 is none of them"));
    assert_int_equal(dvl_check("", PAR_DEVICE_BACKEND_AUTO, 0, 1, 1, 1, err, sizeof(err)),
        -EINVAL);
    assert_int_equal(dvl_check("", PAR_DEVICE_BACKEND_NULL, -1, 1, 1, 1, err, sizeof(err)),
        0);
    assert_int_equal(dvl_check("cuda:*", PAR_DEVICE_BACKEND_AUTO, -1, 1, 1, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cuda:GPU-1a2b3c", PAR_DEVICE_BACKEND_CUDA, -1, 1, 1, 1,
                         err, sizeof(err)),
        0);
    assert_int_equal(dvl_check("GPU-1a2b3c", PAR_DEVICE_BACKEND_AUTO, -1, 1, 1, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cpu:1", PAR_DEVICE_BACKEND_AUTO, -1, 1, 1, 1, err,
                         sizeof(err)),
        0);
    /* several groups */
    assert_int_equal(dvl_check("cpu:4", PAR_DEVICE_BACKEND_AUTO, -1, 4, 1, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cuda:2,cuda:0", PAR_DEVICE_BACKEND_AUTO, -1, 2, 1, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cpu:3", PAR_DEVICE_BACKEND_AUTO, -1, 4, 1, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err,
        "\"cpu:3\" has 3 devices, and parallel.data_parallel_size = 4 "
        "takes 4; list as many"));
    assert_int_equal(dvl_check("", PAR_DEVICE_BACKEND_AUTO, -1, 2, 1, 1, err, sizeof(err)),
        -EINVAL);
    assert_non_null(
        strstr(err, "it is empty, and parallel.data_parallel_size = 2 takes 2"));
    assert_int_equal(dvl_check("cpu:2", PAR_DEVICE_BACKEND_CPU, 1, 2, 1, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err,
        "device.test_entry = 1 has one device compute, and parallel.data_parallel_size = 2"));
    assert_int_equal(dvl_check("cuda:*", PAR_DEVICE_BACKEND_AUTO, -1, 8, 1, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cpu:8", PAR_DEVICE_BACKEND_CPU, -1, 4, 2, 1, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cpu:6", PAR_DEVICE_BACKEND_CPU, -1, 4, 2, 1, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err,
        "has 6 devices, and parallel.data_parallel_size = 4 takes 8, 2 "
        "for each; list as many"));
    assert_int_equal(dvl_check("cpu:6", PAR_DEVICE_BACKEND_CPU, -1, 1, 2, 3, err,
                         sizeof(err)),
        0);
    assert_int_equal(dvl_check("cpu:5", PAR_DEVICE_BACKEND_CPU, -1, 1, 2, 3, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err,
        "parallel.tensor_parallel_size = 2 times "
        "parallel.prefill_context_parallel_size = 3 uses 6; add 1"));
    assert_int_equal(dvl_check("cpu:4", PAR_DEVICE_BACKEND_CPU, -1, 1, 1, 3, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(
        strstr(err, "parallel.prefill_context_parallel_size = 3 uses 3; remove 1"));
    assert_int_equal(dvl_check("cpu:3", PAR_DEVICE_BACKEND_CPU, 1, 1, 1, 3, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err, "parallel.prefill_context_parallel_size = 3 several"));
    assert_int_equal(dvl_check("cpu:8", PAR_DEVICE_BACKEND_CPU, -1, 2, 2, 3, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err, "takes 12, 6 for each"));
    assert_int_equal(dvl_check_sizes("cuda:*", 8, 4, 2, 1, err, sizeof(err)), 0);
    assert_int_equal(dvl_check_sizes("cuda:*", 8, 8, 2, 1, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "takes 16"));
    /* the check of the configuration uses it too */
    assert_true(par_set_text(ps, "device.list", "cuda:0,cpu:1", PAR_FROM_SET, err,
                    sizeof(err)) >= 0);
    assert_true(par_check(ps, err, sizeof(err)) < 0);
    assert_non_null(strstr(err, "device.list"));
    par_free(ps);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_check),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
