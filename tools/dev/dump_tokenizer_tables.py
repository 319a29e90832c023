#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Writes daemon/worker/tokenizer_tables.c: the character classes of the reference
library's components, found by running the library on every character.

usage: dump_tokenizer_tables.py [FILE]
"""
import base64
import json
import os
import struct
import sys

from tokenizers import Tokenizer, models
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre


def charsmap(rules):
    """A precompiled_charsmap of these (key, text) rules: a double array whose
    cells are (offset << 10 | leaf << 8 | label), then the texts."""
    texts, values = b"", {}
    for key, text in rules:
        values[key.encode()] = len(texts)
        texts += text.encode() + b"\0"
    cells, used = [0] * 256, {0}

    def place(at, prefix):
        labels = sorted({k[len(prefix)] for k in values
                         if k.startswith(prefix) and len(k) > len(prefix)})
        leaf = prefix in values
        want = ([0] if leaf else []) + labels
        base = 1
        while any(base ^ c in used for c in want) or (base ^ at) >= 1 << 21:
            base += 1
        while len(cells) <= base | 255:
            cells.extend([0] * 256)
        cells[at] |= (base ^ at) << 10 | leaf << 8
        used.update(base ^ c for c in want)
        if leaf:
            cells[base] = values[prefix] | 1 << 31
        for c in labels:
            cells[base ^ c] = c
        for c in labels:
            place(base ^ c, prefix + bytes([c]))

    place(0, b"")
    blob = struct.pack(f"<{len(cells)}I", *cells)
    return base64.b64encode(struct.pack("<I", len(blob)) + blob + texts).decode()


def precompiled(rules):
    data = json.loads(Tokenizer(models.BPE()).to_str())
    data["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap(rules)}
    return Tokenizer.from_str(json.dumps(data)).normalizer


def bert(**on):
    which = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    return norm.BertNormalizer(**{k: on.get(k, False) for k in which})


def tables():
    clean, accents = bert(clean_text=True), bert(strip_accents=True)
    marks, punct = norm.StripAccents(), pre.Punctuation()
    grow = precompiled([("a", "b")])
    yield ("bert_drop", "What clean_text of BertNormalizer takes out.",
           lambda c: clean.normalize_str(c) == "")
    yield ("bert_mark", "What its strip_accents takes out of decomposed text.",
           lambda c: accents.normalize_str(c) == "")
    yield ("mark", "What StripAccents takes out.", lambda c: marks.normalize_str(c) == "")
    yield ("punct", "What Punctuation and BertPreTokenizer split at.",
           lambda c: len(punct.pre_tokenize_str("a" + c)) == 2)
    yield ("extend", "What goes on with the grapheme before it.",
           lambda c: grow.normalize_str("a" + c) == "b")


def ranges(member):
    out = []
    for cp in range(0x110000):
        if 0xd800 <= cp < 0xe000 or not member(chr(cp)):
            continue
        if out and out[-1][1] == cp - 1:
            out[-1][1] = cp
        else:
            out.append([cp, cp])
    return out


def prepends():
    """Characters that the next character's grapheme includes, in the blocks that have them."""
    blocks = [(0x600, 0x900), (0xd00, 0xd80), (0x11000, 0x12000)]
    cps = [cp for a, b in blocks for cp in range(a, b)]
    both = precompiled([(chr(cp), "b") for cp in cps])
    return [cp for cp in cps if both.normalize_str(chr(cp) + "a") == "b"]


def write(f, name, text, rows):
    f.write(f"\n/* {text} */\nconst struct tok_range tok_tab_{name}[] = {{\n")
    items = [f"{{ 0x{a:x}, 0x{b:x} }}," for a, b in rows]
    line = "   "
    for item in items:
        if len(line) + 1 + len(item) > 88:
            f.write(line + "\n")
            line = "   "
        line += " " + item
    f.write(line + f"\n}};\nconst size_t tok_n_{name} = {len(rows)};\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        here, "../../daemon/worker/tokenizer_tables.c")
    with open(path, "w", encoding="ascii") as f:
        f.write("/* SPDX-FileCopyrightText: The fdd authors\n"
                " * SPDX-License-Identifier: Apache-2.0 */\n"
                "/* Made by tools/dev/dump_tokenizer_tables.py. */\n"
                "/* clang-format off */\n"
                '#include "config.h"\n\n#include "daemon/worker/tokenizer_norm.h"\n')
        for name, text, member in tables():
            write(f, name, text, ranges(member))
        rows = []
        for cp in prepends():
            if rows and rows[-1][1] == cp - 1:
                rows[-1][1] = cp
            else:
                rows.append([cp, cp])
        write(f, "prepend", "What the grapheme behind it goes on with.", rows)


if __name__ == "__main__":
    main()
