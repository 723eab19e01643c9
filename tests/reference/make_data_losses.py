# SPDX-License-Identifier: Apache-2.0
"""Makes the losses of transformers and PyTorch on the rows of make_datasets.py.

    python tests/reference/make_data_losses.py

writes to tests/reference/datasets/ a small Llama (model/) and losses.json: the losses of 20 steps
of AdamW, with the schedule of `weft train`, on rows of lines.jsonl that are padded, and packed with
a block-diagonal mask and positions by document.
"""

import json
import math

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from make_datasets import HERE, IGNORED, packed, padded, shuffled

SEQUENCE, BATCH, STEPS, SEED, RATE = 32, 2, 20, 3, 1e-3


def rate(step):
    warmup = STEPS // 10
    if step < warmup:
        return RATE * (step + 1) / warmup
    way = (step - warmup) / (STEPS - warmup)
    return RATE / 10 + (RATE - RATE / 10) * 0.5 * (1 + math.cos(math.pi * way))


def losses(rows):
    # The last twentieth is held out; of more than a batch, whole ones.
    held = min(max(len(rows) // 20, 1), 16 * BATCH)
    train = rows[:len(rows) - (held - held % BATCH if held > BATCH else held)]
    model = LlamaForCausalLM.from_pretrained(HERE / "model", attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0)
    for step in range(STEPS):
        batch = [shuffled(train, step * BATCH + i, SEED) for i in range(BATCH)]
        ids, targets, segments = (torch.tensor(part) for part in zip(*batch))
        same = segments[:, :, None] == segments[:, None, :]
        visible = same & torch.tril(torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool))
        # A token's number in its document: the tokens of it that are not after this one.
        positions = visible.sum(2) - 1
        mask = torch.where(visible, 0.0, torch.finfo(torch.float32).min)[:, None]
        logits = model(input_ids=ids, attention_mask=mask, position_ids=positions,
                       use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                                                 ignore_index=IGNORED)
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss.item()


def main():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=420, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        rms_norm_eps=1e-5, tie_word_embeddings=False))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(HERE / "model")
    (HERE / "model/generation_config.json").unlink(missing_ok=True)
    documents = json.loads((HERE / "expected.json").read_text())["documents"]["lines"]
    made = {"padded": list(losses(padded(documents, SEQUENCE, 0))),
            "packed": list(losses(packed(documents, SEQUENCE, 0, SEED)))}
    (HERE / "losses.json").write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
