// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/ranks.h"

namespace weft {

/// The rows' losses, and the gradient of their mean over the rows that are not ignored.
struct PlainLoss {
  std::vector<double> rows;
  double mean = 0;
  std::vector<double> gradient;
};

static PlainLoss plain_loss(const Array& logits, const Array& targets) {
  const size_t classes = static_cast<size_t>(logits.shape.back());
  PlainLoss loss;
  double count = 0;
  for (double target : targets.values) count += target >= 0;
  for (size_t r = 0; r < targets.values.size(); ++r) {
    const double* row = logits.values.data() + r * classes;
    double greatest = *std::max_element(row, row + classes), total = 0;
    for (size_t i = 0; i < classes; ++i) total += std::exp(row[i] - greatest);
    const double target = targets.values[r];
    const bool counts = target >= 0;
    const double lse = greatest + std::log(total);
    loss.rows.push_back(counts ? lse - row[static_cast<size_t>(counts ? target : 0)] : 0);
    loss.mean += loss.rows.back() / count;
    for (size_t i = 0; i < classes; ++i) {
      const double hit = static_cast<double>(i) == target ? 1 : 0;
      loss.gradient.push_back(counts ? (std::exp(row[i] - lse) - hit) / count : 0);
    }
  }
  return loss;
}

static Array targets_for(const Shape& shape, double classes, bool ignore, DType dtype = i64) {
  Array targets = random_array(shape, 0, classes, dtype, 3);
  if (ignore) targets.values[1] = targets.values[4] = kIgnoredTarget;
  return targets;
}

static Tensors mean_and_rows(const Tensors& t) {
  return {cross_entropy(t[0], t[1]), cross_entropy_rows(t[0], t[1])};
}

TEST(CrossEntropy, EqualsPlainLoops) {
  for (bool ignore : {false, true}) {
    for (DType dtype : {i32, i64}) {
      Array logits = random_array({2, 5, 7}, -4, 4);
      Array targets = targets_for({2, 5}, 7, ignore, dtype);
      PlainLoss expected = plain_loss(logits, targets);
      Tensor x = logits.on();
      x.set_requires_grad();
      Tensor loss = cross_entropy(x, targets.on());
      expect_close(whole(cross_entropy_rows(x, targets.on())), {{2, 5}, expected.rows}, 1e-6,
                   "rows");
      EXPECT_NEAR(loss.item(), expected.mean, 1e-6);
      loss.backward();
      expect_close(whole(x.grad()), {{2, 5, 7}, expected.gradient}, 1e-6, "gradient");
    }
  }
}

TEST(CrossEntropy, EqualsPyTorch) {
  // torch.nn.functional.cross_entropy(tensor([[1, 2, 3], [0.5, -1, 100]]), tensor([2, 0])).
  Tensor loss =
      cross_entropy(Array{{2, 3}, {1, 2, 3, 0.5, -1, 100}}.on(), Array{{2}, {2, 0}, i64}.on());
  EXPECT_NEAR(loss.item(), 49.95380401611328, 1e-5);
}

TEST(CrossEntropy, AgreesOnAnyLayout) {
  for (bool ignore : {false, true}) {
    expect_agreement(mean_and_rows,
                     {random_array({5, 3, 7}, -4, 4), targets_for({5, 3}, 7, ignore)},
                     {
                         {{{"x", 4}}, {{Shard(2)}, {Replicate()}}},
                         {{{"x", 3}}, {{Shard(2)}, {Shard(0)}}},
                         {{{"x", 4}}, {{Shard(0)}, {Shard(0)}}},
                         {{{"x", 4}}, {{Shard(1)}, {Replicate()}}},
                         {{{"x", 2}, {"y", 2}}, {{Shard(0), Shard(2)}, {Shard(0), Replicate()}}},
                         {{{"x", 2}, {"y", 2}}, {{Shard(2), Shard(2)}, {Replicate(), Shard(1)}}},
                         {{{"x", 2}, {"y", 2}}, {{Shard(2), Shard(0)}, {Replicate(), Shard(0)}}},
                     });
  }
}

TEST(CrossEntropy, AgreesWithMoreRanksThanClasses) {
  expect_agreement(mean_and_rows, {random_array({5, 3}, -4, 4), targets_for({5}, 3, false)},
                   {{{{"x", 4}}, {{Shard(1)}, {Replicate()}}}});
}

TEST(CrossEntropy, NeverGathersAShardedVocabulary) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"x", 4}});
    Tensor logits = zeros({6, 4096}, {.sharding = Sharding(mesh, {Shard(1)})});
    Tensor targets = zeros({6}, {.dtype = i64, .sharding = Sharding(mesh, {Replicate()})});
    logits.set_requires_grad();
    const int64_t before = engine_statistics().implicit_bytes;
    cross_entropy(logits, targets).backward();
    EXPECT_TRUE(logits.grad().sharding()[0] == Placement(Shard(1)));
    EXPECT_LE(engine_statistics().implicit_bytes - before, 1024);
  });
}

TEST(CrossEntropy, OfNoRowThatCountsIsNan) {
  Tensor targets = full({2}, kIgnoredTarget, {.dtype = i64});
  EXPECT_TRUE(std::isnan(cross_entropy(zeros({2, 3}), targets).item()));
}

TEST(CrossEntropy, SaysWhatIsWrong) {
  Tensor logits = zeros({2, 3});
  EXPECT_EQ(
      error_of([&] {
        cross_entropy(logits, Array{{2}, {1, 3}, i64}.on());
      }),
      "cross_entropy: target is 3, expected one below 3, the classes of logits [2, 3], or -100");
  EXPECT_EQ(
      error_of([&] {
        cross_entropy(logits, Array{{2}, {-1, 0}, i32}.on());
      }),
      "cross_entropy: target is -1, expected one below 3, the classes of logits [2, 3], or -100");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, zeros({2})); }),
            "cross_entropy: dtype of targets is f32, expected an integer one");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, zeros({3}, {.dtype = i64})); }),
            "cross_entropy: targets are [3], expected one for each row of logits [2, 3]");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, Tensor()); }),
            "cross_entropy: no targets are given, expected one for each row");
}

}  // namespace weft
