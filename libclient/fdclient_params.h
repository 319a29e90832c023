/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program passes to libfdclient: how to open a session, what to generate, how to
 * handle a request. Include fdclient.h.
 *
 * Two structs describe a request. struct fdc_params has every field that can change a
 * token or what is reported of a token; with the prompt and the seed it determines the
 * output, and may be kept, compared and used again. struct fdc_submit_opts has the other
 * fields: for whom the request runs, how urgently and how long, and how its events are
 * delivered.
 */
#ifndef FDD_LIBCLIENT_FDCLIENT_PARAMS_H
#define FDD_LIBCLIENT_FDCLIENT_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include "fdclient_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fdc_req;

/* ---- session ------------------------------------------------------------- */

#define FDC_SPIN_NONE UINT32_MAX

/* Details of a failed fdc_open(). Set size. */
struct fdc_open_error {
    uint32_t size;    /* set by the caller: sizeof(struct fdc_open_error) */
    int32_t os_error; /* errno value that caused FDC_E_CONNECT, or 0 */
    uint32_t retry_after_ms;
    uint16_t major, minor; /* protocol version of the daemon, 0 if it did not answer */
    char text[240]; /* "cannot connect to /run/fdd/fdd.sock: No such file or directory" */
};

/* Zero it, set size; 0 and NULL stand for the defaults. */
struct fdc_open_opts {
    uint32_t size;    /* sizeof(struct fdc_open_opts) */
    uint32_t spin_us; /* time to spin before sleeping; 0: 20 with more than four
                         processors, else none */
    const char *path; /* socket; NULL: fdc_default_socket() */
    const char *name; /* program name shown by fdctl clients */
    uint32_t sq_slots, cq_slots, arena_bytes; /* hints to the daemon: sizes wanted */
    uint32_t connect_timeout_ms;              /* connect and handshake; 0: 5000 */
    uint32_t max_unread_bytes; /* limit of unread events of one request, above which it
                                  ends with FDC_E_UNREAD; 0: 16 MiB */
    uint32_t reconnect_ms;     /* 0: the session ends with the daemon. Else how long to
                                  try to open it again after a restart; UINT32_MAX: for
                                  ever */
    struct fdc_open_error *ret_error; /* filled on failure if not NULL */
};

struct fdc_model_info { /* zero while the model is loading */
    uint32_t size;      /* set by the caller: sizeof(struct fdc_model_info) */
    uint32_t vocab, max_model_len;
    int32_t bos_id; /* -1: none */
    uint32_t has_tokenizer;
    uint32_t n_eos, eos_ids[8];
    uint32_t block_size;
    uint8_t digest[32];
    char name[64];
    /* values used for parameters that are not set */
    uint32_t set; /* FDC_SET_*: those that the model's generation_config.json names */
    float temperature, top_p;
    uint32_t top_k;
    float min_p, repetition_penalty;
    /* limits of a request */
    uint32_t max_logprobs, max_n, max_stop, max_stop_len, max_stop_ids, max_bias, max_bad;
    uint32_t max_logprob_ids;
    uint64_t offers; /* FDC_HAS_* */
};
#define FDC_SET_TEMPERATURE (1u << 1)
#define FDC_SET_TOP_P       (1u << 2)
#define FDC_SET_TOP_K       (1u << 3)
#define FDC_SET_MIN_P       (1u << 4)
#define FDC_SET_REPETITION  (1u << 7)
/* Parameters that this daemon supports; a request with any other is rejected. */
#define FDC_HAS_BIAS        (1ull << 6)
#define FDC_HAS_BAD_WORDS   (1ull << 7)
#define FDC_HAS_ALLOWED     (1ull << 8)
#define FDC_HAS_GRAMMAR     (1ull << 9)
#define FDC_HAS_BAD_IDS     (1ull << 11)
#define FDC_HAS_LOGPROB_IDS (1ull << 12)
#define FDC_HAS_SPANS       (1ull << 13)
#define FDC_HAS_REPETITION  (1ull << 14)
#define FDC_HAS_REASONING   (1ull << 15)
#define FDC_HAS_ADAPTER     (1ull << 16)
#define FDC_HAS_FILE        (1ull << 18) /* fdc_file() */

#define FDC_FEAT_TOKENIZE   (1ull << 0) /* fdc_tokenize(), fdc_detokenize() */

struct fdc_info {
    uint32_t size;         /* set by the caller: sizeof(struct fdc_info) */
    uint32_t max_inflight; /* requests of this session at a time */
    uint64_t boot_id[2], session_id;
    uint64_t features;          /* FDC_FEAT_* */
    uint32_t max_request_bytes; /* limit of one request's prompt and lists: the arena */
    uint16_t major, minor;      /* protocol */
    uint32_t n_reconnect;       /* times that the session was opened again */
    uint32_t rsv;
    struct fdc_model_info *model; /* set by the caller: NULL, or the struct to fill */
};

/* ---- what to generate ------------------------------------------------------ */

/* The values that mean "not set"; fdc_params_init() fills them in. A field that holds one
 * is not sent: the daemon uses its default, which for temperature, top_p, top_k, min_p
 * and repetition_penalty is the model's. Any other value is sent. */
#define FDC_UNSET   UINT32_MAX
#define FDC_UNSET64 UINT64_MAX
#define FDC_UNSET_F (-3.40282347e38f) /* -FLT_MAX; NaN counts as set, and is rejected */

/* Call fdc_params_init() first: the defaults, given here at the end of each field's
 * comment, are not all zero. Pointers need to stay valid until the submit call
 * returns. */
struct fdc_params {
    uint32_t size;     /* size of this struct, set by fdc_params_init() */
    uint32_t flags;    /* FDC_F_*: FDC_F_TEXT */
    uint32_t max_new;  /* most output tokens: FDC_UNSET; 0: the prompt is only scored */
    uint32_t min_new;  /* no end of sequence before this number of output tokens: 0 */
    float temperature; /* [0, 100], 0 = greedy: FDC_UNSET_F */
    float top_p;       /* (0, 1], 1 = off: FDC_UNSET_F */
    float min_p;       /* [0, 1], 0 = off: FDC_UNSET_F */
    uint32_t top_k;    /* 0 = off: FDC_UNSET */
    float presence_penalty;   /* [-2, 2], 0 = off: FDC_UNSET_F */
    float frequency_penalty;  /* [-2, 2], 0 = off: FDC_UNSET_F */
    float repetition_penalty; /* [0.001, 2], 1 = off: FDC_UNSET_F */
    uint32_t n;               /* samples to return: 1 */
    uint32_t best_of;         /* samples drawn, of which the n with the highest mean
                                 logprob are returned: 0, which means n */
    int32_t logprobs;         /* alternatives reported for each token; 0: only the token's
                                 own logprob: -1, no logprobs */
    int32_t prompt_logprobs;  /* the same for the tokens of the prompt: -1 */
    uint32_t prompt_from;     /* prompt_logprobs from this position on: 0 */
    uint64_t seed;            /* FDC_UNSET64: the daemon draws one */
    /* lists: none */
    const char *const *stop;  /* stop strings */
    const uint32_t *stop_len; /* their lengths in bytes; NULL: each ends with NUL */
    const uint32_t *stop_ids;
    const uint32_t *prior_ids;      /* earlier output, which is continued */
    const uint32_t *allowed_ids;    /* no other id is sampled */
    const struct fdc_bias *bias;    /* several biases of an id add up */
    const char *const *bad_words;   /* forbidden texts; each ends with NUL */
    const uint32_t *const *bad_ids; /* sequences of ids that must not be generated, */
    const uint32_t *bad_ids_len;    /* and the number of ids in each */
    const uint32_t *logprob_ids;    /* with logprobs: ids that are reported too */
    const struct fdc_span *spans;   /* of a text prompt: special names there are text */
    const char *grammar;            /* kind byte, then UTF-8 */
    uint32_t n_stop, n_stop_ids, n_prior, n_allowed, n_bias, n_bad_words, n_bad_ids;
    uint32_t n_logprob_ids, n_spans, grammar_len;
    const struct fdc_repetition *repetition; /* NULL: none */
    const struct fdc_reasoning *reasoning;   /* NULL: none */
    const char *adapter;                     /* name, ends with NUL; NULL: none */
};
void fdc_params_init_sized(struct fdc_params *p, size_t size);
#define fdc_params_init(p) fdc_params_init_sized((p), sizeof(struct fdc_params))

/* ---- how to handle it -------------------------------------------------------- */

/* Zero it, set size; 0 and NULL stand for the defaults. */
struct fdc_submit_opts {
    uint32_t size; /* sizeof(struct fdc_submit_opts) */
    /* for whom the request runs, how urgently and how long */
    int32_t priority;      /* smaller first; 0 */
    uint64_t user;         /* 0: own uid; another user's only for trusted programs */
    uint8_t salt[16];      /* only requests with an equal salt share cached prefixes */
    uint32_t ttl_queue_ms; /* give up if not started within this time; 0: no limit */
    uint32_t ttl_total_ms; /* end within this time; 0: no limit */
    /* handling in this process */
    int32_t submit_timeout_ms; /* time to wait for room; 0: FDC_E_FULL at once */
    uint32_t stream_interval;  /* tokens per event at least; 0, 1: each step */
    uint32_t exclusive_reader; /* 1: only one thread reads this request; fdc_wait_any()
                                  and fdc_dispatch() skip it */
    uint32_t no_resume; /* 1: fdc_open_opts.reconnect_ms does not continue it after a
                           restart; it ends with the error */
    void *user_ptr;     /* the initial value of fdc_req_user() for the handle */
    char *error_text;   /* gets a sentence if the call fails: which parameter, its
                           value, its bound; may be NULL */
    uint32_t error_text_bytes; /* room in error_text */
    uint32_t rsv;
};

/* One request of fdc_submit_many(). Zero it, set size: the same in all elements of an
 * array. */
struct fdc_submit {
    uint32_t size;       /* sizeof(struct fdc_submit) */
    int32_t status;      /* out: 0, or why it was not submitted */
    const char *text;    /* the prompt: text and its bytes, */
    const uint32_t *ids; /* or ids and their number */
    size_t n_text, n_ids;
    const struct fdc_params *params;    /* NULL: defaults */
    const struct fdc_submit_opts *opts; /* NULL: defaults */
    struct fdc_req *req;                /* out: the handle, or NULL */
};

#ifdef __cplusplus
}
#endif
#endif
