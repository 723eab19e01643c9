// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/extend/op.h"

namespace weft {

namespace {

/// 2 a + b, as a newcomer writes it: over dense floats.
OpSpec twice_and() {
  return {.name = "twice_and",
          .rule = "..., ... -> ...",
          .linear = {{0, 1}},
          .forward =
              [](const Call& c) {
                const float *a = c.in(0).as<float>(), *b = c.in(1).as<float>();
                for (int64_t i = 0; i < c.out().numel(); ++i)
                  c.out().as<float>()[i] = 2 * a[i] + b[i];
              },
          .backward =
              [](const Grad& g) {
                g.give(0, g.grad() * 2.0);
                g.give(1, g.grad());
              },
          .saves_in = std::vector<int>{}};
}

/// a += b over dense floats.
OpSpec plus() {
  return {.name = "plus_",
          .rule = "..., ... ->",
          .forward =
              [](const Call& c) {
                for (int64_t i = 0; i < c.in(0).numel(); ++i) {
                  c.in(0).as<float>()[i] += c.in(1).as<float>()[i];
                }
              },
          .writes = {0},
          .differentiable = false};
}

}  // namespace

TEST(Takes, OperandsComeDenseUnlessTheOpReadsStrides) {
  const Op op(twice_and());
  const Tensor a = numbers({4, 3}), b = numbers({3, 4}, 1);
  const Array expected = whole(add(mul(a.t(), 2), b));
  expect_close(whole(op({a.t(), b})), expected, 0, "transposed");
  const Tensor rows = numbers({6, 4}, 2);
  expect_close(whole(op({slice(rows, 0, 0, 6, 2), b})), whole(add(slice(rows, 0, 0, 6, 2) * 2, b)),
               0, "strided");
  expect_close(whole(op({expand(ones({1, 4}), {3, 4}), b})), whole(add(b, 2)), 0, "expanded");
  Tensor into = zeros({3, 4});
  op.into(into, false, Tensors{a.t(), b});
  expect_close(whole(into), expected, 0, "into");
  on_mesh({{"x", 3}}, [&](const DeviceMesh& mesh) {
    const Tensor cut = numbers({4, 3}, 0, Sharding(mesh, {Shard(0)}));
    const Tensor other = numbers({3, 4}, 1, Sharding(mesh, {Shard(1)}));
    expect_close(whole(op({cut.t(), other})), expected, 0, "sharded");
  });
  Tensor x = numbers({4, 3});
  x.set_requires_grad();
  sum(op({x.t(), b})).backward();
  EXPECT_EQ(whole(x.grad()).values, std::vector<double>(12, 2));
}

TEST(Takes, AnOperandInPlaceIsChangedWhereItLies) {
  const Op op(plus());
  const Tensor a = numbers({4, 3}), b = numbers({3, 4}, 1);
  const Array expected = whole(add(a.t(), b));
  op.call({a.t(), b});
  expect_close(whole(a.t()), expected, 0, "target");
  const Tensor square = numbers({3, 3}, 3);
  const Array symmetric = whole(add(square, square.t()));
  op.call({square, square.t()});
  expect_close(whole(square), symmetric, 0, "overlapping");
}

TEST(Takes, AChangeInPlaceBesideADestinationIsKept) {
  OpSpec spec = plus();
  spec.rule = "..., ... -> ...";
  spec.forward = [](const Call& c) {
    for (int64_t i = 0; i < c.in(0).numel(); ++i) {
      c.in(0).as<float>()[i] += c.in(1).as<float>()[i];
      c.out().as<float>()[i] = -c.in(1).as<float>()[i];
    }
  };
  const Op op(spec);
  const Tensor a = numbers({3, 3}), into = zeros({3, 3});
  const Array expected = whole(add(a.t(), a)), negated = whole(neg(a));
  const Tensor turned = a.t();
  op.into(into, false, Tensors{turned, a});
  expect_close(whole(turned), expected, 0, "target");
  expect_close(whole(into), negated, 0, "destination");
}

TEST(Takes, OtherDtypesAreRefused) {
  const Op op(twice_and());
  const Tensor a = ones({2}), integers = ones({2}, {.dtype = i64});
  EXPECT_EQ(error_of([&] {
              op({a, integers});
            }),
            "twice_and: operand 1 [2] is i64, expected f32; cast it, or let the op say that it "
            "takes i64");
  EXPECT_NE(error_of([&] {
              op({cast(a, bf16), a});
            }).find("operand 0 [2] is bf16"),
            std::string::npos);
  OpSpec declared = twice_and();
  declared.takes = {{.dtypes = {f32, f64}}, {.dtypes = {f64, i64}}};
  EXPECT_NE(error_of([&] {
              const Op of_both(declared);
              of_both({a, a});
            }).find("operand 1 [2] is f32, expected f64 or i64"),
            std::string::npos);
}

TEST(Takes, AnOpThatReadsStridesAndDtypesGetsThem) {
  OpSpec spec = twice_and();
  spec.takes = {anything()};
  Strides seen;
  DType dtype = f32;
  spec.forward = [&](const Call& c) {
    seen = c.in(0).strides;
    dtype = c.in(1).dtype;
  };
  const Op op(spec);
  op({ones({4, 3}).t(), ones({3, 4}, {.dtype = i64})});
  EXPECT_EQ(seen, (Strides{1, 3}));
  EXPECT_EQ(dtype, i64);
  for (const Op& built_in : all_ops()) EXPECT_FALSE(built_in.spec().takes.empty());
}

}  // namespace weft
