// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/extend/end_on_thread.h"
#include "weft/tensor.h"

namespace weft {

/// Products of backwards that lead straight to leaves, such as the gradients of weights: they are
/// computed later, so that the gradients of a function's inputs are there first. Until then it
/// keeps their operands.
class WEFT_API DeferredGradients : NotCopied {
 public:
  /// Backwards of the calling rank leave such products to `to` while it exists; but those that lead
  /// to `inputs`, and those of functions that are run again (recomputation), are computed at once.
  class WEFT_API Scope : NotCopied {
   public:
    Scope(DeferredGradients& to, Tensors inputs);
    ~Scope();
    DeferredGradients& to;
    const Tensors inputs;

   private:
    Scope* outer_;
  };

  bool is_empty() const { return roots_.empty(); }
  /// Computes the products in the order in which backward reached them, and passes them to the
  /// leaves: one more backward of these.
  void run();
  void add(Tensor root) { roots_.push_back(std::move(root)); }

 private:
  /// A tensor for each product, whose backward computes it.
  Tensors roots_;
};

}  // namespace weft
