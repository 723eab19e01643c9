// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/tp/little_llama.h"
#include "weft/autograd.h"
#include "weft/ops.h"

namespace weft {
namespace {

/// The largest difference over the largest value of `b`.
double difference_of(const Tensor& a, const Tensor& b) {
  const auto x = a.full_tensor().to_vector<double>(), y = b.full_tensor().to_vector<double>();
  double most = 0, largest = 1e-30;
  for (size_t i = 0; i < y.size(); ++i) {
    most = std::max(most, std::abs(x[i] - y[i]));
    largest = std::max(largest, std::abs(y[i]));
  }
  return x.size() == y.size() ? most / largest : INFINITY;
}

/// Compares a model that `axes` cut with the same on one rank: logits, loss, every gradient.
void expect_as_one_rank(const TransformerConfig& config, const std::vector<MeshAxis>& axes,
                        const TransformerStyleOptions& options) {
  on_mesh(axes, [&](const DeviceMesh& mesh) {
    TransformerModel alone(config), cut(config);
    alone.materialize();
    parallelize(cut, mesh["tp"], transformer_styles(config, options));
    cut.materialize();
    const auto from = alone.named_parameters(), to = cut.named_parameters();
    for (size_t i = 0; i < from.size(); ++i) {
      NoGrad no_grad;
      copy_(to[i].parameter->value().detach(),
            distribute(from[i].parameter->value().detach(), mesh, {}));
    }
    const Tensor ids = some_ids({3, 7}, 1, {.dtype = i64}),
                 targets = some_ids({3, 7}, 2, {.dtype = i64});
    const auto over = [&](const Tensor& x) {
      return distribute(x, mesh, mesh.ndim() == 1 ? Placements() : Placements({{"dp", Shard(0)}}));
    };
    EXPECT_LE(difference_of(cut(over(ids)), alone(ids)), 1e-5);
    const Tensor whole = alone.loss(ids, targets), loss = cut.loss(over(ids), over(targets));
    EXPECT_LE(difference_of(loss, whole), 1e-5);
    whole.backward();
    loss.backward();
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_LE(difference_of(to[i].parameter->grad(), from[i].parameter->grad()), 1e-5)
          << from[i].name();
    }
  });
}

TEST(UnevenHeads, EqualOneRank) {
  for (const bool sequence_parallel : {false, true}) {
    for (const int ranks : {3, 4, 5, 8}) {
      SCOPED_TRACE(ranks);
      expect_as_one_rank(little_llama(8, 2), {{"tp", ranks}},
                         {.sequence_parallel = sequence_parallel});
    }
    expect_as_one_rank(little_llama(8, 8), {{"tp", 3}}, {.sequence_parallel = sequence_parallel});
    expect_as_one_rank(little_llama(2, 1), {{"tp", 3}}, {.sequence_parallel = sequence_parallel});
    expect_as_one_rank(little_llama(8, 2), {{"dp", 2}, {"tp", 3}},
                       {.sequence_parallel = sequence_parallel});
  }
}

TEST(UnevenHeads, SplitProductsEqualOneRank) {
  expect_as_one_rank(little_llama(8, 2), {{"tp", 3}}, {.sequence_parallel = true, .parts = 2});
}

TEST(UnevenHeads, HaveWholeHeadsOnEachRank) {
  on_mesh({{"tp", 3}}, [](const DeviceMesh& mesh) {
    TransformerModel model(little_llama(8, 2));
    parallelize(model, mesh["tp"], transformer_styles(model.config()));
    Module& attention = model.module("model.layers.0.self_attn");
    const auto rows = [&](const char* name) {
      return attention.module(name).own_parameters()[0].second->value().box().shape;
    };
    EXPECT_EQ(rows("q_proj")[0], mesh.rank() < 2 ? 18 : 12);
    EXPECT_EQ(rows("o_proj")[1], mesh.rank() < 2 ? 18 : 12);
    EXPECT_EQ(rows("k_proj")[0], 12);
  });
}

}  // namespace
}  // namespace weft
