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

// What weft asks of NCCL. One of three files gives it: library_nccl.cpp (GPUs),
// emulated/library.cpp (tests without one; ranks are threads), library_absent.cpp (builds without
// it). A failed call is a std::runtime_error naming it. No call blocks: what has begun is asked
// for by `status`.

/// Tells the ranks that mean to be one communicator from all others.
using UniqueId = std::array<std::byte, 128>;

/// One rank's part in one thing that ranks do together.
struct Move {
  enum class Kind : uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, send, recv };
  Kind kind;
  const void* send;
  void* recv;
  /// Elements of one rank's part.
  int64_t count;
  DType dtype;
  ReduceOp op = ReduceOp::sum;
  /// Of broadcast; the other rank of send and recv.
  int root = 0;
};

/// How what a communicator began last does.
struct Status {
  bool is_ready = false;
  /// Why the communicator is of no more use; empty while it is.
  std::string error = {};
};

bool is_present();

UniqueId new_id();
/// Begins one rank's communicator of `ranks` on a device.
void* begin(int ranks, const UniqueId& id, int rank, int device);
/// Begins to queue moves, as one, on a stream. When the communicator is ready they are queued.
void queue(void* communicator, std::span<const Move> moves, const Stream& stream);
Status status(void* communicator);
/// Begins to end: ready when nothing of it is under way any more.
void finish(void* communicator);
/// After `finish`.
void destroy(void* communicator) noexcept;
/// Ends it at once; what is under way on the device ends too, without a result.
void abort(void* communicator) noexcept;

}  // namespace weft::nccl
