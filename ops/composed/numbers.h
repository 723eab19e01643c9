// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/ops/factories.h"
#include "weft/sharding.h"
#include "weft/tensor.h"

namespace weft {

/// The options of a new tensor on the device of `a`, Replicate over its mesh.
inline TensorOptions options_next_to(const Tensor& a, DType dtype) {
  TensorOptions options{.dtype = dtype, .device = a.device()};
  if (a.is_sharded()) options.sharding = Sharding(a.sharding().mesh(), {});
  return options;
}

/// first, first + 1, ..., last - 1 (i64) next to `a`.
inline Tensor numbers_next_to(const Tensor& a, int64_t first, int64_t last) {
  return arange(static_cast<double>(first), static_cast<double>(last), 1,
                options_next_to(a, DType::i64));
}

}  // namespace weft
