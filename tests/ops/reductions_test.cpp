// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/ranks.h"

namespace weft {

namespace {

using Fold = std::function<double(const std::vector<double>&)>;

double sum_of(const std::vector<double>& values) {
  double total = 0;
  for (double value : values) total += value;
  return total;
}

double squares_of(const std::vector<double>& values) {
  double total = 0;
  for (double value : values) total += value * value;
  return total;
}

double product_of(const std::vector<double>& values) {
  double product = 1;
  for (double value : values) product *= value;
  return product;
}

/// Groups elements by their index without the reduced dims, and folds each group.
Array folded(const Array& a, const std::vector<int>& dims, bool keepdims, const Fold& fold) {
  std::vector<bool> reduced(static_cast<size_t>(a.shape.ndim()), dims.empty());
  for (int dim : dims) reduced[static_cast<size_t>(dim < 0 ? dim + a.shape.ndim() : dim)] = true;
  Array out;
  int64_t groups = 1;
  for (int d = 0; d < a.shape.ndim(); ++d) {
    bool gone = reduced[static_cast<size_t>(d)];
    if (!gone) groups *= a.shape[d];
    if (!gone || keepdims) out.shape.push_back(gone ? 1 : a.shape[d]);
  }
  std::vector<std::vector<double>> members(static_cast<size_t>(groups));
  for (size_t i = 0; i < a.values.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), group = 0, stride = 1;
    for (int d = a.shape.ndim() - 1; d >= 0; --d) {
      int64_t index = rest % a.shape[d];
      rest /= a.shape[d];
      if (reduced[static_cast<size_t>(d)]) continue;
      group += index * stride;
      stride *= a.shape[d];
    }
    members[static_cast<size_t>(group)].push_back(a.values[i]);
  }
  for (const auto& group : members) out.values.push_back(fold(group));
  return out;
}

struct NamedReduction {
  const char* name;
  std::function<Tensor(const Tensor&, const std::vector<int>&, bool)> call;
  Fold fold;
};

const std::vector<NamedReduction>& reductions() {
  static const std::vector<NamedReduction> all = {
      {"sum", sum, sum_of},
      {"mean", mean, [](const auto& v) { return sum_of(v) / static_cast<double>(v.size()); }},
      {"max", max, [](const auto& v) { return *std::max_element(v.begin(), v.end()); }},
      {"min", min, [](const auto& v) { return *std::min_element(v.begin(), v.end()); }},
      {"sum_squares", sum_squares, squares_of},
      {"norm", norm, [](const auto& v) { return std::sqrt(squares_of(v)); }},
      {"prod", prod, product_of},
  };
  return all;
}

}  // namespace

TEST(Reductions, EqualPlainLoopsOverAnyDims) {
  const std::vector<std::vector<int>> table = {{}, {0}, {1}, {-1}, {0, 2}, {2, 0}, {0, 1, 2}};
  Array a = random_array({5, 3, 7}, -2, 2);
  for (const NamedReduction& reduction : reductions()) {
    for (const auto& dims : table) {
      for (bool keepdims : {false, true}) {
        expect_close(whole(reduction.call(a.on(), dims, keepdims)),
                     folded(a, dims, keepdims, reduction.fold), 1e-6, reduction.name);
      }
    }
  }
}

TEST(Reductions, OfATensorWithoutDims) {
  Tensor a = full({}, -3);
  for (const NamedReduction& reduction : reductions()) {
    double expected = reduction.fold({-3});
    EXPECT_EQ(reduction.call(a, {}, false).item(), expected) << reduction.name;
  }
}

TEST(Reductions, ChooseTheirDType) {
  EXPECT_EQ(sum(zeros({3}, {.dtype = i32})).dtype(), i64);
  EXPECT_EQ(sum(ones({3}, {.dtype = boolean})).item(), 3);
  EXPECT_EQ(sum(zeros({3}, {.dtype = bf16})).dtype(), bf16);
  EXPECT_EQ(mean(arange(4)).item(), 1.5);
  EXPECT_EQ(max(arange(4)).dtype(), i64);
  EXPECT_EQ(prod(full({3}, 100, {.dtype = u8})).dtype(), u64);
  EXPECT_EQ(prod(full({3}, 100, {.dtype = u8})).item(), 1e6);
  EXPECT_EQ(prod(ones({3}, {.dtype = f16})).dtype(), f16);
  EXPECT_EQ(all(ones({3})).dtype(), boolean);
  EXPECT_EQ(sum_squares(full({1000}, 3, {.dtype = bf16})).item(), 9000);
  EXPECT_EQ(sum_squares(zeros({3}, {.dtype = f64})).dtype(), f64);
  EXPECT_EQ(norm(zeros({3}, {.dtype = bf16})).dtype(), bf16);
}

TEST(Reductions, AgreeOnAnyLayout) {
  Array a = random_array({5, 3, 7}, -2, 2);
  const std::vector<LaidOut> layouts = {
      {{{"x", 4}}, {{Shard(0)}}},
      {{{"x", 4}}, {{Shard(1)}}},
      {{{"x", 3}}, {{Shard(2)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(0), Shard(2)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(2), Shard(2)}}},
      {{{"x", 1}}, {{Shard(2)}}},
  };
  for (const NamedReduction& reduction : reductions()) {
    SCOPED_TRACE(reduction.name);
    for (const auto& dims : std::vector<std::vector<int>>{{}, {1}, {0, 2}}) {
      expect_agreement([&](const Tensors& t) { return Tensors{reduction.call(t[0], dims, true)}; },
                       {a}, layouts);
    }
  }
}

TEST(Reductions, LeaveAShardedSumPartial) {
  run_ranks(3, [](Communicator world) {
    DeviceMesh mesh(world, {{"x", 3}});
    TrafficScope scope(Traffic::forbid);
    Tensor a = ones({7, 5}, {.sharding = Sharding(mesh, {Shard(0)})});
    for (const Tensor& total : {sum(a), mean(a), sum_squares(a), sum(a, {0})}) {
      EXPECT_TRUE(total.sharding()[0] == Placement(Partial()));
    }
    EXPECT_TRUE(max(a).sharding()[0] == Placement(Partial{ReduceOp::max}));
    EXPECT_TRUE(sum(a, {1}).sharding()[0] == Placement(Shard(0)));
  });
}

TEST(Reductions, OfNoElements) {
  const Tensor none = zeros({2, 0});
  EXPECT_EQ(prod(none).item(), 1);
  EXPECT_EQ(sum(none).item(), 0);
  EXPECT_EQ(all(none, {1}).to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_EQ(any(none, {1}).to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(all(none, {0}, true).shape(), (Shape{1, 0}));
}

TEST(Reductions, OfTruths) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> values = {1, nan, 0.5, 0, -0.0, 0, 0, 2, 0};
  for (DType dtype : {f32, bf16, f64}) {
    Tensor a = Array{{3, 3}, values, dtype}.on();
    EXPECT_EQ(all(a, {1}).to_vector<double>(), (std::vector<double>{1, 0, 0}));
    EXPECT_EQ(any(a, {1}).to_vector<double>(), (std::vector<double>{1, 0, 1}));
    EXPECT_EQ(any(a).item(), 1);
  }
  for (DType dtype : {i64, i32, u8, boolean}) {
    Tensor a = Array{{2, 2}, {3, 1, 0, 0}, dtype}.on();
    EXPECT_EQ(all(a, {-1}, true).to_vector<double>(), (std::vector<double>{1, 0}));
    EXPECT_EQ(any(a, {0}).to_vector<double>(), (std::vector<double>{1, 1}));
  }
}

TEST(Reductions, TruthsOfShardsAreReducedByRanks) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"x", 4}});
    Tensor a = Array{{3}, {0, 0, 1}, boolean}.on(Sharding(mesh, {Shard(0)}));
    TrafficScope scope(Traffic::forbid);
    EXPECT_TRUE(any(a).sharding()[0] == Placement(Partial{ReduceOp::max}));
    EXPECT_TRUE(all(a).sharding()[0] == Placement(Partial{ReduceOp::min}));
    TrafficScope allowed(Traffic::allow);
    EXPECT_EQ(any(a).full_tensor().item(), 1);
    EXPECT_EQ(all(a).full_tensor().item(), 0);
  });
}

TEST(Reductions, EqualExtremesShareTheGradient) {
  Tensor a = Array{{2, 3}, {1, 4, 4, 2, 2, 2}}.on();
  a.set_requires_grad();
  backward({max(a, {1})}, {full({2}, 6)});
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{0, 3, 3, 2, 2, 2}));
}

TEST(Reductions, TheNormOfZerosHasNoGradient) {
  Tensor a = zeros({4});
  a.set_requires_grad();
  norm(a).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{0, 0, 0, 0}));
}

TEST(Reductions, SayWhatIsWrong) {
  Tensor a = zeros({5, 0});
  EXPECT_EQ(error_of([&] { sum(Tensor()); }), "sum: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] {
              sum(a, {0, -2});
            }),
            "sum: dim 0 of [5, 0] is given twice, expected once");
  EXPECT_EQ(error_of([&] { max(a, {1}); }),
            "max: size of dim 1 of [5, 0] must be at least 1, got 0");
  EXPECT_EQ(error_of([&] { argmax(a, 1); }),
            "argmax: size of dim 1 of [5, 0] must be at least 1, got 0");
  EXPECT_EQ(error_of([&] { argmin(a, 1); }),
            "argmin: size of dim 1 of [5, 0] must be at least 1, got 0");
  EXPECT_EQ(error_of([&] {
              any(a, {1, 1});
            }),
            "any: dim 1 of [5, 0] is given twice, expected once");
  EXPECT_EQ(error_of([&] { prod(Tensor()); }), "prod: no tensor is given, expected one");
  EXPECT_NE(error_of([&] { mean(a, {2}); }), "nothing");
}

using IndexOf = Tensor (*)(const Tensor&, int, bool);

static void expect_index(IndexOf index_of, const Array& a, int dim,
                         const std::vector<double>& expected) {
  EXPECT_EQ(index_of(a.on(), dim, false).to_vector<double>(), expected);
  for (int ranks : {1, 3, 4}) {
    run_ranks(ranks, [&](Communicator world) {
      DeviceMesh mesh(world, {{"x", ranks}});
      for (int cut = 0; cut < a.shape.ndim(); ++cut) {
        Tensor index = index_of(a.on(Sharding(mesh, {Shard(cut)})), dim, false);
        EXPECT_EQ(index.dtype(), i64);
        EXPECT_EQ(index.full_tensor().to_vector<double>(), expected) << ranks << " " << cut;
      }
    });
  }
}

TEST(Reductions, ArgmaxGivesTheFirstIndexOfTheWhole) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  Array a{{5, 7}, {1,    2,  9,    0,  9,   9,  1,    //
                   5,    5,  5,    5,  5,   5,  5,    //
                   -1,   0,  -2,   -3, nan, 4,  nan,  //
                   -inf, 0,  -inf, -1, -2,  0,  -3,   //
                   -inf, -5, -4,   -3, -2,  -1, -0.5}};
  expect_index(argmax, a, 1, {2, 0, 4, 1, 6});
  expect_index(argmax, a, -2, {1, 1, 0, 1, 2, 0, 2});
}

TEST(Reductions, ArgminGivesTheFirstIndexOfTheWhole) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  Array a{{4, 7}, {1,   2,    9,   0,   9,   9, 0,    //
                   5,   5,    5,   5,   5,   5, 5,    //
                   -1,  -inf, -2,  -3,  nan, 4, nan,  //
                   inf, inf,  inf, inf, inf, 7, 7}};
  expect_index(argmin, a, 1, {3, 0, 4, 5});
  expect_index(argmin, a, 0, {2, 2, 2, 2, 2, 2, 2});
}

TEST(Reductions, ArgmaxOfIntegersIsExact) {
  const double large = 9007199254740991;  // too large to be distinct in f32
  expect_index(argmax, {{1, 5}, {1, large - 1, large, large - 2, large}, i64}, 1, {2});
  expect_index(argmin, {{1, 4}, {0, 2 - large, 1 - large, 1 - large}, i64}, 1, {2});
}

TEST(Reductions, ArgmaxKeepsDims) {
  Tensor a = Array{{2, 3}, {1, 4, 4, 2, 1, 0}}.on();
  EXPECT_EQ(argmax(a, 1, true).shape(), (Shape{2, 1}));
  EXPECT_EQ(argmin(a, 0, true).shape(), (Shape{1, 3}));
}

}  // namespace weft
