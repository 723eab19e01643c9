// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/ranks.h"

namespace weft {

// Expected sorts are from numpy.sort and argsort (kind stable), expected gradients from PyTorch.

static const double kNan = std::numeric_limits<double>::quiet_NaN();
static const double kInf = std::numeric_limits<double>::infinity();

static Array of(const Shape& shape, const std::vector<double>& values, DType dtype = f32) {
  return {shape, values, dtype};
}

/// The tensor, and one with the same elements but its dims swapped in memory.
static Tensors as_it_lies(const Array& a) {
  const Tensor dense = a.on();
  return {dense, reshape(transpose(dense, 0, 1), {a.shape[1], a.shape[0]}).t()};
}

TEST(AlongDim, SortsAsNumpyDoes) {
  const Array a = of({2, 7}, {3, kNan, -1, 3, 0.5, -kInf, kNan, 2, -0.0, 0.0, 2, kInf, -3, 1});
  const std::vector<double> order = {5, 2, 4, 0, 3, 1, 6, 5, 1, 2, 6, 0, 3, 4};
  const Array sorted = of({2, 7}, {-kInf, -1, 0.5, 3, 3, kNan, kNan, -3, -0.0, 0.0, 1, 2, 2, kInf});
  for (const Tensor& x : as_it_lies(a)) {
    EXPECT_EQ(argsort(x).to_vector<double>(), order);
    expect_close(whole(sort(x, 1)), sorted, 0, "sorted");
    expect_close(whole(sort(transpose(x, 0, 1), 0).t()), sorted, 0, "sorted columns");
  }
  EXPECT_EQ(argsort(a.on()).dtype(), i64);
}

TEST(AlongDim, SortsDownStably) {
  const Array a = of({2, 7}, {3, kNan, -1, 3, 0.5, -kInf, kNan, 2, -0.0, 0.0, 2, kInf, -3, 1});
  EXPECT_EQ(argsort(a.on(), -1, true).to_vector<double>(),
            (std::vector<double>{1, 6, 0, 3, 4, 2, 5, 4, 0, 3, 6, 1, 2, 5}));
  const double large = 9007199254740991;  // too large to be distinct in f32
  const Tensor ints = of({3}, {large - 1, large, large - 2}, i64).on();
  EXPECT_EQ(sort(ints, 0, true).to_vector<double>(),
            (std::vector<double>{large, large - 1, large - 2}));
  EXPECT_EQ(sort(ones({0, 3}), 0).shape(), (Shape{0, 3}));
}

TEST(AlongDim, SumsUpInTheStatedDTypes) {
  const Tensor bytes = of({3}, {200, 100, 50}, u8).on();
  EXPECT_EQ(cumulative_sum(bytes, 0).to_vector<double>(), (std::vector<double>{200, 300, 350}));
  EXPECT_EQ(cumulative_sum(bytes, 0).dtype(), u64);
  EXPECT_EQ(cumulative_prod(of({3}, {1, 1, 0}, boolean).on(), 0).dtype(), i64);
  // 512 ones: bf16 alone would stop at 256.
  const Tensor sums = cumulative_sum(ones({512}, {.dtype = bf16}), 0);
  EXPECT_EQ(sums.dtype(), bf16);
  EXPECT_EQ(sums.to_vector<double>().back(), 512);
  for (const Tensor& x : as_it_lies(of({2, 3}, {1, 2, 3, 4, 5, 6}))) {
    expect_close(whole(cumulative_sum(x, 0)), of({2, 3}, {1, 2, 3, 5, 7, 9}), 0, "columns");
    expect_close(whole(cumulative_prod(x, -1)), of({2, 3}, {1, 2, 6, 4, 20, 120}), 0, "rows");
  }
  EXPECT_EQ(cumulative_sum(zeros({2, 0}), 1).shape(), (Shape{2, 0}));
}

static const Array kWithZeros = of({3, 4}, {2, 0, -3, 4, 1, 2, 3, 4, 0, 1, 0, 2}, f64);

TEST(AlongDim, ProductsWithZerosHaveTheirGradients) {
  const Tensor weights = of({3, 4}, {1, 2, 3, 4, -1, 1, 2, 0.5, 2, 3, 4, 5}, f64).on();
  for (Tensor x : as_it_lies(kWithZeros)) {
    x = x.detach().set_requires_grad();
    sum(cumulative_prod(x, 1) * weights).backward();
    expect_close(whole(x.grad()), of({3, 4}, {1, -110, 0, 0, 25, 13, 8, 3, 5, 0, 0, 0}, f64), 0,
                 "running products");
    x.set_grad(Tensor());
    sum(prod(x, {1}) * of({3}, {1, 2, 3}, f64).on()).backward();
    expect_close(whole(x.grad()), of({3, 4}, {0, -24, 0, 0, 48, 24, 16, 12, 0, 0, 0, 0}, f64), 0,
                 "products");
  }
}

TEST(AlongDim, ProductsOfNoElementsHaveNoGradient) {
  for (const Shape& shape : {Shape{2, 0}, Shape{0, 2}}) {
    const Tensor x = zeros(shape).set_requires_grad();
    (sum(prod(x, {1})) + sum(cumulative_prod(x, 1))).backward();
    EXPECT_EQ(x.grad().shape(), shape);
  }
}

/// Products that are too small for f32, and far too large.
TEST(AlongDim, GradientsOfProductsAreComputedInF64) {
  const Tensor x = of({1, 4}, {1e-30, 1e-30, 1e30, 1e30}).on().set_requires_grad();
  sum(prod(x, {1})).backward();
  expect_close(whole(x.grad()), of({1, 4}, {1e30, 1e30, 1e-30, 1e-30}), 1e-6, "product");
  x.set_grad(Tensor());
  sum(slice(cumulative_prod(x, 1), 1, 3, 4)).backward();
  expect_close(whole(x.grad()), of({1, 4}, {1e30, 1e30, 1e-30, 1e-30}), 1e-6, "running product");
}

TEST(AlongDim, TakesSlices) {
  const Array a = of({3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  for (DType dtype : {i32, i64}) {
    const Tensor rows = of({4}, {2, 0, 2, -1}, dtype).on();
    const Tensor columns = of({3}, {3, -4, 1}, dtype).on();
    for (const Tensor& x : as_it_lies(a)) {
      expect_close(whole(take(x, rows, 0)),
                   of({4, 4}, {8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11, 8, 9, 10, 11}), 0, "rows");
      expect_close(whole(take(x, columns, -1)), of({3, 3}, {3, 0, 1, 7, 4, 5, 11, 8, 9}), 0,
                   "columns");
    }
  }
  for (DType dtype : {boolean, u8, f16, f64}) {
    const Tensor x = of({3}, {1, 0, 1}, dtype).on(), none = empty({0}, {.dtype = i64});
    EXPECT_EQ(take(x, of({2}, {1, 2}, i64).on(), 0).to_vector<double>(),
              (std::vector<double>{0, 1}));
    EXPECT_EQ(take(x, none, 0).shape(), (Shape{0}));
    EXPECT_EQ(take(x, none, 0).dtype(), dtype);
  }
}

TEST(AlongDim, TakenSlicesAddTheirGradients) {
  Tensor x = of({3, 4}, std::vector<double>(12, 1)).on();
  x.set_requires_grad();
  sum(take(x, of({4}, {2, 0, 2, -1}, i64).on(), 0) * reshape(arange(16, {.dtype = f32}), {4, 4}))
      .backward();
  EXPECT_EQ(x.grad().to_vector<double>(),
            (std::vector<double>{4, 5, 6, 7, 0, 0, 0, 0, 20, 23, 26, 29}));
  Tensor half = ones({2}, {.dtype = bf16}).set_requires_grad();
  sum(take(half, zeros({512}, {.dtype = i64}), 0)).backward();
  EXPECT_EQ(half.grad().to_vector<double>(), (std::vector<double>{512, 0}));
}

TEST(AlongDim, TakesElements) {
  const Array a = of({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor where = of({2, 4}, {0, 2, -1, 1, -3, 0, 0, 1}, i64).on();
  for (const Tensor& x : as_it_lies(a)) {
    expect_close(whole(take_along_dim(x, where, 1)), of({2, 4}, {1, 3, 3, 2, 4, 4, 4, 5}), 0,
                 "elements");
    // The other dims broadcast, in both directions.
    expect_close(whole(take_along_dim(x, of({1, 2}, {2, 0}, i64).on(), 1)),
                 of({2, 2}, {3, 1, 6, 4}), 0, "one row of indices");
    expect_close(
        whole(take_along_dim(slice(x, 1, 0, 1), of({2, 3}, {1, 0, 1, 0, 0, 0}, i64).on(), 0)),
        of({2, 3}, {4, 1, 4, 1, 1, 1}), 0, "one column of elements");
    expect_close(whole(take_along_dim(x, argsort(x, 1, true), 1)), whole(sort(x, 1, true)), 0,
                 "by the order");
  }
}

TEST(AlongDim, AgreesOnUnevenAndEmptyShards) {
  const Array a = random_array({5, 3, 7}, -2, 2), rows = random_array({4}, -5, 5, i64);
  const Array where = random_array({5, 3, 2}, -7, 7, i64, 3);
  const auto apply = [](const Tensors& t) {
    return Tensors{cumulative_sum(t[0], 1),       cumulative_prod(t[0], 2), sort(t[0], 0, true),
                   take(t[0], t[1], 0),           flip(t[0], {0, 2}),       tril(t[0], -1),
                   take_along_dim(t[0], t[2], 2), prod(t[0], {0, 2})};
  };
  const auto layout = [](const std::vector<MeshAxis>& axes, const Placements& first,
                         const Placements& second, const Placements& third) {
    return LaidOut{axes, {first, second, third}};
  };
  expect_agreement(apply, {a, rows, where},
                   {layout({{"x", 4}}, {Shard(1)}, {Shard(0)}, {Shard(1)}),
                    layout({{"x", 3}}, {Shard(2)}, {Replicate()}, {Shard(0)}),
                    layout({{"x", 4}}, {Shard(0)}, {Shard(0)}, {Shard(2)}),
                    layout({{"x", 2}, {"y", 2}}, {Shard(0), Shard(2)}, {Replicate(), Shard(0)},
                           {Shard(1), Shard(1)}),
                    layout({{"x", 2}, {"y", 2}}, {Shard(1), Shard(1)}, {Shard(0), Shard(0)},
                           {Shard(0), Replicate()})});
}

TEST(AlongDim, LeavesOtherDimsWhereTheyAre) {
  run_ranks(3, [](Communicator world) {
    DeviceMesh mesh(world, {{"x", 3}});
    TrafficScope scope(Traffic::forbid);
    const Tensor a = ones({7, 5}, {.sharding = Sharding(mesh, {Shard(0)})});
    const Tensor rows = zeros({2}, {.dtype = i64, .sharding = Sharding(mesh, {Replicate()})});
    for (const Tensor& result :
         {cumulative_sum(a, 1), cumulative_prod(a, 1), sort(a, 1), argsort(a, 1), take(a, rows, 1),
          prod(a, {1}), flip(a, {1}), tril(a), triu(a, 2)}) {
      EXPECT_TRUE(result.sharding()[0] == Placement(Shard(0)));
    }
  });
}

TEST(AlongDim, SaysWhatIsWrong) {
  const Tensor a = zeros({3, 4}), none;
  const auto at = [](const std::vector<double>& values) {
    return of({static_cast<int64_t>(values.size())}, values, i64).on();
  };
  EXPECT_EQ(error_of([&] {
              take(a, at({0, 3}), 0);
            }),
            "take: index is 3, expected one of the 3 elements of dim 0");
  EXPECT_EQ(error_of([&] { take(a, at({-5}), 1); }),
            "take: index is -5, expected one of the 4 elements of dim 1");
  EXPECT_EQ(error_of([&] { take(zeros({0}), at({0}), 0); }),
            "take: index is 0, expected one of the 0 elements of dim 0");
  EXPECT_EQ(error_of([&] { take(a, zeros({2}), 0); }),
            "take: dtype of indices is f32, expected an integer one");
  EXPECT_EQ(error_of([&] {
              take(a, zeros({1, 2}, {.dtype = i64}), 0);
            }),
            "take: indices are [1, 2], expected one dim");
  EXPECT_EQ(error_of([&] { take(a, none, 0); }), "take: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { take_along_dim(a, at({0}), 0); }),
            "take_along_dim: indices are [1], expected 2 dims, those of the tensor [3, 4]");
  EXPECT_EQ(error_of([&] {
              take_along_dim(a, full({3, 1}, 4, {.dtype = i64}), 1);
            }),
            "take_along_dim: index is 4, expected one of the 4 elements of dim 1");
  EXPECT_NE(error_of([&] { take_along_dim(a, zeros({2, 1}, {.dtype = i64}), 1); }), "nothing");
  EXPECT_EQ(error_of([&] { sort(a, 2); }), "sort: dim is 2, expected one of the 2 dims");
  EXPECT_EQ(error_of([&] { argsort(none); }), "argsort: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { cumulative_sum(zeros({}), 0); }),
            "cumulative_sum: dim is 0, expected one of the 0 dims");
  EXPECT_EQ(error_of([&] { cumulative_prod(none, 0); }),
            "cumulative_prod: no tensor is given, expected one");
}

TEST(AlongDim, NamesAnIndexOfAShard) {
  const std::string message = error_of([] {
    run_ranks(2, [](Communicator world) {
      DeviceMesh mesh(world, {{"x", 2}});
      const Tensor a = ones({4, 2}, {.sharding = Sharding(mesh, {Shard(1)})});
      take(a, of({2}, {1, 9}, i64).on(Sharding(mesh, {Shard(0)})), 0);
    });
  });
  EXPECT_NE(message.find("index is 9, expected one of the 4"), std::string::npos) << message;
}

}  // namespace weft
