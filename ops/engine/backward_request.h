// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft {

/// The gradients that a backward computes, and what it keeps.
struct BackwardRequest {
  bool create_graph = false, retain_graph = false;
  /// Tensors whose gradients `grad` returns, in their layout and dtype. No others are computed.
  Tensors targets = {};
  /// Leaves that alone accumulate gradients; without them all do, or none if there are targets.
  Tensors leaves = {};
  bool is_selective = false;
  /// The run ends at the targets: nothing that they were computed from runs.
  bool ends_at_targets = false;
  /// The backward in which a function is run again: leaves that it wants are wanted here too.
  class BackwardRun* outer = nullptr;

  bool is_default() const {
    return !create_graph && !retain_graph && !is_selective && targets.empty();
  }
};

/// Adds a contribution to a sum, which is empty before the first.
void add_gradient(Tensor& sum, Tensor gradient);

/// Runs a backward within the rank's outermost one, or as that; returns the targets' gradients.
Tensors run_backward(const Tensors& roots, const Tensors& gradients,
                     const BackwardRequest& request);

/// The gradients of the roots, with 1 for those that are missing; std::invalid_argument
/// "<what>: ..." if there are too many, or one is missing for a root of several elements.
Tensors complete_gradients(const char* what, const Tensors& roots, const Tensors& gradients);

}  // namespace weft
