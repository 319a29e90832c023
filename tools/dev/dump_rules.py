#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Write results of transformers' logits processors for random logits.

tests/kernel/k_rules reads them from tests/kernel/rules_reference.txt:

    case V
    V logits                       floats are their bits in hexadecimal
    N ids                          prompt and output so far
    REPETITION                     penalty; 3f800000 is none
    N {ID BIAS}                    SequenceBias of single ids
    N ids                          PrefixConstrained: allowed ids; 0: all
    N {N ids}                      NoBadWords
    N ids                          ids still allowed, best first, ties by id

The processors are applied in the order of generate(): biases,
repetition penalty, bad sequences, allowed ids.
"""

import random
import struct
import sys

import torch
import transformers
from transformers import (
    NoBadWordsLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

CASES = 24


def bits(value):
    return struct.pack(">f", value).hex()


def line(values):
    values = [str(v) for v in values]
    return " ".join([str(len(values))] + values)


def bad_words(rng, vocab, ids):
    """Sequences; most begin with the last ids, so that their last id is forbidden."""
    ret = []
    for _ in range(rng.randrange(1, 8)):
        n = rng.choice([1, 1, 2, 3, 5, 31])
        tail = ids[len(ids) - n + 1:] if n > 1 and rng.random() < 0.8 else []
        while len(tail) < n - 1:
            tail = tail + [rng.randrange(vocab)]
        ret.append(tail + [rng.randrange(vocab)])
    return ret


def case(rng, number):
    vocab = rng.choice([17, 32, 48, 70])
    # one decimal: ties are frequent
    logits = [round(rng.gauss(0, 3), 1 if number % 3 == 0 else 6) for _ in range(vocab)]
    logits = torch.tensor([logits], dtype=torch.float32)
    ids = [rng.randrange(vocab) for _ in range(rng.randrange(32, 45))]
    bias, allowed, bad, penalty = {}, [], [], 1.0
    processors = transformers.LogitsProcessorList()
    if number % 2 == 0:
        bias = {i: round(rng.uniform(-5, 5), 2) for i in rng.sample(range(vocab), 6)}
        processors.append(SequenceBiasLogitsProcessor({(k,): v for k, v in bias.items()}))
    if number % 4 < 2:
        penalty = 1.3
        processors.append(RepetitionPenaltyLogitsProcessor(penalty))
    if number % 3 != 1:
        bad = bad_words(rng, vocab, ids)
        processors.append(NoBadWordsLogitsProcessor(bad, eos_token_id=vocab + 1))
    if number % 5 < 2:
        allowed = sorted(rng.sample(range(vocab), 9))
        processors.append(PrefixConstrainedLogitsProcessor(lambda _b, _s: allowed, 1))
    left = processors(torch.tensor([ids]), logits.clone())[0].tolist()
    order = [i for i in range(vocab) if left[i] != float("-inf")]
    order.sort(key=lambda i: (-left[i], i))
    print("case", vocab)
    print(" ".join(bits(v) for v in logits[0].tolist()))
    print(line(ids))
    print(bits(penalty))
    print(line(f"{k} {bits(v)}" for k, v in bias.items()))
    print(line(allowed))
    print(line(line(w) for w in bad))
    print(line(order))


def main():
    print("# tools/dev/dump_rules.py, transformers", transformers.__version__,
          "torch", torch.__version__)
    rng = random.Random(20)
    for number in range(CASES):
        case(rng, number)


if __name__ == "__main__":
    sys.exit(main())
