/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* render TEMPLATE JSON: prints what libfdchat renders from the template in one file with
 * the variables of the JSON object in the other. On an error it prints the error and
 * exits 1. For reference.py --with. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "chat/fdchat.h"

#define MOST (16u << 20)

/* Returns the file's content, or NULL if it cannot be read. */
static char *
read_all(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    char *p = f != NULL ? malloc(MOST) : NULL;

    if (p != NULL)
        *ret_n = fread(p, 1, MOST, f);
    if (p == NULL || ferror(f) || *ret_n == MOST) {
        (void)fprintf(stderr, "render: cannot read %s\n", path);
        free(p);
        p = NULL;
    }
    if (f != NULL)
        (void)fclose(f);
    return p;
}

int
main(int argc, char **argv)
{
    struct fdchat_args a = { .size = sizeof(a) };
    char err[FDCHAT_ERR_BYTES] = "", *text = NULL, *vars = NULL;
    fdchat_template_t *t = NULL;
    struct fdchat_prompt p;
    size_t n = 0;
    int rc = -1;

    if (argc != 3) {
        (void)fprintf(stderr, "usage: render TEMPLATE JSON\n");
        return 64;
    }
    text = read_all(argv[1], &n);
    vars = text != NULL ? read_all(argv[2], &a.request_bytes) : NULL;
    if (vars != NULL) {
        a.request = vars;
        rc = fdchat_template_new(text, n, &t, err);
    }
    if (rc == 0)
        rc = fdchat_render(t, &a, &p, err);
    if (rc == 0) {
        (void)fwrite(p.text, 1, p.bytes, stdout);
        fdchat_prompt_free(&p);
    } else {
        (void)fprintf(stderr, "render: %s\n", err);
    }
    fdchat_template_free(t);
    free(text);
    free(vars);
    return rc == 0 ? 0 : 1;
}
