/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The table of parameters, and the table of names of other servers. */
#include "config.h"

#include "daemon/common/param_priv.h"

enum { RESTART = 0, RELOAD = PAR_F_RELOAD, LIST = PAR_F_LIST };

#define PAR_INT(s, k, a, u, lo, d, hi, f, h)
#define PAR_DBL(s, k, a, u, lo, d, hi, f, h)
#define PAR_BOOL(s, k, a, d, f, h)
#define PAR_C(name, word) word,
#define PAR_ENUM(s, k, a, c, d, f, h) \
    const char *const par_##s##_##k##_words[] = { c NULL }; \
    _Static_assert(sizeof(enum par_##s##_##k) == sizeof(uint32_t), "enum_field()");
#define PAR_STR(s, k, a, d, f, h)
#include PAR_TABLE
#undef PAR_INT
#undef PAR_DBL
#undef PAR_BOOL
#undef PAR_C
#undef PAR_ENUM
#undef PAR_STR

const struct par_def par_defs[] = {
#define PAR_INT(s, k, a, u, lo_, d, hi_, f, h) \
    { .section = #s, \
        .key = #k, \
        .aliases = a, \
        .unit = u, \
        .help = h, \
        .def = #d, \
        .type = PAR_T_INT, \
        .offset = offsetof(struct par, s##_##k), \
        .lo = lo_, \
        .hi = hi_, \
        .flags = f },
#define PAR_DBL(s, k, a, u, lo_, d, hi_, f, h) \
    { .section = #s, \
        .key = #k, \
        .aliases = a, \
        .unit = u, \
        .help = h, \
        .def = #d, \
        .type = PAR_T_DBL, \
        .offset = offsetof(struct par, s##_##k), \
        .dlo = lo_, \
        .dhi = hi_, \
        .flags = f },
#define PAR_BOOL(s, k, a, d, f, h) \
    { .section = #s, \
        .key = #k, \
        .aliases = a, \
        .unit = "", \
        .help = h, \
        .def = #d, \
        .type = PAR_T_BOOL, \
        .offset = offsetof(struct par, s##_##k), \
        .lo = 0, \
        .hi = 1, \
        .flags = f },
#define PAR_ENUM(s, k, a, c, d, f, h) \
    { .section = #s, \
        .key = #k, \
        .aliases = a, \
        .unit = "", \
        .help = h, \
        .words = par_##s##_##k##_words, \
        .def = d, \
        .type = PAR_T_ENUM, \
        .offset = offsetof(struct par, s##_##k), \
        .flags = f },
#define PAR_STR(s, k, a, d, f, h) \
    { .section = #s, \
        .key = #k, \
        .aliases = a, \
        .unit = "", \
        .help = h, \
        .def = d, \
        .type = PAR_T_STR, \
        .offset = offsetof(struct par, s##_##k), \
        .flags = f },
#include PAR_TABLE
#undef PAR_INT
#undef PAR_DBL
#undef PAR_BOOL
#undef PAR_ENUM
#undef PAR_STR
};
const size_t par_n_defs = sizeof(par_defs) / sizeof(par_defs[0]);

const struct par_note par_notes[] = {
#define PAR_NOTE(s, k, a, kind_, ok_, known_, t) \
    { .section = #s, \
        .key = #k, \
        .aliases = a, \
        .ok = ok_, \
        .known = known_, \
        .text = t, \
        .kind = PAR_N_##kind_ },
#define PAR_VALUE(s, k, w, v)
#include PAR_NOTES
#undef PAR_NOTE
#undef PAR_VALUE
};
const size_t par_n_notes = sizeof(par_notes) / sizeof(par_notes[0]);
_Static_assert(sizeof(par_notes) / sizeof(par_notes[0]) < 255, "par_set.via is a byte");

size_t
par_field_bytes(const struct par_def *d)
{
    return d->type == PAR_T_STR ? PAR_STR_BYTES
        : d->type == PAR_T_ENUM ? sizeof(uint32_t)
        : d->type == PAR_T_DBL  ? sizeof(double)
                                : sizeof(int64_t);
}
