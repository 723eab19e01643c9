// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "src/kernels/reduce/reduce.h"
#include "tests/cuda/twin.h"
#include "weft/error.h"

namespace weft {

class DeviceArgReduce : public OnGpu {};

static constexpr DType kSeekDTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                        DType::i32, DType::i64,  DType::u8,  DType::boolean};
/// Rows processed by one thread, by one thread block, by several.
static const Shape kSeekShapes[] = {{1},      {7, 5},    {5, 33},      {3, 4, 5},
                                    {3, 100}, {2, 9000}, {8200, 1, 2}, {34, 16400}};

/// Integers in [0, end), many of them equal.
static Array with_ties(DType dtype, const Shape& shape, Lie lie, unsigned seed, double end = 9) {
  Array array = Array::random(dtype, shape, lie, seed, 0, end);
  std::vector<double> values = array.values();
  for (double& value : values) value = std::floor(value);
  array.set(values);
  return array;
}

template <class Check> static void for_sought(const Check& check) {
  for_dims(kSeekShapes, kSeekDTypes, 10000, check);
}

TEST_F(DeviceArgReduce, ArgReduce) {
  for_sought([](const Shape& shape, DType dtype, Lie lie, int dim) {
    const Twin in(with_ties(dtype, shape, lie, 3));
    for (const bool greatest : {false, true}) {
      const Twin out(Array(greatest ? DType::i64 : DType::i32, without(shape, dim), lie));
      for (const Device d : kBothDevices) arg_reduce(out.on(d), in.on(d), dim, greatest);
      out.expect_alike();
    }
  });
}

TEST_F(DeviceArgReduce, AnywhereInALongRow) {
  const Twin in(Array(DType::f32, {2, 40'000})), out(Array(DType::i64, {2}));
  const Twin value(Array::of(DType::f32, {2}, {12'345, 39'999}));
  for (const int64_t row : {0, 1}) fill_range(in.on(gpu).part({{row, 0}, {1, 40'000}}), 0);
  arg_reduce(out.on(gpu), in.on(gpu), 1, true);
  EXPECT_EQ(out.fetched(), (std::vector<double>{39'999, 39'999}));
  index_of(out.on(gpu), in.on(gpu), value.on(gpu), 1);
  EXPECT_EQ(out.fetched(), value.fetched());
}

TEST_F(DeviceArgReduce, NaNsComeFirstAndInfinitiesCount) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    std::vector<double> values;
    for (int row = 0; row < 4; ++row) {
      for (int i = 0; i < 50; ++i) {
        const double special = row == 0   ? (i > 20 ? nan : 5)
                               : row == 1 ? -infinity
                               : row == 2 ? infinity
                                          : (i % 2 == 0 ? 0.0 : -0.0);
        values.push_back(special);
      }
    }
    const Twin in(Array::of(dtype, {4, 50}, values));
    for (const bool greatest : {false, true}) {
      const Twin out(Array(DType::i64, {4, 1}));
      for (const Device d : kBothDevices) arg_reduce(out.on(d), in.on(d), 1, greatest);
      EXPECT_EQ(out.fetched(), (std::vector<double>{21, 0, 0, 0}));
      out.expect_alike();
    }
  }
}

TEST_F(DeviceArgReduce, OfNoElements) {
  const Twin in(Array(DType::f32, {3, 0})), out(Array(DType::i64, {3}));
  const Twin value(Array(DType::f32, {3}));
  arg_reduce(out.on(gpu), in.on(gpu), 1, true);
  EXPECT_EQ(out.fetched(), (std::vector<double>{-1, -1, -1}));
  for (const Device d : kBothDevices) index_of(out.on(d), in.on(d), value.on(d), 1);
  out.expect_alike();
  const Twin none(Array(DType::i64, {0}));
  arg_reduce(none.on(gpu), in.on(gpu), 0, true);
  EXPECT_TRUE(none.fetched().empty());
}

TEST_F(DeviceArgReduce, IndexOf) {
  for_sought([](const Shape& shape, DType dtype, Lie lie, int dim) {
    const Twin in(with_ties(dtype, shape, lie, 3));
    // Some rows do not contain the value.
    const Twin value(with_ties(dtype, without(shape, dim), lie, 4, 12));
    for (const DType index : {DType::i32, DType::i64}) {
      const Twin out(Array(index, without(shape, dim)));
      for (const Device d : kBothDevices) index_of(out.on(d), in.on(d), value.on(d), dim, 3);
      out.expect_alike();
    }
  });
}

TEST_F(DeviceArgReduce, IndexOfNaN) {
  const double nan = std::nan("");
  const Twin in(Array::of(DType::f32, {2, 3}, {1, nan, nan, 4, 5, 6}));
  const Twin value(Array::of(DType::f32, {2}, {nan, nan})), out(Array(DType::i32, {2}));
  index_of(out.on(gpu), in.on(gpu), value.on(gpu), 1, 100);
  EXPECT_EQ(out.fetched(), (std::vector<double>{101, std::numeric_limits<int32_t>::max()}));
}

TEST_F(DeviceArgReduce, ExtremesOfNoElements) {
  for (const DType dtype :
       {DType::i8, DType::i32, DType::u16, DType::boolean, DType::i64, DType::f32}) {
    for (const Reduction reduction : {Reduction::max, Reduction::min}) {
      SCOPED_TRACE(name_of(dtype));
      const Twin in(Array(dtype, {0, 3})), out(Array(dtype, {3}));
      for (const Device d : kBothDevices) reduce(reduction, out.on(d), in.on(d), {0});
      out.expect_alike(0);
    }
  }
}

}  // namespace weft
