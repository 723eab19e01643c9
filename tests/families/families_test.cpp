// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/families/family.h"
#include "tests/support/ranks.h"
#include "weft/checkpoint.h"
#include "weft/fsdp.h"
#include "weft/generate.h"
#include "weft/hugging_face.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

std::vector<std::string> reference_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(WEFT_SOURCE_DIR "/tests/reference/families")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Families : public testing::TestWithParam<std::string> {};

/// Shards by the styles along tp, if there is one, and by FSDP along the others.
void expect_on_ranks(const FamilyReference& reference, const std::vector<MeshAxis>& axes,
                     bool sequence_parallel = true) {
  run_ranks(ranks_of(axes), [&](Communicator world) {
    const DeviceMesh mesh(world, axes);
    std::vector<std::string_view> data;
    std::vector<Placement> rows;
    for (const MeshAxis& axis : axes) {
      rows.push_back(axis.name == "tp" ? Placement(Replicate()) : Placement(Shard(0)));
      if (axis.name != "tp") data.push_back(axis.name);
    }
    const bool has_ep = std::ranges::count(data, "ep") > 0;
    FamilySetup setup;
    setup.shard = [&](TransformerModel& model) {
      if (has_ep) parallelize(model, mesh["ep"], expert_styles());
      if (std::ranges::count(axes, "tp", &MeshAxis::name) > 0) {
        parallelize(model, mesh["tp"],
                    transformer_styles(model.config(), {.sequence_parallel = sequence_parallel}));
      }
      if (data.empty() || axes[0].name == "ep") return;
      const bool has_replicas = std::ranges::count(data, "replicate") > 0;
      FullyShardOptions options{.strategy =
                                    has_replicas ? Strategy::hsdp() : Strategy::full_shard()};
      if (has_ep) options = with_experts(options, {&model}, mesh.view(data), "ep");
      for (const auto& unit : model.units()) fully_shard(unit, mesh.view(data), options);
      fully_shard(model, mesh.view(data), options);
    };
    setup.batch = [&](const Tensor& whole) {
      return distribute(whole, mesh, Placements(std::span<const Placement>(rows)));
    };
    expect_as_transformers(reference, setup);
  });
}

TEST_P(Families, EqualTransformersOnOneRank) {
  expect_as_transformers(FamilyReference(GetParam()));
}

TEST_P(Families, EqualTransformersSharded) {
  const FamilyReference reference(GetParam());
  expect_on_ranks(reference, {{"dp", 3}});
  expect_on_ranks(reference, {{"dp", 4}});
  expect_on_ranks(reference, {{"tp", 2}}, false);
  expect_on_ranks(reference, {{"tp", 2}});
  expect_on_ranks(reference, {{"tp", 3}});
  expect_on_ranks(reference, {{"replicate", 2}, {"shard", 2}, {"tp", 2}});
}

TEST_P(Families, EqualTransformersWithExpertsOnAnAxis) {
  const FamilyReference reference(GetParam());
  if (reference.config().experts == 0) return;
  expect_on_ranks(reference, {{"ep", 1}});
  expect_on_ranks(reference, {{"ep", 2}});
  expect_on_ranks(reference, {{"ep", 4}});
  expect_on_ranks(reference, {{"shard", 2}, {"ep", 2}});
  expect_on_ranks(reference, {{"shard", 3}, {"ep", 2}});
  expect_on_ranks(reference, {{"shard", 2}, {"ep", 2}, {"tp", 2}});
  expect_on_ranks(reference, {{"replicate", 2}, {"shard", 2}, {"ep", 2}});
}

TEST_P(Families, GenerateTheTokensOfTransformers) {
  const FamilyReference reference(GetParam());
  if (!reference.has("greedy")) return;
  const auto all = reference.tensor("greedy").to_vector<int64_t>();
  const auto prompt = static_cast<ptrdiff_t>(all.size()) - 64;
  const std::vector<int64_t> expected(all.begin() + prompt, all.end());
  std::vector<std::vector<MeshAxis>> meshes = {{{"tp", 1}}, {{"tp", 2}}};
  if (reference.config().experts > 0) meshes.push_back({{"ep", 2}, {"tp", 2}});
  for (const auto& axes : meshes) {
    const int ranks = axes.size() > 1 ? 4 : axes[0].size;
    run_ranks(ranks, [&](Communicator world) {
      const DeviceMesh mesh(world, axes);
      TransformerModel model(reference.config());
      if (axes.size() > 1) parallelize(model, mesh["ep"], expert_styles());
      parallelize(model, mesh["tp"], transformer_styles(model.config()));
      load_hugging_face(model, reference.folder());
      const std::vector<int64_t> made =
          generate(model, mesh, std::span(all).first(static_cast<size_t>(prompt)),
                   {.sampling = {.temperature = 0}, .tokens = 64});
      EXPECT_EQ(made, expected) << ranks << " ranks";
    });
  }
}

/// Elements of a file's tensor, as bytes.
std::string bytes_of(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  std::string bytes(static_cast<size_t>(entry.bytes), '\0');
  file.read(entry, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST_P(Families, ComeBackBitForBit) {
  const FamilyReference reference(GetParam());
  const TransformerConfig config = reference.config();
  TransformerConfig stated = config;
  stated.sinks = transformer_config(reference.folder()).sinks;
  EXPECT_EQ(transformer_config_of(config_json(stated), "written"), stated);
  // With other sinks than its family's it is refused, by config_json and by the export.
  const bool is_refused = config.sinks != stated.sinks;
  if (is_refused) {
    EXPECT_THROW(config_json(config), std::invalid_argument);
  }
  const Scratch scratch;
  const std::string out = scratch.path("out");
  std::filesystem::create_directory(out);
  run_ranks(3, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"ranks", 3}});
    StateDict parameters, saved;
    for (const auto& [name, entry] : hugging_face_contents(reference.folder(), config).tensors) {
      const Tensor tensor =
          empty(entry.shape, {.dtype = entry.dtype, .sharding = Sharding(mesh, {Shard(0)})});
      parameters.tensors.emplace(name, tensor);
      saved.tensors.emplace("model/" + name, tensor);
    }
    load_hugging_face(parameters, reference.folder(), config);
    const std::string checkpoint = CheckpointSaver(world, scratch.path("run")).save(1, saved);
    world.barrier();
    const auto write = [&] { export_hugging_face(checkpoint, out, world, {.config = config}); };
    if (is_refused) {
      EXPECT_THROW(write(), std::invalid_argument);
    } else {
      write();
    }
  });
  if (is_refused) return;
  const SafetensorsFile before(reference.folder() + "/model.safetensors");
  const SafetensorsFile after(out + "/model.safetensors");
  EXPECT_EQ(after.entries().size(), before.entries().size());
  for (const SafetensorsEntry& entry : before.entries()) {
    // transformers calls the head of Pythia otherwise than its files.
    const bool is_head = config.family == "gpt_neox" && entry.name == "lm_head.weight";
    const SafetensorsEntry& back = after.entry(is_head ? "embed_out.weight" : entry.name);
    EXPECT_EQ(back.shape, entry.shape) << entry.name;
    EXPECT_EQ(bytes_of(after, back), bytes_of(before, entry)) << entry.name;
  }
}

INSTANTIATE_TEST_SUITE_P(References, Families, testing::ValuesIn(reference_names()),
                         [](const auto& made) { return made.param; });

}  // namespace
}  // namespace weft
