// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// The contraction of two operands, or earlier results, of an einsum.
struct EinsumStep {
  /// Indices in the list of operands, from which both are removed and to which the result is
  /// appended, as in numpy.einsum_path.
  int first, second;
  /// "ij,jk->ik".
  std::string equation;
  /// Shapes and layouts: "[5, 7] [S(0)] x [7, 3] [R] -> [5, 3] [S(0)]".
  std::string layouts;
  /// Bytes that this rank receives from others, and the predicted time.
  int64_t bytes = 0;
  double seconds = 0;
};

/// An order of contractions, what it moves, and the greatest part of an intermediate result that a
/// rank holds.
struct EinsumPath {
  std::string equation;
  std::vector<EinsumStep> steps;
  int64_t bytes = 0;
  double seconds = 0;
  int64_t intermediate_bytes = 0;
};

/// The order in which weft::einsum contracts the operands: that of least predicted time over their
/// mesh, for products and for what crosses ranks, among the orders whose intermediate results take
/// at most `memory` bytes of a rank each. All orders are compared for up to 6 operands, and for up
/// to 9 all whose parts are best ones; of more operands, the pair of least time comes first. Equal
/// on all ranks. std::invalid_argument if no order fits.
WEFT_API EinsumPath einsum_path(std::string_view equation, const Tensors& operands,
                                std::optional<int64_t> memory = {});

/// weft::einsum in that order.
WEFT_API Tensor einsum(std::string_view equation, const Tensors& operands,
                       std::optional<int64_t> memory);

/// Prints the order, a line for each contraction: layouts, bytes, predicted time.
WEFT_API std::ostream& operator<<(std::ostream& out, const EinsumPath& path);

}  // namespace weft
