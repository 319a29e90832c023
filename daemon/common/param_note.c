/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/param_priv.h"
#include "daemon/common/text.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char off_words[] = "no|none|null|off|false|0|0.0|{}|[]";

static int
unavailable(const struct par_note *n, const char *name, const char *value,
    const char *instead, char *err, size_t err_bytes)
{
    char shown[64];

    snprintf(err, err_bytes,
        "%s = %s: not available in this build (%s); remove it or "
        "write %s",
        name, par_show(value, shown, sizeof(shown)), n->text, instead);
    return -EINVAL;
}

static int
warned(const struct par_note *n, const char *name, char *err, size_t err_bytes)
{
    snprintf(err, err_bytes, "%s is accepted and has no effect: %s", name, n->text);
    return 1;
}

/* ---- JSON -------------------------------------------------------------------------- */

/* Parse an object; None, null and an empty text give JSON null. */
static int
parse_object(const char *name, const char *value, json_t **ret, char *err, size_t err_bytes)
{
    char low[64];
    json_error_t je;

    par_lower(value, low);
    if (low[0] == '\0' || par_word_in(low, off_words)) {
        *ret = json_null();
        return 0;
    }
    *ret = json_loads(value, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (*ret == NULL)
        return par_bad_value(name, value, err, err_bytes, "not JSON: %s in column %d",
            je.text, je.column);
    if (!json_is_object(*ret)) {
        json_decref(*ret);
        return par_bad_value(name, value, err, err_bytes, "must be a JSON object");
    }
    return 0;
}

static int
is_off(const json_t *v)
{
    char low[64];

    if (json_is_string(v)) {
        par_lower(json_string_value(v), low);
        return low[0] == '\0' || par_word_in(low, off_words);
    }
    return json_is_null(v) || json_is_false(v) ||
        (json_is_number(v) && json_number_value(v) == 0) ||
        (json_is_object(v) && json_object_size(v) == 0) ||
        (json_is_array(v) && json_array_size(v) == 0);
}

static int
unknown_key(const char *name, const char *key, const char *nearest, char *err,
    size_t err_bytes)
{
    char shown[64];

    snprintf(err, err_bytes, "%s: unknown key '%s'; nearest is %s", name,
        par_show(key, shown, sizeof(shown)), nearest);
    return -EINVAL;
}

/* Check that every key of the object is one of the note's. */
static int
check_keys(const struct par_note *n, const char *name, json_t *o, char *err,
    size_t err_bytes)
{
    const char *key;
    json_t *v;

    json_object_foreach(o, key, v) {
        char word[64], nearest[64] = "";
        unsigned best = ~0u, dist;
        size_t len;

        if (key[0] != '\0' && par_word_in(key, n->known))
            continue;
        for (const char *p = n->known; *p != '\0'; p += len + (p[len] == '|')) {
            len = strcspn(p, "|");
            snprintf(word, sizeof(word), "%.*s", (int)len, p);
            dist = txt_distance(key, word);
            if (dist < best) {
                best = dist;
                memcpy(nearest, word, sizeof(nearest));
            }
        }
        return unknown_key(name, key, nearest, err, err_bytes);
    }
    return 0;
}

static int
set_json(const struct par_note *n, const char *name, const char *value, char *err,
    size_t err_bytes)
{
    const char *key;
    json_t *o, *v;
    int rc = parse_object(name, value, &o, err, err_bytes), off = 1;

    if (rc != 0)
        return rc;
    json_object_foreach(o, key, v)
        off = off && is_off(v);
    rc = check_keys(n, name, o, err, err_bytes);
    json_decref(o);
    return rc != 0 ? rc : off ? 0 : unavailable(n, name, value, "{}", err, err_bytes);
}

static int
set_spec(const struct par_note *n, const char *name, const char *value, char *err,
    size_t err_bytes)
{
    static const char known[] = "mtp|ngram|naive|suffix";
    char method[64] = "";
    const json_t *v;
    json_t *o;
    int rc = parse_object(name, value, &o, err, err_bytes);

    if (rc != 0)
        return rc;
    v = json_object_get(o, "method");
    if (v != NULL && !is_off(v) && !json_is_string(v))
        rc = par_bad_value(name, value, err, err_bytes, "method must be text");
    else if (v != NULL && !is_off(v))
        par_lower(json_string_value(v), method);
    if (rc == 0)
        rc = check_keys(n, name, o, err, err_bytes);
    json_decref(o);
    if (rc != 0 || method[0] == '\0')
        return rc;
    if (!par_word_in(method, known))
        return par_bad_value(name, value, err, err_bytes,
            "method %s is not one of: mtp "
            "ngram naive suffix none",
            method);
    return unavailable(n, name, value, "{\"method\": \"none\"}", err, err_bytes);
}

/* ---- graph_optimization_config ------------------------------------------------------ */

/* Keys without effect here, and the values they accept. */
static const struct graph_key {
    const char *key, *type;
} graph_ignored[] = { { "graph_opt_level", "0, 1 or 2" },
    { "sot_warmup_sizes", "a list" }, { "cudagraph_num_of_warmups", "a number" },
    { "cudagraph_copy_inputs", "true or false" }, { "cudagraph_splitting_ops", "a list" },
    { "full_cuda_graph", "true or false" }, { "cudagraph_only_prefill", "true or false" },
    { "use_unique_memory_pool", "true or false" },
    { "draft_model_use_cudagraph", "true or false" } };
#define N_GRAPH_IGNORED (sizeof(graph_ignored) / sizeof(graph_ignored[0]))

static int
graph_type_ok(const char *type, const json_t *v)
{
    if (type[0] == 't')
        return json_is_boolean(v);
    if (strcmp(type, "a list") == 0)
        return json_is_array(v) || json_is_null(v);
    if (strcmp(type, "a number") == 0)
        return json_is_integer(v) && json_integer_value(v) >= 0;
    return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= 2;
}

static int
bad_key(const char *name, const char *key, const json_t *v, const char *must, char *err,
    size_t err_bytes)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY), what[96], shown[64];

    snprintf(what, sizeof(what), "%s: %s", name, par_show(key, shown, sizeof(shown)));
    (void)par_bad_value(what, text != NULL ? text : "?", err, err_bytes, "must be %s", must);
    free(text);
    return -EINVAL;
}

/* Write the list as text for graph.capture_sizes. */
static int
graph_sizes(const char *name, const json_t *v, char *ret, size_t ret_bytes, char *err,
    size_t err_bytes)
{
    size_t i, at = 0;

    ret[0] = '\0';
    if (!json_is_array(v) || json_array_size(v) == 0)
        return bad_key(name, "cudagraph_capture_sizes", v,
            "a list of token counts that is not empty, or null", err, err_bytes);
    for (i = 0; i < json_array_size(v); i++) {
        const json_t *e = json_array_get(v, i);

        if (!json_is_integer(e))
            return bad_key(name, "cudagraph_capture_sizes", v, "a list of whole numbers",
                err, err_bytes);
        at += (size_t)snprintf(ret + at, ret_bytes - at, "%s%lld", at > 0 ? "," : "",
            (long long)json_integer_value(e));
        if (at >= ret_bytes)
            return bad_key(name, "cudagraph_capture_sizes", v, "a shorter list", err,
                err_bytes);
    }
    return 0;
}

static int
unknown_graph_key(const char *name, const char *key, char *err, size_t err_bytes)
{
    static const char *const ours[] = { "use_cudagraph", "cudagraph_capture_sizes",
        "max_capture_shape_prefill" };
    const char *nearest = ours[0];
    unsigned best = ~0u, n;
    size_t i;

    for (i = 0; i < N_GRAPH_IGNORED + 3; i++) {
        const char *k = i < 3 ? ours[i] : graph_ignored[i - 3].key;

        n = txt_distance(key, k);
        if (n < best) {
            best = n;
            nearest = k;
        }
    }
    return unknown_key(name, key, nearest, err, err_bytes);
}

/* Apply one member. *ret_ignored: 1 if it has no effect. */
static int
graph_member(struct par_set *ps, size_t note, const char *name, const char *key,
    const json_t *v, enum par_origin from, int *ret_ignored, char *err, size_t err_bytes)
{
    char text[PAR_STR_BYTES], what[128];
    const char *row = NULL;
    struct par_ref ref;
    size_t i;
    int rc = 0;

    *ret_ignored = 0;
    for (i = 0; i < N_GRAPH_IGNORED; i++)
        if (strcmp(graph_ignored[i].key, key) == 0) {
            *ret_ignored = 1;
            return graph_type_ok(graph_ignored[i].type, v)
                ? 0
                : bad_key(name, key, v, graph_ignored[i].type, err, err_bytes);
        }
    if (strcmp(key, "use_cudagraph") == 0) {
        row = "graph.use_cudagraph";
        if (!json_is_boolean(v))
            return bad_key(name, key, v, "true or false", err, err_bytes);
        snprintf(text, sizeof(text), "%s", json_is_true(v) ? "yes" : "no");
    } else if (strcmp(key, "cudagraph_capture_sizes") == 0) {
        row = "graph.capture_sizes";
        if (json_is_null(v))
            return 0;
        rc = graph_sizes(name, v, text, sizeof(text), err, err_bytes);
    } else if (strcmp(key, "max_capture_shape_prefill") == 0) {
        row = "graph.prefill_max_tokens";
        if (!json_is_integer(v))
            return bad_key(name, key, v, "a number of tokens", err, err_bytes);
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v));
    } else {
        return unknown_graph_key(name, key, err, err_bytes);
    }
    snprintf(what, sizeof(what), "%s: %s", name, key);
    if (rc == 0)
        rc = par_find(NULL, row, &ref, err, err_bytes);
    return rc != 0 ? rc
                   : par_set_row(ps, &ref, (int)note, what, text, from, err, err_bytes);
}

static int
set_graph(struct par_set *ps, size_t note, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes)
{
    char ignored[512] = "";
    const char *key;
    json_t *o, *v;
    size_t at = 0;
    int rc = parse_object(name, value, &o, err, err_bytes), skip;

    if (rc != 0)
        return rc;
    json_object_foreach(o, key, v) {
        rc = graph_member(ps, note, name, key, v, from, &skip, err, err_bytes);
        if (rc != 0)
            break;
        if (skip && at < sizeof(ignored))
            at += (size_t)snprintf(ignored + at, sizeof(ignored) - at, "%s%s",
                at > 0 ? ", " : "", key);
    }
    json_decref(o);
    if (rc == 0 && at > 0) {
        snprintf(err, err_bytes, "%s: %s accepted without effect: %s", name, ignored,
            par_notes[note].text);
        return 1;
    }
    return rc;
}

/* ---- notes ------------------------------------------------------------------------- */

/* no: depth 0. yes: the depth that is set, or 2 if that is 0. */
static int
set_overlap(struct par_set *ps, size_t note, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes)
{
    struct par_ref ref;
    int64_t on = 0, depth = 0;
    int rc = par_parse_bool(name, value, &on, err, err_bytes);

    if (rc == 0)
        rc = par_find(NULL, "device.overlap_depth", &ref, err, err_bytes);
    if (rc != 0)
        return rc;
    memcpy(&depth, (const char *)&ps->par + par_defs[ref.idx].offset, sizeof(depth));
    if (on && depth > 0)
        return 0;
    return par_set_row(ps, &ref, (int)note, name, on ? "2" : "0", from, err, err_bytes);
}

/* The note's value is the opposite of the row's. */
static int
set_reduce(struct par_set *ps, size_t note, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes)
{
    struct par_ref ref;
    int64_t off = 0;
    int rc = par_parse_bool(name, value, &off, err, err_bytes);

    if (rc == 0)
        rc = par_find(NULL, "parallel.custom_all_reduce", &ref, err, err_bytes);
    return rc != 0
        ? rc
        : par_set_row(ps, &ref, (int)note, name, off ? "no" : "auto", from, err, err_bytes);
}

static int
set_off(const struct par_note *n, const char *name, const char *value, char *err,
    size_t err_bytes)
{
    char low[64], list[128];
    size_t i;

    par_lower(value, low);
    if (low[0] == '\0' || par_word_in(low, off_words) || par_word_in(low, n->ok))
        return 0;
    if (n->known[0] == '*' || par_word_in(low, n->known))
        return unavailable(n, name, value, n->ok[0] != '\0' ? n->ok : "none", err,
            err_bytes);
    snprintf(list, sizeof(list), "%s %s", n->ok[0] != '\0' ? n->ok : "none", n->known);
    for (i = 0; list[i] != '\0'; i++)
        if (list[i] == '|')
            list[i] = ' ';
    return par_bad_value(name, value, err, err_bytes, "must be one of: %s", list);
}

static int
set_one(const struct par_note *n, const char *name, const char *value, char *err,
    size_t err_bytes)
{
    char *end;
    long v = strtol(value, &end, 10);

    if (end == value || *end != '\0' || isspace((unsigned char)value[0]))
        return par_bad_value(name, value, err, err_bytes, "not a whole number");
    if (v < 1)
        return par_bad_value(name, value, err, err_bytes, "must be at least 1");
    return v == 1 ? 0 : unavailable(n, name, value, "1", err, err_bytes);
}

int
par_set_note(struct par_set *ps, size_t idx, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes)
{
    const struct par_note *n = &par_notes[idx];
    int64_t on = 0;
    char low[64];
    int rc;

    switch (n->kind) {
    case PAR_N_WARN:
        return warned(n, name, err, err_bytes);
    case PAR_N_FLAG:
        rc = par_parse_bool(name, value, &on, err, err_bytes);
        par_lower(value, low);
        return rc != 0                ? rc
            : par_word_in(low, n->ok) ? 0
                                      : warned(n, name, err, err_bytes);
    case PAR_N_NEVER:
        rc = par_parse_bool(name, value, &on, err, err_bytes);
        return rc == 0 && on ? unavailable(n, name, value, "no", err, err_bytes) : rc;
    case PAR_N_ONE:
        return set_one(n, name, value, err, err_bytes);
    case PAR_N_JSON:
        return set_json(n, name, value, err, err_bytes);
    case PAR_N_SPEC:
        return set_spec(n, name, value, err, err_bytes);
    case PAR_N_GRAPH:
        return set_graph(ps, idx, name, value, from, err, err_bytes);
    case PAR_N_OVERLAP:
        return set_overlap(ps, idx, name, value, from, err, err_bytes);
    case PAR_N_REDUCE:
        return set_reduce(ps, idx, name, value, from, err, err_bytes);
    case PAR_N_OFF:
        break;
    }
    return set_off(n, name, value, err, err_bytes);
}

/* ---- names ------------------------------------------------------------------------ */

const char *
par_note_rule(const struct par_note *n)
{
    static const char *const rules[] = { "ignored with a warning",
        "ignored with a warning", "refused unless off", "refused unless no",
        "refused unless 1", "refused unless empty", "refused unless its method is none",
        "JSON whose use_cudagraph, "
        "cudagraph_capture_sizes and max_capture_shape_prefill set graph.use_cudagraph, "
        "graph.capture_sizes and graph.prefill_max_tokens",
        "no sets device.overlap_depth to 0, yes to 2 where it is 0",
        "yes sets parallel.custom_all_reduce to no, no to auto" };

    return rules[n->kind];
}

int
par_look_up(const char *name, size_t ret_rows[PAR_NAME_ROWS], size_t *ret_n, char *text,
    size_t text_bytes)
{
    static const char *const graph[] = { "graph.use_cudagraph", "graph.capture_sizes",
        "graph.prefill_max_tokens" };
    const char *sets[4] = { NULL };
    const struct par_note *n;
    struct par_ref ref, row;
    int rc = par_find(NULL, name, &ref, text, text_bytes);

    *ret_n = 0;
    if (rc != 0)
        return rc;
    if (!ref.note) {
        ret_rows[(*ret_n)++] = ref.idx;
        return 0;
    }
    n = &par_notes[ref.idx];
    if (n->kind == PAR_N_GRAPH)
        memcpy(sets, graph, sizeof(graph));
    else if (n->kind == PAR_N_OVERLAP)
        sets[0] = "device.overlap_depth";
    else if (n->kind == PAR_N_REDUCE)
        sets[0] = "parallel.custom_all_reduce";
    for (size_t i = 0; sets[i] != NULL; i++)
        if (par_find(NULL, sets[i], &row, text, text_bytes) == 0)
            ret_rows[(*ret_n)++] = row.idx;
    snprintf(text, text_bytes, "%s is a name of another server: %s%s%s%s%s", n->key,
        par_note_rule(n), n->kind == PAR_N_OFF && n->ok[0] != '\0' ? " or " : "",
        n->kind == PAR_N_OFF ? n->ok : "", n->text[0] != '\0' ? "; " : "", n->text);
    return 1;
}
