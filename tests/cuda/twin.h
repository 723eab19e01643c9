// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "src/base/numeric.h"
#include "src/kernels/copy/copy.h"
#include "tests/cuda/device.h"
#include "tests/kernels/array.h"
#include "weft/error.h"
#include "weft/storage.h"

namespace weft {

/// An array on the host and one on the GPU with the same layout and initial elements.
class Twin {
 public:
  Twin(Array array)  // NOLINT(google-explicit-constructor)
      : here_(std::move(array)), there_(here_.block) {
    int64_t extent = 1;
    for (int d = 0; d < there_.shape.ndim(); ++d) {
      extent += std::max<int64_t>(0, there_.shape[d] - 1) * there_.strides[d];
    }
    memory_ = Storage::allocate(static_cast<size_t>(extent) * size_of(there_.dtype), gpu);
    there_.data = memory_->data();
    there_.device = gpu;
    copy(there_, here_.block);
  }
  Twin(const Twin&) = delete;

  const MemoryBlock& on(Device device) const { return device == gpu ? there_ : here_.block; }
  /// The GPU's elements.
  std::vector<double> fetched() const {
    const Array back(there_.dtype, there_.shape);
    copy(back.block, there_);
    return back.values();
  }
  /// Compares after a computation on both: expect_near, by default with a few roundings of dtype.
  void expect_alike(double roundings = 4) const {
    expect_near(fetched(), here_.values(), roundings * rounding(there_.dtype));
  }
  /// The same for elements computed like those of `dtype`: allows a few roundings of that dtype,
  /// and the last bit of a half. `scale`: of the numbers whose differences the elements are.
  void expect_alike_computed_as(DType dtype, double scale = 0) const {
    const bool rounded = there_.dtype != compute_dtype(there_.dtype);
    const double last_bit = rounded ? 2 * rounding(there_.dtype) : 0;
    expect_near(fetched(), here_.values(), last_bit + 8 * rounding(compute_dtype(dtype)), scale);
  }

 private:
  Array here_;
  Ref<Storage> memory_;
  MemoryBlock there_;
};

inline constexpr Device kBothDevices[] = {cpu, gpu};

inline Shape without(Shape shape, int dim) {
  shape.erase(dim);
  return shape;
}

/// Calls check(shape, dtype, lie, dim) for each dim of arrays of these shapes and dtypes, in three
/// layouts; those of more than `most` elements are f32 without gaps.
template <class Check>
void for_dims(std::span<const Shape> shapes, std::span<const DType> dtypes, int64_t most,
              const Check& check) {
  for (const Shape& shape : shapes) {
    for (const DType dtype : dtypes) {
      for (const Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
        if (shape.product() > most && (dtype != DType::f32 || lie == Lie::gaps)) continue;
        for (int dim = 0; dim < shape.ndim(); ++dim) {
          SCOPED_TRACE(concat(shape, " ", dtype, " ", static_cast<int>(lie), " dim ", dim));
          check(shape, dtype, lie, dim);
        }
      }
    }
  }
}

}  // namespace weft
