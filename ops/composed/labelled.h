// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weft/tensor.h"

namespace weft {

/// A tensor and the label of each of its dims.
struct Labelled {
  Tensor tensor;
  std::string labels;
  bool has(char label) const { return labels.find(label) != labels.npos; }
};

/// Labels of the dims that "..." stands for, of which the last is always kFirstDot + kMaxDims - 1.
inline constexpr char kFirstDot = 1;

inline int64_t size_of_label(const Labelled& a, char label) {
  return a.tensor.size(static_cast<int>(a.labels.find(label)));
}

/// An equation and its operands.
struct Einsum {
  std::string equation;
  std::vector<Labelled> operands;
  std::string result;
};

/// std::invalid_argument "einsum: ..." for an equation that does not fit the operands.
Einsum parsed_einsum(std::string_view equation, const Tensors& operands);

/// Sums over the labels that are not in `kept`.
Labelled summed(const Labelled& a, const std::set<char>& kept);
/// The product of two operands, summed over the labels that are not in `kept`.
Labelled contracted(Labelled a, Labelled b, const std::set<char>& kept);

}  // namespace weft
