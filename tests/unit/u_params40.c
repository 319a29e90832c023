/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The names of the source system's parameter document: each in a file and with --set,
 * values accepted and refused; constraints between parameters. */
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

static int
read_text(struct par_set *ps, const char *text)
{
    char path[64];
    int fd = memfd_create("ini", MFD_CLOEXEC), rc;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    warned[0] = err[0] = '\0';
    rc = read_file(ps, path, warned, sizeof(warned), err, sizeof(err));
    close(fd);
    return rc;
}

static int
set(struct par_set *ps, const char *name, const char *value)
{
    return par_set_text(ps, name, value, PAR_FROM_SET, err, sizeof(err));
}

/* ---- the forty names ---------------------------------------------------------- */

enum { WARNS = 1 };
struct row {
    const char *name, *section; /* section of fdd.ini */
    const char *good;
    int warns;
    const char *row, *value; /* parameter that `good` sets, and its
                              * value; NULL: nothing */
    const char *bad, *why;   /* a refused value and its reason; NULL:
                              * no value is refused */
};

#define NOT_HERE "not available in this build"

/* In the order of the document, 1 to 40. */
static const struct row rows[] = {
    { "port", "compat", "8000", WARNS, NULL, NULL, NULL, NULL },
    { "metrics_port", "compat", "8001", WARNS, NULL, NULL, NULL, NULL },
    { "max_waiting_time", "sched", "60", 0, "sched.max_waiting_time_ms", "60000", "soon",
        "not a whole number" },
    { "max_concurrency", "sched", "512", 0, "sched.max_concurrency", "512", "0",
        "must be 1 to 65536 requests" },
    { "engine_worker_queue_port", "compat", "8002", WARNS, NULL, NULL, NULL, NULL },
    { "cache_queue_port", "compat", "8003,8004", WARNS, NULL, NULL, NULL, NULL },
    { "max_model_len", "model", "2048", 0, "model.max_model_len", "2048", "16777217",
        "must be 0 to 16777216 tokens" },
    { "tensor_parallel_size", "parallel", "4", 0, "parallel.tensor_parallel_size", "4",
        "9", "must be 1 to 8 devices" },
    { "data_parallel_size", "parallel", "1", 0, "parallel.data_parallel_size", "1", "33",
        "must be 1 to 32 groups" },
    { "block_size", "kv", "32", 0, "kv.block_size", "32", "8", "must be 16 to 128 tokens" },
    { "max_num_seqs", "sched", "8", 0, "sched.max_num_seqs", "8", "1025",
        "must be 1 to 1024 sequences" },
    { "mm_processor_kwargs", "model", "{}", 0, NULL, NULL, "{\"image_min_pixels\": 3136}",
        NOT_HERE },
    { "tokenizer", "model", "/m/tok", 0, "model.tokenizer", "/m/tok", "a\tb",
        "control character 0x09" },
    { "use_warmup", "compat", "0", WARNS, NULL, NULL, "2", "write yes or no" },
    { "limit_mm_per_prompt", "model", "{\"image\": 0, \"video\": 0}", 0, NULL, NULL,
        "{\"image\": 1}", NOT_HERE },
    { "enable_mm", "compat", "False", WARNS, NULL, NULL, "maybe", "write yes or no" },
    { "quantization", "quant", "wint4", 0, "quant.weights", "wint4", "block_wise_fp8",
        NOT_HERE },
    { "gpu_memory_utilization", "kv", "0.5", 0, "kv.gpu_memory_utilization", "0.5",
        "0.99", "must be 0.05 to 0.98" },
    { "num_gpu_blocks_override", "kv", "1024", 0, "kv.num_blocks", "1024", "-1",
        "must be 0 to 16777216 blocks" },
    { "max_num_batched_tokens", "sched", "2048", 0, "sched.max_num_batched_tokens",
        "2048", "131073", "must be 0 to 131072 tokens" },
    { "kv_cache_ratio", "kv", "0.75", 0, "kv.kv_cache_ratio", "0.75", "1.01",
        "must be 0.05 to 1" },
    { "enable_prefix_caching", "kv", "false", 0, "kv.enable_prefix_caching", "no", "2",
        "write yes or no" },
    { "swap_space", "kv", "4.5", 0, "kv.swap_space", "4.5", "-1", "must be 0 to 4096 GiB" },
    { "enable_chunked_prefill", "sched", "no", 0, "sched.enable_chunked_prefill", "no",
        "x", "write yes or no" },
    { "max_num_partial_prefills", "sched", "4", 0, "sched.max_num_partial_prefills", "4",
        "-1", "must be 0 to 1024 prompts" },
    { "max_long_partial_prefills", "sched", "2", 0, "sched.max_long_partial_prefills",
        "2", "0", "must be 1 to 1024 prompts" },
    { "long_prefill_token_threshold", "sched", "100", 0,
        "sched.long_prefill_token_threshold", "100", "-1", "must be 0 to 16777216" },
    { "static_decode_blocks", "kv", "8", 0, "kv.static_decode_blocks", "8", "65",
        "must be 0 to 64 blocks" },
    { "reasoning_parser", "output", "none", 0, NULL, NULL, "qwen3", NOT_HERE },
    { "use_cudagraph", "graph", "no", 0, "graph.use_cudagraph", "no", "2",
        "write yes or no" },
    { "graph_optimization_config", "graph",
        "{\"use_cudagraph\": false, \"cudagraph_capture_sizes\": [8, 1, 8]}", 0,
        "graph.capture_sizes", "1,8", "{\"use_cudagraphs\": true}",
        "unknown key 'use_cudagraphs'; nearest is "
        "use_cudagraph" },
    { "enable_custom_all_reduce", "parallel", "true", 0, "parallel.custom_all_reduce",
        "yes", "maybe", "must be one of: auto yes no" },
    { "splitwise_role", "parallel", "mixed", 0, NULL, NULL, "prefill", NOT_HERE },
    { "innode_prefill_ports", "compat", "8010,8011", WARNS, NULL, NULL, NULL, NULL },
    { "guided_decoding_backend", "output", "off", 0, NULL, NULL, "xgrammar", NOT_HERE },
    { "guided_decoding_disable_any_whitespace", "output", "False", 0, NULL, NULL, "True",
        NOT_HERE },
    { "speculative_config", "sched", "{\"method\": \"none\"}", 0, NULL, NULL,
        "{\"method\": \"mtp\", \"num_speculative_tokens\": 1}", NOT_HERE },
    { "dynamic_load_weight", "model", "0", 0, NULL, NULL, "1", NOT_HERE },
    { "enable_expert_parallel", "parallel", "no", 0, NULL, NULL, "yes", NOT_HERE },
    { "enable_logprob", "output", "no", 0, "output.enable_logprob", "no", "5",
        "write yes or no" },
};
_Static_assert(sizeof(rows) / sizeof(rows[0]) == 40, "the document has 40 names");

static void
value_of(const struct par_set *ps, const char *name, char *ret, size_t ret_bytes,
    enum par_origin *ret_from)
{
    struct par_ref ref;

    assert_int_equal(par_find(NULL, name, &ref, err, sizeof(err)), 0);
    assert_int_equal(ref.note, 0);
    par_value(ps, ref.idx, ret, ret_bytes, ret_from);
}

static void
dashes(const char *name, char *ret)
{
    do
        *ret++ = *name == '_' ? '-' : *name;
    while (*name++ != '\0');
}

/* Checks that r->good was accepted: result, warning and value. text: the warning. */
static void
check_good(struct par_set *ps, const struct row *r, const char *text, enum par_origin from)
{
    char value[PAR_STR_BYTES];
    enum par_origin got;

    if (r->warns)
        assert_non_null(strstr(text, "is accepted and has no effect: "));
    if (r->row != NULL) {
        value_of(ps, r->row, value, sizeof(value), &got);
        assert_string_equal(value, r->value);
        assert_int_equal(got, from);
    }
}

/* Checks that the message names the parameter, the value and the reason. */
static void
check_bad(const struct row *r, const char *written)
{
    char shown[64];

    if (strstr(err, written) == NULL || strstr(err, r->why) == NULL)
        fail_msg("%s = %s: %s", r->name, r->bad, err);
    if (strchr(r->bad, '{') == NULL || strcmp(r->why, NOT_HERE) == 0)
        assert_non_null(strstr(err, par_show(r->bad, shown, sizeof(shown))));
    if (strcmp(r->why, NOT_HERE) == 0)
        assert_non_null(strstr(err, r->row == NULL ? "; remove it or write " : ";"));
}

static void
e1_forty_names_by_set(void **state)
{
    (void)state;
    for (size_t i = 0; i < 40; i++) {
        const struct row *r = &rows[i];
        char dashed[64];

        dashes(r->name, dashed);
        for (int k = 0; k < 2; k++) {
            const char *name = k == 0 ? r->name : dashed;
            struct par_set *ps = par_new();
            struct par before;
            int rc;

            err[0] = '\0';
            rc = set(ps, name, r->good);
            if (rc != r->warns)
                fail_msg("%s = %s: %d %s", name, r->good, rc, err);
            check_good(ps, r, err, PAR_FROM_SET);
            before = *par_get(ps);
            if (r->bad != NULL) {
                assert_int_equal(set(ps, name, r->bad), -EINVAL);
                check_bad(r, name);
                assert_memory_equal(&before, par_get(ps), sizeof(before));
            }
            par_free(ps);
        }
    }
}

static void
e1_forty_names_in_a_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < 40; i++) {
        const struct row *r = &rows[i];
        char dashed[64], text[512], full[128];

        dashes(r->name, dashed);
        /* In its section, bare before all sections, and with dashes. */
        for (int k = 0; k < 3; k++) {
            struct par_set *ps = par_new();
            int rc;

            snprintf(text, sizeof(text), "%s%s%s%s = %s\n", k == 0 ? "[" : "",
                k == 0 ? r->section : "", k == 0 ? "]\n" : "", k == 2 ? dashed : r->name,
                r->good);
            rc = read_text(ps, text);
            if (rc != 0)
                fail_msg("%s: %s", text, err);
            assert_int_equal(warned[0] != '\0', r->warns);
            check_good(ps, r, warned, PAR_FROM_FILE);
            par_free(ps);
        }
        if (r->bad == NULL)
            continue;
        snprintf(text, sizeof(text), "\n[%s]\n%s = %s\n", r->section, r->name, r->bad);
        snprintf(full, sizeof(full), ":3: %s.%s", r->section, r->name);
        assert_int_equal(read_text(*state, text), -EINVAL);
        check_bad(r, full);
    }
}

/* ---- values ------------------------------------------------------------------- */

#define OK(name, value) assert_int_equal(set(ps, name, value), 0)
#define REFUSED(name, value, text) \
    do { \
        assert_int_equal(set(ps, name, value), -EINVAL); \
        assert_string_equal(err, text); \
    } while (0)

static void
e1_values_that_turn_off(void **state)
{
    static const char *const off[][2] = { { "quantization", "" },
        { "quantization", "None" }, { "speculative_config", "" },
        { "speculative_config", "null" }, { "speculative_config", "{}" },
        { "speculative_config", "{\"method\": null, \"num_speculative_tokens\": 1}" },
        { "limit_mm_per_prompt", "null" }, { "limit_mm_per_prompt", "{}" },
        { "mm_processor_kwargs", "{\"image_min_pixels\": null}" },
        { "guided_decoding_backend", "None" }, { "guided.backend", "off" },
        { "reasoning_parser", "" }, { "dynamic_load_weight", "false" },
        { "reload.enable", "no" }, { "pd.role", "mixed" }, { "load_strategy", "normal" },
        { "scheduler_name", "local" }, { "logprobs_mode", "raw_logprobs" },
        { "enable_early_stop", "no" }, { "early_stop_config", "{}" },
        { "tool_call_parser", "None" }, { "custom-all-reduce", NULL },
        { "parallel.custom_all_reduce", "auto" }, { "use_warmup", "1" },
        { "num_gpu_blocks_override", "None" }, { "max_num_batched_tokens", "None" },
        { "swap_space", "None" }, { "disable_custom_all_reduce", "False" } };
    struct par_set *ps = *state;
    const struct par before = *par_get(ps);

    for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++)
        if (off[i][1] == NULL)
            assert_int_equal(set(ps, off[i][0], "no"), -ENOENT);
        else if (set(ps, off[i][0], off[i][1]) != 0)
            fail_msg("%s = %s: %s", off[i][0], off[i][1], err);
    assert_memory_equal(&before, par_get(ps), sizeof(before));
}

static void
e1_messages(void **state)
{
    struct par_set *ps = *state;

    REFUSED("pipeline_parallel_size", "2",
        "pipeline_parallel_size = 2: not available in this "
        "build (the devices of one machine compute each layer together); remove it or write 1");
    REFUSED("data-parallel-size", "0", "data-parallel-size = 0: must be 1 to 32 groups");
    REFUSED("tensor_parallel_size", "two",
        "tensor_parallel_size = two: not a whole "
        "number");
    REFUSED("splitwise_role", "both",
        "splitwise_role = both: must be one of: mixed "
        "prefill decode");
    REFUSED("guided_decoding_backend", "yacc",
        "guided_decoding_backend = yacc: must be "
        "one of: none auto xgrammar guidance outlines builtin");
    REFUSED("reasoning_parser", "my",
        "reasoning_parser = my: must be one of: none "
        "ernie-45-vl qwen3 ernie-x1 ernie-45-vl-thinking");
    REFUSED("enable_expert_parallel", "yes",
        "enable_expert_parallel = yes: not available "
        "in this build (models with experts are not supported); remove it or write no");
    REFUSED("speculative_config", "{\"method\": \"magic\"}",
        "speculative_config = "
        "{\"method\": \"magic\"}: method magic is not one of: mtp ngram naive suffix none");
    REFUSED("speculative_config", "{\"method\": \"ngram\"}",
        "speculative_config = "
        "{\"method\": \"ngram\"}: not available in this build (each step adds one token "
        "to a sequence); remove it or write {\"method\": \"none\"}");
    REFUSED("speculative_config", "[1]",
        "speculative_config = [1]: must be a JSON "
        "object");
    REFUSED("mm_processor_kwargs", "{\"a\": }",
        "mm_processor_kwargs = {\"a\": }: not "
        "JSON: unexpected token near '}' in column 7");
    REFUSED("quantization", "wint3",
        "quantization = wint3: must be one of: none wint8 "
        "wint4 fp8");
    REFUSED("quantization", "{\"dense_quant_type\": \"wint8\"}",
        "quantization = "
        "{\"dense_quant_type\": \"wint8\"}: not available in this build; default is none");
    REFUSED("kv.dtype", "int4",
        "kv.dtype = int4: not available in this build; default is "
        "auto");
    REFUSED("max_logprobs", "-1",
        "max_logprobs = -1: not available in this build; "
        "default is 20");
    OK("kv_cache_dtype", "float8_e4m3");
    assert_int_equal(par_get(ps)->kv_dtype, PAR_KV_DTYPE_FP8);
    OK("load_choices", "default_v1");
    assert_int_equal(par_get(ps)->model_load_format, PAR_MODEL_LOAD_FORMAT_AUTO);
    OK("ipc.max_waiting_time", "2");
    assert_int_equal(par_get(ps)->sched_max_waiting_time_ms, 2000);
    OK("ipc.max_concurrency", "7");
    assert_int_equal(par_get(ps)->sched_max_concurrency, 7);
}

static void
e1_graph_optimization_config(void **state)
{
    struct par_set *ps = *state;
    const struct par *p = par_get(ps);

#define GRAPH "graph_optimization_config"
    OK(GRAPH, "{\"use_cudagraph\": false, \"max_capture_shape_prefill\": 256}");
    assert_int_equal(p->graph_use_cudagraph, 0);
    assert_int_equal(p->graph_prefill_max_tokens, 256);
    assert_int_equal(set(ps, GRAPH,
                         "{\"use_cudagraph\":false,\"graph_opt_level\":0,"
                         "\"cudagraph_capture_sizes\":null}"),
        1);
    assert_string_equal(err,
        GRAPH ": graph_opt_level accepted without effect: there "
              "is one kind of graph, recorded at the start");
    assert_int_equal(set(ps, GRAPH,
                         "{\"sot_warmup_sizes\":[1,2],\"graph_opt_level\":2,"
                         "\"cudagraph_num_of_warmups\":2,\"cudagraph_copy_inputs\":false,"
                         "\"cudagraph_splitting_ops\":[],\"full_cuda_graph\":true,"
                         "\"cudagraph_only_prefill\":false,\"use_unique_memory_pool\":true,"
                         "\"draft_model_use_cudagraph\":false}"),
        1);
    OK(GRAPH, "{\"cudagraph_capture_sizes\": [16, 1, 16, 4]}");
    assert_string_equal(p->graph_capture_sizes, "1,4,16");
    REFUSED(GRAPH, "{\"graph_opt_level\": 3}",
        GRAPH ": graph_opt_level = 3: must be 0, 1 "
              "or 2");
    REFUSED(GRAPH, "{\"use_cudagraph\": 3}",
        GRAPH ": use_cudagraph = 3: must be true or "
              "false");
    REFUSED(GRAPH, "{\"cudagraph_capture_sizes\": []}",
        GRAPH ": cudagraph_capture_sizes = []: must be a list of token counts that is not "
              "empty, or null");
    REFUSED(GRAPH, "{\"cudagraph_capture_sizes\": [1, 0]}",
        GRAPH ": cudagraph_capture_sizes = 1,0: token counts are 1 to 131072, not 0");
    REFUSED(GRAPH, "{\"cudagraph_capture_sizes\": [1.5]}",
        GRAPH ": cudagraph_capture_sizes = [1.5]: must be a list of whole numbers");
    REFUSED(GRAPH, "{\"full_cuda_graph\": 1}",
        GRAPH ": full_cuda_graph = 1: must be true "
              "or false");
    REFUSED(GRAPH, "{\"max_capture_shape_prefill\": 131073}",
        GRAPH ": max_capture_shape_prefill = 131073: must be 0 to 131072 tokens");
    assert_int_equal(set(ps, GRAPH, "{\"use_cudagraph\": true,}"), -EINVAL);
    assert_non_null(strstr(err, "not JSON: "));
    assert_int_equal(set(ps, GRAPH, "{\"use_cudagraph\":1,\"use_cudagraph\":2}"), -EINVAL);
    assert_non_null(strstr(err, "duplicate object key"));
    assert_string_equal(p->graph_capture_sizes, "1,4,16");
}

static void
e1_set_both_ways(void **state)
{
    struct par_set *ps = *state;
    const struct par *p = par_get(ps);

    OK(GRAPH, "{\"use_cudagraph\": false, \"cudagraph_capture_sizes\": [2, 1]}");
    OK("use_cudagraph", "no");
    OK(GRAPH, "{\"use_cudagraph\": false}");
    REFUSED("graph.use_cudagraph", "yes",
        "graph.use_cudagraph = yes contradicts "
        "graph.use_cudagraph = no, set by graph_optimization_config; remove one of them");
    OK("graph.capture_sizes", "1, 2");
    REFUSED(GRAPH, "{\"cudagraph_capture_sizes\": [1, 4]}",
        GRAPH ": cudagraph_capture_sizes = 1,4 contradicts graph.capture_sizes = 1,2, set by "
              "its own name; remove one of them");
    assert_int_equal(p->graph_use_cudagraph, 0);
    assert_string_equal(p->graph_capture_sizes, "1,2");
    /* A running daemon may change values set at start. */
    assert_int_equal(par_set_text(ps, "graph.use_cudagraph", "yes", PAR_FROM_RUNTIME, err,
                         sizeof(err)),
        0);
    OK("use_cudagraph", "yes");

    assert_int_equal(read_text(ps,
                         "use_cudagraph = yes\n" GRAPH " = {\"use_cudagraph\": false}\n"),
        -EINVAL);
    assert_non_null(strstr(err,
        ":2: " GRAPH ": use_cudagraph = no contradicts "
        "graph.use_cudagraph = yes, set by its own name"));
    assert_int_equal(read_text(ps,
                         GRAPH " = {\"use_cudagraph\": true}\n[graph]\n"
                               "use_cudagraph = 0\n"),
        -EINVAL);
    assert_non_null(strstr(err, ":3: graph.use_cudagraph = 0 contradicts"));
    /* The command line overrides the file; this is not reported as a contradiction. */
    assert_int_equal(read_text(ps, GRAPH " = {\"use_cudagraph\": false}\n"), 0);
    assert_int_equal(p->graph_use_cudagraph, 1);

    OK("device.overlap_depth", "3");
    OK("enable_overlap_schedule", "True");
    assert_int_equal(p->device_overlap_depth, 3);
    REFUSED("enable_overlap_schedule", "no",
        "enable_overlap_schedule = 0 contradicts "
        "device.overlap_depth = 3, set by its own name; remove one of them");
}

static void
e1_capture_sizes(void **state)
{
    struct par_set *ps = *state;
    char text[PAR_STR_BYTES + 8], back[PAR_STR_BYTES];
    size_t n = 0;

    OK("graph.capture_sizes", "");
    OK("cudagraph-capture-sizes", "None");
    assert_string_equal(par_get(ps)->graph_capture_sizes, "");
    OK("graph.capture_sizes", " 8 ,1,131072, 8");
    assert_string_equal(par_get(ps)->graph_capture_sizes, "1,8,131072");
    REFUSED("graph.capture_sizes", ",",
        "graph.capture_sizes = ,: a list of token counts, "
        "comma separated, like 1,2,4,8; nothing for the default list");
    REFUSED("graph.capture_sizes", "1,,2",
        "graph.capture_sizes = 1,,2: a list of token "
        "counts, comma separated, like 1,2,4,8; nothing for the default list");
    REFUSED("graph.capture_sizes", "1,2,",
        "graph.capture_sizes = 1,2,: a comma and a "
        "number must follow 2");
    REFUSED("graph.capture_sizes", "1 2",
        "graph.capture_sizes = 1 2: a comma and a number "
        "must follow 1");
    REFUSED("graph.capture_sizes", "-1",
        "graph.capture_sizes = -1: a list of token "
        "counts, comma separated, like 1,2,4,8; nothing for the default list");
    REFUSED("graph.capture_sizes", "0",
        "graph.capture_sizes = 0: token counts are 1 to "
        "131072, not 0");
    REFUSED("graph.capture_sizes", "131073",
        "graph.capture_sizes = 131073: token counts "
        "are 1 to 131072, not 131073");
    REFUSED("graph.capture_sizes", "99999999999999999999",
        "graph.capture_sizes = "
        "99999999999999999999: a list of token counts, comma separated, like 1,2,4,8; "
        "nothing for the default list");
    /* As many numbers as the text can hold. */
    for (n = 0; n + 2 < PAR_STR_BYTES; n += 2)
        memcpy(text + n, "1,", 2);
    text[n++] = '2';
    text[n] = '\0';
    assert_int_equal(n, PAR_STR_BYTES - 1);
    assert_int_equal(par_sizes("x", text, back, sizeof(back), err, sizeof(err)), 0);
    assert_string_equal(back, "1,2");
}

/* ---- constraints ----------------------------------------------------------------- */

#define CHECK_OK() assert_int_equal(par_check(ps, err, sizeof(err)), 0)
#define CHECK_BAD(text) \
    do { \
        assert_int_equal(par_check(ps, err, sizeof(err)), -EINVAL); \
        assert_string_equal(err, text); \
    } while (0)

static void
e2_batched_tokens_and_sequences(void **state)
{
    struct par_set *ps = *state;

    OK("max_num_seqs", "128");
    OK("max_num_batched_tokens", "128");
    CHECK_OK();
    OK("max_num_batched_tokens", "127");
    CHECK_BAD("sched.max_num_batched_tokens = 127 is less than sched.max_num_seqs = 128: "
              "each sequence of a step needs a token");
    OK("max_num_batched_tokens", "0");
    CHECK_OK();
    assert_int_equal(par_max_batched_tokens(par_get(ps), 1), 512);
    OK("max_num_seqs", "1024");
    CHECK_OK();
    assert_int_equal(par_max_batched_tokens(par_get(ps), 1), 1024);
    assert_int_equal(par_max_batched_tokens(par_get(ps), 0), 8192);
}

static void
e2_batched_tokens_and_length(void **state)
{
    struct par_set *ps = *state;

    OK("max_num_seqs", "4");
    OK("max_model_len", "100");
    OK("max_num_batched_tokens", "400");
    CHECK_OK();
    OK("max_num_batched_tokens", "401");
    CHECK_BAD("sched.max_num_batched_tokens = 401 is more than model.max_model_len * "
              "sched.max_num_seqs = 100 * 4");
    OK("enable_chunked_prefill", "no");
    OK("max_num_batched_tokens", "100");
    CHECK_OK();
    OK("max_num_batched_tokens", "99");
    CHECK_BAD("sched.max_num_batched_tokens = 99 is less than model.max_model_len = 100, "
              "and without sched.enable_chunked_prefill a prompt must fit one step");
    OK("enable_chunked_prefill", "yes");
    CHECK_OK();
    OK("max_num_batched_tokens", "64");
    CHECK_OK();
    OK("max_num_batched_tokens", "63");
    CHECK_BAD("sched.max_num_batched_tokens = 63 is less than kv.block_size = 64: a split "
              "prompt advances by a block");
    OK("block_size", "16");
    CHECK_OK();
    OK("max_num_batched_tokens", "0");
    OK("enable_chunked_prefill", "no");
    OK("max_model_len", "131072");
    CHECK_OK();
    assert_int_equal(par_max_batched_tokens(par_get(ps), 1), 131072);
    OK("max_model_len", "131073");
    CHECK_BAD("model.max_model_len = 131073: without sched.enable_chunked_prefill a prompt "
              "must fit one step, which has at most 131072 tokens");
}

static void
e2_partial_prefills(void **state)
{
    struct par_set *ps = *state;

    OK("max_num_partial_prefills", "2");
    CHECK_OK();
    OK("enable_chunked_prefill", "no");
    CHECK_BAD("sched.max_num_partial_prefills = 2 needs sched.enable_chunked_prefill = "
              "yes; else set it to 1");
    OK("max_num_partial_prefills", "1");
    CHECK_OK();
    OK("enable_chunked_prefill", "yes");
    OK("max_long_partial_prefills", "2");
    CHECK_BAD("sched.max_long_partial_prefills = 2 is more than "
              "sched.max_num_partial_prefills = 1");
    OK("max_num_partial_prefills", "2");
    CHECK_OK();
    OK("max_model_len", "2048");
    OK("long_prefill_token_threshold", "2047");
    CHECK_OK();
    OK("long_prefill_token_threshold", "2048");
    CHECK_BAD(
        "sched.long_prefill_token_threshold = 2048 must be less than "
        "model.max_model_len = 2048 when sched.max_num_partial_prefills = 2 is more than "
        "1: no prompt would be long");
    OK("max_long_partial_prefills", "1");
    OK("max_num_partial_prefills", "1");
    CHECK_OK();
    OK("long_prefill_token_threshold", "0");
    assert_int_equal(par_long_prefill(par_get(ps), 2048), 81);
    OK("long_prefill_token_threshold", "7");
    assert_int_equal(par_long_prefill(par_get(ps), 2048), 7);
}

static void
e2_blocks_and_shares(void **state)
{
    static const char *const sizes[] = { "16", "32", "64", "128" };
    static const char *const not_sizes[] = { "17", "31", "33", "48", "63", "65", "127" };
    struct par_set *ps = *state;

    for (size_t i = 0; i < 4; i++) {
        OK("block_size", sizes[i]);
        CHECK_OK();
    }
    for (size_t i = 0; i < sizeof(not_sizes) / sizeof(not_sizes[0]); i++) {
        char text[128];

        OK("block_size", not_sizes[i]);
        snprintf(text, sizeof(text), "kv.block_size = %s: must be 16, 32, 64 or 128",
            not_sizes[i]);
        CHECK_BAD(text);
    }
    REFUSED("block_size", "15", "block_size = 15: must be 16 to 128 tokens");
    REFUSED("block_size", "129", "block_size = 129: must be 16 to 128 tokens");
    OK("block_size", "64");
    OK("gpu_memory_utilization", "0.05");
    OK("gpu_memory_utilization", "0.98");
    REFUSED("gpu_memory_utilization", "0.049",
        "gpu_memory_utilization = 0.049: must be "
        "0.05 to 0.98");
    REFUSED("gpu_memory_utilization", "0.981",
        "gpu_memory_utilization = 0.981: must be "
        "0.05 to 0.98");
    REFUSED("gpu_memory_utilization", "nan", "gpu_memory_utilization = nan: not a number");
    OK("kv_cache_ratio", "0.05");
    OK("kv_cache_ratio", "1");
    REFUSED("kv_cache_ratio", "0.04", "kv_cache_ratio = 0.04: must be 0.05 to 1");
    REFUSED("kv_cache_ratio", "1.001", "kv_cache_ratio = 1.001: must be 0.05 to 1");
    OK("swap_space", "0.5");
    CHECK_OK();
    OK("enable_prefix_caching", "no");
    CHECK_BAD("kv.swap_space = 0.5 needs kv.enable_prefix_caching = yes: it holds cached "
              "blocks; without them write 0");
    OK("swap_space", "0");
    CHECK_OK();
    /* how many blocks a length needs depends on the model */
    OK("max_model_len", "1000");
    OK("num_gpu_blocks_override", "17");
    CHECK_OK();
    OK("static_decode_blocks", "1");
    CHECK_OK();
    OK("max_model_len", "16");
    CHECK_OK();
    OK("max_model_len", "15");
    CHECK_BAD("model.max_model_len = 15: must be 0 or at least 16");
}

/* The product of both sizes is the number of devices. */
static void
e2_devices(void **state)
{
    struct par_set *ps = *state;

    OK("device.list", "cpu:2");
    CHECK_BAD(
        "device.list: \"cpu:2\" has 2 devices, and parallel.tensor_parallel_size = 1 uses "
        "one; name one, or set parallel.tensor_parallel_size or parallel.data_parallel_size "
        "= 2");
    OK("data_parallel_size", "2");
    CHECK_OK();
    OK("tensor_parallel_size", "2");
    CHECK_BAD(
        "device.list: \"cpu:2\" has 2 devices, and parallel.data_parallel_size = 2 takes "
        "4, 2 for each; list as many");
    OK("device.list", "cpu:4");
    CHECK_OK();
    OK("device.list", "");
    CHECK_BAD(
        "device.list: it is empty, and parallel.data_parallel_size = 2 takes 4 devices, 2 "
        "for each; list them (cuda:0,cuda:1)");
    OK("data_parallel_size", "1");
    OK("device.list", "cpu:2");
    CHECK_OK();
    OK("disable_custom_all_reduce", "yes");
    CHECK_OK();
    OK("tensor_parallel_size", "1");
    OK("prefill_context_parallel_size", "2");
    CHECK_BAD(
        "parallel.custom_all_reduce = no: parallel.prefill_context_parallel_size = 2 copies "
        "write to each other's memory; write auto, or 1 copy");
    OK("prefill_context_parallel_size", "1");
    OK("tensor_parallel_size", "2");
    OK("disable_custom_all_reduce", "no");
    OK("parallel.spin_limit_ms", "5000");
    CHECK_BAD("parallel.spin_limit_ms = 5000 is not below daemon.worker_hang_ms = 5000: the "
              "worker would be killed before it can say which device did not answer");
    OK("daemon.worker_hang_ms", "0");
    CHECK_OK();
    OK("parallel.reference_splits", "2");
    CHECK_BAD(
        "parallel.reference_splits = 2: it is for one device, and "
        "parallel.tensor_parallel_size = 2, prefill_context_parallel_size = 1; leave it at "
        "1, or both of them");
    OK("tensor_parallel_size", "1");
    OK("device.list", "cpu:1");
    CHECK_OK();
}

static void
e2_groups_and_sizes(void **state)
{
    static const char *const groups[] = { "0", "32", "64", "128" };
    static const char *const not_groups[] = { "1", "31", "33", "96", "127" };
    struct par_set *ps = *state;

    for (size_t i = 0; i < 4; i++) {
        OK("quant.group_size", groups[i]);
        CHECK_OK();
    }
    for (size_t i = 0; i < 5; i++) {
        char text[128];

        OK("quant.group_size", not_groups[i]);
        snprintf(text, sizeof(text), "quant.group_size = %s: must be 0, 32, 64 or 128",
            not_groups[i]);
        CHECK_BAD(text);
    }
    OK("quant.group_size", "0");
    OK("max_num_batched_tokens", "1000");
    OK("graph.capture_sizes", "1000,1");
    CHECK_BAD("graph.capture_sizes: 1000 is more than graph.prefill_max_tokens = 512; "
              "remove it or raise that");
    OK("graph.prefill_max_tokens", "1000");
    CHECK_OK();
    OK("graph.prefill_max_tokens", "131072");
    OK("graph.capture_sizes", "1,1001");
    CHECK_BAD("graph.capture_sizes: 1001 is more than the tokens of a step, "
              "sched.max_num_batched_tokens = 1000; remove it");
    /* A running daemon keeps its value. */
    OK("graph.capture_sizes", "8,16");
    assert_int_equal(par_set_checked(ps, "graph.capture_sizes", "1001", PAR_FROM_RUNTIME,
                         err, sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err, "1001 is more than the tokens of a step"));
    assert_string_equal(par_get(ps)->graph_capture_sizes, "8,16");
    assert_int_equal(par_set_checked(ps, "graph.capture_sizes", "1000", PAR_FROM_RUNTIME,
                         err, sizeof(err)),
        0);
    assert_string_equal(par_get(ps)->graph_capture_sizes, "1000");
    OK("max_num_batched_tokens", "0");
    CHECK_OK();
    OK("graph.capture_sizes", "8193");
    CHECK_BAD("graph.capture_sizes: 8193 is more than the tokens of a step, "
              "sched.max_num_batched_tokens = 8192; remove it");
    OK("graph.capture_sizes", "8192");
    CHECK_OK();
    OK("device.backend", "cpu");
    CHECK_BAD("graph.capture_sizes: 8192 is more than the tokens of a step, "
              "sched.max_num_batched_tokens = 512; remove it");
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = { T(e1_forty_names_by_set),
        T(e1_forty_names_in_a_file), T(e1_values_that_turn_off), T(e1_messages),
        T(e1_graph_optimization_config), T(e1_set_both_ways), T(e1_capture_sizes),
        T(e2_batched_tokens_and_sequences), T(e2_batched_tokens_and_length),
        T(e2_partial_prefills), T(e2_blocks_and_shares), T(e2_devices),
        T(e2_groups_and_sizes) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
