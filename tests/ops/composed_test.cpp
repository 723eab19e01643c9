// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/context.h"
#include "weft/ops.h"
#include "weft/torch.h"

namespace weft {

using Values = std::vector<double>;

static Tensor vector(const Values& values, DType dtype = f32) {
  return from_values(values, {static_cast<int64_t>(values.size())}, {.dtype = dtype});
}
static Tensor indices(const Values& values) { return vector(values, i64); }
static Values values_of(const Tensor& a) { return a.to_vector<double>(); }

// PyTorch's results.

TEST(Composed, TorchsMeaningIsInItsNamespace) {
  const Tensor a = from_values(Values{3, 1, 2, 0, 5, 4}, {2, 3});
  EXPECT_EQ(values_of(torch::max(a, 1).values), (Values{3, 5}));
  EXPECT_EQ(values_of(torch::max(a, 1).indices), (Values{0, 1}));
  EXPECT_EQ(values_of(torch::sort(a).indices), (Values{1, 2, 0, 0, 2, 1}));
  EXPECT_DOUBLE_EQ(torch::var(vector({1, 3})).item(), 2);
  EXPECT_DOUBLE_EQ(var(vector({1, 3})).item(), 1);
  EXPECT_TRUE(torch::equal(a, a));
  EXPECT_FALSE(torch::equal(a, torch::cumsum(a, 0)));
  EXPECT_EQ(values_of(torch::nonzero(vector({0, 2, 3}))), (Values{1, 2}));
  EXPECT_EQ(torch::nonzero(a).shape(), (Shape{5, 2}));
  EXPECT_EQ(values_of(torch::take(a, indices({0, -1}))), (Values{3, 4}));
  EXPECT_EQ(values_of(torch::div(vector({-7}), 2, "trunc")), (Values{-3}));
  EXPECT_EQ(values_of(torch::div(vector({-7}), 2, "floor")), (Values{-4}));
  for (const DType dtype : {i32, i64}) {
    const int64_t least = dtype == i32 ? INT32_MIN : INT64_MIN;
    const Tensor x = full({}, least, {.dtype = dtype}), three = full({}, 3, {.dtype = dtype});
    EXPECT_EQ(torch::div(x, three, "trunc").to_vector<int64_t>()[0], least / 3);
    EXPECT_EQ(torch::div(x, 1, "trunc").to_vector<int64_t>()[0], least);
    EXPECT_EQ(torch::div(three, x, "trunc").item(), 0);
  }
  EXPECT_EQ(values_of(torch::div(indices({7, -7, 7, -7, -8}), indices({2, 2, -2, -2, 2}), "trunc")),
            (Values{3, -3, -3, 3, -4}));
  EXPECT_EQ(torch::cat({vector({}), a}).shape(), a.shape());
  EXPECT_EQ(torch::argmax(a).item(), 4);
  EXPECT_EQ(torch::sum(full({}, 2), {0}).item(), 2);
  EXPECT_EQ(torch::sum(vector({1, 2}, i32)).dtype(), i64);
  EXPECT_EQ(torch::sum(vector({1, 2}, i32), {}, false, i32).dtype(), i32);
}

TEST(Composed, TensorsWithoutDimsDoNotDecideTheDtypeInTorch) {
  const Tensor x = ones({2}, {.dtype = DType::bf16}), scale = full({}, 2.0, {.dtype = DType::f64});
  EXPECT_EQ(torch::add(x, scale).dtype(), DType::bf16);
  EXPECT_EQ(torch::div(scale, x).dtype(), DType::bf16);
  EXPECT_EQ(add(x, scale).dtype(), DType::f64);
  Tensor mixed[] = {cast(x, DType::i8), scale, full({}, 3.0, {.dtype = DType::i64})};
  torch::promote_by_dims(mixed);
  EXPECT_EQ(mixed[1].dtype(), DType::f64);
  EXPECT_EQ(mixed[2].dtype(), DType::i8);
}

TEST(Composed, NormsAreOverSeveralDims) {
  const Tensor x = reshape(arange(0.0, 24.0, 1.0, {.dtype = DType::f32}), {2, 3, 4}),
               weight = ones({3, 4});
  const Tensor flat = reshape(x, {2, 12});
  EXPECT_EQ(values_of(torch::layer_norm(x, {3, 4}, weight)), values_of(layer_norm(flat)));
  EXPECT_EQ(values_of(torch::rms_norm(x, {3, 4})), values_of(rms_norm(flat)));
  EXPECT_EQ(error_of([&] {
              torch::rms_norm(x, {4, 3});
            }),
            "rms_norm: normalized_shape is [4, 3], expected the last dims of [2, 3, 4]");
}

TEST(Composed, PadsCutAtMostAllElements) {
  const Tensor a = vector({0, 1, 2, 3, 4});
  EXPECT_EQ(values_of(constant_pad(a, {-2, 3}, 9)), (Values{2, 3, 4, 9, 9, 9}));
  EXPECT_EQ(values_of(constant_pad(a, {3, -4}, 9)), (Values{9, 9, 9, 0}));
  EXPECT_EQ(values_of(constant_pad(a, {-5, 1}, 9)), (Values{9}));
  EXPECT_EQ(constant_pad(a, {-2, -3}).shape(), (Shape{0}));
  // narrow(): length must be non-negative
  for (const auto& [before, behind] : {std::pair{-7, 3}, {3, -7}, {-3, -3}}) {
    EXPECT_THROW(constant_pad(a, {before, behind}), std::invalid_argument) << before;
  }
}

TEST(Composed, LargeIntegersAreCloseByTheirDigits) {
  const auto close = [](const Tensor& a, int64_t b, double atol) {
    return allclose(a, full({1}, b, {.dtype = a.dtype()}), 0, atol);
  };
  EXPECT_FALSE(close(vector({16777217}, i32), 16777216, 0.5));
  EXPECT_TRUE(close(vector({16777217}, i32), 16777216, 1));
  EXPECT_FALSE(close(indices({0x1p62}), (int64_t{1} << 62) + 1, 0.5));
  EXPECT_FALSE(close(indices({-0x1p63}), INT64_MAX, 0x1p63));
  EXPECT_TRUE(close(indices({-0x1p63}), INT64_MAX, 0x1p64));
  EXPECT_FALSE(allclose(vector({16777217}, i32), vector({16777216}, f64), 0, 0.5));
}

TEST(Composed, ElementsCombineAtIndices) {
  const Tensor a = vector({1, 2, 3}), src = vector({4, 5, 6}), at = indices({0, 0, 2});
  EXPECT_EQ(values_of(scatter_reduce(a, 0, at, src, "prod")), (Values{20, 2, 18}));
  EXPECT_EQ(values_of(scatter_reduce(a, 0, at, src, "mean", false)), (Values{4.5, 2, 6}));
  EXPECT_EQ(values_of(index_reduce(a, 0, at, src, "amin")), (Values{1, 2, 3}));
  const Tensor none = indices({}), single = full({}, 2);
  EXPECT_EQ(scatter_reduce(single, 0, none, vector({}), "sum").item(), 2);
  EXPECT_THROW(scatter_reduce(single, 0, none, vector({}), "max"), std::invalid_argument);
  EXPECT_EQ(values_of(masked_scatter(a, greater(a, 1), src)), (Values{1, 4, 5}));
  EXPECT_EQ(values_of(as_strided(a, {2, 2}, {1, 1})), (Values{1, 2, 2, 3}));
  const Tensor bags = embedding_bag(from_values(Values{1, 2, 3}, {3, 1}), at, indices({0, 1}));
  EXPECT_EQ(values_of(bags), (Values{1, 2}));
}

TEST(Composed, CountsAndOrders) {
  EXPECT_EQ(values_of(histc(vector({0, 1, 1, 4}), 4)), (Values{1, 2, 0, 1}));
  EXPECT_EQ(values_of(bincount(indices({1, 3, 1}))), (Values{0, 2, 0, 1}));
  const Histogram counted = histogram(indices({0, 1, 1, 4, 2}), 3);
  EXPECT_EQ(values_of(counted.hist), (Values{3, 1, 1}));
  EXPECT_EQ(counted.bin_edges.dtype(), f64);
  EXPECT_EQ(histogram(vector(Values(300, 0), u8), 2).hist.to_vector<double>(), (Values{0, 300}));
  const Tensor densities = histogram(indices({0, 1, 1, 4, 2}), 3, {}, {}, true).hist;
  EXPECT_DOUBLE_EQ(select(densities, 0, 0).item(), 0.45);
  const Histogram around = histogram(indices({0, 1, 2, 2}), 2, std::vector<double>{2, 2});
  EXPECT_EQ(values_of(around.bin_edges), (Values{1.5, 2, 2.5}));
  EXPECT_EQ(values_of(around.hist), (Values{0, 2}));
  const Tensor weight = vector({100, 100, 1}, i8);
  EXPECT_EQ(values_of(histogram(indices({0, 0, 1}), 2, {}, weight).hist), (Values{200, 1}));
  EXPECT_DOUBLE_EQ(select(counted.bin_edges, 0, 1).item(), 4.0 / 3);
  EXPECT_EQ(mode(vector({2, 1, 1, 2})).values.item(), 1);
  EXPECT_EQ(mode(vector({2, 1, 1, 2})).indices.item(), 2);
  EXPECT_EQ(values_of(unique_consecutive(vector({1, 1, 2, 1})).counts), (Values{2, 1, 1}));
  EXPECT_EQ(nanmedian(vector({NAN, 3, 1})).item(), 1);
  EXPECT_EQ(nanquantile(vector({NAN, 3, 1}), 0.5).item(), 2);
  EXPECT_EQ(values_of(combinations(vector({1, 2, 3}))), (Values{1, 2, 1, 3, 2, 3}));
}

// Integrals and derivatives by the C library.

TEST(Composed, SpecialFunctionsAreTheCLibrarys) {
  for (const double x : {-2.5, -0.3, 0.2, 1.0, 3.7, 12.0, 40.0}) {
    const Tensor a = full({}, x, {.dtype = f64});
    EXPECT_NEAR(lgamma(a).item(), std::lgamma(x), 1e-13 * (1 + std::abs(std::lgamma(x)))) << x;
    EXPECT_NEAR(erfc(a).item(), std::erfc(x), 1e-15) << x;
    const double step = 1e-5;
    const double slope = (std::lgamma(x + step) - std::lgamma(x - step)) / (2 * step);
    EXPECT_NEAR(digamma(a).item(), slope, 1e-6 * (1 + std::abs(slope))) << x;
    EXPECT_NEAR(i0(a).item(), std::cyl_bessel_i(0, std::abs(x)),
                1e-13 * std::cyl_bessel_i(0, std::abs(x)))
        << x;
  }
  // Floats have functions that vectorise; inputs of 64 and more are computed in parts.
  for (const double x : {-87.5, -12.3, -2.5, -0.3, 1e-20, 0.2, 1.0, 1.46, 3.7, 7.99, 8.01, 40.0}) {
    const Tensor a = full({70}, x, {.dtype = f32}), wide = cast(a, f64);
    for (const auto function : {i0, i1, digamma}) {
      const double expected = slice(function(wide), 0, 0, 1).item();
      const Tensor error = abs(sub(cast(function(a), f64), expected));
      EXPECT_LE(max(error).item(), 2e-7 * std::abs(expected)) << x;
    }
  }
  const Tensor poles = digamma(vector({0, -0.0, -3, INFINITY, NAN}));
  EXPECT_EQ(values_of(slice(poles, 0, 0, 2)), (Values{-INFINITY, INFINITY}));
  EXPECT_TRUE(std::isnan(slice(poles, 0, 2, 3).item()));
  EXPECT_EQ(values_of(i0(vector({INFINITY, -INFINITY, 0}))), (Values{INFINITY, INFINITY, 1}));
  EXPECT_EQ(values_of(i1(vector({INFINITY, -INFINITY, 0}))), (Values{INFINITY, -INFINITY, 0}));
  for (const double y : {-0.999, -0.5, 0.0, 1e-9, 0.3, 0.99999}) {
    EXPECT_NEAR(std::erf(erfinv(full({}, y, {.dtype = f64})).item()), y, 1e-14) << y;
  }
  const Tensor a = full({}, 2, {.dtype = f64}), x = full({}, 3, {.dtype = f64});
  EXPECT_NEAR(igamma(a, x).item(), 1 - 4 * std::exp(-3), 1e-14);
  EXPECT_NEAR(igammac(a, x).item(), 4 * std::exp(-3), 1e-14);
}

TEST(Composed, DrawsDoNotDependOnTheLayout) {
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"x", 2}});
    const auto drawn = [](const Tensor& a) {
      Context::current().random = {.seed = 5, .stream = 0};
      exponential_(a, 2);
      return a.full_tensor().to_vector<double>();
    };
    const Sharding cut(mesh, {{"x", Shard(0)}});
    EXPECT_EQ(drawn(zeros({7, 3}, {.sharding = cut})), drawn(zeros({7, 3})));
  });
}

}  // namespace weft
