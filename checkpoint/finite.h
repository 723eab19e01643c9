// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/rank_file.h"

namespace weft {

/// Counts the elements that are NaN or infinite in the data of a rank's file.
class FiniteCheck {
 public:
  FiniteCheck(const RankFiles& files, int rank);

  /// The data that follow: whole elements.
  void add(std::span<const std::byte> bytes);
  const NonFinite& found() const { return found_; }

 private:
  struct TensorData {
    /// Where it ends in the data.
    int64_t end;
    DType dtype;
    int64_t tensor;
  };

  std::vector<TensorData> tensors_;
  size_t current_ = 0;
  int64_t at_ = 0;
  NonFinite found_;
};

}  // namespace weft
