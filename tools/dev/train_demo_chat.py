#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Train the demo model for chat: conf/models/demo to conf/models/demo-chat.

The demo model is trained on conversations made of demo_chat.txt, mixed with rows of its
first text, so that it still writes verses. Its vocabulary is cut to the first --vocab
tokens (the later merges of a BPE are the rare ones), two of which become the marks of a
turn, and its matrices are rounded to e4m3 with a scale per row, which the last steps of
the training take into account: the file is half as large as the demo model's.

The last of a block's four or more questions is held out. At the end the script reports
how many held-out questions get, greedily, an answer of their block. --more DIR continues
with a model that the script wrote. Needs python3 with torch, tokenizers, safetensors.
Twenty minutes of one CPU core.
"""

import argparse
import json
import math
import os
import random
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

import train_demo as base

START, END = "<|im_start|>", "<|im_end|>"
HERE = os.path.dirname(os.path.abspath(__file__))
ROW = 256  # tokens of a training row
SYSTEMS = ["You are a helpful assistant.", "Answer briefly.", "You are the demo model of fdd.",
           "Be kind and answer in one sentence."]
NAMES = ("Anna Ben Carla David Emma Felix Grace Hannah Ivan Julia Karl Laura Max Nina Oscar Paula Robert Sarah Thomas "
         "Ursula Victor William Xenia Yara Alice Bob Chris Dora Eric Frank Gina Henry Ida Jack Kate Leo Mary Nora "
         "Otto Peter Ruth Simon Tina Vera Walter John James Lisa Mark Paul Susan Tom Tim Sam Joe Jane Kim Lee "
         "Adam Eve Noah Esther Daniel Jonah Martha Luke Naomi Samuel Rachel Leah Jacob Joseph Miriam Aaron").split()
TEMPLATE = """{#- Turns between marks, as in ChatML. -#}
{{- bos_token }}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


# ---------------------------------------------------------------- text

def read_blocks(path):
    """List of (questions, held-out question or None, answers)."""
    blocks, q, a = [], [], []
    with open(path, encoding="utf-8") as f:
        for line in list(f) + ["\n"]:
            line = line.rstrip("\n")
            if line.startswith("Q: "):
                q.append(line[3:])
            elif line.startswith("A: "):
                a.append(line[3:])
            elif line == "" and q:
                if not a:
                    sys.exit(f"{path}: no answer to '{q[0]}'")
                held = q.pop() if len(q) >= 4 else None
                blocks.append((q, held, a))
                q, a = [], []
            elif line and not line.startswith("#"):
                sys.exit(f"{path}: '{line}' is no question, answer or comment")
    return blocks


def vary(q, rng):
    """Vary a question as users do: capitals, a question mark, a polite word or not."""
    r = rng.random()
    if r < 0.25:
        q = q.lower()
    if rng.random() < 0.25:
        q = q.rstrip("?.") or q
    elif q[-1].isalnum() and rng.random() < 0.3:
        q += rng.choice((".", "!", "?"))
    if rng.random() < 0.06:
        q = rng.choice(("Please, ", "Tell me: ", "Say, ")) + q[0].lower() + q[1:]
    return q


def conversation(blocks, verses, rng):
    """[(role, text)] of one to three questions in random order."""
    out = []
    if rng.random() < 0.25:
        out.append(("system", rng.choice(SYSTEMS)))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        qs, _, answers = rng.choice(blocks)
        q = vary(rng.choice(qs).replace("{name}", rng.choice(NAMES)), rng)
        out.append(("user", q))
        out.append(("assistant", rng.choice(answers).replace("{verse}", rng.choice(verses))))
    return out


class Marks:
    def __init__(self, tok):
        self.tok = tok
        self.start, self.end, self.eot = (tok.token_to_id(t) for t in (START, END, base.EOT))

    def ids(self, text):
        return self.tok.encode(text, add_special_tokens=False).ids

    def prompt(self, turns):
        """The template's output for these turns, as ids."""
        out = [self.eot]
        for role, text in turns:
            out += [self.start] + self.ids(role + "\n" + text) + [self.end] + self.ids("\n")
        return out + [self.start] + self.ids("assistant\n")

    def taught(self, turns):
        """(ids, targets): only the assistant's turns are targets."""
        ids, tgt = [self.eot], [-100]
        for role, text in turns:
            head = [self.start] + self.ids(role + "\n")
            body = self.ids(text) + [self.end]
            if role != "assistant": # one text: the parts may merge
                head, body = [self.start] + self.ids(role + "\n" + text) + [self.end], []
            tail = self.ids("\n")
            ids += head + body + tail
            tgt += [-100] * len(head) + body + [-100] * len(tail)
        return ids[:-1], tgt[1:]


def rows(marks, blocks, chapters, rng, n_row, share):
    """n_row rows: conversations, and this share of rows of the first text."""
    verses = [v for c in chapters for v in c if 40 < len(v) < 160 and v[-1] == "."]
    out = []
    for _ in range(n_row):
        ids, tgt, doc, n = [], [], [], 0
        is_text = rng.random() < share
        while len(ids) < ROW:
            if is_text:
                text = base.join(base.with_breaks(rng.choice(chapters)))
                at = rng.randrange(max(1, len(text) - 900))
                i = [marks.eot] + marks.ids(text[at:at + 900].split(" ", 1)[-1])
                i, t = i[:-1], i[1:]
            else:
                i, t = marks.taught(conversation(blocks, verses, rng))
            ids, tgt, doc, n = ids + i, tgt + t, doc + [n] * len(i), n + 1
        out.append((ids[:ROW], tgt[:ROW], doc[:ROW]))
    return [torch.tensor(x) for x in zip(*out)]


# --------------------------------------------------------------- model

def cut_tokenizer(path, vocab):
    """tokenizer.json of the first vocab - 3 tokens and the three marks; their old ids."""
    with open(path, encoding="utf-8") as f:
        j = json.load(f)
    old, m = j["model"]["vocab"], j["model"]
    n = vocab - 3
    words = [None] * len(old)
    for w, i in old.items():
        if i < len(words):
            words[i] = w
    def joined(x):
        return "".join(x) if isinstance(x, list) else x.replace(" ", "", 1)
    m["vocab"] = {w: i for i, w in enumerate(words[:n])}
    m["merges"] = [x for x in m["merges"] if old[joined(x)] < n]
    was = j["added_tokens"][0]["id"]
    marks = {START: n, END: n + 1, base.EOT: n + 2}
    j["added_tokens"] = [dict(j["added_tokens"][0], id=i, content=t) for t, i in marks.items()]
    m["vocab"].pop(base.EOT, None)
    for special in j["post_processor"]["processors"]:
        for t in special.get("special_tokens", {}).values():
            t["ids"] = [marks[base.EOT]]
    return Tokenizer.from_str(json.dumps(j)), list(range(n)) + [was] * 3


def round_e4m3(w):
    """(values, bytes, scales): e4m3 with a scale per row, as the checkpoint has it."""
    scale = (w.abs().amax(1, keepdim=True) / 448).clamp(1e-12)
    q = (w / scale).to(torch.float8_e4m3fn)
    return q.float() * scale, q, scale


def is_matrix(name):
    return name.endswith("proj.weight")


def step_loss(model, ids, tgt, doc):
    logits = model(ids, doc).float().flatten(0, 1)
    return F.cross_entropy(logits, tgt.flatten(), ignore_index=-100)


def train(model, marks, blocks, chapters, args):
    opts = [torch.optim.AdamW([p for p in model.parameters() if p.dim() == 2], args.lr, betas=(0.9, 0.98),
                              weight_decay=0.05),
            torch.optim.AdamW([p for p in model.parameters() if p.dim() != 2], args.lr, weight_decay=0)]
    rng = random.Random(args.seed)
    begin, mean = time.time(), None
    mats = [p for n, p in model.named_parameters() if is_matrix(n)]
    model.train()
    for step in range(args.steps):
        done = step / args.steps
        lr = args.lr * min(1, (step + 1) / 40) * (0.5 + 0.5 * math.cos(math.pi * done))
        for o in opts:
            for g in o.param_groups:
                g["lr"] = lr + 1e-6
        data = rows(marks, blocks, chapters, rng, args.batch, args.text_share)
        exact = [p.detach().clone() for p in mats] if done > 0.7 else None
        if exact: # the gradient is that of the rounded weights
            with torch.no_grad():
                for p in mats:
                    p.copy_(round_e4m3(p)[0])
        loss = step_loss(model, *data)
        loss.backward()
        if exact:
            with torch.no_grad():
                for p, e in zip(mats, exact):
                    p.copy_(e)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in opts:
            o.step()
            o.zero_grad(set_to_none=True)
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 50 == 0 or step == args.steps - 1:
            print(f"step {step} loss {mean:.3f} {time.time() - begin:.0f} s", flush=True)
    with torch.no_grad():
        for p in mats:
            p.copy_(round_e4m3(p)[0])
        for p in model.parameters():
            p.copy_(p if p.dim() == 2 and any(p is m for m in mats) else p.bfloat16().float())
    model.eval()


# ---------------------------------------------------------- evaluation

@torch.no_grad()
def answer(model, marks, turns, most=60):
    ids = marks.prompt(turns)
    n = len(ids)
    while len(ids) < n + most:
        new = model(torch.tensor([ids]))[0, -1].argmax().item()
        if new in (marks.end, marks.eot):
            break
        ids.append(new)
    return marks.tok.decode(ids[n:])


def report(model, marks, blocks):
    good = n = 0
    for _, held, answers in blocks:
        if held is None or "{verse}" in answers[0]:
            continue
        said = answer(model, marks, [("user", held.replace("{name}", "Clara"))])
        ok = said in answers
        good, n = good + ok, n + 1
        if not ok:
            print(f"  {held} -> {said}")
    print(f"held-out questions answered as in their block: {good} of {n}")
    for q in ("Write a verse", "Hello! Who are you?", "who was the father of Solomon", "Why is the sky blue?"):
        print(f"  {q} -> {answer(model, marks, [('user', q)])}")


# --------------------------------------------------------------- files

def read_weights(path):
    """Read the weights that export() wrote, as float."""
    w = load_file(os.path.join(path, "model.safetensors"))
    return {k.removeprefix("model."): v.float() * w.get(k + "_scale", torch.tensor(1.0))
            for k, v in w.items() if not k.endswith("_scale")}



def export(model, tok, out):
    base.export(model, tok, out)
    weights = {}
    for name, w in model.state_dict().items():
        if is_matrix(name):
            _, q, scale = round_e4m3(w)
            weights["model." + name] = q.contiguous()
            weights["model." + name + "_scale"] = scale.contiguous()
        else:
            weights["model." + name] = w.bfloat16().contiguous()
    path = os.path.join(out, "model.safetensors")
    save_file(weights, path, {"format": "pt"})
    os.chmod(path, 0o644)
    ids = {t: tok.token_to_id(t) for t in (START, END, base.EOT)}
    args8 = {"num_bits": 8, "type": "float", "symmetric": True}
    edit(out, "config.json", eos_token_id=[ids[END], ids[base.EOT]], quantization_config={
        "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
        "ignore": ["lm_head"], "kv_cache_scheme": None,
        "config_groups": {"group_0": {
            "targets": ["Linear"], "output_activations": None,
            "weights": dict(args8, strategy="channel", dynamic=False),
            "input_activations": dict(args8, strategy="token", dynamic=True)}}})
    edit(out, "generation_config.json", eos_token_id=[ids[END], ids[base.EOT]], temperature=0.4, top_p=0.9)
    edit(out, "tokenizer_config.json", eos_token=END, added_tokens_decoder={
        str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                 "special": True} for t, i in ids.items()})
    with open(os.path.join(out, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)


def edit(out, name, **fields):
    path = os.path.join(out, name)
    with open(path, encoding="utf-8") as f:
        j = json.load(f)
    j.update(fields)
    base.write_json(path, j)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a = ap.add_argument
    a("--text", required=True, help="the demo model's text, as demo_data.py writes it")
    a("--model", default=os.path.join(HERE, "../../conf/models/demo"), help="(%(default)s)")
    a("--chat", default=os.path.join(HERE, "demo_chat.txt"), help="(%(default)s)")
    a("--more", help="go on with the model in this directory, which the script wrote")
    a("--out", required=True, help="model directory to write")
    a("--vocab", type=int, default=2560, help="tokens to keep (%(default)s)")
    a("--steps", type=int, default=900, help="(%(default)s)")
    a("--batch", type=int, default=8, help=f"rows of {ROW} tokens (%(default)s)")
    a("--lr", type=float, default=1e-3, help="peak learning rate (%(default)s)")
    a("--text-share", type=float, default=0.2, help="rows of the demo model's text (%(default)s)")
    a("--threads", type=int, default=1, help="(%(default)s)")
    a("--seed", type=int, default=1, help="(%(default)s)")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    chapters = base.read_chapters(args.text)
    random.Random(1).shuffle(chapters) # as train_demo.py holds them out
    chapters = [c for i, c in enumerate(chapters) if i % 20]
    blocks = read_blocks(args.chat)
    old, _ = base.load(args.model, "cpu")
    tok, was = cut_tokenizer(os.path.join(args.model, "tokenizer.json"), args.vocab)
    model = base.Llama(dict(old.c, vocab=args.vocab))
    state = old.state_dict()
    state["embed_tokens.weight"] = state["embed_tokens.weight"][was] + 0.0
    state["embed_tokens.weight"][-3:-1] += 0.02 * torch.randn(2, old.c["hidden"])
    if args.more:
        state = read_weights(args.more)
    model.load_state_dict(state)
    marks = Marks(tok)
    train(model, marks, blocks, chapters, args)
    os.makedirs(args.out, exist_ok=True)
    export(model, tok, args.out)
    report(model, marks, blocks)


if __name__ == "__main__":
    main()
