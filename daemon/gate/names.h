/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of users, as they were at start or at the last reload. The name service may take
 * seconds (LDAP, sssd) and the gate's loop must not wait for it, so only names_load() and
 * names_ask() use it; everything else reads the table.
 *
 * The table has root, the daemon's own user, the users that ipc.trusted_users and
 * sched.user_weights name, the members of ipc.group and ipc.admin_group, and then those
 * of /etc/passwd, up to NAMES_MAX. A user that is not in it is shown by number.
 */
#ifndef FDD_DAEMON_GATE_NAMES_H
#define FDD_DAEMON_GATE_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NAMES_MAX         1024u
#define NAMES_BYTES       64u  /* of a name and its NUL; longer ones are left out */
#define NAMES_TRUSTED_MAX 256u /* a text parameter cannot hold more items */

/* Texts of the parameters; NULL is "". */
struct names_lists {
    const char *trusted; /* ipc.trusted_users: names and uids */
    const char *weights; /* sched.user_weights: user:weight */
    const char *group, *admin_group;
};

struct names_row {
    uid_t uid;
    char name[NAMES_BYTES];
};
struct names {
    uint32_t n_rows, n_trusted;
    struct names_row rows[NAMES_MAX]; /* sorted by uid */
    uid_t trusted[NAMES_TRUSTED_MAX]; /* sorted by uid */
};

/* Fills the table again. May block as long as the name service takes: only called at
 * start and at reload. */
void names_load(struct names *n, const struct names_lists *lists);
/* Writes the name of a uid, or its number. */
void names_of(const struct names *n, uid_t uid, char *ret, size_t ret_bytes);
/* As names_of(), but from the name service, which may block: for messages about an error
 * that keeps the daemon or a worker from starting. */
void names_ask(uid_t uid, char *ret, size_t ret_bytes);
/* Does ipc.trusted_users contain the user? */
int names_in_list(const struct names *n, uid_t uid);

#endif
