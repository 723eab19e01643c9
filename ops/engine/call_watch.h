// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "weft/extend/call.h"
#include "weft/tensor.h"

namespace weft {

struct OpBody;
struct OpNode;
class BackwardRun;

/// Sees op calls and gradients as they are computed, for scopes that look for wrong numbers. Its
/// own calls are not seen.
class CallWatch {
 public:
  virtual ~CallWatch() = default;
  /// Whether calls save all operands for `differentiated`, not only those that backward reads.
  virtual bool reads_operands() const { return false; }
  virtual void computed(const OpBody& op, std::span<const Tensor> operands,
                        const Attributes& attributes, std::span<const Tensor> results) = 0;
  /// `passed` has the gradients of the operands, empty where the node gave none.
  virtual void differentiated(const OpNode& node, std::span<const Tensor> gradients,
                              const Tensors& passed) = 0;
};

/// The data behind a Grad.
struct GradBody {
  OpNode& node;
  BackwardRun& backward;
  std::span<const Tensor> gradients;
  /// The tensors that have been passed on, where something watches.
  Tensors* passed = nullptr;
};

}  // namespace weft
