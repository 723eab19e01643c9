# SPDX-License-Identifier: Apache-2.0
"""Makes the outside reference of weft's Llama with transformers' LlamaForCausalLM.

    python tests/reference/make_llama.py        (needs torch, transformers, safetensors)

writes beside itself, for each model below, a Hugging Face directory (config.json and the random f32
weights as safetensors: one file or several with an index) and in it reference.safetensors:

    tokens         i64 [batches, rows, seq + 1] inputs are [..., :-1], targets [..., 1:]
    logits         f32 [rows, seq, vocab]       of tokens[0] and the initial weights
    loss           f32 []                       mean cross entropy of all targets of tokens[0]
    grad.<name>    f32, the parameter's shape   of that loss; a tied head is embed_tokens
    losses         f32 [steps]                  of tokens[s % batches], before update s of AdamW

AdamW decays every parameter and does not clip; its numbers stand in the file's metadata. Everything
is computed with double weights and activations (only the norms' and rope's inner f32 casts, which
are transformers' own, remain) and stored as f32: the reference's own error stays below 5e-7.
"""

import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, BATCHES, ROWS, SEQ = 20, 2, 12, 10
ADAMW = {"lr": 5e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}

# Sizes that neither 3 nor 4 divide, except where heads must be equal.
MODELS = {
    "heads": dict(num_key_value_heads=4, tie_word_embeddings=False, vocab_size=97, seed=1),
    "grouped": dict(num_key_value_heads=2, tie_word_embeddings=False, vocab_size=89, seed=2),
    "grouped_tied": dict(num_key_value_heads=2, tie_word_embeddings=True, vocab_size=83, seed=3),
}
SHARDED = {"grouped": "40KB"}


def make_model(seed, **sizes):
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=43,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        initializer_range=0.15,
        attn_implementation="sdpa",
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        **sizes,
    )
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():  # norms are ones otherwise, which hides a wrong or missing scale
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def loss_of(model, batch):
    logits = model(input_ids=batch[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    return logits, loss


def reference(model, tokens):
    model = model.double()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    values, losses = {"tokens": tokens}, []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits, loss = loss_of(model, tokens[step % BATCHES])
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            values |= {"logits": logits.detach(), "loss": loss.detach()}
            values |= {f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()}
        optimizer.step()
    values["losses"] = torch.stack(losses)
    return {n: v.float() if v.is_floating_point() else v for n, v in values.items()}


def main():
    here = pathlib.Path(__file__).parent
    for name, sizes in MODELS.items():
        folder = here / name
        shutil.rmtree(folder, ignore_errors=True)
        model = make_model(**sizes)
        model.save_pretrained(folder, max_shard_size=SHARDED.get(name, "1GB"))
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(sizes["vocab_size"], (BATCHES, ROWS, SEQ + 1))
        values = {n: v.contiguous() for n, v in reference(model, tokens).items()}
        numbers = {"lr": ADAMW["lr"], "beta1": ADAMW["betas"][0], "beta2": ADAMW["betas"][1],
                   "eps": ADAMW["eps"], "weight_decay": ADAMW["weight_decay"]}
        save_file(values, folder / "reference.safetensors", {n: str(v) for n, v in numbers.items()})
        print(name, "loss", values["losses"][0].item(), "->", values["losses"][-1].item())


if __name__ == "__main__":
    main()
