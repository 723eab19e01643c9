// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "fsdp/quantized.h"
#include "fsdp/stages.h"

namespace weft::fsdp {

/// A reduce-scatter of gradients as codes, in one stage over joined axes or in two (`Stages`): each
/// rank sums the parts of the ranks of its place within, in f32 in the buffer, then sends the codes
/// of these sums across.
class QuantizedScatter {
 public:
  /// Over axes `first` to `last` (excluded) of `roles.sharded`.
  QuantizedScatter(const Roles& roles, size_t first, size_t last, const Quantization& quantization);

  size_t stages() const { return messages_.size(); }
  /// The ranks of all axes, and of a stage.
  const AxisGroup& ranks() const { return ranks_; }
  const AxisGroup& ranks(size_t stage) const { return messages_[stage].ranks(); }

  /// Adds the gradient that lies in `region` of the buffer, which all ranks of the axes share.
  void add(const Region& region);
  /// All gradients were added. Lays out the memory that follows byte `end` of the buffer.
  void lay_out(size_t& end);
  /// Bytes that a stage receives, and bytes that it reads.
  int64_t traffic(size_t stage) const { return messages_[stage].traffic(); }
  int64_t copied(size_t stage) const;
  /// Bytes of what codes missed: none without error feedback.
  size_t residual_bytes() const;

  /// Starts a stage.
  Work exchange(size_t stage, const Ref<Storage>& buffer, const Ref<Storage>& residual);
  /// After the first of two stages: sums what arrived.
  void receive(const Ref<Storage>& buffer);
  /// After the last stage: sums this rank's part of gradient `i` into `out`, or adds it.
  void add_up(size_t i, const Ref<Storage>& buffer, const MemoryBlock& out, bool accumulate) const;

 private:
  AxisGroup ranks_;
  std::vector<GradientMessages> messages_;
  /// The gradients, and with two stages the sums of the first, which lie behind them.
  std::vector<Region> regions_, sums_;
  /// The first of two stages was started, and what arrives was not summed yet.
  bool arriving_ = false;
};

}  // namespace weft::fsdp
