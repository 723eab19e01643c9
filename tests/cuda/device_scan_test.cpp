// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/scan/scan.h"
#include "tests/cuda/twin.h"
#include "weft/error.h"

namespace weft {

class DeviceScan : public OnGpu {};

static constexpr DType kScanDTypes[] = {DType::f32, DType::bf16, DType::f16,
                                        DType::f64, DType::i32,  DType::i64};
/// Rows processed by one thread, by one thread block, in several tiles.
static const Shape kScanShapes[] = {{1}, {7, 5}, {5, 33}, {3, 40, 2}, {2, 5000}};

template <class Check> static void for_scanned(const Check& check) {
  for_dims(kScanShapes, kScanDTypes, 5000, check);
}

TEST_F(DeviceScan, CumulativeSum) {
  for_scanned([](const Shape& shape, DType dtype, Lie lie, int dim) {
    const Twin in(Array::random(dtype, shape, lie)), out(Array(dtype, shape, Lie::gaps));
    const Twin start(Array::random(dtype, without(shape, dim), lie, 2));
    for (const bool reverse : {false, true}) {
      for (const Device d : kBothDevices)
        running_total(Running::sum, out.on(d), in.on(d), dim, reverse);
      out.expect_alike();
      for (const Device d : kBothDevices) {
        running_total(Running::sum, out.on(d), in.on(d), dim, reverse, &start.on(d));
      }
      out.expect_alike();
    }
  });
}

TEST_F(DeviceScan, CumulativeProduct) {
  for_scanned([](const Shape& shape, DType dtype, Lie lie, int dim) {
    const bool whole = dtype == DType::i32 || dtype == DType::i64;
    const Twin in(Array::random(dtype, shape, lie, 1, whole ? 1 : -1.1, whole ? 2 : 1.1));
    const Twin out(Array(dtype, shape));
    for (const Device d : kBothDevices) running_total(Running::product, out.on(d), in.on(d), dim);
    out.expect_alike();
  });
}

TEST_F(DeviceScan, CumulativeLogSumExp) {
  for_scanned([](const Shape& shape, DType dtype, Lie lie, int dim) {
    if (!is_floating(dtype)) return;
    const Twin in(Array::random(dtype, shape, lie, 1, -30, 30)), out(Array(dtype, shape));
    const Twin start(Array::random(dtype, without(shape, dim), lie, 2));
    for (const bool reverse : {false, true}) {
      for (const Device d : kBothDevices) {
        running_total(Running::logsumexp, out.on(d), in.on(d), dim, reverse, &start.on(d));
      }
      out.expect_alike();
    }
  });
}

TEST_F(DeviceScan, CumulativeExtremes) {
  for_scanned([](const Shape& shape, DType dtype, Lie lie, int dim) {
    Array numbers = Array::random(dtype, shape, lie, 1, -20, 20);
    std::vector<double> values = numbers.values();
    for (size_t i = 5; is_floating(dtype) && i < values.size(); i += 1999) values[i] = std::nan("");
    numbers.set(values);
    const Twin in(numbers), out(Array(dtype, shape)), indices(Array(DType::i64, shape));
    const Twin start(Array::random(dtype, without(shape, dim), lie, 2));
    const Twin start_index(Array::random(DType::i64, without(shape, dim), lie, 3, -1, 9));
    for (const bool greatest : {false, true}) {
      for (const Device d : kBothDevices) {
        cumulative_extreme(out.on(d), indices.on(d), in.on(d),
                           {.dim = dim,
                            .greatest = greatest,
                            .offset = 10,
                            .start = &start.on(d),
                            .start_index = &start_index.on(d)});
      }
      out.expect_alike();
      indices.expect_alike();
    }
  });
}

TEST_F(DeviceScan, ManyRowsSideBySide) {
  const Shape shape{33, 16400};
  const Twin x(Array::random(DType::f32, shape)), out(Array(DType::f32, shape));
  for (const Device d : kBothDevices) running_total(Running::sum, out.on(d), x.on(d), 0, true);
  out.expect_alike();
}

TEST_F(DeviceScan, OfNoElements) {
  for (const Shape& shape : {Shape{3, 0}, Shape{0, 3}}) {
    const Twin in(Array(DType::f32, shape)), out(Array(DType::f32, shape));
    running_total(Running::sum, out.on(gpu), in.on(gpu), 1);
    EXPECT_TRUE(out.fetched().empty());
  }
}

TEST_F(DeviceScan, InPlace) {
  const Twin x(Array::random(DType::f32, {3, 700}));
  for (const Device d : kBothDevices) running_total(Running::sum, x.on(d), x.on(d), 1);
  x.expect_alike();
}

}  // namespace weft
