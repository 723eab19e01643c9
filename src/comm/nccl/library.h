// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "weft/dtype.h"
#include "weft/placement.h"
#include "weft/stream.h"

namespace weft::nccl {

// weft's interface to NCCL, implemented by library_nccl.cpp (GPUs) or library_emulated.cpp (tests
// without one; ranks are threads). A failed call throws a std::runtime_error with its name. Calls
// do not block: `status` returns their progress.

/// Identifies the ranks that create one communicator together.
using UniqueId = std::array<std::byte, 128>;

/// One rank's part in an NCCL operation.
struct Move {
  enum class Kind : uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, send, recv };
  Kind kind;
  const void* send;
  void* recv;
  /// Elements of one rank's part.
  int64_t count;
  DType dtype;
  ReduceOp op = ReduceOp::sum;
  /// The root of a broadcast; the other rank of send and recv.
  int root = 0;
};

/// The state of a communicator's last operation.
struct Status {
  bool is_ready = false;
  /// Why the communicator is unusable; empty while it is usable.
  std::string error = {};
};

/// True when the library can be loaded.
bool is_present();

UniqueId new_id();
/// Starts creating one rank's communicator of `ranks` on a device.
void* begin(int ranks, const UniqueId& id, int rank, int device);
/// Starts queueing moves, as one group, on a stream; they are queued when the status is ready.
void queue(void* communicator, std::span<const Move> moves, const Stream& stream);
Status status(void* communicator);
/// Starts an orderly end; the status is ready when no operation is in progress any more.
void finish(void* communicator);
/// Call it after `finish`.
void destroy(void* communicator) noexcept;
/// Aborts it at once; operations in progress on the device end without a result.
void abort(void* communicator) noexcept;

namespace emulated {

// Test controls of the emulated NCCL.

/// Makes the next collective hang on its streams until it is aborted.
void hang_next();
/// Makes the next moves fail, as with a broken link.
void fail_next();

}  // namespace emulated
}  // namespace weft::nccl
