/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Attacks on the admin socket, by a user without rights on it. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/sys/hostile/attack.h"

#define ADM_HOLD    40
#define ADM_FLOOD   16
#define ADM_BLOCK   65000
#define ADM_DEEP    30000
#define ADM_WAIT_MS 1000

static int con[ADM_HOLD];

static int
adm_closed(int s)
{
    char b[4096];
    ssize_t n = recv(s, b, sizeof(b), MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* Keeps as many connections as possible; with drip sends a byte on each now and then. */
static void
hold(struct attack *a, int drip)
{
    int n = 0;

    while (atk_left(a)) {
        while (n < ADM_HOLD && (con[n] = raw_dial(a->admin, SOCK_STREAM)) >= 0) {
            n++;
            a->n_open++;
        }
        for (int i = n - 1; i >= 0; i--) {
            if ((!drip || send(con[i], " ", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) &&
                !adm_closed(con[i]))
                continue;
            close(con[i]);
            con[i] = con[--n];
            a->n_ended++;
        }
        usleep(20000);
    }
}

void
atk_admin_hold(struct attack *a)
{
    hold(a, 0);
}

void
atk_admin_slow(struct attack *a)
{
    hold(a, 1);
}

/* Sends commands without end on each connection; replies are read
 * and dropped, or not read. */
static void
flood(struct attack *a, const char *line, int reads)
{
    static char block[ADM_BLOCK], sink[1 << 16];
    size_t len = strlen(line), n = sizeof(block) / len * len;

    for (size_t i = 0; i < n; i += len)
        memcpy(block + i, line, len);
    for (int i = 0; i < ADM_FLOOD; i++)
        con[i] = raw_dial(a->admin, SOCK_STREAM);
    while (atk_left(a)) {
        for (int i = 0; i < ADM_FLOOD; i++) {
            ssize_t k = send(con[i], block, n, MSG_NOSIGNAL | MSG_DONTWAIT);

            a->n_op += k > 0 ? (unsigned long)k / len : 0;
            while (reads && recv(con[i], sink, sizeof(sink), MSG_DONTWAIT) > 0)
                continue;
            if (k >= 0 || errno == EAGAIN)
                continue;
            if (con[i] >= 0)
                close(con[i]);
            con[i] = raw_dial(a->admin, SOCK_STREAM);
            a->n_ended++;
        }
        usleep(100);
    }
}

void
atk_admin_flood(struct attack *a)
{
    flood(a, "{\"cmd\":\"x\"}\n", 1);
}

void
atk_admin_noread(struct attack *a)
{
    flood(a, "{\"cmd\":\"status\"}\n", 0);
}

/* ---- lines ----------------------------------------------------------------- */

/* Sends a line and waits for any reply. */
static void
ask(struct attack *a, const char *line, size_t len)
{
    static char b[65536];
    int s = raw_dial(a->admin, SOCK_STREAM);
    struct pollfd p = { .fd = s, .events = POLLIN };

    a->n_op++;
    if (s < 0) {
        a->n_refused++;
        usleep(1000);
        return;
    }
    if (send(s, line, len, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 &&
        poll(&p, 1, ADM_WAIT_MS) == 0)
        a->n_ended++; /* no reply */
    (void)!recv(s, b, sizeof(b), MSG_DONTWAIT);
    close(s);
}

/* Arguments with an empty name, and a blank one. */
void
atk_admin_empty(struct attack *a)
{
    static const char *const lines[] = { "{\"cmd\":\"help\",\"\":1}\n",
        "{\"cmd\":\"status\",\"\":1}\n", "{\"cmd\":\"config\",\"\":1}\n",
        "{\"cmd\":\"status\",\" \":1}\n", "{\"cmd\":\"status\",\"\":{\"\":[]}}\n",
        "{\"\":\"\"}\n", "{\"cmd\":\"\"}\n", "{}\n" };

    for (uint64_t i = 0; atk_left(a); i++)
        ask(a, lines[i % 8], strlen(lines[i % 8]));
}

static size_t
fuzz_command(struct attack *a, char *ret, size_t cap)
{
    static const char *const cmds[] = { "help", "status", "stat", "requests", "cancel",
        "clients", "config", "set", "reload", "model", "memory", "program", "debug",
        "drain" };
    static const char *const keys[] = { "name", "value", "id", "session", "steps",
        "within_ms", "batch", "level", "topic", "wait", "timeout_ms", "cmd", "x" };
    static const char *const vals[] = { "null", "true", "0", "-1", "1e308",
        "-9223372036854775808", "4611686018427387904", "\"\"", "\"%n%s\"",
        "\"../../etc/passwd\"", "[]", "[1,[2,{}]]", "{\"a\":{}}", "\"\\u0000\"",
        "\"\\ud7ff\"" };
    size_t n = (size_t)snprintf(ret, cap, "{\"cmd\":\"%s\"", cmds[atk_rnd(a) % 14]);

    for (uint64_t k = atk_rnd(a) % 4; k != 0; k--)
        n += (size_t)snprintf(ret + n, cap - n, ",\"%s\":%s", keys[atk_rnd(a) % 13],
            vals[atk_rnd(a) % 15]);
    return n + (size_t)snprintf(ret + n, cap - n, "}\n");
}

static size_t
fuzz_bytes(struct attack *a, char *ret, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        ret[i] = (char)atk_rnd(a);
    ret[n - 1] = '\n';
    return n;
}

/* Random commands, random bytes, deep nesting, lines without end. */
void
atk_admin_fuzz(struct attack *a)
{
    static char line[200001];

    while (atk_left(a)) {
        uint64_t k = atk_rnd(a) % 16;
        size_t n;

        if (k < 11) {
            n = fuzz_command(a, line, sizeof(line));
        } else if (k < 14) {
            n = fuzz_bytes(a, line, 1 + atk_rnd(a) % 300);
        } else if (k == 14) {
            n = (size_t)snprintf(line, sizeof(line), "{\"cmd\":");
            memset(line + n, '[', ADM_DEEP);
            memset(line + n + ADM_DEEP, ']', ADM_DEEP);
            n += 2 * ADM_DEEP;
            line[n++] = '\n';
        } else {
            n = 65530 + atk_rnd(a) % 134000;
            memset(line, 'x', n);
            line[n - 1] = '\n';
        }
        ask(a, line, n);
    }
}
