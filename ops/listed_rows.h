// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "ops/along_dim.h"
#include "src/kernels/copy/dense.h"
#include "weft/error.h"
#include "weft/extend/call.h"

namespace weft {

/// True when the engine gives operand `rows` as a list of the elements that its indices name.
inline bool is_listed(const Call& c, int rows) {
  return c.in(rows).shape.ndim() != c.in_shape(rows).ndim();
}

/// Returns whether all elements are one integer, which the CPU's sums take as it is.
inline bool is_one_integer(const MemoryBlock& block) {
  return block.device.kind == DeviceKind::cpu && block.dtype == DType::i64 &&
         std::all_of(block.strides.begin(), block.strides.end(), [](int64_t s) { return s == 0; });
}

/// Calls f(out, rows, indices, dim), for listed elements with a flat `out`; f returns an index that
/// is out of range. `size` is that of the dim; the values of sums `may_repeat`.
template <class F>
void with_rows(const Call& c, const std::string& name, int rows, int64_t size, const F& f,
               bool may_repeat = false) {
  const DenseBlock indices = DenseBlock::of(c.in(rows + 1));
  const MemoryBlock& given = c.in(rows);
  const DenseBlock values =
      may_repeat && is_one_integer(given) ? DenseBlock::as_it_is(given) : DenseBlock::of(given);
  MemoryBlock out = c.out();
  const bool listed = is_listed(c, rows);
  if (listed) out = dense_block(out.data, out.dtype, {out.numel()}, out.device);
  if (const auto outside = f(out, values, indices, listed ? 0 : along_dim(c))) {
    fail(name, ": index is ", *outside, ", expected one of the ", size, " elements of dim ",
         along_dim(c));
  }
}

}  // namespace weft
