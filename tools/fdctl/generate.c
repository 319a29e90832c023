/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"

#define N_REQUESTS_MAX 10000000u

/* A request: waiting, in flight or ended. */
struct slot {
    const struct fct_req *req;
    fdc_req_t *handle;
    struct fct_result res;
    size_t index, n_printed, n_echoed; /* bytes printed of the text and of the prompt */
    unsigned tries;
    uint64_t t_retry; /* time before which it is not sent again */
    int without_text; /* it was sent again without a request for text */
};

struct gen {
    /* from the line */
    const char *text, *file, *ids, *batch;
    uint64_t n_requests, concurrency, retry;
    int json, stats, has_source;
    struct fct_req dflt;

    const struct fct *f;
    fdc_t *s;
    struct fct_req *reqs; /* those of the batch, or &dflt */
    size_t n_reqs;
    struct slot *slots;
    size_t n_slots, n_begun, n_over;
    size_t head; /* first slot whose output is not complete */
    size_t n_open;
    int header;  /* a header is printed over each text */
    int unknown; /* the model was loading when the requests were made */
    int holes;   /* slots before n_begun may have to be sent again */
    int cancelled, exit_code;
    uint64_t t_begin, t_end, n_tokens;
    double ttft_sum, ttft_max;
    size_t n_ttft;
    char said[256]; /* the last error message */
    size_t n_same;  /* errors since then with an equal message */
};

/* ---- options ------------------------------------------------------------------ */

static const struct fct_line line;

static int
take_word(void *args, const char *word)
{
    if (strcmp(word, "-") != 0)
        return fct_usage("generate: unexpected '%s'; a prompt is given with -p", word);
    return fct_set(&line, "prompt-file", word, args);
}

#define FCT_ARGS struct gen
#define ONE \
    FCT_HAS(has_source), \
        .once = "generate: one prompt only: " \
                "-p, --prompt-file, --ids-file, --batch or -"
static const struct fct_opt opts[] = {
    FCT_TEXT('p', "prompt", "TEXT", text, "the prompt", ONE),
    FCT_TEXT(0, "prompt-file", "FILE", file, "the prompt is the file's text", ONE),
    FCT_TEXT(0, "ids-file", "FILE", ids, "the prompt as token ids: JSON list or numbers",
        ONE),
    FCT_TEXT(0, "batch", "FILE", batch,
        "a JSON object per line: prompt or ids, parameters", ONE),
    FCT_U64(0, "n-requests", "N", n_requests, N_REQUESTS_MAX, "the same prompt N times"),
    FCT_U64(0, "concurrency", "N", concurrency, 1000000,
        "requests at a time (what the daemon allows)"),
    FCT_U64(0, "retry", "N", retry, 1000000,
        "send again so often after a retryable refusal"),
    FCT_FLAG(0, "json", json, "a JSON object per request, in order"),
    FCT_FLAG(0, "stats", stats, "tokens per second and time to first token on stderr"),
    FCT_OPT_HELP, FCT_OPT_HEAD("parameters (also keys of batch lines, with _ for -):"),
    FCT_OPT_END
};

static const struct fct_line line =
    FCT_LINE("fdctl generate [-p TEXT | --prompt-file FILE | --ids-file FILE |\n"
             "                      --batch FILE.jsonl | -] [options]",
        "Generate text; - reads the prompt from standard input.", opts,
        .opts[1] = fct_param_opts, .operand = take_word,
        .req = 1 + offsetof(struct gen, dflt));

/* Load the prompt, or the batch, into g->reqs. */
static int
load_requests(struct gen *g)
{
    const char *path = g->file != NULL ? g->file : g->ids != NULL ? g->ids : g->batch;
    const char *name = path == NULL ? "-p"
        : strcmp(path, "-") == 0    ? "standard input"
                                    : path;
    char *text = path == NULL ? strdup(g->text) : NULL, err[256];
    size_t n = text != NULL ? strlen(text) : 0;
    struct fct_req *r = &g->dflt;
    int rc = path != NULL ? fct_slurp(path, &text, &n) : text == NULL ? fct_oom() : 0;

    if (rc == 0 && g->batch != NULL) {
        rc = fct_parse_batch(name, text, n, &g->dflt, &g->reqs, &g->n_reqs);
        free(text);
        return rc;
    }
    if (rc != 0)
        return rc;
    g->reqs = r;
    g->n_reqs = 1;
    r->has_prompt = 1;
    if (g->ids == NULL) {
        r->text = text;
        r->n_text = n;
        return fct_check_utf8(name, text, n);
    }
    rc = fct_parse_ids(text, n, &r->ids, &r->n_ids, err, sizeof(err));
    free(text);
    return rc == 0 ? 0 : fct_data("%s: %s", name, err);
}

/* ---- output ------------------------------------------------------------------ */

static void
print_header(const struct gen *g, const struct slot *s, unsigned sample)
{
    if (!g->header && s->res.n_choices == 1)
        return;
    printf("%s=== request %zu", s->index + sample > 0 ? "\n" : "", s->index);
    if (s->res.n_choices > 1)
        printf(", sample %u", sample);
    puts(" ===");
}

/* Print the text from *from on, and set *from to its end. */
static void
print_from(const struct fct_buf *text, size_t *from)
{
    if (text->n > *from)
        fwrite(text->p + *from, 1, text->n - *from, stdout);
    *from = text->n;
}

/* Print the new text of the head. */
static void
print_new_text(struct gen *g, struct slot *s)
{
    const struct fct_choice *c = s->res.choices;

    if (c == NULL) /* not sent yet, or waiting for a retry */
        return;
    if (s->n_printed == 0 && s->n_echoed == 0 && c->text.n + s->res.prompt->text.n > 0)
        print_header(g, s, 0);
    print_from(&s->res.prompt->text, &s->n_echoed);
    print_from(&c->text, &s->n_printed);
    fflush(stdout);
}

static void
print_rest(struct gen *g, struct slot *s)
{
    print_new_text(g, s);
    for (unsigned i = 0; i < s->res.n_choices; i++) {
        const struct fct_choice *c = &s->res.choices[i];
        size_t n_ids = json_array_size(c->ids), from = 0, echoed = 0;

        /* A refused request has no output: no header. */
        if (s->res.error.code != FDC_OK && c->text.n == 0 && n_ids == 0)
            continue;
        if (i > 0 || (s->n_printed == 0 && s->n_echoed == 0))
            print_header(g, s, i);
        if (i > 0) {
            print_from(&s->res.prompt->text, &echoed);
            print_from(&c->text, &from);
        }
        /* A model without a tokenizer sends only ids. */
        if (c->text.n == 0 && n_ids > 0 && (s->req->p.flags & FDC_F_TEXT) == 0)
            for (size_t k = 0; k < n_ids; k++)
                printf("%s%lld", k > 0 ? " " : "",
                    (long long)json_integer_value(json_array_get(c->ids, k)));
        putchar('\n');
    }
    fflush(stdout);
}

static void
flush_same(struct gen *g)
{
    if (g->n_same > 0)
        fct_fail(0, "(the same of %zu more request%s)", g->n_same, g->n_same > 1 ? "s" : "");
    g->n_same = 0;
}

/* Print an error once, even if it ends all requests. */
static void
say_error(struct gen *g, const struct slot *s)
{
    char text[sizeof(g->said)];

    fct_error_text(&s->res.error, text, sizeof(text));
    if (strcmp(text, g->said) == 0) {
        g->n_same++;
        return;
    }
    flush_same(g);
    snprintf(g->said, sizeof(g->said), "%s", text);
    if (g->header)
        fct_fail(0, "request %zu: %s", s->index, text);
    else
        fct_fail(0, "%s", text);
    if (s->res.error.code == FDC_E_BAD_TOKEN || s->res.error.code == FDC_E_TOO_LONG)
        fct_fail(0, "fdctl status shows the model's limits");
    if (s->res.error.code == FDC_E_NO_MODEL && s->req->text != NULL)
        fct_fail(0, "without a tokenizer a prompt is given by --ids-file");
}

/* Print the completed requests in order, and the new text of the first incomplete one. */
static int
flush_output(struct gen *g)
{
    int rc = 0;

    while (g->head < g->n_slots && g->slots[g->head].res.is_over && rc == 0) {
        struct slot *s = &g->slots[g->head++];

        if (g->json)
            rc = fct_print_json(fct_result_json(&s->res));
        else
            print_rest(g, s);
        if (s->res.error.code != FDC_OK && !g->cancelled)
            say_error(g, s);
        fct_result_fini(&s->res);
    }
    if (rc == 0 && !g->json && g->head < g->n_slots)
        print_new_text(g, &g->slots[g->head]);
    return rc;
}

/* ---- running ------------------------------------------------------------------- */

/* A request has ended with an error. Returns 1 if it will be sent again: for ids only, if
 * it asked for text while the model was loading and the model has no tokenizer. */
static int
try_again(struct gen *g, struct slot *s)
{
    struct fct_req *q = &g->reqs[s->index % g->n_reqs];
    const struct fdc_error *e = &s->res.error;
    uint64_t wait_ms = e->retry_after_ms;
    int has_no_text = g->unknown && !s->without_text && q->ids != NULL &&
        q->list[FCT_L_STOP] == NULL && e->code == FDC_E_NO_MODEL &&
        e->detail == FDC_D_FLAGS;
    int is_passing = e->code != FDC_OK && fdc_is_retryable(e->code) &&
        e->code != FDC_E_DISCONNECTED && s->tries < g->retry && s->n_printed == 0 &&
        s->n_echoed == 0;

    if (g->cancelled || !(has_no_text || is_passing))
        return 0;
    if (has_no_text) {
        q->p.flags &= ~(uint32_t)FDC_F_TEXT;
        s->without_text = 1;
    } else {
        if (fdc_state(g->s, NULL) != 0)
            return 0; /* the session is over: a retry cannot succeed */
        if (wait_ms == 0)
            wait_ms = 50u << (s->tries < 6 ? s->tries : 6);
        s->tries++;
        s->t_retry = clk_now_ns() + wait_ms * 1000000u;
    }
    g->holes = 1;
    fct_result_fini(&s->res);
    return 1;
}

static void
finish(struct gen *g, struct slot *s)
{
    const struct fct_result *r = &s->res;

    fdc_req_free(s->handle);
    s->handle = NULL;
    if (try_again(g, s))
        return;
    for (unsigned i = 0; i < r->n_choices; i++)
        g->n_tokens += json_array_size(r->choices[i].ids);
    g->t_end = r->t_end;
    g->ttft_sum += fct_ms(r->t_submit, r->t_first);
    g->ttft_max = fmax(g->ttft_max, fct_ms(r->t_submit, r->t_first));
    g->n_ttft += r->t_first != 0;
    if (g->exit_code == 0)
        g->exit_code = fct_exit_code(r->error.code);
    g->n_over++;
}

static void
end_here(struct gen *g, struct slot *s, int code)
{
    s->res.error.code = code;
    s->res.is_over = 1;
    s->res.t_end = clk_now_ns();
    finish(g, s);
}

/* Returns 0 (sent or ended), FDC_E_FULL (no room now) or an exit code > 0. */
static int
submit(struct gen *g, struct slot *s)
{
    int rc;

    if (fct_result_init(&s->res, s->req, s->index) != 0)
        return fct_oom();
    s->res.t_submit = clk_now_ns();
    rc = fct_req_submit(g->s, s->req, &s->handle);
    if (rc == FDC_E_FULL || rc == FDC_E_TIMEOUT) {
        fct_result_fini(&s->res);
        return FDC_E_FULL;
    }
    if (rc < 0) {
        end_here(g, s, rc);
        return 0;
    }
    fdc_req_set_user(s->handle, s);
    g->n_open++;
    return 0;
}

/* Send as many requests as allowed now. Returns 0 or an exit code. */
static int
submit_more(struct gen *g)
{
    uint64_t now = clk_now_ns();
    int rc;

    for (size_t i = g->holes ? g->head : g->n_begun;
         i < g->n_slots && g->n_open < g->concurrency; i++) {
        struct slot *s = &g->slots[i];

        if (s->res.is_over || s->handle != NULL || s->t_retry > now)
            continue;
        rc = submit(g, s);
        if (rc != 0)
            return rc > 0 ? rc : 0;
        g->n_begun += i == g->n_begun;
    }
    return 0;
}

static int
read_events(struct gen *g, struct slot *s)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    int rc;

    while ((rc = fdc_next(s->handle, &ev, 0)) == 1) {
        if (fct_result_add(&s->res, &ev, clk_now_ns()) != 0)
            return fct_oom();
        if (s->res.is_over)
            break;
    }
    if (!s->res.is_over && (rc == FDC_E_AGAIN || rc == FDC_E_TIMEOUT))
        return 0;
    g->n_open--;
    if (s->res.is_over)
        finish(g, s);
    else
        end_here(g, s, rc);
    return 0;
}

static void
cancel_all(struct gen *g)
{
    g->cancelled = 1;
    g->exit_code = FCT_EX_INT;
    g->n_slots = g->n_begun;
    for (size_t i = g->head; i < g->n_slots; i++) {
        struct slot *s = &g->slots[i];

        if (s->handle != NULL)
            (void)fdc_cancel(s->handle);
        /* waiting for a retry */
        else if (!s->res.is_over && fct_result_init(&s->res, s->req, s->index) == 0)
            end_here(g, s, FDC_E_CANCELLED);
    }
}

static int
run_all(struct gen *g)
{
    uint64_t t_limit = 0;
    fdc_req_t *h;
    int rc = 0;

    while (rc == 0 && g->n_over < g->n_slots) {
        if (fct_interrupted && !g->cancelled) {
            cancel_all(g);
            t_limit = clk_now_ns() + 3000000000u;
            continue;
        }
        if (t_limit != 0 && clk_now_ns() > t_limit)
            break;
        rc = submit_more(g);
        if (rc == 0 && g->n_open > 0) {
            rc = fdc_wait_any(g->s, &h, 100);
            if (rc == 1)
                rc = read_events(g, fdc_req_user(h));
            else if (rc == FDC_E_AGAIN || rc == FDC_E_TIMEOUT)
                rc = 0;
            else if (rc != 0)
                rc = fct_fail(fct_exit_code(rc), "%s", fdc_strerror(rc));
        } else if (rc == 0 && g->n_over < g->n_slots) {
            clk_sleep_ns(2 * CLK_MS);
        }
        if (rc == 0)
            rc = flush_output(g);
    }
    return rc != 0 ? rc : flush_output(g);
}

/* ---- the command ----------------------------------------------------------------- */

/* Set the flags that depend on the model and the kind of output, and the concurrency. */
static int
settle_requests(struct gen *g)
{
    struct fdc_model_info model;
    struct fdc_info info;
    int rc = fct_info(g->s, g->f->timeout_ms, &info, &model);

    /* While the model loads its facts are unknown; the requests get the errors. */
    if (rc < 0 && !(fdc_is_retryable(rc) && rc != FDC_E_DISCONNECTED))
        return fct_fail(fct_exit_code(rc), "%s (%s)", fdc_strerror(rc), fdc_status_name(rc));
    if (rc < 0)
        info = (struct fdc_info){ .max_inflight = 64 };
    g->unknown = model.vocab == 0;
    for (size_t i = 0; i < g->n_reqs; i++) {
        if (g->json)
            g->reqs[i].p.flags |= FDC_F_PROMPT_IDS;
        if (model.vocab != 0 && !model.has_tokenizer && g->reqs[i].list[FCT_L_STOP] == NULL)
            g->reqs[i].p.flags &= ~(uint32_t)FDC_F_TEXT;
    }
    if (g->concurrency == 0 || g->concurrency > info.max_inflight)
        g->concurrency = info.max_inflight > 0 ? info.max_inflight : 1;
    return 0;
}

static int
generate(struct gen *g)
{
    size_t largest = 0, bytes; /* of prompts */
    double secs;
    int rc = load_requests(g);

    if (rc != 0)
        return rc;
    g->n_slots = g->n_reqs * g->n_requests;
    g->slots = calloc(g->n_slots, sizeof(*g->slots));
    if (g->slots == NULL)
        return fct_oom();
    g->header = g->n_slots > 1 && !g->json;
    for (size_t i = 0; i < g->n_slots; i++) {
        const struct fct_req *q = g->slots[i].req = &g->reqs[i % g->n_reqs];

        g->slots[i].index = i;
        bytes = q->n_text + 4 * q->n_ids;
        largest = bytes > largest ? bytes : largest;
    }
    rc = fct_open(g->f, largest, &g->s);
    if (rc == 0)
        rc = settle_requests(g);
    if (rc != 0)
        return rc;
    fct_catch(SIGINT, SA_RESETHAND);
    fct_catch(SIGTERM, SA_RESETHAND);
    g->t_begin = clk_now_ns();
    rc = run_all(g);
    flush_same(g);
    secs = g->t_end > g->t_begin ? (double)(g->t_end - g->t_begin) / 1e9 : 0;
    if (g->stats)
        fprintf(stderr, "%llu tokens in %.3f s: %.1f tokens/s, first token after %.2f ms",
            (unsigned long long)g->n_tokens, secs,
            secs > 0 ? (double)g->n_tokens / secs : 0,
            g->n_ttft > 0 ? g->ttft_sum / (double)g->n_ttft : 0);
    if (g->stats && g->n_slots > 1)
        fprintf(stderr, " on average, %.2f ms at most (%zu requests)", g->ttft_max,
            g->n_slots);
    if (g->stats)
        fputc('\n', stderr);
    if (rc == 0)
        rc = fct_flush();
    return rc != 0 ? rc : g->exit_code;
}

int
fct_cmd_generate(const struct fct *f, int argc, char **argv)
{
    struct gen g = { .n_requests = 1, .f = f };
    int rc;

    fct_req_init(&g.dflt);
    rc = fct_parse(&line, argc, argv, &g);
    if (rc == FCT_GO && !g.has_source)
        rc = fct_usage("generate: no prompt; give -p TEXT, --ids-file FILE, "
                       "--batch FILE or - for standard input");
    if (rc == FCT_GO && g.n_requests == 0)
        rc = fct_usage("--n-requests 0: at least 1");
    if (rc == FCT_GO)
        rc = generate(&g);
    for (size_t i = 0; g.slots != NULL && i < g.n_slots; i++) {
        fdc_req_free(g.slots[i].handle);
        if (i >= g.head)
            fct_result_fini(&g.slots[i].res);
    }
    free(g.slots);
    for (size_t i = 0; i < g.n_reqs && g.reqs != &g.dflt; i++)
        fct_req_fini(&g.reqs[i]);
    if (g.reqs != &g.dflt)
        free(g.reqs);
    fdc_close(g.s);
    fct_req_fini(&g.dflt);
    return rc;
}
