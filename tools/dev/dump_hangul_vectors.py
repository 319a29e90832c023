#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/parity/tok/hangul.vec: Hangul as normalized by Python's unicodedata.

usage: dump_hangul_vectors.py >tests/parity/tok/hangul.vec

Characters are hexadecimal, those of one text joined by "+". A line is
  lv LV OUT,...          NFC, equal to NFKC, of LV followed by U+11A7, U+11A8 ... U+11C3
  s IN NFC NFD NFKC NFKD the four forms of a random text
"""
import random
from unicodedata import normalize

SEED, TEXTS = 1, 400
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def shown(s):
    return "+".join("%x" % ord(c) for c in s)


def random_text(rng):
    kinds = (lambda: 0x1100 + rng.randrange(19), lambda: 0x1161 + rng.randrange(21),
             lambda: 0x11A7 + rng.randrange(29), lambda: 0x11A7,
             lambda: 0xAC00 + 28 * rng.randrange(399), lambda: rng.randrange(0xAC00, 0xD7A4),
             lambda: rng.randrange(0x1100, 0x1200), lambda: rng.randrange(0x3131, 0x318F),
             lambda: rng.randrange(0xFFA1, 0xFFBF), lambda: 0x301, lambda: 0x20)
    return "".join(chr(rng.choice(kinds)()) for _ in range(rng.randrange(2, 9)))


def main():
    rng = random.Random(SEED)
    for lv in range(0xAC00, 0xD7A4, 28):
        out = []
        for t in range(0x11A7, 0x11C4):
            text = chr(lv) + chr(t)
            assert normalize("NFC", text) == normalize("NFKC", text)
            out.append(shown(normalize("NFC", text)))
        print("lv %x %s" % (lv, ",".join(out)))
    for _ in range(TEXTS):
        text = random_text(rng)
        print("s", shown(text), *(shown(normalize(form, text)) for form in FORMS))


main()
