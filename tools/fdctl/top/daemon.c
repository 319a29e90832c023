/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <sys/socket.h>

#define ANSWER_MAX   ((size_t)64 << 20)
#define RECONNECT_MS 200          /* the screen is not updated meanwhile */
#define SILENT_S     4            /* the gate updates uptime_ns twice a second at least */
#define DENIED_NS    (15 * CLK_S) /* time between requests for rows if they are denied */
#define ROWS_SHARE   20           /* requests for rows take at most 1/20 of the time */

/* ---- the admin socket ---------------------------------------------------- */

void
top_link_init(struct top_link *l, const char *path, top_answer *on_answer, void *arg)
{
    *l = (struct top_link){ .path = path,
        .admin = { .fd = -1, .got_fd = -1 },
        .q = json_object(),
        .on_answer = on_answer,
        .arg = arg };
}

void
top_link_fini(struct top_link *l)
{
    fct_admin_close(&l->admin);
    json_decref(l->q);
}

int
top_link_ask(struct top_link *l, json_t *question)
{
    const char *cmd = fct_str(question, "cmd");

    if (json_object_get(l->q, cmd) != NULL) {
        json_decref(question);
        return -EEXIST;
    }
    return json_object_set_new(l->q, cmd, question) == 0 ? 0 : -ENOMEM;
}

/* Remove the first request and report its answer. */
static void
answered(struct top_link *l, const json_t *answer, const char *why)
{
    json_t *question = json_incref(json_object_iter_value(json_object_iter(l->q)));
    const char *cmd = fct_str(question, "cmd");

    json_object_del(l->q, cmd);
    l->t_asked = l->admin.n = 0;
    l->on_answer(l->arg, cmd, answer, why);
    json_decref(question);
}

uint64_t
top_link_wait(const struct top_link *l, uint64_t now_ns, uint64_t max_ns, struct pollfd *ret)
{
    uint64_t end = l->t_asked + TOP_ASK_NS, left = end > now_ns ? end - now_ns : 0;
    size_t n = json_object_size(l->q);

    *ret = (struct pollfd){ .fd = n > 0 ? l->admin.fd : -1, .events = POLLIN };
    if (n == 0)
        return max_ns;
    return l->t_asked == 0 ? 0 : left < max_ns ? left : max_ns;
}

/* Send the first request. The socket's buffer is empty, so it takes all of it at once. */
static int
ask_first(struct top_link *l)
{
    if (l->admin.fd < 0) {
        l->admin.fd = fct_dial(l->path, SOCK_NONBLOCK, -1);
        l->failed = l->admin.fd < 0 ? -l->admin.fd : 0;
    }
    if (l->admin.fd < 0)
        return l->admin.fd;
    return fct_admin_send(&l->admin,
        json_incref(json_object_iter_value(json_object_iter(l->q))));
}

void
top_link_step(struct top_link *l, uint64_t now_ns)
{
    char why[160];
    json_t *answer;
    int rc;

    while (json_object_size(l->q) > 0) {
        rc = l->t_asked == 0 ? ask_first(l) : 0;
        l->t_asked = l->t_asked == 0 ? now_ns : l->t_asked;
        if (rc == 0)
            rc = fct_admin_receive(&l->admin, ANSWER_MAX, &answer);
        if (rc == 1 && now_ns - l->t_asked < TOP_ASK_NS)
            return;
        if (rc == 0) {
            answered(l, answer, NULL);
            json_decref(answer);
        } else {
            snprintf(why, sizeof(why), "%s: %s", l->path,
                rc == -EPIPE ? "closed by the daemon" : strerror(-rc));
            /* the waiting requests get no answer either */
            if (l->admin.fd >= 0)
                close(l->admin.fd);
            l->admin.fd = -1;
            for (size_t n = json_object_size(l->q); n > 0; n--)
                answered(l, NULL,
                    rc == 1             ? "the daemon did not answer within 1 s"
                        : rc == -EPROTO ? "the daemon's answer is no JSON object"
                                        : why);
        }
    }
}

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

/* Commands of keys, and templates of their answers. */
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
    const char *says = ""; /* "" for a query */
    struct top *t = arg;
    char text[600];

    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        if (strcmp(actions[i].cmd, cmd) == 0)
            says = actions[i].text;
    fct_fill(text, sizeof(text), ok ? says : "{error}[fix|\nfix: {fix}]", answer);
    if (answer == NULL)
        snprintf(text, sizeof(text), "%s", why);
    if (says[0] != '\0') {
        top_say(t, !ok, text);
        if (ok)
            (void)top_link_ask(&t->link, fct_question("status"));
    } else if (answer == NULL && is_status && t->link.failed == EACCES) {
        snprintf(t->deny, sizeof(t->deny), "%.500s", text);
    } else if (answer == NULL) {
        /* Do not overwrite an open y/n question. */
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

/* Sample the counters and the time; the rates are those since the last sample, if any. */
static void
sample(struct top *t, uint64_t now)
{
    struct cnt_seg before = t->raw;
    double secs = t->t_raw != 0 ? (double)(now - t->t_raw) / 1e9 : 0;
    time_t seconds = time(NULL);
    struct tm tm;

    /* A daemon that was started meanwhile may have fewer groups. */
    (void)fct_seg_snap_group(t->seg,
        t->group < cnt_n_group(t->seg) ? t->group : CNT_ALL_GROUPS, &t->raw);
    t->t_raw = now;
    top_rates(&before, &t->raw, secs, &t->r);
    (void)strftime(t->clock, sizeof(t->clock), "%T", localtime_r(&seconds, &tm));
}

void
top_adopt(struct top *t, const struct cnt_seg *seg, uint64_t now)
{
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
}

int
top_reconnect(struct top *t, uint64_t now)
{
    const struct cnt_seg *seg;
    char text[96];

    if (fct_seg_open(t->f, RECONNECT_MS, &seg) != 0)
        return 0;
    if (memcmp(seg->boot_id, t->raw.boot_id, sizeof(seg->boot_id)) == 0 ||
        !fct_seg_alive(seg)) {
        cnt_unlook(seg);
        return 0;
    }
    cnt_unlook(t->seg);
    top_link_fini(&t->link);
    top_adopt(t, seg, now);
    top_remember(t);
    snprintf(text, sizeof(text), "a new daemon, pid %d", (int)t->raw.gate_pid);
    top_say(t, 0, text);
    return 1;
}

void
top_update(struct top *t, uint64_t now)
{
    uint64_t up = t->raw.g.uptime_ns;
    int still_s;

    /* A killed process exists until its parent waits for it, but its uptime stands still
     * and its socket refuses connections. */
    if (!fct_seg_alive(t->seg) ||
        (cnt_get(&t->seg->g.uptime_ns) == up &&
            (t->link.failed == ECONNREFUSED || t->link.failed == ENOENT) &&
            now - t->t_moved >= CLK_S)) {
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
    still_s = (int)((now - t->t_moved) / CLK_S);
    t->silent = still_s >= SILENT_S ? still_s : 0;
}
