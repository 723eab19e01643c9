// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "mesh/plan.h"
#include "ops/engine/recorder.h"
#include "ops/engine/route.h"

namespace weft {

class KeptResults;
struct CallBody;
struct OpBody;

/// The engine's state on one rank.
struct Engine {
  Recorder recorder;
  KeptResults* kept = nullptr;
  /// Routes of calls without a mesh.
  RouteTable local_routes;

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
