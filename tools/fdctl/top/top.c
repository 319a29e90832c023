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

static void
take_rows(struct top *t, const char *cmd, const json_t *answer)
{
    json_t **rows = t->rows, *next;
    uint64_t now = clk_now_ns();
    double secs = t->t_rows != 0 ? (double)(now - t->t_rows) / 1e9 : 0;

    t->deny[0] = '\0';
    if (strcmp(cmd, "requests") == 0) {
        next = top_rows_requests(answer, rows[TOP_V_REQUESTS], secs);
        json_decref(rows[TOP_V_REQUESTS]);
        rows[TOP_V_REQUESTS] = next;
        t->t_rows = now;
    } else {
        json_decref(rows[TOP_V_CLIENTS]);
        json_decref(rows[TOP_V_USERS]);
        rows[TOP_V_CLIENTS] = top_rows_clients(answer, rows[TOP_V_REQUESTS]);
        rows[TOP_V_USERS] = top_rows_users(rows[TOP_V_REQUESTS], rows[TOP_V_CLIENTS]);
        /* Building and sending the lists is work for the gate too. */
        t->t_may_ask = now + (now - t->t_asked) * ROWS_SHARE;
    }
    top_select(t);
}

void
top_say(struct top *t, int is_bad, const char *text)
{
    snprintf(t->message, sizeof(t->message), "%s", text);
    t->message_bad = is_bad;
    t->message_own = 0;
}

/* Commands of keys, and what their answers say. */
static const struct {
    const char *cmd, *text;
} actions[] = { { "cancel", "{cancelled} cancelled" },
    { "drain", "{state}, {requests} requests left" },
    { "pause", "{state}, {queued} requests queued, {running} running" } };

static void
on_answer(void *arg, const char *cmd, const json_t *answer, const char *why)
{
    int is_status = strcmp(cmd, "status") == 0;
    int ok = json_is_true(json_object_get(answer, "ok"));
    const char *says = NULL;
    struct top *t = arg;
    char text[600] = "";

    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        if (strcmp(actions[i].cmd, cmd) == 0)
            says = actions[i].text;
    if (answer == NULL)
        snprintf(text, sizeof(text), "%s", why);
    else if (!ok)
        fct_fill(text, sizeof(text), "{error}[fix|\nfix: {fix}]", answer);
    else if (says != NULL)
        fct_fill(text, sizeof(text), says, answer);
    if (says != NULL) {
        top_say(t, !ok, text);
        if (ok)
            (void)top_link_ask(&t->link, fct_question("status"));
    } else if (answer == NULL && is_status && t->link.failed == EACCES) {
        snprintf(t->deny, sizeof(t->deny), "%.500s", text);
    } else if (answer == NULL) {
        /* Not over an open question. */
        if (is_status && t->link.failed == 0 && !t->gone && t->ask == NULL) {
            top_say(t, 1, text);
            t->message_own = 1;
        }
    } else if (!ok) {
        if (t->deny[0] == '\0')
            snprintf(t->deny, sizeof(t->deny), "%.500s", text);
    } else if (is_status) {
        json_decref(t->status);
        t->status = json_incref((json_t *)(uintptr_t)answer);
        if (t->message_own)
            t->message[0] = '\0';
    } else {
        take_rows(t, cmd, answer);
    }
}

void
top_ask_all(struct top *t, uint64_t now)
{
    if (t->gone || t->silent > 0)
        return;
    (void)top_link_ask(&t->link, fct_question("status"));
    if (now < t->t_may_ask || (t->deny[0] != '\0' && now - t->t_asked < DENIED_NS))
        return;
    t->t_asked = now;
    (void)top_link_ask(&t->link, fct_question("requests"));
    (void)top_link_ask(&t->link, fct_question("clients"));
}

/* ---- the segment --------------------------------------------------------- */

/* The counters and the time; rates are those since the sample before, if there is one. */
static void
sample(struct top *t, uint64_t now)
{
    struct cnt_seg before = t->raw;
    double secs = t->t_raw != 0 ? (double)(now - t->t_raw) / 1e9 : 0;
    time_t seconds = time(NULL);
    struct tm tm;

    /* A daemon that came since may have fewer groups. */
    (void)fct_seg_snap_group(t->seg,
        t->group < cnt_n_group(t->seg) ? t->group : CNT_ALL_GROUPS, &t->raw);
    t->t_raw = now;
    top_rates(&before, &t->raw, secs, &t->r);
    (void)strftime(t->clock, sizeof(t->clock), "%T", localtime_r(&seconds, &tm));
}

/* Begin with this daemon. */
static void
adopt(struct top *t, const struct cnt_seg *seg, uint64_t now)
{
    int again = t->seg != NULL;
    char text[96];

    if (again) {
        fct_seg_close(t->seg);
        top_link_fini(&t->link);
    }
    top_link_init(&t->link, t->f->admin, on_answer, t);
    t->seg = seg;
    t->gone = t->silent = t->frozen = 0;
    json_decref(t->ask);
    json_decref(t->status);
    t->ask = t->status = NULL;
    t->deny[0] = '\0';
    t->t_raw = t->t_rows = t->t_may_ask = 0;
    for (int i = 0; i < TOP_V__N; i++)
        json_array_clear(t->rows[i]);
    t->t_moved = now;
    sample(t, now);
    if (again) {
        top_remember(t);
        snprintf(text, sizeof(text), "a new daemon, pid %d", (int)t->raw.gate_pid);
        top_say(t, 0, text);
    }
}

int
top_reconnect(struct top *t, uint64_t now)
{
    const struct cnt_seg *seg;

    if (fct_seg_open(t->f, RECONNECT_MS, &seg) != 0)
        return 0;
    if (memcmp(seg->boot_id, t->raw.boot_id, sizeof(seg->boot_id)) == 0 ||
        !fct_seg_alive(seg)) {
        fct_seg_close(seg);
        return 0;
    }
    adopt(t, seg, now);
    return 1;
}

/* An interval has passed. */
void
top_update(struct top *t, uint64_t now)
{
    uint64_t up = t->raw.g.uptime_ns;

    /* A process that was killed may be there until somebody waits for it; but it does not
     * move, and its socket takes no connection. */
    if (!fct_seg_alive(t->seg) ||
        (cnt_get(&t->seg->g.uptime_ns) == up &&
            (t->link.failed == ECONNREFUSED || t->link.failed == ENOENT) &&
            now - t->t_moved >= S_NS)) {
        if (t->ask == NULL && !t->gone)
            t->message[0] = '\0';
        t->gone = 1;
        t->silent = 0;
        return;
    }
    t->gone = 0;
    sample(t, now);
    top_remember(t);
    if (t->raw.g.uptime_ns != up)
        t->t_moved = now;
    t->silent = now - t->t_moved >= SILENT_S * (uint64_t)S_NS
        ? (int)((now - t->t_moved) / S_NS)
        : 0;
}

/* ---- the command --------------------------------------------------------- */

int
top_wait_for(struct top *t, uint64_t t_next)
{
    struct pollfd pfd[2] = { { .fd = t->once ? -1 : STDIN_FILENO, .events = POLLIN } };
    uint64_t now = clk_now_ns(), ns = t_next > now ? t_next - now : 0;
    struct timespec ts;
    sigset_t none;
    int n;

    ns = top_link_wait(&t->link, now, ns, &pfd[1]);
    ts = (struct timespec){ .tv_sec = (time_t)(ns / S_NS), .tv_nsec = (long)(ns % S_NS) };
    sigemptyset(&none);
    n = ppoll(pfd, 2, &ts, &none);
    if (n > 0 && (pfd[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0)
        return -EIO;
    return n < 0 || (pfd[0].revents & POLLIN) != 0;
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
print_once(struct top *t)
{
    int w = env_size("COLUMNS", 80, TOP_MIN_W), h = env_size("LINES", 24, TOP_MIN_H);
    uint64_t t_next = clk_now_ns() + (uint64_t)(t->interval * 1e9);
    struct top_canvas c;

    top_ask_all(t, clk_now_ns());
    while (clk_now_ns() < t_next) {
        top_link_step(&t->link, clk_now_ns());
        (void)top_wait_for(t, t_next);
    }
    top_update(t, clk_now_ns());
    t->t_may_ask = 0;
    top_ask_all(t, clk_now_ns());
    while (json_array_size(t->link.q) > 0) {
        (void)top_wait_for(t, clk_now_ns() + S_NS);
        top_link_step(&t->link, clk_now_ns());
    }
    if (t->gone)
        return fct_unav("the daemon ended");
    if (top_canvas_init(&c, w, h, t->utf8) != 0)
        return fct_oom();
    top_draw(t, &c);
    top_canvas_print(&c, stdout);
    free(c.cell);
    if (t->message[0] != '\0')
        return fct_fail(t->status != NULL ? 0 : FCT_EX_TEMP, "top: %s", t->message);
    return 0;
}

#define FCT_ARGS struct top
static const struct fct_opt opts[] = {
    FCT_REAL('i', "interval", "S", interval, -HUGE_VAL, HUGE_VAL,
        "seconds between two screens (1)", .range = "a number"),
    FCT_FLAG(0, "once", once, "print one screen as text, COLUMNS wide, LINES high"),
    FCT_U32('g', "group", "N", group, 0, CNT_MAX_GROUPS - 1,
        "figures of this group (of all together)"),
    FCT_FLAG(0, "no-color", no_color, "no colours ($NO_COLOR)"),
    FCT_FLAG(0, "ascii", ascii, "no characters beyond ASCII"), FCT_OPT_HELP, FCT_OPT_END
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
    struct top t = { .interval = 1, .group = CNT_ALL_GROUPS, .f = f, .view = TOP_V_REQUESTS };
    const struct cnt_seg *seg;
    int rc = fct_parse(&line, argc, argv, &t);

    if (rc != FCT_GO)
        return rc;
    if (!(t.interval >= 0.1 && t.interval <= 60))
        return fct_usage("--interval: must be 0.1 to 60 seconds");
    if (!t.once && (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)))
        return fct_usage("top: standard %s is not a terminal; print one "
                         "screen as text:\n  fdctl top --once",
            isatty(STDOUT_FILENO) ? "input" : "output");
    if ((rc = fct_seg_open(f, 0, &seg)) != 0)
        return rc;
    rc = fct_seg_snap_group(seg, t.group, &t.raw);
    if (rc != 0) {
        fct_seg_close(seg);
        return rc;
    }
    (void)setlocale(LC_CTYPE, "");
    t.utf8 = !t.ascii && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    adopt(&t, seg, clk_now_ns());
    rc = t.once ? print_once(&t) : top_terminal(&t);
    top_link_fini(&t.link);
    for (int i = 0; i < TOP_V__N; i++)
        json_decref(t.rows[i]);
    json_decref(t.followed);
    json_decref(t.ask);
    json_decref(t.status);
    fct_seg_close(t.seg);
    return rc;
}
