/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Rendering a template: statements and expressions over values, with Jinja's
 * scopes. The rendered text and the marks of its bytes that came from the request are
 * in the arena of the rendering.
 */
#ifndef FDD_CHAT_EVAL_H
#define FDD_CHAT_EVAL_H

#include "chat/template.h"

#define RND_MAX_STEPS 2000000u    /* see val_steps() */
#define RND_MAX_BYTES (16u << 20) /* of the rendered text */
#define RND_MAX_MEM   (256u << 20)
#define RND_MAX_DEPTH 400 /* of calls, statements, nested values */

struct rnd_var {
    struct tpl_name name;
    struct val value;
};
struct rnd_scope { /* variables by name; one not found here is looked up in up */
    struct rnd_scope *up;
    struct rnd_var *at;
    size_t n, room;
    int kept; /* a macro was defined in it or below: it may outlive its block */
};

struct tpl_loop {
    const struct val_list *l;
    size_t i;
    int depth;
    const struct tpl_node *node;
    struct rnd_scope *scope;   /* the one around the loop */
    struct val_list **changed; /* *changed: last arguments of loop.changed(), or NULL */
};

struct render {
    struct val_ctx c;
    struct rnd_scope *scope;
    struct val_buf *out;
    int64_t now_s; /* for strftime_now: seconds since 1970, local time */
};

/* A call's evaluated arguments. */
struct rnd_args {
    size_t n, n_kw;
    struct val *at;
    const struct tpl_name *kw;
    struct val *kw_at;
};

/* A function, a method of self, or a macro. */
struct val_call {
    struct val (*fn)(struct render *r, struct val self, const struct rnd_args *a);
    const char *name;
    struct val self;
    const struct tpl_node *macro;
    struct rnd_scope *scope; /* where the macro was defined */
};

/* Returns the argument at position i or with that name; fallback if neither is given.
 * Fails as Python does if both are given. */
struct val rnd_arg(struct render *r, const struct rnd_args *a, size_t i, const char *name,
    struct val fallback);
/* Fails as Python does if a has fewer than least arguments, more than most by position,
 * or one by a name that is not in names ("a,b"). */
void rnd_args_end(struct render *r, const char *fn, const struct rnd_args *a,
    size_t least, size_t most, const char *names);

/* Fails with an error that names v and says that it is not defined. */
__attribute__((noreturn)) void rnd_undefined(struct render *r, struct val v);
struct val rnd_call(struct render *r, struct val fn, const struct rnd_args *a);
/* obj.name and obj[key]. */
struct val rnd_attr(struct render *r, struct val obj, const char *name, size_t n);
struct val rnd_item(struct render *r, struct val obj, struct val key);
/* Returns 1 for text that Jinja takes for safe HTML, the result of `safe` or `escape`
 * (markupsafe's Markup): text joined to it by + is escaped, other text is not. */
int rnd_is_safe(struct val v);
struct val rnd_mark_safe(struct render *r, struct val v); /* as text, unescaped */
struct val rnd_safe(struct render *r, struct val v); /* as text, escaped unless safe */
/* operator.c: the result of a op b. */
struct val rnd_binary(struct render *r, enum tok_op op, struct val a, struct val b);
int rnd_compare(struct render *r, enum tok_op op, struct val a, struct val b);
/* Is v an integer, as bools are too? rnd_int(): its value. */
static inline int
rnd_is_int(struct val v)
{
    return v.type == VAL_INT || v.type == VAL_BOOL;
}

static inline int64_t
rnd_int(struct val v)
{
    return v.type == VAL_BOOL ? v.b : v.i;
}

void rnd_set(struct render *r, struct rnd_scope *s, struct tpl_name name, struct val v);

/* filter.c. NULL: there is no such filter. */
typedef struct val rnd_filter_fn(struct render *r, struct val v, const struct rnd_args *a);
rnd_filter_fn *rnd_filter(const char *name, size_t n);
/* strings.c: some of the filters and of the methods of strings. */
rnd_filter_fn rnd_attr_filter, rnd_batch, rnd_center, rnd_slice, rnd_truncate,
    rnd_wordcount;
rnd_filter_fn rnd_str_center, rnd_str_islower, rnd_str_isupper, rnd_str_ljust,
    rnd_str_partition, rnd_str_rjust, rnd_str_rpartition, rnd_str_zfill;
/* test.c. NULL: there is no such test. */
typedef int rnd_test_fn(struct render *r, struct val v, const struct rnd_args *a);
rnd_test_fn *rnd_test(const char *name, size_t n);

/* Length of the line break at i, as for str.splitlines(); 0: none. */
size_t rnd_line_end(const struct val_str *s, size_t i);
/* spec.c. s % args; v formatted as str.format() does by the specification s, appended to b. */
struct val rnd_percent(struct render *r, const struct val_str *s, struct val args);
void
rnd_add_format(struct render *r, struct val_buf *b, struct val v, const struct val_str *s);
/* s padded to width characters with fill. align: <, > or ^. */
struct val rnd_padded(struct render *r, const struct val_str *s, int64_t width,
    uint32_t fill, char align);
/* method.c: v as a string, v as an integer. They fail if v has another type; the error
 * begins with `what`. */
const struct val_str *rnd_need_text(struct render *r, struct val v, const char *what);
int64_t rnd_need_int(struct render *r, struct val v);
struct rnd_named {
    const char *name;
    struct val (*fn)(struct render *r, struct val self, const struct rnd_args *a);
};
/* The method of that name in the list m, bound to obj; VAL_UNDEF: none. */
struct val rnd_bound(struct render *r, const struct rnd_named *m, size_t n_m,
    struct val obj, const char *name, size_t n);
/* Methods of strings, dicts and lists; global.c: functions. VAL_UNDEF: none. */
struct val rnd_method(struct render *r, struct val obj, const char *name, size_t n);
struct val rnd_global(struct render *r, const char *name, size_t n);

/* Render t with the variables of r->scope. A failure jumps to r->c.fail. */
void rnd_run(struct render *r, const struct template *t);

#endif
