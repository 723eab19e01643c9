// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/error.h"
#include "weft/tensor.h"

namespace weft {

inline void check_positive(const char* layer, const char* what, int64_t size) {
  if (size <= 0) fail(layer, ": ", what, " must be at least 1, got ", size);
}

inline const Tensor& only_input(const char* layer, const Tensors& inputs) {
  if (inputs.size() != 1) fail(layer, ": number of inputs is ", inputs.size(), ", expected 1");
  return inputs[0];
}

}  // namespace weft
