// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <string>
#include <vector>

#include "weft/dtype.h"
#include "weft/extend/pattern.h"

namespace weft {

/// The contiguous runs of bytes that a box of a dense tensor consists of, in the order of memory.
class BoxRuns {
 public:
  /// `box` in the coordinates of a tensor of `shape`.
  BoxRuns(const Shape& shape, const Box& box, DType dtype) : strides_(dense_strides(shape)) {
    const auto element = static_cast<int64_t>(size_of(dtype));
    outer_ = shape.ndim();
    int64_t run = 1;
    // Dims from `outer_` on make one run: all but the first of them are whole.
    while (outer_ > 0 && run == strides_[outer_ - 1]) run *= box.shape[--outer_];
    for (int dim = 0; dim < shape.ndim(); ++dim) start_ += box.offset[dim] * strides_[dim];
    start_ *= element;
    bytes_ = run * element;
    count_ = 1;
    for (int dim = 0; dim < outer_; ++dim) {
      sizes_.push_back(box.shape[dim]);
      strides_[dim] *= element;
      count_ *= box.shape[dim];
    }
    if (run == 0) count_ = 0;
  }

  int64_t count() const { return count_; }
  /// Bytes of each.
  int64_t bytes() const { return bytes_; }
  /// Offset of a run from the tensor's first byte.
  int64_t start(int64_t run) const {
    int64_t at = start_;
    for (int dim = outer_; dim-- > 0;) {
      at += run % sizes_[dim] * strides_[dim];
      run /= sizes_[dim];
    }
    return at;
  }
  int64_t begin() const { return start_; }
  int64_t end() const { return count_ == 0 ? start_ : start(count_ - 1) + bytes_; }
  /// The first run that ends after the byte `at`; count() if none does.
  int64_t first_after(int64_t at) const {
    const auto runs = std::views::iota(int64_t{0}, count_);
    const auto ends_before = [&](int64_t run) { return start(run) + bytes_ <= at; };
    return static_cast<int64_t>(std::ranges::partition_point(runs, ends_before) - runs.begin());
  }

 private:
  Strides strides_;
  Dims sizes_;
  int outer_ = 0;
  int64_t start_ = 0, bytes_ = 0, count_ = 0;
};

/// Proves that `boxes`, each inside `wanted`, together hold each element of it exactly once.
/// std::invalid_argument "checkpoint: <what>: ..." with the first hole's or overlap's sizes.
void check_covers_once(const std::string& what, const Box& wanted, const std::vector<Box>& boxes);

}  // namespace weft
