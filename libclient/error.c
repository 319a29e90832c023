/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "libclient/fdname.h"
#include "libclient/priv.h"

/* The row for a function's return value: every positive number means success. */
static const struct fdn_status *
result(int status)
{
    return fdn_status(status > 0 ? 0 : status);
}

int
fdc__told(int code, int other)
{
    const struct fdn_status *st = fdn_status(code);

    return code < 0 && (st == NULL || strcmp(st->cls, "LIBRARY") != 0) ? code : other;
}

const char *
fdc_strerror(int status)
{
    const struct fdn_status *s = result(status);

    return s != NULL ? s->text : "unknown status";
}

const char *
fdc_status_name(int status)
{
    return fdn_status_name(status > 0 ? 0 : status);
}

int
fdc_is_retryable(int status)
{
    const struct fdn_status *s = fdn_status(status);

    return s != NULL && s->retry;
}

const char *
fdc_detail_name(uint32_t detail)
{
    return fdn_detail_name(detail);
}

/* Writes the text of an error for which value and bound are not enough. Returns 0 if they
 * are. */
static int
special_text(const struct fdc_error *e, const char *what, char *buf, size_t n)
{
    const int bad = e->code == FDP_E_BAD_PARAM, unbound = bad && e->limit == 0;

    if (e->code == FDP_E_TOO_LONG && e->detail == FDP_D_MAX_NEW && e->item != 0)
        snprintf(buf, n, ": prompt and max_new are together %u tokens, at most %u",
            (unsigned)e->arg, (unsigned)e->limit);
    else if (unbound && e->detail == FDP_D_PROMPT)
        snprintf(buf, n,
            e->arg == 0 ? ": the prompt is empty"
                        : ": text and ids are both set: give one of them");
    else if (e->code == FDP_E_BAD_TEXT && e->detail == FDP_D_SPANS)
        snprintf(buf, n, ": the range of spans at byte %u splits a character",
            (unsigned)e->arg);
    else if (e->code == FDP_E_BAD_TEXT && e->detail != FDP_D_NONE)
        snprintf(buf, n, ": byte %u of %s", (unsigned)e->arg, what);
    else if (bad && e->detail == FDP_D_SET && e->item == FDP_IT_LOGPROB_IDS)
        snprintf(buf, n, ": logprob_ids needs logprobs");
    else if (bad && e->detail == FDP_D_SET && e->arg == FDP_S_PROMPT_LOGPROBS)
        snprintf(buf, n, ": prompt_from needs prompt_logprobs");
    else if (unbound && e->detail == FDP_D_PRIOR)
        snprintf(buf, n, ": %u prior_ids need n = best_of = 1 and room in max_new",
            (unsigned)e->arg);
    else if (unbound && e->detail == FDP_D_USER)
        snprintf(buf, n,
            ": user is %u, but ipc.trusted_users does not name this program's user",
            (unsigned)e->arg);
    else if (unbound && e->detail == FDP_D_SPANS)
        snprintf(buf, n,
            e->arg == 0 ? ": a range of spans is empty" : ": spans without a text");
    else if (unbound && e->detail == FDP_D_MIN_NEW && e->arg != 0)
        snprintf(buf, n, ": %s is %u, must be 0", what, (unsigned)e->arg);
    else if (unbound && e->arg == 0 &&
        (e->detail == FDP_D_MIN_NEW || e->detail == FDP_D_ALLOWED ||
            e->detail == FDP_D_BAD_WORDS))
        snprintf(buf, n, ": %s leaves no token to choose", what);
    else if (unbound && e->detail == FDP_D_REASONING)
        snprintf(buf, n, ": open_id and close_id of reasoning are both %u",
            (unsigned)e->arg);
    else
        return 0;
    return 1;
}

/* Writes "temperature is 150, at most 100"; unknown parts are left out. */
static void
detail_text(const struct fdc_error *e, char *buf, size_t n)
{
    const char *name = fdn_detail_name(e->detail);
    const char *side = "at most";
    char what[48];
    float v, lim;

    snprintf(what, sizeof(what), "%s", name);
    if (e->item != 0 && strcmp(name, fdn_item_name(e->item)) != 0)
        snprintf(what, sizeof(what), "%s of item %u (%s)", name, (unsigned)e->item,
            fdn_item_name(e->item));
    if (e->detail == FDP_D_NONE && e->arg != 0)
        snprintf(buf, n, ": %u", (unsigned)e->arg);
    if (e->detail == FDP_D_NONE || special_text(e, what, buf, n))
        return;
    if (e->code == FDP_E_UNSUPPORTED && e->limit == 0) {
        snprintf(buf, n, ": %s", what);
        return;
    }
    if (!fdn_detail_is_float(e->detail)) {
        if (e->limit == 0)
            snprintf(buf, n, ": %s is %u", what, (unsigned)e->arg);
        else
            snprintf(buf, n, ": %s is %u, %s %u", what, (unsigned)e->arg,
                e->arg < e->limit ? "at least" : side, (unsigned)e->limit);
        return;
    }
    memcpy(&v, &e->arg, sizeof(v));
    memcpy(&lim, &e->limit, sizeof(lim));
    if (isnan(v)) {
        snprintf(buf, n, ": %s is not a number", what);
        return;
    }
    if (e->arg == e->limit || (e->detail == FDP_D_TOP_P && lim <= 0))
        side = "above";
    else if (v < lim)
        side = "at least";
    snprintf(buf, n, ": %s is %g, %s %g", what, (double)v, side, (double)lim);
}

const char *
fdc_error_text(const struct fdc_error *e, char *buf, size_t n_bytes)
{
    char detail[160] = "";

    if (e == NULL || buf == NULL || n_bytes == 0)
        return "";
    detail_text(e, detail, sizeof(detail));
    snprintf(buf, n_bytes, "%s: %s%s", fdc_status_name(e->code), fdc_strerror(e->code),
        detail);
    return buf;
}

const char *
fdc_finish_name(uint32_t finish)
{
    return fdn_finish_name(finish);
}
