/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Commands that send a request to the admin socket and print the answer. */
#include "config.h"

#include "tools/fdctl/commands.h"

#include "daemon/common/version.h"

/* Arguments of the commands that need more than a struct fct_plain. */
struct args {
    struct fct_plain q;
    int all, origin, deep, has_session;
    uint64_t session, count;
    const char *file;
    struct fct_operands given;
};

#define FCT_ARGS struct args
#define ARGS     .args_bytes = sizeof(struct args), .operands = 1 + offsetof(FCT_ARGS, given)
#define JSON     FCT_FLAG(0, "json", q.json, "the answer as JSON"), FCT_OPT_HELP, FCT_OPT_END
static const struct fct_opt json_opts[] = { JSON };
static const struct fct_opt group_opts[] = {
    FCT_ASK(0, "group", "", CNT_MAX_GROUPS - 1, NULL), JSON
};

/* ---- one question ------------------------------------------------------------------ */

#define ASKS(cmd, usage_text, about_text, table, ...) \
    const struct fct_line fct_line_##cmd = FCT_LINE(usage_text, about_text, table, \
        .command = #cmd, .hint = FCT_HINT_USAGE, __VA_ARGS__)

ASKS(requests, "fdctl requests [--json]", "Requests that have not ended.", json_opts,
    .list = "requests");
ASKS(clients, "fdctl clients [--json]", "Sessions of client programs.", json_opts,
    .list = "clients");
ASKS(program, "fdctl program [--group N] [--json]",
    "What steps of 1, 8, 64, 128 and 512 tokens and the largest one without a graph launch:\n"
    "kernels, operations that are one launch, bytes, and shares of the roofline bound.",
    group_opts,
    .text = "{n_ops} operations[measured_peak|, measured peak {measured_peak.read_bytes_per_s/1e9:.1} GB/s]"
            "\n[*kv_groups|KV group {group}: layers {layers}, [window|window {window}, ]"
            "{token_bytes:bytes} a token, at most {most_blocks} blocks a request\n]"
            "[slow|slow: {slow}\n][*sizes|\n{tokens} tokens, {outputs} outputs[graph|, graph][!graph|, eager]: "
            "roofline bound {roofline_us:.1} us\n"
            "times launch              weight   layout        bytes  roofline us  share\n"
            "[*launches|{times:5} {launch:-19} {format:-8} {layout:-8} {bytes:10bytes} "
            "{roofline_us:12.1} {share/.01:5.1} %  {ops}: {kernels}[fused|, fused]\n"
            "[slow|      slow: {slow} is fast\n]]]");
static const struct fct_opt reload_opts[] = { FCT_ASK(0, "rolling", NULL, 0, NULL), JSON };
ASKS(reload, "fdctl reload [--rolling] [--json]",
    "Read the configuration file again and take over what may change.", reload_opts,
    .text = "[*changes|{name}: [old|{old}][!old|(nothing)] -> [new|{new}][!new|(nothing)]\n]"
            "[*waiting|{name}: [running|{running}][!running|(nothing)] -> "
            "[new|{new}][!new|(nothing)] waits for a restart[where| ({where})]\n]"
            "{changed} changed\n[*warnings|warning: {}\n]"
            "[rolling|the workers of {rolling} groups start again, one after another; fdctl "
            "status shows how far they are\n]");

static const struct fct_opt pause_opts[] = { FCT_ASK(0, "off", NULL, 0, NULL), JSON };
ASKS(pause, "fdctl pause [--off] [--json]",
    "Queue new requests and start none of them; running ones go on. Ends with --off,\n"
    "or when the daemon drains or stops.",
    pause_opts, .text = "{state}, {queued} requests queued, {running} running\n");

/* ---- status ------------------------------------------------------------------------ */

#define CRASH \
    "crash     {program}, pid {pid}, [ended_s|{ended_s:ds}][!ended_s|started " \
    "{started_s:ds}]: {how}\n" \
    "[panic|          its last words:\n[*panic|            {}\n]]" \
    "[lines|          the end of its log:\n[*lines|            {}\n]]"
#define WORKER \
    "[^groups|group {group:-4}][!^groups|worker    ]{phase}[pid|, pid {pid}, up {uptime_ms:age}]" \
    "[phase=loading|, {load_percent} % ({load_done_bytes:MiB} of {load_total_bytes:MiB} " \
    "MiB)][deaths|, {deaths} deaths]" \
    "[!retry|[restart_in_ms|, next start in {restart_in_ms} ms]]" \
    "[^groups|, {requests} requests, load {load_tokens} tokens]\n" \
    "[*devices|          [rank?|[^tensor_parallel_size*^prefill_context_parallel_size>1|" \
    "rank {rank}: ]]device {device}[uuid| {uuid}][!is_used|, not used]\n]" \
    "[all_reduce|          sums over {tensor_parallel_size} devices: {all_reduce}\n]" \
    "[divides_prompts|          {prefill_context_parallel_size} copies divide prompts: " \
    "{divides_prompts}\n]" \
    "[*retry|          waits for {waits_for} since {since_ms:age}, tried {tries} times, " \
    "next in {next_in_ms:age}\n          {error}\n[fix|          {fix}\n]]" \
    "[!retry|[error|          {error}\n][fix|          {fix}\n]]" \
    "[itl_target_us|          prompts leave running answers {itl_target_us/1e3:.1} ms a " \
    "token at most\n]" \
    "[last_death|          last death: {last_death}\n]" \
    "[*last_crash|" CRASH "]"

static void
show_status(json_t *st, const void *args)
{
    char version[80];

    (void)args;
    if (fct_daemon_version(st, version, sizeof(version)))
        json_object_set_new(st, "own", json_string(ver_text()));
    json_object_set_new(st, "shown", json_string(version));
    if (json_array_size(json_object_get(st, "workers")) == 0)
        json_object_set_new(st, "workers", json_pack("[O]", json_object_get(st, "worker")));
    fct_text(stdout,
        "fdd       {shown}, {state}, pid {pid}, up {uptime_ms:age}\n"
        "[own|          this fdctl is {own}: start the daemon again, or install both from "
        "one build\n]"
        "socket    {socket}\n"
        "[*groups|groups    {ready} of {n} ready; {placed_cached} requests went where their "
        "prompt was, {moved} from a dead worker to another\n"
        "[rolling|          they start again one after another: group {rolling_group} "
        "{rolling_phase}\n]"
        "[rolling_error|          not all were started again: {rolling_error}\n]]"
        "[*workers|" WORKER "]"
        "[*model|model     {name} ({path})\n"
        "          {max_model_len} tokens at most"
        "[model_len>max_model_len| (the model itself: {model_len})], vocabulary {vocab}, "
        "[has_tokenizer|with tokenizer][!has_tokenizer|no tokenizer: requests by ids]\n]"
        "[!model|model     not ready\n]"
        "[*requests|requests  {running} running, {queued} queued ({queued_tokens} tokens); "
        "{done} done, {error} failed\n"
        "          {rejected} rejected, {shed} of them because they would have waited too "
        "long\n]"
        "sessions  {sessions}\n"
        "[*last_crash|" CRASH "]",
        st);
}

ASKS(status, "fdctl status [--json]", "State of the daemon, its worker and its model.",
    json_opts, .show = show_status);

/* ---- memory ------------------------------------------------------------------------ */

/* Add the member "places": the sums of the rows of each place. */
static void
add_places(json_t *o)
{
    json_t *devices = json_object_get(o, "devices"), *d = json_array_get(devices, 0), *r;
    size_t n = json_array_size(devices), i;
    /* the name and UUID of a single device, else the number of devices */
    json_t *on = n > 1
        ? json_sprintf("each of %zu devices", n)
        : json_sprintf("%s%s%s", fct_str(d, "device"),
              fct_str(d, "uuid")[0] != '\0' ? " " : "", fct_str(d, "uuid"));
    json_t *at[] = { json_pack("{s:o, s:s, s:i, s:i, s:i}", "place", on, "where",
                         "device", "bytes", 0, "in_use", 0, "free", 0),
        json_pack("{s:s, s:s, s:i, s:i, s:i}", "place", "host", "where", "host", "bytes",
            0, "in_use", 0, "free", 0) };
    long long left;

    json_array_foreach(json_object_get(o, "rows"), i, r) {
        d = at[strcmp(fct_str(r, "where"), "host") == 0];
        fct_add_num(d, "bytes", fct_num(r, "bytes"));
        fct_add_num(d, "in_use", fct_num(r, "in_use"));
        fct_add_num(d, "free", fct_num(r, "bytes") - fct_num(r, "in_use"));
    }
    fct_add_num(at[0], "limit", fct_num(o, "limit_bytes"));
    left = fct_num(at[0], "limit") - fct_num(at[0], "bytes");
    fct_add_num(at[0], "headroom", left > 0 ? left : 0);
    if (n > 1)
        json_object_set(at[0], "ranks", devices);
    json_object_set_new(o, "places", json_pack("[o,o]", at[0], at[1]));
}

#define BUFFER \
    "  {name:-24} {bytes:10bytes} {in_use:10bytes} {bytes-in_use:10bytes} " \
    "{bytes*100/^bytes:5.1} %  {how}\n"
#define BLOCKS \
    "  used                     {used:10} {used*block_bytes:10bytes}\n" \
    "  cached                   {cached:10} {cached*block_bytes:10bytes}\n" \
    "  free                     {free:10} {free*block_bytes:10bytes}\n" \
    "  sum                      {total:10} {total*block_bytes:10bytes}\n" \
    "[host_total|  used on host             {host_used:10} {host_used*host_block_bytes:10bytes}\n" \
    "  sum on host              {host_total:10} {host_total*host_block_bytes:10bytes}\n]"

static const char memory_text[] =
    "[*places|{place}\n"
    "  buffer                      planned     in use       free   share  how\n"
    "[where=device|[*^rows|[where=device|" BUFFER "]]]"
    "[where=host|[*^rows|[where=host|" BUFFER "]]]"
    "  sum                      {bytes:10bytes} "
    "{in_use:10bytes} {free:10bytes}\n"
    "[headroom?|  may be taken             {limit:10bytes}, {headroom:bytes} "
    "beyond the plan\n][*ranks|  rank {rank}, {device}: {bytes:bytes} planned, graphs "
    "{graph_bytes:bytes}; of {device_total_bytes:bytes} {device_free_bytes:bytes} are "
    "free\n]\n][*blocks|KV cache, {total} blocks of {block_size} tokens, {dtype}\n"
    "                               blocks      bytes\n" BLOCKS
    "][*kv_groups|  group {group}: layers {layers}, [window|window {window}, ]"
    "{token_bytes:bytes} a token, at most {most_blocks} blocks a request\n]holds {tokens} "
    "tokens: {concurrency} requests of max_model_len {max_model_len} at a time\n";

/* Add the figures of a group's answer to the sums. */
static void
add_places_to(json_t *sum, json_t *o)
{
    /* all devices of a group have equal amounts */
    long long n = (long long)json_array_size(json_object_get(o, "devices"));
    const json_t *device, *host;

    add_places(o);
    device = fct_member(o, "places.0");
    host = fct_member(o, "places.1");
    fct_add_num(sum, "device_bytes", n * fct_num(device, "bytes"));
    fct_add_num(sum, "device_in_use", n * fct_num(device, "in_use"));
    fct_add_num(sum, "host_bytes", fct_num(host, "bytes"));
    fct_add_num(sum, "host_in_use", fct_num(host, "in_use"));
    fct_add_num(sum, "tokens", fct_num(o, "tokens"));
}

/* Print the answer of each group and the sums; for a group whose worker does not answer,
 * its state. workers: of the groups, in order. Returns FCT_GO if none answered. */
static int
show_memories(const struct fct *f, const json_t *workers, int json)
{
    json_t *list = json_array(), *sum = json_object(), *w, *o;
    int rc, n_answer = 0;
    size_t k;

    json_array_foreach(workers, k, w) {
        rc = fct_ask_once(f,
            json_pack("{s:s, s:I}", "cmd", "memory", "group", (json_int_t)k), 1, &o);
        if (rc == 0) {
            n_answer++;
            (void)json_object_del(o, "ok");
            add_places_to(sum, o);
        } else {
            o = json_pack("{s:s}", "state", fct_str(w, "state"));
        }
        fct_add_num(o, "group", (long long)k);
        json_array_append_new(list, o);
    }
    if (n_answer == 0)
        rc = FCT_GO;
    else if (json)
        rc = fct_print_json(json_pack("{s:O, s:O}", "groups", list, "sum", sum));
    else {
        json_array_foreach(list, k, o) {
            printf("%sgroup %zu: ", k != 0 ? "\n" : "", k);
            if (json_object_get(o, "rows") != NULL)
                fct_text(stdout, memory_text, o);
            else
                printf("%s, no answer from a worker\n", fct_str(o, "state"));
        }
        fct_text(stdout,
            "\nall groups: devices {device_bytes:bytes} planned, {device_in_use:bytes} in use; "
            "host {host_bytes:bytes} planned, {host_in_use:bytes} in use; KV caches of "
            "{tokens} tokens\n",
            sum);
        rc = fct_flush();
    }
    json_decref(list);
    json_decref(sum);
    return rc;
}

/* If there are several groups and none was named, ask each. */
static int
memory_of_all(struct fct *f, void *args)
{
    const struct fct_plain *a = args;
    json_t *st = NULL;
    int rc = FCT_GO;

    if (json_object_get(a->ask, "group") != NULL ||
        fct_ask_once(f, fct_question("status"), 1, &st) != 0)
        return FCT_GO;
    if (fct_num(json_object_get(st, "groups"), "n") > 1)
        rc = show_memories(f, json_object_get(st, "workers"), a->json);
    json_decref(st);
    return rc;
}

static const struct fct_opt memory_opts[] = {
    FCT_ASK('g', "group", "N", CNT_MAX_GROUPS - 1, "only this group (all)"), JSON
};
ASKS(memory, "fdctl memory [--group N] [--json]",
    "Every buffer of the worker by where it is: bytes planned, in use and free, "
    "and its\nshare of the place; the blocks of the KV cache; what a device may give "
    "beyond the plan.",
    memory_opts, .text = memory_text, .prepare = add_places, .before = memory_of_all);

static const struct fct_opt stop_opts[] = { FCT_ASK(0, "now", NULL, 0, NULL),
    FCT_ASK(0, "timeout-ms", "", INT64_MAX, NULL), JSON };

static void
show_stop(json_t *o, const void *args)
{
    const char *name = fct_str(o, "socket_unit");
    size_t n = strlen(name);

    (void)args;
    if (n > 7 && strcmp(name + n - 7, ".socket") == 0)
        json_object_set_new(o, "service", json_stringn(name, n - 7));
    fct_text(stdout,
        "pid {pid} is stopping, {requests} requests left\n"
        "[socket_unit|[!service|the service manager still listens: the next client starts fdd "
        "again\n][service|{socket_unit} still listens: the next client starts fdd again; to "
        "keep it stopped:\n  sudo systemctl stop {socket_unit} {service}\n]]",
        o);
}

ASKS(stop, "fdctl stop [--now] [--timeout-ms MS] [--json]",
    "End the daemon when the running requests have ended.", stop_opts, .show = show_stop);

static const struct fct_opt drain_opts[] = { FCT_ASK(0, "wait", NULL, 0, NULL),
    FCT_ASK(0, "timeout-ms", "", INT64_MAX, NULL), FCT_ASK(0, "off", NULL, 0, NULL), JSON };
static int
drain_patiently(struct fct *f, void *args)
{
    const struct fct_plain *a = args;

    if (json_object_get(a->ask, "wait") != NULL && !f->timeout_given)
        f->timeout_ms = -1;
    return FCT_GO;
}

static int
is_drained(const json_t *answer, const void *args)
{
    const struct fct_plain *a = args;

    return json_object_get(a->ask, "wait") == NULL ||
            json_object_get(a->ask, "off") != NULL ||
            json_is_true(json_object_get(answer, "drained"))
        ? 0
        : EX_TEMPFAIL;
}

ASKS(drain, "fdctl drain [--wait] [--off] [--timeout-ms MS] [--json]",
    "Take no new requests; those that run go on.", drain_opts, .before = drain_patiently,
    .code = is_drained, .text = "{state}, {requests} requests left\n");

/* ---- a question for each operand ------------------------------------------------------ */

static int
set_each(struct fct *f, void *args)
{
    const struct args *a = args;
    int rc = 0;

    if (a->given.n == 0)
        return fct_usage("set: give NAME=VALUE, such as log.level=debug");
    for (int i = 0; i < a->given.n; i++)
        if (strchr(a->given.text[i], '=') == NULL)
            return fct_usage("set: '%s' has no '='; write NAME=VALUE", a->given.text[i]);
    for (int i = 0; i < a->given.n && rc == 0; i++) {
        const char *given = a->given.text[i], *eq = strchr(given, '=');
        json_t *answer = NULL;

        rc = fct_ask_once(f,
            json_pack("{s:s, s:o, s:o}", "cmd", "set", "name",
                fct_json_text(given, (size_t)(eq - given)), "value",
                fct_json_text(eq + 1, strlen(eq + 1))),
            0, &answer);
        if (rc != 0)
            break;
        if (fct_str(answer, "warning")[0] != '\0')
            fct_fail(0, "%s", fct_str(answer, "warning"));
        rc = fct_finish(&fct_line_set, answer, a, a->q.json);
    }
    return rc;
}

ASKS(set, "fdctl set NAME=VALUE... [--json]",
    "Change parameters of the running daemon, until its next reload or start.", json_opts,
    ARGS, .max_operands = INT_MAX, .before = set_each, .text = "{name} = {value}\n");

static int
cancel_one(struct fct_admin *a, const char *what, long long id, int quiet, long long *n)
{
    json_t *answer = NULL;
    int rc = fct_ask(a, json_pack("{s:s, s:I}", "cmd", "cancel", what, (json_int_t)id),
        quiet, &answer);

    *n += fct_num(answer, "cancelled");
    json_decref(answer);
    return rc;
}

static int
cancel_each(struct fct *f, void *args)
{
    const struct args *a = args;
    json_t *all = NULL, *r;
    struct fct_admin adm;
    long long n = 0;
    uint64_t id;
    size_t k;
    int rc;

    if (a->given.n == 0 && !a->all && !a->has_session)
        return fct_usage("cancel: which? give ids (fdctl requests), --session or --all");
    for (int i = 0; i < a->given.n; i++)
        if ((rc = fct_u64("cancel", a->given.text[i], INT64_MAX, &id)) != 0)
            return rc;
    if ((rc = fct_admin_open(f, 0, &adm)) != 0)
        return rc;
    rc = a->all ? fct_ask(&adm, fct_question("requests"), 0, &all) : 0;
    json_array_foreach(json_object_get(all, "requests"), k, r) {
        rc = cancel_one(&adm, "id", fct_num(r, "id"), 1, &n);
        if (rc != 0 && rc != EX_DATAERR) /* it may have ended meanwhile */
            break;
        rc = 0;
    }
    json_decref(all);
    if (rc == 0 && a->has_session)
        rc = cancel_one(&adm, "session", (long long)a->session, 0, &n);
    /* Others are cancelled all the same if one has ended meanwhile. */
    for (int i = 0; i < a->given.n && (rc == 0 || rc == EX_DATAERR); i++) {
        int one = cancel_one(&adm, "id", strtoll(a->given.text[i], NULL, 10), 0, &n);

        rc = one != 0 ? one : rc;
    }
    fct_admin_close(&adm);
    if (rc == 0 || n > 0)
        printf(a->q.json ? "{\"cancelled\": %lld}\n" : "%lld cancelled\n", n);
    return rc;
}

static const struct fct_opt cancel_opts[] = {
    FCT_FLAG(0, "all", all, "every request of every client"),
    FCT_U64(0, "session", "", session, INT64_MAX, NULL, FCT_HAS(has_session)), JSON
};
ASKS(cancel, "fdctl cancel ID... | --session N | --all [--json]",
    "End requests; fdctl requests shows their ids.", cancel_opts, ARGS,
    .max_operands = INT_MAX, .before = cancel_each);

static const struct fct_opt config_opts[] = {
    FCT_FLAG(0, "origin", origin, "show where each value comes from"), JSON
};
#define CONFIG_NOTES \
    "[effective|    ([auto|auto][!auto|in force]: {effective})]" \
    "[*waiting|    (after a restart: [value|{value}][!value|nothing][where|, {where}])]"

/* name is the parameter asked for, or NULL. A row with exactly that name is printed as
 * its value only, for scripts; the notes go to standard error. */
static void
show_config(json_t *o, const void *args)
{
    const struct args *a = args;
    const char *name = a->given.n > 0 ? a->given.text[0] : NULL;
    int origin = a->origin;
    json_t *p;
    size_t i;

    if (fct_str(o, "note")[0] != '\0')
        fct_fail(0, "%s", fct_str(o, "note"));
    json_array_foreach(json_object_get(o, "config"), i, p) {
        if (name == NULL || origin || strcmp(name, fct_str(p, "name")) != 0) {
            json_object_set_new(p, "from", json_boolean(origin));
            fct_text(stdout,
                "{name} = {value}" CONFIG_NOTES "[from|    ({origin}[where| {where}])]\n",
                p);
            continue;
        }
        puts(fct_str(p, "value"));
        if (fct_str(p, "effective")[0] != '\0' || json_object_get(p, "waiting") != NULL) {
            fprintf(stderr, "%s: ", fct_prog);
            fct_text(stderr, "{name}" CONFIG_NOTES "\n", p);
        }
    }
}

static int
ask_config(struct fct *f, void *args)
{
    struct args *a = args;

    (void)f;
    if (a->given.n > 0)
        json_object_set_new(a->q.ask, "name", json_string(a->given.text[0]));
    return FCT_GO;
}

ASKS(config, "fdctl config [NAME] [--origin] [--json]",
    "Parameters in force, or the value of one.", config_opts, ARGS, .max_operands = 1,
    .before = ask_config, .show = show_config);

static const struct fct_opt model_opts[] = {
    FCT_TEXT(0, "file", "NAME", file, "write one of the model's files to standard output:"),
    FCT_ASK(0, "group", "", CNT_MAX_GROUPS - 1, NULL), JSON
};

static void
list_files(void)
{
#define FDP_FILE(id, name, text) printf("                          " name "\n");
#include "libclient/tbl/files.h"
#undef FDP_FILE
}

static int
model_or_file(struct fct *f, void *args)
{
    const struct args *a = args;
    char *bytes = NULL;
    size_t n = 0;
    fdc_t *s = NULL;
    int rc;

    if (a->file == NULL)
        return FCT_GO;
    if (a->q.json)
        return fct_usage("model: --file or --json, not both");
    if ((rc = fct_open(f, 0, &s)) != 0)
        return rc;
    rc = fdc_file(s, a->file, &bytes, &n, f->timeout_ms);
    fdc_close(s);
    if (rc < 0)
        return fct_status_fail(a->file, rc);
    if (n > 0)
        fwrite(bytes, 1, n, stdout);
    fdc_free(bytes);
    return fct_flush();
}

ASKS(model, "fdctl model [--group N] [--json | --file NAME]",
    "The model: sizes, memory, where its files are; or one of its files.", model_opts,
    .args_bytes = sizeof(struct args), .below = list_files, .before = model_or_file);

/* Append a word to a list in the request. Returns 0 if it is empty or does not fit. */
static int
debug_word(json_t *q, const char *key, const char *sep, const char *w)
{
    const char *was = fct_str(q, key);
    char list[512];
    int n = snprintf(list, sizeof(list), "%s%s%s", was, was[0] != '\0' ? sep : "", w);

    json_object_set_new(q, key, fct_json_text(list, strlen(list)));
    return w[0] != '\0' && n < (int)sizeof(list);
}

/* +bit, -bit and bit are words here, so "-kv" is not an option. */
static int
debug_question(int argc, char **argv, json_t *q, int *ret_json)
{
    enum { LEVEL, TOPIC, N_VALUED = 4 };
    static const struct {
        const char *option, *such_as;
    } valued[] = { { "--level", "debug" }, { "--topic", "gate=debug" },
        { "--group", "1" }, { "-g", "1" } };
    const char *act = NULL;
    uint32_t group;

    for (int i = 1; i < argc; i++) {
        const char *w = argv[i], *v = NULL;
        size_t n = strcspn(w, "="), k = 0;
        int ok = 1, rc;

        while (k < N_VALUED &&
            (strncmp(w, valued[k].option, n) != 0 || valued[k].option[n] != '\0'))
            k++;
        if (k < N_VALUED && (v = w[n] == '=' ? w + n + 1 : argv[++i]) == NULL)
            return fct_usage("debug: %s needs a value, such as %s", w, valued[k].such_as);
        if (k == LEVEL) {
            json_object_set_new(q, "level", fct_json_text(v, strlen(v)));
        } else if (k == TOPIC) {
            ok = debug_word(q, "topic", ",", v);
        } else if (k < N_VALUED) {
            if ((rc = fct_u32("debug: --group", v, 0, CNT_MAX_GROUPS - 1, &group)) != 0)
                return rc;
            json_object_set_new(q, "group", json_integer(group));
        } else if (strcmp(w, "--json") == 0) {
            *ret_json = 1;
        } else if ((v = fct_table_word("debug", w)) != NULL) {
            act = w;
            json_object_set_new(q, v, json_true());
        } else {
            ok = strncmp(w, "--", 2) != 0 && debug_word(q, "bits", " ", w);
        }
        if (!ok)
            return fct_usage("debug: unknown '%s'; see fdctl debug --help", w);
    }
    /* only "cmd", the act and perhaps "group" are allowed together */
    if (act != NULL && json_object_size(q) > 2 + (json_object_get(q, "group") != NULL))
        return fct_usage(
            "debug: %s can only be combined with --group; ask one thing at a time", act);
    return 0;
}

static void
show_debug(json_t *o, const void *args)
{
    const char *panic = json_string_value(json_object_get(o, "panic"));
    char set[600], one[100];
    json_t *t;
    size_t i;

    (void)args;
    if (panic != NULL) {
        puts(panic[0] != '\0' ? panic : "no worker died in a panic");
        return;
    }
    if (!json_is_array(json_object_get(o, "topics"))) {
        fct_show(stdout, o, 0);
        return;
    }
    snprintf(set, sizeof(set), ",%s,", fct_str(o, "bits"));
    json_array_foreach(json_object_get(o, "known"), i, t) {
        snprintf(one, sizeof(one), ",%s,", fct_str(t, "name"));
        json_object_set_new(t, "set", json_boolean(strstr(set, one) != NULL));
    }
    fct_text(stdout,
        "level   {level}\nformat  {format}\nrate    {rate} lines/s, {dropped} not shown\n"
        "requests {requests}\nbits    [bits|{bits}][!bits|none]\n\nTOPIC      LEVEL  \n"
        "[*topics|{name:-10} {level:-6} {help}\n]\nBIT        SET   \n"
        "[*known|{name:-10} {set:-6} {help}\n]",
        o);
}

/* Only for the help: debug_question() parses the words. */
static const struct fct_opt debug_opts[] = { { "level", 0, "", .help = NULL },
    { "topic", 0, "", .help = NULL }, { "group", 0, "", .help = NULL }, JSON };

static const struct fct_line debug_line =
    FCT_LINE("fdctl debug [--level LEVEL] [--topic TOPIC=LEVEL]... [+BIT -BIT... |\n"
             "                    BIT,BIT...] [--json]\n"
             "       fdctl debug [--group N] WORD [--json]",
        "Without words, show log level, topics and debug bits. +BIT and -BIT change "
        "one\nbit, a list replaces all.",
        debug_opts, .command = "debug", .show = show_debug);

int
fct_cmd_debug(const struct fct *f, int argc, char **argv)
{
    json_t *answer = NULL, *q;
    int rc, json = 0;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fct_help(&debug_line);
    q = fct_question("debug");
    rc = debug_question(argc, argv, q, &json);
    if (rc == 0)
        rc = fct_ask_once(f, json_incref(q), 0, &answer);
    json_decref(q);
    return answer != NULL ? fct_finish(&debug_line, answer, NULL, json) : rc;
}

static const struct fct_opt ping_opts[] = {
    FCT_FLAG(0, "deep", deep, "to the worker and back, not only the gate"),
    FCT_U64('c', "count", "N", count, 100000000, "so often (1)"),
    FCT_FLAG(0, "json", q.json, "{\"ns\": N} for each"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line ping_line =
    FCT_LINE("fdctl ping [options]", "Round trip through shared memory.", ping_opts);

int
fct_cmd_ping(const struct fct *f, int argc, char **argv)
{
    struct args a = { .count = 1 };
    int rc = fct_parse(&ping_line, argc, argv, &a);
    fdc_t *s = NULL;
    uint64_t ns;

    if (rc != FCT_GO)
        return rc;
    rc = fct_open(f, 0, &s);
    for (; rc == 0 && a.count > 0; a.count--) {
        rc = fdc_ping(s, a.deep, &ns, f->timeout_ms);
        if (rc < 0)
            rc = fct_status_fail("ping", rc);
        else if (a.q.json)
            rc = printf("{\"ns\": %llu}\n", (unsigned long long)ns) < 0;
        else
            rc = printf("%s: %.1f us\n", a.deep ? "worker" : "gate", (double)ns / 1e3) < 0;
    }
    fdc_close(s);
    return rc;
}
