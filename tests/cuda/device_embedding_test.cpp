// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding/embedding.h"

#include "src/kernels/take/take.h"
#include "tests/cuda/twin.h"

namespace weft {

class DeviceEmbedding : public OnGpu {};

/// Ids in and around [0, rows): some outside, some repeated.
static Twin row_ids(DType dtype, const Shape& shape, int64_t rows) {
  std::vector<double> ids;
  for (int64_t i = 0; i < shape.product(); ++i) {
    const int64_t id = i % 3 == 0 ? 2 : i * 37 % (rows + 4) - 2;
    ids.push_back(static_cast<double>(id));
  }
  return Array::of(dtype, shape, ids);
}

struct EmbeddingCase {
  Shape ids;
  int64_t rows, size;
};

static const EmbeddingCase kEmbeddingCases[] = {
    {{7}, 5, 3},        {{3, 11}, 40, 33}, {{5, 200}, 17, 64}, {{0}, 4, 8}, {{1, 1}, 1, 1},
    {{2500}, 1000, 16}, {{3, 2}, 7, 1000}, {{4}, 0, 8},        {{4}, 3, 0}};

static Shape with_last(Shape shape, int64_t size) {
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  sizes.push_back(size);
  return Shape(std::span<const int64_t>(sizes));
}

TEST_F(DeviceEmbedding, GathersRows) {
  constexpr std::pair<DType, DType> kDtypes[] = {
      {DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::f16, DType::f32},
      {DType::f64, DType::f64}, {DType::f32, DType::bf16},  {DType::i64, DType::i32}};
  for (const EmbeddingCase& c : kEmbeddingCases) {
    for (const auto& [from, to] : kDtypes) {
      for (const Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
        SCOPED_TRACE(concat(c.ids, " ", from, " ", to, " ", static_cast<int>(lie)));
        const Twin table = Array::random(from, {c.rows, c.size}, lie);
        const Twin ids = row_ids(lie == Lie::gaps ? DType::i32 : DType::i64, c.ids, c.rows);
        const Twin out = Array(to, with_last(c.ids, c.size), lie);
        for (const Device d : kBothDevices) gather_rows(out.on(d), table.on(d), ids.on(d), 1);
        out.expect_alike(0);
      }
    }
  }
}

/// Bit for bit equal to the CPU's result: the order of additions is fixed.
TEST_F(DeviceEmbedding, AddsRowsInTheOrderOfTheIds) {
  constexpr std::pair<DType, DType> kDtypes[] = {{DType::f32, DType::f32},
                                                 {DType::bf16, DType::bf16},
                                                 {DType::f16, DType::f16},
                                                 {DType::f64, DType::f64},
                                                 {DType::f32, DType::bf16}};
  for (const EmbeddingCase& c : kEmbeddingCases) {
    for (const auto& [to, from] : kDtypes) {
      for (const Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
        SCOPED_TRACE(concat(c.ids, " ", c.rows, " ", to, " ", from, " ", static_cast<int>(lie)));
        const Twin table = Array::random(to, {c.rows, c.size}, lie, 1);
        const Twin more = Array::random(to, {c.rows, c.size}, lie, 2);
        const Twin rows = Array::random(from, with_last(c.ids, c.size), lie, 3);
        const Twin ids = row_ids(lie == Lie::gaps ? DType::i32 : DType::i64, c.ids, c.rows);
        for (const Device d : kBothDevices) {
          scatter_add_rows(table.on(d), rows.on(d), ids.on(d));
          scatter_add_rows(more.on(d), rows.on(d), ids.on(d), 1, true);
        }
        table.expect_alike(0);
        more.expect_alike(0);
      }
    }
  }
}

TEST_F(DeviceEmbedding, FindsTheFirstIdOutside) {
  for (const DType dtype : {DType::i32, DType::i64}) {
    std::vector<double> values(1000, 5);
    const auto find = [&](std::optional<int64_t> allowed = {}) {
      const Twin ids = Array::of(dtype, {8, 125}, values);
      return find_outside(ids.on(gpu), 0, 10, allowed);
    };
    EXPECT_EQ(find(), std::nullopt);
    values[700] = 10;
    EXPECT_EQ(find(), 10);
    values[400] = -7;
    EXPECT_EQ(find(), -7);
    EXPECT_EQ(find(-7), 10);
  }
  const Twin none = Array(DType::i64, {0, 3});
  EXPECT_EQ(find_outside(none.on(gpu), 0, 10), std::nullopt);
  const Twin view = Array::random(DType::i64, {7, 9}, Lie::transposed, 1, 0, 30);
  EXPECT_EQ(find_outside(view.on(gpu), 0, 20), find_outside(view.on(cpu), 0, 20));
}

}  // namespace weft
