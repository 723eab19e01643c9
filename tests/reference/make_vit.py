# SPDX-License-Identifier: Apache-2.0
"""A vision transformer of Hugging Face's transformers, for the example `vit`.

    python tests/reference/make_vit.py     (needs torch, transformers, safetensors)

writes vit.safetensors beside itself, in the form of make_families.py: `images` and `labels`, all
logits, the loss, and samples of every gradient under the names of transformers' files.
"""

import json
import pathlib
import tempfile

import torch
import transformers
from make_families import center_of, sampled, weights_of
from safetensors.torch import load_file, save_file

SIZES = dict(image_size=15, patch_size=5, num_channels=3, hidden_size=96, num_hidden_layers=3,
             num_attention_heads=4, intermediate_size=67, hidden_dropout_prob=0.0,
             attention_probs_dropout_prob=0.0, num_labels=7)


def through_file(model, change):
    """Saves the model, changes {name: tensor} of its file, and returns them and what is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path = f"{folder}/model.safetensors"
        tensors = {n: change(n, t) for n, t in load_file(path).items()}
        save_file(tensors, path, {"format": "pt"})
        return tensors, type(model).from_pretrained(folder)


def main():
    config = transformers.ViTConfig(**SIZES)
    config._attn_implementation = "eager"
    model = transformers.ViTForImageClassification(config)
    weights, model = through_file(model, lambda n, t: torch.from_numpy(
        weights_of(n, tuple(t.shape), center_of(n, "ViT"))))
    model = model.double().eval()
    torch.manual_seed(1)
    images, labels = torch.randn(5, 3, 15, 15), torch.randint(7, (5,))
    logits = model(images.double()).logits
    loss = torch.nn.functional.cross_entropy(logits, labels)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    gradients, _ = through_file(model, lambda n, t: t)
    values = {"images": images, "labels": labels, "logits": logits.detach().float(),
              "loss": loss.detach().float()[None]}
    values |= {f"grad.{n}": sampled(t.double()) for n, t in gradients.items()}
    parameters = {n: {"shape": list(t.shape), "center": center_of(n, "ViT"),
                      "largest": gradients[n].abs().max().item()} for n, t in weights.items()}
    save_file({n: v.contiguous() for n, v in values.items()},
              pathlib.Path(__file__).parent / "vit.safetensors",
              {"config": json.dumps(SIZES), "parameters": json.dumps(parameters)})
    print("loss", loss.item(), *parameters, sep="\n")


if __name__ == "__main__":
    main()
