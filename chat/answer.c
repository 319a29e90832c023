/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define MEM_LIMIT (256u << 20)

/* ---- output ---------------------------------------------------------------------- */

void
ans_keep(struct fdchat_answer *a, struct ans_buf *b, const char *p, size_t n)
{
    if (n > b->room - b->n) {
        size_t room = b->room > 0 ? b->room : 64;
        char *q;

        while (room - b->n < n)
            room *= 2;
        q = a->rc == 0 ? realloc(b->p, room) : NULL;
        if (q == NULL) {
            a->rc = -ENOMEM;
            return;
        }
        b->p = q;
        b->room = room;
    }
    if (n > 0)
        memcpy(b->p + b->n, p, n);
    b->n += n;
}

static struct ans_event *
event_add(struct fdchat_answer *a, enum fdchat_kind kind)
{
    if (a->n_event == a->room_event) {
        size_t room = a->room_event > 0 ? 2 * a->room_event : 16;
        struct ans_event *e = a->rc == 0 ? realloc(a->event, room * sizeof(*e)) : NULL;

        if (e == NULL) {
            a->rc = -ENOMEM;
            return NULL;
        }
        a->event = e;
        a->room_event = room;
    }
    a->event[a->n_event] = (struct ans_event){ .kind = kind,
        .at = a->out.n,
        .call = a->n_call > 0 ? a->n_call - 1 : 0 };
    return &a->event[a->n_event++];
}

static void
emit(struct fdchat_answer *a, enum fdchat_kind kind, const char *p, size_t n)
{
    struct ans_event *e = a->n_event > a->next_event ? &a->event[a->n_event - 1] : NULL;

    if (n == 0)
        return;
    if (e == NULL || e->kind != kind)
        e = event_add(a, kind);
    ans_keep(a, &a->out, p, n);
    if (e != NULL && a->rc == 0)
        e->n += n;
}

static int
is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void
blanks_out(struct fdchat_answer *a)
{
    emit(a, a->base, a->blanks.p, a->blanks.n);
    a->blanks.n = 0;
}

static void
text_byte(struct fdchat_answer *a, char c)
{
    if (is_blank(c)) {
        if (a->lead)
            return;
        ans_keep(a, &a->blanks, &c, 1);
        if (a->blanks.n > ANS_BLANKS)
            blanks_out(a);
        return;
    }
    blanks_out(a);
    a->lead = 0;
    if (a->base == FDCHAT_CONTENT)
        a->fresh = a->chain = 0;
    emit(a, a->base, &c, 1);
}

void
ans_text(struct fdchat_answer *a, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        text_byte(a, p[i]);
}

static uint64_t
mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void
id_make(const struct fdchat_answer *a, char id[FDCHAT_ID_BYTES])
{
    static const char set[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t x = mixed(a->seed + a->n_call), y = mixed(x);
    char text[25];

    for (size_t i = 0; i < 24; i++) {
        uint64_t *from = i % 2 ? &x : &y;

        text[i] = set[*from % 62];
        *from /= 62;
    }
    text[24] = '\0';
    if (a->fmt->flags & FMT_SHORT_ID)
        (void)snprintf(id, FDCHAT_ID_BYTES, "%.9s", text);
    else
        (void)snprintf(id, FDCHAT_ID_BYTES, "call_%s", text);
}

void
ans_tell(struct fdchat_answer *a)
{
    struct ans_event *e;

    a->base = FDCHAT_CONTENT;
    a->blanks.n = 0;
    a->lead = 1;
    a->raw.n = 0;
    a->open = 1;
    a->n_call++;
    e = event_add(a, FDCHAT_CALL);
    if (e == NULL)
        return;
    if (a->id[0] != '\0')
        memcpy(e->id, a->id, sizeof(e->id));
    else
        id_make(a, e->id);
    ans_keep(a, &a->out, a->name, a->n_name);
    e->n = a->n_name;
}

void
ans_args(struct fdchat_answer *a, const char *p, size_t n)
{
    emit(a, FDCHAT_ARGUMENTS, p, n);
}

void
ans_args_string(struct fdchat_answer *a, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
        const char *k = p[i] != '\0' ? strchr(from, p[i]) : NULL;
        char text[8];

        if (k != NULL)
            (void)snprintf(text, sizeof(text), "\\%c", to[k - from]);
        else if ((unsigned char)p[i] < 0x20)
            (void)snprintf(text, sizeof(text), "\\u%04x", (unsigned)p[i]);
        else
            (void)snprintf(text, sizeof(text), "%c", p[i]);
        ans_args(a, text, strlen(text));
    }
}

void
ans_told_end(struct fdchat_answer *a)
{
    (void)event_add(a, FDCHAT_CALL_END);
    a->open = 0;
    a->raw.n = 0;
    a->id[0] = '\0';
}

/* ---- markers ------------------------------------------------------------------------ */

void
ans_lit_set(const struct fdchat_answer *a, struct ans_lit *l, const char *p, size_t n)
{
    memset(l, 0, sizeof(*l));
    l->n = (uint8_t)(n < ANS_LIT ? n : ANS_LIT);
    memcpy(l->p, p, l->n);
    for (size_t i = 0; i < l->n; i++) {
        size_t best = 0;

        for (const struct ans_lit *s = a->special; s != NULL && s->n > 0; s++)
            if (s->n > best && s->n <= l->n - i && memcmp(l->p + i, s->p, s->n) == 0)
                best = s->n;
        if (best == 0)
            continue;
        memset(l->special + i, 2, best);
        l->special[i] = 1;
        i += best - 1;
    }
}

/* Returns 2 if hold is the marker, 1 if it is the marker's beginning, else 0. */
static int
held_is(const struct fdchat_answer *a, const struct ans_lit *l)
{
    if (a->n_hold > l->n || memcmp(a->hold, l->p, a->n_hold) != 0 ||
        memcmp(a->hold_special, l->special, a->n_hold) != 0)
        return 0;
    return a->n_hold == l->n ? 2 : 1;
}

int
ans_match(struct fdchat_answer *a, char c, uint8_t special,
    const struct ans_lit *const *lit, size_t n, char *ret_c)
{
    int maybe = 0;

    a->hold[a->n_hold] = c;
    a->hold_special[a->n_hold++] = special;
    for (size_t i = 0; i < n; i++) {
        int k = held_is(a, lit[i]);

        if (k == 2) {
            a->n_hold = 0;
            return (int)i;
        }
        maybe |= k;
    }
    if (maybe)
        return -1;
    /* the first byte begins no marker; the others are read again */
    *ret_c = a->hold[0];
    ans_again(a, a->hold + 1, a->hold_special + 1, a->n_hold - 1);
    a->n_hold = 0;
    return -2;
}

void
ans_again(struct fdchat_answer *a, const char *p, const uint8_t *special, size_t n)
{
    memmove(a->again + n, a->again, a->n_again);
    memmove(a->again_special + n, a->again_special, a->n_again);
    memcpy(a->again, p, n);
    memcpy(a->again_special, special, n);
    a->n_again += n;
}

static void
to_text(struct fdchat_answer *a)
{
    a->mode = ANS_TEXT;
    a->now = NULL;
    a->id[0] = '\0';
}

void
ans_fail(struct fdchat_answer *a)
{
    size_t held = a->n_hold;

    if (a->open) {
        ans_params_close(a);
        ans_told_end(a);
    }
    to_text(a);
    ans_text(a, a->raw.p, a->raw.n);
    a->raw.n = 0;
    a->fresh = a->chain = 0;
    a->n_hold = 0;
    ans_again(a, a->hold, a->hold_special, held);
}

void
ans_fail_at(struct fdchat_answer *a, char c, uint8_t special)
{
    if (a->raw.n > 0)
        a->raw.n--;
    a->hold[0] = c;
    a->hold_special[0] = special;
    a->n_hold = 1;
    ans_fail(a);
}

/* ---- text ---------------------------------------------------------------------------- */

static int
mark_counts(const struct fdchat_answer *a, const struct ans_mark *m)
{
    if (m->at_start && !(a->fresh && a->base == FDCHAT_CONTENT))
        return 0;
    if (m->what == MARK_THINK)
        return a->base == FDCHAT_CONTENT;
    return m->what != MARK_ANSWER || a->base == FDCHAT_REASONING;
}

static void
mark_found(struct fdchat_answer *a, const struct ans_mark *m)
{
    if (m->what == MARK_CALL) {
        a->bare = 0;
        a->raw.n = 0;
        ans_keep(a, &a->raw, m->lit.p, m->lit.n);
        ans_form_begin(a, m->form, 1);
        return;
    }
    a->blanks.n = 0;
    a->lead = 1;
    if (m->what == MARK_THINK)
        a->base = FDCHAT_REASONING;
    if (m->what == MARK_ANSWER) {
        a->base = FDCHAT_CONTENT;
        a->fresh = 1;
    }
}

/* Does a form without a marker begin here: at an answer's start, or after such a call? */
static int
bare_begins(struct fdchat_answer *a, char c, uint8_t special)
{
    const struct ans_form *f = NULL;

    if (a->base != FDCHAT_CONTENT || special != 0 || !(a->fresh || a->chain))
        return 0;
    for (size_t i = 0; i < FMT_CALLS && f == NULL; i++)
        if (a->form[i].n > 0 && a->form[i].step[0].op != OP_LIT)
            f = &a->form[i];
    if (f == NULL ||
        !(c == '[' || (f->step[0].op == OP_OBJECT && c == '{') || (a->chain && c == ';')))
        return 0;
    a->bare = 1;
    a->raw.n = 0;
    ans_form_begin(a, f, 0);
    if (c == ';')
        ans_keep(a, &a->raw, &c, 1);
    else
        ans_again(a, &c, &special, 1);
    return 1;
}

static void
in_text(struct fdchat_answer *a, char c, uint8_t special)
{
    const struct ans_lit *lit[ANS_MARKS];
    const struct ans_mark *from[ANS_MARKS];
    size_t n = 0;
    char first;
    int k;

    if (a->n_hold == 0 && bare_begins(a, c, special))
        return;
    if (a->n_hold == 0 && !a->starts[(unsigned char)c]) {
        text_byte(a, c);
        return;
    }
    for (size_t i = 0; i < a->n_mark; i++)
        if (mark_counts(a, &a->mark[i])) {
            from[n] = &a->mark[i];
            lit[n++] = &a->mark[i].lit;
        }
    k = ans_match(a, c, special, lit, n, &first);
    if (k >= 0)
        mark_found(a, from[k]);
    else if (k == -2)
        text_byte(a, first);
}

static void
one_byte(struct fdchat_answer *a, char c, uint8_t special)
{
    if (a->mode == ANS_TEXT)
        in_text(a, c, special);
    else
        ans_form_byte(a, c, special);
}

/* Emit the text up to a byte that may begin a marker. Returns its bytes. */
static size_t
plain_run(struct fdchat_answer *a, const char *p, size_t n)
{
    size_t i = 0;

    if (a->mode != ANS_TEXT || a->n_hold > 0 || a->blanks.n > 0 || a->lead ||
        (a->base == FDCHAT_CONTENT && (a->fresh || a->chain)))
        return 0;
    while (i < n && !a->starts[(unsigned char)p[i]] && !is_blank(p[i]))
        i++;
    emit(a, a->base, p, i);
    return i;
}

static int
feed(struct fdchat_answer *a, const char *p, size_t n, int special)
{
    if (a->ended)
        return -EINVAL;
    if (a->next_event == a->n_event)
        a->next_event = a->n_event = a->out.n = 0;
    if (a->fmt == NULL) {
        emit(a, FDCHAT_CONTENT, p, n);
        return a->rc;
    }
    for (size_t i = 0; i < n && a->rc == 0;) {
        uint8_t s = special && a->exact ? (i == 0 ? 1 : 2) : 0;
        size_t run = s == 0 ? plain_run(a, p + i, n - i) : 0;

        i += run;
        if (run > 0)
            continue;
        one_byte(a, p[i++], s);
        while (a->n_again > 0 && a->rc == 0) {
            char c = a->again[0];
            uint8_t t = a->again_special[0];

            a->n_again--;
            memmove(a->again, a->again + 1, a->n_again);
            memmove(a->again_special, a->again_special + 1, a->n_again);
            one_byte(a, c, t);
        }
    }
    return a->rc;
}

int
fdchat_answer_feed(fdchat_answer_t *a, const char *text, size_t bytes)
{
    return feed(a, text, bytes, 0);
}

int
fdchat_answer_special(fdchat_answer_t *a, const char *name, size_t bytes)
{
    return feed(a, name, bytes, 1);
}

int
fdchat_answer_end(fdchat_answer_t *a)
{
    if (a->ended)
        return a->rc;
    if (a->next_event == a->n_event)
        a->next_event = a->n_event = a->out.n = 0;
    /* each turn leaves fewer held bytes; the loop ends when none are left */
    while (a->rc == 0 && a->fmt != NULL && (a->mode != ANS_TEXT || a->n_hold > 0)) {
        if (a->mode == ANS_TEXT) {
            text_byte(a, a->hold[0]);
            ans_again(a, a->hold + 1, a->hold_special + 1, a->n_hold - 1);
            a->n_hold = 0;
        } else if (a->open) {
            ans_form_end(a);
            break;
        } else if (a->mode == ANS_EXPECT && a->n_call > a->call_before) {
            break; /* only the end of the markup is missing */
        } else {
            ans_fail(a);
        }
        while (a->n_again > 0 && a->rc == 0) {
            char c = a->again[0];
            uint8_t t = a->again_special[0];

            a->n_again--;
            memmove(a->again, a->again + 1, a->n_again);
            memmove(a->again_special, a->again_special + 1, a->n_again);
            one_byte(a, c, t);
        }
    }
    blanks_out(a);
    a->ended = 1;
    return a->rc;
}

/* Bytes up to the end of the last whole character; invalid UTF-8 counts as whole. */
static size_t
whole(const char *p, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)p[n - k];

        if (c >= 0xc0)
            return (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) > k ? n - k : n;
        if (c < 0x80)
            return n;
    }
    return n;
}

int
fdchat_answer_next(fdchat_answer_t *a, struct fdchat_piece *ret)
{
    int last = a->next_event + 1 == a->n_event;
    struct ans_event *e;
    size_t n;

    if (a->next_event == a->n_event || a->rc != 0)
        return 0;
    e = &a->event[a->next_event];
    n = e->n;
    if (last && !a->ended && e->kind != FDCHAT_CALL && e->kind != FDCHAT_CALL_END) {
        n = n > 0 ? whole(a->out.p + e->at, n) : 0;
        if (n == 0)
            return 0;
    }
    *ret = (struct fdchat_piece){ .kind = e->kind,
        .call = e->call,
        .text = n > 0 ? a->out.p + e->at : "",
        .bytes = n,
        .id = e->kind == FDCHAT_CALL ? e->id : NULL };
    e->at += n;
    e->n -= n;
    if (e->n == 0 || !last)
        a->next_event++;
    return 1;
}

/* ---- begin and end --------------------------------------------------------------------- */

static void
mark_add(struct fdchat_answer *a, int what, const char *text, const struct ans_form *form)
{
    struct ans_mark *m = &a->mark[a->n_mark];

    if (text == NULL)
        return;
    *m = (struct ans_mark){ .what = what,
        .form = form,
        .at_start = form != NULL && form->at_start };
    if (form != NULL)
        m->lit = form->step[0].lit;
    else
        ans_lit_set(a, &m->lit, text, strlen(text));
    a->starts[(unsigned char)m->lit.p[0]] = 1;
    a->n_mark++;
}

static int
marks_set(struct fdchat_answer *a, int no_calls)
{
    const struct fmt *f = a->fmt;

    a->form = arn_get(&a->mem, FMT_CALLS * sizeof(*a->form));
    if (a->form == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < FMT_CALLS && f->call[i] != NULL && !no_calls; i++) {
        if (ans_form_read(a, f->call[i], &a->form[i]) != 0)
            return -EINVAL;
        a->has_bare |= a->form[i].step[0].op != OP_LIT;
        if (a->form[i].step[0].op == OP_LIT)
            mark_add(a, MARK_CALL, f->call[i], &a->form[i]);
    }
    for (size_t i = 0; i < FMT_MARKS; i++) {
        mark_add(a, MARK_THINK, f->think[i], NULL);
        mark_add(a, MARK_ANSWER, f->answer[i], NULL);
    }
    for (size_t i = 0; i < FMT_DROPS; i++)
        mark_add(a, MARK_DROP, f->drop[i], NULL);
    ans_lit_set(a, &a->literal.delim, FMT_QUOTE, sizeof(FMT_QUOTE) - 1);
    return 0;
}

static int
special_set(struct fdchat_answer *a, const struct fdchat_answer_opts *o)
{
    size_t n = 0;

    if (o->special == NULL)
        return 0;
    a->exact = 1;
    a->special = arn_get(&a->mem, (o->n_special + 1) * sizeof(*a->special));
    if (a->special == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < o->n_special; i++) {
        size_t bytes = strlen(o->special[i]);

        if (bytes == 0 || bytes > ANS_LIT)
            continue;
        a->special[n].n = (uint8_t)bytes;
        memcpy(a->special[n++].p, o->special[i], bytes);
    }
    return 0;
}

/* Does the prompt end with a begin of reasoning, so that the answer is within it? */
static int
begins_in_reasoning(const struct fmt *f, const char *p, size_t n)
{
    while (n > 0 && is_blank(p[n - 1]))
        n--;
    for (size_t i = 0; i < FMT_MARKS && f->think[i] != NULL; i++) {
        size_t k = strlen(f->think[i]);

        if (n >= k && memcmp(p + n - k, f->think[i], k) == 0)
            return 1;
    }
    return 0;
}

static int
set_up(struct fdchat_answer *a, const struct fdchat_answer_opts *o, char *err)
{
    int rc = 0;

    a->seed = o->seed;
    a->max_held = o->max_held > 0 ? o->max_held : ANS_HELD;
    a->base = FDCHAT_CONTENT;
    a->fresh = 1;
    if (o->format == NULL)
        return 0;
    a->fmt = fmt_named(o->format);
    if (a->fmt == NULL) {
        (void)snprintf(err, FDCHAT_ERR_BYTES, "no format of answers is named %.80s",
            o->format);
        return -EINVAL;
    }
    if (o->tools != NULL)
        rc = typ_new(o->tools, o->tools_bytes, &a->mem, &a->schema, err);
    if (rc == 0)
        rc = special_set(a, o);
    if (rc == 0)
        rc = marks_set(a, o->no_calls);
    if (rc == 0 && o->prompt != NULL &&
        begins_in_reasoning(a->fmt, o->prompt, o->prompt_bytes)) {
        a->base = FDCHAT_REASONING;
        a->lead = 1;
    }
    return rc;
}

int
fdchat_answer_new(const struct fdchat_answer_opts *o, fdchat_answer_t **ret,
    char err[FDCHAT_ERR_BYTES])
{
    struct fdchat_answer *a;
    int rc;

    err[0] = '\0';
    if (o->size < sizeof(*o)) {
        (void)snprintf(err, FDCHAT_ERR_BYTES, "fdchat_answer_opts.size is not set");
        return -EINVAL;
    }
    a = calloc(1, sizeof(*a));
    if (a == NULL) {
        (void)snprintf(err, FDCHAT_ERR_BYTES, "out of memory");
        return -ENOMEM;
    }
    arn_init(&a->mem, MEM_LIMIT);
    rc = set_up(a, o, err);
    if (rc != 0) {
        if (err[0] == '\0')
            (void)snprintf(err, FDCHAT_ERR_BYTES, "out of memory");
        fdchat_answer_free(a);
        return rc;
    }
    *ret = a;
    return 0;
}

void
fdchat_answer_free(fdchat_answer_t *a)
{
    struct ans_buf *all[6];

    if (a == NULL)
        return;
    all[0] = &a->blanks;
    all[1] = &a->raw;
    all[2] = &a->object.args;
    all[3] = &a->literal.scalar;
    all[4] = &a->value;
    all[5] = &a->out;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]->p);
    free(a->event);
    arn_fini(&a->mem);
    free(a);
}

const char *
fdchat_format_name(size_t i)
{
    return fmt_at(i) != NULL ? fmt_at(i)->name : NULL;
}

int
fdchat_format_holds(const char *format, const char *text, size_t bytes)
{
    const struct fmt *f = format != NULL ? fmt_named(format) : NULL;

    return f != NULL && fmt_holds(f, text, bytes);
}

const char *
fdchat_format_of_template(const char *text, size_t bytes)
{
    const struct fmt *f = fmt_of_template(text, bytes);

    return f != NULL ? f->name : NULL;
}
