// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "ops/moved_parts.h"
#include "weft/extend/op.h"

namespace weft {

/// Splits the products of this rank by the rows of their first operand, in a scope: `before` is
/// called before a part is computed, `after` with the product's memory when it has been queued.
class ProductParts {
 public:
  using Before = std::function<void(int part)>;
  using After = std::function<void(int part, const MemoryBlock& product)>;
  ProductParts(const RowParts& rows, Before before, After after);
  ~ProductParts();
  ProductParts(const ProductParts&) = delete;
  ProductParts& operator=(const ProductParts&) = delete;

  /// The calling thread's innermost one; null without.
  static ProductParts* current();
  /// Computes out = product(a) part by part.
  void compute(const MemoryBlock& a, const MemoryBlock& out,
               const std::function<void(const MemoryBlock&, const MemoryBlock&)>& product);

 private:
  const RowParts& rows_;
  const Before before_;
  const After after_;
  ProductParts* const outer_;
};

/// The op of `matmul` for operands of one dtype.
const Op& matmul_product();

}  // namespace weft
