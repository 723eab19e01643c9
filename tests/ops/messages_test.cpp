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
      {[&] { add(a, kNone); }, "add: no tensor"},
      {[&] { add(kNone, 1.0); }, "add_number: no tensor"},
      {[&] { div(kNone, a); }, "div: no tensor"},
      {[&] { div(kNone, 2.0); }, "div: no tensor"},
      {[&] { exp(kNone); }, "exp: no tensor"},
      {[&] { neg(kNone); }, "neg: no tensor"},
      {[&] { cast(kNone, f32); }, "cast: no tensor"},
      {[&] { where(kNone, a, a); }, "where: no tensor"},
      {[&] { where(a, a, a); }, "where: the condition [2, 3] is f32, not bool"},
      {[&] { add(a, b); }, "add: factor ...0 is 2 in operand 0 [2, 3] but 4 in operand 1 [4, 3]"},
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
      {[&] { reshape(kNone, {2}); }, "reshape: no tensor"},
      {[&] {
         reshape(a, {-1, 2});
       },
       "reshape: [-1, 2] has a negative size; sizes are never inferred"},
      {[&] { reshape(a, {4}); }, "reshape: [4] has 4 elements but the tensor [2, 3] has 6"},
      {[&] { squeeze(kNone, 0); }, "squeeze: no tensor"},
      {[&] { squeeze(a, 1); }, "squeeze: dim 1 of [2, 3] has 3 elements, not 1"},
      {[&] { squeeze(a, 2); }, "squeeze: dim 2 is not one of the 2 dims"},
      {[&] { unsqueeze(kNone, 0); }, "unsqueeze: no tensor"},
      {[&] { unsqueeze(a, 4); }, "unsqueeze: dim 4 is not one of the 3 dims"},
      {[&] { permute(kNone, {}); }, "permute: no tensor"},
      {[&] { permute(a, {0}); }, "permute: 1 dims are given for a tensor [2, 3] of 2"},
      {[&] {
         permute(a, {1, 1});
       },
       "permute: dim 1 is given twice"},
      {[&] { transpose(kNone, 0, 1); }, "transpose: no tensor"},
      {[&] { transpose(a, 0, 2); }, "transpose: dim 2 is not one of the 2 dims"},
      {[&] {
         numbers({2, 3, 4}).t();
       },
       "t: the tensor [2, 3, 4] is no matrix"},
      {[&] { slice(kNone, 0, 0, 1); }, "slice: no tensor"},
      {[&] { slice(a, 0, 0, 1, 0); }, "slice: step is 0; at least 1"},
      {[&] { slice(a, -3, 0, 1); }, "slice: dim -3 is not one of the 2 dims"},
      {[&] { pad(kNone, 0, 1, 1); }, "pad: no tensor"},
      {[&] { pad(a, 0, -1, 2); }, "pad: -1 before and 2 after; at least 0"},
      {[&] { expand(kNone, {2}); }, "expand: no tensor"},
      {[&] {
         expand(a, {4, 3});
       },
       "expand: [2, 3] does not broadcast to [4, 3]"},
      {[&] { expand(a, {3}); }, "expand: [2, 3] does not broadcast to [3]"},
      {[&] { cat({}, 0); }, "cat: no tensors"},
      {[&] {
         cat({a, kNone}, 0);
       },
       "cat: tensor 1 is none"},
      {[&] {
         cat({a, numbers({2, 4})}, 0);
       },
       "cat: tensor 0 is [2, 3] but tensor 1 [2, 4]; they may differ in dim 0 only"},
      {[&] {
         cat({a, numbers({3})}, 0);
       },
       "cat: tensor 0 is [2, 3] but tensor 1 [3]; they may differ in dim 0 only"},
  });
}

TEST(Messages, OfReductions) {
  Tensor a = numbers({2, 3});
  expect_refusals({
      {[&] { sum(kNone); }, "sum: no tensor"},
      {[&] {
         sum(a, {0, -2});
       },
       "sum: dim 0 of [2, 3] is given twice"},
      {[&] { mean(a, {2}); }, "mean: dim 2 is not one of the 2 dims"},
      {[&] {
         max(numbers({2, 0}), {1});
       },
       "max: dim 1 of [2, 0] has no elements"},
      {[&] { argmax(kNone, 0); }, "argmax: no tensor"},
      {[&] {
         argmax(numbers({2, 0}), 1);
       },
       "argmax: dim 1 of [2, 0] has no elements"},
      {[&] { argmax(a, 2); }, "argmax: dim 2 is not one of the 2 dims"},
      {[&] { logsumexp(kNone, 0); }, "logsumexp: no tensor"},
  });
}

TEST(Messages, OfProductsAndNetworks) {
  Tensor a = numbers({2, 3}), q = numbers({1, 2, 3, 4}), k = numbers({1, 2, 2, 4});
  Tensor ids = from_values(std::vector<double>{0, 7}, {2}, {.dtype = i64});
  expect_refusals({
      {[&] {
         matmul(a, numbers({4, 5}));
       },
       "matmul: factor k is 3 in operand 0 [2, 3] but 4 in operand 1 [4, 5]"},
      {[&] { matmul(a, numbers({3})); },
       "matmul: operand 1 [3] has 1 dims but the rule \"... m k, ... k n -> ... m n\" wants at "
       "least 2"},
      {[&] { linear(a, kNone); }, "linear: no tensor"},
      {[&] { linear(a, a, kNone); }, "linear: no tensor"},
      {[&] { softmax(kNone); }, "softmax: no tensor"},
      {[&] { log_softmax(kNone); }, "log_softmax: no tensor"},
      {[&] { cross_entropy_rows(kNone, ids); }, "cross_entropy: no tensor"},
      {[&] { cross_entropy_rows(a, kNone); }, "cross_entropy: no targets"},
      {[&] { cross_entropy_rows(a, numbers({2})); },
       "cross_entropy: dtype of the targets is f32, expected an integer one"},
      {[&] {
         cross_entropy_rows(numbers({3, 3}), ids);
       },
       "cross_entropy: targets [2] do not fit logits [3, 3], which want one for each row"},
      {[&] { cross_entropy_rows(a, ids); },
       "cross_entropy: target 7 is none of the 3 classes of logits [2, 3], nor -100"},
      {[&] { embedding(a, kNone); }, "embedding: no tensor"},
      {[&] { embedding(a, a); }, "embedding: dtype of the ids is f32, expected an integer one"},
      {[&] { embedding(a, ids); }, "embedding: id 7 is none of the 2 rows of the weight [2, 3]"},
      {[&] { rope(kNone); }, "rope: no tensor"},
      {[&] { rope(a); }, "rope: x [2, 3] is not [batch, sequence, heads, an even size]"},
      {[&] { rope(q, 0); }, "rope: theta 0 is not positive"},
      {[&] { swiglu(a, kNone); }, "swiglu: no tensor"},
      {[&] { swiglu(a, numbers({3})); }, "swiglu: the gate is [2, 3] but up is [3]"},
      {[&] { attention(q, k, kNone); }, "attention: no tensor"},
      {[&] { attention(q, a, a); },
       "attention: q [1, 2, 3, 4], k [2, 3] and v [2, 3] are not [batch, s, heads, d] and twice "
       "[batch, t, kv heads, d]"},
      {[&] { attention(q, k, k); },
       "attention: the 3 heads of q [1, 2, 3, 4] are no multiple of the 2 of k [1, 2, 2, 4]"},
      {[&] { dropout(kNone, 0.5); }, "dropout: no tensor"},
      {[&] { dropout(a, 1); }, "dropout: the probability 1 is not in [0, 1)"},
      {[&] { dropout(ids, 0.5); }, "dropout: x is i64; it must be floating"},
  });
}

TEST(Messages, OfUpdates) {
  Tensor a = numbers({2, 3}), one = full({}, 1), two = numbers({2});
  expect_refusals({
      {[&] { adamw_(a, two, a, a, one, {}); }, "adamw_: the parameter is [2, 3] but m is [2]"},
      {[&] { adamw_(a, a, kNone, a, one, {}); }, "adamw_: no tensor"},
      {[&] { adamw_(a, a, a, a, two, {}); }, "adamw_: the factor [2] is not one element"},
      {[&] { adamw_(a, a, a, a, one, {.step = 0}); }, "adamw_: step 0 is not counted from 1"},
      {[&] { sgd_(a, kNone, two, one, 0.1, 0, 0); },
       "sgd_: the parameter is [2, 3] but the gradient is [2]"},
      {[&] { sgd_(a, kNone, a, one, 0.1, 0.9, 0); }, "sgd_: momentum 0.9 needs a velocity"},
      {[&] { scale_(kNone, one); }, "scale_: no tensor"},
      {[&] { scale_(a, kNone); }, "scale_: no factor"},
      {[&] { add_scaled_(a, two, one); }, "add_scaled_: the parameter is [2, 3] but x is [2]"},
      {[&] { add_scaled_(a, a, two); }, "add_scaled_: the factor [2] is not one element"},
  });
}

TEST(Messages, OfFactories) {
  Tensor a = numbers({2, 3});
  expect_refusals({
      {[&] {
         empty({2, -1});
       },
       "empty: [2, -1] has a negative size"},
      {[&] {
         from_values(std::vector<double>{1, 2}, {3});
       },
       "from_values: 2 values for [3], which has 3"},
      {[&] { uniform({2}, 0, 1, {.dtype = i32}); },
       "uniform_: a tensor of i32; only floating dtypes"},
      {[&] { normal_(kNone, 0, 1); }, "normal_: no tensor"},
      {[&] { fill_(kNone, 0); }, "fill_: no tensor"},
      {[&] { copy_(a, kNone); }, "copy_: no tensor"},
      {[&] { copy_(a, numbers({2})); }, "copy_: [2] is copied to [2, 3]"},
      {[&] { tensor_in(a.storage(), 4, {3}, f32); },
       "tensor_in: [3] elements of f32 from element 4 on do not fit into 24 bytes"},
  });
  on_one_rank([&](const DeviceMesh& mesh, const Tensor& x) {
    expect_refusals({
        {[&] {
           copy_(x, numbers({4, 2}));
         },
         "copy_: one of the tensors [4, 2] is laid out over a mesh, the other is not"},
        {[&] { normal_(zeros({2}, {.sharding = Sharding(mesh, {Partial()})}), 0, 1); },
         "normal_: mesh(a=1)[P(sum)] is Partial: its parts are no random numbers of the whole's"},
    });
  });
}

TEST(Messages, OfTensors) {
  Tensor a = numbers({2, 3}), x = numbers({2});
  x.set_requires_grad();
  Tensor y = exp(x);
  expect_refusals({
      {[&] { a.item(); }, "item: number of elements is 6, expected 1"},
      {[&] { a.size(2); }, "size: dim 2 is not one of the 2 dims"},
      {[&] { y.set_requires_grad(); },
       "set_requires_grad: a tensor [2] is the result of an op; detach() it"},
      {[&] { from_values(std::vector<double>{1}, {1}, {.dtype = i64}).set_requires_grad(); },
       "set_requires_grad: a tensor of i64 has no gradient; only floating dtypes have"},
      {[&] { a.set_grad(a); }, "set_grad: a tensor [2, 3] is not a leaf that requires a gradient"},
      {[&] { a.redistribute({}); },
       "redistribute: the tensor [2, 3] is not laid out over a mesh; use distribute"},
      {[&] { explain(a, {}); }, "explain: the tensor [2, 3] is not laid out over a mesh"},
      {[&] { explain(kNone, {}); }, "explain: no tensor"},
      {[&] { kNone.full_tensor(); }, "full_tensor: no tensor"},
      {[&] { kNone.to_local(); }, "to_local: no tensor"},
      {[&] { kNone.to_vector<float>(); }, "to_vector: no tensor"},
      {[&] { kNone.backward(); }, "backward: no tensor"},
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
         "distribute: the tensor [4, 2] is laid out over mesh(a=1)[S(0)] already; use "
         "redistribute"},
        {[&] { distribute(local, mesh, {Partial()}); },
         "distribute: every rank holds the whole, which is no Partial; use from_local"},
        {[&] { distribute(local, DeviceMesh(), {}); }, "distribute: this rank is not in the mesh"},
        {[&] { distribute(kNone, mesh, {}); }, "distribute: no tensor"},
        {[&] { redistributed(local, x.sharding()); },
         "redistribute: from [4, 2] f32 to [4, 2] f32 mesh(a=1)[S(0)]; shape, dtype and mesh must "
         "be equal"},
        {[&] { redistributed(x, {}); },
         "redistribute: from [4, 2] f32 mesh(a=1)[S(0)] to [4, 2] f32; shape, dtype and mesh must "
         "be equal"},
        {[&] {
           from_local(local, mesh, {Shard(0)}, {5, 2});
         },
         "from_local: rank 0 holds [5, 2] elements of a tensor [5, 2] laid out as "
         "mesh(a=1)[S(0)], not [4, 2]"},
        {[&] {
           from_local(local, mesh, {Partial{ReduceOp::max}}, {4, 2});
         },
         "from_local: P(max) has no gradient; reduce it first"},
        {[&] { scatter(local, mesh, {}, 1); }, "scatter: root 1 is not one of the 1 ranks"},
        {[&] { scatter(kNone, mesh, {}); }, "scatter: root 0 gives no tensor of one device"},
        {[&] { scatter(local, mesh, {Partial()}); },
         "scatter: root's whole is no Partial; use from_local"},
        {[&] { scatter(local, DeviceMesh(), {}); }, "scatter: this rank is not in the mesh"},
        {[&] { one.item(); },
         "item: the element of a tensor laid out as mesh(a=1)[S(0)] is not whole on this rank; "
         "call full_tensor() first"},
        {[&] { whole.to_local(); },
         "to_local: the tensor [2] is mesh(a=1)[R], so the ranks' gradients may be equal or parts "
         "of a sum; say which: to_local({placements of the gradient})"},
        {[&] { x.to_local({Replicate()}); },
         "to_local: the gradient of mesh(a=1)[S(0)] is cut as it is, not mesh(a=1)[R]"},
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
              "from_local: rank 1 holds [1], expected [2], its part of [5] as "
              "mesh(a=3)[S(0: 2+2+1)]");
    EXPECT_EQ(error_of([&] { from_local(local, mesh, {Replicate()}); }),
              "from_local: rank 1 holds [1], expected [2], its part of [2] as mesh(a=3)[R]");
    EXPECT_EQ(error_of([&] {
                from_local(local, mesh, {Shard{0, {2, 2}}});
              }),
              "sharding: number of sizes of S(0: 2+2) is 2, expected 3");
    EXPECT_EQ(error_of([&] {
                distribute(numbers({4}), mesh, {Shard{0, {2, 2, 1}}});
              }),
              "layout: the explicit sizes of dim 0 in mesh(a=3)[S(0: 2+2+1)] add up to 5, expected "
              "4, as in the shape [4]");
    EXPECT_EQ(error_of([&] {
                Placement(Shard{0, {2, -1}});
              }),
              "placement: a size of Shard(0) is -1, expected >= 0");
    Shape shape = mesh.rank() == 2 ? Shape{2, 1} : Shape{2};
    EXPECT_EQ(error_of([&] { from_local(numbers(shape), mesh, {Shard(0)}); }),
              "from_local: rank 0 holds [2] but rank 2 [2, 1]");
  });
}

TEST(Messages, OfInPlaceOps) {
  on_mesh({{"a", 2}}, [](const DeviceMesh& mesh) {
    Tensor p = numbers({4, 2}, 1, Sharding(mesh, {Shard(0)}));
    Tensor m = numbers({4, 2}, 1, Sharding(mesh, {Shard(1)}));
    Tensor one = full({}, 1, {.sharding = Sharding(mesh, {})});
    EXPECT_EQ(error_of([&] { sgd_(p, m, p, one, 0.1, 0.9, 0); }),
              "sgd_momentum_: no layout is allowed for its operands in place: operand 0 "
              "mesh(a=2)[S(0)], operand 1 mesh(a=2)[S(1)]");
  });
  Op doubled({.name = "double_", .rule = "... ->", .forward = [](const Call&) {}, .writes = {0}});
  Tensor x = numbers({2});
  x.set_requires_grad();
  EXPECT_EQ(error_of([&] { doubled.call({x}); }),
            "double_: operand 0 is changed in place but requires a gradient; use NoGrad");
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
      {spec([](OpSpec& s) { s.name = ""; }), "op: it has no name"},
      {spec([](OpSpec& s) { s.rule = {}; }),
       "mine: exactly one of rule, rule_of and rule_text is given, not 0"},
      {spec([](OpSpec& s) { s.rule_text = "a -> a"; }),
       "mine: exactly one of rule, rule_of and rule_text is given, not 2"},
      {spec([](OpSpec& s) { s.forward = {}; }), "mine: it has neither forward nor view"},
      {spec([](OpSpec& s) { s.staged_over = {"v"}; }),
       "mine: staged_over names 1 factors, expected some with stages or across, none without"},
      {spec([](OpSpec& s) {
         s.staged_over = {"v"};
         s.stages = {{.result = "...", .reduce = ReduceOp::sum, .run = {}}};
       }),
       "mine: stages reduce over v, which the rule has not"},
      {spec([](OpSpec& s) {
         s.rule = {};
         s.rule_text = "a -> b";
       }),
       "mine: the rule \"a -> b\" is none: a result names an unknown factor"},
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
       "mine: 2 operands but the rule \"... -> ...\" has 1"},
      {[&] { Op(copying("mine"))({kNone}); }, "mine: no tensor"},
      {[&] { Op(copying("mine")).call(Tensors(17, a)); }, "mine: 17 operands; at most 16"},
      {[&] { Op(copying("mine")).into(numbers({3}), false, Tensors{a}); },
       "mine: the result is [2] but its destination [3]"},
      {[&] { Op(many).call({a}); }, "many: 5 results; at most 4"},
      {[&] { Op(bad).call({a}); },
       "bad: the rule \"a -> b\" is none: a result names an unknown factor"},
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
       "backward: root 0 [2] depends on nothing that requires a gradient"},
      {[&] { exp(x).backward(); },
       "backward: root 0 [2] has more than one element; give its gradient"},
      {[&] { backward({exp(x)}, {ones({3})}); }, "backward: the gradient of a tensor [2] is [3]"},
      {[&] {
         backward({exp(x)}, {gradient, gradient});
       },
       "backward: 2 gradients for 1 roots"},
      {[&] { backward({kNone}, {gradient}); }, "backward: no tensor"},
      {[&] { backward({through(plain)}, {gradient}); },
       "plain: it has no backward, expected one where a gradient is wanted; differentiable = false "
       "stops gradients"},
      {[&] { backward({through(greedy)}, {gradient}); },
       "greedy: its gradient reads operand 0, which it does not save"},
      {[&] { backward({recorded([](const Tensors&) { return Tensors(); })}, {gradient}); },
       "cut: its backward gives 0 gradients for 1 inputs"},
      {[&] { backward({recorded([](const Tensors&) { return Tensors{ones({3})}; })}, {gradient}); },
       "backward: the gradient of a tensor [2] is [3]"},
      {[&] {
         Tensor twice = recorded([](const Tensors& gradients) { return gradients; });
         backward({twice}, {gradient});
         backward({twice}, {gradient});
       },
       "cut: backward ran through it before"},
  });
  on_one_rank([&](const DeviceMesh&, Tensor z) {
    z.set_requires_grad();
    EXPECT_EQ(error_of([&] {
                backward({exp(z)}, {ones({4, 2})});
              }),
              "backward: the gradient of a tensor [4, 2] is not laid out over the mesh as the "
              "tensor is");
    Tensor w = numbers({4, 2});
    w.set_requires_grad();
    EXPECT_EQ(error_of([&] { backward({exp(w)}, {z.detach()}); }),
              "backward: the gradient of a tensor [4, 2] is laid out over a mesh as the tensor is "
              "not");
  });
}

}  // namespace weft
