// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// While an instance exists, the calling thread adds as two ranks do that each have half of a
/// tensor: it takes the sums over the reduced dim of a linear layer, the classes of a head and the
/// tokens (or heads) of a norm's or a bias' gradient in two halves, unless it has one half alone.
/// Gradients that are Partial along `axes` are reduced before they are added to others. Then a
/// model that is cut in two along these axes has the bits of a whole one. Dropout takes the first
/// dim of a tensor for rows from `first_row` on.
class WEFT_API FixedSums : NotCopied {
 public:
  explicit FixedSums(std::vector<std::string> axes = {}, int64_t first_row = 0);
  ~FixedSums();
  /// The calling thread's innermost one; null without.
  static const FixedSums* current();
  int64_t first_row() const { return first_row_; }
  /// The gradient with its sums along the axes.
  Tensor reduced(const Tensor& gradient) const;

 private:
  const std::vector<std::string> axes_;
  const int64_t first_row_;
  const FixedSums* const outer_;
};

}  // namespace weft
