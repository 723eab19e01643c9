// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/rope.h"

#include "tests/cuda/twin.h"

namespace weft {

class DeviceRope : public OnGpu {};

/// Shapes and dims of the sequence.
static const std::pair<Shape, int> kRopeCases[] = {
    {{7, 2}, 0},       {{2, 33, 3, 16}, 1}, {{2, 3, 33, 64}, 2},   {{1, 5, 1, 10}, 1},
    {{2, 0, 3, 8}, 1}, {{3, 1000, 6}, 1},   {{2, 17, 2, 1032}, 1}, {{3, 4, 0}, 1}};

TEST_F(DeviceRope, TurnsAndTurnsBack) {
  for (const auto& [shape, sequence_dim] : kRopeCases) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      for (const Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
        SCOPED_TRACE(concat(shape, " ", dtype, " ", static_cast<int>(lie)));
        const Twin x = Array::random(dtype, shape, lie), y = Array(dtype, shape);
        for (const Device d : kBothDevices) {
          rope(y.on(d), x.on(d), sequence_dim, {.theta = 500000, .offset = 5});
          rope(x.on(d), x.on(d), sequence_dim, {.inverse = true});
        }
        // Angles are f32 even for f64.
        y.expect_alike_computed_as(DType::f32);
        x.expect_alike_computed_as(DType::f32);
      }
    }
  }
}

TEST_F(DeviceRope, FarPositions) {
  const Twin x = Array::random(DType::f32, {3, 100, 32}), y = Array(DType::f32, {3, 100, 32});
  for (const Device d : kBothDevices) rope(y.on(d), x.on(d), 1, {.offset = 130000});
  y.expect_alike();
}

TEST_F(DeviceRope, TakesPositions) {
  const Twin x = Array::random(DType::f32, {2, 33, 3, 32}), y = Array(DType::f32, {2, 33, 3, 32});
  const Twin positions = Array::random(DType::i64, {2, 33});
  for (const Device d : kBothDevices) {
    const MemoryBlock given = positions.on(d);
    rope(y.on(d), x.on(d), 1, {.scale = 2}, nullptr, &given);
  }
  y.expect_alike();
}

TEST_F(DeviceRope, RefusesWhatHasNoPairs) {
  const Twin x = Array(DType::f32, {3, 5});
  EXPECT_THROW(rope(x.on(gpu), x.on(gpu), 0, {}), std::invalid_argument);
}

}  // namespace weft
