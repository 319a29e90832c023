/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Launch threads run on the processors near their devices. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/worker/runner.h"
#include "tests/sim/sim.h"

static void
lists(void **state)
{
    static const char *const bad[] = { "x", "1-", "-1", "3-1", "1,", ",1", "1 2",
        "0-99999", "1--2", "1\n2" };
    cpu_set_t set;

    (void)state;
    assert_int_equal(run_cpus_parse("0-3,8,10-11", &set), 0);
    assert_int_equal(CPU_COUNT(&set), 7);
    for (int i = 0; i < 16; i++)
        assert_int_equal(CPU_ISSET(i, &set) != 0, i <= 3 || i == 8 || i == 10 || i == 11);
    assert_int_equal(run_cpus_parse("", &set), 0);
    assert_int_equal(CPU_COUNT(&set), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(run_cpus_parse(bad[i], &set), -EINVAL);
}

/* Addresses as the kernel writes them; NVIDIA's have capital letters. */
static void
pci_devices(void **state)
{
    static const char *const at[] = { "", "/bus", "/bus/pci", "/bus/pci/devices",
        "/bus/pci/devices/0000:1b:00.0" };
    char dir[64] = "/tmp/fdd-near-XXXXXX", path[160], list[32];
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (size_t i = 1; i < sizeof(at) / sizeof(at[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", dir, at[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(fdk_pci_cpus(dir, "0000:1B:00.0", list, sizeof(list)), -ENOENT);
    (void)snprintf(path, sizeof(path), "%s%s/local_cpulist", dir, at[4]);
    f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("0-15,32-47\n", f);
    (void)fclose(f);
    assert_int_equal(fdk_pci_cpus(dir, "0000:1B:00.0", list, sizeof(list)), 0);
    assert_string_equal(list, "0-15,32-47");
    (void)unlink(path);
    for (size_t i = sizeof(at) / sizeof(at[0]); i-- > 0;) {
        (void)snprintf(path, sizeof(path), "%s%s", dir, at[i]);
        assert_int_equal(rmdir(path), 0);
    }
}

/* ---- threads ------------------------------------------------------------------------------ */

static const char *near_list[2];

static int
said(struct fdk_ctx *ctx, int dev, char *ret, size_t ret_bytes)
{
    (void)ctx;
    if (near_list[dev] == NULL)
        return -ENOENT;
    (void)snprintf(ret, ret_bytes, "%s", near_list[dev]);
    return 0;
}

static int
runs_on(struct sim *s, int rank, const cpu_set_t *want)
{
    cpu_set_t has;

    /* a thread that has run a command has set its affinity */
    assert_int_equal(run_sync(s->run), 0);
    assert_int_equal(pthread_getaffinity_np(s->run->ranks->at[rank].thread, sizeof(has),
                         &has),
        0);
    return CPU_EQUAL(&has, want);
}

static void
threads(void **state)
{
    struct sim_cfg c = { .max_reqs = 4,
        .max_seqs = 4,
        .max_tokens = 64,
        .max_len = 192,
        .n_block = 40,
        .block_size = 16,
        .chunked = 1,
        .threads = 1,
        .exec = FDK_EXEC_THREAD,
        .n_rank = 2 };
    struct fdk_ops ops = fdk_ops_cpu;
    char path[64], config[96], first[16];
    cpu_set_t all, one;
    struct sim *s;
    FILE *f;
    int cpu = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip();
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)snprintf(first, sizeof(first), "%d", cpu);
    sim_model(path);
    (void)snprintf(config, sizeof(config), "%s/config.json", path);
    f = fopen(config, "w");
    assert_non_null(f);
    (void)fputs("{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":64,"
                "\"num_hidden_layers\":1,\"num_attention_heads\":2,"
                "\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":259,"
                "\"max_position_embeddings\":512,\"torch_dtype\":\"float32\"}",
        f);
    (void)fclose(f);
    c.model_dir = path;
    c.ops = &ops;
    ops.device_cpus = said;
    /* one of two devices is near one processor; then a processor that must not be
     * used, and an invalid list */
    near_list[0] = first;
    near_list[1] = NULL;
    s = sim_new(&c);
    assert_true(runs_on(s, 0, &one));
    assert_true(runs_on(s, 1, &all));
    sim_free(s);
    near_list[0] = "1023";
    near_list[1] = "cpus";
    s = sim_new(&c);
    assert_true(runs_on(s, 0, &all));
    assert_true(runs_on(s, 1, &all));
    sim_free(s);
    sim_model_rm(path);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(pci_devices),
        cmocka_unit_test(threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
