/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The library's version, and checks that its numbers and records equal the protocol's:
 * the library passes them through. */
#include "config.h"

#include <string.h>

#include "libclient/priv.h"

uint32_t
fdc_version(void)
{
    return FDC_VERSION;
}

const char *
fdc_version_string(void)
{
    return FDC_VERSION_STRING;
}

/* A status or detail that the protocol has and the public header lacks does not compile
 * here. */
#define FDP_STATUS(name, value, cls, retry, text) \
    _Static_assert((int)FDC_##name == (value), #name);
#include "tbl/status.h"
#undef FDP_STATUS

#define FDP_DETAIL(name, kind, text) \
    _Static_assert((int)FDC_D_##name == (int)FDP_D_##name, #name);
#include "tbl/details.h"
#undef FDP_DETAIL

#define SAME(name) _Static_assert((int)FDC_##name == (int)FDP_##name, #name)
SAME(T_ACCEPTED);
SAME(T_PROMPT_IDS);
SAME(T_IDS);
SAME(T_TEXT);
SAME(T_LOGPROBS);
SAME(T_PROMPT_LOGPROBS);
SAME(T_CHOICE_END);
SAME(T_DONE);
SAME(T_ERROR);
SAME(T_PROMPT_TEXT);
SAME(T_TOKEN_TEXT);
SAME(T_SPECIAL);
SAME(FIN_NONE);
SAME(FIN_STOP);
SAME(FIN_LENGTH);
SAME(FIN_ERROR);
SAME(FIN_REPETITION);
SAME(F_TEXT);
SAME(F_PROMPT_IDS);
SAME(F_IGNORE_EOS);
SAME(F_PROMPT_TEXT);
SAME(F_TOKEN_TEXT);
SAME(F_ALONE);
SAME(F_NO_SPECIAL);
SAME(F_KEEP_SPECIAL);
SAME(F_KEEP_STOP);
SAME(F_PARSE_SPECIAL);
_Static_assert((FDC_F_TEXT | FDC_F_PROMPT_IDS | FDC_F_IGNORE_EOS | FDC_F_PROMPT_TEXT |
                   FDC_F_TOKEN_TEXT | FDC_F_ALONE | FDC_F_NO_SPECIAL | FDC_F_KEEP_SPECIAL |
                   FDC_F_KEEP_STOP | FDC_F_PARSE_SPECIAL) == (FDP_F__ALL & ~FDP_F_DEEP),
    "a flag of the protocol that the public header lacks");

#define SET(name) _Static_assert(FDC_SET_##name == FDP_S_##name, #name)
SET(TEMPERATURE);
SET(TOP_P);
SET(TOP_K);
SET(MIN_P);
SET(REPETITION);
#define HAS(name, item) _Static_assert(FDC_HAS_##name == 1ull << FDP_IT_##item, #name)
HAS(BIAS, LOGIT_BIAS);
HAS(BAD_WORDS, BAD_WORDS);
HAS(ALLOWED, ALLOWED_IDS);
HAS(GRAMMAR, GRAMMAR);
HAS(BAD_IDS, BAD_IDS);
HAS(LOGPROB_IDS, LOGPROB_IDS);
HAS(SPANS, SPANS);
HAS(REPETITION, REPETITION);
HAS(REASONING, REASONING);
HAS(ADAPTER, ADAPTER);
HAS(FILE, FILE);
_Static_assert(FDC_FEAT_TOKENIZE == FDP_FEAT_TOKENIZE, "features");

/* ---- records ------------------------------------------------------------------ */

#define SIZE(name) \
    _Static_assert(sizeof(struct fdc_##name) == sizeof(struct fdp_##name), #name)
#define AT(name, field) \
    _Static_assert(offsetof(struct fdc_##name, field) == \
                offsetof(struct fdp_##name, field) && \
            sizeof(((struct fdc_##name *)NULL)->field) == \
                sizeof(((struct fdp_##name *)NULL)->field), \
        #name "." #field)
SIZE(accepted);
AT(accepted, prompt_len);
AT(accepted, cached_len);
AT(accepted, seed);
SIZE(logprob);
AT(logprob, id);
AT(logprob, logprob);
SIZE(special);
AT(special, id);
AT(special, n_text);
SIZE(choice_end);
AT(choice_end, finish);
AT(choice_end, n_tokens);
AT(choice_end, stop_id);
AT(choice_end, stop_str);
AT(choice_end, n_reasoning);
AT(choice_end, mean_logprob);
SIZE(done);
AT(done, prompt_tokens);
AT(done, cached_tokens);
AT(done, output_tokens);
AT(done, n_preempted);
AT(done, t_submit);
AT(done, t_start);
AT(done, t_first);
AT(done, t_end);
SIZE(error);
AT(error, code);
AT(error, retry_after_ms);
AT(error, detail);
AT(error, arg);
AT(error, limit);
AT(error, item);
SIZE(span);
AT(span, off);
AT(span, len);
SIZE(repetition);
AT(repetition, min_len);
AT(repetition, max_len);
AT(repetition, count);
SIZE(reasoning);
AT(reasoning, max_tokens);
AT(reasoning, open_id);
AT(reasoning, close_id);
_Static_assert(sizeof(struct fdc_bias) == 8 && offsetof(struct fdc_bias, bias) == 4,
    "item LOGIT_BIAS");
