/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the daemon's sockets are: the one rule that fdd, fdctl, fdbench and libfdclient
 * follow. Not installed. Compiled into the library and into the daemon's common library.
 *
 * A daemon has a runtime folder: fdd.sock for clients, admin.sock, fdd.lock and fdd.pid.
 * An instance, a further daemon with a name, has the folder of that name in it. The first
 * of these that applies is the folder:
 *
 *   1. the folder given by an option or parameter
 *   2. $FDD_RUNTIME_DIR
 *   3. $XDG_RUNTIME_DIR/fdd, if it is the user's own and has an fdd.sock
 *   4. /run/fdd
 *
 * with /NAME appended to 2 to 4 for the instance that --instance or $FDD_INSTANCE names.
 * $FDD_SOCKET names only the client socket and comes before 2.
 *
 * fdd makes the folder, so it cannot look for a socket in it. It takes the first of: 1,
 * 2, $RUNTIME_DIRECTORY as it is (set by systemd), /run/fdd for root,
 * $XDG_RUNTIME_DIR/fdd.
 *
 * Functions return 0, -EINVAL (not a valid instance name), -ENAMETOOLONG, or as described
 * at the function; ret is set only on success. No function keeps state.
 */
#ifndef FDD_LIBCLIENT_FDWHERE_H
#define FDD_LIBCLIENT_FDWHERE_H

#include <stddef.h>

#define FDW_SYSTEM_DIR "/run/fdd"
#define FDW_SOCKET     "fdd.sock"
#define FDW_LOCK       "fdd.lock" /* readable only by the daemon's user */
#define FDW_PID        "fdd.pid"  /* process id of the lock's holder; readable by all */
#define FDW_DEVICES    "devices"  /* folder of device locks; not a valid instance name */
#define FDW_PATH_BYTES 512
#define FDW_NAME_MAX   32
#define FDW_NAME_RULE \
    "1 to 32 characters of a-z 0-9 _ -, without a leading -, and neither " \
    "\"devices\" nor \"fdd\""

/* The environment variables; NULL: not set. */
struct fdw_env {
    const char *socket, *runtime_dir, *instance, *xdg;
    const char *unit_dir;   /* $RUNTIME_DIRECTORY */
    const char *system_dir; /* FDW_SYSTEM_DIR */
};

/* Reads with secure_getenv(): in a setuid program none is set. An empty variable is not
 * set. */
void fdw_env_get(struct fdw_env *ret);

/* Returns 1 if name is a valid instance name. */
int fdw_is_name(const char *name);

/* The folder in which a client looks for the daemon. dir and instance are options, or
 * NULL; with both, the folder is dir/instance. If dir is given, the environment is not
 * read. */
int fdw_find(const struct fdw_env *e, const char *dir, const char *instance, char *ret,
    size_t ret_bytes);

/* The client socket when no option is given. */
int fdw_find_socket(const struct fdw_env *e, char *ret, size_t ret_bytes);

/* The folder in which fdd makes its sockets. dir: daemon.runtime_dir, used as it is, or
 * NULL. -ENOENT: neither dir nor the environment gives a folder. */
int fdw_home(const struct fdw_env *e, const char *dir, const char *instance, int is_root,
    char *ret, size_t ret_bytes);

/* The folder of device locks that the daemons of a user share, for a daemon with runtime
 * folder home: /run/fdd/devices if home is in /run/fdd, else
 * $XDG_RUNTIME_DIR/fdd/devices, else fdd-devices-UID next to home if that can be written,
 * else home/devices. */
int fdw_device_dir(const struct fdw_env *e, const char *home, unsigned long uid,
    char *ret, size_t ret_bytes);

#endif
