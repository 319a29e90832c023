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

/* Values, and the places where they were set, as JSON strings. */
struct ctl_quoted {
    char value[6 * PAR_STR_BYTES], now[6 * PAR_STR_BYTES], where[6 * PAR_STR_BYTES];
};

static const char *
ctl_quote(const char *s, char (*ret)[6 * PAR_STR_BYTES])
{
    return log_quote(s, *ret, sizeof(*ret));
}

/* Writes the value that takes effect after a restart. */
static void
ctl_put_waiting(FILE *f, const struct cnf *cnf, size_t i, struct ctl_quoted *q)
{
    char value[PAR_STR_BYTES];
    enum par_origin from;

    par_value(cnf->ps_file, i, value, sizeof(value), &from);
    (void)fprintf(f, ",\"waiting\":{\"value\":%s,\"origin\":\"%s\",\"where\":%s}",
        ctl_quote(value, &q->value), ctl_origins[from],
        ctl_quote(par_where(cnf->ps_file, i), &q->where));
}

static void
ctl_put_param(FILE *f, const struct cnf *cnf, size_t i, struct ctl_quoted *q)
{
    char value[PAR_STR_BYTES], now[PAR_STR_BYTES], text[128];
    enum par_origin from;
    struct par_row row;

    par_row(i, &row);
    par_value(cnf->ps, i, value, sizeof(value), &from);
    cnf_effective(cnf, i, now, sizeof(now));
    (void)fprintf(f,
        "{\"name\":\"%s.%s\",\"value\":%s,\"effective\":%s,\"auto\":%s,\"default\":\"%s\","
        "\"origin\":\"%s\",\"where\":%s",
        row.section, row.key, ctl_quote(value, &q->value), ctl_quote(now, &q->now),
        now[0] != '\0' && cnf_is_auto(value) ? "true" : "false", row.def,
        ctl_origins[from], ctl_quote(par_where(cnf->ps, i), &q->where));
    if (cnf_waits(cnf, i))
        ctl_put_waiting(f, cnf, i, q);
    (void)fprintf(f,
        ",\"type\":\"%s\",\"list\":%s,\"unit\":\"%s\",\"min\":\"%s\",\"max\":\"%s\","
        "\"choices\":\"%s\",\"aliases\":\"%s\",\"reload\":%s,\"help\":\"%s\"}",
        row.type, row.list ? "true" : "false", row.unit, row.min, row.max,
        par_words(row.words, "|", text, sizeof(text)), row.aliases,
        row.reload ? "true" : "false", row.help);
}

/* The reply with the parameters of these rows (NULL: all n), and note. Written as text
 * directly: to make an object of all rows and its text takes 0.7 ms of the loop. Texts of
 * the table need no escapes. */
static json_t *
ctl_config(const struct cnf *cnf, const size_t *rows, size_t n, const char *note)
{
    const struct par_set *ps =
        cnf->ps_file != NULL ? cnf->ps_file : cnf->ps; /* as last read */
    struct ctl_quoted q;
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    if (f == NULL)
        return NULL;
    (void)fprintf(f, "{\"ok\":true,\"file\":%s,\"files\":[",
        ctl_quote(cnf->src.file, &q.where));
    for (size_t i = 0; i < par_n_files(ps); i++)
        (void)fprintf(f, "%s%s", i > 0 ? "," : "", ctl_quote(par_file(ps, i), &q.where));
    (void)fputs("],\"config\":[", f);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            (void)fputc(',', f);
        ctl_put_param(f, cnf, rows != NULL ? rows[i] : i, &q);
    }
    (void)fputc(']', f);
    if (note != NULL)
        (void)fprintf(f, ",\"note\":%s", ctl_quote(note, &q.where));
    (void)fputc('}', f);
    return ctl_made(f, &text);
}

json_t *
ctl_do_config(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns)
{
    const char *word = json_string_value(json_object_get(rq, "name"));
    size_t rows[PAR_NAME_ROWS], n;
    char err[768] = "";
    int rc;

    (void)c, (void)now_ns;
    if (word == NULL)
        return ctl_config(ctl->cnf, NULL, par_count(), NULL);
    rc = par_look_up(word, rows, &n, err, sizeof(err));
    if (rc < 0)
        return ctl_fail("fdctl config", "%s", err);
    return ctl_config(ctl->cnf, rows, n, rc > 0 ? err : NULL);
}

/* Checks that the parameter's type does not cover. Returns NULL, or the error. */
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

/* The configuration is in force; now restarts the workers. Takes answer over. */
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
        "the configuration is in force, but a rolling restart is already under way, or "
        "the daemon is stopping");
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
