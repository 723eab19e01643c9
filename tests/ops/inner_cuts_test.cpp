// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "ops/engine/tensor_body.h"
#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/derivatives.h"
#include "weft/error.h"

namespace weft {

// Reshapes of tensors whose inner dims are cut: what moves nothing, and what does, has the values
// of one device.

namespace {

/// A mesh and a layout of the dims [b, s, d].
struct Case {
  const char* what;
  std::vector<MeshAxis> axes;
  Placements placements;
  int64_t b, s;
};

const Case kCases[] = {
    {"[4]", {{"a", 4}}, {Shard(1)}, 2, 8},
    {"2x2, both axes on one dim", {{"a", 2}, {"b", 2}}, {Shard(1), Shard(1)}, 3, 8},
    {"2x2, the other order",
     {{"a", 2}, {"b", 2}},
     Placements{Shard(1), Shard(1)}.cut_in_order(1, {"b", "a"}),
     3,
     5},
    {"2x2, an axis on each dim", {{"a", 2}, {"b", 2}}, {Shard(0), Shard(1)}, 5, 7},
    {"3 ranks, uneven", {{"a", 3}}, {Shard(1)}, 2, 7},
    {"3 ranks, explicit sizes", {{"a", 3}}, {Shard{1, {4, 0, 3}}}, 2, 7},
    {"the last rank empty", {{"a", 4}}, {Shard(1)}, 2, 5},
    {"one rank", {{"a", 1}}, {Shard(1)}, 2, 5},
    {"2x1x2", {{"a", 2}, {"b", 1}, {"c", 2}}, {Shard(1), Shard(0), Shard(1)}, 3, 9},
};

constexpr int64_t kWidth = 6, kHidden = 5;

/// Everything that a program makes: its result, and the gradients of its operands.
struct Made {
  Tensor result;
  Tensors gradients;
};

using Body = std::function<Tensor(const Tensors&)>;

Made run(const Body& body, const Tensors& operands) {
  for (const Tensor& operand : operands) Tensor(operand).set_requires_grad();
  Made made{body(operands), {}};
  backward({made.result}, {ones_like(made.result.detach())});
  for (const Tensor& operand : operands) made.gradients.push_back(operand.grad());
  return made;
}

/// x [b, s, d], weights [h, d] and [d, h].
Tensors operands_of(const Case& each, const DeviceMesh& mesh) {
  const Sharding cut = mesh ? Sharding(mesh, each.placements, 3) : Sharding();
  const Sharding whole = mesh ? Sharding(mesh, {}) : Sharding();
  return {numbers({each.b, each.s, kWidth}, 1, cut, f64), numbers({kHidden, kWidth}, 2, whole, f64),
          numbers({kWidth, kHidden}, 3, whole, f64)};
}

Tensor feed_forward(const Tensors& t) {
  const Shape shape = t[0].shape();
  const Tensor rows = reshape(t[0], {shape[0] * shape[1], shape[2]});
  return reshape(linear(gelu(linear(rows, t[1])), t[2]), shape);
}

}  // namespace

/// Rows of [b, s] stay where they are, forward and backward; the gradients of weights are sums over
/// ranks as they are without a reshape.
TEST(InnerCuts, FeedForwardOfFlatRowsMovesNothing) {
  for (const Case& each : kCases) {
    const Made expected = run(feed_forward, operands_of(each, {}));
    on_mesh(each.axes, [&](const DeviceMesh& mesh) {
      const Tensors operands = operands_of(each, mesh);
      Tensors inputs = {operands[0].detach(), operands[1].detach(), operands[2].detach()};
      Tensor x = inputs[0];
      x.set_requires_grad();
      const int64_t bytes = bytes_received(mesh, [&] {
        const TrafficScope scope(Traffic::forbid);
        const Tensor y = feed_forward(inputs);
        EXPECT_EQ(y.sharding(), x.sharding()) << each.what;
        backward({y}, {ones_like(y.detach())});
        EXPECT_EQ(x.grad().sharding(), x.sharding()) << each.what;
      });
      EXPECT_EQ(bytes, 0) << each.what;
      expect_values(whole_values(x.grad()), whole_values(expected.gradients[0]), 1e-12);
      const Made made = run(feed_forward, operands);
      expect_values(whole_values(made.result.detach()), whole_values(expected.result.detach()),
                    1e-12);
      for (size_t i = 0; i < made.gradients.size(); ++i) {
        expect_values(whole_values(made.gradients[i]), whole_values(expected.gradients[i]), 1e-12);
      }
    });
  }
}

/// A body that moves nothing in any of the layouts; its result has the values of one device.
static void expect_free(const char* what, const Body& body) {
  for (const Case& each : kCases) {
    const Made expected = run(body, operands_of(each, {}));
    on_mesh(each.axes, [&](const DeviceMesh& mesh) {
      const Tensors operands = operands_of(each, mesh);
      const std::string name = concat(what, " on ", each.what);
      Made made;
      const int64_t bytes = bytes_received(mesh, [&] {
        const TrafficScope scope(Traffic::free_only);
        try {
          made = run(body, {operands[0]});
        } catch (const std::exception& error) {
          ADD_FAILURE() << name << ": " << error.what();
        }
      });
      if (!made.result) return;
      EXPECT_EQ(bytes, 0) << name;
      expect_values(whole_values(made.result.detach()), whole_values(expected.result.detach()),
                    1e-12);
      expect_values(whole_values(made.gradients[0]), whole_values(expected.gradients[0]), 1e-12);
    });
  }
}

static Tensor flat(const Tensor& x) { return reshape(x, {x.size(0) * x.size(1), x.size(2)}); }

TEST(InnerCuts, PassThroughOpsThatIgnorePositions) {
  expect_free("elementwise", [](const Tensors& t) { return tanh(flat(t[0]) * 0.5) + flat(t[0]); });
  expect_free("transpose", [](const Tensors& t) {
    const Tensor turned = transpose(flat(t[0]), 0, 1);
    return reshape(tanh(turned), {kWidth, t[0].size(0), t[0].size(1)});
  });
  expect_free("sum of each row", [](const Tensors& t) { return sum(flat(t[0]), {1}); });
  expect_free("softmax of each row", [](const Tensors& t) { return softmax(flat(t[0])); });
  expect_free("slices of each row", [](const Tensors& t) {
    const Tensor rows = flat(t[0]);
    return slice(rows, 1, 0, 2) * slice(rows, 1, 4, 6) + slice(rows, 1, 2, 4);
  });
  expect_free("cat of rows' slices", [](const Tensors& t) {
    return cat({flat(t[0]), flat(t[0]) * 2.0}, 1);
  });
  expect_free("dropout", [](const Tensors& t) {
    manual_seed(3);
    return reshape(dropout(flat(t[0]), 0.4), t[0].shape());
  });
  expect_free("split of the columns", [](const Tensors& t) {
    return reshape(tanh(flat(t[0])), {t[0].size(0), t[0].size(1), 2, 3});
  });
  expect_free("flat altogether", [](const Tensors& t) {
    return reshape(tanh(reshape(t[0], {t[0].numel()})), t[0].shape());
  });
}

/// Ops that read positions of the merged dim, or have no layout for the result, move data.
TEST(InnerCuts, MoveWherePositionsMatter) {
  const std::pair<const char*, Body> bodies[] = {
      {"slice of rows", [](const Tensors& t) { return slice(flat(t[0]), 0, 1, 6, 2); }},
      {"cat of rows",
       [](const Tensors& t) {
         return cat({flat(t[0]), flat(t[0])}, 0);
       }},
      {"running sums", [](const Tensors& t) { return cumulative_sum(flat(t[0]), 0); }},
      {"flip", [](const Tensors& t) { return flip(flat(t[0])); }},
      {"triangle", [](const Tensors& t) { return tril(flat(t[0]), 1); }},
      {"sum of all rows", [](const Tensors& t) { return sum(tanh(flat(t[0])), {0}); }},
      {"greatest of all rows", [](const Tensors& t) { return max(flat(t[0]), {0}); }},
      {"softmax of columns",
       [](const Tensors& t) { return square(softmax(transpose(flat(t[0]), 0, 1))); }},
      {"rows by index",
       [](const Tensors& t) {
         Tensor at = from_values(std::vector<double>{5, 0, 3, 3}, {4}, {.dtype = DType::i64});
         if (t[0].is_sharded()) at = distribute(at, t[0].sharding().mesh(), {});
         return take(flat(t[0]), at, 0);
       }},
      {"sorted rows", [](const Tensors& t) { return sort(tanh(flat(t[0])), 0); }},
      {"other factors",
       [](const Tensors& t) {
         return reshape(flat(t[0]), {t[0].size(1), t[0].size(0), t[0].size(2)}) * 2.0;
       }},
      {"product over rows",
       [](const Tensors& t) { return matmul(transpose(flat(t[0]), 0, 1), flat(t[0])); }},
  };
  for (const auto& [what, body] : bodies) {
    for (const Case& each : kCases) {
      const Made expected = run(body, {operands_of(each, {})[0]});
      on_mesh(each.axes, [&, &what = what, &body = body](const DeviceMesh& mesh) {
        const Made made = run(body, {operands_of(each, mesh)[0]});
        SCOPED_TRACE(concat(what, " on ", each.what));
        expect_values(whole_values(made.result.detach()), whole_values(expected.result.detach()),
                      1e-12);
        expect_values(whole_values(made.gradients[0]), whole_values(expected.gradients[0]), 1e-12);
      });
    }
  }
}

}  // namespace weft
