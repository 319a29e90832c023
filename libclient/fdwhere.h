/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the daemon is: the one rule of fdd, fdctl, fdbench and libfdclient. Not
 * installed. Compiled into the library and into the daemon's common library.
 *
 * A daemon has a runtime folder: fdd.sock for clients, admin.sock, fdd.lock and
 * fdd.pid. An instance, a further daemon with a name, has the folder of that name
 * in it.
 * The first of these that applies is the folder:
 *
 *   1. what an option or parameter says
 *   2. $FDD_RUNTIME_DIR
 *   3. $XDG_RUNTIME_DIR/fdd, if it is the user's own and has an fdd.sock
 *   4. /run/fdd
 *
 * with /NAME behind 2 to 4 for the instance that --instance or $FDD_INSTANCE names.
 * $FDD_SOCKET names the client socket alone and comes before 2.
 *
 * fdd, which makes the folder and so cannot look for a socket, takes 1, 2,
 * $RUNTIME_DIRECTORY as it is (systemd's), /run/fdd for root, $XDG_RUNTIME_DIR/fdd.
 *
 * Functions return 0, -EINVAL (a name that no instance can have), -ENAMETOOLONG,
 * or what they say; ret is set only on success. No function keeps state.
 */
#ifndef FDD_LIBCLIENT_FDWHERE_H
#define FDD_LIBCLIENT_FDWHERE_H

#include <stddef.h>

#define FDW_SYSTEM_DIR "/run/fdd"
#define FDW_SOCKET     "fdd.sock"
#define FDW_LOCK       "fdd.lock" /* the daemon's user's alone */
#define FDW_PID        "fdd.pid"  /* whose lock it is, for all to read */
#define FDW_DEVICES    "devices"  /* folder of device locks: no instance's name */
#define FDW_PATH_BYTES 512
#define FDW_NAME_MAX   32
#define FDW_NAME_RULE \
    "1 to 32 of a-z 0-9 _ -, not - first, and neither " \
    "\"devices\" nor \"fdd\""

/* What the environment says; NULL: nothing. */
struct fdw_env {
    const char *socket, *runtime_dir, *instance, *xdg;
    const char *unit_dir;   /* $RUNTIME_DIRECTORY */
    const char *system_dir; /* FDW_SYSTEM_DIR */
};

/* With secure_getenv(): a setuid program is told nothing. Empty is not set. */
void fdw_env_get(struct fdw_env *ret);

/* 1: name can be an instance's. */
int fdw_is_name(const char *name);

/* The folder as a client looks for it. dir and instance are options, or NULL; with
 * both, the folder is dir/instance. With dir alone the environment is not asked. */
int fdw_find(const struct fdw_env *e, const char *dir, const char *instance, char *ret,
    size_t ret_bytes);

/* The client socket when no option names anything. */
int fdw_find_socket(const struct fdw_env *e, char *ret, size_t ret_bytes);

/* The folder in which fdd makes its sockets. dir: daemon.runtime_dir, taken as it
 * is, or NULL. -ENOENT: nothing says where. */
int fdw_home(const struct fdw_env *e, const char *dir, const char *instance, int is_root,
    char *ret, size_t ret_bytes);

/* The folder of device locks that the daemons of a user share, for a daemon that
 * lives in home: /run/fdd/devices for what is in /run/fdd, else
 * $XDG_RUNTIME_DIR/fdd/devices, else fdd-devices-UID next to home if that can be
 * written, else home/devices. */
int fdw_device_dir(const struct fdw_env *e, const char *home, unsigned long uid,
    char *ret, size_t ret_bytes);

#endif
