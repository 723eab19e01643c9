// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

#include "weft/export.h"

namespace weft {

inline constexpr int kMaxDims = 32;

/// Up to kMaxDims numbers, one per dim, stored inline: a shape, strides (in elements) or an offset.
class WEFT_API Dims {
 public:
  Dims() noexcept { std::fill_n(values_.begin(), kFew, 0); }
  Dims(const Dims& other) noexcept : ndim_(other.ndim_) { copy(other); }
  Dims& operator=(const Dims& other) noexcept {
    ndim_ = other.ndim_;
    copy(other);
    return *this;
  }
  Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const int64_t> values);
  /// Returns `ndim` dims, all equal to `value`.
  static Dims filled(int ndim, int64_t value);

  int ndim() const { return ndim_; }
  bool empty() const { return ndim_ == 0; }
  int64_t operator[](int dim) const { return values_[static_cast<size_t>(dim)]; }
  int64_t& operator[](int dim) { return values_[static_cast<size_t>(dim)]; }
  int64_t back() const { return values_[ndim_ - 1]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + ndim_; }
  int64_t* begin() { return values_.data(); }
  int64_t* end() { return values_.data() + ndim_; }

  /// Appends a value; std::invalid_argument beyond kMaxDims.
  void push_back(int64_t value);
  void insert(int dim, int64_t value);
  void erase(int dim);
  /// The product of all values: the number of elements of a shape (1 when there are no dims).
  int64_t product() const;

  bool operator==(const Dims& other) const {
    if (ndim_ != other.ndim_) return false;
    for (int i = 0; i < ndim_; ++i) {
      if (values_[i] != other.values_[i]) return false;
    }
    return true;
  }

 private:
  /// Few tensors have more dims: so many numbers are copied always, further ones where they exist.
  static constexpr size_t kFew = 8;

  void copy(const Dims& other) noexcept {
    for (size_t i = 0; i < kFew; ++i) values_[i] = other.values_[i];
    for (size_t i = kFew; i < ndim_; ++i) values_[i] = other.values_[i];
  }

  uint8_t ndim_ = 0;
  std::array<int64_t, kMaxDims> values_;
};

using Shape = Dims;
using Strides = Dims;

/// Row-major strides of a dense block of that shape.
WEFT_API Strides dense_strides(const Shape& shape);

/// Returns `dim`, counted from the end if negative; std::invalid_argument that begins with `what`
/// when it is not one of `ndim` dims.
WEFT_API int normalized_dim(const char* what, int dim, int ndim);

/// "[4, 8]".
WEFT_API std::ostream& operator<<(std::ostream& out, const Dims& dims);

}  // namespace weft
