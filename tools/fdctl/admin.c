/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/version.h"

/* Ask one question over a connection of its own; fdctl's exit code. */
static int
ask(const struct fct *f, json_t *question, json_t **ret)
{
    struct fct_admin *a;
    int rc = fct_admin_open(f, 0, &a);

    if (rc != 0) {
        json_decref(question);
        return rc;
    }
    rc = fct_ask(a, question, 0, ret);
    fct_admin_close(a);
    return rc;
}

static json_t *
question(const char *cmd)
{
    return json_pack("{s:s}", "cmd", cmd);
}

static void
age_text(long long ms, char *ret, size_t ret_bytes)
{
    if (ms < 1000)
        snprintf(ret, ret_bytes, "%lld ms", ms);
    else if (ms < 120000)
        snprintf(ret, ret_bytes, "%.1f s", (double)ms / 1e3);
    else if (ms < 7200000)
        snprintf(ret, ret_bytes, "%lld min", ms / 60000);
    else if (ms < 172800000)
        snprintf(ret, ret_bytes, "%.1f h", (double)ms / 3.6e6);
    else
        snprintf(ret, ret_bytes, "%lld days", ms / 86400000);
}

/* --json prints the answer without "ok". */
static int
finish(json_t *answer, int json, void (*show)(const json_t *answer))
{
    int rc = 0;

    json_object_del(answer, "ok");
    if (json)
        rc = fct_print_json(answer);
    else
        show(answer);
    json_decref(answer);
    return rc;
}

enum { O_HELP = 1, O_JSON, O_ORIGIN, O_ALL, O_SESSION, O_WAIT, O_OFF, O_NOW, O_TIMEOUT };
#define OPT_JSON { "json", 0, NULL, "the answer as JSON", O_JSON }
#define OPT_HELP { "help", 'h', NULL, "this text", O_HELP }

/* What the simple commands parse: options that are flags, words in order. */
struct args {
    int json, origin, all, wait, off, now, n_words;
    const char *words[16];
    uint64_t session, timeout_ms;
    int has_session, has_timeout;
};

/* 0: go on; 1: *ret_rc is the exit code. */
static int
parse(int argc, char **argv, const struct fct_opt *opts, const char *usage,
    const char *about,
    int max_words, struct args *a, int *ret_rc)
{
    struct fct_cli c = { .argc = argc, .argv = argv };
    struct fct_opt all[FCT_OPTS_MAX];
    int id;

    fct_table_opts(argv[0], opts, all);
    opts = all;
    memset(a, 0, sizeof(*a));
    *ret_rc = FCT_EX_USAGE;
    while ((id = fct_cli_next(&c, opts)) != FCT_CLI_END) {
        if (id == FCT_CLI_BAD)
            return 1;
        if (id == O_HELP) {
            printf("usage: fdctl %s\n\n%s\n\n", usage, about);
            fct_help_opts(stdout, opts);
            *ret_rc = 0;
            return 1;
        }
        a->json |= id == O_JSON;
        a->origin |= id == O_ORIGIN;
        a->all |= id == O_ALL;
        a->wait |= id == O_WAIT;
        a->off |= id == O_OFF;
        a->now |= id == O_NOW;
        if (id == O_SESSION) {
            if (fct_u64("--session", c.value, INT64_MAX, &a->session) != 0)
                return 1;
            a->has_session = 1;
        } else if (id == O_TIMEOUT) {
            if (fct_u64("--timeout-ms", c.value, INT64_MAX, &a->timeout_ms) != 0)
                return 1;
            a->has_timeout = 1;
        } else if (id == FCT_CLI_WORD) {
            if (a->n_words >= max_words) {
                fct_fail(0, "%s: unexpected '%s'; usage: fdctl %s", argv[0], c.value,
                    usage);
                return 1;
            }
            a->words[a->n_words++] = c.value;
        }
    }
    return 0;
}

/* ---- status ----------------------------------------------------------------- */

static void
show_texts(const char *what, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i == 0)
            printf("          %s\n", what);
        printf("            %s\n", json_string_value(json_array_get(list, i)));
    }
}

/* How a worker, or the daemon before, ended unasked. */
static void
show_crash(const json_t *c)
{
    long long end = fct_num(c, "ended_s"), start = fct_num(c, "started_s");
    time_t t = (time_t)(end != 0 ? end : start);
    char when[32] = "?";
    struct tm tm;

    if (!json_is_object(c))
        return;
    if (t != 0 && localtime_r(&t, &tm) != NULL)
        (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
    printf("crash     %s, pid %lld, %s%s: %s\n", fct_str(c, "program"), fct_num(c, "pid"),
        end != 0 ? "" : "started ", when, fct_str(c, "how"));
    show_texts("its last words:", json_object_get(c, "panic"));
    show_texts("the end of its log:", json_object_get(c, "lines"));
}

/* What a blocked worker waits for. */
static void
show_retry(const json_t *y)
{
    char age[32], next[32];

    age_text(fct_num(y, "since_ms"), age, sizeof(age));
    age_text(fct_num(y, "next_in_ms"), next, sizeof(next));
    printf("          waits for %s since %s, tried %lld times, next in %s\n          %s\n",
        fct_str(y, "waits_for"), age, fct_num(y, "tries"), next, fct_str(y, "error"));
    if (fct_str(y, "fix")[0] != '\0')
        printf("          %s\n", fct_str(y, "fix"));
}

static void
show_worker(const json_t *w)
{
    const json_t *retry = json_object_get(w, "retry");
    char age[32];

    age_text(fct_num(w, "uptime_ms"), age, sizeof(age));
    printf("worker    %s", fct_str(w, "phase"));
    if (fct_num(w, "pid") != 0)
        printf(", pid %lld, up %s", fct_num(w, "pid"), age);
    if (strcmp(fct_str(w, "phase"), "loading") == 0)
        printf(", %lld %% (%lld of %lld MiB)", fct_num(w, "load_percent"),
            fct_num(w, "load_done_bytes") >> 20, fct_num(w, "load_total_bytes") >> 20);
    if (fct_num(w, "deaths") > 0)
        printf(", %lld deaths", fct_num(w, "deaths"));
    if (fct_num(w, "restart_in_ms") > 0 && !json_is_object(retry))
        printf(", next start in %lld ms", fct_num(w, "restart_in_ms"));
    putchar('\n');
    if (json_is_object(retry)) {
        show_retry(retry);
    } else {
        if (fct_str(w, "error")[0] != '\0')
            printf("          %s\n", fct_str(w, "error"));
        if (fct_str(w, "fix")[0] != '\0')
            printf("          %s\n", fct_str(w, "fix"));
    }
    if (fct_num(w, "itl_target_us") > 0)
        printf("          prompts leave running answers %.1f ms a token at most\n",
            (double)fct_num(w, "itl_target_us") / 1e3);
    if (fct_str(w, "last_death")[0] != '\0')
        printf("          last death: %s\n", fct_str(w, "last_death"));
    show_crash(json_object_get(w, "last_crash"));
}

static void
show_model(const json_t *m)
{
    char own[64] = "";

    if (fct_num(m, "model_len") > fct_num(m, "max_model_len"))
        snprintf(own, sizeof(own), " (the model itself: %lld)", fct_num(m, "model_len"));
    printf("model     %s (%s)\n          %lld tokens at most%s, vocabulary %lld, %s\n",
        fct_str(m, "name"), fct_str(m, "path"), fct_num(m, "max_model_len"), own,
        fct_num(m, "vocab"), json_is_true(json_object_get(m, "has_tokenizer"))
        ? "with tokenizer" : "no tokenizer: requests by ids");
}

static void
show_status(const json_t *st)
{
    const json_t *m = json_object_get(st, "model"), *r = json_object_get(st, "requests");
    const json_t *ws = json_object_get(st, "workers");
    char age[32], version[80];
    int differs = fct_daemon_version(st, version, sizeof(version));
    size_t i;

    age_text(fct_num(st, "uptime_ms"), age, sizeof(age));
    printf("fdd       %s, %s, pid %lld, up %s\n", version, fct_str(st, "state"),
        fct_num(st, "pid"), age);
    if (differs)
        printf("          this fdctl is %s: start the daemon again, or install both from "
            "one build\n", ver_text());
    printf("socket    %s\n", fct_str(st, "socket"));
    for (i = 0; i < json_array_size(ws); i++)
        show_worker(json_array_get(ws, i));
    if (json_array_size(ws) == 0)
        show_worker(json_object_get(st, "worker"));
    if (json_is_object(m))
        show_model(m);
    else
        printf("model     not ready\n");
    printf("requests  %lld running, %lld queued (%lld tokens); %lld done, %lld failed\n"
        "          %lld refused, %lld of them because they would have waited too long\n",
        fct_num(r, "running"), fct_num(r, "queued"), fct_num(r, "queued_tokens"), fct_num(r, "done"),
        fct_num(r, "error"), fct_num(r, "refused"), fct_num(r, "shed"));
    printf("sessions  %lld\n", fct_num(st, "sessions"));
    show_crash(json_object_get(st, "last_crash"));
}

static const struct fct_opt plain_opts[] = { OPT_JSON, OPT_HELP, FCT_OPT_END };

static int
plain(const struct fct *f, int argc, char **argv, const char *usage, const char *about,
    void (*show)(const json_t *))
{
    json_t *answer;
    struct args a;
    int rc;

    if (parse(argc, argv, plain_opts, usage, about, 0, &a, &rc))
        return rc;
    rc = ask(f, question(argv[0]), &answer);
    return rc == 0 ? finish(answer, a.json, show) : rc;
}

int
fct_cmd_status(const struct fct *f, int argc, char **argv)
{
    return plain(f, argc, argv, "status [--json]",
        "State of the daemon, its worker and its model.", show_status);
}

/* ---- lists ------------------------------------------------------------------ */

static void
show_requests(const json_t *o)
{
    fct_show(stdout, json_object_get(o, "requests"), 0);
}

static void
show_clients(const json_t *o)
{
    fct_show(stdout, json_object_get(o, "clients"), 0);
}

int
fct_cmd_requests(const struct fct *f, int argc, char **argv)
{
    return plain(f, argc, argv, "requests [--json]", "Requests that have not ended.",
        show_requests);
}

int
fct_cmd_clients(const struct fct *f, int argc, char **argv)
{
    return plain(f, argc, argv, "clients [--json]", "Sessions of client programs.",
        show_clients);
}

static void
show_any(const json_t *o)
{
    fct_show(stdout, o, 0);
}

int
fct_cmd_model(const struct fct *f, int argc, char **argv)
{
    return plain(f, argc, argv, "model [--json]",
        "The model: sizes, memory, where its files are.", show_any);
}

int
fct_cmd_program(const struct fct *f, int argc, char **argv)
{
    return plain(f, argc, argv, "program [--json]",
        "The operations that make up one step of the model.", show_any);
}

/* ---- cancel ----------------------------------------------------------------- */

static int
cancel_one(struct fct_admin *a, const char *what, long long id, long long *n)
{
    json_t *answer;
    int rc = fct_ask(a, json_pack("{s:s, s:I}", "cmd", "cancel", what, (json_int_t)id), 0,
        &answer);

    if (rc != 0)
        return rc;
    *n += fct_num(answer, "cancelled");
    json_decref(answer);
    return 0;
}

static int
cancel_all(struct fct_admin *a, long long *n)
{
    json_t *answer, *r;
    size_t i;
    int rc = fct_ask(a, question("requests"), 0, &answer);

    if (rc != 0)
        return rc;
    json_array_foreach(json_object_get(answer, "requests"), i, r) {
        json_t *one = NULL;

        /* It may have ended since. */
        rc = fct_ask(a, json_pack("{s:s, s:I}", "cmd", "cancel", "id",
            (json_int_t)fct_num(r, "id")), 1, &one);
        if (rc == 0)
            *n += fct_num(one, "cancelled");
        json_decref(one);
        if (rc != 0 && rc != FCT_EX_DATA)
            break;
        rc = 0;
    }
    json_decref(answer);
    return rc;
}

int
fct_cmd_cancel(const struct fct *f, int argc, char **argv)
{
    static const struct fct_opt opts[] = {
        { "all", 0, NULL, "every request of every client", O_ALL },
        { "session", 0, "", NULL, O_SESSION },
        OPT_JSON, OPT_HELP, FCT_OPT_END
    };
    struct fct_admin *adm;
    struct args a;
    long long n = 0;
    uint64_t id;
    int rc, i;

    if (parse(argc, argv, opts, "cancel ID... | --session N | --all [--json]",
            "End requests; fdctl requests shows their ids.", 16, &a, &rc))
        return rc;
    if (a.n_words == 0 && !a.all && !a.has_session)
        return fct_fail(FCT_EX_USAGE, "cancel: which? give ids (fdctl requests), "
            "--session or --all");
    for (i = 0; i < a.n_words; i++)
        if ((rc = fct_u64("cancel", a.words[i], INT64_MAX, &id)) != 0)
            return rc;
    rc = fct_admin_open(f, 0, &adm);
    if (rc != 0)
        return rc;
    if (a.all)
        rc = cancel_all(adm, &n);
    if (rc == 0 && a.has_session)
        rc = cancel_one(adm, "session", (long long)a.session, &n);
    for (i = 0; i < a.n_words && rc == 0; i++)
        rc = cancel_one(adm, "id", strtoll(a.words[i], NULL, 10), &n);
    fct_admin_close(adm);
    if (rc != 0)
        return rc;
    if (a.json)
        printf("{\"cancelled\": %lld}\n", n);
    else
        printf("%lld cancelled\n", n);
    return 0;
}

/* ---- config, set, reload ---------------------------------------------------- */

/* "    (auto: 512)", "    (in force: 512)", "    (after a restart: 7, FILE:3)". */
static void
config_notes(const json_t *p, char *ret, size_t ret_bytes)
{
    const json_t *w = json_object_get(p, "waiting");
    const char *now = fct_str(p, "effective"), *at = fct_str(w, "where");
    size_t n = 0;

    ret[0] = '\0';
    if (now[0] != '\0')
        n = (size_t)snprintf(ret, ret_bytes, "    (%s: %s)",
            json_is_true(json_object_get(p, "auto")) ? "auto" : "in force", now);
    if (w != NULL && n < ret_bytes)
        snprintf(ret + n, ret_bytes - n, "    (after a restart: %s%s%s)",
            fct_str(w, "value")[0] != '\0' ? fct_str(w, "value") : "nothing",
            at[0] != '\0' ? ", " : "", at);
}

/* name: what was asked for, or NULL. A row that goes by its own name is shown as its
 * value alone, which scripts read; the rest goes to standard error. */
static void
show_config(const json_t *o, int origin, const char *name)
{
    const json_t *list = json_object_get(o, "config"), *p;
    char notes[1536];
    size_t i;

    if (fct_str(o, "note")[0] != '\0')
        fct_fail(0, "%s", fct_str(o, "note"));
    json_array_foreach(list, i, p) {
        const char *from = fct_str(p, "origin"), *at = fct_str(p, "where");

        config_notes(p, notes, sizeof(notes));
        if (name != NULL && !origin && strcmp(name, fct_str(p, "name")) == 0) {
            puts(fct_str(p, "value"));
            if (notes[0] != '\0')
                fct_fail(0, "%s%s", name, notes);
        } else if (origin) {
            printf("%s = %s%s    (%s%s%s)\n", fct_str(p, "name"), fct_str(p, "value"),
                notes, from, at[0] != '\0' ? " " : "", at);
        } else {
            printf("%s = %s%s\n", fct_str(p, "name"), fct_str(p, "value"), notes);
        }
    }
}

int
fct_cmd_config(const struct fct *f, int argc, char **argv)
{
    static const struct fct_opt opts[] = {
        { "origin", 0, NULL, "show where each value comes from", O_ORIGIN },
        OPT_JSON, OPT_HELP, FCT_OPT_END
    };
    json_t *answer, *q;
    struct args a;
    int rc;

    if (parse(argc, argv, opts, "config [NAME] [--origin] [--json]",
            "Parameters in force, or the value of one.", 1, &a, &rc))
        return rc;
    q = question("config");
    if (a.n_words == 1)
        json_object_set_new(q, "name", json_string(a.words[0]));
    rc = ask(f, q, &answer);
    if (rc != 0)
        return rc;
    if (a.json) {
        json_object_del(answer, "ok");
        rc = fct_print_json(answer);
    } else {
        show_config(answer, a.origin, a.n_words == 1 ? a.words[0] : NULL);
    }
    json_decref(answer);
    return rc;
}

static int
set_one(struct fct_admin *adm, const char *word, int json)
{
    const char *eq = strchr(word, '=');
    json_t *answer, *name, *value, *q;
    int rc;

    name = fct_json_text(word, (size_t)(eq - word));
    value = fct_json_text(eq + 1, strlen(eq + 1));
    q = json_pack("{s:s, s:o, s:o}", "cmd", "set", "name", name, "value", value);
    rc = fct_ask(adm, q, 0, &answer);
    if (rc != 0)
        return rc;
    if (fct_str(answer, "warning")[0] != '\0')
        fct_fail(0, "%s", fct_str(answer, "warning"));
    json_object_del(answer, "ok");
    if (json)
        rc = fct_print_json(answer);
    else
        printf("%s = %s\n", fct_str(answer, "name"), fct_str(answer, "value"));
    json_decref(answer);
    return rc;
}

int
fct_cmd_set(const struct fct *f, int argc, char **argv)
{
    struct fct_admin *adm;
    struct args a;
    int rc, i;

    if (parse(argc, argv, plain_opts, "set NAME=VALUE... [--json]",
            "Change parameters of the running daemon, until its next reload or start.",
            16, &a,
            &rc))
        return rc;
    if (a.n_words == 0)
        return fct_fail(FCT_EX_USAGE, "set: give NAME=VALUE, such as log.level=debug");
    for (i = 0; i < a.n_words; i++)
        if (strchr(a.words[i], '=') == NULL)
            return fct_fail(FCT_EX_USAGE, "set: '%s' has no '='; write NAME=VALUE",
                a.words[i]);
    rc = fct_admin_open(f, 0, &adm);
    for (i = 0; i < a.n_words && rc == 0; i++)
        rc = set_one(adm, a.words[i], a.json);
    if (i > 0)
        fct_admin_close(adm);
    return rc;
}

static const char *
shown(const json_t *o, const char *key)
{
    return fct_str(o, key)[0] != '\0' ? fct_str(o, key) : "(nothing)";
}

static void
show_reload(const json_t *o)
{
    const json_t *w;
    size_t i;

    json_array_foreach(json_object_get(o, "changes"), i, w)
        printf("%s: %s -> %s\n", fct_str(w, "name"), shown(w, "old"), shown(w, "new"));
    json_array_foreach(json_object_get(o, "waiting"), i, w)
        printf("%s: %s -> %s waits for a restart%s%s%s\n", fct_str(w, "name"),
            shown(w, "running"), shown(w, "new"), fct_str(w, "where")[0] != '\0' ? " (" : "",
            fct_str(w, "where"), fct_str(w, "where")[0] != '\0' ? ")" : "");
    printf("%lld changed\n", fct_num(o, "changed"));
    json_array_foreach(json_object_get(o, "warnings"), i, w)
        printf("warning: %s\n", json_is_string(w) ? json_string_value(w) : "");
}

int
fct_cmd_reload(const struct fct *f, int argc, char **argv)
{
    return plain(f, argc, argv, "reload [--json]",
        "Read the configuration file again and take over what may change.", show_reload);
}

/* ---- drain, stop, debug ----------------------------------------------------- */

static void
show_drain(const json_t *o)
{
    printf("%s, %lld requests left\n", fct_str(o, "state"), fct_num(o, "requests"));
}

int
fct_cmd_drain(const struct fct *f, int argc, char **argv)
{
    static const struct fct_opt opts[] = {
        { "wait", 0, NULL, NULL, O_WAIT },
        { "timeout-ms", 0, "", NULL, O_TIMEOUT },
        { "off", 0, NULL, NULL, O_OFF },
        OPT_JSON, OPT_HELP, FCT_OPT_END
    };
    struct fct patient = *f;
    json_t *answer, *q;
    struct args a;
    int rc, drained;

    if (parse(argc, argv, opts, "drain [--wait] [--off] [--timeout-ms MS] [--json]",
            "Take no new requests; those that run go on.", 0, &a, &rc))
        return rc;
    q = question("drain");
    if (a.off)
        json_object_set_new(q, "off", json_true());
    if (a.wait) {
        json_object_set_new(q, "wait", json_true());
        patient.timeout_ms = -1;
    }
    if (a.has_timeout)
        json_object_set_new(q, "timeout_ms", json_integer((json_int_t)a.timeout_ms));
    rc = ask(&patient, q, &answer);
    if (rc != 0)
        return rc;
    drained = json_is_true(json_object_get(answer, "drained"));
    rc = finish(answer, a.json, show_drain);
    return rc == 0 && a.wait && !a.off && !drained ? FCT_EX_TEMP : rc;
}

static void
show_stop(const json_t *o)
{
    const char *unit = fct_str(o, "socket_unit");
    int n;

    printf("pid %lld is stopping, %lld requests left\n", fct_num(o, "pid"), fct_num(o,
        "requests"));
    if (unit[0] == '\0')
        return;
    n = strlen(unit) > 7 && strcmp(unit + strlen(unit) - 7, ".socket") == 0 ?
        (int)strlen(unit) - 7 : 0;
    if (n == 0)
        printf("the service manager still listens: the next client starts fdd again\n");
    else
        printf("%s still listens: the next client starts fdd again; to keep it stopped:\n"
            "  sudo systemctl stop %s %.*s\n", unit, unit, n, unit);
}

int
fct_cmd_stop(const struct fct *f, int argc, char **argv)
{
    static const struct fct_opt opts[] = {
        { "now", 0, NULL, NULL, O_NOW },
        { "timeout-ms", 0, "", NULL, O_TIMEOUT },
        OPT_JSON, OPT_HELP, FCT_OPT_END
    };
    json_t *answer, *q;
    struct args a;
    int rc;

    if (parse(argc, argv, opts, "stop [--now] [--timeout-ms MS] [--json]",
            "End the daemon when the running requests have ended.", 0, &a, &rc))
        return rc;
    q = question("stop");
    if (a.now)
        json_object_set_new(q, "now", json_true());
    if (a.has_timeout)
        json_object_set_new(q, "timeout_ms", json_integer((json_int_t)a.timeout_ms));
    rc = ask(f, q, &answer);
    return rc == 0 ? finish(answer, a.json, show_stop) : rc;
}

static int
debug_has(const char *bits, const char *bit)
{
    size_t n = strlen(bit);

    for (const char *p = bits; *p != '\0';) {
        size_t len = strcspn(p, ",");

        if (len == n && memcmp(p, bit, n) == 0)
            return 1;
        p += len + (p[len] == ',');
    }
    return 0;
}

static void
show_debug(const json_t *o)
{
    const json_t *panic = json_object_get(o, "panic"), *t;
    size_t i;

    if (json_is_string(panic)) {
        const char *text = json_string_value(panic);

        puts(text[0] != '\0' ? text : "no worker died in a panic");
        return;
    }
    if (!json_is_array(json_object_get(o, "topics"))) {
        fct_show(stdout, o, 0);
        return;
    }
    printf("level   %s\nformat  %s\nrate    %lld lines/s, %lld not shown\nrequests %s\n",
        fct_str(o, "level"), fct_str(o, "format"), fct_num(o, "rate"), fct_num(o, "dropped"),
        fct_str(o, "requests"));
    printf("bits    %s\n\n%-10s %-6s %s\n", fct_str(o, "bits")[0] != '\0' ? fct_str(o, "bits") :
        "none", "TOPIC", "LEVEL", "");
    json_array_foreach(json_object_get(o, "topics"), i, t)
        printf("%-10s %-6s %s\n", fct_str(t, "name"), fct_str(t, "level"), fct_str(t, "help"));
    printf("\n%-10s %-6s\n", "BIT", "SET");
    json_array_foreach(json_object_get(o, "known"), i, t)
        printf("%-10s %-6s %s\n", fct_str(t, "name"), debug_has(fct_str(o, "bits"),
            fct_str(t, "name")) ? "yes" : "no", fct_str(t, "help"));
}

/* Append a word to a list in text. 0: too long. */
static int
debug_word(char *list, size_t bytes, const char *sep, const char *w)
{
    size_t at = strlen(list);

    if (w[0] == '\0' || at + strlen(w) + 2 > bytes)
        return 0;
    (void)snprintf(list + at, bytes - at, "%s%s", at > 0 ? sep : "", w);
    return 1;
}

/* The value of an option in this word or the next; NULL: it is not this
 * option. *ret_bad: it lacks one. */
static const char *
debug_option(const char *name, int argc, char **argv, int *i, int *ret_bad)
{
    size_t n = strlen(name);

    if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] != '\0' && argv[*i][n] != '='))
        return NULL;
    if (argv[*i][n] == '=')
        return argv[*i] + n + 1;
    if (*i + 1 >= argc) {
        *ret_bad = fct_fail(FCT_EX_USAGE, "debug: %s needs a value, such as %s", name,
            strcmp(name, "--level") == 0 ? "debug" : "gate=debug");
        return "";
    }
    return argv[++*i];
}

/* +bit, -bit and bit are words here, so "-kv" is not an option. */
static int
debug_question(int argc, char **argv, json_t *q, int *ret_json)
{
    char bits[512] = "", topics[512] = "";
    const char *v;
    int bad = 0, ok = 1;

    for (int i = 1; i < argc && bad == 0; i++) {
        const char *w = argv[i];

        if (strcmp(w, "--json") == 0)
            *ret_json = 1;
        else if ((v = debug_option("--level", argc, argv, &i, &bad)) != NULL)
            json_object_set_new(q, "level", fct_json_text(v, strlen(v)));
        else if ((v = debug_option("--topic", argc, argv, &i, &bad)) != NULL)
            ok = bad != 0 || debug_word(topics, sizeof(topics), ",", v);
        else if ((v = fct_table_word("debug", w)) != NULL)
            json_object_set_new(q, v, json_true());
        else
            ok = strncmp(w, "--", 2) != 0 && debug_word(bits, sizeof(bits), " ", w);
        if (!ok)
            return fct_fail(FCT_EX_USAGE, "debug: unknown '%s'; see fdctl debug --help",
                w);
    }
    if (bad != 0)
        return bad;
    if (bits[0] != '\0')
        json_object_set_new(q, "bits", fct_json_text(bits, strlen(bits)));
    if (topics[0] != '\0')
        json_object_set_new(q, "topic", fct_json_text(topics, strlen(topics)));
    return 0;
}

static void
help_debug(void)
{
    static const struct fct_opt opts[] = {
        { "level", 0, "", NULL, O_HELP },
        { "topic", 0, "", NULL, O_HELP },
        OPT_JSON, OPT_HELP, FCT_OPT_END
    };
    struct fct_opt all[FCT_OPTS_MAX];

    fct_table_opts("debug", opts, all);
    puts("usage: fdctl debug [--level LEVEL] [--topic TOPIC=LEVEL]... [+BIT -BIT... |\n"
        "                    BIT,BIT...] [--json]\n"
        "       fdctl debug WORD [--json]\n\n"
        "Without words, show log level, topics and debug bits. +BIT and -BIT change one\n"
        "bit, a list replaces all.\n");
    fct_help_opts(stdout, all);
    puts("\nwords:");
    fct_help_words(stdout, "debug");
}

int
fct_cmd_debug(const struct fct *f, int argc, char **argv)
{
    json_t *answer, *q;
    int rc, i, json = 0;

    for (i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help_debug();
            return 0;
        }
    q = question("debug");
    rc = debug_question(argc, argv, q, &json);
    if (rc != 0) {
        json_decref(q);
        return rc;
    }
    rc = ask(f, q, &answer);
    return rc == 0 ? finish(answer, json, show_debug) : rc;
}

/* ---- pause ------------------------------------------------------------------ */

static void
show_pause(const json_t *o)
{
    printf("%s, %lld requests queued, %lld running\n", fct_str(o, "state"), fct_num(o, "queued"),
        fct_num(o, "running"));
}

int
fct_cmd_pause(const struct fct *f, int argc, char **argv)
{
    static const struct fct_opt opts[] = {
        { "off", 0, NULL, NULL, O_OFF },
        OPT_JSON, OPT_HELP, FCT_OPT_END
    };
    json_t *answer, *q;
    struct args a;
    int rc;

    if (parse(argc, argv, opts, "pause [--off] [--json]",
            "Queue what comes and start none of it; those that run go on. Ends with --off,\n"
            "or when the daemon drains or stops.", 0, &a, &rc))
        return rc;
    q = question("pause");
    if (a.off)
        json_object_set_new(q, "off", json_true());
    rc = ask(f, q, &answer);
    return rc == 0 ? finish(answer, a.json, show_pause) : rc;
}
