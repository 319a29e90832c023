/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"

#include <dirent.h>
#include <sys/stat.h>

#include "daemon/common/listened.h"
#include "libclient/fdwhere.h"

/* The daemons of this machine: a daemon is found by its lock or socket in a runtime
 * folder (libclient/fdwhere.h) or in an instance's folder in one. Nothing here starts a
 * daemon: it only connects to the admin socket, which systemd does not listen on. */

#define LS_MAX        256
#define LS_TIMEOUT_MS 2000

struct ls {
    int json;
    const struct fct *f;
    json_t *list;
    struct stat seen[LS_MAX]; /* the folders looked at */
    size_t n;
};

static json_t *
text(const char *s)
{
    return s[0] != '\0' ? fct_json_text(s, strlen(s)) : json_null();
}

/* The daemon's status by its own answer, else by the folder's files. uid: its user. */
static json_t *
describe(const struct fct *f, const char *name, uid_t uid)
{
    json_t *st = NULL, *w, *o;
    int rc = fct_ask_once(f, fct_question("status"), 1, &st);
    pid_t pid = rc != 0 ? fct_daemon_pid(f) : (pid_t)fct_num(st, "pid");
    const char *instance = fct_str(st, "instance"), *socket = fct_str(st, "socket");
    const char *state = fct_str(st, "state");
    char user[64];

    w = json_object_get(st, "worker");
    if (strcmp(state, "running") == 0 && strcmp(fct_str(w, "phase"), "ready") != 0)
        state = fct_str(w, "phase");
    if (rc != 0)
        state = rc == EX_NOPERM ? pid != 0 ? "no permission" : "dead"
            : pid > 0           ? "no answer"
            : lsn_is_listened(f->socket)
            ? "starts on use" /* a socket unit does while its daemon is down */
            : "dead";
    o = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
        instance[0] != '\0' ? instance : name, "state", text(state), "model",
        text(fct_str(json_object_get(st, "model"), "name")), "pid",
        pid > 0 ? json_integer(pid) : json_null(), "user", text(fct_user(uid, user)),
        "device", text(fct_str(w, "device")), "socket",
        text(socket[0] != '\0' ? socket : f->socket), "runtime_dir", text(f->dir));
    json_decref(st);
    return o;
}

/* The shown columns as texts. Takes over the reference to o. */
static json_t *
row(json_t *o)
{
    static const char *const columns[][2] = { { "name", "NAME" }, { "state", "STATE" },
        { "model", "MODEL" }, { "pid", "PID" }, { "user", "USER" },
        { "device", "DEVICE" }, { "socket", "SOCKET" } };
    json_t *r = json_object();

    for (size_t k = 0; k < sizeof(columns) / sizeof(columns[0]); k++) {
        json_t *v = json_object_get(o, columns[k][0]);

        json_object_set_new(r, columns[k][1],
            json_is_integer(v) ? json_sprintf("%lld", (long long)json_integer_value(v))
                : json_string_length(v) > 0 ? json_incref(v)
                                            : json_string("-"));
    }
    json_decref(o);
    return r;
}

/* Add a folder's daemon, unless the folder has been seen or has no lock and no socket. */
static void
add(struct ls *ls, const char *name, const char *dir)
{
    struct fct f = *ls->f;
    char lock[FDW_PATH_BYTES + 16];
    struct stat st;
    json_t *o;

    if (strlen(dir) > 490 || stat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || ls->n == LS_MAX)
        return;
    for (size_t i = 0; i < ls->n; i++)
        if (ls->seen[i].st_dev == st.st_dev && ls->seen[i].st_ino == st.st_ino)
            return;
    ls->seen[ls->n++] = st;
    snprintf(f.dir, sizeof(f.dir), "%.490s", dir);
    snprintf(f.socket, sizeof(f.socket), "%.490s/" FDW_SOCKET, dir);
    snprintf(f.admin, sizeof(f.admin), "%.490s/admin.sock", dir);
    snprintf(lock, sizeof(lock), "%.490s/" FDW_LOCK, dir);
    if (f.timeout_ms < 0 || f.timeout_ms > LS_TIMEOUT_MS)
        f.timeout_ms = LS_TIMEOUT_MS;
    if (stat(lock, &st) != 0 && stat(f.socket, &st) != 0)
        return;
    o = describe(&f, name, st.st_uid);
    json_array_append_new(ls->list, ls->json ? o : row(o));
}

static void
add_base(struct ls *ls, const char *base)
{
    char dir[FDW_PATH_BYTES * 2];
    struct dirent **names;
    int n;

    add(ls, "", base);
    n = scandir(base, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (fdw_is_name(names[i]->d_name)) {
            snprintf(dir, sizeof(dir), "%s/%s", base, names[i]->d_name);
            add(ls, names[i]->d_name, dir);
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

#define FCT_ARGS struct ls
static const struct fct_opt opts[] = { FCT_FLAG(0, "json", json, "the list as JSON"),
    FCT_OPT_HELP, FCT_OPT_END };

static const struct fct_line line = FCT_LINE("fdctl ls [--json]",
    "The daemons of this machine, those that ended without tidying up too: in\n"
    "/run/fdd, $XDG_RUNTIME_DIR/fdd, $FDD_RUNTIME_DIR and the folders of instances\n"
    "there; with --runtime-dir only in that folder.",
    opts, .hint = FCT_HINT_USAGE);

int
fct_cmd_ls(const struct fct *f, int argc, char **argv)
{
    struct ls ls = { .f = f };
    struct fdw_env e;
    char dir[FDW_PATH_BYTES + 8];
    int rc = fct_parse(&line, argc, argv, &ls);

    if (rc != FCT_GO)
        return rc;
    fdw_env_get(&e);
    ls.list = json_array();
    add_base(&ls, f->dir_given ? f->dir : e.system_dir);
    snprintf(dir, sizeof(dir), "%.500s/fdd", e.xdg != NULL ? e.xdg : "");
    if (!f->dir_given && e.xdg != NULL)
        add_base(&ls, dir);
    if (!f->dir_given && e.runtime_dir != NULL)
        add_base(&ls, e.runtime_dir);
    if (ls.json)
        return fct_print_json(ls.list);
    if (json_array_size(ls.list) > 0)
        fct_show(stdout, ls.list, 0);
    json_decref(ls.list);
    return 0;
}
