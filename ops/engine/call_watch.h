// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "weft/extend/call.h"
#include "weft/tensor.h"

namespace weft {

struct OpBody;
struct OpNode;
class BackwardRun;
class Layout;
class Plan;

/// A part of a split product that moves.
struct MovingPart {
  /// Names it until it has arrived.
  const void* key;
  int part;
  /// It is reduced and scattered, otherwise gathered.
  bool scatters;
  const Layout& layout;
  /// The axis, and bytes that this rank receives.
  std::string axis;
  int64_t bytes;
};

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
  /// A plan runs, or elements are fetched, for the op `what`; of the bytes this rank receives.
  virtual void planned(const std::string& /*what*/, const Plan& /*plan*/) {}
  virtual void fetched(const std::string& /*what*/, const Layout& /*from*/, int64_t /*bytes*/) {}
  /// A part of a split product is moved, waited for, computed, and no longer needed.
  virtual void part_started(const MovingPart& /*moving*/) {}
  virtual void part_awaited(const void* /*key*/, int /*part*/) {}
  virtual void part_computed(int /*part*/) {}
  virtual void part_ended(const void* /*key*/, int /*part*/) {}
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
