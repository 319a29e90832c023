/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The fdd client protocol, version 3, between libfdclient and the gate.
 *
 * A session is one SOCK_SEQPACKET connection and two sealed memfds. Each side writes
 * exactly one of them, so that a side's own stores cannot make inconsistent what it
 * reads:
 *
 *   c2d  client writes, daemon maps read-only.
 *   d2c  daemon writes, client maps read-only: its descriptor is opened
 *        read-only and the file's mode forbids another to other users.
 *
 * d2c's pages are allocated as the daemon writes them. When the session is over the
 * daemon empties both files: at once when the client hung up, else some seconds after
 * GOODBYE. An emptied file reads as zeros, struct fdp_state included.
 *
 *   c2d                                    d2c
 *   0x000 sq_tail                          0x000 cq_tail   (futex word)
 *   0x080 cq_head                          0x080 sq_head
 *   0x100 cq_wait  (FDP_WAIT_*)            0x100 sq_need_wakeup
 *   0x180 sq_wait                          0x180 struct fdp_state
 *   0x200 request slots                    0x200 completion slots
 *   ....  arena
 *
 * Cursors are free-running u32, masked on use; rings have power-of-two sizes; geometry
 * comes only from the welcome message and is never read from shared memory. Every hot
 * word has 128 bytes to itself, because processors prefetch two 64-byte lines at a time.
 *
 * Handshake: the client sends struct fdp_hello; the daemon answers with struct
 * fdp_welcome and, if err is 0, the descriptors {c2d, d2c, doorbell} by SCM_RIGHTS. The
 * daemon never accepts descriptors. After that the socket carries only one-byte wake-ups
 * from the daemon for clients that wait with FDP_WAIT_FD, and tells each side when the
 * other one hangs up.
 *
 * Versions: the same major is required; size may grow, a receiver treats fields that the
 * sender lacks as zero; features are negotiated by bits.
 */
#ifndef FDD_LIBCLIENT_FDPROTO_H
#define FDD_LIBCLIENT_FDPROTO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define FDP_STATIC_ASSERT(c, t) static_assert(c, t)
#else
#define FDP_STATIC_ASSERT(c, t) _Static_assert(c, t)
#endif

#define FDP_MAGIC 0x31444446u /* "FDD1" */
#define FDP_MAJOR 3
#define FDP_MINOR 0

/* Status codes: FDP_OK, FDP_E_PROTO, ... (tbl/status.h) */
enum fdp_status {
#define FDP_STATUS(name, value, cls, retry, text) FDP_##name = value,
#include "tbl/status.h"
#undef FDP_STATUS
    FDP_STATUS__END = 1
};

/* Limits of the format itself; the configuration sets lower ones. */
#define FDP_MAX_BLOB        (64u << 20) /* bytes of one request's items */
#define FDP_MAX_LOGPROBS    20          /* alternatives of a token */
#define FDP_MAX_LOGPROB_IDS 64          /* extra ids whose logprobs are reported */
#define FDP_MAX_STOP        16          /* stop strings of a request */
#define FDP_MAX_STOP_LEN    256         /* bytes of one stop string */
#define FDP_MAX_STOP_IDS    64
#define FDP_MAX_N           64         /* parallel samples */
#define FDP_MIN_REPETITION  0.001f     /* a smaller one makes logits overflow */
#define FDP_MAX_BIAS        1024       /* ids with a bias */
#define FDP_MAX_BAD         256        /* forbidden texts; forbidden id sequences */
#define FDP_MAX_BAD_LEN     128        /* bytes of one text, */
#define FDP_MAX_BAD_IDS     32         /* or ids of one sequence */
#define FDP_MAX_ALLOWED     (1u << 20) /* allowed ids */
#define FDP_MAX_SPANS       16384      /* ranges of a text prompt */
#define FDP_MAX_REPEAT      256        /* ids of a repeated sequence */
#define FDP_MAX_REPEATS     1024       /* largest count of its repetitions */
#define FDP_MAX_FILE_NAME   64
#define FDP_MAX_FILE_READ   (1u << 20) /* bytes of a file per request */

/* ---- handshake ---------------------------------------------------------- */

struct fdp_hello {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t size; /* sizeof(struct fdp_hello) of the sender */
    uint32_t rsv0;
    uint64_t feat_want; /* features used if offered */
    uint64_t feat_need; /* features that the client cannot do without */
    uint32_t sq_slots;  /* hints; 0 = daemon's default */
    uint32_t cq_slots;
    uint32_t arena_bytes;
    uint32_t rsv1;
    char name[32]; /* program name for fdctl clients, NUL padded */
};
FDP_STATIC_ASSERT(sizeof(struct fdp_hello) == 80, "hello layout");

struct fdp_welcome {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t size;
    int32_t err; /* enum fdp_status; the rest is 0 if not FDP_OK */
    uint64_t feat_on;
    uint64_t boot_id[2]; /* changes with every start of the daemon */
    uint64_t session_id;
    uint32_t c2d_bytes, d2c_bytes;
    uint32_t sq_slots, cq_slots; /* powers of two */
    uint32_t sq_off;             /* offset of the request slots in c2d */
    uint32_t arena_off;          /* offset of the arena in c2d */
    uint32_t arena_bytes;
    uint32_t cq_off;          /* offset of the completion slots in d2c */
    uint32_t max_inflight;    /* requests of this session at a time */
    uint32_t max_model_len;   /* tokens, prompt and output; 0 while loading */
    uint32_t vocab;           /* 0 while loading */
    uint32_t retry_after_ms;  /* set when err is of class RETRY */
    uint8_t model_digest[32]; /* 0 while loading */
    char model_name[64];
};
FDP_STATIC_ASSERT(sizeof(struct fdp_welcome) == 192, "welcome layout");

#define FDP_FEAT_TOKENIZE (1ull << 0) /* TOKENIZE and DETOKENIZE */
#define FDP_FEAT_ALL      (FDP_FEAT_TOKENIZE)

#define FDP_N_FDS         3 /* c2d, d2c, doorbell, in this order */

/* ---- shared words ------------------------------------------------------- */

#define FDP_C2D_SQ_TAIL        0x000
#define FDP_C2D_CQ_HEAD        0x080
#define FDP_C2D_CQ_WAIT        0x100
#define FDP_C2D_SQ_WAIT        0x180
#define FDP_C2D_SLOTS          0x200
#define FDP_D2C_CQ_TAIL        0x000
#define FDP_D2C_SQ_HEAD        0x080
#define FDP_D2C_SQ_NEED_WAKEUP 0x100
#define FDP_D2C_STATE          0x180
#define FDP_D2C_SLOTS          0x200

/* cq_wait: how the client waits for completions */
#define FDP_WAIT_SPIN  0 /* running or spinning: no wake-up wanted */
#define FDP_WAIT_FUTEX 1 /* in FUTEX_WAIT on cq_tail */
#define FDP_WAIT_FD    2 /* in poll() on the socket: send one byte */

/* sq_wait: not 0 while the client waits for room in the request ring or the arena. When
 * the daemon has taken requests and finds it set, it sends EVENT FDP_EV_ROOM. */

struct fdp_state {   /* at FDP_D2C_STATE */
    uint32_t state;  /* FDP_ST_* */
    uint32_t reason; /* -status when state is GOODBYE */
    uint64_t boot_id[2];
};
#define FDP_ST_RUN     1
#define FDP_ST_DRAIN   2 /* new requests are rejected */
#define FDP_ST_GOODBYE 3 /* the session is over: no further records */

/* ---- requests (client to daemon) ---------------------------------------- */

enum fdp_op {
    FDP_OP_SUBMIT = 1,     /* generate; answered by a stream of records */
    FDP_OP_CANCEL = 2,     /* tag = tag of the request to end; no answer of its own */
    FDP_OP_TOKENIZE = 3,   /* PROMPT_TEXT to PROMPT_IDS records, then DONE */
    FDP_OP_DETOKENIZE = 4, /* PROMPT_IDS to TEXT records, then DONE */
    FDP_OP_INFO = 5,       /* REPLY (struct fdp_info), then DONE */
    FDP_OP_PING = 6,       /* the gate answers DONE itself; FDP_F_DEEP: the worker */
    FDP_OP_FILE = 7,       /* FILE to REPLY (struct fdp_file), BYTES records, DONE */
    FDP_OP__N
};

/* flags of struct fdp_req */
#define FDP_F_TEXT        (1u << 0) /* send TEXT records (ids are always sent) */
#define FDP_F_PROMPT_IDS  (1u << 1) /* send the prompt's ids back */
#define FDP_F_IGNORE_EOS  (1u << 2)
#define FDP_F_PROMPT_TEXT (1u << 3) /* echo: send the prompt's text back */
#define FDP_F_TOKEN_TEXT  (1u << 4) /* a TOKEN_TEXT after each record of logprobs */
#define FDP_F_ALONE \
    (1u << 5)                        /* special and added tokens come in SPECIAL
                                       records, not in IDS and TEXT */
#define FDP_F_NO_SPECIAL   (1u << 6) /* do not add bos etc. to a text prompt */
#define FDP_F_KEEP_SPECIAL (1u << 8) /* special tokens appear in TEXT */
#define FDP_F_KEEP_STOP    (1u << 9) /* the stop string stays in the text */
#define FDP_F_DEEP         (1u << 10)
#define FDP_F_PARSE_SPECIAL \
    (1u << 12) /* names of special tokens in a text prompt
                                          become those tokens; else they are text */
/* Bit 7 had the opposite meaning in version 1, and bit 11 had another meaning in version
 * 2: both are rejected. */
#define FDP_F__ALL (((1u << 13) - 1) & ~(1u << 7 | 1u << 11))

/* struct fdp_req.set: the fields that the client has set. A field that is not set is 0 in
 * the record and gets the daemon's default: for temperature, top_p, top_k, min_p and
 * repetition_penalty the model's own (struct fdp_info), for the others the one given at
 * the field. */
#define FDP_S_MAX_NEW         (1u << 0)
#define FDP_S_TEMPERATURE     (1u << 1)
#define FDP_S_TOP_P           (1u << 2)
#define FDP_S_TOP_K           (1u << 3)
#define FDP_S_MIN_P           (1u << 4)
#define FDP_S_PRESENCE        (1u << 5)
#define FDP_S_FREQUENCY       (1u << 6)
#define FDP_S_REPETITION      (1u << 7)
#define FDP_S_LOGPROBS        (1u << 8)
#define FDP_S_PROMPT_LOGPROBS (1u << 9)
#define FDP_S_SEED            (1u << 10)
#define FDP_S__ALL            ((1u << 11) - 1)

struct fdp_req {      /* one request slot */
    uint64_t tag;     /* chosen by the client, unique among its open requests */
    uint16_t op;      /* enum fdp_op */
    uint16_t n;       /* samples returned, 1..FDP_MAX_N */
    uint32_t flags;   /* FDP_F_* */
    uint32_t max_new; /* 0: the prompt is only scored; not set: what the model's length,
                         or output.default_max_tokens, leaves */
    uint32_t min_new;
    float temperature;        /* [0, 100], 0 = greedy */
    float top_p;              /* (0, 1], 1 = off; applied after min_p and top_k */
    uint32_t top_k;           /* 0 = off */
    float min_p;              /* [0, 1], 0 = off; after temperature, before top_k */
    float presence_penalty;   /* [-2, 2], 0 = off, also when not set */
    float frequency_penalty;  /* [-2, 2], 0 = off, also when not set */
    float repetition_penalty; /* [0.001, 2], 1 = off */
    uint8_t logprobs;         /* set: send LOGPROBS with this number of alternatives per
                                 token, 0..FDP_MAX_LOGPROBS; not set: none */
    uint8_t prompt_logprobs;  /* as logprobs, for the prompt: PROMPT_LOGPROBS */
    uint16_t stream_interval; /* tokens per record at least; 0, 1 = each step */
    uint64_t seed;            /* not set: drawn by the daemon, see ACCEPTED */
    int32_t priority;         /* smaller first; 0 by default */
    uint32_t ttl_queue_ms;    /* give up if not started within this time; 0 = no limit */
    uint32_t ttl_total_ms;    /* end within this time; 0 = no limit */
    uint32_t n_prior;         /* ids in the PRIOR_IDS item: delivered before */
    uint64_t user;            /* delegated user, 0 = own uid; trusted clients only */
    uint8_t salt[16];         /* prefix-cache salt, 0 = none */
    uint32_t off, len;        /* place of the items in the arena; off % 8 is 0 */
    uint32_t set;             /* FDP_S_* */
    uint32_t prompt_from;     /* with prompt_logprobs: first position of the prompt whose
                            logprobs are sent; 0 and 1: all (position 0 has none) */
    uint16_t best_of; /* samples drawn, n..FDP_MAX_N: the n of them with the highest
                            mean logprob are returned, best first; 0: n */
    uint8_t rsv[6];   /* zero */
};
FDP_STATIC_ASSERT(sizeof(struct fdp_req) == 128, "request layout");
FDP_STATIC_ASSERT(offsetof(struct fdp_req, seed) == 56, "request layout");
FDP_STATIC_ASSERT(offsetof(struct fdp_req, off) == 104, "request layout");
FDP_STATIC_ASSERT(offsetof(struct fdp_req, set) == 112, "request layout");

/* Items: header, payload, zero padding to a multiple of 8 bytes. tbl/items.h has the
 * payload of each type. */
enum fdp_item_type {
#define FDP_ITEM(name, value, version, text, ops, size, least, most, times, detail) \
    FDP_IT_##name = value,
#include "tbl/items.h"
#undef FDP_ITEM
    FDP_IT__N = 19
};
struct fdp_item {
    uint16_t type;   /* enum fdp_item_type */
    uint8_t version; /* version of the payload's layout: 0 */
    uint8_t rsv;     /* zero */
    uint32_t len;    /* payload bytes, without padding */
};
FDP_STATIC_ASSERT(sizeof(struct fdp_item) == 8, "item layout");
#define FDP_ITEM_SPAN(len) (sizeof(struct fdp_item) + (((uint64_t)(len) + 7) & ~7ull))

struct fdp_bias {
    uint32_t id;
    float bias;
}; /* LOGIT_BIAS: [-100, 100] */
/* SPANS: bytes [off, off + len) of PROMPT_TEXT. Spans are in ascending order, not empty
 * and do not overlap; both ends are between characters. */
struct fdp_span {
    uint32_t off, len;
};
/* REPETITION: a sample ends with FDP_FIN_REPETITION as soon as its last ids are count
 * consecutive copies of one sequence of min_len to max_len ids. */
struct fdp_repetition {
    uint32_t min_len, max_len; /* 1 <= min_len <= max_len <= FDP_MAX_REPEAT */
    uint32_t count;            /* 2..FDP_MAX_REPEATS */
    uint32_t rsv;              /* zero */
};
/* REASONING: a sample has at most max_tokens tokens between open_id and close_id; after
 * them close_id is forced as the next token. If open_id is the later of the two in the
 * prompt, counting begins with the first output token. */
struct fdp_reasoning {
    uint32_t max_tokens;
    uint32_t open_id, close_id; /* must differ */
    uint32_t rsv;               /* zero */
};
struct fdp_file_ask { /* item FILE; then the name, 1..FDP_MAX_FILE_NAME bytes */
    uint64_t off;     /* offset of the first byte to read */
    uint32_t len;     /* most bytes to read, 1..FDP_MAX_FILE_READ */
    uint32_t rsv;     /* zero */
};

/* ---- completions (daemon to client) -------------------------------------- */

enum fdp_type {
    FDP_T_PAD = 0,             /* skip n_slot slots: a record never wraps */
    FDP_T_ACCEPTED = 1,        /* struct fdp_accepted */
    FDP_T_PROMPT_IDS = 2,      /* u32[len/4], position = index of the first */
    FDP_T_IDS = 3,             /* u32[len/4], position = output index of the first */
    FDP_T_TEXT = 4,            /* len bytes of UTF-8, position = byte offset */
    FDP_T_LOGPROBS = 5,        /* struct fdp_logprob[len/8] of the output token at
                                  position: the sampled token, then the top
                                  alternatives */
    FDP_T_PROMPT_LOGPROBS = 6, /* as LOGPROBS, for the prompt token at position (>= 1) */
    FDP_T_CHOICE_END = 7,      /* struct fdp_choice_end, one per sample */
    FDP_T_DONE = 8,            /* struct fdp_done: terminal */
    FDP_T_ERROR = 9,           /* struct fdp_error: terminal */
    FDP_T_REPLY = 10,          /* answer of an op: struct fdp_info or fdp_file */
    FDP_T_EVENT = 11,          /* struct fdp_event, tag 0 */
    FDP_T_TOKENS = 12,         /* struct fdp_tokens: IDS and TEXT of a sample in one
                                  record; position = output index of the first id */
    FDP_T_PROMPT_TEXT = 13,    /* as TEXT, for the prompt */
    FDP_T_TOKEN_TEXT = 14,     /* struct fdp_token_text: texts of the tokens of the
                                  logprobs record before it, same position */
    FDP_T_SPECIAL = 15,        /* struct fdp_special: a token that FDP_F_ALONE keeps out
                                  of IDS and TEXT; position = output index */
    FDP_T_BYTES = 16, /* len bytes of a file; position counts from fdp_file_ask.off */
    FDP_T__N
};

#define FDP_SLOT 64
struct fdp_rec { /* header of n_slot contiguous slots */
    uint64_t tag;
    uint8_t type; /* enum fdp_type */
    uint8_t n_slot;
    uint16_t sample; /* 0..n-1 */
    uint32_t position;
    uint32_t len; /* payload bytes */
    uint32_t rsv;
};
FDP_STATIC_ASSERT(sizeof(struct fdp_rec) == 24, "record layout");
/* The payload follows the header directly, 8-byte aligned. */
#define FDP_REC_SLOTS(len) \
    ((uint32_t)((sizeof(struct fdp_rec) + (uint64_t)(len) + FDP_SLOT - 1) / FDP_SLOT))
#define FDP_REC_MAX_SLOTS 64u /* a payload of at most 4072 bytes a record */
#define FDP_REC_MAX_LEN   (FDP_REC_MAX_SLOTS * FDP_SLOT - (uint32_t)sizeof(struct fdp_rec))

struct fdp_accepted {
    uint32_t prompt_len, cached_len;
    uint64_t seed;
};
struct fdp_logprob {
    uint32_t id;
    float logprob;
};
struct fdp_tokens {    /* u32 ids[n_ids] and n_text bytes of UTF-8 follow */
    uint32_t text_off; /* position of the text, as in the header of a TEXT record */
    uint16_t n_ids;    /* n_ids, n_text >= 1: else it is IDS or TEXT */
    uint16_t n_text;
};
#define FDP_TOKENS_LEN(n_ids, n_text) \
    ((uint64_t)sizeof(struct fdp_tokens) + 4 * (uint64_t)(n_ids) + (uint64_t)(n_text))

/* TOKEN_TEXT: n sizes, then the bytes that each of n tokens decodes to, which may be a
 * piece of a character; for a special token, its name. */
struct fdp_token_text { /* u16 len[n] and the bytes of all tokens follow */
    uint16_t n;         /* number of logprobs in the record before it */
};
struct fdp_special { /* the token's name follows; TEXT's positions do not count it */
    uint32_t id;
    uint32_t n_text; /* bytes of the name */
};

enum fdp_finish {
    FDP_FIN_NONE = 0,
    FDP_FIN_STOP = 1,      /* eos, stop id or stop string */
    FDP_FIN_LENGTH = 2,    /* max_new or the model's length */
    FDP_FIN_ERROR = 3,     /* the terminal ERROR says why */
    FDP_FIN_REPETITION = 4 /* item REPETITION */
};
struct fdp_choice_end {
    uint32_t finish;      /* enum fdp_finish */
    uint32_t n_tokens;    /* output tokens of this sample, PRIOR_IDS included */
    int32_t stop_id;      /* the stop or eos id, -1 if none */
    int32_t stop_str;     /* index of the stop string, -1 if none */
    uint32_t n_reasoning; /* output tokens between the ids of item REASONING */
    float mean_logprob;   /* with best_of; else 0 */
};

struct fdp_done { /* times in ns of the daemon's CLOCK_MONOTONIC */
    uint32_t prompt_tokens, cached_tokens, output_tokens, n_preempted;
    uint64_t t_submit; /* filled in by the gate */
    uint64_t t_start;  /* when it was first scheduled */
    uint64_t t_first;  /* when its first token was sent */
    uint64_t t_end;
};
struct fdp_error {
    int32_t code; /* enum fdp_status */
    uint32_t retry_after_ms;
    uint32_t detail; /* enum fdp_detail: which parameter, or 0 */
    uint32_t arg;    /* its value, saturated; the bits of a float */
    uint32_t limit;  /* the bound that arg exceeds, as arg; 0: none */
    uint32_t item;   /* type, as received, of the item that contains it; 0: the record */
};
/* E_TOO_LONG: arg is the length in tokens, limit the longest possible. With FDP_D_MAX_NEW
 * and an item, arg is the prompt's length plus max_new. */
struct fdp_event {
    uint32_t kind;
    uint32_t arg;
};
#define FDP_EV_READY 1 /* the model is (again) ready: INFO has its numbers */
#define FDP_EV_DOWN  2 /* the worker is down: requests will be queued */
#define FDP_EV_DRAIN 3
#define FDP_EV_ROOM  4 /* requests were taken while sq_wait was set */

struct fdp_info { /* REPLY of FDP_OP_INFO */
    uint32_t vocab, max_model_len;
    int32_t bos_id, has_tokenizer;
    uint32_t n_eos, eos_ids[8];
    uint32_t block_size, max_logprobs;
    uint8_t model_digest[32];
    char model_name[64];
    /* values used for fields that are not set */
    uint32_t set; /* FDP_S_*: those that the model's generation_config.json names */
    float temperature, top_p;
    uint32_t top_k;
    float min_p, repetition_penalty;
    /* limits of a request */
    uint32_t max_n, max_stop, max_stop_len, max_stop_ids, max_bias, max_bad;
    uint32_t max_logprob_ids;
    uint64_t items; /* 1 << FDP_IT_*: items that this daemon takes */
};
FDP_STATIC_ASSERT(sizeof(struct fdp_info) == 216, "info layout");

struct fdp_file {
    uint64_t size;
}; /* REPLY of FDP_OP_FILE: size of the whole file in bytes */

/* detail of FDP_E_BAD_PARAM and similar codes: the parameter that was rejected */
enum fdp_detail {
    FDP_D_NONE = 0,
#define FDP_DETAIL(name, kind, text) FDP_D_##name,
#include "tbl/details.h"
#undef FDP_DETAIL
    FDP_D__N
};

#ifdef __cplusplus
}
#endif
#endif
