// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include "src/kernels/copy/copy.h"
#include "tests/cuda/twin.h"
#include "weft/error.h"

namespace weft {

class DeviceSort : public OnGpu {};

static constexpr DType kSortedDTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                          DType::i32, DType::i64,  DType::u8,  DType::boolean};
static constexpr Lie kSortedLies[] = {Lie::dense, Lie::transposed, Lie::gaps};
/// Many rows per thread block, one row, and rows that need merging.
static const Shape kSortedShapes[] = {{1},       {300, 1},  {7, 5},    {2, 3, 33}, {3, 1000},
                                      {2, 2048}, {2, 2049}, {3, 5000}, {1, 17000}};

/// Numbers with ties; floats include NaNs, infinities and zeros of both signs.
static Array unsorted(DType dtype, const Shape& shape, Lie lie) {
  Array array = Array::random(dtype, shape, lie, 3, dtype == DType::u8 ? 0 : -50, 50);
  std::vector<double> values = array.values();
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 3 == 0) values[i] = std::floor(values[i] / 5);
    if (!is_floating(dtype)) continue;
    if (i % 37 == 3) values[i] = i % 2 == 0 ? std::nan("") : -std::nan("");
    if (i % 41 == 2) values[i] = i % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
    if (i % 11 == 4) values[i] = i % 2 == 0 ? 0.0 : -0.0;
  }
  array.set(values);
  return array;
}

template <class Check> static void for_sorted(const Check& check) {
  for (const Shape& shape : kSortedShapes) {
    for (const DType dtype : kSortedDTypes) {
      for (const Lie lie : kSortedLies) {
        const bool wide = dtype == DType::f64 || dtype == DType::f32;
        if (shape.product() > 1000 && (!wide || lie == Lie::gaps)) continue;
        for (const bool descending : {false, true}) {
          SCOPED_TRACE(concat(shape, " ", dtype, " ", static_cast<int>(lie), " ", descending));
          check(unsorted(dtype, shape, lie), descending);
        }
      }
    }
  }
}

TEST_F(DeviceSort, Rows) {
  for_sorted([](Array array, bool descending) {
    const DType dtype = array.block.dtype;
    const Shape shape = array.block.shape;
    const Twin in(std::move(array)), values(Array(dtype, shape, Lie::gaps));
    const Twin indices(Array(DType::i32, shape));
    for (const Device d : kBothDevices) {
      sort_rows(&values.on(d), indices.on(d), in.on(d), descending, 5);
    }
    indices.expect_alike(), values.expect_alike(0);
    for (const Device d : kBothDevices) sort_rows(nullptr, indices.on(d), in.on(d), descending);
    indices.expect_alike();
  });
}

TEST_F(DeviceSort, TheFirstOfEachRow) {
  for_sorted([](Array array, bool descending) {
    const DType dtype = array.block.dtype;
    Shape shape = array.block.shape;
    shape[shape.ndim() - 1] = (shape.back() + 2) / 3;
    const Twin in(std::move(array)), values(Array(dtype, shape));
    const Twin indices(Array(DType::i64, shape, Lie::transposed));
    for (const Device d : kBothDevices) {
      sort_rows(&values.on(d), indices.on(d), in.on(d), descending);
    }
    indices.expect_alike(), values.expect_alike(0);
  });
}

TEST_F(DeviceSort, OfNoElements) {
  for (const Shape& shape : {Shape{3, 0}, Shape{0, 3}}) {
    const Twin in(Array(DType::f32, shape)), indices(Array(DType::i64, shape));
    sort_rows(&in.on(gpu), indices.on(gpu), in.on(gpu));
    EXPECT_TRUE(indices.fetched().empty());
  }
}

TEST_F(DeviceSort, WholeNumbersBeyondDoubles) {
  const Array large(DType::i64, {4});
  const int64_t values[] = {INT64_MAX, INT64_MIN, INT64_MAX - 1, -1};
  std::copy(std::begin(values), std::end(values), large.block.as<int64_t>());
  const Twin in(large), indices(Array(DType::i64, {4}));
  sort_rows(nullptr, indices.on(gpu), in.on(gpu));
  EXPECT_EQ(indices.fetched(), (std::vector<double>{1, 3, 2, 0}));
}

TEST_F(DeviceSort, SearchesSortedRows) {
  for (const DType dtype : kSortedDTypes) {
    const Twin rows(unsorted(dtype, {5, 700}, Lie::dense)), sorted(Array(dtype, {5, 700}));
    const Twin order(Array(DType::i64, {5, 700})), row(Array(dtype, {700}));
    const Twin values(unsorted(dtype, {5, 33}, Lie::transposed)), found(Array(DType::i64, {5, 33}));
    for (const Device d : kBothDevices) sort_rows(&sorted.on(d), order.on(d), rows.on(d));
    for (const Device d : kBothDevices) {
      MemoryBlock one = sorted.on(d).part({{1, 0}, {1, 700}});
      one.shape.erase(0);
      one.strides.erase(0);
      copy(row.on(d), one);
    }
    for (const bool right : {false, true}) {
      for (const Device d : kBothDevices) {
        search_sorted(found.on(d), sorted.on(d), values.on(d), right);
      }
      found.expect_alike();
      for (const Device d : kBothDevices) {
        search_sorted(found.on(d), row.on(d), values.on(d), right);
      }
      found.expect_alike();
    }
  }
}

}  // namespace weft
