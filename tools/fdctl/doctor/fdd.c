/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/doctor/doctor.h"

#include <dirent.h>
#include <grp.h>
#include <sys/stat.h>

#include "daemon/common/devowner.h"
#include "daemon/common/dir.h"
#include "daemon/common/version.h"
#include "libclient/fdwhere.h"

#define JOIN "sudo usermod -aG %s %s    (then log in again)"
#define MAKE_GROUP \
    "sudo groupadd --system %s && sudo usermod -aG %s %s, start the daemon again, log in " \
    "again"
#define LAST_WORDS "fdctl debug panic shows its last words; journalctl -u fdd"

/* ---- folders and rights ---------------------------------------------------------- */

static void
check_runtime(struct doc *d)
{
    const char *dir = d->f->dir;
    struct stat st;

    if (stat(DOC_BELOW(d, dir), &st) != 0)
        doc_add(d, DOC_NOTE, "runtime folder",
            "%s: %s" FIX "no daemon has run here: sudo systemctl start fdd, or name another "
            "folder with --runtime-dir DIR",
            dir, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        doc_add(d, DOC_FAIL, "runtime folder",
            "%s is not a folder" FIX "remove it, or name another one: daemon.runtime_dir",
            dir);
    else if ((st.st_mode & 0022) != 0)
        doc_add(d, DOC_FAIL, "runtime folder",
            "%s can be written by others (mode %04o), fdd refuses it" FIX
            "another daemon.runtime_dir, a folder that fdd makes",
            dir, st.st_mode & 07777);
    else
        doc_add(d, DOC_OK, "runtime folder", "%s of %s, mode %04o%s%s", dir,
            DOC_USER(st.st_uid), st.st_mode & 07777,
            st.st_uid != d->uid ? ", read by " : "",
            st.st_uid != d->uid ? DOC_USER(d->uid) : "");
}

static void
check_socket(struct doc *d, const char *name, const char *path)
{
    const char *user = DOC_USER(d->uid), *full = DOC_BELOW(d, path);
    struct stat st;
    int is_there = stat(full, &st) == 0;
    const struct group *gr = is_there && st.st_gid != 0 ? getgrgid(st.st_gid) : NULL;
    unsigned mode = is_there ? st.st_mode & 07777 : 0;

    if (!is_there)
        doc_add(d, d->daemon_pid > 0 ? DOC_FAIL : DOC_NOTE, name, "%s: %s" FIX "%s", path,
            strerror(errno),
            d->daemon_pid > 0 ? "the daemon runs without it: fdctl stop, then "
                                "start it again"
                              : "start a daemon: sudo systemctl start fdd");
    else if (!S_ISSOCK(st.st_mode))
        doc_add(d, DOC_FAIL, name,
            "%s is not a socket" FIX "remove it and start the daemon again", path);
    else if (access(full, W_OK) == 0)
        doc_add(d, DOC_OK, name, "%s, mode %04o", path, mode);
    else if (gr != NULL)
        doc_add(d, DOC_WARN, name, "%s, mode %04o: not for %s" FIX JOIN, path, mode, user,
            gr->gr_name, user);
    else
        doc_add(d, DOC_WARN, name, "%s, mode %04o: not for %s" FIX MAKE_GROUP, path, mode,
            user, d->par->ipc_group, d->par->ipc_group, user);
}

static void
check_group(struct doc *d, const char *name, const char *group, const char *may)
{
    const struct group *gr = getgrnam(group);
    const char *user = DOC_USER(d->uid);

    if (d->uid == 0)
        doc_add(d, DOC_OK, name, "root may do everything");
    else if (gr == NULL)
        doc_add(d, DOC_NOTE, name,
            "the group %s does not exist: only root and the daemon's own user may %s" FIX MAKE_GROUP,
            group, may, group, group, user);
    else if (getegid() == gr->gr_gid || group_member(gr->gr_gid))
        doc_add(d, DOC_OK, name, "%s is in %s and may %s", user, group, may);
    else
        doc_add(d, DOC_NOTE, name, "%s is not in %s, whose members may %s" FIX JOIN, user,
            group, may, group, user);
}

/* ---- daemon ------------------------------------------------------------------------ */

/* a, or b if a is empty. */
static const char *
either(const char *a, const char *b)
{
    return a[0] != '\0' ? a : b;
}

static void
check_worker(struct doc *d, const json_t *w)
{
    const json_t *retry = json_object_get(w, "retry");
    const json_t *list = json_object_get(w, "devices"), *e;
    const char *phase = fct_str(w, "phase"), *last = fct_str(w, "last_death");
    const char *log = "its log says why: journalctl -u fdd", *uuid;
    size_t i;
    long long deaths = fct_num(w, "deaths"), restart = fct_num(w, "restart_in_ms");

    if (json_is_object(retry))
        doc_add(d, DOC_FAIL, "worker",
            "blocked, waits for %s, tried %lld times: %s" FIX "%s",
            fct_str(retry, "waits_for"), fct_num(retry, "tries"), fct_str(retry, "error"),
            either(fct_str(retry, "fix"), log));
    else if (strcmp(phase, "failed") == 0)
        doc_add(d, DOC_FAIL, "worker", "failed: %s" FIX "%s",
            either(fct_str(w, "error"), last), either(fct_str(w, "fix"), log));
    else if (restart > 0)
        doc_add(d, DOC_WARN, "worker",
            "died and is started again in %lld ms: %s" FIX LAST_WORDS, restart, last);
    else
        doc_add(d, DOC_OK, "worker", "%s, pid %lld", phase, fct_num(w, "pid"));
    /* the devices that the worker found for the entries of device.list */
    json_array_foreach(list, i, e) {
        uuid = fct_str(e, "uuid");
        doc_add(d, DOC_OK, "device.list", "entry %zu is %s%s%s%s",
            (size_t)fct_num(w, "group") * json_array_size(list) + i, fct_str(e, "device"),
            *uuid != '\0' ? " " : "", uuid,
            json_is_true(json_object_get(e, "is_used")) ? "" : ", not used");
        doc_data(d, "{s:s}", "uuid", uuid);
    }
    if (deaths != 0) {
        doc_add(d, DOC_WARN, "worker deaths", "%lld, the last: %s" FIX LAST_WORDS, deaths,
            last);
        doc_data(d, "{s:I}", "deaths", (json_int_t)deaths);
    }
}

static void
check_daemon(struct doc *d)
{
    static const struct {
        const char *name;
        enum doc_state state;
        const char *fix;
    } states[] = { { "running", DOC_OK, "" },
        { "degraded", DOC_FAIL,
            "the worker died too often: journalctl -u fdd, fdctl debug panic" },
        { "draining", DOC_NOTE, "it takes no requests until fdctl drain --off" },
        { "paused", DOC_NOTE, "it starts no requests until fdctl pause --off" },
        { "stopping", DOC_NOTE, "when it has ended, start it again" },
        { NULL, DOC_NOTE, "wait for it: fdctl --wait 60 ping" } };
    const char *state = fct_str(d->status, "state");
    const json_t *w;
    char version[80];
    int differs = fct_daemon_version(d->status, version, sizeof(version));
    size_t i = 0;

    while (states[i].name != NULL && strcmp(states[i].name, state) != 0)
        i++;
    if (d->status != NULL)
        doc_add(d, states[i].state, "daemon", "%s, pid %lld, version %s" FIX "%s", state,
            fct_num(d->status, "pid"), version, states[i].fix);
    else if (d->daemon_pid == 0)
        doc_add(d, DOC_NOTE, "daemon",
            "none runs in %s" FIX
            "sudo systemctl start fdd; or fdd --set daemon.runtime_dir=%s --set "
            "model.path=MODEL",
            d->f->dir, d->f->dir);
    else
        doc_add(d, DOC_WARN, "daemon",
            "pid %ld does not answer this user" FIX
            "sudo fdctl status; if that says nothing either: journalctl -u fdd",
            (long)d->daemon_pid);
    if (d->status != NULL && differs)
        doc_add(d, DOC_WARN, "version",
            "the daemon is %s, this fdctl %s" FIX
            "install both from the same release and start the daemon again",
            version, ver_text());
    json_array_foreach(json_object_get(d->status, "workers"), i, w)
        check_worker(d, w);
}

static void
check_model_dir(struct doc *d)
{
    const char *dir = d->par->model_path;
    char config[2048];
    uint64_t bytes = 0;
    struct stat st;
    unsigned n = 0;
    int rc = doc_weights(d, dir, &bytes, &n);

    snprintf(config, sizeof(config), "%s/config.json", dir);
    if (rc == 0 && stat(DOC_BELOW(d, config), &st) != 0)
        rc = -errno;
    if (strcmp(dir, "null") == 0)
        doc_add(d, DOC_OK, "model", "null, which echoes");
    else if (dir[0] == '\0')
        doc_add(d, DOC_NOTE, "model",
            "none is named by %s" FIX
            "set model.path in /etc/fdd/fdd.ini, or look at one with fdctl doctor "
            "--model DIR",
            d->par_from);
    else if (dir[0] != '/' && strcmp(d->par_from, "the daemon") == 0 && d->daemon_pid > 0)
        doc_add(d, DOC_NOTE, "model",
            "%s, below a folder of the daemon that this user may not see" FIX
            "sudo fdctl doctor fdd, or name it: fdctl doctor --model DIR",
            dir);
    else if (rc == -EACCES)
        doc_add(d, DOC_FAIL, "model",
            "%s (%s): %s" FIX
            "a copy that the daemon's user may read: sudo cp -rL --no-preserve=mode,ownership %s /var/lib/fdd/",
            dir, d->par_from, strerror(-rc), dir);
    else if (rc != 0)
        doc_add(d, DOC_FAIL, "model",
            "%s (%s): %s" FIX "a model directory holds config.json and *.safetensors: %s",
            dir, d->par_from, strerror(-rc), dir);
    else if (n == 0 && d->par->model_load_format != PAR_MODEL_LOAD_FORMAT_DUMMY)
        doc_add(d, DOC_FAIL, "model",
            "%s (%s): no *.safetensors file" FIX
            "fetch the weights, or set model.load_format = dummy",
            dir, d->par_from);
    else
        doc_add(d, DOC_OK, "model",
            "%s (%s), %u weight file%s; to check all of it: fdd-worker --check %s", dir,
            d->par_from, n, n == 1 ? "" : "s", dir);
}

static void
check_cache(struct doc *d)
{
    int is_new, is_there, is_system = d->uid == 0 || strcmp(d->f->dir, "/run/fdd") == 0;
    char dir[1024], up[1024];
    struct stat st;

    if (dir_cache(d->par->daemon_cache_dir, is_system, dir, sizeof(dir)) != 0) {
        doc_add(d, DOC_NOTE, "cache folder",
            "none: neither daemon.cache_dir nor HOME" FIX
            "set daemon.cache_dir, or the peak is measured again each time");
        return;
    }
    snprintf(up, sizeof(up), "%s", dir);
    is_there = stat(DOC_BELOW(d, dir), &st) == 0;
    is_new = 0;
    while (!is_there && errno == ENOENT && is_new < 2 && strrchr(up, '/') > up) {
        *strrchr(up, '/') = '\0'; /* the worker makes the folder and its parent */
        is_there = stat(DOC_BELOW(d, up), &st) == 0;
        is_new++;
    }
    if (is_there && st.st_uid != d->uid && d->uid != 0)
        doc_add(d, DOC_OK, "cache folder", "%s of %s", dir, DOC_USER(st.st_uid));
    else if (is_there && access(DOC_BELOW(d, up), W_OK) == 0)
        doc_add(d, DOC_OK, "cache folder", "%s%s", dir, is_new ? " (will be made)" : "");
    else
        doc_add(d, DOC_WARN, "cache folder",
            "%s: %s" FIX "mkdir -p %s and let the daemon's user write it, or set "
            "daemon.cache_dir; else the peak is measured again each time",
            dir, is_there ? "cannot be written" : strerror(errno), dir);
}

/* ---- devices --------------------------------------------------------------------- */

/* Check a device's lock file. Returns 0 if the device is free. */
static int
check_device(struct doc *d, const char *dir, const char *uuid)
{
    char path[PATH_MAX], who[800], plain[800], name[300];
    struct dow o;
    int rc;

    snprintf(path, sizeof(path), "%s/%s", dir, uuid);
    rc = dow_look(DOC_BELOW(d, path), &o);
    if (rc == 0)
        return 0;
    fct_plain(uuid, SIZE_MAX, plain, sizeof(plain));
    snprintf(name, sizeof(name), "device %.280s", plain);
    if (rc < 0) {
        doc_add(d, DOC_NOTE, name, "cannot be looked at: %s" FIX "sudo fdctl doctor fdd",
            strerror(-rc));
        return 1;
    }
    dow_text(&o, who, sizeof(who));
    fct_plain(who, sizeof(who), plain, sizeof(plain));
    doc_add(d, DOC_OK, name, "held by %s", plain);
    doc_data(d, "{s:i}", "pid", (int)o.pid);
    return 1;
}

/* Check which daemon holds which device, among those with this one's lock folder. */
static void
check_devices(struct doc *d)
{
    char dir[FDW_PATH_BYTES];
    struct dirent **names = NULL;
    struct fdw_env e;
    struct stat st;
    int n, held = 0, is_closed;

    fdw_env_get(&e);
    if (stat(DOC_BELOW(d, d->f->dir), &st) != 0 ||
        fdw_device_dir(&e, d->f->dir, (unsigned long)st.st_uid, dir, sizeof(dir)) != 0)
        return;
    n = scandir(DOC_BELOW(d, dir), &names, NULL, alphasort);
    is_closed = n < 0 && errno == EACCES;
    for (int i = 0; i < n; i++) {
        if (strchr(names[i]->d_name, '.') == NULL) /* a lock: holder files have a dot */
            held += check_device(d, dir, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    if (is_closed)
        doc_add(d, DOC_NOTE, "devices",
            "cannot be looked at: %s in %s" FIX "sudo fdctl doctor fdd", strerror(EACCES),
            dir);
    else if (held == 0)
        doc_add(d, DOC_OK, "devices", "none is held by fdd (locks in %s)", dir);
}

void
doc_fdd(struct doc *d)
{
    check_daemon(d);
    check_runtime(d);
    if (d->daemon_pid != 0 || d->status != NULL) {
        check_socket(d, "client socket", d->f->socket);
        check_socket(d, "admin socket", d->f->admin);
    }
    check_group(d, "ipc.group", d->par->ipc_group, "send requests and read statistics");
    check_group(d, "ipc.admin_group", d->par->ipc_admin_group, "use every admin command");
    check_model_dir(d);
    check_devices(d);
    check_cache(d);
}
