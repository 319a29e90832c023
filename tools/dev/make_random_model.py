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


# Names of transformers' classes.
FAMILIES = {
    "ernie4_5": "Ernie4_5", "gemma2": "Gemma2", "gemma3": "Gemma3Text",
    "gemma3_text": "Gemma3Text", "glm": "Glm", "glm4": "Glm4",
    "granite": "Granite", "llama": "Llama", "mistral": "Mistral", "olmo2": "Olmo2",
    "olmo3": "Olmo3", "phi3": "Phi3", "qwen2": "Qwen2", "qwen3": "Qwen3", "smollm3": "SmolLM3"}


def model_class(a):
    if a.family == "gemma3":
        return transformers.Gemma3ForConditionalGeneration
    name = {"gemma3_text": "Gemma3"}.get(a.family, FAMILIES[a.family])
    return getattr(transformers, name + "ForCausalLM")


def rope_parameters(a):
    rope = {"rope_type": a.rope, "rope_theta": a.rope_theta}
    if a.partial != 1:
        rope["partial_rotary_factor"] = a.partial
    if a.rope not in ("default", "longrope"):
        rope["factor"] = a.rope_factor
    if a.rope == "llama3":
        rope["low_freq_factor"] = 1.0
        rope["high_freq_factor"] = 4.0
    if a.rope in ("llama3", "yarn", "longrope"):
        rope["original_max_position_embeddings"] = a.rope_original
    if a.rope == "longrope":
        n = int((a.head_dim or a.hidden // a.heads) * a.partial) // 2
        rope["short_factor"] = [1 + i / 8 for i in range(n)]
        rope["long_factor"] = [1.5 + 2 * i for i in range(n)]
    if a.family in ("gemma3", "gemma3_text", "olmo3"):
        return {"full_attention": rope,
                "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}}
    return rope


def own_config(a):
    """The members that only this family's configuration has."""
    window = {"sliding_window": a.window or None}
    if a.family == "llama":
        return {"mlp_bias": a.mlp_bias}
    if a.family == "granite":
        return {"mlp_bias": a.mlp_bias, "embedding_multiplier": 3.0,
                "residual_multiplier": 0.4, "attention_multiplier": 0.4,
                "logits_scaling": 2.5}
    if a.family in ("qwen2", "qwen3"):
        if not a.window:
            return {}
        return {"use_sliding_window": True, "max_window_layers": a.full_layers, **window}
    if a.family == "smollm3":
        return {"mlp_bias": a.mlp_bias, "no_rope_layer_interval": a.every,
                "use_sliding_window": bool(a.window), "pad_token_id": 0, **window}
    if a.family == "phi3":
        own = {**window, "pad_token_id": 0}
        if a.rope == "longrope":
            own["original_max_position_embeddings"] = a.rope_original
        return own
    if a.family in ("gemma2", "gemma3", "gemma3_text"):
        own = {"query_pre_attn_scalar": 24, **window}
        if a.family != "gemma3":
            own["final_logit_softcapping"] = 5.0
        if a.family == "gemma2":
            own["attn_logit_softcapping"] = 2.0
        else:
            own["sliding_window_pattern"] = a.every
        return own
    if a.family in ("glm", "glm4"):
        return {"pad_token_id": 0}
    if a.family == "olmo3":
        return {**window, "pad_token_id": 0, "layer_types": [
            "full_attention" if (i + 1) % a.every == 0 else "sliding_attention"
            for i in range(a.layers)]}
    if a.family == "ernie4_5":
        return {"use_bias": a.attention_bias}
    return window if a.family == "mistral" else {}


def make_config(a):
    common = dict(
        vocab_size=a.vocab, hidden_size=a.hidden, intermediate_size=a.ffn,
        num_hidden_layers=a.layers, num_attention_heads=a.heads,
        num_key_value_heads=a.kv_heads or a.heads,
        head_dim=a.head_dim or a.hidden // a.heads,
        max_position_embeddings=a.max_pos, rms_norm_eps=1e-5,
        tie_word_embeddings=a.tied, attention_bias=a.attention_bias,
        bos_token_id=1, eos_token_id=2, rope_parameters=rope_parameters(a))
    if a.family in ("mistral", "qwen2", "phi3", "ernie4_5"):
        del common["attention_bias"]
    if a.family in ("qwen2", "phi3"):
        del common["head_dim"]
    name = FAMILIES[a.family] + "Config"
    config = getattr(transformers, name)(**{**common, **own_config(a)})
    if a.family != "gemma3":
        return config
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                  num_attention_heads=2, image_size=28, patch_size=14)
    return transformers.Gemma3Config(
        text_config=config.to_dict(), vision_config=vision, mm_tokens_per_image=4,
        image_token_index=a.vocab - 1, boi_token_index=a.vocab - 2, eoi_token_index=a.vocab - 3,
        tie_word_embeddings=a.tied, eos_token_id=[2, 3])


def randomize(model, a):
    g = torch.Generator().manual_seed(a.seed)
    for name, p in sorted(model.named_parameters()):
        noise = torch.randn(p.shape, generator=g, dtype=torch.float32)
        if p.dim() == 1:
            ones = "norm" in name and not a.family.startswith("gemma")
            p.data = (1 if ones else 0) + 0.2 * noise
        elif "lm_head" in name or (a.tied and "embed" in name):
            p.data = noise * (a.logit_scale / a.hidden ** 0.5)
        elif "embed" in name:
            p.data = noise
        else:
            p.data = noise * (a.gain / p.shape[1] ** 0.5)


def leave_out_defaults(c):
    """Keep only members that differ from the class's default, as text_config did."""
    default = transformers.Gemma3TextConfig().to_dict()
    for key in list(c):
        if key != "model_type" and c[key] == default.get(key):
            del c[key]


def before_4_52(name):
    """A tensor's name as in the published checkpoints of gemma3."""
    for new, old in (("model.language_model.", "language_model.model."),
                     ("lm_head.", "language_model.lm_head.")):
        if name.startswith(new):
            return old + name[len(new):]
    return name.removeprefix("model.")


def old_spelling(path, a):
    """Rewrite config.json as transformers 4 wrote it."""
    with open(path, encoding="utf-8") as f:
        whole = json.load(f)
    c = whole.get("text_config", whole)
    rope = c.pop("rope_parameters")
    if "full_attention" in rope:
        c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        c["sliding_window_pattern"] = a.every
        del c["layer_types"]
        rope = rope["full_attention"]
    c["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        c["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    kind = rope.pop("rope_type")
    c["rope_scaling"] = None
    if kind != "default":
        c["rope_scaling"] = {("type" if a.old_spelling == "type" else "rope_type"): kind, **rope}
    whole["torch_dtype"] = whole.pop("dtype")
    if c is not whole:
        leave_out_defaults(c)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(whole, f, indent=2, sort_keys=True)
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
    p.add_argument("--family", choices=sorted(FAMILIES), default="llama")
    p.add_argument("--window", type=int, default=0, help="where there can be one; 0: none")
    p.add_argument("--every", type=int, default=2,
                   help="gemma3, gemma3_text, olmo3: every n-th layer has no window; smollm3: no rotation")
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
    p.add_argument("--mlp-bias", action="store_true", help="llama, granite, smollm3")
    p.add_argument("--dtype", choices=list(DTYPES) + ["mixed"], default="f32",
                   help="mixed: bf16, but k_proj and up_proj f16")
    p.add_argument("--rope", default="default",
                   choices=["default", "linear", "dynamic", "llama3", "yarn", "longrope"])
    p.add_argument("--partial", type=float, default=1.0, help="partial_rotary_factor")
    p.add_argument("--rope-theta", type=float, default=10000.0)
    p.add_argument("--rope-factor", type=float, default=8.0)
    p.add_argument("--rope-original", type=int, default=64,
                   help="llama3, yarn, longrope: original_max_position_embeddings")
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
    cls = model_class(a)
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
        if a.family == "gemma3" and a.old_spelling:
            name = before_4_52(name)
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
