/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "libclient/priv.h"

/* Do the sizes in the payload add up to at most its length? */
static int
sizes_ok(const struct fdp_rec *h, const unsigned char *payload)
{
    struct fdp_special sp;
    uint64_t sum;
    uint16_t n;

    if (h->type == FDP_T_SPECIAL) {
        if (h->len < sizeof(sp))
            return 0;
        memcpy(&sp, payload, sizeof(sp));
        return sp.n_text <= h->len - sizeof(sp);
    }
    if (h->len < sizeof(n))
        return 0;
    memcpy(&n, payload, sizeof(n));
    sum = sizeof(n) + (uint64_t)n * sizeof(n);
    for (uint32_t i = 0; sum <= h->len && i < n; i++) {
        uint16_t len;

        memcpy(&len, payload + sizeof(n) * (1 + i), sizeof(len));
        sum += len;
    }
    return sum <= h->len;
}

int
fdc__payload_ok(const struct fdp_rec *h, const unsigned char *payload)
{
    switch (h->type) {
    case FDP_T_ACCEPTED:
        return h->len >= sizeof(struct fdp_accepted);
    case FDP_T_PROMPT_IDS:
    case FDP_T_IDS:
        return h->len % 4 == 0;
    case FDP_T_LOGPROBS:
    case FDP_T_PROMPT_LOGPROBS:
        return h->len != 0 && h->len % 8 == 0; /* the sampled token is always there */
    case FDP_T_SPECIAL:
    case FDP_T_TOKEN_TEXT:
        return sizes_ok(h, payload);
    case FDP_T_CHOICE_END:
        return h->len >= sizeof(struct fdp_choice_end);
    case FDP_T_DONE:
        return h->len >= sizeof(struct fdp_done);
    case FDP_T_ERROR:
        return h->len >= sizeof(struct fdp_error);
    }
    return 1;
}

/* Token i of TOKEN_TEXT, whose sizes fdc__payload_ok() has checked. */
static const char *
token_text(const struct fdc_event *ev, uint32_t i, size_t *ret_n)
{
    const uint16_t *len = (const uint16_t *)ev->data + 1;
    const char *text = (const char *)(len + ev->n);

    if (i >= ev->n)
        return NULL;
    for (uint32_t k = 0; k < i; k++)
        text += len[k];
    *ret_n = len[i];
    return text;
}

const char *
fdc_event_text(const struct fdc_event *ev, uint32_t i, size_t *ret_n)
{
    if (ev == NULL || ret_n == NULL)
        return NULL;
    switch (ev->type) {
    case FDP_T_TOKEN_TEXT:
        return token_text(ev, i, ret_n);
    case FDP_T_TEXT:
    case FDP_T_PROMPT_TEXT:
        *ret_n = ev->n;
        return i == 0 ? ev->text : NULL;
    case FDP_T_SPECIAL:
        *ret_n = ev->special->n_text;
        return i == 0 ? (const char *)(ev->special + 1) : NULL;
    }
    return NULL;
}
