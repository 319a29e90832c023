/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints conf/fdd.ini (argument ini) or daemon/fdd.ini.5 (argument man)
 * from the parameter table, or the table of admin commands in
 * doc/control.md (argument commands). All are committed;
 * tests/unit/u_param.c and u_control.c compare them with the tables.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/cmdtable.h"
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
    ".Pa /etc/fdd/fdd.ini ,\n"
    "which need not exist.\n"
    ".Pp\n"
    "Behind it, the files whose names end in\n"
    ".Ql .ini\n"
    "in the folders\n"
    ".Pa /usr/lib/fdd/fdd.ini.d\n"
    "(packages) and\n"
    ".Pa /etc/fdd/fdd.ini.d\n"
    "(the administrator) are read, in the order of their names, whichever folder\n"
    "they are in.\n"
    "A file in the second folder hides the one of the same name in the first;\n"
    "an empty file, or a link to\n"
    ".Pa /dev/null ,\n"
    "switches it off.\n"
    "With\n"
    ".Ql fdd -c FILE\n"
    "only FILE and the files of the folder FILE.d are read.\n"
    "The instance NAME (fdd@NAME.service) has NAME.ini and NAME.ini.d in these places.\n"
    "The paths are those of an installation with prefix /usr; others have PREFIX/lib\n"
    "and SYSCONFDIR.\n"
    ".Pp\n"
    "A value that is read later holds.\n"
    "Lists add up instead: ipc.trusted_users, sched.user_weights, log.levels and\n"
    "log.debug have the words of all files, each once; of two words for the same\n"
    "user or topic the later holds.\n"
    "A list that a file sets to nothing is empty up to there.\n"
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
    "A number is written in the parameter's own unit, or with one behind it, with or\n"
    "without a blank between them:\n"
    ".Bl -tag -width Ds\n"
    ".It bytes and GiB\n"
    "k, m, g and t, also KB, KiB, MB, MiB, GB, GiB, TB and TiB, in small or large\n"
    "letters; all are powers of 1024, so 8GB and 8GiB are the same; B is a byte.\n"
    ".It tokens\n"
    "k, m and g, powers of 1024: 32k is 32768.\n"
    ".It ms, s and us\n"
    "us, ms, s, min, h and d.\n"
    ".El\n"
    "With a unit, a fraction is allowed if the value is a whole number: 1.5g, 0.5s.\n"
    "Other numbers have no unit; a unit that does not fit is an error.\n"
    "A name whose unit is seconds (see Also) takes seconds without a unit.\n"
    "The same holds for\n"
    ".Ql fdd --set\n"
    "and\n"
    ".Ql fdctl set .\n"
    "Booleans are yes, true, on or 1, and no, false, off or 0.\n"
    ".Pp\n"
    "An unknown key or section, a value out of range, and values that\n"
    "contradict each other are errors that name the file, the line and what is\n"
    "allowed.\n"
    "All of them are reported at once, the first 20 in full.\n"
    "fdd does not start then; at a reload it keeps what it has.\n"
    ".Ql fdd --check-config\n"
    "reports them without starting.\n"
    ".Pp\n"
    "On the command line,\n"
    ".Ql fdd --set section.key=value\n"
    "overrides the files; a list is replaced by it.\n"
    ".Ql fdctl config --origin\n"
    "shows each value with the file and the line that set it, what an automatic value\n"
    "became, and which values wait for a restart, and\n"
    ".Ql fdctl set section.key=value\n"
    "changes what may change while fdd runs, until the next reload.\n"
    ".Sh PARAMETERS\n";

static const char man_tail[] =
    ".Sh FILES\n"
    ".Bl -tag -width Ds\n"
    ".It Pa /etc/fdd/fdd.ini\n"
    "the configuration of the service\n"
    ".It Pa /usr/lib/fdd/fdd.ini.d/*.ini\n"
    "what packages add\n"
    ".It Pa /etc/fdd/fdd.ini.d/*.ini\n"
    "what the administrator adds, changes or hides\n"
    ".El\n"
    ".Sh EXAMPLES\n"
    ".Bd -literal -offset indent\n"
    "[model]\n"
    "path = /srv/models/small-llama\n"
    "max_model_len = 8192\n"
    "\n"
    "[kv]\n"
    "memory_bytes = 8GB  ; half of the machine\n"
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
    } else if (argc == 2 && strcmp(argv[1], "commands") == 0) {
        cmd_print_md(stdout);
    } else {
        fputs("usage: gen_params ini|man|commands\n", stderr);
        return 64;
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 74;
}
