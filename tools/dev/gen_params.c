/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints conf/fdd.ini (argument ini) or daemon/fdd.ini.5 (argument man)
 * from the parameter table, the manual page around it from fdd.ini.5.in, or
 * the table of admin commands in doc/control.md (argument commands). All are committed;
 * tests/unit/u_param.c and u_control.c compare them with the tables.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/cmdtable.h"
#include "daemon/common/param.h"

static const char man[] = {
#include "tools/dev/fdd.ini.5.inc"
};

int
main(int argc, char **argv)
{
    static const char here[] = "@PARAMETERS@\n";
    const char *end = memmem(man, sizeof(man), here, strlen(here));

    if (argc == 2 && strcmp(argv[1], "ini") == 0) {
        par_print_ini(stdout);
    } else if (argc == 2 && strcmp(argv[1], "man") == 0) {
        fwrite(man, 1, (size_t)(end - man), stdout);
        par_print_man(stdout);
        end += strlen(here);
        fwrite(end, 1, (size_t)(man + sizeof(man) - end), stdout);
    } else if (argc == 2 && strcmp(argv[1], "commands") == 0) {
        cmd_print_md(stdout);
    } else {
        fputs("usage: gen_params ini|man|commands\n", stderr);
        return 64;
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 74;
}
