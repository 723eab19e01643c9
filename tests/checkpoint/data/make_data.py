# SPDX-License-Identifier: Apache-2.0
"""Writes dtypes.safetensors with the safetensors package (needs torch): element i, counted
row-major, of tensor `x` is i - 7 (u8: i, bool: i % 3 == 0), of each dtype and of uneven shapes."""

import pathlib

import torch
from safetensors.torch import save_file

DTYPES = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f64": torch.float64,
    "i32": torch.int32,
    "i64": torch.int64,
}

count = torch.arange(3 * 5 * 7)
tensors = {name: (count - 7).to(dtype).reshape(3, 5, 7) for name, dtype in DTYPES.items()}
tensors["u8"] = count.to(torch.uint8).reshape(105)
tensors["bool"] = (count % 3 == 0).reshape(7, 15)
tensors["scalar"] = torch.tensor(2.5)
tensors["empty"] = torch.zeros(0, 4)
tensors["naïve \"name\""] = torch.tensor([1.0, 2.0])
path = pathlib.Path(__file__).parent / "dtypes.safetensors"
save_file(tensors, path, {"format": "pt", "note": "línea"})
