/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <langinfo.h>
#include <locale.h>

#include "tools/fdctl/commands.h"

#define S_NS         1000000000u
#define RECONNECT_MS 200            /* the screen stands still so long */
#define SILENT_S     4              /* the gate moves twice a second at least */
#define DENIED_NS    (15ull * S_NS) /* who may not see the rows, may not at once after */
#define ROWS_SHARE   20             /* questions for rows take 1/20 of the time at most */

/* ---- what the daemon says ------------------------------------------------ */

int
top_is_paused(const struct top *t)
{
    return json_is_true(json_object_get(t->status, "paused"));
}

void
top_sort_view(struct top *t, int view)
{
    top_rows_sort(t->rows[view], &top_cols((enum top_view)view)[t->sort[view]],
        t->reverse[view]);
}

static void
take_rows(struct top *t, int what, const json_t *answer)
{
    json_t **rows = t->rows, *next;
    uint64_t now = clk_now_ns();
    double secs = t->t_rows != 0 ? (double)(now - t->t_rows) / 1e9 : 0;

    t->deny[0] = '\0';
    if (what == TOP_A_REQUESTS) {
        next = top_rows_requests(answer, rows[TOP_V_REQUESTS], secs);
        t->t_rows = now;
        json_decref(rows[TOP_V_REQUESTS]);
        rows[TOP_V_REQUESTS] = next;
        top_sort_view(t, TOP_V_REQUESTS);
        top_select(t);
        return;
    }
    json_decref(rows[TOP_V_CLIENTS]);
    json_decref(rows[TOP_V_USERS]);
    rows[TOP_V_CLIENTS] = top_rows_clients(answer, rows[TOP_V_REQUESTS]);
    rows[TOP_V_USERS] = top_rows_users(rows[TOP_V_REQUESTS], rows[TOP_V_CLIENTS]);
    for (int i = 0; i < TOP_V__N; i++)
        top_sort_view(t, i);
    top_select(t);
    /* Building and sending the lists is work for the gate too. */
    t->t_may_ask = now + (now - t->t_asked) * ROWS_SHARE;
}

void
top_say(struct top *t, int is_bad, const char *text)
{
    snprintf(t->message, sizeof(t->message), "%s", text);
    t->message_bad = is_bad;
    t->message_own = 0;
}

static int
is_rows(int what)
{
    return what == TOP_A_REQUESTS || what == TOP_A_CLIENTS;
}

static void
on_answer(void *arg, int what, const json_t *answer, const char *why)
{
    struct top *t = arg;
    char text[600];

    if (answer == NULL) {
        if (!is_rows(what) && what != TOP_A_STATUS)
            top_say(t, 1, why);
        else if (what == TOP_A_STATUS && t->link.failed == EACCES)
            snprintf(t->deny, sizeof(t->deny), "%s", why);
        /* Not over an open question. */
        if (t->link.failed == 0 && !t->gone && what == TOP_A_STATUS &&
            t->ask == TOP_A_NONE) {
            top_say(t, 1, why);
            t->message_own = 1;
        }
        return;
    }
    if (!json_is_true(json_object_get(answer, "ok"))) {
        snprintf(text, sizeof(text), "%s%s%s", fct_str(answer, "error"),
            fct_str(answer, "fix")[0] != '\0' ? "\nfix: " : "", fct_str(answer, "fix"));
        if (!is_rows(what) && what != TOP_A_STATUS)
            top_say(t, 1, text);
        else if (t->deny[0] == '\0')
            snprintf(t->deny, sizeof(t->deny), "%.500s", text);
        return;
    }
    if (what == TOP_A_STATUS) {
        json_decref(t->status);
        t->status = json_incref((json_t *)(uintptr_t)answer);
        if (t->message_own)
            t->message[0] = '\0';
    }
    if (is_rows(what))
        take_rows(t, what, answer);
    if (is_rows(what) || what == TOP_A_STATUS)
        return;
    if (what == TOP_A_CANCEL)
        snprintf(text, sizeof(text), "%lld cancelled", fct_num(answer, "cancelled"));
    else if (what == TOP_A_DRAIN)
        snprintf(text, sizeof(text), "%.80s, %lld requests left",
            fct_str(answer, "state"), fct_num(answer, "requests"));
    else
        snprintf(text, sizeof(text), "%.80s, %lld requests queued, %lld running",
            fct_str(answer, "state"), fct_num(answer, "queued"),
            fct_num(answer, "running"));
    top_say(t, 0, text);
    (void)top_link_ask(&t->link, TOP_A_STATUS, fct_question("status"));
}

void
top_ask_all(struct top *t, uint64_t now)
{
    if (t->gone || t->silent > 0)
        return;
    (void)top_link_ask(&t->link, TOP_A_STATUS, json_pack("{s:s}", "cmd", "status"));
    if (now < t->t_may_ask || (t->deny[0] != '\0' && now - t->t_asked < DENIED_NS))
        return;
    t->t_asked = now;
    (void)top_link_ask(&t->link, TOP_A_REQUESTS, json_pack("{s:s}", "cmd", "requests"));
    (void)top_link_ask(&t->link, TOP_A_CLIENTS, json_pack("{s:s}", "cmd", "clients"));
}

/* ---- the segment --------------------------------------------------------- */

void
top_set_clock(struct top *t)
{
    time_t now = time(NULL);
    struct tm tm;

    if (localtime_r(&now, &tm) == NULL ||
        strftime(t->clock, sizeof(t->clock), "%H:%M:%S", &tm) == 0)
        t->clock[0] = '\0';
}

/* Begin with this daemon. */
static void
adopt(struct top *t, const struct cnt_seg *seg, uint64_t now)
{
    int again = t->seg != NULL;
    char text[96];

    if (again)
        fct_seg_close(t->seg);
    t->seg = seg;
    t->gate_pid = seg->gate_pid;
    memcpy(t->boot_id, seg->boot_id, sizeof(t->boot_id));
    t->gone = t->silent = t->has_rates = t->frozen = 0;
    t->ask = TOP_A_NONE;
    json_decref(t->status);
    t->status = NULL;
    t->deny[0] = '\0';
    t->t_rows = t->t_may_ask = 0;
    for (int i = 0; i < TOP_V__N; i++)
        json_array_clear(t->rows[i]);
    t->t_moved = now;
    memset(&t->r, 0, sizeof(t->r));
    top_set_clock(t);
    top_sample(seg, t->group, now, &t->raw);
    if (again) {
        top_link_reset(&t->link);
        top_history_add(&t->hist, NULL);
        snprintf(text, sizeof(text), "a new daemon, pid %d", (int)t->gate_pid);
        top_say(t, 0, text);
    }
}

/* Is there another daemon by now? */
void
top_reconnect(struct top *t, uint64_t now)
{
    const struct cnt_seg *seg;

    if (fct_seg_try(t->f, RECONNECT_MS, &seg) != 0)
        return;
    if (memcmp(seg->boot_id, t->boot_id, sizeof(t->boot_id)) == 0 || !fct_seg_alive(seg))
        fct_seg_close(seg);
    else
        adopt(t, seg, now);
}

/* An interval has passed. */
void
top_update(struct top *t, uint64_t now)
{
    uint64_t up = t->raw.g.uptime_ns;
    int was = t->gone;

    /* A process that was killed may be there until somebody waits for it; but it does not
     * move, and its socket takes no connection. */
    if (!fct_seg_alive(t->seg) ||
        (cnt_get(&t->seg->g.uptime_ns) == up &&
            (t->link.failed == ECONNREFUSED || t->link.failed == ENOENT) &&
            now - t->t_moved >= S_NS)) {
        t->gone = 1;
        t->silent = 0;
        if (t->ask == TOP_A_NONE && !was)
            t->message[0] = '\0';
        return;
    }
    t->gone = 0;
    t->base = t->raw;
    top_sample(t->seg, t->group, now, &t->raw);
    top_rates(&t->base, &t->raw, &t->r);
    t->has_rates = 1;
    top_history_add(&t->hist, &t->r);
    top_set_clock(t);
    if (t->raw.g.uptime_ns != up)
        t->t_moved = now;
    t->silent = now - t->t_moved >= SILENT_S * (uint64_t)S_NS
        ? (int)((now - t->t_moved) / S_NS)
        : 0;
}

/* ---- the command --------------------------------------------------------- */

/* Wait for keys, answers or t_next. 0, or -EIO: the terminal has gone. */
int
top_wait_for(struct top *t, uint64_t t_next, const sigset_t *outside, int *ret_keys)
{
    struct pollfd pfd[2] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = -1 } };
    uint64_t now = clk_now_ns(), ns = t_next > now ? t_next - now : 0;
    struct timespec ts;
    int n;

    ns = top_link_wait(&t->link, now, ns, &pfd[1]);
    ts.tv_sec = (time_t)(ns / S_NS);
    ts.tv_nsec = (long)(ns % S_NS);
    if (t->once)
        pfd[0].fd = -1;
    n = ppoll(pfd, 2, &ts, outside);
    *ret_keys = n < 0 || (pfd[0].revents & POLLIN) != 0;
    if (n > 0 && (pfd[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0)
        return -EIO;
    return 0;
}

static int
env_size(const char *name, int dflt, int least)
{
    const char *e = getenv(name);
    long v = e != NULL ? strtol(e, NULL, 10) : 0;

    return v <= 0 || v > 1000 ? dflt : v < least ? least : (int)v;
}

/* One interval as text. */
static int
print_once(struct top *t, int utf8)
{
    int w = env_size("COLUMNS", 80, TOP_MIN_W), h = env_size("LINES", 24, TOP_MIN_H);
    uint64_t t_next = clk_now_ns() + (uint64_t)(t->interval * 1e9);
    struct top_canvas c;
    sigset_t none;
    int keys;

    sigemptyset(&none);
    top_ask_all(t, clk_now_ns());
    while (clk_now_ns() < t_next) {
        top_link_step(&t->link, clk_now_ns());
        (void)top_wait_for(t, t_next, &none, &keys);
    }
    top_update(t, clk_now_ns());
    t->t_may_ask = 0;
    top_ask_all(t, clk_now_ns());
    while (top_link_busy(&t->link)) {
        (void)top_wait_for(t, clk_now_ns() + S_NS, &none, &keys);
        top_link_step(&t->link, clk_now_ns());
    }
    if (t->gone)
        return fct_unav("the daemon ended");
    if (top_canvas_init(&c, w, h, utf8) != 0)
        return fct_oom();
    top_draw(t, &c);
    top_canvas_print(&c, stdout);
    top_canvas_fini(&c);
    if (t->message[0] != '\0')
        return fct_fail(t->status != NULL ? 0 : FCT_EX_TEMP, "top: %s", t->message);
    return 0;
}

static int
run(const struct fct *f, uint32_t group, double interval, int once, int ascii, int no_color)
{
    struct top *t = calloc(1, sizeof(*t));
    const struct cnt_seg *seg;
    int rc, utf8;

    if (t == NULL)
        return fct_oom();
    rc = fct_seg_open(f, &seg);
    if (rc == 0 && group != CNT_ALL_GROUPS && group >= cnt_n_group(seg)) {
        rc = fct_usage("--group %u: the daemon's groups are 0 to %u", group,
            cnt_n_group(seg) - 1);
        fct_seg_close(seg);
    }
    if (rc != 0) {
        free(t);
        return rc;
    }
    t->group = group;
    (void)setlocale(LC_CTYPE, "");
    utf8 = !ascii && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    t->f = f;
    t->once = once;
    t->interval = interval;
    t->view = TOP_V_REQUESTS;
    t->sel_id = -1;
    top_link_init(&t->link, f->admin);
    t->link.on_answer = on_answer;
    t->link.arg = t;
    adopt(t, seg, clk_now_ns());
    top_set_clock(t);
    rc = once ? print_once(t, utf8) : top_terminal(t, utf8, no_color);
    top_link_fini(&t->link);
    for (int i = 0; i < TOP_V__N; i++)
        json_decref(t->rows[i]);
    json_decref(t->status);
    fct_seg_close(t->seg);
    free(t);
    return rc;
}

struct args {
    uint32_t group;
    int once, ascii, no_color;
    double interval;
};

#define A struct args
static const struct fct_opt opts[] = {
    { "interval", 'i', "S", "seconds between two screens (1)",
        FCT_REAL(A, interval, -HUGE_VAL, HUGE_VAL), .range = "a number" },
    { "once", 0, NULL, "print one screen as text, COLUMNS wide, LINES high",
        FCT_FLAG(A, once) },
    { "group", 'g', "N", "figures of this group (of all together)",
        FCT_U32(A, group, 0, CNT_MAX_GROUPS - 1) },
    { "no-color", 0, NULL, "no colours ($NO_COLOR)", FCT_FLAG(A, no_color) },
    { "ascii", 0, NULL, "no characters beyond ASCII", FCT_FLAG(A, ascii) }, FCT_OPT_HELP,
    FCT_OPT_END
};

static const struct fct_line line = {
    .usage = "fdctl top [-i S] [--group N] [--once] [--no-color] [--ascii]",
    .about = "What the daemon does now: tokens per second, requests, KV cache,\n"
             "device, latencies; and a table of users, requests or clients.\n"
             "h shows the keys.",
    .opts = { opts }
};

int
fct_cmd_top(const struct fct *f, int argc, char **argv)
{
    struct args a = { .interval = 1, .group = CNT_ALL_GROUPS };
    int rc = fct_parse(&line, argc, argv, &a);

    if (rc != FCT_GO)
        return rc;
    if (!(a.interval >= 0.1 && a.interval <= 60))
        return fct_usage("--interval: must be 0.1 to 60 seconds");
    if (!a.once && (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)))
        return fct_usage("top: standard %s is not a terminal; print one "
                         "screen as text:\n  fdctl top --once",
            isatty(STDOUT_FILENO) ? "input" : "output");
    return run(f, a.group, a.interval, a.once, a.ascii, a.no_color);
}
