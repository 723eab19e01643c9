// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/numbers.h"
#include "cli/parallel_transformer.h"
#include "weft/adapters.h"
#include "weft/shared_batch.h"

namespace weft::cli {

void add_sequence_way_flag(CLI::App& command, ParallelOptions& o) {
  add_shown(command, "--sequence-way", o.sequence_way,
            "How attention moves keys along the axis cp: gather all; heads: exchange tokens for "
            "heads; ring: pass parts around; automatic: by predicted time and memory")
      ->check(CLI::IsMember({"automatic", "gather", "heads", "ring"}));
}

void check_sequence_way(const std::vector<MeshAxis>& axes, const ParallelOptions& o) {
  const bool shares = std::ranges::count(axes, kSequenceAxis, &MeshAxis::name) > 0;
  if (shares || o.sequence_way == "automatic") return;
  fail("--sequence-way: --mesh is ", o.mesh, ", expected one with an axis cp");
}

static bool carries_rows(const std::string& axis) {
  return axis != kTensorAxis && axis != kPipelineAxis;
}

Sharding sharded_rows(const DeviceMesh& mesh) {
  std::vector<Placement> rows;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    const std::string& name = mesh.axis_name(axis);
    const bool cuts_rows = carries_rows(name) && name != kSequenceAxis;
    rows.push_back(cuts_rows ? Placement(Shard(0)) : Replicate());
  }
  return Sharding(mesh, Placements(std::span<const Placement>(rows)));
}

DeviceMesh axes_of_rows(const DeviceMesh& mesh) {
  std::vector<std::string_view> names;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (carries_rows(mesh.axis_name(axis))) names.push_back(mesh.axis_name(axis));
  }
  return mesh.view(names);
}

Strategy with_sequences(Strategy strategy, const DeviceMesh& data) {
  std::vector<StrategyRow>& rows = strategy.rows;
  if (rows.size() < 2) return strategy;
  int at = 0;
  for (int axis = 0; axis < data.ndim(); ++axis) {
    if (data.axis_name(axis) == kExpertAxis) continue;
    if (data.axis_name(axis) == kSequenceAxis) rows.insert(rows.begin() + at, rows.back());
    ++at;
  }
  return strategy;
}

int sequence_axis(const DeviceMesh& mesh) {
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axis_name(axis) == kSequenceAxis && mesh.axis_size(axis) > 1) return axis;
  }
  return -1;
}

static bool has_adapter_dropout(Module& model) {
  return std::ranges::any_of(model.named_modules(), [](const auto& named) {
    const auto* adapter = dynamic_cast<const AdapterInput*>(named.second);
    return adapter && adapter->options().dropout > 0;
  });
}

Tensor ParallelTransformer::loss(const Tensor& ids, const Tensor& targets, const Tensor& segments) {
  const int axis = sequence_axis(mesh_);
  if (axis < 0) return model_.loss(ids, targets, {.segments = segments});
  const SharedBatch shared = share_batch(model_.config(), ids, targets, segments,
                                         mesh_[kSequenceAxis], has_adapter_dropout(model_));
  return model_.loss(shared.ids, shared.targets, shared.options);
}

}  // namespace weft::cli
