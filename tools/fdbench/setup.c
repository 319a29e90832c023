/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include "daemon/common/dir.h"
#include "daemon/common/text.h"

#define FORM        "a line is time_s,prompt_tokens,output_tokens"
#define WORDS_BYTES 65536u
#define DEFAULT_IN  512u
#define DEFAULT_OUT 128u
#define OPEN_LOOP_S 30.0
#define CLOSED_N    8u
#define SOME_BYTES  (6u << 20) /* of prompts; a session's 16 MiB hold twice as much */

int
fdb_opt_len(const char *what, const char *text, struct fdb_len *ret)
{
    unsigned long long lo, hi;
    const char *from = text;
    char *end;

    if (text == NULL)
        return 0;
    errno = 0;
    lo = hi = strtoull(from, &end, 10);
    if (end != from && *end == ':') {
        from = end + 1;
        hi = strtoull(from, &end, 10);
    }
    if (end == from || *end != '\0' || strchr(text, '-') != NULL || errno != 0 ||
        lo < 1 || hi > FDB_LEN_MAX || lo > hi)
        return fct_usage("%s %s: must be N or LO:HI, whole numbers from 1 to %u, LO not above HI",
            what, text, FDB_LEN_MAX);
    *ret = (struct fdb_len){ (uint32_t)lo, (uint32_t)hi };
    return 0;
}

void
fdb_cfg_init(struct fdb_cfg *cfg)
{
    *cfg = (struct fdb_cfg){ .burstiness = 1, .n_warm = UINT32_MAX, .slo_attain = 0.99 };
    cfg->n_repeat = cfg->n_prefix = cfg->n_turn = 1;
    /* A new seed each time: the prefix cache has none of its prompts from earlier runs. */
    cfg->seed = clk_wall_ns() / CLK_US % 1000000007u;
    fct_req_init(&cfg->req);
    cfg->req.p.flags = FDC_F_IGNORE_EOS;
}

static struct fdb_len
one_len(uint64_t n, uint32_t most)
{
    uint32_t len = (uint32_t)MAX(MIN(n, most), 1);

    return (struct fdb_len){ len, len };
}

/* Set what no option gave. Lengths are limited by the model's; text fills only three
 * quarters of it, as its number of tokens is an estimate. */
static void
settle(struct fdb_cfg *c, uint32_t model_len, uint32_t most)
{
    uint64_t all = model_len > 0 ? model_len : DEFAULT_IN + DEFAULT_OUT, turn;
    int closed = c->arrival == FDB_CLOSED;

    if (c->text)
        all = all * 3 / 4;
    turn = (all - MIN(all, c->prefix_len)) / c->n_turn;
    if (c->out.hi == 0 && c->n_row == 0)
        c->out =
            one_len(c->in.hi == 0 ? turn / 4 : turn - MIN(turn, c->in.hi), DEFAULT_OUT);
    if (c->in.hi == 0 && c->n_row == 0)
        c->in = one_len(turn - MIN(turn, c->out.hi), DEFAULT_IN);
    if (c->concurrency == 0 && closed)
        c->concurrency = MIN(CLOSED_N, most);
    if (c->n_request == 0 && c->arrival == FDB_TRACE)
        c->n_request = (uint32_t)c->n_row;
    else if (c->n_request == 0 && closed && !(c->duration_s > 0))
        c->n_request = c->concurrency * 10;
    else if (c->n_request == 0 && !(c->duration_s > 0))
        c->duration_s = OPEN_LOOP_S;
    if (c->n_warm == UINT32_MAX)
        c->n_warm = MIN(c->concurrency > 0 ? c->concurrency : CLOSED_N, most);
}

/* ---- files --------------------------------------------------------------- */

static const struct {
    const char *name, *kind;
    double lo, hi;
} columns[3] = { { "time_s", "number of seconds", 0, 31536000 },
    { "prompt_tokens", "whole number", 1, FDB_LEN_MAX },
    { "output_tokens", "whole number", 1, FDB_LEN_MAX } };

static int
take_line(struct fdb_cfg *cfg, size_t *cap, char *line, uint32_t number)
{
    struct fdb_row *rows = (struct fdb_row *)(uintptr_t)cfg->row;
    double v[3], before = cfg->n_row > 0 ? rows[cfg->n_row - 1].time_s : 0;
    char *field[4], *end;
    unsigned n, i;

    /* split at commas, strip blanks */
    for (n = 0; n < 4 && (field[n] = strsep(&line, ",")) != NULL; n++) {
        field[n] += strspn(field[n], " \t\r");
        for (end = strchr(field[n], '\0'); end > field[n] && strchr(" \t\r", end[-1]); end--)
            end[-1] = '\0';
    }
    if (field[0][0] == '#' || (n == 1 && field[0][0] == '\0') ||
        (cfg->n_row == 0 && strcmp(field[0], columns[0].name) == 0))
        return 0;
    if (n != 3)
        return fct_data("%s:%u: %s%u fields; " FORM, cfg->trace, number,
            n > 3 ? "more than " : "", n > 3 ? 3 : n);
    for (i = 0; i < 3; i++) {
        v[i] = strtod(field[i], &end);
        if (end == field[i] || *end != '\0' || !(v[i] >= columns[i].lo) ||
            v[i] > columns[i].hi || (i > 0 && v[i] != floor(v[i])))
            return fct_data("%s:%u: %s \"%.40s\": must be a %s from %.0f to %.0f",
                cfg->trace, number, columns[i].name, field[i], columns[i].kind,
                columns[i].lo, columns[i].hi);
        if (v[0] < before)
            return fct_data("%s:%u: time_s \"%.40s\": is before the line above (%g)",
                cfg->trace, number, field[0], before);
    }
    if (fct_room(&rows, cfg->n_row + 1, cap, sizeof(*rows)) != 0)
        return fct_oom();
    rows[cfg->n_row++] = (struct fdb_row){ v[0], (uint32_t)v[1], (uint32_t)v[2], number };
    cfg->row = rows;
    return 0;
}

/* Words of two to four syllables; tokenizers make about one token a syllable. */
static int
make_words(char **ret_text, size_t *ret_n)
{
    static const char syllable[16][4] = { "ba", "den", "fi", "gor", "hal", "in", "ka",
        "len", "mo", "nar", "pe", "ri", "sto", "tu", "ver", "wi" };
    char *text = malloc(WORDS_BYTES + 32);
    uint64_t x = 1;
    size_t n = 0;
    unsigned k;

    if (text == NULL)
        return fct_oom();
    while (n < WORDS_BYTES) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        for (k = 0; k < 2 + (x >> 62) % 3; k++)
            n = (size_t)(stpcpy(text + n, syllable[(x >> (40 + 4 * k)) & 15]) - text);
        text[n++] = ' ';
    }
    *ret_text = text;
    *ret_n = n;
    return 0;
}

int
fdb_cfg_read(struct fdb_cfg *cfg)
{
    const char *path = cfg->dataset;
    char *text = NULL, *line, *next;
    size_t n = 0, cap = 0;
    uint32_t number = 0;
    int rc = cfg->trace != NULL ? fct_slurp(cfg->trace, &text, &n) : 0;

    if (rc == 0 && text != NULL && memchr(text, '\0', n) != NULL)
        rc = fct_data("%s: has a NUL byte; a trace is text", cfg->trace);
    for (next = text; rc == 0 && (line = strsep(&next, "\n")) != NULL;)
        rc = take_line(cfg, &cap, line, ++number);
    if (rc == 0 && cfg->trace != NULL && cfg->n_row == 0)
        rc = fct_data("%s: no requests; " FORM, cfg->trace);
    free(text);
    text = NULL;
    n = 0;
    if (rc == 0 && cfg->text)
        rc = path != NULL ? fct_slurp(path, &text, &n) : make_words(&text, &n);
    if (rc == 0 && text != NULL)
        rc = fct_check_utf8(path, text, n);
    if (rc == 0 && text != NULL && n < 64)
        rc = fct_data("%s: %zu bytes; prompts are cut from 64 bytes of text or more",
            path, n);
    cfg->words = text;
    cfg->n_words = n;
    return rc;
}

void
fdb_cfg_fini(struct fdb_cfg *cfg)
{
    free((void *)(uintptr_t)cfg->row);
    free((void *)(uintptr_t)cfg->words);
    fct_req_fini(&cfg->req);
}

/* ---- the daemon ---------------------------------------------------------- */

/* Measure the bytes per token of the text with the model's tokenizer. */
static int
measure_text(struct fdb_load *l)
{
    struct fdb_cfg *c = &l->cfg;
    size_t n = txt_utf8(c->words, MIN(c->n_words, 16384)), n_ids = 0;
    uint32_t *ids = NULL;
    int rc;

    if (!l->model.has_tokenizer)
        return fct_data("--text: the model has no tokenizer");
    rc = fdc_tokenize(l->session, c->words, n, FDC_F_NO_SPECIAL | FDC_LITERAL, &ids,
        &n_ids, l->f->timeout_ms);
    if (rc < 0)
        return fct_status_fail("tokenize", rc);
    fdc_free(ids);
    if (n_ids == 0)
        return fct_data("--text: the text has no tokens");
    c->token_bytes = (double)n / (double)n_ids;
    return 0;
}

int
fdb_meet(const struct fct *f, fdc_t *s, struct fdc_info *ret_info,
    struct fdc_model_info *ret_model)
{
    int rc = FDC_E_LOADING;

    for (int i = 0; rc == FDC_E_LOADING && i <= 50; i++) {
        if (i > 0)
            clk_sleep_ns(20 * CLK_MS);
        rc = fct_info(s, f->timeout_ms, ret_info, ret_model);
        rc = rc >= 0 && ret_model->vocab == 0 ? FDC_E_LOADING : rc;
    }
    return rc >= 0
        ? 0
        : fct_fail(fct_exit_code(rc), "%s (%s)%s", fdc_strerror(rc), fdc_status_name(rc),
              rc == FDC_E_LOADING ? "; --wait S waits for it" : "");
}

int
fdb_submit_plain(fdc_t *s, uint32_t vocab, uint32_t n_prompt, uint32_t n_out,
    fdc_req_t **ret)
{
    struct fdc_submit_opts opts = { .size = sizeof(opts), .submit_timeout_ms = 10000 };
    struct fdc_params par;
    uint32_t ids[16], i;

    fdc_params_init(&par);
    par.flags = FDC_F_IGNORE_EOS;
    par.temperature = 0;
    par.max_new = n_out;
    for (i = 0; i < n_prompt; i++)
        ids[i] = (i + 1) % vocab;
    return fdc_submit_ids(s, ids, n_prompt, &par, &opts, ret);
}

int
fdb_load_open(const struct fct *f, struct fdb_load *l)
{
    struct fdb_cfg *c = &l->cfg;
    uint64_t n = c->prefix_len + (uint64_t)c->n_turn * ((uint64_t)c->in.hi + c->out.hi);
    int rc;

    /* make room in the session for the longest prompt of the options, better for four */
    for (size_t i = 0; i < c->n_row; i++)
        n = MAX(n, c->row[i].n_prompt);
    n *= c->text ? 8 : 4;
    n = MIN(MAX(n, MIN(4 * n, SOME_BYTES)), 1u << 26);
    l->f = f;
    if ((rc = fct_open(f, n, &l->session)) != 0 ||
        (rc = fdb_meet(f, l->session, &l->info, &l->model)) != 0)
        return rc;
    if (c->concurrency > l->info.max_inflight)
        return fct_usage("%u requests at a time: the daemon allows a client 1 to %u "
                         "(sched.max_inflight_per_client)",
            c->concurrency, l->info.max_inflight);
    if (c->text && (rc = measure_text(l)) != 0)
        return rc;
    settle(c, l->model.max_model_len, l->info.max_inflight);
    if (c->text)
        c->req.p.flags |= FDC_F_TEXT;
    return 0;
}

json_t *
fdb_daemon_ask(const struct fct *f)
{
    const json_t *worker;
    json_t *st = NULL, *o;

    (void)fct_ask_once(f, fct_question("status"), 1, &st);
    worker = json_object_get(st, "worker");
    o = json_pack("{s:s, s:s, s:s, s:s}", "version", fct_str(st, "version"), "commit",
        fct_str(st, "commit"), "device", fct_str(worker, "device"), "device_uuid",
        fct_str(worker, "device_uuid"));
    json_decref(st);
    return o;
}

void
fdb_result_init(struct fdb_result *r, const char *command, int argc, char **argv)
{
    time_t now = time(NULL);
    char text[32] = "", args[1024] = "fdbench"; /* cut to fit, at an argument */
    char cpus[4096], name[64] = "", model[81] = "processor", host[200];
    struct tm tm;

    memset(r, 0, sizeof(*r));
    for (int i = 0; i < argc; i++)
        (void)txt_add(args, sizeof(args), " %s", argv[i]);
    (void)dir_read("/proc/cpuinfo", 0, cpus, sizeof(cpus));
    (void)txt_field(cpus, "model name", model, sizeof(model));
    (void)gethostname(name, sizeof(name) - 1);
    snprintf(host, sizeof(host), "%s (%ld x %s)", name, sysconf(_SC_NPROCESSORS_ONLN),
        model);
    if (gmtime_r(&now, &tm) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    r->head = json_pack("{s:s, s:o, s:s, s:o}", "command", command, "args",
        fdb_text(args), "time", text, "host", fdb_text(host));
    r->repeats = json_array();
}
