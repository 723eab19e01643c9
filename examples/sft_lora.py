# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a Hugging Face model on conversations with adapters (LoRA), the base sharded.

python examples/sft_lora.py --model Llama-3.2-1B --data chat.jsonl --out adapter --ranks 4

The loss is on the assistant's tokens. The adapters are written as the PEFT library reads them;
`weft train --init MODEL --data chat.jsonl --lora rank=4` does the same without a program.
"""

import argparse

import weft
from weft import nn, optim

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("--model", required=True, help="a folder with config.json and weights")
arguments.add_argument("--tokenizer", help="a folder with tokenizer.json (default: the model)")
arguments.add_argument("--data", required=True, help="a .jsonl file of conversations")
arguments.add_argument("--adapter", help="adapters of PEFT to start from (default: new ones)")
arguments.add_argument("--out", help="a new folder for the adapters")
arguments.add_argument("--tokens", type=int, default=64, help="tokens of a row")
arguments.add_argument("--steps", type=int, default=20)
arguments.add_argument("--ranks", type=int, default=2)
options = arguments.parse_args()


def main(world):
    mesh = weft.DeviceMesh(world, {"dp": world.size})
    model = nn.TransformerModel(nn.transformer_config(options.model))
    adapters = {"rank": 4, "alpha": 8, "targets": ["q_proj", "v_proj", "down_proj"]}
    if options.adapter:
        adapters = weft.peft_options(model, options.adapter)
    weft.add_adapters(model, **adapters)
    for unit in [*model.units(), model]:
        weft.fully_shard(unit, mesh)
    model.materialize()
    weft.load_hugging_face(model, options.model, strict=False)
    if options.adapter:
        weft.load_peft(model, options.adapter)
    data = weft.text_dataset(
        options.data,
        sequence=options.tokens,
        tokenizer=weft.Tokenizer.from_directory(options.tokenizer or options.model),
    )
    trainer = weft.Trainer(
        model,
        data,
        optim.AdamW(model, lr=1e-2, weight_decay=0),
        mesh,
        batch=4,
        steps=options.steps,
        on_step=lambda s: world.rank == 0 and print(f"step {s.step}  loss {s.loss:.5f}"),
    )
    trainer.run()
    if options.out:
        weft.save_peft(model, options.out, base_model=options.model)


if __name__ == "__main__":
    weft.run_world(options.ranks if weft.launched_ranks() == 1 else 1, main)
