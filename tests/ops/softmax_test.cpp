// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/ranks.h"

namespace weft {

static const double kInfinity = std::numeric_limits<double>::infinity();

/// log of the sum of exp of each row along the last dim.
static std::vector<double> rows_lse(const Array& a) {
  const size_t size = static_cast<size_t>(a.shape.back());
  std::vector<double> lse;
  for (size_t begin = 0; begin < a.values.size(); begin += size) {
    double greatest = -kInfinity, total = 0;
    for (size_t i = 0; i < size; ++i) greatest = std::max(greatest, a.values[begin + i]);
    for (size_t i = 0; i < size; ++i) total += std::exp(a.values[begin + i] - greatest);
    lse.push_back(greatest + std::log(total));
  }
  return lse;
}

static Array log_softmax_of(const Array& a) {
  Array out = a;
  const std::vector<double> lse = rows_lse(a);
  for (size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] -= lse[i / static_cast<size_t>(a.shape.back())];
  }
  return out;
}

static Array softmax_of(const Array& a) {
  Array out = log_softmax_of(a);
  for (double& value : out.values) value = std::exp(value);
  return out;
}

TEST(Softmax, EqualsPlainLoops) {
  for (const Shape& shape : {Shape{5, 7}, Shape{2, 3, 5}, Shape{9}, Shape{4, 1}}) {
    Array a = random_array(shape, -5, 5);
    expect_close(whole(softmax(a.on())), softmax_of(a), 1e-6, "softmax");
    expect_close(whole(log_softmax(a.on())), log_softmax_of(a), 1e-6, "log_softmax");
    Shape rows = shape;
    rows.erase(rows.ndim() - 1);
    expect_close(whole(logsumexp(a.on(), -1)), {rows, rows_lse(a)}, 1e-6, "logsumexp");
  }
}

TEST(Softmax, OfLargeAndInfiniteValues) {
  Array a{{3, 3}, {1000, 1000, 900, -1000, -2000, -1000, -kInfinity, 0, -kInfinity}};
  expect_close(whole(softmax(a.on())), softmax_of(a), 1e-6, "softmax");
  expect_close(whole(log_softmax(a.on())), log_softmax_of(a), 1e-6, "log_softmax");
  expect_close(whole(logsumexp(a.on(), 1)), {{3}, rows_lse(a)}, 1e-6, "logsumexp");
}

TEST(Softmax, LogsumexpReducesAnyDim) {
  Array a = random_array({3, 5}, -3, 3);
  Array turned{{5, 3}, {}};
  for (size_t j = 0; j < 5; ++j) {
    for (size_t i = 0; i < 3; ++i) turned.values.push_back(a.values[i * 5 + j]);
  }
  expect_close(whole(logsumexp(a.on(), 0)), {{5}, rows_lse(turned)}, 1e-6, "dim 0");
  expect_close(whole(logsumexp(a.on(), 0, true)), {{1, 5}, rows_lse(turned)}, 1e-6, "kept");
}

static const std::vector<LaidOut>& softmax_layouts() {
  static const std::vector<LaidOut> layouts = {
      {{{"x", 4}}, {{Shard(2)}}},
      {{{"x", 3}}, {{Shard(2)}}},
      {{{"x", 4}}, {{Shard(1)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(2), Shard(2)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(0), Shard(2)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(2), Shard(0)}}},
  };
  return layouts;
}

TEST(Softmax, AgreesOverAShardedDim) {
  for (const Shape& shape : {Shape{2, 3, 7}, Shape{2, 5, 3}}) {  // 3 over 4: an empty shard
    Array a = random_array(shape, -5, 5);
    expect_agreement([](const Tensors& t) { return Tensors{softmax(t[0])}; }, {a},
                     softmax_layouts());
    expect_agreement([](const Tensors& t) { return Tensors{log_softmax(t[0])}; }, {a},
                     softmax_layouts());
    for (int dim : {2, 0}) {
      expect_agreement([&](const Tensors& t) { return Tensors{logsumexp(t[0], dim)}; }, {a},
                       softmax_layouts());
    }
  }
}

TEST(Softmax, TheGradientOfARowOfInfinitiesIsNaN) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const Array a{{4, 2}, {-kInfinity, -kInfinity, kInfinity, kInfinity, 2, -kInfinity, 5, 5}, f32};
  const Tensor x = a.on().set_requires_grad();
  sum(logsumexp(x, 1)).backward();
  expect_close(whole(x.grad()), {{4, 2}, {none, none, none, none, 1, 0, 0.5, 0.5}}, 1e-6,
               "logsumexp");
}

TEST(Softmax, KeepsAShardedDimSharded) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"x", 4}});
    const int64_t before = engine_statistics().implicit_bytes;
    Tensor y = softmax(zeros({2, 64}, {.sharding = Sharding(mesh, {Shard(1)})}));
    EXPECT_TRUE(y.sharding()[0] == Placement(Shard(1)));
    EXPECT_LE(engine_statistics().implicit_bytes - before, 2 * 2 * 4 * 4);  // two numbers a row
  });
}

TEST(Softmax, GradientsEqualTheirFormulas) {
  Array a = random_array({4, 6}, -2, 2), dy = random_array({4, 6}, -1, 1, f32, 2);
  Array y = softmax_of(a), soft{{4, 6}, {}}, log_soft{{4, 6}, {}};
  for (size_t r = 0; r < 4; ++r) {
    double dot = 0, total = 0;
    for (size_t i = r * 6; i < r * 6 + 6; ++i) {
      dot += y.values[i] * dy.values[i];
      total += dy.values[i];
    }
    for (size_t i = r * 6; i < r * 6 + 6; ++i) {
      soft.values.push_back(y.values[i] * (dy.values[i] - dot));
      log_soft.values.push_back(dy.values[i] - y.values[i] * total);
    }
  }
  Tensor x = a.on(), z = a.on();
  x.set_requires_grad();
  z.set_requires_grad();
  backward({softmax(x)}, {dy.on()});
  backward({log_softmax(z)}, {dy.on()});
  expect_close(whole(x.grad()), soft, 1e-6, "softmax");
  expect_close(whole(z.grad()), log_soft, 1e-6, "log_softmax");
}

TEST(Softmax, SaysWhatIsWrong) {
  EXPECT_EQ(error_of([] { softmax(Tensor()); }), "softmax: no tensor is given, expected one");
  EXPECT_NE(error_of([] { softmax(zeros({})); }), "nothing");
  EXPECT_NE(error_of([] { logsumexp(zeros({3}), 1); }), "nothing");
}

}  // namespace weft
