/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an answer, in any format: the result does not depend on how the text is
 * split, a call ends at most once, and text without markup is unchanged.
 */
#include "config.h"

#include "chat/fdchat.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/take.h"

#define MUST(e) \
    do { \
        if (!(e)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
            abort(); \
        } \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char tools[] =
    "[{\"name\": \"f\", \"parameters\": {\"properties\": "
    "{\"a\": {\"type\": \"integer\"}, \"s\": {\"type\": \"string\"}, \"o\": {\"type\": \"object\"}}}}]";

struct said {
    char *text;
    size_t n, room;
    int last;
    uint32_t calls, ends;
};

static void
add(struct said *s, const char *p, size_t n)
{
    if (s->n + n > s->room) {
        s->room = 2 * (s->n + n);
        s->text = realloc(s->text, s->room);
        MUST(s->text != NULL);
    }
    memcpy(s->text + s->n, p, n);
    s->n += n;
}

static void
take_pieces(fdchat_answer_t *a, struct said *s)
{
    struct fdchat_piece p;

    while (fdchat_answer_next(a, &p) == 1) {
        char kind = (char)('0' + p.kind);

        if (p.kind == FDCHAT_CALL)
            MUST(p.call == s->calls++);
        if (p.kind == FDCHAT_ARGUMENTS || p.kind == FDCHAT_CALL_END)
            MUST(s->calls == p.call + 1 && s->ends == p.call);
        s->ends += p.kind == FDCHAT_CALL_END;
        MUST(p.kind == FDCHAT_CALL_END || p.bytes > 0);
        if ((int)p.kind != s->last)
            add(s, &kind, 1);
        s->last = (int)p.kind;
        add(s, p.text, p.bytes);
        /* an incomplete call ends at the latest where the next begins */
        MUST(s->ends <= s->calls && s->calls <= s->ends + 1);
    }
}

static struct said
said(const char *format, unsigned how, struct in text, uint32_t seed, int whole)
{
    struct fdchat_answer_opts o = { .size = sizeof(o),
        .format = format,
        .max_held = 300,
        .tools = how & 1 ? tools : NULL,
        .tools_bytes = sizeof(tools) - 1,
        .prompt = how & 2 ? "<think>\n" : NULL,
        .prompt_bytes = 8,
        .no_calls = (how & 4) != 0 };
    char err[FDCHAT_ERR_BYTES];
    struct said s = { .last = -1 };
    fdchat_answer_t *a = NULL;

    MUST(fdchat_answer_new(&o, &a, err) == 0);
    while (text.n > 0) {
        size_t k = whole ? text.n : 1 + (seed >> 16) % 7;

        k = k < text.n ? k : text.n;
        seed = seed * 1664525u + 1013904223u;
        MUST(fdchat_answer_feed(a, (const char *)text.p, k) == 0);
        take_pieces(a, &s);
        text.p += k;
        text.n -= k;
    }
    MUST(fdchat_answer_end(a) == 0);
    take_pieces(a, &s);
    fdchat_answer_free(a);
    return s;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct in in = { data, n };
    uint32_t which = take(&in, 1), how = take(&in, 1), seed = take(&in, 2);
    struct said a, b;
    size_t formats = 0;
    const char *format;

    while (fdchat_format_name(formats) != NULL)
        formats++;
    format = fdchat_format_name(which % (formats + 1));
    a = said(format, how, in, seed, 1);
    b = said(format, how, in, seed, 0);
    MUST(a.n == b.n && (a.n == 0 || memcmp(a.text, b.text, a.n) == 0));
    /* without characters of markup no text is lost */
    if (format == NULL)
        MUST(a.n == (in.n > 0 ? in.n + 1 : 0));
    free(a.text);
    free(b.text);
    return 0;
}
