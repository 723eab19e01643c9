// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"

namespace weft {

TEST(Dropout, ZeroesAShareAndScalesTheRest) {
  manual_seed(3);
  const std::vector<double> y = dropout(ones({200, 100}), 0.25).to_vector<double>();
  double dropped = 0;
  for (double value : y) {
    if (value == 0) {
      ++dropped;
    } else {
      ASSERT_FLOAT_EQ(static_cast<float>(value), 1 / 0.75f);
    }
  }
  // 20,000 draws: five standard deviations.
  EXPECT_NEAR(dropped / 20000, 0.25, 5 * std::sqrt(0.25 * 0.75 / 20000));
}

TEST(Dropout, DrawsAnewAtEachCall) {
  manual_seed(3);
  const Tensor x = ones({64});
  const auto first = dropout(x, 0.5).to_vector<double>(),
             second = dropout(x, 0.5).to_vector<double>();
  EXPECT_NE(first, second);
  manual_seed(3);
  EXPECT_EQ(dropout(x, 0.5).to_vector<double>(), first);
  const RandomState before = Context::current().random;
  EXPECT_EQ(dropout(x, 0).to_vector<double>(), x.to_vector<double>());
  EXPECT_EQ(Context::current().random, before);
}

TEST(Dropout, ItsGradientDropsTheSame) {
  Tensor x = ones({64});
  x.set_requires_grad();
  Tensor y = dropout(x, 0.5);
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), y.to_vector<double>());
}

TEST(Dropout, IsEqualOnAnyLayout) {
  expect_agreement(
      [](const Tensors& t) {
        manual_seed(7);
        return Tensors{dropout(t[0], 0.4)};
      },
      {random_array({5, 3, 7}, 1, 2)},
      {
          {{{"x", 4}}, {{Shard(0)}}},
          {{{"x", 4}}, {{Shard(1)}}},
          {{{"x", 3}}, {{Shard(2)}}},
          {{{"x", 2}, {"y", 2}}, {{Shard(0), Shard(2)}}},
          {{{"x", 2}, {"y", 2}}, {{Shard(2), Shard(2)}}},
          {{{"x", 4}}, {{Replicate()}}},
      },
      0);
}

TEST(Dropout, SaysWhatIsWrong) {
  EXPECT_EQ(error_of([] { dropout(zeros({2}), 1.5); }),
            "dropout: probability is 1.5, expected one in [0, 1]");
  EXPECT_EQ(error_of([] { dropout(arange(2), 0.5); }),
            "dropout: dtype is i64, expected a floating one");
}

}  // namespace weft
