/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Items of a request.
 * FDP_ITEM(name, type, version, text, ops, size, least, most, times, detail)
 * version  the newest layout of the payload; the daemon understands all from 0 to it
 * text     its name in errors
 * ops      operations that accept it: S submit, T tokenize, D detokenize, F file, or two
 *          of them; NONE: this version of the daemon refuses it with E_UNSUPPORTED
 * size     bytes of an element; least, most: elements of one item
 * times    most items of this type in a request
 * detail   its errors name FDP_D_<detail>
 * Number 10 was an item of version 2.
 */
FDP_ITEM(PROMPT_TEXT, 1, 0, "prompt_text", ST, 1, 0, FDP_MAX_BLOB, 1, PROMPT)     /* UTF-8; excludes PROMPT_IDS */
FDP_ITEM(PROMPT_IDS, 2, 0, "prompt_ids", SD, 4, 0, FDP_MAX_BLOB, 1, PROMPT)       /* u32[] */
FDP_ITEM(PRIOR_IDS, 3, 0, "prior_ids", S, 4, 0, FDP_MAX_BLOB, 1, PRIOR)           /* u32[n_prior]: output so far; the daemon does not send it again */
FDP_ITEM(STOP_STRING, 4, 0, "stop_string", S, 1, 1, FDP_MAX_STOP_LEN, FDP_MAX_STOP, STOP) /* UTF-8 */
FDP_ITEM(STOP_IDS, 5, 0, "stop_ids", S, 4, 0, FDP_MAX_STOP_IDS, 1, STOP)          /* u32[] */
FDP_ITEM(LOGIT_BIAS, 6, 0, "logit_bias", S, 8, 1, FDP_MAX_BIAS, 1, BIAS_IDS)       /* struct fdp_bias[], each id once */
FDP_ITEM(BAD_WORDS, 7, 0, "bad_words", S, 1, 1, FDP_MAX_BAD_LEN, FDP_MAX_BAD, BAD_WORDS) /* UTF-8 that must not be generated, with or without a leading space */
FDP_ITEM(ALLOWED_IDS, 8, 0, "allowed_ids", S, 4, 1, FDP_MAX_ALLOWED, 1, ALLOWED) /* u32[]: no other id is sampled */
FDP_ITEM(GRAMMAR, 9, 0, "grammar", NONE, 1, 2, FDP_MAX_BLOB, 1, GRAMMAR)          /* kind byte, then UTF-8 */
FDP_ITEM(BAD_IDS, 11, 0, "bad_ids", S, 4, 1, FDP_MAX_BAD_IDS, FDP_MAX_BAD, BAD_WORDS) /* u32[]: a sequence that must not be generated */
FDP_ITEM(LOGPROB_IDS, 12, 0, "logprob_ids", S, 4, 1, FDP_MAX_LOGPROB_IDS, 1, LOGPROB_IDS) /* u32[]: their logprobs follow the alternatives in LOGPROBS */
FDP_ITEM(SPANS, 13, 0, "spans", ST, 8, 1, FDP_MAX_SPANS, 1, SPANS)                /* struct fdp_span[]: ranges in which names of special tokens stay text */
FDP_ITEM(REPETITION, 14, 0, "repetition", S, 16, 1, 1, 1, REPETITION)             /* struct fdp_repetition */
FDP_ITEM(REASONING, 15, 0, "reasoning", S, 16, 1, 1, 1, REASONING)             /* struct fdp_reasoning */
FDP_ITEM(ADAPTER, 16, 0, "adapter", NONE, 1, 1, 128, 1, ADAPTER)                  /* name, UTF-8 */
FDP_ITEM(IMAGE, 17, 0, "image", NONE, 1, 1, FDP_MAX_BLOB, 64, IMAGE)              /* bytes of an image file */
FDP_ITEM(FILE, 18, 0, "file", F, 1, 17, 16 + FDP_MAX_FILE_NAME, 1, FILE)          /* struct fdp_file_ask and a name */
