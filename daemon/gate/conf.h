/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a running daemon: checks of parameter values that need the system,
 * reloads, and the values chosen for automatic parameters. Main thread. Users and groups
 * are looked up only at start and reload.
 */
#ifndef FDD_DAEMON_GATE_CONF_H
#define FDD_DAEMON_GATE_CONF_H

#include <jansson.h>
#include <stddef.h>

#include "daemon/common/param.h"

struct admit;
struct fair;
struct names;
struct rtd;
struct sessions;
struct sup;
struct wrk;

struct cnf {
    struct par_set *ps;      /* parameters in force */
    struct par_set *ps_file; /* as last read from the files; NULL: same as ps */
    struct par_src src;      /* sources that a reload reads */
    const struct rtd *rt;
    const struct admit *adm;
    struct names *names; /* names, ses, fair, sup and wrk are updated when parameters
                            change */
    struct sessions *ses;
    struct fair *fair;
    struct sup *sup;
    struct wrk *wrk; /* the workers, n_wrk of them */
    uint32_t n_wrk;
    uint64_t spin_ns; /* spin time chosen from ipc.spin_us */
};

/* Reads everything that src names into ps, which has the defaults, and checks it; all
 * errors are reported. Ends with par_say_end(). Returns 0, or -errno as par_load(). */
int cnf_load(struct par_set *ps, const struct par_src *src, struct par_say *say);
/* Warns of groups and users in the parameters that the system does not have. */
void cnf_warn_names(const struct par_set *ps, struct par_say *say);
/* Can this user read model.path? Checks only names and permissions. */
void cnf_check_model(const struct par_set *ps, const struct rtd *rt, struct par_say *say);
/* Apply the parameters in force: users, log, or everything. */
void cnf_apply_users(struct cnf *c);
void cnf_apply_log(const struct par *par);
void cnf_apply(struct cnf *c); /* all of it, and the workers */
/* Reads c->src again. Returns 0, or -errno and nothing has changed. ret (may be NULL)
 * gets the members of reload's reply, or errors: [text]. All of it is logged. */
int cnf_reload(struct cnf *c, json_t *ret);
/* Does the new value of row i take effect only after a restart? */
int cnf_waits(const struct cnf *c, size_t i);
/* Text of the value in force for row i if it differs from the configured one; "" if it
 * does not, or is not known yet. */
void cnf_effective(const struct cnf *c, size_t i, char *ret, size_t ret_bytes);
/* Does this value mean that fdd chooses (0, -1, auto or empty)? */
int cnf_is_auto(const char *value);

#endif
