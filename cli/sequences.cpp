// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/numbers.h"
#include "cli/parallel_transformer.h"
#include "weft/adapters.h"
#include "weft/extend/pattern.h"
#include "weft/ops/sequences.h"
#include "weft/tensor.h"

namespace weft::cli {

void add_sequence_way_flag(CLI::App& command, ParallelOptions& o) {
  add_shown(command, "--sequence-way", o.sequence_way,
            "How attention moves keys along the axis cp: gather all; heads: exchange tokens for "
            "heads; ring: pass parts around; automatic: by predicted time and memory")
      ->check(CLI::IsMember({"automatic", "gather", "heads", "ring"}));
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

/// The index of the axis "cp" if several ranks share sequences; otherwise -1.
static int sequence_axis(const DeviceMesh& mesh) {
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axis_name(axis) == kSequenceAxis && mesh.axis_size(axis) > 1) return axis;
  }
  return -1;
}

/// Cuts rows along the sequence, with the tokens in their order.
static Tensor cut_in_order(const Tensor& rows, const DeviceMesh& mesh, int axis) {
  if (!rows) return rows;
  Pattern pattern = rows.sharding().pattern();
  pattern.set(axis, Shard(1));
  return redistributed(rows, Sharding::of(mesh, pattern));
}

static bool has_adapter_dropout(Module& model) {
  return std::ranges::any_of(model.named_modules(), [](const auto& named) {
    const auto* adapter = dynamic_cast<const AdapterInput*>(named.second);
    return adapter && adapter->options().dropout > 0;
  });
}

/// Not with dropout, which draws by place, nor where the rotation follows the length of a row.
static bool takes_any_order(TransformerModel& model) {
  const TransformerConfig& c = model.config();
  const RopeScalingKind kind = c.rope_scaling.kind;
  const bool drops = c.embedding_dropout + c.residual_dropout + c.attention_dropout > 0 ||
                     has_adapter_dropout(model);
  return c.causal && !drops && kind != RopeScalingKind::dynamic &&
         kind != RopeScalingKind::longrope;
}

Tensor ParallelTransformer::loss(const Tensor& ids, const Tensor& targets, const Tensor& segments) {
  const int axis = sequence_axis(mesh_);
  if (axis < 0) return model_.loss(ids, targets, {.segments = segments});
  if (!takes_any_order(model_)) {
    return model_.loss(cut_in_order(ids, mesh_, axis), cut_in_order(targets, mesh_, axis),
                       {.segments = cut_in_order(segments, mesh_, axis)});
  }
  const SharedSequence shared = share_sequence(ids, targets, segments, mesh_[kSequenceAxis]);
  return model_.loss(shared.ids, shared.targets,
                     {.positions = shared.positions, .order = shared.order});
}

}  // namespace weft::cli
