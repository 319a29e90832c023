/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <curses.h>
#include <term.h>

#define S_NS         1000000000u
#define RECONNECT_NS 500000000u

static const double intervals[] = { 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60 };
#define N_INTERVALS (int)(sizeof(intervals) / sizeof(intervals[0]))

static volatile sig_atomic_t got_signal;

static void
on_signal(int sig)
{
    got_signal = sig;
}

/* ---- keys ---------------------------------------------------------------- */

static void
propose(struct top *t, int what, int off, int64_t id, const char *text)
{
    t->ask = what;
    t->ask_off = off;
    t->ask_id = id;
    top_say(t, 0, text);
}

static void
propose_cancel(struct top *t)
{
    const json_t *r = top_selected(t);
    const char *user = fct_str(r, "user");
    char text[300];

    if (t->deny[0] != '\0') {
        top_say(t, 1, t->deny);
        return;
    }
    if (r == NULL || t->view == TOP_V_USERS) {
        top_say(t, 1,
            r == NULL ? "nothing to cancel"
                      : "select a request (r) or a client (c) to cancel");
        return;
    }
    if (t->view == TOP_V_REQUESTS)
        snprintf(text, sizeof(text), "cancel request %lld of %s (%s)? y/n",
            (long long)top_row_id(r), user, fct_str(r, "client"));
    else
        snprintf(text, sizeof(text),
            "cancel all %lld requests of session %lld, %s of %s? y/n",
            fct_num(r, "running") + fct_num(r, "queued"), (long long)top_row_id(r),
            fct_str(r, "name"), user);
    propose(t, TOP_A_CANCEL, 0, top_row_id(r), text);
}

static void
act(struct top *t)
{
    json_t *q;
    int rc;

    if (t->ask == TOP_A_CANCEL)
        q = json_pack("{s:s, s:I}", "cmd", "cancel",
            t->view == TOP_V_CLIENTS ? "session" : "id", (json_int_t)t->ask_id);
    else
        q = json_pack("{s:s, s:b}", "cmd", t->ask == TOP_A_DRAIN ? "drain" : "pause",
            "off", t->ask_off);
    rc = top_link_ask(&t->link, t->ask, q);
    t->ask = TOP_A_NONE;
    top_say(t, rc != 0,
        rc == 0             ? "asking the daemon ..."
            : rc == -ENOMEM ? "out of memory"
                            : "the daemon has not yet answered the last one");
}

static void
move_by(struct top *t, int by)
{
    size_t n = json_array_size(t->rows[t->view]);
    const json_t *r;
    long to = (long)t->sel + by;

    if (n == 0)
        return;
    t->sel = to < 0 ? 0 : (size_t)to >= n ? n - 1 : (size_t)to;
    /* The first place is a place, not a row. */
    r = t->sel > 0 ? top_selected(t) : NULL;
    t->sel_id = r != NULL ? top_row_id(r) : -1;
    snprintf(t->sel_user, sizeof(t->sel_user), "%s", fct_str(r, "user"));
}

static void
set_view(struct top *t, int view)
{
    if (t->view == view)
        return;
    t->view = view;
    t->sel = t->first = 0;
    t->sel_id = -1;
    t->sel_user[0] = '\0';
    top_select(t);
}

/* reverse: in the reverse order; else by the next column that is on the screen. */
static void
sort_rows(struct top *t, int reverse)
{
    const struct top_col *cols = top_cols((enum top_view)t->view);
    int *at = &t->sort[t->view];

    t->reverse[t->view] = reverse && !t->reverse[t->view];
    while (!reverse && (cols[++*at].name == NULL || cols[*at].from > COLS))
        *at = cols[*at].name == NULL ? -1 : *at;
    top_sort_view(t, t->view);
    top_select(t);
}

static void
set_interval(struct top *t, int by)
{
    int i = 0;

    if (by > 0) {
        while (i < N_INTERVALS - 1 && intervals[i] <= t->interval)
            i++;
    } else {
        for (i = N_INTERVALS - 1; i > 0 && intervals[i] >= t->interval; i--)
            ;
    }
    t->interval = intervals[i];
}

static void
daemon_key(struct top *t, int key)
{
    if (t->gone) {
        top_say(t, 1, "there is no daemon to ask");
    } else if (key == 'k') {
        propose_cancel(t);
    } else if (key == 'd') {
        propose(t, TOP_A_DRAIN, 0, 0,
            "drain: refuse new requests and let those accepted end? y/n");
    } else if (key == 'D') {
        t->ask = TOP_A_DRAIN;
        t->ask_off = 1;
        act(t);
    } else if (top_is_paused(t)) {
        propose(t, TOP_A_PAUSE, 1, 0, "go on: start queued requests again? y/n");
    } else {
        propose(t, TOP_A_PAUSE, 0, 0, "pause: queue requests and start none of them? y/n");
    }
}

/* Takes a key if a question or the help is open. 0: neither is. */
static int
answer_key(struct top *t, int key)
{
    if (t->ask == TOP_A_NONE) {
        if (!t->help)
            return 0;
        t->help = 0;
    } else if (key == 'y' || key == 'Y') {
        act(t);
    } else {
        t->ask = TOP_A_NONE;
        top_say(t, 0, "not done");
    }
    return 1;
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

/* 1: quit. */
static int
on_key(struct top *t, int key)
{
    const size_t n = sizeof(key_rows) / sizeof(key_rows[0]);
    size_t i = 0;

    if (key == KEY_RESIZE || answer_key(t, key))
        return 0;
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

struct top_screen {
    SCREEN *screen;
    int utf8;
    attr_t looks[TOP_ATTR__N];
    sigset_t waiting; /* blocked while poll waits */
};

static void
set_looks(attr_t *looks, int no_color)
{
    static const struct {
        int attr, pair, color;
        attr_t more;
    } colors[] = { { TOP_NAME, 1, COLOR_CYAN, 0 }, { TOP_GOOD, 2, COLOR_GREEN, 0 },
        { TOP_WARN, 3, COLOR_YELLOW, A_BOLD }, { TOP_BAD, 4, COLOR_RED, A_BOLD },
        { TOP_BAR, 2, COLOR_GREEN, 0 } };
    const char *e = getenv("NO_COLOR");

    looks[TOP_VALUE] = looks[TOP_WARN] = looks[TOP_BAD] = A_BOLD;
    looks[TOP_DIM] = A_DIM;
    looks[TOP_HEAD] = A_REVERSE;
    looks[TOP_SELECTED] = A_REVERSE | A_BOLD;
    if (no_color || (e != NULL && e[0] != '\0') || !has_colors())
        return;
    start_color();
    if (use_default_colors() != OK)
        return;
    for (size_t i = 0; i < sizeof(colors) / sizeof(colors[0]); i++) {
        init_pair((short)colors[i].pair, (short)colors[i].color, -1);
        looks[colors[i].attr] = (attr_t)COLOR_PAIR(colors[i].pair) | colors[i].more;
    }
}

static int
draw(struct top *t, const struct top_screen *m)
{
    struct top_canvas c;
    wchar_t run[256];
    int x, y;

    if (top_canvas_init(&c, COLS > 0 ? COLS : 1, LINES > 0 ? LINES : 1, m->utf8) != 0)
        return -ENOMEM;
    top_draw(t, &c);
    erase();
    for (y = 0; y < c.h; y++) {
        const struct top_cell *row = &c.cell[(size_t)y * (size_t)c.w];

        for (x = 0; x < c.w;) {
            int from = x, n = 0;

            for (; x < c.w && row[x].attr == row[from].attr && n < 255; x++)
                if (row[x].ch != 0)
                    run[n++] = (wchar_t)row[x].ch;
            attrset(m->looks[row[from].attr]);
            mvaddnwstr(y, from, run, n);
        }
    }
    attrset(A_NORMAL);
    refresh();
    top_canvas_fini(&c);
    return 0;
}

/* 0 or an exit code, with the message printed. */
static int
open_terminal(struct top_screen *m, int no_color)
{
    const char *term = getenv("TERM"), *move = NULL;
    int err = 0;

    if (setupterm(NULL, STDOUT_FILENO, &err) == OK) {
        move = tigetstr("cup");
        move = move == (char *)-1 ? NULL : move;
        del_curterm(cur_term);
    }
    if (move == NULL)
        return fct_usage(
            "top: TERM=%s is no terminal that can move its cursor; set TERM to what "
            "this terminal is (xterm, vt100), or print one screen:\n  fdctl top --once",
            term != NULL ? term : "");
    m->screen = newterm(NULL, stdout, stdin);
    if (m->screen == NULL)
        return fct_usage("top: cannot use the terminal TERM=%s", term != NULL ? term : "");
    set_escdelay(25);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    set_looks(m->looks, no_color);
    return 0;
}

/* ---- the loop ------------------------------------------------------------ */

static int
loop(struct top *t, const struct top_screen *m)
{
    uint64_t t_next = clk_now_ns() + S_NS / 4, now, t_wake; /* a first figure soon */
    int rc = 0, keys, key;

    top_ask_all(t, clk_now_ns());
    top_set_clock(t);
    while (rc == 0) {
        top_link_step(&t->link, clk_now_ns());
        rc = draw(t, m) != 0 ? FCT_EX_SOFT : 0;
        t_wake = clk_now_ns() + S_NS;
        if (rc == 0 &&
            top_wait_for(t, t_wake < t_next ? t_wake : t_next, &m->waiting, &keys) != 0)
            rc = FCT_EX_IO;
        if (rc != 0)
            break;
        if (got_signal != 0)
            return 128 + got_signal;
        while (keys && (key = getch()) != ERR) {
            double interval = t->interval;

            if (on_key(t, key))
                return 0;
            if (t->interval != interval)
                t_next = clk_now_ns() + (uint64_t)(t->interval * 1e9);
        }
        now = clk_now_ns();
        if (now < t_next && (t->gone || fct_seg_alive(t->seg)))
            continue;
        t_next = now + (uint64_t)(t->interval * 1e9);
        if (!t->frozen || !fct_seg_alive(t->seg)) {
            top_update(t, now);
            top_ask_all(t, now);
        }
        if (t->gone || t->silent > 0) {
            top_reconnect(t, now);
            if (!t->has_rates)
                top_ask_all(t, now);
            if (t_next > now + RECONNECT_NS)
                t_next = now + RECONNECT_NS;
        }
    }
    return rc;
}

int
top_terminal(struct top *t, int utf8, int no_color)
{
    static const int fatal[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction sa = { .sa_handler = on_signal };
    struct top_screen m = { .utf8 = utf8 };
    sigset_t in;
    int rc = open_terminal(&m, no_color);

    if (rc != 0)
        return rc;
    /* signals come while poll waits, and at no other time */
    sigemptyset(&sa.sa_mask);
    sigemptyset(&in);
    sigaddset(&in, SIGWINCH);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
        sigaction(fatal[i], &sa, NULL);
        sigaddset(&in, fatal[i]);
    }
    sigprocmask(SIG_BLOCK, &in, &m.waiting);
    sigdelset(&m.waiting, SIGWINCH);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        sigdelset(&m.waiting, fatal[i]);
    rc = loop(t, &m);
    endwin();
    delscreen(m.screen);
    return rc == FCT_EX_SOFT ? fct_fail(rc, "out of memory") : rc;
}
