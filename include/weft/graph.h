// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

/// Work of one GPU that is recorded once and then played: one call of the host instead of one a
/// kernel. It reads and writes the same memory each time; what differs from one time to the next is
/// filled into tensors beforehand, in place. Belongs to its thread.
class WEFT_API Graph {
 public:
  /// std::invalid_argument unless `device` is a GPU that is there.
  explicit Graph(Device device);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Does `work`, in the order of the current stream: twice as it is, so that memory is made and
  /// schedules are known; then by recording it; from then on by playing the record, without calling
  /// `work`. Tensors that it leaves behind must be kept as long as this lives. In the record ids
  /// and indices are not checked. std::invalid_argument when it copies between the host and the
  /// GPU, draws random numbers (they would be the same each time), or exchanges anything with other
  /// ranks.
  void run(const std::function<void()>& work);
  bool is_recorded() const { return graph_ != nullptr; }

 private:
  void record(const std::function<void()>& work);
  void wait_for_all() const;
  void let_all_wait() const;

  Device device_;
  Stream stream_;
  int runs_ = 0;
  void* graph_ = nullptr;
};

}  // namespace weft
