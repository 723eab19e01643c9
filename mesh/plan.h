// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mesh/layout.h"

namespace weft {

/// What a redistribution costs, as predicted.
struct PlanCost {
  double seconds = 0;
  /// Received by this rank from others.
  int64_t bytes = 0;
  /// Memory in use at once beyond the source: intermediate blocks and the result.
  int64_t peak_bytes = 0;
};

struct PlanStep;

/// The steps that turn one layout into another of the same shape. The plan is what runs.
class Plan final : public RefCounted {
 public:
  Ref<Layout> from;
  Ref<Layout> to;
  std::vector<PlanStep> steps;
  PlanCost cost;

  ~Plan();
  /// True when no byte moves between ranks.
  bool is_free() const { return cost.bytes == 0; }
  static void destroy(Plan* plan);
};

/// The plan of least predicted time, from the mesh's cache. Both layouts have the same root mesh,
/// shape and dtype. `deterministic_two_step` asks for reduce-then-read where a Partial becomes whole.
Ref<Plan> plan_between(const Ref<Layout>& from, const Ref<Layout>& to);

/// Runs a plan from the local block `in` into the local block `out` (dense, of plan.to's local shape).
/// Collective over the ranks that the steps name.
void run(const Plan& plan, const Block& in, const Block& out);

/// Reads `wanted` (global coordinates, may be empty or stick out) of a tensor that lies as `from` into
/// `out`, one exchange over the root mesh's ranks; what is outside the tensor is left as it is.
/// `wanted_of(rank)` gives every rank's wish, so that engines without shared memory can send.
void fetch(const Ref<Layout>& from, const Block& in, const std::function<Box(int rank)>& wanted_of,
           const Block& out);

}  // namespace weft
