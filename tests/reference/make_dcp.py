#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves a small model and its AdamW or Adam by PyTorch's distributed checkpoint, and trains on.

    torchrun --nproc-per-node 2 make_dcp.py fsdp
    torchrun --nproc-per-node 4 make_dcp.py hsdp
    torchrun --nproc-per-node 2 make_dcp.py adam

Writes the directory dcp/NAME, and dcp/NAME.json with the losses of the next five steps. `hsdp` has
two groups of parameters and numbers beside the model; `adam` adds its weight decay to gradients,
with a group for the bias, which has none. Made with PyTorch 2.15.
"""
import json
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

HERE = pathlib.Path(__file__).parent / "dcp"


def main():
    name = sys.argv[1]
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3, bias=False)
    )
    is_hsdp = name == "hsdp"
    sizes, names = ((2, 2), ("replicate", "shard")) if is_hsdp else ((ranks,), ("shard",))
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    groups = [{"params": [model[0].weight]}, {"params": [model[0].bias, model[2].weight]}]
    if is_hsdp:
        groups[1] |= {"weight_decay": 0.25, "lr": 0.02}
    optimizer = torch.optim.AdamW(groups if is_hsdp else model.parameters(), lr=0.01)
    if name == "adam":
        weights = [model[0].weight, model[2].weight]
        groups = [{"params": weights, "weight_decay": 0.1}, {"params": [model[0].bias]}]
        optimizer = torch.optim.Adam(groups, lr=0.01)
    x = torch.arange(10.0).reshape(2, 5) / 10

    def step():
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    step(), step()
    state = {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
    }
    if is_hsdp:
        state |= {"step": 2, "rate": 0.5, "name": "x", "half": torch.arange(3.0).bfloat16()}
    dcp.save(state, checkpoint_id=HERE / name)
    losses = [step() for _ in range(5)]
    if dist.get_rank() == 0:
        (HERE / f"{name}.json").write_text(json.dumps(losses) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
