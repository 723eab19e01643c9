# SPDX-License-Identifier: Apache-2.0
"""Makes what the examples sft_lora and vit are compared with: losses of 20 AdamW steps.

    python tests/reference/make_examples.py     (needs torch, transformers, peft, safetensors)

writes examples/ beside itself: adapter/, the adapters before the first step as PEFT saves them;
vit.safetensors, the weights of a vision transformer of torch.nn; and losses.json, by PEFT on the
conversations of datasets/, and by PyTorch on images with a bright corner.
"""

import json
import shutil

import numpy as np
import torch
from make_datasets import HERE, IGNORED, padded, shuffled
from safetensors.torch import load_file, save_file

OUT = HERE.parent / "examples"
STEPS = 20
SFT = {"rows": 64, "batch": 4, "rate": 1e-2}
VIT = {"image": 12, "patch": 3, "classes": 4, "dim": 16, "layers": 2, "heads": 4, "batch": 16}


def sft_model():
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForCausalLM

    base = LlamaForCausalLM.from_pretrained(HERE / "model", attn_implementation="eager").float()
    targets = ["q_proj", "v_proj", "down_proj"]
    return get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=targets))


def sft_losses():
    """The losses of PEFT from the adapters in adapter/, on the tokens of apply_chat_template."""
    from peft import set_peft_model_state_dict

    model = sft_model()
    set_peft_model_state_dict(model, load_file(OUT / "adapter/adapter_model.safetensors"))
    documents = json.loads((HERE / "expected.json").read_text())["documents"]["chat"]
    rows = padded(documents, SFT["rows"], 0)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=SFT["rate"], weight_decay=0)
    losses = []
    for step in range(STEPS):
        batch = [shuffled(rows, step * SFT["batch"] + i, 0) for i in range(SFT["batch"])]
        ids, targets, _ = (torch.tensor(part) for part in zip(*batch))
        logits = model(input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


class Block(torch.nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.attention = torch.nn.MultiheadAttention(dim, heads, batch_first=True)
        self.up, self.down = torch.nn.Linear(dim, 2 * dim), torch.nn.Linear(2 * dim, dim)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Vit(torch.nn.Module):
    """Follows google/vit: a convolution cuts the image into tokens; the first one is classified."""

    def __init__(self, image, patch, classes, dim, layers, heads, batch):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, dim, patch, stride=patch)
        self.first = torch.nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.position = torch.nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = torch.nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = torch.nn.LayerNorm(dim), torch.nn.Linear(dim, classes)

    def forward(self, images):
        x = self.conv(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def images_of(step, image, batch):
    """Noise with a bright quarter, and the number of the quarter."""
    random = np.random.default_rng(step)
    labels = random.integers(0, 4, batch)
    images = random.normal(0, 0.2, (batch, 3, image, image)).astype(np.float32)
    half = image // 2
    for picture, label in zip(images, labels):
        row, column = divmod(label, 2)
        picture[:, row * half : (row + 1) * half, column * half : (column + 1) * half] += 2
    return images, labels


def vit_losses():
    model = Vit(**VIT)
    model.load_state_dict(load_file(OUT / "vit.safetensors"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        images, labels = map(torch.from_numpy, images_of(step, VIT["image"], VIT["batch"]))
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    torch.manual_seed(5)
    model = sft_model()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    model.save_pretrained(OUT / "adapter")
    (OUT / "adapter/README.md").unlink()
    config = json.loads((OUT / "adapter/adapter_config.json").read_text())
    config["base_model_name_or_path"] = "model"
    config["target_modules"] = sorted(config["target_modules"])
    (OUT / "adapter/adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({n: t.contiguous() for n, t in Vit(**VIT).state_dict().items()},
              OUT / "vit.safetensors")
    made = {"torch": torch.__version__, "sft": sft_losses(), "vit": vit_losses()}
    (OUT / "losses.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
