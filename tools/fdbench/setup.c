/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_IN  512u
#define DEFAULT_OUT 128u
#define OPEN_LOOP_S 30.0
#define CLOSED_N    8u
#define SOME_BYTES  (6u << 20) /* of the 16 MiB a session may have, twice */

/* ---- values of options --------------------------------------------------- */

int
fdb_opt_len(const char *what, const char *text, uint32_t max, struct fdb_len *ret)
{
    const char *colon = strchr(text, ':');
    unsigned long long lo, hi;
    char *end;

    errno = 0;
    lo = hi = strtoull(text, &end, 10);
    if (end != text && colon != NULL && end == colon) {
        const char *second = colon + 1;

        hi = strtoull(second, &end, 10);
        end = end == second ? (char *)(uintptr_t)text : end;
    }
    if (end == text || *end != '\0' || strchr(text, '-') != NULL || errno != 0 ||
        lo < 1 || hi > max || lo > hi)
        return fct_fail(FCT_EX_USAGE,
            "%s %s: must be N or LO:HI, whole numbers from 1 "
            "to %u, LO not above HI",
            what, text, max);
    *ret = (struct fdb_len){ .dist = lo == hi ? FDB_FIXED : FDB_UNIFORM,
        .lo = (uint32_t)lo,
        .hi = (uint32_t)hi };
    return 0;
}

/* ---- defaults ------------------------------------------------------------ */

/* Another one each time: what an earlier run left in the prefix cache must
 * not be found by the next. */
static uint64_t
fresh_seed(void)
{
    return clk_wall_ns() / CLK_US % 1000000007u;
}

void
fdb_cfg_init(struct fdb_cfg *cfg)
{
    memset(cfg, 0, sizeof(*cfg));
    cfg->arrival = FDB_CLOSED;
    cfg->burstiness = 1;
    cfg->n_warm = UINT32_MAX;
    cfg->n_repeat = cfg->n_prefix = cfg->n_turn = 1;
    cfg->slo_attain = 0.99;
    cfg->seed = fresh_seed();
    fct_req_init(&cfg->req);
    cfg->req.p.flags = FDC_F_IGNORE_EOS;
}

static struct fdb_len
fixed(uint64_t n)
{
    uint32_t v = n > 0 ? (uint32_t)n : 1;

    return (struct fdb_len){ .dist = FDB_FIXED, .lo = v, .hi = v };
}

/* Lengths that no option gave: as much as the model takes. A text's tokens
 * are only guessed, so that it is to fill three quarters. */
static void
settle_lengths(struct fdb_cfg *c, uint32_t model_len)
{
    uint64_t all = model_len > 0 ? model_len : DEFAULT_IN + DEFAULT_OUT, turn, n;

    if (c->text)
        all = all * 3 / 4;
    turn = (all > c->prefix_len ? all - c->prefix_len : 0) / c->n_turn;
    if (c->out.hi == 0) {
        n = c->in.hi == 0 ? turn / 4 : turn > c->in.hi ? turn - c->in.hi : 1;
        c->out = fixed(n < DEFAULT_OUT ? n : DEFAULT_OUT);
    }
    if (c->in.hi == 0) {
        n = turn > c->out.hi ? turn - c->out.hi : 1;
        c->in = fixed(n < DEFAULT_IN ? n : DEFAULT_IN);
    }
}

static void
settle_counts(struct fdb_cfg *c, uint32_t most)
{
    uint32_t n;

    if (c->concurrency == 0 && c->arrival == FDB_CLOSED)
        c->concurrency = CLOSED_N < most ? CLOSED_N : most;
    n = c->concurrency > 0 ? c->concurrency : CLOSED_N;
    if (c->n_request == 0 && c->arrival == FDB_TRACE)
        c->n_request = (uint32_t)c->n_row;
    else if (c->n_request == 0 && c->arrival == FDB_CLOSED && !(c->duration_s > 0))
        c->n_request = c->concurrency * 10;
    else if (c->n_request == 0 && !(c->duration_s > 0))
        c->duration_s = OPEN_LOOP_S;
    if (c->n_warm == UINT32_MAX)
        c->n_warm = n < most ? n : most;
}

/* ---- the daemon ---------------------------------------------------------- */

/* Bytes of prompts that the session is to hold: of the longest as far as the
 * options say, better of some. */
static size_t
prompt_bytes(const struct fdb_cfg *c)
{
    uint64_t n = c->prefix_len + (uint64_t)c->n_turn * ((uint64_t)c->in.hi + c->out.hi);
    size_t i;

    for (i = 0; i < c->n_row; i++)
        n = c->row[i].n_prompt > n ? c->row[i].n_prompt : n;
    n *= c->text ? 8 : 4;
    n = 4 * n <= SOME_BYTES ? 4 * n : n > SOME_BYTES ? n : SOME_BYTES;
    return n < (1u << 26) ? (size_t)n : (size_t)1 << 26;
}

/* Bytes a token of the text stands for, by the model's tokenizer. */
static int
measure_text(struct fdb_load *l)
{
    struct fdb_cfg *c = &l->cfg;
    size_t n = c->n_words < 16384 ? c->n_words : 16384, n_ids = 0;
    uint32_t *ids = NULL;
    int rc;

    if (!l->model.has_tokenizer)
        return fct_fail(FCT_EX_DATA, "--text: the model has no tokenizer");
    while (n > 0 && n < c->n_words && ((unsigned char)c->words[n] & 0xc0) == 0x80)
        n--;
    rc = fdc_tokenize(l->session, c->words, n, FDC_F_NO_SPECIAL | FDC_LITERAL, &ids,
        &n_ids, l->f->timeout_ms);
    if (rc < 0)
        return fct_status_fail("tokenize", rc);
    fdc_free(ids);
    if (n_ids == 0)
        return fct_fail(FCT_EX_DATA, "--text: the text has no tokens");
    c->token_bytes = (double)n / (double)n_ids;
    return 0;
}

int
fdb_load_open(const struct fct *f, struct fdb_load *l)
{
    struct fdb_cfg *c = &l->cfg;
    int rc = fct_open(f, prompt_bytes(c), &l->session);

    if (rc != 0)
        return rc;
    l->f = f;
    l->info = (struct fdc_info){ .size = sizeof(l->info), .model = &l->model };
    l->model.size = sizeof(l->model);
    rc = fdc_info(l->session, &l->info, f->timeout_ms);
    if (rc >= 0 && l->model.vocab == 0)
        rc = FDC_E_LOADING;
    if (rc < 0)
        return fct_fail(fct_exit_code(rc), "%s (%s)%s", fdc_strerror(rc),
            fdc_status_name(rc), rc == FDC_E_LOADING ? "; --wait S waits for it" : "");
    if (c->concurrency > l->info.max_inflight)
        return fct_fail(FCT_EX_USAGE,
            "%u requests at a time: the daemon allows a client "
            "1 to %u (sched.max_inflight_per_client)",
            c->concurrency, l->info.max_inflight);
    if (c->text && (rc = measure_text(l)) != 0)
        return rc;
    if (c->n_row == 0)
        settle_lengths(c, l->model.max_model_len);
    settle_counts(c, l->info.max_inflight);
    if (c->text)
        c->req.p.flags |= FDC_F_TEXT;
    return 0;
}

/* ---- what a report says of the run --------------------------------------- */

void
fdb_daemon_ask(const struct fct *f, struct fdb_daemon *ret)
{
    const json_t *worker;
    json_t *st = NULL;

    memset(ret, 0, sizeof(*ret));
    if (fct_ask_once(f, json_pack("{s:s}", "cmd", "status"), 1, &st) == 0) {
        worker = json_object_get(st, "worker");
        snprintf(ret->version, sizeof(ret->version), "%s", fct_str(st, "version"));
        snprintf(ret->commit, sizeof(ret->commit), "%s", fct_str(st, "commit"));
        snprintf(ret->device, sizeof(ret->device), "%s", fct_str(worker, "device"));
        snprintf(ret->device_uuid, sizeof(ret->device_uuid), "%s",
            fct_str(worker, "device_uuid"));
    }
    json_decref(st);
}

/* "host (8 x processor)" */
static void
describe_host(char *ret, size_t n)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256], name[64] = "", *model = NULL;

    while (f != NULL && model == NULL && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
            model = strchr(line, ':') + 1;
            model += strspn(model, " ");
            model[strcspn(model, "\n")] = '\0';
        }
    if (f != NULL)
        fclose(f);
    (void)gethostname(name, sizeof(name) - 1);
    snprintf(ret, n, "%s (%ld x %.80s)", name, sysconf(_SC_NPROCESSORS_ONLN),
        model != NULL ? model : "processor");
}

/* "fdbench serve -c 16", cut where it is full. */
static void
join_args(char *ret, size_t n, int argc, char **argv)
{
    size_t at = (size_t)snprintf(ret, n, "fdbench"), k;
    int i;

    for (i = 0; i < argc && at < n - 1; i++) {
        ret[at++] = ' ';
        k = strnlen(argv[i], n - 1 - at);
        memcpy(ret + at, argv[i], k);
        at += k;
        ret[at] = '\0';
    }
}

void
fdb_result_init(struct fdb_result *r, const char *command, int argc, char **argv)
{
    time_t now = time(NULL);
    struct tm tm;

    memset(r, 0, sizeof(*r));
    r->command = command;
    join_args(r->args, sizeof(r->args), argc, argv);
    if (gmtime_r(&now, &tm) != NULL)
        strftime(r->time, sizeof(r->time), "%Y-%m-%dT%H:%M:%SZ", &tm);
    describe_host(r->host, sizeof(r->host));
}
