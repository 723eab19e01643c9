# SPDX-License-Identifier: Apache-2.0
"""Writes trainer.json: losses of 20 AdamW steps of the model in grouped/, by transformers.

    python tests/reference/make_trainer.py

"text": rows of characters of ../../LICENSE, as examples/train_gpt.py takes them.
"masked": rows of a formula with targets that do not count, six a step, in two micro-steps that
share one mean; of step 4 none counts. Then the mean loss of rows 1000 to 1006.
"""

import json
import pathlib

import torch
from transformers import LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
STEPS, VOCABULARY, IGNORED = 20, 89, -100


def text_rows(index, seq=32):
    text = (HERE.parent.parent / "LICENSE").read_text()
    ids = {character: i for i, character in enumerate(sorted(set(text)))}
    start = index * 7919 % (len(text) - seq)
    row = [ids[character] for character in text[start : start + seq + 1]]
    return row[:-1], row[1:]


def masked_rows(index, seq=24):
    numbers = [index * index * 31 + j * j * 7 + index * j * 13 + 5 for j in range(seq + 1)]
    ids = [number % VOCABULARY for number in numbers]
    counts = [(index + 2 * j) % 5 >= index % 4 and index // 6 != 3 for j in range(seq)]
    return ids[:-1], [t if c else IGNORED for t, c in zip(ids[1:], counts)]


def loss_of(model, rows):
    ids, targets = (torch.tensor(part) for part in zip(*rows))
    logits = model(ids).logits.flatten(0, 1)
    sum_of_losses = torch.nn.functional.cross_entropy(
        logits, targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return sum_of_losses / max(1, int((targets != IGNORED).sum()))


def train(rows, batch, rate):
    model = LlamaForCausalLM.from_pretrained(HERE / "grouped", attn_implementation="eager").float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1, betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(step)
        of_step = [rows(step * batch + i) for i in range(batch)]
        if all(t == IGNORED for _, targets in of_step for t in targets):
            losses.append(None)
            continue
        loss = loss_of(model, of_step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def main():
    _, text = train(text_rows, 8, lambda step: 3e-3 * min(1, (step + 1) / 5))
    model, masked = train(masked_rows, 6, lambda step: 2e-3)
    with torch.no_grad():
        validation = loss_of(model, [masked_rows(i) for i in range(1000, 1007)]).item()
    made = {"torch": torch.__version__, "text": text, "masked": masked, "validation": validation}
    (HERE / "trainer.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
