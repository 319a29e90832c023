/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/param_priv.h"

#include <ctype.h>
#include <string.h>

/* Print text in lines of at most 76 columns, each beginning with prefix. */
static void
print_wrapped(FILE *f, const char *prefix, const char *text)
{
    const size_t width = 76 - strlen(prefix);

    while (*text != '\0') {
        size_t n = strlen(text);

        if (n > width)
            for (n = width; n > 1 && text[n] != ' '; n--)
                ;
        fprintf(f, "%s%.*s\n", prefix, (int)n, text);
        text += n;
        while (*text == ' ')
            text++;
    }
}

/* Describe the values of a row: "1 to 1024 requests", "a, b or c", "yes or no",
 * "text". */
static void
describe(const struct par_def *d, char *ret, size_t ret_bytes)
{
    char lo[32], hi[32];

    switch (d->type) {
    case PAR_T_INT:
        par_format(d, d->lo, lo, sizeof(lo));
        par_format(d, d->hi, hi, sizeof(hi));
        snprintf(ret, ret_bytes, "%s to %s%s%s", lo, hi, d->unit[0] != '\0' ? " " : "",
            d->unit);
        break;
    case PAR_T_DBL:
        snprintf(ret, ret_bytes, "%g to %g%s%s", d->dlo, d->dhi,
            d->unit[0] != '\0' ? " " : "", d->unit);
        break;
    case PAR_T_BOOL:
        snprintf(ret, ret_bytes, "yes or no");
        break;
    case PAR_T_STR:
        snprintf(ret, ret_bytes, d->flags & PAR_F_LIST ? "list" : "text");
        break;
    case PAR_T_ENUM:
        (void)par_words(d->words, ", ", ret, ret_bytes);
        break;
    }
}

/* Aliases without their factors, joined by ", ". */
static void
alias_text(const char *aliases, char *ret, size_t ret_bytes)
{
    size_t at = 0;

    for (; *aliases != '\0' && at + 3 < ret_bytes; aliases++) {
        if (*aliases == '*') {
            aliases += strcspn(aliases, ",") - 1;
        } else if (*aliases == ',') {
            ret[at++] = ',';
            ret[at++] = ' ';
        } else {
            ret[at++] = *aliases;
        }
    }
    ret[at] = '\0';
}

void
par_print_ini(FILE *f)
{
    char text[128], def[PAR_STR_BYTES], line[256];
    const char *section = "";
    size_t i;

    fprintf(f,
        "# %s.ini: configuration of %s, %s. See %s.ini(5).\n"
        "#\n"
        "# Each line shows a parameter with its default; remove the ';' to change it.\n"
        "# A line that begins with # or ; is a comment, and so is what follows \" ;\"\n"
        "# after a value. %s reads this file at its start and at SIGHUP; parameters\n"
        "# marked (restart) are only read at the start. Numbers take units: 8GB, 32k,\n"
        "# 30s. Files of %s.ini.d are read after this one; lists add up.\n",
        par_program, par_program, par_about, par_program, par_program, par_program);
    for (i = 0; i < par_n_defs; i++) {
        const struct par_def *d = &par_defs[i];

        if (strcmp(section, d->section) != 0) {
            section = d->section;
            fprintf(f, "\n[%s]\n", section);
        }
        describe(d, text, sizeof(text));
        par_default_text(d, def, sizeof(def));
        fputc('\n', f);
        print_wrapped(f, "# ", d->help);
        snprintf(line, sizeof(line), "%s%s", text,
            d->flags & PAR_F_RELOAD ? "" : " (restart)");
        print_wrapped(f, "# ", line);
        fprintf(f, ";%s =%s%s\n", d->key, def[0] != '\0' ? " " : "", def);
    }
}

/* Print text for mdoc: one sentence a line, lines of at most 78 columns, nothing that
 * roff would read as a request. */
static void
man_text(FILE *f, const char *text)
{
    while (*text != '\0') {
        size_t i, n = 0;

        /* up to the sentence's end, or the last blank that fits */
        for (i = 0; text[i] != '\0' && i < 76; i++)
            if (text[i] == ' ') {
                n = i;
                if (i > 0 && text[i - 1] == '.' && isupper((unsigned char)text[i + 1]))
                    break;
            }
        if (text[i] == '\0' || n == 0)
            n = strlen(text);
        if (*text == '.' || *text == '\'')
            fputs("\\&", f);
        for (i = 0; i < n; i++)
            fprintf(f, "%s%c", text[i] == '\\' || text[i] == '-' ? "\\" : "",
                text[i] == '\\' ? 'e' : text[i]);
        fputc('\n', f);
        text += n;
        while (*text == ' ')
            text++;
    }
}

static void
man_row(FILE *f, const struct par_def *d)
{
    char text[128], def[PAR_STR_BYTES], line[1024];

    fputs(".It Cm ", f);
    man_text(f, d->key);
    man_text(f, d->help);
    describe(d, text, sizeof(text));
    par_default_text(d, def, sizeof(def));
    snprintf(line, sizeof(line), "Value: %s%s%s; %s%s%s.", text,
        def[0] != '\0' ? "; default: " : "", def,
        d->flags & PAR_F_RELOAD ? "may change while " : "read at the start only",
        d->flags & PAR_F_RELOAD ? par_program : "", d->flags & PAR_F_RELOAD ? " runs" : "");
    man_text(f, line);
    if (d->aliases[0] != '\0') {
        alias_text(d->aliases, text, sizeof(text));
        snprintf(line, sizeof(line), "Also: %s%s.", text,
            strchr(d->aliases, '*') != NULL ? " (in seconds)" : "");
        man_text(f, line);
    }
}

static void
man_notes(FILE *f)
{
    char line[512];
    size_t i;

    fputs(".Ss Names of other servers\n"
          "These are known by name, so that a command line that was written for\n"
          "another server fails, or works, with a reason.\n"
          "They may stand in any section.\n"
          ".Bl -tag -width Ds\n",
        f);
    for (i = 0; i < par_n_notes; i++) {
        fputs(".It Cm ", f);
        man_text(f, par_notes[i].key);
        snprintf(line, sizeof(line), "%s%s%s%s%s.", par_note_rule(&par_notes[i]),
            par_notes[i].kind == PAR_N_OFF && par_notes[i].ok[0] != '\0' ? " or " : "",
            par_notes[i].kind == PAR_N_OFF ? par_notes[i].ok : "",
            par_notes[i].text[0] != '\0' ? ": " : "", par_notes[i].text);
        man_text(f, line);
    }
    fputs(".El\n", f);
}

void
par_print_man(FILE *f)
{
    const char *section = "";
    size_t i;

    for (i = 0; i < par_n_defs; i++) {
        if (strcmp(section, par_defs[i].section) != 0) {
            if (section[0] != '\0')
                fputs(".El\n", f);
            section = par_defs[i].section;
            fprintf(f, ".Ss Section %s\n.Bl -tag -width Ds\n", section);
        }
        man_row(f, &par_defs[i]);
    }
    fputs(".El\n", f);
    man_notes(f);
}
