/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameter table as an array, shared by param*.c and its unit test.
 */
#ifndef FDD_DAEMON_COMMON_PARAM_PRIV_H
#define FDD_DAEMON_COMMON_PARAM_PRIV_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/common/param.h"

#define PAR_SET_MAGIC 0x52415046u
#define PAR_MAX_FILE  (1 << 20) /* bytes of a file */
#define PAR_MAX_LINE  4096      /* bytes of a line of the file, line feed apart */

/* Flags of the table. */
#define PAR_F_RELOAD 1
#define PAR_F_LIST   2

enum par_type { PAR_T_INT, PAR_T_DBL, PAR_T_BOOL, PAR_T_ENUM, PAR_T_STR };
enum par_note_kind {
    PAR_N_WARN,
    PAR_N_FLAG,
    PAR_N_OFF,
    PAR_N_NEVER,
    PAR_N_ONE,
    PAR_N_JSON,
    PAR_N_SPEC,
    PAR_N_GRAPH,
    PAR_N_OVERLAP,
    PAR_N_REDUCE
};

struct par_def {
    const char *section, *key, *aliases, *unit, *help, *def;
    const char *const *words; /* of an enum, NULL behind the last */
    enum par_type type;
    size_t offset; /* in struct par */
    int64_t lo, hi;
    double dlo, dhi;
    int flags; /* PAR_F_* */
};

struct par_note {
    const char *section, *key, *aliases, *ok, *known, *text;
    enum par_note_kind kind;
};

/* Of whom the table is: "fdd", "the inference daemon". */
extern const char par_program[], par_about[];
/* The kind of its sections that bear a name, "model", and their keys, comma separated;
 * both empty: it has none. */
extern const char par_named_kind[], par_named_keys[];
/* What does not hold of them is said. */
void par_check_named(const struct par_set *ps, struct par_say *say);

extern const struct par_def par_defs[];
extern const struct par_note par_notes[];
extern const size_t par_n_defs, par_n_notes;

struct par_set {
    uint32_t magic;
    struct par par;
    unsigned char *from; /* enum par_origin of each row of par_defs */
    unsigned char *via;  /* 1 + index of the note that set the row, 0: its name */
    char (*where)[PAR_WHERE_BYTES]; /* "file:line" of each row that a file set */
    const char *at;                 /* the line that is read now, else NULL */
    char **files;                   /* read so far */
    size_t n_files;
    struct par_named *named;
    size_t n_named;
};

/* What a name means: a row of par_defs, or one of par_notes. */
struct par_ref {
    int note; /* 1: idx is of par_notes */
    size_t idx;
    int64_t scale; /* 1, or the alias's factor */
};

/* Find a name. section may be NULL: name is section.key or an alias; else
 * name is a key or an alias of that section. 0, or -ENOENT with the reason
 * and the nearest known name in err; ret->idx is then its row, par_n_defs: none is near. */
int par_find(const char *section, const char *name, struct par_ref *ret, char *err,
    size_t err_bytes);
/* Mark the rows of any section whose key or alias a line begins with. */
void par_mark_like(const char *line, unsigned char *mark);
/* Does text name the row, as section.key? */
int par_names_row(const char *text, const struct par_def *d);
/* Set the row that ref names; the rest as par_set_text(). */
int par_set_ref(struct par_set *ps, const struct par_ref *ref, const char *name,
    const char *value, enum par_origin from, char *err, size_t err_bytes);
/* Set a row from a text. via: the note that asks for it, -1: none. A note and
 * the row's own name that ask for different values in the same place are an
 * error. */
int par_set_row(struct par_set *ps, const struct par_ref *ref, int via, const char *name,
    const char *value, enum par_origin from, char *err, size_t err_bytes);
/* Values, origins and what set them. 0 or -ENOMEM. */
int par_copy(struct par_set *dst, const struct par_set *src);
size_t par_field_bytes(const struct par_def *d);
/* Is there such a section? */
int par_is_section(const char *section);
/* Text to a value of the row; units as fdd.ini(5) says. scale: the alias's factor, for
 * a number without unit. */
int par_parse_int(const struct par_def *d, const char *name, const char *value,
    int64_t scale, int64_t *ret, char *err, size_t err_bytes);
int par_parse_dbl(const struct par_def *d, const char *name, const char *value,
    double *ret, char *err, size_t err_bytes);
int par_parse_enum(const struct par_def *d, const char *name, const char *value,
    uint32_t *ret, char *err, size_t err_bytes);
int
par_parse_str(const char *name, const char *value, char *ret, char *err, size_t err_bytes);
/* The words of both lists, each once; of two words with the same part before = or :,
 * the later. -ENOSPC: longer than a value may be. */
int par_list_add(const char *list, const char *more, char ret[PAR_STR_BYTES]);
int par_parse_bool(const char *name, const char *value, int64_t *ret, char *err,
    size_t err_bytes);
/* Is word in a list separated by | or , (what follows a * is skipped)? */
int par_word_in(const char *word, const char *list);
/* err = "name = value: " and the reason; returns -EINVAL. */
__attribute__((format(printf, 5, 6))) int par_bad_value(const char *name,
    const char *value, char *err, size_t err_bytes, const char *fmt, ...);

/* ---- param_file.c ------------------------------------------------------------- */

/* Read a file into ps, over what earlier files set there; --set values stay. Every
 * error is said and the lines without one are taken. ret_bad[row] is set where a
 * row's value is wrong, or in a line that could not be understood. 0, -EINVAL, -ENOMEM,
 * or why it cannot be opened. */
int par_read_into(struct par_set *ps, const char *path, struct par_say *say,
    unsigned char *ret_bad);

/* ---- param_named.c -------------------------------------------------------------- */

/* The name of such a section; NULL: it is none. */
const char *par_section_name(const char *section);
/* Set a key in it. -EINVAL, -ENOENT, -ENOMEM with the reason in err. */
int par_set_named(struct par_set *ps, const char *name, const char *key,
    const char *value, char *err, size_t err_bytes);
/* Take over what a later file says. 0 or -ENOMEM. */
int par_add_named(struct par_set *ps, const struct par_set *more);
int par_copy_named(struct par_set *dst, const struct par_set *src);
/* How many rows are different. */
int par_named_differ(const struct par_set *a, const struct par_set *b);

/* ---- param_note.c --------------------------------------------------------------- */

/* What a note makes of a value: 0, 1 with a warning in err, -EINVAL. */
int par_set_note(struct par_set *ps, size_t idx, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes);
/* What becomes of its values, for people. */
const char *par_note_rule(const struct par_note *n);

/* ---- param_word.c --------------------------------------------------------------- */

/* Small letters, cut at 63 bytes: no word of the lists is longer. */
void par_lower(const char *text, char ret[64]);
/* Other servers' words for values of a row: *value becomes ours. -EINVAL for
 * those that are known and not available. */
int par_value_word(const struct par_def *d, const char *name, const char **value,
    char *err, size_t err_bytes);
/* A list of token counts, comma separated, sorted and each once; empty stays
 * empty. ret may be text. */
int par_sizes(const char *name, const char *text, char *ret, size_t ret_bytes, char *err,
    size_t err_bytes);

/* ---- texts ---------------------------------------------------------------------- */

/* Row of the table as text: 1m rather than 1048576 for sizes. */
void par_format(const struct par_def *d, int64_t v, char *ret, size_t ret_bytes);
void par_default_text(const struct par_def *d, char *ret, size_t ret_bytes);
int par_is_size(const struct par_def *d);

#endif
