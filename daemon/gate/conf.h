/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a running daemon: what only the system can say of the
 * parameters' values, reading them again, and what became of automatic ones.
 * Main thread. Look-ups of users and groups happen at start and reload.
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
struct sup;
struct wrk;

struct cnf {
    struct par_set *ps;      /* in force */
    struct par_set *ps_file; /* as last read; NULL: as ps */
    struct par_src src;      /* what is read at a reload */
    const struct rtd *rt;
    const struct admit *adm;
    struct names *names; /* these follow the parameters */
    struct fair *fair;
    struct sup *sup;
    struct wrk *wrk; /* n of them */
    uint32_t n_wrk;
    uint64_t spin_ns; /* what ipc.spin_us became */
};

/* Read everything src names into ps, which has the defaults, and check it; all errors
 * are said. Ends with par_say_end(). 0, or -errno as par_load(). */
int cnf_load(struct par_set *ps, const struct par_src *src, struct par_say *say);
/* Warn of groups and users that the system does not know. */
void cnf_warn_names(const struct par_set *ps, struct par_say *say);
/* Can this user read what model.path names? Looks at names and permissions alone. */
void cnf_check_model(const struct par_set *ps, const struct rtd *rt, struct par_say *say);
/* What follows the parameters in force. */
void cnf_apply_users(struct cnf *c);
void cnf_apply_log(const struct par *par);
void cnf_apply(struct cnf *c); /* all of it, workers too */
/* Read c->src again. 0, or -errno and nothing has changed. ret (may be NULL) gets the
 * members of the answer to reload, or errors: [text]. All of it is logged. */
int cnf_reload(struct cnf *c, json_t *ret);
/* Does row i of the file wait for a restart? */
int cnf_waits(const struct cnf *c, size_t i);
/* What the value of row i became where that is something else; "" where it is in
 * force as it is, or is not known yet. */
void cnf_effective(const struct cnf *c, size_t i, char *ret, size_t ret_bytes);
/* Does the value leave the choice to fdd (0, -1, auto or empty)? */
int cnf_is_auto(const char *value);

#endif
