// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/llama_reference.h"
#include "tests/support/ranks.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

struct Arrangement {
  std::vector<MeshAxis> axes;
  bool sequence_parallel;
  std::vector<const char*> models;
  int parts = 1;
};

std::string arrangement_name(const testing::TestParamInfo<Arrangement>& info) {
  std::string name;
  for (const MeshAxis& axis : info.param.axes) name += axis.name + std::to_string(axis.size);
  if (info.param.parts > 1) name += "parts" + std::to_string(info.param.parts);
  return name + (info.param.sequence_parallel ? "sequence" : "");
}

class LlamaStyles : public testing::TestWithParam<Arrangement> {};

/// Compares logits, gradients and the losses of 20 steps; before the loss, no bytes move except for
/// the styles.
TEST_P(LlamaStyles, EqualTransformers) {
  const auto& [axes, sequence_parallel, models, parts] = GetParam();
  for (const char* name : models) {
    on_mesh(axes, [&, sequence = sequence_parallel, count = parts](const DeviceMesh& mesh) {
      LlamaSetup setup;
      setup.shard = [&](TransformerModel& model) {
        parallelize(
            model, mesh["tp"],
            transformer_styles(model.config(), {.sequence_parallel = sequence, .parts = count}));
      };
      setup.batch = [&](const Tensor& whole) {
        return distribute(whole, mesh,
                          mesh.ndim() == 1 ? Placements() : Placements({{"dp", Shard(0)}}));
      };
      expect_as_transformers(name, setup);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, LlamaStyles,
    testing::Values(Arrangement{{{"tp", 1}}, true, {"grouped"}},
                    Arrangement{{{"tp", 2}}, false, {"heads", "grouped", "grouped_tied"}},
                    Arrangement{{{"tp", 2}}, true, {"heads", "grouped", "grouped_tied"}},
                    Arrangement{{{"tp", 3}}, false, {"heads", "grouped", "grouped_tied"}},
                    Arrangement{{{"tp", 3}}, true, {"heads", "grouped", "grouped_tied"}},
                    Arrangement{{{"tp", 4}}, false, {"heads"}},
                    Arrangement{{{"tp", 4}}, true, {"heads", "grouped"}},
                    Arrangement{{{"tp", 2}}, true, {"heads", "grouped", "grouped_tied"}, 2},
                    Arrangement{{{"tp", 4}}, true, {"heads"}, 3},
                    Arrangement{{{"dp", 2}, {"tp", 2}}, true, {"grouped"}, 5},
                    Arrangement{{{"dp", 2}, {"tp", 2}}, false, {"grouped_tied"}},
                    Arrangement{{{"dp", 2}, {"tp", 2}}, true, {"grouped", "grouped_tied"}}),
    arrangement_name);

}  // namespace
}  // namespace weft
