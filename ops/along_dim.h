// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "ops/engine/tensor_body.h"
#include "ops/structure.h"
#include "src/kernels/kernel.h"
#include "weft/error.h"
#include "weft/extend/op.h"

namespace weft {

// Ops along one dim, attribute 0. The other dims may be sharded.

inline int along_dim(const Call& c) { return static_cast<int>(c.attribute(0)); }

/// Dims of an array of `ndim` dims by name, with `name` for dim `dim`: "d0 [d1] d2".
inline std::string dims_with(int ndim, int dim, const std::string& name) {
  std::string text;
  for (int d = 0; d < ndim; ++d) text += (d == dim ? name : dim_name(d)) + " ";
  return text;
}

/// Returns the rule of ops whose operands and results have the same shape; the dim, n, may be
/// sharded.
template <int kOperands, int kResults = 1>
Rule scan_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  const int dim = static_cast<int>(attributes.structure[0]);
  const std::string array = dims_with(shapes[0].ndim(), dim, "n");
  std::string text = array;
  for (int i = 1; i < kOperands + kResults; ++i) text += (i == kOperands ? "-> " : ", ") + array;
  return {text};
}

/// Registers an op along a dim n whose results are elements and their indices, which its backward
/// reads.
inline Op register_with_indices(OpSpec spec) {
  spec.dtype = [](const Attributes&, std::span<const DType> dtypes, int result) {
    return result ? DType::i64 : dtypes[0];
  };
  spec.staged_over = {"n"};
  spec.saves_in = std::vector<int>{};
  spec.saves_out = {1};
  return register_op(std::move(spec));
}

/// Returns the elements of `block` from `begin` to `end` of one dim.
inline MemoryBlock part_along(const MemoryBlock& block, int dim, int64_t begin, int64_t end) {
  Box box{Dims::filled(block.shape.ndim(), 0), block.shape};
  box.offset[dim] = begin;
  box.shape[dim] = end - begin;
  return block.part(box);
}

/// Slice `i` of a dim, without the dim.
inline MemoryBlock slice_at(MemoryBlock block, int dim, int64_t i) {
  const int64_t offset = i * block.strides[dim] * static_cast<int64_t>(size_of(block.dtype));
  block.data = block.as<char>() + offset;
  block.shape.erase(dim);
  block.strides.erase(dim);
  return block;
}

/// Returns `block` with dim `dim` and the last one exchanged.
inline MemoryBlock with_last_dim(const MemoryBlock& block, int dim) {
  return exchanged(block, dim, block.shape.ndim() - 1);
}

}  // namespace weft
