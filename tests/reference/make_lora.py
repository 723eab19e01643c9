# SPDX-License-Identifier: Apache-2.0
"""Makes the outside reference of weft's adapters with the PEFT library.

    python tests/reference/make_lora.py      (needs torch, transformers, peft, safetensors)

Each case below trains adapters of the Llama in grouped/ (see make_llama.py) by 20 steps of AdamW on
its tokens. For each it writes beside itself, in lora/<case>,

    initial/    the adapter before the first step, as PEFT saves it
    trained/    the adapter after the last one
    reference.safetensors
        losses          f32 [steps]             before update s
        logits          f32 [rows, seq, vocab]  of tokens[0] with the trained adapter
        grad.<name>     f32                     of losses[0], named as in the adapter's file
        merged.<name>   f32                     weights of `merge_and_unload` in which B A is added

B is not zero at the start, so that no first gradient is; eps is large enough that AdamW does not
turn rounding errors of small gradients into steps. The base weights of "int8" and "int4" are
those that blocks of 64 elements of a row stand for: code times scale, the greatest magnitude of the
block / 127 or / 7. Everything is computed with double weights and activations and stored as f32.
"""

import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

STEPS, BATCHES, BLOCK = 20, 2, 64
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "attention": dict(seed=9, r=5, lora_alpha=12, target_modules=["q_proj", "v_proj"]),
    "all": dict(seed=11, r=3, lora_alpha=7, target_modules=ALL, use_rslora=True),
    "int8": dict(seed=4, r=4, lora_alpha=8, target_modules=ALL, bits=8),
    "int4": dict(seed=4, r=4, lora_alpha=8, target_modules=ALL, bits=4),
}


def dequantized(weight, bits):
    """The weight that its codes stand for; arithmetic in f32, as weft quantises."""
    most = 2 ** (bits - 1) - 1
    weight = weight.float()
    out = torch.empty_like(weight)
    for first in range(0, weight.shape[1], BLOCK):
        block = weight[:, first : first + BLOCK]
        scale = block.abs().amax(1, keepdim=True) / most
        codes = torch.where(scale > 0, block * (1 / scale), 0.0).round().clamp(-most, most)
        out[:, first : first + BLOCK] = codes * scale
    return out


def loss_of(model, batch):
    logits = model(input_ids=batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def save_adapter(model, folder):
    """Saves it as f32, without what names this machine."""
    model.float().save_pretrained(folder)
    model.double()
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "grouped"
    config["target_modules"] = sorted(config["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def make(case, options, here):
    folder = here / "lora" / case
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(options.pop("seed"))
    base = LlamaForCausalLM.from_pretrained(here / "grouped", dtype=torch.float32)
    bits = options.pop("bits", None)
    for name, module in base.named_modules():
        if bits and isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.weight.data = dequantized(module.weight.data, bits)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    save_adapter(model, folder / "initial")
    tokens = load_file(here / "grouped/reference.safetensors")["tokens"]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, **ADAMW)
    values, losses = {}, []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, tokens[step % BATCHES])
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    values["grad." + name.replace(".default", "")] = parameter.grad.clone()
        optimizer.step()
    values["losses"] = torch.stack(losses)
    values["logits"] = model(input_ids=tokens[0][:, :-1]).logits.detach()
    save_adapter(model, folder / "trained")
    before = {n: p.clone() for n, p in base.named_parameters() if "base_layer" in n}
    merged = dict(model.merge_and_unload().named_parameters())
    for name in before:
        plain = name.replace(".base_layer", "")
        values["merged." + plain] = merged[plain].detach()
    values = {n: v.float().contiguous() for n, v in values.items()}
    save_file(values, folder / "reference.safetensors", {n: str(v) for n, v in ADAMW.items()})
    print(case, "loss", losses[0].item(), "->", losses[-1].item())


def main():
    here = pathlib.Path(__file__).parent
    for case, options in CASES.items():
        make(case, options, here)


if __name__ == "__main__":
    main()
