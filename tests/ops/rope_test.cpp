// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/ops/documents.h"

namespace weft {

/// Rotates pair (i, i + d/2) by position * theta^(-2i/d); sign -1 rotates back.
static Array plain_rope(const Array& x, double theta, int64_t position, double sign = 1) {
  Array y = x;
  const int64_t s = x.shape[1], heads = x.shape[2], d = x.shape[3], half = d / 2;
  for (int64_t row = 0; row < x.shape[0] * s * heads; ++row) {
    const double p = static_cast<double>(position + row / heads % s);
    for (int64_t i = 0; i < half; ++i) {
      const size_t at = static_cast<size_t>(row * d + i), other = at + static_cast<size_t>(half);
      const double power = -2.0 * static_cast<double>(i) / static_cast<double>(d);
      const double angle = sign * p * std::pow(theta, power);
      y.values[at] = x.values[at] * std::cos(angle) - x.values[other] * std::sin(angle);
      y.values[other] = x.values[other] * std::cos(angle) + x.values[at] * std::sin(angle);
    }
  }
  return y;
}

TEST(Rope, EqualsItsDefinition) {
  for (const Shape& shape : {Shape{2, 5, 3, 8}, Shape{1, 33, 1, 2}}) {
    Array a = random_array(shape, -2, 2);
    for (int64_t position : {0, 11}) {
      expect_close(whole(rope(a.on(), 500, position)), plain_rope(a, 500, position), 1e-5, "rope");
    }
  }
}

TEST(Rope, TurnsItsGradientBack) {
  Array a = random_array({2, 5, 3, 8}, -2, 2), dy = random_array({2, 5, 3, 8}, -1, 1, f32, 2);
  Tensor x = a.on();
  x.set_requires_grad();
  backward({rope(x, 10000, 3)}, {dy.on()});
  expect_close(whole(x.grad()), plain_rope(dy, 10000, 3, -1), 1e-5, "gradient");
}

TEST(Rope, TakesFrequencies) {
  // The frequencies of theta 500 and heads of 6, for heads of 9: the last 3 elements stay.
  const Array frequencies{{3}, {1, std::pow(500, -2.0 / 6), std::pow(500, -4.0 / 6)}, f32};
  const Array whole_head = random_array({2, 5, 3, 9}, -2, 2);
  Array part = random_array({2, 5, 3, 6}, -2, 2);
  for (size_t i = 0; i < part.values.size(); ++i) {
    part.values[i] = whole_head.values[i / 6 * 9 + i % 6];
  }
  const Array turned = plain_rope(part, 500, 4);
  Array expected = whole_head;
  for (size_t i = 0; i < part.values.size(); ++i) {
    expected.values[i / 6 * 9 + i % 6] = 1.5 * turned.values[i];
  }
  expect_close(whole(rope(whole_head.on(), frequencies.on(), 1.5, 4)), expected, 1e-5, "rope");
  EXPECT_EQ(error_of([] {
              rope(zeros({2, 5, 3, 8}), zeros({5}));
            }),
            "rope: frequencies are [5], expected a vector of at most 4, half the size of a head");
}

TEST(Rope, TakesPositions) {
  // A row of documents of 3, 1 and 3 tokens, and one of 7.
  const std::vector<int64_t> numbers = {4, 4, 4, 2, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0};
  const Tensor segments = from_values(numbers, {2, 7});
  const Tensor positions = document_positions(segments);
  EXPECT_EQ(positions.to_vector<int64_t>(),
            (std::vector<int64_t>{0, 1, 2, 0, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(document_positions(zeros({3, 1}, {.dtype = i32})).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 0, 0}));
  const Tensor x = random_array({2, 7, 3, 8}, -2, 2).on();
  const Tensor frequencies = from_values(std::vector<float>{1, 0.5F, 0.25F}, {3});
  const Tensor y = rope(x, 500, positions), z = rope(x, frequencies, 2, positions);
  int64_t begin = 0;
  for (const int64_t length : {3, 1, 3}) {
    const auto part = [&](const Tensor& of) {
      return slice(slice(of, 0, 0, 1), 1, begin, begin + length);
    };
    EXPECT_EQ(part(y).to_vector<float>(), rope(part(x), 500).to_vector<float>());
    EXPECT_EQ(part(z).to_vector<float>(), rope(part(x), frequencies, 2).to_vector<float>());
    begin += length;
  }
}

TEST(Rope, TakesPositionsOnAnyLayout) {
  expect_agreement(
      [](const Tensors& t) {
        const Tensor positions = document_positions(cast(mul(t[1], 2), i64));
        return Tensors{rope(t[0], 100, positions), mul(t[1], cast(positions, f32))};
      },
      {random_array({2, 7, 3, 4}, -2, 2), random_array({2, 7}, 0, 1)},
      {
          {{{"x", 4}}, {{Shard(1)}, {Shard(1)}}},
          {{{"x", 3}}, {{Shard(2)}, {Shard(0)}}},
          {{{"x", 2}, {"y", 2}}, {{Shard(1), Shard(1)}, {Shard(0), Shard(1)}}},
          {{{"x", 2}, {"y", 2}}, {{Shard(0), Shard(1)}, {Replicate(), Replicate()}}},
      });
}

TEST(Rope, AgreesOnAnyLayout) {
  expect_agreement([](const Tensors& t) { return Tensors{rope(t[0], 100, 2)}; },
                   {random_array({2, 7, 3, 4}, -2, 2)},
                   {
                       {{{"x", 4}}, {{Shard(1)}}},
                       {{{"x", 3}}, {{Shard(2)}}},
                       {{{"x", 2}, {"y", 2}}, {{Shard(1), Shard(1)}}},
                       {{{"x", 2}, {"y", 2}}, {{Shard(0), Shard(1)}}},
                       {{{"x", 2}, {"y", 2}}, {{Shard(3), Shard(1)}}},
                   });
}

TEST(Rope, SaysWhatIsWrong) {
  EXPECT_EQ(error_of([] {
              rope(zeros({2, 5, 3, 8}), 100, zeros({2, 4}, {.dtype = i64}));
            }),
            "rope: positions are i64 [2, 4], expected integers [2, 5], one for each token of x "
            "[2, 5, 3, 8]");
  EXPECT_EQ(error_of([] { document_positions(zeros({5}, {.dtype = i64})); }),
            "document_positions: segments are i64 [5], expected integers [batch, sequence]");
  EXPECT_EQ(error_of([] { document_positions({}); }),
            "document_positions: no tensor is given, expected one");
  EXPECT_EQ(error_of([] {
              rope(zeros({2, 5, 3, 8}), 100, Tensor());
            }),
            "rope: no positions are given, expected a tensor");
  EXPECT_EQ(error_of([] {
              rope(zeros({2, 5, 3, 7}));
            }),
            "rope: x is [2, 5, 3, 7], expected [batch, sequence, heads, an even size]");
  EXPECT_EQ(error_of([] {
              rope(zeros({2, 5, 3, 8}), 0);
            }),
            "rope: theta is 0, expected a number above 0");
}

}  // namespace weft
