// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/swiglu/swiglu.h"

#include "tests/cuda/twin.h"

namespace weft {

class DeviceSwiglu : public OnGpu {};

TEST_F(DeviceSwiglu, ValueAndGradients) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const Shape& shape : {Shape{7}, Shape{5, 33}, Shape{0, 4}, Shape{3, 1000}}) {
      for (const Lie lie : {Lie::dense, Lie::gaps}) {
        SCOPED_TRACE(concat(dtype, " ", shape, " ", static_cast<int>(lie)));
        const Twin a = Array::random(dtype, shape, lie, 1), b = Array::random(dtype, shape, lie, 2);
        const Twin dy = Array::random(dtype, shape, Lie::dense, 3), y = Array(dtype, shape, lie);
        const Twin da = Array(dtype, shape, lie), db = Array(dtype, shape, lie);
        for (const Device d : kBothDevices) {
          swiglu(y.on(d), a.on(d), b.on(d));
          swiglu_backward(da.on(d), db.on(d), dy.on(d), a.on(d), b.on(d));
        }
        for (const Twin* twin : {&y, &da, &db}) twin->expect_alike();
      }
    }
  }
}

}  // namespace weft
