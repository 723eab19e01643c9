// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

/// Work of one GPU that is recorded once and then played: one call of the host instead of one a
/// kernel. It reads and writes the same memory each time; what differs from one time to the next is
/// filled into tensors beforehand, in place. An optimizer's step does that by itself: its count
/// goes on, and its learning rate may change. Ranks that are processes with a GPU each may exchange
/// in it: all of them record the same, and play it as often. Belongs to its thread.
class WEFT_API Graph {
 public:
  /// std::invalid_argument unless `device` is a GPU that is there.
  explicit Graph(Device device);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Does `work`, in the order of the current stream: twice as it is, so that memory is made and
  /// schedules are known; then by recording it; from then on by playing the record, without calling
  /// `work`. What it takes of memory stays the record's. Tensors that it reads, and modules and
  /// optimizers that it uses, must be kept as long as this lives. In the record ids and indices are
  /// not checked. std::invalid_argument when it copies between the host and the GPU, draws random
  /// numbers (they would be the same each time), or exchanges anything with ranks that are threads
  /// of this process. What work that was refused has left, gradients too, was never computed.
  void run(const std::function<void()>& work);
  bool is_recorded() const { return graph_ != nullptr; }
  Device device() const { return device_; }

  /// The one that records the calling thread's work now; null while none does.
  static Graph* recording();
  /// For work that is being recorded: `prepare` is called before each time that the record is
  /// played, the first one too, and fills the tensors that differ (what it queues comes first).
  /// They were made before the recording: memory that the record takes may be another's earlier in
  /// it.
  void before_each_play(std::function<void()> prepare);
  /// The same just before the record is played, when nothing refuses any more, and just after.
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
  /// Of the record that is, or was begun last.
  uint64_t capture_ = 0;
  std::vector<std::function<void()>> before_;
  std::vector<std::pair<std::function<void()>, std::function<void()>>> around_;
  /// Whose memory the record takes.
  std::thread::id owner_ = std::this_thread::get_id();
};

}  // namespace weft
