/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/conf.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/gate/admit.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/names.h"
#include "daemon/gate/runtime.h"
#include "daemon/gate/session.h"
#include "daemon/gate/supervise.h"

/* ---- what only the system knows -------------------------------------------- */

/* Checks a list of log.debug bits without changing the bits in force. If one is unknown,
 * returns -EINVAL and copies its name to ret. */
static int
cnf_bad_debug(const char *list, char *ret, size_t ret_bytes)
{
    uint32_t before = log_debug_bits;
    int rc = log_set_debug(list, ret, ret_bytes);

    __atomic_store_n(&log_debug_bits, before, __ATOMIC_RELAXED);
    return rc;
}

static void
cnf_check(const struct par_set *ps, struct par_say *say)
{
    const struct par *par = par_get(ps);
    struct fair_weight list[FAIR_WEIGHTS];
    char err[768], text[1024];
    uint32_t n;

    if (log_check_levels(par->log_levels, err, sizeof(err)) != 0) {
        (void)snprintf(text, sizeof(text), "log.levels: %s", err);
        par_say_about(say, ps, 1, text);
    }
    if (cnf_bad_debug(par->log_debug, err, sizeof(err)) != 0) {
        (void)snprintf(text, sizeof(text),
            "log.debug: unknown bit \"%s\"; fdctl debug "
            "and fdd.ini(5) list them",
            err);
        par_say_about(say, ps, 1, text);
    }
    if (fair_parse_weights(par->sched_user_weights, list, &n, err, sizeof(err)) != 0)
        par_say_about(say, ps, 1, err);
}

/* Does the daemon run as a service? A user's own daemon does not need the default
 * groups. */
static int
cnf_is_service(void)
{
    return geteuid() == 0 || getenv("RUNTIME_DIRECTORY") != NULL;
}

static void
cnf_check_group(const struct par_set *ps, struct par_say *say, const char *key,
    const char *group, const char *def, const char *who)
{
    char text[1024];

    if (group[0] == '\0' || getgrnam(group) != NULL ||
        (strcmp(group, def) == 0 && !cnf_is_service()))
        return;
    (void)snprintf(text, sizeof(text),
        "ipc.%s = %.128s: this system has no such group; "
        "%s; fix: sudo groupadd --system %.128s, then restart fdd, or another ipc.%s",
        key, group, who, group, key);
    par_say_about(say, ps, 0, text);
}

static void
cnf_check_user(const struct par_set *ps, struct par_say *say, const char *name)
{
    char text[512], *end;

    (void)strtoul(name, &end, 10);
    if (*end == '\0' || getpwnam(name) != NULL)
        return;
    (void)snprintf(text, sizeof(text),
        "ipc.trusted_users: this system has no user "
        "\"%.128s\"; no client is trusted by that name",
        name);
    par_say_about(say, ps, 0, text);
}

void
cnf_warn_names(const struct par_set *ps, struct par_say *say)
{
    const struct par *par = par_get(ps);
    const char *p = par->ipc_trusted_users;

    cnf_check_group(ps, say, "group", par->ipc_group, "fdd",
        "only root and the daemon's own user may send requests");
    cnf_check_group(ps, say, "admin_group", par->ipc_admin_group, "fdd-admin",
        "only root and the daemon's own user may use admin commands");
    for (p += strspn(p, ", "); *p != '\0'; p += strspn(p, ", ")) {
        size_t n = strcspn(p, ", ");
        char name[PAR_STR_BYTES];

        (void)snprintf(name, sizeof(name), "%.*s", (int)n, p);
        cnf_check_user(ps, say, name);
        p += n;
    }
}

int
cnf_load(struct par_set *ps, const struct par_src *src, struct par_say *say)
{
    int rc = par_load(ps, src, say);

    cnf_check(ps, say);
    if (rc == 0 && say->n_errors != 0)
        rc = -EINVAL;
    par_say_end(say);
    return rc;
}

/* ---- the model's folder ------------------------------------------------------ */

/* Reports a file or folder of the model that cannot be used. */
static void
cnf_bad_model(const struct par_set *ps, const struct rtd *rt, struct par_say *say,
    const char *path, int error)
{
    char fix[768], text[1536];

    sup_fix_text(par_get(ps), rt, NULL, error == EACCES ? EX_NOPERM : EX_CONFIG, fix,
        sizeof(fix));
    if (fix[0] == '\0')
        (void)snprintf(fix, sizeof(fix),
            "a model folder holds config.json, tokenizer.json "
            "and *.safetensors; fetch what is missing, or correct model.path");
    (void)snprintf(text, sizeof(text), "model.path: %s: %s; fix: %s", path,
        error == ENOTDIR ? "not a folder" : strerror(error), fix);
    par_say_about(say, ps, 1, text);
}

/* Checks that every *.safetensors can be read, and that there is one. */
static void
cnf_check_weights(const struct par_set *ps, const struct rtd *rt, struct par_say *say,
    const char *dir)
{
    char path[PAR_STR_BYTES + 300];
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    if (d == NULL) {
        cnf_bad_model(ps, rt, say, dir, errno);
        return;
    }
    while ((e = readdir(d)) != NULL) {
        const char *dot = strrchr(e->d_name, '.');

        if (dot == NULL || strcmp(dot, ".safetensors") != 0)
            continue;
        n++;
        (void)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (access(path, R_OK) != 0)
            cnf_bad_model(ps, rt, say, path, errno);
    }
    (void)closedir(d);
    (void)snprintf(path, sizeof(path), "%s/*.safetensors", dir);
    if (n == 0)
        cnf_bad_model(ps, rt, say, path, ENOENT);
}

static void
cnf_check_tokenizer(const struct par_set *ps, const struct rtd *rt, struct par_say *say,
    const char *dir)
{
    static const char *const names[] = { "tekken.json", "tokenizer.model",
        "qwen.tiktoken", "tokenizer.json" };
    char path[PAR_STR_BYTES + 300], text[1536];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        if (access(path, R_OK) == 0)
            return;
    }
    if (errno != ENOENT) {
        cnf_bad_model(ps, rt, say, path, errno);
        return;
    }
    (void)snprintf(text, sizeof(text),
        par_get(ps)->model_tokenizer[0] != '\0'
            ? "model.tokenizer: %s is not there; fix: name the folder that has it, or remove "
              "model.tokenizer"
            : "model.path: %s is not there: requests by token ids only",
        path);
    par_say_about(say, ps, par_get(ps)->model_tokenizer[0] != '\0', text);
}

void
cnf_check_model(const struct par_set *ps, const struct rtd *rt, struct par_say *say)
{
    const char *dir = par_get(ps)->model_path;
    const char *tok = par_get(ps)->model_tokenizer;
    char path[PAR_STR_BYTES + 300], fix[768];
    struct stat st;

    if (strcmp(dir, "null") == 0)
        return;
    if (dir[0] == '\0') {
        sup_fix_text(par_get(ps), rt, NULL, EX_CONFIG, fix, sizeof(fix));
        par_say_error(say, "model.path is not set: no model to serve; fix: %s", fix);
        return;
    }
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || access(dir, R_OK | X_OK) != 0) {
        int error = stat(dir, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? EACCES : ENOTDIR;

        cnf_bad_model(ps, rt, say, dir, error);
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/config.json", dir);
    if (access(path, R_OK) != 0)
        cnf_bad_model(ps, rt, say, path, errno);
    if (par_get(ps)->model_load_format != PAR_MODEL_LOAD_FORMAT_DUMMY)
        cnf_check_weights(ps, rt, say, dir);
    cnf_check_tokenizer(ps, rt, say, tok[0] != '\0' ? tok : dir);
}

/* ---- what follows the parameters ---------------------------------------------- */

/* Applies sched.user_weights, which was checked when it was set. */
static void
cnf_set_weights(struct cnf *c)
{
    struct fair_weight list[FAIR_WEIGHTS];
    char err[512];
    uint32_t n = 0;

    /* A user may have been removed from the system since then. */
    if (fair_parse_weights(par_get(c->ps)->sched_user_weights, list, &n, err,
            sizeof(err)) != 0)
        log_warn("config: %s; all users have weight 1", err);
    fair_set_weights(c->fair, list, n);
}

void
cnf_apply_users(struct cnf *c)
{
    const struct par *par = par_get(c->ps);
    struct names_lists lists = {
        .trusted = par->ipc_trusted_users,
        .weights = par->sched_user_weights,
        .group = par->ipc_group,
        .admin_group = par->ipc_admin_group,
    };

    names_load(c->names, &lists);
    ses_trust(c->ses);
    cnf_set_weights(c);
}

void
cnf_apply_log(const struct par *par)
{
    char bad[64];

    (void)log_apply(par->log_level, par->log_levels, par->log_format, par->log_rate);
    if (log_set_debug(par->log_debug, bad, sizeof(bad)) != 0)
        log_warn("config: log.debug: unknown bit \"%s\"", bad);
}

void
cnf_apply(struct cnf *c)
{
    cnf_apply_log(par_get(c->ps));
    cnf_apply_users(c);
    for (uint32_t i = 0; i < c->n_wrk; i++)
        sup_reload(c->sup, &c->wrk[i]);
}

/* ---- reading it again --------------------------------------------------------- */

struct cnf_reading {
    const struct cnf *c;
    const struct par_set *ps; /* as just read */
    json_t *errors, *warnings, *changes, *waiting;
};

static void
cnf_tell(struct cnf_reading *r, struct par_say *say)
{
    const char *text = NULL;
    int is_error;

    while ((text = par_say_next(say, text, &is_error)) != NULL) {
        if (is_error)
            log_error("config: %s", text);
        else
            log_warn("config: %s", text);
        (void)json_array_append_new(is_error ? r->errors : r->warnings, json_string(text));
    }
    par_say_clear(say);
}

/* Reports a row whose value differs: it changes now, or after a restart. */
static void
cnf_on_change(struct cnf_reading *r, size_t i)
{
    char old[PAR_STR_BYTES], new[PAR_STR_BYTES], name[128];
    const char *where = par_where(r->ps, i);
    enum par_origin from;
    struct par_row row;

    par_row(i, &row);
    par_value(r->c->ps, i, old, sizeof(old), &from);
    par_value(r->ps, i, new, sizeof(new), &from);
    (void)snprintf(name, sizeof(name), "%s.%s", row.section, row.key);
    if (row.reload) {
        log_info("config: %s: %s -> %s", name, old[0] != '\0' ? old : "(nothing)",
            new[0] != '\0' ? new : "(nothing)");
        (void)json_array_append_new(r->changes,
            json_pack("{s:s, s:s, s:s}", "name", name, "old", old, "new", new));
        return;
    }
    log_warn("config: %s: %s -> %s waits for a restart%s%s%s", name,
        old[0] != '\0' ? old : "(nothing)", new[0] != '\0' ? new : "(nothing)",
        where[0] != '\0' ? " (" : "", where, where[0] != '\0' ? ")" : "");
    (void)json_array_append_new(r->waiting,
        json_pack("{s:s, s:s, s:s, s:s}", "name", name, "running", old, "new", new,
            "where", where));
}

static int
cnf_take_over(struct cnf *c, struct par_set **ps, struct cnf_reading *r)
{
    int changed = 0;

    r->ps = *ps;
    for (size_t i = 0; i < par_count(); i++)
        if (par_differs(c->ps, *ps, i))
            cnf_on_change(r, i);
    changed = par_reload(c->ps, *ps);
    (void)par_free(c->ps_file);
    c->ps_file = *ps;
    *ps = NULL;
    cnf_apply(c);
    log_info("config: read again, %d values changed, %zu wait for a restart", changed,
        json_array_size(r->waiting));
    return changed;
}

int
cnf_reload(struct cnf *c, json_t *ret)
{
    struct cnf_reading r = { c, NULL, json_array(), json_array(), json_array(),
        json_array() };
    struct par_say say = { .text = NULL };
    struct par_set *ps = par_new();
    char err[1024];
    int rc = -ENOMEM, changed;

    if (ps != NULL)
        rc = cnf_load(ps, &c->src, &say);
    if (rc == 0 && par_reload_check(c->ps, ps, err, sizeof(err)) != 0) {
        rc = -EINVAL;
        par_say_about(&say, ps, 1, err);
    }
    if (rc == 0)
        cnf_warn_names(ps, &say);
    cnf_tell(&r, &say);
    if (rc == 0) {
        changed = cnf_take_over(c, &ps, &r);
        if (ret != NULL)
            (void)json_object_update_new(ret,
                json_pack("{s:i, s:O, s:O, s:O}", "changed", changed, "changes",
                    r.changes, "waiting", r.waiting, "warnings", r.warnings));
    } else {
        log_error("config: not taken over, the values in force stay");
        if (ret != NULL)
            (void)json_object_set(ret, "errors", r.errors);
    }
    json_decref(r.errors);
    json_decref(r.warnings);
    json_decref(r.changes);
    json_decref(r.waiting);
    (void)par_free(ps);
    return rc;
}

int
cnf_waits(const struct cnf *c, size_t i)
{
    char now[PAR_STR_BYTES], file[PAR_STR_BYTES];
    enum par_origin from;
    struct par_row row;

    par_row(i, &row);
    if (c->ps_file == NULL || row.reload)
        return 0;
    par_value(c->ps, i, now, sizeof(now), &from);
    par_value(c->ps_file, i, file, sizeof(file), &from);
    return strcmp(now, file) != 0;
}

/* ---- automatic values ------------------------------------------------------------ */

int
cnf_is_auto(const char *value)
{
    return value[0] == '\0' || strcmp(value, "0") == 0 || strcmp(value, "-1") == 0 ||
        strcmp(value, "auto") == 0;
}

/* The value that the gate itself chose or found for a parameter. */
static void
cnf_gate_value(const struct cnf *c, const char *name, char *ret, size_t ret_bytes)
{

    ret[0] = '\0';
    if (strcmp(name, "daemon.runtime_dir") == 0)
        (void)snprintf(ret, ret_bytes, "%s", c->rt->dir);
    else if (strcmp(name, "ipc.socket") == 0)
        (void)snprintf(ret, ret_bytes, "%s", c->rt->socket);
    else if (strcmp(name, "ipc.admin_socket") == 0)
        (void)snprintf(ret, ret_bytes, "%s", c->rt->admin_socket);
    else if (strcmp(name, "ipc.spin_us") == 0)
        (void)snprintf(ret, ret_bytes, "%llu", (unsigned long long)(c->spin_ns / CLK_US));
    else if (strcmp(name, "daemon.worker") == 0 &&
        sup_find_worker(par_get(c->ps), ret, ret_bytes) != 0)
        ret[0] = '\0';
    else if (strcmp(name, "sched.max_queued_tokens") == 0)
        (void)snprintf(ret, ret_bytes, "%llu", (unsigned long long)adm_max_queued(c->adm));
}

/* Only for an automatic target: one that was set is in force as it is. */
static void
cnf_itl_target(const struct cnf *c, const struct wrk *w, char *ret, size_t ret_bytes)
{
    uint64_t ns = __atomic_load_n(&w->link.seg->w.beat.itl_target_ns, __ATOMIC_RELAXED);

    if (par_get(c->ps)->sched_itl_target_ms < 0 && ns != 0)
        (void)snprintf(ret, ret_bytes, "%.1f", (double)ns / 1e6);
}

/* Returns any ready worker, as all chose the same values; NULL: none is ready. */
static const struct wrk *
cnf_ready_worker(const struct cnf *c)
{
    for (uint32_t i = 0; i < c->n_wrk; i++) {
        if (c->wrk[i].st == WRK_READY && c->wrk[i].link.seg != NULL)
            return &c->wrk[i];
    }
    return NULL;
}

/* The value that the worker chose, from its report: lines of name=value. */
static void
cnf_worker_value(const struct cnf *c, const char *name, char *ret, size_t ret_bytes)
{
    const struct wrk *w = cnf_ready_worker(c);
    const char *p, *end;
    size_t n = strlen(name);

    ret[0] = '\0';
    if (w == NULL)
        return;
    /* it follows the measured steps */
    if (strcmp(name, "sched.itl_target_ms") == 0) {
        cnf_itl_target(c, w, ret, ret_bytes);
        return;
    }
    p = w->link.seg->w.effective;
    end = p + strnlen(p, sizeof(w->link.seg->w.effective));
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl != NULL ? nl : end) - p);

        if (len > n && p[n] == '=' && memcmp(p, name, n) == 0) {
            (void)snprintf(ret, ret_bytes, "%.*s", (int)(len - n - 1), p + n + 1);
            return;
        }
        p += len + 1;
    }
}

void
cnf_effective(const struct cnf *c, size_t i, char *ret, size_t ret_bytes)
{
    char value[PAR_STR_BYTES], name[128];
    enum par_origin from;
    struct par_row row;

    par_row(i, &row);
    par_value(c->ps, i, value, sizeof(value), &from);
    (void)snprintf(name, sizeof(name), "%s.%s", row.section, row.key);
    cnf_gate_value(c, name, ret, ret_bytes);
    if (ret[0] == '\0')
        cnf_worker_value(c, name, ret, ret_bytes);
    if (strcmp(ret, value) == 0)
        ret[0] = '\0';
}
