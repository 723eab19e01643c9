// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "weft/error.h"
#include "weft/fsdp.h"
#include "weft/ops/factories.h"
#include "weft/transformer.h"

namespace weft {

/// No size is divisible by 2, 3 or 4.
inline TransformerConfig little_llama(bool tied = false) {
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary
  TransformerConfig config{24, 3, 4, 2, 6, 22, 37};
  config.deviation = 0.2;
  config.tied = tied;
  return config;
}

/// A way to shard the model, on one mesh.
struct ShardedWay {
  const char* name;
  std::vector<MeshAxis> axes;
  FullyShardOptions options = {};

  int ranks() const { return ranks_of(axes); }
};
template <std::derived_from<ShardedWay> Way> void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name << " on " << way.ranks();
}
template <class Way> std::string name_of_way(const testing::TestParamInfo<Way>& info) {
  return concat(info.param.name, "_", info.param.ranks());
}

/// Ids [rows, 8], equal on all ranks, sharded over all axes of `mesh`.
inline Tensor batch_of(const DeviceMesh& mesh, int64_t rows, int64_t salt) {
  std::vector<Placement> cut(static_cast<size_t>(mesh.ndim()), Shard(0));
  const Placements placements{std::span<const Placement>(cut)};
  return some_ids({rows, 8}, salt, {DType::i64, cpu, Sharding(mesh, placements)});
}

inline void shard(TransformerModel& model, const DeviceMesh& mesh,
                  const FullyShardOptions& options = {}) {
  for (Module* block : model.blocks()) fully_shard(*block, mesh, options);
  fully_shard(model, mesh, options);
}

/// The whole gradients of all parameters.
inline std::vector<std::vector<float>> gradients_of(const TransformerModel& model) {
  std::vector<std::vector<float>> values;
  for (const ParameterPtr& p : model.parameters()) {
    values.push_back(p->grad().full_tensor().to_vector<float>());
  }
  return values;
}

/// Runs `body` on the ranks of a mesh, with a sharded model.
inline void on_llama(
    const std::vector<MeshAxis>& axes, const FullyShardOptions& options,
    const std::function<void(TransformerModel& model, const DeviceMesh& mesh)>& body) {
  run_ranks(ranks_of(axes), [&](Communicator world) {
    const DeviceMesh mesh(world, axes);
    TransformerModel model(little_llama());
    shard(model, mesh, options);
    model.materialize();
    body(model, mesh);
  });
}

}  // namespace weft
