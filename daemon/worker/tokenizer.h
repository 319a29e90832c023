/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to token ids and back, for tokenizer.json files. The ids are exactly those of
 * the Hugging Face tokenizers library.
 *
 * Supported: models BPE (of bytes or characters, with byte_fallback), Unigram and
 * WordPiece; normalizers NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend,
 * Replace, BertNormalizer, Precompiled, Sequence; pre-tokenizers ByteLevel, Split,
 * Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer,
 * Sequence; post-processors ByteLevel, TemplateProcessing, BertProcessing,
 * RobertaProcessing, Sequence; decoders ByteLevel, ByteFallback, Fuse, Metaspace,
 * WordPiece, BPEDecoder, Replace, Strip, Sequence. Anything else is refused with an
 * error that names it. "truncation" and "padding" are ignored, as is
 * clean_up_tokenization_spaces.
 *
 * A `struct tok` never changes after tok_load(): every thread may use it. A `struct
 * tok_enc` belongs to one thread and must be freed before its tok. Nothing here logs.
 * See detok.h for ids to text.
 */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_H
#define FDD_DAEMON_WORKER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

/* Limits of a file; a file that exceeds one is refused. */
#define TOK_MAX_FILE_BYTES  ((size_t)256 << 20)
#define TOK_MAX_VOCAB       1048576u
#define TOK_MAX_TOKEN_BYTES 4096u

#define TOK_ID_ADDED        1u /* listed in added_tokens */
#define TOK_ID_SPECIAL      2u /* listed there as special */

struct tok;
struct tok_enc;

/*
 * Loads a tokenizer. path names tokenizer.json or the directory that holds it;
 * tokenizer_config.json in the same folder gives the bos and eos tokens and may be
 * missing. For a tokenizer.model its "added_tokens_decoder", or else added_tokens.json,
 * lists further tokens. On success *ret is the tokenizer; free it with tok_free().
 * Otherwise *ret is unchanged, err holds one line that names the file, the offending
 * element and what would be accepted, and the result is -ENOENT, -EACCES or another error
 * of open(), -EFBIG, -EINVAL, -ENOTSUP or -ENOMEM.
 */
int tok_load(const char *path, struct tok **ret, char *err, size_t err_bytes);

/*
 * As tok_load(), for a model with vocab ids. -EINVAL also if its vocabulary has a higher
 * id, or bos, eos or a token of the post-processor: then the tokenizer belongs to another
 * model. Other added tokens may have higher ids, which texts with them then give: models
 * share tokenizers.
 */
int tok_load_for(const char *path, int32_t vocab, struct tok **ret, char *err,
    size_t err_bytes);

/* tok may be NULL. Returns NULL. */
struct tok *tok_free(struct tok *tok);

/* The highest id + 1 of vocabulary and added tokens; ids may have gaps. */
uint32_t tok_vocab_size(const struct tok *tok);

/*
 * The id of the added token with this content, or else of the vocabulary entry that
 * stands for these bytes (byte-level BPE) or is spelled so; -ENOENT if there is
 * neither.
 */
int tok_token_id(const struct tok *tok, const char *bytes, size_t n);

/*
 * The bytes to which an id decodes inside a text, valid as long as tok, and its TOK_ID_
 * flags. Any bytes: a token may hold a fragment of a character. -ENOENT: no such id.
 */
int tok_id_bytes(const struct tok *tok, uint32_t id, const uint8_t **ret, size_t *ret_n,
    unsigned *ret_flags);

/* The ids in tokenizer_config.json; -1 if it does not set the token. */
int tok_bos_id(const struct tok *tok);

int tok_eos_id(const struct tok *tok);

/*
 * An encoder with scratch memory that it reuses for each text. NULL: out of memory.
 */
struct tok_enc *tok_enc_new(const struct tok *tok);

struct tok_enc *tok_enc_free(struct tok_enc *enc);

/* Add the post-processor's tokens (bos and the like) around the text. */
#define TOK_ADD_SPECIAL 1u
/*
 * Recognise the text of special tokens. Without it "<|im_end|>" in a text is only those
 * ten characters. Added tokens that are not special are always recognised.
 */
#define TOK_PARSE_SPECIAL 2u

/*
 * Begins to encode a text of n bytes, which must stay valid and unchanged until the
 * last tok_enc_step(). Discards the ids of the previous text. -EILSEQ: not valid UTF-8
 * (NUL and control characters are valid); -E2BIG: over 512 MiB; -ENOMEM. After an error
 * only tok_enc_begin() may follow.
 */
int tok_enc_begin(struct tok_enc *enc, const char *text, size_t n, unsigned flags);

/* Bytes [off, off + len) of a text. */
struct tok_span {
    uint32_t off, len;
};

/*
 * After tok_enc_begin() with TOK_PARSE_SPECIAL: spans in which the text of special
 * tokens is treated as plain text, in ascending order; valid as long as the text. A
 * special token is plain text if a span holds any byte of it. If it is searched in
 * normalized text, that is so if a span holds any byte of the text that was normalized.
 */
void tok_enc_spans(struct tok_enc *enc, const struct tok_span *spans, size_t n);

/*
 * Encodes about max_bytes more of the text (at least one step of work), plus the cost
 * of finding the end of one pretoken. 1: done, tok_enc_ids() is complete; 0: call
 * again; -ENOMEM; -E2BIG: a pattern of the tokenizer took too long on this text, or a
 * normalizer made it too long.
 */
int tok_enc_step(struct tok_enc *enc, size_t max_bytes);

/*
 * The ids found so far, which will not change; valid until the next call with enc. NULL
 * if there are none.
 */
const uint32_t *tok_enc_ids(const struct tok_enc *enc, size_t *ret_n);

#endif
