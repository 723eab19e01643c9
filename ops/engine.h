// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "mesh/plan.h"
#include "ops/route.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/movements.h"
#include "weft/work_log.h"

namespace weft {

class TraceRecorder;

/// What the engine keeps for one rank.
struct Engine {
  EngineStatistics statistics;
  struct Moved {
    int64_t count = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Moved> implicit;
  MovementLog* log = nullptr;
  WorkLog* work = nullptr;
  TraceRecorder* trace = nullptr;
  /// Routes of calls without a mesh.
  RouteTable local_routes;

  static Engine& current();
};

/// `tensor` after the plan, unrecorded; shares memory where the plan only slices or relabels.
/// `what` asks for it.
Tensor run_plan(const Tensor& tensor, const Ref<Plan>& plan,
                const std::string& what = "redistribute");

/// Adds what crosses ranks to the log: a plan, or a fetch of `bytes` from a tensor laid out so.
void log_plan(MovementLog& log, const std::string& what, const Plan& plan);
void log_fetch(MovementLog& log, const std::string& what, const Layout& from, int64_t bytes);

/// Throws when the context's traffic policy forbids what the plan does. `what` names the op.
void check_policy(const std::string& what, bool moves, bool communicates);

/// Counts traffic that an op caused: `bytes` received.
void count_implicit(const std::string& what, int64_t bytes);

/// `tensor` in that layout, unrecorded.
Tensor moved_to(const Tensor& tensor, const Ref<Layout>& layout);

}  // namespace weft
