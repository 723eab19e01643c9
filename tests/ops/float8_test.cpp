// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "src/base/numeric.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {
namespace {

using Doubles = std::vector<double>;

TEST(Float8, IsMovedComparedAndCast) {
  for (const DType dtype : {f8_e4m3, f8_e5m2}) {
    const Tensor a = from_values(Doubles{0, 1, -2, 3.5, 0.25, -6}, {2, 3}, {.dtype = dtype});
    EXPECT_EQ(a.dtype(), dtype);
    const Tensor turned = contiguous(a.t());
    EXPECT_EQ(turned.to_vector<double>(), (Doubles{0, 3.5, 1, 0.25, -2, -6}));
    EXPECT_EQ(cat({a, a}, 0).shape(), (Shape{4, 3}));
    EXPECT_EQ(flip(a, {1}).to_vector<double>(), (Doubles{-2, 1, 0, -6, 0.25, 3.5}));
    EXPECT_EQ(slice(a, 1, 1, 3).to_vector<double>(), (Doubles{1, -2, 0.25, -6}));
    EXPECT_EQ(reshape(turned, {6}).shape(), Shape{6});
    EXPECT_EQ(take(a, from_values(Doubles{1}, {1}, {.dtype = i64}), 0).to_vector<double>(),
              (Doubles{3.5, 0.25, -6}));
    EXPECT_EQ(equal(a, clone(a)).to_vector<double>(), Doubles(6, 1));
    EXPECT_EQ(where(equal(a, a), a, a).dtype(), dtype);
    EXPECT_EQ(a.to(f32).to(dtype).to_vector<double>(), a.to_vector<double>());
    EXPECT_EQ(a.to(i32).to_vector<double>(), (Doubles{0, 1, -2, 3, 0, -6}));
    EXPECT_EQ(full({2}, 2, {.dtype = dtype}).to_vector<double>(), (Doubles{2, 2}));
    std::ostringstream text;
    text << a;
    EXPECT_NE(text.str().find("3.5"), std::string::npos) << text.str();
  }
}

TEST(Float8, HasNoArithmetic) {
  const Tensor a = full({2}, 2, {.dtype = f8_e4m3});
  const std::string cure = " is f8_e4m3, expected a dtype with arithmetic; cast it first";
  EXPECT_EQ(error_of([&] { a + a; }), "add: operand 0 [2]" + cure);
  EXPECT_EQ(error_of([&] { mul(a, 2); }), "mul_number: operand 0 [2]" + cure);
  EXPECT_EQ(error_of([&] { sum(a); }), "sum: operand 0 [2]" + cure);
  EXPECT_EQ(error_of([&] { a + full({2}, 1); }),
            "promote: dtypes are f8_e4m3 and f32, expected ones with arithmetic; cast f8_e4m3 "
            "first");
  EXPECT_EQ(error_of([&] {
              matmul(full({2, 2}, 1, {.dtype = f8_e5m2}), full({2, 2}, 1, {.dtype = f8_e5m2}));
            }),
            "matmul: operand 0 [2, 2] is f8_e5m2, expected a dtype with arithmetic; cast it first");
}

TEST(Float8, MovesBetweenLayoutsButIsNotReduced) {
  run_ranks(3, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 3}});
    const Doubles values{0, 1, -2, 3.5, 0.25, -6, 448};
    const Tensor a = distribute(from_values(values, {7}, {.dtype = f8_e4m3}), mesh, {Shard(0)});
    EXPECT_EQ(a.full_tensor().to_vector<double>(), values);
    EXPECT_EQ(a.redistribute({Replicate()})
                  .redistribute({Shard(0)})
                  .to(f32)
                  .full_tensor()
                  .to_vector<double>(),
              values);
    const float8_e4m3 one(1.0f);
    float8_e4m3 sum;
    const int64_t count = 1;
    const Piece piece{.send = &one, .recv = &sum, .dtype = f8_e4m3, .counts = {&count, 1}};
    EXPECT_EQ(error_of([&] { world.all_reduce(std::span(&piece, 1), ReduceOp::sum).wait(); }),
              "all_reduce: dtype is f8_e4m3, expected one with arithmetic; cast it first");
  });
}

TEST(Float8, PassesGradientsThroughCasts) {
  Tensor a = from_values(Doubles{1.01, -3}, {2});
  a.set_requires_grad(true);
  sum(mul(a.to(f8_e4m3).to(f32), 2)).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Doubles{2, 2}));
}

/// The number next to `x` among those of Code, after division by a scale.
template <class Code> Doubles rounded(const Doubles& values, double largest) {
  double greatest = 1e-12;
  for (const double value : values) greatest = std::max(greatest, std::abs(value));
  const auto scale = static_cast<float>(greatest) / static_cast<float>(largest);
  Doubles result;
  for (const double value : values) {
    const Code code(static_cast<float>(value) / scale);
    result.push_back(static_cast<double>(static_cast<float>(code)) * static_cast<double>(scale));
  }
  return result;
}

Doubles sines(int64_t n, double step) {
  Doubles values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<double>(static_cast<float>(std::sin(step * double(i + 1)))));
  }
  return values;
}

struct Products {
  Doubles y, dx, dw;
};

constexpr int64_t kRows = 7, kIn = 5, kOut = 6;

/// The same by loops, from numbers that are rounded as they should be.
Products expected_products() {
  const Doubles x = sines(kRows * kIn, 0.7), w = sines(kOut * kIn, 1.3), g = sines(kRows * kOut, 2);
  const Doubles qx = rounded<float8_e4m3>(x, 448), qw = rounded<float8_e4m3>(w, 448);
  const Doubles qg = rounded<float8_e5m2>(g, 57344);
  Products p{Doubles(kRows * kOut), Doubles(kRows * kIn), Doubles(kOut * kIn)};
  const auto at = [](const Doubles& of, int64_t i) { return of[static_cast<size_t>(i)]; };
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t o = 0; o < kOut; ++o) {
      for (int64_t k = 0; k < kIn; ++k) {
        const double xv = at(qx, r * kIn + k), wv = at(qw, o * kIn + k), gv = at(qg, r * kOut + o);
        p.y[static_cast<size_t>(r * kOut + o)] += xv * wv;
        p.dx[static_cast<size_t>(r * kIn + k)] += gv * wv;
        p.dw[static_cast<size_t>(o * kIn + k)] += gv * xv;
      }
    }
  }
  return p;
}

void expect_close(const Doubles& found, const Doubles& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << what << i;
}

Products products_of(Tensor x, Tensor w, const Tensor& g) {
  x.set_requires_grad(true);
  w.set_requires_grad(true);
  const Tensor y = float8_linear(x, w);
  sum(mul(y, g)).backward();
  const auto whole = [](const Tensor& t) {
    return (t.is_sharded() ? t.full_tensor() : t).to_vector<double>();
  };
  return {whole(y.detach()), whole(x.grad()), whole(w.grad())};
}

TEST(Float8, MultipliesRoundedNumbersInEveryLayout) {
  const Products expected = expected_products();
  const Tensor x = from_values(sines(kRows * kIn, 0.7), {kRows, kIn});
  const Tensor w = from_values(sines(kOut * kIn, 1.3), {kOut, kIn});
  const Tensor g = from_values(sines(kRows * kOut, 2), {kRows, kOut});
  const auto check = [&](const Products& found) {
    expect_close(found.y, expected.y, "y");
    expect_close(found.dx, expected.dx, "dx");
    expect_close(found.dw, expected.dw, "dw");
  };
  check(products_of(clone(x), clone(w), g));
  const std::vector<std::vector<MeshAxis>> meshes{
      {{"a", 1}}, {{"a", 2}}, {{"a", 3}}, {{"a", 4}}, {{"a", 2}, {"b", 2}}};
  for (const auto& axes : meshes) {
    const int ranks = axes.size() == 2 ? 4 : axes[0].size;
    run_ranks(ranks, [&](Communicator world) {
      const DeviceMesh mesh(world, axes);
      for (const Placement& of_x :
           {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate())}) {
        for (const Placement& of_w :
             {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate())}) {
          std::vector<Placement> px(axes.size(), of_x), pw(axes.size(), of_w);
          if (axes.size() == 2) px[0] = Shard(0), pw[0] = Replicate();
          const auto laid = [&](const Tensor& t, const std::vector<Placement>& p) {
            return distribute(t, mesh, Placements(std::span<const Placement>(p)));
          };
          check(products_of(laid(x, px), laid(w, pw), laid(g, px)));
        }
      }
    });
  }
}

TEST(Float8, TakesLeadingDimsHalvesZerosAndNoRows) {
  const Tensor x = from_values(sines(2 * 3 * 5, 0.4), {2, 3, 5});
  const Tensor w = from_values(sines(4 * 5, 0.9), {4, 5});
  const Tensor whole = float8_linear(x, w);
  EXPECT_EQ(whole.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(float8_linear(x.to(bf16), w.to(bf16)).dtype(), bf16);
  const Tensor flat = float8_linear(reshape(x, {6, 5}), w);
  EXPECT_EQ(flat.to_vector<double>(), whole.to_vector<double>());
  EXPECT_EQ(float8_linear(zeros({3, 5}), w).to_vector<double>(), Doubles(12, 0));
  EXPECT_EQ(float8_linear(zeros({0, 5}), w).shape(), (Shape{0, 4}));
  const Tensor nan = full({1, 5}, std::nan(""));
  EXPECT_TRUE(std::isnan(float8_linear(nan, w).to_vector<double>()[0]));
  EXPECT_EQ(error_of([&] {
              float8_linear(full({2, 5}, 1, {.dtype = i64}), full({2, 5}, 1, {.dtype = i64}));
            }),
            "float8_linear: dtype is i64, expected a floating one");
}

}  // namespace
}  // namespace weft
