/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "answers.h"

int
answers_begin(struct answers *a, int n, char **prompts)
{
    struct fdc_open_error why = { .size = sizeof(why) };
    struct fdc_open_opts opts = { .size = sizeof(opts), .ret_error = &why };
    struct fdc_submit_opts how = { .size = sizeof(how), .submit_timeout_ms = -1 };
    struct fdc_params what;
    char text[256];
    int rc = fdc_open(&opts, &a->session);

    if (rc < 0) {
        fprintf(stderr, "%s\n", why.text);
        return -1;
    }
    fdc_params_init(&what);
    what.max_new = 40;
    what.temperature = 0;
    how.error_text = text;
    how.error_text_bytes = sizeof(text);
    for (int i = 0; i < n; i++) {
        fdc_req_t *r;
        /* fdc_req_user() returns it: it tells which prompt an event belongs to. */
        how.user_ptr = prompts[i];
        rc = fdc_submit_text(a->session, prompts[i], strlen(prompts[i]), &what, &how, &r);
        if (rc < 0) {
            fprintf(stderr, "%s: %s\n", prompts[i], text);
            fdc_close(a->session);
            return -1;
        }
        a->n_open++;
    }
    return 0;
}

/* Reads the available events of one request, and frees it after the last one. */
static void
read_request(struct answers *a, fdc_req_t *r)
{
    const char *prompt = fdc_req_user(r);
    struct fdc_event ev = FDC_EVENT_INIT;
    char text[256];

    while (fdc_next(r, &ev, 0) > 0) {
        if (ev.type == FDC_T_TEXT)
            printf("%s:%.*s\n", prompt, (int)ev.n, ev.text);
        if (ev.type == FDC_T_ERROR) {
            fprintf(stderr, "%s: %s\n", prompt,
                fdc_error_text(ev.error, text, sizeof(text)));
            a->failed = 1;
        }
        if (ev.type == FDC_T_DONE || ev.type == FDC_T_ERROR) {
            a->n_open--;
            fdc_req_free(r);
            return;
        }
    }
}

int
answers_take(struct answers *a)
{
    fdc_req_t *r;

    /* The descriptor signals later events only after fdc_dispatch() has returned 0. */
    while (fdc_dispatch(a->session) > 0)
        while (fdc_wait_any(a->session, &r, 0) > 0)
            read_request(a, r);
    fflush(stdout);
    return a->n_open > 0;
}

int
answers_end(struct answers *a)
{
    fdc_close(a->session);
    return a->failed;
}
