// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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

/// The place to which a rank's op engine reports what it does. It counts each event and passes it
/// to the rank's OpLog and trace, if they exist; without them an event costs a branch.
struct Recorder {
  struct Moved {
    int64_t count = 0;
    int64_t bytes = 0;
  };

  EngineStatistics statistics;
  /// Implicit traffic by the op that caused it.
  std::map<std::string, Moved> implicit;
  OpLog* log = nullptr;
  TraceRecorder* trace = nullptr;

  /// The calling rank's.
  static Recorder& current();

  /// An op, or the gradient of a leaf, requires redistributions in which this rank receives
  /// `bytes`.
  void required(const std::string& what, int64_t bytes);
  /// A plan runs.
  void planned(const std::string& what, const Plan& plan);
  /// An op fetches elements of an operand of layout `from`; `required` has counted the bytes.
  void fetched(const std::string& what, const Layout& from, int64_t bytes);
  /// The same for bytes that `required` could not know.
  void exchanged(const std::string& what, const Layout& from, int64_t bytes);
  /// A call on device `meta`, which is not executed.
  void skipped(const OpBody& op, const Route& route, const CallBody& call);
  /// A contribution to a gradient reached the memory of its sink: written there by its op, or
  /// copied.
  void reached_sink(const Tensor& contribution, bool in_place);
};

/// The engine's state on one rank.
struct Engine {
  Recorder recorder;
  KeptResults* kept = nullptr;
  /// Routes of calls without a mesh.
  RouteTable local_routes{kRouteCapacity};

  static Engine& current();
};

/// Runs a plan on `tensor`, unrecorded; shares memory if the plan only slices or relabels. `what`
/// names the op that requires it.
Tensor run_plan(const Tensor& tensor, const Ref<Plan>& plan,
                const std::string& what = "redistribute");

/// Throws when the context's traffic policy forbids the movement. `what` names the op.
void check_policy(const std::string& what, bool moves, bool communicates);

/// Returns `tensor` redistributed to that layout, unrecorded.
Tensor moved_to(const Tensor& tensor, const Ref<Layout>& layout);

}  // namespace weft
