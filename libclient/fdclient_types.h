/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers and records that libfdclient and a program exchange. Include fdclient.h.
 *
 * Numbers keep their meaning for as long as the library is libfdclient.so.1; new ones are
 * added. A program skips events of unknown type, treats an unknown status as a failure
 * (fdc_strerror() has texts for all that the loaded library returns) and an unknown
 * finish as a normal end.
 *
 * Records that an event points to may grow at their end in a later version of the
 * library. Elements of arrays (fdc_logprob, fdc_bias, fdc_span) do not.
 */
#ifndef FDD_LIBCLIENT_FDCLIENT_TYPES_H
#define FDD_LIBCLIENT_FDCLIENT_TYPES_H

#include <stdint.h>

/* Errors are negative; fdclient(3) says for each what to do. */
enum fdc_status {
    FDC_OK = 0,
    /* these end the session */
    FDC_E_PROTO = -1,   /* the peer broke the protocol */
    FDC_E_VERSION = -2, /* no common protocol version or feature */
    FDC_E_PERM = -3,    /* the daemon's configuration does not allow it */
    FDC_E_SLOW = -4,    /* completions were not read in time */
    /* the request was rejected; sending it again will not help */
    FDC_E_BAD_PARAM = -10,   /* fdc_error says which parameter, value and bound */
    FDC_E_TOO_LONG = -11,    /* prompt and output exceed the model's length */
    FDC_E_BAD_TOKEN = -12,   /* an id is outside the vocabulary */
    FDC_E_NO_MODEL = -13,    /* no such model, or it has no tokenizer */
    FDC_E_NO_FILE = -14,     /* the model has no such file */
    FDC_E_BAD_TEXT = -15,    /* not UTF-8 */
    FDC_E_UNSUPPORTED = -16, /* not supported by this daemon or this library */
    /* may succeed later: fdc_error.retry_after_ms */
    FDC_E_QUEUE_FULL = -20, /* the daemon's queue is full */
    FDC_E_LIMIT = -21,      /* a limit of this client or user */
    FDC_E_OVERLOAD = -22,
    FDC_E_LOADING = -23,   /* the model is still loading */
    FDC_E_DRAINING = -24,  /* the daemon takes no new requests */
    FDC_E_GPU_RESET = -25, /* the worker was restarted while the request ran */
    /* accepted and ended early */
    FDC_E_DEADLINE = -30,
    FDC_E_CANCELLED = -31,
    /* the daemon or its device failed */
    FDC_E_GPU_LOST = -40,
    FDC_E_INTERNAL = -41, /* the daemon's log has more */
    FDC_E_NUMERIC = -42,  /* the model produced NaN or infinity */
    /* only from the library */
    FDC_E_DISCONNECTED = -50, /* the daemon hung up */
    FDC_E_TIMEOUT = -51,      /* not within the timeout */
    FDC_E_FORKED = -52,       /* the handle belongs to the parent process */
    FDC_E_AGAIN = -53,        /* empty: nothing to read now */
    FDC_E_NOMEM = -54,        /* out of memory */
    FDC_E_INVAL = -55,        /* the call is wrong: an argument that is not allowed */
    FDC_E_CONNECT = -56,      /* fdc_open_error says which socket, and why */
    FDC_E_FULL = -57,         /* full: no room to submit now */
    FDC_E_UNREAD = -58,       /* the program left more than max_unread_bytes unread */
    FDC_E_ARENA = -59         /* the request is larger than max_request_bytes */
};

/* fdc_params.flags */
#define FDC_F_TEXT          (1u << 0)  /* send TEXT (ids are always sent) */
#define FDC_F_PROMPT_IDS    (1u << 1)  /* send the prompt's ids back */
#define FDC_F_IGNORE_EOS    (1u << 2)  /* continue after the end-of-sequence token */
#define FDC_F_PROMPT_TEXT   (1u << 3)  /* echo: send the prompt's text back */
#define FDC_F_TOKEN_TEXT    (1u << 4)  /* a TOKEN_TEXT after each event of logprobs */
#define FDC_F_ALONE         (1u << 5)  /* special tokens come as SPECIAL events */
#define FDC_F_NO_SPECIAL    (1u << 6)  /* do not add bos etc. to a text prompt */
#define FDC_F_KEEP_SPECIAL  (1u << 8)  /* special tokens appear in TEXT */
#define FDC_F_KEEP_STOP     (1u << 9)  /* the stop string stays in the text */
#define FDC_F_PARSE_SPECIAL (1u << 12) /* special names in a text prompt are tokens */

/* fdc_event.type. Each comment names the event's data and, for arrays, its count n. */
enum fdc_event_type {
    FDC_T_ACCEPTED = 1,        /* struct fdc_accepted: the daemon has the request */
    FDC_T_PROMPT_IDS = 2,      /* ids[n], position = index of the first */
    FDC_T_IDS = 3,             /* ids[n], position = output index of the first */
    FDC_T_TEXT = 4,            /* n bytes of UTF-8, position = offset of the first */
    FDC_T_LOGPROBS = 5,        /* logprobs[n] of the output token at position: the sampled
                                  token, then the top alternatives, then logprob_ids */
    FDC_T_PROMPT_LOGPROBS = 6, /* as LOGPROBS, for the prompt token at position (>= 1) */
    FDC_T_CHOICE_END = 7,      /* struct fdc_choice_end, one per sample */
    FDC_T_DONE = 8,            /* struct fdc_done: the last event */
    FDC_T_ERROR = 9,           /* struct fdc_error: the last event */
    FDC_T_PROMPT_TEXT = 13,    /* as TEXT, for the prompt */
    FDC_T_TOKEN_TEXT = 14,     /* texts of the tokens of the logprobs event before it,
                                  same position: fdc_event_text() of 0..n-1 */
    FDC_T_SPECIAL = 15         /* struct fdc_special, position = output index */
};

enum fdc_finish { /* fdc_choice_end.finish */
    FDC_FIN_NONE = 0,
    FDC_FIN_STOP = 1,      /* end of sequence, stop id or stop string */
    FDC_FIN_LENGTH = 2,    /* max_new or the model's length */
    FDC_FIN_ERROR = 3,     /* the ERROR event says why */
    FDC_FIN_REPETITION = 4 /* fdc_params.repetition */
};

/* fdc_error.detail: the parameter that was rejected; fdc_detail_name() */
enum fdc_detail {
    FDC_D_NONE,
    FDC_D_OP,
    FDC_D_FLAGS,
    FDC_D_N,
    FDC_D_MAX_NEW,
    FDC_D_MIN_NEW,
    FDC_D_TEMPERATURE,
    FDC_D_TOP_P,
    FDC_D_TOP_K,
    FDC_D_MIN_P,
    FDC_D_PRESENCE,
    FDC_D_FREQUENCY,
    FDC_D_PENALTY,
    FDC_D_LOGPROBS,
    FDC_D_PROMPT_LOGPROBS,
    FDC_D_STREAM,
    FDC_D_PRIORITY,
    FDC_D_TTL,
    FDC_D_PRIOR,
    FDC_D_USER,
    FDC_D_RESERVED,
    FDC_D_TAG,
    FDC_D_BLOB,
    FDC_D_ITEM,
    FDC_D_PROMPT,
    FDC_D_PROMPT_ID,
    FDC_D_STOP,
    FDC_D_BIAS,
    FDC_D_ALLOWED,
    FDC_D_GRAMMAR,
    FDC_D_BAD_WORDS,
    FDC_D_SET,
    FDC_D_PROMPT_FROM,
    FDC_D_BEST_OF,
    FDC_D_LOGPROB_IDS,
    FDC_D_SPANS,
    FDC_D_REPETITION,
    FDC_D_REASONING,
    FDC_D_ADAPTER,
    FDC_D_IMAGE,
    FDC_D_FILE,
    FDC_D_BIAS_IDS,
    FDC_D_BIAS_TWICE
};

/* ---- what events point to -------------------------------------------------- */

struct fdc_accepted {
    uint32_t prompt_len; /* tokens */
    uint32_t cached_len; /* number of them found in the prefix cache */
    uint64_t seed;       /* the seed in use; drawn by the daemon if none was set */
};

struct fdc_logprob {
    uint32_t id;
    float logprob;
};

struct fdc_special { /* its name follows, which positions in TEXT do not count */
    uint32_t id;
    uint32_t n_text; /* bytes of the name */
};

struct fdc_choice_end {
    uint32_t finish;      /* enum fdc_finish */
    uint32_t n_tokens;    /* output tokens of this sample, prior_ids included */
    int32_t stop_id;      /* the stop or end-of-sequence id, -1 if none */
    int32_t stop_str;     /* index of the stop string, -1 if none */
    uint32_t n_reasoning; /* output tokens between the two ids of fdc_reasoning */
    float mean_logprob;   /* with best_of; else 0 */
};

struct fdc_done { /* times in ns of CLOCK_MONOTONIC */
    uint32_t prompt_tokens, cached_tokens, output_tokens, n_preempted;
    uint64_t t_submit;
    uint64_t t_start; /* when it was first scheduled */
    uint64_t t_first; /* when its first token was sent */
    uint64_t t_end;
};

struct fdc_error { /* fdc_error_text() makes a sentence of it */
    int32_t code;  /* enum fdc_status */
    uint32_t retry_after_ms;
    uint32_t detail; /* enum fdc_detail: which parameter, or 0 */
    uint32_t arg;    /* its value, saturated; the bits of a float */
    uint32_t limit;  /* the bound that arg exceeds, as arg; 0: none */
    uint32_t item;   /* number of the item with it, as in the protocol; or 0 */
};
/* FDC_E_TOO_LONG: arg is the length in tokens, limit the longest possible. With
 * FDC_D_MAX_NEW and an item, arg is the prompt's length plus max_new. */

/* ---- what parameters point to ------------------------------------------------ */

struct fdc_bias { /* added to an id's logit; several biases of one id add up */
    uint32_t id;
    float bias; /* [-100, 100] */
};

/* Bytes [off, off + len) of a text prompt. Spans are in ascending order, not empty and do
 * not overlap; both ends are between characters. */
struct fdc_span {
    uint32_t off, len;
};

/* A sample ends with FDC_FIN_REPETITION as soon as its last ids are count consecutive
 * copies of one sequence of min_len to max_len ids. */
struct fdc_repetition {
    uint32_t min_len, max_len; /* 1 <= min_len <= max_len <= 256 */
    uint32_t count;            /* 2..1024 */
    uint32_t rsv;              /* zero */
};

/* A sample has at most max_tokens tokens between open_id and close_id; after them
 * close_id is forced as the next token. If open_id is the later of the two in the prompt,
 * counting begins with the first output token. */
struct fdc_reasoning {
    uint32_t max_tokens;
    uint32_t open_id, close_id; /* must differ */
    uint32_t rsv;               /* zero */
};

#endif
