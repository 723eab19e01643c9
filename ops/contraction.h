// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/tensor.h"

namespace weft {

/// Sums products over the labels that `result` lacks; a label for each dim. Labels of an operand
/// are distinct, those of the result too, and each label is in two of the three or in all. A label
/// that is cut stays cut, wherever it stands. At most 30 labels in the three together.
Tensor contraction(const Tensor& a, const std::string& labels_of_a, const Tensor& b,
                   const std::string& labels_of_b, const std::string& result);

/// The order of the result's labels in which no dim needs to be moved afterwards.
std::string natural_order(const std::string& labels_of_a, const std::string& labels_of_b,
                          const std::string& result);

}  // namespace weft
