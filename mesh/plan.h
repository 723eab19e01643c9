// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/axes.h"
#include "mesh/layout.h"
#include "weft/device.h"

namespace weft {

/// What a redistribution costs, as predicted.
struct PlanCost {
  /// Of the busiest rank: equal on all.
  double seconds = 0;
  /// Received by this rank from others.
  int64_t bytes = 0;
  /// Memory in use at once beyond the source, on this rank: intermediate blocks and the result.
  int64_t peak_bytes = 0;
};

/// One thing that ranks do together, or each by itself (`local`).
struct PlanStep {
  enum class Kind : uint8_t {
    /// Slices, zeros or relabels what this rank holds.
    local,
    all_gather,
    reduce_scatter,
    all_reduce,
    all_to_all,
    /// Each rank reads the boxes it needs from its peers' memory, reducing while it reads.
    exchange,
  };
  Kind kind = Kind::local;
  /// Ranks that differ along these axes take part, ordered by them.
  Axes axes = {};
  /// Of the Partial axes that the step reduces.
  ReduceOp op = ReduceOp::sum;
  Ref<Layout> from = {};
  Ref<Layout> to = {};
  PlanCost cost = {};
};

/// What a plan may do.
struct PlanOptions {
  /// Peak bytes on any rank beyond the source; std::invalid_argument when no plan keeps to it.
  int64_t memory_cap = INT64_MAX;
  /// Where a Partial becomes whole on ranks that share memory: each rank reduces its part and reads
  /// the others', also where every rank reducing everything is predicted cheaper.
  bool two_step = false;
  /// Plans collectives even where ranks share memory.
  bool collectives = false;
  /// Where the blocks are: ranks may see each other's host memory, but not their GPUs'.
  DeviceKind device = DeviceKind::cpu;
  bool operator==(const PlanOptions&) const = default;
};

class PlanProgram;

/// The steps that turn one layout into another of the same shape. The plan is what runs.
class Plan final : public RefCounted {
 public:
  Ref<Layout> from = {};
  Ref<Layout> to = {};
  std::vector<PlanStep> steps;
  PlanCost cost = {};
  PlanOptions options;
  /// What this rank does, worked out when the plan first runs.
  mutable std::shared_ptr<const PlanProgram> program;
  /// The one that stands for it on a GPU, where ranks do not see each other's; see `plan_on`.
  mutable Ref<Plan> on_gpu = {};

  /// True when no byte moves between ranks, on any of them.
  bool is_free() const;
  static void destroy(Plan* plan);
};

/// The plan of least predicted time, from the mesh's cache. Both layouts have the same root mesh,
/// shape and dtype. Equal on all ranks.
Ref<Plan> plan_between(const Ref<Layout>& from, const Ref<Layout>& to);
Ref<Plan> plan_between(const Ref<Layout>& from, const Ref<Layout>& to, const PlanOptions& options);

/// What runs for blocks on a device: the plan itself, or one of collectives between the same
/// layouts where it reads what ranks do not see of each other.
const Plan& plan_on(DeviceKind device, const Plan& plan);

/// The part of the local block (in its own coordinates) that is the result, for a plan that only
/// slices or relabels: no copy is needed, on no rank. Nothing for any other plan.
std::optional<Box> local_part(const Plan& plan);
inline bool is_local_view(const Plan& plan) { return local_part(plan).has_value(); }

/// Predicted time of one exchange over a mesh's ranks in which the busiest receives `bytes`; equal
/// on all ranks, as every prediction is.
double predicted_exchange_seconds(const DeviceMesh& mesh, int64_t bytes);

/// Runs a plan from the local block `in` into the local block `out` (dense, of plan.to's local
/// shape). Collective over the ranks that the steps name. `in` may be strided.
void run(const Plan& plan, const Block& in, const Block& out);

/// Reads `wanted` (global coordinates, may be empty or stick out) of a tensor that lies as `from`
/// into `out`, one exchange over the root mesh's ranks; what is outside the tensor is left as it
/// is. `wanted_of(rank)` gives every rank's wish, so that engines without shared memory can send.
/// Along axes where `from` is Partial or Replicate a rank reads from peers of its own coordinate.
void fetch(const Ref<Layout>& from, const Block& in, const std::function<Box(int rank)>& wanted_of,
           const Block& out);

/// "all_gather", ...
std::string_view name_of(PlanStep::Kind kind);

/// One line a step, e.g. "reduce_scatter over tp: P(sum) -> S(0), 32.0 KiB, 8.1 µs", and a total.
std::string to_string(const Plan& plan);

}  // namespace weft
