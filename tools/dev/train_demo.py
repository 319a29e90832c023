#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Train the demo model: a small Llama with its own byte-level BPE.

The text file holds one verse (or sentence group) a line and an empty
line after each chapter, as demo_data.py writes it.  Every 20th chapter
of a seeded shuffle is held out: it is never trained on, and the reported
loss is the loss on it (it also picks the best epoch).  With --teachers N,
N larger models are trained first and the demo model learns from their
mean prediction as well: on this text 2.82 nats per token in place of 2.91.

Writes a Hugging Face model directory, bf16, and prints the held-out
loss, sample texts, and the share of generated word 6-grams that occur
in the training text.  Needs python3 with torch, tokenizers, safetensors.
A GPU takes minutes; --device cpu --steps 20 shows that it runs.
"""

import argparse
import concurrent.futures
import json
import math
import os
import random
import re
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models
from tokenizers import pre_tokenizers, processors, trainers
from torch import nn

EOT = "<|endoftext|>"
MAX_LEN = 1024
ROPE_THETA = 10000.0
NORM_EPS = 1e-5
# The Split pattern of Llama 3's tokenizer.json.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
OPENERS = re.compile(
    r"(And it came to pass|And it shall come to pass|And the LORD (said|spake)"
    r"|Now |Then |After |Thus saith|Moreover |Wherefore |Therefore |But |Behold"
    r"|Hear |Woe |In (that|those) day|And in |Praise |Blessed |O |Furthermore"
    r"|And when |The word )")
PROMPTS = ["", "In the beginning", "And the king said unto", "Blessed is the man",
           "And it came to pass in those days", "The words of the wise",
           "Behold, I will", "Now there was a man"]


# ---------------------------------------------------------------- text

def read_chapters(path):
    with open(path, encoding="utf-8") as f:
        blocks = f.read().split("\n\n")
    chapters = [[v for v in b.split("\n") if v] for b in blocks]
    chapters = [c for c in chapters if c]
    if len(chapters) < 40:
        sys.exit(f"{path}: {len(chapters)} chapters; at least 40 are needed"
                 " (an empty line ends a chapter)")
    return chapters


def with_breaks(verses):
    """Join verses to running text: list of (separator, verse).

    The source marks no paragraphs, so one begins where a sentence is
    complete and the next verse opens like a new thought, or when the
    paragraph grows long.
    """
    out, n = [], 0
    for i, v in enumerate(verses):
        done = i and verses[i - 1][-1] in ".?!)"
        if done and ((n >= 3 and OPENERS.match(v)) or n >= 8):
            out.append(("\n\n", v))
            n = 1
        else:
            out.append((" ", v))
            n += 1
    return out


def join(parts):
    return "".join(sep + v for sep, v in parts).strip()


def passages(chapter, rng):
    """Cut a chapter at random sentence ends, so that texts begin and end
    at many places; half of the chapters stay whole."""
    parts = with_breaks(chapter)
    ends = [i for i in range(1, len(parts)) if parts[i - 1][1][-1] in ".?!"]
    n_cut = min(len(ends), rng.choice((0, 0, 1, 2)))
    cuts = [0] + sorted(rng.sample(ends, n_cut)) + [len(parts)]
    return [join(parts[a:b]) for a, b in zip(cuts, cuts[1:])]


def train_tokenizer(texts, vocab):
    """Llama 3's pipeline; the end-of-text token is added after the merges."""
    tok = Tokenizer(models.BPE(byte_fallback=False))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab - 1, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.add_special_tokens([EOT])
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single=f"{EOT} $A", pair=f"{EOT} $A {EOT} $B",
            special_tokens=[(EOT, tok.token_to_id(EOT))])])
    return tok


class Data:
    """Token rows: ids, targets (-100 = none), document number per token."""

    def __init__(self, tok, train, held_out):
        self.tok = tok
        self.train = train
        self.eot = tok.token_to_id(EOT)
        whole = [join(with_breaks(c)) for c in held_out]
        self.held_bytes = sum(len(t.encode()) for t in whole)
        self.held = self.rows(tok, whole)

    def rows(self, tok, texts):
        ids, tgt, doc = [], [], []
        for n, enc in enumerate(tok.encode_batch(texts)):
            ids += enc.ids
            tgt += enc.ids[1:] + [self.eot]
            doc += [n] * len(enc.ids)
        pad = -len(ids) % MAX_LEN
        ids, tgt, doc = ids + [self.eot] * pad, tgt + [-100] * pad, doc + [-1] * pad
        return [torch.tensor(x).view(-1, MAX_LEN) for x in (ids, tgt, doc)]

    def epoch(self, seed):
        rng = random.Random(seed)
        texts = [p for c in self.train for p in passages(c, rng)]
        rng.shuffle(texts)
        return self.rows(self.tok, texts)


# --------------------------------------------------------------- model

class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, d = c, c["head_dim"]
        self.q_proj = nn.Linear(c["hidden"], c["heads"] * d, bias=False)
        self.k_proj = nn.Linear(c["hidden"], c["kv_heads"] * d, bias=False)
        self.v_proj = nn.Linear(c["hidden"], c["kv_heads"] * d, bias=False)
        self.o_proj = nn.Linear(c["heads"] * d, c["hidden"], bias=False)

    def forward(self, x, rope, mask):
        c, (B, T, _) = self.c, x.shape
        q = self.q_proj(x).view(B, T, c["heads"], -1).transpose(1, 2)
        k = self.k_proj(x).view(B, T, c["kv_heads"], -1).transpose(1, 2)
        v = self.v_proj(x).view(B, T, c["kv_heads"], -1).transpose(1, 2)
        q, k = rotate(q, *rope), rotate(k, *rope)
        n = c["heads"] // c["kv_heads"]
        k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None,
            dropout_p=c["dropout"] if self.training else 0.0)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden"], c["ffn"], bias=False)
        self.up_proj = nn.Linear(c["hidden"], c["ffn"], bias=False)
        self.down_proj = nn.Linear(c["ffn"], c["hidden"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c["hidden"], NORM_EPS)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c["hidden"], NORM_EPS)
        self.mlp = Mlp(c)
        self.drop = nn.Dropout(c["dropout"])

    def forward(self, x, rope, mask):
        x = x + self.drop(self.self_attn(self.input_layernorm(x), rope, mask))
        return x + self.drop(self.mlp(self.post_attention_layernorm(x)))


class Llama(nn.Module):
    """Parameter names are those of the Hugging Face layout after 'model.'."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c["vocab"], c["hidden"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["hidden"], NORM_EPS)
        self.drop = nn.Dropout(c["dropout"])
        for name, p in self.named_parameters():
            if p.dim() == 2:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / math.sqrt(2 * c["layers"]) if out else 0.02
                nn.init.normal_(p, std=std)
        d = c["head_dim"]
        freq = ROPE_THETA ** (-torch.arange(0, d, 2).float() / d)
        ang = torch.outer(torch.arange(MAX_LEN).float(), freq)
        ang = torch.cat((ang, ang), -1)
        self.register_buffer("cos", ang.cos(), persistent=False)
        self.register_buffer("sin", ang.sin(), persistent=False)

    def forward(self, ids, doc=None):
        T = ids.shape[1]
        mask = None
        if doc is not None:
            causal = torch.ones(T, T, dtype=torch.bool, device=ids.device).tril()
            mask = (doc[:, None, :, None] == doc[:, None, None, :]) & causal
        rope = self.cos[:T], self.sin[:T]
        x = self.drop(self.embed_tokens(ids))
        for layer in self.layers:
            x = layer(x, rope, mask)
        return F.linear(self.norm(x), self.embed_tokens.weight)


# ------------------------------------------------------------ training

class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised by Newton-Schulz; matrices of
    one shape are stepped together."""

    def __init__(self, params, lr, weight_decay, momentum=0.95):
        shapes = {}
        for p in params:
            shapes.setdefault(p.shape, []).append(p)
        super().__init__([{"params": ps} for ps in shapes.values()],
                         dict(lr=lr, weight_decay=weight_decay, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            grad = torch.stack([p.grad for p in g["params"]])
            st = self.state[g["params"][0]]
            buf = st.setdefault("buf", torch.zeros_like(grad))
            buf.lerp_(grad, 1 - g["momentum"])
            x = grad.lerp(buf, g["momentum"]).bfloat16()
            if x.shape[1] > x.shape[2]:
                x = x.mT
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                a = x @ x.mT
                x = 3.4445 * x + (-4.775 * a + 2.0315 * (a @ a)) @ x
            if grad.shape[1] > grad.shape[2]:
                x = x.mT
            scale = 0.2 * math.sqrt(max(grad.shape[1:])) * g["lr"]
            torch._foreach_mul_(g["params"], 1 - g["lr"] * g["weight_decay"])
            torch._foreach_add_(g["params"], list(x.float().unbind(0)), alpha=-scale)


def optimizers(model, lr, weight_decay, fused):
    mats = [p for n, p in model.named_parameters() if n.endswith("proj.weight")]
    rest = [p for n, p in model.named_parameters() if not n.endswith("proj.weight")]
    return [Muon(mats, lr, weight_decay),
            torch.optim.AdamW(rest, lr, betas=(0.9, 0.98), fused=fused,
                              weight_decay=0.1)]


def autocast(device):
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


@torch.no_grad()
def held_out_loss(net, data, device, batch=16):
    """Mean loss in nats per token over the held-out chapters."""
    for m in net:
        m.eval()
    total = count = 0
    for i in range(0, len(data.held[0]), batch):
        ids, tgt, doc = (x[i:i + batch].to(device) for x in data.held)
        logp = mean_logp(net, ids, doc)
        total += F.nll_loss(logp.flatten(0, 1), tgt.flatten(), ignore_index=-100,
                            reduction="sum").item()
        count += (tgt != -100).sum().item()
    return total / count, count


def mean_logp(net, ids, doc):
    """Log of the mean probability of several models."""
    lp = torch.stack([F.log_softmax(m(ids, doc).float(), -1) for m in net])
    return torch.logsumexp(lp, 0) - math.log(len(net))


def row_loss(fwd, ids, tgt, doc, teachers, args):
    """Cross entropy, mixed with the distance to the teachers if there are any."""
    with autocast(args.device):
        logits = fwd(ids, doc)
        if teachers:
            with torch.no_grad():
                want = mean_logp(teachers, ids, doc).flatten(0, 1)
    logits = logits.float().flatten(0, 1)
    loss = F.cross_entropy(logits, tgt.flatten(), ignore_index=-100)
    if not teachers:
        return loss
    kl = F.kl_div(F.log_softmax(logits, -1), want, log_target=True,
                  reduction="batchmean")
    return (1 - args.alpha) * loss + args.alpha * kl


def train(c, data, args, seed, epochs, label, teachers=()):
    torch.manual_seed(seed)
    dev = args.device
    model = Llama(c).to(dev)
    n_param = sum(p.numel() for p in model.parameters())
    print(f"{label}: {n_param:,} parameters, {c}", flush=True)
    fused = dev == "cuda"
    opts = optimizers(model, args.lr, c["weight_decay"], fused)
    fwd = torch.compile(model) if args.compile else model

    pool = concurrent.futures.ThreadPoolExecutor(1)
    nxt = pool.submit(data.epoch, seed * 1000)
    per_epoch = len(nxt.result()[0]) // args.batch
    total = args.steps or max(1, round(epochs * per_epoch))
    best, best_loss, step, epoch, t0 = None, math.inf, 0, 0, time.time()
    while step < total:
        rows = [x.to(dev) for x in nxt.result()]
        epoch += 1
        nxt = pool.submit(data.epoch, seed * 1000 + epoch)
        order = torch.randperm(len(rows[0]), device=dev)
        model.train()
        for i in range(0, len(order) - args.batch + 1, args.batch):
            if step == total:
                break
            t = step / total
            lr = args.lr * min(1.0, t / 0.05 + 0.02, (1 - t) / 0.7 + 0.01)
            for o in opts:
                for g in o.param_groups:
                    g["lr"] = lr
            ids, tgt, doc = (x[order[i:i + args.batch]] for x in rows)
            loss = row_loss(fwd, ids, tgt, doc, teachers, args)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for o in opts:
                o.step()
            model.zero_grad(set_to_none=True)
            step += 1
        if epoch % 2 == 0 or step == total:
            with autocast(dev):
                held, _ = held_out_loss([model], data, dev)
            print(f"{label}: epoch {epoch} step {step}/{total} train {loss.item():.3f}"
                  f" held-out {held:.4f} {time.time() - t0:.0f} s", flush=True)
            if held < best_loss:
                best_loss = held
                best = {k: v.clone() for k, v in model.state_dict().items()}
    pool.shutdown()
    model.load_state_dict(best)
    return model.eval()


def repeats(ids, n=8):
    """True where a token completes an n-gram that is already in its row."""
    mult = torch.arange(1, n + 1, device=ids.device) * 0x9E3779B97F4A7C1 | 1
    key = (ids.unfold(1, n, 1) * mult).sum(-1)
    same = (key[:, :, None] == key[:, None, :]).tril(-1).any(-1)
    return F.pad(same, (n - 1, 0))


def break_loops(model, data, args, teachers, n_prompt=32, n_gen=96, n_row=64):
    """Teach the model not to go in circles under greedy decoding.

    Its own greedy continuations are scored, and each token that completes
    an 8-gram already in the text is made less likely, next to ordinary
    training.  The mean of the weights before and after, with the share
    --loop-blend of the latter, keeps nearly all of the gain and loses
    little of the held-out loss.
    """
    dev = args.device
    before = {k: v.clone() for k, v in model.state_dict().items()}
    opt = torch.optim.AdamW(model.parameters(), args.loop_lr, betas=(0.9, 0.98),
                            weight_decay=0.0)
    rows = [x.to(dev) for x in data.epoch(args.seed * 1000 + 999)]
    gen = torch.Generator().manual_seed(args.seed)
    for step in range(args.loop_steps):
        model.eval()
        pick = torch.randint(len(rows[0]), (n_row,), generator=gen)
        at = int(torch.randint(MAX_LEN - n_prompt, (1,), generator=gen))
        seq = rows[0][pick.to(dev), at:at + n_prompt]
        with torch.no_grad(), autocast(dev):
            for _ in range(n_gen):
                seq = torch.cat((seq, model(seq)[:, -1:].argmax(-1)), 1)
        ended = (seq == data.eot).long()
        ended[:, :n_prompt] = 0
        bad = repeats(seq) & (ended.cumsum(1) == 0)
        bad[:, :n_prompt] = False
        with autocast(dev):
            logp = F.log_softmax(model(seq[:, :-1]).float(), -1)
        p = logp.gather(2, seq[:, 1:, None]).squeeze(2).exp()
        loop = -(torch.log(1 - p + 1e-4) * bad[:, 1:]).sum() / bad.sum().clamp(1)
        model.train()
        pick = torch.randint(len(rows[0]), (args.batch,), generator=gen).to(dev)
        loss = row_loss(model, *(x[pick] for x in rows), teachers, args)
        (loss + loop).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step % 20 == 0 or step == args.loop_steps - 1:
            print(f"loops: step {step} train {loss.item():.3f} repeated tokens"
                  f" {100 * bad.sum().item() / (n_row * n_gen):.1f} %", flush=True)
    model.load_state_dict({k: before[k].lerp(v, args.loop_blend)
                           for k, v in model.state_dict().items()})
    model.eval()


# ---------------------------------------------------------- evaluation

@torch.no_grad()
def generate(model, tok, prompts, n_tok, temperature, top_p, device):
    """Continuations as text; a row ends at the end-of-text token."""
    eot = tok.token_to_id(EOT)
    out = [None] * len(prompts)
    groups = {}
    for i, p in enumerate(prompts):
        enc = tok.encode(p).ids
        groups.setdefault(len(enc), []).append((i, enc))
    for n, rows in groups.items():
        ids = torch.tensor([e for _, e in rows], device=device)
        done = torch.zeros(len(rows), dtype=torch.bool, device=device)
        for _ in range(n_tok):
            logits = model(ids)[:, -1].float()
            if temperature == 0:
                new = logits.argmax(-1)
            else:
                p, idx = (logits / temperature).softmax(-1).sort(-1, descending=True)
                p[p.cumsum(-1) - p > top_p] = 0
                new = idx.gather(1, torch.multinomial(p, 1)).squeeze(1)
            new = torch.where(done, eot, new)
            done |= new == eot
            ids = torch.cat((ids, new[:, None]), 1)
            if done.all():
                break
        for (i, _), row in zip(rows, ids[:, n:].tolist()):
            out[i] = tok.decode(row, skip_special_tokens=True)
    return out


def words(text):
    return re.findall(r"[a-z']+", text.lower())


def ngrams(text, n=6):
    w = words(text)
    return [tuple(w[i:i + n]) for i in range(len(w) - n + 1)]


def share_found(texts, known):
    grams = [g for t in texts for g in ngrams(t)]
    return sum(g in known for g in grams) / max(1, len(grams)), len(grams)


def share_repeated(texts):
    """Share of a text's 6-grams that occur earlier in it."""
    n = seen = 0
    for t in texts:
        grams = ngrams(t)
        n += len(grams)
        seen += len(grams) - len(set(grams))
    return seen / max(1, n)


def report(model, data, args, held_out):
    known = {g for c in data.train for g in ngrams(" ".join(c))}
    loss, count = held_out_loss([model], data, args.device)
    bits = loss * count / data.held_bytes / math.log(2)
    print(f"held-out loss {loss:.4f} nats per token, {bits:.4f} bits per byte,"
          f" {count} tokens, {len(held_out)} chapters")
    torch.manual_seed(args.seed)
    gen = (model, data.tok)
    texts = generate(*gen, PROMPTS * args.samples, 300, 0.8, 0.95, args.device)
    greedy = generate(*gen, PROMPTS, 300, 0, 1, args.device)
    for kind, some in (("of the held-out text", [" ".join(c) for c in held_out]),
                       ("generated (temperature 0.8, top-p 0.95)", texts),
                       ("generated (greedy)", greedy)):
        share, n = share_found(some, known)
        print(f"6-grams {kind}: {n}, found in the training text {100 * share:.1f} %,"
              f" said before in the same text {100 * share_repeated(some):.1f} %")
    for kind, some in (("greedy", greedy), ("sampled", texts)):
        for p, t in zip(PROMPTS, some):
            print(f"--- {kind}: '{p}'\n{p}{t}")


# --------------------------------------------------------------- output

def write_json(path, obj):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(obj, f, indent=2)
        f.write("\n")


def export(model, tok, out):
    c, eot = model.c, tok.token_to_id(EOT)
    weights = {"model." + k: v.to(torch.bfloat16).contiguous().cpu()
               for k, v in model.state_dict().items()}
    path = os.path.join(out, "model.safetensors")
    save_file(weights, path, {"format": "pt"})
    os.chmod(path, 0o644)
    tok.save(os.path.join(out, "tokenizer.json"))
    write_json(os.path.join(out, "config.json"), {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": c["vocab"], "hidden_size": c["hidden"],
        "intermediate_size": c["ffn"], "num_hidden_layers": c["layers"],
        "num_attention_heads": c["heads"], "num_key_value_heads": c["kv_heads"],
        "head_dim": c["head_dim"], "max_position_embeddings": MAX_LEN,
        "rms_norm_eps": NORM_EPS, "rope_theta": ROPE_THETA, "rope_scaling": None,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
        "attention_dropout": 0.0, "tie_word_embeddings": True,
        "initializer_range": 0.02, "use_cache": True,
        "bos_token_id": eot, "eos_token_id": eot, "torch_dtype": "bfloat16"})
    write_json(os.path.join(out, "generation_config.json"), {
        "bos_token_id": eot, "eos_token_id": eot, "do_sample": True,
        "temperature": 0.8, "top_p": 0.95})
    write_json(os.path.join(out, "tokenizer_config.json"), {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": EOT,
        "eos_token": EOT, "model_max_length": MAX_LEN,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {str(eot): {
            "content": EOT, "lstrip": False, "normalized": False,
            "rstrip": False, "single_word": False, "special": True}}})


def load(path, device):
    """The model and tokenizer that export() wrote; exact, in fp32."""
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        j = json.load(f)
    model = Llama(dict(
        vocab=j["vocab_size"], hidden=j["hidden_size"],
        layers=j["num_hidden_layers"], heads=j["num_attention_heads"],
        kv_heads=j["num_key_value_heads"], head_dim=j["head_dim"],
        ffn=j["intermediate_size"], dropout=0.0))
    weights = load_file(os.path.join(path, "model.safetensors"))
    model.load_state_dict({k.removeprefix("model."): v.float()
                           for k, v in weights.items()})
    tok = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    return model.to(device).eval(), tok


def parse_args():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    a = ap.add_argument
    a("--text", required=True, help="training text, as demo_data.py writes it")
    a("--out", required=True, help="model directory to write")
    a("--device", default="cuda", help="cuda or cpu (%(default)s)")
    a("--seed", type=int, default=1, help="(%(default)s)")
    a("--vocab", type=int, default=4096, help="vocabulary (%(default)s)")
    a("--hidden", type=int, default=256, help="(%(default)s)")
    a("--layers", type=int, default=6, help="(%(default)s)")
    a("--heads", type=int, default=4, help="(%(default)s)")
    a("--kv-heads", type=int, default=2, help="(%(default)s)")
    a("--head-dim", type=int, default=64, help="(%(default)s)")
    a("--ffn", type=int, default=704, help="(%(default)s)")
    a("--batch", type=int, default=8, help="rows of 1024 tokens (%(default)s)")
    a("--epochs", type=float, default=20, help="(%(default)s)")
    a("--steps", type=int, help="optimizer steps, in place of --epochs")
    a("--lr", type=float, default=4e-3, help="peak learning rate (%(default)s)")
    a("--dropout", type=float, default=0.1, help="(%(default)s)")
    a("--weight-decay", type=float, default=0.5, help="(%(default)s)")
    a("--teachers", type=int, default=2, help="larger models first (%(default)s)")
    a("--teacher-size", default="384,8,6,2,1024", help="hidden,layers,heads,"
      "kv_heads,ffn (%(default)s)")
    a("--teacher-epochs", type=float, default=14, help="(%(default)s)")
    a("--teacher-dropout", type=float, default=0.25, help="(%(default)s)")
    a("--teacher-weight-decay", type=float, default=1.0, help="(%(default)s)")
    a("--alpha", type=float, default=0.7,
      help="weight of the teachers' prediction in the loss (%(default)s)")
    a("--loop-steps", type=int, default=60,
      help="steps against repetition at the end (%(default)s)")
    a("--loop-lr", type=float, default=2e-4, help="(%(default)s)")
    a("--loop-blend", type=float, default=0.6,
      help="how far to go to the weights after these steps (%(default)s)")
    a("--samples", type=int, default=12, help="texts per prompt (%(default)s)")
    a("--evaluate", action="store_true",
      help="only report on the model that --out holds")
    a("--compile", action="store_true", help="torch.compile the model")
    return ap.parse_args()


def main():
    args = parse_args()
    torch.set_float32_matmul_precision("high")
    chapters = read_chapters(args.text)
    random.Random(args.seed).shuffle(chapters)
    held_out, rest = chapters[::20], [c for i, c in enumerate(chapters) if i % 20]
    if args.evaluate:
        model, tok = load(args.out, args.device)
        return report(model, Data(tok, rest, held_out), args, held_out)

    os.makedirs(args.out, exist_ok=True)
    tok = train_tokenizer([join(with_breaks(c)) for c in rest], args.vocab)
    data = Data(tok, rest, held_out)
    teachers = []
    for i in range(args.teachers):
        hidden, layers, heads, kv_heads, ffn = map(int, args.teacher_size.split(","))
        c = dict(vocab=tok.get_vocab_size(), hidden=hidden, layers=layers,
                 heads=heads, kv_heads=kv_heads, head_dim=64, ffn=ffn,
                 dropout=args.teacher_dropout,
                 weight_decay=args.teacher_weight_decay)
        teachers.append(train(c, data, args, args.seed + 1 + i, args.teacher_epochs,
                              f"teacher {i}"))
    if teachers:
        with autocast(args.device):
            loss, _ = held_out_loss(teachers, data, args.device)
        print(f"teachers' mean: held-out {loss:.4f}", flush=True)

    c = dict(vocab=tok.get_vocab_size(), hidden=args.hidden, layers=args.layers,
             heads=args.heads, kv_heads=args.kv_heads, head_dim=args.head_dim,
             ffn=args.ffn, dropout=args.dropout, weight_decay=args.weight_decay)
    model = train(c, data, args, args.seed, args.epochs, "demo", teachers)
    break_loops(model, data, args, teachers)
    # Report on the weights as written, rounded to bf16.
    export(model, tok, args.out)
    report(load(args.out, args.device)[0], data, args, held_out)


if __name__ == "__main__":
    main()
