// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

/// A sequence of work on one GPU (a CUDA graph) that is recorded once and then replayed with one
/// host call instead of one per kernel. Each replay reads and writes the same memory; values that
/// change between replays are written into tensors in place beforehand. An optimizer's step does
/// that by itself: its step count advances, and its learning rate may change. Ranks that are
/// processes with one GPU each may communicate in a graph: all of them must record the same work
/// and replay it equally often. May be used only on the thread that created it.
class WEFT_API Graph : NotCopied {
 public:
  /// Throws std::invalid_argument unless `device` is an available GPU.
  explicit Graph(Device device);
  ~Graph();

  /// Runs `work`, ordered by the current stream. The first two calls execute it directly, so that
  /// memory is allocated and schedules are known; the third call records it; that call and all
  /// later ones replay the record without calling `work`. Memory allocated while recording stays
  /// reserved for the record. Tensors that `work` reads, and modules and optimizers that it uses,
  /// must outlive this object. Ids and indices are not checked in a record. Throws
  /// std::invalid_argument when `work` copies between the host and the GPU, draws random numbers
  /// (they would be the same each time), or communicates with ranks that are threads of this
  /// process. Tensors that refused work leaves, also gradients, are not computed.
  void run(const std::function<void()>& work);
  bool is_recorded() const { return graph_ != nullptr; }
  Device device() const { return device_; }

  /// Returns the graph that is recording the calling thread's work; null when none is.
  static Graph* recording();
  /// Registers `prepare` for the work that is being recorded. It is called before each replay,
  /// including the first, and fills the tensors whose values change (work that it queues runs
  /// first). Those tensors must have been allocated before the recording: memory allocated in the
  /// record may hold another tensor's data earlier in it.
  void before_each_play(std::function<void()> prepare);
  /// Registers functions to call just before a replay, when no check can fail any more, and after.
  void around_each_play(std::function<void()> begin, std::function<void()> end);

 private:
  void record(const std::function<void()>& work);
  void forget_record() noexcept;
  void play() const;
  void wait_for_all() const;
  void wait_for_roles() const;
  void let_all_wait() const;

  Device device_;
  Stream stream_;
  int runs_ = 0;
  void* graph_ = nullptr;
  /// Number of the current or last capture.
  uint64_t capture_ = 0;
  std::vector<std::function<void()>> before_;
  std::vector<std::pair<std::function<void()>, std::function<void()>>> around_;
  /// The thread whose heap the record's memory comes from.
  std::thread::id owner_ = std::this_thread::get_id();
};

}  // namespace weft
