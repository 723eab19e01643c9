// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/random/random.h"
#include "tests/cuda/twin.h"
#include "weft/error.h"

namespace weft {

class DeviceRandom : public OnGpu {};

struct BoxCase {
  Box box;
  Shape shape;
};
/// The whole; boxes that begin and end within a counter's words; rows; single elements; none.
static const BoxCase kBoxes[] = {
    {{{0}, {1000}}, {1000}},
    {{{0, 0}, {7, 33}}, {7, 33}},
    {{{3, 0}, {2, 33}}, {7, 33}},
    {{{1, 5}, {5, 13}}, {7, 33}},
    {{{0, 2}, {7, 1}}, {7, 5}},
    {{{1, 2, 3}, {2, 2, 6}}, {4, 5, 12}},
    {{{2}, {1}}, {5}},
    {{{}, {}}, {}},
    {{{0, 0}, {0, 33}}, {7, 33}},
    {{{1, 0, 1, 0, 1, 0, 1, 0, 1, 0}, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
     {3, 3, 3, 3, 3, 3, 3, 3, 3, 3}},
};
static constexpr RandomState kState{0x123456789abcdef, 0xfedcba987};

/// Checks that fill(block, box, shape) gives the same bits on both devices.
template <class Fill> static void expect_equal_bits(DType dtype, const Fill& fill) {
  for (const BoxCase& c : kBoxes) {
    for (const Lie lie : kLies) {
      SCOPED_TRACE(concat(dtype, " ", c.box.shape, " of ", c.shape, " ", static_cast<int>(lie)));
      const Twin out(Array(dtype, c.box.shape, lie));
      for (const Device d : kBothDevices) fill(out.on(d), c.box, c.shape);
      out.expect_alike(0);
    }
  }
}

TEST_F(DeviceRandom, Uniform) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    expect_equal_bits(dtype, [](const MemoryBlock& out, const Box& box, const Shape& shape) {
      fill_random(out, box, shape, kState, uniform_in(0.3, 9.7, out.dtype));
    });
  }
}

TEST_F(DeviceRandom, Integers) {
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    expect_equal_bits(dtype, [](const MemoryBlock& out, const Box& box, const Shape& shape) {
      fill_random(out, box, shape, kState, integers_in(3, 170));
    });
  }
  expect_equal_bits(DType::i64, [](const MemoryBlock& out, const Box& box, const Shape& shape) {
    fill_random(out, box, shape, kState,
                integers_in(int64_t{1} << 60, (int64_t{1} << 60) + 1'000'000'007));
  });
}

TEST_F(DeviceRandom, Normal) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    expect_equal_bits(dtype, [](const MemoryBlock& out, const Box& box, const Shape& shape) {
      fill_random(out, box, shape, kState, normal_of(0.7, 1.3));
    });
  }
}

TEST_F(DeviceRandom, NormalOfManyElements) {
  const Box box{{0}, {100'003}};
  const Twin out(Array(DType::f32, box.shape));
  for (const Device d : kBothDevices)
    fill_random(out.on(d), box, box.shape, kState, normal_of(-0.1, 0.02));
  out.expect_alike(0);
}

TEST_F(DeviceRandom, Dropout) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const double p : {0.0, 0.4, 1.0}) {
      for (const Lie lie : {Lie::dense, Lie::gaps}) {
        expect_equal_bits(dtype, [&](const MemoryBlock& out, const Box& box, const Shape& shape) {
          const Twin in(Array::random(dtype, box.shape, lie));
          dropout(out, in.on(out.device), box, shape, kState, p);
          dropout(out, out, box, shape, kState, p / 2);
        });
      }
    }
  }
}

}  // namespace weft
