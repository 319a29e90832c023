/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/advice.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/listened.h"
#include "daemon/common/param.h"
#include "daemon/gate/names.h"

#define ADV_MODELS "/var/lib/fdd"

int
adv_blocked_at(const char *path, char *ret, size_t ret_bytes)
{
    size_t n = strlen(path);

    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        (void)snprintf(ret, ret_bytes, "%.*s", (int)i, path);
        if (access(ret, path[i] == '\0' ? R_OK : X_OK) != 0)
            return errno;
    }
    return 0;
}

/* A path quoted for a shell command: as it is, or in single quotes. A path that does not
 * fit becomes DIR. */
static const char *
adv_word(const char *path, char *ret, size_t ret_bytes)
{
    size_t at = 0;

    if (path[strspn(path,
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
            "0123456789/._-+,:=@%")] == '\0' &&
        path[0] != '-')
        return path;
    ret[at++] = '\'';
    for (const char *p = path; *p != '\0'; p++) {
        const char quote[] = "'\\''";
        size_t n = *p == '\'' ? sizeof(quote) - 1 : 1;

        if (at + n + 2 > ret_bytes)
            return "DIR";
        memcpy(ret + at, *p == '\'' ? quote : p, n);
        at += n;
    }
    ret[at++] = '\'';
    ret[at] = '\0';
    return ret;
}

/* ---- models ---------------------------------------------------------------- */

/* Does the unit's ProtectHome hide the path? With yes, a folder that everybody may enter
 * is closed; with tmpfs it is empty. */
static int
adv_is_hidden(const char *path, const char *at, int rc)
{
    static const char *const homes[] = { "/home", "/root", "/run/user" };

    /* INVOCATION_ID is also set in the terminals of a desktop session. */
    if (getenv("INVOCATION_ID") == NULL || getenv("RUNTIME_DIRECTORY") == NULL)
        return 0;
    for (size_t i = 0; i < sizeof(homes) / sizeof(homes[0]); i++) {
        size_t n = strlen(homes[i]);

        if (strncmp(path, homes[i], n) == 0 && (path[n] == '/' || path[n] == '\0'))
            return rc == ENOENT || strcmp(at, homes[i]) == 0;
    }
    return 0;
}

/* A path in the syntax of BindReadOnlyPaths=: quoted, its specifiers and colons escaped.
 * A path that does not fit becomes DIR. */
static const char *
adv_bind(const char *path, char *ret, size_t ret_bytes)
{
    size_t at = 0;

    if (path[strcspn(path, " \t\"'\\:%")] == '\0')
        return path;
    ret[at++] = '"';
    for (const char *p = path; *p != '\0'; p++) {
        if (at + 4 > ret_bytes)
            return "DIR";
        if (*p == '%')
            ret[at++] = '%';
        else if (*p == '"' || *p == '\\' || *p == ':')
            ret[at++] = '\\';
        ret[at++] = *p;
    }
    ret[at++] = '"';
    ret[at] = '\0';
    return ret;
}

/* Is membership of this group harmless, giving not much more than reading models? */
static int
adv_is_plain_group(const struct group *gr, uid_t owner)
{
    static const char *const strong[] = { "root", "sudo", "wheel", "admin", "adm",
        "docker", "disk", "kmem", "shadow", "staff", "lxd", "incus-admin", "libvirt",
        "systemd-journal" };
    const struct passwd *pw = getpwuid(owner);

    for (size_t i = 0; i < sizeof(strong) / sizeof(strong[0]); i++) {
        if (strcmp(gr->gr_name, strong[i]) == 0)
            return 0;
    }
    return gr->gr_gid != 0 && (pw == NULL || strcmp(pw->pw_name, gr->gr_name) != 0);
}

/* The group that may enter and read this folder, if membership of it is harmless. */
static int
adv_group(const char *path, char *ret, size_t ret_bytes)
{
    const struct group *gr;
    struct stat st;

    if (stat(path, &st) != 0 || (st.st_mode & 0050) != 0050)
        return 0;
    gr = getgrgid(st.st_gid);
    if (gr == NULL || !adv_is_plain_group(gr, st.st_uid))
        return 0;
    (void)snprintf(ret, ret_bytes, "%s", gr->gr_name);
    return 1;
}

static void
adv_copy(const char *path, const char *me, char *ret, size_t ret_bytes)
{
    const char *base = strrchr(path, '/');
    char word[PAR_STR_BYTES + 16];
    struct stat st;

    base = base != NULL && base[1] != '\0' ? base + 1 : "model";
    if (stat(ADV_MODELS, &st) == 0 && S_ISDIR(st.st_mode))
        (void)snprintf(ret, ret_bytes,
            "make a copy that user %s may read: sudo cp -rL "
            "--no-preserve=mode,ownership %s %s/, then set model.path = %s/%s",
            me, adv_word(path, word, sizeof(word)), ADV_MODELS, ADV_MODELS, base);
    else
        (void)snprintf(ret, ret_bytes,
            "make a copy that user %s may read: sudo cp -rL "
            "--no-preserve=mode,ownership %s DIR/, then set model.path = DIR/%s",
            me, adv_word(path, word, sizeof(word)), base);
}

void
adv_model(const char *path, const char *unit, int no_right, const struct names *names,
    char *ret, size_t ret_bytes)
{
    char at[PAR_STR_BYTES], word[PAR_STR_BYTES + 16], me[64];
    int rc = adv_blocked_at(path, at, sizeof(at));
    char group[64];

    ret[0] = '\0';
    if (names != NULL)
        names_of(names, geteuid(), me, sizeof(me));
    else
        names_ask(geteuid(), me, sizeof(me));
    if (rc != 0 && adv_is_hidden(path, at, rc)) {
        (void)snprintf(ret, ret_bytes,
            "ProtectHome of the unit hides %s: move the model "
            "to " ADV_MODELS ", or sudo systemctl edit %s, with the lines\n[Service]\n"
            "ProtectHome=tmpfs\nBindReadOnlyPaths=%s\n",
            path, unit, adv_bind(path, word, sizeof(word)));
        return;
    }
    if (rc == ENOENT) {
        (void)snprintf(ret, ret_bytes, "ls -ld %s (it does not exist; correct model.path)",
            adv_word(at, word, sizeof(word)));
        return;
    }
    if (!no_right && rc != EACCES)
        return;
    if (rc == EACCES && names == NULL && adv_group(at, group, sizeof(group))) {
        (void)snprintf(ret, ret_bytes, "sudo usermod -aG %s %s, then start fdd again",
            group, me);
        return;
    }
    adv_copy(path, me, ret, ret_bytes);
}

/* ---- folders --------------------------------------------------------------- */

/* Returns who listens at the admin socket. No socket unit holds it, so connecting to it
 * starts nothing. */
static int
adv_admin(const char *dir, struct ucred *ret)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    socklen_t len = sizeof(*ret);
    int n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/admin.sock", dir);
    int fd, rc = 0;

    if (n < 0 || (size_t)n >= sizeof(sa.sun_path))
        return 0;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &len) == 0)
        rc = 1;
    (void)close(fd);
    return rc;
}

int
adv_daemon_in(const char *dir, pid_t *ret_pid, uid_t *ret_uid)
{
    char path[PAR_STR_BYTES + 16];
    struct ucred who;
    struct stat st;

    if (adv_admin(dir, &who)) {
        *ret_pid = who.pid;
        *ret_uid = who.uid;
        return 1;
    }
    /* A service manager may listen for its daemon; then the user is the folder's
     * owner. */
    (void)snprintf(path, sizeof(path), "%s/fdd.sock", dir);
    if (!lsn_is_listened(path) || stat(dir, &st) != 0)
        return 0;
    *ret_pid = 0;
    *ret_uid = st.st_uid;
    return 1;
}

void
adv_own_dir(char *ret, size_t ret_bytes)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");

    if (xdg != NULL && xdg[0] == '/' && access(xdg, W_OK | X_OK) == 0)
        (void)snprintf(ret, ret_bytes, "--set daemon.runtime_dir=%s/fdd-other", xdg);
    else
        (void)snprintf(ret, ret_bytes, "--set daemon.runtime_dir=/tmp/fdd-%u",
            (unsigned)geteuid());
}

void
adv_other_daemon(const char *dir, pid_t pid, uid_t uid, char *ret, size_t ret_bytes)
{
    char user[64], own[PAR_STR_BYTES], who[32] = "";

    names_ask(uid, user, sizeof(user));
    adv_own_dir(own, sizeof(own));
    if (pid > 0)
        (void)snprintf(who, sizeof(who), "pid %d, ", (int)pid);
    (void)snprintf(ret, ret_bytes,
        "another fdd (%suser %s) runs in %s; fix: use that one "
        "(fdctl --runtime-dir %s status) or end it (fdctl --runtime-dir %s stop), or "
        "another folder: %s",
        who, user, dir, dir, dir, own);
}
