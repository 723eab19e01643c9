// SPDX-License-Identifier: Apache-2.0
// Rows by expert, on one device and over meshes whose axes cut tokens, experts or both.
#include "weft/ops/experts.h"
#include "tests/support/scratch.h"

#include <random>

#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/op_log.h"
#include "weft/ops.h"

namespace weft {

namespace {

/// Tokens, their choices, and stacked matrices of experts.
struct Case {
  int64_t tokens = 0, experts = 0, choices = 1, d = 3, n = 2;
  Array x = {}, weights = {}, scales = {}, ids = {};
};

enum class Kind { uniform, single, skewed };

Case some_case(std::mt19937& random) {
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<size_t>(n));
  };
  const auto seed = [&] { return static_cast<unsigned>(random()); };
  Case c;
  c.tokens = below(13), c.experts = 1 + below(6), c.n = 2 + below(2);
  c.choices = 1 + below(std::min<int64_t>(3, c.experts));
  c.x = random_array({c.tokens, c.d}, -2, 2, DType::f64, seed());
  c.weights = random_array({c.experts, c.d, c.n}, -2, 2, DType::f64, seed());
  c.scales = random_array({c.tokens, c.choices}, -1, 1, DType::f64, seed());
  const auto kind = static_cast<Kind>(below(3));
  const int64_t favourite = below(c.experts);
  c.ids = {{c.tokens, c.choices}, {}, DType::i64};
  for (int64_t i = 0; i < c.tokens * c.choices; ++i) {
    const bool is_favourite = kind == Kind::single || (kind == Kind::skewed && below(4) > 0);
    c.ids.values.push_back(static_cast<double>(is_favourite ? favourite : below(c.experts)));
  }
  return c;
}

/// sum over choices and experts of scale * (id is the expert) * x weights[expert], on one device.
Tensor dense(const Case& c, const Tensor& x, const Tensor& weights, const Tensor& scales) {
  const Tensor ids = c.ids.on();
  Tensor y = matmul(zeros({c.tokens, c.d}, {.dtype = DType::f64}), weights[0]);
  for (int64_t e = 0; e < c.experts; ++e) {
    const Tensor scale = sum(mul(scales, cast(equal(ids, e), DType::f64)), {1}, true);
    y = add(y, mul(scale, matmul(x, weights[e])));
  }
  return y;
}

Tensor by_rows(const Tensor& ids, const Tensor& x, const Tensor& weights, const Tensor& scales) {
  const ExpertRows rows = rows_by_expert(ids, weights);
  EXPECT_EQ(rows.dropped, 0);
  const Tensor sent = dispatch_rows(x, rows);
  const Tensor y = weights.size(2) % 2 == 0
                       ? grouped_matmul(sent, weights, rows.counts)
                       : grouped_linear(sent, transpose(weights, 1, 2), rows.counts);
  return combine_rows(y, rows, scales);
}

struct Setting {
  std::vector<MeshAxis> axes;
  Placements tokens, weights;
};

std::vector<Setting> settings() {
  const Placements all = {{"a", Shard(0)}, {"ep", Shard(0)}}, ep = {{"ep", Shard(0)}};
  return {
      {{{"ep", 1}}, ep, ep},
      {{{"ep", 2}}, ep, ep},
      {{{"ep", 3}}, ep, ep},
      {{{"ep", 4}}, ep, ep},
      {{{"ep", 3}}, {}, ep},
      {{{"ep", 3}}, ep, {}},
      {{{"a", 2}, {"ep", 2}}, all, ep},
      {{{"a", 2}, {"ep", 2}}, {{"a", Shard(0)}}, ep},
      {{{"ep", 2}, {"a", 2}}, all, ep},
      {{{"a", 2}, {"ep", 2}}, all, all},
      {{{"a", 3}, {"ep", 2}}, all, ep},
      {{{"a", 2}, {"ep", 2}}, ep, {{"ep", Shard(0)}, {"a", Shard(1)}}},
      {{{"a", 2}, {"ep", 2}}, ep, {{"ep", Shard(0)}, {"a", Shard(2)}}},
  };
}

/// Compares one routing on a mesh with the dense computation.
void expect_dense(const Case& c, const DeviceMesh& mesh, const Setting& setting,
                  const std::string& what) {
  const auto own = [&](const Array& array, const Placements& placements) {
    return array.on(Sharding(mesh, placements)).set_requires_grad();
  };
  const Tensor x0 = c.x.on().set_requires_grad(), w0 = c.weights.on().set_requires_grad(),
               s0 = c.scales.on().set_requires_grad();
  const Tensor x = own(c.x, setting.tokens), w = own(c.weights, setting.weights),
               s = own(c.scales, setting.tokens);
  const Tensor expected = dense(c, x0, w0, s0);
  const Tensor y = by_rows(c.ids.on(Sharding(mesh, setting.tokens)), x, w, s);
  expect_close(whole(y), whole(expected), 1e-12, what + " y");
  weighted_sum({expected}, {}).backward();
  weighted_sum({y}, mesh).backward();
  expect_close(whole(x.grad()), whole(x0.grad()), 1e-12, what + " x");
  expect_close(whole(w.grad()), whole(w0.grad()), 1e-12, what + " weights");
  expect_close(whole(s.grad()), whole(s0.grad()), 1e-12, what + " scales");
}

}  // namespace

TEST(Experts, RandomRoutingsEqualADenseComputation) {
  constexpr unsigned kRoutings = 40;
  unsigned number = 0;
  for (const Setting& setting : settings()) {
    const unsigned first = kRoutings * number++;
    on_mesh(setting.axes, [&](const DeviceMesh& mesh) {
      for (unsigned seed = first; seed < first + kRoutings; ++seed) {
        std::mt19937 random(seed);
        expect_dense(some_case(random), mesh, setting,
                     "mesh " + std::to_string(number) + " seed " + std::to_string(seed));
      }
    });
  }
}

TEST(Experts, OnOneDeviceEqualADenseComputation) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const Case c = some_case(random);
    const Tensor y = by_rows(c.ids.on(), c.x.on(), c.weights.on(), c.scales.on());
    expect_close(whole(y), whole(dense(c, c.x.on(), c.weights.on(), c.scales.on())), 1e-12, "y");
  }
}

/// The tokens and experts that rank (a, ep) of a 2 x 2 mesh has, of tokens cut over both axes
/// and experts cut over ep.
struct OwnPart {
  OwnPart(const DeviceMesh& mesh, const Array& ids, int64_t split)
      : ids_(ids), split_(split), a_(mesh.coordinate(0)), e_(mesh.coordinate(1)) {}

  /// Tokens of others that this rank's experts compute, or own ones that others' experts compute.
  int64_t tokens(bool of_others) const {
    const int64_t group = ids_.shape[0] / 2, part = group / 2;
    int64_t count = 0;
    for (int64_t token = group * a_; token < group * (a_ + 1); ++token) {
      const bool is_own = (token - group * a_) / part == e_;
      if (is_own == of_others) continue;
      count += is_chosen(token, of_others ? e_ : 1 - e_) ? 1 : 0;
    }
    return count;
  }

 private:
  bool is_chosen(int64_t token, int64_t part) const {
    for (int64_t choice = 0; choice < ids_.shape[1]; ++choice) {
      const double id = ids_.values[static_cast<size_t>(token * ids_.shape[1] + choice)];
      if ((id >= static_cast<double>(split_)) == (part == 1)) return true;
    }
    return false;
  }

  const Array& ids_;
  /// The first expert of the second part.
  int64_t split_, a_, e_;
};

/// Each rank receives each token that its experts compute once, a sum for each own token of each
/// rank that computes it, and the same in backward. The products move nothing.
TEST(Experts, MoveEachTokenOnce) {
  const Placements both = {{"a", Shard(0)}, {"ep", Shard(0)}}, ep = {{"ep", Shard(0)}};
  on_mesh({{"a", 2}, {"ep", 2}}, [&](const DeviceMesh& mesh) {
    const int64_t tokens = 16, experts = 5, d = 7, n = 3, k = 2, f32_bytes = 4, key = 8;
    const Sharding cut(mesh, both);
    const Array ids = random_array({tokens, k}, 0, 5, DType::i64, 3);
    const OwnPart part(mesh, ids, 3);
    const int64_t missing = part.tokens(true), computed_elsewhere = part.tokens(false);
    const Tensor x = random_array({tokens, d}, -1, 1).on(cut).set_requires_grad();
    const Tensor w = random_array({experts, d, n}, -1, 1).on(Sharding(mesh, ep));
    const Tensor scales = random_array({tokens, k}, -1, 1).on(cut);
    const ExpertRows rows = rows_by_expert(ids.on(cut), w);
    Tensor sent, product, y;
    EXPECT_EQ(bytes_received(mesh, [&] { sent = dispatch_rows(x, rows); }),
              missing * d * f32_bytes);
    EXPECT_EQ(bytes_received(mesh, [&] { product = grouped_matmul(sent, w, rows.counts); }), 0);
    EXPECT_EQ(product.sharding(), sent.sharding());
    const int64_t weights = missing * k * f32_bytes;
    EXPECT_EQ(bytes_received(mesh, [&] { y = combine_rows(product, rows, scales); }),
              weights + computed_elsewhere * (n * f32_bytes + key));
    const Tensor dy = random_array({tokens, n}, -1, 1).on(cut);
    EXPECT_EQ(bytes_received(mesh, [&] { backward({y}, {dy}); }),
              missing * n * f32_bytes + computed_elsewhere * (d * f32_bytes + key));
  });
}

/// Each token's two experts of four: 0 and 2 for even tokens, 1 and 3 for odd ones.
static Array alternating_ids(int64_t tokens) {
  Array ids{{tokens, 2}, {}, DType::i64};
  for (int64_t t = 0; t < tokens; ++t) {
    ids.values.push_back(static_cast<double>(t % 2));
    ids.values.push_back(static_cast<double>(2 + t % 2));
  }
  return ids;
}

/// Moving halves of all tokens would be fewer bytes here, but products of all rows follow.
TEST(Experts, KeepTokensWhole) {
  on_mesh({{"ep", 2}}, [&](const DeviceMesh& mesh) {
    const int64_t tokens = 8, d = 6;
    const Sharding cut(mesh, {{"ep", Shard(0)}});
    const Array ids = alternating_ids(tokens);
    const Tensor x = random_array({tokens, d}, -1, 1).on(cut).set_requires_grad();
    const Tensor w = random_array({4, d, 4}, -1, 1).on(cut).set_requires_grad();
    const Tensor scales = random_array({tokens, 2}, -1, 1).on(cut).set_requires_grad();
    const ExpertRows rows = rows_by_expert(ids.on(cut), w);
    const Tensor sent = dispatch_rows(x, rows);
    EXPECT_EQ(sent.sharding(), rows.tokens.sharding());
    const Tensor y = combine_rows(grouped_matmul(sent, w, rows.counts), rows, scales);
    EXPECT_EQ(y.sharding(), x.sharding());
    sum(mul(y, y)).backward();
    expect_placements(w.grad(), {Shard(0)});
  });
}

/// Even rows would be fewer bytes for the rank with most of them, but not those of its experts.
TEST(Experts, KeepUnevenRowsAtTheirExperts) {
  on_mesh({{"ep", 2}}, [&](const DeviceMesh& mesh) {
    const int64_t tokens = 512, d = 256;
    const Sharding cut(mesh, {{"ep", Shard(0)}});
    Array ids{{tokens, 1}, {}, DType::i64};
    for (int64_t t = 0; t < tokens; ++t) ids.values.push_back(t % 16 == 0 ? 3.0 : 0.0);
    const Tensor x = zeros({tokens, d}, {.sharding = cut});
    const Tensor w = zeros({4, d, 2}, {.sharding = cut});
    const ExpertRows rows = rows_by_expert(ids.on(cut), w);
    const Tensor sent = dispatch_rows(x, rows);
    EXPECT_EQ(sent.sharding(), rows.tokens.sharding());
    EXPECT_EQ(grouped_matmul(sent, w, rows.counts).sharding(), sent.sharding());
  });
}

/// A routing without memory plans what an even routing moves, but for the keys.
TEST(Experts, MoveWhatIsPlanned) {
  on_mesh({{"ep", 2}}, [&](const DeviceMesh& mesh) {
    const int64_t tokens = 8, d = 6;
    const Sharding cut(mesh, {{"ep", Shard(0)}});
    const Array ids = alternating_ids(tokens);
    const auto moved = [&](Device device) {
      const auto made = [&](const Shape& shape) {
        return empty(shape, {.device = device, .sharding = cut});
      };
      const Tensor w = made({4, d, 4}), x = zeros_like(made({tokens, d}));
      const Tensor chosen =
          device == meta ? empty({tokens, 2}, {DType::i64, meta, cut}) : ids.on(cut);
      OpLog log;
      const ExpertRows rows = rows_by_expert(chosen, w);
      combine_rows(dispatch_rows(x, rows), rows, zeros_like(made({tokens, 2})));
      int64_t bytes = 0;
      for (const Movement& movement : log.movements) {
        for (const MovementStep& step : movement.steps) bytes += step.bytes;
      }
      return bytes;
    };
    const int64_t keys = tokens / 2 * 8;
    EXPECT_EQ(moved(cpu), moved(meta) + keys);
  });
}

/// The ranks of the other group have valid choices, and fail too.
TEST(Experts, RefuseAWrongExpertOnAllRanks) {
  on_mesh({{"a", 2}, {"ep", 2}}, [&](const DeviceMesh& mesh) {
    const Sharding cut(mesh, {{"a", Shard(0)}, {"ep", Shard(0)}});
    const Tensor w = zeros({3, 2, 2}, {.sharding = Sharding(mesh, {{"ep", Shard(0)}})});
    for (const double wrong : {3.0, -1.0}) {
      const Array ids{{4, 1}, {0, 2, 1, wrong}, DType::i64};
      EXPECT_EQ(
          error_of([&] { rows_by_expert(ids.on(cut), w); }),
          concat("rows_by_expert: an expert is ", static_cast<int>(wrong), ", expected 0 to 2"));
    }
  });
}

TEST(Experts, KeepTheFirstTokensWithinTheCapacity) {
  const Tensor ids = Tensor::of({{0, 1}, {0, 2}, {0, 1}, {0, 1}});
  const ExpertRows rows = rows_by_expert(ids, zeros({4, 1}), 1.0);  // 2 rows an expert
  EXPECT_EQ(rows.dropped, 3);
  EXPECT_EQ(rows.counts.to_vector<int64_t>(), (std::vector<int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(rows.tokens.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 0, 2, 1}));
  EXPECT_EQ(rows.choices.to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(rows_by_expert(ids, zeros({4, 1}), 0.0).tokens.numel(), 0);
}

TEST(Experts, AreChosenAndWeighted) {
  const Tensor logits = Tensor::of({{1.0, 3.0, 2.0, 0.0}, {0.0, 0.0, 5.0, 1.0}});
  const Routing two = route_tokens(logits, {.top_k = 2});
  EXPECT_EQ(two.experts.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 2, 3}));
  EXPECT_NEAR(two.weights.to_vector<double>()[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  // The better of the groups {0, 1} and {2, 3} by their best expert.
  const Routing limited =
      route_tokens(logits, {.top_k = 2, .normalize = false, .scale = 2, .groups = 2});
  EXPECT_EQ(limited.experts.to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 2, 3}));
  EXPECT_NEAR(limited.weights.to_vector<double>()[0], 2 * softmax(logits).to_vector<double>()[1],
              1e-6);
  // A bias changes the choice, not the weights.
  const Routing biased =
      route_tokens(logits, {.top_k = 1, .scores = RouterOptions::Scores::sigmoid},
                   Tensor::of({9.0, 0.0, 0.0, 0.0}));
  EXPECT_EQ(biased.experts.to_vector<int64_t>(), (std::vector<int64_t>{0, 0}));
  EXPECT_NEAR(biased.weights.to_vector<double>()[0], 1, 1e-6);
}

TEST(Experts, AreBalancedByLossesAndBias) {
  // All scores are equal: the balance loss is its least value, the number of choices.
  const Routing even = route_tokens(zeros({6, 4}), {.top_k = 2});
  EXPECT_NEAR(balance_loss(even).item(), 2, 1e-6);
  EXPECT_NEAR(router_z_loss(zeros({6, 4})).item(), std::log(4.0) * std::log(4.0), 1e-6);
  const Tensor bias = balanced_bias(zeros({3}), Tensor::of({{4, 1, 1}, {0, 1, 1}}), 0.5);
  EXPECT_EQ(bias.to_vector<double>(), (std::vector<double>{-0.5, 0.5, 0.5}));
  const Tensor x = ones({2}).set_requires_grad(), p = ones({3}).set_requires_grad();
  sum(with_loss(x, sum(mul(p, p)), 0.25)).backward();
  EXPECT_EQ(p.grad().to_vector<double>(), (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Experts, NamesWhatDoesNotFit) {
  const Tensor x = zeros({3, 2}), w = zeros({2, 2, 4});
  EXPECT_EQ(error_of([&] {
              grouped_matmul(x, w, Tensor::of({{2, 2}}));
            }),
            "grouped_matmul: rows are 3, expected at least 4, the sum of the counts");
  EXPECT_EQ(error_of([&] {
              grouped_matmul(x, w, Tensor::of({{-1, 2}}));
            }),
            "grouped_matmul: a count is negative, expected at least 0");
  EXPECT_EQ(error_of([&] {
              grouped_matmul(x, w, Tensor::of({{1, 1, 1}}));
            }),
            "grouped_matmul: counts are [1, 3], expected 2 in dim 1, the experts of [2, 2, 4]");
  EXPECT_EQ(
      error_of([&] { grouped_matmul(x, x, x); }),
      "grouped_matmul: shapes are [3, 2], [3, 2] and [3, 2], expected [rows, k], [experts, k, "
      "n] and [groups, experts]");
  EXPECT_EQ(error_of([&] {
              rows_by_expert(Tensor::of({{0, 2}}), w);
            }),
            "rows_by_expert: an expert is 2, expected 0 to 1");
  EXPECT_EQ(error_of([&] {
              rows_by_expert(Tensor::of({{0, 1}}), w, -1.0);
            }),
            "rows_by_expert: capacity_factor must be at least 0, got -1");
  EXPECT_EQ(error_of([&] {
              rows_by_expert(Tensor::of({0, 1}), w);
            }),
            "rows_by_expert: experts are [2], expected [tokens, choices]");
  EXPECT_EQ(error_of([&] {
              route_tokens(zeros({3, 4}), {.top_k = 3, .groups = 2});
            }),
            "route_tokens: top_k is 3, expected 1 to 2, the experts to choose from");
  EXPECT_EQ(error_of([&] {
              route_tokens(zeros({3, 4}), {.groups = 3});
            }),
            "route_tokens: number of groups is 3, expected a divisor of 4, the experts");
  EXPECT_EQ(error_of([&] {
              route_tokens(zeros({3, 4}), {.groups = 2, .top_groups = 3});
            }),
            "route_tokens: top_groups is 3, expected 1 to 2");
  EXPECT_EQ(error_of([&] {
              route_tokens(zeros({3, 4}), {}, zeros({3}));
            }),
            "route_tokens: bias is [3], expected [4]");
  EXPECT_EQ(
      error_of([&] { balanced_bias(zeros({3}), zeros({2}), 1); }),
      "balanced_bias: counts are [2], expected 3 in the last dim, the experts of the bias [3]");
  EXPECT_EQ(error_of([&] { with_loss(x, x); }), "with_loss: loss is [3, 2], expected one element");
}

}  // namespace weft
