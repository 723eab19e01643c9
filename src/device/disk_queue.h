// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "weft/export.h"

namespace weft {

/// One read or write of a file. Its memory stays until it is done.
struct DiskRequest {
  int file;
  bool writes;
  int64_t offset;
  std::byte* data;
  int64_t bytes;
  /// Bytes that are done; the end of the file ends a read early.
  int64_t moved = 0;
  /// The errno of the system's refusal.
  int error = 0;
  bool done = false;
};

/// Requests fail with ETIMEDOUT when none has ended for so long, as collectives do.
inline constexpr std::chrono::milliseconds kDiskTimeout = std::chrono::minutes(10);

/// Performs requests on threads while the caller continues. Any thread may call it. All requests
/// fail after one has failed with ETIMEDOUT.
class DiskQueue : NotCopied {
 public:
  explicit DiskQueue(std::chrono::milliseconds timeout = kDiskTimeout);
  ~DiskQueue();
  void start(DiskRequest& request);
  /// Returns when the request is done.
  void wait(DiskRequest& request);

 private:
  struct State;

  const std::chrono::milliseconds timeout_;
  /// Shared with the threads, which outlive the queue where the system does not answer.
  std::shared_ptr<State> state_;
  std::vector<std::jthread> threads_;
};

}  // namespace weft
