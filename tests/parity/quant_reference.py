#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Write tests/parity/quant.txt: the results of transformers with quantized weights.

For each model of tests/parity/models named below and each scheme of
quant.weights and quant.group_size, the matrices of the layers are quantized
and dequantized, and transformers runs in fp32 on the result. The scheme is
implemented here from its definition (daemon/worker/quant.h) with torch,
independently of fdd's code.

The file is a list of sections: a line "quant MODEL WEIGHTS GROUP_SIZE", then
cases as in tools/dev/dump_reference.py, without the alternatives.

usage: quant_reference.py [--check] [MODEL...]    --check: print errors only, write nothing;
MODEL: write the sections of these after the sections of other models in the file
"""

import argparse
import os
import sys

import torch
import transformers

transformers.logging.disable_progress_bar()
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools", "dev"))
import dump_reference  # noqa: E402

# Llama and Qwen3; F32, F16, BF16 and mixed files; widths that are no multiple of
# the group (48) or less than it.
MODELS = ["llama31-gqa-tied-bf16", "llama31-old-f16", "llama-bias-mixed", "qwen3-gqa-tied",
          "qwen3-bf16"]
SCHEMES = [(w, g) for w in ("wint8", "wint4", "fp8") for g in (0, 32, 64)]
# Every other family: one tensor of q, k and v; norms behind sublayers; offsets of norms.
MORE = [("phi3-window", "wint8", 0), ("phi3-window", "fp8", 32), ("olmo2-gqa", "wint8", 0),
        ("gemma3-dual", "wint8", 32), ("gemma2-window", "wint8", 0), ("glm4-bias", "wint8", 0),
        ("glm-bias", "wint8", 0), ("olmo3-window-yarn", "wint8", 0),
        ("granite-bias-tied", "wint8", 0), ("ernie-bias", "wint8", 0),
        ("smollm3-nope", "wint8", 32), ("mistral-window", "wint8", 0),
        ("qwen2-window-tied-bf16", "wint8", 0)]
PROMPTS = [[1, 17, 42], 24]
NEW = 16


def keep(w, weights, group):
    """Quantizes and dequantizes a matrix; returns fp32."""
    rows, cols = w.shape
    out = torch.empty_like(w)
    for at in range(0, cols, group or cols):
        x = w[:, at:at + (group or cols)]
        most = x.max(1, keepdim=True).values
        least = x.min(1, keepdim=True).values
        if weights == "fp8":
            scale = torch.maximum(most, -least) / 448
            x8 = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float()
            out[:, at:at + (group or cols)] = torch.where(scale == 0, torch.zeros_like(x),
                                                          x8 * scale)
            continue
        if weights == "wint8":
            scale, low, high = torch.maximum(most, -least) / 127, -127, 127
        else:
            scale, low, high = torch.where(-least >= most, least / -8, most / -8), -8, 7
        q = torch.round(x / scale).clamp(low, high)
        out[:, at:at + (group or cols)] = torch.where(scale == 0, torch.zeros_like(x), q * scale)
    return out


def requantize(model, weights, group):
    """Replaces the layers' matrices by their quantized values; returns the relative error."""
    lost = kept = 0.0
    for name, p in model.named_parameters():
        if p.dim() != 2 or ".layers." not in name:
            continue
        w = keep(p.data, weights, group)
        lost += ((w - p.data) ** 2).sum().item()
        kept += (p.data ** 2).sum().item()
        p.data = w
    return (lost / kept) ** 0.5


def quantized(model_dir, weights, group):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=torch.float32, attn_implementation="eager").eval()
    model.generation_config.eos_token_id = None
    return model, requantize(model, weights, group)


def without_alternatives(line):
    words = line.split(" ")
    return " ".join(words[:{"p": 4, "g": 5}.get(words[0], len(words))])


def other_sections(models):
    """Lines of quant.txt without the sections of these models."""
    lines, kept = [], False
    with open(os.path.join(HERE, "quant.txt"), encoding="utf-8") as f:
        for line in f.read().splitlines():
            if line.startswith("quant "):
                kept = line.split(" ")[1] not in models
            lines += [line] if kept else []
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true", help="print errors, write nothing")
    p.add_argument("models", nargs="*", metavar="MODEL")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out = other_sections(a.models) if a.models else []
    for name, weights, group in [(m, w, g) for m in MODELS for w, g in SCHEMES] + MORE:
        if a.models and name not in a.models:
            continue
        model, error = quantized(os.path.join(HERE, "models", name), weights, group)
        print(f"{name} {weights} group {group}: error {error:.4f} of the weights' rms")
        g = torch.Generator().manual_seed(3)
        out.append(f"quant {name} {weights} {group}")
        for ids in PROMPTS:
            if isinstance(ids, int):
                ids = torch.randint(4, model.config.get_text_config().vocab_size, (ids,), generator=g).tolist()
            case = []
            dump_reference.dump_case(model, ids, NEW, case)
            out += [without_alternatives(line) for line in case]
    if not a.check:
        with open(os.path.join(HERE, "quant.txt"), "w", encoding="utf-8") as f:
            f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
