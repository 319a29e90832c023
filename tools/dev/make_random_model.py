#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Make a random model directory in the Hugging Face layout, with transformers.

Weights are drawn at a scale at which logits are spread like a trained
model's: greedy choices are then rarely close to a tie, so that they can be
compared between implementations.  Everything follows from the options and
the seed.
"""

import argparse
import json
import os
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def rope_parameters(a):
    rope = {"rope_type": a.rope, "rope_theta": a.rope_theta}
    if a.rope != "default":
        rope["factor"] = a.rope_factor
    if a.rope == "llama3":
        rope["low_freq_factor"] = 1.0
        rope["high_freq_factor"] = 4.0
        rope["original_max_position_embeddings"] = a.rope_original
    return rope


def make_config(a):
    common = dict(
        vocab_size=a.vocab, hidden_size=a.hidden, intermediate_size=a.ffn,
        num_hidden_layers=a.layers, num_attention_heads=a.heads,
        num_key_value_heads=a.kv_heads or a.heads,
        head_dim=a.head_dim or a.hidden // a.heads,
        max_position_embeddings=a.max_pos, rms_norm_eps=1e-5,
        tie_word_embeddings=a.tied, attention_bias=a.attention_bias,
        bos_token_id=1, eos_token_id=2, rope_parameters=rope_parameters(a))
    if a.family == "llama":
        return transformers.LlamaConfig(mlp_bias=a.mlp_bias, **common)
    if a.family == "mistral":
        del common["attention_bias"]
        return transformers.MistralConfig(sliding_window=a.window or None, **common)
    if a.family == "qwen2":
        del common["attention_bias"], common["head_dim"]
    if a.window:
        common.update(use_sliding_window=True, sliding_window=a.window,
                      max_window_layers=a.full_layers)
    return (transformers.Qwen2Config if a.family == "qwen2" else transformers.Qwen3Config)(
        **common)


def randomize(model, a):
    g = torch.Generator().manual_seed(a.seed)
    for name, p in sorted(model.named_parameters()):
        noise = torch.randn(p.shape, generator=g, dtype=torch.float32)
        if p.dim() == 1:
            p.data = (1 if "norm" in name else 0) + 0.2 * noise
        elif "lm_head" in name or (a.tied and "embed" in name):
            p.data = noise * (a.logit_scale / a.hidden ** 0.5)
        elif "embed" in name:
            p.data = noise
        else:
            p.data = noise * (a.gain / p.shape[1] ** 0.5)


def old_spelling(path, a):
    """Rewrite config.json as transformers 4 wrote it."""
    with open(path, encoding="utf-8") as f:
        c = json.load(f)
    rope = c.pop("rope_parameters")
    c["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    c["rope_scaling"] = None
    if kind != "default":
        c["rope_scaling"] = {("type" if a.old_spelling == "type" else "rope_type"): kind, **rope}
    c["torch_dtype"] = c.pop("dtype")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(c, f, indent=2, sort_keys=True)
        f.write("\n")


def save_weights(tensors, out, shards):
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, os.path.join(out, "model.safetensors"), {"format": "pt"})
        return
    weight_map = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {n: tensors[n] for n in names[i::shards]}
        save_file(part, os.path.join(out, name), {"format": "pt"})
        weight_map.update({n: name for n in part})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    with open(os.path.join(out, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": total},
                   "weight_map": dict(sorted(weight_map.items()))}, f, indent=1)
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", help="directory to make; must not exist, or --force")
    p.add_argument("--family", choices=["llama", "mistral", "qwen2", "qwen3"], default="llama")
    p.add_argument("--window", type=int, default=0, help="mistral, qwen2, qwen3; 0: none")
    p.add_argument("--full-layers", type=int, default=0,
                   help="qwen2, qwen3: layers before the first with a window")
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--ffn", type=int, default=96)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--kv-heads", type=int, default=0, help="0: as many as heads")
    p.add_argument("--head-dim", type=int, default=0, help="0: hidden / heads")
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--max-pos", type=int, default=512)
    p.add_argument("--tied", action="store_true")
    p.add_argument("--attention-bias", action="store_true")
    p.add_argument("--mlp-bias", action="store_true", help="llama only")
    p.add_argument("--dtype", choices=list(DTYPES) + ["mixed"], default="f32",
                   help="mixed: bf16, but k_proj and up_proj f16")
    p.add_argument("--rope", choices=["default", "linear", "llama3"], default="default")
    p.add_argument("--rope-theta", type=float, default=10000.0)
    p.add_argument("--rope-factor", type=float, default=8.0)
    p.add_argument("--rope-original", type=int, default=64,
                   help="llama3: original_max_position_embeddings")
    p.add_argument("--old-spelling", choices=["type", "rope_type"],
                   help="rope_theta, rope_scaling and torch_dtype as before transformers 5")
    p.add_argument("--shards", type=int, default=1)
    p.add_argument("--logit-scale", type=float, default=4.0,
                   help="standard deviation of the logits")
    p.add_argument("--gain", type=float, default=1.5,
                   help="scale of the layers' weights: above 1 attention is sharp")
    p.add_argument("--tokenizer", help="directory whose tokenizer files are copied")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--force", action="store_true", help="replace files in OUT")
    a = p.parse_args()
    if os.path.exists(a.out) and not a.force:
        sys.exit(f"{a.out}: exists; give --force to write into it")
    os.makedirs(a.out, exist_ok=True)

    config = make_config(a)
    cls = {"llama": transformers.LlamaForCausalLM,
           "mistral": transformers.MistralForCausalLM,
           "qwen2": transformers.Qwen2ForCausalLM,
           "qwen3": transformers.Qwen3ForCausalLM}[a.family]
    dtype = DTYPES.get(a.dtype, torch.bfloat16)
    config.dtype = dtype
    config.architectures = [cls.__name__]
    with torch.device("cpu"):
        model = cls(config)
    randomize(model, a)
    tensors = {}
    for name, t in model.named_parameters():
        kind = dtype
        if a.dtype == "mixed" and ("k_proj" in name or "up_proj" in name):
            kind = torch.float16
        tensors[name] = t.data.to(kind).contiguous()
    save_weights(tensors, a.out, a.shards)
    config.save_pretrained(a.out)
    if a.old_spelling:
        old_spelling(os.path.join(a.out, "config.json"), a)
    gen = {"bos_token_id": 1, "eos_token_id": [2, 3], "do_sample": False}
    with open(os.path.join(a.out, "generation_config.json"), "w", encoding="utf-8") as f:
        json.dump(gen, f, indent=2)
        f.write("\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if a.tokenizer and os.path.exists(os.path.join(a.tokenizer, name)):
            shutil.copy(os.path.join(a.tokenizer, name), a.out)
    n = sum(t.numel() for t in tensors.values())
    print(f"{a.out}: {n} parameters, {a.family}, {a.dtype}")


if __name__ == "__main__":
    main()
