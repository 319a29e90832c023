/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

#include <string.h>
#include <time.h>

#include "daemon/common/version.h"

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

    fct_age(fct_num(y, "since_ms"), age, sizeof(age));
    fct_age(fct_num(y, "next_in_ms"), next, sizeof(next));
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

    fct_age(fct_num(w, "uptime_ms"), age, sizeof(age));
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
        fct_num(m, "vocab"),
        json_is_true(json_object_get(m, "has_tokenizer"))
            ? "with tokenizer"
            : "no tokenizer: requests by ids");
}

static void
show_status(const json_t *st)
{
    const json_t *m = json_object_get(st, "model"), *r = json_object_get(st, "requests");
    const json_t *ws = json_object_get(st, "workers");
    char age[32], version[80];
    int differs = fct_daemon_version(st, version, sizeof(version));
    size_t i;

    fct_age(fct_num(st, "uptime_ms"), age, sizeof(age));
    printf("fdd       %s, %s, pid %lld, up %s\n", version, fct_str(st, "state"),
        fct_num(st, "pid"), age);
    if (differs)
        printf("          this fdctl is %s: start the daemon again, or install both from "
               "one build\n",
            ver_text());
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
           "          %lld rejected, %lld of them because they would have waited too long\n",
        fct_num(r, "running"), fct_num(r, "queued"), fct_num(r, "queued_tokens"),
        fct_num(r, "done"), fct_num(r, "error"), fct_num(r, "rejected"),
        fct_num(r, "shed"));
    printf("sessions  %lld\n", fct_num(st, "sessions"));
    show_crash(json_object_get(st, "last_crash"));
}

const struct fct_line fct_line_status = { .usage = "fdctl status [--json]",
    .about = "State of the daemon, its worker and its model.",
    .opts = { fct_json_opts },
    .command = "status",
    .hint = FCT_HINT_USAGE,
    .show = show_status };
