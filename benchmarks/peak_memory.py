#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the peak memory of training steps with that of PyTorch's FSDP2 in the same run.

Trains `small` fully sharded over processes, in f32 with AdamW and one thread each: `weft run` with
`weft train`, and PyTorch's fully_shard over gloo (needs a Python with PyTorch, see --python). A
value is the largest resident memory of any process (ru_maxrss), less that of the same program with
a model of one narrow layer: code, libraries and connections. Rounds alternate. Prints one JSON line
for each library and the ratio of the medians.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"dim": 512, "layers": 8, "heads": 8, "kv_heads": 4, "ffn": 1408, "vocabulary": 4096}
NARROW = {"dim": 16, "layers": 1, "heads": 1, "kv_heads": 1, "ffn": 16, "vocabulary": 256}


def hugging_face_config(sizes, sequence):
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": sizes["dim"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "intermediate_size": sizes["ffn"],
        "vocab_size": sizes["vocabulary"],
        "max_position_embeddings": sequence,
        "tie_word_embeddings": False,
    }


def peak_of(command):
    """Runs the command and returns the largest resident memory of its processes, in bytes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"peak_memory: {command[0]} ended with {process.returncode}")
    return usage.ru_maxrss * 1024


def weft_command(args, sizes):
    config = args.out / f"{sizes['dim']}.json"
    config.write_text(json.dumps(hugging_face_config(sizes, args.seq)))
    text = args.out / "text"
    text.write_bytes(bytes(32 + i * i % 90 for i in range(64 * args.batch * args.seq)))
    train = [args.program, "train", "--data", text, "--model", config, "--threads", 1]
    train += ["--batch", args.batch, "--seq", args.seq, "--steps", args.steps]
    return [args.program, "run", "-n", args.ranks, "--", *train]


def torch_command(args, sizes):
    command = [args.python, __file__, "--torch", json.dumps(sizes), "--ranks", args.ranks]
    return command + ["--batch", args.batch, "--seq", args.seq, "--steps", args.steps]


def train_rank(rank, args, sizes, port):
    """One process of the training with FSDP2."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch_cuda import Llama

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.ranks
    )
    mesh = dist.init_device_mesh("cpu", (args.ranks,))
    with torch.device("meta"):
        model = Llama(**sizes, sequence=args.seq, dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            local.normal_(std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    rows = args.batch // args.ranks
    for step in range(args.steps):
        ids = torch.randint(0, sizes["vocabulary"], (rows, args.seq))
        model(ids, ids).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def train_with_torch(args):
    import socket

    import torch.multiprocessing

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(
        train_rank, args=(args, json.loads(args.torch), port), nprocs=args.ranks
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/weft")
    parser.add_argument("--python", default=sys.executable, help="has PyTorch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4, help="rows a step, over all ranks")
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "build/peak_memory")
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch:
        return train_with_torch(args)
    args.out.mkdir(parents=True, exist_ok=True)
    commands = {"weft": weft_command, "torch": torch_command}
    idle = {library: peak_of(make(args, NARROW)) for library, make in commands.items()}
    peaks = {library: [] for library in commands}
    for _ in range(args.rounds):
        for library, make in commands.items():
            peaks[library].append(peak_of(make(args, SMALL)) - idle[library])
    medians = {library: statistics.median(values) for library, values in peaks.items()}
    for library, values in peaks.items():
        line = {"bench": "peak_memory", "case": library, "value": medians[library], "unit": "bytes"}
        line |= {"min": min(values), "max": max(values), "without_model": idle[library]}
        print(json.dumps(line), flush=True)
    ratio = round(medians["torch"] / medians["weft"], 3)
    print(json.dumps({"bench": "peak_memory", "case": "torch / weft", "value": ratio, "unit": "x"}))


if __name__ == "__main__":
    main()
