// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/fsdp/little_llama.h"
#include "tests/support/llama_reference.h"
#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

/// A preset on a mesh whose axes "tp" and "sp" are for tensor parallelism, the others for sharding.
struct Preset {
  const char* strategy;
  std::vector<MeshAxis> axes;
  std::vector<const char*> models = {"grouped_tied"};

  int ranks() const { return ranks_of(axes); }
};

void PrintTo(const Preset& preset, std::ostream* out) {
  *out << preset.strategy << " on " << preset.ranks();
}

std::string preset_name(const testing::TestParamInfo<Preset>& info) {
  std::string name = info.param.strategy;
  for (const MeshAxis& axis : info.param.axes) name += concat("_", axis.name, axis.size);
  return name;
}

/// The names of the axes that shard.
std::vector<std::string_view> sharding_axes(const DeviceMesh& mesh) {
  std::vector<std::string_view> names;
  for (int i = 0; i < mesh.ndim(); ++i) {
    if (mesh.axis_name(i) != "tp") names.push_back(mesh.axis_name(i));
  }
  return names;
}

class Presets : public testing::TestWithParam<Preset> {};

TEST_P(Presets, EqualTransformers) {
  const Preset& preset = GetParam();
  for (const char* name : preset.models) {
    for (bool sequence : {false, true}) {
      const bool has_tp = preset.axes.back().name == "tp";
      if (sequence && !has_tp) continue;
      run_ranks(preset.ranks(), [&](Communicator world) {
        DeviceMesh mesh(world, preset.axes);
        const auto names = sharding_axes(mesh);
        LlamaSetup setup;
        setup.shard = [&](TransformerModel& model) {
          if (has_tp) {
            parallelize(model, mesh["tp"],
                        transformer_styles(model.config(), {.sequence_parallel = sequence}));
          }
          shard(model, mesh.view(names), {.strategy = Strategy::named(preset.strategy)});
        };
        setup.batch = [&](const Tensor& whole) {
          std::vector<Placement> rows(static_cast<size_t>(mesh.ndim()));
          for (int i = 0; i < mesh.ndim(); ++i) {
            if (mesh.axis_name(i) != "tp") rows[static_cast<size_t>(i)] = Shard(0);
          }
          return distribute(whole, mesh, Placements(std::span<const Placement>(rows)));
        };
        expect_as_transformers(name, setup);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, Presets,
    testing::Values(Preset{"zero2", {{"dp", 4}}, {"heads", "grouped_tied"}},
                    Preset{"zero1", {{"dp", 4}}, {"heads", "grouped_tied"}},
                    Preset{"ddp", {{"dp", 4}}, {"heads", "grouped_tied"}},
                    Preset{"hsdp", {{"dp_replicate", 2}, {"dp_shard", 2}}, {"heads", "grouped"}},
                    Preset{"full_shard", {{"dp", 2}, {"tp", 2}}, {"heads", "grouped_tied"}},
                    Preset{"zero1", {{"dp", 2}, {"tp", 2}}}, Preset{"ddp", {{"dp", 2}, {"tp", 2}}},
                    Preset{"hsdp", {{"dp_replicate", 2}, {"dp_shard", 2}, {"tp", 2}}}),
    preset_name);

}  // namespace
}  // namespace weft
