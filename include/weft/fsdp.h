// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/module.h"

namespace weft {

/// How a module's parameters are sharded.
struct FullyShardOptions {
  /// Free the whole parameters after forward and gather them again for backward: less memory, half
  /// as much traffic again. Not for the outermost sharded module, whose backward follows at once.
  bool reshard_after_forward = true;
  /// Modules whose parameters are gathered ahead.
  int prefetch = 1;
  /// Parameters (names within the module) that each rank keeps whole.
  std::vector<std::string> ignored = {};
};

/// Shards the module's parameters (those that no module below it sharded before) over the 1-D
/// `mesh`, each along its dim 0: whole when used, a slice at rest. Shard the parts first, then the
/// whole model. Frozen parameters are those that are frozen now. The batch is sharded over the same
/// mesh, and the loss is a mean over the whole batch. std::invalid_argument when the mesh is not
/// 1-D, a parameter has no dims, or it was sharded before.
WEFT_API void fully_shard(Module& module, const DeviceMesh& mesh,
                          const FullyShardOptions& options = {});

/// Bytes that sharding owns on this rank, and that it moves in a training step.
struct FullyShardBytes {
  /// Slices of parameters and of gradients at rest.
  int64_t parameters = 0;
  int64_t gradients = 0;
  /// Most bytes of whole parameters and gradients at once.
  int64_t buffers = 0;
  /// Received from other ranks in forward and backward.
  int64_t received = 0;
};

/// What the schedule of a model will take, by arithmetic. `model` is the outermost sharded module;
/// its schedule is that of the last training step, before the first one that of the modules' order.
WEFT_API FullyShardBytes predicted_bytes(Module& model);
/// What it took: the most since the model was sharded, and the last training step's traffic.
WEFT_API FullyShardBytes measured_bytes(Module& model);
/// The schedule, a line a step: gather, wait, compute, scatter, free, with numbered buffers.
WEFT_API std::string explain_schedule(Module& model);

}  // namespace weft
