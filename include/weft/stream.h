// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "weft/device.h"
#include "weft/export.h"

namespace weft {

/// An ordered queue of work on a device. The CPU has one stream, and its work is complete when the
/// call returns.
struct Stream {
  Device device = cpu;
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

/// Uses of a rank's streams on a device. compute: kernels. gather: unsharding parameters, copies
/// from the host. scatter: reducing gradients, copies to the host. copy: collectives of split
/// products. side: kernels that run next to those of `compute`; backward runs there what was
/// recorded there.
enum class StreamRole : uint8_t { compute, gather, scatter, copy, side };
inline constexpr int kStreamRoles = 5;

/// Returns the calling thread's stream of that role on a device, created on first use and destroyed
/// with the thread. std::invalid_argument when the device does not exist.
WEFT_API Stream stream_for(Device device, StreamRole role);

/// Returns the stream for the calling thread's work on `device`: that of the current StreamScope if
/// it is on the device, else the compute stream. Also makes `device` CUDA's current device.
WEFT_API Stream current_stream(Device device);

/// Sends the calling thread's work on the stream's device to that stream, for a scope. Memory freed
/// in the scope is reused in that stream's order: first make the stream wait for other streams that
/// still use the memory, or free it in a scope of the stream that does.
class WEFT_API StreamScope : NotCopied {
 public:
  explicit StreamScope(const Stream& stream);
  ~StreamScope();

 private:
  Stream before_;
};

/// Holds an event of the GPU's runtime, which alone defines it.
struct StreamEvent;

/// A point in a stream's work. An empty one needs no wait, as always on the CPU.
class WEFT_API Event {
 public:
  Event() = default;
  /// Marks what has been queued on `stream` so far.
  static Event record(const Stream& stream);
  /// Makes later work on `stream` start after this point.
  void wait(const Stream& stream) const;
  /// Blocks the calling thread until this point is reached.
  void synchronize() const;
  /// The same for destructors: a device error is reported by its next call instead.
  void synchronize_quietly() const noexcept;
  /// Returns true when this point is reached.
  bool is_reached() const;
  bool empty() const { return handle_ == nullptr; }

 private:
  std::shared_ptr<StreamEvent> handle_;
};

}  // namespace weft
