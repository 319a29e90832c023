#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Make the models of tests/parity/models with e4m3 matrices, and the reference of transformers.

make_random_model.py makes a random model. Its matrices are then stored in one
of the checkpoint formats that fdd reads: e4m3 values and scales. The reference
is transformers in fp32 on the products of values and scales, computed here
with torch, so it does not depend on how fdd or transformers read such files.

usage: fp8_models.py [NAME...]
"""

import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
DEV = os.path.join(HERE, "..", "..", "tools", "dev")
E4M3 = torch.float8_e4m3fn

SMALL = "--layers 2 --vocab 256 --heads 4 --kv-heads 2 --dtype bf16 --logit-scale 2 --gain 0.7"


def by_scale(w, scale, kind):
    """Quantizes w to e4m3; the scales, broadcast over w, are rounded to the file's type first."""
    scale = scale.to(kind)
    return (w / scale.float()).clamp(-448, 448).to(E4M3), scale


def block(w, kind):
    """A scale per block of 128 x 128; blocks at the edges may be smaller."""
    rows, cols = -(-w.shape[0] // 128), -(-w.shape[1] // 128)
    scale = torch.empty(rows, cols)
    for r in range(rows):
        for c in range(cols):
            scale[r, c] = w[r * 128:r * 128 + 128, c * 128:c * 128 + 128].abs().max() / 448
    scale = scale.to(kind)
    return by_scale(w, spread(scale, w.shape), kind)[0], scale


def spread(scale, shape):
    """Expands scales to one per element of a matrix, in fp32."""
    scale = scale.float()
    if scale.dim() == 2 and scale.shape[0] != shape[0]:
        scale = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
        return scale[:shape[0], :shape[1]]
    return scale.expand(shape)


def tensor(w, kind):
    return by_scale(w, w.abs().max() / 448, kind)


def channel(w, kind):
    return by_scale(w, w.abs().amax(1, keepdim=True) / 448, kind)


def float8(**more):
    return {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, **more}


MODELS = {
    # As Qwen3-FP8 and DeepSeek-V3 are published.
    "qwen3-fp8-block": dict(
        make=f"--family qwen3 {SMALL} --hidden 144 --ffn 136 --head-dim 32 --tied --gain 0.5 --logit-scale 1.5 --seed 21",
        quantize=block, kind=torch.float32, end="_scale_inv", plain=[],
        config={"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                "weight_block_size": [128, 128]}),
    # Static scales of activations are present but unused.
    "llama-fp8-tensor": dict(
        make=f"{SMALL} --hidden 64 --ffn 96 --attention-bias --seed 22",
        quantize=tensor, kind=torch.float32, end="_scale", plain=["lm_head"], inputs=True,
        config={"quant_method": "fp8", "activation_scheme": "static",
                "ignored_layers": ["lm_head"]}),
    # Matrices of one layer's attention are left, the head is not.
    "llama-fp8-channel": dict(
        make=f"{SMALL} --hidden 64 --ffn 96 --rope llama3 --rope-theta 500000 --seed 23",
        quantize=channel, kind=torch.bfloat16, end="_scale", plain=["layers.1.self_attn"],
        config={"quant_method": "compressed-tensors", "format": "float-quantized",
                "quantization_status": "compressed", "kv_cache_scheme": None,
                "ignore": ["re:.*layers[.]1[.]self_attn.*"],
                "config_groups": {"group_0": {
                    "targets": ["Linear"], "weights": float8(strategy="channel"),
                    "input_activations": {**float8(strategy="token"), "dynamic": True},
                    "output_activations": None}}}),
    "llama-fp8-fbgemm": dict(
        make=f"{SMALL} --hidden 48 --ffn 80 --head-dim 16 --mlp-bias --seed 24",
        quantize=channel, kind=torch.float32, end="_scale", plain=["lm_head", "layers.0.mlp"],
        config={"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
                "modules_to_not_convert": ["lm_head", "model.layers.0.mlp"]}),
}


def tool(name, *words):
    subprocess.run([sys.executable, os.path.join(DEV, name), *words], check=True)


def make(name, m, tmp):
    out = os.path.join(HERE, "models", name)
    tool("make_random_model.py", tmp, "--force", *m["make"].split())
    path = os.path.join(tmp, "model.safetensors")
    kept, stored = load_file(path), {}
    for key, w in kept.items():
        plain = w.dim() != 2 or "embed" in key or any(p in key for p in m["plain"])
        stored[key] = w
        if plain:
            continue
        stored[key], scale = m["quantize"](w.float(), m["kind"])
        stored[key + m["end"]] = scale
        if m.get("inputs"):
            stored[key.removesuffix("weight") + "input_scale"] = torch.tensor(0.01)
        kept[key] = stored[key].float() * spread(scale, w.shape)
    os.makedirs(out, exist_ok=True)
    save_file({k: t.contiguous() for k, t in stored.items()},
              os.path.join(out, "model.safetensors"), {"format": "pt"})
    save_file({k: t.float().contiguous() for k, t in kept.items()}, path, {"format": "pt"})
    tool("dump_reference.py", tmp, "--ids", "1,17,42", "--random", "1", "70",
         "--out", os.path.join(out, "reference.txt"))
    with open(os.path.join(tmp, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config["quantization_config"] = m["config"]
    for file, text in (("config.json", config),
                       ("generation_config.json",
                        json.load(open(os.path.join(tmp, "generation_config.json"),
                                       encoding="utf-8")))):
        with open(os.path.join(out, file), "w", encoding="utf-8") as f:
            json.dump(text, f, indent=2, sort_keys=True)
            f.write("\n")
    reference = os.path.join(out, "reference.txt")
    with open(reference, encoding="utf-8") as f:
        lines = f.read().split("\n")
    lines[:2] = [f"model {name}", "dtype F8_E4M3"]
    with open(reference, "w", encoding="utf-8") as f:
        f.write("\n".join(lines))


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as tmp:
            make(name, MODELS[name], tmp)


if __name__ == "__main__":
    main()
