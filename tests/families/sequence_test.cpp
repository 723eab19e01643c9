// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/families/family.h"
#include "weft/fsdp.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

using Axes = std::vector<MeshAxis>;

/// Sequences are cut along cp, rows along the others but tp; all but tp shard the parameters.
void expect_on_ranks(const FamilyReference& reference, const Axes& axes, SequenceWay way,
                     int64_t documents = 1, bool recompute = false) {
  int ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= axis.size;
  run_ranks(ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, axes);
    std::vector<std::string_view> data;
    std::vector<Placement> rows;
    for (const MeshAxis& axis : axes) {
      const bool cuts_rows = axis.name != "tp" && axis.name != "cp";
      rows.push_back(cuts_rows ? Placement(Shard(0)) : Placement(Replicate()));
      if (axis.name != "tp") data.push_back(axis.name);
    }
    FamilySetup setup{.documents = documents};
    setup.shard = [&](TransformerModel& model) {
      model.set_sequence_way(way);
      const bool has_ep = std::ranges::count(data, "ep") > 0;
      if (has_ep) parallelize(model, mesh["ep"], expert_styles());
      if (data.size() < axes.size()) {
        parallelize(model, mesh["tp"],
                    transformer_styles(model.config(), {.sequence_parallel = true}));
      }
      if (recompute) {
        for (Module* block : model.blocks()) block->set_recompute(true);
      }
      FullyShardOptions options;
      if (has_ep) options = with_experts(options, {&model}, mesh.view(data), "ep");
      for (const auto& unit : model.units()) fully_shard(unit, mesh.view(data), options);
      fully_shard(model, mesh.view(data), options);
    };
    setup.batch = [&](const Tensor& whole) {
      return distribute(whole, mesh, Placements(std::span<const Placement>(rows)));
    };
    setup.share = [&](const Tensor& ids, const Tensor& targets, const Tensor& segments) {
      return share_sequence(ids, targets, segments, mesh["cp"]);
    };
    expect_as_transformers(reference, setup);
  });
}

class Sequence : public testing::TestWithParam<std::string> {};

TEST_P(Sequence, EqualTransformers) {
  const FamilyReference reference(GetParam());
  for (const SequenceWay way : {SequenceWay::gather, SequenceWay::ring, SequenceWay::automatic}) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << name_of(way) << " on " << ranks);
      expect_on_ranks(reference, {{"cp", ranks}}, way);
    }
  }
  const int64_t heads = reference.config().kv_heads;
  for (const int ranks : {2, 3, 4}) {
    if (heads % ranks == 0) expect_on_ranks(reference, {{"cp", ranks}}, SequenceWay::heads);
  }
}

TEST_P(Sequence, EqualTransformersOnMeshes) {
  const FamilyReference reference(GetParam());
  expect_on_ranks(reference, {{"shard", 2}, {"cp", 2}}, SequenceWay::ring);
  expect_on_ranks(reference, {{"shard", 2}, {"cp", 2}}, SequenceWay::automatic, 1, true);
  if (reference.config().kv_heads % 2 == 0) {
    expect_on_ranks(reference, {{"cp", 2}, {"tp", 2}}, SequenceWay::ring);
    expect_on_ranks(reference, {{"cp", 3}, {"tp", 2}}, SequenceWay::gather);
  }
  if (reference.config().experts == 0) return;
  expect_on_ranks(reference, {{"cp", 2}, {"ep", 2}}, SequenceWay::automatic);
}

TEST_P(Sequence, OfPackedDocumentsEqualTransformers) {
  const FamilyReference reference(GetParam());
  if (reference.config().learned_positions) return;
  for (const SequenceWay way : {SequenceWay::gather, SequenceWay::ring}) {
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(testing::Message() << name_of(way) << " on " << ranks);
      expect_on_ranks(reference, {{"cp", ranks}}, way, 2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(References, Sequence,
                         testing::Values("llama", "gemma3", "deepseek_v3", "mixtral",
                                         "mistral_sinks", "gpt2"),
                         [](const auto& made) { return made.param; });

}  // namespace
}  // namespace weft
