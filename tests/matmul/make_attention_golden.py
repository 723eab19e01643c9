# SPDX-License-Identifier: Apache-2.0
"""Prints attention_golden.json: PyTorch's attention and its gradients, in f64, on small inputs.

python make_attention_golden.py > attention_golden.json

Each case is a call of scaled_dot_product_attention on sin(0.7 i + phase) with phase 0.1 for q, 0.2
for k, 0.3 for v, 0.4 for the gradient of out. Arrays are [batch, heads, sequence, head_dim],
rounded to 10 digits.
"""
import json
import textwrap

import torch
from torch.nn.functional import scaled_dot_product_attention

CASES = [
    # batch, heads, key heads, queries, keys, head_dim, causal, scale
    (2, 4, 2, 3, 5, 4, True, None),
    (1, 3, 3, 5, 5, 6, False, 0.3),
    (1, 4, 1, 5, 5, 3, True, 0.7),
]


def wave(shape, phase):
    """sin(0.7 i + phase) over the row-major index i, as in the test's operands."""
    count = torch.Size(shape).numel()
    return torch.sin(0.7 * torch.arange(count, dtype=torch.float64) + phase).reshape(shape)


def numbers(tensor):
    return [float(f"{x:.10g}") for x in tensor.flatten().tolist()]


def golden(batch, heads, kv_heads, queries, keys, width, causal, scale):
    q = wave((batch, heads, queries, width), 0.1).requires_grad_()
    k = wave((batch, kv_heads, keys, width), 0.2).requires_grad_()
    v = wave((batch, kv_heads, keys, width), 0.3).requires_grad_()
    mask = torch.ones(queries, keys, dtype=torch.bool)
    if causal:  # the queries are the last positions
        mask = mask.tril(keys - queries)
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    out.backward(wave(out.shape, 0.4))
    case = {"sizes": [batch, heads, kv_heads, queries, keys, width], "causal": causal,
            "scale": scale, "out": numbers(out.detach()), "dq": numbers(q.grad),
            "dk": numbers(k.grad), "dv": numbers(v.grad)}
    return textwrap.fill(json.dumps(case), 99)


print("[\n" + ",\n".join(golden(*case) for case in CASES) + "\n]")
