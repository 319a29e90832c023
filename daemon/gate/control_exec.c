/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Executes a request: checks the peer's permission and the arguments, logs it, calls the
 * command. */
#include "config.h"

#include "daemon/gate/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "daemon/gate/control_priv.h"
#include "daemon/gate/env.h"
#include "daemon/gate/names.h"
#include "daemon/gate/runtime.h"

#define CTL_SHOWN 60 /* bytes of a wrong value that an error shows */

static ctl_cmd_fn *const ctl_fns[CMD_IDX__N] = {
#define CTL_CMD(name, perm, effect, help) ctl_do_##name,
#define CTL_ARG(cmd, name, letter, type, need, min, max, form, value, help)
#include "daemon/tbl/ctl_cmds.h"
#undef CTL_CMD
#undef CTL_ARG
};

/* ---- arguments ------------------------------------------------------------- */

static json_t *
ctl_unknown_arg(int cmd, const char *key)
{
    const struct cmd_arg *near = cmd_nearest_arg(cmd, key);
    char takes[512] = "", fix[64];
    size_t at = 0;

    for (size_t i = 0; i < cmd_n_args && at < sizeof(takes); i++)
        if (cmd_args[i].cmd == cmd)
            at += (size_t)snprintf(takes + at, sizeof(takes) - at, "%s%s",
                at != 0 ? ", " : "", cmd_args[i].name);
    (void)snprintf(fix, sizeof(fix), "fdctl %s --help", cmd_rows[cmd].name);
    if (near != NULL)
        return ctl_fail(fix,
            "%s: unknown argument \"%.60s\"; did you mean \"%s\"? It takes: "
            "%s",
            cmd_rows[cmd].name, key, near->name, takes);
    return ctl_fail(fix, "%s: unknown argument \"%.60s\"; it takes: %s",
        cmd_rows[cmd].name, key, at != 0 ? takes : "none");
}

static int
ctl_fits(const struct cmd_arg *a, const json_t *v)
{
    switch (a->type) {
    case CMD_BOOL:
        return json_is_boolean(v);
    case CMD_INT:
        return json_is_integer(v) && json_integer_value(v) >= a->min &&
            json_integer_value(v) <= a->max;
    case CMD_STR:
        return json_is_string(v) && (int64_t)json_string_length(v) >= a->min &&
            (int64_t)json_string_length(v) <= a->max;
    default: /* CMD_ENUM */
        return json_is_string(v) &&
            cmd_is_choice(a, json_string_value(v), json_string_length(v));
    }
}

static json_t *
ctl_wrong_arg(int cmd, const struct cmd_arg *a, const json_t *v)
{
    char takes[256], fix[64], *shown = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    json_t *r;

    (void)snprintf(fix, sizeof(fix), "fdctl %s --help", cmd_rows[cmd].name);
    r = ctl_fail(fix, "%s: \"%s\" is %.*s; it takes %s", cmd_rows[cmd].name, a->name,
        CTL_SHOWN, shown != NULL ? shown : "?", cmd_takes(a, takes, sizeof(takes)));
    free(shown);
    return r;
}

/* Checks for required arguments. Returns NULL, or the error. */
static json_t *
ctl_missing_arg(int cmd, const json_t *rq)
{
    const struct cmd_arg *one = NULL, *other = NULL;
    int n_one = 0;
    char fix[64];

    (void)snprintf(fix, sizeof(fix), "fdctl %s --help", cmd_rows[cmd].name);
    for (size_t i = 0; i < cmd_n_args; i++) {
        const struct cmd_arg *a = &cmd_args[i];
        int is_here = a->cmd == cmd && json_object_get(rq, a->name) != NULL;

        if (a->cmd != cmd)
            continue;
        if (a->need == CMD_MUST && !is_here)
            return ctl_fail(fix, "%s: \"%s\" is missing: %s", cmd_rows[cmd].name, a->name,
                a->help);
        if (a->need == CMD_ONE) {
            other = one;
            one = a;
            n_one += is_here;
        }
    }
    if (one != NULL && n_one != 1)
        return ctl_fail(fix, "%s takes exactly one of \"%s\" and \"%s\"",
            cmd_rows[cmd].name, other != NULL ? other->name : one->name, one->name);
    return NULL;
}

/* Checks the arguments against the table. Returns NULL, or the error. */
static json_t *
ctl_check_args(int cmd, json_t *rq)
{
    const char *key;
    json_t *v;

    json_object_foreach(rq, key, v) {
        const struct cmd_arg *a = cmd_find_arg(cmd, key);

        if (strcmp(key, "cmd") == 0)
            continue;
        if (a == NULL)
            return ctl_unknown_arg(cmd, key);
        if (!ctl_fits(a, v))
            return ctl_wrong_arg(cmd, a, v);
    }
    return ctl_missing_arg(cmd, rq);
}

/* ---- who, and what for ------------------------------------------------------ */

json_t *
ctl_forbidden(const struct ctl *ctl, uid_t uid, const char *cmd, int perm)
{
    int admin = perm == CTL_ADMIN || ctl->rt->group == (gid_t)-1;
    const char *group = admin ? ctl->env->par->ipc_admin_group : ctl->env->par->ipc_group;
    char user[NAMES_BYTES], fix[256], what[64];

    names_of(ctl->names, uid, user, sizeof(user));
    if ((admin ? ctl->rt->admin_group : ctl->rt->group) == (gid_t)-1 && group[0] != '\0')
        (void)snprintf(fix, sizeof(fix),
            "sudo groupadd --system %.60s && sudo usermod "
            "-aG %.60s %s, then restart fdd and log in again",
            group, group, user);
    else
        (void)snprintf(fix, sizeof(fix),
            "sudo usermod -aG %.100s %s, then log in again; "
            "or sudo fdctl %s",
            group, user, cmd != NULL ? cmd : "...");
    (void)snprintf(what, sizeof(what), cmd != NULL ? "\"%s\"" : "any admin command", cmd);
    return ctl_fail(fix, "user %s may not use %s: that takes group %.100s", user, what,
        group);
}

/* Called before the command runs, so that one that ends the daemon is logged too. */
static void
ctl_log(const struct ctl *ctl, const struct ctl_conn *c, int cmd, json_t *rq)
{
    char user[NAMES_BYTES], *args;

    if (c == NULL || (cmd_rows[cmd].effect == CMD_SHOW && log_level < LOG_LV_DEBUG))
        return;
    names_of(ctl->names, c->uid, user, sizeof(user));
    args = json_dumps(rq, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (cmd_rows[cmd].effect == CMD_SHOW)
        log_debug("control: user %s (uid %u, pid %d) asks %s", user, (unsigned)c->uid,
            (int)c->pid, args != NULL ? args : cmd_rows[cmd].name);
    else
        log_audit("control: user %s (uid %u, pid %d) commands %s", user, (unsigned)c->uid,
            (int)c->pid, args != NULL ? args : cmd_rows[cmd].name);
    free(args);
}

static void
ctl_log_failure(const struct ctl_conn *c, int cmd, const json_t *r)
{
    char text[512];
    const char *error = json_string_value(json_object_get(r, "error"));

    if (c == NULL || error == NULL || cmd_rows[cmd].effect == CMD_SHOW)
        return;
    log_audit("control: %s of pid %d failed: %s", cmd_rows[cmd].name, (int)c->pid,
        log_quote(error, text, sizeof(text)));
}

static json_t *
ctl_unknown(const char *cmd)
{
    int near = cmd_nearest(cmd);

    if (near >= 0)
        return ctl_fail("fdctl --help", "unknown command \"%.40s\"; did you mean \"%s\"?",
            cmd, cmd_rows[near].name);
    return ctl_fail("fdctl --help", "unknown command \"%.40s\"", cmd);
}

json_t *
ctl_execute(struct ctl *ctl, struct ctl_conn *c, json_t *rq, int perm, uint64_t now_ns)
{
    const char *name = json_string_value(json_object_get(rq, "cmd"));
    int cmd = name != NULL ? cmd_find(name) : -1;
    json_t *r;

    if (name == NULL)
        return ctl_fail("{\"cmd\": \"status\"}", "the request has no \"cmd\"");
    if (cmd < 0)
        return ctl_unknown(name);
    if (c != NULL && cmd_rows[cmd].perm > perm)
        return ctl_forbidden(ctl, c->uid, name, cmd_rows[cmd].perm);
    r = ctl_check_args(cmd, rq);
    if (r != NULL)
        return r;
    ctl_log(ctl, c, cmd, rq);
    r = ctl_fns[cmd](ctl, c, rq, now_ns);
    if (r != NULL)
        ctl_log_failure(c, cmd, r);
    return r;
}
