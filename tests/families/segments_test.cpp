// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/families/family.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/fsdp.h"
#include "weft/hugging_face.h"
#include "weft/ops.h"

namespace weft {
namespace {

double farthest(std::span<const float> a, std::span<const float> b) {
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return difference;
}

TEST(Segments, AreRefusedByNameWhereTheyCannotBeKept) {
  const Tensor ids = zeros({2, 13}, {.dtype = i64});
  for (const char* name : {"bert", "modernbert"}) {
    TransformerModel encoder(FamilyReference(name).config());
    EXPECT_EQ(error_of([&] { encoder.loss(ids, ids, {.segments = ids}); }),
              "model: dtype of the mask is i64, expected bool; an encoder takes no segments");
  }
  for (const char* name : {"dynamic", "longrope"}) {
    TransformerModel model(FamilyReference(name).config());
    EXPECT_EQ(error_of([&] { model.loss(ids, ids, {.segments = ids}); }),
              "model: length of rows with segments is 13, expected at most 8, because the rope "
              "scaling follows the length of a row");
    const Tensor part = slice(ids, 1, 0, 8);
    EXPECT_TRUE(std::isfinite(model.loss(part, part, {.segments = part}).item()));
  }
  TransformerModel model(FamilyReference("llama").config());
  EXPECT_EQ(error_of([&] {
              model.loss(ids, ids, {.segments = zeros({2, 13})});
            }),
            "model: dtype of segments is f32, expected integers");
  EXPECT_EQ(error_of([&] {
              model.loss(ids, ids, {.segments = zeros({2, 12}, {.dtype = i64})});
            }),
            "model: shape of segments is [2, 12], expected that of the ids, [2, 13]");
  EXPECT_EQ(
      error_of([&] {
        model(Tensors{ids, ids, ids});
      }),
      "model: number of inputs is 3, expected 1, the ids, or up to 2: ids, segments; or 4: ids, "
      "segments, positions, places");
  EXPECT_EQ(error_of([&] { model.loss(ids, ids, {.divisor = 3}); }),
            "model: divisor of the loss is 3, expected none unless the reduction is a sum");
  EXPECT_EQ(
      error_of([&] { model.loss(ids, ids, {.reduction = LossReduction::sum, .divisor = -1}); }),
      "model: divisor of the loss is -1, expected a number above 0, or 0 for none");
}

/// Micro-batches whose sums are divided by the number of all targets give the loss and gradients of
/// the whole batch.
TEST(Segments, SumsDividedByAllTargetsAreTheMean) {
  for (const char* name : {"llama", "qwen2"}) {
    run_ranks(3, [&](Communicator world) {
      const FamilyReference reference(name);
      const DeviceMesh mesh(world, {{"dp", 3}});
      const Tensor tokens = squeeze(slice(reference.tensor("tokens"), 0, 0, 1), 0);
      std::vector<int64_t> targets = slice(tokens, 1, 1, 14).to_vector<int64_t>();
      for (size_t i = 0; i < targets.size(); i += 1 + i % 5) targets[i] = kIgnoredTarget;
      const Tensor labels = from_values(targets, {12, 13});
      const auto counted = static_cast<double>(static_cast<ptrdiff_t>(targets.size()) -
                                               std::ranges::count(targets, kIgnoredTarget));
      std::vector<double> losses;
      std::vector<std::vector<float>> gradients;
      for (const bool in_parts : {false, true}) {
        TransformerModel model(reference.config());
        for (const auto& unit : model.units()) fully_shard(unit, mesh["dp"]);
        fully_shard(model, mesh["dp"]);
        load_hugging_face(model, reference.folder());
        double sum = 0;
        const std::vector<int64_t> ends =
            in_parts ? std::vector<int64_t>{0, 5, 7, 12} : std::vector<int64_t>{0, 12};
        for (size_t part = 0; part + 1 < ends.size(); ++part) {
          const auto rows = [&](const Tensor& x) {
            return distribute(slice(x, 0, ends[part], ends[part + 1]), mesh, {Shard(0)});
          };
          TransformerLossOptions options;
          if (in_parts) options = {.reduction = LossReduction::sum, .divisor = counted};
          const Tensor loss = model.loss(rows(slice(tokens, 1, 0, 13)), rows(labels), options);
          loss.backward();
          sum += loss.full_tensor().item();
        }
        losses.push_back(sum);
        gradients.push_back(model.parameters()[1]->grad().full_tensor().to_vector<float>());
      }
      EXPECT_NEAR(losses[0], losses[1], 1e-5 * losses[0]);
      const auto largest = *std::ranges::max_element(gradients[0]);
      EXPECT_LE(farthest(gradients[0], gradients[1]), 1e-5 * static_cast<double>(largest));
    });
  }
}

}  // namespace
}  // namespace weft
