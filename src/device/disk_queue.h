// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

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

  /// Takes the result of a system call, negative for an error; returns true if all is done.
  bool took(int64_t result);
};

/// Performs requests while the caller continues. Any thread may call it.
class DiskQueue {
 public:
  virtual ~DiskQueue() = default;
  virtual void start(DiskRequest& request) = 0;
  /// Returns when the request is done.
  virtual void wait(DiskRequest& request) = 0;
};

/// Requests fail with ETIMEDOUT when none has ended for so long, as collectives do.
inline constexpr std::chrono::milliseconds kDiskTimeout = std::chrono::minutes(10);

/// True if the environment variable WEFT_PLAIN_IO asks for plain reads and writes: neither io_uring
/// nor O_DIRECT.
bool is_plain_io();

/// A queue by io_uring, or null with `reason` an errno where the system refuses. All requests fail
/// after one has failed with ETIMEDOUT.
std::unique_ptr<DiskQueue> make_uring_queue(int& reason,
                                            std::chrono::milliseconds timeout = kDiskTimeout);
/// A queue by plain reads and writes on a thread.
std::unique_ptr<DiskQueue> make_thread_queue();
/// The first of them that the system allows; warns once in a process where it is the second.
std::unique_ptr<DiskQueue> make_disk_queue();

}  // namespace weft
