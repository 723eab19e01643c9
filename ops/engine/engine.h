// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "mesh/plan.h"
#include "ops/engine/route.h"
#include "weft/autograd.h"
#include "weft/extend/op_log.h"

namespace weft {

class KeptResults;
class TraceRecorder;
struct CallBody;
struct OpBody;

/// The engine's state on one rank.
struct Engine {
  EngineStatistics statistics;
  struct Moved {
    int64_t count = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Moved> implicit;
  OpLog* log = nullptr;
  KeptResults* kept = nullptr;
  TraceRecorder* trace = nullptr;
  /// Routes of calls without a mesh.
  RouteTable local_routes;

  static Engine& current();
};

/// Runs a plan on `tensor`, unrecorded; shares memory if the plan only slices or relabels. `what`
/// names the op that requires it.
Tensor run_plan(const Tensor& tensor, const Ref<Plan>& plan,
                const std::string& what = "redistribute");

/// Adds a redistribution to the log if it crosses ranks: a plan, or a fetch of `bytes` from `from`.
void log_plan(OpLog& log, const std::string& what, const Plan& plan);
void log_fetch(OpLog& log, const std::string& what, const Layout& from, int64_t bytes);
/// Adds a call that is not executed.
void log_work(OpLog& log, const OpBody& op, const Route& route, const CallBody& call);

/// Throws when the context's traffic policy forbids the movement. `what` names the op.
void check_policy(const std::string& what, bool moves, bool communicates);

/// Counts traffic that an op caused: `bytes` received.
void count_implicit(const std::string& what, int64_t bytes);

/// Adds bytes to the traffic that an op caused last.
void count_bytes(const std::string& what, int64_t bytes);

/// Returns `tensor` redistributed to that layout, unrecorded.
Tensor moved_to(const Tensor& tensor, const Ref<Layout>& layout);

}  // namespace weft
