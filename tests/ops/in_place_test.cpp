// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/in_place.h"

#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"

namespace weft {

namespace {

using OfTwo = Tensor (*)(const Tensor&, const Tensor&);

struct Pair {
  const char* name;
  const Tensor& (*in_place)(const Tensor&, const Operand&);
  OfTwo apart;
  /// The target may be Partial.
  bool linear = false;
};

const Pair kPairs[] = {
    {"add", add_, add, true},
    {"sub", sub_, sub, true},
    {"mul", mul_, mul, true},
    {"div", div_, div, true},
    {"pow", pow_, pow},
    {"floor_divide", floor_divide_, floor_divide},
    {"remainder", remainder_, remainder},
    {"maximum", maximum_, maximum},
    {"minimum", minimum_, minimum},
};

const Array kTarget = random_array({5, 7}, 0.5, 2);
const Array kAddend = random_array({5, 7}, 0.5, 2, f32, 2);

/// Changes a target laid out so by an addend laid out so; the target stays where it is.
void expect_in_place(const Pair& pair, const Sharding& target, const Sharding& addend,
                     const Array& b = kAddend) {
  const Tensor x = kTarget.on(target), y = b.on(addend);
  const void* data = x.block().data;
  const Array expected = whole(pair.apart(kTarget.on(), b.on()));
  // A Partial made of values on every rank is their sum.
  const bool is_sum = target && target.has_partial();
  const Array used =
      is_sum ? whole(pair.apart(x.full_tensor(), y.is_sharded() ? y.full_tensor() : y)) : expected;
  const Tensor& changed = pair.in_place(x, y);
  EXPECT_EQ(changed.body(), x.body()) << pair.name;
  EXPECT_EQ(x.block().data, data) << pair.name;
  if (target) {
    EXPECT_TRUE(x.sharding() == target) << pair.name;
  }
  expect_close(whole(x), used, 1e-6, pair.name);
}

/// Elements of `a` after `change`.
std::vector<double> after(const Tensor& a, const std::function<void()>& change) {
  change();
  return whole(a).values;
}

Tensor leaf(const Array& array, const Sharding& sharding = {}) {
  Tensor made = array.on(sharding);
  return made.set_requires_grad();
}

}  // namespace

TEST(InPlace, EqualsTheFunctionApart) {
  for (const Pair& pair : kPairs) {
    expect_in_place(pair, {}, {});
    expect_in_place(pair, {}, {}, random_array({7}, 0.5, 2));
  }
}

TEST(InPlace, KeepsTheTargetsLayout) {
  for (const int ranks : {1, 3}) {
    on_mesh({{"x", ranks}}, [](const DeviceMesh& mesh) {
      const auto on = [&](const Placement& placement) { return Sharding(mesh, {placement}); };
      for (const Pair& pair : kPairs) {
        for (const Placement& target :
             {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate())}) {
          for (const Placement& addend :
               {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate())}) {
            expect_in_place(pair, on(target), on(addend));
          }
        }
        for (const Placement& target :
             {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate())}) {
          expect_in_place(pair, on(target), on(Replicate()), random_array({7}, 0.5, 2));
          expect_in_place(pair, on(target), on(Shard(0)), random_array({5, 1}, 0.5, 2));
          expect_in_place(pair, on(target), on(Replicate()), random_array({}, 0.5, 2));
        }
        if (pair.linear) expect_in_place(pair, on(Partial()), on(Replicate()));
      }
    });
  }
}

TEST(InPlace, APartialAddendIsReducedFirst) {
  on_mesh({{"x", 3}}, [](const DeviceMesh& mesh) {
    const Tensor a = kTarget.on(Sharding(mesh, {Shard(0)}));
    const Tensor b = kAddend.on(Sharding(mesh, {Partial()}));
    a += b;
    Array expected = kTarget;
    for (size_t i = 0; i < expected.values.size(); ++i) expected.values[i] += 3 * kAddend.values[i];
    expect_close(whole(a), expected, 1e-6, "sum");
    const Tensor c = kTarget.on(Sharding(mesh, {Partial()}));
    EXPECT_NE(error_of([&] { exp_(c); }).find("exp_: layouts of its operands are"),
              std::string::npos);
  });
}

TEST(InPlace, NumbersAndOperators) {
  const Tensor a = Array{{3}, {1, -2, 4}}.on();
  EXPECT_EQ(after(a, [&] { a += 1; }), (std::vector<double>{2, -1, 5}));
  EXPECT_EQ(after(a, [&] { a -= 0.5; }), (std::vector<double>{1.5, -1.5, 4.5}));
  EXPECT_EQ(after(a, [&] { a *= 2; }), (std::vector<double>{3, -3, 9}));
  EXPECT_EQ(after(a, [&] { a /= 2; }), (std::vector<double>{1.5, -1.5, 4.5}));
  EXPECT_EQ(after(a, [&] { a %= 2; }), (std::vector<double>{1.5, 0.5, 0.5}));
  EXPECT_EQ(after(a, [&] { clamp_(a, 0.75, 1.25); }), (std::vector<double>{1.25, 0.75, 0.75}));
  EXPECT_EQ(after(a, [&] { neg_(a); }), (std::vector<double>{-1.25, -0.75, -0.75}));
  EXPECT_EQ(after(a, [&] { zero_(a); }), (std::vector<double>{0, 0, 0}));
  const Tensor bits = Array{{3}, {1, 6, 12}, i32}.on();
  EXPECT_EQ(after(bits, [&] { bits &= 6; }), (std::vector<double>{0, 6, 4}));
  EXPECT_EQ(after(bits, [&] { bits |= 1; }), (std::vector<double>{1, 7, 5}));
  EXPECT_EQ(after(bits, [&] { bits ^= 7; }), (std::vector<double>{6, 0, 2}));
  EXPECT_EQ(after(bits, [&] { bits <<= 2; }), (std::vector<double>{24, 0, 8}));
  EXPECT_EQ(after(bits, [&] { bits >>= 3; }), (std::vector<double>{3, 0, 1}));
}

TEST(InPlace, KeepsTheTargetsDtype) {
  const Array third{{2}, {1.0 / 3, 1}};
  const Tensor half = Array{{2}, {1, 256}, bf16}.on();
  half *= third.on();
  EXPECT_EQ(half.dtype(), bf16);
  EXPECT_EQ(whole(half).values,
            whole(cast(mul(Array{{2}, {1, 256}}.on(), third.on()), bf16)).values);
  const Tensor scaled = full({1}, 3, {.dtype = bf16});
  scaled *= 0.1;  // in f32, as 0.1 is not a bf16
  EXPECT_EQ(scaled.item(), static_cast<double>(0.30078125));
  const Tensor narrow = Array{{2}, {1, 2}, i32}.on();
  narrow += Array{{2}, {10, 20}, i64}.on();
  EXPECT_EQ(narrow.dtype(), i32);
  EXPECT_EQ(whole(narrow).values, (std::vector<double>{11, 22}));
  const std::string tail =
      ", expected one that the tensor of i64 takes; cast an operand, or make a new tensor";
  const Tensor integers = ones({2}, {.dtype = i64});
  EXPECT_EQ(error_of([&] { integers += 1.0; }), "add_: the result is f32" + tail);
  EXPECT_EQ(error_of([&] { integers *= ones({2}, {.dtype = f64}); }),
            "mul_: the result is f64" + tail);
  EXPECT_EQ(error_of([&] { integers /= 2; }), "div_: the result is f32" + tail);
  EXPECT_EQ(error_of([&] { exp_(integers); }), "exp_: the result is f32" + tail);
  floor_(integers);
  EXPECT_EQ(whole(integers).values, (std::vector<double>{1, 1}));
  const Tensor truths = ones({2}, {.dtype = boolean});
  EXPECT_NE(error_of([&] { truths += 1; }).find("add_: the result is i64"), std::string::npos);
  const Tensor bytes = ones({2}, {.dtype = u8});
  EXPECT_NE(error_of([&] { bytes += 300; }).find("add_: number is 300"), std::string::npos);
}

TEST(InPlace, ChangesViews) {
  const Tensor a = Array{{2, 3}, {1, 2, 3, 4, 5, 6}}.on();
  a.t() += Array{{3, 1}, {10, 20, 30}}.on();
  EXPECT_EQ(whole(a).values, (std::vector<double>{11, 22, 33, 14, 25, 36}));
  slice(a, 1, 1, 3) *= 0;
  EXPECT_EQ(whole(a).values, (std::vector<double>{11, 0, 0, 14, 0, 0}));
  const Tensor square = Array{{2, 2}, {1, 2, 3, 4}}.on();
  square += square.t();
  EXPECT_EQ(whole(square).values, (std::vector<double>{2, 5, 5, 8}));
}

TEST(InPlace, ChangesNoElementOfAnExpandedTensorWithoutElements) {
  const Tensor a = expand(ones({2, 1, 0}), {2, 3, 0});
  a += 1;
  EXPECT_EQ(a.shape(), (Shape{2, 3, 0}));
}

TEST(InPlace, RefusesWhatWouldBeLarger) {
  const Tensor a = ones({3});
  const std::string tail =
      ", expected one that broadcasts to the tensor [3], which keeps its shape";
  EXPECT_EQ(error_of([&] { a += ones({2, 3}); }), "add_: operand 1 is [2, 3]" + tail);
  EXPECT_EQ(error_of([&] { a += ones({4}); }), "add_: operand 1 is [4]" + tail);
  EXPECT_EQ(error_of([&] { expand(ones({1}), {3}) += 1; }),
            "add_: the tensor [3] repeats elements (expand), expected one that holds each once; "
            "copy it first");
  EXPECT_EQ(error_of([&] { Tensor() += 1; }), "add_: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { a += Tensor(); }), "add_: no tensor is given, expected one");
}

TEST(InPlace, ALeafChangesUnderNoGradOnly) {
  Tensor w = leaf(kTarget);
  const std::string sentence =
      "sub_: the tensor [5, 7] is a leaf that requires a gradient, or a view of one, expected "
      "NoGrad (no_grad) around a change in place";
  EXPECT_EQ(error_of([&] { w -= 1; }), sentence);
  EXPECT_NE(error_of([&] { w.t() -= 1; }).find("is a leaf that requires a gradient"),
            std::string::npos);
  sum(w * 3.0).backward();
  {
    NoGrad no_grad;
    w -= 0.5 * w.grad();
  }
  EXPECT_TRUE(w.is_leaf() && w.requires_grad());
  expect_close(whole(w), whole(sub(kTarget.on(), 1.5)), 1e-6, "leaf");
}

/// Gradients of `function`, which changes its results in place, are those of the same apart.
static void expect_gradients(const Function& in_place, const Function& apart,
                             const std::vector<Array>& operands) {
  const auto run = [&](const DeviceMesh& mesh, const std::vector<Placements>& placements) {
    const Outcome one = outcome_of(in_place, operands, mesh, placements);
    const Outcome other = outcome_of(apart, operands);
    expect_close(one.results[0], other.results[0], 1e-5, "result");
    ASSERT_EQ(one.gradients.size(), other.gradients.size());
    for (size_t i = 0; i < one.gradients.size(); ++i) {
      expect_close(one.gradients[i], other.gradients[i], 1e-5, "gradient " + std::to_string(i));
    }
  };
  run({}, {});
  on_mesh({{"x", 3}}, [&](const DeviceMesh& mesh) {
    run(mesh, {{Shard(0)}, {Shard(0)}});
    run(mesh, {{Shard(1)}, {Shard(0)}});
    run(mesh, {{Replicate()}, {Shard(1)}});
  });
}

TEST(InPlace, IsRecorded) {
  for (const Pair& pair : kPairs) {
    if (pair.apart == floor_divide) continue;  // without a gradient
    expect_gradients(
        [&](const Tensors& x) {
          Tensor h = square(x[0]);
          pair.in_place(h, x[1]);
          h += 1.5;
          return Tensors{h * x[1]};
        },
        [&](const Tensors& x) { return Tensors{add(pair.apart(square(x[0]), x[1]), 1.5) * x[1]}; },
        {kTarget, kAddend});
  }
  expect_gradients(
      [](const Tensors& x) {
        Tensor h = x[0] * 2.0;
        h *= h;
        sigmoid_(h);
        Tensor total = zeros_like(h);
        total += h;
        total += h.t().t() * x[1];
        return Tensors{total};
      },
      [](const Tensors& x) {
        const Tensor h = sigmoid(square(x[0] * 2.0));
        return Tensors{h + h * x[1]};
      },
      {kTarget, kAddend});
}

TEST(InPlace, OfANarrowerDtypeIsRecorded) {
  Tensor x = leaf(kTarget), h = cast(x, bf16);
  h *= kAddend.on();
  EXPECT_EQ(h.dtype(), bf16);
  sum(cast(h, f32)).backward();
  expect_close(whole(x.grad()), kAddend, 1e-2, "gradient");
}

TEST(InPlace, WhatBackwardNeedsIsNotChangedInSilence) {
  Tensor x = leaf(kTarget), y = exp(x);
  y += 1;
  EXPECT_NE(error_of([&] { sum(y).backward(); }).find("was changed in place after forward"),
            std::string::npos);
  const std::string sentence =
      "autograd: a tensor [5, 7] is used after a recorded op changed it in place through another "
      "tensor over its memory, expected that tensor; or take the view again";
  Tensor h = x * 2.0;
  Tensor rows = slice(h, 0, 0, 2);
  rows *= 3;
  EXPECT_EQ(error_of([&] { sum(h); }), sentence);
  sum(rows).backward();
  EXPECT_EQ(whole(slice(x.grad(), 0, 0, 1)).values, std::vector<double>(7, 6));
  const Tensor buffer = zeros({5, 7});
  slice(buffer, 0, 0, 2) += slice(x, 0, 0, 2);
  EXPECT_EQ(error_of([&] { buffer.t(); }), sentence);
}

TEST(InPlace, OneOperandIsCopied) {
  for (const DType dtype : {f32, i64}) {
    const Tensor x = Array{{3}, {1, 2, 3}, dtype}.on();
    for (const Tensor& y : {cat({x}, 0), clone(x), roll(x, {0}), repeat(x, 1), tile(x, {1}),
                            clip(x, {}), diff(x, 0, 0), pad(x, 0, 0, 0), floor(x), round(x)}) {
      y += 1;
      EXPECT_EQ(whole(x).values, (std::vector<double>{1, 2, 3}));
    }
  }
}

TEST(InPlace, APartIsAssigned) {
  const auto rows = [](const Tensor& t) { return slice(t, 0, 0, 2); };
  const auto column = [](const Tensor& t) { return slice(t, 1, 2, 3); };
  const Outcome one = outcome_of(
      [&](const Tensors& x) {
        const Tensor h = x[0] * 2.0;
        assign_(h, rows, rows(h) *= 3.0);
        assign_(h, column, column(x[1]));
        return Tensors{h * h};
      },
      {kTarget, kAddend});
  const Outcome other = outcome_of(
      [&](const Tensors& x) {
        const Tensor h = cat({rows(x[0]) * 6.0, slice(x[0], 0, 2, 5) * 2.0}, 0);
        const Tensor made = cat({slice(h, 1, 0, 2), column(x[1]), slice(h, 1, 3, 7)}, 1);
        return Tensors{made * made};
      },
      {kTarget, kAddend});
  expect_close(one.results[0], other.results[0], 1e-6, "result");
  for (size_t i : {0, 1}) expect_close(one.gradients[i], other.gradients[i], 1e-5, "gradient");
  const Tensor w = leaf(kTarget);
  EXPECT_EQ(error_of([] {
              assign_(
                  ones({2}), [](const Tensor& x) { return clone(x); }, 1);
            }),
            "assign_: the part [2] of the tensor [2] is a copy, expected a view");
  EXPECT_NE(error_of([&] { assign_(w, rows, 1); }).find("assign_: the tensor [5, 7] is a leaf"),
            std::string::npos);
}

}  // namespace weft
