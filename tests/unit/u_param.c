/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Parameters: parsing, names, files, reload, generated documents. */
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
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/common/param.h"
#include "daemon/common/param_priv.h"
#include "tests/unit/param_fixture.h"

static char err[1024], warned[1024];

static int
setup(void **state)
{
    err[0] = warned[0] = '\0';
    *state = par_new();
    return *state == NULL;
}

static int
teardown(void **state)
{
    par_free(*state);
    return 0;
}

/* Reads bytes as a file; the file's name in err is replaced by "F". */
static int
read_bytes(struct par_set *ps, const void *data, size_t n)
{
    char path[64], *p;
    int fd = memfd_create("ini", MFD_CLOEXEC), rc;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    rc = read_file(ps, path, warned, sizeof(warned), err, sizeof(err));
    close(fd);
    p = rc != 0 ? strstr(err, path) : NULL;
    if (rc != 0) {
        assert_ptr_equal(p, err);
        err[0] = 'F';
        memmove(err + 1, err + strlen(path), strlen(err + strlen(path)) + 1);
    }
    return rc;
}

static int
read_text(struct par_set *ps, const char *text)
{
    return read_bytes(ps, text, strlen(text));
}

static int
set(struct par_set *ps, const char *name, const char *value)
{
    return par_set_text(ps, name, value, PAR_FROM_SET, err, sizeof(err));
}

#define REFUSED(call, code, text) \
    do { \
        assert_int_equal(call, code); \
        assert_string_equal(err, text); \
    } while (0)

static void
test_defaults(void **state)
{
    const struct par *p = par_get(*state);

    assert_int_equal(p->sched_max_num_seqs, 256);
    assert_int_equal(p->sched_max_num_batched_tokens, 0);
    assert_int_equal(par_max_batched_tokens(p, 1), 512);
    assert_int_equal(par_max_batched_tokens(p, 0), 8192);
    assert_int_equal(p->kv_block_size, 64);
    assert_int_equal(p->ipc_spin_us, -1);
    assert_int_equal(p->graph_use_cudagraph, 1);
    assert_int_equal(p->kv_dtype, PAR_KV_DTYPE_AUTO);
    assert_string_equal(p->ipc_group, "fdd");
    assert_string_equal(p->model_path, "");
    assert_int_equal(par_check(*state, err, sizeof(err)), 0);
}

static void
test_names(void **state)
{
    struct par_set *ps = *state;
    const struct par *p = par_get(ps);

    assert_int_equal(set(ps, "sched.max_num_seqs", "7"), 0);
    assert_int_equal(p->sched_max_num_seqs, 7);
    assert_int_equal(set(ps, "sched.max-num-seqs", "8"), 0);
    assert_int_equal(p->sched_max_num_seqs, 8);
    assert_int_equal(set(ps, "max-num-seqs", "9"), 0);
    assert_int_equal(p->sched_max_num_seqs, 9);
    assert_int_equal(set(ps, "sched.max_num_seqs", "10"), 0);
    assert_int_equal(set(ps, "model", "/m"), 0);
    assert_string_equal(p->model_path, "/m");
    assert_int_equal(set(ps, "max_waiting_time", "3"), 0);
    assert_int_equal(p->sched_max_waiting_time_ms, 3000);
    assert_int_equal(set(ps, "max_waiting_time", "-1"), 0);
    assert_int_equal(p->sched_max_waiting_time_ms, 0);
    REFUSED(set(ps, "max_waiting_time", "86401"), -EINVAL,
        "max_waiting_time = 86401: must be 0 to 86400");
    REFUSED(set(ps, "max_waiting_time", "9223372036854775807"), -EINVAL,
        "max_waiting_time = 9223372036854775807: must be 0 to 86400");

    REFUSED(set(ps, "sched.max_num_seq", "1"), -ENOENT,
        "unknown parameter 'sched.max_num_seq'; nearest is sched.max_num_seqs");
    REFUSED(set(ps, "sched.block_size", "16"), -ENOENT,
        "unknown parameter 'sched.block_size'; nearest is kv.block_size");
    REFUSED(set(ps, "max_client", "1"), -ENOENT,
        "unknown parameter 'max_client'; nearest is ipc.max_clients");
    REFUSED(set(ps, "zzzzzz", "1"), -ENOENT,
        "unknown parameter 'zzzzzz'; fdd.ini(5) lists them all");
    REFUSED(set(ps, "", "1"), -ENOENT, "unknown parameter ''; fdd.ini(5) lists them all");
    assert_int_equal(p->sched_max_num_seqs, 10);
}

static void
test_numbers(void **state)
{
    struct par_set *ps = *state;
    const struct par *p = par_get(ps);

    assert_int_equal(set(ps, "ipc.arena_bytes", "64k"), 0);
    assert_int_equal(p->ipc_arena_bytes, 65536);
    assert_int_equal(set(ps, "ipc.arena_bytes", "2M"), 0);
    assert_int_equal(p->ipc_arena_bytes, 2 << 20);
    assert_int_equal(set(ps, "kv.memory_bytes", "3g"), 0);
    assert_int_equal(p->kv_memory_bytes, (int64_t)3 << 30);
    assert_int_equal(set(ps, "ipc.spin_us", "-1"), 0);
    assert_int_equal(set(ps, "sched.max_num_seqs", "1"), 0);
    assert_int_equal(set(ps, "sched.max_num_seqs", "1024"), 0);
    REFUSED(set(ps, "sched.max_num_seqs", "0"), -EINVAL,
        "sched.max_num_seqs = 0: must be 1 to 1024 sequences");
    REFUSED(set(ps, "sched.max_num_seqs", "1025"), -EINVAL,
        "sched.max_num_seqs = 1025: must be 1 to 1024 sequences");
    REFUSED(set(ps, "sched.max_num_seqs", "8k"), -EINVAL,
        "sched.max_num_seqs = 8k: the "
        "unit 'k' does not fit; write a number of sequences without a unit");
    REFUSED(set(ps, "sched.max_num_seqs", "8 # few"), -EINVAL,
        "sched.max_num_seqs = 8 # few: not a whole number; "
        "a comment after a value begins with \" ;\"");
    REFUSED(set(ps, "sched.max_num_seqs", ""), -EINVAL,
        "sched.max_num_seqs = (nothing): not a whole number");
    REFUSED(set(ps, "sched.max_num_seqs", "1.5"), -EINVAL,
        "sched.max_num_seqs = 1.5: not a whole number");
    REFUSED(set(ps, "ipc.arena_bytes", "1q"), -EINVAL,
        "ipc.arena_bytes = 1q: the unit "
        "'q' does not fit; write a number of bytes, or one with k, m, g or t (also KB, MiB, "
        "...: powers of 1024)");
    REFUSED(set(ps, "ipc.arena_bytes", "big"), -EINVAL,
        "ipc.arena_bytes = big: not a "
        "size; write a whole number of bytes, or with k, m or g, like 32m");
    REFUSED(set(ps, "ipc.arena_bytes", "1"), -EINVAL,
        "ipc.arena_bytes = 1: must be 64k to 64m");
    REFUSED(set(ps, "ipc.arena_bytes", "9223372036854775807g"), -EINVAL,
        "ipc.arena_bytes = 9223372036854775807g: must be 64k to 64m");
    REFUSED(set(ps, "sched.seed", "9223372036854775808"), -EINVAL,
        "sched.seed = 9223372036854775808: must be 0 to 9223372036854775807");
    assert_int_equal(set(ps, "sched.seed", "9223372036854775807"), 0);
    assert_true(p->sched_seed == INT64_MAX);
    assert_int_equal(p->sched_max_num_seqs, 1024);
    assert_int_equal(p->ipc_arena_bytes, 2 << 20);
}

static void
test_words(void **state)
{
    static const char *const yes[] = { "yes", "true", "on", "1", "TRUE", "Yes" };
    static const char *const no[] = { "no", "false", "off", "0", "False" };
    struct par_set *ps = *state;
    char text[PAR_STR_BYTES + 8];
    size_t i;

    for (i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        assert_int_equal(set(ps, "device.graph", "no"), 0);
        assert_int_equal(set(ps, "device.graph", yes[i]), 0);
        assert_int_equal(par_get(ps)->graph_use_cudagraph, 1);
    }
    for (i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        assert_int_equal(set(ps, "device.graph", "yes"), 0);
        assert_int_equal(set(ps, "device.graph", no[i]), 0);
        assert_int_equal(par_get(ps)->graph_use_cudagraph, 0);
    }
    REFUSED(set(ps, "device.graph", "maybe"), -EINVAL,
        "device.graph = maybe: write yes "
        "or no");
    REFUSED(set(ps, "device.graph", "yes|true"), -EINVAL,
        "device.graph = yes|true: write yes or no");
    REFUSED(set(ps, "device.graph", ""), -EINVAL,
        "device.graph = (nothing): write yes "
        "or no");
    assert_int_equal(set(ps, "kv.dtype", "bf16"), 0);
    REFUSED(set(ps, "kv.dtype", "fp16"), -EINVAL,
        "kv.dtype = fp16: must be one of: auto fp32 bf16 fp8 int8");
    REFUSED(set(ps, "kv.dtype", "auto|fp32"), -EINVAL,
        "kv.dtype = auto|fp32: must be one of: auto fp32 bf16 fp8 int8");
    REFUSED(set(ps, "kv.dtype", ""), -EINVAL,
        "kv.dtype = (nothing): must be one of: auto fp32 bf16 fp8 int8");
    assert_int_equal(par_get(ps)->kv_dtype, PAR_KV_DTYPE_BF16);

    memset(text, 'x', sizeof(text));
    text[PAR_STR_BYTES - 1] = '\0';
    assert_int_equal(set(ps, "model.name", text), 0);
    assert_string_equal(par_get(ps)->model_name, text);
    text[PAR_STR_BYTES - 1] = 'x';
    text[PAR_STR_BYTES] = '\0';
    assert_int_equal(set(ps, "model.name", text), -EINVAL);
    assert_non_null(strstr(err, "512 bytes long, at most 511 are allowed"));
    REFUSED(set(ps, "model.name", "a\tb"), -EINVAL,
        "model.name = a?b: control character 0x09 in the value");
    assert_int_equal(set(ps, "model.name", "\xff"), -EINVAL);
    assert_int_equal(set(ps, "model.name", "Modell \xc3\xa4"), 0);
}

static void
test_notes(void **state)
{
    struct par_set *ps = *state;

    REFUSED(set(ps, "port", "8000"), 1,
        "port is accepted and has no effect: fdd has no network port; clients use "
        "ipc.socket");
    assert_int_equal(set(ps, "tensor_parallel_size", "1"), 0);
    assert_int_equal(set(ps, "parallel.tensor-parallel-size", "1"), 0);
    REFUSED(set(ps, "pipeline-parallel-size", "2"), -EINVAL,
        "pipeline-parallel-size = 2: "
        "not available in this build (the devices of one machine compute each layer together); "
        "remove it or write 1");
    assert_int_equal(set(ps, "disable_custom_all_reduce", "yes"), 0);
    assert_int_equal(par_get(ps)->parallel_custom_all_reduce,
        PAR_PARALLEL_CUSTOM_ALL_REDUCE_NO);
    assert_int_equal(set(ps, "disable_custom_all_reduce", "no"), 0);
    assert_int_equal(par_get(ps)->parallel_custom_all_reduce,
        PAR_PARALLEL_CUSTOM_ALL_REDUCE_AUTO);
    assert_int_equal(set(ps, "splitwise_role", "mixed"), 0);
    assert_int_equal(set(ps, "splitwise_role", "prefill"), -EINVAL);
    assert_int_equal(set(ps, "use_cudagraph", "no"), 0);
    assert_int_equal(par_get(ps)->graph_use_cudagraph, 0);
}

static void
test_file(void **state)
{
    struct par_set *ps = *state;
    const struct par *p = par_get(ps);

    assert_int_equal(read_text(ps,
                         "\xef\xbb\xbf# comment\n"
                         "model = /a b/c\n"
                         "\n"
                         "[sched]\r\n"
                         "  max-num-seqs = 8 ; few\r\n"
                         "\tmax_num_batched_tokens: 128\n"
                         "; [kv]\n"
                         "[kv]\n"
                         "block_size=16\n"
                         "[log]\n"
                         "debug = \n"
                         "level = debug"),
        0);
    assert_string_equal(p->model_path, "/a b/c");
    assert_int_equal(p->sched_max_num_seqs, 8);
    assert_int_equal(p->sched_max_num_batched_tokens, 128);
    assert_int_equal(p->kv_block_size, 16);
    assert_int_equal(p->log_level, PAR_LOG_LEVEL_DEBUG);
    assert_int_equal(read_text(ps, ""), 0);

    assert_int_equal(set(ps, "kv.block_size", "32"), 0);
    assert_int_equal(read_text(ps, "[kv]\nblock_size = 128\n"), 0);
    assert_int_equal(p->kv_block_size, 32);
    assert_int_equal(read_text(ps, "\n[compat]\nport = 8000\n"), 0);
    assert_non_null(strstr(warned, ":3: compat.port is accepted and has no effect"));
}

static void
test_file_long_lines(void **state)
{
    struct par_set *ps = *state;
    char text[PAR_MAX_LINE + 64], value[PAR_STR_BYTES];
    size_t n;

    memset(value, 'p', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    snprintf(text, sizeof(text), "[model]\npath = %s   ; where\nname = n\n[bad]\nx=1\n",
        value);
    REFUSED(read_text(ps, text), -EINVAL,
        "F:5: unknown section [bad]; "
        "fdd.ini(5) lists them all");
    snprintf(text, sizeof(text), "[model]\npath = %s   ; where\nname = n\n", value);
    assert_int_equal(read_text(ps, text), 0);
    assert_string_equal(par_get(ps)->model_path, value);
    assert_string_equal(par_get(ps)->model_name, "n");

    /* Exactly the longest line, then one byte more. */
    n = (size_t)snprintf(text, sizeof(text), "[log]\n;");
    memset(text + n, 'c', PAR_MAX_LINE - 1);
    strcpy(text + n + PAR_MAX_LINE - 1, "\nlevel = warn\n");
    assert_int_equal(read_text(ps, text), 0);
    assert_int_equal(par_get(ps)->log_level, PAR_LOG_LEVEL_WARN);
    memset(text + n, 'c', PAR_MAX_LINE);
    strcpy(text + n + PAR_MAX_LINE, "\n");
    REFUSED(read_text(ps, text), -EINVAL, "F:2: line longer than 4096 bytes");
    n = (size_t)snprintf(text, sizeof(text), "\n");
    memset(text + n, 'k', 300);
    strcpy(text + n + 300, " = 1\n");
    REFUSED(read_text(ps, text), -EINVAL,
        "F:2: a section or key of that length does not exist");
}

static void
test_file_errors(void **state)
{
    struct par_set *ps = *state;
    const struct par before = *par_get(ps);

    REFUSED(read_text(ps, "[sched]\nmax_num_seqs = 4\nmax_num_sqs = 4\n"), -EINVAL,
        "F:3: unknown parameter 'sched.max_num_sqs'; nearest is sched.max_num_seqs");
    REFUSED(read_text(ps, "[shed]\nmax_num_seqs = 4\n"), -EINVAL,
        "F:2: unknown section [shed]; nearest is [sched]");
    REFUSED(read_text(ps, "[sched]\nmax_num_seqs = 4\n[sched]\n\nmax-num-seqs = 4\n"),
        -EINVAL, "F:5: sched.max-num-seqs is set twice, first in line 2");
    REFUSED(read_text(ps, "max_num_seqs = 4\n[sched]\nmax-num-seqs = 4\n"), -EINVAL,
        "F:3: sched.max-num-seqs is set twice, first in line 1");
    REFUSED(read_text(ps, "[kv]\n\nblock_size = big\n"), -EINVAL,
        "F:3: kv.block_size = big: not a whole number");
    REFUSED(read_text(ps, "[kv\nblock_size = 16\n"), -EINVAL, "F:1: section without ']'");
    REFUSED(read_text(ps, "[kv]\nblock_size\n"), -EINVAL,
        "F:2: neither 'key = value' nor '[section]'");
    REFUSED(read_text(ps, "[kv]\n = 3\n"), -EINVAL, "F:2: no key before '='");
    REFUSED(read_text(ps, "[model]\nname = \xc3\x28\n"), -EINVAL, "F:2: not valid UTF-8");
    REFUSED(read_bytes(ps, "[kv]\nblo\0ck = 1\n", 16), -EINVAL,
        "F:2: NUL byte in column 4: not a text file");
    REFUSED(read_text(ps, "[parallel]\npipeline_parallel_size = 8\n"), -EINVAL,
        "F:2: parallel.pipeline_parallel_size = 8: not available in this build (the devices of "
        "one machine compute each layer together); remove it or write 1");
    assert_memory_equal(&before, par_get(ps), sizeof(before));
    REFUSED(read_file(ps, "/nonexistent/fdd.ini", warned, sizeof(warned), err, sizeof(err)),
        -ENOENT, "/nonexistent/fdd.ini: No such file or directory");
    REFUSED(read_file(ps, "/", warned, sizeof(warned), err, sizeof(err)), -EINVAL,
        "/: not a regular file");
}

static void
test_check(void **state)
{
    struct par_set *ps = *state;

#define NEED(name, value) assert_int_equal(set(ps, name, value), 0)
#define CHECK_OK()        assert_int_equal(par_check(ps, err, sizeof(err)), 0)
#define CHECK_BAD(text)   REFUSED(par_check(ps, err, sizeof(err)), -EINVAL, text)
    NEED("ipc.sq_slots", "100");
    CHECK_BAD("ipc.sq_slots = 100: must be a power of two");
    NEED("ipc.sq_slots", "128");
    NEED("ipc.cq_slots", "65");
    CHECK_BAD("ipc.cq_slots = 65: must be a power of two");
    NEED("ipc.cq_slots", "64");
    CHECK_OK();
    NEED("ipc.arena_bytes", "64m");
    CHECK_BAD(
        "ipc.max_session_bytes = 16777216: a session of the default size needs "
        "67137536 bytes (ipc.sq_slots 128, ipc.cq_slots 64, ipc.arena_bytes 67108864)");
    NEED("ipc.max_session_bytes", "67137536");
    CHECK_OK();
    NEED("kv.block_size", "48");
    CHECK_BAD("kv.block_size = 48: must be 16, 32, 64 or 128");
    NEED("kv.block_size", "64");
    NEED("model.max_model_len", "15");
    CHECK_BAD("model.max_model_len = 15: must be 0 or at least 16");
    NEED("model.max_model_len", "4096");
    NEED("sched.max_num_batched_tokens", "255");
    CHECK_BAD("sched.max_num_batched_tokens = 255 is less than sched.max_num_seqs = 256: "
              "each sequence of a step needs a token");
    NEED("sched.max_num_seqs", "8");
    CHECK_OK();
    NEED("sched.max_num_batched_tokens", "63");
    CHECK_BAD("sched.max_num_batched_tokens = 63 is less than kv.block_size = 64: a "
              "split prompt advances by a block");
    NEED("sched.enable_chunked_prefill", "no");
    NEED("sched.max_num_batched_tokens", "4095");
    CHECK_BAD("sched.max_num_batched_tokens = 4095 is less than model.max_model_len = "
              "4096, and without sched.enable_chunked_prefill a prompt must fit one step");
    NEED("sched.max_num_batched_tokens", "4096");
    CHECK_OK();
    NEED("sched.max_num_batched_tokens", "32769");
    CHECK_BAD("sched.max_num_batched_tokens = 32769 is more than model.max_model_len * "
              "sched.max_num_seqs = 4096 * 8");
    NEED("sched.max_num_batched_tokens", "32768");
    NEED("sched.enable_chunked_prefill", "yes");
    /* regression: enough for a model whose layers all have windows, and refused */
    NEED("kv.num_blocks", "60");
    CHECK_OK();
    NEED("kv.num_blocks", "66");
    NEED("kv.memory_bytes", "1m");
    CHECK_BAD("kv.num_blocks = 66 and kv.memory_bytes = 1048576 both give the size of "
              "the KV cache: leave one of them 0");
    NEED("kv.memory_bytes", "0");
    NEED("output.default_max_tokens", "4096");
    CHECK_BAD("output.default_max_tokens = 4096 leaves no token of model.max_model_len = "
              "4096 for a prompt");
}

/* Lists the names of rows that differ. Returns their number. */
static int
differing(const struct par_set *ps, const struct par_set *fresh)
{
    int n = 0;

    warned[0] = '\0';
    for (size_t i = 0; i < par_count(); i++) {
        size_t at = strlen(warned);
        struct par_row r;

        if (!par_differs(ps, fresh, i))
            continue;
        par_row(i, &r);
        snprintf(warned + at, sizeof(warned) - at, "%s.%s ", r.section, r.key);
        n++;
    }
    return n;
}

static void
test_reload(void **state)
{
    struct par_set *ps = *state, *fresh = par_new();
    char value[64];
    enum par_origin from;
    size_t i;

    assert_int_equal(read_text(fresh,
                         "[log]\nlevel = trace\n[sched]\nmax_num_seqs = 3\n"
                         "[kv]\nblock_size = 16\n[ipc]\nmax_clients = 256\n"),
        0);
    assert_int_equal(differing(ps, fresh), 3);
    assert_string_equal(warned, "sched.max_num_seqs kv.block_size log.level ");
    assert_int_equal(par_reload(ps, fresh), 1);
    assert_int_equal(par_get(ps)->log_level, PAR_LOG_LEVEL_TRACE);
    assert_int_equal(par_get(ps)->sched_max_num_seqs, 256);
    for (i = 0; i < par_count(); i++) {
        struct par_row row;

        par_row(i, &row);
        par_value(ps, i, value, sizeof(value), &from);
        if (strcmp(row.key, "level") == 0 || strcmp(row.key, "max_clients") == 0)
            assert_int_equal(from, PAR_FROM_FILE);
        else
            assert_int_equal(from, PAR_FROM_DEFAULT);
    }
    assert_int_equal(par_reload(ps, fresh), 0);
    /* Parameters that change must fit those that stay until a restart. */
    assert_int_equal(par_reload_check(ps, fresh, err, sizeof(err)), 0);
    assert_int_equal(set(fresh, "graph.capture_sizes", "1,600"), 0);
    assert_int_equal(set(fresh, "graph.prefill_max_tokens", "1000"), 0);
    assert_int_equal(par_check(fresh, err, sizeof(err)), 0);
    REFUSED(par_reload_check(ps, fresh, err, sizeof(err)), -EINVAL,
        "with the values that "
        "need a restart: graph.capture_sizes: 600 is more than graph.prefill_max_tokens = 512; "
        "remove it or raise that");
    assert_int_equal(set(ps, "graph.prefill_max_tokens", "1000"), 0);
    assert_int_equal(par_reload_check(ps, fresh, err, sizeof(err)), 0);
    par_free(fresh);
}

/* Every default is valid for its own row, and is unchanged after writing and reading. */
static void
test_rows(void **state)
{
    char name[128], value[PAR_STR_BYTES];
    enum par_origin from;
    struct par_row row;
    size_t i;

    assert_true(par_count() > 40);
    for (i = 0; i < par_count(); i++) {
        par_row(i, &row);
        assert_true(row.help[0] != '\0');
        assert_int_equal(row.help[strlen(row.help) - 1], '.');
        par_value(*state, i, value, sizeof(value), &from);
        assert_string_equal(value, row.def);
        assert_int_equal(from, PAR_FROM_DEFAULT);
        snprintf(name, sizeof(name), "%s.%s", row.section, row.key);
        assert_int_equal(set(*state, name, row.def), 0);
        if (row.min[0] != '\0') {
            assert_int_equal(set(*state, name, row.min), 0);
            assert_int_equal(set(*state, name, row.max), 0);
        }
    }
}

static char *
slurp(FILE *f, size_t *ret_n)
{
    char *text = NULL;
    size_t n = 0, cap = 0;
    int c;

    for (; (c = getc(f)) != EOF; n++) {
        if (n + 2 > cap)
            text = realloc(text, cap = cap * 2 + 65536);
        assert_non_null(text);
        text[n] = (char)c;
    }
    assert_non_null(text);
    text[n] = '\0';
    *ret_n = n;
    return text;
}

static char *
committed(const char *name)
{
    const char *src = getenv("FDD_SRC");
    char path[1024];
    size_t n;
    char *text;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", src != NULL ? src : ".", name);
    f = fopen(path, "re");
    if (f == NULL)
        fail_msg("%s: %s (set FDD_SRC to the source folder)", path, strerror(errno));
    text = slurp(f, &n);
    fclose(f);
    return text;
}

static char *
printed(void (*print)(FILE *f))
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    print(f);
    fclose(f);
    return text;
}

static void
test_documents_are_current(void **state)
{
    char *ini = committed("conf/fdd.ini"), *man = committed("daemon/fdd.ini.5");
    char *ini_now = printed(par_print_ini), *man_now = printed(par_print_man), *p;

    (void)state;
    if (strcmp(ini, ini_now) != 0)
        fail_msg("conf/fdd.ini is not current: gen_params ini > conf/fdd.ini");
    if (strstr(man, man_now) == NULL)
        fail_msg("daemon/fdd.ini.5 is not current: gen_params man > daemon/fdd.ini.5");

    /* The shipped file changes nothing, even if every line is active. */
    assert_int_equal(read_text(*state, ini), 0);
    for (p = ini; (p = strstr(p, "\n;")) != NULL; p++)
        p[1] = ' ';
    assert_int_equal(read_text(*state, ini), 0);
    for (size_t i = 0; i < par_count(); i++) {
        char value[PAR_STR_BYTES];
        enum par_origin from;
        struct par_row row;

        par_row(i, &row);
        par_value(*state, i, value, sizeof(value), &from);
        assert_string_equal(value, row.def);
        assert_int_equal(from, PAR_FROM_FILE);
    }
    free(ini);
    free(man);
    free(ini_now);
    free(man_now);
}

/* Each name of a choice gives its enumerator, and is shown for it. */
static void
test_choices(void **state)
{
    char name[128], value[PAR_STR_BYTES];
    struct par_set *ps = *state;
    enum par_origin from;
    size_t n = 0;

    for (size_t i = 0; i < par_count(); i++) {
        struct par_row row;

        par_row(i, &row);
        for (uint32_t k = 0; row.words != NULL && row.words[k] != NULL; k++, n++) {
            (void)snprintf(name, sizeof(name), "%s.%s", row.section, row.key);
            assert_int_equal(set(ps, name, row.words[k]), 0);
            par_value(ps, i, value, sizeof(value), &from);
            assert_string_equal(value, row.words[k]);
        }
    }
    assert_true(n >= 30);
    assert_int_equal(par_get(ps)->device_backend, PAR_DEVICE_BACKEND_NULL);
    assert_int_equal(par_get(ps)->log_level, PAR_LOG_LEVEL_TRACE);
    assert_int_equal(par_get(ps)->sched_policy, PAR_SCHED_POLICY_FCFS);
    assert_string_equal(par_quant_weights_words[PAR_QUANT_WEIGHTS_FP8], "fp8");
    assert_null(par_quant_weights_words[PAR_QUANT_WEIGHTS_FP8 + 1]);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_defaults),
        T(test_names),
        T(test_numbers),
        T(test_words),
        T(test_notes),
        T(test_file),
        T(test_file_long_lines),
        T(test_file_errors),
        T(test_check),
        T(test_reload),
        T(test_rows),
        T(test_documents_are_current),
        T(test_choices),
    };

    return cmocka_run_group_tests_name("param", tests, NULL, NULL);
}
