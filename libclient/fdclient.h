/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * libfdclient: the library through which programs send requests to fdd.
 *
 *   fdc_open() a session (one per process is plenty), fdc_submit_text() or
 *   fdc_submit_ids() a request, read its events with fdc_next() or its text
 *   with fdc_read_text() until they return 0, fdc_req_free(), fdc_close().
 *
 * Returns: >= 0, or a negative enum fdc_status (fdc_strerror()). The library prints
 * nothing and ends no process; errno has no meaning after a call.
 * Timeouts: milliseconds, 0 = look once, -1 = no limit. With 0, FDC_E_AGAIN is "nothing
 * to read now" and FDC_E_FULL "no room to submit now"; FDC_E_TIMEOUT is "not within the
 * timeout".
 * Threads: every function may be called from any thread; one request is read by one
 * thread at a time; nothing may use a handle once it is being freed.
 * fork(): the child gets FDC_E_FORKED from everything except fdc_close() and
 * fdc_req_free(), which only release memory and descriptors there.
 * Memory: unread events are held in chunks allocated at fdc_open(); more are allocated
 * only while the program leaves one request unread and reads others.
 * Sizes: a struct with a field "size" may grow in a later version. The program sets it to
 * the struct's sizeof; the library reads and writes no byte beyond it.
 */
#ifndef FDD_LIBCLIENT_FDCLIENT_H
#define FDD_LIBCLIENT_FDCLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "fdclient_types.h"
#include "fdclient_params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header: major, minor and patch, a byte each. fdc_version() and
 * fdc_version_string() return the version of the loaded library, which is at least as
 * new. */
#define FDC_VERSION        0x010000u
#define FDC_VERSION_STRING "1.0.0"
uint32_t fdc_version(void);
const char *fdc_version_string(void);

#ifdef __cplusplus
typedef struct fdc_session fdc_t; /* in C++, fdc is the namespace of fdclient.hpp */
#else
typedef struct fdc fdc_t; /* a session */
#endif
typedef struct fdc_req fdc_req_t; /* a request, until fdc_req_free() */

/* ---- session ------------------------------------------------------------- */

/* opts may be NULL. Errors: FDC_E_CONNECT, E_TIMEOUT, E_VERSION, E_PROTO, E_NOMEM,
 * E_INVAL, and those that the daemon answers, such as E_PERM, E_LIMIT, E_DRAINING. */
int fdc_open(const struct fdc_open_opts *opts, fdc_t **ret_session);

/* Ends the session and frees it with all its requests. NULL is fine. */
void fdc_close(fdc_t *s);

/* Path of the daemon's client socket, by the rule that fdctl follows; the first that
 * applies: $FDD_SOCKET; $FDD_RUNTIME_DIR/fdd.sock; $XDG_RUNTIME_DIR/fdd/fdd.sock if it
 * exists; /run/fdd/fdd.sock. With $FDD_INSTANCE the last three are in the subfolder of
 * that name (/run/fdd/NAME/fdd.sock). A setuid program gets /run/fdd/fdd.sock. Valid
 * until the thread calls it again; "" when $FDD_INSTANCE is not a valid instance name. */
const char *fdc_default_socket(void);

/* Gets what the session negotiated and what the daemon reports of its model now. While
 * the model is loading, ret_info->model is zero and the other fields are set. */
int fdc_info(fdc_t *s, struct fdc_info *ret_info, int timeout_ms);

/* Returns 0, or the reason once the session is over. *ret_flags (may be NULL) gets
 * FDC_S_*. */
#define FDC_S_DOWN         1u /* the worker is down: requests are queued or rejected */
#define FDC_S_DRAIN        2u /* the daemon takes no new requests */
#define FDC_S_RECONNECTING 4u /* fdc_open_opts.reconnect_ms: there is no daemon now */
int fdc_state(fdc_t *s, uint32_t *ret_flags);

/* Round trip to the gate (deep = 0) or to the worker, in nanoseconds. */
int fdc_ping(fdc_t *s, int deep, uint64_t *ret_ns, int timeout_ms);

/* ---- requests ------------------------------------------------------------- */

/* params and opts may be NULL. A special token's name in text, "<|im_end|>", is ordinary
 * text unless FDC_F_PARSE_SPECIAL makes it that token: set that flag only for prompts
 * that the program itself has written. The daemon checks ids and values: a request that
 * it rejects still gets a handle, whose only event is FDC_T_ERROR. Errors here:
 * FDC_E_FULL or E_TIMEOUT (queue, arena or max_inflight is used up), E_ARENA (larger than
 * max_request_bytes), E_INVAL, E_UNSUPPORTED, E_NOMEM, or the reason why the session is
 * over; opts->error_text has a sentence. After FDC_E_FULL the descriptor of fdc_fd()
 * becomes readable when there is room again. */
int fdc_submit_text(fdc_t *s, const char *text, size_t n_bytes,
    const struct fdc_params *params, const struct fdc_submit_opts *opts,
    fdc_req_t **ret_req);
int fdc_submit_ids(fdc_t *s, const uint32_t *ids, size_t n_ids,
    const struct fdc_params *params, const struct fdc_submit_opts *opts,
    fdc_req_t **ret_req);

/* Submits subs[0..n-1] in order with one wake-up of the daemon: all of them, or the first
 * ones for which there is room within timeout_ms (opts->submit_timeout_ms does not
 * count). Returns how many it submitted, each of which has its handle in req and status
 * 0; the others have req NULL and status FDC_E_FULL or E_TIMEOUT. All are checked first:
 * if one is malformed, none is submitted and its status is returned. n of 0 is fine. */
int fdc_submit_many(fdc_t *s, struct fdc_submit *subs, size_t n, int timeout_ms);

/* Requests an early end: output that is under way may still arrive, then comes
 * FDC_T_ERROR with FDC_E_CANCELLED (or FDC_T_DONE, if the request ended first). */
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
    uint32_t size;     /* set by the caller: FDC_EVENT_INIT does */
    uint32_t type;     /* enum fdc_event_type */
    uint32_t sample;   /* 0..n-1 */
    uint32_t position; /* index of the first id, byte or token */
    uint32_t n;        /* elements: ids, bytes of text, logprobs, tokens; else 1 */
    uint32_t more;     /* 1: fdc_next() has another one without waiting */
    union {            /* valid until the next call on this request */
        const void *data;
        const uint32_t *ids;                 /* PROMPT_IDS, IDS */
        const char *text;                    /* TEXT, PROMPT_TEXT; no NUL at the end */
        const struct fdc_logprob *logprobs;  /* LOGPROBS, PROMPT_LOGPROBS */
        const struct fdc_special *special;   /* SPECIAL */
        const struct fdc_accepted *accepted; /* ACCEPTED */
        const struct fdc_choice_end *choice_end;
        const struct fdc_done *done;
        const struct fdc_error *error;
    };
};
#define FDC_EVENT_INIT \
    { \
        sizeof(struct fdc_event), 0, 0, 0, 0, 0, \
        { \
            NULL \
        } \
    }

/* Gets the next event of r. Returns 1 with *ret_event set; 0 if the request is over and
 * its last event (DONE or ERROR, exactly one) was read before; or a negative status. When
 * the session dies every open request gets an ERROR event with the reason, so that a
 * negative status other than AGAIN and TIMEOUT means misuse. */
int fdc_next(fdc_req_t *r, struct fdc_event *ret_event, int timeout_ms);

/* Bytes of an event and their number; no NUL follows them: the text of TEXT and
 * PROMPT_TEXT (i = 0), the name in SPECIAL (i = 0), or token i of TOKEN_TEXT, which may
 * be a piece of a character. NULL: the event has none. */
const char *fdc_event_text(const struct fdc_event *ev, uint32_t i, size_t *ret_n);

/* Reads the text of sample 0 and skips other events; with FDC_F_PROMPT_TEXT the prompt's
 * text comes first. Returns the bytes written to buf (1..cap), 0 when the request is
 * done, or a negative status: the request's error or TIMEOUT. */
int64_t fdc_read_text(fdc_req_t *r, char *buf, size_t cap, int timeout_ms);

/* Picks a request that has something to read, each in turn. Returns 1 with *ret_req set;
 * 0 if no request is open or unread, or the last one was freed meanwhile; or a negative
 * status. Requests with an exclusive_reader do not count. */
int fdc_wait_any(fdc_t *s, fdc_req_t **ret_req, int timeout_ms);

/* For event loops: a descriptor that becomes readable (POLLIN) when fdc_dispatch() has
 * work. Never read from it; it lives as long as the session. */
int fdc_fd(fdc_t *s);

/* Takes the records that have arrived. > 0: that many requests can be read
 * (fdc_wait_any() with timeout 0 returns them): read them, then call again. 0: nothing is
 * left, and the descriptor is armed: now poll it. Negative: the session is over and
 * everything is read. It must return 0 before each poll(), since it arms the wake-up. A
 * loop that keeps requests for which there was no room submits them again after each
 * call. */
int fdc_dispatch(fdc_t *s);

/* ---- tokens and text -------------------------------------------------------- */

/* Flag of fdc_tokenize(): names of special tokens in the text stay text, as in the text
 * of a request without FDC_F_PARSE_SPECIAL. */
#define FDC_LITERAL (1u << 31)

/* Blocking. *ret_ids and *ret_text are malloc()ed; release them with fdc_free(). flags:
 * FDC_F_NO_SPECIAL and FDC_LITERAL for fdc_tokenize(), FDC_F_KEEP_SPECIAL for
 * fdc_detokenize(). The text ends with a NUL that *ret_n does not count. */
int fdc_tokenize(fdc_t *s, const char *text, size_t n_bytes, uint32_t flags,
    uint32_t **ret_ids, size_t *ret_n, int timeout_ms);
/* As fdc_tokenize(), for a text in which names of special tokens stay text within the
 * spans, as in a request with fdc_params.spans. */
int fdc_tokenize_spans(fdc_t *s, const char *text, size_t n_bytes, uint32_t flags,
    const struct fdc_span *spans, size_t n_spans, uint32_t **ret_ids, size_t *ret_n,
    int timeout_ms);
int fdc_detokenize(fdc_t *s, const uint32_t *ids, size_t n_ids, uint32_t flags,
    char **ret_text, size_t *ret_n, int timeout_ms);
/* Reads one of the model's files: "chat_template.jinja", "tokenizer_config.json",
 * "generation_config.json", "chat_parser.json" or "vocabulary" (fdclient(3) has its
 * format). Blocks, and reads in pieces. FDC_E_NO_FILE: the model has no file of that
 * name. */
int fdc_file(fdc_t *s, const char *name, char **ret_bytes, size_t *ret_n, int timeout_ms);
void fdc_free(void *ptr);

/* ---- names ------------------------------------------------------------------ */

const char *fdc_strerror(int status);         /* "the daemon's queue is full" */
const char *fdc_status_name(int status);      /* "E_QUEUE_FULL" */
const char *fdc_detail_name(uint32_t detail); /* "temperature" (enum fdc_detail) */
const char *fdc_finish_name(uint32_t finish); /* "stop", "length", "error" */
/* One sentence with the code, its meaning, the parameter, its value and the bound:
 * "E_BAD_PARAM: a request parameter is malformed or out of range: temperature is 150, at
 * most 100". Returns buf. */
const char *fdc_error_text(const struct fdc_error *e, char *buf, size_t n_bytes);
int fdc_is_retryable(int status); /* 1: the same request may succeed later */

#ifdef __cplusplus
}
#endif
#endif
