/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints conf/fdd.ini (argument ini) or daemon/fdd.ini.5 (argument man)
 * from the parameter table. Both are committed; tests/unit/u_param.c
 * compares them with the table.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/param.h"

static const char man_head[] =
    ".Dd January 1, 2026\n"
    ".Dt FDD.INI 5\n"
    ".Os\n"
    ".Sh NAME\n"
    ".Nm fdd.ini\n"
    ".Nd configuration of the inference daemon fdd\n"
    ".Sh DESCRIPTION\n"
    ".Xr fdd 8\n"
    "reads this file at its start, and again when it gets SIGHUP or\n"
    ".Ql fdctl reload .\n"
    "It is named by\n"
    ".Ql fdd -c ;\n"
    "without that option it is\n"
    ".Pa /etc/fdd/fdd.ini .\n"
    ".Pp\n"
    "Lines are\n"
    ".Ql [section] ,\n"
    ".Ql key = value\n"
    "or empty.\n"
    "A line whose first character that is no blank is\n"
    ".Ql #\n"
    "or\n"
    ".Ql \\&;\n"
    "is a comment.\n"
    "Behind a value, a blank and\n"
    ".Ql \\&;\n"
    "begin a comment;\n"
    ".Ql #\n"
    "does not.\n"
    "A line has at most 4096 bytes, is valid UTF-8 and contains no NUL.\n"
    "Keys are written with\n"
    ".Ql -\n"
    "or\n"
    ".Ql _ .\n"
    "A section may appear several times, a key only once.\n"
    "Lines before the first section take\n"
    ".Ql section.key\n"
    "and the names shown under Also.\n"
    ".Pp\n"
    "Sizes take the suffixes k, m and g, powers of 1024.\n"
    "Booleans are yes, true, on or 1, and no, false, off or 0.\n"
    ".Pp\n"
    "An unknown key or section, a value out of range, and values that\n"
    "contradict each other are errors that name the file, the line and what is\n"
    "allowed.\n"
    "fdd does not start then; at a reload it keeps what it has.\n"
    ".Pp\n"
    "On the command line,\n"
    ".Ql fdd --set section.key=value\n"
    "overrides the file.\n"
    ".Ql fdctl config --origin\n"
    "shows each value and where it comes from, and\n"
    ".Ql fdctl set section.key=value\n"
    "changes what may change while fdd runs, until the next reload.\n"
    ".Sh PARAMETERS\n";

static const char man_tail[] =
    ".Sh FILES\n"
    ".Bl -tag -width Ds\n"
    ".It Pa /etc/fdd/fdd.ini\n"
    "the configuration of the service\n"
    ".El\n"
    ".Sh EXAMPLES\n"
    ".Bd -literal -offset indent\n"
    "[model]\n"
    "path = /srv/models/small-llama\n"
    "max_model_len = 8192\n"
    "\n"
    "[kv]\n"
    "memory_bytes = 8g   ; half of the machine\n"
    ".Ed\n"
    ".Sh SEE ALSO\n"
    ".Xr fdctl 1 ,\n"
    ".Xr fdd 8\n";

int
main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "ini") == 0) {
        par_print_ini(stdout);
    } else if (argc == 2 && strcmp(argv[1], "man") == 0) {
        fputs(man_head, stdout);
        par_print_man(stdout);
        fputs(man_tail, stdout);
    } else {
        fputs("usage: gen_params ini|man\n", stderr);
        return 64;
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 74;
}
