/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Parameters: all errors at once, suffixes of units, folders with
 * more files, lists, names. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/param.h"
#include "daemon/common/param_priv.h"

struct fix {
    struct par_set *ps;
    struct par_src src;
    char dir[64];     /* with etc.d and lib.d */
    char said[16384]; /* all messages, one in a line: E or W, blank, text */
    char *sets[8];
};

static char err[1024];

static int
setup(void **state)
{
    struct fix *f = calloc(1, sizeof(*f));
    char path[128];

    assert_non_null(f);
    f->ps = par_new();
    assert_non_null(f->ps);
    snprintf(f->dir, sizeof(f->dir), "/tmp/fdd-u-param-load-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", f->dir, i == 0 ? "lib.d" : "etc.d");
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(f->src.dir[i], sizeof(f->src.dir[i]), "%s", path);
    }
    f->src.sets = f->sets;
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fix *f = *state;
    char cmd[128];

    par_free(f->ps);
    snprintf(cmd, sizeof(cmd), "rm -rf %s", f->dir);
    assert_int_equal(system(cmd), 0);
    free(f);
    return 0;
}

static void
put(struct fix *f, const char *name, const char *text)
{
    char path[256];
    FILE *o;

    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    o = fopen(path, "we");
    assert_non_null(o);
    fputs(text, o);
    assert_int_equal(fclose(o), 0);
}

/* Replaces the folder's name in text by D. */
static void
short_names(const struct fix *f, char *text)
{
    char *p;

    while ((p = strstr(text, f->dir)) != NULL) {
        *p = 'D';
        memmove(p + 1, p + strlen(f->dir), strlen(p + strlen(f->dir)) + 1);
    }
}

static void
keep(struct fix *f, struct par_say *say)
{
    const char *text = NULL;
    int is_error;

    f->said[0] = '\0';
    while ((text = par_say_next(say, text, &is_error)) != NULL) {
        size_t n = strlen(f->said);

        snprintf(f->said + n, sizeof(f->said) - n, "%c %s\n", is_error ? 'E' : 'W', text);
    }
    par_say_clear(say);
}

static int
load(struct fix *f)
{
    struct par_say say = { .text = NULL };
    int rc;

    par_free(f->ps);
    f->ps = par_new();
    assert_non_null(f->ps);
    rc = par_load(f->ps, &f->src, &say);
    par_say_end(&say);
    keep(f, &say);
    short_names(f, f->said);
    assert_int_equal(rc != 0, say.n_errors != 0);
    return rc;
}

static void
use_main(struct fix *f, const char *text)
{
    put(f, "fdd.ini", text);
    snprintf(f->src.file, sizeof(f->src.file), "%s/fdd.ini", f->dir);
}

/* Returns the origin of a row, as D/file:line. */
static const char *
where(struct fix *f, const char *name)
{
    static char text[PAR_WHERE_BYTES];
    struct par_ref ref;

    assert_int_equal(par_find(NULL, name, &ref, err, sizeof(err)), 0);
    snprintf(text, sizeof(text), "%s", par_where(f->ps, ref.idx));
    short_names(f, text);
    return text;
}

/* Regression: correcting a file with three errors took three starts. */
static void
all_errors_at_once(void **state)
{
    struct fix *f = *state;

    use_main(f,
        "[sched]\n"
        "max_num_seqs = many\n"
        "max_num_sqs = 4\n"
        "nonsense\n"
        "max_num_batched_tokens = 100\n"
        "[shed]\n"
        "a = 1\n"
        "b = 2\n"
        "[kv]\n"
        "block_size = 48\n"
        "num_blocks = 66\n"
        "memory_bytes = 1m\n"
        "[log\n"
        "level = loud\n"
        "[ipc]\n"
        "max_clients = 0\n"
        "[log]\n"
        "level = loud\n");
    f->sets[0] = (char *)(uintptr_t) "ipc.sq_slots=100";
    f->sets[1] = (char *)(uintptr_t) "ipc.max_client=1";
    f->sets[2] = (char *)(uintptr_t) "port=1";
    f->src.n_sets = 3;
    assert_int_equal(load(f), -EINVAL);
    assert_string_equal(f->said,
        "E D/fdd.ini:2: sched.max_num_seqs = many: not a whole number\n"
        "E D/fdd.ini:3: unknown parameter 'sched.max_num_sqs'; nearest is "
        "sched.max_num_seqs\n"
        "E D/fdd.ini:4: neither 'key = value' nor '[section]'\n"
        "E D/fdd.ini:7: unknown section [shed]; nearest is [sched]\n"
        "E D/fdd.ini:13: section without ']'\n"
        "E D/fdd.ini:16: ipc.max_clients = 0: must be 1 to 65536 sessions\n"
        "E D/fdd.ini:18: log.level = loud: must be one of: error warn info debug trace\n"
        "E unknown parameter 'ipc.max_client'; nearest is ipc.max_clients\n"
        "W port is accepted and has no effect: fdd has no network port; clients use "
        "ipc.socket\n"
        "E ipc.sq_slots = 100: must be a power of two (ipc.sq_slots: --set)\n"
        "E kv.block_size = 48: must be 16, 32, 64 or 128 (kv.block_size: D/fdd.ini:10)\n"
        "E kv.num_blocks = 66 and kv.memory_bytes = 1048576 both give the size of the KV "
        "cache: leave one of them 0 (kv.num_blocks: D/fdd.ini:11; kv.memory_bytes: "
        "D/fdd.ini:12)\n");
}

/* A value that could not be read does not count as its default. */
static void
unread_values_are_not_judged(void **state)
{
    static const char *const files[] = {
        "[parallel\ntensor_parallel_size = 2\n",
        "[paralel]\ntensor_parallel_size = 2\n",
        "[paralel]\nblock_size = 2\n tensor-parallel-size = 2\n",
        "[parallel]\ntensor_paralel_size = 2\n",
        "[parallel]\ntensor_parallel_size 2\n",
        "[parallel]\ntensor_parallel_size = \xff\n",
        "[parallel]\ntensor_parallel_size = 1\ntensor_parallel_size = 2\n",
    };
    struct fix *f = *state;
    char sets[3][64] = { "device.list=cpu:2", "", "" };

    f->src.n_sets = 1;
    for (int i = 0; i < 3; i++)
        f->sets[i] = sets[i];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        use_main(f, files[i]);
        assert_int_equal(load(f), -EINVAL);
        assert_non_null(strchr(f->said, '\n'));
        assert_string_equal(strchr(f->said, '\n'), "\n");
    }
    /* checks that do not involve it are made */
    use_main(f, "[log\nlevel = info\n");
    assert_int_equal(load(f), -EINVAL);
    assert_non_null(strstr(f->said, "parallel.tensor_parallel_size = 1 uses one"));
    /* the same on the command line */
    use_main(f, "");
    f->src.n_sets = 2;
    strcpy(sets[1], "tensor_paralel_size=2");
    assert_int_equal(load(f), -EINVAL);
    assert_null(strstr(f->said, "uses one"));
    strcpy(sets[1], "tensor_parallel_size");
    assert_int_equal(load(f), -EINVAL);
    assert_null(strstr(f->said, "uses one"));
    /* a file that does not exist has no such value */
    f->src.n_sets = 1;
    snprintf(f->src.file, sizeof(f->src.file), "%s/none.ini", f->dir);
    assert_int_equal(load(f), -ENOENT);
    assert_string_equal(f->said, "E D/none.ini: No such file or directory\n");
}

/* Regression: "[log] level = debug" was read as a section without a parameter. */
static void
text_behind_a_section(void **state)
{
    struct fix *f = *state;

    use_main(f,
        "[log] level = debug\n[kv]]\n[ipc] # of programs\n[sched]; of steps\n"
        "max_num_seqs = 7\n");
    assert_int_equal(load(f), -EINVAL);
    assert_string_equal(f->said,
        "E D/fdd.ini:1: text after ']'; write each parameter on a line of its own\n"
        "E D/fdd.ini:2: text after ']'; write each parameter on a line of its own\n");
    assert_int_equal(par_get(f->ps)->sched_max_num_seqs, 7);
    assert_string_equal(where(f, "max_num_seqs"), "D/fdd.ini:5");
}

static void
many_errors_are_bounded(void **state)
{
    struct fix *f = *state;
    char text[2048] = "[kv]\n";
    const char *p;
    int n = 0;

    for (int i = 0; i < 27; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "no_such_%d = 1\n", i);
    use_main(f, text);
    assert_int_equal(load(f), -EINVAL);
    for (p = f->said; (p = strchr(p, '\n')) != NULL; p++)
        n++;
    assert_int_equal(n, PAR_MAX_ERRORS + 1);
    assert_non_null(strstr(f->said, "fdd.ini:21: unknown"));
    assert_null(strstr(f->said, "fdd.ini:22: unknown"));
    assert_string_equal(strstr(f->said, "E 7 more"), "E 7 more errors\n");
}

static int
set(struct fix *f, const char *name, const char *value)
{
    err[0] = '\0';
    return par_set_text(f->ps, name, value, PAR_FROM_SET, err, sizeof(err));
}

/* Regression: 8GB was "not a size", 30s "not a whole number". */
static void
units(void **state)
{
    static const struct {
        const char *name, *value;
        int64_t want;
    } ok[] = {
        { "kv.memory_bytes", "8GB", (int64_t)8 << 30 },
        { "kv.memory_bytes", "8GiB", (int64_t)8 << 30 },
        { "kv.memory_bytes", "512 mb", (int64_t)512 << 20 },
        { "kv.memory_bytes", "1.5g", (int64_t)3 << 29 },
        { "kv.memory_bytes", "1t", (int64_t)1 << 40 },
        { "kv.memory_bytes", "4096B", 4096 },
        { "model.max_model_len", "32k", 32768 },
        { "max-model-len", "128K", 131072 },
        { "daemon.drain_timeout_ms", "30s", 30000 },
        { "daemon.drain_timeout_ms", "5min", 300000 },
        { "daemon.drain_timeout_ms", "200ms", 200 },
        { "daemon.drain_timeout_ms", "0.5 s", 500 },
        { "daemon.drain_timeout_ms", "1h", 3600000 },
        { "daemon.drain_timeout_ms", "250000us", 250 },
        { "daemon.crash_window_s", "2h", 7200 },
        { "daemon.crash_window_s", "1d", 86400 },
        { "ipc.spin_us", "1ms", 1000 },
        { "max_waiting_time", "5min", 300000 },
        { "max_waiting_time", "7", 7000 },
        { "max_waiting_time", "-1", 0 },
    };
    struct fix *f = *state;
    struct par_ref ref;

    for (size_t i = 0; i < sizeof(ok) / sizeof(ok[0]); i++) {
        int64_t v;

        if (set(f, ok[i].name, ok[i].value) != 0)
            fail_msg("%s = %s: %s", ok[i].name, ok[i].value, err);
        assert_int_equal(par_find(NULL, ok[i].name, &ref, err, sizeof(err)), 0);
        memcpy(&v, (const char *)par_get(f->ps) + par_defs[ref.idx].offset, sizeof(v));
        if (v != ok[i].want)
            fail_msg("%s = %s is %lld", ok[i].name, ok[i].value, (long long)v);
    }
    assert_int_equal(set(f, "kv.swap_space", "512MB"), 0);
    assert_true(par_get(f->ps)->kv_swap_space == 0.5);
    assert_int_equal(set(f, "swap_space", "4"), 0);
    assert_true(par_get(f->ps)->kv_swap_space == 4);
    assert_int_equal(set(f, "sched.itl_target_ms", "0.25s"), 0);
    assert_true(par_get(f->ps)->sched_itl_target_ms == 250);
}

#define ZEROS_64 "0000000000000000000000000000000000000000000000000000000000000000"

static void
units_that_do_not_fit(void **state)
{
    static const char *const bad[][3] = {
        { "daemon.drain_timeout_ms", "8GB",
            "daemon.drain_timeout_ms = 8GB: the unit 'GB' "
            "does not fit; write a number of ms, or one with us, ms, s, min, h or d" },
        { "kv.memory_bytes", "30s",
            "kv.memory_bytes = 30s: the unit 's' does not fit; "
            "write a number of bytes, or one with k, m, g or t (also KB, MiB, ...: powers "
            "of 1024)" },
        { "model.max_model_len", "32GB",
            "model.max_model_len = 32GB: the unit 'GB' does "
            "not fit; write a number of tokens, or one with k, m or g (powers of 1024)" },
        { "kv.swap_space", "5min",
            "kv.swap_space = 5min: the unit 'min' does not fit; "
            "write a number of GiB, or one with k, m, g or t (also KB, MiB, ...: powers of "
            "1024)" },
        { "sched.max_num_seqs", "1k",
            "sched.max_num_seqs = 1k: the unit 'k' does not fit; "
            "write a number of sequences without a unit" },
        { "kv.gpu_memory_utilization", "90percent",
            "kv.gpu_memory_utilization = "
            "90percent: the unit 'percent' does not fit; write a number without a unit" },
        { "daemon.crash_window_s", "1500ms",
            "daemon.crash_window_s = 1500ms: not a whole "
            "number of s" },
        { "daemon.drain_timeout_ms", "2h",
            "daemon.drain_timeout_ms = 2h: must be 0 to "
            "3600000 ms" },
        { "daemon.drain_timeout_ms", "1.5",
            "daemon.drain_timeout_ms = 1.5: not a whole "
            "number" },
        { "daemon.drain_timeout_ms", "1M",
            "daemon.drain_timeout_ms = 1M: the unit 'M' "
            "does not fit; write a number of ms, or one with us, ms, s, min, h or d" },
        { "kv.memory_bytes", "9223372036854775807t",
            "kv.memory_bytes = "
            "9223372036854775807t: must be 0 to 1024g" },
        /* 10 to the 64th is 0 in 64 bits */
        { "daemon.crash_window_s", "1." ZEROS_64 "s",
            "daemon.crash_window_s = 1."
            "0000000000000000000000000000000000000000000000000000000000: must be 1 to "
            "86400 s" },
        { "max_waiting_time", "-5s", "max_waiting_time = -5s: must be 0 to 86400000 ms" },
        { "kv.memory_bytes", "8 GB more",
            "kv.memory_bytes = 8 GB more: not a size; write "
            "a whole number of bytes, or with k, m or g, like 32m" },
    };
    struct fix *f = *state;
    const struct par before = *par_get(f->ps);

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(set(f, bad[i][0], bad[i][1]), -EINVAL);
        assert_string_equal(err, bad[i][2]);
    }
    assert_memory_equal(&before, par_get(f->ps), sizeof(before));
}

/* Files that block their reader or never end, also the one named by -c. */
static void
files_that_are_none(void **state)
{
    struct fix *f = *state;
    char path[128];

    (void)alarm(20); /* for an open() that waits for a writer */
    snprintf(f->src.file, sizeof(f->src.file), "%s/pipe", f->dir);
    assert_int_equal(mkfifo(f->src.file, 0600), 0);
    assert_int_equal(load(f), -EINVAL);
    assert_string_equal(f->said, "E D/pipe: not a regular file\n");
    snprintf(f->src.file, sizeof(f->src.file), "/dev/zero");
    assert_int_equal(load(f), -EINVAL);
    assert_string_equal(f->said, "E /dev/zero: not a regular file\n");
    snprintf(f->src.file, sizeof(f->src.file), "/dev/null");
    assert_int_equal(load(f), 0);
    use_main(f, "");
    assert_int_equal(truncate(f->src.file, PAR_MAX_FILE), 0);
    assert_int_equal(load(f), -EINVAL); /* NULs: read */
    assert_non_null(strstr(f->said, "NUL byte"));
    assert_int_equal(truncate(f->src.file, PAR_MAX_FILE + 1), 0);
    assert_int_equal(load(f), -EINVAL);
    assert_string_equal(f->said, "E D/fdd.ini: longer than 1024 KiB\n");
    use_main(f, "");
    snprintf(path, sizeof(path), "%s/etc.d/a.ini", f->dir);
    assert_int_equal(symlink("../pipe", path), 0);
    assert_int_equal(load(f), -EINVAL);
    assert_string_equal(f->said, "E D/etc.d/a.ini: not a regular file\n");
    (void)alarm(0);
}

/* The main file, then both folders in the order of names; /etc hides /usr/lib. */
static void
folders(void **state)
{
    struct fix *f = *state;
    char path[128];

    use_main(f, "[kv]\nblock_size = 16\n[sched]\nmax_num_seqs = 1\n");
    put(f, "lib.d/10-a.ini", "[sched]\nmax_num_seqs = 2\nmax_penalty_seqs = 2\n");
    put(f, "lib.d/30-c.ini", "[sched]\nmax_num_seqs = 4\n");
    put(f, "lib.d/40-d.ini", "[sched]\nmax_num_seqs = 5\n");
    put(f, "lib.d/50-e.ini", "[sched]\nmax_num_seqs = 6\n");
    put(f, "etc.d/20-b.ini", "[sched]\nmax_num_seqs = 3\n");
    put(f, "etc.d/40-d.ini", "");
    put(f, "etc.d/.90-x.ini", "[sched]\nmax_num_seqs = 90\n");
    put(f, "etc.d/90-x.ini.bak", "[sched]\nmax_num_seqs = 91\n");
    snprintf(path, sizeof(path), "%s/etc.d/50-e.ini", f->dir);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(load(f), 0);
    assert_string_equal(f->said, "");
    assert_int_equal(par_get(f->ps)->sched_max_num_seqs, 4);
    assert_string_equal(where(f, "max_num_seqs"), "D/lib.d/30-c.ini:2");
    assert_int_equal(par_get(f->ps)->sched_max_penalty_seqs, 2);
    assert_string_equal(where(f, "sched.max_penalty_seqs"), "D/lib.d/10-a.ini:3");
    assert_int_equal(par_get(f->ps)->kv_block_size, 16);
    assert_string_equal(where(f, "kv.block_size"), "D/fdd.ini:2");
    assert_string_equal(where(f, "kv.num_blocks"), "");
    assert_int_equal(par_n_files(f->ps), 6);

    /* The hiding file is read at its own place in the order. */
    put(f, "etc.d/10-a.ini", "[sched]\nmax_num_seqs = 7\n[kv]\nblock_size = 32\n");
    put(f, "etc.d/99-z.ini", "[sched]\nmax_num_seqs = 8\nmax_num_sqs = 9\n");
    assert_int_equal(load(f), -EINVAL);
    assert_string_equal(f->said,
        "E D/etc.d/99-z.ini:3: unknown parameter "
        "'sched.max_num_sqs'; nearest is sched.max_num_seqs\n");
    put(f, "etc.d/99-z.ini", "[sched]\nmax_num_seqs = 8\n");
    f->sets[0] = (char *)(uintptr_t) "kv.block_size=64";
    f->src.n_sets = 1;
    assert_int_equal(load(f), 0);
    assert_int_equal(par_get(f->ps)->sched_max_num_seqs, 8);
    assert_int_equal(par_get(f->ps)->sched_max_penalty_seqs, 64);
    assert_int_equal(par_get(f->ps)->kv_block_size, 64);
    assert_string_equal(where(f, "kv.block_size"), "");
}

static void
folders_that_are_wrong(void **state)
{
    struct fix *f = *state;
    char path[128];

    assert_int_equal(load(f), 0);
    snprintf(path, sizeof(path), "%s/etc.d/a.ini", f->dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(load(f), -EINVAL);
    assert_string_equal(f->said, "E D/etc.d/a.ini: not a regular file\n");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_int_equal(load(f), -ENOENT);
    assert_string_equal(f->said, "E D/etc.d/a.ini: No such file or directory\n");
    assert_int_equal(unlink(path), 0);
    snprintf(f->src.dir[1], sizeof(f->src.dir[1]), "%s/none", f->dir);
    assert_int_equal(load(f), 0);
    snprintf(f->src.file, sizeof(f->src.file), "%s/none.ini", f->dir);
    assert_int_equal(load(f), -ENOENT);
    assert_string_equal(f->said, "E D/none.ini: No such file or directory\n");
    f->src.may_miss = 1;
    assert_int_equal(load(f), 0);
}

static void
where_files_are(void **state)
{
    struct par_src src;

    (void)state;
    par_src_init(&src, "/srv/a.ini", "one");
    assert_string_equal(src.file, "/srv/a.ini");
    assert_string_equal(src.dir[0], "");
    assert_string_equal(src.dir[1], "/srv/a.ini.d");
    assert_int_equal(src.may_miss, 0);
    par_src_init(&src, NULL, "one");
    assert_string_equal(src.file, FDD_SYSCONFDIR "/fdd/one.ini");
    assert_string_equal(src.dir[0], FDD_VENDORDIR "/fdd/one.ini.d");
    assert_string_equal(src.dir[1], FDD_SYSCONFDIR "/fdd/one.ini.d");
    par_src_init(&src, NULL, NULL);
    assert_string_equal(src.file, FDD_SYSCONFDIR "/fdd/fdd.ini");
    assert_string_equal(src.dir[0], FDD_VENDORDIR "/fdd/fdd.ini.d");
    assert_string_equal(src.dir[1], FDD_SYSCONFDIR "/fdd/fdd.ini.d");
    assert_int_equal(src.may_miss, 1);
}

/* Regression: a second package that named a trusted user removed
 * the first package's user. */
static void
lists_add_up(void **state)
{
    struct fix *f = *state;

    use_main(f,
        "[ipc]\ntrusted_users = web, 33\n[sched]\nuser_weights = a:2,b:3\n"
        "[log]\nlevels = gate=debug,worker=warn\ndebug = sched\n");
    put(f, "lib.d/gateway.ini",
        "[ipc]\ntrusted_users = gateway,web\n"
        "[sched]\nuser_weights = b:4 c:5\n[log]\nlevels = gate=info\ndebug = sched,kv\n"
        "[model]\nname = x\n");
    put(f, "etc.d/z.ini", "[ipc]\ntrusted_users = 34\n[model]\nname = y\n");
    assert_int_equal(load(f), 0);
    assert_string_equal(par_get(f->ps)->ipc_trusted_users, "33,gateway,web,34");
    assert_string_equal(par_get(f->ps)->sched_user_weights, "a:2,b:4,c:5");
    assert_string_equal(par_get(f->ps)->log_levels, "worker=warn,gate=info");
    assert_string_equal(par_get(f->ps)->log_debug, "sched,kv");
    assert_string_equal(par_get(f->ps)->model_name, "y");
    assert_string_equal(where(f, "ipc.trusted_users"),
        "D/fdd.ini:2, D/lib.d/gateway.ini:2, D/etc.d/z.ini:2");
    /* An empty value empties it, --set replaces it. */
    put(f, "etc.d/z.ini", "[ipc]\ntrusted_users =\n");
    put(f, "etc.d/zz.ini", "[ipc]\ntrusted_users = 35\n");
    f->sets[0] = (char *)(uintptr_t) "log.levels=relay=debug";
    f->src.n_sets = 1;
    assert_int_equal(load(f), 0);
    assert_string_equal(par_get(f->ps)->ipc_trusted_users, "35");
    assert_string_equal(where(f, "ipc.trusted_users"), "D/etc.d/zz.ini:2");
    assert_string_equal(par_get(f->ps)->log_levels, "relay=debug");
}

static void
lists_have_a_limit(void **state)
{
    struct fix *f = *state;
    char text[PAR_STR_BYTES + 64];
    size_t n = (size_t)snprintf(text, sizeof(text), "[ipc]\ntrusted_users = ");

    memset(text + n, 'a', PAR_STR_BYTES - 8);
    text[n + PAR_STR_BYTES - 8] = '\0';
    use_main(f, text);
    put(f, "etc.d/a.ini", "[ipc]\ntrusted_users = b,c\n");
    assert_int_equal(load(f), 0);
    put(f, "etc.d/a.ini", "[ipc]\n\ntrusted_users = gateway,c\n");
    assert_int_equal(load(f), -EINVAL);
    assert_string_equal(f->said,
        "E D/etc.d/a.ini:3: ipc.trusted_users: together with what "
        "is set in D/fdd.ini:2 more than 511 bytes\n");
}

/* Regression: a misspelt key of a JSON value was accepted silently. */
static void
keys_of_json_values(void **state)
{
    struct fix *f = *state;
    static const char *const bad[][4] = {
        { "speculative_config", "{\"metod\": \"mtp\"}", "metod", "method" },
        { "speculative_config", "{\"method\": null, \"num_speculative_token\": 1}",
            "num_speculative_token", "num_speculative_tokens" },
        { "limit_mm_per_prompt", "{\"images\": 0}", "images", "image" },
        { "mm_processor_kwargs", "{\"image_min_pixel\": 0}", "image_min_pixel",
            "image_min_pixels" },
        { "early_stop_config", "{\"window\": 0}", "window", "window_size" },
        { "graph_optimization_config", "{\"use_cudagrap\": true}", "use_cudagrap",
            "use_cudagraph" },
        { "limit_mm_per_prompt", "{\"\": 0}", "", "image" },
    };
    char want[256];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(want, sizeof(want), "%s: unknown key '%s'; nearest is %s", bad[i][0],
            bad[i][2], bad[i][3]);
        assert_int_equal(set(f, bad[i][0], bad[i][1]), -EINVAL);
        assert_string_equal(err, want);
    }
    assert_int_equal(set(f, "speculative_config",
                         "{\"method\": \"none\", \"model\": null, \"max_ngram_size\": 3}"),
        0);
    assert_int_equal(set(f, "limit_mm_per_prompt", "{\"image\": 0, \"audio\": 0}"), 0);
}

/* Regression: names of other servers gave "no parameter is called that". */
static void
names_stand_for_rows(void **state)
{
    static const struct {
        const char *name, *row;
    } names[] = {
        { "max-model-len", "max_model_len" },
        { "max_waiting_time", "max_waiting_time_ms" },
        { "ipc.max_concurrency", "max_concurrency" },
        { "kv.block_size", "block_size" },
        { "quantization", "weights" },
        { "enable-overlap-schedule", "overlap_depth" },
    };
    size_t rows[PAR_NAME_ROWS], n;
    struct par_row row;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_true(par_look_up(names[i].name, rows, &n, err, sizeof(err)) >= 0);
        assert_int_equal(n, 1);
        par_row(rows[0], &row);
        assert_string_equal(row.key, names[i].row);
    }
    assert_int_equal(par_look_up("graph-optimization-config", rows, &n, err, sizeof(err)),
        1);
    assert_int_equal(n, 3);
    assert_int_equal(par_look_up("pipeline-parallel-size", rows, &n, err, sizeof(err)), 1);
    assert_int_equal(n, 0);
    assert_string_equal(err,
        "pipeline_parallel_size is a name of another server: refused "
        "unless 1; the devices of one machine compute each layer together");
    assert_int_equal(par_look_up("disable-custom-all-reduce", rows, &n, err, sizeof(err)),
        1);
    assert_int_equal(n, 1);
    par_row(rows[0], &row);
    assert_string_equal(row.key, "custom_all_reduce");
    assert_int_equal(par_look_up("max_num_sqs", rows, &n, err, sizeof(err)), -ENOENT);
    assert_string_equal(err,
        "unknown parameter 'max_num_sqs'; nearest is "
        "sched.max_num_seqs");
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(all_errors_at_once),
        T(unread_values_are_not_judged),
        T(text_behind_a_section),
        T(many_errors_are_bounded),
        T(units),
        T(units_that_do_not_fit),
        T(folders),
        T(files_that_are_none),
        T(folders_that_are_wrong),
        T(where_files_are),
        T(lists_add_up),
        T(lists_have_a_limit),
        T(keys_of_json_values),
        T(names_stand_for_rows),
    };

    return cmocka_run_group_tests_name("param_load", tests, NULL, NULL);
}
