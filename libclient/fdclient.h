/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * libfdclient: programs ask fdd for tokens through this library.
 *
 *   fdc_open() a session (one per process is plenty), fdc_submit_text() or
 *   fdc_submit_ids() a request, read its events with fdc_next() or its text
 *   with fdc_read_text() until they return 0, fdc_req_free(), fdc_close().
 *
 * Returns: >= 0, or a negative enum fdp_status (fdc_strerror()). The library
 * prints nothing, ends no process, and leaves no meaning in errno.
 * Timeouts: milliseconds, 0 = look once, -1 = no limit. FDP_E_AGAIN is "not
 * now" (timeout 0, or a full queue), FDP_E_TIMEOUT "not within the timeout".
 * Threads: every function may be called from any thread; one request is read
 * by one thread at a time; nothing may use a handle once it is being freed.
 * fork(): the child gets FDP_E_FORKED from everything except fdc_close() and
 * fdc_req_free(), which only release memory and descriptors there.
 * Memory: what streams through is held in chunks taken at fdc_open(); more is
 * taken only while the program leaves one request unread and reads others.
 */
#ifndef FDD_LIBCLIENT_FDCLIENT_H
#define FDD_LIBCLIENT_FDCLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "fdproto.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fdc fdc_t;         /* a session */
typedef struct fdc_req fdc_req_t; /* a request, until fdc_req_free() */

/* ---- session ------------------------------------------------------------- */

#define FDC_SPIN_NONE UINT32_MAX

struct fdc_open_error { /* what fdc_open() knows beyond its status */
    int32_t os_error;   /* errno value behind FDP_E_CONNECT, or 0 */
    uint32_t retry_after_ms;
    uint16_t major, minor; /* of the daemon, 0 if it did not answer */
};

/* Zero it, set size; 0 and NULL stand for the defaults. */
struct fdc_open_opts {
    uint32_t size;    /* sizeof(struct fdc_open_opts) */
    uint32_t spin_us; /* spin so long before sleeping; 0: 20 with more than
                             four processors, else none */
    const char *path; /* socket; NULL: fdc_default_socket() */
    const char *name; /* program name shown by fdctl clients */
    uint32_t sq_slots, cq_slots, arena_bytes; /* hints to the daemon */
    uint32_t connect_timeout_ms;              /* connect and handshake; 0: 5000 */
    uint32_t max_unread_bytes;                /* unread events of one request beyond which
                                    it ends with FDP_E_NOMEM; 0: 16 MiB */
    uint32_t rsv;
    struct fdc_open_error *ret_error; /* filled on failure if not NULL */
};

/* opts may be NULL. Errors: FDP_E_CONNECT, E_TIMEOUT, E_VERSION, E_PERM,
 * E_LIMIT, E_DRAINING (what the daemon answers), E_PROTO, E_NOMEM, E_INVAL. */
int fdc_open(const struct fdc_open_opts *opts, fdc_t **ret_session);

/* Ends the session and frees it with all its requests. NULL is fine. */
void fdc_close(fdc_t *s);

/* Where the daemon is, by the rule that fdctl follows: $FDD_SOCKET;
 * $FDD_RUNTIME_DIR/fdd.sock; $XDG_RUNTIME_DIR/fdd/fdd.sock if it is there;
 * /run/fdd/fdd.sock; with $FDD_INSTANCE the same in the folder of that name below
 * (/run/fdd/NAME/fdd.sock). A setuid program gets the last. Valid until the thread
 * calls it again; "" when $FDD_INSTANCE is no instance's name. */
const char *fdc_default_socket(void);

struct fdc_info {
    uint32_t size;         /* set by the caller: sizeof(struct fdc_info) */
    uint32_t max_inflight; /* requests of this session at a time */
    uint64_t boot_id[2], session_id, features;
    uint32_t max_request_bytes; /* of one request's items: the arena */
    uint16_t major, minor;
    struct fdp_info model; /* zero while the model is loading */
};
/* What the session negotiated and what the daemon says of its model now. */
int fdc_info(fdc_t *s, struct fdc_info *ret_info, int timeout_ms);

/* 0 or, once the session is over, why. *ret_flags (may be NULL) gets FDC_S_*. */
#define FDC_S_DOWN  1u /* the worker is down, requests wait or are refused */
#define FDC_S_DRAIN 2u /* the daemon takes no new requests */
int fdc_state(fdc_t *s, uint32_t *ret_flags);

/* Round trip to the gate (deep = 0) or to the worker, in nanoseconds. */
int fdc_ping(fdc_t *s, int deep, uint64_t *ret_ns, int timeout_ms);

/* ---- requests ------------------------------------------------------------- */

struct fdc_bias {
    uint32_t id;
    float bias;
};

/* What fdc_params_init() puts where a value stands for "not set". A field that holds it
 * is not in the request: the daemon's default counts, which for temperature,
 * top_p, top_k, min_p and repetition_penalty is the model's. Any other value is set. */
#define FDC_UNSET   UINT32_MAX
#define FDC_UNSET64 UINT64_MAX
#define FDC_UNSET_F (-3.40282347e38f) /* -FLT_MAX; NaN is a value, and refused */

/* fdc_params_init() first: the defaults are not all zero. Pointers need to
 * live until the submit call returns. Ranges: struct fdp_req, fdproto.h. */
struct fdc_params {
    uint32_t size;                   /* of this struct, set by fdc_params_init() */
    uint32_t flags;                  /* FDP_F_*; default FDP_F_TEXT */
    uint32_t max_new;                /* FDC_UNSET; 0: the prompt is only scored */
    uint32_t min_new;                /* 0 */
    float temperature, top_p, min_p; /* FDC_UNSET_F */
    uint32_t top_k;                  /* FDC_UNSET */
    float presence_penalty, frequency_penalty, repetition_penalty; /* FDC_UNSET_F */
    uint16_t n;                       /* parallel samples: 1 */
    uint16_t stream_interval;         /* tokens per record at least: 0 */
    int8_t logprobs, prompt_logprobs; /* alternatives; -1: no logprobs at all */
    uint16_t exclusive_reader; /* 1: one thread alone reads this request; fdc_wait_any()
                                 and fdc_dispatch() skip it */
    int32_t priority;          /* 0 */
    uint64_t seed;             /* FDC_UNSET64: the daemon draws one */
    uint64_t user;             /* 0: own uid */
    uint8_t salt[16];          /* prefix-cache salt: none */
    uint32_t ttl_queue_ms, ttl_total_ms; /* 0: none */
    int32_t submit_timeout_ms;           /* wait for room so long; 0: FDP_E_AGAIN */
    uint32_t n_stop;
    const char *const *stop;  /* stop strings */
    const uint32_t *stop_len; /* their bytes; NULL: they end with NUL */
    const uint32_t *stop_ids;
    const uint32_t *prior_ids; /* output of an earlier try: goes on after it */
    const uint32_t *allowed_ids;
    uint32_t n_stop_ids, n_prior, n_allowed;
    uint32_t n_bias;
    const struct fdc_bias *bias;  /* biases of an id add up */
    const char *const *bad_words; /* ending with NUL */
    const char *grammar;          /* kind byte, then UTF-8 */
    uint32_t n_bad_words, grammar_len;
    void *user_ptr;       /* fdc_req_user() of the handle from its start */
    uint32_t best_of;     /* 0: n */
    uint32_t prompt_from; /* with prompt_logprobs: from this position on */
    uint32_t n_bad_ids, n_logprob_ids, n_spans, rsv;
    const uint32_t *const *bad_ids; /* sequences that may not come, */
    const uint32_t *bad_ids_len;    /* and their ids */
    const uint32_t *logprob_ids;    /* with logprobs: of these ids too */
    const struct fdp_span *spans;   /* of a text prompt: special names there are text */
    const struct fdp_repetition *repetition; /* NULL: none */
    const struct fdp_reasoning *reasoning;   /* NULL: none */
    const char *adapter;                     /* NULL: none */
};
void fdc_params_init_sized(struct fdc_params *p, size_t size);
#define fdc_params_init(p) fdc_params_init_sized((p), sizeof(struct fdc_params))

/* params may be NULL. A special token's name in text, "<|im_end|>", is text, wherever
 * the text came from, unless FDP_F_PARSE_SPECIAL makes it that token: set it for
 * prompts that the program itself has written. Ids are checked by the daemon: a request that it refuses
 * still gets a handle, whose only event is FDP_T_ERROR. Errors here:
 * FDP_E_AGAIN or E_TIMEOUT (queue, arena or max_inflight is used up),
 * E_TOO_LONG (larger than the session's arena), E_INVAL, E_NOMEM, or why the
 * session is over. */
int fdc_submit_text(fdc_t *s, const char *text, size_t n_bytes,
    const struct fdc_params *params, fdc_req_t **ret_req);
int fdc_submit_ids(fdc_t *s, const uint32_t *ids, size_t n_ids,
    const struct fdc_params *params, fdc_req_t **ret_req);

/* Asks for an early end: what is under way may still arrive, then comes
 * FDP_T_ERROR with FDP_E_CANCELLED (or DONE, if that was first). */
int fdc_cancel(fdc_req_t *r);

/* Cancels the request if it is open and frees the handle. NULL is fine. */
void fdc_req_free(fdc_req_t *r);

void fdc_req_set_user(fdc_req_t *r, void *ptr);
void *fdc_req_user(const fdc_req_t *r);
uint64_t fdc_req_tag(const fdc_req_t *r);
/* Output tokens received so far for a sample, prior_ids included. */
uint32_t fdc_req_tokens(const fdc_req_t *r, uint32_t sample);

/* ---- reading --------------------------------------------------------------- */

struct fdc_event {
    uint32_t type; /* FDP_T_ACCEPTED .. FDP_T_ERROR */
    uint32_t sample;
    uint32_t position; /* index of the first id, byte or token */
    uint32_t n;        /* elements: ids, bytes of text, logprobs; bytes of
                             TOKEN_TEXT; else 1 */
    union {            /* valid until the next call on this request */
        const void *data;
        const uint32_t *ids;               /* PROMPT_IDS, IDS */
        const char *text;                  /* TEXT, PROMPT_TEXT; no NUL at the end */
        const struct fdp_special *special; /* SPECIAL */
        const struct fdp_token_text *token_text; /* TOKEN_TEXT */
        const struct fdp_logprob *logprobs;      /* LOGPROBS, PROMPT_LOGPROBS */
        const struct fdp_accepted *accepted;
        const struct fdp_choice_end *choice_end;
        const struct fdp_done *done;
        const struct fdp_error *error;
    };
};

/* The next event of r. 1: *ret_event is set; 0: the request is over and its
 * last event (DONE or ERROR, exactly one) was read before; or negative.
 * When the session dies every open request gets an ERROR event with the
 * reason, so that negative results other than AGAIN and TIMEOUT are misuse. */
int fdc_next(fdc_req_t *r, struct fdc_event *ret_event, int timeout_ms);

/* Text of sample 0, behind that of the prompt with FDP_F_PROMPT_TEXT, other events skipped: bytes written to buf (1..cap), 0
 * when the request is done, or negative: the request's error or TIMEOUT. */
int64_t fdc_read_text(fdc_req_t *r, char *buf, size_t cap, int timeout_ms);

/* A request that has something to read, in turn. 1: *ret_req is set; 0: no
 * request is open or unread; or negative. Requests with an exclusive_reader do not count. */
int fdc_wait_any(fdc_t *s, fdc_req_t **ret_req, int timeout_ms);

/* For event loops: a descriptor that polls readable (POLLIN) when
 * fdc_dispatch() has work. Never read it; it lives as long as the session. */
int fdc_fd(fdc_t *s);

/* Takes what has arrived. > 0: that many requests can be read (fdc_wait_any()
 * with timeout 0 names them): read, then call again. 0: nothing, and the
 * descriptor is armed: now poll it. Negative: the session is over and all is
 * read. Arms the wake-up, so that it must return 0 before each poll(). */
int fdc_dispatch(fdc_t *s);

/* ---- tokens and text -------------------------------------------------------- */

/* Flag of fdc_tokenize(): names of special tokens in the text are text, as they are
 * in the text of a request without FDP_F_PARSE_SPECIAL. */
#define FDC_LITERAL (1u << 31)

/* Blocking. *ret_ids / *ret_text are malloc()ed: fdc_free(). flags:
 * FDP_F_NO_SPECIAL, FDC_LITERAL | FDP_F_KEEP_SPECIAL. The text ends with a NUL
 * that *ret_n does not count. */
int fdc_tokenize(fdc_t *s, const char *text, size_t n_bytes, uint32_t flags,
    uint32_t **ret_ids, size_t *ret_n, int timeout_ms);
int fdc_detokenize(fdc_t *s, const uint32_t *ids, size_t n_ids, uint32_t flags,
    char **ret_text, size_t *ret_n, int timeout_ms);
/* One of the model's files: tbl/files.h of the daemon names them. Blocking, in pieces;
 * FDP_E_NO_FILE: the model has none of that name. */
int fdc_file(fdc_t *s, const char *name, char **ret_bytes, size_t *ret_n, int timeout_ms);
void fdc_free(void *ptr);

/* ---- names ------------------------------------------------------------------ */

const char *fdc_strerror(int status);         /* "the daemon's queue is full" */
const char *fdc_status_name(int status);      /* "E_QUEUE_FULL" */
const char *fdc_detail_name(uint32_t detail); /* "temperature" (enum fdp_detail) */
const char *fdc_finish_name(uint32_t finish); /* "stop", "length", "error" */
/* Code, meaning, parameter, its value and the bound as a sentence:
 * "E_BAD_PARAM: a request parameter is malformed or out of range: temperature is 150, at
 * most 100". Returns buf. */
const char *fdc_error_text(const struct fdp_error *e, char *buf, size_t n_bytes);
int fdc_is_retryable(int status); /* 1: the same request may succeed later */

#ifdef __cplusplus
}
#endif
#endif
