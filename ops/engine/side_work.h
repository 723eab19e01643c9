// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "ops/engine/node.h"
#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

/// Decides where the nodes of a backward run: those that were recorded on StreamRole::side run on
/// that stream, all others on the one on which the outermost backward began. It orders the two by
/// events where gradients pass from one to the other. Without the former nodes, as always on the
/// CPU, it costs a branch a node.
///
/// The streams are apart from the first gradient that passes to the side stream until they have
/// waited for each other. Both may read the same memory meanwhile, so that what a node frees is
/// kept if something else refers to it or did.
class SideWork : NotCopied {
 public:
  SideWork();
  ~SideWork();

  /// A node that a backward will run.
  void expect(const Node& node) {
    if (node.side >= 0) [[unlikely]]
      begin(node.side);
  }
  /// Whether a gradient that passes to `node` now changes the stream.
  bool changes_stream(const Node& node) const { return active_ && runs_aside(node) != is_aside_; }
  /// The streams are apart from now on.
  void part() { are_apart_ = true; }
  bool are_apart() const { return are_apart_; }
  /// Marks the work queued so far on the stream on which nodes run now.
  Event mark() const;

  /// Lets a node run on its stream, after `awaited`, while it exists.
  class Turn : NotCopied {
   public:
    Turn(SideWork& work, Node& node, const std::vector<Event>& awaited);
    ~Turn() { work_.is_aside_ = was_aside_; }

   private:
    SideWork& work_;
    const bool was_aside_;
    std::optional<StreamScope> scope_;
  };

  /// Orders writes to the memory of a leaf's gradient.
  void begin_write(const LeafNode& leaf) const {
    if (are_apart_) [[unlikely]]
      leaf.written.wait(current());
  }
  void end_write(LeafNode& leaf) const {
    if (are_apart_) [[unlikely]]
      leaf.written = mark();
  }

  /// Frees what `node` saved for its run, and the gradients that it received, or keeps them.
  void free(const Ref<Node>& node, Tensors gradients);
  void keep(Tensor tensor) { kept().tensors.push_back(std::move(tensor)); }

  /// The stream on which the backward began.
  Stream home(Device device) const;
  /// Lets the streams wait for each other if they are apart, and frees what was kept.
  void join();
  /// The outermost backward has ended.
  void finish();

 private:
  struct Kept {
    Tensors tensors;
    std::vector<Ref<Node>> nodes;
  };
  void begin(int device);
  bool runs_aside(const Node& node) const { return node.side >= 0 && node.side == device_; }
  Stream current() const { return current_stream(side_.device); }
  Kept& kept() { return kept_[is_aside_ ? 1 : 0]; }

  /// Context::stream where the backward began, which may name no device.
  const Stream home_;
  Stream side_;
  int device_ = -1;
  bool active_ = false, is_aside_ = false, are_apart_ = false;
  /// By the stream whose later work uses the memory again.
  std::array<Kept, 2> kept_;
};

}  // namespace weft
