// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/extend/op.h"
#include "weft/extend/tape.h"

namespace weft {

// Provokes every error message of ops and tensors.

struct Refusal {
  std::function<void()> call;
  std::string sentence;
};

static void expect_refusals(const std::vector<Refusal>& table) {
  for (const Refusal& row : table) EXPECT_EQ(error_of(row.call), row.sentence);
}

/// Runs `body` on the only rank of a mesh a=1, with a tensor [4, 2] sharded along dim 0.
static void on_one_rank(const std::function<void(const DeviceMesh&, const Tensor&)>& body) {
  on_mesh({{"a", 1}}, [&](const DeviceMesh& mesh) {
    body(mesh, numbers({4, 2}, 1, Sharding(mesh, {Shard(0)})));
  });
}

static const Tensor kNone;

TEST(Messages, OfElementwiseOps) {
  Tensor a = numbers({2, 3}), b = numbers({4, 3});
  expect_refusals({
      {[&] { add(a, kNone); }, "add: no tensor is given, expected one"},
      {[&] { add(kNone, 1.0); }, "add_number: no tensor is given, expected one"},
      {[&] { div(kNone, a); }, "div: no tensor is given, expected one"},
      {[&] { div(kNone, 2.0); }, "div: no tensor is given, expected one"},
      {[&] { exp(kNone); }, "exp: no tensor is given, expected one"},
      {[&] { neg(kNone); }, "neg: no tensor is given, expected one"},
      {[&] { cast(kNone, f32); }, "cast: no tensor is given, expected one"},
      {[&] { where(kNone, a, a); }, "where: no tensor is given, expected one"},
      {[&] { where(a, a, a); }, "where: dtype of the condition [2, 3] is f32, expected bool"},
      {[&] { add(a, b); },
       "add: factor ...0 is 4 in operand 1 [4, 3], expected 2, as in operand 0 [2, 3]"},
      {[&] {
         add(a, zeros({2, 3}, {.device = meta}));
       },
       "add: operand 1 is on meta, expected cpu, as operand 0; a parameter has no memory "
       "before materialize() or a call of its module"},
  });
}

TEST(Messages, OfShapeOps) {
  Tensor a = numbers({2, 3});
  expect_refusals({
      {[&] { reshape(kNone, {2}); }, "reshape: no tensor is given, expected one"},
      {[&] {
         reshape(a, {-1, 2});
       },
       "reshape: shape is [-1, 2], expected sizes of at least 0; they are never inferred"},
      {[&] { reshape(a, {4}); },
       "reshape: number of elements of [4] is 4, expected 6, that of [2, 3]"},
      {[&] {
         reshape(a, {4294967296, 4294967296});
       },
       "reshape: number of elements of [4294967296, 4294967296] is 1.84467e+19, expected 6, that "
       "of [2, 3]"},
      {[] { arange(0.0, 1e30, 1.0, {}); },
       "arange: number of elements from 0 to 1e+30 by 1 is 1e+30, expected below 2^63"},
      {[] { arange(INT64_MIN, INT64_MAX, 1, {.dtype = i64}); },
       "arange: number of elements from -9.22337e+18 to 9.22337e+18 by 1 is 1.84467e+19, expected "
       "below 2^63"},
      {[&] { squeeze(kNone, 0); }, "squeeze: no tensor is given, expected one"},
      {[&] { squeeze(a, 1); }, "squeeze: size of dim 1 of [2, 3] is 3, expected 1"},
      {[&] { squeeze(a, 2); }, "squeeze: dim is 2, expected one of the 2 dims"},
      {[&] { unsqueeze(kNone, 0); }, "unsqueeze: no tensor is given, expected one"},
      {[&] { unsqueeze(a, 4); }, "unsqueeze: dim is 4, expected one of the 3 dims"},
      {[&] { permute(kNone, {}); }, "permute: no tensor is given, expected one"},
      {[&] { permute(a, {0}); }, "permute: number of dims is 1, expected 2, those of [2, 3]"},
      {[&] {
         permute(a, {1, 1});
       },
       "permute: dim 1 of [2, 3] is given twice, expected once"},
      {[&] { transpose(kNone, 0, 1); }, "transpose: no tensor is given, expected one"},
      {[&] { transpose(a, 0, 2); }, "transpose: dim is 2, expected one of the 2 dims"},
      {[&] {
         numbers({2, 3, 4}).t();
       },
       "t: the tensor is [2, 3, 4], expected a matrix"},
      {[&] { slice(kNone, 0, 0, 1); }, "slice: no tensor is given, expected one"},
      {[&] { slice(a, 0, 0, 1, 0); }, "slice: step must be at least 1, got 0"},
      {[&] { slice(a, -3, 0, 1); }, "slice: dim is -3, expected one of the 2 dims"},
      {[&] { pad(kNone, 0, 1, 1); }, "pad: no tensor is given, expected one"},
      {[&] { pad(a, 0, -1, 2); }, "pad: before and after are -1 and 2, expected at least 0"},
      {[&] { expand(kNone, {2}); }, "expand: no tensor is given, expected one"},
      {[&] {
         expand(a, {4, 3});
       },
       "expand: the tensor is [2, 3], expected one that broadcasts to [4, 3]"},
      {[&] { expand(a, {3}); },
       "expand: the tensor is [2, 3], expected one that broadcasts to [3]"},
      {[&] { cat({}, 0); }, "cat: number of tensors is 0, expected at least 1"},
      {[&] {
         cat({a, kNone}, 0);
       },
       "cat: tensor 1 is empty, expected a tensor"},
      {[&] {
         cat({a, numbers({2, 4})}, 0);
       },
       "cat: tensor 1 is [2, 4], expected [2, 3], as tensor 0, except in dim 0"},
      {[&] {
         cat({a, numbers({3})}, 0);
       },
       "cat: tensor 1 is [3], expected [2, 3], as tensor 0, except in dim 0"},
  });
}

TEST(Messages, OfReductions) {
  Tensor a = numbers({2, 3});
  expect_refusals({
      {[&] { sum(kNone); }, "sum: no tensor is given, expected one"},
      {[&] {
         sum(a, {0, -2});
       },
       "sum: dim 0 of [2, 3] is given twice, expected once"},
      {[&] { mean(a, {2}); }, "mean: dim is 2, expected one of the 2 dims"},
      {[&] {
         max(numbers({2, 0}), {1});
       },
       "max: size of dim 1 of [2, 0] must be at least 1, got 0"},
      {[&] { argmax(kNone, 0); }, "argmax: no tensor is given, expected one"},
      {[&] {
         argmax(numbers({2, 0}), 1);
       },
       "argmax: size of dim 1 of [2, 0] must be at least 1, got 0"},
      {[&] { argmax(a, 2); }, "argmax: dim is 2, expected one of the 2 dims"},
      {[&] { logsumexp(kNone, 0); }, "logsumexp: no tensor is given, expected one"},
  });
}

TEST(Messages, OfProductsAndNetworks) {
  Tensor a = numbers({2, 3}), q = numbers({1, 2, 3, 4}), k = numbers({1, 2, 2, 4});
  Tensor ids = from_values(std::vector<double>{0, 7}, {2}, {.dtype = i64});
  expect_refusals({
      {[&] {
         matmul(a, numbers({4, 5}));
       },
       "matmul: factor k is 4 in operand 1 [4, 5], expected 3, as in operand 0 [2, 3]"},
      {[&] { matmul(a, numbers({3})); },
       "matmul: number of dims of operand 1 [3] is 1, expected at least 2, those of the rule \"... "
       "m k, ... k n -> ... m n\""},
      {[&] { linear(a, kNone); }, "linear: no tensor is given, expected one"},
      {[&] { linear(a, a, kNone); }, "linear: no tensor is given, expected one"},
      {[&] { softmax(kNone); }, "softmax: no tensor is given, expected one"},
      {[&] { log_softmax(kNone); }, "log_softmax: no tensor is given, expected one"},
      {[&] { cross_entropy_rows(kNone, ids); }, "cross_entropy: no tensor is given, expected one"},
      {[&] { cross_entropy_rows(a, kNone); },
       "cross_entropy: no targets are given, expected one for each row"},
      {[&] { cross_entropy_rows(a, numbers({2})); },
       "cross_entropy: dtype of targets is f32, expected an integer one"},
      {[&] {
         cross_entropy_rows(numbers({3, 3}), ids);
       },
       "cross_entropy: targets are [2], expected one for each row of logits [3, 3]"},
      {[&] { cross_entropy_rows(a, ids); },
       "cross_entropy: target is 7, expected one below 3, the classes of logits [2, 3], or -100"},
      {[&] { embedding(a, kNone); }, "embedding: no tensor is given, expected one"},
      {[&] { embedding(a, a); }, "embedding: dtype of ids is f32, expected an integer one"},
      {[&] { embedding(a, ids); },
       "embedding: id is 7, expected one below 2, the rows of the weight [2, 3]"},
      {[&] { rope(kNone); }, "rope: no tensor is given, expected one"},
      {[&] { rope(a); }, "rope: x is [2, 3], expected [batch, sequence, heads, an even size]"},
      {[&] { rope(q, 0); }, "rope: theta is 0, expected a number above 0"},
      {[&] { swiglu(a, kNone); }, "swiglu: no tensor is given, expected one"},
      {[&] { swiglu(a, numbers({3})); },
       "swiglu: up is [3], expected [2, 3], the shape of the gate"},
      {[&] { attention(q, k, kNone); }, "attention: no tensor is given, expected one"},
      {[&] { attention(q, a, a); },
       "attention: q, k and v are [1, 2, 3, 4], [2, 3] and [2, 3], expected [batch, s, heads, d] "
       "and twice [batch, t, kv heads, d]"},
      {[&] { attention(q, k, k); },
       "attention: number of heads of q [1, 2, 3, 4] is 3, expected a multiple of 2, those of k "
       "[1, 2, 2, 4]"},
      {[&] { dropout(kNone, 0.5); }, "dropout: no tensor is given, expected one"},
      {[&] { dropout(a, 1.5); }, "dropout: probability is 1.5, expected one in [0, 1]"},
      {[&] { dropout(ids, 0.5); }, "dropout: dtype is i64, expected a floating one"},
  });
}

TEST(Messages, OfUpdates) {
  Tensor a = numbers({2, 3}), one = full({}, 1), two = numbers({2});
  expect_refusals({
      {[&] { adamw_(a, two, a, a, one, {}); },
       "adamw_: m is [2], expected [2, 3], the shape of the parameter"},
      {[&] { adamw_(a, a, kNone, a, one, {}); }, "adamw_: no tensor is given, expected one"},
      {[&] { adamw_(a, a, a, a, two, {}); }, "adamw_: factor is [2], expected one element"},
      {[&] { adamw_(a, a, a, a, one, {.step = 0}); }, "adamw_: step must be at least 1, got 0"},
      {[&] { sgd_(a, kNone, two, one, 0.1, 0, 0); },
       "sgd_: the gradient is [2], expected [2, 3], the shape of the parameter"},
      {[&] { sgd_(a, kNone, a, one, 0.1, 0.9, 0); },
       "sgd_: velocity is missing, expected one for momentum 0.9"},
      {[&] { scale_(kNone, one); }, "scale_: no tensor is given, expected one"},
      {[&] { scale_(a, kNone); }, "scale_: no factor is given, expected one"},
      {[&] { add_scaled_(a, two, one); },
       "add_scaled_: x is [2], expected [2, 3], the shape of the parameter"},
      {[&] { add_scaled_(a, a, two); }, "add_scaled_: factor is [2], expected one element"},
  });
}

TEST(Messages, OfFactories) {
  Tensor a = numbers({2, 3});
  expect_refusals({
      {[&] {
         empty({2, -1});
       },
       "empty: shape is [2, -1], expected sizes of at least 0"},
      {[&] {
         from_values(std::vector<double>{1, 2}, {3});
       },
       "from_values: number of values is 2, expected 3, the elements of [3]"},
      {[&] { uniform({2}, 0, 1, {.dtype = i32}); },
       "uniform_: dtype is i32, expected a floating one"},
      {[&] { normal_(kNone, 0, 1); }, "normal_: no tensor is given, expected one"},
      {[&] { fill_(kNone, 0); }, "fill_: no tensor is given, expected one"},
      {[&] { copy_(a, kNone); }, "copy_: no tensor is given, expected one"},
      {[&] { copy_(a, numbers({2})); },
       "copy_: source is [2], expected one that broadcasts to [2, 3]"},
      {[&] { tensor_in(a.storage(), 4, {3}, f32); },
       "tensor_in: memory has 24 bytes, expected room for [3] elements of f32 from element 4 on"},
  });
  on_one_rank([&](const DeviceMesh& mesh, const Tensor& x) {
    expect_refusals({
        {[&] {
           copy_(x, numbers({4, 2}));
         },
         "copy_: one of the tensors [4, 2] has no mesh, expected both or none over a mesh"},
        {[&] { normal_(zeros({2}, {.sharding = Sharding(mesh, {Partial()})}), 0, 1); },
         "normal_: the tensor is laid out as mesh(a=1)[P(sum)], expected no Partial"},
    });
  });
}

TEST(Messages, OfTensors) {
  Tensor a = numbers({2, 3}), x = numbers({2});
  x.set_requires_grad();
  Tensor y = exp(x);
  expect_refusals({
      {[&] { a.item(); }, "item: number of elements is 6, expected 1"},
      {[&] { a.size(2); }, "size: dim is 2, expected one of the 2 dims"},
      {[&] { y.set_requires_grad(); },
       "set_requires_grad: the tensor [2] is the result of an op, expected a leaf; detach() it"},
      {[&] { from_values(std::vector<double>{1}, {1}, {.dtype = i64}).set_requires_grad(); },
       "set_requires_grad: dtype is i64, expected a floating one"},
      {[&] { a.set_grad(a); },
       "set_grad: the tensor [2, 3] is a result or requires no gradient, expected a leaf that "
       "requires one"},
      {[&] { a.redistribute({}); },
       "redistribute: the tensor [2, 3] has no mesh, expected one over a mesh; use distribute"},
      {[&] { explain(a, {}); }, "explain: the tensor [2, 3] has no mesh, expected one over a mesh"},
      {[&] { explain(kNone, {}); }, "explain: no tensor is given, expected one"},
      {[&] { kNone.full_tensor(); }, "full_tensor: no tensor is given, expected one"},
      {[&] { kNone.to_local(); }, "to_local: no tensor is given, expected one"},
      {[&] { kNone.to_vector<float>(); }, "to_vector: no tensor is given, expected one"},
      {[&] { kNone.backward(); }, "backward: no tensor is given, expected one"},
  });
}

TEST(Messages, OfLayouts) {
  on_one_rank([&](const DeviceMesh& mesh, const Tensor& x) {
    Tensor local = numbers({4, 2}), one = numbers({1}, 1, Sharding(mesh, {Shard(0)}));
    local.set_requires_grad();
    x.detach().set_requires_grad();
    Tensor whole = numbers({2}, 1, Sharding(mesh, {}));
    whole.set_requires_grad();
    expect_refusals({
        {[&] { distribute(x, mesh, {}); },
         "distribute: the tensor [4, 2] is laid out over mesh(a=1)[S(0)], expected one without a "
         "mesh; use redistribute"},
        {[&] { distribute(local, mesh, {Partial()}); },
         "distribute: a placement is Partial, expected Shard or Replicate; use from_local"},
        {[&] { distribute(local, DeviceMesh(), {}); },
         "distribute: this rank is not in the mesh, expected one of its ranks"},
        {[&] { distribute(kNone, mesh, {}); }, "distribute: no tensor is given, expected one"},
        {[&] { redistributed(local, x.sharding()); },
         "redistribute: target is [4, 2] f32 mesh(a=1)[S(0)], expected the shape, dtype and mesh "
         "of [4, 2] f32"},
        {[&] { redistributed(x, {}); },
         "redistribute: target is [4, 2] f32, expected the shape, dtype and mesh of [4, 2] f32 "
         "mesh(a=1)[S(0)]"},
        {[&] {
           from_local(local, mesh, {Shard(0)}, {5, 2});
         },
         "from_local: part of rank 0 is [4, 2], expected [5, 2] of a tensor [5, 2] laid out as "
         "mesh(a=1)[S(0)]"},
        {[&] {
           from_local(local, mesh, {Partial{ReduceOp::max}}, {4, 2});
         },
         "from_local: placement is P(max), expected one with a gradient; reduce it first"},
        {[&] { scatter(local, mesh, {}, 1); }, "scatter: root is 1, expected one of the 1 ranks"},
        {[&] { scatter(kNone, mesh, {}); },
         "scatter: tensor of root 0 is empty or over a mesh, expected one of one device"},
        {[&] { scatter(local, mesh, {Partial()}); },
         "scatter: a placement is Partial, expected Shard or Replicate; use from_local"},
        {[&] { scatter(local, DeviceMesh(), {}); },
         "scatter: this rank is not in the mesh, expected one of its ranks"},
        {[&] { one.item(); },
         "item: the tensor is laid out as mesh(a=1)[S(0)], expected a replicated one; call "
         "full_tensor() first"},
        {[&] { whole.to_local(); },
         "to_local: placements of the gradient are missing, expected them for a tensor [2] laid "
         "out as mesh(a=1)[R]: gradients of the ranks may be equal or parts of a sum"},
        {[&] { x.to_local({Replicate()}); },
         "to_local: placements of the gradient are mesh(a=1)[R], expected mesh(a=1)[S(0)], those "
         "of the tensor, where they shard"},
        {[&] {
           add(x, numbers({4, 2}));
         },
         "add: operand 1 [4, 2] has no mesh, expected mesh(a=1), that of operand 0 "
         "[4, 2]; from_local(operand, mesh, {Shard(0)}) makes it of rows that differ between "
         "ranks, "
         "distribute(operand, mesh, {}) of values that are equal on all"},
    });
  });
}

TEST(Messages, OfPartsThatAreNoCut) {
  on_mesh({{"a", 3}}, [](const DeviceMesh& mesh) {
    const int64_t sizes[] = {2, 1, 2};
    const Tensor local = numbers({sizes[mesh.rank()]});
    EXPECT_EQ(error_of([&] {
                from_local(local, mesh, {Shard{0, {2, 2, 1}}});
              }),
              "from_local: part of rank 1 is [1], expected [2] of [5] laid out as mesh(a=3)[S(0)]");
    EXPECT_EQ(error_of([&] {
                from_local(local, mesh, {Shard{0, {3, 1, 1}}});
              }),
              "from_local: part of rank 0 is [2], expected [3] of [5] laid out as "
              "mesh(a=3)[S(0: 3+1+1)]");
    EXPECT_EQ(error_of([&] { from_local(local, mesh, {Replicate()}); }),
              "from_local: part of rank 1 is [1], expected [2] of [2] laid out as mesh(a=3)[R]");
    EXPECT_EQ(error_of([&] {
                from_local(local, mesh, {Shard{0, {2, 2}}});
              }),
              "sharding: number of sizes of S(0: 2+2) is 2, expected 3");
    EXPECT_EQ(error_of([&] {
                distribute(numbers({4}), mesh, {Shard{0, {2, 2, 1}}});
              }),
              "distribute: sum of the sizes of S(0: 2+2+1) is 5, expected 4, the size of dim 0 of "
              "[4]");
    EXPECT_EQ(error_of([&] {
                Placement(Shard{0, {2, -1}});
              }),
              "placement: a size of Shard(0) must be at least 0, got -1");
    Shape shape = mesh.rank() == 2 ? Shape{2, 1} : Shape{2};
    EXPECT_EQ(error_of([&] { from_local(numbers(shape), mesh, {Shard(0)}); }),
              "from_local: part of rank 2 is [2, 1], expected 1 dims, as [2] of rank 0");
  });
}

TEST(Messages, OfInPlaceOps) {
  on_mesh({{"a", 2}}, [](const DeviceMesh& mesh) {
    Tensor p = numbers({4, 2}, 1, Sharding(mesh, {Shard(0)}));
    Tensor m = numbers({4, 2}, 1, Sharding(mesh, {Shard(1)}));
    Tensor one = full({}, 1, {.sharding = Sharding(mesh, {})});
    EXPECT_EQ(error_of([&] { sgd_(p, m, p, one, 0.1, 0.9, 0); }),
              "sgd_momentum_: layouts of its operands are operand 0 mesh(a=2)[S(0)], operand 1 "
              "mesh(a=2)[S(1)], expected ones that it can change in place");
  });
  Op doubled({.name = "double_", .rule = "... ->", .forward = [](const Call&) {}, .writes = {0}});
  Tensor x = numbers({2});
  x.set_requires_grad();
  EXPECT_EQ(
      error_of([&] { doubled.call({x}); }),
      "double_: operand 0 requires a gradient, expected none of what changes in place; use NoGrad");
}

static OpSpec copying(const char* name) {
  return {.name = name, .rule = "... -> ...", .forward = [](const Call&) {}};
}

TEST(Messages, OfOpsThatAreWrong) {
  auto spec = [](auto change) {
    OpSpec wrong = copying("mine");
    change(wrong);
    return [wrong] { Op op(wrong); };
  };
  expect_refusals({
      {spec([](OpSpec& s) { s.name = ""; }), "op: name is empty, expected one"},
      {spec([](OpSpec& s) { s.rule = {}; }),
       "mine: number of rules is 0, expected one of rule, rule_of and rule_text"},
      {spec([](OpSpec& s) { s.rule_text = "a -> a"; }),
       "mine: number of rules is 2, expected one of rule, rule_of and rule_text"},
      {spec([](OpSpec& s) { s.forward = {}; }),
       "mine: forward and view are missing, expected one of them"},
      {spec([](OpSpec& s) { s.staged_over = {"v"}; }),
       "mine: staged_over names 1 factors, expected some with stages or across, none without"},
      {spec([](OpSpec& s) {
         s.staged_over = {"v"};
         s.stages = {{.result = "...", .reduce = ReduceOp::sum, .run = {}}};
       }),
       "mine: stages reduce over v, expected a factor of the rule"},
      {spec([](OpSpec& s) {
         s.rule = {};
         s.rule_text = "a -> b";
       }),
       "mine: the rule is \"a -> b\", expected operands -> results: a result names an unknown "
       "factor"},
  });
}

TEST(Messages, OfCallsOfUsersOps) {
  Tensor a = numbers({2});
  OpSpec many = copying("many");
  many.rule = "a -> a, a, a, a, a";
  OpSpec bad = copying("bad");
  bad.rule = {};
  bad.rule_of = [](const Attributes&, std::span<const Shape>) { return Rule{"a -> b"}; };
  expect_refusals({
      {[&] {
         Op(copying("mine"))({a, a});
       },
       "mine: number of operands is 2, expected 1, those of the rule \"... -> ...\""},
      {[&] { Op(copying("mine"))({kNone}); }, "mine: no tensor is given, expected one"},
      {[&] { Op(copying("mine")).call(Tensors(17, a)); },
       "mine: it has 17 operands, expected at most 16"},
      {[&] { Op(copying("mine")).into(numbers({3}), false, Tensors{a}); },
       "mine: the destination is [3], expected [2], the shape of the result"},
      {[&] { Op(many).call({a}); }, "many: number of results is 5, expected at most 4"},
      {[&] { Op(bad).call({a}); },
       "bad: the rule is \"a -> b\", expected operands -> results: a result names an unknown "
       "factor"},
  });
}

TEST(Messages, OfBackward) {
  Tensor x = numbers({2}), y = numbers({2}), gradient = ones({2});
  x.set_requires_grad();
  auto through = [&](OpSpec spec) { return Op(std::move(spec))({x}); };
  OpSpec plain = copying("plain");
  OpSpec greedy = copying("greedy");
  greedy.backward = [](const Grad& g) { g.give(0, g.in(0)); };
  greedy.saves_in = std::vector<int>{};
  auto recorded = [&](BackwardFunction function) {
    return record("cut", {x}, {y}, std::move(function))[0];
  };
  expect_refusals({
      {[&] { backward({y}, {gradient}); },
       "backward: root 0 [2] does not require a gradient, expected one that does"},
      {[&] { exp(x).backward(); },
       "backward: number of elements of root 0 is 2, expected 1, or its gradient"},
      {[&] { backward({exp(x)}, {ones({3})}); },
       "backward: the gradient is [3], expected [2], the shape of its tensor"},
      {[&] {
         backward({exp(x)}, {gradient, gradient});
       },
       "backward: number of gradients is 2, expected at most 1, one a root"},
      {[&] { backward({kNone}, {gradient}); }, "backward: no tensor is given, expected one"},
      {[&] { backward({through(plain)}, {gradient}); },
       "plain: it has no backward, expected one where a gradient is wanted; differentiable = false "
       "stops gradients, and a definition states them"},
      {[&] { backward({through(greedy)}, {gradient}); },
       "greedy: gradient reads operand 0, expected one that the op saves"},
      {[&] { backward({recorded([](const Tensors&) { return Tensors(); })}, {gradient}); },
       "cut: number of gradients of its backward is 0, expected 1, one an input"},
      {[&] { backward({recorded([](const Tensors&) { return Tensors{ones({3})}; })}, {gradient}); },
       "backward: the gradient is [3], expected [2], the shape of its tensor"},
      {[&] {
         Tensor twice = recorded([](const Tensors& gradients) { return gradients; });
         backward({twice}, {gradient});
         backward({twice}, {gradient});
       },
       "cut: backward ran before, expected one backward; retain_graph keeps it"},
  });
  on_one_rank([&](const DeviceMesh&, Tensor z) {
    z.set_requires_grad();
    EXPECT_EQ(
        error_of([&] {
          backward({exp(z)}, {ones({4, 2})});
        }),
        "backward: the gradient of a tensor [4, 2] has no mesh, expected the mesh of the tensor");
    Tensor w = numbers({4, 2});
    w.set_requires_grad();
    EXPECT_EQ(
        error_of([&] { backward({exp(w)}, {z.detach()}); }),
        "backward: the gradient of a tensor [4, 2] is laid out over a mesh, expected none, as "
        "the tensor");
  });
}

}  // namespace weft
