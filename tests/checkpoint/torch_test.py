# SPDX-License-Identifier: Apache-2.0
"""Stock safetensors and PyTorch read what weft saves: torch_test.py PROGRAM REFERENCE.

Runs in this Python or that of WEFT_PEER_PYTHON; prints its name as skipped, exit code 77, where
neither has torch and safetensors.
"""
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def in_peer_python():
    """Returns where the packages are; else starts this script in the other Python, or skips."""
    if all(importlib.util.find_spec(name) for name in ("torch", "safetensors")):
        return
    python = os.environ.get("WEFT_PEER_PYTHON", sys.executable)
    try:
        probe = subprocess.run([python, "-c", "import torch, safetensors"], capture_output=True)
        found = probe.returncode == 0
    except OSError:
        found = False
    if not found:
        print("skipped: torch_test (no Python with torch and safetensors; set WEFT_PEER_PYTHON)")
        sys.exit(77)
    sys.exit(subprocess.run([python, *sys.argv], check=False).returncode)


def main(program, reference):
    in_peer_python()
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    expected = {}
    for file in sorted(Path(reference).glob("model*.safetensors")):
        expected.update(load_file(file))
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (1, 3):
            saved = f"{folder}/saved{ranks}"
            command = [program, "ckpt", "import", reference, saved, "--ranks", str(ranks)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            (checkpoint,) = Path(saved).iterdir()
            files = sorted(checkpoint.iterdir())
            assert len(files) == ranks, files
            rows = {}
            for file in files:
                for name, part in load_file(file).items():
                    rows.setdefault(name, []).append(part)
            state = {f"model/{name}": torch.zeros_like(value) for name, value in expected.items()}
            assert set(rows) == set(state)
            for name, value in expected.items():
                assert torch.equal(torch.cat(rows[f"model/{name}"]), value), name
            dcp.load(state, storage_reader=HuggingFaceStorageReader(str(checkpoint)))
            for name, value in expected.items():
                assert torch.equal(state[f"model/{name}"], value), name
        subprocess.run(
            [program, "ckpt", "export", checkpoint, f"{folder}/out", "--threads", "2"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        exported = load_file(f"{folder}/out/model.safetensors")
        assert set(exported) == set(expected)
        assert all(torch.equal(exported[name], expected[name]) for name in expected)
    print(f"torch_test: {len(expected)} tensors equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
