/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <curses.h>
#include <term.h>

#define S_NS         1000000000u
#define RECONNECT_NS 500000000u

/* ---- keys ---------------------------------------------------------------- */

/* The question is asked when the key y comes. Its reference passes. */
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
    const json_t *r = top_selected(t);
    const char *why = t->deny[0] != '\0' ? t->deny
        : r == NULL                      ? "nothing to cancel"
        : t->view == TOP_V_USERS ? "select a request (r) or a client (c) to cancel"
                                 : NULL;
    const char *key = top_tables[t->view].key;
    char text[300];

    if (why != NULL) {
        top_say(t, 1, why);
        return;
    }
    if (t->view == TOP_V_REQUESTS)
        fct_fill(text, sizeof(text), "cancel request {id} of {user} ({client})? y/n", r);
    else
        snprintf(text, sizeof(text),
            "cancel all %lld requests of session %lld, %s of %s? y/n",
            fct_num(r, "running") + fct_num(r, "queued"), fct_num(r, key),
            fct_str(r, "name"), fct_str(r, "user"));
    propose(t, json_pack("{s:s, s:O}", "cmd", "cancel", key, json_object_get(r, key)), text);
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
    /* The first place is a place, not a row. */
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

/* reverse: in the reverse order; else by the next column that is on the screen. */
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

/* The next longer or shorter one. */
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

    if (t->gone) {
        top_say(t, 1, "there is no daemon to ask");
    } else if (key == 'k') {
        propose_cancel(t);
    } else if (key == 'd') {
        propose(t, json_pack("{s:s, s:b}", "cmd", "drain", "off", 0),
            "drain: refuse new requests and let those accepted end? y/n");
    } else if (key == 'D') {
        t->ask = json_pack("{s:s, s:b}", "cmd", "drain", "off", 1);
        act(t);
    } else {
        propose(t, json_pack("{s:s, s:b}", "cmd", "pause", "off", is_paused),
            is_paused ? "go on: start queued requests again? y/n"
                      : "pause: queue requests and start none of them? y/n");
    }
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

static void
set_looks(attr_t *looks, int no_color)
{
    static const struct {
        attr_t attr;
        short color; /* 0: the terminal's */
    } of[TOP_ATTR__N] = { [TOP_NAME] = { 0, COLOR_CYAN },
        [TOP_VALUE] = { A_BOLD, 0 },
        [TOP_DIM] = { A_DIM, 0 },
        [TOP_GOOD] = { 0, COLOR_GREEN },
        [TOP_WARN] = { A_BOLD, COLOR_YELLOW },
        [TOP_BAD] = { A_BOLD, COLOR_RED },
        [TOP_BAR] = { 0, COLOR_GREEN },
        [TOP_HEAD] = { A_REVERSE, 0 },
        [TOP_SELECTED] = { A_REVERSE | A_BOLD, 0 } };
    const char *e = getenv("NO_COLOR");
    int has_color = !no_color && (e == NULL || e[0] == '\0') && has_colors() &&
        start_color() == OK && use_default_colors() == OK;

    for (short i = 0; i < TOP_ATTR__N; i++) {
        looks[i] = of[i].attr;
        if (has_color && of[i].color != 0) {
            init_pair(i, of[i].color, -1);
            looks[i] |= (attr_t)COLOR_PAIR(i);
        }
    }
}

static int
draw(struct top *t, const attr_t *looks)
{
    struct top_canvas c;

    if (top_canvas_init(&c, COLS > 0 ? COLS : 1, LINES > 0 ? LINES : 1, t->utf8) != 0)
        return -ENOMEM;
    top_draw(t, &c);
    erase();
    for (int i = 0; i < c.w * c.h; i++) {
        const wchar_t ch = (wchar_t)c.cell[i].ch;

        attrset(looks[c.cell[i].attr]);
        if (ch != 0)
            mvaddnwstr(i / c.w, i % c.w, &ch, 1);
    }
    attrset(A_NORMAL);
    refresh();
    free(c.cell);
    return 0;
}

static int
loop(struct top *t, const attr_t *looks)
{
    uint64_t now, t_wake;
    int keys, key;

    t->t_next = clk_now_ns() + S_NS / 4; /* a first figure soon */
    top_ask_all(t, clk_now_ns());
    for (;;) {
        top_link_step(&t->link, clk_now_ns());
        if (draw(t, looks) != 0)
            return FCT_EX_SOFT;
        t_wake = clk_now_ns() + S_NS;
        keys = top_wait_for(t, t_wake < t->t_next ? t_wake : t->t_next);
        if (keys < 0)
            return FCT_EX_IO;
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

int
top_terminal(struct top *t)
{
    static const int fatal[] = { SIGINT, SIGTERM, SIGHUP };
    const char *term = getenv("TERM");
    attr_t looks[TOP_ATTR__N];
    int can_move = 0, err, rc;
    SCREEN *screen;
    sigset_t in;

    if (setupterm(NULL, STDOUT_FILENO, &err) == OK) {
        can_move = cursor_address != NULL;
        del_curterm(cur_term);
    }
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
    set_looks(looks, t->no_color);
    /* signals come while poll waits, and at no other time */
    sigemptyset(&in);
    sigaddset(&in, SIGWINCH);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
        fct_catch(fatal[i], 0);
        sigaddset(&in, fatal[i]);
    }
    sigprocmask(SIG_BLOCK, &in, NULL);
    rc = loop(t, looks);
    endwin();
    delscreen(screen);
    return rc == FCT_EX_SOFT ? fct_oom() : rc;
}
