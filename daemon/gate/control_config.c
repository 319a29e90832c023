/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The admin commands config, set and reload. */
#include "config.h"

#include "daemon/gate/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/log.h"
#include "daemon/common/param.h"
#include "daemon/gate/conf.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/rolling.h"

static const char *const ctl_origins[] = { "default", "file", "set", "runtime" };

/* The value that waits for a restart. */
static json_t *
ctl_waiting(const struct ctl *ctl, size_t i)
{
    char value[PAR_STR_BYTES];
    enum par_origin from;

    par_value(ctl->cnf->ps_file, i, value, sizeof(value), &from);
    return json_pack("{s:s, s:s, s:s}", "value", value, "origin", ctl_origins[from],
        "where", par_where(ctl->cnf->ps_file, i));
}

static json_t *
ctl_param(const struct ctl *ctl, size_t i, const struct par_row *row)
{
    char value[PAR_STR_BYTES], now[PAR_STR_BYTES], name[128], text[128];
    enum par_origin from;
    json_t *o = json_object();

    par_value(ctl->cnf->ps, i, value, sizeof(value), &from);
    cnf_effective(ctl->cnf, i, now, sizeof(now));
    (void)snprintf(name, sizeof(name), "%s.%s", row->section, row->key);
    ctl_put(o, "name", json_string(name));
    ctl_put(o, "value", ctl_string(value, sizeof(value)));
    ctl_put(o, "effective", ctl_string(now, sizeof(now)));
    ctl_put(o, "auto", json_boolean(now[0] != '\0' && cnf_is_auto(value)));
    ctl_put(o, "default", json_string(row->def));
    ctl_put(o, "origin", json_string(ctl_origins[from]));
    ctl_put(o, "where", ctl_string(par_where(ctl->cnf->ps, i), SIZE_MAX));
    if (cnf_waits(ctl->cnf, i))
        ctl_put(o, "waiting", ctl_waiting(ctl, i));
    ctl_put(o, "type", json_string(row->type));
    ctl_put(o, "list", json_boolean(row->list));
    ctl_put(o, "unit", json_string(row->unit));
    ctl_put(o, "min", json_string(row->min));
    ctl_put(o, "max", json_string(row->max));
    ctl_put(o, "choices", json_string(par_words(row->words, "|", text, sizeof(text))));
    ctl_put(o, "aliases", json_string(row->aliases));
    ctl_put(o, "reload", json_boolean(row->reload));
    ctl_put(o, "help", json_string(row->help));
    return o;
}

static void
ctl_add_param(const struct ctl *ctl, json_t *list, size_t i)
{
    struct par_row row;

    par_row(i, &row);
    (void)json_array_append_new(list, ctl_param(ctl, i, &row));
}

json_t *
ctl_do_config(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    const struct cnf *cnf = ctl->cnf;
    const struct par_set *ps =
        cnf->ps_file != NULL ? cnf->ps_file : cnf->ps; /* newest read */
    const char *word = json_string_value(json_object_get(rq, "name"));
    size_t rows[PAR_NAME_ROWS], n = par_count();
    char err[768] = "";
    json_t *list, *files, *r;
    int rc = 0;

    (void)c, (void)now_ns;
    if (word != NULL) {
        rc = par_look_up(word, rows, &n, err, sizeof(err));
        if (rc < 0)
            return ctl_fail("fdctl config", "%s", err);
    }
    list = json_array();
    for (size_t i = 0; i < n; i++)
        ctl_add_param(ctl, list, word != NULL ? rows[i] : i);
    files = json_array();
    for (size_t i = 0; i < par_n_files(ps); i++)
        (void)json_array_append_new(files, ctl_string(par_file(ps, i), SIZE_MAX));
    r = ctl_ok();
    ctl_put(r, "file", ctl_string(ctl->cnf->src.file, SIZE_MAX));
    ctl_put(r, "files", files);
    ctl_put(r, "config", list);
    if (rc > 0)
        ctl_put(r, "note", json_string(err));
    return r;
}

/* What the parameter's type does not say. NULL, or the error. */
static json_t *
ctl_check_value(const struct par_row *row, const char *value)
{
    char text[512];
    uint32_t before = log_debug_bits;
    int bad;

    if (strcmp(row->key, "user_weights") == 0) {
        struct fair_weight list[FAIR_WEIGHTS];
        uint32_t n;

        if (fair_parse_weights(value, list, &n, text, sizeof(text)) != 0)
            return ctl_fail("fdctl set sched.user_weights=alice:4,1000:2", "%s", text);
    }
    if (strcmp(row->section, "log") == 0 && strcmp(row->key, "levels") == 0 &&
        log_check_levels(value, text, sizeof(text)) != 0)
        return ctl_fail("fdctl debug shows topics and levels", "%s", text);
    if (strcmp(row->section, "log") != 0 || strcmp(row->key, "debug") != 0)
        return NULL;
    bad = log_set_debug(value, text, sizeof(text));
    __atomic_store_n(&log_debug_bits, before, __ATOMIC_RELAXED);
    return bad != 0 ? ctl_unknown_bit(text) : NULL;
}

json_t *
ctl_do_set(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    const char *name = json_string_value(json_object_get(rq, "name"));
    const char *value = json_string_value(json_object_get(rq, "value"));
    char err[1024] = "", text[PAR_STR_BYTES], full[128];
    size_t rows[PAR_NAME_ROWS], n = 0;
    struct par_row row;
    enum par_origin from;
    json_t *r;
    int rc;

    (void)c, (void)now_ns;
    rc = par_look_up(name, rows, &n, err, sizeof(err));
    if (rc < 0)
        return ctl_fail("fdctl config", "%s", err);
    if (rc > 0)
        return ctl_fail("change the configuration file, then: sudo systemctl restart fdd",
            "%s cannot change while fdd runs", name);
    par_row(rows[0], &row);
    if (!row.reload)
        return ctl_fail("change the configuration file, then: sudo systemctl restart fdd",
            "%s.%s cannot change while fdd runs", row.section, row.key);
    r = ctl_check_value(&row, value);
    if (r != NULL)
        return r;
    rc = par_set_checked(ctl->cnf->ps, name, value, PAR_FROM_RUNTIME, err, sizeof(err));
    if (rc < 0)
        return ctl_fail(NULL, "%s", err);
    cnf_apply(ctl->cnf);
    (void)snprintf(full, sizeof(full), "%s.%s", row.section, row.key);
    par_value(ctl->cnf->ps, rows[0], text, sizeof(text), &from);
    log_info("control: %s = %s", full, text);
    r = ctl_ok();
    ctl_put(r, "name", json_string(full));
    ctl_put(r, "value", json_string(text));
    if (rc > 0)
        ctl_put(r, "warning", json_string(err));
    return r;
}

/* The configuration is in force; now the workers. Takes the answer over. */
static json_t *
ctl_roll(const struct ctl *ctl, json_t *answer)
{
    int rc = rol_begin(ctl->rolling);

    if (rc == 0) {
        ctl_put(answer, "rolling", json_integer((json_int_t)ctl->n_wrk));
        return answer;
    }
    json_decref(answer);
    if (rc == -ENOTSUP)
        return ctl_fail("sudo systemctl restart fdd",
            "the configuration is in force, but a daemon of one group cannot start its "
            "worker again and serve meanwhile");
    return ctl_fail("fdctl status",
        "the configuration is in force, but groups are being started again already, or the "
        "daemon ends");
}

json_t *
ctl_do_reload(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    json_t *answer = ctl_ok(), *errors, *e;
    char text[8192] = "";
    size_t i, at = 0;

    (void)c, (void)now_ns;
    if (cnf_reload(ctl->cnf, answer) == 0) {
        if (json_is_true(json_object_get(rq, "rolling")))
            return ctl_roll(ctl, answer);
        return answer;
    }
    errors = json_object_get(answer, "errors");
    json_array_foreach(errors, i, e)
        if (at < sizeof(text))
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s",
                i > 0 ? "\n" : "", json_string_value(e));
    ctl_put(answer, "ok", json_false());
    ctl_put(answer, "error", ctl_string(text, SIZE_MAX));
    ctl_put(answer, "fix",
        json_string("correct the file; the old configuration stays in force"));
    return answer;
}
