/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/report.h"

#define DEFAULT_IN  512u
#define DEFAULT_OUT 128u
#define OPEN_LOOP_S 30.0
#define CLOSED_N    8u
#define SOME_BYTES  (6u << 20) /* of prompts: twice as much fits into a session's 16 MiB */

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
    *cfg = (struct fdb_cfg){ .burstiness = 1,
        .n_warm = UINT32_MAX,
        .n_repeat = 1,
        .n_prefix = 1,
        .n_turn = 1,
        .slo_attain = 0.99,
        /* another one each time: what an earlier run left in the prefix cache must not be
         * found by the next */
        .seed = clk_wall_ns() / CLK_US % 1000000007u };
    fct_req_init(&cfg->req);
    cfg->req.p.flags = FDC_F_IGNORE_EOS;
}

static struct fdb_len
one_len(uint64_t n, uint32_t most)
{
    uint32_t len = (uint32_t)MAX(MIN(n, most), 1);

    return (struct fdb_len){ len, len };
}

/* What no option gave. Lengths: as much as the model takes; a text's tokens are only
 * guessed, so that it is to fill three quarters. */
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

uint64_t
fdb_clock_ns(clockid_t clk)
{
    struct timespec t = { .tv_sec = 0 };

    (void)clock_gettime(clk, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the daemon ---------------------------------------------------------- */

/* Bytes a token of the text stands for, by the model's tokenizer. */
static int
measure_text(struct fdb_load *l)
{
    struct fdb_cfg *c = &l->cfg;
    size_t n = MIN(c->n_words, 16384), n_ids = 0;
    uint32_t *ids = NULL;
    int rc;

    if (!l->model.has_tokenizer)
        return fct_data("--text: the model has no tokenizer");
    while (n > 0 && n < c->n_words && ((unsigned char)c->words[n] & 0xc0) == 0x80)
        n--;
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
fdb_info(fdc_t *s, int timeout_ms, struct fdc_info *ret_info,
    struct fdc_model_info *ret_model)
{
    int rc;

    *ret_model = (struct fdc_model_info){ .size = sizeof(*ret_model) };
    *ret_info = (struct fdc_info){ .size = sizeof(*ret_info), .model = ret_model };
    rc = fdc_info(s, ret_info, timeout_ms);
    return rc >= 0 && ret_model->vocab == 0 ? FDC_E_LOADING : rc;
}

int
fdb_meet(const struct fct *f, fdc_t *s, struct fdc_info *ret_info,
    struct fdc_model_info *ret_model)
{
    int rc, i;

    for (i = 0; (rc = fdb_info(s, f->timeout_ms, ret_info, ret_model)) == FDC_E_LOADING;
         i++) {
        if (i == 50)
            break;
        clk_sleep_ns(20 * CLK_MS);
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

    /* the session is to hold the longest prompt as far as the options say, better some */
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
    char text[32] = "", args[1024] = "fdbench"; /* cut where it is full */
    char line[256], name[64] = "", model[81] = "processor", host[200];
    FILE *f = fopen("/proc/cpuinfo", "r");
    size_t at = strlen(args);
    struct tm tm;

    memset(r, 0, sizeof(*r));
    for (int i = 0; i < argc && at < sizeof(args); i++)
        at += (size_t)snprintf(args + at, sizeof(args) - at, " %s", argv[i]);
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "model name : %80[^\n]", model) == 1)
            break;
    if (f != NULL)
        fclose(f);
    (void)gethostname(name, sizeof(name) - 1);
    snprintf(host, sizeof(host), "%s (%ld x %s)", name, sysconf(_SC_NPROCESSORS_ONLN),
        model);
    if (gmtime_r(&now, &tm) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    r->head = json_pack("{s:s, s:o, s:s, s:o}", "command", command, "args",
        fdb_text(args), "time", text, "host", fdb_text(host));
    r->repeats = json_array();
}
