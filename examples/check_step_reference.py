# SPDX-License-Identifier: Apache-2.0
"""Writes what transformers computes of one step, for `weft check-step --against`.

    python check_step_reference.py MODEL batch.safetensors reference.safetensors

The batch has "ids" and "labels", integers [batch, sequence]. For another model or loss, call
`reference_of` with a module and a function that returns its logits and loss."""

import sys

import torch
from safetensors.torch import load_file, save_file


def reference_of(model, step):
    """Inputs and outputs of all modules, logits, loss and gradients of (logits, loss) = step()."""
    seen = {}

    def keep(name):
        def hook(module, inputs, output):
            for side, value in ("input", inputs), ("output", output):
                value = value[0] if isinstance(value, tuple) and value else value
                if torch.is_tensor(value) and value.is_floating_point():
                    seen.setdefault(f"{side}.{name}", value)

        return hook

    hooks = [m.register_forward_hook(keep(n)) for n, m in model.named_modules() if n]
    logits, loss = step()
    loss.backward()
    for hook in hooks:
        hook.remove()
    seen |= {"logits": logits, "loss": loss}
    for name, p in model.named_parameters():
        seen["grad." + name] = torch.zeros_like(p) if p.grad is None else p.grad
    return {name: t.detach().float().cpu().clone().contiguous() for name, t in seen.items()}


def main(folder, batch, output):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    batch = load_file(batch)
    ids, labels = batch["ids"].long(), batch.get("labels", batch["ids"]).long()

    def step():
        out = model(input_ids=ids, labels=labels, use_cache=False)
        return out.logits, out.loss

    save_file(reference_of(model, step), output)


if __name__ == "__main__":
    main(*sys.argv[1:])
