// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/ranks.h"
#include "weft/extend/packed.h"
#include "weft/ops.h"

namespace weft {
namespace {

/// Elements of a matrix as blocks of 64 elements of a row give them back.
std::vector<double> rounded(const std::vector<double>& values, int64_t columns, int bits) {
  const float most = bits == 4 ? 7 : 127;
  std::vector<double> result;
  const auto size = static_cast<int64_t>(values.size());
  for (int64_t at = 0; at < size;) {
    const int64_t end = std::min(at + kPackedBlock, (at / columns + 1) * columns);
    float greatest = 0;
    for (int64_t i = at; i < end; ++i) {
      greatest = std::max(greatest, std::abs(static_cast<float>(values[static_cast<size_t>(i)])));
    }
    const float scale = greatest / most, factor = greatest > 0 ? 1 / scale : 0;
    for (; at < end; ++at) {
      const auto value = static_cast<float>(values[static_cast<size_t>(at)]);
      result.push_back(static_cast<double>(std::nearbyint(value * factor) * scale));
    }
  }
  return result;
}

std::vector<double> some_values(const Shape& shape) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.product(); ++i) {
    values.push_back(std::sin(static_cast<double>(i * i % 977)) * static_cast<double>(i % 13));
  }
  return values;
}

TEST(Packed, RoundsEachBlockByItsScale) {
  for (const int bits : {4, 8}) {
    for (const Shape& shape : {Shape{3, 64}, Shape{5, 7}, Shape{2, 130}, Shape{0, 64}}) {
      const std::vector<double> values = some_values(shape);
      const Tensor packed = pack_rows(from_values(values, shape), bits);
      EXPECT_EQ(packed.shape(), (Shape{shape[0], (shape[1] + 63) / 64, packed_bytes(bits)}));
      expect_values(unpack_rows(packed, shape[1]).to_vector<double>(),
                    rounded(values, shape[1], bits));
      // The strides of the matrix do not matter.
      const Tensor flipped = transpose(from_values(values, shape), 0, 1);
      EXPECT_EQ(pack_rows(transpose(contiguous(flipped), 0, 1), bits).to_vector<double>(),
                packed.to_vector<double>());
    }
  }
}

TEST(Packed, TakesAtMostSixTenthsOfAByteAnElement) {
  const Tensor packed = pack_rows(zeros({64, 256}), 4);
  EXPECT_LE(static_cast<double>(packed.numel()), 0.6 * 64 * 256);
}

TEST(Packed, KeepsZerosAndTellsNaN) {
  std::vector<double> values(128, 0);
  values[70] = INFINITY;
  const auto result =
      unpack_rows(pack_rows(from_values(values, {1, 128}), 4), 128).to_vector<double>();
  EXPECT_EQ(result[3], 0);
  EXPECT_TRUE(std::isnan(result[65]));
}

/// The product, and the gradient of x, are those of the matrix that is stored, on any layout.
TEST(Packed, MultipliesAsItsMatrix) {
  for (const int64_t columns : {192, 43}) {
    for (const int ranks : {1, 3, 4}) {
      on_mesh({{"tp", ranks}}, [&](const DeviceMesh& mesh) {
        const Tensor packed = pack_rows(from_values(some_values({5, columns}), {5, columns}), 4);
        const Tensor matrix = unpack_rows(packed, columns);
        Tensor whole = numbers({2, 6, columns}), dy = numbers({2, 6, 5}, 3);
        whole.set_requires_grad();
        const Tensor y = linear(whole, matrix);
        sum(mul(y, dy)).backward();
        for (const Placement& cut :
             {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
          for (const Placement& rows : {Placement(Replicate()), Placement(Shard(2))}) {
            Tensor x = distribute(numbers({2, 6, columns}), mesh, {rows});
            x.set_requires_grad();
            const Tensor result = packed_linear(x, distribute(packed, mesh, {cut}));
            sum(mul(result, distribute(dy, mesh, {}))).backward();
            expect_values(whole_values(result), y.to_vector<double>(), 1e-6);
            expect_values(whole_values(x.grad()), whole.grad().to_vector<double>(), 1e-6);
          }
        }
      });
    }
  }
}

/// A row-parallel product with whole blocks a rank moves nothing.
TEST(Packed, CutsBlocksWithoutTraffic) {
  on_mesh({{"tp", 2}}, [&](const DeviceMesh& mesh) {
    const Tensor x = distribute(numbers({4, 256}), mesh, {Shard(1)});
    const Tensor packed = distribute(pack_rows(numbers({3, 256}), 8), mesh, {Shard(1)});
    EXPECT_EQ(
        bytes_received(mesh, [&] { expect_placements(packed_linear(x, packed), {Partial()}); }), 0);
    const Tensor columns = distribute(pack_rows(numbers({6, 256}), 8), mesh, {Shard(0)});
    const Tensor whole = distribute(numbers({4, 256}), mesh, {});
    EXPECT_EQ(
        bytes_received(mesh, [&] { expect_placements(packed_linear(whole, columns), {Shard(1)}); }),
        0);
  });
}

TEST(Packed, RefusesOtherOperands) {
  const auto expect_error = [](const std::function<void()>& run, const std::string& words) {
    try {
      run();
      ADD_FAILURE() << "no error: " << words;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), words);
    }
  };
  expect_error([] { pack_rows(zeros({4}), 4); },
               "pack_rows: tensor is [4] f32, expected a floating matrix");
  expect_error(
      [] {
        pack_rows(zeros({4, 4}), 5);
      },
      "pack_rows: bits of a code are 5, expected 4 or 8");
  const Tensor packed = pack_rows(zeros({4, 70}), 4);
  expect_error([&] { unpack_rows(packed, 64); },
               "unpack_rows: matrix is [4, 2, 36] u8, expected u8 [rows, 1, 36 or 68], packed of "
               "64 columns");
  expect_error([&] { unpack_rows(packed, 70, DType::i32); },
               "unpack_rows: dtype is i32, expected f32, bf16, f16 or f64");
  expect_error([&] { packed_linear(zeros({70}, {.dtype = DType::i32}), packed); },
               "packed_linear: input is [70] i32, expected a floating one with at least 1 dim");
  expect_error(
      [&] {
        packed_linear(zeros({2, 64}), packed);
      },
      "packed_linear: matrix is [4, 2, 36] u8, expected u8 [rows, 1, 36 or 68], packed of "
      "64 columns");
}

}  // namespace
}  // namespace weft
