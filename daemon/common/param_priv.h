/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameter table as an array, and the functions that param*.c and its unit test
 * share.
 */
#ifndef FDD_DAEMON_COMMON_PARAM_PRIV_H
#define FDD_DAEMON_COMMON_PARAM_PRIV_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/common/param.h"

#define PAR_SET_MAGIC 0x52415046u
#define PAR_MAX_FILE  (1 << 20) /* bytes of a file */
#define PAR_MAX_LINE  4096      /* bytes of a line of the file, without line feed */

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
    const char *const *words; /* of an enum, NULL after the last */
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

/* The name and the description of the program whose table this is: "fdd", "the
 * inference daemon". */
extern const char par_program[], par_about[];
/* The kind of the program's named sections, such as "model", and their keys, comma
 * separated; both are empty if it has none. */
extern const char par_named_kind[], par_named_keys[];
/* Check the named sections and report what is wrong. Each program has its own. */
void par_check_named(const struct par_set *ps, struct par_say *say);

extern const struct par_def par_defs[];
extern const struct par_note par_notes[];
extern const size_t par_n_defs, par_n_notes;

struct par_set {
    uint32_t magic;
    struct par par;
    unsigned char *from; /* enum par_origin of each row of par_defs */
    unsigned char *via;  /* 1 + index of the note that set the row, 0: its own name did */
    char (*where)[PAR_WHERE_BYTES]; /* "file:line" of each row that a file set */
    const char *at;                 /* "file:line" being read now, or NULL */
    char **files;                   /* names of the files read so far */
    size_t n_files;
    struct par_named *named;
    size_t n_named;
};

/* The meaning of a name: a row of par_defs, or one of par_notes. */
struct par_ref {
    int note; /* 1: idx is an index of par_notes */
    size_t idx;
    int64_t scale; /* 1, or the alias's factor */
};

/* Find a name. section may be NULL: name is section.key or an alias; else name is a key
 * or an alias of that section. 0, or -ENOENT with the reason and the nearest known name
 * in err; ret->idx is then the row of that name, or par_n_defs if none is near. */
int par_find(const char *section, const char *name, struct par_ref *ret, char *err,
    size_t err_bytes);
/* Mark the rows, of any section, whose key or alias begins the line. */
void par_mark_like(const char *line, unsigned char *mark);
/* Does text contain the row's name as section.key? */
int par_names_row(const char *text, const struct par_def *d);
/* Set the row that ref refers to; otherwise as par_set_text(). */
int par_set_ref(struct par_set *ps, const struct par_ref *ref, const char *name,
    const char *value, enum par_origin from, char *err, size_t err_bytes);
/* Set a row from a text. via: index of the note that sets it, or -1. It is an error if
 * a note and the row's own name set different values in one source (enum par_origin). */
int par_set_row(struct par_set *ps, const struct par_ref *ref, int via, const char *name,
    const char *value, enum par_origin from, char *err, size_t err_bytes);
/* Copy values, origins and places. 0 or -ENOMEM. */
int par_copy(struct par_set *dst, const struct par_set *src);
size_t par_field_bytes(const struct par_def *d);
/* Is there a section of that name? */
int par_is_section(const char *section);
/* Convert text to a value of the row, with units as in fdd.ini(5). scale: the alias's
 * factor, for a number without unit. */
int par_parse_int(const struct par_def *d, const char *name, const char *value,
    int64_t scale, int64_t *ret, char *err, size_t err_bytes);
int par_parse_dbl(const struct par_def *d, const char *name, const char *value,
    double *ret, char *err, size_t err_bytes);
int par_parse_enum(const struct par_def *d, const char *name, const char *value,
    uint32_t *ret, char *err, size_t err_bytes);
int
par_parse_str(const char *name, const char *value, char *ret, char *err, size_t err_bytes);
/* Join two lists, each entry once. Of entries with the same key (the text before = or
 * :) the later stays. -ENOSPC: longer than a value may be. */
int par_list_add(const char *list, const char *more, char ret[PAR_STR_BYTES]);
int par_parse_bool(const char *name, const char *value, int64_t *ret, char *err,
    size_t err_bytes);
/* Is word in a list separated by | or , (text after a * is skipped)? */
int par_word_in(const char *word, const char *list);
/* Write "name = value: " and the reason to err; returns -EINVAL. */
__attribute__((format(printf, 5, 6))) int par_bad_value(const char *name,
    const char *value, char *err, size_t err_bytes, const char *fmt, ...);

/* ---- param_file.c ------------------------------------------------------------- */

/* Read a file into ps, over the values of earlier files; --set values stay. All errors
 * are reported; lines without an error take effect. ret_bad[row] is set if the row's
 * value is wrong, or may be in a line that could not be understood. 0, -EINVAL,
 * -ENOMEM, or the error of opening the file. */
int par_read_into(struct par_set *ps, const char *path, struct par_say *say,
    unsigned char *ret_bad);

/* ---- param_named.c -------------------------------------------------------------- */

/* The name in the title of a named section; NULL if section is not a named one. */
const char *par_section_name(const char *section);
/* Set a key in a named section. -EINVAL, -ENOENT, -ENOMEM with the reason in err. */
int par_set_named(struct par_set *ps, const char *name, const char *key,
    const char *value, char *err, size_t err_bytes);
/* Take over the named sections of a later file. 0 or -ENOMEM. */
int par_add_named(struct par_set *ps, const struct par_set *more);
int par_copy_named(struct par_set *dst, const struct par_set *src);
/* Number of rows that differ. */
int par_named_differ(const struct par_set *a, const struct par_set *b);

/* ---- param_note.c --------------------------------------------------------------- */

/* Apply a note to a value. 0, 1 with a warning in err, or -EINVAL. */
int par_set_note(struct par_set *ps, size_t idx, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes);
/* What is done with the note's values, as text for people. */
const char *par_note_rule(const struct par_note *n);

/* ---- param_word.c --------------------------------------------------------------- */

/* Text in lower case, cut at 63 bytes: no word of the lists is longer. */
void par_lower(const char *text, char ret[64]);
/* Translate another server's word for a value of the row: *value becomes ours. -EINVAL:
 * a known word whose feature is not available. */
int par_value_word(const struct par_def *d, const char *name, const char **value,
    char *err, size_t err_bytes);
/* A list of token counts, comma separated, sorted, each once; empty stays empty. ret
 * may be text. */
int par_sizes(const char *name, const char *text, char *ret, size_t ret_bytes, char *err,
    size_t err_bytes);

/* ---- texts ---------------------------------------------------------------------- */

/* A row's value as text: 1m rather than 1048576 for sizes. */
void par_format(const struct par_def *d, int64_t v, char *ret, size_t ret_bytes);
void par_default_text(const struct par_def *d, char *ret, size_t ret_bytes);
int par_is_size(const struct par_def *d);

#endif
