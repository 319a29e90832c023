/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <term.h>

#include "tools/fdctl/commands.h"

#define RECONNECT_NS (500 * CLK_MS)

/* ---- keys ---------------------------------------------------------------- */

/* Ask the user to confirm a request with y; takes over the reference. */
static void
propose(struct top *t, json_t *question, const char *text)
{
    json_decref(t->ask);
    t->ask = question;
    top_say(t, 0, text);
}

static void
propose_cancel(struct top *t)
{
    const struct top_table *table = &top_tables[t->view];
    const json_t *r = top_selected(t);
    char text[300];

    fct_fill(text, sizeof(text), table->cancel, r);
    if (t->deny[0] != '\0')
        top_say(t, 1, t->deny);
    else if (r == NULL || t->view == TOP_V_USERS)
        top_say(t, 1, r == NULL ? "nothing to cancel" : text);
    else
        propose(t,
            json_pack("{s:s, s:O}", "cmd", "cancel", table->key,
                json_object_get(r, table->key)),
            text);
}

static void
act(struct top *t)
{
    int rc = top_link_ask(&t->link, t->ask);

    t->ask = NULL;
    top_say(t, rc != 0,
        rc == 0             ? "asking the daemon ..."
            : rc == -ENOMEM ? "out of memory"
                            : "the daemon has not yet answered the last one");
}

static void
move_by(struct top *t, int by)
{
    size_t n = json_array_size(t->rows[t->view]);
    long to = (long)t->sel + by;

    if (n == 0)
        return;
    t->sel = to < 0 ? 0 : (size_t)to >= n ? n - 1 : (size_t)to;
    /* In the first place the place stays selected, not the row. */
    top_follow(t, t->sel > 0 ? top_selected(t) : NULL);
}

static void
set_view(struct top *t, int view)
{
    if (t->view == view)
        return;
    t->view = view;
    t->sel = t->first = 0;
    top_follow(t, NULL);
    top_select(t);
}

/* Reverse the order if reverse is set; else sort by the next column on the screen. */
static void
sort_rows(struct top *t, int reverse)
{
    const struct top_col *cols = top_tables[t->view].cols;
    int *at = &t->sort[t->view];

    t->reverse[t->view] = reverse && !t->reverse[t->view];
    while (!reverse && (cols[++*at].name == NULL || cols[*at].from > COLS))
        *at = cols[*at].name == NULL ? -1 : *at;
    top_select(t);
}

/* Take the next longer or shorter interval. */
static void
set_interval(struct top *t, int by)
{
    static const double of[] = { 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60 };
    int last = sizeof(of) / sizeof(of[0]) - 1, i = by > 0 ? 0 : last;

    while (by > 0 ? i < last && of[i] <= t->interval : i > 0 && of[i] >= t->interval)
        i += by;
    t->interval = of[i];
    t->t_next = clk_now_ns() + (uint64_t)(t->interval * 1e9);
}

static void
daemon_key(struct top *t, int key)
{
    int is_paused = json_is_true(json_object_get(t->status, "paused"));
    int off = key == 'p' ? is_paused : key == 'D';

    if (t->gone)
        top_say(t, 1, "there is no daemon to ask");
    else if (key == 'k')
        propose_cancel(t);
    else
        propose(t,
            json_pack("{s:s, s:b}", "cmd", key == 'p' ? "pause" : "drain", "off", off),
            key != 'p'      ? "drain: refuse new requests and let those accepted end? y/n"
                : is_paused ? "go on: start queued requests again? y/n"
                            : "pause: queue requests and start none of them? y/n");
    if (key == 'D' && !t->gone)
        act(t); /* without y/n */
}

static void
move_pages(struct top *t, int by)
{
    move_by(t, by * t->page);
}

static void
screen_key(struct top *t, int key)
{
    if (key == 'h')
        t->help = 1;
    else if (key == ' ')
        t->frozen = !t->frozen;
    else
        clearok(curscr, TRUE);
}

static const struct {
    int key;
    void (*fn)(struct top *t, int arg);
    int arg;
} key_rows[] = { { 'h', screen_key, 'h' }, { '?', screen_key, 'h' },
    { KEY_F(1), screen_key, 'h' }, { ' ', screen_key, ' ' },
    { 'L' & 0x1f, screen_key, 0 }, { '+', set_interval, 1 }, { '-', set_interval, -1 },
    { 'k', daemon_key, 'k' }, { 'd', daemon_key, 'd' }, { 'D', daemon_key, 'D' },
    { 'p', daemon_key, 'p' }, { 'u', set_view, TOP_V_USERS },
    { 'r', set_view, TOP_V_REQUESTS }, { 'c', set_view, TOP_V_CLIENTS },
    { 's', sort_rows, 0 }, { 'S', sort_rows, 1 }, { KEY_UP, move_by, -1 },
    { KEY_DOWN, move_by, 1 }, { KEY_PPAGE, move_pages, -1 }, { KEY_NPAGE, move_pages, 1 },
    { KEY_HOME, move_by, INT_MIN }, { KEY_END, move_by, INT_MAX } };

/* Returns 1 to quit. */
static int
on_key(struct top *t, int key)
{
    const size_t n = sizeof(key_rows) / sizeof(key_rows[0]);
    size_t i = 0;

    if (key == KEY_RESIZE)
        return 0;
    if (t->ask != NULL) {
        if (key == 'y' || key == 'Y')
            act(t);
        else
            propose(t, NULL, "not done");
        return 0;
    }
    if (t->help) {
        t->help = 0;
        return 0;
    }
    t->message[0] = '\0';
    while (i < n && key_rows[i].key != key)
        i++;
    if (i < n)
        key_rows[i].fn(t, key_rows[i].arg);
    else if (key != 'q')
        top_say(t, 1, "no such key; h shows them");
    return key == 'q';
}

/* ---- terminal ------------------------------------------------------------ */

/* The number of a pair is that of its colour. */
static const attr_t looks[TOP_ATTR__N] = { [TOP_NAME] = COLOR_PAIR(COLOR_CYAN),
    [TOP_VALUE] = A_BOLD,
    [TOP_DIM] = A_DIM,
    [TOP_GOOD] = COLOR_PAIR(COLOR_GREEN),
    [TOP_WARN] = A_BOLD | COLOR_PAIR(COLOR_YELLOW),
    [TOP_BAD] = A_BOLD | COLOR_PAIR(COLOR_RED),
    [TOP_BAR] = COLOR_PAIR(COLOR_GREEN),
    [TOP_HEAD] = A_REVERSE,
    [TOP_SELECTED] = A_REVERSE | A_BOLD };

/* Start colours, if possible. Returns the mask of the attributes in looks to use. */
static attr_t
start_colors(int no_color)
{
    const char *e = getenv("NO_COLOR");

    if (no_color || (e != NULL && e[0] != '\0') || !has_colors() || start_color() != OK ||
        use_default_colors() != OK)
        return ~A_COLOR;
    for (short color = COLOR_RED; color <= COLOR_CYAN; color++)
        init_pair(color, color, -1);
    return ~(attr_t)0;
}

static int
draw(struct top *t, attr_t counts)
{
    struct top_canvas c;

    if (top_canvas_init(&c, COLS > 0 ? COLS : 1, LINES > 0 ? LINES : 1, t->utf8) != 0)
        return -ENOMEM;
    top_draw(t, &c);
    erase();
    for (int i = 0; i < c.w * c.h; i++) {
        const wchar_t ch = (wchar_t)c.cell[i].ch;

        attrset(looks[c.cell[i].attr] & counts);
        if (ch != 0)
            mvaddnwstr(i / c.w, i % c.w, &ch, 1);
    }
    attrset(A_NORMAL);
    refresh();
    free(c.cell);
    return 0;
}

/* Wait for keys (unless once), answers or t_next, with no signal blocked. Returns 1 after
 * a key or a signal, -EIO if the terminal is closed, else 0. */
static int
wait_for(struct top *t, uint64_t t_next)
{
    struct pollfd pfd[2] = { { .fd = t->once ? -1 : STDIN_FILENO, .events = POLLIN } };
    uint64_t now = clk_now_ns(), ns = t_next > now ? t_next - now : 0;
    struct timespec ts;
    sigset_t none;
    int n;

    ns = top_link_wait(&t->link, now, ns, &pfd[1]);
    ts = (struct timespec){ .tv_sec = (time_t)(ns / CLK_S), .tv_nsec = (long)(ns % CLK_S) };
    sigemptyset(&none);
    n = ppoll(pfd, 2, &ts, &none);
    if (n > 0 && (pfd[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0)
        return -EIO;
    return n < 0 || (pfd[0].revents & POLLIN) != 0;
}

static int
loop(struct top *t, attr_t counts)
{
    uint64_t now, t_wake;
    int keys, key;

    t->t_next = clk_now_ns() + CLK_S / 4; /* show the first figures soon */
    top_ask_all(t, clk_now_ns());
    for (;;) {
        top_link_step(&t->link, clk_now_ns());
        if (draw(t, counts) != 0)
            return EX_SOFTWARE;
        t_wake = clk_now_ns() + CLK_S;
        keys = wait_for(t, t_wake < t->t_next ? t_wake : t->t_next);
        if (keys < 0)
            return EX_IOERR;
        if (fct_interrupted != 0)
            return 128 + fct_interrupted;
        while (keys && (key = getch()) != ERR)
            if (on_key(t, key))
                return 0;
        now = clk_now_ns();
        if (now < t->t_next && (t->gone || fct_seg_alive(t->seg)))
            continue;
        t->t_next = now + (uint64_t)(t->interval * 1e9);
        if (!t->frozen || !fct_seg_alive(t->seg)) {
            top_update(t, now);
            top_ask_all(t, now);
        }
        if (t->gone || t->silent > 0) {
            if (top_reconnect(t, now))
                top_ask_all(t, now);
            if (t->t_next > now + RECONNECT_NS)
                t->t_next = now + RECONNECT_NS;
        }
    }
}

/* Run until a key or a signal ends it. Returns an exit code. */
static int
terminal(struct top *t)
{
    static const int fatal[] = { SIGINT, SIGTERM, SIGHUP };
    const char *term = getenv("TERM");
    int err, rc;
    int can_move = setupterm(NULL, STDOUT_FILENO, &err) == OK && cursor_address != NULL;
    SCREEN *screen;
    sigset_t in;

    (void)del_curterm(cur_term);
    if (!can_move)
        return fct_usage(
            "top: TERM=%s is no terminal that can move its cursor; set TERM to what "
            "this terminal is (xterm, vt100), or print one screen:\n  fdctl top --once",
            term != NULL ? term : "");
    screen = newterm(NULL, stdout, stdin);
    if (screen == NULL)
        return fct_usage("top: cannot use the terminal TERM=%s", term != NULL ? term : "");
    set_escdelay(25);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    /* signals are blocked except in wait_for() */
    sigemptyset(&in);
    sigaddset(&in, SIGWINCH);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
        fct_catch(fatal[i], 0);
        sigaddset(&in, fatal[i]);
    }
    sigprocmask(SIG_BLOCK, &in, NULL);
    rc = loop(t, start_colors(t->no_color));
    endwin();
    delscreen(screen);
    return rc == EX_SOFTWARE ? fct_oom() : rc;
}

/* ---- the command --------------------------------------------------------- */

static int
env_size(const char *name, int dflt, int least)
{
    const char *e = getenv(name);
    long v = e != NULL ? strtol(e, NULL, 10) : 0;

    return v <= 0 || v > 1000 ? dflt : v < least ? least : (int)v;
}

/* Print one interval as text. */
static int
print_once(struct top *t)
{
    int w = env_size("COLUMNS", 80, TOP_MIN_W), h = env_size("LINES", 24, TOP_MIN_H);
    uint64_t t_next = clk_now_ns() + (uint64_t)(t->interval * 1e9);
    struct top_canvas c;

    top_ask_all(t, clk_now_ns());
    while (clk_now_ns() < t_next) {
        top_link_step(&t->link, clk_now_ns());
        (void)wait_for(t, t_next);
    }
    top_update(t, clk_now_ns());
    t->t_may_ask = 0;
    top_ask_all(t, clk_now_ns());
    while (json_object_size(t->link.q) > 0) {
        (void)wait_for(t, clk_now_ns() + CLK_S);
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
        return fct_fail(t->status != NULL ? 0 : EX_TEMPFAIL, "top: %s", t->message);
    return 0;
}

#define FCT_ARGS struct top
static const struct fct_opt opts[] = {
    FCT_REAL('i', "interval", "S", interval, 0.1, 60, "seconds between two screens (1)",
        .range = "0.1 to 60 seconds"),
    FCT_FLAG(0, "once", once, "print one screen as text, COLUMNS wide, LINES high"),
    FCT_U32('g', "group", "N", group, 0, CNT_MAX_GROUPS - 1,
        "figures of this group (of all together)"),
    FCT_FLAG(0, "no-color", no_color, "no colours ($NO_COLOR)"),
    FCT_FLAG(0, "ascii", ascii, "no characters beyond ASCII"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line =
    FCT_LINE("fdctl top [-i S] [--group N] [--once] [--no-color] [--ascii]",
        "What the daemon does now: tokens per second, requests, KV cache,\n"
        "device, latencies; and a table of users, requests or clients.\n"
        "h shows the keys.",
        opts);

int
fct_cmd_top(const struct fct *f, int argc, char **argv)
{
    struct top t = { .interval = 1, .group = CNT_ALL_GROUPS, .f = f, .view = TOP_V_REQUESTS };
    const struct cnt_seg *seg;
    int rc = fct_parse(&line, argc, argv, &t);

    if (rc != FCT_GO)
        return rc;
    if (!t.once && (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)))
        return fct_usage("top: standard %s is not a terminal; print one "
                         "screen as text:\n  fdctl top --once",
            isatty(STDOUT_FILENO) ? "input" : "output");
    if ((rc = fct_seg_open(f, 0, &seg)) != 0)
        return rc;
    rc = fct_seg_snap_group(seg, t.group, &t.raw);
    if (rc != 0) {
        cnt_unlook(seg);
        return rc;
    }
    (void)setlocale(LC_CTYPE, "");
    t.utf8 = !t.ascii && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    top_adopt(&t, seg, clk_now_ns());
    rc = t.once ? print_once(&t) : terminal(&t);
    top_link_fini(&t.link);
    for (int i = 0; i < TOP_V__N; i++)
        json_decref(t.rows[i]);
    json_decref(t.followed);
    json_decref(t.ask);
    json_decref(t.status);
    cnt_unlook(t.seg);
    return rc;
}
