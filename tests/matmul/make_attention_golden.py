# SPDX-License-Identifier: Apache-2.0
"""Prints attention_golden.h: PyTorch's attention and its gradients, in f64, on small inputs.

python make_attention_golden.py > attention_golden.h
"""
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


def numbers(name, tensor):
    text = ", ".join(f"{x:.15g}" for x in tensor.flatten().tolist())
    first, later = " " * 5, " " * 7
    text = f".{name} = {{{text}}}"
    return textwrap.fill(text, 98, initial_indent=first, subsequent_indent=later)


def golden(batch, heads, kv_heads, queries, keys, width, causal, scale):
    q = wave((batch, heads, queries, width), 0.1).requires_grad_()
    k = wave((batch, kv_heads, keys, width), 0.2).requires_grad_()
    v = wave((batch, kv_heads, keys, width), 0.3).requires_grad_()
    mask = torch.ones(queries, keys, dtype=torch.bool)
    if causal:  # the queries are the last positions
        mask = mask.tril(keys - queries)
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    out.backward(wave(out.shape, 0.4))
    sizes = f"    {{.sizes = {{{batch}, {heads}, {kv_heads}, {queries}, {keys}, {width}}},\n"
    options = f"     .causal = {str(causal).lower()},\n"
    options += f"     .scale = {'std::nullopt' if scale is None else f'{scale}f'},\n"
    results = {"out": out.detach(), "dq": q.grad, "dk": k.grad, "dv": v.grad}
    return sizes + options + ",\n".join(numbers(n, x) for n, x in results.items()) + "},\n"


print("""// SPDX-License-Identifier: Apache-2.0
// Made by make_attention_golden.py.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace weft {

/// One call of PyTorch's scaled_dot_product_attention in f64, on sin(0.7 i + phase) with phase 0.1
/// for q, 0.2 for k, 0.3 for v, 0.4 for the gradient of out. Arrays are [batch, heads, sequence,
/// head_dim].
struct AttentionGolden {
  /// batch, heads, key heads, queries, keys, head_dim
  std::array<int64_t, 6> sizes;
  bool causal;
  std::optional<float> scale;
  std::vector<double> out, dq, dk, dv;
};

inline const std::vector<AttentionGolden> kAttentionGolden = {
    // clang-format off""")
for case in CASES:
    print(golden(*case), end="")
print("""    // clang-format on
};

}  // namespace weft""")
