/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* device.list against a backend of four devices, two of which lack peer access. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "daemon/worker/devices.h"

static char err[512];

static const char *const uuid[] = { "GPU-1a2b3c4d-0000-0000-0000-000000000000",
    "GPU-1a2b3c4e-0000-0000-0000-000000000000", "GPU-55555555-0000-0000-0000-000000000000",
    "GPU-77777777-0000-0000-0000-000000000000" };

static int
some(char *why, size_t why_bytes)
{
    (void)snprintf(why, why_bytes, "%s", "");
    return 4;
}

static int
none(char *why, size_t why_bytes)
{
    (void)snprintf(why, why_bytes, "no driver");
    return -ENODEV;
}

static int
uuid_of(int dev, char *ret, size_t ret_bytes)
{
    if (dev < 0 || dev >= 4)
        return -ENODEV;
    (void)snprintf(ret, ret_bytes, "%s", uuid[dev]);
    return 0;
}

/* Device 3 has no peer access to others, and none has access to it. */
static int
peer(int dev, int other)
{
    return dev != 3 && other != 3;
}

static const struct fdk_ops four = {
    .name = "four", .available = some, .device_uuid = uuid_of, .device_peer = peer
};

static int
find(const char *list, struct dvc *ret)
{
    struct dvl l;

    assert_int_equal(dvl_parse(list, &l, err, sizeof(err)), 0);
    return dvc_cuda(&l, list, &four, ret, err, sizeof(err));
}

static void
test_found(void **state)
{
    struct dvc c;
    struct dvl l;

    (void)state;
    assert_int_equal(find("", &c), 0);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.at[0].num, 0);
    assert_string_equal(c.at[0].name, "cuda:0");
    assert_string_equal(c.at[0].uuid, uuid[0]);
    assert_int_equal(find("cuda:2,cuda:GPU-1a2b3c4e,cuda:0", &c), 0);
    assert_int_equal(c.n, 3);
    assert_int_equal(c.at[0].num, 2);
    assert_int_equal(c.at[1].num, 1);
    assert_string_equal(c.at[1].name, "cuda:1");
    assert_string_equal(c.at[1].uuid, uuid[1]);
    assert_int_equal(c.at[2].num, 0);
    assert_int_equal(find("cuda:3", &c), 0);
    assert_int_equal(dvl_parse("cpu:3", &l, err, sizeof(err)), 0);
    dvc_cpu(&l, &c);
    assert_int_equal(c.n, 3);
    assert_int_equal(c.at[2].num, 2);
    assert_string_equal(c.at[2].name, "cpu-2");
    assert_string_equal(c.at[2].uuid, "");
}

static void
test_refused(void **state)
{
    static const struct {
        const char *list;
        int rc;
        const char *say;
    } t[] = {
        { "cuda:4", -ENODEV, "there is no cuda:4; 4 devices here" },
        { "cuda:0,cuda:9", -ENODEV, "there is no cuda:9" },
        { "cuda:GPU-9999", -ENODEV, "no device's UUID begins with GPU-9999" },
        { "cuda:GPU-1a2b3c4", -EINVAL, "the UUIDs of several devices begin" },
        { "cuda:1,cuda:GPU-1a2b3c4e", -EINVAL,
            "cuda:1 (GPU-1a2b3c4e-0000-0000-0000-000000000000) is listed twice, as entry 1 "
            "and as entry 2" },
    };
    struct dvc c = { .n = 77 };
    struct fdk_ops without = four;
    struct dvl l;

    (void)state;
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        assert_int_equal(find(t[i].list, &c), t[i].rc);
        if (strstr(err, t[i].say) == NULL)
            fail_msg("%s: %s", t[i].list, err);
        assert_int_equal(c.n, 77);
    }
    without.available = none;
    assert_int_equal(dvl_parse("cuda:0", &l, err, sizeof(err)), 0);
    assert_int_equal(dvc_cuda(&l, "cuda:0", &without, &c, err, sizeof(err)), -ENODEV);
    assert_string_equal(err, "device.list = cuda:0: no driver");
}

/* Devices of a group without peer access to each other. */
static void
test_apart(void **state)
{
    static const struct {
        const char *list;
        int32_t first, n_own, one, other; /* -1: none */
    } t[] = {
        { "cuda:0,cuda:1,cuda:2", 0, 0, -1, -1 },
        { "cuda:0,cuda:3", 0, 0, 0, 1 },
        { "cuda:0,cuda:3", 0, 1, -1, -1 }, /* groups of one */
        { "cuda:1,cuda:0,cuda:3", 0, 2, -1, -1 },
        { "cuda:0,cuda:1,cuda:3,cuda:2", 2, 2, 2, 3 },
        { "cuda:*", 0, 0, 0, 3 },
    };
    struct dvc c;
    struct dvl l;

    (void)state;
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        assert_int_equal(dvl_parse(t[i].list, &l, err, sizeof(err)), 0);
        l.first = t[i].first;
        l.n_own = t[i].n_own;
        assert_int_equal(dvc_cuda(&l, t[i].list, &four, &c, err, sizeof(err)), 0);
        if (t[i].one < 0) {
            assert_int_equal(c.apart[0], c.apart[1]);
            assert_int_equal(dvc_together(&c, "x", err, sizeof(err)), 0);
            continue;
        }
        assert_int_equal(c.apart[0], t[i].one);
        assert_int_equal(c.apart[1], t[i].other);
        assert_int_equal(dvc_together(&c, "the moon", err, sizeof(err)), -ENOTSUP);
        assert_non_null(strstr(err, "cannot reach the memory of "));
        assert_non_null(
            strstr(err, ", which the moon needs; list devices with peer access"));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
