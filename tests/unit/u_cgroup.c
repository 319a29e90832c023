/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Limits of control groups, read from a folder in place of / . */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "daemon/common/cgroup.h"
#include "tests/unit/tmp_fixture.h"

/* Writes a file below tmp_root and makes its folders. */
static void
put(const char *path, const char *text)
{
    char full[512];
    FILE *fp;

    (void)snprintf(full, sizeof(full), "%s%s", tmp_root, path);
    for (char *p = full + strlen(tmp_root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(full, 0700);
        *p = '/';
    }
    fp = fopen(full, "w");
    assert_non_null(fp);
    (void)fputs(text, fp);
    assert_int_equal(fclose(fp), 0);
}

static void
t_version_2(void **state)
{
    struct cgr c;

    (void)state;
    put("/proc/self/cgroup", "0::/system.slice/fdd.service\n");
    put("/sys/fs/cgroup/system.slice/fdd.service/memory.max", "max\n");
    put("/sys/fs/cgroup/system.slice/fdd.service/pids.max", "2112\n");
    cgr_read(tmp_root, &c);
    assert_true(c.memory_max == CGR_NO_LIMIT);
    assert_int_equal(c.tasks_max, 2112);
    put("/sys/fs/cgroup/system.slice/fdd.service/memory.max", "2147483648\n");
    cgr_read(tmp_root, &c);
    assert_int_equal(c.memory_max, 2147483648);
    /* the smaller limit of an outer group counts */
    put("/sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
    cgr_read(tmp_root, &c);
    assert_int_equal(c.memory_max, 1073741824);
}

static void
t_version_1(void **state)
{
    struct cgr c;

    (void)state;
    put("/proc/self/cgroup", "9:name=systemd:/a\n8:pids:/a/b\n4:cpu,memory:/a\n0::/\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    cgr_read(tmp_root, &c);
    assert_true(c.memory_max == CGR_NO_LIMIT && c.tasks_max == CGR_NO_LIMIT);
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "100663296\n");
    put("/sys/fs/cgroup/pids/pids.max", "99\n");
    cgr_read(tmp_root, &c);
    assert_int_equal(c.memory_max, 100663296);
    assert_int_equal(c.tasks_max, 99);
    /* seen from another namespace: the limits at the mount point count */
    put("/proc/self/cgroup", "4:memory:/../x\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
    cgr_read(tmp_root, &c);
    assert_int_equal(c.memory_max, 4096);
    put("/proc/self/cgroup", "nonsense\n::\n:\n");
    cgr_read(tmp_root, &c);
    cgr_read("/nonexistent", &c);
    assert_true(c.memory_max == CGR_NO_LIMIT && c.tasks_max == CGR_NO_LIMIT);
}

/* Limits of another process, with the memory in use and the CPU time. */
static void
t_other_process(void **state)
{
    struct cgr c;

    (void)state;
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/42/cgroup", "0::/b/c\n");
    put("/sys/fs/cgroup/b/c/memory.max", "2000\n");
    put("/sys/fs/cgroup/b/c/memory.current", "300\n");
    put("/sys/fs/cgroup/b/memory.max", "1000\n");
    put("/sys/fs/cgroup/b/memory.current", "400\n");
    put("/sys/fs/cgroup/b/c/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/b/cpu.max", "250000 100000\n");
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    cgr_read_of(tmp_root, "/proc/42", &c);
    assert_int_equal(c.memory_max, 1000);
    assert_int_equal(c.memory_used, 400);
    assert_true(c.cpus > 2.49 && c.cpus < 2.51);
    cgr_read(tmp_root, &c);
    assert_true(c.memory_max == CGR_NO_LIMIT && c.memory_used == 0);
    assert_true(c.cpus > 3.99 && c.cpus < 4.01);
    put("/proc/42/cgroup", "3:cpu,cpuacct:/c\n2:memory:/m\n");
    put("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "500\n");
    put("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "60\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    cgr_read_of(tmp_root, "/proc/42", &c);
    assert_int_equal(c.memory_max, 500);
    assert_int_equal(c.memory_used, 60);
    assert_true(c.cpus > 0.49 && c.cpus < 0.51);
}

static void
t_short(void **state)
{
    struct cgr c = { .memory_max = 3ull << 30, .tasks_max = 66 };
    char text[512] = "";

    (void)state;
    assert_false(cgr_memory_short(&c, 3ull << 30, 0, text, sizeof(text)));
    assert_false(cgr_tasks_short(&c, 66, text, sizeof(text)));
    assert_string_equal(text, "");
    assert_true(cgr_memory_short(&c, 4ull << 30, 1ull << 30, text, sizeof(text)));
    assert_non_null(strstr(text, "may have 3072 MiB, the plan needs 4096 MiB"));
    assert_non_null(strstr(text, "1024 MiB of it kv.swap_space, pinned"));
    assert_non_null(strstr(text, "MemoryMax"));
    assert_true(cgr_tasks_short(&c, 67, text, sizeof(text)));
    assert_non_null(strstr(text, "66 threads"));
    assert_non_null(strstr(text, "TasksMax"));
    c.memory_max = c.tasks_max = CGR_NO_LIMIT;
    assert_false(cgr_memory_short(&c, UINT64_MAX, 0, text, sizeof(text)));
    assert_false(cgr_tasks_short(&c, UINT64_MAX, text, sizeof(text)));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(t_version_2, tmp_make, tmp_drop),
        cmocka_unit_test_setup_teardown(t_version_1, tmp_make, tmp_drop),
        cmocka_unit_test_setup_teardown(t_other_process, tmp_make, tmp_drop),
        cmocka_unit_test(t_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
