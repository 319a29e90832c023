#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/parity/tok: small tokenizers of the supported kinds and the
reference library's results for test texts.

usage: dump_tokenizer_vectors.py [--out DIR] [NAME...]
       dump_tokenizer_vectors.py --check LIBRARY [--count N] [--seed N] [TOKENIZER...]

The second form compares a shared library made of the daemon's tokenizer
sources with the reference on N random texts per tokenizer.

A NAME.vec holds one record per line, fields separated by spaces:
  e FLAGS TEXT IDS   encoding TEXT with each of FLAGS (TOK_ADD_SPECIAL 1,
                     TOK_PARSE_SPECIAL 2; comma-separated) gives IDS; TEXT "="
                     is that of the record before
  d SKIP IDS TEXT    decoding IDS, without special tokens if SKIP, gives TEXT
TEXT is hexadecimal UTF-8 or "-"; IDS is comma-separated or "-".
"""
import argparse
import ctypes
import glob
import json
import os
import random
import subprocess
import sys
import sysconfig

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

import tokenizer_kinds

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SAMPLES = [
    "", " ", "\n", "a", "The quick brown fox jumps over the lazy dog.",
    "Grüße aus Köln, où l'été s'achève; mañana será otro día.",
    "Καλημέρα κόσμε, τι κάνεις;", "Съешь же ещё этих мягких французских булок.",
    "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。", "吾輩は猫である。名前はまだ無い。",
    "동해 물과 백두산이 마르고 닳도록", "السلام عليكم ورحمة الله", "नमस्ते दुनिया, कैसे हो?",
    "สวัสดีชาวโลก ภาษาไทย", "שלום עולם", "e\u0301 a\u0308\u0323 a\u0323\u0308 \u1e9b\u0323",
    "q\u0307\u0323 \u212b \u2126 \uac00\u11a8 \u1100\u1161\u11a8 ﬁ ２ ①",
    "for (int i = 0; i < n; i++) {\n\tx[i] += 0x1fUL; // why\n}\n",
    "def f(a, *b):\n    return {k: v for k, v in b}  # comment\n\n\n",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 ok 🇫🇷", "\0", "a\0b", "\x01\x02\x1b[0m\x7f", "x\u180ey \u180e z",
    "x\u0085y \u0085 z", "a\u00a0b \u00a0 c", "a\u2028b\u2029c \u2028", "a\u3000b\u2003c\ufeff",
    "a\r\nb\n\rc\r\r\n\n d \r\n", "one  two   three     four          five",
    "   leading", "trailing   ", "\t\ttabs\t \t", " \n \n  \n\n   x", "x" + " " * 100 + "y",
    " " * 200, "\n" * 100, "12 345 6789 1234567890 3.14159 1,000,000 ½ ² Ⅷ ٣٤٥",
    "I'm you're he's we've they'll I'd don't", "I'M YOU'RE HE'S WE'VE THEY'LL I'D DON'T",
    "'s't're've'm'll'd 'S 'ſ 'K ''' o'clock", "'\u017f x'\u017f \u212a'\u212a",
    "a" * 500, "ab" * 300, "aaa " * 60, "The the THE tHe " * 12,
    "\u1c89\u1c8a\U00010d40\U0002ebf0\U00031350 \U0001fae8", "\u07fd\u0301 a\u1abf\u0301 \u08ca\u0334",
    "\ue000 \ufffe \uffff \U0010ffff", "http://example.org/a?b=c&d=%20#e", "Ａｂｃ１２３", "İstanbul ISPARTA ıi",
]


def bible():
    out = subprocess.run(["bible", "-f", "Genesis1:1-Genesis50:26"],
                         capture_output=True, text=True, check=False).stdout
    return out.splitlines()


def corpus():
    lines = bible()
    std = sysconfig.get_paths()["stdlib"]
    for name in sorted(glob.glob(std + "/a*.py"))[:12] + sorted(
            glob.glob("/usr/share/common-licenses/*"))[:8]:
        with open(name, encoding="utf-8", errors="ignore") as f:
            lines += f.read().splitlines(keepends=True)
    return lines + SAMPLES * 3


def special(text, **kw):
    return AddedToken(text, special=True, normalized=False, **kw)


def train(tok, size):
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(corpus(), trainer)


def gpt2(prefix):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tok, 1500)
    tok.add_special_tokens([special("<|endoftext|>")])
    return tok, "<|endoftext|>", "<|endoftext|>"


def llama3():
    tok = Tokenizer(models.BPE(ignore_merges=True))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    train(tok, 2000)
    # Words of the vocabulary that no merges produce show the effect of ignore_merges.
    data = json.loads(tok.to_str())
    for word in ["Ġbrown", "quick", "ĠFrancese", "xyzzy"]:
        data["model"]["vocab"].setdefault(word, len(data["model"]["vocab"]))
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_special_tokens([special(s) for s in (
        "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
        "<|eot_id|>", "<|reserved|>")])
    bos = tok.token_to_id("<|begin_of_text|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing("<|begin_of_text|> $A",
                                      special_tokens=[("<|begin_of_text|>", bos)])])
    return tok, "<|begin_of_text|>", "<|eot_id|>"


def qwen2():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tok, 1800)
    tok.add_special_tokens([special(s) for s in (
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im|>", "<|im_start|><|im_end|>")])
    tok.add_tokens([AddedToken("<tool_call>", normalized=False, special=False),
                    AddedToken("</tool_call>", normalized=False, special=False)])
    return tok, None, "<|im_end|>"


def mixed():
    """Components that the three above do not use, and every kind of added token."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.NFKC(), normalizers.Lowercase(),
        normalizers.Strip(left=False, right=True)])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\n+"), "merged_with_previous"),
        pre_tokenizers.Split(Regex(r"[\p{P}\p{S}]"), "merged_with_next"),
        pre_tokenizers.Split(" ", "removed"),
        pre_tokenizers.Split(Regex(r"\w+"), "contiguous", invert=True),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)])
    tok.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])
    train(tok, 700)
    data = json.loads(tok.to_str())
    model = data["model"]
    # Remove the tokens of some bytes, which become unknown.
    for gone in ("Ģ", "ģ", "Ĥ"):
        model["merges"] = [m for m in model["merges"] if gone not in "".join(m)]
        for word in [w for w in model["vocab"] if gone in w]:
            del model["vocab"][word]
    words = sorted(model["vocab"], key=model["vocab"].get)
    model["vocab"] = {w: i for i, w in enumerate(words + ["<unk>"])}
    model["merges"] = [m if i % 2 else " ".join(m) for i, m in enumerate(
        m for m in model["merges"] if "".join(m) in model["vocab"])]
    # The library does not read a mix of the two spellings of merges.
    strings = dict(data, model=dict(model, merges=[
        m if isinstance(m, str) else " ".join(m) for m in model["merges"]]))
    tok = Tokenizer.from_str(json.dumps(strings))
    tok.add_special_tokens([special("<s>"), special("</s>"),
                            special("<mask>", lstrip=True), special("<pad>", rstrip=True),
                            special("<both>", lstrip=True, rstrip=True),
                            special("<one>", single_word=True)])
    tok.add_tokens([AddedToken("Yesterday", normalized=True),
                    AddedToken("ony", normalized=True, single_word=True),
                    AddedToken("été", normalized=False), AddedToken("  ", normalized=False),
                    AddedToken("thou", normalized=True, lstrip=True, rstrip=True)])
    ids = [(s, tok.token_to_id(s)) for s in ("<s>", "</s>")]
    tok.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=ids)
    return tok, "<s>", "</s>"


BYTE_KINDS = {"gpt2": lambda: gpt2(False), "gpt2-prefix": lambda: gpt2(True),
              "llama3": llama3, "qwen2": qwen2, "mixed": mixed}
KINDS = {**BYTE_KINDS, **tokenizer_kinds.KINDS}


def random_text(rng, added, limit=40):
    """Valid UTF-8 with texts on which tokenizers often differ."""
    out = []
    for _ in range(rng.randint(1, limit)):
        r = rng.random()
        if r < 0.12:
            cp = rng.choice([rng.randint(0, 0x7f), rng.randint(0x80, 0x7ff),
                             rng.randint(0x800, 0xffff), rng.randint(0x10000, 0x10ffff)])
            if not 0xd800 <= cp < 0xe000:
                out.append(chr(cp))
        elif r < 0.2:
            out.append(rng.choice(" \t\n\r\v\f\u0085\u00a0\u180e\u2000\u2028\u3000\u200b")
                       * rng.randint(1, 4))
        elif r < 0.26:
            out.append(chr(rng.choice([rng.randint(0x300, 0x36f), rng.randint(0x591, 0x5c7),
                                       rng.randint(0x64b, 0x65f), 0x3099, 0x93c,
                                       rng.randint(0x1100, 0x11ff), 0x1abf, 0x334])))
        elif r < 0.34 and added:
            out.append(rng.choice(added)[:rng.choice([99, 99, 99, 4])])
        elif r < 0.4:
            out.append(rng.choice(["'s", "'T", "'re", "'VE", "'ll", "'D", "'\u017f", "'"]))
        elif r < 0.46:
            out.append(str(rng.randint(0, 10 ** rng.randint(1, 9))))
        elif r < 0.6:
            sample = rng.choice(SAMPLES)
            at = rng.randint(0, len(sample))
            out.append(sample[at:at + rng.randint(1, 12)])
        else:
            out.append(rng.choice([" ", "", "", " "]) + "".join(
                rng.choice("etaoinshrdluETA.,;-_(){}=") for _ in range(rng.randint(1, 9))))
    return "".join(out)


def hexed(text):
    return text.encode().hex() or "-"


def listed(ids):
    return ",".join(map(str, ids)) or "-"


def encode(tok, text, flags):
    tok.encode_special_tokens = not flags & 2
    return tok.encode(text, add_special_tokens=bool(flags & 1)).ids


def decode(tok, ids, skip):
    """The text, or None if the library panics, as its Strip does on a text too short."""
    try:
        return tok.decode(ids, skip_special_tokens=skip)
    except BaseException as e:  # pylint: disable=broad-except
        if isinstance(e, (KeyboardInterrupt, SystemExit, TypeError)):
            raise
        return None


def dump(name, out):
    tok, bos, eos = KINDS[name]()
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    data = json.loads(tok.to_str())
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"bos_token": bos, "eos_token": eos and {"content": eos}}, f)
        f.write("\n")
    tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    rng = random.Random(name)
    added = [t.content for t in tok.get_added_tokens_decoder().values()]
    texts = list(SAMPLES)
    for s in added:
        texts += [s, f"a {s} b", f"a{s}b", f"  {s}  {s}\n{s}{s}x", s[:-1], s.upper()]
    n_texts, n_decoded = (200, 150) if name in BYTE_KINDS else (60, 80)
    texts += [random_text(rng, added) for _ in range(n_texts)]
    size = max(tok.get_vocab(with_added_tokens=True).values()) + 1
    with open(os.path.join(out, name + ".vec"), "w", encoding="ascii") as f:
        for i, text in enumerate(texts):
            same = {}
            for flags in (0, 1, 2, 3) if i < len(SAMPLES) + 20 else (2, i % 2):
                ids = encode(tok, text, flags)
                same.setdefault(listed(ids), []).append(str(flags))
            for k, (found, flags) in enumerate(same.items()):
                f.write(f"e {','.join(flags)} {'=' if k else hexed(text)} {found}\n")
            if i % 3 == 0:
                for skip in (0, 1):
                    back = decode(tok, ids, bool(skip))
                    if back is not None:
                        f.write(f"d {skip} {listed(ids)} {hexed(back)}\n")
        for i in range(n_decoded):
            ids = [rng.choice([rng.randrange(size), rng.randrange(256)])
                   for _ in range(rng.randint(1, 24))]
            back = decode(tok, ids, bool(i % 2))
            if back is not None:
                f.write(f"d {i % 2} {listed(ids)} {hexed(back)}\n")


def dump_spm(name, out):
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    ref = tokenizer_kinds.write_spm(folder, name)
    rng = random.Random(name)
    texts = SAMPLES + [random_text(rng, ["<tool>", "  "]) for _ in range(300)]
    with open(os.path.join(out, name + ".vec"), "w", encoding="ascii") as f:
        for text in texts:
            if "\0" not in text:
                f.write(f"e 0 {hexed(text)} {listed(ref(text))}\n")


class Ours:
    """The daemon's tokenizer in a shared library."""

    def __init__(self, library, path):
        self.c = ctypes.CDLL(library)
        for f in ("tok_enc_new", "tok_enc_ids"):
            getattr(self.c, f).restype = ctypes.c_void_p
        self.c.dtk_push.restype = self.c.dtk_finish.restype = ctypes.c_size_t
        err = ctypes.create_string_buffer(512)
        tok = ctypes.c_void_p()
        if self.c.tok_load(path.encode(), ctypes.byref(tok), err, ctypes.c_size_t(512)):
            sys.exit(err.value.decode())
        self.tok = tok
        self.enc = ctypes.c_void_p(self.c.tok_enc_new(tok))

    def encode(self, text, flags, step):
        raw = text.encode()
        rc = self.c.tok_enc_begin(self.enc, raw, ctypes.c_size_t(len(raw)), flags)
        while rc == 0:
            rc = self.c.tok_enc_step(self.enc, ctypes.c_size_t(step))
        if rc != 1:
            sys.exit(f"error {rc} for {text!r}")
        n = ctypes.c_size_t()
        p = self.c.tok_enc_ids(self.enc, ctypes.byref(n))
        return list((ctypes.c_uint32 * n.value).from_address(p)) if n.value else []

    def decode(self, ids, skip):
        dtk = ctypes.create_string_buffer(1024)
        out = ctypes.create_string_buffer(65536)
        self.c.dtk_init(dtk, self.tok, ctypes.c_bool(skip))
        text = b""
        for i in ids:
            n = self.c.dtk_push(dtk, ctypes.c_uint32(i), out, ctypes.c_size_t(65536))
            text += out.raw[:n]
        n = self.c.dtk_finish(dtk, out, ctypes.c_size_t(65536))
        return text + out.raw[:n]


def check(library, paths, count, seed):
    for path in paths:
        ref, ours = Tokenizer.from_file(os.path.join(path, "tokenizer.json")), None
        ours = Ours(library, path)
        added = [t.content for t in ref.get_added_tokens_decoder().values()]
        size = max(ref.get_vocab(with_added_tokens=True).values()) + 1
        rng = random.Random(seed)
        bad = 0
        for i in range(count):
            text = random_text(rng, added, rng.choice([3, 10, 40]))
            flags = i % 4
            want = encode(ref, text, flags)
            got = ours.encode(text, flags, rng.choice([1, 7, 65536]))
            ids = [rng.randrange(size) for _ in range(rng.randint(1, 12))]
            want_text = decode(ref, ids, bool(i & 4))
            if got != want or (want_text is not None and
                               ours.decode(ids, bool(i & 4)) != want_text.encode()):
                bad += 1
                if bad < 5:
                    print(f"{path}: flags {flags} {text.encode('unicode_escape')}\n"
                          f"  want {want}\n  got  {got}\n  ids {ids}")
        print(f"{path}: {count} texts, {bad} differ")
        if bad:
            sys.exit(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=os.path.join(os.path.dirname(__file__),
                                                  "../../tests/parity/tok"))
    ap.add_argument("--check", metavar="LIBRARY")
    ap.add_argument("--count", type=int, default=20000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("tokenizer", nargs="*")
    args = ap.parse_args()
    if args.check:
        check(args.check, args.tokenizer or sorted(
            os.path.dirname(p) for p in glob.glob(args.out + "/*/tokenizer.json")),
            args.count, args.seed)
        return
    for name in args.tokenizer or [*KINDS, *tokenizer_kinds.SPM]:
        (dump_spm if name in tokenizer_kinds.SPM else dump)(name, args.out)


if __name__ == "__main__":
    main()
