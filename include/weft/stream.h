// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "weft/device.h"
#include "weft/export.h"

namespace weft {

/// An ordered queue of work on a device. On the CPU there is one, and work is done when its call
/// returns.
struct Stream {
  Device device = cpu;
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

/// What a rank's streams on a device are for: kernels; parameters on their way; gradients on
/// theirs; what goes to the host and back.
enum class StreamRole : uint8_t { compute, gather, scatter, copy };
inline constexpr int kStreamRoles = 4;

/// The calling thread's stream of that role on a device, made when it is first asked for; it ends
/// with the thread. std::invalid_argument when there is no such device.
WEFT_API Stream stream_for(Device device, StreamRole role);

/// Where the calling thread's work on `device` goes: the stream of the StreamScope it is in, where
/// that is on the device, else its stream of computing; CUDA's calls are then for the device.
WEFT_API Stream current_stream(Device device);

/// Sends the calling thread's work on the stream's device to that stream, for a scope. Memory that
/// is freed in the scope is used again in the order of that stream.
class WEFT_API StreamScope {
 public:
  explicit StreamScope(const Stream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Stream before_;
};

/// A point in a stream's work. Empty: nothing to wait for, as always on the CPU.
class WEFT_API Event {
 public:
  Event() = default;
  /// Marks what has been queued on `stream` so far.
  static Event record(const Stream& stream);
  /// Later work on `stream` starts after this point.
  void wait(const Stream& stream) const;
  /// Blocks the calling thread until this point is reached.
  void synchronize() const;
  /// The same for destructors: an error of the device is told by its next call.
  void synchronize_quietly() const noexcept;
  bool empty() const { return handle_ == nullptr; }

 private:
  std::shared_ptr<void> handle_;
};

}  // namespace weft
