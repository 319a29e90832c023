#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Write transformers' results for a model directory and prompts: reference.txt.

Weights are loaded as stored and computed in fp32 with eager attention.  For
each prompt the file has the log-probability of each prompt token after
the first with the best five alternatives, then those of the greedy
continuation.  The format is lines of words:

    model NAME
    dtype F32                      type in which most weights are stored
    prompt 5 17 3 ...              starts a case; token ids
    p POS TOKEN LOGPROB ID:LOGPROB x 5
    g POS TOKEN LOGPROB GAP ID:LOGPROB x 5     greedy
    end

Rotary embeddings whose frequencies depend on the length of the text (dynamic, longrope)
use the length of the prompt and the whole continuation from the first token on.

POS is the absolute position of the token, LOGPROB the log-softmax of the
raw logits.  GAP is the distance of the two best logits: one below 1e-4 is
a near-tie, marked by ~ before it, after which tokens may differ.
The continuation does not stop at end-of-sequence ids.
"""

import argparse
import os
import sys
import types

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

NEAR_TIE = 1e-4
N_TOP = 5


def best(logprobs):
    top = torch.topk(logprobs, N_TOP)
    return " ".join(f"{i}:{v:.7g}" for v, i in zip(top.values.tolist(), top.indices.tolist()))


def fix_length(model, length):
    """Use the rotary frequencies of this length, whatever the length so far."""
    rope = getattr(model.model, "language_model", model.model).rotary_emb
    kind = getattr(rope, "rope_type", None)
    if kind not in ("dynamic", "longrope"):
        return
    rope.inv_freq = ROPE_INIT_FUNCTIONS[kind](model.config, None, seq_len=length)[0]
    rope.forward = types.MethodType(type(rope).forward.__wrapped__, rope)


@torch.no_grad()
def dump_case(model, ids, n_new, out):
    prompt = list(ids)
    fix_length(model, len(prompt) + n_new)
    out.append("prompt " + " ".join(map(str, prompt)))
    logits = model(torch.tensor([prompt])).logits[0].float()
    lp = torch.log_softmax(logits, -1)
    for i, tok in enumerate(prompt[1:]):
        out.append(f"p {i + 1} {tok} {lp[i, tok].item():.7g} {best(lp[i])}")
    generated = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=n_new, min_new_tokens=n_new, do_sample=False, eos_token_id=None,
        pad_token_id=0)[0].tolist()
    # generate() chose the tokens; one pass over the whole text gives the numbers.
    logits = model(torch.tensor([generated])).logits[0].float()
    lp = torch.log_softmax(logits, -1)
    for pos in range(len(prompt), len(generated)):
        tok = generated[pos]
        two = torch.topk(logits[pos - 1], 2).values
        gap = (two[0] - two[1]).item()
        mark = "~" if gap < NEAR_TIE else ""
        out.append(f"g {pos} {tok} {lp[pos - 1, tok].item():.7g} {mark}{gap:.4g} "
                   f"{best(lp[pos - 1])}")
    out.append("end")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="model directory")
    p.add_argument("--ids", action="append", default=[],
                   help="a prompt, ids separated by commas; may be given again")
    p.add_argument("--random", type=int, nargs=2, metavar=("N", "LENGTH"), default=(0, 0),
                   help="N random prompts of LENGTH ids")
    p.add_argument("--new", type=int, default=32, help="tokens to generate")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--out", help="default: MODEL/reference.txt; - for standard output")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    stored = transformers.AutoConfig.from_pretrained(a.model).dtype
    model = transformers.AutoModelForCausalLM.from_pretrained(
        a.model, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    model.generation_config.eos_token_id = None
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    out = [f"model {os.path.basename(os.path.normpath(a.model))}",
           f"dtype {names.get(stored, 'F32')}"]
    prompts = [[int(i) for i in s.split(",")] for s in a.ids]
    g = torch.Generator().manual_seed(a.seed)
    for _ in range(a.random[0]):
        prompts.append(torch.randint(4, model.config.get_text_config().vocab_size, (a.random[1],),
                                     generator=g).tolist())
    if not prompts:
        sys.exit("no prompt: give --ids or --random")
    for ids in prompts:
        dump_case(model, ids, a.new, out)
    text = "\n".join(out) + "\n"
    if a.out == "-":
        sys.stdout.write(text)
        return
    with open(a.out or os.path.join(a.model, "reference.txt"), "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
