// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/take/take.h"
#include "tests/cuda/twin.h"
#include "weft/error.h"

namespace weft {

class DeviceTake : public OnGpu {};

static constexpr DType kTakenDTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                         DType::i32, DType::i64,  DType::u8,  DType::boolean};

struct TakeCase {
  /// The shape of the source; `n` elements are taken along `dim`.
  Shape whole;
  int dim;
  int64_t n;
};
static const TakeCase kTakeCases[] = {{{7, 5}, 0, 33},   {{7, 5}, 1, 9},    {{5}, 0, 1000},
                                      {{3, 4, 8}, 1, 6}, {{50, 64}, 0, 33}, {{3, 5}, 0, 0},
                                      {{1, 1}, 1, 1},    {{9, 16}, 0, 2500}};

static Shape with_size(Shape shape, int dim, int64_t n) {
  shape[dim] = n;
  return shape;
}

/// Integers in [-size, size).
static Array indices_for(DType dtype, const Shape& shape, int64_t size) {
  const auto bound = static_cast<double>(size);
  Array array = Array::random(DType::f64, shape, Lie::dense, 5, -bound, bound);
  std::vector<double> values = array.values();
  for (double& value : values) value = std::floor(value);
  return Array::of(dtype, shape, values);
}

/// Runs the check with one index per slice and with one index per element.
template <class Check> static void for_taken(const Check& check) {
  for (const TakeCase& c : kTakeCases) {
    for (const DType dtype : kTakenDTypes) {
      const Shape taken = with_size(c.whole, c.dim, c.n);
      SCOPED_TRACE(concat(dtype, " ", taken, " of ", c.whole, " along ", c.dim));
      const int64_t size = c.whole[c.dim];
      check(c, dtype, taken, Twin(indices_for(DType::i64, {c.n}, size)));
      check(c, dtype, taken, Twin(indices_for(DType::i32, taken, size)));
    }
  }
}

TEST_F(DeviceTake, TakeAlong) {
  for_taken([](const TakeCase& c, DType dtype, const Shape& taken, const Twin& indices) {
    const Twin in(Array::random(dtype, c.whole, Lie::dense, 1, 0, 9)), out(Array(dtype, taken));
    for (const Device d : kBothDevices) take_along(out.on(d), in.on(d), indices.on(d), c.dim);
    out.expect_alike(0);
  });
}

TEST_F(DeviceTake, AddAlongInTheOrderOfTheIndices) {
  for_taken([](const TakeCase& c, DType dtype, const Shape& taken, const Twin& indices) {
    if (dtype == DType::u8 || dtype == DType::boolean) return;
    const Twin in(Array::random(dtype, taken, Lie::dense, 1, -9, 9));
    const Twin out(Array::random(dtype, c.whole, Lie::dense, 2));
    for (const Device d : kBothDevices) {
      write_along(out.on(d), in.on(d), indices.on(d), c.dim, WriteMode::add);
    }
    out.expect_alike(0);
  });
}

TEST_F(DeviceTake, FindsTheFirstIndexOutside) {
  for (const DType dtype : {DType::i32, DType::i64}) {
    for (const int64_t n : {1, 5, 1000, 70'000}) {
      const Shape shape{1, n};
      const Twin good(indices_for(dtype, shape, 10));
      EXPECT_EQ(find_index_outside(good.on(gpu), 10), std::nullopt);
      for (const int64_t place : {int64_t{0}, n / 2, n - 1}) {
        Array bad = indices_for(dtype, shape, 10);
        std::vector<double> values = bad.values();
        values[static_cast<size_t>(place)] = place % 2 == 0 ? 10 : -11;
        for (size_t i = static_cast<size_t>(place) + 1; i < values.size(); ++i) values[i] = 99;
        const Twin twin(Array::of(dtype, shape, values));
        EXPECT_EQ(find_index_outside(twin.on(gpu), 10), find_index_outside(twin.on(cpu), 10));
      }
    }
    EXPECT_EQ(find_index_outside(Twin(Array(dtype, {0})).on(gpu), 10), std::nullopt);
    EXPECT_EQ(find_index_outside(Twin(Array(dtype, {3})).on(gpu), 0), 0);
  }
}

}  // namespace weft
