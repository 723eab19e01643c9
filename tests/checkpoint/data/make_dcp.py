# SPDX-License-Identifier: Apache-2.0
"""Writes shards as PyTorch's distributed checkpoint does: make_dcp.py FOLDER (next to this file).

Two processes (gloo) save a float32 [5, 3], row-sharded and counting from 0, a bfloat16 [4, 6],
column-sharded and counting from 100, and a whole int64 [3]. Needs torch and safetensors.
"""
import os
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def save(rank, folder):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29531")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    state = {
        "rows": distribute_tensor(torch.arange(15.0).reshape(5, 3), mesh, [Shard(0)]),
        "columns": distribute_tensor(
            torch.arange(100.0, 124).reshape(4, 6).bfloat16(), mesh, [Shard(1)]
        ),
        "whole": distribute_tensor(torch.tensor([7, 8, 9]), mesh, [Replicate()]),
    }
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True))
    dist.destroy_process_group()


if __name__ == "__main__":
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    mp.spawn(save, (sys.argv[1],), nprocs=2)
