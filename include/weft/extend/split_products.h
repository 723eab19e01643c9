// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/tensor.h"

namespace weft {

/// Products of linear layers, split so that one part is computed while the next one moves along an
/// axis of tensor parallelism. Gradients move in parts too. On a GPU parts move on the stream
/// StreamRole::copy. Results equal those of `linear` and `redistribute`, which compute instead
/// where a split is impossible: tensors that other axes cut along the same dim, weights that move
/// too.
struct SplitProducts {
  /// A view of one axis.
  DeviceMesh axis;
  int parts = 1;
};

/// The most parts: their collectives are in progress at one time.
inline constexpr int kMostProductParts = 16;

/// An input of linear layers that is gathered along the axis, once for all of them. Products of
/// the first layer begin with the parts that have arrived; in backward, the sum of all layers'
/// gradients of the input is reduced and scattered in parts.
class WEFT_API GatheredInput : NotCopied {
 public:
  /// Starts to gather `x`.
  GatheredInput(const Tensor& x, const SplitProducts& split);
  ~GatheredInput();

  /// Returns true if it has been made of `x`, which has not changed since.
  bool is_of(const Tensor& x) const;
  /// Returns x weight^T (+ bias, unless it is empty).
  Tensor linear(const Tensor& weight, const Tensor& bias);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns x weight^T (+ bias, unless it is empty), a Partial sum along the axis that is reduced
/// and scattered along `dim`, which is not the last.
WEFT_API Tensor linear_reduce_scatter(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                      int dim, const SplitProducts& split);

}  // namespace weft
